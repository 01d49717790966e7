"""Every line that pays for a rounding error is needed: without it a stated error is too small.

A line that ends in "# pays: name" in the package has a case here under the same name. With the
line a true inequality holds between doubles and exact values; without it, it does not. Where a
real machine rounds too well to tell, the machine of ``tests.hostile`` does not.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest
from flint import acb, arb, ctx
from scipy import fft
from tests.balls import ball, inside
from tests.engine import test_smoothed
from tests.guards.mutants import marks, unpaid
from tests.hostile import MILLION, displaced, granted, in_the_worst_order
from tests.integrals import Part, Step

from tightbudget.engine.buckets import enumerate as enumerate_
from tightbudget.engine.buckets import measures, profile
from tightbudget.engine.buckets.enumerate import Outcomes
from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.buckets.measures import LowerMeasure, Tilt, UpperMeasure
from tightbudget.engine.readings import renyi
from tightbudget.engine.saddle_point import contour
from tightbudget.engine.saddle_point.saddle_points import Group, Term
from tightbudget.mechanisms import (
    allocated_above,
    gaussian_integrand,
    gaussian_path,
    gaussian_schedule,
    gaussian_schedule_bounds,
    gaussian_schedule_nodes,
    gaussian_schedule_path,
    gaussian_schedule_plan,
    gaussian_transform,
    gaussian_transform_bounds,
    laplace,
    smooth_end,
    subsampled,
)
from tightbudget.mechanisms import gaussian_transform_plan as plan
from tightbudget.mechanisms.gaussian_integrand import MOST_NESTED, LeftOut, Nodes, Rule
from tightbudget.mechanisms.gaussian_schedule import Schedule
from tightbudget.mechanisms.gaussian_transform import MixedTransform, NormalTransform
from tightbudget.mechanisms.logistic import LogisticPair
from tightbudget.mechanisms.mixture_transform import MixtureTransform
from tightbudget.mechanisms.smooth_end import SmoothEnd
from tightbudget.mechanisms.weighted_transform import WeightedTransform
from tightbudget.numerics import rounding, special
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.convolve import _FLAT, convolve, convolve_by_blocks, correlate
from tightbudget.numerics.enclosure import exact as exact_masses
from tightbudget.numerics.enclosure import exp_enclosure
from tightbudget.numerics.rounding import EXP, UNIT, next_down, next_up
from tightbudget.pairs.pair import Bins, Pair
from tightbudget.pairs.transform import Line

BOTH = (1.0, -1.0)
COS, SIN = np.cos, np.sin
FAR_OFF = 1e-9  # an ingredient that is displaced by hand
REMOVE, ADD = MixedTransform(1.0, 0.25, True), MixedTransform(1.0, 0.25, False)
BULK, RARE = REMOVE.split(2.0)
REMEMBERS = plan.planned_nodes, plan.rule_of_line, gaussian_path._path


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Exact values of 160 bits; and nothing remembered that another machine has computed."""
    before, ctx.prec = ctx.prec, 160
    for remembers in REMEMBERS:
        remembers.cache_clear()
    yield
    for remembers in REMEMBERS:
        remembers.cache_clear()
    ctx.prec = before


def exact(mixed: MixedTransform) -> Step:
    return Step(Fraction(mixed.m), Fraction(mixed.q), mixed.remove)


def part_of(mixed: MixedTransform) -> Part | None:
    return Part(mixed.part == "rare", mixed.edge, mixed.width) if mixed.part else None


def number(z: complex) -> acb:
    return acb(float(np.real(z)), float(np.imag(z)))


# --------------------------------------------------------------- the ingredients at a node


def fine(first: float, last: float, h: float = 2.0**-4) -> Rule:
    """Nodes in an interval."""
    return Rule(h, round(first / h), round(last / h), 0.0)


def log_share(mixed: MixedTransform, x: arb) -> arb:
    u = (x - mixed.edge) / mixed.width / arb(2).sqrt()
    return ((u if mixed.part == "bulk" else -u).erfc() / 2).log()


def losses_hold(mixed: MixedTransform, rule: Rule, m: Fraction | None = None) -> bool:
    """Each loss is within its error of ln R; m may be the exact number that was rounded."""
    at, step = mixed.at(rule), exact(mixed)
    if m is not None:
        step = dataclasses.replace(step, m=m)
    sign = 1 if mixed.remove else -1
    return all(
        abs(sign * step.log_r(acb(x)).real - loss) <= error
        for x, loss, error in zip(
            at.x.tolist(), at.loss.tolist(), at.loss_error.tolist(), strict=True
        )
    )


def weights_hold(mixed: MixedTransform, rule: Rule) -> bool:
    """Each weight and each weight e^-L is within the stated error of the exact one."""
    at, step = mixed.at(rule), exact(mixed)
    base = (arb(rule.h) / (2 * arb.pi()).sqrt()).log()
    for i, x in enumerate(map(arb, at.x.tolist())):
        log = base - x * x / 2
        if mixed.remove:
            log += step.log_r(acb(x)).real
        if mixed.part:
            log += log_share(mixed, x)
        if not abs(arb(float(at.weight[i])).log() - log) <= float(at.weight_error[i]):
            return False
    return True


def mean_holds(mixed: MixedTransform, rule: Rule) -> bool:
    """The sum of weight (e^-L - 1 + L) is within its error of the exact one over the same nodes."""
    at, step = mixed.at(rule), exact(mixed)
    base, total = arb(rule.h) / (2 * arb.pi()).sqrt(), arb(0)
    for x in map(arb, at.x.tolist()):
        log_r = step.log_r(acb(x)).real
        loss = log_r if mixed.remove else -log_r
        total += (
            base * (-x * x / 2 + (log_r if mixed.remove else 0)).exp() * ((-loss).expm1() + loss)
        )
    return bool(abs(total - at.mean) <= at.mean_error)


def rounded_sensitivities() -> bool:
    """m = 1 / sigma is rounded, and q so small that the loss is smaller than y."""
    for sigma in np.linspace(0.71, 0.99, 15).tolist():
        m = 1.0 / sigma
        middle = 30.0 / m + m / 2
        rule = fine(middle - 0.5, middle + 0.5, 2.0**-6)
        if not losses_hold(MixedTransform(m, 1e-13, True), rule, 1 / Fraction(sigma)):
            return False
    return True


def with_tails_off(what: Callable[[], bool], scale: float) -> bool:
    """ln Phi is off by all that is granted, times ``scale``, in either direction."""
    tail, slack = special.log_normal_tail, special.log_normal_tail_slack
    for sign in BOTH:

        def moved(u: Any, s: float = sign) -> Any:
            return tail(u) + s * 0.99 * scale * slack(u)

        with (
            mock.patch.object(gaussian_integrand, "log_normal_tail", moved),
            mock.patch.object(gaussian_transform_bounds, "log_normal_tail", moved),
            mock.patch.object(gaussian_schedule_bounds, "log_normal_tail", moved),
            mock.patch.object(smooth_end, "log_normal_tail", moved),
            mock.patch.object(smooth_end, "log_normal_tail_slack", lambda u: scale * slack(u)),
            mock.patch.object(
                gaussian_integrand, "log_normal_tail_slack", lambda u: scale * slack(u)
            ),
        ):
            if not what():
                return False
    return True


def off(owner: Any, function: str, grant: str, what: Callable[[], bool], unit: float = 1.0) -> bool:
    """Whether something holds where a function is off in either direction."""
    for sign in BOTH:
        with displaced(owner, function, grant, sign, unit):
            if not what():
                return False
    return True


# ------------------------------------------------------------------------------- M itself


@functools.cache
def truth(mixed: MixedTransform, c: float, t: float) -> acb:
    """M - 1, of the rare part M."""
    rare = mixed.part == "rare"
    value = exact(mixed).moment(acb(c, t), part_of(mixed), less=not mixed.part)
    return value - 1 if mixed.part and not rare else value


def value_holds(
    mixed: MixedTransform,
    c: float,
    t: float,
    change: Callable[[Nodes], Nodes] = lambda at: at,
    rule: Rule | None = None,
    at: Nodes | None = None,
) -> bool:
    """M - 1 is within its error of the exact value; ``change`` displaces an ingredient."""
    rule = rule or plan.rule_for(mixed, c, t, 1e-24)
    at = at or mixed.at(rule)
    value, error = mixed._values(c, np.array([t]), rule, change(at))
    return bool(abs(truth(mixed, c, t) - number(value[0])) <= float(error[0]))


def value_off(
    mixed: MixedTransform,
    c: float,
    t: float,
    owner: Any,
    function: str,
    grant: str,
    unit: float = 1.0,
) -> bool:
    """Only the functions that are called for the value are off, not its ingredients."""
    rule = plan.rule_for(mixed, c, t, 1e-24)
    at = mixed.at(rule)
    return off(owner, function, grant, lambda: value_holds(mixed, c, t, rule=rule, at=at), unit)


def moved_loss(sign: float) -> Callable[[Nodes], Nodes]:
    return lambda at: dataclasses.replace(
        at, loss=at.loss + sign * FAR_OFF, loss_error=at.loss_error + FAR_OFF
    )


def moved_mean(at: Nodes) -> Nodes:
    return dataclasses.replace(at, mean=at.mean + FAR_OFF, mean_error=at.mean_error + FAR_OFF)


