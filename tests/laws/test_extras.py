"""Every public name is there in every set of extras, or names the extra that it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

import tightbudget as tb

CODE = """
import json, sys
for module in sys.argv[1:]:
    sys.modules[module] = None
import tightbudget as tb, tightbudget.release
names = {}
exec("from tightbudget import *", names)
exec("from tightbudget.release import *", names)
refused = {}
for name in ("Ledger", "LedgerBudget", "RemoteLedger", "RemoteHold", "PrivateLogisticRegression"):
    try:
        getattr(tb, name)
    except tb.ExtraError as error:
        refused[name] = str(error)
print(json.dumps([sorted(names), tb.__all__, dir(tb), dir(tb.release), refused]))
"""
NEEDS = {
    "sqlalchemy": {
        "Ledger": "a ledger needs SQLAlchemy: pip install 'tightbudget[ledger]'",
        "LedgerBudget": "a ledger needs SQLAlchemy: pip install 'tightbudget[ledger]'",
    },
    "httpx": {
        "RemoteLedger": "a remote ledger needs httpx: pip install 'tightbudget[remote]'",
        "RemoteHold": "a remote ledger needs httpx: pip install 'tightbudget[remote]'",
    },
    "sklearn": {
        "PrivateLogisticRegression": (
            "this regression needs scikit-learn: pip install 'tightbudget[sklearn]'"
        ),
    },
    "opendp": {},
    "matplotlib": {},
}


def without(*modules: str) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *modules], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "modules",
    [
        tuple(NEEDS),
        *(
            pytest.param(modules, marks=pytest.mark.slow)
            for modules in ((), ("sqlalchemy",), ("httpx",), ("sklearn",))
        ),
    ],
    ids=str,
)
def test_a_star_imports_what_there_is(modules: tuple[str, ...]) -> None:
    names, offered, listed, of_release, refused = without(*modules)
    assert set(offered) <= set(names)
    assert set(offered) <= set(listed)
    expected = {name: text for module in modules for name, text in NEEDS[module].items()}
    assert refused == expected
    # what asks for something that is not installed is not offered, and all else is
    missing = set(tb.__all__) - set(offered)
    assert set(expected) <= missing
    families = {"sqlalchemy": "Ledger", "httpx": "Remote", "sklearn": "PrivateLogisticRegression"}
    starts = tuple(families[module] for module in modules if module in families)
    assert all(name.startswith(starts) and not name.endswith("Error") for name in missing)
    assert ("PrivateLogisticRegression" in of_release) is ("sklearn" not in modules)


def test_what_is_listed_is_there() -> None:
    assert set(tb.__all__) <= set(dir(tb))
    assert all(hasattr(tb, name) for name in tb.__all__)
    assert set(tb.release.__all__) <= set(dir(tb.release))
    with pytest.raises(AttributeError, match="module 'tightbudget' has no attribute 'nobody'"):
        tb.nobody  # noqa: B018
    with pytest.raises(AttributeError, match=r"'tightbudget\.release' has no attribute 'nobody'"):
        tb.release.nobody  # noqa: B018
