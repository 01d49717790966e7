"""TOML plans: which mechanisms run how often, in a file that a person can write and review.

``tightbudget = 1`` is the version of the format, and may be left out. Then, for each step, a
table ``[[steps]]`` with ``mechanism``, a key of :data:`tightbudget.mechanisms.MECHANISMS`, its
parameters, and optionally ``rate`` (Poisson subsampling), ``relation`` and ``times`` (1).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tightbudget.errors import FileError, TightBudgetError
from tightbudget.mechanisms.composition import Composition, from_steps
from tightbudget.text_file import read_text, write_text

_VERSION = 1


def read_plan(path: str | Path) -> Composition:
    """Reads the composition that a TOML plan file lists.

    Guarantee: every table and key of the file is in the composition; a table or key that is not
    understood is refused, never skipped.

    Args:
        path: the file; gzipped if its name ends in .gz.

    Raises:
        FileError: the file cannot be read, is not TOML, or is not a plan; names the path, the
            step and the reason.
    """
    return parse_plan(read_text(path), path)


def parse_plan(text: str, path: str | Path) -> Composition:
    """Parses the text of a plan file into a composition; refuses as :func:`read_plan` does.

    Args:
        text: TOML.
        path: the name of the file, for refusals.
    """
    content = parse_tables(text, path)
    steps = content.pop("steps", None)
    if steps is None:
        raise FileError(f"{path}: a plan needs [[steps]], and there are none")
    if content:
        unknown = ", ".join(map(repr, content))
        raise FileError(f"{path}: a plan has tightbudget and [[steps]] only, got {unknown}")
    try:
        return from_steps(steps)
    except TightBudgetError as error:
        raise FileError(f"{path}: {error}") from error


def parse_tables(text: str, path: str | Path) -> dict[str, Any]:
    """Parses the text of a plan file or a file of questions, and checks and drops its version.

    Raises:
        FileError: the text is not TOML, or has another version.
    """
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not TOML: {error}") from error
    version = content.pop("tightbudget", _VERSION)
    if isinstance(version, bool) or version != _VERSION:
        raise FileError(f"{path}: tightbudget (the version) must be {_VERSION}, got {version!r}")
    return content


def write_plan(composition: Composition, path: str | Path) -> None:
    """Writes a plan file from which :func:`read_plan` builds the same composition.

    Args:
        composition: the composition to write.
        path: the file; gzipped if the name ends in .gz. An existing file is replaced.

    Raises:
        FileError: the file cannot be written.
    """
    write_text(path, plan_text(composition))


def plan_text(composition: Composition) -> str:
    """Writes a composition as the text of a plan file."""
    lines = [f"tightbudget = {_VERSION}"]
    if not composition.parts:
        lines.append("steps = []")
    for mechanism, times in composition.parts:
        table = {**mechanism.to_dict(), "times": times}
        lines += ["", "[[steps]]", *_entries(table)]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """Writes a value as TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(_entries(value)) + " }"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, str):
        # JSON's strings are TOML's, but for the one control character that JSON lets pass
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)  # an int or a float: repr gives every digit, and TOML reads it


def _entries(table: dict[str, Any]) -> Iterator[str]:
    return (f"{key} = {toml_value(value)}" for key, value in table.items())
