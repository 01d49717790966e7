"""The reader of rules: an expression of Ibis is read operation by operation, and built anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.tables.rules.expressions import import_ibis
from tightbudget.tables.rules.magnitudes import MOST, Magnitudes
from tightbudget.tables.rules.values import Value

Operation = Callable[["Reader", Any], Value]

# An expression with more nodes is refused: engines limit the depth of a query (DuckDB: 1,000), and
# a query that is too deep would be refused by the engine, after the charge.
_DEEPEST, _LONGEST = 150, 20_000
# Engines on which Ibis's try_cast gives NULL for a text that is no number. For others it may write
# a plain cast, which fails (PostgreSQL).
_TRY_CAST = ("duckdb", "polars", "pyspark", "databricks", "snowflake", "bigquery")
# What Ibis or the engine computes otherwise on Polars alone (tried with Polars 2.1 and Ibis 12).
_NOT_ON_POLARS: Mapping[str, str] = {
    # Where all rows have the same divisor, Polars multiplies by its reciprocal: so a quotient's
    # last bit would depend on other rows. For a power of two both are exact.
    "Divide": "Polars divides by a constant otherwise: divide by a power of two",
    "FloorDivide": "Polars divides by a constant otherwise: divide by a power of two, and floor()",
    "StringLength": "it counts bytes on Polars, and code points elsewhere",
}
# Why an operation is refused. The first four are of operations that look at more than a row.
_ACROSS = "it looks across rows"
_OTHER = "it looks at another table"
_CHANGES = "it changes from one time to the next"
_UNKNOWN = "it is not among the operations that are known to look at one row alone"
_LAST_BIT = "engines differ in its last bit"
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("Ln", "Log", "Log2", "Log10", "Exp", "Sin", "Cos", "Tan", "Atan2", "Radians", "Degrees"),
        f"{_LAST_BIT}: make it a column of the table, where it is stored",
    ),
    "Round": "engines round halves differently: write (x + 0.5).floor()",
    "IsNan": "NaN is a missing number here: use isnull()",
    "IsInf": "compare with a large number instead",
    **dict.fromkeys(
        ("Lowercase", "Uppercase", "Capitalize"),
        "engines differ in the letters of Unicode: use isin with each spelling",
    ),
    **dict.fromkeys(
        ("Strip", "LStrip", "RStrip"), "engines differ in what is a blank: use isin or contains"
    ),
    **dict.fromkeys(
        ("RegexSearch", "RegexExtract", "RegexReplace", "StringSQLLike", "StringSQLILike"),
        "engines differ in patterns: use contains, startswith, endswith or isin",
    ),
}


@dataclass
class Reader:
    """Reads an expression of Ibis, and builds it anew.

    Args:
        table: the Ibis table of the rule.
        name: what the rule is called in a refusal.
        operations: those that are allowed, by the names of their classes in Ibis.
    """

    table: Any
    name: str
    operations: Mapping[str, Operation]
    known: dict[Any, Value] = field(default_factory=dict)

    def read(self, expression: Any) -> Value:
        """Reads a whole expression, and refuses one that is too long for engines."""
        try:
            value = self(expression.op())
            length, depth = _size(value.expression.op())
        except RecursionError:
            raise ParameterError(
                f"{self.name} must be shorter: it is too deep to be read"
            ) from None
        if depth > _DEEPEST or length > _LONGEST:
            raise ParameterError(
                f"{self.name} must be shorter, got an expression of {length} parts and depth "
                f"{depth}: the most are {_LONGEST} and {_DEEPEST}"
            )
        return value

    def __call__(self, op: Any) -> Value:
        """Reads one operation and its operands."""
        if op not in self.known:
            operations, kind = import_ibis().expr.operations, type(op)
            read = self.operations.get(kind.__name__)
            # a user's function may be called as an operation is
            # guard: allowed-operations
            if read is None or getattr(operations, kind.__name__, None) is not kind:
                raise self.refusal(op, _why(op))
            self.check_engine(op)
            value = read(self, op)
            if value.range is not None and not value.range.fits():  # guard: no-overflow
                raise self.out_of_range(op, value.range)
            self.known[op] = value
        return self.known[op]

    def check_own(self, op: Any) -> None:
        """Refuses a column of another table."""
        if op.rel != self.table.op():  # guard: own-columns
            raise self.refusal(op, _OTHER)

    def check_moment(self, value: Any) -> None:
        """Refuses a timestamp in the rule that a column of nanoseconds cannot be compared with."""
        if not 1700 <= value.year <= 2260:  # guard: moments-within-nanoseconds
            raise refuse(self.name, "have timestamps of the years 1700 to 2260", str(value))

    def check_text(self, value: str) -> None:
        """Refuses a text that Databricks could replace by another one, as Spark does."""
        if "${" in value and _backend(self.table) == "databricks":  # guard: no-variables
            raise refuse(self.name, "have no text with ${ on databricks, a variable there", value)

    def check_try_cast(self) -> None:
        """Refuses to read numbers from texts on an engine that may fail to."""
        backend = _backend(self.table)
        if backend not in _TRY_CAST:  # guard: texts-without-errors
            raise ParameterError(
                f"{self.name} must not read numbers from texts on {backend}, where a text that is "
                "no number is an error: make it a column of numbers there"
            )

    def check_engine(self, op: Any) -> None:
        """Refuses an operation that the table's engine computes otherwise than the others."""
        name = type(op).__name__
        if name in _NOT_ON_POLARS and _backend(self.table) == "polars":
            exact = name == "Divide" and _power_of_two(op.right)
            if not exact:  # guard: not-on-polars
                raise self.refusal(op, _NOT_ON_POLARS[name])

    def refusal(self, op: Any, why: str) -> ParameterError:
        """Makes the refusal of an operation: its name, and why it is refused."""
        across = why in (_ACROSS, _OTHER, _CHANGES, _UNKNOWN)
        must = "look at one row alone" if across else "be the same on every engine"
        return ParameterError(f"{self.name} must {must}, got {type(op).__name__} ({why})")

    def out_of_range(self, op: Any, span: Magnitudes) -> ParameterError:
        """Makes the refusal of an operation that may overflow or underflow."""
        what, hint = (
            ("too large", "clip the columns first, say t.x.clip(0, 1e6)")
            if span.high > MOST
            else ("too small", "put the columns on a grid first, say (t.x * 1024).floor() / 1024")
        )
        return ParameterError(
            f"{self.name} must stay within 2^-{MOST} and 2^{MOST}, got {type(op).__name__} of "
            f"numbers whose result may be {what}: {hint}"
        )

    def number(self, op: Any, of: Any) -> Value:
        """Reads an operand of arithmetic."""
        value = self(op)
        if value.kind not in ("integer", "wide integer", "double", "boolean", "null"):
            raise self.refusal(of, f"it is of a {value.kind}: give a number")
        return value

    def condition(self, op: Any, of: Any) -> Any:
        """Reads an operand that is a truth value."""
        value = self(op)
        if value.kind not in ("boolean", "null"):
            raise self.refusal(of, f"it is of a value of type {value.kind}: give a condition")
        return value.as_kind("boolean")

    def literal(self, op: Any, of: Any, kind: type) -> Any:
        """Returns the value of an operand that must be written down in the rule itself."""
        value = getattr(op, "value", None)
        if type(op).__name__ != "Literal" or type(value) is not kind:
            raise self.refusal(of, f"here it needs a {kind.__name__} that is written in the rule")
        return value

    def alike(self, values: list[Value], of: Any) -> tuple[list[Any], Value]:
        """Returns expressions of one kind, and a value without expression that has their kind."""
        kinds = {value.kind for value in values} - {"null"}
        if "moment" in kinds:
            kinds = (kinds - {"moment"}) or {"timestamp"}
        if "double" in kinds and kinds <= {"integer", "wide integer", "double"}:
            kinds = {"double"}
            values = [value if value.kind == "null" else value.double() for value in values]
        if kinds == {"integer", "wide integer"}:
            kinds = {"wide integer"}
        if len(kinds) > 1:
            raise self.refusal(of, f"it is of values of the types {', '.join(sorted(kinds))}")
        kind, span = kinds.pop() if kinds else "null", None
        if kind in ("double", "integer", "wide integer"):
            spans = [value.range for value in values if value.kind != "null"]
            known = [one for one in spans if one is not None]
            if len(known) == len(spans):
                span = known[0]
                for one in known[1:]:
                    span = span | one
        expressions = [value.as_kind(kind) for value in values]
        return expressions, Value(None, kind, span)


