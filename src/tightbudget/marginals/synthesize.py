"""Synthetic rows by MST: one-way marginals, a spanning tree of selected pairs, their marginals."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from tightbudget import tabular
from tightbudget.errors import FileError, ParameterError
from tightbudget.marginals.calibrate import rho
from tightbudget.marginals.domains import Domain, domains_of
from tightbudget.marginals.marginal_run import MOST_CELLS, MarginalRun, NoisyMarginal
from tightbudget.marginals.measurements import mst
from tightbudget.marginals.merged_cells import Merged, merged_counts, split_counts
from tightbudget.marginals.paid_run import DIED_CHOOSING, DIED_MEASURING, Private, paid_run
from tightbudget.marginals.reach import relation_of
from tightbudget.marginals.report import MarginalReport, errors_of
from tightbudget.marginals.rows import Clique
from tightbudget.marginals.tree_model import (
    Pair,
    generator_of,
    rare_cells,
    shares_of,
    spanning,
    total_of,
    tree_model,
)
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import count, refuse
from tightbudget.release.meter import Meter
from tightbudget.release.noise.noise import Noise
from tightbudget.release.release import Receipt
from tightbudget.workflows.prices import PricedWorkflow

MOST_ROWS = 10**8  # of a synthetic table: a noisy number of rows does not fill the memory


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticTable:
    """Synthetic rows, with the noisy marginals that they were drawn from, and the receipt.

    Attributes:
        columns: for each column its synthetic values.
        marginals: the noisy marginals: of all columns, then of the selected pairs.
        receipt: the amounts held and charged.
        rho: zCDP's scale of all noise.
        ended: the reason why the run ended before its plan did; None if it did not.
    """

    columns: Mapping[str, list[Any]]
    marginals: tuple[NoisyMarginal, ...]
    receipt: Receipt
    rho: float
    _domains: Mapping[str, Domain]
    ended: str | None = None

    @property
    def size(self) -> int:
        """The number of synthetic rows."""
        return len(next(iter(self.columns.values())))

    @property
    def pairs(self) -> tuple[Clique, ...]:
        """The pairs of columns that were selected."""
        return tuple(one.columns for one in self.marginals if len(one.columns) == 2)

    def counts(self, columns: Iterable[str]) -> FloatArray:
        """Returns the noisy counts of a marginal, with a place for each cell of its columns.

        Where cells were merged, their count is split among them by the column's own noisy counts;
        :attr:`NoisyMarginal.counts` has it as it was measured.

        Args:
            columns: of the marginal, in the order in which it was measured.

        Raises:
            ParameterError: it was not measured.
        """
        wanted = tuple(columns)
        for one in self.marginals:
            if one.columns == wanted:
                return whole_counts(one, self.marginals)
        raise refuse("columns", "be those of a marginal that was measured", wanted)

    def frame(self) -> Any:
        """The synthetic rows as a ``pandas.DataFrame``.

        Raises:
            ExtraError: pandas is not installed.
        """
        return tabular.frame(self.columns)

    def distances(self) -> dict[Clique, float]:
        """Returns for each noisy marginal how far the synthetic rows are from it.

        That is the total variation distance between their shares of cells, where a noisy count
        below 0 counts as 0. It sees no private row, and costs nothing.
        """
        found = {}
        for one in self.marginals:
            noisy = self.counts(one.columns)
            shape = noisy.shape
            codes = [self._domains[name].codes(self.columns[name]) for name in one.columns]
            cells = np.ravel_multi_index(tuple(codes), shape)
            drawn = np.bincount(cells, minlength=noisy.size).astype(np.float64)
            both = shares_of(drawn), shares_of(noisy.ravel())
            found[one.columns] = float(np.abs(both[0] - both[1]).sum() / 2.0)
        return found

    def report(self, public_rows: Any = None) -> MarginalReport:
        """Says how far the rows are from the noisy marginals, what they cost, and what came back.

        Args:
            public_rows: rows that are public, with these columns; the errors of all one-, two- and
                three-way marginals are then those from them. Never the private rows: these errors
                are no private answer, and nobody pays for them.

        Raises:
            ParameterError: the public rows have not all columns, or no row.
        """
        errors = {} if public_rows is None else errors_of(self.columns, public_rows, self._domains)
        merged = {name: cells for one in self.marginals for name, cells in one.merged.items()}
        return MarginalReport(self.size, self.rho, self.receipt, self.distances(), errors, merged)

    def __repr__(self) -> str:
        return (
            f"<SyntheticTable: {self.size:,} rows, {len(self.columns)} columns, "
            f"rho {self.rho:.6g}; charged {self.receipt.charged}>"
        )


def synthesize(
    rows: Any,
    domains: Mapping[str, Any],
    *,
    epsilon: float,
    delta: float,
    meter: Meter,
    unit: str | None = None,
    rows_per_unit: int | None = None,
    relation: Neighbouring | str = Neighbouring.ADD_OR_REMOVE,
    size: int | None = None,
    seed: Any = None,
    keep: str | PathLike[str] | None = None,
    noise: Noise | None = None,
) -> SyntheticTable:
    """Draws synthetic rows by MST, at the exact price of what it selects and measures.

    It measures all one-way marginals; selects pairs of columns that form a tree, by the 1-norm of
    what lies between their marginal and the product of the one-way ones; measures the selected
    pairs; and draws rows from the tree, in which each column depends on one other. The noise is
    that of the largest rho for which :func:`mst` is (epsilon, delta)-DP.

    Cells of a column whose noisy count is below three sigma are rare. If there are several, pairs
    count them as one (:attr:`NoisyMarginal.merged`), and rows of it are split among them by the
    column's own noisy counts.

    Guarantee: the result is (epsilon, delta)-DP for one unit's rows added or removed, and for
    one unit replaced if ``relation`` is "replace-one", as :class:`MarginalRun` says. The meter pays
    epsilon, and at most delta. Which quality the rows have, nobody promises.

    Args:
        rows: the private rows: a :class:`tb.Table`, whose engine counts them; a
            ``pandas.DataFrame``; or a dictionary of arrays.
        domains: for each column, two at least, a list of its values or :class:`NumericBins`; see
            :class:`MarginalRun`. Columns without a domain are left out.
        epsilon: > 0, nats.
        delta: in (0, 1).
        meter: the budget that pays: a filter, or a budget of a ledger with a key.
        unit: the column that names the unit of privacy; None where each row is a unit, or where a
            Table declares it.
        rows_per_unit: how many rows of a unit count; it must be given with a unit, and a Table
            declares it.
        relation: which tables are neighbours, as :class:`MarginalRun` has it.
        size: the number of synthetic rows, at most 10^8; about the number of private ones, by the
            noisy counts, if absent.
        seed: of numpy's generator, which draws the rows from the model. The private noise has none.
        keep: a file for the noisy marginals, and for the token of the run, a secret: it is made, or
            is that of the same run. The meter is then a budget of a ledger with a key. The rows are
            to be the same ones.
        noise: the source of the private noise; OpenDP's samplers if None.

    Raises:
        ParameterError: an argument is refused, a column is not there, a pair of columns has more
            than 2^22 cells, or ``keep`` is the file of another run; nothing is charged.
        BudgetError: epsilon or delta does not fit; the rows were not touched.
        CalibrationError: no rho was found; nothing is charged.
        ExtraError: no noise is given, and OpenDP is not installed.
        SourceError: the table's engine does not answer.
        FileError: the file ``keep`` cannot be read or written.
        FencingError: the file ``keep`` is not of the run that the ledger has under this key.
        SettlementError: the run of this key was begun without the file ``keep``.
        ReleaseError: noise or the engine failed after the start; epsilon and delta are charged. Or
            the file ``keep`` is of a process that died before it had measured anything.

    Source: McKenna, Miklau, Sheldon 2021, "Winning the NIST contest".
    """
    known, between = domains_of(domains), relation_of(relation)
    if len(known) < 2:
        raise refuse("domains", "name at least two columns", list(known))
    large = sorted(known, key=lambda name: -known[name].size)[:2]
    cells = math.prod(known[name].size for name in large)
    if cells > MOST_CELLS:
        raise ParameterError(
            f"domains must have at most {MOST_CELLS:,} cells for each pair of columns: "
            f"{tuple(large)} has {cells:,}"
        )
    if size is not None:
        checked_size(size)
    generator_of(seed)  # what is no seed is refused before the charge
    plan = functools.partial(mst, len(known))

    def prices() -> tuple[float, PricedWorkflow]:
        largest = rho(plan, epsilon, delta)
        return largest, plan(largest).priced(delta, epsilon)

    private = Private(rows, domains, meter, unit, rows_per_unit, between, noise)
    asked = {"algorithm": "mst", "epsilon": epsilon, "delta": delta}
    with paid_run(
        private, plan, prices, asked=asked, known=known, keep=keep, interactive=False
    ) as paid:
        found, ended, run = paid.before, paid.ended, paid.run
        if run is not None and ended is None:
            try:
                if run.state == paid.priced.workflow.start:
                    found += run.measure([(name,) for name in known])
                    paid.keep(found)
                if found and run.moves:
                    merged = _rare(found)
                    tree = _tree(run, known, found, merged)
                    found += run.measure(tree, merged=merged)
                    paid.keep(found)
            except FileError as error:  # what was measured is paid for, and is in the result
                ended = str(error)
            if len(found) == len(known) and ended is None:
                last = not paid.priced.workflow.moves[run.state]
                ended = DIED_MEASURING if last else DIED_CHOOSING
            paid.end(ended)
    paid.check(found)
    ones, pairs = found[: len(known)], found[len(known) :]
    if ended is None and not pairs:  # a line of the file is damaged
        ended = f"{keep} has not all marginals"
    counts = {one.columns[0]: one.counts for one in ones}
    joint = {(one.columns[0], one.columns[1]): one.counts for one in pairs}
    merged = {name: cells for one in pairs for name, cells in one.merged.items()}
    model = tree_model(counts, joint, merged)
    drawn = min(round(max(0.0, total_of(counts))), MOST_ROWS) if size is None else size
    columns = model.draw(drawn, known, seed)
    return SyntheticTable(columns, tuple(found), paid.receipt, paid.rho, known, ended)


def whole_counts(one: NoisyMarginal, others: Iterable[NoisyMarginal]) -> FloatArray:
    """Returns the counts of a marginal in all cells of its columns.

    Args:
        one: the marginal.
        others: marginals, among which those of single columns say how the count of merged cells is
            split; evenly without them.
    """
    shares = {name: np.full(len(cells), 1.0 / len(cells)) for name, cells in one.merged.items()}
    for single in others:
        name = single.columns[0]
        if len(single.columns) == 1 and name in shares and not single.merged:
            shares[name] = shares_of(single.counts[list(one.merged[name])])
    return split_counts(one.counts, one.columns, one.merged, shares)


def checked_size(size: Any) -> int:
    """Accepts a number of synthetic rows that may be drawn.

    Raises:
        ParameterError: it is no integer from 0 to 10^8.
    """
    rows = count(size=size)
    if rows > MOST_ROWS:
        raise refuse("size", f"be at most {MOST_ROWS:,} rows", size)
    return rows


def _rare(ones: Sequence[NoisyMarginal]) -> dict[str, tuple[int, ...]]:
    """Returns for each column the cells that its noisy marginal shows to be rare."""
    return rare_cells({one.columns[0]: one.counts for one in ones}, ones[0].sigma)


def _tree(
    run: MarginalRun, known: Mapping[str, Domain], ones: Sequence[NoisyMarginal], merged: Merged
) -> list[Pair]:
    """Selects pairs of columns that form a tree."""
    counts = {one.columns[0]: one.counts for one in ones}
    total = max(0.0, total_of(counts))
    shares = {name: shares_of(merged_counts(of, (name,), merged)) for name, of in counts.items()}
    chosen: list[Pair] = []
    while ahead := spanning(list(known), chosen):
        models: dict[Clique, Any] = {
            (a, b): total * np.outer(shares[a], shares[b]) for a, b in ahead
        }
        one, other = run.select(models, merged=merged)
        chosen.append((one, other))
    return chosen
