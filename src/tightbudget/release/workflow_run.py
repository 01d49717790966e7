"""Pays for a workflow while it runs: admits its moves alone, and charges the state reached.

The price of a workflow treats the analyst as the adversary: the next move, and the decision to
stop, may be any function of what the moves so far have released, of answers of other mechanisms
that the same meter has paid for, and of coins. They may depend on nothing else that is private.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from types import TracebackType

from tightbudget.errors import ParameterError, SettlementError
from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.guarantee import Cell
from tightbudget.output_dp.transactions import Uncopied
from tightbudget.release.meter import Meter
from tightbudget.release.release import Receipt, Started, started
from tightbudget.workflows.prices import PricedWorkflow
from tightbudget.workflows.workflow import Move


class WorkflowRun(Uncopied):
    """Pays for one run of a workflow, whose moves are chosen as it goes.

    Entered with ``with``, it holds the price of the costliest state. At the end of the block it
    charges the price of the state that was reached, and frees the rest of epsilon. A state without
    a price costs as much as the cheapest one that can be reached from it. If an exception leaves
    the block, the costliest state is charged.

    Guarantee: the meter pays for all that the moves release and for all choices, if each call of
    :meth:`go` comes before its mechanisms run, and if choices depend on released outputs alone
    (see :mod:`tightbudget.release.workflow_run`).
    Source: proofs/choices.v.

    Args:
        priced: the workflow with its prices; see :func:`tightbudget.workflows.priced`.
        meter: the budget that pays: a filter, or a budget of a ledger with a key
            (``budget.keyed(key)``).
        interactive: whether, before the run ends, anybody sees its outputs. If not, several runs
            may be open on one meter.

    Raises:
        ParameterError: ``priced`` is no PricedWorkflow.
    """

    def __init__(self, priced: PricedWorkflow, meter: Meter, *, interactive: bool = True) -> None:
        if not isinstance(priced, PricedWorkflow):
            raise refuse("priced", "be a workflow with prices (tb.workflows.priced)", priced)
        self._priced, self._meter, self._interactive = priced, meter, interactive
        self._paid = ExitStack()
        self._run: Started | None = None
        self._open = False
        self._state = priced.workflow.start
        self._process = os.getpid()

    def __enter__(self) -> WorkflowRun:
        """Reserves the price of the costliest state, and starts the run.

        Raises:
            BudgetError: the price does not fit; nothing was charged.
            SettlementError: the run was entered before, or another interactive mechanism is open on
                the meter.
        """
        if self._run is not None:
            raise SettlementError("a run is paid for once: another one needs a WorkflowRun")
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
        """
        self._open = False
        assert self._run is not None, "the run was entered"
        self._run.cell = self._cell()  # guard: price-of-this-state
        self._paid.__exit__(kind, error, trace)  # guard: failure-costs-costliest-state

    @property
    def state(self) -> Cell:
        """The state that the run has reached."""
        return self._state

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves of this state; none at an end."""
        return self._priced.workflow.moves[self._state]

    def go(self, to: Cell, mechanism: Composable | None = None) -> Composition:
        """Takes note that a move's mechanisms are about to run, and goes on to its next state.

        Args:
            to: the next state.
            mechanism: what runs; needed where several moves lead to this state.

        Returns:
            The mechanisms that this move pays for. Run them after this call, and no others.

        Raises:
            ParameterError: this state has no such move; the run is where it was.
            SettlementError: no run is open, or this process is a fork of the one that opened it.
        """
        if os.getpid() != self._process:
            raise SettlementError("a run goes on in the process that has begun it: this is a fork")
        if not self._open:
            raise SettlementError("no run is open: moves are paid for inside its with block")
        there = [move for move in self.moves if move.to == to]
        if mechanism is not None:
            runs = compose([mechanism])
            there = [move for move in there if move.runs == runs]
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
        self._state = to
        return there[0].runs

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
