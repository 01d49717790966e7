"""The results of ``make bench`` as a table: from results.json to text, and nothing else."""

from __future__ import annotations

import math
from typing import Any

from tightbudget import Bounds

__all__ = [
    "HEADINGS",
    "beside",
    "cells",
    "digits",
    "ledger",
    "markdown",
    "questions",
    "selections",
    "summary",
    "web",
]


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


def selections(results: dict[str, Any]) -> str:
    """The table of a selections.json, as Markdown."""
    others = list(results["rows"][0]["others"])
    headings = ["question", "tightbudget", "CPU s"]
    headings += [cell for name in others for cell in (name, "CPU s (of ours)")]
    lines = [f"| {' | '.join(headings)} |", f"|{' --- |' * len(headings)}"]
    for row in results["rows"]:
        bounds, seconds = Bounds(**row["ours"]), row["seconds"]
        line = [f"ε = {row['epsilon']:g}, × {row['runs']}", str(bounds), f"{seconds:.2g}"]
        for name in others:
            other = row["others"][name]
            above = (other["answer"] - bounds.upper) / bounds.upper
            line.append(f"{other['answer']:.5g} ({100 * above:.1f} % above)")
            line.append(f"{other['seconds']:.2g} ({other['seconds'] / seconds:.2g})")
        lines.append(f"| {' | '.join(line)} |")
    machine = results["machine"]
    lines += [
        "",
        f"Medians of {results['calls']} CPU times in one process on {machine['cpu']}, "
        f"{machine['cores']} cores, Python {machine['python']}, NumPy {machine['numpy']}, "
        f"{machine['date']}; dp-accounting {results['dp-accounting']}, autodp {results['autodp']}.",
    ]
    return "\n".join(lines) + "\n"


def questions(results: dict[str, Any]) -> str:
    """The table of a questions.json, as Markdown: times of all drawn questions, and by kind."""
    (seed, found), *_ = results["seeds"].items()
    by_time = sorted(found["kinds"].items(), key=lambda row: -row[1]["median"])
    rows = []
    for kind, row in [("**all**", found["all"]), *by_time]:
        times = [_number(row[what]) for what in ("median", "p99", "slowest")]
        counts = [str(row[what]) for what in ("above 1 s", "above 3 s", "stopped", "refused")]
        rows.append([kind, str(row["questions"]), *times, *counts, _number(row["mb"])])
    headings = ["questions", "asked", "median, s", "99 of 100, s", "slowest, s", "above 1 s"]
    headings += ["above 3 s", "stopped", "refused", "MB"]
    lines = [
        *_table(headings, rows),
        "",
        f"CPU seconds; a question is stopped after {results['limit']}. The first questions of seed "
        f"{seed}, {results['date']}: {results['machine']}.",
    ]
    return "\n".join(lines) + "\n"


def beside(results: dict[str, Any]) -> str:
    """The table of a beside.json, as Markdown: first who is faster most often."""
    rows = []
    for name, found in sorted(results["compared"].items(), key=lambda row: -row[1]["faster"]):
        counts = ("asked", "answered", "answered by us", "faster", "tighter", "too low")
        more = [found[what] for what in ("excess", "excess of a tenth")]
        quotients = [found["times"], *(None if one is None else 1.0 + one for one in more)]
        shown = ["" if one is None else _number(one) for one in quotients]
        rows.append([name, *(str(found[what]) for what in counts), *shown])
    headings = ["accountant", "asked", "answered", "by us", "faster than us"]
    headings += ["upper bound below ours", "below the truth", "its time over ours"]
    headings += ["its ε over ours", "of a tenth, more than"]
    known = {f"{name.partition(',')[0]} {known}" for name, known in results["versions"].items()}
    lines = [
        *_table(headings, rows),
        "",
        f"Questions of `benchmarks/beside.py`, drawn with the seed {results['seed']}, on "
        f"{results['date']}: {results['machine']}. Each answer has {results['limit']} seconds of "
        f"CPU. The quotients are medians over the questions that both answer, and the last column "
        f"is a ninth decile. {', '.join(sorted(known))}.",
    ]
    return "\n".join(lines) + "\n"


