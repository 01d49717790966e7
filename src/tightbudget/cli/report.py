"""Reports of reproductions: for the terminal, as Markdown, and as HTML with the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_STYLE = """
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
body { font: 16px/1.5 sans-serif; color: #333 }
img { max-width: 100% }
dt { font-weight: bold } dd { margin: 0 0 .5rem 0; white-space: pre-wrap }
pre { overflow-x: auto; background: #f6f6f6; padding: .7rem; font-size: 13px }
"""


@dataclass(frozen=True)
class Reproduction:
    """One table or figure of a paper.

    Attributes:
        name: PAPER/SCRIPT.
        title: the subject of the table or figure.
        said: named texts: the paper's claim, what was found, ...
        table: a text with columns, or None.
        picture: the picture's path without its suffix, relative to the report's, or None.
    """

    name: str
    title: str
    said: dict[str, str]
    table: str | None = None
    picture: str | None = None

    def in_words(self) -> str:
        """Writes the reproduction for a terminal."""
        wide = max(map(len, self.said)) + 2
        lines = [
            f"{name:<{wide}}" + text.replace("\n", "\n" + " " * wide)
            for name, text in self.said.items()
        ]
        return "\n".join([*lines, *([self.table] if self.table else [])])


def as_markdown(entries: Sequence[Reproduction]) -> str:
    """Writes a report in Markdown, with a section for each table or figure."""
    parts = ["# Reproductions"]
    for entry in entries:
        parts.append(f"## {entry.name}: {entry.title}")
        parts += [
            f"**{name}**: " + text.replace("\n", "\n  * ") for name, text in entry.said.items()
        ]
        if entry.table:
            parts.append(f"```text\n{entry.table}\n```")
        if entry.picture:
            parts.append(f"![{entry.name}]({entry.picture}.png)")
    return "\n\n".join(parts) + "\n"


def as_html(entries: Sequence[Reproduction]) -> str:
    """Writes a report as an HTML page, with a section for each table or figure."""
    parts = [
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Reproductions</title>\n'
        f"<style>{_STYLE}</style>\n<h1>Reproductions</h1>"
    ]
    for entry in entries:
        parts += [f"<h2>{escape(entry.name)}: {escape(entry.title)}</h2>", "<dl>"]
        parts += [
            f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in entry.said.items()
        ]
        parts.append("</dl>")
        if entry.table:
            parts.append(f"<pre>{escape(entry.table)}</pre>")
        if entry.picture:
            source, name = escape(entry.picture), escape(entry.name)
            parts.append(f'<p><img src="{source}.svg" alt="{name}"></p>')
    return "\n".join(parts) + "\n"
