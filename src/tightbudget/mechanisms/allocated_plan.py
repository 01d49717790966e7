"""Which lattice points the average of an epoch's ratios needs: widths and places, but no mass.

A plan decides how far an upper and a lower bound are apart, and how long they take; no bound rests
on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

# The variance that spreading may add, and merging may take, beside the variance of the average. An
# epsilon is proportional to the root of the variance, and half of this is its relative gap.
_VARIANCE = 4e-5
# Away from zero and beyond the bulk a step is at most this share of the distance from zero, and
# from the mean. A quarter of its square is variance of the logarithm: 1e-6, below _VARIANCE.
_RELATIVE = 1.0 / 512.0
_SHORT = 2048  # entries: shorter pieces are not made coarser, a product of two takes 0.4 ms
# Mass that may be cut off at both ends of all laws together. It counts as a certain loss above, so
# that deltas far above it are known closely; each factor of e^-12 costs a piece some 3 % of length.
LOST = 1e-42
# An entry below this is no mass: products of two that are above it are normal doubles.
NO_MASS = 1e-140
# Two to the power of this is the ratio of the steps of neighbouring pieces.
_APART = 2
# The step of the first piece right of the bulk is 2^3 steps of the bulk, since the bulk is made of
# so many more entries than _RELATIVE asks for.
_FIRST_APART = 3
# A ratio above it has less than NO_MASS where the record is absent, but for a factor of 1e20.
_HUGE = 1e120
_FINER = 30  # pieces at most finer than the bulk's
_FINEST = _APART * _FINER  # levels at most below the bulk's
_MANY = 12  # pieces; with as many an average of a thousand ratios takes about half a second
# Entries between 0 and the mean of a ratio that may be 0: 2 MB a law, tenths of a second. The bulk
# has a step of at least 1/_LONGEST of the mean, so bounds of losses below some 1e-3 get wide.
_LONGEST = 2**18
_FEW = 8  # outputs of a step: their ratios begin the lattice, so that two of them fit it exactly

Levels = tuple[tuple[int, int], ...]  # levels, ascending, each with the first index that has it
# Positions, means and edges are off by less than this, as a share of themselves: some ten roundings
# on the way from a step's loss to the logarithm of an average.
MARGIN = 64 * UNIT
_FLAT = 8192  # entries: a product of two takes 10 ms
# Entries where all ratios have labels. Measured: twice as many raise the lower bound of 2 of 1,000
# steps (sigma .5, delta 1e-5) by 1e-4, and take four times as long.
_FAR = 4096
# A label ln(1 + share x) far above the bulk moves by this from point to point, and a loss by about
# as much: an eighth of its square is lost.
_LOSS = 1.0 / 64.0


@dataclass(frozen=True)
class Positions:
    """The places of lattice points: index k of a sum of m ratios stands at m origin + k unit."""

    origin: float
    unit: float

    def ratio(self, index: FloatArray, steps: int) -> FloatArray:
        """The averages of ``steps`` ratios at the points ``index``, within 4 units of 2^-53."""
        return np.asarray(self.origin + index * (self.unit / steps))


@dataclass(frozen=True)
class RatioSketch:
    """A rough law of one ratio, for planning only: it decides widths, no bound.

    Attributes:
        x: (n,) ratios, ascending.
        absent: (n,) their masses where the record is absent.
        present: (n,) their masses where it is present.
        zero: the mass of the ratio 0 where the record is absent.
    """

    x: FloatArray
    absent: FloatArray
    present: FloatArray
    zero: float

    @staticmethod
    def of(pair: Pair, direction: Direction) -> RatioSketch:
        """The sketch of one step's pair as a law of ratios."""
        sketch = pair.sketch().sorted()
        loss = np.clip(sketch.losses, -300.0, 300.0)
        # no mass is above 1: a sketch may say so at losses that hardly ever come
        p, q = np.exp(sketch.log_masses), np.exp(np.minimum(sketch.log_masses - sketch.losses, 0.0))
        if direction is Direction.REMOVE:
            return RatioSketch(np.exp(loss), q, p, float(pair.q_only().upper[0]))
        return RatioSketch(np.exp(-loss)[::-1], p[::-1], q[::-1], float(pair.p_only().upper[0]))

    def fits(self) -> bool:
        """Whether the ratios that a present record makes have masses that are normal doubles."""
        return bool(self.x.size) and float(np.sum(self.present[self.x > _HUGE])) < 1e-12

    def reaching(self, pair: Pair, direction: Direction, most: float) -> RatioSketch:
        """Returns this picture with ends beyond which the pair has a mass of at most ``most``.

        A sketch shows where most of the mass is. A lump of mass may lie at an end of a continuous
        part, or just beyond it: the search begins with a tiny step.
        """
        sign = 1.0 if direction is Direction.REMOVE else -1.0
        ends = []
        for x, way in ((float(self.x[0]), -sign), (float(self.x[-1]), sign)):
            end = sign * math.log(x)
            for power in range(-42, 10, 3):
                bins = pair.bins(np.array([end]), np.zeros(1))
                if bins is None:
                    break
                beyond = 1 if way > 0 else 0
                q = float(bins.q.upper[beyond]) * math.exp(-min(max(end, -600.0), 600.0))
                if float(bins.p.upper[beyond]) + q <= most or abs(end) > 300.0:
                    break
                end += way * math.ldexp(1.0, power)
            ends.append(math.exp(sign * end))
        # points whose masses say no more than that the lattice is to reach them
        low = [ends[0]] if ends[0] < self.x[0] else []
        high = [ends[1]] if ends[1] > self.x[-1] else []
        ratios = np.concatenate([low, self.x, high])
        absent, present = (
            np.pad(masses, (len(low), len(high)), constant_values=2.0 * most)
            for masses in (self.absent, self.present)
        )
        return RatioSketch(ratios, absent, present, self.zero)

    def bulk(self, steps: int) -> tuple[float, float]:
        """The mean and the standard deviation of one ratio, without those that are rare.

        A ratio is rare if less than one of its size or larger is expected among all steps.
        """
        beyond = np.cumsum(self.absent[::-1])[::-1]
        kept = beyond * steps >= 1.0
        x, q = self.x[kept], self.absent[kept]
        whole = float(np.sum(q)) + self.zero
        if not x.size or not whole > 0:  # all are rare: no bulk is to be resolved
            return 1.0, 0.0
        mean = float(np.sum(q * x)) / whole
        square = float(np.sum(q * (x - mean) ** 2)) + self.zero * mean**2
        return mean, math.sqrt(square / whole)

    def reach(self, steps: int) -> tuple[float, float, float]:
        """The least ratio that matters in a sum, the least that matters alone, and the largest."""
        below = np.cumsum(self.absent) + self.zero
        # all steps have to be as small to make a small average
        low = np.log(np.maximum(below, 1e-320)) * steps > math.log(LOST)
        beyond = np.cumsum((self.present + self.absent)[::-1]) > LOST / steps
        high = beyond[::-1]
        first = int(np.argmax(low)) if low.any() else 0
        least = int(np.argmax(below > LOST / steps))
        last = self.x.size - 1 - int(np.argmax(high[::-1])) + 1
        ends = np.clip([least - 1, first - 1, last], 0, self.x.size - 1)
        low_, first_, last_ = (float(x) for x in self.x[ends])
        return low_, first_, last_


