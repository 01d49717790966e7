"""Rules on rows: total, the same on every engine, and refused where they look beyond a row.

The oracle is Python alone: each rule has a function of plain Python values beside it.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import duckdb as duckdb_errors
import ibis
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from ibis import _
from tests.guards.mutants import Without, each, lose_a_truth
from tests.ledger.conftest import postgres
from tests.ledger.servers import Server

from tightbudget.errors import ParameterError
from tightbudget.tables import rules
from tightbudget.tables.rules.grid import numpy_points, points
from tightbudget.tables.rules.operations import OPERATIONS
from tightbudget.tables.rules.reader import Reader

__all__ = ["postgres"]

INF = math.inf
HUGE = 1.7976931348623157e308
FLOATS = [
    *(
        None,
        math.nan,
        INF,
        -INF,
        HUGE,
        -HUGE,
        5e-324,
        -5e-324,
        -0.0,
        0.0,
        0.1,
        0.5,
        -0.5,
        2.5,
        -2.5,
    ),
    *(1.5, 1e100, -1e100, 1e-200, 2.0**52, 2.0**53 + 2, -(2.0**52) - 1, 9.2e18, 9.3e18, 1e15, 3.0),
    0.49999999999999994,
]
INTEGERS = [None, 2**63 - 1, -(2**63), 0, 1, -1, 2**53 + 1, 10, -10, 7, -7, 300]
TEXTS = [
    *(None, "", "a", "aé", "e\u0301", "🤦🏼‍♂️x", "A", "İ", "a\nb", "1.5", "nan", "1e999", "-7"),
    *("\ufeffa", "abc", "ß", "x'y", "%", "_\\", "1e-999"),
]
DATES = [
    *(None, dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29)),
    *(dt.date(1582, 10, 10), dt.date(1900, 12, 31)),
]
TIMES = [
    *(None, dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59), dt.datetime(1970, 1, 1)),
    dt.datetime(2024, 2, 29, 23, 59, 59, 999999),
    dt.datetime(1969, 12, 31, 23, 59, 59, 500000),
]
DECIMALS = [None, Decimal("0.01"), Decimal("-99999999.99"), Decimal("0.30"), Decimal("0.00")]
MANY = 90

Row = dict[str, Any]


def turning(values: list[Any], times: int = 1) -> list[Any]:
    """Edge values, in an order in which two columns meet in many pairs."""
    return [values[(i * times + i // len(values)) % len(values)] for i in range(MANY)]


COLUMNS = pa.table(
    {
        "k": pa.array(range(MANY), pa.int64()),
        "x": pa.array(turning(FLOATS), pa.float64()),
        "y": pa.array(turning(FLOATS, 7), pa.float64()),
        "f": pa.array(turning([None, math.nan, 0.1, 3e38, INF, 1e-45]), pa.float32()),
        "i": pa.array(turning(INTEGERS), pa.int64()),
        "j": pa.array(turning([None, 1, -128, 127, 0], 2), pa.int16()),
        "n": pa.array(turning(DECIMALS), pa.decimal128(10, 2)),
        "s": pa.array(turning(TEXTS), pa.string()),
        "b": pa.array(turning([None, True, False]), pa.bool_()),
        "c": pa.array([[None, True, False][i // 3 % 3] for i in range(MANY)], pa.bool_()),
        "d": pa.array(turning(DATES), pa.date32()),
        "w": pa.array(turning(TIMES), pa.timestamp("us")),
    }
)
ROWS: list[Row] = COLUMNS.to_pylist()


@pytest.fixture(scope="module")
def duckdb() -> Any:
    return ibis.memtable(COLUMNS)


@pytest.fixture(
    scope="module", params=["duckdb", "polars", pytest.param("postgres", marks=pytest.mark.slow)]
)
def table(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The edge values on each engine."""
    if request.param == "duckdb":
        yield request.getfixturevalue("duckdb")
    elif request.param == "polars":
        yield on_polars()
    else:
        server: Server = request.getfixturevalue("postgres")
        address = server.create_database()
        connection = ibis.connect(address.replace("postgresql+psycopg", "postgresql"))
        yield connection.create_table("t", COLUMNS)
        connection.disconnect()
        server.drop_database(address)


def answers(table: Any, *expressions: Any) -> list[tuple[Any, ...]]:
    """The values of expressions in each row, in the order of the key."""
    named = {f"o{i}": one for i, one in enumerate(expressions)}
    found = table.get_backend().to_pyarrow(table.select(k=table.k, **named)).to_pylist()
    return [
        tuple(plain(row[name]) for name in named) for row in sorted(found, key=lambda row: row["k"])
    ]


def plain(value: Any) -> Any:
    """Zeros of both signs are one number, and whole doubles are integers."""
    return value + 0.0 if isinstance(value, (int, float)) and value is not True else value


def column(table: Any, rule: Any) -> list[Any]:
    (*found,) = (row[0] for row in answers(table, rules.resolved(table, rule, kind="any")))
    return found


# ------------------------------------------------------------------ an oracle that is Python alone


def known(x: Any) -> Any:
    """A value as rules see it: NaN is missing."""
    return None if x is None or x != x else x


