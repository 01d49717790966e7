"""Guarantees as plain JSON values, as a ledger stores them and a server is sent them."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.output_dp.amount import exact
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.output_dp.pricing import Guarantee

# a guarantee as it is read back from a ledger
Stored = OutputDP | Fraction | Composition


def content_of(guarantee: Guarantee) -> dict[str, Any]:
    """Writes a guarantee as plain JSON values, equal ones alike; :func:`guarantee_of` reads them.

    Raises:
        ParameterError: ``guarantee`` is neither prices by cell, nor a plan, nor a number >= 0.
    """
    if isinstance(guarantee, OutputDP):
        content = guarantee.to_dict()
        content["output_dp"]["cells"].sort(key=json.dumps)
        return content
    if isinstance(guarantee, Composable):
        return compose([guarantee]).to_dict()
    return {"amount": str(exact(guarantee=guarantee))}


def guarantee_of(content: dict[str, Any]) -> Stored:
    """Reads a guarantee that :func:`content_of` wrote."""
    if "output_dp" in content:
        return OutputDP.from_dict(content)
    if "steps" in content:
        return Composition.from_dict(content)
    return Fraction(content["amount"])
