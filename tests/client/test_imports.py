"""The client of a served ledger needs httpx alone: no database, no server, no command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
for name in sys.argv[1:]:
    sys.modules[name] = None
import tightbudget as tb
from tightbudget.promises import keyed, payer, values
print(tb.RemoteLedger("http://127.0.0.1:1"), end=" ")
print(tb.client.RemoteHold.__name__, tb.client.RemoteBudget.__name__)
loaded = {name.partition(".")[0] for name in sys.modules if sys.modules[name] is not None}
print(sorted(loaded & set(sys.argv[1:])))
"""
NOT_NEEDED = ("sqlalchemy", "alembic", "psycopg", "sqlite3", "fastapi", "typer", "jinja2")


@pytest.mark.slow
def test_it_is_there_where_only_httpx_is() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *NOT_NEEDED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = "RemoteLedger('http://127.0.0.1:1') RemoteHold RemoteBudget"
    assert done.stdout.splitlines() == [shown, "[]"]
