"""Numbers as somebody has printed them: a decimal, and how far it may be from what was computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import plain, refuse, writes_number

_LONGEST = 100  # characters of a number that is read
_FAREST = 400  # decimal places before or after the point: beyond those of all doubles


@dataclass(frozen=True)
class Printed:
    """A decimal that stands for every number up to one unit of its last place above and below it.

    Attributes:
        text: the decimal, as printed; "inf" for infinity.
        value: its exact value; None for infinity.
        unit: one unit of its last place; 0 for infinity.
    """

    text: str
    value: Fraction | None
    unit: Fraction

    @classmethod
    def of(cls, **given: Any) -> Printed:
        """Reads a decimal >= 0 from exactly one keyword, ``name=value``.

        Args:
            given: a text, or a number, which counts as the decimal that Python prints for it.

        Raises:
            ParameterError: it writes no number >= 0, or one with too many digits.
        """
        ((name, value),) = given.items()
        must = 'be a number >= 0 as printed, such as "8.0"'
        number = plain(value)
        if isinstance(number, bool) or not isinstance(number, (str, int, float, Decimal)):
            raise refuse(name, must, value)
        text = number.strip() if isinstance(number, str) else str(number)
        if len(text) > _LONGEST or not writes_number(text):
            raise refuse(name, must, value)
        decimal = Decimal(text)
        if decimal.is_nan() or decimal.is_signed():
            raise refuse(name, must, value)
        if decimal.is_infinite():
            return cls("inf", None, Fraction(0))
        exponent = decimal.as_tuple().exponent
        assert isinstance(exponent, int)
        if max(abs(exponent), abs(decimal.adjusted())) > _FAREST:
            raise refuse(name, f"have its digits within {_FAREST} places of the point", value)
        return cls(text, Fraction(decimal), Fraction(Decimal(1).scaleb(exponent)))

    @property
    def least(self) -> Fraction | None:
        """The smallest number that it stands for; None for infinity."""
        return None if self.value is None else self.value - self.unit

    @property
    def most(self) -> Fraction | None:
        """The largest number that it stands for; None for infinity."""
        return None if self.value is None else self.value + self.unit

    def judged(self, truth: Bounds) -> str:
        """Says "too low", "too high", "inf" or "agrees", whichever certified bounds imply.

        Guarantee: "too low" and "too high" are proofs, for every number that the decimal stands
        for. "inf" is said of an infinite answer where the bounds have a finite upper one.
        """
        if self.least is None or self.most is None:
            return "inf" if math.isfinite(truth.upper) else "agrees"
        if truth.lower == math.inf or self.most < Fraction(truth.lower):
            return "too low"
        if truth.upper < math.inf and self.least > Fraction(truth.upper):
            return "too high"
        return "agrees"