def near(x: Any) -> Any:
    """A number as arithmetic sees it: a double in range."""
    if known(x) is None:
        return None
    x = float(x)
    if abs(x) > 2.0**200:
        return math.copysign(2.0**200, x)
    return 0.0 if abs(x) < 2.0**-200 else x


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is missing where one of its arguments is."""
    return lambda *given: None if any(known(x) is None for x in given) else function(*given)


@strict
def quotient(x: float, y: float) -> float | None:
    return x / y if y else None


@strict
def root(x: float) -> float | None:
    return math.sqrt(x) if x >= 0 else None


@strict
def floor(x: float) -> float:
    return float(math.floor(x))


@strict
def clipped(x: Any, low: Any, high: Any) -> Any:
    return low if x < low else high if x > high else x


def both(x: Any, y: Any) -> Any:
    return False if x is False or y is False else None if x is None or y is None else True


def opposite(x: Any) -> Any:
    return None if x is None else not x


def either(x: Any, y: Any) -> Any:
    return opposite(both(opposite(x), opposite(y)))


def first(*given: Any) -> Any:
    return next((x for x in map(known, given) if x is not None), None)


@dataclass(frozen=True)
class Case:
    """A rule, and what it is of one row in Python."""

    rule: Callable[[Any], Any]
    of: Callable[[Row], Any]
    engines: tuple[str, ...] = ("duckdb", "polars", "postgres")


NO_POLARS = ("duckdb", "postgres")
lt, le = strict(lambda x, y: x < y), strict(lambda x, y: x <= y)
eq, ne = strict(lambda x, y: x == y), strict(lambda x, y: x != y)
CASES: dict[str, Case] = {
    "column": Case(lambda t: t.x + 0, lambda r: near(r["x"])),
    "alias": Case(lambda t: (t.x + 0).name("z"), lambda r: near(r["x"])),
    "negate": Case(lambda t: -t.x + 0, lambda r: strict(lambda x: -x)(near(r["x"]))),
    "abs": Case(lambda t: t.x.abs() + 0, lambda r: strict(abs)(near(r["x"]))),
    "add": Case(
        lambda t: t.x + t.y, lambda r: strict(lambda x, y: x + y)(near(r["x"]), near(r["y"]))
    ),
    "subtract": Case(
        lambda t: t.x - t.y, lambda r: strict(lambda x, y: x - y)(near(r["x"]), near(r["y"]))
    ),
    "multiply": Case(
        lambda t: t.x * t.y, lambda r: strict(lambda x, y: x * y)(near(r["x"]), near(r["y"]))
    ),
    "integers-multiply": Case(
        lambda t: t.i * t.i * t.j,
        lambda r: strict(lambda i, j: float(i) * float(i) * float(j))(r["i"], r["j"]),
    ),
    "divide": Case(lambda t: t.x / t.y, lambda r: quotient(near(r["x"]), near(r["y"])), NO_POLARS),
    "divide-by-three": Case(lambda t: t.x / 3, lambda r: quotient(near(r["x"]), 3.0), NO_POLARS),
    "divide-by-four": Case(lambda t: t.x / 4, lambda r: quotient(near(r["x"]), 4.0)),
    "divide-integers": Case(
        lambda t: t.i / t.j,
        lambda r: strict(lambda i, j: quotient(float(i), float(j)))(r["i"], r["j"]),
        NO_POLARS,
    ),
    "floor-divide": Case(
        lambda t: t.x // t.y, lambda r: floor(quotient(near(r["x"]), near(r["y"]))), NO_POLARS
    ),
    "decades": Case(lambda t: t.i // 10, lambda r: floor(quotient(near(r["i"]), 10.0)), NO_POLARS),
    "modulus": Case(lambda t: t.i % 7, lambda r: strict(lambda i: i % 7)(r["i"])),
    "square": Case(lambda t: t.x**2, lambda r: strict(lambda x: x * x)(near(r["x"]))),
    "cube": Case(lambda t: t.y**3, lambda r: strict(lambda x: x * x * x)(near(r["y"]))),
    "root": Case(lambda t: t.x.sqrt(), lambda r: root(near(r["x"]))),
    "floor": Case(lambda t: t.x.floor(), lambda r: floor(near(r["x"]))),
    "ceil": Case(
        lambda t: t.x.ceil(), lambda r: strict(lambda x: float(math.ceil(x)))(near(r["x"]))
    ),
    "grid": Case(
        lambda t: (t.x * 1024 + 0.5).floor() / 1024,
        lambda r: strict(lambda x: math.floor(x * 1024 + 0.5) / 1024)(near(r["x"])),
    ),
    "clip": Case(lambda t: t.x.clip(0, 10), lambda r: clipped(near(r["x"]), 0.0, 10.0)),
    "clip-by-column": Case(
        lambda t: t.x.clip(-1, t.y),
        lambda r: clipped(known(r["x"]), -1.0, known(r["y"])),
    ),
    "greatest": Case(
        lambda t: ibis.greatest(t.x, t.y, t.i),
        lambda r: strict(lambda *v: max(map(float, v)))(r["x"], r["y"], r["i"]),
    ),
    "least": Case(
        lambda t: ibis.least(t.x, t.y), lambda r: strict(lambda *v: min(v))(r["x"], r["y"])
    ),
    "literals": Case(
        lambda t: t.x * 0.30000000000000004 + 1e-5,
        lambda r: strict(lambda x: x * 0.30000000000000004 + 1e-5)(near(r["x"])),
    ),
    "literals-alone": Case(
        lambda t: ibis.ifelse(t.b, 0.1, 0.7) * ibis.ifelse(t.c, 0.1, 0.3),
        lambda r: (0.1 if r["b"] else 0.7) * (0.1 if r["c"] else 0.3),
    ),
    "cast": Case(lambda t: t.i.cast("float64"), lambda r: strict(float)(r["i"])),
    "cast-integer": Case(lambda t: t.j.cast("int64"), lambda r: r["j"]),
    "cast-truth": Case(lambda t: t.b.cast("int64"), lambda r: strict(int)(r["b"])),
    "truths": Case(lambda t: t.b + t.c, lambda r: strict(lambda b, c: b + c)(r["b"], r["c"])),
    "decimals": Case(lambda t: t.n * 3, lambda r: strict(lambda n: float(n) * 3)(r["n"])),
    "floats": Case(lambda t: t.f * 3, lambda r: strict(lambda f: f * 3)(near(r["f"]))),
    "try-cast": Case(
        lambda t: t.s.try_cast("float64"),
        lambda r: {"1.5": 1.5, "1e999": INF, "-7": -7.0, "1e-999": 0.0}.get(r["s"]),
        ("duckdb", "polars"),
    ),
    "try-cast-integer": Case(lambda t: t.i.try_cast("float64"), lambda r: strict(float)(r["i"])),
    "less": Case(lambda t: t.x < t.y, lambda r: lt(r["x"], r["y"])),
    "less-equal": Case(lambda t: t.x <= 0, lambda r: le(r["x"], 0)),
    "greater": Case(lambda t: t.x > 1e300, lambda r: lt(1e300, r["x"])),
    "greater-equal": Case(lambda t: t.j >= 300, lambda r: le(300, r["j"])),
    "equal": Case(lambda t: t.x == t.y, lambda r: eq(r["x"], r["y"])),
    "not-equal": Case(lambda t: ~(t.x != 0), lambda r: opposite(ne(r["x"], 0))),
    "equal-integers": Case(lambda t: t.i == 2**53 + 1, lambda r: eq(r["i"], 2**53 + 1)),
    "equal-texts": Case(lambda t: t.s == "a", lambda r: eq(r["s"], "a")),
    "equal-truths": Case(lambda t: t.b == t.c, lambda r: eq(r["b"], r["c"])),
    "between": Case(lambda t: t.x.between(-1, 1), lambda r: strict(lambda x: -1 <= x <= 1)(r["x"])),
    "isin": Case(
        lambda t: t.i.isin([1, 300, 2**63 - 1]),
        lambda r: strict(lambda i: i in (1, 300, 2**63 - 1))(r["i"]),
    ),
    "isin-texts": Case(
        lambda t: t.s.isin(["a", "x'y", "_\\", "İ"]),
        lambda r: strict(lambda s: s in ("a", "x'y", "_\\", "İ"))(r["s"]),
    ),
    "isin-doubles": Case(
        lambda t: t.x.isin([0, 0.1]), lambda r: strict(lambda x: x in (0, 0.1))(r["x"])
    ),
    "notin": Case(lambda t: t.i.notin([1, 7]), lambda r: strict(lambda i: i not in (1, 7))(r["i"])),
    "and": Case(lambda t: t.b & t.c, lambda r: both(r["b"], r["c"])),
    "or": Case(lambda t: t.b | t.c, lambda r: either(r["b"], r["c"])),
    "xor": Case(lambda t: t.b ^ t.c, lambda r: ne(r["b"], r["c"])),
    "not": Case(lambda t: ~t.b, lambda r: opposite(r["b"])),
    "if": Case(lambda t: ibis.ifelse(t.b, t.x, t.i), lambda r: known(r["x"]) if r["b"] else r["i"]),
    "cases": Case(
        lambda t: ibis.cases((t.x > 1, 1), (t.b, 2.5), else_=None),
        lambda r: 1 if lt(1, r["x"]) else 2.5 if r["b"] else None,
    ),
    "null": Case(lambda t: t.x.isnull(), lambda r: known(r["x"]) is None),
    "not-null": Case(lambda t: t.x.notnull(), lambda r: known(r["x"]) is not None),
    "coalesce": Case(
        lambda t: ibis.coalesce(t.x, t.y, t.i), lambda r: first(r["x"], r["y"], r["i"])
    ),
    "fill-null": Case(lambda t: t.i.fill_null(-1), lambda r: first(r["i"], -1)),
    "nullif": Case(lambda t: t.i.nullif(0), lambda r: r["i"] or None),
    "nullif-text": Case(lambda t: t.s.nullif("a"), lambda r: None if r["s"] == "a" else r["s"]),
    "contains": Case(lambda t: t.s.contains("a"), lambda r: strict(lambda s: "a" in s)(r["s"])),
    "contains-point": Case(
        lambda t: t.s.contains("."), lambda r: strict(lambda s: "." in s)(r["s"])
    ),
    "contains-percent": Case(
        lambda t: t.s.contains("%"), lambda r: strict(lambda s: "%" in s)(r["s"])
    ),
    "starts": Case(
        lambda t: t.s.startswith("a"), lambda r: strict(lambda s: s.startswith("a"))(r["s"])
    ),
    "ends": Case(lambda t: t.s.endswith("a"), lambda r: strict(lambda s: s.endswith("a"))(r["s"])),
    "length": Case(lambda t: t.s.length(), lambda r: strict(len)(r["s"]), NO_POLARS),
    "slice": Case(lambda t: t.s[1:3], lambda r: strict(lambda s: s[1:3])(r["s"])),
    "beginning": Case(lambda t: t.s[:1], lambda r: strict(lambda s: s[:1])(r["s"])),
    "substring": Case(lambda t: t.s.substr(0, 2), lambda r: strict(lambda s: s[:2])(r["s"])),
    "year": Case(lambda t: t.d.year(), lambda r: strict(lambda d: d.year)(r["d"])),
    "quarter": Case(
        lambda t: t.d.quarter(), lambda r: strict(lambda d: (d.month + 2) // 3)(r["d"])
    ),
    "month": Case(lambda t: t.w.month(), lambda r: strict(lambda w: w.month)(r["w"])),
    "day": Case(lambda t: t.w.day(), lambda r: strict(lambda w: w.day)(r["w"])),
    "hour": Case(lambda t: t.w.hour(), lambda r: strict(lambda w: w.hour)(r["w"])),
    "minute": Case(lambda t: t.w.minute(), lambda r: strict(lambda w: w.minute)(r["w"])),
    "weekday": Case(
        lambda t: t.d.day_of_week.index(), lambda r: strict(lambda d: d.weekday())(r["d"])
    ),
    "weekday-of-time": Case(
        lambda t: t.w.day_of_week.index(), lambda r: strict(lambda w: w.weekday())(r["w"])
    ),
    "date": Case(
        lambda t: t.w.date() == dt.date(2024, 2, 29),
        lambda r: strict(lambda w: w.date() == dt.date(2024, 2, 29))(r["w"]),
    ),
    "later": Case(
        lambda t: t.d > dt.date(1970, 1, 1),
        lambda r: strict(lambda d: d > dt.date(1970, 1, 1))(r["d"]),
    ),
    "from": Case(
        lambda t: t.w >= dt.datetime(1969, 12, 31, 23, 59, 59, 500000),
        lambda r: strict(lambda w: w >= dt.datetime(1969, 12, 31, 23, 59, 59, 500000))(r["w"]),
    ),
    "constant": Case(lambda t: ibis.literal(1.5), lambda r: 1.5),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CASES)
def test_an_allowed_operation_is_the_same_on_every_engine(table: Any, name: str) -> None:
    case = CASES[name]
    if table.get_backend().name not in case.engines:
        with pytest.raises(ParameterError, match=r"^where must (be the same|not read)"):
            rules.resolved(table, case.rule, kind="any")
        return
    expected = [plain(case.of(row)) for row in ROWS]
    assert column(table, case.rule) == expected


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CASES)
def test_no_part_of_a_rule_fails_where_the_rule_does_not_need_it(duckdb: Any, name: str) -> None:
    """Engines may compute all cases of a choice before they choose."""
    assert no_part_fails(duckdb, name)


def test_every_allowed_operation_has_a_case() -> None:
    unbound = ibis.memtable(COLUMNS)
    used = {
        type(op).__name__
        for case in CASES.values()
        for op in unbound.bind(case.rule)[0].op().find(ibis.expr.operations.Value)
    }
    assert used >= set(OPERATIONS)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
def test_a_condition_that_is_missing_is_false(duckdb: Any, name: str) -> None:
    case, expected = CASES[name], [CASES[name].of(row) for row in ROWS]
    if not {True, False} & set(map(type_of, expected)):
        with pytest.raises(ParameterError, match="must be a condition, got a value of type"):
            rules.resolved(duckdb, case.rule)
        return
    found = [row[0] for row in answers(duckdb, rules.resolved(duckdb, case.rule))]
    assert found == [value is True for value in expected]


def type_of(value: Any) -> Any:
    return value if isinstance(value, bool) else None


def test_a_row_alone_has_the_value_that_it_has_among_others(duckdb: Any) -> None:
    """Engines compute a column of one value, or of equal values, in other ways."""
    several = {name: case.rule for name, case in CASES.items() if "polars" in case.engines}
    for row in ROWS[::45]:
        one = pa.Table.from_pylist([row], schema=COLUMNS.schema)
        for alone in (
            ibis.polars.connect({"t": pl.from_arrow(one)}).table("t"),
            ibis.memtable(one),
        ):
            found = answers(
                alone,
                *(rules.resolved(alone, rule, kind="any") for rule in several.values()),
            )
            assert found == [tuple(plain(CASES[name].of(row)) for name in several)]


# ------------------------------------------------------------------ drawn expressions


def drawn(random: random.Random, depth: int) -> tuple[Callable[[Any], Any], Callable[[Row], Any]]:
    """An expression of numbers, with its value in Python; columns enter through arithmetic."""
    if depth == 0:
        name = random.choice("xyijnf")
        if random.random() < 0.3:
            number = random.choice([0.1, 3, -2.5, 1e-9, 2**40, 0])
            return lambda t: ibis.literal(number), lambda r: float(number)
        return lambda t: t[name] + 0, lambda r: strict(lambda x: x + 0.0)(near(r[name]))
    (p, f), (q, g), (s, h) = (drawn(random, random.randrange(depth)) for _ in range(3))
    low, high = sorted(random.choices([-1e6, -1, 0, 0.25, 1e9], k=2))
    options: list[tuple[Callable[[Any], Any], Callable[[Row], Any]]] = [
        (lambda t: p(t) + q(t), lambda r: strict(lambda x, y: x + y)(f(r), g(r))),
        (lambda t: p(t) - q(t), lambda r: strict(lambda x, y: x - y)(f(r), g(r))),
        (lambda t: p(t) * q(t), lambda r: strict(lambda x, y: x * y)(f(r), g(r))),
        (lambda t: p(t) / q(t), lambda r: quotient(f(r), g(r))),
        (lambda t: p(t) // q(t), lambda r: floor(quotient(f(r), g(r)))),
        (lambda t: p(t).sqrt(), lambda r: root(f(r))),
        (lambda t: p(t).abs(), lambda r: strict(abs)(f(r))),
        (lambda t: p(t).floor(), lambda r: floor(f(r))),
        (lambda t: p(t).clip(low, high), lambda r: clipped(f(r), float(low), float(high))),
        (lambda t: ibis.ifelse(p(t) < q(t), s(t), q(t)), lambda r: (h if lt(f(r), g(r)) else g)(r)),
        (lambda t: ibis.coalesce(p(t), q(t)), lambda r: first(f(r), g(r))),
        (lambda t: ibis.greatest(p(t), q(t)), lambda r: strict(max)(f(r), g(r))),
    ]
    return random.choice(options)


def resolved_or_refusal(table: Any, rule: Any) -> Any:
    try:
        return rules.resolved(table, rule, kind="number")
    except ParameterError as error:
        return str(error)


def drawn_rules_agree(table: Any, seed: int, many: int, depth: int) -> int:
    """How many of the drawn rules were within range; all of them agree with Python."""
    source = random.Random(seed)
    pairs = []
    for _turn in range(many):
        rule, of = drawn(source, depth)
        expression = resolved_or_refusal(table, rule)
        if isinstance(expression, str):
            assert "must stay within 2^-1000 and 2^1000" in expression
        else:
            pairs.append((expression, of))
    found = answers(table, *(expression for expression, _of in pairs))
    for row, values in zip(ROWS, found, strict=True):
        assert values == tuple(plain(of(row)) for _expression, of in pairs)
    return len(pairs)


def test_drawn_rules_agree_with_python(duckdb: Any) -> None:
    assert drawn_rules_agree(duckdb, seed=1, many=12, depth=3) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_many_drawn_rules_agree_with_python(duckdb: Any, seed: int) -> None:
    assert drawn_rules_agree(duckdb, seed=seed, many=25, depth=4) >= 8


@pytest.mark.slow
def test_drawn_rules_agree_on_postgresql(postgres: Server) -> None:
    address = postgres.create_database()
    connection = ibis.connect(address.replace("postgresql+psycopg", "postgresql"))
    table = connection.create_table("t", COLUMNS)
    assert sum(drawn_rules_agree(table, seed=seed, many=12, depth=3) for seed in range(12)) >= 70
    connection.disconnect()
    postgres.drop_database(address)


# ------------------------------------------------------------------ points

GRIDS = [
    (-10, 10, 1.0),
    (-(2**40), 2**40, 2.0**-10),
    (-(2**52), 2**52, 2.0**-40),
    (2**52 - 3, 2**52 - 1, 1.0),
    (-(2**52), 2**52, 2.0**900),
    (-5, 2**52 - 1, 2.0**-900),
    (0, 1, 0.5),
]


@pytest.mark.parametrize("grid", GRIDS)
def test_points_on_engines_are_those_of_numpy(table: Any, grid: tuple[int, int, float]) -> None:
    names = list("xyfijnb")
    expressions = [points(table[name], *grid) for name in names]
    found = list(zip(*answers(table, *expressions), strict=True))
    for name, values in zip(names, found, strict=True):
        array = np.array([row[name] for row in ROWS], dtype=object)
        assert list(values) == numpy_points(array, *grid).tolist()


def drawn_doubles(seed: int, many: int) -> list[float]:
    """Doubles of all magnitudes: every pattern of bits is as likely."""
    source = random.Random(seed)
    return [struct.unpack("<d", source.randbytes(8))[0] for _i in range(many)]


@pytest.mark.parametrize("grid", GRIDS)
def test_points_of_drawn_doubles_are_the_formula(grid: tuple[int, int, float]) -> None:
    low, high, step = grid
    near_half = [(k + half) * step for k in (low, high - 1, 0) for half in (0.5, 0.5 - 2**-54)]
    values = [*drawn_doubles(7, 300), *near_half, *(x * step for x in (0.1, -0.7, 1e9 + 0.5))]
    table = ibis.memtable(pa.table({"k": range(len(values)), "x": values}))
    engine = [row[0] for row in answers(table, points(table.x, low, high, step))]
    expected = []
    for x in values:
        x = low * step if x != x else min(max(x, low * step), high * step)
        # x / step + 1/2, rounded once to the nearest double
        expected.append(math.floor(float(Fraction(x) / Fraction(step) + Fraction(1, 2))))
    assert numpy_points(np.array(values), low, high, step).tolist() == expected
    assert engine == expected
    assert all(low <= point <= high for point in expected)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ((0, 1, 0.3), "step must be a power of two, got 0.3"),
        ((0, 1, math.nan), "step must be a power of two, got nan"),
        ((0, 1, 2.0**901), r"step must be in \[2\^-900, 2\^900\], got 1.69"),
        ((0, 2**52 + 1, 1.0), "high must be at most 2\\^52 steps from 0: choose a coarser step"),
        ((-(2**53), 1, 1.0), "low must be at most 2\\^52 steps from 0: choose a coarser step"),
        ((2, 1, 1.0), "low must be at most high = 1, got 2"),
    ],
)
def test_a_grid_whose_points_are_not_exact_is_refused(
    duckdb: Any, grid: tuple[int, int, float], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        points(duckdb.x, *grid)
    with pytest.raises(ParameterError, match=message):
        numpy_points(np.zeros(2), *grid)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("s", r'got one of type string: t.s.try_cast\("float64"\) reads texts as numbers'),
        ("d", r"column must be a column of numbers, got one of type date$"),
    ],
)
def test_points_of_what_is_no_number_are_refused(duckdb: Any, name: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        points(duckdb[name], 0, 1, 1.0)
    with pytest.raises(ParameterError, match=message.replace("column must", "where must")):
        rules.resolved(duckdb, name, kind="number")


# ------------------------------------------------------------------ refusals


@ibis.udf.scalar.builtin
def logit(x: float) -> float:
    """A user's function, of which nothing is known."""
    raise AssertionError


