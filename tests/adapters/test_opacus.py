"""The accountant inside Opacus: real engines, optimizers, loaders and checkpoints, on the CPU."""

from __future__ import annotations

import contextlib
import copy
import importlib
import itertools
import math
import pickle
import random
import re
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.guards.test_engine import gaussian_truth
from tests.integrals import Integral, Saddle, Step

import tightbudget as tb
from tightbudget.release.stopping import StoppingCallback

torch = pytest.importorskip("torch", reason="make adapters")
opacus = pytest.importorskip("opacus", reason="make adapters")

from opacus.accountants import PRVAccountant, RDPAccountant, create_accountant  # noqa: E402
from opacus.accountants.utils import get_noise_multiplier  # noqa: E402
from opacus.optimizers import DistributedDPOptimizer  # noqa: E402
from opacus.schedulers import StepNoise  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402

from tightbudget.adapters import opacus as adapter  # noqa: E402
from tightbudget.adapters.opacus import dp_sgd_pass, dp_sgd_step  # noqa: E402

pytestmark = [
    pytest.mark.needs,
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    # of the other accountants
    pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha"),
    pytest.mark.filterwarnings("ignore:divide by zero encountered in log"),
]

History = list[tuple[float, float, int]]
Truth = Callable[[float], tuple[float, float]]  # from epsilon to both ends of delta

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "opacus_early_stopping.py"

DELTA = 1e-5
HISTORIES = [
    [(1.0, 0.05, 20)],
    [(0.7, 0.01, 300)],
    [(4.0, 0.25, 1000)],
    [(1.0, 0.05, 10), (2.0, 0.1, 30), (1.0, 0.05, 10)],
    [(2.0, 1.0, 3)],
]


def counted(history: History) -> Any:
    # by its module, which one test loads again
    accountant = adapter.TightAccountant()
    for sigma, rate, steps in history:
        for _ in range(steps):
            accountant.step(noise_multiplier=sigma, sample_rate=rate)
    return accountant


def named(history: History) -> str:
    return "+".join(f"{sigma},{q}x{k}" for sigma, q, k in history)


histories = pytest.mark.parametrize("history", HISTORIES, ids=named)


# --------------------------------------------------------------------------------- laws


def one_sampled(sigma: float, q: float) -> Truth:
    """One step, a record removed: q times what ln(1 + (e^eps - 1) / q) costs unsampled."""

    def delta(epsilon: float) -> tuple[float, float]:
        shifted = math.log1p(math.expm1(epsilon) / q)
        low, high = gaussian_truth(1 / sigma, shifted)
        return q * low * (1 - 1e-12), q * high * (1 + 1e-12)

    return delta


def all_records(sigma: float, steps: int) -> Truth:
    """Steps that see every record are one step of that many times the square of its distance."""
    return lambda epsilon: gaussian_truth(math.sqrt(steps) / sigma, epsilon)


def many_sampled(sigma: float, q: float, steps: int) -> Truth:
    """By line integrals in ball arithmetic."""

    def delta(epsilon: float) -> tuple[float, float]:
        course = ((Step.of(sigma, q, remove=True), steps),)
        saddle = Saddle.near(course, math.log(DELTA))
        (found,) = Integral.of(course, saddle, 30.0).deltas([epsilon])
        return float(found.lower()), float(found.upper())

    return delta


TRUTHS: list[tuple[History, Truth]] = [
    ([(1.0, 0.05, 1)], one_sampled(1.0, 0.05)),
    ([(0.6, 0.3, 1)], one_sampled(0.6, 0.3)),
    ([(2.0, 1.0, 3)], all_records(2.0, 3)),
    ([(4.0, 0.25, 1000)], many_sampled(4.0, 0.25, 1000)),
]


def holds_the_truth(history: History, delta: Truth) -> bool:
    """The exact epsilon lies between both ends, which are close."""
    bounds, hair = counted(history).bounds(DELTA), 1e-9
    return (
        delta(bounds.upper)[0] <= DELTA * (1 + hair)
        and DELTA * (1 - hair) <= delta(bounds.lower)[1]
        and bounds.relative_gap <= 1e-4
    )


@pytest.mark.parametrize(("history", "delta"), TRUTHS, ids=[named(h) for h, _ in TRUTHS])
def test_both_ends_hold_the_truth(history: History, delta: Truth) -> None:
    assert holds_the_truth(history, delta)


@histories
def test_the_order_of_accountants(history: History) -> None:
    """Renyi's bound is above ours; that of PRVs is within the error that it allows itself."""
    bounds = counted(history).bounds(DELTA)
    others = {}
    for kind in (RDPAccountant, PRVAccountant):
        accountant = kind()
        accountant.history = list(history)
        others[kind.mechanism()] = accountant.get_epsilon(DELTA)
    assert bounds.upper < others["rdp"]
    assert bounds.lower <= others["prv"] <= bounds.upper + 0.03


@histories
def test_what_it_returns_is_the_upper_end(history: History) -> None:
    accountant = counted(history)
    whole = tb.compose([tb.Gaussian(s).subsampled(q) * k for s, q, k in history])
    assert accountant.composition == whole
    assert len(accountant) == whole.runs
    assert accountant.bounds(DELTA) == whole.epsilon(DELTA)
    assert accountant.get_epsilon(DELTA) == accountant.bounds(DELTA).upper
    # Opacus hands the keywords of one accountant to all
    assert accountant.get_epsilon(DELTA, alphas=[2.0]) == accountant.get_epsilon(DELTA)
    assert accountant.get_epsilon(DELTA, rtol=0.1) <= 1.2 * accountant.get_epsilon(DELTA)


def test_runs_of_equal_steps_are_one_entry() -> None:
    assert counted(HISTORIES[3]).history == HISTORIES[3]
    assert counted([]).bounds(DELTA) == tb.Bounds(0.0, 0.0)


def test_without_noise_nothing_is_promised_but_the_sample() -> None:
    accountant = counted([(0.0, 0.01, 10)])
    assert accountant.get_epsilon(DELTA) == math.inf
    delta = accountant.composition.delta(5.0)
    assert delta.lower <= 1 - 0.99**10 <= delta.upper + 1e-15


# ---------------------------------------------------------------------------- by name


@pytest.mark.parametrize(("epsilon", "steps", "rate"), [(1.0, 1000, 0.01), (8.0, 50, 0.2)])
def test_noise_for_a_target(epsilon: float, steps: int, rate: float) -> None:
    target = {"target_epsilon": epsilon, "target_delta": DELTA, "sample_rate": rate}
    found = {
        name: get_noise_multiplier(**target, steps=steps, accountant=name)
        for name in ("tight", "rdp")
    }
    met = (dp_sgd_step(found["tight"], rate) * steps).epsilon(DELTA)
    assert epsilon - 0.02 <= met.lower <= met.upper <= epsilon
    assert found["tight"] <= found["rdp"]


