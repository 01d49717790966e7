"""Writes docs/reference/cli.md from the command line itself.

python docs/generate_cli.py            rewrite it
python docs/generate_cli.py --check    exit with 1 if it is out of date
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from tightbudget.cli import app
from tightbudget.cli.refusals import EXIT_CODES, INTERRUPTED

PAGE = Path(__file__).resolve().parent / "reference" / "cli.md"


def page() -> str:
    """The whole page."""
    group: Any = typer.main.get_command(app)
    parts = [
        "# Command line",
        "<!-- Written by docs/generate_cli.py; change the commands, not this page. -->",
        group.help,
        "Numbers are printed with the digits that are certified; `--json` prints the exact "
        "doubles of both bounds, with infinity as `1e999`. A refusal is one line on stderr, "
        "`error: ...`, and an [exit code](#exit-codes). Files may be gzipped (`.gz`).",
        "MECHANISM is a mechanism's name (`-` and `_` are the same) or a TOML plan file. Its "
        "parameters are options of that name; where the command has an option of the same "
        "name, `step-` goes in front. Their values are written as in a plan file.",
    ]
    shared = _shared(group)
    for path, command in _commands(group, "tightbudget"):
        parts += [f"{'#' * path.count(' ')}# `{path}`", _prose(command.help)]
        if hasattr(command, "commands"):
            continue
        of_mechanisms = shared <= {_flag(p) for p in command.params}
        parts.append(
            _table([p for p in command.params if not of_mechanisms or _flag(p) not in shared])
        )
        if of_mechanisms:
            parts.append("And the [options for mechanisms](#options-for-mechanisms).")
    first = next(iter(group.commands.values()))
    generated = [p for p in first.params if _flag(p) in shared]
    parts += ["## Options for mechanisms", _table(generated)]
    parts += ["## Exit codes", _exit_codes()]
    return "\n\n".join(parts) + "\n"


def _exit_codes() -> str:
    rows = sorted((code, meaning) for _, code, meaning in EXIT_CODES)
    rows = [(0, "done"), *rows, (INTERRUPTED, "interrupted")]
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
    is_option = parameter.param_type_name == "option"
    return str(parameter.opts[0]) if is_option else str(parameter.name).upper()


def _prose(help: str) -> str:
    """The docstring, with its example as a block of code."""
    text, marker, example = inspect.cleandoc(help).partition("For example: ")
    command = " ".join(example.split())
    return text.strip() + (f"\n\n```console\n$ {command}\n```" if marker else "")


def main() -> int:
    """Writes or checks, as asked."""
    text = page()
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        return int(current != text)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
