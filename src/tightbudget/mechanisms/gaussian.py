"""The Gaussian mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from scipy import special as sp

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.gaussian_transform import NormalTransform
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.enclosure import exact, exp_enclosure, where
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_down,
    add_up,
    double_down,
    exp_down,
    exp_up,
)
from tightbudget.numerics.special import (
    half_square_exp,
    normal_cells,
    normal_tails,
    short_normal_cells,
)
from tightbudget.numerics.validate import in_double_range, positive
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Bins, Pair, Sketch


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Adds N(0, sigma^2) noise to a query of the given sensitivity.

    Guarantee: the pair N(0, sigma^2) against N(sensitivity, sigma^2) dominates the
    mechanism; with m = sensitivity / sigma its loss is N(m^2/2, m^2) under P.
    Source: Balle, Wang 2018.

    A noise multiplier z is sigma / sensitivity, without a unit. These two are equal::

        Gaussian(sigma=0.1, sensitivity=0.1)
        Gaussian.of_noise_multiplier(1.0, sensitivity=0.1)

    Args:
        sigma: standard deviation of the noise itself, > 0, in the query's unit.
        sensitivity: how far the query can move (2-norm), > 0, in the query's unit.

    Raises:
        ParameterError: a parameter is not a finite number > 0, or their quotient is not in
            [1e-100, 1e12].
    """

    sigma: float
    sensitivity: float = 1.0

    kind: ClassVar[str] = "gaussian"
    often_sampled: ClassVar[bool] = True
    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = (
        True  # noise and its mirror image: x -> sensitivity - x exchanges P and Q
    )

    meant: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("noise_multiplier", "multiplier", "z"),
            "sigma is the noise multiplier times the sensitivity, "
            "in Python Gaussian.of_noise_multiplier(z, sensitivity)",
        ),
        **dict.fromkeys(
            ("std", "stddev", "stdev", "sd", "standard_deviation", "scale", "noise_scale"),
            "sigma is the standard deviation of the noise, in the query's unit",
        ),
        **dict.fromkeys(
            ("epsilon", "eps", "delta"),
            "calibrate finds the sigma for an epsilon and a delta",
        ),
    }

    @classmethod
    def of_noise_multiplier(
        cls,
        noise_multiplier: float,
        sensitivity: float = 1.0,
        *,
        relation: Neighbouring | None = None,
    ) -> Gaussian:
        """Makes the mechanism whose sigma is ``noise_multiplier`` times ``sensitivity``.

        Guarantee: sigma is rounded down, so that an upper bound for it is one for the exact
        product, too.

        Args:
            noise_multiplier: sigma / sensitivity, > 0, without a unit.
            sensitivity: how far the query can move (2-norm), > 0, in the query's unit. In DP-SGD
                it is the clipping norm.
            relation: the neighbouring relation that the sensitivity was stated for, if any.

        Raises:
            ParameterError: a parameter is not a finite number > 0, or out of the class's range.
        """
        z, s = positive(noise_multiplier=noise_multiplier), positive(sensitivity=sensitivity)
        sigma = double_down(Fraction(z) * Fraction(s))  # guard: multiplier-rounded-down
        return cls(sigma, s, relation=relation)

    def __post_init__(self) -> None:
        super().__post_init__()
        sigma, sensitivity = positive(sigma=self.sigma), positive(sensitivity=self.sensitivity)
        in_double_range(**{"sensitivity / sigma": sensitivity / sigma})
        self._set(sigma=sigma, sensitivity=sensitivity)

    def pair(self, direction: Direction) -> Pair:
        return GaussianPair(self.sensitivity / self.sigma)


