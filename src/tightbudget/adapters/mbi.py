"""Fits mbi's graphical model to noisy marginals, and draws rows from it.

Columns are numbers here. mbi calculates with doubles, in this thread alone, whatever other code in
the process asks of JAX. Needs mbi.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightbudget.errors import ExtraError
from tightbudget.numerics.rounding import FloatArray

try:
    with warnings.catch_warnings():
        # mbi advises doubles, which it is asked for below, and no cache of programs
        warnings.simplefilter("ignore")
        import jax
        from mbi import Domain, LinearMeasurement, estimation, extensions, junction_tree
except ImportError as error:
    raise ExtraError("the model needs mbi: pip install 'tightbudget[mbi]'") from error

Columns = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A distribution of rows: a product of tables.

    Attributes:
        total: the number of rows, as estimated from the marginals.
        sizes: for each column its number of cells.
        tables: for each table its columns, in the order of its axes, and the logarithms of its
            entries.
        theirs: mbi's own model.
    """

    total: float
    sizes: tuple[int, ...]
    tables: tuple[tuple[Columns, FloatArray], ...]
    theirs: Any

    @property
    def finite(self) -> bool:
        """Whether all numbers of the model are finite."""
        return all(np.isfinite(table).all() for _, table in self.tables)

    def draw(self, rows: int, seed: int) -> dict[int, FloatArray]:
        """Draws rows by mbi's way to round; returns the cells of each column, (rows,).

        Args:
            rows: > 0.
            seed: from 0 to 2^31 - 1.
        """
        with jax.enable_x64(True), _without_advice():
            drawn = extensions.synthetic_data(self.theirs, rows, seed=seed).data
        return {int(name): np.asarray(cells) for name, cells in drawn.items()}


def fitted(
    sizes: Sequence[int],
    marginals: Iterable[tuple[Columns, FloatArray, float]],
    iterations: int,
    warm: FittedModel | None = None,
) -> FittedModel:
    """Fits a model by mirror descent.

    Measurements of one marginal count as one, their weighted mean: that has the same minimum. JAX
    then compiles a program for each set of marginals alone, and not for each measurement, which
    took longer than the steps themselves.

    Args:
        sizes: for each column its number of cells.
        marginals: for each its columns, ascending, its noisy counts, and their standard deviation.
        iterations: steps, rounded up to a multiple of 50.
        warm: a model of earlier marginals, from which the fit starts.
    """
    with jax.enable_x64(True):
        measured = [
            LinearMeasurement(counts, _names(columns), sigma)
            for columns, (counts, sigma) in sorted(_merged(marginals).items())
        ]
        found = estimation.MirrorDescent().estimate(
            _domain(sizes),
            measured,
            iters=iterations,
            warm_start=None if warm is None else warm.theirs,
        )
        tables = tuple(
            (tuple(map(int, names)), np.asarray(found.potentials[names].values))
            for names in found.cliques
        )
        return FittedModel(float(found.total), tuple(sizes), tables, found)


def _merged(
    marginals: Iterable[tuple[Columns, FloatArray, float]],
) -> dict[Columns, tuple[FloatArray, float]]:
    """Returns for each marginal the mean of its measurements, and its standard deviation.

    Each measurement weighs 1 / sigma^2: the sum of squares that mbi minimises is the same then but
    for a constant, and so is its estimate of the number of rows.
    """
    sums: dict[Columns, tuple[FloatArray, float]] = {}
    for columns, counts, sigma in marginals:
        total, weight = sums.get(columns, (np.zeros(counts.size), 0.0))
        sums[columns] = total + np.ravel(counts) / sigma**2, weight + 1.0 / sigma**2
    return {columns: (total / weight, weight**-0.5) for columns, (total, weight) in sums.items()}


def megabytes_of(sizes: Sequence[int], cliques: Iterable[Columns]) -> float:
    """Returns how large a model is that has these marginals, as mbi counts it."""
    wanted = [_names(columns) for columns in cliques]
    return float(junction_tree.hypothetical_model_size(_domain(sizes), wanted))


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Leaves out what mbi logs of its own programs: they are not compiled before they are used."""

    def kept(record: logging.LogRecord) -> bool:
        return "precompile()" not in str(record.msg)

    root = logging.getLogger()
    root.addFilter(kept)
    try:
        yield
    finally:
        root.removeFilter(kept)


def _domain(sizes: Sequence[int]) -> Any:
    return Domain([str(i) for i in range(len(sizes))], list(sizes))


def _names(columns: Columns) -> tuple[str, ...]:
    return tuple(map(str, columns))
