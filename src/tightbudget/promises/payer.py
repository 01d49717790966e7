"""Budgets as their callers see them, wherever the ledger is.

A ledger in a database (:mod:`tightbudget.ledger`) and a ledger behind an address
(:mod:`tightbudget.client`) derive their budgets from :class:`Payer`, which says what each method
does; the derived class says how the ledger is asked for it. A method that has no docstring there
has the one that stands here. Nothing here knows a database or a network. Sets of blocks have their
classes in :mod:`tightbudget.promises.charged_blocks`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from tightbudget import notebook
from tightbudget.errors import TightBudgetError
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.pricing import Guarantee
from tightbudget.promises.hold import BaseHold
from tightbudget.promises.keyed import Keyed
from tightbudget.promises.values import Event, Preview, Statement

H = TypeVar("H", bound=BaseHold[Any])


class Payer(ABC, Generic[H]):
    """A budget of a ledger, which is read anew each time that it is asked.

    Args:
        name: the budget's name, as the ledger spells it.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def _repr_html_(self) -> str:
        """Writes the statement as a table, for a notebook; the name alone if it cannot be read."""
        try:
            return self.statement()._repr_html_()
        except TightBudgetError as error:
            return notebook.shown(f"{self!r}: {error}")

    @abstractmethod
    def statement(self) -> Statement:
        """Reads the whole budget at one moment."""

    @abstractmethod
    def reserve(
        self,
        key: str,
        guarantee: Guarantee,
        *,
        also: Sequence[str] = (),
        interactive: bool = False,
        question: str | None = None,
    ) -> H:
        """Holds the mechanism's worst-case price, here and in the budgets ``also``.

        See :meth:`Ledger.reserve`.
        """

    @abstractmethod
    def what_if(self, guarantee: Guarantee) -> Preview:
        """Answers as a reservation would be answered now; nothing is held.

        Raises:
            ParameterError: the guarantee is refused.
            SettlementError: the budget is closed.
        """

    @abstractmethod
    def can_afford(self, guarantee: Guarantee, n: int = 1) -> bool:
        """Says whether this would be granted n times, if it cost the worst case each time.

        Raises:
            ParameterError: the guarantee or n is refused.
        """

    @abstractmethod
    def holds(self) -> tuple[H, ...]:
        """Returns the reservations that hold something here."""

    @abstractmethod
    def history(self) -> Iterator[Event]:
        """Reads the events of this budget, oldest first."""

    @abstractmethod
    def _hold(self, key: str, token: str | None) -> H:
        """Returns the reservation of this key in the ledger; see :meth:`Ledger.hold`."""

    def keyed(self, key: str) -> Keyed[H]:
        """Returns a meter for a mechanism that knows no keys: runs are key, key#2, key#3, ..."""
        return Keyed(self, key)

    @property
    def name(self) -> str:
        """The budget's name, which no other budget of the ledger has."""
        return self._name

    @property
    def kind(self) -> str:
        """The kind of the budget: ``output_dp``, or a kind without refunds."""
        return self.statement().kind

    @property
    def parent(self) -> str | None:
        """The name of the budget that this one is a part of, or None."""
        return self.statement().parent

    @property
    def closed(self) -> bool:
        """True if the budget was closed."""
        return self.statement().closed

    @property
    def cap(self) -> Amount:
        """The most that spent and held may come to (rounded down)."""
        return self.statement().cap

    @property
    def spent(self) -> Amount:
        """The amount of settled and forfeited runs, and of parts that are closed (rounded up)."""
        return self.statement().spent

    @property
    def held(self) -> Amount:
        """The amount that open reservations and open parts hold (rounded up)."""
        return self.statement().held

    @property
    def left(self) -> Amount:
        """The amount that may still be reserved (rounded down)."""
        return self.statement().left

    @property
    def saved(self) -> Amount:
        """The amount that worst cases would have cost more (rounded down); never delta."""
        return self.statement().saved
