"""Tokens: shown once, stored as a hash, over when they expire or are revoked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, select

import tightbudget as tb
from tightbudget.ledger.store.schema import tokens as table
from tightbudget.ledger.tokens import ROLES, Token, Tokens
from tightbudget.promises.chain import digest
from tightbudget.promises.secret import opens

DAY = timedelta(days=1)
NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.time = NOW

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(url: str, clock: Clock) -> Iterator[tb.Ledger]:
    with tb.Ledger(url, clock=clock) as it:
        it.open_budget("census", epsilon=2)
        it.open_budget("ada", parent="census", epsilon=1)
        yield it


@pytest.fixture
def tokens(ledger: tb.Ledger) -> Tokens:
    return Tokens(ledger)


def a_token(tokens: Tokens, role: str = "viewer") -> tuple[Token, str]:
    budgets = ["ada"] if role == "analyst" else []
    return tokens.create("for ada", role, budgets=budgets, lasts=DAY)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tb.Ledger]:
    """A set of blocks with quotas, whose name is the longest that such a set may have."""
    with tb.Ledger(f"sqlite:///{tmp_path_factory.mktemp('names')}/budget.db") as it:
        it.blocks("s" * 90, by=["day"], epsilon=1, quota_epsilon=1)
        yield it


letters = st.text(st.sampled_from("aä\u0301 =,[].\t\u200b\U0001f600"), max_size=4)


@given(name=st.one_of(st.text(max_size=6), letters, st.integers(1, 300).map(lambda n: "x" * n)))
def test_whoever_got_a_token_may_charge_a_set_with_quotas(shared: tb.Ledger, name: str) -> None:
    """Law: a name is refused when the token is made, or never."""
    try:
        token, _ = Tokens(shared).create(name, "viewer", lasts=DAY)
    except tb.ParameterError:
        return
    here = shared.blocks("s" * 90).where(day="2026-01-01")
    assert here.what_if(tb.OutputDP({"yes": 0.1}), by=token.name).fits


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a=b", "name must be without =, got 'a=b'"),
        ("", "name must be a text of 1 to 200 printable characters"),
        ("x" * 101, "name must have at most 100 characters"),
        ("x" * 201, "name must be a text of 1 to 200 printable characters"),
    ],
)
def test_names_that_no_quota_can_have_are_refused(tokens: Tokens, name: str, message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        tokens.create(name, "viewer", lasts=DAY)
    assert not tokens.all()


def test_a_set_with_quotas_leaves_room_for_names(ledger: tb.Ledger) -> None:
    terms: dict[str, Any] = {"by": ["day"], "epsilon": 1}
    with pytest.raises(tb.ParameterError, match=r"at most 90 characters, since the set has quotas"):
        ledger.blocks("s" * 91, **terms, quota_epsilon=1)
    ledger.blocks("s" * 91, **terms)


@pytest.mark.parametrize("role", ROLES)
def test_a_token_is_what_was_created(tokens: Tokens, role: str) -> None:
    token, text = a_token(tokens, role)
    assert (token.name, token.role) == ("for ada", role)
    assert token.budgets == (("ada",) if role == "analyst" else ())
    assert (token.created, token.expires, token.revoked) == (NOW, NOW + DAY, None)
    assert tokens.borne_by(text) == tokens.valid(token.id) == token
    assert tokens.all() == (token,)


def test_each_token_is_another(tokens: Tokens) -> None:
    texts = {a_token(tokens)[1] for _ in range(20)}
    assert len(texts) == len(tokens.all()) == 20


@pytest.mark.parametrize("i", [0, 3, 14, 15, 16, 40, 79])
def test_every_character_matters(tokens: Tokens, i: int) -> None:
    _, text = a_token(tokens)
    assert len(text) == 80
    other = "1" if text[i] == "0" else "0"
    assert tokens.borne_by(text[:i] + other + text[i + 1 :]) is None
    assert tokens.borne_by(text[:i] + text[i + 1 :]) is None
    assert tokens.borne_by(text) is not None


@pytest.mark.parametrize("text", ["", "tb_", "tb_0_0", "Bearer", "\0", "tb_" + "٣" * 12 + "_"])
def test_what_is_no_token_opens_nothing(tokens: Tokens, text: str) -> None:
    assert tokens.borne_by(text) is None


def test_it_is_over_when_it_expires(tokens: Tokens, clock: Clock) -> None:
    token, text = a_token(tokens)
    clock.time = NOW + DAY - timedelta(microseconds=1)
    assert tokens.borne_by(text) == token
    clock.time = NOW + DAY
    assert tokens.borne_by(text) is None
    assert tokens.valid(token.id) is None
    assert tokens.all() == (token,)


def test_it_is_over_when_it_is_revoked_and_others_are_not(tokens: Tokens, clock: Clock) -> None:
    token, text = a_token(tokens)
    other, other_text = a_token(tokens)
    clock.time += timedelta(hours=1)
    revoked = tokens.revoke(token.id)
    assert revoked.revoked == clock.time
    assert tokens.borne_by(text) is tokens.valid(token.id) is None
    assert tokens.borne_by(other_text) == other
    clock.time += timedelta(hours=1)
    assert tokens.revoke(token.id) == revoked  # the same again changes nothing


def test_the_database_has_no_secret(url: str, tokens: Tokens) -> None:
    token, text = a_token(tokens)
    secret = text.rpartition("_")[2]
    assert secret not in repr(token)
    engine = create_engine(url)
    with engine.connect() as connection:
        (row,) = connection.execute(select(table))
    engine.dispose()
    assert secret not in json.dumps(row._asdict())
    assert row.hash not in repr(token)


def test_refusals_say_what_is_refused(tokens: Tokens) -> None:
    for give, message in (
        ({"name": ""}, "name must be a text of 1 to 200 printable characters, got ''"),
        ({"role": "root"}, "role must be one of viewer, analyst, administrator, got 'root'"),
        ({"role": "analyst"}, r"budgets must be named for an analyst.* got analyst of \[\]"),
        ({"budgets": ["ada"]}, r"budgets must be named .* nobody else, got viewer of \['ada'\]"),
        (
            {"role": "analyst", "budgets": ["bob"]},
            "budget must be the name of a budget in this ledger, got 'bob'",
        ),
        ({"lasts": timedelta(0)}, "expires must be in more than no time"),
        ({"lasts": timedelta(days=4000)}, "at most ten years, got '4000 days, 0:00:00'"),
    ):
        asked: dict[str, Any] = {"name": "n", "role": "viewer", "lasts": DAY} | give
        with pytest.raises(tb.ParameterError, match=message):
            tokens.create(**asked)
    with pytest.raises(tb.ParameterError, match="id must be that of a token of this ledger"):
        tokens.revoke("0" * 12)
    assert tokens.all() == ()


def test_they_move_with_the_ledger(ledger: tb.Ledger, tokens: Tokens, tmp_path: Path) -> None:
    token, text = a_token(tokens, "analyst")
    lost, lost_text = a_token(tokens)
    tokens.revoke(lost.id)
    clock = ledger.session.now
    with tb.Ledger(f"sqlite:///{tmp_path}/target.db", clock=clock) as target:
        ledger.copy_to(target)
        assert Tokens(target).borne_by(text) == token
        assert Tokens(target).borne_by(lost_text) is None
    for act in (lambda: a_token(tokens), lambda: tokens.revoke(token.id)):
        with pytest.raises(tb.LedgerError, match="was moved to"):
            act()


def test_the_history_says_who_created_and_revoked_them(
    ledger: tb.Ledger, tokens: Tokens, clock: Clock
) -> None:
    before = ledger.head().sequence
    token, text = tokens.create("for ada", "analyst", budgets=["ada"], lasts=DAY, by="grace")
    clock.time += timedelta(hours=1)
    tokens.revoke(token.id, by="eve")
    tokens.revoke(token.id, by="bob")  # changes nothing, and is no event
    created, revoked = ledger.events(after=before)
    shown = {"id": token.id, "name": "for ada", "role": "analyst", "budgets": ["ada"]}
    shown |= {"expires": token.expires.isoformat(), "by": "grace"}
    assert created.kind == "token_created"
    assert {name: created.details[name] for name in shown} == shown
    assert created.details.keys() - shown.keys() == {"digest"}
    ended = {"id": token.id, "revoked": clock.time.isoformat(), "by": "eve"}
    assert (revoked.kind, revoked.details) == ("token_revoked", ended)
    # neither the secret nor what it is compared with
    assert text.rpartition("_")[2] not in str(created)
    assert token._hash not in str(created)
    assert ledger.verify().tokens == 1


def test_who_has_created_one_is_the_user_if_nobody_says_it(tmp_path: Path) -> None:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db", by="operations") as ledger:
        token, _ = a_token(Tokens(ledger))
        Tokens(ledger).revoke(token.id)
        assert [event.details["by"] for event in ledger.events()] == ["operations"] * 2


def test_a_budget_is_seen_with_its_parts(ledger: tb.Ledger) -> None:
    ledger.open_budget("eve", parent="ada", epsilon=0.5)
    ledger.open_budget("bob", parent="census", epsilon=0.5)
    assert ledger.within(["ada"]).names == {"ada", "eve"}
    assert ledger.within(["census"]).names == {"census", "ada", "eve", "bob"}
    assert ledger.within(["bob", "unheard of"]).names == {"bob"}
    assert ledger.within([]).names == frozenset()


def test_no_text_opens_where_nothing_is_kept() -> None:
    """Not even the empty one, whose digest the comparison takes in place of none."""
    assert opens("", digest(""))
    assert not opens("", None)
