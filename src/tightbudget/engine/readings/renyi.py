"""Renyi divergences of a composition add up over its parts.

With s = order - 1, losses L and Q-mass that P lacks, the divergence of one step is

    D = ln(1 + s A) / s,    A = E_P[G(L)] + Q(P = 0),    G(L) = phi(s L) / s + phi(-L),

for phi(y) = e^y - 1 - y >= 0, since E_P[1] = 1 and E_P[e^-L] = 1 - Q(P = 0). All terms are
non-negative, so that D keeps its relative precision near order 1 and for tiny losses, where
E_P[e^(s L)] is 1 but for a rounding error.

G is convex in L, and in e^-L too: s p G = q f(p/q) with f(t) = t^(s + 1) - 1 - (s + 1)(t - 1). So
merging outputs lowers A, and moving a bin's mass to its two ends, P and Q kept, raises it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightbudget.engine.answer import Answer
from tightbudget.engine.buckets.compose import Part, Parts
from tightbudget.engine.buckets.tilt import tilted_moments
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    EXP,
    EXPM1,
    LOG,
    LOG1P,
    UNIT,
    FloatArray,
    sum_down,
    sum_up,
)
from tightbudget.pairs.pair import Pair

_MOST = 2**20  # bins: arrays of 8 MiB, some twenty of them at a time
# Bins of the first grid, if more are planned, which is up to ten times as many as it takes: a tenth
# of a second. From here on the rounding of the sum counts, too. Affects time, never truth.
_FIRST = 2**16
_ROUNDED = 1e-12  # a divergence of one run that rounding alone may account for; decides no bound
_DEPTH = 40.0  # what has a share below e^-40 = 4e-18 of A, less than a unit, is not cut into bins
_LOWEST = -600.0  # nats: e^L times the mass of all losses below L must be a normal double
_LEAST = 1e-280  # nats: a smaller loss counts as this one, or as none; the square of phi underflows


def renyi_divergence(directions: tuple[Parts, ...], order: float, rtol: float) -> Answer:
    """Bounds of D_order(P || Q), the larger of the directions (order > 1, or inf).

    Guarantee: the exact divergence lies inside. An upper bound of inf is no gap that was not
    reached: it says that no bound of a tail is known.
    """
    ends: list[Bounds] = []
    for parts in directions:
        floor = max((one.lower for one in ends), default=0.0)
        ends.append(_of_direction(parts, order, rtol, floor))
    worst = Bounds.worst(ends)
    if worst.relative_gap > rtol and rounding_of_renyi(directions) < worst.upper < math.inf:
        return Answer.missed(words_of_renyi(order), worst, rtol)
    return Answer(worst)


def words_of_renyi(order: float) -> str:
    """The question in words."""
    return f"the Renyi divergence of order {order:g}"


def rounding_of_renyi(directions: tuple[Parts, ...]) -> float:
    """A divergence that rounding alone may account for; it decides no bound."""
    return _ROUNDED * max(1, sum(part.count for part in directions[0].parts))


def _of_direction(parts: Parts, order: float, rtol: float, floor: float) -> Bounds:
    """D of one direction; no closer than its formulas know it, where these are below ``floor``."""
    if parts.infinity.lower > 0:
        return Bounds(math.inf, math.inf)
    if order == math.inf:
        upper = parts.max_loss.upper if parts.infinity.upper == 0 else math.inf
        return Bounds(max(0.0, parts.max_loss.lower), max(0.0, upper))
    s, each = order - 1.0, parts.parts
    formulas = [_by_formula(part, s) for part in each]
    known = _sum(parts, formulas)
    if known.upper <= floor or known.relative_gap <= rtol:
        return known
    # a product and a sum for each part, of which each bound rounds by 2 units
    room = rtol - 8 * UNIT * (len(each) + 1)
    steps = [
        one if one.relative_gap <= room else one.meet(_by_parts(part, s, rtol))
        for part, one in zip(each, formulas, strict=True)
    ]
    return _sum(parts, steps)


def _sum(parts: Parts, steps: list[Bounds]) -> Bounds:
    """D of all runs, from that of one step of each part."""
    total = Bounds(0.0, 0.0)
    for part, step in zip(parts.parts, steps, strict=True):
        total = total + part.count * step
    return Bounds(max(0.0, total.lower), math.inf if parts.certain else total.upper)


def _by_formula(part: Part, s: float) -> Bounds:
    """D of one step, from the pair's formula; [0, inf] where it has none."""
    low, high = part.pair.log_moment(s)
    return Bounds(max(0.0, low / s), max(0.0, high / s))


