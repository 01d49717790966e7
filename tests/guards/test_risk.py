"""Every guard of the answers about attacks is taken away once, and a true inequality becomes false.

Gaps are chosen wide and first points few, so that each guard matters.
"""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.guards.test_engine import gaussian_truth
from tests.mechanisms.test_risk import both_ways, exact_tpr

import tightbudget as tb
from tightbudget.engine.readings import gaussian_dp, probabilistic_dp, tradeoff
from tightbudget.mechanisms import risk

SKEWED = (7.0, 2.0, 1.0), (5.0, 1.0, 4.0)


def detection() -> bool:
    """Two runs of a skewed pair, whose directions differ, by exact arithmetic."""
    run, truth = tb.HistogramPair(*SKEWED) * 2, both_ways(*SKEWED, 2)
    for fpr in (0.003, 0.05, 0.11, 0.33, 0.6):
        exact = max(exact_tpr(seen, Fraction(fpr)) for seen in truth)
        found = tradeoff.most_true_positives(run.engine, fpr, 1e-4).bounds
        if not Fraction(found.lower) <= exact <= Fraction(found.upper):
            return False
    return True


def laplace_delta(epsilon: float) -> float:
    """delta of one Laplace step of scale 1."""
    if epsilon <= -1.0:
        return -math.expm1(epsilon)
    return -math.expm1((epsilon - 1) / 2) if epsilon < 1.0 else 0.0


def hardly_known(below: float, above: float) -> Any:
    """A Laplace step whose delta is read with ends that are that far off."""

    def read(epsilon: float, gap: float) -> tb.Bounds:
        delta = laplace_delta(epsilon)
        return tb.Bounds(delta * (1 - below) * (1 - 1e-12), min(1.0, delta * (1 + above)))

    return SimpleNamespace(parts=(tb.Laplace(1.0) * 1).engine.parts, reader=lambda: read)


READERS = [(below, above) for below in (0.0, 0.03, 0.2) for above in (0.0, 0.03, 0.2)]


def rough_detection() -> bool:
    """The truth is e fpr for the smallest rates; it may be at either end of what is read."""
    for fpr, most in ((0.1, math.e * 0.1), (0.3, 1 - 0.25 / math.e / 0.3), (0.6, 1 - 0.4 / math.e)):
        for ends in READERS:
            run = tradeoff._Direction(hardly_known(*ends), fpr)
            found = run.closer(1e-3, lambda found: False)
            if not found.lower <= most * (1 + 1e-9) <= found.upper * (1 + 2e-9):
                return False
    return True


def rough_losses_above() -> bool:
    """Likewise for the mass above eps in (-1, 1), which is 1 - e^((eps - 1) / 2) / 2."""
    for epsilon in (-0.5, 0.0, 0.4):
        above = 1 - math.exp((epsilon - 1) / 2) / 2
        for ends in READERS:
            known = hardly_known(*ends)
            (parts,), read = known.parts, known.reader()
            found = probabilistic_dp._of_direction(parts, read, epsilon, 1e-6)
            if not found.lower <= above * (1 + 1e-9) <= found.upper * (1 + 2e-9):
                return False
    return True


def losses_above() -> bool:
    """One Laplace step: the loss is above eps in (-1, 1) with 1 - e^((eps - 1) / 2) / 2."""
    losses = (tb.Laplace(1.0) * 1).engine
    for epsilon in (-0.5, 0.0, 0.4, 0.8):
        above = 1 - math.exp((epsilon - 1) / 2) / 2
        for rtol in (0.9, 0.5, 1e-3):
            found = probabilistic_dp.exceedance_bounds(losses, epsilon, rtol)
            if not found.lower <= above <= found.upper:
                return False
    return True


def one_gaussian(run: tb.Composition, slack: float, rtol: float = 1e-4) -> bool:
    """delta <= delta_mu + slack at the upper end, at points that the proof did not choose."""
    mu = gaussian_dp.gaussian_mu_bounds(run.engine, slack, rtol)
    if mu.upper == math.inf:
        return mu.lower < math.inf
    end = run.epsilon(slack / 2, 0.1).upper
    return all(
        run.delta(end * i / 331, 1e-7).lower <= gaussian_truth(mu.upper, end * i / 331)[1] + slack
        for i in range(331)
    )


def outlier() -> bool:
    # few outcomes: one of their losses decides
    return one_gaussian(tb.HistogramPair((1.0, 1000.0, 7.0), (2.0, 900.0, 31.0)) * 3, 1e-6)


def sampled() -> bool:
    # the smallest delta decides
    return one_gaussian(tb.Gaussian(1.0).subsampled(0.01) * 1000, 1e-8)


def outlier_by_one_line(share: float) -> bool:
    """The same, where one of the two lines between two points is all that is compared."""
    with mock.patch.object(np, "clip", lambda x, least, most: np.full_like(x, share)):
        return outlier()


def certain() -> bool:
    """What tells the neighbours apart for certain is no Gaussian's."""
    run = tb.ApproximateDP(1.0, 1e-3) * 1
    found = gaussian_dp.gaussian_mu_bounds(run.engine, 1e-4, 1e-2)
    return (found.lower, found.upper) == (math.inf, math.inf)


