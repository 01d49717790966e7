"""Without what a cut batch owes to its data sets, a lower bound is too large."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.mechanisms.test_truncated_below import deltas_of, turned

import tightbudget as tb
from tightbudget.mechanisms import truncated_below


def two_data_sets_show_no_less() -> bool:
    truncated_below._chances.cache_clear()
    truncated_below._outputs.cache_clear()
    mechanism = turned(0.7, 0.5, 2, 4)
    return all(
        mechanism.delta(epsilon).lower <= truth * (1 + 1e-9)
        for epsilon, truth in zip((0.0, 0.7), deltas_of(mechanism, [0.0, 0.7]), strict=True)
    )


def others_are_no_longer_than_the_clip() -> bool:
    across, along = truncated_below._sizes(tb.Gaussian(1.0), math.sqrt(0.5))
    return Fraction(across) ** 2 + Fraction(along) ** 2 <= 1


MUTATIONS = [
    Without(
        "the record and the others are no longer than the clip",
        {"others-within-the-clip": "along = _shorter(float(clip))"},
        others_are_no_longer_than_the_clip,
    ),
    Without(
        "the record is not kept in every full batch",
        {"record-kept-in-a-full-batch": "kept = Fraction(1)"},
        two_data_sets_show_no_less,
    ),
    Without(
        "the record moves the sum of others that leave it a place by itself alone",
        {
            "record-beside-fewer-others": "there = x[3 : j + 3].T @ "
            "(rate * lacking[: x[3 :].shape[0], None] * y[: x[3 :].shape[0]])"
        },
        two_data_sets_show_no_less,
    ),
    Without(
        "the record is at the distance of two from the one that it replaces",
        {"record-in-the-place-of-another": "moved = np.outer(replaced * x[3], y[0])"},
        two_data_sets_show_no_less,
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
