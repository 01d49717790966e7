"""delta(eps) as an integral along a vertical line: many digits, whatever the number of runs.

With M(s) = E_P[e^(s L)] of the whole composition (ln M adds up over the steps), any c > 0:

    delta(eps) = (1 / 2 pi i) int_(c - i inf)^(c + i inf) M(s) e^(-s eps) / (s (s + 1)) ds.

1. *place*: c at the saddle point, where the integrand is concentrated;
2. *measure*: the step D of the trapezoidal sum from how far e^(c y) delta(eps + y) reaches, the
   height T from where |M| is proved to be negligible for good;
3. *sum*: the values of M at c + i n D serve every eps near by;
4. *certify*: four errors, each bounded, each outwards: aliasing (every term of it is positive, so
   the sum is an upper end up to the others), the line beyond T, the values of M, and rounding.

A line that ends in "pays: name" pays for what docs/explanation/rounding.md says under that name.

Where one rare large loss decides, no line suits both the bulk and the rare part: then each
number of rare losses gets a line of its own (M = bulk + rare, binomially expanded).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tightbudget.engine.saddle_point.saddle_points import Group, Term, Track, log_g
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    EXP,
    LOG,
    TURN,
    UNIT,
    FloatArray,
    add_down,
    add_up,
    exp_up,
    expm1_up,
    log_down,
    mul_down,
    mul_up,
    next_down,
    next_up,
    outwards,
    sub_down,
)
from tightbudget.numerics.special import log_g_up
from tightbudget.pairs.transform import ComplexArray, Transform

__all__ = ["Contour", "Line", "Lines", "Reading"]

_COST = 2_000_000  # terms of all values of M on one line
_CHEAP = 250_000  # of them, where rare large losses may ask for more lines than one
_CHUNK = 2**16  # of them at a time
_NODES = 20_000  # terms of one value of M
_LOG_GOAL = 31.0  # each error is to be e^-31 of the answer
_MOST_RARE = 8  # how many rare losses are told apart
_FEW_RARE = 3.0  # at the common saddle point: then one line for all has lost many digits
_REMEMBERED = 3  # lines that a curve's next point looks at
_TURNS = 30  # of Newton's method
_STEP_BITS = 20  # of D, so that every n D is a double
_LEAST_DELTA = 1e-250  # below it the two masses answer (with [0, upper] in the end)
_LOWEST = -700.0  # ln of the least delta that is looked for
_HIGHEST = 600.0  # ln of what a line's sum may be for that
_OVERFLOWING = 1e300  # an error of a sum beyond which nothing is said


class Reading(NamedTuple):
    """delta at one eps: about the value, and its certified ends."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Line:
    """The trapezoidal sum of one term along Re s = c, ready for every eps.

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
        """The sum at one eps, with its errors."""
        if float(self.log[0].real) - self.c * epsilon > _HIGHEST:  # far from where it is good
            return Reading(math.inf, -math.inf, math.inf)
        total, errors = self._errors(epsilon)
        off = (errors["beyond"], errors["values"], errors["rounding"])
        if not max(abs(total), *off) < _OVERFLOWING:
            return Reading(math.inf, -math.inf, math.inf)
        lower = add_down(total, -errors["aliasing"], *(-error for error in off))
        return Reading(total, lower, add_up(total, *off))

    def errors(self, epsilon: float) -> dict[str, float]:
        """The four errors at one eps, absolute."""
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
        """The heights of the points."""
        return self.step * np.arange(self.log.size, dtype=np.float64)

    def slope(self, epsilon: float) -> tuple[float, float]:
        """About the sum and its -d/d eps."""
        if float(self.log[0].real) - self.c * epsilon > _HIGHEST:
            return math.inf, 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            turned = np.exp(self.log - self.c * epsilon - 1j * (self.t * epsilon))
        turned[0] *= 0.5
        value, lever = np.sum(turned), np.sum(self.t * turned)
        weight = self.step / math.pi
        return weight * float(value.real), weight * float(self.c * value.real - lever.imag)

    def _sum(self, epsilon: float) -> tuple[float, float, float]:
        """About e^-reference times the sum, the reference, and the error of the first."""
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
        """Sum over n != 0 of e^(c y) delta(eps + y), y = 2 pi n / D, by Chernoff on both sides."""
        total = 0.0
        y = next_down(2.0 * math.pi / self.step)  # math.pi is below pi
        for other, log in self.aside:
            fall = mul_down(sub_down(max(self.c, other), min(self.c, other)), y)
            if not fall > 0:
                return math.inf
            first = exp_up(add_up(log, -mul_down(other, epsilon), -fall))
            total = add_up(total, next_up(first / -expm1_up(-fall)))
        return total


def _line(track: Track, epsilon: float, log_delta: float, most: int) -> Line | None:
    """The line for eps, errors about e^-31 of delta, if it costs ``most`` terms at most."""
    term, c = track.term, track.c_at(epsilon)
    spacing = _spacing(term, c, epsilon, log_delta)
    height = _height(term, c, epsilon, log_delta)
    if spacing is None or height is None:
        return None
    (step, sides), (top, shifts) = spacing, height
    step = min(step, 2.0 ** math.floor(math.log2(top / 8.0)))
    n = math.ceil(top / step) + 1
    tolerance = math.exp(-_LOG_GOAL - 3.0)
    t = step * np.arange(min(n, most), dtype=np.float64)
    cost = term.nodes(c, float(t[-1]), tolerance)
    if cost > _NODES or n * cost > most:
        return None
    parts, start = [], 0
    while start < n:  # lower points need fewer nodes
        stop = min(n, start + max(_CHUNK // cost, 1))
        parts.append(term.values(c, np.asarray(t[start:stop]), tolerance))
        start = stop
    log, error = (np.concatenate(part) for part in zip(*parts, strict=True))
    log, error = _divided(log, error, c, t)
    # D times the sum of |F| over n D > T is <= sup |M| / T, and there is 1 / pi before it
    below = log_down(mul_down(math.pi, float(t[-1])))  # math.pi is below pi
    log_beyond = add_up(term.beyond(c, float(t[-1]), shifts), -below)
    uppers = [(x, term.upper(x) if x > 0 else 0.0) for x in sides]
    aside = [(x, add_up(up, log_g_up(x))) for x, up in uppers]
    return Line(term.j, c, step, log, error, log_beyond, (aside[0], aside[1]))


def _divided(
    log: ComplexArray, error: FloatArray, c: float, t: FloatArray
) -> tuple[ComplexArray, FloatArray]:
    """ln of the transform over s (s + 1) at s = c + i t, and how far it may be off."""
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
    term: Term, c: float, epsilon: float, log_delta: float
) -> tuple[float, tuple[float, float]] | None:
    """D, and the points on both sides of c that prove the aliasing to be small."""
    reach = math.sqrt(2.0 * _LOG_GOAL / _curvature(term, c))
    factors = np.array([0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0])
    below = np.append(np.maximum(c - reach * factors, c / 16.0), [0.0, c / 2.0, c / 8.0])
    above = np.append(c + reach * factors, [1.25 * c, 2.0 * c])
    above = above[above <= 4.0 * term.farthest]
    if not above.size:
        return None
    others = np.concatenate([below, above])
    with np.errstate(all="ignore"):
        value = np.where(others > 0, term.rough(np.where(others > 0, others, c)).value, 0.0)
        log = value + log_g(others) - others * epsilon
        y = (log - log_delta + _LOG_GOAL) / np.abs(others - c)
    y = np.where(np.isfinite(y), y, np.inf)
    left, right = int(np.argmin(y[: below.size])), below.size + int(np.argmin(y[below.size :]))
    widest = max(float(y[left]), float(y[right]), 1e-9 / c)
    if not widest < math.inf:
        return None
    step = 2.0 * math.pi / widest
    scale = 2.0 ** (_STEP_BITS - math.frexp(step)[1])
    return math.floor(step * scale) / scale, (float(others[left]), float(others[right]))


def _height(
    term: Term, c: float, epsilon: float, log_delta: float
) -> tuple[float, FloatArray] | None:
    """T, and the shifts that prove the line beyond it to be small."""
    t = math.sqrt(2.0 * _LOG_GOAL / _curvature(term, c)) * np.geomspace(0.6, 400.0, 25)
    for part in (slice(0, 8), slice(8, 16), slice(16, 25)):
        log, shifts = term.heights(c, t[part])
        below = log - np.log(math.pi * t[part]) - c * epsilon < log_delta - _LOG_GOAL
        if below.any():
            i = int(np.argmax(below))
            return float(t[part][i]), shifts[i]
    return None


def _curvature(term: Term, c: float) -> float:
    curvature = float(term.rough(np.array([c])).curvature[0])
    return max(curvature, 1e-300)


@dataclass(frozen=True)
class Lines:
    """The lines of all terms that matter near one eps."""

    epsilon: float  # for which they were placed, and about ln delta there
    log_delta: float
    lines: tuple[Line, ...]
    rest: tuple[tuple[float, float], ...]  # of what is not on them: c, ln(transform(c) g(c))

    def read(self, epsilon: float) -> Reading:
        """delta at eps, all errors included."""
        parts = [line.read(epsilon) for line in self.lines]
        value, lower = math.fsum(p.value for p in parts), add_down(*(p.lower for p in parts))
        uppers = [*(p.upper for p in parts), *self._rest(epsilon)]
        upper = add_up(*uppers) if max(uppers) < _OVERFLOWING else math.inf
        return Reading(value, lower, upper)

    def slope(self, epsilon: float) -> tuple[float, float]:
        """About delta and -d delta / d eps: no errors, for Newton's method."""
        value = slope = 0.0
        for line in self.lines:
            v, d = line.slope(epsilon)
            value, slope = value + v, slope + d
        return value, slope

    def describe(self, epsilon: float) -> list[dict[str, float | str]]:
        """Each line's measures, and its errors at eps relative to delta."""
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


