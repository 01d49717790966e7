"""Every guard of the theorems is taken away once, and a true inequality becomes false."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from mpmath import mpf
from tests.balls import ball
from tests.guards.mutants import Without, each, lose_a_truth
from tests.hostile import within_a_unit
from tests.theorems.test_best_of_many import mean_of
from tests.theorems.test_concentrated import lies_above
from tests.theorems.test_kov import truth
from tests.theorems.test_naive import exact_advanced
from tests.theorems.test_renyi import exact_epsilon, laplace, response, sampled

import tightbudget as tb
from tightbudget.numerics.bounds import Bounds
from tightbudget.theorems import advanced, concentrated, kov, naive, renyi
from tightbudget.theorems.best_of_many import BestOfMany, Repetitions
from tightbudget.theorems.concentrated import Line
from tightbudget.theorems.renyi import Conversion, RenyiTable
from tightbudget.theorems.sampling import without_replacement


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 400
    yield
    ctx.prec = before


QUESTIONS = [
    (eps, delta, k, share * k * eps)
    for eps, delta, k in ((0.1, 0.0, 100), (0.02, 1e-7, 700), (1.0, 1e-3, 9), (2.0, 0.0, 40))
    for share in (0.0, 0.07, 0.123, 0.31, 0.5)
] + [(0.05, 0.0, 3000, 30.0)]


def kov_holds() -> bool:
    """Both ends, at and between the theorem's points."""
    for eps, delta, k, at in QUESTIONS:
        bounds, exact = kov.delta(eps, delta, k, at), truth(eps, delta, k, at)
        ctx.prec = 400
        if not (arb(bounds.lower) <= exact and exact <= arb(bounds.upper)):
            return False
    return True


def kov_far_below_holds() -> bool:
    """Where the masses themselves are lost: what is below the window is not nothing."""
    bounds = kov.delta(0.5, 0.0, 100_000, 49_900.0)
    return bounds.upper > 0.0


def front_holds() -> bool:
    front = kov.Front([0.1, 0.2], [1e-2, 1e-4], 30)
    return front.delta(1.0).upper == min(
        kov.delta(0.1, 1e-2, 30, 1.0).upper, kov.delta(0.2, 1e-4, 30, 1.0).upper
    )


def advanced_holds() -> bool:
    shapes = [
        (10.0**-i + j / 700, 10 + j, 10.0 ** -(3 * j + 0.3)) for i in (1, 9) for j in range(60)
    ]
    for eps, k, delta in shapes:
        each = 1e-4 * delta / k
        slack = ball(delta) - k * ball(each)
        found = advanced.epsilon(eps, each, k, delta).upper
        if not exact_advanced(eps, k, slack) <= found:
            return False
        back = advanced.delta(eps, each, k, found).upper
        far = (ball(found) - k * ball(eps) * (ball(eps).exp() - 1)) / ball(eps)
        if not k * ball(each) + (-far * far / (2 * k)).exp() <= back:
            return False
    return True


def sums_hold() -> bool:
    for steps in ([(0.1, 0.1, 3)], [(0.3, 0.2, 7), (0.1, 1e-9, 2)], [(0.7, 0.01, 11)]):
        epsilon = sum(Fraction(e) * k for e, _, k in steps)
        none = math.prod((1 - Fraction(d)) ** k for _, d, k in steps)
        eps, delta = naive.adaptive(steps)
        if not (Fraction(eps.lower) <= epsilon <= Fraction(eps.upper)):
            return False
        if not (Fraction(delta.lower) <= 1 - none <= Fraction(delta.upper)):
            return False
    return True


def tiny_sums_hold() -> bool:
    """Chances that are subnormal: 2 d - d^2 is no double."""
    _, delta = naive.adaptive([(0.0, 5e-324, 2)])
    d = Fraction(5e-324)
    return Fraction(delta.lower) <= 2 * d - d * d <= Fraction(delta.upper)


def closed_forms_hold() -> bool:
    checks = []
    for a in (2, 9, 40):
        checks += [(renyi.laplace(a, b), laplace(a, b, 1.0)) for b in (0.3, 7.0, 900.0)]
        checks += [(renyi.randomized_response(a, p), response(a, p)) for p in (0.3, 0.501)]
        checks += [(renyi.subsampled_gaussian(a, s, 0.1), sampled(a, s, 0.1)) for s in (0.5, 3.0)]
    return all(arb(b.lower) <= exact and exact <= arb(b.upper) for b, exact in checks)


