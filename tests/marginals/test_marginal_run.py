"""Marginals of private rows: what each primitive draws, what is paid, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tightbudget as tb
from tightbudget.marginals.gaussian_on_grid import with_noise
from tightbudget.marginals.marginal_run import MOST_CELLS, _error, _rounded
from tightbudget.marginals.merged_cells import merged_counts, merged_shape, split_counts
from tightbudget.marginals.reach import reach_of, relation_of
from tightbudget.marginals.rows import InMemory
from tightbudget.release.noise.noise import IntArray
from tightbudget.workflows import Workflow

ROWS: dict[str, Any] = {
    "sex": np.array(["f", "m", "f", "f", None, "x"], dtype=object),
    "age": np.array([3.0, 17.0, 40.0, 60.0, math.nan, 200.0]),
    "who": ["ann", "bob", "ann", "ann", None, None],
}
DOMAINS = {"sex": ["f", "m", None], "age": tb.marginals.NumericBins([0, 18, 60])}
FLAT = np.zeros((3, 2))


class Recorded:
    """A source that answers with what it was given, and keeps what it was asked for."""

    batch = 1

    def __init__(self, coins: str = "", draw: int = 0) -> None:
        self.scales: list[tuple[Fraction, int]] = []
        self._coins = itertools.chain(coins, itertools.cycle("10"))
        self._draw = draw

    def gaussian(self, scale: Any, size: int) -> IntArray:
        self.scales.append((Fraction(scale), size))
        return np.full(size, self._draw, dtype=np.int64)

    laplace = gaussian

    def coin(self) -> bool:
        return next(self._coins) == "1"


def of(steps: Any, stops: Any = (1,)) -> Any:
    """A chain with one price for all."""
    plan = tb.marginals.Measurements("made up", 1.0, Workflow.chain(steps, list(stops)))
    return plan.priced(1e-5, epsilon=plan.epsilon(1e-5).upper * 1.01)


GAUSSIAN = of(tb.Gaussian(2.0))
CHOICES = of([tb.ExponentialMechanism(1.0) * 2, tb.Gaussian(1.0)], (1, 2))


def budget() -> tb.OutputDPFilter:
    return tb.OutputDPFilter(20, 0.1)


def opened(plan: Any = GAUSSIAN, rows: Any = ROWS, **given: Any) -> tb.marginals.MarginalRun:
    given = {"meter": budget(), "noise": Recorded(), **given}
    return tb.marginals.MarginalRun(plan, rows, given.pop("domains", DOMAINS), **given)


# ------------------------------------------------------------------------------ what is counted


def counted(rows: Any, *cliques: tuple[str, ...], **given: Any) -> list[Any]:
    with opened(rows=rows, **given) as run:
        return [found.counts.tolist() for found in run.measure(cliques)]


def test_without_noise_the_counts_are_those_of_the_rows() -> None:
    found = counted(ROWS, ("sex",), ("age",), ("sex", "age"), ("age", "sex"))
    # None counts what is missing or not listed; ages beyond the edges count nowhere
    assert found == [
        [3, 1, 2],
        [2, 2],
        [[1, 2], [1, 0], [0, 0]],
        [[1, 1, 0], [2, 0, 0]],
    ]


def test_frames_are_counted_as_pandas_counts_them() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"a": rng.integers(0, 4, 500), "b": rng.choice(["x", "y", "z"], 500), "c": rng.random(500)}
    )
    frame["b"] = frame["b"].astype("category")
    domains = {"a": range(4), "b": ["x", "y", "z"], "c": tb.marginals.NumericBins([0, 0.5, 1])}
    cut = frame.assign(c=pd.cut(frame["c"], [0, 0.5, 1], right=False).cat.codes)
    (found,) = counted(frame, ("a", "b", "c"), domains=domains)
    assert found == (
        cut.groupby(["a", "b", "c"], observed=False)
        .size()
        .to_numpy(dtype=float)
        .reshape(4, 3, 2)
        .tolist()
    )


ODD = [None, math.nan, 2j, pd.NA, pd.NaT, [1], {}, "1", float("inf"), 10**400, object()]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
@pytest.mark.parametrize("column", ["sex", "age", "who"])
def test_no_value_raises_and_none_changes_where_others_count(odd: Any, column: str) -> None:
    # one row more moves one count by 1, whatever its value makes of the column's type
    more: dict[str, list[Any]] = {
        name: [*values, "f" if name == "sex" else 1.0] for name, values in ROWS.items()
    }
    more[column][-1] = odd
    for rows in (more, {name: pd.Series(values) for name, values in more.items()}):
        for clique in (("sex",), ("age",), ("sex", "age")):
            (before,) = counted(ROWS, clique, unit="who", rows_per_unit=2)
            (after,) = counted(rows, clique, unit="who", rows_per_unit=2)
            moves = np.subtract(after, before)
            assert moves.min() >= 0
            assert moves.sum() <= 1


def test_so_many_rows_of_a_unit_count_and_a_missing_one_is_a_unit_of_its_own() -> None:
    for most, first in ((1, [1, 1, 2]), (2, [2, 1, 2]), (3, [3, 1, 2])):
        (found,) = counted(ROWS, ("sex",), unit="who", rows_per_unit=most)
        assert found == first


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_rows_of_a_unit_of_any_type_are_so_many_at_most(odd: Any) -> None:
    missing = odd is pd.NA or odd is None or odd != odd
    (found,) = counted(
        {"a": [1] * 5, "u": [odd] * 5}, ("a",), domains={"a": [1]}, unit="u", rows_per_unit=2
    )
    # a list cannot be counted as a unit: none of its rows count
    assert found == [5 if missing else 0 if isinstance(odd, list | dict) else 2]


def test_one_unit_more_moves_marginals_by_its_rows_at_most() -> None:
    rng = np.random.default_rng(2)
    whole = pd.DataFrame({name: rng.integers(0, 3, 60) for name in "ab"} | {"u": np.arange(60) % 7})
    domains = {"a": range(3), "b": range(3)}
    for unit, most in itertools.product(range(7), (1, 3)):
        less = whole[whole["u"] != unit]
        for clique in (("a",), ("b",), ("a", "b")):
            one, two = (
                np.array(counted(rows, clique, domains=domains, unit="u", rows_per_unit=most)[0])
                for rows in (whole, less)
            )
            assert (one >= two).all()
            assert (one - two).sum() == most


# ------------------------------------------------------------------------- the law of a measurement


def spread(multiplier: float, cliques: int, weights: Any = None, **given: Any) -> list[float]:
    """The sigma that each marginal has, as it is drawn."""
    noise = Recorded()
    with opened(of(tb.Gaussian(multiplier)), noise=noise, **given) as run:
        wanted = [("sex",), ("age",), ("sex", "age")][:cliques]
        found = run.measure(wanted, weights=weights)
    for (scale, size), one in zip(noise.scales, found, strict=True):
        step = one.sigma / float(scale)
        assert size == one.counts.size
        assert math.frexp(step)[0] == 0.5  # a power of two
        # the continuous noise that covers it
        assert scale >= 2**24
    return [one.sigma for one in found]


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 0.5)])
def test_all_noise_of_one_measurement_is_what_the_move_declares(rows: int, weights: Any) -> None:
    found = spread(3.0, 3, weights, unit="who", rows_per_unit=rows)
    # the distance of neighbours in units of noise: a unit moves each marginal by its rows
    assert sum((rows / sigma) ** 2 for sigma in found) == pytest.approx(1 / 9, rel=1e-8)
    assert sum((rows / sigma) ** 2 for sigma in found) < 1 / 9
    if weights:
        assert found[1] / found[0] == pytest.approx(0.5, rel=1e-8)


@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 0.5)])
def test_where_a_unit_is_replaced_the_noise_is_twice_in_its_square(weights: Any) -> None:
    given: dict[str, Any] = {"unit": "who", "rows_per_unit": 2}
    added = spread(3.0, 3, weights, **given)
    replaced = spread(3.0, 3, weights, relation="replace-one", **given)
    assert [two / one for one, two in zip(added, replaced, strict=True)] == [
        pytest.approx(math.sqrt(2.0), rel=1e-8)
    ] * 3
    # k rows of each marginal in one cell, and k others in another one
    assert sum(8 / sigma**2 for sigma in replaced) == pytest.approx(1 / 9, rel=1e-8)
    assert sum(8 / sigma**2 for sigma in replaced) < 1 / 9


@pytest.mark.parametrize("relation", ["add-or-remove", "replace-one"])
def test_counts_and_scores_move_so_far_and_no_further(relation: str) -> None:
    reach = reach_of(relation_of(relation))
    shares = np.array(list(itertools.product(range(4), repeat=3)))
    for most in (1, 2, 3):
        units = [v for v in shares if v.sum() <= most]
        others = units if relation == "replace-one" else [np.zeros(3, dtype=int)]
        moves = np.array([v - w for v in units for w in others])
        assert (moves**2).sum(axis=1).max() == reach.square * most**2
        assert np.abs(moves).sum(axis=1).max() == reach.total * most
        before, moved = np.array([9, 0, 7]), []
        for model in ([0.0, 9.0, 0.0], [9.0, 0.5, 7.0], [9.5, 0.0, 8.25]):
            one, other = (
                [float(np.abs(before + v - model).sum()) for v in each] for each in (units, others)
            )
            moved.append(np.abs(np.subtract.outer(one, other)).max())
        # rows of one cell are more than the model has, and those of another are fewer
        assert moved[0] == max(moved) == reach.total * most


@pytest.mark.parametrize("sigma", [1e-6, 0.3, 1.0, 7.7, 2.0**24, 2.0**25, 1e9])
def test_the_grid_is_so_fine_that_continuous_noise_covers_it(sigma: float) -> None:
    noise, variance = Recorded(draw=3), Fraction(sigma) ** 2
    found, spread = with_noise(np.array([5], dtype=np.int64), variance, noise)
    ((scale, _),) = noise.scales
    step = Fraction(spread) / scale
    # counts lie on the grid: otherwise they show what the step leaves over
    assert step.numerator == 1
    assert step.denominator & (step.denominator - 1) == 0
    # what is left of the noise without a Gaussian of 2^10 points, the width that smooths the grid
    rest = scale**2 - 2**20
    assert rest * step**2 >= variance
    assert float(rest * step**2) == pytest.approx(float(variance), rel=1e-12)
    assert spread == pytest.approx(sigma, rel=4e-9)
    assert found[0] == 5 + 3 * float(step)


def test_the_smoothing_bound_holds_where_it_can_be_computed() -> None:
    # the proof's step for a smaller s: discrete noise around continuous noise is discrete noise
    r, s, far = 3.0, 1.0, np.arange(-40, 41)
    x = np.linspace(-60, 60, 12_001)
    for c in (0.0, 1.0, 2.0):
        weights = np.exp(-((far[:, None] - x) ** 2) / (2 * s * s))
        chances = weights / weights.sum(axis=0)
        density = np.exp(-((x - c) ** 2) / (2 * r * r))
        law = chances @ density
        exact = np.exp(-((far - c) ** 2) / (2 * (r * r + s * s)))
        law, exact = law / law.sum(), exact / exact.sum()
        seen = np.abs(far - c) < 10
        assert np.abs(law / exact - 1)[seen].max() < 6 * math.exp(-2 * math.pi**2 * s * s)


def test_the_noise_has_its_spread() -> None:
    rows = {"a": np.zeros(10, dtype=int)}
    with opened(rows=rows, domains={"a": range(2000)}, noise=None) as run:
        (found,) = run.measure([("a",)])
    noise = found.counts - np.array([10] + [0] * 1999)
    assert noise.std() == pytest.approx(2.0, rel=0.12)
    assert np.abs(noise - np.rint(noise)).max() > 0.4  # a grid finer than integers


# ---------------------------------------------------------------------- cells that count as one


def test_merged_cells_count_as_one_with_the_noise_of_one() -> None:
    noise = Recorded()
    with opened(of(tb.Gaussian(2.0) * 2, (2,)), noise=noise) as run:
        cliques = [("age", "sex"), ("sex",), ("age",)]
        plain = run.measure(cliques)
        merged = run.measure(cliques, merged={"sex": [2, 0]})
    whole = plain[0].counts
    assert merged[0].counts.tolist() == np.stack([whole[:, 1], whole[:, [0, 2]].sum(1)], 1).tolist()
    assert merged[1].counts.tolist() == [1.0, 5.0]
    assert merged[2].counts.tolist() == plain[2].counts.tolist()
    assert [one.merged for one in merged] == [{"sex": (0, 2)}, {"sex": (0, 2)}, {}]
    assert [one.sigma for one in merged] == [one.sigma for one in plain]
    # a draw for each count, and no other noise
    assert [size for _, size in noise.scales] == [6, 3, 2, 4, 2, 2]
    assert len({scale for scale, _ in noise.scales}) == 1


def test_a_unit_moves_merged_counts_no_further() -> None:
    for most, relation in itertools.product((1, 2), ("add-or-remove", "replace-one")):
        reach = reach_of(relation_of(relation))
        places = itertools.product(range(most + 1), repeat=6)
        units = [np.array(v).reshape(2, 3) for v in places if sum(v) <= most]
        others = units if relation == "replace-one" else [np.zeros((2, 3), dtype=int)]
        for merged in ({"b": (0, 2)}, {"a": (0, 1)}, {"a": (0, 1), "b": (1, 2)}, {"b": (0, 1, 2)}):
            moves = [
                merged_counts(v, "ab", merged) - merged_counts(w, "ab", merged)
                for v in units
                for w in others
            ]
            assert max((move**2).sum() for move in moves) <= reach.square * most**2
            assert max(np.abs(move).sum() for move in moves) <= reach.total * most


def test_split_counts_are_those_that_were_merged() -> None:
    counts = np.arange(24.0).reshape(2, 3, 4)
    merged = {"b": (0, 2), "c": (0, 1, 3)}
    joined = merged_counts(counts, "abc", merged)
    assert joined.shape == merged_shape((2, 3, 4), "abc", merged) == (2, 2, 2)
    assert joined.sum() == counts.sum()
    shares = {"b": np.array([0.25, 0.75]), "c": np.array([0.0, 0.5, 0.5])}
    whole = split_counts(joined, "abc", merged, shares)
    assert whole.shape == (2, 3, 4)
    assert merged_counts(whole, "abc", merged) == pytest.approx(joined)
    assert (whole[:, 1, 2] == counts[:, 1, 2]).all()
    assert whole[1, 2, 3] == pytest.approx(joined[1, 1, 1] * 0.75 * 0.5)


def test_a_selection_scores_merged_counts() -> None:
    # from the counts (2, 1, 2) of sex, of which the last two are 3 together, and (2, 2) of age
    ages = counted(ROWS, ("age",))[0]
    sexes = counted(ROWS, ("sex",))[0]
    models = {("sex",): [sexes[0], sexes[1] + sexes[2] - 1], ("age",): ages}
    found = chances(models, merged={"sex": [1, 2]})
    odds = math.exp(1 / 2)
    assert found["sex",] == pytest.approx(odds / (1 + odds), abs=1 / 64)


@pytest.mark.parametrize(
    ("merged", "message"),
    [
        (3, "merged must map columns to cells that count as one, got 3"),
        ({"size": [0, 1]}, r"merged\['size'\] must be of a column with a domain"),
        ({"sex": "01"}, r"merged\['sex'\] must be a list of cells, which are places in the domain"),
        ({"sex": [0]}, r"merged\['sex'\] must be two or more different cells, each from 0 to 2"),
        ({"sex": [0, 0]}, r"merged\['sex'\] must be two or more different cells"),
        ({"sex": [0, 3]}, r"merged\['sex'\] must be two or more different cells"),
        ({"sex": [0, -1]}, r"merged\['sex'\]\[1\] must be"),
        ({"sex": ["f", "m"]}, r"merged\['sex'\]\[0\] must be"),
    ],
)
def test_what_cannot_be_merged_is_refused(merged: Any, message: str) -> None:
    for plan, ask in (
        (GAUSSIAN, lambda run: run.measure([("sex",)], merged=merged)),
        (CHOICES, lambda run: run.select({("sex",): [0, 0, 0]}, merged=merged)),
    ):
        with opened(plan) as run:
            with pytest.raises(tb.ParameterError, match=message):
                ask(run)
            assert (run.state, run.marginals) == (0, ())
    with opened(CHOICES) as run, pytest.raises(tb.ParameterError, match=r"have the shape \(2,\)"):
        run.select({("sex",): [0, 0, 0]}, merged={"sex": [0, 2]})


# -------------------------------------------------------------------------- the law of a selection


def chances(models: Any, draws: int = 64, **given: Any) -> dict[Any, float]:
    """How often each candidate is chosen, over all first bits of the uniform number."""
    asked = {name: given.pop(name) for name in ("weights", "penalties", "merged") if name in given}
    found = dict.fromkeys(models, 0.0)
    for j in range(draws):
        coins = f"{j:0{draws.bit_length() - 1}b}"
        with opened(CHOICES, noise=Recorded(coins), **given) as run:
            found[run.select(models, **asked)] += 1 / draws
    return found


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(
    ("asked", "factor", "off"),
    [({}, 1.0, 0.0), ({"weights": (4.0, 2.0)}, 0.5, 0.0), ({"penalties": (0.0, 1.5)}, 1.0, 1.5)],
)
def test_a_selection_has_exactly_its_chances(
    rows: int, asked: Any, factor: float, off: float
) -> None:
    # from the counts (2 or 3, 1, 2) and (2, 2)
    models = {("sex",): np.array([rows, 1, 2]), ("age",): np.array([0.5, 0.0])}
    given: dict[str, Any] = {"unit": "who", "rows_per_unit": rows}
    ages = counted(ROWS, ("age",), **given)[0]
    score = abs(ages[0] - 0.5) + abs(ages[1]) - off
    # e^(epsilon score / (2 sensitivity)), and the first candidate has the score 0
    odds = math.exp(score * factor / (2 * rows))
    found = chances(models, **given, **asked)
    assert found["age",] == pytest.approx(odds / (1 + odds), abs=1 / 64)


def test_where_a_unit_is_replaced_a_score_moves_twice_as_far() -> None:
    models = {("sex",): np.array([2, 1, 2]), ("age",): np.array([0.5, 0.0])}
    given: dict[str, Any] = {"unit": "who", "rows_per_unit": 2}
    scores = [
        float(np.abs(np.ravel(counts) - model).sum())
        for counts, model in zip(counted(ROWS, *models, **given), models.values(), strict=True)
    ]
    odds = math.exp((scores[1] - scores[0]) / (2 * 2 * 2))
    found = chances(models, relation=tb.Neighbouring.REPLACE_ONE, **given)
    assert found["age",] == pytest.approx(odds / (1 + odds), abs=1 / 64)


def test_an_error_moves_by_the_rows_of_a_unit_up_or_down() -> None:
    counts = np.array([5, 0, 7])
    for model in ([0.0, 0.0, 0.0], [5.3, 1e30, 7.0], [-4.0, 1.5, 6.99]):
        expected = _rounded("model", model, (3,))
        before = _error(counts, expected)
        moves = [_error(counts + row, expected) - before for row in np.eye(3, dtype=np.int64)]
        assert max(map(abs, moves)) <= 1
    assert max(moves) > 0 > min(moves)


# -------------------------------------------------------------------------------- moves and budgets


def test_a_run_of_mst_pays_once_and_rests_on_the_plan_alone() -> None:
    plan = tb.marginals.mst(2, 0.5)
    meter = budget()
    with opened(plan.priced(1e-6), meter=meter, noise=None) as run:
        sex, age = run.measure([("sex",), ("age",)])
        assert run.state == 1
        assert run.select({("sex", "age"): np.outer(sex.counts, age.counts) / 6}) == ("sex", "age")
        assert run.due == ()
        (both,) = run.measure([("sex", "age")])
        assert run.moves == ()
    assert run.marginals == (sex, age, both)
    assert both.counts.shape == (3, 2)
    mu = [1 / sex.sigma, 1 / age.sigma, 1 / both.sigma]
    rho = sum(m * m for m in mu) / 2 + 0.5 / 3
    assert rho == pytest.approx(plan.rho, rel=1e-8)
    assert run.receipt.charged == meter.spent
    assert meter.spent.epsilon == pytest.approx(run._run._priced.prices[3])


def test_who_stops_early_pays_the_state_that_was_reached() -> None:
    plan = tb.marginals.mst(2, 0.5).priced(1e-6)
    meter = budget()
    with opened(plan, meter=meter) as run:
        run.measure([("sex",)])
    assert meter.spent.epsilon == pytest.approx(plan.prices[1])
    assert plan.prices[1] < plan.prices[3]
    with pytest.raises(tb.errors.SettlementError, match="the run has ended"):
        run.measure([("sex",)])
    with pytest.raises(tb.errors.SettlementError, match="the run has ended"):
        run.select({("sex", "age"): FLAT})


def test_aim_names_the_state_that_it_goes_to() -> None:
    plan = tb.marginals.aim(2, 1.0, rounds=5)
    with opened(plan.priced(1e-6, epsilon=20.0), noise=None) as run:
        run.measure([("sex",), ("age",)])
        for _ in range(4):
            if len(run.moves) > 1:
                with pytest.raises(tb.ParameterError, match=r"to must name one of several states"):
                    run.select({("sex", "age"): FLAT})
            run.select({("sex", "age"): FLAT}, to=run.moves[0].to)
            run.measure([("sex", "age")])
            if run.state == "end":
                break
        assert run.state == "end"


def test_each_of_several_selections_runs_once() -> None:
    with opened(CHOICES) as run:
        run.select({("sex", "age"): FLAT})
        assert run.due == ((tb.ExponentialMechanism(1.0), 1),)
        run.select({("sex", "age"): FLAT})
        with pytest.raises(tb.ParameterError, match="state 1 must have a selection as its next"):
            run.select({("sex", "age"): FLAT})
        run.measure([("age",)])
        with pytest.raises(tb.ParameterError, match="state 2 must have a measurement as its next"):
            run.measure([("age",)])


LARGE = {"a": range(2**12), "b": range(2**11), "c": range(2)}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda run: run.measure([]), "cliques must be at least one marginal"),
        (lambda run: run.measure("a"), "cliques must be a list of marginals"),
        (lambda run: run.measure(["a"]), r"cliques\[0\] must be a list of columns, got 'a'"),
        (lambda run: run.measure([()]), r"cliques\[0\] must be one or more different columns"),
        (lambda run: run.measure([("a", "a")]), r"cliques\[0\] must be one or more different"),
        (lambda run: run.measure([("a",), ("a",)]), r"cliques\[1\] must differ from all before"),
        (lambda run: run.measure([("a", "d")]), r"column 'd' of cliques\[0\] has no domain"),
        pytest.param(
            lambda run: run.measure([("a", "b", "c")]),
            r"cliques\[0\] must have at most 4,194,304 cells: \('a', 'b', 'c'\) has 16,777,216",
            id="too-large",
        ),
        (lambda run: run.measure([("a",)], weights=[]), "weights must be 1 numbers, one for each"),
        (lambda run: run.measure([("a",)], weights=[0.0]), r"weights\[0\] must be"),
        (lambda run: run.measure([("a",)], to=7), "state 0 must have a measurement to 7 as its"),
        (lambda run: run.select({("c",): [0, 0]}), "state 0 must have a selection as its next"),
        (lambda run: run.select([("c",)]), "models must map each candidate to its expected counts"),
        (lambda run: run.select({("c",): [0]}), r"models\[\('c',\)\] must have the shape \(2,\)"),
        (lambda run: run.select({("c",): ["x", 1]}), "must be an array of numbers"),
        (lambda run: run.select({("c",): [0, math.nan]}), "must be finite"),
        (lambda run: run.select({("c",): [0, 1]}, penalties=[]), "penalties must be 1 numbers"),
        (lambda run: run.select({("c",): [0, 1]}, penalties=[math.inf]), r"penalties\[0\] must be"),
    ],
)
def test_what_is_refused_runs_nothing_and_the_run_goes_on(ask: Any, message: str) -> None:
    noise = Recorded()
    rows = {name: np.zeros(3, dtype=int) for name in LARGE}
    with opened(rows=rows, domains=LARGE, noise=noise) as run:
        with pytest.raises(tb.ParameterError, match=message):
            ask(run)
        assert (run.state, noise.scales, run.marginals) == (0, [], ())
    assert MOST_CELLS == 2**22


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"domains": {}}, "domains must map each column to a list of its values"),
        ({"domains": {"sex": "fm"}}, r"domains\['sex'\] must be a list of values, or NumericBins"),
        ({"domains": {"sex": []}}, r"domains\['sex'\] must have at least one value"),
        ({"domains": {"sex": ["f", "f"]}}, r"domains\['sex'\]\[1\] must differ from all before"),
        ({"domains": {"sex": [math.nan]}}, r"domains\['sex'\]\[0\] must .* .None stands for what"),
        ({"domains": {"sex": [[1]]}}, r"domains\['sex'\]\[0\] must be hashable"),
        ({"domains": {"size": [1]}}, r"domains\['size'\] must be a column of the rows, got 'size'"),
        ({"unit": "whom", "rows_per_unit": 1}, "unit must be a column of the rows, got 'whom'"),
        ({"rows_per_unit": 2}, "rows_per_unit must be 1 where each row is a unit"),
        ({"unit": "who"}, "rows_per_unit must be given with a unit"),
        ({"unit": "who", "rows_per_unit": 0}, "rows_per_unit must be"),
        ({"rows": [1, 2]}, "rows must be a tb.Table, a pandas.DataFrame or a dictionary of"),
        ({"rows": {**ROWS, "age": [1.0]}}, "rows must have columns of one length"),
        (
            {"rows": pd.DataFrame([[1, 2, 3]], columns=["sex", "sex", "age"])},
            "rows must have one column 'sex'",
        ),
        ({"plan": 3}, "priced must be a workflow with prices"),
        (
            {"relation": "neighbours"},
            "relation must be one of add-or-remove, replace-one, zero-out",
        ),
        ({"relation": "zero-out"}, "relation must be add-or-remove or replace-one .a row that is"),
        ({"meter": 3}, "meter must be a budget"),
    ],
)
def test_a_run_that_is_refused_charges_nothing(given: Any, message: str) -> None:
    meter = given.pop("meter", budget())
    with pytest.raises(tb.ParameterError, match=message), opened(meter=meter, **given):
        raise AssertionError("it was opened")
    if isinstance(meter, tb.OutputDPFilter):
        assert meter.spent.epsilon == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tb.marginals.NumericBins([1]), "edges must be at least two numbers"),
        (lambda: tb.marginals.NumericBins([1, 1]), "edges must ascend"),
        (lambda: tb.marginals.NumericBins([0, math.inf]), r"edges\[1\] must be a finite number"),
        (lambda: tb.marginals.NumericBins([0, 1], other=3), "other must be True or False"),  # type: ignore[arg-type]
        (
            lambda: tb.marginals.NumericBins([0.2, 0.7], integers=True),
            "have an integer in each cell",
        ),
        pytest.param(
            lambda: tb.marginals.mst(2, 0.5).priced(1e-6, 0.1),
            "delta must be at least 0.* for epsilon = 0.1",
            id="delta-too-small",
        ),
        (lambda: tb.marginals.mst(2, 0.5).priced(2.0), "delta must be"),
    ],
)
def test_other_refusals(make: Any, message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        make()


@pytest.mark.parametrize("one", ["add-or-remove", "replace-one"])
def test_a_plan_that_was_declared_for_another_relation_is_refused(one: str) -> None:
    other = {"add-or-remove": "replace-one", "replace-one": "add-or-remove"}[one]
    plan, meter = of([tb.Gaussian(2.0, relation=tb.Neighbouring(one))]), budget()
    message = f"relation must be {one}, which .* of the plan was declared for, got {other}"
    with pytest.raises(tb.errors.RelationError, match=message):
        opened(plan, meter=meter, relation=other)
    assert meter.spent.epsilon == 0
    with opened(plan, meter=meter, relation=one) as run:
        assert run.measure([("sex",)])[0].sigma > 0
    assert run.relation is tb.Neighbouring(one)


def test_a_budget_that_is_too_small_is_not_touched() -> None:
    meter = tb.OutputDPFilter(0.01, 0.1)
    with pytest.raises(tb.errors.BudgetError), opened(meter=meter):
        raise AssertionError("it was opened")
    assert meter.spent.epsilon == 0


def test_noise_that_fails_costs_the_whole_and_says_nothing() -> None:
    class Broken(Recorded):
        def gaussian(self, scale: Any, size: int) -> IntArray:
            raise OSError("secret")

    meter = budget()
    with (
        pytest.raises(tb.errors.ReleaseError, match="failed after it had started") as caught,
        opened(meter=meter, noise=Broken()) as run,
    ):
        run.measure([("sex",)])
    assert "secret" not in str(caught.value)
    assert meter.spent.epsilon == pytest.approx(GAUSSIAN.prices[1])


def test_bins_of_edges_and_of_what_is_beyond() -> None:
    bins = tb.marginals.NumericBins([0, 1, 2], other=True)
    assert bins.codes([0, 0.5, 1, 2, 2.1, -1, None, "x"]).tolist() == [0, 0, 1, 1, 2, 2, 2, 2]
    found = bins.values(np.array([0, 1, 2]), np.array([0.5, 0.25, 0.1]))
    assert found == [0.5, 1.25, None]
    whole = tb.marginals.NumericBins([0, 3, 4.5], integers=True)
    assert whole.values(np.array([0, 0, 1, 1]), np.array([0.0, 0.99, 0.0, 0.99])) == [0, 2, 3, 4]


def test_kept_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # asked for one by one, each time anew, or all at once
    for kept, at_once, times in ((4, 4, 4), (99, 99, 1)):
        monkeypatch.setattr("tightbudget.marginals.rows._KEPT_CELLS", kept)
        monkeypatch.setattr("tightbudget.marginals.rows._ASKED_CELLS", at_once)
        rows = Counting(ROWS, {name: opened()._domains[name] for name in DOMAINS}, None, 1)
        for _ in range(2):
            found = rows.counts([("sex",), ("age",)], [3, 2])
            assert [counts.tolist() for counts in found] == [[3, 1, 2], [2, 2]]
        assert rows.times == times


class Counting(InMemory):
    """Rows that count how often they are asked."""

    times = 0

    def _counted(self, cliques: Any) -> Any:
        self.times += 1
        return super()._counted(cliques)


# ---------------------------------------------------------------------------- killed half way


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[tb.Ledger]:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as found:
        found.open_budget("ada", epsilon=20, delta=0.1)
        yield found


def test_a_run_that_was_killed_goes_on_or_costs_what_was_reached(ledger: tb.Ledger) -> None:
    plan = tb.marginals.mst(2, 0.5).priced(1e-6)

    def of_ada(key: str) -> tb.marginals.MarginalRun:
        meter = ledger.budget("ada").keyed(key)
        return opened(plan, meter=meter, resumable=True)

    def killed(key: str) -> Any:
        run = of_ada(key).__enter__()
        state = json.loads(json.dumps(run.state_dict()))
        run.measure([("sex",), ("age",)])  # and then its process is no more
        return state

    def loaded(key: str, state: Any) -> tb.marginals.MarginalRun:
        run = of_ada(key)
        run.load_state_dict(state)
        return run

    assert loaded("a", killed("a")).end().charged.epsilon == pytest.approx(plan.prices[1])
    state = killed("b")
    overtaken = loaded("b", state).__enter__()
    with loaded("b", state) as run:
        assert run.state == 1
        run.select({("sex", "age"): FLAT})
        with pytest.raises(tb.errors.FencingError, match="another process has gone on"):
            overtaken.select({("sex", "age"): FLAT})
        run.measure([("sex", "age")])
    whole = plan.prices[1] + plan.prices[3]
    assert ledger.budget("ada").spent.epsilon == pytest.approx(whole)
    ledger.verify()
