"""The public domains of columns: which cells a marginal has, and in which one a value counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tightbudget.errors import ParameterError
from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import finite, plain, refuse
from tightbudget.release.private_number import FAILURES, double
from tightbudget.tables.cells import NOWHERE

Codes = NDArray[np.int64]


class Domain(Protocol):
    """The cells of a column."""

    @property
    def size(self) -> int:
        """The number of cells."""
        ...

    def codes(self, column: Any) -> Codes:
        """Returns the cell of each value, :data:`NOWHERE` for a value that has none.

        It fails for no value, and no value changes the cell of another one.
        """
        ...

    def values(self, codes: Codes, draws: FloatArray) -> list[Any]:
        """Returns a value of each cell; ``draws`` are uniform numbers in [0, 1)."""
        ...


@dataclass(frozen=True)
class Listed:
    """Cells that are single values; None among them counts what is missing or not listed."""

    cells: tuple[Any, ...]

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.cells)

    def codes(self, column: Any) -> Codes:
        """Returns the cell of each value."""
        known = {value: i for i, value in enumerate(self.cells) if value is not None}
        other = self.cells.index(None) if None in self.cells else NOWHERE
        entries = entries_of(column)
        try:
            found = [known.get(value, other) for value in entries]
        except FAILURES:  # a value that has no hash: each value by itself, to the same cells
            found = [_cell(known, value, other) for value in entries]
        return np.array(found, dtype=np.int64)

    def values(self, codes: Codes, draws: FloatArray) -> list[Any]:
        """Returns the value of each cell."""
        return [self.cells[code] for code in codes.tolist()]


@dataclass(frozen=True)
class NumericBins:
    """Says which ranges of numbers are the cells of a column.

    Cell i has the numbers from ``edges[i]`` up to, and without, ``edges[i + 1]``; the last cell has
    its right edge, too. A synthetic number is drawn uniformly from its cell.

    Args:
        edges: ascending finite numbers, at least two. They must not depend on the private rows.
        other: whether there is one more cell, for numbers beyond the edges and for what is missing
            or no number; it is None in synthetic rows. Without it these rows count in no marginal
            of the column.
        integers: whether synthetic numbers are integers: those in a cell are equally likely. Each
            cell has to have one.

    Raises:
        ParameterError: an argument is refused.
    """

    edges: Sequence[float]
    other: bool = False
    integers: bool = False

    def __post_init__(self) -> None:
        given = np.asarray(self.edges).ravel().tolist()
        edges = tuple(finite(**{f"edges[{i}]": plain(x)}) for i, x in enumerate(given))
        if len(edges) < 2:
            raise refuse("edges", "be at least two numbers", self.edges)
        if any(not low < high for low, high in itertools.pairwise(edges)):
            raise refuse("edges", "ascend", self.edges)
        object.__setattr__(self, "edges", edges)
        for name in ("other", "integers"):
            if getattr(self, name) is not True and getattr(self, name) is not False:
                raise refuse(name, "be True or False", getattr(self, name))
        if self.integers and min(last - first for first, last in self._whole) < 0:
            raise refuse("edges", "have an integer in each cell where integers=True", self.edges)

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.edges) - 1 + self.other

    @property
    def _whole(self) -> list[tuple[int, int]]:
        """The first and the last integer of each cell."""
        ends = [math.ceil(high) - 1 for high in self.edges[1:-1]] + [math.floor(self.edges[-1])]
        return list(zip(map(math.ceil, self.edges[:-1]), ends, strict=True))

    def codes(self, column: Any) -> Codes:
        """Returns the cell of each value, -1 for one that has none.

        Args:
            column: an array or a list.
        """
        kind = getattr(getattr(column, "dtype", None), "kind", "")
        if isinstance(column, np.ndarray) and kind in "biuf":
            numbers = column.astype(np.float64)
        elif kind == "c":
            # one complex number makes the others of its column complex: they keep their cells
            array = np.asarray(column)
            numbers = np.where(array.imag == 0, array.real, np.nan)  # guard: own-cell-alone
        else:
            numbers = np.array([double(value) for value in entries_of(column)], dtype=np.float64)
        edges = np.array(self.edges)
        found = np.searchsorted(edges, numbers, side="right") - 1
        found[numbers == edges[-1]] = edges.size - 2
        beyond = ~((edges[0] <= numbers) & (numbers <= edges[-1]))  # NaN, too
        found[beyond] = edges.size - 1 if self.other else NOWHERE
        return found.astype(np.int64)

    def values(self, codes: Codes, draws: FloatArray) -> list[Any]:
        """Returns a number of each cell, or None.

        Args:
            codes: (n,) cells.
            draws: (n,) uniform numbers in [0, 1), which choose within cells.
        """
        found: list[Any] = []
        for code, draw in zip(codes.tolist(), draws.tolist(), strict=True):
            if code == len(self.edges) - 1:
                found.append(None)
            elif self.integers:
                first, last = self._whole[code]
                found.append(first + int(draw * (last - first + 1)))
            else:
                low, high = self.edges[code : code + 2]
                found.append(min(low + draw * (high - low), high))
        return found


def domains_of(domains: Any) -> dict[str, Domain]:
    """Returns the domain of each column.

    Raises:
        ParameterError: there is no column, or a domain is refused.
    """
    if not isinstance(domains, Mapping) or not domains:
        raise refuse(
            "domains", "map each column to a list of its values, or to NumericBins", domains
        )
    return {name: _domain(f"domains[{name!r}]", given) for name, given in domains.items()}


def _domain(name: str, given: Any) -> Domain:
    """Returns a domain that was given as such, or as a list of values."""
    if isinstance(given, NumericBins):
        return given
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise refuse(name, "be a list of values, or NumericBins", given)
    cells = tuple(plain(value) for value in given)
    if not cells:
        raise refuse(name, "have at least one value", given)
    seen = set[Any]()
    for i, value in enumerate(cells):
        try:
            again = value in seen or value != value
            seen.add(value)
        except (TypeError, ValueError):
            raise refuse(f"{name}[{i}]", "be hashable", value) from None
        if again:
            raise ParameterError(
                f"{name}[{i}] must differ from all before it and be no NaN (None stands for what "
                f"is missing or not listed), got {value!r}"
            )
    return Listed(cells)


def entries_of(column: Any) -> list[Any]:
    """Returns the values of a column as Python's own."""
    kind = column.dtype.kind if isinstance(column, np.ndarray) else ""
    if kind == "m" or (kind == "M" and np.datetime_data(column.dtype)[0] != "D"):
        column = column.astype(column.dtype.str[:2] + "8[us]")  # finer ones would be integers
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _cell(known: Mapping[Any, int], value: Any, other: int) -> int:
    try:
        return known.get(value, other)
    except FAILURES:
        return other