def _by_parts(part: Part, s: float, rtol: float) -> Bounds:
    """D of one step, from its atoms and bins."""
    atoms = _atoms(part.pair, s)
    if part.pair.bins(np.zeros(1), np.zeros(1)) is None:
        return _divergence(atoms, s)
    plan = _Plan.of(part, s, rtol)
    best, before = Bounds(0.0, math.inf), math.inf
    finer = min(1.0, _FIRST / plan.number)
    for halvings in range(12):
        edges = plan.edges(2**halvings * finer)
        if edges.size > _MOST:
            break
        got = _divergence(atoms.join(_bins(part.pair, edges, s)), s)
        best = best.meet(got)
        # no bound of the tail: a finer grid does not help
        if best.relative_gap <= rtol or math.isinf(best.upper) or best.upper < _ROUNDED:
            break
        if edges.size > _FIRST and _least_gap(before, got.relative_gap) > rtol:
            break
        before = got.relative_gap
    return best


def _least_gap(before: float, gap: float) -> float:
    """Predicts the least gap of any number of bins, from those of n and of 2 n bins.

    The bins make a gap a / n^2, and the rounding of their sum one of b n. Stops a search, and
    decides no bound.
    """
    rounding = (4.0 * gap - before) / 7.0  # b n
    if not rounding > 0.0:
        return 0.0
    return 1.5 * math.cbrt(2.0 * max(0.0, before - rounding) * rounding**2)


# ------------------------------------------------------------------------- the sum A


@dataclass(frozen=True)
class _Terms:
    """Natural logarithms of bounds of non-negative numbers that sum to A (-inf stands for 0)."""

    lower: FloatArray  # (n,)
    upper: FloatArray  # (m,)

    def join(self, other: _Terms) -> _Terms:
        """The terms of two sums as those of one."""
        return _Terms(
            np.concatenate([self.lower, other.lower]), np.concatenate([self.upper, other.upper])
        )


def _divergence(terms: _Terms, s: float) -> Bounds:
    """ln(1 + s A) / s."""
    ends = []
    for logs, side in ((terms.lower, -1.0), (terms.upper, 1.0)):
        top = float(np.max(logs, initial=-math.inf))
        if math.isinf(top):
            ends.append(max(0.0, top))
            continue
        below = np.maximum(logs - top, -700.0 if side > 0 else -math.inf)
        # the difference and exp; what is below e^-700 counts as e^-700
        made = EXP + np.where(np.isinf(below), 0.0, -below) + 2.0
        each = np.exp(below) * (1.0 + side * made * UNIT)  # pays: renyi-terms
        total = sum_up(each) if side > 0 else sum_down(each)
        y = top + math.log(total) + math.log(s)
        # Two logarithms and two sums; as ln(1 + e^y) has a slope of at most itself, an error of y
        # is a relative error of the answer. Its own exp and log1p and the quotient are below 4 LOG
        size = abs(top) + abs(math.log(total)) + abs(math.log(s)) + 1.0
        off = (4.0 * LOG + 4.0) * size * UNIT  # pays: renyi-sum
        ends.append(max(0.0, float(np.logaddexp(0.0, y)) / s * (1.0 + side * off)))
    return Bounds(min(ends), ends[1])


def _atoms(pair: Pair, s: float) -> _Terms:
    """The terms of the atoms, and those of outputs that one of P and Q lacks."""
    atoms, q_only = pair.atoms(), pair.q_only()
    low, high = _log_g(atoms.loss_lower, s), _log_g(atoms.loss_upper, s)
    one_side = (atoms.loss_lower > 0) | (atoms.loss_upper < 0)
    least = np.where(one_side, np.minimum(low.lower, high.lower), -np.inf)
    rest = pair.log_rest(s) - math.log(s)  # s p G(L) <= p e^(s L) + s q
    return _Terms(
        np.concatenate([_log(atoms.p.lower, -1.0) + least, _log(q_only.lower, -1.0)]),
        np.concatenate(
            [
                _log(atoms.p.upper, 1.0) + np.maximum(low.upper, high.upper),
                _log(q_only.upper, 1.0),
                [rest + 1e-12 * (1.0 + abs(rest)) if math.isfinite(rest) else rest],
            ]
        ),
    )  # guard: q-mass-p-lacks


