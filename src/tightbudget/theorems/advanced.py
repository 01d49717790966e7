"""Advanced composition: epsilon grows with about sqrt(k) instead of k for k mechanisms."""

from __future__ import annotations

import math

from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    UNIT,
    add_up,
    exp_up,
    expm1_up,
    log_down,
    mul_down,
    mul_up,
    sub_down,
)
from tightbudget.numerics.validate import non_negative, positive_count, probability

__all__ = ["delta", "epsilon"]


def epsilon(step_epsilon: float, step_delta: float, runs: int, delta: float) -> Bounds:
    """Bounds the epsilon of ``runs`` mechanisms at ``delta``, of which each is (eps, delta)-DP.

    Guarantee: for every d' > 0 they are (eps', k delta + d')-DP together, eps' = eps
    sqrt(2 k ln(1/d')) + k eps (e^eps - 1); the smallest eps' with k delta + d' <= ``delta``
    is below ``upper`` (inf where there is none), rounding included.
    Source: Dwork, Rothblum, Vadhan 2010, Theorem III.3.

    Args:
        step_epsilon: of each mechanism, >= 0, nats.
        step_delta: of each mechanism, in [0, 1]: an upper bound of delta(step_epsilon) for both
            orders of its pair, P against Q and Q against P. One order is not enough.
        runs: how many mechanisms, >= 1.
        delta: of all together, in [0, 1].

    Raises:
        ParameterError: an argument is refused.
    """
    eps, each, k = _step(step_epsilon, step_delta, runs)
    # eps' falls in d', so the best d' is all of delta that the mechanisms' own deltas leave
    slack = sub_down(probability(delta=delta), mul_up(k, each))  # guard: own-deltas-counted
    if not slack > 0:
        return Bounds(0.0, math.inf)
    spread = mul_up(eps, _root_up(mul_up(2 * k, max(0.0, -log_down(min(1.0, slack))))))
    return Bounds(0.0, add_up(spread, _mean_up(eps, k)))  # guard: mean-loss-counts


def delta(step_epsilon: float, step_delta: float, runs: int, epsilon: float) -> Bounds:
    """Bounds the delta of ``runs`` mechanisms at ``epsilon``, of which each is (eps, delta)-DP.

    Guarantee: the smallest k delta + d' with eps' <= ``epsilon`` in :func:`epsilon` is below
    ``upper``. Source: Dwork, Rothblum, Vadhan 2010, Theorem III.3.

    Args:
        step_epsilon, step_delta, runs: as for :func:`epsilon`.
        epsilon: of all together, >= 0, nats.

    Raises:
        ParameterError: an argument is refused.
    """
    eps, each, k = _step(step_epsilon, step_delta, runs)
    # guard: distance-from-mean-rounded-down
    left = sub_down(non_negative(epsilon=epsilon), _mean_up(eps, k))
    if left <= 0:  # only d' = 1 is left
        return Bounds(0.0, 1.0)
    slack = 0.0
    if eps > 0:
        # solved for d': ln d' = -(left / eps)^2 / (2 k). The first quotient is off by one unit, its
        # square by two more, the second quotient and the product with the margin by one each
        far = left / eps
        # guard: square-quotient-rounded-down
        slack = exp_up(-mul_down(far, far) / (2 * k) * (1 - 8 * UNIT))
    # guard: sum-of-deltas-rounded-up
    return Bounds(0.0, min(1.0, add_up(mul_up(k, each), slack)))


def _step(step_epsilon: float, step_delta: float, runs: int) -> tuple[float, float, int]:
    return (
        non_negative(step_epsilon=step_epsilon),
        probability(step_delta=step_delta),
        positive_count(runs=runs),
    )


def _mean_up(eps: float, k: int) -> float:
    """Computes k eps (e^eps - 1), the mean of the loss in the theorem, rounded up."""
    return mul_up(mul_up(k, eps), expm1_up(eps)) if eps else 0.0


def _root_up(x: float) -> float:
    # the root and the product round by one unit of 2^-53 each
    return math.sqrt(x) * (1 + 4 * UNIT)
