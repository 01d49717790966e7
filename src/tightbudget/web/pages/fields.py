"""The numbers of a budget, as fields of a form."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import NamedTuple

from tightbudget.ledger.pricing import KINDS
from tightbudget.web.api.budgets import Parameters

__all__ = ["KINDS_IN_WORDS", "NumberField", "fields", "parameters"]

# a plan is no number: it is opened by the API, from Python or on the command line
KINDS_IN_WORDS = {
    "output_dp": "charges what came out",
    "zcdp": "worst case, counts ρ",
    "renyi": "worst case, counts a Rényi divergence",
    "gaussian_dp": "worst case, counts μ²",
    "advanced": "worst case, advanced composition",
}
_LABELS = {
    "epsilon": "ε",
    "delta": "δ",
    "slack": "Slack δ′",
    "rho": "ρ",
    "mu": "μ",
    "order": "Order α",
}


class NumberField(NamedTuple):
    """A number in a form.

    Attributes:
        name, label: for programs and for people.
        kinds: of budgets that have it, with spaces in between.
    """

    name: str
    label: str
    kinds: str


def fields(*kinds: str) -> list[NumberField]:
    """The numbers that budgets of these kinds have; of all that a form opens, if none is named."""
    asked = {kind: inspect.signature(KINDS[kind]).parameters for kind in kinds or KINDS_IN_WORDS}
    return [
        NumberField(name, label, " ".join(kind for kind, has in asked.items() if name in has))
        for name, label in _LABELS.items()
        if any(name in has for has in asked.values())
    ]


def parameters(form: Mapping[str, object]) -> Parameters:
    """What a form says; a field that was left empty says nothing."""
    said = {name: str(form.get(name) or "").strip() for name in _LABELS}
    return Parameters.model_validate({name: text for name, text in said.items() if text})
