"""Options that say how records get into a run: those of the command line, and fields of a form.

A plan's table says it under one key, such as ``batches = { batch = 60, of = 60000 }``. A command
has an option for each of the numbers, such as ``--batch 60 --of 60000``, and a form has a field.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.mechanisms import MECHANISMS
from tightbudget.mechanisms.derived import Derived


@dataclass(frozen=True)
class Sampler:
    """A way in which records get into a run.

    Attributes:
        key: the name of the way in a plan's table.
        words: the name of the way for people.
        options: the option of each parameter of the mechanism; the first one must be given.
        mark: the option that no other way has, which tells that this way is meant.
        epoch: whether one run of the mechanism is an epoch of many steps.
    """

    key: str
    words: str
    options: Mapping[str, str]
    mark: str
    epoch: bool = False


SAMPLERS = {
    sampler.key: sampler
    for sampler in (
        Sampler("rate", "Poisson", {"rate": "rate"}, mark="rate"),
        Sampler(
            "allocated",
            "Random allocation",
            {"steps": "allocated", "each_in": "each_in"},
            mark="allocated",
            epoch=True,
        ),
        Sampler(
            "shuffled",
            "Shuffle",
            {"steps": "shuffled", "smaller": "smaller"},
            mark="shuffled",
            epoch=True,
        ),
        Sampler(
            "batches",
            "Fixed batches",
            {
                "batch": "batch",
                "of": "of",
                "replacement": "with_replacement",
                "sensitivity_of": "sensitivity_of",
            },
            mark="batch",
        ),
        Sampler(
            "truncated_poisson",
            "Poisson, truncated",
            {"rate": "rate", "at_most": "at_most", "of": "of"},
            mark="at_most",
        ),
        Sampler("group", "Group", {"size": "group"}, mark="group"),
    )
}


@dataclass(frozen=True)
class Option:
    """An option of a command that says how records get into a run, and a field of a form.

    Attributes:
        help: what the command line says about it.
        label: the name of the field.
        first: the first value of a field that is needed.
        blank: the value that a blank field stands for; "" if the field is needed.
        flag: whether the option has no value on the command line.
    """

    help: str
    label: str
    first: str = ""
    blank: str = ""
    flag: bool = False


OPTIONS = {
    "rate": Option(
        "Poisson samples: each record is in a run with this probability.",
        "Sampling rate",
        first="0.001",
        blank="1",
    ),
    "allocated": Option(
        "Random allocation: each record is in one of so many steps of an epoch, drawn at random. "
        "One run is an epoch: repeat it with --times.",
        "Steps of an epoch",
        first="1000",
    ),
    "each_in": Option(
        "With --allocated: in how many steps of an epoch each record is; 1 if not given.",
        "Each record is in",
        blank="1",
    ),
    "shuffled": Option(
        "A loader that shuffles the data and cuts so many batches. One run is an epoch: repeat it "
        "with --times.",
        "Batches of an epoch",
        first="1000",
    ),
    "smaller": Option(
        "With --shuffled: how many of the batches have fewer records than the others; 1 where the "
        "last one has what is left, 0 if not given.",
        "Smaller batches",
        blank="0",
    ),
    "batch": Option(
        "Batches of exactly so many records, drawn anew for each run; with --of.",
        "Records in a batch",
        first="60",
    ),
    "of": Option(
        "The number of records, with --batch or --at-most.", "Records in all", first="60000"
    ),
    "with_replacement": Option(
        "With --batch: a batch can hold a record more than once.",
        "With replacement",
        blank="false",
        flag=True,
    ),
    "sensitivity_of": Option(
        "With --batch: clip (one record's norm, the default) or replace-one (how far replacing it "
        "moves the sum); which the sensitivity is.",
        "Sensitivity is of",
        blank="clip",
    ),
    "at_most": Option(
        "Truncated Poisson samples: at most so many records are kept; with --rate and --of.",
        "Records kept at most",
        first="100",
    ),
    "group": Option(
        "The number of records of one user, each of which is sampled on its own.",
        "Records of one user",
    ),
}

# Some command has an option of each of these names for its question. A mechanism's parameter of
# the same name has "step-" in front, in all commands.
_TAKEN = {"epsilon", "epsilons", "delta", "deltas", "weights"}


def option_of(parameter: str) -> str:
    """Returns the name of a command's option for a parameter of a mechanism."""
    return f"step_{parameter}" if parameter in _TAKEN else parameter


