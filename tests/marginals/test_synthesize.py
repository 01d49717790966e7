"""Synthetic rows by MST: what is charged, what is drawn, and what is refused."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.optimize

import tightbudget as tb
from tightbudget.marginals.domains import domains_of
from tightbudget.marginals.merged_cells import merged_counts
from tightbudget.marginals.tree_model import (
    TreeModel,
    agreed,
    nearest,
    rare_cells,
    shares_of,
    spanning,
    total_of,
    tree_model,
)

DOMAINS: dict[str, Any] = {
    "a": [0, 1, 2],
    "b": ["x", "y", "z", None],
    "c": tb.marginals.NumericBins([-5, 0, 1, 2, 5], other=True),
    "d": [True, False],
}


def people(n: int, seed: int = 0) -> pd.DataFrame:
    """Rows in which b is mostly that of a, c that of b, and d of nothing."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, n)
    b = np.where(rng.random(n) < 0.8, a, rng.integers(0, 3, n))
    c, d = b + rng.normal(size=n) * 0.5, rng.random(n) < 0.3
    return pd.DataFrame({"a": a, "b": np.array(list("xyz"))[b], "c": c, "d": d, "who": range(n)})


def made(rows: Any = None, domains: Any = DOMAINS, **given: Any) -> Any:
    given = {"epsilon": 1.0, "delta": 1e-6, "meter": tb.OutputDPFilter(1, 1e-6), "seed": 1, **given}
    rows = people(2000) if rows is None else rows
    return tb.marginals.synthesize(rows, domains, **given)


def test_a_table_is_charged_epsilon_and_delta_and_its_noise_is_that_of_the_plan() -> None:
    meter = tb.OutputDPFilter(1, 1e-6)
    found = made(meter=meter)
    assert meter.spent == found.receipt.charged
    assert found.receipt.charged.epsilon == 1.0
    assert 0.98e-6 < found.receipt.charged.delta <= 1e-6
    plan = tb.marginals.mst(4, found.rho)
    assert plan.delta(1.0, rtol=5e-3).upper <= 1e-6
    # four one-way and three two-way marginals have a third of rho each, together
    sigmas = [one.sigma for one in found.marginals]
    for part in (sigmas[:4], sigmas[4:]):
        assert sum(0.5 / sigma**2 for sigma in part) == pytest.approx(found.rho / 3, rel=1e-8)
    assert [one.columns for one in found.marginals[:4]] == [(name,) for name in DOMAINS]
    assert len(found.pairs) == 3


def test_the_pairs_are_a_tree_of_the_columns_that_go_together() -> None:
    found = made(epsilon=10.0, meter=tb.OutputDPFilter(10, 1e-6))
    assert {("a", "b"), ("b", "c")} < {*found.pairs}
    assert spanning(list(DOMAINS), found.pairs) == []


def test_synthetic_rows_are_near_the_private_ones() -> None:
    rows = people(20_000)
    found = made(rows, epsilon=5.0, meter=tb.OutputDPFilter(5, 1e-6))
    frame = found.frame()
    assert list(frame.columns) == list(DOMAINS)
    assert found.size == len(frame) == pytest.approx(20_000, rel=0.01)
    assert set(frame["b"].dropna()) == {"x", "y", "z"}
    assert frame["c"].dropna().between(-5, 5).all()
    for pair in (["a", "b"], ["b", "d"]):
        one, other = (each.value_counts(pair, normalize=True) for each in (rows, frame))
        assert one.sub(other, fill_value=0).abs().sum() / 2 < 0.03
    assert set(found.distances()) == {one.columns for one in found.marginals}
    assert max(found.distances().values()) < 0.03


def test_the_seed_is_that_of_the_rows_alone() -> None:
    model = TreeModel("a", np.array([0.5, 0.5, 0.0]), {"d": ("a", np.eye(2)[[0, 1, 0]])})
    domains = domains_of({"d": DOMAINS["d"], "a": DOMAINS["a"]})
    one, again, other = (model.draw(50, domains, seed) for seed in (7, 7, 8))
    assert one == again != other
    assert list(one) == ["d", "a"]
    assert set(zip(one["a"], one["d"], strict=True)) == {(0, True), (1, False)}
    # the private noise has no seed
    assert (made(seed=3).marginals[0].counts != made(seed=3).marginals[0].counts).any()


