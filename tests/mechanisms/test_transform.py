"""Moment transforms: each is within its stated error of the exact one, at any complex s.

The exact values are integrals that Arb encloses by itself, at a fixed sample of parameters
from the whole range.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import acb, arb, ctx
from tests.cases import CASES, Case
from tests.integrals import Part, Step

import tightbudget as tb
from tightbudget.mechanisms import Mechanism
from tightbudget.mechanisms.gaussian_integrand import MOST_NESTED
from tightbudget.mechanisms.gaussian_transform import MixedTransform, NormalTransform
from tightbudget.mechanisms.shuffled_above import above_shuffled
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.transform import Line, Transform

TOLERANCE = 1e-24


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 160
    yield
    ctx.prec = before


def sample(n: int) -> list[MixedTransform]:
    """m in 0.002 ... 8 and q in 1e-9 ... 0.999, both directions, spread evenly in logarithms."""
    found = []
    for i in range(n):
        a, b = (
            math.modf(0.5 + i * 0.7548776662466927)[0],
            math.modf(0.5 + i * 0.5698402909980532)[0],
        )
        m = 0.002 * 4000.0**a
        q = 1e-9 * 10.0 ** (9 * b) if i % 3 else 1.0 - 10.0 ** (-3 * b)
        found.append(MixedTransform(m, min(q, 0.999), bool(i % 2)))
    return found


def exact(transform: MixedTransform) -> Step:
    return Step(Fraction(transform.m), Fraction(transform.q), transform.remove)


def part_of(transform: MixedTransform) -> Part | None:
    if not transform.part:
        return None
    return Part(transform.part == "rare", transform.edge, transform.width)


def heights(transform: Transform, c: float) -> np.ndarray:
    """From the real axis to where |M| is small, or to where a value is dear."""
    spread = math.sqrt(max(float(transform.rough(np.array([c])).curvature[0]), 1e-300))
    t = np.array([0.0, 0.1, 1.0, 6.0]) / max(spread, 0.02 / (1.0 + c))
    return np.array([x for x in t.tolist() if transform.nodes(c, x, TOLERANCE) < 3000])


def holds_line(line: Line, i: int, truth: acb) -> None:
    """The definition for one run, and for every number of runs at once.

    |e^(k d) - 1| <= e^(k |d|) - 1, so for all of them |log - ln M| <= error suffices.
    """
    log = acb(float(line.log[i].real), float(line.log[i].imag))
    error = arb(float(line.error[i]))
    assert abs(truth + 1 - log.exp()) <= abs(log.exp()) * error.expm1()
    if error < 0.1:
        assert abs(log - truth.log1p()) <= error


def peak_is_inside(transform: MixedTransform, c: float) -> bool:
    """Whether e^(c L) moves the outputs by some standard deviations only, so that M is a double."""
    return c * transform.m < 30.0


grid = pytest.mark.parametrize("c", [1e-3, 0.3, 4.0, 40.0, 700.0])


@pytest.mark.one_in(4)
@grid
def test_a_line_of_m_is_within_its_error(c: float) -> None:
    for transform in sample(8):
        if not peak_is_inside(transform, c):
            continue
        t = heights(transform, c)
        line, step = transform.line(c, t, TOLERANCE), exact(transform)
        for i, height in enumerate(t.tolist()):
            holds_line(line, i, step.moment(acb(c, height), less=True))
        # ... which is a rounding error of M - 1, not of M
        size = abs(float(step.moment(acb(c, 0.0), less=True).real))
        assert line.error[0] <= 1e-11 * min(size, 1.0 + c * transform.m) + 10 * TOLERANCE


@pytest.mark.one_in(4)
@pytest.mark.parametrize("c", [0.1, 1e4, 1e9])
@pytest.mark.parametrize("log_mass", [-3.0, -20.0, -90.0, -640.0])
def test_what_is_left_out_is_a_tail_of_this_mass(log_mass: float, c: float) -> None:
    cut = 0
    for transform in sample(12):
        without, left_out = transform.without_tail(log_mass, c)
        if without is transform:
            assert left_out == 0.0
            assert not transform.remove
            continue
        cut += 1
        assert isinstance(without, MixedTransform)
        assert without.part == "bulk"
        lost = exact(transform).moment(acb(0), Part(True, without.edge, without.width)).real
        assert lost <= arb(left_out)
        # a step of 1/16 to the left leaves out too much
        near = exact(transform).moment(acb(0), Part(True, without.edge - 0.0625, without.width))
        assert arb(left_out) <= arb(log_mass).exp() * (1 + arb(1e-6)) < near.real * (1 + arb(1e-3))
    assert cut > 4


@pytest.mark.parametrize(
    ("sigma", "q", "epsilon"),
    [(1.45, 2.08e-5, 0.212), (0.8, 0.01, 3.0), (5.0, 0.3, 0.1), (0.5, 1e-8, 1e-4)],
)
def test_a_plan_knows_the_delta_of_one_step(sigma: float, q: float, epsilon: float) -> None:
    known = (tb.Gaussian(sigma).subsampled(q) * 1).delta(epsilon)
    transform = MixedTransform(1.0 / sigma, q, True)
    assert transform.about_log_delta(epsilon) == pytest.approx(math.log(known.upper), abs=1e-6)
    assert transform.about_log_delta(0.0) == -math.inf
    assert MixedTransform(1.0 / sigma, q, False).about_log_delta(epsilon) == -math.inf
    assert transform.split(2.0)[0].about_log_delta(epsilon) == -math.inf
    assert NormalTransform(1.0 / sigma).about_log_delta(epsilon) == -math.inf


def test_no_tail_is_left_out_where_none_is_known() -> None:
    bulk, rare = MixedTransform(1.0, 0.25, True).split(2.0)
    for transform in (NormalTransform(1.0), MixedTransform(1.0, 0.25, False), bulk, rare):
        assert transform.without_tail(-20.0, 1.0) == (transform, 0.0)


@pytest.mark.one_in(4)
@grid
@pytest.mark.parametrize(("edge", "width"), [(1.5, 0.25), (4.0, 0.25), (3.0, 0.125)])
def test_lines_of_both_parts_are_within_their_errors(c: float, edge: float, width: float) -> None:
    for transform in sample(5):
        if not peak_is_inside(transform, c):
            continue
        t, step = heights(transform, c)[::2], exact(transform)
        found = []
        for part in transform.split(edge, width):
            line = part.line(c, t, TOLERANCE)
            found.append(line)
            for i, height in enumerate(t.tolist()):
                holds_line(line, i, step.moment(acb(c, height), part_of(part)) - 1)
            assert line.error[0] <= 1e-9
        # bulk + rare = whole
        whole = transform.line(c, t, TOLERANCE)
        together = np.exp(found[0].log) + np.exp(found[1].log)
        off = sum(np.abs(np.exp(x.log)) * np.expm1(x.error) for x in (*found, whole))
        assert np.all(np.abs(together - np.exp(whole.log)) <= off + 1e-15 * np.abs(together))


@pytest.mark.parametrize(("m", "q", "c"), [(0.125, 0.968, 40.0), (0.05, 0.999, 100.0)])
def test_sampling_almost_always_keeps_its_digits(m: float, q: float, c: float) -> None:
    transform = MixedTransform(m, q, False)
    line = transform.line(c, np.zeros(1), TOLERANCE)
    holds_line(line, 0, exact(transform).moment(acb(c), less=True))
    assert line.error[0] <= 1e-9


@pytest.mark.one_in(3)
@grid
@pytest.mark.parametrize(("edge", "width"), [(None, 0.25), (3.0, 0.25), (3.0, 0.125)])
def test_upper_is_above_and_close_and_rough_is_close(
    c: float, edge: float | None, width: float
) -> None:
    for transform in sample(8):
        if not peak_is_inside(transform, c):
            continue
        step = exact(transform)
        for part in (transform,) if edge is None else transform.split(edge, width):
            moment = step.moment(acb(c), part_of(part), less=part.part == "").real
            truth = moment.log1p() if part.part == "" else moment.log()
            upper, size = part.upper(c), 1.0 + abs(float(truth))
            assert arb(upper) >= truth
            assert arb(upper) - truth <= arb(1e-6 * size)
            rough = part.rough(np.array([c, c * (1 + 1e-4)]))
            assert abs(rough.value[0] - float(truth)) <= 1e-4 * abs(float(truth)) + 1e-14
            # and its slope is the slope of its value
            rise = (rough.value[1] - rough.value[0]) / (c * 1e-4)
            assert rise == pytest.approx(rough.slope[0], rel=2e-2, abs=1e-10 / c)


@pytest.mark.parametrize("edge", [None, 3.0, 26.0])
def test_a_plan_of_many_c_tells_each_as_a_plan_of_it_alone(edge: float | None) -> None:
    for m, q in ((0.0926, 0.00136), (0.5, 1e-6), (2.0, 1e-9)):
        whole = MixedTransform(m, q, True)
        for one in (whole,) if edge is None else whole.split(edge, 0.125):
            c = np.geomspace(1e-3 / m, one.farthest, 28)
            together = one.rough(c)
            for i in range(0, c.size, 3):
                alone = one.rough(c[i : i + 1])
                for many, found in zip(together, alone, strict=True):
                    seen = np.isfinite(found[0]) and np.isfinite(many[i])
                    assert not seen or many[i] == pytest.approx(found[0], rel=1e-6, abs=1e-9)


@pytest.mark.one_in(4)
@grid
@pytest.mark.parametrize(("edge", "width"), [(None, 0.25), (3.0, 0.25), (3.0, 0.125)])
def test_nothing_beyond_a_height_is_above_its_bound(
    c: float, edge: float | None, width: float
) -> None:
    for transform in sample(6 if edge is None else 3):
        if not peak_is_inside(transform, c):
            continue
        step, height = exact(transform), float(heights(transform, c)[-1])
        for part in (transform,) if edge is None else transform.split(edge, width):
            _, shifts = part.shifts(c, np.array([height]))
            truths = [
                abs(step.moment(acb(c, factor * height), part_of(part)))
                for factor in (1.0, 1.01, 2.0)
            ]
            for shift in (float(shifts[0]), 0.25 * min(math.pi / transform.m, 6.0)):
                bound = arb(part.beyond(c, height, shift)).exp()
                assert all(truth <= bound for truth in truths)


def test_a_bound_beyond_a_height_is_worth_something() -> None:
    # one run at sigma 1, q 1/4: |M| falls by a factor of 30 where the tilted loss is that wide
    transform = MixedTransform(1.0, 0.25, True)
    t = np.array([20.0])
    about, shifts = transform.shifts(3.0, t)
    bound = transform.beyond(3.0, 20.0, float(shifts[0]))
    assert bound < transform.upper(3.0) - 3.0
    assert bound == pytest.approx(float(about[0]), abs=1e-3)


# ------------------------------------------------------------------------- Gaussians


@pytest.mark.parametrize("m", [1e-6, 0.02, 1.0, 50.0])
@pytest.mark.parametrize("c", [1e-3, 1.0, 700.0])
def test_the_normal_transform(m: float, c: float) -> None:
    transform = NormalTransform(m)
    t = np.array([0.0, 0.5, 3.0, 6.0]) / m
    line = transform.line(c, t, TOLERANCE)
    ctx.prec = 2000  # e^(c^2 m^2) is no double, but a ball
    for i, height in enumerate(t.tolist()):
        s = acb(c, height)
        truth = s * (s + 1) * arb(m) ** 2 / 2
        log = acb(float(line.log[i].real), float(line.log[i].imag))
        assert abs(log - truth) <= arb(float(line.error[i]))
        assert line.error[i] <= 1e-14 * (1.0 + float(abs(s)) ** 2) * (m * m + m)
        assert arb(transform.beyond(c, height, 0.0)) >= truth.real
    assert arb(transform.upper(c)) >= arb(c) * (c + 1) * arb(m) ** 2 / 2
    rough = transform.rough(np.array([c]))
    assert rough.value[0] == pytest.approx(transform.upper(c), rel=1e-12)
    assert rough.slope[0] == pytest.approx(m * m * (c + 0.5), rel=1e-12)
    assert rough.curvature[0] == pytest.approx(m * m, rel=1e-12)
    assert transform.nodes(c, 1.0, TOLERANCE) == 1
    assert transform.farthest == math.inf


def test_a_gaussian_is_the_limit_of_sampling_almost_always() -> None:
    t = np.array([0.0, 1.0, 3.0])
    almost = MixedTransform(0.5, 1.0 - 1e-9, True).line(2.0, t, TOLERANCE)
    always = NormalTransform(0.5).line(2.0, t, TOLERANCE)
    assert np.allclose(almost.log, always.log, rtol=1e-6, atol=1e-8)


# --------------------------------------------------------------------- who offers one


def family(mechanism: Mechanism) -> bool:
    """Gaussian, sampled, shuffled or for a group; unmirrored mixtures, and public coins."""
    if isinstance(mechanism, tb.TruncatedPoisson):  # a record that displaces another has no formula
        return False
    while isinstance(mechanism, tb.Subsampled | tb.Group | tb.Shuffled):
        if isinstance(mechanism, tb.Shuffled) and mechanism.steps > 1:
            base = mechanism.base
            assert isinstance(base, tb.Gaussian)
            if above_shuffled(base, mechanism.steps) is not None:  # a curve, without a formula
                return False
        mechanism = mechanism.base
    if isinstance(mechanism, tb.Allocated):  # all records in one step
        return mechanism.steps == 1 and family(mechanism.base)
    if isinstance(mechanism, tb.Batches):  # all records
        return mechanism.batch == mechanism.of and family(mechanism.base)
    if isinstance(mechanism, tb.Either):
        return family(mechanism.first) and family(mechanism.second)
    if isinstance(mechanism, tb.MixtureOfGaussians):
        return not mechanism.mirrored
    return isinstance(mechanism, tb.Gaussian)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_who_offers_a_transform(case: Case, direction: Direction) -> None:
    transform = case.mechanism.pair(direction).transform()
    if not family(case.mechanism) or case.name == "sampled-gaussian-never":
        assert transform is None
    elif isinstance(case.mechanism, tb.Gaussian):
        assert transform == NormalTransform(case.mechanism.sensitivity / case.mechanism.sigma)
    elif case.name == "sampled-gaussian-always":
        assert isinstance(transform, NormalTransform)
    elif case.name == "sampled-gaussian-very-narrow":
        assert transform is None  # m = 50
    elif not isinstance(case.mechanism, tb.Subsampled | tb.MixtureOfGaussians):
        assert transform is not None
    else:
        assert isinstance(transform, MixedTransform)
        assert transform.remove == (direction is Direction.REMOVE)
        assert transform.part == ""


@pytest.mark.parametrize("direction", Direction)
def test_sampling_what_is_sampled_multiplies_the_rates(direction: Direction) -> None:
    twice = tb.Gaussian(1.0).subsampled(0.5).subsampled(0.25).pair(direction).transform()
    assert twice == tb.Gaussian(1.0).subsampled(0.125).pair(direction).transform()
    thrice = tb.Gaussian(1.0).subsampled(0.5).subsampled(0.25).subsampled(0.5)
    assert thrice.pair(direction).transform() == MixedTransform(
        1.0, 0.0625, direction is Direction.REMOVE
    )
    # always, and never, on the way
    always = tb.Gaussian(2.0).subsampled(1.0).subsampled(0.5).pair(direction).transform()
    assert always == MixedTransform(0.5, 0.5, direction is Direction.REMOVE)


@pytest.mark.parametrize("direction", Direction)
def test_a_rate_that_is_rounded_too_often_has_no_transform(direction: Direction) -> None:
    mechanism: Mechanism = tb.Gaussian(1.0)
    for _ in range(MOST_NESTED):
        mechanism = mechanism.subsampled(0.9)
    assert isinstance(mechanism.pair(direction).transform(), MixedTransform)
    assert mechanism.subsampled(0.9).pair(direction).transform() is None


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("m", "q"), [(2e-4, 1e-9), (0.3, 0.7), (8.0, 0.999)])
@pytest.mark.parametrize("edge", [0.0, 1.5, 12.0])
def test_what_a_bulk_leaves_out(m: float, q: float, remove: bool, edge: float) -> None:
    """Also where both tails nearly agree, and where they are tiny."""
    bulk, _ = MixedTransform(m, q, remove).split(edge)
    scale = (1 + arb(bulk.width) ** 2).sqrt() * arb(2).sqrt()
    without = (arb(edge) / scale).erfc() / 2
    lifted = ((arb(edge) - arb(m)) / scale).erfc() / 2
    more = arb(q) * (lifted - without)
    mass, slope = (without + more, more) if remove else (without, -more)
    lost = bulk.left_out
    assert abs(mass - lost.mass) <= lost.mass_error <= 1e-12 * lost.mass
    assert abs(slope - lost.slope) <= lost.slope_error <= 1e-12 * q * float(without + lifted)


def test_beyond_its_range_there_is_no_transform() -> None:
    assert MixedTransform.of(8.0, 0.5, True) is not None
    assert MixedTransform.of(8.1, 0.5, True) is None
    assert MixedTransform.of(1.0, 1e-15, False) is not None
    assert MixedTransform.of(1.0, 9e-16, False) is None
    assert MixedTransform.of(1.0, 1.0, False) is None
    rare = MixedTransform(1.0, 2.0**-40, True)
    assert rare.sampled(0.25, Direction.REMOVE) == MixedTransform(1.0, 2.0**-42, True)
    assert rare.sampled(2.0**-10, Direction.REMOVE) is None
    assert rare.sampled(0.25, Direction.ADD) is None  # the transform knows one direction alone
    assert rare.split(1.0)[0].sampled(0.25, Direction.REMOVE) is None  # a part is no pair


def test_parts_stand_at_a_multiple_of_a_sixteenth() -> None:
    bulk, rare = MixedTransform(1.0, 0.25, True).split(3.14159)
    assert bulk.edge == rare.edge == 3.125
    assert (bulk.part, rare.part) == ("bulk", "rare")


@pytest.mark.parametrize(
    ("m", "q", "c", "there"), [(1.25, 1e-3, 9.0, True), (0.25, 0.25, 9.0, False)]
)
def test_a_valley_is_between_the_bulk_and_the_rare_losses(
    m: float, q: float, c: float, there: bool
) -> None:
    transform = MixedTransform(m, q, True)
    valley = transform.valley(c)
    assert (valley is not None) == there
    if valley is not None:
        # the bulk is at 0, the rare losses at (1 + c) m
        assert 0.0 < valley < (1.0 + c) * m
        x = np.array([0.0, valley, (1.0 + c) * m])
        log = (1.0 + c) * np.log(1.0 - q + q * np.exp(m * x - m * m / 2)) - x * x / 2
        assert log[1] < min(log[0], log[2])
    assert MixedTransform(m, q, False).valley(c) is None
