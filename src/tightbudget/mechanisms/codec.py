"""From tables of plan files and JSON to mechanisms, and what a refusal of a table says.

The classes of mechanisms are handed in by name, so that this module stands below them.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from tightbudget.errors import FileError, ParameterError, RelationError
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.validate import count, nearest, quotient_of

Kind = type[Any]  # a class of mechanisms

# what to write instead of a parameter that no mechanism has
MEANT = {
    **dict.fromkeys(
        ("rate", "sampling_rate", "sample_rate", "sampling_probability", "q"),
        "the chance of each record to be in a run is rate, in Python .subsampled(rate)",
    ),
    **dict.fromkeys(
        ("step", "steps", "epochs", "times", "runs", "num_steps", "count"),
        "how often it runs is times on the command line and in a plan file, in Python "
        "mechanism * times; of a shuffle or an allocation one run is an epoch",
    ),
    **dict.fromkeys(
        ("std", "stddev", "stdev", "sd", "standard_deviation", "noise_scale"),
        "the noise has sigma (its standard deviation) or scale, in the query's unit",
    ),
}


def mechanism_of(table: dict[str, Any], where: str, kinds: Mapping[str, Kind]) -> Any:
    """Makes the mechanism that a table describes.

    Args:
        table: its kind and its parameters by name. A text such as "256/60000" stands for the
            double nearest to this quotient.
        where: what a refusal calls the table.
        kinds: the classes of mechanisms by name.

    Raises:
        FileError: no or an unknown mechanism, an unknown or missing parameter.
        ParameterError: a parameter's value is refused.
    """
    table = {name: _read(value) for name, value in table.items()}
    kind = table.pop("mechanism", None)
    if not isinstance(kind, str) or kind not in kinds:
        known = ", ".join(sorted(kinds))
        raise FileError(f"{where}.mechanism must be one of {known}, got {kind!r}")
    cls = kinds[kind]
    if cls.key:
        base, given = table.pop("base", None), table.pop(cls.key, None)
        if not isinstance(base, dict) or given is None or table:
            raise FileError(f"{where}: {kind} needs base (a table) and {cls.key}, and nothing else")
        return _with(mechanism_of(base, f"{where}.base", kinds), cls, given, where)
    made_of_others = [made for made in kinds.values() if made.key]
    # what tells how records get into a run; then for whom it is
    found = [(made, table.pop(made.key)) for made in made_of_others if made.key in table]
    samplers = [made for made, _ in found if made.key != "group"]
    if len(samplers) > 1:
        first, second = samplers[:2]
        raise FileError(
            f"{where} has both {first.key} and {second.key}; where the one is done to the "
            f"other, write mechanism={second.kind!r} with a base that has {first.key}"
        )
    relation = table.pop("relation", None)
    if relation is not None:
        try:
            relation = Neighbouring.of(**{f"{where}.relation": relation})
        except ParameterError as error:
            raise FileError(str(error)) from None
    for name in table:
        if name not in cls._accepted():
            keys = [made.key for made in made_of_others]
            unknown = unknown_parameter(cls, name, also=(*keys, "times"))
            raise FileError(f"{where}: {unknown}")
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in table:
            raise FileError(f"{where}: {kind} needs {name}")
    mechanism = cls(**table, relation=relation)
    for made, given in sorted(found, key=lambda entry: entry[0].key == "group"):
        mechanism = _with(mechanism, made, given, where)
    return mechanism


def parts_of(steps: Any, kinds: Mapping[str, Kind]) -> list[tuple[Any, int]]:
    """Makes the parts of a composition, mechanisms and counts, from tables with ``times``.

    Args:
        steps: the list of tables, as it was read.
        kinds: the classes of mechanisms by name.

    Raises:
        FileError: no list of tables, or what :func:`mechanism_of` says.
        ParameterError: a parameter's value is refused.
    """
    if not isinstance(steps, list):
        raise FileError(f"steps must be a list, got {steps!r}")
    parts: list[tuple[Any, int]] = []
    for i, step in enumerate(steps):
        if not isinstance(step, dict):
            raise FileError(f"steps[{i}] must be a table, got {step!r}")
        table = dict(step)
        times = count(**{f"steps[{i}].times": table.pop("times", 1)})
        try:
            parts.append((mechanism_of(table, f"steps[{i}]", kinds), times))
        except (ParameterError, RelationError) as error:
            raise type(error)(f"steps[{i}]: {error}") from error
    return parts


def unknown_parameter(cls: Kind, name: str, *, also: Iterable[str] = ()) -> str:
    """Says that the mechanism has no parameter ``name``, which it has, and what was meant.

    Args:
        cls: the class of the mechanism.
        name: the parameter that was given.
        also: other names that are accepted beside the parameters, to be suggested.
    """
    accepted = [other for other in cls._accepted() if other != "relation"]
    hint = cls.hint(name)
    if hint is None:
        close = difflib.get_close_matches(name, [*accepted, *also, "relation"], n=1)
        hint = f"did you mean {close[0]}?" if close else None
    listed = f" (it has {', '.join(accepted)})"
    return f"{cls.kind} has no parameter {name!r}{listed}" + (f": {hint}" if hint else "")


def _read(value: Any) -> Any:
    """Returns a table's value, with the nearest double for a text that writes a quotient."""
    quotient = quotient_of(value) if isinstance(value, str) else None
    return value if quotient is None else nearest(quotient)


def _with(base: Any, made: Kind, value: Any, where: str) -> Any:
    """Calls the method of a mechanism that makes another one of it.

    Args:
        base: the mechanism.
        made: the class of the other one.
        value: what a plan's table has under the key of the class: the first parameter, or a table.
        where: what a refusal calls the plan's table.

    Raises:
        FileError: an unknown or missing parameter.
    """
    method = getattr(base, made.kind)
    given = made.given(value)
    if isinstance(value, Mapping) and len(given) < len(value):
        twice = next(name for name, written in made.written.items() if written in value)
        raise FileError(f"{where}.{made.key}: {twice} is given twice")
    parameters = inspect.signature(method).parameters
    for name in given:
        if name not in parameters:
            known = ", ".join(parameters)
            raise FileError(f"{where}.{made.key}: {made.kind} has no {name!r} (it has {known})")
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            raise FileError(f"{where}.{made.key}: {made.kind} needs {name}")
    return method(**{name: _read(entry) for name, entry in given.items()})
