"""A rule as an expression that is built of allowed operations alone, and its text."""

from __future__ import annotations

from typing import Any, Literal

from tightbudget.errors import ParameterError
from tightbudget.tables.rules.binding import Called, bound
from tightbudget.tables.rules.expressions import check_number
from tightbudget.tables.rules.operations import OPERATIONS
from tightbudget.tables.rules.reader import Reader

Kind = Literal["boolean", "number", "any"]


def resolved(
    table: Any,
    rule: Any,
    *,
    kind: Kind = "boolean",
    name: str = "where",
    called: Called | None = None,
) -> Any:
    """Returns the Ibis expression of a rule on a table, built from allowed operations alone.

    Guarantee: the value of a row depends on that row alone, no record makes the query fail, and
    every engine gives the same value. A condition (``kind="boolean"``) is never NULL.

    Args:
        table: the Ibis table that the rule looks at.
        rule: a column's name, a function of the table, or a deferred expression (``_.fare > 10``).
        kind: "boolean" for a condition, "number" for a number, "any" for a derived column.
        name: what the rule is called in a refusal.
        called: the expressions of rules that were called before; None to call each rule anew.

    Raises:
        ParameterError: the rule names no column, uses an operation that is not allowed, could leave
            the range of doubles, or has another type. No value of the table is read or shown.
    """
    given = bound(table, rule, name, called)
    op = given.op()
    if kind != "boolean" and type(op).__name__ == "Field" and op.rel == table.op():
        if kind == "number":
            check_number(given, name)
        return given  # a column as it is; points() reads it as a number
    value = Reader(table, name, OPERATIONS).read(given)
    if kind == "boolean":
        if value.kind not in ("boolean", "null"):
            raise ParameterError(f"{name} must be a condition, got a value of type {value.kind}")
        # guard: a-missing-condition-is-false
        return value.as_kind("boolean").fill_null(False)
    if kind == "number":
        check_number(value.expression, name)
    return value.expression


def written(table: Any, rule: Any, called: Called | None = None) -> str:
    """Returns the text of a rule as Ibis writes the expression that the user gave.

    Raises:
        ParameterError: the rule is no expression of the table's columns.
    """
    return str(bound(table, rule, "rule", called).get_name())
