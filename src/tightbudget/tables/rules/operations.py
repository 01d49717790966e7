"""The operations that a rule may be made of; one that is not in this table is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.tables.rules.arithmetic import ARITHMETIC
from tightbudget.tables.rules.conditions import CONDITIONS
from tightbudget.tables.rules.expressions import (
    WIDE,
    cases,
    check_number,
    double,
    double_of,
    import_ibis,
    integer,
    null_double,
    usual_dates,
    whole,
)
from tightbudget.tables.rules.magnitudes import INTEGER, TRUTH, WIDE_INTEGER, magnitude
from tightbudget.tables.rules.reader import Operation, Reader
from tightbudget.tables.rules.texts_and_dates import TEXTS_AND_DATES
from tightbudget.tables.rules.values import Value


def _field(row: Reader, op: Any) -> Value:
    """A column of the table itself."""
    row.check_own(op)
    kind, x = op.dtype, op.to_expr()
    if kind.is_boolean():
        return Value(x, "boolean")
    if kind.is_integer() and not kind.is_uint64():
        return Value(x.cast("int64"), "integer", INTEGER)
    if kind.is_uint64():
        return Value(whole(x), "wide integer", WIDE_INTEGER)
    if kind.is_decimal() and kind.scale == 0 and kind.precision is not None:
        return Value(whole(x), "wide integer", WIDE_INTEGER)
    if kind.is_floating() or kind.is_decimal():
        check_number(x, row.name)
        return Value(double_of(x), "double")
    if kind.is_string():
        return Value(x, "string")
    if kind.is_date() or (kind.is_timestamp() and kind.timezone is None):
        fine = kind.is_timestamp() and (kind.scale or 0) > 6
        known = "date" if kind.is_date() else "nanoseconds" if fine else "timestamp"
        return Value(usual_dates(x, known), known)
    raise ParameterError(f"{row.name} must not look at columns of type {kind}, got {op.name!r}")


def _literal(row: Reader, op: Any) -> Value:
    """A value that is written in the rule."""
    ibis, value, kind = import_ibis(), op.value, op.dtype
    if value is None:
        return Value(ibis.null(), "null")
    if isinstance(value, (bool, np.bool_)):
        return Value(ibis.literal(bool(value)), "boolean")
    if kind.is_integer() and -(2**63) <= int(value) < 2**63:
        return Value(integer(int(value)), "integer", magnitude(float(value), exact=int(value)))
    if kind.is_decimal() and kind.scale == 0:
        value = int(value)
    if isinstance(value, int) and abs(value) < 10**38:
        # written as a text, which every engine reads exactly
        return Value(
            ibis.literal(str(value)).cast(WIDE), "wide integer", magnitude(value, exact=value)
        )
    if kind.is_numeric():
        x = float(value)
        if not math.isfinite(x):
            raise refuse(row.name, "have finite numbers", x)
        return Value(double(x), "double", magnitude(x))
    if kind.is_string():
        if "\0" in value or not _encodes(value):
            raise refuse(row.name, "have texts of Unicode without the character 0", value)
        row.check_text(value)
        return Value(ibis.literal(value), "string")
    if kind.is_date() or (kind.is_timestamp() and kind.timezone is None):
        if kind.is_date():
            return Value(ibis.literal(value, kind), "date")
        row.check_moment(value)
        return Value(ibis.literal(value, kind), "moment")
    raise ParameterError(f"{row.name} must not have values of type {kind}")


def _alias(row: Reader, op: Any) -> Value:
    """A name for an expression, which changes nothing."""
    return row(op.arg)


def _cast(row: Reader, op: Any) -> Value:
    """A change of type that no record can make fail, and that rounds nowhere but to a double."""
    value, to = row(op.arg), op.to
    if to.is_float64() and value.kind in ("integer", "wide integer", "double", "boolean", "null"):
        return value.double()
    if to.is_int64() and value.kind in ("integer", "null"):
        return Value(value.as_kind("integer"), "integer", value.range)
    if to.is_int64() and value.kind == "boolean":
        truth = value.expression
        number = cases((truth, integer(1)), (~truth, integer(0)))
        return Value(number, "integer", TRUTH)
    kinds = {"boolean": to.is_boolean(), "string": to.is_string(), "date": to.is_date()}
    if kinds.get(value.kind):
        return value
    raise row.refusal(
        op,
        f"a {value.kind} is not made a {to} without an error or a choice of rounding: use floor() "
        'for integers, and try_cast("float64") for texts',
    )


def _try_cast(row: Reader, op: Any) -> Value:
    """A text as a number, NULL where the engine reads none; else as a cast."""
    value, to = row(op.arg), op.to
    if value.kind != "string":
        return _cast(row, op)
    row.check_try_cast()
    if not to.is_float64():
        raise row.refusal(op, 'a text becomes a number by try_cast("float64") alone')
    x = value.expression.try_cast("float64")
    return Value(cases((x.isnan(), null_double()), x), "double")


def _encodes(text: str) -> bool:
    """Whether a text can be written in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# Operations by the names of their classes in Ibis.
OPERATIONS: Mapping[str, Operation] = {
    "Field": _field,
    "Literal": _literal,
    "Alias": _alias,
    "Cast": _cast,
    "TryCast": _try_cast,
    **ARITHMETIC,
    **CONDITIONS,
    **TEXTS_AND_DATES,
}
