"""The tables, constraints, indexes and triggers that a ledger must have, word by word.

Whoever owns the database can empty a trigger or a constraint and leave its name. So the texts
of all definitions are compared with those of a ledger that the migrations have just made.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources

from sqlalchemy import Connection, bindparam, text

from tightbudget.errors import LedgerCorruptError
from tightbudget.ledger.store.schema import VERSION, VERSION_TABLE, metadata, with_access

# what tests/ledger/make_shape.py has read from new ledgers, by database
FILE = "shape.json"

_TABLES = [*metadata.tables, *with_access.tables, VERSION_TABLE]
# who adds an index makes a search faster, and one more table is none of the ledger's
_MAY_BE_ADDED = ("index", "table")

_SQLITE = """
SELECT type || ' ' || name, sql FROM sqlite_master WHERE tbl_name IN :tables AND sql IS NOT NULL
"""
_POSTGRESQL = """
WITH ours AS (
    SELECT c.oid, c.relname, quote_ident(n.nspname) || '.' AS schema
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname IN :tables AND c.relkind = 'r' AND pg_table_is_visible(c.oid)
), found AS (
    SELECT 'table ' || relname AS name, 'present' AS definition, schema FROM ours
    UNION ALL
    SELECT 'column ' || relname || '.' || attname,
        format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' not null' ELSE '' END,
        schema
    FROM pg_attribute JOIN ours ON attrelid = oid WHERE attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT 'constraint ' || relname || '.' || conname, pg_get_constraintdef(c.oid), schema
    FROM pg_constraint c JOIN ours ON conrelid = ours.oid WHERE contype IN ('c', 'f', 'p', 'u')
    UNION ALL
    SELECT 'index ' || i.relname,
        pg_get_indexdef(indexrelid) || CASE WHEN indisvalid THEN '' ELSE ' invalid' END, schema
    FROM pg_index JOIN ours ON indrelid = ours.oid JOIN pg_class i ON i.oid = indexrelid
    UNION ALL
    SELECT 'trigger ' || CASE WHEN tgisinternal THEN 'of ' || relname ELSE tgname END,
        pg_get_triggerdef(t.oid) || CASE WHEN tgenabled IN ('O', 'A') THEN '' ELSE ' disabled' END,
        schema
    FROM pg_trigger t JOIN ours ON tgrelid = ours.oid
    WHERE NOT tgisinternal OR tgenabled NOT IN ('O', 'A')
    UNION ALL
    SELECT DISTINCT 'function ' || proname, lanname || ' ' || prosrc, schema
    FROM pg_trigger JOIN ours ON tgrelid = ours.oid
        JOIN pg_proc p ON p.oid = tgfoid JOIN pg_language l ON l.oid = prolang
    WHERE NOT tgisinternal
    UNION ALL
    SELECT 'rule ' || rulename, pg_get_ruledef(r.oid), schema
    FROM pg_rewrite r JOIN ours ON ev_class = ours.oid
)
SELECT name, replace(definition, schema, '') FROM found
"""
_QUERIES = {
    dialect: text(query).bindparams(bindparam("tables", _TABLES, expanding=True))
    for dialect, query in {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}.items()
}

# comments and spaces mean nothing, quoted names mean what they mean without quotes
_WORD = re.compile(
    r"""(?P<nothing>\s+|--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^']|'')*')"""
    r"""|["`](?P<name>[a-zA-Z_]\w*)["`]|(?P<word>\w+|.)""",
    re.DOTALL,
)


def shape(connection: Connection) -> dict[str, str]:
    """Reads the definitions that the database has, by kind and name, in one form."""
    found: dict[str, list[str]] = {}
    for name, definition in connection.execute(_QUERIES[connection.dialect.name]):
        found.setdefault(name, []).append(" ".join(_words(definition)))
    # on PostgreSQL two tables may have triggers of one name
    return {name: "; ".join(sorted(definitions)) for name, definitions in found.items()}


def check_shape(connection: Connection) -> None:
    """Checks that the database still has all limits that the migrations have put into it.

    Raises:
        LedgerCorruptError: one is gone, was changed, or was added.
    """
    versions = connection.scalars(text(f"SELECT version_num FROM {VERSION_TABLE}")).all()
    if versions != [VERSION]:  # guard: version-of-code
        raise LedgerCorruptError(f"{VERSION_TABLE} must have the row {VERSION}, got {versions}")
    wanted, found = _wanted()[connection.dialect.name], shape(connection)
    for name, definition in wanted.items():
        if name not in found:  # guard: no-definition-lost
            raise LedgerCorruptError(f"the ledger has lost the {name}")
        if found[name] != definition:  # guard: definitions-word-by-word
            raise LedgerCorruptError(f"the {name} is not what the ledger has made")
    for name in sorted(found.keys() - wanted.keys()):
        if not name.startswith(_MAY_BE_ADDED):  # guard: no-trigger-added
            raise LedgerCorruptError(f"the ledger has made no {name}")


def _words(definition: str) -> Iterator[str]:
    """Splits a definition into words, all but its texts in lower case, without comments."""
    for found in _WORD.finditer(definition):
        if found["text"] is not None:
            yield found["text"]
        elif found["nothing"] is None:
            yield (found["word"] or found["name"]).lower()


@functools.cache
def _wanted() -> Mapping[str, Mapping[str, str]]:
    """Loads the definitions that a ledger must have, by database, kind and name."""
    file = resources.files("tightbudget.ledger.store").joinpath(FILE)
    content: dict[str, dict[str, str]] = json.loads(file.read_text(encoding="utf-8"))
    return content
