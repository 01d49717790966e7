"""Every kind of event and every state is handled wherever one is, and is stored as ever."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import tightbudget as tb
from tightbudget.ledger import balance_history, verification
from tightbudget.ledger.acts import unit_of_work
from tightbudget.output_dp.account import State
from tightbudget.promises import replay
from tightbudget.promises.stored_words import OPEN_STATES, EventKind, ReservationState
from tightbudget.web.pages.template_filters import KINDS_OF_EVENTS

ROOM = Path(verification.__file__).parent
# written down once more: an old ledger has these words, and a hash over them
KINDS = (
    "opened lent returned capped corrected closed reserved refused started settled forfeited void"
    " expired token_created token_revoked moved arrived audited"
)
STATES = "reserved started settled forfeited void refused"


def test_the_words_are_those_of_old_ledgers() -> None:
    assert {str(kind) for kind in EventKind} == set(KINDS.split())
    assert {str(state) for state in ReservationState} == set(STATES.split())
    assert [type(str(kind)) for kind in EventKind] == [str] * len(EventKind)


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("versions/*.json")), ids=str)
def test_every_word_of_an_old_ledger_is_known(path: Path) -> None:
    def words(content: object, name: str) -> set[str]:
        if isinstance(content, dict):
            inner = set[str]().union(*(words(value, name) for value in content.values()))
            own = content.get(name)
            return inner | ({own} if isinstance(own, str) and "previous" in content else set())
        if isinstance(content, list):
            return set[str]().union(*(words(value, name) for value in content))
        return set()

    assert words(json.loads(path.read_text(encoding="utf-8")), "kind") <= set(KINDS.split())


def test_every_kind_of_event_is_replayed_undone_and_shown() -> None:
    every = set(EventKind)
    assert set(replay._REPLAY) == every
    assert set(balance_history._UNDO) == every
    assert set(KINDS_OF_EVENTS) == every


def test_a_kind_that_ends_a_reservation_has_a_state() -> None:
    ends = set(unit_of_work._STATE_AFTER.values())
    assert ends == set(ReservationState) - {*OPEN_STATES, ReservationState.REFUSED}


def test_a_hold_has_every_state_but_the_refused_one() -> None:
    assert {state.value for state in State} == set(ReservationState) - {ReservationState.REFUSED}


def test_no_module_of_the_ledger_spells_a_kind_of_event_itself() -> None:
    """But for words that mean something else there, and for what migrations wrote long ago."""
    spelt = {
        (path.name, node.value)
        for path in ROOM.glob("*.py")
        if path.name != "stored_words.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in {*EventKind, *ReservationState}
    }
    names = {
        *((file, "closed") for file in ("schema.py", "unit_of_work.py", "values.py")),
        *((file, "started") for file in ("schema.py", "unit_of_work.py")),
        ("checkpoint.py", "moved"),
        ("verification.py", "closed"),
        ("verification.py", "started"),
        ("transactions.py", "void"),
    }  # of columns, fields and functions
    assert {word for word in spelt if word[0] != "testing.py"} <= names


def test_an_event_of_no_known_kind_is_corrupt(tmp_path: Path) -> None:
    """A budget's past is not guessed around an event that nobody understands."""
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        data = ledger.open_budget("data", epsilon=1)
        data.correct(epsilon=0.25, by="ada", reason="elsewhere")

        def change(connection: object) -> None:
            run = connection.exec_driver_sql  # type: ignore[attr-defined]
            run("DROP TRIGGER events_stay")
            run("UPDATE events SET kind = 'end' WHERE sequence = 2")

        ledger._store.write(change)
        assert [event.kind for event in ledger.events()] == ["opened", "end"]
        with pytest.raises(
            tb.errors.LedgerCorruptError, match="event 2 is of no known kind: 'end'"
        ):
            data.balance_history()
