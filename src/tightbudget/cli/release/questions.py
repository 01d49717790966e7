"""``tightbudget release count``, ``sum``, ``mean``, ``quantiles``, ``histogram``, ``groups``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

import tightbudget as tb
from tightbudget import ParameterError
from tightbudget.cli.options import number
from tightbudget.cli.release.table import Asked
from tightbudget.cli.release.where import keys_of
from tightbudget.notation.values import value_of
from tightbudget.numerics.validate import refuse

Columns = Mapping[str, str]
Column = Annotated[str, typer.Option(help="A column of numbers.")]
Low = Annotated[float, number("Public: values below are moved here.")]
High = Annotated[float, number("Public: values above are moved here.")]
Step = Annotated[float | None, number("Of the grid that values are rounded to, a power of two.")]
Of = Annotated[str, typer.Option(help="rows, or units.")]
Group = Annotated[
    str | None, typer.Option(help="The column that names a group: one answer for each key.")
]
Keys = Annotated[str | None, typer.Option(help="The public keys of --group: a,'b, c','it''s'.")]


def count(columns: Columns, epsilon: Any, delta: Any, of: Of = "rows") -> Asked:
    """Counts the rows of a table, or its units, with noise, and pays for the answer.

    For example: tightbudget release count trips.parquet --unit rider --rows-per-unit 20
    --where "fare > 10" --epsilon 0.1 --budget ada --ledger sqlite:///budget.db
    """
    return tb.Count(epsilon=epsilon, delta=delta, of=_of(of)), {}


def sum_(
    columns: Columns,
    epsilon: Any,
    delta: Any,
    column: Column,
    low: Low,
    high: High,
    step: Step = None,
    group: Group = None,
    keys: Keys = None,
) -> Asked:
    """Adds up a column with noise, and pays for the answer.

    For example: tightbudget release sum trips.parquet --column fare --low 0 --high 100
    --unit rider --rows-per-unit 20 --epsilon 0.1 --budget ada --ledger sqlite:///budget.db
    """
    given = {
        "column": column,
        "bounds": (low, high),
        "epsilon": epsilon,
        "delta": delta,
        "step": step,
    }
    return _in_groups(tb.Sum, tb.GroupedSums, given, columns, group=group, keys=keys)


def mean(
    columns: Columns,
    epsilon: Any,
    delta: Any,
    column: Column,
    low: Low,
    high: High,
    step: Step = None,
    group: Group = None,
    keys: Keys = None,
) -> Asked:
    """Answers the mean of a column with noise, and pays for the answer.

    For example: tightbudget release mean trips.parquet --column fare --low 0 --high 100
    --unit rider --rows-per-unit 20 --epsilon 0.1 --budget ada --ledger sqlite:///budget.db
    """
    given = {
        "column": column,
        "bounds": (low, high),
        "epsilon": epsilon,
        "delta": delta,
        "step": step,
    }
    return _in_groups(tb.Mean, tb.GroupedMeans, given, columns, group=group, keys=keys)


def quantiles(
    columns: Columns,
    epsilon: Any,
    delta: Any,
    column: Column,
    low: Low,
    high: High,
    probabilities: Annotated[str, typer.Option(help="In [0, 1], ascending: 0.25,0.5,0.75.")],
    step: Step = None,
    group: Group = None,
    keys: Keys = None,
) -> Asked:
    """Finds quantiles of a column with noise, and pays for the answer; delta stays 0.

    For example: tightbudget release quantiles trips.parquet --column fare --low 0 --high 100
    --probabilities 0.5 --unit rider --rows-per-unit 20 --epsilon 0.1 --budget ada
    --ledger sqlite:///budget.db
    """
    if delta:
        raise refuse("delta", "be 0: quantiles have a price of epsilon alone", delta)
    given = {
        "column": column,
        "probabilities": _numbers(probabilities=probabilities),
        "bounds": (low, high),
        "epsilon": epsilon,
        "step": step,
    }
    return _in_groups(
        tb.Quantiles, tb.tables.GroupedQuantiles, given, columns, group=group, keys=keys
    )


def histogram(
    columns: Columns,
    epsilon: Any,
    delta: Any,
    column: Column,
    edges: Annotated[str, typer.Option(help="Public numbers that ascend: 0,10,20,50.")],
    step: Step = None,
) -> Asked:
    """Counts the rows between public edges with noise, and pays for the answer.

    For example: tightbudget release histogram trips.parquet --column fare --edges 0,10,20,50
    --unit rider --rows-per-unit 20 --epsilon 0.1 --budget ada --ledger sqlite:///budget.db
    """
    numbers = _numbers(edges=edges)
    question = tb.HistogramCounts(
        column=column, edges=numbers, epsilon=epsilon, delta=delta, step=step
    )
    return question, {}


def groups(
    columns: Columns,
    epsilon: Any,
    delta: Any,
    column: Annotated[str, typer.Option(help="The column that names the group.")],
    keys: Annotated[str, typer.Option(help="The public keys: a,'b, c','it''s'.")],
    of: Of = "rows",
) -> Asked:
    """Counts the rows, or the units, of groups with public keys, and pays for the answer.

    The price does not depend on the number of groups.

    For example: tightbudget release groups trips.parquet --column zone --keys a,b,c
    --unit rider --rows-per-unit 20 --epsilon 0.1 --budget ada --ledger sqlite:///budget.db
    """
    domains = _keys(columns, keys, column=column)
    question = tb.GroupedCounts(by=column, epsilon=epsilon, delta=delta, of=_of(of))
    return question, domains


def _in_groups(
    one: Any,
    grouped: Any,
    given: Mapping[str, Any],
    columns: Columns,
    *,
    group: str | None,
    keys: str | None,
) -> Asked:
    """Asks a question of all rows, or of the rows of each public key.

    Raises:
        ParameterError: there are keys without a column, or a column without keys.
    """
    if (group is None) != (keys is None):
        raise ParameterError("give --group and --keys together: groups have public keys")
    if group is None or keys is None:
        return one(**given), {}
    return grouped(by=group, **given), _keys(columns, keys, group=group)


def _keys(columns: Columns, keys: str, **given: str) -> Mapping[str, Any]:
    """Reads the public keys of a column.

    Raises:
        ParameterError: the column is not there, or a key is none of its values.
    """
    ((option, name),) = given.items()
    if name not in columns:
        raise refuse(option, f"be one of the columns {', '.join(columns)}", name)
    return {name: keys_of(keys, columns[name], name)}


def _numbers(**given: str) -> tuple[Any, ...]:
    """Reads numbers with commas between them.

    Raises:
        ParameterError: a part is no number.
    """
    ((name, text),) = given.items()
    numbers = tuple(value_of(part) for part in text.split(","))
    if any(isinstance(number, (str, bool)) for number in numbers):
        raise ParameterError(f"{name} must be numbers with commas between them, got {text!r}")
    return numbers


def _of(text: str) -> Any:
    """Returns what is counted; the mechanism refuses what is neither rows nor units."""
    return text
