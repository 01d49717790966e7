"""Writes the parts of README and docs that can be read off the code, between markers.

    python docs/generate.py            rewrite them
    python docs/generate.py --check    say which are out of date, and exit with 1

A marked part begins with ``<!-- generated: NAME -->`` and ends with ``<!-- end -->``.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import json
import re
import runpy
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import tightbudget as tb
from tightbudget import errors
from tightbudget.ledger.testing import TABLES

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # where papers and tests are
    sys.path.insert(0, str(ROOT))
ADAPTERS = ("adapters.dp_accounting",)  # those whose neighbours are always there
PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


# --------------------------------------------------------------------------- docstrings


@dataclasses.dataclass(frozen=True)
class Doc:
    """A docstring: its paragraphs, and its sections (Args, Raises, ...) as (name, text)."""

    paragraphs: list[str]
    sections: dict[str, list[tuple[str, str]]]

    @staticmethod
    def of(thing: object) -> Doc:
        """The docstring of anything."""
        text = _inline(inspect.getdoc(thing) or "")
        paragraphs: list[str] = []
        sections: dict[str, list[tuple[str, str]]] = {}
        for block in re.split(r"\n\n+", text):
            title = re.match(r"(Args|Raises|Returns|Attributes):\n", block)
            if title:
                sections[title[1]] = _entries(block[title.end() :])
            elif not block.startswith(">>>"):
                paragraphs.append(block)
        return Doc(paragraphs, sections)

    @property
    def summary(self) -> str:
        """The first sentence, without the full stop."""
        return _joined(self.paragraphs[0]).split(". ")[0].rstrip(".:")


def _inline(text: str) -> str:
    text = re.sub(r":\w+:`~?([^`]+)`", lambda m: f"`{m[1].removeprefix('tightbudget.')}`", text)
    return text.replace("``", "`")


def _joined(text: str) -> str:
    return " ".join(text.split())


def _entries(text: str) -> list[tuple[str, str]]:
    """``name: text`` entries; a deeper indent goes on with the entry before."""
    entries: list[tuple[str, str]] = []
    for line in textwrap.dedent(text).splitlines():
        if line.startswith(" ") and entries:
            name, so_far = entries[-1]
            entries[-1] = name, f"{so_far} {line.strip()}"
        else:
            name, colon, rest = line.partition(": ")
            entries.append((name, rest.strip()) if colon else ("", line.strip()))
    return entries


def _signature(name: str, thing: Callable[..., Any]) -> str:
    parameters = []
    starred = False
    for p in inspect.signature(thing).parameters.values():
        if p.name == "self":
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            parameters.append("*")
            starred = True
        default = "" if p.default is p.empty else f"={_default(p.default)}"
        parameters.append(f"{p.name}{default}")
    return f"{name}({', '.join(parameters)})"


def _default(value: object) -> str:
    return "..." if repr(value).startswith("<") else repr(value)


def _constructor(cls: type) -> str:
    if getattr(cls, "_is_protocol", False):
        return cls.__name__  # nobody makes one
    return _signature(cls.__name__, cls).replace(", *, relation=None", "")


def _list(entries: list[tuple[str, str]]) -> Iterator[str]:
    for name, text in entries:
        yield f"- `{name}`: {text}" if name else f"- {text}"


# -------------------------------------------------------------------------------- parts


def mechanisms_table() -> str:
    """One line per mechanism, for the README."""
    lines = ["| mechanism | what it does |", "| --- | --- |"]
    for _, cls in sorted(tb.MECHANISMS.items()):
        summary = Doc.of(cls).summary.replace("|", "\\|")
        lines.append(f"| `{_constructor(cls)}` | {summary} |")
    return "\n".join(lines)


def mechanisms() -> str:
    """Every mechanism in full."""
    lines: list[str] = []
    for kind, cls in sorted(tb.MECHANISMS.items()):
        doc = Doc.of(cls)
        lines += [f"## {cls.__name__}", "", "```text", _constructor(cls), "```", ""]
        for paragraph in doc.paragraphs:
            lines += [paragraph, ""]
        lines += [f"In plans and on the command line: `{kind}`.", ""]
        lines += _sections(doc)
    return "\n".join(lines).rstrip()


def api() -> str:
    """Every public name."""
    lines: list[str] = []
    for name in tb.__all__:
        thing = getattr(tb, name)
        mechanism = inspect.isclass(thing) and issubclass(thing, tb.Mechanism)
        if mechanism and thing is not tb.Mechanism:
            continue  # in mechanisms.md
        if inspect.isclass(thing) and issubclass(thing, Exception):
            continue  # in the tree of refusals
        lines += [f"## {name}", ""]
        lines += _module(name, thing) if inspect.ismodule(thing) else _one(name, thing)
    for name in ADAPTERS:
        lines += [f"## {name}", "", *_module(name, importlib.import_module(f"tightbudget.{name}"))]
    return "\n".join(lines).rstrip()


def _module(name: str, module: ModuleType) -> Iterator[str]:
    """Its text and its public names, which may be modules themselves."""
    for paragraph in Doc.of(module).paragraphs:
        yield from (paragraph, "")
    for public in module.__all__:
        inside, member = f"{name}.{public}", getattr(module, public)
        if inspect.ismodule(member):
            yield from (f"### {inside}", "", *_module(inside, member))
        elif inspect.isclass(member) or inspect.isroutine(member):
            yield from (f"### {inside}", "", *_one(inside, member))


def _one(name: str, thing: object) -> Iterator[str]:
    if inspect.isroutine(thing):
        yield from _described(_signature(name, thing), thing)
    elif inspect.isclass(thing):
        head = name if issubclass(thing, (enum.Enum, tb.Mechanism)) else _constructor(thing)
        yield from _described(head, thing)
        if issubclass(thing, enum.Enum):
            yield from (f"- `{member}`" for member in thing)
            yield ""
        for method, member in _methods(thing):
            yield f"### {name}.{method}"
            yield ""
            if isinstance(member, property):
                yield from _described(f"{name}.{method}", member)
            else:
                function = getattr(thing, method)
                yield from _described(_signature(f"{name}.{method}", function), function)
    else:
        assert isinstance(thing, dict)
        yield f"A dictionary with the keys {', '.join(f'`{key}`' for key in thing)}."
        yield ""


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Its own, and those of bases that have no place of their own."""
    bases = (base for base in cls.__mro__[1:] if base.__module__.startswith("tightbudget."))
    unlisted = [base for base in bases if base.__name__ not in tb.__all__]
    members = dict(item for of in (*reversed(unlisted), cls) for item in vars(of).items())
    for name, member in members.items():
        text = (member.__func__ if isinstance(member, staticmethod) else member).__doc__
        callable_ = inspect.isfunction(member) or isinstance(member, (property, staticmethod))
        # only what has a text of its own is part of the promise
        if text and callable_ and not name.startswith("_"):
            yield name, member


