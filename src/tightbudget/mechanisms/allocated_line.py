"""One epoch of random allocation of a Gaussian step: mean excess and shortfall of its ratio.

In one epoch each record goes into one of t steps. Under Q the likelihood ratio of the epoch is
R = (W_1 + ... + W_t) / t with independent W = e^(m z - m^2/2), z normal. With psi of
:mod:`tightbudget.mechanisms.allocated_transform`, for every c > 0,

    E[(K - R)+] = 1/(2 pi i t) int_(c - i inf)^(c + i inf) psi(s)^t e^(s t K) / s^2 ds.

A sum over s = c + i n D in place of the integral gives, exactly,

    sum over all integers n of  E[(K + n d - R)+] e^(-c t n d),     d = 2 pi / (D t),

whose terms with n other than 0 are positive and bounded by Chernoff's inequality.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.allocated_tails import excess_beside_cut, shortfall_on_a_path
from tightbudget.mechanisms.allocated_transform import (
    ComplexArray,
    log_transform,
    relative_error,
    upper_transform,
)
from tightbudget.mechanisms.allocated_wide import excess_of_cut_ratios
from tightbudget.mechanisms.gaussian import GaussianPair
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure
from tightbudget.numerics.rounding import EXPM1, LOG1P, TINY, UNIT, FloatArray, outwards
from tightbudget.numerics.search import root_between
from tightbudget.pairs.direction import Direction

# ln of the ratio of neighbouring abscissas c: a line serves all K whose best c is within a half of
# this. At delta = 1e-50 the saddle point is 15 of its widths from 0, and the loss a factor of 5.
_SPACING = 0.25
_LOWEST, _HIGHEST = -64.0, 14.0  # ln c
# Share of the value that the aliasing and the end of a line may be.
_SHARE = 1e-13
_MOST_POINTS = 600
# Relative width of a excess from a shortfall that is not made closer: a tenth of what is promised.
_CLOSE = 1e-10
_FARTHEST = 36.0  # nats; beyond, e^-epsilon - 1 may be -1
# The share of a wanted gap that a way which answers faster leaves open at most. Affects time alone.
_SPARE = 1e-2
# Below this m = sensitivity / sigma, W cut at a far quantile is tried first: no single W decides.
_WIDE = 0.8


@dataclass(frozen=True)
class AllocationLine:
    """Expectations of R = dP/dQ of one epoch of random allocation of a Gaussian step.

    P puts a record into one of ``steps`` steps, uniformly; Q has no such record. Under Q,
    R is an average of independent e^(m z - m^2/2), z standard normal.

    Guarantee: every enclosure holds the exact value for the doubles K and for every step whose m is
    within a unit of 2^-53 (relative) of the double given, so that m may be a rounded quotient.
    Source: Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang 2024 (the pair).

    Attributes:
        m: sensitivity / sigma of one step, > 0.
        steps: number of steps t >= 1.
    """

    m: float
    steps: int

    def epsilon(self, delta: float, rtol: float) -> Bounds | None:
        """Bounds inf{epsilon >= 0: delta(epsilon) <= delta} (nats), of both directions.

        Args:
            delta: in (0, 1).
            rtol: a relative gap that is aimed at; where rounding stands in its way, bounds are
                further apart.

        Returns:
            The bounds; None where no epsilon in the range of doubles has been found.
        """
        at = functools.cache(lambda epsilon: self.delta(epsilon, rtol))
        start = at(0.0)
        if start is None or start.upper <= delta:
            return start and Bounds(0.0, 0.0)

        def excess(epsilon: float) -> float:
            found = at(epsilon)
            return math.log(max(found.upper, TINY) / delta) if found else -math.inf

        # four deviations of R, at most 1; then twice as much each time
        low, high = 0.0, min(1.0, 4.0 * math.sqrt(math.expm1(min(self.m, 1.0) ** 2) / self.steps))
        while excess(high) > 0.0:
            low, high = high, 2.0 * high
        root = root_between(excess, low, high, 0.0, rtol / 16.0)
        # delta falls: what is proved at two places encloses the answer
        lower, upper, step = root, root, rtol / 4.0
        while lower > 0.0 and not ((found := at(lower)) and found.lower > delta):
            lower, step = max(0.0, root * (1.0 - step)), 4.0 * step
        step = rtol / 4.0
        while (found := at(upper)) and found.upper > delta:
            upper, step = root * (1.0 + step), 4.0 * step
        return Bounds(lower, upper) if found else None

    def delta(self, epsilon: float, rtol: float) -> Bounds | None:
        """Bounds the delta of one epoch at ``epsilon`` (nats), of the worse direction.

        Args:
            epsilon: nats.
            rtol: a relative gap that is aimed at.

        Returns:
            The bounds; None beyond the range of doubles.
        """
        if not abs(epsilon) <= _FARTHEST:
            return None
        try:
            found = [self.closed_delta(epsilon, direction, rtol) for direction in Direction]
        except ArithmeticError:  # narrow noise: some moment of W is no double
            return None
        known = [Bounds(*ends) for ends in found if ends]
        return Bounds.worst(known) if len(known) == len(found) else None

    def closed_delta(
        self, epsilon: float, direction: Direction, rtol: float = 0.0
    ) -> tuple[float, float] | None:
        """Bounds the delta of one epoch at ``epsilon`` (nats); None beyond the range of doubles.

        A removed record has delta(epsilon) = E_Q[(R - e^epsilon)+], an added one has
        delta(epsilon) = e^epsilon E_Q[(e^-epsilon - R)+].

        Args:
            epsilon: nats.
            direction: ``REMOVE`` or ``ADD``.
            rtol: a relative gap that will do: closer bounds may take ten times as long.
        """
        if not abs(epsilon) <= 600.0:  # beyond, e^epsilon leaves the range of doubles
            return None
        if self.steps == 1:
            return GaussianPair(self.m).closed_delta(epsilon)
        sign = 1.0 if direction is Direction.REMOVE else -1.0
        k1 = np.array([math.expm1(sign * epsilon)])
        slack = EXPM1 * UNIT * np.abs(k1)
        if direction is Direction.ADD:
            shortfall = self._shortfall(k1, slack, rtol) * exp_enclosure(epsilon)
            return float(shortfall.lower[0]), min(1.0, float(shortfall.upper[0]))
        found = self._excess(k1, slack, rtol)
        return float(found.lower[0]), min(1.0, float(found.upper[0]))

    def shortfall(self, k: FloatArray) -> Enclosure:
        """Encloses E_Q[(K - R)+] for each K > 0 in ``k``: the delta of an added record, times K."""
        k = np.asarray(k, dtype=np.float64)
        return self._shortfall(k - 1.0, UNIT * np.abs(k - 1.0))

    def excess(self, k: FloatArray) -> Enclosure:
        """Encloses E_Q[(R - K)+] for each K > 0 in ``k``: the delta of a removed record."""
        k = np.asarray(k, dtype=np.float64)
        return self._excess(k - 1.0, UNIT * np.abs(k - 1.0))

    def cdf_q(self, k: FloatArray) -> Enclosure:
        """Encloses Q(R <= K) for each K > 0 in ``k``."""
        k = np.asarray(k, dtype=np.float64)
        return self._read(k - 1.0, UNIT * np.abs(k - 1.0), power=1)

    def cdf_p(self, k: FloatArray) -> Enclosure:
        """Encloses P(R <= K) = K Q(R <= K) - E_Q[(K - R)+] for each K > 0 in ``k``."""
        k = np.asarray(k, dtype=np.float64)
        return (exact(k) * self.cdf_q(k) - self.shortfall(k)).clipped(0.0, 1.0)

    def _shortfall(self, k1: FloatArray, slack: FloatArray, rtol: float = 0.0) -> Enclosure:
        found = self._read(k1, slack, power=2, rtol=rtol)
        return found.clipped(np.maximum(0.0, (k1 - slack) * (1 - 4 * UNIT)), np.inf)

    def _excess(self, k1: FloatArray, slack: FloatArray, rtol: float = 0.0) -> Enclosure:
        shortfall, close = self._read(k1, slack, power=2, rtol=rtol), max(_CLOSE, _SPARE * rtol)
        off = slack + 4 * UNIT * (np.abs(k1) + shortfall.upper)
        lower = np.maximum(0.0, shortfall.lower - k1 - off)
        upper = np.minimum(1.0, np.maximum(0.0, shortfall.upper - k1 + off))
        if self.steps == 1:
            return Enclosure(lower, upper)
        # far out on the right the shortfall cancels against K - 1
        for i in np.flatnonzero((k1 > slack) & (upper - lower > close * lower)):
            for way in (excess_of_cut_ratios, excess_beside_cut)[0 if self.m < _WIDE else 1 :]:
                found = way(self.m, self.steps, float(k1[i]), float(slack[i]))
                lower[i], upper[i] = max(lower[i], found[0]), min(upper[i], found[1])
                if upper[i] - lower[i] <= 10.0 * close * lower[i]:
                    break
        # ways that contradict each other say nothing: what is certain then is [0, 1]
        torn = ~(lower <= upper)
        return Enclosure(np.where(torn, 0.0, lower), np.where(torn, 1.0, upper))

    def _one_step(self, k1: FloatArray, slack: FloatArray, power: int) -> Enclosure:
        """Encloses shortfall or cdf where R is e^loss of the Gaussian step itself."""
        order = np.argsort(k1, kind="stable")
        k1, slack = k1[order], slack[order]
        edges = np.log1p(k1)
        off = slack / (1.0 + k1 - slack) * (1 + 8 * UNIT) + LOG1P * UNIT * np.abs(edges)
        bins = GaussianPair(self.m).bins(edges, off)
        # below the edges: bin by bin, the Q-mass of one times e^reference
        q = bins.q * exp_enclosure(-np.append(edges, edges[-1]), np.append(off, off[-1]))
        p = _running(bins.p)
        q = _running(q)
        found = (
            q if power == 1 else (exact(1.0 + k1) * exp_enclosure(0.0 * k1, 4 * UNIT + off)) * q - p
        )
        back = np.argsort(order, kind="stable")
        return found[back].clipped(0.0, np.inf)

    def _read(self, k1: FloatArray, slack: FloatArray, power: int, rtol: float = 0.0) -> Enclosure:
        """Encloses shortfall (``power`` 2) or cdf (1) at K = 1 + k1, k1 known up to ``slack``."""
        if self.steps == 1:
            return self._one_step(k1, slack, power)
        table = _Table.of(self.m, self.steps)
        lower, upper = (
            np.zeros_like(k1),
            np.where(power == 2, (1.0 + k1 + slack) * (1 + 4 * UNIT), 1.0),
        )
        index = table.place(k1)
        for i in np.unique(index):
            at = index == i
            found = _Line.of(self.m, self.steps, int(i)).read(k1[at], slack[at], power)
            lower[at], upper[at] = found.lower, np.minimum(found.upper, upper[at])
        if power == 2:
            close = max(_CLOSE, _SPARE * rtol)
            for i in np.flatnonzero(upper - lower > close * lower):
                start = float(table.c[index[i]])
                path = shortfall_on_a_path(self.m, self.steps, float(k1[i]), float(slack[i]), start)
                lower[i], upper[i] = max(lower[i], path[0]), min(upper[i], path[1])
        torn = ~(lower <= upper)
        most = (1.0 + k1 + slack) * (1 + 4 * UNIT) if power == 2 else 1.0 + 0.0 * k1
        return Enclosure(np.where(torn, 0.0, lower), np.where(torn, most, upper))


def _running(masses: Enclosure) -> Enclosure:
    """Sums the masses of the bins below each edge; the last bin is left out."""
    n = 2.0 * len(masses) * UNIT
    return Enclosure(np.cumsum(masses.lower[:-1]) * (1 - n), np.cumsum(masses.upper[:-1]) * (1 + n))


@dataclass(frozen=True)
class _Table:
    """Bounds of t (ln psi(c) + c) at abscissas c that are equally spaced in ln c."""

    steps: int
    c: FloatArray
    log: FloatArray  # approximately t (ln psi(c) + c)
    most: FloatArray  # an upper bound of it; inf where nothing is known

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def of(m: float, steps: int) -> _Table:
        """Makes the table of one mechanism."""
        c = np.exp(np.arange(_LOWEST, _HIGHEST, _SPACING))
        each = [log_transform(m, part.astype(np.complex128)) for part in np.array_split(c, 13)]
        log = np.concatenate([one.value.real for one in each])
        error = np.concatenate([one.error for one in each])
        # no more than the crude bound's
        crude = np.log(upper_transform(m, c)) + c
        with np.errstate(invalid="ignore"):
            near = np.where(np.isfinite(log) & np.isfinite(error), log, crude)
            most = np.where(np.isfinite(error), log + error, crude + 4 * UNIT * (c + 800.0))
        return _Table(steps, c, steps * near, steps * most * (1 + 2 * UNIT * np.sign(most)))

    def place(self, k1: FloatArray) -> FloatArray:
        """Computes the index of the abscissa where the integrand's modulus is least, for each K."""
        height = self.log + np.multiply.outer(k1, self.steps * self.c) - 2.0 * np.log(self.c)
        return np.asarray(np.argmin(height, axis=1))


