"""Claims: what a run is said to cost at most, as lines below its trade-off curve.

(eps, delta)-DP in both directions says that a test with the false-positive rate a has a
false-negative rate of at least 1 - delta - e^eps a and e^-eps (1 - delta - a). The largest of such
lines is convex, the same in both directions, and below the exact curve where each delta is an upper
bound: a refutation of the lines is one of the claim.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from scipy import special as sp

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.questions import Questions
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_up,
    double_up,
    exp_down,
    exp_up,
    mul_down,
    mul_up,
    sub_down,
)
from tightbudget.numerics.search import root_between
from tightbudget.numerics.special import log_normal_tail, log_normal_tail_slack
from tightbudget.numerics.validate import non_negative, plain, probability, refuse

_LINES = 49  # of a curve; twice as many moved no lower bound by more than 0.2 %, as tests measure
_FAR = (
    1e-9,
    1e-7,
    1e-5,
    1e-3,
    1e-1,
)  # the lines go up to the epsilon at the first delta that has one
_RTOL = 1e-3  # of each delta: outward, so that it costs sharpness alone
_MOST_EPSILON = 600.0  # e^600 and its inverse are doubles


class ClaimLine(NamedTuple):
    """An (epsilon, delta) that a claim implies, in both directions."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class ClaimLines:
    """A claim as some (epsilon, delta) that it implies, delta rounded up.

    Attributes:
        points: the (epsilon, delta), epsilon rising.
        one_way: True where they are promised for the outcomes that an attack accuses, in favour of
            one input; nothing is promised then for the other input, and the other outcomes.
    """

    points: tuple[ClaimLine, ...]
    one_way: bool = False

    @functools.cached_property
    def epsilons(self) -> FloatArray:
        """(n,) of each line, nats."""
        return np.array([line.epsilon for line in self.points])

    @functools.cached_property
    def deltas(self) -> FloatArray:
        """(n,) of each line."""
        return np.array([line.delta for line in self.points])

    def line(self, i: int) -> ClaimLine:
        """Returns the i-th of the points."""
        return self.points[i]

    @functools.cached_property
    def _inverse(self) -> tuple[list[float], list[float]]:
        """The lines y >= slope x - offset, slopes rising.

        They bound from below the y at which 1 - f(y) reaches x.
        """
        found = []
        for epsilon, delta in self.points:
            # x <= delta + e^eps y, and 1 - x >= e^-eps (1 - delta - y)
            found.append((exp_down(-epsilon), mul_up(delta, exp_up(-epsilon))))
            grown = exp_up(epsilon)
            offset = max(0.0, add_up(grown, delta, -1.0))
            found.append((exp_down(epsilon), offset))
        found.sort()
        hull: list[tuple[float, float]] = []
        for slope, offset in found:
            if hull and hull[-1][0] == slope:
                if hull[-1][1] <= offset:
                    continue
                hull.pop()
            while len(hull) > 1 and _hidden(hull[-2], hull[-1], (slope, offset)):
                hull.pop()
            hull.append((slope, offset))
        return [slope for slope, _ in hull], [offset for _, offset in hull]

    @property
    def slopes(self) -> list[float]:
        """The slopes of the lines of the inverse curve, rising."""
        return self._inverse[0]

    @property
    def offsets(self) -> list[float]:
        """The offsets of the lines of the inverse curve."""
        return self._inverse[1]

    def false_negatives(self, fpr: float) -> float:
        """Bounds from below the false-negative rate of a test with a false-positive rate.

        Guarantee: a run that keeps the claim has no test below it, in either direction, or in
        the one that the claim is of.
        """
        least = 0.0
        for epsilon, delta in self.points:
            kept = sub_down(1.0, delta)
            least = max(least, sub_down(kept, mul_up(exp_up(epsilon), fpr)))
            if self.one_way:
                continue
            left = sub_down(kept, fpr)
            least = max(least, mul_down(exp_down(-epsilon), left) if left > 0.0 else 0.0)
        return least


def _hidden(
    left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]
) -> bool:
    """Says whether a line is nowhere above both of two others."""
    ahead = (right[1] - left[1]) * (middle[0] - left[0])
    return bool(ahead <= (middle[1] - left[1]) * (right[0] - left[0]))


def lines_of(claim: Any, delta: float) -> ClaimLines:
    """Reads a claim as lines; the epsilon at ``delta`` is one of them.

    Args:
        claim: a mechanism or a composition, or an (epsilon, delta).
        delta: in [0, 1].

    Raises:
        ParameterError: it has no curve.
    """
    if isinstance(claim, Questions):
        return _of_questions(claim, delta)
    if isinstance(claim, (tuple, list)) and len(claim) == 2:
        epsilon, least = (_rounded_up(x) for x in claim)
        if non_negative(**{"claim[0]": epsilon}) > _MOST_EPSILON:
            raise refuse("claim[0]", "be at most 600", epsilon)
        return ClaimLines((ClaimLine(epsilon, probability(**{"claim[1]": least})),))
    raise ParameterError(
        "claim must be a mechanism or a composition, which have a trade-off curve, or an "
        f"(epsilon, delta), got {claim!r}"
    )


