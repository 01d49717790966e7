"""Amplification by sampling: a release on a sample of known size costs less than on all records."""

from __future__ import annotations

from tightbudget.numerics.rounding import expm1_up, log1p_up, mul_up
from tightbudget.numerics.validate import non_negative, probability

__all__ = ["without_replacement"]


def without_replacement(epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    """Bounds a release on a sample that is drawn without replacement.

    Guarantee: if a release is (``epsilon``, ``delta``)-DP for one record that is replaced, then on
    a sample with at most the share ``rate`` of the records it is (result[0], result[1])-DP for one
    record that is replaced, rounding included: (ln(1 + rate (e^epsilon - 1)), rate delta). The same
    holds for a Poisson sample, if a record that is not in it counts as replaced by a special one.
    Source: Balle, Barthe, Gaboardi 2018, Theorems 2 and 9.

    Args:
        epsilon: of the release on its sample, >= 0, nats.
        delta: of the release on its sample, in [0, 1].
        rate: largest share of the records that is in the sample, in [0, 1].

    Raises:
        ParameterError: an argument is refused.
    """
    e, d = non_negative(epsilon=epsilon), probability(delta=delta)
    q = probability(rate=rate)
    if q == 1.0 or e == 0.0:
        return e, min(1.0, mul_up(q, d))
    odds = mul_up(q, expm1_up(e))  # guard: sample-odds-rounded-up
    moved = min(e, log1p_up(odds))  # guard: sample-epsilon-rounded-up
    return moved, min(1.0, mul_up(q, d))  # guard: sample-share-once
