"""``tightbudget ledger init``, ``open``, ``close``, ``raise-cap`` and ``correct``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tightbudget import read_plan
from tightbudget.cli.completion import budgets, kinds, plans
from tightbudget.cli.ledger.answers import print_statement
from tightbudget.cli.ledger.options import By, Reason, Url, exact_number, opened
from tightbudget.cli.options import AsJson
from tightbudget.cli.output import print_json, print_rows
from tightbudget.promises.kinds import KINDS, names

Name = Annotated[str, typer.Argument(help="The budget's name.", autocompletion=budgets)]
Epsilon = Annotated[Any, exact_number("Of kinds output_dp, renyi and advanced, nats.")]
Delta = Annotated[Any, exact_number("Of kinds output_dp, advanced and plan.")]
Slack = Annotated[Any, exact_number("Of kind advanced.")]
Rho = Annotated[Any, exact_number("Of kind zcdp.")]
Mu = Annotated[Any, exact_number("Of kind gaussian_dp.")]
Order = Annotated[Any, exact_number("Of kind renyi.")]


def init(ledger: Url, json: AsJson = False) -> None:
    """Makes a ledger where there is none; an existing one is kept and brought up to date.

    For example: tightbudget ledger init --ledger sqlite:///budget.db
    """
    with opened(ledger, create=True) as it:
        answer = {"ledger": it.url, "head": str(it.head())}
        if json:
            print_json(answer)
        else:
            print_rows(answer)


def open_(
    name: Name,
    ledger: Url,
    parent: Annotated[
        str | None,
        typer.Option(
            help="The budget of which it is a part, and which holds its cap.",
            autocompletion=budgets,
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            help="; ".join(f"{name}: {KINDS[name].words}" for name in names()) + ".",
            autocompletion=kinds,
        ),
    ] = "output_dp",
    epsilon: Epsilon = None,
    delta: Delta = None,
    slack: Slack = None,
    rho: Rho = None,
    mu: Mu = None,
    order: Order = None,
    plan: Annotated[
        Path | None, typer.Option(help="Of kind plan: a plan file.", autocompletion=plans)
    ] = None,
    json: AsJson = False,
) -> None:
    """Opens a budget. The same command again changes nothing.

    For example: tightbudget ledger open ada --parent census --epsilon 1 --delta 1e-6
    --ledger sqlite:///budget.db
    """
    with opened(ledger) as it:
        budget = it.open_budget(
            name,
            parent=parent,
            kind=kind.lower().replace("-", "_"),
            **_given(epsilon=epsilon, delta=delta, slack=slack, rho=rho, mu=mu, order=order),
            **({} if plan is None else {"plan": read_plan(plan)}),
        )
        print_statement(budget.statement(), json=json)


def close(name: Name, ledger: Url, json: AsJson = False) -> None:
    """Closes a budget for good; epsilon that was not spent goes back to its parent.

    For example: tightbudget ledger close ada --ledger sqlite:///budget.db
    """
    with opened(ledger) as it:
        budget = it.budget(name)
        budget.close()
        print_statement(budget.statement(), json=json)


def raise_cap(
    name: Name,
    ledger: Url,
    by: By,
    reason: Reason,
    epsilon: Epsilon = None,
    delta: Delta = None,
    slack: Slack = None,
    rho: Rho = None,
    mu: Mu = None,
    json: AsJson = False,
) -> None:
    """Sets another cap, never below the sum of spent and held. For an administrator.

    For example: tightbudget ledger raise-cap census --epsilon 5 --by grace
    --reason "second wave" --ledger sqlite:///budget.db
    """
    with opened(ledger) as it:
        budget = it.budget(name)
        given = _given(epsilon=epsilon, delta=delta, slack=slack, rho=rho, mu=mu)
        budget.raise_cap(by=by, reason=reason, **given)
        print_statement(budget.statement(), json=json)


def correct(
    name: Name,
    ledger: Url,
    by: By,
    reason: Reason,
    epsilon: Annotated[Any, exact_number("Of what the budget counts.")] = 0,
    delta: Annotated[Any, exact_number("Of delta.")] = 0,
    json: AsJson = False,
) -> None:
    """Adds to the spent amount a cost that arose elsewhere. Nothing is ever taken off.

    For example: tightbudget ledger correct census --epsilon 0.3 --by grace
    --reason "lost with the disk: A7" --ledger sqlite:///budget.db
    """
    with opened(ledger) as it:
        budget = it.budget(name)
        budget.correct(epsilon=epsilon, delta=delta, by=by, reason=reason)
        print_statement(budget.statement(), json=json)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
