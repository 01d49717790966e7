"""Early stopping in anybody's training loop: the stop is paid for, and change comes back.

To the bound under a schedule, the rule for stopping is the adversary: it may be any function of
what was released. That is all it may be. Allowed are the noisy steps so far (so the model, its
norm, what it answers on public data), answers of other mechanisms that the same meter has paid
for, and coins. Not allowed is anything else that the private records touch: the loss of a
training batch, the accuracy on records that were held out. Who wants to stop by these
releases them with noise, as one more mechanism of each block of the schedule.
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

__all__ = ["StoppingCallback"]

T = TypeVar("T")


class StoppingCallback(Uncopied, Generic[T]):
    """Pays for a training run that may stop early at the stops of a schedule.

    Entered with ``with``, it holds the dearest stop before training begins. Left, it charges the
    stop at which the rule said yes, and frees the rest of epsilon; the dearest stop, if an
    exception leaves the block or the loop ends between two stops.

    Guarantee: what the run releases, and that it stopped where it did, is paid for on the meter,
    if the steps between stops are those of the schedule and the rule sees only what was released
    (see :mod:`tightbudget.adapters.stopping`). :meth:`step` holds a loop to the former.
    Source: Hartmann et al. 2022, Algorithm 3.

    Args:
        schedule: see :func:`tightbudget.early_stopping`.
        meter: what pays: a filter, or a budget of a ledger with its key (``budget.keyed(key)``).
        rule: told what :meth:`should_stop` is given, says whether to stop.
        interactive: whether, before it ends, anybody but the rule sees something of the run, or
            the rule anything but the run. If not, several may be open on one meter side by side.

    Raises:
        ParameterError: schedule or rule is not one.
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
        self._open: Started | None = None  # the run, while it may go on
        self._asked = 0  # how many steps had run when it was last asked
        self._process = os.getpid()
        self._passed = 0  # how many stops were
        self._left = Counter(dict(schedule.blocks[0].parts))  # what may run before the next one
        self._counted = False  # whether steps are told

    def __enter__(self) -> StoppingCallback[T]:
        """Reserves the dearest stop, and starts.

        Raises:
            BudgetError: it does not fit; nothing was charged.
            SettlementError: it was entered before, or another interactive mechanism is open.
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
        """Charges the stop.

        Raises:
            ReleaseError: it ended between two stops; the dearest is charged.
        """
        self._open = None
        self._paid.__exit__(kind, error, trace)

    def should_stop(self, steps: int, released: T) -> bool:
        """Whether to stop now; to be asked at every stop, and between them as often as one likes.

        Between stops the answer is no, and at the last it is yes, without asking the rule.

        Args:
            steps: of the schedule that have run.
            released: what the rule is told.

        Raises:
            ParameterError: a stop was skipped, or steps did not grow.
            SettlementError: what ran is not what the schedule has until here, as far as it was
                told; or no run is open.
        """
        (run, due), k = self._next(), positive_count(steps=steps)
        if not self._asked < k <= due:
            raise refuse("steps", f"be above {self._asked} and at most {due}, the next stop", k)
        if k == due and self._counted and any(self._left.values()):
            raise SettlementError(f"stop {due} comes after {self._still()}, which did not run")
        self._asked = k
        if k < due:
            return False
        if k == self._schedule.stops[-1] or self._rule(released):
            run.cell, self._open = k, None
            return True
        self._passed += 1
        self._left = Counter(dict(self._schedule.blocks[self._passed].parts))
        return False

    def step(self, mechanism: Mechanism) -> None:
        """Tells that one run of a mechanism is about to take effect.

        A loop that tells one of its steps tells them all.

        Raises:
            ParameterError: the schedule has no such step left before the next stop.
            SettlementError: a stop was not asked for, or no run is open.
        """
        _, due = self._next()
        if not any(self._left.values()):
            raise SettlementError(
                f"stop {due} is due: ask should_stop({due}, ...) before {mechanism}"
            )
        if not self._left[mechanism]:
            raise ParameterError(f"stop {due} comes after {self._still()}, got {mechanism}")
        self._left[mechanism] -= 1
        self._counted = True

    @property
    def receipt(self) -> Receipt:
        """What was held, charged and returned.

        Raises:
            SettlementError: the run has not ended with a stop.
        """
        if self._run is None:
            raise SettlementError("the run has not begun")
        return self._run.released(None).receipt

    def _next(self) -> tuple[Started, int]:
        """The open run, and its next stop."""
        if os.getpid() != self._process:
            raise SettlementError("a run goes on in the process that has begun it: this is a fork")
        if self._open is None:
            raise SettlementError(
                "no run is open: nothing is paid for before the callback is entered, "
                "or after it has said stop"
            )
        return self._open, self._schedule.stops[self._passed]

    def _still(self) -> Composition:
        return Composition(tuple(self._left.items()))
