"""AIM on private rows: the plan of :func:`aim`, with models that mbi fits to noisy marginals."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, cast

import numpy as np

from tightbudget.errors import CalibrationError, ParameterError
from tightbudget.marginals.calibrate import rho
from tightbudget.marginals.domains import Domain, domains_of
from tightbudget.marginals.marginal_run import MOST_CELLS, MarginalRun, NoisyMarginal
from tightbudget.marginals.mbi_fit import (
    ITERATIONS,
    MEGABYTES,
    MbiModel,
    mbi_model,
    megabytes_of,
)
from tightbudget.marginals.measurements import FIRST, aim
from tightbudget.marginals.paid_run import DIED_CHOOSING, PaidRun, Private, paid_run
from tightbudget.marginals.reach import reach_of, relation_of
from tightbudget.marginals.rows import Clique
from tightbudget.marginals.synthesize import SyntheticTable
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.validate import positive, positive_count, refuse
from tightbudget.output_dp.guarantee import Cell
from tightbudget.release.meter import Meter
from tightbudget.release.noise.noise import Noise
from tightbudget.release.release import Receipt
from tightbudget.workflows.prices import PricedWorkflow
from tightbudget.workflows.workflow import Workflow

# Where each state has a price of its own, the end costs about 5.5 % more than where it has the only
# one (measured, d = 4 to 8); a plan whose end costs this share of epsilon is near enough.
_OWN_PRICES, _NEAR_ENOUGH = 0.945, 0.985
STOPPED = "until(model) is true"
_PLANS = 6  # that are priced before nothing is found


@dataclass(frozen=True, eq=False, repr=False)
class AimMarginals:
    """The noisy marginals that AIM has selected and measured, with their receipt.

    Attributes:
        marginals: the noisy marginals, in the order of their measurement.
        receipt: the amounts held, charged and returned.
        rho: zCDP's scale of all noise.
        ended: the reason why the rounds ended before the plan did; None if they did not.
    """

    marginals: tuple[NoisyMarginal, ...]
    receipt: Receipt
    rho: float
    ended: str | None
    _domains: Mapping[str, Any]
    _model: MbiModel | None

    def model(self, *, iterations: int | None = None, megabytes: float = MEGABYTES) -> MbiModel:
        """Returns the last model, or fits one anew, which costs nothing.

        Args:
            iterations: of a new fit; absent, the model is the last one of the rounds, if that has
                all marginals.
            megabytes: how large a new one may be.

        Raises:
            ParameterError: an argument is refused, or the model would be larger.
            CalibrationError: the fit has not converged.
        """
        if iterations is None and self._model is not None:
            return self._model
        tries = ITERATIONS if iterations is None else iterations
        return mbi_model(self.marginals, self._domains, iterations=tries, megabytes=megabytes)

    def synthesize(
        self, *, size: int | None = None, seed: Any = None, model: MbiModel | None = None
    ) -> SyntheticTable:
        """Draws synthetic rows, which costs nothing.

        Args:
            size: the number of rows; about the number of private ones, by the noisy counts, if
                absent.
            seed: of numpy's generator.
            model: that of :meth:`model` if absent.

        Raises:
            ParameterError: an argument is refused.
            CalibrationError: there was no model yet, and its fit has not converged.
        """
        drawn = (self.model() if model is None else model).draw(size, seed)
        known = domains_of(self._domains)
        return SyntheticTable(drawn, self.marginals, self.receipt, self.rho, known)

    def __repr__(self) -> str:
        ended = "" if self.ended is None else f"; ended early: {self.ended}"
        return (
            f"<AimMarginals: {len(self.marginals)} marginals, rho {self.rho:.6g}; "
            f"charged {self.receipt.charged}{ended}>"
        )


def run_aim(
    rows: Any,
    domains: Mapping[str, Any],
    *,
    epsilon: float,
    delta: float,
    meter: Meter,
    workload: Iterable[Iterable[str]] | None = None,
    unit: str | None = None,
    rows_per_unit: int | None = None,
    relation: Neighbouring | str = Neighbouring.ADD_OR_REMOVE,
    rounds: int | None = None,
    iterations: int = ITERATIONS,
    megabytes: float = MEGABYTES,
    until: Callable[[MbiModel], bool] | None = None,
    keep: str | PathLike[str] | None = None,
    progress: Callable[[float], None] | None = None,
    noise: Noise | None = None,
) -> AimMarginals:
    """Runs AIM: measures marginals one by one, each where a model of those before is far off.

    The models are mbi's, and see noisy marginals alone. The noise is that of the largest rho for
    which :func:`aim` is (epsilon, delta)-DP, whatever decides when it is halved.

    A model that cannot be fitted, and an interrupt while one is fitted, end the rounds, and raise
    nothing: what was measured is in the result, is paid for, and can be fitted again for nothing.

    With ``keep``, a run whose process was killed or interrupted goes on: the same call, in another
    process, takes over its hold, and has its marginals from the file. A measurement that was begun
    and is not in the file is paid for, and lost. A run that was killed while it selected ends. Of a
    run that is over, the call returns the marginals again, and costs nothing.

    Guarantee: the result is (epsilon, delta)-DP for one unit's rows added or removed, and for
    one unit replaced if ``relation`` is "replace-one", as :class:`MarginalRun` says. The meter pays
    at most epsilon and delta.

    Args:
        rows: the private rows, as :class:`MarginalRun` takes them.
        domains: for each column a list of its values or :class:`NumericBins`. Columns without a
            domain are left out.
        epsilon: > 0, nats.
        delta: in (0, 1).
        meter: the budget that pays: a filter, or a budget of a ledger with a key.
        workload: the marginals that the synthetic rows shall have right, each as its columns; all
            pairs of columns if absent. They and all parts of them may be measured.
        unit: the column that names the unit of privacy; None where each row is a unit, or where a
            Table declares it.
        rows_per_unit: how many rows of a unit count; it must be given with a unit, and a Table
            declares it.
        relation: which tables are neighbours, as :class:`MarginalRun` has it.
        rounds: units of rho, as :func:`aim` has them.
        iterations: of each fit.
        megabytes: how large the last model may be; earlier ones may have the share of it that is
            the share of rho spent.
        until: from the model after each round to whether to stop. With it, each state has a price
            of its own, so that whoever stops early gets the rest back; the noise is about 5 %
            larger then, and the prices take minutes to find. Absent, all of epsilon is charged.
        keep: a file for the noisy marginals, and for the token of the run, a secret: it is made, or
            is that of the same run. The meter is then a budget of a ledger with a key. The rows are
            to be the same ones.
        progress: is called after each measurement with the share of rho that is spent.
        noise: the source of the private noise; OpenDP's samplers if None.

    Raises:
        ParameterError: an argument is refused, a column is not there, the marginals of single
            columns do not fit into ``megabytes``, or ``keep`` is the file of another run; nothing
            is charged.
        BudgetError: epsilon or delta does not fit; the rows were not touched.
        CalibrationError: no rho was found; nothing is charged.
        ExtraError: mbi or OpenDP is not installed; nothing is charged.
        SourceError: the table's engine does not answer.
        FileError: the file ``keep`` cannot be read or written.
        FencingError: the file ``keep`` is not of the run that the ledger has under this key.
        SettlementError: the run of this key was begun without the file ``keep``.
        ReleaseError: noise or the engine failed after the start; what was measured is charged, and
            lost without ``keep``. Or the file ``keep`` is of a process that died before it had
            measured anything.

    Source: McKenna, Mullins, Sheldon, Miklau 2022, "AIM: an adaptive and iterative mechanism".
    """
    known, between = domains_of(domains), relation_of(relation)
    weights = _candidates(workload, known)
    iterations, megabytes = positive_count(iterations=iterations), positive(megabytes=megabytes)
    if until is not None and not callable(until):
        raise refuse("until", "say of a model whether to stop", until)
    singles = [(name,) for name in known]
    needed = megabytes_of(known, singles)
    if needed > megabytes:
        raise refuse("megabytes", f"be at least {needed:.3g} for single columns", megabytes)
    if progress is not None and not callable(progress):
        raise refuse("progress", "take the share of rho that is spent", progress)
    units = 16 * len(known) if rounds is None else positive_count(rounds=rounds)
    planned = functools.partial(aim, len(known), rounds=rounds)
    fit = functools.partial(mbi_model, domains=domains, iterations=iterations, megabytes=megabytes)
    asked = {
        "algorithm": "aim",
        "epsilon": epsilon,
        "delta": delta,
        "workload": [[list(clique), weight] for clique, weight in weights.items()],
        "rounds": units,
        "until": until is not None,
    }
    private = Private(rows, domains, meter, unit, rows_per_unit, between, noise)
    with paid_run(
        private,
        lambda rho: planned(rho=rho),
        lambda: _plan(planned, epsilon, delta, until),
        asked=asked,
        known=known,
        keep=keep,
        interactive=until is not None,
    ) as paid:
        measured, ended, run = paid.before, paid.ended, paid.run
        model: MbiModel | None = None
        before: MbiModel | None = None
        if run is None:
            return _result(measured, paid, ended, domains, None)
        fitted = functools.partial(_fitted, fit, run, measured, paid)

        def told() -> None:
            if progress is not None:
                progress(_share(run.state, len(known), units))

        if ended is None and run.state == "start":
            measured += run.measure(singles)
        elif ended is None and len(measured) > len(known):
            # how far the last marginal moves the model decides on the noise of the next one
            before, ended = fitted(slice(-1))
        if ended is None and measured:
            asks = until if len(measured) > len(known) else None  # that is after each round
            model, ended = fitted(warm=before, until=asks, told=told)
        while model is not None and ended is None and run.state != "end":
            if not run.moves:
                ended = DIED_CHOOSING
                break
            annealed = before is not None and _settled(before, model, measured[-1])
            ahead = _round(paid.priced.workflow, run.state, annealed, len(known), units)
            most = megabytes * ahead.share
            # what is within the model makes it no larger
            small = {
                clique: weight
                for clique, weight in weights.items()
                if any({*clique} <= {*there} for there in model.cliques)
                or megabytes_of(known, [*model.cliques, clique]) <= most
            }
            # the 1-norm of the noise that is to come, as is expected
            moves = run.rows_per_unit * math.sqrt(reach_of(run.relation).square)
            of_count = math.sqrt(2.0 / math.pi) * ahead.sigma * moves
            chosen = run.select(
                {clique: model.expected(clique) for clique in small},
                weights=list(small.values()),
                penalties=[
                    of_count * math.prod(known[name].size for name in clique) for clique in small
                ],
                to=ahead.to,
            )
            measured += run.measure([chosen])
            before = model
            model, ended = fitted(warm=before, until=until, told=told)
        paid.end(ended)
    return _result(measured, paid, ended, domains, model)


def _result(
    measured: list[NoisyMarginal],
    paid: PaidRun,
    ended: str | None,
    domains: Mapping[str, Any],
    model: MbiModel | None,
) -> AimMarginals:
    """Returns the marginals of a run that is over.

    Raises:
        ReleaseError: there is none.
    """
    paid.check(measured)
    return AimMarginals(tuple(measured), paid.receipt, paid.rho, ended, domains, model)


def _share(state: Cell, columns: int, units: int) -> float:
    """Returns the share of rho that is spent in a state of :func:`aim` after the columns."""
    if state == "end":
        return 1.0
    *_, spent = cast(tuple[int, ...], state)
    return (FIRST * columns + spent) / units


def _settled(before: MbiModel, model: MbiModel, last: NoisyMarginal) -> bool:
    """Says whether a measurement has moved the model by less than its own noise, as is expected."""
    moved = np.abs(model.expected(last.columns) - before.expected(last.columns)).sum()
    return bool(moved <= math.sqrt(2.0 / math.pi) * last.sigma * last.counts.size)


def _fitted(
    fit: Callable[..., MbiModel],
    run: MarginalRun,
    measured: list[NoisyMarginal],
    paid: PaidRun,
    which: slice = slice(None),
    *,
    warm: MbiModel | None = None,
    until: Callable[[MbiModel], bool] | None = None,
    told: Callable[[], None] | None = None,
) -> tuple[MbiModel | None, str | None]:
    """Keeps what was measured, and fits a model to it; returns that, and a reason to stop.

    It sees noisy marginals alone, so that its failures may be told; what was measured is paid for,
    and must not be lost by one.

    Args:
        fit: fits a model to marginals.
        run: has measured them.
        measured: all marginals.
        paid: makes them durable.
        which: of the marginals those that the model is of.
        warm: a model of earlier ones.
        until: from a model to whether to stop.
        told: is called when the marginals are durable.
    """
    model = None
    try:
        paid.keep(measured)
        if told is not None:
            told()
        model = fit(measured[which], warm=warm)
        if until is not None and run.state != "end" and until(model):
            return model, STOPPED
    except KeyboardInterrupt:
        if paid.kept is not None:  # another process goes on
            raise
        return model, "interrupted"
    except Exception as error:
        return model, f"{type(error).__name__}: {error}"
    return model, None


def _plan(
    plan: Callable[..., Any], epsilon: float, delta: float, until: object
) -> tuple[float, PricedWorkflow]:
    """Returns the largest rho of a plan for a target, with the plan's prices.

    Raises:
        ParameterError: an argument is refused.
        CalibrationError: none was found.
    """
    if until is None:
        largest = rho(lambda rho: plan(rho=rho), epsilon, delta)
        return largest, plan(rho=largest).priced(delta, epsilon)
    target = _OWN_PRICES * positive(epsilon=epsilon)
    best: tuple[float, PricedWorkflow] | None = None
    for _ in range(_PLANS):
        largest = rho(lambda rho: plan(rho=rho), target, delta)
        found = plan(rho=largest).priced(delta)
        share = max(found.prices.values()) / epsilon
        if share <= 1.0:
            if best is None or largest > best[0]:
                best = largest, found
            if share >= _NEAR_ENOUGH:
                break
        target *= 0.997 / share
    if best is None:
        raise CalibrationError(f"no plan was found whose states cost at most {epsilon:g}")
    return best


@dataclass(frozen=True)
class _Round:
    """One round: where its selection leads, the sigma of a count for each row of a unit, the share.

    ``share`` is that of rho which is spent after it.
    """

    to: Cell
    sigma: float
    share: float


def _round(workflow: Workflow, state: Cell, annealed: bool, columns: int, units: int) -> _Round:
    """Returns the next round: one with half the noise if annealed, or the last one.

    A state of :func:`aim` before a round is ("round", units of the round before, units spent).
    """
    _, level, spent = cast(tuple[str, int, int], state)
    of = 4 * level if annealed else level
    known = {move.to for move in workflow.moves[state]}
    last = ("measure", of, spent) not in known
    to: Cell = ("measure last", spent) if last else ("measure", of, spent)
    (gaussian, _), *_ = workflow.moves[to][0].runs.parts
    share = 1.0 if last else (FIRST * columns + spent + of) / units
    assert isinstance(gaussian, Gaussian), "a measurement follows each selection"
    return _Round(to, gaussian.sigma / gaussian.sensitivity, share)


def _candidates(workload: Any, domains: Mapping[str, Domain]) -> dict[Clique, float]:
    """Returns all parts of a workload, each with its weight: how much of the workload it touches.

    Raises:
        ParameterError: the workload is refused.
    """
    names = list(domains)
    if workload is None:
        workload = itertools.combinations(names, min(2, len(names)))
    if isinstance(workload, str | Mapping) or not isinstance(workload, Iterable):
        raise refuse("workload", "be a list of marginals, each a list of columns", workload)
    wanted = dict[Clique, None]()
    for i, one in enumerate(workload):
        if isinstance(one, str) or not isinstance(one, Iterable):
            raise refuse(f"workload[{i}]", "be a list of columns", one)
        clique = tuple(one)
        for column in clique:
            if column not in names:
                raise ParameterError(f"column {column!r} of workload[{i}] has no domain")
        if not clique or len({*clique}) < len(clique):
            raise refuse(f"workload[{i}]", "be one or more different columns", clique)
        cells = math.prod(domains[column].size for column in clique)
        if cells > MOST_CELLS:
            raise ParameterError(
                f"workload[{i}] must have at most {MOST_CELLS:,} cells: {clique} has {cells:,}"
            )
        wanted[tuple(sorted(clique, key=names.index))] = None
    if not wanted:
        raise refuse("workload", "be at least one marginal", workload)
    parts = dict.fromkeys(
        part
        for clique in wanted
        for k in range(1, len(clique) + 1)
        for part in itertools.combinations(clique, k)
    )
    return {part: float(sum(len({*part} & {*one}) for one in wanted)) for part in parts}
