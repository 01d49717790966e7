"""Output for people, with certified digits, and for programs, with exact doubles in JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.spinner import Spinner
from rich.text import Text

from tightbudget import __version__
from tightbudget.text_file import json_text

T = TypeVar("T")


class Stopwatch:
    """Measures the seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The seconds so far, rounded to milliseconds."""
        return round(time.perf_counter() - self._start, 3)


def print_json(content: dict[str, Any]) -> None:
    """Prints one line of JSON."""
    typer.echo(json_text(content))


def print_answer(content: dict[str, Any], asked: dict[str, Any], watch: Stopwatch) -> None:
    """Prints an answer as one line of JSON, with what was asked, the version and the seconds."""
    more = {"asked": asked, "version": __version__, "seconds": watch.seconds}
    print_json({**content, **more})


def print_rows(rows: Mapping[str, str]) -> None:
    """Prints names and values in two columns; values may have several lines."""
    wide = max(map(len, rows)) + 2
    for name, value in rows.items():
        indented = value.replace("\n", "\n" + " " * wide)
        print_text(Text.assemble((f"{name:<{wide}}", "dim"), indented))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
    """Prints columns under a header."""
    table = [[Text(name, "dim") for name in header], *([Text.assemble(c) for c in r] for r in rows)]
    wide = [max(cell.cell_len for cell in column) for column in zip(*table, strict=True)]
    for row in table:
        for cell, width in zip(row, wide, strict=True):
            cell.pad_right(width - cell.cell_len)
        line = Text("  ").join(row)
        line.rstrip()
        print_text(line)


def print_text(text: str | Text) -> None:
    """Prints a text unchanged, in colour on a terminal."""
    # no wrapping: a line that is piped or copied stays one line
    _console().print(Text.assemble(text), soft_wrap=True)


def speaks_unicode() -> bool:
    """Tells whether stdout can show more than ASCII."""
    return not _console().options.ascii_only


def _console(*, stderr: bool = False) -> Console:
    # rich would take "[1.2, 1.3]" for markup
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Shows a spinner on stderr, if that is a terminal."""
    with _console(stderr=True).status(text):
        yield


@contextmanager
def growing_text(then: str) -> Iterator[Callable[[str], None]]:
    """Shows the latest version of a text on stderr, if that is a terminal, until it is complete.

    Args:
        then: what is being done for the rest of the text, shown beside a spinner below it.
    """
    console = _console(stderr=True)
    spinner = Spinner("dots", then)
    with Live(spinner, console=console, transient=True) as live:
        yield lambda text: live.update(Group(Text(text, no_wrap=True), spinner))


def tracked(points: Sequence[T], text: str) -> Iterator[T]:
    """Yields the points, and shows a progress bar on stderr if that is a terminal."""
    console = _console(stderr=True)
    # without a terminal, the spinner would leave an empty line
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(points, description=text)


@contextmanager
def bar(text: str) -> Iterator[Callable[[float], None]]:
    """Shows a progress bar on stderr, if that is a terminal, that is told which share is done."""
    console = _console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=1.0)
        yield lambda share: progress.update(task, completed=share)


@contextmanager
def checklist(names: Sequence[str]) -> Iterator[Callable[[int], None]]:
    """Shows a list of names on stderr, and ticks off those whose index is reported.

    >>> with checklist(["the first thing"]) as done:
    ...     done(0)
    """
    console = _console(stderr=True)
    with Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        rows = [progress.add_task(name, total=1) for name in names]
        yield lambda i: progress.update(rows[i], completed=1)
