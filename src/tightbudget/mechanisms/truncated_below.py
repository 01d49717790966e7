"""A lower bound of truncated Poisson batches: all others are one vector, turned from the record.

A record u takes the place of another one, y, in a batch that the others fill: that moves the sum by
u - y, by up to twice the clip. But a batch that is not full shows in its sum, too, which lacks some
y, and for y = -u it looks like one with the record. So let u and y have the length of the clip, and
an angle between a right one and two. With a = |u - y| / 2 and b their common part, in units of the
noise, and the sum of a full batch of others for the origin,

    the sum of a batch that lacks j others is at       (j a, j b),
    with the record there it is at                     ((j + 1) a, (j - 1) b),
    and with the record in the place of another at     (2 a, 0).

The plane is cut into rectangles, and rectangles whose ratios are close to each other become one
output. That is post-processing: the pair of these outputs is attained by the two data sets.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy import special as sp

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.shuffled_below import masses_between
from tightbudget.numerics.binomial import binomial_masses, binomial_tails
from tightbudget.numerics.enclosure import Enclosure, stack
from tightbudget.numerics.rounding import (
    TINY,
    UNIT,
    FloatArray,
    double_down,
    double_up,
    scale_down,
    scale_up,
)
from tightbudget.pairs.atomic import AtomicPair, log_quotient
from tightbudget.pairs.direction import Direction

# Halves of |u - y| over the clip: sines of half the angle, of 90 to 128 degrees. Which one is taken
# affects width, never truth.
_SINES = (math.sqrt(0.5), 0.78, math.sqrt(0.75), 0.9)
# Sides of a rectangle, in deviations of the noise, and how many are in a row at most: at half of
# the first an epsilon was 0.2 % larger, for clips of a tenth to twice the noise.
_SIDE, _MOST_SIDES = 0.15, 800
_REACH = 12.0  # deviations around the places that are told apart
_OUTPUTS = 6000  # that rectangles are merged to
_RARE, _HEAVY = 1e-60, 1e-18  # chances of a number of others: listed, and told apart
_MOST_LISTED = 2000
_MORE = 1.02  # times the variance of a record alone, at least
_SMALLEST, _LARGEST = 1e-6, 1e6  # clips over the noise for which it is computed
_LEAST, _CERTAIN = 1e-280, 1e-6  # a mass that is smaller, or less certain, is told from none
_BITS = 24  # of a and b: their multiples are exact
# as for a sum of exponentials (shuffled_below): the error of all runs, in deviations of their loss
_CLOSE = 5e-6


class _Chances(NamedTuple):
    """Chances of what a batch is without the record, and of the record's place in it.

    Attributes:
        lacking: (J,) enclosures that it lacks 1, 2, ... J others.
        full: (1,) that the others fill it, and the record is not in it.
        replaced: (1,) that the others fill it, and the record is in the place of one of them.
        rest: an upper bound of the chance that it lacks more than J.
    """

    lacking: Enclosure
    full: Enclosure
    replaced: Enclosure
    rest: float

    def lower(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.lacking.lower, self.full.lower, self.replaced.lower

    def upper(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.lacking.upper, self.full.upper, self.replaced.upper


@dataclass(frozen=True)
class OthersTurned(Mechanism):
    """A truncated Poisson sample in which all other records are one vector, turned from the record.

    Guarantee: the pair that it offers is a post-processing of the noisy sums of two data sets. It
    bounds from below what a sample reveals.

    Args:
        across: half the distance of the two vectors over the noise, of 24 bits.
        along: their common part over the noise, of 24 bits.
        rate: the chance of each record to be in the sample before the cut, in (0, 1).
        at_most: records of the largest batch.
        of: records of the larger one of the two data sets.
    """

    across: float
    along: float
    rate: float
    at_most: int
    of: int

    @staticmethod
    def tried(base: Gaussian, rate: float, at_most: int, of: int) -> OthersTurned | None:
        """Returns the one of some angles that tells most.

        Returns:
            None where that is not computed, or next to nothing more than of a record alone.
        """
        chances, clip = _chances(rate, at_most, of), base.sensitivity / base.sigma
        if chances is None or not _SMALLEST < clip < _LARGEST:
            return None
        sizes = [_sizes(base, sine) for sine in _SINES]
        each = [_variance(across, along, rate, chances) for across, along in sizes]
        # a sampled Gaussian mechanism has the variance rate^2 (e^(clip^2) - 1)
        if max(each) < _MORE * rate**2 * math.expm1(min(clip, 1.0) ** 2):
            return None
        across, along = sizes[each.index(max(each))]
        return OthersTurned(across, along, rate, at_most, of, relation=base.relation)

    def pair(self, direction: Direction) -> AtomicPair:
        p, q = _outputs(self.across, self.along, self.rate, self.at_most, self.of)
        return AtomicPair.from_masses(*((p, q) if direction is Direction.REMOVE else (q, p)))

    def is_close(self, runs: int) -> bool:
        """Says whether rounding leaves the bounds of so many runs close to each other."""
        p, q = _outputs(self.across, self.along, self.rate, self.at_most, self.of)
        known = (p.lower > 0.0) & (q.lower > 0.0)
        low, high = log_quotient(p[known], q[known])
        error = float(np.sum((high - low) * p.upper[known]))
        variance = float(np.sum((low + high) ** 2 / 4 * q.upper[known]))
        return runs * error <= _CLOSE * math.sqrt(runs * variance)


def _sizes(base: Gaussian, sine: float) -> tuple[float, float]:
    """Returns the parts of two vectors of at most the clip's length, over the noise."""
    clip = Fraction(base.sensitivity) / Fraction(base.sigma)
    across = _shorter(sine * float(clip))
    # guard: others-within-the-clip
    along = _shorter(math.sqrt(max(0.0, float(clip**2 - Fraction(across) ** 2))))
    return across, along


