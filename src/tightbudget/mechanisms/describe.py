"""Mechanisms as plain tables: the common ground of JSON, plan files and the command line."""

from __future__ import annotations

import contextlib
import inspect
import tomllib
from typing import TYPE_CHECKING, Any, get_type_hints

from tightbudget.errors import FileError
from tightbudget.mechanisms import MECHANISMS
from tightbudget.mechanisms.mechanism import Mechanism, Neighbouring
from tightbudget.mechanisms.subsampled import Subsampled
from tightbudget.numerics.validate import writes_number

if TYPE_CHECKING:
    from tightbudget.mechanisms.composition import Composition

__all__ = ["from_description", "in_words", "search_of", "to_description", "value_of"]

_SHOWN = 5  # steps of a plan that are listed


def to_description(mechanism: Mechanism) -> dict[str, Any]:
    """``{"mechanism": kind, parameters..., "rate": q, "relation": ...}``.

    Subsampling is the ``rate`` of its base; nested subsampling nests in ``base``.
    """
    table: dict[str, Any]
    if isinstance(mechanism, Subsampled):
        base = to_description(mechanism.base)
        nested = "rate" in base
        table = {"mechanism": Subsampled.kind, "base": base} if nested else base
        return {**table, "rate": mechanism.rate}
    table = {"mechanism": mechanism.kind, **mechanism.parameters()}
    if mechanism.relation is not None:
        table["relation"] = mechanism.relation.value
    return table


def from_description(table: dict[str, Any], where: str = "step") -> Mechanism:
    """The mechanism that a table describes.

    Raises:
        FileError: no or an unknown mechanism, an unknown or missing parameter.
        ParameterError: a parameter's value is refused.
    """
    table = dict(table)
    kind = table.pop("mechanism", None)
    if not isinstance(kind, str) or kind not in MECHANISMS:
        known = ", ".join(sorted(MECHANISMS))
        raise FileError(f"{where}.mechanism must be one of {known}, got {kind!r}")
    rate = table.pop("rate", None)
    if kind == Subsampled.kind:
        base = table.pop("base", None)
        if not isinstance(base, dict) or rate is None or table:
            raise FileError(f"{where}: {kind} needs base (a table) and rate, and nothing else")
        return Subsampled(from_description(base, f"{where}.base"), rate)
    relation = table.pop("relation", None)
    names = {r.value: r for r in Neighbouring}
    if relation is not None and (not isinstance(relation, str) or relation not in names):
        raise FileError(f"{where}.relation must be one of {', '.join(names)}, got {relation!r}")
    cls = MECHANISMS[kind]
    signature = inspect.signature(cls)
    for name in table:
        if name not in signature.parameters:
            accepted = ", ".join(n for n in signature.parameters if n != "relation")
            raise FileError(f"{where}: {kind} has no parameter {name!r} (it has {accepted})")
    for name, parameter in signature.parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in table:
            raise FileError(f"{where}: {kind} needs {name}")
    mechanism = cls(**table, relation=names[relation] if relation is not None else None)
    return mechanism if rate is None else mechanism.subsampled(rate)


def value_of(text: Any) -> Any:
    """What a person typed, as in a plan file: a number, any other TOML value, or else the text.

    A number has the digits 0 to 9, a point and an exponent: no underscores, no blanks around.
    What is no number, where one is needed, is refused by the mechanism, by name and value.
    """
    if not isinstance(text, str):
        return text  # a default
    for read in (int, float) if writes_number(text) else ():
        with contextlib.suppress(ValueError):
            return read(text)
    try:
        value = _toml(text)
    except (ValueError, RecursionError):
        return text
    # a number that only TOML writes so (1_000, 0x10, blanks around) is none here
    return text if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _toml(text: str) -> Any:
    content = tomllib.loads(f"value = {text}")
    if len(content) > 1:
        raise ValueError("more than a value")
    return content["value"]


def search_of(kind: str, name: str) -> dict[str, Any]:
    """How :func:`tightbudget.calibrate` looks for a parameter: ``integer`` and ``between``."""
    return {
        "integer": name in ("steps", "times") or get_type_hints(MECHANISMS[kind]).get(name) is int,
        "between": (1e-6, 1.0) if name == "rate" else None,
    }


# -------------------------------------------------------------------------- in words


def in_words(composition: Composition) -> str:
    """The steps as lines for a person: ``gaussian sigma=1.0 rate=0.01, 1000 times``."""
    lines = []
    for mechanism, times in composition.steps[:_SHOWN]:
        lines.append(f"{_words(to_description(mechanism))}, {times} time{'s' * (times != 1)}")
    if len(composition.steps) > _SHOWN:
        lines.append(f"and {len(composition.steps) - _SHOWN} more, {composition.runs} times in all")
    return "\n".join(lines) or "nothing"


def _words(table: dict[str, Any]) -> str:
    kind, *rest = table.items()
    return " ".join([str(kind[1]), *(f"{name}={_word(value)}" for name, value in rest)])


def _word(value: Any) -> str:
    if isinstance(value, dict) and "mechanism" in value:
        return f"({_words(value)})"
    if isinstance(value, (tuple, list)) and len(value) > 4:
        return f"({len(value)} values)"
    return str(value)
