"""The command line as the tests use it."""

from __future__ import annotations

import functools
import json
from typing import Any

from typer import testing
from typer.testing import CliRunner, Result

from tightbudget import __version__
from tightbudget.cli import app

# Typer builds every command anew from its function at each call: 0.15 s of CPU, more than most
# commands take. It does so once here.
vars(testing)["_get_command"] = functools.cache(vars(testing)["_get_command"])


def run(*args: object) -> Result:
    """One command; what goes wrong unplanned is raised."""
    return CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)


def answer(*args: object) -> dict[str, Any]:
    """The object that ``--json`` prints; nothing else is printed."""
    result = run(*args, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    content = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert content.pop("seconds") >= 0
    if "asked" in content:
        ASKED.append(content.pop("asked"))
        assert content.pop("version") == __version__
    return dict(content)


ASKED: list[dict[str, Any]] = []  # what the answers of a test said that was asked


def refusal(*args: object, code: int = 2) -> str:
    """The message of a refusal, which is one line on stderr and nothing else."""
    result = run(*args)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("error: ").rstrip("\n")
