"""Shuffled reports: all data sets of a few people in rationals, published numbers, refusals."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from scipy.stats import multinomial

import tightbudget as tb
from tightbudget.mechanisms import ShuffledReports
from tightbudget.mechanisms.shuffled_reports import _blanket_delta, _clones

Law = dict[tuple[int, ...], Fraction]


def shuffled(answers: tuple[int, ...], k: int, r: Fraction) -> Law:
    """The law of the histogram of k-ary responses, where r = e^-epsilon0."""
    true, other = 1 / (1 + (k - 1) * r), r / (1 + (k - 1) * r)
    found: Law = {(0,) * k: Fraction(1)}
    for answer in answers:
        after: Counter[tuple[int, ...]] = Counter()
        for histogram, mass in found.items():
            for j in range(k):
                more = tuple(x + (i == j) for i, x in enumerate(histogram))
                after[more] += mass * (true if j == answer else other)  # type: ignore[assignment]
        found = dict(after)  # type: ignore[arg-type]
    return found


def delta_of(p: Law, q: Law, t: Fraction) -> float:
    none = Fraction(0)
    return float(sum((max(p[o] - t * q.get(o, none), none) for o in p), none))


@pytest.mark.parametrize(("people", "k"), [(1, 2), (4, 2), (6, 2), (3, 3), (2, 4)])
@pytest.mark.parametrize("epsilon0", [0.5, 2.0])
def test_no_data_set_of_a_few_people_costs_more(people: int, k: int, epsilon0: float) -> None:
    r = Fraction(math.exp(-epsilon0))
    for epsilon in (0.0, 0.2, 0.9 * epsilon0):
        t = Fraction(math.exp(epsilon))
        worst = max(
            delta_of(shuffled((0, *others), k, r), shuffled((1, *others), k, r), t)
            for others in itertools.combinations_with_replacement(range(k), people - 1)
        )
        clones = ShuffledReports(people, epsilon0).answer(epsilon=epsilon).bounds
        blanket = ShuffledReports(people, epsilon0, k).answer(epsilon=epsilon).bounds
        assert worst <= clones.upper * (1 + 1e-9)
        assert worst <= blanket.upper * (1 + 1e-9)
        assert blanket.lower <= worst * (1 + 1e-9)
        first, second = (shuffled((x, *[0] * (people - 1)), k, r) for x in (0, 1))
        attained = max(
            delta_of(_ones(one), _ones(other), t)
            for one, other in ((first, second), (second, first))
        )
        assert blanket.lower == pytest.approx(attained, rel=1e-3, abs=1e-12)


def _ones(law: Law) -> Law:
    """The law of the number of ones alone."""
    found: Counter[tuple[int, ...]] = Counter()
    for histogram, mass in law.items():
        found[(histogram[1],)] += mass  # type: ignore[assignment]
    return dict(found)  # type: ignore[arg-type]


@pytest.mark.parametrize("people", [1, 2, 7])
def test_clones_are_those_of_the_theorem(people: int) -> None:
    """The pair of the theorem, enumerated in rationals."""
    r = Fraction(1, 3)
    sure = 1 / (1 + r)
    p: Law = {}
    q: Law = {}
    for c in range(people):
        chance = math.comb(people - 1, c) * r**c * (1 - r) ** (people - 1 - c)
        for a in range(c + 1):
            mass = chance * math.comb(c, a) / Fraction(2) ** c
            for d, share in ((1, sure), (0, 1 - sure)):
                for law, out in ((p, (a + d, c - a + 1 - d)), (q, (a + 1 - d, c - a + d))):
                    law[out] = law.get(out, Fraction(0)) + mass * share
    pair = _clones(people, r, r)
    assert float(pair.only_p.upper[0]) == 0.0
    for t in (Fraction(1), Fraction(3, 2), Fraction(5, 2)):
        atoms = pair.given
        mine = sum(
            max(a - float(t) * b, 0.0) for a, b in zip(atoms.p.upper, atoms.q.lower, strict=True)
        )
        assert mine == pytest.approx(delta_of(p, q, t), rel=1e-12, abs=1e-15)
    assert delta_of(p, q, Fraction(1)) == pytest.approx(delta_of(q, p, Fraction(1)))


@pytest.mark.parametrize(("n", "epsilon0", "k", "epsilon"), [(8, 1.0, 3, 0.5), (12, 2.0, 4, 0.7)])
def test_the_blanket_is_the_mean_over_all_histograms(
    n: int, epsilon0: float, k: int, epsilon: float
) -> None:
    r, grown = math.exp(-epsilon0), math.exp(epsilon)
    p, q = 1 / (1 + (k - 1) * r), r / (1 + (k - 1) * r)
    whole = 0.0
    for a, b, c in itertools.product(range(n + 1), repeat=3):
        if a + b + c <= n:
            mass = multinomial.pmf([a, b, c, n - a - b - c], n, [q, q, (k - 2) * q, 1 - k * q])
            whole += mass * max(
                0.0, a * (p - grown * q) + b * (q - grown * p) + c * q * (1 - grown)
            )
    truth = whole / (q * n)
    assert truth <= _blanket_delta(n, epsilon0, k, epsilon) <= truth * (1 + 1e-3)


@pytest.mark.slow
def test_the_numbers_of_a_hundred_thousand_people() -> None:
    """Note 13 of the project's shared theory; published code: clones are in [.16859, .17112]."""
    clones = ShuffledReports(100_000, 4.0).epsilon(1e-6, rtol=1e-6)
    assert clones.upper == pytest.approx(0.16976975, rel=2e-5)
    assert 0.1697697 <= clones.upper <= 0.17112
    assert clones.lower == pytest.approx(0.084714, rel=1e-5)
    two = ShuffledReports(100_000, 4.0, categories=2).epsilon(1e-6, rtol=1e-6)
    assert 0.118153 <= two.upper <= 0.118153065 * (1 + 1e-4)
    ten = ShuffledReports(100_000, 4.0, categories=10).epsilon(1e-6, rtol=1e-6)
    assert 0.109908 <= ten.upper <= 0.109908532 * (1 + 5e-4)
    assert clones.apart == "shuffled reports"


