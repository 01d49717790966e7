"""What is special about single mechanisms on tables: their refusals, their noise, their edges."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.release import test_laws as release_laws
from tests.tables.cases import CASES, COLUMNS, DOMAINS, Case, in_duckdb, small, table
from tests.tables.test_laws import Silent, same, silent

import tightbudget as tb
from tightbudget.tables import (
    Count,
    Counts,
    CountsAbove,
    GatedCounts,
    GradualCount,
    GradualSum,
    GroupedCounts,
    GroupedMeans,
    GroupedSums,
    HistogramCounts,
    Mean,
    Sum,
    Table,
    TopGroups,
    Variance,
)
from tightbudget.tables.mechanism import NoisyVector

X: dict[str, Any] = {"epsilon": 1, "column": "x", "bounds": (-1, 4)}
NOISY = [case for case in CASES if isinstance(case.mechanism, NoisyVector)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", NOISY, ids=lambda case: case.name)
def test_gaussian_noise_of_zero_leaves_the_truth_and_costs_epsilon_and_delta(case: Case) -> None:
    gaussian = replace(case.mechanism, delta=Fraction(1, 10**6))
    same(silent(replace(case, mechanism=gaussian), case.data), case.truth(COLUMNS))
    assert gaussian.guarantee.worst_case() == (1, Fraction(1, 10**6))
    assert release_laws.budget(replace(case, mechanism=gaussian)).left.delta == 1e-6


# ------------------------------------------------------------------ means and variances


@pytest.mark.parametrize("rows", [1, 3])
def test_a_mean_has_half_the_variance_of_a_sum_beside_a_count(rows: int) -> None:
    """Both at the same epsilon, with the sum of the distances from the middle at epsilon / 2."""
    data = table(COLUMNS, rows)
    mean = Mean(epsilon=1, column="x", bounds=(-1, 3), step=2.0**-10).plan(data)
    ends: Any = mean.mechanism
    # A - B is twice the sum of the distances from the middle, which are at most 2
    of_ends = 2 * float(ends.scale * Fraction(1, 2**10)) ** 2 / 4
    halves: Any = Sum(epsilon=0.5, column="x", bounds=(-2, 2), step=2.0**-10).plan(data).mechanism
    assert of_ends == pytest.approx(float(halves.scale * Fraction(1, 2**10)) ** 2 / 2)
    count: Any = Count(epsilon=0.5).plan(data).mechanism
    # A + B is four times the number of rows
    assert 2 * float(ends.scale * Fraction(1, 2**10)) ** 2 / 16 == pytest.approx(
        float(count.scale) ** 2 / 2
    )


def test_noise_that_leaves_no_rows_answers_the_middle() -> None:
    class Low(Silent):
        def laplace(self, scale: Any, size: int) -> Any:
            drawn = np.zeros(size, dtype=np.int64)
            drawn[0] = -(2**40)
            return drawn

    empty = table(small([]), 1)
    for noise in (Silent(), Low()):
        meter = tb.OutputDPFilter(9)
        for asked, value in (
            (Mean(**X), 1.5),
            (Variance(**X), 25 / 8),
            (GroupedMeans(by="k", **X), {"p": 1.5, "q": 1.5}),
        ):
            mechanism: Any = asked
            assert mechanism.release(empty, meter=meter, noise=noise).value == value


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(20))
def test_means_and_variances_stay_in_their_range_whatever_the_noise(seed: int) -> None:
    noise, meter = release_laws.Seeded(seed), tb.OutputDPFilter(99)
    few = table({name: column[:2] for name, column in COLUMNS.items()})
    for _ in range(10):
        given: dict[str, Any] = {**X, "epsilon": 0.01}
        assert -1 <= Mean(**given).release(few, meter=meter, noise=noise).value <= 4
        variance = Variance(**given).release(few, meter=meter, noise=noise).value
        assert 0 <= variance <= 25 / 4
        assert math.isfinite(variance)


def test_large_sums_are_exact_where_the_noise_is_none() -> None:
    """Two points of 2^50 at the step 2^-26, and squares of 2^48: noise lies on a coarser grid."""
    x = np.array([0.0, 2.0**25, 2.0**25, 0.0])
    data = Table({"x": x})
    meter = tb.OutputDPFilter(9)
    wide = Variance(epsilon=1, column="x", bounds=(0, 2**24), step=1.0)
    assert wide.release(data, meter=meter, noise=Silent()).value == 2.0**46
    fine = Mean(epsilon=1, column="x", bounds=(0, 2**24), step=2.0**-26)
    assert fine.release(data, meter=meter, noise=Silent()).value == 2.0**23
    for delta in (0, 1e-6):
        total = Sum(epsilon=1, delta=delta, column="x", bounds=(0, 2**24), step=2.0**-26)
        assert total.release(data, meter=tb.OutputDPFilter(1, 1e-6), noise=Silent()).value == 2**25


# ------------------------------------------------------------------ histograms


@pytest.mark.parametrize("edges", [(0, 1, 2), (-0.5, 0.1, 0.2, 7), (0.1, 0.3)])
@pytest.mark.parametrize("step", [None, 0.0625])
def test_a_bin_has_its_first_edge_and_the_last_bin_has_both(
    edges: tuple[float, ...], step: float | None
) -> None:
    x = np.array([-0.5, 0.0, 0.1, 0.2, 0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 7.0, 8.0, -9.0, math.nan])
    data = Table({"x": x})
    asked = HistogramCounts(epsilon=1, column="x", edges=edges, step=step)
    grid = Fraction(asked._grid.step)

    def point(value: float) -> int:
        return math.floor(Fraction(value) / grid + Fraction(1, 2))

    known = [point(value) for value in x[:-1]]
    truth = {}
    for low, high in itertools.pairwise(edges):
        last = high == edges[-1]
        truth[low, high] = sum(
            point(low) <= p and (p < point(high) or (last and p == point(high))) for p in known
        )
    meter = tb.OutputDPFilter(1)
    assert asked.release(data, meter=meter, noise=Silent()).value == truth


# ------------------------------------------------------------------ gradual answers


def test_a_rule_is_told_answers_in_their_unit_and_stops_the_run() -> None:
    told: list[Any] = []

    def stop(answers: tuple[float, ...]) -> bool:
        told.append(answers)
        return len(answers) == 2

    gradual = GradualSum(
        epsilons=(0.25, 0.5, 1), good_enough=stop, column="x", bounds=(-1, 4), step=0.5
    )
    meter = tb.OutputDPFilter(1)
    data = table(small([("a", 2.5, "p", 0, True, True)] * 3), 3)
    answer = gradual.release(data, meter=meter, noise=Silent())
    assert answer.value == (7.5, 7.5)
    assert told == [(7.5,), (7.5, 7.5)]
    assert answer.cell == 2
    assert meter.spent.amount == 0.5


def test_a_rule_that_fails_costs_the_last_price() -> None:
    def broken(_: tuple[float, ...]) -> bool:
        raise ZeroDivisionError("secret")

    meter = tb.OutputDPFilter(1)
    with pytest.raises(tb.ReleaseError):
        GradualCount(epsilons=(0.25, 1), good_enough=broken).release(table(COLUMNS), meter=meter)
    assert meter.spent.amount == 1


# ------------------------------------------------------------------ refusals


def stops(_: tuple[float, ...]) -> bool:
    return True


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Mean(**{**X, "bounds": None}), r"^bounds must be given: public numbers"),
        (lambda: Mean(**{**X, "bounds": (4, -1)}), r"^bounds must ascend, got \(4, -1\)"),
        (lambda: Mean(**X, step=0.3), r"^step must be a power of two, got 0\.3"),
        (
            lambda: Mean(**X, step=2.0**-50),
            r"^step must be coarser: the bounds are 5629\d+ points apart, and this mechanism takes "
            r"at most 2\^51$",
        ),
        (
            lambda: Variance(**X, step=2.0**-30),
            r"^step must be coarser: the bounds are 5368709120 points apart, and this mechanism "
            r"takes at most 2\^25$",
        ),
        (lambda: GroupedMeans(by="k", **X, step=2.0**-50), r"^step must be coarser: the bounds"),
        (lambda: GroupedSums(by="k", **{**X, "bounds": (0, math.inf)}), r"^bounds\[1\] must be"),
        (
            lambda: HistogramCounts(epsilon=1, column="x", edges=None),  # type: ignore[arg-type]
            r"^edges must be public numbers that ascend; GroupedCounts counts the rows of public",
        ),
        (
            lambda: HistogramCounts(epsilon=1, column="x", edges=[1]),
            r"^edges must be at least two numbers that ascend, got \(1\.0,\)",
        ),
        (
            lambda: HistogramCounts(epsilon=1, column="x", edges=[1, 2, 2]),
            r"^edges must be at least two numbers that ascend",
        ),
        (
            lambda: HistogramCounts(epsilon=1, column="x", edges=[0, math.nan]),
            r"^edges\[1\] must be a finite number, got nan",
        ),
        (
            lambda: HistogramCounts(epsilon=1, column="x", edges=[0, 0.1, 9], step=1.0),
            r"^step must be finer: the edges 0\.0 and 0\.1 are one point$",
        ),
        (lambda: Counts(epsilon=1, where=()), r"^where must be a list of conditions, at least one"),
        (lambda: Counts(epsilon=1, where="w"), r"^where must be a list of conditions"),
        (lambda: Count(epsilon=1, of="records"), r"^of must be one of rows, units, got"),  # type: ignore[arg-type]
        (lambda: Count(epsilon=0), r"^epsilon must be"),
        (lambda: Count(epsilon=1, delta=1), r"^delta must be in \[0, 1\), got 1$"),
        (
            lambda: CountsAbove(
                where=("w",), threshold=0.5, epsilon=1, search_epsilon=1, aboves=1  # type: ignore[arg-type]
            ),
            r"^threshold must be an integer, got 0\.5",
        ),
        (lambda: TopGroups(by="k", k=0, epsilon=1, least=1), r"^k must be"),
        (lambda: TopGroups(by="k", k=1, epsilon=1, least=0.5), r"^least must be an integer"),  # type: ignore[arg-type]
        (
            lambda: GradualCount(epsilons=(1, 1), good_enough=stops),
            r"^epsilons must be ascending, and at least one",
        ),
        (lambda: GradualCount(epsilons=(1, 2), good_enough=3), r"^good_enough must be a function"),  # type: ignore[arg-type]
        (
            lambda: GradualSum(epsilons=(1, 2), good_enough=stops, column="x", bounds=None),  # type: ignore[arg-type]
            r"^bounds must be given: public numbers",
        ),
    ],
)  # fmt: skip
def test_a_parameter_is_refused_when_the_mechanism_is_made(
    make: Callable[[], Any], said: str
) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        make()


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        (GroupedCounts(by="u", epsilon=1), r"^keys of 'u' must be public: give Table\(domains="),
        (GroupedCounts(by=(), epsilon=1), r"^by must name one column, or several different ones"),
        (GroupedSums(by=("k", "k"), **X), r"^by must name one column, or several different ones"),
        (TopGroups(by="k", k=3, epsilon=1, least=1), r"^k must be at most the number of keys, 2"),
        (Mean(**{**X, "column": "z"}), r"be one of the columns u, x, k, j, w, v, bin, got 'z'"),
        (Count(epsilon=1, where="z"), r"be one of the columns u, x, k, j, w, v, bin, got 'z'"),
    ],
)
@pytest.mark.parametrize("data", [table(COLUMNS), in_duckdb()], ids=["arrays", "duckdb"])
def test_what_a_table_does_not_declare_is_refused_and_costs_nothing(
    mechanism: Any, said: str, data: Table
) -> None:
    meter = tb.OutputDPFilter(1)
    with pytest.raises(tb.ParameterError, match=said):
        mechanism.release(data, meter=meter)
    assert meter.spent == meter.held == tb.Amount(0.0, 0.0, "epsilon")


@pytest.mark.parametrize("by", ["k", "j"])
def test_keys_of_another_type_than_the_column_cost_nothing(by: str) -> None:
    """An engine would fail at the comparison when the budget is spent already."""
    wrong = {"k": (1, 2), "j": ("0", "1")}
    whole = in_duckdb()
    said = rf"^domains\['{by}'\] must have keys of the column's type, \w+ \(.*\), got"
    with pytest.raises(tb.ParameterError, match=said):
        Table(whole.data, domains={by: wrong[by]})
    # a derived column takes the place of the one that has these keys
    derived = whole.mutate(**{by: lambda t: t.x})
    meter = tb.OutputDPFilter(1)
    with pytest.raises(tb.ParameterError, match=f"got '{by}' of type float64"):
        GroupedCounts(by=by, epsilon=1).release(derived, meter=meter)
    assert meter.spent == meter.held == tb.Amount(0.0, 0.0, "epsilon")
    assert set(GroupedCounts(by=by, epsilon=1).rehearse(whole).cost.unit) == set("epsilon")


# ------------------------------------------------------------------ a half of the units


@pytest.mark.parametrize("salt", ["5a", "5b"])
def test_counts_that_pass_their_test_are_those_of_half_of_the_units(
    salt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    contribution = replace(table(COLUMNS).contribution(), salt=salt)
    monkeypatch.setattr(Table, "contribution", lambda _: contribution)
    tested = GatedCounts(by="k", epsilon=1, threshold=60, test_epsilon=0.5)
    units = COLUMNS["u"].tolist()
    half = [
        u is None or hashlib.md5(f"{salt}|half|{u}".encode()).hexdigest()[0] in "01234567"
        for u in units
    ]
    truth = {key: int(((COLUMNS["k"] == key) & half).sum()) for key in DOMAINS["k"]}
    for data in (table(COLUMNS), in_duckdb()):
        meter = tb.OutputDPFilter(1)
        answer = tested.release(data, meter=meter, noise=Silent())
        assert (answer.value, answer.cell) == (truth, "value")
        assert meter.spent.amount == 1
    other = {key: int((COLUMNS["k"] == key).sum()) - truth[key] for key in truth}
    apart = sum(abs(truth[key] - other[key]) for key in truth)
    for threshold, passes in ((apart, True), (apart - 1, False)):
        meter = tb.OutputDPFilter(1)
        answer = replace(tested, threshold=threshold).release(
            table(COLUMNS), meter=meter, noise=Silent()
        )
        assert (answer.value is not None) == passes
        assert meter.spent.amount == (1 if passes else 0.5)


def test_a_table_whose_rows_are_units_has_no_halves() -> None:
    meter = tb.OutputDPFilter(1)
    with pytest.raises(tb.ParameterError, match=r"^the table must have a unit, whose name puts"):
        GatedCounts(by="k", epsilon=1, threshold=60, test_epsilon=0.5).release(
            Table(dict(COLUMNS), domains=DOMAINS), meter=meter
        )
    assert meter.spent == meter.held == tb.Amount(0.0, 0.0, "epsilon")
    with pytest.raises(tb.ParameterError, match=r"^threshold must be .*got -1"):
        GatedCounts(by="k", epsilon=1, threshold=-1, test_epsilon=0.5)


@pytest.mark.parametrize("of", ["rows", "units"])
def test_the_most_frequent_key_is_the_likeliest(of: Any) -> None:
    """At a large epsilon it is chosen: q has more rows, and p more units."""
    rows = [("a", 1.0, "q", 0, True, True)] * 5 + [(u, 1.0, "p", 0, True, True) for u in "bcd"]
    for data in (table(small(rows)), in_duckdb(columns=small(rows))):
        question = tb.tables.MostFrequent(by="k", epsilon=900, of=of)
        answer = question.release(data, meter=tb.OutputDPOdometer())
        assert answer.value == ("q" if of == "rows" else "p")
        assert answer.cell == "value"
    rho = tb.ZCDPFilter(rho=1)
    question = tb.tables.MostFrequent(by="k", epsilon=0.4, of=of)
    assert question.release(table(small(rows)), meter=rho).receipt.charged.amount == 0.02