def _size(op: Any) -> tuple[int, int]:
    """Returns the number of parts of an expression as a query writes it out, and its depth."""
    operations = import_ibis().expr.operations
    known: dict[Any, tuple[int, int]] = {}

    def size(op: Any) -> tuple[int, int]:
        if op not in known:
            below = [size(part) for part in op.__children__ if isinstance(part, operations.Value)]
            known[op] = (
                1 + sum(length for length, _ in below),
                1 + max((depth for _, depth in below), default=0),
            )
        return known[op]

    return size(op)


def _why(op: Any) -> str:
    """Says why an operation is refused."""
    operations = import_ibis().expr.operations
    if isinstance(op, operations.ScalarUDF):
        return "it is a function of a user, of which nothing is known"
    if isinstance(op, (operations.Reduction, operations.Analytic, operations.WindowFunction)):
        return _ACROSS
    if isinstance(op, operations.Subquery):
        return _OTHER
    if isinstance(op, (operations.Impure, operations.TimestampNow, operations.DateNow)):
        return _CHANGES
    return _REFUSED.get(type(op).__name__, _UNKNOWN)


def _power_of_two(op: Any) -> bool:
    """Whether an operand is a power of two that is written in the rule."""
    value = getattr(op, "value", None)
    return isinstance(value, (int, float)) and abs(math.frexp(value)[0]) == 0.5


def _backend(table: Any) -> str:
    """Names the engine of a table; DuckDB for tables in memory."""
    return str(table.get_backend().name)