@dataclass(frozen=True)
class LatticePlan:
    """Which step a sum of m ratios has at which place.

    Attributes:
        steps: of the whole average.
        positions: of lattice points.
        mean, deviation: of the bulk of one ratio, in units of the lattice.
        share: the widest step of the bulk, as a share of its standard deviation.
        relative: the widest step elsewhere, as a share of the distance from 0 or from the mean.
        flat: whether all sums have the step of the lattice.
        short: entries; a piece with fewer is not made coarser.
    """

    steps: int
    positions: Positions
    mean: float
    deviation: float
    share: float
    relative: float = _RELATIVE
    flat: bool = False
    short: int = _SHORT

    def table(self, runs: int, current: int, low: float, high: float) -> tuple[int, Levels]:
        """The level of the bulk of a sum of ``runs`` ratios, and all levels with their places.

        Args:
            runs: the number of ratios.
            current: the level that the bulk already has: it is not made finer.
            low: the place (in units) from which on a sum matters.
            high: the largest place.
        """
        if self.flat:
            return 0, ((0, 0),)
        deviation, middle = math.sqrt(runs) * self.deviation, runs * self.mean
        length = min(high, middle + 14 * deviation) - max(low, middle - 14 * deviation)
        step = min(self.share * deviation, length / self.short)
        base = max(current, math.floor(math.log2(step) + 1e-9)) if step > 0 else current
        zero = -runs * self.positions.origin / self.positions.unit
        table = [base]
        starts = [zero + 2.0**base / self.relative]
        while starts[0] > low and len(table) < _FINER:
            table.insert(0, _APART * (math.ceil(table[0] / _APART) - 1))
            starts.insert(0, zero + 2.0 ** table[0] / self.relative)
        # the same levels again and again, whatever the bulk's: pieces of more levels cost time
        level = _APART * math.ceil((base + _FIRST_APART) / _APART)
        while (start := middle + 2.0**level / self.relative) < high:
            if start > starts[-1]:
                table.append(level)
                starts.append(start)
            level += _APART
        return base, tuple(
            (level, math.ceil(start / 2.0**level))
            for level, start in zip(table, starts, strict=True)
        )


