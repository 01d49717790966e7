"""Counts the groups of half of the units, and releases the counts if the other half agrees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import non_negative, plain_numbers
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.release.mechanisms.additive import LaplaceRelease
from tightbudget.release.mechanisms.tested import GatedRelease
from tightbudget.release.noise.noise import IntArray, Noise
from tightbudget.tables.mechanism import Plan
from tightbudget.tables.mechanisms.bases import Filtered, InGroups, RowsOrUnits
from tightbudget.tables.mechanisms.rows import as_it_is, grouped, public_keys
from tightbudget.tables.source import HALF, Contribution, Key
from tightbudget.tables.table import Table

Counted = dict[Key, int] | None


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class GatedCounts(Filtered[Counted], RowsOrUnits[Counted], InGroups[Counted]):
    """Counts groups in half of the units, and releases the counts if the other half agrees.

    A keyed hash puts each unit into the training half or the test half. The groups of the training
    half are counted with Laplace noise. These noisy counts are released if their distance from the
    counts of the test half, in the 1-norm and with noise, is at most the threshold. The value of a
    release is a dictionary from each public key to its noisy count among the training half, or None
    with the cell "bottom". One scan counts both halves.

    Guarantee: {"value": the larger of epsilon and test_epsilon, "bottom": the less of that and
    test_epsilon}, delta = 0, for tables of which one has all rows of one unit more. The key of the
    hash does not depend on the data, and a unit is in one half. There it moves the counts by at
    most r in the 1-norm: r is ``rows_per_unit`` for rows, and ``groups_per_unit`` for units. So it
    moves the distance by at most r: as a unit of the test half, and, with the same noise on the
    counts, as a unit of the training half. :class:`GatedRelease` answers.
    Source: Hartmann et al. 2022, section 6, Theorem 17.

    Args:
        epsilon: > 0, nats, of the counts.
        threshold: the largest distance that passes, in rows or units; it is public.
        test_epsilon: > 0, nats, of the test.

    Raises:
        ParameterError: a parameter is refused.
    """

    __test__ = False  # pytest would collect it by its name

    epsilon: Price
    threshold: float
    test_epsilon: Price

    answered_by = (GatedRelease,)

    def __post_init__(self) -> None:
        non_negative(threshold=self.threshold)
        super().__post_init__()

    @cached_property
    def guarantee(self) -> OutputDP:
        """The prices of the output cells "value" and "bottom"."""
        return self._inner(1, 1).guarantee

    def plan(self, table: Table) -> Plan:
        """Plans one count for each public key and half; a unit moves those of one half."""
        if table.unit is None:
            raise ParameterError(
                "the table must have a unit, whose name puts it into a half: give Table(unit=)"
            )
        rows, (by, keys) = self._source(table), public_keys(table, self.by)
        in_halves = [(half, *_parts(key, by)) for half in (0, 1) for key in keys]

        def scan(contribution: Contribution) -> tuple[list[int], list[int]]:
            source = rows.with_half(contribution)
            found = grouped(source, contribution, (HALF, *by), self._columns, in_halves)
            counts = [count for (count,) in found]
            return counts[: len(keys)], counts[len(keys) :]

        # guard: tested-counts-moves
        moves = table.rows if self.of == "rows" else table.groups
        return Plan(
            scan=scan,
            mechanism=self._inner(len(keys), moves),
            value=lambda noisy: (
                None if noisy is None else dict(zip(keys, noisy.tolist(), strict=True))
            ),
            sensitivity=float(moves),
        )

    def _inner(self, size: int, moves: int) -> GatedRelease[IntArray]:
        """Returns the mechanism that answers from two vectors of so many counts."""
        counted = LaplaceRelease(as_it_is, moves, self.epsilon, size=size, integers=True)

        def train(counts: list[int], noise: Noise) -> IntArray:
            noisy, _ = counted.unpaid_answer(counts, noise)
            assert isinstance(noisy, np.ndarray)  # it has a size
            return noisy.astype(np.int64, copy=False)

        def distance(noisy: IntArray, counts: list[int]) -> int:
            return sum(abs(x - y) for x, y in zip(noisy.tolist(), counts, strict=True))

        return GatedRelease(
            train,
            self.epsilon,
            distance,
            self.threshold,
            self.test_epsilon,
            by_test=moves,
            by_training=moves,
        )


def _parts(key: Key, by: tuple[str, ...]) -> tuple[Key, ...]:
    """Returns a key of so many columns as a tuple."""
    return tuple(key) if len(by) > 1 else (key,)
