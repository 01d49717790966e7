"""A discrete Gaussian so wide that its outputs are counted by ranges, not one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special as sp

from tightbudget.mechanisms.gaussian import GaussianPair
from tightbudget.mechanisms.interval_masses import IntervalMasses, gaussian_masses
from tightbudget.numerics.enclosure import Enclosure, exp_enclosure
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.pairs.pair import Bins, Pair, Sketch

WIDE = 2e4  # a sigma from which on ranges are as good as single outputs, and need no memory
_FAR = 40.0  # beyond so many sigma there is a mass below e^-790
_BEYOND = 45.0  # where a cut may be, in sigma


@dataclass(frozen=True)
class WideDiscreteGaussianPair(Pair):
    """Integer noise with masses ~ e^(-n^2 / (2 sigma^2)) against itself moved by ``shift``.

    As n rises, the loss shift (shift - 2 n) / (2 sigma^2) falls: a bin of losses is a range of
    integers.
    """

    sigma: float  # >= WIDE
    shift: int

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins:
        # Any integers cut the outputs exactly. They are chosen such that the loss there, and so
        # right of there, is surely at most the edge; how much less it is goes into w.
        cuts = self._cuts(edges, slack)
        first, last = np.append(cuts, -np.inf), np.append(np.inf, cuts - 1.0)
        p = range_masses(first, last, self.sigma).masses()
        q = range_masses(first - self.shift, last - self.shift, self.sigma).masses()
        empty = first > last
        p, q = (Enclosure(np.where(empty, 0, x.lower), np.where(empty, 0, x.upper)) for x in (p, q))
        q = q * exp_enclosure(np.append(edges, edges[-1]))
        # the output before a cut has the least loss of the bin above
        loss = self.shift * (self.shift - 2.0 * (cuts - 1.0)) / (2.0 * self.sigma * self.sigma)
        behind = np.maximum(0.0, edges - loss) + 8 * UNIT * (np.abs(edges) + np.abs(loss)) + slack
        most = np.append(np.diff(edges), 0.0) + behind
        ceiling = np.append(np.inf, exp_enclosure(most, UNIT * most).upper)
        with np.errstate(invalid="ignore"):
            w = (q / p).clipped(np.append(np.ones(edges.size), 0.0), ceiling)
        return Bins(p, q, w)

    def _cuts(self, edges: FloatArray, slack: FloatArray) -> FloatArray:
        """Descending integers, one for each edge, from which on losses are at most edge - slack."""
        s, sigma = float(self.shift), self.sigma
        position = s / 2.0 - (edges - slack) / s * sigma * sigma
        margin = 8 * UNIT * (np.abs(edges) + slack) / s * sigma * sigma + 8 * UNIT * s
        # what lies beyond has less mass, under P and Q, than an enclosure leaves room for
        limit = math.ceil(_BEYOND * sigma) + s
        cuts = np.clip(np.ceil(position + margin), -limit, limit)
        return np.asarray(np.minimum.accumulate(cuts))

    def max_loss(self) -> tuple[float, float]:
        return np.inf, np.inf

    def sketch(self) -> Sketch:
        return GaussianPair(self.shift / self.sigma).sketch()

    def log_tail_moment(self, x: float, s: float) -> tuple[float, float]:
        # completing the square leaves e^(s (s + 1) m^2 / 2) and the mass of all n + s shift with
        # L(n) > x; a sum of rising terms is at most its last one and the integral up to there
        m = self.shift / self.sigma
        z = m / 2.0 + s * m - x / m + 2.0 / self.sigma
        tail = float(np.logaddexp(sp.log_ndtr(z), -0.5 * min(z, 0.0) ** 2 - math.log(self.sigma)))
        log_most = s * (s + 1.0) * m * m / 2.0 + min(0.0, tail)
        return -np.inf, log_most + 1e-9 * (1.0 + s * (s + 1.0) * m * m / 2.0 + abs(tail))


def range_masses(first: FloatArray, last: FloatArray, sigma: float) -> IntervalMasses:
    """The masses of first .. last under masses ~ e^(-n^2 / (2 sigma^2)) at all integers n.

    With f(x) = e^(-x^2 / (2 sigma^2)), a = first - 1/2 and b = last + 1/2,

        sum f(n) = integral_a^b f - (f'(b) - f'(a)) / 24 + R,   |R| <= integral_a^b |f''''| / 384,

    since the error of the midpoint rule is the integral of K f'' with the kernel K = u^2 / 2, u
    the distance from the next half-integer, and K - 1/24 is the second derivative of u^4 / 24 -
    u^2 / 48, which lies in [-1/384, 0] and vanishes with its first derivative at half-integers.
    For |x| <= z sigma |f''''| <= (z^4 + 6 z^2 + 3) f / sigma^4, so that |R| is below 2^-53 (1 +
    z^2) of the integral for sigma >= WIDE and z <= 40; further out there is nothing that a double
    could hold. The sum over all integers is sigma sqrt(2 pi) (1 + 2 e^(-2 pi^2 sigma^2) + ...),
    hence sigma sqrt(2 pi) within less than 2^-53.

    Args:
        first, last: (n,) integers of size below 2^50; first may be -inf, last +inf. Where first >
            last the answer means nothing.
        sigma: >= WIDE.
    """
    low, high = first - 0.5, np.maximum(last, first) + 0.5
    whole = gaussian_masses(low, high, 0.0, sigma)

    def slope(x: FloatArray) -> FloatArray:
        # z e^(exponent - z^2 / 2), 0 at infinity; a narrow range has its exponent from its middle,
        # which is less than 2.1 nats from its ends
        z = np.where(np.isfinite(x), x, 0.0) / sigma
        return np.asarray(z * np.exp(np.minimum(2.1, whole.exponent - z * z / 2.0)))

    scale = 1.0 / (24.0 * sigma * sigma * math.sqrt(2.0 * math.pi))
    left, right = slope(low), slope(high)
    correction = scale * (right - left)  # guard: masses-of-integers
    far = np.minimum(np.maximum(np.abs(low), np.abs(high)) / sigma, _FAR)
    # exponents of up to 1100 are rounded by 2^-42 at most
    off = 2.0**-40 * scale * (np.abs(left) + np.abs(right))
    margin = UNIT * (8.0 + far * far)
    lower = (whole.factor.lower + correction - off) * (1 - margin)
    upper = (whole.factor.upper + correction + off) * (1 + margin)
    factor = Enclosure(np.maximum(0.0, lower), np.maximum(0.0, upper))
    return IntervalMasses(whole.exponent, whole.slack, factor)
