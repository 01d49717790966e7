"""The guards of the paper's buckets, each taken away: a bound must then be false."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from tests.exact import Composed, Outputs, normalised, response_delta
from tests.guards.mutants import Without, each, lose_a_truth
from tests.hostile import in_the_worst_order

import tightbudget as tb
from tightbudget import privacy_buckets
from tightbudget.privacy_buckets import Buckets

Masses = tuple[list[float], list[float]]

EPSILONS = [k / 40 for k in range(80)]


def holds(tree: Buckets, steps: list[Outputs]) -> bool:
    """Whether both ends are true wherever it is asked."""
    truth = Composed.of(steps)
    for epsilon in EPSILONS:
        low, high = truth.delta(epsilon)
        if not Fraction(tree.lower_delta(epsilon)) <= high:
            return False
        if not low <= Fraction(tree.upper_delta(epsilon)):
            return False
    return True


def chained(steps: list[Masses], factor: float, n: int, squared: bool = False) -> bool:
    """One after the other: outputs are clamped to bucket -n, and rise again."""
    leaves = [Buckets.of_masses(*pair, factor=factor, n=n) for pair in steps]
    tree, *others = [leaf.squared() for leaf in leaves] if squared else leaves
    for other in others:
        tree = tree.compose(other)
    return holds(tree, [normalised(*pair) for pair in steps])


def alternating(pair: Masses, times: int, factor: float, n: int) -> bool:
    """Squared after every self-composition."""
    tree = Buckets.of_masses(*pair, factor=factor, n=n)
    for _ in range(times):
        tree = tree.compose(tree).squared()
    return holds(tree, [normalised(*pair)] * 2**times)


def responses(runs: int) -> bool:
    """On its own lattice nothing but rounding separates both ends of randomised response."""
    for k in range(1, 64):
        p = 0.5 + k / 128
        tree = privacy_buckets.Trees.of(tb.RandomizedResponse(p) * runs, n=16).directions[0]
        low, high = response_delta(Fraction(p), runs, 0.01)
        if not Fraction(tree.lower_delta(0.01)) <= high:
            return False
        if not low <= Fraction(tree.upper_delta(0.01)):
            return False
    return True


def with_tiny_products() -> bool:
    """Products of the rare outputs leave the range of doubles."""
    pair = [1.0, 1e-100], [1.0, 1e-130]
    leaf = Buckets.of_masses(*pair, factor=2.0, n=300)
    low, high = Composed.of([normalised(*pair)] * 2).delta(100.0)
    tree = leaf.compose(leaf)
    return Fraction(tree.lower_delta(100.0)) <= high and low <= Fraction(tree.upper_delta(100.0))


def displaced_masses_hold() -> bool:
    """One run, whose masses are off by all that their rounding says, to the worse sides."""
    leaf, rounding = Buckets.of_masses(*EVEN, factor=3.0, n=4), 1e-6
    up, down = (math.exp(0.999 * sign * rounding) for sign in (1.0, -1.0))
    tree = dataclasses.replace(
        leaf, masses=leaf.masses * up, virtual=leaf.virtual * down, rounding=rounding
    )
    return all(
        Fraction(tree.lower_delta(k / 10)) <= Composed.of([normalised(*EVEN)]).delta(k / 10)[1]
        for k in range(10)
    )


def sums_in_any_order() -> bool:
    """Ten thousand buckets of the same mass, on a machine that loses what a sum may lose."""
    n = 5000
    mass = 2.0**-13
    masses, nothing = np.full(2 * n + 1, mass), np.zeros(2 * n + 1)
    tree = Buckets(0.01, masses, nothing, nothing, 0.0, 0, 0.0)
    with in_the_worst_order():
        return Fraction(tree.lower_delta(0.0)) <= Fraction(mass) * (2 * n + 1)


SPREAD = [5.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 5.0]
EVEN = [3.0, 1.0], [1.0, 3.0]
BROKEN = [5.0, 3.0, 1.0], [5.0, 4.0, 0.0]
DOWN = [0.2, 0.8], [0.98, 0.02]
FALL = [0.5, 0.5], [0.999, 0.001]
RISE = [0.99, 0.01], [0.5, 0.5]


MUTATIONS = [
    Without(
        "composition adds u",
        {"composition-adds-u": "u = max(self.u, other.u)"},
        lambda: chained([SPREAD] * 2, 1.3, 20),
    ),
    Without(
        "squaring adds to u",
        {
            "squaring-adds-u": (
                "return Buckets(2.0 * self.log_factor, merged(self.masses), "
                "merged(self.virtual), merged(self.real), self.infinity, "
                "math.ceil(self.u / 2), self.rounding + 2 * UNIT)"
            )
        },
        lambda: alternating(SPREAD, 2, 1.3, 20),
    ),
    Without(
        "what may be misplaced is not corrected",
        {"misplaced-corrected": "first = min(self.n + j, losses.size)"},
        lambda: alternating(SPREAD, 1, 1.3, 8),
    ),
    Without(
        "the real error forgets what a composition puts into bucket -n",
        {"real-error-forgets-composition": "pass"},
        lambda: chained(
            [([4.0, 57.0, 27.0], [64.0, 59.0, 0.0])] * 3 + [([55.0, 1.0], [6.0, 19.0])] * 2,
            1.1189546503786565,
            20,
        ),
    ),
    Without(
        "the real error forgets what a leaf puts into bucket -n",
        {
            "real-error-forgets-leaf-puts": (
                "quotient = Enclosure(exp_enclosure(-losses).lower, "
                "exp_enclosure(-atoms.loss_lower).upper)"
            )
        },
        lambda: chained(
            [([9.0, 15.0, 12.0], [80.0, 35.0, 0.0])] + [([55.0, 1.0], [20.0, 17.0])] * 3,
            1.1445088885041286,
            8,
        ),
    ),
    Without(
        "bucket -n keeps what is clamped to it",
        {"bucket-n-keeps-clamped": "pass"},
        lambda: chained([FALL] * 2 + [RISE] * 3, 1.98**0.05, 20),
    ),
    Without(
        "squaring keeps bucket -n",
        {"squaring-keeps-bucket-n": ("return np.pad(np.append(0.0, x[1::2] + x[2::2]), quarter)")},
        lambda: chained([DOWN] + [RISE] * 3, 1.98**0.25, 8, squared=True),
    ),
    Without(
        "what rises above bucket n is infinite",
        {
            "rises-above-bucket-n-infinite": (
                "return self.infinity + (1.0 - self.infinity) * other.infinity"
            )
        },
        lambda: chained([SPREAD] * 2, 1.1, 20),
    ),
    Without(
        "the infinite stays infinite",
        {"rises-above-bucket-n-infinite": ("return self.infinity * other.infinity + beyond")},
        lambda: chained([BROKEN] * 2, 1.1, 20),
    ),
    Without(
        "what only A can produce is infinite",
        {
            "only-produce-infinite": (
                "infinity = add_up(0.0, sum_up((a.upper - known) * (1 + 2 * UNIT)))"
            )
        },
        lambda: chained([BROKEN], 1.1, 20),
    ),
    Without(
        "a leaf's losses above f^n are infinite",
        {"only-produce-infinite": "infinity = add_up(float(pair.p_only().upper[0]), 0.0)"},
        lambda: chained([SPREAD], 1.1, 2),
    ),
    Without(
        "A-masses that are swept out are infinite",
        {
            "masses-swept-out-infinite": (
                "return dataclasses.replace(self, masses=np.where(kept, self.masses, "
                "0.0), virtual=np.where(kept, np.maximum(self.virtual, _NORMAL), 0.0), "
                "real=np.where(kept & (self.real >= _NORMAL), self.real, 0.0), "
                "infinity=min(1.0, self.infinity))"
            )
        },
        with_tiny_products,
    ),
    Without(
        "the upper bound pays for rounding",
        {"upper-bound-pays-rounding": "off = 0.0"},
        lambda: chained([EVEN], 3.0 * (1 - 1e-13), 8),
    ),
    Without(
        "a loss that counts as at the edge is above it",
        {"loss-counts-edge-above": "rounding = unknown"},
        lambda: chained([EVEN], 3.0 * (1 - 1e-13), 8),
    ),
    Without(
        "the lower bound pays for the rounding of A-masses",
        {"lower-bound-pays-rounding-1": "a = self.masses"},
        displaced_masses_hold,
    ),
    Without(
        "the lower bound pays for the rounding of B-masses",
        {"lower-bound-pays-rounding-2": "gain = a - self.virtual * (math.exp(epsilon))"},
        displaced_masses_hold,
    ),
    Without(
        "the lower bound pays for its sum",
        {"lower-bound-pays-rounding-3": "return np.sum(np.where(gain > 0.0, gain, 0.0))"},
        sums_in_any_order,
    ),
]


@each(MUTATIONS)
def test_no_guard_can_be_taken_away(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