def _shorter(x: float) -> float:
    """A number of 24 bits below x >= 0, by a relative 1e-9 at least."""
    mantissa, exponent = math.frexp(x * (1.0 - 2e-9))
    return math.ldexp(math.floor(math.ldexp(mantissa, _BITS)), exponent - _BITS)


@functools.lru_cache(maxsize=16)
def _chances(rate: float, at_most: int, of: int) -> _Chances | None:
    """The chances of a sample; None where too many numbers of others are likely."""
    share = Fraction(rate)
    deviation = math.sqrt(of * rate * (1.0 - rate))
    most = math.ceil(max(0.0, at_most - of * rate) + 17.0 * deviation) + 20
    least = max(0, at_most - most)
    if at_most - least > _MOST_LISTED or not of - 1 > at_most:
        return None
    # of a relative 1e-30, from at_most - 1 downwards
    each = binomial_masses(of - 1, share, least, at_most - 1)[::-1]
    rest = binomial_tails(of - 1, share, least)[0][1]
    others = sum((Fraction(mass) for mass in each), Fraction(0))
    all_in = sum(map(Fraction, binomial_masses(of, share, least, at_most)), Fraction(0))
    rest_in = binomial_tails(of, share, least)[0][1]
    off = Fraction(1, 10**29)
    # guard: record-kept-in-a-full-batch
    kept = Fraction(at_most, of)
    replaced = (1 - all_in - Fraction(rest_in) - off) * kept, (1 - all_in + off) * kept
    fill = 1 - others - Fraction(rest) - off, 1 - others + off
    if rest > _RARE or replaced[0] <= 0:
        return None
    return _Chances(
        stack(*(_between(Fraction(mass) * (1 - off), Fraction(mass) * (1 + off)) for mass in each)),
        _between(max(Fraction(0), fill[0] - replaced[1]), fill[1] - replaced[0]),
        _between(*replaced),
        rest,
    )


def _between(low: Fraction, high: Fraction) -> Enclosure:
    return Enclosure(np.array([double_down(low)]), np.array([double_up(high)]))


def _variance(across: float, along: float, rate: float, chances: _Chances) -> float:
    """E_Q[(dP / dQ - 1)^2], roughly: of rectangles with sides of half a deviation."""
    lacking = chances.lacking.upper
    listed = int(np.max(np.flatnonzero(lacking > 1e-9), initial=0)) + 1
    j = np.arange(listed + 2.0)

    def masses(size: float) -> FloatArray:
        cuts = np.arange(-5.0, min(size * (listed + 1) + 5.0, 200.0), 0.5)
        below = sp.ndtr(np.append(cuts, np.inf) - size * j[:, None])
        return np.asarray(np.diff(below, prepend=0.0))

    some = lacking[:listed], chances.full.upper, chances.replaced.upper
    p, q = _together(masses(across), masses(along), rate, some)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.nansum(np.where(q > 0.0, (p - q) ** 2 / q, 0.0)))


