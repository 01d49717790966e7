"""Laws of transforms of Gaussian steps: a stated error is raised whole, and has all its parts.

Each error is a sum of many parts, all of which ``outwards`` raises. So where it doubles what it is
given, an error is at least twice as large. `python -m tests.guards.sweep` finds the lines here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from flint import arb, ctx
from tests.guards.test_rounded_engine import just_above

from tightbudget.mechanisms import (
    gaussian_integrand,
    gaussian_path,
    gaussian_schedule,
    gaussian_schedule_bounds,
    gaussian_schedule_nodes,
    gaussian_schedule_plan,
    gaussian_transform,
    mixture_transform,
)
from tightbudget.mechanisms import gaussian_transform_bounds as bounds
from tightbudget.mechanisms import gaussian_transform_plan as plan
from tightbudget.mechanisms.gaussian_integrand import Rule
from tightbudget.mechanisms.gaussian_schedule import Schedule
from tightbudget.mechanisms.gaussian_transform import MixedTransform
from tightbudget.mechanisms.mixture_transform import MixtureTransform
from tightbudget.mechanisms.smooth_end import SmoothEnd

REMOVE, ADD = MixedTransform(1.0, 0.25, True), MixedTransform(1.0, 0.25, False)


@pytest.fixture(autouse=True)
def _bits() -> Iterator[None]:
    before, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = before


def is_raised(
    module: ModuleType, error: Callable[[], Any], times: float = 2.0, room: float = 2.0**-19
) -> bool:
    """Whether an error is ``times`` as large where ``outwards`` doubles what it is given."""
    once = np.asarray(error())
    with mock.patch.object(module, "outwards", lambda x: 2.0 * x):
        doubled = np.asarray(error())
    assert np.all(once >= 0)
    assert np.any(once > 0)
    assert np.all(np.isfinite(doubled))
    return bool(np.all(doubled >= times * (1 - room) * once))


# ------------------------------------------------------------------------ the real axis


@pytest.mark.parametrize("part", ["loss_error", "weight_error", "mean_error"])
@pytest.mark.parametrize("mixed", [REMOVE, ADD], ids=["remove", "add"])
def test_errors_at_nodes_are_raised(mixed: MixedTransform, part: str) -> None:
    rule = Rule(2.0**-4, -200, 200, 0.0)
    assert is_raised(gaussian_integrand, lambda: getattr(mixed.at(rule), part))


def test_the_error_of_a_rule_is_raised() -> None:
    assert is_raised(gaussian_integrand, lambda: Rule(0.25, 0, 1, 1.0).error(np.array([0.1, 3.0])))


@pytest.mark.parametrize("remove", [True, False])
def test_errors_of_what_a_bulk_leaves_out_are_raised(remove: bool) -> None:
    def of_a_step() -> tuple[float, float]:
        return MixedTransform(1.0, 0.25, remove).split(2.0)[0].left_out[2:]

    def of_a_mixture() -> tuple[float, float]:
        whole = MixtureTransform(1.0, 0.5, remove, sizes=(0.0, 1.0), shares=(0.75, 0.25))
        return whole.split(2.0)[0].left_out[2:]

    assert is_raised(gaussian_integrand, of_a_step)
    assert is_raised(mixture_transform, of_a_mixture)


@pytest.mark.parametrize("mixed", [REMOVE, ADD, REMOVE.split(2.0)[1]], ids=["bulk", "add", "rare"])
def test_errors_of_values_and_of_their_logarithms_are_raised(mixed: MixedTransform) -> None:
    t = np.array([0.0, 0.7])
    rule = plan.rule_for(mixed, 0.5, 0.7, 1e-24)
    at = mixed.at(rule)
    assert is_raised(gaussian_transform, lambda: mixed._values(0.5, t, rule, at)[1], room=1e-6)
    value, error = np.array([0.3 + 0.1j, 2.0j]), np.array([1e-9, 1.0])
    logarithm = gaussian_transform.logarithm
    assert is_raised(gaussian_transform, lambda: logarithm(value, error, 1.0).error)


@pytest.mark.parametrize(
    ("mixed", "c"), [(REMOVE, 0.5), (REMOVE, 7.7), (ADD, 0.5), (ADD, 7.7), (ADD, 40.0)], ids=repr
)
def test_nodes_beyond_both_ends_are_at_most_two_series(mixed: MixedTransform, c: float) -> None:
    """The terms there are at most those of a geometric series on either side."""
    last = math.ceil(max(mixed.farthest_peak(mixed.power(c)) + 2.0, 4.0))
    for first in (3, 5):
        rule = Rule(2.0**-3, -8 * first, 8 * last, 0.0)
        at = mixed.at(rule)
        wa = at.powers(c)[1]
        h, power = arb(rule.h), arb(mixed.power(c))
        rise = 1 / (1 + (mixed.m * (arb(first) + arb(0.5))).exp() * 3)
        right = (1 + arb(c)) * (arb(float(at.weight[-1])) + arb(float(at.inverse[-1])))
        right += arb(float(wa[-1]))
        right /= (h * (last - max(power, arb(1)))).expm1()
        slope = first - max(arb(0), -power) * rise
        left = (1 + arb(c)) * 2 * (-(arb(first) ** 2) / 2).exp() * h + 2 * arb(float(wa[0]))
        left /= (h * slope).expm1()
        (found,) = bounds.cut(mixed, c, np.array([c]), rule, at, wa)
        if slope > 0.01:
            assert just_above(right + left, float(found), 1e-4)


def test_the_aliasing_of_a_rule_is_raised() -> None:
    rule = Rule(0.25, -40, 40, 1.0, log_moved=0.3)
    assert is_raised(bounds, lambda: bounds.aliased(REMOVE, np.array([0.3, 7.0]), rule))


@pytest.mark.parametrize(
    "mixed", [REMOVE, ADD, REMOVE.split(2.0)[0]], ids=["remove", "add", "bulk"]
)
def test_the_rest_of_a_line_keeps_all_its_parts(mixed: MixedTransform) -> None:
    c, t, shift = 1.3, 7.0, 0.3

    def rest() -> float:
        return mixed.beyond(c, t, shift)

    # nodes beyond the ends, which are moved: they outweigh all others
    with mock.patch.object(bounds, "cut", return_value=np.array([1e30])):
        growth = float(bounds.log_growth(mixed, mixed.power(c), np.array(shift)))
        assert just_above(arb(growth) + 3 + arb(1e30).log(), rest())
    # the aliasing of the rule, as large as the whole sum and a hundred times that
    asked: list[float] = []

    def error(_: Rule, log_growth: float) -> float:
        asked.append(log_growth)
        return 0.0 if len(asked) % 2 else 1e30

    def whole() -> float:
        with mock.patch.object(Rule, "error", error):
            return math.exp(rest() - 60.0)

    assert is_raised(bounds, whole, room=1e-6)
    # the errors of all exponents, a billion times as large
    once = rest()
    with mock.patch.object(bounds, "outwards", lambda x: 2.0**30 * x):
        assert rest() >= once + 1e-6


# ------------------------------------------------------------- a path above the real axis


def path() -> Any:
    found = gaussian_path._path.__wrapped__(1.0, 0.25, 3)
    assert found is not None
    return found


@pytest.mark.parametrize("part", ["weight_error", "v_error", "log_r_error", "less_error"])
def test_errors_on_a_path_are_raised(part: str) -> None:
    assert is_raised(gaussian_path, lambda: getattr(path(), part))


def test_errors_of_a_line_by_a_path_are_raised() -> None:
    """That of the values, the rule's aliasing, the nodes beyond its ends, and the whole."""
    t, gaussian_line = np.array([0.7, 3.0]), gaussian_path.line
    for error, log_upper in ((1e-6, 0.0), (0.0, 48.0)):
        values = np.full(2, 0.3 + 0.1j), np.full(2, error)

        def line(log_upper: float = log_upper) -> np.ndarray:
            found = gaussian_line(1.0, 0.25, 1.3, t, log_upper)
            assert found is not None
            return found.error

        with mock.patch.object(gaussian_path, "_values", return_value=values):
            assert is_raised(gaussian_path, line, times=4.0, room=1e-3)
    at = path()
    assert is_raised(gaussian_path, lambda: gaussian_path._ends(at, 1.0, 0.25, 1.3, t))


