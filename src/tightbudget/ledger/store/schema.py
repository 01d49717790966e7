"""The tables as the code sees them; ``migrations`` makes them, and is tested against this.

Balances are columns of ``budgets``: they are updated in the transaction that writes the event,
never summed up when somebody looks. A budget's and a reservation's number is the sequence
of the event that made it.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)

metadata = MetaData()
with_access = MetaData()  # who may ask a server; a copy of these rows comes last

# SQLite has one kind of integers, of 64 bits, and calls it INTEGER
_Integer = BigInteger().with_variant(Integer(), "sqlite")

# the version that the tables of this module have, and the table that says which one a ledger has
VERSION = "0004"
VERSION_TABLE = "ledger_version"


def _number(name: str, *arguments: ForeignKey, primary_key: bool = False) -> Column[int]:
    """Makes a column of integers that the database neither leaves empty nor counts up itself."""
    return Column(
        name, _Integer, *arguments, primary_key=primary_key, autoincrement=False, nullable=False
    )


budgets = Table(
    "budgets",
    metadata,
    _number("id", primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("parameters", Text, nullable=False),
    Column("parent", _Integer, ForeignKey("budgets.id"), nullable=True),
    _number("root", ForeignKey("budgets.id")),
    _number("closed"),
    _number("cap_epsilon"),
    _number("cap_delta"),
    _number("spent_epsilon"),
    _number("spent_delta"),
    _number("held_epsilon"),
    _number("held_delta"),
    _number("saved_epsilon"),
)

# what a fixed plan declares, and how often each step was reserved
steps = Table(
    "steps",
    metadata,
    _number("budget", ForeignKey("budgets.id"), primary_key=True),
    Column("step", Text, primary_key=True, nullable=False),
    _number("times"),
    _number("used"),
)

reservations = Table(
    "reservations",
    metadata,
    _number("id", primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    Column("body", Text, nullable=False),
    Column("digest", Text, nullable=False),
    _number("interactive"),
    Column("state", Text, nullable=False),
    Column("started", _Integer, nullable=True),  # the number of the event that has started it
    Column("token", Text, nullable=True),  # the SHA-256 of what settles it, in hexadecimal digits
    Column("cell", Text, nullable=True),
    Column("told", Text, nullable=True),
    Index(
        "open_reservations",
        "id",
        sqlite_where=text("state IN ('reserved', 'started')"),
        postgresql_where=text("state IN ('reserved', 'started')"),
    ),
)

# what a reservation holds in each of its budgets, and after its end, what it has cost
charges = Table(
    "charges",
    metadata,
    _number("reservation", ForeignKey("reservations.id"), primary_key=True),
    _number("budget", ForeignKey("budgets.id"), primary_key=True),
    _number("epsilon"),
    _number("delta"),
)

events = Table(
    "events",
    metadata,
    _number("sequence", primary_key=True),
    Column("at", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=True),
    Column("budget", Text, nullable=True),
    _number("epsilon"),
    _number("delta"),
    Column("cell", Text, nullable=True),
    Column("details", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Index("events_of_a_budget", "budget", "sequence"),
    Index("events_of_a_key", "key", "sequence"),
)

# who may do what over HTTP; budgets as a list in JSON, times in ISO 8601
tokens = Table(
    "tokens",
    with_access,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("budgets", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("expires", Text, nullable=False),
    Column("revoked", Text, nullable=True),
    Column("hash", Text, nullable=False),
)
