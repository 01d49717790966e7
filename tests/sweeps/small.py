"""Questions that are answered in no time, and one of each kind that is refused."""

from __future__ import annotations

import functools
from typing import Any

import tightbudget as tb

__all__ = ["GRID", "PLAN", "QUESTIONS", "REFUSED", "whole"]

PLAN: list[dict[str, Any]] = [
    {"mechanism": "gaussian", "sigma": "$sigma", "rate": 0.01, "times": "$runs"}
]
GRID: dict[str, list[Any]] = {"sigma": [0.9, 2.0], "runs": [300, 1000], "delta": [1e-5, 1e-7, 1e-9]}

# value -> what its row says
REFUSED = {
    "a broken parameter": (
        tb.sweeps.Question.of([{"mechanism": "gaussian", "sigma": -1.0}], delta=1e-5),
        "ParameterError: steps[0]: sigma must be a finite number > 0, got -1.0",
    ),
    "nan": (
        tb.sweeps.Question.of(tb.Gaussian(1.0), delta=float("nan")),
        "ParameterError: delta must be in [0, 1], got nan",
    ),
    "no mechanism": (
        tb.sweeps.Question.of([{"mechanism": "gausian"}], epsilon=1.0),
        "FileError: steps[0].mechanism must be one of ",
    ),
    "no target in reach": (
        tb.sweeps.Question.of(
            [{"mechanism": "gaussian", "sigma": "$s", "times": 10}],
            find="s",
            epsilon=1.0,
            delta=1e-6,
            between=[0.1, 0.2],
        ),
        "CalibrationError: between = (0.1, 0.2): neither end meets the target",
    ),
    "a gap out of reach": (
        tb.sweeps.Question.of(tb.Gaussian(1.0) * 1000, delta=1e-5, rtol=1e-18),
        "PrecisionError: epsilon at delta = 1e-05 is in [",
    ),
}

QUESTIONS = [
    *tb.sweeps.questions(PLAN, GRID, delta="$delta"),
    *tb.sweeps.questions(PLAN, {"sigma": [0.9, 2.0], "runs": [300]}, epsilon=1.0),
    *tb.sweeps.questions(PLAN, {"runs": [100, 300]}, find="sigma", epsilon=1.0, delta=1e-5),
    *(question for question, _ in REFUSED.values()),
]


@functools.cache
def whole() -> tb.sweeps.Sweep:
    """All answers; they take two seconds of CPU, which only tests pay that compare with them."""
    return tb.sweep(QUESTIONS)
