"""How much faster a sweep is on several processes, on a machine that does nothing else.

    python benchmarks/sweep.py [--cells N] [--workers 1 2 ...]

Calibrations of DP-SGD over rates, epochs and targets. For each number of workers the seconds on
the clock, with the start of the processes; the seconds of all processors together; and both
relative to one worker. On a busy machine the second column says what the first would be: work
that is not done twice, on so many cores.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

import tightbudget as tb

PLAN = [{"mechanism": "gaussian", "sigma": "$sigma", "rate": "$rate", "times": "$runs"}]


def grid(cells: int) -> list[tb.Question]:
    over = {
        "rate": [0.01, 0.02, 0.05, 0.1],
        "runs": [1_000, 3_000],
        "epsilon": np.geomspace(0.3, 8.0, max(1, cells // 8)),
    }
    return tb.questions(PLAN, over, find="sigma", epsilon="$epsilon", delta=1e-6)


def measured(questions: list[tb.Question], workers: int) -> tuple[tb.Sweep, float, float]:
    """The answers, the seconds, and the seconds of all processors."""
    before, start = os.times(), time.perf_counter()
    found = tb.sweep(questions, workers)
    seconds, after = time.perf_counter() - start, os.times()
    return found, seconds, sum(after[:4]) - sum(before[:4])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=400)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    questions = grid(arguments.cells)
    print(f"{len(questions)} calibrations, {os.cpu_count()} processors")
    print(f"{'workers':>8} {'seconds':>9} {'speed':>7} {'processors':>11} {'work':>7}")
    first = None
    for workers in arguments.workers:
        found, seconds, processors = measured(questions, workers)
        first = first or (found, seconds, processors)
        if found != first[0]:
            raise AssertionError("other numbers on other processes")
        speed, work = first[1] / seconds, processors / first[2]
        print(f"{workers:>8} {seconds:>9.1f} {speed:>7.2f} {processors:>11.1f} {work:>7.2f}")


if __name__ == "__main__":
    main()
