"""Laws of errors: intervals of means and variances against all noise, and on simulated tables."""

from __future__ import annotations

import dataclasses
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
from tests.release.test_quantiles import score
from tests.tables.test_noise_law import tails

import tightbudget as tb
from tightbudget.tables.error_laws import NoiseLaw, QuotientLaw, RankLaw, RatioLaw
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


def test_intervals_of_quotients_are_rounded_outwards() -> None:
    noise = NoiseLaw(kind="laplace", scale=3.3, step=0.25, rounding=0.1)
    law = QuotientLaw(noise=noise, sums=3, factor=1.1, low=-90.0, high=90.0)
    exact = Fraction(1.1) * Fraction(noise.half_width(0.9, 3))
    times_rows = Fraction(law.half_width_times_rows(0.9))
    assert exact <= times_rows <= exact * (1 + Fraction(1, 10**12))
    for value in (60.1, -60.1):
        ((low, high),) = pairs(law, value, 1e4 / 3)
        width = exact / Fraction(1e4 / 3)
        assert -1e-9 <= Fraction(low) - (Fraction(value) - width) <= 0
        assert 0 <= Fraction(high) - (Fraction(value) + width) <= 1e-9


@pytest.mark.parametrize("value", [0.7, -0.7])
def test_intervals_of_ratios_are_rounded_outwards(value: float) -> None:
    noise = NoiseLaw(kind="laplace", scale=3.3)
    law, rows = RatioLaw(numerator=noise, denominator=noise), 1e4 / 3
    half = Fraction(noise.half_width(0.9, 2))
    middle, least, most = (
        Fraction(value) * Fraction(rows),
        Fraction(rows) - half,
        Fraction(rows) + half,
    )
    ((low, high),) = [pair for pair in law.intervals([value], 0.9, (rows,)) if pair is not None]
    ends = middle - half, middle + half
    exact_low = ends[0] / (most if ends[0] >= 0 else least)
    exact_high = ends[1] / (least if ends[1] >= 0 else most)
    assert -1e-9 <= Fraction(low) - exact_low <= 0
    assert 0 <= Fraction(high) - exact_high <= 1e-9


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
        "w": np.zeros(rows, dtype=bool),
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


@pytest.mark.one_in(3)
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
    value, _, low, high, flag = rows[0][-5:]
    assert flag is False
    assert high - value == pytest.approx(times_rows / answer.noisy_rows[0], rel=1e-6)
    assert value - low == pytest.approx(times_rows / answer.noisy_rows[0], rel=1e-6)
    assert answer.noisy_rows[0] == pytest.approx(4_000 if len(rows) == 1 else 3_600, rel=0.2)
    assert f"{before.half_width_times_rows():.6g} / rows" in str(
        tb.Session(table, tb.OutputDPFilter(9, 1e-3)).what_if([question])
    )


# ------------------------------------------------------------------------ between quantiles

DECILES = tb.Quantiles(
    **GIVEN, probabilities=[Fraction(i, 10) for i in range(11)], epsilon=3, step=2.0**-4
)


def between(rows: int, *questions: Any, confidence: float = 0.95) -> Any:
    """The interval of the last of some questions to a table of so many rows."""
    session = session_of(rows)
    return [session.ask(question) for question in questions][-1].interval(confidence)


def test_quantiles_lie_between_answers_where_their_rows_were_counted() -> None:
    count = tb.Count(epsilon=1)
    found = between(4_000, count, DECILES)
    assert len(found) == 11
    assert all(0 <= low <= high <= 8 for low, high in found)
    assert found[0][0] == 0.0
    assert found[-1][1] == 8.0
    assert found[5][0] > 0.0
    assert found[5][1] < 8.0
    # too few rows, no count, a count of other rows, a count of units, quantiles of other rows
    assert between(40, count, DECILES) == [(0.0, 8.0)] * 11
    assert between(4_000, DECILES) is None
    assert between(4_000, tb.Count(epsilon=1, where="w"), DECILES) is None
    assert between(4_000, tb.Count(epsilon=1, of="units"), DECILES) is None
    assert between(4_000, count, dataclasses.replace(DECILES, where="w")) is None
    assert between(4_000, count, DECILES, confidence=math.nextafter(1, 0)) is None


