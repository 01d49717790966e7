"""A product of many sampled Gaussian steps against Arb balls, step by step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from flint import acb, arb, ctx
from tests import integrals
from tests.balls import ball

import tightbudget as tb
from tightbudget.mechanisms.gaussian_schedule import Schedule
from tightbudget.mechanisms.gaussian_schedule_bounds import mass_beyond
from tightbudget.mechanisms.gaussian_schedule_nodes import Step
from tightbudget.mechanisms.gaussian_transform import MixedTransform
from tightbudget.mechanisms.smooth_end import SmoothEnd
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
    for module in ("nodes", "plan"):
        monkeypatch.setattr(f"tightbudget.mechanisms.gaussian_schedule_{module}.MOST", 20)
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


# ------------------------------------------------------------ without the largest losses


@dataclass(frozen=True)
class Kept(integrals.Part):
    """The share of a smooth end, of a step whose ratio is 1 - q + q e^(m x - m^2 / 2)."""

    step: integrals.Step
    end: SmoothEnd

    @staticmethod
    def of(step: integrals.Step, end: SmoothEnd) -> Kept:
        """Edge and width are those in x, as far as the integral has to know them."""
        m, q = float(step.m), float(step.q)
        at = (end.edge - math.log(q / (1.0 - q))) / m + 0.5 * m
        return Kept(False, at, end.width / m, step, end)

    def share(self, x: acb) -> acb:
        m, q = ball(self.step.m), ball(self.step.q)
        y = m * x - m * m / 2 + (q / (1 - q)).log()
        return (((y - self.end.edge).exp() - 1) / self.end.width / arb(2).sqrt()).erfc() / 2


def kept(steps: tuple[Step, ...], end: SmoothEnd, s: acb) -> acb:
    """The product of E_P[w e^(s L)] over all runs."""
    total = acb(1)
    for step, count in balls(steps, True):
        total *= step.moment(s, Kept.of(step, end)) ** count
    return total


# steps, their end, c and heights: large c that owe all to the end, and small ones
ENDED = {
    "rare": ((Step(1.0, 1e-6, 3), Step(1.5, 1e-6, 1)), SmoothEnd(-2.0, 2.0**-6), 150.0, 90.0),
    "narrow": ((Step(0.25, 1e-4, 2), Step(0.4, 2e-4, 5)), SmoothEnd(-7.25, 2.0**-8), 3e4, 2e4),
    "few": ((Step(0.8, 0.01, 4), Step(1.1, 0.02, 1)), SmoothEnd(1.5, 2.0**-4), 2.0, 40.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDED)
def test_values_without_the_largest_losses_are_within_their_errors(name: str) -> None:
    steps, end, c, top = ENDED[name]
    (schedule,) = Schedule.of(steps, True)
    ended = dataclasses.replace(schedule, end=end, _kept={})
    t = np.array([0.0, 0.1 * top, top])
    line = ended.line(c, t, 1e-14)
    for i in range(t.size):
        truth = kept(steps, end, acb(c, t[i]))
        assert holds(line, i, truth)
        assert line.error[i] * abs(truth) < 1e-9 * kept(steps, end, acb(c)).real
    for near in (c, 0.4 * c, -0.5):
        whole = kept(steps, end, acb(near)).real.log()
        assert whole <= arb(ended.upper(near)) <= whole + 1e-8
        if near > 0:
            rough = float(ended.rough(np.array([near])).value[0])
            assert abs(rough - float(whole)) <= 1e-3 + 0.2 * abs(float(whole))


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDED)
def test_the_rest_of_a_line_without_the_largest_losses_is_below_its_bound(name: str) -> None:
    steps, end, c, top = ENDED[name]
    (schedule,) = Schedule.of(steps, True)
    ended = dataclasses.replace(schedule, end=end, _kept={})
    for shift in (0.1 * end.width, end.width, 4.0 * end.width):
        for t in (0.2 * top, top):
            bound = ended.beyond(c, t, shift)
            for higher in (1.0, 1.3, 3.0):
                assert abs(kept(steps, end, acb(c, higher * t))).log() <= arb(bound)
    # hardly moved, it is hardly above M(c) itself
    whole = kept(steps, end, acb(c)).real.log()
    assert whole <= arb(ended.beyond(c, 0.0, 0.01 * end.width)) <= whole + 0.03 * (1 + whole)


@pytest.mark.parametrize("name", ENDED)
def test_what_is_left_out_is_at_most_what_is_said(name: str) -> None:
    steps, end, _, _ = ENDED[name]
    (schedule,) = Schedule.of(steps, True)
    known = [
        count * (1 - step.moment(acb(0), Kept.of(step, end)).real)
        for step, count in balls(steps, True)
    ]
    lost = sum(known[1:], start=known[0])
    said = mass_beyond(schedule, end, float(lost.log()))
    assert lost <= arb(said) <= 4 * lost


def test_a_tail_of_thirty_deviations_is_at_most_what_is_said() -> None:
    """Of a narrow density, whose place and whose mean each move it by many of their units."""
    m, q = arb(1e-3), arb(1e-9)
    (schedule,) = Schedule.of([Step(1e-3, 1e-9, 1)], True)
    place = float(schedule.odds[0]) + 0.03
    u = [(arb(place) - (q / (1 - q)).log() + sign * m * m / 2) / m for sign in (1, -1)]
    lost = [(x / arb(2).sqrt()).erfc() / 2 for x in u]
    steps = np.array([-np.inf, place]), np.array([0.0, 1.0])
    with mock.patch.object(SmoothEnd, "steps", return_value=steps):
        said = mass_beyond(schedule, SmoothEnd(1.0, 0.125), -3.0)
    truth = (1 - q) * lost[0] + q * lost[1]
    assert truth <= arb(said) <= 1.001 * truth


@pytest.mark.parametrize("log_mass", [-3.0, -45.0, -600.0])
def test_losses_end_where_about_as_much_is_left_out_as_may_be(log_mass: float) -> None:
    steps = [Step(float(m), 1e-5, 200) for m in np.linspace(0.3, 0.8, 40)]
    (schedule,) = Schedule.of(steps, True)
    bulk, mass = schedule.without_tail(log_mass, 1e5)
    assert bulk.end is not None
    assert log_mass - 1.0 <= math.log(mass) <= log_mass + 1e-9
    assert bulk.without_tail(log_mass, 1e5) == (bulk, 0.0)
    (added,) = Schedule.of(steps, False)
    assert added.without_tail(log_mass, 1e5) == (added, 0.0)


# ------------------------------------------------------- many added records, seldom sampled


@pytest.mark.slow
@pytest.mark.parametrize(("q", "c"), [(1e-7, 1e7), (1e-5, 3e4), (1e-3, 2e4)])
def test_lines_of_an_added_record_at_a_large_power(q: float, c: float) -> None:
    steps = (Step(0.3, q, 2), Step(0.7, 2.0 * q, 3))
    (schedule,) = Schedule.of(steps, False)
    t = np.array([0.0, 0.3 * c, 2.0 * c])
    line = schedule.line(c, t, 1e-14)
    for i in range(t.size):
        assert holds(line, i, integrals.log_moment(balls(steps, False), acb(c, t[i])).exp())
        assert float(line.error[i]) < 1e-8
    assert integrals.log_moment(balls(steps, False), c).real <= arb(schedule.upper(c))
    for shift in (0.01, 0.1, 0.3):
        bound = schedule.beyond(c, c, shift)
        for higher in (1.0, 1.7, 4.0):
            truth = integrals.log_moment(balls(steps, False), acb(c, higher * c)).real
            assert truth <= arb(bound)
