"""The smallest noise, the largest number of steps: on the safe side of the target, and close."""

from __future__ import annotations

import math
import re
from statistics import NormalDist
from typing import Any

import pytest

import tightbudget as tb
from tightbudget.accounting.calibrate import Target
from tightbudget.engine.readings.tradeoff import most_true_positives
from tightbudget.mechanisms.questions import Questions

SIGMA = 4.302106465630459  # eps 1, delta 1e-6, q 0.01, 10^4 steps; 220-bit contour integral


def sampled(sigma: float) -> tb.Composition:
    return tb.Gaussian(sigma).subsampled(0.01) * 10_000


def meets(found: tb.Calibration, epsilon: float, delta: float) -> None:
    assert found.delta.lower <= found.delta.upper <= delta
    assert found.epsilon.lower <= found.epsilon.upper <= epsilon
    assert found.composition.delta(epsilon, rtol=1e-4).upper <= delta * (1 + 1e-4)


def test_the_noise_of_sampled_gaussians() -> None:
    found = tb.calibrate(sampled, epsilon=1.0, delta=1e-6)
    assert SIGMA <= found.value <= SIGMA * (1 + 2e-5)
    meets(found, 1.0, 1e-6)
    assert found.composition == sampled(found.value)
    assert type(found.value) is float


@pytest.mark.parametrize("rtol", [1e-2, 1e-3, 1e-4])
def test_a_wider_tolerance_is_still_on_the_safe_side(rtol: float) -> None:
    found = tb.calibrate(sampled, epsilon=1.0, delta=1e-6, rtol=rtol)
    assert SIGMA <= found.value <= SIGMA * (1 + 2 * rtol)
    meets(found, 1.0, 1e-6)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-9), (8.0, 1e-6), (0.0, 0.01), (1e-3, 1e-5)]
)
def test_gaussian_noise(epsilon: float, delta: float) -> None:
    found = tb.calibrate(lambda s: tb.Gaussian(s) * 1, epsilon=epsilon, delta=delta)
    meets(found, epsilon, delta)
    less = tb.Gaussian(found.value * (1 - 3e-5)) * 1
    assert less.delta(epsilon, rtol=1e-6).upper > delta


def test_the_published_gaussian_noise() -> None:
    found = tb.calibrate(tb.Gaussian, epsilon=1.0, delta=1e-5)
    assert 3.730631634815942 <= found.value <= 3.730631634815942 * (1 + 2e-5)


def test_where_more_costs_more_the_largest_value_is_found() -> None:
    found = tb.calibrate(
        lambda q: tb.Gaussian(2.0).subsampled(q) * 100, epsilon=1.0, delta=1e-5, between=(1e-4, 1.0)
    )
    meets(found, 1.0, 1e-5)
    more = tb.Gaussian(2.0).subsampled(found.value * (1 + 3e-5)) * 100
    assert more.delta(1.0, rtol=1e-6).upper > 1e-5


def test_numbers_of_steps_are_integers() -> None:
    seen: list[Any] = []

    def steps(k: Any) -> tb.Composition:
        seen.append(k)
        return tb.compose([tb.Gaussian(20.0) * k])

    found = tb.calibrate(steps, epsilon=1.0, delta=1e-5, integer=True)
    assert type(found.value) is int
    assert all(type(k) is int for k in seen)
    meets(found, 1.0, 1e-5)
    assert (tb.Gaussian(20.0) * (found.value + 1)).delta(1.0).upper > 1e-5


def test_an_integer_scale_falls_with_its_cost() -> None:
    found = tb.calibrate(
        lambda n: tb.DiscreteLaplace(float(n)) * 3, epsilon=1.0, delta=1e-6, integer=True
    )
    meets(found, 1.0, 1e-6)
    assert isinstance(found.value, int)
    assert (tb.DiscreteLaplace(found.value - 1.0) * 3).delta(1.0).upper > 1e-6


def test_a_pure_target_is_met_exactly_where_delta_allows_it() -> None:
    # eps of one Laplace step is 1/b: with delta next to nothing b = 1 is needed
    found = tb.calibrate(tb.Laplace, epsilon=1.0, delta=1e-9)
    assert 1.0 - 1e-8 <= found.value <= 1.0 + 3e-5
    meets(found, 1.0, 1e-9)


class TheCallersOwnError(Exception):
    pass


@pytest.mark.parametrize("error", [TheCallersOwnError, ValueError, ZeroDivisionError, KeyError])
def test_the_callers_own_exception_reaches_the_caller(error: type[Exception]) -> None:
    def broken(x: float) -> tb.Composition:
        raise error("mine")

    with pytest.raises(error, match="mine") as caught:
        tb.calibrate(broken, epsilon=1.0, delta=1e-6)
    assert caught.value.__cause__ is None


