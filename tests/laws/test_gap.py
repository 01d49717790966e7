"""The promise of a gap: an answer is as close as was asked, or refused, or it says it is apart."""

from __future__ import annotations

import copy
import math
import pickle
import random

import pytest
from tests.cases import CASES, CORE

import tightbudget as tb

FLOOR, ROUNDED = 1e-290, 1e-12  # the exceptions that the docstrings of the questions name
# seconds at each question: asked in the slow test alone
LONG = {"group-large", "batches-again", "truncated-poisson-laplace", "discrete-gaussian-very-wide"}

# Compositions of epochs, whose two pairs enclose an exact one: alone, many, beside others, nested.
EPOCHS = {
    "gaussian-two-epochs": tb.Gaussian(0.9).allocated(365) * 2,
    "gaussian-five-epochs": tb.Gaussian(3.51).allocated(100) * 5,
    "gaussian-one-epoch": tb.Gaussian(0.7).allocated(300) * 1,
    "laplace-epochs": tb.Laplace(2.0).allocated(20) * 3,
    "pure-epoch": tb.ApproximateDP(0.0157).allocated(20) * 1,
    "response-epochs": tb.RandomizedResponse(0.6).allocated(20) * 2,
    "no-secret-epochs": tb.RandomizedResponse(0.5).allocated(5) * 2,
    "nearly-all-is-lost": tb.ApproximateDP(0.0, 0.999).allocated(2) * 1,
    "nearly-all-is-lost-often": tb.ApproximateDP(0.0, 0.999).allocated(5, 2) * 1,
    "hardly-anything-is-kept": tb.ApproximateDP(0.3, 1.0 - 1e-15).allocated(200, 3) * 1,
    "rare-histograms": tb.HistogramPair((1.0, 0.0), (1.0, 1000.0)).allocated(2) * 1,
    "several-of-many": tb.HistogramPair((5.0, 3.0), (9.0, 13.0)).allocated(5, 2) * 2
    + tb.DiscreteLaplace(scale=3.9, sensitivity=2),
    "beside-gaussian": tb.Laplace(1.0).allocated(10) * 2 + tb.Gaussian(3.0),
    "either-of-epochs": tb.Either(0.3, tb.Laplace(1.0).allocated(10), tb.Gaussian(2.0)) * 2,
    "epoch-of-epochs": tb.Laplace(1.0).allocated(3).allocated(4) * 1,
    "epoch-of-shuffles": tb.Gaussian(2.0).shuffled(5).under("zero-out") * 2,
    "sample-of-epochs": tb.Laplace(1.0).allocated(10).subsampled(0.1) * 3,
    "rarely-without-record": tb.ApproximateDP(0.0455, 1e-12).allocated(2) * 2,
    "tiny-losses": tb.ApproximateDP(1e-9, 1e-9).allocated(3) * 2,
    "little-noise": tb.Gaussian(0.02).allocated(3) * 1,
}
RUNS = {case.name: case.mechanism * 1 for case in CASES} | EPOCHS


def _kept(answer: tb.Bounds, rtol: float, *, absolute: bool = False) -> bool:
    """Whether bounds keep the promise, their exceptions aside."""
    if absolute:
        return answer.width <= rtol or bool(answer.apart)
    return answer.relative_gap <= rtol or bool(answer.apart)


def _holds(run: tb.Composition, draws: random.Random, many: int) -> None:
    for _ in range(many):
        rtol = 10.0 ** draws.uniform(-6, -1)
        delta = 10.0 ** -draws.choice([1, 3, 5, 10, 25, 50])
        top = run.answer(delta=1e-6, rtol=0.1).bounds.upper
        top = top if 0.0 < top < 100.0 else 1.0
        epsilon = draws.choice([0.0, draws.uniform(0.0, 1.3) * top])
        _epsilon_is_kept(run, delta, rtol)
        _delta_is_kept(run, epsilon, rtol)


def _epsilon_is_kept(run: tb.Composition, delta: float, rtol: float) -> None:
    answer = run.answer(delta=delta, rtol=rtol)
    if not answer.reached:
        with pytest.raises(tb.PrecisionError, match="was not reached"):
            answer.required()
        # a refusal of what was in hand would be false
        assert answer.bounds.relative_gap > rtol or run.apart, (delta, rtol, answer)
        return
    found = answer.bounds
    if math.isinf(found.upper):
        return  # delta may be below the mass that tells the neighbours apart
    assert _kept(found, rtol) or found.width <= ROUNDED, (delta, rtol, answer)