def _together(
    x: FloatArray,
    y: FloatArray,
    rate: float,
    chances: tuple[FloatArray, FloatArray, FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """The masses of all rectangles with the record, and without it.

    Args:
        x: (J + 2, n) masses across, where 0, 1, ... J + 1 halves of the distance are added.
        y: (J + 2, k) masses along, where so many common parts are.
        rate: that of the sample.
        chances: those of lacking others, of a full batch, and of a place in it; (J,), (1,), (1,).
    """
    lacking, full, replaced = chances
    j = lacking.size
    less = lacking[:, None] * y[1 : j + 1]
    # guard: record-beside-fewer-others
    there = x[2 : j + 2].T @ (rate * lacking[:, None] * y[:j])
    absent = x[1 : j + 1].T @ less
    # guard: record-in-the-place-of-another
    moved = np.outer(replaced * x[2], y[0])
    p = (1.0 - rate) * absent + there + np.outer(full * x[0], y[0]) + moved
    return p, absent + np.outer((full + replaced) * x[0], y[0])


@functools.lru_cache(maxsize=4)
def _outputs(
    across: float, along: float, rate: float, at_most: int, of: int
) -> tuple[Enclosure, Enclosure]:
    """The masses of merged rectangles with the record, and without it."""
    chances = _chances(rate, at_most, of)
    assert chances is not None
    return _merged(*_rectangles(across, along, rate, chances))


def _rectangles(
    across: float, along: float, rate: float, chances: _Chances
) -> tuple[Enclosure, Enclosure]:
    """The masses of all rectangles with the record, and without it, row by row."""
    lacking = chances.lacking
    heavy = np.flatnonzero(lacking.upper > _HEAVY)
    last = int(np.max(heavy, initial=1)) + 1
    x = _masses(across, lacking.lower.size, max(2, last + 1))
    y = _masses(along, lacking.lower.size, last)
    low = _together(x.lower, y.lower, rate, chances.lower())
    high = _together(x.upper, y.upper, rate, chances.upper())
    # a sum of J products of three numbers, of which a difference is rounded, and three sums more
    off = lacking.lower.size + 12.0
    p, q = (
        Enclosure(
            scale_down(np.where(least > TINY, least, 0.0).ravel(), off),
            # what is left out, and products that no double holds
            scale_up(most.ravel(), off) + (chances.rest + 1e4 * TINY) * (1.0 + 4 * UNIT),
        )
        for least, most in zip(low, high, strict=True)
    )
    return p, q


def _masses(size: float, listed: int, last: int) -> Enclosure:
    """Masses of intervals around 0, 1, ... ``listed`` + 1 times ``size``.

    Args:
        size: of 24 bits, > 0.
        listed: a count.
        last: the largest multiple that is told apart, if there are not too many intervals.
    """
    end = min(size * last + _REACH, _SIDE * _MOST_SIDES - _REACH)
    cuts = np.arange(-_REACH, end, _SIDE)
    near = min(listed + 2, math.ceil((end + 2.0 * _REACH) / size) + 1)
    each = [masses_between(cuts, size * j) for j in range(near)]
    low, high = (np.array([getattr(e, of) for e in each]) for of in ("lower", "upper"))
    # beyond, the masses of all intervals but the last fall from row to row, and that one rises
    further = ((0, listed + 2 - near), (0, 0))
    low, high = np.pad(low, further, mode="edge"), np.pad(high, further, mode="edge")
    low[near:, :-1] = 0.0
    high[near:, -1] = 1.0
    return Enclosure(low, high)


def _merged(p: Enclosure, q: Enclosure) -> tuple[Enclosure, Enclosure]:
    """Merges outputs whose ratios are near each other, and all that are not known."""
    known = (p.lower > _LEAST) & (q.lower > _LEAST)
    for part in (p, q):
        known &= part.upper - part.lower <= _CERTAIN * part.lower
    ratio = np.log(p.lower[known] / q.lower[known])
    # as near to each other as losses are small, or as a share of large ones
    deviation = math.sqrt(float(np.average(ratio**2, weights=q.lower[known])))
    ratio = np.arcsinh(ratio / max(deviation, 1e-15))
    places = np.linspace(np.min(ratio), np.max(ratio), _OUTPUTS)
    group = np.zeros(len(p), dtype=np.intp)  # 0: what is not known
    group[known] = 1 + np.searchsorted(places, ratio)
    most = float(np.max(np.bincount(group)))

    def summed(part: Enclosure) -> Enclosure:
        low, high = (
            np.asarray(np.bincount(group, masses, _OUTPUTS + 1), dtype=np.float64)
            for masses in (part.lower, part.upper)
        )
        return Enclosure(scale_down(low, most), np.minimum(scale_up(high, most), 1.0))

    p, q = summed(p), summed(q)
    there = p.upper > 0.0
    return p[there], q[there]
