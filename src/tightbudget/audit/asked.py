"""Tests of claims by evidence, and the searches for the epsilon and the mu that it refutes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from scipy import special as sp

from tightbudget.audit.claims import ClaimLine, ClaimLines, lines_of
from tightbudget.audit.result import AttackPoint, Audit
from tightbudget.numerics.bounds import Estimate
from tightbudget.numerics.rounding import next_down, next_up
from tightbudget.numerics.search import last_true
from tightbudget.numerics.validate import probability

_TOP_EPSILON, _TOP_MU = 600.0, 30.0
_CLOSE = 1e-7  # of a lower bound: how close it comes to the largest that is refuted


class Evidence(Hashable, Protocol):
    """Counts, with a test of claims."""

    def refutes(self, lines: ClaimLines, level: float) -> bool:
        """Says whether a run that keeps the claim shows this with probability ``level`` at most."""
        ...

    def p_value(self, lines: ClaimLines) -> float:
        """Bounds about the least level at which the claim is refuted, from above."""
        ...

    def merit(self, lines: ClaimLines, level: float) -> float:
        """Measures, for a choice between attacks alone, how much speaks against the claim."""
        ...

    def gaussian(self, mu: float) -> ClaimLines:
        """Returns lines of the curve of a Gaussian mechanism with sensitivity mu and sigma 1."""
        ...

    def guess(self) -> float:
        """The share of guesses that are right, about; where a search for a lower bound begins."""
        ...


class Attack(NamedTuple):
    """An attack, as far as it counts.

    Attributes:
        seen: what was counted.
        trials: the canaries, or runs, that were used.
        guesses: how many of them were guessed.
        right: how many guesses are right.
        points: its errors, to be drawn.
    """

    seen: Evidence
    trials: int
    guesses: int
    right: int
    points: tuple[AttackPoint, ...]


class AuditQuestion:
    """Questions to evidence: an epsilon at delta, a claim, a level.

    Args:
        delta: in [0, 1].
        claim: a mechanism or composition, an (epsilon, delta), or None.
        level: the probability that an audit may be wrong with.
        one_way: whether the claim is of the outcomes alone that an attack accuses.
    """

    def __init__(self, delta: Any, claim: Any, level: float, *, one_way: bool = False) -> None:
        self.delta, self.level = probability(delta=delta), level
        lines = None if claim is None else lines_of(claim, self.delta)
        self.lines = None if lines is None else replace(lines, one_way=one_way)

    def merit(self, seen: Evidence) -> float:
        """Measures what evidence says: against the claim if there is one, else of epsilon."""
        if self.lines is not None:
            return seen.merit(self.lines, self.level)
        return least_epsilon(seen, self.delta, self.level)

    def best(self, attacks: Sequence[Attack]) -> int:
        """Returns the place of the attack that says most."""
        return max(range(len(attacks)), key=lambda i: self.merit(attacks[i].seen))

    def audit(
        self, test: str, attacks: Sequence[Attack], needed: Callable[[ClaimLines, float], Estimate]
    ) -> Audit:
        """Asks several attacks on the same runs, each at its share of the level.

        Args:
            test: the name of the test.
            attacks: one or more.
            needed: estimates for a claim and a level how many trials show half the noise.
        """
        # guard: audit-shares-paid
        level = self.level if len(attacks) == 1 else next_down(self.level / len(attacks))
        p, lines = None, self.lines
        one_way = lines is not None and lines.one_way
        each = [attack.seen for attack in attacks]
        if lines is not None:
            p = min(1.0, min(seen.p_value(lines) for seen in each) * len(each))
            if any(seen.refutes(lines, level) for seen in each):
                p = min(p, self.level)
            elif p <= self.level:  # the search for p ends just beside the least level
                p = next_up(self.level)
        best = attacks[self.best(attacks)]
        return Audit(
            test=test,
            delta=self.delta,
            level=self.level,
            trials=best.trials,
            guesses=best.guesses,
            right=best.right,
            epsilon_at_least=max(least_epsilon(seen, self.delta, level, one_way) for seen in each),
            mu_at_least=max(least_mu(seen, level) for seen in each),
            p_value=p,
            claim=lines,
            points=best.points,
            needed=None if lines is None else needed(lines, level),
        )


@functools.lru_cache(maxsize=1024)
def least_epsilon(seen: Evidence, delta: float, level: float, one_way: bool = False) -> float:
    """Finds about the largest epsilon that is refuted at a delta, in one direction or in both.

    Guarantee: (epsilon, delta) itself is refuted at the level, or epsilon is 0.
    """

    def test(epsilon: float) -> bool:
        return seen.refutes(ClaimLines((ClaimLine(epsilon, delta),), one_way), level)

    share = seen.guess()
    guess = max(1e-3, math.log(share / (1.0 - share)))
    return last_true(test, guess, _TOP_EPSILON, _CLOSE).last_true


@functools.lru_cache(maxsize=1024)
def least_mu(seen: Evidence, level: float) -> float:
    """Finds about the largest mu whose Gaussian trade-off curve is refuted.

    Guarantee: the curve of mu itself is refuted at the level, or mu is 0.
    """

    def test(mu: float) -> bool:
        return seen.refutes(seen.gaussian(mu), level)

    return last_true(test, max(1e-2, float(sp.ndtri(seen.guess()))), _TOP_MU, _CLOSE).last_true
