"""Checks of arguments, and their refusals by name and value; a NaN fails every check by itself.

Each function takes exactly one keyword, ``name=value``, and returns the value as a
plain Python number: ``sigma = positive(sigma=sigma)``. Numbers of NumPy, and subclasses of int or
float, count in their own way (``np.uint8(200) + 100`` is 44), so none of them is computed with:
a class that keeps what it was given is decorated with :func:`plain_numbers`.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from tightbudget.credentials import hidden
from tightbudget.errors import ParameterError
from tightbudget.numerics.rounding import FloatArray

T = TypeVar("T")
P = ParamSpec("P")


def plain(value: Any) -> Any:
    """Converts a number of any type to the int, float, Fraction or Decimal of the same value.

    Anything else is returned unchanged, also a bool, which is no number here; the entries of a
    tuple or list are converted. np.float64 becomes its float. Other floats of NumPy (np.float16,
    np.float32) stand for their exact value: a float if the float prints as this value, else a
    Fraction.
    """
    kind = type(value)
    if kind in (int, float, str) or value is None:
        return value
    if kind in (tuple, list):
        return kind(map(plain, value))
    if isinstance(value, (bool, np.bool_)):
        return value
    if isinstance(value, (int, np.integer)):
        return operator.index(value)  # guard: integers-plain
    if isinstance(value, float):
        return float.__float__(value)  # guard: floats-plain
    if isinstance(value, np.floating):
        if not np.isfinite(value):
            return float(value)
        exact, near = Fraction(*value.as_integer_ratio()), float(value)
        # guard: short-floats-exact
        return near if math.isfinite(near) and Fraction(repr(near)) == exact else exact
    if isinstance(value, Fraction):  # its parts, too, may be NumPy's
        # guard: fraction-parts-plain
        return Fraction(operator.index(value.numerator), operator.index(value.denominator))
    return Decimal(value) if isinstance(value, Decimal) else value


def renamed(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function: it refuses an old name of an argument, and says the new one.

    Args:
        names: the new name of each old one.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*given: P.args, **named: P.kwargs) -> T:
            for old, now in names.items():
                if old in named:
                    raise ParameterError(f"{old} is {now} now")
            return function(*given, **named)

        return call

    return decorate


def plain_numbers(kind: type[T]) -> type[T]:
    """Decorates a class: its ``__init__`` receives each number converted by :func:`plain`."""
    construct: Callable[..., None] = kind.__init__

    @functools.wraps(construct)
    def plainly(self: T, *given: Any, **named: Any) -> None:
        construct(self, *map(plain, given), **{name: plain(value) for name, value in named.items()})

    setattr(kind, "__init__", plainly)  # noqa: B010 (mypy refuses the assignment)
    return kind


def first_by_position(function: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function of one positional argument: more of them are refused with their names.

    The names are those of the parameters that follow, so that the refusal says what to write.
    """
    first, *rest = inspect.signature(function).parameters

    @functools.wraps(function)
    def named(*args: P.args, **keywords: P.kwargs) -> T:
        if len(args) > 1:
            given = zip(rest, args[1:], strict=False)
            written = ", ".join(f"{name}={value!r}" for name, value in given)
            raise ParameterError(
                f"{function.__name__} takes {first} by position and the rest by name: "
                f"write {function.__name__}({first}, {written})"
            )
        return function(*args, **keywords)

    return named


def real_array(value: Any) -> NDArray[Any] | None:
    """Reads an array, or lists of lists, of numbers; None if anything else is among them.

    NumPy alone would read numbers out of texts and booleans, and ask a subclass of float its value.
    """
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.tolist()
    try:
        array = np.asarray(_floats(value))
    except (TypeError, ValueError, OverflowError):
        return None
    return array if array.dtype.kind in "iuf" else None


def _floats(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [x if type(x) is float else _floats(x) for x in value]
    if isinstance(value, (bool, np.bool_)):
        raise TypeError("a bool is no number here")
    value = plain(value)
    return float(value) if isinstance(value, (Fraction, Decimal)) else value


def refuse(name: str, must: str, value: object) -> ParameterError:
    """Makes the refusal ``name must <must>, got <value>``, which the caller raises.

    A text that writes a percentage is answered with the number to write in its place. Passwords and
    tokens of a value are shown as ``***``.
    """
    shown = hidden(repr(value))  # guard: credentials-hidden
    if len(shown) > 80:
        shown = shown[:77] + "..."
    percent = value[:-1].strip() if isinstance(value, str) and value.endswith("%") else ""
    percent = percent if writes_number(percent) else ""
    hundredth = _hundredth(percent) if percent and percent[-1].isdigit() else 0.0
    hint = f" (write {hundredth})" if 0.0 < abs(hundredth) < math.inf else ""
    return ParameterError(f"{name} must {must}, got {shown}{hint}")


def _hundredth(percent: str) -> float:
    """Reads a hundredth of the number that a text writes, as a double; 0 beyond all decimals."""
    try:
        return float(Decimal(percent) / 100)
    except ArithmeticError:
        return 0.0


# decimal digits are those of ASCII: other scripts' digits and underscores read as another number
_NUMBER = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?inf(?:inity)?|[+-]?nan",
    re.IGNORECASE | re.ASCII,
)


def writes_number(text: str) -> bool:
    """Whether a text writes a number: digits 0 to 9 with a point and an exponent, inf or nan.

    Python's own ``int`` and ``float`` also take underscores, blanks, and the digits of all scripts.
    """
    return _NUMBER.fullmatch(text) is not None


