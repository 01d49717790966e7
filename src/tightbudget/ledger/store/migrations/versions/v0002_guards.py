"""Rows that go forward only, and a short way to the reservations that are open."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tightbudget.ledger.store.migrations.guards import Guard, guard

revision = "0002"
down_revision = "0001"

_OPEN = sa.text("state IN ('reserved', 'started')")


def upgrade() -> None:
    """Makes the index and the triggers."""
    op.create_index(
        "open_reservations", "reservations", ["id"], sqlite_where=_OPEN, postgresql_where=_OPEN
    )
    guard(
        Guard(
            "budgets_spend",
            "budgets",
            "UPDATE",
            "what was spent stays spent, and a budget stays what it is",
            "NEW.spent_epsilon < OLD.spent_epsilon OR NEW.spent_delta < OLD.spent_delta"
            " OR NEW.closed < OLD.closed OR NEW.id <> OLD.id OR NEW.name <> OLD.name"
            " OR NEW.kind <> OLD.kind OR NEW.root <> OLD.root"
            " OR COALESCE(NEW.parent, 0) <> COALESCE(OLD.parent, 0)",
        ),
        Guard(
            "reservations_advance",
            "reservations",
            "UPDATE",
            "a reservation keeps its key and its prices, starts once and ends once",
            "NEW.id <> OLD.id OR NEW.key <> OLD.key OR NEW.body <> OLD.body"
            " OR NEW.digest <> OLD.digest OR NEW.interactive <> OLD.interactive"
            " OR OLD.state NOT IN ('reserved', 'started')"
            " OR (OLD.state = 'started' AND (NEW.state NOT IN ('settled', 'forfeited')"
            " OR NEW.token IS NULL OR NEW.token <> OLD.token))",
        ),
        *(
            Guard(f"{table}_remain", table, "DELETE", f"{table} are never deleted")
            for table in ("budgets", "steps", "reservations", "charges")
        ),
    )
