"""A model of a table that mbi fits to noisy marginals; nothing here sees a private row."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightbudget.errors import CalibrationError, ParameterError
from tightbudget.marginals.domains import Domain, domains_of
from tightbudget.marginals.marginal_run import NoisyMarginal
from tightbudget.marginals.merged_cells import merged_of, merged_shape
from tightbudget.marginals.rows import Clique
from tightbudget.marginals.synthesize import MOST_ROWS, checked_size, whole_counts
from tightbudget.marginals.tree_model import generator_of
from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import positive, positive_count, refuse

ITERATIONS, MEGABYTES = 1000, 80.0  # as in mbi's own AIM


@dataclass(frozen=True, eq=False, repr=False)
class MbiModel:
    """A distribution of rows that mbi has fitted to noisy marginals; :func:`mbi_model` makes it.

    Attributes:
        marginals: the noisy marginals.
    """

    marginals: tuple[NoisyMarginal, ...]
    _fitted: Any
    _domains: Mapping[str, Domain]

    @property
    def total(self) -> float:
        """The number of rows, about, that the marginals speak of."""
        total: float = self._fitted.total
        return total

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The columns of each factor of the model."""
        names = list(self._domains)
        return tuple(tuple(names[i] for i in columns) for columns, _ in self._fitted.tables)

    def expected(self, columns: Iterable[str]) -> FloatArray:
        """Returns the expected counts of a marginal, with the shape that measured ones have.

        Args:
            columns: its columns, in the order of the axes.

        Raises:
            ParameterError: a column has no domain, or is named twice.
        """
        places = _places(tuple(columns), self._domains)
        model = self._fitted
        return self.total * shares_of_columns(model.tables, places, model.sizes)

    def draw(self, size: int | None = None, seed: Any = None) -> dict[str, list[Any]]:
        """Draws rows, by mbi's way to round: few of their counts are far from the model's.

        Args:
            size: the number of rows; about ``total`` if absent.
            seed: of numpy's generator.

        Returns:
            for each column its values.

        Raises:
            ParameterError: an argument is refused.
        """
        generator = generator_of(seed)
        rows = min(round(self.total), MOST_ROWS) if size is None else checked_size(size)
        order, own = generator.permutation(rows), int(generator.integers(2**31))
        codes = self._fitted.draw(max(1, rows), own)  # mbi draws one row at least
        return {
            name: domain.values(codes[i][order].astype(np.int64), generator.random(rows))
            for i, (name, domain) in enumerate(self._domains.items())
        }

    def __repr__(self) -> str:
        return (
            f"<MbiModel: {len(self._domains)} columns, {len(self.marginals)} marginals, "
            f"{self.total:,.0f} rows>"
        )


def mbi_model(
    marginals: Sequence[NoisyMarginal],
    domains: Mapping[str, Any],
    *,
    iterations: int = ITERATIONS,
    megabytes: float = MEGABYTES,
    warm: MbiModel | None = None,
) -> MbiModel:
    """Fits mbi's graphical model to noisy marginals, by mirror descent.

    It sees what was released, and costs nothing; a fit can be repeated.

    Args:
        marginals: as :class:`MarginalRun` has measured them. The count of merged cells is split
            among them by the column's own marginal, and evenly if there is none.
        domains: of the table's columns, as there.
        iterations: steps of mirror descent, rounded up to a multiple of 50.
        megabytes: how large the model may be, as mbi counts it.
        warm: a model of earlier marginals of the same columns, from which the fit starts.

    Raises:
        ParameterError: an argument is refused, or the model would be larger.
        CalibrationError: the fit has not converged: numbers of the model are not finite.
        ExtraError: mbi is not installed.
    """
    known = domains_of(domains)
    iterations = positive_count(iterations=iterations)
    megabytes = positive(megabytes=megabytes)
    given = tuple(marginals)
    if not given or any(not isinstance(one, NoisyMarginal) for one in given):
        raise refuse("marginals", "be one or more marginals that were measured", marginals)
    for i, one in enumerate(given):
        _check(i, one, known)
    measured = [_measured(one, whole_counts(one, given), known) for one in given]
    needed = megabytes_of(known, [one.columns for one in given])
    if needed > megabytes:
        raise ParameterError(
            f"megabytes must be at least {needed:.3g} for a model of these marginals, "
            f"got {megabytes:g}"
        )
    fitted = adapter().fitted(
        _sizes(known), measured, iterations, None if warm is None else warm._fitted
    )
    if not fitted.finite:
        raise CalibrationError(
            f"the model of {len(given)} marginals has not converged in {iterations} "
            "iterations: its numbers are not finite"
        )
    return MbiModel(given, fitted, known)


