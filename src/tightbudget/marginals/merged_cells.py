"""Cells of a column that count as one, so that they have the noise of one.

Merging sums the counts of cells. A unit adds v >= 0 to the counts, whose sum is at most its number
of rows k, before and after: so :mod:`tightbudget.marginals.reach` holds for merged counts as it
stands, and a plan has the same price.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tightbudget.errors import ParameterError
from tightbudget.marginals.domains import Codes, Domain
from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import count, plain, refuse

Merged = Mapping[str, tuple[int, ...]]
_Number = TypeVar("_Number", np.int64, np.float64)


def merged_of(given: Any, domains: Mapping[str, Domain]) -> dict[str, tuple[int, ...]]:
    """Returns for each column the cells that count as one, ascending.

    Args:
        given: for some columns two or more of their cells, as places in the domain; None for none.
        domains: of all columns.

    Raises:
        ParameterError: it is something else.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise refuse("merged", "map columns to cells that count as one", given)
    found = {}
    for column, cells in given.items():
        name = f"merged[{column!r}]"
        if column not in domains:
            raise ParameterError(f"{name} must be of a column with a domain")
        if isinstance(cells, str) or not isinstance(cells, Iterable):
            raise refuse(name, "be a list of cells, which are places in the domain", cells)
        places = [count(**{f"{name}[{i}]": plain(cell)}) for i, cell in enumerate(cells)]
        if len({*places}) < max(2, len(places)) or max(places) >= domains[column].size:
            must = f"be two or more different cells, each from 0 to {domains[column].size - 1}"
            raise refuse(name, must, cells)
        found[column] = tuple(sorted(places))
    return found


def merged_shape(shape: Sequence[int], columns: Sequence[str], merged: Merged) -> tuple[int, ...]:
    """Returns the shape of the counts of a marginal after merging."""
    left = (len(merged.get(name, (0,))) - 1 for name in columns)
    return tuple(size - fewer for size, fewer in zip(shape, left, strict=True))


def merged_counts(
    counts: NDArray[_Number], columns: Sequence[str], merged: Merged
) -> NDArray[_Number]:
    """Sums the counts of merged cells: the other cells keep their order, and the sum comes last."""
    for axis, name in enumerate(columns):
        if name in merged:
            cells = list(merged[name])
            whole = counts.take(cells, axis).sum(
                axis=axis, keepdims=True
            )  # guard: merged-rows-once
            counts = np.concatenate([np.delete(counts, cells, axis), whole], axis)
    return counts


def split_counts(
    counts: FloatArray, columns: Sequence[str], merged: Merged, shares: Mapping[str, FloatArray]
) -> FloatArray:
    """Splits the counts of merged cells among their cells.

    Args:
        counts: of a marginal.
        columns: of its axes.
        merged: for each column the cells that count as one.
        shares: for each of these columns the share of each of these cells.
    """
    for axis, name in enumerate(columns):
        if name in merged:
            cells = list(merged[name])
            seen = np.moveaxis(counts, axis, 0)
            whole = np.empty((len(seen) - 1 + len(cells), *seen.shape[1:]))
            whole[others(len(whole), cells)] = seen[:-1]
            whole[cells] = np.multiply.outer(shares[name], seen[-1])
            counts = np.moveaxis(whole, 0, axis)
    return counts


def others(size: int, cells: Iterable[int]) -> Codes:
    """Returns the cells of a column that are not merged, ascending."""
    return np.setdiff1d(np.arange(size), list(cells))
