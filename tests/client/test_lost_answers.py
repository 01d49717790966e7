"""An answer is lost at every step: nothing is lost with it, and nothing is charged twice.

A real server, and a network that closes the connection before the server has seen a request or
after it has answered. What the ledger says then is what the documentation says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.client.lossy import Lossy, lossy
from tests.web.conftest import Serve

import tightbudget as tb
from tightbudget.client import http
from tightbudget.output_dp.account import State

COIN = tb.OutputDP({"yes": 0.3, "no": 0.1}, delta=1e-7)
ALL = 100  # more losses than anybody asks again


@pytest.fixture
def network(ledger_url: str, served: Serve, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lossy]:
    monkeypatch.setattr(http, "_PAUSES", (0.01, 0.01, 0.01))
    with lossy(served(ledger_url).url) as it:
        yield it


@pytest.fixture
def far(network: Lossy, token: Callable[..., str]) -> Iterator[tb.RemoteLedger]:
    with tb.RemoteLedger(network.url, token=token("administrator")) as it:
        yield it


@dataclass(frozen=True)
class Step:
    """An act: what came before it, and (spent, held) before it and after it."""

    act: str
    before: tuple[str, ...]
    was: tuple[float, float]
    becomes: tuple[float, float]
    kind: str

    def __call__(
        self, hold: tb.client.RemoteHold | None, data: tb.client.RemoteBudget, key: str
    ) -> None:
        if hold is None:
            data.reserve(key, COIN)
        elif self.act == "settle":
            hold.settle("no")
        else:
            getattr(hold, self.act)()


NOTHING, HELD = (0.0, 0.0), (0.0, 0.3)
STEPS = [
    Step("reserve", (), NOTHING, HELD, "reserved"),
    Step("settle", ("reserve", "start"), HELD, (0.1, 0.0), "settled"),
    Step("forfeit", ("reserve", "start"), HELD, (0.3, 0.0), "forfeited"),
    Step("void", ("reserve",), HELD, NOTHING, "void"),
]


def balance(budget: tb.ledger.LedgerBudget) -> tuple[float, float]:
    statement = budget.statement()
    return statement.spent.epsilon, statement.held.epsilon


def prepared(
    far: tb.RemoteLedger, key: str, before: tuple[str, ...]
) -> tb.client.RemoteHold | None:
    hold = far.budget(key).reserve(key, COIN) if before else None
    if "start" in before and hold is not None:
        hold.start()
    return hold


@pytest.mark.slow
def test_what_is_asked_again_is_done_once(
    ledger: tb.Ledger, network: Lossy, far: tb.RemoteLedger
) -> None:
    for step, lost, times in itertools.product(STEPS, ("requests", "answers"), (1, 3, ALL)):
        key = f"{step.act}-{lost}-{times}"
        data = ledger.open_budget(key, epsilon=1, delta=1e-6)
        hold, budget = prepared(far, key, step.before), far.budget(key)
        assert balance(data) == step.was
        setattr(network, lost, times)
        if times == ALL:
            with pytest.raises(tb.LedgerError, match="ask again under the same key") as caught:
                step(hold, budget, key)
            assert caught.value.unknown
            # nobody can tell the two apart from outside
            assert balance(data) == (step.becomes if lost == "answers" else step.was)
            network.requests = network.answers = 0
        step(hold, budget, key)
        step(hold, budget, key)
        assert balance(data) == step.becomes
        assert [event.kind for event in data.history()].count(step.kind) == 1
    ledger.verify()


@pytest.mark.slow
def test_a_start_that_got_no_answer_counts_as_started(
    ledger: tb.Ledger, network: Lossy, far: tb.RemoteLedger
) -> None:
    data = ledger.open_budget("data", epsilon=1, delta=1e-6)
    hold = far.budget("data").reserve("L1", COIN)
    network.answers = 1
    with pytest.raises(tb.LedgerError, match="void the reservation, or if that is refused") as lost:
        hold.start()
    assert lost.value.unknown
    assert hold.token is None
    assert far.hold("L1").state is State.STARTED
    with pytest.raises(tb.errors.SettlementError, match="only what was not started is freed"):
        hold.void()
    with pytest.raises(
        tb.errors.FencingError, match="is settled with the token of its start, got None"
    ):
        hold.settle("no")
    for event in far.events(key="L1"):  # nothing that anybody is shown is the token
        for guess in map(str, (event.sequence, event.hash, *event.details.values())):
            with pytest.raises(tb.errors.FencingError, match="of its start, got another"):
                far.hold("L1", token=guess).settle("no")
    assert balance(data) == HELD
    assert hold.forfeit() == tb.Amount(0.3, 1e-7, "epsilon")
    ledger.verify()


@pytest.mark.slow
def test_a_start_with_a_token_of_the_caller_s_is_settled_though_its_answer_was_lost(
    ledger: tb.Ledger, network: Lossy, far: tb.RemoteLedger
) -> None:
    data, token = ledger.open_budget("data", epsilon=1, delta=1e-6), "0123456789abcdef" * 2
    hold = far.budget("data").reserve("L1", COIN)
    network.answers = 1
    with pytest.raises(tb.LedgerError) as lost:
        hold.start(token=token)
    assert lost.value.unknown
    with pytest.raises(tb.errors.SettlementError, match="a hold is started once, and 'L1' is star"):
        hold.start(token=token)
    assert far.hold("L1", token=token).settle("no") == tb.Amount(0.1, 1e-7, "epsilon")
    assert balance(data) != HELD
    ledger.verify()


@pytest.mark.slow
def test_a_start_that_did_not_arrive_can_be_given_back(
    ledger: tb.Ledger, network: Lossy, far: tb.RemoteLedger
) -> None:
    data = ledger.open_budget("data", epsilon=1, delta=1e-6)
    hold = far.budget("data").reserve("L1", COIN)
    network.requests = 1
    with pytest.raises(tb.LedgerError) as lost:
        hold.start()
    assert lost.value.unknown
    hold.void()
    assert balance(data) == NOTHING
    with pytest.raises(tb.errors.SettlementError, match="a hold is started once, and 'L1' is void"):
        hold.start()
    ledger.verify()


@pytest.mark.slow
def test_a_mechanism_that_loses_its_ledger_reveals_nothing(
    ledger: tb.Ledger, network: Lossy, far: tb.RemoteLedger
) -> None:
    """All answers are lost from one on: reserve's, start's, settle's."""
    for spared, state in enumerate((State.RESERVED, State.STARTED, State.SETTLED)):
        looked, key = list[int](), f"run-{spared}"

        def count(data: Any, looked: list[int] = looked) -> int:
            looked.append(len(data))
            return len(data)

        mechanism = tb.release.LaplaceRelease(count, 1, 0.5)
        budget = ledger.open_budget(key, epsilon=1, delta=1e-6)
        meter = far.budget(key).keyed(key)
        network.spared, network.answers = spared, ALL
        with pytest.raises(tb.LedgerError) as caught:
            mechanism.release(np.arange(100), meter=meter)
        network.answers = 0
        assert caught.value.unknown
        assert bool(looked) == (state is State.SETTLED)  # it runs if it is known to have started
        hold = far.hold(key)
        assert hold.state is state
        if state is State.RESERVED:
            hold.void()
        elif state is State.STARTED:
            hold.forfeit()
        assert balance(budget) == ((0.0 if state is State.RESERVED else 0.5), 0.0)
    ledger.verify()
