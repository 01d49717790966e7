"""The tables, and events that nobody changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tightbudget.ledger.store.migrations.guards import Guard, guard

revision = "0001"
down_revision = None

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _number(name: str, *more: sa.ForeignKey, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, _INTEGER, *more, autoincrement=False, nullable=nullable)


def _words(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def upgrade() -> None:
    """Makes all tables."""
    op.create_table(
        "budgets",
        _number("id"),
        _words("name"),
        _words("kind"),
        _words("parameters"),
        _number("parent", sa.ForeignKey("budgets.id"), nullable=True),
        _number("root", sa.ForeignKey("budgets.id")),
        _number("closed"),
        *(
            _number(f"{what}_{of}")
            for what in ("cap", "spent", "held")
            for of in ("epsilon", "delta")
        ),
        _number("saved_epsilon"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sa.CheckConstraint("closed IN (0, 1)", "budget_is_open_or_closed"),
        sa.CheckConstraint("spent_epsilon >= 0 AND spent_delta >= 0", "spent_is_not_negative"),
        sa.CheckConstraint("held_epsilon >= 0 AND held_delta >= 0", "held_is_not_negative"),
        sa.CheckConstraint("saved_epsilon >= 0", "saved_is_not_negative"),
        # differences of numbers in [0, cap]: nothing overflows
        sa.CheckConstraint(
            "spent_epsilon <= cap_epsilon AND held_epsilon <= cap_epsilon - spent_epsilon",
            "epsilon_is_within_the_cap",
        ),
        sa.CheckConstraint(
            "spent_delta <= cap_delta AND held_delta <= cap_delta - spent_delta",
            "delta_is_within_the_cap",
        ),
    )
    op.create_table(
        "steps",
        _number("budget", sa.ForeignKey("budgets.id")),
        _words("step"),
        _number("times"),
        _number("used"),
        sa.PrimaryKeyConstraint("budget", "step"),
        sa.CheckConstraint("used >= 0 AND used <= times", "step_runs_as_often_as_declared"),
    )
    op.create_table(
        "reservations",
        _number("id"),
        _words("key"),
        _words("body"),
        _words("digest"),
        _number("interactive"),
        _words("state"),
        _number("token", nullable=True),
        _words("cell", nullable=True),
        _words("told", nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        sa.CheckConstraint("interactive IN (0, 1)", "interactive_or_not"),
        sa.CheckConstraint(
            "state IN ('reserved', 'started', 'settled', 'forfeited', 'void', 'refused')",
            "state_is_known",
        ),
        sa.CheckConstraint(
            "token IS NOT NULL OR state NOT IN ('started', 'settled')", "started_has_a_token"
        ),
    )
    op.create_table(
        "charges",
        _number("reservation", sa.ForeignKey("reservations.id")),
        _number("budget", sa.ForeignKey("budgets.id")),
        _number("epsilon"),
        _number("delta"),
        sa.PrimaryKeyConstraint("reservation", "budget"),
        sa.CheckConstraint("epsilon >= 0 AND delta >= 0", "charge_is_not_negative"),
    )
    op.create_table(
        "events",
        _number("sequence"),
        _words("at"),
        _words("kind"),
        _words("key", nullable=True),
        _words("budget", nullable=True),
        _number("epsilon"),
        _number("delta"),
        _words("cell", nullable=True),
        _words("details"),
        _words("previous"),
        _words("hash"),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_index("events_of_a_budget", "events", ["budget", "sequence"])
    op.create_index("events_of_a_key", "events", ["key", "sequence"])
    guard(
        Guard("events_stay", "events", "UPDATE", "events are never changed"),
        Guard("events_remain", "events", "DELETE", "events are never deleted"),
    )
