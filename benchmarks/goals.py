"""Questions that have a goal, each asked of a fresh process: seconds, memory, width.

    python benchmarks/goals.py [--out FILE --machine WORDS] [--limit SECONDS]

Seconds are those of the processor from the making of the question to its answer; three processes
are asked, and the median counts. A question of milliseconds is asked twice, and the second counts:
the first loads code. Memory is the peak of the whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import tightbudget as tb
from tightbudget.workflows import Workflow

ROUNDS = 44  # of two kinds: 1,035 states, of which 990 have two moves


def _menu() -> Workflow:
    items = {"noisy": (tb.Gaussian(12.0), ROUNDS), "counts": (tb.Laplace(30.0), ROUNDS)}
    return Workflow.menu(items, rounds=ROUNDS)


def _states() -> tb.Bounds:
    return _menu().delta(2.0, rtol=1e-4)


def _rising() -> tb.Bounds:
    """Prices that rise with the number of rounds."""
    workflow = _menu()
    prices = {state: 0.2 + 0.05 * _depth(state) for state in workflow.order}
    return workflow.delta(prices, rtol=1e-4)


def _depth(state: Any) -> int:
    return sum(n for n in state if isinstance(n, int)) if isinstance(state, tuple) else 0


def _selections(epsilon: float) -> tb.Bounds:
    sampled = tb.Gaussian(1.0).subsampled(0.01) * 1000
    return (tb.ExponentialMechanism(epsilon) * 1000 + sampled).epsilon(1e-6)


def _schedule(rate: float) -> tb.Bounds:
    sigmas = np.linspace(0.8, 2.0, 1000).tolist()
    return tb.compose([tb.Gaussian(s).subsampled(rate) for s in sigmas]).epsilon(1e-6)


def _of(make: Callable[[], Any]) -> Callable[[], tb.Bounds]:
    return lambda: make().epsilon(1e-6)


# what is asked, the goal in seconds, and the question
GOALS: dict[str, tuple[float, Callable[[], tb.Bounds]]] = {
    "workflow of 1,035 states, one price": (10.0, _states),
    "workflow of 1,035 states, prices that rise": (10.0, _rising),
    "1,000 selections of ε = .1, 1,000 sampled Gaussian steps": (2.0, lambda: _selections(0.1)),
    "1,000 selections of ε = .01, 1,000 sampled Gaussian steps": (2.0, lambda: _selections(0.01)),
    "1,000 noises, rate 0.01": (3.0, lambda: _schedule(0.01)),
    "1,000 noises, rate 0.0002": (3.0, lambda: _schedule(0.0002)),
    "1,000 noises, rate 1e-5": (3.0, lambda: _schedule(1e-5)),
    "Laplace b = 20, × 1,024": (0.01, _of(lambda: tb.Laplace(20.0) * 1024)),
    "Laplace b = 5, × 64": (0.01, _of(lambda: tb.Laplace(5.0) * 64)),
    "discrete Gaussian σ = 10, × 256": (0.01, _of(lambda: tb.DiscreteGaussian(10.0) * 256)),
    "discrete Laplace b = 20, × 256": (0.01, _of(lambda: tb.DiscreteLaplace(20.0) * 256)),
    "Gaussian, Laplace and a sampled Gaussian": (
        0.01,
        _of(
            lambda: (
                tb.Gaussian(8.0) * 10
                + tb.Laplace(20.0) * 50
                + tb.Gaussian(1.0).subsampled(0.01) * 1000
            )
        ),
    ),
    "randomized response p = .6, × 100, and Laplace b = 10": (
        0.01,
        _of(lambda: tb.RandomizedResponse(0.6) * 100 + tb.Laplace(10.0)),
    ),
}


def asked(ask: Callable[[], tb.Bounds], goal: float, limit: int) -> dict[str, Any]:
    """The answer, seconds and peak memory of one fresh process."""
    (tb.Gaussian(1.0) * 1).epsilon(0.1)  # what is loaded on first use
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
            if goal < 0.1:
                ask()  # what is loaded on first use would be most of it
            start = time.process_time()
            bounds = ask()
            seconds = time.process_time() - start
            answer = {"answer": bounds.to_dict(), "gap": bounds.relative_gap, "seconds": seconds}
            os.write(writer, json.dumps(answer).encode())
        except tb.TightBudgetError as error:
            os.write(writer, json.dumps({"failure": str(error)[:200]}).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read()
    _, _, used = os.wait4(child, 0)
    answer = json.loads(found) if found else {"failure": f"no answer in {limit} s"}
    return {**answer, "mb": used.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the rows here")
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores", help="the machine in words")
    parser.add_argument("--limit", type=int, default=60, help="CPU seconds for one answer")
    options = parser.parse_args()
    rows = []
    for title, (goal, ask) in GOALS.items():
        answers = [asked(ask, goal, options.limit) for _ in range(3)]
        row = {"title": title, "goal": goal, **answers[0]}
        if all("seconds" in answer for answer in answers):
            row["seconds"] = statistics.median(answer["seconds"] for answer in answers)
        rows.append(row)
        print({name: value for name, value in row.items() if name != "answer"}, flush=True)
        if options.out:
            machine = f"{options.machine}, Python {platform.python_version()}"
            whole = {"machine": machine, "date": date.today().isoformat(), "rows": rows}
            options.out.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