@dataclass(frozen=True)
class Drawn:
    """Quantiles of which a rank error is certain."""

    probabilities: tuple[Fraction, ...]
    most: int

    def rank_error(self, confidence: float = 0.95, *, columns: int = 1) -> int:
        return self.most


@settings(max_examples=150)
@given(
    records=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    drawn=st.lists(st.integers(0, 9), min_size=2, max_size=5),
    fewer=st.integers(0, 3),
)
def test_no_quantile_is_outside_of_the_answers_around_it(
    records: list[int], drawn: list[int], fewer: int
) -> None:
    quantiles_lie_between(records, sorted(drawn), fewer)


def quantiles_lie_between(records: list[int], answers: list[int], fewer: int) -> None:
    """All points that are a quantile lie in its interval, by the score of the answers."""
    parts = tuple(Fraction(i, len(answers) - 1) for i in range(len(answers)))
    worst = max(score(str(q), t, records) for q, t in zip(parts, answers, strict=True))
    mechanism: Any = Drawn(parts, max(0, math.ceil(worst)))
    noise = at_most(fewer)
    law = RankLaw(mechanism=mechanism, low=0, high=9, count=(len(records), noise))
    for q, pair in zip(parts, law.intervals(answers, 0.9), strict=True):
        assert pair is not None
        for t in range(10):
            if score(str(q), t, records) <= 0:
                assert pair[0] <= t <= pair[1]


def test_the_rank_error_has_at_most_half_of_the_chance_to_miss() -> None:
    asked = list[float]()

    class Asked(Drawn):
        def rank_error(self, confidence: float = 0.95, *, columns: int = 1) -> int:
            asked.append(confidence)
            return 1

    mechanism: Any = Asked((Fraction(0), Fraction(1)), 1)
    for confidence in (0.9, 0.95, 0.3):
        law = RankLaw(mechanism=mechanism, low=0, high=9, count=(40, at_most(1)))
        assert law.intervals([2, 5], confidence) == [(0, 5), (2, 9)]
        miss = (1 - Fraction(repr(asked[-1]))) * 2
        assert 0 <= 1 - Fraction(repr(confidence)) - miss < 1e-12


@pytest.mark.slow
def test_intervals_between_simulated_quantiles_have_the_truth() -> None:
    """At 80 %: of 300 answers no more have one miss than 20 % but for five standard deviations."""
    random, misses = np.random.default_rng(6), 0
    for _ in range(300):
        data = made_up(random, 2 * int(random.integers(1, 1_000)))
        table = tb.Table(data, unit="u", rows_per_unit=2)
        session = tb.Session(table, tb.OutputDPFilter(9))
        session.ask(tb.Count(epsilon=0.5))
        pairs = session.ask(DECILES).interval(0.8)
        x = np.sort(np.floor(data["x"] * 2**4 + 0.5) / 2**4)
        ranks = [min(int(len(x) * i / 10), len(x) - 1) for i in range(11)]
        misses += not all(low <= x[r] <= high for (low, high), r in zip(pairs, ranks, strict=True))
    assert misses <= 0.2 * 300 + 5 * (0.16 * 300) ** 0.5


# ------------------------------------------------------------------------ mostly noise


def test_a_count_is_mostly_noise_if_its_interval_reaches_0() -> None:
    law = NoiseLaw(kind="laplace", scale=10.0)
    width = law.half_width(0.95)
    numbers = [0, width, -width, width + 1, -width - 1, None, "a", True]
    assert law.mostly_noise(numbers) == [True, True, True, False, False, None, None, None]


