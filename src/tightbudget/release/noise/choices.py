"""Chooses one of many by weights e^-x, exactly, from fair coins."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction

from tightbudget.release.noise.noise import Noise

# Coins that are tossed at a time. With the first of them a choice among k is still open with a
# probability of about k 2^-64, so that nearly always the same number of coins is tossed.
_TOSSES = 64
# Decimal digits of the weights, for each lot of coins: 64 coins are 20 digits of U.
_DIGITS = 40

Between = tuple[int, int]  # a lower and an upper bound


def chosen(exponents: Sequence[Fraction], noise: Noise) -> int:
    """Returns i with probability e^-x_i / (e^-x_0 + e^-x_1 + ...), exactly.

    A uniform number U is read bit by bit, until bounds of the weights show in which share of their
    sum it lies. Where the bounds are too wide to show that, more digits are computed.

    Args:
        exponents: rational x_i >= 0, of which at least one is 0.
        noise: tosses the coins.
    """
    drawn, bits = 0, 0
    for digits in itertools.count(_DIGITS, _DIGITS):
        for _ in range(_TOSSES):
            drawn, bits = 2 * drawn + noise.coin(), bits + 1
        found = decided(weights(exponents, digits), drawn, bits)
        if found is not None:
            return found
    raise AssertionError("integers have no end")


def weights(exponents: Sequence[Fraction], digits: int) -> list[Between]:
    """Returns bounds of each weight 10^digits e^-x, integers that are at most 3 apart."""
    known = {x: _weight(x, digits) for x in set(exponents)}
    return [known[x] for x in exponents]


def decided(between: Sequence[Between], drawn: int, bits: int) -> int | None:
    """Returns the index whose share has each U in [drawn, drawn + 1) / 2^bits; None if none does.

    Args:
        between: bounds of the weights; U lies in the share i if U times the sum of all weights is
            at least the sum of those before i, and below that with i.
        drawn: the first bits of U, as an integer.
        bits: how many bits these are.
    """
    least = list(itertools.accumulate(low for low, _ in between))
    most = list(itertools.accumulate(high for _, high in between))
    # the first index that U may have: U times the sum is at least the upper bounds of all before it
    i = bisect.bisect_right(most, (drawn * least[-1]) >> bits)
    if i == len(least) - 1:  # U is below 1
        return i
    # guard: choice-surely-before-its-end
    return i if (drawn + 1) * most[-1] <= least[i] << bits else None


def _weight(x: Fraction, digits: int) -> Between:
    """Returns integers below and above 10^digits e^-x.

    libmpdec's quotient and exponential are correctly rounded, by its documentation. To twice the
    digits, the quotient of x <= 3 digits is off by less than 10^-digits / 10, and so is e^-x.
    """
    if x > 3 * digits:  # e^3 > 10
        return 0, 1
    context = Context(prec=2 * digits, traps=[])
    exponent = context.divide(Decimal(-x.numerator), Decimal(x.denominator))
    near = int(context.scaleb(context.exp(exponent), digits))
    return max(0, near - 1), near + 2  # guard: weight-between-integers
