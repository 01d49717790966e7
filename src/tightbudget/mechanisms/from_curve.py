"""A mechanism of which only its privacy curve is known."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.composition import Mechanism
from tightbudget.numerics.enclosure import Enclosure
from tightbudget.numerics.validate import probability, real_array, refuse
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Pair

_LARGEST = 1e4  # nats
# e^10000 has 4,343 digits before the point: exponents are far from their limit
_DIGITS = Context(prec=40)

Point = tuple[Fraction, Fraction]  # e^eps and delta


@dataclass(frozen=True)
class FromCurve(Mechanism):
    """Any mechanism whose delta(eps) is at most ``deltas[i]`` at ``epsilons[i]``, for all i.

    Guarantee: every pair (P, Q) below the points is dominated by the smallest pair whose
    curve is the lower convex hull, in t = e^eps, of the points, of (t, delta) = (0, 1) and
    of a horizontal ray to the right of the lowest point.

    That the hull is an upper bound: delta_{P||Q}(t) = sup_S P(S) - t Q(S) is convex and
    falling in t. Between two points a convex function that is below both is below their
    chord; to the right of a point a falling function is below the point's height; at t = 0
    it is 1. Every point of the hull lies on such a chord or on the ray. (So points that are
    not convex or not falling are no error: they are merely not the best bound.) That it is
    the curve of a pair: the hull is convex and falling, 1 at t = 0 and >= max(0, 1 - t).
    Its pair has the Q-mass (change of slope at t) and t times that as P-mass at the loss
    ln t, what remains of delta as P-mass at +inf and what is missing of Q at -inf. Hull and
    masses are computed in rational arithmetic, twice: with e^eps rounded up to a rational, which
    gives a pair above, and with e^eps rounded down, which gives one below. The masses of this
    pair enclose both. Source: Doroshenko et al. 2022, "Connect the Dots".

    Args:
        epsilons: (n,) ascending, in [-10000, 10000], nats.
        deltas: (n,) upper bounds in [0, 1] of delta(eps).
        both_ways: True (default): the points bound both delta_{P||Q} and delta_{Q||P}, as
            a mechanism's (eps, delta) curve does. Then delta_{P||Q}(-eps) is at most
            1 - e^-eps + e^-eps deltas[i] as well, which fills in the negative losses.
            False: they bound delta_{P||Q} (``Direction.REMOVE``) alone; the other direction
            is what that implies.

    Raises:
        ParameterError: a parameter is out of its range, or a delta is below 1 - e^eps,
            which no pair's is.
    """

    epsilons: ArrayLike = field(repr=False)  # kept as a tuple of floats
    deltas: ArrayLike = field(repr=False)
    both_ways: bool = True

    kind: ClassVar[str] = "curve"
    mutual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        epsilons, deltas = _numbers(epsilons=self.epsilons), _numbers(deltas=self.deltas)
        if len(deltas) != len(epsilons):
            raise refuse(
                "deltas", f"have as many entries as epsilons ({len(epsilons)})", len(deltas)
            )
        for i, (epsilon, delta) in enumerate(zip(epsilons, deltas, strict=True)):
            if not abs(epsilon) <= _LARGEST:
                raise refuse(f"epsilons[{i}]", f"be in [-{_LARGEST}, {_LARGEST}]", epsilon)
            if i and not epsilon > epsilons[i - 1]:
                raise refuse(f"epsilons[{i}]", f"be above epsilons[{i - 1}]", epsilon)
            probability(**{f"deltas[{i}]": delta})
            # rounding of the caller's own 1 - e^eps is forgiven, and lifted below
            if delta < -math.expm1(min(epsilon, 0.0)) - 1e-9:
                raise refuse(f"deltas[{i}]", f"be at least 1 - e^{epsilon!r}", delta)
        if not isinstance(self.both_ways, bool):
            raise refuse("both_ways", "be True or False", self.both_ways)
        self._set(epsilons=epsilons, deltas=deltas)

    def is_symmetric(self) -> bool:
        return self.both_ways

    def pair(self, direction: Direction) -> Pair:
        pair = self._enclosed or self._ends[0]
        # a pair that dominates (P, Q) also dominates (Q, P) when both are reversed
        return pair if self.both_ways or direction is Direction.REMOVE else pair.reversed()

    def instance(self) -> Mechanism | None:
        return _Below(self) if self._enclosed is None else None

    @functools.cached_property
    def _ends(self) -> tuple[AtomicPair, AtomicPair]:
        """A pair above the smallest one, and a pair below it."""
        above, below = (_smallest_pair(falling_hull(self._points(up=up))) for up in (True, False))
        return above, below

    @functools.cached_property
    def _enclosed(self) -> AtomicPair | None:
        """A pair whose enclosures hold the masses of both; None if they have other atoms."""
        above, below = self._ends
        a, b = above.given, below.given
        if len(a) != len(b):
            return None
        atoms = Atoms(
            _either(a.p, b.p),
            _either(a.q, b.q),
            np.minimum(a.loss_lower, b.loss_lower),
            np.maximum(a.loss_upper, b.loss_upper),
        )
        return AtomicPair(
            atoms,
            only_p=_either(above.only_p, below.only_p),
            only_q=_either(above.only_q, below.only_q),
        )

    def _points(self, *, up: bool) -> list[Point]:
        """The points (e^eps, delta) that delta is at most at, ascending in e^eps.

        With ``up`` their hull is above that of the exact points, else below it.
        """
        points = [(Fraction(0), Fraction(1))]
        epsilons, deltas = _numbers(epsilons=self.epsilons), _numbers(deltas=self.deltas)
        for epsilon, delta in zip(epsilons, deltas, strict=True):
            least, most = exp_ends(epsilon)
            t = most if up else least
            point = t, max(Fraction(delta), 1 - t)
            if not up and point[1] != delta:
                # on the line 1 - t, which no curve is below: the chord from (0, 1) is that line
                point = most, 1 - most  # guard: lifted-point-below
            points.append(point)
            if self.both_ways:
                # delta_{P||Q}(1/t) = 1 - 1/t + delta_{Q||P}(t) / t
                t = point[0]
                points.append((1 / t, 1 - 1 / t + point[1] / t))
        return sorted(points)


@dataclass(frozen=True)
class _Below(Mechanism):
    """The pair below the smallest one under the points of a curve."""

    points: FromCurve

    def pair(self, direction: Direction) -> Pair:
        pair = self.points._ends[1]
        both = self.points.both_ways or direction is Direction.REMOVE
        return pair if both else pair.reversed()


def _either(a: Enclosure, b: Enclosure) -> Enclosure:
    """Enclosures of two numbers each: of all that is in either of two enclosures."""
    return Enclosure(np.minimum(a.lower, b.lower), np.maximum(a.upper, b.upper))


def _numbers(**given: Any) -> tuple[float, ...]:
    """The one array that is given by its name, as floats."""
    ((name, value),) = given.items()
    array = real_array(value)
    if array is None or array.ndim != 1 or not array.size:
        raise ParameterError(
            f"{name} must be a non-empty one-dimensional array of numbers, got {value!r:.80}"
        )
    return tuple(array.astype(np.float64).tolist())


def exp_ends(x: float) -> tuple[Fraction, Fraction]:
    """A rational number <= e^x and one >= e^x, equal for x = 0; else 10^-40 apart, relatively."""
    if x == 0.0:
        return Fraction(1), Fraction(1)
    # a decimal's exp is correctly rounded, so that its neighbours are on both sides of e^x
    near = Decimal(x).exp(_DIGITS)
    return Fraction(near.next_minus(_DIGITS)), Fraction(near.next_plus(_DIGITS))


def falling_hull(points: list[Point]) -> list[Point]:
    """The falling part of the lower convex hull of points that ascend in t."""
    hull: list[Point] = []
    for t, d in points:
        if hull and d >= hull[-1][1]:
            continue  # not below an earlier point, hence above the ray from it
        while len(hull) >= 2:
            (t0, d0), (t1, d1) = hull[-2:]
            if (d1 - d0) * (t - t1) < (d - d1) * (t1 - t0):
                break
            hull.pop()
        hull.append((t, d))
    return hull


def _smallest_pair(hull: list[Point]) -> AtomicPair:
    """The pair whose delta, as a function of t = e^eps, is the polygon through these points."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(hull)]
    q = [after - before for before, after in pairwise([*slopes, Fraction(0)])]
    p = [mass * t for mass, (t, _) in zip(q, hull[1:], strict=True)]
    q_alone = 1 - sum(q, Fraction(0))
    return AtomicPair.from_fractions([*p, hull[-1][1], Fraction(0)], [*q, Fraction(0), q_alone])
