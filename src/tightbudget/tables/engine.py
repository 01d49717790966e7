"""Tables of Ibis as a source: the four verbs as one query each, in DuckDB or any other engine."""

from __future__ import annotations

import glob
import importlib
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tightbudget.errors import ExtraError, ParameterError, SourceError
from tightbudget.numerics.validate import refuse
from tightbudget.release.interrupts import interrupts
from tightbudget.tables import columns as kinds
from tightbudget.tables import rules
from tightbudget.tables.csv_file import read_csv
from tightbudget.tables.source import HALF, Contribution, Key, OnGrid, Rule, Runs

# Engines that answer windows, md5 and exact integers alike. Tests ask DuckDB, PostgreSQL and Spark;
# for the other three they read the queries that Ibis writes.
_ENGINES = ("duckdb", "postgres", "pyspark", "databricks", "snowflake", "bigquery")
# One part of a sum. No table has 2^41 rows, so that the sum of a part stays within int64.
_PART = 22
# Keys that a query lists as they are; more of them are sent as a table.
_LISTED = 1000
# Columns of queries that are not the table's own have names that begin so.
_OWN = "tightbudget_"
# How texts come from files.
_ORIGINS: Mapping[str, kinds.Origin] = {".parquet": "files"}


def opened(data: Any, types: Mapping[str, str], *, line_breaks: bool = False) -> IbisSource:
    """Opens a path, a frame or an Ibis table.

    Args:
        data: the path, the frame or the table.
        types: of the columns of a CSV file.
        line_breaks: values of a CSV file may have line breaks; see :func:`read_csv`.

    Raises:
        ParameterError: it is none of them.
        ExtraError: Ibis is not installed.
        SourceError: the file or the engine does not answer.
    """
    ibis = _ibis()
    if isinstance(data, ibis.Table):
        operations = ibis.expr.operations
        # guard: rows-as-they-are
        if not isinstance(data.op(), (operations.DatabaseTable, operations.InMemoryTable)):
            raise ParameterError(
                "data must be a table of the engine as it is, got an expression of Ibis: use "
                "Table.filter, Table.mutate and Table.join, which look at one row alone"
            )
        connection = data.get_backend()
        if connection.name in _ENGINES:  # guard: known-engine
            _check_columns(data.columns)
            return _told(data, connection)
        if connection.name != "polars":
            raise ParameterError(
                f"data must be a table of {', '.join(_ENGINES)} or polars, got one of "
                f"{connection.name}: give its rows as a frame, say table.to_pyarrow()"
            )
    elif not isinstance(data, (str, os.PathLike)) and not hasattr(data, "columns"):
        must = "be a path, a frame, an Ibis table, or a mapping from names to arrays"
        raise refuse("data", must, type(data).__name__)
    _check_frame(data)
    files = str(data) if isinstance(data, (str, os.PathLike)) else None
    with interrupts() as seen:
        try:
            return _opened(data, types, files, line_breaks)
        except ParameterError:
            raise
        except Exception as error:  # its text may show values
            seen.check()
            file = f"the file {files!r} could not be read ({type(error).__name__})"
            raise SourceError(_unread(data, error) if files is None else file) from None


def _opened(
    data: Any, types: Mapping[str, str], files: str | None, line_breaks: bool
) -> IbisSource:
    """Opens files or a frame in a DuckDB of their own."""
    ibis, odd, catalog = _ibis(), dict[str, str](), dict[str, str]()
    connection, origin = _own_duckdb(), _ORIGINS.get(Path(files or "").suffix, "frame")
    if files is not None:
        table = _read(connection, Path(files), types, line_breaks)
        _check_columns(table.columns)
        if origin == "files":
            catalog = kinds.of_parquet(connection, files)
    else:
        given = kinds.read_columns(data.to_polars() if isinstance(data, ibis.Table) else data)
        _check_columns([name for name, *_ in given])
        # Ibis has no windows for Polars, whose rows are in this process anyway
        frame, odd = kinds.arrow_of(given)
        table = ibis.memtable(frame)
    # files that are not on this machine have no time of change here
    still = files is None or bool(_stamps(files))
    return _in_form(
        IbisSource(table, connection, still=still, files=files, odd=odd), origin, catalog
    )


