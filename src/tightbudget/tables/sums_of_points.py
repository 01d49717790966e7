"""Sums of columns of integers from few sums: of points and of squares, each computed once a row.

A column on a grid is a power of p - origin, where p is the point of a row. All columns of one grid
follow from the number of rows, the sum of p - low and one sum of squares, exactly. So a row is
clipped and rounded once, whatever is asked about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.tables.columns import OWN
from tightbudget.tables.rules.expressions import double, floor
from tightbudget.tables.source import OnGrid, Rule

# One part of a sum. No table has 2^41 rows, so that the sum of a part stays within int64.
_PART = 22
# Doubles have all integers up to 2^53.
DOUBLES = 53
ROWS = f"{OWN}rows"


@dataclass(frozen=True)
class SumsOfPoints:
    """The sums that are asked of the rows for some columns, and how these follow from them.

    A number that may be large is cut into parts of 22 bits, in doubles, which are exact for
    integers below 2^53.

    Args:
        columns: the columns that are added up.

    Raises:
        ParameterError: a row may add more than 2^53 to a sum.
    """

    columns: Sequence[OnGrid]

    def __post_init__(self) -> None:
        for column in self.columns:
            low = min(0, column.low - column.origin) if column.power == 1 else 0
            span = column.most - low
            if span > 2**53:
                raise ParameterError(
                    f"step = {column.step} is too fine: a row may add {span} points"
                )

    @property
    def grids(self) -> dict[Any, list[OnGrid]]:
        """The columns of each grid; they look at one column or rule, and differ in their power."""
        found: dict[Any, list[OnGrid]] = {}
        for column in self.columns:
            if column.column is not None:
                found.setdefault(_grid(column), []).append(column)
        return found

    def _numbers(self) -> Iterator[tuple[Any, int, int, OnGrid]]:
        """Yields each number of a row that is added up: its grid, power and bits, and a column."""
        for grid, columns in self.grids.items():
            first = columns[0]
            yield grid, 1, (first.high - first.low).bit_length(), first
            for square in [column for column in columns if column.power == 2][:1]:
                yield grid, 2, square.most.bit_length(), square

    def points(self, made: Callable[[Rule, OnGrid], Any]) -> dict[str, Any]:
        """Returns the expressions of a row: p - low for the points p of each grid, as doubles.

        Args:
            made: from a column or rule and its grid to the expression of its points, a double.
        """
        found = {}
        for i, (first, *_) in enumerate(self.grids.values()):
            assert first.column is not None  # `grids` has no others
            point = made(first.column, first)
            found[f"{OWN}p{i}"] = point - double(first.low) if first.low else point
        return found

    def asked(self, table: Any, *, integers: bool) -> dict[str, Any]:
        """Returns the sums of each part, and the number of rows, as expressions.

        Args:
            table: the rows, with the columns of :meth:`points`.
            integers: sums are those of integers; else those of doubles, which take less time and
                are exact where :meth:`exact` says so.
        """
        sums, grids = {}, list(self.grids)
        for i, (grid, power, bits, column) in enumerate(self._numbers()):
            value = table[f"{OWN}p{grids.index(grid)}"]
            if power == 2:
                if column.low != column.origin:
                    value = value + double(column.low - column.origin)
                value = value * value
            number = _parts(bits)
            for j in range(number):
                part = floor(value * double(2.0 ** (-_PART * j))) if j else value
                if j + 1 < number:
                    above = floor(value * double(2.0 ** (-_PART * (j + 1))))
                    part = part - above * double(2**_PART)
                sums[f"{OWN}s{i}_{j}"] = (part.cast("int64") if integers else part).sum()
        return {**sums, ROWS: table.count()}

    def exact(self, found: Mapping[str, Sequence[Any]]) -> bool:
        """Whether no sum of doubles was rounded: no partial sum can have been beyond 2^53.

        NaN means that an engine takes a column for one without NaN, say by statistics of files.

        Args:
            found: the numbers of :meth:`asked`, each with its values in all groups.
        """
        most = max((min(bits, _PART) for _, _, bits, _ in self._numbers()), default=0)
        rows = max(_integers(found[ROWS]), default=0)
        within = rows <= 2 ** (DOUBLES - most)  # guard: sums-within-doubles
        return within and all(
            value is None or math.isfinite(value) for values in found.values() for value in values
        )

    def answers(self, found: Mapping[str, Sequence[Any]]) -> list[list[int]]:
        """Puts the parts together, exactly, and returns for each group the sum of each column.

        Args:
            found: the numbers of :meth:`asked`, each with its values in all groups.
        """
        rows, whole = _integers(found[ROWS]), dict[Any, list[int]]()
        for i, (grid, power, bits, _) in enumerate(self._numbers()):
            totals = _integers(found[f"{OWN}s{i}_0"])
            for j in range(1, _parts(bits)):
                parts = _integers(found[f"{OWN}s{i}_{j}"])
                totals = [t + (p << (_PART * j)) for t, p in zip(totals, parts, strict=True)]
            whole[grid, power] = totals
        answers, grids = list[list[int]](), self.grids
        for column in self.columns:
            if column.column is None:
                answers.append(rows)
                continue
            grid, apart = _grid(column), column.low - column.origin
            from_low = whole[grid, 1]
            if column.power == 1:
                answers.append([t + n * apart for t, n in zip(from_low, rows, strict=True)])
                continue
            # (p - c)^2 = (p - o)^2 + 2 (o - c) (p - o) + (o - c)^2, and p - o = (p - low) + low - o
            square = next(c for c in grids[grid] if c.power == 2).origin
            apart, low = square - column.origin, column.low - square
            sums = zip(whole[grid, 2], from_low, rows, strict=True)
            answers.append([s + 2 * apart * (t + n * low) + n * apart**2 for s, t, n in sums])
        return [list(group) for group in zip(*answers, strict=True)]


def _integers(values: Sequence[Any]) -> list[int]:
    """Returns sums as integers; a sum over no rows is 0."""
    return [int(value or 0) for value in values]


def _grid(column: OnGrid) -> Any:
    """Names the grid of a column; rules are told apart by their identity."""
    rule = column.column
    return (rule if isinstance(rule, str) else id(rule)), column.low, column.high, column.step


def _parts(bits: int) -> int:
    return max(1, -(-bits // _PART))
