"""Step by step, until a rule on what came out says stop: pays for the steps that ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tightbudget.accounting.schedule import StoppingSchedule
from tightbudget.numerics.validate import plain_numbers, positive_count, refuse
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.meter import Meter
from tightbudget.release.noise.noise import Noise, OpenDPNoise
from tightbudget.release.release import Release, WhatIf, answered, paid, what_if

__all__ = ["Iterative"]


@plain_numbers
@dataclass(frozen=True)
class Iterative:
    """Runs a mechanism again and again, and may stop early where a schedule has a price for it.

    Guarantee: {k: the schedule's price of k steps} for each stop k, and the schedule's delta, if
    step k is a mechanism that the schedule was made for, whatever the outputs before it were,
    for the neighbouring relation that was declared there. A rule that sees the data is one more
    mechanism, and belongs into the step. A step that raises has the output None, which is as
    private as any other of its outputs: the mechanism that the schedule was made for has it, too.
    Source: Hartmann et al. 2022, Algorithm 3.

    Args:
        step: from the data, all outputs so far and the source of noise to the next output;
            None if it raises.
        stops: some of the schedule's stops, ascending; at the last it stops in any case.
        stopping_rule: told all outputs so far, says whether to stop. It must not see the data.
        schedule: see :func:`tightbudget.early_stopping`.

    Raises:
        ParameterError: a stop is not in the schedule, or stops are not ascending.
    """

    step: Callable[[Any, tuple[Any, ...], Noise], Any]
    stops: tuple[int, ...]
    stopping_rule: Callable[[tuple[Any, ...]], bool]
    schedule: StoppingSchedule

    def __post_init__(self) -> None:
        stops = tuple(positive_count(**{f"stops[{i}]": k}) for i, k in enumerate(self.stops))
        if not stops or sorted(set(stops)) != list(stops) or not {*stops} <= {*self.schedule.stops}:
            raise refuse(
                "stops", f"be ascending, and among the schedule's {self.schedule.stops}", stops
            )
        object.__setattr__(self, "stops", stops)

    @property
    def guarantee(self) -> OutputDP:
        """A price for each stop."""
        # never to stop at the others is a rule, too
        schedule = self.schedule.guarantee()
        return OutputDP({k: schedule.price(k) for k in self.stops}, schedule.delta)

    def what_if(self, meter: Meter) -> WhatIf:
        """What it would cost, and whether it fits; nothing is touched."""
        return what_if(self.guarantee, meter)

    def release(
        self, data: Any, *, meter: Meter, noise: Noise | None = None
    ) -> Release[tuple[Any, ...]]:
        """The outputs of all steps that ran; the cell is their number.

        Raises:
            BudgetError: the dearest stop does not fit; nothing was touched.
            ReleaseError: the rule failed: the worst-case stop is charged.
            ExtraError: no noise is given, and OpenDP is not installed; nothing is charged.
        """
        source = noise or OpenDPNoise()
        return paid(meter, self.guarantee, data, lambda given: self._outputs(given, source))

    def _outputs(self, data: Any, noise: Noise) -> tuple[tuple[Any, ...], int]:
        outputs: tuple[Any, ...] = ()
        for stop in self.stops:
            while len(outputs) < stop:
                # bound now: the next turn has other outputs
                outputs = (*outputs, answered(partial(self.step, data, outputs, noise)))
            if self.stopping_rule(outputs):
                break
        return outputs, len(outputs)
