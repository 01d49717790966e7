"""Central limits: what is true of Gaussian noise, said of everything. Estimates, no bounds."""

from __future__ import annotations

import math

from scipy import optimize
from scipy import special as sp

from tightbudget.numerics.bounds import Estimate
from tightbudget.numerics.validate import (
    finite,
    non_negative,
    open_probability,
    positive,
    positive_count,
    probability,
)

__all__ = ["delta", "delta_of_moments", "epsilon", "epsilon_of_moments", "mu_of_sampling"]

_CLT = "central limit theorem for the privacy loss"


def mu_of_sampling(sigma: float, rate: float, runs: int, sensitivity: float = 1.0) -> Estimate:
    """q sqrt(k (e^(1 / sigma^2) - 1)): the mu of k Gaussians on Poisson samples, in the limit.

    Source: Bu, Dong, Long, Su 2020, Theorem 5 and Corollary 4.

    Raises:
        ParameterError: an argument is refused.
    """
    m = positive(sensitivity=sensitivity) / positive(sigma=sigma)
    q, k = probability(rate=rate), positive_count(runs=runs)
    mu = q * math.sqrt(k * math.expm1(m * m)) if m * m < 700 else math.inf
    return Estimate(mu, "Bu et al. 2020")


def delta(mu: float, epsilon: float) -> Estimate:
    """Phi(-eps / mu + mu / 2) - e^eps Phi(-eps / mu - mu / 2).

    Source: Dong, Roth, Su 2022, Corollary 2.13.

    Raises:
        ParameterError: an argument is refused.
    """
    m = non_negative(mu=mu)
    return delta_of_moments(m * m / 2, m * m, epsilon)


def epsilon(mu: float, delta: float) -> Estimate:
    """The epsilon at which :func:`delta` is ``delta``."""
    m = non_negative(mu=mu)
    return epsilon_of_moments(m * m / 2, m * m, delta)


def delta_of_moments(mean: float, variance: float, epsilon: float) -> Estimate:
    """E (1 - e^(eps - L))_+ for a normal loss L with this mean and variance.

    Source: Sommer, Meiser, Mohammadi 2019, section 5.

    Raises:
        ParameterError: an argument is refused.
    """
    m, v = finite(mean=mean), non_negative(variance=variance)
    return Estimate(_delta(m, v, non_negative(epsilon=epsilon)), _CLT)


def epsilon_of_moments(mean: float, variance: float, delta: float) -> Estimate:
    """The epsilon at which :func:`delta_of_moments` is ``delta``.

    Raises:
        ParameterError: an argument is refused.
    """
    m, v, d = finite(mean=mean), non_negative(variance=variance), open_probability(delta=delta)
    if _delta(m, v, 0.0) <= d:
        return Estimate(0.0, _CLT)
    # P(L > eps) is at least delta(eps): beyond this quantile there is less than d
    top = max(0.0, m - math.sqrt(v) * float(sp.ndtri(d))) + 1.0
    return Estimate(float(optimize.brentq(lambda e: _delta(m, v, e) - d, 0.0, top)), _CLT)


def _delta(mean: float, variance: float, eps: float) -> float:
    if variance == 0.0:
        return max(0.0, -math.expm1(eps - mean))
    root = math.sqrt(variance)
    tail = math.exp(
        min(700.0, eps - mean + variance / 2 + float(sp.log_ndtr((mean - variance - eps) / root)))
    )
    return max(0.0, float(sp.ndtr((mean - eps) / root)) - tail)