def test_it_is_there_by_name_however_often_it_is_imported() -> None:
    module = importlib.reload(sys.modules["tightbudget.adapters.opacus"])
    assert type(create_accountant("tight")) is module.TightAccountant is adapter.TightAccountant


def test_without_opacus_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    monkeypatch.delitem(sys.modules, "tightbudget.adapters.opacus")
    with pytest.raises(tb.errors.ExtraError, match=r"pip install 'tightbudget\[opacus\]'"):
        importlib.import_module("tightbudget.adapters.opacus")


# ------------------------------------------------------------------------------- engines


class Private:
    """A small model made private: 48 records, 6 batches."""

    def __init__(self, accountant: str = "tight", noise: float = 1.0, **options: Any) -> None:
        torch.manual_seed(0)
        x, y = torch.randn(48, 3), torch.randint(0, 2, (48,))
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
        self.module = module = torch.nn.Linear(3, 2)
        self.engine = opacus.PrivacyEngine(accountant=accountant)
        self.loss = torch.nn.CrossEntropyLoss()
        model, self.optimizer, *criterion, self.loader = self.engine.make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            criterion=self.loss,
            noise_multiplier=noise,
            **{"max_grad_norm": 1.0, "data_loader": loader, **options},
        )
        self.model, self.loss = model, (criterion or [self.loss])[0]

    @property
    def accountant(self) -> Any:
        return self.engine.accountant

    @property
    def weights(self) -> list[Any]:
        return [p.detach().clone() for p in self.module.parameters()]

    def backward(self, x: Any, y: Any) -> None:
        self.loss(self.model(x), y).backward()

    def epoch(self, loader: Any = None) -> None:
        for x, y in loader or self.loader:
            self.optimizer.zero_grad()
            self.backward(x, y)
            self.optimizer.step()


@pytest.mark.parametrize(
    "options",
    [{}, {"clipping": "per_layer", "max_grad_norm": [0.6, 0.8]}, {"grad_sample_mode": "ghost"}],
    ids=["flat", "per-layer", "ghost"],
)
def test_each_step_of_training_is_counted(options: dict[str, Any]) -> None:
    run = Private(**options)
    run.epoch()
    run.epoch()
    assert run.accountant.history == [(1.0, 1 / 6, 12)]
    assert run.engine.get_epsilon(DELTA) == (dp_sgd_step(1.0, 1 / 6) * 12).epsilon(DELTA).upper


def test_it_counts_as_opacus_counts() -> None:
    runs = [Private(name) for name in ("tight", "rdp", "prv")]
    for run in runs:
        run.epoch()
        StepNoise(run.optimizer, step_size=1, gamma=0.5).step()
        run.epoch()
    assert runs[0].accountant.history == [(1.0, 1 / 6, 6), (0.5, 1 / 6, 6)]
    assert all(run.accountant.history == runs[0].accountant.history for run in runs)


def test_batches_in_pieces_are_one_step() -> None:
    run = Private()
    with BatchMemoryManager(
        data_loader=run.loader, max_physical_batch_size=3, optimizer=run.optimizer
    ) as pieces:
        run.epoch(pieces)
    assert run.accountant.history == [(1.0, 1 / 6, 6)]


def test_a_target_for_the_whole_run() -> None:
    run = Private()
    module = torch.nn.Linear(3, 2)
    _, optimizer, loader = opacus.PrivacyEngine(accountant="tight").make_private_with_epsilon(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=run.loader,
        target_epsilon=2.0,
        target_delta=DELTA,
        epochs=5,
        max_grad_norm=1.0,
    )
    spent = (dp_sgd_step(optimizer.noise_multiplier, 1 / len(loader)) * 30).epsilon(DELTA)
    assert 1.95 <= spent.lower <= spent.upper <= 2.0


# ------------------------------------------------------------------- loaders that cut batches


RECORDS = torch.utils.data.TensorDataset(torch.randn(48, 3), torch.randint(0, 2, (48,)))


def loader_of(**options: Any) -> Any:
    return torch.utils.data.DataLoader(RECORDS, **{"batch_size": 8, **options})


def cut(**options: Any) -> Private:
    return Private(poisson_sampling=False, data_loader=loader_of(**options))


def sampler_of(kind: str, *given: Any, **named: Any) -> Any:
    return getattr(torch.utils.data, kind)(*given, **named)


@pytest.mark.parametrize(
    ("options", "batches", "smaller", "steps"),
    [
        ({"shuffle": True}, 6, 0, 6),
        ({"shuffle": True, "batch_size": 10}, 5, 1, 5),  # the last batch has 8 records
        ({"shuffle": True, "batch_size": 47}, 2, 1, 2),  # and 1
        ({"shuffle": True, "batch_size": 10, "drop_last": True}, 1, 0, 4),  # some are left out
        ({"shuffle": True, "batch_size": 8, "drop_last": True}, 6, 0, 6),
        ({"shuffle": True, "batch_size": 48}, 1, 0, 1),
        ({"shuffle": True, "batch_size": 50}, 1, 0, 1),
        ({}, 1, 0, 6),  # in the order of the data
        ({"sampler": sampler_of("SubsetRandomSampler", range(24))}, 3, 0, 3),
        ({"sampler": sampler_of("RandomSampler", RECORDS, num_samples=24)}, 1, 0, 3),
    ],
    ids=[
        "shuffled",
        "shuffled, a short last batch",
        "shuffled, a last batch of one record",
        "shuffled, some left out",
        "shuffled, none left out",
        "one batch",
        "one batch, not full",
        "in order",
        "a shuffled part",
        "a random part",
    ],
)
def test_a_pass_over_batches_is_counted_as_a_pass(
    options: dict[str, Any], batches: int, smaller: int, steps: int
) -> None:
    run = cut(**options)
    run.epoch()
    run.epoch()
    assert run.accountant.history == []
    assert run.accountant.passes == [(1.0, batches, smaller, 2, 2 * steps)]
    assert len(run.accountant) == 2 * steps
    one = tb.Gaussian(1.0, relation=tb.Neighbouring.ZERO_OUT)
    whole = one if batches == 1 else one.shuffled(batches, smaller)
    assert run.accountant.composition == whole * 2
    assert run.accountant.get_epsilon(DELTA) == pytest.approx((one * 2).epsilon(DELTA).upper)


def test_a_pass_that_is_left_early_is_a_pass() -> None:
    run = cut()
    for _ in range(3):
        run.epoch(itertools.islice(run.loader, 2))
    assert run.accountant.passes == [(1.0, 1, 0, 3, 6)]


