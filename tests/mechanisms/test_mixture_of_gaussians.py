"""Mixtures of Gaussians: published values, Arb's integrals beyond a cut, and what is refused."""

# Refusals are shown what a type checker would have refused before.
# mypy: disable-error-code="arg-type"

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from tests.balls import mass

from tightbudget import Bounds, Composition
from tightbudget.errors import ParameterError
from tightbudget.mechanisms import Gaussian, MixtureOfGaussians
from tightbudget.mechanisms.mixture_of_gaussians import MixturePair
from tightbudget.mechanisms.subsampled import AddPair, RemovePair
from tightbudget.pairs.direction import Direction

REMOVE, ADD = Direction.REMOVE, Direction.ADD
PUBLISHED = MixtureOfGaussians(1.0, (0.0, 1.0, 2.0), (0.2, 0.6, 0.2))


def density(z: arb, shifts: np.ndarray, weights: np.ndarray) -> arb:
    """Of the mixture over that of N(0, 1), at z."""
    terms = [
        arb(w) * (arb(m) * (z - arb(m) / 2)).exp() for m, w in zip(shifts, weights, strict=True)
    ]
    return sum(terms, arb(0)) / sum(map(arb, weights), arb(0))


def above(z: arb, shifts: np.ndarray, weights: np.ndarray) -> arb:
    terms = [arb(w) * mass(z - arb(m), None) for m, w in zip(shifts, weights, strict=True)]
    return sum(terms, arb(0)) / sum(map(arb, weights), arb(0))


def truth(mechanism: MixtureOfGaussians, direction: Direction, epsilon: float) -> arb:
    """delta(eps): P - e^eps Q beyond the output whose loss is eps, found by bisection."""
    shifts = np.array(mechanism.sensitivities) / mechanism.sigma
    mixed = shifts, np.array(mechanism.weights)
    alone = np.zeros(1), np.ones(1)
    right = mixed if mechanism.mirrored or direction is REMOVE else alone
    left = mixed if mechanism.mirrored or direction is ADD else alone
    with ctx.workprec(400):
        low, high = arb(-60), arb(60)
        for _ in range(200):
            z = ((low + high) / 2).mid()
            loss = (density(z, *right) / density(-z, *left)).log()
            low, high = (z, high) if loss < epsilon else (low, z)
        mirrored = -left[0], left[1]
        beyond = above(low, *right) - arb(epsilon).exp() * above(low, *mirrored)
        return beyond.mid() if beyond > 0 else arb(0)


CASES = [
    PUBLISHED,
    MixtureOfGaussians(4.0, (0.0, 1.0), (0.5, 0.5)),
    MixtureOfGaussians(0.25, (1.0, 0.5, 2.0), (1.0, 2.0, 1.0)),
    MixtureOfGaussians(2.0, (0.0, 1.0), (0.75, 0.25), mirrored=True),
    MixtureOfGaussians(1.0, (0.0, 1.0, 3.0), (2.0, 1.0, 1.0), mirrored=True),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("mechanism", CASES, ids=str)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 5.0])
def test_delta_is_what_lies_beyond_the_output_of_that_loss(
    mechanism: MixtureOfGaussians, epsilon: float
) -> None:
    exact = max((truth(mechanism, d, epsilon) for d in Direction), key=float)
    got = (mechanism * 1).delta(epsilon)
    assert arb(got.lower) <= exact
    assert exact <= arb(got.upper)
    assert got.relative_gap <= 1e-4 or got.upper < 1e-290


@pytest.mark.parametrize(
    ("found", "value", "digits"),
    [
        ((PUBLISHED * 1).delta(1.0), 0.15768284088654105, 1e-9),
        (
            (PUBLISHED * 3 + MixtureOfGaussians(2, (0, 2, 3), (33, 34, 33)) * 2).epsilon(1e-6),
            17.193115,
            1e-4,
        ),
        # a Poisson-sampled Gaussian with one record replaced
        ((MixtureOfGaussians(2, (0, 1), (1, 4), True) * 1).delta(1.0), 0.05808665654484252, 1e-9),
        ((MixtureOfGaussians(2, (0, 1), (7, 3), True) * 1).delta(2.0), 2.4770380148941894e-9, 1e-9),
        ((MixtureOfGaussians(1, (1,), (1,), True) * 1).delta(1.0), 0.509861660055, 1e-9),
        ((MixtureOfGaussians(2, (0, 1), (99, 1), True) * 10000).delta(1.0), 0.12820939, 1e-5),
        ((MixtureOfGaussians(2, (0, 1), (99, 1), True) * 10000).epsilon(1e-6), 4.9073978, 1e-4),
    ],
)  # published by the test suites of dp-accounting and PLD-Accountant
def test_published_values(found: Bounds, value: float, digits: float) -> None:
    assert found.lower * (1 - digits) <= value <= found.upper * (1 + digits)


