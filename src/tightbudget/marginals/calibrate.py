"""The largest rho of an algorithm for a target: the least noise that it may have."""

from __future__ import annotations

import math
from collections.abc import Callable

from tightbudget.errors import CalibrationError
from tightbudget.marginals.measurements import CALIBRATED_GAP, Measurements, fixed
from tightbudget.numerics.validate import open_probability, positive, refuse

_STEPS = 12  # measurements that are priced; two or three are enough
_NEAR = CALIBRATED_GAP  # how far below its target delta may be, relative: .05 % of rho
_SLOPE = 10.0  # about by how many powers delta grows with rho, at first


def rho(plan: Callable[[float], Measurements], epsilon: float, delta: float) -> float:
    """Finds the largest rho for which an algorithm is (epsilon, delta)-DP, about.

    It takes the place of the conversion ``cdp_rho(epsilon, delta)`` in an algorithm that is run as
    ``plan`` declares: the noise that the algorithm derives from rho is smaller then.

    Guarantee: ``plan(rho).delta(epsilon, rtol=5e-3).upper <= delta``. delta is within 1 % of its
    target, so that no rho is more than about .1 % larger.

    Args:
        plan: makes the measurements for a rho, as in
            ``lambda rho: tb.marginals.aim(attributes=15, rho=rho)``.
        epsilon: > 0, nats.
        delta: in (0, 1).

    Raises:
        ParameterError: an argument is refused.
        CalibrationError: no rho was found.
    """
    epsilon, delta = positive(epsilon=epsilon), open_probability(delta=delta)
    if not callable(plan):
        raise refuse("plan", "make measurements for a rho, as lambda rho: mst(15, rho)", plan)
    # zCDP's simple conversion: rho + 2 sqrt(rho ln(1 / delta)) = epsilon
    log = -math.log(delta)
    root = math.log(epsilon) - math.log(math.sqrt(log + epsilon) + math.sqrt(log))
    # many small selections are much like Gaussian noise, whose price takes no time
    near, slope = _largest(fixed, epsilon, delta, 2.0 * root, _SLOPE)
    return math.exp(_largest(plan, epsilon, delta, near, slope)[0])


def _largest(
    plan: Callable[[float], Measurements], epsilon: float, delta: float, near: float, slope: float
) -> tuple[float, float]:
    """The logarithm of the largest rho, and about by how many powers delta grows there."""
    best, aim = -math.inf, -0.5 * _NEAR
    before: tuple[float, float] | None = None
    for _ in range(_STEPS):
        tried = math.exp(near)
        if tried == 0.0:
            raise CalibrationError(
                f"no rho was found for epsilon {epsilon:g} and delta {delta:g}: it is no double > 0"
            )
        found = plan(tried).delta(epsilon, _NEAR)
        off = math.log(max(found.upper, 1e-300)) - math.log(delta)
        if off <= 0.0:
            best = max(best, near)
            if off >= 2.0 * aim:
                break
        if before is not None and abs(near - before[0]) > 1e-6:
            slope = max(0.5, (off - before[1]) / (near - before[0]))
        before = near, off
        near += max(-3.0, min(3.0, (aim - off) / slope))
    if best == -math.inf:
        raise CalibrationError(f"no rho was found with a delta of at most {delta:g}")
    return best, slope