def test_noise_may_change_between_passes_and_not_within() -> None:
    run = cut()
    schedule = StepNoise(run.optimizer, step_size=1, gamma=0.5)
    run.epoch()
    schedule.step()
    run.epoch()
    assert run.accountant.passes == [(1.0, 1, 0, 1, 6), (0.5, 1, 0, 1, 6)]
    batches = iter(run.loader)
    run.epoch(itertools.islice(batches, 2))
    schedule.step()
    message = "noise_multiplier must stay 0.5 until a pass has ended, got 0.25"
    without_effect(run, lambda: run.epoch(batches), tb.ParameterError, message)


def test_batches_of_a_pass_may_come_in_pieces() -> None:
    run = cut()
    with BatchMemoryManager(
        data_loader=run.loader, max_physical_batch_size=3, optimizer=run.optimizer
    ) as pieces:
        run.epoch(pieces)
    assert run.accountant.passes == [(1.0, 1, 0, 1, 6)]


@pytest.mark.parametrize("poisson", [True, False])
def test_training_on_another_loader_is_refused(poisson: bool) -> None:
    run = Private(poisson_sampling=poisson)
    message = "each step must be made with a new batch of the loader that make_private has returned"
    without_effect(run, lambda: run.epoch(loader_of()), tb.ParameterError, message)
    run.epoch()
    without_effect(run, lambda: run.epoch(loader_of()), tb.ParameterError, message)


def test_two_passes_at_once_are_refused() -> None:
    run = cut()
    first, second = iter(run.loader), iter(run.loader)
    batches = [next(first), next(second), next(first)]
    message = "the loader must be gone through once at a time"
    without_effect(run, lambda: run.epoch(batches), tb.ParameterError, message)


def poisson_loader(rate: float) -> Any:
    return opacus.data_loader.DPDataLoader(RECORDS, sample_rate=rate)


def test_the_rate_is_that_of_the_sampler_and_not_that_of_the_engine() -> None:
    """A loader of rate 0.3 has three batches, of which Opacus reports a rate of 1/3."""
    run = Private(poisson_sampling=False, data_loader=poisson_loader(0.3))
    run.epoch()
    assert run.accountant.history == [(1.0, 0.3, 3)]
    # one that goes on for longer, of which Opacus reports 1/20
    sampler = opacus.utils.uniform_sampler.UniformWithReplacementSampler(
        num_samples=48, sample_rate=0.5, steps=20
    )
    many = torch.utils.data.DataLoader(RECORDS, batch_sampler=sampler)
    run = Private(poisson_sampling=False, data_loader=many)
    run.epoch(itertools.islice(run.loader, 4))
    assert run.accountant.history == [(1.0, 0.5, 4)]
    sampler.sample_rate = 0.1
    message = "sample_rate must stay 0.5, as when make_private was called, got 0.1"
    without_effect(run, run.epoch, tb.ParameterError, message)


def drawn(**options: Any) -> Private:
    """A run on a loader that draws batches with replacement."""
    order = sampler_of("RandomSampler", RECORDS, replacement=True, num_samples=24)
    return cut(sampler=order, **options)


def test_draws_with_replacement_are_counted_by_their_batches() -> None:
    run = drawn()
    run.epoch()
    run.epoch()
    assert (run.accountant.history, run.accountant.passes) == ([], [])
    assert run.accountant.draws == [(1.0, 8, 48, 6)]
    assert len(run.accountant) == 6
    whole = tb.Gaussian(1.0).batches(8, 48, replacement=True) * 6
    assert run.accountant.composition == whole
    assert run.accountant.get_epsilon(DELTA) == whole.epsilon(DELTA).upper
    message = "each step must be made with a new batch"
    without_effect(run, lambda: run.epoch(loader_of()), tb.ParameterError, message)
    other = adapter.TightAccountant()
    other.load_state_dict(run.accountant.state_dict())
    assert other.draws == run.accountant.draws
    with pytest.raises(tb.ParameterError, match=r"draws\[0\]\[1\] must be an integer >= 1, got 0"):
        other.load_state_dict({**run.accountant.state_dict(), "draws": [(1.0, 0, 48, 6)]})


def test_batches_of_draws_stay_as_they_are() -> None:
    run = drawn()
    run.loader.batch_sampler.batch_size = 12
    message = r"\(batch_size, records\) must stay \(8, 48\), as when make_private was called"
    without_effect(run, run.epoch, tb.ParameterError, message)


@pytest.mark.parametrize("order", ["twice", "replacement", "larger batches"])
def test_passes_stay_as_they_are(order: str) -> None:
    run = cut(shuffle=True)
    run.epoch()
    cuts = run.loader.batch_sampler
    if order == "larger batches":
        cuts.batch_size, message = (
            24,
            r"the unknown batches of a pass, and the smaller ones must stay \(6, 0\)",
        )
    elif order == "twice":
        cuts.sampler = sampler_of("SubsetRandomSampler", [*range(48), 0])
        message = "visit each record once in a pass"
    else:
        cuts.sampler = sampler_of("RandomSampler", RECORDS, replacement=True, num_samples=480)
        message = "visit each record once in a pass"
    without_effect(run, run.epoch, tb.ParameterError, message)


def test_draws_of_which_the_last_batch_is_short_are_refused() -> None:
    order = sampler_of("RandomSampler", RECORDS, replacement=True, num_samples=28)
    message = "drop_last must be True, or num_samples a multiple of batch_size"
    with pytest.raises(tb.ParameterError, match=message):
        cut(sampler=order)
    run = cut(sampler=order, drop_last=True)
    run.epoch()
    assert run.accountant.draws == [(1.0, 8, 48, 3)]


@pytest.mark.parametrize("first", ["draws", "samples", "passes"])
def test_draws_and_other_steps_do_not_compose(first: str) -> None:
    """A neighbour of the one has another record, and one of the other has a record less."""
    made = {"draws": drawn, "samples": Private, "passes": cut}
    run = made[first]()
    run.epoch()
    for then in sorted({"draws", "samples", "passes"} - {first} if first == "draws" else {"draws"}):
        other = made[then]()
        loader = other.loader
        with pytest.raises(tb.errors.RelationError, match="they need an engine of their own"):
            run.accountant.hook_for(loader)
    if first == "draws":
        with pytest.raises(tb.errors.RelationError, match="they need an engine of their own"):
            run.engine.make_private(
                module=torch.nn.Linear(3, 2),
                optimizer=None,
                data_loader=loader_of(),
                noise_multiplier=1.0,
                max_grad_norm=1.0,
            )
        run.accountant.step(noise_multiplier=1.0, sample_rate=0.1)
        with pytest.raises(tb.errors.RelationError):
            run.accountant.get_epsilon(DELTA)


def test_without_noise_a_draw_reveals_the_record() -> None:
    assert adapter.dp_sgd_batch(0.0, 8, 48).relation is tb.Neighbouring.REPLACE_ONE
    assert (adapter.dp_sgd_batch(0.0, 8, 48) * 1).epsilon(DELTA).upper == math.inf


