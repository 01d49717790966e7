"""``tightbudget ledger statement``: what a budget has spent, for a reviewer."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from tightbudget.cli.completion import budgets
from tightbudget.cli.ledger.options import Url, opened
from tightbudget.cli.options import AsJson, number
from tightbudget.cli.output import print_json
from tightbudget.errors import ParameterError
from tightbudget.evidence import PrivacyStatement, statement_of_budget


class StatementForm(StrEnum):
    """Names the forms in which a statement can be written."""

    MARKDOWN = "markdown"
    HTML = "html"
    CARD = "card"
    REGISTRY = "registry"


def statement(
    budget: Annotated[str, typer.Argument(help="The budget.", autocompletion=budgets)],
    ledger: Url,
    say: Annotated[
        list[str] | None,
        typer.Option(help='What you know, as field=text, e.g. "unit=one patient"; again for each.'),
    ] = None,
    delta: Annotated[
        float | None, number("Also the epsilon at this delta, of all that the cap lets through.")
    ] = None,
    form: Annotated[
        StatementForm,
        typer.Option(
            "--as",
            help="How it is written; card: a block for a model card; registry: a draft record.",
        ),
    ] = StatementForm.MARKDOWN,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a ledger that does not verify (exit code 7).")
    ] = False,
    json: AsJson = False,
) -> None:
    """States what a budget has spent, on what, and what is not known, under NIST's headings.

    The history is verified first: a statement about a ledger that was changed says so in its first
    line. The fields to say are unit, neighbours, contribution, loader, randomness, trust,
    side_channels, access, utility and collection.

    For example: tightbudget ledger statement ada --say "unit=one patient" --ledger sqlite:///a.db
    """
    with opened(ledger) as it:
        found = statement_of_budget(it, budget, delta=delta, strict=strict, **_said(say or []))
    if json:
        print_json(found.to_dict())
        return
    typer.echo(_written(found, form), nl=False)


def _written(found: PrivacyStatement, form: StatementForm) -> str:
    match form:
        case StatementForm.HTML:
            return found.to_html()
        case StatementForm.CARD:
            return found.model_card()
        case StatementForm.REGISTRY:
            return found.to_registry()
        case StatementForm.MARKDOWN:
            return found.to_markdown()


def _said(given: list[str]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for one in given:
        field, equals, text = one.partition("=")
        if not equals:
            raise ParameterError(f"--say must be field=text, got {one!r}")
        if field in said:
            raise ParameterError(f"--say has {field} twice")
        said[field] = text
    return said
