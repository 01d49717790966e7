"""Asks other accountants for the epsilon of DP-SGD, and writes what they print into printed.json.

    make adapters
    .venv/bin/python benchmarks/printed.py

The picture at the head of README is drawn from that file (``docs/figures.py``), beside certified
bounds that are computed when it is drawn. Each accountant is asked at its defaults, once for each
number of steps at ``DELTA`` and once for each delta at ``STEPS`` steps.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import platform
import warnings
from collections.abc import Callable
from pathlib import Path

import dp_accounting as dpa
import numpy as np
from dp_accounting import pld, rdp
from opacus import accountants

FILE = Path(__file__).with_name("printed.json")
SIGMA, RATE, DELTA, STEPS = 1.0, 0.01, 1e-5, 1_000
MANY_STEPS = [int(k) for k in np.unique(np.geomspace(10, 100_000, 17).astype(int))]
MANY_DELTAS = [10.0**-k for k in range(3, 16)]


def event(steps: int) -> dpa.DpEvent:
    """DP-SGD in the words of dp-accounting."""
    step = dpa.PoissonSampledDpEvent(RATE, dpa.GaussianDpEvent(SIGMA))
    return dpa.SelfComposedDpEvent(step, steps)


def by_dp_accounting(accountant: dpa.PrivacyAccountant, steps: int, delta: float) -> float:
    """The epsilon of one of dp-accounting's accountants."""
    return float(accountant.compose(event(steps)).get_epsilon(delta))


def by_opacus(accountant: accountants.IAccountant, steps: int, delta: float) -> float:
    """The epsilon of one of Opacus's accountants."""
    accountant.history = [(SIGMA, RATE, steps)]
    return float(accountant.get_epsilon(delta))


ASKED: dict[str, tuple[str, Callable[[int, float], float]]] = {
    "Opacus RDP": (
        "opacus: RDPAccountant().get_epsilon(delta)",
        lambda steps, delta: by_opacus(accountants.RDPAccountant(), steps, delta),
    ),
    "Opacus PRV": (
        "opacus: PRVAccountant().get_epsilon(delta)",
        lambda steps, delta: by_opacus(accountants.PRVAccountant(), steps, delta),
    ),
    "Opacus GDP": (
        "opacus: GaussianAccountant().get_epsilon(delta)",
        lambda steps, delta: by_opacus(accountants.GaussianAccountant(), steps, delta),
    ),
    "dp-accounting RDP": (
        "dp-accounting: RdpAccountant().compose(event).get_epsilon(delta)",
        lambda steps, delta: by_dp_accounting(rdp.RdpAccountant(), steps, delta),
    ),
    "dp-accounting PLD": (
        "dp-accounting: PLDAccountant().compose(event).get_epsilon(delta)",
        lambda steps, delta: by_dp_accounting(pld.PLDAccountant(), steps, delta),
    ),
}


def answer(ask: Callable[[int, float], float], steps: int, delta: float) -> float | None:
    """What the accountant says; nothing where it raises, or says infinity."""
    try:
        said = ask(steps, delta)
    except Exception as error:
        print(f"  {steps} steps, delta {delta}: {type(error).__name__}: {error}")
        return None
    return said if math.isfinite(said) else None


def main() -> None:
    warnings.simplefilter("ignore")  # of the accountants, about themselves
    said = {}
    for name, (asked, ask) in ASKED.items():
        print(name)
        said[name] = {
            "asked": asked,
            "by_steps": [answer(ask, steps, DELTA) for steps in MANY_STEPS],
            "by_delta": [answer(ask, STEPS, delta) for delta in MANY_DELTAS],
        }
    versions = {name: importlib.metadata.version(name) for name in ("opacus", "dp-accounting")}
    made = {
        "made": {
            "by": "benchmarks/printed.py",
            "date": datetime.date.today().isoformat(),
            "python": platform.python_version(),
            **versions,
        },
        "sigma": SIGMA,
        "rate": RATE,
        "delta": DELTA,
        "steps": STEPS,
        "many_steps": MANY_STEPS,
        "many_deltas": MANY_DELTAS,
        "said": said,
    }
    FILE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
