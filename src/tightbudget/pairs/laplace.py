"""The Laplace mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.numerics.validate import positive
from tightbudget.pairs.pair import Atoms, Cells, Direction, Mechanism, Pair, Sketch

__all__ = ["Laplace"]


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Adds noise with density e^(-|x| / scale) / (2 scale) to a query of the given sensitivity.

    Guarantee: the pair Lap(0, scale) against Lap(sensitivity, scale) dominates the
    mechanism. Source: Dwork, McSherry, Nissim, Smith 2006.

    Args:
        scale: the noise's scale b, > 0.
        sensitivity: how far the query can move (1-norm), > 0, in the noise's unit.

    Raises:
        ParameterError: a parameter is not a finite number > 0.
    """

    scale: float
    sensitivity: float = 1.0

    kind: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(scale=positive(scale=self.scale), sensitivity=positive(sensitivity=self.sensitivity))
        positive(**{"sensitivity / scale": self.sensitivity / self.scale})

    def pair(self, direction: Direction) -> Pair:
        return LaplacePair(self.sensitivity / self.scale)


@dataclass(frozen=True)
class LaplacePair(Pair):
    """Atoms at +-m and e^(-(m - l)/2) / 4 dl between them, for m = sensitivity / scale."""

    m: float

    def atoms(self) -> Atoms:
        m = np.array([self.m])
        down = exp_enclosure(-m, 2 * UNIT * m)
        half = exact(0.5)
        low = Enclosure(down.lower / 2, down.upper / 2)
        margin = 2 * UNIT * self.m  # m itself is a rounded quotient
        losses = np.array([-self.m, self.m])
        return Atoms(
            p=Enclosure(np.append(low.lower, half.lower), np.append(low.upper, half.upper)),
            q=Enclosure(np.append(half.lower, low.lower), np.append(half.upper, low.upper)),
            loss_lower=losses - margin,
            loss_upper=losses + margin,
        )

    def cells(self, edges: FloatArray, slack: FloatArray) -> Cells:
        m = self.m
        slack = slack + 2 * UNIT * m
        left = np.concatenate([[-np.inf], edges])
        right = np.concatenate([edges, [np.inf]])
        left_slack, right_slack = np.append(0.0, slack), np.append(slack, 0.0)
        p = Enclosure(
            self._mass(left + left_slack, right - right_slack, -1),
            self._mass(left - left_slack, right + right_slack, +1),
        )
        # Q e^r / P = e^((right - left) / 2 + r - right) exactly, for the part inside [-m, m]
        left, right = np.clip(left, -m, m), np.clip(right, -m, m)
        reference = np.append(edges, edges[-1])
        exponent = np.minimum((right - left) / 2 + (reference - right), 700.0)
        w = exp_enclosure(exponent, left_slack + 2 * right_slack)
        q = p * w
        return Cells.of(p, q, w, edges, slack)

    def _mass(self, left: FloatArray, right: FloatArray, sign: int) -> FloatArray:
        """The P-mass of [left, right], e^(-(m - right)/2) (1 - e^(-(right - left)/2)) / 2."""
        m = self.m
        left, right = np.clip(left, -m, m), np.clip(right, -m, m)
        d = np.maximum(right - left, 0.0)
        mass = np.exp((right - m) / 2) * -np.expm1(-d / 2) / 2
        # right - m and right - left are rounded by at most u |right - m| and u (2 m)
        return np.asarray(mass * (1 + sign * (16 + 2 * m) * 2 * UNIT))

    def max_loss(self) -> tuple[float, float]:
        return self.m * (1 - 4 * UNIT), self.m * (1 + 4 * UNIT)

    def grid_origin(self) -> float:
        return self.m

    def sketch(self) -> Sketch:
        m = self.m
        losses = np.linspace(-m, m, 401)
        log_masses = (losses - m) / 2 + np.log(np.diff(losses)[0] / 4)
        return Sketch(
            np.concatenate([[-m], losses, [m]]),
            np.concatenate([[-m - np.log(2)], log_masses, [-np.log(2)]]),
        )
