"""The results of ``make bench`` as a table: from results.json to text, and nothing else."""

from __future__ import annotations

import math
from typing import Any

from tightbudget import Bounds

__all__ = ["HEADINGS", "cells", "digits", "ledger", "markdown", "summary", "web"]


def _note(row: dict[str, Any]) -> str:
    """What the neighbour's answer is worth, read off our certified bounds."""
    theirs, ours = row.get("theirs", {}), row["ours"]
    if "failure" in theirs or "failure" in ours or "answer" not in theirs:
        return str(theirs.get("failure", ours.get("failure", "")))
    answer = theirs["answer"]
    if row["calibrates"]:
        return f"σ = {answer:.6g} (ours {ours['value']:.6g})"
    lower, upper = ours["epsilon"]["lower"], ours["epsilon"]["upper"]
    if answer < lower:
        return f"{answer:.6g}, {(lower - answer) / lower:.1%} below the truth"
    if math.isinf(answer):
        return "inf: no answer"
    if answer <= upper:
        return f"{answer:.6g}, inside our bounds"
    return f"{answer:.6g}, {(answer - upper) / upper:.2%} above"


def cells(row: dict[str, Any]) -> list[str]:
    ours, theirs = row["ours"], row.get("theirs", {})
    # printed ends are rounded outwards
    answer = ours["failure"] if "failure" in ours else str(Bounds(**ours["epsilon"]))
    more = row["ratio"] is not None and "failure" in theirs
    far = row.get("far_tail", {})
    return [
        row["title"],
        f"{row['delta']:g}",
        answer,
        f"{ours['relative_gap']:.1e}" if "relative_gap" in ours else "",
        f"{ours['seconds']:.3f}" if "seconds" in ours else "",
        f"{row['peak_mb']:.0f}" if "peak_mb" in row else "",
        f"{far['relative_gap']:.1e}"
        if "relative_gap" in far
        else far.get("failure", "").partition(":")[0],
        f"{theirs['seconds']:.3f}" if "seconds" in theirs else "",
        "" if row["ratio"] is None else f"{'> ' if more else ''}{row['ratio']:.1f}",
        _note(row),
    ]


HEADINGS = [
    "workload",
    "δ",
    "certified ε",
    "gap",
    "s",
    "peak MB",
    "gap at δ = 1e-50",
    "dp-accounting: s",
    "ratio",
    "dp-accounting: ε",
]


def summary(results: dict[str, Any]) -> str:
    return (
        f"smallest {results['smallest_ratio']:.1f}, median {results['median_ratio']:.1f}, "
        f"geometric mean {results['geometric_mean_ratio']:.1f}"
    )