def test_an_exception_in_the_middle_of_the_search_does_too() -> None:
    calls: list[float] = []

    def fragile(x: float) -> tb.Composition:
        calls.append(x)
        if len(calls) > 3:
            raise tb.errors.CalibrationError("the caller's, not ours")
        return tb.Gaussian(x) * 1

    with pytest.raises(tb.errors.CalibrationError, match="the caller's, not ours"):
        tb.calibrate(fragile, epsilon=1.0, delta=1e-6)


def test_a_refused_parameter_of_a_mechanism_reaches_the_caller() -> None:
    with pytest.raises(tb.ParameterError, match=r"^p must be in \(0, 1\), got "):
        tb.calibrate(tb.RandomizedResponse, epsilon=1.0, delta=1e-6, between=(0.5, 2.0))


def test_a_target_that_nothing_meets() -> None:
    with pytest.raises(tb.errors.CalibrationError):
        tb.calibrate(lambda x: tb.ApproximateDP(0.1, 0.5) * 1, epsilon=1.0, delta=1e-6)
    with pytest.raises(tb.errors.CalibrationError):
        tb.calibrate(lambda s: tb.Gaussian(s) * 1, epsilon=1.0, delta=1e-6, between=(0.1, 0.2))


def test_a_target_that_everything_meets() -> None:
    with pytest.raises(tb.errors.CalibrationError):
        tb.calibrate(lambda s: tb.Gaussian(s) * 0, epsilon=1.0, delta=1e-6)
    with pytest.raises(tb.errors.CalibrationError):
        tb.calibrate(lambda s: tb.Gaussian(s) * 1, epsilon=1.0, delta=1e-6, between=(10.0, 20.0))


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "1", None, True, 1j])
def test_refused_parameters(value: Any) -> None:
    refusals: dict[str, Any] = {"delta": value, "rtol": value}
    for name, given in refusals.items():
        missing = name == "delta" and value is None
        must = "is missing: give " if missing else "must be .*, got "
        with pytest.raises(tb.ParameterError, match=f"^{name} {must}"):
            tb.calibrate(sampled, **{"epsilon": 1.0, "delta": 1e-6, name: given})
    if value != 0:
        must = "is missing: give " if value is None else "must be a finite number >= 0, got "
        with pytest.raises(tb.ParameterError, match=f"^epsilon {must}"):
            tb.calibrate(sampled, epsilon=value, delta=1e-6)


@pytest.mark.parametrize("delta", [1.0, 1.5, 2])
def test_a_target_delta_is_below_1(delta: float) -> None:
    with pytest.raises(tb.TightBudgetError):
        tb.calibrate(sampled, epsilon=1.0, delta=delta)


