"""Numbers that are charged: how one that somebody gives becomes exact, and how a sum is shown.

Prices and sums are exact rational numbers. A plain float means the decimal that it prints as,
since that is what a person wrote (0.1 is 1/10); np.float64 is such a float. The upper bound of a
:class:`Bounds` means its binary value exactly, since that is where a proof ended. int, Fraction
and Decimal mean themselves. np.float16, np.float32 and np.longdouble mean their exact values,
since they print fewer digits, and the decimal of these may be less.

Nothing is rounded from there on. A sum becomes floats once, when it is shown, by the same rule:
``printed_up(x)`` prints as a decimal that is at least x.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from tightbudget import notebook
from tightbudget.numerics.bounds import Bounds, Estimate
from tightbudget.numerics.rounding import next_down, next_up
from tightbudget.numerics.validate import plain, refuse

Price = float | Fraction | Decimal | Bounds

_LARGEST = Fraction(sys.float_info.max)


@dataclass(frozen=True)
class Amount:
    """An amount that is spent, held or left, as floats rounded to the safe side.

    Guarantee: what is spent or held prints as at least the exact amount, what is left as at most.

    Attributes:
        amount: the counted sum (of epsilons, of rhos, ...), in ``unit``.
        delta: the sum of the deltas.
        unit: what the account counts: "epsilon" (nats), or another measure of privacy loss.
    """

    amount: float
    delta: float
    unit: str

    @property
    def epsilon(self) -> float:
        """The amount, if it is one of epsilon (nats).

        Raises:
            AttributeError: the account counts something else.
        """
        if self.unit != "epsilon":
            raise AttributeError(f"this is an amount of {self.unit}, not of epsilon")
        return self.amount

    def to_dict(self) -> dict[str, Any]:
        """Returns the attributes by name, as plain JSON values."""
        return asdict(self)

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Amount:
        """Returns the amount that :meth:`to_dict` described."""
        return Amount(
            amount=float(content["amount"]),
            delta=float(content["delta"]),
            unit=str(content["unit"]),
        )

    def __str__(self) -> str:
        return f"{self.unit} {self.amount!r}, delta {self.delta!r}"


def in_short(amount: Amount) -> str:
    """Writes an amount; without its delta where that is 0 and the unit is one without deltas."""
    if amount.unit != "epsilon" and not amount.delta:
        return f"{amount.unit} {amount.amount!r}"
    return str(amount)


def amounts_table(amounts: Mapping[str, Amount], *, title: str = "") -> notebook.Html:
    """Makes a table of amounts by name, for a notebook; without deltas if no amount has one."""
    deltas = any(amount.delta for amount in amounts.values())
    rows = [
        (name, repr(amount.amount), *[repr(amount.delta)] * deltas)
        for name, amount in amounts.items()
    ]
    (unit,) = {amount.unit for amount in amounts.values()}
    return notebook.table(rows, head=("", unit, *["delta"] * deltas), title=title)


class ExactAmount(NamedTuple):
    """Two exact sums: ``counted`` of an account's unit (epsilon, rho), ``delta`` of deltas.

    The unit of ``counted`` is that of the account's price rule.
    """

    counted: Fraction
    delta: Fraction

    def plus(self, other: ExactAmount) -> ExactAmount:
        """Returns the sum of both amounts, component by component."""
        return ExactAmount(counted=self.counted + other.counted, delta=self.delta + other.delta)

    def minus(self, other: ExactAmount) -> ExactAmount:
        """This amount less the other, component by component."""
        return ExactAmount(counted=self.counted - other.counted, delta=self.delta - other.delta)

    def fits(self, left: ExactAmount) -> bool:
        """Returns True if no component is larger than that of ``left``."""
        return (
            self.counted <= left.counted and self.delta <= left.delta
        )  # guard: both-parts-compared

    def up(self, unit: str) -> Amount:
        """Returns the amount as floats that print as at least it: for what is spent or held."""
        return Amount(amount=printed_up(self.counted), delta=printed_up(self.delta), unit=unit)

    def down(self, unit: str) -> Amount:
        """Returns the amount as floats that print as at most it: for what is left or granted."""
        return Amount(amount=printed_down(self.counted), delta=printed_down(self.delta), unit=unit)


ZERO = ExactAmount(counted=Fraction(0), delta=Fraction(0))


# Proof: proofs/filter.v, theorem higher_price
def exact(**given: Any) -> Fraction:
    """Returns the finite number >= 0 given by name, exactly: ``exact(epsilon=0.1)`` is 1/10.

    Raises:
        ParameterError: it is no such number, or an Estimate.
    """
    return _exact(given, "be a finite number >= 0", lambda x: x >= 0)


def exact_positive(**given: Any) -> Fraction:
    """Returns the finite number > 0 given by name, exactly.

    Raises:
        ParameterError: it is no such number, or an Estimate.
    """
    return _exact(given, "be a finite number > 0", lambda x: x > 0)


def exact_probability(**given: Any) -> Fraction:
    """Returns the number in [0, 1] given by name, exactly.

    Raises:
        ParameterError: it is no such number, or an Estimate.
    """
    return _exact(given, "be in [0, 1]", lambda x: 0 <= x <= 1)


def _exact(given: dict[str, Any], must: str, test: Callable[[Fraction], bool]) -> Fraction:
    """Returns the one number in ``given`` exactly; if the test fails, refuses it by ``must``."""
    ((name, value),) = given.items()
    if isinstance(value, Estimate):
        raise refuse(name, "be certified (an Estimate cannot be charged to a budget)", value)
    x = _rational(value)
    if x is None or not test(x):
        raise refuse(name, must, value)
    return x


def _rational(value: object) -> Fraction | None:
    """Returns the number that ``value`` stands for; None if it stands for none."""
    if isinstance(value, Bounds):
        return Fraction(value.upper) if math.isfinite(value.upper) else None
    value = plain(value)
    if isinstance(value, bool):
        return None  # an int in Python, not a number here
    if isinstance(value, float):
        return Fraction(repr(value)) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        # beyond the range of doubles the digits of a fraction would fill the memory
        fits = value.is_finite() and (not value or 0 < abs(float(value)) < math.inf)
        return Fraction(value) if fits else None
    return Fraction(value) if isinstance(value, (int, Fraction)) else None


def printed_up(x: Fraction) -> float:
    """Returns the least double that prints as a decimal >= x (inf above the range of doubles)."""
    try:
        y = float(x)
    except OverflowError:
        return math.inf
    return y if Fraction(repr(y)) >= x else next_up(y)  # guard: spent-rounded-up


def printed_down(x: Fraction) -> float:
    """Returns the largest double that prints as a decimal <= x."""
    y = float(min(x, _LARGEST))
    return y if Fraction(repr(y)) <= x else next_down(y)  # guard: left-rounded-down
