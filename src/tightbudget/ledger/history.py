"""Events of the history, selected and read in pages."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tightbudget.ledger.rows import event_rows
from tightbudget.ledger.rows.event_rows import Which
from tightbudget.ledger.session import LedgerSession
from tightbudget.promises.seen import Seen
from tightbudget.promises.text import check_encodable
from tightbudget.promises.values import Event

# Events that are read in one transaction: some megabytes, so that a listing of a long history
# needs little memory and holds no view of the database open while its reader works.
_PAGE = 10_000


def selection(
    session: LedgerSession,
    *,
    budget: str | None = None,
    budgets: Collection[str] | Seen | None = None,
    key: str | None = None,
    kind: str | None = None,
    search: str | None = None,
) -> Which:
    """Selects events; :meth:`Ledger.events` says what each argument means.

    Raises:
        ParameterError: an argument is refused.
    """
    for name, text in (("kind", kind), ("search", search)):
        if text is not None:
            check_encodable(**{name: text})
    return Which(
        budget=None if budget is None else session.named(budget=budget),
        budgets=None if budgets is None else Seen.of(budgets),
        key=None if key is None else session.keyed(key),
        kind=kind,
        search=search,
    )


def events(
    session: LedgerSession, which: Which, *, after: int, limit: int | None
) -> Iterator[Event]:
    """Reads the selected events, oldest first.

    Args:
        session: the ledger.
        which: the selection.
        after: the number of the last event that is left out.
        limit: the largest number of events that are read; all, if None.
    """
    while limit is None or limit > 0:
        size = _PAGE if limit is None else min(limit, _PAGE)
        with session.read() as connection:
            page = event_rows.entries(connection, which, after=after, limit=size)
        yield from map(Event.of, page)
        if len(page) < size:
            return
        after, limit = page[-1].sequence, None if limit is None else limit - size


def latest(
    session: LedgerSession, which: Which, *, before: int | None, limit: int
) -> tuple[Event, ...]:
    """Reads the last of the selected events, newest first.

    Args:
        session: the ledger.
        which: the selection.
        before: the number of the first event that is left out; none is, if None.
        limit: the largest number of events that are read.
    """
    with session.read() as connection:
        found = event_rows.entries(connection, which, before=before, limit=limit, newest_first=True)
    return tuple(map(Event.of, found))
