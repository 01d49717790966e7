"""Exponential mechanisms, each chosen after the last answer, beside two neighbours: ``make bench``.

    python benchmarks/selections.py [--runs N] [--out FOLDER]

The median CPU time of both certified bounds of epsilon at the default gap, with nothing kept from
the call before, and what others charge for the same runs. A full run writes selections.json beside
this file.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from report import selections
from run import HERE, _machine, save

import tightbudget as tb
from tightbudget.mechanisms import bounded_range, smooth_range

DELTA = 1e-6
ASKED = ((0.1, 100), (0.5, 20))


def ours(epsilon: float, runs: int) -> tb.Bounds:
    """Certified bounds, found from nothing."""
    bounded_range.above.cache_clear()
    bounded_range.below.cache_clear()
    smooth_range.smooth.cache_clear()
    return (tb.ExponentialMechanism(epsilon) * runs).epsilon(DELTA)


def pure(epsilon: float, runs: int) -> float:
    """dp-accounting's privacy loss distribution of any mechanism of this epsilon."""
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    one = pld.from_privacy_parameters(common.DifferentialPrivacyParameters(epsilon, 0.0))
    return float(one.self_compose(runs).get_epsilon_for_delta(DELTA))


def zcdp(epsilon: float, runs: int) -> float:
    """dp-accounting's price of zCDP with rho = epsilon^2 / 8, which bounded range proves."""
    import dp_accounting as dpa
    from dp_accounting.rdp import RdpAccountant

    whole = RdpAccountant().compose(dpa.ZCDpEvent(epsilon**2 / 8), runs)
    return float(whole.get_epsilon(DELTA))


def autodp(epsilon: float, runs: int) -> float:
    """The price of autodp's own exponential mechanism."""
    from autodp import mechanism_zoo, transformer_zoo

    one = mechanism_zoo.ExponentialMechanism(epsilon)
    return float(transformer_zoo.Composition()([one], [runs]).get_approxDP(DELTA))


OTHERS: dict[str, Callable[[float, int], float]] = {
    "dp-accounting, pure privacy": pure,
    "dp-accounting, zCDP": zcdp,
    "autodp": autodp,
}


def timed(ask: Callable[[float, int], Any], epsilon: float, runs: int, calls: int) -> Any:
    """The median CPU time of a question, and its answer; what loads on first use is not in it."""
    ask(epsilon, runs)
    seconds = []
    for _ in range(calls):
        start = time.process_time()
        answer = ask(epsilon, runs)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds), answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="calls that a median is taken of")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for selections.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of the neighbours, about themselves
    rows = []
    for epsilon, runs in ASKED:
        seconds, bounds = timed(ours, epsilon, runs, options.runs)
        row = {"epsilon": epsilon, "runs": runs, "ours": bounds.to_dict(), "seconds": seconds}
        row["others"] = {}
        for name, ask in OTHERS.items():
            seconds, answer = timed(ask, epsilon, runs, options.runs)
            row["others"][name] = {"answer": answer, "seconds": seconds}
        rows.append(row)
    results = {
        "machine": _machine(),
        "delta": DELTA,
        "calls": options.runs,
        **{name: version(name) for name in ("dp-accounting", "autodp")},
        "rows": rows,
    }
    print(selections(results))
    save(options.out, "selections", results)


if __name__ == "__main__":
    main()
