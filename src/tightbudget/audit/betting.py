"""Audits that may be looked at after every trial, by betting against the claim.

A trial is a run with a record or without it, as a fair coin decides, and a guess which of both it
was. For a run that is (eps, delta)-DP, and whatever the guesses are, with q = e^eps / (1 + e^eps),

    P(right) - q P(guessed) <= delta / (1 + e^eps):

where the guess is "in", P / 2 - q (P + Q) / 2 = (P - e^eps Q) / 2 / (1 + e^eps), whose positive
part has a mass of at most delta / 2 / (1 + e^eps), and the same holds where it is "out". So a
player who begins with 1 and stakes a part s on each guess, who has 1 + s (right - q guessed -
delta / (1 + e^eps)) times as much after it, is not expected to gain; nor is the mean of players
with different s and different (eps, delta) of one claim. By Ville's inequality such a mean ever
reaches 1 / level with a probability of at most ``level``.

An absent guess loses s delta / (1 + e^eps), with s a part of 1 / (q + delta / (1 + e^eps)): the
more, the smaller eps. Here it loses what it does at eps = 0, s delta / (1 + delta) for that part s.
So the capital falls as eps grows, whatever was seen, and as delta grows. If a lower bound of eps is
ever wrong, the true eps is refuted at the same moment; so is the true mu if the eps of its lines
are the same for every mu.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special as sp

from tightbudget.audit.asked import Attack, AuditQuestion
from tightbudget.audit.claims import ClaimLines, gaussian_like, lines_of_gaussian_at
from tightbudget.audit.inputs import guesses_of, labels_of, level_of
from tightbudget.audit.power import least_shown
from tightbudget.audit.result import AttackPoint, Audit
from tightbudget.numerics.bounds import Estimate
from tightbudget.numerics.rounding import UNIT, FloatArray

_STAKES = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.7])  # parts of the largest stake
_LOOKS = 1000  # moments at which the capital is looked at, at most: with fewer it is no larger
_SLACK = 2.0**-40  # of the logarithm of the capital, for each trial: some hundred roundings
# Of the lines of a Gaussian curve: 0, and from 0.01 to 600 nats, each 1.26 times the one before.
_EPSILONS = (0.0, *np.geomspace(0.01, 600.0, 49).tolist())


class Bets(NamedTuple):
    """Counts of right, wrong and absent guesses at some moments, the last one being now.

    Attributes:
        right, wrong, absent: (k,) integers, rising.
    """

    right: tuple[int, ...]
    wrong: tuple[int, ...]
    absent: tuple[int, ...]

    def refutes(self, lines: ClaimLines, level: float) -> bool:
        """Says whether a run that keeps the claim ever shows this with probability ``level``."""
        return self.p_value(lines) <= level

    def p_value(self, lines: ClaimLines) -> float:
        """Bounds the least level at which the claim is refuted, from above: 1 / the capital."""
        right, wrong, absent = (np.asarray(part, dtype=np.float64) for part in self)
        grown = _log_capital(right, wrong, absent, lines)
        return math.exp(min(0.0, -grown)) * (1.0 + 16.0 * UNIT) if grown > 0.0 else 1.0

    def merit(self, lines: ClaimLines, level: float) -> float:
        """Measures, for a choice between attacks alone, how much speaks against the claim."""
        return -self.p_value(lines)

    def gaussian(self, mu: float) -> ClaimLines:
        """Returns lines of a Gaussian curve, whose epsilons do not depend on mu."""
        return lines_of_gaussian_at(mu, _EPSILONS)

    def guess(self) -> float:
        """The share of guesses that are right, about; where a search for a lower bound begins."""
        right, wrong = self.right[-1], self.wrong[-1]
        return (right + 0.5) / (right + wrong + 1.0)


def _log_capital(
    right: FloatArray, wrong: FloatArray, absent: FloatArray, lines: ClaimLines
) -> float:
    """Bounds from below the logarithm of the largest capital at the given moments."""
    # a larger q, and a larger delta, leave the player less
    q = np.minimum(1.0, (1.0 + 16.0 * UNIT) / (1.0 + np.exp(-lines.epsilons)))
    # guard: audit-bets-pay-delta
    spent = lines.deltas * (1.0 - q + 64.0 * UNIT)
    stakes = _STAKES[:, None] / (q + spent)
    won, lost = (np.log1p(stakes * x) for x in (1.0 - q - spent, -q - spent))
    # guard: audit-bets-fall-with-epsilon
    paid = np.log1p(-_STAKES[:, None] * (lines.deltas / (1.0 + lines.deltas)) * (1.0 + 64.0 * UNIT))
    logs = (won[..., None] * right + lost[..., None] * wrong + paid[..., None] * absent).reshape(
        -1, right.size
    )
    logs = sp.logsumexp(logs, axis=0) - math.log(logs.shape[0])
    return float(np.max(logs - _SLACK * (1.0 + right + wrong + absent)))


def sequential(
    guesses: Any,
    included: Any,
    *,
    delta: float,
    claim: Any = None,
    confidence: float = 0.95,
) -> Audit:
    """Audits a program by trials one after the other, and may be asked again after each of them.

    Call it with all trials so far, as often as you like: the more there are, the more it says, and
    whoever stops at the moment of their choice is still wrong with the probability 1 - confidence
    alone.

    Guarantee: a program that keeps ``claim`` is ever refuted, at any of these moments, with a
    probability of at most 1 - confidence, and either lower bound is ever wrong with at most this
    probability; rounding is included. That holds if each trial is a run of its own with a fair coin
    of its own, and if a guess is made without its coin. Earlier guesses, and their coins, may
    decide how the next run and guess are made. For a claim with delta = 0, and the lower bound of
    epsilon at delta = 0, the trials may be canaries of one run; that of mu says nothing then.
    Source: Ville 1939; see ``tightbudget.audit.betting`` for the proof.

    Args:
        guesses: (n,) 1 for a run that is guessed to have the record, 0 for one without it, and None
            where nothing is guessed; in their order.
        included: (n,) 1 for a run with the record, 0 for one without it.
        delta: the delta of the lower bound of epsilon, in [0, 1].
        claim: a mechanism or composition, an (epsilon, delta), or None.
        confidence: in (0, 1).

    Raises:
        ParameterError: an argument is refused.
    """
    made = guesses_of(guesses)
    labels = labels_of(included, made.size)
    asked = AuditQuestion(delta, claim, level_of(confidence))
    right, absent = (made == 1) & labels | (made == 0) & ~labels, np.isnan(made)
    n = made.size
    looks = np.unique(np.ceil(np.linspace(0, n, min(n, _LOOKS) + 1)[1:])).astype(int) - 1
    seen = Bets(
        *(tuple(np.cumsum(part)[looks].tolist()) for part in (right, ~right & ~absent, absent))
    )
    called = made == 1
    point = AttackPoint.of(
        int((called & ~labels).sum()), int((~labels).sum()),
        int((~called & labels).sum()), int(labels.sum()), asked.level,
    )  # fmt: skip
    attack = Attack(seen, n, int((~absent).sum()), int(right.sum()), (point,))
    return asked.audit("sequential", [attack], _trials_needed)


@functools.lru_cache(maxsize=256)
def _trials_needed(lines: ClaimLines, level: float) -> Estimate:
    """Estimates how many trials show half the noise, with a power of about a half."""
    mu = gaussian_like(lines)
    share = float(sp.ndtr(mu))

    def shows(n: int) -> bool:
        right = int(share * n)
        return Bets((right,), (n - right,), (0,)).refutes(lines, level)

    return least_shown(shows, 16, mu, "trials")
