"""The history of a ledger: read in pages, compared with what is kept elsewhere, played again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from sqlalchemy import Connection

from tightbudget.ledger.rows import event_rows
from tightbudget.ledger.rows.event_rows import Which
from tightbudget.ledger.session import LedgerSession
from tightbudget.ledger.verification import Verification, check_head, verify
from tightbudget.promises.chain import Entry, Head
from tightbudget.promises.checkpoint import Checkpoint
from tightbudget.promises.seen import Seen
from tightbudget.promises.text import check_encodable
from tightbudget.promises.values import Event

# Events that are read in one transaction: some megabytes, so that a listing of a long history
# needs little memory and holds no view of the database open while its reader works.
_PAGE = 10_000


def events_of(connection: Connection, entries: Sequence[Entry]) -> tuple[Event, ...]:
    """Returns stored events as their readers see them, each with its reservation's question."""
    keys = {entry.key for entry in entries if entry.key is not None}
    asked = event_rows.questions(connection, keys)
    return tuple(Event.of(one, None if one.key is None else asked.get(one.key)) for one in entries)


class History:
    """The events of a ledger.

    Args:
        session: the ledger.
    """

    def __init__(self, session: LedgerSession) -> None:
        self.session = session

    def events(
        self,
        budget: str | None = None,
        key: str | None = None,
        after: int = 0,
        limit: int | None = None,
        *,
        budgets: Collection[str] | Seen | None = None,
        kind: str | None = None,
        search: str | None = None,
    ) -> Iterator[Event]:
        """Reads the history, oldest first: of a budget, of a key, or all.

        Args:
            budget: selects events of this budget only.
            key: selects events of this reservation only.
            after: the number of the last event that is left out.
            limit: the largest number of events.
            budgets: selects events of these budgets only.
            kind: selects events of this kind only.
            search: selects events with this text in the key, the budget's name, the cell or the
                details; in ASCII, either case. With ``budgets``, details are not searched.
        """
        which = self._which(budget=budget, budgets=budgets, key=key, kind=kind, search=search)
        while limit is None or limit > 0:
            size = _PAGE if limit is None else min(limit, _PAGE)
            with self.session.read() as connection:
                page = event_rows.entries(connection, which, after=after, limit=size)
                found = events_of(connection, page)
            yield from found
            if len(page) < size:
                return
            after, limit = page[-1].sequence, None if limit is None else limit - size

    def latest(
        self,
        limit: int,
        *,
        before: int | None = None,
        budget: str | None = None,
        budgets: Collection[str] | Seen | None = None,
        key: str | None = None,
        kind: str | None = None,
        search: str | None = None,
    ) -> tuple[Event, ...]:
        """Reads the last events, newest first, or the last before one.

        Args:
            limit: the largest number of events.
            before: the number of the first event that is left out.
            budget: selects as in :meth:`events`.
            budgets: selects as in :meth:`events`.
            key: selects as in :meth:`events`.
            kind: selects as in :meth:`events`.
            search: selects as in :meth:`events`.
        """
        which = self._which(budget=budget, budgets=budgets, key=key, kind=kind, search=search)
        with self.session.read() as connection:
            found = event_rows.entries(
                connection, which, before=before, limit=limit, newest_first=True
            )
            return events_of(connection, found)

    def head(self) -> Head:
        """Returns the history's length and hash; ``str(ledger.head())`` is to be kept elsewhere."""
        with self.session.read() as connection:
            return event_rows.head(connection)

    def check(self, head: Head | str) -> None:
        """Checks that the history went on from a head that was kept elsewhere.

        Raises:
            LedgerCorruptError: it was set back (a restored backup), or it went another way
                (a copy of which both were used).
            ParameterError: this is no head.
        """
        kept = head if isinstance(head, Head) else Head.from_text(head)
        with self.session.read() as connection:
            check_head(connection, kept)

    def verify(
        self,
        progress: Callable[[Iterable[int]], Iterable[int]] = iter,
        *,
        since: Checkpoint | None = None,
        keep: Callable[[Checkpoint], None] | None = None,
    ) -> Verification:
        """Plays the whole history again and compares it with everything that is stored.

        Guarantee: no event was changed, and all balances, reservations and prices are those that
        the history leads to. That no event is missing at its end, only a head that was kept
        elsewhere can tell: see :meth:`check`. With ``since``, this holds if nothing was changed
        before its head since it was written: the head is compared, the events before it are not
        read again, nor are the rows of reservations that had ended there.

        Args:
            progress: wraps the list of pages while they are read (a progress bar).
            since: a checkpoint of an earlier verification of this ledger, kept elsewhere.
            keep: takes a checkpoint every half million events and at the end, so that a
                verification that is interrupted goes on from there.

        Raises:
            LedgerCorruptError: says what differs.
        """
        with self.session.read() as connection:
            return verify(connection, progress, since=since, keep=keep)

    def _which(
        self,
        *,
        budget: str | None,
        budgets: Collection[str] | Seen | None,
        key: str | None,
        kind: str | None,
        search: str | None,
    ) -> Which:
        """Selects events, as :meth:`events` says.

        Raises:
            ParameterError: an argument is refused.
        """
        for name, text in (("kind", kind), ("search", search)):
            if text is not None:
                check_encodable(**{name: text})
        return Which(
            budget=None if budget is None else self.session.named(budget=budget),
            budgets=None if budgets is None else Seen.of(budgets),
            key=None if key is None else self.session.keyed(key),
            kind=kind,
            search=search,
        )
