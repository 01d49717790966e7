"""``tightbudget release``: answers from a table in a file, paid by a budget of a ledger."""

from __future__ import annotations

import typer

from tightbudget.cli.commands import Command
from tightbudget.cli.release import questions
from tightbudget.cli.release.synthesize import synthesize
from tightbudget.cli.release.table import with_table

__all__ = ["commands"]

commands = typer.Typer(
    name="release",
    help="Answers from a table in a file, with noise, which a budget of a ledger pays.",
    no_args_is_help=True,
)

for _name, _question in (
    ("count", questions.count),
    ("sum", questions.sum_),
    ("mean", questions.mean),
    ("quantiles", questions.quantiles),
    ("histogram", questions.histogram),
    ("groups", questions.groups),
    ("distinct", questions.distinct),
    ("ratio", questions.ratio),
):
    commands.command(_name, cls=Command)(with_table(_question))
commands.command("synthesize", cls=Command)(synthesize)
