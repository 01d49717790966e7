"""The history: events, each with the hash of the one before, and heads to compare it with.

Guarantee: two ledgers whose heads are equal have the same history, event by event (as far as
SHA-256 goes). A head that was exported is enough to tell a ledger that went on from there from
one that was set back, or that went another way.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from tightbudget.errors import LedgerCorruptError
from tightbudget.numerics.validate import refuse
from tightbudget.promises.units import Units


class Entry(NamedTuple):
    """One event as it is stored: amounts are units, cell and details are JSON.

    The fields have the names and the order of the columns of the table ``events``; the hash is
    taken over all before it in this order.
    """

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
        """Says whether the event has the hash of its own content."""
        return self.hash == _sealed(self[:-1])


@dataclass(frozen=True)
class Head:
    """The end of a history: how far it goes, and a hash that stands for all of it.

    Attributes:
        sequence: the number of the last event.
        hash: the last event's hash, in hexadecimal digits.
    """

    sequence: int
    hash: str

    def __str__(self) -> str:
        return f"tightbudget-ledger:1:{self.sequence}:{self.hash}"

    @staticmethod
    def after(entry: Entry | None) -> Head:
        """Returns the head of the history that ends with this event; for None, of an empty one."""
        return BEGINNING if entry is None else Head(sequence=entry.sequence, hash=entry.hash)

    @staticmethod
    def from_text(text: str) -> Head:
        """Reads a head from the text that ``str(head)`` has written.

        Raises:
            ParameterError: the text is no head.
        """
        found = re.fullmatch(r"tightbudget-ledger:1:(\d{1,19}):([0-9a-f]{64})", text, re.ASCII)
        if not found:
            raise refuse("head", "be tightbudget-ledger:1:<sequence>:<hash>", text)
        return Head(sequence=int(found[1]), hash=found[2])


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)

# before the first event
BEGINNING = Head(sequence=0, hash="0" * 64)


def entry_after(
    head: Head,
    *,
    at: str,
    kind: str,
    key: str | None,
    budget: str | None,
    units: Units,
    cell: str | None,
    details: str,
) -> Entry:
    """Makes the event that follows a head, and seals it with its hash.

    The details are their canonical text, which is one for all budgets of an act.
    """
    content = (
        head.sequence + 1,
        at,
        str(kind),
        key,
        budget,
        units.epsilon,
        units.delta,
        cell,
        details,
        head.hash,
    )
    return Entry(*content, hash=_sealed(content))


def follow(head: Head, entry: Entry) -> Head:
    """Returns the head after an event.

    Raises:
        LedgerCorruptError: the event is not the next one, or was changed.
    """
    if entry.sequence != head.sequence + 1:
        raise LedgerCorruptError(f"event {head.sequence + 1} is missing")
    if entry.previous != head.hash:
        raise LedgerCorruptError(f"event {entry.sequence} does not follow the one before it")
    if not entry.is_sealed():  # guard: events-sealed
        raise LedgerCorruptError(f"event {entry.sequence} was changed")
    return Head.after(entry)


def _sealed(content: tuple[Any, ...]) -> str:
    """Hashes the fields of an event, all but the hash itself."""
    return digest(canonical(content))


def canonical(content: Any) -> str:
    """Writes a value as its one JSON text: ASCII, sorted, without spaces."""
    return _CANONICAL.encode(content)


def digest(text: str) -> str:
    """Returns the SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
