"""Poisson samples cut to a largest batch: exact batches counted out, peers' values, refusals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.engine.engine import Engine
from tightbudget.engine.question import DeltaAt
from tightbudget.errors import ParameterError, RelationError
from tightbudget.mechanisms.truncated_poisson import _displaced, _weighed
from tightbudget.pairs.direction import Direction


def chance_to_be_in(rate: Fraction, at_most: int, of: int) -> Fraction:
    """The chance of record 0 to be in the batch, over all samples of ``of`` records."""
    total = Fraction(0)
    for sample in itertools.product((0, 1), repeat=of):
        size = sum(sample)
        if sample[0]:
            weight = rate**size * (1 - rate) ** (of - size)
            total += weight * min(Fraction(1), Fraction(at_most, size))
    return total


@pytest.mark.parametrize(("rate", "at_most", "of"), [(0.5, 2, 4), (0.25, 1, 6), (0.875, 3, 5)])
def test_the_two_chances_are_those_of_all_samples_counted(
    rate: float, at_most: int, of: int
) -> None:
    batch = tb.TruncatedPoisson(tb.Gaussian(1.0), rate, at_most, of)
    fits, full = batch._cut
    low, high = batch._in_when_full
    exact = chance_to_be_in(Fraction(rate), at_most, of)
    q = Fraction(rate)
    exactly_full = sum(
        (math.comb(of - 1, j) * q**j * (1 - q) ** (of - 1 - j) for j in range(at_most, of)),
        Fraction(0),
    )
    assert Fraction(full[0]) <= exactly_full <= Fraction(full[1])
    assert Fraction(fits[0]) <= 1 - exactly_full <= Fraction(fits[1])
    # in = (1 - p) rate + p c
    in_when_full = (exact - (1 - exactly_full) * q) / exactly_full
    assert Fraction(low) <= in_when_full <= Fraction(high)
    instance = batch.instance()
    assert isinstance(instance, tb.Subsampled)
    assert exact * (1 - Fraction(1, 10**13)) <= Fraction(instance.rate) <= exact


def direct(rate: float, at_most: int, values: list[float], epsilon: float) -> tuple[float, float]:
    """delta(eps) of one run in both directions, from all batches, for sums and sigma 1.

    The first of ``values`` is the record that only one of the neighbours has.
    """

    def density(records: list[float], x: np.ndarray) -> np.ndarray:
        total = np.zeros_like(x)
        for sample in itertools.product((0, 1), repeat=len(records)):
            chosen = [v for v, inside in zip(records, sample, strict=True) if inside]
            weight = rate ** len(chosen) * (1 - rate) ** (len(records) - len(chosen))
            batches = list(itertools.combinations(chosen, min(at_most, len(chosen))))
            for batch in batches:
                total += weight / len(batches) * np.exp(-((x - sum(batch)) ** 2) / 2)
        return total / math.sqrt(2 * math.pi)

    x = np.linspace(-16.0, 16.0, 20_001)
    with_it, without = density(values, x), density(values[1:], x)
    step, e = float(x[1] - x[0]), math.exp(epsilon)
    return (
        float(np.sum(np.maximum(with_it - e * without, 0.0))) * step,
        float(np.sum(np.maximum(without - e * with_it, 0.0))) * step,
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("rate", "at_most", "of"), [(0.5, 2, 4), (0.3, 1, 4), (0.9, 2, 4)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_no_data_are_above_the_upper_bound_and_zeros_attain_the_lower_one(
    rate: float, at_most: int, of: int, epsilon: float
) -> None:
    batch = tb.Gaussian(1.0).truncated_poisson(rate, at_most, of)
    found, instance = batch.delta(epsilon), batch.instance()
    for others in itertools.product((-1.0, 0.0, 1.0), repeat=of - 1):
        removed, added = direct(rate, at_most, [1.0, *others], epsilon)
        assert max(removed, added) <= found.upper * (1 + 1e-9)
    attained = max(direct(rate, at_most, [1.0] + [0.0] * (of - 1), epsilon))
    assert instance is not None
    assert (instance * 1).delta(epsilon).lower <= attained * (1 + 1e-5)  # the grid's error
    assert attained * (1 - 1e-4) <= found.lower <= found.upper


@pytest.mark.parametrize(("rate", "at_most", "of"), [(0.5, 2, 4), (0.25, 3, 6), (0.875, 3, 5)])
def test_batches_of_all_samples_are_as_the_theorem_says(rate: float, at_most: int, of: int) -> None:
    """Given the order of the others: one is missing, is the last one, or is displaced."""
    q, others = Fraction(rate), range(1, of)
    chances: dict[tuple[bool, tuple[int, ...], tuple[int, ...]], Fraction] = {}
    for inside in (False, True):
        for size in range(of):
            weight = math.comb(of - 1, size) * q**size * (1 - q) ** (of - 1 - size)
            weight *= q if inside else 1 - q
            sample = tuple(others[:size])  # in the order that is given away
            places = range(size + 1) if inside else (0,)
            for place in places:
                batch = (*sample[:place], 0, *sample[place:]) if inside else sample
                key = inside, sample[: at_most + 1], tuple(sorted(batch[:at_most]))
                chances[key] = chances.get(key, Fraction(0)) + weight / len(places)
    free = math.comb(of - 1, at_most - 1) * q ** (at_most - 1) * (1 - q) ** (of - at_most)
    full = sum(
        (math.comb(of - 1, j) * q**j * (1 - q) ** (of - 1 - j) for j in range(at_most, of)),
        Fraction(0),
    )
    first, whole = tuple(range(1, at_most)), tuple(range(1, at_most + 1))
    # without the record, as often as it is not in the sample
    without = {
        batch: sum(x for (i, _, b), x in chances.items() if not i and b == batch) / (1 - q)
        for batch in (first, whole)
    }
    assert without == {first: free, whole: full}
    # with it: added where a place is free, and in the place of the last one else
    displaced = sum(
        x for (i, seen, b), x in chances.items() if i and b == (0, *first) and len(seen) >= at_most
    )
    added = chances[True, first, (0, *first)]
    assert added == q * free
    low, high = tb.TruncatedPoisson(tb.Gaussian(1.0), rate, at_most, of)._in_when_full
    assert Fraction(low) <= displaced / full <= Fraction(high) < q
    near = tb.TruncatedPoisson(tb.Gaussian(1.0), rate, at_most, of)._nearly_full()
    assert near is not None
    below, above, moves = near
    assert Fraction(above[0]) <= free + full <= Fraction(above[1])
    assert Fraction(below[0]) <= 1 - free - full <= Fraction(below[1])
    weights = [Fraction(w) for w in np.array(moves.weights).tolist()]
    assert moves.sensitivities == (1.0, 2.0)
    share = weights[0] / sum(weights)
    assert share <= free / (free + full) <= share * (1 + Fraction(1, 10**8))


def test_one_cut_sample_has_the_masses_of_the_theorem() -> None:
    m, q, free = 1.25, 0.25, 0.375
    moves = tb.MixtureOfGaussians(1.0, (m, 2 * m), (free, 1 - free))
    z = np.linspace(-9.0, 2 * m + 9.0, 400_001)
    rest, record = (
        (1 - free) * np.exp(-z * z / 2) + free * np.exp(-((z - m) ** 2) / 2),
        np.exp(-((z - 2 * m) ** 2) / 2),
    )
    p, below = (1 - q) * rest + q * record, rest
    unit = float(z[1] - z[0]) / math.sqrt(2 * math.pi)
    for direction, (one, other) in (("REMOVE", (p, below)), ("ADD", (below, p))):
        pair = _displaced(moves, q, Direction[direction])
        for epsilon in (0.1, 0.25) + (0.9, 2.0) * (direction == "REMOVE"):
            exact = float(np.sum(np.maximum(one - math.exp(epsilon) * other, 0.0))) * unit
            found = Engine.of({Direction.REMOVE: ((pair, 1),)}).answer(DeltaAt(epsilon), 1e-6)
            assert found.bounds.lower * (1 - 1e-6) <= exact <= found.bounds.upper * (1 + 1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("a", [0.6, 0.72, 0.76, 0.8, 0.9, 0.97, 1.0, 1.1, 1.6, 4.0])
@pytest.mark.parametrize("free", [0.05, 0.4])
def test_no_places_of_two_records_are_worse_than_opposite_ones(a: float, free: float) -> None:
    q, s = 0.25, 1.0
    x, y = np.meshgrid(np.linspace(-7.0, 7.0, 281), np.linspace(-6.0, 6.0, 121), indexing="ij")

    def at(radius: float, angle: float) -> np.ndarray:
        c, d = radius * math.cos(angle), radius * math.sin(angle)
        return np.exp(-((x - c) ** 2 + (y - d) ** 2) / 2) * (0.05 * 0.1 / (2 * math.pi))

    def both(c: float, u: np.ndarray, v: np.ndarray) -> list[float]:
        q_side = free * at(0, 0) + (1 - free) * v
        p = free * ((1 - q) * at(0, 0) + q * u) + (1 - free) * ((1 - c) * v + c * u)
        return [
            float(np.sum(np.maximum(p - a * q_side, 0.0))),
            float(np.sum(np.maximum(q_side - p / a, 0.0))),
        ]

    u = at(s, 0.0)
    worst = both(q, u, at(s, math.pi))
    for c in (0.0, 0.1, 0.24, q):
        for radius in (0.0, 0.5, 1.0):
            for angle in (0.0, 0.8, 1.6, 2.4, math.pi):
                for found, most in zip(both(c, u, at(radius, angle)), worst, strict=True):
                    assert found <= most + 1e-4


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("sigma", "rate", "at_most", "of", "times", "most"),
    [
        (1.0, 0.001, 80, 60_000, 1000, 0.2041),
        (1.0, 0.01, 100, 10_000, 100, 3.403),
        (0.6, 0.01, 110, 10_000, 1000, 13.10),
        (3.0, 0.01, 90, 10_000, 100, 0.2905),  # the pair of full batches is the closer one
    ],
)
def test_a_place_that_may_be_free_hides_a_cut(
    sigma: float, rate: float, at_most: int, of: int, times: int, most: float
) -> None:
    found = (tb.Gaussian(sigma).truncated_poisson(rate, at_most, of) * times).epsilon(1e-6)
    assert found.lower < found.upper <= most


def test_a_published_value_is_an_upper_bound_of_both_of_ours() -> None:
    run = tb.Gaussian(1.0).truncated_poisson(0.5, 2, 4) * 3
    run += tb.Gaussian(1.0).truncated_poisson(0.5, 2, 3) * 2
    found = run.epsilon(1e-6)
    # dp-accounting, which takes both directions of a replaced record at once
    assert found.lower < found.upper < 17.904330


def test_batches_that_are_never_cut_are_poisson_samples() -> None:
    poisson = tb.Gaussian(1.0).subsampled(0.25) * 50
    for at_most in (4, 9):
        never = tb.Gaussian(1.0).truncated_poisson(0.25, at_most, 4)
        assert never.instance() is None
        assert (never * 50).epsilon(1e-5) == poisson.epsilon(1e-5)
    seldom = tb.Gaussian(1.0).truncated_poisson(0.25, 500, 1000) * 50
    assert seldom.epsilon(1e-5).relative_gap <= 1e-4


def test_a_batch_that_is_always_full_is_one_with_a_record_replaced() -> None:
    full = tb.Gaussian(1.0).truncated_poisson(1.0, 2, 8)
    found = (full * 5).epsilon(1e-5)
    assert found.relative_gap <= 1e-4
    assert not found.apart
    assert found.overlaps((tb.Gaussian(0.5).subsampled(0.25) * 5).epsilon(1e-5))


def test_opposite_records_that_may_be_missing_attain_nothing() -> None:
    """One of two records is kept, and each is there with chance 1/10.

    Whatever the other record is, the two data sets differ less than opposite records that are
    always there.
    """
    sample = tb.Gaussian(1.0).truncated_poisson(1.0, 1, 2).subsampled(0.1)
    found = sample.delta(1.0)
    assert found.apart == "a sample of what other records take part in"

    def mass(above: float, mean: float) -> float:
        return 0.5 * math.erfc((above - mean) / math.sqrt(2.0))

    largest = 0.0
    for other in (-1.0, -0.5, 0.0, 0.5, 1.0):
        for edge in (0.01 * i for i in range(-300, 600)):
            without = 0.9 * mass(edge, 0.0) + 0.1 * mass(edge, other)
            alone, both = 0.9 * mass(edge, 1.0), 0.05 * (mass(edge, 1.0) + mass(edge, other))
            there = 0.9 * without + 0.1 * (alone + both)
            largest = max(largest, there - math.e * without)
    assert found.lower <= largest <= found.upper


def test_a_rate_that_no_double_holds_is_between_two_that_doubles_hold() -> None:
    batch = tb.TruncatedPoisson(tb.Gaussian(1.0), 1.0, 1, 3)
    below = batch.instance()
    assert below is not None
    (sampled, runs), *_ = below.parts
    assert isinstance(sampled, tb.Subsampled)
    assert sampled.base == tb.Gaussian(1.0, 2.0)
    assert Fraction(sampled.rate) < Fraction(1, 3) < Fraction(batch._in_when_full[1])
    assert batch.delta(0.2).relative_gap <= 1e-4
    assert runs == 1


@pytest.mark.parametrize(("at_most", "of"), [(1, 2), (3, 10**12)])
def test_the_least_rate_is_answered(at_most: int, of: int) -> None:
    batch = tb.Gaussian(1.0).truncated_poisson(1e-100, at_most, of)
    # whatever is revealed, the record was in the sample
    assert batch.delta(0.0).upper <= 1.0001e-100
    assert batch.delta(0.0).lower <= tb.Gaussian(1.0).subsampled(1e-100).delta(0.0).upper


@pytest.mark.one_in(4)
@pytest.mark.parametrize("size", [1, 8, 64, 256, 512])
@pytest.mark.parametrize("times", [100, 10_000])
def test_cuts_that_next_to_never_happen_cost_nothing(size: int, times: int) -> None:
    # the chance of a cut is below the least double, or above it
    rate, gaussian = size / 50_000, tb.Gaussian(4.0)
    cut = (gaussian.truncated_poisson(rate, 1056, 50_000) * times).epsilon(delta=1e-8)
    uncut = (gaussian.subsampled(rate) * times).epsilon(delta=1e-8)
    assert cut.lower <= uncut.upper
    assert uncut.lower <= cut.upper <= uncut.upper * (1 + 2e-4)


@pytest.mark.parametrize("chance", [(0.0, 0.0), (0.0, 5e-324), (0.0, 0.5), (1e-300, 0.25)])
def test_a_weight_has_a_logarithm_and_is_not_below_its_chance(chance: tuple[float, float]) -> None:
    low, high = _weighed(chance)
    assert 0.0 < low <= high
    assert high >= chance[1]
    assert low == high or (low, high) == chance


def test_lower_and_upper_bounds_close_up_where_cuts_are_rare() -> None:
    gaps = [
        (tb.Gaussian(1.0).truncated_poisson(0.01, most, 10_000) * 100).epsilon(1e-5).relative_gap
        for most in (120, 150, 180)
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] <= 1e-4


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda g: g.truncated_poisson(1.5, 2, 4), ParameterError, r"rate must be in \[0, 1\]"),
        (lambda g: g.truncated_poisson(1e-200, 2, 4), ParameterError, r"rate must be 0 or in"),
        (lambda g: g.truncated_poisson(0.5, 0, 4), ParameterError, "at_most must be an integer >"),
        (lambda g: g.truncated_poisson(0.5, 2, 0), ParameterError, "of must be an integer >= 1"),
        (lambda g: g.truncated_poisson(0.5, 2, 10**13), ParameterError, "of must be at most 1e12"),
        (
            lambda g: tb.ApproximateDP(1.0).truncated_poisson(0.5, 2, 4),
            ParameterError,
            "base must add noise that does not depend on its sensitivity",
        ),
        (
            lambda g: g.under("replace-one").truncated_poisson(0.5, 2, 4),
            RelationError,
            "a truncated Poisson sample holds for",
        ),
        (
            lambda g: g.truncated_poisson(0.5, 2, 4).under("replace-one"),
            RelationError,
            "was declared for Neighbouring.ADD_OR_REMOVE",
        ),
        (
            lambda g: tb.TruncatedPoisson(g, 0.5, 2, 4, relation=tb.Neighbouring.ZERO_OUT),
            RelationError,
            "a truncated Poisson sample holds for .* but Neighbouring.ZERO_OUT was declared",
        ),
    ],
)
def test_refusals(make, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(tb.Gaussian(1.0))


def test_it_is_read_back_from_its_table() -> None:
    batch = tb.Gaussian(1.0).truncated_poisson(0.01, 12, 1000)
    assert tb.Mechanism.from_dict(batch.to_dict()) == batch
    assert repr(batch) == ("Gaussian(sigma=1.0).truncated_poisson(rate=0.01, at_most=12, of=1000)")


def test_a_sample_of_it_has_two_ends_too() -> None:
    batch = tb.Gaussian(1.0).truncated_poisson(0.9, 1, 4)
    below = batch.instance()
    assert below is not None
    attained = below.parts[0][0].subsampled(0.5).delta(0.5)
    assert batch.subsampled(0.5).delta(0.5).lower <= attained.upper
