"""The sum of two clipped counts against direct sums of 400-bit balls, and beside both counts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from flint import arb
from tests.mechanisms.checks import ADD, REMOVE

import tightbudget as tb
from tightbudget.errors import ParameterError
from tightbudget.mechanisms import ClippedNoise, ClippedSum

READINGS = ["shifted", "clipped"]


def distribution_function(noise: str, mean: float, scale: float, x: float) -> arb:
    z = (arb(x) - arb(mean)) / arb(scale)
    if noise == "gaussian":
        return (-z / arb(2).sqrt()).erfc() / 2
    return z.exp() / 2 if x <= mean else 1 - (-z).exp() / 2


def count(noise: str, mean: float, scale: float, moved: int, n: int) -> list[arb]:
    """P(ceil(max(0, X + moved)) = k) for k = 0 .. n."""
    below = [distribution_function(noise, mean, scale, k - moved) for k in range(n + 1)]
    return [below[0], *(b - a for a, b in itertools.pairwise(below))]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("reading", READINGS)
def test_the_atoms_enclose_the_exact_sums(noise: str, reading: str) -> None:
    """Output by output: all masses and losses down to a mass of 1e-14."""
    n, s1, s2 = 60, 2, 1
    mechanism = ClippedSum(9.0, 2.5, 4.0, 1.5, noise, s1, s2, reading)
    moved = (s1, s2) if reading == "clipped" else (0, 0)
    masses = []
    for by in ((0, 0), moved):
        x, y = count(noise, 9.0, 2.5, by[0], n), count(noise, 4.0, 1.5, by[1], n)
        masses.append([sum((x[i] * y[k - i] for i in range(k + 1)), arb(0)) for k in range(n + 1)])
    p, q = masses
    if reading == "shifted":
        q = [arb(0)] * (s1 + s2) + q[: n + 1 - s1 - s2]
    atoms = mechanism.pair(REMOVE).atoms()
    first = s1 + s2 if reading == "shifted" else 0
    checked = 0
    for k in range(first, n + 1):
        if not p[k] > 1e-14:
            continue
        i = k - first
        loss = (p[k] / q[k]).log()
        assert atoms.p.lower[i] <= p[k]
        assert p[k] <= atoms.p.upper[i]
        assert atoms.loss_lower[i] <= loss
        assert loss <= atoms.loss_upper[i]
        assert atoms.loss_upper[i] - atoms.loss_lower[i] < 1e-9
        checked += 1
    assert checked > 20


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("reading", READINGS)
def test_far_outputs_keep_their_digits(noise: str, reading: str) -> None:
    """One transform would know nothing of masses below 1e-16 of the largest."""
    pair = ClippedSum(2e3, 150.0, 1e3, 75.0, noise, 2, 1, reading).pair(REMOVE)
    atoms = pair.atoms()
    assert np.min(atoms.p.lower) < 1e-26
    assert pair.p_only().upper[0] < 1e-5
    width = np.sum(atoms.p.upper * (atoms.loss_upper - atoms.loss_lower))
    assert width < 1e-9 * np.sum(atoms.p.upper * np.abs(atoms.loss_upper))
    sure = np.sum(atoms.p.lower) + pair.p_only().lower[0]
    assert 1 - 1e-9 < sure < 1 + 1e-12


@pytest.mark.parametrize("reading", READINGS)
def test_the_sum_shows_less_than_both_counts(reading: str) -> None:
    both = ClippedNoise(600.0, 100.0, "gaussian", 2, reading) + ClippedNoise(
        300.0, 50.0, "gaussian", 1, reading
    )
    summed = ClippedSum(600.0, 100.0, 300.0, 50.0, "gaussian", 2, 1, reading)
    # unrounded and never clipped, the sum is one Gaussian count
    smooth = tb.Gaussian(100.0 * math.sqrt(1.25), sensitivity=3.0)
    found = (summed * 200).delta(0.5, 1e-3)
    assert found.upper < (both * 200).delta(0.5, 1e-3).lower
    assert (smooth * 200).delta(0.5).lower == pytest.approx(found.upper, rel=0.02)


def test_the_other_direction_is_the_reverse() -> None:
    mechanism = ClippedSum(9.0, 2.5, 4.0, 1.5)
    there, back = mechanism.pair(REMOVE).atoms(), mechanism.pair(ADD).atoms()
    assert np.array_equal(there.p.upper, back.q.upper)
    assert np.array_equal(there.loss_upper, -back.loss_lower)


def test_refusals_name_the_parameter() -> None:
    with pytest.raises(ParameterError, match="shift must be"):
        ClippedSum(9.0, 2.5, 4.0, 1.5, shift=0)
    with pytest.raises(ParameterError, match=r"scale must be a finite number > 0, got -1\.5"):
        ClippedSum(9.0, 2.5, 4.0, -1.5)
    with pytest.raises(ParameterError, match="a sum of at most 8388608 outputs"):
        ClippedSum(1e7, 2.5, 4.0, 1.5)
