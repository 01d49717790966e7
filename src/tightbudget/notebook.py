"""Small tables and bars in HTML, which a notebook shows in the place of a value's ``repr``.

Everything is static: no script, no address, no font. Text takes the colour of the page, so that it
can be read on light and on dark ones. The other colours are those of the ledger's web pages. Each
output carries its style, since a notebook may show any one of them alone.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence

# The colours named in web/static/style.css. Notebooks say on their body whether they are dark
# (JupyterLab and nbconvert, VS Code, MkDocs Material); where nothing is said, the system does.
_LIGHT = (
    "--tb-spent:#2f4590;--tb-held:#8f4d00;--tb-held-soft:#fbe6c8;--tb-left:#e6e9f2;"
    "--tb-line:#8b8e96;--tb-good:#1d6b50"
)
_DARK = (
    "--tb-spent:#8ea6f2;--tb-held:#f0a84a;--tb-held-soft:#3d2e17;--tb-left:#2a303c;"
    "--tb-line:#727a88;--tb-good:#7fd6b2"
)
_STYLE = f"""<style>
.tightbudget {{ {_LIGHT}; overflow-x: auto; line-height: 1.4; font-variant-numeric: tabular-nums }}
@media (prefers-color-scheme: dark) {{
  body:not([data-jp-theme-light="true"], .vscode-light, [data-md-color-scheme="default"])
  .tightbudget {{ {_DARK} }}
}}
body:is([data-jp-theme-light="false"], .vscode-dark, [data-md-color-scheme="slate"])
.tightbudget {{ {_DARK} }}
.tightbudget table {{ border-collapse: collapse; border: 0; margin: .25em 0; width: auto;
  table-layout: auto; font-size: inherit; color: inherit }}
.tightbudget caption {{ text-align: left; font-weight: 600; padding: .2em 0; caption-side: top;
  color: inherit }}
.tightbudget tr, .tightbudget tr:hover {{ background: transparent !important }}
.tightbudget table th, .tightbudget table td {{ text-align: left !important;
  vertical-align: baseline; border: 0; padding: .2em 1.2em .2em 0; color: inherit;
  white-space: nowrap; max-width: none }}
.tightbudget table thead th {{ border-bottom: 1px solid var(--tb-line); font-weight: 600 }}
.tightbudget table tbody th {{ font-weight: 400 }}
.tightbudget table td.tb-number {{ text-align: right !important }}
.tightbudget table .tb-long {{ white-space: normal; min-width: 11em; max-width: 36em;
  overflow-wrap: anywhere }}
.tightbudget pre {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }}
.tightbudget .tb-muted {{ opacity: .72 }}
.tightbudget svg.tb-bar {{ vertical-align: middle; overflow: visible; max-width: none }}
.tightbudget .tb-spent {{ fill: var(--tb-spent) }}
.tightbudget .tb-left {{ fill: var(--tb-left); stroke: var(--tb-line) }}
.tightbudget .tb-held-ground {{ fill: var(--tb-held-soft) }}
.tightbudget .tb-held-ink {{ fill: var(--tb-held) }}
.tightbudget .tb-cap {{ stroke: currentColor; stroke-width: 2 }}
.tightbudget summary {{ cursor: pointer }}
</style>"""

# The stripes of what is held, told apart without their colours, as on the web pages.
_STRIPES = (
    '<defs><pattern id="tb-held" width="7" height="7" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect class="tb-held-ground" width="7" height="7" '
    'fill="#fbe6c8"/><rect class="tb-held-ink" width="3" height="7" fill="#8f4d00"/>'
    "</pattern></defs>"
)
_LONG = 24  # characters of a text from which on its lines are broken where a table is wide
_NUMBER = re.compile(r"(about |<= )?[-\[]?(\d|inf\b)")
_TAG = re.compile(r"<[^>]*>")
MOST_ROWS = 12  # of a table: more fill a screen
_WIDE = 120  # the width of a bar, in pixels: about that of a number with twelve digits


class Html(str):
    """A text that is HTML already; every other text is escaped."""

    __slots__ = ()


class PrintedLines(str):
    """A text of several lines, which a shell and a notebook show as lines and not as a literal."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return shown(Html(f"<pre>{html.escape(self)}</pre>"))


def shown(*parts: object) -> str:
    """Joins tables, bars and texts to one output of a notebook, with their style."""
    return f'<div class="tightbudget">{_STYLE}{"".join(map(_html, parts))}</div>'


