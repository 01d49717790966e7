"""Batches of a fixed size: both ends against oracles that share nothing with the code."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from flint import arb, ctx
from scipy import optimize
from scipy import special as sp
from tests.balls import ball, bins_of, contains, mass

import tightbudget as tb
from tightbudget.engine.engine import Engine
from tightbudget.engine.question import DeltaAt, EpsilonAt
from tightbudget.mechanisms.batches_pairs import CopiesPair, HullPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

DIRECTIONS = tuple(tb.mechanisms.Direction)


# ------------------------------------------------------------------------- the two data sets


@pytest.mark.parametrize(("records", "size"), [(5, 1), (5, 2), (4, 4), (3, 2)])
@pytest.mark.parametrize("replacement", [False, True])
def test_the_two_data_sets_are_a_mixture_of_copies_of_two(
    records: int, size: int, replacement: bool
) -> None:
    if replacement:
        batches = list(itertools.product(range(records), repeat=size))
    else:
        batches = list(itertools.combinations(range(records), size))
    for first, moved in ((1, 2), (-1, 0)):
        data = [first] + [-1] * (records - 1)
        sums = Counter(sum(data[i] for i in batch) + size for batch in batches)
        copies = Counter(moved * sum(i == 0 for i in batch) for batch in batches)
        assert sums == copies
    # the share of each number of copies is what the mechanism counts with
    made = tb.Batches(tb.Gaussian(1.0), size, records, replacement)._copies()
    for k in range(1, len(made) + 1):
        exact = Fraction(sum(sum(i == 0 for i in batch) == k for batch in batches), len(batches))
        assert Fraction(made.lower[k - 1]) <= exact <= Fraction(made.upper[k - 1])


@pytest.mark.parametrize(("size", "records"), [(2, 2), (30, 60), (1000, 1000), (10**6, 10**6 + 1)])
def test_the_chances_of_copies_are_enclosed(size: int, records: int) -> None:
    ctx.prec = 600
    found = tb.Batches(tb.Gaussian(1.0), size, records, replacement=True)._copies()
    one = arb(1) / records
    chance, listed = (1 - one) ** size, arb(0)
    whole = 1 - chance
    for k in range(1, len(found) + 1):
        chance = chance * (size - k + 1) / k * one / (1 - one)
        assert contains(found, k - 1, chance)
        assert found.upper[k - 1] - found.lower[k - 1] <= 1e-12 * found.upper[k - 1]
        listed += chance
    assert len(found) == size or whole - listed < arb(10) ** -100


# ----------------------------------------------------------------------- the hull's masses


def masses_of_hull(
    edges: list[float], m: Fraction, weights: list[Fraction]
) -> list[tuple[arb, arb]]:
    """P- and Q-mass of the bins of the hull of A = (sum_k w_k N(k m, 1), N(0, 1)), told k.

    ``weights`` has w_k for k = 1, 2, ...; what is left is shared among the k in proportion.
    """
    share = sum(weights, Fraction(0))

    def of_a(low: float, high: float) -> tuple[arb, arb]:
        """The masses of losses of A in (low, high], 0 <= low."""
        p = q = arb(0)
        for k, w in enumerate(weights, 1):
            # ln(1 - s + s e^l) = x for the base's loss l = k m z - (k m)^2 / 2 under Q
            def cut(x: float, k: int = k) -> arb | None:
                if math.isinf(x):
                    return None
                loss = ((ball(Fraction(x)).exp() - 1) / ball(share) + 1).log()
                return loss / ball(k * m) + ball(k * m) / 2

            a, b = cut(low), cut(high)
            under_q = mass(a, b)
            under_p = mass(*(None if c is None else c - ball(k * m) for c in (a, b)))
            q += ball(w / share) * under_q
            p += ball(w / share) * ((1 - ball(share)) * under_q + ball(share) * under_p)
        return p, q

    found = []
    for low, high in itertools.pairwise([-math.inf, *edges, math.inf]):
        p, q = of_a(max(low, 0.0), high) if high > 0 else (arb(0), arb(0))
        if low < 0:  # mirrored: P and Q exchanged
            left = of_a(max(-high, 0.0), -low)
            p, q = p + left[1], q + left[0]
        found.append((p, q))
    return found


@pytest.mark.parametrize(
    ("sigma", "size", "records", "replacement"),
    [(2.0, 1, 128, False), (0.5, 3, 4, False), (0.75, 1, 2, True), (20.0, 5, 2**40, False)],
)
def test_the_upper_pair_has_the_masses_of_the_hull(
    sigma: float, size: int, records: int, replacement: bool
) -> None:
    ctx.prec = 400
    step = tb.Gaussian(sigma).batches(size, of=records, replacement=replacement)
    pair = step.pair(Direction.REMOVE)
    edges = [-1.5, -0.3, -1e-3, 0.0, 1e-4, 0.2, 0.25, 2.0]
    bins = bins_of(pair, np.array(edges))
    exact = masses_of_hull(edges, Fraction(2.0) / Fraction(sigma), [Fraction(size, records)])
    references = [*edges, edges[-1]]
    p_sum = arb(0)
    for i, (p, q) in enumerate(exact):
        scaled = q * ball(Fraction(references[i])).exp()
        if p < arb(10) ** -290:  # below what a mixture of rounded rates can say
            continue
        # a rate that is rounded up is a unit of 2^-53 off
        assert float(p) == pytest.approx(float(bins.p.upper[i]), rel=1e-9)
        assert float(scaled) == pytest.approx(float(bins.q.upper[i]), rel=1e-9)
        assert contains(bins.w, i, scaled / p)
        p_sum += p
    rest = pair.atoms()
    assert rest.loss_lower[0] == rest.loss_upper[0] == 0.0
    assert float(1 - p_sum) == pytest.approx(float(rest.p.upper[0]), rel=1e-9, abs=1e-15)
    assert contains(rest.p, 0, (1 - ball(Fraction(size, records))) * (
        1 - 2 * mass(None, -ball(Fraction(1.0) / Fraction(sigma)))
    ))  # fmt: skip


@pytest.mark.parametrize(
    "step",
    [
        tb.Gaussian(2.0).batches(1, of=100),
        tb.Gaussian(0.4).batches(2, of=3),
        tb.Gaussian(2.0).batches(40, of=100, replacement=True),
        tb.Gaussian(0.7).batches(2, of=2, replacement=True),
        tb.Gaussian(1.0).batches(50, of=100).group(30),  # the number of records is told
    ],
)
def test_bins_that_meet_at_0_add_up(step: tb.Mechanism) -> None:
    pair = step.pair(Direction.REMOVE)
    for edges, slack in (
        ([0.0], 0.0),
        ([1e-17], 1e-16),
        ([-0.1, -1e-16, 0.1], 1e-15),
        ([3.0], 0.0),
    ):
        x = np.array(edges)
        bins = pair.bins(x, np.full(x.size, slack))
        assert bins is not None
        reference = np.append(x, x[-1])
        atoms = pair.atoms()
        p = float(np.sum(bins.p.upper)) + float(np.sum(atoms.p.upper) + pair.p_only().upper[0])
        q = float(np.sum(bins.q.upper * np.exp(-reference)))
        q += float(np.sum(atoms.q.upper) + pair.q_only().upper[0])
        assert p == pytest.approx(1.0, abs=1e-12)
        assert q == pytest.approx(1.0, abs=1e-12)
        assert np.all(bins.w.lower <= bins.w.upper)
        # losses are at most the right edge
        assert np.all(bins.w.upper[:-1] >= 1.0 - 1e-12)


def both_ways(epsilon: float, m: float, rate: float) -> float:
    """delta(epsilon) of the two data sets, epsilon also < 0, in the order that has the larger."""
    level = mpmath.exp(epsilon)

    def sampled_above(loss: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
        """The masses of (1 - q) N(0, 1) + q N(m, 1) and of N(0, 1) where the loss is larger."""
        if mpmath.exp(loss) <= 1 - rate:
            return mpmath.mpf(1), mpmath.mpf(1)
        z = mpmath.log1p(mpmath.expm1(loss) / rate) / m + m / 2
        return (1 - rate) * mpmath.ncdf(-z) + rate * mpmath.ncdf(m - z), mpmath.ncdf(-z)

    p, q = sampled_above(mpmath.mpf(epsilon))
    # in the other order the loss is larger where this one is below -epsilon
    other_p, other_q = sampled_above(mpmath.mpf(-epsilon))
    return float(max(p - level * q, (1 - other_q) - level * (1 - other_p)))


@pytest.mark.parametrize("rate", [(1, 100), (1, 2), (9, 10)])
@pytest.mark.parametrize("sigma", [0.5, 2.0, 10.0])
def test_the_hull_is_above_the_two_data_sets_in_either_order_at_every_epsilon(
    sigma: float, rate: tuple[int, int]
) -> None:
    step = tb.Gaussian(sigma).batches(*rate)
    pair = step.pair(Direction.REMOVE)
    for epsilon in (-3.0, -0.7, -0.1, -1e-3, 0.0, 1e-3, 0.3, 2.0):
        found = pair.closed_delta(epsilon)
        assert found is not None
        assert found[1] >= both_ways(epsilon, 2 / sigma, rate[0] / rate[1]) - 1e-14


# -------------------------------------------------------------- one run, with replacement


def hidden(epsilon: float, m: float, weights: list[float]) -> float:
    """h(e^epsilon) of hidden_copies.py, as a largest value over half-lines.

    The event of no copy is {x > t}; those of k copies lie inside: half-lines that begin at t or
    later, as it pays most (the dual of the minimum in the theorem).
    """
    y, k = math.exp(epsilon), np.arange(1.0, len(weights)) * m
    own = k / 2 + epsilon / k

    def gained(t: float) -> float:
        at = np.maximum(own, t)
        each = sp.ndtr(k - at) - y * sp.ndtr(-at)
        return float(np.dot(weights[1:], each) - math.expm1(epsilon) * weights[0] * sp.ndtr(-t))

    table = np.linspace(-10.0, 30.0, 4001)
    best = float(table[np.argmax([gained(t) for t in table])])
    found = optimize.minimize_scalar(
        lambda t: -gained(t), bounds=(best - 0.01, best + 0.01), method="bounded",
        options={"xatol": 1e-12},
    )  # fmt: skip
    return max(-float(found.fun), gained(best))


def told(epsilon: float, m: float, weights: list[float]) -> float:
    """Delta where the number of copies is told, drawn with the same shares if there is none."""
    p = 1 - weights[0]
    moved = math.log1p(math.expm1(epsilon) / p)
    total = 0.0
    for k, w in enumerate(weights[1:], 1):
        near, far = k * m / 2 - moved / (k * m), -k * m / 2 - moved / (k * m)
        total += w * float(mpmath.ncdf(near) - mpmath.exp(moved) * mpmath.ncdf(far))
    return total


def binomial(size: int, rate: float) -> list[float]:
    return [math.comb(size, k) * rate**k * (1 - rate) ** (size - k) for k in range(size + 1)]


def delta_of_mixture(epsilon: float, m: float, size: int, records: int) -> float:
    """The larger delta of the two data sets, by the half-line where the densities meet."""
    weights = [
        mpmath.binomial(size, k) * mpmath.mpf(records) ** -k
        * (1 - mpmath.mpf(1) / records) ** (size - k)
        for k in range(size + 1)
    ]  # fmt: skip

    def ratio(z: mpmath.mpf) -> mpmath.mpf:
        terms = (w * mpmath.exp(k * m * z - (k * m) ** 2 / 2) for k, w in enumerate(weights))
        return mpmath.fsum(terms)

    def above(z: mpmath.mpf) -> mpmath.mpf:
        return mpmath.fsum(w * mpmath.ncdf(k * m - z) for k, w in enumerate(weights))

    found = []
    for sign in (1, -1):
        level = mpmath.exp(sign * epsilon)
        if sign < 0 and level <= weights[0]:
            continue
        z = mpmath.findroot(
            lambda z, level=level: ratio(z) - level, (-40, 40), solver="bisect", maxsteps=200
        )
        p, q = above(z), mpmath.ncdf(-z)
        if sign < 0:
            p, q = 1 - q, 1 - p
        found.append(p - mpmath.exp(epsilon) * q)
    return float(max(found))


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("size", "records"), [(1, 10), (3, 10), (20, 30), (8, 1000)])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.5])
@pytest.mark.parametrize("sigma", [0.8, 4.0])
def test_one_batch_with_replacement(sigma: float, epsilon: float, size: int, records: int) -> None:
    found = tb.Gaussian(sigma).batches(size, of=records, replacement=True).delta(epsilon)
    weights = binomial(size, 1 / records)
    upper = hidden(epsilon, 2 / sigma, weights)
    lower = delta_of_mixture(epsilon, 2 / sigma, size, records)
    assert lower <= upper * (1 + 1e-9)
    assert upper <= told(epsilon, 2 / sigma, weights) * (1 + 1e-9)
    # the outputs beside the two data sets are above their excess by little
    assert upper * (1 - 1e-9) <= found.upper <= upper * 1.1
    assert found.lower == pytest.approx(lower, rel=2e-4, abs=1e-30)
    assert found.lower <= lower * (1 + 1e-12)


def test_one_place_is_one_place_with_replacement_or_without() -> None:
    one, again = (tb.Gaussian(1.0).batches(1, of=50, replacement=r) for r in (False, True))
    assert (one * 9).epsilon(1e-6) == (again * 9).epsilon(1e-6)


# ------------------------------------------------------------------- users with several records


@pytest.mark.parametrize(("size", "batch", "of"), [(2, 2, 5), (3, 2, 6), (2, 4, 7), (4, 1, 6)])
def test_a_batch_is_a_random_set_of_others_with_records_of_the_user_in_some_places(
    size: int, batch: int, of: int
) -> None:
    users, others = range(size), range(size, of)
    batches = list(itertools.combinations(range(of), batch))
    counts = Counter(sum(i in users for i in chosen) for chosen in batches)
    made = tb.Gaussian(1.0).batches(batch, of=of).group(size)._whole._copies()  # type: ignore[attr-defined]
    for k in range(1, min(size, batch) + 1):
        exact = Fraction(counts[k], len(batches))
        assert Fraction(made.lower[k - 1]) <= exact <= Fraction(made.upper[k - 1])
        # of a batch with k records of the user the others are a uniform set
        of_k = Counter(
            tuple(i for i in chosen if i in others)
            for chosen in batches
            if sum(i in users for i in chosen) == k
        )
        assert len(set(of_k.values())) == 1
        assert len(of_k) == math.comb(of - size, batch - k)
    assert len(made) == min(size, batch)
    # the sums of the two data sets, from the sum of a batch without the user
    for sign, moved in ((1, 2), (-1, 0)):
        sums = Counter(
            sum(sign if i in users else -1 for i in chosen) + batch for chosen in batches
        )
        expected: Counter[int] = Counter()
        for k, count in counts.items():
            expected[moved * k] += count
        assert sums == expected


def test_numbers_that_next_to_never_happen_are_left_out() -> None:
    exact = Fraction(1)
    for size, batch, of in ((100, 1, 10**15), (60, 1000, 10**12), (100, 10**4, 10**6)):
        made = tb.Gaussian(1.0).batches(batch, of=of).group(size)._whole._copies()  # type: ignore[attr-defined]
        none = Fraction(math.comb(of - batch, size), math.comb(of, size))
        exact = 1 - none
        listed = sum(map(Fraction, made.upper.tolist()), Fraction(0))
        whole = len(made) == min(size, batch)
        assert listed + (0 if whole else Fraction(1e-100)) >= exact
        assert listed <= exact * (1 + Fraction(1, 10**12))


def hypergeometric(size: int, batch: int, of: int) -> list[float]:
    whole = math.comb(of, batch)
    return [
        math.comb(size, k) * math.comb(of - size, batch - k) / whole
        for k in range(min(size, batch) + 1)
    ]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("epsilon", [0.1, 0.8, 2.0])
@pytest.mark.parametrize(("size", "batch", "of"), [(2, 3, 10), (3, 2, 8), (5, 20, 100)])
def test_one_batch_of_a_user_with_several_records(
    epsilon: float, size: int, batch: int, of: int
) -> None:
    m, weights = 1.0, hypergeometric(size, batch, of)
    step = tb.Gaussian(2.0).batches(batch, of=of).group(size)
    found = step.delta(epsilon)
    level, upper = math.exp(epsilon), hidden(epsilon, m, weights)
    assert upper * (1 - 1e-9) <= found.upper <= upper * 1.1
    assert upper <= told(epsilon, m, weights)
    # users in the plane: old and new records, and others in two directions
    x, y = np.meshgrid(np.linspace(-14, 14, 281), np.linspace(-9, 9, 91), indexing="ij")

    def density(record: complex, other: complex) -> np.ndarray:
        total = np.zeros_like(x)
        for k, w in enumerate(weights):
            at = (k * (record - other)) * m / 2  # from the sum of others alone
            total += w * np.exp(-((x - at.real) ** 2 + (y - at.imag) ** 2) / 2)
        return total * (0.1 * 0.2 / (2 * math.pi))

    deltas = [
        float(np.sum(np.maximum(density(one, other) - level * density(new, other), 0.0)))
        for other in (-1 + 0j, 1j)
        for one, new in itertools.permutations((1 + 0j, -1 + 0j, 0j, 1j, -1j), 2)
    ]
    # the sums over a grid are off by 5e-3
    assert max(deltas) <= found.upper * (1 + 5e-3)
    assert found.lower <= deltas[0] * (1 + 5e-3)
    assert deltas[0] <= found.lower * (1 + 1e-2)


@pytest.mark.slow
def test_a_user_with_more_records_pays_more() -> None:
    step = tb.Gaussian(4.0).batches(600, of=60_000)
    assert step.group(1).epsilon(1e-5) == step.epsilon(1e-5)
    found = [(step.group(k) * 1000).epsilon(1e-5) for k in (1, 2, 5, 20)]
    for end in ("lower", "upper"):
        ends = [getattr(bounds, end) for bounds in found]
        assert ends == sorted(ends)
    assert found[2].apart == "batches of a fixed size"
    group = step.group(5)
    assert tb.Mechanism.from_dict(group.to_dict()) == group
    assert group.relation is tb.Neighbouring.REPLACE_ONE
    assert step.group(2).group(3).epsilon(1e-5) == step.group(6).epsilon(1e-5)


# ----------------------------------------------------------------------------- known numbers


@pytest.mark.parametrize(
    ("sigma", "lower", "upper"), [(2.0, 6.9072, 8.9384), (4.0, 2.4467, 2.8856)]
)
def test_both_ends_of_ten_thousand_steps(sigma: float, lower: float, upper: float) -> None:
    # the lower ends to four digits by two engines, the upper ones from a composition of the hull
    # on a lattice of its own
    run = tb.Gaussian(sigma).batches(600, of=60_000) * 10_000
    found = run.epsilon(1e-6)
    assert found.lower == pytest.approx(lower, abs=3e-4)
    hull = run.engine.answer(EpsilonAt(1e-6), 1e-4).bounds
    assert hull.upper == pytest.approx(upper, abs=6e-4)
    assert found.upper < hull.lower  # test_second_order.py has what is above second moments


def test_a_triangle_is_under_no_mixture_of_the_pair_and_its_reverse() -> None:
    """Its right angle makes it the composition of the pair at a shorter distance in both orders."""

    def delta(*pairs: Pair) -> tb.Bounds:
        once = tuple((pair, 1) for pair in pairs)
        return Engine.of({Direction.REMOVE: once}).answer(DeltaAt(0.01), rtol=1e-5).bounds

    def orders(distance: float) -> tuple[Pair, Pair]:
        step = tb.Gaussian(1.0 / distance).subsampled(0.01)
        return step.pair(Direction.REMOVE), step.pair(Direction.ADD)

    one, reverse = (delta(pair) for pair in orders(2.0))
    triangle = delta(*orders(math.sqrt(2.0)))
    assert (one.upper, reverse.upper) == pytest.approx((0.00565, 1.2e-6), rel=0.03)
    assert triangle.lower == pytest.approx(0.00409, rel=1e-2)
    # it is the same in both orders, so that a mixture above it would have equal weights
    assert triangle.lower > 1.4 * 0.5 * (one.upper + reverse.upper)

    # the density of the triangle in the plane, and of the product, on a grid of points
    m, q, draws = math.sqrt(2.0), 0.01, np.random.default_rng(3).normal(size=(1000, 2))
    x, y = (1.0 - q + q * np.exp(m * draws[:, i] - m * m / 2.0) for i in range(2))
    legs = np.eye(2) * m  # from the right angle to the two records
    near = [np.exp(-0.5 * np.sum((draws - leg) ** 2, axis=1)) for leg in (*legs, 0.0 * legs[0])]
    ratio = ((1.0 - q) * near[2] + q * near[0]) / ((1.0 - q) * near[2] + q * near[1])
    assert ratio == pytest.approx(x / y, rel=1e-9)


def test_one_step_has_one_answer_for_epsilon_from_0() -> None:
    for step in (tb.Gaussian(1.0).batches(1, of=10), tb.Gaussian(0.3).batches(2, of=3)):
        assert (step * 1).epsilon(1e-5).relative_gap <= 1e-4


def test_a_batch_of_all_records_is_a_replacement_for_certain() -> None:
    whole = tb.Gaussian(1.5).batches(40, of=40)
    assert whole.instance() is None
    assert whole.epsilon(1e-6) == tb.Gaussian(1.5, sensitivity=2.0).epsilon(1e-6)
    again = tb.Gaussian(1.5).batches(1, of=1, replacement=True)
    assert again.epsilon(1e-6) == whole.epsilon(1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("replacement", [False, True])
def test_what_the_sensitivity_is_of_is_said(replacement: bool) -> None:
    clip = tb.Gaussian(2.0, sensitivity=1.0).batches(3, 100, replacement=replacement)
    same = tb.Gaussian(2.0, sensitivity=2.0).batches(
        3, 100, replacement=replacement, sensitivity_of="replace-one"
    )
    half = tb.Gaussian(2.0, sensitivity=1.0).batches(
        3, 100, replacement=replacement, sensitivity_of="replace-one"
    )
    assert (clip * 5).epsilon(1e-5) == (same * 5).epsilon(1e-5)
    assert (half * 5).epsilon(1e-5).upper < (clip * 5).epsilon(1e-5).lower


@pytest.mark.parametrize("replacement", [False, True])
def test_more_of_the_data_costs_more(replacement: bool) -> None:
    found = [
        (tb.Gaussian(3.0).batches(b, 12, replacement=replacement) * 4).epsilon(1e-5)
        for b in (1, 3, 12)
    ]
    for end in ("lower", "upper"):
        ends = [getattr(bounds, end) for bounds in found]
        assert ends == sorted(ends)


# ----------------------------------------------------------------------------- words


def test_a_step_is_declared_for_replacement() -> None:
    step = tb.Gaussian(1.0).batches(3, of=10, replacement=True, sensitivity_of="replace-one")
    assert step.relation is tb.Neighbouring.REPLACE_ONE
    assert repr(step) == (
        "Gaussian(sigma=1.0).batches(batch=3, of=10, replacement=True, "
        "sensitivity_of='replace-one')"
    )
    assert tb.Composition.from_dict((step * 2).to_dict()) == step * 2
    assert (tb.Gaussian(1.0).batches(3, of=10) * 2).to_dict()["steps"] == [
        {"mechanism": "gaussian", "sigma": 1.0, "batches": {"batch": 3, "of": 10}, "times": 2}
    ]


ZERO_OUT, REPLACE_ONE = tb.Neighbouring.ZERO_OUT, tb.Neighbouring.REPLACE_ONE
REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: tb.Laplace(1.0).batches(1, 7), tb.ParameterError, "base must be a Gaussian, got"),
    (lambda: tb.Gaussian(1.0).batches(0, 7), tb.ParameterError,
     "batch must be an integer >= 1, got 0"),
    (lambda: tb.Gaussian(1.0).batches(8, 7), tb.ParameterError,
     "batch must be at most of (7), got 8"),
    (lambda: tb.Gaussian(1.0).batches(1, 10**15 + 1), tb.ParameterError,
     "of must be at most 1000000000000000, got 1000000000000001"),
    (lambda: tb.Gaussian(1.0).batches(1, 7, replacement=1), tb.ParameterError,  # type: ignore[arg-type]
     "replacement must be True or False, got 1"),
    (lambda: tb.Gaussian(1.0).batches(1, 7, sensitivity_of="norm"), tb.ParameterError,
     "sensitivity_of must be one of clip, replace-one, got 'norm'"),
    (lambda: tb.Gaussian(1.0).batches(9, 7, replacement=True).group(7), tb.ParameterError,
     "batch must be at most of (7), got 9"),
    (lambda: tb.Gaussian(1.0).batches(3, 7, replacement=True).group(7), tb.ParameterError,
     "size must be at most 6 for batches of 3 of 7 records, got 7"),
    (lambda: tb.Gaussian(1.0).batches(3, 7).group(5), tb.ParameterError,
     "size must be at most 4 for batches of 3 of 7 records, got 5"),
    (lambda: tb.Gaussian(1.0).batches(3, 700).group(101), tb.ParameterError,
     "size must be at most 100 for batches of 3 of 700 records, got 101"),
    (lambda: tb.Gaussian(1.0).batches(1, 7).under(ZERO_OUT), tb.errors.RelationError,
     "cannot be declared for Neighbouring.ZERO_OUT"),
    (lambda: tb.Batches(tb.Gaussian(1.0), 1, 7, relation=ZERO_OUT), tb.errors.RelationError,
     "batches of a fixed size hold for Neighbouring.REPLACE_ONE, but Neighbouring.ZERO_OUT was"),
    (lambda: tb.Gaussian(1.0, relation=REPLACE_ONE).batches(1, 7), tb.errors.RelationError,
     "its sensitivity is of 'replace-one', but sensitivity_of='clip' was given"),
    (lambda: tb.Gaussian(1.0, relation=ZERO_OUT).batches(1, 7, sensitivity_of="replace-one"),
     tb.errors.RelationError,
     "its sensitivity is of 'clip', but sensitivity_of='replace-one' was given"),
    (lambda: tb.Gaussian(1e-12, sensitivity=0.9).batches(1, 7), tb.ParameterError,
     "sensitivity / sigma must be in [1e-100, 1e12], got 18"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "message"), REFUSED)
def test_refusals(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        make()


def test_the_pairs_are_their_own_mirror_images() -> None:
    pair = tb.Gaussian(1.0).batches(3, of=10, replacement=True).pair(Direction.REMOVE)
    assert isinstance(pair, HullPair)
    assert pair.reversed() is pair
    # nearly all batches have records of this user: their number is told
    pair = tb.Gaussian(1.0).batches(50, of=100).group(30).pair(Direction.REMOVE)
    assert isinstance(pair, HullPair)
    base = pair.above.base  # type: ignore[attr-defined]
    assert isinstance(base, CopiesPair)
    assert base.reversed() is base


@pytest.mark.slow
def test_a_user_whose_records_are_in_every_batch_is_answered() -> None:
    step = tb.Gaussian(181.0).batches(666, of=900).group(100)
    pair = step.pair(Direction.REMOVE)
    assert isinstance(pair, CopiesPair)
    found = (step * 1).epsilon(1e-5, rtol=1e-3)
    # of 74 copies in the mean, with a standard deviation of 4, each moves by 2 / 181
    for copies, end in ((60, found.upper), (90, found.lower)):
        alone = tb.Gaussian(181.0, sensitivity=2.0 * copies).epsilon(1e-5)
        assert (alone.lower < end) if copies == 60 else (end < alone.upper)


@pytest.mark.parametrize(("draws", "records", "size"), [(4, 5, 2), (3, 7, 6)])
def test_a_user_with_several_records_has_binomial_numbers_of_copies(
    draws: int, records: int, size: int
) -> None:
    made = tb.Gaussian(1.0).batches(draws, records, replacement=True).group(size)._whole._copies()  # type: ignore[attr-defined]
    for k in range(1, draws + 1):
        rate = Fraction(size, records)
        exact = math.comb(draws, k) * rate**k * (1 - rate) ** (draws - k)
        assert Fraction(made.lower[k - 1]) <= exact <= Fraction(made.upper[k - 1])
    assert len(made) == draws
