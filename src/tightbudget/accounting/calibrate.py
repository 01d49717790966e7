"""The smallest noise that meets a target, ending on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tightbudget.accounting.composition import Composition, compose
from tightbudget.errors import CalibrationError, ParameterError, PrecisionError
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import non_negative, positive, probability
from tightbudget.pairs.pair import Composable

__all__ = ["Calibration", "calibrate"]


@dataclass(frozen=True)
class Calibration:
    """A parameter's value that meets the target, and what it costs.

    Attributes:
        value: the parameter (an int with ``integer=True``).
        composition: the function's value there.
        epsilon: bounds of eps at the target delta; its upper end is <= the target.
        delta: bounds of delta at the target eps; its upper end is <= the target.
    """

    value: float
    composition: Composition
    epsilon: Bounds
    delta: Bounds


def calibrate(
    function: Callable[[float], Composable],
    *,
    epsilon: float,
    delta: float,
    between: tuple[float, float] | None = None,
    integer: bool = False,
    rtol: float = 1e-5,
) -> Calibration:
    """The best value of a parameter for which the upper bound meets (epsilon, delta).

    Where more of the parameter costs less (noise), the smallest value that meets the
    target; where it costs more (steps, a rate), the largest.

    Guarantee: the upper bound on delta(epsilon) at ``value`` is <= delta; the lower bound
    (or the upper one, within the width of the bounds) misses the target at ``value`` moved
    by the relative ``rtol`` (by 1 with ``integer``) towards the cheaper side.

    Args:
        function: from the parameter (> 0) to a mechanism or composition, monotone in cost.
            Its own exceptions reach the caller as they are.
        epsilon, delta: the target, eps >= 0 in nats, delta in (0, 1).
        between: (lowest, highest) value to consider; found by doubling from 1 if absent.
        integer: the parameter is an integer.
        rtol: how close to the best value.

    Raises:
        CalibrationError: no value within reach meets the target, or all do.
        ParameterError: a parameter is refused.
    """
    target = math.log(positive(delta=probability(delta=delta)))
    epsilon = non_negative(epsilon=epsilon)
    rtol = positive(rtol=rtol)
    probe = _Probe(function, epsilon, target, integer)
    low, high, rising = _bracket(probe, between)
    # rising: cost rises with the parameter; ``good`` meets the target, ``bad`` does not
    good, bad = (low, high) if rising else (high, low)
    good, bad = _narrow(probe, good, bad, rtol)
    composition = probe.composition(good)
    bounds = composition.delta(epsilon, rtol=1e-4)
    if not bounds.upper <= delta:
        bounds = composition.delta(epsilon, rtol=1e-6)
    return Calibration(
        value=int(good) if integer else good,
        composition=composition,
        epsilon=_capped(composition.epsilon(delta, rtol=1e-4), epsilon),
        delta=_capped(bounds, delta),
    )


def _capped(bounds: Bounds, target: float) -> Bounds:
    # the target was certified, at a finer gap than these bounds may have
    return Bounds(min(bounds.lower, target), min(bounds.upper, target))


class _Probe:
    """ln delta(epsilon) - ln target at a parameter: its sign is certified where asked."""

    def __init__(
        self, function: Callable[[float], Composable], epsilon: float, target: float, integer: bool
    ) -> None:
        self.function, self.epsilon, self.target = function, epsilon, target
        self.integer = integer

    def composition(self, x: float) -> Composition:
        value = self.function(int(x) if self.integer else x)
        if not isinstance(value, Composable):
            raise ParameterError(f"function must return a composition, got {value!r} at {x!r}")
        return compose([value])

    def __call__(self, x: float) -> float:
        """> 0 where the target is missed or not certainly met, <= 0 where it is met."""
        composition = self.composition(x)
        excess = 0.0
        for rtol in (0.1, 1e-3, 1e-5):
            try:
                bounds = composition.delta(self.epsilon, rtol)
            except PrecisionError as error:
                bounds = Bounds(error.lower, min(1.0, error.upper))
            up = _log(bounds.upper) - self.target
            low = _log(bounds.lower) - self.target
            excess = 0.5 * (up + low) if math.isfinite(low) else up
            # a rough answer far from the target is enough
            if up <= 0.0 or low > 0.0:
                far = abs(excess) > 3.0
                if far or rtol < 0.1:
                    return min(excess, up) if up <= 0.0 else max(excess, 1e-300)
        return max(excess, 1e-300)


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -800.0


def _bracket(probe: _Probe, between: tuple[float, float] | None) -> tuple[float, float, bool]:
    """(low, high, rising): one of the ends meets the target and the other does not."""
    if between is not None:
        low, high = (positive(**{f"between[{i}]": x}) for i, x in enumerate(between))
        if not low < high:
            raise ParameterError(f"between must be (low, high) with low < high, got {between!r}")
        at_low, at_high = probe(low), probe(high)
        if (at_low <= 0) == (at_high <= 0):
            what = "every" if at_low <= 0 else "no"
            raise CalibrationError(f"{what} end of between = {between!r} meets the target")
        return low, high, at_low <= 0
    low = high = 1.0
    at_low, factor = probe(1.0), 2.0
    at_high = probe(2.0)
    high = 2.0
    rising = at_high > at_low
    for _ in range(40):
        if (at_low <= 0) != (at_high <= 0):
            return low, high, rising
        met = at_low <= 0
        factor = min(factor * factor, 16.0)
        if met == rising:  # go up: met and rising, or missed and falling
            low, at_low = high, at_high
            high *= factor
            at_high = probe(high)
        else:
            if probe.integer and low <= 1.0:
                break
            high, at_high = low, at_low
            low = max(1.0, low / factor) if probe.integer else low / factor
            at_low = probe(low)
    raise CalibrationError(
        f"no parameter between {low:g} and {high:g} separates meeting the target from missing it"
    )


def _narrow(probe: _Probe, good: float, bad: float, rtol: float) -> tuple[float, float]:
    """Ends that are neighbours (integers) or within rtol, by regula falsi in logarithms."""
    at_good, at_bad = probe(good), probe(bad)
    side = 0
    for turn in range(200):
        if probe.integer:
            if abs(good - bad) <= 1:
                break
        elif abs(good - bad) <= rtol * max(good, bad):
            break
        a, b = math.log(good), math.log(bad)
        share = at_good / (at_good - at_bad) if at_bad > at_good else 0.5
        # step a hair past the root, so that the next pair of points brackets it closely
        share = min(0.98, max(0.02, share)) if turn % 3 != 2 else 0.5
        hair = 0.3 * rtol / max(abs(b - a), rtol)
        share = share + hair if side > 0 else share - hair
        x = math.exp(a + min(0.999, max(0.001, share)) * (b - a))
        if probe.integer:
            x = float(min(max(round(x), min(good, bad) + 1), max(good, bad) - 1))
        at = probe(x)
        if at <= 0:
            good, at_good, side = x, at, 1
        else:
            bad, at_bad, side = x, at, -1
    return good, bad
