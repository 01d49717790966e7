"""Masses on the points of one grid: upper ones dominate, lower ones are dominated.

Every entry is a bound of its own: rounding raises upper masses and lowers lower ones. So no error
is carried along, and no tilt is needed to keep errors small where delta is made.

Source: Meiser, Mohammadi 2018 (privacy buckets); Doroshenko et al. 2022 (spreading).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.convolve import convolve_by_blocks
from tightbudget.numerics.rounding import (
    TINY,
    UNIT,
    FloatArray,
    add_up,
    exp_up,
    expm1_up,
    next_down,
    scale_down,
    scale_up,
    sub_up,
    sum_down,
    sum_up,
)

RATIO = 4  # of the steps of two neighbouring grids: two doublings
# Steps of its grid that the labels of lower masses may be off: ten times what one placing moves.
_SHIFT = 20.0
_LEAST = 1e-290  # outputs with a smaller P-mass are left out
_MOST = 1e140  # outputs whose excess is so many times their P-mass are left out, too


@dataclass(frozen=True)
class Upper:
    """Masses on points of one grid: (u, u e^-x) dominates the losses that lie there.

    Attributes:
        first: the number of the first point, counted from the grid's origin.
        u: (n,) the masses.
    """

    first: int
    u: FloatArray

    @property
    def mass(self) -> FloatArray:
        """Returns the P-mass of each point."""
        return self.u

    def part(self, start: int, end: int) -> Upper:
        """Returns the points start .. end - 1 of these alone."""
        return Upper(self.first + start, self.u[start:end])

    def __add__(self, other: Upper) -> Upper:
        """Adds the masses of two measures on one grid."""
        first, (u,) = _aligned((self.first, (self.u,)), (other.first, (other.u,)))
        return Upper(first, scale_up(u, 1))

    # Proof: proofs/order.v, theorems products, adaptive, repeated, products_of_laws
    def convolved(self, other: Upper, decay: float = 0.0) -> Upper:
        """Composes two measures, whose losses add up.

        Masses fall by e^-decay from a point to the next, where they matter.
        """
        u, error = convolve_by_blocks(self.u, other.u, decay)
        return Upper(self.first + other.first, scale_up(u + error, 1))

    # Proof: proofs/order.v, theorem bucket_spread
    def doubled(self, step: float) -> Upper:
        """Spreads the masses on every second point: an odd point's mass goes to both neighbours.

        The shares 1/(1 + e^h) and 1/(1 + e^-h) keep both P- and Q-mass.
        """
        odd = self.first % 2
        u = np.concatenate([np.zeros(odd), self.u])
        u = np.append(u, 0.0) if u.size % 2 == 0 else u
        # mass goes right, never left
        left = max(0.0, next_down(1.0 / add_up(1.0, exp_up(step))))
        new, moved = u[0::2].copy(), u[1::2]
        new[:-1] += left * moved
        new[1:] += (1.0 - left) * moved
        # 1 - left, two products and two sums
        return Upper((self.first - odd) // 2, scale_up(new, 3))

    def settled(self, step: float) -> Upper:
        """Itself: upper masses have no labels."""
        return self

    def placed(self, step: float) -> Upper:
        """Spreads the masses on the grid of every fourth point."""
        return self.doubled(step).doubled(2.0 * step)

    def delta(self, losses: FloatArray, slack: FloatArray, epsilon: float) -> float:
        """An upper bound of what these points contribute to delta(epsilon)."""
        gain = -np.expm1(np.minimum(0.0, (epsilon - losses) - slack - _off(losses, epsilon)))
        return sum_up(scale_up(self.u * gain, 4))


@dataclass(frozen=True)
class Lower:
    """A pair on points of one grid that is a post-processing of the exact one.

    Outputs have the P-mass p and the Q-mass (p + r) e^-(x + shift) at the point x. The point is a
    label: an output's loss is at most x + shift, and close to x. Keeping the excess r in place of
    the Q-mass keeps its digits: near a loss of 0 both masses are almost the same.

    Rounding lowers p and raises r, each relative to itself, and moves no loss: a share p / p* of an
    output (p*, r*) has the masses p and (p + r* p / p*) e^-(x + shift), the rest of it is left out.

    Attributes:
        first: the number of the first point, counted from the grid's origin.
        p, r: (n,) the masses.
        shift: nats, >= 0.
    """

    first: int
    p: FloatArray
    r: FloatArray
    shift: float

    @property
    def mass(self) -> FloatArray:
        """Returns the P-mass of each point."""
        return self.p

    def part(self, start: int, end: int) -> Lower:
        """Returns the points start .. end - 1 of these alone."""
        return Lower(self.first + start, self.p[start:end], self.r[start:end], self.shift)

    @np.errstate(over="ignore")
    def shifted(self, shift: float) -> Lower:
        """Returns these outputs with a larger shift."""
        if shift == self.shift:
            return self
        moved = expm1_up(sub_up(shift, self.shift))
        if moved == math.inf:  # no such Q-mass is a double: the outputs are left out
            return Lower(self.first, 0.0 * self.p, 0.0 * self.r, shift)
        # the sum, the product, and the sum with r
        return Lower(self.first, self.p, scale_up(self.r + (self.p + self.r) * moved, 3), shift)

    def settled(self, step: float) -> Lower:
        """Cuts the shift back to what labels need: a product adds shifts, whatever they are for.

        A smaller shift asks for a larger Q-mass where an output's loss would be above it, which
        few losses are: a label is moved by 2 steps at most each time it is placed.
        """
        shift = _SHIFT * step
        if self.shift <= shift:
            return self
        moved = sub_up(shift, self.shift)
        # (p + r) e^moved - p, of which the first term falls and the second one is negative
        kept, gone = self.r * exp_up(moved), self.p * expm1_up(moved)
        r = np.maximum(0.0, kept + gone) + (kept - gone) * (4 * UNIT)
        return Lower(self.first, self.p, r, shift)

    def __add__(self, other: Lower) -> Lower:
        """Adds the outputs of two pairs on one grid; outputs at one point are merged."""
        shift = max(self.shift, other.shift)
        one, two = self.shifted(shift), other.shifted(shift)
        first, (p, r) = _aligned((one.first, (one.p, one.r)), (two.first, (two.p, two.r)))
        return Lower(first, *lowered(p, r, p * UNIT, r * UNIT), shift)

    # Proof: proofs/order.v, theorems merging, products, adaptive, repeated
    def convolved(self, other: Lower, decay: float = 0.0) -> Lower:
        """Composes two pairs; outputs with equal sums of points are merged.

        Masses fall by e^-decay from a point to the next, where they matter.
        """
        p, error = convolve_by_blocks(self.p, other.p, decay)
        # q q' - p p' = p r' + r q'
        one, off = convolve_by_blocks(self.p, other.r, decay)
        two, by = convolve_by_blocks(self.r, scale_up(other.p + other.r, 1), decay)
        # the sum of both, each within its own error
        r = one + two
        p, r = lowered(p, r, error, off + by + r * UNIT)
        # a sum of shifts that is rounded down would make the Q-mass larger than it is needed, and
        # one that is rounded up smaller: r pays for that
        shift = self.shift + other.shift
        return Lower(self.first + other.first, p, r + (p + r) * (4 * UNIT * shift), shift)

    # Proof: proofs/order.v, theorem merging
    @np.errstate(over="ignore")
    def placed(self, step: float) -> Lower:
        """Merges each point into the nearest one of the grid of every fourth point.

        Of two that are equally near it is the one nearer to the origin, so that what lies around
        the origin stays one output.
        """
        n = self.first + np.arange(self.p.size)
        to = np.sign(n) * ((np.abs(n) + 1) // RATIO)
        first = int(to[0])
        # a label that moves by d, from -2 to 2 steps, makes the Q-mass e^(d + 2 steps) times as
        # large, beside the new shift
        moved = (RATIO * to - n + 2) * step
        # beyond e^700 an output has no Q-mass that is a double: it is left out
        p, r = (np.where(moved < 700.0, x, 0.0) for x in (self.p, self.r))
        rise = np.expm1(np.minimum(moved, 700.0))
        p, r = _binned(to - first, p), _binned(to - first, r + (p + r) * rise)
        # at most five terms, each of two sums and a product; expm1 by 8 units, 4 steps by one
        units = (16 + 8.0 * step) * UNIT
        p, r = lowered(p, r, p * (4 * UNIT), r * units)
        shift = self.shift + 2.0 * step
        return Lower(first, p, r + (p + r) * (4 * UNIT * shift), shift)

    @np.errstate(over="ignore")
    def delta(self, losses: FloatArray, slack: FloatArray, epsilon: float) -> float:
        """A lower bound of what these outputs contribute to delta(epsilon)."""
        apart = (epsilon - self.shift) - losses
        off = slack + 4 * UNIT * (np.abs(losses) + abs(epsilon) + self.shift)
        apart = np.minimum(700.0, apart + off)
        gain = scale_down(self.p * -np.expm1(np.minimum(0.0, apart)), 4)
        price = scale_up(self.r * np.exp(apart), 4)
        return sum_down(scale_down(np.maximum(0.0, gain - price), 1))


Level = TypeVar("Level", Upper, Lower)


def _binned(where: NDArray[np.intp], masses: FloatArray) -> FloatArray:
    """The sums of masses by number."""
    sums: FloatArray = np.bincount(where, masses).astype(np.float64, copy=False)
    return sums


def _off(losses: FloatArray, epsilon: float) -> FloatArray:
    return 4 * UNIT * np.abs(epsilon - losses)  # three differences


def _aligned(
    one: tuple[int, tuple[FloatArray, ...]], other: tuple[int, tuple[FloatArray, ...]]
) -> tuple[int, list[FloatArray]]:
    """The first point of both, and the sums of their arrays from there on."""
    first = min(one[0], other[0])
    n = max(start + arrays[0].size for start, arrays in (one, other)) - first
    sums = []
    for x, y in zip(one[1], other[1], strict=True):
        whole = np.zeros(n)
        whole[one[0] - first : one[0] - first + x.size] = x
        whole[other[0] - first : other[0] - first + y.size] += y
        sums.append(whole)
    return first, sums


def lowered(
    p: FloatArray, r: FloatArray, p_error: FloatArray, r_error: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """A p that is not above the exact one, and an r that is not below it.

    Outputs with hardly any mass are left out, and those with a loss hundreds of nats below their
    label: products of others stay in the range of doubles.
    """
    low = np.maximum(0.0, p - p_error) * (1.0 - 2 * UNIT)
    kept = (low > _LEAST) & (r + r_error < _MOST * low)
    return np.where(kept, low, 0.0), np.where(kept, scale_up(r + r_error, 3) + TINY, 0.0)
