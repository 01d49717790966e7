"""A verification goes on from a checkpoint as if it had begun at the first event."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from sqlalchemy import Connection
from tests.ledger.make_version import tell_a_story, tell_more

import tightbudget as tb
from tightbudget.ledger import verification
from tightbudget.ledger.tokens import Tokens
from tightbudget.promises.chain import canonical, digest
from tightbudget.promises.checkpoint import Checkpoint

COIN = tb.OutputDP({"number": 0.1, "nothing": 0}, delta=1e-7)


@pytest.fixture(params=[2, 5])
def pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verification reads so many events at once, and keeps a checkpoint after each page."""
    monkeypatch.setattr(verification, "_PAGE", request.param)
    monkeypatch.setattr(verification, "_KEPT", request.param)


@pytest.fixture
def story(tmp_path: Path) -> tb.Ledger:
    """A ledger with something of every kind."""
    ledger = tb.Ledger(f"sqlite:///{tmp_path}/budget.db")
    tell_a_story(ledger)
    tell_more(ledger)
    return ledger


def kept(ledger: tb.Ledger) -> list[Checkpoint]:
    """The checkpoints of a verification, as they are read again."""
    found: list[Checkpoint] = []
    ledger.verify(keep=found.append)
    texts = [str(one) for one in found]
    assert all(text.isascii() and "\n" not in text for text in texts)
    return [Checkpoint.from_text(text) for text in texts]


@pytest.mark.usefixtures("pages")
def test_from_every_checkpoint_the_verdict_and_the_last_checkpoint_are_the_same(
    story: tb.Ledger,
) -> None:
    """Law: whatever was read before, and whatever has happened to the open runs since."""
    early = kept(story)
    assert len(early) > 10
    assert early[-1].head == story.head()
    story.hold("B3").forfeit(reason="late")
    story.hold("B2").forfeit(reason="late")
    story.budget("fay").raise_cap(epsilon=2, by="eve", reason="more")
    story.reserve("P2", tb.Gaussian(9.0), ["plan"])
    Tokens(story).revoke(Tokens(story).all()[0].id)
    whole = story.verify()
    last = kept(story)[-1]
    for checkpoint in early:
        found: list[Checkpoint] = []
        assert story.verify(since=checkpoint, keep=found.append) == whole
        assert str(found[-1]) == str(last)


@pytest.mark.usefixtures("pages")
def test_an_interrupted_verification_goes_on(story: tb.Ledger) -> None:
    found: list[Checkpoint] = []

    def interrupted(checkpoint: Checkpoint) -> None:
        found.append(checkpoint)
        if len(found) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        story.verify(keep=interrupted)
    pages: list[int] = []

    def read(some: Iterable[int]) -> Iterable[int]:
        pages.extend(some)
        return pages

    story.verify(read, since=found[-1])
    assert pages[0] == found[-1].head.sequence > 0


CHANGES = {
    "UPDATE events SET at = 'then' WHERE sequence = 1": None,
    "UPDATE events SET at = 'now' WHERE sequence = (SELECT max(sequence) FROM events)": "event ",
    "UPDATE budgets SET spent_epsilon = spent_epsilon + 1 WHERE name = 'ada'": "the budget 'ada'",
    "UPDATE budgets SET held_epsilon = held_epsilon + 1 WHERE name = 'eve'": "the budget 'eve'",
    "UPDATE reservations SET body = body || ' ' WHERE key = 'B3'": "the reservation 'B3'",
    "UPDATE reservations SET started = 1 WHERE key = 'B2'": "the reservation 'B2'",
    "INSERT INTO charges VALUES (1, 1, 0, 0)": "there are charges that belong to no",
    "DELETE FROM reservations WHERE key = 'T1'": "a reservation that had ended is missing",
    "UPDATE steps SET used = used + 1": "the steps of 'plan'",
    "UPDATE tokens SET role = 'administrator'": "the access token",
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("change", CHANGES)
def test_what_comes_after_the_head_is_compared(
    story: tb.Ledger, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint stands for what is before it; balances and open runs are compared anew."""
    checkpoint, message = kept(story)[-1], CHANGES[change]
    story.hold("B3").start()
    monkeypatch.setattr(verification, "check_shape", lambda connection: None)

    def changed(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        for name in connection.exec_driver_sql(triggers).scalars().all():
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        assert connection.exec_driver_sql(change).rowcount > 0
        if message is None:
            verification.verify(connection, iter, since=checkpoint)
        else:
            with pytest.raises(tb.errors.LedgerCorruptError, match=f"^{message}"):
                verification.verify(connection, iter, since=checkpoint)
        with pytest.raises(tb.errors.LedgerCorruptError):
            verification.verify(connection, iter)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        story._store.write(changed)
    story.verify(since=checkpoint)


def test_a_checkpoint_of_another_ledger_is_refused(story: tb.Ledger, tmp_path: Path) -> None:
    with tb.Ledger(f"sqlite:///{tmp_path}/other.db") as other:
        tell_a_story(other)
        (checkpoint,) = kept(other)
    with pytest.raises(
        tb.errors.LedgerCorruptError, match=r"^event \d+ is another one: this ledger and"
    ):
        story.verify(since=checkpoint)


def test_a_ledger_that_was_set_back_is_found_out(story: tb.Ledger, tmp_path: Path) -> None:
    (checkpoint,) = kept(story)
    with tb.Ledger(f"sqlite:///{tmp_path}/earlier.db") as earlier:
        tell_a_story(earlier)
        with pytest.raises(
            tb.errors.LedgerCorruptError, match="this is an earlier state of the ledger"
        ):
            earlier.verify(since=checkpoint)


def test_only_a_whole_checkpoint_is_read(story: tb.Ledger) -> None:
    (checkpoint,) = kept(story)
    text = str(checkpoint)
    content = json.loads(text)
    for broken in (
        "",
        "[]",
        "{}",
        "1",
        "[" * 100_000,
        text[:-1],
        text.replace("spent", "Spent", 1),
        json.dumps({**content, "format": 2}),
        json.dumps({**content, "sha256": None}),
        json.dumps({**content, "state": content["state"].replace("1", "2")}),
    ):
        with pytest.raises(tb.ParameterError, match=r"^a checkpoint must be the whole text that"):
            Checkpoint.from_text(broken)
    assert Checkpoint.from_text(f"{text}\n") == checkpoint


def sealed(text: str, **changed: object) -> str:
    """A checkpoint that somebody has made up, with the right digest."""
    content = {**json.loads(text), **changed}
    del content["sha256"]
    return canonical({**content, "sha256": digest(canonical(content))})


@pytest.mark.parametrize("head", [None, 1, [], "tightbudget-ledger:1:x", "[" * 1000])
def test_a_forged_head_is_refused(story: tb.Ledger, head: object) -> None:
    (checkpoint,) = kept(story)
    with pytest.raises(tb.ParameterError, match=r"^a checkpoint must be the whole text that"):
        Checkpoint.from_text(sealed(str(checkpoint), head=head))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "state",
    ["", "[" * 100_000, '{"a":' * 100_000, "[]", "{}", "null", "1e999", "\0", "9" * 10_000, 7],
)
def test_a_forged_state_is_a_finding(story: tb.Ledger, state: object) -> None:
    (checkpoint,) = kept(story)
    forged = Checkpoint.from_text(sealed(str(checkpoint), state=state))
    with pytest.raises(tb.errors.LedgerCorruptError, match=r"^the checkpoint .* make no sense: "):
        story.verify(since=forged)