def conversions_hold() -> bool:
    for order in 1 + np.geomspace(1e-3, 1e3, 60):
        for delta in (1e-9, 0.1, 0.7):
            for whose in Conversion:
                found = renyi.epsilon_at(float(order), 0.3, delta, whose)
                exact = exact_epsilon(float(order), 0.3, delta, whose)
                if not exact <= found:
                    return False
                back = renyi.log_delta_at(float(order), 0.3, found, whose)
                if not ball(delta).log() - (ball(float(order)) - 1) * (ball(found) - exact) <= back:
                    return False
    return True


def chords_hold() -> bool:
    table = RenyiTable([1.5, 7.0, 90.0], [renyi.laplace(a, 1.0).upper for a in (1.5, 7.0, 90.0)])
    orders = (1.2, 1.6, 3.0, 6.9, 11.0, 60.0)
    constant = RenyiTable([2.0, 5.0], [0.3, 0.3])  # nothing is lost to convexity
    exact = all(Fraction(constant(a).upper) >= Fraction(0.3) for a in 1.0 + np.linspace(0.1, 4, 99))
    return exact and all(table(a).upper >= renyi.laplace(a, 1.0).lower for a in orders)


def lines_hold() -> bool:
    """Also above the chords, where these are all that is known."""
    table = RenyiTable([2.0, 101.0, math.inf], [0.1, 5.0, 6.0])
    orders = np.linspace(1.01, 300, 3000).tolist()
    lines = [concentrated.above(table, xi) for xi in (0.0, 0.02, 0.3, 1.0)]
    return all(
        table(a).upper * (1 - 1e-12) <= line.xi + line.rho * a for a in orders for line in lines
    )


def lines_are_rounded_up() -> bool:
    for j in range(1, 100):
        xi, rho, delta = j / 7, 1 / (j + 0.3), 10.0 ** -(j / 3)
        line = Line(xi, rho)
        exact = ball(xi) + ball(rho) + 2 * (ball(rho) * -ball(delta).log()).sqrt()
        found = line.epsilon(delta).upper
        far = ball(found) - ball(xi) - ball(rho)
        if not exact <= found:
            return False
        if not (-far * far / (4 * ball(rho))).exp() <= line.delta(found).upper:
            return False
    return True


# ------------------------------------ one rounding alone, where no other one makes up for it


def worst_logarithms(sign: Callable[[float], float]) -> AbstractContextManager[None]:
    return within_a_unit("log", sign)


def binomial_sums_hold_from_below() -> bool:
    """The lower end at a point, where the sums are off by nearly all that their margin allows."""
    eps, k, m = 0.1, 100, 45
    found = kov._Answers.of(eps, k, 40.0)
    off = dataclasses.replace(found, totals=found.totals * (1 + 0.9 * found.margin))
    return bool(off.at(m).lower <= truth(eps, 0.0, k, (k - 2 * m) * Fraction(eps)))


def advanced_delta_holds(eps: float, each: float, k: int, at: float) -> bool:
    far = (ball(at) - k * ball(eps) * ball(eps).expm1()) / ball(eps)
    truth = k * ball(each) + (-far * far / (2 * k)).exp()
    return bool(truth <= arb(advanced.delta(eps, each, k, at).upper))


def differences_hold() -> bool:
    """Most of epsilon is the mean of the loss, so that the difference has few digits."""
    return all(
        advanced_delta_holds(eps, 0.0, k, at)
        for eps, k, at in (
            (1.6060860946490843, 41, 281.4161339187274),
            (1.6184768974003738, 49, 326.71361719960686),
            (1.9698297655370773, 40, 497.9148725175518),
        )
    )


def squares_hold() -> bool:
    """An exponent of -680, whose digits count 680 times."""
    return all(
        advanced_delta_holds(eps, 0.0, 3, at)
        for eps, at in (
            (1.8580475257152662e-09, 1.191457792096631e-07),
            (1.8450679918781198e-09, 1.1854495808463851e-07),
            (1.8496147881554985e-09, 1.1884220646251818e-07),
        )
    )


def deltas_add_up() -> bool:
    """The theorem's own delta is nothing beside those of the steps."""
    return all(advanced_delta_holds(1e-3, each / 7000, 11, 40.0) for each in range(1, 70))


def logarithms_of_delta_hold() -> bool:
    """A logarithm of delta is off by a unit in the last place, and so may its quotient be."""
    mironov = Conversion.MIRONOV
    with worst_logarithms(lambda x: 1.0):
        return all(
            exact_epsilon(order, 0.0, delta, mironov)
            <= renyi.epsilon_at(order, 0.0, delta, mironov)
            for order, delta in (
                (9.846165326696275, 0.8795107491002017),
                (2.0201486849186416, 0.6023875147797038),
                (2.157599354278209, 0.6014419868124353),
            )
        )


