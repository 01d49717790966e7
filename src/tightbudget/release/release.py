"""The one path from data to an answer: reserve -> admit -> start -> run -> settle -> reveal.

The worst-case price of a run is held before the data is looked at. After the start, only the
output cell of the answer gives budget back.

A failure is as private as an answer: an error that one record can cause tells that the record is
there, at no price. So a query that raises has answered nothing (:func:`answered`), and its
mechanism goes on with a public fallback. Only code that has not seen the data can still fail
after the start: noise that cannot be drawn, a rule on released answers, a mechanism whose answer
is in a cell that it has not declared. Such a failure costs the worst-case price, and its error
(:func:`guarded`) says nothing of the cause.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np

from tightbudget import notebook
from tightbudget.errors import ParameterError, ReleaseError, SettlementError
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.amount import (
    Amount,
    amounts_table,
    exact,
    printed_down,
    printed_up,
)
from tightbudget.output_dp.guarantee import Cell, OutputDP, cell_name
from tightbudget.output_dp.transactions import Uncopied
from tightbudget.release.interrupts import interrupts
from tightbudget.release.meter import Meter
from tightbudget.release.rehearsal import in_rehearsal, rehearsal

T = TypeVar("T")
V = TypeVar("V")

_ADVICE = "try it with .rehearse(public data): that raises the error and charges nothing"

_operator = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Receipt:
    """A receipt: the amounts that were held and charged for one run.

    It is as public as the answer, since the charge tells which output cell came out.

    Attributes:
        held: the amount that was held before the run.
        charged: the amount that the run has cost.
        question: the question that was answered, in one line of text; None where nobody said one.
    """

    held: Amount
    charged: Amount
    question: str | None = None

    @property
    def returned(self) -> Amount:
        """The amount that came back, rounded down: returned + charged is at most held."""
        return Amount(
            printed_down(exact(held=self.held.amount) - exact(charged=self.charged.amount)),
            printed_down(exact(held=self.held.delta) - exact(charged=self.charged.delta)),
            self.held.unit,
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the question, and the amounts as dictionaries, as plain JSON values."""
        amounts = {"held": self.held, "charged": self.charged, "returned": self.returned}
        said = {name: amount.to_dict() for name, amount in amounts.items()}
        return {**said, "question": self.question}

    def __str__(self) -> str:
        asked = "" if self.question is None else f"{self.question}: "
        return f"{asked}held {self.held}; charged {self.charged}; returned {self.returned}"

    def __repr__(self) -> str:
        return f"<Receipt: {self}>"

    def _repr_html_(self) -> str:
        """Writes a table of the amounts, with a bar of the charge in the hold, for a notebook."""
        amounts = {"held": self.held, "charged": self.charged, "returned": self.returned}
        picture = notebook.bar(spent=self.charged.amount, held=0.0, cap=self.held.amount)
        title = "Receipt" if self.question is None else f"Receipt: {self.question}"
        return notebook.shown(amounts_table(amounts, title=title), picture)


@dataclass(frozen=True)
class Release(Generic[V]):
    """An answer of a mechanism, with the receipt of its run.

    Attributes:
        value: the answer.
        cell: the output cell of the answer, which decides its price.
        receipt: the amounts held, charged and returned.
    """

    value: V
    cell: Cell
    receipt: Receipt


@dataclass(frozen=True)
class ReleasePreview:
    """The prices of a mechanism beside the budget that is left, asked before a run.

    Attributes:
        most: the worst-case price, with the whole delta.
        least: the price of the cheapest output cell, with the whole delta.
        left: the amount that the meter has left.
        fits: whether the mechanism could be reserved now; False only if it would be refused.
    """

    most: Amount
    least: Amount
    left: Amount

    @property
    def fits(self) -> bool:
        """True if the worst-case price is at most the amount that is left."""
        return self.most.amount <= self.left.amount and self.most.delta <= self.left.delta

    def __str__(self) -> str:
        fits = "fits" if self.fits else "does not fit"
        return f"from {self.least} to {self.most}; left {self.left}: {fits}"


