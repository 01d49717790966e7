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

from docs.building.docstrings import rewritten
from docs.building.public import public
from tests.ledger.conformance import TABLES

import tightbudget as tb
from tightbudget import errors, release, tables
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.tables.columns import KINDS
from tightbudget.tables.mechanism import TableMechanism

ROOT = Path(__file__).resolve().parents[2]
PART = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)
DESCRIBED = re.compile(r"^::: (\S+)", re.MULTILINE)
PUBLIC = public()


# ---------------------------------------------------------------------------- from code


def mechanisms_table() -> str:
    """A table of the mechanisms: name, name in plans and on the command line, first sentence."""
    lines = ["| mechanism | in plans | what it does |", "| --- | --- | --- |"]
    for kind, cls in _mechanisms():
        first = " ".join((cls.__doc__ or "").split("\n\n")[0].split()).split(". ")[0]
        summary = rewritten(first).replace("|", "\\|").rstrip(".:")
        name = cls.__name__
        lines.append(f"| [`{name}`][tightbudget.{name}] | `{kind}` | {summary} |")
    return "\n".join(lines)


def mechanisms() -> str:
    """Every mechanism in full."""
    return _described(cls.__name__ for _, cls in _mechanisms())


def _mechanisms() -> list[tuple[str, type]]:
    """The mechanisms in the order of their names, with their names in plans."""
    return sorted(tb.mechanisms.MECHANISMS.items(), key=lambda entry: entry[1].__name__)


def mechanisms_on_data() -> str:
    """Every mechanism that runs on data, in full."""
    return _described(
        name for name, thing in sorted(vars(release).items()) if _is_a_public_mechanism(name, thing)
    )


def mechanisms_on_tables() -> str:
    """Every mechanism that runs on a table, in full."""
    return _described(question.__name__ for question in _questions())


def questions_to_tables() -> str:
    """Every question to a table, beside the mechanisms on data that answer it."""
    lines = ["| question to a table | answered by |", "|" + " --- |" * 2]
    for question in _questions():
        answered_by = ", ".join(_linked(kind) for kind in question.answered_by)
        lines.append(f"| {_linked(question)} | {answered_by} |")
    return "\n".join(lines)


def _questions() -> list[type[TableMechanism[Any]]]:
    """The questions to tables in the order of their names."""
    found = [getattr(tables, name) for name in sorted(tables.__all__)]
    return [kind for kind in found if inspect.isclass(kind) and issubclass(kind, TableMechanism)]


def _linked(kind: type) -> str:
    """The name of a public class as a link to its place in the reference."""
    return f"[`{kind.__name__}`][{PUBLIC[kind.__name__]}]"


def kinds_of_columns() -> str:
    """Which types of columns a table lets in, the form of each, and what each may be used for."""
    lines = ["| kind | types | form | serves as |", "|" + " --- |" * 4]
    for name, kind in KINDS.items():
        types = kind.types.replace("|", "\\|")
        roles = ", ".join(sorted(kind.roles))
        lines.append(f"| {name} | `{types}` | {kind.form} | {roles} |")
    return "\n".join(lines)


def refusals() -> str:
    """The exception tree, as errors.py draws it, and each exception in full."""
    tree = (errors.__doc__ or "").split("\n\n", 1)[1].strip()
    return f"```text\n{tree}\n```\n\n{_described(errors.__all__)}"


def _described(names: Iterable[str]) -> str:
    """For each public name the directive that the site replaces by signature and docstring."""
    return "\n\n".join(f"::: {PUBLIC[name]}" for name in names)


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
    """Runs another script of this folder, and returns its names."""
    return runpy.run_path(str(Path(__file__).parent / name))


# ------------------------------------------------------------------ from measured values


def benchmarks() -> str:
    """Table of the last ``make bench``: time, memory and bounds, beside another accountant."""
    return _measured("results.json", "markdown")


def digits() -> str:
    """Table of the last ``make bench``: the same questions to a gap of 1e-9, by each engine."""
    return _measured("digits.json", "digits")


def selections() -> str:
    """Table of the last ``make bench``: exponential mechanisms, beside two neighbours."""
    return _measured("selections.json", "selections")


def drawn_questions() -> str:
    """Table of drawn questions: how long they take, by kind."""
    return _measured("questions.json", "questions")


def beside() -> str:
    """Table of the drawn questions that were asked of other accountants, too."""
    return _measured("beside.json", "beside")


def ledger_speed() -> str:
    """Table of the last ``make bench``: the time that charges to a ledger take."""
    return _measured("ledger.json", "ledger")


def web_speed() -> str:
    """Table of the last ``make bench``: the time that charges over HTTP take."""
    return _measured("web.json", "web")


def _measured(name: str, form: str) -> str:
    """The table that a function of benchmarks/report.py makes of a file of measured values."""
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
    """Tables of other tools' values beside certified bounds: false ones first, then all by tool."""
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
    """The lines of a table of values that one tool says."""
    yield "| there | says | here | certified | |"
    yield "|" + " --- |" * 5
    for row in rows:
        off = f", by {abs(row.off()):.1g}" if row.off() else ""
        verdict = row.verdict if row.verdict == "agrees" else f"**{row.verdict}**{off}"
        asked = row.asked if row.tool == "closed forms" else f"`{row.asked}`"
        yield f"| {asked} | {row.says} | `{row.ours}` | {row.certified} | {verdict} |"


def peers() -> str:
    """Tables of other libraries' tests that fail with our accountants: how many, which, why."""
    listed = importlib.import_module("peers.run").peers()
    lines = ["| | tests | differed at first | differ |", "|" + " --- |" * 4]
    for peer in listed:
        for suite in peer.suite:
            first, *more = suite["files"]
            files = f"`{first}`" + f" and {len(more)} more" * bool(more)
            counts = (suite.get(key, "") for key in ("tests", "at_first", "differ"))
            lines.append(
                f"| {peer.distribution} {peer.version}, {files} | "
                + " | ".join(map(str, counts))
                + " |"
            )
    for peer in listed:
        lines += ["", f"### {peer.distribution} {peer.version}", ""]
        for heading, listed_tests in (("differ", peer.differs), ("are left out", peer.left_out)):
            if listed_tests:
                lines += [f"| tests that {heading} | why | proof |", "|" + " --- |" * 3]
            for table in listed_tests:
                tests = ", ".join(f"`{test.partition('::')[2] or test}`" for test in table["tests"])
                proof = f"`{table['proof']}`" if "proof" in table else ""
                lines.append(f"| {tests} | {table['why']} | {proof} |".replace("\n", " "))
            lines.append("")
    return "\n".join(lines).rstrip()


# -------------------------------------------------------------------------------- pages

PARTS: dict[str, Callable[[], str]] = {
    "mechanisms-table": mechanisms_table,
    "mechanisms": mechanisms,
    "mechanisms-on-data": mechanisms_on_data,
    "mechanisms-on-tables": mechanisms_on_tables,
    "questions-to-tables": questions_to_tables,
    "kinds-of-columns": kinds_of_columns,
    "refusals": refusals,
    "command-line": command_line,
    "http-api": http_api,
    "ledger-tables": ledger_tables,
    "benchmarks": benchmarks,
    "digits": digits,
    "selections": selections,
    "drawn-questions": drawn_questions,
    "beside": beside,
    "ledger-speed": ledger_speed,
    "web-speed": web_speed,
    "reproductions": reproductions,
    "agreement": agreement,
    "peers": peers,
}


def whole(text: str) -> str:
    """The text of a page with every part that it asks for in its place."""
    return PART.sub(lambda asked: PARTS[asked[1]](), text)
