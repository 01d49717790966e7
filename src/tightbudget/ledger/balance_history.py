"""Earlier balances of a budget: one after each of its last events.

The balance that is stored is the one after the last event. From there events are undone, the
newest first, in integers: the last thousand events of a budget with a million cost no more
than a thousand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import Connection

from tightbudget.errors import LedgerCorruptError
from tightbudget.ledger.rows import event_rows
from tightbudget.ledger.rows.budget_rows import Balance
from tightbudget.ledger.rows.event_rows import Which
from tightbudget.promises.chain import Entry, canonical
from tightbudget.promises.stored_words import EventKind
from tightbudget.promises.units import NOTHING, Units


def balance_history(
    connection: Connection, balance: Balance, most: int
) -> list[tuple[Entry, Balance]]:
    """Returns the last events of a budget, oldest first, each with the balance after it.

    Guarantee: each balance is the one that was stored then, to the last unit.

    Raises:
        LedgerCorruptError: an event ends what no event began.
    """
    entries = event_rows.entries(
        connection, Which(budget=balance.name), limit=most, newest_first=True
    )
    undo, found = _Undo(connection, entries), []
    for entry in entries:
        found.append((entry, balance))
        balance = undo(entry, balance)
    return found[::-1]


class _Undo:
    """Steps back from the balance after an event to the balance before it."""

    def __init__(self, connection: Connection, entries: Sequence[Entry]) -> None:
        self._connection = connection
        # most of what ends within these events began within them
        self._held = {e.key: _amount(e) for e in entries if e.kind == EventKind.RESERVED}

    def __call__(self, entry: Entry, after: Balance) -> Balance:
        """Returns the balance before an event.

        Raises:
            LedgerCorruptError: no event has this kind, or it ends what no event began.
        """
        undo = _UNDO.get(entry.kind)
        if undo is None:
            raise LedgerCorruptError(f"event {entry.sequence} is of no known kind: {entry.kind!r}")
        return undo(self, entry, after)

    def nothing(self, entry: Entry, after: Balance) -> Balance:
        """Undoes an event that has not changed the balance of its budget."""
        return after

    def reserved(self, entry: Entry, after: Balance) -> Balance:
        """Takes back the units that were held."""
        return after._replace(held=after.held.minus(_amount(entry)))  # guard: undo-reserved

    def settled(self, entry: Entry, after: Balance) -> Balance:
        """Holds the worst-case price again, instead of the cost and the saving."""
        held, cost = self._held_by(entry), _amount(entry)
        # guard: undo-settled
        return _held_again(after, held=held, cost=cost, saved=held.epsilon - cost.epsilon)

    def ended(self, entry: Entry, after: Balance) -> Balance:
        """Holds the worst-case price again, where nothing was saved by an observed cell."""
        # guard: undo-ended
        return _held_again(after, held=self._held_by(entry), cost=_amount(entry), saved=0)

    def lent(self, entry: Entry, after: Balance) -> Balance:
        """Holds the part's earlier cap again; of a smaller cap, delta had not come back."""
        cost, lent = _amount(entry), self._earlier(entry, EventKind.LENT, entry.details) or NOTHING
        gone = Units(epsilon=0, delta=max(0, lent.delta - cost.delta))  # guard: undo-lent
        return _held_again(after, held=lent.minus(cost), cost=gone, saved=0)

    def returned(self, entry: Entry, after: Balance) -> Balance:
        """Holds the part's cap again, instead of its cost and its saving."""
        said = json.loads(entry.details)
        lent = self._earlier(entry, EventKind.LENT, canonical({"part": said["part"]}))
        return _held_again(
            after, held=_known(entry, lent), cost=_amount(entry), saved=said["saved"]
        )  # guard: undo-returned

    def capped(self, entry: Entry, after: Balance) -> Balance:
        """Sets the cap of the last change before, or else that of the opening."""
        # guard: undo-capped
        cap = self._earlier(entry, EventKind.CAPPED) or self._earlier(entry, EventKind.OPENED)
        return after._replace(cap=_known(entry, cap))

    def corrected(self, entry: Entry, after: Balance) -> Balance:
        """Takes the correction off the spent units."""
        return after._replace(spent=after.spent.minus(_amount(entry)))  # guard: undo-corrected

    def closed(self, entry: Entry, after: Balance) -> Balance:
        """Opens the budget again."""
        return after._replace(closed=False)  # guard: undo-closed

    def _held_by(self, entry: Entry) -> Units:
        """Finds the units that a reservation held in this budget until the event ended it."""
        if entry.key not in self._held:
            for other in event_rows.entries(
                self._connection,
                Which(budget=entry.budget, key=entry.key, kind=EventKind.RESERVED),
            ):
                self._held[entry.key] = _amount(other)
        return _known(entry, self._held.get(entry.key))

    def _earlier(self, entry: Entry, kind: EventKind, details: str | None = None) -> Units | None:
        """Returns the amount of the last event of a kind before another of the same budget."""
        found = event_rows.entry_before(self._connection, entry, kind, details)
        return None if found is None else _amount(found)


# Every kind of event is here: tests compare this table with the enumeration.
_UNDO: Mapping[str, Callable[[_Undo, Entry, Balance], Balance]] = {
    EventKind.OPENED: _Undo.nothing,  # the first event of a budget: nothing is read before it
    EventKind.LENT: _Undo.lent,
    EventKind.RETURNED: _Undo.returned,
    EventKind.CAPPED: _Undo.capped,
    EventKind.CORRECTED: _Undo.corrected,
    EventKind.CLOSED: _Undo.closed,
    EventKind.RESERVED: _Undo.reserved,
    EventKind.REFUSED: _Undo.nothing,
    EventKind.STARTED: _Undo.nothing,
    EventKind.SETTLED: _Undo.settled,
    EventKind.FORFEITED: _Undo.ended,
    EventKind.VOID: _Undo.ended,
    EventKind.EXPIRED: _Undo.ended,
    EventKind.TOKEN_CREATED: _Undo.nothing,
    EventKind.TOKEN_REVOKED: _Undo.nothing,
    EventKind.MOVED: _Undo.nothing,
    EventKind.ARRIVED: _Undo.nothing,
    EventKind.AUDITED: _Undo.nothing,
}


def _held_again(after: Balance, *, held: Units, cost: Units, saved: int) -> Balance:
    """Turns a cost and a saving back into units that are held."""
    return after._replace(
        held=after.held.plus(held),
        spent=after.spent.minus(cost),
        saved=after.saved.minus(Units(epsilon=saved, delta=0)),
    )  # guard: held-again


def _amount(entry: Entry) -> Units:
    """Returns the amount of an event."""
    return Units(epsilon=entry.epsilon, delta=entry.delta)


def _known(entry: Entry, amount: Units | None) -> Units:
    """Returns an amount that an earlier event must have named.

    Raises:
        LedgerCorruptError: no event has.
    """
    if amount is None:
        raise LedgerCorruptError(f"event {entry.sequence} ends what no event began")
    return amount
