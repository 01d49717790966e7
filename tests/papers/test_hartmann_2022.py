"""The reproductions of Hartmann et al. 2022: against exact arithmetic, and in law."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from papers.hartmann_2022 import figure_02, figure_gap_mechanism, figure_gap_stops, table_1
from papers.hartmann_2022.gap import Gap, Stops
from papers.hartmann_2022.search import EPSILON, SIZE, THRESHOLD, Found, noise_on_values
from tests import exact
from tests.papers.committed import committed as numbers_of

import tightbudget as tb


def committed(name: str) -> dict[str, Any]:
    return numbers_of(f"hartmann_2022/{name}")


# ------------------------------------------------------------------------------ Table 1


@pytest.mark.parametrize("n", [2, 3, 16, 41])
def test_delta_1_is_that_of_the_theorem(n: int) -> None:
    """(e^(n eps) - e^((n - 2) eps)) / (1 + e^eps)^n."""
    low, high = exact.exp_ends(0.1)
    bounds = table_1.delta_1(n)
    assert bounds.lower <= (high**n - low ** (n - 2)) / (1 + low) ** n
    assert bounds.upper >= (low**n - high ** (n - 2)) / (1 + high) ** n
    assert bounds.relative_gap < 1e-9


def test_both_readings() -> None:
    cells = list(committed("table_1").values())
    assert [c["published"] for c in cells] == [17, 20, 24, 27, 31, 35, 38, 42]
    assert [c["by the theorem"] for c in cells] == [16, 19, 23, 26, 30, 34, 37, 41]
    assert [c["as printed"] for c in cells] == [c["published"] for c in cells]
    assert {c["any smaller epsilon"] for c in cells} == {1}
    for delta, c in committed("table_1").items():
        assert c["delta_1 of that many"]["upper"] <= float(delta) < c["delta_1 of one fewer"][
            "lower"
        ]  # fmt: skip


def test_what_is_printed_says_which_reading_matches() -> None:
    lines = table_1.table(committed("table_1")).splitlines()
    assert lines[1].split() == ["1e-05", "17", "16", "differs", "17", "matches", "1"]
    assert sum("16 differs" in line or "41 differs" in line for line in lines) == 2
    assert "16 are enough" in lines[-2]


def test_too_close_to_tell_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_1, "delta_1", lambda n: tb.Bounds(0.95 / n, 1.05 / n))
    with pytest.raises(tb.PrecisionError, match=r"delta_1\(10\) is too close to 0.1 to tell"):
        table_1.fewest(0.1)


# -------------------------------------------------------------------------------- gaps


def test_a_gap_against_exact_arithmetic() -> None:
    step = tb.HistogramPair((0.75, 0.25), (0.25, 0.75))
    stops = Stops(step, [1, 2, 4], delta=0.01)
    outputs = exact.normalised((0.75, 0.25), (0.25, 0.75))
    for every, chosen in ((1, [0, 1, 2]), (3, [2])):
        gap = stops.gap(every)
        ends = [exact.exp_ends(stops.prices[i]) for i in chosen]
        counts = [stops.stops[i] for i in chosen]
        for end, bound in ((1, "upper"), (0, "lower")):
            factors = [e[end] for e in ends]
            optimal = exact.stopping_delta([outputs] * counts[-1], counts, factors)
            added = sum(
                (exact.Composed.of([outputs] * k).delta_at(e)
                 for k, e in zip(counts, factors, strict=True)),
                start=Fraction(0),
            )  # fmt: skip
            for found, truth in ((gap.optimal, optimal), (gap.added, added)):
                if bound == "upper":  # a dear price: the truth from below
                    assert truth <= Fraction(found.upper)
                else:
                    assert Fraction(found.lower) <= truth


def gaps(name: str) -> list[tuple[str, int, Gap]]:
    return [
        (kind, int(n), Gap.of(numbers))
        for kind, by_stops in committed(name).items()
        for n, numbers in by_stops.items()
    ]


@pytest.mark.parametrize("name", ["figure_gap_stops", "figure_gap_mechanism"])
def test_the_optimum_is_between_the_dearest_stop_and_the_sum(name: str) -> None:
    found = gaps(name)
    assert (
        len(found)
        == {
            "figure_gap_stops": len(figure_gap_stops.KINDS) * len(figure_gap_stops.NUMBERS),
            "figure_gap_mechanism": len(figure_gap_mechanism.KINDS)
            * len(figure_gap_mechanism.NUMBERS),
        }[name]
    )
    for _, n, gap in found:
        assert gap.optimal.lower <= gap.added.upper <= n * 1e-5 * (1 + 1e-3)
        assert gap.optimal.upper >= gap.added.lower / n
        assert gap.optimal.relative_gap <= 1e-3
        assert gap.added.relative_gap <= 1e-3


@pytest.mark.parametrize("name", ["figure_gap_stops", "figure_gap_mechanism"])
def test_the_gap_widens_with_the_stops(name: str) -> None:
    found = gaps(name)
    for (kind, n, fewer), (other, m, more) in itertools.pairwise(found):
        if kind == other:
            assert n < m
            assert fewer.factor.upper < more.factor.lower


def test_one_stop_has_no_gap() -> None:
    for _, n, gap in gaps("figure_gap_stops"):
        if n == 1:
            assert gap.optimal.overlaps(gap.added)


# ------------------------------------------------------------------------------ filter


def test_lemma_11_and_the_filter_leave_delta_unused() -> None:
    for found in committed("figure_filter").values():
        assert found["delta"]["optimal"]["lower"] > 0.995e-5
        assert found["delta"]["optimal"]["upper"] <= 1e-5
        for method in ("Lemma 11", "Renyi filter"):
            assert found["delta"][method]["upper"] < 0.6e-5


def test_a_choice_costs_more_than_none_and_less_than_lemma_11() -> None:
    for found in committed("figure_filter").values():
        prices, fixed = found["prices"], found["no stopping"]
        assert len(fixed) == 10
        assert all(p > b["lower"] for p, b in zip(prices["optimal"][4::5], fixed, strict=True))
        assert all(p < q for p, q in zip(prices["optimal"], prices["Lemma 11"], strict=True))


def test_against_the_filter() -> None:
    """Cheaper throughout for DP-SGD; for plain Gaussian noise not in the second half."""
    dpsgd, gaussian = (found["prices"] for found in committed("figure_filter").values())
    assert all(p < q for p, q in zip(dpsgd["optimal"], dpsgd["Renyi filter"], strict=True))
    cheaper = [p < q for p, q in zip(gaussian["optimal"], gaussian["Renyi filter"], strict=True)]
    assert all(cheaper[:25])
    assert cheaper[-1]
    assert not all(cheaper)


# ------------------------------------------------------------------------ Figures 1, 2


def entry(i: int, vector: list[int]) -> int:
    return vector[i]


@pytest.mark.slow
@pytest.mark.parametrize("adaptive", [False, True])
def test_what_a_search_is_expected_to_find_is_what_it_finds(adaptive: bool) -> None:
    """The library's own search, some hundred times, against the enumeration."""
    search, large = tb.release.SparseVector(EPSILON, 4, adaptive=adaptive), 3
    found = Found.of(search, large, 600)
    assert found.chances.sum() == pytest.approx(1.0, rel=1e-12)
    queries = [partial(entry, i) for i in range(SIZE)]
    entries = [600] * large + [0] * (SIZE - large)
    cells, numbers = list[int](), list[int]()
    for _ in range(150):
        with search.open(entries, meter=tb.OutputDPOdometer()) as run:
            for query in queries:
                if not run.done:
                    run.ask(query, THRESHOLD)
        release = run.release()
        cells.append(int(str(release.cell)))
        numbers.append(sum(release.value))
    n, k = np.indices(found.chances.shape)
    for measured, index in ((numbers, n), (cells, k)):
        mean = float((found.chances * index).sum())
        spread = math.sqrt(float((found.chances * (index - mean) ** 2).sum()) / len(measured))
        assert abs(np.mean(measured) - mean) < 6 * spread


