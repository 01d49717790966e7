"""No two values of one type are told apart by their place alone: a swap would type-check."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tightbudget.client
import tightbudget.ledger
from tightbudget.ledger.rows.budget_rows import balance_of_row, row_of_balance
from tightbudget.ledger.rows.run_rows import Reservation, row_of_reservation
from tightbudget.ledger.store.schema import budgets, events, reservations
from tightbudget.promises.chain import Entry

ROOMS = (tightbudget.ledger, tightbudget.client)
# whose fields of one type have an order that everybody knows
IN_ORDER = {
    "Units": "epsilon, delta",
    "Entry": "the columns of the table events",
    "Balance": "made by name alone, as a test below holds",
}


def modules() -> Iterator[ModuleType]:
    for room in ROOMS:
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if ".migrations" not in found.name:
                yield importlib.import_module(found.name)


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for room in ROOMS:
        for path in sorted(Path(room.__path__[0]).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def classes() -> Iterator[type[Any]]:
    for module in modules():
        for kind in vars(module).values():
            if inspect.isclass(kind) and kind.__module__ == module.__name__:
                yield kind


def by_place(kind: type[Any]) -> list[str]:
    """The types of the fields that the constructor takes by their place."""
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        return [str(field.type) for field in fields if field.init and not field.kw_only]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return [str(kind.__annotations__[name]) for name in kind._fields]
    return []


def test_values_with_two_fields_of_one_type_take_them_by_name() -> None:
    swapped = {
        kind.__name__
        for kind in classes()
        if any(times > 1 for times in Counter(by_place(kind)).values())
    }
    assert swapped <= set(IN_ORDER)


def test_such_a_value_is_seen() -> None:
    @dataclasses.dataclass
    class Two:
        cap: float
        left: float

    assert by_place(Two) == ["float", "float"]


def starred(tree: ast.AST) -> list[int]:
    """The lines of calls with a group of values in stars: f(*(a, b), c)."""
    return [
        argument.lineno
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for argument in call.args
        if isinstance(argument, ast.Starred)
        and isinstance(argument.value, (ast.Tuple, ast.List))
        and len(argument.value.elts) > 1
    ]


def test_no_call_has_a_group_of_values_in_stars() -> None:
    assert [(path.name, line) for path, tree in sources() for line in starred(tree)] == []
    assert starred(ast.parse("f(*(cap, left), held)")) == [1]


def test_an_event_has_the_columns_of_its_table_in_their_order() -> None:
    """A row is read as Entry(*row), and the hash is taken over all fields in this order."""
    assert Entry._fields == tuple(column.name for column in events.columns)


def test_a_row_of_budgets_is_read_and_written_by_its_columns() -> None:
    row = {column: number for number, column in enumerate(budgets.columns.keys(), start=1)}
    row |= {"closed": 1}
    read = balance_of_row(tuple(row.values()))
    assert row_of_balance(read) == row
    assert [read.cap.epsilon, read.held.delta] == [row["cap_epsilon"], row["held_delta"]]


def test_a_balance_is_made_by_name_alone() -> None:
    def placed(tree: ast.AST) -> list[int]:
        return [
            call.lineno
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and call.args
            if getattr(call.func, "id", None) == "Balance"
        ]

    assert [(path.name, line) for path, tree in sources() for line in placed(tree)] == []
    assert placed(ast.parse("Balance(cap, spent)")) == [1]


def test_a_row_of_reservations_has_the_columns_of_its_table() -> None:
    names = Reservation.__dataclass_fields__.keys() & set(reservations.columns.keys())
    values: dict[str, Any] = dict.fromkeys(names, 0)
    row = row_of_reservation(Reservation(**values, charges=()))
    assert list(row) == reservations.columns.keys()


def swappable(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Functions that take three or more arguments of one type by their place."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            given = [*function.args.posonlyargs, *function.args.args]
            types = Counter(ast.unparse(a.annotation) for a in given if a.annotation)
            if any(times > 2 for times in types.values()):
                yield function.name, function.lineno


# a door that has always been open this way: a budget and a key are texts that must exist
PUBLIC = {"events"}


def test_no_function_takes_many_arguments_of_one_type_by_their_place() -> None:
    found = {name for _, tree in sources() for name, _ in swappable(tree)}
    assert found <= PUBLIC
    assert list(swappable(ast.parse("def f(a: int, b: int, c: int): ..."))) == [("f", 1)]


@pytest.mark.parametrize(
    "name", ["BlockTerms", "Statement", "Event", "OpenHold", "ReservationView", "Preview"]
)
def test_a_value_that_is_sent_is_made_by_name_alone(name: str) -> None:
    kind = getattr(importlib.import_module("tightbudget.promises.values"), name)
    with pytest.raises(TypeError, match="positional argument"):
        kind("a", "b", "c")
