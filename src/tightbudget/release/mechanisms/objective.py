"""The minimum of a regularised mean loss, as near to the true one as is promised.

With rows |x|_2 <= 1, labels y of -1 or 1, and J(p) = (1/n) sum l(y p.x) + (Lambda/2) |p|_2^2,
the minimum moves by at most 2 / (n Lambda) if one record is replaced. What a program finds is
not the minimum. J is strongly convex, so |grad J(p)| <= Lambda tau puts p within tau of it;
this is tested, with the gradient's own rounding paid for, so what is found moves by at most
2 / (n Lambda) + 2 tau.
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

__all__ = ["LONGEST", "Loss", "Objective"]

_TOLERANCE = Fraction(1, 2**11)  # of 2 / (n Lambda)
_LONGER = Fraction(1, 2**30)  # how much longer than 1 a row may be, with its own rounding
LONGEST = 1 + 2.0**-31  # the length of a row, as it is computed
_HALVINGS = 8


@plain_numbers
@dataclass(frozen=True)
class Loss:
    """A convex differentiable function of the margin z = y p.x with |l'(z)| <= 1.

    Attributes:
        name: what it is called.
        slope: l'(z), to 8 units of rounding.
        bend: l''(z), or a number in [0, curvature]: it guides, and promises nothing.
        curvature: how fast the slope changes, at most.
        LOGISTIC: ln(1 + e^-z).
        HUBER_SVM: max(0, 1 - z), rounded off where |1 - z| <= 1/2.
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
    """What is minimised, but for the data.

    Attributes:
        loss: of a record.
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
        """The minimum lies in the ball of this radius, as |grad| of the mean loss is at most 1."""
        return 1.001 / self.regularization

    @property
    def rounding(self) -> float:
        """How far off a computed gradient can be, in the 2-norm, in twice this radius."""
        # p.x: d + 2 roundings of numbers up to |p|, through l'; a sum of n slopes up to 1; Lambda p
        margins = self.loss.curvature * (self.features + 2) * 2 * self.radius
        return 2 * UNIT * (margins + self.records + 40)

    @property
    def tolerance(self) -> Fraction:
        """tau: how far from the minimum :meth:`minimum` may be."""
        slack = 4 * Fraction(self.rounding) / Fraction(self.regularization)
        return _TOLERANCE * self._replacement + slack

    @property
    def sensitivity(self) -> Fraction:
        """How far :meth:`minimum` moves, in the 2-norm, if one record is replaced.

        Source: Chaudhuri, Monteleoni, Sarwate 2011, Corollary 8; Hartmann et al. 2022, Theorem 16.
        """
        return self._replacement * (1 + 2 * _LONGER) + 2 * self.tolerance

    @property
    def _replacement(self) -> Fraction:
        return 2 / (self.records * Fraction(self.regularization))

    def minimum(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """A point within :attr:`tolerance` of the minimum.

        Newton's step, shortened until it shrinks the gradient as it should; else a gradient step,
        which shrinks it by 1 - Lambda / (curvature + Lambda) at least. So it ends.

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
        # ln(|g| / goal) shrinks by 1/steps each time; |g| <= 1 at first
        steps = steepest / regularization
        for _ in range(10 + math.ceil(4 * steps * max(1.0, -math.log(goal)))):
            size = float(np.linalg.norm(g))
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
