"""Binding: a rule gives its expression of Ibis, and sees no row."""

from __future__ import annotations

from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.tables.rules.expressions import import_ibis

# From the identity of a rule to the rule, to columns without rows, and to its expression of them.
Called = dict[int, tuple[Any, Any, Any]]


def bound(table: Any, rule: Any, name: str, called: Called | None = None) -> Any:
    """Returns the expression that a rule stands for on a table.

    Args:
        table: the Ibis table that the rule looks at.
        rule: as for :func:`resolved`.
        name: what the rule is called in a refusal.
        called: the expressions of rules that were called before; None to call each rule anew.

    Raises:
        ParameterError: it names no column, or is not one expression.
    """
    if isinstance(rule, str):
        if rule not in table.columns:
            raise refuse(name, f"be one of the columns {', '.join(table.columns)}", rule)
        return table[rule]
    try:
        if isinstance(rule, import_ibis().expr.types.Value):
            (found,) = table.bind(rule)
        else:
            found = _in_place_of(table, rule, name, {} if called is None else called)
    except ParameterError:
        raise
    except Exception as error:  # a column that is not there, types that do not go together, ...
        told = str(error).partition("\n")[0]
        raise ParameterError(
            f"{name} must be an expression of the columns {', '.join(table.columns)}: "
            f"{type(error).__name__}: {told}"
        ) from error
    return found


def _in_place_of(table: Any, rule: Any, name: str, called: Called) -> Any:
    """Puts the real table into the expression of a rule, which is called if it was not before.

    Raises:
        ParameterError: the rule gives no expression.
    """
    if id(rule) not in called:
        # the rule stays, so that no other one gets its identity
        called[id(rule)] = rule, *_without_rows(table, rule, name)
    _, columns, found = called[id(rule)]
    return found.op().replace({columns.op(): table.op()}).to_expr()


def _without_rows(table: Any, rule: Any, name: str) -> tuple[Any, Any]:
    """Calls a rule on a table without rows; returns that table, and the expression on it.

    A function could run a query, and put what it has seen into the question. On a table of columns
    alone every query fails; and the function is never called with the rows.

    Raises:
        ParameterError: the rule gives no expression.
    """
    ibis = import_ibis()
    columns = ibis.table(table.schema(), name="rows")  # guard: rules-see-no-rows
    found = rule.resolve(columns) if isinstance(rule, ibis.Deferred) else rule
    if callable(found) and not isinstance(found, (ibis.Expr, ibis.Deferred)):
        found = found(columns)
    if isinstance(found, ibis.Deferred):  # of a function: lambda t: _.fare > 10
        found = found.resolve(columns)
    if not isinstance(found, ibis.expr.types.Value):
        # Python answers a comparison of which Ibis knows nothing, say t.n == 2**63, by False
        if isinstance(found, ibis.Table):
            raise ParameterError(f"{name} must be one expression, got {len(found.columns)}")
        plain = found is None or isinstance(found, (bool, int, float))
        raise ParameterError(
            f"{name} must be an expression of the columns, got "
            f"{found if plain else type(found).__name__}: write a number beyond int64 as "
            'ibis.literal(2**63, "uint64"), and a condition that always holds as ibis.literal(True)'
        )
    return columns, found
