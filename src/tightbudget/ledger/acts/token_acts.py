"""The acts on access tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, insert, update

from tightbudget.ledger.acts.requests import Why
from tightbudget.ledger.acts.unit_of_work import Act
from tightbudget.ledger.rows import budget_rows, event_rows, token_rows
from tightbudget.ledger.store.schema import tokens
from tightbudget.promises.stored_words import EventKind


def add_token(act: Act, row: Mapping[str, Any], why: Why) -> None:
    """Adds an access token; the event has the digest of its row, and no hash of its secret.

    Raises:
        ParameterError: one of its budgets is not there.
    """
    for budget in json.loads(row["budgets"]):
        budget_rows.balance(act.connection, budget)
    act.connection.execute(insert(tokens), dict(row))
    act.log(EventKind.TOKEN_CREATED, details={**token_rows.said_of_token(row), **why})


def revoke_token(act: Act, id: str, why: Why) -> dict[str, Any] | None:
    """Ends an access token, once, and returns its row; None if there is no such token."""
    if act.connection.execute(_REVOKE, {"of": id, "at": act.at}).rowcount:
        act.log(EventKind.TOKEN_REVOKED, details={"id": id, "revoked": act.at, **why})
    return token_rows.token(act.connection, id)


def explain_tokens(act: Act, why: Why) -> None:
    """Writes the events of access tokens that came into the ledger without any."""
    created = event_rows.entries(act.connection, event_rows.Which(kind=EventKind.TOKEN_CREATED))
    known = {json.loads(entry.details)["id"] for entry in created}
    for row in token_rows.tokens_in_order(act.connection):
        if row["id"] not in known:
            said = token_rows.said_of_token(row)
            act.log(EventKind.TOKEN_CREATED, details={**said, **why})
            if row["revoked"] is not None:
                said = {"id": row["id"], "revoked": row["revoked"]}
                act.log(EventKind.TOKEN_REVOKED, details={**said, **why})


_REVOKE = (
    update(tokens)
    .where(tokens.c.id == bindparam("of"), tokens.c.revoked.is_(None))
    .values(revoked=bindparam("at"))
)
