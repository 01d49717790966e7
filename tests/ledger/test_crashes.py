"""A process is killed before and after each durable step of a deed: what it costs is stated.

``SIGKILL`` comes before every statement that a deed sends to the database, before its commit and
after it. Whatever had not been committed has not happened; whatever had, has. Nobody pays less
than what may have run, and asking again under the same key never pays twice.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect, text
from tests.ledger.conformance import Deed, LedgerActor
from tests.ledger.model import Model
from tests.ledger.victims import born, heard, killed_at, watched

import tightbudget as tb
from tightbudget.ledger.store import store
from tightbudget.ledger.store.schema import VERSION, VERSION_TABLE

GUARANTEE = "yes=0.3,no=0.1+1e-7"
NEW = ("open data 1 1e-6",)
RESERVED = (*NEW, f"reserve A1 {GUARANTEE}")
STARTED = (*RESERVED, "start A1")


@dataclass(frozen=True)
class Step:
    """A durable step, what came before, and the charge if death comes before or after it."""

    deed: str
    story: tuple[str, ...]
    before: str  # spent and held, if it dies before the commit
    after: str  # ... if it dies after it
    again: str = "again"  # what another process hears that asks for the same after the commit


NOTHING = "spent 0 held 0 left 1 saved 0"
HELD = "spent 0 held 0.3 left 0.7 saved 0"
STEPS = [
    Step("open ada 0.4 1e-7 in data", NEW, NOTHING, "spent 0 held 0.4 left 0.6 saved 0"),
    Step(f"reserve A1 {GUARANTEE}", NEW, NOTHING, HELD),
    # after the start it may have run: it is held until somebody knows the cell, for ever if need be
    Step("start A1", RESERVED, HELD, HELD, again="too late"),
    Step("settle A1 no", STARTED, HELD, "spent 0.1 held 0 left 0.9 saved 0.2"),
    Step("settle A1 yes", STARTED, HELD, "spent 0.3 held 0 left 0.7 saved 0"),
    Step("settle A1 undeclared", STARTED, HELD, "spent 0.3 held 0 left 0.7 saved 0"),
    Step("forfeit A1", STARTED, HELD, "spent 0.3 held 0 left 0.7 saved 0"),
    Step("void A1", RESERVED, HELD, NOTHING),
    Step("expire A1", RESERVED, HELD, NOTHING),
    Step("raise data 2 1e-6", NEW, NOTHING, "spent 0 held 0 left 2 saved 0", again="ok"),
    Step("close data", NEW, NOTHING, "spent 0 held 0 left 0 saved 0"),
]


def view(url: str) -> tuple[str, str]:
    """What a new process sees."""
    with contextlib.closing(LedgerActor(url)) as actor:
        return actor.act(Deed.read("epsilon data")), actor.act(Deed.read("state A1"))


# A deed is killed at each of its points, by a process each: one deed shows it in `make test`.
BRIEF = (f"reserve A1 {GUARANTEE}",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, id=step.deed, marks=[pytest.mark.slow] * (step.deed not in BRIEF))
        for step in STEPS
    ],
)
def test_a_killed_process_has_done_all_or_nothing(url: str, actor: LedgerActor, step: Step) -> None:
    assert set(actor.told(*step.story)) == {"ok"}
    before = after = view(url)
    assert before[0] == step.before
    points: list[str] = []
    while after == before:
        points = killed_at(url, step.deed, actor.tokens, fatal=len(points))
        after = view(url)
    # one moment decides: whoever died until then had done nothing, whoever dies there, all of it
    assert points[-2:] == ["before commit", "after commit"]
    assert len(points) > 4
    assert after[0] == step.after
    assert actor.told(step.deed) == [step.again]
    assert view(url) == after
    actor.ledger.verify()


@pytest.mark.slow
def test_a_process_killed_at_any_time_has_done_what_it_said(url: str, actor: LedgerActor) -> None:
    """It says what it has done after each deed; at most the one that it was doing is in doubt."""
    model, opening = Model(), Deed.read("open data 1000 1e-3")
    assert actor.act(opening) == model.act(opening) == "ok"
    for life in range(6):
        lines = [line for run in range(400) for line in story(f"R{life}-{run}")]
        process, ear = born(_worker, url, lines)
        assert ear.recv() == 0
        time.sleep(0.02 + 0.037 * life)
        process.kill()
        done = max(heard(process, ear), default=0)
        for line in lines[:done]:
            assert model.act(Deed.read(line)) == "ok"
        actor.told("expire nobody")  # waits for the lock: what the dead have sent has been done
        if actor.act(Deed.read("epsilon data")) != model.act(Deed.read("epsilon data")):
            model.act(Deed.read(lines[done]))  # it was done, and there was no time to say so
        for deed in (Deed.read("epsilon data"), Deed.read("delta data")):
            assert actor.act(deed) == model.act(deed)
        actor.ledger.verify()


def story(key: str) -> tuple[str, ...]:
    return f"reserve {key} yes=0.03,no=0.01+1e-9", f"start {key}", f"settle {key} no"


def _worker(url: str, lines: list[str], ear: Connection[Any, Any]) -> None:
    actor = LedgerActor(url)
    ear.send(0)
    for number, line in enumerate(lines, start=1):
        assert actor.act(Deed.read(line)) == "ok"
        ear.send(number)


@pytest.mark.slow
@pytest.mark.parametrize("version", [None, pytest.param("0001", marks=pytest.mark.slow)])
def test_a_migration_that_is_killed_is_not_begun_or_done(
    url: str, version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a database with nothing in it, or with the tables of the first version."""
    if version is not None:
        with monkeypatch.context() as patch:
            patch.setattr(store, "VERSION", version)
            tb.Ledger(url).close()
    for survived in itertools.count(step=5):
        process, ear = born(_pioneer, url, survived)
        points = heard(process, ear)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        assert version_of(url) in (version, VERSION)
        # the first commit ends the reading of the version; a flush may come after the second
        assert points.count("after commit") >= 2 or version_of(url) == version
    assert survived > 10
    with tb.Ledger(url, create=False) as ledger:
        ledger.verify()


def version_of(url: str) -> str | None:
    engine = create_engine(url)
    with engine.connect() as connection:
        there = inspect(connection).has_table(VERSION_TABLE)
        found = connection.scalar(text(f"SELECT * FROM {VERSION_TABLE}")) if there else None
    engine.dispose()
    return found


def _pioneer(url: str, fatal: int, ear: Connection[Any, Any]) -> None:
    points = itertools.count()

    def pass_by(point: str) -> None:
        ear.send(point)
        if next(points) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    with watched(pass_by):
        tb.Ledger(url)
