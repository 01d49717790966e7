"""Output of the ledger's commands: one object for programs, rows for people."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tightbudget import Amount
from tightbudget.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from tightbudget.ledger import LedgerHold
    from tightbudget.promises.values import Statement

_SHOWN = 10  # budgets of a run that people are told of; a range of blocks has up to ten thousand


def in_words(amount: Amount) -> str:
    """Writes an amount; delta is named only where it is not 0."""
    return str(amount) if amount.delta else f"{amount.unit} {amount.amount!r}"


def charged(charges: Mapping[str, Amount]) -> list[str]:
    """Writes the first charges of a run, and how many more there are."""
    shown = [
        f"{in_words(charge)} of {name}"
        for name, charge in itertools.islice(charges.items(), _SHOWN)
    ]
    more = len(charges) - len(shown)
    return [*shown, *[f"and {more} more"] * (more > 0)]


def print_statement(statement: Statement, *, json: bool) -> None:
    """Prints a budget, for a person or a program."""
    if json:
        print_json(statement.to_dict())
        return
    rows = {"budget": statement.name, "kind": statement.kind}
    if statement.parent is not None:
        rows["part of"] = statement.parent
    if statement.closed:
        rows["state"] = "closed"
    for name in ("cap", "spent", "held", "left", "saved"):
        amount = getattr(statement, name)
        if name in ("cap", "left") or amount.amount or amount.delta:
            rows[name] = str(amount)
    print_rows(rows)


def print_hold(hold: LedgerHold, *, json: bool) -> None:
    """Prints a reservation, for a person or a program."""
    if json:
        print_json(hold.to_dict())
        return
    rows = {"key": hold.key, "state": hold.state.value}
    if hold.question is not None:
        rows["question"] = hold.question
    if hold.cell is not None:
        rows["cell"] = repr(hold.cell)
    if hold.token is not None:
        rows["token"] = hold.token
    taken = "holds" if hold.state.value in ("reserved", "started") else "cost"
    rows[taken] = "\n".join(charged(hold.charges))
    if hold.told is not None:
        rows["note"] = hold.told
    print_rows(rows)
