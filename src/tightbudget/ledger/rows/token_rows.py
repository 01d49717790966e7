"""Rows of access tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    Connection,
    bindparam,
    select,
)

from tightbudget.ledger.store.driver import execute
from tightbudget.ledger.store.schema import tokens
from tightbudget.promises.chain import canonical, digest

_TOKENS = select(tokens).order_by(tokens.c.created, tokens.c.id)


_TOKEN = select(tokens).where(tokens.c.id == bindparam("of"))


def tokens_in_order(connection: Connection) -> list[dict[str, Any]]:
    """Reads the rows of all access tokens, the oldest first."""
    return [row._asdict() for row in execute(connection, _TOKENS)]


def token(connection: Connection, id: str) -> dict[str, Any] | None:
    """Returns the row of the access token of this id, or None."""
    row = execute(connection, _TOKEN, of=id).one_or_none()
    return None if row is None else row._asdict()


def said_of_token(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the details of an access token's event: its rights, and the digest of its row.

    The digest covers every column that never changes, the hash of the secret included.
    """
    fixed = {name: value for name, value in row.items() if name != "revoked"}
    shown = {name: row[name] for name in ("id", "name", "role", "expires")}
    return {**shown, "budgets": json.loads(row["budgets"]), "digest": digest(canonical(fixed))}
