"""Selects and measures marginals of private rows, as a plan declares it, and pays for that."""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import TracebackType
from typing import Any

import numpy as np

from tightbudget.errors import ParameterError, RelationError, SettlementError
from tightbudget.marginals.domains import domains_of
from tightbudget.marginals.gaussian_on_grid import with_noise
from tightbudget.marginals.merged_cells import Merged, merged_counts, merged_of, merged_shape
from tightbudget.marginals.reach import reach_of, relation_of
from tightbudget.marginals.rows import Clique, Counts, Rows, rows_of
from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.exponential import ExponentialMechanism
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.validate import finite, positive, refuse
from tightbudget.output_dp.guarantee import Cell
from tightbudget.output_dp.transactions import Uncopied, held
from tightbudget.release.mechanisms.exponential import ExponentialRelease
from tightbudget.release.meter import Meter
from tightbudget.release.noise.noise import Noise, noise_or_default
from tightbudget.release.release import Receipt, guarded
from tightbudget.release.workflow_run import WorkflowRun
from tightbudget.workflows.prices import PricedWorkflow
from tightbudget.workflows.workflow import Move, Workflow

MOST_CELLS = 2**22  # of one marginal: 32 MB of counts
# Expected counts are rounded to multiples of 2^-8 and counts are at most 2^31, so that an error, a
# sum of at most MOST_CELLS differences, is an integer below 2^63.
_PART, _LARGEST = 2**8, 2**31


@dataclass(frozen=True, eq=False)
class NoisyMarginal:
    """The noisy counts of the cells of one marginal.

    Attributes:
        columns: the columns, in the order of the axes of ``counts``.
        counts: for each cell the number of rows in it, with noise; cells are in the order of the
            columns' domains. Where cells of a column are merged, they are left out, and the last
            cell of the column counts them all.
        sigma: the standard deviation of the noise of each count.
        merged: for each column of which cells are merged, these cells, as places in its domain.
    """

    columns: Clique
    counts: FloatArray
    sigma: float
    merged: Merged = field(default_factory=dict)


