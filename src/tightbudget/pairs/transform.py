"""The moment generating function of a privacy loss: what the saddle-point engine asks of a pair.

A pair that knows M(s) = E_P[e^(s L)] on vertical lines of the complex plane, with a bound of its
error, returns a :class:`Transform` from ``Pair.transform``. delta(eps) is an integral over M
(``tightbudget.engine.saddle_point``). The transforms of Gaussian mechanisms are in
``tightbudget.mechanisms.gaussian_transform``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.rounding import FloatArray
from tightbudget.pairs.direction import Direction

ComplexArray = NDArray[np.complex128]


class Line(NamedTuple):
    """ln M at points of a vertical line.

    Guarantee: for every k >= 1 the exact M^k is within |e^(k log)| (e^(k error) - 1) of
    e^(k log).
    """

    log: ComplexArray  # (n,)
    error: FloatArray  # (n,)


class Rough(NamedTuple):
    """ln M and its first two derivatives on the real axis, uncertified: for planning."""

    value: FloatArray  # (n,)
    slope: FloatArray
    curvature: FloatArray


class Transform(Protocol):
    """M(s) = E_P[e^(s L); L < inf] of one pair, for Re s > 0, L the privacy loss in nats.

    An implementation inherits from this class. It then answers None to the questions that it
    says nothing about: ``far_line``, ``rare_split``, ``gaussian_mu``, ``sampled``, ``family`` and
    ``together``; by ``without_tail`` nothing is left out, ``about_log_delta`` is -inf, and
    ``sketch`` is the transform itself.
    An argument ``tolerance`` is the relative error that one run may have; it decides on cost only.
    """

    @property
    def farthest(self) -> float:
        """The largest c for which the engine should try the line Re s = c."""

    def rough(self, c: FloatArray) -> Rough:
        """ln M and its derivatives at each c > 0, uncertified: for planning."""

    def nodes(self, c: float, t: float, tolerance: float) -> int:
        """The number of terms that one value of M costs at c + i t', for any 0 <= t' <= t."""

    def line(self, c: float, t: FloatArray, tolerance: float) -> Line:
        """ln M(c + i t) with its error, for ascending t >= 0."""

    def upper(self, c: float) -> float:
        """An upper bound of ln M(c), for c > 0 or -1 < c < 0."""

    def shifts(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """About the least value of ``beyond(c, t, shift)`` for each t, and the shift that has it.

        Uncertified: for planning.
        """

    def beyond(self, c: float, t: float, shift: float) -> float:
        """An upper bound of ln |M(c + i t')| for all t' >= t; any ``shift`` gives one."""

    def far_line(self, c: float, t: FloatArray) -> Line | None:
        """ln M(c + i t) with its error, for ascending t >= 0 that may be very large.

        The cost of one value does not grow with t, the error is larger than that of :meth:`line`.
        None where no such formula is known.
        """
        return None

    @property
    def far_cost(self) -> float:
        """The cost of one value of :meth:`far_line`, in values of one mechanism."""
        return 1.0

    @property
    def sketch(self) -> Transform:
        """A transform that resembles this one and may cost less: for planning."""
        return self

    def rare_split(self, c: float) -> tuple[Transform, Transform] | None:
        """Two transforms (bulk, rare) that sum to M, where rare large losses stand apart at c.

        None where the losses of the pair tilted by e^(c L) are one lump, or no split is known.
        """
        return None

    def without_tail(self, log_mass: float, c: float) -> tuple[Transform, float]:
        """The transform of all outputs but some with the largest losses, and how much these are.

        Guarantee: the number that is returned is an upper bound of the P-mass left out. It is about
        e^log_mass or less, and 0 where no such transform is known or needed.

        Args:
            log_mass: ln of how much may be left out.
            c: up to which M(c) is to owe nothing to losses beyond those that stay.
        """
        return self, 0.0

    def about_log_delta(self, epsilon: float) -> float:
        """About ln delta(eps) of one run whose losses ``without_tail`` leaves out, for planning.

        -inf where no losses are left out, or no formula is known.
        """
        return -math.inf

    def gaussian_mu(self) -> float | None:
        """The smallest mu for which delta(eps) <= delta_mu(eps) for all eps, if it is known.

        delta_mu(eps) is the delta of N(0, 1) against N(mu, 1). The returned mu is within two
        units of 2^-53 of the exact one, relatively; the square of mu adds up over independent runs.
        """
        return None

    def sampled(self, rate: float, direction: Direction) -> Transform | None:
        """The transform of this pair under Poisson sampling with ``rate`` in (0, 1).

        REMOVE mixes the first distribution with the second, ((1 - rate) Q + rate P, Q); ADD mixes
        the second with the first, (P, (1 - rate) P + rate Q). None where no transform is known.
        """
        return None

    @property
    def family(self) -> str | None:
        """The name of the transforms that ``together`` takes besides this one; None for none."""
        return None

    def together(self, members: Sequence[tuple[Transform, int]]) -> tuple[Transform, ...]:
        """Transforms whose product is that of all members, each taken as often as its count.

        Args:
            members: transforms of this one's ``family``, each with its count. A product costs
                less than its members where there are many of them, and may know fewer digits.
        """
        return tuple(transform for transform, count in members for _ in range(count))
