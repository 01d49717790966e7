"""Tosses coins of any bias exactly, from fair coins."""

from __future__ import annotations

from fractions import Fraction

from tightbudget.release.noise.noise import Noise


def bernoulli(p: Fraction, noise: Noise) -> bool:
    """Returns True with probability p in [0, 1], exactly: a uniform number U is below p.

    U and p are read bit by bit, up to the first bit in which they differ: two tosses on average.
    """
    if p >= 1:
        return True
    while p:
        p *= 2
        bit, p = p >= 1, p % 1
        if noise.coin() != bit:
            return bit  # guard: coin-as-drawn
    return False


def bernoulli_exp(x: Fraction, noise: Noise) -> bool:
    """Returns True with probability e^-x, exactly, for rational x >= 0.

    Source: Canonne, Kamath, Steinke 2020, Algorithm 1.
    """
    while x > 1:
        if not bernoulli_exp(Fraction(1), noise):
            return False
        x -= 1
    # of x, x/2, x/3, ... the first k succeed with probability x^k / k!: with e^-x an even number
    k = 1
    while bernoulli(x / k, noise):
        k += 1
    return k % 2 == 1  # guard: exponential-parity


def uniform(n: int, noise: Noise) -> int:
    """Returns each of 0, 1, ..., n - 1 with probability 1 / n, exactly, for n >= 1.

    A number of as many bits as n - 1 has is drawn again while it is not below n.
    """
    while True:
        drawn = 0
        for _ in range((n - 1).bit_length()):
            drawn = 2 * drawn + noise.coin()
        if drawn < n:  # guard: uniform-below-its-end
            return drawn
