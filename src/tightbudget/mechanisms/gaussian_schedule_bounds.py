"""Proved bounds of what a rule for a schedule leaves out, and of the rest of its line.

They are those of ``gaussian_transform_bounds`` in the variable y (docs/explanation/contour.md):
the sum of the nodes beyond both ends, the aliasing of the rule, which an integral of the modulus on
a shifted line of y bounds, and |M| on the rest of a vertical line of s. A line that ends in
"pays: name" pays for what docs/explanation/rounding.md says under that name.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tightbudget.mechanisms.gaussian_schedule_nodes import (
    LOG_ERROR,
    RANGE,
    VAGUE,
    RuleInY,
    Steps,
    TiltedSteps,
    ln_s,
    turned_s,
)
from tightbudget.mechanisms.gaussian_transform_bounds import After
from tightbudget.mechanisms.smooth_end import SmoothEnd
from tightbudget.numerics.rounding import EXP, LOG, UNIT, FloatArray, next_up, outwards
from tightbudget.numerics.special import log_normal_tail, log_normal_tail_slack

# Cells of a bound beyond the nodes. Any values are sound.
_CELL, _MOST_CELLS = 1.0 / 64.0, 500


class Grown(NamedTuple):
    """Bounds of a modulus on a line Im y = width, over its values at the nodes on the real axis.

    Attributes:
        near: (b - 1,) in each cell between nodes, over its value at the left node.
        far: (b - 1,) the same, over its value at the right node; the larger of both is the bound.
        before: to the left of all nodes, over its value there.
        after: to the right of all nodes, over its value there.
    """

    near: FloatArray
    far: FloatArray
    before: float
    after: float


def moved(steps: Steps, c: float, t: float, at: TiltedSteps, width: float) -> FloatArray:
    """Bounds the integral of the modulus on Im y = +-width, for |Im s| <= t: shape (n,).

    There |phi| = phi e^(width^2 / (2 m^2)), and arg S rises with y. ln phi has the second
    derivative -1 / m^2: between two nodes it exceeds its chord by h^2 / 8 times that.
    """
    m, h = steps.m, float(at.y[1] - at.y[0])
    angle = np.arctan2(math.sin(width), np.exp(-at.y) + math.cos(width))
    turn = np.exp(np.minimum(t * angle, RANGE))
    turn = np.where(t * angle <= RANGE, turn, np.inf)
    more = grown(steps, c, at, width)
    # each cell takes the larger weight of its ends, and the argument of the right one
    with np.errstate(over="ignore", invalid="ignore"):
        near, far = more.near * turn[1:], more.far * turn[1:]
        inner = at.weight @ (np.append(near, 0.0) + np.append(0.0, far))
    # a product of 0 and inf says nothing
    inner = np.nan_to_num(inner * np.exp(0.125 * h * h / (m * m)), nan=np.inf, posinf=np.inf)
    # beyond the nodes the modulus falls as exponentials do, and arg S < width
    tails = np.where(at.falls > 0, np.stack([at.weight[:, 0], at.weight[:, -1]]), np.inf)
    tails = (tails + 1e-300) / (h * np.where(at.falls > 0, at.falls, 1.0))
    most = math.exp(t * width) if t * width <= RANGE else math.inf
    right = tails[1] * (most * more.after)
    if not np.all(right <= inner):  # cells say more, and cost more
        right = np.minimum(right, after(steps, c, at, t, width))
    whole = inner + tails[0] * (turn[0] * more.before) + right
    with np.errstate(over="ignore"):
        return np.asarray(outwards(whole * (1.0 + VAGUE)) * np.exp(0.5 * (width / m) ** 2))


def grown(steps: Steps, c: float, at: TiltedSteps, width: float) -> Grown:
    """Bounds |w S^s| on Im y = +-width over what w S^power is at the nodes, for Im s = 0."""
    power, cells = steps.power(c), np.zeros(at.y.size - 1)
    if steps.end is not None:  # |S| is at most what it is on the real axis, and S^power convex
        cells = steps.end.log_cells(at.y, width)
        with np.errstate(over="ignore"):
            near, far = (np.exp(cells - share) for share in at.sides)
        return Grown(near, far, steps.end.growth_before(float(at.y[0]), width), math.inf)
    if power > 0.0:
        return Grown(np.ones_like(cells), np.ones_like(cells), 1.0, 1.0)
    # |S| >= S cos(width / 2), and ln S has a second derivative of at most 1 / 4
    h = float(at.y[1] - at.y[0])
    most = power * math.log(math.cos(0.5 * width))
    near = far = np.full_like(cells, most - 0.125 * h * h * 0.25 * power)
    before = after = most
    if width <= 0.5 * math.pi:  # |S| rises with y, and |S| / S falls up to y = 0
        less = power * (turned_s(at.y, np.array(width), power)[0] * (1.0 + 1e-9) - 1e-15)
        rise = -power * np.diff(at.log_s) * (1.0 + 1e-9) + 1e-12
        better = less[:-1] + rise < near
        near, far = np.where(better, less[:-1], near), np.where(better, less[:-1] + rise, far)
        before, after = float(less[0]) if at.y[0] <= 0.0 else most, float(less[-1])
    with np.errstate(over="ignore"):
        return Grown(np.exp(near), np.exp(far), *np.exp([before, after]).tolist())


def aliased(steps: Steps, c: float, t: float, rule: RuleInY, at: TiltedSteps) -> FloatArray:
    """Bounds the error of the rule for all steps, for |Im s| <= t: shape (n,)."""
    decay = 2.0 * math.pi * rule.width / rule.h
    most = moved(steps, c, t, at, rule.width)
    # in two halves: e^-decay and ``most`` may be near the ends of what doubles hold
    half = math.exp(-0.5 * min(decay, 2.0 * RANGE))
    # Trefethen, Weideman 2014, Theorem 5.1
    error = 2.0 * (most * half) * half / -math.expm1(-decay)  # guard: schedule-aliasing
    return outwards(error) + 1e-300


def beyond(steps: Steps, c: float, t: float, shift: float, rule: RuleInY | None) -> float:
    """An upper bound of ln |M(c + i t')| for all t' >= t; inf where there is no rule.

    Guarantee: holds for every shift in (0, pi) and every rule whose width is at most pi / 2 and
    below pi - shift. The line of y moves to Im y = +-shift, where |S^(i t)| only falls with t. The
    integral of the modulus is a trapezoidal sum of w times the rest, which is analytic; what |w| on
    the moved line is above w comes besides.
    """
    power, m = steps.power(c), steps.m
    at = None if rule is None else steps.weights(c, rule)
    if rule is None or at is None:
        return math.inf
    less, turn, off = turned_s(at.y, np.array(shift), power, t)
    factors = np.exp(power * less - t * turn)
    total = np.matmul(at.weight, factors * (1.0 + outwards(np.expm1(off))))
    # the errors of all weights together, or of each; one that underflows is below 1e-300
    most = float(np.max(factors))
    rounding = np.minimum(most * at.error, at.vague * total + most * at.y.size * 1e-300)
    # the exponential, and the sum in any order
    rounding = rounding + (at.y.size + EXP + 4.0) * UNIT * total  # pays: schedule-beyond
    more = grown(steps, c, at, shift)
    ends = at.left * more.before + at.right * (more.after if steps.end is None else 1.0)
    decay = 2.0 * math.pi * rule.width / rule.h
    # guard: schedule-moved-aliasing
    missed = 2.0 * moved_twice(steps, c, at, rule.width, shift) / math.expm1(min(decay, RANGE))
    whole = total + outwards(outwards(rounding) + ends + missed)
    if steps.end is not None:
        # guard: schedule-spilled
        whole = whole + spilled(steps, c, at, shift, t * turn)
    # e^(shift^2 / (2 m^2)) of the moved density belongs to all terms
    logs = 0.5 * (shift / m) ** 2  # guard: schedule-shift-costs
    costs = float(steps.count @ logs)
    # the square, its quotient and the sum in any order
    costs = costs + outwards(costs * (m.size + 8.0) * UNIT)
    return next_up(costs + sum_up(steps.count, whole))


def sum_up(count: FloatArray, most: FloatArray) -> float:
    """An upper bound of the sum of ln of the numbers ``most``, each times its ``count``."""
    if not bool(np.all(most < math.inf)):
        return math.inf
    each = count * np.log(most)
    # the logarithm, the product, and the sum in any order; and two units of each number, which
    # is itself the sum of three
    size = float(np.sum(np.abs(each))) * (LOG + each.size + 2.0)
    spare = (size + 2.0 * float(np.sum(count))) * UNIT  # pays: schedule-upper
    return next_up(float(np.sum(each)) + outwards(spare))


def spilled(steps: Steps, c: float, at: TiltedSteps, shift: float, turn: FloatArray) -> FloatArray:
    """Bounds what |w| on Im y = shift adds to the integrals that w weighs: shape (n,).

    In a cell phi R^power is at most the larger of its ends, but for the second derivative of
    its logarithm, and e^-turn falls. ``turn`` is t arg S at the nodes.
    """
    if steps.end is None:
        return np.zeros_like(steps.m)
    turn = turn * (1.0 - 1e-9)
    cells = steps.end.log_spilled(at.y, shift) - turn[:-1]
    with np.errstate(over="ignore"):
        left, right = (np.exp(cells - share) for share in at.sides)
    h = float(at.y[1] - at.y[0])
    bend = np.exp(0.125 * (h / steps.m) ** 2)
    both = at.weight @ (np.append(left, 0.0) + np.append(0.0, right))
    before = (at.weight[:, 0] + at.left) * steps.end.growth_before(float(at.y[0]), shift)
    later = after(steps, c, at, 0.0, shift) * math.exp(-min(float(turn[-1]), RANGE))
    return outwards((1.0 + VAGUE) * (bend * both + before) + later)


def after(steps: Steps, c: float, at: TiltedSteps, t: float, shift: float) -> FloatArray:
    """Bounds the integrals of |w phi R^s| beyond the nodes, on Im y = shift: shape (n,).

    They hold for |Im s| <= t. What phi grows by on the line is left out.
    """
    if steps.end is not None:
        further = steps.end.after(steps.power(c), float(at.y[-1]), t, shift)
    elif steps.power(c) < 0.0 and shift <= 0.5 * math.pi:
        slope = float(np.min((at.y[-1] - steps.odds) / steps.m**2 + 0.5))
        further = _after_added(steps.power(c), at, t, shift, slope)
    else:
        return np.full_like(steps.m, np.inf)
    if not further.rate > 0.0:
        return np.full_like(steps.m, np.inf)
    h = float(at.y[1] - at.y[0])
    log = float(further.log_integral()[0])
    most = math.exp(log) if log < RANGE else math.inf
    # phi falls beyond its mean
    falls = at.y[-1] > steps.odds - 0.5 * steps.m**2
    last = (at.weight[:, -1] + 1e-300) * (1.0 + VAGUE)
    return np.where(falls, outwards(last / h * most), np.inf)


def moved_twice(steps: Steps, c: float, at: TiltedSteps, width: float, shift: float) -> FloatArray:
    """Bounds the integral of the modulus on Im y = shift, moved by +-width more: shape (n,).

    The moved density is e^(shift^2 / (2 m^2)) phi, and that factor is left out. |S| is at most
    S on both lines. Where the power is below 0, it is at least what it is on the farther one.
    """
    if steps.power(c) > 0.0:
        return moved(steps, c, 0.0, at, width)
    both = shift + width
    back = np.exp(0.5 * (width - both) * (width + both) / (steps.m * steps.m))
    return np.asarray(moved(steps, c, 0.0, at, both) * back)


def mass_beyond(steps: Steps, end: SmoothEnd, log_mass: float) -> float:
    """An upper bound, above 0, of the P-mass of all runs together that an end leaves out.

    1 - w rises with y. It is at most a sum of steps, each from a place on, beyond which the
    normal tails without the record and with it say how much there is. ``log_mass`` is ln of what
    the answer is compared with: the steps begin where a run has less; any value is sound.
    """
    half = 0.5 * steps.m**2
    places, jumps = end.steps(log_mass - math.log(float(np.sum(steps.count))))
    total = np.zeros_like(steps.m)
    for place, jump in zip(places.tolist(), jumps.tolist(), strict=True):
        if place == -math.inf:
            total = total + jump
            continue
        u = (place - np.stack([steps.odds - half, steps.odds + half])) / steps.m
        # a by its error; the place, m^2 / 2, the sum and the difference; m and the quotient
        off = steps.odds_error + 5.0 * UNIT * (abs(place) + np.abs(steps.odds) + half)
        off = off / steps.m + 2.0 * UNIT * np.abs(u)
        # |d ln tail(u) / du| <= |u| + 1
        log = log_normal_tail(u) + log_normal_tail_slack(u)
        log = log + off * (np.abs(u) + 1.0 + off)  # pays: schedule-left-out
        without, lifted = np.exp(log)
        total = total + jump * (without + steps.q * lifted)
    # a tail that underflows is below 1e-300
    return outwards(float(steps.count @ total)) + outwards(float(np.sum(steps.count)) * 1e-300)


def _after_added(power: float, at: TiltedSteps, t: float, shift: float, slope: float) -> After:
    """Bounds |phi S^s| beyond the nodes on Im y = shift over phi S^power at the last of them.

    For Re s = power < 0, |Im s| <= t and shift <= pi / 2: |S| and arg S rise with y, and phi falls
    as fast as e^(-slope y), at least.
    """
    start = float(at.y[-1])
    # beyond it |S|^power is below e^(-t shift): |S| >= S cos(shift / 2)
    large = (t * shift + LOG_ERROR) / -power - math.log(math.cos(0.5 * shift))
    far = max(start, math.log(math.expm1(min(large, RANGE))))
    cells = min(_MOST_CELLS, math.ceil((far - start) / _CELL) + 1)
    y = np.linspace(start, far + _CELL, cells + 1)
    log_s = ln_s(y)
    less, angle, _ = turned_s(y, np.array(shift), power)
    log = log_s + less
    fall = power * (log - log_s[0]) - slope * (y - start)
    # logarithms within a relative 1e-9
    fall = fall + 1e-9 * (-power * (np.abs(log) + log_s[0]) + slope * (y - start)) + 1e-12
    logs = fall[:-1] + t * angle[1:] * (1.0 + 1e-9)
    return After(np.diff(y), logs[None, :], fall[-1:] + t * shift, slope)
