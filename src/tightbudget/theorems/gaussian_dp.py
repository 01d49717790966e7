"""Estimates by the central limit theorem, which treats every privacy loss as a Gaussian's.

Nothing here is proved for a finite number of runs, so every answer is an :class:`Estimate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special as sp

from tightbudget.numerics.bounds import Estimate
from tightbudget.numerics.search import root_between
from tightbudget.numerics.validate import (
    finite,
    non_negative,
    open_probability,
    positive,
    positive_count,
    probability,
)
from tightbudget.pairs.pair import Pair

__all__ = ["Normal", "delta", "epsilon", "moments", "mu_of_sampling"]


def mu_of_sampling(sigma: float, rate: float, runs: int, sensitivity: float = 1.0) -> Estimate:
    """Estimates mu of k Gaussians on Poisson samples: q sqrt(k (e^(m^2) - 1)), in the limit.

    m is sensitivity / sigma, q the sampling rate.

    Source: Bu, Dong, Long, Su 2020, Theorem 5 and Corollary 4.

    Raises:
        ParameterError: an argument is refused.
    """
    m = positive(sensitivity=sensitivity) / positive(sigma=sigma)
    q, k = probability(rate=rate), positive_count(runs=runs)
    # e^700 is near the largest double
    mu = q * math.sqrt(k * math.expm1(m * m)) if m * m < 700 else math.inf
    return Estimate(mu, "Bu et al. 2020")


def delta(mu: float, epsilon: float) -> Estimate:
    """Computes delta at ``epsilon`` of a mu-GDP mechanism.

    delta = Phi(-eps / mu + mu / 2) - e^eps Phi(-eps / mu - mu / 2).

    Source: Dong, Roth, Su 2022, Corollary 2.13.

    Raises:
        ParameterError: an argument is refused.
    """
    return _of_mu(mu).delta(epsilon)


def epsilon(mu: float, delta: float) -> Estimate:
    """Computes the epsilon at which a mu-GDP mechanism has ``delta``: the inverse of :func:`delta`.

    Raises:
        ParameterError: an argument is refused.
    """
    return _of_mu(mu).epsilon(delta)


def _of_mu(mu: float) -> Normal:
    m = non_negative(mu=mu)
    return Normal(m * m / 2, m * m, "Gaussian differential privacy")


@dataclass(frozen=True)
class Normal:
    """A privacy loss that is treated as a normal variable.

    Source: Sommer, Meiser, Mohammadi 2019.

    Args:
        mean: a finite number, nats.
        variance: >= 0.
        method: the name that the estimates carry.

    Raises:
        ParameterError: an argument is refused.
    """

    mean: float
    variance: float
    method: str = "central limit theorem for the privacy loss"

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", finite(mean=self.mean))
        object.__setattr__(self, "variance", non_negative(variance=self.variance))

    def delta(self, epsilon: float) -> Estimate:
        """Estimates delta at ``epsilon``: E (1 - e^(epsilon - L))_+ for the normal loss L."""
        return Estimate(self._delta(non_negative(epsilon=epsilon)), self.method)

    def epsilon(self, delta: float) -> Estimate:
        """Estimates the epsilon at which :meth:`delta` is ``delta``, in (0, 1)."""
        d = open_probability(delta=delta)
        if self._delta(0.0) <= d:
            return Estimate(0.0, self.method)
        # delta(eps) <= P(L > eps): there is less than d beyond this quantile
        top = max(0.0, self.mean - math.sqrt(self.variance) * float(sp.ndtri(d))) + 1.0
        root = root_between(lambda e: self._delta(e) - d, 0.0, top, xtol=2e-12)
        return Estimate(root, self.method)

    def _delta(self, eps: float) -> float:
        m, v = self.mean, self.variance
        if v == 0.0:
            return -math.expm1(min(0.0, eps - m))
        root = math.sqrt(v)
        log_tail = eps - m + v / 2 + float(sp.log_ndtr((m - v - eps) / root))
        return max(0.0, float(sp.ndtr((m - eps) / root)) - math.exp(min(0.0, log_tail)))


def moments(pair: Pair) -> tuple[float, float]:
    """Estimates the mean and the variance of a pair's loss under P from the pair's sketch."""
    sketch = pair.sketch().sorted()
    x, log_p = sketch.losses, sketch.log_masses
    p = np.exp(log_p)
    # the Q-mass e^-L P is 1 in all, so that E L = E (L - 1 + e^-L): nothing cancels
    # (beyond 0.1 the summand is at most 207 times smaller than its terms: two or three digits)
    near = np.clip(x, -0.1, 0.1)
    kept = np.where(x == near, p * (np.expm1(-near) + near), np.exp(log_p - x) - p + p * x)
    mean = float(np.sum(kept)) / float(np.sum(p)) + float(pair.q_only().upper[0])
    return mean, float(np.sum(p * (x - mean) ** 2)) / float(np.sum(p))
