"""``tightbudget release count``, ``sum``, ``mean``, ``quantiles``, ``groups`` and the like."""

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
from tightbudget.output_dp.amount import exact_positive, exact_probability

Columns = Mapping[str, str]
Column = Annotated[str, typer.Option(help="A column of numbers.")]
Low = Annotated[float, number("Public: values below are moved here.")]
High = Annotated[float, number("Public: values above are moved here.")]
Step = Annotated[float | None, number("Of the grid that values are rounded to, a power of two.")]
Of = Annotated[str, typer.Option(help="rows, or units.")]
Group = Annotated[
    str | None, typer.Option(help="The column that names a group: one answer for each key.")
]
Keys = Annotated[str | None, typer.Option(help="The public keys of groups: a,'b, c','it''s'.")]
Months = Annotated[
    str | None, typer.Option(help="Groups are months of a column of dates: 2026-01,2026-12.")
]
Bins = Annotated[
    str | None, typer.Option(help="Groups are bins of a column of numbers: 0,18,40,65.")
]


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
    months: Months = None,
    bins: Bins = None,
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
    return _in_groups(
        tb.Sum, tb.GroupedSums, given, columns, group, keys=keys, months=months, bins=bins
    )


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
    months: Months = None,
    bins: Bins = None,
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
    return _in_groups(
        tb.Mean, tb.GroupedMeans, given, columns, group, keys=keys, months=months, bins=bins
    )


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
    months: Months = None,
    bins: Bins = None,
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
        tb.Quantiles,
        tb.tables.GroupedQuantiles,
        given,
        columns,
        group,
        keys=keys,
        months=months,
        bins=bins,
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
    keys: Keys = None,
    months: Months = None,
    bins: Bins = None,
    of: Of = "rows",
) -> Asked:
    """Counts the rows, or the units, of groups with public keys, and pays for the answer.

    The price does not depend on the number of groups.

    For example: tightbudget release groups trips.parquet --column zone --keys a,b,c
    --unit rider --rows-per-unit 20 --epsilon 0.1 --budget ada --ledger sqlite:///budget.db
    """
    by, domains = _public(columns, {"keys": keys, "months": months, "bins": bins}, column=column)
    return tb.GroupedCounts(by=by, epsilon=epsilon, delta=delta, of=_of(of)), domains


def distinct(
    columns: Columns,
    epsilon: Any,
    delta: Any,
    column: Annotated[str, typer.Option(help="The column whose keys are counted.")],
    keys: Keys = None,
    months: Months = None,
    bins: Bins = None,
) -> Asked:
    """Counts the public keys that occur in a column with noise, and pays for the answer.

    For example: tightbudget release distinct trips.parquet --column zone --keys a,b,c
    --unit rider --rows-per-unit 20 --epsilon 0.1 --budget ada --ledger sqlite:///budget.db
    """
    by, domains = _public(columns, {"keys": keys, "months": months, "bins": bins}, column=column)
    return tb.tables.CountDistinct(column=by, epsilon=epsilon, delta=delta), domains


def ratio(
    columns: Columns,
    epsilon: Any,
    delta: Any,
    numerator: Annotated[str, typer.Option(help="rows, units, or the column that is added up.")],
    denominator: Annotated[str, typer.Option(help="Another one: rows, units, or a column.")],
    low: Annotated[float | None, number("Of a column above: values below are moved here.")] = None,
    high: Annotated[float | None, number("Of a column above: values above are moved.")] = None,
    denominator_low: Annotated[float | None, number("As low, of a column below.")] = None,
    denominator_high: Annotated[float | None, number("As high, of a column below.")] = None,
    group: Group = None,
    keys: Keys = None,
    months: Months = None,
    bins: Bins = None,
) -> Asked:
    """Divides one sum or count by another with noise, and pays for both, half and half.

    For example: tightbudget release ratio trips.parquet --numerator fare --low 0 --high 100
    --denominator units --unit rider --rows-per-unit 20 --epsilon 0.1 --budget ada
    --ledger sqlite:///budget.db
    """
    by: str | None = None
    domains: Mapping[str, Any] = {}
    half = {
        "epsilon": exact_positive(epsilon=epsilon) / 2,
        "delta": exact_probability(delta=delta) / 2,
    }
    texts = {"keys": keys, "months": months, "bins": bins}
    if group is not None:
        by, domains = _public(columns, texts, group=group)
    else:
        _no_keys(texts)
    above = _sum_or_count(columns, half, by, "numerator", numerator, low, high)
    below = _sum_or_count(
        columns, half, by, "denominator", denominator, denominator_low, denominator_high
    )
    return tb.tables.Ratio(numerator=above, denominator=below), domains


