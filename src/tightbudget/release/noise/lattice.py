"""Noise on integer vectors that hides a shift in the 2-norm: the discrete form of e^(-|q|).

The perturbation of Chaudhuri et al. has the density e^(-rate |q|): a uniform direction and a
length of Gamma(d). Drawn in floating point neither is what the proof needs. Here the same shape
is drawn exactly, on integers, from integer noise and fair coins.
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

__all__ = ["LatticeNoise"]

_AT_ONCE = 2**8  # draws for proposals: of 32 at m = 8 none is taken once in 140 times
_WIDEST = 8  # of a block: of m = 8 proposals one is taken in 7, of m = 30 one in 4,000


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
        size: of the vectors.
        distance: > 0, in the 2-norm.
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
        """What the exponent loses for each step outwards."""
        blocks, distance = len(self._widths), exact_positive(distance=self.distance)
        steps = sqrt_up(blocks * distance**2) + blocks
        return exact_positive(epsilon=self.epsilon) / steps

    @cached_property
    def _widths(self) -> tuple[int, ...]:
        blocks = -(-self.size // _WIDEST)
        return tuple(len(block) for block in np.array_split(np.arange(self.size), blocks))

    @cached_property
    def _blocks(self) -> tuple[tuple[int, Fraction], ...]:
        """Each block's width and the scale of its proposals, as it is drawn."""
        # |v|_1 / sqrt(m) <= |v|_2, so noise by coordinate at this scale is nowhere too rare
        return tuple(
            (m, Fraction(scale_up(sqrt_up(Fraction(m)) / self.rate))) for m in self._widths
        )

    def draw(self, noise: Noise) -> IntArray:
        """One vector."""
        return np.concatenate([self._block(m, scale, noise) for m, scale in self._blocks])

    def _block(self, m: int, scale: Fraction, noise: Noise) -> IntArray:
        """By rejection: proposed with mass e^(-|z|_1 / scale), which is nowhere too rare."""
        while True:
            for z in noise.laplace(scale, m * max(1, min(noise.batch, _AT_ONCE) // m)).reshape(
                -1, m
            ):
                excess = self.rate * norm_up(z) - Fraction(sum(abs(int(x)) for x in z)) / scale
                if bernoulli_exp(excess, noise):
                    return np.asarray(z)


def norm_up(z: IntArray) -> int:
    """|z|_2 rounded up to an integer."""
    square = sum(int(x) ** 2 for x in z)
    return math.isqrt(square - 1) + 1 if square else 0


def sqrt_up(x: Fraction) -> Fraction:
    """A number >= the square root of x >= 0, within 2^-32."""
    return Fraction(math.isqrt(math.ceil(x * 4**32)) + 1, 2**32)