def markdown(results: dict[str, Any]) -> str:
    """The table of a results.json, as Markdown."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{' --- |' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(cells(row))} |" for row in results["rows"]]
    machine, mean = results["machine"], results["geometric_mean_ratio"]
    lines += [
        "",
        f"Medians of {results['runs']} calls in one process on {machine['cpu']}, "
        f"{machine['cores']} cores, Python {machine['python']}, NumPy {machine['numpy']}, "
        f"SciPy {machine['scipy']}, {machine['date']}. Both certified bounds at a relative gap of "
        f"{results['rtol']:g}, against the one upper bound of dp-accounting "
        f"{results['dp_accounting']} at its defaults. Peak memory is that of a "
        "whole fresh process, Python and NumPy included.",
    ]
    if mean is not None:
        lines += ["", f"Ratios of the times: {summary(results)}."]
    return "\n".join(lines) + "\n"


DIGITS = [
    "question",
    "δ",
    "certified ε",
    "gap",
    "ms",
    "engine",
    "buckets, gap 1e-4: ms",
    "dp-accounting: ms",
    "prv-accountant: ms",
]


def _milliseconds(cell: dict[str, Any]) -> str:
    return f"{cell['ms']:.1f}" if "ms" in cell else str(cell.get("failure", ""))


def digits(results: dict[str, Any]) -> str:
    """The table of a digits.json, as Markdown."""
    lines = [f"| {' | '.join(DIGITS)} |", f"|{' --- |' * len(DIGITS)}"]
    for row in results["rows"]:
        ours = row["ours"]
        row_cells = [
            row["title"],
            f"{row['delta']:g}",
            str(Bounds(**ours["epsilon"])) if "epsilon" in ours else "",
            f"{ours['gap']:.0e}" if "gap" in ours else "",
            _milliseconds(ours),
            row.get("engine", ""),
        ]
        neighbours = ("two_masses", "dp_accounting", "prv_accountant")
        row_cells += [_milliseconds(row.get(key, {})) for key in neighbours]
        lines.append(f"| {' | '.join(row_cells)} |")
    machine = results["machine"]
    lines += [
        "",
        f"Medians of {results['runs']} calls (buckets 3, neighbours 1) in one process on "
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, NumPy "
        f"{machine['numpy']}, {machine['date']}; every call builds its composition anew. Both "
        f"certified bounds at a relative gap of {results['rtol']:g}, against dp-accounting "
        f"{results['dp_accounting']} at its defaults and prv-accountant "
        f"{results['prv_accountant']} with an error of 0.01 in ε and δ/1000 in δ.",
    ]
    return "\n".join(lines) + "\n"


def ledger(results: dict[str, Any]) -> str:
    """The table of a ledger.json, as Markdown."""
    kinds = ("SQLite", "PostgreSQL")
    table = {
        "reserve + start + settle, one process": "{ms:.2f} ms (1 in 100: {slow_ms:.1f} ms)",
        "history of {events:,} events: open": "{open_s:.3f} s",
        "… show all budgets and open holds": "{show_s:.3f} s",
        "… verify": "{verify_s:.1f} s",
    }
    lines = [f"|  | {' | '.join(kinds)} |", "| --- | --- | --- |"]
    for title, form in table.items():
        shown = (form.format(**results[kind]) for kind in kinds)
        lines.append(f"| {title.format(**results['SQLite'])} | {' | '.join(shown)} |")
    for n in results["SQLite"]["runs_per_s"]:
        rates = (results[kind]["runs_per_s"][n] for kind in kinds)
        cells = (f"{rate:,.0f} ({3 * rate:,.0f})" for rate in rates)
        title = f"runs (transactions) per second, {n} process{'' if n == '1' else 'es'}"
        lines.append(f"| {title} | {' | '.join(cells)} |")
    machine = results["machine"]
    lines += [
        "",
        f"On {machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, "
        f"{machine['date']}. A run is three transactions, each durable when it returns; this disk "
        f"takes {results['flush_ms']:.2f} ms to make one page durable, and transactions of one "
        "ledger come one after the other.",
    ]
    return "\n".join(lines) + "\n"


def web(results: dict[str, Any]) -> str:
    """The table of a web.json, as Markdown."""
    kinds = ("SQLite", "PostgreSQL")
    lines = [f"| clients | {' | '.join(kinds)} |", "| --- | --- | --- |"]
    for clients in results["SQLite"]:
        shown = (
            "{requests_per_s:,.0f} per second; half in {p50:.0f}, 95 of 100 in {p95:.0f}, 99 in"
            " {p99:.0f} ms".format(**{k: v * 1e3 if k[0] == "p" else v for k, v in row.items()})
            for row in (results[kind][clients] for kind in kinds)
        )
        lines.append(f"| {clients} | {' | '.join(shown)} |")
    machine, load = results["machine"], results["load"]
    lines += [
        "",
        f"On {machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, "
        f"{machine['date']}: requests to one server, {results['seconds']} seconds of each. Clients "
        "and server share the cores."
        + (f" Other programs did, too (load {load:.0f}): alone it is faster." if load >= 1 else ""),
    ]
    return "\n".join(lines) + "\n"
