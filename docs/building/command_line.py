"""The reference of the command line, from the command line itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from tightbudget.cli import app
from tightbudget.cli.refusals import EXIT_CODES, INTERRUPTED, REFUTED


def reference() -> str:
    """Every command with its options, the options of mechanisms, and the exit codes."""
    group: Any = typer.main.get_command(app)
    parts: list[str] = []
    shared = _shared(group)
    commands = list(_commands(group, "tightbudget"))
    for path, command in commands:
        parts += [f"{'#' * path.count(' ')}# `{path}`", _prose(command.help)]
        if hasattr(command, "commands"):
            continue
        of_mechanisms = shared <= {_flag(p) for p in command.params}
        parts.append(
            _table([p for p in command.params if not of_mechanisms or _flag(p) not in shared])
        )
        if of_mechanisms:
            parts.append("And the [options for mechanisms](#options-for-mechanisms).")
    options = {_flag(p): p for _, command in commands for p in command.params}
    generated = [option for flag, option in options.items() if flag in shared]
    parts += ["## Options for mechanisms", _table(generated)]
    parts += ["## Exit codes", _exit_codes()]
    return "\n\n".join(parts)


def _exit_codes() -> str:
    """The table of exit codes and their meanings."""
    rows = sorted((code, meaning) for _, code, meaning in EXIT_CODES)
    refuted = (REFUTED, "`check` has refuted a number, which is too low, or `audit` a plan")
    rows = [(0, "done"), *rows, refuted, (INTERRUPTED, "interrupted")]
    lines = [f"| {code} | {meaning} |" for code, meaning in rows]
    return "\n".join(["| exit code | |", "| --- | --- |", *lines])


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command with its words, a group before what is in it."""
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")


def _shared(group: Any) -> set[str]:
    """The options that are generated, the same for every command about a mechanism."""
    panels = [
        {_flag(p) for p in command.params if getattr(p, "rich_help_panel", None)}
        for command in group.commands.values()
    ]
    return set.intersection(*filter(None, panels))


def _table(parameters: list[Any]) -> str:
    """The table of a command's parameters, with their help texts and defaults."""
    rows = []
    for p in parameters:
        if _flag(p) == "--help":
            continue
        notes = [p.help or ""]
        if p.required:
            notes.append("Required.")
        elif isinstance(p.show_default, str):
            notes.append(f"Default: {p.show_default}.")
        elif p.default not in (None, False):
            notes.append(f"Default: {p.default}.")
        rows.append(f"| `{_flag(p)}` | {' '.join(notes)} |")
    return "\n".join(["| option | |", "| --- | --- |", *rows])


def _flag(parameter: Any) -> str:
    """The first name of an option, such as ``--delta``; an argument in capitals."""
    is_option = parameter.param_type_name == "option"
    return str(parameter.opts[0]) if is_option else str(parameter.name).upper()


def _prose(help: str) -> str:
    """The docstring, with its example as a block of code."""
    text, marker, example = inspect.cleandoc(help).partition("For example: ")
    command = " ".join(example.split())
    return text.strip() + (f"\n\n```console\n$ {command}\n```" if marker else "")
