"""Prices for stopping early: chosen so that one delta covers every way of stopping.

Choosing prices is calibration, so this module stands beside calibration and not beside the bound
that certifies the prices (:mod:`tightbudget.output_dp.stopping`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np

from tightbudget import notebook
from tightbudget.drawing import draw_prices
from tightbudget.engine.readings.renyi import renyi_divergence
from tightbudget.errors import CalibrationError
from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import FloatArray, add_up
from tightbudget.numerics.search import last_true, root_between
from tightbudget.numerics.validate import open_probability, positive, refuse
from tightbudget.output_dp.backward_induction import BackwardInduction, StoppingRule
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.output_dp.pricing import RenyiRule
from tightbudget.output_dp.stopping import (
    blocks_between,
    down_to_attained,
    losses_by_direction,
    stops_of,
)
from tightbudget.output_dp.stopping_lattice import TILTS, Lattice

_EARLY = 0.2  # weight of all stops but the last, which has 1
_GAP = 1e-3  # about the relative gap between the bounds of delta
_ROUGH = 16.0  # how much coarser, in variance, the lattice is on which prices are searched
_KNOTS = 6  # deltas at which each stop's own price is worked out; between them it is interpolated
_PASSES = 30  # scales that are tried; then the largest that was covered is taken


@dataclass(frozen=True, repr=False)
class StoppingSchedule:
    """A price for stopping at each stop, and one delta for the whole run.

    Guarantee: a run of ``blocks`` that stops at stops[i] costs epsilons[i], whatever its outputs
    made it stop there: the run is output-DP with these prices by cell and ``delta.upper``. The
    smallest delta for which that is so lies in ``delta``; where a mechanism's pair only dominates
    it, the lower bound is that of data sets that exist.

    Attributes:
        stops: the numbers of steps after which it may stop; the last ends the run.
        epsilons: the price of each, nats.
        delta: certified.
        target: the delta that was asked for, at least ``delta.upper``.
        blocks: the compositions that run between one stop and the next.
    """

    stops: tuple[int, ...]
    epsilons: tuple[float, ...]
    delta: Bounds
    target: float
    blocks: tuple[Composition, ...]

    def __repr__(self) -> str:
        first, last = self.epsilons[0], self.epsilons[-1]
        return (
            f"<StoppingSchedule: {len(self.stops)} stops from {self.stops[0]:,} to "
            f"{self.stops[-1]:,}, at prices from {first:.4f} to {last:.4f}, delta {self.delta}; "
            f"{self.at_the_last_stop()}>"
        )

    def _repr_html_(self) -> str:
        """Writes a table of the stops and their prices, for a notebook."""
        some, most = notebook.elided(len(self.stops), notebook.MOST_ROWS), max(self.epsilons)
        rows = [
            (
                f"{self.stops[i]:,}",
                f"{self.epsilons[i]:.4f}",
                notebook.scale(self.epsilons[i], most),
            )
            for i in some
        ]
        prices = notebook.table(rows, head=("stop", "epsilon", ""), title=f"delta {self.delta}")
        return notebook.shown(prices, notebook.muted(self.at_the_last_stop()))

    def at_the_last_stop(self) -> str:
        """A sentence that says what has run at the last stop: the unit in which stops are counted.

        ``early_stopping(step * 100, stops=[10])`` counts steps * 100: at the stop 10, 1,000 steps
        have run.
        """
        whole = compose(self.blocks)
        if len(whole.parts) == 1:
            ((mechanism, runs),) = whole.parts
            return f"at the last stop, {self.stops[-1]:,}: {runs:,} runs of {mechanism}"
        return f"at the last stop, {self.stops[-1]:,}: {whole!r}"

    def guarantee(self) -> OutputDP:
        """The schedule as output differential privacy: one cell for each stop."""
        prices = {k: Fraction(e) for k, e in zip(self.stops, self.epsilons, strict=True)}
        return OutputDP(prices, self.delta)

    @cached_property
    def separate(self) -> tuple[float, ...]:
        """The prices where each stop gets an equal share of the delta asked for.

        Guarantee: upper bounds of the eps(delta / n) of all blocks up to each stop.
        Source: Hartmann, Bindschaedler, Bentkamp, West 2022, Lemma 11.
        """
        share = self.target / len(self.stops)
        prices = np.zeros(len(self.stops))
        for losses in losses_by_direction(self.blocks):
            induction = BackwardInduction(
                losses, Lattice.of(losses, losses.rough_prices(share), _GAP, 1.0)
            )
            for i, delta in enumerate(induction.one_stop_each()):
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
            order: > 1; if absent, the order with the lowest price at the last stop.
        """
        by_direction = losses_by_direction(self.blocks)
        if order is None:
            last = [one.chernoff_prices(math.log(self.target))[-1] for one in by_direction]
            order = 1.0 + float(TILTS[int(np.argmin(np.max(last, axis=0)))])
        divergences = np.zeros(len(self.stops))
        for losses in by_direction:
            of_block = {
                block: renyi_divergence((parts,), order, 1e-4).required().upper
                for block, parts in losses.of_block.items()
            }
            total = itertools.accumulate([of_block[block] for block in losses.blocks], add_up)
            divergences = np.maximum(divergences, list(total))
        return tuple(
            RenyiRule(order=order, epsilon=Fraction(d)).epsilon(Fraction(self.target))
            if 0 < d < math.inf
            else d
            for d in divergences.tolist()
        )

    def to_dict(self) -> dict[str, Any]:
        """The prices of the stops by three methods, and delta, as plain JSON values."""
        return {
            "stops": list(self.stops),
            "epsilons": list(self.epsilons),
            "renyi_filter": list(self.renyi_filter()),
            "separate": list(self.separate),
            "delta": self.delta.to_dict(),
        }

    def table(self, most: int = 10, *, unit: bool = True) -> str:
        """Lines of text with the price of at most about ``most`` stops, by three methods.

        Args:
            most: the largest number of stops that are shown, about.
            unit: whether the last line says what has run at the last stop.
        """
        n = len(self.stops)
        shown = sorted({round((k + 1) * n / min(n, most)) - 1 for k in range(min(n, most))})
        renyi = self.renyi_filter()
        lines = [f"{'stop':>9}  {'epsilon':>9}  {'Renyi filter':>12}  {'separately':>10}"]
        for i in shown:
            lines.append(
                f"{self.stops[i]:>9,}  {self.epsilons[i]:9.4f}  "
                f"{renyi[i]:12.4f}  {self.separate[i]:10.4f}"
            )
        return notebook.PrintedLines("\n".join([*lines, *[self.at_the_last_stop()] * unit]))

    def plot(self, ax: Any = None) -> Any:
        """Draws the prices of the stops by three methods; returns the axes.

        Needs the extra ``plot``.
        """
        prices = {
            "each stop accounted separately": (self.separate, "#b07d12"),
            "Rényi filter": (self.renyi_filter(), "#b3452c"),
            f"this schedule, δ = {self.target:g}": (self.epsilons, "#1f5fa8"),
        }
        return draw_prices(self.stops, prices, ax=ax)


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
    by_direction = losses_by_direction(blocks)
    for losses in by_direction:
        if losses.infinity.upper >= 0.5 * delta:
            raise CalibrationError(
                f"delta = {delta:g} must be well above the chance of an infinite loss, "
                f"{losses.infinity.upper:g}"
            )
    # on rough lattices: about the scale of the prices, and which direction has the larger delta
    guesses = [losses.rough_prices(0.3 * delta) for losses in by_direction]
    rough = [
        BackwardInduction(losses, Lattice.of(losses, prices, _GAP, _ROUGH))
        for losses, prices in zip(by_direction, guesses, strict=True)
    ]
    highest = np.max(guesses, axis=0)
    prices_at = _prices_by_scale(
        [one for one, e in zip(rough, guesses, strict=True) if np.any(e >= 0.9 * highest)],
        shares * delta,
    )
    scale, _ = _largest(rough, prices_at, 3.0 / float(np.sum(shares)), delta, 0.05)
    ends = [induction.upper(prices_at(scale))[0] for induction in rough]
    inductions = [
        BackwardInduction(losses, Lattice.of(losses, prices_at(scale), _GAP, 0.5))
        if end > 0.5 * delta
        else induction
        for losses, induction, end in zip(by_direction, rough, ends, strict=True)
    ]
    scale, found = _largest(inductions, prices_at, scale, delta, rtol)
    lower = max(
        induction.lower(rule) for induction, (_, rule) in zip(inductions, found, strict=True)
    )
    upper = max(end for end, _ in found)
    prices = tuple(prices_at(scale))
    certified = down_to_attained(Bounds(lower, upper), blocks, prices, _GAP)
    return StoppingSchedule(stops, prices, certified, delta, blocks)


