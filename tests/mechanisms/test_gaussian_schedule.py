"""A product of many sampled Gaussian steps against Arb balls, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from flint import acb, arb, ctx
from tests import integrals

import tightbudget as tb
from tightbudget.mechanisms.gaussian_schedule import Schedule, Step
from tightbudget.mechanisms.gaussian_transform import MixedTransform
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.transform import Line

# sensitivity / sigma, rate and count: noise and rates that differ, alone and together
SCHEDULES = {
    "noise": (Step(0.5, 0.01, 1), Step(0.75, 0.01, 3), Step(1.25, 0.01, 1)),
    "rates": (Step(1.0, 1e-4, 2), Step(1.0, 0.03, 1), Step(1.0, 0.6, 1)),
    "both": (Step(0.2, 0.4, 5), Step(0.3, 0.9, 1), Step(0.55, 1e-6, 7)),
}
PLACES = ((0.3, 0.0), (1.5, 0.7), (6.0, 11.0), (0.05, 40.0))


@pytest.fixture(autouse=True)
def _bits() -> Iterator[None]:
    before, ctx.prec = ctx.prec, 120
    yield
    ctx.prec = before


def balls(steps: tuple[Step, ...], remove: bool) -> list[tuple[integrals.Step, int]]:
    return [(integrals.Step(Fraction(one.m), Fraction(one.q), remove), one.runs) for one in steps]


def holds(line: Line, i: int, truth: acb) -> bool:
    log = acb(float(line.log[i].real), float(line.log[i].imag))
    return bool(abs(truth - log.exp()) <= abs(log.exp()) * arb(float(line.error[i])).expm1())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("remove", [True, False], ids=["remove", "add"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_value_is_within_its_error_and_has_twelve_digits(name: str, remove: bool) -> None:
    steps = SCHEDULES[name]
    (schedule,) = Schedule.of(steps, remove)
    for c, t in PLACES:
        line = schedule.line(c, np.array([0.5 * t, t]), 1e-16)
        truth = integrals.log_moment(balls(steps, remove), acb(c, t)).exp()
        assert holds(line, 1, truth)
        # digits are lost where |M| has fallen far below its value on the real axis
        fallen = abs(truth) / integrals.log_moment(balls(steps, remove), c).real.exp()
        assert arb(float(line.error[1])).expm1() * fallen < 3e-12


@pytest.mark.parametrize("remove", [True, False], ids=["remove", "add"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_bounds_are_above_the_truth_and_close(name: str, remove: bool) -> None:
    steps = SCHEDULES[name]
    (schedule,) = Schedule.of(steps, remove)
    for c in (-0.5, 0.3, 4.0):
        truth = integrals.log_moment(balls(steps, remove), c).real
        assert truth <= arb(schedule.upper(c)) <= truth + 1e-11
        if c > 0:
            rough = float(schedule.rough(np.array([c])).value[0])
            assert abs(rough - float(truth)) <= 0.2 * abs(float(truth))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("remove", [True, False], ids=["remove", "add"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rest_of_a_line_is_below_its_bound(name: str, remove: bool) -> None:
    steps = SCHEDULES[name]
    (schedule,) = Schedule.of(steps, remove)
    for c, t, shift in ((0.3, 5.0, 0.1), (3.0, 20.0, 0.3)):
        bound = schedule.beyond(c, t, shift)
        moved = arb(
            0
        )  # the same integral, mechanism by mechanism: Im y = shift is Im x = shift / m
        for step, count in balls(steps, remove):
            moved += step.beyond(c, t, shift / float(step.m)).log() * count
        assert moved <= arb(bound) + 1e-12  # shift / m is rounded
        assert arb(bound) <= moved + 1e-6
        higher = integrals.log_moment(balls(steps, remove), acb(c, 1.3 * t)).real
        assert higher <= arb(bound)


def test_equal_steps_are_a_power() -> None:
    (schedule,) = Schedule.of([Step(0.8, 0.02, 3)] * 40, True)
    one, t = MixedTransform(0.8, 0.02, True), np.array([0.0, 0.7, 9.0])
    many, single = schedule.line(2.0, t, 1e-16), one.line(2.0, t, 1e-18)
    assert np.all(np.abs(many.log - 120 * single.log) <= many.error + 120 * single.error)
    assert schedule.upper(2.0) == pytest.approx(120 * one.upper(2.0), abs=1e-10)


def test_steps_of_very_different_noise_have_rules_of_their_own() -> None:
    steps = [Step(float(m), 0.01, 1) for m in np.geomspace(0.01, 5.0, 30)]
    found = Schedule.of(steps, False)
    assert len(found) > 3
    assert sum(one.m.size for one in found) == 30
    assert all(one.m.max() <= 3.0 * one.m.min() for one in found)


def test_a_plan_sees_the_step_with_the_least_noise() -> None:
    steps = [Step(float(m), 0.02, 40) for m in np.linspace(0.16, 0.47, 36)]
    (schedule,) = Schedule.of(steps, True)
    c = np.array([33.7])
    assert float(schedule.rough(c).value[0]) == pytest.approx(schedule.upper(33.7), rel=0.1)


def test_a_rule_that_is_too_long_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    (schedule,) = Schedule.of(SCHEDULES["noise"], True)
    monkeypatch.setattr("tightbudget.mechanisms.gaussian_schedule._MOST", 20)
    assert schedule.upper(1.0) == schedule.beyond(1.0, 1.0, 0.5) == np.inf
    assert np.all(schedule.line(1.0, np.array([0.0, 1.0]), 1e-15).error == np.inf)
    assert schedule.nodes(1.0, 1.0, 1e-15) > 10**9


def test_only_plain_sampled_steps_are_a_family() -> None:
    plain = MixedTransform(1.0, 0.1, True)
    assert plain.family == MixedTransform(0.3, 0.2, True).family
    assert plain.family != MixedTransform(1.0, 0.1, False).family
    bulk, rare = plain.split(2.0)
    mixture = tb.MixtureOfGaussians(1.0, sensitivities=[0.0, 0.5, 1.0], weights=[0.8, 0.1, 0.1])
    other = mixture.pair(Direction.REMOVE).transform()
    for one in (bulk, rare, other):
        assert one is not None
        assert one.family is None
        with pytest.raises(tb.ParameterError, match="members must be of one family, got "):
            plain.together([(plain, 1), (one, 1)])
