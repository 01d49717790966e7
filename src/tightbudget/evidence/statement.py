"""A statement of privacy: what a reviewer asks, under the headings of NIST SP 800-226.

Three kinds of lines stand in it: what this package has certified, what the caller has said, which
is marked as said, and "not known to this tool". No line is left out because it is empty.

Source of the headings: NIST SP 800-226 (2025), "Guidelines for Evaluating Differential Privacy
Guarantees".
"""

from __future__ import annotations

import html
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

from tightbudget import notebook
from tightbudget.drawing import inline_picture
from tightbudget.errors import ExtraError, LedgerCorruptError, ParameterError, PrecisionError
from tightbudget.evidence.loaders import NOT_KNOWN, assumed_of
from tightbudget.evidence.registry import record, to_yaml
from tightbudget.mechanisms.composition import Composable
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import open_probability, refuse

CLAIM_KEPT = "does the code keep the claim"  # the field that audits answer
HISTORY = "history"  # the field that has the head of a ledger
_VERSION = 1
_DELTAS = (1e-5, 1e-7, 1e-9, 1e-12)  # of the curve's rows, beside the delta that was asked for
# Of the picture: between two points the upper bound is an arc, which four points a decade hide
_CURVE = tuple(10.0 ** (-k / 4) for k in range(4, 49))

# What a person may say, by the name of its argument: heading and field
SAID = {
    "unit": ("Unit of privacy", "whom one unit is"),
    "neighbours": ("Unit of privacy", "neighbouring data sets"),
    "contribution": ("Unit of privacy", "bound on what one unit contributes, and how it is kept"),
    "loader": ("Algorithms and their correctness", "how the loader draws batches"),
    "randomness": ("Algorithms and their correctness", "source of random numbers"),
    "trust": ("Trust model", "who sees the data before noise is added"),
    "side_channels": ("Side channels", "time, memory, errors, floating-point noise"),
    "access": ("Security and access control", "who may read data, keys and outputs"),
    "utility": ("Utility and bias", "errors of the answers, and whom they hurt"),
    "collection": ("Data collection exposure", "how the data came here, and where they are kept"),
}
HEADINGS = (
    "Privacy parameters",
    "Unit of privacy",
    "Algorithms and their correctness",
    "Budget",
    "Trust model",
    "Side channels",
    "Security and access control",
    "Utility and bias",
    "Data collection exposure",
)

_NEIGHBOURS = {
    Neighbouring.ADD_OR_REMOVE: "one has one record more than the other",
    Neighbouring.REPLACE_ONE: "one record of the one is another record in the other",
    Neighbouring.ZERO_OUT: "one record of the one is an empty place in the other",
}

Row = tuple[str, str]

# The registry of deployments has these words.
Variant = Literal["Pure DP", "Approximate DP", "Zero-concentrated DP", "Custom"]


@dataclass(frozen=True)
class Section:
    """A section of a statement.

    Attributes:
        heading: its heading.
        rows: for each line its field, and what is known of it.
    """

    heading: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, repr=False)
