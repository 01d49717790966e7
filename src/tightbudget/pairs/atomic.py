"""Pairs whose losses are finitely many atoms: everything discrete ends here."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tightbudget.numerics.enclosure import Enclosure
from tightbudget.numerics.rounding import UNIT, add_up, sum_down, sum_up
from tightbudget.pairs.pair import Atoms, Pair, Sketch, zero

__all__ = ["AtomicPair"]


@dataclass(frozen=True, eq=False)
class AtomicPair(Pair):
    """A pair given by its atoms and by the masses that only one side has.

    ``only_p`` may be [0, t]: mass t that was left out of the list is charged as a loss of
    +inf on the upper side and dropped on the lower one. The same holds for ``only_q``.
    """

    given: Atoms
    only_p: Enclosure = field(default_factory=zero)
    only_q: Enclosure = field(default_factory=zero)

    @staticmethod
    def from_masses(
        p: Enclosure, q: Enclosure, *, rest_p: float = 0.0, rest_q: float = 0.0
    ) -> AtomicPair:
        """Output by output, P-mass p[i] against Q-mass q[i].

        Outputs with p = 0 or q = 0 exactly (both ends) belong to the other side alone.
        ``rest_p`` and ``rest_q`` bound masses of outputs that are not listed.

        Guarantee: losses enclose ln(p/q) for all masses inside the enclosures.
        """
        both = (p.upper > 0) & (q.upper > 0)
        solo_p = (p.upper > 0) & (q.upper == 0)
        solo_q = (p.upper == 0) & (q.upper > 0)
        inner_p, inner_q = p[both], q[both]
        with np.errstate(divide="ignore"):
            # a difference of logarithms survives quotients that a double cannot hold
            low = np.log(inner_p.lower) - np.log(inner_q.upper)
            high = np.log(inner_p.upper) - np.log(inner_q.lower)
            scale = np.abs(np.log(inner_p.upper)) + np.abs(np.log(inner_q.upper))
            near = np.asarray(inner_p.upper / inner_q.lower)
            quotient = np.isfinite(near) & (near > 0.5) & (near < 2.0)
            # near loss 0 the logarithm of the quotient keeps relative precision
            low = np.where(
                quotient, np.log(inner_p.lower / inner_q.upper) - 4 * UNIT, low - 4 * UNIT * scale
            )
            high = np.where(quotient, np.log(near) + 4 * UNIT, high + 4 * UNIT * scale)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ArithmeticError("masses of an atomic pair vanish in double precision")
        return AtomicPair(
            Atoms(inner_p, inner_q, low, high),
            only_p=_total(p[solo_p], rest_p),
            only_q=_total(q[solo_q], rest_q),
        )

    def atoms(self) -> Atoms:
        return self.given

    def p_only(self) -> Enclosure:
        return self.only_p

    def q_only(self) -> Enclosure:
        return self.only_q

    def max_loss(self) -> tuple[float, float]:
        if not len(self.given):
            return -np.inf, -np.inf
        # an atom that may have no mass at all proves nothing about the largest loss
        real = self.given.p.lower > 0
        lower = float(np.max(self.given.loss_lower[real], initial=-np.inf))
        return lower, float(np.max(self.given.loss_upper))

    def grid_origin(self) -> float | None:
        return float(np.max(self.given.loss_upper)) if len(self.given) else None

    def sketch(self) -> Sketch:
        with np.errstate(divide="ignore"):
            return Sketch(self.given.loss_upper, np.log(self.given.p.upper))


def _total(masses: Enclosure, rest: float) -> Enclosure:
    upper = sum_up(masses.upper)
    if rest > 0:
        upper = add_up(upper, rest)
    return Enclosure(np.array([sum_down(masses.lower)]), np.array([upper]))
