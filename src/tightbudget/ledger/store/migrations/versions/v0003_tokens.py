"""Tokens, which change once: when they are revoked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tightbudget.ledger.store.migrations.guards import Guard, guard

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Makes the table and its triggers."""
    op.create_table(
        "tokens",
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("id", "name", "role", "budgets", "created", "expires", "hash")
        ),
        sa.Column("revoked", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.CheckConstraint("role IN ('viewer', 'analyst', 'administrator')", "role_is_known"),
    )
    guard(
        Guard(
            "tokens_stay",
            "tokens",
            "UPDATE",
            "a token keeps what it may do, and is revoked once",
            "NEW.id <> OLD.id OR NEW.name <> OLD.name OR NEW.role <> OLD.role"
            " OR NEW.budgets <> OLD.budgets OR NEW.created <> OLD.created"
            " OR NEW.expires <> OLD.expires OR NEW.hash <> OLD.hash OR OLD.revoked IS NOT NULL",
        ),
        Guard("tokens_remain", "tokens", "DELETE", "tokens are never deleted"),
    )
