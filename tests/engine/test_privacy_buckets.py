"""The paper's buckets: against its definitions in rationals, the exact value, and the engine."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import CASES, Case, each_case, slow_unless_core
from tests.exact import Composed, Outputs, normalised, response_delta, reversed_

import tightbudget as tb
from tightbudget import privacy_buckets
from tightbudget.engine.question import DeltaAt
from tightbudget.numerics.bounds import Bounds
from tightbudget.privacy_buckets import Buckets, Trees, r_fold

# ------------------------------------------------------------------ the paper's own words


@dataclasses.dataclass(frozen=True)
class Tree:
    """Definitions 4, 7 and 9 as they are printed, in rationals; i runs over -n .. n."""

    f: Fraction
    n: int
    B: dict[int, Fraction]
    virtual: dict[int, Fraction]
    real: dict[int, Fraction]
    infinity: Fraction
    u: int = 1
    printed: bool = False  # the virtual error of bucket -n by V, not by Lemma 11

    @staticmethod
    def leaf(outputs: Outputs, f: Fraction, n: int, printed: bool = False) -> Tree:
        B, virtual = dict.fromkeys(range(-n, n + 1), Fraction(0)), {}
        errors = dict(B)
        infinity = Fraction(0)
        for a, b in outputs:
            i = next((i for i in range(-n, n + 1) if a <= f**i * b), None)
            if i is None:
                infinity += a
            elif a:  # what only B can produce is left out: it has no part in any delta
                B[i] += a
                errors[i] += b - a / f**i
        virtual = errors
        return Tree(f, n, B, virtual, {**virtual, -n: Fraction(0)}, infinity, 1, printed)

    def compose(self, other: Tree) -> Tree:
        f, n = self.f, self.n
        B, virtual, real = (dict.fromkeys(range(-n, n + 1), Fraction(0)) for _ in range(3))
        infinity = 1 - (1 - self.infinity) * (1 - other.infinity)
        for j, k in itertools.product(self.B, other.B):
            a = self.B[j] * other.B[k]
            i = max(j + k, -n)
            if i > n:
                infinity += a
                continue
            B[i] += a
            b = (self.B[j] / f**j + self.virtual[j]) * (other.B[k] / f**k + other.virtual[k])
            virtual[i] += b - a / f ** (j + k if self.printed else i)
            b = (self.B[j] / f**j + self.real[j]) * (other.B[k] / f**k + other.real[k])
            real[i] += b - a / f ** (j + k)
        real[-n] = Fraction(0)
        return Tree(f, n, B, virtual, real, infinity, self.u + other.u, self.printed)

    def squared(self) -> Tree:
        f, n = self.f, self.n
        B, virtual, real = (dict.fromkeys(range(-n, n + 1), Fraction(0)) for _ in range(3))
        for i in range(-n // 2 + 1, n // 2 + 1):
            step = self.B[2 * i - 1] * (1 / f ** (2 * i - 1) - 1 / f ** (2 * i))
            B[i] = self.B[2 * i - 1] + self.B[2 * i]
            virtual[i] = self.virtual[2 * i - 1] + step + self.virtual[2 * i]
            real[i] = self.real[2 * i - 1] + step + self.real[2 * i]
        B[-n // 2], virtual[-n // 2] = self.B[-n], self.virtual[-n]
        u = -(-self.u // 2) + 1
        return Tree(f * f, n, B, virtual, real, self.infinity, u, self.printed)

    def upper(self, e: Fraction) -> Fraction:
        n, j = self.n, next((j for j in range(self.n + 1) if self.f**j >= e), self.n + 1)
        total = self.infinity
        for i in range(j, n + 1):
            correction = self.real[i] if i >= j + self.u else 0
            total += self.B[i] - e * (self.B[i] / self.f**i + correction)
        return total

    def lower(self, e: Fraction) -> Fraction:
        parts = (self.B[i] - e * (self.B[i] / self.f**i + self.virtual[i]) for i in self.B)
        return sum((max(Fraction(0), part) for part in parts), Fraction(0))


# A composition tree's shape: outputs of leaves, "x" for composition, "s" for squaring.
Shape = Any


def leaves(shape: Shape) -> list[Outputs]:
    kind, *rest = shape
    return [rest[0]] if kind == "leaf" else [x for part in rest for x in leaves(part)]


def built(shape: Shape, leaf: Callable[[Outputs], Any]) -> Any:
    kind, *rest = shape
    if kind == "leaf":
        return leaf(rest[0])
    parts = [built(part, leaf) for part in rest]
    if kind == "squared":
        return parts[0].squared()
    # factors must be equal: the finer one is squared
    a, b = parts
    size = (lambda t: t.f) if isinstance(a, Tree) else (lambda t: t.log_factor)
    while size(a) < size(b):
        a = a.squared()
    while size(b) < size(a):
        b = b.squared()
    return a.compose(b)


def bucketed(outputs: Outputs, f: Fraction, n: int) -> Buckets:
    p, q = ([float(x) for x in side] for side in zip(*outputs, strict=True))
    return Buckets.of_masses(p, q, factor=float(f), n=n)


@st.composite
def pairs(draw: st.DrawFn) -> Outputs:
    size = draw(st.integers(2, 4))
    one = Fraction(1)
    weights = st.integers(0, 12)
    # multiples of 1/64 with sum 1: exact as doubles, and so is their total
    p, q = (
        [Fraction(x, 64) for x in draw(st.lists(weights, min_size=size, max_size=size))]
        for _ in range(2)
    )
    return (*zip(p, q, strict=True), (one - sum(p), one - sum(q)))


def shapes(depth: int = 4) -> st.SearchStrategy[Shape]:
    leaf = st.tuples(st.just("leaf"), pairs())
    return st.recursive(
        leaf,
        lambda parts: st.one_of(
            st.tuples(st.just("x"), parts, parts), st.tuples(st.just("squared"), parts)
        ),
        max_leaves=depth,
    )


FACTORS = [Fraction(9, 8), Fraction(5, 4), Fraction(2)]
EPSILONS = [0.0, 0.1, math.log(2.0), 1.3, 4.0]


@pytest.mark.slow
@settings(max_examples=150)
@given(shape=shapes(), f=st.sampled_from(FACTORS), n=st.sampled_from([2, 4, 12]))
def test_every_bucket_is_the_definitions(shape: Shape, f: Fraction, n: int) -> None:
    exact: Tree = built(shape, lambda outputs: Tree.leaf(outputs, f, n))
    found: Buckets = built(shape, lambda outputs: bucketed(outputs, f, n))
    assert (found.n, found.u) == (exact.n, exact.u)
    assert found.factor == pytest.approx(float(exact.f), rel=1e-14)
    assert found.infinity == pytest.approx(float(exact.infinity), rel=1e-12, abs=1e-13)
    for numbers, truth in (
        (found.masses, exact.B),
        (found.virtual_error, exact.virtual),
        (found.real_error, exact.real),
    ):
        expected = [float(truth[i]) for i in found.indexes]
        assert numbers.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-13)


@pytest.mark.slow
@settings(max_examples=200)
@given(shape=shapes(), f=st.sampled_from(FACTORS), n=st.sampled_from([2, 6, 40]))
def test_both_ends_hold_the_exact_value(shape: Shape, f: Fraction, n: int) -> None:
    found: Buckets = built(shape, lambda outputs: bucketed(outputs, f, n))
    truth = Composed.of(leaves(shape))
    for epsilon in EPSILONS:
        low, high = truth.delta(epsilon)
        bounds = found.delta(epsilon)
        assert Fraction(bounds.lower) <= high
        assert low <= Fraction(bounds.upper)


@pytest.mark.slow
@settings(max_examples=60)
@given(shape=shapes(), f=st.sampled_from(FACTORS), n=st.sampled_from([2, 6, 12]))
def test_both_ends_are_definition_9(shape: Shape, f: Fraction, n: int) -> None:
    exact: Tree = built(shape, lambda outputs: Tree.leaf(outputs, f, n))
    found: Buckets = built(shape, lambda outputs: bucketed(outputs, f, n))
    # not at a bucket's edge, where rounding decides on which side of it e^eps is
    for e in (Fraction(101, 100), Fraction(17, 10), Fraction(7)):
        bounds = found.delta(math.log(e))
        assert bounds.lower == pytest.approx(float(exact.lower(e)), rel=1e-9, abs=1e-12)
        assert bounds.upper == pytest.approx(min(1.0, float(exact.upper(e))), rel=1e-9, abs=1e-12)


def test_the_lowest_bucket_holds_all_of_its_b_mass() -> None:
    # Lemma 11 says so of the virtual error; V alone loses what is clamped, here all 16/25 but 4/25
    outputs = normalised([4.0, 1.0], [1.0, 4.0])
    twice = [
        leaf.compose(leaf)
        for leaf in (Tree.leaf(outputs, Fraction(2), 2, printed) for printed in (True, False))
    ]
    assert [t.virtual[-2] + t.B[-2] * t.f**2 for t in twice] == [Fraction(4, 25), Fraction(16, 25)]
    leaf = bucketed(outputs, Fraction(2), 2)
    assert leaf.compose(leaf).virtual[0] == pytest.approx(16 / 25)


# ---------------------------------------------------------------------------- any mechanism


def engine(composition: tb.Composition, epsilon: float) -> Bounds:
    """Bounds of the delta of the dominating pairs; a theorem may know a smaller one."""
    return composition.engine.answer(DeltaAt(epsilon), 0.1).bounds


@pytest.mark.one_in(6)
@each_case
def test_the_interval_overlaps_the_engines(case: Case) -> None:
    for runs in (1, 9):
        trees = Trees.of(case.mechanism * runs, n=128)
        for epsilon in (0.0, 0.4, 2.0):
            bounds = trees.delta(epsilon)
            assert bounds.overlaps(engine(case.mechanism * runs, epsilon)), (runs, epsilon)


NEIGHBOURS = [
    (one, two)
    for one, two in zip(CASES[::7], CASES[3::7], strict=False)
    # runs whose theorems hold for different relations do not compose
    if len({one.mechanism.relation, two.mechanism.relation} - {None}) < 2
]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        pytest.param(*both, marks=[mark for case in both for mark in slow_unless_core(case)])
        for both in NEIGHBOURS
    ],
    ids=lambda case: case.name,
)
def test_different_mechanisms_overlap_the_engine_together(one: Case, two: Case) -> None:
    composition = tb.compose([one.mechanism * 3, two.mechanism * 2])
    trees = Trees.of(composition, n=128)
    for epsilon in (0.0, 0.4, 2.0):
        assert trees.delta(epsilon).overlaps(engine(composition, epsilon)), epsilon


def test_both_directions_are_asked() -> None:
    one_way = tb.HistogramPair((8.0, 1.0, 1.0), (5.0, 5.0, 0.0)) * 2
    outputs = normalised((8.0, 1.0, 1.0), (5.0, 5.0, 0.0))
    both = [Composed.of([o] * 2).delta(0.1) for o in (outputs, reversed_(outputs))]
    bounds = privacy_buckets.delta(one_way, 0.1, n=512)
    assert Fraction(bounds.lower) <= max(high for _, high in both)
    assert max(low for low, _ in both) <= Fraction(bounds.upper)
    assert len(Trees.of(one_way, n=8).directions) == 2
    assert len(Trees.of(tb.Laplace(1.0), n=8).directions) == 1
    removed = Buckets.of(tb.HistogramPair((8.0, 1.0, 1.0), (5.0, 5.0, 0.0)), n=512)
    added = Buckets.of(
        tb.HistogramPair((8.0, 1.0, 1.0), (5.0, 5.0, 0.0)),
        n=512,
        direction=tb.mechanisms.Direction.ADD,
    )
    assert removed.infinity == pytest.approx(0.1)
    assert added.infinity == 0.0


def test_laplace_leaves_are_the_closed_form() -> None:
    # section 5.1: between the atoms at -m and m, e^(-(m - l)/2) / 4 dl
    m, n = 0.5, 64
    leaf = Buckets.of(tb.Laplace(2.0), n=n)
    assert leaf.log_factor * n / 2 == pytest.approx(m, rel=1e-15)
    with ctx.workprec(200):
        step = arb(leaf.log_factor)
        for i in range(-n // 2 + 1, n // 2):
            left, right = ((step * k - m) / 2 for k in (i - 1, i))
            a = (right.exp() - left.exp()) / 2
            b = ((-left - m).exp() - (-right - m).exp()) / 2
            for found, truth in ((leaf.masses, a), (leaf.virtual, b), (leaf.real, b)):
                assert abs(found[i + n] / float(truth) - 1) <= leaf.rounding
    assert leaf.masses[n // 2] == pytest.approx(math.exp(-m) / 2, rel=1e-13)
    assert leaf.masses[n // 2 + n] > 0.5  # and the last bucket's part of the continuum
    # the atoms are at their buckets' edges: nothing is to be corrected
    assert leaf.virtual_error[n // 2] <= 1e-14


# ------------------------------------------------------------------------------------ width


PAPERS = [
    (tb.Laplace(200.0), 512, 0.2, 2e-3),
    (tb.Gaussian(200.0 * math.sqrt(2.0)), 512, 0.2, 0.03),
    (tb.RandomizedResponse(0.51), 512, 1.0, 1e-6),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("mechanism", "runs", "epsilon", "gap"), PAPERS)
def test_error_correction_closes_the_gap(
    mechanism: tb.Mechanism, runs: int, epsilon: float, gap: float
) -> None:
    tree = Trees.of(mechanism * runs, n=8192).directions[0]
    bounds = tree.delta(epsilon)
    assert bounds.relative_gap <= gap
    assert bounds.overlaps((mechanism * runs).delta(epsilon))


def test_without_error_correction_the_gap_is_wide() -> None:
    leaf = Buckets.of(tb.Laplace(200.0), n=8192)
    tree = r_fold(leaf, 512)
    gains = np.maximum(0.0, -np.expm1(0.2 - tree.log_factor * tree.indexes))
    definition_5 = tree.infinity + float(np.sum(tree.masses * gains))
    bounds = tree.delta(0.2)
    assert definition_5 - bounds.lower > 8 * bounds.width


# ------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize("runs", [1, 2, 3, 6, 7, 19, 64])
def test_any_number_of_runs(runs: int) -> None:
    p = Fraction(3, 4)
    tree = r_fold(Buckets.of(tb.RandomizedResponse(0.75), n=256), runs)
    for epsilon in (0.0, 0.7, 3.0):
        low, high = response_delta(p, runs, epsilon)
        bounds = tree.delta(epsilon)
        assert Fraction(bounds.lower) <= high
        assert low <= Fraction(bounds.upper)
        assert bounds.relative_gap <= 1e-2


def test_nothing_costs_nothing() -> None:
    assert privacy_buckets.delta(tb.Laplace(1.0) * 0, 0.0, n=4).upper <= 1e-13


def test_the_factor_is_squared_where_bucket_inf_would_grow() -> None:
    # loss ln 3 with probability 3/4 in bucket n: T x T would put 9/16 into bucket inf
    tight = Buckets.of_masses([3.0, 1.0], [1.0, 3.0], factor=3.0 ** (1 / 8), n=8)
    assert tight.infinity_with(tight) == pytest.approx(9 / 16)
    twice = r_fold(tight, 2)
    assert twice.factor == pytest.approx(3.0 ** (1 / 4))
    assert twice.infinity < 1e-300
    assert twice.u == 4
    # unless so much is free
    careless = r_fold(tight, 2, free_infty_budget=0.6)
    assert (careless.factor, careless.u) == (tight.factor, 2)
    assert careless.infinity == pytest.approx(9 / 16)
    # or bucket inf only doubles: 1 - (1 - x)^2 is no more than 2 x
    infinite = Buckets.of_masses([0.5, 0.25, 0.25], [0.5, 0.5, 0.0], factor=1.5, n=8)
    assert r_fold(infinite, 2).factor == infinite.factor


def test_leaves_of_different_factors_meet_by_squarings() -> None:
    narrow, wide = tb.Laplace(1.0), tb.Laplace(37.0)
    reaches = [Buckets.of(m, n=64).log_factor for m in (narrow, wide)]
    tree = Trees.of(narrow + wide, n=64).directions[0]
    # 1 and 1/37: the wide one starts five squarings finer
    assert tree.log_factor == reaches[0]
    assert tree.u == 1 + 2
    assert tree.delta(0.5).relative_gap < 0.05
    fixed = Trees.of(narrow + wide, factor=1.05, n=64).directions[0]
    assert fixed.factor == pytest.approx(1.05)
    assert fixed.u == 2


# ------------------------------------------------------------------------------------ epsilon


def test_epsilon_is_where_delta_falls_below() -> None:
    trees = Trees.of(tb.Laplace(2.0) * 4, n=512)
    for delta in (0.3, 1e-2, 1e-6):
        bounds = trees.epsilon(delta)
        assert bounds.overlaps((tb.Laplace(2.0) * 4).epsilon(delta))
        assert bounds.relative_gap < 0.02
        assert trees.delta(bounds.upper).upper <= delta
        assert trees.delta(bounds.lower).lower > delta
    assert trees.epsilon(1.0) == Bounds(0.0, 0.0)
    assert trees.directions[0].epsilon(1e-2) == trees.epsilon(1e-2)


def test_no_epsilon_reaches_below_the_infinite_mass() -> None:
    leaf = Buckets.of_masses([0.5, 0.25, 0.25], [0.5, 0.5, 0.0], factor=1.1, n=16)
    assert leaf.epsilon(0.2).upper == math.inf
    assert leaf.epsilon(0.26).upper < math.inf
    assert leaf.delta(1000.0).upper == leaf.infinity


# ----------------------------------------------------------------------------- far from one


def test_masses_too_small_to_multiply_are_infinite() -> None:
    pair = [1.0, 1e-120], [1.0, 1e-160]
    leaf = Buckets.of_masses(*pair, factor=2.0, n=200)
    twice = leaf.compose(leaf)
    assert leaf.infinity == 0.0
    assert 1e-240 <= twice.infinity <= 1.001e-240
    assert np.all((twice.masses == 0.0) | (twice.masses >= 1e-150))
    truth = Composed.of([normalised(*pair)] * 2)
    for epsilon in (0.0, 50.0, 100.0):
        low, high = truth.delta(epsilon)
        bounds = twice.delta(epsilon)
        assert Fraction(bounds.lower) <= high
        assert low <= Fraction(bounds.upper)


def test_losses_beyond_all_doubles() -> None:
    run = tb.Laplace(1e-3) * 3
    for epsilon in (0.0, 300.0, 1500.0):
        assert privacy_buckets.delta(run, epsilon, n=64).overlaps(run.delta(epsilon))


# ---------------------------------------------------------------------------------- promises


def test_verbs_return_new_values() -> None:
    leaf = Buckets.of(tb.Laplace(1.0), n=16)
    before = [x.copy() for x in (leaf.masses, leaf.virtual, leaf.real)]
    leaf.squared().compose(leaf.squared())
    r_fold(leaf, 5)
    for old, now in zip(before, (leaf.masses, leaf.virtual, leaf.real), strict=True):
        assert np.array_equal(old, now)
    with pytest.raises(dataclasses.FrozenInstanceError):
        leaf.u = 3  # type: ignore[misc]


LAPLACE = tb.Laplace(1.0)
REFUSALS: list[tuple[Callable[[], object], str]] = [
    (lambda: Buckets.of(1.0), "mechanism must be a tightbudget mechanism, got 1.0"),  # type: ignore[arg-type]
    (lambda: Buckets.of(LAPLACE, factor=1.0), "factor must be > 1, got 1.0"),
    (lambda: Buckets.of(LAPLACE, factor=math.nan), "factor must be a finite number, got nan"),
    (lambda: Buckets.of(LAPLACE, n=7), "n must be even, got 7"),
    (lambda: Buckets.of(LAPLACE, n=0), "n must be an integer >= 1, got 0"),
    (lambda: Trees.of(3), "composition must be a mechanism or a composition, got 3"),  # type: ignore[arg-type]
    (lambda: Trees.of(LAPLACE, n=3), "n must be even, got 3"),
    (lambda: r_fold(Buckets.of(LAPLACE, n=4), 0), "runs must be an integer >= 1, got 0"),
    (
        lambda: privacy_buckets.delta(LAPLACE, 1.0, n=4, free_infty_budget=-1.0),
        "free_infty_budget must be a finite number >= 0, got -1.0",
    ),
    (
        lambda: privacy_buckets.delta(LAPLACE, -1.0, n=4),
        "epsilon must be a finite number >= 0, got -1.0",
    ),
    (lambda: Trees.of(LAPLACE, n=4).epsilon(2.0), "delta must be in [0, 1], got 2.0"),
]


@pytest.mark.parametrize(("asked", "message"), REFUSALS)
def test_refusals_say_what_is_wrong(asked: Callable[[], object], message: str) -> None:
    with pytest.raises(tb.ParameterError) as caught:
        asked()
    assert str(caught.value) == message


def test_trees_of_different_buckets_do_not_compose() -> None:
    leaf = Buckets.of(LAPLACE, factor=1.5, n=8)
    for other in (leaf.squared(), Buckets.of(LAPLACE, factor=1.5, n=10)):
        with pytest.raises(tb.errors.GridError) as caught:
            leaf.compose(other)
        assert str(caught.value) == (
            f"trees differ: factor {leaf.factor!r} and {other.factor!r}, n = 8 and {other.n}"
        )