def exact_mean(at: Nodes) -> Nodes:
    """The mean has no error, so that none of what is granted to it is there for others."""
    return dataclasses.replace(
        at, mean=ADD.at(plan.rule_for(ADD, 0.5, 0.0, 1e-24)).mean, mean_error=1e-16
    )


def lost_is_off() -> bool:
    """Both of a bulk's lost shares are off by what they may be."""
    for sign in BOTH:
        bulk = dataclasses.replace(BULK)
        lost = bulk.left_out
        bulk.__dict__["left_out"] = LeftOut(
            lost.mass + sign * FAR_OFF,
            lost.slope + FAR_OFF,
            lost.mass_error + FAR_OFF,
            lost.slope_error + FAR_OFF,
        )
        if not value_holds(bulk, 1.0, 0.5):
            return False
    return True


def lost_holds(q: Fraction | None = None) -> bool:
    """What the bulk loses, against tails in balls; q may be the exact number that was rounded."""
    share = ball(q or Fraction(0.25))
    for remove in (True, False):
        bulk, _ = MixedTransform(1.0, 0.25, remove).split(2.0)
        scale = (1 + arb(bulk.width) ** 2).sqrt() * arb(2).sqrt()
        without, lifted = ((arb(end) / scale).erfc() / 2 for end in (2.0, 1.0))
        more = share * (lifted - without)
        lost = bulk.left_out
        mass, slope = (without + more, more) if remove else (without, -more)
        if not abs(mass - lost.mass) <= lost.mass_error:
            return False
        if not abs(slope - lost.slope) <= lost.slope_error:
            return False
    return True


def rounded_rates() -> bool:
    """q is off by all its roundings, a million times as large."""
    nested = MILLION * MOST_NESTED
    with granted("MOST_NESTED", nested):
        return all(
            lost_holds(Fraction(0.25) * (1 + Fraction(sign * nested * UNIT * 0.99)))
            for sign in BOTH
        )


# ------------------------------------------------------------------------- mixtures


def mixture(*parts: tuple[float, float], remove: bool = True) -> MixtureTransform:
    """The transform of (size, share) parts, whose shares are the exact ones."""
    sizes, shares = (tuple(part) for part in zip(*parts, strict=True))
    return MixtureTransform(sizes[-1], 0.5, remove, sizes=sizes, shares=shares)


MIXTURE = mixture((0.0, 0.5), (0.5, 0.25), (2.0, 0.25))
WITHOUT_ZERO = mixture((0.5, 0.5), (2.0, 0.5))


def mixture_losses_hold(
    mixed: MixtureTransform, rule: Rule, sizes: tuple[Fraction, ...] | None = None
) -> bool:
    """Each ln R is within its error; ``sizes`` may be the exact numbers that were rounded."""
    at = mixed.at(rule)
    exact_sizes = [ball(m) for m in sizes or map(Fraction, mixed.sizes)]
    for x, loss, error in zip(map(arb, at.x.tolist()), at.loss, at.loss_error, strict=True):
        ratio = sum(
            (
                arb(share) * (m * x - m * m / 2).exp()
                for m, share in zip(exact_sizes, mixed.shares, strict=True)
            ),
            arb(0),
        )
        if not abs(ratio.log() - float(loss)) <= float(error):
            return False
    return True


def rounded_sizes() -> bool:
    """m = 1 / sigma is rounded, and its share so small that the loss is smaller than y."""
    for sigma in np.linspace(0.71, 0.99, 15).tolist():
        m, share = 1.0 / sigma, 2.0**-721
        middle = 500.0 / m + m / 2
        rule = fine(middle - 0.5, middle + 0.5, 2.0**-6)
        rounded = (Fraction(0), 1 / Fraction(sigma))
        if not mixture_losses_hold(mixture((0.0, 1.0), (m, share)), rule, rounded):
            return False
    return True


def mixture_loses(off: float = 0.0) -> bool:
    """What a mixture's bulk loses, where the larger share is off by a relative ``off``."""
    for remove in (True, False):
        whole = mixture((0.0, 0.75), (1.0, 0.25), remove=remove)
        bulk, _ = whole.split(2.0)
        scale = (1 + arb(bulk.width) ** 2).sqrt() * arb(2).sqrt()
        without, lifted = ((arb(end) / scale).erfc() / 2 for end in (2.0, 1.0))
        more = arb(0.25) * (1 + arb(off)) * (lifted - without)
        lost = bulk.left_out
        mass, slope = (without + more, more) if remove else (without, -more)
        if not abs(mass - lost.mass) <= lost.mass_error:
            return False
        if not abs(slope - lost.slope) <= lost.slope_error:
            return False
    return True


def rounded_shares() -> bool:
    """A share is off by all that it may be, a million times as large."""
    units = MILLION * 32.0
    with granted("_SHARE", units):
        return all(mixture_loses(sign * units * UNIT * 0.99) for sign in BOTH)


def union_holds() -> bool:
    """A union's M is the weighted sum of its parts'."""
    normals = NormalTransform(0.5), NormalTransform(0.25)
    union = WeightedTransform(((0.25, normals[0]), (0.75, normals[1])), 0.0)
    for c, t in ((0.5, 0.0), (0.5, 3.0)):
        s = acb(c, t)
        less = [(s * (s + 1) * arb(one.m) ** 2 / 2).expm1() for one in normals]
        truth = less[0] / 4 + less[1] * 3 / 4
        line = union.line(c, np.array([t]), 1e-16)
        if not abs(truth.log1p() - number(line.log[0])) <= float(line.error[0]):
            return False
    return True


def powers_hold() -> bool:
    """weight e^(c L) for exact losses and logarithms of weights, where exp uses its grant."""
    at = REMOVE.at(fine(4.0, 20.0))
    loss = np.linspace(-300.0, -100.1, at.x.size)
    at = dataclasses.replace(at, loss=loss, weight_error=np.full_like(loss, EXP * UNIT))
    real = np.exp
    with mock.patch.object(np, "exp", lambda x: real(x) * (1.0 + 6.0 * UNIT)):
        a, wa = at.powers(1.0)
    return all(
        abs(arb(float(w)).log() - arb(float(s)) - arb(float(log))) <= float(e)
        for w, s, log, e in zip(wa, loss, at.log_weight, at.power_error(a), strict=True)
    )


def logarithm_holds(mixed: MixedTransform, value: complex) -> bool:
    """ln M for an exact value of M - 1 (of the rare part M)."""
    given = np.array([value]), np.zeros(1)
    with mock.patch.object(MixedTransform, "_values", return_value=given):
        line = mixed.line(1.0, np.zeros(1), 1e-16)
    log = (number(value) + (0 if mixed.part == "rare" else 1)).log()
    return bool(abs(log - number(line.log[0])) <= float(line.error[0]))


def beyond_holds(mixed: MixedTransform, c: float, t: float, shift: float) -> bool:
    """The bound is above the integral of the modulus on Im x = shift."""
    bound = exact(mixed).beyond(c, t, shift)
    return bool(bound <= arb(mixed.beyond(c, t, shift)).exp())


def least_moduli_hold() -> bool:
    """ln |R| of a rare record is bounded below, where it is the sum of two that nearly cancel."""
    mixed, width = MixedTransform(1.0, 2.0**-30, False), 0.25
    x, widths = np.array([2.0, 12.0, 16.0]), np.array([width])
    rotated = mixed.rotated(x, widths)
    least = gaussian_transform_bounds._least_log_r(mixed, mixed.about_log_r(x), rotated, widths)
    truths = [exact(mixed).log_r(acb(at, width)).real for at in x.tolist()]
    return all(arb(float(found)) <= true for found, true in zip(least[0], truths, strict=False))


def rare_beyond_holds() -> bool:
    """The bound is above the rare part itself."""
    return bool(abs(truth(RARE, 0.5, 0.0)) <= arb(RARE.beyond(0.5, 0.0, 0.005)).exp())


# ----------------------------------------------------------- a path above the real axis

PATH = 1.0, 0.25  # m and q of a step


def path_nodes() -> tuple[float, np.ndarray]:
    """The height of a path, and its nodes."""
    path = gaussian_path._path.__wrapped__(*PATH, 3)
    assert path is not None
    return path.a, path.x


def path_weights_hold() -> bool:
    """Each weight h phi(x + i a) is within its relative error."""
    path = gaussian_path._path.__wrapped__(*PATH, 3)
    assert path is not None
    for i in range(0, path.x.size, 7):
        x = acb(float(path.x[i]), path.a)
        truth = (-x * x / 2).exp() * arb(path.h) / (2 * arb.pi()).sqrt()
        if not abs(number(path.weight[i]) / truth - 1) <= arb(float(path.weight_error[i])).expm1():
            return False
    return True


def path_excess_holds() -> bool:
    """Each R - 1 is within its error."""
    (m, q), (a, x) = PATH, path_nodes()
    v, error = gaussian_path._excess(m, q, a, x)
    return all(
        abs(((acb(one, a) * arb(m) - arb(m) ** 2 / 2).exp() - 1) * arb(q) - number(v[i]))
        <= float(error[i])
        for i, one in enumerate(x.tolist())
    )


def path_logarithms_hold(sizes: tuple[float, ...]) -> bool:
    """ln R and ln R - (R - 1) are within their errors for an exact R - 1."""
    v = np.array([size * complex(math.cos(k), math.sin(k)) for size in sizes for k in range(40)])
    v = v[v.imag >= 0.0]
    found = gaussian_path._logarithm(v, np.zeros(v.size))
    assert found is not None
    for i, one in enumerate(map(number, v)):
        log = (1 + one).log()
        if not abs(log - number(found[0][i])) <= float(found[1][i]):
            return False
        if not abs(log - one - number(found[2][i])) <= 2.0 * float(found[3][i]):
            return False
    return True


