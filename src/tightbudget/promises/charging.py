"""Budgets and holds as their callers see them, wherever the ledger is.

A ledger in a database (:mod:`tightbudget.ledger`) and a ledger behind an address
(:mod:`tightbudget.client`) derive their budgets from :class:`Payer` and their holds from
:class:`BaseHold`: these say what each method does, the derived classes how the ledger is asked for
it. A method that has no docstring there has the one that stands here. Nothing here knows a database
or a network. Sets of blocks have their classes in :mod:`tightbudget.promises.charged_blocks`.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from tightbudget import notebook
from tightbudget.errors import (
    BudgetExceeded,
    FencingError,
    KeyConflictError,
    SettlementError,
    TightBudgetError,
)
from tightbudget.output_dp.account import State
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.output_dp.pricing import Guarantee
from tightbudget.promises.pricing import Stored, content_of
from tightbudget.promises.secret import new_secret
from tightbudget.promises.text import printable, question_text
from tightbudget.promises.values import (
    Event,
    Preview,
    ReservationView,
    Statement,
)

H = TypeVar("H", bound="BaseHold[Any]")
H_co = TypeVar("H_co", bound="BaseHold[Any]", covariant=True)
R = TypeVar("R")

# cells of claims, which stand in ledgers
_GOES_ON, _ENDS = "goes on", "ends"


class Paying(Protocol[H_co]):
    """Pays for a run under a key: a budget, or a range of blocks."""

    @property
    def left(self) -> Amount:
        """The amount that may still be reserved (rounded down)."""

    def reserve(
        self,
        key: str,
        guarantee: Guarantee,
        *,
        interactive: bool = False,
        question: str | None = None,
    ) -> H_co:
        """Holds the worst-case price of a mechanism under a key."""

    def what_if(self, guarantee: Guarantee) -> Preview:
        """Answers as a reservation would be answered now; nothing is held."""

    def _hold(self, key: str, token: str | None) -> H_co:
        """Returns the reservation of this key in the ledger; see :meth:`Ledger.hold`."""


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


class Keyed(Generic[H]):
    """A meter for one caller: each reservation that the ledger answers takes the next key.

    Threads may share it: their reservations are made one after another, each with its own key.

    Args:
        budget: the budget, or the range of blocks, that pays.
        key: the key of the first run; later runs have ``key#2``, ``key#3``, ...
    """

    def __init__(self, budget: Paying[H], key: str) -> None:
        self._budget = budget
        self._key = key
        self._answered = 0
        # two reservations at once would take one key, and only one of their runs could start;
        # a signal handler may reserve in the midst of a reservation of its own thread
        self._lock, self._process = threading.RLock(), os.getpid()

    @property
    def left(self) -> Amount:
        """The amount that may still be reserved (rounded down)."""
        return self._budget.left

    def reserve(
        self, guarantee: Guarantee, *, interactive: bool = False, question: str | None = None
    ) -> H:
        """Holds the worst-case price of a mechanism under the next key.

        See :meth:`Ledger.reserve`.
        """
        if self._process != os.getpid():  # guard: fork-waits-for-no-thread
            # the thread that held the lock when this process was forked is not here to free it
            self._lock, self._process = threading.RLock(), os.getpid()
        with self._lock:  # guard: one-key-a-run
            number, key = self._answered + 1, self.next_key
            try:
                hold = self._budget.reserve(
                    key, guarantee, interactive=interactive, question=question
                )
            except BudgetExceeded:
                self._answered = number  # a refused key stays refused
                raise
            self._answered = number
            return hold

    def asking(self, question: str) -> Asking[H]:
        """Returns the same meter for runs that answer one question, which the ledger keeps.

        Args:
            question: a text of 1 to 500 printable characters.
        """
        return Asking(self, question)

    @property
    def budget(self) -> Paying[H]:
        """The budget, or the range of blocks, that pays."""
        return self._budget

    @property
    def next_key(self) -> str:
        """The key of the next run."""
        return self._key if self._answered == 0 else f"{self._key}#{self._answered + 1}"

    def taken_over(self, token: str) -> H:
        """Returns the run of the next key, which another process has started with this token.

        Raises:
            SettlementError: there is none, or it is not started, or is over.
            FencingError: it was started with another token.
        """
        key = self.next_key
        hold = self._budget._hold(key, token)
        if hold.state is not State.STARTED:
            raise SettlementError(
                f"a run goes on between its start and its end, and {key!r} is {hold.state.value}"
                + ("" if hold.cell is None else f" with cell {hold.cell!r}")
            )
        if not hold._is_started_with(token):  # guard: only-own-token-goes-on
            raise FencingError(f"{key!r} goes on with the token of its start, got another")
        return hold

    def started_with(self, key: str, token: str) -> H | None:
        """Returns the run of a key, which this token settles; None if another one started it.

        Raises:
            SettlementError: there is no run of this key.
        """
        hold = self._budget._hold(key, token)
        return hold if hold._is_started_with(token) else None  # guard: only-own-token-ends

    def places(self, key: str) -> Places[H]:
        """Returns the places that the run of this key has come to, as its ledger has them."""
        return Places(self._budget, key)


class Asking(Generic[H]):
    """A meter whose runs answer one question, which stands beside their keys in the ledger.

    Args:
        keyed: makes the keys.
        question: the question.
    """

    def __init__(self, keyed: Keyed[H], question: str) -> None:
        self.keyed, self.question = keyed, question_text(question)

    @property
    def left(self) -> Amount:
        """The amount that may still be reserved (rounded down)."""
        return self.keyed.left

    def reserve(self, guarantee: Guarantee, *, interactive: bool = False) -> H:
        """Holds the worst-case price of a mechanism under the next key of the meter.

        See :meth:`Ledger.reserve`.
        """
        return self.keyed.reserve(guarantee, interactive=interactive, question=self.question)


class Places(Generic[H]):
    """The places that a run has come to, written down so that another process may go on with it.

    The places of a run are public and have an order; for a training that may stop early they are
    its stops. Before a process goes on after a place, or ends the run there, it claims the place.
    A claim is a reservation at no price, under a key of its own.

    Guarantee: of all claims of a place to go on, one is granted, to one process; and none, once the
    run was ended there. So what runs after a place runs in one process at most, and only once.

    Args:
        budget: the budget, or the range of blocks, that pays for the run.
        key: the key of the run.
    """

    def __init__(self, budget: Paying[H], key: str) -> None:
        self._budget, self._key = budget, key

    def key_after(self, place: int) -> str:
        """Returns the key under which the ledger has the claim of a place.

        Raises:
            ParameterError: it is too long.
        """
        return printable(key=f"{self._key} after {place}")

    def claim(self, place: int, *, goes_on: bool, to: tuple[Cell, ...] = ()) -> bool:
        """Claims a place of the run, and says whether the claim is granted.

        Args:
            place: the place.
            goes_on: whether the process goes on there, or ends the run. Any number of processes
                may end it at one place.
            to: where the process goes on to, if there are several ways: it is kept with the claim.

        Raises:
            LedgerError: the answer was lost, or the ledger cannot be read.
        """
        # Two claims to go on ask for two things under one key, and the second is refused: also that
        # of a process which an image of its memory has brought back.
        cell = (_GOES_ON, new_secret(), *to) if goes_on else (_ENDS,)  # guard: one-goes-on
        try:
            hold = self._budget.reserve(self.key_after(place), OutputDP({cell: 0}))
        except KeyConflictError:
            return False  # guard: claimed-once
        if hold.state is State.RESERVED:
            hold.void()  # it holds nothing; its key stays used
        return True

    def ended_at(self, place: int) -> bool:
        """Says whether a place is where the run was ended."""
        return self._claim_of(place) == (_ENDS,)

    def gone_on_from(self, place: int) -> tuple[Cell, ...] | None:
        """Returns where a process has gone on to from a place, as it claimed it; None if none has.

        None is no promise: the next claim says whether it is still so.
        """
        claim = self._claim_of(place)
        return None if claim is None or claim == (_ENDS,) else claim[2:]

    def _claim_of(self, place: int) -> tuple[Any, ...] | None:
        """Returns the claim of a place; None if it was not claimed, () if its key was misused."""
        try:
            hold = self._budget._hold(self.key_after(place), None)
        except SettlementError:
            return None
        if hold.state is State.RESERVED:  # its process has died before it could free it
            hold.void()
        cells = hold.guarantee.cells if isinstance(hold.guarantee, OutputDP) else ()
        return next((cell for cell in cells if isinstance(cell, tuple)), ())


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
    def start(self) -> None:
        """Marks that the mechanism runs, once; from here on nothing but its cell frees epsilon.

        Raises:
            SettlementError: it was started before, also by another process, or is over.
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
