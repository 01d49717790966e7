"""The parameters of mechanisms, as their constructors and docstrings describe them."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any, get_type_hints

from tightbudget.mechanisms import MECHANISMS

# Options of all mechanisms that are integers.
_COUNTS = ("times", "allocated", "shuffled", "batch", "at_most", "group")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a mechanism, as its constructor and its docstring describe it.

    Attributes:
        name: the constructor's name for it.
        help: what the docstring says of it.
        default: its value if it is not given; None if ``needed``.
        needed: whether it must be given.
    """

    name: str
    help: str
    default: Any = None
    needed: bool = False


def kind_of(name: str) -> str | None:
    """Returns the kind of mechanism that a name means, written with - or _; None if unknown."""
    return next((kind for kind in MECHANISMS if _plain(kind) == _plain(name)), None)


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def summary_of(kind: str) -> str:
    """Returns the first sentence of a mechanism's docstring."""
    return _text(_docstring(kind).partition("\n\n")[0])


def parameters_of(kind: str) -> dict[str, Parameter]:
    """Describes the parameters of a mechanism by name, without its relation."""
    section = re.search(
        r"^Args:\n(.*?)(?:\n\n(?=\S)|\Z)", _docstring(kind), re.DOTALL | re.MULTILINE
    )
    entries = re.findall(
        r"^    (\w[\w, ]*): ((?:.|\n(?!    \w))*)", section[1] if section else "", re.M
    )
    said = {name.strip(): _text(text) for names, text in entries for name in names.split(",")}
    return {
        name: Parameter(
            name,
            said.get(name, ""),
            None if parameter.default is inspect.Parameter.empty else parameter.default,
            parameter.default is inspect.Parameter.empty,
        )
        for name, parameter in inspect.signature(MECHANISMS[kind]).parameters.items()
        if name != "relation"
    }


def _docstring(kind: str) -> str:
    return inspect.getdoc(MECHANISMS[kind]) or ""


def _text(markup: str) -> str:
    """Joins the lines of a docstring's text, and leaves out its marks of code."""
    return re.sub(r":\w+:`[~.]?([^`]*)`|``", r"\1", " ".join(markup.split()))


def search_of(kind: str, name: str) -> dict[str, Any]:
    """Returns ``integer`` and ``between``, with which ``tb.calibrate`` looks for a parameter."""
    return {
        "integer": name in _COUNTS or get_type_hints(MECHANISMS[kind]).get(name) is int,
        "between": (1e-6, 1.0) if name == "rate" else None,
    }
