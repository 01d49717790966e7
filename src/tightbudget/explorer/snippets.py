"""Code in Python and for a shell that repeats an answer, to be copied from a page."""

from __future__ import annotations

import shlex
from typing import Any

from tightbudget import MECHANISMS, Composition
from tightbudget.accounting.plan_file import plan_text, toml_value
from tightbudget.mechanisms.composition import Subsampled

__all__ = [
    "TAKEN",
    "Letter",
    "calibration",
    "command",
    "python",
    "run_expression",
    "steps_expression",
]

# Some command has an option of each of these names for its question, so that a mechanism's
# parameter of the same name has "step-" in front, in all commands.
TAKEN = {"epsilon", "epsilons", "delta", "deltas", "weights"}


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
    given = {name: value for name, value in table.items() if name != "times"}
    kind, rate = given.pop("mechanism"), given.pop("rate", None)
    relation = given.pop("relation", None)
    if kind == Subsampled.kind:
        made = _mechanism(given["base"])
    else:
        arguments = [f"{name}={value!r}" for name, value in given.items()]
        if relation:
            arguments.append(f"relation=tb.Neighbouring({relation!r})")
        made = f"tb.{MECHANISMS[kind].__name__}({', '.join(arguments)})"
    return made if rate is None else f"{made}.subsampled({rate!r})"


def command(name: str, run: Composition, *options: str, times: int | None = None) -> str:
    """Writes a shell command: with one mechanism's parameters, or else with a plan file.

    Args:
        name: the name of the command.
        run: the composition that the command is asked about.
        options: the command's own options, each one's name before its value.
        times: the value of --steps, in place of the composition's number of runs.
    """
    tables = [mechanism.to_dict() for mechanism, _ in run.parts]
    if len(tables) == 1 and tables[0]["mechanism"] != Subsampled.kind:
        steps = run.runs if times is None else times
        words = [*_options(tables[0]), "--steps", str(steps)]
        return shlex.join(["tightbudget", name, tables[0]["mechanism"], *words, *options])
    words = [] if times is None else ["--steps", str(times)]
    line = shlex.join(["tightbudget", name, "plan.toml", *words, *options])
    return f"cat > plan.toml <<'END'\n{plan_text(run)}END\n{line}"


def calibration(step: dict[str, Any], name: str, *options: str) -> str:
    """Writes the shell command that finds a parameter of one mechanism."""
    table = {key: value for key, value in step.items() if key not in (name, "times")}
    steps = [] if name == "times" else ["--steps", str(step.get("times", 1))]
    sought = ["--parameter", "steps" if name == "times" else name.replace("_", "-")]
    words = ["calibrate", table["mechanism"], *_options(table), *steps, *sought, *options]
    return shlex.join(["tightbudget", *words])


def _options(table: dict[str, Any]) -> list[str]:
    words = []
    for name, value in table.items():
        if name != "mechanism":
            option = f"step_{name}" if name in TAKEN else name
            text = value if isinstance(value, str) else toml_value(value)
            words += [f"--{option.replace('_', '-')}", text]
    return words