@dataclass(frozen=True)
class Rehearsal:
    """The price of a run that was rehearsed on public or made-up data; nothing was charged.

    It has no value: an answer is released by a run that is paid for.

    Attributes:
        cell: the output cell that came out; another run may end in another cell.
        cost: the price of that cell, with the whole delta.
        most: the worst-case price, which a paid run holds until it ends.
    """

    cell: Cell
    cost: Amount
    most: Amount

    def __str__(self) -> str:
        return f"cell {self.cell!r} costs {self.cost}; at most {self.most}; nothing was charged"


def rehearsed(guarantee: OutputDP, data: Any, run: Callable[[Any], tuple[V, Cell]]) -> Rehearsal:
    """Runs a mechanism on public or made-up data, unpaid, and returns its price without its value.

    Raises:
        Exception: any error of ``run`` as it is, also one that a paid run would hide.
    """
    with rehearsal():
        _, cell = _declared(guarantee, run(data))
    delta = printed_up(guarantee.delta)
    return Rehearsal(
        cell,
        cost=Amount(printed_up(guarantee.price(cell)), delta, "epsilon"),
        most=Amount(printed_up(guarantee.sup), delta, "epsilon"),
    )


def what_if(guarantee: OutputDP, meter: Meter) -> ReleasePreview:
    """Compares the prices of a mechanism with what a meter has left; reserves nothing.

    Raises:
        ParameterError: the meter is no budget, or does not count epsilon.
    """
    left = checked_meter(meter).left
    if left.unit != "epsilon":
        raise refuse("meter", "count epsilon", left.unit)
    delta = printed_up(guarantee.delta)
    return ReleasePreview(
        most=Amount(printed_up(guarantee.sup), delta, left.unit),
        least=Amount(printed_up(guarantee.cheapest()), delta, left.unit),
        left=left,
    )


def paid(
    meter: Meter,
    guarantee: OutputDP,
    data: Any,
    run: Callable[[Any], tuple[V, Cell]],
    admit: Callable[[Any], Any] | None = None,
) -> Release[V]:
    """Runs a mechanism once, and pays for the output cell that came out.

    Args:
        meter: the budget that pays.
        guarantee: the price of each output cell of ``run``.
        data: the data of the caller; ``admit`` turns them into the data that ``run`` gets.
        run: from the admitted data to a value and its cell, which the guarantee lists.
        admit: from the data of the caller to those of ``run``; None admits all data as they are.
            It may refuse types, shapes and names of columns, never values: it is not paid for,
            and a refusal gives the whole hold back.

    Raises:
        BudgetError: the worst-case price does not fit; the data was not touched.
        ParameterError: the meter is no budget, or the data was not admitted; nothing was charged.
        ReleaseError: code that has not seen the data failed; the worst-case price was charged.
    """
    # guard: paid-run-hides-errors
    with started(meter, guarantee, data, admit) as run_, rehearsal(False):
        value, run_.cell = guarded(lambda: _declared(guarantee, run(run_.data)), _ADVICE)
    return run_.released(value)


