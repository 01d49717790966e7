"""Writes a question in one line of text, for keys in a ledger, tables and refusals."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tightbudget.tables import rules
from tightbudget.tables.ibis_source import IbisSource
from tightbudget.tables.mechanism import TableMechanism
from tightbudget.tables.table import Table

# Items of a list that are written out: the bounds of a column, a few columns.
_WRITTEN = 4


def text_of(question: Any, table: Table) -> str:
    """Writes a question as a call with the parameters that are not the default.

    A rule that is a function is written as Ibis writes its expression on the table's columns. The
    text says what the caller has asked; no row is read.

    >>> text_of(Count(epsilon=0.1, where=lambda t: t.fare > 10), table)
    'Count(epsilon=0.1, where=Greater(fare, 10))'
    """
    name = type(question).__name__
    if not dataclasses.is_dataclass(question):
        return name
    said = []
    for field in dataclasses.fields(question):
        value = getattr(question, field.name, None)
        if field.init and not _is_default(field, value):
            said.append(f"{field.name}={_text(value, table)}")
    return f"{name}({', '.join(said)})"


def identity_of(question: Any, table: Table, columns: Mapping[str, str] | None) -> str:
    """Hashes a question with all of its parameters, and what its table declares of a unit.

    A rule that is a function of arrays is known by its name alone.
    """
    declared = {
        "unit": table.unit,
        "rows": table.rows,
        "groups": table.groups,
        "domains": {by: [repr(key) for key in table.domain(by)] for by in table.domains},
        "columns": None if columns is None else dict(columns),
    }
    said = json.dumps([_whole(question, table), declared], sort_keys=True)
    return hashlib.sha256(said.encode("ascii", "backslashreplace")).hexdigest()


def _whole(value: Any, table: Table) -> Any:
    """Writes a parameter with all of its parts, as JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: _whole(getattr(value, field.name, None), table)
            for field in dataclasses.fields(value)
            if field.init
        }
        return [type(value).__name__, fields]
    if isinstance(value, Mapping):
        return [[_whole(key, table), _whole(part, table)] for key, part in value.items()]
    if isinstance(value, (tuple, list)):
        return [_whole(part, table) for part in value]
    return _text(value, table)


def cut(text: str, most: int) -> str:
    """Makes a text printable, and cuts it to a number of characters.

    Another text of the same beginning is cut to another text, since a hash of the whole ends it.
    """
    printable = "".join(c if c.isprintable() else " " for c in unicodedata.normalize("NFC", text))
    if len(printable) <= most:
        return printable
    digest = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:8]
    return f"{printable[: most - 12]}... {digest}"


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    """Says whether a field has its default, without asking values that are no plain ones."""
    plain = value is None or isinstance(value, (bool, int, float, str))
    return plain and type(value) is type(field.default) and value == field.default


def _text(value: Any, table: Table) -> str:
    """Writes a parameter; of a long list the number of its items."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (Fraction, Decimal)):
        return str(value)
    if isinstance(value, (tuple, list)) and len(value) <= _WRITTEN:
        return f"[{', '.join(_text(part, table) for part in value)}]"
    if isinstance(value, (tuple, list, Mapping)):
        return f"[{len(value)} items]"
    if isinstance(value, TableMechanism):  # a part of the question
        return text_of(value, table)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__
    return _rule_text(value, table)


def _rule_text(rule: Any, table: Table) -> str:
    """Writes a rule as Ibis writes its expression; another function by its name.

    It never refuses: a mechanism says by its plan what is wrong with a rule.
    """
    if isinstance(table.source, IbisSource):
        try:
            return rules.written(table.source.table, rule, table.source.called)
        except Exception:  # the caller's own function may raise anything
            pass
    return str(getattr(rule, "__name__", type(rule).__name__))