def within_reach(pair: Pair, direction: Direction) -> bool:
    """Whether a lattice can hold the ratios of a step's pair; with next to no noise it cannot."""
    return RatioSketch.of(pair, direction).fits()


def planned(
    picture: RatioSketch, steps: int, finer: int
) -> tuple[LatticePlan, tuple[float, float, float]]:
    """The plan for an average, and three places of one ratio.

    They are the least that matters in a sum, the least that matters by itself, and the largest.
    ``finer`` says how often all widths are halved, or doubled where it is below 0.
    """
    mean, deviation = picture.bulk(steps)
    least, low, high = picture.reach(steps)
    share = math.sqrt(4.0 * _VARIANCE / (1.0 + math.log2(steps) / 2.0)) / 2**finer
    short = int(_SHORT * 2.0**finer)
    few = picture.x.size <= _FEW and picture.zero == 0.0
    origin = float(picture.x[0]) * (1.0 - MARGIN) if few else 0.0
    if few and high > low:
        unit = (high - origin) / (1 if picture.x.size == 2 else short)
    else:
        length = min(high, mean + 14 * deviation) - max(least, mean - 14 * deviation)
        unit = min(share * deviation, length / short)
        if picture.zero > 0.0:  # arrays go down to 0
            unit = max(unit, mean / _LONGEST)
        # a power of two: places are exact; one ratio alone has no width to resolve
        unit = 2.0 ** math.floor(math.log2(unit if unit > 0 else mean * share))
    positions = Positions(origin, unit)
    # the ratios of a step of little noise lie on many levels: fewer points on each keep the cost
    levels = math.log2(max(high, unit) / max(low, unit * 2.0**-_FINEST)) / _APART
    relative = _RELATIVE / 2**finer * math.sqrt(max(1.0, levels / _MANY))
    plan = LatticePlan(
        steps,
        positions,
        (mean - origin) / unit,
        deviation / unit,
        share,
        relative,
        short=short,
    )
    return plan, ((least - origin) / unit, (low - origin) / unit, (high - origin) / unit)


def planned_flat(
    picture: RatioSketch, steps: int
) -> tuple[LatticePlan, tuple[float, float, float]]:
    """The plan for sums of ratios on one lattice, and three places of one ratio."""
    # larger ratios than those of the bulk count here, too: what lies above the points is dropped
    mean, deviation = picture.bulk(10_000 * steps)
    least, _, high = picture.reach(steps)
    share = _share_of_sums(steps)
    # a ratio that is mostly 0 may have no other one near its mean: the least of them is reached
    first = float(picture.x[0])
    unit = max(share * (deviation or mean), first / _FLAT)
    high = min(high, max(first, mean + 14.0 * math.sqrt(steps) * deviation))
    plan = LatticePlan(steps, Positions(0.0, unit), mean / unit, deviation / unit, share, flat=True)
    return plan, (least / unit, least / unit, high / unit)


@dataclass(frozen=True)
class LogLabels:
    """Labels ln(1 + share x) of ratios x, on a lattice of one step.

    Attributes:
        share: > 0.
        far: whether the largest ratios are to have labels, at the price of a wider step; else the
            step is one that resolves the bulk, and what is far from the bulk may be dropped.
    """

    share: float
    far: bool

    def of(self, ratio: FloatArray) -> FloatArray:
        """The labels of ratios, before they are rounded to the lattice."""
        return np.log1p(self.share * ratio)

    def ratio(self, label: FloatArray) -> FloatArray:
        """The ratios that have these labels."""
        return np.expm1(label) / self.share


def planned_logs(
    picture: RatioSketch, steps: int, logs: LogLabels
) -> tuple[LatticePlan, tuple[float, float, float]]:
    """The plan for sums of labels of ratios, and the labels of three ratios."""
    least, _, high = picture.reach(steps)
    low, top = (float(end) for end in logs.of(np.array([least, high])))
    labels = replace(picture, x=logs.of(picture.x))
    # larger ratios than those of the bulk count here, too
    mean, deviation = labels.bulk(10_000 * steps)
    share = _share_of_sums(steps)
    unit = share * (deviation or mean)
    # no step of the bulk is so fine that sums have more than twice as many entries
    unit = max(min(unit, max(_LOSS, 14.0 * math.sqrt(steps) * deviation / _FLAT)), low / _FLAT)
    if logs.far:
        unit = max(unit, top / _FAR)
    else:
        top = min(top, max(low, mean + 14.0 * math.sqrt(steps) * deviation))
    plan = LatticePlan(steps, Positions(0.0, unit), mean / unit, deviation / unit, share, flat=True)
    return plan, (low / unit, low / unit, top / unit)


def _share_of_sums(steps: int) -> float:
    """The step of a lattice as a share of a label's deviation: sums have some _FLAT entries.

    Labels take a twelfth of its square from the variance.
    """
    return max(0.02, 28.0 * math.sqrt(steps) / _FLAT)