def _told(data: Any, connection: Any) -> IbisSource:
    """Opens a table of an engine, whose catalog tells the types that Ibis names otherwise.

    Raises:
        ParameterError: the engine is set to compare texts otherwise.
        SourceError: the engine does not answer.
    """
    with interrupts() as seen:
        try:
            kinds.check_engine(connection)
            catalog = kinds.catalog(connection, data)
        except ParameterError:
            raise
        except Exception as error:
            seen.check()
            raise _unanswered(error) from None
    return _in_form(IbisSource(data, connection), "engine", catalog)


def _in_form(
    source: IbisSource, origin: kinds.Origin, catalog: Mapping[str, str] = MappingProxyType({})
) -> IbisSource:
    """Returns the rows with each column that is let in, in its form; the others are only named.

    Args:
        source: the rows.
        origin: how texts come from the engine.
        catalog: the types that Ibis names otherwise.
    """
    given, formed, odd, own = source.table, {}, dict(source.odd), dict[str, str]()
    for name, kind in {**source.columns, **catalog}.items():
        if name not in given.columns:
            continue
        if kinds.kind_of(kind) is None:  # guard: kinds-let-in
            odd[name] = kind
            continue
        padded = kind.startswith("char")
        formed[name] = kinds.formed(given[name], kind, "padded" if padded else origin)
        own[name] = kind
    if not formed:  # rows can be counted all the same
        formed[kinds.ROW] = _ibis().literal(1, "int64")
    return replace(source, table=given.select(**formed), told=own, odd=odd)


def _unanswered(error: Exception) -> SourceError:
    return SourceError(f"the table's engine does not answer ({type(error).__name__})")


def _check_frame(data: Any) -> None:
    """Refuses a pandas frame with columns whose types would be read off the records.

    Those are objects, categories and the like: one record could change such a type, and with it
    what is refused before anything is paid.
    """
    kinds: Any = getattr(data, "dtypes", None)
    if not hasattr(kinds, "items"):
        return
    # guard: typed-frame
    objects = [f"{name} ({kind})" for name, kind in kinds.items() if not _has_type(kind)]
    if objects:
        raise ParameterError(
            f"data must have a type in each column, got {', '.join(objects)}: drop "
            "them, or say frame.astype({...}) with string, Int64, boolean, float64 or a type of "
            "Arrow"
        )


def _has_type(kind: Any) -> bool:
    """Whether a type of pandas says what values are: one of NumPy, of Arrow, or of texts."""
    texts = type(kind).__name__ in ("ArrowDtype", "StringDtype")
    return texts or getattr(kind, "kind", "O") != "O"


def _unread(frame: Any, error: Exception) -> str:
    """Says which column of a frame could not be read, by its name and type."""
    for name in getattr(frame, "columns", ()):
        try:
            _ibis().memtable(frame[[name]].head(0)).schema()
        except Exception:
            kind = getattr(frame[name], "dtype", "unknown")
            return f"the frame's column {name!r} of type {kind} could not be read"
    return f"the frame could not be read ({type(error).__name__})"


def _own_duckdb() -> Any:
    """Opens DuckDB in memory; rows that do not fit go to a folder that only this user can read.

    By default they would go to a folder ``.tmp`` of the working directory, and stay there if the
    process is killed. The folder is removed when nobody holds the connection any more.
    """
    folder = tempfile.mkdtemp(prefix="tightbudget-")
    connection = _ibis().duckdb.connect(temp_directory=folder)
    weakref.finalize(connection, shutil.rmtree, folder, ignore_errors=True)
    return connection