class PrivacyStatement:
    """A statement of privacy says what is certified, what was said, and what nobody said.

    Attributes:
        title: what it is about.
        sections: under the headings of NIST SP 800-226.
        warning: "" or why the statement must not be relied on; it is the first line everywhere.
        variant: the variant of differential privacy of ``parameters``.
        parameters: of epsilon (nats), delta and rho those that bound the privacy loss: of a run its
            upper bound; of a budget its cap, also when less was spent, since what a run costs may
            depend on its output.
        run: the run that it is about; None if it is about a budget.
    """

    title: str
    sections: tuple[Section, ...]
    warning: str = ""
    variant: Variant = "Custom"
    parameters: Mapping[str, float] = field(default_factory=dict)
    run: Composable | None = None

    @property
    def unknown(self) -> tuple[str, ...]:
        """The fields that are not known, each after its heading."""
        return tuple(
            f"{section.heading}: {field}"
            for section in self.sections
            for field, known in section.rows
            if known == NOT_KNOWN
        )

    def to_dict(self) -> dict[str, Any]:
        """Writes the statement as plain JSON values."""
        return {
            "tightbudget": _VERSION,
            "statement": self.title,
            "warning": self.warning,
            "sections": [
                {"heading": s.heading, "rows": [{"field": f, "known": k} for f, k in s.rows]}
                for s in self.sections
            ],
        }

    def to_markdown(self) -> str:
        """Writes the statement in Markdown, a table for each section."""
        lines = [f"**{_cell(self.warning)}**", ""] if self.warning else []
        lines += [f"# Statement of privacy: {_cell(self.title)}"]
        for section in self.sections:
            lines += ["", f"## {section.heading}", "", "| field | what is known |", "| --- | --- |"]
            lines += [f"| {_cell(field)} | {_cell(known)} |" for field, known in section.rows]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """Writes the statement as a page that can be printed."""
        body = "".join(
            f"<h2>{html.escape(section.heading)}</h2><table>"
            + "".join(
                f"<tr><th>{html.escape(field)}</th><td{_paler(known)}>{html.escape(known)}</td></tr>"
                for field, known in section.rows
            )
            + "</table>"
            for section in self.sections
        )
        title = f"Statement of privacy: {html.escape(self.title)}"
        body = self._picture() + body
        warned = f'<p class="warning">{html.escape(self.warning)}</p>' if self.warning else ""
        return (
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>'
            f"<style>{_STYLE}</style>{warned}<h1>{title}</h1>{body}</html>\n"
        )

    def to_registry(self) -> str:
        """Writes a draft record for the registry of deployments, in YAML.

        What a person must write begins with "TODO"; the registry's fields are those of September
        2026.

        Raises:
            LedgerCorruptError: the statement has a warning: no record is made from it.
            ParameterError: no epsilon holds at the delta of the statement.
        """
        if self.warning:
            raise LedgerCorruptError(f"no record is made from this statement: {self.warning}")
        if self.parameters.get("epsilon") == math.inf:
            raise refuse("delta", "be one at which an epsilon holds", self.parameters["delta"])
        known = {
            section.heading: {
                field: text.removeprefix("said: ")
                for field, text in section.rows
                if text != NOT_KNOWN
            }
            for section in self.sections
        }
        return to_yaml(
            record(
                self.title,
                known,
                variant=self.variant,
                parameters=self.parameters,
                lasting=self.run is None,
                version=metadata.version("tightbudget"),
            )
        )

    def model_card(self) -> str:
        """Writes a block for a model card, in Markdown: the first three sections, and the history.

        The history of a ledger's budget has the ledger's head, by which it can be checked later.
        """
        lines = [f"**{_cell(self.warning)}**", ""] if self.warning else []
        lines += ["### Differential privacy", ""]
        rows = [row for section in self.sections[:3] for row in section.rows]
        rows += [row for section in self.sections[3:] for row in section.rows if row[0] == HISTORY]
        lines += [f"- {_cell(field)}: {_cell(known)}" for field, known in rows]
        return "\n".join(lines) + "\n"

    def _picture(self) -> str:
        """Draws the curve of the run; no picture without matplotlib, or without a bound to draw."""
        if self.run is None:
            return ""
        try:
            curve = self.run.curve(deltas=_CURVE)
            said = f"epsilon over delta of {html.escape(self.title)}; the rows below have numbers"
            return inline_picture(lambda ax: curve.plot(ax=ax), said)
        except (ExtraError, PrecisionError):
            return ""

    def __repr__(self) -> str:
        warned = f"{self.warning}; " * bool(self.warning)
        return f"<PrivacyStatement: {warned}{self.title}; {len(self.unknown)} fields are not known>"

    def _repr_html_(self) -> str:
        """Writes the sections as tables, for a notebook."""
        tables = [notebook.table(s.rows, title=s.heading) for s in self.sections]
        return notebook.shown(*([self.warning] if self.warning else []), *tables)


