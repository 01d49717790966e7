"""Lines for two smooth functions, one above and one below (1 - e^(eps - L))+: few rare losses.

Where a composition has few large losses, its transform M falls slowly on every vertical line, and
the sum of :mod:`.contour` would need millions of points: delta has a kink at eps. A kink can be
smoothed on either side. With a variance v, for y = L - eps and Phi the normal distribution:

- *above*: the composition together with a Gaussian mechanism of variance v, whose transform is
  e^(v s (s + 1) / 2). Who sees more tells no less, so its delta is an upper bound.
- *below*: E[T (1 - e^-y)] for T = Phi((y - v/2) / sqrt v). T is the test that an adversary makes,
  and no test with values in [0, 1] does better than T = 1 for y > 0. Its transform is that of
  delta times e^(v s (s + 1) / 2) (1 + (s + 1) (e^(-v s) - 1)).

By parts, the integral of e^(-s y) Phi((y - a) / sqrt v) dy is e^(-s a + s^2 v / 2) / s, and so for
a = v/2 the factor 1 / (s (s + 1)) of delta becomes

    e^(s (s - 1) v / 2) / s - e^(s (s + 1) v / 2) / (s + 1)
        = e^(v s (s + 1) / 2) (1 + (s + 1) (e^(-v s) - 1)) / (s (s + 1)).

The errors are those of docs/explanation/contour.md. *The step:* the other terms of Poisson's sum
are positive above; below each is at most that of delta itself, as T (1 - e^-y) <= (1 - e^-y)+.
*The line beyond a height H:* for Re s > 0, |e^(-v s) - 1| <= v |s|, so the last factor is at most
1 + v |s (s + 1)|, and |M(c + it)| <= M(c) suffices: the rest is at most
2 M(c) e^(-c eps) e^(v (c (c + 1) - H^2) / 2) / (pi H). The gap between both is about v times the
density of the loss at eps.

A line that ends in "pays: name" pays for what docs/explanation/rounding.md says under that name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tightbudget.engine.cache import Cache
from tightbudget.engine.question import EpsilonAt, Question
from tightbudget.engine.saddle_point.contour import LineIntegral, Lines, Reading, divided
from tightbudget.engine.saddle_point.reading import on_lines
from tightbudget.engine.saddle_point.saddle_points import Term, Track, log_g
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    EXP,
    LOG,
    TURN,
    UNIT,
    FloatArray,
    add_up,
    log_down,
    mul_down,
    mul_up,
    outwards,
)
from tightbudget.numerics.special import log_g_up
from tightbudget.pairs.transform import ComplexArray

# Any of these constants is sound: they choose lines, and each line proves its own errors.
_MOST_POINTS = 150_000  # of a line: two seconds, after which the buckets are asked
_MOST_VALUES = 600_000  # of all mechanisms on a line: eight seconds
_LEAST_GAP = 1e-6  # the points are as 1 / sqrt(gap): for closer bounds they are too many
_SPARE = 7.0  # nats by which an error of a line is below the gap
# Nats that the integrand may be above delta. The values of M^k have 12 digits or so; 17 nats leave
# five of them, 25 nats leave one.
_MOST_CANCELLED = 17.0
_HOPELESS = 25.0
_PASSES = 10  # of looking for the place of a line; three or four as a rule
_ROUGH = 0.1  # the standard deviation of the first smoothing, relative to epsilon
_NEAR = 0.1  # the relative distance of two places up to which the last one will do


@dataclass(frozen=True)
class SmoothedLines(Lines):
    """Two line integrals on one line, above and below the kink.

    Attributes:
        lines: the line integral of the function above, then that of the function below.
        variance: v, in nats^2.
    """

    variance: float = 0.0

    def read(self, epsilon: float) -> Reading:
        """Reads delta at eps: the upper bound off one function, the lower one off the other."""
        above, below = (line.read(epsilon) for line in self.lines)
        # guard: below-for-lower
        return Reading(0.5 * (above.value + below.value), below.lower, above.upper)

    def slope(self, epsilon: float) -> tuple[float, float]:
        """Returns about delta and -d delta / d eps."""
        both = [line.slope(epsilon) for line in self.lines]
        return 0.5 * (both[0][0] + both[1][0]), 0.5 * (both[0][1] + both[1][1])

    def density(self, epsilon: float) -> float:
        """Returns about the density of the loss at ``epsilon`` under P."""
        above, below = (line.slope(epsilon)[0] for line in self.lines)
        return max(above - below, 0.0) / self.variance

    def describe(self, epsilon: float) -> list[dict[str, float | str]]:
        """Returns each line's measures, and the errors of the line at eps relative to delta."""
        rows = super().describe(epsilon)
        for row, name in zip(rows, ("above", "below"), strict=True):
            row["rare losses"] = f"any, smoothed {name} by {math.sqrt(self.variance):.3g}"
        return rows


