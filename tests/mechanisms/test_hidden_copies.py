"""Batches in which nobody sees the number of copies: against data, and the dual of the proof."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize
from scipy import special as sp
from tests.mechanisms.test_batches import binomial, hidden, told

import tightbudget as tb
from tightbudget.mechanisms.batches_pairs import HullPair
from tightbudget.mechanisms.hidden_copies import hidden_copies


def delta_of_hull(pair: HullPair, x: float) -> float:
    """A lower bound of the hull's delta at x >= 0: at one half-line, and of the other outputs."""
    mixture = pair.above.right  # type: ignore[attr-defined]
    shifts, shares = mixture.shifts, mixture.shares()

    def gained(t: float) -> float:
        moved = sp.ndtr(shifts - t) - sp.ndtr(-t)
        return float(np.dot(shares, moved) - math.expm1(x) * sp.ndtr(-t))

    table = np.linspace(-9.0, 30.0, 1001)
    best = float(table[np.argmax([gained(t) for t in table])])
    found = optimize.minimize_scalar(
        lambda t: -gained(t), bounds=(best - 0.04, best + 0.04), method="bounded",
        options={"xatol": 1e-12},
    )  # fmt: skip
    beside = pair.masses * np.maximum(0.0, -np.expm1(x - pair.losses))
    return -float(found.fun) + float(beside.sum()) + pair.beyond


CASES = [
    (2.0, binomial(60, 1 / 60_000)),
    (4.0, binomial(8, 1e-3)),
    (0.5, binomial(20, 5e-3)),
    (0.5, binomial(20, 1 / 20)),
    (1.0, binomial(10, 0.1)),
    (0.05, binomial(3, 0.3)),
    (6.0, binomial(5, 1e-2)),
    (1.0, [0.4, 0.0, 0.6]),  # two copies or none
]


@pytest.mark.parametrize(("s", "weights"), CASES)
def test_the_hull_is_above_the_theorem_and_close(s: float, weights: list[float]) -> None:
    weights = [w for w in weights if w > 1e-60 or w == 0.0]
    chances = np.nextafter(weights[1:], 1.0)
    pair = hidden_copies(s, chances, weights[0] * (1 - 1e-15), 0.0)
    assert pair is not None
    for x in (0.0, 1e-9, 1e-4, 0.01, 0.05, 0.1, 0.3, 0.7, 1.0, 2.0, 4.0, 8.0, 15.0):
        exact, found = hidden(x, s, weights), delta_of_hull(pair, x)
        if exact > 1e-25:
            assert found >= exact * (1 - 1e-9) - 1e-15
            assert exact <= told(x, s, weights) * (1 + 1e-9) + 1e-15
            assert found <= exact * (1.1 if x < 3.0 else 2.5) + 1e-6 * hidden(0.0, s, weights)
    # the mass under both sides is 1
    atoms, bins = pair.atoms(), pair.bins(np.zeros(1), np.zeros(1))
    for mass, atom in ((bins.p, atoms.p), (bins.q, atoms.q)):
        whole = float(mass.upper.sum() + atom.upper.sum() + pair.p_only().upper[0])
        assert 1.0 <= whole <= 1.0 + 1e-12


def places(size: int, records: int, at: list[complex], one: complex) -> list[tuple[complex, float]]:
    """The sums of a batch that is drawn with replacement, with the chance of each.

    The first record is ``one``, the others are ``at``.
    """
    data = [one, *at]
    chance = records**-size
    return [(sum(drawn), chance) for drawn in itertools.product(data, repeat=size)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("size", "records"), [(2, 2), (2, 4), (3, 3)])
def test_no_data_in_the_plane_reveal_more(size: int, records: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    sigma = float(generator.uniform(0.5, 3.0))
    step = tb.Gaussian(sigma).batches(size, of=records, replacement=True)
    radius, angle = np.sqrt(generator.random(records + 1)), generator.random(records + 1)
    if seed % 2:  # on the circle, where the worst ones lie
        radius[:] = 1.0
    if seed >= 4:  # others that are alike
        radius[2:], angle[2:] = radius[2], angle[2]
    found = (radius * np.exp(2j * math.pi * angle)).tolist()
    side = np.linspace(-size / sigma - 7.0, size / sigma + 7.0, 121)
    x, y = np.meshgrid(side, side, indexing="ij")

    def density(record: complex) -> np.ndarray:
        total = np.zeros_like(x)
        for at, chance in places(size, records, found[2:], record):
            z = at / sigma
            total += chance * np.exp(-((x - z.real) ** 2 + (y - z.imag) ** 2) / 2)
        return total * ((side[1] - side[0]) ** 2 / (2 * math.pi))

    before, after = density(found[0]), density(found[1])
    for epsilon in (0.02, 0.3, 1.0):
        delta = float(np.sum(np.maximum(before - math.exp(epsilon) * after, 0.0)))
        # a sum over a grid is off by some 1e-3 of itself
        assert delta <= step.delta(epsilon).upper * (1 + 4e-3) + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.05, 0.4, 1.2])
@pytest.mark.parametrize(("m", "records"), [(0.6, 2), (1.5, 3), (3.0, 5)])
def test_no_triangle_of_data_is_found_above(m: float, records: int, epsilon: float) -> None:
    """Two draws: the record, its replacement and one other, all in one plane, searched."""
    size, sigma = 2, 2.0 / m
    weights = binomial(size, 1 / records)
    bound = tb.Gaussian(sigma).batches(size, of=records, replacement=True).delta(epsilon).upper
    side = np.linspace(-2 * size / sigma - 6.0, 2 * size / sigma + 6.0, 121)
    x, y = np.meshgrid(side, side, indexing="ij")
    level = math.exp(epsilon)

    def revealed(angles: np.ndarray) -> float:
        # from the sum of two others: k copies move it by k (record - other)
        one, new, other = (np.exp(1j * np.append(angles, 0.0)) / sigma).tolist()

        def density(record: complex) -> np.ndarray:
            total = np.zeros_like(x)
            for k, w in enumerate(weights):
                z = k * (record - other)
                total += w * np.exp(-((x - z.real) ** 2 + (y - z.imag) ** 2) / 2)
            return total

        cell = (side[1] - side[0]) ** 2 / (2 * math.pi)
        return float(np.sum(np.maximum(density(one) - level * density(new), 0.0))) * cell

    starts = [(math.pi, 0.0), (2.0, -2.0), (0.1, math.pi), (math.pi, 1.0)]
    found = [
        optimize.minimize(  # type: ignore[call-overload]
            lambda a: -revealed(a), np.array(x), method="Nelder-Mead", options={"maxfev": 40}
        )
        for x in starts
    ]
    worst = max(-float(each.fun) for each in found)
    assert worst <= bound * (1 + 3e-3)


def test_losses_beyond_all_that_are_listed_are_told() -> None:
    assert hidden_copies(200.0, np.array([0.3, 0.1]), 0.6 - 1e-16, 0.0) is None


def test_a_thousand_samples_with_replacement_are_close_to_two_data_sets() -> None:
    """A thousand samples of 60 of 60,000 had [3.729, 8.555] while the number was told."""
    run = tb.Gaussian(1.0).batches(60, of=60_000, replacement=True) * 1_000
    found = run.epsilon(1e-5, rtol=1e-3)
    assert found.lower > 3.72
    assert found.upper < 3.78
