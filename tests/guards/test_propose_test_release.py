"""Every guard of propose-test-release is taken away once, and something true becomes false."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.exact import exp_ends
from tests.guards.mutants import Without, each, lose_a_truth
from tests.release import test_propose_test_release as kept
from tests.release.small import apart, columns, neighbours, ordered

import tightbudget as tb
from tightbudget.release.mechanisms import propose_test_release
from tightbudget.release.mechanisms.order_statistics import Ordered
from tightbudget.release.mechanisms.propose_test_release import StabilityTest

GIVEN: dict[str, Any] = {"epsilon": 1, "delta": 0.1, "step": 1}
MEDIAN = tb.release.Median(**GIVEN, scale=4 * math.cbrt(5))  # bins of four, for five records
RANGE = tb.release.InterquartileRange(**GIVEN)
TRIMMED = tb.release.TrimmedMean(**GIVEN, spread=1, trim=0.2)

EVERYTHING = {x: ordered(x, 2) for x in columns(5, kept.FINE)}


def median_keeps_its_promise() -> bool:
    given = kept.parameters(2, kept.HALF**3)
    return kept.worst(tb.release.Median(**given, scale=4 * math.cbrt(5)), 5, kept.FAR, 3) <= 1


def threshold_keeps_delta() -> bool:
    def keeps(delta: Fraction) -> bool:
        t = propose_test_release._least_threshold(Fraction(2), delta)
        return exp_ends(Fraction(-t, 2))[1] / (1 + exp_ends(Fraction(-1, 2))[0]) <= delta

    return all(keeps(Fraction(1, k)) for k in range(2, 20))


def threshold_is_the_least() -> bool:
    b = Fraction(1 / math.log(2))
    return propose_test_release._least_threshold(b, Fraction(1, 47)) == 5  # 2^-5 / 1.5 is 1/48


def noise_is_wide_enough() -> bool:
    noise, test = kept.Scales(), StabilityTest(Fraction(1), Fraction(1, 10))
    test.value(tb.release.Proposal(100, 0, 7), noise)
    return noise.asked == [1, 7]


def stays(
    statistic: tb.release.Median | tb.release.InterquartileRange, width: int, firsts: Sequence[int]
) -> bool:
    """Each distance is that of the nearest column whose value is in another bin."""
    proposals = {x: statistic._propose(data) for x, data in EVERYTHING.items()}
    for i, first in enumerate(firsts):
        bins = {x: (proposed[i].value - first) // width for x, proposed in proposals.items()}
        for x, proposed in proposals.items():
            others = [apart(x, y) for y in EVERYTHING if bins[y] != bins[x]]
            if proposed[i].distance != min(others, default=6):
                return False
    return True


def median_stays() -> bool:
    return stays(MEDIAN, 4, (0, 2))


def range_stays() -> bool:
    return stays(RANGE, 32, (0, 16))


def runs_answer_like_records() -> bool:
    """A range leaves an interval as soon in a run-length list as in the records themselves."""
    return all(
        Ordered.of(np.arange(-2, 3), 2, np.array([x.count(v) for v in range(-2, 3)])).to_leave(
            a, 4, low, 3
        )
        == records.to_leave(a, 4, low, 3)
        for x, records in EVERYTHING.items()
        for a in (2, 3)
        for low in (0, 1, 2)
    )


def sum_stays() -> bool:
    """No neighbour's sum is further away than proposed, at a distance of two or more."""
    proposals = {x: TRIMMED._propose(data)[0] for x, data in EVERYTHING.items()}
    return all(
        proposals[x].distance < 2 or abs(proposals[x].value - proposals[y].value) <= 1
        for x, y in neighbours(list(EVERYTHING))
    )


MUTATIONS = [
    Without(
        "a tie does not pass",
        {"tie-does-not-pass": "return distance + draw >= self.threshold"},
        median_keeps_its_promise,
    ),
    Without(
        "the threshold is rounded up",
        {"threshold-rounded-up": "return max(1, math.floor(b * -Fraction(log)))"},
        threshold_keeps_delta,
    ),
    Without(
        "the threshold is no larger than it must be",
        {"least-threshold": "q = exp_down(next_down(float(-2 / b)))"},
        threshold_is_the_least,
    ),
    Without(
        "values have noise for their sensitivity",
        {"noise-for-sensitivity": "draw = noise.laplace(self.scale, 1)[0]"},
        noise_is_wide_enough,
    ),
    Without(
        "both statistics of a range can move outwards",
        {"both-ends-move-outwards": ("fewest = i + self._risen(b, self._at(a - 0 * i) + width)")},
        range_stays,
    ),
    Without(
        "a range can become wider",
        {"range-widens": "return self._to_narrow(a, b, low)"},
        range_stays,
    ),
    Without(
        "a range can become narrower",
        {"range-widens": "return self._to_widen(a, b, high)"},
        range_stays,
    ),
    Without(
        "a range that reaches the end has left",
        {
            "range-widens": (
                "return min(self._to_widen(a, b, high + 1), self._to_narrow(a, b, low))"
            )
        },
        range_stays,
    ),
    Without(
        "a statistic can rise",
        {"statistic-rises": "return int(self._fallen(m, np.array(low)))"},
        median_stays,
    ),
    Without(
        "a statistic can fall",
        {"statistic-rises": "return int(self._risen(m, np.array(high)))"},
        median_stays,
    ),
    Without(
        "a sum may move by the spread and no more",
        {"sum-moves-by-spread": "return max(1, self._to_widen(a, b, bound + 2))"},
        sum_stays,
    ),
    Without(
        "one more than the trimmed rank counts",
        {"sum-moves-by-spread": "return max(1, self._to_widen(a, b, bound + 1) + 1)"},
        sum_stays,
    ),
    Without(
        "a run is left below its first record",
        {"runs-end-below": "return a - np.minimum(last + 1, a)"},
        runs_answer_like_records,
    ),
    Without(
        "a run is left above its last record",
        {"runs-begin-above": "return np.maximum(first - 1, a) - a"},
        runs_answer_like_records,
    ),
    Without(
        "a median has noise for its bin",
        {
            "median-bin-width": (
                "return Proposal(records.to_move(m, low, low + width), value, "
                "sensitivity=width // 2)"
            )
        },
        lambda: kept.change_over_sensitivity("median") <= 1,
    ),
    Without(
        "a range has noise for its bin",
        {"range-sensitivity": "return Proposal(distance, step, sensitivity=_STEPS - 2)"},
        lambda: kept.change_over_sensitivity("range") <= 1,
    ),
    Without(
        "a sum has noise for the spread",
        {
            "sum-sensitivity": (
                "return [Proposal(distance, records.sum(a, b), sensitivity=bound - 1)]"
            )
        },
        lambda: kept.change_over_sensitivity("trimmed mean") <= 1,
    ),
    Without(
        "a median's bin has as many values as noise is for",
        {
            "median-bin-width": (
                "return Proposal(records.to_move(m, low, low + width + 1), value, "
                "sensitivity=width - 1)"
            )
        },
        median_stays,
    ),
]


@pytest.mark.one_in(6)
@each(MUTATIONS)
def test_the_guard_is_needed(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