def _read(connection: Any, path: Path, types: Mapping[str, str], line_breaks: bool) -> Any:
    """Opens Parquet or CSV files in DuckDB; their rows stay where they are."""
    if path.suffix == ".parquet":
        # a text that is no UTF-8 would be an error: one record would stop the scan
        return connection.read_parquet(str(path), utf8_validation="replace")  # guard: utf8-of-files
    if path.suffix != ".csv":
        raise refuse("data", "be a path that ends in .parquet or .csv", str(path))
    return read_csv(connection, path, types, line_breaks=line_breaks)


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
        turn: the lock of the connection, which all tables that are derived from one share.
        told: from names to types as the catalog tells them, where the form has another type.
        odd: from the names of columns that are not let in to their types; the table lacks them.
    """

    table: Any
    connection: Any
    still: bool = False
    files: str | None = None
    turn: threading.RLock = field(default_factory=threading.RLock, repr=False)
    told: Mapping[str, str] = field(default_factory=dict, repr=False)
    odd: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def columns(self) -> Mapping[str, str]:
        """The names of the columns, with the names of their types as the catalog tells them."""
        found = {name: str(kind).removeprefix("!") for name, kind in self.table.schema().items()}
        found.pop(kinds.ROW, None)
        return {**{name: self.told.get(name, kind) for name, kind in found.items()}, **self.odd}

    def check(self) -> None:
        """Asks the engine for no row.

        Raises:
            SourceError: the engine does not answer.
        """
        with interrupts() as seen:
            try:
                with self.turn:
                    kinds.check_engine(self.connection)
                    self.connection.to_pyarrow(self.table.limit(0))
            except ParameterError:
                raise
            except Exception as error:
                seen.check()  # guard: interrupt-of-a-check
                raise _unanswered(error) from None

    def check_rules(
        self, conditions: Sequence[Rule | None] = (), columns: Sequence[OnGrid] = ()
    ) -> None:
        """Refuses rules that cannot be answered; it asks the rows nothing."""
        for rule in conditions:
            self._condition(rule)
        self._on_grid(columns)

    # ------------------------------------------------------------------ rows

    def filtered(self, rule: Rule) -> IbisSource:
        """Returns the rows for which a rule is true."""
        return replace(self, table=self.table.filter(self._condition(rule)))

    def with_half(self, contribution: Contribution) -> IbisSource:
        """Returns the rows with the half, 0 or 1, that a keyed hash puts each unit into."""
        unit = self.table[contribution.unit]
        second = unit.notnull() & (_hashed(contribution.salt, ["half", _text(unit)]) >= "8")
        # PostgreSQL makes no bigint of a truth value
        half = _ibis().cases((second, _ibis().literal(1, "int64")), else_=0).cast("int64")
        return replace(self, table=self.table.mutate(**{HALF: half}), still=False)

    def mutated(self, given: Mapping[str, Rule]) -> IbisSource:
        """Returns the rows with derived columns."""
        derived = {
            name: self._resolved(rule, kind="any", name=name) for name, rule in given.items()
        }
        _check_columns([*dict.fromkeys([*self.columns, *given])])
        kept = {name: kind for name, kind in self.told.items() if name not in given}
        for name, value in derived.items():  # a column under another name is what it was
            op = value.op()
            if type(op).__name__ == "Field" and op.name in self.told:
                kept[name] = self.told[op.name]
        odd = {name: kind for name, kind in self.odd.items() if name not in given}
        return replace(self, table=self.table.mutate(**derived), told=kept, odd=odd)

    def joined(self, public: Any, on: str) -> IbisSource:
        """Returns the rows with the columns of a public table, whose key is unique."""
        ibis = _ibis()
        read = opened(public, {})
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
        _check_columns([*self.columns, *(name for name in other.columns if name != on)])
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
            rows = replace(self, table=self._chosen(self.table, contribution, conditions))
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
        rows = self._chosen(self.table, contribution, [c.column for c in columns])
        table, parts = replace(self, table=rows)._on_grid(columns)
        found = self._one(table.aggregate(**_sums(table, parts)))
        return _together(found, parts)

    def histogram(self, contribution: Contribution, column: OnGrid) -> Runs:
        """Counts the rows of each point that occurs, in ascending order of the points."""
        rows = replace(self, table=self._chosen(self.table, contribution, [column.column]))
        point, number = f"{_OWN}point", f"{_OWN}number"
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
        table = self.table
        for name in by:
            key = table[name]
            # Python has no dates beyond the year 9999: reading one would be an error that is seen
            known = rules.usual_date(key) if key.type().is_date() else key  # guard: dates-of-python
            table = table.filter(known.notnull())
        # Where nothing is chosen, the groups are listed in place of the rows, which are more.
        late = contribution.unit is None and keys is not None and len(keys) > _LISTED
        table = table if late else _listed(table, by, keys)
        if not columns or contribution.groups < contribution.rows:
            table = self._in_groups(table, contribution, by)
        if columns:
            table = self._chosen(table, contribution, [*by, *(c.column for c in columns)])
            table, parts = replace(self, table=table)._on_grid(columns)
            answer = _sums(table, parts)
        elif contribution.unit is None:
            parts, answer = [(1, 0)], {f"{_OWN}s0_0": table.count()}
        else:
            unit = table[contribution.unit]
            parts = [(1, 0)]
            answer = {f"{_OWN}s0_0": unit.nunique() + unit.isnull().sum().fill_null(0)}
        grouped = table.group_by(list(by)).aggregate(**answer)
        found = self._columns(_listed(grouped, by, keys) if late else grouped)
        named = (
            list(zip(*(found[name] for name in by), strict=True)) if len(by) > 1 else found[by[0]]
        )
        numbers = [found[name] for name in answer]
        return {
            key: _together(dict(zip(answer, row, strict=True)), parts)
            for key, row in zip(named, zip(*numbers, strict=True), strict=True)
        }

    # ------------------------------------------------------------------ which rows count

    def _in_groups(self, table: Any, contribution: Contribution, by: Sequence[str]) -> Any:
        """Returns the rows in the groups of each unit that come first in the order of the hash."""
        if contribution.unit is None:
            return table
        columns, few = table.columns, None
        if self.still:  # guard: groups-read-once
            pairs = table.select(*dict.fromkeys([contribution.unit, *by])).distinct()
            few, table = _split(table, pairs, contribution.unit, contribution.groups)
        ibis, unit = _ibis(), table[contribution.unit]
        order = _hashed(contribution.salt, [_text(unit), *(_text(table[name]) for name in by)])
        # the keys follow the hash, so that no two groups have one rank, whatever their hashes are
        first = [order, *(table[name] for name in by)]  # guard: keys-follow-the-hash
        rank = ibis.dense_rank().over(ibis.window(group_by=unit, order_by=first))
        ranked = table.mutate(tightbudget_rank=rank)
        alone = ranked[contribution.unit].isnull()
        # guard: groups-of-a-unit-bounded
        kept = ranked.filter(alone | (ranked.tightbudget_rank < contribution.groups)).select(
            columns
        )
        return kept if few is None else few.union(kept)

    def _number_chosen(self, contribution: Contribution) -> int:
        """Counts the rows that count, whichever rows of a unit are chosen."""
        unit, most = contribution.unit, contribution.rows
        each = self.table.group_by(unit).aggregate(tightbudget_entries=self.table.count())
        # guard: rows-of-a-unit-counted
        bounded = (
            each[unit]
            .isnull()
            .ifelse(each.tightbudget_entries, _ibis().least(each.tightbudget_entries, most))
        )
        return self._one(each.aggregate(n=bounded.sum()))["n"]

    def _chosen(self, table: Any, contribution: Contribution, given: Sequence[Rule | None]) -> Any:
        """Returns the rows of each unit that come first in the order of the hash.

        They have the unit's column, and those that the given rules look at.
        """
        if contribution.unit is None:
            return table
        ibis, unit, used = _ibis(), contribution.unit, self._used(given)
        ids = [] if contribution.row_id is None else [contribution.row_id]
        table = table.select(*dict.fromkeys([unit, *ids, *used]))
        columns, few = table.columns, None
        if self.still:  # guard: rows-read-once
            few, table = _split(table, table, unit, contribution.rows)
        # Rows of one text, and rows that a row_id does not tell apart, are put in order by what is
        # asked of them. Else the engine would choose among them, by what other rows there are.
        ties = [table[name] for name in used]  # guard: ties-by-content
        if contribution.row_id is not None:
            content = [_text(table[contribution.row_id])]
        else:
            content = [_text(table[name]) for name in used]
            # equal rows are told apart by a number
            first = [*content, *ties] or table[unit]
            number = ibis.window(group_by=[table[unit], *content], order_by=first)
            content = [*content, (ibis.row_number().over(number) + 1).cast("string")]
        told = table.mutate(
            tightbudget_order=_hashed(contribution.salt, [_text(table[unit]), *content])
        )
        # guard: rank-by-content
        first = [told.tightbudget_order, *(told[name] for name in used)]
        rank = ibis.row_number().over(ibis.window(group_by=told[unit], order_by=first))
        ranked = told.mutate(tightbudget_rank=rank)
        alone = ranked[unit].isnull()
        # guard: rows-of-a-unit-bounded
        kept = ranked.filter(alone | (ranked.tightbudget_rank < contribution.rows)).select(columns)
        return kept if few is None else few.union(kept)

    def _used(self, given: Sequence[Rule | None]) -> list[str]:
        """Names the columns that rules look at, in alphabetical order."""
        operations = _ibis().expr.operations
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
            return rules.resolved(self.table, rule, kind=kind, name=name)
        except ParameterError as error:
            # Ibis has not found the column, and says so with its name in quotes
            missing = [odd for odd in self.odd if f"{odd!r}" in str(error.__cause__)]
            if not missing:
                raise
            raise self._not_let_in(name, missing[0]) from None

    def _not_let_in(self, argument: str, name: str) -> ParameterError:
        kind = self.odd[name]
        return ParameterError(
            f"{argument} must not look at columns of type {kind}, got {name!r}{kinds.why(kind)}"
        )

    def _with(self, **derived: Any) -> Any:
        return self.table.mutate(**derived)

    def _condition(self, rule: Rule | None) -> Any:
        """Returns a condition that is true or false; a missing one is false, and None is true."""
        if rule is None:
            return _ibis().literal(True)
        return self._resolved(rule, kind="boolean", name="where").fill_null(False)

    def _number_true(self, condition: Rule) -> Any:
        """Returns the number of rows for which a condition is true, and neither false nor NULL."""
        true = self._resolved(condition, kind="any", name="where")
        if self.connection.name == "duckdb":
            return _count_if()(true)
        return true.sum()

    def _integers(self, column: OnGrid) -> Any:
        """Returns the expression of a column of integers."""
        ibis = _ibis()
        if column.column is None:
            return ibis.literal(1, "int64")
        value = self._resolved(column.column, kind="number", name="column")
        points = rules.points(value, column.low, column.high, column.step)
        centred = points - ibis.literal(column.origin, "int64") if column.origin else points
        return centred * centred if column.power == 2 else centred

    def _on_grid(self, columns: Sequence[OnGrid]) -> tuple[Any, list[tuple[int, int]]]:
        """Returns the table with columns of integers in parts, and the number and offset of parts.

        A column whose entries may be large is cut into parts of 22 bits: each part is divided off
        in doubles, which are exact for integers below 2^53, and its sum stays within int64.
        """
        derived, parts = {}, []
        for i, column in enumerate(columns):
            value, low = self._integers(column), 0
            bits = column.most.bit_length()
            if bits <= _PART:
                derived[f"{_OWN}x{i}_0"] = value
                parts.append((1, 0))
                continue
            if column.power == 1:
                low = min(0, column.low - column.origin)
            whole = (value - _ibis().literal(low, "int64")).cast("float64")
            span = column.most - low
            if span > 2**53:
                raise ParameterError(
                    f"step = {column.step} is too fine: a row may add {span} points"
                )
            number = -(-span.bit_length() // _PART)
            for j in range(number):
                above = (whole / float(2 ** (_PART * (j + 1)))).floor() * float(2**_PART)
                part = (whole / float(2 ** (_PART * j))).floor() - above
                derived[f"{_OWN}x{i}_{j}"] = part.cast("int64")
            parts.append((number, low))
        return self._with(**derived), parts

    # ------------------------------------------------------------------ answers

    def _one(self, query: Any) -> dict[str, int]:
        """Returns the one row of an answer; a sum over no rows is 0."""
        columns = self._columns(query)
        return {name: int(value or 0) for name, (value,) in columns.items()}

    def _columns(self, query: Any) -> dict[str, list[Any]]:
        before = _stamps(self.files)
        # one connection answers one query at a time
        with self.turn, _texts_as_they_are(self.connection):
            columns: dict[str, list[Any]] = self.connection.to_pyarrow(query).to_pydict()
        if _stamps(self.files) != before:  # guard: files-unchanged
            raise SourceError("files of the table have changed while they were read")
        return columns


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


def _check_columns(names: Sequence[str]) -> None:
    """Refuses names of columns that an engine could take for one another, or for the query's own.

    DuckDB, Spark and BigQuery do not tell names apart by capital letters. A query of the unit "id"
    would then read a column "ID" in its place, and a unit would have no bound.

    Raises:
        ParameterError: two names are equal but for capital letters, or a name begins as the
            columns of queries do.
    """
    seen = dict[str, str]()
    for name in names:
        key = name.casefold()
        if key in seen:  # guard: names-told-apart
            must = f"have columns with names that differ in more than capital letters: {seen[key]}"
            raise refuse("data", must, name)
        if key.startswith(_OWN):  # guard: names-of-queries
            raise refuse("data", f"have no column whose name begins with {_OWN}", name)
        seen[key] = name


def _check_alike(on: str, kind: str, other: str) -> None:
    """Refuses a join of columns of two types, unless both are integers or both texts.

    An engine compares values of two types by a change of type, which may make different keys
    equal: 2^53 and 2^53 + 1 are one double. A row would then have two partners, and count twice.

    Raises:
        ParameterError: the types are not alike, or not let in.
    """
    if not kinds.alike(kind, other):  # guard: join-of-one-type
        raise refuse("on", f"name columns of one type, got {kind} and {other}", on)


def _stamps(files: str | None) -> list[tuple[str, int, int, int]]:
    """Returns the path of each file, its time of change in nanoseconds, its size and its number."""
    if files is None:
        return []
    stats = [(path, os.stat(path)) for path in sorted(glob.glob(files, recursive=True))]
    return [(path, stat.st_ctime_ns, stat.st_size, stat.st_ino) for path, stat in stats]


def _split(table: Any, counted: Any, unit: str, most: int) -> tuple[Any, Any]:
    """Splits rows into those of units that have at most ``most`` entries, and all others.

    Nothing is chosen among the first, nor among rows whose unit is missing, since each of these is
    a unit of its own. Only the others are sorted by a hash, which is what takes time: with 10^7
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
    return table.anti_join(beyond, unit), table.semi_join(beyond, unit)


