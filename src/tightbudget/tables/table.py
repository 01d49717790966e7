"""Tables: where the rows are, what is protected in them, and which facts about them are public."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import plain_numbers, positive_count, refuse
from tightbudget.tables import columns
from tightbudget.tables.arrays import Arrays
from tightbudget.tables.derived_keys import DerivedKeys
from tightbudget.tables.ibis_source import IbisSource
from tightbudget.tables.one_statement import OneStatement
from tightbudget.tables.opening import opened
from tightbudget.tables.source import Contribution, Key, Rule, Source


@plain_numbers
@dataclass(frozen=True, repr=False)
class Table:
    """Rows in a file, a frame or a database, with the unit of privacy that they are counted by.

    Two tables are neighbours if one has all rows of the other, and all rows of one unit more.
    Mechanisms derive their sensitivity from what is declared here. Rows of a unit beyond
    ``rows_per_unit`` do not count: which ones is chosen at random, anew in each release.

    Each release scans the rows once. A table that changes between two releases is seen as it is
    at each of them.

    Args:
        data: a path of Parquet or CSV files, an Ibis table of any of its engines, a frame of
            pandas, Polars or Arrow, or a mapping from names to NumPy arrays. The first line of a
            CSV file is its header, which is public. Each other line is a row by itself; one that
            is no row is left out.
        unit: the column that names the unit of privacy, say a person; None where each row is a
            unit. A row whose unit is missing is a unit of its own.
        rows_per_unit: >= 1, how many rows of a unit count; it must be given with a unit.
        groups_per_unit: >= 1, in how many groups a unit counts; None for ``rows_per_unit``.
        units: the number of units, where it is public, or a public number that they do not exceed.
        domains: from the name of a column to its keys, where these are public; or from a new name
            to a rule that derives keys from another column: :class:`Months`, :class:`Quarters`,
            :class:`Years` or :class:`ValueBins`.
        row_id: a column that is different in all rows of a unit; it makes the choice of rows
            cheaper.
        types: of the columns of a CSV file, from names to types of Ibis, say ``"float64"``: a text
            that is no such value is a missing one. Columns that are not named are texts.
        line_breaks: values of a CSV file may have line breaks, where they are in quotes. You then
            trust every record to have its quotes closed and doubled: one that has not takes the
            lines behind it with it.

    Raises:
        ParameterError: a parameter is refused, or a column is not there. No value is shown.
        ExtraError: Ibis is not installed, and the data are not arrays.
        SourceError: the source does not tell its columns.
    """

    data: Any
    unit: str | None = None
    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    units: int | None = None
    domains: Mapping[str, Sequence[Key] | DerivedKeys] = field(default_factory=dict)
    row_id: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    line_breaks: bool = False
    source: Source = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", _source(self.data, self.types, self.line_breaks))
        self._check_names(unit=self.unit)
        self._check_names(row_id=self.row_id)
        if self.unit is None:
            if (
                self.rows_per_unit is not None
                and positive_count(rows_per_unit=self.rows_per_unit) != 1
            ):
                must = "be 1 where each row is a unit: give unit= the column that names it"
                raise refuse("rows_per_unit", must, self.rows_per_unit)
        elif self.rows_per_unit is None:
            must = "be given with a unit: it is how many rows of a unit count"
            raise refuse("rows_per_unit", must, self.rows_per_unit)
        else:
            positive_count(rows_per_unit=self.rows_per_unit)
        for name in ("groups_per_unit", "units"):
            if getattr(self, name) is not None:
                positive_count(**{name: getattr(self, name)})
        domains = dict[str, tuple[Key, ...]]()
        for by, given in dict(self.domains).items():
            keys: Any = given
            if isinstance(given, DerivedKeys):
                if by in self.columns:  # guard: derived-keys-in-a-new-column
                    must = "name a new column, in which derived keys are put"
                    raise refuse(f"domains[{by!r}]", must, f"a rule for the column {by}")
                object.__setattr__(self, "source", self.source.with_keys(by, given))
                keys = given.keys
            check_column(self.source, f"domains[{by!r}]", by)
            domains[by] = columns.public_keys(self.columns, by, keys)
        object.__setattr__(self, "domains", MappingProxyType(domains))

    def __repr__(self) -> str:
        unit = "each row is a unit" if self.unit is None else f"unit={self.unit!r}"
        return f"<Table: {unit}, {self.rows} row{'s' * (self.rows != 1)} of a unit count>"

    @property
    def columns(self) -> Mapping[str, str]:
        """The names of the columns, with the names of their types."""
        return self.source.columns

    @property
    def rows(self) -> int:
        """The number of rows of a unit that count."""
        return 1 if self.rows_per_unit is None else self.rows_per_unit

    @property
    def groups(self) -> int:
        """The number of groups in which a unit counts."""
        return self.rows if self.groups_per_unit is None else min(self.groups_per_unit, self.rows)

    def contribution(self) -> Contribution:
        """Returns the bounds on a unit, with a fresh key for the choice of its rows."""
        return Contribution(unit=self.unit, rows=self.rows, groups=self.groups, row_id=self.row_id)

    # ------------------------------------------------------------------ new from old

    def filter(self, rule: Rule) -> Table:
        """Returns the table of the rows for which a rule is true.

        Args:
            rule: a column of truth values, or a function of the rows: ``lambda t: t.fare > 10``.
                It looks at one row alone.

        Raises:
            ParameterError: the rule looks across rows, or is no truth value.
        """
        source = self.source if isinstance(self.source, Arrays) else self._engine("filter")
        return self._over(source.filtered(rule))

    def mutate(self, **rules: Rule) -> Table:
        """Returns the table with columns that are derived from each row by itself.

        Raises:
            ParameterError: a rule looks across rows, or replaces the unit's column.
        """
        for name in rules:
            if name in (self.unit, self.row_id):
                raise ParameterError(f"{name} must stay as it is, for it names a unit or its rows")
        return self._over(self._engine("mutate").mutated(rules))

    def join(self, public: Any, *, on: str) -> Table:
        """Returns the table with the columns of a public table, where its key is the row's.

        Each row keeps being one row: rows without a partner have missing values there.

        Args:
            public: a public table: a frame, a path, or an Ibis table; it is read into memory.
            on: the column that both have; each of its values occurs once in the public table.

        Raises:
            ParameterError: the column is not in both, or a key occurs twice in the public table.
        """
        return self._over(self._engine("join").joined(opened(public, {}), on))

    def for_one_question(self) -> Table:
        """Returns the table for one question, of which each rule is called once.

        The expression that a function of the rows has given stands in the key of the run, in the
        plan and in the scan alike.
        """
        source = self.source
        if not isinstance(source, IbisSource) or source.called is not None:
            return self
        return self._over(replace(source, called={}))

    def for_one_statement(self) -> Table:
        """Returns the table for several questions, whose queries may become one statement."""
        if not isinstance(self.source, IbisSource):
            return self
        return self._over(replace(self.source, statement=OneStatement()))

    def _engine(self, verb: str) -> IbisSource:
        if not isinstance(self.source, IbisSource):
            raise ParameterError(
                f"{verb} needs an engine: give a frame or a path instead of arrays"
            )
        return self.source

    def _over(self, source: Source) -> Table:
        """Returns a table with the same declarations over other rows."""
        table = copy.copy(self)  # a new Table would open the data again
        object.__setattr__(table, "source", source)
        return table

    def domain(self, by: str) -> tuple[Key, ...]:
        """Returns the public keys of a column.

        Raises:
            ParameterError: none were declared.
        """
        if by not in self.domains:
            raise ParameterError(
                f"keys of {by!r} must be public: give Table(domains={{{by!r}: [...]}}), or ask for "
                "keys that are secrets"
            )
        keys = self.domains[by]
        return keys.keys if isinstance(keys, DerivedKeys) else tuple(keys)

    def _check_names(self, **given: str | None) -> None:
        """Refuses a column that is not there, or whose type does not name things."""
        ((argument, name),) = given.items()
        if name is None:
            return
        check_column(self.source, argument, name)
        columns.check_role(self.columns, argument, name, "unit")


def check_column(source: Source, argument: str, name: Any) -> None:
    """Refuses the name of a column that is not there.

    Raises:
        ParameterError: the message lists the columns that there are.
    """
    if not isinstance(name, str) or name not in source.columns:
        raise refuse(argument, f"be one of the columns {', '.join(source.columns)}", name)


def _source(data: Any, types: Mapping[str, str], line_breaks: bool) -> Source:
    """Returns the source that reads the data: arrays by NumPy, all else by Ibis."""
    if isinstance(data, Table):
        return data.source
    if isinstance(data, Mapping):
        return Arrays.of(data)
    return opened(data, types, line_breaks=line_breaks)
