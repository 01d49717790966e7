"""One epoch of random allocation of a Gaussian step, against oracles that share nothing."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from flint import acb, arb, ctx

import tightbudget as tb
from tightbudget.engine.question import DeltaAt, EpsilonAt
from tightbudget.mechanisms.allocated_line import AllocationLine
from tightbudget.mechanisms.allocated_tails import _log_beta_most, discontinuity, excess_beside_cut
from tightbudget.mechanisms.allocated_transform import log_transform, upper_transform
from tightbudget.mechanisms.allocated_wide import _cut_of, _log_transform, excess_of_cut_ratios
from tightbudget.mechanisms.gaussian import GaussianPair
from tightbudget.pairs.direction import Direction

REMOVE, ADD = Direction.REMOVE, Direction.ADD

# (sigma, steps, epsilon, direction, delta): 15 digits from inverting the transform in 40-digit
# arithmetic with two independent sets of parameters
KNOWN = [
    (1.0, 1000, 0.1, REMOVE, 1.48206902727411e-4),
    (1.0, 1000, 0.1, ADD, 9.28339204910396e-5),
    (1.0, 1000, 0.5, REMOVE, 1.72748248018721e-10),
    (1.0, 1000, 1.0, REMOVE, 2.26975976030216e-13),
    (1.0, 1000, 2.0, REMOVE, 7.53409609908851e-18),
    (0.5, 1000, 0.1, REMOVE, 4.21554252514396e-2),
    (0.5, 1000, 0.1, ADD, 3.19287465001870e-2),
    (0.5, 1000, 0.5, REMOVE, 5.94321706060277e-3),
    (0.5, 1000, 0.5, ADD, 9.19788639516078e-6),
    (0.5, 1000, 1.0, REMOVE, 1.27693169784961e-3),
    (0.5, 1000, 1.0, ADD, 2.08812271438404e-18),
    (0.5, 1000, 2.0, REMOVE, 1.24904234597915e-4),
    (2.0, 100, 0.1, REMOVE, 6.73717984269443e-4),
    (2.0, 100, 0.1, ADD, 6.38451005089043e-4),
    (2.0, 100, 0.5, REMOVE, 4.13638753955221e-17),
    (2.0, 100, 0.5, ADD, 4.87194815070174e-24),
    (2.0, 100, 1.0, REMOVE, 2.53744463479216e-25),
    (1.0, 10000, 0.1, REMOVE, 1.08448496707899e-11),
    (1.0, 10000, 0.1, ADD, 4.81370819265476e-18),
    (1.0, 10000, 1.0, REMOVE, 1.05983771825585e-21),
    (1.0, 10000, 2.0, REMOVE, 1.84531679944761e-27),
    (0.7, 200, 0.1, REMOVE, 3.37606466382197e-2),
    (0.7, 200, 0.1, ADD, 2.90283688638718e-2),
    (0.7, 200, 0.5, REMOVE, 1.49710207632816e-3),
    (0.7, 200, 0.5, ADD, 2.10023862454737e-5),
    (0.7, 200, 1.0, REMOVE, 1.07305864189510e-4),
    (0.7, 200, 1.0, ADD, 9.79925443726925e-15),
    (0.7, 200, 2.0, REMOVE, 2.07777357519521e-6),
]
# (sigma, steps, direction, delta, epsilon): to all digits given
EPSILONS = [
    (1.0, 1000, REMOVE, 1e-5, 0.1388466),
    (1.0, 1000, REMOVE, 1e-6, 0.1717287),
    (1.0, 1000, REMOVE, 1e-8, 0.29320),
    (1.0, 1000, REMOVE, 1e-10, 0.5342),
    (1.0, 1000, ADD, 1e-5, 0.1262937),
    (1.0, 1000, ADD, 1e-8, 0.1881479),
    (2.0, 100, REMOVE, 1e-5, 0.1731917),
    (2.0, 100, REMOVE, 1e-8, 0.2592418),
]


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 220
    yield
    ctx.prec = before


def delta(sigma: float, steps: int, epsilon: float, direction: Direction) -> tuple[float, float]:
    found = AllocationLine(1.0 / sigma, steps).closed_delta(epsilon, direction)
    assert found is not None
    return found


# ------------------------------------------------------------------------- oracles


def phi(z: acb) -> acb:
    return (-z * z / 2).exp() / (2 * acb.pi()).sqrt()


def transform(m: float, s: acb) -> acb:
    """E[e^(-s W)] on the line of z where s W is real and positive, for every arg s."""
    alpha = s.arg() / arb(m)

    def integrand(z: acb, analytic: bool) -> acb:
        z = z - acb(0, 1) * alpha
        return phi(z) * (-s * (z * arb(m) - arb(m) ** 2 / 2).exp()).exp()

    # |e^(-s W)| <= 1 on the line; beyond 30 the density leaves 1e-190, times e^(alpha^2/2)
    return acb.integral(integrand, -30, 30) + acb(arb(0, 1e-60), arb(0, 1e-60))


def two_steps(mean: float, k: arb, *, shortfall: bool) -> arb:
    """E[(K - R)+] or E[(R - K)+] of two steps: an integral over z of an option on the other W."""
    m = arb(mean)

    def normal(x: acb) -> acb:
        return (-x / acb(2).sqrt()).erfc() / 2

    def option(strike: acb) -> acb:
        d = (strike.log() + m * m / 2) / m
        if shortfall:
            return strike * normal(d) - normal(d - m)
        return normal(m - d) - strike * normal(-d)

    def integrand(z: acb, analytic: bool) -> acb:
        strike = 2 * acb(k) - (m * z - m * m / 2).exp()
        if not strike.real > 0:
            return acb("nan")
        return phi(z) * option(strike)

    end = ((2 * k).log() + m * m / 2) / m  # there the strike is 0
    cuts = [arb(-30)] + [end - arb(2) ** -i for i in range(-4, 60)]
    cuts = [cuts[0]] + [x for x in cuts[1:] if x > -30]
    total = sum((acb.integral(integrand, a, b).real for a, b in itertools.pairwise(cuts)), arb(0))
    if shortfall:
        # the rest: strikes below 2 K e^(m z) times what is left of z
        return (total + arb(0, 1e-90) + phi(acb(end)).real * 0) / 2
    # beyond `end` every R is above K: E[W1 - K'] in closed form
    rest = normal(acb(m - end)).real - (2 * k - 1) * normal(acb(-end)).real
    return (total + rest) / 2


# ---------------------------------------------------------------------------- truth


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", KNOWN, ids=str)
def test_known_values_lie_inside_to_nine_digits(case):
    sigma, steps, epsilon, direction, truth = case
    lower, upper = delta(sigma, steps, epsilon, direction)
    assert lower <= truth * (1 + 3e-15)
    assert truth * (1 - 3e-15) <= upper
    assert upper - lower <= (1e-9 if sigma < 2.0 else 2e-9) * truth


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", EPSILONS, ids=str)
def test_known_epsilons(case):
    sigma, steps, direction, target, epsilon = case
    half = 1e-5 if epsilon == 0.29320 else 0.5 * 10.0 ** -(len(str(epsilon)) - 2) * 1.01
    assert delta(sigma, steps, epsilon - half, direction)[0] > target
    assert delta(sigma, steps, epsilon + half, direction)[1] < target


@pytest.mark.one_in(3)
@pytest.mark.parametrize("m", [0.2, 1.0, 10 / 3])
@pytest.mark.parametrize("angle", [0.0, 0.9, 1.5, 2.4, 3.1])
def test_the_transform_on_every_sheet(m, angle):
    size = np.array([1e-6, 1e-3, 0.1])
    s = size * np.exp(1j * angle)
    logs = log_transform(m, s, np.full(3, angle))
    for i in range(3):
        exact = acb(float(s[i].real), float(s[i].imag))
        truth = transform(m, exact).log() + exact
        got = acb(float(logs.value[i].real), float(logs.value[i].imag))
        assert abs(truth - got) <= arb(float(logs.error[i]))
        # what a million steps multiply is small: relative to s^2, times the digits of the angle
        # the computed double s is not the exact one: s e^(i angle) is what the error is about
        lost = math.exp(0.5 * (max(angle - 0.87, 0.0) / m) ** 2)
        assert logs.error[i] <= 1e-11 * lost * math.exp(m * m) * size[i] ** 2 + 1e-14 * size[i]


@pytest.mark.parametrize("m", [0.05, 1.0, 10 / 3])
def test_the_upper_bound_of_the_transform(m):
    s = np.array([1e-6, 1e-3, 0.3, 3.0, 30.0])
    for x, bound in zip(s, upper_transform(m, s), strict=True):
        truth = transform(m, acb(float(x))).real
        assert truth <= arb(float(bound))
        assert arb(float(bound)) <= 3 * truth


@pytest.mark.parametrize("m", [0.5, 1.0, 10 / 3])
def test_the_jump_across_the_cut(m):
    r = np.array([0.02, 0.1]) * math.exp(0.5 * m * m - 1.0) / m**2
    value, error = discontinuity(m, r)
    ctx.prec = 500
    for i in range(r.size):
        alpha = arb.pi() / arb(m)

        def integrand(z: acb, analytic: bool, i: int = i, alpha: arb = alpha) -> acb:
            z = z - acb(0, 1) * alpha
            w = (z * arb(m) - arb(m) ** 2 / 2).exp()
            return phi(z) * (acb(float(r[i])) * w).exp()

        truth = -acb.integral(integrand, -40, 40).imag
        assert abs(arb(float(value[i])) / truth - 1) <= arb(float(error[i]))
        assert error[i] < 1e-11


@pytest.mark.parametrize("m", [0.1, 0.5, 1.0, 10 / 3])
def test_the_bound_of_the_jump_is_above_it_beyond_the_range_of_doubles_too(m):
    for r in np.array([0.02, 0.1]) * math.exp(0.5 * m * m - 1.0) / m**2:
        bounds = [_log_beta_most(m, 0.9 * r, 1.1 * r, float(r), high) for high in (0.0, 0.5, 0.9)]
        assert bounds == sorted(bounds)
        assert all(math.isfinite(bound) for bound in bounds)
        value, error = discontinuity(m, np.array([r]))
        if error[0] < 1e-6:
            assert bounds[0] >= math.log(value[0] * (1.0 - error[0]))


@pytest.mark.one_in(6)
@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("k", [0.25, 1.125, 8.0])
def test_two_steps_are_one_integral(sigma, k):
    line = AllocationLine(1.0 / sigma, 2)
    for found, shortfall in (
        (line.shortfall(np.array([k])), True),
        (line.excess(np.array([k])), False),
    ):
        truth = two_steps(1.0 / sigma, arb(k), shortfall=shortfall)
        assert truth.rel_accuracy_bits() > 36
        assert arb(float(found.lower[0])) <= truth <= arb(float(found.upper[0]))
        assert found.upper[0] - found.lower[0] <= 1e-9 * found.upper[0] + 1e-16


@pytest.mark.parametrize(("sigma", "k", "width"), [(20.0, 1.125, 1e-9), (5.0, 1.5, 1e-6)])
def test_two_steps_of_wide_noise(sigma, k, width):
    found = AllocationLine(1.0 / sigma, 2).excess(np.array([k]))
    truth = two_steps(1.0 / sigma, arb(k), shortfall=False)
    assert truth.rel_accuracy_bits() > 36
    assert arb(float(found.lower[0])) <= truth <= arb(float(found.upper[0]))
    assert found.upper[0] - found.lower[0] <= width * found.upper[0]


@pytest.mark.parametrize(
    "case", [(5.0, 100, 0.05), (20.0, 1000, 0.003), (3.0, 10000, 0.01)], ids=str
)
def test_the_cut_ratio_agrees_with_the_put(case):
    sigma, steps, epsilon = case
    k1 = math.expm1(epsilon)
    from_put = AllocationLine(1.0 / sigma, steps)._read(np.array([k1]), np.zeros(1), power=2)
    lower, upper = excess_of_cut_ratios(1.0 / sigma, steps, k1, 0.0)
    assert lower <= from_put.upper[0] - k1 + 1e-15
    assert from_put.lower[0] - k1 - 1e-15 <= upper
    assert upper - lower <= 1e-9 * upper


def cut_transform(m: float, far: float, s: complex) -> acb:
    """ln psi(s) + s of W with 0 in its place above the one place of the cut."""
    end, point = arb(_cut_of(m, far)), acb(s.real, s.imag)
    below = acb.integral(lambda z, _: phi(z) * (-point * (m * z - arb(m) ** 2 / 2).exp()).exp(),
                         -30, acb(end))  # fmt: skip
    above = (end / arb(2).sqrt()).erfc() / 2
    return (below + above).log() + point


@pytest.mark.parametrize(("m", "far", "c"), [(0.2, 9.5, 0.5), (0.2, 9.5, 3.0), (0.5, 13.0, 0.01)])
def test_every_line_has_the_ratio_cut_at_the_same_place(m, far, c):
    heights = c * np.array([0.0, 0.3, 2.0])
    for at in (heights, heights[:1], heights[2:]):  # a rule's nodes depend on its company
        s = -c + 1j * at
        logs = _log_transform(m, far, s)
        assert np.all(logs.error < 1e-3)
        for point, value, error in zip(s, logs.value, logs.error, strict=True):
            truth = cut_transform(m, far, complex(point))
            off = abs((truth - acb(float(value.real), float(value.imag))).exp() - 1)
            assert off <= np.expm1(error)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 5.0])
def test_one_step_is_the_gaussian_itself(sigma):
    for epsilon in (0.0, 0.3, 4.0):
        truth = GaussianPair(1.0 / sigma).closed_delta(epsilon)
        assert truth is not None
        for direction in (REMOVE, ADD):
            lower, upper = delta(sigma, 1, epsilon, direction)
            assert lower <= truth[1]
            assert truth[0] <= upper
            assert upper - lower <= 1e-9 * upper + 1e-299


def test_draws_lie_in_a_confidence_band():
    random = np.random.default_rng(5)
    sigma, steps, n = 0.8, 20, 40_000
    r = np.mean(np.exp(random.normal(size=(n, steps)) / sigma - 0.5 / sigma**2), axis=1)
    for epsilon in (0.1, 0.5):
        for direction, losses in (
            (REMOVE, np.maximum(r - math.exp(epsilon), 0.0)),
            (ADD, np.maximum(1.0 - math.exp(epsilon) * r, 0.0)),
        ):
            lower, upper = delta(sigma, steps, epsilon, direction)
            band = 5.0 * float(np.std(losses)) / math.sqrt(n)
            assert lower - band <= float(np.mean(losses)) <= upper + band


# ----------------------------------------------------------------------------- laws


@pytest.mark.one_in(4)
@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("direction", [REMOVE, ADD])
def test_delta_falls_with_more_steps(sigma, direction):
    found = [delta(sigma, steps, 0.1, direction) for steps in (1, 2, 7, 60, 3000)]
    for more, less in itertools.pairwise(found):
        assert less[0] <= more[1]


def test_many_steps_of_wide_noise_are_a_gaussian():
    # the central limit: R is about N(1, (e^(m^2) - 1) / t), and E(R - 1)+ a density's height
    sigma, steps = 20.0, 10**6
    lower, upper = delta(sigma, steps, 0.0, REMOVE)
    limit = math.sqrt(math.expm1(sigma**-2) / steps / (2.0 * math.pi))
    assert abs(0.5 * (lower + upper) / limit - 1.0) < 1e-4
    assert upper - lower <= 1e-9 * upper


@pytest.mark.parametrize("case", [(1.0, 1000), (0.5, 50), (3.0, 30)], ids=str)
def test_both_distribution_functions_are_slopes(case):
    sigma, steps = case
    line = AllocationLine(1.0 / sigma, steps)
    k = np.array([0.7, 0.9, 0.97, 1.0, 1.03, 1.1, 1.3])
    shortfall, q, p = line.shortfall(k), line.cdf_q(k), line.cdf_p(k)
    chord_upper = (shortfall.upper[1:] - shortfall.lower[:-1]) / np.diff(k) * (1 + 1e-12)
    chord_lower = (shortfall.lower[1:] - shortfall.upper[:-1]) / np.diff(k) * (1 - 1e-12)
    assert np.all(q.lower[:-1] <= chord_upper)
    assert np.all(chord_lower <= q.upper[1:])
    assert np.all(p.lower <= q.upper * k)
    assert np.all(q.upper - q.lower <= 1e-8)
    # P has R times the mass of Q: by parts, P(a < R <= b) is between a and b times Q's
    p_mass, q_mass = np.diff(p.lower), np.diff(q.lower)
    assert np.all(p_mass <= k[1:] * q_mass + 1e-8)
    assert np.all(p_mass >= k[:-1] * q_mass - 1e-8)


@pytest.mark.parametrize("case", [(1.0, 1000, 0.1), (0.5, 1000, 0.1), (1.0, 5, 1.0)], ids=str)
def test_both_ways_to_the_call_agree(case):
    sigma, steps, epsilon = case
    line = AllocationLine(1.0 / sigma, steps)
    k1 = math.expm1(epsilon)
    from_put = line._read(np.array([k1]), np.zeros(1), power=2)
    lower, upper = excess_beside_cut(1.0 / sigma, steps, k1, 0.0)
    assert lower <= from_put.upper[0] - k1 + 1e-15
    assert from_put.lower[0] - k1 - 1e-15 <= upper
    assert upper - lower <= 1e-9 * upper


def test_the_hard_corner():
    # heavy tails and a million steps: single ratios decide at e^11, none of the others matters
    for epsilon in (0.5, 11.0, 27.0):
        lower, upper = delta(0.3, 10**6, epsilon, REMOVE)
        assert 0 < lower <= upper <= lower * (1 + 1e-9)


def test_answers_do_not_depend_on_their_company():
    line = AllocationLine(1.0, 1000)
    k = np.array([1.3, 0.9, 1.0, 0.95])
    together = line.shortfall(k)
    for i in range(k.size):
        alone = line.shortfall(k[i : i + 1])
        assert alone.lower[0] == together.lower[i]
        assert alone.upper[0] == together.upper[i]


def test_beyond_the_doubles_nothing_is_said():
    assert AllocationLine(1.0, 10).closed_delta(601.0, REMOVE) is None
    assert AllocationLine(1.0, 10).closed_delta(math.nan, REMOVE) is None


# by two parameter sets of a line in plain doubles, six digits
@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("sigma", "steps", "delta", "exact"),
    [
        (1.0, 1000, 1e-5, 0.1388466), (1.0, 1000, 1e-6, 0.1717287), (1.0, 1000, 1e-8, 0.2932039),
        (2.0, 100, 1e-5, 0.1731917), (2.0, 100, 1e-8, 0.2592418),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rtol", [1e-4, 1e-7])
def test_an_epsilon_is_where_delta_is_crossed(
    sigma: float, steps: int, delta: float, exact: float, rtol: float
) -> None:
    line = AllocationLine(1.0 / sigma, steps)
    found = line.epsilon(delta, rtol)
    assert found is not None
    assert found.relative_gap <= rtol
    assert found.lower <= exact + 5e-7
    assert found.upper >= exact - 5e-7
    before, after = line.delta(found.lower, 0.0), line.delta(found.upper, 0.0)
    assert before is not None
    assert after is not None
    assert before.upper > delta >= after.lower


def test_an_epsilon_of_no_epoch_or_of_a_large_delta() -> None:
    line = AllocationLine(1.0, 100)
    assert line.epsilon(0.5, 1e-6) == tb.Bounds(0.0, 0.0)
    assert line.delta(36.5, 1e-6) is None
    assert AllocationLine(40.0, 3).delta(1.0, 1e-4) is None
    assert tb.Gaussian(0.2).allocated(3).by_formula(EpsilonAt(1e-5), 1e-4) is None
    assert tb.Gaussian(0.02).allocated(3).by_formula(DeltaAt(0.1), 1e-4) is None


@pytest.mark.slow
def test_one_epoch_is_answered_by_its_formula() -> None:
    epoch = tb.Gaussian(1.0).allocated(1000)
    for run in (epoch, epoch * 1):
        assert run.answer(delta=1e-5).method == "closed form"
        assert run.epsilon(1e-5, rtol=1e-7).relative_gap <= 1e-7
        assert run.explain(epsilon=0.1).engine == "closed form"
    for other in (epoch * 2, epoch + tb.Gaussian(9.0), tb.Gaussian(1.0).allocated(20, each_in=2)):
        assert other.by_formula(DeltaAt(0.1), 1e-4) is None
    with pytest.raises(tb.PrecisionError, match=r"delta = 1e-05 .* rounding of doubles"):
        epoch.epsilon(1e-5, rtol=1e-13)
