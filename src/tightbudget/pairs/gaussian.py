"""The Gaussian mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special as sp

from tightbudget.numerics.enclosure import exp_enclosure
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.numerics.special import half_square_exp, normal_cells
from tightbudget.numerics.validate import positive
from tightbudget.pairs.pair import Cells, Direction, Mechanism, Pair, Sketch

__all__ = ["Gaussian"]


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Adds N(0, sigma^2) noise to a query of the given sensitivity.

    Guarantee: the pair N(0, sigma^2) against N(sensitivity, sigma^2) dominates the
    mechanism; with m = sensitivity / sigma its loss is N(m^2/2, m^2) under P.
    Source: Balle, Wang 2018.

    Args:
        sigma: standard deviation of the noise, > 0.
        sensitivity: how far the query can move (2-norm), > 0, in the noise's unit.

    Raises:
        ParameterError: a parameter is not a finite number > 0.
    """

    sigma: float
    sensitivity: float = 1.0

    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(sigma=positive(sigma=self.sigma), sensitivity=positive(sensitivity=self.sensitivity))
        # also the quotient must be a number the arithmetic can carry
        positive(**{"sensitivity / sigma": self.sensitivity / self.sigma})

    def pair(self, direction: Direction) -> Pair:
        return GaussianPair(self.sensitivity / self.sigma)


@dataclass(frozen=True)
class GaussianPair(Pair):
    """N(m^2/2, m^2) against N(-m^2/2, m^2), on the loss axis itself."""

    m: float

    def cells(self, edges: FloatArray, slack: FloatArray) -> Cells:
        m = self.m
        zp, zq = edges / m - m / 2, edges / m + m / 2
        # rounding of m, of the quotient and of the sum, beside the edge's own slack
        dz = slack / m + 4 * UNIT * (np.abs(edges / m) + m / 2)
        plain = np.ones(edges.size)
        reference = np.append(edges, edges[-1])
        p = normal_cells(
            zp, dz, half_square_exp(zp), plain, plain, exp_enclosure(np.zeros(edges.size + 1))
        )
        # e^x e^(-zq^2/2) = e^(-zp^2/2), and the reference of a cell is its right edge
        q = normal_cells(
            zq,
            dz * (1 + (np.abs(zp) + 1) / (np.abs(zq) + 1)),
            half_square_exp(zp),
            np.exp(np.minimum(np.diff(reference), 700.0)),
            plain,
            exp_enclosure(reference),
        )
        return Cells.of(p, q, q / p, edges, slack)

    def max_loss(self) -> tuple[float, float]:
        return np.inf, np.inf

    def sketch(self) -> Sketch:
        z = np.linspace(-38.5, 38.5, 771)
        return Sketch(self.m * z + self.m**2 / 2, -z * z / 2 + np.log(0.1 / np.sqrt(2 * np.pi)))

    def log_tail_moment(self, x: float, s: float) -> float:
        # completing the square: e^(s L) turns N(m^2/2, m^2) into N(m^2/2 + s m^2, m^2)
        m = self.m
        log_total = s * (s + 1) * m * m / 2
        tail = float(sp.log_ndtr(m / 2 + s * m - x / m))
        return log_total + tail + 1e-9 * (1 + abs(log_total) + abs(tail))
