"""The numbers of a budget as fields of a form."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import NamedTuple

from tightbudget.promises.kinds import KINDS
from tightbudget.web.api.budgets import Parameters
from tightbudget.web.pages.template_filters import budget_kind

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
        name: the name of the number, for programs.
        label: the name of the number, for people.
        kinds: the kinds of budgets that have this number, with spaces in between.
    """

    name: str
    label: str
    kinds: str

    @property
    def hint(self) -> str:
        """Names the kinds of budgets that have this number, in words."""
        return "for " + ", ".join(map(budget_kind, self.kinds.split()))


def offered() -> dict[str, str]:
    """Says of each kind of budget that a form opens how it charges."""
    return {name: kind.offered for name, kind in KINDS.items() if kind.offered}


def fields(*kinds: str) -> list[NumberField]:
    """Lists the numbers that budgets of these kinds have; without a kind, of all kinds."""
    # blocks keep their terms
    known = [kind for kind in kinds or offered() if kind in KINDS and not KINDS[kind].by_set]
    asked = {kind: inspect.signature(KINDS[kind].rule).parameters for kind in known}
    return [
        NumberField(name, label, " ".join(kind for kind, has in asked.items() if name in has))
        for name, label in _LABELS.items()
        if any(name in has for has in asked.values())
    ]


def parameters(form: Mapping[str, object]) -> Parameters:
    """Reads the parameters of a budget from a form; empty fields are left out."""
    said = {name: str(form.get(name) or "").strip() for name in _LABELS}
    return Parameters.model_validate({name: text for name, text in said.items() if text})
