"""Masses and tails of binomial distributions, with certified errors, for up to 1e12 trials.

Single masses are computed with 60 decimal digits, by Stirling's series for the factorials, whose
error is at most the first term left out. A tail is one such mass times a sum of quotients of
neighbouring masses, in doubles.
"""

from __future__ import annotations

import decimal
import functools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
from scipy import special as sp

from tightbudget.numerics.rounding import TINY, UNIT, next_down, next_up

# Digits. ln(n!) is below 3e13 for n <= 1e12: its absolute error is some units of 1e-46.
_CONTEXT = decimal.Context(
    prec=60, rounding=decimal.ROUND_HALF_EVEN, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX
)
# Stirling's series of ln(n!), B_2j / (2j (2j - 1) n^(2j - 1)); the first term left out is
# 691 / 360360 / n^11, below 2e-36 for n >= 1024
_STIRLING = (Fraction(1, 12), Fraction(-1, 360), Fraction(1, 1260), Fraction(-1, 1680),
             Fraction(1, 1188))  # fmt: skip
_SMALL = 1024  # below it a factorial is computed exactly
_LOG_TWO_PI = Decimal("1.83787706640934548356065947281123527972279494727556682563430")
_CHUNK = 4096  # quotients of neighbouring masses at a time
_NOTHING = 1e-25  # what further masses may add, relative to the sum


def binomial_masses(n: int, rate: Fraction, first: int, last: int) -> list[Decimal]:
    """Computes P(X = i) for X binomial with ``n`` trials of chance ``rate``, first <= i <= last.

    Guarantee: each mass is within a relative 1e-30 of the exact one.
    """
    with decimal.localcontext(_CONTEXT):
        chance, rest = _decimal(rate), _decimal(1 - rate)
        log = _log_factorial(n) - _log_factorial(first) - _log_factorial(n - first)
        mass = (log + first * chance.ln() + (n - first) * rest.ln()).exp()
        found, odds = [mass], chance / rest
        for i in range(first, last):
            mass = mass * (n - i) / (i + 1) * odds
            found.append(mass)
    return found


def binomial_tails(
    n: int, rate: Fraction, k: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Bounds P(X < k) and P(X >= k) for X binomial with ``n`` trials of chance ``rate`` in (0, 1).

    Returns:
        (lower, upper) of P(X < k), and (lower, upper) of P(X >= k). Measured against balls: within
        a relative 1e-9 of each other for n <= 1e9, where a bound is above 1e-290.
    """
    if k <= 0:
        return (0.0, 0.0), (1.0, 1.0)
    if k > n:
        return (1.0, 1.0), (0.0, 0.0)
    odds = rate / (1 - rate)
    if k > n * rate:
        above = _sum_from(n, rate, k, float(odds), up=True)
        return _complement(above), above
    below = _sum_from(n, rate, k - 1, float(1 / odds), up=False)
    return below, _complement(below)


@functools.lru_cache(maxsize=4096)
def most_chance(k: int, n: int, level: float) -> float:
    """Bounds from above the chance of a trial of which k of n succeeded (Clopper, Pearson 1934).

    Guarantee: where the chance is larger than what is returned, at most k successes have a
    probability of at most ``level``.

    Args:
        k: in 0 ... n.
        n: >= 1.
        level: in (0, 1).
    """
    if k >= n:
        return 1.0
    chance = float(sp.betaincinv(k + 1, n - k, 1.0 - level))
    step = 1e-12
    # guard: clopper-pearson-certified
    while not _at_most(k, n, chance, level):
        if chance >= 1.0:
            return 1.0
        chance, step = min(1.0, chance * (1.0 + step) + 1e-300), 2.0 * step
    return chance


def _at_most(k: int, n: int, chance: float, level: float) -> bool:
    """Says whether k or fewer of n trials have certainly a probability of at most ``level``."""
    if not 0.0 < chance < 1.0:
        return False
    return binomial_tails(n, Fraction(chance), k + 1)[0][1] <= level


def _sum_from(n: int, rate: Fraction, k: int, odds: float, *, up: bool) -> tuple[float, float]:
    """Bounds the sum of P(X = i) over i >= k, or over i <= k, where the masses fall from k on."""
    mass = float(binomial_masses(n, rate, k, k)[0])
    # quotient j leads from the j-th mass to the next one; it falls with j
    ends, total, term, done = (n - k if up else k), 1.0, 1.0, 0
    while done < ends:
        j = np.arange(done, min(done + _CHUNK, ends), dtype=np.float64)
        falls = (n - k - j) / (k + 1 + j) if up else (k - j) / (n - k + 1 + j)
        quotients = falls * odds
        terms = term * np.cumprod(quotients)
        total += float(np.sum(terms))
        term, done = float(terms[-1]), done + j.size
        last = float(quotients[-1])
        if last < 1.0 and term * last / (1.0 - last) < _NOTHING * total:
            break
    # a quotient is odds (rounded once), a division and two products of exact numbers below 2^53,
    # 4 units; the j-th term is a product of j of them, then sums; the mass is rounded once
    off = (5.0 * done + 16.0) * UNIT + 2.0 * _NOTHING
    lower, upper = mass * total * (1.0 - off), mass * total * (1.0 + 2.0 * off)
    return (lower if lower > TINY else 0.0), min(1.0, max(upper, TINY))


def _complement(bounds: tuple[float, float]) -> tuple[float, float]:
    """Bounds 1 - x for lower <= x <= upper."""
    return max(0.0, next_down(1.0 - bounds[1])), min(1.0, next_up(1.0 - bounds[0]))


def _log_factorial(n: int) -> Decimal:
    """Computes ln(n!) in the current context."""
    if n < _SMALL:
        return Decimal(math.factorial(n)).ln()
    x = Decimal(n)
    series = sum((_decimal(c) / x ** (2 * j + 1) for j, c in enumerate(_STIRLING)), Decimal(0))
    return x * x.ln() - x + (_LOG_TWO_PI + x.ln()) / 2 + series


def _decimal(x: Fraction) -> Decimal:
    """Rounds a rational number to the current context."""
    return Decimal(x.numerator) / Decimal(x.denominator)
