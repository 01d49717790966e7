"""Prices for stopping early: chosen so that one delta covers every way of stopping.

Choosing prices is calibration, so it lives here and not beside the bound that it stands on
(:mod:`tightbudget.output_dp.stopping`): from here it may also be drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import interpolate, optimize

from tightbudget.engine.readings.renyi import renyi_divergence
from tightbudget.errors import CalibrationError
from tightbudget.mechanisms.composition import Composable, Composition
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.search import last_true
from tightbudget.numerics.validate import open_probability, positive, refuse
from tightbudget.output_dp.backward_induction import Rule, Walk
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.output_dp.stopping import blocks_between, courses_of, stops_of
from tightbudget.output_dp.stopping_lattice import TILTS, Lattice
from tightbudget.output_dp.worst_case_filters import RenyiFilter

__all__ = ["StoppingSchedule", "early_stopping"]

_EARLY = 0.2  # weight of all stops but the last, which has 1
_GAP = 1e-3  # how far the two ends of delta may be apart, about
_ROUGH = 16.0  # how much coarser, in variance, the lattice is on which prices are looked for
_DISHES = 6  # deltas at which each stop's own price is worked out
_PASSES = 30


@dataclass(frozen=True)
class StoppingSchedule:
    """A price for stopping at each stop, and one delta for the whole run.

    Guarantee: a run of the steps it was made for that stops at stops[i] costs epsilons[i],
    whatever its outputs made it stop there: it is output-DP with these prices by cell and
    ``delta.upper``. ``delta`` holds the smallest delta for which that is so.

    Attributes:
        stops: the numbers of steps after which it may stop; the last ends the run.
        epsilons: the price of each, nats.
        delta: certified.
        target: the delta that was asked for, at least ``delta.upper``.
        blocks: what runs between the stops: mechanisms with their numbers of runs.
    """

    stops: tuple[int, ...]
    epsilons: tuple[float, ...]
    delta: Bounds
    target: float
    blocks: tuple[Composition, ...] = field(repr=False)

    def guarantee(self) -> OutputDP:
        """The schedule as output differential privacy: one cell for each stop."""
        prices = {k: Fraction(e) for k, e in zip(self.stops, self.epsilons, strict=True)}
        return OutputDP(prices, self.delta)

    @cached_property
    def separate(self) -> tuple[float, ...]:
        """The prices where each stop gets an equal share of the delta asked for.

        Guarantee: upper ends of eps(delta / n) of what runs until each stop.
        Source: Hartmann, Bindschaedler, Bentkamp, West 2022, Lemma 11.
        """
        share = self.target / len(self.stops)
        prices = np.zeros(len(self.stops))
        for course in courses_of(self.blocks):
            walk = Walk(course, Lattice.of(course, course.rough_prices(share), _GAP, 1.0))
            for i, delta in enumerate(walk.one_stop_each()):
                guess = _epsilon_at(delta, share)
                found = last_true(partial(_is_above, delta, share), guess, math.inf, 1e-7)
                prices[i] = max(prices[i], found.first_false)
        return tuple(prices.tolist())

    def renyi_filter(self, order: float | None = None) -> tuple[float, ...]:
        """The prices of a Renyi filter at one order, the delta asked for.

        Guarantee: the run is output-DP with these prices, too, since
        E[e^((order - 1) (L - divergence so far))] <= 1 also at the stop. inf where no
        divergence is known. Source: Feldman, Zrnic 2021; Canonne, Kamath, Steinke 2020.

        Args:
            order: > 1; that which is best at the last stop, if absent.
        """
        courses = courses_of(self.blocks)
        if order is None:
            last = [c.chernoff_prices(math.log(self.target))[-1] for c in courses]
            order = 1.0 + float(TILTS[int(np.argmin(np.max(last, axis=0)))])
        divergences = np.zeros(len(self.stops))
        for course in courses:
            of_block = {
                parts: renyi_divergence((block,), order, 1e-4).required().upper
                for parts, block in course.of_block.items()
            }
            # a hair above what adding up may have rounded away
            total = np.cumsum([of_block[parts] for parts in course.blocks]) * (1 + 1e-12)
            divergences = np.maximum(divergences, total)
        return tuple(
            RenyiFilter(order, Fraction(d)).epsilon(Fraction(self.target))
            if 0 < d < math.inf
            else d
            for d in divergences.tolist()
        )

    def to_dict(self) -> dict[str, Any]:
        """The prices by three methods, and delta, as plain values."""
        return {
            "stops": list(self.stops),
            "epsilons": list(self.epsilons),
            "renyi_filter": list(self.renyi_filter()),
            "separate": list(self.separate),
            "delta": self.delta.to_dict(),
        }

    def table(self, most: int = 10) -> str:
        """At most about ``most`` stops as lines of text: the price of each, by three methods."""
        n = len(self.stops)
        shown = sorted({round((k + 1) * n / min(n, most)) - 1 for k in range(min(n, most))})
        renyi = self.renyi_filter()
        lines = [f"{'stop':>9}  {'epsilon':>9}  {'Renyi filter':>12}  {'separately':>10}"]
        for i in shown:
            lines.append(
                f"{self.stops[i]:>9,}  {self.epsilons[i]:9.4f}  "
                f"{renyi[i]:12.4f}  {self.separate[i]:10.4f}"
            )
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """Draws the prices over the stops, and those of other methods; returns the axes.

        Needs the extra ``plot``.
        """
        from tightbudget.accounting.plot import plot_schedule

        return plot_schedule(self, ax=ax)


def early_stopping(
    step: Composable | Sequence[Composable],
    stops: Sequence[int],
    delta: float,
    weights: Sequence[float] | None = None,
    rtol: float = 1e-3,
) -> StoppingSchedule:
    """Prices for stopping early, as low as the weights and one delta for all stops allow.

    Each price is the eps at which the delta of what runs until there is s weights[i] delta,
    or a later stop's if that is less: to stop and to run on without looking cost the same. s
    is the largest for which all stops together are covered by ``delta``.

    Guarantee: ``result.delta.upper`` <= delta, rounding included; see
    :func:`stopping_delta` and :class:`StoppingSchedule`.

    Args:
        step: a mechanism or composition; or a list of them, of which the k-th is step k.
        stops: ascending numbers of steps, each >= 1; the last ends the run.
        delta: in (0, 1).
        weights: > 0, a share of delta for each stop: the larger, the cheaper it is to stop
            there. 0.2 for all but the last, which has 1, if absent.
        rtol: how much of delta may stay unused, relative, in (0, 1).

    Raises:
        ParameterError: an argument is refused.
        RelationError: mechanisms were declared for different neighbouring relations.
        CalibrationError: no price is high enough: an infinite loss is likelier than delta.
        PrecisionError: the lattice that is needed is too long.
    """
    stops = stops_of(stops)
    blocks = blocks_between(step, stops)
    delta = open_probability(delta=delta)
    shares = _weights(weights, len(stops))
    rtol = positive(rtol=rtol)
    if not rtol < 1:
        raise refuse("rtol", "be in (0, 1)", rtol)
    courses = courses_of(blocks)
    for course in courses:
        if course.infinity.upper >= 0.5 * delta:
            raise CalibrationError(
                f"delta = {delta:g} must be well above the chance of an infinite loss, "
                f"{course.infinity.upper:g}"
            )
    # on rough lattices: about how dear all stops together are, and which direction counts
    guesses = [course.rough_prices(0.3 * delta) for course in courses]
    rough = [
        Walk(course, Lattice.of(course, prices, _GAP, _ROUGH))
        for course, prices in zip(courses, guesses, strict=True)
    ]
    dearest = np.max(guesses, axis=0)
    prices_at = _menu(
        [w for w, e in zip(rough, guesses, strict=True) if np.any(e >= 0.9 * dearest)],
        shares * delta,
    )
    scale, _ = _largest(rough, prices_at, 3.0 / float(np.sum(shares)), delta, 0.05)
    ends = [walk.upper(prices_at(scale))[0] for walk in rough]
    walks = [
        Walk(course, Lattice.of(course, prices_at(scale), _GAP, 0.5)) if end > 0.5 * delta else walk
        for course, walk, end in zip(courses, rough, ends, strict=True)
    ]
    scale, found = _largest(walks, prices_at, scale, delta, rtol)
    lower = max(walk.lower(rule) for walk, (_, rule) in zip(walks, found, strict=True))
    upper = max(end for end, _ in found)
    return StoppingSchedule(stops, tuple(prices_at(scale)), Bounds(lower, upper), delta, blocks)


def _weights(weights: Sequence[float] | None, n: int) -> FloatArray:
    """The weights, the largest of which is 1."""
    if weights is None:
        return np.array([_EARLY] * (n - 1) + [1.0])
    checked = np.array([positive(**{f"weights[{i}]": w}) for i, w in enumerate(weights)])
    if checked.size != n:
        raise refuse("weights", f"hold a weight for each of the {n} stops", weights)
    return np.asarray(checked / np.max(checked))


def _menu(walks: list[Walk], targets: FloatArray) -> Callable[[float], list[float]]:
    """From s to about the eps at which each stop's own delta is s targets[i].

    What is about right is right enough for a choice: the prices are certified afterwards.
    """
    scales = np.geomspace(0.2 / float(np.sum(targets) / np.max(targets)), 4.0, _DISHES)
    dearest = np.zeros((len(targets), scales.size))
    for walk in walks:
        for i, delta in enumerate(walk.one_stop_each()):
            above = math.inf
            for j, target in enumerate(targets[i] * scales):
                above = _epsilon_at(delta, min(float(target), 1.0), above)
                dearest[i, j] = max(dearest[i, j], above)
    curve = interpolate.PchipInterpolator(np.log(scales), dearest, axis=1)
    least, most = scales[[0, -1]]

    def prices_at(scale: float) -> list[float]:
        own = np.maximum(0.0, curve(math.log(min(max(scale, least), most))))
        # never dearer than going on to a later stop: W is convex, so that is for free
        capped: list[float] = np.minimum.accumulate(own[::-1])[::-1].tolist()
        return capped

    return prices_at


def _is_above(delta: Callable[[float], float], target: float, epsilon: float) -> bool:
    return delta(epsilon) > target


def _epsilon_at(delta: Callable[[float], float], target: float, above: float = math.inf) -> float:
    """About eps(target), which is known to be below ``above``."""
    if delta(0.0) <= target:
        return 0.0
    high = above if above < math.inf else 1.0
    while delta(high) > target:
        high *= 2.0
        if high > 1e6:
            raise CalibrationError(f"no price is high enough for delta = {target:g}")

    def excess(epsilon: float) -> float:
        return math.log(max(delta(epsilon), 1e-300) / target)

    return float(optimize.brentq(excess, 0.0, high, xtol=1e-5 * high, rtol=1e-5))


def _largest(
    walks: list[Walk],
    prices_at: Callable[[float], list[float]],
    guess: float,
    delta: float,
    slack: float,
) -> tuple[float, list[tuple[float, Rule]]]:
    """The largest scale whose prices delta covers, but for a share ``slack`` of it left over.

    Returns:
        The scale, and each walk's upper end of delta there, at most ``delta``, with its rule.
    """
    low, high, scale = 0.0, math.inf, guess
    best: list[tuple[float, Rule]] | None = None
    for _ in range(_PASSES):
        found = [walk.upper(prices_at(scale)) for walk in walks]
        end = max(upper for upper, _ in found)
        if end <= delta:
            low, best = scale, found
        else:
            high = scale
        if (1.0 - slack) * delta <= end <= delta or high < low * (1.0 + 1e-6):  # delta jumps
            break
        # delta is about in proportion to the scale
        scale *= (1.0 - 0.5 * slack) * delta / end
        if not low < scale < high:
            scale = math.sqrt(low * high) if low > 0 else 0.5 * high
    if best is None:
        raise CalibrationError(f"no prices were found that delta = {delta:g} covers")
    return low, best
