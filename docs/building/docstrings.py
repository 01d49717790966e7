"""Turns a docstring of the house into Markdown, before the site's reference shows it.

A paragraph that begins with ``Guarantee:`` or ``Source:`` gets a class that the style sheet knows,
a role such as ``:class:`Bounds``` becomes a link, and a doctest becomes a block of code.
"""

from __future__ import annotations

import re

from docs.building.public import public

PUBLIC = public()
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc|obj):`~?([^`]+)`")
MARKED = re.compile(r"(?:^|(?<=[.:)])\s+)(Guarantee|Source): ")
SECTION = re.compile(r"\w[\w ]*:\n")


def rewritten(text: str) -> str:
    """The docstring as Markdown; paragraphs that are indented are left as they are."""
    return "\n\n".join(_paragraph(paragraph) for paragraph in ROLE.sub(_linked, text).split("\n\n"))


def _linked(role: re.Match[str]) -> str:
    """A public name as a link to its place in the reference, another name as code."""
    name = role[1].removeprefix("tightbudget.")
    known = next((part for part in name.split(".") if part in PUBLIC), None)
    return f"[`{name}`][{PUBLIC[known]}]" if known else f"`{name}`"


def _paragraph(text: str) -> str:
    """A paragraph, divided where a guarantee or a source begins."""
    if text.startswith(">>> "):
        return f"```pycon\n{text}\n```"
    if text.startswith(" ") or SECTION.match(text) or not MARKED.search(text):
        return text
    before, *marked = MARKED.split(text)
    parts = [before] if before else []
    for kind, said in zip(marked[::2], marked[1::2], strict=True):
        parts.append(f"**{kind}:** {said.rstrip()}\n{{: .{kind.lower()} }}")
    return "\n\n".join(parts)