SIDES = ("before", "now")


def _both(*headings: str) -> list[str]:
    """Each heading twice, for the earlier commit and for this tree."""
    return [f"{heading}, {side}" for heading in headings for side in SIDES]


def _table(headings: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown, without the columns in which no row has anything."""
    kept = [i for i, _ in enumerate(headings) if any(row[i] for row in rows)]
    shown = [headings[i] for i in kept]
    if not any(heading.endswith(", before") for heading in shown):
        shown = [heading.removesuffix(", now") for heading in shown]
    lines = [shown, ["---"] * len(kept), *([row[i] for i in kept] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _number(value: float) -> str:
    """Two digits of a number below 100, and all whole ones of a larger one."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _milli(row: dict[str, Any] | None) -> str:
    return " / ".join(_number(row[name]) for name in ("p50", "p95", "max")) if row else ""


def _shares(row: dict[str, Any] | None) -> str:
    return f"{row['least']:.0f} to {row['most']:.0f}" if row else ""


def _clients(table: dict[str, Any], title: str, acts: int) -> list[list[str]]:
    """The rows of so many clients of one database; a client's answer stands for some acts."""
    rows = []
    for number, row in table.items():
        before, now, bare = row.get("before"), row["now"], row["bare"]
        beside = f" ({_number(row['pgbench'])})" if "pgbench" in row else ""
        rows.append(
            [
                title,
                number,
                _number(bare["per_s"]) + beside,
                _number(acts * before["per_s"]) if before else "",
                _number(acts * now["per_s"]),
                f"{acts * before['of_bare']:.0%}" if before else "",
                f"{acts * now['of_bare']:.0%}",
                _milli(before),
                _milli(now),
                _shares(before),
                _shares(now),
            ]
        )
    return rows


def _shared(machine: dict[str, Any], load: float) -> str:
    busy = (
        f" Other programs shared the cores (load {load:.0f}): compare the numbers of a row with one"
        " another."
    )
    return (
        f"On {machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, "
        f"{machine['date']}.{busy if load >= 1 else ''}"
    )


def _before(results: dict[str, Any]) -> str:
    return f" *Before* is commit `{results['before']}`." if results["before"] else ""


def ledger(results: dict[str, Any]) -> str:
    """The tables of a ledger.json, as Markdown."""
    kinds = ("SQLite", "PostgreSQL")
    rows = [
        *_clients(results["SQLite"]["processes"], "SQLite, processes", 3),
        *_clients(results["SQLite"]["threads"], "SQLite, threads", 3),
        *_clients(results["PostgreSQL"]["processes"], "PostgreSQL, processes", 3),
        *_clients(results["PostgreSQL"].get("threads", {}), "PostgreSQL, threads", 3),
    ]
    headings = ["", "clients", "bare rows/s (pgbench)"]
    headings += _both("acts/s", "of bare", "run, ms: p50 / p95 / max", "runs of each client")
    lines = [
        "## Many clients",
        "",
        *_table(headings, rows),
        "",
        "A run is three acts: reserve, start, settle. Each is a transaction of its own, which is "
        "durable when it is answered. A bare row is a transaction as well, inserted from as many "
        "processes or threads into a table that nothing else touches: by Python and, in brackets, "
        f"by pgbench. This disk takes {results['flush_ms']:.2f} ms to make one page durable."
        + _before(results),
        "",
        "## One run on many budgets",
        "",
    ]
    rows = [
        _budgets(kind, size, results[kind]["budgets"])
        for kind in kinds
        for size in results[kind]["budgets"]["now"]
    ]
    rows += [
        _budgets(f"{kind}, blocks: {key} after small acts", "10000", {"now": {"10000": row}})
        for kind in kinds
        for key, row in results[kind].get("blocks", {"now": {}})["now"].items()
    ]
    headings = ["", "budgets", *_both("reserve / start / settle, s", "CPU s", "statements")]
    headings += _both("`hold(key)`, s", "peak MB", "another client waits at most, s")
    lines += [*_table(headings, rows), "", "## Verification", ""]
    rows = [
        [kind, f"{row['now']['events']:,}"]
        + [_verified(row.get(name), what) for what in ("time", "memory") for name in SIDES]
        for kind in kinds
        for row in results[kind]["verify"].values()
    ]
    headings = ["", "events", *_both("s (CPU)", "peak MB")]
    lines += [
        *_table(headings, rows),
        "",
        "The peak is that of the whole process, which holds "
        f"{results['SQLite']['verify'][min(results['SQLite']['verify'])]['now']['idle_mb']:.0f} MB "
        "when it opens the ledger.",
        "",
        _shared(results["machine"], results["load"]),
    ]
    return "\n".join(lines) + "\n"


def _budgets(kind: str, size: str, table: dict[str, Any]) -> list[str]:
    """The row of one run on so many budgets."""
    acts = ("reserve", "start", "settle")
    found = [table.get(name, {}).get(size) for name in SIDES]

    def shown(form: Any) -> list[str]:
        return [form(row) if row else "" for row in found]

    return [
        kind,
        f"{int(size):,}",
        *shown(lambda row: " / ".join(f"{row[act]['seconds']:.2f}" for act in acts)),
        *shown(lambda row: f"{sum(row[act]['cpu'] for act in acts):.2f}"),
        *shown(lambda row: " / ".join(f"{row[act]['statements']:,}" for act in acts)),
        *shown(lambda row: f"{row['hold']['seconds']:.3f}"),
        *shown(lambda row: f"{row['peak_mb']:.0f}"),
        *shown(lambda row: f"{row['worst_wait']:.2f}"),
    ]


def _verified(row: dict[str, Any] | None, what: str) -> str:
    if row is None:
        return ""
    if what == "memory":
        return f"{row['peak_mb']:.0f}"
    return f"{row['seconds']:.1f} ({row['cpu']:.1f})"


def _served_budgets(table: dict[str, Any]) -> list[str]:
    """The table of one run on so many budgets, over HTTP."""

    def shown(row: dict[str, Any] | None) -> str:
        if row is None or "refused" in row:
            return str((row or {}).get("refused", ""))
        return " / ".join(f"{row[act]:.2f}" for act in ("reserve", "start", "settle"))

    rows = [
        [kind, f"{int(size):,}", *(shown(row.get(name)) for name in SIDES)]
        for kind, sizes in table.items()
        for size, row in sizes.items()
    ]
    headings = ["one run", "budgets", *_both("reserve / start / settle, s")]
    return _table(headings, rows)


def web(results: dict[str, Any]) -> str:
    """The tables of a web.json, as Markdown."""
    rows = [row for kind in ("SQLite", "PostgreSQL") for row in _clients(results[kind], kind, 1)]
    headings = ["", "clients", "bare requests/s", *_both("requests/s", "of bare")]
    headings += _both("request, ms: p50 / p95 / max", "requests of each client")
    lines = [
        *_table(headings, rows),
        "",
        "Requests to reserve, to start and to settle, in turns. The bare endpoint is one of the "
        "same framework and server, which inserts a row with the same durability, and does "
        "nothing else. Clients and server share the cores." + _before(results),
        "",
        *_served_budgets(results["budgets"]),
        "",
        "## Pages of many budgets",
        "",
    ]
    rows = [
        [f"{int(number):,}", title]
        + [
            f"{row[name][title][what]:{form}}" if name in row else ""
            for what, form in (("seconds", ".2f"), ("kb", ",.0f"))
            for name in SIDES
        ]
        for number, row in results["pages"].items()
        for title in row["now"]
    ]
    lines += _table(["budgets", "page", *_both("s", "kB")], rows)
    lines += ["", _shared(results["machine"], results["load"])]
    return "\n".join(lines) + "\n"
