"""What options share: how values are read, and the options of several commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tightbudget.accounting.describe import value_of

__all__ = ["AsJson", "Rtol", "number"]


def number(help: str, **more: Any) -> Any:
    """A typer option for a number."""
    return typer.Option(help=help, parser=value_of, metavar="NUMBER", **more)


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, with exact doubles.")]
Rtol = Annotated[float, number("Wanted relative gap, (upper - lower) / upper.")]