def logarithms_of_orders_hold() -> bool:
    """Both logarithms are off by a unit in the last place, so that delta gets too small."""
    with worst_logarithms(lambda x: 1.0 if x > 1 else -1.0):
        return all(
            (ball(order) - 1) * ((ball(order) - 1) / ball(order)).log() - ball(order).log()
            <= renyi.log_delta_at(order, 0.3, 0.3)
            for order in (8.737057407316094, 9.72345418705681, 8.247013156902572, 7.396839651299586)
        )


def line_logarithms_hold() -> bool:
    """A logarithm of delta is off by a unit in the last place, and nothing but it matters."""
    with worst_logarithms(lambda x: 1.0):
        return all(
            ball(rho) + 2 * (ball(rho) * -ball(delta).log()).sqrt()
            <= Line(0.0, rho).epsilon(delta).upper
            for rho, delta in (
                (6.404695013201894e-07, 8.554115088462569e-33),
                (3.5491662358265765e-05, 5.871435607170389e-43),
                (1.4338602720639877e-07, 1.8623818366590712e-152),
            )
        )


def a_best_of_many_holds() -> bool:
    """Theorem 2 at two orders, for a mean of runs and a divergence that need every part of it."""
    best = BestOfMany(
        lambda a: Bounds(0.0, a / 10), Repetitions(mean=1000.0, shape=1.0), orders=(2.0, 8.0)
    )
    log = math.log(1000.0)
    truth = 0.8 + log / 7 + 2 * (0.7 + log / 8)  # the order 8 is the best other one, too
    return best(8.0).upper >= truth * (1 - 1e-12)


def a_poisson_number_of_runs_adds_a_delta() -> bool:
    # Theorem 6 at the order 2: delta is asked for at ln 2
    one = tb.Gaussian(1.0) * 1
    best = BestOfMany(
        lambda a: Bounds(0.0, a / 2),
        Repetitions(mean=1000.0, shape=math.inf),
        lambda epsilon: one.answer(epsilon=epsilon).bounds,
        orders=(2.0,),
    )
    truth = 1.0 + 1000 * one.delta(math.log(2.0)).lower + math.log(1000.0)
    return best(2.0).upper >= truth * (1 - 1e-9)


def a_number_of_runs_is_not_below_its_mean() -> bool:
    return all(
        mean_of(mpf(Repetitions(mean=1 + j / 7, shape=shape).log_stop()), shape) >= 1 + j / 7
        for shape in (0.0, 0.5, 1.0, 3.0)
        for j in range(1, 60)
    )


def a_sample_costs_its_share() -> bool:
    for j in range(1, 200):
        epsilon, delta, rate = j / 37, 1 / (j + 3), j / 211
        moved, less = without_replacement(epsilon, delta, rate)
        if ball(moved).expm1() < ball(rate) * ball(epsilon).expm1():
            return False
        if Fraction(less) < Fraction(rate) * Fraction(delta):
            return False
    return True