def test_a_contribution_of_one_size_is_a_gaussian_and_of_two_a_sampled_one() -> None:
    def same(one: Composition, other: Composition) -> None:
        for delta in (1e-3, 1e-9):
            assert one.epsilon(delta).overlaps(other.epsilon(delta))

    same(MixtureOfGaussians(3.0, (2.0,), (5.0,)) * 7, Gaussian(3.0, 2.0) * 7)
    same(MixtureOfGaussians(3.0, (1.0,), (5.0,), mirrored=True) * 7, Gaussian(3.0, 2.0) * 7)
    same(MixtureOfGaussians(0.8, (0.0, 1.0), (3.0, 1.0)) * 50, Gaussian(0.8).subsampled(0.25) * 50)
    same(
        MixtureOfGaussians(1.0, (0.0, 2.0), (1.0, 1.0)).subsampled(0.5) * 9,
        Gaussian(1.0, 2.0).subsampled(0.25) * 9,
    )


def test_what_is_given_is_sorted_and_what_never_happens_left_out() -> None:
    mechanism = MixtureOfGaussians(1, [2, 0, 1, 7], [1, 2, 3, 0])
    assert mechanism == MixtureOfGaussians(1.0, (0.0, 1.0, 2.0), (2.0, 3.0, 1.0))
    assert mechanism.parameters()["sensitivities"] == (0.0, 1.0, 2.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sigma": 0.0}, "sigma must be a finite number > 0, got 0.0"),
        ({"sensitivities": (-1.0, 1.0)}, r"sensitivities\[0\] must be a finite number >= 0, got"),
        ({"weights": (0.5, float("nan"))}, r"weights\[1\] must be a finite number >= 0, got nan"),
        ({"weights": (1.0,)}, r"weights must have as many entries as sensitivities \(2\)"),
        ({"sensitivities": (0.0, 0.0)}, r"sum\(sensitivities\) must be > 0, got 0.0"),
        ({"weights": (1.0, 0.0)}, "sensitivities must have an entry > 0 of weight > 0"),
        ({"mirrored": 1}, "mirrored must be True or False, got 1"),
        ({"sigma": 1e-13}, r"sensitivity / sigma must be in \[1e-100, 1e12\]"),
        (
            {"sensitivities": (1.0,) * 1001, "weights": (1.0,) * 1001},
            "weights must have at most 1000 entries > 0, got '1001 entries'",
        ),
    ],
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        MixtureOfGaussians(
            **{"sigma": 1.0, "sensitivities": (0.0, 1.0), "weights": (1.0, 1.0), **given}
        )


@pytest.mark.parametrize("direction", Direction, ids=lambda direction: direction.value)
@pytest.mark.parametrize("share", [1e-80, 1e-6, 0.001, 0.3, 0.999])
def test_a_mixture_of_0_and_one_size_is_the_sampled_gaussian(
    share: float, direction: Direction
) -> None:
    sampled = Gaussian(2.0, sensitivity=3.0).subsampled(share)
    found = MixtureOfGaussians(2.0, (3.0, 0.0), (share, 1 - share)).pair(direction)
    assert type(found) is type(sampled.pair(direction))
    assert isinstance(found, (AddPair, RemovePair))
    # the share is rounded up, so that no mass of the larger size is lost
    exact_share = Fraction(share) / (Fraction(share) + Fraction(1 - share))
    assert exact_share <= Fraction(found.q) <= exact_share * (1 + Fraction(1, 2**51))
    assert found.base == Gaussian(2.0, sensitivity=3.0).pair(direction)
    assert MixtureOfGaussians(2.0, (3.0,), (0.1,)).pair(direction) == found.base


def test_a_mixture_of_0_and_one_size_answers_as_the_sampled_gaussian() -> None:
    mixture = MixtureOfGaussians(1.0, (0.0, 1.0), (0.999, 0.001)) * 5000
    sampled = Gaussian(1.0).subsampled(0.001) * 5000
    assert mixture.explain(epsilon=0.7).engine == "saddle-point"
    for one, other in (
        (mixture.delta(0.7), sampled.delta(0.7)),
        (mixture.epsilon(1e-5), sampled.epsilon(1e-5)),
    ):
        assert one.overlaps(other)
        assert one.relative_gap <= 1e-9


def test_a_share_that_no_rate_carries_keeps_the_mixture_s_own_masses() -> None:
    tiny = MixtureOfGaussians(1.0, (0.0, 1.0), (1.0, 1e-200)).pair(REMOVE)
    assert isinstance(tiny, MixturePair)