def without_end() -> bool:
    """A slack that is below the exact mass at infinity, 1/3, but not below its lower bound."""
    run = tb.HistogramPair((1.0, 2.0), (0.0, 3.0)) * 1
    slack = run.engine.parts[0].infinity.lower
    if not Fraction(slack) < Fraction(1, 3):
        raise AssertionError("the lower bound has to be below the exact mass")
    return gaussian_dp.gaussian_mu_bounds(run.engine, slack, 1e-2).upper == math.inf


def wrong_guesses() -> bool:
    """One Laplace step: (1 - TV) / 2, TV = 1 - e^(-1/2), for an even prior."""
    losses = (tb.Laplace(1.0) * 1).engine
    for rtol in (0.5, 0.2, 0.05):
        found = risk._bayes_risk(losses, 0.5, risk._against(0.5), rtol)
        if not found.lower <= math.exp(-0.5) / 2 <= found.upper:
            return False
    return True


MUTATIONS = [
    Without(
        "the lowest interval for the lower end of a test",
        {
            "lowest-interval-lower-bound-test": (
                "i = max(range(len(valleys)), key=lambda i: valleys[i].floor)"
            )
        },
        detection,
    ),
    Without(
        "a line before a point is no steeper than a chord after it",
        {
            "line-before-point-steeper-chord": (
                "rise = min([0.0, *(_slope(b.t, b.upper, s.t, s.lower) for s in samples[i + 2 :])])"
            )
        },
        rough_detection,
        slow=True,
    ),
    Without(
        "lower ends of delta for the lower end of a test",
        {
            "lower-bounds-delta-lower-bound-test": (
                "return _Sample(t, read(high, gap).upper, read(low, gap).upper)"
            )
        },
        rough_detection,
        slow=True,
    ),
    Without(
        "upper ends of delta for the upper end of a test",
        {
            "lower-bounds-delta-lower-bound-test": (
                "return _Sample(t, read(high, gap).lower, read(low, gap).lower)"
            )
        },
        rough_detection,
        slow=True,
    ),
    Without(
        "a test is for the worse direction",
        {
            "test-worse-direction": (
                "return Bounds(max(b.lower for b in ends), min(b.upper for b in ends))"
            )
        },
        detection,
    ),
    Without(
        "an output of the largest loss may count",
        {
            "output-largest-loss-count": (
                "if epsilon >= parts.max_loss.upper or (not parts.parts and parts.certain):"
            )
        },
        lambda: (tb.FromCurve([0.0], [8e-5]) * 2).risk(0.0).exceedance.upper >= 1.0,
    ),
    Without(
        "the chord before eps for the upper end of a mass",
        {
            "chord-before-eps-upper-bound-mass": (
                "low, high = add_down(here.lower, least), add_up(here.upper, least)"
            )
        },
        losses_above,
    ),
    Without(
        "the chord after eps for the lower end of a mass",
        {
            "chord-before-eps-upper-bound-mass": (
                "low, high = add_down(here.lower, most), add_up(here.upper, most)"
            )
        },
        losses_above,
    ),
    Without(
        "upper ends before eps, lower ends at it",
        {"upper-bounds-before-eps-lower-bounds": "drop = sub_up(before.lower, here.lower)"},
        rough_losses_above,
    ),
    Without(
        "a chord is compared between its ends, too",
        {"chord-compared-between-ends-too": "return ~(ends[:-1] & ends[1:])"},
        outlier,
    ),
    Without(
        "the tangent of a Gaussian falls on the right of a point",
        {"tangent-gaussian-falls-1": "proved = self._below(chord, left, 0.0 * x)"},
        lambda: outlier_by_one_line(1.0),
    ),
    Without(
        "the tangent of a Gaussian rises on the left of a point",
        {"tangent-gaussian-falls-2": "proved &= self._below(chord, right, -1.0 * (1.0 - x))"},
        lambda: outlier_by_one_line(0.0),
    ),
    Without(
        "all eps up to where the slack covers the rest",
        {
            "eps-up-slack-covers-rest": (
                "return 0.5 * losses.answer(EpsilonAt(slack), 0.01).bounds.upper"
            )
        },
        sampled,
        slow=True,
    ),
    Without(
        "a mass at infinity above the slack leaves no mu",
        {"mass-infinity-above-slack-1": "pass"},
        certain,
    ),
    Without(
        "no eps from which the slack covers the rest",
        {"mass-infinity-above-slack-2": "end = 10.0"},
        without_end,
    ),
    Without(
        "the least that can be caught for the most that can be missed",
        {
            "least-caught-most-missed": (
                "least, most = sub_down(1.0, caught.upper), sub_up(1.0, caught.upper)"
            )
        },
        wrong_guesses,
    ),
    Without(
        "the most that can be caught for the least that can be missed",
        {
            "least-caught-most-missed": (
                "least, most = sub_down(1.0, caught.lower), sub_up(1.0, caught.lower)"
            )
        },
        wrong_guesses,
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
