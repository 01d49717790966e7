"""Draws noise on integer vectors that hides a shift in the 2-norm: a discrete e^(-|q|).

The perturbation of Chaudhuri et al. has the density e^(-rate |q|): its direction is uniform and
its length is Gamma(d). Drawn in floating point, neither has the distribution of the proof. Here
noise of the same shape is drawn exactly, on integers, from integer noise and fair coins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from tightbudget.numerics.validate import plain_numbers, positive_count
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.release.noise.coins import bernoulli_exp
from tightbudget.release.noise.noise import IntArray, Noise, scale_up

# Draws of one call for proposals. At m = 8 these are 32 proposals: none is taken once in 140 calls.
_AT_ONCE = 2**8
# Width of a block. One proposal is taken in 7 at m = 8, and one in 4,000 at m = 30.
_WIDEST = 8


@plain_numbers
@dataclass(frozen=True)
class LatticeNoise:
    """Integer vectors z with mass proportional to e^(-rate sum_b N(z_b)), N(v) = |v|_2 rounded up.

    The coordinates are cut into B blocks of at most 8. For an integer shift by w with
    |w|_2 <= distance the exponent moves by at most rate sum_b N(w_b), as N is a norm but for
    scaling, and that is at most rate (sqrt(B) distance + B).

    With one block it is the discrete form of the noise with a uniform direction and a length of
    Gamma(d), whose root mean square is sqrt(d (d + 1)) / rate. With many it is at most 1/16 longer.

    Guarantee: the masses of no two vectors that are at most ``distance`` apart differ by more
    than a factor e^epsilon: adding a draw to a point that moves so far is epsilon-DP.

    Args:
        size: the number of coordinates.
        distance: > 0, the length of the shifts that are hidden, in the 2-norm.
        epsilon: > 0, nats.

    Raises:
        ParameterError: a parameter is refused, or the noise is too wide.
    """

    size: int
    distance: Price
    epsilon: Price

    def __post_init__(self) -> None:
        positive_count(size=self.size)
        for _, scale in self._blocks:
            scale_up(scale)

    @cached_property
    def rate(self) -> Fraction:
        """The rate of the exponent: the mass falls by e^-rate for each unit of N(z_b)."""
        blocks, distance = len(self._widths), exact_positive(distance=self.distance)
        steps = sqrt_up(blocks * distance**2) + blocks
        return exact_positive(epsilon=self.epsilon) / steps

    @cached_property
    def _widths(self) -> tuple[int, ...]:
        """The number of coordinates of each block."""
        blocks = -(-self.size // _WIDEST)
        return tuple(len(block) for block in np.array_split(np.arange(self.size), blocks))

    @cached_property
    def _blocks(self) -> tuple[tuple[int, Fraction], ...]:
        """The width of each block, and the scale of its proposals, rounded up to a double."""
        # |v|_1 / sqrt(m) <= |v|_2, so coordinates at this scale have at least the mass asked for
        return tuple(
            (m, Fraction(scale_up(sqrt_up(Fraction(m)) / self.rate))) for m in self._widths
        )

    def draw(self, noise: Noise) -> IntArray:
        """Draws one vector, (size,)."""
        return np.concatenate([self._block(m, scale, noise) for m, scale in self._blocks])

    def _block(self, m: int, scale: Fraction, noise: Noise) -> IntArray:
        """Draws m coordinates by rejection from proposals of mass e^(-|z|_1 / scale).

        A proposal is kept with probability e^-excess, where excess >= 0, since
        |z|_1 / scale <= rate |z|_2 <= rate N(z).
        """
        while True:
            for z in noise.laplace(scale, m * max(1, min(noise.batch, _AT_ONCE) // m)).reshape(
                -1, m
            ):
                excess = self.rate * norm_up(z) - Fraction(sum(abs(int(x)) for x in z)) / scale
                if bernoulli_exp(excess, noise):
                    return np.asarray(z)


def norm_up(z: IntArray) -> int:
    """Returns |z|_2 rounded up to an integer."""
    square = sum(int(x) ** 2 for x in z)
    return math.isqrt(square - 1) + 1 if square else 0  # guard: norm-rounded-down


def sqrt_up(x: Fraction) -> Fraction:
    """Returns a number >= the square root of x, above it by at most 2^-31, for x >= 0."""
    return Fraction(math.isqrt(math.ceil(x * 4**32)) + 1, 2**32)