def statement_of_run(run: Composable, *, delta: float, **said: str) -> PrivacyStatement:
    """States what a composition costs, for a paper or a model card.

    Guarantee: epsilon at ``delta`` is certified from both sides for mechanisms that run as
    described; all else in the statement is marked as said, or as not known.

    Args:
        run: a mechanism or composition.
        delta: in (0, 1).
        **said: what the caller knows, in words: ``unit``, ``neighbours``, ``contribution``,
            ``loader``, ``randomness``, ``trust``, ``side_channels``, ``access``, ``utility``,
            ``collection``.

    Raises:
        ParameterError: an argument is refused, or ``said`` has another name.
        PrecisionError: epsilon cannot be certified.
    """
    if not isinstance(run, Composable):
        raise refuse("run", "be a mechanism or a composition", run)
    delta, said = open_probability(delta=delta), checked(said)
    epsilon = run.epsilon(delta)
    parts = [f"{mechanism}, {runs:,} times" for mechanism, runs in run.parts]
    known: dict[str, list[Row]] = {
        "Privacy parameters": [
            ("variant", "approximate differential privacy, (epsilon, delta)"),
            (f"epsilon at delta = {delta!r}, nats", _certified(epsilon)),
            *[
                (f"epsilon at delta = {other!r}, nats", certified_at(run, other))
                for other in _DELTAS
                if other != delta
            ],
        ],
        "Algorithms and their correctness": [
            ("mechanisms", "; ".join(parts) or "none"),
            ("composition", "adaptive: each run may depend on the outputs of earlier ones"),
            *assumed_of(run),
            *arithmetic(),
            (CLAIM_KEPT, NOT_KNOWN),
            *([("please check", run.doubt)] if run.doubt else []),
        ],
    }
    if "neighbours" not in said:
        known["Unit of privacy"] = neighbours_of(run)
    title = parts[0] if len(parts) == 1 else f"{len(parts)} mechanisms"
    return PrivacyStatement(
        title,
        sections_of(known, said),
        variant="Approximate DP",
        parameters={"epsilon": epsilon.upper, "delta": delta},
        run=run,
    )


def arithmetic(*more: str) -> list[Row]:
    """Says how amounts were computed, and by which versions.

    Args:
        more: names of further packages whose versions are shown.
    """
    found = (f"{name} {metadata.version(name)}" for name in ("tightbudget", "numpy", *more))
    return [
        ("arithmetic", "doubles, each rounded against the claim; both bounds are certified"),
        ("checked by machine", "theorems in the project's proofs/, by Coq; programs are not"),
        ("versions", ", ".join([*found, f"Python {platform.python_version()}"])),
    ]


def neighbours_of(run: Composable) -> list[Row]:
    """Says for which neighbouring data sets a run is declared; nothing if for none."""
    relation = next((m.relation for m, _ in run.parts if m.relation is not None), None)
    if relation is None:
        return []
    return [(SAID["neighbours"][1], f"{relation.value}: {_NEIGHBOURS[relation]} (declared)")]


def certified_at(run: Composable, delta: float) -> str:
    """Writes both bounds of epsilon at a delta, or why there are none."""
    try:
        return _certified(run.epsilon(delta))
    except PrecisionError as error:
        return f"not certified: {error}"


def _certified(bounds: Bounds) -> str:
    return f"{bounds}, certified"


def checked(said: dict[str, str]) -> dict[str, str]:
    """Refuses what the caller says where a name is none of :data:`SAID`, or a text is empty."""
    given: dict[str, object] = {**said}
    for name, text in given.items():
        if name not in SAID:
            raise ParameterError(f"{name} is none of {', '.join(SAID)}")
        if not isinstance(text, str) or not text.strip():
            raise refuse(name, "be a text that is not empty", text)
    return said


def sections_of(known: dict[str, list[Row]], said: dict[str, str]) -> tuple[Section, ...]:
    """Puts what is known, said and open under the headings, each field once."""
    rows: dict[str, list[Row]] = {heading: list(known.get(heading, [])) for heading in HEADINGS}
    for name, (heading, line) in SAID.items():
        if name in said:
            rows[heading].append((line, f"said: {said[name].strip()}"))
        elif line not in [other for other, _ in rows[heading]]:
            rows[heading].append((line, NOT_KNOWN))
    return tuple(Section(heading, tuple(rows[heading])) for heading in HEADINGS if rows[heading])


def _cell(text: str) -> str:
    """Writes a text into a cell of a Markdown table."""
    plain = " ".join(text.split())
    for mark in ("\\", "|", "<", "*", "_", "`", "[", "#"):
        plain = plain.replace(mark, "\\" + mark)
    return plain


def _paler(known: str) -> str:
    return ' class="unknown"' if known == NOT_KNOWN else ""


_STYLE = (
    "body{font:11pt/1.4 serif;max-width:46em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;vertical-align:top;padding:.2em .6em .2em 0}"
    "tr{border-bottom:1px solid #ccc}"
    "th{width:35%;font-weight:normal}td{overflow-wrap:anywhere}.unknown{color:#666;font-style:italic}"
    ".warning{border:2px solid #b00;padding:.6em;font-weight:bold}"
    "@media print{body{margin:0;max-width:none}h2{break-after:avoid}tr{break-inside:avoid}}"
)