def table(
    rows: Iterable[Sequence[object]], *, head: Sequence[object] = (), title: object = ""
) -> Html:
    """Makes a table; the first cell of each row is its heading.

    Args:
        rows: for each row its cells. Numbers and bounds stand on the right.
        head: the headings of the columns; none if empty.
        title: the caption; none if empty.
    """
    caption = f"<caption>{_html(title)}</caption>" if title else ""
    columns = "".join(f'<th scope="col">{_html(name)}</th>' for name in head)
    top = f"<thead><tr>{columns}</tr></thead>" if head else ""
    body = "".join(f"<tr>{''.join(map(_cell, range(len(row)), row))}</tr>" for row in rows)
    return Html(f"<table>{caption}{top}<tbody>{body}</tbody></table>")


def bar(*, spent: float, held: float, cap: float) -> Html:
    """Draws what is spent and held of a cap, as the ledger's web pages do."""
    whole = max(cap, spent + held)
    if not 0 < whole < math.inf:
        return Html("")
    used, taken, limit = (round(_WIDE * x / whole, 2) for x in (spent, held, cap))
    said = f"spent {spent!r}, held {held!r} of {cap!r}"
    return Html(
        f'<svg class="tb-bar" role="img" aria-label="{said}" width="{_WIDE}" height="14">'
        f"<title>{said}</title>{_STRIPES}"
        f'<rect class="tb-left" fill="#e6e9f2" stroke="#8b8e96" x="0.5" y="0.5" height="13" '
        f'width="{max(limit - 1, 0)}"/>'
        f'<rect class="tb-spent" fill="#2f4590" height="14" width="{used}"/>'
        f'<rect fill="url(#tb-held)" height="14" x="{used}" width="{taken}"/>'
        f'<line class="tb-cap" stroke="currentColor" x1="{limit}" x2="{limit}" y1="0" y2="14"/>'
        "</svg>"
    )


def scale(value: float, most: float) -> Html:
    """Draws a number as a bar beside others, of which ``most`` fills the width.

    A number that is larger fills the width, too, and has an arrow at the end.
    """
    if not (value >= 0 and 0 < most < math.inf):
        return Html("")
    width = round(_WIDE * min(value / most, 1.0), 2)
    beyond = f'<path d="M{_WIDE + 4} 2 l5 5 l-5 5" fill="none" stroke="currentColor"/>' * (
        value > most
    )
    return Html(
        f'<svg class="tb-bar" aria-hidden="true" width="{_WIDE + 10}" height="14">'
        f'<rect class="tb-spent" fill="#2f4590" y="2" height="10" width="{width}"/>{beyond}</svg>'
    )


def left(text: object) -> Html:
    """Makes a text that stands on the left of its column, also where it begins with a digit."""
    return Html(_html(text))


def indented(text: object, depth: int) -> Html:
    """Moves a text to the right, as deep as it stands in a tree."""
    return Html(f'<span style="padding-left: {1.2 * depth:g}em">{_html(text)}</span>')


def muted(text: object) -> Html:
    """Makes a text that is paler than the rest: a note."""
    return Html(f'<span class="tb-muted">{_html(text)}</span>')


def folded(summary: object, content: object) -> Html:
    """Makes a part of an output that opens when somebody clicks on its summary."""
    return Html(f"<details><summary>{_html(summary)}</summary>{_html(content)}</details>")


def elided(size: int, most: int) -> list[int]:
    """Chooses at most ``most`` of the indices 0, ..., size - 1, evenly, with the first and last."""
    if size <= most:
        return list(range(size))
    return sorted({round(k * (size - 1) / (most - 1)) for k in range(most)})


def _html(value: object) -> str:
    """Escapes a value's text unless it is HTML already."""
    if isinstance(value, Html):
        return str(value)
    return html.escape(str(value))  # guard: notebook-escapes


def _cell(column: int, value: object) -> str:
    """Makes a cell of a table: a heading in the first column, numbers on the right."""
    text = _html(value)
    if column and not isinstance(value, Html) and _NUMBER.match(str(value)):
        return f'<td class="tb-number">{text}</td>'
    said = ' class="tb-long"' if len(_TAG.sub("", text)) > _LONG else ""
    return f"<td{said}>{text}</td>" if column else f'<th scope="row"{said}>{text}</th>'
