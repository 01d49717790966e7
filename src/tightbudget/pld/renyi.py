"""Renyi divergences of a composition: they add up over the steps."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import UNIT
from tightbudget.pld.compose import Step, Steps, edge_near
from tightbudget.pld.grid import Grid
from tightbudget.pld.measures import Tilt, discretise
from tightbudget.pld.tilt import tilted_moments

__all__ = ["renyi_bounds"]

_MOST = 2**20  # buckets


def renyi_bounds(directions: tuple[Steps, ...], order: float, rtol: float) -> Bounds:
    """Bounds of D_order(P || Q), the larger of the directions (order > 1, or inf)."""
    ends = [_of_direction(steps, order, rtol) for steps in directions]
    return Bounds(max(b.lower for b in ends), max(b.upper for b in ends))


def _of_direction(steps: Steps, order: float, rtol: float) -> Bounds:
    if steps.infinity.lower > 0:
        return Bounds(math.inf, math.inf)
    if order == math.inf:
        upper = steps.max_loss.upper if steps.infinity.upper == 0 else math.inf
        return Bounds(max(0.0, steps.max_loss.lower), max(0.0, upper))
    total = Bounds(0.0, 0.0)
    for step in steps.steps:
        total = total + step.runs * _of_step(step, order - 1.0, rtol)
    lower = max(0.0, total.lower)
    return Bounds(lower, total.upper if steps.infinity.upper == 0 else math.inf)


def _of_step(step: Step, s: float, rtol: float) -> Bounds:
    """(1/s) ln E_P[e^(s L)] of one step: spreading raises it, merging lowers it."""
    log_m, mean, variance = tilted_moments(step.sketch, s)
    x, log_p = step.sketch.losses, step.sketch.log_masses
    # keep what has a share of the tilted mass; the right tail has a bound of its own
    weight = log_p + s * x - log_m
    kept = np.nonzero(weight > -60.0)[0]
    low, high = float(x[kept[0]]), float(x[kept[-1]])
    best = Bounds(0.0, math.inf)
    h = 0.5 * math.sqrt(rtol * max(variance, 1e-300)) + 1e-300
    h = min(h, 0.5 / (s + 1.0), max(high - low, 1e-300))
    for _ in range(12):
        if step.lattice is not None:
            h = step.lattice
        n = math.ceil((high - low) / h) + 3
        if n > _MOST:
            break
        grid = Grid(edge_near(step, low - h, h), h)
        best = _refined(best, _once(step, grid, n + 1, Tilt(s, Fraction(mean))))
        if best.relative_gap <= rtol:
            break
        h *= 0.5
    return best


def _refined(old: Bounds, new: Bounds) -> Bounds:
    lower = max(old.lower, new.lower)
    return Bounds(lower, max(lower, min(old.upper, new.upper)))


def _once(step: Step, grid: Grid, n: int, tilt: Tilt) -> Bounds:
    s = tilt.theta
    upper, lower, beyond = discretise(step.pair, grid, n, tilt)
    shift = s * float(tilt.anchor)
    log_upper = math.log(upper.mass) + upper.exponent * math.log(2.0) + shift
    if beyond > 0:
        edge = float(grid.losses(n)[0][-1])
        log_tail = step.pair.log_tail_moment(edge, s)
        # a bounded loss: its tail's moment is at most e^(s top) times the mass there
        top = step.pair.max_loss()[1]
        if math.isfinite(top):
            log_tail = min(log_tail, s * top + math.log(beyond))
        log_upper = float(np.logaddexp(log_upper, log_tail))
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
    fuzz = (64.0 + 4.0 * n + 8.0 * s) * UNIT
    fuzz += 8 * UNIT * (abs(log_upper) + abs(shift) + abs(upper.exponent) + (1 + s) * 60.0)
    return Bounds(max(0.0, (log_lower - fuzz) / s), max(0.0, (log_upper + fuzz) / s))
