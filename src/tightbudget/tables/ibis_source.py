"""Tables of Ibis as a source: the six verbs as one query each, in DuckDB or any other engine."""

from __future__ import annotations

import glob
import importlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

from tightbudget.errors import ParameterError, SourceError
from tightbudget.numerics.validate import refuse
from tightbudget.release.interrupts import interrupts
from tightbudget.tables import rules
from tightbudget.tables.catalogs import check_engine
from tightbudget.tables.cells import ColumnCells, cell_of
from tightbudget.tables.columns import OWN, ROW, alike, check_names, why
from tightbudget.tables.derived_keys import DerivedKeys
from tightbudget.tables.one_statement import OneStatement
from tightbudget.tables.parquet_file import written_by_duckdb
from tightbudget.tables.rows_of_units import chosen, hashed, in_groups, text
from tightbudget.tables.rules.expressions import import_ibis, usual_date
from tightbudget.tables.rules.grid import double_points
from tightbudget.tables.source import HALF, Contribution, Key, OnGrid, Rule, Runs
from tightbudget.tables.sums_of_points import SumsOfPoints

# Keys that a query lists as they are; more of them are sent as a table.
_LISTED = 1000


@dataclass(frozen=True, eq=False)
class IbisSource:
    """A table of Ibis, and the connection that asks it.

    Args:
        table: the Ibis table, with filters and derived columns.
        connection: the backend of Ibis that runs queries.
        still: all parts of one statement see the same rows, however often they read them. That is
            so for rows in memory, and for files that have not changed from before the statement to
            its end. A view of a database, or a cluster without snapshots, does not promise it.
        files: a pattern of paths that the rows are read from; None for rows that are no files.
        ranges: the stamps of files whose ranges of columns DuckDB may rely on; None where the
            table keeps them from it.
        turn: the lock of the connection, which all tables that are derived from one share.
        told: from names to types as the catalog tells them, where the form has another type.
        odd: from the names of columns that are not let in to their types; the table lacks them.
        called: the expressions of the rules of one question; None where it is asked no question.
        statement: collects queries of several questions; None where each is asked by itself.
    """

    table: Any
    connection: Any
    still: bool = False
    files: str | None = None
    ranges: Sequence[Any] | None = None
    turn: threading.RLock = field(default_factory=threading.RLock, repr=False)
    told: Mapping[str, str] = field(default_factory=dict, repr=False)
    odd: Mapping[str, str] = field(default_factory=dict, repr=False)
    called: rules.Called | None = field(default=None, repr=False)
    statement: OneStatement | None = field(default=None, repr=False)

    @cached_property
    def columns(self) -> Mapping[str, str]:
        """The names of the columns, with the names of their types as the catalog tells them."""
        found = {name: str(kind).removeprefix("!") for name, kind in self.table.schema().items()}
        found.pop(ROW, None)
        return {**{name: self.told.get(name, kind) for name, kind in found.items()}, **self.odd}

    def check(self) -> None:
        """Asks the engine for no row.

        Raises:
            SourceError: the engine does not answer.
        """
        with interrupts() as seen:
            try:
                with self.turn:
                    check_engine(self.connection)
                    self.connection.to_pyarrow(self.table.limit(0))
            except ParameterError:
                raise
            except Exception as error:
                seen.check()  # guard: interrupt-of-a-check
                raise unanswered(error) from None

    def check_rules(
        self, conditions: Sequence[Rule | None] = (), columns: Sequence[OnGrid] = ()
    ) -> None:
        """Refuses rules that cannot be answered; it asks the rows nothing."""
        for rule in conditions:
            self._condition(rule)
        SumsOfPoints(columns).points(self._points)

    # ------------------------------------------------------------------ rows

    def filtered(self, rule: Rule) -> IbisSource:
        """Returns the rows for which a rule is true."""
        return replace(self, table=self.table.filter(self._condition(rule)))

    def with_half(self, contribution: Contribution) -> IbisSource:
        """Returns the rows with the half, 0 or 1, that a keyed hash puts each unit into."""
        ibis, unit = import_ibis(), self.table[contribution.unit]
        second = unit.notnull() & (hashed(contribution.salt, ["half", text(unit)]) >= "8")
        # PostgreSQL makes no bigint of a truth value
        half = ibis.cases((second, ibis.literal(1, "int64")), else_=0).cast("int64")
        return replace(self, table=self.table.mutate(**{HALF: half}), still=False)

    def mutated(self, given: Mapping[str, Rule]) -> IbisSource:
        """Returns the rows with derived columns."""
        derived = {
            name: self._resolved(rule, kind="any", name=name) for name, rule in given.items()
        }
        check_names([*dict.fromkeys([*self.columns, *given])])
        kept = {name: kind for name, kind in self.told.items() if name not in given}
        for name, value in derived.items():  # a column under another name is what it was
            op = value.op()
            if type(op).__name__ == "Field" and op.name in self.told:
                kept[name] = self.told[op.name]
        odd = {name: kind for name, kind in self.odd.items() if name not in given}
        return replace(self, table=self.table.mutate(**derived), told=kept, odd=odd)

    def with_keys(self, name: str, rule: DerivedKeys) -> IbisSource:
        """Returns the rows with a column of the keys that a rule derives; NULL for no key."""
        if rule.column not in self.columns:
            raise refuse("column", f"be one of the columns {', '.join(self.columns)}", rule.column)
        labelled = rule.for_type(self.columns[rule.column], f"domains[{name!r}]")
        ibis, other = import_ibis(), labelled.other

        def label(rows: Any) -> Any:
            x, (first, *ends) = rows[rule.column], labelled.edges
            # what is missing is not below an edge, and neither is what is beyond the last one
            places = [] if first is None else [(x < first, other)]
            for end, key in zip(ends, labelled.labels, strict=True):
                places.append((x.notnull() if end is None else x < end, key))
            return ibis.cases(*places, else_=other)

        return self.mutated({name: label})

    def joined(self, read: IbisSource, on: str) -> IbisSource:
        """Returns the rows with the columns of a public table, whose key is unique."""
        ibis = import_ibis()
        # it is public, and may be read here; so it is the same when the rows are scanned
        other = ibis.memtable(read.connection.to_pyarrow(read.table))
        for columns in (self.columns, read.columns):
            if on not in columns:
                raise refuse("on", f"be a column of both tables, one has {', '.join(columns)}", on)
        twice = set(read.columns) & set(self.columns) - {on}
        if twice:
            raise ParameterError(
                "the public table must have columns of its own, got "
                f"{', '.join(sorted(twice))} in both"
            )
        check_names([*self.columns, *(name for name in other.columns if name != on)])
        _check_alike(on, self.columns[on], read.columns[on])
        keys = other.filter(other[on].notnull())
        many, distinct = (
            self.connection.to_pyarrow(
                keys.aggregate(many=keys.count(), distinct=keys[on].nunique())
            )
            .to_pylist()[0]
            .values()
        )
        if many != distinct:
            raise refuse("on", "name a column whose values occur once in the public table", on)
        joined = self.table.left_join(keys, on)
        extra = [name for name in other.columns if name != on]
        told = {**self.told, **{name: read.told[name] for name in extra if name in read.told}}
        more = {name: kind for name, kind in read.odd.items() if name != on}
        return replace(
            self,
            table=joined.select(*self.table.columns, *extra),
            told=told,
            odd={**self.odd, **more},
        )

    # ------------------------------------------------------------------ verbs

    def counts(
        self, contribution: Contribution, conditions: Sequence[Rule | None], *, units: bool = False
    ) -> list[int]:
        """Counts the rows, or the units, for which each of the conditions is true; None for all."""
        rows, name = self, contribution.unit
        if not units and name is not None and all(rule is None for rule in conditions):
            return [self._number_chosen(contribution)] * len(conditions)
        if not units:
            rows = replace(self, table=self._of_units(self.table, contribution, conditions))
        count = {}
        for i, condition in enumerate(conditions):
            true = rows._condition(condition)
            if units and name is not None:
                unit = rows.table[name]
                count[f"n{i}"] = unit.nunique(where=true)
                count[f"m{i}"] = (true & unit.isnull()).sum()
            elif condition is None:
                count[f"n{i}"] = rows.table.count()
            else:
                count[f"n{i}"] = rows._number_true(condition)
        found = self._one(rows.table.aggregate(**count))
        return [found[f"n{i}"] + found.get(f"m{i}", 0) for i in range(len(conditions))]

    def sums(self, contribution: Contribution, columns: Sequence[OnGrid]) -> list[int]:
        """Adds up each of the columns, exactly."""
        rows = self._of_units(self.table, contribution, [c.column for c in columns])
        (found,) = replace(self, table=rows)._added_up(columns).values()
        return found

    def histogram(self, contribution: Contribution, column: OnGrid) -> Runs:
        """Counts the rows of each point that occurs, in ascending order of the points."""
        rows = replace(self, table=self._of_units(self.table, contribution, [column.column]))
        point, number = f"{OWN}point", f"{OWN}number"
        table = rows._with(**{point: rows._integers(column)})
        runs = self._columns(table.group_by(point).aggregate(**{number: table.count()}))
        return sorted(zip(runs[point], runs[number], strict=True))

    def groups(
        self,
        contribution: Contribution,
        by: Sequence[str],
        columns: Sequence[OnGrid],
        *,
        keys: Sequence[Key] | None,
    ) -> dict[Key, list[int]]:
        """Adds up columns in each group that occurs, or counts units where there are no columns."""
        table, late = self._of_groups(contribution, by, columns, keys)
        if columns:
            return replace(self, table=table)._added_up(columns, by, keys if late else None)
        units = table.count()
        if contribution.unit is not None:
            unit = table[contribution.unit]
            units = unit.nunique() + unit.isnull().sum().fill_null(0)
        grouped = table.group_by(list(by)).aggregate(**{f"{OWN}units": units})
        found = self._columns(_listed(grouped, by, keys) if late else grouped)
        numbers = found.pop(f"{OWN}units")
        return {key: [int(n)] for key, n in zip(_keys(found, by), numbers, strict=True)}

    def histograms(
        self,
        contribution: Contribution,
        by: Sequence[str],
        column: OnGrid,
        *,
        keys: Sequence[Key] | None,
    ) -> dict[Key, Runs]:
        """Counts the rows of each point in each group that occurs."""
        table, late = self._of_groups(contribution, by, [column], keys)
        rows, point, number = replace(self, table=table), f"{OWN}point", f"{OWN}number"
        table = rows._with(**{point: rows._integers(column)})
        grouped = table.group_by([*by, point]).aggregate(**{number: table.count()})
        runs = self._columns(_listed(grouped, by, keys) if late else grouped)
        found = dict[Key, Runs]()
        for key, *run in zip(_keys(runs, by), runs[point], runs[number], strict=True):
            found.setdefault(key, []).append((run[0], run[1]))
        return {key: sorted(each) for key, each in found.items()}

    def cell_counts(
        self,
        contribution: Contribution,
        cells: Mapping[str, ColumnCells],
        marginals: Sequence[Sequence[str]],
    ) -> list[Runs]:
        """Counts the rows in each cell of several marginals, in one statement."""
        ibis, table = import_ibis(), self.table
        for name, of in cells.items():
            table = of.on(table, cell_of(name))
        codes = [cell_of(name) for name in cells]
        unit, ids = contribution.unit, contribution.row_id
        table = table.select(*dict.fromkeys([n for n in (unit, ids) if n is not None] + codes))
        if unit is not None:
            # guard: cells-of-rows-of-a-unit
            table = chosen(table, contribution, codes, still=self.still)
        table = table.select(*codes)
        which, place, number = f"{OWN}marginal", f"{OWN}place", f"{OWN}number"
        parts = []
        for n, names in enumerate(marginals):
            grouped = table.group_by([cell_of(name) for name in names])
            sums = grouped.aggregate(**{number: table.count()})
            cell: Any = ibis.literal(0, "int64")
            for name in names:
                code = sums[cell_of(name)]
                sums = sums.filter(code >= 0)  # guard: rows-in-no-cell
                cell = cell * ibis.literal(cells[name].size, "int64") + code.cast("int64")
            parts.append(
                sums.select(**{which: ibis.literal(n, "int64"), place: cell, number: sums[number]})
            )
        columns = self._columns(ibis.union(*parts) if len(parts) > 1 else parts[0])
        found: list[Runs] = [[] for _ in marginals]
        for n, point, many in zip(columns[which], columns[place], columns[number], strict=True):
            found[n].append((int(point), int(many)))
        return [sorted(runs) for runs in found]

    def _of_groups(
        self,
        contribution: Contribution,
        by: Sequence[str],
        columns: Sequence[OnGrid],
        keys: Sequence[Key] | None,
    ) -> tuple[Any, bool]:
        """Returns the rows that count in some group, and whether keys are to be listed later.

        Without columns they are those of the groups in which a unit counts, however many.
        """
        table = self.table
        for name in by:
            key = table[name]
            # Python has no dates beyond the year 9999: reading one would be an error that is seen
            known = usual_date(key) if key.type().is_date() else key  # guard: dates-of-python
            table = table.filter(known.notnull())
        # Where nothing is chosen, the groups are listed in place of the rows, which are more.
        late = contribution.unit is None and keys is not None and len(keys) > _LISTED
        table = table if late else _listed(table, by, keys)
        if not columns or contribution.groups < contribution.rows:
            table = in_groups(table, contribution, by, still=self.still)
        if columns:
            table = self._of_units(table, contribution, [*by, *(c.column for c in columns)])
        return table, late

    def _added_up(
        self, columns: Sequence[OnGrid], by: Sequence[str] = (), keys: Sequence[Key] | None = None
    ) -> dict[Key, list[int]]:
        """Adds up columns of all rows of each group, exactly.

        DuckDB adds up doubles in less time than integers. It is asked for integers where doubles
        may have been rounded.

        Args:
            columns: what is added up.
            by: the columns that name a group; none to take all rows as one group.
            keys: the groups that are wanted; None for all.
        """
        sums = SumsOfPoints(columns)
        table = self.table.select(*by, **sums.points(self._points)) if sums.grids else self.table
        for integers in (False, True) if self.connection.name == "duckdb" else (True,):
            asked = sums.asked(table, integers=integers)
            grouped = (
                table.group_by(list(by)).aggregate(**asked) if by else table.aggregate(**asked)
            )
            found = self._columns(_listed(grouped, by, keys) if by else grouped)
            numbers = {name: found[name] for name in asked}
            if integers or sums.exact(numbers):
                break
        named = _keys(found, by) if by else [()]
        return dict(zip(named, sums.answers(numbers), strict=True))

    # ------------------------------------------------------------------ which rows count

    def _number_chosen(self, contribution: Contribution) -> int:
        """Counts the rows that count, whichever rows of a unit are chosen."""
        unit, most = contribution.unit, contribution.rows
        each = self.table.group_by(unit).aggregate(tightbudget_entries=self.table.count())
        # guard: rows-of-a-unit-counted
        bounded = (
            each[unit]
            .isnull()
            .ifelse(each.tightbudget_entries, import_ibis().least(each.tightbudget_entries, most))
        )
        return self._one(each.aggregate(n=bounded.sum()))["n"]

    def _of_units(
        self, table: Any, contribution: Contribution, given: Sequence[Rule | None]
    ) -> Any:
        """Returns the rows of each unit that count, with what the given rules look at."""
        if contribution.unit is None:
            return table
        return chosen(table, contribution, self._used(given), still=self.still)

    def _used(self, given: Sequence[Rule | None]) -> list[str]:
        """Names the columns that rules look at, in alphabetical order."""
        operations = import_ibis().expr.operations
        used = set[str]()
        for rule in given:
            if isinstance(rule, str):
                used.add(rule)
            elif rule is not None:
                value = self._resolved(rule, kind="any", name="column")
                # the table's own columns, and not those that a derived one is made of
                fields = value.op().find(operations.Field, filter=operations.Value)
                used |= {field.name for field in fields}
        return sorted(used)

    # ------------------------------------------------------------------ columns

    def _resolved(self, rule: Rule, *, kind: rules.Kind, name: str) -> Any:
        """Returns the expression of a rule; refuses one that looks at a column not let in."""
        if isinstance(rule, str) and rule in self.odd:
            raise self._not_let_in(name, rule)
        try:
            return rules.resolved(self.table, rule, kind=kind, name=name, called=self.called)
        except ParameterError as error:
            # Ibis has not found the column, and says so with its name in quotes
            missing = [odd for odd in self.odd if f"{odd!r}" in str(error.__cause__)]
            if not missing:
                raise
            raise self._not_let_in(name, missing[0]) from None

    def _not_let_in(self, argument: str, name: str) -> ParameterError:
        kind = self.odd[name]
        return ParameterError(
            f"{argument} must not look at columns of type {kind}, got {name!r}{why(kind)}"
        )

    def _with(self, **derived: Any) -> Any:
        return self.table.mutate(**derived)

    def _condition(self, rule: Rule | None) -> Any:
        """Returns a condition that is true or false; a missing one is false, and None is true."""
        if rule is None:
            return import_ibis().literal(True)
        return self._resolved(rule, kind="boolean", name="where").fill_null(False)

    def _number_true(self, condition: Rule) -> Any:
        """Returns the number of rows for which a condition is true, and neither false nor NULL."""
        true = self._resolved(condition, kind="any", name="where")
        if self.connection.name == "duckdb":
            return _count_if()(true)
        return true.sum()

    def _integers(self, column: OnGrid) -> Any:
        """Returns the expression of a column of integers."""
        if column.column is None:
            return import_ibis().literal(1, "int64")
        point = self._points(column.column, column).cast("int64")
        centred = point - import_ibis().literal(column.origin, "int64") if column.origin else point
        return centred * centred if column.power == 2 else centred

    def _points(self, rule: Rule, grid: OnGrid) -> Any:
        """Returns the expression of the points of a column or rule, as doubles."""
        value = self._resolved(rule, kind="number", name="column")
        return double_points(value, grid.low, grid.high, grid.step)

    # ------------------------------------------------------------------ answers

    def _one(self, query: Any) -> dict[str, int]:
        """Returns the one row of an answer; a sum over no rows is 0."""
        columns = self._columns(query)
        return {name: int(value or 0) for name, (value,) in columns.items()}

    def together(self, scans: Sequence[Callable[[], Any]]) -> list[Any]:
        """Returns what scans of this source's ``statement`` return, whose queries become one."""
        if self.statement is None:
            return [scan() for scan in scans]
        return self.statement.run(scans, self._columns)

    def _columns(self, query: Any) -> dict[str, list[Any]]:
        if self.statement is not None and self.statement.collects:
            return self.statement.answer(query)
        before = stamps(self.files)
        # one connection answers one query at a time
        with self.turn, _texts_as_they_are(self.connection):
            if self.ranges not in (None, before):  # guard: ranges-of-new-files
                self._check_ranges()
            columns: dict[str, list[Any]] = self.connection.to_pyarrow(query).to_pydict()
        if stamps(self.files) != before:  # guard: files-unchanged
            raise SourceError("files of the table have changed while they were read")
        return columns

    def _check_ranges(self) -> None:
        """Refuses files of another writer, whose ranges of columns DuckDB may not rely on."""
        if self.files is not None and not written_by_duckdb(self.connection, self.files):
            raise SourceError("files have come from another writer: open the table anew")


