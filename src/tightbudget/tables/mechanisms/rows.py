"""The rows and the public keys that a mechanism on a table asks for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.tables import columns
from tightbudget.tables.source import Contribution, Key, OnGrid, Source
from tightbudget.tables.table import Table, check_column


def column_names(by: str | tuple[str, ...]) -> tuple[str, ...]:
    """Returns the columns that name a group.

    Raises:
        ParameterError: there is none, or one is named twice.
    """
    names = (by,) if isinstance(by, str) else tuple(by)
    if not names or len(set(names)) < len(names):
        raise refuse("by", "name one column, or several different ones", by)
    return names


def public_keys(table: Table, by: str | tuple[str, ...]) -> tuple[tuple[str, ...], list[Key]]:
    """Returns the columns that name a group, and all keys that the table declares for them.

    Raises:
        ParameterError: a column has no public keys, is named twice, or has a key of another type.
    """
    names, domains = column_names(by), []
    for name in names:
        domain = table.domain(name)  # refuses a column without one
        check_column(table.source, "by", name)
        # a derived column may have taken the place of the one that had these keys
        domains.append(columns.public_keys(table.columns, name, domain))
    return names, list(domains[0]) if len(names) == 1 else list(itertools.product(*domains))


def grouped(
    source: Source,
    contribution: Contribution,
    by: Sequence[str],
    sums: Sequence[OnGrid],
    keys: Sequence[Key],
) -> list[list[int]]:
    """Asks for the sums of each public key, in the order of the keys; zeros where none occur.

    A key that was not asked for does not count. It would mean that the engine holds values for
    equal that Python tells apart, which the form of columns excludes; an error here would tell
    that such a record is there.
    """
    found = source.groups(contribution, by, sums, keys=keys)
    nothing = [0] * max(1, len(sums))
    return [found.get(key, nothing) for key in keys]


def as_it_is(answer: Any) -> Any:
    """Returns the answer of a scan as it is: the query of a mechanism that is told the answer."""
    return answer


def root_up(n: int) -> Fraction:
    """Returns the square root of an integer, rounded up."""
    return Fraction(math.isqrt(n * 2**64 - 1) + 1, 2**32)


def both_ends(grid: OnGrid) -> tuple[OnGrid, OnGrid]:
    """Returns the distance of a column from its low end, and minus that from its high end.

    The first minus the second is the width of the grid in each row: so a row adds exactly the
    width to both of their sums together, in the 1-norm, and at most the width in the 2-norm.
    """
    low, high = grid.low, grid.high
    ends = (
        OnGrid(column=grid.column, low=low, high=high, step=grid.step, origin=origin)
        for origin in (low, high)
    )
    first, second = ends
    return first, second


def whole_range(grid: OnGrid, part: float) -> float:
    """Returns the number at a part of the way from the low end of a grid to its high end.

    Args:
        grid: the grid.
        part: of the way; less than 0 counts as 0, and more than 1 as 1.
    """
    part = min(max(part, 0.0), 1.0)
    return (grid.low + (grid.high - grid.low) * part) * grid.step


def check_width(grid: OnGrid, *, bits: int) -> int:
    """Returns the number of points from one end of a grid to the other.

    Raises:
        ParameterError: it has more than so many bits.
    """
    width = grid.high - grid.low
    if width.bit_length() > bits:
        raise ParameterError(
            f"step must be coarser: the bounds are {width} points apart, "
            f"and this mechanism takes at most 2^{bits}"
        )
    return width
