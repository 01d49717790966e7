"""Ratios: a quotient of two noisy numbers, its interval from both of them, and its price."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth
from tests.release.cases import Case
from tests.tables.cases import COLUMNS, in_duckdb, of, rows, small, table, x_in
from tests.tables.test_laws import LAWS, Silent

import tightbudget as tb
from tightbudget.tables import Ratio
from tightbudget.tables.error_laws import NoiseLaw, RatioLaw

X: dict[str, Any] = {"column": "x", "bounds": (-1, 4), "step": 0.125}
NIGHTS = Ratio(numerator=tb.Count(where="w", epsilon=1), denominator=tb.Count(epsilon=0.5))
BY_KEY = Ratio(
    numerator=tb.GroupedSums(by="k", epsilon=1, **X),
    denominator=tb.GroupedCounts(by="k", epsilon=0.5),
)
ENGINES = pytest.mark.parametrize(
    "data", [lambda: table(COLUMNS), in_duckdb], ids=["arrays", "duckdb"]
)


@ENGINES
def test_a_ratio_without_noise_is_that_of_the_rows(data: Callable[[], Any]) -> None:
    session = tb.Session(data(), tb.OutputDPOdometer(), noise=Silent())
    assert session.ask(NIGHTS).value == COLUMNS["w"].sum() / rows(COLUMNS)
    found = session.ask(BY_KEY).value
    assert isinstance(found, dict)
    for key in ("p", "q"):
        group = of(COLUMNS, COLUMNS["k"] == key)
        assert found[key] == x_in(group).sum() / rows(group)


def test_a_ratio_costs_what_both_cost() -> None:
    session = tb.Session(table(COLUMNS), tb.OutputDPFilter(2))
    answer = session.ask(NIGHTS)
    assert answer.receipt.charged == tb.Amount(1.5, 0.0, "epsilon")
    assert answer.cell == ("value", "value")
    gaussian = Ratio(
        numerator=tb.Count(where="w", epsilon=1, delta=1e-6),
        denominator=tb.Count(epsilon=0.5, delta=1e-7),
    )
    assert gaussian.guarantee.worst_case() == (Fraction(3, 2), Fraction(11, 10**7))


def test_its_rows_say_which_group_they_are_of() -> None:
    answer = tb.Session(table(COLUMNS), tb.OutputDPOdometer(), noise=Silent()).ask(BY_KEY)
    names, found = answer.rows()
    assert names == ["k", "value", "std", "low", "high", "mostly_noise"]
    assert [row[0] for row in found] == ["p", "q"]
    assert answer.noisy_rows == tuple(
        float(rows(of(COLUMNS, COLUMNS["k"] == key))) for key in ("p", "q")
    )


def test_the_text_of_a_ratio_has_both_questions() -> None:
    (asked,) = tb.Session(table(COLUMNS), tb.OutputDPOdometer()).what_if([NIGHTS]).questions
    assert asked.question == (
        "Ratio(numerator=Count(epsilon=1, where='w'), denominator=Count(epsilon=0.5))"
    )


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("question", [NIGHTS, BY_KEY], ids=["nights", "by key"])
def test_the_laws_of_mechanisms_on_data(question: Any, law: Any) -> None:
    law(Case("ratio", question, table(COLUMNS)))


def test_noise_that_leaves_no_denominator_answers_none() -> None:
    session = tb.Session(table(small([])), tb.OutputDPOdometer(), noise=Silent())
    answer = session.ask(NIGHTS)
    assert answer.value is None
    assert answer.mostly_noise
    assert answer.rows()[1] == [[None, None, None, None, True]]
    assert session.ask(BY_KEY).value == {"p": None, "q": None}


# ------------------------------------------------------------------ intervals


@dataclass(frozen=True, kw_only=True)
class AtMost(NoiseLaw):
    """Noise of which it is certain that it is at most so much."""

    most: float = 0.0

    def half_width(self, confidence: float = 0.95, numbers: int = 1) -> float:
        assert numbers == 2  # the probability to miss is shared out between both
        return self.most


def law_of(above: float, below: float) -> RatioLaw:
    one, other = (AtMost(kind="laplace", scale=1.0, most=most) for most in (above, below))
    return RatioLaw(numerator=one, denominator=other)


def interval(number: int, by: int, above: float, below: float) -> Any:
    (found,) = law_of(above, below).intervals([number / by if by else None], 0.9, (float(by),))
    return found


def no_noise_leaves_the_interval(n: int, d: int, x: int, y: int) -> None:
    """A true n / d, with noise x and y of which no more is expected."""
    by = d + y
    found = interval(n + x, by, abs(x), abs(y)) if by > 0 else None
    if found is None:
        assert by <= abs(y)  # the denominator may be 0
        return
    low, high = map(Fraction, found)
    assert d > 0
    assert low <= Fraction(n, d) <= high


@settings(max_examples=300)
@given(
    n=st.integers(-(10**6), 10**6),
    d=st.integers(0, 10**6),
    x=st.integers(-300, 300),
    y=st.integers(-300, 300),
)
def test_no_noise_brings_a_ratio_out_of_its_interval(n: int, d: int, x: int, y: int) -> None:
    no_noise_leaves_the_interval(n, d, x, y)


def test_large_numbers_stay_in_their_interval() -> None:
    for n, d in [(3**50, 3**40 + 1), (-(3**50), 7), (1, 3**60), (2**53 + 1, 2**53 + 3)]:
        for x, y in [(0, 0), (3, -2), (-3, 2)]:
            no_noise_leaves_the_interval(n, d, x, y)


def intervals_hold() -> bool:
    try:
        for n in (-50, 0, 50):
            for d in (1, 10, 40):
                for x in (-9, 9):
                    for y in (-9, 9):
                        no_noise_leaves_the_interval(n, d, x, y)
    except (AssertionError, ZeroDivisionError):
        return False
    return True


def test_the_interval_is_no_longer_than_both_noises_need() -> None:
    assert intervals_hold()
    for n, d in [(50, 40), (-50, 40), (0, 40)]:
        found = interval(n, d, 5.0, 8.0)
        ends = [Fraction(a, b) for a in (n - 5, n + 5) for b in (d - 8, d + 8)]
        assert found == (pytest.approx(float(min(ends))), pytest.approx(float(max(ends))))


@each(
    [
        Without(
            "a ratio has an interval where the denominator may be 0",
            {"ratio-without-a-denominator": "if number is None:"},
            intervals_hold,
        ),
        Without(
            "the noise of the denominator does not count",
            {"ratio-at-both-ends": "ends = low / Fraction(by), high / Fraction(by)"},
            intervals_hold,
        ),
    ]
)
def test_each_guard_guards(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)


def test_a_ratio_is_mostly_noise_if_its_interval_has_0() -> None:
    law = law_of(5.0, 8.0)
    flags = law.mostly_noise([0.1, 1.0, -1.0, 9.0, None], (40.0, 40.0, 40.0, 8.0, -1.0))
    assert flags == [True, False, False, True, True]


def test_intervals_of_simulated_ratios_have_the_truth() -> None:
    """At 80 %: of 200 answers no more than 20 % miss, but for five standard deviations."""
    data, truth = table(COLUMNS), COLUMNS["w"].sum() / rows(COLUMNS)
    session, misses = tb.Session(data, tb.OutputDPOdometer()), 0
    for _ in range(200):
        found = session.ask(NIGHTS).interval(0.8)
        misses += found is not None and not found[0] <= truth <= found[1]
    assert misses <= 0.2 * 200 + 5 * math.sqrt(0.16 * 200)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("numerator", "denominator", "said"),
    [
        (
            tb.Mean(epsilon=1, **X),
            tb.Count(epsilon=1),
            r"^numerator must be a Count, a Sum, a GroupedCounts or a GroupedSums, got 'Mean'$",
        ),
        (tb.Count(epsilon=1), 3, r"^denominator must be a Count, a Sum, a GroupedCounts or a Grou"),
        (
            tb.GroupedCounts(by="k", epsilon=1),
            tb.Count(epsilon=1),
            r"^numerator and denominator must be by the same groups, or by none$",
        ),
        (
            tb.GroupedCounts(by="k", epsilon=1),
            tb.GroupedCounts(by="j", epsilon=1),
            r"^numerator and denominator must be by the same groups, or by none$",
        ),
    ],
)
def test_what_has_no_ratio_is_refused(numerator: Any, denominator: Any, said: str) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        Ratio(numerator=numerator, denominator=denominator)


@ENGINES
def test_a_part_that_does_not_fit_costs_nothing(data: Callable[[], Any]) -> None:
    meter = tb.OutputDPFilter(9)
    odd = Ratio(numerator=tb.Count(epsilon=1, where="z"), denominator=tb.Count(epsilon=1))
    with pytest.raises(tb.ParameterError, match=r"^question 1, Count\(epsilon=1, where='z'\): "):
        tb.Session(data(), meter).ask(odd)
    assert meter.spent == meter.held == tb.Amount(0.0, 0.0, "epsilon")


@ENGINES
def test_a_share_is_a_mean_of_a_condition(data: Callable[[], Any]) -> None:
    share = tb.Mean(column="w", bounds=(0, 1), epsilon=1)
    found = tb.Session(data(), tb.OutputDPOdometer(), noise=Silent()).ask(share)
    assert found.value == pytest.approx(np.mean(COLUMNS["w"]))
