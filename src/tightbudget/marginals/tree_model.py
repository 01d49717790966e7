"""A model of a table in which each column but one depends on one other column: a tree.

It is made of noisy marginals alone, and its rows are drawn by a generator with a seed: nothing here
sees a private row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tightbudget.marginals.domains import Codes, Domain
from tightbudget.marginals.merged_cells import Merged, merged_counts, others
from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import refuse

Pair = tuple[str, str]

# Sigmas, as mbi's script of MST has it.
_RARE = 3.0

# Of the search for the nearest marginals. 100 rounds end where 1,000 do, to 5 digits of the error
# on AER/CPSSW8 and stevedata/gss_wages; it ends earlier if a round moves no count by _STILL, and of
# large tables after _PASSED cells, some seconds.
_ROUNDS, _LEAST_ROUNDS, _STILL, _PASSED = 100, 5, 0.01, 2**28


@dataclass(frozen=True, eq=False)
class TreeModel:
    """A distribution of rows: one column's own shares, and for each other one its parent's.

    Attributes:
        shares: of the cells of the first column, (cells,).
        columns: the first column.
        branches: for each other column its parent, and for each cell of the parent the shares of
            its own cells, (parent's cells, cells); parents come first.
        merged: for each column of which the last cell stands for several, these, and the share of
            each of them.
    """

    column: str
    shares: FloatArray
    branches: Mapping[str, tuple[str, FloatArray]]
    merged: Mapping[str, tuple[tuple[int, ...], FloatArray]] = field(default_factory=dict)

    def draw(self, size: int, domains: Mapping[str, Domain], seed: Any) -> dict[str, list[Any]]:
        """Draws rows.

        The counts of the first column, and of each other one among the rows of a cell of its
        parent, are their shares of the rows, rounded up or down: independent rows would be off by
        the root of each count, which is more than the noise of many marginals. Among the rows of a
        parent's cell, each cell of the column comes as often beside each value of the other columns
        as the model says, about: at random, pairs that no table has would be off by the root, too.

        Args:
            size: the number of rows.
            domains: of all columns; the columns of the rows have their order.
            seed: of numpy's generator.
        """
        generator = generator_of(seed)
        found = {self.column: _spread(self.shares, size, generator)}
        for column, (parent, shares) in self.branches.items():
            above = self.branches[parent][0] if parent in self.branches else None
            names = [name for name in (parent, above) if name is not None]
            order = _alike(found, [*names, *(n for n in reversed(found) if n not in names)])
            rows = np.bincount(found[parent], minlength=len(shares))
            own = [_spread(of, n, generator) for of, n in zip(shares, rows.tolist(), strict=True)]
            found[column] = np.empty(size, dtype=np.int64)
            found[column][order] = np.concatenate(own)
        for column, (cells, shares) in self.merged.items():
            kept = others(domains[column].size, cells)
            codes = found[column]
            order = _alike(found, [column, *(name for name in found if name != column)])
            last = order[codes[order] == kept.size]
            found[column] = np.append(kept, 0)[codes]
            found[column][last] = np.array(cells)[_spread(shares, last.size, generator)]
        shuffled = generator.permutation(size)
        found = {name: codes[shuffled] for name, codes in found.items()}
        return {
            name: domain.values(found[name], generator.random(size))
            for name, domain in domains.items()
        }


def tree_model(
    ones: Mapping[str, FloatArray],
    pairs: Mapping[Pair, FloatArray],
    merged: Merged | None = None,
) -> TreeModel:
    """Makes the model of noisy marginals.

    Args:
        ones: the noisy counts of each column, (cells,).
        pairs: the noisy counts of pairs of columns that form a tree, (cells, cells). A column that
            they do not reach depends on no other.
        merged: for each column of which cells are merged in the pairs, these cells. Rows of the
            merged cell are split among them by the column's own noisy counts.
    """
    merged = {} if merged is None else merged
    split = {
        column: (cells, shares_of(ones[column][list(cells)])) for column, cells in merged.items()
    }
    ones = {column: merged_counts(counts, (column,), merged) for column, counts in ones.items()}
    ones, pairs = nearest(ones, pairs)
    first = next(iter(ones))
    branches: dict[str, tuple[str, FloatArray]] = {}
    ahead = [first]
    while ahead:
        parent = ahead.pop()
        for (left, right), counts in pairs.items():
            for one, child, table in ((left, right, counts), (right, left, counts.T)):
                if one == parent and child != first and child not in branches:
                    # a cell of the parent in which no row is left has the child's own shares
                    own = shares_of(ones[child])
                    rows = [shares_of(row) if row.max() > 0 else own for row in table]
                    branches[child] = parent, np.array(rows)
                    ahead.append(child)
    for column in ones:  # that no pair has
        if column != first and column not in branches:
            branches[column] = first, np.tile(shares_of(ones[column]), (ones[first].size, 1))
    return TreeModel(first, shares_of(ones[first]), branches, split)


def rare_cells(ones: Mapping[str, FloatArray], sigma: float) -> dict[str, tuple[int, ...]]:
    """Returns for each column the cells to merge: those whose noisy count is below three sigma.

    The noise of many cells that are nearly empty becomes that of one. A column of which one cell is
    rare is left out, since nothing is merged.

    Args:
        ones: the noisy counts of each column, (cells,).
        sigma: of their noise.
    """
    found = {}
    for column, counts in ones.items():
        cells = np.flatnonzero(counts < _RARE * sigma)
        if cells.size > 1:
            found[column] = tuple(cells.tolist())
    return found


def nearest(
    ones: Mapping[str, FloatArray], pairs: Mapping[Pair, FloatArray]
) -> tuple[dict[str, FloatArray], dict[Pair, FloatArray]]:
    """Changes noisy counts to the nearest ones that are >= 0 and agree with each other.

    That is the least sum of squares, of all cells alike, at the total of :func:`total_of`; mbi's
    models minimise the same. Counts that agree but are below 0 would become 0 in the rows of the
    tree, whose tables then agree no more.

    Args:
        ones, pairs: as for :func:`tree_model`.

    Source: Boyle and Dykstra 1986, "A method for finding projections onto the intersection of
    convex sets in Hilbert spaces": projections in turn, of which that to counts >= 0 is corrected.
    """
    total = max(0.0, total_of(ones))
    if total == 0.0:
        return (
            {column: np.zeros_like(counts) for column, counts in ones.items()},
            {pair: np.zeros_like(counts) for pair, counts in pairs.items()},
        )
    cells = sum(counts.size for counts in (*ones.values(), *pairs.values()))
    taken = dict[Any, FloatArray]()
    before = dict[Any, FloatArray]()
    singles, tables = dict(ones), dict(pairs)
    for _ in range(max(_LEAST_ROUNDS, min(_ROUNDS, _PASSED // cells))):
        singles, tables = agreed(singles, tables, total)
        moved = 0.0
        for of in (singles, tables):
            part: dict[Any, FloatArray] = of
            for key, counts in part.items():
                ahead = counts + taken.get(key, 0.0)
                part[key] = np.maximum(ahead, 0.0)
                taken[key] = ahead - part[key]
                moved = max(moved, float(np.abs(part[key] - before.get(key, 0.0)).max()))
                before[key] = part[key]
        if moved < _STILL:
            break
    least = 1e-9 * total  # what is less is no count, but a rounding error
    return (
        {column: np.where(counts > least, counts, 0.0) for column, counts in singles.items()},
        {pair: np.where(counts > least, counts, 0.0) for pair, counts in tables.items()},
    )


def total_of(ones: Mapping[str, FloatArray]) -> float:
    """Returns the mean of what all columns say of the total, weighed as for equal noise."""
    weights = [1.0 / counts.size for counts in ones.values()]
    sums = [counts.sum() for counts in ones.values()]
    total: float = sum(w * s for w, s in zip(weights, sums, strict=True)) / sum(weights)
    return total


def agreed(
    ones: Mapping[str, FloatArray], pairs: Mapping[Pair, FloatArray], total: float
) -> tuple[dict[str, FloatArray], dict[Pair, FloatArray]]:
    """Changes noisy counts to the nearest ones in which all tables of a column have one marginal.

    That is an orthogonal projection: a marginal is the mean of what all tables say of it, weighed
    as for equal noise in all their cells, and what a table lacks of it, or the marginal of the
    total, is spread evenly over the cells that it is summed from.

    Args:
        ones, pairs: as for :func:`tree_model`.
        total: of each of them.
    """
    found = {}
    for column, counts in ones.items():
        mean, weight = counts, 1.0
        for (left, right), table in pairs.items():
            for one, seen in ((left, table), (right, table.T)):
                if one == column:
                    mean, weight = mean + seen.mean(axis=1), weight + 1.0 / seen.shape[1]
        mean = mean / weight
        found[column] = mean + (total - mean.sum()) / mean.size
    tables = {}
    for (left, right), table in pairs.items():
        rows = table + ((found[left] - table.sum(axis=1)) / table.shape[1])[:, None]
        tables[left, right] = rows + (found[right] - rows.sum(axis=0)) / rows.shape[0]
    return found, tables


def generator_of(seed: Any) -> np.random.Generator:
    """Returns numpy's generator of a seed, for what sees no private row.

    Raises:
        ParameterError: it is no seed.
    """
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise refuse("seed", "be one of numpy's generator, say an integer >= 0", seed) from None


def shares_of(counts: FloatArray) -> FloatArray:
    """Returns the shares of cells: of counts below 0 none, and equal ones where none is left."""
    positive = np.maximum(counts, 0.0)
    total = positive.sum()
    return positive / total if total > 0 else np.full(counts.shape, 1.0 / counts.size)


def spanning(columns: Sequence[str], chosen: Sequence[Pair]) -> list[Pair]:
    """Lists the pairs of columns that the chosen ones do not connect yet."""
    part = {column: {column} for column in columns}
    for one, other in chosen:
        whole = part[one] | part[other]
        part.update(dict.fromkeys(whole, whole))
    return [
        (one, other)
        for i, one in enumerate(columns)
        for other in columns[i + 1 :]
        if other not in part[one]
    ]


def _alike(found: Mapping[str, Codes], names: Sequence[str]) -> Codes:
    """Orders rows by the cells of columns, of which the first come first, so that alike ones meet.

    Columns that make a number of more than 62 bits are left out.
    """
    key: Codes = found[names[0]]
    most = int(key.max(initial=0)) + 1
    for name in names[1:]:
        size = int(found[name].max(initial=0)) + 1
        most *= size
        if most >= 2**62:
            break
        key = key * size + found[name]
    order: Codes = np.argsort(key, kind="stable")
    return order


def _spread(shares: FloatArray, size: int, generator: np.random.Generator) -> Codes:
    """Lists cells, each as often as its share says, rounded up or down, and evenly in the list.

    Which are rounded up is drawn, so that the expected counts are exact; a cell without a share has
    none.
    """
    exact = shares * size
    counts = np.floor(exact).astype(np.int64)
    left, parts = size - int(counts.sum()), exact - counts
    if left > 0:
        ends: NDArray[np.float64] = np.cumsum(parts if parts.any() else shares)
        points = (np.arange(left) + generator.random()) * (ends[-1] / left)
        cells = np.searchsorted(ends, points, side="right")
        np.add.at(counts, np.minimum(cells, int(np.flatnonzero(shares)[-1])), 1)
    listed = np.repeat(np.arange(shares.size), counts)[:size]
    number = np.arange(listed.size) - np.repeat(np.cumsum(counts) - counts, counts)[:size]
    places = (number + generator.random(shares.size)[listed]) / counts[listed]
    found: Codes = listed[np.argsort(places, kind="stable")]
    return found
