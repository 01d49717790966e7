"""Tokens of runs are secrets, stored as hashes; tokens of access are part of the history.

A run that was started before has the number of its start event as its token. Its holder goes on
with it; but it is no secret, since everybody sees that event.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

from tightbudget.ledger.store.migrations.guards import Guard, guard
from tightbudget.promises.chain import BEGINNING, Head, canonical, digest, entry_after
from tightbudget.promises.stored_words import EventKind
from tightbudget.promises.units import NOTHING

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Hashes the tokens of runs, and writes events for the tokens of access."""
    on = " ON reservations" if op.get_bind().dialect.name == "postgresql" else ""
    op.execute(f"DROP TRIGGER IF EXISTS reservations_advance{on}")
    op.execute("ALTER TABLE reservations RENAME COLUMN token TO started")
    op.execute("ALTER TABLE reservations ADD COLUMN token TEXT")
    _hash_tokens_of_runs()
    guard(
        Guard(
            "reservations_advance",
            "reservations",
            "UPDATE",
            "a reservation keeps its key and its prices, starts once and ends once",
            "NEW.id <> OLD.id OR NEW.key <> OLD.key OR NEW.body <> OLD.body"
            " OR NEW.digest <> OLD.digest OR NEW.interactive <> OLD.interactive"
            " OR OLD.state NOT IN ('reserved', 'started')"
            " OR (NEW.state = 'started' AND NEW.token IS NULL)"
            " OR (OLD.state = 'started' AND (NEW.state NOT IN ('settled', 'forfeited')"
            " OR NEW.started IS NULL OR NEW.started <> OLD.started"
            " OR NEW.token IS NULL OR NEW.token <> OLD.token))",
        ),
    )
    _explain_tokens_of_access()


def _hash_tokens_of_runs() -> None:
    connection = op.get_bind()
    wanted = "SELECT id, started FROM reservations WHERE started IS NOT NULL"
    found = [
        {"of": id, "token": digest(str(started))}
        for id, started in connection.execute(sa.text(wanted))
    ]
    if found:
        connection.execute(sa.text("UPDATE reservations SET token = :token WHERE id = :of"), found)


def _explain_tokens_of_access() -> None:
    """Writes their events, but into a ledger that was moved: nothing is later than its move."""
    connection = op.get_bind()
    last = connection.execute(
        sa.text("SELECT sequence, kind, hash FROM events ORDER BY sequence DESC LIMIT 1")
    ).one_or_none()
    if last is not None and last.kind == "moved":
        return
    head = BEGINNING if last is None else Head(sequence=last.sequence, hash=last.hash)
    at = datetime.now(UTC).isoformat()
    names = "id, name, role, budgets, created, expires, hash"
    found = connection.execute(
        sa.text(f"SELECT {names}, revoked FROM tokens ORDER BY created, id")
    ).mappings()
    for row in found.all():
        fixed = {name: value for name, value in row.items() if name != "revoked"}
        said = {name: row[name] for name in ("id", "name", "role", "expires")}
        said |= {"budgets": json.loads(row["budgets"]), "digest": digest(canonical(fixed))}
        ended = {"id": row["id"], "revoked": row["revoked"]}
        told = [(EventKind.TOKEN_CREATED, said), (EventKind.TOKEN_REVOKED, ended)]
        for kind, details in told[: 1 if row["revoked"] is None else 2]:
            entry = entry_after(
                head,
                at=at,
                kind=kind,
                key=None,
                budget=None,
                units=NOTHING,
                cell=None,
                details=canonical({**details, "reason": "created before version 0004"}),
            )
            _add(entry._asdict())
            head = Head.after(entry)


def _add(row: dict[str, object]) -> None:
    columns, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    op.get_bind().execute(sa.text(f"INSERT INTO events ({columns}) VALUES ({values})"), row)
