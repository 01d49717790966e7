"""Mechanisms as plain tables: the common ground of JSON, plan files and the command line."""

from __future__ import annotations

import inspect
from typing import Any

from tightbudget.errors import FileError
from tightbudget.pairs import MECHANISMS
from tightbudget.pairs.pair import Mechanism, Neighbouring
from tightbudget.pairs.subsampled import Subsampled

__all__ = ["from_description", "to_description"]


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
