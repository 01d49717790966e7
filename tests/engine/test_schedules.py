"""Schedules: many steps, each with a noise and a rate of its own, in both engines."""

from __future__ import annotations

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.engine.buckets.refine import refine
from tightbudget.engine.engine import Engine
from tightbudget.engine.methods import Inquiry, Method
from tightbudget.engine.question import DeltaAt, EpsilonAt
from tightbudget.engine.saddle_point.saddle_point import SaddlePoint
from tightbudget.mechanisms.gaussian_schedule import Schedule
from tightbudget.mechanisms.gaussian_schedule_nodes import Step
from tightbudget.pairs.direction import Direction


def schedule(
    sigmas: np.ndarray, rates: np.ndarray | float, count: int = 1, factor: float = 1.0
) -> tb.Composition:
    """Sampled Gaussian steps, one for each pair of a noise and a rate."""
    rates = np.broadcast_to(rates, sigmas.shape)
    return tb.compose(
        [
            tb.Gaussian(factor * float(sigma)).subsampled(float(q)) * count
            for sigma, q in zip(sigmas, rates, strict=True)
        ]
    )


def product(engine: Engine, i: int) -> SaddlePoint:
    """The saddle-point engine of a direction, which takes families as products and nothing else."""
    one = engine.saddle_points[i]
    assert one.joined is not one.term
    return SaddlePoint(one.joined, one.joined, one.track)


