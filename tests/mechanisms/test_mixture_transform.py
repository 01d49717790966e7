"""Transforms of mixtures: within their stated errors of integrals that Arb encloses by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from flint import acb, arb, ctx
from tests.balls import ball
from tests.integrals import Part, Step
from tests.mechanisms.test_transform import holds_line, part_of

import tightbudget as tb
from tightbudget.mechanisms.mixture_transform import MixtureTransform
from tightbudget.mechanisms.weighted_transform import WeightedTransform
from tightbudget.pairs.direction import Direction

TOLERANCE = 1e-24


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 100
    yield
    ctx.prec = before


@dataclass(frozen=True)
class MixedStep(Step):
    """The step of a mixture: R = sum w_i e^(m_i x - m_i^2/2), weights over their sum."""

    sizes: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def log_r(self, x: acb, analytic: bool = False) -> acb:
        whole = sum((ball(Fraction(w)) for w in self.weights), arb(0))
        terms = [
            ball(Fraction(w)) / whole * (arb(m) * x - arb(m) ** 2 / 2).exp()
            for m, w in zip(self.sizes, self.weights, strict=True)
        ]
        return sum(terms, acb(0)).log(analytic=analytic)


def both(
    sizes: tuple[float, ...], weights: tuple[float, ...], remove: bool
) -> tuple[MixtureTransform, MixedStep]:
    """The transform, and the exact step."""
    shares = np.array(weights) / math.fsum(weights)
    transform = MixtureTransform.between(np.array(sizes), shares, remove)
    assert transform is not None
    mixed = Fraction(transform.q).limit_denominator(10**12)  # only says where the integrand is
    return transform, MixedStep(
        Fraction(sizes[-1]), min(mixed, Fraction(99, 100)), remove, sizes, weights
    )


MIXTURES = [
    ((0.0, 1.0, 2.0), (0.98, 0.0199, 0.0001)),
    ((0.0, 0.5, 2.5), (0.3, 0.6, 0.1)),
    ((0.25, 1.5), (9.0, 1.0)),
    ((0.0, 0.01, 0.02, 0.03), (0.5, 0.3, 0.15, 0.05)),
]
each = pytest.mark.parametrize(("sizes", "weights"), MIXTURES)
each_way = pytest.mark.parametrize("remove", [True, False])


@pytest.mark.one_in(6)
@each
@each_way
@pytest.mark.parametrize("c", [1e-3, 0.5, 4.0])
def test_a_line_of_m_is_within_its_error(
    sizes: tuple[float, ...], weights: tuple[float, ...], remove: bool, c: float
) -> None:
    transform, step = both(sizes, weights, remove)
    t = np.array([0.0, 0.7, 5.0])
    line = transform.line(c, t, TOLERANCE)
    for i, height in enumerate(t.tolist()):
        holds_line(line, i, step.moment(acb(c, height), less=True))
    size = abs(float(step.moment(acb(c), less=True).real))
    assert line.error[0] <= 1e-11 * min(size, 1.0 + c * transform.m) + 10 * TOLERANCE
    truth = step.moment(acb(c), less=True).real.log1p()
    upper = arb(transform.upper(c))
    assert upper >= truth
    assert upper - truth <= 1e-6 * (1.0 + abs(float(truth)))


@each_way
def test_lines_of_both_parts_are_within_their_errors(remove: bool) -> None:
    transform, step = both(*MIXTURES[0], remove)
    t = np.array([0.0, 2.0])
    for part in transform.split(2.0):
        line = part.line(1.5, t, TOLERANCE)
        for i, height in enumerate(t.tolist()):
            holds_line(line, i, step.moment(acb(1.5, height), part_of(part)) - 1)
        assert line.error[0] <= 1e-9


@each_way
def test_lines_of_a_rare_mixture_are_within_their_errors_far_up(remove: bool) -> None:
    """Losses of 1e-8 and a c of 3e7: without the largest losses, and for an added record."""
    transform, step = both((0.0, 0.05, 0.1), (1.0, 7e-9, 3e-9), remove)
    c = 3e7
    one, left_out = transform.without_tail(-40.0, 3.0 * c)
    part = part_of(one)
    if remove:
        assert part is not None
        tail = step.moment(acb(0), Part(True, one.edge, one.width)).real
        assert tail <= arb(left_out) <= 2 * arb(-40).exp()
    else:
        assert (one, left_out) == (transform, 0.0)
    t = np.array([0.0, 0.3 * c, 2.0 * c])
    line = one.line(c, t, 1e-16)
    for i, height in enumerate(t.tolist()):
        truth = step.moment(acb(c, height), part)
        holds_line(line, i, truth - 1)
        above = arb(one.beyond(c, height, float(one.shifts(c, np.array([height]))[1][0]))).exp()
        assert i == 0 or abs(truth) <= above
    assert line.error[0] <= 1e-8 * abs(float(line.log[0].real))
    log_m, upper = step.moment(acb(c), part).real.log(), arb(one.upper(c))
    assert log_m <= upper <= log_m + 1e-6 * (abs(log_m) + 1e-6)


@pytest.mark.one_in(4)
@each
@each_way
def test_nothing_beyond_a_height_is_above_its_bound(
    sizes: tuple[float, ...], weights: tuple[float, ...], remove: bool
) -> None:
    transform, step = both(sizes, weights, remove)
    for c, height in ((0.5, 4.0), (3.0, 12.0)):
        shift = float(transform.shifts(c, np.array([height]))[1][0])
        truths = [abs(step.moment(acb(c, x * height))) for x in (1.0, 1.01, 2.0)]
        for one in (shift, 0.25 * min(math.pi / transform.m, 6.0)):
            bound = arb(transform.beyond(c, height, one)).exp()
            assert all(truth <= bound for truth in truths)


def test_the_argument_rises_with_x_and_the_modulus_is_at_least_the_cosine_s_share() -> None:
    transform, _ = both(*MIXTURES[1], True)
    x = np.linspace(-12.0, 16.0, 400)
    for a in np.linspace(0.01, 0.99, 23) * math.pi / transform.m:
        real, side, scale = transform.rotated(x, np.array([a]))
        argument = np.arctan2(side[0], real[0])
        assert np.all(np.diff(argument) >= -1e-12)
        assert np.all(argument >= 0.0)
        assert np.all(argument <= transform.m * a + 1e-12)
        modulus = 0.5 * np.log(real[0] ** 2 + side[0] ** 2) + scale
        log_r = transform.about_log_r(x)
        assert np.all(modulus <= log_r + 1e-12)
        assert np.all(modulus >= log_r + math.log(math.cos(0.5 * transform.m * a)) - 1e-12)


def test_a_mixture_with_one_size_and_0_has_the_sampled_gaussian_s_transform() -> None:
    ours, _ = both((0.0, 0.75), (0.9, 0.1), True)
    theirs = tb.Gaussian(4.0 / 3.0).subsampled(0.1).pair(Direction.REMOVE).transform()
    assert theirs is not None
    t = np.array([0.0, 3.0])
    one, other = ours.line(2.0, t, TOLERANCE), theirs.line(2.0, t, TOLERANCE)
    assert np.all(np.abs(np.exp(one.log) - np.exp(other.log)) <= 1e-13)


def test_a_sampled_mixture_is_a_mixture() -> None:
    mixture = tb.MixtureOfGaussians(1.0, (1.0, 2.0), (0.75, 0.25))
    plain = tb.MixtureOfGaussians(1.0, (0.0, 1.0, 2.0), (0.5, 0.375, 0.125))
    for delta in (1e-3, 1e-12):
        one = (mixture.subsampled(0.5) * 30).epsilon(delta, rtol=1e-9)
        assert one.overlaps((plain * 30).epsilon(delta, rtol=1e-9))


@pytest.mark.parametrize("delta", [1e-4, 1e-9])
def test_both_engines_agree_on_mixtures(delta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    composition = tb.MixtureOfGaussians(2.0, (0.0, 1.0, 3.0), (0.9, 0.08, 0.02)) * 200
    lines = composition.answer(delta=delta, rtol=1e-9)
    assert lines.reached
    assert lines.method == "saddle-point"
    monkeypatch.setattr(MixtureTransform, "between", lambda *_: None)
    buckets = tb.MixtureOfGaussians(2.0, (0.0, 1.0, 3.0), (0.9, 0.08, 0.02)) * 200
    other = buckets.answer(delta=delta)
    assert other.method == "buckets"
    assert other.bounds.overlaps(lines.bounds)


# ------------------------------------------------------------------- weighted sums


@pytest.mark.one_in(3)
@each_way
@pytest.mark.parametrize("c", [1e-3, 2.0])
def test_a_union_of_pairs_has_the_weighted_sum_of_their_transforms(remove: bool, c: float) -> None:
    (one, exact_one), (two, exact_two) = both(*MIXTURES[0], remove), both(*MIXTURES[2], remove)
    union = WeightedTransform(((0.25, one), (0.75, two)), 0.0)
    t = np.array([0.0, 0.7, 5.0])
    line = union.line(c, t, TOLERANCE)
    for i, height in enumerate(t.tolist()):
        s = acb(c, height)
        truth = exact_one.moment(s, less=True) / 4 + exact_two.moment(s, less=True) * 3 / 4
        holds_line(line, i, truth)
    s = acb(c)
    real = (exact_one.moment(s, less=True) / 4 + exact_two.moment(s, less=True) * 3 / 4).real
    assert arb(union.upper(c)) >= real.log1p()
    bound = arb(union.beyond(c, 5.0, 0.0)).exp()
    far = acb(c, 7.0)
    assert abs(exact_one.moment(far) / 4 + exact_two.moment(far) * 3 / 4) <= bound
    rough = union.rough(np.array([c, c * (1 + 1e-4)]))
    assert abs(rough.value[0] - float(real.log1p())) <= 1e-4 * float(real.log1p())
    rise = (rough.value[1] - rough.value[0]) / (c * 1e-4)
    assert rise == pytest.approx(rough.slope[0], rel=2e-2)


def test_a_union_splits_off_the_rare_losses_of_its_parts() -> None:
    one, _ = both((0.0, 1.0, 2.0), (0.999, 0.0009, 0.0001), True)
    two, _ = both(*MIXTURES[3], True)
    union = WeightedTransform(((0.5, one), (0.5, two)), 0.0)
    split = union.rare_split(8.0)
    assert split is not None
    t = np.array([0.0, 1.0])
    whole, bulk, rare = (part.line(8.0, t, TOLERANCE) for part in (union, *split))
    together = np.exp(bulk.log) + np.exp(rare.log)
    off = sum(np.abs(np.exp(x.log)) * np.expm1(x.error) for x in (whole, bulk, rare))
    assert np.all(np.abs(together - np.exp(whole.log)) <= off + 1e-14 * np.abs(together))
