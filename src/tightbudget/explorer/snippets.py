"""Code in Python and for a shell that repeats an answer, to be copied from a page."""

from __future__ import annotations

import shlex
from typing import Any

import tightbudget
from tightbudget import Composition
from tightbudget.accounting.plan_file import plan_text, toml_value
from tightbudget.mechanisms import MECHANISMS
from tightbudget.mechanisms.derived import Derived
from tightbudget.notation.options import OPTIONS, SAMPLERS, option_of, options_of, written

# The mechanisms that are made of another one, by their key in the other one's table.
_DERIVED = {cls.key: cls for cls in MECHANISMS.values() if issubclass(cls, Derived)}


class Letter(str):
    """A name that stands for a value: the argument of a function."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def python(*lines: str) -> str:
    """Writes a program of these lines, with the import before them."""
    return "\n".join(["import tightbudget as tb", "", *lines]) + "\n"


def run_expression(run: Composition) -> str:
    """Writes a composition as an expression."""
    return steps_expression([{**m.to_dict(), "times": times} for m, times in run.parts])


def steps_expression(steps: list[dict[str, Any]]) -> str:
    """Writes the steps of a plan as an expression; a :class:`Letter` is written bare."""
    parts = [f"{_mechanism(step)} * {step.get('times', 1)!r}" for step in steps]
    return parts[0] if len(parts) == 1 else f"tb.compose([{', '.join(parts)}])"


def _mechanism(table: dict[str, Any]) -> str:
    """Writes a mechanism's table as an expression, with a method for each way to draw records."""
    given = {name: value for name, value in table.items() if name != "times"}
    cls = MECHANISMS[given.pop("mechanism")]
    ways = {name: given.pop(name) for name in SAMPLERS if name in given}
    relation = given.pop("relation", None)
    if issubclass(cls, Derived):
        made = _mechanism(given["base"])
    else:
        arguments = [f"{name}={_value(value)}" for name, value in given.items()]
        if relation:
            arguments.append(f"relation=tb.Neighbouring({relation!r})")
        room = "tb" if cls.__name__ in tightbudget.__all__ else "tb.mechanisms"
        made = f"{room}.{cls.__name__}({', '.join(arguments)})"
    for name, value in ways.items():
        way = _DERIVED[name]
        made += f".{_call(way, way.given(value))}"
    return made


def _call(way: type[Derived], given: dict[str, Any]) -> str:
    """Writes the call of the method that makes a mechanism of another one."""
    if way.kind == "subsampled":
        return f"subsampled({given['rate']!r})"
    return f"{way.kind}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def _value(value: Any) -> str:
    """Writes a parameter's value; a mechanism's table is written as that mechanism."""
    is_mechanism = isinstance(value, dict) and "mechanism" in value
    return _mechanism(value) if is_mechanism else repr(value)


def command(name: str, run: Composition, *options: str, times: int | None = None) -> str:
    """Writes a shell command: with one mechanism's parameters, or else with a plan file.

    Args:
        name: the name of the command.
        run: the composition that the command is asked about.
        options: the command's own options, each one's name before its value.
        times: how often it runs, in place of the composition's number of runs.
    """
    tables = [mechanism.to_dict() for mechanism, _ in run.parts]
    if len(tables) == 1 and "base" not in tables[0]:
        runs = run.runs if times is None else times
        words = [*_options(tables[0]), "--times", str(runs)]
        return shlex.join(["tightbudget", name, tables[0]["mechanism"], *words, *options])
    words = [] if times is None else ["--times", str(times)]
    line = shlex.join(["tightbudget", name, "plan.toml", *words, *options])
    return f"cat > plan.toml <<'END'\n{plan_text(run)}END\n{line}"


def calibration(step: dict[str, Any], name: str, *options: str) -> str:
    """Writes the shell command that finds a parameter of one mechanism."""
    table = {key: value for key, value in step.items() if key not in (name, "times")}
    runs = [] if name == "times" else ["--times", str(step.get("times", 1))]
    sought = ["--parameter", name.replace("_", "-")]
    words = ["calibrate", table["mechanism"], *_options(table), *runs, *sought, *options]
    return shlex.join(["tightbudget", *words])


def _options(table: dict[str, Any]) -> list[str]:
    """Writes the options of a command for a mechanism's table."""
    words = []
    for name, value in options_of(table).items():
        option = written(option_of(name))
        if name in OPTIONS and OPTIONS[name].flag:
            words += [option] * bool(value)
        else:
            words += [option, value if isinstance(value, str) else toml_value(value)]
    return words