def _lines(
    tracks: tuple[Track, ...], epsilon: float, log_delta: float | None, most: int = _COST
) -> Lines | None:
    """A line for each term that matters at eps; the last of several stands for all that follow."""
    near = [track.near(epsilon) for track in tracks]
    sizes = [track.log_delta_at(epsilon) for track in near]
    if not sizes:
        return None
    total = float(np.logaddexp.reduce(sizes)) if log_delta is None else log_delta
    lines, rest = [], []
    for i, (track, size) in enumerate(zip(near, sizes, strict=True)):
        last = len(tracks) > 1 and i == len(tracks) - 1
        if last or size < total - _LOG_GOAL - 9.0:
            c = track.c_at(epsilon)
            rest.append((c, add_up(track.term.upper(c, more=last), log_g_up(c))))
            continue
        line = _line(track, epsilon, total, most)
        if line is None:
            return None
        lines.append(line)
    return Lines(epsilon, total, tuple(lines), tuple(rest))


def _epsilon_at(tracks: tuple[Track, ...], log_delta: float) -> float:
    """About the eps at which all terms together make delta."""
    low, high = 0.0, max(track.epsilon[-1] for track in tracks)
    for _ in range(50):
        middle = 0.5 * (low + high)
        sizes = [track.log_delta_at(middle) for track in tracks]
        low, high = (middle, high) if np.logaddexp.reduce(sizes) > log_delta else (low, middle)
    return low


