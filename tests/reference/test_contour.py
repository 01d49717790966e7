"""The saddle-point engine against line integrals in ball arithmetic; these against closed forms."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from flint import acb, arb, ctx
from tests.balls import ball, inside
from tests.integrals import Integral, Saddle, Step, Steps, density
from tests.reference.make_contour import BITS, FILE, questions, reference
from tests.reference.test_gaussian import gaussian_delta

import tightbudget as tb
from tightbudget.engine.question import DeltaAt

CONTENT = json.loads(FILE.read_text(encoding="utf-8"))
VALUES = CONTENT["values"]


def name(value: dict[str, Any]) -> str:
    sigma, q, k = value["steps"][0]
    more = "-and-more" if len(value["steps"]) > 1 else ""
    return f"{sigma}-{q}-{k}{more}-{value['direction']}-at-{value['epsilon']}"


values = pytest.mark.parametrize("value", VALUES, ids=map(name, VALUES))


def composition(value: dict[str, Any]) -> tb.Composition:
    return tb.compose([tb.Gaussian(s).subsampled(q) * k for s, q, k in value["steps"]])


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, BITS
    yield
    ctx.prec = before


@pytest.mark.one_in(3)
@values
def test_the_contour_engine_holds_the_value_within_1e_9(value: dict[str, Any]) -> None:
    losses = composition(value).engine
    (contour,) = (
        c
        for d, c in zip(losses.directions, losses.saddle_points, strict=True)
        if d.value == value["direction"]
    )
    # an eps of 10^9 is itself no better than a double
    gap = max(1e-9, 1e-15 * value["epsilon"])
    bounds = contour.bounds(DeltaAt(value["epsilon"]), gap)
    assert bounds is not None, "the engine has no answer"
    assert inside(bounds, arb(value["delta"]))
    assert bounds.relative_gap <= gap


@pytest.mark.one_in(4)
@values
def test_the_composition_is_not_below_the_value(value: dict[str, Any]) -> None:
    """It answers for the worse direction: the upper end holds either."""
    bounds = composition(value).delta(value["epsilon"], 1e-3)
    assert arb(bounds.upper) >= arb(value["delta"])
    both = [v for v in VALUES if (v["steps"], v["epsilon"]) == (value["steps"], value["epsilon"])]
    if len(both) == 2:
        assert arb(bounds.lower) <= arb(max(both, key=lambda v: float(arb(v["delta"])))["delta"])


def test_the_values_cover_the_ranges() -> None:
    assert len(VALUES) == len(list(questions())) >= 60
    assert CONTENT["script"] == "tests/reference/make_contour.py"
    assert CONTENT["bits"] == BITS
    deltas = [arb(value["delta"]) for value in VALUES]
    assert all(delta.rel_accuracy_bits() > 50 for delta in deltas)
    assert min(deltas) < 1e-97
    assert max(deltas) > 0.25
    assert {value["direction"] for value in VALUES} == {"remove", "add"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "size"), [("remove", 1e-5), ("add", 1e-15), ("remove", 1e-100)]
)
def test_the_script_makes_the_same_values_again(direction: str, size: float) -> None:
    made = reference(((4.0, 0.01, 65_536),), direction, size)
    (kept,) = (v for v in VALUES if all(v[x] == made[x] for x in ("direction", "epsilon")))
    assert kept["steps"] == [[4.0, 0.01, 65_536]]
    assert arb(kept["delta"]).overlaps(arb(made["delta"]))


# --------------------------------------------------------- the line integral itself


def by_line(steps: Steps, size: float) -> tuple[float, arb]:
    ctx.prec = 120
    saddle = Saddle.near(steps, math.log(size))
    (delta,) = Integral.of(steps, saddle, 30.0).deltas([saddle.epsilon])
    assert delta.rel_accuracy_bits() > 40
    return saddle.epsilon, delta


@pytest.mark.parametrize("size", [1e-3, 1e-60])
def test_gaussians_have_a_closed_form(size: float) -> None:
    steps = [(Step.of(3.0, 1.0, True), 20), (Step.of(1.5, 1.0, True), 2)]
    epsilon, delta = by_line(steps, size)
    mu = (arb(20) / 9 + 2 / arb(1.5) ** 2).sqrt()
    with ctx.workprec(2000):
        truth = gaussian_delta(mu, epsilon)
    assert delta.overlaps(truth)


def once(step: Step, epsilon: acb, analytic: bool = False) -> acb:
    """delta(eps) of one sampled Gaussian step, remove: q delta'(ln(1 + (e^eps - 1) / q))."""
    m, q = ball(step.m), ball(step.q)
    inner = epsilon if step.q == 1 else (1 + (epsilon.exp() - 1) / q).log(analytic=analytic)

    def above(z: acb) -> acb:
        return (z / arb(2).sqrt()).erfc() / 2

    return q * (above(inner / m - m / 2) - inner.exp() * above(inner / m + m / 2))


@pytest.mark.slow
def test_two_runs_are_an_integral_over_the_outputs_of_one() -> None:
    """delta(eps) of both is E_P[delta of the other at eps - L]: no transform at all."""
    step, other = Step.of(1.0, 0.5, True), Step.of(1.5, 1.0, True)
    epsilon, delta = by_line([(step, 1), (other, 1)], 1e-4)

    def f(x: acb, analytic: bool) -> acb:
        loss = step.log_r(x, analytic)
        return density(x) * loss.exp() * once(other, epsilon - loss)

    ctx.prec = 80
    truth = sum((acb.integral(f, a, a + 2.0).real for a in range(-10, 12, 2)), arb(0))
    truth += arb(0, 1e-20)  # what phi R adds beyond
    assert truth.rel_accuracy_bits() > 40
    assert truth.overlaps(delta)


def test_one_run_has_a_closed_form() -> None:
    step = Step.of(1.0, 0.25, True)
    for epsilon in (0.5, 3.0):
        bounds = (tb.Gaussian(1.0).subsampled(0.25) * 1).delta(epsilon)
        assert inside(bounds, once(step, acb(epsilon)).real)