def path_of(log_r: complex, less: complex, n: int = 1) -> gaussian_path._Path:
    """A path with exact ingredients: n nodes of the weight 1."""
    none = np.zeros(n)
    weight, v, logs, rest = (np.full(n, x, np.complex128) for x in (1.0, 0.0, log_r, less))
    return gaussian_path._Path(
        a=0.5, h=0.5, x=none, phase=none, log_size=none, size=np.ones(n), weight=weight,
        weight_error=none, v=v, v_error=none, log_r=logs, log_r_error=none, less=rest,
        less_error=none,
    )  # fmt: skip


def path_sum_holds(path: gaussian_path._Path, t: float) -> bool:
    """The sum over exact nodes is within its error."""
    z, log_r = acb(2.0, t), number(path.log_r[0])
    # z ln R is a small exponent, or a large one
    small = bool(abs(z * log_r) < 0.5)
    each = (z * log_r).exp() - 1
    each += z * (number(path.less[0]) - log_r) if small else -z * number(path.v[0])
    value, error = gaussian_path._values(path, 1.0, np.array([t]))
    return bool(abs(each * path.x.size - number(value[0])) <= float(error[0]))


def path_orders_hold() -> bool:
    """The sum of 3,000 halves loses what adding halves to each other may lose."""
    real, n = gaussian_path._total, 3000
    lost = 1.0 + (2.0 * n.bit_length() + 9.0) * UNIT
    with mock.patch.object(gaussian_path, "_total", lambda x: real(x) * lost):
        return path_sum_holds(path_of(1e-9 + 0j, 0.5 + 0j, n), 0.0)


def path_squares_hold() -> bool:
    """The square of ln R loses 16 units by itself, and as much in the sum with others."""
    real, log_r = gaussian_path._total, 2.0**-9
    lost = 1.0 + 30.0 * UNIT
    with mock.patch.object(gaussian_path, "_total", lambda x: real(x) * lost):
        return path_sum_holds(path_of(log_r + 0j, 0j), 0.0)


def path_values_hold(value: complex) -> bool:
    """ln M for an exact M - 1."""
    given = np.array([value]), np.zeros(1)
    with mock.patch.object(gaussian_path, "_values", return_value=given):
        line = gaussian_path.line(*PATH, 1.0, np.zeros(1), 1.0)
    assert line is not None
    off = (1 + number(value)).log() - number(line.log[0])
    return bool(abs(off) <= float(line.error[0]))


def moments_hold(off: float = 0.0) -> bool:
    """ln M of a removed record at an order that has a binomial sum, where q is off by a share."""
    m, q, order = 0.5, 0.25, 5
    low, high = gaussian_path.log_moment(m, q, remove=True, c=order - 1.0)
    rate = arb(q) * (1 + arb(off))
    total = sum(
        (
            math.comb(order, k)
            * (1 - rate) ** (order - k)
            * rate**k
            * (arb(m) ** 2 * (k * (k - 1)) / 2).exp()
            for k in range(order + 1)
        ),
        arb(0),
    )
    return bool(arb(low) <= total.log() <= arb(high))


def moments_of_rounded_rates_hold() -> bool:
    """q is off by all its roundings, a million times as large."""
    nested = MILLION * MOST_NESTED
    with granted("MOST_NESTED", nested):
        return all(moments_hold(sign * nested * UNIT * 0.99) for sign in BOTH)


# ------------------------------------------------------------- many steps as one product


def schedule_of(mixed: MixedTransform = REMOVE, share: float | None = None) -> Schedule:
    """One step as a schedule; ``share`` is another rate than the mixed transform's."""
    q = mixed.q if share is None else share
    step = gaussian_schedule_nodes.Step(mixed.m, q, 1)
    return Schedule.of([step], mixed.remove)[0]


def known_odds(schedule: Schedule, error: float = 0.0) -> Schedule:
    """The schedule whose ln(q / (1 - q)) and ln(1 - q) are computed before a machine gets worse."""
    schedule.__dict__["odds"], schedule.__dict__["log_rest"] = schedule.odds, schedule.log_rest
    schedule.__dict__["odds_error"] = np.full(1, error)
    schedule.__dict__["log_rest_error"] = np.full(1, error)
    return schedule


def odds_hold() -> bool:
    """ln(q / (1 - q)) and ln(1 - q) are within their errors."""
    return all(
        abs((arb(q) / (1 - arb(q))).log() - arb(float(one.odds[0]))) <= float(one.odds_error[0])
        and abs((1 - arb(q)).log() - arb(float(one.log_rest[0]))) <= float(one.log_rest_error[0])
        for q in (0.3, 0.01, 1e-5, 0.77)
        for one in [schedule_of(share=q)]
    )


def terms_hold(schedule: Schedule, c: float, nodes: tuple[float, float, float]) -> bool:
    """The sum of the weights at the nodes is within its error of the exact sum over these nodes."""
    h, first, last = nodes
    rule = gaussian_schedule_nodes.RuleInY(h, round(first / h), round(last / h), 0.0)
    at = schedule.weights(c, rule)
    assert at is not None
    m, q, power = (arb(float(x)) for x in (schedule.m[0], schedule.q[0], schedule.power(c)))
    total = arb(0)
    for y in map(arb, at.y.tolist()):
        x = (y - (q / (1 - q)).log()) / m + m / 2
        log_r = (1 + y.exp()).log() + (1 - q).log()
        total += (power * log_r - x * x / 2).exp() * arb(h) / m / (2 * arb.pi()).sqrt()
    error = float(at.error[0]) + at.y.size * UNIT * float(at.total[0]) / 4.0
    return bool(abs(total - float(at.total[0])) <= error)


def ended_terms_hold() -> bool:
    """The sum of weights that end is within its error of the exact sum over these nodes."""
    end = SmoothEnd(0.5, 0.125)
    schedule = dataclasses.replace(schedule_of(), end=end, _kept={})
    rule = gaussian_schedule_nodes.RuleInY(0.03125, 14, 20, 0.0)
    at = known_odds(schedule).weights(0.5, rule)
    assert at is not None
    m, q = arb(float(schedule.m[0])), arb(float(schedule.q[0]))
    total = arb(0)
    for y in map(arb, at.y.tolist()):
        x = (y - (q / (1 - q)).log()) / m + m / 2
        log_r = (1 + y.exp()).log() + (1 - q).log()
        kept = (((y - end.edge).exp() - 1) / end.width / arb(2).sqrt()).erfc() / 2
        term = (arb(1.5) * log_r - x * x / 2).exp() / m / (2 * arb.pi()).sqrt()
        total += kept * term * rule.h
    error = float(at.error[0]) + at.y.size * UNIT * float(at.total[0])
    return bool(abs(total - float(at.total[0])) <= error)


def left_out_masses_hold() -> bool:
    """What an end leaves out is at most what is said, where ln(q / (1 - q)) is off by its error."""
    for sign in BOTH:  # farther than the sum is raised by
        schedule = known_odds(schedule_of(), 2e-4)
        schedule.__dict__["odds"] = schedule.odds + sign * 2e-4
        u = (1.0 - schedule_of().odds[0]) / schedule.m[0]
        half = 0.5 * schedule.m[0]
        lost = [((arb(u) + s * half) / arb(2).sqrt()).erfc() / 2 for s in (1, -1)]
        steps = np.array([-np.inf, 1.0]), np.array([0.0, 1.0])
        with mock.patch.object(SmoothEnd, "steps", return_value=steps):
            said = gaussian_schedule_bounds.mass_beyond(schedule, SmoothEnd(1.0, 0.125), -3.0)
        if not lost[0] + float(schedule.q[0]) * lost[1] <= arb(said) * (1 + 1e-12):
            return False
    return True


def displaced_odds() -> bool:
    """ln(q / (1 - q)) is off by what it may be."""
    for sign in BOTH:
        schedule = known_odds(schedule_of(), FAR_OFF)
        schedule.__dict__["odds"] = schedule.odds + sign * FAR_OFF
        if not terms_hold(schedule, 0.5, (0.25, 0.5, 2.0)):
            return False
    return True


def far_squares() -> bool:
    """At 25 standard deviations x^2 / 2 has an error of 300 units; q = 1/2, so that x has none."""
    return all(
        terms_hold(
            known_odds(schedule_of(ADD, 0.5)), 0.0, (0.1234567, k * 0.1234567, k * 0.1234567)
        )
        for k in range(190, 215)
    )


def schedule_sums(t: float, log_s: float = 1.0) -> bool:
    """The sums over all nodes are within their errors; ln S is too large by the factor ``log_s``.

    Only what :meth:`Schedule._values` calls is called by the machine that is set.
    """
    c, schedule = 0.5, known_odds(schedule_of())
    with granted("TURN", 8.0), granted("LOG1P", 8.0), mock.patch.multiple(np, cos=COS, sin=SIN):
        rule = gaussian_schedule_plan.rule_of_line(schedule, c, t, 1e-16)
        assert rule is not None
        at = schedule.weights(c, rule)
        assert at is not None
        off_by = schedule._off(c, t, rule, at)
    truth = exact(REMOVE).moment(acb(c, t)) * (acb(0, -t) * (1 - arb(0.25)).log()).exp()
    both = gaussian_schedule._circle(at.log_s * log_s, np.array([t]))
    value, error = schedule._values(slice(None), np.array([t]), both, off_by, at)
    return bool(abs(truth - number(value[0, 0])) <= arb(float(error[0, 0])))


