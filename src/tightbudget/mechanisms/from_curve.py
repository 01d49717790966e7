"""A mechanism of which only its privacy curve is known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.composition import Mechanism
from tightbudget.numerics.rounding import UNIT, add_up, exp_up, expm1_up
from tightbudget.numerics.validate import probability, real_array, refuse
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.pair import Direction, Pair

__all__ = ["FromCurve"]

_LARGEST = 1e4  # nats

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
    masses are computed in rational arithmetic; e^eps is rounded up to a rational first,
    which a falling function allows. Source: Doroshenko et al. 2022, "Connect the Dots".

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
        pair = _smallest_pair(_hull(self._points()))
        # a pair that dominates (P, Q) also dominates (Q, P) when both are reversed
        return pair if self.both_ways or direction is Direction.REMOVE else pair.reversed()

    def _points(self) -> list[Point]:
        """The points (e^eps, delta) that delta is at most at, ascending in e^eps."""
        points = [(Fraction(0), Fraction(1))]
        epsilons, deltas = _numbers(epsilons=self.epsilons), _numbers(deltas=self.deltas)
        for epsilon, delta in zip(epsilons, deltas, strict=True):
            t = _exp_above(epsilon)
            point = t, max(Fraction(delta), 1 - t)
            points.append(point)
            if self.both_ways:
                # delta_{P||Q}(1/t) = 1 - 1/t + delta_{Q||P}(t) / t
                points.append((1 / t, 1 - 1 / t + point[1] / t))
        return sorted(points)


def _numbers(**given: Any) -> tuple[float, ...]:
    """The one array that is given by its name, as floats."""
    ((name, value),) = given.items()
    array = real_array(value)
    if array is None or array.ndim != 1 or not array.size:
        raise ParameterError(
            f"{name} must be a non-empty one-dimensional array of numbers, got {value!r:.80}"
        )
    return tuple(array.astype(np.float64).tolist())


def _exp_above(x: float) -> Fraction:
    """A rational number >= e^x, larger by a few units in the last place of e^x - 1 at most."""
    if abs(x) <= 0.5:
        return 1 + Fraction(expm1_up(x)) if x else Fraction(1)
    shift = round(x / math.log(2))
    # k ln 2 is within 2 u of |k ln 2|, which is about |x|
    rest = add_up(x, -shift * math.log(2), 8 * UNIT * (abs(x) + 1))
    return Fraction(exp_up(rest)) * Fraction(2) ** shift


def _hull(points: list[Point]) -> list[Point]:
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