@pytest.mark.parametrize(
    "between", [(2.0, 1.0), (1.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (1.0, math.inf), (math.nan, 2.0)]
)
def test_refused_brackets(between: Any) -> None:
    with pytest.raises(tb.ParameterError, match=r"^between"):
        tb.calibrate(sampled, epsilon=1.0, delta=1e-6, between=between)


@pytest.mark.parametrize("value", [None, 1.0, "gaussian", tb.Bounds(0.0, 1.0)])
def test_functions_that_return_no_composition(value: Any) -> None:
    with pytest.raises(tb.ParameterError, match=r"^function must return a composition, got "):
        tb.calibrate(lambda x: value, epsilon=1.0, delta=1e-6)


# ------------------------------------------------------------------- attacks as targets


@pytest.mark.parametrize("advantage", [0.01, 0.1, 0.6])
def test_noise_for_an_advantage(advantage: float) -> None:
    found = tb.calibrate(tb.Gaussian, advantage=advantage)
    # 2 Phi(1 / (2 sigma)) - 1 = advantage
    best = 0.5 / NormalDist().inv_cdf((1 + advantage) / 2)
    assert best * (1 - 1e-12) <= found.value <= best * (1 + 2e-5)
    assert found.met.lower <= found.met.upper <= advantage
    assert found.met.relative_gap <= 1e-4
    assert found.delta == found.met
    assert found.epsilon.upper == 0.0  # delta(0) is the advantage
    assert str(found.target) == f"advantage <= {advantage!r}"


@pytest.mark.parametrize(("tpr", "fpr"), [(0.05, 0.01), (0.011, 0.01), (1e-4, 1e-6), (0.9, 0.3)])
def test_noise_for_a_true_positive_rate(tpr: float, fpr: float) -> None:
    found = tb.calibrate(tb.Gaussian, tpr=tpr, fpr=fpr)
    # Phi(Phi^-1(fpr) + 1 / sigma) = tpr
    normal = NormalDist()
    best = 1.0 / (normal.inv_cdf(tpr) - normal.inv_cdf(fpr))
    assert best * (1 - 1e-11) <= found.value <= best * (1 + 2e-5)
    assert found.met.lower <= found.met.upper <= tpr
    assert found.met.relative_gap <= 1e-4
    assert found.composition == tb.Gaussian(found.value) * 1
    assert str(found.target) == f"tpr <= {tpr!r} at fpr = {fpr!r}"
    for name in ("epsilon", "delta"):
        with pytest.raises(tb.ParameterError, match=f"^{name} was not the target: tpr <= "):
            getattr(found, name)


@pytest.mark.slow
@pytest.mark.parametrize("rtol", [1e-2, 1e-4])
def test_noise_of_a_few_sampled_runs_for_a_true_positive_rate(rtol: float) -> None:
    """Both ends: the value meets the target, and so much less noise is not certified to."""

    def run(sigma: float) -> tb.Composition:
        return tb.Gaussian(sigma).subsampled(0.01) * 100

    found = tb.calibrate(run, tpr=0.3, fpr=0.1, rtol=rtol)
    assert found.met.lower <= found.met.upper <= 0.3
    assert found.met.relative_gap <= 1e-4
    again = most_true_positives(run(found.value).engine, 0.1, 1e-5).bounds
    assert again.overlaps(found.met)
    less = most_true_positives(run(found.value * (1 - 1.1 * rtol)).engine, 0.1, 1e-5).bounds
    assert less.upper > 0.3


@pytest.mark.slow
def test_steps_for_attacks_and_a_mix_of_mechanisms() -> None:
    step = tb.Gaussian(4.0).subsampled(0.01)
    found = tb.calibrate(lambda k: step * int(k), advantage=0.1, integer=True)
    assert (step * int(found.value)).total_variation().upper <= 0.1
    assert (step * int(found.value + 1)).total_variation().lower > 0.1
    mixed = tb.calibrate(
        lambda b: tb.Laplace(b) * 10 + tb.RandomizedResponse(0.51), tpr=0.05, fpr=0.01, rtol=1e-3
    )
    assert mixed.met.upper <= 0.05
    assert mixed.composition.risk(1.0, fpr=0.01).tpr.upper <= 0.05 * (1 + 1e-4)
    less = tb.Laplace(mixed.value * (1 - 3e-3)) * 10 + tb.RandomizedResponse(0.51)
    assert less.risk(1.0, fpr=0.01).tpr.lower > 0.05


@pytest.mark.parametrize(
    ("target", "got"),
    [
        ({}, "none"),
        ({"advantage": 0.1, "fpr": 0.1}, "advantage, fpr"),
        ({"advantage": 0.1, "tpr": 0.2, "fpr": 0.1}, "advantage, tpr, fpr"),
        ({"epsilon": 1.0, "delta": 1e-6, "advantage": 0.1}, "epsilon, delta, advantage"),
        ({"delta": 1e-6, "tpr": 0.1}, "delta, tpr"),
    ],
)
def test_there_is_one_target(target: dict[str, float], got: str) -> None:
    with pytest.raises(tb.ParameterError) as caught:
        tb.calibrate(sampled, **target)  # type: ignore[call-overload]
    assert str(caught.value) == (
        "give exactly one target: epsilon and delta, or advantage, or tpr and fpr; got " + got
    )


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"epsilon": 1.0}, "delta is missing: give epsilon and delta together"),
        ({"delta": 1e-5}, "epsilon is missing: give epsilon and delta together"),
        ({"tpr": 0.1}, "fpr is missing: give tpr and fpr together"),
        ({"fpr": 0.1}, "tpr is missing: give tpr and fpr together"),
        ({"advantage": 0.0}, "advantage must be in (0, 1), got 0.0"),
        ({"advantage": 1.0}, "advantage must be in (0, 1), got 1.0"),
        ({"advantage": math.nan}, "advantage must be in (0, 1), got nan"),
        ({"tpr": 1.5, "fpr": 0.1}, "tpr must be in (0, 1), got 1.5"),
        ({"tpr": 0.5, "fpr": 0.0}, "fpr must be in (0, 1), got 0.0"),
        ({"tpr": 0.1, "fpr": 0.1}, "tpr must be > fpr = 0.1, got 0.1"),
        ({"tpr": 0.1, "fpr": 0.2}, "tpr must be > fpr = 0.2, got 0.1"),
    ],
)
def test_refused_targets(target: dict[str, float], message: str) -> None:
    with pytest.raises(tb.ParameterError) as caught:
        tb.calibrate(sampled, **target)  # type: ignore[call-overload]
    assert str(caught.value) == message


