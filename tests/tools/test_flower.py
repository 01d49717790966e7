"""The statements about Flower's wrappers on docs/how-to/use-with-flower.md, in Flower itself."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tightbudget as tb
from docs import examples

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "use-with-flower.md"

pytestmark = [
    pytest.mark.needs,
    # Flower's import of click's old names
    pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed in Click"),
]


class Flower:
    """The names of Flower that the tests use; a test without Flower is skipped."""

    def __init__(self) -> None:
        self.app = pytest.importorskip("flwr.app")
        self.strategies = pytest.importorskip("flwr.serverapp.strategy")
        self.serverapp = pytest.importorskip("flwr.serverapp")
        self.privacy = pytest.importorskip("flwr.supercore.differential_privacy")
        self.mods = pytest.importorskip("flwr.clientapp.mod")
        identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
        identity.run_id = identity.node_id = identity.task_id = 1

    def arrays(self, values: Any) -> Any:
        return self.app.ArrayRecord({"w": self.app.Array(np.asarray(values, dtype=float))})

    def messages(self, updates: list[Any], weights: list[float] | None = None) -> list[Any]:
        """Returns a reply for each update of a model that is zero."""
        asked = self.app.Message(
            content=self.app.RecordDict({"arrays": self.arrays(np.zeros_like(updates[0]))}),
            message_type="train",
            dst_node_id=7,
        )
        return [
            self.app.Message(
                content=self.app.RecordDict(
                    {
                        "arrays": self.arrays(update),
                        "m": self.app.MetricRecord({"num-examples": weight}),
                    }
                ),
                reply_to=asked,
            )
            for update, weight in zip(updates, weights or [1.0] * len(updates), strict=True)
        ]

    def mean(self, strategy: Any, replies: list[Any], shape: Any) -> Any:
        strategy.current_arrays = self.arrays(np.zeros(shape))
        found, _ = strategy.aggregate_train(1, replies)
        return found["w"].numpy()

    def fixed(self, noise: float, sampled: int) -> Any:
        return self.strategies.DifferentialPrivacyServerSideFixedClipping(
            self.strategies.FedAvg(), noise, 1.0, sampled
        )


@pytest.fixture
def flower() -> Flower:
    return Flower()


def test_a_replaced_client_moves_the_mean_by_twice_the_norm(flower: Flower) -> None:
    ends = []
    for last in (50.0, -50.0):
        replies = flower.messages([np.full(1, 9.0), np.full(1, 9.0), np.full(1, last)])
        ends.append(flower.mean(flower.fixed(0.0, 3), replies, 1)[0])
    assert ends[0] - ends[1] == pytest.approx(2 * 1.0 / 3)


def test_the_noise_of_a_mean_is_z_times_the_norm_over_the_clients(flower: Flower) -> None:
    np.random.seed(3)  # noqa: NPY002 - Flower draws from this source
    far = [np.full(40_000, sign * 1.0) for sign in (1, -1)]  # clipped to norm 1, and mean 0
    noise = flower.mean(flower.fixed(4.0, 2), flower.messages(far), 40_000)
    assert np.std(noise) == pytest.approx(4.0 * 1.0 / 2, rel=0.02)


def test_without_an_accountant_a_heavy_client_moves_the_mean_further(flower: Flower) -> None:
    ends = []
    for first in (5.0, -5.0):
        replies = flower.messages([np.full(1, first), np.full(1, 5.0)], weights=[99.0, 1.0])
        ends.append(flower.mean(flower.fixed(0.0, 2), replies, 1)[0])
    assert ends[0] - ends[1] == pytest.approx(2 * 0.99)


def test_without_an_accountant_a_round_with_fewer_replies_is_not_dropped(flower: Flower) -> None:
    replies = flower.messages([np.full(1, 5.0)])
    assert flower.mean(flower.fixed(0.0, 10), replies, 1)[0] == pytest.approx(1.0)


def test_an_update_of_zero_stops_the_server(flower: Flower) -> None:
    with pytest.raises(ZeroDivisionError):
        flower.mean(flower.fixed(1.0, 1), flower.messages([np.zeros(3)]), 3)


def test_an_update_that_is_not_a_number_is_seen(flower: Flower) -> None:
    replies = flower.messages([np.array([math.nan, 50.0]), np.array([1.0, 50.0])])
    assert np.isnan(flower.mean(flower.fixed(1.0, 2), replies, 2)[0])


def test_one_client_more_costs_more_than_the_accountant_says(flower: Flower) -> None:
    """Of 100 clients 99 are drawn, and one update is opposite to the others, as the page has it."""
    config = flower.serverapp.PrivacyConfig(
        target_delta=1e-5,
        population_size=100,
        neighboring_relation=flower.serverapp.NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=flower.serverapp.SamplingMethod.NO_AMPLIFICATION,
    )
    accountant = flower.serverapp.RdpAccountant(config)
    accountant.compose(flower.serverapp.GaussianPrivacyEvent(4.0, 99, 100), 12)
    run = tb.Gaussian(sigma=4.0, sensitivity=2.0).subsampled(rate=0.99) * 12
    assert run.epsilon(delta=1e-5).lower > 2 * accountant.get_epsilon(1e-5)
    # the means of the rounds with that client and without it, by the wrapper itself
    others = [np.full(1, -5.0)] * 98
    means = [
        flower.mean(flower.fixed(0.0, 99), flower.messages([np.full(1, last), *others]), 1)[0]
        for last in (5.0, -5.0)
    ]
    assert means[0] - means[1] == pytest.approx(2 / 99)
    assert means[1] == pytest.approx(-1.0)


def test_adaptive_noise_is_made_for_the_norm_after_its_update(
    flower: Flower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The updates were clipped at the norm before: a fallen norm makes too little noise."""
    wrapper = flower.strategies.DifferentialPrivacyServerSideAdaptiveClipping
    strategy = wrapper(flower.strategies.FedAvg(), 1.0, 40, initial_clipping_norm=1.0)
    monkeypatch.setattr(strategy, "_noisy_fraction", lambda count, total: 1.0)  # all are clipped
    np.random.seed(3)  # noqa: NPY002
    updates = [np.full(40_000, (-1.0) ** k) for k in range(40)]
    noise = np.std(flower.mean(strategy, flower.messages(updates), 40_000))
    factor = math.exp(-0.2 * (1.0 - 0.5))
    assert noise == pytest.approx(factor * strategy.noise_multiplier / 40, rel=0.02)
    assert factor == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("z", [0.5, 1.0, 3.0])