def bounds(
    term: Term,
    track: Track,
    question: Question,
    rtol: float,
    cache: Cache,
    direction: int,
    target: float | None = None,
) -> Bounds | None:
    """Returns bounds of an answer by smoothed lines, or None where they prove none.

    Args:
        term: the moment generating function of the composition.
        track: its saddle points.
        question: what is asked.
        rtol: the relative gap that the smoothing is chosen for.
        cache: remembers lines that reach the gap.
        direction: the number of this direction in the cache.
        target: a value on one side of which bounds are close enough.
    """
    if rtol < _LEAST_GAP or not track.epsilon.size:
        return None
    delta = question.delta if isinstance(question, EpsilonAt) else 0.0
    epsilon = on_lines(question).place((track,))
    if not delta > 0.0 and epsilon <= 0.0:
        return None
    epsilon = max(epsilon, 1e-9)
    search = _Smoothing(
        term, track, question, rtol, target, epsilon, math.log(delta) if delta > 0.0 else None
    )
    if (few := term.sketch) is not term:  # most passes only say where the lines go
        search.term = few
        search.run(rough=True)
        if not search.near:  # lines of all would not see the answer, either
            return None
        search.term = term
    best = search.run()
    if best is not None and best.relative_gap <= rtol and search.lines is not None:
        cache.remember_lines(direction, search.lines)
    return best


@dataclass
class _Smoothing:
    """A search for two lines that are close enough, in passes from wide smoothing to narrow.

    Attributes:
        term: the moment generating function of the composition.
        track: its saddle points.
        question: what is asked.
        rtol: the wanted relative gap.
        target: a value on one side of which bounds are close enough.
        epsilon: about the answer, or where delta is asked for.
        log_delta: about ln delta there; None where it is not known.
        spread: the standard deviation of the smoothing.
        goal: -ln of the share of delta that each error of a line is to have, about.
        near: whether the last lines saw the place of the answer.
        best: the closest bounds so far, and ``lines`` that proved them.
    """

    term: Term
    track: Track
    question: Question
    rtol: float
    target: float | None
    epsilon: float
    log_delta: float | None
    spread: float = 0.0
    goal: float = 12.0
    near: bool = False
    best: Bounds | None = None
    lines: SmoothedLines | None = None

    def run(self, *, rough: bool = False) -> Bounds | None:
        """Searches on from where it is; returns the closest bounds that were proved, or None.

        With ``rough`` it ends where it knows the place of the answer, and the smoothing.
        """
        asked, question, rtol = on_lines(self.question), self.question, self.rtol
        delta = question.delta if isinstance(question, EpsilonAt) else 0.0
        seeks = delta > 0.0
        self.spread = self.spread or _ROUGH * self.epsilon
        for _ in range(_PASSES):
            epsilon = self.epsilon
            if self.log_delta is None:
                self.log_delta = self.track.near(epsilon).log_delta_at(epsilon)
            lines = _lines(
                self.term, self.track, epsilon, self.log_delta, self.spread**2, self.goal
            )
            if lines is None:
                return self.best
            moved = _solve(lines, delta, epsilon) if seeks else epsilon
            value, slope = lines.lines[0].slope(moved)
            if not (0.0 < value < math.inf and 0.0 < slope < math.inf):  # noise
                value, slope = 1.0, 1.0 / epsilon
            elif not seeks:
                self.log_delta = math.log(value)
            near = self.near or abs(moved - epsilon) <= _NEAR * moved
            self.epsilon = epsilon = moved
            # a smoothing that the loss's density hardly sees
            wide = min(_ROUGH * epsilon, 0.3 * value / slope)
            self.near = near and wide >= 0.7 * self.spread
            if not self.near:
                self.spread = min(wide, self.spread)
                continue
            found = None if rough else asked.read_lines(lines, self.track)
            if found is not None:
                if self.best is not None and found.width > 0.7 * self.best.width:
                    return self.best  # it is not the smoothing that keeps them apart
                self.best, self.lines = found, lines
                if found.relative_gap <= rtol or found.decides(self.target):
                    return self.best
            # the gap of delta is v times the density of the loss; that of eps is a slope less
            room = 0.8 * rtol * (epsilon * slope if seeks else value)
            wanted = math.sqrt(room / max(lines.density(epsilon), 1e-300))
            before, self.goal = self.goal, max(self.goal, math.log(value / room) + _SPARE)
            if rough:
                self.spread = min(wanted, self.spread)
                return None
            if not wanted < self.spread:
                if found is None and self.goal < before + 0.1:
                    return self.best  # neither the smoothing nor the digits stand in the way
                wanted = 0.7 * self.spread
            self.spread = wanted
        return self.best


