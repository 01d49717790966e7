"""A mechanism of which only tables of its privacy loss are known."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure, stack
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.numerics.validate import masses, positive, probability, refuse
from tightbudget.pairs.atomic import AtomicPair, log_quotient, total
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Pair

_OFF = 1e-3  # by how much a table may miss a total of 1
_LARGEST = 10**12  # indices


@dataclass(frozen=True)
class LossTable(Mechanism):
    """Any mechanism whose privacy loss is, or is dominated by, a table: P-mass by loss.

    A table is (first, masses, infinity): the loss (first + i) step has the P-mass masses[i], and
    the loss +inf the mass ``infinity``. It says delta(eps) = infinity + sum masses (1 -
    e^(eps - loss))_+.

    Guarantee: in each direction the pair is the smallest one whose delta(eps) is at least the
    table's, for every eps from the table's smallest loss on; the doubles count as exact numbers. A
    table that rounding has left without a total of 1, or whose Q-mass, sum masses e^-loss,
    exceeds 1, is set right at its smallest losses alone: P-mass that is missing is added there,
    what is too much is taken away there, and Q-mass that is too much is lifted from there. No
    other curve of a pair is as low: one that is convex, 1 at e^eps = 0, at least 1 - e^eps, and
    as high as the table elsewhere. Source: Doroshenko et al. 2022, "Connect the Dots".

    Args:
        step: the spacing of the losses, > 0, nats.
        remove: the table of ``Direction.REMOVE``; masses (n,) >= 0, with ``infinity`` they sum to
            1 within 1e-3; ``first`` is an integer.
        add: that of ``Direction.ADD``; None (default): the same. The two tables count as pairs of
            their own: :meth:`is_mutual` is False, also where one is the other's reverse.

    Raises:
        ParameterError: a parameter is out of its range.
    """

    step: float
    remove: Any = field(repr=False)  # kept as (int, tuple of floats, float)
    add: Any = field(default=None, repr=False)

    kind: ClassVar[str] = "loss_table"

    def __post_init__(self) -> None:
        super().__post_init__()
        add = None if self.add is None else _table(add=self.add)
        self._set(step=positive(step=self.step), remove=_table(remove=self.remove), add=add)

    def is_symmetric(self) -> bool:
        return self.add is None

    def pair(self, direction: Direction) -> Pair:
        table = self.remove if direction is Direction.REMOVE or self.add is None else self.add
        first, given, infinity = table
        losses = (first + np.arange(len(given), dtype=np.float64)) * self.step
        p = _summing_to_1(np.array(given), infinity)
        losses, p = losses[p.upper > 0], p[p.upper > 0]
        margin = 2 * UNIT * np.abs(losses)
        q = p * exp_enclosure(-losses, margin)
        atoms = Atoms(p, q, losses - margin, losses + margin)
        whole = total(q)
        if whole.lower[0] > 1.0:  # guard: q-mass-at-most-1
            return AtomicPair(_lifted(atoms), only_p=exact(infinity))
        return AtomicPair(atoms, only_p=exact(infinity), only_q=exact(1.0) - whole)


def _table(**given: Any) -> tuple[int, tuple[float, ...], float]:
    """The one table that is given by its name, checked: first loss, masses, mass at infinity."""
    ((name, value),) = given.items()
    try:
        first, array, infinity = value
    except (TypeError, ValueError):
        raise refuse(name, "be (first, masses, infinity)", value) from None
    infinity = probability(**{f"{name}'s infinity": infinity})
    if isinstance(first, bool) or not isinstance(first, (int, np.integer)):
        raise refuse(f"{name}'s first", "be an integer", first)
    start = operator.index(first)
    if infinity == 1.0:
        return 0, (), 1.0
    p = masses(normalised=False, **{f"{name}'s masses": array})
    if not abs(math.fsum(p) + infinity - 1) <= _OFF:
        raise refuse(f"{name}'s masses and infinity", f"sum to 1 (within {_OFF})", value)
    if abs(start) + p.size > _LARGEST:
        raise refuse(f"{name}'s first", f"be in [-{_LARGEST}, {_LARGEST}]", start)
    kept = np.flatnonzero(p)
    return start + int(kept[0]), tuple(p[kept[0] : kept[-1] + 1].tolist()), infinity


def _summing_to_1(p: FloatArray, infinity: float) -> Enclosure:
    """The masses, those of the smallest losses changed so that they and ``infinity`` sum to 1."""
    if not p.size:
        return exact(p)
    # above[i] = mass beyond i; the first loss that it leaves room for takes what is left
    above = np.append(np.cumsum(p[::-1])[::-1][1:], 0.0) + infinity
    first = int(np.argmax(above <= 1.0))
    rest = exact(1.0) - (total(exact(p[first + 1 :])) + exact(infinity))
    # guard: excess-from-first-cells
    return stack(exact(np.zeros(first)), rest, exact(p[first + 1 :]))


def _lifted(atoms: Atoms) -> Atoms:
    """The atoms with those of the smallest losses as one, which takes the Q-mass that is left."""
    above = np.append(np.cumsum(atoms.q.upper[::-1])[::-1][1:], 0.0)
    below = np.cumsum(atoms.p.upper)
    following = np.append(atoms.loss_upper[1:], np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        fits = below < (1.0 - above) * np.exp(following)
    last = int(np.argmax(fits))
    rest = slice(last + 1, None)
    p = total(atoms.p[: last + 1])
    q = exact(1.0) - total(atoms.q[rest])
    low, high = log_quotient(p, q)
    one = Atoms(p, q, low, high)
    return one.join(
        Atoms(atoms.p[rest], atoms.q[rest], atoms.loss_lower[rest], atoms.loss_upper[rest])
    )
