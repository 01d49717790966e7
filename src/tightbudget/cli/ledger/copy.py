"""``tightbudget ledger copy``: from one database to another."""

from __future__ import annotations

from typing import Annotated

import typer

import tightbudget
from tightbudget.cli.ledger.history import pages_tracked, print_verification
from tightbudget.cli.ledger.options import opened
from tightbudget.cli.options import AsJson
from tightbudget.cli.output import Stopwatch


def copy(
    source: Annotated[str, typer.Argument(help="The ledger's URL.")],
    target: Annotated[str, typer.Argument(help="URL of an empty database, or of a new file.")],
    json: AsJson = False,
) -> None:
    """Moves a ledger to another database, verifies both ends, and seals the source.

    The source can be read afterwards, but never written: two ledgers that were both charged would
    each know one half of the charges. The same command finishes a copy that was interrupted.

    For example: tightbudget ledger copy sqlite:///budget.db
    postgresql+psycopg://ledger@db.example.org/budget
    """
    watch = Stopwatch()
    with opened(source) as origin, tightbudget.Ledger(target) as goal:
        print_verification(origin.copy_to(goal, pages_tracked), watch, json=json)