def _weights(weights: Sequence[float] | None, n: int) -> FloatArray:
    """(n,): the weights of the stops, divided by the largest; those of :data:`_EARLY` if None."""
    if weights is None:
        return np.array([_EARLY] * (n - 1) + [1.0])
    checked = np.array([positive(**{f"weights[{i}]": w}) for i, w in enumerate(weights)])
    if checked.size != n:
        raise refuse("weights", f"hold a weight for each of the {n} stops", weights)
    return np.asarray(checked / np.max(checked))


def _prices_by_scale(
    inductions: list[BackwardInduction], targets: FloatArray
) -> Callable[[float], list[float]]:
    """A function from a scale s to prices, about the eps at which stop i alone has s targets[i].

    The prices need not be exact: whatever is chosen is certified afterwards.

    Args:
        inductions: of the directions that matter.
        targets: (n,), a delta for each stop.
    """
    from scipy import interpolate  # takes longer to import than all else that is needed

    scales = np.geomspace(0.2 / float(np.sum(targets) / np.max(targets)), 4.0, _KNOTS)
    own_prices = np.zeros((len(targets), scales.size))
    for induction in inductions:
        for i, delta in enumerate(induction.one_stop_each()):
            above = math.inf
            for j, target in enumerate(targets[i] * scales):
                above = _epsilon_at(delta, min(float(target), 1.0), above)
                own_prices[i, j] = max(own_prices[i, j], above)
    curve = interpolate.PchipInterpolator(np.log(scales), own_prices, axis=1)
    least, most = scales[[0, -1]]

    def prices_at(scale: float) -> list[float]:
        own = np.maximum(0.0, curve(math.log(min(max(scale, least), most))))
        # never more than the price of going on to a later stop: W is convex, so that is for free
        capped: list[float] = np.minimum.accumulate(own[::-1])[::-1].tolist()
        return capped

    return prices_at