def _rounded_up(x: Any) -> Any:
    """The double above a number that is none, so that no larger claim is refuted in its place."""
    exact = plain(x)
    return double_up(Fraction(exact)) if isinstance(exact, (Fraction, Decimal)) else exact


@functools.lru_cache(maxsize=64)
def _of_questions(claim: Questions, delta: float) -> ClaimLines:
    at = claim.answer(delta=delta, rtol=_RTOL).bounds.upper
    ends = (claim.answer(delta=least, rtol=_RTOL).bounds.upper for least in _FAR)
    last = next((end for end in ends if end < math.inf), 1.0)
    epsilons = {float(e) for e in np.linspace(0.0, min(last, _MOST_EPSILON), _LINES)}
    points = [
        ClaimLine(e, min(1.0, claim.answer(epsilon=e, rtol=_RTOL).bounds.upper)) for e in epsilons
    ]
    if at <= _MOST_EPSILON:
        points.append(ClaimLine(at, delta))
    return ClaimLines(tuple(sorted(points)))


@functools.lru_cache(maxsize=256)
def lines_of_gaussian(mu: float, count: int = _LINES) -> ClaimLines:
    """The lines of the curve of a Gaussian mechanism with sensitivity mu and sigma 1."""
    if mu == 0.0:
        return ClaimLines((ClaimLine(0.0, 0.0),))
    # the loss is N(mu^2/2, mu^2): six standard deviations from its mean there is 1e-9
    epsilons = np.linspace(0.0, min(_MOST_EPSILON, mu * mu / 2 + 6.0 * mu), count)
    return lines_of_gaussian_at(mu, tuple(epsilons.tolist()))


@functools.lru_cache(maxsize=256)
def lines_of_gaussian_at(mu: float, epsilons: tuple[float, ...]) -> ClaimLines:
    """The lines with these epsilons, rising, of the curve of such a Gaussian mechanism."""
    if mu == 0.0:
        return ClaimLines(tuple(ClaimLine(epsilon, 0.0) for epsilon in epsilons))
    deltas = _gaussian_deltas(mu, np.array(epsilons))
    return ClaimLines(tuple(map(ClaimLine, epsilons, deltas.tolist())))


def _gaussian_deltas(mu: float, epsilons: FloatArray) -> FloatArray:
    """Bounds from above P(N > u) - e^eps P(N > u + mu) for u = eps / mu - mu / 2."""
    middle = epsilons / mu
    u, v = middle - mu / 2, middle + mu / 2
    # u and v round; the slope of ln P(N > u) is at most |u| + 1
    off = 4 * UNIT * (middle + mu / 2)
    log_p = log_normal_tail(u) + log_normal_tail_slack(u) + off * (np.abs(u) + 2.0)
    log_q = log_normal_tail(v) - log_normal_tail_slack(v) - off * (v + 2.0)
    p = np.exp(log_p + 4 * UNIT * np.abs(log_p)) * (1 + 16 * UNIT)
    q = np.exp(epsilons + log_q - 4 * UNIT * (epsilons + np.abs(log_q))) * (1 - 16 * UNIT)
    # far out both underflow
    return np.clip((p - q) * (1 + 2 * UNIT), 1e-300, 1.0)


def gaussian_like(lines: ClaimLines) -> float:
    """Estimates the mu of a Gaussian curve that has the first delta > 0 of a claim.

    Where all are 0, the curve is one that has the total variation of randomised response.
    """
    found = next((line for line in lines.points if line.delta > 0.0), None)
    if found is not None:
        return _gaussian_of(found)
    return 2.0 * float(sp.ndtri(1.0 / (1.0 + math.exp(-lines.points[-1].epsilon))))


def _gaussian_of(line: ClaimLine) -> float:
    """Estimates the mu of the Gaussian curve that has an (epsilon, delta), delta > 0."""
    epsilon, delta = line

    def gap(mu: float) -> float:
        far = epsilon + float(sp.log_ndtr(-epsilon / mu - mu / 2))
        return float(sp.ndtr(-epsilon / mu + mu / 2)) - math.exp(min(0.0, far)) - delta

    low, high = 1e-9, 1.0
    if gap(low) >= 0.0:
        return low
    while gap(high) < 0.0 and high < 1e3:
        high *= 2.0
    return high if gap(high) < 0.0 else root_between(gap, low, high, xtol=1e-9)
