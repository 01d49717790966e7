"""Many digits: the saddle-point engine beside the buckets and two neighbours, in one process.

    python benchmarks/digits.py [--quick] [--no-peers] [--runs N] [--out FOLDER]

For each question the median time of both certified bounds at rtol = 1e-9, the gap reached and who
answered; the median time of the buckets at rtol = 1e-4 for the same question, which is what
decides which engine is asked first; and the neighbours' times. A full run writes digits.json
beside this file.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from report import digits
from run import HERE, _limit, _machine, _OutOfTimeError, _timed, save
from workloads import _TWENTY, _calibrated_sigma, _gaussian

import tightbudget as tb
from tightbudget.engine.buckets.refine import refine
from tightbudget.engine.question import EpsilonAt

RTOL = 1e-9
LIMIT = 20.0  # seconds for one call of a neighbour
MEMORY = 8 * 2**30  # bytes for the whole process
PEERS_FROM = 1e-15  # smaller deltas are below what the neighbours' transforms resolve
DELTAS = (1e-5, 1e-15, 1e-50)
PLANS = [
    [(4.0, 0.01, 65_536)],
    [(2.0, 0.25, 200)],
    [(1.0, 0.01, 100_000)],
    [(1.0, 0.01, 1_000)],
    [(1.5, 1e-4, 10_000_000)],
    [(1.5, 1e-4, 1_000_000)],
    [(0.8, 0.001, 10_000)],
    [(100.0, 1.0, 10_000)],
    _TWENTY,
]


@dataclass(frozen=True)
class Question:
    """One row: what is asked of us, and of each neighbour."""

    title: str
    delta: float
    ours: Callable[[], Any]
    plan: list[tuple[float, float, int]] | None = None  # whose eps is asked for
    dp_accounting: Callable[[], float] | None = None
    prv_accountant: Callable[[], float] | None = None


def _composition(plan: list[tuple[float, float, int]]) -> tb.Composition:
    steps = [(tb.Gaussian(sigma=sigma), rate, k) for sigma, rate, k in plan]
    return tb.compose([(g if q == 1.0 else g.subsampled(rate=q)) * k for g, q, k in steps])


def _dp_accounting(plan: list[tuple[float, float, int]], delta: float) -> float:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    event = dp_accounting.ComposedDpEvent([_gaussian(dp_accounting, *part) for part in plan])
    return float(PLDAccountant().compose(event).get_epsilon(delta))


def _prv_accountant(plan: list[tuple[float, float, int]], delta: float) -> float:
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    prvs = [PoissonSubsampledGaussianMechanism(q, noise_multiplier=s) for s, q, _ in plan]
    runs = [k for _, _, k in plan]
    accountant = PRVAccountant(
        prvs=prvs, max_self_compositions=runs, eps_error=0.01, delta_error=1e-3 * delta
    )
    return float(accountant.compute_epsilon(delta, runs)[2])


def _by_buckets(plan: list[tuple[float, float, int]], delta: float) -> tb.Bounds:
    return refine(EpsilonAt(delta), _composition(plan).engine.parts, 1e-4).bounds


def _epsilon(plan: list[tuple[float, float, int]], delta: float) -> Question:
    sigma, rate, runs = plan[0]
    one = f"σ = {sigma:g}, q = {rate:g}, × {runs:,}"
    return Question(
        f"ε, {one}" if len(plan) == 1 else f"ε, {len(plan)} different settings",
        delta,
        lambda: _composition(plan).epsilon(delta, RTOL),
        plan,
        lambda: _dp_accounting(plan, delta),
        None if rate == 1.0 else lambda: _prv_accountant(plan, delta),
    )


def _curve() -> tb.Curve:
    deltas = np.geomspace(1e-3, 1e-30, 200)
    return _composition(PLANS[0]).curve(deltas=[float(delta) for delta in deltas], rtol=RTOL)


def _calibrated(epsilon: float) -> tb.Bounds:
    return tb.calibrate(
        lambda sigma: _composition([(sigma, 0.01, 10_000)]), epsilon=epsilon, delta=1e-6
    ).epsilon


QUESTIONS = [
    *(_epsilon(plan, delta) for plan in PLANS for delta in DELTAS),
    Question("curve of 200 points, σ = 4, q = 0.01, × 65,536", 1e-30, _curve),
    *(
        Question(
            f"calibrate σ for ε = {epsilon:g}, q = 0.01, × 10,000",
            1e-6,
            lambda epsilon=epsilon: _calibrated(epsilon),
            dp_accounting=_calibrated_sigma(0.01, 10_000, epsilon, 1e-6),
        )
        for epsilon in (1.0, 0.01)
    ),
]


def _measured(ask: Callable[[], Any] | None, runs: int) -> dict[str, Any]:
    if ask is None:
        return {}
    try:
        with _limit(LIMIT):
            seconds, answer = _timed(ask, runs)
    except _OutOfTimeError:
        return {"failure": f"> {1e3 * LIMIT:.0f}"}
    except Exception as error:
        return {"failure": type(error).__name__}
    row: dict[str, Any] = {"ms": 1e3 * seconds}
    if isinstance(answer, tb.Curve):
        row["gap"] = max(answer[i].relative_gap for i in range(len(answer)))
    elif isinstance(answer, tb.Bounds):
        row |= {"epsilon": answer.to_dict(), "gap": answer.relative_gap}
    else:
        row["answer"] = answer
    return row


def _row(question: Question, runs: int, peers: bool) -> dict[str, Any]:
    ours = _measured(question.ours, runs)
    row = {"title": question.title, "delta": question.delta, "ours": ours}
    plan = question.plan
    if plan is not None:
        try:
            row["engine"] = _composition(plan).explain(delta=question.delta, rtol=RTOL).engine
        except tb.PrecisionError:
            row["engine"] = "refused"
        row["two_masses"] = _measured(lambda: _by_buckets(plan, question.delta), min(runs, 3))
    if peers and question.delta >= PEERS_FROM:
        row["dp_accounting"] = _measured(question.dp_accounting, 1)
        row["prv_accountant"] = _measured(question.prv_accountant, 1)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one call each")
    parser.add_argument("--no-peers", action="store_true", help="tightbudget alone")
    parser.add_argument("--runs", type=int, default=5, help="calls that a median is taken of")
    parser.add_argument("--out", type=Path, help="folder for digits.json")
    options = parser.parse_args()
    runs = 1 if options.quick else options.runs
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    QUESTIONS[0].ours()  # what loads on first use is nobody's cost
    results = {
        "machine": _machine(),
        "dp_accounting": None if options.no_peers else version("dp-accounting"),
        "prv_accountant": None if options.no_peers else version("prv-accountant"),
        "runs": runs,
        "rtol": RTOL,
        "rows": [_row(question, runs, not options.no_peers) for question in QUESTIONS],
    }
    text = digits(results)
    print(text)
    folder = options.out or (None if options.quick or options.no_peers else HERE)
    if folder:
        save(folder, "digits", results)


if __name__ == "__main__":
    main()
