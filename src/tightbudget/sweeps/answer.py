"""Answers the questions about one plan, in a worker or in the caller's process."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tightbudget.accounting.calibrate import calibrate
from tightbudget.mechanisms.composition import Composition, from_steps
from tightbudget.numerics.bounds import Bounds
from tightbudget.sweeps.question import with_value


@dataclass(frozen=True)
class Answer:
    """The answer to one question of a sweep, or its refusal.

    Guarantee: the number that was asked for lies in [lower, upper]. With an unknown, the target's
    quantity at ``value`` does, and ``upper`` meets the target. A refused question has no value, and
    lower = 0 and upper = inf or closer bounds that were proved all the same.

    Attributes:
        lower, upper: the certified bounds.
        value: the value found for the unknown, or None.
        refusal: why there is no answer, as "PrecisionError: message", or None.
        apart: what keeps the bounds apart, as :class:`~tightbudget.Bounds` say it, or "".
    """

    lower: float = 0.0
    upper: float = math.inf
    value: float | None = None
    refusal: str | None = None
    apart: str = ""

    @property
    def bounds(self) -> Bounds:
        """The certified bounds as one value."""
        return Bounds(self.lower, self.upper, apart=self.apart)


def answers(plan: str, asked: Sequence[tuple[str | None, str]]) -> list[Answer]:
    """Answers (find, arguments) pairs about one plan, each as if it were asked alone.

    The composition is prepared once for all of them.
    """
    steps = json.loads(plan)
    composition = functools.cache(lambda: from_steps(steps))
    return [_answer(steps, composition, find, json.loads(text)) for find, text in asked]


# guard: refused-row-upper-bound
def refusal(error: BaseException, lower: float = 0.0, upper: float = math.inf) -> Answer:
    """Makes the answer of a refused question from the error that was raised."""
    return Answer(lower, upper, refusal=f"{type(error).__name__}: {error}")


def _answer(
    steps: Any,
    composition: Callable[[], Composition],
    find: str | None,
    arguments: dict[str, Any],
) -> Answer:
    try:
        if find is not None:
            found = calibrate(lambda x: from_steps(with_value(steps, find, x)), **arguments)
            met = found.met
            return Answer(met.lower, met.upper, found.value, apart=met.apart)
        asked = composition().answer(**arguments)
        lower, upper = asked.bounds.lower, asked.bounds.upper
        if not asked.reached:
            return refusal(asked.error(), lower, upper)  # guard: proved-dropped
        return Answer(lower, upper, apart=asked.bounds.apart)
    # guard: exception-ends-sweep
    except Exception as error:  # whatever it is, it is this row's, and it is said there
        return refusal(error)