def test_a_mean_is_mostly_noise_at_an_end_or_with_half_of_the_range() -> None:
    law = QuotientLaw(noise=at_most(10.0), sums=2, factor=1.0, low=-8.0, high=8.0)
    # half widths: 10 / 2.5 = 4 is half of the range, 10 / 2.6 is less; 10 / 1000 is nearly nothing
    numbers, rows = [0.0, 0.0, 8.0, -8.0, 7.9, 0.0], (2.5, 2.6, 1e3, 1e3, 1e3, -1.0)
    assert law.mostly_noise(numbers, rows) == [True, False, True, True, False, True]
    assert law.mostly_noise([0.0]) == [None]
    assert [law.surely_mostly_noise(n, None) for n in (1, 2)] == [True, False]


def test_a_quantile_is_mostly_noise_with_half_of_all_ranks() -> None:
    mechanism = tb.release.QuantileRelease(
        probabilities=(0, 0.5, 1), bounds=(0, 9), epsilon=3, step=1
    )
    error = mechanism.rank_error()
    assert error == 7

    def flags(rows: int | None) -> list[bool | None]:
        return RankLaw(mechanism=mechanism, low=0.0, high=9.0, rows=rows).mostly_noise([1, 2, 3])

    assert flags(None) == flags(4 * error + 1) == [None] * 3
    assert flags(4 * error) == [None, True, None]
    assert flags(2 * error) == flags(1) == flags(0) == [True] * 3
    law = RankLaw(mechanism=mechanism, low=0.0, high=9.0)
    assert [law.surely_mostly_noise(n, None) for n in (2 * error, 4 * error)] == [True, False]


def session_of(rows: int, units: int | None = None, noise: Any = None) -> tb.Session:
    data = made_up(np.random.default_rng(4), rows)
    table = tb.Table(data, unit="u", rows_per_unit=2, units=units, domains={"k": ["a", "b", "c"]})
    return tb.Session(table, tb.OutputDPFilter(99, 1e-3), noise=noise)


MEDIAN = tb.Quantiles(**GIVEN, probabilities=(0.5,), epsilon=1)


def test_quantiles_know_a_public_number_of_units() -> None:
    for units, flag in ((20, True), (4_000, None)):
        session = session_of(40, units=units)
        answer = session.ask(MEDIAN)
        assert answer.mostly_noise is flag
        assert answer.frame()["mostly_noise"].isna().tolist() == [flag is None]
        assert session.what_if([MEDIAN]).questions[0].mostly_noise is bool(flag)
        assert ("mostly noise" in repr(answer)) is bool(flag)


def test_quantiles_know_a_count_that_the_session_has_released() -> None:
    for count in (tb.Count(epsilon=9), tb.Count(epsilon=9, of="units")):
        session = session_of(40)
        assert session.ask(MEDIAN).mostly_noise is None
        session.ask(tb.Count(epsilon=9, where="w"))
        assert session.ask(MEDIAN).mostly_noise is None
        session.ask(count)
        assert session.ask(MEDIAN).mostly_noise is True
        assert "fits; mostly noise" in str(session.what_if([MEDIAN]))
    large = session_of(20_000)
    large.ask(tb.Count(epsilon=9))
    assert large.ask(MEDIAN).mostly_noise is None


def test_the_count_with_the_least_noise_decides() -> None:
    session = session_of(2_000)
    session.ask(tb.Count(epsilon=9))
    before = session._rows()
    for _ in range(20):
        session.ask(tb.Count(epsilon=0.1))
    assert session._rows() == before


