"""Questions to PostgreSQL about its log, which has an act before the disk has it."""

from __future__ import annotations

from sqlalchemy import Connection

# Asked by the last statement of an act: the last event that it has written or seen, whose hash is
# of all events before it, and whether the server writes anything to the disk at all.
_LAST = """
SELECT sequence, hash, current_setting('fsync') = 'on'
FROM events ORDER BY sequence DESC LIMIT 1
"""
# The same for an act that is rolled back: what it has written itself is no event that stays. It
# is the first of its transaction, outside of all savepoints, so its rows have the transaction's id.
_LAST_BEFORE = """
SELECT sequence, hash, current_setting('fsync') = 'on' FROM events
WHERE xmin IS DISTINCT FROM pg_current_xact_id_if_assigned()::xid
ORDER BY sequence DESC LIMIT 1
"""
_HAS_EVENTS = "SELECT to_regclass('events') IS NOT NULL"
# Asked by a flush. Its connection need not lead to the server of the act: a pooler keeps it open
# when the server has crashed or another one has taken its place, and the act is gone. A
# transaction that sees the event comes after the act in the log, and is the proof.
_HASH = "SELECT hash FROM events WHERE sequence = %(sequence)s"
# Asked by the first statement of a reading, so after its snapshot was made: all that the snapshot
# shows is in the log before the place at which the log ends now. A standby server has only what
# is on the disk of its primary.
_IS_BEHIND = """
SELECT CASE WHEN pg_is_in_recovery() THEN false ELSE
    current_setting('synchronous_standby_names') <> ''
    OR pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn() END
"""


def last_event(connection: Connection, *, before: bool) -> tuple[int, str, bool] | None:
    """Reads the number and the hash of the last event, and whether the server writes to the disk.

    Args:
        connection: a connection in the transaction of an act.
        before: leaves out what this transaction itself has written.

    Returns:
        None in a ledger without events, or, with ``before``, without tables.
    """
    # an act that was to make the tables has failed
    if before and not connection.exec_driver_sql(_HAS_EVENTS).scalar():
        return None
    found = connection.exec_driver_sql(_LAST_BEFORE if before else _LAST).one_or_none()
    return None if found is None else (found[0], found[1], found[2])


def has_event(connection: Connection, sequence: int, hash: str) -> bool:
    """Says whether the server that this connection leads to has an event, with this hash."""
    found: str | None = connection.exec_driver_sql(_HASH, {"sequence": sequence}).scalar()
    return found == hash


def is_behind(connection: Connection) -> bool:
    """Says whether a reading may show what is not on the disk yet; asked first in it."""
    return bool(connection.exec_driver_sql(_IS_BEHIND).scalar())
