"""Runs a mechanism step by step, until a rule stops it, and pays for the steps that ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tightbudget.accounting.schedule import StoppingSchedule
from tightbudget.numerics.validate import plain_numbers, positive_count, refuse
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.noise import Noise
from tightbudget.release.release import answered


@plain_numbers
@dataclass(frozen=True)
class Iterative(MechanismOnData[Any, tuple[Any, ...]]):
    """Runs a mechanism again and again, and may stop early where a schedule has a price for it.

    The value of a release is the tuple of the outputs of all steps that ran; its cell is their
    number.

    Guarantee: {k: the schedule's price of k steps} for each stop k, and the schedule's delta, if
    step k is a mechanism that the schedule was made for, whatever the outputs before it were,
    for the neighbouring relation that was declared there. A rule that sees the data is one more
    mechanism, and belongs into the step. A step that raises has the output None, which must be as
    private as any other of its outputs.
    Source: Hartmann et al. 2022, Algorithm 3.

    Args:
        step: from the data, all outputs so far and the source of noise to the next output;
            None if it raises.
        stops: some of the schedule's stops, ascending; the run ends at the last of them.
        stopping_rule: a rule that is told all outputs so far, and says whether to stop. It must
            not see the data. If it raises, the worst-case stop is charged.
        schedule: the prices of the stops; see :func:`tightbudget.early_stopping`.

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
        super().__post_init__()

    @property
    def guarantee(self) -> OutputDP:
        """The output cells are the stops, at the prices of the schedule."""
        # a rule may leave out stops of the schedule: its prices hold for every rule
        schedule = self.schedule.guarantee()
        return OutputDP({k: schedule.price(k) for k in self.stops}, schedule.delta)

    def _run(self, data: Any, noise: Noise) -> tuple[tuple[Any, ...], Cell]:
        outputs: tuple[Any, ...] = ()
        for stop in self.stops:
            while len(outputs) < stop:
                # the outputs are bound now, since the next turn has others
                outputs = (*outputs, answered(partial(self.step, data, outputs, noise)))
            if self.stopping_rule(outputs):
                break
        return outputs, len(outputs)
