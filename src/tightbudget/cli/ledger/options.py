"""Options of the ledger's commands: the ledger, the guarantee, the output of refusals."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tightbudget
from tightbudget import OutputDP, ParameterError, read_plan
from tightbudget.cli.completion import budgets, plans
from tightbudget.errors import FileError
from tightbudget.notation.values import value_of
from tightbudget.numerics.validate import quotient_of, refuse
from tightbudget.text_file import read_text

if TYPE_CHECKING:
    from tightbudget import Ledger
    from tightbudget.ledger import LedgerHold


def as_written(text: Any) -> Any:
    """Reads a number exactly as it is written, also one that is no double."""
    if isinstance(text, str) and quotient_of(text) is not None:
        return quotient_of(text)
    value = value_of(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return value
    try:
        written = Decimal(text)
    except ArithmeticError:  # an exponent beyond those of decimals: refused as a text
        return text
    return value if written == Decimal(repr(value)) else written  # guard: charged-as-written


def exact_number(help: str) -> Any:
    """Makes a typer option for a number that is charged exactly as it is written."""
    return typer.Option(help=help, parser=as_written, metavar="NUMBER")


Url = Annotated[
    str,
    typer.Option(
        "--ledger",
        envvar="TIGHTBUDGET_LEDGER",
        metavar="URL",
        help="sqlite:///FILE or postgresql+psycopg://HOST/NAME.",
    ),
]
Budgets = Annotated[
    list[str] | None,
    typer.Option(
        help="The budget that pays; may be repeated: all or none.", autocompletion=budgets
    ),
]
BlocksOf = Annotated[
    str | None,
    typer.Option(
        "--blocks",
        help="A set of blocks, of which --where says the range that pays.",
        autocompletion=budgets,
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DIMENSION=VALUES",
        help="Of --blocks, for each dimension: day=2026-01..2026-03, region=eu,us.",
    ),
]
Key = Annotated[str, typer.Option(help="Your name for this one run; the same again is once.")]
ByDefault = Annotated[
    str | None,
    typer.Option("--by", help="Who does this, if not the system's user; it is written down."),
]
By = Annotated[str, typer.Option(help="Who does this; it is written down.")]
Reason = Annotated[str, typer.Option(help="Why; it is written down.")]

GuaranteeFile = Annotated[
    Path | None, typer.Option("--guarantee", help="A file that OutputDP.to_json wrote.")
]
Epsilon = Annotated[Any, exact_number("Of a guarantee without cells, nats.")]
Delta = Annotated[Any, exact_number("Of a guarantee without cells; 0 if absent.")]
AmountOption = Annotated[
    Any, exact_number("What budgets of other kinds count: rho, mu, a divergence.")
]
QuestionOption = Annotated[
    str | None,
    typer.Option(help="The question that it answers, which the history keeps."),
]
Plan = Annotated[
    Path | None, typer.Option(help="Steps of a fixed plan: a plan file.", autocompletion=plans)
]


def opened(url: str, *, create: bool = False, by: str | None = None) -> Ledger:
    """Opens a ledger for one command, in a ``with`` statement."""
    return tightbudget.Ledger(url, create=create, by=by)


def reserved(
    ledger: Ledger,
    key: str,
    guarantee: Any,
    *,
    budgets: list[str] | None,
    blocks: str | None,
    where: list[str] | None,
    interactive: bool = False,
    question: str | None = None,
) -> LedgerHold:
    """Reserves in the budgets that the options name, or in a range of blocks.

    Raises:
        TightBudgetError: the options name no budgets and no blocks; or it is refused.
    """
    if blocks is None:
        if where:
            raise ParameterError("--where belongs to --blocks, got it without")
        if not budgets:
            raise ParameterError("give --budget or --blocks, got none")
        return ledger.reserve(key, guarantee, budgets, interactive=interactive, question=question)
    there = ledger.blocks(blocks).where(**_values(where or []))
    return there.reserve(
        key, guarantee, also=budgets or (), interactive=interactive, question=question
    )


def _values(where: list[str]) -> dict[str, list[str]]:
    """Reads for each dimension the values that the options give.

    Raises:
        ParameterError: one names no dimension.
    """
    found: dict[str, list[str]] = {}
    for text in where:
        dimension, separator, values = text.partition("=")
        if not separator:
            raise refuse("--where", "be DIMENSION=VALUES, such as day=2026-01", text)
        found.setdefault(dimension, []).extend(values.split(","))
    return found


def guarantee_from_options(
    *, file: Path | None, epsilon: Any, delta: Any, amount: Any, plan: Path | None
) -> Any:
    """Reads a guarantee, which the options state in one of four ways.

    Raises:
        TightBudgetError: the options state no guarantee, several, or a bad one.
    """
    given = {"--guarantee": file, "--epsilon": epsilon, "--amount": amount, "--plan": plan}
    ways = [name for name, value in given.items() if value is not None]
    if len(ways) != 1:
        got = " and ".join(ways) or "none"
        raise ParameterError(f"give one of {', '.join(given)}, got {got}")
    if delta is not None and epsilon is None:
        raise ParameterError(f"--delta belongs to --epsilon, got it beside {ways[0]}")
    if file is not None:
        return _read(file)
    if plan is not None:
        return read_plan(plan)
    return amount if epsilon is None else OutputDP.from_dp(epsilon, 0 if delta is None else delta)


def _read(file: Path) -> OutputDP:
    try:
        return OutputDP.from_json(read_text(file))
    except ParameterError as error:
        raise ParameterError(f"{file}: {error}") from error
    except FileError as error:
        named = str(error).startswith(f"{file}: ")
        raise error if named else FileError(f"{file}: {error}") from error
