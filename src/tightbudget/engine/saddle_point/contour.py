"""delta(eps) as an integral along a vertical line: many digits, whatever the number of runs.

With M(s) = E_P[e^(s L)] of the whole composition (ln M adds up over the steps), any c > 0:

    delta(eps) = (1 / 2 pi i) int_(c - i inf)^(c + i inf) M(s) e^(-s eps) / (s (s + 1)) ds.

1. *place*: c at the saddle point, where the integrand is concentrated;
2. *measure*: the step D of the trapezoidal sum from how far e^(c y) delta(eps + y) reaches, the
   height T from where |M| is proved to be negligible for good;
3. *sum*: the values of M at c + i n D serve every eps near by;
4. *certify*: four errors, each bounded, each outwards: aliasing (every term of it is positive, so
   the sum is an upper bound up to the others), the line beyond T, the values of M, and rounding.

A line that ends in "pays: name" pays for what docs/explanation/rounding.md says under that name.

Where one rare large loss decides, no line suits both the bulk and the rare part: then each
number of rare losses gets a line of its own (M = bulk + rare, binomially expanded).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tightbudget.engine.saddle_point.saddle_points import Term, Track, log_g
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    EXP,
    LOG,
    TURN,
    UNIT,
    BoolArray,
    FloatArray,
    add_down,
    add_up,
    exp_up,
    expm1_up,
    log_down,
    log_up,
    mul_down,
    next_down,
    next_up,
    outwards,
    sub_down,
)
from tightbudget.numerics.special import log_g_up
from tightbudget.pairs.transform import ComplexArray

# The terms of all values of M on one line. A term is a complex exponential, tens of nanoseconds:
# the limit is about a tenth of a second, after which the buckets are asked. No truth depends on it.
COST = 2_000_000
_CHUNK = 2**16  # of these terms at a time: arrays of 1 MiB
# Points of a line that are computed at a time, at least: what a product of many mechanisms
# prepares for a line costs as much as tens of points.
_POINTS = 64
_NODES = 20_000  # terms of one value of M: beyond it a line of a hundred points is at the limit
# Each error is to be e^-31 = 3e-14 of the answer: the rounding of a sum of a hundred points, each
# with an exponent of some tens, is no smaller, so that a closer line would bring no digit.
LOG_GOAL = 31.0
_TURNS = 30  # of Newton's method on a nearly linear function, which needs about five
_STRIDE = 4  # of the heights that are looked at first
_STEP_BITS = 20  # of D, so that n D is a double for every n up to 2^33
_HIGHEST = 600.0  # ln of the largest term of a sum that is tried: e^709 leaves the range of doubles
_OVERFLOWING = 1e300  # an error of a sum beyond which nothing is said: sums of it would overflow


class Reading(NamedTuple):
    """A reading holds about delta at one eps, and certified bounds of it."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class LineIntegral:
    """A line integral is the trapezoidal sum of one term along Re s = c, ready for every eps.

    Attributes:
        j: the term's number of rare losses.
        step: D; the points are n D.
        log: ln(transform / (s (s + 1))) at the points.
        error: how far ``log`` may be off: each exact value is within |e^log| (e^error - 1).
        log_beyond: at least ln of the rest of the line's sum, times e^(c eps).
        aside: (c', at least ln(transform(c') g(c'))) on either side of c.
    """

    j: int
    c: float
    step: float
    log: ComplexArray
    error: FloatArray
    log_beyond: float
    aside: tuple[tuple[float, float], tuple[float, float]]

    def read(self, epsilon: float) -> Reading:
        """Reads the sum at one eps, with its errors."""
        if float(self.log[0].real) - self.c * epsilon > _HIGHEST:  # far from where it is good
            return Reading(math.inf, -math.inf, math.inf)
        total, errors = self._errors(epsilon)
        off = (errors["beyond"], errors["values"], errors["rounding"])  # guard: line-beyond-end
        if not max(abs(total), *off) < _OVERFLOWING:
            return Reading(math.inf, -math.inf, math.inf)
        lower = add_down(total, -errors["aliasing"], *(-error for error in off))  # guard: aliasing
        return Reading(total, lower, add_up(total, *off))

    def errors(self, epsilon: float) -> dict[str, float]:
        """Returns the four errors at one eps, absolute."""
        return self._errors(epsilon)[1]

    def _errors(self, epsilon: float) -> tuple[float, dict[str, float]]:
        value, reference, error = self._sum(epsilon)
        total = value * math.exp(reference)
        # D / pi by two units, e^reference by EXP, and two products
        rounding = (EXP + 4.0) * UNIT * abs(total)  # pays: line-scale
        return total, {
            "aliasing": self._aliased(epsilon),
            "beyond": exp_up(add_up(self.log_beyond, -mul_down(self.c, epsilon))),
            "values": outwards(error * math.exp(reference)),
            "rounding": rounding,
        }

    @functools.cached_property
    def t(self) -> FloatArray:
        """The imaginary parts of the points, ascending from 0."""
        return self.step * np.arange(self.log.size, dtype=np.float64)

    def slope(self, epsilon: float) -> tuple[float, float]:
        """Returns about the sum at ``epsilon``, and about its derivative there, negated."""
        if float(self.log[0].real) - self.c * epsilon > _HIGHEST:
            return math.inf, 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            turned = np.exp(self.log - self.c * epsilon - 1j * (self.t * epsilon))
        turned[0] *= 0.5
        value, lever = np.sum(turned), np.sum(self.t * turned)
        weight = self.step / math.pi
        return weight * float(value.real), weight * float(self.c * value.real - lever.imag)

    def _sum(self, epsilon: float) -> tuple[float, float, float]:
        """Returns about e^-reference times the sum, the reference, and the error of the first."""
        along = self.c * epsilon
        reference = float(self.log[0].real) - along
        across = self.t * epsilon
        exponent = self.log - (along + reference) - 1j * across
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is no answer
            turned = np.exp(exponent)
        turned[0] *= 0.5
        size = np.abs(turned)
        # Of the exponent: the product c eps and its sum with the reference, once for all points;
        # t eps; and the two differences. A rounded result is off by one unit of itself at most.
        shift = abs(along) + abs(along + reference)
        off = self.error + shift * UNIT  # pays: sum-shift
        moved = np.abs(across) + np.abs(exponent.real) + np.abs(exponent.imag)
        off = off + moved * UNIT  # pays: sum-turn
        # |F| (e^off - 1), where off may be large and |F| small
        wide = np.exp(np.minimum(exponent.real + off, 700.0))
        each = np.where(off < 1.0, size * np.expm1(off), wide)
        # e^(a + ib) is made of exp, cos, sin and a product; n real parts are added in any order
        each = each + size * (EXP + TURN + 1.0) * UNIT  # pays: sum-exp
        each = each + size * turned.size * UNIT  # pays: sum-order
        weight = self.step / math.pi
        error = float(outwards(np.sum(each)))
        return weight * float(np.sum(turned.real)), reference, weight * error

    def _aliased(self, epsilon: float) -> float:
        """Bounds the sum over n != 0 of e^(c y) delta(eps + y), y = 2 pi n / D, by Chernoff."""
        total = 0.0
        y = next_down(2.0 * math.pi / self.step)  # math.pi is below pi
        for other, log in self.aside:  # guard: aliasing-right
            fall = mul_down(sub_down(max(self.c, other), min(self.c, other)), y)
            if not fall > 0:
                return math.inf
            first = exp_up(add_up(log, -mul_down(other, epsilon), -fall))
            total = add_up(total, next_up(first / -expm1_up(-fall)))
        return total


