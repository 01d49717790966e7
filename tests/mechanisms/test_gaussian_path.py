"""A sampled Gaussian's transform on a path of x, and its logarithmic form, against ball sums."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import acb, arb, ctx
from tests.cases import each_mechanism

import tightbudget as tb
from tightbudget.mechanisms import Mechanism
from tightbudget.mechanisms.gaussian_path import line, log_moment
from tightbudget.mechanisms.gaussian_transform import MixedTransform, NormalTransform
from tightbudget.pairs.direction import Direction

CASES = [
    (1.0, 1e-6, 14.0, (0.0, 3.0, 3e4)),
    (1.25, 1e-4, 6.0, (0.5, 1e4)),
    (3.25, 1e-8, 2.0, (0.0, 1e3)),
    (0.25, 1e-6, 300.0, (0.0, 6e5)),
    (2.0, 0.0625, 2.0, (0.0, 100.0)),
]


def ball(x: float) -> arb:
    f = Fraction(x)
    return arb(f.numerator) / f.denominator


def exact(m: float, q: float, c: float, t: float) -> acb:
    """M(c + i t) - 1 by a trapezoidal sum on another path, with far more nodes and bits."""
    a, h = (ball(0.75), ball(2.0**-6)) if m <= 2 else (ball(0.25), ball(2.0**-8))
    s, total = acb(ball(c), ball(t)), acb(0)
    first, last = math.floor(-15 / float(h)), math.ceil(((c + 1) * m + 15) / float(h))
    for i in range(first, last):
        x = acb(h * i, a)
        r = 1 + ball(q) * ((ball(m) * x - ball(m) ** 2 / 2).exp() - 1)
        total += (-x * x / 2).exp() * (((1 + s) * r.log()).exp() - 1)
    return total * h / (2 * arb.pi()).sqrt()


@pytest.mark.slow
@pytest.mark.parametrize(("m", "q", "c", "heights"), CASES)
def test_the_transform_is_within_its_error_and_the_error_is_small(
    m: float, q: float, c: float, heights: tuple[float, ...]
) -> None:
    ctx.prec = 200
    found = MixedTransform(m, q, True).far_line(c, np.array(heights))
    assert found is not None
    for log, error, t in zip(found.log, found.error, heights, strict=True):
        truth = (1 + exact(m, q, c, t)).log()
        off = abs(acb(float(log.real), float(log.imag)) - truth)
        assert float(off.upper()) <= error
        assert error <= 1e-11 * abs(log)


@pytest.mark.parametrize("order", [2, 3, 64, 500])
@pytest.mark.parametrize(("sigma", "q"), [(0.1, 0.01), (1.0, 1e-6), (5.0, 0.5), (0.3, 0.99)])
def test_a_removed_record_at_integer_orders_has_a_binomial_sum(
    sigma: float, q: float, order: int
) -> None:
    ctx.prec = 300
    m = 1.0 / sigma
    low, high = log_moment(m, q, remove=True, c=order - 1.0)
    rate, square = ball(q), ball(1.0) / ball(sigma) ** 2
    total = arb(0)
    for k in range(order + 1):
        weight = arb(math.comb(order, k)) * (1 - rate) ** (order - k) * rate**k
        total += weight * (square * (k * (k - 1)) / 2).exp()
    truth = total.log()
    assert arb(low) <= truth
    assert truth <= arb(high)
    assert high - low <= 1e-11 * max(1.0, high)


@pytest.mark.parametrize("c", [0.01, 1.5, 40.0])
@pytest.mark.parametrize("remove", [True, False])
def test_both_directions_agree_with_the_other_formula(remove: bool, c: float) -> None:
    for m, q in ((1.0, 0.01), (0.2, 0.5), (3.0, 1e-3)):
        low, high = log_moment(m, q, remove=remove, c=c)
        with np.errstate(all="ignore"):  # as the engine does
            found = MixedTransform(m, q, remove).line(c, np.zeros(1), 1e-15)
        value, error = float(found.log[0].real), float(found.error[0])
        if math.isfinite(error):
            assert low <= value + error
            assert value - error <= high


def test_what_is_known_of_no_path_is_none() -> None:
    assert MixedTransform(1.0, 0.1, False).far_line(1.0, np.zeros(1)) is None
    assert MixedTransform(1.0, 0.1, True).split(2.0)[0].far_line(1.0, np.zeros(1)) is None
    assert line(1.0, 0.1, 1e6, np.zeros(1), 0.0) is None  # e^y would overflow
    assert line(1000.0, 0.1, 1.0, np.zeros(1), 0.0) is None  # the strip is too narrow
    assert line(1.0, 0.1, 1.0, np.zeros(1), math.inf) is None
    assert log_moment(1000.0, 0.5, remove=True, c=1e9) == (-math.inf, math.inf)
    found = NormalTransform(1.0).far_line(1.0, np.array([0.0, 2.0]))
    assert found is not None
    assert found.log[0].real == pytest.approx(1.0)


def test_renyi_divergences_of_high_orders_are_finite_close_and_consistent() -> None:
    step = tb.Gaussian(0.1).subsampled(0.01)
    bounds = step.renyi(64)
    assert bounds.lower <= 3195.32173187455 <= bounds.upper
    assert bounds.relative_gap < 1e-12
    assert (step * 1000).renyi(64).overlaps(tb.Bounds(3195321.7318745, 3195321.7318746))
    orders = [1.001, 1.5, 2.0, 7.25, 64.0, 300.0]
    found = [step.renyi(order) for order in orders]
    assert all(a.lower <= b.upper for a, b in itertools.pairwise(found))
    assert all(bounds.relative_gap <= 1e-4 for bounds in found)


@pytest.mark.parametrize("order", [1.0001, 2.0, 1000.0])
def test_a_gaussian_has_its_closed_form(order: float) -> None:
    truth = Fraction(order) / (2 * Fraction(3.0) ** 2)
    bounds = tb.Gaussian(3.0).renyi(order)
    # 1/3 rounds in the mechanism's own m
    assert Fraction(bounds.lower) <= truth <= Fraction(bounds.upper)
    assert bounds.relative_gap < 1e-13


@each_mechanism
def test_a_far_line_is_that_of_the_transform_itself(mechanism: Mechanism) -> None:
    pairs = [mechanism.pair(Direction.REMOVE)]
    if mechanism.relation is not tb.Neighbouring.REPLACE_ONE:
        pairs.append(mechanism.subsampled(0.01).pair(Direction.REMOVE))
    t = np.array([0.0, 0.7, 2.0])
    for transform in (pair.transform() for pair in pairs):
        with np.errstate(all="ignore"):  # as the engine does
            far = None if transform is None else transform.far_line(0.5, t)
            if transform is None or far is None:
                continue
            known = transform.line(0.5, t, 1e-12)
        assert np.all(np.abs(far.log - known.log) <= far.error + known.error + 1e-12)


@pytest.mark.slow
def test_rare_losses_of_a_mixture_are_its_own() -> None:
    """A lower bound of another mixture, with all shares at the largest shift, was 17 % above."""
    q, w = 9.956126930021546e-06, 8.960514237019392e-06
    run = tb.MixtureOfGaussians(0.5, (0.0, 0.5, 1.0), (1 - q, q - w, w)) * 100
    found = run.answer(delta=2.9269177017248007e-07, rtol=1e-3).bounds
    assert 0.03343 <= found.lower <= found.upper <= 0.03347


def test_nothing_is_said_where_the_ratio_is_almost_0() -> None:
    # 1 - q: its logarithm has lost its digits on the left, and would be infinite without a warning
    assert line(3.0, 1.0 - 1e-9, 1.0, np.array([0.0, 1.0]), 9.0) is None
    assert line(10.0, 1.0 - 2.0**-53, 1.0, np.array([0.0, 1.0]), 101.0) is None
    assert line(0.5, 1.0 - 1e-9, 1.0, np.array([0.0, 1.0]), 0.3) is not None
