"""``tightbudget release synthesize``: a synthetic table in a file, paid by a budget of a ledger."""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tightbudget import Neighbouring, OutputDPFilter, ParameterError, Table
from tightbudget.cli.completion import budgets, relations
from tightbudget.cli.ledger.answers import in_words
from tightbudget.cli.ledger.options import ByDefault
from tightbudget.cli.options import AsJson, number
from tightbudget.cli.output import Stopwatch, bar, print_answer, print_rows, working
from tightbudget.cli.release.domains_file import read_domains
from tightbudget.cli.release.table import (
    Conditions,
    Data,
    LineBreaks,
    OwnKey,
    RowId,
    RowsPerUnit,
    Token,
    Types,
    Unit,
    budget_of,
    name_of,
    types_of,
)
from tightbudget.cli.release.where import condition
from tightbudget.errors import FileError, TightBudgetError
from tightbudget.marginals import MbiModel, NumericBins, SyntheticTable, run_aim
from tightbudget.marginals import synthesize as drawn
from tightbudget.marginals.aim_run import STOPPED
from tightbudget.marginals.kept_marginals import has_begun
from tightbudget.marginals.synthesize import checked_size
from tightbudget.marginals.tree_model import generator_of
from tightbudget.numerics.validate import positive_count, refuse
from tightbudget.promises.text import LONGEST_QUESTION
from tightbudget.release.noise.salt import fresh_salt
from tightbudget.tables.asked import cut
from tightbudget.text_file import reason

_LONGEST_NAME, _RANDOM = 80, 12  # of a key that nobody gave, as a session's


class SynthesisMethod(StrEnum):
    """Names what selects the marginals, and draws rows from them."""

    mst = "mst"
    aim = "aim"


