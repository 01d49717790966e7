"""Columns: which types a question may use, for what, and the form that each is brought to.

Every column that a question uses is brought to a form in which equality, order and functions of
texts are those of one definition on every engine, and cannot fail for any value; or the column is
refused by its type, before a budget is touched. A type that :data:`KINDS` does not name is refused.
Types are those that a catalog tells, and never those that records have.

Why: where an engine holds two values for equal that Python tells apart, one record may name the
group of all others, and a group of 100 rows counts as 0. Where a function of a value can fail, an
error says that a record is there.

The form is made once, by the projection in which a table is opened: all that asks rows, rules too,
sees the form alone.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse

# The one column of a table of which no column is let in.
ROW = "tightbudget_row"
# Columns of queries that are not the table's own have names that begin so.
OWN = "tightbudget_"
# A row_id has the role of a unit: its equality decides which rows are one.
Role = Literal["unit", "public key", "secret key", "join", "number", "rule"]


@dataclass(frozen=True, kw_only=True)
class ColumnKind:
    """A kind of columns.

    Attributes:
        types: the names of its types as Ibis writes them, a regular expression.
        form: what its values are brought to, in words.
        roles: what a column of this kind may be used for.
        key: makes a public key one of the form's values; raises ValueError with what a key must be.
    """

    types: str
    form: str
    roles: frozenset[Role]
    key: Callable[[str, Any], Any] | None = None


def _integer(kind: str, key: Any) -> Any:
    """Returns an integer that the type has."""
    bits, signed = int(kind.lstrip("uint")), kind.startswith("int")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    # an engine may fail at a number that its type has not, when the budget is already spent
    if type(key) is not int or not low <= key <= high:
        raise ValueError(f"have keys of the column's type, {kind} (integers from {low} to {high})")
    return key


def _truth(kind: str, key: Any) -> Any:
    """Returns a truth value."""
    if type(key) is not bool:
        raise ValueError(f"have keys of the column's type, {kind} (True and False)")
    return key


def _text(kind: str, key: Any) -> Any:
    """Returns a text that every engine can be asked for."""
    if type(key) is not str:
        raise ValueError(f"have keys of the column's type, {kind} (texts)")
    if "\0" in key or any("\ud800" <= c <= "\udfff" for c in key):
        raise ValueError("have texts of Unicode without the character 0")
    if kind.startswith("char") and key.endswith(" "):
        raise ValueError(f"have keys without blanks at their end, as the column's type is {kind}")
    return key


def _uuid(kind: str, key: Any) -> Any:
    """Returns the text of a UUID, with small letters."""
    try:
        return str(key if isinstance(key, UUID) else UUID(key))
    except (ValueError, AttributeError, TypeError):
        raise ValueError("have keys of the column's type, uuid (UUIDs, or their texts)") from None


def _date(kind: str, key: Any) -> Any:
    """Returns a date, which may be given as its text."""
    if type(key) is datetime.date:
        return key
    try:
        return datetime.date.fromisoformat(key)
    except (ValueError, TypeError):
        must = "have keys of the column's type, date (dates, or texts like '2026-01-31')"
        raise ValueError(must) from None


def _timestamp(kind: str, key: Any) -> Any:
    """Returns a timestamp without a time zone, no finer than its type."""
    found = key
    if type(key) is str:
        with contextlib.suppress(ValueError):
            found = datetime.datetime.fromisoformat(key)
    digits = re.fullmatch(r"timestamp\((\d)\)", kind)
    finest = 10 ** max(0, 6 - (int(digits[1]) if digits else 6))
    if not (
        isinstance(found, datetime.datetime)
        and found.tzinfo is None
        and found.microsecond % finest == 0
        and not getattr(found, "nanosecond", 0)  # of pandas
    ):
        raise ValueError(
            f"have keys of the column's type, {kind} (timestamps without a time zone and no finer "
            "than the column, or texts like '2026-01-31T12:00:00')"
        )
    return datetime.datetime(*found.timetuple()[:6], found.microsecond)


_ALL: frozenset[Role] = frozenset(("unit", "public key", "secret key", "join", "rule"))

#: The types that are let in, and what each may be used for.
KINDS: Mapping[str, ColumnKind] = {
    "integers": ColumnKind(
        types=r"u?int(8|16|32|64)", form="as they are", roles=_ALL | {"number"}, key=_integer
    ),
    "truth values": ColumnKind(
        types="boolean", form="as they are", roles=_ALL | {"number"}, key=_truth
    ),
    "texts": ColumnKind(
        types=r"string(\(\d+\))?",
        form="texts of UTF-8 that are compared byte by byte, whatever the column's collation",
        roles=_ALL,
        key=_text,
    ),
    "padded texts": ColumnKind(
        types=r"char\(\d+\)",
        form="texts without the blanks at their end, compared byte by byte",
        roles=_ALL,
        key=_text,
    ),
    "UUIDs": ColumnKind(types="uuid", form="texts with small letters", roles=_ALL, key=_uuid),
    "dates": ColumnKind(types="date", form="as they are", roles=_ALL, key=_date),
    "timestamps": ColumnKind(
        types=r"timestamp(\([0-6]\))?",
        form="as they are; outside of the years 1 to 9999 they are missing",
        roles=_ALL - {"secret key"},
        key=_timestamp,
    ),
    "timestamps of nanoseconds": ColumnKind(
        types=r"timestamp\([7-9]\)",
        form="as they are",
        roles=frozenset(("unit", "join", "rule")),  # nor nanoseconds
    ),
    "timestamps with a time zone": ColumnKind(
        types=r"timestamp\('.*", form="as they are", roles=frozenset(("unit", "join"))
    ),
    "floating-point numbers": ColumnKind(
        types=r"float(16|32|64)", form="as they are", roles=frozenset(("join", "number", "rule"))
    ),
    "decimals": ColumnKind(
        types=r"decimal\(\d+, \d+\)",
        form="as they are, of at most 38 digits",
        roles=frozenset(("join", "number", "rule")),
    ),
    "huge integers": ColumnKind(
        types="hugeint",  # of DuckDB, whose sums have it; Ibis calls it a decimal of 38 digits
        form="decimals of 38 digits; those of 39 digits are missing",
        roles=frozenset(("number", "rule")),
    ),
    # an array of NumPy without a type, which no catalog tells and no engine reads
    "objects": ColumnKind(
        types="object",
        form="what can be hashed, compared and written, else missing",
        roles=_ALL | {"number"},
        key=lambda kind, key: key,
    ),
}
# DuckDB reads them as microseconds, and fails at one that has too many of them.
MILLISECONDS = "timestamp of milliseconds in Parquet"
# An engine may fail to make a double of a decimal with more digits.
_DIGITS = 38


def kind_of(kind: str) -> ColumnKind | None:
    """Returns the kind of a type by its whole name; None for a type that is not let in."""
    for known in KINDS.values():
        if re.fullmatch(known.types, kind):
            return None if kind.startswith("decimal") and not _small(kind) else known
    return None


def _small(kind: str) -> bool:
    """Says whether a decimal has few digits, of which no more are behind the point than in all."""
    digits, scale = (int(number) for number in re.findall(r"\d+", kind))
    return scale <= digits <= _DIGITS


def why(kind: str) -> str:
    """Says what to do about a type that is not let in, as the end of a refusal."""
    if kind == MILLISECONDS:
        return ": DuckDB fails at one that is too far away; write microseconds into the file"
    if kind.startswith("decimal"):
        return f": declare how many digits it has, at most {_DIGITS}, say NUMERIC(18, 2)"
    return ": cast it to a type that is let in, in a view or a frame"


def check_role(columns: Mapping[str, str], argument: str, name: str, role: Role) -> None:
    """Refuses a column whose type does not serve a role.

    Args:
        columns: from names to types.
        argument: what the column was given as.
        name: the column.
        role: the purpose of the column.

    Raises:
        ParameterError: the message names the column and its type.
    """
    kind = columns[name]
    found = kind_of(kind)
    if found is None or role not in found.roles:  # guard: roles-of-types
        must = "be a column of integers, texts, truth values or dates"
        hint = " (missing ones make pandas turn integers into floats: use Int64)"
        raise ParameterError(
            f"{argument} must {must}, got {name!r} of type {kind}{hint * ('float' in kind)}"
        )


def alike(one: str, other: str) -> bool:
    """Says whether no engine changes a value when it compares columns of two types."""
    kinds = [kind_of(kind) for kind in (one, other)]
    if None in kinds:
        return False
    groups = [{"padded texts": "texts"}.get(name, name) for name in map(name_of, (one, other))]
    return groups[0] == groups[1] and (groups[0] in ("integers", "texts") or one == other)


def name_of(kind: str) -> str:
    """Returns the name of the kind that a type is of."""
    return next(name for name, known in KINDS.items() if re.fullmatch(known.types, kind))


def public_keys(columns: Mapping[str, str], by: str, keys: Any) -> tuple[Any, ...]:
    """Returns public keys of a column in the column's form.

    Args:
        columns: from names to types.
        by: the column.
        keys: its keys.

    Raises:
        ParameterError: the column's type names no groups; keys are no list, none, missing, twice
            there, or no values of the column's type.
    """
    argument, kind = f"domains[{by!r}]", columns[by]
    check_role(columns, argument, by, "public key")
    if isinstance(keys, (str, bytes)) or not hasattr(keys, "__iter__"):
        raise refuse(argument, "be a list of keys", keys)
    make = KINDS[name_of(kind)].key
    listed, seen = [], set[Any]()
    for given in keys:
        key = given.item() if isinstance(given, np.generic) else given
        if key is None or key != key:
            raise refuse(argument, "have no missing key", key)
        if make is not None:
            try:
                key = make(kind, key)  # guard: keys-of-the-type
            except ValueError as error:
                raise refuse(argument, str(error), given) from None
        if key in seen:
            raise refuse(argument, "have each key once", given)
        seen.add(key)
        listed.append(key)
    if not listed:
        raise refuse(argument, "have at least one key", ())
    return tuple(listed)


def check_names(names: Sequence[str]) -> None:
    """Refuses names of columns that an engine could take for one another, or for the query's own.

    DuckDB, Spark and BigQuery do not tell names apart by capital letters. A query of the unit "id"
    would then read a column "ID" in its place, and a unit would have no bound.

    Raises:
        ParameterError: two names are equal but for capital letters, or a name begins as the
            columns of queries do.
    """
    seen = dict[str, str]()
    for name in names:
        key = name.casefold()
        if key in seen:  # guard: names-told-apart
            must = f"have columns with names that differ in more than capital letters: {seen[key]}"
            raise refuse("data", must, name)
        if key.startswith(OWN):  # guard: names-of-queries
            raise refuse("data", f"have no column whose name begins with {OWN}", name)
        seen[key] = name
