"""Writes the parts of the documentation that can be read off the code or off measured values.

A page asks for a part with a line ``<!-- generated: NAME -->``. The part is put in its place while
the site is built (``make docs``), and is kept nowhere else.
The root of the checkout has to be on the path of imports: ``papers`` and ``tests`` are there.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import runpy
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tightbudget as tb
from tightbudget import errors, release
from tightbudget.ledger.testing import TABLES
from tightbudget.release.mechanism import MechanismOnData

ROOT = Path(__file__).resolve().parents[2]
PART = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)
DESCRIBED = re.compile(r"^::: (\S+)", re.MULTILINE)


# ---------------------------------------------------------------------------- from code


def described(name: str, *, members: bool = True) -> str:
    """The directive in whose place the site shows a name's signature and docstring."""
    return f"::: {name}" + ("" if members else "\n    options:\n      members: false")


def mechanisms_table() -> str:
    """A table of the mechanisms, a line for each: how it is made, and what it does."""
    lines = ["| mechanism | what it does |", "| --- | --- |"]
    for _, cls in sorted(tb.MECHANISMS.items()):
        summary = " ".join((cls.__doc__ or "").split("\n\n")[0].split()).split(". ")[0]
        cells = f"`{_constructor(cls)}`", summary.replace("``", "`").rstrip(".:")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _constructor(cls: type) -> str:
    """How a mechanism is made, without the keyword that every mechanism takes."""
    arguments = [
        p.name if p.default is p.empty else f"{p.name}={p.default!r}"
        for p in inspect.signature(cls).parameters.values()
        if p.name != "relation"
    ]
    return f"{cls.__name__}({', '.join(arguments)})"


def mechanisms() -> str:
    """Every mechanism in full, with the name that plans and the command line know it by."""
    return "\n\n".join(
        f"{described(f'tightbudget.{cls.__name__}', members=False)}\n\n"
        f"In plans and on the command line: `{kind}`."
        for kind, cls in sorted(tb.MECHANISMS.items())
    )


def mechanisms_on_data() -> str:
    """Every mechanism that runs on data, in full."""
    return _described_classes(
        name for name, thing in sorted(vars(release).items()) if _is_a_public_mechanism(name, thing)
    )


def refusals() -> str:
    """The exception tree, as errors.py draws it, and each exception in full."""
    tree = (errors.__doc__ or "").split("\n\n", 1)[1].strip()
    return f"```text\n{tree}\n```\n\n{_described_classes(errors.__all__)}"


def _described_classes(names: Iterable[str]) -> str:
    return "\n\n".join(described(f"tightbudget.{name}") for name in names)


def _is_a_public_mechanism(name: str, thing: object) -> bool:
    """True for a public class of mechanisms that run on data."""
    return name in release.__all__ and inspect.isclass(thing) and issubclass(thing, MechanismOnData)


def ledger_tables() -> str:
    """The stories that every ledger must answer alike."""
    stories = ((table.name, textwrap.dedent(table.text).strip()) for table in TABLES)
    return "\n\n".join(f"## {name}\n\n```text\n{story}\n```" for name, story in stories)


def command_line() -> str:
    """Every command and its options, from the command line itself."""
    return str(_beside("command_line.py")["reference"]())


def http_api() -> str:
    """Every operation of the API, from its own document."""
    return str(_beside("http_api.py")["reference"]())


def _beside(name: str) -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parent / name))


# ------------------------------------------------------------------ from measured values


def benchmarks() -> str:
    """What ``make bench`` measured last."""
    return _measured("results.json", "markdown")


def digits() -> str:
    """What ``make bench`` measured last at many digits."""
    return _measured("digits.json", "digits")


def ledger_speed() -> str:
    """What ``make bench`` measured last of the ledger."""
    return _measured("ledger.json", "ledger")


def web_speed() -> str:
    """What ``make bench`` measured last of a ledger that is served."""
    return _measured("web.json", "web")


def _measured(name: str, form: str) -> str:
    folder = ROOT / "benchmarks"
    results = json.loads((folder / name).read_text(encoding="utf-8"))
    return str(runpy.run_path(str(folder / "report.py"))[form](results)).rstrip()


def reproductions() -> str:
    """For each paper's tables and figures: its claim, and what the committed numbers say to it."""
    lines: list[str] = []
    for paper in sorted(path.parent for path in (ROOT / "papers").glob("*/expected")):
        lines += [f"## {paper.name}", "", "| | the paper | what comes out | |", "|" + " --- |" * 4]
        for path in sorted((paper / "expected").glob("*.json")):
            script = importlib.import_module(f"papers.{paper.name}.{path.stem}")
            finding = script.finding(json.loads(path.read_text(encoding="utf-8")))
            cells = [path.stem, script.CLAIM, finding.text, f"**{finding.verdict}**"]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines).rstrip()


def agreement() -> str:
    """What other tools say, and what is so: what is wrong first, then all of it, tool by tool."""
    rows = importlib.import_module("tests.reference.peers").rows()
    tools = {row.tool: [r for r in rows if r.tool == row.tool] for row in rows}
    verdicts = ("agrees", "too high", "inf", "too low")
    lines = [f"| | {' | '.join(verdicts)} |", "|" + " --- |" * (1 + len(verdicts))]
    for tool, said in tools.items():
        counts = [sum(row.verdict == verdict for row in said) or "" for verdict in verdicts]
        lines.append(f"| {tool} | {' | '.join(map(str, counts))} |")
    lines += ["", "## Too low"]
    for tool, said in tools.items():
        if low := [row for row in said if row.verdict == "too low"]:
            lines += ["", f"{tool} {low[0].version}:", "", *_agreement(low)]
    for tool, said in tools.items():
        lines += ["", f"## {tool}"]
        for version, source in dict.fromkeys((row.version, row.source) for row in said):
            of = f"`{source}`" if "/" in source else source
            lines += ["", f"{version}, {of}:".removeprefix(", "), ""]
            lines += _agreement([r for r in said if (r.version, r.source) == (version, source)])
    return "\n".join(lines)


def _agreement(rows: list[Any]) -> Iterator[str]:
    yield "| there | says | here | certified | |"
    yield "|" + " --- |" * 5
    for row in rows:
        off = f", by {abs(row.off()):.1g}" if row.off() else ""
        verdict = row.verdict if row.verdict == "agrees" else f"**{row.verdict}**{off}"
        asked = row.asked if row.tool == "closed forms" else f"`{row.asked}`"
        yield f"| {asked} | {row.says} | `{row.ours}` | {row.certified} | {verdict} |"


# -------------------------------------------------------------------------------- pages

PARTS: dict[str, Callable[[], str]] = {
    "mechanisms-table": mechanisms_table,
    "mechanisms": mechanisms,
    "mechanisms-on-data": mechanisms_on_data,
    "refusals": refusals,
    "command-line": command_line,
    "http-api": http_api,
    "ledger-tables": ledger_tables,
    "benchmarks": benchmarks,
    "digits": digits,
    "ledger-speed": ledger_speed,
    "web-speed": web_speed,
    "reproductions": reproductions,
    "agreement": agreement,
}


def whole(text: str) -> str:
    """The text of a page with every part that it asks for in its place."""
    return PART.sub(lambda asked: PARTS[asked[1]](), text)