def _bins(pair: Pair, x: FloatArray, s: float) -> _Terms:
    """The terms of the continuous part, cut at the edges x, of which x[0] <= 0 <= x[-1]."""
    bins = pair.bins(x, np.zeros(x.size))
    assert bins is not None
    right, inner = x[1:], slice(1, x.size)
    w_low, w_high = np.maximum(bins.w.lower[inner], 1.0), np.maximum(bins.w.upper[inner], 1.0)
    log_p = _log(bins.p.lower[inner], -1.0), _log(bins.p.upper[inner], 1.0)
    # merged: all of a bin has the loss r - ln w
    with np.errstate(divide="ignore"):
        log_w_low, log_w_high = np.log1p(w_low - 1.0), np.log1p(w_high - 1.0)
    # ln w and the difference: the exact ln w is at most the length of the bin
    size = np.abs(right) + np.abs(x[:-1])
    pad = (LOG1P + 8.0) * size * UNIT  # pays: renyi-merged
    low = np.where(np.isfinite(log_w_high), right - log_w_high, x[:-1]) - pad
    high = np.maximum(right - log_w_low + pad, low)
    at_low, at_high = _log_g(low, s), _log_g(high, s)
    merged = np.where((low > 0) | (high < 0), np.minimum(at_low.lower, at_high.lower), -np.inf)
    # spread: the share (w - 1) / (e^h - 1) of a bin's P-mass goes to its left end. A lump of mass
    # that rounding has put into the bin above may lie a little further left, as w says
    spare = 8.0 * LOG1P * size * UNIT  # pays: renyi-spread
    left = np.where(np.isfinite(log_w_high), np.minimum(x[:-1], right - log_w_high), x[:-1]) - spare
    g_left, g_right = _log_g(left, s).upper, _log_g(right, s).upper
    w = np.where(g_left > g_right, w_high, w_low)
    with np.errstate(invalid="ignore"):
        share = np.clip((w - 1.0) / np.expm1(np.minimum(right - left, 700.0)), 0.0, 1.0)
    share = np.where(right - left > 700.0, g_left > g_right, share)  # the quotient is no double
    top = np.maximum(g_left, g_right)
    chord = share * np.exp(g_left - top) + (1.0 - share) * np.exp(g_right - top)
    # the share by 2 EXPM1 of itself; the exponentials are at most 1
    off = (2.0 * EXPM1 + 2.0 * EXP + 16.0) * UNIT  # pays: renyi-chord
    spread = top + np.log(chord + off)  # guard: bin-mass-goes-both-ends
    # the logarithm of a chord above 48 units, which is above e^-33, and the sum with top
    spread = spread + LOG * (np.abs(top) + 64.0) * UNIT  # pays: renyi-spread-log
    # below x[0] <= 0: p G is at most q, since f(t) falls from f(0) = s as t = p/q <= 1 rises, and
    # at least q - (1 + 1/s) p
    apart = 4.0 * abs(x[0]) * UNIT  # pays: renyi-left
    first = _log(bins.q.upper[:1], 1.0) - x[0] + apart
    with np.errstate(invalid="ignore", divide="ignore"):
        under = _log(bins.q.lower[:1], -1.0) - x[0] - apart
        # -ln(1 - e^less) is nearly e^less; twice that pays for the rounding of less, too
        less = _log(bins.p.upper[:1], 1.0) + math.log1p(1.0 / s) - under
        under = np.where(less < -30.0, under - 2.0 * np.exp(less), -np.inf)
    tail = _tail(pair, float(x[-1]), float(bins.p.upper[-1]), s)
    return _Terms(
        np.concatenate([log_p[0] + merged, under, tail.lower]),
        np.concatenate([log_p[1] + spread, first, tail.upper]),
    )


def _tail(pair: Pair, x: float, mass: float, s: float) -> _Terms:
    """The terms of all losses above x >= 0, of P-mass at most ``mass``."""
    if mass == 0.0:
        return _Terms(np.zeros(0), np.zeros(0))
    least, most = pair.log_tail_moment(x, s)
    log_s, log_mass = math.log(s), math.log(mass)
    # logarithms and exponents of a few units each: 1e-12 is 4,500 units of 2^-52, and the pair has
    # certified its own numbers
    margin = 1e-12 * (1.0 + abs(log_s) + abs(log_mass))
    # G(L) <= e^(s L) / s; and G rises up to the largest loss
    upper = most - log_s + margin  # guard: tail-renyi-moment
    top = pair.max_loss()[1]
    if math.isfinite(top):
        upper = min(upper, log_mass + float(_log_g(np.array([max(x, top)]), s).upper[0]) + margin)
    # s G(L) >= e^(s L) - (1 + s)
    lower, less = -math.inf, log_mass + math.log1p(s) + margin
    # a difference of two numbers that are nearly equal would lose its digits
    if least > less + 1e-3:
        lower = least + math.log1p(-math.exp(less - least)) - log_s - 4.0 * margin
    return _Terms(np.array([lower]), np.array([upper]))


def _log(x: FloatArray, side: float) -> FloatArray:
    """A bound of ln x for x >= 0: lower for the side -1, upper for 1."""
    with np.errstate(divide="ignore"):
        log = np.log(x)
    size = np.where(np.isinf(log), 0.0, np.abs(log)) + 1.0
    return np.asarray(log + side * LOG * size * UNIT)  # pays: renyi-mass


