"""Every guard of the saddle-point engine is taken away once, and a true inequality becomes false.

Steps, heights and tolerances are chosen badly on purpose, so that each error term matters.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from flint import acb, arb, ctx
from tests.balls import inside
from tests.engine.test_smoothed import factors_hold
from tests.guards.mutants import Without, each, lose_a_truth
from tests.integrals import Part, Step
from tests.reference.make_contour import FILE
from tests.reference.test_contour import once
from tests.reference.test_gaussian import gaussian_delta

import tightbudget as tb
from tightbudget.engine.question import DeltaAt
from tightbudget.engine.saddle_point import contour, smoothed
from tightbudget.engine.saddle_point.contour import LineIntegral, Lines, Reading
from tightbudget.engine.saddle_point.reading import DeltaOnLines
from tightbudget.engine.saddle_point.saddle_point import SaddlePoint
from tightbudget.engine.saddle_point.saddle_points import Group, Term, Track
from tightbudget.mechanisms import gaussian_path
from tightbudget.mechanisms.gaussian_transform import MixedTransform, NormalTransform
from tightbudget.numerics import special
from tightbudget.numerics.bounds import Bounds

MIXED = MixedTransform(1.0, 0.25, True)
ONE = Step(Fraction(1), Fraction(1, 4), True)
BULK, RARE = MIXED.split(2.0)
EDGE = (BULK.edge, BULK.width)


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 160
    yield
    ctx.prec = before


def line_of(
    term: Term, c: float, step: float, points: int, tolerance: float = 1e-18
) -> LineIntegral:
    """A line as long and as dense as we say."""
    t = step * np.arange(points, dtype=np.float64)
    log, error = contour.divided(*term.values(c, t, tolerance), c, t)
    top = float(t[-1])
    shifts = term.heights(c, t[-1:])[1][0]
    sides = (0.5 * c, 2.0 * c)
    aside = [(x, term.upper(x) + special.log_g_up(x)) for x in sides]
    return LineIntegral(
        term.j,
        c,
        step,
        log,
        error,
        term.beyond(c, top, shifts) - math.log(math.pi * top),
        (aside[0], aside[1]),
    )


def read(lines: LineIntegral | Lines, epsilon: float) -> Bounds:
    got = lines.read(epsilon)
    return Bounds(got.lower, got.upper)


def gaussian_line(step: float, points: int, *epsilons: float) -> bool:
    """One Gaussian step of sigma 1 on a line, against its closed form."""
    line = line_of(Term((Group(NormalTransform(1.0), 1),)), 2.0, step, points)
    return all(inside(read(line, e), gaussian_delta(arb(1), e)) for e in epsilons)


def sampled_line(tolerance: float) -> bool:
    """One sampled step on a line whose values are hardly known."""
    line = line_of(Term((Group(MIXED, 1),)), 2.0, 0.1, 400, tolerance)
    return all(inside(read(line, e), once(ONE, acb(e)).real) for e in (0.3, 1.0))


def value_of(transform: MixedTransform, tolerance: float, c: float, *heights: float) -> bool:
    """M with few nodes is within its stated error."""
    part = Part(transform.part == "rare", *EDGE) if transform.part else None
    line = transform.line(c, np.array(heights), tolerance)
    for i, t in enumerate(heights):
        truth = ONE.moment(acb(c, t), part)
        log = acb(float(line.log[i].real), float(line.log[i].imag))
        if not abs(truth - log.exp()) <= abs(log.exp()) * arb(float(line.error[i])).expm1():
            return False
    return True


def rare_pairs() -> bool:
    """Of three runs exactly two rare losses: 3 bulk rare^2."""
    term = Term((Group(BULK, 3),), ((0, RARE),), 2)
    c, t = 1.5, np.array([0.0, 0.7])
    log, error = term.values(c, t, 1e-16)
    for i, height in enumerate(t.tolist()):
        s = acb(c, height)
        truth = 3 * ONE.moment(s, Part(False, *EDGE)) * ONE.moment(s, Part(True, *EDGE)) ** 2
        got = acb(float(log[i].real), float(log[i].imag)).exp()
        if not abs(truth - got) <= abs(got) * arb(float(error[i])).expm1():
            return False
    return True


def rare_and_more() -> bool:
    """One rare loss or more in three runs: (bulk + rare)^3 - bulk^3."""
    c = 3.0
    bound = arb(Term((Group(BULK, 3),), ((0, RARE),), 1).upper(c, more=True)).exp()
    bulk = ONE.moment(acb(c), Part(False, *EDGE)).real
    return bool(ONE.moment(acb(c)).real ** 3 - bulk**3 <= bound)


def left_out_of_a_line() -> bool:
    """A line for the bulks of 60 runs and the mass of all else, against a line for all."""
    track = Track.whole(Term((Group(BULK, 60),)))
    whole = SaddlePoint.of([(MIXED, 60)])
    assert track is not None
    assert whole is not None
    lines = contour.lines_at((track,), 3.0, None, left_out=60.5 * BULK.mass_left_out())
    all_of_it = whole.bounds(DeltaAt(3.0), 1e-6)
    assert lines is not None
    assert all_of_it is not None
    return lines.read(3.0).upper >= all_of_it.upper


def left_out_of_hardly_any() -> bool:
    """What is left out may be lost whole: then delta is at least about as much."""
    track = Track.whole(Term((Group(NormalTransform(0.01), 1),)))
    assert track is not None
    found = DeltaOnLines(1.0).hardly_any(track, 1e-291)
    return found is not None and found.upper >= 1e-291


def unlikely_rest() -> bool:
    """A line for no rare loss, and one bound for all others, against a ball value."""
    parts, direction = [[0.8, 0.001, 10_000]], "remove"
    known = [
        value
        for value in json.loads(FILE.read_text(encoding="utf-8"))["values"]
        if value["steps"] == parts and value["direction"] == direction and value["epsilon"] < 3.0
    ]
    run = tb.Gaussian(0.8).subsampled(0.001) * 10_000
    engine = run.engine.saddle_points[0]
    for value in known:
        epsilon, truth = value["epsilon"], arb(value["delta"])
        rare = engine.rare_at(epsilon)
        assert rare is not None
        first, second, *_ = engine.split_at(rare, epsilon)
        line = contour._line(first.near(epsilon), epsilon, float(truth.log()), 10**7)
        assert line is not None
        c = second.near(epsilon).c_at(epsilon)
        log = second.term.upper(c, more=True) + special.log_g_up(c)
        if not arb(Lines(epsilon, 0.0, (line,), ((c, log),)).read(epsilon).upper) >= truth:
            return False
    return bool(known)


def largest_share() -> bool:
    """g(c) = max over x of (1 - e^-x) e^(-c x), taken at e^-x = c / (1 + c)."""
    for c in (1e-3, 0.5, 1.0, 7.0, 100.0, 1e6 + 0.3, 5.4e9):
        x = (1 / arb(c)).log1p()
        if not arb(special.log_g_up(c)) >= (-(-x).expm1()).log() - c * x:
            return False
    return True


def nothing_above_beyond() -> bool:
    """|M| itself is not above the bound of the rest of its line."""
    return all(
        abs(ONE.moment(acb(0.2, t))).log() <= arb(MIXED.beyond(0.2, t, shift))
        for t, shift in ((0.05, 1.0), (5.0, 0.3), (20.0, 0.3))
    )


def path(constant: str, value: float) -> bool:
    """A sampled step on a path with too few nodes, against a line along the real axis."""
    t = np.array([0.5, 3.0])
    with mock.patch.object(gaussian_path, constant, value):
        gaussian_path._path.cache_clear()
        found = MIXED.far_line(2.0, t)
    gaussian_path._path.cache_clear()
    known = MIXED.line(2.0, t, 1e-15)
    assert found is not None
    return bool(np.all(np.abs(found.log - known.log) <= found.error + known.error))


def smoothed_gaussian(variance: float, goal: float) -> bool:
    """One Gaussian step of sigma 1 on two smoothed lines, against its closed form."""
    term = Term((Group(NormalTransform(1.0), 1),))
    track = Track.whole(term)
    assert track is not None
    holds = True
    for epsilon in (0.25, 0.5, 1.0, 1.5, 2.0, 3.0):
        truth = gaussian_delta(arb(1), epsilon)
        log_delta = math.log(float(truth.mid()))
        lines = smoothed._lines(term, track, epsilon, log_delta, variance, goal)
        assert lines is not None
        holds = holds and inside(read(lines, epsilon), truth)
    return holds


class Displaced(Lines):
    """Lines whose value is off by all that they state: 0.005 at 1, and with a sign more below."""

    sign = 1.0

    def _off(self, epsilon: float) -> float:
        return 0.005 * math.exp(40.0 * (1.0 - epsilon) if self.sign > 0 else 0.0)

    def read(self, epsilon: float) -> Reading:
        truth, off = super().read(epsilon).value, self._off(epsilon)
        value = truth + self.sign * off
        return Reading(value, value - off, value + off)

    def slope(self, epsilon: float) -> tuple[float, float]:
        falls = 40.0 * self._off(epsilon) if self.sign > 0 else 0.0
        return self.read(epsilon).value, super().slope(epsilon)[1] + falls


def ends_are_proved(sign: float) -> bool:
    """At both ends of an epsilon of one Gaussian step the exact delta is on the right side."""
    line = line_of(Term((Group(NormalTransform(1.0), 1),)), 2.0, 0.1, 400)
    lines = Displaced(1.0, math.log(0.2), (line,), ())
    lines.__dict__["sign"] = sign
    delta = lines.read(1.0).value
    found = lines.epsilon_of(delta, 1.0)
    if found is None:
        raise AssertionError("these lines have to answer")
    at_least, at_most = (gaussian_delta(arb(1), end) for end in (found.upper, found.lower))
    return bool(at_least <= delta) and bool(at_most >= delta)


MUTATIONS = [
    Without(
        "the upper end of an epsilon is proved by the reading's upper end",
        {"end-of-epsilon-proved": "proved = at.value <= delta if sign > 0 else at.lower > delta"},
        lambda: ends_are_proved(-1.0),
    ),
    Without(
        "the lower end of an epsilon is proved by the reading's lower end",
        {"end-of-epsilon-proved": "proved = at.upper <= delta if sign > 0 else at.value > delta"},
        lambda: ends_are_proved(1.0),
    ),
    Without(
        "aliasing",
        {"aliasing": "lower = add_down(total, *(-error for error in off))"},
        lambda: gaussian_line(1.5, 12, 0.0, 0.5, 1.0),
    ),
    Without(
        "aliasing from the right",
        {"aliasing-right": "for other, log in self.aside[:1]:"},
        lambda: gaussian_line(1.5, 12, 0.0, 0.5, 1.0),
    ),
    Without(
        "the line beyond its end",
        {"line-beyond-end": 'off = (errors["values"], errors["rounding"])'},
        lambda: gaussian_line(0.1, 12, 0.0, 0.5, 1.0),
    ),
    Without(
        "the error of the values",
        {"line-beyond-end": 'off = (errors["beyond"], errors["rounding"])'},
        lambda: sampled_line(50.0),
    ),
    Without(
        "the rest of the terms",
        {"rest-terms": "uppers = [*(p.upper for p in parts)]"},
        unlikely_rest,
    ),
    Without(
        "the mass that no line has",
        {"mass-left-out": "lines, rest = [], []"},
        left_out_of_a_line,
    ),
    Without(
        "the mass that Chernoff's bound does not see",
        {"hardly-left-out": "upper = exp_up(log) if log < 0.0 else math.inf"},
        left_out_of_hardly_any,
    ),
    Without(
        "the error of the rule in x",
        {
            "error-rule-x": (
                "error = 0.0 / -np.expm1(-decay) * np.exp(np.asarray(log_growth) - decay)"
            )
        },
        lambda: value_of(MIXED, 1e-2, 2.0, 0.0, 1.0, 3.0),
    ),
    Without(
        "what the bulk has lost",
        {"bulk-lost": ("lost, loss = type(self.left_out)(0.0, 0.0, 0.0, 0.0), np.abs(at.loss)")},
        lambda: value_of(BULK, 1e-16, 2.0, 0.0, 1.0),
    ),
    Without(
        "what the bulk has lost of its mean",
        {"bulk-lost": "lost, loss = self.left_out._replace(slope=0.0), np.abs(at.loss)"},
        lambda: value_of(BULK, 1e-16, 2.0, 0.0, 1.0),
    ),
    Without(
        "a run is rare at most once",
        {"run-rare-most-once": "part.append(float(k**i) * power)"},
        rare_pairs,
    ),
    Without("all that are rarer together", {"rarer-together": "rest = 0.0"}, rare_and_more),
    Without(
        "Chernoff's g",
        {
            "chernoff-g": (
                "return -add_down(mul_down(c, log1p_down(next_down(1.0 / c))), 1.5 * log1p_down(c))"
            )
        },
        largest_share,
    ),
    Without(
        "the rule on a path",
        {"path-rule": "pass"},
        lambda: path("_GOAL", 6.0),
    ),
    Without(
        "the ends of a path",
        {"path-ends": "return np.zeros_like(z)"},
        lambda: path("_REACH", 4.0),
    ),
    Without(
        "the test for the lower bound",
        {"below-for-lower": "return Reading(above.value, above.lower, above.upper)"},
        lambda: smoothed_gaussian(0.01, 30.0),
    ),
    Without(
        "the rounding of the factor above",
        {"smoothed-lift": "error = 1.0 * error"},
        lambda: factors_hold(0.01),
    ),
    Without(
        "the rounding of the factor below",
        {"smoothed-factor": "error_below = 1.0 * error"},
        lambda: factors_hold(0.01),
    ),
    Without(
        "what moving the line costs",
        {"moving-line-costs": "log = power * modulus + (base - square)"},
        nothing_above_beyond,
    ),
]


@pytest.mark.one_in(4)
@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