class Add(ibis.expr.operations.NumericBinary):  # type: ignore[misc]
    """An operation of another library that is called as an allowed one is."""

    dtype = ibis.dtype("float64")


OTHER = ibis.memtable(pa.table({"x": [1.0]}))
REFUSED: list[tuple[Any, str]] = [
    (lambda t: t.x > t.x.mean(), r"look at one row alone, got Mean \(it looks across rows\)"),
    (lambda t: t.x.sum() > 0, r"got Sum \(it looks across rows\)"),
    (lambda t: t.count() > 0, r"got CountStar \(it looks across rows\)"),
    (lambda t: t.x.rank() > 1, r"got WindowFunction \(it looks across rows\)"),
    (lambda t: t.x.lag() > 1, r"got \w+ \(it looks across rows\)"),
    (lambda t: ibis.row_number() > 1, r"got \w+ \(it looks across rows\)"),
    (lambda t: t.x > OTHER.x, r"got Field \(it looks at another table\)"),
    (lambda t: t.x.isin(OTHER.x), r"got InSubquery \(it looks at another table\)"),
    (lambda t: t.x > OTHER.x.max().as_scalar(), r"got ScalarSubquery \(it looks at another table"),
    (lambda t: ibis.random() < 0.5, r"got RandomScalar \(it changes from one time to the next\)"),
    (lambda t: t.w < ibis.now(), r"got TimestampNow \(it changes from one time to the next\)"),
    (lambda t: t.d < ibis.today(), r"got DateNow \(it changes from one time to the next\)"),
    (lambda t: t.rowid() > 3, r"got RowID \(it is not among the operations that are known"),
    (lambda t: logit(t.x) > 0, r"got \w+ \(it is a function of a user, of which nothing"),
    (lambda t: Add(t.x, t.y).to_expr() > 0, r"got Add \(it is not among the operations that are"),
    (lambda t: t.x.ln() > 0, r"be the same on every engine, got Ln \(engines differ in its last"),
    (lambda t: t.x.round() > 0, r"got Round \(engines round halves differently: write \(x \+ 0.5"),
    (lambda t: t.x.isnan(), r"got IsNan \(NaN is a missing number here: use isnull\(\)\)"),
    (lambda t: t.x.isinf(), r"got IsInf \(compare with a large number instead\)"),
    (lambda t: t.s.lower() == "a", r"got Lowercase \(engines differ in the letters of Unicode"),
    (lambda t: t.s.strip() == "a", r"got Strip \(engines differ in what is a blank"),
    (lambda t: t.s.re_search("a+"), r"got RegexSearch \(engines differ in patterns"),
    (lambda t: t.s < "b", r"got Less \(engines order a string differently: compare with =="),
    (lambda t: t.s.between("a", "b"), r"got Between \(engines order a string differently"),
    (lambda t: t.s.contains(t.s), r"got StringContains \(here it needs a str that is written"),
    (lambda t: t.s.contains(""), r"got StringContains \(the text to look for must not be empty"),
    (lambda t: t.s[-1:3] == "a", r"where must be an expression of the columns .*Negative slicing"),
    (lambda t: t.s.substr(-1, 2) == "a", r"got Substring \(its positions must be in"),
    (lambda t: t.s[1:] == "a", r"got StringSlice \(here it needs a int that is written|here it"),
    (lambda t: t.s.cast("float64") > 0, r"got Cast \(a string is not made a float64 without an"),
    (lambda t: t.x.cast("int64") > 0, r"got Cast \(a double is not made a int64 .* use floor\(\)"),
    (lambda t: t.s.try_cast("date").isnull(), r"got TryCast \(a text becomes a number by try_cast"),
    (lambda t: t.x**0.5 > 0, r"got Power \(here it needs a int that is written in the rule"),
    (lambda t: t.x**5 > 0, r"got Power \(its exponent must be 1, 2, 3 or 4"),
    (lambda t: t.x % 3 > 0, r"got Modulus \(here it needs an integer, and a divisor in"),
    (lambda t: t.i % -3 > 0, r"got Modulus \(here it needs an integer, and a divisor in"),
    (lambda t: t.i.isin([1, None]), r"got InValues \(NULL is among its values: use isnull"),
    (lambda t: t.i.isin([1, t.i + 1]), r"got InValues \(here it needs values that are written"),
    (lambda t: t.d.isin([dt.date(2000, 1, 1)]), r"got InValues \(it is of a date: compare with =="),
    (lambda t: t.d == t.w.date().cast("string"), r"where must"),
    (lambda t: t.w > dt.datetime(1600, 1, 1), r"have timestamps of the years 1700 to 2260, got"),
    (lambda t: t.x > math.inf, r"where must have finite numbers, got inf"),
    (lambda t: t.s == "a\0", r"have texts of Unicode without the character 0, got"),
    (lambda t: t.s == "\ud800", r"have texts of Unicode without the character 0, got|where must"),
    (
        lambda t: t.x * t.x * t.x * t.x * t.x * t.x > 0,
        r"stay within 2\^-1000 and 2\^1000, got Multiply of numbers whose result may be too large: "
        r"clip the columns first",
    ),
    (
        lambda t: (t.x.clip(0, 1) ** 4) ** 2 > 0,
        r"got Power of numbers whose result may be too small: put the columns on a grid first",
    ),
    (lambda t: t.x, r"where must be a condition, got a value of type double"),
    ("x", r"where must be a condition, got a value of type double"),
    ("z", r"where must be one of the columns k, x, y, f, i, j, n, s, b, c, d, w, got 'z'"),
    (lambda t: t.fare > 1, r"where must be an expression of the columns k, x, .*: AttributeError"),
    (lambda t: t[["b", "c"]], r"where must be one expression, got 2"),
    (
        lambda t: t.s + t.s == "a",
        r"got StringConcat \(it is not among the operations that are known",
    ),
    (lambda t: t.s - 1, r"where must be an expression of the columns .*"),
    (
        lambda t: t.i == 2**63,
        r'got False: write a number beyond int64 as ibis.literal\(2\*\*63, "u',
    ),
    (_.i != 2**63, r"where must be an expression of the columns, got True: write a number beyond"),
    (lambda t: None, r"be an expression of the columns, got None: .* as ibis.literal\(True\)"),
    (lambda t: True, r"be an expression of the columns, got True: .* as ibis.literal\(True\)"),
    (lambda t: "b", r"where must be an expression of the columns, got str: write"),
    (lambda t: t.x.mean().execute() > 1, r"where must be an expression .* cannot be executed"),
]


