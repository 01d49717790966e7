"""Every guard of a schedule's transform is taken away once, and a true inequality becomes false.

Rules are chosen badly on purpose, so that each error term matters.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from flint import acb, arb, ctx
from tests.guards.mutants import Without, each, lose_a_truth
from tests.integrals import Step as Exact

from tightbudget.engine.saddle_point.saddle_point import SaddlePoint
from tightbudget.mechanisms import gaussian_schedule, gaussian_schedule_path
from tightbudget.mechanisms.gaussian_schedule import Schedule
from tightbudget.mechanisms.gaussian_schedule_nodes import RuleInY, Step, Steps
from tightbudget.mechanisms.gaussian_transform import MixedTransform
from tightbudget.mechanisms.mixture_transform import MixtureTransform
from tightbudget.mechanisms.smooth_end import SmoothEnd

ONE = Exact(Fraction(1), Fraction(1, 4), True)


@pytest.fixture(autouse=True)
def _bits() -> Iterator[None]:
    before, ctx.prec = ctx.prec, 120
    yield
    ctx.prec = before


def schedule() -> Schedule:
    """One step of sigma 1 and rate 1/4, with nothing remembered."""
    return Schedule.of([Step(1.0, 0.25, 1)], True)[0]


def values_hold(goal: float, h: float) -> bool:
    """M with nodes h apart, as far as the terms are above e^-goal, is within its error."""
    for c, t in ((2.0, 0.0), (2.0, 1.0)):
        one = schedule()
        rule = one.rule(c, h, 1.0, goal)
        at = one.weights(c, rule)
        assert at is not None
        both = gaussian_schedule._circle(at.log_s, np.array([t]))
        off = one._off(c, t, rule, at)
        value, error = one._values(slice(None), np.array([t]), both, off, at)
        got = acb(float(value[0, 0].real), float(value[0, 0].imag))
        across = (acb(0, t) * arb(0.75).log()).exp()
        if not abs(ONE.moment(acb(c, t)) - got * across) <= arb(float(error[0, 0])):
            return False
    return True


def rest_holds() -> bool:
    """|M| itself is not above the bound of the rest of its line."""
    return all(
        abs(ONE.moment(acb(c, t))).log() <= arb(schedule().beyond(c, t, shift))
        for c, t, shift in ((0.2, 0.05, 1.0), (0.2, 5.0, 0.3), (0.2, 20.0, 0.3))
    )


def moved_sums_hold() -> bool:
    """The bound is not below the integral of the modulus, for rules with few nodes."""
    real = Steps.rule
    for times in (4.0, 6.0, 8.0, 10.0, 12.0):

        def coarse(
            self: Steps, c: float, h: float, width: float, goal: float = 36.0, n: float = times
        ) -> RuleInY:
            return real(self, c, n * h, width, goal)

        with mock.patch.object(Steps, "rule", coarse):
            for c, t, shift in ((0.5, 0.0, 0.01), (3.0, 0.0, 0.01), (3.0, 1.0, 0.3)):
                if not ONE.beyond(c, t, shift).log() <= arb(schedule().beyond(c, t, shift)):
                    return False
    return True


def ended_moduli_hold() -> bool:
    """The bound is not below the integral of the modulus on the moved line, where losses end."""
    end, c, t, m, q = SmoothEnd(-1.5, 0.0625), 20.0, 4.0, 0.75, 0.25
    one = dataclasses.replace(Schedule.of([Step(m, q, 1)], True)[0], end=end, _kept={})
    odds = math.log(q / (1.0 - q))
    for shift in (0.25, 0.3):
        total, h = arb(0), 2.0**-8
        for i in range(-1500, -200):
            y = acb(h * i, shift)
            x = (y - odds) / m + m / 2
            log = -x * x / 2 + ((1 + y.exp()) * (1 - q)).log() * (1 + acb(c, t))
            kept = (((y - end.edge).exp() - 1) / end.width / arb(2).sqrt()).erfc() / 2
            total += abs(kept) * log.real.exp() * h / m / (2 * arb.pi()).sqrt()
        if not total.log() <= arb(one.beyond(c, t, shift)):
            return False
    return True


def unknown_values_hold() -> bool:
    """Where a value is not told from 0, its logarithm allows for every number it may be."""
    one, t = schedule(), np.zeros(1)
    for value in (0.0, 1e-5, 1.9e-3):
        log, error = one._logarithm(slice(None), t, np.array([[value + 0j]]), np.array([[1e-3]]))
        for k in (1, 5):
            reach = math.exp(k * log[0, 0].real) * math.expm1(k * error[0, 0])
            for truth in (value + 1e-3, value - 1e-3):
                if not abs(truth**k - np.exp(k * log[0, 0])) <= reach:
                    return False
    return True


def far_lines_hold(name: str, coarse: float) -> bool:
    """M on a path with a coarse rule, short ends or a wide rest is within its error."""
    one, c = schedule(), 2.0
    with mock.patch.object(gaussian_schedule_path, name, coarse):
        for t in (0.0, 0.5, 3.0, 9.0, 11.0):
            found = one.far_line(c, np.array([t]))
            assert found is not None
            got = acb(float(found.log[0].real), float(found.log[0].imag)).exp()
            quotient = ONE.moment(acb(c, t)) / got
            if not abs(quotient - 1) <= arb(float(found.error[0])).expm1():
                return False
    return True


class Otherwise(MixedTransform):
    """A transform that inherits from the sampled step, and may have another integrand."""


def subclasses_stay_out() -> bool:
    """Steps of a subclass are in no product, which knows m and q alone."""
    steps = [(Otherwise(1.0 + 0.01 * i, 0.1, True), 20) for i in range(12)]
    engine = SaddlePoint.of(steps)
    assert engine is not None
    return not engine.takes_products


def mixtures_have_no_path() -> bool:
    """A path knows m and q alone: a mixture of three has other values than its line says."""
    shifts, shares = np.array([0.0, 1.0, 2.0]), np.array([0.9, 0.09, 0.01])
    mixture = MixtureTransform.between(shifts, shares, True)
    assert mixture is not None
    far, t = mixture.far_line(0.5, np.zeros(1)), np.zeros(1)
    known = mixture.line(0.5, t, 1e-12)
    return far is None or bool(np.all(np.abs(far.log - known.log) <= far.error + known.error))


MUTATIONS = [
    Without(
        "a family of its own",
        {"family-of-its-own": "return not self.part"},
        subclasses_stay_out,
    ),
    Without(
        "a path of its own",
        {"path-of-its-own": "if self.part or not self.remove:"},
        mixtures_have_no_path,
    ),
    Without(
        "the step of the rule",
        {"schedule-aliasing": "error = 0.0 * most"},
        lambda: values_hold(36.0, 1.5),
    ),
    Without(
        "the ends of the rule",
        {"schedule-ends": "ends = 0.0 * at.left"},
        lambda: values_hold(3.0, 0.1),
    ),
    Without(
        "what moving the line costs",
        {"schedule-shift-costs": "logs = -0.5 * (shift / m) ** 2"},
        rest_holds,
    ),
    Without(
        "the step of the rule on the moved line",
        {"schedule-moved-aliasing": "missed = 0.0 * at.total"},
        moved_sums_hold,
    ),
    Without(
        "what a smooth end grows by on the moved line",
        {"schedule-spilled": "whole = whole + 0.0"},
        ended_moduli_hold,
    ),
    Without(
        "the step of the rule on a path",
        {"far-rule": "aliased = np.zeros_like(whole)"},
        lambda: far_lines_hold("_GOAL", 9.0),
    ),
    Without(
        "the nodes beyond a path",
        {"far-ends": "ends_off = np.zeros_like(left)"},
        lambda: far_lines_hold("_REACH", 4.0),
    ),
    Without(
        "powers that are left out on a path",
        {"far-gone": "pass"},
        lambda: far_lines_hold("_GONE", 4.0),
    ),
    Without(
        "what a value on a path is off",
        {"far-value": "pass"},
        lambda: far_lines_hold("_GOAL", 9.0),
    ),
    Without(
        "values that are not told from 0",
        {"schedule-lost": "lost = np.zeros_like(size, dtype=bool)"},
        unknown_values_hold,
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a mutant divides by zero
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
