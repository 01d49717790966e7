"""The command line: the same questions as in Python, one file per group of commands."""

from __future__ import annotations

import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from tightbudget import TightBudgetError, __version__
from tightbudget.cli import ledger, token
from tightbudget.cli.calibrate import calibrate
from tightbudget.cli.compare import compare
from tightbudget.cli.curve import curve
from tightbudget.cli.epsilon import delta, epsilon
from tightbudget.cli.histogram import histogram
from tightbudget.cli.refusals import INTERRUPTED, exit_code
from tightbudget.cli.reproduce import reproduce
from tightbudget.cli.risk import risk
from tightbudget.cli.serve import serve
from tightbudget.cli.source import generated_options, with_source
from tightbudget.cli.stopping import stopping
from tightbudget.cli.sweep import sweep

__all__ = ["app", "main"]

# The root of typer's errors about the command line; it belongs to click or, in later versions, to
# typer itself.
_UsageError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


class _OneLineRefusals(TyperGroup):
    """A group of commands whose refusals are one line on stderr and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except TightBudgetError as error:
            _refuse(str(error), exit_code(error))
        except _UsageError as error:
            _refuse(error.format_message(), error.exit_code)
        except typer.Abort:
            sys.exit(INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str, code: int) -> NoReturn:
    line = " ".join(message.split())
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
    app.command(_command.__name__)(with_source(_command, _parameters))
app.command()(histogram)
app.command()(sweep)
app.command()(reproduce)
app.add_typer(ledger.commands)
app.command()(serve)
app.add_typer(token.commands)


def main() -> None:
    """Runs the console script."""
    app(prog_name="tightbudget")
