"""Concentrated differential privacy: a line above all Renyi divergences of a mechanism.

The line says D_order <= xi + rho order for every order > 1. Lines of several mechanisms add up,
and a line leads to eps = xi + rho + 2 sqrt(rho ln(1/delta)), as for Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    UNIT,
    add_up,
    exp_up,
    log_down,
    mul_down,
    mul_up,
    next_up,
    sub_down,
)
from tightbudget.numerics.search import least_between
from tightbudget.numerics.validate import (
    finite,
    non_negative,
    positive,
    positive_count,
    probability,
    refuse,
)
from tightbudget.theorems.renyi import RenyiTable

__all__ = ["Line", "best_line", "mean_line"]


@dataclass(frozen=True)
class Line:
    """(xi, rho)-concentrated differential privacy: D_order <= xi + rho order, order > 1.

    Guarantee: a mechanism whose divergences lie below the line is (epsilon(delta).upper,
    delta)-DP; k such mechanisms, also adaptively chosen, lie below ``line * k`` together. Source:
    Bun, Steinke 2016, Definition 1.1, Lemmas 2.3 and 3.5.

    Args:
        xi: a finite number.
        rho: >= 0, with xi + rho >= 0.

    Raises:
        ParameterError: an argument is refused.
    """

    xi: float
    rho: float

    def __post_init__(self) -> None:
        xi, rho = finite(xi=self.xi), non_negative(rho=self.rho)
        if xi + rho < 0:
            raise refuse("xi + rho", "be >= 0 (the divergence of order 1 is)", xi + rho)
        object.__setattr__(self, "xi", xi)
        object.__setattr__(self, "rho", rho)

    @staticmethod
    def gaussian(sigma: float, sensitivity: float = 1.0) -> Line:
        """Makes the line of Gaussian noise: (0, sensitivity^2 / (2 sigma^2)), rounded up.

        Source: Bun, Steinke 2016, Proposition 1.6.
        """
        m = positive(sensitivity=sensitivity) / positive(sigma=sigma)
        # the quotient counts twice, two products once: four units of the eight
        return Line(0.0, m * m / 2 * (1 + 8 * UNIT))

    @staticmethod
    def pure(epsilon: float) -> Line:
        """Makes the line of any epsilon-DP mechanism: (0, epsilon^2 / 2), rounded up.

        Source: Bun, Steinke 2016, Proposition 1.4.
        """
        e = non_negative(epsilon=epsilon)
        return Line(0.0, mul_up(e, e) / 2)

    @staticmethod
    def subgaussian(mean: float, scale: float) -> Line:
        """Makes the line of a loss L that is ``scale``-subgaussian about a mean, rounded up.

        The loss has at most the mean ``mean``, and E e^(s (L - mean)) <= e^(s^2 scale^2 / 2) for
        every s > 0: a line with the value ``mean`` at the order 1. Source: Dwork, Rothblum 2016.
        """
        m, scale = non_negative(mean=mean), non_negative(scale=scale)
        rho = mul_up(scale, scale) / 2
        # a larger rho moves the line up everywhere but at the order 1
        return Line(next_up(m - rho), rho)

    def __mul__(self, runs: int) -> Line:
        k = positive_count(runs=runs)
        return Line(_times(k, self.xi), _times(k, self.rho))

    def __add__(self, other: Line) -> Line:
        return Line(add_up(self.xi, other.xi), add_up(self.rho, other.rho))

    def __call__(self, order: float) -> Bounds:
        """Bounds the Renyi divergence that the line allows, at an order that may be inf."""
        return Bounds(
            0.0, max(0.0, add_up(self.xi, mul_up(self.rho, order)) if self.rho else self.xi)
        )

    def epsilon(self, delta: float) -> Bounds:
        """Bounds epsilon at ``delta`` by xi + rho + 2 sqrt(rho ln(1/delta)); inf at delta = 0.

        Raises:
            ParameterError: ``delta`` is not in [0, 1].
        """
        d = probability(delta=delta)
        if self.rho == 0.0:
            return Bounds(0.0, max(0.0, self.xi))
        if d == 0.0:
            return Bounds(0.0, math.inf)
        # four units of 2^-53 pay for the root and the product after it
        # guard: line-epsilon-rounded-up-1
        root = math.sqrt(mul_up(self.rho, max(0.0, -log_down(d)))) * (1 + 4 * UNIT)
        # guard: line-epsilon-rounded-up-2
        return Bounds(0.0, max(0.0, add_up(self.xi, self.rho, 2 * root)))

    def delta(self, epsilon: float) -> Bounds:
        """Bounds delta at ``epsilon`` by e^(-(epsilon - xi - rho)^2 / (4 rho)); 1 below xi + rho.

        Raises:
            ParameterError: ``epsilon`` is not a finite number >= 0.
        """
        far = sub_down(non_negative(epsilon=epsilon), add_up(self.xi, self.rho))
        if far <= 0:
            return Bounds(0.0, 1.0)
        if self.rho == 0.0:
            return Bounds(0.0, 0.0)
        return Bounds(0.0, min(1.0, exp_up(-mul_down(far, far) / (4 * self.rho) * (1 - 4 * UNIT))))


def _times(k: int, x: float) -> float:
    return mul_up(k, x) if x else 0.0


def best_line(
    table: RenyiTable, *, runs: int = 1, delta: float | None = None, epsilon: float | None = None
) -> Line | None:
    """Chooses the line above a table of divergences, times ``runs``, that answers a question best.

    The question is one of ``delta`` and ``epsilon``. The search over lines is a heuristic: it
    tries 32 values of xi and golden section between two of them.

    Guarantee: the line (already times ``runs``) lies above runs times every divergence.
    Source: Bun, Steinke 2016.

    Returns:
        The line, or None if there is none: a divergence is infinite, or nothing is known for
        the highest orders (a table that does not end at the order inf).

    Raises:
        ParameterError: not exactly one question was asked, or its value is refused.
    """
    k, cost, most = positive_count(runs=runs), _cost(delta, epsilon), _largest_loss(table)
    if most is None:
        return None

    def line(share: float) -> Line:
        return above(table, share * most) * k

    # at xi = the largest loss, rho = 0 will do; at xi = 0, rho is that of zero-concentrated DP.
    # The best xi may be any power of ten of the largest loss: powers of 2 down to 10^-9 of it, then
    # golden section between the neighbours of the best, to a millionth
    shares = [0.0, *(2.0**-j for j in range(30, -1, -1))]
    costs = [cost(line(share)) for share in shares]
    best = int(np.argmin(costs))
    ends = shares[max(0, best - 1)], shares[min(best + 1, len(shares) - 1)]
    _, between = least_between(lambda share: cost(line(share)), *ends, 1e-6 * ends[1])
    return min(line(shares[best]), line(between), key=cost)


def mean_line(
    table: RenyiTable, *, runs: int = 1, delta: float | None = None, epsilon: float | None = None
) -> Line | None:
    """Chooses the line by the mean of the loss, and by how subgaussian the loss is about it.

    The mean is the divergence of order 1. The divergence of a higher order is no smaller, and as a
    mean it leaves less to the tail; the order of the table that answers best is taken.

    Guarantee: as for :func:`best_line`. Source: Dwork, Rothblum 2016.

    Returns, Raises:
        As for :func:`best_line`.
    """
    k, cost = positive_count(runs=runs), _cost(delta, epsilon)
    if _largest_loss(table) is None:
        return None
    lines = []
    for order, mean in zip(table.orders[:-1], table.divergences, strict=False):
        # D <= mean + rho s, s = order - 1, is D <= (mean - rho) + rho order
        rho = _slope(table, mean, 0.0, order - 1.0)
        lines.append(Line(next_up(mean - rho), rho) * k)
    return min(lines, key=cost)


def _cost(delta: float | None, epsilon: float | None) -> Callable[[Line], float]:
    """Makes the function from a line to its upper bound of the quantity that is not given."""
    if (delta is None) == (epsilon is None):
        raise ParameterError("give exactly one of delta and epsilon")
    if delta is not None:
        return lambda line: line.epsilon(delta).upper
    assert epsilon is not None
    return lambda line: line.delta(epsilon).upper


def above(table: RenyiTable, xi: float) -> Line:
    """Makes the least line above a table of finite divergences with the value ``xi`` at order 0."""
    return Line(xi, max(_slope(table, xi, 1.0, 0.0), max(0.0, -xi)))


def _largest_loss(table: RenyiTable) -> float | None:
    """Returns the divergence of the order inf, which bounds all others, if known and finite."""
    top = table.divergences[-1]
    return top if math.isinf(table.orders[-1]) and math.isfinite(top) else None


def _slope(table: RenyiTable, start: float, shift: float, first: float) -> float:
    """Finds the least rho, rounded up, with D <= start + rho (s + shift) for every s > first.

    s is order - 1. D at s is the chord of s D between the two neighbouring orders of the table.
    """
    ends: Sequence[float] = [a - 1.0 for a in table.orders[:-1]]
    most, before, below = 0.0, 0.0, 0.0
    for s, d in zip([*ends, math.inf], table.divergences, strict=True):  # guard: beyond-last-order
        if s > first:
            most = max(most, _steepest(before, below, s, d, start, shift))
        before, below = s, d
    return most


def _steepest(s0: float, d0: float, s1: float, d1: float, start: float, shift: float) -> float:
    """Maximises (D - start) / (s + shift), rounded up, over s in [s0, s1].

    D = b + a / s is the chord of s D through (s0, s0 d0) and (s1, s1 d1).
    """
    if s0 == 0.0 or math.isinf(s1):
        # D grows with s: at most its value at s1
        return max(0.0, next_up(d1 - start) / (s0 + shift) * (1 + 4 * UNIT))
    b = (s1 * d1 - s0 * d0) / (s1 - s0)
    a = s0 * (d0 - b)  # <= 0 for divergences themselves, but not always for upper bounds of them
    candidates = [s0, s1]
    c = b - start
    if c > 0:
        # the derivative's numerator is -(c s^2 + 2 a s + a shift)
        root = (-a + math.sqrt(max(0.0, a * a - a * c * shift))) / c
        candidates += [root] if s0 < root < s1 else []  # guard: line-clears-between-orders
    # Rounding of b grows as the interval gets shorter: s1 / (s1 - s0) times some units, of which 64
    # are granted to about a dozen operations. An error of the root's place changes nothing to first
    # order, since it is a maximum.
    off = 64 * UNIT * s1 / (s1 - s0) * (abs(b) + abs(d0) + abs(d1) + abs(start))
    return max(0.0, *((b + a / s - start + off) / (s + shift) * (1 + 8 * UNIT) for s in candidates))
