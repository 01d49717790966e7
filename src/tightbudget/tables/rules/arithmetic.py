"""Arithmetic of rules, in doubles, with the operations that IEEE 754 defines to the last bit."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tightbudget.tables.rules.expressions import cases, double, integer, not_negative, not_zero
from tightbudget.tables.rules.magnitudes import Magnitudes
from tightbudget.tables.rules.reader import Operation, Reader
from tightbudget.tables.rules.values import Value


def _of_two(
    compute: Callable[[Any, Any], Any], span: Callable[[Magnitudes, Magnitudes], Magnitudes]
) -> Operation:
    """Returns an operation on two numbers within range."""

    def read(row: Reader, op: Any) -> Value:
        x, y = row.number(op.left, op).ranged(), row.number(op.right, op).ranged()
        return Value(compute(x.expression, y.expression), "double", span(_span(x), _span(y)))

    return read


def _of_one(compute: Callable[[Any], Any]) -> Operation:
    """Returns an operation on a number that does not change its magnitude."""

    def read(row: Reader, op: Any) -> Value:
        x = row.number(op.arg, op).double()
        return Value(compute(x.expression), "double", x.range)

    return read


def _extreme(better: Callable[[Any, Any], Any]) -> Operation:
    """Returns the choice of the best of some numbers; engines differ in whether they skip NULL."""

    def read(row: Reader, op: Any) -> Value:
        given = _numbers([row.number(part, op) for part in op.arg])
        (found, *others), like = row.alike(given, op)
        for other in others:
            both = other.notnull() & found.notnull()
            found = cases((better(found, other), found), (both, other))
        return replace(like, expression=found)

    return read


_divide = _of_two(lambda x, y: x / not_zero(y), Magnitudes.over)


def _floor_divide(row: Reader, op: Any) -> Value:
    """The floor of a quotient of two numbers; NULL where the divisor is 0."""
    return _floored(_divide(row, op))


def _modulus(row: Reader, op: Any) -> Value:
    """The remainder of an integer by a positive integer m: in 0, ..., m - 1, as in Python."""
    value, m = row.number(op.left, op), row.literal(op.right, op, int)
    if value.kind != "integer" or not 1 <= m <= 2**31:
        raise row.refusal(op, "here it needs an integer, and a divisor in [1, 2^31]")
    by = integer(m)
    # engines give the remainder the sign of the integer, or that of m
    return Value((value.expression % by + by) % by, "integer", Magnitudes.of(31, 0, 0))


def _power(row: Reader, op: Any) -> Value:
    """A number to the power of 1, 2, 3 or 4: products, since pow() differs in its last bit."""
    x, exponent = row.number(op.left, op).ranged(), row.literal(op.right, op, int)
    if not 1 <= exponent <= 4:
        raise row.refusal(op, "its exponent must be 1, 2, 3 or 4")
    product, span = x.expression, _span(x)
    for _ in range(exponent - 1):
        product, span = product * x.expression, span.times(_span(x))
    return Value(product, "double", span)


def _sqrt(row: Reader, op: Any) -> Value:
    """A square root, which IEEE 754 defines to the last bit; NULL for a negative number."""
    x = row.number(op.arg, op).ranged()
    return Value(not_negative(x.expression).sqrt(), "double", _span(x).root())


def _floor(row: Reader, op: Any) -> Value:
    """The largest integer that is not above a number."""
    return _floored(row.number(op.arg, op).ranged())


def _ceil(row: Reader, op: Any) -> Value:
    """The smallest integer that is not below a number."""
    x = row.number(op.arg, op).ranged()
    down = _floored(replace(x, expression=-x.expression))
    return replace(down, expression=-down.expression)


def _clip(row: Reader, op: Any) -> Value:
    """A number moved between bounds; NULL if it or a bound is."""
    parts = [part for part in (op.arg, op.lower, op.upper) if part is not None]
    value, *bounds = _numbers([row.number(part, op) for part in parts])
    spans = [bound.range for bound in bounds if bound.range is not None]
    if len(spans) == 2 and value.kind == "double":
        value = value.ranged()
    expressions, like = row.alike([value, *bounds], op)
    x, *limits = expressions
    moved = [(limit.isnull(), limit) for limit in limits]
    if op.lower is not None:
        moved.append((x < limits[0], limits[0]))
    if op.upper is not None:
        moved.append((x > limits[-1], limits[-1]))
    if len(spans) == 2 and like.range is not None:  # between two bounds, so no larger than they are
        most = min(like.range.high, max(span.high for span in spans))
        like = replace(like, range=replace(like.range, high=most))
    return replace(like, expression=cases(*moved, x))


def _floored(value: Value) -> Value:
    """Returns the floor of a double within range, as a double.

    Doubles of 2^52 and above are integers. Ibis makes floors int64, which those would leave. They
    are moved away from it before, as an engine may compute both cases of a choice for every row.
    """
    x, whole = value.expression, 2.0**52
    # guard: floors-within-int64
    small = cases((x > double(whole), double(whole)), (x < double(-whole), double(-whole)), x)
    floor = small.floor().cast("float64")
    span = _span(value)
    found = cases(((x < double(whole)) & (x > double(-whole)), floor), x)
    return Value(found, "double", Magnitudes.of(max(span.high, 0), 0, 0))


def _span(value: Value) -> Magnitudes:
    """Returns the range of a value that is within range."""
    if value.range is None:
        raise AssertionError("arithmetic needs a value within range")
    return value.range


def _numbers(values: list[Value]) -> list[Value]:
    """Returns values with truth values as numbers."""
    return [value.double() if value.kind == "boolean" else value for value in values]


# Operations by the names of their classes in Ibis.
ARITHMETIC: Mapping[str, Operation] = {
    "Add": _of_two(operator.add, Magnitudes.plus),
    "Subtract": _of_two(operator.sub, Magnitudes.plus),
    "Multiply": _of_two(operator.mul, Magnitudes.times),
    "Divide": _divide,  # NULL where the divisor is 0
    "FloorDivide": _floor_divide,
    "Modulus": _modulus,
    "Power": _power,
    "Negate": _of_one(operator.neg),
    "Abs": _of_one(lambda x: x.abs()),
    "Sqrt": _sqrt,
    "Floor": _floor,
    "Ceil": _ceil,
    "Clip": _clip,
    "Greatest": _extreme(operator.ge),  # NULL if one of the numbers is
    "Least": _extreme(operator.le),
}