@pytest.mark.parametrize("remove", [True, False])
def test_the_error_of_a_moment_is_raised(remove: bool) -> None:
    def width() -> float:
        low, high = gaussian_path.log_moment(1.0, 0.25, remove, 7.0)
        return high - low

    assert is_raised(gaussian_path, width, room=0.05)


def test_a_moment_whose_exponents_have_lost_all_digits_says_nothing() -> None:
    for room, known in ((1e-3, True), (1e-11, False)):
        low, high = gaussian_path.log_moment(0.01, 1.0 - room, True, 1e6)
        assert (-math.inf < low <= high < math.inf) is known


# --------------------------------------------------------------- many steps as one product


def schedule() -> Schedule:
    made = Schedule(np.array([0.9, 1.0]), np.array([0.25, 0.1]), np.array([3.0, 2.0]), True)
    assert made.odds_error.size == made.log_rest_error.size == 2  # known from here on
    return made


C, T = 1.3, np.array([0.0, 0.7, 3.0])


def rule_and_weights(made: Schedule) -> tuple[Any, Any]:
    rule = gaussian_schedule_plan.rule_of_line(made, C, float(T[-1]), 1e-15)
    assert rule is not None
    return rule, made.weights(C, rule)


def test_errors_of_the_weights_of_a_schedule_are_raised() -> None:
    def weights() -> np.ndarray:
        made = schedule()
        error: np.ndarray = rule_and_weights(made)[1].error
        return error

    assert is_raised(gaussian_schedule_nodes, weights)


