"""A report on a synthetic table: its errors, what it cost, and what came back."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tightbudget import notebook
from tightbudget.drawing import draw_points
from tightbudget.errors import ParameterError
from tightbudget.marginals.domains import Codes, Domain
from tightbudget.marginals.merged_cells import Merged
from tightbudget.marginals.rows import Clique
from tightbudget.numerics.validate import refuse
from tightbudget.release.release import Receipt
from tightbudget.tables.cells import NOWHERE

_WAYS = (1, 2, 3)
_HEAD = ("columns", "marginals", "mean", "largest", "of")
_MEASURED, _PUBLIC = "noisy marginals that were measured", "all marginals of public rows"


@dataclass(frozen=True, eq=False, repr=False)
class MarginalReport:
    """The errors of a synthetic table, and its price; :meth:`SyntheticTable.report` makes it.

    An error is a total variation distance between shares of cells: 0 for equal ones, at most 1.

    Attributes:
        size: the number of synthetic rows.
        rho: zCDP's scale of all noise.
        receipt: the amounts held, charged and returned.
        distances: of the synthetic rows from each noisy marginal.
        errors: of all one-, two- and three-way marginals, from public rows; empty without them.
        merged: for each column of which pairs count several cells as one, these cells, as places in
            its domain.
    """

    size: int
    rho: float
    receipt: Receipt
    distances: Mapping[Clique, float]
    errors: Mapping[Clique, float]
    merged: Merged = field(default_factory=dict)

    def to_markdown(self) -> str:
        """Writes the report in Markdown: the price, and a table of errors by number of columns."""
        lines = [f"Synthetic table: {self.size:,} rows. {self._price()}."]
        if self.merged:
            of = ", ".join(f"{len(cells)} of {name}" for name, cells in self.merged.items())
            lines += ["", f"Rare cells that pairs count as one: {of}."]
        for title, errors in self._parts():
            lines += ["", f"Distance from {title}:", "", f"| {' | '.join(_HEAD)} |"]
            lines += ["| --: | --: | --: | --: | --- |"]
            lines += [f"| {' | '.join(row)} |" for row in _rows(errors)]
        return "\n".join(lines) + "\n"

    def plot(self, ax: Any = None) -> Any:
        """Draws each error as a point over the number of its columns.

        They are those from the public rows; without these, from the noisy marginals.

        Args:
            ax: matplotlib axes to draw on; new ones if absent.

        Returns:
            The axes.

        Raises:
            ExtraError: matplotlib is not installed.
        """
        *_, (title, errors) = self._parts()
        groups = {
            f"{ways} column{'s' * (ways > 1)}": [
                error for clique, error in errors.items() if len(clique) == ways
            ]
            for ways in sorted({len(clique) for clique in errors})
        }
        return draw_points(groups, f"distance from {title}", ax=ax)

    def _parts(self) -> Iterator[tuple[str, Mapping[Clique, float]]]:
        yield _MEASURED, self.distances
        if self.errors:
            yield _PUBLIC, self.errors

    def _price(self) -> str:
        return f"Held {self.receipt.held}; charged {self.receipt.charged}; rho {self.rho:.6g}" + (
            f"; returned {self.receipt.returned}" if self.receipt.returned.amount > 0 else ""
        )

    def __repr__(self) -> str:
        means = ", ".join(
            f"{statistics.fmean(errors.values()):.4f} from {title}"
            for title, errors in self._parts()
        )
        return f"<MarginalReport: {self.size:,} rows; mean distances {means}>"

    def _repr_html_(self) -> str:
        """Writes the receipt and the tables of errors, for a notebook."""
        tables = [
            notebook.table(_rows(errors), head=_HEAD, title=f"distance from {title}")
            for title, errors in self._parts()
        ]
        return notebook.shown(self._price(), *tables)


def _rows(errors: Mapping[Clique, float]) -> list[tuple[str, ...]]:
    """Returns for each number of columns how far its marginals are, and which is farthest."""
    found: list[tuple[str, ...]] = []
    for ways in sorted({len(clique) for clique in errors}):
        of = {clique: error for clique, error in errors.items() if len(clique) == ways}
        most = max(of, key=of.__getitem__)
        mean, largest = statistics.fmean(of.values()), of[most]
        found.append((str(ways), f"{len(of):,}", f"{mean:.4f}", f"{largest:.4f}", ", ".join(most)))
    return found


def errors_of(
    columns: Mapping[str, Any], public_rows: Any, domains: Mapping[str, Domain]
) -> dict[Clique, float]:
    """Returns how far all marginals of up to three columns are from those of public rows.

    Args:
        columns: the synthetic values of each column.
        public_rows: a frame, or a dictionary of arrays.
        domains: of the columns.

    Raises:
        ParameterError: the public rows have not all columns, or no row.
    """
    drawn: dict[str, Codes] = {}
    true: dict[str, Codes] = {}
    for name, domain in domains.items():
        try:
            column = public_rows[name]
            true[name] = domain.codes(column)
        except (KeyError, TypeError, IndexError, AttributeError):
            raise ParameterError(
                f"public_rows must be a frame, or a dictionary of arrays, with a column {name!r}"
            ) from None
        drawn[name] = domain.codes(columns[name])
    lengths = {len(codes) for codes in true.values()}
    if len(lengths) > 1 or lengths == {0}:
        raise refuse("public_rows", "have columns of one length, at least 1", sorted(lengths))
    return {
        clique: _distance(*([of[name] for name in clique] for of in (drawn, true)))
        for ways in _WAYS
        for clique in itertools.combinations(domains, ways)
    }


def _distance(drawn: list[Codes], true: list[Codes]) -> float:
    """Returns the total variation distance of the shares of two sets of cells.

    A row with a value in no cell is left out. Of no rows, no cell has a share.
    """
    both = []
    for codes in (drawn, true):
        cells = np.stack(codes, axis=1)
        both.append(cells[(cells != NOWHERE).all(axis=1)])
    _, places = np.unique(np.concatenate(both), axis=0, return_inverse=True)
    places = places.ravel()
    shares = []
    for own in (places[: len(both[0])], places[len(both[0]) :]):
        counts = np.bincount(own, minlength=int(places.max(initial=0)) + 1)
        shares.append(counts / max(1, counts.sum()))
    return float(np.abs(shares[0] - shares[1]).sum() / 2.0)
