"""``tightbudget ledger history``, ``verify``, ``export-head`` and ``import-check``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from tightbudget.cli.ledger.options import Url, opened
from tightbudget.cli.options import AsJson, number
from tightbudget.cli.output import print_json, print_table

__all__ = ["export_head", "history", "import_check", "verify"]

_SECONDS = len("2026-01-01T00:00:00")


def history(
    ledger: Url,
    budget: Annotated[str | None, typer.Option(help="Of this budget only.")] = None,
    key: Annotated[str | None, typer.Option(help="Of this reservation only.")] = None,
    after: Annotated[int, number("From the event after this number on.")] = 0,
    limit: Annotated[int | None, number("So many events at most.")] = None,
    json: AsJson = False,
) -> None:
    """What happened, oldest first.

    For example: tightbudget ledger history --budget ada --ledger sqlite:///budget.db
    """
    with opened(ledger, json=json) as it:
        events = it.events(budget=budget, key=key, after=after, limit=limit)
        if json:
            print_json({"events": [dataclasses.asdict(event) for event in events]})
            return
        rows = [
            (
                str(event.sequence),
                event.at[:_SECONDS],
                event.kind,
                event.key or "",
                event.budget or "",
                repr(event.epsilon),
                repr(event.delta),
                "" if event.cell is None else repr(event.cell),
            )
            for event in events
        ]
    print_table(("number", "at", "what", "key", "budget", "epsilon", "delta", "cell"), rows)
