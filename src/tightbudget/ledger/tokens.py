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
from tightbudget.ledger.acts import token_acts
from tightbudget.ledger.ledger import Ledger
from tightbudget.ledger.rows import token_rows
from tightbudget.numerics.validate import one_of, refuse
from tightbudget.promises.block_names import bearer
from tightbudget.promises.chain import canonical, digest
from tightbudget.promises.secret import new_secret, opens

ROLES = ("viewer", "analyst", "administrator")

_LONGEST = timedelta(days=3660)
_FORM = re.compile(r"tb_([0-9a-f]{12})_([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True)
class Token:
    """An access token: its bearer's rights, and the time until which they last.

    Attributes:
        id: the text by which it is listed and revoked; no secret.
        name: the name of its bearer or its purpose; it is written down beside each act.
        role: a viewer sees everything; an analyst sees and charges some budgets, their parts,
            and all blocks of sets among them; an administrator may do everything.
        budgets: the names of an analyst's budgets; empty for others.
        created: the time of its creation, by the ledger's clock.
        expires: the time from which it opens nothing, by the ledger's clock.
        revoked: the time of its revocation, by the ledger's clock, or None.
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
        """Says whether it opens anything at this time."""
        return self.revoked is None and now < self.expires  # guard: token-valid


class Tokens:
    """The access tokens of a ledger.

    Args:
        ledger: the ledger whose budgets they open, and by whose clock they expire.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._session = ledger.session

    def create(
        self,
        name: str,
        role: str,
        *,
        budgets: Sequence[str] = (),
        lasts: timedelta,
        by: str | None = None,
    ) -> tuple[Token, str]:
        """Makes a token, and the text that its bearer shows: 256 random bits, kept nowhere.

        Args:
            name: the name of its bearer, or its purpose: 1 to 100 printable characters without
                ``=``, so that it can stand in the name of a quota.
            role: viewer, analyst or administrator.
            budgets: the names of an analyst's budgets; none for others.
            lasts: the time until it expires, at most ten years.
            by: the name of who creates it, if not of who acts on this ledger; it is written down.

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
        opened = {self._session.named(budget=budget) for budget in budgets}
        now, id, secret = self._session.now(), new_secret(6), new_secret(32)
        row = {
            "id": id,
            "name": bearer(name=name),
            "role": role,
            "budgets": canonical(sorted(opened)),
            "created": now.isoformat(),
            "expires": (now + lasts).isoformat(),
            "revoked": None,
            "hash": digest(secret),
        }
        who = self._session.who(by)
        self._session.write(lambda act: token_acts.add_token(act, row, who))
        return _token(row), f"tb_{id}_{secret}"

    def all(self) -> tuple[Token, ...]:
        """Lists all tokens, also those that are over, the oldest first."""
        with self._session.read() as connection:
            return tuple(map(_token, token_rows.tokens_in_order(connection)))

    def revoke(self, id: str, *, by: str | None = None) -> Token:
        """Ends a token, now and for good; again changes nothing.

        Args:
            id: the token's id.
            by: the name of who revokes it, if not of who acts on this ledger; it is written down.

        Raises:
            ParameterError: there is none.
            LedgerError: the ledger was moved elsewhere.
        """
        who = self._session.who(by)
        row = self._session.write(lambda act: token_acts.revoke_token(act, id, who))
        if row is None:
            raise refuse("id", "be that of a token of this ledger", id)
        return _token(row)

    def borne_by(self, text: str) -> Token | None:
        """Returns the valid token that a bearer's text shows, or None.

        Guarantee: the time of the comparison does not depend on the secret.
        """
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        token = self.valid(form[1])
        # also where there is none: the answer takes as long
        same = opens(form[2], None if token is None else token._hash)
        return token if same else None  # guard: secrets-compared

    def valid(self, id: str) -> Token | None:
        """Returns the token of this id if it is valid now, or None."""
        with self._session.read() as connection:
            row = token_rows.token(connection, id)
        token = None if row is None else _token(row)
        return token if token is not None and token.is_valid(self._session.now()) else None


def _token(row: Mapping[str, Any]) -> Token:
    """Reads a row of ``tokens``."""
    revoked = row["revoked"]
    return Token(
        id=row["id"],
        name=row["name"],
        role=row["role"],
        budgets=tuple(json.loads(row["budgets"])),
        created=datetime.fromisoformat(row["created"]),
        expires=datetime.fromisoformat(row["expires"]),
        revoked=None if revoked is None else datetime.fromisoformat(revoked),
        _hash=row["hash"],
    )
