"""Text enters a ledger whole and in one spelling, whatever brings it there."""

from __future__ import annotations

import itertools
import tempfile
import unicodedata
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth
from tests.ledger.conformance import found

import tightbudget as tb
from tightbudget.ledger.acts import budget_acts, run_acts
from tightbudget.ledger.acts.budget_acts import Terms
from tightbudget.ledger.acts.requests import Request
from tightbudget.ledger.rows import selection
from tightbudget.ledger.tokens import Tokens
from tightbudget.promises.text import printable, spellings

COIN = tb.OutputDP({"number": 0.1, "nothing": 0}, delta=1e-7)
HALF = "\ud800"
# an e with an acute accent, as one character and as two; and a letter with two marks in any order
SPELLINGS = [("caf\u00e9", "cafe\u0301"), ("\u1e69", "s\u0307\u0323"), ("\u212b", "A\u030a")]


@pytest.fixture
def ledger(url: str) -> Any:
    with tb.Ledger(url) as it:
        it.open_budget("data", epsilon=1, delta=1e-6)
        yield it


def started(ledger: tb.Ledger) -> tb.ledger.LedgerHold:
    hold = ledger.reserve("run", COIN, ["data"])
    hold.start()
    return hold


# every way in which a text enters: the name that the refusal gives it, and the deed
DOORS: list[tuple[str, Callable[[tb.Ledger, str], Any]]] = [
    ("name", lambda b, text: b.open_budget(text, epsilon=1)),
    ("name", lambda b, text: b.budget(text)),
    ("parent", lambda b, text: b.open_budget("part", parent=text, epsilon=0.1)),
    ("key", lambda b, text: b.reserve(text, COIN, ["data"])),
    ("key", lambda b, text: b.budget("data").reserve(text, COIN)),
    ("key", lambda b, text: b.budget("data").keyed(text).reserve(COIN)),
    ("budget", lambda b, text: b.reserve("A1", COIN, [text])),
    ("budget", lambda b, text: b.budget("data").reserve("A1", COIN, also=[text])),
    ("cell", lambda b, text: b.reserve("A1", tb.OutputDP({text: 0.1}), ["data"])),
    ("cell", lambda b, text: b.reserve("A1", tb.OutputDP({(1, ("a", text)): 0.1}), ["data"])),
    ("cell", lambda b, text: b.budget("data").what_if(tb.OutputDP({text: 0.1}))),
    ("cell", lambda b, text: started(b).settle(text)),
    ("cell", lambda b, text: started(b).settle((text,))),
    ("by", lambda b, text: started(b).forfeit(by=text)),
    ("reason", lambda b, text: started(b).forfeit(reason=text)),
    ("key", lambda b, text: b.hold(text)),
    ("key", lambda b, text: b.expire(text, by="grace", reason="gone")),
    ("reason", lambda b, text: b.expire("run", by="grace", reason=text)),
    ("by", lambda b, text: b.budget("data").raise_cap(epsilon=2, by=text, reason="more")),
    ("reason", lambda b, text: b.budget("data").correct(epsilon=0.1, by="grace", reason=text)),
    ("key", lambda b, text: b.budget("data").record_audit(text, found("0.5"))),
    ("by", lambda b, text: b.budget("data").record_audit("run", found("0.5"), by=text)),
    ("budget", lambda b, text: list(b.events(budget=text))),
    ("key", lambda b, text: list(b.events(key=text))),
    ("kind", lambda b, text: b.latest(1, kind=text)),
    ("search", lambda b, text: b.latest(1, search=text)),
    ("name", lambda b, text: Tokens(b).create(text, "viewer", lasts=timedelta(hours=1))),
    (
        "budget",
        lambda b, text: Tokens(b).create(
            "ada", "analyst", budgets=[text], lasts=timedelta(hours=1)
        ),
    ),
]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("door", range(len(DOORS)))
@pytest.mark.parametrize("text", [HALF, f"a{HALF}b", "\udfff", HALF + "x" * 100])
def test_half_a_character_is_refused_at_every_door(ledger: tb.Ledger, door: int, text: str) -> None:
    name, deed = DOORS[door]
    with pytest.raises(tb.ParameterError) as refusal:
        deed(ledger, text)
    assert str(refusal.value).startswith(f"{name} must "), refusal.value
    str(refusal.value).encode()
    ledger.verify()


@pytest.mark.parametrize(("one", "other"), [p for s in SPELLINGS for p in (s, s[::-1])])
def test_a_key_is_the_same_however_it_is_spelt(ledger: tb.Ledger, one: str, other: str) -> None:
    hold = ledger.reserve(one, COIN, ["data"])
    assert hold.key == unicodedata.normalize("NFC", one)
    assert ledger.reserve(other, COIN, ["data"]).key == hold.key
    assert [h.key for h in ledger.holds()] == [hold.key]
    ledger.hold(other).start()
    assert [e.kind for e in ledger.events(key=other)] == ["reserved", "started"]
    assert [e.kind for e in ledger.events(search=other)] == ["reserved", "started"]
    with pytest.raises(tb.errors.SettlementError, match="started"):
        ledger.expire(other, by="grace", reason="gone")
    ledger.verify()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("one", "other"), [p for s in SPELLINGS for p in (s, s[::-1])])
