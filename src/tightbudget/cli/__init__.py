"""The command line: the same questions as in Python, one file per group of commands."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from tightbudget import ParameterError, TightBudgetError, __version__
from tightbudget.cli import ledger, release, token
from tightbudget.cli.audit import audit
from tightbudget.cli.bounds import compare, delta, epsilon, risk
from tightbudget.cli.calibrate import calibrate
from tightbudget.cli.check import check
from tightbudget.cli.commands import Command, SourceCommand
from tightbudget.cli.curve import curve
from tightbudget.cli.histogram import histogram
from tightbudget.cli.mechanisms import mechanisms
from tightbudget.cli.output import print_json
from tightbudget.cli.refusals import INTERRUPTED, as_json, exit_code, hint_at
from tightbudget.cli.reproduce import reproduce
from tightbudget.cli.serve import serve
from tightbudget.cli.source import generated_options, with_source
from tightbudget.cli.stopping import stopping
from tightbudget.cli.sweep import sweep
from tightbudget.cli.workflow import workflow

__all__ = ["app", "main"]

# The root of typer's errors about the command line; it belongs to click or, in later versions, to
# typer itself.
_UsageError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


class _OneLineRefusals(TyperGroup):
    """A group of commands whose refusals are one line on stderr and an exit code.

    With --json, a refusal is also printed as an object.
    """

    def main(self, args: Sequence[str] | None = None, *more: Any, **kwargs: Any) -> NoReturn:
        args = sys.argv[1:] if args is None else list(args)
        try:
            code = super().main(args, *more, **{**kwargs, "standalone_mode": False})
        except TightBudgetError as error:
            _refuse(error, exit_code(error), args)
        except _UsageError as error:
            _refuse(ParameterError(hint_at(error, args)), error.exit_code, args)
        except typer.Abort:
            sys.exit(INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)


def _refuse(error: TightBudgetError, code: int, args: Sequence[str]) -> NoReturn:
    """Prints a refusal, also as JSON if the arguments ask for that, and ends the program."""
    # what follows -- belongs to another program
    if "--json" in itertools.takewhile(lambda arg: arg != "--", args):
        print_json({"error": as_json(error)})
    line = " ".join(str(error).split())
    typer.echo(f"{typer.style('error:', fg='red', bold=True)} {line}", err=True)
    sys.exit(code)


app = typer.Typer(
    name="tightbudget",
    cls=_OneLineRefusals,
    help="Differential-privacy accounting with certified bounds: an upper and a lower bound on the "
    "cost of a composition of private mechanisms.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tightbudget {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_parameters = generated_options()  # once: it reads the constructor of every mechanism
for _command in (epsilon, delta, curve, risk, compare, calibrate, stopping):
    app.command(_command.__name__, cls=SourceCommand)(with_source(_command, _parameters))
app.command(cls=Command)(workflow)
app.command(cls=Command)(audit)
app.command(cls=Command)(check)
app.command(cls=Command)(histogram)
app.command(cls=Command)(mechanisms)
app.command(cls=Command)(sweep)
app.command(cls=Command)(reproduce)
app.add_typer(ledger.commands)
app.add_typer(release.commands)
app.command(cls=Command)(serve)
app.add_typer(token.commands)


def main() -> None:
    """Runs the console script."""
    app(prog_name="tightbudget")