def test_errors_of_a_schedule_are_raised() -> None:
    made = schedule()
    rule, at = rule_and_weights(made)
    one = np.ones(2)
    assert is_raised(
        gaussian_schedule_bounds,
        lambda: gaussian_schedule_bounds.moved(made, C, 3.0, at, rule.width),
    )
    with mock.patch.object(gaussian_schedule_bounds, "moved", return_value=one):
        assert is_raised(
            gaussian_schedule_bounds,
            lambda: gaussian_schedule_bounds.aliased(made, C, 3.0, rule, at),
        )
    with mock.patch.object(gaussian_schedule_bounds, "aliased", return_value=0.0 * one):
        inner = at._replace(left=0.0 * one, right=0.0 * one)
        assert is_raised(gaussian_schedule, lambda: made._off(C, 3.0, rule, inner))
    both, off = gaussian_schedule._circle(at.log_s, T), 1e-13 * one
    assert is_raised(gaussian_schedule, lambda: made._values(slice(0, 2), T, both, off, at)[1])
    logs = np.zeros((2, 3), complex), np.ones((2, 3))
    with mock.patch.object(Schedule, "_logarithm", return_value=logs):
        assert is_raised(gaussian_schedule, lambda: made.line(C, T, 1e-15).error)


def test_bounds_of_a_schedule_that_ends_are_raised() -> None:
    ended = dataclasses.replace(schedule(), end=SmoothEnd(1.5, 0.125), _kept={})
    ours = gaussian_schedule_bounds
    _, at = rule_and_weights(ended)
    # two tails and their sum are raised, and the sum of the cells once
    assert is_raised(ours, lambda: ours.after(ended, C, at, 0.3, 0.1))
    assert is_raised(ours, lambda: ours.spilled(ended, C, at, 0.3, 0.0 * at.y))
    assert is_raised(ours, lambda: ours.mass_beyond(ended, SmoothEnd(1.5, 0.125), -3.0))
    once = at.vague
    with mock.patch.object(gaussian_schedule_nodes, "outwards", lambda x: 2.0 * x):
        again = dataclasses.replace(ended, _kept={})
        for name in ("odds_error", "log_rest_error"):
            again.__dict__[name] = getattr(ended, name)
        assert np.all(rule_and_weights(again)[1].vague >= 1.99 * once)


def test_errors_of_exponents_are_raised_in_the_rest_of_a_schedules_line() -> None:
    """Where each is 1/2, e^(1/2) - 1 counts, and twice that where it is doubled."""
    real = gaussian_schedule_nodes.turned_s

    def turned(y: np.ndarray, *given: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        less, angle, _ = real(y, *given)
        return less, angle, np.full_like(y, 0.5)

    def rest() -> float:
        return schedule().beyond(C, 3.0, 0.3)

    with mock.patch.object(gaussian_schedule_bounds, "turned_s", turned):
        once = rest()
        with mock.patch.object(gaussian_schedule_bounds, "outwards", lambda x: 2.0 * x):
            rise = math.log((1 + 2 * math.expm1(0.5)) / math.exp(0.5))
            assert rest() >= once + 0.999 * 5.0 * rise


def test_weights_that_are_hardly_known_are_not_used() -> None:
    """At 10^6 standard deviations a unit of x is 10^-4 of the weight."""
    far = Schedule(np.array([1e-6]), np.array([0.25]), np.ones(1), True)
    start = float(far.odds[0])
    rule = gaussian_schedule_nodes.RuleInY(
        0.25, math.floor(4 * start) - 4, math.ceil(4 * start) + 4, 0.0
    )
    at = far.weights(C, rule)
    assert at is not None
    assert at.error.tolist() == [math.inf]
