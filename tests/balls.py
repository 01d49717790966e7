"""Exact values as Arb balls (python-flint), whatever the precision that the test has set."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from flint import arb, fmpq

from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.enclosure import Enclosure
from tightbudget.pairs.pair import Bins, Pair


def ball(x: float | Fraction | arb) -> arb:
    """The number itself: a double counts as the exact number that it is."""
    return arb(fmpq(x.numerator, x.denominator)) if isinstance(x, Fraction) else arb(x)


def contains(enclosure: Enclosure, i: int, truth: arb) -> bool:
    """Whether entry i holds the truth; False also when the ball is too wide to tell."""
    assert truth.rel_accuracy_bits() > 60 or truth == 0, "the truth itself is not known"
    lower, upper = float(enclosure.lower[i]), float(enclosure.upper[i])
    return bool(arb(lower) <= truth) and (np.isinf(upper) or bool(truth <= arb(upper)))


def mass(left: arb | None, right: arb | None) -> arb:
    """P(left < N <= right) of a standard normal N, from the nearer tails; None is infinite."""
    root = arb(2).sqrt()

    def above(z: arb) -> arb:
        return (z / root).erfc() / 2

    if left is None:
        return arb(1) if right is None else above(-arb(right))
    if right is None:
        return above(arb(left))
    left, right = arb(left), arb(right)
    return above(-right) - above(-left) if right < 0 else above(left) - above(right)


def bins_of(pair: Pair, edges: np.ndarray) -> Bins:
    """The pair's bins between edges that are exactly these doubles."""
    bins = pair.bins(edges, np.zeros(edges.size))
    assert bins is not None
    return bins


def inside(bounds: Bounds, truth: arb) -> bool:
    """Whether the truth lies between both ends for certain."""
    assert truth.rel_accuracy_bits() > 40, "the truth itself is not known"
    return bool(arb(bounds.lower) <= truth) and bool(truth <= arb(bounds.upper))
