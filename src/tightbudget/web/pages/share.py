"""The widths of the segments of a budget's bar."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tightbudget.web.pages.template_filters import down, symbol

_WIDEST = Decimal("1.5")  # widths of the cap: a longer bar would leave too little room for the cap


@dataclass(frozen=True)
class Share:
    """The widths of a bar's segments, in percent of the whole bar.

    Attributes:
        cap, spent, held, saved: the widths; together they fit into the bar.
        inside: the width of the amounts that open parts have spent, a share of ``held``.
        is_cut: whether the saved amount is too wide to be shown whole.
        worst: the result of worst-case accounting, in words; empty where it is the same.
    """

    cap: float
    spent: float
    held: float
    saved: float
    inside: float
    is_cut: bool
    worst: str


def share_of(statement: dict[str, Any]) -> Share:
    """Computes the bar of a statement, given as the API answers it."""
    cap, spent, held, saved, inside = (
        Decimal(repr(statement[part]["amount"])) if statement[part] else Decimal(0)
        for part in ("cap", "spent", "held", "saved", "spent_in_parts")
    )
    worst = spent + held + saved
    whole = min(max(cap, worst), cap * _WIDEST)
    percent = 100 / whole if whole else Decimal(0)  # guard: share-of-nothing

    def width(part: Decimal) -> float:
        return round(float(part * percent), 3)

    shown = min(saved, whole - spent - held)  # guard: cut-to-width
    widths = (width(cap), width(spent), width(held), width(shown), width(inside))
    # guard: cut-is-said
    return Share(*widths, is_cut=shown < saved, worst=_in_words(statement, worst - cap))


def _in_words(statement: dict[str, Any], beyond: Decimal) -> str:
    saved, unit = statement["saved"]["amount"], symbol(statement["saved"]["unit"])
    if not saved:
        return ""
    words = f"Worst-case accounting would have charged {down(saved)} {unit} more"
    return f"{words}: {down(float(beyond))} above the cap." if beyond > 0 else f"{words}."
