"""The heart of the room: a unit moves what a scan answers by at most the sensitivity that is used.

Exhaustive over all tables of up to four rows, up to the names of units, and exact: every pair of
tables of which one has all rows of one unit more, with the same key of the hash, since each key is
as likely in both.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.tables.cases import CASES, COLUMNS, Case, in_duckdb, small, table

from tightbudget.output_dp.amount import exact
from tightbudget.tables import AboveThreshold, CountsAbove, GatedCounts, MostFrequent, TopGroups
from tightbudget.tables.mechanism import NoisyVector
from tightbudget.tables.table import Table

Row = tuple[Any, ...]
Vector = tuple[int, ...]

# the contents of rows: (x, k, j, w, v); -1 and 4 are the bounds of x, and 9 is beyond
CONTENTS: list[Row] = [
    (-1.0, "p", 0, True, True),
    (9.0, "q", 1, True, True),
    (float("nan"), "p", 0, False, True),
]
BOUNDS = [(1, 1), (2, 1), (2, 2)]


def tables(units: Sequence[str | None], most: int = 4) -> list[tuple[Row, ...]]:
    """All tables of so many rows, up to their order."""
    rows = [(unit, *content) for unit in units for content in CONTENTS]
    return [
        found for n in range(most + 1) for found in itertools.combinations_with_replacement(rows, n)
    ]


def without_a_unit(rows: tuple[Row, ...]) -> Iterator[tuple[Row, ...]]:
    """The tables that lack one unit with all its rows; a row without a unit is one."""
    for unit in {row[0] for row in rows} - {None}:
        yield tuple(row for row in rows if row[0] != unit)
    for i, row in enumerate(rows):
        if row[0] is None:
            yield rows[:i] + rows[i + 1 :]


def up_to_names(given: Iterable[tuple[Row, ...]]) -> list[tuple[Row, ...]]:
    """One of each two tables that differ by the names of the units a and b.

    For units of other names the hash has another key, and what holds for each key holds for all.
    """
    other: dict[Any, Any] = {"a": "b", "b": "a", None: None}
    found: dict[frozenset[tuple[Row, ...]], tuple[Row, ...]] = {}
    for rows in given:
        exchanged = ((other[unit], *rest) for unit, *rest in rows)
        alike = frozenset(tuple(sorted(one, key=repr)) for one in (rows, exchanged))
        found.setdefault(alike, rows)
    return list(found.values())


def stated(mechanism: Any, data: Table) -> Fraction:
    """The sensitivity that the noise of a mechanism is made for, in points of its vector."""
    inner = mechanism.plan(data).mechanism
    if isinstance(mechanism, GatedCounts):
        assert inner.by_test == inner.by_training
        return exact(by_test=inner.by_test)
    search = getattr(inner, "search", inner)
    assert getattr(search, "monotone", True)
    return exact(sensitivity=search.sensitivity)


def vectors(case: Case, rows: int, groups: int, salt: str) -> dict[tuple[Row, ...], Vector]:
    """What the scan of each small table answers, and that of each with one unit less."""
    found = {}
    chosen = up_to_names(tables(["a", "b", None]))
    fewer = itertools.chain.from_iterable(map(without_a_unit, chosen))
    for given in dict.fromkeys([*chosen, *fewer]):
        data = table(small(list(given)), rows, groups)
        scanned = case.mechanism.plan(data).scan(replace(data.contribution(), salt=salt))
        # a pair of lists, for two halves, is one vector
        found[given] = tuple(np.ravel(scanned).tolist())
    return found


def gaussian(case: Case) -> Any:
    """The mechanism with Gaussian noise, if it can have that."""
    if not isinstance(case.mechanism, NoisyVector):
        return None
    return replace(case.mechanism, delta=Fraction(1, 10**6))


def moves(found: dict[tuple[Row, ...], Vector]) -> Iterator[Vector]:
    """All moves of the vector, from the smaller table to the larger."""
    for rows, vector in found.items():
        for fewer in without_a_unit(rows):
            if fewer in found:
                yield tuple(x - y for x, y in zip(vector, found[fewer], strict=True))


def furthest(case: Case, rows: int, groups: int, salt: str = "5a") -> tuple[Fraction, Fraction]:
    """How far the vector moves: in the norm of the case, and the square of that in the 2-norm."""
    seen = set(moves(vectors(case, rows, groups, salt)))
    assert seen
    if case.norm == "max":
        assert all(min(move) >= 0 for move in seen)  # in one direction
        return Fraction(max(max(move) for move in seen)), Fraction(0)
    ones = max(sum(map(abs, move)) for move in seen)
    return Fraction(ones), Fraction(max(sum(x * x for x in move) for move in seen))


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("rows", "groups"), BOUNDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_unit_moves_the_vector_by_at_most_the_sensitivity(
    case: Case, rows: int, groups: int
) -> None:
    data = table(small([]), rows, groups)
    ones, squares = furthest(case, rows, groups)
    said = stated(case.mechanism, data)
    assert ones <= said
    # and no smaller number would do
    assert ones == said
    other = gaussian(case)
    if other is not None:
        said = stated(other, data)
        assert squares <= said**2
        assert said**2 <= squares * (1 + Fraction(1, 2**30))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_noise_is_made_for_the_sensitivity(case: Case) -> None:
    """The scale is what the sensitivity asks for: the price of the inner mechanism is the price."""
    data = table(small([]), 2, 2)
    for mechanism in filter(None, [case.mechanism, gaussian(case)]):
        plan = mechanism.plan(data)
        inner, outer = plan.mechanism.guarantee, mechanism.guarantee
        assert set(inner.cells) == set(outer.cells)
        assert all(inner.price(cell) <= outer.price(cell) for cell in outer.cells)
        assert inner.delta <= outer.delta


def test_searches_are_monotone() -> None:
    searching = [case.name for case in CASES if case.norm == "max"]
    of = (AboveThreshold, CountsAbove, MostFrequent, TopGroups)
    assert searching == [case.name for case in CASES if isinstance(case.mechanism, of)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_order_of_the_rows_changes_nothing(case: Case) -> None:
    rows = [("a", *content) for content in CONTENTS] + [("b", *CONTENTS[0]), (None, *CONTENTS[1])]
    found = set()
    for order in itertools.islice(itertools.permutations(rows), 0, None, 7):
        data = table(small(list(order)), 2, 1)
        vector = case.mechanism.plan(data).scan(replace(data.contribution(), salt="5a"))
        found.add(tuple(np.ravel(vector).tolist()))
    assert len(found) == 1


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", ["tested-counts", "tested-counts-units"])
@pytest.mark.parametrize("salt", ["5a", "5b", "5c"])
def test_a_unit_moves_the_counts_of_one_half_alone(name: str, salt: str) -> None:
    (case,) = (case for case in CASES if case.name == name)
    halves = set()
    for move in moves(vectors(case, 2, 2, salt)):
        middle = len(move) // 2
        touched = any(move[:middle]), any(move[middle:])
        assert touched != (True, True)
        halves.add(touched)
    assert (True, False) in halves


# ------------------------------------------------------------------ each bound is taken away


def holds(name: str, rows: int = 2, groups: int = 2) -> bool:
    """Whether noise of a case is made for all that a unit moves, and for no more."""
    (case,) = (case for case in CASES if case.name == name)
    data = table(small([]), rows, groups)
    ones, squares = furthest(case, rows, groups)
    other = gaussian(case)
    return ones == stated(case.mechanism, data) and (
        other is None or squares <= stated(other, data) ** 2 <= squares * (1 + Fraction(1, 2**30))
    )


def engine_chooses(name: str) -> bool:
    """Whether DuckDB chooses the rows and the groups that arrays do."""
    (case,) = (case for case in CASES if case.name == name)
    arrays, engine = table(COLUMNS, 1, 1), in_duckdb(1, 1)
    contribution = replace(arrays.contribution(), salt="5a")
    there = case.mechanism.plan(engine).scan(contribution)
    return bool(case.mechanism.plan(arrays).scan(contribution) == there)


MUTATIONS = [
    Without(
        "count has other noise",
        {"count-moves": "return 1"},
        lambda: holds("count"),
    ),
    Without(
        "count-units has other noise",
        {"count-moves": "return table.rows"},
        lambda: holds("count-units"),
    ),
    Without(
        "sum has other noise",
        {"sum-moves": "moves = grid.most"},
        lambda: holds("sum"),
    ),
    Without(
        "sum-where has other noise",
        {"sum-moves": "moves = table.rows * grid.high - 1"},
        lambda: holds("sum-where"),
    ),
    Without(
        "mean has other noise",
        {"mean-moves": "moves = table.rows * (grid.high - grid.low) // 2"},
        lambda: holds("mean"),
    ),
    Without(
        "variance has other noise",
        {"variance-moves": "moves = whole"},
        lambda: holds("variance"),
    ),
    Without(
        "histogram has other noise",
        {"histogram-moves": "moves = 1"},
        lambda: holds("histogram"),
    ),
    Without(
        "grouped-counts has other noise",
        {"grouped-counts-moves": "l1 = 1"},
        lambda: holds("grouped-counts"),
    ),
    Without(
        "grouped-units-of-two has other noise",
        {"grouped-counts-moves": "l1 = 1"},
        lambda: holds("grouped-units-of-two"),
    ),
    Without(
        "grouped-counts has other noise",
        {"grouped-counts-moves-in-the-2-norm": "l2 = root_up(table.groups)"},
        lambda: holds("grouped-counts"),
    ),
    Without(
        "grouped-units has other noise",
        {"grouped-counts-moves-in-the-2-norm": "l2 = Fraction(1)"},
        lambda: holds("grouped-units"),
    ),
    Without(
        "grouped-sums has other noise",
        {"grouped-sums-moves": "moves = grid.most"},
        lambda: holds("grouped-sums"),
    ),
    Without(
        "grouped-means has other noise",
        {"grouped-means-moves": "moves = grid.high - grid.low"},
        lambda: holds("grouped-means"),
    ),
    Without(
        "count-distinct has other noise",
        {"distinct-keys-move": "moves = 1"},
        lambda: holds("count-distinct"),
    ),
    Without(
        "counts has other noise",
        {"counts-moves": "l1 = each"},
        lambda: holds("counts"),
    ),
    Without(
        "counts has other noise",
        {"counts-moves-in-the-2-norm": "l2 = each"},
        lambda: holds("counts"),
    ),
    Without(
        "above-threshold has other noise",
        {"count-moves": "return 1"},
        lambda: holds("above-threshold"),
    ),
    Without(
        "counts-above has other noise",
        {"count-moves": "return 1"},
        lambda: holds("counts-above"),
    ),
    Without(
        "top-groups has other noise",
        {"count-moves": "return 1"},
        lambda: holds("top-groups"),
    ),
    Without(
        "tested-counts has other noise",
        {"tested-counts-moves": "moves = 1"},
        lambda: holds("tested-counts"),
    ),
    Without(
        "all rows of a unit count",
        {
            "rows-in-arrays-bounded": (
                "kept = [i for order in of_unit.values() for _, i in sorted(order)]"
            )
        },
        lambda: holds("count", 1, 1),
    ),
    Without(
        "a unit counts in all groups",
        {"groups-in-arrays-bounded": "allowed = {unit: set(keys) for unit, keys in first.items()}"},
        lambda: holds("grouped-units", 2, 1),
    ),
    Without(
        "rows without a unit are one unit",
        {"row-without-unit-alone": "return ['' if _missing(u) else u for u in names]"},
        lambda: holds("grouped-sums", 1, 1),
    ),
    Without(
        "all rows of a unit count in an engine",
        {"rows-of-a-unit-bounded": "kept = ranked.select(columns)"},
        lambda: engine_chooses("sum"),
    ),
    Without(
        "all rows of a unit are counted in an engine",
        {"rows-of-a-unit-counted": "bounded = each.tightbudget_entries"},
        lambda: engine_chooses("count"),
    ),
    Without(
        "a unit counts in all groups in an engine",
        {"groups-of-a-unit-bounded": "kept = ranked.select(columns)"},
        lambda: engine_chooses("grouped-units"),
    ),
]


@pytest.mark.one_in(8)
@each(MUTATIONS)
def test_each_guard_guards(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)


# ------------------------------------------------------------------ the same in an engine


@functools.cache
def both(given: tuple[Row, ...]) -> tuple[Table, Table]:
    """The rows as arrays and in DuckDB, which takes longer to open than to ask."""
    columns = small(list(given))
    return table(columns, 1, 1), in_duckdb(1, 1, columns)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_engine_answers_as_arrays_do_on_small_tables(case: Case) -> None:
    for given in tables(["a", None], most=2):
        arrays, engine = both(given)
        contribution = replace(arrays.contribution(), salt="5a")
        there = case.mechanism.plan(engine).scan(contribution)
        assert case.mechanism.plan(arrays).scan(contribution) == there
