"""A session: the database, the clock and the name that all objects of one opened ledger share.

A :class:`Ledger` makes one and hands it to its budgets, holds and access tokens, so that they
read and write without reaching into each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection

from tightbudget.ledger.acts.unit_of_work import Act
from tightbudget.ledger.rows import selection
from tightbudget.ledger.store.store import Store
from tightbudget.promises.text import printable

T = TypeVar("T")


class LedgerSession:
    """Reads and writes one ledger.

    Args:
        store: the database.
        clock: tells the time that is written down; the unlocking of blocks alone depends on it.
        by: the name that is written down where an act does not say who does it.
    """

    def __init__(self, store: Store, *, clock: Callable[[], datetime], by: str) -> None:
        self._store = store
        self._clock = clock
        self._by = by

    @property
    def url(self) -> str:
        """The address of the database, without a password."""
        return str(self._store)

    def read(self) -> AbstractContextManager[Connection]:
        """Opens one unchanging view of the whole ledger, for the length of a ``with`` block."""
        return self._store.reading()

    def write(self, act: Callable[[Act], T]) -> T:
        """Runs an act in one transaction: all of it is durable on return, or nothing was done.

        The store may call ``act`` again after a lost connection, each time in a new transaction.

        Raises:
            LedgerError: the database does not do it; ``unknown`` where it may have.
        """
        at = self.now().isoformat()
        return self._store.write(lambda connection: act(Act(connection, at)))

    def now(self) -> datetime:
        """Asks the ledger's clock for the time."""
        return self._clock()

    def who(self, by: str | None) -> dict[str, str]:
        """Names who acts, in the form that an event's details have.

        Raises:
            ParameterError: the name is refused.
        """
        return {"by": self._by if by is None else printable(by=by)}  # guard: who-did-it

    def named(self, **given: Any) -> str:
        """Spells a budget's name as the ledger does, or in form C if there is no such budget.

        Raises:
            ParameterError: no budget can have this name.
        """
        return self._spelt(selection.stored_name, given)

    def payers(self, budgets: Sequence[str]) -> Sequence[str]:
        """Spells the names of the budgets that pay as the ledger does; a text is no list of them.

        Raises:
            ParameterError: no budget can have one of these names.
        """
        if isinstance(budgets, str):
            return budgets  # which a request refuses
        return [self.named(budget=name) for name in budgets]

    def keyed(self, key: str) -> str:
        """Spells a reservation's key as the ledger does, or in form C if there is none.

        Raises:
            ParameterError: no reservation can have this key.
        """
        return self._spelt(selection.stored_key, {"key": key})

    def _spelt(self, stored: Callable[[Connection, str], str | None], given: dict[str, Any]) -> str:
        """Looks a text up in the ledger in each of its spellings, unless it is ASCII."""
        text = printable(**given)
        (as_given,) = given.values()
        if as_given.isascii():  # there is one spelling
            return text
        with self.read() as connection:
            found = stored(connection, as_given)
        return text if found is None else found  # guard: old-spellings-found


def why(*, by: str, reason: str) -> dict[str, str]:
    """Checks who does something and for what reason, in the form that an event's details have.

    Raises:
        ParameterError: the name or the reason is refused.
    """
    return {"by": printable(by=by), "reason": printable(reason=reason)}
