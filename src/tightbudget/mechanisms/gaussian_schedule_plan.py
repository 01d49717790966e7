"""Planning for a schedule: the nodes that it needs, its size, its shape, its end.

Nothing here is certified: a plan decides what an answer costs and how wide it is, never whether
it is true.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from tightbudget.mechanisms.gaussian_schedule_bounds import mass_beyond, moved, moved_twice, spilled
from tightbudget.mechanisms.gaussian_schedule_nodes import (
    DENSITY_0,
    LOG_ERROR,
    MOST,
    RANGE,
    RuleInY,
    Steps,
    TiltedSteps,
    ln_s,
    turned_s,
)
from tightbudget.mechanisms.smooth_end import SmoothEnd
from tightbudget.numerics.rounding import FloatArray
from tightbudget.pairs.transform import Rough

# Shares of the widest strip that a plan looks at: a large power of S asks for a narrow one.
_SHARES = np.append([0.001, 0.004, 0.012], [0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97])
# Widths of a smooth end, as shares of the least m: a narrow one takes more nodes, and beyond a wide
# one those that are left over may still make M.
_WIDTHS = tuple(2.0**-i for i in range(3, 10))
_AROUND = 8.0  # widths of a smooth end: it takes e^-32 of what is farther inside
_BEYOND = 3.0  # widths of a smooth end: what is larger there is not the end's own
_NO_TAIL = 40.0  # standard deviations: the mass beyond is below 1e-300


def farthest(steps: Steps) -> float:
    """The largest c for which the engine should try the line Re s = c."""
    # the integrand of the largest losses peaks at x = c m: a thousand standard deviations
    most = 1000.0 / float(steps.m.max()) if steps.remove else math.inf
    if steps.end is None:
        return most
    # ... or it ends, where S^c is still a double
    return max(most, RANGE / float(ln_s(np.array(steps.end.edge))))


def rough(steps: Steps, c: FloatArray) -> Rough:
    """ln M and its derivatives at each c > 0."""
    some = steps.some
    y, log_h = _places(some, c)
    log_s, log_share = ln_s(y), some.log_share(y)[0]
    powers = 1.0 + c if steps.remove else -c
    total = np.zeros((3, c.size))
    for m, odds, rest, count in zip(some.m, some.odds, some.log_rest, some.count, strict=True):
        x = (y - odds) / m + 0.5 * m
        log_r = log_s + rest
        base = math.log(DENSITY_0 / m) - 0.5 * x * x + log_share + log_h
        weight = np.exp(base + np.multiply.outer(powers, log_r))
        value = np.sum(weight, axis=1)
        mean = weight @ log_r / value
        square = weight @ (log_r * log_r) / value
        total += count * np.array([np.log(value), mean, square - mean * mean])
    sign = 1.0 if steps.remove else -1.0
    return Rough(total[0], sign * total[1], total[2])


def _places(steps: Steps, c: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns nodes for values of M at each c, ascending, and ln of the step at each of them.

    They are as close together as a smooth end asks for at the end alone.
    """
    h = steps.fine
    ends = [steps.ends(float(end), h, LOG_ERROR) for end in (np.min(c), np.max(c))]
    low, high = h * min(e[0] for e in ends), h * max(e[1] for e in ends)
    if steps.end is None:
        y = np.arange(low, high + 0.5 * h, h)
        return y, np.full_like(y, math.log(h))
    wide = dataclasses.replace(steps, end=None, _kept={}).fine
    part = max(low, steps.end.edge - _AROUND * steps.end.width)
    far = np.arange(low, part, wide)
    y = np.append(far, np.arange(far[-1] + wide if far.size else low, high + 0.5 * h, h))
    return y, np.log(np.gradient(y))


