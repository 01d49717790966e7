"""A pair: two distributions (P, Q) that an observer must tell apart.

A mechanism offers, for each :class:`Direction`, a :class:`Pair` that dominates it. A pair
answers one question: how much P-mass and Q-mass has its privacy loss L = ln P/Q (nats) in a
given bin? Composition, bounds, Renyi divergences and trade-off curves follow from that alone.

A pair has three parts: *atoms* (outputs with one loss each), a *continuous* part, and
the outputs that only one of the two distributions can produce.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.pairs.transform import Transform


def zero() -> Enclosure:
    """An enclosure of one number that is exactly 0."""
    return exact(np.zeros(1))


@dataclass(frozen=True)
class Atoms:
    """Outputs with a known finite loss each.

    Guarantee: the k-th output has P-mass in ``p``, Q-mass in ``q`` and a loss between
    ``loss_lower`` and ``loss_upper`` (nats). ``q`` may have lost its relative precision
    (underflow); the loss never has.
    """

    p: Enclosure
    q: Enclosure
    loss_lower: FloatArray
    loss_upper: FloatArray

    def __len__(self) -> int:
        return len(self.p)

    def join(self, other: Atoms) -> Atoms:
        """The atoms of this list, then those of the other one."""
        if not len(self):
            return other
        if not len(other):
            return self
        join = np.concatenate
        return Atoms(
            Enclosure(join([self.p.lower, other.p.lower]), join([self.p.upper, other.p.upper])),
            Enclosure(join([self.q.lower, other.q.lower]), join([self.q.upper, other.q.upper])),
            join([self.loss_lower, other.loss_lower]),
            join([self.loss_upper, other.loss_upper]),
        )


def no_atoms() -> Atoms:
    """The empty list of atoms."""
    nothing = np.zeros(0)
    return Atoms(Enclosure(nothing, nothing), Enclosure(nothing, nothing), nothing, nothing)


@dataclass(frozen=True)
class Bins:
    """The continuous part, cut at n ascending loss edges x[0..n-1] into n + 1 bins.

    Bin 0 is (-inf, x[0]], bin i is (x[i-1], x[i]], bin n is (x[n-1], +inf); the
    reference r of a bin is its right edge, for bin n the left one, as the double given.

    Guarantee: in each bin ``p`` holds the P-mass, ``q`` the Q-mass times e^r, and
    ``w`` their quotient q e^r / p (which may be known far better than either mass). A pair that
    knows w - 1 far better than w gives bounds of it, too.

    Where a whole lump of mass sits within rounding of an edge, it may be counted in the bin
    above the edge, never below: all of a bin's losses are at most its right edge, and at
    least its left edge up to that rounding, which ``w`` accounts for.
    """

    p: Enclosure  # (n + 1,)
    q: Enclosure  # (n + 1,)
    w: Enclosure  # (n + 1,)
    over: tuple[FloatArray, FloatArray] | None = None  # (n + 1,) each, below and above w - 1

    def over_one(self) -> tuple[FloatArray, FloatArray]:
        """Returns a lower and an upper bound of w - 1 of each bin."""
        low, high = self.w.lower - 1.0, self.w.upper - 1.0
        low, high = low - UNIT * np.abs(low), high + UNIT * np.abs(high)
        if self.over is None:
            return low, high
        # a bound that is no number says nothing
        return np.fmax(low, self.over[0]), np.fmin(high, self.over[1])

    @staticmethod
    def of(p: Enclosure, q: Enclosure, w: Enclosure, edges: FloatArray, slack: FloatArray) -> Bins:
        """Bins with w narrowed to what the edges imply: 1 <= w <= e^(length of the bin).

        ``slack`` is how far each exact edge may lie from the double, in total.
        """
        lengths = np.diff(edges)
        # guard: bins-are-longer-by-slack
        most = exp_enclosure(lengths, slack[:-1] + UNIT * np.abs(lengths)).upper
        floor = exp_enclosure(np.zeros(edges.size), slack).lower
        floor[slack == 0.0] = 1.0
        return Bins(
            p,
            q,
            w.clipped(
                np.append(floor, 0.0),
                np.concatenate([[np.inf], most, exp_enclosure(0.0, slack[-1]).upper]),
            ),
        )


@dataclass(frozen=True)
class Sketch:
    """A rough, uncertified picture of the finite losses under P, for planning only.

    Planning affects the width of a bound, never its truth.
    """

    losses: FloatArray  # (n,), nats
    log_masses: FloatArray  # (n,), natural log of the P-mass around each; may be -inf

    def sorted(self) -> Sketch:
        """This sketch with ascending losses, without the points that have no mass."""
        order = np.argsort(self.losses, kind="stable")
        order = order[np.isfinite(self.log_masses[order])]
        return Sketch(self.losses[order], self.log_masses[order])


# Proof: proofs/order.v, theorems deltas, curves
class Pair:
    """Two distributions (P, Q), as a base class that has neither atoms nor a continuous part.

    Guarantee: every method's enclosures hold the exact masses of a pair that dominates
    the mechanism in this direction.
    """

    def atoms(self) -> Atoms:
        """The outputs that have one loss each; none unless a subclass overrides it."""
        return no_atoms()

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins | None:
        """The masses of the continuous part in each bin, or None if there is no such part.

        Args:
            edges: (n,) ascending, finite, nats; n >= 1.
            slack: (n,) how far each exact edge may lie from the double given; the masses are
                those of the bins between the exact edges, wherever these are.
        """
        return None

    def p_only(self) -> Enclosure:
        """The P-mass of outputs that Q cannot produce: L = +inf."""
        return zero()

    def q_only(self) -> Enclosure:
        """The Q-mass of outputs that P cannot produce: L = -inf."""
        return zero()

    def sums_to_one(self) -> bool:
        """Whether the exact masses of all bins are 1 in all, those of P and those of Q.

        Then the pair has a continuous part alone: no atoms, and no output that only one of P and Q
        can produce. False unless a pair says so.
        """
        return False

    def max_loss(self) -> tuple[float, float]:
        """Lower and upper bound of the largest finite loss; (inf, inf) if losses have no end."""
        raise NotImplementedError

    def tail_is_cut(self) -> bool:
        """Whether this pair stands for one with larger finite losses, which it counts as infinite.

        Then :meth:`max_loss` says nothing of that pair. False unless a pair says so.
        """
        return False

    def sketch(self) -> Sketch:
        """A rough picture of the finite losses under P, for planning only."""
        raise NotImplementedError

    def grid_origin(self) -> float | None:
        """A loss of much mass, which should fall on an edge of a grid; None if there is none."""
        return None

    def log_tail_moment(self, x: float, s: float) -> tuple[float, float]:
        """Lower and upper bound of ln E_P[e^(s L); x < L < inf] for s > 0.

        ``x`` may be -inf. The answer is (-inf, inf) where nothing is known. A pair of bounded
        losses has the answer of this base class: e^(s L) is at most e^(s max_loss).
        """
        top = self.max_loss()[1]
        # one product: 1 unit of 2^-53; with the margin and its sum 3 suffice
        return -np.inf, s * top + 4 * UNIT * abs(s * top) if np.isfinite(top) else top

    def log_moment(self, s: float) -> tuple[float, float]:
        """Lower and upper bound of ln E_P[e^(s L)], s > 0; (-inf, inf) if there is no formula."""
        return -np.inf, np.inf

    def log_rest(self, s: float) -> float:
        """Upper bound of ln sum(p e^(s L) + s q) over the outputs that are not listed, for s > 0.

        Such an output adds its masses to the upper bounds of ``p_only`` and ``q_only``, although
        its loss is finite. -inf where there is none, inf where nothing is known.
        """
        return np.inf if self.p_only().upper[0] > 0 else -np.inf

    def closed_delta(self, epsilon: float) -> tuple[float, float] | None:
        """Lower and upper bound of delta_{P||Q}(epsilon) of one run, where there is a formula.

        None where there is none, or where rounding would leave nothing of it. A pair that answers
        at epsilon = 0 is asked at others, too.
        """
        return None

    def lines_are_closer(self) -> bool:
        """Whether lines through saddle points know one run's delta closer than closed_delta.

        It decides which of two certified answers is given. False unless a pair says so.
        """
        return False

    def transform(self) -> Transform | None:
        """The moment generating function of the loss, where the saddle-point engine can use it."""
        return None

    def dominating_both(self, other: Pair) -> Pair | None:
        """Returns a pair that dominates this one and another one; None where none is known.

        It decides which directions of a composition need not be looked at closely.
        """
        return self if self == other else None

    def reversed(self) -> Pair | None:
        """The pair (Q, P); None where it is not implemented."""
        return None
