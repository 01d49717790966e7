"""A ledger moves to another database, and the one that it leaves is never written again.

Its last event says where it went, and refuses every later act: of two copies that are both
charged, each would know half of the charges. In the target the same history goes on, with
an event that says where it came from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from sqlalchemy import Connection, insert, select

from tightbudget.errors import LedgerError, ParameterError
from tightbudget.ledger.acts.token_acts import explain_tokens
from tightbudget.ledger.acts.unit_of_work import Act
from tightbudget.ledger.rows import event_rows
from tightbudget.ledger.store.schema import events, metadata, with_access
from tightbudget.ledger.store.store import Store
from tightbudget.ledger.verification import Verification, check_head, verify
from tightbudget.promises.chain import BEGINNING, Head, canonical, entry_after
from tightbudget.promises.stored_words import EventKind
from tightbudget.promises.units import NOTHING

_PAGE = 10_000  # rows that are in memory at once, some megabytes


def copy(
    source: Store, target: Store, at: str, progress: Callable[[Iterable[int]], Iterable[int]]
) -> Verification:
    """Moves everything to an empty database; both ends are verified.

    The source is sealed before its first row is read, and all rows are written in one
    transaction; so whatever stops this in between, the same call brings it to its end.

    Raises:
        ParameterError: the target is not empty.
        LedgerError: the source was moved to another place before.
        LedgerCorruptError: one of them is not what its own history says.
    """
    with source.reading() as connection:
        verify(connection, progress)
        moved = _moved_to(connection)
    with target.reading() as connection:
        there = event_rows.head(connection)
    if there != BEGINNING and moved is None:
        raise ParameterError(f"target must be empty, got a ledger of {there.sequence} events")
    head = source.write(lambda connection: _leave(connection, at, str(target)))
    target.write(lambda connection: _arrive(connection, at, source, head))
    with target.reading() as connection:
        check_head(connection, head)
        return verify(connection, progress)


def _moved_to(connection: Connection) -> str | None:
    """Reads the address that the ledger was moved to; None if it was not moved."""
    last = event_rows.last(connection)
    if last is None or last.kind != EventKind.MOVED:
        return None
    place: str = json.loads(last.details)["to"]
    return place


def _leave(connection: Connection, at: str, target: str) -> Head:
    """Seals the source, once, and returns the head of its whole history."""
    place = _moved_to(connection)
    if place is None:
        Act(connection, at).log(EventKind.MOVED, details={"to": target})
    elif place != target:
        raise LedgerError(f"this ledger was moved to {place}, and cannot be moved to {target}")
    return event_rows.head(connection)


def _arrive(connection: Connection, at: str, source: Store, head: Head) -> None:
    """Writes every row of the source, and opens the history again."""
    if event_rows.head(connection) != BEGINNING:
        check_head(connection, head)  # it has arrived before
        return
    with source.reading() as other:
        for table in (*metadata.sorted_tables, *with_access.sorted_tables):
            order = table.primary_key.columns
            wanted = select(table).order_by(*order).execution_options(yield_per=_PAGE)
            for page in other.execute(wanted).mappings().partitions():
                connection.execute(insert(table), [dict(row) for row in page])
    arrived = entry_after(
        head,
        at=at,
        kind=EventKind.ARRIVED,
        key=None,
        budget=None,
        units=NOTHING,
        cell=None,
        details=canonical({"from": str(source)}),
    )
    connection.execute(insert(events), arrived._asdict())
    explain_tokens(Act(connection, at), {"reason": "arrived without an event"})