@dataclass(frozen=True)
class GaussianPair(Pair):
    """The losses of a Gaussian: N(m^2/2, m^2) under P and N(-m^2/2, m^2) under Q."""

    m: float

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins:
        m = self.m
        # where N(0, 1) must lie under P and under Q
        zp, zq = edges / m - m / 2, edges / m + m / 2
        # rounding of m, of the quotient and of the sum, beside the edge's own slack
        dz = slack / m + 4 * UNIT * (np.abs(edges / m) + m / 2)
        plain = exact(np.ones(edges.size))
        reference = np.append(edges, edges[-1])
        p = normal_cells(zp, dz, half_square_exp(zp), plain, plain, exact(np.ones(edges.size + 1)))
        # e^x e^(-zq^2/2) = e^(-zp^2/2), and the reference of a bin is its right edge
        gaps = np.diff(reference)
        q = normal_cells(
            zq,
            dz * (1 + (np.abs(zp) + 1) / (np.abs(zq) + 1)),
            half_square_exp(zp),
            exp_enclosure(gaps, UNIT * gaps),
            plain,
            exp_enclosure(reference),
        )
        w = q / p
        # short bins: q e^r / p = E_P[e^(r - L)], and r - L = m (z_r - z)
        ends = np.append(slack, 0.0)
        d = np.concatenate([[np.inf], gaps[:-1], [np.inf]]) / m
        d_slack = np.concatenate([[0.0], (slack[1:] + slack[:-1]) / m, [0.0]])
        short, p_short, w_short = short_normal_cells(
            np.append(zp, 0.0), np.append(dz, 0.0), d, d_slack, m
        )
        p = where(short, p_short, p)
        w = where(short, w_short * exp_enclosure(0.0 * ends, ends), w)
        return Bins.of(p, where(short, p * w, q), w, edges, slack)

    def closed_delta(self, epsilon: float) -> tuple[float, float] | None:
        if not abs(epsilon) <= 600.0:  # beyond, e^eps leaves the range of doubles
            return None
        # P(N > zp) - e^eps P(N > zq), where e^eps e^(-zq^2/2) = e^(-zp^2/2)
        m = self.m
        z = np.array([epsilon / m - m / 2, epsilon / m + m / 2])
        a, dz = np.abs(z), 4 * UNIT * (abs(epsilon / m) + m / 2)  # as in `bins`
        slack = dz * np.array([1.0, 1.0 + (a[0] + 1.0) / (a[1] + 1.0)])
        tails = normal_tails(a, slack, half_square_exp(z[:1]))
        (p_low, q_low), (p_high, q_high) = tails.lower.tolist(), tails.upper.tolist()
        if z[0] < 0.0:
            p_low, p_high = add_down(1.0, -p_high), add_up(1.0, -p_low)
        if z[1] < 0.0:
            q_low, q_high = add_down(exp_down(epsilon), -q_high), add_up(exp_up(epsilon), -q_low)
        return add_down(p_low, -q_high), add_up(p_high, -q_low)

    def lines_are_closer(self) -> bool:
        # a gap of 1e-13 against one of up to 3e-9, measured for sigma from 1 to 5,000
        return True

    def sums_to_one(self) -> bool:
        return True

    def max_loss(self) -> tuple[float, float]:
        return np.inf, np.inf

    def sketch(self) -> Sketch:
        # where P is, and where Q is; between them when both are far apart there is nothing
        z = np.linspace(-38.5, 38.5, 771)
        z = np.union1d(z, z - self.m)
        width = np.gradient(z)
        log_masses = -z * z / 2 + np.log(width / np.sqrt(2 * np.pi))
        return Sketch(self.m * z + self.m**2 / 2, log_masses)

    def dominating_both(self, other: Pair) -> Pair | None:
        # more noise is a post-processing
        if not isinstance(other, GaussianPair):
            return None
        return GaussianPair(max(self.m, other.m))  # guard: less-noise-above

    def transform(self) -> NormalTransform:
        return NormalTransform(self.m)

    def log_moment(self, s: float) -> tuple[float, float]:
        log = 0.5 * self.m**2 * s * (s + 1.0)
        # m by a unit and its square by another, three products and a sum: 9 units with the next
        # order; 1e-300 for what is no normal double
        off = 16.0 * UNIT * log + 1e-300
        return log - off, log + off

    def log_tail_moment(self, x: float, s: float) -> tuple[float, float]:
        # completing the square: e^(s L) turns N(m^2/2, m^2) into N(m^2/2 + s m^2, m^2)
        m = self.m
        log_total = s * (s + 1) * m * m / 2
        tail = float(sp.log_ndtr(m / 2 + s * m - x / m))
        # log_ndtr was within 1.2e-14 of balls, relatively, at 3500 points in [-1e4, 8.5]; its
        # argument is off by units of 2^-53 of s m and x / m, whose squares both logarithms have
        margin = 1e-9 * (1 + abs(log_total) + abs(tail))
        return log_total + tail - margin, log_total + tail + margin
