"""Rules on rows: expressions of Ibis that look at one row alone, and cannot fail for any record.

A rule is what a user gives to ``Table.filter``, ``Table.mutate`` or ``where=``. Three things must
hold of it, and each is decided while a release is planned, before the budget is touched:

1. It looks at one row of one table alone. Otherwise one unit would change what other rows count.
2. It fails for no record. An error, or a scan that ends early, would tell that a record is there.
3. It has the same value on every engine. Otherwise a table that moves would change its answers.

Ibis promises none of them. So an expression is read operation by operation, and is built anew from
the operations in ``_ALLOWED``. An operation that is not in this table is refused, also one that a
later Ibis adds. The tests try every allowed operation on DuckDB, PostgreSQL and Polars, with
missing, infinite, huge, tiny and odd values.

**Numbers.** Integers and doubles are kept apart. Comparisons of integers are exact, also of those
beyond int64 (uint64, and decimals of up to 37 digits without a fraction). Arithmetic is in doubles,
with the operations that IEEE 754 defines to the last bit: ``+ - * /``, square roots and floors. NaN
is a missing number (NULL), since engines order NaN differently. Before arithmetic, a column is
moved into [-2^200, 2^200], and numbers below 2^-200 become 0. From there on magnitudes are followed
through the expression. An expression whose value could overflow or underflow is refused, since
PostgreSQL ends a query there. A division by 0 and the square root of a negative number are missing.
Zeros of both signs are equal, and no operation tells them apart.

**Missing values.** They are those of SQL: a comparison with NULL is NULL. A condition that is NULL
counts as False.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.release.columns import column as read_column

Kind = Literal["boolean", "number", "any"]

# Columns are moved into this range before arithmetic. A product of five columns then stays within
# the range of normal doubles, [2^-1022, 2^1023], and no quantity of this world is outside.
_LARGEST, _SMALLEST = 2.0**200, 2.0**-200
# Exponents of two beyond which the result of an operation is refused: inside the normal doubles.
_MOST = 1000
# An expression with more nodes is refused: engines limit the depth of a query (DuckDB: 1,000), and
# a query that is too deep would be refused by the engine, after the charge.
_DEEPEST, _LONGEST = 150, 20_000
# Beyond 2^52 steps, doubles are a step apart: x + step/2 could then round above the bounds.
_POINTS = 2**52
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


def resolved(table: Any, rule: Any, *, kind: Kind = "boolean", name: str = "where") -> Any:
    """Returns the Ibis expression of a rule on a table, built from allowed operations alone.

    Guarantee: the value of a row depends on that row alone, no record makes the query fail, and
    every engine gives the same value. A condition (``kind="boolean"``) is never NULL.

    Args:
        table: the Ibis table that the rule looks at.
        rule: a column's name, a function of the table, or a deferred expression (``_.fare > 10``).
        kind: "boolean" for a condition, "number" for a number, "any" for a derived column.
        name: what the rule is called in a refusal.

    Raises:
        ParameterError: the rule names no column, uses an operation that is not allowed, could leave
            the range of doubles, or has another type. No value of the table is read or shown.
    """
    bound = _bound(table, rule, name)
    if kind != "boolean" and type(bound.op()).__name__ == "Field" and bound.op().rel == table.op():
        if kind == "number":
            _check_number(bound, name)
        return bound  # a column as it is; points() reads it as a number
    value = _Reader(table, name).read(bound)
    if kind == "boolean":
        if value.kind not in ("boolean", "null"):
            raise ParameterError(f"{name} must be a condition, got a value of type {value.kind}")
        # guard: a-missing-condition-is-false
        return value.as_kind("boolean").fill_null(False)
    if kind == "number":
        _check_number(value.expression, name)
    return value.expression


def written(table: Any, rule: Any) -> str:
    """Returns the text of a rule as Ibis writes the expression that the user gave.

    Raises:
        ParameterError: the rule is no expression of the table's columns.
    """
    return str(_bound(table, rule, "rule").get_name())


def points(value: Any, low: int, high: int, step: float) -> Any:
    """Returns the integer expression floor(clip(x, low * step, high * step) / step + 1/2).

    NULL and NaN have the point ``low``. The same function in NumPy is :func:`numpy_points`.

    Guarantee: the value is in [low, high] for every double, and no record makes the query fail.

    Args:
        value: an Ibis expression of integers, doubles, decimals or truth values.
        low: the first point, in [-2^52, 2^52].
        high: the last point, in [low, 2^52].
        step: of the grid, a power of two in [2^-900, 2^900].

    Raises:
        ParameterError: the value is no number, or a parameter is out of its range.
    """
    _check_grid(low, high, step)
    _check_number(value, "column")
    x = _double_of(value)
    first, last = low * step, high * step
    clipped = _cases((x > _double(last), _double(last)), (x > _double(first), x), _double(first))
    # (x + step/2) / step is x / step + 1/2 to the bit, since a power of two scales exactly. Unlike
    # x / step it cannot underflow: x + step/2 is 0 or at least 2^-54 steps.
    return ((clipped + _double(step / 2)) / _double(step)).floor().cast("int64")


def numpy_points(values: Any, low: int, high: int, step: float) -> NDArray[np.int64]:
    """Returns floor(clip(x, low * step, high * step) / step + 1/2) for each x of an array.

    NULL (None) and NaN have the point ``low``.

    Guarantee: equal to the bit to :func:`points` on an engine, for every double.

    Raises:
        ParameterError: the array is no column of numbers, or a parameter is out of its range.
    """
    _check_grid(low, high, step)
    x = read_column(column=values)
    x = np.clip(np.where(np.isnan(x), low * step, x), low * step, high * step)
    found: NDArray[np.int64] = np.floor((x + step / 2) / step).astype(np.int64)
    return found


# ---------------------------------------------------------------------- numbers and their magnitude


@dataclass(frozen=True, kw_only=True)
class _Range:
    """Magnitudes of the doubles that an expression can have, as exponents of two.

    Args:
        high: no number is above 2^high.
        low: no number other than 0 is below 2^low.
        grain: every number is a multiple of 2^grain; this says how small a difference can be.
    """

    high: int
    low: int
    grain: int

    @staticmethod
    def of(high: int, low: int, grain: int | None = None) -> _Range:
        """Makes a range; a double >= 2^low is a multiple of 2^(low - 52) at least."""
        return _Range(high=high, low=low, grain=low - 52 if grain is None else max(grain, low - 52))

    def __or__(self, other: _Range) -> _Range:
        """The range of a number that is of one range or of the other."""
        return _Range(
            high=max(self.high, other.high),
            low=min(self.low, other.low),
            grain=min(self.grain, other.grain),
        )

    # Powers of two are doubles, and rounding is monotone: so each bound holds for the rounded
    # result as for the exact one, and a multiple of 2^k that is rounded stays a multiple of 2^k.

    def plus(self, other: _Range) -> _Range:
        """The range of a sum or difference: what does not cancel is one grain at least."""
        grain = min(self.grain, other.grain)
        return _Range.of(max(self.high, other.high) + 1, grain, grain)

    def times(self, other: _Range) -> _Range:
        """The range of a product."""
        return _Range.of(self.high + other.high, self.low + other.low, self.grain + other.grain)

    def over(self, other: _Range) -> _Range:
        """The range of a quotient whose divisor is not 0."""
        return _Range.of(self.high - other.low, self.low - other.high)

    def root(self) -> _Range:
        """The range of a square root."""
        return _Range.of(-(-self.high // 2), self.low // 2)

    def fits(self) -> bool:
        """Whether no number of the range overflows or underflows."""
        return self.high <= _MOST and self.low >= -_MOST


_COLUMN = _Range.of(200, -200)
_INTEGER = _Range.of(63, 0, 0)
_WIDE_RANGE = _Range.of(127, 0, 0)  # 10^38 < 2^127
_TRUTH = _Range.of(0, 0, 0)
# The type in which engines compare integers beyond int64 exactly.
_WIDE = "decimal(38, 0)"


@dataclass(frozen=True)
class _Value:
    """A part of a rule that has been built anew.

    Args:
        expression: of Ibis, total and the same on every engine.
        kind: "integer" (int64), "wide integer" (of up to 38 digits), "double", "boolean",
            "string", "date", "timestamp", "nanoseconds" (a timestamp of them, whose years are 1678
            to 2261), "moment" (a timestamp that is written in the rule, and is compared with
            both), or "null".
        range: of a double; None where a double is a column as it is, which may be infinite.
    """

    expression: Any
    kind: str
    range: _Range | None = None

    def as_kind(self, kind: str) -> Any:
        """Returns the expression as another kind, to which the value can go without an error."""
        if self.kind == kind:
            return self.expression
        if self.kind == "moment":
            return self.expression
        types = {
            "integer": "int64",
            "wide integer": _WIDE,
            "double": "float64",
            "nanoseconds": "timestamp(9)",
        }
        if self.kind == "null":
            return _ibis().null(types.get(kind, kind))
        if kind == "wide integer" and self.kind == "integer":
            return self.expression.cast(_WIDE)
        if kind == "double":
            return self.double().expression
        raise AssertionError(f"{self.kind} does not become {kind}")

    def double(self) -> _Value:
        """Returns an integer or a truth value as a double; a double is returned as it is."""
        if self.kind in ("integer", "wide integer"):
            # the nearest double, by IEEE 754
            return _Value(self.expression.cast("float64"), "double", self.range or _INTEGER)
        if self.kind == "boolean":
            return _Value(_number_of_truth(self.expression), "double", _TRUTH)
        if self.kind == "null":
            return _Value(self.as_kind("double"), "double", _TRUTH)
        return self

    def ranged(self) -> _Value:
        """Returns the value as a double that arithmetic may use: finite, and 0 or not tiny."""
        value = self.double()
        if value.range is not None:
            return value
        x = value.expression
        # guard: columns-in-range
        moved = _cases(
            (x > _double(_LARGEST), _double(_LARGEST)),
            (x < _double(-_LARGEST), _double(-_LARGEST)),
            ((x < _double(_SMALLEST)) & (x > _double(-_SMALLEST)), _double(0.0)),
            x,
        )
        return _Value(moved, "double", _COLUMN)


# --------------------------------------------------------------------------------- reading a rule


@dataclass
class _Reader:
    """Reads an expression of Ibis, and builds it anew.

    Args:
        table: the Ibis table of the rule.
        name: what the rule is called in a refusal.
    """

    table: Any
    name: str
    known: dict[Any, _Value] = field(default_factory=dict)

    def read(self, expression: Any) -> _Value:
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

    def __call__(self, op: Any) -> _Value:
        """Reads one operation and what it is made of."""
        if op not in self.known:
            operations, kind = _ibis().expr.operations, type(op)
            read = _ALLOWED.get(kind.__name__)
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

    def out_of_range(self, op: Any, span: _Range) -> ParameterError:
        """Makes the refusal of an operation that may overflow or underflow."""
        what, hint = (
            ("too large", "clip the columns first, say t.x.clip(0, 1e6)")
            if span.high > _MOST
            else ("too small", "put the columns on a grid first, say (t.x * 1024).floor() / 1024")
        )
        return ParameterError(
            f"{self.name} must stay within 2^-{_MOST} and 2^{_MOST}, got {type(op).__name__} of "
            f"numbers whose result may be {what}: {hint}"
        )

    def number(self, op: Any, of: Any) -> _Value:
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

    def alike(self, values: list[_Value], of: Any) -> tuple[list[Any], _Value]:
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
        return expressions, _Value(None, kind, span)


def _bound(table: Any, rule: Any, name: str) -> Any:
    """Returns the expression that a rule stands for on a table.

    Raises:
        ParameterError: it names no column, or is not one expression.
    """
    if isinstance(rule, str):
        if rule not in table.columns:
            raise refuse(name, f"be one of the columns {', '.join(table.columns)}", rule)
        return table[rule]
    try:
        if isinstance(rule, _ibis().expr.types.Value):
            (found,) = table.bind(rule)
        else:
            found = _in_place_of(table, rule, name)
    except ParameterError:
        raise
    except Exception as error:  # a column that is not there, types that do not go together, ...
        told = str(error).partition("\n")[0]
        raise ParameterError(
            f"{name} must be an expression of the columns {', '.join(table.columns)}: "
            f"{type(error).__name__}: {told}"
        ) from error
    return found


def _in_place_of(table: Any, rule: Any, name: str) -> Any:
    """Calls a rule once, on a table without rows, and puts the real table into its expression.

    A function could run a query, and put what it has seen into the question. On a table of columns
    alone every query fails; and the function is never called with the rows.

    Raises:
        ParameterError: the rule gives no expression.
    """
    ibis = _ibis()
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
    return found.op().replace({columns.op(): table.op()}).to_expr()


def _size(op: Any) -> tuple[int, int]:
    """Returns the number of parts of an expression as a query writes it out, and its depth."""
    operations = _ibis().expr.operations
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


# --------------------------------------------------------------------------- the allowed operations


def _field(row: _Reader, op: Any) -> _Value:
    """A column of the table itself."""
    row.check_own(op)
    kind, x = op.dtype, op.to_expr()
    if kind.is_boolean():
        return _Value(x, "boolean")
    if kind.is_integer() and not kind.is_uint64():
        return _Value(x.cast("int64"), "integer", _INTEGER)
    if kind.is_uint64():
        return _Value(_whole(x), "wide integer", _WIDE_RANGE)
    # Ibis says that a HUGEINT of DuckDB has 38 digits, of which some have 39: it becomes a double
    if kind.is_decimal() and kind.scale == 0 and (kind.precision or 38) < 38:
        return _Value(_whole(x), "wide integer", _WIDE_RANGE)
    if kind.is_floating() or kind.is_decimal():
        _check_number(x, row.name)
        return _Value(_double_of(x), "double")
    if kind.is_string():
        return _Value(x, "string")
    if kind.is_date() or (kind.is_timestamp() and kind.timezone is None):
        fine = kind.is_timestamp() and (kind.scale or 0) > 6
        known = "date" if kind.is_date() else "nanoseconds" if fine else "timestamp"
        return _Value(_usual_dates(x, known), known)
    raise ParameterError(f"{row.name} must not look at columns of type {kind}, got {op.name!r}")


def _literal(row: _Reader, op: Any) -> _Value:
    """A value that is written in the rule."""
    ibis, value, kind = _ibis(), op.value, op.dtype
    if value is None:
        return _Value(ibis.null(), "null")
    if isinstance(value, (bool, np.bool_)):
        return _Value(ibis.literal(bool(value)), "boolean")
    if kind.is_integer() and -(2**63) <= int(value) < 2**63:
        return _Value(_integer(int(value)), "integer", _magnitude(float(value), exact=int(value)))
    if isinstance(value, int) and abs(value) < 10**38:
        # written as a text, which every engine reads exactly
        return _Value(
            ibis.literal(str(value)).cast(_WIDE), "wide integer", _magnitude(value, exact=value)
        )
    if kind.is_numeric():
        x = float(value)
        if not math.isfinite(x):
            raise refuse(row.name, "have finite numbers", x)
        return _Value(_double(x), "double", _magnitude(x))
    if kind.is_string():
        if "\0" in value or not _encodes(value):
            raise refuse(row.name, "have texts of Unicode without the character 0", value)
        row.check_text(value)
        return _Value(ibis.literal(value), "string")
    if kind.is_date() or (kind.is_timestamp() and kind.timezone is None):
        if kind.is_date():
            return _Value(ibis.literal(value, kind), "date")
        row.check_moment(value)
        return _Value(ibis.literal(value, kind), "moment")
    raise ParameterError(f"{row.name} must not have values of type {kind}")


def _alias(row: _Reader, op: Any) -> _Value:
    """A name for an expression, which changes nothing."""
    return row(op.arg)


def _add(row: _Reader, op: Any) -> _Value:
    """A sum of two numbers."""
    x, y = _operands(row, op)
    return _Value(x.expression + y.expression, "double", _span(x).plus(_span(y)))


def _subtract(row: _Reader, op: Any) -> _Value:
    """A difference of two numbers."""
    x, y = _operands(row, op)
    return _Value(x.expression - y.expression, "double", _span(x).plus(_span(y)))


def _multiply(row: _Reader, op: Any) -> _Value:
    """A product of two numbers."""
    x, y = _operands(row, op)
    return _Value(x.expression * y.expression, "double", _span(x).times(_span(y)))


def _divide(row: _Reader, op: Any) -> _Value:
    """A quotient of two numbers; NULL where the divisor is 0."""
    x, y = _operands(row, op)
    return _Value(x.expression / _not_zero(y.expression), "double", _span(x).over(_span(y)))


def _floor_divide(row: _Reader, op: Any) -> _Value:
    """The floor of a quotient of two numbers; NULL where the divisor is 0."""
    return _floored(_divide(row, op))


def _modulus(row: _Reader, op: Any) -> _Value:
    """The remainder of an integer by a positive integer m: in 0, ..., m - 1, as in Python."""
    value, m = row.number(op.left, op), row.literal(op.right, op, int)
    if value.kind != "integer" or not 1 <= m <= 2**31:
        raise row.refusal(op, "here it needs an integer, and a divisor in [1, 2^31]")
    by = _integer(m)
    # engines give the remainder the sign of the integer, or that of m
    return _Value((value.expression % by + by) % by, "integer", _Range.of(31, 0, 0))


def _power(row: _Reader, op: Any) -> _Value:
    """A number to the power of 1, 2, 3 or 4: products, since pow() differs in its last bit."""
    x, exponent = row.number(op.left, op).ranged(), row.literal(op.right, op, int)
    if not 1 <= exponent <= 4:
        raise row.refusal(op, "its exponent must be 1, 2, 3 or 4")
    product, span = x.expression, _span(x)
    for _ in range(exponent - 1):
        product, span = product * x.expression, span.times(_span(x))
    return _Value(product, "double", span)


def _negate(row: _Reader, op: Any) -> _Value:
    """A number with the other sign."""
    x = row.number(op.arg, op).double()
    return _Value(-x.expression, "double", x.range)


def _abs(row: _Reader, op: Any) -> _Value:
    """The magnitude of a number."""
    x = row.number(op.arg, op).double()
    return _Value(x.expression.abs(), "double", x.range)


def _sqrt(row: _Reader, op: Any) -> _Value:
    """A square root, which IEEE 754 defines to the last bit; NULL for a negative number."""
    x = row.number(op.arg, op).ranged()
    return _Value(_not_negative(x.expression).sqrt(), "double", _span(x).root())


def _floor(row: _Reader, op: Any) -> _Value:
    """The largest integer that is not above a number."""
    return _floored(row.number(op.arg, op).ranged())


def _ceil(row: _Reader, op: Any) -> _Value:
    """The smallest integer that is not below a number."""
    x = row.number(op.arg, op).ranged()
    down = _floored(replace(x, expression=-x.expression))
    return replace(down, expression=-down.expression)


def _clip(row: _Reader, op: Any) -> _Value:
    """A number moved between bounds; NULL if it or a bound is."""
    parts = [part for part in (op.arg, op.lower, op.upper) if part is not None]
    value, *bounds = _numbers([row.number(part, op) for part in parts])
    spans = [bound.range for bound in bounds if bound.range is not None]
    if len(spans) == 2 and value.kind == "double":
        value = value.ranged()
    expressions, like = row.alike([value, *bounds], op)
    x, *limits = expressions
    cases = [(limit.isnull(), limit) for limit in limits]
    if op.lower is not None:
        cases.append((x < limits[0], limits[0]))
    if op.upper is not None:
        cases.append((x > limits[-1], limits[-1]))
    if len(spans) == 2 and like.range is not None:  # between two bounds, so no larger than they are
        most = min(like.range.high, max(span.high for span in spans))
        like = replace(like, range=replace(like.range, high=most))
    return replace(like, expression=_cases(*cases, x))


def _greatest(row: _Reader, op: Any) -> _Value:
    """The largest of some numbers; NULL if one of them is."""
    return _extreme(row, op, lambda x, y: x >= y)


def _least(row: _Reader, op: Any) -> _Value:
    """The smallest of some numbers; NULL if one of them is."""
    return _extreme(row, op, lambda x, y: x <= y)


def _cast(row: _Reader, op: Any) -> _Value:
    """A change of type that no record can make fail, and that rounds nowhere but to a double."""
    value, to = row(op.arg), op.to
    if to.is_float64() and value.kind in ("integer", "wide integer", "double", "boolean", "null"):
        return value.double()
    if to.is_int64() and value.kind in ("integer", "null"):
        return _Value(value.as_kind("integer"), "integer", value.range)
    if to.is_int64() and value.kind == "boolean":
        truth = value.expression
        number = _cases((truth, _integer(1)), (~truth, _integer(0)))
        return _Value(number, "integer", _TRUTH)
    kinds = {"boolean": to.is_boolean(), "string": to.is_string(), "date": to.is_date()}
    if kinds.get(value.kind):
        return value
    raise row.refusal(
        op,
        f"a {value.kind} is not made a {to} without an error or a choice of rounding: use floor() "
        'for integers, and try_cast("float64") for texts',
    )


def _try_cast(row: _Reader, op: Any) -> _Value:
    """A text as a number, NULL where the engine reads none; else as a cast."""
    value, to = row(op.arg), op.to
    if value.kind != "string":
        return _cast(row, op)
    row.check_try_cast()
    if not to.is_float64():
        raise row.refusal(op, 'a text becomes a number by try_cast("float64") alone')
    x = value.expression.try_cast("float64")
    return _Value(_cases((x.isnan(), _null_double()), x), "double")


def _comparison(row: _Reader, op: Any) -> _Value:
    """A comparison; NULL if one side is. Texts are compared for equality only."""
    values, kind = [row(op.left), row(op.right)], type(op).__name__
    (x, y), like = row.alike(values, op)
    if like.kind in ("string", "boolean") and kind not in ("Equals", "NotEquals"):
        raise row.refusal(op, f"engines order a {like.kind} differently: compare with == or isin")
    return _Value(_COMPARISONS[kind](x, y), "boolean")


def _between(row: _Reader, op: Any) -> _Value:
    """Two comparisons of a number or date with its bounds."""
    values = [row(op.arg), row(op.lower_bound), row(op.upper_bound)]
    (x, low, high), like = row.alike(values, op)
    if like.kind in ("string", "boolean"):
        raise row.refusal(op, f"engines order a {like.kind} differently: compare with == or isin")
    return _Value((x >= low) & (x <= high), "boolean")


def _in_values(row: _Reader, op: Any) -> _Value:
    """Whether a value is among some that are written in the rule; NULL if it is NULL."""
    options = [row(option) for option in op.options]
    if not all(type(option).__name__ == "Literal" for option in op.options):
        raise row.refusal(op, "here it needs values that are written in the rule")
    if any(option.kind == "null" for option in options):
        raise row.refusal(op, "NULL is among its values: use isnull() for missing ones")
    (x, *others), like = row.alike([row(op.value), *options], op)
    if like.kind not in ("integer", "wide integer", "double", "string"):
        raise row.refusal(op, f"it is of a {like.kind}: compare with ==")
    return _Value(x.isin(others), "boolean")


def _and(row: _Reader, op: Any) -> _Value:
    """Reads a conjunction: true where two conditions are true."""
    return _Value(row.condition(op.left, op) & row.condition(op.right, op), "boolean")


def _or(row: _Reader, op: Any) -> _Value:
    """One condition, or both."""
    return _Value(row.condition(op.left, op) | row.condition(op.right, op), "boolean")


def _xor(row: _Reader, op: Any) -> _Value:
    """One condition and not the other; NULL if one of them is."""
    return _Value(row.condition(op.left, op) != row.condition(op.right, op), "boolean")


def _not(row: _Reader, op: Any) -> _Value:
    """The opposite of a condition."""
    return _Value(~row.condition(op.arg, op), "boolean")


def _is_null(row: _Reader, op: Any) -> _Value:
    """Whether a value is missing, which a NaN is."""
    return _Value(row(op.arg).expression.isnull(), "boolean")


def _not_null(row: _Reader, op: Any) -> _Value:
    """Whether a value is there; a NaN is not."""
    return _Value(row(op.arg).expression.notnull(), "boolean")


def _coalesce(row: _Reader, op: Any) -> _Value:
    """The first of some values that is not missing (fill_null is this, too)."""
    expressions, like = row.alike([row(part) for part in op.arg], op)
    return replace(like, expression=_ibis().coalesce(*expressions))


def _null_if(row: _Reader, op: Any) -> _Value:
    """A value, or NULL where it equals another."""
    (x, y), like = row.alike([row(op.arg), row(op.null_if_expr)], op)
    return replace(like, expression=x.nullif(y))


def _if_else(row: _Reader, op: Any) -> _Value:
    """One value where a condition is true, else another (also where it is NULL)."""
    condition = row.condition(op.bool_expr, op)
    (yes, no), like = row.alike([row(op.true_expr), row(op.false_null_expr)], op)
    return replace(like, expression=condition.ifelse(yes, no))


def _searched_case(row: _Reader, op: Any) -> _Value:
    """The value of the first condition that is true, else a last one."""
    conditions = [row.condition(case, op) for case in op.cases]
    (*results, last), like = row.alike([row(part) for part in (*op.results, op.default)], op)
    found = _cases(*zip(conditions, results, strict=True), last)
    return replace(like, expression=found)


def _contains(row: _Reader, op: Any) -> _Value:
    """Whether a text contains another, which is written in the rule."""
    return _text_test(row, op, op.haystack, op.needle, "contains")


def _starts_with(row: _Reader, op: Any) -> _Value:
    """Whether a text starts with another, which is written in the rule."""
    return _text_test(row, op, op.arg, op.start, "startswith")


def _ends_with(row: _Reader, op: Any) -> _Value:
    """Whether a text ends with another, which is written in the rule."""
    return _text_test(row, op, op.arg, op.end, "endswith")


def _length(row: _Reader, op: Any) -> _Value:
    """The number of code points of a text."""
    length = _text(row, op, op.arg).length().cast("int64")
    return _Value(length, "integer", _Range.of(40, 0, 0))


def _substring(row: _Reader, op: Any) -> _Value:
    """The code points of a text from one position on, both written in the rule."""
    start, length = row.literal(op.start, op, int), row.literal(op.length, op, int)
    return _part_of(row, op, op.arg, start, length)


def _slice(row: _Reader, op: Any) -> _Value:
    """The code points of a text between two positions that are written in the rule."""
    start = 0 if op.start is None else row.literal(op.start, op, int)
    return _part_of(row, op, op.arg, start, row.literal(op.end, op, int) - start)


def _part_of_date(row: _Reader, op: Any) -> _Value:
    """A year, month, day, quarter or day of the week; an hour or a minute of a timestamp."""
    value, part = row(op.arg), type(op).__name__
    if value.kind not in _DATES:
        raise row.refusal(op, f"it is of a {value.kind}: give a date")
    number = _DATE_PARTS[part](value.expression).cast("int64")
    return _Value(number, "integer", _Range.of(14, 0, 0))


def _date(row: _Reader, op: Any) -> _Value:
    """The day of a timestamp."""
    value = row(op.arg)
    if value.kind not in _DATES:
        raise row.refusal(op, f"it is of a {value.kind}: give a timestamp")
    return _Value(value.expression.date(), "date")


# The operations of Ibis that a rule may be made of, by the names of their classes.
_ALLOWED: Mapping[str, Callable[[_Reader, Any], _Value]] = {
    # columns and values
    "Field": _field,
    "Literal": _literal,
    "Alias": _alias,
    "Cast": _cast,
    "TryCast": _try_cast,
    # arithmetic, in doubles
    "Add": _add,
    "Subtract": _subtract,
    "Multiply": _multiply,
    "Divide": _divide,
    "FloorDivide": _floor_divide,
    "Modulus": _modulus,
    "Power": _power,
    "Negate": _negate,
    "Abs": _abs,
    "Sqrt": _sqrt,
    "Floor": _floor,
    "Ceil": _ceil,
    "Clip": _clip,
    "Greatest": _greatest,
    "Least": _least,
    # comparisons
    "Equals": _comparison,
    "NotEquals": _comparison,
    "Less": _comparison,
    "LessEqual": _comparison,
    "Greater": _comparison,
    "GreaterEqual": _comparison,
    "Between": _between,
    "InValues": _in_values,
    # conditions
    "And": _and,
    "Or": _or,
    "Xor": _xor,
    "Not": _not,
    "IfElse": _if_else,
    "SearchedCase": _searched_case,
    # missing values
    "IsNull": _is_null,
    "NotNull": _not_null,
    "Coalesce": _coalesce,
    "NullIf": _null_if,
    # texts
    "StringContains": _contains,
    "StartsWith": _starts_with,
    "EndsWith": _ends_with,
    "StringLength": _length,
    "Substring": _substring,
    "StringSlice": _slice,
    # dates
    "Date": _date,
    "ExtractYear": _part_of_date,
    "ExtractQuarter": _part_of_date,
    "ExtractMonth": _part_of_date,
    "ExtractDay": _part_of_date,
    "ExtractHour": _part_of_date,
    "ExtractMinute": _part_of_date,
    "DayOfWeekIndex": _part_of_date,
}

_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "Equals": lambda x, y: x == y,
    "NotEquals": lambda x, y: x != y,
    "Less": lambda x, y: x < y,
    "LessEqual": lambda x, y: x <= y,
    "Greater": lambda x, y: x > y,
    "GreaterEqual": lambda x, y: x >= y,
}

_DATE_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "ExtractYear": lambda x: x.year(),
    "ExtractQuarter": lambda x: x.quarter(),
    "ExtractMonth": lambda x: x.month(),
    "ExtractDay": lambda x: x.day(),
    "ExtractHour": lambda x: x.hour(),
    "ExtractMinute": lambda x: x.minute(),
    "DayOfWeekIndex": lambda x: x.day_of_week.index(),
}

_DATES = ("date", "timestamp", "nanoseconds", "moment")

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


def _why(op: Any) -> str:
    """Says why an operation is refused."""
    operations = _ibis().expr.operations
    if isinstance(op, operations.ScalarUDF):
        return "it is a function of a user, of which nothing is known"
    if isinstance(op, (operations.Reduction, operations.Analytic, operations.WindowFunction)):
        return _ACROSS
    if isinstance(op, operations.Subquery):
        return _OTHER
    if isinstance(op, (operations.Impure, operations.TimestampNow, operations.DateNow)):
        return _CHANGES
    return _REFUSED.get(type(op).__name__, _UNKNOWN)


# ------------------------------------------------------------------------------------------ parts


def _operands(row: _Reader, op: Any) -> tuple[_Value, _Value]:
    """Reads both operands of arithmetic, as doubles within range."""
    return row.number(op.left, op).ranged(), row.number(op.right, op).ranged()


def _span(value: _Value) -> _Range:
    """Returns the range of a value that is within range."""
    if value.range is None:
        raise AssertionError("arithmetic needs a value within range")
    return value.range


def _numbers(values: list[_Value]) -> list[_Value]:
    """Returns values with truth values as numbers."""
    return [value.double() if value.kind == "boolean" else value for value in values]


def _extreme(row: _Reader, op: Any, better: Callable[[Any, Any], Any]) -> _Value:
    """Returns the best of some numbers; engines differ in whether they skip NULL."""
    expressions, like = row.alike(_numbers([row.number(part, op) for part in op.arg]), op)
    found = expressions[0]
    for other in expressions[1:]:
        found = _cases((better(found, other), found), (other.notnull() & found.notnull(), other))
    return replace(like, expression=found)


def _not_zero(x: Any) -> Any:
    """Returns a divisor; NULL where it is 0."""
    return x.nullif(_double(0.0))  # guard: no-division-by-zero


def _not_negative(x: Any) -> Any:
    """Returns a number; NULL where it is negative."""
    return _cases((x >= _double(0.0), x))  # guard: no-root-of-negatives


def _floored(value: _Value) -> _Value:
    """Returns the floor of a double within range, as a double.

    Doubles of 2^52 and above are integers. Ibis makes floors int64, which those would leave. They
    are moved away from it before, as an engine may compute both cases of a choice for every row.
    """
    x, whole = value.expression, 2.0**52
    # guard: floors-within-int64
    small = _cases((x > _double(whole), _double(whole)), (x < _double(-whole), _double(-whole)), x)
    floor = small.floor().cast("float64")
    span = _span(value)
    found = _cases(((x < _double(whole)) & (x > _double(-whole)), floor), x)
    return _Value(found, "double", _Range.of(max(span.high, 0), 0, 0))


def _text(row: _Reader, op: Any, arg: Any) -> Any:
    """Reads an operand that is a text."""
    value = row(arg)
    if value.kind != "string":
        raise row.refusal(op, f"it is of a {value.kind}: give a text")
    return value.expression


def _text_test(row: _Reader, op: Any, arg: Any, other: Any, method: str) -> _Value:
    """Returns a test of a text for another one, which is written in the rule and not empty."""
    if not row.literal(other, op, str):
        raise row.refusal(op, "the text to look for must not be empty")
    return _Value(getattr(_text(row, op, arg), method)(row(other).expression), "boolean")


def _part_of(row: _Reader, op: Any, arg: Any, start: int, length: int) -> _Value:
    """Returns part of a text, by code points."""
    if start < 0 or length < 0 or start + length >= 2**31:
        raise row.refusal(op, "its positions must be in [0, 2^31), in ascending order")
    return _Value(_text(row, op, arg).substr(start, length), "string")


def _usual_dates(x: Any, known: str) -> Any:
    """Returns a date or timestamp; NULL outside of the years 1 to 9999, also for infinite ones.

    A timestamp of nanoseconds is kept within the years 1700 to 2260. The parts of other dates
    differ between engines, and some engines fail for them.
    """
    spans = {
        "date": ("0001-01-01", "9999-12-31"),
        "timestamp": ("0001-01-01T00:00:00", "9999-12-31T23:59:59"),
        "nanoseconds": ("1700-01-01T00:00:00", "2261-01-01T00:00:00"),
    }
    first, last = (_ibis().literal(one, x.type()) for one in spans[known])
    # guard: usual-dates
    return _cases(((x >= first) & (x <= last), x))


def usual_date(value: Any) -> Any:
    """Returns an Ibis expression of dates; NULL outside of the years 1 to 9999."""
    return _usual_dates(value, "date")


def usual_timestamp(value: Any) -> Any:
    """Returns an Ibis expression of timestamps; NULL outside of the years 1 to 9999."""
    return _usual_dates(value, "timestamp")


def _check_number(value: Any, name: str) -> None:
    """Refuses an expression that is no number, or whose doubles an engine may fail to make."""
    kind = value.type()
    if kind.is_decimal() and (kind.precision is None or kind.scale is None):
        raise ParameterError(
            f"{name} must be a column of numbers of known size, got {kind}: declare how many "
            "digits it has, say NUMERIC(18, 2)"
        )
    if not (kind.is_numeric() or kind.is_boolean()):
        column = getattr(value.op(), "name", "column")
        raise ParameterError(
            f"{name} must be a column of numbers, got one of type {kind}"
            + (f': t.{column}.try_cast("float64") reads texts as numbers' * kind.is_string())
        )


def _double_of(value: Any) -> Any:
    """Returns a number of any type as a double; NaN becomes NULL."""
    kind = value.type()
    if kind.is_boolean():
        return _number_of_truth(value)
    x = value if kind.is_float64() else value.cast("float64")
    if not kind.is_integer():  # a decimal of PostgreSQL may be NaN, too
        x = _cases((x.isnan(), _null_double()), x)  # guard: nan-is-missing
    return x


def _whole(value: Any) -> Any:
    """Returns an integer as a decimal of 38 digits; NaN, which PostgreSQL has, is NULL."""
    wide = value.cast(_WIDE)  # guard: wide-integers-exact
    if value.type().is_integer():
        return wide
    return _cases((wide.cast("float64").isnan(), _ibis().null(_WIDE)), wide)


def _number_of_truth(truth: Any) -> Any:
    """Returns a truth value as a double: 1, 0, or NULL."""
    return _cases((truth, _double(1.0)), (~truth, _double(0.0)))


def _cases(*parts: Any) -> Any:
    """Returns the result of the first condition that is true; the last part is the default."""
    *cases, default = parts if not isinstance(parts[-1], tuple) else (*parts, None)
    return _ibis().cases(*cases, else_=default)


def _double(x: float) -> Any:
    """Returns the expression of a double.

    It is written as a text: engines read 0.1 in a query as a decimal, with which arithmetic may be
    exact, rounded otherwise, or overflow.
    """
    return _ibis().literal(repr(float(x))).cast("float64")  # guard: literals-are-doubles


def _integer(n: int) -> Any:
    """Returns the expression of an int64, written as a text (see :func:`_double`)."""
    return _ibis().literal(str(n)).cast("int64")


def _null_double() -> Any:
    return _ibis().null("float64")


def _magnitude(x: float, exact: int | None = None) -> _Range:
    """Returns the range of one number."""
    if x == 0:
        return _TRUTH
    exponent = math.frexp(x)[1]  # 2^(exponent - 1) <= |x| < 2^exponent, or = for a rounded integer
    return _Range.of(exponent, exponent - 1 if exact is None else 0, None if exact is None else 0)


def _power_of_two(op: Any) -> bool:
    """Whether an operand is a power of two that is written in the rule."""
    value = getattr(op, "value", None)
    return isinstance(value, (int, float)) and abs(math.frexp(value)[0]) == 0.5


def _encodes(text: str) -> bool:
    """Whether a text can be written in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _backend(table: Any) -> str:
    """Names the engine of a table; DuckDB for tables in memory."""
    return str(table.get_backend().name)


def _check_grid(low: int, high: int, step: float) -> None:
    """Refuses a grid whose points are not exact."""
    if not math.isfinite(step) or step <= 0 or math.frexp(step)[0] != 0.5:
        raise refuse("step", "be a power of two", step)
    if not 2.0**-900 <= step <= 2.0**900:
        raise refuse("step", "be in [2^-900, 2^900]", step)
    for name, point in (("low", low), ("high", high)):
        if not -_POINTS <= point <= _POINTS:
            raise refuse(name, "be at most 2^52 steps from 0: choose a coarser step", point)
    if low > high:
        raise refuse("low", f"be at most high = {high}", low)


def _ibis() -> Any:
    """Imports Ibis, which is there where an Ibis table is."""
    return importlib.import_module("ibis")