@dataclass(frozen=True)
class _Line:
    """Values of t (ln psi(s) + s) at s = c + i n D, n = 0, 1, ..., with what the sum leaves out."""

    m: float
    steps: int
    step: float  # D
    s: ComplexArray
    log: ComplexArray
    error: FloatArray
    end: tuple[float, float]  # ln of bounds of the sum beyond the last point, for powers 2 and 1

    @staticmethod
    @functools.lru_cache(maxsize=512)
    def of(m: float, steps: int, index: int) -> _Line:
        """Makes the line through the abscissa with this index."""
        table = _Table.of(m, steps)
        c = float(table.c[index])
        # the K whose saddle point c is: a line's step and length are chosen for it
        k1 = _saddle(table, index)
        step = _widest_step(table, index, k1)
        points, end = _length(m, steps, c, step, float(table.log[index]))
        s = c + 1j * step * np.arange(points)
        logs = log_transform(m, s)
        return _Line(m, steps, step, s, steps * logs.value, steps * logs.error, end)

    def read(self, k1: FloatArray, slack: FloatArray, power: int) -> Enclosure:
        """Encloses shortfall (``power`` 2) or cdf (1) at K = 1 + k1, k1 known up to ``slack``."""
        t, s = self.steps, self.s
        x = self.log + np.multiply.outer(k1, t * s)
        with np.errstate(over="ignore", invalid="ignore"):
            term = np.exp(x) / s**power
            factor = self.step / math.pi / (t if power == 2 else 1)
            weight = np.full(s.size, factor)
            weight[0] *= 0.5
            value = np.sum(term.real * weight, axis=1)
            size = np.abs(term) * weight
            # exp, cos and sin; s^power, the products, the sum in any order; the exponent's parts:
            # the sum and the product of k1 with t s, and the errors of k1 and of the logarithm
            each = UNIT * (s.size + 60.0 + 6.0 * (np.abs(self.log) + np.abs(x)))
            each = each + 6.0 * UNIT * np.multiply.outer(np.abs(k1), t * np.abs(s))
            each = each + np.multiply.outer(slack, t * np.abs(s)) + self.error
            off = outwards(np.sum(size * relative_error(each), axis=1))
            off = off + self._end(k1 + slack, power)
            more = self._aliased(k1, slack, power)
            lower = np.nan_to_num(value - off - more, nan=0.0, neginf=0.0)
            upper = np.nan_to_num(value + off, nan=math.inf, posinf=math.inf)
        return Enclosure(np.maximum(lower, 0.0), np.maximum(upper, TINY))

    def _end(self, k1: FloatArray, power: int) -> FloatArray:
        """Computes bounds of the sum's terms beyond the last point."""
        factor = 1.0 / math.pi / (self.steps if power == 2 else 1)
        log = self.end[2 - power] + self.steps * self.s[0].real * k1
        return np.asarray(factor * np.exp(log) * (1 + 1e-9))  # guard: allocation-end

    def _aliased(self, k1: FloatArray, slack: FloatArray, power: int) -> FloatArray:
        """Computes upper bounds of what the sum of a step D has beside the integral."""
        c, t = float(self.s[0].real), self.steps
        table = _Table.of(self.m, t)
        d = 2.0 * math.pi / (self.step * t)
        right, left = _chernoff(table, c, d, k1 + slack, power)
        k, q = 1.0 + k1 + slack, math.exp(-min(c * t * d, 700.0))
        # at most K + n d (of the cdf: 1) for n >= 1
        plain = k * q / (1 - q) + d * q / (1 - q) ** 2 if power == 2 else q / (1 - q) + 0 * k
        left = np.where(k < d, 0.0, left)
        return np.asarray(
            (np.minimum(right, plain) + left) * (1 + 1e-6)
        )  # guard: allocation-aliasing


