"""What version 1.0 will freeze, one line each, read off the code.

    PYTHONPATH=. python docs/building/stable.py            say how docs/reference/stable.txt differs
    PYTHONPATH=. python docs/building/stable.py --write    write the file anew

A test compares the file with the code, so that a change of it is seen and meant.
"""

from __future__ import annotations

import difflib
import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

from docs.building.public import public

import tightbudget as tb
from tightbudget.cli.refusals import EXIT_CODES, INTERRUPTED, REFUTED
from tightbudget.ledger.store.schema import metadata, with_access
from tightbudget.promises.stored_words import EventKind, ReservationState

FILE = Path(__file__).resolve().parents[1] / "reference" / "stable.txt"


def lines() -> Iterator[str]:
    """Yields public names, exceptions, exit codes, kinds, tables and routes, in a fixed order."""
    yield from (f"name {path}" for path in sorted(public().values()))
    for name in sorted(tb.errors.__all__):
        bases = ", ".join(base.__name__ for base in getattr(tb.errors, name).__bases__)
        yield f"exception {name}({bases})"
    yield from (f"exit code {code} {error.__name__}" for error, code, _ in EXIT_CODES)
    yield f"exit code {REFUTED} refuted"
    yield f"exit code {INTERRUPTED} interrupted"
    for kind, mechanism in sorted(tb.mechanisms.MECHANISMS.items()):
        parameters = ", ".join(mechanism._accepted())
        yield f"mechanism {kind}: {parameters}"
    plan = (tb.Gaussian(1.0).subsampled(0.5) * 2).to_dict()
    yield f"json of a composition {json.dumps(plan, sort_keys=True)}"
    bounds = tb.Bounds(0.25, 0.5).to_dict()
    yield f"json of bounds {json.dumps(bounds, sort_keys=True)}"
    cells = tb.OutputDP({"yes": 0.5}, delta=0.25).to_dict()
    yield f"json of a guarantee {json.dumps(cells, sort_keys=True)}"
    yield from (f"event {kind}" for kind in EventKind)
    yield from (f"state of a reservation {state}" for state in ReservationState)
    for table in [*metadata.sorted_tables, *with_access.sorted_tables]:
        yield f"table {table.name}: {', '.join(column.name for column in table.columns)}"
    document = runpy.run_path(str(Path(__file__).parent / "http_api.py"))["_document"]()
    for path, operations in sorted(document["paths"].items()):
        yield from (f"route {method.upper()} {path}" for method in sorted(operations))


def text() -> str:
    """Returns the whole file."""
    return "".join(f"{line}\n" for line in lines())


if __name__ == "__main__":
    now, kept = text(), FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    if "--write" in sys.argv:
        FILE.write_text(now, encoding="utf-8")
    elif now != kept:
        sys.stdout.writelines(difflib.unified_diff(kept.splitlines(True), now.splitlines(True)))
        sys.exit(1)
