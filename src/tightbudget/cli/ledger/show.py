"""``tightbudget ledger show``: a tree of budgets, with spent, held, left and saved amounts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tightbudget.cli.completion import budgets
from tightbudget.cli.ledger.answers import charged
from tightbudget.cli.ledger.options import Url, opened
from tightbudget.cli.options import AsJson
from tightbudget.cli.output import print_json, print_table, print_text, speaks_unicode

if TYPE_CHECKING:
    from tightbudget.promises.values import OpenHold, Statement

_WIDE = 20  # characters of a bar that shows the whole cap
# The parts of a bar: (character, character in ASCII, style).
_SPENT, _HELD, _LEFT, _SAVED = (
    ("█", "#", "bold"),
    ("▒", "=", "yellow"),
    ("·", ".", "dim"),
    ("░", "+", "green"),
)
_MEANING = {"spent": _SPENT, "held": _HELD, "left": _LEFT, "saved by settlement": _SAVED}


def show(
    ledger: Url,
    budget: Annotated[
        str | None,
        typer.Argument(help="This one and its parts.", show_default="all", autocompletion=budgets),
    ] = None,
    json: AsJson = False,
) -> None:
    """Shows the budgets with spent, held, left and saved amounts, and open reservations.

    A budget holds the caps of its open parts; what these have spent of them stands beside it.
    The saved amount is the cost of worst cases minus the cost of the actual outputs.

    For example: tightbudget ledger show --ledger sqlite:///budget.db
    """
    with opened(ledger) as it:
        top = None if budget is None else it.budget(budget).name  # refuses an unknown name
        seen = None if top is None else it.within([top])
        names = None if seen is None else seen.names
        statements = it.statements(budgets=names, blocks=seen is not None)
        if top is not None and not statements:
            statements = (it.budget(top).statement(),)  # of a block that nobody has touched
        tree = list(_tree(statements, top))
        if top is not None and tree[0][1].kind == "blocks":
            tree += [(1, statement) for statement in it.blocks(top).statements()]
        if json:
            budgets = [statement.to_dict() for _, statement in tree]
            found = [
                hold for hold in it.holds()
                if seen is None or any(name in seen for name in hold.charges)
            ]  # fmt: skip
            reservations = [{**hold.to_dict(), "by": hold.by} for hold in found]
            print_json({"ledger": it.url, "budgets": budgets, "reservations": reservations})
            return
        holds = it.open_holds(budgets=seen)
    _print_budgets(tree)
    if holds:
        _print_holds(holds)


def _tree(statements: tuple[Statement, ...], top: str | None) -> Iterator[tuple[int, Statement]]:
    """Yields each budget with its depth, parts after their parent: all, or those below one."""
    parts: dict[str | None, list[Statement]] = {}
    for statement in statements:
        parts.setdefault(statement.parent, []).append(statement)

    def below(name: str | None, depth: int) -> Iterator[tuple[int, Statement]]:
        for statement in parts.get(name, []):
            yield depth, statement
            yield from below(statement.name, depth + 1)

    if top is None:
        yield from below(None, 0)
    else:
        yield 0, next(statement for statement in statements if statement.name == top)
        yield from below(top, 1)


def _print_budgets(tree: list[tuple[int, Statement]]) -> None:
    columns = {name: cells for name, cells in _columns(tree).items() if any(cells) or not tree}
    print_table(tuple(columns), [list(row) for row in zip(*columns.values(), strict=True)])
    legend = Text("  ").join(Text(f"{_ink(part)} {name}") for name, part in _MEANING.items())
    print_text(legend)


def _columns(tree: list[tuple[int, Statement]]) -> dict[str, list[str | Text]]:
    """Writes the cells of each column; a column whose cells are all empty has nothing to say."""
    budgets = [statement for _, statement in tree]
    return {
        "budget": [
            "  " * depth + statement.name + (" (closed)" if statement.closed else "")
            for depth, statement in tree
        ],
        "": [_bar(statement) for statement in budgets],
        "spent": [repr(statement.spent.amount) for statement in budgets],
        "held": [repr(statement.held.amount) for statement in budgets],
        "spent by parts": [_spent_by_parts(statement) for statement in budgets],
        "left": [repr(statement.left.amount) for statement in budgets],
        "of": [f"{statement.cap.unit} {statement.cap.amount!r}" for statement in budgets],
        "saved": [repr(statement.saved.amount) for statement in budgets],
        "delta left": [_delta_left(statement) for statement in budgets],
    }


def _spent_by_parts(statement: Statement) -> str:
    """Writes how much of the held amount open parts have spent; empty if they spent nothing."""
    spent = statement.spent_in_parts
    return "" if spent is None or not spent.amount else repr(spent.amount)


def _delta_left(statement: Statement) -> str:
    """Writes the delta that is left; empty for a budget without delta, as all zCDP budgets are."""
    cap = statement.cap.delta
    return f"{statement.left.delta!r} of {cap!r}" if cap else ""


def _bar(statement: Statement) -> Text:
    """Draws a budget's bar; spent and held are rounded up, saved amounts lie beyond the cap."""
    cap = statement.cap.amount

    def characters(amount: float) -> int:
        return math.ceil(_WIDE * min(amount / cap, 1.0)) if cap else 0

    spent = characters(statement.spent.amount)
    held = characters(statement.spent.amount + statement.held.amount) - spent
    return Text.assemble(
        *((_ink(part) * n, part[2]) for part, n in (
            (_SPENT, spent), (_HELD, held), (_LEFT, _WIDE - spent - held),
            (_SAVED, characters(statement.saved.amount)),
        ))
    )  # fmt: skip


def _ink(part: tuple[str, str, str]) -> str:
    return part[0] if speaks_unicode() else part[1]


def _print_holds(holds: Sequence[OpenHold]) -> None:
    rows = [
        (
            hold.key,
            hold.state.value,
            hold.by or "",
            ", ".join(charged(hold.charges)),
            hold.question or "",
        )
        for hold in holds
    ]
    columns = ["reservation", "state", "by", "holds"]
    if any(row[-1] for row in rows):
        columns.append("question")
    print_text(Text())
    print_table(columns, [row[: len(columns)] for row in rows])