def _solve(lines: SmoothedLines, delta: float, guess: float) -> float:
    """Returns about the eps at which the line above is ``delta``, or as far as it can see.

    Far below the place of a line its values are noise, so the search goes down in small steps.
    """
    line = lines.lines[0]
    high = guess
    for _ in range(40):
        if not line.slope(high)[0] > delta:
            break
        high *= 1.5
    low = high
    for _ in range(4 if high == guess else 1):
        low /= 1.5
        if line.slope(low)[0] > delta:
            break
        high = low
    else:
        return low
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if line.slope(middle)[0] > delta else (low, middle)
    return high


def _lines(
    term: Term, track: Track, epsilon: float, log_delta: float, variance: float, goal: float
) -> SmoothedLines | None:
    """Places two lines for one smoothing, errors about e^-goal of delta; None if too long."""
    place = _place(term, track, epsilon, log_delta, goal)
    if place is None:
        return None
    c, step, sides, above = place
    top = math.sqrt(2.0 * (goal + max(above, 0.0)) / variance + c * (c + 1.0))
    # where the transform itself falls, the line may be shorter
    heights = np.append(np.geomspace(1e-3, 0.9, 16), 1.0) * top
    moduli, shifts = term.heights(c, heights)
    with np.errstate(all="ignore"):
        fallen = moduli - float(term.rough(np.array([c])).value[0])
        fallen = np.where(fallen < 0.0, fallen, 0.0) - 0.5 * variance * heights**2
    enough = fallen <= -(goal + max(above, 0.0))
    i = int(np.argmax(enough)) if enough.any() else heights.size - 1
    n = math.ceil(float(heights[i]) / step) + 2
    cost = sum(group.transform.far_cost for group in term.groups)
    if n > min(_MOST_POINTS, _MOST_VALUES / cost):
        return None
    t = step * np.arange(n, dtype=np.float64)
    values = _values(term, c, t)
    if values is None:
        return None
    log, error = divided(*values, c, t)
    s = c + 1j * t
    # v s (s + 1) / 2: each part by five units of its terms, and the sum
    lift, turn = 0.5 * variance * (c * (c + 1.0) - t * t), 0.5 * variance * t * (2.0 * c + 1.0)
    size = 0.5 * variance * (c * (c + 1.0) + t * t) + turn
    log_above = log + (lift + 1j * turn)
    # guard: smoothed-lift
    error = error + (6.0 * size + np.abs(log_above)) * UNIT  # pays: smoothed-lift
    # 1 + (s + 1)(e^(-v s) - 1), where e^(-a - i b) - 1 is
    # expm1(-a) cos b - 2 sin^2(b / 2) - i e^-a sin b
    a, b = variance * c, variance * t
    less = math.expm1(-a) * np.cos(b) - 2.0 * np.sin(0.5 * b) ** 2 - 1j * math.exp(-a) * np.sin(b)
    factor = 1.0 + (s + 1.0) * less
    # less by its functions, products and sums; the product, the sum
    made = (2.0 * EXP + 3.0 * TURN + 16.0) * np.abs(s + 1.0) * (abs(math.expm1(-a)) + b + b * b)
    wrong = (made + np.abs(factor) + 1.0) * UNIT  # pays: smoothed-factor
    known = np.maximum(np.abs(factor), 1e-300)
    modulus, angle = np.log(known), np.angle(factor)
    log_below = log_above + (modulus + 1j * angle)
    rounded = LOG * np.abs(modulus) + TURN * np.abs(angle) + np.abs(log_below) + TURN + 2.0
    off_below = error + np.log1p(wrong / known)
    # guard: smoothed-factor
    error_below = off_below + rounded * UNIT  # pays: smoothed-log
    # sum over n D > T of D |F|, where |factor| <= 1 + v |s (s + 1)|: at most
    # 2 B e^(v (c (c + 1) - T^2) / 2) / T, before 1 / pi, for a bound B of |M| beyond T
    last = float(t[-1])
    fall = mul_down(0.5 * variance, mul_down(last, last) * (1.0 - 4.0 * UNIT))
    rise = mul_up(mul_up(0.5 * variance, c), add_up(c, 1.0))
    log_most = min(term.upper(c), term.beyond(c, last, shifts[i]))
    log_beyond = add_up(
        log_most, rise, -fall, math.log(2.0) * (1.0 + UNIT), -log_down(mul_down(math.pi, last))
    )
    aside = [(x, add_up(term.upper(x) if x > 0 else 0.0, log_g_up(x))) for x in sides]
    above_line = LineIntegral(
        0, c, step, log_above, outwards(error), log_beyond, (aside[0], aside[1])
    )
    below_line = replace(above_line, log=log_below, error=outwards(error_below))
    return SmoothedLines(epsilon, log_delta, (above_line, below_line), (), variance)