def _chernoff(
    table: _Table, c: float, d: float, k1: FloatArray, power: int
) -> tuple[FloatArray, FloatArray]:
    """Bounds the sums over n >= 1 and over n <= -1 of e^(-c t n d) (shortfall or cdf at K + n d).

    For every b > 0, E[(K - R)+] <= psi(b)^t e^(b t K) / (e b t), and
    Q(R <= K) <= psi(b)^t e^(b t K).
    """
    t, b = table.steps, table.c
    log = table.most + np.multiply.outer(k1, t * b)
    log = log - (1.0 + np.log(t * b) if power == 2 else 0.0)
    ratio = -np.abs(b - c) * t * d
    with np.errstate(divide="ignore", over="ignore"):
        sums = np.exp(log + ratio) / -np.expm1(np.minimum(ratio, -1e-300))
    smaller = b < c * (1 - 1e-9)
    larger = b > c * (1 + 1e-9)
    return np.min(sums[:, smaller], axis=1, initial=math.inf), np.min(
        sums[:, larger], axis=1, initial=math.inf
    )


def _saddle(table: _Table, index: int) -> float:
    """Computes about the K - 1 for which the abscissa with this index is the saddle point."""
    i = min(max(index, 1), table.c.size - 2)
    c, slope = table.c, np.gradient(table.log[i - 1 : i + 2], table.c[i - 1 : i + 2])[1]
    return float(max(2.0 / c[i] - slope, -0.999 * table.steps) / table.steps)