def wrong_log_s(what: Callable[[float], bool]) -> bool:
    """Something holds where ln S is off by all that is granted to it, a million times as large."""
    units = MILLION * rounding.LOG1P
    with granted("LOG1P", units):
        return all(what(1.0 + sign * 0.99 * units * UNIT) for sign in BOTH)


def weights_of_log_s(factor: float) -> bool:
    """The weights are within their errors where ln S is too large by the factor."""
    real = gaussian_schedule_nodes.ln_s
    with mock.patch.object(gaussian_schedule_nodes, "ln_s", lambda y: real(y) * factor):
        return terms_hold(known_odds(schedule_of()), 5.0, (0.5, 0.0, 4.0))


def long_schedule_sums() -> bool:
    """Thousands of nodes, whose sum loses what the worst order may."""
    schedule = known_odds(schedule_of())
    rule = schedule.rule(0.5, 2.0**-8, 1.0)
    at = schedule.weights(0.5, rule)
    assert at is not None
    off_by = schedule._off(0.5, 0.0, rule, at)
    value = np.matmul(at.weight, np.ones((at.y.size, 1)))
    return bool(abs(exact(REMOVE).moment(acb(0.5)) - float(value[0, 0])) <= float(off_by[0]))


def schedule_logarithms(error: float = 0.0) -> bool:
    """ln M for exact sums; with an ``error`` ln(1 - q) is off by it."""
    t = np.array([3.0])
    for sign in BOTH:
        schedule = known_odds(schedule_of(), error)
        rest = schedule.log_rest + sign * error
        schedule.__dict__["log_rest"] = rest
        for value in (0.3 + 0.4j, 1.1 - 0.2j):
            log, stated = schedule._logarithm(slice(None), t, np.array([[value]]), np.zeros((1, 1)))
            across = arb(float(rest[0]) - sign * error) * 3
            truth = number(value).log() + acb(arb(0), across)
            allowed = arb(float(stated[0, 0])) + (1e-16 if error else 0.0)
            if not abs(truth - number(log[0, 0])) <= allowed:
                return False
    return True


def schedule_uppers() -> bool:
    return all(
        arb(gaussian_schedule_bounds.sum_up(np.ones(1), np.array([most]))) >= arb(most).log()
        for most in (3.0, 0.2)
    )


def turned_holds() -> bool:
    """ln |S(y + ia) / S(y)| and arg S(y + ia), times a power and a height, in balls."""
    for y, a, power, t in ((-1.3, 0.7, 3.0, 0.0), (0.4, 2.0, -2.0, 5.0), (2.5, 1.0, 0.0, 9.0)):
        less, turn, off_by = gaussian_schedule_nodes.turned_s(np.array([y]), np.array(a), power, t)
        s, plain = 1 + acb(y, a).exp(), 1 + arb(y).exp()
        truth = power * (abs(s) / plain).log() - t * s.arg()
        got = power * arb(float(less[0])) - t * arb(float(turn[0]))
        if not abs(truth - got) <= arb(float(off_by[0])):
            return False
    return True


def schedule_beyond(sign: float) -> bool:
    """The bound is above the integral of the modulus where only the last exponential is off."""
    schedule, c, t, shift = schedule_of(ADD), 1e-3, 0.0, 0.5
    schedule.beyond(c, t, shift)  # remembers its weights
    with displaced(np, "exp", "EXP", sign):
        bound = arb(schedule.beyond(c, t, shift))
    return bool(exact(ADD).beyond(c, t, shift).log() <= bound)


# ---------------------------------------------------------- many steps at great heights


def far_path(schedule: Schedule) -> gaussian_schedule_path._SharedPath:
    """The path of a schedule's line Re s = 1/2, whose weights have no error."""
    path = gaussian_schedule_path._path(schedule, 0.5)
    assert path is not None
    return dataclasses.replace(path, wrong=np.zeros_like(path.wrong))


def far_weights_hold() -> bool:
    """Each weight h phi(x) / m is within its error; only ln(q / (1 - q)) is known before."""
    schedule = known_odds(schedule_of())

    def hold() -> bool:
        path = gaussian_schedule_path._path(schedule, 0.5)
        assert path is not None
        for i in range(0, path.y.size, 9):
            x = acb(float(path.y[i]), path.height) + arb(3).log() + 0.5
            truth = (-x * x / 2).exp() * arb(path.h) / (2 * arb.pi()).sqrt()
            if not abs(number(path.weight[0, i]) - truth) <= float(path.wrong[0, i]):
                return False
        return True

    return off(np, "exp", "EXP", hold)


def far_sum(schedule: Schedule, path: gaussian_schedule_path._SharedPath, exactly: acb) -> bool:
    """ln(1 + z q / (1 - q) + V) at 1/2 + 2 i is within its error of ``exactly``."""
    found = gaussian_schedule_path._sums(path, schedule, 0.5, np.array([2.0]), np.zeros(1))
    assert found is not None
    return bool(abs(exactly - number(found[0][0])) <= float(found[1][0]))


def far_nodes_hold() -> bool:
    """The sum over the nodes of a path, which are known before, is within its error."""
    schedule, z = known_odds(schedule_of()), acb(1.5, 2.0)
    path, total = far_path(schedule), 1 + z / 3
    for y, weight in zip(path.y.tolist(), path.weight[0], strict=True):
        s = 1 + acb(y, path.height).exp()
        total += number(weight) * ((z * s.log()).exp() - 1 - z * (s - 1))
    return off(np, "exp", "EXP", lambda: far_sum(schedule, path, total.log()))


def far_logs_hold() -> bool:
    """ln(1 + z q / (1 - q)), where all weights are 0."""
    schedule, z = known_odds(schedule_of(share=2.0**-7)), acb(1.5, 2.0)
    path = far_path(schedule)
    path = dataclasses.replace(path, weight=0.0 * path.weight, size=0.0 * path.size)
    return off(np, "log1p", "LOG1P", lambda: far_sum(schedule, path, (1 + z / 127).log()))


def far_means_hold() -> bool:
    """The same where q is off by all its roundings, a million times as large."""
    nested = MILLION * MOST_NESTED
    for sign in BOTH:
        schedule = schedule_of(share=2.0**-7 * (1.0 + sign * 0.99 * nested * UNIT))
        path = far_path(known_odds(schedule))
        path = dataclasses.replace(path, weight=0.0 * path.weight, size=0.0 * path.size)
        with granted("MOST_NESTED", nested):
            if not far_sum(schedule, path, (1 + acb(1.5, 2.0) / 127).log()):
                return False
    return True


def far_rest_holds() -> bool:
    """A line whose ln(1 - q) is off by what it may be."""
    for sign in BOTH:
        schedule = known_odds(schedule_of(), FAR_OFF)
        schedule.__dict__["odds_error"] = np.zeros(1)
        schedule.__dict__["log_rest"] = schedule.log_rest + sign * FAR_OFF
        line = schedule.far_line(0.5, np.array([4.0]))
        assert line is not None
        truth = exact(REMOVE).moment(acb(0.5, 4.0)) / number(line.log[0]).exp()
        if not abs(truth - 1) <= arb(float(line.error[0])).expm1():
            return False
    return True


def far_products_hold(first: complex, logs: Callable[..., Any]) -> bool:
    """Two values whose product with 1 added is nearly 1 lose more than the logarithm is long."""
    a = first * np.exp(0.1j * np.arange(40))
    value = np.stack([a, -a / (1.0 + a)])
    found, made = logs(value)
    for i in range(a.size):
        truth = ((1 + number(value[0, i])) * (1 + number(value[1, i]))).log()
        got = number(found[0, i])
        if not abs(truth - got) <= made + 16.0 * UNIT * float(abs(truth).upper()):
            return False
    return True


# ----------------------------------------------------------------------------- Gaussians


def normal_holds(check: Callable[[NormalTransform, arb], bool]) -> bool:
    """Something that is true of many rounded m = 1 / sigma."""
    return all(
        check(NormalTransform(1.0 / sigma), 1 / arb(sigma))
        for sigma in np.linspace(0.03, 7.1, 23).tolist()
    )


def normal_line(normal: NormalTransform, m: arb) -> bool:
    c, t = 1.7, np.array([0.3, 1.1])
    line = normal.line(c, t, 1e-16)
    for i, height in enumerate(t.tolist()):
        s = acb(c, height)
        if not abs(s * (s + 1) * m * m / 2 - number(line.log[i])) <= float(line.error[i]):
            return False
    return True


def normal_upper(normal: NormalTransform, m: arb) -> bool:
    return bool(arb(normal.upper(1.7)) >= arb(1.7) * (arb(1.7) + 1) * m * m / 2)


def normal_beyond(normal: NormalTransform, m: arb) -> bool:
    log = (arb(1.7) * (arb(1.7) + 1) - arb(1.3) ** 2) * m * m / 2
    return bool(arb(normal.beyond(1.7, 1.3, 0.0)) >= log)


# -------------------------------------------------------------------- terms and lines