def test_an_attack_that_no_noise_rules_out() -> None:
    with pytest.raises(tb.errors.CalibrationError, match="none meets the target"):
        tb.calibrate(lambda b: tb.Laplace(b) + tb.ApproximateDP(0.0, 0.2), advantage=0.1)


REST = tb.Laplace(5.0) * 60


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("function", "target", "rest", "ask"),
    [
        (lambda s: tb.Gaussian(s) + REST, {"epsilon": 4.0, "delta": 1e-6}, REST, "epsilon"),
        (lambda s: tb.Gaussian(s) + REST, {"advantage": 0.1}, REST, "advantage"),
        (lambda s: tb.Gaussian(s) + REST, {"tpr": 0.1, "fpr": 0.05}, REST, "tpr"),
        # once it runs at both ends
        (
            lambda k: tb.Gaussian(1.0) * int(k) + REST,
            {"epsilon": 4.0, "delta": 1e-6, "between": (1, 9)},
            tb.Gaussian(1.0) + REST,
            "epsilon",
        ),
    ],
)
def test_a_target_that_the_rest_misses_says_what_the_rest_costs(
    function: Any, target: dict[str, Any], rest: tb.Composition, ask: str
) -> None:
    costs = {
        "epsilon": lambda: rest.epsilon(1e-6, 1e-3),
        "advantage": lambda: rest.total_variation(1e-3),
        "tpr": lambda: rest.answer(fpr=0.05, rtol=1e-3).bounds,
    }
    cost = costs[ask]()
    most = target[ask]
    assert cost.lower > most
    said = re.escape(
        f"the target: the parts that are the same at both ends alone cost {ask} {cost:.4g} "
        f"(target {most})"
    )
    with pytest.raises(tb.errors.CalibrationError, match=f"{said}$"):
        tb.calibrate(function, **target)


def test_a_rest_that_is_apart_says_so() -> None:
    def plan(sigma: float) -> tb.Composition:
        return tb.Gaussian(sigma) + tb.Gaussian(1.0).batches(10, 100) * 10

    with pytest.raises(tb.errors.CalibrationError) as caught:
        tb.calibrate(plan, epsilon=0.1, delta=1e-5, between=(1.0, 100.0))
    assert "] (apart: batches of a fixed size) (target 0.1)" in str(caught.value)


@pytest.mark.parametrize(
    "function", [lambda s: tb.Gaussian(s) * 10, lambda s: tb.Gaussian(s) + tb.Laplace(100.0)]
)
def test_a_rest_that_meets_the_target_is_not_named(function: Any) -> None:
    with pytest.raises(tb.errors.CalibrationError, match=r"neither end meets the target$"):
        tb.calibrate(function, epsilon=1.0, delta=1e-6, between=(0.01, 0.1))


# ----------------------------------------------------------------- hints at a mistake

STEP = tb.Gaussian(1.0).subsampled(0.01)
AT: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}


@pytest.mark.parametrize(
    "function",
    [
        lambda k: STEP * k,
        lambda k: tb.DiscreteLaplace(1.0, k),
        lambda k: tb.compose([STEP for _ in range(k)]),
        lambda k: tb.RandomizedResponse(0.5, categories=k + 2) * k,
    ],
)
def test_a_parameter_that_is_an_integer_is_noticed(function: Any) -> None:
    hint = "for a parameter that is an integer, give integer=True"
    with pytest.raises(tb.ParameterError, match=f".*: {hint}$") as caught:
        tb.calibrate(function, **AT)
    assert isinstance(caught.value.__cause__, (tb.ParameterError, TypeError))


