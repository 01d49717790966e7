"""Triggers that refuse, in the words of both databases."""

from __future__ import annotations

from dataclasses import dataclass

from alembic import op

_REFUSE = """
CREATE OR REPLACE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '%', TG_ARGV[0]; END $$
"""


@dataclass(frozen=True)
class Guard:
    """A trigger that refuses a verb on a table, always or where a condition on OLD, NEW holds."""

    name: str
    table: str
    verb: str
    message: str
    condition: str = "1 = 1"


def guard(*guards: Guard) -> None:
    """Makes the triggers, on PostgreSQL also against emptying a table at once."""
    if op.get_bind().dialect.name == "sqlite":
        for g in guards:
            op.execute(
                f"CREATE TRIGGER {g.name} BEFORE {g.verb} ON {g.table} WHEN {g.condition}"
                f" BEGIN SELECT RAISE(ABORT, '{g.message}'); END"
            )
        return
    op.execute(_REFUSE)
    for g in guards:
        refuse = f"EXECUTE FUNCTION ledger_refuse('{g.message}')"
        op.execute(
            f"CREATE TRIGGER {g.name} BEFORE {g.verb} ON {g.table}"
            f" FOR EACH ROW WHEN ({g.condition}) {refuse}"
        )
        if g.verb == "DELETE":
            op.execute(
                f"CREATE TRIGGER {g.name}_all BEFORE TRUNCATE ON {g.table}"
                f" FOR EACH STATEMENT {refuse}"
            )
