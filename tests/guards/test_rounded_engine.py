"""Laws of the saddle-point engine, of readings and of theorems: each bound keeps all its parts.

As in ``test_rounded_values.py``, they compare with ball arithmetic so closely that a line that is
turned, a million units the wrong way, makes one fail: `python -m tests.guards.sweep` finds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx

from tightbudget.engine.readings import gaussian_dp, probabilistic_dp, tradeoff
from tightbudget.engine.readings.tradeoff import _Sample
from tightbudget.engine.saddle_point import contour, smoothed
from tightbudget.engine.saddle_point.contour import LineIntegral, Lines, Reading
from tightbudget.engine.saddle_point.saddle_point import SaddlePoint, _without_tail
from tightbudget.engine.saddle_point.saddle_points import Group, Term, Track
from tightbudget.mechanisms.gaussian_transform import MixedTransform, NormalTransform
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import FloatArray
from tightbudget.pairs.transform import Line, Rough, Transform
from tightbudget.theorems import advanced, best_of_many, concentrated, kov, renyi, sampling
from tightbudget.theorems.best_of_many import BestOfMany, Repetitions
from tightbudget.theorems.renyi import Conversion, RenyiTable


@pytest.fixture(autouse=True)
def _bits() -> Iterator[None]:
    before, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = before


def just_above(truth: arb, found: float, room: float = 2.0**-40) -> bool:
    """Whether ``found`` is at least the truth, and closely so."""
    return bool(truth <= arb(found)) and bool(arb(found) <= truth + abs(truth) * arb(room))


def just_below(truth: arb, found: float) -> bool:
    return just_above(-truth, -found)


# -------------------------------------------------------------------- engine/saddle_point


@dataclass(frozen=True)
class Flat(Transform):
    """A transform whose bounds are one number, and whose values have one error."""

    bound: float
    error: float = 0.0
    high: float = math.inf
    less: float = 0.0  # than the bound, where that is only planned with

    @property
    def farthest(self) -> float:
        return 10.0

    def rough(self, c: FloatArray) -> Rough:
        return Rough(0.0 * c + (self.bound - self.less), 0.0 * c + 1.0, 0.0 * c + 1.0)

    def upper(self, c: float) -> float:
        return self.bound

    def beyond(self, c: float, t: float, shift: float) -> float:
        return self.high

    def shifts(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        return 0.0 * t + self.bound, 0.0 * t

    def nodes(self, c: float, t: float, tolerance: float) -> int:
        return 1

    def line(self, c: float, t: FloatArray, tolerance: float) -> Line:
        log = np.full(t.size, complex(self.bound), dtype=np.complex128)
        return Line(log, 0.0 * t + self.error)

    def far_line(self, c: float, t: FloatArray) -> Line:
        return self.line(c, t, 0.0)


BULK, OTHER = (Group(Flat(0.1), 3), Group(Flat(0.7), 5))
RARE = ((0, Flat(-3.3)), (1, Flat(-0.9)))


@pytest.mark.parametrize("j", [0, 1, 4])
def test_a_term_is_bounded_by_its_parts(j: int) -> None:
    term = Term((BULK, OTHER), RARE if j else (), j)
    whole = 3 * arb(0.1) + 5 * arb(0.7)
    ratio = 3 * (arb(-3.3) - arb(0.1)).exp() + 5 * (arb(-0.9) - arb(0.7)).exp()
    truth = whole + j * ratio.log() - arb(math.factorial(j)).log()
    assert just_above(truth, term.upper(1.0))
    if j:
        assert just_above(truth + ratio, term.upper(1.0, more=True))


def test_the_largest_ratio_counts_with_all_others() -> None:
    """Where all are alike, each of them is as large as what is left out of the exponent."""
    for log in (-3.3, -40.1, 7.7):
        term = Term((Group(Flat(0.0), 1),) * 3, tuple((g, Flat(log)) for g in range(3)), 1)
        assert just_above(arb(log) + arb(3).log(), term.upper(1.0))


def test_errors_of_a_term_add_up() -> None:
    e, r = 1e-3, 1e-2
    bulk = Term((Group(Flat(0.1, e), 3), Group(Flat(0.7, e), 5)))
    assert 8 * arb(e) <= arb(float(bulk.values(1.0, np.zeros(1), 1e-9)[1][0]))
    one = Term((Group(Flat(0.1, e), 1),), ((0, Flat(-3.3, r)),), 1)
    assert 2 * arb(e) + arb(r) <= arb(float(one.values(1.0, np.zeros(1), 1e-9)[1][0]))
    # two of five runs: the coefficient moves by 5 |dr| 5 (|r| + |dr|), its own value is 10 r^2
    two = Term((Group(Flat(0.0, 0.0), 5),), ((0, Flat(-3.3, r)),), 2)
    most, off = 5 * arb(-3.3).exp() * arb(r).exp(), 5 * arb(-3.3).exp() * arb(r).expm1()
    truth = (1 + off * most / (10 * arb(-6.6).exp())).log()
    assert truth <= arb(float(two.values(1.0, np.zeros(1), 1e-9)[1][0]))


def test_what_is_not_delta_far_below_all_losses() -> None:
    for bound, epsilon in ((0.1, -20.3), (0.3, -12.7), (-0.5, -30.1)):
        term = Term((Group(Flat(bound), 1),))
        found = Track(term, np.ones(2), np.ones(2), np.zeros(2), 1.0).nearly_one(epsilon)
        assert found is not None
        u = float(np.linspace(0.05, 0.95, 19)[-1])
        assert just_below(1 - (arb(bound) + arb(u) * arb(epsilon)).exp(), found.lower)


def point(
    log: float, error: float, beyond: float, aside: float, c: float = 1.3, step: float = 0.7
) -> LineIntegral:
    """A line of one point."""
    return LineIntegral(
        0, c, step, np.array([log + 0j]), np.array([error]), beyond, ((0.4, aside), (2.9, aside))
    )


def aliasing(line: LineIntegral, epsilon: float) -> arb:
    total, y = arb(0), 2 * arb.pi() / arb(line.step)
    for other, log in line.aside:
        fall = abs(arb(line.c) - arb(other)) * y
        total += (arb(log) - arb(other) * arb(epsilon) - fall).exp() / (1 - (-fall).exp())
    return total


@pytest.mark.parametrize("aside", [-700.0, 0.1, 33.3])
@pytest.mark.parametrize("beyond", [-700.0, 0.1, 33.3])
def test_a_sum_keeps_what_is_left_out_of_it(aside: float, beyond: float) -> None:
    line = point(0.3, 0.0, beyond, aside)
    for epsilon in (0.1, 1.7):
        c, e = arb(line.c), arb(epsilon)
        total = arb(line.step) / arb.pi() / 2 * (arb(0.3) - c * e).exp()
        rest, alias = (arb(beyond) - c * e).exp(), aliasing(line, epsilon)
        found = line.read(epsilon)
        assert just_above(total + rest, found.upper)
        assert total - alias - rest >= arb(found.lower)
        assert abs(total - alias - rest - arb(found.lower)) <= (total + alias + rest) * 2.0**-40


@pytest.mark.parametrize("error", [1e-6, 0.3, 3.0])
def test_a_sum_keeps_the_errors_of_its_values(error: float) -> None:
    line = point(0.3, error, -700.0, -700.0)
    for epsilon in (0.1, 1.7):
        value = arb(line.step) / arb.pi() / 2 * (arb(0.3) - arb(line.c) * arb(epsilon)).exp()
        assert value * arb(error).expm1() <= arb(line.errors(epsilon)["values"])


NOTHING = Reading(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Known(LineIntegral):
    """A line that is read already."""

    reading: Reading = NOTHING

    def read(self, epsilon: float) -> Reading:
        return self.reading


def test_lines_and_the_rest_add_up() -> None:
    ends = [(0.1, 0.2), (0.3, 0.7), (1e-3, 1e-2)]
    lines = [
        Known(0, 1.0, 1.0, np.zeros(1, complex), np.zeros(1), 0.0, ((0.5, 0.0), (2.0, 0.0)),
              Reading(0.1, *end))
        for end in ends
    ]  # fmt: skip
    rest = ((1.7, -1.1), (2.2, 0.3))
    found = Lines(0.3, -1.0, tuple(lines), rest).read(0.3)
    lower, upper = (sum((arb(end[side]) for end in ends), arb(0)) for side in (0, 1))
    assert just_below(lower, found.lower)
    more = sum(((arb(log) - arb(c) * arb(0.3)).exp() for c, log in rest), arb(0))
    assert just_above(upper + more, found.upper)


def chernoff(c: float) -> arb:
    """ln of c^c / (1 + c)^(1 + c)."""
    return arb(c) * arb(c).log() - (1 + arb(c)) * (1 + arb(c)).log()


def track_of(term: Term) -> Track:
    return Track(term, np.array([1.0, 2.0]), np.array([0.5, 1.5]), np.array([-1.0, -2.0]), 3.0)


def test_a_line_that_is_placed_says_what_is_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contour, "_height", lambda *_: (40.0, np.zeros(1)))
    for log, high in ((0.1, -40.7), (-30.3, -80.1)):
        track = track_of(Term((Group(Flat(log, 0.0, high), 1),)))
        line = contour._line(track, 1.0, -1.5, contour.COST)
        assert line is not None
        top = float(line.t[-1])
        assert just_above(arb(high) - (arb.pi() * arb(top)).log(), line.log_beyond)
        for c, found in line.aside:
            if c > 0.0:
                assert just_above(arb(log) + chernoff(c), found)


def test_terms_that_no_line_is_for() -> None:
    track = track_of(Term((Group(Flat(-90.3, 0.0, -200.0), 1),)))
    found = contour.lines_at((track,), 1.0, 100.0)
    assert found is not None
    ((c, log),) = found.rest
    assert just_above(arb(-90.3) + chernoff(c), log)


@dataclass(frozen=True)
class Leaving(NormalTransform):
    """Leaves out a P-mass, whatever is asked."""

    mass: float = 0.0

    def without_tail(self, log_mass: float, c: float) -> tuple[Transform, float]:
        return self, self.mass


def test_masses_that_are_left_out_add_up() -> None:
    parts = [(0.1, 3), (1e-3, 7), (0.3, 11), (1.0 / 3.0, 1)]
    term = Term(tuple(Group(Leaving(1.0, mass), count) for mass, count in parts))
    bulk, left_out = _without_tail(term, -3.0, 1.0)
    assert bulk == term
    exact = sum(Fraction(mass) * count for mass, count in parts)
    assert exact <= Fraction(left_out) <= exact * (1 + Fraction(1, 2**48))
    one = Term((Group(Leaving(1.0, 0.1), 3),))
    assert Fraction(0.1) * 3 <= Fraction(_without_tail(one, -3.0, 1.0)[1])


@pytest.mark.parametrize("edge", [1.5, 6.0, 20.0])
def test_a_mass_that_is_left_out_is_no_less_than_its_parts(edge: float) -> None:
    bulk, _ = MixedTransform(0.5, 1e-3, True).split(edge)
    lost = bulk.left_out
    assert Fraction(lost.mass) + Fraction(lost.mass_error) <= Fraction(bulk.mass_left_out())


@pytest.mark.parametrize("left_out", [1e-30, 1e-5, 0.3])
def test_what_is_left_out_is_beside_the_lines(left_out: float) -> None:
    engine = SaddlePoint.of([(NormalTransform(0.1), 40)])
    assert engine is not None
    lines = contour.lines_at((engine.track,), 1.0, None, left_out=left_out)
    assert lines is not None
    ((c, log),) = lines.rest
    assert c == 0.0
    assert arb(left_out).log() <= arb(log) <= arb(left_out).log() + arb(1e-14) * abs(log)


def test_a_chernoff_bound_that_is_just_above_delta_proves_nothing() -> None:
    for log, epsilon in ((-0.3, 1.0), (-30.7, 0.7), (1.1, 1.4)):
        term = Term((Group(Flat(log, less=1e-6), 1),))
        track = track_of(term)
        engine = SaddlePoint(term, term, track)
        c = track.near(epsilon).c_at(epsilon)
        delta = (arb(log) + chernoff(c) - arb(c) * arb(epsilon)).exp()
        for room, below in ((-2e-11, False), (2e-11, True)):
            assert engine.below(epsilon, float(delta * (1 + arb(room)))) is below


@pytest.mark.parametrize("variance", [1e-3, 0.3, 7.0])
def test_smoothed_lines_say_what_is_beside_them(
    variance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    c, step = 1.3, 0.25
    monkeypatch.setattr(smoothed, "_place", lambda *_: (c, step, (0.4, 2.9), 0.0))
    for log, high in ((0.1, -40.7), (-0.7, math.inf), (30.3, math.inf)):
        term = Term((Group(Flat(log, 1e-3, high), 1),))
        found = smoothed._lines(term, track_of(term), 1.0, -1.5, variance, 12.0)
        assert found is not None
        above, below = found.lines
        top, v = arb(float(above.t[-1])), arb(variance)
        rise = v / 2 * (arb(c) * (arb(c) + 1) - top**2)
        most = arb(min(log, high)) + rise + (2 / (arb.pi() * top)).log()
        assert just_above(most, above.log_beyond)
        for other, bound in above.aside:
            assert just_above(arb(log) + chernoff(other), bound)
        assert all(e >= 1e-3 for line in (above, below) for e in line.error.tolist())


# ----------------------------------------------------------------------- engine/readings


def gaussian(mu: float, epsilon: float) -> tuple[arb, arb]:
    """Delta of N(0, 1) against N(mu, 1), and e^eps times the mass of the second above eps."""
    m, e = arb(mu), arb(epsilon)
    p, q = (((e / m + side * m / 2) / arb(2).sqrt()).erfc() / 2 for side in (-1, 1))
    return p - e.exp() * q, e.exp() * q


MUS = (0.01, 0.3, 1.0, 7.7)


@pytest.mark.parametrize("mu", MUS)
def test_delta_of_a_gaussian_and_its_tangent(mu: float) -> None:
    epsilon = mu * np.array([0.0, 0.3, 1.7, 6.1])
    for k, found in enumerate(gaussian_dp._gaussian(mu, epsilon)):
        for e, low, high in zip(epsilon.tolist(), found.lower, found.upper, strict=True):
            assert arb(float(low)) <= gaussian(mu, e)[k] <= arb(float(high))


@pytest.mark.parametrize("mu", MUS)
def test_a_delta_that_is_a_gaussians_is_neither_refuted_nor_more_than_proved(mu: float) -> None:
    for slack in (0.0, 1e-3):
        for e in (0.0, 0.7 * mu):
            delta = float(gaussian(mu, e)[0] + arb(slack))
            for sign, refuted in ((-1, False), (1, True)):
                near = np.array([delta * (1 + sign * 2e-11)])
                points = gaussian_dp._Points(np.array([e]), near, near, np.zeros(1), slack)
                assert points.refute(mu) is refuted
                assert points.proved(mu).tolist() == [not refuted]


@pytest.mark.parametrize("mu", MUS)
def test_a_chord_that_is_above_both_tangents_proves_nothing(mu: float) -> None:
    """It meets them just above the place where they cross."""
    left, right = 0.2 * mu, 1.3 * mu
    (d0, s0), (d1, s1) = gaussian(mu, left), gaussian(mu, right)
    h = arb(right) - arb(left)
    fall, rise = s0 * h.expm1(), s1 * -(-h).expm1()
    x = (d0 - d1 - rise) / (fall - rise)
    crossing, chord = d0 - x * fall, d0 * (1 - x) + d1 * x
    assert 0 < x < 1
    epsilon = np.array([left, right])
    for room, unproved in ((2e-11, True), (-2e-11, False)):
        down = chord - crossing * (1 + arb(room))
        upper = np.array([float(d0 - down), float(d1 - down)])
        points = gaussian_dp._Points(epsilon, upper, upper, np.zeros(2), 0.0)
        assert points.unproved(mu).tolist() == [unproved]


def response(epsilon: float, _gap: float = 0.0) -> Bounds:
    """Delta of randomised response with p = 3/4, between neighbouring doubles."""
    t, nothing = arb(epsilon).exp(), arb(0)
    truth = nothing.max(arb("0.75") - t / 4) + nothing.max(arb("0.25") - 3 * t / 4)
    near = float(truth)
    return Bounds(max(0.0, math.nextafter(near, -1.0)), math.nextafter(near, 2.0) if near else 0.0)


LARGEST = math.log(3.0)
PARTS: Any = SimpleNamespace(
    parts=(None,),
    certain=False,
    infinity=Bounds(0.0, 0.0),
    max_loss=Bounds(math.nextafter(LARGEST, 0.0), math.nextafter(LARGEST, 9.0)),
)


def losses(read: Callable[[float, float], Bounds]) -> Any:
    """As much of an engine as a reading asks."""
    return SimpleNamespace(parts=(PARTS,), reader=lambda: read, apart=lambda: ())


@pytest.mark.parametrize("epsilon", [-0.7, 0.01, 0.3, 0.8])
def test_the_mass_of_losses_above_epsilon(epsilon: float) -> None:
    found = probabilistic_dp._of_direction(PARTS, response, epsilon, 1e-12)
    assert Fraction(found.lower) <= Fraction(3, 4) <= Fraction(found.upper)
    assert found.width <= 1e-11


def test_what_is_missed_is_what_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for caught in (Bounds(0.3, 0.7), Bounds(1e-9, 0.1)):
        monkeypatch.setattr(tradeoff, "_larger", lambda *_, found=caught: found)
        missed = tradeoff.least_false_negatives(losses(response), 0.1, 1.0).bounds
        assert Fraction(missed.lower) <= 1 - Fraction(caught.upper)
        assert 1 - Fraction(caught.lower) <= Fraction(missed.upper)


def test_a_sample_is_read_on_either_side_of_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def read(epsilon: float, _: float) -> Bounds:
        asked.append(epsilon)
        return response(epsilon)

    for t in (0.3, 1.0 + 1e-9, 7.7):
        asked.clear()
        tradeoff._sample(read, t, 0.1, 1e-9)
        assert arb(asked[-1]).exp() <= arb(t) <= arb(asked[-2]).exp()
    monkeypatch.setattr(tradeoff, "_guess", lambda *_: 0.5)
    for alpha in (1e-291, 3e-305):
        tradeoff._Direction(losses(read), alpha).closer(1e-3, lambda _: True)
        assert (-arb(asked[-1])).exp() <= arb(alpha)


@pytest.mark.parametrize("alpha", [1e-9, 0.01, 0.1, 0.2, 0.5])
def test_the_best_test_of_one_response(alpha: float) -> None:
    place = tradeoff._Place((math.exp(0.5),))
    found, _ = tradeoff._search(
        response, alpha, tradeoff._Step(1e-9), place, PARTS, lambda _: False
    )
    a = Fraction(alpha)
    truth = min(3 * a, Fraction(3, 4) + (a - Fraction(1, 4)) / 3)
    assert Fraction(found.lower) <= truth <= Fraction(found.upper)
    assert found.width <= 1e-11 * found.upper


def floor_of(samples: Sequence[_Sample], i: int, alpha: float) -> Fraction:
    """The least value of what the lines through two samples and the last one leave."""

    def slope(s: float, d: float, t: float, e: float) -> Fraction:
        return (Fraction(e) - Fraction(d)) / (Fraction(t) - Fraction(s))

    a, b = samples[i], samples[i + 1]
    falls = (slope(s.t, s.upper, a.t, a.lower) for s in samples[:i])
    rises = (slope(b.t, b.lower, s.t, s.upper) for s in samples[i + 2 :])
    x = Fraction(alpha)
    fall, rise = max([Fraction(-1), *falls]) + x, min([Fraction(0), *rises]) + x
    left, right = Fraction(a.t), Fraction(b.t)
    at_a, at_b = Fraction(a.lower) + x * left, Fraction(b.lower) + x * right

    def higher(t: Fraction) -> Fraction:
        last = Fraction(samples[-1].lower) + x * left
        return max(at_a + fall * (t - left), at_b + rise * (t - right), last)

    places = [left, right]
    if fall != rise:
        places.append(
            min(max((at_b - at_a + fall * left - rise * right) / (fall - rise), left), right)
        )
    return min(map(higher, places))


@pytest.mark.parametrize("seed", range(12))
def test_a_valley_is_no_higher_than_its_lines(seed: int) -> None:
    """Samples of convex functions, on all scales; alike where they lie on one line."""
    rng = np.random.default_rng(seed)
    for _ in range(40):
        top = 10.0 ** rng.uniform(0.1, 9.0)
        t = np.sort(top * rng.uniform(0.0, 1.0, 5) ** rng.uniform(0.5, 6.0))
        bend = 10.0 ** rng.uniform(-1.0, 2.0) / top
        d = np.exp(-bend * t) * min(1.0, 1.0 / bend)
        off = 1.0 + 10.0 ** rng.uniform(-16.0, -3.0)
        samples = [
            _Sample(x, y / off, y * off) for x, y in zip(t.tolist(), d.tolist(), strict=True)
        ]
        alpha = 10.0 ** rng.uniform(-1.0, 0.5) / top
        for i in range(4):
            found = tradeoff._valley(samples, i, alpha).floor
            assert Fraction(found) <= floor_of(samples, i, alpha)


def test_a_valley_beside_the_end() -> None:
    last = [_Sample(50.0, 0.1, 0.3), _Sample(100.0, 0.3, 0.3)]
    assert Fraction(tradeoff._valley(last, 0, 1e-3).floor) <= floor_of(last, 0, 1e-3)
    flat = [_Sample(0.0, 1.0, 1.0), _Sample(1.0, 0.9, 0.9), _Sample(9.0, 0.3, 0.9)]
    for alpha in (0.01, 0.3, 0.5):
        for i in (0, 1):
            assert Fraction(tradeoff._valley(flat, i, alpha).floor) <= floor_of(flat, i, alpha)


# ------------------------------------------------------------------------------- theorems


def test_a_release_on_a_sample() -> None:
    for e, d, q in ((0.1, 1e-5, 0.3), (3.3, 0.1, 0.01), (1e-9, 1e-300, 0.7)):
        epsilon, delta = sampling.without_replacement(e, d, q)
        assert just_above((1 + arb(q) * arb(e).expm1()).log(), epsilon)
        assert just_above(arb(q) * arb(d), delta)


def test_advanced_composition() -> None:
    for e, d, k in ((0.1, 1e-7, 7), (0.01, 0.0, 100), (1.3, 0.1, 3)):
        mean = k * arb(e) * arb(e).expm1()
        slack = arb(0.4) - k * arb(d)
        truth = arb(e) * (-2 * k * slack.log()).sqrt() + mean
        assert just_above(truth, advanced.epsilon(e, d, k, 0.4).upper)
        epsilon = float(3 * mean)
        rest = (-(((arb(epsilon) - mean) / arb(e)) ** 2) / (2 * k)).exp()
        assert just_above(k * arb(d) + rest, advanced.delta(e, d, k, epsilon).upper)


def test_lines_of_concentrated_privacy() -> None:
    for x, y in ((0.1, 0.7), (1.9, 0.3), (3.3, 0.01)):
        a, b = Fraction(x), Fraction(y)
        assert a * a / 2 <= Fraction(concentrated.Line.pure(x).rho)
        assert (a / b) ** 2 / 2 <= Fraction(concentrated.Line.gaussian(y, x).rho)
        line = concentrated.Line.subgaussian(x, y)
        assert b * b / 2 <= Fraction(line.rho)
        assert a <= Fraction(line.xi) + Fraction(line.rho)
        line = concentrated.Line(x, y)
        for order in (1.1, 30.3):
            assert a + b * Fraction(order) <= Fraction(line(order).upper)
        for k in (3, 1001):
            assert k * a <= Fraction((line * k).xi)
            assert k * b <= Fraction((line * k).rho)
        both = line + concentrated.Line(0.1, 0.3)
        assert a + Fraction(0.1) <= Fraction(both.xi)
        assert b + Fraction(0.3) <= Fraction(both.rho)
        for delta in (1e-9, 0.9):
            root = (arb(y) * -arb(delta).log()).sqrt()
            assert just_above(arb(x) + arb(y) + 2 * root, line.epsilon(delta).upper)
        epsilon = float(a + b) + 3.0 * math.sqrt(y)
        truth = (-((arb(epsilon) - arb(x) - arb(y)) ** 2) / (4 * arb(y))).exp()
        assert just_above(truth, line.delta(epsilon).upper)


def test_the_line_of_a_mean_is_above_it() -> None:
    for mean in (0.1, 0.3, 0.7):
        for runs in (1, 3):
            table = RenyiTable([1.3, math.inf], [mean, 0.9])
            line = concentrated.mean_line(table, runs=runs, delta=1e-3)
            assert line is not None
            assert runs * Fraction(mean) <= Fraction(line.xi) + Fraction(line.rho)


@pytest.mark.parametrize("start", [0.0, 0.05, 0.2])
def test_a_line_is_as_steep_as_between_any_two_orders(start: float) -> None:
    x = Fraction(start)
    for s0, d0, s1, d1 in ((0.3, 0.1, 1.1, 0.3), (1.1, 0.3, 6.7, 0.7), (3.0, 0.2999, 3.001, 0.3)):
        a, b, c, d = map(Fraction, (s0, d0, s1, d1))
        for shift in (0.0, 1.0):
            last = (d - x) / (c + Fraction(shift))
            assert last <= Fraction(concentrated._steepest(s0, d0, math.inf, d1, start, shift)) * (
                a + Fraction(shift)
            ) / (c + Fraction(shift))
            found = Fraction(concentrated._steepest(s0, d0, s1, d1, start, shift))
            slope = (c * d - a * b) / (c - a)
            for j in range(101):
                s = a + (c - a) * j / 100
                chord = slope + a * (b - slope) / s
                assert (chord - x) / (s + Fraction(shift)) <= found


def test_a_flat_start_of_a_line() -> None:
    for d1, start, shift, s in ((0.3, 0.1, 1.0, 0.7), (0.7, 0.0, 0.3, 1.9)):
        truth = (Fraction(d1) - Fraction(start)) / Fraction(shift)
        assert truth <= Fraction(concentrated._steepest(0.0, 0.0, s, d1, start, shift))


def poisson(mean: float, delta: float, asked: list[float]) -> BestOfMany:
    def read(epsilon: float) -> Bounds:
        asked.append(epsilon)
        return Bounds(0.0, delta)

    runs = Repetitions(mean=mean, shape=math.inf)
    return BestOfMany(lambda _: Bounds(0.0, 0.3), runs, read)


def test_a_poisson_number_of_runs() -> None:
    asked: list[float] = []
    for mean, delta in ((7.7, 0.01), (1.3, 0.3)):
        best = poisson(mean, delta, asked)
        for order in (1.7, 30.3):
            asked.clear()
            truth = arb(0.3) + arb(mean) * arb(delta) + arb(mean).log() / (arb(order) - 1)
            assert just_above(truth, best._theorem()(order))
            assert arb(asked[-1]).expm1() <= 1 / (arb(order) - 1)
        last = next(a for a in best.table.orders if a not in best.orders and a > 3.8)
        assert arb(0.3).expm1() <= 1 / (arb(last) - 1)


def test_a_number_of_runs_that_nobody_is_told() -> None:
    only = best_of_many.ORDERS[40]

    def one(order: float) -> Bounds:
        return Bounds(0.0, 0.3 if order == only else math.inf)

    for mean, shape in ((7.7, 1.0), (1.3, 0.3)):
        runs = Repetitions(mean=mean, shape=shape)
        log, a = arb(runs.log_stop()), arb(only)
        assert arb(mean) <= log.expm1() * arb(shape) / (1 - (-arb(shape) * log).exp())
        other = (a - 1) / a * arb(0.3) + log / a
        truth = arb(0.3) + (1 + arb(shape)) * other + arb(mean).log() / (a - 1)
        assert just_above(truth, BestOfMany(one, runs)._theorem()(only))


def test_conversions_of_one_divergence() -> None:
    for order, d in ((1.7, 0.1), (30.3, 1.9)):
        a, log = arb(order), arb(1e-5).log()
        mironov = arb(d) - log / (a - 1)
        canonne = arb(d) + (1 - 1 / a).log() - (log + a.log()) / (a - 1)
        for truth, how in ((mironov, Conversion.MIRONOV), (canonne, Conversion.CANONNE)):
            assert just_above(truth, renyi.epsilon_at(order, d, 1e-5, how))
        for epsilon in (2.3, 30.1):
            plain = (a - 1) * (arb(d) - arb(epsilon))
            sharp = plain + (a - 1) * (1 - 1 / a).log() - a.log()
            for truth, how in ((plain, Conversion.MIRONOV), (sharp, Conversion.CANONNE)):
                assert just_above(truth, renyi.log_delta_at(order, d, epsilon, how))


def test_the_largest_loss_of_composed_responses() -> None:
    for e, k in ((0.1, 3), (0.7, 7), (0.3, 100)):
        assert k * Fraction(e) <= Fraction(kov.epsilon(e, 0.0, k, 0.0).upper)
