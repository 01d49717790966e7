"""``tightbudget ledger reserve``, ``start``, ``settle``, ``void``, ``forfeit`` and ``expire``."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from tightbudget.cli.ledger.answers import print_hold
from tightbudget.cli.ledger.options import (
    AmountOption,
    BlocksOf,
    Budgets,
    By,
    ByDefault,
    Delta,
    Epsilon,
    GuaranteeFile,
    Key,
    Plan,
    QuestionOption,
    Reason,
    Url,
    Where,
    guarantee_from_options,
    opened,
    reserved,
)
from tightbudget.cli.options import AsJson
from tightbudget.output_dp.guarantee import Cell, OutputDP, cell_from_json

KeyArgument = Annotated[str, typer.Argument(help="The reservation's key.")]


def reserve(
    key: Key,
    ledger: Url,
    budget: Budgets = None,
    blocks: BlocksOf = None,
    where: Where = None,
    guarantee: GuaranteeFile = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    amount: AmountOption = None,
    plan: Plan = None,
    interactive: Annotated[bool, typer.Option(help="It answers more than once.")] = False,
    question: QuestionOption = None,
    by: ByDefault = None,
    json: AsJson = False,
) -> None:
    """Holds the worst-case price in all named budgets or in none; asking again is safe.

    With --blocks, all blocks of a range pay, and the named budgets beside them.

    For example: tightbudget ledger reserve --budget ada --key A1 --guarantee search.json
    --ledger sqlite:///budget.db
    """
    with opened(ledger, by=by) as it:
        wanted = guarantee_from_options(
            file=guarantee, epsilon=epsilon, delta=delta, amount=amount, plan=plan
        )
        hold = reserved(
            it,
            key,
            wanted,
            budgets=budget,
            blocks=blocks,
            where=where,
            interactive=interactive,
            question=question,
        )
        print_hold(hold, json=json)


def start(key: KeyArgument, ledger: Url, by: ByDefault = None, json: AsJson = False) -> None:
    """Marks, once, that the mechanism runs now, and prints the token that settles the run.

    For example: tightbudget ledger start A1 --ledger sqlite:///budget.db
    """
    with opened(ledger, by=by) as it:
        hold = it.hold(key)
        hold.start()
        print_hold(hold, json=json)


def settle(
    key: KeyArgument,
    cell: Annotated[
        str, typer.Argument(help="What came out: the name of a cell, or the cell as JSON.")
    ],
    token: Annotated[
        str,
        typer.Option(
            envvar="TIGHTBUDGET_RUN_TOKEN",
            help="What start has answered: a secret, which others see on a command line.",
        ),
    ],
    ledger: Url,
    by: ByDefault = None,
    json: AsJson = False,
) -> None:
    """Charges the price of the output cell; an undeclared cell costs the sup. Reveal afterwards.

    For example: tightbudget ledger settle A1 "not found" --token 5a1f... --ledger sqlite:///budget.db
    """
    with opened(ledger, by=by) as it:
        hold = it.hold(key, token=token)
        hold.settle(cell_of(cell, hold.guarantee))
        print_hold(hold, json=json)


def void(key: KeyArgument, ledger: Url, by: ByDefault = None, json: AsJson = False) -> None:
    """Frees a reservation that was not started, and never will be.

    For example: tightbudget ledger void A1 --ledger sqlite:///budget.db
    """
    with opened(ledger, by=by) as it:
        hold = it.hold(key)
        hold.void()
        print_hold(hold, json=json)


def forfeit(
    key: KeyArgument,
    ledger: Url,
    by: ByDefault = None,
    reason: Annotated[str | None, typer.Option(help="Why; it is written down.")] = None,
    json: AsJson = False,
) -> None:
    """Charges the worst-case price of a run that did not come back.

    For example: tightbudget ledger forfeit A1 --by grace --reason "the machine is gone"
    --ledger sqlite:///budget.db
    """
    with opened(ledger, by=by) as it:
        hold = it.hold(key)
        hold.forfeit(reason=reason)
        print_hold(hold, json=json)


def expire(key: KeyArgument, ledger: Url, by: By, reason: Reason, json: AsJson = False) -> None:
    """Frees a reservation that was never started, for an administrator.

    For example: tightbudget ledger expire A1 --by grace --reason "never came back"
    --ledger sqlite:///budget.db
    """
    with opened(ledger) as it:
        print_hold(it.expire(key, by=by, reason=reason), json=json)


def cell_of(text: str, guarantee: Any) -> Cell:
    """Returns the cell that a text names: as JSON, or else by the text itself.

    ``3`` and ``["found", 3]`` name the integer and the tuple. If a guarantee declares the text "3"
    and not the integer, then ``3`` names the text. So each cell has a name, and no name is
    ambiguous.
    """
    readings: list[Cell] = [text]
    with contextlib.suppress(ValueError, RecursionError):
        readings.insert(0, cell_from_json(text))
    return next((cell for cell in readings if is_declared(cell, guarantee)), readings[0])


def is_declared(cell: Cell, guarantee: Any) -> bool:
    """Tells whether a guarantee declares a price for this cell."""
    return isinstance(guarantee, OutputDP) and cell in guarantee.cells  # guard: cell-is-declared