@pytest.mark.slow
def test_a_parameter_with_limits_is_noticed() -> None:
    message = (
        "rate must be in [0, 1], got 4.0: where the parameter has limits, give "
        "between=(lowest, highest), such as between=(1e-6, 1) for a rate"
    )
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(message)}$"):
        tb.calibrate(lambda q: tb.Gaussian(1.0).subsampled(q) * 100, **AT)
    found = tb.calibrate(lambda q: tb.Gaussian(1.0).subsampled(q) * 100, **AT, between=(1e-6, 1))
    assert found.epsilon.upper <= 1.0


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        # refused at every value, and at values that the caller named: the reason is no other
        (lambda s: tb.Gaussian(-s), tb.ParameterError, "sigma must be a finite number > 0, got -"),
        (lambda s: STEP + s, TypeError, "unsupported operand"),
        (lambda s: 1 / 0, ZeroDivisionError, "division by zero"),
    ],
)
def test_other_refusals_of_the_function_arrive_as_they_are(
    function: Any, error: type[Exception], message: str
) -> None:
    for between in (None, (0.5, 2.0)):
        with pytest.raises(error, match=f"^{message}") as caught:
            tb.calibrate(function, **AT, between=between)
        assert "give" not in str(caught.value)


def test_answers_that_tell_the_side_of_a_target_do_not_stall_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    def bounds(target: Target, asked_of: Any, rtol: float, until: float | None = None) -> tb.Bounds:
        """Bounds x^-13: of one above ``until``, no more than that it is above."""
        ((mechanism, _),) = getattr(asked_of, "composition", asked_of).parts
        asked.append(mechanism.sigma)
        exact = min(1.0, mechanism.sigma**-13)
        if until is not None and exact > until * (1 + rtol):
            return tb.Bounds(until * (1 + 1e-9), 1.0)
        return tb.Bounds(exact * (1 - 0.4 * rtol), min(1.0, exact * (1 + 0.4 * rtol)))

    monkeypatch.setattr(Target, "bounds", bounds)
    for delta in (1e-5, 1e-9, 0.3):
        asked.clear()
        found = tb.calibrate(tb.Gaussian, epsilon=1.0, delta=delta, rtol=1e-7)
        best = delta ** (-1 / 13)
        assert best <= found.value <= best * (1 + 1e-5)  # as close as a gap of 1e-5 tells
        assert len(asked) <= 24


def test_far_from_the_target_nothing_is_asked_closer_than_decides_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A schedule's delta is 1e-66 at four times its noise: close bounds of it took minutes."""
    asked: list[tuple[tb.Bounds, float | None]] = []
    answer = tb.Composition.answer

    def listen(self: Any, **given: Any) -> Any:
        found = answer(self, **given)
        asked.append((found.bounds, given.get("target")))
        return found

    monkeypatch.setattr(Questions, "answer", listen)
    found = tb.calibrate(
        lambda f: tb.compose(tb.Gaussian(f * z / 10).subsampled(0.01) * 50 for z in range(8, 20)),
        epsilon=1.0,
        delta=1e-5,
    )
    meets(found, 1.0, 1e-5)
    far = [target for bounds, target in asked if bounds.upper < 1e-5 * math.exp(-10)]
    assert far == [1e-5] * len(far)
    assert far != []


def test_the_lower_bound_of_what_is_found_is_that_of_the_attained_pair() -> None:
    found = tb.calibrate(
        lambda sigma: tb.Gaussian(sigma).shuffled(100) * 2, epsilon=8.0, delta=1e-5, rtol=1e-3
    )
    attained = found.composition.attained
    assert attained is not None
    exact = attained.answer(epsilon=8.0, rtol=1e-6).bounds
    assert exact.lower * (1 - 2e-2) <= found.met.lower <= exact.upper
    assert 0.98e-5 <= found.met.upper <= 1e-5


def test_a_target_by_position_is_answered_with_its_names() -> None:
    calibrate: Any = tb.calibrate
    message = (
        "calibrate takes function by position and the rest by name: "
        "write calibrate(function, epsilon=1.0, delta=1e-05)"
    )
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(message)}$"):
        calibrate(tb.Gaussian, 1.0, 1e-5)


def test_a_function_is_needed() -> None:
    wrong: Any = tb.Gaussian(1.0)
    with pytest.raises(
        tb.ParameterError, match=r"^function must be a function that makes a mechanism"
    ):
        tb.calibrate(wrong, **AT)


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "epsilon"), [(4.0, 1.0), (6.0, 0.5), (2.0, 3.0)])
def test_bounds_that_decide_and_say_little_do_not_lead_the_search(
    sigma: float, epsilon: float
) -> None:
    """Few steps have a delta of 1e-90 or so, of which an upper bound may fall as steps grow."""

    def steps(n: int) -> tb.Composition:
        return tb.Gaussian(sigma).subsampled(0.01) * n

    most = tb.calibrate(steps, epsilon=epsilon, delta=1e-6, integer=True).value
    assert steps(most).delta(epsilon).upper <= 1e-6
    assert steps(most + 1).delta(epsilon).upper > 1e-6
