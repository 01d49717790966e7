"""What a mechanism is to an accountant: two distributions that must be told apart.

A :class:`Mechanism` offers, for each :class:`Direction`, a :class:`Pair` (P, Q) that
dominates it. A pair answers one question: how much P-mass and Q-mass has its privacy
loss L = ln P/Q (nats) in a given bin? Composition, bounds, Renyi divergences and
trade-off curves follow from that alone.

A pair has three parts: *atoms* (outputs with one loss each), a *continuous* part, and
the outputs that only one of the two distributions can produce.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.pairs.transform import Transform

__all__ = [
    "Atoms",
    "Bins",
    "Direction",
    "Pair",
    "Sketch",
    "no_atoms",
    "zero",
]


class Direction(enum.Enum):
    """Which of the two neighbours plays P.

    REMOVE: P is the mechanism with the record, Q without (for a mechanism given as two
    distributions: the first against the second). ADD: the other way round.
    """

    REMOVE = "remove"
    ADD = "add"

    @property
    def other(self) -> Direction:
        """The direction in which the neighbours have changed places."""
        return Direction.ADD if self is Direction.REMOVE else Direction.REMOVE


def zero() -> Enclosure:
    """The mass of nothing: exactly 0."""
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
        """Both lists."""
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

    Cell 0 is (-inf, x[0]], bin i is (x[i-1], x[i]], bin n is (x[n-1], +inf); the
    reference r of a bin is its right edge, for bin n the left one, as the double given.

    Guarantee, bin by bin: ``p`` holds the P-mass, ``q`` the Q-mass times e^r, and
    ``w`` their quotient q e^r / p (which may be known far better than either mass).

    Where a whole lump of mass sits within rounding of an edge, it may be counted in the bin
    above the edge, never below: all of a bin's losses are at most its right edge, and at
    least its left edge up to that rounding, which ``w`` accounts for.
    """

    p: Enclosure  # (n + 1,)
    q: Enclosure  # (n + 1,)
    w: Enclosure  # (n + 1,)

    @staticmethod
    def of(p: Enclosure, q: Enclosure, w: Enclosure, edges: FloatArray, slack: FloatArray) -> Bins:
        """Bins with w narrowed to what the edges imply: 1 <= w <= e^(length of the bin).

        ``slack`` is how far each exact edge may lie from the double, in total.
        """
        lengths = np.diff(edges)
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
        """Ascending in the loss, without the points of no mass."""
        order = np.argsort(self.losses, kind="stable")
        order = order[np.isfinite(self.log_masses[order])]
        return Sketch(self.losses[order], self.log_masses[order])


class Pair:
    """Two distributions (P, Q). Subclasses override what they have.

    Guarantee: every method's enclosures hold the exact masses of a pair that dominates
    the mechanism in this direction.
    """

    def atoms(self) -> Atoms:
        """The outputs with one loss each."""
        return no_atoms()

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins | None:
        """The masses of the continuous part, or None if there is none.

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

    def max_loss(self) -> tuple[float, float]:
        """(lower, upper) ends of the largest finite loss; (inf, inf) if there is none."""
        raise NotImplementedError

    def sketch(self) -> Sketch:
        """A rough picture of the finite losses."""
        raise NotImplementedError

    def grid_origin(self) -> float | None:
        """A loss that should fall on a grid edge (the bulk of the mass), if there is one."""
        return None

    def log_tail_moment(self, x: float, s: float) -> tuple[float, float]:
        """Lower and upper ends of ln E_P[e^(s L); x < L < inf] for s > 0.

        ``x`` may be -inf; (-inf, inf) where nothing is known. Bounded losses have the
        generic answer; others override this.
        """
        top = self.max_loss()[1]
        return -np.inf, s * top + 4 * UNIT * abs(s * top) if np.isfinite(top) else top

    def log_moment(self, s: float) -> tuple[float, float]:
        """Lower and upper ends of ln E_P[e^(s L)] for s > 0; (-inf, inf) if there is no formula."""
        return -np.inf, np.inf

    def log_rest(self, s: float) -> float:
        """Upper bound of ln sum(p e^(s L) + s q) over the outputs that are not listed, for s > 0.

        Such an output adds its masses to the upper ends of ``p_only`` and ``q_only``, although
        its loss is finite. -inf where there is none, inf where nothing is known.
        """
        return np.inf if self.p_only().upper[0] > 0 else -np.inf

    def closed_delta(self, epsilon: float) -> tuple[float, float] | None:
        """Lower and upper ends of delta_{P||Q}(epsilon) of one run, where there is a formula.

        None where there is none, or where rounding would leave nothing of it. A pair that answers
        at epsilon = 0 is asked at others, too.
        """
        return None

    def transform(self) -> Transform | None:
        """E_P[e^(s L)] for complex s, where the saddle-point engine can use it."""
        return None

    def reversed(self) -> Pair | None:
        """Q against P, or None where nobody has needed it."""
        return None
