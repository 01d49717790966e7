"""``tightbudget ledger``: durable budgets, from the command line."""

from __future__ import annotations

import typer

from tightbudget.cli.commands import Command
from tightbudget.cli.ledger import blocks, budgets, copy, history, holds, run, show, statement

__all__ = ["commands"]

commands = typer.Typer(
    name="ledger",
    help="Budgets that are remembered, through crashes and by many processes.",
    no_args_is_help=True,
)

commands.command(cls=Command)(budgets.init)
commands.command("open", cls=Command)(budgets.open_)
for _command in (
    budgets.close,
    blocks.blocks,
    holds.reserve,
    holds.start,
    holds.settle,
    holds.void,
    holds.forfeit,
    run.run,
    show.show,
    history.history,
    history.verify,
    history.export_head,
    history.import_check,
    statement.statement,
    budgets.raise_cap,
    budgets.correct,
    holds.expire,
    copy.copy,
):
    commands.command(cls=Command)(_command)
