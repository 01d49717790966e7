"""Runs that go on after a crash: each question is answered once, whatever the process comes to.

A run has a key. What the ledger says of it, and whether its answer is in the file, decides what
happens when the question is asked again under that key:

=================  =====================  ========================================================
the ledger says    the answer is kept     then
=================  =====================  ========================================================
nothing, reserved  --                     it runs
started            yes                    its run is settled, and the kept answer returned
settled            yes                    the kept answer is returned
void               --                     nothing was charged: it runs under another key
started            no                     its process has died: charged at the worst case
settled, forfeited  no                    it is charged, and its answer lost
=================  =====================  ========================================================

In the last two cases the question is refused, or asked once more under another key, at its price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tightbudget.errors import BudgetExceeded, FileError, KeyConflictError, SettlementError
from tightbudget.output_dp.account import State
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.promises.hold import BaseHold
from tightbudget.promises.keyed import Keyed
from tightbudget.tables.kept_answers import KeptAnswer, KeptAnswers

# keys of one question that are tried; each of them but the last is a process that has died
_MOST = 100


@dataclass(frozen=True, kw_only=True)
class KeyedQuestion:
    """A question that is asked under a key.

    Attributes:
        text: the question in one line, which the ledger keeps.
        identity: a hash of the question and of what its table declares.
        guarantee: its prices.
    """

    text: str
    identity: str
    guarantee: OutputDP


def found_or_held(
    meter: Keyed[Any], asked: KeyedQuestion, answers: KeptAnswers, *, again: bool
) -> tuple[BaseHold[Any], KeptAnswer | None]:
    """Returns the run of the meter's next key: with its answer, or one that may start.

    Args:
        meter: pays; its next key is the question's from here on.
        asked: the question.
        answers: the file.
        again: whether a question whose answer was lost is asked once more, at its price.

    Raises:
        BudgetExceeded: it does not fit.
        KeyConflictError: the key was used for another question.
        SettlementError: its answer was lost, and ``again`` is False.
    """
    key, budget = meter.next_key, meter.budget
    refused: BudgetExceeded | None = None
    for number, name in enumerate(_names(key)):
        try:
            if number == 0:
                hold = meter.reserve(asked.guarantee, question=asked.text)
            else:
                hold = budget.reserve(name, asked.guarantee, question=asked.text)
        except BudgetExceeded as error:
            if not budget.what_if(asked.guarantee).fits:
                raise
            refused = error  # of an earlier day: a refused key stays refused
            continue
        kept = answers.get(name)
        if hold.state is State.RESERVED:
            if kept is not None:  # guard: answer-of-this-ledger
                hold.void()
                raise _of_another_ledger(name)
            return hold, None
        of_it = None if kept is None else _run_of(meter, hold, kept)
        if kept is not None and of_it is not None:
            if kept.identity != asked.identity:
                raise KeyConflictError(
                    f"the key {name!r} was used before, for another question or another table that "
                    f"are written alike: {asked.text!r}"
                )
            return of_it, kept
        if hold.state is State.VOID:
            continue
        if not again:
            raise SettlementError(_lost(name, hold))
        if hold.state is State.STARTED:
            hold.forfeit(reason="its process has ended: the question is asked again")
    raise refused or SettlementError(f"{key!r} was asked {_MOST} times, and has no answer")


def _names(key: str) -> Iterator[str]:
    """Yields the keys of one question: its own, and those of later attempts."""
    yield key
    yield f"{key} again"
    yield from (f"{key} again {number}" for number in range(2, _MOST))


def _run_of(meter: Keyed[Any], hold: BaseHold[Any], kept: KeptAnswer) -> BaseHold[Any] | None:
    """Returns the run that a kept answer is of, which this process may settle; None for another."""
    if hold.state is State.SETTLED:
        return hold if hold.cell == kept.cell else None  # guard: kept-answer-of-its-run
    return meter.started_with(hold.key, kept.token) if hold.state is State.STARTED else None


def _lost(key: str, hold: BaseHold[Any]) -> str:
    """Says what became of a question whose answer nobody has."""
    if hold.state is State.STARTED:
        said = f"{key!r} was started before, and its answer is not kept: its worst-case price"
        return f"{said} is held; again=True charges it, and asks once more at the price"
    charged = f"is charged {hold.charge}"
    return f"{key!r} {charged}, and its answer is not kept; again=True asks once more at the price"


def _of_another_ledger(key: str) -> FileError:
    return FileError(
        f"the file of answers has one of {key!r}, which was never asked in this ledger: it is that "
        "of another ledger; nothing was charged"
    )


class KeepingMeter:
    """A meter for the one run of a hold, whose answer is kept before the run is settled.

    Args:
        hold: the run, which has not started.
        left: what the budget has left.
        keep: makes the answer durable; it gets the run with its token, and the output cell.
    """

    def __init__(
        self, hold: BaseHold[Any], left: Amount, keep: Callable[[BaseHold[Any], Cell], None]
    ) -> None:
        self.left, self._hold, self._keep = left, hold, keep

    def reserve(self, guarantee: OutputDP, *, interactive: bool = False) -> KeepingMeter:
        """Returns the hold of the run, which was made for this guarantee."""
        return self

    @property
    def charge(self) -> Amount:
        """The amount that the run takes from its budget."""
        return self._hold.charge

    def start(self) -> None:
        """Marks that the mechanism starts."""
        self._hold.start()

    def settle(self, cell: Cell) -> Amount:
        """Keeps the answer, and then charges the price of its cell.

        Raises:
            FileError: the answer could not be kept; the price is charged, and nothing returned.
        """
        try:
            self._keep(self._hold, cell)  # guard: kept-before-settled
        except FileError:
            self._hold.settle(cell)
            raise
        return self._hold.settle(cell)

    def forfeit(self) -> Amount:
        """Charges the worst-case price."""
        return self._hold.forfeit()

    def void(self) -> Amount:
        """Frees the hold of a run that has not started."""
        return self._hold.void()
