"""How wide the parts of a budget's bar are."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tightbudget.web.pages.words import down, symbol

__all__ = ["Share", "share_of"]


@dataclass(frozen=True)
class Share:
    """Of the whole width, in percent.

    Attributes:
        cap, spent, held, saved: cap and ``spent + held + saved`` both fit, and one fills it.
        worst: what worst-case accounting would say, in words; empty where it says the same.
    """

    cap: float
    spent: float
    held: float
    saved: float
    worst: str


def share_of(statement: dict[str, Any]) -> Share:
    """The bar of a statement, as the API answers it."""
    cap, spent, held, saved = (
        Decimal(repr(statement[part]["amount"])) for part in ("cap", "spent", "held", "saved")
    )
    worst = spent + held + saved
    whole = max(cap, worst)
    percent = 100 / whole if whole else Decimal(0)

    def width(part: Decimal) -> float:
        return round(float(part * percent), 3)

    words = _in_words(statement, worst - cap)
    return Share(width(cap), width(spent), width(held), width(saved), words)


def _in_words(statement: dict[str, Any], beyond: Decimal) -> str:
    saved, unit = statement["saved"]["amount"], symbol(statement["saved"]["unit"])
    if not saved:
        return ""
    words = f"Worst-case accounting would have charged {down(saved)} {unit} more"
    return f"{words}: {down(float(beyond))} above the cap." if beyond > 0 else f"{words}."