def _log_g(losses: FloatArray, s: float) -> _Terms:
    """ln G of each loss."""
    small = np.abs(losses) < _LEAST
    loss = np.where(small, _LEAST, losses)
    first, second = _log_phi(s * loss) - math.log(s), _log_phi(-loss)
    value = np.logaddexp(first, second)
    # units: the logarithms and sums of both parts; the rounding of s L, which moves phi by at most
    # 2 + |s L| of itself; series and differences by less than 40 of phi
    sizes = np.abs(np.log(np.abs(loss))) + abs(math.log(s)) + np.abs(value) + 16.0
    made = 4.0 * LOG * sizes + 8.0 * (np.abs(s * loss) + np.abs(loss))
    off = made * UNIT  # pays: renyi-loss
    return _Terms(np.where(small, -np.inf, value - off), value + off)


def _log_phi(y: FloatArray) -> FloatArray:
    """ln(e^y - 1 - y) for y != 0."""
    size = np.maximum(np.abs(y), 1e-300)
    near, far = np.abs(y) <= 0.5, y > 30.0  # guard: small-argument-series
    z = np.where(near, y, 0.0)
    series = np.ones_like(z)
    for k in range(18, 2, -1):
        series = 1.0 + z / k * series
    middle = np.where(near | far, 1.0, y)
    end = np.where(far, y, 40.0)
    return np.where(
        near,
        2.0 * np.log(size) - math.log(2.0) + np.log(series),
        np.where(
            far,
            end + np.log1p(-(1.0 + end) * np.exp(-end)),
            np.log(np.expm1(middle) - middle),
        ),
    )


# ------------------------------------------------------------------------- where to cut


@dataclass(frozen=True)
class _Plan:
    """A plan says where the bins are: it affects the width of the bounds, never their truth."""

    nodes: FloatArray  # losses, nats, ascending, from the first edge to the last one
    bins: FloatArray  # how many bins there are up to each node
    origin: float | None  # a loss that should be on an edge

    @staticmethod
    def of(part: Part, s: float, rtol: float) -> _Plan:
        """Bins that are narrow against the loss, the spread of losses and 1 / order."""
        x, log_p = part.sketch.losses, part.sketch.log_masses
        terms = np.logaddexp.accumulate(log_p + _log_g(x, s).upper)
        total = float(terms[-1])
        below = np.logaddexp.accumulate(log_p - x)  # ln Q(L <= x)
        above = np.logaddexp.accumulate((log_p + s * x)[::-1])[::-1] - math.log(s)
        left = np.flatnonzero(below > total - _DEPTH)
        # masses that are no doubles belong to the tail
        right = np.flatnonzero((above > total - _DEPTH) & (log_p > -600.0))
        low = min(0.0, float(x[left[0]])) if left.size else 0.0
        high = max(0.0, float(x[right[-1]])) if right.size else 0.0
        deviation = math.sqrt(max(0.0, tilted_moments(part.sketch, s)[2]))
        room = max(high - low, 1e-270)
        low, high = max(low - 0.01 * room, _LOWEST), high + 0.01 * room
        deviation = min(max(deviation, 1e-6 * room), room)
        sizes = np.geomspace(0.1 * deviation, 1.02 * room, 512)
        nodes = np.concatenate([-sizes, sizes, np.linspace(low, high, 512), [0.0]])
        nodes = np.unique(np.clip(nodes, low, high))
        # with narrow bins of width h, A is known within h^2 / 8 G''/G of itself: 1 / L^2 for small
        # losses; and D, of the size of L for large ones, within (s + 1) h^2 / 8
        size = np.maximum(deviation, np.abs(nodes))
        width = np.maximum(deviation, np.minimum(size, np.sqrt(size / (s + 1.0))))
        width = 0.5 * np.minimum(math.sqrt(rtol) * width, 1.0 / (s + 1.0))
        density = 0.5 * (1.0 / width[1:] + 1.0 / width[:-1])
        # positive losses that add nothing need no narrow bins
        start = float(x[int(np.argmax(terms > total - _DEPTH))])
        density[(nodes[:-1] >= 0.0) & (nodes[1:] <= start)] = 1.0 / room
        bins = np.append(0.0, np.cumsum(np.diff(nodes) * density))
        return _Plan(nodes, bins, part.origin)

    @property
    def number(self) -> int:
        """The number of edges that are planned."""
        return math.ceil(float(self.bins[-1])) + 2

    def edges(self, finer: float) -> FloatArray:
        """The edges, with ``finer`` times as many bins as planned."""
        n = math.ceil(min(2 * _MOST, finer * self.number))
        x = np.interp(np.linspace(0.0, float(self.bins[-1]), n), self.bins, self.nodes)
        if self.origin is not None and x[0] < self.origin < x[-1]:
            x = np.append(x, self.origin)
        return np.asarray(np.unique(x))
