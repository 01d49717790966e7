"""Laws of the functions of workflows that round: what they enclose, they enclose exactly.

Each compares with ball arithmetic or exact fractions, and so closely that a line that is turned,
a million units the wrong way, makes it fail: `python -m tests.guards.sweep` finds its lines here.
"""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from tests.guards.test_rounded_values import block_of, expected

from tightbudget.numerics.rounding import UNIT
from tightbudget.workflows.block_sums import BlockSums
from tightbudget.workflows.induction import WorkflowInduction
from tightbudget.workflows.own_points import OwnPoints, _Between


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = before


@pytest.mark.parametrize("theta", [0.5, 7.0])
def test_a_sum_over_a_block_is_at_least_the_exact_one(theta: float) -> None:
    """Of the values themselves, of what was lifted, and of an error in the worst direction."""
    rng, states = np.random.default_rng(5), 12
    small = math.exp(-theta)
    values, payoff = small * rng.uniform(0.001, 0.002, 8), rng.uniform(0.5, 1.0, states + 7)

    def found(lifted: float, error: float) -> float:
        block = block_of(values, theta, lifted, error)
        return float(BlockSums.of(block, block.lower, 0.125, states).upper(payoff)[0])

    truth = expected(values, theta, payoff)
    assert truth <= arb(found(0.0, 0.0))
    assert found(0.0, 0.0) <= float(truth) * (1 + 1e-10)
    # what is lifted is at the first point, and there alone
    assert truth + arb(0.01) * arb(float(payoff[0])) <= arb(found(0.01, 0.0))
    error = 1e-3 * small
    tilted = payoff * np.exp(-theta * 0.125 * np.arange(payoff.size))
    worst = error * tilted / float(np.sqrt(np.sum(tilted * tilted)))
    moved = np.concatenate([values, np.zeros(payoff.size - 8)]) + worst
    assert expected(moved, theta, payoff) <= arb(min(1.0, found(0.0, error)))


@pytest.mark.parametrize("sure", [0.0, 0.03])
def test_beyond_the_window_a_value_is_at_most_what_its_slope_allows(sure: float) -> None:
    rng, points, more = np.random.default_rng(3), 9, 6
    value = np.sort(rng.uniform(0.1, 0.9, points))
    fall = np.exp(-0.3 * np.arange(points + more))
    it: Any = SimpleNamespace(points=points, fall=fall)
    it._window = lambda begin, reached: WorkflowInduction._window(it, begin, reached)
    found = WorkflowInduction._extended(it, sure, value, 0, more)
    assert found[:points].tolist() == value.tolist()
    left = 1 - Fraction(sure)
    for k, upper in enumerate(found[points:].tolist(), 1):
        truth = left - (left - Fraction(float(value[-1]))) * Fraction(float(fall[k]))
        assert truth <= Fraction(upper) <= truth * (1 + Fraction(1, 10**14))


@pytest.mark.parametrize("cells", [2, 7, 300])
@pytest.mark.parametrize("span", [0.1, 1 / 3, 2.0])
def test_own_points_hold_the_span(span: float, cells: int) -> None:
    for h in (span / cells, span / (cells + 0.37)):
        own = OwnPoints.of(span, h, -40, 200)
        assert Fraction(span) <= own.cells * Fraction(own.step)
        assert own.cells * Fraction(own.step) <= Fraction(own.span)
        assert own.span <= span * (1 + 600 * UNIT)


@pytest.mark.parametrize("off", [0.0, 1e-9])
@pytest.mark.parametrize("h", [0.01, 0.4, 3.0])
def test_moves_between_points_are_on_the_safe_side(h: float, off: float) -> None:
    """Of upper bounds on a chord in e^-l, of costs at what is added to the loss since."""
    share = np.array([0.05, 0.3, 0.5, 0.77, 0.95])
    behind = share * h
    between = _Between(np.zeros(share.size, dtype=np.intp), behind, h, off)
    low, high = 0.2, 0.9
    found = between.above(np.array([low, high]))
    for b, upper in zip(behind.tolist(), found.tolist(), strict=True):
        part = (1 - (-(arb(b) + arb(off))).exp()) / (1 - (-arb(h)).exp())
        truth = arb(low) + part * (arb(high) - arb(low))
        assert truth <= arb(upper)
        assert upper <= float(truth) * (1 + 1e-13) + 4 * off / min(1.0, h)
    for p, place, ahead in (([0.9, 0.5], 0, 0.0), ([0.1, 0.9], 1, h)):
        q = [0.01, 0.01]
        gain, cost = between.below(np.array(p), np.array(q))
        for b, a, upper in zip(behind.tolist(), gain.tolist(), cost.tolist(), strict=True):
            truth = arb(q[place]) * (arb(ahead) - arb(b) + arb(off)).exp()
            assert a == p[place]
            assert truth <= arb(upper) <= truth * arb(1 + 1e-13 + 4 * off)