@dataclass
class Started(Uncopied):
    """A run that has started: its worst-case price is held until it ends.

    Attributes:
        data: the admitted data; None after the end of the run.
        held: the amount that is held.
        cell: the output cell that the run would settle with if it ended now; None if it would
            be charged the worst-case price.
        charged: the amount that the run has cost; None before it was settled.
    """

    data: Any
    held: Amount
    cell: Cell | None = None
    charged: Amount | None = None

    def released(self, value: V) -> Release[V]:
        """Returns the value with its receipt, when the run was settled.

        Raises:
            SettlementError: the run was not settled.
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
    """Reserves and starts a run; settles it with its ``cell`` at the end of the block.

    A block that an exception leaves is charged the worst-case price. A block that never ends
    keeps its hold. A process that was forked inside the block charges nothing, since the process
    that opened the block is still in it.
    """
    hold = checked_meter(meter).reserve(guarantee, interactive=interactive)
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
            hold.forfeit()  # guard: failure-forfeits
        raise
    finally:
        # guard: ended-run-without-data
        run.data = None  # a run that has ended, and is kept, keeps no data
    if run.cell is None:
        hold.forfeit()
        raise ReleaseError("the run has ended without an answer: its worst-case price is charged")
    if os.getpid() != process:  # guard: fork-never-settles
        # the process that opened the block may still be answering: it has to name the cell
        raise SettlementError("a run is settled by the process that has started it")
    settled: Amount | None = hold.settle(run.cell)
    # a meter whose settle returns nothing has charged all the same: its hold knows the amount
    run.charged = hold.charge if settled is None else settled


def answered(call: Callable[[], T]) -> T | None:
    """Calls code that sees the data, and returns its answer; None if it raises.

    An operator who may see the data finds the error in the log of this module, at level DEBUG.
    NumPy's warnings of single numbers (overflow, NaN) are off while the code runs. In a rehearsal
    the error is raised.
    """
    with interrupts():  # which raises an interrupt that the code has hidden, or made an error of
        try:
            with np.errstate(all="ignore"):
                return call()
        except BaseException as error:  # guard: leaving-not-seen
            if isinstance(error, KeyboardInterrupt) or in_rehearsal():
                raise  # guarded passes an interrupt on without its text
            _operator.debug("a query has failed: its fallback is used", exc_info=True)
        return None  # guard: failing-not-seen


def guarded(call: Callable[[], T], advice: str = "") -> T:
    """Returns the answer of a call; if the call raises, raises an error without any detail.

    The new error has neither a cause nor a context. An operator who may see the data finds the
    original error in the log of this module, at level DEBUG.

    Args:
        call: the code that may raise.
        advice: what the message says in the end.

    Raises:
        ReleaseError: the call raised.
        KeyboardInterrupt: the call was interrupted, whatever error it has made of that; this is a
            new interrupt, without a text.
        SystemExit: a handler of SIGTERM has ended the program while the call ran.
    """
    with interrupts():  # which raises an interrupt that the code has hidden, or made an error of
        answer, failed, interrupted = None, True, False
        try:
            answer, failed = call(), False
        except BaseException as error:  # guard: every-error-hidden
            interrupted = isinstance(error, KeyboardInterrupt)  # guard: interrupt-silent
            # guard: cause-for-operator-alone
            _operator.debug("a mechanism failed after it had started", exc_info=True)
        if not failed:
            return cast(T, answer)
    if interrupted:
        raise KeyboardInterrupt  # a new one: the text and the frames of the first may hold data
    raise ReleaseError(
        "the mechanism failed after it had started: nothing is released, "
        "and its worst-case price is charged" + (advice and f"; {advice}")
    )


def checked_meter(meter: Meter) -> Meter:
    """Returns a meter that mechanisms can charge.

    Raises:
        ParameterError: it is none. A budget of a ledger is one only with a key for each run.
    """
    if isinstance(meter, type):
        raise refuse("meter", f"be a budget and not a class, say {meter.__name__}(...)", meter)
    if callable(getattr(meter, "keyed", None)):
        # the repr of a budget of a ledger would read the ledger
        raise ParameterError(
            'meter must have a key for its runs, say budget.keyed("A7"), got a '
            f"{type(meter).__name__} without one"
        )
    try:
        inspect.signature(meter.reserve).bind(None, interactive=False)
    except (AttributeError, TypeError):
        must = "be a budget that mechanisms charge, say OutputDPFilter(epsilon=1.0)"
        raise refuse("meter", must, meter) from None
    return meter


def _declared(guarantee: OutputDP, answer: object) -> tuple[Any, Cell]:
    """Returns an answer that is a value and a cell of the guarantee; raises for any other."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise TypeError("a run answers with a value and its cell")
    value, cell = answer
    if cell_name(cell) not in guarantee.cells:  # guard: only-declared-cells
        raise ValueError(f"cell {cell!r} was not declared")
    return value, cell_name(cell)