def adapter() -> Any:
    """Returns the module that knows mbi.

    Raises:
        ExtraError: mbi is not installed.
    """
    return importlib.import_module("tightbudget.adapters.mbi")


def megabytes_of(domains: Mapping[str, Domain], cliques: Iterable[Clique]) -> float:
    """Returns how large a model of some marginals is, as mbi counts it.

    Raises:
        ExtraError: mbi is not installed.
    """
    wanted = [tuple(sorted(_places(clique, domains))) for clique in cliques]
    size: float = adapter().megabytes_of(_sizes(domains), wanted)
    return size


def shares_of_columns(
    tables: Sequence[tuple[tuple[int, ...], FloatArray]],
    wanted: Sequence[int],
    sizes: Sequence[int],
) -> FloatArray:
    """Sums a product of tables over all columns but the wanted ones, and normalises it.

    mbi compiles a program for each marginal that it is asked for, which takes longer than a fit.

    Args:
        tables: for each its columns, in the order of its axes, and the logarithms of its entries.
        wanted: the columns of the result, in the order of its axes.
        sizes: of all columns.
    """
    left = [*tables, *(((i,), np.zeros(sizes[i])) for i in wanted)]
    out = {i for columns, _ in left for i in columns} - {*wanted}
    while out:
        near = {i: {j for columns, _ in left if i in columns for j in columns} for i in out}
        # the column whose sum has the smallest table comes first
        column = min(out, key=lambda i: (sum(np.log(sizes[j]) for j in near[i]), i))
        within = [table for table in left if column in table[0]]
        left = [table for table in left if column not in table[0]]
        axes = (*sorted(near[column] - {column}), column)
        product = _product(within, axes)
        largest = product.max(axis=-1)
        left.append((axes[:-1], largest + np.log(np.exp(product - largest[..., None]).sum(-1))))
        out.remove(column)
    product = _product(left, tuple(wanted))
    shares: FloatArray = np.exp(product - product.max())
    shares /= shares.sum()
    return shares


def _product(
    tables: Iterable[tuple[tuple[int, ...], FloatArray]], axes: tuple[int, ...]
) -> FloatArray:
    """Adds logarithms, each broadcast to these axes."""
    total: FloatArray = np.zeros((1,) * len(axes))
    for columns, table in tables:
        there = [axis for axis in axes if axis in columns]
        turned = np.transpose(table, [columns.index(axis) for axis in there])
        shape = iter(turned.shape)
        total = total + turned.reshape([next(shape) if a in columns else 1 for a in axes])
    return total


def _places(columns: Sequence[str], domains: Mapping[str, Domain]) -> tuple[int, ...]:
    """Returns the place of each column among the domains.

    Raises:
        ParameterError: it has none, or is named twice.
    """
    names = list(domains)
    for name in columns:
        if name not in names:
            raise ParameterError(f"column {name!r} has no domain")
    if len({*columns}) < len(columns) or not columns:
        raise refuse("columns", "be one or more different ones", columns)
    return tuple(names.index(name) for name in columns)


def _check(i: int, one: NoisyMarginal, domains: Mapping[str, Domain]) -> None:
    """Refuses a marginal of other domains.

    Raises:
        ParameterError: it is one.
    """
    _places(one.columns, domains)
    merged = merged_of(one.merged, {name: domains[name] for name in one.columns})
    shape = merged_shape([domains[name].size for name in one.columns], one.columns, merged)
    if one.counts.shape != shape:
        raise refuse(f"marginals[{i}].counts", f"have the shape {shape}", one.counts.shape)


def _measured(
    one: NoisyMarginal, counts: FloatArray, domains: Mapping[str, Domain]
) -> tuple[tuple[int, ...], FloatArray, float]:
    """Returns a marginal with its columns in the order of the domains."""
    places = _places(one.columns, domains)
    return tuple(sorted(places)), np.transpose(counts, np.argsort(places)), one.sigma


def _sizes(domains: Mapping[str, Domain]) -> list[int]:
    return [domain.size for domain in domains.values()]
