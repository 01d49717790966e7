"""Quantiles and robust statistics of tables: neighbours, answers without noise, refusals."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.exact import exp_ends
from tests.guards.mutants import Without, each, lose_a_truth
from tests.release.cases import Case
from tests.release.small import Script, apart, columns
from tests.tables.test_laws import LAWS

import tightbudget as tb
from tightbudget.errors import ParameterError, ReleaseError
from tightbudget.release.mechanisms.robust import LIMIT
from tightbudget.tables import GroupedQuantiles, OrderStatistic, Quantiles, Table
from tightbudget.tables.mechanism import TableMechanism
from tightbudget.tables.mechanisms.order_statistics import middle
from tightbudget.tables.source import Contribution, Runs

pytest.importorskip("ibis")
pyarrow: Any = pytest.importorskip("pyarrow")

GIVEN: dict[str, Any] = {"epsilon": 1, "delta": 1e-3, "step": 0.5}
STATISTICS = [
    tb.release.Median(**GIVEN, scale=40),
    tb.release.InterquartileRange(**GIVEN),
    tb.release.TrimmedMean(**GIVEN, spread=60),
]
SALT = "5a" * 16
UNITS = ("a", "b", "c", None)


def written_out(runs: Runs) -> tuple[int, ...]:
    return tuple(point for point, count in runs for _ in range(count))


def listed(x: tuple[int, ...]) -> Runs:
    return sorted(Counter(x).items())


# -------------------------------------------------------------- n records of any number of rows


def replaces_one_record() -> bool:
    """One row more replaces at most one of the n records, for all columns of up to seven rows."""
    for many in range(7):
        for x in columns(many, range(3)):
            for y in range(3):
                for n in (4, 5):
                    before = written_out(middle(listed(x), n))
                    after = written_out(middle(listed((*x, y)), n))
                    if not len(before) == len(after) == n or apart(before, after) > 1:
                        return False
    return True


def test_one_row_more_replaces_at_most_one_record() -> None:
    assert replaces_one_record()


def test_the_middle_of_a_column_is_kept_and_filled_up_evenly() -> None:
    assert middle([(3, 5)], 5) == [(-LIMIT, 0), (3, 5), (LIMIT, 0)]
    assert middle([(1, 2), (3, 3)], 9) == [(-LIMIT, 2), (1, 2), (3, 3), (LIMIT, 2)]
    assert middle([(1, 3), (2, 2), (3, 3)], 4) == [(-LIMIT, 0), (1, 1), (2, 2), (3, 1), (LIMIT, 0)]
    assert middle([], 5) == [(-LIMIT, 3), (LIMIT, 2)]


MUTATIONS = [
    Without(
        "records are taken at a rank that one row moves by at most one",
        {"window-in-the-middle": "first = many - n + n * (many % 2)"},
        replaces_one_record,
    ),
    Without(
        "no more than n records are taken",
        {"window-in-the-middle": "first, n = 1, many + 1"},
        replaces_one_record,
    ),
]


@each(MUTATIONS)
def test_the_guard_is_needed(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)


# -------------------------------------------------------------------------------- neighbours


def table(rows: Sequence[tuple[str | None, float]], engine: bool = False, **declared: Any) -> Table:
    """A table of units and values, as arrays or in DuckDB."""
    units = np.array([unit for unit, _ in rows], dtype=object)
    values = np.array([value for _, value in rows], dtype=np.float64)
    data: Any = {"unit": units, "x": values}
    if engine:
        schema = pyarrow.schema([("unit", pyarrow.string()), ("x", pyarrow.float64())])
        data = pyarrow.table({"unit": list(units), "x": values}, schema=schema)
    return Table(data, unit="unit", **declared)


def scanned(mechanism: TableMechanism[Any], asked: Table) -> Counter[float]:
    contribution = Contribution(unit="unit", rows=asked.rows, groups=asked.groups, salt=SALT)
    runs = mechanism.plan(asked).scan(contribution)
    return Counter(dict(zip(runs.values.tolist(), runs.counts.tolist(), strict=True)))


def without_a_unit(rows: list[Any]) -> list[list[Any]]:
    """The neighbours with one unit less; each row without a unit is one."""
    named = [[row for row in rows if row[0] != unit] for unit in {u for u, _ in rows} - {None}]
    lone = [i for i, (unit, _) in enumerate(rows) if unit is None]
    return named + [rows[:i] + rows[i + 1 :] for i in lone]


@pytest.mark.parametrize("r", [1, 2])
def test_a_unit_moves_a_histogram_by_its_rows_and_an_order_statistic_by_one_record(r: int) -> None:
    """All tables of up to four rows of three units and of rows without one."""
    quantiles = Quantiles(column="x", probabilities=(0.5,), bounds=(0, 2), epsilon=1, step=1)
    median = OrderStatistic(column="x", statistic=STATISTICS[0])
    for many in range(1, 5):
        for units in itertools.combinations_with_replacement(UNITS, many):
            for values in [(0, 1, 2, 1), (2, 0, 0, 1), (1, 1, 2, 0)]:
                rows = list(zip(units, map(float, values), strict=False))
                for fewer in without_a_unit(rows):
                    if all(unit is None for unit, _ in fewer):
                        continue  # arrays of nothing have no type
                    with_, less = (
                        scanned(quantiles, table(x, rows_per_unit=r)) for x in (rows, fewer)
                    )
                    assert less <= with_
                    assert (with_ - less).total() <= r
                    if r == 1:
                        one, other = (
                            scanned(median, table(x, rows_per_unit=1, units=4))
                            for x in (rows, fewer)
                        )
                        assert one.total() == other.total() == 4
                        assert (one - other).total() <= 1


# ------------------------------------------------------------------- quantiles of each group

MEDIANS = GroupedQuantiles(
    by="k", column="x", probabilities=(0.5,), bounds=(0, 2), epsilon=1, step=1
)


def in_zones(
    rows: Sequence[tuple[str | None, str, float]], engine: bool = False, **declared: Any
) -> Table:
    """A table of units, groups and values; the keys p and q are public, others are not."""
    names = {"unit": pyarrow.string(), "k": pyarrow.string(), "x": pyarrow.float64()}
    columns_ = dict(zip(names, zip(*rows, strict=True) if rows else [()] * 3, strict=True))
    kinds: list[Any] = [object, object, np.float64]
    data: Any = {
        name: np.array(columns_[name], dtype=kind) for name, kind in zip(names, kinds, strict=True)
    }
    if engine:
        data = pyarrow.table(
            {name: list(columns_[name]) for name in names},
            schema=pyarrow.schema(list(names.items())),
        )
    return Table(data, unit="unit", domains={"k": ("p", "q")}, **declared)


def scanned_in_zones(question: Any, asked: Table) -> list[Counter[float]]:
    contribution = Contribution(unit="unit", rows=asked.rows, groups=asked.groups, salt=SALT)
    return [
        Counter(dict(zip(runs.values.tolist(), runs.counts.tolist(), strict=True)))
        for runs in question.plan(asked).scan(contribution)
    ]


PLACES = [("p", 0.0), ("q", 2.0), ("r", 1.0), ("p", float("nan"))]
IN_ZONES = [
    tuple((unit, *place) for unit, place in zip(units, places, strict=True))
    for units in [(), ("a",), (None,), ("a", "a"), ("a", "b"), (None, None), ("a", "a", "b")]
    for places in itertools.product(PLACES[: 6 - len(units)], repeat=len(units))
]


def without_one(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    named = {row[0] for row in rows} - {None}
    lone = [i for i, row in enumerate(rows) if row[0] is None]
    fewer = [tuple(row for row in rows if row[0] != unit) for unit in named]
    return fewer + [tuple(rows[:i]) + tuple(rows[i + 1 :]) for i in lone]


def points_of_groups_move(rows: int, groups: int) -> int:
    """How many rows more the histograms of all groups have, at most, with one unit more."""
    asked: dict[Any, list[Counter[float]]] = {}

    def histograms(given: tuple[Any, ...]) -> list[Counter[float]]:
        if given not in asked:
            table_ = in_zones(given, rows_per_unit=rows, groups_per_unit=groups)
            asked[given] = scanned_in_zones(MEDIANS, table_)
        return asked[given]

    most = 0
    for given in IN_ZONES:
        for fewer in without_one(given):
            moved = 0
            for with_, less in zip(histograms(given), histograms(fewer), strict=True):
                assert less <= with_
                moved += (with_ - less).total()
            most = max(most, moved)
    return most


@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (2, 1), (2, 2)])
def test_a_unit_has_its_rows_in_all_groups_together(rows: int, groups: int) -> None:
    inner: Any = MEDIANS.plan(in_zones([], rows_per_unit=rows)).mechanism
    assert points_of_groups_move(rows, groups) == rows == inner.search.rows_per_unit


@functools.cache
def masses_of(search: Any, counts: tuple[tuple[float, int], ...]) -> list[Fraction]:
    """The probability of each point of the grid to be drawn."""
    points, many = (np.array([each[i] for each in counts], dtype=np.int64) for i in (0, 1))
    weights = [cell.weight for cell in search.weights(points, many, 0.5) for _ in range(cell.size)]
    return [Fraction(weight, sum(weights)) for weight in weights]


def worst_loss_of_groups(rows: int, groups: int) -> Fraction:
    """The largest ratio of probabilities of one answer in both groups, over all neighbours."""
    question = replace(MEDIANS, epsilon=Fraction(3, 2))
    masses: dict[Any, list[list[Fraction]]] = {}

    def of(given: tuple[Any, ...]) -> list[list[Fraction]]:
        asked = in_zones(given, rows_per_unit=rows, groups_per_unit=groups)
        search: Any = question.plan(asked).mechanism
        found = scanned_in_zones(question, asked)
        return [masses_of(search.search, tuple(sorted(counts.items()))) for counts in found]

    worst = Fraction(1)
    for given in IN_ZONES:
        for fewer in without_one(given):
            for x in (given, fewer):
                masses.setdefault(x, of(x))
            # draws are independent: the worst answer has the worst point in each group
            for one, other in ((given, fewer), (fewer, given)):
                loss = Fraction(1)
                for p, q in zip(masses[one], masses[other], strict=True):
                    loss *= max(x / y for x, y in zip(p, q, strict=True))
                worst = max(worst, loss)
    return worst


def groups_cost_epsilon(rows: int = 2, groups: int = 2) -> bool:
    return worst_loss_of_groups(rows, groups) <= exp_ends(Fraction(3, 2))[0]


@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (2, 2)])
def test_all_groups_together_cost_epsilon(rows: int, groups: int) -> None:
    assert groups_cost_epsilon(rows, groups)
    # and most of it is needed
    assert worst_loss_of_groups(rows, groups) >= exp_ends(Fraction(9, 10))[1]


def small_epsilons_are_refused() -> bool:
    """Roundings of two groups are paid for by twice the epsilon of one."""
    asked = in_zones([], rows_per_unit=5)
    small = replace(MEDIANS, epsilon=Fraction(19, 10**10))
    try:
        small.plan(asked)
    except ParameterError as error:
        return str(error).startswith(
            "epsilon must be at least 1e-9 for each probability and each of 2 groups of a unit"
        )
    return False


def test_roundings_are_paid_for_in_each_group_of_a_unit() -> None:
    assert small_epsilons_are_refused()
    replace(MEDIANS, epsilon=Fraction(2, 10**9)).plan(in_zones([], rows_per_unit=5))
    alone = replace(MEDIANS, epsilon=Fraction(1, 10**9))
    alone.plan(in_zones([], rows_per_unit=5, groups_per_unit=1))


@each(
    [
        Without(
            "the rate is made for one row of a unit",
            {"grouped-quantiles-moves": "mechanism = self._points"},
            groups_cost_epsilon,
        ),
        Without(
            "roundings of several groups are not paid for",
            {"roundings-of-groups": "if False:"},
            small_epsilons_are_refused,
        ),
    ]
)
def test_each_guard_of_groups_guards(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)


@pytest.mark.parametrize("engine", [False, True], ids=["arrays", "duckdb"])
def test_quantiles_of_groups_lie_near_those_of_their_rows(engine: bool) -> None:
    rng = np.random.default_rng(5)
    centres = {"p": 20.0, "q": 60.0, "r": 90.0}
    zones = rng.choice(list(centres), 9_000)
    x = np.round([rng.normal(centres[zone], 5) for zone in zones])
    rows = [
        (f"u{i // 3}", str(zone), float(v))
        for i, (zone, v) in enumerate(zip(zones, x, strict=True))
    ]
    asked = in_zones(rows, engine, rows_per_unit=3)
    question = replace(MEDIANS, probabilities=(0.1, 0.5), bounds=(0, 127), epsilon=3, where=None)
    session = tb.Session(asked, tb.OutputDPFilter(3))
    answer = session.ask(question)
    error = answer.rank_error()
    assert error is not None
    assert list(answer.value) == ["p", "q"]
    for zone, found in answer.value.items():
        known = np.sort(x[zones == zone])
        for q, t in zip((0.1, 0.5), found, strict=True):
            assert np.searchsorted(known, t, "left") <= q * len(known) + error
            assert len(known) - np.searchsorted(known, t, "right") <= (1 - q) * len(known) + error
    names, table_ = answer.rows()
    assert names[:3] == ["k", "probability", "value"]
    assert [row[:2] for row in table_] == [["p", 0.1], ["p", 0.5], ["q", 0.1], ["q", 0.5]]
    assert answer.receipt.charged == tb.Amount(3.0, 0.0, "epsilon")


def test_arrays_and_duckdb_count_the_same_points_of_groups() -> None:
    for rows, groups in [(1, 1), (2, 1), (2, 2)]:
        given = [(unit, *place) for unit in ("a", "b", None) for place in (*PLACES, *PLACES)]
        one, other = (
            scanned_in_zones(
                MEDIANS, in_zones(given, e, rows_per_unit=rows, groups_per_unit=groups)
            )
            for e in (False, True)
        )
        assert one == other


def test_a_rank_error_is_that_of_all_groups() -> None:
    """The chance to miss is shared out among twice as many quantiles."""
    asked = in_zones([], rows_per_unit=2)
    law = MEDIANS.plan(asked).error
    assert law is not None
    search: Any = replace(MEDIANS, bounds=(0, 2)).plan(asked).mechanism
    assert law.rank_error(0.9) == search.search.rank_error(0.95)
    assert law.rank_error(0.9) > search.search.rank_error(0.9)


def test_a_count_of_all_rows_is_no_count_of_a_group() -> None:
    """It bounds the rows of a group from above, and makes no interval."""
    session = tb.Session(in_zones([("a", "p", 1.0)] * 9, rows_per_unit=2), tb.OutputDPFilter(9))
    session.ask(tb.Count(epsilon=5))
    answer = session.ask(MEDIANS)
    assert answer.interval() is None
    assert answer.mostly_noise


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (tb.Count, "GroupedCounts"),
        (tb.Sum, "GroupedSums"),
        (tb.Mean, "GroupedMeans"),
        (Quantiles, "GroupedQuantiles"),
    ],
)
def test_a_question_of_all_rows_names_the_one_of_groups(make: Any, name: str) -> None:
    with pytest.raises(ParameterError, match=rf"has no parameter 'by' .*{name}\(by=\.\.\.\) "):
        make(by="k", epsilon=1)


# ----------------------------------------------------------------------- answers without noise

ROWS: list[tuple[str | None, float]] = [
    (None if i % 10 == 3 else f"u{i % 40}", (i * i % 101) / 2) for i in range(120)
] + [("u1", float("nan"))]


class Silent(Script):
    """Every test passes, and values have no noise."""

    def __init__(self, statistic: Any) -> None:
        super().__init__(statistic._protocol.test.scale, [10**9] * 2)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("engine", [False, True], ids=["arrays", "duckdb"])
@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("units", [40, 52, 48, 30])
def test_a_statistic_of_a_table_is_that_of_the_column(
    statistic: Any, engine: bool, units: int
) -> None:
    """Where each row is a unit, all rows count."""
    rows = [(f"v{i}", x) for i, (_, x) in enumerate(ROWS[:48])]
    column = np.array(sorted(x for _, x in rows))
    low, high = (units - 48 + 1) // 2, (units - 48) // 2
    end = LIMIT * statistic.step
    if units >= 48:
        column = np.concatenate((np.full(low, -end), column, np.full(high, end)))
    else:
        column = column[(48 - units) // 2 :][:units]
    asked = table(rows, engine, rows_per_unit=1, units=units)
    found = OrderStatistic(column="x", statistic=statistic).release(
        asked, meter=tb.OutputDPOdometer(), noise=Silent(statistic)
    )
    wanted = statistic.release(column, meter=tb.OutputDPOdometer(), noise=Silent(statistic))
    assert (found.value, found.cell) == (wanted.value, wanted.cell)


@pytest.mark.parametrize("r", [1, 2])
def test_duckdb_and_arrays_scan_the_same(r: int) -> None:
    quantiles = Quantiles(column="x", probabilities=(0.1, 0.9), bounds=(0, 50), epsilon=1, step=1)
    whole = [(unit, 0.0 if x != x else x) for unit, x in ROWS]
    for rows in (ROWS, whole):
        one, other = (scanned(quantiles, table(rows, e, rows_per_unit=r)) for e in (False, True))
        assert one == other


def test_quantiles_of_a_table_lie_near_those_of_its_rows() -> None:
    rng = np.random.default_rng(3)
    data = {"unit": np.arange(6_000) // 3, "x": rng.normal(50, 10, 6_000)}
    asked = Table(data, unit="unit", rows_per_unit=3)
    mechanism = Quantiles(column="x", probabilities=(0.05, 0.5, 0.95), bounds=(0, 100), epsilon=3)
    release = mechanism.release(asked, meter=tb.OutputDPOdometer())
    ranks = np.searchsorted(np.sort(data["x"]), release.value) / 6_000
    assert np.abs(ranks - [0.05, 0.5, 0.95]).max() < 0.03
    assert release.receipt.charged == tb.Amount(3.0, 0.0, "epsilon")


def test_the_rows_of_a_unit_decide_the_weights() -> None:
    mechanism = Quantiles(column="x", probabilities=(0.5,), bounds=(0, 2), epsilon=1, step=1)
    for r in (1, 7):
        inner: Any = mechanism.plan(table(ROWS, rows_per_unit=r)).mechanism
        assert inner.rows_per_unit == r
        assert inner._rate(Fraction(1, 2)) * r == pytest.approx(
            replace(inner, rows_per_unit=1)._rate(Fraction(1, 2))
        )


# -------------------------------------------------------------------------------------- laws

CASES = [
    *[
        Case(
            type(statistic).__name__,
            OrderStatistic(column="x", statistic=statistic),
            table(ROWS, rows_per_unit=1, units=48),
        )
        for statistic in STATISTICS
    ],
    Case(
        "quantiles",
        Quantiles(column="x", probabilities=(0.25, 0.5), bounds=(0, 50), epsilon=1),
        table(ROWS, rows_per_unit=3),
    ),
    Case(
        "quantiles-of-groups",
        MEDIANS,
        in_zones([("a", "p", 1.0), ("b", "q", 2.0), (None, "q", 0.0)], rows_per_unit=3),
    ),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_laws_of_mechanisms_on_data(case: Case, law: Any) -> None:
    law(case)


# ----------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"rows_per_unit": 1}, "units must be given in the Table, a public number in .4, 2.41."),
        ({"rows_per_unit": 1, "units": 3}, "units must be given in the Table.*, got 3"),
        ({"rows_per_unit": 1, "units": 2**42}, "units must be given in the Table"),
        (
            {"rows_per_unit": 2, "units": 40},
            "rows_per_unit must be 1 for an order statistic, got 2",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_and_not_charged(
    declared: dict[str, Any], message: str
) -> None:
    meter = tb.OutputDPOdometer()
    mechanism = OrderStatistic(column="x", statistic=STATISTICS[0])
    with pytest.raises(ParameterError, match=message):
        mechanism.release(table(ROWS, **declared), meter=meter)
    assert meter.spent.amount == 0


@pytest.mark.parametrize(
    "mechanism",
    [
        OrderStatistic(column="y", statistic=STATISTICS[0]),
        Quantiles(column="y", probabilities=(0.5,), bounds=(0, 1), epsilon=1),
    ],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("engine", [False, True], ids=["arrays", "duckdb"])
def test_a_column_that_is_not_there_is_refused_and_not_charged(
    mechanism: Any, engine: bool
) -> None:
    meter = tb.OutputDPOdometer()
    with pytest.raises(ParameterError, match="must be one of the columns unit, x, got 'y'"):
        mechanism.release(table(ROWS, engine, rows_per_unit=1, units=40), meter=meter)
    assert meter.spent.amount == 0


def test_what_is_no_robust_statistic_is_refused() -> None:
    statistic: Any = tb.release.LaplaceRelease(len, 1, 1)
    with pytest.raises(ParameterError, match="statistic must be a Median, an InterquartileRange"):
        OrderStatistic(column="x", statistic=statistic)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bounds": None}, r"bounds must be given: public numbers \(low, high\)"),
        ({"probabilities": (2,)}, r"probabilities\[0\] must be in \[0, 1\], got 2"),
        ({"epsilon": 0}, "epsilon must be"),
        ({"step": 3}, "step must be a power of two, got 3"),
    ],
)
def test_quantiles_without_a_guarantee_are_refused(given: dict[str, Any], message: str) -> None:
    known: dict[str, Any] = {"column": "x", "probabilities": (0.5,), "bounds": (0, 9), "epsilon": 1}
    with pytest.raises(ParameterError, match=message):
        Quantiles(**(known | given))


def test_a_scan_that_fails_costs_the_worst_case_price(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = table(ROWS, rows_per_unit=1, units=40)

    def lost(*_: Any) -> Any:
        raise ConnectionError("secret 42")

    monkeypatch.setattr(type(asked.source), "histogram", lost)
    for mechanism in (
        OrderStatistic(column="x", statistic=STATISTICS[0]),
        Quantiles(column="x", probabilities=(0.5,), bounds=(0, 9), epsilon=2),
    ):
        meter = tb.OutputDPOdometer()
        with pytest.raises(ReleaseError) as failure:
            mechanism.release(asked, meter=meter)
        assert "42" not in str(failure.value)
        assert meter.spent.amount == mechanism.guarantee.worst_case()[0]
