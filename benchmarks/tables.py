"""Questions about a table beside DuckDB without privacy, and beside OpenDP and PipelineDP.

    python benchmarks/tables.py [--rows N] [--runs N] [--folder FOLDER] [--memory SIZE]
                                [--peers PYTHON] [--out FOLDER]

Rows are made by DuckDB and written as Parquet: riders, fares, minutes, zones and days. Riders have
10 rows on average and some have many, so that a bound of 20 rows cuts a quarter of all rows away.
Each question is asked in a process of its own: what DuckDB computes without privacy, and the whole
release, in turns, so that a busy moment of the machine falls on both. Ratios are those of CPU
seconds, pair by pair. Memory is the peak of the process during one answer. Where a rider is the
unit, DuckDB is also asked to count the rows of each rider, and to bound the rows of a rider by
itself, in the plainest way: a window in random order.

With ``--peers`` the interpreter of an environment that has ``opendp[polars]`` and ``pipeline-dp``,
both answer questions about 10^6 of the rows, with the bounds that we have. With ``--out`` the
measured values are written to tables.json there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROWS_OF_UNIT = 20
PEER_ROWS = 10**6
SOURCE = "read_parquet('{path}')"
# 1,000 conditions on one column, as count_if: of all that DuckDB has it takes the least time
FARES = [round(0.05 * k, 2) for k in range(1000)]


def made(folder: Path, rows: int) -> Path:
    """Writes the rows of a table to a Parquet file, unless it is there."""
    import duckdb

    path = folder / f"rides-{rows}.parquet"
    if path.exists():
        return path
    uniform = ", ".join(f"hash(i * 8 + {k}) / 18446744073709551616.0 AS u{k}" for k in range(5))
    connection = duckdb.connect()
    connection.execute("SET memory_limit = '1500MB'; SET preserve_insertion_order = false")
    connection.execute(
        f"""COPY (SELECT
            floor(u0 * u0 * {max(1, rows // 10)})::BIGINT AS rider,
            round(60 * u1 * u1 + 3 * u2, 2) AS fare,
            (1 + floor(90 * u1 * u3))::INTEGER AS minutes,
            floor(u4 * {zones(rows)})::INTEGER AS zone,
            (DATE '2025-01-01' + floor(365 * u2)::INTEGER) AS day
        FROM (SELECT {uniform} FROM range({rows}) r(i))) TO '{path}' (FORMAT parquet)"""
    )
    return path


def zones(rows: int) -> int:
    """Returns how many zones the made rows have."""
    return max(10, rows // 1000)


# ------------------------------------------------------------------------------ questions

# what DuckDB is asked without privacy, from the rows of {source}
PLAIN = {
    "count": "SELECT count(*) FROM {source} WHERE minutes > 10",
    "sum": "SELECT sum(fare) FROM {source}",
    "mean": "SELECT avg(fare) FROM {source}",
    "variance": "SELECT var_pop(fare) FROM {source}",
    "median": "SELECT median(fare) FROM {source}",
    "1,000 counts": "SELECT "
    + ", ".join(f"count_if(fare > {fare}::DOUBLE)" for fare in FARES)
    + " FROM {source}",
    "1,000 questions, sparse vector": "",
    "a count for each zone": "SELECT zone, count(*) FROM {source} GROUP BY zone",
    "a sum for each zone": "SELECT zone, sum(fare) FROM {source} GROUP BY zone",
}
PLAIN["1,000 questions, sparse vector"] = PLAIN["1,000 counts"]
# the rows of each rider, without which no bound on them can be kept
GROUPED = "SELECT count(*) FROM (SELECT rider, count(*) FROM {source} GROUP BY rider)"
# a rider's rows in random order, of which the first few count
BOUNDED = (
    "(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY rider ORDER BY luck) AS place FROM "
    "(SELECT *, random() AS luck FROM {source})) WHERE place <= " + f"{ROWS_OF_UNIT})"
)


def ours(question: str, rows: int) -> Any:
    """Makes the mechanism that answers a question."""
    import tightbudget as tb

    conditions = tuple((lambda t, fare=fare: t.fare > fare) for fare in FARES)
    fares: dict[str, Any] = {"column": "fare", "bounds": (0, 64)}
    return {
        "count": lambda: tb.Count(epsilon=1, where=lambda t: t.minutes > 10),
        "sum": lambda: tb.Sum(epsilon=1, **fares),
        "mean": lambda: tb.Mean(epsilon=1, **fares),
        "variance": lambda: tb.Variance(epsilon=1, **fares),
        "median": lambda: tb.Quantiles(epsilon=1, probabilities=(0.5,), **fares),
        "1,000 counts": lambda: tb.Counts(where=conditions, epsilon=1),
        "1,000 questions, sparse vector": lambda: tb.AboveThreshold(
            questions=tuple((rule, rows // 2) for rule in reversed(conditions)),
            epsilon=1,
            aboves=1,
        ),
        "a count for each zone": lambda: tb.GroupedCounts(by="zone", epsilon=1),
        "a sum for each zone": lambda: tb.GroupedSums(by="zone", epsilon=1, **fares),
    }[question]()


def _peak_mb() -> float:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) / 2**10
    return 0.0


def _cost(ask: Callable[[], Any]) -> dict[str, float]:
    """Measures one answer: CPU seconds and wall seconds, and the peak memory meanwhile."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew
    cpu, wall = time.process_time(), time.perf_counter()
    ask()
    return {
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "mb": _peak_mb(),
    }


def _beside(path: Path, rows: int, question: str, unit: bool, runs: int, memory: str) -> None:
    """Asks one question in turns with and without privacy, and prints what was measured."""
    import duckdb
    import numpy as np

    import tightbudget as tb

    table = tb.Table(
        str(path),
        **({"unit": "rider", "rows_per_unit": ROWS_OF_UNIT} if unit else {}),
        domains={"zone": range(zones(rows))},
    )
    connection = table.source.connection.con
    connection.execute(f"SET memory_limit = '{memory}'")
    connection.execute(f"SET temp_directory = '{path.parent / 'spill'}'")
    source = SOURCE.format(path=path)
    asked: dict[str, Callable[[], Any]] = {
        "plain": lambda: connection.execute(PLAIN[question].format(source=source)).fetchall()
    }
    if unit:
        asked["grouped"] = lambda: connection.execute(GROUPED.format(source=source)).fetchall()
        bounded = PLAIN[question].format(source=BOUNDED.format(source=source))
        asked["bounded"] = lambda: connection.execute(bounded).fetchall()
    asked["ours"] = lambda: ours(question, rows).release(table, meter=tb.OutputDPFilter(10))
    costs: dict[str, list[dict[str, float]]] = {who: [] for who in asked}
    # what is imported or compiled on first use is nobody's cost
    connection.execute(f"SELECT count(*) FROM {source}").fetchall()
    tb.Count(epsilon=1).release(tb.Table({"x": np.array([1.0])}), meter=tb.OutputDPFilter(10))
    row: dict[str, Any] = {"question": question, "unit": "rider" if unit else "row"}
    for _ in range(runs):
        for who, ask in list(asked.items()):
            try:
                costs[who].append(_cost(ask))
            except duckdb.OutOfMemoryException:
                row[who] = {"failure": f"more than {memory} of memory"}
                del asked[who], costs[who]
    for who, measured in costs.items():
        row[who] = {
            "cpu": statistics.median(cost["cpu"] for cost in measured),
            "wall": statistics.median(cost["wall"] for cost in measured),
            "mb": max(cost["mb"] for cost in measured),
        }
    for who in set(costs) - {"ours"}:
        pairs = zip(costs["ours"], costs[who], strict=True)
        ratios = sorted(mine["cpu"] / theirs["cpu"] for mine, theirs in pairs)
        row[f"ratio to {who}"] = [ratios[0], statistics.median(ratios), ratios[-1]]
    sys.stdout.write(json.dumps(row))


# ------------------------------------------------------------------------------ neighbours

EPSILON, DELTA = 1.0, 1e-6
PEER_QUESTIONS = ("count", "sum", "mean", "counts, public zones", "counts, secret zones")


def _truth(path: Path, question: str) -> Any:
    """Computes the mean of the answer without noise over random choices of each rider's rows."""
    import duckdb

    share = (
        f"(SELECT *, least(1, {ROWS_OF_UNIT} / (count(*) OVER (PARTITION BY rider))) AS share "
        f"FROM {SOURCE.format(path=path)})"
    )
    if "zones" in question:
        query = f"SELECT zone, sum(share) FROM {share} GROUP BY zone"
        return dict(duckdb.sql(query).fetchall())
    of = {
        "count": "sum(share)",
        "sum": "sum(share * fare)",
        "mean": "sum(share * fare) / sum(share)",
    }
    return duckdb.sql(f"SELECT {of[question]} FROM {share}").fetchall()[0][0]


def _tight(path: Path, question: str) -> Any:
    import tightbudget as tb

    table = tb.Table(
        str(path),
        unit="rider",
        rows_per_unit=ROWS_OF_UNIT,
        domains={"zone": range(zones(PEER_ROWS))},
    )
    fares: dict[str, Any] = {"column": "fare", "bounds": (0, 64)}
    mechanism = {
        "count": lambda: tb.Count(epsilon=EPSILON),
        "sum": lambda: tb.Sum(epsilon=EPSILON, **fares),
        "mean": lambda: tb.Mean(epsilon=EPSILON, **fares),
        "counts, public zones": lambda: tb.GroupedCounts(by="zone", epsilon=EPSILON),
        "counts, secret zones": lambda: tb.SecretKeyCounts(by="zone", epsilon=EPSILON, delta=DELTA),
    }[question]()
    return mechanism.release(table, meter=tb.OutputDPFilter(10, DELTA)).value


def _opendp(path: Path, question: str) -> Any:
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    secret = question == "counts, secret zones"
    margins = [dp.polars.Margin(max_length=10 * PEER_ROWS)]
    if secret:
        margins.append(dp.polars.Margin(by=["zone"], max_length=10 * PEER_ROWS))
    loss = {"epsilon": EPSILON, "delta": DELTA} if secret else {"epsilon": EPSILON}
    context = dp.Context.compositor(
        data=pl.scan_parquet(path),
        privacy_unit=dp.unit_of(contributions=ROWS_OF_UNIT, identifier=pl.col("rider")),
        privacy_loss=dp.loss_of(**loss),
        split_evenly_over=1,
        margins=margins,
    )
    query = context.query().truncate_per_group(ROWS_OF_UNIT)
    fare = pl.col("fare").fill_nan(0.0).fill_null(0.0).dp.sum((0.0, 64.0))
    if "zones" in question:
        # one row in each of so many zones: a unit then moves the counts by as much as ours
        query = context.query().truncate_per_group(1, by=["zone"])
        query = query.truncate_num_groups(ROWS_OF_UNIT, by=["zone"])
        query = query.group_by("zone").agg(dp.len())
        if not secret:
            keys = pl.LazyFrame({"zone": list(range(zones(PEER_ROWS)))}, schema={"zone": pl.Int32})
            query = query.with_keys(keys)
        return dict(query.release().collect().rows())
    if question == "count":
        return query.select(dp.len()).release().collect().item()
    if question == "sum":
        return query.select(fare).release().collect().item()
    total, count = query.select(fare, dp.len()).release().collect().row(0)
    return total / count


def _pipeline(path: Path, question: str) -> Any:
    import pipeline_dp
    import polars as pl

    grouped, secret = "zones" in question, question == "counts, secret zones"
    rows = pl.read_parquet(path, columns=["rider", "zone", "fare"]).rows()
    budget = pipeline_dp.NaiveBudgetAccountant(EPSILON, DELTA if secret else 1e-15)
    metric = {"sum": pipeline_dp.Metrics.SUM, "mean": pipeline_dp.Metrics.MEAN}
    params = pipeline_dp.AggregateParams(
        metrics=[metric.get(question, pipeline_dp.Metrics.COUNT)],
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        max_partitions_contributed=ROWS_OF_UNIT if grouped else 1,
        max_contributions_per_partition=1 if grouped else ROWS_OF_UNIT,
        min_value=0.0 if question in metric else None,
        max_value=64.0 if question in metric else None,
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1] if grouped else 0,
        value_extractor=lambda row: row[2],
    )
    public = list(range(zones(PEER_ROWS))) if grouped else [0]
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.LocalBackend())
    answer = engine.aggregate(rows, params, extractors, None if secret else public)
    budget.compute_budgets()
    found = {key: values[0] for key, values in answer}
    return found if grouped else found[0]


PEERS = {"tightbudget": _tight, "OpenDP": _opendp, "PipelineDP": _pipeline}


def _answers(path: Path, who: str, question: str, runs: int) -> None:
    """Answers one question several times, and prints the costs and the answers."""
    warnings.simplefilter("ignore")
    answers: list[Any] = []
    costs = [_cost(lambda: answers.append(PEERS[who](path, question))) for _ in range(runs)]
    told = [sorted(a.items()) if isinstance(a, dict) else a for a in answers]
    sys.stdout.write(json.dumps({"costs": costs, "answers": told}))


def _error(answers: list[Any], truth: Any) -> float | None:
    """Returns the root-mean-square error of answers, over the groups that were released."""
    if not isinstance(truth, dict):
        return math.sqrt(statistics.fmean((answer - truth) ** 2 for answer in answers))
    squares = [(n - truth.get(key, 0)) ** 2 for answer in answers for key, n in answer]
    return math.sqrt(statistics.fmean(squares)) if squares else None


# ------------------------------------------------------------------------------ asking all


def _asked(python: str, *arguments: str) -> dict[str, Any]:
    command = [python, str(Path(__file__).resolve()), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failure": (done.stderr.strip().splitlines() or ["stopped"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _beside_duckdb(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    path, rows = made(folder, options.rows), []
    for unit in ("row", "rider"):
        for question in PLAIN:
            if options.only and not any(part in f"{question}, {unit}" for part in options.only):
                continue
            # a window over all rows takes long, and with 1,000 sums after it nothing new is seen
            if unit == "rider" and "1,000" in question:
                continue
            one = ["--one", str(path), question, unit, str(options.runs), options.memory]
            row = _asked(sys.executable, *one, "--rows", str(options.rows))
            row = {"question": question, "unit": unit, **row}
            rows.append(row)
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()
    return rows


def _beside_peers(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    path, rows = made(folder, PEER_ROWS), []
    for question in PEER_QUESTIONS:
        truth = _truth(path, question)
        for who in PEERS:
            python = sys.executable if who == "tightbudget" else options.peers
            runs = options.runs if who == "PipelineDP" else 4 * options.runs
            row = _asked(python, "--peer", str(path), who, question, str(runs))
            if "failure" not in row:
                costs, answers = row.pop("costs"), row.pop("answers")
                row = {
                    "cpu": statistics.median(cost["cpu"] for cost in costs),
                    "wall": statistics.median(cost["wall"] for cost in costs),
                    "mb": max(cost["mb"] for cost in costs),
                    "error": _error(answers, truth),
                    "groups": statistics.fmean(map(len, answers)) if "zones" in question else None,
                    "runs": runs,
                }
            rows.append({"question": question, "who": who, **row})
            sys.stdout.write(json.dumps(rows[-1]) + "\n")
            sys.stdout.flush()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10**5, help="of the table")
    parser.add_argument("--runs", type=int, default=5, help="of each question")
    parser.add_argument("--folder", type=Path, help="for the rows; a temporary one if not given")
    parser.add_argument("--memory", default="1200MB", help="DuckDB's memory_limit")
    parser.add_argument("--only", nargs="*", help="questions whose name has one of these texts")
    parser.add_argument("--peers", help="a Python that has opendp[polars] and pipeline-dp")
    parser.add_argument("--out", type=Path, help="folder for tables.json")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--peer", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        path, question, unit, runs, memory = options.one
        _beside(Path(path), options.rows, question, unit == "rider", int(runs), memory)
        return
    if options.peer:
        path, who, question, runs = options.peer
        _answers(Path(path), who, question, int(runs))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        results = {
            "date": date.today().isoformat(),
            "rows": options.rows,
            "runs": options.runs,
            "memory": options.memory,
            "load": os.getloadavg()[0],
            "cores": os.cpu_count(),
            "versions": {name: version(name) for name in ("duckdb", "ibis-framework")},
            "duckdb": _beside_duckdb(options, folder),
            "peers": _beside_peers(options, folder) if options.peers else [],
        }
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        content = json.dumps(results, indent=1, ensure_ascii=False)
        (options.out / "tables.json").write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