def _sum_or_count(
    columns: Columns,
    price: Mapping[str, Any],
    by: str | None,
    option: str,
    text: str,
    low: float | None,
    high: float | None,
) -> Any:
    """Reads one of the two parts of a ratio.

    Raises:
        ParameterError: it is neither rows, units nor a column; or it is a word and a column; or
            bounds are given with a count, or lack with a column.
    """
    grouped: dict[str, Any] = {} if by is None else {"by": by}
    ends = "low and high" if option == "numerator" else "denominator-low and denominator-high"
    if text in ("rows", "units"):
        if text in columns:
            must = "be clear: the table has a column of this name, so rename it"
            raise refuse(option, must, text)
        if low is not None or high is not None:
            raise ParameterError(f"{ends} must be left out: {text} are counted")
        count = tb.Count if by is None else tb.GroupedCounts
        return count(of=_of(text), **grouped, **price)
    if text not in columns:
        raise refuse(option, f"be rows, units, or one of {', '.join(columns)}", text)
    if low is None or high is None:
        raise ParameterError(f"{ends} must be given: the public bounds of {text}")
    add = tb.Sum if by is None else tb.GroupedSums
    return add(column=text, bounds=(low, high), **grouped, **price)


def _in_groups(
    one: Any,
    grouped: Any,
    given: Mapping[str, Any],
    columns: Columns,
    group: str | None,
    **keys: str | None,
) -> Asked:
    """Asks a question of all rows, or of the rows of each public key.

    Raises:
        ParameterError: there are keys without a column, or a column without keys.
    """
    if group is not None:
        by, domains = _public(columns, keys, group=group)
        return grouped(by=by, **given), domains
    _no_keys(keys)
    return one(**given), {}


def _no_keys(keys: Mapping[str, str | None]) -> None:
    """Refuses keys without a column that names a group."""
    if any(text is not None for text in keys.values()):
        raise ParameterError("group must be given with keys: the column that names a group")


def _public(
    columns: Columns, keys: Mapping[str, str | None], **given: str
) -> tuple[str, Mapping[str, Any]]:
    """Reads public keys of a column, or the rule that derives them from it.

    Args:
        columns: from names to types.
        keys: the texts of the options ``keys``, ``months`` and ``bins``.
        given: the column, under the name of its option.

    Returns:
        the column that groups are named by, and its keys.

    Raises:
        ParameterError: the column is not there; not one of the three is given; or it is refused.
    """
    ((option, name),) = given.items()
    if name not in columns:
        raise refuse(option, f"be one of the columns {', '.join(columns)}", name)
    texts = [(way, text) for way, text in keys.items() if text is not None]
    if len(texts) != 1:
        raise ParameterError("give one of --keys, --months and --bins: groups have public keys")
    ((way, text),) = texts
    if way == "keys":
        return name, {name: keys_of(text, columns[name], name)}
    if way == "months":
        first, _, last = text.partition(",")
        return f"{name}_month", {f"{name}_month": tb.tables.Months(name, first, last or first)}
    return f"{name}_bin", {f"{name}_bin": tb.tables.ValueBins(name, _numbers(bins=text))}


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
