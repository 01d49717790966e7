"""The best of many runs: exact orders of small bases, published numbers, refusals."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize
from scipy.stats import norm
from tests.guards.mutants import Without, lose_a_truth

import tightbudget as tb
from tightbudget.mechanisms.best_of import _hinges, _Polygon, _profile
from tightbudget.mechanisms.polygon_below import Points, polygon_below
from tightbudget.numerics.enclosure import exact
from tightbudget.numerics.rounding import FloatArray
from tightbudget.trials import Trials

Phi = Callable[[Fraction], Fraction]

# laws with generating functions that are exact in rationals
LAWS: list[tuple[Trials, Phi]] = [
    (tb.trials.NegativeBinomial(8.0), lambda x: x / 8 / (1 - x * Fraction(7, 8))),
    (tb.trials.Binomial(3), lambda x: x**3),
    (tb.trials.Binomial(4, 0.25), lambda x: (Fraction(3, 4) + x / 4) ** 4),
    (tb.trials.NegativeBinomial(1.0, 0.5), lambda x: x),
    (tb.trials.Binomial(2), lambda x: x**2),
]
BASES = [
    (Fraction(3, 4), Fraction(1, 4)),
    (Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)),
    (Fraction(5, 12), Fraction(1, 4), Fraction(1, 3), Fraction(0)),
]
OTHERS = [
    (Fraction(1, 4), Fraction(3, 4)),
    (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)),
    (Fraction(1, 4), Fraction(1, 4), Fraction(1, 4), Fraction(1, 4)),
]


def best_of(masses: list[Fraction], phi: Phi) -> list[Fraction]:
    """The law of the best of K outputs, the worst output first; then no output at all."""
    below = [Fraction(0), *itertools.accumulate(masses)]
    return [phi(b) - phi(a) for a, b in itertools.pairwise(below)] + [phi(Fraction(0))]


def delta_of(p: list[Fraction], q: list[Fraction], t: Fraction) -> Fraction:
    return sum((max(a - t * b, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("p", "q"), list(zip(BASES, OTHERS, strict=True)))
@pytest.mark.parametrize(("law", "phi"), LAWS)
def test_no_order_of_the_outputs_costs_more(
    p: tuple[Fraction, ...], q: tuple[Fraction, ...], law: Trials, phi: Phi
) -> None:
    """All scores of a small base, in rationals and in both directions, and the worst is near."""
    base = tb.HistogramPair(tuple(map(float, p)), tuple(map(float, q)))
    searched = base.best_of(law)
    for epsilon in (0.0, 0.1, 0.7, 1.5, 3.0):
        t = Fraction(math.exp(epsilon))
        worst = max(
            delta_of(best_of([a[i] for i in order], phi), best_of([b[i] for i in order], phi), t)
            for a, b in ((p, q), (q, p))
            for order in itertools.permutations(range(len(p)))
        )
        found = searched.answer(epsilon=epsilon).bounds
        assert float(worst) <= found.upper * (1 + 1e-9) + 1e-12
        assert found.lower <= found.upper
        if law.once():
            assert found.upper - found.lower <= 1e-3 * found.upper + 1e-12
            assert found.lower <= float(worst) * (1 + 1e-9) + 1e-12
        assert (
            found.upper
            <= float(delta_of(list(p), list(q), t) + delta_of(list(q), list(p), t))
            * (law.expected())
            * math.exp(8.0 * epsilon)
            + law.expected() * 2
        )


def test_outputs_that_are_hardly_ever_the_best_count() -> None:
    """Where 1 - G is small the density of the best falls to 0, and is no line between two ranks."""
    p = [Fraction(x, 2**40) for x in (53684457, 1099457681388, 209705, 52226)]
    q = [Fraction(x, 2**40) for x in (268107920, 1098170041078, 1047297, 1072431681)]
    p[3], q[3] = 1 - sum(p[:3], Fraction(0)), 1 - sum(q[:3], Fraction(0))
    law, phi = LAWS[-1]
    found = tb.HistogramPair(tuple(map(float, p)), tuple(map(float, q))).best_of(law)
    t = Fraction(math.exp(15.0))
    worst = max(
        delta_of(best_of([a[i] for i in order], phi), best_of([b[i] for i in order], phi), t)
        for a, b in ((p, q), (q, p))
        for order in itertools.permutations(range(4))
    )
    assert 9e-7 < float(worst) <= found.answer(epsilon=15.0).bounds.upper < 3e-6


def densities(law: Trials, above: FloatArray) -> FloatArray:
    """phi'(1 - above), rounded."""
    found = law.density(exact(above))
    return np.asarray((found.lower + found.upper) / 2)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("run", [tb.Gaussian(0.2), tb.Gaussian(1.0), tb.ApproximateDP(3.0, 1e-3)])
