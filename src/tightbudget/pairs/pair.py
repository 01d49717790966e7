"""What a mechanism is to an accountant: two distributions that must be told apart.

A :class:`Mechanism` offers, for each :class:`Direction`, a :class:`Pair` (P, Q) that
dominates it. A pair answers one question: how much P-mass and Q-mass has its privacy
loss L = ln P/Q (nats) in a given cell? Composition, bounds, Renyi divergences and
trade-off curves follow from that alone.

A pair has three parts: *atoms* (outputs with one loss each), a *continuous* part, and
the outputs that only one of the two distributions can produce.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tightbudget.errors import ParameterError, RelationError
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.numerics.validate import refuse
from tightbudget.pairs.transform import Transform

__all__ = [
    "Atoms",
    "Cells",
    "Composable",
    "Direction",
    "Mechanism",
    "Neighbouring",
    "Pair",
    "Sketch",
    "carried",
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


class Neighbouring(enum.Enum):
    """The relation between data sets under which a guarantee holds."""

    ADD_OR_REMOVE = "add-or-remove"
    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"


def carried(**given: float) -> None:
    """Refuses a quotient whose square double precision could not carry."""
    ((name, value),) = given.items()
    if not 1e-100 <= value <= 1e12:
        raise refuse(name, "be in [1e-100, 1e12]", value)


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
class Cells:
    """The continuous part, cut at n ascending loss edges x[0..n-1] into n + 1 cells.

    Cell 0 is (-inf, x[0]], cell i is (x[i-1], x[i]], cell n is (x[n-1], +inf); the
    reference r of a cell is its right edge, for cell n the left one, as the double given.

    Guarantee, cell by cell: ``p`` holds the P-mass, ``q`` the Q-mass times e^r, and
    ``w`` their quotient q e^r / p (which may be known far better than either mass).

    Where a whole lump of mass sits within rounding of an edge, it may be counted in the cell
    above the edge, never below: all of a cell's losses are at most its right edge, and at
    least its left edge up to that rounding, which ``w`` accounts for.
    """

    p: Enclosure  # (n + 1,)
    q: Enclosure  # (n + 1,)
    w: Enclosure  # (n + 1,)

    @staticmethod
    def of(p: Enclosure, q: Enclosure, w: Enclosure, edges: FloatArray, slack: FloatArray) -> Cells:
        """Cells with w narrowed to what the edges imply: 1 <= w <= e^(length of the cell).

        ``slack`` is how far each exact edge may lie from the double, in total.
        """
        lengths = np.diff(edges)
        most = exp_enclosure(lengths, slack[:-1] + UNIT * np.abs(lengths)).upper
        floor = exp_enclosure(np.zeros(edges.size), slack).lower
        floor[slack == 0.0] = 1.0
        return Cells(
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

    def cells(self, edges: FloatArray, slack: FloatArray) -> Cells | None:
        """The masses of the continuous part, or None if there is none.

        Args:
            edges: (n,) ascending, finite, nats; n >= 1.
            slack: (n,) how far each exact edge may lie from the double given; the masses are
                those of the cells between the exact edges, wherever these are.
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
        """E_P[e^(s L)] for complex s, where the contour engine can use it."""
        return None

    def reversed(self) -> Pair | None:
        """Q against P, or None where nobody has needed it."""
        return None


class Composable:
    """What ``*``, ``+`` and ``compose`` accept: mechanisms, and compositions of them.

    The value that a user composes lives two floors up (``accounting.composition``); it
    registers itself here, so that imports still only go down.
    """

    _composition: ClassVar[Callable[[tuple[tuple[Mechanism, int], ...]], Any]]

    def parts(self) -> Iterator[tuple[Mechanism, int]]:
        """The mechanisms with their numbers of runs."""
        raise NotImplementedError

    def __mul__(self, times: int) -> Any:
        # count() lives with the composition, which refuses bad numbers by name
        return Composable._composition(tuple(self.parts())) * times

    __rmul__ = __mul__

    def __add__(self, other: Composable) -> Any:
        if not isinstance(other, Composable):
            return NotImplemented
        return Composable._composition((*self.parts(), *other.parts()))


@dataclass(frozen=True)
class Mechanism(Composable):
    """A randomised mechanism, described by the pair of distributions that is worst for it.

    Frozen, compared and hashed by content. ``relation`` is the neighbouring relation that
    its sensitivity (or pair) was stated for; None means that the caller's sensitivity
    carries it, and composes with everything. (kw-only in every subclass.)
    """

    relation: Neighbouring | None = dataclasses.field(default=None, kw_only=True)

    kind: ClassVar[str] = ""  # the name in JSON, plan files and on the command line
    symmetric: ClassVar[bool] = True  # both directions have the same delta
    mutual: ClassVar[bool] = False  # one direction's pair is the other's, P and Q exchanged

    def __post_init__(self) -> None:
        if self.relation is not None and not isinstance(self.relation, Neighbouring):
            raise ParameterError(f"relation must be a Neighbouring or None, got {self.relation!r}")

    def _set(self, **values: object) -> None:
        # how a frozen value stores its validated parameters
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def pair(self, direction: Direction) -> Pair:
        """The dominating pair for this direction."""
        raise NotImplementedError

    def is_symmetric(self) -> bool:
        """Whether delta(eps) is the same in both directions."""
        return self.symmetric

    def is_mutual(self) -> bool:
        """Whether the pair of one direction is that of the other with P and Q exchanged.

        Then an (eps, delta) that holds in both directions holds for each pair in both orders,
        which theorems on (eps, delta)-DP take for granted.
        """
        return self.mutual

    def in_both_orders(self, direction: Direction) -> Mechanism | None:
        """The mechanism whose two directions are this direction's pair and that pair reversed.

        Returns:
            ``self`` where :meth:`is_mutual` holds; None where the reverse is not known.
        """
        if self.is_mutual():
            return self
        if self.pair(direction).reversed() is None:
            return None
        return _InBothOrders(self, direction, relation=self.relation)

    def parts(self) -> Iterator[tuple[Mechanism, int]]:
        yield self, 1

    def under(self, relation: Neighbouring) -> Mechanism:
        """The same mechanism, declared for a neighbouring relation.

        Raises:
            RelationError: it was already declared for another one.
        """
        if self.relation not in (None, relation):
            raise RelationError(
                f"{self!r} was declared for {self.relation} and cannot be declared for {relation}"
            )
        return dataclasses.replace(self, relation=relation)

    def subsampled(self, rate: float) -> Mechanism:
        """This mechanism on a Poisson sample: each record is in it with probability ``rate``.

        Holds for ``Neighbouring.ADD_OR_REMOVE``; see :class:`tightbudget.Subsampled`.
        """
        from tightbudget.pairs.subsampled import Subsampled

        return Subsampled(self, rate)

    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON values (without relation and defaults)."""
        given: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "relation" or not field.init or value == field.default:
                continue
            given[field.name] = value
        return given


@dataclass(frozen=True)
class _InBothOrders(Mechanism):
    """The pair of one direction of a mechanism, and in the other direction its reverse."""

    base: Mechanism
    direction: Direction

    symmetric: ClassVar[bool] = False
    mutual: ClassVar[bool] = True

    def pair(self, direction: Direction) -> Pair:
        pair = self.base.pair(self.direction)
        if direction is self.direction:
            return pair
        reverse = pair.reversed()
        assert reverse is not None  # in_both_orders has seen to it
        return reverse
