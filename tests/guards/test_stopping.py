"""Every guard of the price of stopping is taken away once, and a truth must be lost."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests import exact
from tests.exact import exp_ends, normalised, response_delta, reversed_
from tests.guards.mutants import Without, each, lose_a_truth
from tests.guards.test_engine import gaussian_truth

import tightbudget as tb
from tightbudget.numerics.bounds import Bounds
from tightbudget.output_dp.backward_induction import BackwardInduction
from tightbudget.output_dp.stopping_lattice import Lattice, RunLosses
from tightbudget.pairs.direction import Direction

LEAKY = (4.0, 4.0, 1.0), (4.0, 1.0, 0.0)  # one output that only P has
NEVER = 600.0  # a price at which nobody stops


def lattice(step: float, low: float, high: float, theta: float = 1.0, **more: float) -> Lattice:
    given = {"lost": -700.0, "slip": -40.0, "tolerance": 1e-30, **more}
    return Lattice(step, True, theta, low, high, extended=False, aligned=False, **given)


def induction(blocks: list[tb.Composition], lattice: Lattice) -> BackwardInduction:
    return BackwardInduction(RunLosses.of(blocks, Direction.REMOVE), lattice)


def responses(number: int, runs: int) -> bool:
    """An untilted lattice without width, where delta is far below the noise of an FFT.

    Which way the noise goes is chance, so there are many.
    """
    for p in np.linspace(0.55, 0.75, 21):
        spacing = math.log(p / (1 - p))
        here = lattice(2 * spacing, -200 * spacing, 200 * spacing, theta=1e-9)
        walked = induction([tb.RandomizedResponse(p) * runs] * number, here)
        epsilon = spacing * (number * runs - 1)
        truth = response_delta(Fraction(p), number * runs, epsilon)[0]
        if Fraction(walked.upper([*[NEVER] * (number - 1), epsilon])[0]) < truth:
            return False
    return True


def gaussians(here: Lattice, m: float = 0.5, number: int = 2, runs: int = 1) -> bool:
    """Several Gaussian steps that are one in the end."""
    walked = induction([tb.Gaussian(1.0 / m) * runs] * number, here)
    for epsilon in (0.1, 0.5, 1.0):
        prices = [*[NEVER] * (number - 1), epsilon]
        upper, rule = walked.upper(prices)
        low, high = gaussian_truth(m * math.sqrt(number * runs), epsilon)
        if upper < low or walked.lower(rule) > high:
            return False
    return True


def histograms(p: tuple[float, ...], q: tuple[float, ...], stops: list[int], *e: float) -> bool:
    """The public answer against the tree of all outputs."""
    bounds = tb.stopping_delta(tb.HistogramPair(p, q), stops, e)
    ends = [exp_ends(x) for x in e]
    outputs = [normalised(p, q)] * stops[-1]
    low, high = (
        max(
            exact.stopping_delta(steps, stops, [end[i] for end in ends])
            for steps in (outputs, [reversed_(o) for o in outputs])
        )
        for i in (1, 0)
    )
    return Fraction(bounds.lower) <= high and low <= Fraction(bounds.upper)


def schedules() -> bool:
    try:
        found = tb.early_stopping(tb.Gaussian(5.0), [2, 4], 1e-4)
    except tb.errors.CalibrationError:  # there are prices, and none is found
        return False
    return tb.stopping_delta(tb.Gaussian(5.0), [2, 4], found.epsilons, 1e-4).lower <= 1e-4


MUTATIONS: list[Without] = [
    Without(
        "rounding of the induction",
        {"rounding-induction": "total = (pulled) * self.growth * self.margin"},
        lambda: responses(4, 64) and responses(4, 32),
        slow=True,
    ),
    Without(
        "spreading, not a move to the left",
        {"bin-spread-merged-left-edge": "return np.ones_like(w_low)"},
        lambda: gaussians(lattice(0.25, -8.0, 8.0)),
    ),
    Without(
        "mass at infinity",
        {"infinite-mass-counted": "return 0.0"},
        lambda: histograms(*LEAKY, [1, 2], 0.3, 1.0),
    ),
    Without(
        "what lies left of a block's array",
        {"left-of-array-counted": ("_ = mul_up(block.lifted, exp_up(-log_scale) * (1 + 1e-12))")},
        lambda: gaussians(lattice(0.02, -8.0, 8.0, theta=30.0, tolerance=1e-6), m=0.2, runs=4),
    ),
    Without(
        "V below the window",
        {
            "value-below-window": (
                "return expectation(np.concatenate([np.zeros(left), inside, beyond * "
                "(1 + 4 * UNIT)]))"
            )
        },
        lambda: gaussians(lattice(0.02, -0.1, 4.0)),
    ),
    Without(
        "V beyond the window",
        {
            "value-beyond-window": (
                "beyond = float(value[-1]) - 0.0 * np.append(fall, np.zeros(right - fall.size))"
            )
        },
        lambda: gaussians(lattice(0.02, -4.0, 0.6)),
    ),
    Without(
        "what has stopped does not go on",
        {"stopped-goes-no-further": ("stopping, walker = walker.part(cut, len(walker)), walker")},
        lambda: histograms((3.0, 2.0, 1.0), (1.0, 2.0, 3.0), [1, 2], 0.3, 0.6),
    ),
    Without(
        "what has stopped meets no infinite loss",
        {"stopped-meets-no-infinite-loss": "pass"},
        lambda: histograms(*LEAKY, [1, 2], 0.3, 1.0),
    ),
    Without(
        "the chance of an infinite loss in each block",
        {"infinite-loss-each-block": "pass"},
        lambda: histograms(*LEAKY, [1, 2], 0.3, 1.0),
    ),
    Without(
        "all finite mass, not less",
        {
            "all-finite-mass": (
                "total = 0.5 * mul_up(total, mass**part.count * (1 + 4 * UNIT * part.count))"
            )
        },
        lambda: histograms(*LEAKY, [1, 2], 0.3, 1.0),
    ),
    Without(
        "prices that delta covers",
        {"prices-delta-covers-1": "if end <= 9.0 * delta:"},
        schedules,
    ),
    Without(
        "a search goes on until delta covers its prices",
        {
            "prices-delta-covers-2": (
                "if (1.0 - slack) * delta <= end or high < low * (1.0 + 1e-6):"
            )
        },
        schedules,
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)


def test_two_directions_count() -> None:
    """Sampled noise: the price of adding a record is far below that of removing it."""
    step = tb.Gaussian(1.0).subsampled(0.3)
    ends = []
    for direction in Direction:
        seen = RunLosses.of([step * 1], direction)
        ends.append(BackwardInduction(seen, Lattice.of(seen, [2.0], 1e-3, 1.0)).upper([2.0])[0])
    answer = tb.stopping_delta(step, [1], [2.0])
    assert min(ends) < 0.5 * answer.lower < answer.upper <= 1.01 * max(ends)
    assert isinstance(answer, Bounds)
