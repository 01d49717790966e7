"""Pays for early stopping in any training loop, and frees the price of the steps not run.

The bound of a schedule treats the stopping rule as the adversary: the rule may be any function of
the released outputs, and of nothing else. It may use the noisy steps so far (so the model, its
norm, its answers on public data), answers of other mechanisms that the same meter has paid for,
and coins. It may not use anything else that depends on private records, such as the loss of a
training batch or the accuracy on records that were held out. To stop by such a number, release it
with noise, as one more mechanism of each block of the schedule.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, TypeVar

from tightbudget.accounting.schedule import StoppingSchedule
from tightbudget.errors import ParameterError, SettlementError
from tightbudget.mechanisms.composition import Composition, Mechanism
from tightbudget.numerics.validate import positive_count, refuse
from tightbudget.output_dp.transactions import Uncopied
from tightbudget.release.meter import Meter
from tightbudget.release.release import Receipt, Started, started

T = TypeVar("T")


class StoppingCallback(Uncopied, Generic[T]):
    """Pays for a training run that may stop early at the stops of a schedule.

    Entered with ``with``, the callback holds the worst-case stop before training begins. At the
    end of the block it charges the stop at which the rule said yes, and frees the rest of epsilon.
    If an exception leaves the block, or the loop ends between two stops, it charges the worst-case
    stop.

    Guarantee: the meter pays for the outputs of the run and for the choice of the stop, if the
    steps between stops are those of the schedule and the rule sees only released outputs (see
    :mod:`tightbudget.release.stopping`). :meth:`step` refuses steps that are not the schedule's.
    Source: Hartmann et al. 2022, Algorithm 3.

    Args:
        schedule: the prices of the stops; see :func:`tightbudget.early_stopping`.
        meter: the budget that pays: a filter, or a budget of a ledger with a key
            (``budget.keyed(key)``).
        rule: from the outputs that :meth:`should_stop` is given to whether to stop.
        interactive: whether, before the run ends, anybody but the rule sees its outputs, or the
            rule sees anything but its outputs. If not, several runs may be open on one meter.

    Raises:
        ParameterError: the schedule is no StoppingSchedule, or the rule is no function.
    """

    def __init__(
        self,
        schedule: StoppingSchedule,
        meter: Meter,
        rule: Callable[[T], bool],
        *,
        interactive: bool = True,
    ) -> None:
        if not isinstance(schedule, StoppingSchedule):
            raise refuse("schedule", "be a StoppingSchedule", schedule)
        if not callable(rule):
            raise refuse("rule", "be a function of what was released", rule)
        self._schedule, self._meter, self._rule = schedule, meter, rule
        self._interactive = interactive
        self._paid = ExitStack()
        self._run: Started | None = None
        self._open: Started | None = None  # the run, until the rule has said stop
        self._asked = 0  # the steps that had run at the last call of should_stop
        self._process = os.getpid()
        self._passed = 0  # the stops at which the rule has said no
        self._left = Counter(dict(schedule.blocks[0].parts))  # what may run before the next one
        self._counted = False  # whether the loop tells its steps

    def __enter__(self) -> StoppingCallback[T]:
        """Reserves the worst-case stop, and starts the run.

        Raises:
            BudgetError: the worst-case stop does not fit; nothing was charged.
            SettlementError: the callback was entered before, or another interactive mechanism is
                open on the meter.
        """
        if self._run is not None:
            raise SettlementError("a run is paid for once: another one needs a callback of its own")
        guarantee = self._schedule.guarantee()
        self._run = self._open = self._paid.enter_context(
            started(self._meter, guarantee, None, interactive=self._interactive)
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the run and charges its stop.

        Raises:
            ReleaseError: the run ended between two stops; the worst-case stop is charged.
        """
        self._open = None
        self._paid.__exit__(kind, error, trace)  # guard: failure-costs-worst-stop

    def should_stop(self, steps: int, released: T) -> bool:
        """Says whether to stop now; a loop asks at every stop, and may ask between stops.

        Between stops the answer is no, and at the last stop it is yes, without asking the rule.

        Args:
            steps: the number of steps of the schedule that have run.
            released: the outputs that the rule is told.

        Raises:
            ParameterError: a stop was skipped, or the steps did not grow.
            SettlementError: the steps that the loop has told are not all those of the schedule
                up to this stop; or no run is open.
        """
        (run, due), k = self._next(), positive_count(steps=steps)
        if not self._asked < k <= due:  # guard: no-stop-skipped
            raise refuse("steps", f"be above {self._asked} and at most {due}, the next stop", k)
        if k == due and self._counted and any(self._left.values()):  # guard: all-steps-before-stop
            raise SettlementError(f"stop {due} comes after {self._still()}, which did not run")
        self._asked = k
        if k < due:
            return False
        if k == self._schedule.stops[-1] or self._rule(released):  # guard: last-stop-ends-run
            run.cell, self._open = k, None  # guard: price-of-this-stop
            return True
        self._passed += 1
        self._left = Counter(dict(self._schedule.blocks[self._passed].parts))
        return False

    def step(self, mechanism: Mechanism) -> None:
        """Takes note that one run of a mechanism is about to take effect.

        A loop that tells one of its steps has to tell all of them.

        Raises:
            ParameterError: the schedule has no such step left before the next stop.
            SettlementError: a stop was not asked for, or no run is open.
        """
        _, due = self._next()
        if not any(self._left.values()):
            raise SettlementError(
                f"stop {due} is due: ask should_stop({due}, ...) before {mechanism}"
            )
        if not self._left[mechanism]:  # guard: no-other-steps-than-paid
            raise ParameterError(f"stop {due} comes after {self._still()}, got {mechanism}")
        self._left[mechanism] -= 1  # guard: no-more-steps-than-paid
        self._counted = True

    @property
    def receipt(self) -> Receipt:
        """The receipt of the run: the amounts held, charged and returned.

        Raises:
            SettlementError: the run has not ended with a stop.
        """
        if self._run is None:
            raise SettlementError("the run has not begun")
        return self._run.released(None).receipt

    def _next(self) -> tuple[Started, int]:
        """Returns the open run and its next stop.

        Raises:
            SettlementError: no run is open, or this process is a fork of the one that opened it.
        """
        if os.getpid() != self._process:
            raise SettlementError("a run goes on in the process that has begun it: this is a fork")
        if self._open is None:
            raise SettlementError(
                "no run is open: nothing is paid for before the callback is entered, "
                "or after it has said stop"
            )
        return self._open, self._schedule.stops[self._passed]

    def _still(self) -> Composition:
        """Returns the steps that have still to run before the next stop."""
        return Composition(tuple(self._left.items()))