@pytest.mark.parametrize(
    "law",
    [
        tb.trials.Binomial(2),
        tb.trials.Binomial(40, 0.5),
        tb.trials.Poisson(1e5),
        tb.trials.NegativeBinomial(1e3, 0.0),
    ],
    ids=repr,
)
def test_the_sum_is_above_every_line(run: tb.Mechanism, law: Trials) -> None:
    """sum_j c_j (1 - y / y_j)+ is at least H(y), at ranks between those that made it, too."""
    polygon = _Polygon.of(_profile(run * 1))
    corners, shares = _hinges(polygon, law)
    small = np.geomspace(1e-18, 0.5, 3001)
    ranks = np.concatenate([[0.0], small, 1.0 - small])
    most = np.minimum(
        [float(np.min(polygon.t * rank + polygon.delta)) for rank in ranks.tolist()], 1.0
    )
    here, there = densities(law, ranks), densities(law, most)
    slack = 0.0
    for y in [0.0, *np.geomspace(0.1, 1e9, 200).tolist()]:
        line = max(0.0, float(np.max(here - y * there)))
        found = float(np.sum(shares * np.maximum(0.0, 1.0 - y / corners)))
        # a double is no nearer to 1 than 1e-16
        assert line <= found * (1 + 1e-9) + 4e-16 * law.expected()
        slack = max(slack, (found - 1e-9) / line) if line else slack
    assert slack < 2.5


def test_a_run_of_a_huge_epsilon_is_answered() -> None:
    """e^epsilon of one run is no double."""
    found = tb.Gaussian(0.02).best_of(tb.trials.Poisson(3.0)).epsilon(1e-6)
    assert 90.0 < found.lower < found.upper


@pytest.mark.parametrize(("p", "q"), list(zip(BASES, OTHERS, strict=True))[:2])
def test_the_lower_bound_is_an_order_of_outputs(
    p: tuple[Fraction, ...], q: tuple[Fraction, ...]
) -> None:
    """Each output may be split by a coin into two, which is all that the lower bound does."""
    law, phi = LAWS[0]
    searched = tb.HistogramPair(tuple(map(float, p)), tuple(map(float, q))).best_of(law)
    reached = False
    for epsilon in (0.1, 0.7, 1.5):
        t = Fraction(math.exp(epsilon))
        best = Fraction(0)
        for a, b in ((p, q), (q, p)):
            halves = [
                (x * s, y * s) for x, y in zip(a, b, strict=True) for s in (Fraction(1, 2),) * 2
            ]
            for order in itertools.permutations(halves):
                one, other = ([pair[k] for pair in order] for k in (0, 1))
                best = max(best, delta_of(best_of(one, phi), best_of(other, phi), t))
        found = searched.answer(epsilon=epsilon).bounds
        assert found.lower <= float(best) * (1 + 1e-3)
        reached |= found.lower >= 0.5 * float(best) > 0
    assert reached


# note 13 of the project's shared theory: geometric number, Gaussian of this mu, delta = 1e-6
TABLE = [
    (0.5, 10.0, 3.2453, 3.9933, 4.545),
    (1.0, 10.0, 6.8821, 7.9737, 8.9629),
    (0.1, 1000.0, 0.9543, 1.1992, 1.2983),
]


def gaussian_delta(mu: float, epsilon: float) -> float:
    return float(
        norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    )


@pytest.mark.parametrize(("mu", "mean", "low", "high", "renyi"), TABLE)
def test_the_table_of_geometric_numbers(
    mu: float, mean: float, low: float, high: float, renyi: float
) -> None:
    """The table's lower bound by blocks is reached; its upper bounds are a fifth too large."""
    kappa = mean - 1.0
    added = [
        math.exp(e) + kappa * gaussian_delta(mu, e)
        for e in np.linspace(0.0, 30 * mu, 3001).tolist()
    ]
    first = optimize.brentq(lambda e: mean * gaussian_delta(mu, e) - 1e-6, 0.0, 60.0)
    assert abs(first + 2 * math.log(min(added)) - high) < 2e-4

    found = tb.Gaussian(1 / mu).best_of(tb.trials.NegativeBinomial(mean)).epsilon(1e-6)
    assert low * 0.9995 <= found.lower <= found.upper <= low * 1.006 < high < renyi
    assert found.apart == "the best of many"


