"""Comparisons of rules, conditions made of others, choices, and missing values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tightbudget.tables.rules.expressions import cases, import_ibis
from tightbudget.tables.rules.reader import Operation, Reader
from tightbudget.tables.rules.values import Value


def _comparison(compare: Callable[[Any, Any], Any], *, ordered: bool = True) -> Operation:
    """Returns a comparison; NULL if one side is. Texts are compared for equality only."""

    def read(row: Reader, op: Any) -> Value:
        (x, y), like = row.alike([row(op.left), row(op.right)], op)
        if ordered:
            _check_order(row, op, like)
        return Value(compare(x, y), "boolean")

    return read


def _of_two(compute: Callable[[Any, Any], Any]) -> Operation:
    """Returns a condition that is made of two others."""

    def read(row: Reader, op: Any) -> Value:
        return Value(compute(row.condition(op.left, op), row.condition(op.right, op)), "boolean")

    return read


def _not(row: Reader, op: Any) -> Value:
    """The opposite of a condition."""
    return Value(~row.condition(op.arg, op), "boolean")


def _missing(row: Reader, op: Any) -> Value:
    """Whether a value is missing, which a NaN is."""
    return Value(row(op.arg).expression.isnull(), "boolean")


def _there(row: Reader, op: Any) -> Value:
    """Whether a value is there; a NaN is not."""
    return Value(row(op.arg).expression.notnull(), "boolean")


def _between(row: Reader, op: Any) -> Value:
    """Two comparisons of a number or date with its bounds."""
    values = [row(op.arg), row(op.lower_bound), row(op.upper_bound)]
    (x, low, high), like = row.alike(values, op)
    _check_order(row, op, like)
    return Value((x >= low) & (x <= high), "boolean")


def _check_order(row: Reader, op: Any, like: Value) -> None:
    """Refuses values that engines order differently."""
    if like.kind in ("string", "boolean"):
        raise row.refusal(op, f"engines order a {like.kind} differently: compare with == or isin")


def _in_values(row: Reader, op: Any) -> Value:
    """Whether a value is among some that are written in the rule; NULL if it is NULL."""
    options = [row(option) for option in op.options]
    if not all(type(option).__name__ == "Literal" for option in op.options):
        raise row.refusal(op, "here it needs values that are written in the rule")
    if any(option.kind == "null" for option in options):
        raise row.refusal(op, "NULL is among its values: use isnull() for missing ones")
    (x, *others), like = row.alike([row(op.value), *options], op)
    if like.kind not in ("integer", "wide integer", "double", "string"):
        raise row.refusal(op, f"it is of a {like.kind}: compare with ==")
    return Value(x.isin(others), "boolean")


def _coalesce(row: Reader, op: Any) -> Value:
    """The first of some values that is not missing (fill_null is this, too)."""
    expressions, like = row.alike([row(part) for part in op.arg], op)
    return replace(like, expression=import_ibis().coalesce(*expressions))


def _null_if(row: Reader, op: Any) -> Value:
    """A value, or NULL where it equals another."""
    (x, y), like = row.alike([row(op.arg), row(op.null_if_expr)], op)
    return replace(like, expression=x.nullif(y))


def _if_else(row: Reader, op: Any) -> Value:
    """One value where a condition is true, else another (also where it is NULL)."""
    condition = row.condition(op.bool_expr, op)
    (yes, no), like = row.alike([row(op.true_expr), row(op.false_null_expr)], op)
    return replace(like, expression=condition.ifelse(yes, no))


def _searched_case(row: Reader, op: Any) -> Value:
    """The value of the first condition that is true, else a last one."""
    conditions = [row.condition(case, op) for case in op.cases]
    (*results, last), like = row.alike([row(part) for part in (*op.results, op.default)], op)
    found = cases(*zip(conditions, results, strict=True), last)
    return replace(like, expression=found)


# Operations by the names of their classes in Ibis.
CONDITIONS: Mapping[str, Operation] = {
    "Equals": _comparison(operator.eq, ordered=False),
    "NotEquals": _comparison(operator.ne, ordered=False),
    "Less": _comparison(operator.lt),
    "LessEqual": _comparison(operator.le),
    "Greater": _comparison(operator.gt),
    "GreaterEqual": _comparison(operator.ge),
    "Between": _between,
    "InValues": _in_values,
    "And": _of_two(operator.and_),
    "Or": _of_two(operator.or_),
    "Xor": _of_two(operator.ne),  # NULL if one of the conditions is
    "Not": _not,
    "IfElse": _if_else,
    "SearchedCase": _searched_case,
    "IsNull": _missing,
    "NotNull": _there,
    "Coalesce": _coalesce,
    "NullIf": _null_if,
}