def _widest_step(table: _Table, index: int, k1: float) -> float:
    """Finds a step D of the line whose aliasing is a small share of the value."""
    c, t = float(table.c[index]), table.steps
    log_value = float(table.log[index]) + c * t * k1 - math.log(t * c)
    log_value -= 0.5 * math.log1p(max(_bend(table, index), 0.0))
    d = 0.5 / (c * t)
    for _ in range(200):
        right, left = _chernoff(table, c, d, np.array([k1]), 2)
        k, q = 1.0 + k1, math.exp(-min(c * t * d, 700.0))
        most = min(right[0], k * q / (1 - q) + d * q / (1 - q) ** 2) + (left[0] if d < k else 0)
        if most <= 0.01 * _SHARE * math.exp(min(max(log_value, -690.0), 700.0)):
            break
        d *= 1.1
    step = 2.0 * math.pi / (d * t)
    scale = 2.0 ** (20 - math.frexp(step)[1])
    return math.floor(step * scale) / scale  # few bits: every n D is a double


def _bend(table: _Table, index: int) -> float:
    """Computes about c^2 times the second derivative of t ln psi at the abscissa of this index."""
    i = min(max(index, 1), table.c.size - 2)
    c, log = table.c[i - 1 : i + 2], table.log[i - 1 : i + 2]
    return float(2.0 * c[1] ** 2 * np.polyfit(c - c[1], log, 2)[0])