MUTATIONS = [
    Without(
        "the other order is forgotten",
        {"other-order-counted": "constant = 0.0"},
        a_best_of_many_holds,
    ),
    Without(
        "the mean number of runs is forgotten",
        {"mean-number-of-runs-counted": "chosen = 0.0"},
        a_best_of_many_holds,
    ),
    Without(
        "the delta of one run is forgotten",
        {"poisson-delta-counted": "return 0.0"},
        a_poisson_number_of_runs_adds_a_delta,
    ),
    Without(
        "a number of runs is what floating point makes of it",
        {"number-of-runs-rounded-up": "enough = self.mean"},
        a_number_of_runs_is_not_below_its_mean,
    ),
    Without(
        "the odds of a sample are rounded down",
        {"sample-odds-rounded-up": "odds = q * (expm1_up(e) * (1 - 2.0**-49))"},
        a_sample_costs_its_share,
    ),
    Without(
        "the epsilon of a sample is rounded down",
        {"sample-epsilon-rounded-up": "moved = min(e, log1p_up(odds) * (1 - 2.0**-49))"},
        a_sample_costs_its_share,
    ),
    Without(
        "the share of a sample is squared",
        {"sample-share-once": "return moved, min(1.0, mul_up(q * q, d))"},
        a_sample_costs_its_share,
    ),
    Without(
        "the sums of binomial masses round, from below",
        {"binomial-sum-rounded-down": "lower = max(0.0, value)"},
        binomial_sums_hold_from_below,
    ),
    Without(
        "the sums of binomial masses round, from above",
        {"binomial-sum-rounded-up": "return Bounds(min(1.0, lower), min(1.0, value))"},
        kov_holds,
    ),
    Without(
        "what is below the window is not nothing",
        {"below-window-counted": "return Bounds(0.0, 0.0)"},
        kov_far_below_holds,
    ),
    Without(
        "between two points the chord counts, not the later point",
        {"chord-between-points": "upper = (low.upper) * (1 + 32 * UNIT)"},
        kov_holds,
    ),
    Without(
        "of the points the later one has less to lose",
        {"later-point": "m = math.floor((k - Fraction(at) / eps) / 2)"},
        kov_holds,
    ),
    Without(
        "what tells all counts beside what is told",
        {
            "lost-beside-told": (
                "upper = add_up(0.0, mul_up(max(0.0, sub_up(1.0, lost.upper)), told.upper))"
            )
        },
        kov_holds,
    ),
    Without(
        "a point with a smaller delta may be better",
        {"best-of-points": "for point in self._points[1:]:"},
        front_holds,
    ),
    Without(
        "the mechanisms' own deltas use up a part",
        {"own-deltas-counted": "slack = probability(delta=delta)"},
        advanced_holds,
    ),
    Without(
        "the mean of the loss counts",
        {"mean-loss-counts": "return Bounds(0.0, spread)"},
        advanced_holds,
    ),
    Without(
        "what epsilon leaves beside the mean loss is rounded down",
        {"distance-from-mean-rounded-down": "left = epsilon - k * eps * math.expm1(eps)"},
        differences_hold,
    ),
    Without(
        "the square of a quotient is rounded down",
        {"square-quotient-rounded-down": "slack = exp_up(-mul_down(far, far) / (2 * k))"},
        squares_hold,
    ),
    Without(
        "a sum of deltas is rounded up",
        {"sum-of-deltas-rounded-up": "return Bounds(0.0, min(1.0, k * each + slack))"},
        deltas_add_up,
    ),
    Without("a product of chances rounds", {"product-chances-rounds": "margin = 0.0"}, sums_hold),
    Without(
        "a product of subnormal chances rounds by more than its share",
        {"product-subnormal-chances-rounds": "return chance * (1 - margin)"},
        tiny_sums_hold,
    ),
    Without(
        "a closed form rounds, from below",
        {"closed-form-rounds-1": "lower = value if value > least else 0.0"},
        closed_forms_hold,
    ),
    Without(
        "a closed form rounds, from above",
        {"closed-form-rounds-2": "return Bounds(lower, max(value, least))"},
        closed_forms_hold,
    ),
    Without(
        "first orders cancel",
        {
            "first-orders-cancel": (
                "return math.exp(x) - 1 - x if abs(x) <= 0.5 else math.expm1(x) - x"
            )
        },
        closed_forms_hold,
    ),
    Without(
        "the logarithm of a conversion is rounded up",
        {"conversion-rounded-up-1": "log = -math.log(delta)"},
        logarithms_of_delta_hold,
    ),
    Without(
        "a conversion is rounded up",
        {"conversion-rounded-up-2": "return divergence + log / s"},
        conversions_hold,
    ),
    Without(
        "an order's logarithm is rounded down where it is taken away",
        {
            "conversion-inverse-order": (
                "log = add_up(log, mul_up(s, log_up(next_up(s / order))), -log_up(order))"
            )
        },
        logarithms_of_orders_hold,
    ),
    Without(
        "and so is its inverse",
        {"conversion-inverse-rounded-up": "log = s * (divergence - epsilon)"},
        conversions_hold,
    ),
    Without(
        "a chord is rounded up",
        {"chord-rounded-up": "return Bounds(0.0, min(right, chord))"},
        chords_hold,
    ),
    Without(
        "a line must clear what lies between two orders",
        {"line-clears-between-orders": "candidates = [s1]"},
        lines_hold,
    ),
    Without(
        "beyond the last order there is the largest loss",
        {"beyond-last-order": "for s, d in zip(ends, ends):"},
        lambda: lies_above(
            Line(0.0, concentrated._slope(RenyiTable([1.1, math.inf], [0.01, 5.0]), 0.0, 1.0, 0.0)),
            lambda a: Bounds(5.0 if a > 1.1 else 0.0, 5.0),
        ),
    ),
    Without(
        "the root of a line's epsilon is rounded up",
        {"line-epsilon-rounded-up-1": "root = math.sqrt(self.rho * -math.log(d))"},
        line_logarithms_hold,
    ),
    Without(
        "a line's epsilon is rounded up",
        {
            "line-epsilon-rounded-up-2": (
                "return Bounds(0.0, max(0.0, self.xi + self.rho + 2 * root))"
            )
        },
        lines_are_rounded_up,
    ),
]


@pytest.mark.one_in(4)
@each(MUTATIONS)
def test_a_guard_that_is_taken_away_is_missed(
    mutation: Without, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_truth(monkeypatch, mutation)