def test_a_name_is_the_same_however_it_is_spelt(ledger: tb.Ledger, one: str, other: str) -> None:
    ledger.open_budget(one, parent="data", epsilon=0.5, delta=0)
    ledger.open_budget(other, parent="data", epsilon=0.5, delta=0)
    assert len(ledger.budgets()) == 2
    ledger.open_budget("part", parent=other, epsilon=0.1, delta=0)
    assert ledger.budget("part").parent == ledger.budget(other).name
    ledger.reserve("A1", tb.OutputDP.from_dp(0.1), [other])
    ledger.reserve("A1", tb.OutputDP.from_dp(0.1), [one])
    with pytest.raises(tb.ParameterError, match="each once"):
        ledger.reserve("A2", COIN, [one, other])
    made, _ = Tokens(ledger).create("ada", "analyst", budgets=[one, other],
                                    lasts=timedelta(hours=1))  # fmt: skip
    assert made.budgets == (ledger.budget(other).name,)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("one", "other"), [p for s in SPELLINGS for p in (s, s[::-1])])
def test_what_an_earlier_version_has_stored_is_found(
    ledger: tb.Ledger, one: str, other: str
) -> None:
    """It stored names and keys as they came; what is neither form C nor D, as itself alone."""
    if one not in spellings(other):
        other = one
    terms = Terms.of("output_dp", {"epsilon": 1})
    request = Request.of(COIN, ["data"], False)
    ledger.session.write(
        lambda act: budget_acts.open_budget(act, name=one, terms=terms, parent=None)
    )
    ledger.session.write(lambda act: run_acts.reserve(act, key=one, request=request, why={}))
    for spelt in {one, other}:
        assert ledger.budget(spelt).name == one
        assert ledger.hold(spelt).key == one
        assert ledger.reserve(spelt, COIN, ["data"]).key == one
        assert ledger.open_budget(spelt, epsilon=1).name == one
        assert [e.key for e in ledger.events(key=spelt)] == [one]
        assert [e.kind for e in ledger.events(budget=spelt)] == ["opened"]
    assert ledger.reserve("A1", tb.OutputDP.from_dp(0.1), [other]).charges.keys() == {one}
    # an earlier version could hold both spellings, as two; each is still the one that it names
    if one != other:
        ledger.session.write(lambda act: run_acts.reserve(act, key=other, request=request, why={}))
    assert [ledger.hold(spelt).key for spelt in (one, other)] == [one, other]
    ledger.verify()


@given(st.text(max_size=250))
def test_what_is_printable_is_so_in_every_spelling(given_text: str) -> None:
    def said(spelling: str) -> str:
        try:
            return printable(key=spelling)
        except tb.ParameterError:
            return ""

    found = set(map(said, spellings(given_text)))
    assert len(found) == 1
    (same,) = found
    same.encode()
    assert same == unicodedata.normalize("NFC", same)
    assert not same or (same.isprintable() and len(same) <= 200)


def test_spellings_begin_with_the_one_that_is_given() -> None:
    for one, other in itertools.chain(SPELLINGS, (s[::-1] for s in SPELLINGS)):
        assert spellings(one)[0] == one
        assert set(map(printable_key, spellings(one))) == {printable_key(other)}
    assert spellings("plain") == ("plain",)


def printable_key(text: str) -> str:
    return printable(key=text)


def refuses(deed: Callable[[tb.Ledger], Any]) -> Callable[[], bool]:
    def true() -> bool:
        with tempfile.TemporaryDirectory() as folder, tb.Ledger(f"sqlite:///{folder}/x.db") as it:
            it.open_budget("data", epsilon=1)
            try:
                deed(it)
            except tb.ParameterError:
                return True
            return False

    return true


def spelt_twice_is_one() -> bool:
    with tempfile.TemporaryDirectory() as folder, tb.Ledger(f"sqlite:///{folder}/x.db") as it:
        it.open_budget("data", epsilon=1)
        for key in SPELLINGS[0]:
            it.reserve(key, tb.OutputDP.from_dp(0.1), ["data"])
        return len(it.holds()) == 1


def an_old_key_is_found() -> bool:
    with tempfile.TemporaryDirectory() as folder, tb.Ledger(f"sqlite:///{folder}/x.db") as it:
        it.open_budget("data", epsilon=1)
        composed, apart = SPELLINGS[0]
        request = Request.of(tb.OutputDP.from_dp(0.1), ["data"], False)
        it.session.write(lambda act: run_acts.reserve(act, key=apart, request=request, why={}))
        return it.reserve(composed, tb.OutputDP.from_dp(0.1), ["data"]).key == apart


MUTATIONS = [
    Without(
        "declared cells are whole",
        {"declared-cells-whole": "pass"},
        refuses(lambda b: b.reserve("A", tb.OutputDP({HALF: 0.1}), ["data"])),
    ),
    Without(
        "settled cells are whole",
        {"settled-cells-whole": "pass"},
        refuses(lambda b: started_in(b).settle(HALF)),
    ),
    Without(
        "parts of cells are whole",
        {"parts-cells-whole": "return True"},
        refuses(lambda b: b.reserve("A", tb.OutputDP({(HALF,): 0.1}), ["data"])),
    ),
    Without(
        "keys have one spelling",
        {"one-spelling-of-keys": 'text = value if isinstance(value, str) else ""'},
        spelt_twice_is_one,
    ),
    Without("old spellings are found", {"old-spellings-found": "return text"}, an_old_key_is_found),
]


def started_in(ledger: tb.Ledger) -> tb.ledger.LedgerHold:
    hold = ledger.reserve("run", tb.OutputDP.from_dp(0.1), ["data"])
    hold.start()
    return hold


@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    if mutation.name == "keys have one spelling":  # what finds old spellings would hide it
        monkeypatch.setattr(selection, "stored_key", lambda *_: None)
    lose_a_truth(monkeypatch, mutation)
