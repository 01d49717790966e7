"""Names and keys as they are stored, and the budgets that a caller may see."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    func,
    or_,
    select,
)

from tightbudget.errors import LedgerCorruptError
from tightbudget.ledger.store.driver import execute
from tightbudget.ledger.store.schema import budgets, reservations
from tightbudget.promises.kinds.blocks import BLOCKS
from tightbudget.promises.seen import Seen
from tightbudget.promises.text import spellings

T = TypeVar("T")


# names that a statement compares with; of more, which a database would refuse (SQLite takes 32,766
# values, PostgreSQL 65,535), all rows are read and compared here
FEW = 10_000


def stored_name(connection: Connection, name: str) -> str | None:
    """Returns the name of a budget as the ledger spells it; None if there is no such budget."""
    return _stored(connection, budgets.c.name, name)


def stored_key(connection: Connection, key: str) -> str | None:
    """Returns a reservation's key as the ledger spells it; None if there is no such reservation."""
    return _stored(connection, reservations.c.key, key)


def _stored(connection: Connection, column: Column[str], text: str) -> str | None:
    """Looks for each spelling of a text, the given one first: earlier versions stored any."""
    known = set(connection.scalars(select(column).where(column.in_(spellings(text)))))
    return next((spelling for spelling in spellings(text) if spelling in known), None)


# The names that a JSON text lists, as each database reads it: one value, however many there are.
NAMES = {
    dialect: select(listed(bindparam("names")).table_valued("value").c.value)
    for dialect, listed in (
        ("sqlite", func.json_each),
        ("postgresql", func.json_array_elements_text),
    )
}


def _within(names: Select[Any]) -> Select[Any]:
    """The query of the budgets of these names and of all their parts."""
    known = select(budgets.c.id, budgets.c.name, budgets.c.kind)
    found = known.where(budgets.c.name.in_(names)).cte(recursive=True)
    found = found.union(known.join(found, budgets.c.parent == found.c.id))
    return select(found.c.name, found.c.kind)


_WITHIN = {dialect: _within(names) for dialect, names in NAMES.items()}


def within(connection: Connection, names: Collection[str]) -> Seen:
    """Returns these budgets and all their parts, and of the sets among them all blocks."""
    statement = _WITHIN[connection.dialect.name]
    rows = execute(connection, statement, names=json.dumps(list(names))).all()
    return Seen(
        names=frozenset(row.name for row in rows),
        sets=frozenset(row.name for row in rows if row.kind == BLOCKS.name),
    )


def is_few(seen: Seen | None) -> bool:
    """Whether a statement can compare with all of these names."""
    return seen is None or len(seen.names) <= FEW


def among(column: Column[str], seen: Seen) -> ColumnElement[bool]:
    """The condition that a budget's name is among these.

    Not LIKE alone: it takes no notice of case on SQLite. Not a range of names: in which order they
    are is up to PostgreSQL's locale.
    """
    of_sets = [func.substr(column, 1, len(of) + 1) == f"{of}[" for of in sorted(seen.sets)]
    if not seen.with_quotas:
        of_sets = [and_(begins, column.contains("=")) for begins in of_sets]
    return or_(column.in_(seen.names), *of_sets)  # guard: blocks-by-whole-set


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cuts values into lists that one statement compares with."""
    return (values[first : first + FEW] for first in range(0, len(values), FEW))


def truth(value: int) -> bool:
    """Reads a truth value that is stored as 0 or 1.

    Raises:
        LedgerCorruptError: the column has another number.
    """
    if value not in (0, 1):  # guard: truth-values-0-1
        raise LedgerCorruptError(f"a truth value of a row must be 0 or 1, got {value!r}")
    return bool(value)