def _solve(lines: Lines, delta: float, guess: float) -> tuple[float, float] | None:
    """About the eps at which the lines' sum is delta, and -d delta / d eps: Newton on ln delta."""
    epsilon, log_delta = guess, math.log(delta)
    for _ in range(_TURNS):
        value, slope = lines.slope(epsilon)
        if not (0 < value < math.inf and slope > 0):
            return None
        step = (math.log(value) - log_delta) * value / slope
        if abs(step) <= 1e-15 * abs(epsilon):
            break
        epsilon += step
        if abs(step) * slope < 1e-7 * value:  # the next step would be the square of this one
            break
    return epsilon, slope


def _invert(lines: Lines, delta: float, guess: float) -> Bounds | None:
    """Both ends of eps(delta), each proved by one reading."""
    solved = _solve(lines, delta, guess)
    if solved is None:
        return None
    epsilon, slope = solved
    if epsilon <= 0.0 and lines.read(0.0).upper <= delta:
        return Bounds(0.0, 0.0)
    got = lines.read(max(0.0, epsilon))
    if not math.isfinite(got.lower):
        return None
    over, under = (got.upper - delta) / slope, (delta - got.lower) / slope
    found: list[float] = []
    for sign, room in ((-1.0, under), (1.0, over)):
        for factor in (1.0001, 1.01, 1.5, 3.0):  # the reading there has a rounding of its own
            end = max(0.0, epsilon + sign * factor * max(room, 4 * UNIT * abs(epsilon)))
            end = next_up(end) if sign > 0 else max(0.0, next_down(end))
            at = lines.read(end)
            if (end == 0.0 and sign < 0) or (at.upper <= delta if sign > 0 else at.lower > delta):
                found.append(end)
                break
    return Bounds(found[0], found[1]) if len(found) == 2 else None