@pytest.mark.parametrize(("rule", "message"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_a_rule_that_looks_beyond_a_row_or_may_fail_is_refused(
    duckdb: Any, rule: Any, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        rules.resolved(duckdb, rule)


def test_a_name_and_a_deferred_expression_are_rules(duckdb: Any) -> None:
    assert column(duckdb, "i") == [plain(row["i"]) for row in ROWS]
    assert column(duckdb, _.x < _.y) == column(duckdb, lambda t: t.x < t.y)
    found = [row[0] for row in answers(duckdb, rules.resolved(duckdb, "b"))]
    assert found == [row["b"] is True for row in ROWS]


class Watching:
    """A rule that keeps the tables that it was called with, and asks each for its rows."""

    def __init__(self) -> None:
        self.tables: list[Any] = []

    def __call__(self, table: Any) -> Any:
        self.tables.append(table)
        try:
            mean = float(table.x.mean().execute())
        except Exception:
            mean = 0.0
        return table.x > mean


def no_rule_sees_rows() -> bool:
    """Whether a rule is called once, on a table without rows, and says nothing of them."""
    table, rule = ibis.memtable({"x": [1.0, 2.0, 5.0]}), Watching()
    asked: list[Callable[[], Any]] = [
        lambda: rules.resolved(table, rule),
        lambda: rules.resolved(table.filter(table.x > 0), rule, kind="any"),
        lambda: rules.written(table, rule),
    ]
    for number, ask in enumerate(asked, start=1):
        ask()
        if len(rule.tables) != number:
            return False
    if rules.written(table, rule) != "Greater(x, 0.0)":
        return False
    bound = ibis.expr.operations.PhysicalTable
    return all(
        isinstance(one.op(), ibis.expr.operations.UnboundTable)
        and one.op().find(bound) == [one.op()]
        for one in rule.tables
    )


def test_a_rule_is_called_once_and_never_with_rows() -> None:
    assert no_rule_sees_rows()


def test_a_rule_that_counts_its_calls_is_what_it_was_at_this_call(duckdb: Any) -> None:
    calls: list[Any] = []

    def more(table: Any) -> Any:
        calls.append(table)
        return table.i > len(calls)

    for number in (1, 2, 3):
        assert column(duckdb, more) == column(duckdb, lambda t, n=number: t.i > n)
    assert len(calls) == 3


WIDE = [0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]
SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
}


def _wide(numbers: list[int | None], kind: str) -> Any:
    """A column of Arrow, of integers or of decimals without a fraction."""
    if kind == "uint64":
        return pa.array(numbers, pa.uint64())
    digits = int(kind.partition("(")[2].partition(",")[0])
    exact = [None if n is None else Decimal(n) for n in numbers]
    return pa.array(exact, pa.decimal128(digits, 0))


def wide_integers_are_exact(kind: str = "uint64") -> bool:
    """Whether integers beyond int64 are compared as integers, and not as doubles."""
    numbers = [*WIDE, None]
    table = ibis.memtable(pa.table({"u": _wide(numbers, kind)}))
    written = {n: ibis.literal(n, "uint64") for n in WIDE}
    asked = {
        f"{sign}{n}": rules.resolved(table, lambda t, c=compare, n=n: c(t.u, written[n]))
        for sign, compare in SIGNS.items()
        for n in WIDE
    }
    asked["in"] = rules.resolved(table, lambda t: t.u.isin([written[2**63 + 1], 2**53, 7]))
    found = table.get_backend().to_pyarrow(table.select(**asked)).to_pydict()
    expected = {
        f"{sign}{n}": [u is not None and compare(u, n) for u in numbers]
        for sign, compare in SIGNS.items()
        for n in WIDE
    }
    expected["in"] = [u in (2**63 + 1, 2**53) for u in numbers]
    return bool(found == expected)


@pytest.mark.parametrize("kind", ["uint64", "decimal(20, 0)", "decimal(38, 0)"])
def test_integers_beyond_int64_are_compared_exactly(kind: str) -> None:
    assert wide_integers_are_exact(kind)


def test_integers_beyond_int64_are_numbers_in_arithmetic() -> None:
    table = ibis.memtable(pa.table({"u": _wide([*WIDE, None], "uint64")}))
    made = rules.resolved(table, lambda t: t.u * 2 + 1, kind="number")
    found = table.get_backend().to_pyarrow(table.select(y=made))["y"].to_pylist()
    assert found == [*(float(u) * 2 + 1 for u in WIDE), None]


def test_a_rule_of_a_derived_table_may_name_its_parent(duckdb: Any) -> None:
    derived = duckdb.mutate(z=duckdb.x)
    assert column(derived, duckdb.x + 0) == column(duckdb, lambda t: t.x + 0)


def test_an_expression_that_is_too_long_is_refused(duckdb: Any) -> None:
    def long(t: Any) -> Any:
        return sum((t.i for _turn in range(400)), t.i) > 0

    def wide(t: Any) -> Any:
        value = t.x
        for _turn in range(8):
            value = ibis.greatest(value, -value, value)
        return value > 0

    for rule in (long, wide):
        with pytest.raises(ParameterError, match="where must be shorter"):
            rules.resolved(duckdb, rule)


def test_a_number_of_unknown_size_is_refused() -> None:
    table = ibis.table({"n": "decimal"}, name="t")
    with pytest.raises(ParameterError, match="must be a column of numbers of known size, got dec"):
        rules.resolved(table, lambda t: t.n > 0)


def test_other_types_are_refused_by_name() -> None:
    table = ibis.table({"a": "array<int64>", "w": "timestamp('UTC')"}, name="t")
    for name, kind in (("a", "array<int64>"), ("w", "timestamp")):
        message = f"must not look at columns of type {kind}.*, got '{name}'"
        with pytest.raises(ParameterError, match=message):
            rules.resolved(table, lambda t, name=name: t[name].isnull())


UNUSUAL = """
    SELECT 0 AS k, CAST('infinity' AS date) AS d, CAST('infinity' AS timestamp) AS w UNION ALL
    SELECT 1, CAST('-infinity' AS date), CAST('-infinity' AS timestamp) UNION ALL
    SELECT 2, CAST('290000-01-01' AS date), CAST('290000-01-01' AS timestamp)
"""


def unusual_dates(connection: Any) -> list[tuple[Any, ...]]:
    table = connection.sql(UNUSUAL, schema={"k": "int64", "d": "date", "w": "timestamp(6)"})
    asked = [
        *(_.d.year(), _.w.month(), _.w.hour(), _.d.day_of_week.index()),
        *(_.w.date() > dt.date(2000, 1, 1), _.d > dt.date(2000, 1, 1)),
    ]
    return answers(table, *(rules.resolved(table, rule, kind="any") for rule in asked))


def variables_are_refused() -> bool:
    """Whether a text that Databricks may replace is refused there, and nowhere else."""
    table = SimpleNamespace(get_backend=lambda: SimpleNamespace(name="databricks"))
    try:
        Reader(table, "where", OPERATIONS).check_text("a${x}")
    except ParameterError as error:
        Reader(ibis.memtable({"s": ["a"]}), "where", OPERATIONS).check_text("a${x}")
        return "have no text with ${ on databricks, a variable there, got 'a${x}'" in str(error)
    return False


def test_a_text_that_is_a_variable_is_refused() -> None:
    assert variables_are_refused()


def test_dates_beyond_the_usual_years_are_missing() -> None:
    assert unusual_dates(ibis.duckdb.connect()) == [(None,) * 6] * 3


@pytest.mark.slow
def test_dates_beyond_the_usual_years_are_missing_on_postgresql(postgres: Server) -> None:
    address = postgres.create_database()
    connection = ibis.connect(address.replace("postgresql+psycopg", "postgresql"))
    assert unusual_dates(connection) == [(None,) * 6] * 3
    connection.disconnect()
    postgres.drop_database(address)


@pytest.mark.slow
def test_a_decimal_that_is_not_a_number_is_missing(postgres: Server) -> None:
    address = postgres.create_database()
    connection = ibis.connect(address.replace("postgresql+psycopg", "postgresql"))
    postgres_rows = "SELECT 0 AS k, CAST('NaN' AS numeric(10, 2)) AS n"
    table = connection.sql(postgres_rows, schema={"k": "int64", "n": "decimal(10, 2)"})
    asked = [_.n.isnull(), _.n > 0, _.n + 1]
    expressions = [rules.resolved(table, rule, kind="any") for rule in asked]
    found = answers(table, *expressions, points(table.n, -3, 3, 1.0))
    assert found == [(True, None, None, -3)]
    connection.disconnect()
    postgres.drop_database(address)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_precision_are_read(unit: str) -> None:
    times = pa.array([0, None], pa.timestamp(unit))
    rows = pa.table({"k": [0, 1], "w": times})
    for table in (ibis.memtable(rows), ibis.polars.connect({"t": pl.from_arrow(rows)}).table("t")):
        asked = [
            _.w.year(),
            _.w > dt.datetime(1960, 1, 1),
            _.w < dt.datetime(2260, 1, 1),
            _.w == _.w,
        ]
        found = answers(table, *(rules.resolved(table, rule, kind="any") for rule in asked))
        assert found == [(1970, True, True, True), (None,) * 4]


def test_timestamps_of_nanoseconds_do_not_meet_others() -> None:
    rows = pa.table(
        {"v": pa.array([0], pa.timestamp("ns")), "w": pa.array([0], pa.timestamp("us"))}
    )
    with pytest.raises(ParameterError, match="it is of values of the types nanoseconds, timestamp"):
        rules.resolved(ibis.memtable(rows), lambda t: t.v < t.w)


# ------------------------------------------------------------------ guards


def agree(*names: str) -> bool:
    """Whether some cases have on DuckDB the values that they have in Python."""
    table = ibis.memtable(COLUMNS)
    found = answers(table, *(rules.resolved(table, CASES[n].rule, kind="any") for n in names))
    return found == [tuple(plain(CASES[n].of(row)) for n in names) for row in ROWS]


def refuses(rule: Any, table: Any = None) -> bool:
    try:
        rules.resolved(ibis.memtable(COLUMNS) if table is None else table, rule, kind="any")
    except ParameterError:
        return True
    return False


def moment_of_another_century() -> bool:
    return refuses(lambda t: t.w > dt.datetime(1600, 1, 1))


def texts_on_postgresql() -> bool:
    table: Any = SimpleNamespace(get_backend=lambda: ibis.postgres)
    try:
        Reader(table, "where", OPERATIONS).check_try_cast()
    except ParameterError as error:
        return "must not read numbers from texts on postgres" in str(error)
    return False


def no_infinite_year() -> bool:
    return unusual_dates(ibis.duckdb.connect()) == [(None,) * 6] * 3


def on_polars() -> Any:
    return ibis.polars.connect({"t": pl.from_arrow(COLUMNS)}).table("t")


def no_part_fails(table: Any, *names: str) -> bool:
    """Whether each part of a rule has a value in each row, also where the rule does not need it."""
    values = ibis.expr.operations.Value
    for name in names:
        rule = rules.resolved(table, CASES[name].rule, kind="any")
        answers(table, *(op.to_expr() for op in rule.op().find(values)))
    return True


def missing_conditions_are_false() -> bool:
    table = ibis.memtable(COLUMNS)
    found = answers(table, rules.resolved(table, CASES["less"].rule))
    return None not in {row[0] for row in found}


MUTATIONS = [
    Without("texts are variables", {"no-variables": "if False:"}, variables_are_refused),
    Without(
        "a rule is called with rows",
        {"rules-see-no-rows": "columns = table"},
        no_rule_sees_rows,
    ),
    Without(
        "wide integers are doubles",
        {"wide-integers-exact": 'wide = value.cast("float64").cast(WIDE)'},
        wide_integers_are_exact,
    ),
    Without(
        "an operation that is not on the list is refused",
        {"allowed-operations": "if read is None:"},
        lambda: refuses(lambda t: Add(t.x, t.y).to_expr()),
    ),
    Without(
        "another table's column is refused",
        {"own-columns": "if False:"},
        lambda: refuses(lambda t: t.x > OTHER.x),
    ),
    Without(
        "an overflow is refused",
        {"no-overflow": "if False:"},
        lambda: refuses(lambda t: (t.x**4) ** 4),
    ),
    Without(
        "a missing condition is false",
        {"a-missing-condition-is-false": "return value.as_kind('boolean')"},
        missing_conditions_are_false,
    ),
    Without(
        "columns are moved into range",
        {"columns-in-range": "moved = x"},
        lambda: agree("add", "multiply"),
    ),
    Without(
        "a division by zero is missing",
        {"no-division-by-zero": "return x"},
        lambda: agree("divide"),
    ),
    Without(
        "the root of a negative number is missing",
        {"no-root-of-negatives": "return x"},
        lambda: _succeeds(lambda: agree("root")),
    ),
    Without("NaN is missing", {"nan-is-missing": "pass"}, lambda: agree("less", "null")),
    Without(
        "literals are doubles",
        {"literals-are-doubles": "return import_ibis().literal(float(x), 'float64')"},
        lambda: _succeeds(lambda: agree("literals-alone")),
    ),
    Without(
        "floors stay within int64",
        {"floors-within-int64": "small = x"},
        lambda: _succeeds(lambda: no_part_fails(ibis.memtable(COLUMNS), "floor")),
    ),
    Without(
        "unusual dates are missing",
        {"usual-dates": "return x"},
        lambda: _succeeds(no_infinite_year),
    ),
    Without(
        "moments are within the years of nanoseconds",
        {"moments-within-nanoseconds": "if False:"},
        moment_of_another_century,
    ),
    Without(
        "texts are not read where that may fail",
        {"texts-without-errors": "if False:"},
        texts_on_postgresql,
    ),
    Without(
        "what Polars computes otherwise is refused there",
        {"not-on-polars": "if False:"},
        lambda: refuses(lambda t: t.x / 3, on_polars()),
    ),
]


def _succeeds(true: Callable[[], bool]) -> bool:
    """Whether something holds; an error of the engine is a truth that is lost, too."""
    try:
        return true()
    except (duckdb_errors.Error, pl.exceptions.PolarsError):
        return False


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_a_guard_that_is_taken_away_is_noticed(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)


def test_the_edge_values_meet_in_many_pairs() -> None:
    pairs = {(row["i"], row["j"]) for row in ROWS}
    assert len(pairs) > 50
