"""Reads the public domains of columns from a file of TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tightbudget.errors import FileError, TightBudgetError
from tightbudget.marginals import NumericBins
from tightbudget.text_file import read_text

_OF_VALUES, _OF_EDGES = {"values", "other"}, {"edges", "other", "integers"}


def read_domains(path: Path) -> dict[str, Any]:
    """Reads the domain of each column, in the order of the file.

    A column has a list of values, ``sex = ["f", "m"]``; or ``values`` with ``other = true`` for the
    cell of all others, ``{values = ["north", "south"], other = true}``; or edges, ``{edges = [0,
    18, 65], integers = true, other = true}``.

    Raises:
        FileError: the file cannot be read, is not TOML, or has something else.
    """
    try:
        content = tomllib.loads(read_text(path))
    except FileError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not TOML: {error}") from error
    return {name: _domain(path, name, given) for name, given in content.items()}


def _domain(path: Path, name: str, given: Any) -> Any:
    if isinstance(given, list):
        return given
    ways = "be a list of values, or a table with values or edges"
    if not isinstance(given, Mapping) or ("values" in given) == ("edges" in given):
        raise FileError(f"{path}: {name} must {ways}, got {given!r}")
    known = _OF_VALUES if "values" in given else _OF_EDGES
    for key in given:
        if key not in known:
            raise FileError(f"{path}: {name} must have no key but {_listed(known)}, got {key!r}")
    if "edges" in given:
        try:
            return NumericBins(**given)
        except TightBudgetError as error:
            raise FileError(f"{path}: {name}: {error}") from error
    values, other = given["values"], given.get("other", False)
    if not isinstance(values, list):
        raise FileError(f"{path}: {name}: values must be a list, got {values!r}")
    if not isinstance(other, bool):
        raise FileError(f"{path}: {name}: other must be true or false, got {other!r}")
    return [*values, *[None] * other]


def _listed(keys: set[str]) -> str:
    return ", ".join(sorted(keys))
