"""Rows of the history, and the events that a reader asks for."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    or_,
    select,
)

from tightbudget.ledger.rows.selection import among, chunks
from tightbudget.ledger.store.driver import execute
from tightbudget.ledger.store.schema import events, reservations
from tightbudget.promises.chain import Entry, Head, canonical
from tightbudget.promises.seen import Seen
from tightbudget.promises.text import spellings

_LAST = select(events).order_by(events.c.sequence.desc()).limit(1)


_EVENT = select(events).where(events.c.sequence == bindparam("sequence"))


# a reservation has the number of its first event, however many budgets it charges
_ASKED = (
    select(reservations.c.key, events.c.details)
    .join(events, events.c.sequence == reservations.c.id)
    .where(reservations.c.key.in_(bindparam("keys", expanding=True)))
)


def last(connection: Connection) -> Entry | None:
    """Returns the last event of the history, or None."""
    row = execute(connection, _LAST).one_or_none()
    return None if row is None else Entry(*row)


def head(connection: Connection) -> Head:
    """Returns the head of the history."""
    return Head.after(last(connection))


def entry(connection: Connection, sequence: int) -> Entry | None:
    """Returns the event of this number, or None."""
    row = execute(connection, _EVENT, sequence=sequence).one_or_none()
    return None if row is None else Entry(*row)


def question(connection: Connection, reservation: int) -> str | None:
    """Returns the question of a reservation by its number; None where nobody has said one."""
    found = entry(connection, reservation)
    return None if found is None else asked_in(found.details)


def asked_in(details: str) -> str | None:
    """Reads the question in the details of the event that has reserved; None without one."""
    asked = json.loads(details).get("question")
    return asked if isinstance(asked, str) else None


def questions(connection: Connection, keys: Collection[str]) -> dict[str, str]:
    """Returns the question of each of these reservations that has one, by its key."""
    found: dict[str, str] = {}
    for few in chunks(sorted(keys)):
        for key, details in connection.execute(_ASKED, {"keys": few}):
            asked = asked_in(details)
            if asked is not None:
                found[key] = asked
    return found


def entry_before(
    connection: Connection, later: Entry, kind: str, details: str | None = None
) -> Entry | None:
    """Returns the last event of a kind before another event of the same budget, or None."""
    wanted = select(events).where(
        events.c.budget == later.budget, events.c.sequence < later.sequence, events.c.kind == kind
    )
    if details is not None:
        wanted = wanted.where(events.c.details == details)
    row = connection.execute(wanted.order_by(events.c.sequence.desc()).limit(1)).one_or_none()
    return None if row is None else Entry(*row)


@dataclass(frozen=True, kw_only=True)
class Which:
    """A selection of events: an event must agree with every field that is not None.

    Attributes:
        budget: the name of the event's budget.
        budgets: budgets, one of which is the event's.
        key: the key of the event's reservation.
        kind: the kind of the event.
        search: a text in the key, the budget's name, the cell or the details; in ASCII, either
            case. With ``budgets``, details are not searched: they name other budgets, too.
    """

    budget: str | None = None
    budgets: Seen | None = None
    key: str | None = None
    kind: str | None = None
    search: str | None = None

    def conditions(self, dialect: str) -> Iterator[ColumnElement[bool]]:
        """Yields the conditions on an event's row, all of which must hold.

        SQLite's LIKE takes either case of ASCII as it is, four times as fast as with ``lower``.
        """
        of = events.c
        for column, value in ((of.budget, self.budget), (of.key, self.key), (of.kind, self.kind)):
            if value is not None:
                yield column == value
        if self.budgets is not None:
            yield among(of.budget, self.budgets)
        if self.search is not None:
            in_json = (of.cell, of.details) if self.budgets is None else (of.cell,)
            yield or_(
                *(
                    column.contains(text, autoescape=True)
                    if dialect == "sqlite"
                    else column.icontains(text, autoescape=True)
                    for spelling in spellings(self.search)
                    # cells and details are stored as JSON
                    for columns, text in (
                        ((of.key, of.budget), spelling),
                        (in_json, canonical(spelling)[1:-1]),
                    )
                    for column in columns
                )
            )


ALL = Which()


def entries(
    connection: Connection,
    which: Which = ALL,
    *,
    after: int = 0,
    before: int | None = None,
    limit: int | None = None,
    newest_first: bool = False,
) -> list[Entry]:
    """Reads the selected events in their order, after one number and before another."""
    wanted = select(events).where(
        events.c.sequence > after, *which.conditions(connection.dialect.name)
    )
    if before is not None:
        wanted = wanted.where(events.c.sequence < before)
    order = events.c.sequence.desc() if newest_first else events.c.sequence
    found = connection.execute(wanted.order_by(order).limit(limit)).all()
    return [Entry(*row) for row in found]