def test_counts_of_drawn_rows_are_the_shares_rounded_up_or_down() -> None:
    shares = np.array([0.25, 0.0, 0.405, 0.345])
    of_each = np.array([[0.1, 0.9], [0.5, 0.5], [1.0, 0.0], [1 / 3, 2 / 3]])
    model = TreeModel("a", shares, {"d": ("a", of_each)})
    domains = domains_of({"d": DOMAINS["d"], "a": [0, 1, 2, 3]})
    sums = np.zeros(4)
    for seed in range(200):
        rows = model.draw(101, domains, seed)
        a, d = np.array(rows["a"]), np.array(rows["d"])
        counts = np.bincount(a, minlength=4)
        sums += counts
        assert counts.sum() == 101
        assert (np.abs(counts - 101 * shares) < 1).all()
        for cell in range(4):
            trues = int(d[a == cell].sum())
            assert abs(trues - counts[cell] * of_each[cell, 0]) < 1
    # what is rounded up is drawn: means are exact
    assert sums / 200 == pytest.approx(101 * shares, abs=0.15)
    assert model.draw(0, domains, 1) == {"d": [], "a": []}
    assert sum(a != b for a, b in itertools.pairwise(rows["a"])) > 40  # the order is drawn, too


def test_columns_of_no_common_table_are_as_the_model_says() -> None:
    rng = np.random.default_rng(4)
    shares = rng.dirichlet(np.ones(3))
    given = {name: rng.dirichlet(np.ones(3), 3) for name in "bcd"}
    # a - b, b - c, a - d
    parents = {"b": "a", "c": "b", "d": "a"}
    model = TreeModel("a", shares, {name: (parents[name], given[name]) for name in parents})
    joint = np.einsum("i,ij,jk,il->ijkl", shares, *given.values())
    domains = domains_of(dict.fromkeys("abcd", range(3)))
    for seed in range(20):
        rows = model.draw(6000, domains, seed)
        codes = [np.array(rows[name]) for name in "abcd"]
        for axes in itertools.combinations(range(4), 2):
            counts = np.zeros((3, 3))
            np.add.at(counts, tuple(codes[i] for i in axes), 1)
            expected = 6000 * joint.sum(axis=tuple({*range(4)} - {*axes}))
            # at random they would be off by 20 and more
            assert np.abs(counts - expected).max() < 13
        assert (
            0.5
            < np.mean(codes[1][:3000] == codes[1][3000:]) / (joint.sum((0, 2, 3)) ** 2).sum()
            < 2
        )


def test_units_with_several_rows_have_more_noise() -> None:
    rows = people(300).assign(who=np.arange(300) % 100)
    one, three = (made(rows, unit="who", rows_per_unit=k) for k in (1, 3))
    assert three.marginals[0].sigma == pytest.approx(3 * one.marginals[0].sigma, rel=1e-8)
    assert abs(sum(one.marginals[0].counts) - 100) < 10 * one.marginals[0].sigma


def test_an_empty_table_has_a_model() -> None:
    found = made(people(0), size=20)
    assert found.size == 20
    counts = -np.ones(3)
    assert shares_of(counts).tolist() == [1 / 3] * 3
    none = {"a": counts, "d": -np.ones(2)}, {("d", "a"): -np.ones((2, 3))}
    assert tree_model(*none).branches["d"][1].tolist() == [[0.5, 0.5]] * 3
    # a cell without rows has the shares of all
    few = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]])
    model = tree_model({"a": few.sum(axis=0), "d": few.sum(axis=1)}, {("d", "a"): few})
    assert model.branches["d"][1] == pytest.approx(np.array([[0.25, 0.75]] * 3))
    assert made(size=0).size == 0


def test_marginals_agree_and_are_nearer_to_the_truth() -> None:
    rng = np.random.default_rng(5)
    truth = rng.multinomial(5_000, rng.dirichlet(np.ones(60))).reshape(3, 4, 5).astype(float)
    ones = {"a": truth.sum((1, 2)), "b": truth.sum((0, 2)), "c": truth.sum((0, 1))}
    pairs = {("a", "b"): truth.sum(2), ("c", "b"): truth.sum(0).T}
    same, same_pairs = agreed(ones, pairs, 5_000)
    assert all(same[key] == pytest.approx(x) for key, x in ones.items())
    assert all(same_pairs[key] == pytest.approx(x) for key, x in pairs.items())
    off = np.zeros(2)
    for _ in range(50):
        noisy = {key: x + 20 * rng.standard_normal(x.shape) for key, x in ones.items()}
        tables = {key: x + 20 * rng.standard_normal(x.shape) for key, x in pairs.items()}
        found, joint = agreed(noisy, tables, total_of(noisy))
        for (left, right), table in joint.items():
            assert table.sum(axis=1) == pytest.approx(found[left])
            assert table.sum(axis=0) == pytest.approx(found[right])
        for i, (one, two) in enumerate(((noisy, tables), (found, joint))):
            off[i] += sum(((one[key] - x) ** 2).sum() for key, x in ones.items())
            off[i] += sum(((two[key] - x) ** 2).sum() for key, x in pairs.items())
    assert off[1] < 0.85 * off[0]


