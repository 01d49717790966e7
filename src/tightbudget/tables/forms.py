"""Forms of columns in queries: the expressions that bring a column to its form."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any, Literal

from tightbudget.tables.columns import name_of
from tightbudget.tables.rules.expressions import WIDE, cases, usual_timestamp

# How texts come from an engine: with the collation of their column, padded with blanks, from files
# of Parquet, or as they are in tables that are made from frames.
Origin = Literal["engine", "padded", "files", "frame"]


def formed(value: Any, kind: str, origin: Origin) -> Any:
    """Returns the Ibis expression of a column in its form.

    Args:
        value: the column.
        kind: the name of its type.
        origin: how its texts come from the engine.
    """
    name = name_of(kind)
    if name == "UUIDs" and origin in ("frame", "files"):
        return value.cast("string")
    if name == "huge integers":
        # Ibis leaves out a cast to the type that it takes the column for
        return value.cast("string").try_cast(WIDE)  # guard: huge-integers
    if name == "timestamps" and origin != "frame":
        if kind != "timestamp(6)" and value.get_backend().name == "duckdb":
            # it has timestamps of seconds that no comparison can be made with
            value = value.try_cast("timestamp(6)")
        return usual_timestamp(value)  # guard: times-of-engines
    if name not in ("texts", "padded texts", "UUIDs") or origin == "frame":
        return value
    return _text_form()(value, origin).to_expr()


def without_ranges(table: Any) -> Any:
    """Returns a table in which no engine takes the range of a column of doubles for known.

    DuckDB does not look through a CASE, even if its condition is never true.
    """
    doubles = [name for name, kind in table.schema().items() if kind.is_floating()]
    # guard: nan-of-views
    hidden = {name: cases((table[name].isnull(), None), table[name]) for name in doubles}
    return table.mutate(**hidden) if hidden else table


@cache
def _text_form() -> Any:
    """Returns the operation of Ibis that writes the form of a text.

    Ibis has no COLLATE, and leaves out casts from texts to texts. It looks up how an operation is
    written by the operation's name among the methods of its compilers, so the one for all engines
    is put there.
    """
    operations = importlib.import_module("ibis.expr.operations")
    datatypes = importlib.import_module("ibis.expr.datatypes")
    compilers = importlib.import_module("ibis.backends.sql.compilers.base")

    body = {
        "__module__": __name__,
        "__annotations__": {"arg": operations.Value[datatypes.Any], "origin": str},
        "dtype": datatypes.string,
        "shape": importlib.import_module("ibis.expr.rules").shape_like("arg"),
    }
    made = type(operations.Value)("TightbudgetText", (operations.Value,), body)
    compilers.SQLGlotCompiler.visit_TightbudgetText = lambda compiler, op, **parts: _written(
        compiler, op, **parts
    )
    return made


def _written(compiler: Any, op: Any, *, arg: Any, origin: str) -> Any:
    """Writes the form of a text for the engine of a compiler."""
    f, dialect = compiler.f, str(compiler.dialect.__name__).lower()
    sql = importlib.import_module("sqlglot.expressions")
    if origin == "files":
        # DuckDB has put another text in the place of one that is no UTF-8, but it skips blocks of
        # rows, and whole files, by the bytes that stand in them: so one record would decide whether
        # others count. It does not look through concat, whose NULL is an empty text.
        # guard: texts-of-files
        return sql.Case(
            ifs=[sql.If(this=sql.Not(this=arg.copy().is_(sql.Null())), true=_joined(arg))]
        )
    text = sql.Cast(this=arg, to=sql.DataType.build("text", dialect="postgres"))
    if dialect in ("duckdb", "postgres"):
        # guard: texts-by-their-bytes
        return sql.Paren(
            this=sql.Collate(this=text, expression=sql.to_identifier("C", quoted=True))
        )
    if dialect in ("spark", "pyspark", "databricks"):
        # a cast takes the collation off; no text that is no UTF-8 can be read by Python
        valid = f.anon.try_validate_utf8(text)
        return f.anon.rtrim(valid) if origin == "padded" else valid
    return f.anon.collate(text, sql.Literal.string("utf8" if dialect == "snowflake" else ""))


def _joined(text: Any) -> Any:
    sql = importlib.import_module("sqlglot.expressions")
    return sql.Anonymous(this="concat", expressions=[text, sql.Literal.string("")])
