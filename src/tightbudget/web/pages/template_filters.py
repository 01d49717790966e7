"""Filters of the templates: rounded amounts, times, and events in words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

from tightbudget.promises.kinds import KINDS

_DIGITS = 6  # shown; the page has the exact number, too
_PLAIN = (Decimal("0.0001"), Decimal(10) ** 9)  # outside of this range: with an exponent
_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu^2": "μ²", "divergence": "D"}

# The name of each kind of event for people; a test holds that none is missing.
KINDS_OF_EVENTS = {
    "opened": "opened",
    "lent": "lent to a part",
    "reserved": "reserved",
    "refused": "refused",
    "started": "started",
    "settled": "settled",
    "forfeited": "forfeited",
    "void": "given up",
    "expired": "expired",
    "capped": "cap changed",
    "corrected": "corrected",
    "closed": "closed",
    "returned": "part closed",
    "token_created": "token created",
    "token_revoked": "token revoked",
    "moved": "moved away",
    "arrived": "arrived",
    "audited": "audited",
}


def up(amount: float) -> str:
    """Writes a taken amount with a few digits, rounded up."""
    return _shown(amount, ROUND_CEILING)


def down(amount: float) -> str:
    """Writes a left or saved amount with a few digits, rounded down."""
    return _shown(amount, ROUND_FLOOR)


def _shown(amount: float, rounding: str) -> str:
    exact = Decimal(repr(amount))
    few = Context(prec=_DIGITS, rounding=rounding).plus(exact).normalize()
    low, high = _PLAIN
    return f"{few:f}" if not few or low <= few < high else f"{few:e}".replace("e+", "e")


def symbol(unit: str) -> str:
    """Returns the symbol of an account's unit, as formulas write it."""
    return _SYMBOLS.get(unit, unit)


def when(at: str) -> str:
    """Writes a time of the history, to the second."""
    try:
        return datetime.fromisoformat(at).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:  # an event of another program may have any text as its time
        return at


def cell(value: Any) -> str:
    """Writes an output cell; texts are written without quotes."""
    return value if isinstance(value, str) and value.isprintable() else repr(value)


def event_kind(kind: str) -> str:
    """Describes the kind of an event in a word or two."""
    return KINDS_OF_EVENTS.get(kind, kind)


def budget_kind(kind: str) -> str:
    """Describes the kind of a budget in a word or two."""
    return KINDS[kind].words if kind in KINDS else kind


def remark(*events: dict[str, Any]) -> str:
    """Writes the remarks of events, each once: the reason of a refusal, who acted, and why."""
    return "; ".join(dict.fromkeys(said for event in events for said in _remarks(event["details"])))


def numbers(events: Sequence[dict[str, Any]]) -> str:
    """Writes the numbers of events, given the newest first: 110, 108–110 or 101, 105, 110."""
    found = [event["sequence"] for event in events[::-1]]
    if len(found) > 1 and found[-1] - found[0] == len(found) - 1:
        return f"{found[0]}–{found[-1]}"
    return ", ".join(map(str, found))


def slug(name: str) -> str:
    """Replaces a name by letters and digits, for use in an id."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def _remarks(details: dict[str, Any]) -> Iterator[str]:
    if "message" in details:
        yield details["message"]
    if "verdict" in details:
        yield details["said"]
    if details.get("told"):
        yield details["told"]
    if details.get("interactive"):
        yield "answers more than once"
    if "part" in details:
        yield f"part {details['part']}"
    if "role" in details:
        yield f"{details['role']} {details['name']}"
    if "revoked" in details:
        yield f"id {details['id']}"
    who = details.get("by")
    if details.get("reason"):
        yield f"{who}: {details['reason']}" if who else details["reason"]
    elif who:
        yield f"by {who}"
    if "kind" in details:
        yield budget_kind(details["kind"])
    if details.get("parent"):
        yield f"a part of {details['parent']}"
    if "to" in details:
        yield f"to {details['to']}"


FILTERS = {
    "up": up,
    "down": down,
    "symbol": symbol,
    "when": when,
    "cell": cell,
    "event_kind": event_kind,
    "budget_kind": budget_kind,
    "numbers": numbers,
    "remark": lambda events: remark(*events[::-1]),
    "slug": slug,
}
