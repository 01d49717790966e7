"""The two error rates of a test on independent runs, each bounded by Clopper and Pearson.

A run that keeps a claim has no test with a false-positive rate a and a false-negative rate below
f(a). So a claim is refuted where the upper bounds of both rates, each at half the level, are a
point below f.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from scipy import special as sp

from tightbudget.audit.asked import Attack
from tightbudget.audit.claims import ClaimLines, gaussian_like, lines_of_gaussian
from tightbudget.audit.power import least_shown
from tightbudget.audit.result import AttackPoint
from tightbudget.numerics.binomial import most_chance
from tightbudget.numerics.bounds import Estimate

_LEAST = 1e-12  # a p-value is not searched below it
_MOST_LEVEL = 0.999  # beyond it a p-value is 1
_TRIED = (0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5)  # false-positive rates, where power is estimated


class Rates(NamedTuple):
    """Counts of a test's errors on independent runs.

    Attributes:
        false_positives, negatives: of so many runs without the record, so many were called with it.
        false_negatives, positives: of so many runs with the record, so many were called without.
    """

    false_positives: int
    negatives: int
    false_negatives: int
    positives: int

    def refutes(self, lines: ClaimLines, level: float) -> bool:
        """Says whether a run that keeps the claim shows this with probability ``level`` at most."""
        # guard: audit-both-rates-paid
        half = 0.5 * level
        fpr = most_chance(self.false_positives, self.negatives, half)
        fnr = most_chance(self.false_negatives, self.positives, half)
        return lines.false_negatives(fpr) > fnr

    def p_value(self, lines: ClaimLines) -> float:
        """Bounds about the least level at which the claim is refuted, from above."""
        return _p_value(self, lines)

    def merit(self, lines: ClaimLines, level: float) -> float:
        """Measures, for a choice between attacks alone, how much speaks against the claim.

        It is about the largest epsilon that is refuted at the delta of a line, less the line's own.
        """
        fpr, fnr = (
            float(sp.betaincinv(k + 1, n - k, 1.0 - 0.5 * level)) if k < n else 1.0
            for k, n in (self[:2], self[2:])
        )
        best = -math.inf
        for epsilon, delta in lines.points:
            ways = ((1.0 - delta - fnr, fpr), (1.0 - delta - fpr, fnr))
            for rest, wrong in ways[:1] if lines.one_way else ways:
                best = max(best, math.log(max(rest, 1e-300) / wrong) - epsilon)
        return best

    def gaussian(self, mu: float) -> ClaimLines:
        """Returns lines of a Gaussian curve."""
        return lines_of_gaussian(mu)

    def guess(self) -> float:
        """The share of guesses that are right, about; where a search for a lower bound begins."""
        wrong = self.false_positives + self.false_negatives
        return 1.0 - (wrong + 0.5) / (self.negatives + self.positives + 1.0)


@functools.lru_cache(maxsize=4096)
def _p_value(seen: Rates, lines: ClaimLines) -> float:
    low, high = _LEAST, _MOST_LEVEL
    if not seen.refutes(lines, high):
        return 1.0
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if seen.refutes(lines, middle) else (middle, high)
    return high


def attack_of(seen: Rates, level: float) -> Attack:
    """Makes the attack of its counts."""
    trials = seen.negatives + seen.positives
    right = trials - seen.false_positives - seen.false_negatives
    return Attack(seen, trials, trials, right, (AttackPoint.of(*seen, level),))


@functools.lru_cache(maxsize=256)
def runs_needed(lines: ClaimLines, level: float) -> Estimate:
    """Estimates how many runs show a mechanism with half the noise, with a power of about a half.

    The mechanism is a Gaussian one whose mu is twice that of the claim, and half of the runs have
    the record.
    """
    mu = gaussian_like(lines)

    def shows(n: int) -> bool:
        half = n // 2
        return any(
            Rates(
                int(rate * half), half, math.ceil(half * float(sp.ndtr(-sp.ndtri(rate) - 2 * mu))),
                half,
            ).refutes(lines, level)
            for rate in _TRIED
        )  # fmt: skip

    return least_shown(shows, 16, mu, "runs")