def test_the_nearest_marginals_are_those_of_the_best_joint_counts() -> None:
    rng = np.random.default_rng(8)
    shape = (4, 3, 3, 2)
    axes: dict[Any, tuple[int, ...]] = {"a": (0,), "b": (1,), "c": (2,), "d": (3,)}
    axes |= {("a", "b"): (0, 1), ("c", "b"): (1, 2), ("b", "d"): (1, 3)}
    # each cell of a marginal is a sum of joint counts, which are >= 0
    cells = np.arange(math.prod(shape)).reshape(shape)
    sums = {}
    for key, kept in axes.items():
        sums[key] = np.zeros((*(shape[i] for i in kept), cells.size))
        for place in itertools.product(*map(range, shape)):
            sums[key][(*(place[i] for i in kept), cells[place])] = 1.0
    sums["c", "b"] = sums["c", "b"].transpose(1, 0, 2)
    for _ in range(10):
        noisy = {
            key: matrix @ np.where(rng.random(cells.size) < 0.1, 40.0, 0.0)
            + 15 * rng.standard_normal(matrix.shape[:-1])
            for key, matrix in sums.items()
        }
        ones = {key: noisy[key] for key in "abcd"}
        pairs = {key: table for key, table in noisy.items() if table.ndim == 2}
        total = total_of(ones)
        assert total > 0.0
        found, tables = nearest(ones, pairs)
        rows = np.concatenate([sums[key].reshape(-1, cells.size) for key in noisy])
        wanted = np.concatenate([noisy[key].ravel() for key in noisy])
        held = 1e5 * np.ones((1, cells.size))  # the total, by its weight
        best, _ = scipy.optimize.nnls(np.vstack([rows, held]), np.append(wanted, 1e5 * total))
        whole: dict[Any, Any] = {**found, **tables}
        for key, counts in whole.items():
            assert counts.min() >= 0.0
            assert counts == pytest.approx(sums[key] @ best, abs=0.5)


def test_nearest_marginals_of_no_rows_are_zero() -> None:
    ones = {"a": np.array([-5.0, 2.0]), "b": np.array([-1.0, 1.0, -3.0])}
    found, pairs = nearest(ones, {("a", "b"): np.full((2, 3), 9.0)})
    assert not any(counts.any() for counts in (*found.values(), *pairs.values()))


def test_rows_of_a_tree_are_nearer_where_no_count_is_below_0() -> None:
    rng = np.random.default_rng(9)
    truth = np.outer(rng.dirichlet(np.full(20, 0.2)), rng.dirichlet(np.full(20, 0.2))) * 10_000
    off = np.zeros(2)
    for _ in range(20):
        ones = {
            name: truth.sum(axis=axis) + 30 * rng.standard_normal(20)
            for name, axis in (("a", 1), ("b", 0))
        }
        noisy = truth + 30 * rng.standard_normal(truth.shape)
        model = tree_model(ones, {("a", "b"): noisy})
        off += [
            np.abs(found - truth / 10_000).sum()
            for found in (shares_of(noisy), model.shares[:, None] * model.branches["b"][1])
        ]
    assert off[1] < 0.6 * off[0]


def test_cells_below_three_sigma_are_merged_where_there_are_several() -> None:
    ones = {"a": np.array([90.0, 2.0, 1.0, -3.0]), "b": np.array([60.0, 29.0, 1.0])}
    assert rare_cells(ones, 1.0) == {"a": (1, 2, 3)}
    assert rare_cells(ones, 10.0) == {"a": (1, 2, 3), "b": (1, 2)}
    assert rare_cells(ones, 0.1) == {}