def test_a_shift_by_the_largest_ratio_is_a_weaker_bound() -> None:
    """m delta(epsilon - ln c), with c <= max(e^e, 1 + kappa delta(e))^(1 + shape), is above it."""
    mu, mean, shape = 0.5, 10.0, 1.0
    law = tb.trials.NegativeBinomial(mean, shape)
    e = optimize.brentq(lambda e: math.expm1(e) - (mean - 1) * gaussian_delta(mu, e), 0.0, 9.0)
    for epsilon in (1.5, 3.0, 4.5):
        shifted = mean * gaussian_delta(mu, epsilon - (1 + shape) * e)
        assert tb.Gaussian(1 / mu).best_of(law).answer(epsilon=epsilon).bounds.upper < shifted


@pytest.mark.parametrize(("shape", "mean"), [(0.0, 1e6), (1.0, 1e6), (2.0, 1e4), (1.0, 3.0)])
def test_pure_runs_cost_no_more_than_the_theorem(shape: float, mean: float) -> None:
    """(2 + shape) epsilon for every mean (Papernot, Steinke, Corollary 3), and less for few."""
    law = tb.trials.NegativeBinomial(mean, shape)
    found = tb.ApproximateDP(0.5).best_of(law).answer(delta=0.0).bounds
    assert found.upper <= (2 + shape) * 0.5 * (1 + 3e-4)
    assert found.lower > 0.5


def test_the_best_of_exactly_n_is_at_most_all_of_them() -> None:
    run, law = tb.Gaussian(3.0), tb.trials.Binomial(4)
    assert run.best_of(law).epsilon(1e-6).upper <= (run * 4).epsilon(1e-6).upper * (1 + 1e-3)
    assert run.best_of(law).epsilon(1e-6).lower >= run.epsilon(1e-6).upper


def test_a_mass_at_infinity_stays_one() -> None:
    law = tb.trials.NegativeBinomial(10.0, 0.0)
    found = tb.ApproximateDP(0.3, 1e-5).best_of(law).answer(epsilon=math.inf).bounds
    assert 9.99e-5 <= found.lower <= found.upper <= 1.0001e-4
    assert tb.ApproximateDP(0.3, 1.0).best_of(law).answer(epsilon=1.0).bounds.upper == 1.0
    assert tb.ApproximateDP(0.0).best_of(law).answer(delta=1e-9).bounds.upper <= 1e-6


def test_it_composes_with_other_mechanisms() -> None:
    law = tb.trials.NegativeBinomial(5.0)
    tuned, final = tb.Gaussian(4.0).best_of(law), tb.Gaussian(2.0)
    both = (tuned + final).epsilon(1e-6)
    assert max(tuned.epsilon(1e-6).lower, final.epsilon(1e-6).lower) < both.lower < both.upper
    assert both.upper < tuned.epsilon(5e-7).upper + final.epsilon(5e-7).upper
    assert both.apart == "the best of many"


@pytest.mark.slow  # sixteen thousand cells
def test_a_run_whose_worst_data_nobody_knows() -> None:
    """The lower bound is that of the run's instance, and the run's direction is not symmetric."""
    law = tb.trials.Poisson(3.0)
    shuffled = tb.Gaussian(1.0).shuffled(10)
    found = shuffled.best_of(law).epsilon(1e-6)
    assert shuffled.epsilon(1e-6).lower < found.lower < found.upper
    sampled = tb.Gaussian(2.0).subsampled(0.1)
    assert sampled.best_of(law).epsilon(1e-6).lower > sampled.epsilon(1e-6).upper


