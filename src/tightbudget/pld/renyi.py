"""Renyi divergences of a composition: they add up over the steps."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from tightbudget.errors import PrecisionError
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import UNIT
from tightbudget.pairs.pair import Sketch
from tightbudget.pld.compose import Step, Steps, edge_near
from tightbudget.pld.grid import Grid
from tightbudget.pld.measures import Tilt, discretise
from tightbudget.pld.tilt import tilted_moments

__all__ = ["renyi_bounds"]

_MOST = 2**20  # buckets
_ROUNDED = 1e-12  # a divergence that rounding alone may account for


def renyi_bounds(directions: tuple[Steps, ...], order: float, rtol: float) -> Bounds:
    """Bounds of D_order(P || Q), the larger of the directions (order > 1, or inf).

    Raises:
        PrecisionError: the gap cannot be reached (an upper end of inf is no gap: it says that
            no bound of a tail is known).
    """
    ends = [_of_direction(steps, order, rtol) for steps in directions]
    worst = Bounds(max(b.lower for b in ends), max(b.upper for b in ends))
    runs = sum(step.runs for step in directions[0].steps)
    rounded = _ROUNDED * max(1, runs) * (1.0 + 1.0 / (order - 1.0))
    if worst.relative_gap > rtol and rounded < worst.upper < math.inf:
        raise PrecisionError(
            f"relative gap {rtol:g} was not reached for the Renyi divergence of order {order:g}: "
            f"the bounds are {worst} (relative gap {worst.relative_gap:.2g})",
            worst.lower,
            worst.upper,
        )
    return worst


def _of_direction(steps: Steps, order: float, rtol: float) -> Bounds:
    if steps.infinity.lower > 0:
        return Bounds(math.inf, math.inf)
    if order == math.inf:
        upper = steps.max_loss.upper if steps.infinity.upper == 0 else math.inf
        return Bounds(max(0.0, steps.max_loss.lower), max(0.0, upper))
    total = Bounds(0.0, 0.0)
    for step in steps.steps:
        total = total + step.runs * _of_step(step, order - 1.0, rtol)
    return Bounds(max(0.0, total.lower), total.upper if steps.infinity.upper == 0 else math.inf)


def _of_step(step: Step, s: float, rtol: float) -> Bounds:
    """(1/s) ln E_P[e^(s L)] of one step: spreading raises it, merging lowers it."""
    x, log_p = step.sketch.losses, step.sketch.log_masses
    # keep what has a share of the tilted mass and is a double; the rest of the right tail
    # has bounds of its own
    weight = log_p + s * x
    lifted = np.logaddexp.accumulate(log_p) + s * x  # all below is lifted to the first edge
    least = float(np.max(weight)) - 60.0
    first = int(np.argmax(lifted > least))
    double = log_p > -600.0
    right = np.flatnonzero((weight > least) & double)
    last = int(right[-1] if right.size else np.flatnonzero(double)[-1])
    kept = slice(min(first, last), last + 1)
    part = Sketch(x[kept], log_p[kept])
    _, mean, variance = tilted_moments(part, s)
    low, high = float(part.losses[0]), float(part.losses[-1])
    best = Bounds(0.0, math.inf)
    h = min(0.5 * math.sqrt(rtol * variance), 0.5 / (s + 1.0), high - low)
    h = max(h, 1e-9 * (abs(low) + abs(high)), 1e-300)
    for _ in range(12):
        if step.lattice is not None:
            h = step.lattice
        n = math.ceil((high - low) / h) + 3
        if n > _MOST:
            break
        grid = Grid(edge_near(step, low - h, h), h)
        got = _once(step, grid, n + 1, Tilt(s, Fraction(mean)))
        best = Bounds(max(best.lower, got.lower), min(best.upper, got.upper))
        # no bound of the tail: a finer grid does not help. Nothing to tell apart: nor here
        if best.relative_gap <= rtol or math.isinf(best.upper) or best.upper < _ROUNDED:
            break
        h *= 0.5
    return best


def _once(step: Step, grid: Grid, n: int, tilt: Tilt) -> Bounds:
    s = tilt.theta
    upper, lower, beyond = discretise(step.pair, grid, n, tilt)
    shift = s * float(tilt.anchor)
    log_upper = math.log(upper.mass) + upper.exponent * math.log(2.0) + shift
    log_tail = -math.inf
    if beyond > 0:
        x, slack = grid.losses(n)
        above = step.pair.log_tail_moment(float(x[-1] - 2 * slack[-1]), s)[1]
        log_tail = step.pair.log_tail_moment(float(x[-1] + 2 * slack[-1]), s)[0]
        # a bounded loss: its tail's moment is at most e^(s top) times the mass there
        top = step.pair.max_loss()[1]
        if math.isfinite(top):
            above = min(above, s * top + math.log(beyond))
        log_upper = float(np.logaddexp(log_upper, above))
    # merged: sum a^(s+1) b^-s = e^(s anchor) sum p (p / q)^s, the exponents apart
    kept = (lower.p > lower.p_error) & (lower.q > 0)
    p = (lower.p[kept] - lower.p_error) * (1 - 4 * UNIT)
    q = (lower.q[kept] + lower.q_error) * (1 + 4 * UNIT)
    ratio = (lower.p_exponent - lower.q_exponent) * math.log(2.0)
    log_lower = -math.inf
    if p.size:
        terms = np.log(p) + s * (np.log(p) - np.log(q) + ratio)
        top = float(np.max(terms))
        log_lower = top + math.log(float(np.sum(np.exp(terms - top))))
        log_lower += lower.p_exponent * math.log(2.0) + shift
    log_lower = float(np.logaddexp(log_lower, log_tail))
    fuzz = (64.0 + 4.0 * n + 8.0 * s) * UNIT
    fuzz += 8 * UNIT * (abs(log_upper) + abs(shift) + abs(upper.exponent) + (1 + s) * 60.0)
    return Bounds(max(0.0, (log_lower - fuzz) / s), max(0.0, (log_upper + fuzz) / s))
