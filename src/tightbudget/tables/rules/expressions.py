"""Expressions of Ibis that are total, and the same on every engine, of numbers and dates."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from tightbudget.errors import ExtraError, ParameterError

# The type in which engines compare integers beyond int64 exactly.
WIDE = "decimal(38, 0)"


def import_ibis() -> Any:
    """Imports Ibis.

    Raises:
        ExtraError: it is not installed.
    """
    try:
        return importlib.import_module("ibis")
    except ImportError as error:
        raise ExtraError("tables need Ibis: pip install 'tightbudget[data]'") from error


def cases(*parts: Any) -> Any:
    """Returns the result of the first condition that is true; the last part is the default."""
    *first, default = parts if not isinstance(parts[-1], tuple) else (*parts, None)
    return import_ibis().cases(*first, else_=default)


def double(x: float) -> Any:
    """Returns the expression of a double.

    It is written as a text: engines read 0.1 in a query as a decimal, with which arithmetic may be
    exact, rounded otherwise, or overflow.
    """
    return import_ibis().literal(repr(float(x))).cast("float64")  # guard: literals-are-doubles


def integer(n: int) -> Any:
    """Returns the expression of an int64, written as a text (see :func:`double`)."""
    return import_ibis().literal(str(n)).cast("int64")


def null_double() -> Any:
    """Returns the expression of a missing double."""
    return import_ibis().null("float64")


def as_double(value: Any) -> Any:
    """Returns a number of any type as a double; NaN stays NaN."""
    kind = value.type()
    if kind.is_boolean():
        return number_of_truth(value)
    return value if kind.is_float64() else value.cast("float64")


def double_of(value: Any) -> Any:
    """Returns a number of any type as a double; NaN becomes NULL."""
    x, kind = as_double(value), value.type()
    if not (kind.is_integer() or kind.is_boolean()):  # a decimal of PostgreSQL may be NaN, too
        x = cases((x.isnan(), null_double()), x)  # guard: nan-is-missing
    return x


def whole(value: Any) -> Any:
    """Returns an integer as a decimal of 38 digits; NaN, which PostgreSQL has, is NULL."""
    wide = value.cast(WIDE)  # guard: wide-integers-exact
    if value.type().is_integer():
        return wide
    return cases((wide.cast("float64").isnan(), import_ibis().null(WIDE)), wide)


def number_of_truth(truth: Any) -> Any:
    """Returns a truth value as a double: 1, 0, or NULL."""
    return cases((truth, double(1.0)), (~truth, double(0.0)))


def floor(x: Any) -> Any:
    """Returns the floor of a double as a double, where Ibis would make an int64 of it."""
    return _floor()(x)


@cache
def _floor() -> Any:
    ibis = import_ibis()

    @ibis.udf.scalar.builtin(name="floor", signature=(("float64",), "float64"))  # type: ignore[untyped-decorator]
    def floor(x: Any) -> Any: ...

    return floor


def not_zero(x: Any) -> Any:
    """Returns a divisor; NULL where it is 0."""
    return x.nullif(double(0.0))  # guard: no-division-by-zero


def not_negative(x: Any) -> Any:
    """Returns a number; NULL where it is negative."""
    return cases((x >= double(0.0), x))  # guard: no-root-of-negatives


def usual_dates(x: Any, known: str) -> Any:
    """Returns a date or timestamp; NULL outside of the years 1 to 9999, also for infinite ones.

    A timestamp of nanoseconds is kept within the years 1700 to 2260. The parts of other dates
    differ between engines, and some engines fail for them.
    """
    spans = {
        "date": ("0001-01-01", "9999-12-31"),
        "timestamp": ("0001-01-01T00:00:00", "9999-12-31T23:59:59"),
        "nanoseconds": ("1700-01-01T00:00:00", "2261-01-01T00:00:00"),
    }
    first, last = (import_ibis().literal(one, x.type()) for one in spans[known])
    # guard: usual-dates
    return cases(((x >= first) & (x <= last), x))


def usual_date(value: Any) -> Any:
    """Returns an Ibis expression of dates; NULL outside of the years 1 to 9999."""
    return usual_dates(value, "date")


def usual_timestamp(value: Any) -> Any:
    """Returns an Ibis expression of timestamps; NULL outside of the years 1 to 9999."""
    return usual_dates(value, "timestamp")


def check_number(value: Any, name: str) -> None:
    """Refuses an expression that is no number, or whose doubles an engine may fail to make."""
    kind = value.type()
    if kind.is_decimal() and (kind.precision is None or kind.scale is None):
        raise ParameterError(
            f"{name} must be a column of numbers of known size, got {kind}: declare how many "
            "digits it has, say NUMERIC(18, 2)"
        )
    if not (kind.is_numeric() or kind.is_boolean()):
        column = getattr(value.op(), "name", "column")
        raise ParameterError(
            f"{name} must be a column of numbers, got one of type {kind}"
            + (f': t.{column}.try_cast("float64") reads texts as numbers' * kind.is_string())
        )