@pytest.mark.parametrize("sigma", [0.5, 3.0])
def test_a_polygon_below_is_below(sigma: float) -> None:
    """Its delta is at most the exact one, also between the points, and close to it."""
    mu = 1 / sigma
    epsilons = np.linspace(0.0, 12 * mu, 240)
    deltas = np.array([gaussian_delta(mu, e) for e in epsilons.tolist()])
    points = Points(
        epsilons.tolist(), (deltas * (1 - 1e-9)).tolist(), (deltas * (1 + 1e-9)).tolist()
    )
    cells = polygon_below(points, points).ascending()
    for masses in ([cell.p for cell in cells], [cell.q for cell in cells]):
        assert abs(sum(masses, Fraction(0)) - 1) < Fraction(1, 10**60)
    for epsilon in np.linspace(-3 * mu, 8 * mu, 97).tolist():
        t = Fraction(math.exp(epsilon))
        mine = float(sum((max(cell.p - t * cell.q, Fraction(0)) for cell in cells), Fraction(0)))
        truth = gaussian_delta(mu, epsilon)
        assert mine <= truth * (1 + 1e-8) + 1e-15
        assert mine >= truth * 0.95 - 1e-12


@pytest.mark.parametrize("gap", [0.0, 1e-5, 0.1])
@pytest.mark.parametrize("both", [False, True])
def test_a_polygon_of_wide_bounds_is_below_exact_fractions(gap: float, both: bool) -> None:
    """No mass is negative, and delta is at most the exact one, whatever the bounds leave open."""
    p = (Fraction(5, 8), Fraction(3, 8), Fraction(0))
    q = (Fraction(1, 8), Fraction(3, 4), Fraction(1, 8))
    wide = random.Random(3)
    for top in (0.3, 1.0, 1.7, 5.0):
        epsilons = [top * j / 12 for j in range(13)]
        points = []
        for a, b in ((p, q), (q, p)):
            deltas = [float(delta_of(list(a), list(b), Fraction(math.exp(e)))) for e in epsilons]
            lower = [max(0.0, d * (1 - gap * wide.random()) - 1e-12) for d in deltas]
            upper = [min(1.0, d * (1 + gap * wide.random()) + 1e-12) for d in deltas]
            points.append(Points(epsilons, lower, upper))
        cells = polygon_below(points[0], points[1] if both else None).ascending()
        here, there = [cell.p for cell in cells], [cell.q for cell in cells]
        assert min(here) >= 0 <= min(there)
        assert abs(sum(there, Fraction(0)) - 1) < Fraction(1, 10**60)
        for epsilon in np.linspace(-6.0, 6.0, 49).tolist():
            t = Fraction(math.exp(epsilon))
            exact_delta = delta_of(list(p), list(q), t)
            assert delta_of(here, there, t) <= exact_delta + Fraction(1, 10**60)


# ------------------------------------------------------------------------------- the laws


@pytest.mark.parametrize(
    "law",
    [
        tb.trials.Poisson(3.0),
        tb.trials.NegativeBinomial(3.0),
        tb.trials.NegativeBinomial(1.0),
        tb.trials.NegativeBinomial(4.0, 0.0),
        tb.trials.NegativeBinomial(4.0, 0.5),
        tb.trials.NegativeBinomial(1.01, 1e-6),
        tb.trials.Binomial(5, 0.3),
        tb.trials.Binomial(5),
    ],
    ids=repr,
)
def test_the_chances_of_a_law_are_its_generating_function(law: Trials) -> None:
    chances = [low for low, _ in itertools.islice(law.chances(60), 400)]
    assert abs(float(sum(chances)) - 1) < 1e-12
    assert abs(float(sum(k * c for k, c in enumerate(chances))) - law.expected()) < 1e-10
    assert law.none().lower[0] <= float(chances[0]) * (1 + 1e-15)
    assert float(chances[0]) <= law.none().upper[0]
    start, width = 0.25, 0.125
    for above in (0.0, start, start + width, 0.9):
        truth = sum(float(c) * k * (1 - above) ** (k - 1) for k, c in enumerate(chances) if k)
        found = law.density(exact(np.array([above])))
        assert found.lower[0] <= truth * (1 + 1e-12)
        assert truth <= found.upper[0] * (1 + 1e-12)
        assert found.upper[0] - found.lower[0] <= 1e-12 * found.upper[0]
    truth = sum(
        float(c) * ((1 - start) ** k - (1 - start - width) ** k) for k, c in enumerate(chances)
    )
    found = law.best_in(exact(np.array([start])), exact(np.array([width])))
    assert found.lower[0] <= truth * (1 + 1e-12)
    assert truth <= found.upper[0] * (1 + 1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tb.trials.Poisson(0.0), r"mean must be in \(0, 1e12\], got 0.0"),
        (lambda: tb.trials.Poisson(math.nan), "mean must be a number, got nan"),
        (lambda: tb.trials.NegativeBinomial(0.5), r"mean must be in \[1, 1e12\], got 0.5"),
        (lambda: tb.trials.NegativeBinomial(2.0, -0.5), r"shape must be 0 or in .*, got -0.5"),
        (lambda: tb.trials.Binomial(0), "n must be an integer >= 1, got 0"),
        (lambda: tb.trials.Binomial(10**13), r"n must be at most 10\^12"),
        (lambda: tb.trials.Binomial(5, 0.0), r"probability must be in \(0, 1\], got 0.0"),
        (lambda: tb.Gaussian(1.0).best_of(20), "trials must be a law of tb.trials, .*, got 20"),
        (
            lambda: tb.mechanisms.BestOf(3, tb.trials.Poisson(2.0)),  # type: ignore[arg-type]
            "run must be a mechanism or a composition, got 3",
        ),
        (
            lambda: (tb.Gaussian(1.0) * 0).best_of(tb.trials.Poisson(2.0)),
            "run must have a mechanism that runs",
        ),
    ],
)
def test_refusals(make: Callable[[], object], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        make()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (3, "trials must be a table such as"),
        ({"law": "uniform"}, "trials.law must be one of binomial, negative-binomial, poisson"),
        ({"law": "poisson", "n": 3}, r"poisson has no 'n' \(it has mean\)"),
        ({"law": "negative-binomial"}, "negative-binomial needs mean"),
    ],
)
def test_tables_that_write_no_law(table: object, message: str) -> None:
    with pytest.raises(tb.errors.FileError, match=message):
        Trials.from_dict(table)


