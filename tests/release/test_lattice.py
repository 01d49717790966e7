"""Noise that hides shifts in the 2-norm, against its masses."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.release.enumerated import Law

import tightbudget as tb
from tightbudget.release.noise import lattice
from tightbudget.release.noise.lattice import LatticeNoise, norm_up, sqrt_up


def points(size: int, most: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(-most, most + 1), repeat=size))


def length(noise: LatticeNoise, z: tuple[int, ...]) -> int:
    """What the exponent is in proportion to."""
    ends = np.cumsum([m for m, _ in noise._blocks])[:-1]
    return sum(norm_up(block) for block in np.split(np.array(z), ends))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_no_shift_within_the_distance_costs_more(
    size: int, narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exponent at z against z + w, for all w that are short enough."""
    if narrow:
        monkeypatch.setattr(lattice, "_WIDEST", 1)
    noise = LatticeNoise(size, Fraction(5, 2), Fraction(3, 4))
    most = 0
    for w in points(size, 2):
        if sum(x * x for x in w) <= Fraction(25, 4):
            for z in points(size, 2 if size < 4 else 1):
                moved = tuple(a + b for a, b in zip(z, w, strict=True))
                most = max(most, abs(length(noise, moved) - length(noise, z)))
    assert noise.rate * most <= Fraction(3, 4)
    assert noise.rate * most >= Fraction(1, 4)  # and not by far less


@pytest.mark.parametrize("size", [1, 2, 5, 8, 9, 30])
def test_the_rate_in_the_large(size: int) -> None:
    """Where a step is nothing, the noise is that of the paper, but for the blocks."""
    noise = LatticeNoise(size, 2**30, 1)
    blocks = -(-size // 8)
    assert sum(m for m, _ in noise._blocks) == size
    assert len(noise._blocks) == blocks
    assert float(noise.rate * 2**30) == pytest.approx(1 / math.sqrt(blocks), rel=1e-6)
    assert noise.rate * 2**30 < 1 / Fraction(math.sqrt(blocks))


def test_what_is_proposed_is_taken_as_often_as_it_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mass of a proposal times the chance that it is taken: e^(-rate N), for every point."""
    noise = LatticeNoise(3, 10, 1)
    ((m, proposed),) = noise._blocks
    assert m == 3
    asked = list[Fraction]()

    def taken(excess: Fraction, _: object) -> bool:
        asked.append(excess)
        return True

    monkeypatch.setattr(lattice, "bernoulli_exp", taken)
    for z in points(3, 4):

        class Proposed(Law):
            def laplace(self, scale: Any, size: int, z: tuple[int, ...] = z) -> Any:
                assert (scale, size) == (proposed, 3)
                return np.array(z)

        assert tuple(noise.draw(Proposed([], 0))) == z
        assert asked[-1] >= 0
        assert asked[-1] + Fraction(sum(map(abs, z))) / proposed == noise.rate * norm_up(
            np.array(z)
        )


@pytest.mark.slow
def test_what_is_drawn_has_these_masses() -> None:
    noise, draws = LatticeNoise(2, 1, 2), 600
    source = tb.release.OpenDPNoise()
    drawn = [tuple(noise.draw(source).tolist()) for _ in range(draws)]
    weights = {z: math.exp(-float(noise.rate) * length(noise, z)) for z in points(2, 60)}
    total = sum(weights.values())
    for z in points(2, 1):
        expected = draws * weights[z] / total
        assert abs(drawn.count(z) - expected) < 7 * math.sqrt(expected)


def test_blocks_make_it_longer_by_a_sixteenth_at_most() -> None:
    """A block of m coordinates has m (m + 1) / rate^2; without blocks it were d (d + 1)."""
    for size in range(1, 200):
        widths = LatticeNoise(size, 2**20, 1)._widths
        square = len(widths) * sum(m * (m + 1) for m in widths)
        assert size * (size + 1) <= square <= (1 + 1 / 16) ** 2 * size * (size + 1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("size", [3, 8, 24])
def test_how_long_it_is(size: int) -> None:
    """sqrt(d (d + 1)) in root mean square for one block; for blocks of 8, d sqrt(1 + 1/8)."""
    noise, source = LatticeNoise(size, 2**20, 1), tb.release.OpenDPNoise()
    square = np.mean([np.sum((noise.draw(source) / 2**20) ** 2) for _ in range(60)])
    assert math.sqrt(square) == pytest.approx(size * math.sqrt(1 + 1 / min(size, 8)), rel=0.45)


def test_norms_and_roots_are_rounded_up() -> None:
    for z in points(3, 6):
        square = sum(x * x for x in z)
        assert (norm_up(np.array(z)) - 1) ** 2 < square <= norm_up(np.array(z)) ** 2 or not square
    assert norm_up(np.zeros(3, dtype=np.int64)) == 0
    for x in (Fraction(0), Fraction(2), Fraction(9), Fraction(1, 7), Fraction(10**30)):
        assert x <= sqrt_up(x) ** 2
        assert sqrt_up(x) - Fraction(3, 2**32) <= Fraction(math.sqrt(x)) * (1 + Fraction(1, 2**50))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((0, 1, 1), "size must be an integer >= 1, got 0"),
        ((2, 0, 1), "distance must be a finite number > 0, got 0"),
        ((2, 1, 0), "epsilon must be a finite number > 0, got 0"),
        ((2, 2**30, 1e-6), r"scale must be in \(0, 2\^40"),
    ],
)
def test_refusals(given: tuple[int, float, float], said: str) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        LatticeNoise(*given)