def float_of(text: str) -> float:
    """Reads the double nearest to the number that a text writes (see :func:`writes_number`).

    Raises:
        ValueError: the text writes no number.
    """
    if not writes_number(text):
        raise ValueError(f"{text!r} writes no number")
    return float(text)


_QUOTIENT = re.compile(r"([0-9]{1,300})/([0-9]{1,300})", re.ASCII)


def quotient_of(text: str) -> Fraction | None:
    """Reads a quotient of two integers, such as 256/60000; None if a text writes none."""
    found = _QUOTIENT.fullmatch(text)
    if found is None or not int(found[2]):
        return None
    return Fraction(int(found[1]), int(found[2]))


def nearest(x: Fraction) -> float:
    """Returns the double nearest to a fraction >= 0; inf if it is above all doubles."""
    try:
        return float(x)
    except OverflowError:
        return math.inf


def _named(given: dict[str, Any]) -> tuple[str, Any]:
    ((name, value),) = given.items()
    return name, value


def _real(name: str, value: Any, must: str) -> float:
    # bool is an int in Python, and a string can be turned into a float: neither is a number here
    if isinstance(value, (bool, np.bool_, str, bytes)) or value is None:
        raise refuse(name, must, value)
    if isinstance(value, (complex, np.complexfloating)):
        raise refuse(name, must, value)
    try:
        return float(plain(value))
    except (TypeError, ValueError, OverflowError):
        raise refuse(name, must, value) from None


def _checked(given: dict[str, Any], must: str, test: Callable[[float], bool]) -> float:
    name, value = _named(given)
    x = _real(name, value, must)
    if not test(x):
        raise refuse(name, must, value)
    return x


def number(**given: Any) -> float:
    """Accepts a real number or +-inf, but not NaN."""
    return _checked(given, "be a number", lambda x: not math.isnan(x))


def finite(**given: Any) -> float:
    """Accepts a finite real number."""
    return _checked(given, "be a finite number", math.isfinite)


def positive(**given: Any) -> float:
    """Accepts a finite number > 0."""
    return _checked(given, "be a finite number > 0", lambda x: 0 < x < math.inf)


def non_negative(**given: Any) -> float:
    """Accepts a finite number >= 0."""
    return _checked(given, "be a finite number >= 0", lambda x: 0 <= x < math.inf)


def probability(**given: Any) -> float:
    """Accepts a number in [0, 1]."""
    return _checked(given, "be in [0, 1]", lambda x: 0 <= x <= 1)


def open_probability(**given: Any) -> float:
    """Accepts a number in (0, 1)."""
    return _checked(given, "be in (0, 1)", lambda x: 0 < x < 1)


def _integer(name: str, value: Any, must: str) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise refuse(name, must, value)
    try:
        return operator.index(value)
    except TypeError:
        raise refuse(name, must, value) from None


def count(**given: Any) -> int:
    """Accepts an integer >= 0; floats are refused, also whole ones."""
    name, value = _named(given)
    must = "be an integer >= 0"
    n = _integer(name, value, must)
    if n < 0:
        raise refuse(name, must, value)
    return n


def positive_count(**given: Any) -> int:
    """Accepts an integer >= 1; floats are refused, also whole ones."""
    name, value = _named(given)
    must = "be an integer >= 1"
    n = _integer(name, value, must)
    if n < 1:
        raise refuse(name, must, value)
    return n


def listed(**given: Any) -> None:
    """Refuses a single number, or none, where a list of numbers is wanted."""
    name, value = _named(given)
    alone = plain(value)
    if isinstance(alone, (int, float, Fraction, Decimal)):
        raise ParameterError(f"{name} must be a list of numbers, got {alone!r}: write [{alone!r}]")
    if isinstance(alone, str) or not isinstance(alone, Iterable):
        raise refuse(name, "be a list of numbers", value)


def one_of(options: tuple[Any, ...], **given: Any) -> Any:
    """Accepts a value that is one of ``options``."""
    name, value = _named(given)
    if value not in options:
        raise refuse(name, "be one of " + ", ".join(map(str, options)), value)
    return value


def masses(*, normalised: bool = True, **given: Any) -> FloatArray:
    """Accepts a non-empty one-dimensional array of finite numbers >= 0, not all zero.

    With ``normalised`` the array must also sum to 1 within 1e-9, which leaves room for masses that
    were rounded when they were written down.

    Returns:
        (n,) a read-only copy.
    """
    name, value = _named(given)
    must = "be a non-empty one-dimensional array of finite numbers >= 0"
    numbers = real_array(value)
    if numbers is None:
        raise refuse(name, must, value)
    array = np.array(numbers, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise refuse(name, must, value)
    bad = ~((array >= 0) & np.isfinite(array))
    if bad.any():
        i = int(np.argmax(bad))
        raise refuse(f"{name}[{i}]", "be a finite number >= 0", float(array[i]))
    total = math.fsum(array)
    if total == 0:
        raise refuse(f"sum({name})", "be > 0", total)
    if normalised and not abs(total - 1) <= 1e-9:
        raise refuse(f"sum({name})", "be 1 (within 1e-9)", total)
    array.setflags(write=False)
    return array


def in_double_range(**given: float) -> None:
    """Accepts a quotient in [1e-100, 1e12], and refuses the others by name.

    In this range the quotient's square, and sums of such squares, are far from the ends of the
    range of doubles.
    """
    ((name, value),) = given.items()
    if not 1e-100 <= value <= 1e12:
        raise refuse(name, "be in [1e-100, 1e12]", value)