@pytest.mark.parametrize(
    "question",
    [
        tb.Count(epsilon=0.01),
        tb.Count(epsilon=0.01, of="units"),
        tb.Sum(**GIVEN, epsilon=0.01),
        tb.GroupedCounts(by="k", epsilon=0.01),
        tb.Mean(**GIVEN, epsilon=0.01),
        tb.Variance(**GIVEN, epsilon=0.01),
        tb.GroupedMeans(**GIVEN, by="k", epsilon=0.01, delta=1e-9),
        tb.Quantiles(**GIVEN, probabilities=(0.25, 0.5), epsilon=0.01),
    ],
    ids=lambda question: type(question).__name__,
)
def test_a_plan_says_what_can_only_be_noise(question: Any) -> None:
    for units, flag in ((20, True), (10**7, False), (None, False)):
        (row,) = session_of(40, units=units).what_if([question]).questions
        assert row.mostly_noise is row.to_dict()["mostly_noise"] is flag
    better = dataclasses.replace(question, epsilon=1_000)
    assert not session_of(40, units=20).what_if([better]).questions[0].mostly_noise


@pytest.mark.filterwarnings("ignore:FixedNoise")
def test_an_answer_of_several_numbers_says_how_many_are_mostly_noise() -> None:
    # with noise, the count of a group without rows is above 0 with 95 % in one of 40 runs
    none = tb.release.FixedNoise([0] * 99)
    answer = session_of(2_000, noise=none).ask(tb.GroupedCounts(by="k", epsilon=1))
    assert answer.mostly_noise is True
    assert answer.frame()["mostly_noise"].tolist() == [False, False, True]
    assert ", 1 of them mostly noise; charged" in repr(answer)
    html = answer._repr_html_()
    assert ">mostly noise</th>" in html
    assert html.count("<td>yes</td>") == 1
    alone = session_of(2_000).ask(tb.Count(epsilon=1))
    assert alone.mostly_noise is False
    assert "mostly noise" not in repr(alone)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0, 1e-6])
def test_means_of_small_groups_are_mostly_noise_and_those_of_large_groups_are_not(
    delta: float,
) -> None:
    """Groups of 5 to 40 rows are flagged in 98 % of runs, and those of 4,000 in none."""
    random, small, large = np.random.default_rng(8), list[bool](), list[bool]()
    for run in range(150):
        # a large group in each fifth run: its rows take all of the time
        keys = np.repeat(["a", "b", "c"], [5, 40, 0 if run % 5 else 4_000])
        data = {"u": np.arange(len(keys)), "x": random.uniform(2, 6, len(keys)), "k": keys}
        table = tb.Table(data, unit="u", rows_per_unit=5, domains={"k": ["a", "b", "c"]})
        asks = tb.Session(table, tb.OutputDPFilter(1, 1e-3))
        question = tb.GroupedMeans(**GIVEN, by="k", epsilon=0.3, delta=delta)
        *few, many = asks.ask(question)._mostly_noise()
        small += [bool(flag) for flag in few]
        large += [] if run % 5 else [bool(many)]
    assert sum(small) >= 0.98 * len(small)
    assert not any(large)


# ------------------------------------------------------------------------ guards


def no_number_of_two_is_exceeded() -> bool:
    law = NoiseLaw(kind="laplace", scale=5.5)
    above, _ = tails("laplace", 5.5, 400)
    return bool(above[int(law.half_width(0.95, 2))] * 2 <= 0.05)


def without_rows_the_mean_may_be_anything() -> bool:
    law = QuotientLaw(noise=at_most(1.0), sums=2, factor=1.0, low=-1.5, high=2.5)
    return pairs(law, 0.5, -3.0) == [(-1.5, 2.5)]


def quantiles_are_between_the_answers() -> bool:
    try:
        quantiles_lie_between([5] * 10, [3, 3, 6, 6, 6, 6], 0)
        quantiles_lie_between([2] * 10 + [7] * 10, [0, 2, 9], 0)
    except AssertionError:
        return False
    return True


MUTATIONS = [
    Without(
        "an answer bounds only quantiles that are further away than the rank error",
        {"quantiles-between-answers": "below = [s for p, s in answers if q > p]"},
        quantiles_are_between_the_answers,
    ),
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
