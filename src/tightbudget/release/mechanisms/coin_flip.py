"""The smallest mechanism whose outputs differ in price: a coin decides whether it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanisms.additive import Answer, LaplaceRelease, added
from tightbudget.release.meter import Meter
from tightbudget.release.noise.noise import Noise, OpenDPNoise
from tightbudget.release.release import Release, WhatIf, answered, paid, what_if

__all__ = ["ToyRelease"]


@plain_numbers
@dataclass(frozen=True)
class ToyRelease:
    """Tosses a fair coin: a number with Laplace noise, or nothing, which is free.

    Guarantee: cells {"number": epsilon, "nothing": 0}, delta = 0: the coin does not know the
    data, so "nothing" has the same probability for all of them.
    Source: Hartmann et al. 2022, section 3 (M_toy).

    Args:
        query: from the data to an integer (other numbers are rounded down); with a step, to
            any real number.
        sensitivity: > 0, how far the query can move between neighbouring data sets. What
            neighbouring means, the caller says by this number.
        epsilon: > 0, nats.
        step: of the grid that answers lie on, a power of two; None for integers.
        bounds: as for :class:`LaplaceRelease`; a query that can fail needs them.

    Raises:
        ParameterError: a parameter is refused.
    """

    query: Callable[[Any], Any]
    sensitivity: Price
    epsilon: Price
    step: float | None = None
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _ = self._noisy

    @cached_property
    def _noisy(self) -> LaplaceRelease:
        return LaplaceRelease(
            self.query, self.sensitivity, self.epsilon, step=self.step, bounds=self.bounds
        )

    @cached_property
    def guarantee(self) -> OutputDP:
        """A number costs epsilon, nothing costs nothing."""
        return OutputDP({"number": self.epsilon, "nothing": 0})

    def what_if(self, meter: Meter) -> WhatIf:
        """The prices, and whether the dearest fits; touches nothing."""
        return what_if(self.guarantee, meter)

    def release(
        self, data: Any, *, meter: Meter, noise: Noise | None = None
    ) -> Release[Answer | None]:
        """The noisy number, or None.

        Raises:
            BudgetError: it does not fit; the data was not touched.
            ExtraError: no noise is given, and OpenDP is not installed; nothing is charged.
        """
        source = noise or OpenDPNoise()

        def run(data: Any) -> tuple[Answer | None, Cell]:
            # asked in any case: what else a query does must not depend on the coin
            value = answered(lambda: self.query(data))
            if not source.coin():
                return None, "nothing"
            drawn = source.laplace(self._noisy.scale, 1)
            return added(self._noisy._grid, None, value, drawn), "number"

        return paid(meter, self.guarantee, data, run)