def test_it_is_read_back_and_shown() -> None:
    training = tb.Gaussian(1.5).subsampled(0.01) * 30 + tb.Laplace(9.0)
    tuned = training.best_of(tb.trials.NegativeBinomial(20, shape=0))
    assert tb.Mechanism.from_dict(tuned.to_dict()) == tuned
    assert repr(tuned).endswith(".best_of(trials.NegativeBinomial(mean=20.0, shape=0.0))")
    given = tb.mechanisms.BestOf(
        [{"mechanism": "gaussian", "sigma": 2.0, "times": 3}],  # type: ignore[arg-type]
        {"law": "poisson", "mean": 4},  # type: ignore[arg-type]
    )
    assert given == (tb.Gaussian(2.0) * 3).best_of(tb.trials.Poisson(4.0))
    declared = (tb.Gaussian(1.0) * 2).best_of(tb.trials.Poisson(4.0)).under("replace-one")
    assert isinstance(declared, tb.mechanisms.BestOf)
    assert declared.run.relation is tb.Neighbouring.REPLACE_ONE


def the_best_of_exponential_mechanisms_is_no_worse_than_one_of_fixed_intervals() -> bool:
    # one data set has one interval of losses in all trials
    law, mechanism = tb.trials.NegativeBinomial(5.0), tb.ExponentialMechanism(1.0)
    e = math.e
    most = 0.0
    for u in (1.3, 1.65, 2.1):  # e^t
        p = (e - u) / (e - 1)
        fixed = tb.HistogramPair((p, 1 - p), (p / u, (1 - p) * e / u)).best_of(law)
        most = max(most, fixed.answer(delta=1e-3).bounds.upper)
    return mechanism.best_of(law).answer(delta=1e-3).bounds.lower <= 1.01 * most


@pytest.mark.slow
def test_no_interval_of_losses_is_chosen_after_the_search() -> None:
    assert the_best_of_exponential_mechanisms_is_no_worse_than_one_of_fixed_intervals()


@pytest.mark.slow
def test_a_pair_that_no_data_set_attains_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    without = Without(
        "the pair of one exponential mechanism for an instance",
        {"one-run-is-below-the-best": "whole = run.attained or run"},
        the_best_of_exponential_mechanisms_is_no_worse_than_one_of_fixed_intervals,
    )
    lose_a_truth(monkeypatch, without)


def test_a_direction_is_not_asked_for_deltas_that_count_no_more() -> None:
    """One direction's delta is 1e-247 where the other's is 1e-20; such a one takes seconds."""
    points = _profile(tb.Gaussian(2.0).subsampled(0.3) * 4)
    assert len(points) == 2
    for one in points:
        assert len({upper for upper in one.upper if upper <= 1e-30}) <= 1
        assert all(x <= y for x, y in zip(one.lower, one.upper, strict=True))
    assert min(points[1].upper) <= 1e-30 < points[0].upper[-2]
