"""How answers are shown: certified digits for people, exact doubles in JSON for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

__all__ = [
    "AsJson",
    "Rtol",
    "Stopwatch",
    "print_json",
    "print_rows",
    "print_table",
    "print_text",
    "tracked",
    "working",
]

T = TypeVar("T")

# options that several commands share
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, with exact doubles.")]
Rtol = Annotated[float, typer.Option(help="Wanted relative gap, (upper - lower) / upper.")]


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Rounded to milliseconds."""
        return round(time.perf_counter() - self._start, 3)


def print_json(content: dict[str, Any]) -> None:
    """One line of JSON; infinity is written 1e999, a number that every parser reads as that.

    (``Infinity`` is not JSON, and ``null`` is less than anything in some languages.)
    """
    text = json.dumps(content).replace("Infinity", "1e999")
    typer.echo(text)


def print_text(text: str) -> None:
    """One line for a person."""
    typer.echo(text)


def print_rows(rows: dict[str, str]) -> None:
    """Names and values in two columns."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    _console().print(table)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows under a header."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in header:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def _console(*, stderr: bool = False) -> Console:
    # text is data here: "[1.2, 1.3]" is no markup
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


@contextmanager
def working(text: str) -> Iterator[None]:
    """A spinner on stderr, if that is a terminal."""
    with _console(stderr=True).status(text):
        yield


def tracked(points: Sequence[T], text: str) -> Iterator[T]:
    """The points, with a progress bar on stderr if that is a terminal."""
    with Progress(console=_console(stderr=True), transient=True) as progress:
        yield from progress.track(points, description=text)