def test_the_noise_of_the_text() -> None:
    """Lap(40) without output DP; Lap(c' / eps3') with it."""
    search = tb.release.SparseVector(EPSILON, 20, adaptive=False)
    assert noise_on_values(search, 20, 20) == 40.0
    eps_2 = 0.5 * 40 ** (2 / 3) / (1 + 40 ** (2 / 3))
    assert noise_on_values(search, 7, 7) == pytest.approx(7 / (0.5 + 13 / 20 * eps_2), rel=1e-4)


def test_expected_noise_is_below_its_bound_and_above_that_of_the_large_entries() -> None:
    search = tb.release.SparseVector(EPSILON, 20, adaptive=False)
    for large, found in committed("figure_01").items():
        least = noise_on_values(search, int(large), int(large))
        assert 0.99 * least < found["expected"] <= found["bound"] <= found["without"] == 40.0


@pytest.mark.parametrize("regularization", [1.0, 0.01])
@pytest.mark.parametrize("sensitivity", list(tb.release.GateSensitivity))
def test_percentiles_by_formula(
    regularization: float, sensitivity: tb.release.GateSensitivity
) -> None:
    n = 5000
    w = 2 / (0.7 * n * regularization)
    moves = w / 2 if sensitivity is tb.release.GateSensitivity.TIGHT else 2 * math.expm1(w)
    a = max(2 / (0.3 * n), moves)
    found = figure_02.percentile(n, regularization, 0.1, sensitivity)
    assert found == pytest.approx(a / 0.1 * math.log(10), rel=3e-3)


def test_refinements_help_where_it_is_said_that_they_do() -> None:
    found = committed("figure_refinements")
    for value, scales in found["noise"]["adaptive"].items():
        assert scales["20"] < 0.85 * found["noise"]["plain"][value]["20"]
        assert scales["1"] > found["noise"]["plain"][value]["1"]
    for x, tight in found["test"]["tight"].items():
        factor = found["test"]["paper"][x] / tight
        assert factor == pytest.approx(1) if x == "1.0" else factor > 2.5
        assert (factor > 4) == (float(x) <= 0.1)