@contextmanager
def _texts_as_they_are(connection: Any) -> Iterator[None]:
    """Keeps Spark from replacing ``${name}`` in a query, also within its texts and names.

    A rule would then look for another text, say one of the driver's environment.
    """
    if connection.name != "pyspark":
        yield
        return
    setting, name = connection._session.conf, "spark.sql.variable.substitute"
    before = setting.get(name)
    setting.set(name, "false")  # guard: texts-as-they-are
    try:
        yield
    finally:
        setting.set(name, before)


def _check_alike(on: str, kind: str, other: str) -> None:
    """Refuses a join of columns of two types, unless both are integers or both texts.

    An engine compares values of two types by a change of type, which may make different keys
    equal: 2^53 and 2^53 + 1 are one double. A row would then have two partners, and count twice.

    Raises:
        ParameterError: the types are not alike, or not let in.
    """
    if not alike(kind, other):  # guard: join-of-one-type
        raise refuse("on", f"name columns of one type, got {kind} and {other}", on)


def _keys(found: Mapping[str, list[Any]], by: Sequence[str]) -> list[Key]:
    """Returns what groups are named by: one value, or a tuple where there are several columns."""
    return list(zip(*(found[name] for name in by), strict=True)) if len(by) > 1 else found[by[0]]


def _listed(table: Any, by: Sequence[str], keys: Sequence[Key] | None) -> Any:
    """Returns the rows of public keys; all rows if keys is None."""
    if keys is None:
        return table
    if len(by) == 1 and len(keys) <= _LISTED:
        # Ibis takes an integer for one of the smallest type that has it, and finds no type for
        # some that are beyond int64 and some that are not
        kind = table[by[0]].type()
        return table.filter(table[by[0]].isin([import_ibis().literal(key, kind) for key in keys]))
    columns = zip(*keys, strict=True) if len(by) > 1 else [keys]
    arrow = importlib.import_module("pyarrow")
    known = import_ibis().memtable(
        arrow.table(
            {
                name: arrow.array(column, table.schema()[name].to_pyarrow())
                for name, column in zip(by, columns, strict=True)
            }
        )
    )
    return table.semi_join(known, list(by))


@cache
def _count_if() -> Any:
    """Returns the function count_if of DuckDB, which Ibis has not.

    What Ibis writes takes longer: with 200 conditions on 10^6 rows ``count_if(c)`` takes 0.2 s of
    CPU, ``sum(c::INT)`` 0.7 s, and ``count(*) FILTER (WHERE c)`` 3 s (DuckDB 2.0).
    """
    ibis = import_ibis()

    @ibis.udf.agg.builtin(name="count_if", signature=(("boolean",), "int64"))  # type: ignore[untyped-decorator]
    def count_if(true: Any) -> Any: ...

    return count_if


def unanswered(error: Exception) -> SourceError:
    """Makes the refusal of an engine that does not answer, without its text."""
    return SourceError(f"the table's engine does not answer ({type(error).__name__})")


def stamps(files: str | None) -> list[tuple[str, int, int, int]]:
    """Returns the path of each file, its time of change in nanoseconds, its size and its number."""
    if files is None:
        return []
    stats = [(path, os.stat(path)) for path in sorted(glob.glob(files, recursive=True))]
    return [(path, stat.st_ctime_ns, stat.st_size, stat.st_ino) for path, stat in stats]
