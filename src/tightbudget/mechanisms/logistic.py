"""Additive logistic noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.laplace import loss_bins
from tightbudget.numerics.enclosure import Enclosure
from tightbudget.numerics.rounding import EXPM1, UNIT, FloatArray
from tightbudget.numerics.validate import in_double_range, positive
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Bins, Pair, Sketch


@dataclass(frozen=True)
class Logistic(Mechanism):
    """Adds noise with density e^(-x / s) / (s (1 + e^(-x / s))^2), s the scale, to a query.

    Guarantee: the pair (noise, noise + sensitivity) dominates the mechanism (also for queries
    that move by less: the noise is log-concave). One run is (sensitivity / scale)-DP.
    Source: the losses have the density e^((l - m) / 2) / (2 (1 - e^-m)) under P on [-m, m] for
    m = sensitivity / scale, as derived at ``LogisticPair``.

    Args:
        scale: the scale s of the noise itself, > 0, in the query's unit; its standard deviation
            is pi s / sqrt(3).
        sensitivity: how far the query can move, > 0, in the query's unit.

    Raises:
        ParameterError: a parameter is not a finite number > 0, or their quotient is not in
            [1e-100, 1e12].
    """

    scale: float
    sensitivity: float = 1.0

    kind: ClassVar[str] = "logistic"
    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True  # x -> sensitivity - x exchanges P and Q

    def __post_init__(self) -> None:
        super().__post_init__()
        scale, sensitivity = positive(scale=self.scale), positive(sensitivity=self.sensitivity)
        in_double_range(**{"sensitivity / scale": sensitivity / scale})
        self._set(scale=scale, sensitivity=sensitivity)

    def pair(self, direction: Direction) -> Pair:
        return LogisticPair(self.sensitivity / self.scale)


@dataclass(frozen=True)
class LogisticPair(Pair):
    """Logistic noise x against m + x, in units of the scale: losses of density ~ e^(l/2).

    L(x) = ln f(x) / f(x - m) = 2 ln((1 + e^(m - x)) / (1 + e^-x)) - m falls from m to -m. It is at
    most l where e^-x <= (e^h - 1) / (e^m - e^h) with h = (l + m) / 2; the logistic distribution
    function of that is P(L <= l) = (e^h - 1) / (e^m - 1).
    """

    m: float

    @property
    def _share(self) -> Enclosure:
        """1 / (1 - e^-m)."""
        value = np.array([-1.0 / math.expm1(-self.m)])
        # m is a rounded quotient, whose relative error 1 - e^-m does not magnify; the call; the
        # division and the products with the margin. 16 units are above these
        off = (EXPM1 + 8) * UNIT  # pays: logistic-share
        return Enclosure(value * (1 - off), value * (1 + off))

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins:
        return loss_bins(self.m, self._share, edges, slack)

    def closed_delta(self, epsilon: float) -> tuple[float, float]:
        # P(L > eps) - e^eps Q(L > eps) = (1 - e^((eps - m)/2))^2 / (1 - e^-m) for |eps| <= m
        everything = -math.expm1(epsilon) if epsilon < 0 else 0.0
        reach = 8 * UNIT * (self.m + abs(epsilon))  # m and the difference are rounded
        share = self._share
        low, high = (
            -math.expm1(min(0.0, (epsilon - self.m + sign * reach) / 2)) for sign in (1, -1)
        )
        lower, upper = low * low * float(share.lower[0]), high * high * float(share.upper[0])
        if epsilon <= -self.m + reach:  # all outputs may count
            lower = everything
        if epsilon < -self.m - reach:  # and do
            upper = everything
        # expm1, its square and the product: 8 units twice and 3 more
        return max(lower, everything) * (1 - 24 * UNIT), upper * (1 + 24 * UNIT)

    def max_loss(self) -> tuple[float, float]:
        return self.m * (1 - 4 * UNIT), self.m * (1 + 4 * UNIT)

    def sketch(self) -> Sketch:
        m = self.m
        span = min(2 * m, 100.0)  # beyond e^(-100 / 2) there is nothing
        # fine next to the largest loss: there is no atom, and few runs at a small delta end there
        near = np.union1d(np.linspace(0.0, span, 401), span * np.geomspace(1e-10, 1.0, 201))
        ends = np.union1d(near - m, m - near)
        left, right = ends[:-1], ends[1:]
        with np.errstate(divide="ignore"):
            log_masses = (right - m) / 2 + np.log(-np.expm1((left - right) / 2))
        return Sketch((left + right) / 2, log_masses - math.log(-math.expm1(-m)))