def test_rows_of_a_merged_cell_are_split_by_the_columns_own_counts() -> None:
    ones = {"a": np.array([1.0, 60.0, 3.0, -5.0]), "b": np.array([40.0, 20.0])}
    pairs = {("b", "a"): np.array([[40.0, 0.0], [20.0, 4.0]])}
    model = tree_model(ones, pairs, {"a": (0, 2, 3)})
    cells, shares = model.merged["a"]
    assert (cells, shares.tolist()) == ((0, 2, 3), [0.25, 0.75, 0.0])
    rows = model.draw(640, domains_of({"a": ["w", "x", "y", "z"], "b": [False, True]}), 1)
    drawn = [(rows["a"][i], rows["b"][i]) for i in range(640)]
    assert "z" not in rows["a"]
    # the merged cell is of the second row alone
    assert {b for a, b in drawn if a in "wy"} == {True}
    assert 3 * rows["a"].count("w") == pytest.approx(rows["a"].count("y"), abs=3)


def test_pairs_count_rare_cells_as_one_and_say_so() -> None:
    rng = np.random.default_rng(2)
    a = np.where(rng.random(5000) < 0.9, rng.integers(0, 2, 5000), rng.integers(2, 40, 5000))
    domains = {"a": range(40), "b": [0, 1, 2]}
    found = made({"a": a, "b": a % 3}, domains)
    own, _, pair = found.marginals
    assert own.merged == {}
    (cells,) = pair.merged.values()
    assert cells == tuple(np.flatnonzero(own.counts < 3 * own.sigma).tolist())
    assert np.all(np.abs(own.counts - np.bincount(a, minlength=40)) < 8.0 * own.sigma)
    assert pair.counts.shape == (41 - len(cells), 3)
    whole = found.counts(pair.columns)
    assert whole.shape == (40, 3)
    assert whole[list(cells)].sum(axis=0) == pytest.approx(pair.counts[-1])
    shares = shares_of(own.counts[list(cells)])
    assert whole[list(cells)] == pytest.approx(np.outer(shares, pair.counts[-1]))
    assert (found.counts(["a"]) == own.counts).all()
    assert max(found.distances().values()) < 0.1
    assert found.size == pytest.approx(5000, rel=0.1)
    report = found.report()
    assert report.merged == pair.merged
    assert f"Rare cells that pairs count as one: {len(cells)} of a.\n" in report.to_markdown()
    with pytest.raises(tb.ParameterError, match="columns must be those of a marginal that was mea"):
        found.counts(["b", "a"])


def test_rows_of_merged_cells_are_nearer_to_the_truth() -> None:
    rng = np.random.default_rng(6)
    shares = np.array([0.5, 0.3, 0.14, *[0.002] * 30])
    truth = np.outer(shares, [0.7, 0.2, 0.1]) * 10_000
    off = np.zeros(2)
    for _ in range(20):
        ones = {
            name: truth.sum(axis=axis) + 30 * rng.standard_normal(truth.shape[1 - axis])
            for name, axis in (("a", 1), ("b", 0))
        }
        merged = rare_cells(ones, 30.0)
        for i, cells in enumerate(({}, merged)):
            table = merged_counts(truth, ("a", "b"), cells)
            table = table + 30 * rng.standard_normal(table.shape)
            rows = tree_model(ones, {("a", "b"): table}, cells).draw(
                10_000, domains_of({"a": range(33), "b": range(3)}), 1
            )
            found = np.zeros_like(truth)
            np.add.at(found, (rows["a"], rows["b"]), 1e-4)
            off[i] += np.abs(found - truth / 10_000).sum() / 2
    assert off[1] < 0.9 * off[0]


def test_repr() -> None:
    text = repr(made(size=5))
    assert text.startswith("<SyntheticTable: 5 rows, 4 columns, rho 0.028")
    assert "charged epsilon 1.0" in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"domains": {"a": [0, 1]}}, "domains must name at least two columns"),
        ({"domains": {"a": range(4000), "b": range(3000)}}, r"each pair .* has 12,000,000"),
        ({"domains": {"a": [0], "size": [1]}}, r"domains\['size'\] must be a column of the rows"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"size": -1}, "size must be"),
        ({"size": 10**8 + 1}, "size must be at most 100,000,000 rows, got 100000001"),
        ({"seed": "x"}, "seed must be one of numpy's generator"),
        ({"rows_per_unit": 2}, "rows_per_unit must be 1 where each row is a unit"),
    ],
)
def test_what_is_refused_charges_nothing(given: Any, message: str) -> None:
    meter = tb.OutputDPFilter(1, 1e-6)
    with pytest.raises(tb.ParameterError, match=message):
        made(**{"meter": meter, **given})
    assert meter.spent.epsilon == 0