def test_the_blanket_of_ten_categories_is_the_published_number() -> None:
    assert 1e-6 <= _blanket_delta(100_000, 4.0, 10, 0.109908532) * (1 + 1e-6) <= 1.0005e-6
    assert 1e-6 <= _blanket_delta(100_000, 4.0, 2, 0.118153065) * (1 + 1e-6) <= 1.0005e-6


def test_rounds_add_up_and_a_report_alone_is_the_limit() -> None:
    one = ShuffledReports(500, 1.0)
    assert (one * 10).epsilon(1e-6).upper < 10 * one.epsilon(1e-6).upper
    assert one.epsilon(1e-6).upper < ShuffledReports(50, 1.0).epsilon(1e-6).upper <= 1.0 + 1e-9
    assert one.answer(delta=0).bounds.upper <= 1.0 + 1e-9
    alone = ShuffledReports(1, 1.0).answer(delta=0).bounds
    assert alone.lower == pytest.approx(1.0)
    both = one + tb.RandomizedResponse(0.6, relation=tb.Neighbouring.REPLACE_ONE)
    assert both.epsilon(1e-6).lower > one.epsilon(1e-6).lower


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ShuffledReports(0, 1.0), tb.ParameterError, "n must be an integer >= 1, got 0"),
        (lambda: ShuffledReports(10**10, 1.0), tb.ParameterError, r"n must be at most 10\^9"),
        (
            lambda: ShuffledReports(9, 0.0),
            tb.ParameterError,
            "epsilon0 must be a finite number > 0",
        ),
        (lambda: ShuffledReports(9, 21.0), tb.ParameterError, r"epsilon0 must be in \(0, 20\]"),
        (lambda: ShuffledReports(9, 1.0, 1), tb.ParameterError, "categories must be in 2 ... 10"),
        (
            lambda: ShuffledReports(9, 1.0).under("add-or-remove"),
            tb.errors.RelationError,
            "was declared for",
        ),
        (
            lambda: ShuffledReports(9, 1.0, relation=tb.Neighbouring.ZERO_OUT),
            tb.errors.RelationError,
            "shuffled reports hold for .*REPLACE_ONE",
        ),
    ],
)
def test_refusals(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("n", "epsilon0", "k", "part"),
    [
        (2, 1e-6, 10, 1 - 2**-6),
        (5, 1e-3, 1000, 1 - 2**-12),
        (3, 12.0, 10**6, 0.5),
        (8, 1.0, 4, 0.9),
        (8, 0.1, 1000, 0.1),
    ],
)
def test_a_blanket_is_not_below_exact_arithmetic(
    n: int, epsilon0: float, k: int, part: float
) -> None:
    """Of few people, by 50 digits, also where p - e^epsilon q cancels."""
    epsilon = epsilon0 * part
    with localcontext() as context:
        context.prec = 50
        r, grown = (-Decimal(epsilon0)).exp(), Decimal(epsilon).exp()
        p, q = 1 / (1 + (k - 1) * r), r / (1 + (k - 1) * r)
        values = ((p - grown * q) * k, (q - grown * p) * k, q * (1 - grown) * k)
        chances = (q, q, (k - 2) * q, 1 - k * q)
        exact = Decimal(0)
        for counts in itertools.product(range(n + 1), repeat=3):
            rest = n - sum(counts)
            total = sum((m * v for m, v in zip(counts, values, strict=True)), Decimal(0))
            if rest >= 0 and total > 0:
                ways = math.factorial(n)
                for m in (*counts, rest):
                    ways //= math.factorial(m)
                mass = math.prod(x**m for x, m in zip(chances, (*counts, rest), strict=True))
                exact += total * ways * mass
        exact /= k * q * n
        found = Decimal(_blanket_delta(n, epsilon0, k, epsilon))
    assert exact <= found <= 5 * exact
