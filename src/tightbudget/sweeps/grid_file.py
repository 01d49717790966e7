"""TOML files of questions: a plan file with axes.

``tightbudget = 1`` is the version of the format, and may be left out. ``[[steps]]`` are those of a
plan file, in which a text "$name" takes the values of ``over.name``. An axis is a list of values,
or a table with ``first``, ``last`` and ``points``, and ``log = true`` if the points are even on a
log scale and ``whole = true`` if they are integers. Beside these: ``delta``, or ``epsilon``, or
what to ``find`` and a target; and ``rtol``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tightbudget.accounting.plan_file import parse_tables
from tightbudget.errors import FileError, TightBudgetError
from tightbudget.numerics.validate import finite, positive, refuse
from tightbudget.sweeps.question import ARGUMENTS, Question, questions
from tightbudget.text_file import read_text

_MOST_POINTS = 10_000
_AXIS = ("first", "last", "points", "log", "whole")


def read_questions(path: str | Path) -> list[Question]:
    """Reads the questions that a TOML file lists.

    Guarantee: a key that is not understood is refused, never skipped. Values are refused when they
    are asked about, in their own rows.

    Args:
        path: the file; gzipped if its name ends in .gz.

    Raises:
        FileError: the file cannot be read, or is not a file of questions; names the path and the
            reason.
    """
    content = parse_tables(read_text(path), path)
    steps, over = content.pop("steps", None), content.pop("over", {})
    for name in content:
        if name not in ARGUMENTS:
            known = ", ".join(("tightbudget", "[[steps]]", "[over]", *ARGUMENTS))
            raise FileError(f"{path}: {name!r} must be one of {known}")
    try:
        if not isinstance(steps, list) or not steps:
            raise refuse("steps", "be [[steps]] of a plan file", steps)
        if not isinstance(over, dict):
            raise refuse("over", "be a table of axes", over)
        return questions(steps, {name: _axis(name, axis) for name, axis in over.items()}, **content)
    except TightBudgetError as error:
        raise FileError(f"{path}: {error}") from error


def _axis(name: str, axis: Any) -> list[Any]:
    """Lists the values of one axis, which is a list or a table as the module describes."""
    if isinstance(axis, list):
        return axis
    must = f"be a list, or a table of {', '.join(_AXIS)}"
    if not isinstance(axis, dict) or not {*_AXIS[:3]} <= set(axis) <= {*_AXIS}:
        raise refuse(f"over.{name}", must, axis)
    for flag in ("log", "whole"):
        if not isinstance(axis.get(flag, False), bool):
            raise refuse(f"over.{name}.{flag}", "be true or false", axis[flag])
    log, whole = axis.get("log", False), axis.get("whole", False)
    number, space = (positive, np.geomspace) if log else (finite, np.linspace)
    first, last = (number(**{f"over.{name}.{end}": axis[end]}) for end in ("first", "last"))
    points = axis["points"]
    if type(points) is not int or not 2 <= points <= _MOST_POINTS:
        raise refuse(f"over.{name}.points", f"be an integer from 2 to {_MOST_POINTS}", points)
    # the points between are free to choose: six digits are easier to quote than seventeen
    inner = [float(f"{x:.6g}") for x in space(first, last, points)[1:-1]]
    found = [first, *inner, last]
    return list(dict.fromkeys(map(round, found))) if whole else found
