"""Private rows that marginals count: in memory, or where a table has them."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.errors import ParameterError
from tightbudget.marginals.domains import Codes, Domain, Listed, NumericBins, entries_of
from tightbudget.numerics.validate import positive_count, refuse
from tightbudget.release.private_number import FAILURES
from tightbudget.tables.cells import NOWHERE, ColumnCells, cells_of_ranges, listed_cells
from tightbudget.tables.table import Table

Clique = tuple[str, ...]
Counts = NDArray[np.int64]

# Counts of private rows that are kept for later scores, and those that are asked for at once.
_KEPT_CELLS, _ASKED_CELLS, _ASKED = 2**24, 2**22, 64


class Rows(ABC):
    """Private rows that are counted, each marginal once.

    Attributes:
        most: how many rows of a unit count.
    """

    most: int

    def __init__(self) -> None:
        self._kept: dict[Clique, Counts] = {}

    @abstractmethod
    def check(self) -> None:
        """Asks for no row, so that rows that are out of reach are refused before a charge.

        Raises:
            SourceError: the engine does not answer.
        """

    def counts(self, cliques: Sequence[Clique], sizes: Sequence[int]) -> Iterator[Counts]:
        """Yields for each marginal the number of rows in each cell, (cells,).

        Args:
            cliques: the marginals.
            sizes: how many cells each has.
        """
        for batch in _batches(cliques, sizes):
            found = {clique: self._kept[clique] for clique in batch if clique in self._kept}
            new = [clique for clique in batch if clique not in found]
            if new:
                counted = dict(zip(new, self._counted(new), strict=True))
                found |= counted
                cells = sum(counts.size for counts in (*self._kept.values(), *counted.values()))
                if cells > _KEPT_CELLS:
                    self._kept.clear()
                self._kept |= counted
            yield from (found[clique] for clique in batch)

    @abstractmethod
    def _counted(self, cliques: Sequence[Clique]) -> list[Counts]:
        """Counts the rows in each cell of each marginal."""


def _batches(cliques: Sequence[Clique], sizes: Sequence[int]) -> Iterator[list[Clique]]:
    """Splits marginals into parts of few cells, so that not all counts are in memory at once."""
    batch: list[Clique] = []
    cells = 0
    for clique, size in zip(cliques, sizes, strict=True):
        if batch and (cells + size > _ASKED_CELLS or len(batch) == _ASKED):
            yield batch
            batch, cells = [], 0
        batch.append(clique)
        cells += size
    yield batch


def rows_of(
    rows: Any, domains: Mapping[str, Domain], unit: str | None, rows_per_unit: int | None
) -> Rows:
    """Returns private rows that can be counted; asks them nothing.

    Args:
        rows: a table, a frame, or a dictionary of arrays.
        domains: of its columns.
        unit: the column that names the unit; None where each row is one, or a table says it.
        rows_per_unit: how many rows of a unit count.

    Raises:
        ParameterError: an argument is refused, or a column is not there.
    """
    if isinstance(rows, Table):
        for name, given in (("unit", unit), ("rows_per_unit", rows_per_unit)):
            if given is not None:
                must = f"be left out beside a Table, which declares it: Table(..., {name}=...)"
                raise refuse(name, must, given)
        return InTable(rows, domains)
    if unit is None and rows_per_unit not in (None, 1):
        must = "be 1 where each row is a unit: give unit= the column that names it"
        raise refuse("rows_per_unit", must, rows_per_unit)
    if unit is not None and rows_per_unit is None:
        must = "be given with a unit: it is how many rows of a unit count"
        raise refuse("rows_per_unit", must, rows_per_unit)
    most = 1 if rows_per_unit is None else positive_count(rows_per_unit=rows_per_unit)
    return InMemory(rows, domains, unit, most)


class InTable(Rows):
    """Private rows that stay in the engine of a table, which counts them.

    The rows of a unit that count are the same in all marginals of a run.

    Args:
        table: the table, which declares the unit.
        domains: of its columns.

    Raises:
        ParameterError: a column is not there, or has no values of the domain's type.
    """

    def __init__(self, table: Table, domains: Mapping[str, Domain]) -> None:
        super().__init__()
        self._source, self._contribution = table.source, table.contribution()
        self.most = table.rows
        self._cells = {name: _cells(table, name, domain) for name, domain in domains.items()}

    def check(self) -> None:
        """Asks the engine for no row."""
        self._source.check()

    def _counted(self, cliques: Sequence[Clique]) -> list[Counts]:
        # the choice of rows looks at all columns, so that it is the same in each statement
        used = {*self._cells} if self._contribution.unit is not None else {*sum(cliques, ())}
        cells = {name: of for name, of in self._cells.items() if name in used}
        found = []
        asked = self._source.cell_counts(self._contribution, cells, cliques)
        for clique, runs in zip(cliques, asked, strict=True):
            counts = np.zeros(math.prod(cells[name].size for name in clique), dtype=np.int64)
            for cell, rows in runs:
                counts[cell] = rows
            found.append(counts)
        return found


def _cells(table: Table, name: str, domain: Domain) -> ColumnCells:
    """Returns the cells of a domain for the column of a table."""
    if isinstance(domain, NumericBins):
        edges, other = domain.edges, domain.other
        return cells_of_ranges(table.columns, name, edges, domain.codes, other=other)
    assert isinstance(domain, Listed)
    return listed_cells(table.columns, name, domain.cells, domain.codes)


class InMemory(Rows):
    """Private rows in memory.

    Args:
        rows: a frame, or a dictionary of arrays.
        domains: of its columns.
        unit: the column that names the unit; None where each row is one.
        most: how many rows of a unit count.

    Raises:
        ParameterError: a column is not there, or columns have different lengths.
    """

    def __init__(
        self, rows: Any, domains: Mapping[str, Domain], unit: str | None, most: int
    ) -> None:
        super().__init__()
        try:
            there = list(rows.keys())
        except (AttributeError, TypeError):
            raise ParameterError(
                "rows must be a tb.Table, a pandas.DataFrame or a dictionary of arrays, got a "
                f"{type(rows).__name__}"
            ) from None
        for name in [*domains, *([] if unit is None else [unit])]:
            if name not in there:
                role = "unit" if name == unit and name not in domains else f"domains[{name!r}]"
                raise ParameterError(f"{role} must be a column of the rows, got {name!r}")
        self._columns = {name: rows[name] for name in domains}
        self._unit = None if unit is None else rows[unit]
        for name, column in self._columns.items():
            if getattr(column, "ndim", 1) != 1:
                raise ParameterError(f"rows must have one column {name!r}")
        lengths = {len(column) for column in self._columns.values()}
        lengths |= set() if self._unit is None else {len(self._unit)}
        if len(lengths) > 1:
            raise ParameterError("rows must have columns of one length")
        self._domains, self.most = domains, most
        self._codes: dict[str, Codes] = {}

    def check(self) -> None:
        """Does nothing: memory is there."""

    def _counted(self, cliques: Sequence[Clique]) -> list[Counts]:
        return [self._count(clique) for clique in cliques]

    def _count(self, clique: Clique) -> Counts:
        sizes = [self._domains[name].size for name in clique]
        codes = [self._cells(name) for name in clique]
        everywhere = np.all([code != NOWHERE for code in codes], axis=0)
        cells = np.zeros(int(everywhere.sum()), dtype=np.int64)
        for size, code in zip(sizes, codes, strict=True):
            cells = cells * size + code[everywhere]
        return np.bincount(cells, minlength=math.prod(sizes)).astype(np.int64)

    def _cells(self, name: str) -> Codes:
        """Returns the cell of each row; :data:`NOWHERE` for rows that a unit has too many of."""
        if name not in self._codes:
            codes = self._domains[name].codes(self._columns[name])
            if self._unit is not None:
                codes = np.where(self._within, codes, NOWHERE)  # guard: rows-of-a-unit
            self._codes[name] = codes
        return self._codes[name]

    @functools.cached_property
    def _within(self) -> NDArray[np.bool_]:
        """Says of each row whether it is one of the first of its unit."""
        return _first_of_each(entries_of(self._unit), self.most)


def _first_of_each(units: Iterable[Any], most: int) -> NDArray[np.bool_]:
    """Says of each row whether it is one of the first ``most`` of its unit."""
    seen = Counter[Any]()
    found = []
    for unit in units:
        try:
            seen[unit] += 1
        except FAILURES:
            found.append(False)  # guard: unit-without-a-hash
            continue
        found.append(_missing(unit) or seen[unit] <= most)
    return np.array(found, dtype=bool)


def _missing(unit: Any) -> bool:
    """Says whether a value stands for no unit."""
    try:
        return unit is None or bool(unit != unit)
    except FAILURES:  # pandas' own missing value
        return True
