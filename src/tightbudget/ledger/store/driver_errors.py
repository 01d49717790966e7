"""The meaning of errors of a database's driver, on SQLite and on PostgreSQL."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError

# "serialization_failure", "deadlock_detected": rolled back, says PostgreSQL, and to be tried again
_PASSING = ("40001", "40P01")


def said_by(error: DBAPIError) -> str:
    """Returns what the database has said, and on a full disk what helps: to ask again does not."""
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorcode", None)
    is_full = code in ("53100", sqlite3.SQLITE_FULL)  # of PostgreSQL, "disk_full"
    return f"{error.orig}: free some space on its disk" if is_full else str(error.orig)


def is_damaged(error: DBAPIError) -> bool:
    """Says whether SQLite has found what is no text, or no row, which it never writes."""
    is_corrupt = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_CORRUPT
    return is_corrupt or "Could not decode to UTF-8" in str(error.orig)


def may_pass(error: DBAPIError) -> bool:
    """Says whether an act that failed before its commit may succeed in another attempt."""
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in _PASSING