def shifts(steps: Steps, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """About the least value of ``beyond(c, t, shift)`` for each t, and the shift that has it."""
    some = steps.some
    at = some.weights(c, some.rule(c, some.fine, 0.0))
    found = np.full_like(t, np.inf), np.zeros_like(t)
    if at is None:
        return found
    rise = at.weight @ np.exp(at.y - at.log_s) / at.total
    # a^2 / (2 m^2) - t a E[d ln S / dy], summed over the steps, is least here
    best = t * float(some.count @ rise) / float(some.count @ some.m**-2.0)
    most = 0.9 * min(math.pi, 6.0 * float(steps.m.max()))
    if steps.end is not None:
        most = min(most, steps.end.strip)
    for factor in (0.03, 0.1, 0.3, 1.0):
        shift = np.minimum(factor * best, most)
        shrink, turn, _ = turned_s(at.y, shift[:, None], steps.power(c))
        turn = t[:, None] * turn
        sizes = at.weight @ np.exp(np.minimum(steps.power(c) * shrink - turn, RANGE)).T
        if steps.end is not None:
            over = [
                spilled(some, c, at, a, one) for a, one in zip(shift.tolist(), turn, strict=True)
            ]
            sizes = sizes + np.array(over).T
        each = np.log(sizes) + 0.5 * (shift / some.m[:, None]) ** 2
        bound = some.count @ each
        better = bound < found[0]
        found = np.where(better, bound, found[0]), np.where(better, shift, found[1])
    return found


def rule_of_line(steps: Steps, c: float, t: float, tolerance: float) -> RuleInY | None:
    """About the shortest rule for values up to c + i t, or None where none is short enough."""
    goal = min(LOG_ERROR, 6.0 - math.log(tolerance / float(np.sum(steps.count))))
    rule = _shortest(steps, c, goal, math.pi, lambda some, at, w: moved(some, c, t, at, w))
    return rule if rule is not None and rule.size * steps.m.size <= MOST else None


def moved_rule(steps: Steps, c: float, shift: float) -> RuleInY | None:
    """About the shortest rule for the integral of the modulus on Im y = shift, or None."""
    if steps.remove and steps.end is None:  # phi alone grows
        least = float(steps.m.min())
        widths = np.linspace(0.05, 0.97, 24) * min(0.5 * math.pi, math.pi - shift, 6.0 * least)
        needed = 0.5 * (shift**2 + widths**2) / least**2 + LOG_ERROR
        best = int(np.argmax(widths / needed))
        width = float(widths[best])
        return steps.rule(c, 2.0 * math.pi * width / float(needed[best]), width)
    widest = min(0.5 * math.pi, math.pi - shift)
    return _shortest(
        steps, c, LOG_ERROR, widest, lambda some, at, w: moved_twice(some, c, at, w, shift)
    )


def _shortest(
    steps: Steps, c: float, goal: float, widest: float,
    size: Callable[[Steps, TiltedSteps, float], FloatArray],
) -> RuleInY | None:  # fmt: skip
    """The rule with the fewest nodes of those for strips up to ``widest``.

    ``size`` bounds the integral of the modulus on both sides of a strip.
    """
    some, least = steps.some, float(steps.m.min())
    widest = min(widest, 12.0 * least)
    if steps.end is not None:
        # the power of R is positive there: a shift changes nothing
        widest = min(widest, steps.end.strip)
    widths = (_SHARES if steps.power(c) < 0.0 else _SHARES[3:]) * widest
    at = some.weights(c, some.rule(c, some.fine, 0.0))
    if at is None:
        return None
    logs = [float(np.max(np.log(size(some, at, w) / at.total))) for w in widths.tolist()]
    # the largest share of the widest density belongs to the least m, which ``some`` may lack
    density = 0.5 * (widths / least) ** 2
    needed = np.nan_to_num(np.maximum(np.array(logs), density) + goal + 2.0, nan=np.inf)
    best = int(np.argmax(widths / needed))
    h = 2.0 * math.pi * float(widths[best] / needed[best])
    return steps.rule(c, h, float(widths[best]), goal) if h > 1e-6 else None


def end(steps: Steps, log_mass: float, c: float) -> SmoothEnd:
    """Returns a smooth end beyond which there is about e^log_mass of all runs.

    Args:
        steps: of a removed record.
        log_mass: ln of the P-mass.
        c: up to which M(c) is to owe nothing to losses beyond the end.
    """
    # 1 - w is at least Phi(-1 / width) everywhere
    log_each = log_mass - math.log(float(np.sum(steps.count)))
    widest = min(0.5, float(steps.m.min()), 4.0 / math.sqrt(1.0 - min(log_each, 0.0)))
    scale = 2.0 ** math.floor(math.log2(widest))
    found = _end_of_width(steps, log_mass, scale * _WIDTHS[0])
    # narrow enough for the edge of the widest: those of others hardly differ
    for share in _WIDTHS:
        width = scale * share
        if _falls_beyond(steps, SmoothEnd(found.edge, width), steps.power(c)):
            break
    return found if width == found.width else _end_of_width(steps, log_mass, width)


def _end_of_width(steps: Steps, log_mass: float, width: float) -> SmoothEnd:
    means = steps.odds + 0.5 * steps.m**2
    low, high = float(np.min(steps.odds)), float(np.max(means + _NO_TAIL * steps.m))
    while high - low > 0.01 * width:
        middle = 0.5 * (low + high)
        many = math.log(mass_beyond(steps, SmoothEnd.near(middle, width), log_mass)) > log_mass
        low, high = (middle, high) if many else (low, middle)
    return SmoothEnd.near(high, width)


def _falls_beyond(steps: Steps, end: SmoothEnd, power: float) -> bool:
    """Whether w phi R^power is nowhere beyond the edge larger than at the edge, about."""
    y = end.places(power, LOG_ERROR)
    y = y[(end.depth(y) > _BEYOND) | (y == end.edge)]
    log_s = ln_s(y)
    log = power * (log_s - log_s[0]) - 0.5 * end.depth(y) ** 2
    x = np.maximum((end.edge - steps.odds) / steps.m + 0.5 * steps.m, 0.0)[:, None]
    step = (y - end.edge) / steps.m[:, None]
    log = log - np.min(step * (x + 0.5 * step), axis=0)
    return bool(np.all(log <= log[0]))