def _is_above(delta: Callable[[float], float], target: float, epsilon: float) -> bool:
    """True if delta(epsilon) is above ``target``."""
    return delta(epsilon) > target


def _epsilon_at(delta: Callable[[float], float], target: float, above: float = math.inf) -> float:
    """About the eps at which ``delta`` is ``target``, which is known to be below ``above``.

    Raises:
        CalibrationError: delta stays above the target up to 1e6 nats.
    """
    if delta(0.0) <= target:
        return 0.0
    high = above if above < math.inf else 1.0
    while delta(high) > target:
        high *= 2.0
        if high > 1e6:
            raise CalibrationError(f"no price is high enough for delta = {target:g}")

    def excess(epsilon: float) -> float:
        return math.log(max(delta(epsilon), 1e-300) / target)

    return root_between(excess, 0.0, high, xtol=1e-5 * high, rtol=1e-5)


def _largest(
    inductions: list[BackwardInduction],
    prices_at: Callable[[float], list[float]],
    guess: float,
    delta: float,
    slack: float,
) -> tuple[float, list[tuple[float, StoppingRule]]]:
    """The largest scale at which all upper bounds are at most ``delta``, up to a share ``slack``.

    Args:
        inductions: one for each direction.
        prices_at: from a scale to the prices of the stops.
        guess: the first scale to be tried.
        delta: in (0, 1).
        slack: the share of delta that may stay unused.

    Returns:
        the scale; and for each induction the upper bound of delta there, and its stopping rule.

    Raises:
        CalibrationError: no scale was found whose prices ``delta`` covers.
    """
    low, high, scale = 0.0, math.inf, guess
    best: list[tuple[float, StoppingRule]] | None = None
    for _ in range(_PASSES):
        found = [induction.upper(prices_at(scale)) for induction in inductions]
        end = max(upper for upper, _ in found)
        if end <= delta:  # guard: prices-delta-covers-1
            low, best = scale, found
        else:
            high = scale
        # guard: prices-delta-covers-2
        if (1.0 - slack) * delta <= end <= delta or high < low * (1.0 + 1e-6):  # delta jumps
            break
        # delta is about in proportion to the scale
        scale *= (1.0 - 0.5 * slack) * delta / end
        if not low < scale < high:
            scale = math.sqrt(low * high) if low > 0 else 0.5 * high
    if best is None:
        raise CalibrationError(f"no prices were found that delta = {delta:g} covers")
    return low, best
