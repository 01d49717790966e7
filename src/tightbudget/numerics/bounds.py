"""Certified bounds of a number, and estimates: two types, never taken for each other."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tightbudget import notebook
from tightbudget.errors import ParameterError
from tightbudget.numerics.rounding import (
    add_down,
    add_up,
    mul_down,
    mul_up,
    next_down,
    next_up,
    sub_down,
    sub_up,
)
from tightbudget.numerics.validate import number, plain, refuse

# A format for a float as Python has it: of the whole text its fill, alignment and width, and of
# each number its sign, grouping, precision and type.
_FORMAT = re.compile(
    r"(?:(?P<fill>.)?(?P<align>[<>^]))?(?P<sign>[-+ ]?)(?P<width>(?:[1-9]\d*)?)"
    r"(?P<group>,?)(?:\.(?P<precision>\d+))?(?P<kind>[eEfFgG%]?)",
    re.DOTALL | re.ASCII,
)

_LEAST_DIGITS = 4  # of a bound that is printed: outward rounding moves it by less than 1e-3

_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, slots=True, repr=False)
class Bounds:
    """A real number that is proved to lie in [lower, upper].

    Guarantee: the exact value is >= ``lower`` and <= ``upper``; rounding is included.
    ``upper`` may be inf. A bound that no float holds is rounded outwards. Arithmetic (+, -, * with
    a non-negative factor) rounds outwards.

    ``str`` and ``repr`` write the digits that are certified, and at least four of each bound,
    rounded outwards. A format writes both bounds with the
    digits that it asks for, rounded outwards. ``<``, ``<=``, ``>`` and ``>=`` compare with a number
    or with other bounds: the answer is True or False where it is the same for every value in the
    bounds, and a ParameterError elsewhere. ``==`` compares the two bounds, not the number.

    Attributes:
        lower, upper: the two bounds.
        apart: "" for bounds that are as close as was asked. Else it names the way to draw records
            for which nobody knows the worst data sets, such as "shuffled batches": then ``upper``
            holds for all data sets, no bound that holds for all of them is below ``lower``, and no
            ``rtol`` brings the two together. ``str`` and ``repr`` say it, sums and multiples keep
            it, and ``==`` does not compare it.

    >>> b = Bounds(1.23451, 1.23462)
    >>> b
    [1.23450, 1.23463]
    >>> f"{b:.2f}"
    '[1.23, 1.24]'
    >>> lower, upper = b
    >>> upper
    1.23462
    >>> b <= 2.0
    True
    """

    lower: float
    upper: float
    apart: str = field(default="", compare=False, kw_only=True)

    def __post_init__(self) -> None:
        if not type(self.lower) is float is type(self.upper):
            object.__setattr__(self, "lower", _end(up=False, lower=self.lower))
            object.__setattr__(self, "upper", _end(up=True, upper=self.upper))
        if not self.lower <= self.upper:
            raise ParameterError(
                f"lower must be <= upper, got lower={self.lower!r}, upper={self.upper!r}"
            )

    @property
    def width(self) -> float:
        """``upper - lower``, rounded up (0 when the two bounds are equal, also at inf)."""
        return 0.0 if self.lower == self.upper else sub_up(self.upper, self.lower)

    @property
    def relative_gap(self) -> float:
        """``(upper - lower) / upper``, which ``rtol`` limits; 0 when the two bounds are equal."""
        if self.lower == self.upper:
            return 0.0
        return self.width / self.upper if math.isfinite(self.upper) else math.inf

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper

    def __iter__(self) -> Iterator[float]:
        """Yields the lower bound, then the upper bound: ``lower, upper = bounds``."""
        return iter((self.lower, self.upper))

    def __le__(self, other: Bounds | float) -> bool:
        return self._compared("<=", other)

    def __lt__(self, other: Bounds | float) -> bool:
        return self._compared("<", other)

    def __ge__(self, other: Bounds | float) -> bool:
        return self._compared(">=", other)

    def __gt__(self, other: Bounds | float) -> bool:
        return self._compared(">", other)

    def _compared(self, sign: str, other: Bounds | float) -> bool:
        """Compares every number in these bounds with every number in ``other``.

        Raises:
            ParameterError: some of these numbers say True and others False.
        """
        if not isinstance(other, Bounds) and not _is_number(other):
            undecided: bool = NotImplemented
            return undecided
        low, high = other if isinstance(other, Bounds) else (other, other)
        if low != low:
            raise refuse("a number that is compared with bounds", "be a number", other)
        holds = _SIGNS[sign]
        at_most = sign in ("<", "<=")
        # holds for all numbers if it holds for the two that say so last, and for none if not for
        # the two that say so first
        for_all = holds(self.upper, low) if at_most else holds(self.lower, high)
        for_some = holds(self.lower, high) if at_most else holds(self.upper, low)
        if for_all or not for_some:  # guard: comparison-certain
            return bool(for_all)
        raise ParameterError(
            f"{self} {sign} {other} is not certain, since numbers in these bounds disagree: ask "
            "for a smaller rtol, or compare .upper (what is certified to be enough) or .lower"
        )

    if not TYPE_CHECKING:  # a type checker is to refuse float(bounds), as Python does
        # Without these, Python's refusal would not say what to write instead.

        def __float__(self) -> NoReturn:
            raise _two_numbers(self, "float")

        def __int__(self) -> NoReturn:
            raise _two_numbers(self, "int")

    def __add__(self, other: Bounds | float) -> Bounds:
        other = _as_bounds(other)
        lower, upper = add_down(self.lower, other.lower), add_up(self.upper, other.upper)
        return Bounds(lower, upper, apart=_together(self, other))

    __radd__ = __add__

    def __sub__(self, other: Bounds | float) -> Bounds:
        other = _as_bounds(other)
        lower, upper = sub_down(self.lower, other.upper), sub_up(self.upper, other.lower)
        return Bounds(lower, upper, apart=_together(self, other))

    def __mul__(self, factor: float) -> Bounds:
        if not _is_number(factor):  # bounds compare with numbers, too
            return NotImplemented
        if not 0 <= factor < math.inf:
            raise ParameterError(f"factor must be a finite number >= 0, got {factor!r}")
        f = _as_bounds(factor)
        least = f.upper if self.lower < 0 else f.lower
        most = f.lower if self.upper < 0 else f.upper
        lower, upper = mul_down(self.lower, least), mul_up(self.upper, most)
        return Bounds(lower, upper, apart=self.apart)

    __rmul__ = __mul__

    def meet(self, other: Bounds) -> Bounds:
        """Bounds of one number of which both hold: the larger lower one, the smaller upper one."""
        lower, upper = max(self.lower, other.lower), min(self.upper, other.upper)
        return Bounds(lower, upper, apart=_together(self, other))

    @staticmethod
    def worst(each: Iterable[Bounds]) -> Bounds:
        """Bounds of the largest of several numbers, from the bounds of each, at least one."""
        numbers = list(each)
        said = "; ".join(dict.fromkeys(one.apart for one in numbers if one.apart))
        lower, upper = max(one.lower for one in numbers), max(one.upper for one in numbers)
        return Bounds(lower, upper, apart=said)  # guard: worse-direction-counts

    def decides(self, target: float | None) -> bool:
        """Whether the number is known to be at most ``target``, or known to be above it.

        False where ``target`` is None.
        """
        return target is not None and (self.upper <= target or self.lower > target)

    def overlaps(self, other: Bounds) -> bool:
        """Whether the two intervals have a number in common."""
        return self.lower <= other.upper and other.lower <= self.upper

    def to_dict(self) -> dict[str, Any]:
        """Returns ``{"lower": ..., "upper": ...}``, with ``"apart"`` where that says something."""
        said = {"apart": self.apart} if self.apart else {}
        return {"lower": self.lower, "upper": self.upper, **said}

    def __str__(self) -> str:
        if self.lower == self.upper:
            return f"[{self.lower!r}, {self.upper!r}]"
        digits, said = _digits(self), f" (apart: {self.apart})" if self.apart else ""
        lower, upper = rounded(self.lower, digits, up=False), rounded(self.upper, digits, up=True)
        return f"[{lower}, {upper}]{said}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Writes the bounds and their relative gap, for a notebook."""
        gap = f"relative gap {rounded(self.relative_gap, 2, up=True)}"
        return notebook.shown(self, " ", notebook.muted(gap))

    def __format__(self, spec: str) -> str:
        """Writes both bounds as a format for floats says, rounded outwards.

        With a precision or a kind, the two numbers are all that is written.

        Guarantee: the interval that is written contains this one. Without a precision and a kind,
        equal bounds are written as their double, of which the decimal digits are the nearest ones.

        Args:
            spec: a format for a float. Fill, alignment and width are those of the whole text, as
                for complex numbers; no zeros are padded.

        Raises:
            ParameterError: ``spec`` is no such format.
        """
        asked = _FORMAT.fullmatch(spec)
        if asked is None:
            raise refuse("format", "be a format for floats, such as .3f or >24.6g", spec)
        whole = f"{asked['fill'] or ''}{asked['align'] or ''}{asked['width']}"
        kind, given = asked["kind"], asked["precision"]
        if kind or given is not None:
            precision = 6 if given is None else int(given)
            low, high = (
                _written(end, kind or "g", precision, f"{asked['sign']}{asked['group']}", up=up)
                for end, up in ((self.lower, False), (self.upper, True))
            )
            return format(f"[{low}, {high}]", whole)
        return format(str(self), whole)


