"""Laws of errors: intervals of means and variances against all noise, and on simulated tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth
from tests.tables.test_noise_law import tails

import tightbudget as tb
from tightbudget.tables.error_laws import NoiseLaw, QuotientLaw
from tightbudget.tables.mechanisms.mean import mean_of, rows_of
from tightbudget.tables.mechanisms.variance import _variance
from tightbudget.tables.source import OnGrid

NOISE: Any = st.integers(-7, 7)
GRID = OnGrid(column="x", low=-3, high=5, step=0.5)


@dataclass(frozen=True, kw_only=True)
class AtMost(NoiseLaw):
    """Noise of which it is certain that it is at most so much."""

    most: float = 0.0

    def half_width(self, confidence: float = 0.95, numbers: int = 1) -> float:
        return self.most


def at_most(most: float) -> AtMost:
    return AtMost(kind="laplace", scale=1.0, most=most)


def means_are_in_their_intervals(
    rows: list[int], noise: tuple[int, int]
) -> tuple[float, float, float]:
    """A mean, and the distance of the noisy one times its rows; the interval has the mean."""
    law = QuotientLaw(
        noise=at_most(max(map(abs, noise)) * 0.5), sums=2, factor=1.0, low=-1.5, high=2.5
    )
    low = sum(x + 3 for x in rows) + noise[0]
    high = sum(x - 5 for x in rows) - noise[1]
    value, noisy_rows = mean_of(GRID, low, high), rows_of(GRID, low, high)
    truth = sum(rows) / len(rows) / 2 if rows else 0.5
    ((least, most),) = pairs(law, value, noisy_rows)
    assert -1.5 <= least <= most <= 2.5
    assert least <= truth <= most
    assert least <= value <= most
    return truth, value, noisy_rows


def pairs(law: QuotientLaw, value: float, rows: float) -> list[tuple[float, float]]:
    return [pair for pair in law.intervals([value], 0.9, (rows,)) if pair is not None]


@settings(max_examples=300)
@given(rows=st.lists(st.integers(-3, 5), max_size=6), x=NOISE, y=NOISE)
def test_no_noise_brings_a_mean_out_of_its_interval(rows: list[int], x: int, y: int) -> None:
    means_are_in_their_intervals(rows, (x, y))


def test_some_noise_brings_a_mean_to_the_end_of_its_interval() -> None:
    for rows in ([0, 1, 1, 3] * 5, [-3, 2] * 9):
        truth, value, noisy_rows = means_are_in_their_intervals(rows, (4, -4))
        assert (value - truth) * noisy_rows == pytest.approx(2.0, rel=1e-12)


@settings(max_examples=300)
@given(
    rows=st.lists(st.integers(0, 4), max_size=7),
    noise=st.tuples(*[st.integers(-40, 40)] * 3),
)
def test_no_noise_brings_a_variance_out_of_its_interval(
    rows: list[int], noise: tuple[int, int, int]
) -> None:
    variance_is_in_its_interval(rows, noise)


def variance_is_in_its_interval(rows: list[int], noise: tuple[int, int, int]) -> None:
    """Rows of 0 to 4 points, and noise on the three sums, of which each row adds 16."""
    sums = [sum((4 - x) ** 2 for x in rows), sum(2 * x * (4 - x) for x in rows)]
    noisy = [a + b for a, b in zip([*sums, sum(x * x for x in rows)], noise, strict=True)]
    law = QuotientLaw(noise=at_most(max(map(abs, noise))), sums=3, factor=1.25, low=0.0, high=4.0)
    value, truth = _variance(list(map(float, noisy))) * 16, np.var(rows) if rows else 2.0
    ((least, most),) = pairs(law, value, sum(noisy) / 16)
    assert 0 <= least <= most <= 4
    assert least - 1e-12 <= truth <= most + 1e-12


@pytest.mark.slow
def test_no_corner_of_the_noise_brings_a_variance_out_of_its_interval() -> None:
    for n, most in itertools.product(range(6), (3, 8, 16, 30)):
        for rows in itertools.combinations_with_replacement(range(5), n):
            for signs in itertools.product((-1, 0, 1), repeat=3):
                variance_is_in_its_interval(list(rows), tuple(most * s for s in signs))  # type: ignore[arg-type]


def test_where_the_noise_leaves_no_rows_the_interval_is_all_of_the_range() -> None:
    law = QuotientLaw(noise=at_most(1.0), sums=2, factor=1.0, low=-1.5, high=2.5)
    assert law.intervals([0.5, 0.5, 2.0], 0.95, (0.0, -3.0, 1e9)) == [
        (-1.5, 2.5),
        (-1.5, 2.5),
        (pytest.approx(2.0), pytest.approx(2.0)),
    ]
    assert law.intervals([0.5], 0.95) == [None]


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("confidence", [0.2, 0.95, math.nextafter(1, 0)])
@pytest.mark.parametrize("numbers", [1, 2, 3, 40])
def test_of_several_numbers_none_exceeds_the_half_width(
    kind: str, confidence: float, numbers: int
) -> None:
    law = NoiseLaw(kind=kind, scale=5.5)  # type: ignore[arg-type]
    above, _ = tails(kind, 5.5, 400)
    miss = float(1 - Fraction(repr(confidence)))
    width = int(law.half_width(confidence, numbers))
    assert above[width] * numbers <= miss * (1 + 1e-12)
    if width >= 2:
        assert above[width - 2] * numbers > miss


# ------------------------------------------------------------------------ answers


def made_up(random: np.random.Generator, rows: int) -> dict[str, Any]:
    return {
        "u": np.arange(rows) // 2,
        "x": random.beta(0.4, 0.9, rows) * 8,
        "k": random.choice(np.array(["a", "b", "c"]), rows, p=[0.9, 0.1, 0.0]),
    }


def truth_of(question: Any, data: dict[str, Any]) -> Any:
    x = np.floor(data["x"] * 2**13 + 0.5) / 2**13
    if isinstance(question, tb.GroupedMeans):
        groups = {key: x[data["k"] == key] for key in "abc"}
        return {key: part.mean() if len(part) else 4.0 for key, part in groups.items()}
    return x.mean() if isinstance(question, tb.Mean) else x.var()


GIVEN: dict[str, Any] = {"column": "x", "bounds": (0, 8)}
QUESTIONS = [
    tb.Mean(**GIVEN, epsilon=0.4),
    tb.Mean(**GIVEN, epsilon=0.9, delta=1e-6),
    tb.Variance(**GIVEN, epsilon=0.4),
    tb.Variance(**GIVEN, epsilon=0.9, delta=1e-6),
    tb.GroupedMeans(**GIVEN, by="k", epsilon=0.4),
    tb.GroupedMeans(**GIVEN, by="k", epsilon=0.9, delta=1e-6),
]


def asked(question: Any, data: dict[str, Any]) -> tb.tables.TableAnswer[Any]:
    table = tb.Table(data, unit="u", rows_per_unit=2, domains={"k": ["a", "b", "c"]})
    return tb.Session(table, tb.OutputDPFilter(9, 1e-3)).ask(question)


def hits(question: Any, runs: int, confidence: float) -> Iterator[bool]:
    """Whether each interval of each run has its number, on tables of 0 to 600 rows."""
    random = np.random.default_rng(11)
    for _ in range(runs):
        data = made_up(random, 2 * int(random.integers(1, 300)))
        answer, truth = asked(question, data), truth_of(question, data)
        found = answer.interval(confidence)
        for key in truth if isinstance(truth, dict) else [None]:
            (low, high), true = (found, truth) if key is None else (found[key], truth[key])
            yield bool(low - 1e-9 <= true <= high + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: f"{type(q).__name__}-{q.delta}")
def test_intervals_of_simulated_answers_have_the_truth(question: Any) -> None:
    """At 80 %: of 400 runs no more miss than 20 % but for five standard deviations."""
    found = list(hits(question, 400, 0.8))
    assert found.count(False) <= 0.2 * len(found) + 5 * (0.16 * len(found)) ** 0.5


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: f"{type(q).__name__}-{q.delta}")
def test_an_interval_of_a_quotient_is_as_long_as_was_told_before(question: Any) -> None:
    data = made_up(np.random.default_rng(3), 4_000)
    table = tb.Table(data, unit="u", rows_per_unit=2, domains={"k": ["a", "b", "c"]})
    (before,) = tb.Session(table, tb.OutputDPFilter(9, 1e-3)).what_if([question]).questions
    answer = asked(question, data)
    assert (before.std, before.half_width(), answer.std, answer.noise) == (None,) * 4
    times_rows = before.half_width_times_rows(0.9)
    assert answer.noisy_rows is not None
    assert times_rows is not None
    _, rows = answer.rows(0.9)
    value, _, low, high = rows[0][-4:]
    assert high - value == pytest.approx(times_rows / answer.noisy_rows[0], rel=1e-6)
    assert value - low == pytest.approx(times_rows / answer.noisy_rows[0], rel=1e-6)
    assert answer.noisy_rows[0] == pytest.approx(4_000 if len(rows) == 1 else 3_600, rel=0.2)
    assert f"{before.half_width_times_rows():.6g} / rows" in str(
        tb.Session(table, tb.OutputDPFilter(9, 1e-3)).what_if([question])
    )


# ------------------------------------------------------------------------ guards


def no_number_of_two_is_exceeded() -> bool:
    law = NoiseLaw(kind="laplace", scale=5.5)
    above, _ = tails("laplace", 5.5, 400)
    return bool(above[int(law.half_width(0.95, 2))] * 2 <= 0.05)


def without_rows_the_mean_may_be_anything() -> bool:
    law = QuotientLaw(noise=at_most(1.0), sums=2, factor=1.0, low=-1.5, high=2.5)
    return pairs(law, 0.5, -3.0) == [(-1.5, 2.5)]


MUTATIONS = [
    Without(
        "several numbers share the probability to miss",
        {"union-of-numbers": "share = 1 - exact(confidence=hit)"},
        no_number_of_two_is_exceeded,
    ),
    Without(
        "no rows tell nothing of their mean",
        {"no-rows-no-knowledge": "if False:\n    pass"},
        without_rows_the_mean_may_be_anything,
    ),
]


@each(MUTATIONS)
def test_without_the_guard_an_interval_is_too_short(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
