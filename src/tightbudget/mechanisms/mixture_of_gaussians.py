"""Gaussian noise around a sum to which a record contributes a random amount."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special as sp

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.mixture_transform import MixtureTransform
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure, where
from tightbudget.numerics.rounding import UNIT, FloatArray, next_up
from tightbudget.numerics.special import normal_masses
from tightbudget.numerics.validate import in_double_range, masses, positive, refuse
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Bins, Pair, Sketch
from tightbudget.pairs.transform import Transform

_TAIL = 39.0  # a standard normal variable lies further out with less than the least mass, TINY
_PICTURED = 32  # the heaviest components are enough to plan with
_MOST = 1000  # components
_LEAST_RATE = 1e-100  # below it no rate is carried
_TABLE = 4097  # outputs between which a loss is sought
# places between two of them, 1e-13 of the range of all outputs apart
_PARTS = 2**31
_SECANTS = (0, 1, 2, 4, 5, 6)  # turns of that search; the others take halves, which end it


@dataclass(frozen=True)
class MixtureOfGaussians(Mechanism):
    """Adds N(0, sigma^2) noise to a sum; what a record adds to it has a random size.

    Guarantee: the pair sum_i w_i N(sensitivities[i], sigma^2) against N(0, sigma^2) dominates
    the mechanism, for w = weights / sum(weights); a vector-valued contribution counts with its
    2-norm. Source: Choquette-Choo, Ganesh, Steinke, Thakurta 2023, Corollary 4.7.

    A mixture of 0 and one other size is the Gaussian mechanism on a Poisson sample. It is answered
    as that, with the share of the other size rounded up to a double; a larger share dominates.

    With ``mirrored``, the pair is the mixture against its mirror image. For sensitivities 0 and
    C that dominates the Poisson-sampled Gaussian sum in which one record of norm at most C is
    replaced by another: of all sets S with a given mass under N(v), v the old contribution, a
    half-line has the least mass under N(0) and N(v') alike if v and v' are opposite and of norm
    C (Neyman, Pearson), so it is the worst event for every e^eps >= 1; the other direction is
    its mirror image.

    Args:
        sigma: standard deviation of the noise itself, > 0, in the sum's unit.
        sensitivities: (n,) numbers >= 0, not all zero, in the sum's unit; at most 1000 differ.
        weights: (n,) numbers >= 0, not all zero: how likely each is, normalised by their sum.
        mirrored: False: the record is there or not; True: it is replaced.

    Raises:
        ParameterError: a parameter is out of its range, or the quotient of a sensitivity and
            sigma is not in [1e-100, 1e12].
    """

    sigma: float
    sensitivities: ArrayLike  # kept as a tuple of floats, ascending
    weights: ArrayLike = field(repr=False)
    mirrored: bool = False

    kind: ClassVar[str] = "mixture_of_gaussians"
    mutual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        sigma = positive(sigma=self.sigma)
        weights = masses(normalised=False, weights=self.weights)
        sensitivities = masses(normalised=False, sensitivities=self.sensitivities)
        if weights.size != sensitivities.size:
            must = f"have as many entries as sensitivities ({sensitivities.size})"
            raise refuse("weights", must, f"{weights.size} entries")
        if not isinstance(self.mirrored, bool):
            raise refuse("mirrored", "be True or False", self.mirrored)
        # sorted, without what never happens
        given = zip(sensitivities.tolist(), weights.tolist(), strict=True)
        kept = sorted((c, w) for c, w in given if w > 0)
        if not kept[-1][0] > 0:
            raise refuse("sensitivities", "have an entry > 0 of weight > 0", self.sensitivities)
        if len(kept) > _MOST:
            raise refuse("weights", f"have at most {_MOST} entries > 0", f"{len(kept)} entries")
        for sensitivity, _ in kept:
            if sensitivity:
                in_double_range(**{"sensitivity / sigma": sensitivity / sigma})
        self._set(
            sigma=sigma,
            sensitivities=tuple(c for c, _ in kept),
            weights=tuple(w for _, w in kept),
        )

    def is_symmetric(self) -> bool:
        return self.mirrored

    def pair(self, direction: Direction) -> Pair:
        if (simple := self._sampled_gaussian()) is not None:
            return simple.pair(direction)
        shifts = np.array(self.sensitivities) / self.sigma
        mixture = Mixture(shifts, np.array(self.weights))
        if self.mirrored:
            return MixturePair(mixture, mixture)
        alone = Mixture(np.zeros(1), np.ones(1))
        if direction is Direction.REMOVE:
            return MixturePair(mixture, alone)
        return MixturePair(alone, mixture)  # mirrored, so that the loss rises here, too

    def _sampled_gaussian(self) -> Mechanism | None:
        """The Gaussian mechanism, sampled or not, that this equals; None if there is none."""
        sizes = np.array(self.sensitivities)
        if self.mirrored or np.any(sizes[:-1] > 0):
            return None
        gaussian = Gaussian(self.sigma, float(sizes[-1]))
        if sizes.size == 1:
            return gaussian
        # a larger rate dominates a smaller one
        weights = [Fraction(w) for w in np.array(self.weights).tolist()]
        share = weights[-1] / sum(weights)
        rate = float(share)
        rate = next_up(rate) if Fraction(rate) < share else rate
        return gaussian.subsampled(rate) if _LEAST_RATE <= rate < 1.0 else None


@dataclass(frozen=True, eq=False)
class Mixture:
    """The distribution sum_i w_i N(m_i, 1) / sum_i w_i, with shifts m_i >= 0, rounded once."""

    shifts: FloatArray  # (k,), ascending
    weights: FloatArray  # (k,), > 0
    off: float = 0.0  # how far each weight may be off, in units of 2^-53 of itself, at most 2

    def shares(self) -> FloatArray:
        """The weights over their sum, within 4 units of 2^-53 and twice ``off``."""
        return self.weights / math.fsum(self.weights)

    def log_ratio(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The ln of the mixture's density over that of N(0, 1) at z, and how far it may be off."""
        shares, k = self.shares(), self.shifts.size
        peak, small = np.full(z.size, -np.inf), np.full(z.size, True)
        for m, share in zip(self.shifts, shares, strict=True):
            y = m * (z - m / 2)
            small &= np.abs(y) <= 1.0
            peak = np.maximum(peak, y + math.log(share))
        far, slack = np.zeros(z.size), np.zeros(z.size)
        for m, share in zip(self.shifts, shares, strict=True):
            term = np.exp(m * (z - m / 2) + math.log(share) - peak)
            far += term
            # m is rounded, and so are m / 2, the difference and the product
            slack += term * (8 * UNIT * m * (np.abs(z) + m) + 4 * UNIT * abs(math.log(share)))
        # d ln sum e^y is the mean of the d y; the sum of k terms rounds k times, and e >= 1/(1 + t)
        log, off = peak + np.log(far), 1.1 * slack / far
        rounded = 4 * UNIT * (np.abs(peak) + k + 16)
        # close to loss 0 it is ln(1 + sum w (e^y - 1)), elsewhere the logarithm of a sum
        if (at := np.flatnonzero(small)).size:
            near, size = np.zeros(at.size), np.zeros(at.size)
            for m, share in zip(self.shifts, shares, strict=True):
                part = share * np.expm1(m * (z[at] - m / 2))
                near, size = near + part, size + np.abs(part)
            log[at], rounded[at] = np.log1p(np.maximum(near, -0.9)), 3 * (k + 16) * UNIT * size
        return log, off + rounded

    def masses(self, cuts: FloatArray) -> Enclosure:
        """The n + 1 masses between n ascending cuts, which may be infinite."""
        z, total = np.clip(cuts, -1e6, 1e6), exact(np.zeros(cuts.size + 1))
        gaps = np.append(np.diff(z, prepend=-np.inf), np.inf)
        gap_slack = 2 * UNIT * np.abs(gaps)
        for m, weight in zip(self.shifts, self.weights, strict=True):
            slack = 2 * UNIT * (np.abs(z) + m)
            total = total + normal_masses(z - m, slack, gaps, gap_slack).scaled(weight)
        # rounded once; the weights may be off on both sides of the quotient
        whole, off = np.array([math.fsum(self.weights)]), (2.0 + 2.0 * self.off) * UNIT
        return total / Enclosure(whole * (1 - off), whole * (1 + off))


@dataclass(frozen=True, eq=False)
class MixturePair(Pair):
    """The mixture ``right`` as P, the mirrored ``left`` as Q: the loss rises with the output.

    ``lines`` is the one of both that is mixed, where a moment generating function should be that
    of another mixture: components with a share of 1e-280 together may have been left out. That
    adds less to the delta of 1e14 runs than a line's own rounding, which is 1e-15 of a delta that
    is at least 1e-250.
    """

    right: Mixture
    left: Mixture
    lines: Mixture | None = None

    @property
    def _reach(self) -> tuple[float, float]:
        """Two outputs between which P and Q have all their mass, but for less than TINY."""
        return -float(self.left.shifts[-1]) - _TAIL, float(self.right.shifts[-1]) + _TAIL

    def _loss(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of the loss at the output z."""
        p, p_off = self.right.log_ratio(z)
        q, q_off = self.left.log_ratio(-z)
        off = p_off + q_off + 2 * UNIT * np.abs(p - q)
        return p - q - off, p - q + off

    def _cuts(self, losses: FloatArray) -> FloatArray:
        """An output for each loss, up to which all losses are at most that one."""
        low, high = self._reach
        table = np.linspace(low, high, _TABLE)
        after = np.searchsorted(np.maximum.accumulate(self._loss(table)[1]), losses, "right")
        left, right = table[np.maximum(after - 1, 0)], table[np.minimum(after, _TABLE - 1)]
        left = _last_below(lambda z: self._loss(z)[1], losses, left, right)
        left = np.where(after == 0, -np.inf, left)  # guard: cuts-below-loss
        return np.asarray(np.where(losses >= self.max_loss()[1], np.inf, left))

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins:
        # any doubles cut the outputs exactly; these are where the loss is surely at most the
        # edge, and how much less it is goes into w
        cuts = np.maximum.accumulate(self._cuts(edges - slack))
        reference = np.append(edges, edges[-1])
        p = self.right.masses(cuts)
        q = self.left.masses(-cuts[::-1])[::-1] * exp_enclosure(reference)
        low, high = self._reach
        behind = np.maximum(0.0, edges - self._loss(np.clip(cuts, low, high))[0])
        behind = np.where(np.isinf(cuts), np.where(cuts < 0, np.inf, 0.0), behind)
        lengths = np.append(np.diff(edges), 0.0)
        # guard: behind-cut-counted
        most = exp_enclosure(lengths + behind, 2 * UNIT * (lengths + behind)).upper
        w = (q / p).clipped(np.append(np.ones(edges.size), 0.0), np.append(np.inf, most))
        return Bins(p, where((p * w).upper < q.upper, p * w, q), w)

    def max_loss(self) -> tuple[float, float]:
        if self.right.shifts[-1] > 0 or self.left.shifts[0] > 0:
            return np.inf, np.inf
        # only Q is mixed, and all but its part around 0 vanishes: -ln(its share)
        share = math.fsum(self.left.weights[self.left.shifts == 0]) / math.fsum(self.left.weights)
        top = -math.log(share)
        return top * (1 - 8 * UNIT) - 8 * UNIT, top * (1 + 8 * UNIT) + 8 * UNIT

    def sketch(self) -> Sketch:
        around = np.concatenate([_heaviest(self.right), -_heaviest(self.left)])
        z = np.unique(np.linspace(-38.5, 38.5, 771) + around[:, None])
        middle = (z[1:] + z[:-1]) / 2
        log_density = self.right.log_ratio(middle)[0] - middle * middle / 2
        lower, upper = self._loss(middle)
        log_masses = log_density + np.log(np.diff(z) / math.sqrt(2 * math.pi))
        return Sketch((lower + upper) / 2, log_masses)

    def transform(self) -> Transform | None:
        remove = _is_alone(self.left)
        if not remove and not _is_alone(self.right):
            return None  # the mixture and its mirror image
        mixture = self.lines or (self.right if remove else self.left)
        return MixtureTransform.between(mixture.shifts, mixture.shares(), remove)

    def reversed(self) -> Pair:
        return MixturePair(
            self.left, self.right, self.lines
        )  # the sign of the output is turned, too

    def grid_origin(self) -> float | None:
        # much of the mass may have nearly the loss of an output that no record has moved
        p, q = (float(np.sum(x.shares()[x.shifts == 0])) for x in (self.right, self.left))
        return math.log(p / q) if p > 0 and q > 0 else None

    def log_tail_moment(self, x: float, s: float) -> tuple[float, float]:
        if math.isfinite(self.max_loss()[1]):
            return super().log_tail_moment(x, s)
        # P(z) e^(s L) = N(0, 1)(z) A(z)^(s + 1) A'(-z)^-s for the two ratios A and A'. Powers above
        # 1 and below 0 are convex: at most the mean of those of the components
        log_w, log_v = np.log(self.right.shares()), np.log(self.left.shares())
        whole = self._log_moment(self.right.shifts[:, None], self.left.shifts, s, -np.inf)
        most = float(np.logaddexp.reduce(np.ravel(log_w[:, None] + log_v + whole)))
        least, cut = -math.inf, self._cuts(np.array([x]))
        if math.isfinite(cut[0]):
            # far out one component each is nearly all, and the rest weighs less and less
            a, b = float(self.right.shifts[-1]), float(self.left.shifts[0])
            power = (s + 1.0) * log_w[-1] - s * log_v[0]
            ratio, off = self.right.log_ratio(cut)
            rest = float((ratio + off - a * (cut - a / 2))[0] - log_w[-1])
            most = min(most, power + (s + 1.0) * rest + self._log_moment(a, b, s, cut[0])[0])
            ratio, off = self.left.log_ratio(-cut)
            rest = float((ratio + off + b * (cut + b / 2))[0] - log_v[0])
            beyond = cut + 1e-9 * (1 + np.abs(cut))
            if self._loss(beyond)[0][0] >= x:
                least = power - s * rest + self._log_moment(a, b, s, beyond[0])[0]
        margin = 1e-9 * (1 + abs(most))
        return float(least) - margin, float(most) + margin

    @staticmethod
    def _log_moment(a: Any, b: Any, s: float, cut: float) -> FloatArray:
        """The ln of the integral of N(0, 1) A^(s + 1) A'^-s over z > cut, for one component each.

        A(z) = e^(a z - a^2/2) is the ratio of P's component to N(0, 1), A'(z) = e^(-b z - b^2/2)
        that of Q's.
        """
        c = (s + 1.0) * a + s * b
        log_scale = (s * b * b - (s + 1.0) * a * a + c * c) / 2
        return np.atleast_1d(log_scale + sp.log_ndtr(c - cut))


def _last_below(
    rising: Callable[[FloatArray], FloatArray],
    level: FloatArray,
    left: FloatArray,
    right: FloatArray,
) -> FloatArray:
    """The last of _PARTS + 1 places from ``left`` to ``right`` where a function is at most a level.

    It is at most its level at ``left`` and above at ``right``, or both are the same. First a secant
    method that keeps a bracket goes near; then places on both sides of it are tried.
    Source: the Illinois method (Dowell, Jarratt 1971).
    """
    step = (right - left) / _PARTS
    wide = np.flatnonzero(step > 0.0)

    def above(place: FloatArray, which: NDArray[np.int64]) -> FloatArray:
        return rising(left[which] + place * step[which]) - level[which]

    first, last = np.zeros(level.size), np.full(level.size, float(_PARTS))
    low, high = np.full(level.size, -1.0), np.full(level.size, 1.0)
    low[wide], high[wide] = above(first[wide], wide), above(last[wide], wide)
    before = np.zeros(level.size, dtype=np.int64)  # 1 where ``first`` moved last, -1: ``last``
    at, todo = first.copy(), wide
    for turn in itertools.count():
        if not todo.size:
            break
        with np.errstate(all="ignore"):
            share = low[todo] / (low[todo] - high[todo])
        useful = (share > 0.0) & (share < 1.0) & (turn in _SECANTS)
        gap = last[todo] - first[todo]
        at[todo] = first[todo] + np.floor(gap * np.where(useful, share, 0.5))
        value = above(at[todo], todo)
        fits = value <= 0.0
        # an end that stays twice counts half
        stays = before[todo] == np.where(fits, 1, -1)
        low[todo] = np.where(fits, value, np.where(stays, 0.5 * low[todo], low[todo]))
        high[todo] = np.where(fits, np.where(stays, 0.5 * high[todo], high[todo]), value)
        first[todo] = np.where(fits, at[todo], first[todo])
        last[todo] = np.where(fits, last[todo], at[todo])
        before[todo] = np.where(fits, 1, -1)
        near = (np.abs(value) <= 1e-13 * (1.0 + np.abs(level[todo]))) | (gap <= 2.0)
        todo = todo[~near]
    # one place each, on both sides, twice as far away each time; then halves
    reach, todo = 1.0, wide
    while (todo := todo[last[todo] - first[todo] > 1.0]).size:
        middle = 0.5 * (first[todo] + last[todo])
        nearer = np.where(before[todo] > 0, first[todo] + reach, last[todo] - reach)
        inside = (nearer > first[todo]) & (nearer < last[todo])
        place = np.where(inside & (reach < middle - first[todo]), nearer, np.floor(middle))
        value = above(place, todo)
        fits = value <= 0.0
        first[todo] = np.where(fits, place, first[todo])
        last[todo] = np.where(fits, last[todo], place)
        reach *= 2.0
    return np.asarray(left + first * step)


def _is_alone(mixture: Mixture) -> bool:
    """Whether ``mixture`` is N(0, 1)."""
    return mixture.shifts.size == 1 and float(mixture.shifts[0]) == 0.0


def _heaviest(mixture: Mixture) -> FloatArray:
    """The shifts of the heaviest components, and the largest shift of all, ascending."""
    order = np.argsort(mixture.weights)[-_PICTURED:]
    return np.unique(np.append(mixture.shifts[order], mixture.shifts[-1]))
