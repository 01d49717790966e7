"""``tightbudget ledger``: budgets that are remembered, from the command line."""

from __future__ import annotations

import typer

from tightbudget.cli.ledger import budgets, copy, history, holds
from tightbudget.cli.ledger.run import run
from tightbudget.cli.ledger.show import show

__all__ = ["ledger"]

ledger = typer.Typer(
    name="ledger",
    help="Budgets that are remembered, through crashes and by many processes.",
    no_args_is_help=True,
)

ledger.command()(budgets.init)
ledger.command("open")(budgets.open_)
for _command in (
    budgets.close,
    holds.reserve,
    holds.start,
    holds.settle,
    holds.void,
    holds.forfeit,
    run,
    show,
    history.history,
    history.verify,
    history.export_head,
    history.import_check,
    budgets.raise_cap,
    budgets.correct,
    holds.expire,
    copy.copy,
):
    ledger.command()(_command)
