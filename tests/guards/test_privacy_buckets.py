"""The guards of the paper's buckets, each taken away: a bound must then be false."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from tests.exact import Composed, Outputs, normalised, response_delta
from tests.guards.mutants import Mutation, each, lose_a_truth

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


SPREAD = [5.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 5.0]
EVEN = [3.0, 1.0], [1.0, 3.0]
BROKEN = [5.0, 3.0, 1.0], [5.0, 4.0, 0.0]
DOWN = [0.2, 0.8], [0.98, 0.02]
FALL = [0.5, 0.5], [0.999, 0.001]
RISE = [0.99, 0.01], [0.5, 0.5]


def changed(
    name: str,
    function: str,
    line: str,
    becomes: str,
    true: Callable[[], bool],
    owner: Any = Buckets,
) -> Mutation:
    return Mutation(name, owner, function, ((line, becomes),), true)


MUTATIONS = [
    changed(
        "composition adds u",
        "compose",
        "u = self.u + other.u",
        "u = max(self.u, other.u)",
        lambda: chained([SPREAD] * 2, 1.3, 20),
    ),
    changed(
        "squaring adds to u",
        "squared",
        "math.ceil(self.u / 2) + 1",
        "math.ceil(self.u / 2)",
        lambda: alternating(SPREAD, 2, 1.3, 20),
    ),
    changed(
        "what may be misplaced is not corrected",
        "upper_delta",
        "self.n + j + self.u",
        "self.n + j",
        lambda: alternating(SPREAD, 1, 1.3, 8),
    ),
    changed(
        "the real error forgets what a composition puts into bucket -n",
        "compose",
        "real[0] = masses[0] * exp_down(min(reach, 690.0))",
        "pass",
        lambda: chained(
            [([4.0, 57.0, 27.0], [64.0, 59.0, 0.0])] * 3 + [([55.0, 1.0], [6.0, 19.0])] * 2,
            1.1189546503786565,
            20,
        ),
    ),
    changed(
        "the real error forgets what a leaf puts into bucket -n",
        "_atoms",
        "np.maximum(losses, edges[0])",
        "losses",
        lambda: chained(
            [([9.0, 15.0, 12.0], [80.0, 35.0, 0.0])] + [([55.0, 1.0], [20.0, 17.0])] * 3,
            1.1445088885041286,
            8,
        ),
        privacy_buckets,
    ),
    changed(
        "bucket -n keeps what is clamped to it",
        "_product",
        "total[n] = np.sum(total[: n + 1])",
        "pass",
        lambda: chained([FALL] * 2 + [RISE] * 3, 1.98**0.05, 20),
        privacy_buckets,
    ),
    changed(
        "squaring keeps bucket -n",
        "squared",
        "np.append(x[0], x[1::2] + x[2::2])",
        "np.append(0.0, x[1::2] + x[2::2])",
        lambda: chained([DOWN] + [RISE] * 3, 1.98**0.25, 8, squared=True),
    ),
    changed(
        "what rises above bucket n is infinite",
        "infinity_with",
        "* other.infinity + beyond",
        "* other.infinity",
        lambda: chained([SPREAD] * 2, 1.1, 20),
    ),
    changed(
        "the infinite stays infinite",
        "infinity_with",
        "self.infinity + (1.0 - self.infinity) * other.infinity",
        "self.infinity * other.infinity",
        lambda: chained([BROKEN] * 2, 1.1, 20),
    ),
    changed(
        "what only A can produce is infinite",
        "_leaf",
        "float(pair.p_only().upper[0])",
        "0.0",
        lambda: chained([BROKEN], 1.1, 20),
        privacy_buckets,
    ),
    changed(
        "a leaf's losses above f^n are infinite",
        "_leaf",
        "sum_up((a.upper - known) * (1 + 2 * UNIT))",
        "0.0",
        lambda: chained([SPREAD], 1.1, 2),
        privacy_buckets,
    ),
    changed(
        "A-masses that are swept out are infinite",
        "_swept",
        "add_up(self.infinity, swept)",
        "self.infinity",
        with_tiny_products,
    ),
    changed(
        "the upper end pays for rounding",
        "upper_delta",
        "off = self.rounding + 8 * UNIT * (epsilon + self.top)",
        "off = 0.0",
        lambda: chained([EVEN], 3.0 * (1 - 1e-13), 8),
    ),
    changed(
        "a loss that counts as at the edge is above it",
        "_leaf",
        "unknown + max(part.misplaced for part in parts)",
        "unknown",
        lambda: chained([EVEN], 3.0 * (1 - 1e-13), 8),
        privacy_buckets,
    ),
    Mutation(
        "the lower end pays for rounding",
        Buckets,
        "lower_delta",
        (
            (" * exp_down(-self.rounding) * (1 - 8 * UNIT)", ""),
            ("exp_up(add_up(epsilon, self.rounding)) * (1 + 8 * UNIT)", "math.exp(epsilon)"),
            ("sum_down", "np.sum"),
        ),
        lambda: responses(7),
    ),
]


@each(MUTATIONS)
def test_no_guard_can_be_taken_away(monkeypatch: pytest.MonkeyPatch, mutation: Mutation) -> None:
    lose_a_truth(monkeypatch, mutation)