def test_both_answers_of_adaptive_clipping_are_made_to_cost_z(flower: Flower, z: float) -> None:
    """They do, for a client whose data are replaced, if the noise were that of the old norm."""
    count, mean = flower.privacy.compute_adaptive_noise_params(z, 100, None)
    both = tb.Gaussian(sigma=mean, sensitivity=2.0) * 1 + tb.Gaussian(sigma=count) * 1
    said = tb.Gaussian(sigma=z, sensitivity=2.0) * 1
    assert both.epsilon(delta=1e-5).upper == pytest.approx(said.epsilon(delta=1e-5).lower, rel=1e-9)


def test_local_noise_is_that_of_the_formula(flower: Flower) -> None:
    """The formula gives less than is claimed at epsilon 10: a lower bound above delta."""
    sensitivity, epsilon, delta = 2.0, 10.0, 1e-5
    mod = flower.mods.LocalDpMod(1.0, sensitivity, epsilon, delta)
    model = np.zeros(40_000)
    asked = flower.app.Message(
        content=flower.app.RecordDict({"arrays": flower.arrays(model)}),
        message_type="train",
        dst_node_id=7,
    )
    np.random.seed(3)  # noqa: NPY002
    (reply,) = flower.messages([np.full(40_000, 1e-9)])
    sent = mod(asked, None, lambda message, context: reply).content["arrays"]["w"].numpy()
    sigma = sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    assert np.std(sent) == pytest.approx(sigma, rel=0.02)
    assert (tb.Gaussian(sigma=sigma, sensitivity=2.0) * 1).delta(epsilon).lower > 2 * delta


# ------------------------------------------------------------------ the recipe on the page


class Clients:
    """Five clients with budgets for two rounds of the page's strategy, three in a round."""

    def __init__(self, flower: Flower, folder: Path) -> None:
        names: dict[str, Any] = {"tb": tb}
        text = PAGE.read_text(encoding="utf-8")
        block = next(b[2] for b in examples.BLOCK.finditer(text) if "class Paid" in b[2])
        exec(compile(block, str(PAGE), "exec"), names)
        self.flower = flower
        self.exhausted = names["PrivacyBudgetExhausted"]
        self.ledger = tb.Ledger(f"sqlite:///{folder}/clients.db")
        self.names = {node: f"client-{node}" for node in range(5)}
        for name in self.names.values():
            self.ledger.open_budget(name, kind="gaussian_dp", mu=1.0)
        self.strategy = names["PaidFedAvg"](self.ledger, self.names, math.sqrt(0.5), 3)

    def asked(self, nodes: Any = range(5)) -> list[int]:
        """Returns the clients that one more round asks, of those that are connected."""
        messages = self.strategy.configure_train(
            1,
            self.flower.arrays([0.0]),
            self.flower.app.ConfigRecord(),
            SimpleNamespace(get_node_ids=lambda: nodes),
        )
        return [message.metadata.dst_node_id for message in messages]

    def spent(self) -> list[float]:
        """Returns what each client has spent, in rounds."""
        found = [self.ledger.budget(name).spent.amount for name in self.names.values()]
        return [round(2 * float(square), 6) for square in found]  # of mu


@pytest.fixture
def five(flower: Flower, tmp_path: Path) -> Clients:
    return Clients(flower, tmp_path)


def test_who_is_asked_has_paid(five: Clients) -> None:
    asked = five.asked() + five.asked()
    assert five.spent() == [asked.count(node) for node in range(5)]


def test_who_cannot_pay_is_not_asked(five: Clients) -> None:
    first = five.asked([0, 1, 2]) + five.asked([0, 1, 2])
    assert sorted(first) == [0, 0, 1, 1, 2, 2]
    with pytest.raises(five.exhausted, match="2 of 5 clients can pay"):
        five.asked()
    assert five.spent() == [2, 2, 2, 0, 0]


def test_a_client_without_a_budget_is_not_asked(five: Clients) -> None:
    assert set(five.asked([0, 1, 2, 77, 78, 79])) == {0, 1, 2}


def test_all_pay_or_none(five: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run spends between the question and the reservation: nobody is asked or charged."""
    five.ledger.reserve("another run", 1.0, ["client-2"])
    before = five.spent()
    monkeypatch.setattr(tb.ledger.LedgerBudget, "can_afford", lambda budget, price: True)
    with pytest.raises(tb.BudgetExceeded, match="client-2"):
        five.asked([0, 1, 2])
    assert five.spent() == before
