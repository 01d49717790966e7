"""Holds as their callers see them, wherever the ledger is.

A ledger in a database (:mod:`tightbudget.ledger`) and a ledger behind an address
(:mod:`tightbudget.client`) derive their holds from :class:`BaseHold`, which says what each method
does; the derived class says how the ledger is asked for it. A method that has no docstring there
has the one that stands here. Nothing here knows a database or a network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from tightbudget.output_dp.account import State
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.guarantee import Cell
from tightbudget.promises.pricing import Stored, content_of
from tightbudget.promises.values import ReservationView

R = TypeVar("R")


class BaseHold(ABC, Generic[R]):
    """One reservation, as it was when this object last asked its ledger.

    Args:
        answer: the ledger's last answer about it.
        token: the token that settles the run, or None if this process does not have it.
    """

    def __init__(self, answer: R, token: str | None) -> None:
        self._is = answer
        self._token = token

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r}: {self._is}>"

    @property
    @abstractmethod
    def _view(self) -> ReservationView:
        """The ledger's last answer in the form that all ledgers share."""

    @property
    @abstractmethod
    def guarantee(self) -> Stored:
        """The guarantee that was reserved for, as the ledger has stored it."""

    @abstractmethod
    def _is_started_with(self, token: str) -> bool:
        """Says whether the run was started with this token."""

    @abstractmethod
    def start(self, *, token: str | None = None) -> None:
        """Marks that the mechanism runs, once; from here on nothing but its cell frees epsilon.

        Args:
            token: the token that settles the run, 32 hexadecimal digits that nobody can guess; a
                new one if None. Who has kept it before the start can settle the run even if the
                process dies as it starts, or the answer is lost.

        Raises:
            SettlementError: it was started before, also with this token, or is over.
            ParameterError: the token looks otherwise; nothing was started.
            LedgerError: the answer was lost, if it is ``unknown``. Run nothing: void the
                reservation, or if that is refused, forfeit it.
        """

    @abstractmethod
    def settle(self, cell: Cell) -> Amount:
        """Charges the price of an output in ``cell``, and frees the rest of epsilon, not delta.

        A cell that was not declared costs the sup. The same cell again changes nothing. The
        price is an output, too: it is as public as the answer of the mechanism. Reveal that
        answer afterwards.

        Args:
            cell: the cell of the output.

        Returns:
            the price of the run: a receipt, to travel with the answer.

        Raises:
            FencingError: it was started by another process, or forfeited meanwhile: the answer
                must not be revealed by this one.
            SettlementError: it was not started, was settled with another cell, or is void.
            ParameterError: no cell looks like this; it is still held.
            LedgerError: the answer was lost, if it is ``unknown``. Reveal nothing before the
                same call has returned.
        """

    @abstractmethod
    def forfeit(self, *, reason: str | None = None) -> Amount:
        """Charges the worst-case price, whatever came out. Anyone may: it frees nothing.

        Args:
            reason: the reason that is written down, if any.

        Raises:
            SettlementError: it was settled, or is void.
        """

    @abstractmethod
    def void(self) -> Amount:
        """Frees everything: the mechanism has not run, and never will.

        Raises:
            SettlementError: it was started or is over.
        """

    @property
    def key(self) -> str:
        """The caller's name for this run."""
        return self._view.key

    @property
    def state(self) -> State:
        """The state of the run: reserved, started, settled, forfeited or void."""
        return self._view.state

    @property
    def interactive(self) -> bool:
        """True if the mechanism answers more than once."""
        return self._view.interactive

    @property
    def cell(self) -> Cell | None:
        """The cell that the run was settled with, or None."""
        return self._view.cell

    @property
    def told(self) -> str | None:
        """A note for the caller that less was granted than was requested, or None."""
        return self._view.told

    @property
    def question(self) -> str | None:
        """The question that this run answers; None where nobody has said one."""
        return self._view.question

    @property
    def token(self) -> str | None:
        """The token that settles this run, a secret to be kept with the output; None without it."""
        return self._token

    @property
    def charges(self) -> dict[str, Amount]:
        """The amount that this run holds, or has cost, in each of its budgets (rounded up)."""
        return dict(self._view.charges)

    @property
    def charge(self) -> Amount:
        """The amount that this run takes from its budget, or from the first of them by name."""
        return next(iter(self._view.charges.values()))

    def to_dict(self) -> dict[str, Any]:
        """Writes the reservation as plain JSON, with the token if this process has it."""
        return {
            **self._view.to_dict(),
            "question": self.question,
            "token": self._token,
            "guarantee": content_of(self.guarantee),
        }  # fmt: skip
