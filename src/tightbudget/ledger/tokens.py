"""Tokens: who may do what with a ledger that is served.

A token is shown once, when it is created; the database has its hash. It is no part of the
history: who can write the database needs none.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Row, bindparam, insert, select, update

from tightbudget.errors import ParameterError
from tightbudget.ledger import rows
from tightbudget.ledger.act import Act
from tightbudget.ledger.chain import canonical
from tightbudget.ledger.ledger import Ledger
from tightbudget.ledger.schema import tokens
from tightbudget.ledger.text import printable
from tightbudget.numerics.validate import one_of, refuse

__all__ = ["ROLES", "Token", "Tokens"]

ROLES = ("viewer", "analyst", "administrator")

_LONGEST = timedelta(days=3660)
_FORM = re.compile(r"tb_([0-9a-f]{12})_([0-9a-f]{64})")
_ALL = select(tokens).order_by(tokens.c.created, tokens.c.id)
_ONE = select(tokens).where(tokens.c.id == bindparam("of"))
_REVOKE = (
    update(tokens)
    .where(tokens.c.id == bindparam("of"), tokens.c.revoked.is_(None))
    .values(revoked=bindparam("at"))
)


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
        self, name: str, role: str, *, budgets: Sequence[str] = (), lasts: timedelta
    ) -> tuple[Token, str]:
        """A new token, and the text that its bearer shows: 256 random bits, kept nowhere.

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
        now, secret = self._ledger._clock(), secrets.token_hex(32)
        token = Token(
            *(secrets.token_hex(6), printable(name=name), role, tuple(sorted(opened))),
            *(now, now + lasts, None, _hash(secret)),
        )
        self._ledger._do(_add, token)
        return token, f"tb_{token.id}_{secret}"

    def all(self) -> tuple[Token, ...]:
        """All of them, also those that are over, the oldest first."""
        with self._ledger._store.reading() as connection:
            return tuple(map(_token, connection.execute(_ALL)))

    def revoke(self, id: str) -> Token:
        """Ends a token, now and for good; again changes nothing.

        Raises:
            ParameterError: there is none.
            LedgerError: the ledger was moved elsewhere.
        """
        return self._ledger._do(_revoke, id)

    def borne_by(self, text: str) -> Token | None:
        """The token that a text shows; None if it is none, or over.

        Guarantee: how long the comparison takes does not depend on the secret.
        """
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        token = self.valid(form[1])
        # also where there is none: the answer takes as long
        expected = _hash("") if token is None else token._hash
        same = hmac.compare_digest(_hash(form[2]), expected)
        return token if same else None

    def valid(self, id: str) -> Token | None:
        """The token of this id, if it is valid now."""
        with self._ledger._store.reading() as connection:
            row = connection.execute(_ONE, {"of": id}).one_or_none()
        token = None if row is None else _token(row)
        return token if token is not None and token.is_valid(self._ledger._clock()) else None


def _add(act: Act, token: Token) -> None:
    for budget in token.budgets:
        rows.balance(act.connection, budget)  # refuses, if there is none
    row = {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "budgets": canonical(token.budgets),
        "created": token.created.isoformat(),
        "expires": token.expires.isoformat(),
        "revoked": None,
        "hash": token._hash,
    }
    act.connection.execute(insert(tokens), row)


def _revoke(act: Act, id: str) -> Token:
    act.connection.execute(_REVOKE, {"of": id, "at": act.at})
    row = act.connection.execute(_ONE, {"of": id}).one_or_none()
    if row is None:
        raise refuse("id", "be that of a token of this ledger", id)
    return _token(row)


def _token(row: Row[tuple[object, ...]]) -> Token:
    return Token(
        *(row.id, row.name, row.role, tuple(json.loads(row.budgets))),
        *(datetime.fromisoformat(row.created), datetime.fromisoformat(row.expires)),
        None if row.revoked is None else datetime.fromisoformat(row.revoked),
        row.hash,
    )


def _hash(secret: str) -> str:
    # of 256 random bits: nobody guesses them, so nothing slow is needed
    return hashlib.sha256(secret.encode()).hexdigest()