class Odd(torch.utils.data.BatchSampler):  # type: ignore[misc, name-defined]
    """Batches of nobody knows which records."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: loader_of(sampler=sampler_of("WeightedRandomSampler", [1.0] * 48, 48)),
            r"data_loader.sampler must visit each record once in a pass.*got <torch.*Weighted",
        ),
        (
            lambda: loader_of(sampler=sampler_of("RandomSampler", RECORDS, num_samples=96)),
            "data_loader.sampler must visit each record once in a pass",
        ),
        (
            lambda: loader_of(sampler=sampler_of("SubsetRandomSampler", [1, 2, 1])),
            "data_loader.sampler must visit each record once in a pass",
        ),
        (
            lambda: torch.utils.data.DataLoader(
                RECORDS, batch_sampler=Odd(sampler_of("SequentialSampler", RECORDS), 8, False)
            ),
            r"data_loader.batch_sampler must draw by Poisson.*shuffled-batches.html\), got",
        ),
        (lambda: loader_of(batch_size=None), "data_loader.batch_sampler must draw by Poisson"),
    ],
)
def test_a_loader_of_which_nothing_is_known_is_refused_before_anything_changes(
    make: Callable[[], Any], message: str
) -> None:
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    engine = opacus.PrivacyEngine(accountant="tight")
    given = {"module": module, "optimizer": optimizer, "noise_multiplier": 1.0}
    with pytest.raises(tb.ParameterError, match=message):
        engine.make_private(**given, data_loader=make(), max_grad_norm=1.0, poisson_sampling=False)
    engine.make_private(**given, data_loader=loader_of(), max_grad_norm=1.0)


def test_other_accountants_see_no_loader() -> None:
    run = Private("rdp", poisson_sampling=False)
    run.epoch()
    run.epoch(loader_of())
    assert run.accountant.history == [(1.0, 1 / 6, 12)]


def test_a_target_for_passes_is_met_by_passes() -> None:
    module = torch.nn.Linear(3, 2)
    engine = opacus.PrivacyEngine(accountant="tight")
    _, optimizer, _ = engine.make_private_with_epsilon(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=loader_of(shuffle=True),
        poisson_sampling=False,
        target_epsilon=2.0,
        target_delta=DELTA,
        epochs=5,
        max_grad_norm=1.0,
    )
    spent = (tb.Gaussian(optimizer.noise_multiplier) * 5).epsilon(DELTA)
    assert 1.99 <= spent.lower <= spent.upper <= 2.0


def with_target(loader: Any) -> tuple[Any, Any]:
    """The engine and the optimizer of five epochs that cost at most 2."""
    module = torch.nn.Linear(3, 2)
    engine = opacus.PrivacyEngine(accountant="tight")
    _, optimizer, _ = engine.make_private_with_epsilon(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=loader,
        poisson_sampling=False,
        target_epsilon=2.0,
        target_delta=DELTA,
        epochs=5,
        max_grad_norm=1.0,
    )
    return engine, optimizer


def test_a_target_is_met_by_the_samples_that_the_loader_draws() -> None:
    _, optimizer = with_target(poisson_loader(0.25))
    spent = (dp_sgd_step(optimizer.noise_multiplier, 0.25) * 20).epsilon(DELTA)
    assert 1.99 <= spent.lower <= spent.upper <= 2.0


@pytest.mark.slow
def test_a_target_is_met_by_draws_with_replacement() -> None:
    order = sampler_of("RandomSampler", RECORDS, replacement=True)
    _, optimizer = with_target(loader_of(sampler=order))
    run = adapter.dp_sgd_batch(optimizer.noise_multiplier, 8, 48) * 30
    assert 0.99 * DELTA <= run.delta(2.0).upper <= DELTA


def test_passes_and_samples_are_added_up_for_a_record_whose_place_is_empty() -> None:
    run = cut()
    run.epoch()
    run.accountant.step(noise_multiplier=2.0, sample_rate=0.1)
    zeroed = tb.Neighbouring.ZERO_OUT
    whole = tb.Gaussian(1.0, relation=zeroed) + tb.Gaussian(2.0, relation=zeroed).subsampled(0.1)
    assert run.accountant.get_epsilon(DELTA) == pytest.approx(whole.epsilon(DELTA).upper, rel=1e-9)


def test_a_checkpoint_of_passes_brings_them_back() -> None:
    run, other = cut(), adapter.TightAccountant()
    run.epoch()
    other.load_state_dict(run.accountant.state_dict())
    assert other.passes == run.accountant.passes == [(1.0, 1, 0, 1, 6)]
    with pytest.raises(tb.ParameterError, match=r"passes\[0\] must be \(noise multiplier, batches"):
        other.load_state_dict({**run.accountant.state_dict(), "passes": [(1.0, 2)]})
    with pytest.raises(tb.ParameterError, match=r"passes\[0\]\[1\] must be an integer >= 1, got 0"):
        other.load_state_dict({**run.accountant.state_dict(), "passes": [(1.0, 0, 0, 1, 1)]})
    assert other.passes == [(1.0, 1, 0, 1, 6)]


def test_not_all_batches_of_a_pass_are_smaller_than_the_others() -> None:
    for batches, smaller in ((1, 1), (5, 5)):
        message = rf"smaller must be below batches \({batches}\), got {smaller}"
        with pytest.raises(tb.ParameterError, match=message):
            dp_sgd_pass(1.0, batches, smaller)
        passes = [(1.0, batches, smaller, 1, 1)]
        state = {**adapter.TightAccountant().state_dict(), "passes": passes}
        must = rf"passes\[0\]\[2\] must be below passes\[0\]\[1\] \({batches}\), got {smaller}"
        with pytest.raises(tb.ParameterError, match=must):
            adapter.TightAccountant().load_state_dict(state)
    with pytest.raises(tb.ParameterError, match=r"smaller must be an integer >= 0, got 0\.5"):
        dp_sgd_pass(1.0, 1, 0.5)  # type: ignore[arg-type]


def test_a_checkpoint_without_the_size_of_the_last_batch_counts_it_as_smaller() -> None:
    accountant = adapter.TightAccountant()
    state = accountant.state_dict()
    accountant.load_state_dict({**state, "passes": [[1.0, 5, 2, 10], (1.0, 1, 3, 6)]})
    assert accountant.passes == [(1.0, 5, 1, 2, 10), (1.0, 1, 0, 3, 6)]
    assert accountant.composition == dp_sgd_pass(1.0, 5, smaller=1) * 2 + dp_sgd_pass(1.0, 1) * 3


def test_a_schedule_of_passes_stops_early() -> None:
    run, account = cut(), tb.OutputDPFilter(20, DELTA)
    used = tb.early_stopping(dp_sgd_pass(1.0, 1), [1, 2, 3], DELTA)
    with StoppingCallback(used, account, bool) as stopping:
        run.accountant.report_to(stopping)
        run.epoch()
        without_effect(run, run.epoch, tb.errors.SettlementError, r"ask should_stop\(1, ...\)")
        assert stopping.should_stop(1, True)


def test_without_noise_a_pass_reveals_the_record() -> None:
    assert dp_sgd_pass(0.0, 5) == tb.ApproximateDP(0.0, 1.0, relation=tb.Neighbouring.ZERO_OUT)


# --------------------------------------------------------------------------- checkpoints


def test_a_checkpoint_brings_everything_back(tmp_path: Path) -> None:
    run, other = Private(), Private(noise=3.0)
    run.epoch()
    path = tmp_path / "checkpoint.pt"
    run.engine.save_checkpoint(path=path, module=run.model, optimizer=run.optimizer)
    saved = list(run.accountant.history)
    other.engine.load_checkpoint(path=path, module=other.model, optimizer=other.optimizer)
    assert other.accountant.history == saved
    other.epoch()
    run.epoch()
    assert other.accountant.history == [*saved, (3.0, 1 / 6, 6)]
    assert run.accountant.history == [(1.0, 1 / 6, 12)]


def test_a_state_is_a_copy() -> None:
    accountant, other = counted(HISTORIES[3]), adapter.TightAccountant()
    state = accountant.state_dict()
    assert state["mechanism"] == "tight"
    other.load_state_dict(state)
    for each_one in (accountant, other):
        each_one.step(noise_multiplier=1.0, sample_rate=0.05)
    assert state["history"] == HISTORIES[3]
    assert accountant.history == other.history != HISTORIES[3]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "state dict is either None or empty"),
        ({}, "state dict is either None or empty"),
        ({"mechanism": "tight"}, "does not have the key `history`"),
        ({"history": []}, "does not have the key `mechanism`"),
        ({"history": [(1.0, 0.1, 3)], "mechanism": "rdp"}, "state_dict of rdp cannot be loaded"),
        ({"history": 3, "mechanism": "tight"}, "history must be a list, got 3"),
        (
            {"history": [(1.0, 0.1)], "mechanism": "tight"},
            r"history\[0\] must be \(noise multiplier, sample rate, steps\), got \(1.0, 0.1\)",
        ),
        (
            {"history": [(1.0, 0.1, 2), (math.nan, 0.1, 2)], "mechanism": "tight"},
            r"history\[1\]\[0\] must be a finite number >= 0, got nan",
        ),
        (
            {"history": [(1.0, 1.1, 2)], "mechanism": "tight"},
            r"history\[0\]\[1\] must be in \[0, 1\], got 1.1",
        ),
        (
            {"history": [(1.0, 0.1, 2.5)], "mechanism": "tight"},
            r"history\[0\]\[2\] must be an integer >= 0, got 2.5",
        ),
    ],
)
def test_a_state_that_is_none_changes_nothing(state: Any, message: str) -> None:
    accountant = counted(HISTORIES[0])
    with pytest.raises(ValueError, match=message):
        accountant.load_state_dict(state)
    assert accountant.history == HISTORIES[0]


OTHERS = [PRVAccountant, RDPAccountant]


@pytest.mark.parametrize("kind", OTHERS)
def test_a_checkpoint_of_another_accountant_is_taken_when_it_is_declared(
    kind: Any, tmp_path: Path
) -> None:
    name = kind.mechanism()
    old, new = Private(name), Private()
    old.epoch()
    StepNoise(old.optimizer, step_size=1, gamma=0.5).step()
    old.epoch()
    path = tmp_path / "checkpoint.pt"
    old.engine.save_checkpoint(path=path, module=old.model, optimizer=old.optimizer)
    given = {"path": path, "module": new.model, "optimizer": new.optimizer}
    message = rf"state_dict of {name} cannot be loaded.*say so with .*accept_history_of\('{name}'\)"
    with pytest.raises(tb.ParameterError, match=message):
        new.engine.load_checkpoint(**given)
    assert new.accountant.history == []
    new.accountant.accept_history_of(name)
    new.engine.load_checkpoint(**given)
    assert new.accountant.history == old.accountant.history == [(1.0, 1 / 6, 6), (0.5, 1 / 6, 6)]
    whole = dp_sgd_step(1.0, 1 / 6) * 6 + dp_sgd_step(0.5, 1 / 6) * 6
    assert new.engine.get_epsilon(DELTA) == whole.epsilon(DELTA).upper
    # what it writes is its own
    assert new.accountant.state_dict()["mechanism"] == "tight"


def test_another_accountants_history_is_checked_like_ours() -> None:
    accountant = counted(HISTORIES[0])
    accountant.accept_history_of("rdp", "gdp")
    for name, history, message in [
        ("gdp", [(1.0, 1.5, 2)], r"history\[0\]\[1\] must be in \[0, 1\], got 1.5"),
        ("prv", [(1.0, 0.5, 2)], "state_dict of prv cannot be loaded"),
    ]:
        with pytest.raises(tb.ParameterError, match=message):
            accountant.load_state_dict({"mechanism": name, "history": history})
    assert accountant.history == HISTORIES[0]
    accountant.load_state_dict({"mechanism": "gdp", "history": [(1.0, 0.5, 2)]})
    assert accountant.history == [(1.0, 0.5, 2)]
    with pytest.raises(tb.ParameterError, match="mechanism must be the name of an accountant"):
        accountant.accept_history_of(RDPAccountant)


def test_a_state_is_read_without_trust_in_its_file(tmp_path: Path) -> None:
    for run in (Private(), cut(), drawn()):
        run.epoch()
        torch.save(run.accountant.state_dict(), tmp_path / "state.pt")
        other = adapter.TightAccountant()
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        assert other.composition == run.accountant.composition


# ---------------------------------------------------------------------- counting, in any order

NOISES, RATES = (1.0, 2.0, np.float64(1.0), 1, torch.tensor(1.0)), (0.1, 0.25)


@pytest.mark.parametrize("seed", range(20))
def test_no_step_is_lost(seed: int) -> None:
    """Steps in any order, with copies, states and edits between them, against a count apart."""
    draw, accountant = random.Random(seed), adapter.TightAccountant()
    apart: Counter[tuple[float, float]] = Counter()
    for _ in range(200):
        deed = draw.choice(["step"] * 12 + ["state", "copy", "pickle", "edit", "split", "back"])
        if deed == "step":
            noise, rate = draw.choice(NOISES), draw.choice(RATES)
            for _ in range(draw.choice([1, 1, 3])):
                accountant.step(noise_multiplier=noise, sample_rate=rate)
                apart[float(noise), rate] += 1
        elif deed == "state":
            saved = accountant.state_dict()
            accountant.step(noise_multiplier=5.0, sample_rate=0.5)  # forgotten with what it ran in
            accountant.load_state_dict(saved)
        elif deed == "copy":
            other, accountant = accountant, copy.deepcopy(accountant)
            other.step(noise_multiplier=5.0, sample_rate=0.5)
        elif deed == "pickle":
            accountant = pickle.loads(pickle.dumps(accountant))
        elif deed == "edit":
            accountant.history.append((1.0, 0.1, 7))
            apart[1.0, 0.1] += 7
        elif deed == "split" and accountant.history:
            # one object twice: a step may grow the last one alone
            accountant.history.append(accountant.history[-1])
            sigma, rate, steps = accountant.history[-1]
            apart[sigma, rate] += steps
        elif deed == "back" and accountant.history:
            sigma, rate, steps = accountant.history.pop()
            apart[sigma, rate] -= steps
    found: Counter[tuple[float, float]] = Counter()
    for sigma, rate, steps in accountant.history:
        found[sigma, rate] += steps
    assert found == +apart
    assert len(accountant) == found.total()
    assert all(type(number) in (float, int) for entry in accountant.history for number in entry)


def test_a_tensor_that_changes_is_another_kind() -> None:
    noise, accountant = torch.tensor(1.0), adapter.TightAccountant()
    for factor in (1.0, 1.0, 0.5):
        noise *= factor
        accountant.step(noise_multiplier=noise, sample_rate=0.1)
    assert accountant.history == [(1.0, 0.1, 2), (0.5, 0.1, 1)]


@pytest.mark.parametrize(
    "value", [True, np.ones(2), "1.0", None], ids=["bool", "array", "text", "None"]
)
def test_what_is_no_number_is_refused_after_steps_too(value: Any) -> None:
    accountant = counted([(1.0, 0.1, 2)])
    with pytest.raises(tb.ParameterError, match="noise_multiplier must be"):
        accountant.step(noise_multiplier=value, sample_rate=0.1)
    assert accountant.history == [(1.0, 0.1, 2)]


@pytest.mark.parametrize(
    ("noise", "rate", "message"),
    [
        (math.nan, 0.1, "noise_multiplier must be a finite number >= 0, got nan"),
        (-1.0, 0.1, "noise_multiplier must be a finite number >= 0, got -1.0"),
        (1.0, 1.5, r"sample_rate must be in \[0, 1\], got 1.5"),
    ],
)
def test_a_step_that_is_none_is_refused(noise: float, rate: float, message: str) -> None:
    accountant = counted([])
    with pytest.raises(tb.ParameterError, match=message):
        accountant.step(noise_multiplier=noise, sample_rate=rate)
    assert len(accountant) == 0


# ------------------------------------------------------------- what Opacus may do besides


def without_effect(run: Private, step: Callable[[], object], error: Any, message: str) -> None:
    """The step is refused, counts nothing and leaves the model as it was."""
    before, counted_before = run.weights, list(run.accountant.history)
    with pytest.raises(error, match=message):
        step()
    assert all(torch.equal(a, b) for a, b in zip(before, run.weights, strict=True))
    assert run.accountant.history == counted_before


def test_workers_that_cut_batches_of_their_own_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    accountant = adapter.TightAccountant()
    shuffled = Private("rdp", poisson_sampling=False).loader
    message = "the number of workers must be 1 without Poisson sampling: each worker has batches"
    with pytest.raises(tb.ParameterError, match=message):
        accountant.hook_for(shuffled)
    assert len(accountant) == 0


def test_samples_that_pile_up_are_refused() -> None:
    """Opacus adds up the rates, as if no record could be in two of the samples."""
    run = Private(poisson_sampling=False)
    for x, y in [*run.loader][:2]:
        run.backward(x, y)
    without_effect(
        run, run.optimizer.step, tb.ParameterError, "accumulated_iterations must be 1.*, got 2"
    )


def test_adding_up_rates_would_not_cover_two_samples() -> None:
    """Two samples at rate 1/2 add up to 1: one step that always sees the record, at most once."""
    claimed = tb.Gaussian(1.0) * 1
    # in both with probability 1/4, and then the gradient moves by 2
    alone = 0.25 * (tb.Gaussian(1.0, sensitivity=2.0) * 1).delta(6.0).lower
    assert alone > 100 * claimed.delta(6.0).upper


def test_clipping_that_adapts_is_refused() -> None:
    run = Private(
        clipping="adaptive",
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2,
        max_clipbound=2.0,
        min_clipbound=0.1,
        unclipped_num_std=5.0,
    )
    without_effect(run, run.epoch, tb.ParameterError, "clipping must be 'flat' or 'per_layer'")


def test_adaptive_clipping_reports_more_noise_than_it_adds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One step on all records: a record that is not clipped moves the sum and a count."""
    from opacus.optimizers import AdaClipDPOptimizer, adaclipoptimizer

    stds: list[float] = []

    def noted(std: float, reference: Any, **_: Any) -> Any:
        stds.append(float(std))
        return torch.zeros_like(reference)

    monkeypatch.setattr(adaclipoptimizer, "_generate_noise", noted)

    def shown(records: Any) -> tuple[Any, float]:
        """The sum of the gradients, and the count, that a step on these gradients adds noise to."""
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = AdaClipDPOptimizer(
            torch.optim.SGD([weight], lr=0.1),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            expected_batch_size=1,
            target_unclipped_quantile=0.5,
            clipbound_learning_rate=0.2,
            max_clipbound=2.0,
            min_clipbound=0.1,
            unclipped_num_std=0.6,
        )
        weight.grad_sample = records
        optimizer.clip_and_accumulate()
        optimizer.add_noise()
        return weight.grad, float(optimizer.unclipped_num)

    with_it, without = (
        shown(torch.tensor([[0.5], [0.9999]])),
        shown(torch.tensor([[0.5]])),
    )
    of_sum, of_count = stds[:2]
    moves = float(with_it[0] - without[0]) / of_sum, (with_it[1] - without[1]) / of_count
    # two Gaussian numbers that move by these distances are one that moves by their hypotenuse
    truth = tb.Gaussian(1.0, sensitivity=math.hypot(*moves)) * 1
    claimed = tb.Gaussian(1.0) * 1
    assert truth.delta(1.0).lower > 2 * claimed.delta(1.0).upper


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of one."""
    torch.distributed.init_process_group(
        "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_distributed_training_is_counted() -> None:
    module = opacus.distributed.DifferentiallyPrivateDistributedDataParallel(torch.nn.Linear(3, 2))
    data = torch.utils.data.TensorDataset(torch.randn(48, 3), torch.randint(0, 2, (48,)))
    engine = opacus.PrivacyEngine(accountant="tight")
    model, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=8),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    assert isinstance(optimizer, DistributedDPOptimizer)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert engine.accountant.history == [(1.0, 1 / 6, 6)]


# ------------------------------------------------------------------------ early stopping


def schedule(noise: float = 1.0, rate: float = 1 / 6) -> tb.StoppingSchedule:
    """Epochs of six steps, with a stop after each."""
    return tb.early_stopping(dp_sgd_step(noise, rate) * 6, [1, 2, 3], DELTA)


def begun(run: Private, batches: Any, used: tb.StoppingSchedule) -> None:
    with StoppingCallback(used, tb.OutputDPOdometer(), bool) as stopping:
        run.accountant.report_to(stopping)
        run.epoch(batches)
        stopping.should_stop(1, True)


@pytest.mark.parametrize("other", [{"noise": 2.0}, {"rate": 0.1}], ids=str)
def test_steps_are_refused_that_the_schedule_has_not(other: dict[str, float]) -> None:
    run = Private()
    sampled = r"Gaussian\(sigma=.*\)\.subsampled\("
    message = rf"stop 1 comes after {sampled}.* \* 6, got Gaussian\(sigma=1.0\).subsampled\(0.1666"
    without_effect(
        run, lambda: begun(run, run.loader, schedule(**other)), tb.ParameterError, message
    )


def test_an_epoch_that_is_too_short_is_refused() -> None:
    run = Private()
    with pytest.raises(
        tb.errors.SettlementError, match=r"stop 1 comes after .* \* 1, which did not run"
    ):
        begun(run, [*run.loader][:5], schedule())


def test_a_run_that_stops_early_pays_for_its_stop() -> None:
    run, account, used = Private(), tb.OutputDPFilter(20, DELTA), schedule()
    with StoppingCallback(used, account, bool) as stopping:
        run.accountant.report_to(stopping)
        run.epoch()
        without_effect(run, run.epoch, tb.errors.SettlementError, r"ask should_stop\(1, ...\)")
        assert not stopping.should_stop(1, False)
        run.epoch()
        assert stopping.should_stop(2, True)
        without_effect(run, run.epoch, tb.errors.SettlementError, "no run is open")
    without_effect(run, run.epoch, tb.errors.SettlementError, "no run is open")
    assert account.spent.epsilon == pytest.approx(used.epsilons[1])
    # less than the worst case, and more than if two epochs had been decided on beforehand
    assert run.engine.get_epsilon(DELTA) < account.spent.epsilon < used.epsilons[2]


def test_a_run_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    used, path = schedule(), tmp_path / "checkpoint.pt"

    def resumable() -> StoppingCallback[bool]:
        meter: Any = ledger.budget("ada").keyed("run")
        return StoppingCallback(used, meter, bool, resumable=True)

    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        ada = ledger.open_budget("ada", epsilon=20, delta=DELTA)
        run, stopping = Private(), resumable().__enter__()
        run.accountant.report_to(stopping)
        run.epoch()
        saved = {"stopping": stopping.state_dict()}
        run.engine.save_checkpoint(
            path=path, module=run.model, optimizer=run.optimizer, checkpoint_dict=saved
        )
        assert not stopping.should_stop(1, False)
        next(iter(run.loader))  # the second epoch had begun when the process died
        other, again = Private(), resumable()
        kept = torch.load(path, weights_only=True)
        other.engine.load_checkpoint(path=path, module=other.model, optimizer=other.optimizer)
        again.load_state_dict(kept["stopping"])
        with again:
            other.accountant.report_to(again)
            assert again.next_stop == 3
            other.epoch()
            without_effect(other, other.epoch, tb.errors.SettlementError, r"ask should_stop\(3")
            assert again.should_stop(3, False)
        assert ada.held.epsilon == 0
        assert ada.spent.epsilon == pytest.approx(used.epsilons[2])


def test_epochs_may_differ_as_declared() -> None:
    run = Private()
    steps = [dp_sgd_step(noise, 1 / 6) * 6 for noise in (1.0, 0.5)]
    used = tb.early_stopping(steps, [1, 2], DELTA)
    with StoppingCallback(used, tb.OutputDPOdometer(), bool) as stopping:
        run.accountant.report_to(stopping)
        run.epoch()
        assert not stopping.should_stop(1, False)
        without_effect(run, run.epoch, tb.ParameterError, "sigma=0.5.*, got .*sigma=1.0")
        run.optimizer.zero_grad()
        StepNoise(run.optimizer, step_size=1, gamma=0.5).step()
        run.epoch()
        assert stopping.should_stop(2, False)
    assert stopping.receipt.charged.epsilon >= used.epsilons[1]


def test_a_noisy_look_at_held_out_records_is_one_of_the_steps() -> None:
    look = tb.Laplace(scale=20.0)
    used = tb.early_stopping(dp_sgd_step(1.0, 1 / 6) * 6 + look, [1, 2], DELTA)
    run = Private()
    with StoppingCallback(used, tb.OutputDPOdometer(), bool) as stopping:
        run.accountant.report_to(stopping)
        for k in used.stops:
            run.epoch()
            with pytest.raises(
                tb.errors.SettlementError, match=r"after Laplace.*, which did not run"
            ):
                stopping.should_stop(k, False)
            stopping.step(look)
            assert stopping.should_stop(k, False) == (k == 2)


@pytest.mark.slow
def test_the_example_stops_early_and_gets_change(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr().out
    epsilons = {
        word: float(re.search(rf"^ *{word}\D+([\d.]+)", said, re.MULTILINE)[1])  # type: ignore[index]
        for word in ("held", "charged", "back", "tight", "prv", "rdp")
    }
    assert epsilons["back"] == pytest.approx(epsilons["held"] - epsilons["charged"])
    assert epsilons["back"] > 1
    # to have been free to stop costs something
    assert epsilons["tight"] < epsilons["rdp"] < epsilons["held"]
    assert epsilons["tight"] < epsilons["charged"]


# ---------------------------------------------------------------------------- mutations


def passes_counted() -> int:
    run = cut()
    for _ in range(3):
        run.epoch(itertools.islice(run.loader, 1))
    return int(sum(passes for *_, passes, _ in run.accountant.passes))


def refused(*, poisson: bool) -> bool:
    run = Private(poisson_sampling=poisson)
    run.epoch(itertools.islice(run.loader, 1))
    return turned_away(run, loader_of())


def one_pass_at_a_time() -> bool:
    run = cut()
    first, second = iter(run.loader), iter(run.loader)
    batches = [next(first), next(second), next(first)]
    return turned_away(run, batches[:2])


def steps_of_two_lists() -> int:
    """Two steps, and two more after the history was put back by hand."""
    accountant = counted([(1.0, 0.1, 2)])
    accountant.history = [list(entry) for entry in accountant.history]
    for _ in range(2):
        accountant.step(noise_multiplier=1.0, sample_rate=0.1)
    return len(accountant)


def edited_history_is_checked() -> bool:
    accountant = adapter.TightAccountant()
    accountant.history = [(1.0, 0.1, 1)]
    accountant._counted = accountant.history[-1]
    accountant.history = [(-1.0, 0.1, 1)]
    try:
        accountant.step(noise_multiplier=-1.0, sample_rate=0.1)
    except tb.ParameterError:
        return True
    # nothing else refuses the step
    return False


def callback_is_told() -> bool:
    """Seven steps of an epoch of six: the last one is refused."""
    accountant, used = adapter.TightAccountant(), schedule()
    with (
        contextlib.suppress(tb.ReleaseError),
        StoppingCallback(used, tb.OutputDPOdometer(), bool) as run,
    ):
        accountant.report_to(run)
        for _ in range(6):
            accountant.step(noise_multiplier=1.0, sample_rate=1 / 6)
        with contextlib.suppress(tb.errors.SettlementError):
            accountant.step(noise_multiplier=1.0, sample_rate=1 / 6)
    return len(accountant) == 6


def passes_after_a_checkpoint() -> int:
    """One pass, a checkpoint, and a second pass, in which the checkpoint is loaded."""
    run = cut()
    run.epoch()
    saved = run.accountant.state_dict()
    batches = iter(run.loader)
    run.epoch(itertools.islice(batches, 2))
    run.accountant.load_state_dict(saved)
    run.epoch(batches)
    return int(sum(passes for *_, passes, _ in run.accountant.passes))


def other_states_are_refused() -> bool:
    accountant = adapter.TightAccountant()
    try:
        accountant.load_state_dict({"history": [(1.0, 0.1, 3)], "mechanism": "rdp"})
    except tb.ParameterError:
        return True
    return False


def larger_batches_are_refused() -> bool:
    run = drawn()
    run.loader.batch_sampler.batch_size = 24
    return turned_away(run, run.loader)


def other_passes_are_refused() -> bool:
    run = cut()
    order = sampler_of("RandomSampler", RECORDS, replacement=True, num_samples=480)
    run.loader.batch_sampler.sampler = order
    return turned_away(run, run.loader)


def a_small_last_batch_costs_as_much_as_one_batch() -> bool:
    """47 of 48 records are in the first batch: next to nothing hides which one."""
    loader = loader_of(shuffle=True, batch_size=47)
    run = Private(noise=20.0, poisson_sampling=False, data_loader=loader)
    run.epoch()
    one = tb.Gaussian(20.0, relation=tb.Neighbouring.ZERO_OUT) * 1
    return run.accountant.composition.delta(0.0).upper >= one.delta(0.0).lower * 47 / 48


def an_older_checkpoint_may_end_small() -> bool:
    accountant = adapter.TightAccountant()
    accountant.passes = [(20.0, 2, 1, 2)]  # type: ignore[list-item]
    try:
        found = accountant.composition.delta(0.0).upper
    except tb.ParameterError:
        return False
    return found >= tb.Gaussian(20.0).delta(0.0).lower


def one_noise_in_a_pass() -> bool:
    run = cut()
    batches = iter(run.loader)
    run.epoch(itertools.islice(batches, 2))
    run.optimizer.noise_multiplier = 0.5
    return turned_away(run, batches)


def turned_away(run: Private, batches: Any) -> bool:
    try:
        run.epoch(batches)
    except tb.ParameterError:
        return True
    return False


MUTATIONS: list[Without] = [
    Without("passes that cross", {"one-pass-at-a-time": "if False:"}, one_pass_at_a_time),
    Without(
        "noise that falls within a pass", {"noise-of-a-pass": "if False:"}, one_noise_in_a_pass
    ),
    Without(
        "the direction in which a record is removed",
        {"direction-record-removed": "return AddPair(base, self.rate)"},
        lambda: holds_the_truth(*TRUTHS[0]),
    ),
    Without(
        "each step counts",
        {"each-step-counts": "entries[-1] = (*kind, 1)"},
        lambda: steps_of_two_lists() == 4,
    ),
    Without(
        "a step like the one before counts",
        {"each-repeated-step-counts": "self._counted = history[-1] = last"},
        lambda: len(counted(HISTORIES[0])) == 20,
    ),
    Without(
        "a history that was edited is checked",
        {"edited-history-is-checked": "edited = False"},
        edited_history_is_checked,
    ),
    Without(
        "a callback is told of steps that are alike",
        {"callback-is-told-each-step": "self._counted = entry"},
        callback_is_told,
    ),
    Without(
        "a pass that a checkpoint was loaded in",
        {"pass-outlives-a-checkpoint": "lost = False"},
        lambda: passes_after_a_checkpoint() == 2,
    ),
    Without(
        "a state of another accountant is declared",
        {"other-states-are-declared": "if False:"},
        other_states_are_refused,
    ),
    Without(
        "a loader draws as it did",
        {"loader-draws-as-before": "if False:"},
        larger_batches_are_refused,
    ),
    Without(
        "a loader cuts as it did",
        {"loader-cuts-as-before": "if False:"},
        other_passes_are_refused,
    ),
    Without(
        "a last batch that is smaller",
        {"last-batch-may-be-smaller": "return len(batches), 0"},
        a_small_last_batch_costs_as_much_as_one_batch,
    ),
    Without(
        "a checkpoint that does not know whether the last batch was smaller",
        {"older-pass-may-end-small": "passes = [(*e[:2], 0, *e[2:]) for e in passes]"},
        an_older_checkpoint_may_end_small,
    ),
    Without(
        "each pass counts",
        {"each-pass-counts": "passes[-1] = (*kind, 1, steps)"},
        lambda: passes_counted() == 3,
    ),
    Without(
        "a step has a batch of its pass",
        {"step-has-a-batch": "if False:"},
        lambda: refused(poisson=False),
    ),
    Without(
        "a step has a sample",
        {"step-has-a-sample": "if False:"},
        lambda: refused(poisson=True),
    ),
    Without(
        "the upper end",
        {"upper-bound-reported": "return self.bounds(delta, rtol).lower"},
        lambda: TRUTHS[0][1](counted(TRUTHS[0][0]).get_epsilon(DELTA))[0] <= DELTA,
    ),
]


@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)


# -------------------------------------------------------------------------------- repr


def test_the_repr_says_the_history_and_an_epsilon() -> None:
    accountant = create_accountant("tight")
    assert repr(accountant) == "<TightAccountant: nothing yet>"
    for _ in range(20):
        accountant.step(noise_multiplier=1.0, sample_rate=0.05)
    run = dp_sgd_step(1.0, 0.05) * 20
    assert repr(accountant).startswith(f"<TightAccountant: {run!r}; epsilon is at most ")
    accountant.history = "edited"
    refused = "ParameterError: history must be a list, got 'edited'"
    assert repr(accountant) == f"<TightAccountant: {refused}>"
    empty = object.__new__(adapter.TightAccountant)  # as a debugger may see it
    assert repr(empty).startswith("<TightAccountant: AttributeError: ")
