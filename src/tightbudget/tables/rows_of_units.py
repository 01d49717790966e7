"""Which rows count in queries: of each unit the first ones in the order of a keyed hash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tightbudget.tables.rules.expressions import import_ibis
from tightbudget.tables.rules.grid import points
from tightbudget.tables.source import Contribution


def in_groups(table: Any, contribution: Contribution, by: Sequence[str], *, still: bool) -> Any:
    """Returns the rows in the groups of each unit that come first in the order of the hash."""
    if contribution.unit is None:
        return table
    columns, few = table.columns, None
    if still:  # guard: groups-read-once
        pairs = table.select(*dict.fromkeys([contribution.unit, *by])).distinct()
        few, table = _split(table, pairs, contribution.unit, contribution.groups)
    ibis, unit = import_ibis(), table[contribution.unit]
    order = hashed(contribution.salt, [text(unit), *(text(table[name]) for name in by)])
    # the keys follow the hash, so that no two groups have one rank, whatever their hashes are
    first = [order, *(table[name] for name in by)]  # guard: keys-follow-the-hash
    rank = ibis.dense_rank().over(ibis.window(group_by=unit, order_by=first))
    ranked = table.mutate(tightbudget_rank=rank)
    alone = ranked[contribution.unit].isnull()
    # guard: groups-of-a-unit-bounded
    kept = ranked.filter(alone | (ranked.tightbudget_rank < contribution.groups)).select(columns)
    return kept if few is None else few.union(kept)


def chosen(table: Any, contribution: Contribution, used: Sequence[str], *, still: bool) -> Any:
    """Returns the rows of each unit that come first in the order of the hash.

    They have the unit's column, and those that are used.
    """
    if contribution.unit is None:
        return table
    ibis, unit = import_ibis(), contribution.unit
    ids = [] if contribution.row_id is None else [contribution.row_id]
    table = table.select(*dict.fromkeys([unit, *ids, *used]))
    columns, few = table.columns, None
    if still:  # guard: rows-read-once
        few, table = _split(table, table, unit, contribution.rows)
    # Rows of one text, and rows that a row_id does not tell apart, are put in order by what is
    # asked of them. Else the engine would choose among them, by what other rows there are.
    ties = [table[name] for name in used]  # guard: ties-by-content
    if contribution.row_id is not None:
        content = [text(table[contribution.row_id])]
    else:
        content = [text(table[name]) for name in used]
        # Equal rows are told apart by a number. Their texts are equal where their points are, which
        # take less time to put together.
        alike = [table[unit], *(_alike(table[name]) for name in used)]
        number = ibis.window(group_by=alike, order_by=ties or table[unit])
        content = [*content, (ibis.row_number().over(number) + 1).cast("string")]
    told = table.mutate(tightbudget_order=hashed(contribution.salt, [text(table[unit]), *content]))
    # guard: rank-by-content
    first = [told.tightbudget_order, *(told[name] for name in used)]
    rank = ibis.row_number().over(ibis.window(group_by=told[unit], order_by=first))
    ranked = told.mutate(tightbudget_rank=rank)
    alone = ranked[unit].isnull()
    # guard: rows-of-a-unit-bounded
    kept = ranked.filter(alone | (ranked.tightbudget_rank < contribution.rows)).select(columns)
    return kept if few is None else few.union(kept)


def _split(table: Any, counted: Any, unit: str, most: int) -> tuple[Any, Any]:
    """Splits rows into those of units that have at most ``most`` entries, and all others.

    Nothing is chosen among the first, nor among rows whose unit is missing, since each of these is
    a unit of its own. Only the others are sorted by a hash, which takes time: with 10^7
    rows, of which few are beyond the bound, a sum takes 1 s in place of 5 s. The rows are read
    twice: if they changed in between, a unit could count with more rows than the bound.

    Args:
        table: the rows.
        counted: the entries of each unit: rows, or pairs of a unit and a group.
        unit: the column that names the unit.
        most: how many entries of a unit count.
    """
    known = counted.filter(counted[unit].notnull())
    numbers = known.group_by(unit).aggregate(tightbudget_entries=known.count())
    beyond = numbers.filter(numbers.tightbudget_entries > most).select(unit)
    # a view of what is used twice makes Ibis name it, so that DuckDB counts entries once
    return table.anti_join(beyond, unit), table.semi_join(beyond.view(), unit)


def hashed(salt: str, texts: Sequence[Any]) -> Any:
    """Returns the keyed hash of texts: 32 hexadecimal digits, the same in each engine."""
    told = import_ibis().literal(salt)
    for one in texts:
        told = told.concat("|", one)
    return _md5()(told)


def text(value: Any) -> Any:
    """Writes a value as a text that is the same in each engine, before it is hashed.

    No text has the separator "|" in it, and "%" alone stands for a missing value: so two lists of
    values have one text only if they are equal. Numbers are told apart on a grid of 2^-10.
    """
    kind = value.type()
    if kind.is_boolean():
        value = import_ibis().cases((value, "1"), (~value, "0"))
    elif kind.is_floating() or kind.is_decimal():
        value = _alike(value).cast("string")
    elif kind.is_string():
        value = value.replace("%", "%0").replace("|", "%1")  # guard: separator-escaped
    else:
        value = value.cast("string")
    return value.fill_null("%")


def _alike(value: Any) -> Any:
    """Returns what two values have in common if and only if their texts are equal."""
    kind = value.type()
    if kind.is_integer():
        return value
    if not (kind.is_floating() or kind.is_decimal()):
        return text(value)
    missing = value.isnull() | value.cast("float64").isnan()
    known = points(value, -(2**40), 2**40, 2.0**-10)
    return missing.ifelse(import_ibis().null("int64"), known)


def _md5() -> Any:
    """Returns the function md5 of the engines, as Ibis calls it."""
    ibis = import_ibis()

    @ibis.udf.scalar.builtin(name="md5", signature=(("string",), "string"))  # type: ignore[untyped-decorator]
    def md5(text: Any) -> Any: ...

    return md5