def _delta_is_kept(run: tb.Composition, epsilon: float, rtol: float) -> None:
    answer = run.answer(epsilon=epsilon, rtol=rtol)
    if not answer.reached:
        assert answer.bounds.relative_gap > rtol or run.apart, (epsilon, rtol, answer)
        return
    found = answer.bounds
    exempt = found.upper <= FLOOR or (found.width <= ROUNDED and _at_the_end(run, epsilon))
    exempt = exempt or found.upper <= _counted_as_infinite(run)
    assert _kept(found, rtol) or exempt, (epsilon, rtol, answer)


def _counted_as_infinite(run: tb.Composition) -> float:
    """Twice what the pairs above count as infinite, where that is less than 1e-35; else 0."""
    cut = run.delta(math.inf).upper if run.attained is not None else 0.0
    return 2.0 * cut if cut < 1e-35 else 0.0


def _at_the_end(run: tb.Composition, epsilon: float) -> bool:
    """Whether an epsilon is the largest loss or more, up to rounding."""
    return epsilon >= run.answer(order=math.inf, rtol=0.5).bounds.lower * (1 - 1e-9) - 1e-9


def _each(names: list[str]) -> list[object]:
    """The compositions as parameters; those outside CORE are slow."""
    fast = {*CORE, *EPOCHS} - LONG
    return [
        pytest.param(RUNS[name], id=name, marks=() if name in fast else pytest.mark.slow)
        for name in names
    ]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("run", _each([*RUNS]))
def test_an_answer_is_as_close_as_asked_or_refused_or_says_that_it_is_apart(
    run: tb.Composition,
) -> None:
    draws = random.Random(repr(run))
    _epsilon_is_kept(run, 1e-5, 1e-4)
    _delta_is_kept(run, round(draws.uniform(0.0, 2.0), 2), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("run", [pytest.param(RUNS[name], id=name) for name in EPOCHS])
def test_it_is_so_at_many_places(run: tb.Composition) -> None:
    _holds(run, random.Random(f"many {run!r}"), 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "laplace-epochs",
        "response-epochs",
        pytest.param("beside-gaussian", marks=pytest.mark.slow),
        pytest.param("gaussian-two-epochs", marks=pytest.mark.slow),
    ],
)
def test_other_readings_keep_the_gap_too(name: str) -> None:
    run, rtol = RUNS[name], 1e-3
    assert all(_kept(found, rtol) for found in run.curve(epsilons=[0.1, 0.3], rtol=rtol))
    assert all(_kept(found, rtol) for found in run.curve(deltas=[1e-2, 1e-4], rtol=rtol))
    assert _kept(run.total_variation(rtol), rtol)
    assert all(_kept(found, rtol, absolute=True) for found in run.tradeoff([0.1], rtol))
    assert _kept(run.answer(fpr=0.1, rtol=rtol).bounds, rtol)
    risk = run.risk(0.1, rtol=rtol)
    assert all(_kept(found, rtol) for found in (risk.advantage, risk.tpr, risk.delta))
    assert _kept(run.explain(epsilon=0.1, rtol=rtol).bounds, rtol)
    divergence = run.answer(order=3.0, rtol=rtol)
    assert (
        not divergence.reached or _kept(divergence.bounds, rtol) or run.renyi(3.0).upper == math.inf
    )


