"""Finds the minimum of a regularised mean loss, as near to the true one as it promises.

With rows |x|_2 <= 1, labels y of -1 or 1, and J(p) = (1/n) sum l(y p.x) + (Lambda/2) |p|_2^2,
the minimum moves by at most 2 / (n Lambda) if one record is replaced. The point that a program
finds is not the minimum. J is strongly convex, so |grad J(p)| <= Lambda tau puts p within tau of
the minimum. The program tests this inequality, and pays for the rounding of the gradient. So the
point that it finds moves by at most 2 / (n Lambda) + 2 tau.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from scipy.special import expit

from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.numerics.validate import plain_numbers, positive

_TOLERANCE = Fraction(1, 2**11)  # tau as a part of 2 / (n Lambda): it costs 0.1 % more noise
_LONGER = Fraction(1, 2**30)  # a row may be so much longer than 1, with the rounding of its length
LONGEST = 1 + 2.0**-31  # the largest length of a row, as it is computed
_HALVINGS = 8  # of Newton's step, before a gradient step is taken


@plain_numbers
@dataclass(frozen=True)
class Loss:
    """A convex differentiable function of the margin z = y p.x with |l'(z)| <= 1.

    Attributes:
        name: the name that ``repr`` shows.
        slope: l'(z), to 8 units of rounding.
        bend: l''(z), or another number in [0, curvature]: it guides the search, and no promise
            rests on it.
        curvature: the largest change of the slope for a margin that changes by 1.
        LOGISTIC: ln(1 + e^-z).
        HUBER_SVM: max(0, 1 - z), with a parabola in place of the corner for |1 - z| <= 1/2.
    """

    LOGISTIC: ClassVar[Loss]
    HUBER_SVM: ClassVar[Loss]

    name: str
    slope: Callable[[FloatArray], FloatArray]
    bend: Callable[[FloatArray], FloatArray]
    curvature: float

    def __post_init__(self) -> None:
        positive(curvature=self.curvature)

    def __repr__(self) -> str:
        return self.name


Loss.LOGISTIC = Loss(
    name="logistic",
    slope=lambda z: np.asarray(-expit(-z)),
    bend=lambda z: np.asarray(expit(z) * expit(-z)),
    curvature=0.25,
)
Loss.HUBER_SVM = Loss(
    name="Huber SVM",
    slope=lambda z: np.clip(z - 1.5, -1.0, 0.0),
    bend=lambda z: np.where(np.abs(z - 1.0) <= 0.5, 1.0, 0.0),
    curvature=1.0,
)


@dataclass(frozen=True)
class Objective:
    """A regularised mean loss J(p), without the data.

    Attributes:
        loss: the loss of one record.
        regularization: Lambda > 0.
        records: n, public.
        features: d, public.
    """

    loss: Loss
    regularization: float
    records: int
    features: int

    @property
    def radius(self) -> float:
        """The radius of a ball that holds the minimum, since the mean loss has |grad| <= 1."""
        return 1.001 / self.regularization

    @property
    def rounding(self) -> float:
        """The largest error of a computed gradient, in the 2-norm, for |p| <= 2 radius."""
        # p.x has d + 2 roundings of numbers up to |p|, which go through l'; the sum of n slopes up
        # to 1, and Lambda p, have n + 40
        margins = self.loss.curvature * (self.features + 2) * 2 * self.radius
        return 2 * UNIT * (margins + self.records + 40)

    @property
    def tolerance(self) -> Fraction:
        """tau: the largest distance of :meth:`minimum` from the true minimum, in the 2-norm."""
        slack = 4 * Fraction(self.rounding) / Fraction(self.regularization)
        return _TOLERANCE * self._replacement + slack

    @property
    def sensitivity(self) -> Fraction:
        """The largest move of :meth:`minimum`, in the 2-norm, if one record is replaced.

        Source: Chaudhuri, Monteleoni, Sarwate 2011, Corollary 8; Hartmann et al. 2022, Theorem 16.
        """
        return self._replacement * (1 + 2 * _LONGER) + 2 * self.tolerance

    @property
    def _replacement(self) -> Fraction:
        """The largest move of the true minimum if one record is replaced: 2 / (n Lambda)."""
        return 2 / (self.records * Fraction(self.regularization))

    def minimum(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Returns a point within :attr:`tolerance` of the minimum.

        Each turn takes Newton's step, halved until it shrinks the gradient enough, or else a
        gradient step, which shrinks it by 1 - Lambda / (curvature + Lambda) at least. So the
        search ends.

        Args:
            x: (n, d), rows with |x|_2 <= 1.
            y: (n,), -1 or 1.

        Raises:
            ArithmeticError: only if the arithmetic is not that of IEEE 754.
        """
        regularization = self.regularization
        steepest = self.loss.curvature * (1 + 1e-6) + regularization
        goal = float(self.tolerance) * regularization * 0.999 - self.rounding
        signed = x * y[:, None]

        def gradient(p: FloatArray) -> FloatArray:
            return signed.T @ self.loss.slope(signed @ p) / self.records + regularization * p

        p = np.zeros(self.features)
        g = gradient(p)
        # ln(|g| / goal) shrinks by 1/steps in each turn, and |g| <= 1 at first
        steps = steepest / regularization
        for _ in range(10 + math.ceil(4 * steps * max(1.0, -math.log(goal)))):
            size = float(np.linalg.norm(g))
            # guard: minimum-tested
            if size <= goal and float(np.linalg.norm(p)) <= 2 * self.radius:
                return p
            p, g = self._next(p, g, size, signed, gradient, steepest)
        raise ArithmeticError("the gradient does not shrink")

    def _next(
        self,
        p: FloatArray,
        g: FloatArray,
        size: float,
        signed: FloatArray,
        gradient: Callable[[FloatArray], FloatArray],
        steepest: float,
    ) -> tuple[FloatArray, FloatArray]:
        """Takes one step from p with gradient g; returns the next point and its gradient."""
        weights = self.loss.bend(signed @ p)[:, None] / self.records
        hessian = signed.T @ (signed * weights) + self.regularization * np.eye(self.features)
        newton = np.linalg.solve(hessian, g)
        for k in range(_HALVINGS):
            step = 0.5**k
            nearer = p - step * newton
            smaller = gradient(nearer)
            if float(np.linalg.norm(smaller)) <= (1 - step / 4) * size:
                return nearer, smaller
        down = p - g / steepest
        return down, gradient(down)
