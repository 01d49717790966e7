"""``tightbudget sweep``: a file of questions, many cores or machines, a table."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

import tightbudget
from tightbudget import ParameterError
from tightbudget.cli.options import AsJson
from tightbudget.cli.output import Stopwatch, print_answer, print_rows, print_table, tracked
from tightbudget.errors import ExtraError, FileError
from tightbudget.notation.values import value_of
from tightbudget.numerics.validate import positive_count
from tightbudget.sweeps import Sweep, read_questions
from tightbudget.sweeps.table import table_path

_PATIENCE = 10  # seconds that a Dask scheduler has to answer


def sweep(
    questions: Annotated[Path, typer.Argument(help="A plan file with axes: a grid of questions.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a .csv, .csv.gz or .parquet (extra: sweep).", show_default="print"
        ),
    ] = None,
    workers: Annotated[
        Any,
        typer.Option(
            help="So many processes.", parser=value_of, metavar="NUMBER", show_default="this one"
        ),
    ] = None,
    dask: Annotated[
        str | None, typer.Option(help="The address of a Dask scheduler (extra: dask).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted sweep stopped.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Answers a grid of questions: bounds for each cell, or the noise that it needs.

    Answers are kept in a journal beside --out as they come, until the table is written. A refused
    question becomes a row with the reason.

    For example: tightbudget sweep sweep.toml --workers 4 --out sweep.parquet
    """
    watch = Stopwatch()
    asked = read_questions(questions)
    journal = None if out is None else _journal(table_path(out), resume=resume)
    if out is None and resume:
        raise ParameterError("--resume needs --out: the journal lies beside it")
    with _executor(workers, dask) as executor:
        found = tightbudget.sweep(
            asked, executor, journal=journal, progress=lambda left: tracked(left, "answering")
        )
    if out is not None and journal is not None:
        found.write(out)
        journal.unlink()
    if json:
        rows = {} if out is not None else {"rows": found.rows()}
        counts = {"questions": len(found), "refused": len(found.refused)}
        print_answer({**rows, **counts}, {"questions": str(questions)}, watch)
        return
    if out is None:
        print_table(found.columns, _cells(found))
    print_rows(
        ({"wrote": str(out)} if out is not None else {})
        | {"questions": str(len(found)), "refused": str(len(found.refused))}
        | {"seconds": f"{watch.seconds:.2f}"}
    )


def _journal(out: Path, *, resume: bool) -> Path:
    """Returns the path of the file that keeps answers until the table is written."""
    journal = out.with_name(f"{out.name}.journal")
    if journal.exists() and not resume:
        raise FileError(
            f"{journal}: left by an interrupted sweep; go on with --resume, or remove it"
        )
    return journal


@contextmanager
def _executor(workers: Any, dask: str | None) -> Iterator[Executor | int | None]:
    if dask is None:
        yield workers if workers is None else positive_count(workers=workers)
        return
    if workers is not None:
        raise ParameterError("give one of --workers and --dask, got both")
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise ExtraError("--dask needs Dask: pip install 'tightbudget[dask]'") from error
    try:
        client = distributed.Client(dask, timeout=_PATIENCE)
    except (OSError, ValueError) as error:  # no answer in time; or no address
        raise ParameterError(
            f"dask must be a scheduler's address, got {dask!r}: {error}"
        ) from error
    with client:
        yield client.get_executor()


def _cells(found: Sweep) -> list[list[str]]:
    return [["" if value is None else str(value) for value in row.values()] for row in found.rows()]
