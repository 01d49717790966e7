"""Every published reference value lies inside the bounds, and the bounds are close to it.

The values come with their provenance in ``shared/reference`` beside the repository; without
that folder these tests are skipped, visibly. They are 25-digit strings and are compared as
exact rationals, not as doubles.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.buckets.refine import refine
from tightbudget.engine.question import DeltaAt, EpsilonAt
from tightbudget.numerics.bounds import Bounds
from tightbudget.pairs.direction import Direction

RTOL = 1e-4
HALF_A_DIGIT = Fraction(1, 2 * 10**24)

CLOSED = ["W1-k1", "W1-k64", "W1-k1024", "W1-k65536", "W4-k512", "W4-k65536"]
LAPLACE = ["W2-k1", "W2-k64", "W2-k1024", "W2-k65536"]
SAMPLED = [
    "W3-s4-q0.01-k65536",
    "W3-s0.8-q0.001-k10000",
    "W3-s1-q0.01-k1000",
    "W3-s2-q0.25-k200",
    "W3-s1.5-q0.0001-k1000000",
    "W3-s1.5-q0.0001-k10000000",
    "W5-het20",
]
# the gaps of eps and of delta that are asked for where the default is dear or out of reach: delta
# moves by eps theta times as much as eps, some hundred times here
GAPS = {
    "W5-het20": (1e-4, 1e-3),
    "W3-s0.8-q0.001-k10000": (1e-4, 1e-3),
    "W3-s1.5-q0.0001-k1000000": (1e-4, 1e-2),
    "W3-s1.5-q0.0001-k10000000": (3e-3, 3e-2),
}
TRUNCATED = ["W7-gauss", "W7-laplace"]


@pytest.fixture(scope="session")
def reference(shared: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((shared / "reference" / "composition.json").read_text())
    return content


def composition(case: dict[str, Any]) -> tb.Composition:
    match case["kind"]:
        case "gaussian":
            return tb.Gaussian(case["sigma"]) * case["k"]
        case "laplace":
            return tb.Laplace(case["b"]) * case["k"]
        case "rr":
            return tb.RandomizedResponse(case["p"]) * case["k"]
        case "sgm":
            return tb.compose([tb.Gaussian(s).subsampled(q) * k for s, q, k in case["parts"]])
        case "pb":
            return truncated(case) * case["r"]
    raise AssertionError(case)


def truncated(case: dict[str, Any]) -> tb.HistogramPair:
    """Integer noise on [-T, T], against the same shifted by 1; its masses are 2 ulps off."""
    x = np.arange(-case["trunc"], case["trunc"] + 1.0)
    exponents = (
        -(x**2) / (2 * case["scale"] ** 2) if case["mech"] == "gauss" else -abs(x) / case["scale"]
    )
    masses = np.exp(exponents)
    return tb.HistogramPair(tuple(np.append(masses, 0.0)), tuple(np.append(0.0, masses)))


def holds(bounds: Bounds, text: str, slack: float = 0.0, gap: float = RTOL) -> None:
    """The value of the text is inside, up to half of its last digit, and the ends meet."""
    truth = Fraction(Decimal(text))
    hair = abs(truth) * (HALF_A_DIGIT + Fraction(slack))
    assert Fraction(bounds.lower) <= truth + hair
    assert Fraction(bounds.upper) >= truth - hair
    assert bounds.upper - bounds.lower <= gap * bounds.upper


def answers(
    steps: Parts, truth: dict[str, Any], epsilon_gap: float = RTOL, delta_gap: float = RTOL
) -> None:
    for delta, epsilon in truth["eps_at_delta"].items():
        # a level is the double next to the power of ten, here and there
        found = refine(EpsilonAt(float(delta)), (steps,), epsilon_gap)
        holds(found.bounds, epsilon, gap=epsilon_gap)
    for row in truth["delta_at_eps"]:
        if Decimal(row["delta"]) > 0:
            found = refine(DeltaAt(row["eps"]), (steps,), delta_gap)
            holds(found.bounds, row["delta"], gap=delta_gap)


@pytest.mark.parametrize("name", CLOSED + LAPLACE)
def test_symmetric_mechanisms(reference: dict[str, Any], name: str) -> None:
    entry = reference[name]
    answers(Parts.of(composition(entry["case"]).pairs(Direction.REMOVE)), entry["truth"])


@pytest.mark.slow
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_gaussians_in_each_direction(
    reference: dict[str, Any], name: str, direction: Direction
) -> None:
    entry = reference[name]
    steps = Parts.of(composition(entry["case"]).pairs(direction))
    answers(steps, entry["truth"][direction.value], *GAPS.get(name, (RTOL, RTOL)))


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_gaussians_in_the_worse_direction(reference: dict[str, Any], name: str) -> None:
    entry = reference[name]
    run = composition(entry["case"])
    gap, _ = GAPS.get(name, (RTOL, RTOL))
    both = [entry["truth"][d.value]["eps_at_delta"] for d in Direction]
    for delta, epsilon in entry["truth"]["eps_at_delta"].items():
        assert epsilon == max((truth[delta] for truth in both), key=Decimal)
        holds(run.epsilon(float(delta), gap), epsilon, gap=gap)


@pytest.mark.parametrize("name", CLOSED + LAPLACE)
def test_the_public_door_gives_the_same(reference: dict[str, Any], name: str) -> None:
    entry = reference[name]
    run = composition(entry["case"])
    for delta, epsilon in entry["truth"]["eps_at_delta"].items():
        holds(run.epsilon(float(delta)), epsilon)


@pytest.mark.parametrize("name", TRUNCATED)
def test_truncated_noise(reference: dict[str, Any], name: str) -> None:
    case, truth = reference[name]["case"], reference[name]["truth"]
    run = composition(case)
    # the masses of our histogram are doubles: each is within 2^-51 of the noise's, r times
    slack = case["r"] * 2.0**-50
    for row in truth["delta_at_exp_eps"]:
        # the reference is exact at e^eps = exp_eps; its eps is the nearest double
        above = run.delta(math.nextafter(row["eps"], math.inf))
        below = run.delta(max(0.0, math.nextafter(row["eps"], 0.0)))
        exact = Fraction(Decimal(row["delta"]))
        hair = exact * (HALF_A_DIGIT + 4 * Fraction(slack))
        assert Fraction(above.lower) <= exact + hair
        assert Fraction(below.upper) >= exact - hair
        assert above.relative_gap <= RTOL
    holds(run.delta(math.inf), truth["distinguishing"], slack)


def test_the_gaussian_noise_that_a_target_needs(reference: dict[str, Any]) -> None:
    case, truth = reference["W6-calib"]["case"], reference["W6-calib"]["truth"]
    sigma = float(truth["sigma"])

    def run(at: float) -> tb.Composition:
        return tb.Gaussian(at).subsampled(case["q"]) * case["k"]

    # a little less noise misses the target, a little more meets it
    assert run(sigma * (1 - 1e-5)).delta(case["eps"], 1e-5).lower > 1e-6
    assert run(sigma * (1 + 1e-5)).delta(case["eps"], 1e-5).upper < 1e-6
    for direction in Direction:
        # sigma is rounded to a double: delta moves by some 1e-15, relative
        parts = Parts.of(run(sigma).pairs(direction))
        bounds = refine(DeltaAt(case["eps"]), (parts,), RTOL).bounds
        holds(bounds, truth[f"delta_{direction.value}"], 1e-13)