class _Rare(NamedTuple):
    """A composition split in two: bulks, what was split off them, and how much of it there is."""

    groups: tuple[Group, ...]
    rare: tuple[tuple[int, Transform], ...]
    number: float  # of rare losses expected at the common saddle point


@dataclass(frozen=True)
class Contour:
    """delta(eps) of a composition of the Gaussian family in one direction; eps in nats.

    Guarantee: whatever bounds it answers with hold the exact value, all four errors included.
    Source: Abate, Whitt 1992, for the sum and its aliasing; docs/explanation/contour.md.
    """

    term: Term
    track: Track

    @staticmethod
    def of(groups: Iterable[tuple[Transform | None, int]]) -> Contour | None:
        """From each mechanism's transform and number of runs; None if one has no transform."""
        found = []
        for transform, count in groups:
            if transform is None:
                return None
            found.append(Group(transform, count))
        term = Term(tuple(found))
        track = Track.whole(term) if found else None
        return None if track is None else Contour(term, track)

    # what leaves the range of doubles ends as inf or nan, and proves nothing
    @np.errstate(all="ignore")
    def delta(self, epsilon: float, rtol: float, memory: list[Lines]) -> Bounds | None:
        """Bounds of delta(eps), with the relative gap or as they are; None: no way to any."""
        if self.track.log_delta_at(epsilon) < _LOWEST:
            return None
        if epsilon < self.track.epsilon[0]:  # far below all losses, delta is nearly 1:
            # 1 - delta = E min(1, e^(eps - L)) <= M(-u) e^(u eps) for 0 < u < 1
            u = np.linspace(0.05, 0.95, 19)
            best = float(u[np.argmin(self.term.rough(-u).value + u * epsilon)])
            rest = exp_up(add_up(self.term.upper(-best), mul_up(best, epsilon)))
            if rest <= 0.5 * rtol:
                return Bounds(next_down(1.0 - rest), 1.0)

        def read(lines: Lines) -> Bounds | None:
            got = lines.read(epsilon)
            if not 0 < got.upper < math.inf or not math.isfinite(got.lower):
                return None
            return Bounds(min(max(0.0, got.lower), 1.0), min(got.upper, 1.0))

        return self._answer(lambda tracks: epsilon, read, lambda lines: epsilon, rtol, memory)

    @np.errstate(all="ignore")
    def epsilon(self, delta: float, rtol: float, memory: list[Lines]) -> Bounds | None:
        """Bounds of inf{eps >= 0: delta(eps) <= delta}, likewise."""
        if not _LEAST_DELTA < delta < 1.0:
            return None
        log_delta = math.log(delta)

        def place(tracks: tuple[Track, ...]) -> float:
            if len(tracks) == 1:
                return max(0.0, tracks[0].near(log_delta=log_delta).epsilon_at(log_delta))
            return _epsilon_at(tracks, log_delta)

        def read(lines: Lines) -> Bounds | None:
            return _invert(lines, delta, guess(lines))

        def guess(lines: Lines) -> float:
            # from where these lines were placed, as far as the saddle points lie apart
            track = self.track
            return lines.epsilon + track.epsilon_at(log_delta) - track.epsilon_at(lines.log_delta)

        def where(lines: Lines) -> float | None:
            solved = _solve(lines, delta, guess(lines))
            return None if solved is None else solved[0]

        return self._answer(place, read, where, rtol, memory)

    @np.errstate(all="ignore")
    def below(self, epsilon: float, delta: float) -> bool:
        """Whether one Chernoff bound proves that delta(epsilon) <= delta; False says nothing."""
        near = self.track.near(epsilon)
        c = near.c_at(epsilon)
        fixed = add_up(log_g_up(c), -mul_down(c, epsilon))
        log_delta = log_down(delta) if delta > 0 else -math.inf
        if float(near.term.rough(np.array([c])).value[0]) + fixed > log_delta:
            return False
        return add_up(self.term.upper(c), fixed) < log_delta

    def _answer(
        self,
        place: Callable[[tuple[Track, ...]], float],
        read: Callable[[Lines], Bounds | None],
        where: Callable[[Lines], float | None],
        rtol: float,
        memory: list[Lines],
    ) -> Bounds | None:
        for lines in reversed(memory[-_REMEMBERED:]):
            bounds = read(lines)
            if bounds is not None and bounds.relative_gap <= rtol:
                return bounds
        best: Bounds | None = None
        whole = (self.track,)
        rare = self._rare(place(whole))
        # one line for all, if it is cheap; the split where it promises more; the dear one
        plans = [(False, _COST), (True, _COST)]
        if rare and rare.number < _FEW_RARE:
            plans = [(False, _CHEAP), (True, _COST), (False, _COST)]
        for split, most in plans:
            tracks = self._split(rare, place(whole)) if split else whole
            if not tracks:
                continue
            epsilon, log_delta = place(tracks), None
            for _ in range(2):
                found = _lines(tracks, epsilon, log_delta, most)
                if found is None:
                    break
                bounds = read(found)
                if bounds is not None and bounds.relative_gap <= rtol:
                    memory.append(found)
                    return bounds
                if bounds is not None and (best is None or bounds.width < best.width):
                    best = bounds
                moved = where(found)
                if moved is None:
                    break
                seen = found.read(moved)
                if not seen.upper < 2.0 * seen.value:
                    break  # the line's place was hopeless, not only its measures
                epsilon, log_delta = max(0.0, moved), math.log(seen.value)
        return best

    def _rare(self, epsilon: float) -> _Rare | None:
        """What may be split off at eps: the rare large losses that stand apart."""
        c = self.track.near(epsilon).c_at(epsilon)
        groups, rare, number = list(self.term.groups), [], 0.0
        for g, group in enumerate(self.term.groups):
            split = group.transform.rare_split(c)
            if split is None:
                continue
            bulk, apart = split
            groups[g] = Group(bulk, group.count)
            rare.append((g, apart))
            number += group.count * math.exp(float(apart.rough(np.array([c])).value[0]))
        return _Rare(tuple(groups), tuple(rare), number) if rare else None

    def _split(self, parts: _Rare | None, epsilon: float) -> tuple[Track, ...]:
        """Tracks for 0, 1, ... rare losses, the last one for all that are left to it; or none."""
        if parts is None:
            return ()
        tracks: list[Track] = []
        for j in range(_MOST_RARE):
            track = Track.whole(Term(parts.groups, parts.rare if j else (), j))
            if track is None:
                return ()
            tracks.append(track)
            sizes = [one.log_delta_at(epsilon) for one in tracks]
            if j > 1 and sizes[-1] < max(sizes) - _LOG_GOAL - 9.0:
                return tuple(tracks)
        return ()
