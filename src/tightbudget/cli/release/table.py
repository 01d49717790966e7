"""Options that all releases from a table share: the table, the budget, the form of the answer."""

from __future__ import annotations

import csv
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

import tightbudget
from tightbudget import ParameterError, Session, Table
from tightbudget.cli.completion import budgets
from tightbudget.cli.ledger.answers import in_words
from tightbudget.cli.ledger.options import ByDefault, exact_number, opened
from tightbudget.cli.options import AsJson, number
from tightbudget.cli.output import Stopwatch, print_answer, print_table, print_text
from tightbudget.cli.release.where import condition
from tightbudget.tables.asked import cut

# A mechanism, and the public keys of the columns that it groups by.
Asked = tuple[Any, Mapping[str, Any]]

Data = Annotated[str, typer.Argument(help="A Parquet or CSV file with the rows.")]
Unit = Annotated[
    str | None, typer.Option(help="Column that names the unit of privacy; else it is the row.")
]
RowsPerUnit = Annotated[
    int | None, typer.Option(help="How many rows of a unit count; needed with --unit.")
]
RowId = Annotated[str | None, typer.Option(help="Column that is different in all rows of a unit.")]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", help="Type of a column of a CSV file: fare=float64; repeatable."),
]
LineBreaks = Annotated[
    bool, typer.Option("--line-breaks", help="Values in quotes may have line breaks (CSV).")
]
Conditions = Annotated[
    list[str] | None,
    typer.Option("--where", help="Rows that count: 'fare > 10'; repeatable, all must hold."),
]
OwnKey = Annotated[
    str | None,
    typer.Option(
        "--key", help="Your name for this one run; the same again is refused. Else a new one."
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", envvar="TIGHTBUDGET_TOKEN", help="Of a server; others see a command line."
    ),
]

_HTTP = ("http://", "https://")


def with_table(question: Callable[..., Asked]) -> Callable[..., None]:
    """Makes a command of a function from a table's columns and options to a mechanism.

    Args:
        question: from ``columns`` (names and types), ``epsilon``, ``delta`` and options of its own
            to the mechanism, and to the public keys of columns.
    """

    @functools.wraps(question)
    def command(**given: Any) -> None:
        own = {name: given.pop(name) for name in list(given) if name in options}
        _released(question, own, **given)

    shared = inspect.signature(_released, eval_str=True).parameters
    taken = inspect.signature(question, eval_str=True).parameters
    options = {n: p for n, p in taken.items() if n not in ("columns", "epsilon", "delta")}
    both = [p for n, p in shared.items() if n not in ("question", "own")]
    needed = [p for p in (*both, *options.values()) if p.default is p.empty]
    others = [p for p in (*options.values(), *both) if p.default is not p.empty]
    parameters = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (needed[0], *needed[1:], *others)
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _released(
    question: Callable[..., Asked],
    own: Mapping[str, Any],
    data: Data,
    epsilon: Annotated[Any, exact_number("Price of the answer, nats.")],
    budget: Annotated[str, typer.Option(help="The budget that pays.", autocompletion=budgets)],
    ledger: Annotated[
        str,
        typer.Option(
            envvar="TIGHTBUDGET_LEDGER",
            metavar="URL",
            help="sqlite:///FILE, postgresql+psycopg://HOST/NAME, or the address of a server.",
        ),
    ],
    delta: Annotated[Any, exact_number("0 for Laplace noise; above 0 for Gaussian noise.")] = 0,
    unit: Unit = None,
    rows_per_unit: RowsPerUnit = None,
    groups_per_unit: Annotated[
        int | None, typer.Option(help="In how many groups a unit counts.")
    ] = None,
    row_id: RowId = None,
    type_: Types = None,
    line_breaks: LineBreaks = False,
    where: Conditions = None,
    key: OwnKey = None,
    token: Token = None,
    by: ByDefault = None,
    confidence: Annotated[float, number("Of the intervals, from the noise alone.")] = 0.95,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show price and noise; read no row, charge nothing.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")] = False,
    json: AsJson = False,
) -> None:
    """Opens the table and the budget, asks the question, and prints the answer."""
    watch = Stopwatch()
    if as_csv and json:
        raise ParameterError("give one of --csv and --json, got both")
    found = Table(data, types=types_of(type_), line_breaks=line_breaks)
    mechanism, domains = question(found.columns, epsilon, delta, **own)
    table = Table(
        found,
        unit=unit,
        rows_per_unit=rows_per_unit,
        groups_per_unit=groups_per_unit,
        row_id=row_id,
        domains=domains,
    )
    for text in where or ():
        table = table.filter(condition(text, found.columns))
    name = name_of(data, where)
    with ExitStack() as stack:
        meter = budget_of(stack, ledger, budget, by=by, token=token)
        session = Session(table, meter if key is None else meter.keyed(key), name=cut(name, 80))
        if dry_run:
            preview = session.what_if([mechanism])
            if json:
                print_answer(preview.to_dict(), {"data": data, "budget": budget}, watch)
            else:
                print_text(str(preview))
            return
        answer = session.ask(mechanism)
    run = answer.key if key is None else key
    if json:
        names, rows = answer.rows(confidence)
        content = {"columns": names, "rows": rows, "cell": answer.cell, "key": run}
        receipt = {"receipt": answer.receipt.to_dict()}
        print_answer({**content, **receipt}, {"data": data, "budget": budget}, watch)
        return
    names, rows = answer.rows(confidence)
    if not as_csv:
        rows = [[*row[:-1], "yes" if row[-1] else ""] for row in rows]  # mostly noise
    _print_rows(names, rows, as_csv=as_csv)
    typer.echo(f"charged {in_words(answer.receipt.charged)} of {budget}; key {run}", err=True)


def name_of(data: str, where: list[str] | None) -> str:
    """Returns the name of the rows in keys of a ledger: the file's, and the conditions."""
    file = Path(data).name.split(".")[0] or "table"
    return " where ".join([file, *([" and ".join(where)] if where else ())])


def types_of(given: list[str] | None) -> dict[str, str]:
    """Reads the types of columns, each as NAME=TYPE.

    Raises:
        ParameterError: a text has another form.
    """
    types = {}
    for text in given or ():
        name, sign, kind = text.rpartition("=")
        if not (name and sign and kind):
            raise ParameterError(f"type must be COLUMN=TYPE, say fare=float64, got {text!r}")
        types[name] = kind
    return types


def budget_of(
    stack: ExitStack, ledger: str, name: str, *, by: str | None, token: str | None
) -> Any:
    """Opens a budget of a ledger in a database, or of one that is served.

    Raises:
        ParameterError: there is no such budget; or a name is given where a token decides it.
        LedgerError: the ledger does not answer.
    """
    if not ledger.startswith(_HTTP):
        return stack.enter_context(opened(ledger, by=by)).budget(name)
    if by is not None:
        raise ParameterError("by must be left out: a server writes down the name of the token")
    return stack.enter_context(tightbudget.RemoteLedger(ledger, token=token)).budget(name)


def _print_rows(names: list[str], rows: list[list[Any]], *, as_csv: bool) -> None:
    """Prints rows as a table, or as comma-separated values with all digits of numbers."""
    if not as_csv:
        print_table(names, [["" if cell is None else _text(cell) for cell in row] for row in rows])
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)


def _text(cell: Any) -> str:
    """Writes an entry of a table; a double with six digits."""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)
