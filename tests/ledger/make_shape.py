"""Writes src/tightbudget/ledger/store/shape.json: the definitions that a new ledger has.

Run once for each version of the tables: python -m tests.ledger.make_shape
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

from tests.ledger.servers import OwnServer

import tightbudget as tb
from tightbudget.ledger.store import shape as shape_module

FILE = Path(shape_module.__file__).parent / shape_module.FILE


def shape_of(url: str) -> dict[str, str]:
    """The definitions in the ledger at this address, by name."""
    with tb.Ledger(url) as ledger, ledger._store.reading() as connection:
        return dict(sorted(shape_module.shape(connection).items()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(OwnServer()) as server:
        shapes = {
            "postgresql": shape_of(server.create_database()),
            "sqlite": shape_of(f"sqlite:///{folder}/budget.db"),
        }
    FILE.write_text(json.dumps(shapes, indent=1) + "\n", encoding="utf-8")