def written(option: str) -> str:
    """Writes the name of an option as on the command line."""
    return "--" + option.replace("_", "-")


def sampler_of(options: Mapping[str, Any]) -> Sampler | None:
    """Returns the way that the given options tell of; None if every record is in every run.

    Raises:
        ParameterError: the options tell of two ways.
    """
    found = [s for s in SAMPLERS.values() if s.mark in options and s.key != "group"]
    # the rate belongs to a truncated sample
    found = [s for s in found if s.key != "rate" or "at_most" not in options]
    if len(found) > 1:
        marks = " and ".join(sampler.mark for sampler in found)
        raise ParameterError(
            f"{marks} are different ways to draw records: give one of them "
            "(a plan file can do one to the other: base holds what is done first)"
        )
    return found[0] if found else None


def table_of(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the table of a plan for a mechanism with options.

    Args:
        kind: the mechanism's name.
        options: parameters of the mechanism, and options that say how records get into a run.

    Raises:
        ParameterError: the options tell of two ways, one belongs to a way that is not told of, or
            a way lacks an option that it needs.
    """
    table: dict[str, Any] = {"mechanism": kind}
    table |= {name: value for name, value in options.items() if name not in OPTIONS}
    left = {name: value for name, value in options.items() if name in OPTIONS}
    ways = (sampler_of(options), SAMPLERS["group"] if "group" in options else None)
    for sampler in filter(None, ways):
        given = {
            name: left.pop(option) for name, option in sampler.options.items() if option in left
        }
        for name in _needed(sampler):
            if name not in given:
                raise ParameterError(
                    f"{sampler.mark} needs {sampler.options[name]} beside it, "
                    f"got {options[sampler.mark]!r} without it"
                )
        first, names = next(iter(sampler.options)), _class_of(sampler).written
        named = {names.get(name, name): value for name, value in given.items()}
        table[sampler.key] = given[first] if list(given) == [first] else named
    for option, value in left.items():
        marks = [s.mark for s in SAMPLERS.values() if option in s.options.values()]
        raise ParameterError(f"{option} needs {' or '.join(marks)} beside it, got {value!r} alone")
    return table


def _needed(sampler: Sampler) -> list[str]:
    """Returns the parameters of a way to draw records that have no default."""
    parameters = inspect.signature(_class_of(sampler)).parameters
    return [name for name in sampler.options if parameters[name].default is inspect.Parameter.empty]


def _class_of(sampler: Sampler) -> type[Derived]:
    """Returns the class of the mechanisms whose records are drawn in a way."""
    (cls,) = (
        cls for cls in MECHANISMS.values() if issubclass(cls, Derived) and cls.key == sampler.key
    )
    return cls


def in_options(problem: str, options: Mapping[str, Any]) -> str:
    """Writes a refusal of a mechanism with names of options in the place of its parameters.

    Args:
        problem: the message, such as "each_in must be at most steps (100), got 200".
        options: the options that were given; they tell which way's parameters are meant.
    """
    ways = (sampler_of(options), SAMPLERS["group"] if "group" in options else None)
    names = {name: option for way in filter(None, ways) for name, option in way.options.items()}

    def option(found: re.Match[str]) -> str:
        return names.get(found[0], found[0])

    # a name is followed by what it must be, or by its value in parentheses
    return re.sub(r"\b\w+(?= must | \()", option, problem)


def options_of(table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that a plan's table stands for: what :func:`table_of` would be given.

    Args:
        table: a plan's table; its ``mechanism`` and the number of its runs are no options.
    """
    found: dict[str, Any] = {}
    for name, value in table.items():
        if sampler := SAMPLERS.get(name):
            given = _class_of(sampler).given(value)
            found |= {sampler.options.get(key, key): entry for key, entry in given.items()}
        else:
            found[name] = value
    return {name: value for name, value in found.items() if name not in ("mechanism", "times")}


def options_of_kind(kind: str) -> dict[str, inspect.Parameter]:
    """Returns the parameters of a mechanism by the names of their options, without its relation."""
    cls = MECHANISMS[kind]
    names = SAMPLERS[cls.key].options if issubclass(cls, Derived) else {}
    parameters = inspect.signature(cls).parameters
    return {names.get(name, name): p for name, p in parameters.items() if name != "relation"}


def runs_are_epochs(options: Mapping[str, Any]) -> bool:
    """Whether one run is an epoch of many steps, where these options are given."""
    return any(sampler.mark in options for sampler in SAMPLERS.values() if sampler.epoch)
