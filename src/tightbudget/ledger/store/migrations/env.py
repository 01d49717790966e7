"""Runs the migrations inside the transaction that the ledger has begun.

A step is done whole or not at all, on SQLite too, where definitions of tables are part of a
transaction as everything else.
"""

from __future__ import annotations

from alembic import context

from tightbudget.ledger.store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