class MarginalRun(Uncopied):
    """Selects and measures marginals of private rows, and pays for what a plan's moves declare.

    Entered with ``with``, it holds the price of the costliest state, and charges at the end of the
    block the state that was reached, as :class:`tb.release.WorkflowRun` does; so it goes on after
    a crash, too, if it is ``resumable``.

    Two tables are neighbours if one has all rows of the other, and all rows of one unit more; with
    ``relation="replace-one"``, also if they differ in the rows of one unit. The noise of
    :meth:`measure` and the chances of :meth:`select` follow from the plan, from ``rows_per_unit``
    and from what is asked, as :mod:`tightbudget.marginals.reach` proves: no sensitivity is handed
    in.

    A value that is missing or not in its column's domain counts in the cell None, if the domain has
    one; otherwise its row counts in no marginal of that column. So no value is refused. The types
    of a Table's columns are public: a domain whose values are of another type is refused.

    Guarantee: whoever sees all answers, and chooses by them what is asked next and when to stop,
    pays with ``priced``'s price of the state reached, under its delta. Noise is that of
    :mod:`tightbudget.marginals.gaussian_on_grid`, and choices are exact.

    Args:
        priced: the plan with its prices; :meth:`Measurements.priced` makes it.
        rows: the private rows: a :class:`tb.Table`, whose engine counts them; a
            ``pandas.DataFrame``; or a dictionary of arrays.
        domains: for each column a list of its values, in which None stands for all others, or
            :class:`NumericBins`. They are public, and must not depend on the rows.
        meter: the budget that pays: a filter, or a budget of a ledger with a key.
        unit: the column that names the unit of privacy, say a person; None where each row is a
            unit. A row whose unit is missing is a unit of its own; one whose unit has no hash, say
            a list, counts in no marginal. A Table declares it in place of this argument.
        rows_per_unit: how many rows of a unit count: the first ones, or those that a Table chooses
            at random, once for the run. It must be given with a unit; a Table declares it.
        relation: which tables are neighbours, :attr:`Neighbouring.ADD_OR_REMOVE` or
            :attr:`Neighbouring.REPLACE_ONE`, or its name. For the latter, noise is 2^(1/2) times as
            large, and a score moves twice as far; the result is private for both.
        noise: the source of noise; OpenDP's samplers if None.
        interactive: whether, before the run ends, anybody sees its answers. If not, several runs
            may be open on one meter.
        resumable: whether another process may go on with the run; see
            :class:`tb.release.WorkflowRun`.

    Raises:
        ParameterError: an argument is refused, or a column is not there; nothing is charged.
        RelationError: the plan's mechanisms were declared for another relation.
        ExtraError: no noise is given, and OpenDP is not installed.
    """

    def __init__(
        self,
        priced: PricedWorkflow,
        rows: Any,
        domains: Mapping[str, Any],
        *,
        meter: Meter,
        unit: str | None = None,
        rows_per_unit: int | None = None,
        relation: Neighbouring | str = Neighbouring.ADD_OR_REMOVE,
        noise: Noise | None = None,
        interactive: bool = True,
        resumable: bool = False,
    ) -> None:
        self._domains, self._relation = domains_of(domains), relation_of(relation)
        self._rows: Rows | None = rows_of(rows, self._domains, unit, rows_per_unit)
        self._most = self._rows.most
        self._noise = noise_or_default(noise)
        self._run = WorkflowRun(priced, meter, interactive=interactive, resumable=resumable)
        _check_relation(priced.workflow, self._relation)
        self._process, self._lock = os.getpid(), threading.Lock()
        self._due = Counter[Mechanism]()  # of the last move, what has not run yet
        self._answers: list[NoisyMarginal] = []

    def reserve(self) -> None:
        """Reserves the price before the run is entered; see :class:`tb.release.WorkflowRun`.

        Raises:
            BudgetError: the price does not fit; nothing was charged.
            SettlementError: the run was entered before, or is not resumable; or another interactive
                mechanism is open on the meter.
            SourceError: the table's engine does not answer; nothing was charged.
        """
        if self._rows is not None:
            self._rows.check()
        self._run.reserve()

    def __enter__(self) -> MarginalRun:
        """Reserves the price of the costliest state, and starts the run.

        Raises:
            BudgetError: the price does not fit; nothing was charged.
            SettlementError: the run was entered before, or another interactive mechanism is open on
                the meter; a state was loaded, and its run is over.
            FencingError: a state was loaded whose token is not that of its run.
            SourceError: the table's engine does not answer; nothing was charged.
        """
        if self._rows is not None:
            self._rows.check()
        self._run.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the run, charges the state that was reached, and lets go of the private rows.

        Raises:
            SettlementError: this process is a fork of the one that opened the run.
            FencingError: another process has gone on with the run; nothing is settled by this one.
        """
        self._rows = None
        self._run.__exit__(kind, error, trace)

    @property
    def state(self) -> Cell:
        """The state of the plan that the run has reached."""
        return self._run.state

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves of this state; none at an end, or where this process may not go on."""
        return self._run.moves

    @property
    def due(self) -> tuple[tuple[Mechanism, int], ...]:
        """The mechanisms of the last move that have not run yet, each with how many of its runs."""
        return tuple((mechanism, runs) for mechanism, runs in self._due.items() if runs)

    @property
    def marginals(self) -> tuple[NoisyMarginal, ...]:
        """The marginals that this process has measured, in their order."""
        return tuple(self._answers)

    @property
    def rows_per_unit(self) -> int:
        """The number of rows of a unit that count."""
        return self._most

    @property
    def relation(self) -> Neighbouring:
        """The relation between tables for which the noise is enough."""
        return self._relation

    @property
    def receipt(self) -> Receipt:
        """The receipt of the run: the amounts held, charged and returned.

        Raises:
            SettlementError: the run has not ended.
        """
        return self._run.receipt

    def measure(
        self,
        cliques: Iterable[Iterable[str]],
        *,
        weights: Sequence[float] | None = None,
        merged: Mapping[str, Iterable[int]] | None = None,
        to: Cell | None = None,
    ) -> tuple[NoisyMarginal, ...]:
        """Counts the rows in each cell of some marginals, with the noise of one Gaussian mechanism.

        The plan says what all these marginals together may cost. Marginal i has noise of sigma
        ``rows_per_unit * s / w_i``, where s is the mechanism's sigma over its sensitivity, and w_i
        is its weight after all are scaled such that the sum of w_i^2 is 1. Where a unit is
        replaced, it is 2^(1/2) times that.

        Args:
            cliques: the marginals, each as its columns. They must not depend on the rows but by
                what this run has released.
            weights: for each marginal a number > 0; all are equal if absent.
            merged: for some columns two or more cells, as places in their domains, that count as
                one here, with the noise of one count: say those that a one-way marginal shows to
                be rare. They must not depend on the rows but by what this run has released. The
                price and the noise are the same.
            to: the state to go to, where several moves measure.

        Raises:
            ParameterError: an argument is refused, a marginal has more than 2^22 cells, or the plan
                has no measurement here; nothing was run.
            SettlementError: no run is open.
            FencingError: another process has gone on with the run.
            SourceError: the table's engine does not answer; nothing was run.
            ReleaseError: noise or the engine failed after the start; the move is charged.
        """
        wanted = self._cliques("cliques", cliques)
        squares = [weight**2 for weight in _weights(weights, len(wanted))]
        joined = merged_of(merged, self._domains)
        rows, noise = self._open_rows(), self._noise
        gaussian = self._take(Gaussian, "a measurement", to)
        multiplier = Fraction(gaussian.sigma) / Fraction(gaussian.sensitivity)
        # the square of how far a unit moves each marginal, in the 2-norm
        moves = self._most**2 * reach_of(self._relation).square
        most = moves * multiplier**2 * sum(squares)  # guard: noise-of-all-marginals

        def measured() -> list[NoisyMarginal]:
            found = []
            all_counts = rows.counts(wanted, self._sizes(wanted))
            for clique, counts, square in zip(wanted, all_counts, squares, strict=True):
                own = {name: joined[name] for name in clique if name in joined}
                whole = merged_counts(counts.reshape(self._shape(clique)), clique, own)
                noisy, sigma = with_noise(whole.ravel(), most / square, noise)
                found.append(NoisyMarginal(clique, noisy.reshape(whole.shape), sigma, own))
            return found

        answers = guarded(measured)
        self._answers += answers
        return tuple(answers)

    def select(
        self,
        models: Mapping[Clique, Any],
        *,
        weights: Sequence[float] | None = None,
        penalties: Sequence[float] | None = None,
        merged: Mapping[str, Iterable[int]] | None = None,
        to: Cell | None = None,
    ) -> Clique:
        """Chooses a marginal that a model is far from, by one exponential mechanism.

        The score of a marginal is its weight times (the 1-norm of what lies between the rows'
        counts and the model's, minus its penalty). A unit moves it by at most the weight times
        ``rows_per_unit``, twice that where it is replaced, up or down: the scores are not monotone.

        Args:
            models: for each candidate, a tuple of columns, the expected counts of its cells, of
                the shape that :attr:`NoisyMarginal.counts` has. They must not depend on the rows
                but by what this run has released. They count as multiples of 2^-8, up to 2^31.
            weights: for each candidate a number > 0; 1 if absent.
            penalties: for each candidate a number; 0 if absent.
            merged: cells that count as one, as :meth:`measure` has them; expected counts have the
                shape that counts then have.
            to: the state to go to, where several moves select.

        Returns:
            The candidate that was chosen.

        Raises:
            ParameterError: an argument is refused, a marginal has more than 2^22 cells, or the plan
                has no selection here; nothing was run.
            SettlementError: no run is open.
            FencingError: another process has gone on with the run.
            SourceError: the table's engine does not answer; nothing was run.
            ReleaseError: noise or the engine failed after the start; the move is charged.
        """
        if not isinstance(models, Mapping):
            raise refuse("models", "map each candidate to its expected counts", models)
        wanted = self._cliques("models", models)
        joined = merged_of(merged, self._domains)
        expected = {
            clique: _rounded(
                f"models[{clique!r}]", given, merged_shape(self._shape(clique), clique, joined)
            )
            for clique, given in zip(wanted, models.values(), strict=True)
        }
        factors = _weights(weights, len(wanted))
        biases = [Fraction(0)] * len(wanted) if penalties is None else _penalties(penalties, wanted)
        rows, noise = self._open_rows(), self._noise
        exponential = self._take(ExponentialMechanism, "a selection", to)
        reach = reach_of(self._relation).total
        moves = max(factors) * self._most * reach  # guard: scores-of-all-rows-of-a-unit
        chooses = ExponentialRelease(
            scores=lambda scores: scores,
            candidates=wanted,
            epsilon=Fraction(exponential.epsilon),
            sensitivity=moves,
        )

        def selected() -> Clique:
            all_counts = rows.counts(wanted, self._sizes(wanted))
            errors = []
            for clique, counts in zip(wanted, all_counts, strict=True):
                whole = merged_counts(counts.reshape(self._shape(clique)), clique, joined)
                errors.append(_error(whole.ravel(), expected[clique]))
            scores = [f * (e - b) for f, e, b in zip(factors, errors, biases, strict=True)]
            answer: Clique = chooses.unpaid_answer(scores, noise)[0]
            return answer

        return guarded(selected)

    def state_dict(self) -> dict[str, Any]:
        """Returns what another process needs to go on; see :class:`tb.release.WorkflowRun`.

        The marginals are not in it: keep them beside it.
        """
        return self._run.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over the run of a process that is no more, before the run is entered.

        Args:
            state: what :meth:`state_dict` has returned there.
        """
        self._run.load_state_dict(state)

    def end(self) -> Receipt:
        """Settles a run whose state was loaded, without more moves, in place of entering it."""
        self._rows = None
        return self._run.end()

    def _open_rows(self) -> Rows:
        if self._rows is None:
            raise SettlementError("the run has ended")
        if os.getpid() != self._process:  # what is due here is due in the other process, too
            raise SettlementError("a run goes on in the process that has begun it: this is a fork")
        self._rows.check()
        return self._rows

    def _take(self, kind: type[Any], what: str, to: Cell | None) -> Any:
        """Takes a mechanism of a kind from the last move, or from a next one, which is begun.

        Raises:
            ParameterError: there is none, or there are several.
        """
        with held(self._lock):
            return self._taken(kind, what, to)

    def _taken(self, kind: type[Any], what: str, to: Cell | None) -> Any:
        due = [mechanism for mechanism, _ in self.due if isinstance(mechanism, kind)]
        if not due or to is not None:
            moves = [
                move
                for move in self._run.moves
                if to in (None, move.to) and any(isinstance(m, kind) for m, _ in move.runs.parts)
            ]
            if len(moves) > 1:
                ends = ", ".join(repr(move.to) for move in moves)
                raise ParameterError(f"to must name one of several states, {ends}, got {to!r}")
            if moves:
                move = moves[0]
            else:
                known = ", ".join(f"{m.runs} to {m.to!r}" for m in self._run.moves[:6]) or "none"
                there = "" if to is None else f" to {to!r}"
                raise ParameterError(
                    f"state {self.state!r} must have {what}{there} as its next move, got {known}"
                )
            self._due = Counter(dict(self._run.go(move.to, move.runs).parts))
            due = [mechanism for mechanism, _ in self.due if isinstance(mechanism, kind)]
        self._due[due[0]] -= 1  # guard: each-run-once
        return due[0]

    def _sizes(self, cliques: Sequence[Clique]) -> list[int]:
        return [math.prod(self._shape(clique)) for clique in cliques]

    def _shape(self, clique: Clique) -> tuple[int, ...]:
        return tuple(self._domains[name].size for name in clique)

    def _cliques(self, name: str, given: Any) -> list[Clique]:
        """Returns marginals that can be counted.

        Raises:
            ParameterError: one of them cannot, or there is none.
        """
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise refuse(name, "be a list of marginals, each a list of columns", given)
        found: list[Clique] = []
        for i, one in enumerate(given):
            if isinstance(one, str) or not isinstance(one, Iterable):
                raise refuse(f"{name}[{i}]", "be a list of columns", one)
            clique = tuple(one)
            if not clique or len({*clique}) < len(clique):
                raise refuse(f"{name}[{i}]", "be one or more different columns", clique)
            for column in clique:
                if column not in self._domains:
                    raise ParameterError(f"column {column!r} of {name}[{i}] has no domain")
            cells = math.prod(self._shape(clique))
            if cells > MOST_CELLS:  # guard: marginal-fits-memory
                raise ParameterError(
                    f"{name}[{i}] must have at most {MOST_CELLS:,} cells: {clique} has {cells:,}"
                )
            if clique in found:
                raise refuse(f"{name}[{i}]", "differ from all before it", clique)
            found.append(clique)
        if not found:
            raise refuse(name, "be at least one marginal", given)
        return found


def _check_relation(workflow: Workflow, relation: Neighbouring) -> None:
    """Refuses a plan whose mechanisms were declared for another relation.

    Raises:
        RelationError: that is so.
    """
    for moves in workflow.moves.values():
        for mechanism, _ in itertools.chain.from_iterable(move.runs.parts for move in moves):
            if mechanism.relation not in (None, relation):  # guard: relation-of-the-plan
                raise RelationError(
                    f"relation must be {mechanism.relation.value}, which {mechanism!r} of the plan "
                    f"was declared for, got {relation.value}"
                )


def _error(counts: Counts, expected: Counts) -> Fraction:
    """Returns the 1-norm of the difference; ``expected`` is in parts of a count."""
    whole = np.abs(np.minimum(counts, _LARGEST) * _PART - expected).sum()
    return Fraction(int(whole), _PART)


def _rounded(name: str, given: Any, shape: tuple[int, ...]) -> Counts:
    """Returns expected counts in parts of a count.

    Raises:
        ParameterError: they are no numbers, or have another shape.
    """
    try:
        counts = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise refuse(name, "be an array of numbers", given) from None
    if counts.shape not in (shape, (math.prod(shape),)):
        raise refuse(name, f"have the shape {shape}", counts.shape)
    if not np.isfinite(counts).all():
        raise refuse(name, "be finite", given)
    return np.rint(np.clip(counts, -_LARGEST, _LARGEST) * _PART).astype(np.int64).ravel()


def _weights(weights: Sequence[float] | None, n: int) -> list[Fraction]:
    if weights is None:
        return [Fraction(1)] * n
    if len(weights) != n:
        raise refuse("weights", f"be {n} numbers, one for each marginal", weights)
    return [Fraction(positive(**{f"weights[{i}]": w})) for i, w in enumerate(weights)]


def _penalties(penalties: Sequence[float], wanted: Sequence[Clique]) -> list[Fraction]:
    if len(penalties) != len(wanted):
        raise refuse("penalties", f"be {len(wanted)} numbers, one for each candidate", penalties)
    return [Fraction(finite(**{f"penalties[{i}]": p})) for i, p in enumerate(penalties)]