APART = {
    "shuffled batches": tb.Gaussian(2.0).shuffled(100) * 3,
    "batches of a fixed size": tb.Gaussian(2.0).batches(6, of=600) * 2,
    "truncated Poisson batches": tb.Gaussian(1.0).truncated_poisson(0.1, 12, 60) * 2,
    "3 of 10 steps": tb.Laplace(2.0).allocated(10, each_in=3) * 1,
    "a group's sample": tb.Laplace(4.0).subsampled(0.1).group(3) * 2,
    "a sample of 3 of 10 steps": tb.Laplace(2.0).allocated(10, each_in=3).subsampled(0.1) * 2,
    "an epoch of steps with next to no noise": tb.Gaussian(0.02).allocated(3) * 1,
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("reason", APART)
def test_what_is_apart_says_why_in_every_form(reason: str) -> None:
    run = APART[reason]
    found = run.delta(0.2, rtol=1e-3)
    assert run.apart == found.apart == reason
    assert found.relative_gap > 1e-3
    assert repr(found) == str(found) == f"{found}"
    assert repr(found).endswith(f"] (apart: {reason})")
    assert found.to_dict()["apart"] == reason
    assert f"(apart: {reason.partition(chr(39))[0]}" in found._repr_html_()
    assert pickle.loads(pickle.dumps(found)).apart == copy.copy(found).apart == reason
    assert (found * 2).apart == (found + found).apart == (found - 0.1).apart == reason
    assert found == tb.Bounds(found.lower, found.upper)
    assert "apart" not in f"{found:.3f}"


def test_a_curve_and_a_risk_say_it_of_each_value() -> None:
    run = tb.Gaussian(2.0).shuffled(100) * 3
    curve = run.curve(epsilons=[0.2, 0.4], rtol=1e-2)
    assert [found.apart for found in curve] == ["shuffled batches"] * 2
    assert curve.to_dict()["delta"]["apart"] == ["shuffled batches"] * 2
    assert "(apart: shuffled batches)" in repr(curve)
    risk = run.risk(0.2, rtol=1e-2)
    for value in (risk.advantage, risk.tpr, risk.delta, risk.mu, risk.bayes_risk, risk.exceedance):
        assert value.apart == "shuffled batches"
    assert not risk.belief.apart
    assert run.tradeoff([0.1], rtol=1e-2)[0].apart == "shuffled batches"
    assert "apart" not in (tb.Laplace(1.0) * 2).curve(epsilons=[0.2]).to_dict()["delta"]


def test_the_reasons_of_all_parts_are_named_once() -> None:
    shuffled, batches = tb.Gaussian(2.0).shuffled(100), tb.Gaussian(3.0).shuffled(50)
    assert (shuffled + batches + tb.Laplace(1.0)).apart == "shuffled batches"
    mixed = tb.Either(0.5, tb.Laplace(1.0).allocated(9, each_in=2), tb.Laplace(2.0))
    assert (mixed * 2).apart == "2 of 9 steps"


def test_an_answer_of_two_ends_that_meet_does_not_say_that_it_is_apart() -> None:
    run = tb.Gaussian(1.0).truncated_poisson(0.01, 900, 60000) * 2
    assert run.apart == "truncated Poisson batches"
    found = run.delta(0.2)
    assert found.relative_gap <= 1e-4
    assert not found.apart


@pytest.mark.parametrize(
    "step", [tb.ApproximateDP(0.0157), tb.RandomizedResponse(0.6), tb.Laplace(2.0)]
)
@pytest.mark.parametrize("delta", [1e-20, 1e-25, 1e-35])
def test_no_average_has_more_than_the_largest_loss_of_a_step(
    step: tb.Mechanism, delta: float
) -> None:
    top = step.renyi(math.inf)
    found = step.allocated(20).epsilon(delta)
    assert found.upper <= top.upper * (1 + 1e-6)
    assert (step.allocated(20) * 3).epsilon(delta).upper <= 3 * top.upper * (1 + 1e-6)


def test_a_delta_that_a_lattice_cuts_off_has_an_upper_bound_alone() -> None:
    run = tb.Gaussian(2.61).allocated(50) * 2
    found = run.delta(4.0)
    assert found.lower == 0.0 < found.upper < 2e-42
    assert (run * 10).delta(30.0).upper < 20e-42
    # a larger mass is no rounding: of 10^9 epochs, or of another mechanism beside them
    with pytest.raises(tb.PrecisionError, match=r"is in \[0\.0, 3\.\d*e-34\]"):
        (tb.Gaussian(2.61).allocated(50) * 10**9).delta(1e13)
    assert (run + tb.ApproximateDP(0.1, 1e-6)).delta(4.0).relative_gap <= 1e-4
    with pytest.raises(tb.PrecisionError, match=r"is in \[1\.763.*, inf\]"):
        run.epsilon(1e-45)
    assert run.delta(math.inf).upper < 1e-41


def test_a_case_that_is_apart_has_an_instance_and_no_other_is() -> None:
    for case in CASES:
        assert not case.mechanism.apart or case.mechanism.instance() is not None, case.name


def test_every_way_of_drawing_that_is_not_exact_was_looked_at() -> None:
    """An instance without a reason promises that the two pairs meet."""
    meet = {case.name for case in CASES if case.mechanism.instance() and not case.mechanism.apart}
    assert meet == {
        "allocated-gaussian", "allocated-laplace", "allocated-response", "allocated-sampled",
        "allocated-tables", "exponential-1", "exponential-large", "exponential-small",
    }  # fmt: skip