def _together(one: Bounds, other: Bounds) -> str:
    """Says why the bounds of a sum are apart: for the reasons of both, each of them once."""
    return "; ".join(dict.fromkeys(said for said in (one.apart, other.apart) if said))


def _is_number(x: object) -> bool:
    """Says whether ``x`` is a real number of Python or NumPy; a bool is none."""
    exact = plain(x)
    return isinstance(exact, (int, float, Fraction, Decimal)) and not isinstance(exact, bool)


def _two_numbers(bounds: Bounds, kind: str) -> ParameterError:
    """Makes the refusal to take two bounds for one number."""
    up, down = ("math.ceil", "math.floor") if kind == "int" else (kind, kind)
    return ParameterError(
        f"{bounds} are two bounds and not one {kind}: write {up}(bounds.upper), which is certified "
        f"to be at least the exact value, or {down}(bounds.lower), which is at most it"
    )


def _written(x: float, kind: str, precision: int, layout: str, *, up: bool) -> str:
    """Writes ``x`` as a float of this format is written, but rounded up or down.

    Args:
        x: the number.
        kind: the type of the format: "e", "E", "f", "F", "g", "G" or "%".
        precision: the number of digits that the format asks for.
        layout: the sign and the grouping in the format.
        up: the direction of the rounding.
    """
    if not math.isfinite(x):
        return format(x, layout)
    general, fixed = kind in "gG", kind in "fF%"
    exact, digits = Decimal(x), max(precision, 1) if general else precision + 1
    # the digits of a double: at most 309 before the point and 1074 after it
    with localcontext(prec=1400 + precision):
        exact = exact.scaleb(2) if kind == "%" else exact
        place = -precision if fixed else exact.adjusted() - digits + 1
        direction = ROUND_CEILING if up else ROUND_FLOOR  # guard: format-rounds-outwards
        value = exact.quantize(Decimal((0, (1,), place)), rounding=direction)
        if general:  # without trailing zeros, and with an exponent only for large and small numbers
            fixed, value = not value or -5 < value.adjusted() < digits, value.normalize()
        if fixed:
            return format(value, f"{layout}f") + "%" * (kind == "%")
        precise = "" if general else f".{precision}"
        mantissa, _, exponent = format(value, f"{layout}{precise}e").partition("e")
    text = f"{mantissa}e{int(exponent):+03d}"
    return text.upper() if kind.isupper() else text