def test_a_budget_that_is_too_small_is_not_touched() -> None:
    meter = tb.OutputDPFilter(0.9, 1e-6)
    with pytest.raises(tb.errors.BudgetError):
        made(meter=meter)
    assert meter.spent.epsilon == 0


def test_missing_values_that_have_no_cell_are_counted_nowhere() -> None:
    rows = people(2000).assign(b=None)
    found = made(
        rows, {"a": [0, 1, 2], "b": ["x", "y"]}, epsilon=9, meter=tb.OutputDPFilter(9, 1e-6)
    )
    assert np.abs(found.marginals[1].counts).max() < 100
    assert math.isclose(found.marginals[0].counts.sum(), 2000, rel_tol=0.05)


# ---------------------------------------------------------------------------------- the report


def by_hand(one: Any, other: Any, columns: list[str]) -> float:
    """The total variation distance of the shares of cells, by pandas."""
    shares = [frame.groupby(columns, dropna=False).size() / len(frame) for frame in (one, other)]
    return float(shares[0].sub(shares[1], fill_value=0.0).abs().sum() / 2)


def test_a_report_has_the_errors_of_all_marginals_of_up_to_three_columns() -> None:
    domains = {name: domain for name, domain in DOMAINS.items() if name != "c"}
    rows = people(2000)
    found = made(rows, domains)
    report = found.report(public_rows=rows)
    assert len(report.errors) == 3 + 3 + 1
    for clique, error in report.errors.items():
        assert error == pytest.approx(by_hand(found.frame(), rows, [*clique]))
    assert report.distances == found.distances()
    assert (report.size, report.rho, report.receipt) == (found.size, found.rho, found.receipt)
    lines = report.to_markdown().splitlines()
    assert lines[0].startswith("Synthetic table: ")
    assert "Distance from all marginals of public rows:" in lines
    assert lines[-1].startswith(f"| 3 | 1 | {report.errors['a', 'b', 'd']:.4f} |")
    assert lines[-1].endswith("| a, b, d |")
    assert repr(report).startswith(f"<MarginalReport: {found.size:,} rows; mean distances 0.")
    assert "distance from all marginals of public rows" in report._repr_html_()
    ax = report.plot()
    assert [one.get_text() for one in ax.get_xticklabels()] == [
        "1 column", "2 columns", "3 columns"
    ]  # fmt: skip
    drawn = sorted(y for line in ax.lines for y in line.get_ydata())
    assert drawn == pytest.approx(sorted(report.errors.values()))


def test_without_public_rows_a_report_sees_noisy_marginals_alone() -> None:
    found = made(size=300)
    report = found.report()
    assert report.errors == {}
    assert "public" not in report.to_markdown() + repr(report) + report._repr_html_()
    drawn = [y for line in report.plot().lines for y in line.get_ydata()]
    assert sorted(drawn) == pytest.approx(sorted(found.distances().values()))
    assert report.receipt.returned.epsilon == 0
    assert "returned" not in report.to_markdown()


def test_rows_with_a_value_in_no_cell_are_left_out_of_a_marginal() -> None:
    found = made({"a": [0, 1], "b": ["x", "y"]}, {"a": [0, 1], "b": ["x", "y"]}, size=0)
    report = found.report(public_rows={"a": [0, 7], "b": ["x", "q"]})
    # of no rows no cell has a share: half of the one row's
    assert report.errors == {("a",): 0.5, ("b",): 0.5, ("a", "b"): 0.5}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"a": [1]}, "public_rows must be a frame, or a dictionary of arrays, with a column 'b'"),
        (3, "public_rows must be a frame, or a dictionary of arrays, with a column 'a'"),
        ({"a": [], "b": []}, r"public_rows must have columns of one length, at least 1, got \[0\]"),
        ({"a": [1], "b": []}, r"public_rows must have columns of one length, at least 1, got"),
    ],
)
def test_public_rows_are_refused_by_name(rows: Any, said: str) -> None:
    found = made({"a": [0, 1], "b": ["x", "y"]}, {"a": [0, 1], "b": ["x", "y"]}, size=3)
    with pytest.raises(tb.ParameterError, match=said):
        found.report(public_rows=rows)