def synthesize(
    data: Data,
    domains: Annotated[
        Path, typer.Option(help="A TOML file with the public values, or edges, of each column.")
    ],
    epsilon: Annotated[float, number("Price of the table, nats.")],
    delta: Annotated[float, number("Of the price, in (0, 1).")],
    out: Annotated[Path, typer.Option(help="The file to write: .parquet or .csv.")],
    budget: Annotated[
        str | None,
        typer.Option(help="The budget of --ledger that pays.", autocompletion=budgets),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            envvar="TIGHTBUDGET_LEDGER",
            metavar="URL",
            help="sqlite:///FILE, postgresql+psycopg://HOST/NAME, or the address of a server. "
            "Without it nothing keeps what was spent.",
        ),
    ] = None,
    unit: Unit = None,
    rows_per_unit: RowsPerUnit = None,
    relation: Annotated[
        str,
        typer.Option(
            help="What neighbours are: add-or-remove a unit, or replace-one, with more noise.",
            autocompletion=relations,
        ),
    ] = Neighbouring.ADD_OR_REMOVE.value,
    row_id: RowId = None,
    type_: Types = None,
    line_breaks: LineBreaks = False,
    where: Conditions = None,
    size: Annotated[
        int | None, typer.Option(help="Rows to draw; else about as many as there are.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the draw from the model; private noise has none.")
    ] = None,
    method: Annotated[
        SynthesisMethod, typer.Option(help="How marginals are chosen; aim needs the extra mbi.")
    ] = SynthesisMethod.mst,
    rounds: Annotated[
        int | None, typer.Option(help="Of aim: units of its budget; else 16 for each column.")
    ] = None,
    stop_after: Annotated[
        int | None,
        typer.Option(help="Of aim: marginals after which it stops; what is left goes back."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            help="A file for the marginals; the same command with this --key goes on after a "
            "crash, and draws rows again. With a ledger, OUT.run if absent, which is removed when "
            "the table is there. It holds the token of the run, a secret."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file --out.")] = False,
    key: OwnKey = None,
    token: Token = None,
    by: ByDefault = None,
    json: AsJson = False,
) -> None:
    """Writes synthetic rows that MST or AIM draws from noisy marginals, and pays for the marginals.

    A file of domains has for each column a list of values, sex = ["f", "m"], or
    region = {values = ["north", "south"], other = true}, or
    age = {edges = [0, 18, 65, 100], integers = true, other = true}.

    For example: tightbudget release synthesize people.parquet --domains domains.toml
    --unit person --rows-per-unit 2 --epsilon 1 --delta 1e-9 --budget ada
    --ledger sqlite:///budget.db --out synthetic.parquet
    """
    watch = Stopwatch()
    if budget is None and ledger is not None:
        raise ParameterError("budget must be given with a ledger: the one that pays")
    if ledger is None:
        _without_a_ledger(budget=budget, key=key, by=by, keep=keep)
    if method is SynthesisMethod.mst:
        _without_aim(rounds=rounds, stop_after=stop_after)
    if stop_after is not None:
        positive_count(stop_after=stop_after)
    if keep is not None and key is None:
        raise ParameterError("key must be given with keep: the same one goes on with the run")
    known = read_domains(domains)
    table = Table(
        Table(data, types=types_of(type_), line_breaks=line_breaks),
        unit=unit,
        rows_per_unit=rows_per_unit,
        row_id=row_id,
    )
    columns = table.columns
    for text in where or ():
        table = table.filter(condition(text, columns))
    name, schema = name_of(data, where), _schema(known, columns)
    with ExitStack() as stack:
        _writable(out, force=force)
        meter: Any = OutputDPFilter(epsilon=epsilon, delta=delta)
        beside: _KeptBeside | None = None
        if ledger is not None and budget is not None:
            paying = budget_of(stack, ledger, budget, by=by, token=token)
            if key is None:
                key = f"{cut(name, _LONGEST_NAME)}/synthesize {fresh_salt()[:_RANDOM]}"
            asked = f"{name}: synthetic table by {method.upper()} of {', '.join(known)}"
            meter = paying.keyed(key).asking(cut(asked, LONGEST_QUESTION))
            if keep is None:
                beside = stack.enter_context(_beside(out, key))
                keep = beside.path
        given: Any = {"epsilon": epsilon, "delta": delta, "meter": meter, "keep": keep}
        given["relation"] = relation
        stopped = None
        if method is SynthesisMethod.mst:
            with working("measuring marginals"):
                found = drawn(table, known, size=size, seed=seed, **given)
            ended = found.ended
        else:
            _checked(size, seed)
            with bar("measuring marginals") as progress:
                until = None if stop_after is None else _after(stop_after)
                aim = run_aim(table, known, rounds=rounds, until=until, progress=progress, **given)
            ended = aim.ended
            if ended == STOPPED:
                ended = stopped = f"{len(aim.marginals)} marginals are measured"
            with working("drawing rows"):
                found = aim.synthesize(size=size, seed=seed)
        _write(found, schema, out)
        if beside is not None:
            beside.again = ended is not None and ended is not stopped
    left_out = [column for column in columns if column not in {*known, unit, row_id}]
    charged = in_words(found.receipt.charged)
    if json:
        content = {
            "out": str(out),
            "rows": found.size,
            "left_out": left_out,
            "method": method.value,
            "rho": found.rho,
            "ended": ended,
            "marginals": [
                {"columns": list(one.columns), "sigma": one.sigma} for one in found.marginals
            ],
            "key": key,
            "receipt": found.receipt.to_dict(),
        }
        print_answer(content, {"data": data, "budget": budget}, watch)
        return
    rows = {"rows": f"{found.size:,}", "file": str(out)}
    if left_out:
        rows["without a domain, left out"] = ", ".join(map(repr, left_out))
    if method is SynthesisMethod.mst:
        one, two = found.marginals[0].sigma, found.marginals[-1].sigma
        of_two = f", {two:.6g} of two" if found.pairs else ""
        rows["noise of a count"] = f"sigma {one:.6g} of one column{of_two}"
        rows["pairs"] = ", ".join(" and ".join(pair) for pair in found.pairs)
    else:
        largest, least = (f(m.sigma for m in found.marginals) for f in (max, min))
        rows["noise of a count"] = f"sigma from {largest:.6g} down to {least:.6g}"
        rows["marginals"] = "\n".join(" and ".join(m.columns) for m in found.marginals)
    print_rows(rows)
    if ended is not None:
        typer.echo(f"ended early: {ended}", err=True)
    back = found.receipt.returned
    returned = f"; returned {in_words(back)}" if back.epsilon > 0 else ""
    kept = f" of {budget}; key {key}" if ledger is not None else "; no ledger keeps that"
    typer.echo(f"charged {charged}{returned}{kept}", err=True)


@dataclass
class _KeptBeside:
    """A file for the marginals beside the table.

    Attributes:
        path: of the file.
        again: whether the table is not there yet, or another fit may be wanted.
    """

    path: Path
    again: bool = True


@contextlib.contextmanager
def _beside(out: Path, key: str) -> Iterator[_KeptBeside]:
    """Yields a file for the marginals, and removes it at the end, or says how it is used again.

    Raises:
        ParameterError: the file is there already.
        FileError: nothing can be written there.
    """
    kept = _KeptBeside(out.with_name(f"{out.name}.run"))
    try:
        kept.path.touch(exist_ok=False)
    except FileExistsError:
        if not has_begun(kept.path):
            raise ParameterError(
                f"{kept.path} is of a run that was killed before anything was charged, or that "
                "begins now: remove it if none does"
            ) from None
        raise ParameterError(
            f"{kept.path} has the marginals of a run whose table was not written: --keep with this "
            "file and --key with its key go on with it; or move it away"
        ) from None
    except OSError as error:
        raise FileError(f"{kept.path}: {reason(error)}") from error
    same = shlex.join(["--key", key, "--keep", str(kept.path)])
    hint = f"what was measured is kept: the same command goes on with {same}"
    try:
        yield kept
    except TightBudgetError as error:
        if has_begun(kept.path):
            error.args = (f"{error}; {hint}",)  # a refusal is one line
        raise
    except (KeyboardInterrupt, MemoryError):
        if has_begun(kept.path):
            typer.echo(hint, err=True)
        raise
    else:
        if kept.again:
            typer.echo(hint, err=True)
    finally:
        if not (kept.again and has_begun(kept.path)):
            kept.path.unlink(missing_ok=True)


def _without_aim(**given: object) -> None:
    """Refuses what belongs to AIM where another method runs."""
    for name, value in given.items():
        if value is not None:
            raise ParameterError(f"{name} belongs to --method aim, got {value} without it")


def _checked(size: int | None, seed: int | None) -> None:
    """Refuses what no rows can be drawn with, before a charge."""
    if size is not None:
        checked_size(size)
    generator_of(seed)


def _after(marginals: int) -> Callable[[MbiModel], bool]:
    """Returns what stops after so many marginals."""
    return lambda model: len(model.marginals) >= marginals


def _without_a_ledger(**given: object) -> None:
    """Refuses what belongs to a ledger where there is none."""
    for name, value in given.items():
        if value is not None:
            said = repr(value) if isinstance(value, str) else value
            raise ParameterError(f"{name} belongs to a ledger, got {said} without --ledger")


def _schema(domains: Mapping[str, Any], types: Mapping[str, str]) -> Any:
    """Returns the schema of the file in Arrow's types, which follow from what is public.

    Args:
        domains: of the columns.
        types: of the private rows' columns.

    Raises:
        ParameterError: no type of Arrow holds the values of a domain.
    """
    arrow = importlib.import_module("pyarrow")
    fields = []
    for name, domain in domains.items():
        if isinstance(domain, NumericBins):
            kind = arrow.int64() if domain.integers else arrow.float64()
        elif types.get(name, "").startswith("float"):
            kind = arrow.float64()  # whose values may be listed as integers
        else:
            try:
                kind = arrow.array(list(domain)).type
            except (arrow.ArrowException, OverflowError) as error:
                must = f"have values of one type that a file holds ({error})"
                raise refuse(f"domains[{name!r}]", must, domain) from error
        fields.append((name, kind))
    return arrow.schema(fields)


def _writable(out: Path, *, force: bool) -> None:
    """Refuses a place where no table can be written, before a charge.

    Raises:
        ParameterError: the file is there already, is a folder, or has no known ending.
        FileError: nothing can be written there.
    """
    if out.suffix not in (".parquet", ".csv"):
        raise refuse("out", "be a path that ends in .parquet or .csv", str(out))
    if out.is_dir():
        raise refuse("out", "be a file, not a folder", str(out))
    if not force and os.path.lexists(out):
        raise refuse("out", "be a new file: --force replaces the one that is there", str(out))
    with _part_of(out):
        pass


@contextlib.contextmanager
def _part_of(out: Path) -> Iterator[Path]:
    """Yields a new file beside another one, so that the other is there whole or not at all.

    Raises:
        FileError: nothing can be written there.
    """
    part = out.with_name(f".{out.name}.{fresh_salt()[:_RANDOM]}.part")
    try:
        part.touch(exist_ok=False)
    except OSError as error:
        raise FileError(f"{out}: {reason(error)}") from error
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def _write(found: SyntheticTable, schema: Any, out: Path) -> None:
    """Writes the rows into one file, and gives it the name of the other when it is durable.

    Raises:
        FileError: it cannot be written.
    """
    table = importlib.import_module("pyarrow").table(dict(found.columns), schema=schema)
    try:
        with _part_of(out) as part:
            with part.open("wb") as file:
                if out.suffix == ".csv":
                    importlib.import_module("pyarrow.csv").write_csv(table, file)
                else:
                    importlib.import_module("pyarrow.parquet").write_table(table, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, out)
    except OSError as error:
        raise FileError(f"{out}: {reason(error)}; the price is charged") from error
