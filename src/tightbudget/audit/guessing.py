"""Bounds of the probability of so many right guesses about the canaries of one run: two theorems.

m canaries are each in the data or not, by independent fair coins. An attacker who sees all outputs
guesses r of them, a number that was fixed before, and C of the guesses are right. For a run that
keeps a claim, both theorems bound Pr[C >= c], so that the smaller bound holds, at no price.

Both stand on one inequality. Let p_k = Pr[C = k], J a canary that is drawn evenly, and T a set of
numbers. The event that J is guessed right and C is in T has the probability sum_(k in T) k p_k / m.
With the coin of J turned over, the same outputs are those in which J is guessed wrong and C is one
less: sum_(k in T) (r - k + 1) p_(k-1) / m. So, for a trade-off curve f of both directions, which is
convex, and by Jensen's inequality over J and the other coins,

    sum_(k in T) k p_k / m <= 1 - f(sum_(k in T) (r - k + 1) p_(k-1) / m).

Source: Mahloujifar, Melis, Chaudhuri 2024, "Auditing f-differential privacy in one run", who use
T = {k >= i}: :func:`curve_refuted`. :func:`most_right` is what follows for one (eps, delta), where
T are all k at which k p_k > e^eps (r - k + 1) p_(k-1). Tests compare it with the exact optimum over
all mechanisms. It is at most the bound of Steinke, Nasr, Jagielski 2023, "Privacy auditing with one
(1) training run", wherever that one is below 1/2.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy import special as sp

from tightbudget.audit.claims import ClaimLine, ClaimLines, lines_of_gaussian
from tightbudget.numerics.binomial import binomial_masses, binomial_tails
from tightbudget.numerics.rounding import (
    UNIT,
    add_up,
    exp_up,
    mul_up,
    next_up,
)

_CERTIFIED = 2  # lines whose bound is certified, of those that look best in plain doubles
_LEAST = 1e-12  # a p-value is not searched below it


class Guessed(NamedTuple):
    """Counts of one run.

    Attributes:
        canaries: how many there are, m.
        guesses: how many were guessed, r; the others were left out.
        right: how many of the guesses are right, c.
    """

    canaries: int
    guesses: int
    right: int

    def refutes(self, lines: ClaimLines, level: float) -> bool:
        """Says whether so many right guesses have a probability of at most ``level``."""
        return curve_refuted(self, lines, level) or _by_lines(self, lines) <= level

    def p_value(self, lines: ClaimLines) -> float:
        """Bounds the probability of so many right guesses: see :func:`p_value`."""
        return p_value(self, lines)

    def merit(self, lines: ClaimLines, level: float) -> float:
        """Measures, for a choice between attacks alone, how much speaks against the claim."""
        return -self.p_value(lines)

    def gaussian(self, mu: float) -> ClaimLines:
        """Returns lines of a Gaussian curve."""
        return lines_of_gaussian(mu)

    def guess(self) -> float:
        """The share of guesses that are right, about; where a search for a lower bound begins."""
        return (self.right + 0.5) / (self.guesses + 1.0)


def most_right(seen: Guessed, line: ClaimLine) -> float:
    """Bounds the probability that so many guesses are right in a run that is (eps, delta)-DP.

    Guarantee: it is an upper bound of Pr[C >= c] in every such run.

    With b = Bin(r, e^eps / (1 + e^eps)), B = Pr[b >= c] and p_k = b_k x_k, the inequality for one
    line says sum_k k b_k (x_k - x_(k-1))_+ <= m delta. Pr[C >= c] - B is the sum over k of
    x_k - x_(k-1) times B Pr[b < k] for k <= c, and (1 - B) Pr[b >= k] for k > c. Divided by k b_k,
    the one grows with k and the other falls, since b is log-concave, so that both are at most
    B (1 - B) / (c b_c): the answer is B + m delta B (1 - B) / (c b_c).
    """
    m, r, c = seen
    if c <= 0:
        return 1.0
    odds = exp_up(line.epsilon)
    rate = Fraction(odds) / (1 + Fraction(odds))
    below, above = binomial_tails(r, rate, c)
    if line.delta == 0.0:
        return above[1]
    (mass,) = binomial_masses(r, rate, c, c)
    # B / b_c is the sum of quotients of masses, each at most the first one
    step = Fraction(odds) * (r - c) / (c + 1)
    quotient = next_up(float(1 / (1 - step))) if step < 1 else np.inf
    if mass > 1e-290:
        quotient = min(quotient, above[1] / float(mass) * (1.0 + 8.0 * UNIT))
    if not quotient < np.inf:
        return 1.0
    # guard: audit-delta-paid
    more = mul_up(mul_up(mul_up(m, line.delta), quotient), min(1.0, below[1]))
    return min(1.0, add_up(above[1], next_up(more / c)))


def curve_refuted(seen: Guessed, lines: ClaimLines, level: float) -> bool:
    """Says whether Pr[C >= c] < level in every run that keeps a curve.

    Guarantee: True is proved, rounding included.

    Let N_k = Pr[C >= k] and suppose N_c >= level. For T = {k >= i + 1} the inequality bounds
    sum_(k >= i) (r - k) p_k / m = ((r - i) N_i - sum_(k > i) N_k) / m from below by a growing
    function of sum_(k > i) k p_k / m = ((i + 1) N_(i+1) + sum_(k > i + 1) N_k) / m; so N_i is
    at least what it is with the least N_k for k > i, which are 0 for k > c. Where N_i > 1 the
    supposition is refuted.
    """
    m, r, c = seen
    if c <= 0:
        return False
    slopes, offsets = lines.slopes, lines.offsets
    last, at = len(slopes) - 1, 0
    down = 1.0 - 8.0 * UNIT
    most, above, i = level, 0.0, c  # N_i, sum_(k > i) N_k
    while i > 0:
        x = (i * most + above) / m * down
        y = slopes[at] * x - offsets[at]
        while at < last:
            following = slopes[at + 1] * x - offsets[at + 1]
            if following < y:
                break
            at, y = at + 1, following
        y = max(0.0, y * down - 8.0 * UNIT * offsets[at])
        above, i = (above + most) * down, i - 1
        needed = (m * y + above) / (r - i) * down
        # nothing is added below i: then nothing is added later either
        if needed <= most * down * down:
            return False
        most = max(most, needed)
        if most > 1.0:
            return True
    return False


@functools.lru_cache(maxsize=4096)
def p_value(seen: Guessed, lines: ClaimLines) -> float:
    """Bounds the probability of so many right guesses, or more, in a run that keeps a curve.

    Guarantee: it is an upper bound of Pr[C >= c], by the better of both theorems.
    """
    high = _by_lines(seen, lines)
    low = _LEAST
    if high <= low or not curve_refuted(seen, lines, high):
        return high
    while high > 1.001 * low:
        middle = (low * high) ** 0.5
        if curve_refuted(seen, lines, middle):
            high = middle
        else:
            low = middle
    return high


def _by_lines(seen: Guessed, lines: ClaimLines) -> float:
    """The least of the bounds of :func:`most_right` over the lines that look best."""
    m, r, c = seen
    if c <= 0:
        return 1.0
    rates = 1.0 / (1.0 + np.exp(-lines.epsilons))
    with np.errstate(all="ignore"):
        tails = sp.bdtrc(c - 1, r, rates)
        # b_c from its logarithm, which does not underflow before the tail does
        log = sp.gammaln(r + 1) - sp.gammaln(c + 1) - sp.gammaln(r - c + 1)
        masses = np.exp(log + c * np.log(rates) + (r - c) * np.log1p(-rates))
        rough = tails * (1.0 + m * lines.deltas * (1.0 - tails) / (c * masses))
    order = np.argsort(np.where(np.isnan(rough), np.inf, rough), kind="stable")
    return min(most_right(seen, lines.line(int(i))) for i in order[:_CERTIFIED])
