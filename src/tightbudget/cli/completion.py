"""Completion of values in a shell: mechanisms, plan files, relations, papers, kinds, budgets.

A function here never fails: a shell that waits for words has no place for a message.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import typer

import tightbudget
from tightbudget import Neighbouring
from tightbudget.mechanisms import MECHANISMS

_SQLITE = "sqlite:///"
_SHOWN = 200  # names: of a hundred thousand, a shell would ask whether to show them all


def sources(incomplete: str) -> list[str]:
    """Completes a mechanism's name, written as it was begun, or the path of a plan file."""
    dashes = "-" in incomplete
    names = [kind.replace("_", "-") if dashes else kind for kind in sorted(MECHANISMS)]
    return [*_beginning(names, incomplete), *plans(incomplete)]


def plans(incomplete: str) -> list[str]:
    """Completes the path of a plan file, or of a folder on the way to one."""
    with contextlib.suppress(OSError, ValueError):
        begun = Path(incomplete)
        folder = begun if incomplete.endswith("/") else begun.parent
        found = [p for p in sorted(folder.iterdir()) if not p.name.startswith(".")]
        texts = [
            f"{path}/" if path.is_dir() else str(path)
            for path in found
            if path.name.endswith((".toml", ".toml.gz")) or path.is_dir()
        ]
        return _beginning(texts, incomplete)
    return []


def relations(incomplete: str) -> list[str]:
    """Completes the name of a neighbouring relation."""
    return _beginning([relation.value for relation in Neighbouring], incomplete)


def kinds(incomplete: str) -> list[str]:
    """Completes the kind of a budget."""
    with contextlib.suppress(ImportError):
        from tightbudget.promises.kinds import names

        return _beginning(names(), incomplete.lower())
    return []


def papers(incomplete: str) -> list[str]:
    """Completes the name of a paper that can be reproduced."""
    with contextlib.suppress(OSError):
        # as cli/reproduce.py finds them: src/tightbudget is two folders below the root
        folder = Path(tightbudget.__file__).resolve().parents[2] / "papers"
        names = {path.parent.name.replace("_", "-") for path in folder.glob("*/[ft]*_*.py")}
        return _beginning(sorted(names), incomplete)
    return []


def budgets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes the name of a budget of the ledger that is named before it, if that is a file."""
    with contextlib.suppress(Exception):
        url = str(ctx.params.get("ledger") or "")
        # another database may be away, and a shell does not wait for it
        if url.startswith(_SQLITE) and Path(url.removeprefix(_SQLITE)).is_file():
            with tightbudget.Ledger(url, create=False) as ledger:
                return list(ledger.names(incomplete, _SHOWN))
    return []


def _beginning(words: Any, incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
