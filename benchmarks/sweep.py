"""How much faster a sweep is on several processes, on a machine that does nothing else.

    python benchmarks/sweep.py [--cells N] [--workers 1 2 ...]
    python benchmarks/sweep.py --questions N

Calibrations of DP-SGD over rates, epochs and targets. For each number of workers the seconds on
the clock, with the start of the processes; the seconds of all processors together; and both
relative to one worker. On a busy machine the second column says what the first would be: work
that is not done twice, on so many cores.

With --questions: so many questions about DP-SGD with drawn noise, rates, steps and targets, each
another one, in this process; the seconds of the processor together, and those of the slowest.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

import tightbudget as tb

PLAN = [{"mechanism": "gaussian", "sigma": "$sigma", "rate": "$rate", "times": "$runs"}]


def grid(cells: int) -> list[tb.sweeps.Question]:
    over = {
        "rate": [0.01, 0.02, 0.05, 0.1],
        "runs": [1_000, 3_000],
        "epsilon": np.geomspace(0.3, 8.0, max(1, cells // 8)),
    }
    return tb.sweeps.questions(PLAN, over, find="sigma", epsilon="$epsilon", delta=1e-6)


def measured(
    questions: list[tb.sweeps.Question], workers: int
) -> tuple[tb.sweeps.Sweep, float, float]:
    """The answers, the seconds, and the seconds of all processors."""
    before, start = os.times(), time.perf_counter()
    found = tb.sweep(questions, workers)
    seconds, after = time.perf_counter() - start, os.times()
    return found, seconds, sum(after[:4]) - sum(before[:4])


def drawn(number: int) -> list[tb.sweeps.Question]:
    """Questions as they are asked of DP-SGD: sigma 0.5 to 5, rate 1e-3 to 0.1, 100 to 30,000 steps.

    Nine of ten ask for epsilon at a delta from 1e-9 to 1e-4, the others for delta at an epsilon
    that such a run has.
    """
    random = np.random.default_rng(20261122)

    def one(k: int) -> tb.sweeps.Question:
        sigma, rate, steps, delta = np.exp(
            random.uniform(np.log([0.5, 1e-3, 100, 1e-9]), np.log([5.0, 0.1, 30_000, 1e-4]))
        )
        run = tb.Gaussian(round(sigma, 4)).subsampled(float(f"{rate:.4g}")) * round(steps)
        if k % 10:
            return tb.sweeps.Question.of(run, delta=float(f"{delta:.3g}"))
        return tb.sweeps.Question.of(run, epsilon=round(run.epsilon(delta, rtol=0.1).upper, 4))

    return [one(k) for k in range(number)]


def one_by_one(number: int) -> None:
    questions = drawn(number)
    start, seconds, refused = time.process_time(), [], 0
    for question in questions:
        before = time.process_time()
        refused += len(tb.sweep([question]).refused)
        seconds.append(time.process_time() - before)
    whole = time.process_time() - start
    slow = sorted(seconds)
    print(
        f"{number} questions, {refused} refused: {whole:.1f} s of one processor; "
        f"median {1e3 * slow[number // 2]:.1f} ms, slowest {slow[-1]:.2f} s"
    )
    before = time.process_time()
    together = tb.sweep(questions)
    print(f"in one sweep {time.process_time() - before:.1f} s")
    if any(
        answer != tb.sweep([q])[0]
        for q, answer in zip(questions[::50], list(together)[::50], strict=True)
    ):
        raise AssertionError("other numbers alone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=400)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--questions", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.questions:
        one_by_one(arguments.questions)
        return
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