def _line(
    track: Track, epsilon: float, log_delta: float, most: int, goal: float = LOG_GOAL
) -> LineIntegral | None:
    """Places a line for eps with errors of e^-goal delta; None if it costs over ``most`` terms."""
    term, c = track.term, track.c_at(epsilon)
    spacing = _spacing(term, c, epsilon, log_delta, goal)
    height = _height(term, c, epsilon, log_delta, goal)
    if spacing is None or height is None:
        return None
    (step, sides), (top, shifts) = spacing, height
    step = min(step, 2.0 ** math.floor(math.log2(top / 8.0)))
    n = math.ceil(top / step) + 1
    tolerance = math.exp(-goal - 3.0)
    t = step * np.arange(min(n, most), dtype=np.float64)
    cost = term.nodes(c, float(t[-1]), tolerance)
    if cost * COST > _NODES * most or n * cost > most:
        return None
    # D times the sum of |F| over n D > T is <= sup |M| / T, and there is 1 / pi before it
    below = log_down(mul_down(math.pi, float(t[-1])))  # math.pi is below pi
    log_beyond = add_up(term.beyond(c, float(t[-1]), shifts), -below)
    if log_beyond == math.inf:
        return None
    parts, start = [], 0
    while start < n:  # lower points need fewer nodes
        stop = min(n, start + max(_CHUNK // cost, _POINTS))
        parts.append(term.values(c, np.asarray(t[start:stop]), tolerance))
        start = stop
    log, error = (np.concatenate(part) for part in zip(*parts, strict=True))
    log, error = divided(log, error, c, t)
    uppers = [(x, term.upper(x) if x > 0 else 0.0) for x in sides]
    aside = [(x, add_up(up, log_g_up(x))) for x, up in uppers]
    return LineIntegral(term.j, c, step, log, error, log_beyond, (aside[0], aside[1]))


def divided(
    log: ComplexArray, error: FloatArray, c: float, t: FloatArray
) -> tuple[ComplexArray, FloatArray]:
    """Returns ln of the transform over s (s + 1) at s = c + i t, and how far it may be off."""
    more = c + 1.0
    modulus = np.log(np.hypot(c, t) * np.hypot(more, t))
    angle = np.arctan2(t, c) + np.arctan2(t, more)
    log = log - (modulus + 1j * angle)
    # under the logarithm: both moduli, the rounding of 1 + c and the product
    made = 2.0 * TURN + 2.0 + LOG * np.abs(modulus)
    # 1 + c turns s + 1 by half a unit; the arguments and their sum; the difference
    made = made + 0.5 + (TURN + 1.0) * angle + np.abs(log.real) + np.abs(log.imag)
    return log, outwards(error + made * UNIT)  # pays: denominator


def _spacing(
    term: Term, c: float, epsilon: float, log_delta: float, goal: float
) -> tuple[float, tuple[float, float]] | None:
    """Returns D, and the points on both sides of c that prove the aliasing to be small."""
    # candidates, of which the one that allows the widest step is taken: any of them is sound
    away = reach(term, c, goal) * np.array([0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0])
    below = np.append(np.maximum(c - away, c / 16.0), [0.0, c / 2.0, c / 8.0])
    above = np.append(c + away, [1.25 * c, 2.0 * c])
    above = above[above <= 4.0 * term.farthest]
    if not above.size:
        return None
    others = np.concatenate([below, above])
    with np.errstate(all="ignore"):
        value = np.where(others > 0, term.rough(np.where(others > 0, others, c)).value, 0.0)
        log = value + log_g(others) - others * epsilon
        y = (log - log_delta + goal) / np.abs(others - c)
    y = np.where(np.isfinite(y), y, np.inf)
    left, right = int(np.argmin(y[: below.size])), below.size + int(np.argmin(y[below.size :]))
    widest = max(float(y[left]), float(y[right]), 1e-9 / c)
    if not widest < math.inf:
        return None
    step = 2.0 * math.pi / widest
    scale = 2.0 ** (_STEP_BITS - math.frexp(step)[1])
    return math.floor(step * scale) / scale, (float(others[left]), float(others[right]))


def _height(
    term: Term, c: float, epsilon: float, log_delta: float, goal: float
) -> tuple[float, FloatArray] | None:
    """Returns T, and the shifts that prove the line beyond T to be small."""

    def fallen(t: FloatArray) -> tuple[BoolArray, FloatArray]:
        log, shifts = term.heights(c, t)
        return log - np.log(math.pi * t) - c * epsilon < log_delta - goal, shifts

    t = reach(term, c, goal) * np.geomspace(0.6, 400.0, 25)
    # few heights first: they find out a modulus that never falls in a quarter of the time of all
    if not fallen(t[_STRIDE::_STRIDE])[0].any():
        return None
    for part in (t[:8], t[8:16], t[16:]):
        below, shifts = fallen(part)
        if below.any():
            i = int(np.argmax(below))
            return float(part[i]), shifts[i]
    return None


def reach(term: Term, c: float, goal: float) -> float:
    """Returns about how far from c the sides of its line are, and how high it is."""
    curvature = float(term.rough(np.array([c])).curvature[0])
    return math.sqrt(2.0 * goal / max(curvature, 1e-300))


@dataclass(frozen=True)
class Lines:
    """The line integrals of all terms that matter near one eps."""

    epsilon: float  # for which they were placed, and about ln delta there
    log_delta: float
    lines: tuple[LineIntegral, ...]
    rest: tuple[tuple[float, float], ...]  # of what is not on them: c, ln(transform(c) g(c))

    def read(self, epsilon: float) -> Reading:
        """Reads delta at eps, all errors included."""
        parts = [line.read(epsilon) for line in self.lines]
        value, lower = math.fsum(p.value for p in parts), add_down(*(p.lower for p in parts))
        uppers = [*(p.upper for p in parts), *self._rest(epsilon)]  # guard: rest-terms
        upper = add_up(*uppers) if max(uppers) < _OVERFLOWING else math.inf
        return Reading(value, lower, upper)

    def slope(self, epsilon: float) -> tuple[float, float]:
        """Returns about delta and -d delta / d eps: no errors, for Newton's method."""
        value = slope = 0.0
        for line in self.lines:
            v, d = line.slope(epsilon)
            value, slope = value + v, slope + d
        return value, slope

    def delta(self, epsilon: float) -> Bounds | None:
        """Bounds of delta(eps), or None where the reading proves nothing."""
        got = self.read(epsilon)
        if not 0 < got.upper < math.inf or not math.isfinite(got.lower):
            return None
        return Bounds(min(max(0.0, got.lower), 1.0), min(got.upper, 1.0))

    def epsilon_of(self, delta: float, guess: float) -> Bounds | None:
        """Bounds of eps(delta), each proved by one reading; None where a reading proves nothing.

        ``guess`` is about the answer.
        """
        solved = self.solve(delta, guess)
        if solved is None:
            return None
        epsilon, slope = solved
        if epsilon <= 0.0 and self.read(0.0).upper <= delta:
            return Bounds(0.0, 0.0)
        got = self.read(max(0.0, epsilon))
        if not math.isfinite(got.lower):
            return None
        over, under = (got.upper - delta) / slope, (delta - got.lower) / slope
        found: list[float] = []
        for sign, room in ((-1.0, under), (1.0, over)):
            # the reading there has a rounding of its own: a little more room than the linear guess
            # mostly does, and each further try costs one reading
            for factor in (1.0001, 1.01, 1.5, 3.0):
                end = max(0.0, epsilon + sign * factor * max(room, 4 * UNIT * abs(epsilon)))
                end = next_up(end) if sign > 0 else max(0.0, next_down(end))
                at = self.read(end)
                # guard: end-of-epsilon-proved
                proved = at.upper <= delta if sign > 0 else at.lower > delta
                if proved or (end == 0.0 and sign < 0):
                    found.append(end)
                    break
        return Bounds(found[0], found[1]) if len(found) == 2 else None

    def solve(self, delta: float, guess: float) -> tuple[float, float] | None:
        """Returns about the eps at which the lines' sum is delta, and -d delta / d eps, or None.

        Newton's method on ln delta, which is nearly linear in eps; ``guess`` is about the answer.
        From a guess that is far too large it would end below 0: half the way is safe then.
        """
        epsilon, log_delta = guess, math.log(delta)
        for _ in range(_TURNS):
            value, slope = self.slope(epsilon)
            if not (0 < value < math.inf and slope > 0):
                return None
            step = (math.log(value) - log_delta) * value / slope
            if abs(step) <= 1e-15 * abs(epsilon):
                break
            if step < -0.5 * epsilon < 0.0 and self.slope(0.0)[0] > delta:
                step = -0.5 * epsilon
            epsilon += step
            if abs(step) * slope < 1e-7 * value:  # the next step would be the square of this one
                break
        return epsilon, slope

    def describe(self, epsilon: float) -> list[dict[str, float | str]]:
        """Returns each line's measures, and the errors of the line at eps relative to delta."""
        total = self.read(epsilon).value
        return [
            {
                "rare losses": str(line.j) if len(self.lines) + len(self.rest) > 1 else "any",
                "c": line.c,
                "step": line.step,
                "points": str(line.log.size),
                **{name: error / total for name, error in line.errors(epsilon).items()},
            }
            for line in self.lines
        ]

    def _rest(self, epsilon: float) -> list[float]:
        return [exp_up(add_up(log, -mul_down(c, epsilon))) for c, log in self.rest]


def lines_at(
    tracks: tuple[Track, ...],
    epsilon: float,
    log_delta: float | None,
    most: int = COST,
    goal: float = LOG_GOAL,
    left_out: float = 0.0,
) -> Lines | None:
    """Places a line for each term that matters at eps; the last term stands for all that follow.

    Args:
        tracks: the saddle points of each term.
        epsilon: where on the curve, nats.
        log_delta: about ln delta there; None where it is not known better than the tracks say.
        most: terms of all values of M that one line may cost.
        goal: -ln of the share of delta that each error of a line is to have, about.
        left_out: the P-mass of outputs that no term has, at most: it is less than they make.
    """
    near = [track.near(epsilon) for track in tracks]
    sizes = [track.log_delta_at(epsilon) for track in near]
    if not sizes:
        return None
    total = float(np.logaddexp.reduce(sizes)) if log_delta is None else log_delta
    # what they make of delta is at most their mass, at any eps
    lines, rest = [], [(0.0, log_up(left_out))] if left_out > 0.0 else []  # guard: mass-left-out
    for i, (track, size) in enumerate(zip(near, sizes, strict=True)):
        last = len(tracks) > 1 and i == len(tracks) - 1
        if last or size < total - LOG_GOAL - 9.0:
            c = track.c_at(epsilon)
            rest.append((c, add_up(track.term.upper(c, more=last), log_g_up(c))))
            continue
        line = _line(track, epsilon, total, most, goal)
        if line is None:
            return None
        lines.append(line)
    return Lines(epsilon, total, tuple(lines), tuple(rest))