NOISE = np.linspace(0.8, 2.0, 40)
SCHEDULES = {
    "noise": schedule(NOISE, 0.01, 25),
    "rates": schedule(np.full(30, 1.1), np.geomspace(1e-3, 0.05, 30), 40),
    "both": schedule(np.geomspace(0.7, 9.0, 40), np.linspace(0.2, 0.01, 40), 20),
    "with others": schedule(NOISE, 0.02, 30)
    + tb.Gaussian(30.0) * 4
    + tb.compose([tb.Gaussian(float(s)) for s in np.linspace(50.0, 80.0, 20)])
    + tb.Gaussian(2.0).subsampled(0.3),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("direction", [0, 1], ids=["remove", "add"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_product_and_the_steps_one_by_one_overlap(name: str, direction: int) -> None:
    engine = SCHEDULES[name].engine
    apart = engine.saddle_points[direction].apart
    assert apart is not None
    for question in (EpsilonAt(1e-5), EpsilonAt(1e-12), DeltaAt(0.7)):
        together = product(engine, direction).bounds(question, 1e-8)
        alone = apart.bounds(question, 1e-9)
        assert together is not None
        assert together.relative_gap < 1e-8
        if alone is None:  # so many points of a line cost too much, step by step
            assert name == "noise"
            assert direction == 0
            continue
        assert together.lower <= alone.upper
        assert alone.lower <= together.upper


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_both_engines_overlap(name: str) -> None:
    composition = SCHEDULES[name]
    for question in (EpsilonAt(1e-5), DeltaAt(0.7)):
        lines = composition.engine.answer(question, 1e-8).bounds
        buckets = refine(question, composition.engine.parts, 1e-3).bounds
        assert lines.relative_gap < 1e-8
        assert buckets.relative_gap < 1e-3
        assert lines.lower <= buckets.upper
        assert buckets.lower <= lines.upper


def test_a_schedule_of_nearly_equal_steps_is_nearly_the_composition() -> None:
    """The schedule lies between the compositions of its most and of its least noise."""
    sigmas = 1.0 + 1e-9 * np.linspace(-1.0, 1.0, 50)
    mixed = schedule(sigmas, 0.01, 20).epsilon(1e-6, rtol=1e-8)
    less, more = (
        (tb.Gaussian(float(s)).subsampled(0.01) * 1000).epsilon(1e-6, rtol=1e-9)
        for s in (sigmas[-1], sigmas[0])
    )
    assert less.lower <= mixed.upper
    assert mixed.lower <= more.upper
    assert more.upper - less.lower < 1e-7


def test_a_thousand_settings_have_eight_digits() -> None:
    many = schedule(np.linspace(0.8, 2.0, 1000), 0.01)
    explained = many.explain(delta=1e-5)
    assert explained.engine == "saddle-point"
    assert explained.bounds.relative_gap < 1e-8
    assert len(explained.details) <= 2


def test_rates_and_noise_may_all_differ() -> None:
    many = schedule(np.linspace(0.8, 2.0, 1000), np.linspace(0.004, 0.02, 1000))
    bounds = many.epsilon(1e-5)
    assert bounds.relative_gap < 1e-8
    # between the schedules of one rate
    low, high = (schedule(np.linspace(0.8, 2.0, 1000), q).epsilon(1e-5) for q in (0.004, 0.02))
    assert low.lower <= bounds.upper
    assert bounds.lower <= high.upper


def test_more_digits_than_a_product_has_come_from_the_steps_one_by_one() -> None:
    composition = schedule(NOISE[:15], 0.02, 5000)
    together = product(composition.engine, 0).bounds(EpsilonAt(1e-6), 1e-11)
    assert together is not None
    assert together.relative_gap > 1e-11
    assert composition.epsilon(1e-6, rtol=1e-11).relative_gap <= 1e-11


def test_a_product_takes_few_mechanisms_one_by_one() -> None:
    engine = schedule(NOISE[:5], 0.02, 100).engine
    assert all(one.joined is one.term and one.apart is None for one in engine.saddle_points)


def test_so_many_steps_are_not_planned_one_by_one() -> None:
    engine = schedule(np.linspace(0.8, 2.0, 700), 0.01).engine
    assert all(one.apart is None for one in engine.saddle_points)


def test_a_target_ends_a_question_before_the_costly_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rare losses of this schedule need lines of their own, which a comparison does not."""
    composition = schedule(4.0 * np.linspace(0.8, 2.0, 300), 0.01)
    (one, *_) = composition.engine.saddle_points
    with_target = one.bounds(DeltaAt(1.0), 0.1, target=1e-5)
    assert with_target is not None
    assert with_target.upper <= 1e-5
    monkeypatch.setattr(SaddlePoint, "apart", None)
    assert one.bounds(DeltaAt(1.0), 0.1, target=1e-5) == with_target


@pytest.mark.slow
def test_a_factor_of_a_schedule_is_calibrated() -> None:
    sigmas = np.linspace(0.8, 2.0, 200)
    found = tb.calibrate(
        lambda factor: schedule(sigmas, 0.01, factor=factor), epsilon=1.0, delta=1e-5
    )
    assert found.met.upper <= 1e-5
    milder = schedule(sigmas, 0.01, factor=found.value * (1.0 - 1e-4))
    assert milder.delta(1.0).lower > 1e-5


def test_counts_that_are_no_doubles_stay_out_of_a_product() -> None:
    transforms = [tb.Gaussian(float(s)).subsampled(0.5) for s in np.linspace(50.0, 60.0, 12)]
    groups = [
        (one.pair(Direction.REMOVE).transform(), 2**53 + 1 if i == 0 else 1)
        for i, one in enumerate(transforms)
    ]
    engine = SaddlePoint.of(groups)
    assert engine is not None
    assert engine.joined is engine.term


def test_what_answered_one_question_is_asked_first_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[Engine]()
    likely = Engine._likely

    def counted(engine: Engine, inquiry: Inquiry) -> tuple[type[Method], ...]:
        asked.append(engine)
        return likely(engine, inquiry)

    monkeypatch.setattr(Engine, "_likely", counted)
    read = SCHEDULES["rates"].engine.reader()
    first = read(0.5, 1e-4)
    assert first.relative_gap <= 1e-4
    assert read(0.6, 1e-4).upper < first.lower
    assert len(asked) == 1


@np.errstate(all="ignore")
def test_values_far_up_a_line_are_as_close_as_those_below() -> None:
    """The strip of a rule widens until a density there is nearly the largest double."""
    steps = [Step(float(m), 1.2e-4, 1574) for m in np.linspace(0.29868, 0.50761, 71)]
    (one,) = Schedule.of(steps, remove=True)
    for t in (216.7, 220.0, 232.0, 236.0):
        assert float(one.line(68.82, np.array([0.0, t]), 3e-8).error.max()) < 1e-7


# noises, rate, runs of each, and a question whose answer many small losses make
RARE: dict[str, tuple[np.ndarray, float, int, DeltaAt | EpsilonAt]] = {
    "sigma of about 2": (np.linspace(1.57, 2.45, 14), 1.44e-8, 22_000, EpsilonAt(8.9e-14)),
    "much noise": (np.linspace(5.0, 21.7, 14), 4.67e-8, 45, EpsilonAt(1.6e-13)),
    "a rate of 1e-4": (np.linspace(1.97, 10.1, 14), 1.2e-4, 46_000, DeltaAt(0.193)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RARE)
def test_rare_losses_of_many_noises_are_left_out_together(name: str) -> None:
    sigmas, rate, runs, question = RARE[name]
    composition = schedule(sigmas, rate, runs)
    buckets = refine(question, composition.engine.parts, 1e-2).bounds
    removed, added = (one.bounds(question, 1e-4) for one in composition.engine.saddle_points)
    assert removed is not None
    assert added is not None
    assert max(removed.relative_gap, added.relative_gap) < 1e-4
    assert max(removed.lower, added.lower) <= buckets.upper
    assert buckets.lower <= max(removed.upper, added.upper)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [2e-4, 1e-5, 1e-7])
def test_a_thousand_noises_at_a_small_rate_are_answered_by_lines(rate: float) -> None:
    explained = schedule(np.linspace(0.8, 2.0, 1000), rate, 10).explain(delta=1e-6)
    assert explained.engine == "saddle-point"
    assert explained.bounds.relative_gap < 1e-4
