"""Exact audits through DuckDB: all neighbours of small tables, all outputs, exact probabilities.

The rows of a table are scanned by DuckDB, and the mechanism itself goes down every path of its
noise, each with its exact rational probability. The key of the hash is the same for neighbours,
as each key has the same probability for both of them: what holds for each key holds for all.

No output is left out for its small probability. Noise is looked at within a box, and a unit shifts
no draw of a mechanism by more than its sensitivity, which is what the proofs do. So the paths that
lead to an output within a box lead to it from the neighbour within a box that is wider by that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from tests.release.enumerated import Law, Outcomes, power
from tests.tables.cases import in_duckdb, small
from tests.tables.test_neighbours import Row, up_to_names, without_a_unit

from tightbudget.tables import (
    AboveThreshold,
    Count,
    Counts,
    CountsAbove,
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
from tightbudget.tables.source import Contribution

SALT = "5a"
# the contents of rows: (x, k, j, w, v), with x on both ends of its bounds
CONTENTS: list[Row] = [(0.0, "p", 0, True, True), (5.0, "q", 1, False, True)]
X: dict[str, Any] = {"column": "x", "bounds": (0, 1), "step": 1.0}
HALF = Fraction(1, 2)

Make = Callable[[int, int], Any]  # from rows and groups that count to a mechanism
Vector = tuple[int, ...]
Distort = Callable[[Contribution], Contribution]


@dataclass(frozen=True)
class Audit:
    """A mechanism whose scales are rational in the arithmetic of :mod:`enumerated`.

    Attributes:
        make: the mechanism for a table of so many rows and groups; its price is a half for each
            point of the sensitivity, or one, such that the ratios of its noise are rational.
        shift: how far a unit shifts one draw of noise at most, in rows that count.
        box: how far noise is looked at.
        closest: which part of its price an output comes to at least, within that box.
    """

    make: Make
    shift: int = 1
    box: int = 2
    closest: Fraction = Fraction(1, 4)


AUDITS: Mapping[str, Audit] = {
    "count": Audit(lambda r, g: Count(epsilon=HALF * r)),
    "count-where": Audit(lambda r, g: Count(epsilon=HALF * r, where="w")),
    "count-units": Audit(lambda r, g: Count(epsilon=HALF, of="units")),
    "sum": Audit(lambda r, g: Sum(epsilon=HALF * r, **X)),
    "mean": Audit(lambda r, g: Mean(epsilon=HALF * r, **X)),
    "variance": Audit(lambda r, g: Variance(epsilon=HALF * r, **X), box=1),
    "histogram": Audit(
        lambda r, g: HistogramCounts(epsilon=HALF * r, column="x", edges=(0, 1, 6), step=1.0)
    ),
    "counts": Audit(lambda r, g: Counts(where=("w", "v"), epsilon=HALF * 2 * r)),
    "grouped-counts": Audit(lambda r, g: GroupedCounts(by="k", epsilon=HALF * r)),
    "grouped-units": Audit(lambda r, g: GroupedCounts(by="k", epsilon=HALF * g, of="units")),
    "grouped-sums": Audit(lambda r, g: GroupedSums(by="k", epsilon=HALF * r, **X)),
    "grouped-means": Audit(
        lambda r, g: GroupedMeans(by="k", epsilon=HALF * r, **X), box=0, closest=Fraction(1, 10)
    ),
    "above-threshold": Audit(
        lambda r, g: AboveThreshold(
            questions=(("w", 1), ("v", 2)), epsilon=Fraction(r), aboves=1, adaptive=False
        ),
    ),
    "above-threshold-twice": Audit(
        lambda r, g: AboveThreshold(questions=(("v", 1),), epsilon=Fraction(r), aboves=1), box=4
    ),
    "counts-above": Audit(
        lambda r, g: CountsAbove(
            where=("v",),
            threshold=1,
            epsilon=Fraction(r),
            search_epsilon=Fraction(r),
            aboves=1,
            adaptive=False,
        ),
        box=1,
    ),
    "top-groups": Audit(lambda r, g: TopGroups(by="k", k=1, epsilon=Fraction(r), least=1)),
}  # fmt: skip


@cache
def rows_of(units: tuple[str | None, ...], most: int) -> tuple[tuple[Row, ...], ...]:
    """All tables of so many rows, up to their order."""
    rows = [(unit, *content) for unit in units for content in CONTENTS]
    return tuple(
        found for n in range(most + 1) for found in itertools.combinations_with_replacement(rows, n)
    )


class HalfTheNoise(Law):
    """Noise of half the scale that is asked for."""

    def laplace(self, scale: Any, size: int) -> Any:
        return super().laplace(Fraction(scale) / 2, size)


def as_it_is(contribution: Contribution) -> Contribution:
    return contribution


def hashable(value: Any) -> Hashable:
    """An answer as a value that may be a key."""
    if isinstance(value, Mapping):
        return tuple((key, hashable(part)) for key, part in value.items())
    return tuple(value) if isinstance(value, (list, tuple, np.ndarray)) else value


@cache  # what a scan answers depends on no noise
def scan_of(name: str, rows: int, groups: int, distort: Distort, given: tuple[Row, ...]) -> Vector:
    """The small vector of a table, by DuckDB."""
    table = in_duckdb(rows, groups, small(list(given)))
    contribution = distort(replace(table.contribution(), salt=SALT))
    vector = AUDITS[name].make(rows, groups).plan(table).scan(contribution)
    return tuple(vector) if isinstance(vector, list) else (vector,)


def excess(
    name: str,
    rows: int,
    groups: int,
    *,
    most: int,
    noise: type[Law] = Law,
    distort: Distort = as_it_is,
) -> tuple[int, Fraction]:
    """How many outputs break the price of their cell, and how close the others come to it.

    Args:
        name: of the audit.
        rows: of a unit that count.
        groups: of a unit that count.
        most: the number of rows of the largest table.
        noise: the law of the noise.
        distort: what the scan is told of the bounds on a unit.
    """
    audit = AUDITS[name]
    mechanism = audit.make(rows, groups)
    price = {cell: power(mechanism.guarantee.price(cell)) for cell in mechanism.guarantee.cells}
    shift = audit.shift * rows

    scanned = partial(scan_of, name, rows, groups, distort)
    empty = in_duckdb(rows, groups, small([]))

    @cache
    def answers(vector: Vector, widest: int) -> dict[Any, Fraction]:
        """All outputs for a vector, with their cells and their probabilities within a box."""
        one = isinstance(mechanism, (Count, Sum))
        plan = replace(mechanism.plan(empty), scan=lambda _: vector[0] if one else np.array(vector))

        def run(law: Law) -> Hashable:
            value, cell = plan.unpaid_answer(empty, law)
            return hashable(value), cell

        return _enumerated(run, widest, noise)

    failed, closest = 0, Fraction(0)
    moves = {
        (scanned(given), scanned(fewer))
        for given in up_to_names(rows_of(("a", "b", None), most))
        for fewer in without_a_unit(given)
    }
    for pair in moves:
        for here, there in (pair, pair[::-1]):
            outer = answers(there, audit.box + shift)
            for output, mass in answers(here, audit.box).items():
                _, cell = output
                most_of_it = price[cell] * outer.get(output, Fraction(0))
                failed += mass > most_of_it
                if most_of_it:
                    closest = max(closest, mass / most_of_it)
    return failed, closest


def _enumerated(
    run: Callable[[Any], Hashable], widest: int, noise: type[Law]
) -> dict[Any, Fraction]:
    """All paths of a run, by a law of noise."""

    def paths(script: list[int]) -> Any:
        law = noise(script, widest)
        try:
            outcome = run(law)
        except KeyboardInterrupt:
            if law.ways is None:
                raise
            for choice in law.ways:
                yield from paths([*script, choice])
        else:
            yield outcome, law.probability

    masses: dict[Any, Fraction] = {}
    for outcome, probability in paths([]):
        masses[outcome] = masses.get(outcome, Fraction(0)) + probability
    return masses


# ------------------------------------------------------------------------------- the audits


# A unit of the largest table has one row more than count.
CASES = [
    (name, rows, groups)
    for name in AUDITS
    for rows, groups in [(1, 1), (2, 1), (2, 2)]
    if rows == groups or name.startswith("grouped")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rows", "groups"), CASES)
def test_every_output_keeps_its_price(name: str, rows: int, groups: int) -> None:
    failed, closest = excess(name, rows, groups, most=rows + 1)
    assert not failed
    assert closest > AUDITS[name].closest  # and no price is much too high


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITS)
def test_half_the_noise_is_caught(name: str) -> None:
    assert excess(name, 1, 1, most=1, noise=HalfTheNoise)[0]


def more_rows(contribution: Contribution) -> Contribution:
    return replace(contribution, rows=contribution.rows + 1)


def more_groups(contribution: Contribution) -> Contribution:
    return replace(contribution, groups=contribution.groups + 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in AUDITS if "units" not in name])
def test_one_row_of_a_unit_too_many_is_caught(name: str) -> None:
    assert excess(name, 1, 1, most=2, distort=more_rows)[0]


@pytest.mark.slow
def test_one_group_of_a_unit_too_many_is_caught() -> None:
    assert excess("grouped-units", 2, 1, most=2, distort=more_groups)[0]


@pytest.mark.slow
def test_a_count_keeps_its_price() -> None:
    failed, closest = excess("count", 1, 1, most=1)
    assert not failed
    assert closest == 1  # of Laplace noise each price is met
    assert excess("count", 1, 1, most=1, noise=HalfTheNoise)[0]


def test_the_audit_sums_all_paths() -> None:
    """The outputs of a wide box have all of the probability, up to the tails of the noise."""

    def run(law: Law) -> Hashable:
        return hashable(law.laplace(2, 1))

    outcomes = Outcomes.of(run, widest=6)
    assert _enumerated(run, 6, Law) == outcomes.masses
    assert outcomes.missing < Fraction(1, 1000)


# ------------------------------------------------- other units count as they did before


BITS: dict[str, Any] = {"column": lambda t: t.x, "bounds": (0, 2**20), "step": 1.0}


def chosen(rows: list[Row], most: int, salt: str) -> set[int]:
    """The rows that count in DuckDB: the value of each row is a bit of its own."""
    table: Table = in_duckdb(most, most, small(rows))
    scan = Sum(epsilon=1, **BITS).plan(table).scan
    total = scan(replace(table.contribution(), salt=salt))
    return {i for i in range(20) if total >> i & 1}


def with_bits() -> list[Row]:
    """Three units with three rows each, and two rows whose unit is missing."""
    units = ["a", "b", "c"] * 3 + [None] * 2
    return [(unit, float(2**i), "p", 0, True, True) for i, unit in enumerate(units)]


@pytest.mark.parametrize("most", [1, 2])
def test_one_unit_less_changes_no_row_of_another(most: int) -> None:
    rows = with_bits()
    whole = chosen(rows, most, SALT)
    assert len(whole) == 3 * most + 2
    fewer = [row for row in rows if row[0] != "b"]
    assert chosen(fewer, most, SALT) == {i for i in whole if rows[i][0] != "b"}
    assert chosen(rows[:-1], most, SALT) == whole - {len(rows) - 1}
