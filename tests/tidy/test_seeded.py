"""Noise and keys of CI are the same in each run of a test, and have the law of OpenDP's."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests import seeded

import tightbudget as tb
from tightbudget.release.noise.salt import fresh_salt


@pytest.mark.parametrize("scale", [0.3, 1, 7.5])
@pytest.mark.parametrize("law", [seeded.laplace, seeded.gaussian])
def test_draws_have_their_law(law: Callable[..., np.ndarray], scale: float) -> None:
    runs = 10_000
    draws = law(np.random.default_rng(5), scale, runs)
    assert len(draws) == runs
    places = np.arange(-2000, 2001)
    away = np.abs(places) / scale
    mass = np.exp(-away if law is seeded.laplace else -(away**2) / 2)
    mass /= mass.sum()
    for x in range(-3, 4):
        p = mass[2000 + x]
        assert abs(np.sum(draws == x) - runs * p) < 5 * math.sqrt(runs * p) + 5


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[pytest.Item]:
    yield request.node
    if not os.environ.get("CI"):
        seeded.end()


def answers(node: pytest.Item) -> list[object]:
    seeded.begin(node)
    source = tb.release.OpenDPNoise()
    drawn = [*source.laplace(3, 2000).tolist(), *source.gaussian(3, 5).tolist()]
    return [*drawn, *(source.coin() for _ in range(9)), fresh_salt()]


def test_a_test_draws_the_same_again(node: pytest.Item) -> None:
    assert answers(node) == answers(node)


@pytest.mark.operating_system_noise
def test_a_test_with_the_mark_does_not(node: pytest.Item) -> None:
    assert answers(node) != answers(node)
