"""Drawn questions of Gaussian steps, each asked of us and of every other accountant that is there.

    python benchmarks/beside.py [--number N] [--seed S] [--limit SECONDS] [--ask NAME ...]
        [--out FOLDER]

The questions are those of ``questions.py`` with epsilon asked at a delta: Poisson samples with one
noise, schedules, and random allocation. Each answer is made in a process of its own, with
everything imported before, so that seconds are CPU seconds of the question alone; who needs more
than the limit is stopped. Who is asked at its defaults where there are any: dp-accounting (its
privacy loss distributions, and Renyi divergences), riskcal, prv_accountant (an error of .01 in
epsilon, of a thousandth in delta), autodp (Poisson samples of its Gaussian mechanism), Opacus
(Renyi divergences), and PLD_accounting for allocation. An accountant that is not installed is left
out, and what an earlier run with the same seed found of it stays; we are asked again each time.
With ``--ask`` only those are asked that are named. Writes beside.json.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from questions import alone, drawn, split

import tightbudget as tb

HERE = Path(__file__).resolve().parent
LIMIT = 20  # CPU seconds for one answer
MEMORY = 8 * 2**30  # bytes of addresses: PLD_accounting compiles with Numba
KINDS = ("Poisson", "schedules", "allocation")
# An upper bound counts as below ours, or below the truth, by more than doubles round.
SAME = 1e-6

Steps = list[tuple[float, float, int]]  # sigma, rate and number of steps
Ends = tuple[float | None, float]  # a lower bound, where there is one, and an upper one


@dataclass(frozen=True)
class Asked:
    """One question: a composition, and the delta at which its epsilon is asked."""

    i: int
    kind: str
    text: str
    whole: tb.Composition
    delta: float

    def steps(self) -> Steps:
        """The parts of a composition of Poisson samples."""
        return [(m.base.sigma, m.rate, runs) for m, runs in self.whole.parts]


def questions(seed: int, number: int) -> Iterator[Asked]:
    """Those of the first ``number`` questions that ask for an epsilon and are of a kind here."""
    for i in range(number):
        one = drawn(seed, i)
        composition, asks, value = split(one.text)
        if one.kind in KINDS and asks == "epsilon":
            whole = eval(composition, {"tb": tb}) * 1
            yield Asked(i, one.kind, one.text, whole, float(value))


# --------------------------------------------------------------------- how each one is asked


def _ours(asked: Asked) -> Ends:
    found = asked.whole.epsilon(asked.delta)
    return found.lower, found.upper


def _event(steps: Steps) -> Any:
    from dp_accounting import dp_event as events

    parts = [
        events.SelfComposedDpEvent(
            events.PoissonSampledDpEvent(rate, events.GaussianDpEvent(sigma)), runs
        )
        for sigma, rate, runs in steps
    ]
    return events.ComposedDpEvent(parts)


def _dp_accounting_pld(asked: Asked) -> Ends:
    from dp_accounting.pld import PLDAccountant

    return None, float(PLDAccountant().compose(_event(asked.steps())).get_epsilon(asked.delta))


def _dp_accounting_rdp(asked: Asked) -> Ends:
    from dp_accounting.rdp import RdpAccountant

    return None, float(RdpAccountant().compose(_event(asked.steps())).get_epsilon(asked.delta))


def _riskcal(asked: Asked) -> Ends:
    from riskcal.accountants.ctd import CTDAccountant

    accountant = CTDAccountant()
    accountant.history = asked.steps()
    return None, float(accountant.get_epsilon(delta=asked.delta))


def _prv(asked: Asked) -> Ends:
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    steps = asked.steps()
    runs = [runs for _, _, runs in steps]
    accountant = PRVAccountant(
        [
            PoissonSubsampledGaussianMechanism(noise_multiplier=sigma, sampling_probability=rate)
            for sigma, rate, _ in steps
        ],
        max_self_compositions=runs,
        eps_error=0.01,
        delta_error=asked.delta / 1000,
    )
    lower, _, upper = accountant.compute_epsilon(asked.delta, runs)
    return float(lower), float(upper)


def _autodp(asked: Asked) -> Ends:
    from autodp import mechanism_zoo, rdp_acct

    accountant = rdp_acct.anaRDPacct()
    for sigma, rate, runs in asked.steps():
        rdp = mechanism_zoo.GaussianMechanism(sigma=sigma).RenyiDP
        accountant.compose_poisson_subsampled_mechanisms(rdp, rate, coeff=runs)
    return None, float(accountant.get_eps(asked.delta))


def _opacus_rdp(asked: Asked) -> Ends:
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = asked.steps()
    return None, float(accountant.get_epsilon(asked.delta))


def _pld_accounting(asked: Asked) -> Ends:
    import PLD_accounting

    ((epoch, epochs),) = asked.whole.parts
    upper, lower = PLD_accounting.gaussian_allocation_epsilon_range(
        delta=asked.delta, sigma=epoch.base.sigma, num_steps=epoch.steps, num_epochs=epochs
    )
    return float(lower), float(upper)


# name: the package, the module that is imported before, the kinds, how it is asked
OTHERS: dict[str, tuple[str, str, tuple[str, ...], Callable[[Asked], Ends]]] = {
    "dp-accounting, PLD": (
        "dp-accounting",
        "dp_accounting.pld",
        ("Poisson", "schedules"),
        _dp_accounting_pld,
    ),
    "dp-accounting, RDP": (
        "dp-accounting",
        "dp_accounting.rdp",
        ("Poisson", "schedules"),
        _dp_accounting_rdp,
    ),
    "riskcal": ("riskcal", "riskcal.accountants.ctd", ("Poisson", "schedules"), _riskcal),
    "prv_accountant": ("prv-accountant", "prv_accountant", ("Poisson", "schedules"), _prv),
    "autodp": ("autodp", "autodp.mechanism_zoo", ("Poisson",), _autodp),
    "Opacus, RDP": ("opacus", "opacus.accountants", ("Poisson", "schedules"), _opacus_rdp),
    "PLD_accounting": ("PLD_accounting", "PLD_accounting", ("allocation",), _pld_accounting),
}


def warm(names: list[str]) -> None:
    """Imports and compiles what a first question would, so that no question pays for it."""
    _ours(Asked(0, "Poisson", "", tb.Gaussian(5.0).subsampled(0.1) * 3, 1e-5))
    _ours(Asked(0, "allocation", "", tb.Gaussian(5.0).allocated(3) * 2, 1e-5))
    for name in names:
        with contextlib.suppress(Exception):
            kind = OTHERS[name][2][0]
            sampled: Any = tb.Gaussian(5.0).subsampled(0.1)
            if kind == "allocation":
                sampled = tb.Gaussian(20.0).allocated(2)
            OTHERS[name][3](Asked(0, kind, "", sampled * 2, 1e-5))


# ------------------------------------------------------------------------------ one answer


def measured(ask: Callable[[Asked], Ends], asked: Asked, limit: int) -> dict[str, Any]:
    """The ends that a process of its own answers, and its CPU seconds; or why there are none."""
    found, _, _ = alone(lambda: _said(ask, asked), limit, MEMORY)
    return {"failed": f"no answer in {limit} s of CPU"} if found is None else found


def _said(ask: Callable[[Asked], Ends], asked: Asked) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    began = time.process_time()
    try:
        lower, upper = ask(asked)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:200]}
    seconds = round(time.process_time() - began, 5)
    if not math.isfinite(upper):
        return {"failed": f"it says {upper}"}
    return {"lower": lower, "upper": upper, "seconds": seconds}


# --------------------------------------------------------------------------- what is found


def compared(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """How often another accountant answers, is faster, is tighter or says too little; and how far.

    Tighter is an upper bound below ours that may be true; too low is one below our lower bound.
    """
    asked = [row for row in rows if name in row["others"]]
    both = [row for row in asked if "upper" in row["others"][name] and "upper" in row["ours"]]
    pairs = [(row["others"][name], row["ours"]) for row in both]
    excess = sorted(o["upper"] / us["upper"] - 1 for o, us in pairs if us["upper"] > 0)
    low = [o["upper"] < us["lower"] * (1 - SAME) for o, us in pairs]
    below = [o["upper"] < us["upper"] * (1 - SAME) for o, us in pairs]
    return {
        "asked": len(asked),
        "answered": sum("upper" in row["others"][name] for row in asked),
        "answered by us": sum("upper" in row["ours"] for row in asked),
        "faster": sum(o["seconds"] < us["seconds"] for o, us in pairs),
        "tighter": sum(b and not lower for b, lower in zip(below, low, strict=True)),
        "too low": sum(low),
        "times": statistics.median(o["seconds"] / us["seconds"] for o, us in pairs)
        if pairs
        else None,
        "excess": statistics.median(excess) if excess else None,
        "excess of a tenth": excess[-(-9 * len(excess) // 10) - 1] if excess else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--number", type=int, default=400, help="draw so many, and ask some")
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--limit", type=int, default=LIMIT, help="CPU seconds for one answer")
    parser.add_argument("--ask", nargs="*", choices=[*OTHERS], help="only these others")
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores", help="the machine in words")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for beside.json")
    options = parser.parse_args()
    path = options.out / "beside.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found = known if known.get("seed") == options.seed else {"rows": [], "versions": {}}
    rows = {row["i"]: row for row in found["rows"]}
    there = []
    for name, (package, module, _, _) in OTHERS.items():
        if options.ask is not None and name not in options.ask:
            continue
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
            found["versions"][name] = version(package)
            there.append(name)
    warm(there)
    for asked in questions(options.seed, options.number):
        row = rows.setdefault(asked.i, {"i": asked.i, "kind": asked.kind, "question": asked.text})
        row["ours"] = measured(_ours, asked, options.limit)
        others = row.setdefault("others", {})
        for name in there:
            _, _, kinds, ask = OTHERS[name]
            if asked.kind in kinds:
                others[name] = measured(ask, asked, options.limit)
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    ordered = [rows[i] for i in sorted(rows)]
    found |= {
        "seed": options.seed,
        "date": date.today().isoformat(),
        "machine": options.machine,
        "limit": options.limit,
        "rows": ordered,
        "compared": {name: compared(ordered, name) for name in found["versions"]},
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, figures in found["compared"].items():
        sys.stdout.write(f"{name}: {figures}\n")


if __name__ == "__main__":
    main()
