"""Meters of one caller, each run under a key of its own, and the places that a run has come to."""

from __future__ import annotations

import os
import threading
from typing import Any, Generic, Protocol, TypeVar

from tightbudget.errors import BudgetExceeded, FencingError, KeyConflictError, SettlementError
from tightbudget.output_dp.account import State
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.output_dp.pricing import Guarantee
from tightbudget.output_dp.transactions import held
from tightbudget.promises.hold import BaseHold
from tightbudget.promises.secret import new_secret
from tightbudget.promises.text import printable, question_text
from tightbudget.promises.values import Preview

H = TypeVar("H", bound=BaseHold[Any])
H_co = TypeVar("H_co", bound=BaseHold[Any], covariant=True)

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
        with held(self._lock):  # guard: one-key-a-run
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
                + (": void() frees it" if hold.state is State.RESERVED else "")
            )
        if not hold._is_started_with(token):  # guard: only-own-token-goes-on
            raise FencingError(f"{key!r} goes on with the token of its start, got another")
        return hold

    def started_with(self, key: str, token: str) -> H | None:
        """Returns the run of a key; None if it was started with another token.

        Raises:
            SettlementError: there is no run of this key.
        """
        hold = self._budget._hold(key, token)
        never = hold.state in (State.RESERVED, State.VOID)
        return hold if never or hold._is_started_with(token) else None  # guard: only-own-token-ends

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
