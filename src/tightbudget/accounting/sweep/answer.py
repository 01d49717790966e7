"""One plan's questions answered: what runs in a worker."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tightbudget.accounting.calibrate import calibrate
from tightbudget.accounting.sweep.question import with_value
from tightbudget.mechanisms.composition import Composition, from_steps
from tightbudget.numerics.bounds import Bounds

__all__ = ["Answer", "answers", "refusal"]


@dataclass(frozen=True)
class Answer:
    """What came out of one question.

    Guarantee: what was asked for lies in [lower, upper]. With an unknown, the target's quantity at
    ``value`` does, and ``upper`` meets the target. A refused question has lower = 0 and
    upper = inf, or what was proved all the same, and no value.

    Attributes:
        lower, upper: the certified ends.
        value: what was found for the unknown, or None.
        refusal: why there is no answer, as "PrecisionError: message", or None.
    """

    lower: float = 0.0
    upper: float = math.inf
    value: float | None = None
    refusal: str | None = None

    @property
    def bounds(self) -> Bounds:
        """Both ends."""
        return Bounds(self.lower, self.upper)


def answers(plan: str, asked: Sequence[tuple[str | None, str]]) -> list[Answer]:
    """The answers to (find, arguments) pairs about one plan, as if each were asked alone.

    What does not depend on the target is prepared once.
    """
    steps = json.loads(plan)
    composition = functools.cache(lambda: from_steps(steps))
    return [_answer(steps, composition, find, json.loads(text)) for find, text in asked]


def refusal(error: BaseException, lower: float = 0.0, upper: float = math.inf) -> Answer:
    """The answer of a question that has none."""
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
            return Answer(found.met.lower, found.met.upper, found.value)
        asked = composition().answer(**arguments)
        lower, upper = asked.bounds.lower, asked.bounds.upper
        return Answer(lower, upper) if asked.reached else refusal(asked.error(), lower, upper)
    except Exception as error:  # whatever it is, it is this row's, and it is said there
        return refusal(error)