def _place(
    term: Term, track: Track, epsilon: float, log_delta: float, goal: float
) -> tuple[float, float, tuple[float, float], float] | None:
    """Returns c, the widest step, points aside, and the nats that the integrand is above delta.

    Any c is sound. Below the saddle point the large losses weigh less and the step may be wider,
    for some digits that cancel.
    """
    first = track.near(log_delta=log_delta)
    most = min(max(first.c_at(first.epsilon_at(log_delta)), track.near(epsilon).c_at(epsilon)), 1e7)
    c = np.linspace(0.05, 1.0, 39) * most
    aside = np.concatenate([c, most * np.geomspace(1.03, 5.0, 24)])
    aside = aside[aside <= 4.0 * term.farthest]
    log = np.append(0.0, term.rough(aside).value + log_g(aside) - aside * epsilon)
    aside = np.append(0.0, aside)
    above = term.rough(c).value - c * epsilon - np.log(1.0 + c) - log_delta  # c F(c)
    best: tuple[float, float, int, int, int] | None = None
    least = float(np.nanmin(above))
    if not least <= _HOPELESS:
        return None
    for i, x in enumerate(c):
        if not above[i] <= max(_MOST_CANCELLED, least + 1.0):
            continue
        with np.errstate(all="ignore"):
            y = (log - log_delta + goal) / np.abs(aside - x)
        y = np.where(np.isfinite(y), np.maximum(y, 0.0), np.inf)
        split = int(np.searchsorted(aside, x))
        right = split + int(np.argmin(np.where(aside[split:] > x, y[split:], np.inf)))
        left = int(np.argmin(y[:split]))
        reach = max(float(y[left]), float(y[right]), 1e-9 / x)
        if math.isfinite(reach) and (best is None or reach < best[0]):
            best = (reach, float(above[i]), i, left, right)
    if best is None:
        return None
    reach, over, i, left, right = best
    step = 2.0 * math.pi / reach
    scale = 2.0 ** (20 - math.frexp(step)[1])
    step = math.floor(step * scale) / scale  # few bits: every n D is a double
    return float(c[i]), step, (float(aside[left]), float(aside[right])), over


def _values(term: Term, c: float, t: FloatArray) -> tuple[ComplexArray, FloatArray] | None:
    """Returns ln of the transform at c + i t, and how far it may be off; None if it is not known.

    Guarantee: the exact transform is within |e^log| (e^error - 1) of e^log.
    """
    log, error = np.zeros_like(t, dtype=np.complex128), np.zeros_like(t)
    for group in term.groups:
        line = group.transform.far_line(c, t)
        if line is None:
            return None
        power = group.count * line.log
        log = log + power
        error = error + group.count * line.error
        error = error + (np.abs(power) + np.abs(log)) * UNIT
    return log, outwards(error)
