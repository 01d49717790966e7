"""Run-length lists: a column of many equal numbers, as its different numbers and their counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.numerics.rounding import FloatArray
from tightbudget.release.columns import column
from tightbudget.release.noise.noise import IntArray

# Sums of 2^41 records of 21 bits, the halves of a point, stay within int64.
_MOST = 2**41


@dataclass(frozen=True, eq=False)
class RunLengths:
    """A column of numbers as a run-length list: its values, and how many records have each.

    It is private data, as the column would be. Order statistics take it in place of a column, and
    answer in the time of its length: so 10^9 records of 1,000 different values take as long as
    1,000 values. The time of a run tells about the length of the list. So the number of different
    values should be public, or the list should have an entry for each point of a public grid.

    Args:
        values: (d,) numbers in any order, as a column of a mechanism on data.
        counts: (d,) integers >= 0, how many records have each of the values; at most 2^41 together.

    Attributes:
        total: the number of records, which is public where neighbours differ in one record's value.

    Raises:
        ParameterError: values or counts have another type or shape, a count is negative, or there
            are more than 2^41 records. The message shows no number.
    """

    values: Any = field(repr=False)
    counts: Any = field(repr=False)
    total: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        values, counts = column(values=self.values), np.asarray(self.counts)
        if counts.dtype.kind not in "iu" and counts.size:
            raise ParameterError("counts must be a column of integers, got something else")
        if counts.shape != values.shape:
            raise ParameterError("counts must have an entry for each of the values")
        if (counts < 0).any():
            raise ParameterError("counts must be integers >= 0, got a negative one")
        if counts.sum(dtype=np.float64) > _MOST:  # doubles add integers up to 2^53 exactly
            raise ParameterError("counts must be at most 2^41 together")
        # copies that nobody can change: what was counted is what a mechanism gets
        for name, array in (("values", values), ("counts", counts.astype(np.int64))):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "total", int(self.counts.sum()))


def counted_column(data: Any) -> tuple[FloatArray, IntArray | None]:
    """Reads a column, or a run-length list, as values and the number of records of each value.

    Returns:
        (d,) values, and (d,) counts, or None if each value is one record.

    Raises:
        ParameterError: the data are neither; no value is shown.
    """
    if isinstance(data, RunLengths):
        return data.values, data.counts
    return column(data=data), None
