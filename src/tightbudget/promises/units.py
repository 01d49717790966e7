"""Amounts are integers: epsilon in units of 1e-12, delta in units of 1e-18.

An exact amount becomes integers once, here: a charge is rounded up, a cap is rounded down. From
there on nothing is rounded: integers are added, compared and stored. Budgets that count another
measure of privacy loss (rho, mu^2, a divergence) store it in the column and unit of epsilon.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import NamedTuple

from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.amount import Amount, ExactAmount, printed_up

_EPSILON, _DELTA = 10**12, 10**18
_LARGEST = 2**63 - 1  # of a BIGINT
# a request above what is left, by less than one part in this number, is granted what is left
_TOLERANCE = 10**9


class Units(NamedTuple):
    """An exact amount in the integers that a ledger stores.

    Attributes:
        epsilon: the counted amount (epsilon, rho, ...), in units of 1e-12.
        delta: in units of 1e-18.
    """

    epsilon: int
    delta: int

    # Proof: proofs/filter.v, theorem higher_price
    @staticmethod
    def charged(amount: ExactAmount) -> Units:
        """Returns the amount rounded up: for what is spent or held.

        Guarantee: at least the amount; above 0 if the amount is.

        Raises:
            ParameterError: the amount is more than a database's integers hold.
        """
        return Units(
            epsilon=_fits("epsilon", amount.counted, math.ceil(amount.counted * _EPSILON)),
            delta=_fits("delta", amount.delta, math.ceil(amount.delta * _DELTA)),
        )  # guard: charges-rounded-up

    @staticmethod
    def granted(amount: ExactAmount) -> Units:
        """Returns the amount rounded down: for a cap.

        Guarantee: at most the amount.

        Raises:
            ParameterError: the amount is more than a database's integers hold.
        """
        return Units(
            epsilon=_fits("epsilon", amount.counted, math.floor(amount.counted * _EPSILON)),
            delta=_fits("delta", amount.delta, math.floor(amount.delta * _DELTA)),
        )  # guard: caps-rounded-down

    def plus(self, other: Units) -> Units:
        """Returns the sum of both amounts, component by component."""
        return Units(epsilon=self.epsilon + other.epsilon, delta=self.delta + other.delta)

    def minus(self, other: Units) -> Units:
        """This amount less the other, component by component."""
        return Units(epsilon=self.epsilon - other.epsilon, delta=self.delta - other.delta)

    def times(self, n: int) -> Units:
        """Returns the amount n times, component by component."""
        return Units(epsilon=self.epsilon * n, delta=self.delta * n)

    def least(self, other: Units) -> Units:
        """Returns the smaller of both amounts, component by component."""
        return Units(epsilon=min(self.epsilon, other.epsilon), delta=min(self.delta, other.delta))

    def most(self, other: Units) -> Units:
        """Returns the larger of both amounts, component by component."""
        return Units(epsilon=max(self.epsilon, other.epsilon), delta=max(self.delta, other.delta))

    def fits(self, left: Units) -> bool:
        """Returns True if no component is larger than that of ``left``."""
        return self.epsilon <= left.epsilon and self.delta <= left.delta

    def nearly_fits(self, left: Units) -> bool:
        """Returns True if no component exceeds that of ``left`` by more than one part in 1e9."""
        return self.fits(
            Units(
                epsilon=left.epsilon + left.epsilon // _TOLERANCE,
                delta=left.delta + left.delta // _TOLERANCE,
            )
        )

    def up(self, unit: str) -> Amount:
        """Returns the amount as floats that print as at least it: for what is spent or held."""
        return _up(self, unit)

    def down(self, unit: str) -> Amount:
        """Returns the amount as floats that print as at most it: for what is left or granted."""
        return _down(self, unit)

    def exact(self) -> ExactAmount:
        """Returns the amount as exact fractions."""
        return ExactAmount(
            counted=Fraction(self.epsilon, _EPSILON), delta=Fraction(self.delta, _DELTA)
        )


NOTHING = Units(epsilon=0, delta=0)


# ten thousand budgets of one run hold few different amounts
@functools.lru_cache(maxsize=1_000)
def _up(units: Units, unit: str) -> Amount:
    """Returns the amount as floats, rounded up."""
    return units.exact().up(unit)


@functools.lru_cache(maxsize=1_000)
def _down(units: Units, unit: str) -> Amount:
    """Returns the amount as floats, rounded down."""
    return units.exact().down(unit)


def _fits(name: str, amount: Fraction, units: int) -> int:
    """Returns the units of the amount called ``name``; refuses more than a database can store."""
    if not 0 <= units <= _LARGEST:
        raise refuse(name, "be at least 0 and fit into the ledger's integers", printed_up(amount))
    return units