def _described(signature: str, thing: object) -> Iterator[str]:
    doc = Doc.of(thing)
    yield from ("```text", signature, "```", "")
    for paragraph in doc.paragraphs:
        yield from (paragraph, "")
    yield from _sections(doc)


def _sections(doc: Doc) -> Iterator[str]:
    for title, entries in doc.sections.items():
        yield from (f"**{title}**", "", *_list(entries), "")


def refusals() -> str:
    """The exception tree, as errors.py draws it, and each exception's sentence."""
    tree = (errors.__doc__ or "").split("\n\n", 1)[1].strip()
    lines = ["```text", tree, "```", ""]
    for name in errors.__all__:
        doc = Doc.of(getattr(errors, name))
        lines += [f"- `{name}`: {_joined(doc.paragraphs[0])}"]
        lines += [f"  {line}" for line in _list(doc.sections.get("Attributes", []))]
    return "\n".join(lines)


def _measured(name: str, form: str) -> str:
    folder = ROOT / "benchmarks"
    results = json.loads((folder / name).read_text(encoding="utf-8"))
    return str(runpy.run_path(str(folder / "report.py"))[form](results)).rstrip()


def benchmarks() -> str:
    """What ``make bench`` measured last."""
    return _measured("results.json", "markdown")


def digits() -> str:
    """What ``make bench`` measured last at many digits."""
    return _measured("digits.json", "digits")


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


def ledger_speed() -> str:
    """What ``make bench`` measured last of the ledger."""
    return _measured("ledger.json", "ledger")


def web_speed() -> str:
    """What ``make bench`` measured last of a ledger that is served."""
    return _measured("web.json", "web")


def ledger_tables() -> str:
    """The stories that every ledger must answer alike."""
    stories = ((table.name, textwrap.dedent(table.text).strip()) for table in TABLES)
    return "\n\n".join(f"## {name}\n\n```text\n{story}\n```" for name, story in stories)


def http_api() -> str:
    """Every operation of the API, from its own document."""
    return str(runpy.run_path(str(ROOT / "docs" / "http_api.py"))["reference"]())


PARTS: dict[str, Callable[[], str]] = {
    "mechanisms-table": mechanisms_table,
    "mechanisms": mechanisms,
    "api": api,
    "refusals": refusals,
    "benchmarks": benchmarks,
    "digits": digits,
    "reproductions": reproductions,
    "agreement": agreement,
    "ledger-speed": ledger_speed,
    "web-speed": web_speed,
    "ledger-tables": ledger_tables,
    "http-api": http_api,
}


# --------------------------------------------------------------------------------- main


def pages() -> list[Path]:
    """README and every page of the docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def renewed(text: str) -> str:
    """The text with its marked parts written anew."""
    return PART.sub(lambda m: f"{m[1]}\n{PARTS[m[2]]()}\n\n{m[3]}", text)


def stale() -> dict[Path, str]:
    """Pages whose marked parts are out of date, with the text they should have."""
    found = {}
    for path in pages():
        old = path.read_text(encoding="utf-8")
        new = renewed(old)
        if new != old:
            found[path] = new
    return found


def main(arguments: list[str]) -> int:
    """Rewrites, or with --check only tells."""
    out_of_date = stale()
    for path, text in out_of_date.items():
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
    return 1 if out_of_date and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
