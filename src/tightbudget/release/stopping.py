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
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Generic, TypeVar

from tightbudget.accounting.schedule import StoppingSchedule
from tightbudget.errors import FencingError, ParameterError, ReleaseError, SettlementError
from tightbudget.mechanisms.composition import Composition, Mechanism
from tightbudget.numerics.validate import positive_count, refuse
from tightbudget.output_dp.transactions import Uncopied
from tightbudget.release.kept_run import Declared, KeptRun, not_resumable
from tightbudget.release.meter import Meter
from tightbudget.release.release import Receipt, Started, started

T = TypeVar("T")


class StoppingCallback(Uncopied, Generic[T]):
    """Pays for a training run that may stop early at the stops of a schedule.

    Entered with ``with``, the callback holds the worst-case stop before training begins. At the
    end of the block it charges the stop at which the rule said yes, and frees the rest of epsilon.
    If an exception leaves the block, or the loop ends between two stops, it charges the worst-case
    stop.

    With ``resumable=True`` the worst-case stop stays held in these cases, and after a crash:
    another process goes on with the run (:meth:`state_dict`, :meth:`load_state_dict`) or settles it
    without more training (:meth:`end`). Steps that had begun when a process ended count as run,
    whether or not a checkpoint has their outputs. So a run that goes on begins behind the next
    stop: it has one stop less for each process that died, however old its checkpoint is.

    Guarantee: the meter pays for the outputs of the run and for the choice of the stop, if the
    steps between stops are those of the schedule and the rule sees only released outputs (see
    :mod:`tightbudget.release.stopping`). :meth:`step` refuses steps that are not the schedule's.
    Of a resumable run, the outputs of all its processes are paid for, also of those that were lost
    or shown, and the choice of when a process died, if each process draws new noise and new
    batches.
    Source: Hartmann et al. 2022, Algorithm 3; proofs/stopping.v, where the steps between two stops
    may be chosen after seeing all outputs before.

    Args:
        schedule: the prices of the stops; see :func:`tightbudget.early_stopping`.
        meter: the budget that pays: a filter, or a budget of a ledger with a key
            (``budget.keyed(key)``).
        rule: from the outputs that :meth:`should_stop` is given to whether to stop.
        interactive: whether, before the run ends, anybody but the rule sees its outputs, or the
            rule sees anything but its outputs. If not, several runs may be open on one meter.
        resumable: whether another process may go on with the run. The meter is then a budget of a
            ledger with a key. The ledger writes two events for each stop.

    Raises:
        ParameterError: the schedule is no StoppingSchedule, the rule is no function, or the meter
            of a resumable run is no budget of a ledger with a key.
    """

    def __init__(
        self,
        schedule: StoppingSchedule,
        meter: Meter,
        rule: Callable[[T], bool],
        *,
        interactive: bool = True,
        resumable: bool = False,
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
        self._kept = _KeptStops(meter, schedule) if resumable else None

    def reserve(self) -> None:
        """Reserves the worst-case stop before the callback is entered, and draws its token.

        Then :meth:`state_dict` has the run's state: who keeps it before entering the callback loses
        no run to a crash, at whatever moment. Entering the callback reserves what was not reserved
        before. After a state was loaded, whose run is reserved, this does nothing.

        Raises:
            BudgetError: the worst-case stop does not fit; nothing was charged.
            SettlementError: the callback was entered before, or is not resumable; or another
                interactive mechanism is open on the meter.
        """
        if self._kept is None:
            raise not_resumable("callback")
        if self._run is not None:
            raise SettlementError("a run is reserved before the callback is entered")
        self._kept.reserve(self._interactive)

    def __enter__(self) -> StoppingCallback[T]:
        """Reserves the worst-case stop, and starts the run.

        Raises:
            BudgetError: the worst-case stop does not fit; nothing was charged.
            SettlementError: the callback was entered before, or another interactive mechanism is
                open on the meter; a state was loaded, and its run is over.
            FencingError: a state was loaded whose token is not that of its run.
        """
        if self._run is not None:
            raise SettlementError("a run is paid for once: another one needs a callback of its own")
        if self._kept is not None:
            kept = self._kept
            self._run = (
                kept.go_on(self._interactive, goes_on=True)
                if kept.goes_on()
                else kept.begin(self._interactive)
            )
            self._open = self._run if self._run.cell is None else None
            self._behind(kept.passed)
            return self
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
            ReleaseError: the run ended between two stops; the worst-case stop is charged. Of a
                resumable run, it stays held.
        """
        self._open = None
        if self._kept is not None:
            if error is None:
                self._settle(self._kept)
            return
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
            FencingError: another process goes on with the run; nothing is settled by this one.
            LedgerError: the ledger of a resumable run does not answer.
        """
        (run, due), k = self._next(), positive_count(steps=steps)
        if not self._asked < k <= due:  # guard: no-stop-skipped
            raise refuse("steps", f"be above {self._asked} and at most {due}, the next stop", k)
        if k == due and self._counted and any(self._left.values()):  # guard: all-steps-before-stop
            raise SettlementError(f"stop {due} comes after {self._still()}, which did not run")
        self._asked = k
        if k < due:
            return False
        ends = k == self._schedule.stops[-1] or self._rule(released)  # guard: last-stop-ends-run
        if self._kept is not None and not self._kept.claim(k, goes_on=not ends):
            self._open = None
            raise FencingError(
                f"another process goes on with this run after stop {k}: nothing is settled here"
            )
        if ends:
            run.cell, self._open = k, None  # guard: price-of-this-stop
            return True
        self._behind(self._passed + 1)
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
    def over(self) -> bool:
        """True once the run has ended: with a stop, or before a process that loaded its state."""
        return self._run is not None and self._open is None

    @property
    def next_stop(self) -> int:
        """The number of steps at the next stop, with those that were lost.

        Raises:
            SettlementError: no run is open.
        """
        return self._next()[1]

    def state_dict(self) -> dict[str, Any]:
        """Returns what another process needs to go on with a resumable run, as plain JSON values.

        It is the same from the reservation of the run (:meth:`reserve`) to its end: save it once,
        before the callback is entered, or with each checkpoint. It holds the token of the run, a
        secret: who has it may settle the run.

        Raises:
            SettlementError: the run is not reserved, or is not resumable.
        """
        if self._kept is None:
            raise not_resumable("callback")
        return self._kept.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over the run of a process that is no more, before the callback is entered.

        The ledger is asked when the callback is entered. A run that was reserved, and not started,
        starts then.

        Args:
            state: what :meth:`state_dict` has returned there.

        Raises:
            ParameterError: it is no such state, or that of another key or another schedule.
            SettlementError: the run was reserved or entered before, or is not resumable.
        """
        if self._kept is None:
            raise not_resumable("callback")
        self._kept.load(state)

    def end(self) -> Receipt:
        """Settles a run whose state was loaded, without more training, in place of entering it.

        The run is charged the stop that the steps lead to which had begun.

        Raises:
            SettlementError: no state was loaded, the callback was entered, or the run is over.
            FencingError: the token of the state is not that of its run.
        """
        if self._kept is None:
            raise not_resumable("callback")
        if self._run is not None:
            raise SettlementError("a run is ended without training before the callback is entered")
        self._run = self._kept.go_on(self._interactive, goes_on=False)
        self._settle(self._kept)
        return self.receipt

    @property
    def receipt(self) -> Receipt:
        """The receipt of the run: the amounts held, charged and returned.

        Raises:
            SettlementError: the run has not ended with a stop.
        """
        if self._run is None:
            raise SettlementError("the run has not begun")
        return self._run.released(None).receipt

    def _behind(self, passed: int) -> None:
        """Lets the steps run that come after so many stops."""
        self._passed = passed
        self._left = Counter(dict(self._schedule.blocks[passed].parts))
        if passed:
            self._asked = max(self._asked, self._schedule.stops[passed - 1])

    def _settle(self, kept: _KeptStops) -> None:
        """Charges the stop at which a resumable run has ended.

        Raises:
            ReleaseError: the run ended between two stops.
            SettlementError: this process is a fork of the one that opened the run.
        """
        if os.getpid() != self._process:
            raise SettlementError("a run is settled by the process that has started it")
        assert self._run is not None, "the callback was entered"
        if self._run.cell is None:
            raise ReleaseError(
                "the loop has ended between two stops: the worst-case stop stays held until a "
                "process goes on with the run, ends it (end()), or forfeits it"
            )
        self._run.charged = kept.settle(self._run.cell)

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


class _KeptStops(KeptRun):
    """A run of a schedule as its ledger keeps it: its places are its stops.

    Args:
        meter: the budget that pays, with a key.
        schedule: the prices of the stops.

    Attributes:
        passed: the number of stops that are behind when the run begins in this process.
    """

    def __init__(self, meter: Meter, schedule: StoppingSchedule) -> None:
        content = [schedule.stops, [block.to_dict() for block in schedule.blocks]]
        declared = Declared("StoppingCallback", "schedule", "the stops and the steps", content)
        super().__init__(meter, schedule.guarantee, declared, schedule.stops[-1])
        self._stops = schedule.stops
        self.passed = 0

    def go_on(self, interactive: bool, *, goes_on: bool) -> Started:
        """Takes over the run whose state was loaded: it goes on behind all steps that had begun.

        Args:
            interactive: as when the run was reserved.
            goes_on: whether steps are to run; else the run ends where its last steps lead to.
        """
        run, stops = self.take_over(interactive), self._stops
        run.cell = stops[-1]  # guard: begun-steps-count
        for passed, stop in enumerate(stops[:-1]):
            claimed = self.places.claim(stop, goes_on=goes_on)
            if claimed and goes_on:
                run.cell, self.passed = None, passed + 1
                return run
            if claimed or self.places.ended_at(stop):  # guard: ended-run-stays-ended
                run.cell, self.passed = stop, passed
                return run
        self.passed = len(stops) - 1
        return run

    def claim(self, stop: int, *, goes_on: bool) -> bool:
        """Claims a stop, unless it is the last one: nothing comes after it that could be begun."""
        return stop == self._stops[-1] or self.places.claim(stop, goes_on=goes_on)
