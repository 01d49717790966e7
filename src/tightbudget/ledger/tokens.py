"""Tokens: who may do what with a ledger that is served.

A token is shown once, when it is created; the database has the hash of its secret. That it was
created, or revoked, is an event of the history: a row that somebody else has put in is found
by ``verify``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.ledger import queries, transactions
from tightbudget.ledger.chain import canonical, digest
from tightbudget.ledger.ledger import Ledger
from tightbudget.ledger.secret import new_secret, opens
from tightbudget.ledger.text import printable
from tightbudget.numerics.validate import one_of, refuse

__all__ = ["ROLES", "Token", "Tokens"]

ROLES = ("viewer", "analyst", "administrator")

_LONGEST = timedelta(days=3660)
_FORM = re.compile(r"tb_([0-9a-f]{12})_([0-9a-f]{64})")


@dataclass(frozen=True)
class Token:
    """What a token lets its bearer do, and until when.

    Attributes:
        id: by which it is listed and revoked; no secret.
        name: whose it is, or what for; it is written down beside what its bearer does.
        role: a viewer sees everything; an analyst sees and charges some budgets and their
            parts; an administrator may do everything.
        budgets: those of an analyst.
        created, expires, revoked: when, by the ledger's clock.
    """

    id: str
    name: str
    role: str
    budgets: tuple[str, ...]
    created: datetime
    expires: datetime
    revoked: datetime | None
    _hash: str = field(repr=False)

    def is_valid(self, now: datetime) -> bool:
        """Whether it opens anything."""
        return self.revoked is None and now < self.expires


class Tokens:
    """The tokens of a ledger.

    Args:
        ledger: whose budgets they open, and by whose clock they expire.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def create(
        self,
        name: str,
        role: str,
        *,
        budgets: Sequence[str] = (),
        lasts: timedelta,
        by: str | None = None,
    ) -> tuple[Token, str]:
        """A new token, and the text that its bearer shows: 256 random bits, kept nowhere.

        ``by`` says who creates it, if not who acts on this ledger; it is written down.

        Raises:
            ParameterError: the name, the role, a budget or the time is refused.
            LedgerError: the ledger was moved elsewhere.
        """
        one_of(ROLES, role=role)
        if (role == "analyst") != bool(budgets):
            raise ParameterError(
                f"budgets must be named for an analyst, and for nobody else, got {role} of"
                f" {list(budgets)!r}"
            )
        if not timedelta(0) < lasts <= _LONGEST:
            raise refuse("expires", "be in more than no time and at most ten years", str(lasts))
        opened = {self._ledger._named(budget=budget) for budget in budgets}
        now, id, secret = self._ledger._clock(), new_secret(6), new_secret(32)
        row = {
            "id": id,
            "name": printable(name=name),
            "role": role,
            "budgets": canonical(sorted(opened)),
            "created": now.isoformat(),
            "expires": (now + lasts).isoformat(),
            "revoked": None,
            "hash": digest(secret),
        }
        self._ledger._do(transactions.add_token, row, self._ledger._who(by))
        return _token(row), f"tb_{id}_{secret}"

    def all(self) -> tuple[Token, ...]:
        """All of them, also those that are over, the oldest first."""
        with self._ledger._store.reading() as connection:
            return tuple(map(_token, queries.tokens_in_order(connection)))

    def revoke(self, id: str, *, by: str | None = None) -> Token:
        """Ends a token, now and for good; again changes nothing.

        ``by`` says who revokes it, if not who acts on this ledger; it is written down.

        Raises:
            ParameterError: there is none.
            LedgerError: the ledger was moved elsewhere.
        """
        row = self._ledger._do(transactions.revoke_token, id, self._ledger._who(by))
        if row is None:
            raise refuse("id", "be that of a token of this ledger", id)
        return _token(row)

    def borne_by(self, text: str) -> Token | None:
        """The token that a text shows; None if it is none, or over.

        Guarantee: how long the comparison takes does not depend on the secret.
        """
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        token = self.valid(form[1])
        # also where there is none: the answer takes as long
        same = opens(form[2], None if token is None else token._hash)
        return token if same else None

    def valid(self, id: str) -> Token | None:
        """The token of this id, if it is valid now."""
        with self._ledger._store.reading() as connection:
            row = queries.token(connection, id)
        token = None if row is None else _token(row)
        return token if token is not None and token.is_valid(self._ledger._clock()) else None


def _token(row: Mapping[str, Any]) -> Token:
    revoked = row["revoked"]
    return Token(
        *(row["id"], row["name"], row["role"], tuple(json.loads(row["budgets"]))),
        *(datetime.fromisoformat(row["created"]), datetime.fromisoformat(row["expires"])),
        None if revoked is None else datetime.fromisoformat(revoked),
        row["hash"],
    )
