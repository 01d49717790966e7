"""Training that may stop early, paid for by a ledger on another machine, goes on after a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.lossy import lossy
from tests.client.test_remote import connected
from tests.release import test_resuming_workflow as workflows
from tests.release.test_resuming import again, do, gone, held, of, paid, spent
from tests.web.conftest import Client, Serve

import tightbudget as tb
from tightbudget.client import http


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/budget.db"
    with tb.Ledger(url) as ledger:
        ledger.open_budget("ada", epsilon=8, delta=0.5)
        ledger.open_budget("bob", epsilon=8, delta=0.5)
    return url


@pytest.fixture
def remote(client: Client, token: Callable[..., str]) -> Iterator[tb.RemoteLedger]:
    """The served ledger, as an analyst sees it."""
    with connected(client, token("analyst", "ada")) as ledger:
        yield ledger


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("deeds", "more", "stop"), [("", "sy", 2), ("sn", "ssy", 4), ("snsn", "", 4), ("sy", "", 1)]
)
def test_a_run_goes_on_over_http(
    deeds: str, more: str, stop: int, remote: tb.RemoteLedger, ledger: tb.Ledger
) -> None:
    run = again(remote, gone(remote, deeds))
    with run:
        do(run, more)
    assert spent(ledger) == spent(remote) == paid(stop)
    ledger.verify()


@pytest.mark.parametrize(("deeds", "stop"), [("s", 1), ("snsn", 4)])
def test_a_run_is_ended_over_http(
    deeds: str, stop: int, remote: tb.RemoteLedger, ledger: tb.Ledger
) -> None:
    again(remote, gone(remote, deeds)).end()
    assert spent(ledger) == paid(stop)
    assert ledger.holds() == ()


def test_a_run_goes_on_beside_the_ledger_and_over_http(
    remote: tb.RemoteLedger, ledger: tb.Ledger
) -> None:
    again(ledger, gone(remote, "s")).end()
    assert spent(remote) == paid(1)


@pytest.mark.parametrize(("moves", "state"), [((), "quiet"), (("loud", "between"), "end")])
def test_a_workflow_is_ended_over_http(
    moves: tuple[str, ...], state: str, remote: tb.RemoteLedger, ledger: tb.Ledger
) -> None:
    workflows.again(remote, workflows.gone(remote, *moves)).end()
    assert spent(ledger) == spent(remote) == workflows.paid(state)
    assert ledger.holds() == ()


def test_a_workflow_goes_on_beside_the_ledger_and_over_http(
    remote: tb.RemoteLedger, ledger: tb.Ledger
) -> None:
    slow = workflows.of(remote).__enter__()
    with workflows.again(ledger, slow.state_dict()) as run:
        run.go("loud")
        with pytest.raises(tb.errors.FencingError, match="another process has gone on"):
            slow.go("quiet")
    assert spent(remote) == workflows.paid("loud")


def test_a_wrong_token_is_refused_before_anything_runs(
    remote: tb.RemoteLedger, ledger: tb.Ledger
) -> None:
    state = gone(remote)
    with pytest.raises(tb.errors.FencingError, match="'run' goes on with the token of its start"):
        again(remote, {**state, "token": "f" * 32}).__enter__()
    assert not ledger.is_reserved("run after 1")
    assert spent(ledger) == held()


def test_a_run_that_is_over_is_refused(remote: tb.RemoteLedger, ledger: tb.Ledger) -> None:
    state = gone(remote)
    ledger.hold("run").forfeit()
    with pytest.raises(tb.errors.SettlementError, match="'run' is forfeited"):
        again(remote, state).end()


def test_a_second_start_says_what_can_be_done(remote: tb.RemoteLedger) -> None:
    gone(remote)
    with pytest.raises(tb.errors.SettlementError, match=r"ledger.hold\('run'\).forfeit\(\)"):
        of(remote).__enter__()


@pytest.mark.slow  # it starts a server
def test_a_stop_or_a_move_is_claimed_though_answers_are_lost(
    ledger_url: str,
    served: Serve,
    token: Callable[..., str],
    ledger: tb.Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "_PAUSES", (0.01, 0.01, 0.01))
    with (
        lossy(served(ledger_url).url) as network,
        tb.RemoteLedger(network.url, token=token("administrator")) as far,
    ):
        run: Any = of(far).__enter__()
        do(run, "s")
        network.answers = 1  # that of the first claim
        do(run, "nsy")
        run.__exit__(None, None, None)
        assert spent(ledger) == paid(2)
        before, _ = spent(ledger)
        moving = workflows.of(far, "moving").__enter__()
        network.answers = 1
        moving.go("loud")
        moving.__exit__(None, None, None)
    assert spent(ledger)[0] == pytest.approx(before + workflows.PRICES["loud"])
