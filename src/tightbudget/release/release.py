"""The one path from data to an answer: reserve -> admit -> start -> run -> settle -> reveal.

What a run may cost at most is held before the data is looked at. After the start nothing but
the cell of the answer gives budget back.

Whether something fails is as private as what it answers: an error that one record can cause
tells that the record is there, at no price. So a query that raises has answered nothing
(:func:`answered`), and its mechanism goes on with a public fallback. What is left to fail after
the start has not seen the data: noise that cannot be drawn, a rule that was told nothing but
what is released, a mechanism that answers a cell it has not declared. That costs the worst-case
price, and the error (:func:`guarded`) still says nothing of what went wrong.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from tightbudget.errors import ReleaseError, SettlementError
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.account import Budget
from tightbudget.output_dp.acts import Uncopied
from tightbudget.output_dp.amount import exact, printed_down, printed_up
from tightbudget.output_dp.guarantee import Cell, OutputDP, cell_name
from tightbudget.release.meter import Meter

__all__ = [
    "Receipt",
    "Release",
    "Started",
    "WhatIf",
    "answered",
    "guarded",
    "paid",
    "started",
    "what_if",
]

T = TypeVar("T")
V = TypeVar("V")

_operator = logging.getLogger(__name__)


@dataclass(frozen=True)
class Receipt:
    """What a run has cost. As public as the answer: a price says which cell came out.

    Attributes:
        held: what was held before the run.
        charged: what the run has cost.
    """

    held: Budget
    charged: Budget

    @property
    def returned(self) -> Budget:
        """What came back, rounded down: returned + charged is at most what was held."""
        return Budget(
            printed_down(exact(held=self.held.amount) - exact(charged=self.charged.amount)),
            printed_down(exact(held=self.held.delta) - exact(charged=self.charged.delta)),
            self.held.unit,
        )

    def __str__(self) -> str:
        return f"held {self.held}; charged {self.charged}; returned {self.returned}"


@dataclass(frozen=True)
class Release(Generic[V]):
    """An answer, and what it has cost.

    Attributes:
        value: what the mechanism answers.
        cell: the kind of the answer, which its price hangs on.
        receipt: what was held, charged and returned.
    """

    value: V
    cell: Cell
    receipt: Receipt


@dataclass(frozen=True)
class WhatIf:
    """What a mechanism would cost, asked before anything is touched.

    Attributes:
        most, least: the prices of its dearest and its cheapest cell, with the whole delta.
        left: what the meter has left.
        fits: whether it could be reserved now (no only if it may not be).
    """

    most: Budget
    least: Budget
    left: Budget

    @property
    def fits(self) -> bool:
        """Whether the dearest price is at most what is left."""
        return self.most.amount <= self.left.amount and self.most.delta <= self.left.delta

    def __str__(self) -> str:
        fits = "fits" if self.fits else "does not fit"
        return f"from {self.least} to {self.most}; left {self.left}: {fits}"


def what_if(guarantee: OutputDP, meter: Meter) -> WhatIf:
    """The price of a mechanism, and whether it fits, without reserving anything.

    Raises:
        ParameterError: the meter does not count epsilon.
    """
    left = meter.left
    if left.unit != "epsilon":
        raise refuse("meter", "count epsilon", left.unit)
    delta = printed_up(guarantee.delta)
    return WhatIf(
        most=Budget(printed_up(guarantee.sup), delta, left.unit),
        least=Budget(printed_up(guarantee.cheapest()), delta, left.unit),
        left=left,
    )


def paid(
    meter: Meter,
    guarantee: OutputDP,
    data: Any,
    run: Callable[[Any], tuple[V, Cell]],
    admit: Callable[[Any], Any] | None = None,
) -> Release[V]:
    """Runs a mechanism once and pays for what came out.

    Args:
        meter: what pays.
        guarantee: what ``run`` promises.
        data: what ``run`` gets, as ``admit`` left it.
        run: from the data to a value and its cell, a cell that the guarantee lists.
        admit: from what the caller gave to what ``run`` wants. It may refuse types, shapes
            and names of columns, never values: it is not paid for, so what it refuses gives
            everything back.

    Raises:
        BudgetError: it does not fit; the data was not touched.
        ParameterError: the data was not admitted; nothing was charged.
        ReleaseError: what has not seen the data failed; the worst-case price was charged.
    """
    with started(meter, guarantee, data, admit) as run_:
        value, run_.cell = guarded(lambda: _declared(guarantee, run(run_.data)))
    return run_.released(value)


@dataclass
class Started(Uncopied):
    """A run that was paid for at the dearest price, and has not ended.

    Attributes:
        data: what was admitted.
        cell: of what came out, up to now: what ending now settles with.
    """

    data: Any
    held: Budget
    cell: Cell | None = None
    charged: Budget | None = None

    def released(self, value: V) -> Release[V]:
        """The answer with its receipt, when the run has ended well.

        Raises:
            SettlementError: it has not.
        """
        if self.cell is None or self.charged is None:
            raise SettlementError("the run was not settled: there is nothing to reveal")
        return Release(value, self.cell, Receipt(self.held, self.charged))


@contextmanager
def started(
    meter: Meter,
    guarantee: OutputDP,
    data: Any,
    admit: Callable[[Any], Any] | None = None,
    *,
    interactive: bool = False,
) -> Iterator[Started]:
    """Reserves and starts; settles with ``cell`` at the end of the block.

    A block that an exception leaves is charged the dearest price; so is one that never ends,
    since what is held stays held. A process that was forked in the block charges nothing: the
    other one is still in it.
    """
    hold = meter.reserve(guarantee, interactive=interactive)
    held = hold.charge
    try:
        admitted = data if admit is None else admit(data)
    except BaseException:
        hold.void()
        raise
    hold.start()
    run, process = Started(admitted, held), os.getpid()
    try:
        yield run
    except BaseException:
        if os.getpid() == process:
            hold.forfeit()
        raise
    if run.cell is None:
        hold.forfeit()
        raise ReleaseError("the run has ended without an answer: its dearest price is charged")
    if os.getpid() != process:
        # the other process may still be answering: it has to say what came out
        raise SettlementError("a run is settled by the process that has started it")
    settled: Budget | None = hold.settle(run.cell)
    # a meter that forgets to answer has charged all the same: it says how much
    run.charged = hold.charge if settled is None else settled


def answered(call: Callable[[], T]) -> T | None:
    """Calls code that sees the data, and returns its answer; None if it raises.

    An operator who may see the data finds what was raised in the log of this module, at level
    DEBUG. NumPy's warnings of single numbers (overflow, NaN) are off while it runs.
    """
    try:
        with np.errstate(all="ignore"):
            return call()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise  # guarded passes it on without its text
        _operator.debug("a query has failed: its fallback is used", exc_info=True)
        return None


def guarded(call: Callable[[], T]) -> T:
    """What the call returns; if it raises, an error that says nothing about the data.

    The error has neither a cause nor a context. An operator who may see the data finds the
    original in the log of this module, at level DEBUG.

    Raises:
        ReleaseError: the call raised.
        KeyboardInterrupt: the call was interrupted; this is a new one, which says nothing.
    """
    try:
        return call()
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        _operator.debug("a mechanism failed after it had started", exc_info=True)
    if interrupted:
        raise KeyboardInterrupt  # a new one: the text and the frames of the first may hold data
    raise ReleaseError(
        "the mechanism failed after it had started: nothing is released, "
        "and its dearest price is charged"
    )


def _declared(guarantee: OutputDP, answer: object) -> tuple[Any, Cell]:
    """The answer, if it is a value and a cell that the guarantee lists."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise TypeError("a run answers with a value and its cell")
    value, cell = answer
    if cell_name(cell) not in guarantee.cells:
        raise ValueError(f"cell {cell!r} was not declared")
    return value, cell_name(cell)
