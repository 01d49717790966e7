"""Pays for a workflow while it runs: admits its moves alone, and charges the state reached.

The price of a workflow treats the analyst as the adversary: the next move, and the decision to
stop, may be any function of what the moves so far have released, of answers of other mechanisms
that the same meter has paid for, and of coins. They may depend on nothing else that is private.

Of a resumable run, when a process dies is one more decision. Moves that were begun count as taken,
and each is begun by one process. A process that was overtaken may still be at its move while
another one chooses the next, or the end: what it has still to release was priced with the move.
That does not hold of a move that chooses among candidates: its price covers a choice after all that
was seen before the move, and not one after the next move has answered. So a process that finds such
a move at its end may end the run, and not go on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from tightbudget.errors import FencingError, ParameterError, SettlementError
from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.guarantee import Cell
from tightbudget.output_dp.transactions import Uncopied
from tightbudget.promises.chain import canonical
from tightbudget.release.kept_run import Declared, KeptRun, not_resumable
from tightbudget.release.meter import Meter
from tightbudget.release.release import Receipt, Started, started
from tightbudget.workflows.choices import split
from tightbudget.workflows.prices import PricedWorkflow
from tightbudget.workflows.workflow import Move, Workflow


class WorkflowRun(Uncopied):
    """Pays for one run of a workflow, whose moves are chosen as it goes.

    Entered with ``with``, it holds the price of the costliest state. At the end of the block it
    charges the price of the state that was reached, and frees the rest of epsilon. A state without
    a price costs as much as the cheapest one that can be reached from it. If an exception leaves
    the block, the costliest state is charged.

    With ``resumable=True`` the costliest state stays held when an exception leaves the block, and
    after a crash: another process goes on with the run (:meth:`state_dict`,
    :meth:`load_state_dict`) at the state that was reached, or settles it without more moves
    (:meth:`end`). A move whose call of :meth:`go` has begun may count as taken, and once it has
    returned it does, whether or not its mechanisms have run. The ledger knows the moves, so the age
    of a checkpoint does not matter; of two processes at one state, one makes the next move, and the
    other is refused (:class:`FencingError`). After a move with an exponential mechanism, another
    process may end the run, and not go on.

    Guarantee: the meter pays for all that the moves release and for all choices, if each call of
    :meth:`go` comes before its mechanisms run and after those of the call before, and if choices
    depend on released outputs alone (see :mod:`tightbudget.release.workflow_run`). Of a resumable
    run, the outputs of all its processes are paid for, and the choice of when a process died, if
    each process draws new noise.
    Source: proofs/choices.v.

    Args:
        priced: the workflow with its prices; see :func:`tightbudget.workflows.priced`.
        meter: the budget that pays: a filter, or a budget of a ledger with a key
            (``budget.keyed(key)``).
        interactive: whether, before the run ends, anybody sees its outputs. If not, several runs
            may be open on one meter.
        resumable: whether another process may go on with the run. The meter is then a budget of a
            ledger with a key. The ledger writes two events for each move.

    Raises:
        ParameterError: ``priced`` is no PricedWorkflow, or the meter of a resumable run is no
            budget of a ledger with a key.
    """

    def __init__(
        self,
        priced: PricedWorkflow,
        meter: Meter,
        *,
        interactive: bool = True,
        resumable: bool = False,
    ) -> None:
        if not isinstance(priced, PricedWorkflow):
            raise refuse("priced", "be a workflow with prices (tb.workflows.priced)", priced)
        self._priced, self._meter, self._interactive = priced, meter, interactive
        self._paid = ExitStack()
        self._run: Started | None = None
        self._open = False
        self._state = priced.workflow.start
        self._process = os.getpid()
        self._kept = KeptRun(meter, priced.guarantee, *_declared(priced)) if resumable else None
        self._passed = 0  # the number of moves before this state
        # whether another process has ended the resumable run at this state, or may still choose
        self._ended = self._choosing = False

    def reserve(self) -> None:
        """Reserves the price of the costliest state before the run is entered, and draws its token.

        Then :meth:`state_dict` has the run's state: who keeps it before entering the run loses no
        run to a crash, at whatever moment. Entering the run reserves what was not reserved before.
        After a state was loaded, whose run is reserved, this does nothing.

        Raises:
            BudgetError: the price does not fit; nothing was charged.
            SettlementError: the run was entered before, or is not resumable; or another interactive
                mechanism is open on the meter.
        """
        kept = self._resumable()
        if self._run is not None:
            raise SettlementError("a run is reserved before it is entered")
        kept.reserve(self._interactive)

    def __enter__(self) -> WorkflowRun:
        """Reserves the price of the costliest state, and starts the run.

        Raises:
            BudgetError: the price does not fit; nothing was charged.
            SettlementError: the run was entered before, or another interactive mechanism is open on
                the meter; a state was loaded, and its run is over.
            FencingError: a state was loaded whose token is not that of its run.
        """
        if self._run is not None:
            raise SettlementError("a run is paid for once: another one needs a WorkflowRun")
        if self._kept is not None:
            kept = self._kept
            self._run = self._taken_over(kept) if kept.goes_on() else kept.begin(self._interactive)
            self._open = True
            return self
        self._run = self._paid.enter_context(
            started(self._meter, self._priced.guarantee(), None, interactive=self._interactive)
        )
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the run and charges the state that was reached.

        Raises:
            SettlementError: this process is a fork of the one that opened the run.
            FencingError: another process has gone on with the run; nothing is settled by this one.
        """
        self._open = False
        if self._kept is not None:
            if error is None:
                if os.getpid() != self._process:
                    raise SettlementError("a run is settled by the process that has started it")
                if not self._claim(self._kept, None):  # guard: no-move-after-the-end
                    raise self._overtaken()
                self._settle(self._kept)
            return
        assert self._run is not None, "the run was entered"
        self._run.cell = self._cell()  # guard: price-of-this-state
        self._paid.__exit__(kind, error, trace)  # guard: failure-costs-costliest-state

    @property
    def state(self) -> Cell:
        """The state that the run has reached."""
        return self._state

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves of this state; none at an end, or where this process may not go on."""
        return () if self._ended or self._choosing else self._ahead

    @property
    def _ahead(self) -> tuple[Move, ...]:
        """The moves that the workflow has at this state."""
        return self._priced.workflow.moves[self._state]

    def go(self, to: Cell, mechanism: Composable | None = None) -> Composition:
        """Takes note that a move's mechanisms are about to run, and goes on to its next state.

        Args:
            to: the next state.
            mechanism: what runs; needed where several moves lead to this state.

        Returns:
            The mechanisms that this move pays for. Run them after this call and before the next
            one, and no others.

        Raises:
            ParameterError: this state has no such move; the run is where it was.
            SettlementError: no run is open, or this process is a fork of the one that opened it.
            FencingError: another process has gone on with the run from this state. Run nothing.
            LedgerError: the ledger of a resumable run does not answer. Run nothing: another process
                may go on with the run, and finds whether this move was taken.
        """
        if os.getpid() != self._process:
            raise SettlementError("a run goes on in the process that has begun it: this is a fork")
        if not self._open:
            raise SettlementError("no run is open: moves are paid for inside its with block")
        there = [move for move in self._ahead if move.to == to]
        if mechanism is not None:
            runs = compose([mechanism])
            there = [move for move in there if move.runs == runs]
        if self._choosing:
            raise SettlementError(
                f"the run has come to state {self._state!r} by a move that chooses among "
                "candidates, which another process may still be at: this one may end the run, and "
                "not go on"
            )
        if self._ended:
            raise SettlementError(f"the run was ended at state {self._state!r} by another process")
        known = ", ".join(f"{move.runs} to {move.to!r}" for move in self.moves[:6])
        if not there:  # guard: declared-moves-alone
            wanted = f"{to!r}" if mechanism is None else f"{mechanism!r} to {to!r}"
            raise ParameterError(
                f"state {self._state!r} has the moves {known or '(none: it is an end)'}; "
                f"got {wanted}"
            )
        if len(there) > 1:
            raise ParameterError(
                f"several moves lead to {to!r}: name the mechanism of one of {known}"
            )
        if self._kept is not None and not self._claim(self._kept, to):  # guard: move-claimed-first
            self._open = False
            raise self._overtaken()
        self._state, self._passed = to, self._passed + 1
        return there[0].runs

    def state_dict(self) -> dict[str, Any]:
        """Returns what another process needs to go on with a resumable run, as plain JSON values.

        It is the same from the reservation of the run (:meth:`reserve`) to its end: save it once,
        before the run is entered, or with each checkpoint. It holds the token of the run, a secret:
        who has it may settle the run.

        Raises:
            SettlementError: the run is not reserved, or is not resumable.
        """
        return self._resumable().state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over the run of a process that is no more, before the run is entered.

        The ledger is asked for the moves that were taken when the run is entered. A run that was
        reserved, and not started, starts then.

        Args:
            state: what :meth:`state_dict` has returned there.

        Raises:
            ParameterError: it is no such state, or that of another key or another workflow.
            SettlementError: the run was reserved or entered before, or is not resumable.
        """
        self._resumable().load(state)

    def end(self) -> Receipt:
        """Settles a run whose state was loaded, without more moves, in place of entering it.

        The run is charged the state that its last move leads to.

        Raises:
            SettlementError: no state was loaded, the run was entered, or it is over.
            FencingError: the token of the state is not that of its run.
        """
        kept = self._resumable()
        if self._run is not None:
            raise SettlementError("a run is ended without moves before it is entered")
        self._run = self._taken_over(kept)
        while not self._claim(kept, None):
            self._follow(kept)  # a process that is still alive has made a move
        self._settle(kept)
        return self.receipt

    def _resumable(self) -> KeptRun:
        """Returns the run as its ledger keeps it."""
        if self._kept is None:
            raise not_resumable("WorkflowRun")
        return self._kept

    def _taken_over(self, kept: KeptRun) -> Started:
        """Takes over the run whose state was loaded, at the state that its moves have led to."""
        run = kept.take_over(self._interactive)
        self._follow(kept)
        return run

    # Proof: proofs/choices.v, theorems overtaken, prices_overtaken
    def _follow(self, kept: KeptRun) -> None:
        """Goes to the state that the moves in the ledger lead to.

        Raises:
            ParameterError: the ledger has a move that the workflow does not have.
        """
        while self._ahead and (gone := kept.places.gone_on_from(self._passed)) is not None:
            taken = [move for move in self._ahead if (move.to,) == gone]
            if not taken:  # guard: kept-moves-are-moves
                raise ParameterError(
                    f"workflow must have the moves of the run: from {self._state!r}, the ledger "
                    f"has one to {gone!r}"
                )
            self._choosing = any(split(move.runs)[1].parts for move in taken)  # guard: chosen-first
            self._state, self._passed = gone[0], self._passed + 1  # guard: begun-moves-count
        self._ended = bool(self._ahead) and kept.places.ended_at(self._passed)

    def _claim(self, kept: KeptRun, to: Cell | None) -> bool:
        """Claims the next move, or the end of the run here, unless nothing can come after it."""
        if to is not None:
            return kept.places.claim(self._passed, goes_on=True, to=(to,))
        if not self._ahead or kept.places.claim(self._passed, goes_on=False):
            return True
        # ended by a process whose claim another budget, or the quota of another person, has paid
        return kept.places.ended_at(self._passed)

    def _settle(self, kept: KeptRun) -> None:
        """Charges the state at which a resumable run has ended."""
        assert self._run is not None, "the run was entered"
        self._run.cell = self._cell()
        self._run.charged = kept.settle(self._run.cell)

    def _overtaken(self) -> FencingError:
        """Makes the refusal of a process that another one was quicker than."""
        return FencingError(
            f"another process has gone on with this run from state {self._state!r}, or has ended "
            "it there: nothing is run or settled here"
        )

    @property
    def receipt(self) -> Receipt:
        """The receipt of the run: the amounts held, charged and returned.

        Raises:
            SettlementError: the run has not ended.
        """
        if self._run is None:
            raise SettlementError("the run has not begun")
        return self._run.released(None).receipt

    # Proof: proofs/choices.v, theorem walking_away
    def _cell(self) -> Cell:
        """The state whose price is charged: this one, or the cheapest that can be reached."""
        prices, moves = self._priced.prices, self._priced.workflow.moves
        if self._state in prices:
            return self._state
        reached, ahead = {self._state}, [self._state]
        while ahead:
            for move in moves[ahead.pop()]:
                if move.to not in reached:
                    reached.add(move.to)
                    ahead.append(move.to)
        return min((state for state in reached if state in prices), key=prices.__getitem__)


def _declared(priced: PricedWorkflow) -> tuple[Declared, int]:
    """Says what a resumable run is of, and returns the largest number of moves before one."""
    workflow = priced.workflow
    states = workflow.to_dict()["workflow"]
    # in one order, whatever the order of states and moves
    content = [states[0]["state"], sorted(canonical(_sorted(state)) for state in states)]
    return (
        Declared("WorkflowRun", "workflow", "the states and the moves", content),
        _longest(workflow) - 1,
    )


def _sorted(state: Mapping[str, Any]) -> list[Any]:
    return [state["state"], sorted(canonical(move) for move in state["moves"])]


def _longest(workflow: Workflow) -> int:
    """The number of moves of the longest way."""
    left: dict[Cell, int] = {}
    for state in workflow.order:
        left[state] = max((1 + left[move.to] for move in workflow.moves[state]), default=0)
    return left[workflow.start]
