"""The largest rho of an algorithm for a target: the least noise that it may have."""

from __future__ import annotations

import math
from collections.abc import Callable

from tightbudget.errors import CalibrationError
from tightbudget.marginals.measurements import Measurements
from tightbudget.numerics.validate import open_probability, positive, refuse

_STEPS = 12  # measurements that are priced; three or four are enough
_NEAR = 1e-2  # how far below its target delta may be, relative: .1 % of rho
_SLOPE = 10.0  # about by how many powers delta grows with rho, at first


def rho(plan: Callable[[float], Measurements], epsilon: float, delta: float) -> float:
    """Finds the largest rho for which an algorithm is (epsilon, delta)-DP, about.

    It takes the place of the conversion ``cdp_rho(epsilon, delta)`` in an algorithm that is run as
    ``plan`` declares: the noise that the algorithm derives from rho is smaller then.

    Guarantee: ``plan(rho).delta(epsilon).upper <= delta``. delta is within 1 % of its target, so
    that no rho is more than about .2 % larger.

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
    # where zCDP's simple conversion rho + 2 sqrt(rho ln(1/delta)) = epsilon is
    root = math.sqrt(math.log(1.0 / delta) + epsilon) - math.sqrt(math.log(1.0 / delta))
    log_rho, slope, best = 2.0 * math.log(root), _SLOPE, -math.inf
    tried: list[tuple[float, float]] = []
    aim = math.log1p(-0.5 * _NEAR)
    for _ in range(_STEPS):
        found = plan(math.exp(log_rho)).delta(epsilon, 0.5 * _NEAR)
        off = math.log(max(found.upper, 1e-300)) - math.log(delta)
        if off <= 0.0:
            best = max(best, log_rho)
            if off >= 2.0 * aim:
                break
        if tried and tried[-1][0] != log_rho:
            before, other = tried[-1]
            slope = max(0.5, (off - other) / (log_rho - before))
        tried.append((log_rho, off))
        log_rho += max(-3.0, min(3.0, (aim - off) / slope))
    if best == -math.inf:
        raise CalibrationError(f"no rho was found with a delta of at most {delta:g}")
    return math.exp(best)
