"""What is committed of the papers' tables and figures."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

__all__ = ["PAPERS", "SCRIPTS", "committed", "module"]

PAPERS = Path(__file__).resolve().parents[2] / "papers"
SCRIPTS = sorted(  # PAPER/NAME
    f"{path.parent.name}/{path.stem}"
    for kind in ("figure", "table")
    for path in PAPERS.glob(f"*/{kind}_*.py")
)


def committed(script: str) -> dict[str, Any]:
    """The numbers in expected/."""
    paper, name = script.split("/")
    text = (PAPERS / paper / "expected" / f"{name}.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def module(script: str) -> Any:
    """The script itself."""
    return importlib.import_module("papers." + script.replace("/", "."))
