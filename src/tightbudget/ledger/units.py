"""Amounts are integers: epsilon in units of 1e-12, delta in units of 1e-18.

What is charged is rounded up and what may be charged is rounded down, once, here. From there
on nothing is rounded: integers are added, compared and stored. What an account of another
kind counts (rho, mu^2, a divergence) has the unit of epsilon.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.amount import Budget, ExactAmount, printed_up

__all__ = ["NOTHING", "Units"]

_EPSILON, _DELTA = 10**12, 10**18
_LARGEST = 2**63 - 1  # of a BIGINT
_TOLERANCE = (
    10**9
)  # what is above what is left by less than one part in this is granted what is left


class Units(NamedTuple):
    """Two integers: of what the account counts, in 1e-12, and of delta, in 1e-18."""

    epsilon: int
    delta: int

    @staticmethod
    def charged(amount: ExactAmount) -> Units:
        """Guarantee: at least the amount; above 0 if the amount is.

        Raises:
            ParameterError: more than a database's integers hold.
        """
        return Units(
            _fits("epsilon", amount.counted, math.ceil(amount.counted * _EPSILON)),
            _fits("delta", amount.delta, math.ceil(amount.delta * _DELTA)),
        )

    @staticmethod
    def granted(amount: ExactAmount) -> Units:
        """Guarantee: at most the amount.

        Raises:
            ParameterError: more than a database's integers hold.
        """
        return Units(
            _fits("epsilon", amount.counted, math.floor(amount.counted * _EPSILON)),
            _fits("delta", amount.delta, math.floor(amount.delta * _DELTA)),
        )

    def plus(self, other: Units) -> Units:
        """Each component's sum."""
        return Units(self.epsilon + other.epsilon, self.delta + other.delta)

    def minus(self, other: Units) -> Units:
        """Each component's difference."""
        return Units(self.epsilon - other.epsilon, self.delta - other.delta)

    def times(self, n: int) -> Units:
        """Each component n times."""
        return Units(self.epsilon * n, self.delta * n)

    def least(self, other: Units) -> Units:
        """Each component's smaller one."""
        return Units(min(self.epsilon, other.epsilon), min(self.delta, other.delta))

    def most(self, other: Units) -> Units:
        """Each component's larger one."""
        return Units(max(self.epsilon, other.epsilon), max(self.delta, other.delta))

    def fits(self, left: Units) -> bool:
        """Whether no component is larger."""
        return self.epsilon <= left.epsilon and self.delta <= left.delta

    def nearly_fits(self, left: Units) -> bool:
        """Whether no component is larger by more than one part in 1e9 of what is left."""
        return self.fits(
            Units(left.epsilon + left.epsilon // _TOLERANCE, left.delta + left.delta // _TOLERANCE)
        )

    def up(self, unit: str) -> Budget:
        """As floats, rounded up."""
        return self.exact().up(unit)

    def down(self, unit: str) -> Budget:
        """As floats, rounded down."""
        return self.exact().down(unit)

    def exact(self) -> ExactAmount:
        """The amounts themselves."""
        return ExactAmount(
            counted=Fraction(self.epsilon, _EPSILON), delta=Fraction(self.delta, _DELTA)
        )


NOTHING = Units(0, 0)


def _fits(name: str, amount: Fraction, units: int) -> int:
    if not 0 <= units <= _LARGEST:
        raise refuse(name, "be at least 0 and fit into the ledger's integers", printed_up(amount))
    return units