def _sums(table: Any, parts: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Returns the sum of each part of each column, and the number of rows for its offset."""
    sums = {
        f"{_OWN}s{i}_{j}": table[f"{_OWN}x{i}_{j}"].sum()
        for i, (n, _) in enumerate(parts)
        for j in range(n)
    }
    return {**sums, f"{_OWN}rows": table.count()}


def _together(row: Mapping[str, Any], parts: Sequence[tuple[int, int]]) -> list[int]:
    """Puts the parts of each sum together, exactly."""
    return [
        sum(int(row[f"{_OWN}s{i}_{j}"] or 0) << (_PART * j) for j in range(n))
        + low * (int(row[f"{_OWN}rows"]) if low else 0)
        for i, (n, low) in enumerate(parts)
    ]


def _listed(table: Any, by: Sequence[str], keys: Sequence[Key] | None) -> Any:
    """Returns the rows of public keys; all rows if keys is None."""
    if keys is None:
        return table
    if len(by) == 1 and len(keys) <= _LISTED:
        # Ibis takes an integer for one of the smallest type that has it, and finds no type for
        # some that are beyond int64 and some that are not
        kind = table[by[0]].type()
        return table.filter(table[by[0]].isin([_ibis().literal(key, kind) for key in keys]))
    columns = zip(*keys, strict=True) if len(by) > 1 else [keys]
    arrow = importlib.import_module("pyarrow")
    known = _ibis().memtable(
        arrow.table(
            {
                name: arrow.array(column, table.schema()[name].to_pyarrow())
                for name, column in zip(by, columns, strict=True)
            }
        )
    )
    return table.semi_join(known, list(by))


def _hashed(salt: str, texts: Sequence[Any]) -> Any:
    """Returns the keyed hash of texts: 32 hexadecimal digits, the same in each engine."""
    told = _ibis().literal(salt)
    for text in texts:
        told = told.concat("|", text)
    return _md5()(told)


def _text(value: Any) -> Any:
    """Writes a value as a text that is the same in each engine, before it is hashed.

    No text has the separator "|" in it, and "%" alone stands for a missing value: so two lists of
    values have one text only if they are equal. Numbers are told apart on a grid of 2^-10.
    """
    kind = value.type()
    if kind.is_boolean():
        value = _ibis().cases((value, "1"), (~value, "0"))
    elif kind.is_floating() or kind.is_decimal():
        known = rules.points(value, -(2**40), 2**40, 2.0**-10).cast("string")
        missing = value.isnull() | value.cast("float64").isnan()
        value = missing.ifelse("%", known)
    elif kind.is_string():
        value = value.replace("%", "%0").replace("|", "%1")  # guard: separator-escaped
    else:
        value = value.cast("string")
    return value.fill_null("%")


@cache
def _count_if() -> Any:
    """Returns the function count_if of DuckDB, which Ibis has not.

    What Ibis writes takes longer: with 200 conditions on 10^6 rows ``count_if(c)`` takes 0.2 s of
    CPU, ``sum(c::INT)`` 0.7 s, and ``count(*) FILTER (WHERE c)`` 3 s (DuckDB 2.0).
    """
    ibis = _ibis()

    @ibis.udf.agg.builtin(name="count_if", signature=(("boolean",), "int64"))  # type: ignore[untyped-decorator]
    def count_if(true: Any) -> Any: ...

    return count_if


def _md5() -> Any:
    """Returns the function md5 of the engines, as Ibis calls it."""
    ibis = _ibis()

    @ibis.udf.scalar.builtin(name="md5", signature=(("string",), "string"))  # type: ignore[untyped-decorator]
    def md5(text: Any) -> Any: ...

    return md5


def _ibis() -> Any:
    """Imports Ibis.

    Raises:
        ExtraError: it is not installed.
    """
    try:
        return importlib.import_module("ibis")
    except ImportError as error:
        raise ExtraError("tables need Ibis: pip install 'tightbudget[data]'") from error
