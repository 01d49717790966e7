"""Operations on texts, by code points, and on dates and timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tightbudget.tables.rules.magnitudes import Magnitudes
from tightbudget.tables.rules.reader import Operation, Reader
from tightbudget.tables.rules.values import Value


def _test(method: str, arg: str, other: str) -> Operation:
    """Returns a test of a text for another one, which is written in the rule and not empty.

    Args:
        method: of Ibis.
        arg: the name that Ibis's operation has for the text.
        other: its name for the text to look for.
    """

    def read(row: Reader, op: Any) -> Value:
        sought = getattr(op, other)
        if not row.literal(sought, op, str):
            raise row.refusal(op, "the text to look for must not be empty")
        found = getattr(_text(row, op, getattr(op, arg)), method)(row(sought).expression)
        return Value(found, "boolean")

    return read


def _length(row: Reader, op: Any) -> Value:
    """The number of code points of a text."""
    length = _text(row, op, op.arg).length().cast("int64")
    return Value(length, "integer", Magnitudes.of(40, 0, 0))


def _substring(row: Reader, op: Any) -> Value:
    """The code points of a text from one position on, both written in the rule."""
    start, length = row.literal(op.start, op, int), row.literal(op.length, op, int)
    return _part_of(row, op, op.arg, start, length)


def _slice(row: Reader, op: Any) -> Value:
    """The code points of a text between two positions that are written in the rule."""
    start = 0 if op.start is None else row.literal(op.start, op, int)
    return _part_of(row, op, op.arg, start, row.literal(op.end, op, int) - start)


def _part_of(row: Reader, op: Any, arg: Any, start: int, length: int) -> Value:
    """Returns part of a text, by code points."""
    if start < 0 or length < 0 or start + length >= 2**31:
        raise row.refusal(op, "its positions must be in [0, 2^31), in ascending order")
    return Value(_text(row, op, arg).substr(start, length), "string")


def _text(row: Reader, op: Any, arg: Any) -> Any:
    """Reads an operand that is a text."""
    value = row(arg)
    if value.kind != "string":
        raise row.refusal(op, f"it is of a {value.kind}: give a text")
    return value.expression


def _date_part(part: Callable[[Any], Any]) -> Operation:
    """Returns a number that is read from a date or timestamp."""

    def read(row: Reader, op: Any) -> Value:
        number = part(_moment(row, op, "date")).cast("int64")
        return Value(number, "integer", Magnitudes.of(14, 0, 0))

    return read


def _date(row: Reader, op: Any) -> Value:
    """The day of a timestamp."""
    return Value(_moment(row, op, "timestamp").date(), "date")


def _moment(row: Reader, op: Any, wanted: str) -> Any:
    """Reads an operand that is a date or a timestamp."""
    value = row(op.arg)
    if value.kind not in ("date", "timestamp", "nanoseconds", "moment"):
        raise row.refusal(op, f"it is of a {value.kind}: give a {wanted}")
    return value.expression


# Operations by the names of their classes in Ibis.
TEXTS_AND_DATES: Mapping[str, Operation] = {
    "StringContains": _test("contains", "haystack", "needle"),
    "StartsWith": _test("startswith", "arg", "start"),
    "EndsWith": _test("endswith", "arg", "end"),
    "StringLength": _length,
    "Substring": _substring,
    "StringSlice": _slice,
    "Date": _date,
    "ExtractYear": _date_part(lambda x: x.year()),
    "ExtractQuarter": _date_part(lambda x: x.quarter()),
    "ExtractMonth": _date_part(lambda x: x.month()),
    "ExtractDay": _date_part(lambda x: x.day()),
    "ExtractHour": _date_part(lambda x: x.hour()),
    "ExtractMinute": _date_part(lambda x: x.minute()),
    "DayOfWeekIndex": _date_part(lambda x: x.day_of_week.index()),
}
