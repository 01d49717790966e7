"""The history: events, each with the hash of the one before, and heads to compare it with.

Guarantee: two ledgers whose heads are equal have the same history, event by event (as far as
SHA-256 goes). A head that was exported is enough to tell a ledger that went on from there from
one that was set back, or that went another way.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tightbudget.errors import LedgerCorruptError
from tightbudget.ledger.units import Units
from tightbudget.numerics.validate import refuse

__all__ = ["BEGINNING", "Entry", "Head", "canonical", "digest", "entry_after", "follow"]


class Entry(NamedTuple):
    """One event as it is stored: amounts are units, cell and details are JSON."""

    sequence: int
    at: str
    kind: str
    key: str | None
    budget: str | None
    epsilon: int
    delta: int
    cell: str | None
    details: str
    previous: str
    hash: str

    def is_sealed(self) -> bool:
        """Whether the hash is the one of what the event says."""
        return self.hash == digest(canonical(self[:-1]))


@dataclass(frozen=True)
class Head:
    """How far a history goes, and the hash that says which history it is.

    Attributes:
        sequence: the number of its last event.
        hash: that event's hash, in hexadecimal digits.
    """

    sequence: int
    hash: str

    def __str__(self) -> str:
        return f"tightbudget-ledger:1:{self.sequence}:{self.hash}"

    @staticmethod
    def after(entry: Entry | None) -> Head:
        """The head of a history whose last event this is; None if it has none."""
        return BEGINNING if entry is None else Head(entry.sequence, entry.hash)

    @staticmethod
    def from_text(text: str) -> Head:
        """The head that ``str(head)`` wrote.

        Raises:
            ParameterError: it is none.
        """
        found = re.fullmatch(r"tightbudget-ledger:1:(\d{1,19}):([0-9a-f]{64})", text, re.ASCII)
        if not found:
            raise refuse("head", "be tightbudget-ledger:1:<sequence>:<hash>", text)
        return Head(int(found[1]), found[2])


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)

# before the first event
BEGINNING = Head(0, "0" * 64)


def entry_after(
    head: Head,
    at: str,
    kind: str,
    *,
    key: str | None,
    budget: str | None,
    units: Units,
    cell: str | None,
    details: Mapping[str, Any],
) -> Entry:
    """The next event."""
    content = (head.sequence + 1, at, kind, key, budget, *units, cell, canonical(details))
    return Entry(*content, head.hash, digest(canonical((*content, head.hash))))


def follow(head: Head, entry: Entry) -> Head:
    """The head after the event.

    Raises:
        LedgerCorruptError: it is not the next one, or was changed.
    """
    if entry.sequence != head.sequence + 1:
        raise LedgerCorruptError(f"event {head.sequence + 1} is missing")
    if entry.previous != head.hash:
        raise LedgerCorruptError(f"event {entry.sequence} does not follow the one before it")
    if not entry.is_sealed():
        raise LedgerCorruptError(f"event {entry.sequence} was changed")
    return Head.after(entry)


def canonical(content: Any) -> str:
    """The one JSON text of a value: ASCII, sorted, without spaces."""
    return _CANONICAL.encode(content)


def digest(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