# Rotations of the end of a line, as shares of the angle at its last point
_THETAS = np.concatenate([np.geomspace(1e-4, 0.07, 6), np.linspace(0.1, 0.95, 8)])


def _length(
    m: float, steps: int, c: float, step: float, log: float
) -> tuple[int, tuple[float, float]]:
    """Finds how many points a line has, and bounds the rest of the sum.

    With the path at Im z = -theta / m, |psi(c + i w)| <= e^(theta^2 / (2 m^2)) psi(x) for
    x = Re(s e^(-i theta)) = c cos theta + w sin theta and 0 < theta < pi / 2; less at larger w.
    """
    counts = np.unique(np.geomspace(8, _MOST_POINTS, 24).astype(int))
    w = step * (counts - 1.0)
    goal = log + math.log(0.1 * _SHARE) - 2.0 * math.log(c)
    for n, last in zip(counts, w, strict=True):
        shortfall, theta = _shortfall_end(m, steps, c, last)
        if shortfall - math.log(step) <= goal or n == counts[-1]:
            break
    return int(n), (shortfall, _cdf_end(m, steps, c, last, theta))


def _shortfall_end(m: float, steps: int, c: float, last: float) -> tuple[float, float]:
    """Bounds ln of the sum of |psi^t e^(c t)| D / w^2 beyond w = ``last``, for the best theta."""
    # for many steps the best theta is m^2 |s|, where psi is e^(-|s| sin theta)
    theta = np.append(_THETAS, min(0.9, m * m * last / 1.5)) * math.atan2(last, c) * (1 - 1e-12)
    x = c * np.cos(theta) + last * np.sin(theta)
    log_b = 0.5 * (theta / m) ** 2 + np.log(upper_transform(m, x * (1 - 1e-15)))
    # the sum of D / w^2 over the points beyond is at most 1 / w
    shortfall = steps * (float(np.min(log_b)) + 1e-12 + c) - math.log(last) + 1e-9
    return shortfall, float(theta[np.argmin(log_b)])


def _cdf_end(m: float, steps: int, c: float, last: float, theta: float) -> float:
    """Bounds ln of int B(w)^t e^(c t) / w dw beyond w = ``last`` for the falling bound B of psi.

    It counts the octaves of w one by one, and what is beyond them by Markov's inequality.
    """
    octave = 2.0 ** np.arange(0.0, 60.0)
    x = (c * math.cos(theta) + last * octave * math.sin(theta)) * (1 - 1e-15)
    log_b = 0.5 * (theta / m) ** 2 + np.log(upper_transform(m, x))
    # psi(x) <= E[1 / W] / (e x) = e^(m^2) / (e x)
    far = 0.5 * (theta / m) ** 2 + m * m - 1.0 - math.log(last * 2.0**60 * math.sin(theta))
    parts = np.append(steps * log_b + math.log(math.log(2.0)), steps * far - math.log(steps))
    return float(np.logaddexp.reduce(parts) + steps * c + 1e-9)