def _as_bounds(x: Bounds | float) -> Bounds:
    return x if isinstance(x, Bounds) else Bounds(x, x)


def _end(*, up: bool, **given: Any) -> float:
    """Rounds a number of any type to a float: to one >= the number if ``up``, else to one <= it.

    ``given`` is one keyword, ``name=value``; a refusal quotes both.
    """
    ((name, value),) = given.items()
    exact = plain(value)
    if isinstance(exact, bool) or not isinstance(exact, (int, float, Fraction, Decimal)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    x = number(**given)
    if isinstance(exact, float) or not math.isfinite(x):
        return x
    if up:
        return x if x >= Fraction(exact) else next_up(x)
    return x if x <= Fraction(exact) else next_down(x)


def _digits(bounds: Bounds) -> int:
    """Counts the decimal digits that are printed of each bound, so that the gap shows in the last.

    At least four are printed: of bounds that are far apart each is known by itself, and two digits
    would print 2.81 as 2.8. 17 digits tell any two doubles apart; an infinite upper bound prints
    beside six digits.
    """
    width = bounds.upper - bounds.lower
    if not math.isfinite(width):
        return 6
    magnitude = max(abs(bounds.lower), abs(bounds.upper))
    return (
        min(17, max(_LEAST_DIGITS, math.ceil(math.log10(magnitude / width)) + 1)) if width else 17
    )


def rounded(x: float, digits: int, *, up: bool) -> str:
    """Writes ``x`` with ``digits`` significant digits, rounded up or down and never to nearest."""
    if not math.isfinite(x) or x == 0:
        return repr(x)
    exact = Decimal(x)
    quantum = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = exact.quantize(quantum, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    if -5 < exact.adjusted() < 16:  # where repr of a float has no exponent either
        return format(rounded, "f") if exact.adjusted() < digits else str(float(rounded))
    mantissa, _, exponent = f"{rounded:e}".partition("e")
    return f"{mantissa}e{int(exponent):+03d}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number that is *not* certified, and that no budget can be charged with.

    Attributes:
        value: the number.
        method: where it comes from.
    """

    value: float
    method: str

    def __post_init__(self) -> None:
        if isinstance(self.value, (bool, np.bool_)):
            raise refuse("value", "be a number", self.value)
        object.__setattr__(self, "value", float(plain(self.value)))

    def __str__(self) -> str:
        return f"about {self.value:.6g} ({self.method}, not certified)"
