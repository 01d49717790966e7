"""A question says what each of its parameters is, also those that a base has declared."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tightbudget import tables
from tightbudget.release.mechanism import Priced
from tightbudget.tables.docstrings import with_arguments_of_bases

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = {
    name: thing
    for name, thing in ((name, getattr(tables, name)) for name in tables.__all__)
    if inspect.isclass(thing) and issubclass(thing, Priced)
}


def described(text: str) -> list[str]:
    section = text.partition("Args:\n")[2].partition("\n\n")[0]
    return re.findall(r"^ {4}(\w+): ", section, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_each_parameter_is_described_once_in_the_order_of_the_fields(name: str) -> None:
    kind = QUESTIONS[name]
    fields = [field.name for field in dataclasses.fields(kind)]
    assert sorted(described(kind.__doc__ or "")) == sorted(fields)
    assert list(inspect.signature(kind).parameters) == fields


@pytest.mark.slow
def test_the_reference_shows_what_python_shows() -> None:
    griffe: Any = pytest.importorskip("griffe")
    extensions = griffe.load_extensions(str(ROOT / "docs" / "building" / "griffe_extension.py"))
    found = griffe.load(
        "tightbudget.tables.mechanisms.grouped_sums",
        search_paths=[str(ROOT / "src")],
        extensions=extensions,
    )
    shown = found["GroupedSums"].docstring.value
    assert described(shown) == described(tables.GroupedSums.__doc__ or "")
    assert "column: a column of numbers" in shown


class Base:
    """A base.

    Args:
        low: the low end,
            in metres.
        high: the high end.
    """


class Says(Base):
    """Says something.

    Args:
        high: the top.
        more: of it.

    Raises:
        ParameterError: it is refused.
    """


class Silent(Base):
    """Says nothing.

    Raises:
        ParameterError: it is refused.
    """


class Alone:
    """Has no parameters."""


def test_a_class_speaks_before_its_base() -> None:
    assert with_arguments_of_bases(Says) == (
        "Says something.\n\nArgs:\n    low: the low end,\n        in metres.\n    high: the top.\n"
        "    more: of it.\n\nRaises:\n    ParameterError: it is refused."
    )
    assert with_arguments_of_bases(Silent) == (
        "Says nothing.\n\nArgs:\n    low: the low end,\n        in metres.\n"
        "    high: the high end.\n\nRaises:\n    ParameterError: it is refused."
    )
    assert with_arguments_of_bases(Base) == inspect.cleandoc(Base.__doc__ or "")
    assert with_arguments_of_bases(Alone).strip() == "Has no parameters."