@dataclasses.dataclass(frozen=True)
class Known:
    """A transform whose logarithms are exactly these."""

    logs: tuple[complex, ...]

    def line(self, c: float, t: Any, tolerance: float) -> Line:
        return Line(np.array(self.logs), np.zeros(len(self.logs)))


def term_of(
    *groups: tuple[tuple[complex, ...], int], rare: tuple[complex, ...] = (), j: int = 0
) -> Term:
    known: list[Any] = [Group(Known(logs), runs) for logs, runs in groups]  # type: ignore[arg-type]
    return Term(tuple(known), ((0, Known(rare)),) if j else (), j)  # type: ignore[arg-type]


def powers_of_terms() -> bool:
    """A sum of two multiples of logarithms that are exact."""
    for a, b, k in ((0.1 + 0.7j, -3.3 + 0.3j, 7), (-1e-9 + 1e-3j, 2.1 - 3.7j, 1013)):
        log, error = term_of(((a,), k), ((b,), 3)).values(1.0, np.zeros(1), 1e-16)
        if not abs(k * number(a) + 3 * number(b) - number(log[0])) <= float(error[0]):
            return False
    return True


def rare_coefficients() -> bool:
    """Three runs of which one, or two, are rare: 3 b^2 r and 3 b r^2."""
    b, r = -0.1 + 0.3j, 2.9 + 0.1j
    for j in (1, 2):
        log, error = term_of(((b,), 3), rare=(r,), j=j).values(1.0, np.zeros(1), 1e-16)
        exact_log = (3 - j) * number(b) + j * number(r) + arb(3).log()
        if not abs(exact_log - number(log[0])) <= float(error[0]):
            return False
    return True


def line_of(logs: list[complex], c: float, step: float) -> contour.LineIntegral:
    aside = (0.5 * c, 0.0), (2.0 * c, 0.0)
    return contour.LineIntegral(0, c, step, np.array(logs), np.zeros(len(logs)), -700.0, aside)


def sum_holds(line: contour.LineIntegral, epsilon: float) -> bool:
    """The sum over exact logarithms is within its error of the exact one."""
    value, reference, error = line._sum(epsilon)
    total = arb(0)
    for n, log in enumerate(line.log.tolist()):
        s = acb(line.c, float(line.t[n]))
        total += (number(log) - s * epsilon - reference).exp().real / (1 if n else 2)
    return bool(abs(total * arb(line.step) / arb.pi() - value) <= error)


def large_products() -> bool:
    return all(
        sum_holds(line_of([0.0], 1000.1, 1.0), epsilon)
        for epsilon in np.linspace(900.0, 1100.0, 40).tolist()
    )


def fast_turns() -> bool:
    return all(
        sum_holds(line_of([0.0, 0.0], 1e-3, 1000.0), epsilon)
        for epsilon in np.linspace(90.0, 110.0, 40).tolist()
    )


def scale_holds() -> bool:
    """The sum times e^reference, for an exact sum."""
    line = line_of([3.3], 1.0, 1.0)
    with mock.patch.object(contour.LineIntegral, "_sum", return_value=(0.7, 3.3, 0.0)):
        total, errors = line._errors(0.0)
    return bool(abs(arb(0.7) * arb(3.3).exp() - total) <= errors["rounding"])


def quotients_hold() -> bool:
    c, t = 1.7, np.array([0.0, 0.3, 11.7])
    log, error = contour.divided(np.zeros(3, dtype=np.complex128), np.zeros(3), c, t)
    for i, height in enumerate(t.tolist()):
        s = acb(c, height)
        if not abs(-(s.log() + (s + 1).log()) - number(log[i])) <= float(error[i]):
            return False
    return True


# ----------------------------------------------------------------------- the two masses


def exponential(direction: str) -> bool:
    """A machine whose exp is two units in the last place off."""
    sign = -1.0 if direction == "up" else 1.0
    real = math.exp
    for x in np.linspace(-20.0, 20.0, 41).tolist():
        with mock.patch.object(math, "exp", lambda y: real(y) * (1.0 + sign * 4.0 * UNIT)):
            got = arb(getattr(rounding, f"exp_{direction}")(x))
        if not (got >= arb(x).exp() if sign < 0 else got <= arb(x).exp()):
            return False
    return True


def scaled(direction: str) -> bool:
    got = Fraction(float(getattr(rounding, f"scale_{direction}")(np.ones(1), 1.0)[0]))
    step = Fraction(1, 2**52)
    return got >= 1 + step if direction == "up" else got <= 1 - step


def sums_hold() -> bool:
    """One and 3000 units, added one after the other: each is lost."""
    x = np.array([1.0] + [UNIT] * 3000)
    with mock.patch.object(np, "sum", lambda y: np.cumsum(y)[-1]):
        return Fraction(rounding.sum_up(x)) >= 1 + 3000 * Fraction(UNIT)


def chances_hold() -> bool:
    chances = [(1e-3, 5), (0.2, 3)]
    exact_chance = 1 - (1 - arb(1e-3)) ** 5 * (1 - arb(0.2)) ** 3
    return bool(
        arb(rounding.any_of(chances, up=False)) <= exact_chance
        and exact_chance <= arb(rounding.any_of(chances, up=True))
    )


THIRDS = Grid(Fraction(-100, 3), math.log(3.0))


def points_hold() -> bool:
    x, slack = THIRDS.losses(60)
    return all(
        abs(THIRDS.offset + i * Fraction(THIRDS.step) - Fraction(float(at)))
        <= Fraction(float(off_by))
        for i, (at, off_by) in enumerate(zip(x, slack, strict=True))
    )


def positions_hold() -> bool:
    """Losses within a double of an edge."""
    edges = [float(THIRDS.offset + i * Fraction(THIRDS.step)) for i in range(1, 60)]
    losses = np.array([y for x in edges for y in (x, next_up(x), next_down(x))])
    index, behind = THIRDS.locate(losses)
    label, ahead = THIRDS.nearest(losses)
    for loss, i, least, j, most in zip(
        losses.tolist(),
        index.tolist(),
        behind.tolist(),
        label.tolist(),
        ahead.tolist(),
        strict=True,
    ):
        above = THIRDS.offset + i * Fraction(THIRDS.step) - Fraction(loss)
        if not (above >= 0 and Fraction(least) <= above):
            return False
        if not Fraction(most) >= THIRDS.offset + j * Fraction(THIRDS.step) - Fraction(loss):
            return False
    return True


def exponentials_enclosed() -> bool:
    x = np.linspace(-30.0, 30.0, 61)
    got = exp_enclosure(x)
    return all(
        arb(float(got.lower[i])) <= arb(v).exp() <= arb(float(got.upper[i]))
        for i, v in enumerate(x.tolist())
    )


def direct_products_hold() -> bool:
    """Twenty ones, whose products are integers; every sum loses what it may."""
    ones, real = np.ones(20), np.convolve
    with mock.patch.object(np, "convolve", lambda a, b: real(a, b) * (1.0 - 20.0 * UNIT)):
        got, error = convolve(ones, ones)
    return float(np.linalg.norm(got - real(ones, ones))) <= error


def transforms_hold() -> bool:
    """Integers, whose convolution is exact when it is summed directly."""
    x = np.arange(1.0, 200.0)
    got, error = convolve(x, x[::-1])
    return float(np.linalg.norm(got - np.convolve(x, x[::-1]))) <= error


def extended_products_hold() -> bool:
    """One product, which an extended transform knows better than a double holds it."""
    for k in range(40):
        x, y = 1.0 + k / 97.0, 1.0 + k / 89.0
        a, b = np.zeros(32), np.zeros(32)
        a[0], b[0] = x, y
        got, error = convolve(a, b, extended=True)
        if not abs(Fraction(float(got[0])) - Fraction(x) * Fraction(y)) <= Fraction(error):
            return False
    return True


def direct_blocks_hold(length: int) -> bool:
    """Twenty ones, whose products are integers; every sum loses what it may."""
    x, real = np.append(np.ones(20), np.zeros(length - 20)), np.convolve
    with mock.patch.object(np, "convolve", lambda a, b: real(a, b) * (1.0 - 20.0 * UNIT)):
        got, error = convolve_by_blocks(x, x)
    return bool(np.all(np.abs(got - real(x, x)) <= error))


def transformed_blocks_hold(inverse: float) -> bool:
    """A one in each other block; transforms lose all they may, and the inverse a little more."""
    x = np.zeros(256 * 24)
    x[::512], x[256::512] = 1.0, 1e-7  # so different that blocks stay short
    plain: Any = fft.rfft
    back: Any = fft.irfft

    def all_lost(transform: Any, more: float) -> Any:
        return lambda a, n: transform(a, n) * (1.0 + (5.0 * math.log2(n) + more) * UNIT)

    with (
        mock.patch.object(fft, "rfft", all_lost(plain, 0.0)),
        mock.patch.object(fft, "irfft", all_lost(back, inverse)),
    ):
        got, error = convolve_by_blocks(x, x)
    return bool(np.all(np.abs(got - np.convolve(x, x)) <= error))


