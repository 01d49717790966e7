"""``tightbudget ledger blocks``: sets of blocks, declared and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tightbudget import ParameterError
from tightbudget.cli.completion import budgets
from tightbudget.cli.ledger.options import Url, exact_number, opened
from tightbudget.cli.options import AsJson
from tightbudget.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from tightbudget.promises.values import BlockTerms

_RowsIn = Annotated[
    int | None,
    typer.Option(
        help="The largest number of blocks that have rows of one person.", show_default="one block"
    ),
]
_Unlocking = Annotated[
    int | None, typer.Option(help="Days over which the budget of a block is unlocked.")
]


def blocks(
    name: Annotated[str, typer.Argument(help="The name of the set.", autocompletion=budgets)],
    ledger: Url,
    dimension: Annotated[
        list[str] | None,
        typer.Option(help="A public column that rows are put into blocks by; may be repeated."),
    ] = None,
    epsilon: Annotated[Any, exact_number("Of each block, nats.")] = None,
    delta: Annotated[Any, exact_number("Of each block.")] = 0,
    rows_in: _RowsIn = None,
    cap_epsilon: Annotated[Any, exact_number("Of a cap over all blocks, beside them.")] = None,
    cap_delta: Annotated[Any, exact_number("Of this cap.")] = 0,
    quota_epsilon: Annotated[Any, exact_number("Of each analyst, beside the blocks.")] = None,
    quota_delta: Annotated[Any, exact_number("Of this quota.")] = 0,
    unlocking: _Unlocking = None,
    json: AsJson = False,
) -> None:
    """Declares a set of blocks, each of which has a budget; with the name alone, shows its terms.

    The budget of a block is made when a run first touches it: reserve --blocks charges a range.

    For example: tightbudget ledger blocks clicks --dimension day --dimension region --epsilon 1
    --delta 1e-6 --ledger sqlite:///budget.db
    """
    if (epsilon is None) != (not dimension):
        raise ParameterError("give --dimension and --epsilon both, or neither for a known set")
    with opened(ledger) as it:
        declared = it.blocks(
            name,
            by=dimension or None,
            epsilon=epsilon,
            delta=delta,
            rows_in="one block" if rows_in is None else rows_in,
            cap_epsilon=cap_epsilon,
            cap_delta=cap_delta,
            quota_epsilon=quota_epsilon,
            quota_delta=quota_delta,
            unlocking=unlocking,
        )
        _print(declared.terms, json=json)


def _print(terms: BlockTerms, *, json: bool) -> None:
    """Prints the terms of a set, for a person or a program."""
    if json:
        print_json(terms.to_dict())
        return
    rows = {
        "blocks": terms.name,
        "by": ", ".join(terms.by),
        "each": str(terms.block),
        "rows of a person in": f"{terms.rows_in} block{'s' * (terms.rows_in > 1)} at most",
        "a person loses": f"{terms.person} at most",
    }
    if terms.cap is not None:
        rows["all together"] = str(terms.cap)
    if terms.quota is not None:
        rows["each analyst"] = str(terms.quota)
    if terms.unlocking is not None:
        rows["unlocked over"] = f"{terms.unlocking} days"
    print_rows(rows)
