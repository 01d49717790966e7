"""Every public name is there in every set of extras, or names the extra that it needs."""

from __future__ import annotations

import importlib.metadata
import json
import pkgutil
import re
import subprocess
import sys
from typing import Any

import pytest

import tightbudget as tb
from tightbudget import adapters

CODE = """
import json, sys
for module in sys.argv[1:]:
    sys.modules[module] = None
import tightbudget as tb, tightbudget.release
names = {}
exec("from tightbudget import *", names)
exec("from tightbudget.release import *", names)
refused = {}
for room, name in (
    (tb, "Ledger"),
    (tb.ledger, "LedgerBudget"),
    (tb, "RemoteLedger"),
    (tb.client, "RemoteHold"),
    (tb.release, "PrivateLogisticRegression"),
):
    try:
        getattr(room, name)
    except tb.errors.ExtraError as error:
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


@pytest.mark.slow
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
    left_out = {"sqlalchemy": {"Ledger"}, "httpx": {"RemoteLedger"}}
    expected_missing = {name for module in modules for name in left_out.get(module, ())}
    assert set(tb.__all__) - set(offered) == expected_missing
    assert ("PrivateLogisticRegression" in of_release) is ("sklearn" not in modules)


TABLES = """
import sys, warnings
warnings.simplefilter("ignore")  # of the noise that is none
for module in ("ibis", "duckdb", "pandas"):
    sys.modules[module] = None
import numpy as np, tightbudget as tb
table = tb.Table({"fare": np.array([1.0, 2.0])})
meter = tb.OutputDPFilter(epsilon=1)
answer = tb.Session(table, meter, noise=tb.release.FixedNoise([0])).ask(tb.Count(epsilon=1))
assert answer.value == 2, answer
assert answer.rows()[1][0][0] == 2
for ask in (lambda: tb.Table("trips.parquet"), answer.frame):
    try:
        ask()
    except tb.errors.ExtraError as error:
        print(error)
"""


@pytest.mark.slow
def test_tables_need_an_engine_only_where_rows_are_not_arrays() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TABLES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "tables need Ibis: pip install 'tightbudget[data]'",
        "a frame needs pandas: pip install 'tightbudget[data]'",
    ]


@pytest.mark.slow
def test_a_session_loads_no_engine_before_a_table_does() -> None:
    code = "import tightbudget, sys; print({'ibis', 'duckdb', 'pandas', 'polars'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_what_is_listed_is_there() -> None:
    assert set(tb.__all__) <= set(dir(tb))
    assert all(hasattr(tb, name) for name in tb.__all__)
    assert set(tb.release.__all__) <= set(dir(tb.release))
    with pytest.raises(AttributeError, match="module 'tightbudget' has no attribute 'nobody'"):
        tb.nobody  # noqa: B018
    with pytest.raises(AttributeError, match=r"'tightbudget\.release' has no attribute 'nobody'"):
        tb.release.nobody  # noqa: B018


NEIGHBOURS = ("dp_accounting", "opacus", "torch", "sklearn", "opendp", "sqlalchemy", "httpx")
ALONE = f"""
import importlib, json, sys
for module in {NEIGHBOURS!r}:
    sys.modules[module] = None
said = {{}}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        said[name] = None
    except ImportError as error:
        said[name] = [type(error).__name__, str(error)]
print(json.dumps(said))
"""


@pytest.mark.slow
def test_every_adapter_names_the_extra_that_it_needs() -> None:
    names = [f"tightbudget.adapters.{one.name}" for one in pkgutil.iter_modules(adapters.__path__)]
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *names], capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout)
    assert len(said) >= 3
    extras = set(importlib.metadata.metadata("tightbudget").get_all("Provides-Extra") or ())
    # it has the names of a library whose work is done here
    assert said.pop("tightbudget.adapters.prv_accountant") is None
    for kind, message in said.values():
        assert kind == "ExtraError"
        named = re.search(r" needs? \S+: pip install 'tightbudget\[(.+)\]'$", message)
        assert named
        assert named[1] in extras


def test_a_public_name_has_one_meaning() -> None:
    """Two rooms that offer one name would hide one of both."""
    rooms = (tb.client, tb.errors, tb.ledger, tb.mechanisms, tb.release, tb.sweeps, tb.tables)
    names = [name for room in rooms for name in room.__all__]
    assert sorted(set(names)) == sorted(names)
    for room in rooms:
        for name in {*room.__all__} & {*tb.__all__}:
            assert getattr(tb, name) is getattr(room, name)


def test_a_name_of_an_earlier_version_says_where_it_is_now() -> None:
    said = {
        "Budget": "tb.Budget is tb.Amount now",
        "classic": "tb.classic is tb.privacy_buckets now",
        "LaplaceRelease": "tb.LaplaceRelease is tb.release.LaplaceRelease now",
        "TestedRelease": "tb.TestedRelease is tb.release.GatedRelease now",
        "LedgerHold": "tb.LedgerHold is tb.ledger.LedgerHold now",
        "RemoteHold": "tb.RemoteHold is tb.client.RemoteHold now",
        "FileError": "tb.FileError is tb.errors.FileError now",
        "Question": "tb.Question is tb.sweeps.Question now",
        "Direction": "tb.Direction is tb.mechanisms.Direction now",
        "WhatIf": "tb.WhatIf is tb.release.ReleasePreview now",
        "SessionWhatIf": "tb.SessionWhatIf is tb.tables.SessionPreview now",
        "TableAnswer": "tb.TableAnswer is tb.tables.TableAnswer now",
    }
    for name, words in said.items():
        with pytest.raises(AttributeError, match=f"^{re.escape(words)}$"):
            getattr(tb, name)


@pytest.mark.parametrize("name", ["epsilon", "delta", "explain", "curve", "risk", "renyi"])
def test_a_method_that_is_asked_of_the_module_says_what_has_it(name: str) -> None:
    assert not hasattr(tb, name)
    assert name not in dir(tb)
    words = rf"^tb\.{name} is a method: write composition\.{name}\(\.\.\.\)$"
    with pytest.raises(AttributeError, match=words):
        getattr(tb, name)


def test_only_what_is_offered_is_listed() -> None:
    beside = {name for name in dir(tb) if not name.startswith("_")} - set(tb.__all__)
    rooms = {one.name for one in pkgutil.iter_modules(tb.__path__)}
    assert beside <= rooms