def flattened_blocks_hold() -> bool:
    """A one in each other block; factors that flatten blocks are off as far as they may be."""
    x, plain = np.zeros(256 * 24), np.exp
    x[200::512], x[456::512] = 1.0, 1e-7
    off = (EXP + 4.0 * _FLAT) * UNIT

    def rises(y: Any) -> Any:  # too large where entries are, too small where products are
        return plain(y) * np.where(np.arange(y.size) < y.size // 2, 1.0 + off, 1.0 - off)

    with mock.patch.object(np, "exp", rises):
        got, error = convolve_by_blocks(x, x, 1.0)
    return bool(np.all(np.abs(got - np.convolve(x, x)) <= error))


def direct_correlations_hold() -> bool:
    a, b, real = np.ones(20), np.ones(50), np.correlate
    with mock.patch.object(np, "correlate", lambda x, y, mode: real(x, y, mode) * (1 - 20 * UNIT)):
        got, error = correlate(a, b)
    return bool(np.all(np.abs(got - real(b, a, "valid")) <= error))


def correlations_hold() -> bool:
    a, b = np.arange(1.0, 40.0), np.arange(1.0, 300.0)
    got, error = correlate(a, b)
    return bool(np.all(np.abs(got - np.correlate(b, a, "valid")) <= error))


def extended_correlations_hold() -> bool:
    for k in range(40):
        x, y = 1.0 + k / 97.0, 1.0 + k / 89.0
        a, b = np.zeros(32), np.zeros(64)
        a[0], b[0] = x, y
        got, error = correlate(a, b, extended=True)
        if not abs(Fraction(float(got[0])) - Fraction(x) * Fraction(y)) <= Fraction(
            float(error[0])
        ):
            return False
    return True


def exact_points(grid: Grid, n: int, origin: Fraction = Fraction(0)) -> tuple[Any, Any]:
    """The points of a grid whose step has few bits, which are known without an error."""
    return float(grid.offset - origin) + grid.step * np.arange(n), np.zeros(n)


@contextmanager
def known_points() -> Iterator[None]:
    with mock.patch.object(Grid, "losses", exact_points):
        yield


def tilts_hold() -> bool:
    with known_points():
        for theta in (1.1, 1.3, 1.7):
            low, high = Tilt(theta, Fraction(0)).factors(Grid(Fraction(0), 4.0), 90)
            for i, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
                if not arb(a) <= (arb(theta) * 4 * i).exp() <= arb(b):
                    return False
    return True


def norm_of(x: list[arb]) -> arb:
    return sum((y * y for y in x), arb(0)).sqrt()


def coarser_upper_holds() -> bool:
    """Ones on a grid of twice the step, against exact shares and tilts."""
    h, theta = 0.3, 2.0
    upper = UpperMeasure(Grid(Fraction(0), h), Tilt(theta, Fraction(0)), np.ones(9), 0, 9.0, 0.0)
    new = upper.coarsened()
    left = arb(next_down(1.0 / rounding.add_up(1.0, rounding.exp_up(h))))
    down, up = left * (-arb(theta) * h).exp(), (1 - left) * (arb(theta) * h).exp()
    truths = [1 + down, *[1 + up + down] * 3, 1 + up]
    off_by = norm_of(
        [x - arb(float(y)) * 2**new.exponent for x, y in zip(truths, new.values, strict=True)]
    )
    return bool(off_by <= arb(new.error) * 2**new.exponent)


def coarser_lower_holds() -> bool:
    h, theta = 0.3, 2.0
    lower = LowerMeasure(
        Grid(Fraction(0), h), Tilt(theta, Fraction(0)), np.ones(8), np.ones(8), 0, 0, 0.0, 0.0
    )
    new = lower.coarsened()
    for values, exponent, error, rate in (
        (new.p, new.p_exponent, new.p_error, theta),
        (new.q, new.q_exponent, new.q_error, theta + 1.0),
    ):
        factor = (arb(rate) * h).exp()
        truths = [arb(1), *[1 + factor] * 3, factor]
        off_by = norm_of(
            [x - arb(float(y)) * 2**exponent for x, y in zip(truths, values, strict=True)]
        )
        if not off_by <= arb(error) * 2**exponent:
            return False
    return True


def shares_hold() -> bool:
    """Where expm1 is two doubles too low, a share is at most the exact one."""
    real = math.expm1
    for h in np.linspace(0.01, 0.99, 50).tolist():
        w = np.linspace(1.0, math.exp(h), 40)[1:-1]
        with mock.patch.object(math, "expm1", lambda x: next_down(next_down(real(x)))):
            got = measures._left_share(w, h)
        if not all(
            arb(float(s)) <= (arb(float(v)) - 1) / arb(h).expm1()
            for s, v in zip(got, w, strict=True)
        ):
            return False
    return True


def norms_hold() -> bool:
    got = profile._geometric_norm(0.1, 30)
    return all(
        arb(float(got[i])) ** 2 >= sum(((-arb(0.1) * j).exp() for j in range(30 - i)), arb(0))
        for i in range(30)
    )


def upper_of(h: float, n: int, theta: float) -> UpperMeasure:
    values = np.linspace(1.0, 0.5, n)
    return UpperMeasure(Grid(Fraction(0), h), Tilt(theta, Fraction(1, 3)), values, 0, float(n), 0.0)


def weights_of_points_hold() -> bool:
    with known_points():
        for theta in np.linspace(1.1, 1.4, 12).tolist():
            at = profile.UpperDelta(upper_of(64.0, 5, theta)).at
            for d, decay in zip(at.d.tolist(), at.decay.tolist(), strict=True):
                if not abs(arb(decay) * (arb(theta) * d).exp() - 1) <= at.margin:
                    return False
    return True


def suffixes_hold() -> bool:
    """The ratio of neighbours is two units in the last place off."""
    h, n, real = 2.0**-20, 3000, math.exp
    with mock.patch.object(math, "exp", lambda x: real(x) * (1.0 - 4.0 * UNIT)):
        upper = profile.UpperDelta(upper_of(h, n, 0.1))
    kept = np.linspace(1.0, 0.5, n) * upper.at.decay
    ratio, total = (-arb(h)).exp(), arb(0)
    for value in kept[::-1].tolist():
        total = total * ratio + value
    return bool(abs(total - float(upper.discounted[0])) <= total * upper.at.margin)


def factors_hold() -> bool:
    at = profile.UpperDelta(upper_of(0.25, 9, 1.7)).at
    for exponent in (0, 1, 3, -1000, 777):
        value, off_by = at.log_factor(exponent)
        distance = at.centre - Fraction(1, 3)
        truth = exponent * arb(2).log() - arb(1.7) * ball(distance)
        if not abs(truth - value) <= off_by:
            return False
    return True


def discounts_hold() -> bool:
    """e^(eps - x) times a power of two is not below the exact one."""
    for exponent in (0, -400, 300):
        ones = np.ones(5)
        lower = LowerMeasure(
            Grid(Fraction(0), 0.25), Tilt(0.5, Fraction(0)), ones, ones, 0, exponent, 0.0, 0.0
        )
        with known_points():
            seen = profile.LowerDelta(lower)
        for epsilon in np.linspace(0.01, 270.0, 25).tolist():
            _, discount = seen._totals(epsilon)
            for d, got in zip(seen.at.d.tolist(), discount.tolist(), strict=True):
                truth = (arb(epsilon) - ball(seen.at.centre) - arb(d)).exp() * arb(2) ** exponent
                if not arb(got) >= truth:
                    return False
    return True


def outcome_holds() -> bool:
    """One outcome that is certain, for several eps below its loss."""
    for loss, epsilon in ((1.9, 0.7), (0.3, -2.1), (1e-3, 0.0)):
        outcomes = Outcomes(exact_masses(1.0), np.array([loss]), np.array([loss]), Bounds(0.0, 0.0))
        delta = -(arb(epsilon) - arb(loss)).expm1()
        if not arb(outcomes.lower_delta(epsilon)) <= delta <= arb(outcomes.upper_delta(epsilon)):
            return False
    return True


def outer_sums_hold() -> bool:
    a, b = np.linspace(0.1, 0.9, 7), np.linspace(1.3, 5.7, 9)
    low, high = (enumerate_._outer_sum(a, b, sign) for sign in (-1, 1))
    truths = [Fraction(x) + Fraction(y) for x in a.tolist() for y in b.tolist()]
    return all(
        Fraction(x) <= truth <= Fraction(y)
        for x, truth, y in zip(low.tolist(), truths, high.tolist(), strict=True)
    )


# -------------------------------------------------------------------------- Renyi divergences


def renyi_sums_hold(s: float, *logs: float) -> bool:
    """ln(1 + s A) / s for a sum A of exact terms."""
    given = np.array(logs)
    found = renyi._divergence(renyi._Terms(given, given), s)
    total = sum((arb(log).exp() for log in logs), arb(0))
    return inside(found, (arb(s) * total).log1p() / arb(s))


def renyi_masses_hold() -> bool:
    """The logarithm of a mass, from both sides."""
    masses = np.array([1e-200, 1e-9, 0.3, 0.99])
    low, high = (renyi._log(masses, side) for side in (-1.0, 1.0))
    return all(
        arb(float(low[i])) <= arb(mass).log() <= arb(float(high[i]))
        for i, mass in enumerate(masses.tolist())
    )


def renyi_losses_hold() -> bool:
    """ln G of a loss, of either sign, small and large."""
    losses = np.array([-40.0, -0.7, -1e-9, 1e-3, 0.6, 9.0, 200.0])
    for s in (0.01, 1.0, 30.0):
        found = renyi._log_g(losses, s)
        for i, loss in enumerate(map(arb, losses.tolist())):
            truth = log_of_g(loss, s)
            if not arb(float(found.lower[i])) <= truth <= arb(float(found.upper[i])):
                return False
    return True


class OneBin(Pair):
    """A pair whose bin (l, r] has the P-mass 1/4 and a known w; on its left is nearly no P-mass."""

    def __init__(self, w: float) -> None:
        self.w = w

    def bins(self, edges: np.ndarray, slack: np.ndarray) -> Bins:
        p = exact_masses(np.array([1e-300, 0.25, 0.0]))
        q = exact_masses(np.array([0.9375, 0.25, 0.0]))
        return Bins(p, q, exact_masses(np.array([1.0, self.w, 1.0])))


def log_of_g(loss: arb, s: float) -> arb:
    first = (arb(s) * loss).expm1() - arb(s) * loss
    return (first / arb(s) + (-loss).expm1() + loss).log()


def renyi_bin_holds(left: float, right: float, w: float, s: float) -> bool:
    """From below all of a bin has one loss; from above its mass is at both ends."""
    found = renyi._bins(OneBin(w), np.array([left, right]), s)
    merged = log_of_g(arb(right) - arb(w).log(), s)
    share = (arb(w) - 1) / (arb(right) - arb(left)).expm1()
    ends = [log_of_g(arb(end), s) for end in (left, right)]
    spread = (share * ends[0].exp() + (1 - share) * ends[1].exp()).log()
    mass = arb(0.25).log()
    below, above = arb(float(found.lower[0])), arb(float(found.upper[0]))
    return bool(below <= mass + merged) and bool(mass + spread <= above)


def renyi_lump_holds(left: float, right: float, w: float) -> bool:
    """All of a bin may lie a little to the left of it, if w says so."""
    found = renyi._bins(OneBin(w), np.array([left, right]), 1.0)
    truth = arb(0.25).log() + log_of_g(arb(right) - arb(w).log(), 1.0)
    return bool(truth <= arb(float(found.upper[0])))


def renyi_logarithm_holds() -> bool:
    """The logarithm of what is at both ends, for a G whose own logarithm is exact, e^-L."""
    known = mock.patch.object(renyi, "_log_g", lambda losses, s: renyi._Terms(-losses, -losses))
    with known:
        found = renyi._bins(OneBin(1.0), np.array([-9.5, 0.0]), 1.0)
    return bool(arb(0.25).log() <= arb(float(found.upper[0])))  # all of it is at 0


def renyi_left_holds() -> bool:
    """The Q-mass on the left of all bins, q e^-x, from both sides."""
    for x in np.linspace(-599.0, -520.0, 40).tolist():
        found = renyi._bins(OneBin(1.5), np.array([x, 1.0]), 1.0)
        truth = arb(0.9375).log() - arb(x)
        if not arb(float(found.lower[1])) <= truth <= arb(float(found.upper[1])):
            return False
    return True


# ------------------------------------------------------------------------ masses of mechanisms


def laplace_masses_hold() -> bool:
    """Each mass of a Laplace step's continuous part, times an exact share."""
    m, share = 3.0, exact_masses(np.array([0.5]))
    left = np.array([-3.0, -1.25, 0.0, 2.5, 2.9375])
    right = np.array([-2.5, 0.75, 3.0, 2.75, 3.0])
    found = laplace._masses(m, share, left, right)
    for i, (a, b) in enumerate(zip(map(arb, left.tolist()), map(arb, right.tolist()), strict=True)):
        mass = ((b - arb(m)) / 2).exp() * -(-(b - a) / 2).expm1() / 2
        if not (arb(float(found.lower[i])) <= mass and mass <= arb(float(found.upper[i]))):
            return False
    return True


def logistic_shares_hold() -> bool:
    """1 / (1 - e^-m)."""
    for m in (0.001, 0.3, 1.0, 7.0):
        share = LogisticPair(m)._share
        truth = -1 / (-arb(m)).expm1()
        if not (arb(float(share.lower[0])) <= truth and truth <= arb(float(share.upper[0]))):
            return False
    return True


def sampled_rests_hold() -> bool:
    """1 - q of a sampled step."""
    for q in (0.1, 1e-5, 1e-17, 2.0**-60, 0.7):
        kept = subsampled.RemovePair(LogisticPair(1.0), q).keep
        if not Fraction(float(kept.lower[0])) <= 1 - Fraction(q) <= Fraction(float(kept.upper[0])):
            return False
    return True


# ------------------------------------------------------------------------------ the cases

NODES, DENSE, ALL = fine(-4.0, 6.0), fine(-8.0, 9.0, 2.0**-8), fine(-8.0, 9.0)
HIGH = MixedTransform(8.0, 0.25, True), fine(80.0, 82.0)  # q e^y is no double


def clipped_places_hold() -> bool:
    """Mass beyond the largest ratio moves to it; the mean is kept for places within 4 units."""
    end, near = 1.5, 2.0**-27
    ratio = np.array([end * (1.0 - near), end * (1.0 + near)])
    masses = np.array([0.5, 0.25])
    moved, held = allocated_above._clipped(ratio, masses, 0.0, end, above=True)
    # the first place may be nearer to the end, and the second one farther from it
    first, second = (Fraction(float(x)) * (1 + 4 * Fraction(1, 2**53)) for x in ratio)
    needed = Fraction(1, 4) * (second - first) / (Fraction(end) - first)
    return Fraction(float(held[moved == end][0])) >= needed


CASES: dict[str, Callable[[], bool]] = {
    "clipped-places": clipped_places_hold,
    "error-arithmetic": lambda: rounding.outwards(1.0) >= 1.0 + 2.0**-21,
    "exp-up": lambda: exponential("up"),
    "exp-down": lambda: exponential("down"),
    "scale-up": lambda: scaled("up"),
    "scale-down": lambda: scaled("down"),
    "sums": sums_hold,
    "any-of": lambda: off(math, "log1p", "LOG1P", chances_hold),
    # the two masses
    "grid-points": points_hold,
    "grid-position": positions_hold,
    "enclosed-exp": lambda: off(np, "exp", "EXP", exponentials_enclosed),
    "convolve-direct": direct_products_hold,
    "convolve-transform": transforms_hold,
    "convolve-extended": extended_products_hold,
    "blocks-direct": lambda: direct_blocks_hold(20),
    "blocks-heavy": lambda: direct_blocks_hold(3000),
    "blocks-transform": lambda: transformed_blocks_hold(0.0),
    "blocks-products": lambda: transformed_blocks_hold(20.0),
    "blocks-rise": flattened_blocks_hold,
    "correlate-direct": direct_correlations_hold,
    "correlate-transform": correlations_hold,
    "correlate-extended": extended_correlations_hold,
    "tilt": tilts_hold,
    "left-share": shares_hold,
    "coarser-upper": lambda: off(math, "exp", "EXP", coarser_upper_holds),
    "coarser-lower": lambda: off(math, "exp", "EXP", coarser_lower_holds),
    "weight-exponents": weights_of_points_hold,
    "suffix-sums": suffixes_hold,
    "geometric-norm": lambda: off(np, "expm1", "EXPM1", norms_hold),
    "log-factor": factors_hold,
    "lower-shift": discounts_hold,
    "lower-discount": lambda: off(np, "exp", "EXP", discounts_hold),
    "outcome-up": lambda: off(np, "expm1", "EXPM1", outcome_holds),
    "outcome-down": lambda: off(np, "expm1", "EXPM1", outcome_holds),
    "outcome-losses": outer_sums_hold,
    # ingredients
    "loss-exponent": rounded_sensitivities,
    "loss-excess": lambda: off(np, "expm1", "EXPM1", lambda: losses_hold(REMOVE, NODES)),
    "loss-far": lambda: off(math, "log", "LOG", lambda: losses_hold(*HIGH)),
    "loss-log": lambda: off(np, "log1p", "LOG1P", lambda: losses_hold(REMOVE, NODES)),
    "weight-step": lambda: off(math, "log", "LOG", lambda: weights_hold(ADD, NODES)),
    "weight-sums": lambda: all(
        weights_hold(ADD, fine(36.0, 37.0, k * 2.0**-8)) for k in range(3, 40, 2)
    ),
    "weight-loss": lambda: off(np, "log1p", "LOG1P", lambda: weights_hold(REMOVE, NODES)),
    "weight-share": lambda: with_tails_off(lambda: weights_hold(BULK, NODES), MILLION),
    "weight-exp": lambda: off(np, "exp", "EXP", lambda: weights_hold(ADD, NODES)),
    "mean-weight": lambda: off(np, "exp", "EXP", lambda: mean_holds(ADD, ALL)),
    "mean-less": lambda: off(
        gaussian_integrand, "expm1_less", "LESS_ULPS", lambda: mean_holds(ADD, ALL), 2.0
    ),
    "mean-order": lambda: in_any_order(lambda: mean_holds(ADD, DENSE)),
    "mean-loss": lambda: off(np, "log1p", "LOG1P", lambda: mean_holds(ADD, ALL)),
    "lost-tails": lambda: off(np, "exp", "EXP", lost_holds),
    "lost-sums": rounded_rates,
    "mixture-exponent": rounded_sizes,
    "mixture-excess": lambda: off(
        np, "expm1", "EXPM1", lambda: mixture_losses_hold(MIXTURE, fine(-4.0, 4.0))
    ),
    "mixture-far": lambda: off(
        np, "exp", "EXP", lambda: mixture_losses_hold(WITHOUT_ZERO, fine(-9.0, -4.0))
    ),
    "mixture-tails": lambda: off(np, "exp", "EXP", mixture_loses),
    "mixture-sums": rounded_shares,
    "either-value": lambda: off(np, "expm1", "EXPM1", union_holds),
    "power": powers_hold,
    # values
    "value-order": lambda: in_any_order(
        lambda: value_holds(ADD, 0.5, 0.0, exact_mean, rule=dense(ADD))
    ),
    "value-less": lambda: value_off(
        ADD, 0.3, 0.0, gaussian_integrand, "expm1_less", "LESS_ULPS", 2.0
    ),
    "value-excess": lambda: value_off(ADD, 0.3, 0.3, np, "expm1", "EXPM1"),
    "value-cosine": lambda: value_off(ADD, 0.05, 0.05, np, "sin", "TURN"),
    "value-sine": lambda: value_off(
        ADD, 0.01, 1.0, gaussian_transform, "sin_less", "SIN_LESS_ULPS", 2.0
    ),
    "value-loss": lambda: all(value_holds(ADD, 1.0, 0.5, moved_loss(sign)) for sign in BOTH),
    "value-mean": lambda: value_holds(ADD, 1.0, 0.5, moved_mean),
    "value-lost": lost_is_off,
    "rare-turn": lambda: value_off(RARE, 0.5, 0.1, np, "cos", "TURN"),
    "rare-order": lambda: in_any_order(lambda: value_holds(RARE, 0.5, 0.0, rule=dense(RARE))),
    "rare-loss": lambda: all(value_holds(RARE, 1.0, 0.5, moved_loss(sign)) for sign in BOTH),
    "line-modulus": lambda: off(np, "abs", "TURN", lambda: logarithm_holds(ADD, 3.0 + 0.0j)),
    "rare-modulus": lambda: off(np, "abs", "TURN", lambda: logarithm_holds(RARE, 0.5 + 0.0j)),
    "line-log": lambda: off(np, "log", "LOG", lambda: logarithm_holds(ADD, 30.0 + 0.0j)),
    "line-angle": lambda: off(np, "arctan2", "TURN", lambda: logarithm_holds(ADD, 0.1 + 0.3j)),
    "moved-modulus": lambda: off(np, "log", "LOG", least_moduli_hold),
    "beyond-argument": lambda: off(np, "sin", "TURN", lambda: beyond_holds(ADD, 0.01, 20.0, 0.3)),
    "beyond-modulus": lambda: off(np, "cos", "TURN", lambda: beyond_holds(REMOVE, 5.0, 0.01, 0.1)),
    "beyond-exponent": lambda: off(np, "log", "LOG", lambda: beyond_holds(REMOVE, 5.0, 0.01, 0.1)),
    "beyond-weight": lambda: with_tails_off(rare_beyond_holds, 1e12),
    # a schedule
    "far-weight": far_weights_hold,
    "far-nodes": far_nodes_hold,
    "far-mean": far_means_hold,
    "far-rest": far_rest_holds,
    "far-log": far_logs_hold,
    "far-small": lambda: far_products_hold(
        0.1 + 0.1j,
        lambda value: gaussian_schedule_path._logs_of_small(value, np.max(np.abs(value), axis=1)),
    ),
    "far-large": lambda: far_products_hold(1.0 + 0.5j, gaussian_schedule_path._logs_of_large),
    "schedule-odds": odds_hold,
    "schedule-rest": odds_hold,
    "schedule-place": displaced_odds,
    "schedule-square": far_squares,
    "schedule-weight": lambda: off(
        np, "exp", "EXP", lambda: terms_hold(known_odds(schedule_of(ADD)), 0.01, (0.5, -3.0, 1.0))
    ),
    "schedule-loss": lambda: wrong_log_s(weights_of_log_s),
    "schedule-share": lambda: with_tails_off(ended_terms_hold, MILLION),
    "schedule-left-out": left_out_masses_hold,
    "schedule-order": lambda: in_any_order(long_schedule_sums),
    "schedule-turn": lambda: off(np, "cos", "TURN", lambda: schedule_sums(0.3)),
    "schedule-angle": lambda: wrong_log_s(lambda factor: schedule_sums(3.0, factor)),
    "schedule-log": schedule_logarithms,
    "schedule-across": lambda: schedule_logarithms(FAR_OFF),
    "schedule-upper": lambda: off(np, "log", "LOG", schedule_uppers),
    "schedule-turned": turned_holds,
    "schedule-beyond": lambda: all(schedule_beyond(sign) for sign in BOTH),
    # a path above the axis, and two lines for one kink
    "path-weight": lambda: off(np, "exp", "EXP", path_weights_hold),
    "path-excess": lambda: off(np, "expm1", "EXPM1", path_excess_holds),
    "path-log": lambda: off(np, "log1p", "LOG1P", lambda: path_logarithms_hold((0.1, 0.6))),
    "path-series": lambda: path_logarithms_hold((1e-3, 0.01, 0.1, 0.2)),
    "path-less": lambda: path_logarithms_hold((0.3, 3.0, 1e3, 1e6)),
    "path-order": path_orders_hold,
    "path-squares": path_squares_hold,
    "path-power": lambda: all(
        path_sum_holds(path_of(complex(0.003, 0.0), 0j), 1e5 + k) for k in range(40)
    ),
    "path-turn": lambda: off(
        np, "exp", "EXP", lambda: path_sum_holds(path_of(0.7 + 0.1j, 0j), 1.0)
    ),
    "path-value": lambda: off(np, "log1p", "LOG1P", lambda: path_values_hold(0.3 + 0.1j)),
    "moment-terms": moments_of_rounded_rates_hold,
    "moment-sum": lambda: off(math, "log", "LOG", moments_hold),
    "smoothed-lift": lambda: test_smoothed.factors_hold(0.01),
    "smoothed-factor": lambda: off(math, "expm1", "EXP", lambda: test_smoothed.factors_hold(0.01)),
    "smoothed-log": lambda: off(np, "log", "LOG", lambda: test_smoothed.factors_hold(0.01)),
    # Gaussians
    "normal-line": lambda: normal_holds(normal_line),
    "normal-upper": lambda: normal_holds(normal_upper),
    "normal-beyond": lambda: normal_holds(normal_beyond),
    # compositions
    "term-powers": powers_of_terms,
    "rare-ratio": lambda: off(np, "exp", "EXP", rare_coefficients),
    "rare-log": lambda: off(np, "log", "LOG", rare_coefficients),
    "denominator": quotients_hold,
    "sum-shift": large_products,
    "sum-turn": fast_turns,
    "sum-exp": lambda: off(np, "exp", "EXP", lambda: sum_holds(line_of([0.3, 0.1], 1.0, 1.0), 1.0)),
    "sum-order": lambda: in_any_order(lambda: sum_holds(line_of([0.0] * 3000, 1.0, 1.0), 0.0)),
    "line-scale": lambda: off(math, "exp", "EXP", scale_holds),
    # Renyi divergences
    "renyi-terms": lambda: off(np, "exp", "EXP", lambda: renyi_sums_hold(1.0, -1.0, -2.0, -9.0)),
    "renyi-sum": lambda: off(math, "log", "LOG", lambda: renyi_sums_hold(7.0, -20.0, -20.5)),
    "renyi-mass": lambda: off(np, "log", "LOG", renyi_masses_hold),
    "renyi-merged": lambda: off(
        np, "log1p", "LOG1P", lambda: renyi_bin_holds(-300.0, 300.0, math.exp(299.9), 1.0)
    ),
    "renyi-chord": lambda: off(
        np, "expm1", "EXPM1", lambda: renyi_bin_holds(-40.0, -38.0, 3.0, 1.0)
    ),
    "renyi-spread": lambda: off(
        np, "log1p", "LOG1P", lambda: renyi_lump_holds(-300.0, 300.0, math.exp(600.001))
    ),
    "renyi-spread-log": lambda: off(np, "log", "LOG", renyi_logarithm_holds),
    "renyi-left": renyi_left_holds,
    "renyi-loss": lambda: off(np, "log", "LOG", renyi_losses_hold),
    # masses of mechanisms
    "laplace-masses": lambda: off(np, "expm1", "EXPM1", laplace_masses_hold),
    "logistic-share": lambda: off(math, "expm1", "EXPM1", logistic_shares_hold),
    "sampled-rest": sampled_rests_hold,
}


def in_any_order(what: Callable[[], bool]) -> bool:
    with in_the_worst_order():
        return what()


def dense(mixed: MixedTransform) -> Rule:
    """A rule with thousands of nodes."""
    rule = plan.rule_for(mixed, 0.5, 0.0, 1e-24)
    h = 2.0**-8
    return rule._replace(
        h=h, first=math.floor(rule.first * rule.h / h), last=math.ceil(rule.last * rule.h / h)
    )


def test_every_line_that_pays_has_a_case_and_no_other() -> None:
    assert set(CASES) == {mark.name for mark in marks()}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", CASES)
def test_a_line_that_pays_is_needed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if "extended" in name and np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("the platform's long double is a double")
    assert CASES[name](), "it does not even hold with the line"
    unpaid(monkeypatch, name)
    assert not CASES[name](), f"nothing noticed that {name} is not paid"


def test_a_sum_of_many_terms_may_be_added_in_any_order() -> None:
    """Five thousand terms of a Renyi divergence lose more than each term and their logarithm."""
    assert in_any_order(lambda: renyi_sums_hold(1.0, *[-3.0] * 5000))
