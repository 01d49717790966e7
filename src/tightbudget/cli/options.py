"""Options that several commands share, and the reading of numbers."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tightbudget.notation.values import value_of


def number(help: str, **more: Any) -> Any:
    """Makes a typer option for a number."""
    return typer.Option(help=help, parser=value_of, metavar="NUMBER", **more)


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, with exact doubles.")]
Rtol = Annotated[float, number("Wanted relative gap, (upper - lower) / upper.")]
