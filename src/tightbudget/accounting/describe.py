"""Mechanisms as plain tables: the common ground of JSON, plan files and the command line."""

from __future__ import annotations

import contextlib
import inspect
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_type_hints

from tightbudget.accounting.sampling import counted, options_of
from tightbudget.mechanisms import MECHANISMS
from tightbudget.numerics.validate import nearest, quotient_of, writes_number

if TYPE_CHECKING:
    from tightbudget.mechanisms.composition import Composition
    from tightbudget.numerics.bounds import Bounds

_SHOWN = 5  # parts of a plan that are listed

_TWO_ENDS = "nothing that holds for all data sets is below the lower bound; the upper one holds"

# options of all mechanisms that are integers
_COUNTS = ("steps", "epochs", "times", "allocated", "shuffled", "batch", "at_most", "group")


def value_of(text: Any) -> Any:
    """Reads what a person typed: a number, another TOML value, or else the text itself.

    A number has the digits 0 to 9, a point and an exponent: no underscores, no blanks around. One
    with an exponent that is an integer below 2^53, such as 1e3, is that integer. A quotient of two
    integers, such as 256/60000, is the double nearest to it. A text that is no number, where one
    is needed, is refused by the mechanism, by name and value.
    """
    if not isinstance(text, str):
        return text  # a default
    for read in (int, _number) if writes_number(text) else ():
        with contextlib.suppress(ValueError):
            return read(text)
    quotient = quotient_of(text)
    if quotient is not None:
        return nearest(quotient)
    try:
        value = _toml(text)
    except (ValueError, RecursionError):
        return text
    # a number that only TOML writes so (1_000, 0x10, blanks around) is none here
    return text if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _number(text: str) -> float:
    """Reads a number that is not written as an integer: an int if it has an exponent and is one.

    What is written decides, not the double nearest to it: 1e-400 is no 0, and 0.99999999999999999e0
    is no 1.
    """
    value = float(text)
    if "e" not in text.lower() or not value.is_integer() or abs(value) >= 2**53:
        return value
    with contextlib.suppress(ArithmeticError):  # an exponent beyond those of decimals
        if Decimal(text) == int(value):  # guard: whole-as-written
            return int(value)
    return value


def _toml(text: str) -> Any:
    """Reads the one TOML value that a text is.

    Raises:
        ValueError: the text is no TOML value, or more than one.
    """
    content = tomllib.loads(f"value = {text}")
    if len(content) > 1:
        raise ValueError("more than a value")
    return content["value"]


def search_of(kind: str, name: str) -> dict[str, Any]:
    """Returns ``integer`` and ``between``, with which ``tb.calibrate`` looks for a parameter."""
    return {
        "integer": name in _COUNTS or get_type_hints(MECHANISMS[kind]).get(name) is int,
        "between": (1e-6, 1.0) if name == "rate" else None,
    }


# ------------------------------------------------------- mechanisms, from their docstrings


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


# -------------------------------------------------------------------------- in words


def in_words(composition: Composition) -> str:
    """Writes the parts as lines for a person: ``gaussian sigma=1.0 rate=0.01, 1000 times``."""
    lines = [
        f"{_words(table)}, {_number_of_runs(table, runs)}"
        for table, runs in ((m.to_dict(), runs) for m, runs in composition.parts[:_SHOWN])
    ]
    if len(composition.parts) > _SHOWN:
        lines.append(f"and {len(composition.parts) - _SHOWN} more, {composition.runs} times in all")
    return "\n".join(lines) or "nothing"


def number_of_times(runs: int) -> str:
    """Writes how often something runs: once is ``1 time``."""
    return f"{runs} time{'s' * (runs != 1)}"


def two_ends(answers: Iterable[Bounds]) -> dict[str, str]:
    """Says in ``ends`` what the two bounds of an answer are, where they say that they are apart.

    Args:
        answers: the bounds that the answer has.

    Returns:
        nothing if all bounds are as close as was wanted.
    """
    apart = dict.fromkeys(bounds.apart for bounds in answers if bounds.apart)
    return {"ends": f"{_TWO_ENDS} ({'; '.join(apart)})"} if apart else {}


def _number_of_runs(table: dict[str, Any], runs: int) -> str:
    """Writes how often a mechanism runs, in epochs where one run is an epoch."""
    if counted(options_of(table)) == "steps":
        return number_of_times(runs)
    return f"{runs} epoch{'s' * (runs != 1)}"


def _words(table: dict[str, Any]) -> str:
    """Writes a mechanism's table as words: its kind, then ``name=value`` for each option."""
    given = options_of(table).items()
    return " ".join([table["mechanism"], *(f"{name}={_word(value)}" for name, value in given)])


def _word(value: Any) -> str:
    """Writes a parameter's value as a word; a long list is counted."""
    if isinstance(value, dict) and "mechanism" in value:
        return f"({_words(value)})"
    if isinstance(value, (tuple, list)) and len(value) > 4:
        return f"({len(value)} values)"
    return str(value)
