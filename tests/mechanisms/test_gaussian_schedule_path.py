"""Schedules at great heights: one path of y for all steps, against ball sums and single steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import acb, ctx
from tests.mechanisms.test_gaussian_path import exact

import tightbudget as tb
from tightbudget.engine.engine import Engine
from tightbudget.engine.methods import ByLevels, Inquiry
from tightbudget.engine.question import EpsilonAt
from tightbudget.engine.saddle_point.saddle_point import SaddlePoint
from tightbudget.mechanisms import gaussian_schedule_path
from tightbudget.mechanisms.gaussian_schedule import Schedule
from tightbudget.mechanisms.gaussian_schedule_nodes import Step
from tightbudget.mechanisms.gaussian_transform import MixedTransform
from tightbudget.mechanisms.smooth_end import SmoothEnd
from tightbudget.numerics.rounding import UNIT
from tightbudget.pairs.direction import Direction


def schedule(*steps: tuple[float, float, int]) -> Schedule:
    (found,) = Schedule.of([Step(*one) for one in steps], True)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "c", "heights"),
    [
        ([(1.0, 1e-6, 3), (0.75, 2.5e-5, 1), (1.25, 1e-6, 3)], 14.0, (0.0, 3.0, 3e4)),
        ([(2.0, 0.03125, 2), (1.0, 0.001, 1)], 2.0, (0.5, 100.0)),
        ([(0.25, 1e-6, 1000), (0.5, 1e-8, 10**6)], 20.0, (0.0, 1e5)),
    ],
)
def test_the_product_is_within_its_error_and_the_error_is_small(
    steps: list[tuple[float, float, int]], c: float, heights: tuple[float, ...]
) -> None:
    ctx.prec = 200
    found = schedule(*steps).far_line(c, np.array(heights))
    assert found is not None
    for log, error, t in zip(found.log, found.error, heights, strict=True):
        truth = acb(1)
        for m, q, count in steps:
            truth *= (1 + exact(m, q, c, t)) ** count
        quotient = truth / acb(float(log.real), float(log.imag)).exp()
        assert float(abs(quotient - 1).upper()) <= math.expm1(error)
        assert error <= 1e-9


@pytest.mark.parametrize("seed", range(8))
def test_a_product_is_that_of_its_steps(seed: int) -> None:
    """Each step has a path of its own in x: another formula, and other nodes."""
    random = np.random.default_rng(seed)
    n, q = int(random.integers(1, 30)), float(np.exp(random.uniform(math.log(1e-9), -8.0)))
    least = float(random.uniform(0.1, 1.0))
    c = float(random.uniform(0.2, 1.2)) / least  # where no step has a large M
    steps = [
        (float(random.uniform(1.0, 2.9) * least), q * float(random.uniform(0.5, 1.0)), k)
        for k in random.integers(1, 4, n).tolist()
    ]
    t = np.append(0.0, np.geomspace(0.1, 1e5, 60))
    found = schedule(*steps).far_line(c, t)
    assert found is not None
    log, error = np.zeros(t.size, dtype=np.complex128), found.error.copy()
    for m, rate, k in steps:
        one = MixedTransform(m, rate, True).far_line(c, t)
        assert one is not None
        log += k * one.log
        error += k * one.error
    assert np.all(np.abs(np.expm1(found.log - log)) <= np.expm1(error))
    assert np.max(found.error) < 1e-6


def test_what_makes_a_path_is_within_its_errors() -> None:
    ctx.prec = 160
    path = gaussian_schedule_path._path(schedule((1.0, 0.125, 1)), 0.5)
    assert path is not None
    for i in range(0, path.y.size, 5):
        v = acb(float(path.y[i]), path.height).exp()
        log = (1 + v).log()
        off = [
            abs(exactly - acb(float(found.real), float(found.imag)))
            for exactly, found in ((v, path.v[i]), (log, path.log_s[i]), (log - v, path.less[i]))
        ]
        assert off[0] <= gaussian_schedule_path._OF_EXCESS * UNIT * abs(v)
        assert off[1] <= gaussian_schedule_path._OF_POWER * UNIT * abs(log)
        assert off[2] <= float(path.less_error[i])


def test_products_of_small_and_of_large_values_are_the_same() -> None:
    random = np.random.default_rng(3)
    value = 0.2 * random.uniform(-1, 1, (13, 50)) + 0.1j * random.uniform(-1, 1, (13, 50))
    small, _ = gaussian_schedule_path._logs_of_small(value, np.max(np.abs(value), axis=1))
    large, _ = gaussian_schedule_path._logs_of_large(value)
    assert len(small) == len(large) == 2
    plain = np.sum(np.log1p(value), axis=0)
    for logs in (small, large):
        assert np.allclose(np.sum(logs, axis=0), plain, rtol=0, atol=1e-14)


def test_what_is_known_of_no_path_is_none() -> None:
    step, t = Step(1.0, 1e-3, 1), np.zeros(1)
    assert Schedule.of([step], False)[0].far_line(1.0, t) is None
    one = schedule(step)
    ended, mass = one.without_tail(-20.0, 1.0)
    assert mass > 0.0
    assert isinstance(ended, Schedule)
    assert isinstance(ended.end, SmoothEnd)
    assert ended.far_line(1.0, t) is None
    assert gaussian_schedule_path.line(one, 1e6, t, 1.0) is None  # a power of S would overflow
    assert gaussian_schedule_path.line(one, 1.0, t, math.inf) is None
    # a thousand heights at which many runs are not told from 0
    assert schedule((1.0, 0.3, 1)).far_line(2.0, np.linspace(0.0, 1e4, 1000)) is None


def test_a_sketch_has_whole_numbers_of_runs() -> None:
    steps = [(0.5 + 0.001 * i, 1e-4, 1 + i % 3) for i in range(300)]
    whole = schedule(*steps)
    few = whole.sketch
    assert few.m.size < 30
    assert np.array_equal(few.count, np.round(few.count))
    assert float(few.count @ few.q) == pytest.approx(float(whole.count @ whole.q), rel=0.05)
    assert few.far_cost < whole.far_cost


@pytest.mark.slow
@pytest.mark.parametrize(("n", "rate", "delta"), [(100, 1e-3, 1e-6), (200, 2e-4, 1e-8)])
def test_many_noises_are_answered_by_smoothed_lines_as_by_grids(
    n: int, rate: float, delta: float
) -> None:
    run = tb.compose([tb.Gaussian(s).subsampled(rate) for s in np.linspace(0.8, 2.0, n).tolist()])
    found = run.explain(delta=delta)
    assert found.engine == "saddle-point"
    assert "smoothed" in str(found)
    engine = SaddlePoint.of((p.transform(), k) for p, k in run.pairs(Direction.REMOVE))
    assert engine is not None
    assert engine.smoothed(EpsilonAt(delta), 1e-4) is not None
    # grids are a second opinion
    parts = Engine.of({d: run.pairs(d) for d in run.directions}).parts
    grids = ByLevels(parts).bounds(Inquiry(EpsilonAt(delta), 1e-3))
    assert grids is not None
    assert grids.bounds.overlaps(found.bounds)
