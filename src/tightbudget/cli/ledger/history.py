"""``tightbudget ledger history``, ``verify``, ``export-head`` and ``import-check``."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tightbudget.cli.completion import budgets
from tightbudget.cli.ledger.options import Url, opened
from tightbudget.cli.options import AsJson, number
from tightbudget.cli.output import Stopwatch, print_json, print_rows, print_table, tracked
from tightbudget.errors import FileError, ParameterError
from tightbudget.numerics.validate import count
from tightbudget.promises.stored_words import EventKind
from tightbudget.text_file import read_text, write_text

if TYPE_CHECKING:
    from tightbudget.ledger.verification import Verification
    from tightbudget.promises.checkpoint import Checkpoint

_SECONDS = len("2026-01-01T00:00:00")
_ALWAYS = 9  # columns of every history


def history(
    ledger: Url,
    budget: Annotated[
        str | None, typer.Option(help="Of this budget only.", autocompletion=budgets)
    ] = None,
    key: Annotated[str | None, typer.Option(help="Of this reservation only.")] = None,
    after: Annotated[int, number("From the event after this number on.")] = 0,
    limit: Annotated[int | None, number("So many events at most.")] = None,
    json: AsJson = False,
) -> None:
    """Lists the events of a ledger, oldest first.

    For example: tightbudget ledger history --budget ada --ledger sqlite:///budget.db
    """
    with opened(ledger) as it:
        most = None if limit is None else count(limit=limit)
        events = it.events(budget=budget, key=key, after=count(after=after), limit=most)
        if json:
            print_json({"events": [event.to_dict() for event in events]})
            return
        rows = [
            (
                str(event.sequence),
                event.at[:_SECONDS],
                event.kind,
                event.key or "",
                event.budget or "",
                repr(event.epsilon),
                repr(event.delta),
                "" if event.cell is None else repr(event.cell),
                event.details.get("by", ""),
                event.question or "",
                event.details["said"] if event.kind == EventKind.AUDITED else "",
            )
            for event in events
        ]
    columns = ["number", "at", "what", "key", "budget", "epsilon", "delta", "cell", "by"]
    columns += ["question", "audit"]
    # the last two only where an event has one
    shown = [i for i in range(len(columns)) if i < _ALWAYS or any(row[i] for row in rows)]
    print_table([columns[i] for i in shown], [[row[i] for i in shown] for row in rows])


def verify(
    ledger: Url,
    state: Annotated[
        Path | None,
        typer.Option(
            help="A file for how far it came: goes on from there, and writes it anew.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Replays the whole history, and compares the result with all that is stored.

    Exit code 7 says that something was changed. Only a head that was kept elsewhere can tell that
    events at the end of a history are missing: see export-head.

    With --state, events that an earlier verification has read are not read again. Keep the file
    where those who can change the ledger cannot change it.

    For example: tightbudget ledger verify --state verified.json --ledger sqlite:///budget.db
    """
    watch = Stopwatch()
    since = None if state is None or not state.exists() else _checkpoint(state)
    keep = None if state is None else functools.partial(_keep, state)
    with opened(ledger) as it:
        print_verification(it.verify(pages_tracked, since=since, keep=keep), watch, json=json)


def export_head(ledger: Url, json: AsJson = False) -> None:
    """Prints the head of the history, to be kept where the ledger is not.

    For example: tightbudget ledger export-head --ledger sqlite:///budget.db
    """
    with opened(ledger) as it:
        head = it.head()
        if json:
            print_json({"head": str(head), "sequence": head.sequence, "hash": head.hash})
        else:
            typer.echo(head)


def import_check(
    head: Annotated[Path, typer.Argument(help="A file that export-head has printed.")],
    ledger: Url,
    json: AsJson = False,
) -> None:
    """Checks that the history continues an exported head.

    Exit code 7 says that it does not: a backup was restored, or a copy was charged apart.

    For example: tightbudget ledger import-check head.txt --ledger sqlite:///budget.db
    """
    with opened(ledger) as it:
        text = read_text(head).strip()
        it.check(text)
        answer = {"kept": text, "head": str(it.head())}
        if json:
            print_json(answer)
        else:
            print_rows(answer)


def _checkpoint(state: Path) -> Checkpoint:
    """Reads how far an earlier verification came.

    Raises:
        FileError: the file cannot be read, or is not what a verification has written.
    """
    from tightbudget.promises.checkpoint import Checkpoint

    try:
        return Checkpoint.from_text(read_text(state))
    except ParameterError as error:
        raise FileError(f"{state}: {error}") from error


def _keep(state: Path, checkpoint: Checkpoint) -> None:
    """Writes how far a verification came, all of it or nothing.

    Raises:
        FileError: the file cannot be written.
    """
    new = state.with_name(f"{state.name}.new")
    write_text(new, str(checkpoint))
    new.replace(state)


def pages_tracked(pages: Iterable[int]) -> Iterator[int]:
    """Yields the pages of a history, and shows a progress bar."""
    return tracked(list(pages), "verifying")


def print_verification(found: Verification, watch: Stopwatch, *, json: bool) -> None:
    """Prints the result of a successful verification, for a person or a program."""
    answer = {
        "events": found.head.sequence,
        "budgets": found.budgets,
        "reservations": found.reservations,
        "tokens": found.tokens,
        "head": str(found.head),
        "seconds": watch.seconds,
    }
    if json:
        print_json(answer)
    else:
        print_rows({n: "not to be read" if v is None else str(v) for n, v in answer.items()})
