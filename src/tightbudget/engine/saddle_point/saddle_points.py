"""Saddle points of the transforms of compositions say where a line of the engine goes.

The integrand of delta(eps) on Re s = c is largest where c is near the saddle point of
ln M(c) - c eps - ln c - ln(1 + c). Tracks are plans. Certified are ``Term.values``, ``upper`` and
``beyond``, which make a term's transform from its parts. A line that ends in "pays: name" pays for
what docs/explanation/rounding.md says under that name.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np

from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    EXP,
    LOG,
    TURN,
    UNIT,
    FloatArray,
    add_up,
    exp_up,
    log_down,
    log_up,
    mul_up,
    next_down,
    outwards,
    sub_up,
)
from tightbudget.pairs.transform import ComplexArray, Rough, Transform

# Nats of delta between neighbouring saddle points that are interpolated. A c that is off by some of
# the way between two such points costs a few digits or points of a line; no truth depends on it.
_NEAR = 12.0
# More than twice so many groups are planned by so many that resemble them. Affects no truth.
_OUTLINE = 24


@dataclass(frozen=True)
class Group:
    """One mechanism in one direction: its transform, and how often it runs."""

    transform: Transform
    count: int


@dataclass(frozen=True)
class Term:
    """A term is what outputs with exactly j rare losses contribute (nothing rare: all outputs).

    Its transform is prod M_g^k_g times the coefficient of y^j in prod (1 + y r_g)^k_g,
    r_g = rare_g / M_g; at most prod M_g^k_g (sum k_g r_g)^j / j! on the real axis.
    """

    groups: tuple[Group, ...]
    rare: tuple[tuple[int, Transform], ...] = ()  # (which group, its rare part)
    j: int = 0

    @property
    def farthest(self) -> float:
        """The largest c that is worth looking at."""
        transforms = [group.transform for group in self.groups] + [r for _, r in self.rare]
        return min(one.farthest for one in transforms)

    @functools.cached_property
    def outline(self) -> tuple[Group, ...]:
        """Few groups that resemble all, for plans: those with about the same variance are one."""
        if len(self.groups) <= 2 * _OUTLINE or self.j:
            return self.groups
        near_0 = np.array([1e-9])
        bends = [float(group.transform.rough(near_0).curvature[0]) for group in self.groups]
        order = [self.groups[i] for i in np.argsort(bends)]
        # small groups of the largest variances, which decide at a large c
        ends = [round(len(order) * (1.0 - (1.0 - i / _OUTLINE) ** 2)) for i in range(_OUTLINE + 1)]
        alike = [order[i:j] for i, j in itertools.pairwise(ends) if i < j]
        return tuple(
            Group(group[len(group) // 2].transform, sum(one.count for one in group))
            for group in alike
        )

    @property
    def sketch(self) -> Term:
        """A term that resembles this one and costs less, for plans; itself where none does."""
        groups = tuple(Group(group.transform.sketch, group.count) for group in self.groups)
        alike = all(a.transform is b.transform for a, b in zip(groups, self.groups, strict=True))
        return self if alike or self.j else Term(groups)

    def rough(self, c: FloatArray) -> Rough:
        """Returns ln of the transform on the real axis and two derivatives, uncertified."""
        groups = self.outline
        each = [group.transform.rough(c) for group in groups]
        total = np.zeros((3, c.size))
        for group, one in zip(groups, each, strict=True):
            total += group.count * np.array(one)
        if self.j:
            # j ln sum k_g r_g - ln j!, by the moments of the logarithmic derivatives
            moments = np.zeros((3, c.size))
            with np.errstate(all="ignore"):
                for g, transform in self.rare:
                    more, less = transform.rough(c), each[g]
                    ratio = self.groups[g].count * np.exp(more.value - less.value)
                    faster = more.slope - less.slope
                    bend = faster**2 + more.curvature - less.curvature
                    moments += ratio * np.array([np.ones_like(c), faster, bend])
                mean, square = moments[1] / moments[0], moments[2] / moments[0]
                log = np.log(moments[0]) - math.lgamma(self.j + 1) / self.j
                total += self.j * np.array([log, mean, square - mean**2])
        return Rough(total[0], total[1], total[2])

    def upper(self, c: float, more: bool = False) -> float:
        """Returns an upper bound of ln of the transform at c > 0; ``more``: with all j' >= j."""
        return self._together(
            [group.transform.upper(c) for group in self.groups],
            [transform.upper(c) for _, transform in self.rare],
            more,
        )

    def beyond(self, c: float, t: float, shifts: FloatArray) -> float:
        """Returns an upper bound of ln |transform(c + i t')| for all t' >= t."""
        transforms = [group.transform for group in self.groups] + [r for _, r in self.rare]
        each = [one.beyond(c, t, float(a)) for one, a in zip(transforms, shifts, strict=True)]
        return self._together(each[: len(self.groups)], each[len(self.groups) :], False)

    def _together(self, each: list[float], rare: list[float], more: bool) -> float:
        """Bounds ln of prod M^k (sum k r)^j / j! above, by those of ln |M| and ln |r M|."""
        if not all(math.isfinite(log) for log in (*each, *rare)):
            return math.inf
        total = add_up(
            *(mul_up(one.count, log) for one, log in zip(self.groups, each, strict=True))
        )
        if not self.j:
            return total
        logs = [
            add_up(log_up(self.groups[g].count), log, -each[g])
            for (g, _), log in zip(self.rare, rare, strict=True)
        ]
        top = max(logs)
        ratio = add_up(top, log_up(add_up(*(exp_up(sub_up(x, top)) for x in logs))))
        # sum over j' >= j of p^j' / j'! <= p^j / j! e^p
        rest = exp_up(ratio) if more else 0.0  # guard: rarer-together
        return add_up(total, mul_up(self.j, ratio), -log_down(math.factorial(self.j)), rest)

    def heights(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns about ``beyond`` at each height t, and shifts to prove it: (t, transforms)."""
        each = [group.transform.shifts(c, t) for group in self.groups]
        rare = [transform.shifts(c, t) for _, transform in self.rare]
        total = np.zeros_like(t)
        for group, (log, _) in zip(self.groups, each, strict=True):
            total += group.count * log
        if self.j:
            logs = [
                math.log(self.groups[g].count) + log - each[g][0]
                for (g, _), (log, _) in zip(self.rare, rare, strict=True)
            ]
            total += self.j * np.logaddexp.reduce(logs) - math.lgamma(self.j + 1)
        return total, np.array([shift for _, shift in (*each, *rare)]).T

    def nodes(self, c: float, t: float, tolerance: float) -> int:
        """Returns how many terms one value of the transform costs."""
        tolerances = self._tolerances(tolerance)
        total = sum(
            group.transform.nodes(c, t, one)
            for group, one in zip(self.groups, tolerances, strict=True)
        )
        return total + sum(r.nodes(c, t, 1e-15) for _, r in self.rare)

    def _tolerances(self, tolerance: float) -> list[float]:
        # 1e-40 is far below a unit of rounding already
        return [max(tolerance / (len(self.groups) * one.count), 1e-40) for one in self.groups]

    def values(self, c: float, t: FloatArray, tolerance: float) -> tuple[ComplexArray, FloatArray]:
        """Returns ln of the transform at c + i t, and how far it may be off.

        Guarantee: the exact transform is within |e^log| (e^error - 1) of e^log.
        """
        log, error = np.zeros_like(t, dtype=np.complex128), np.zeros_like(t)
        lines = []
        for group, one in zip(self.groups, self._tolerances(tolerance), strict=True):
            line = group.transform.line(c, t, one)
            lines.append(line)
            power = group.count * line.log
            log = log + power
            error = error + group.count * line.error
            error = error + (np.abs(power) + np.abs(log)) * UNIT  # pays: term-powers
        if not self.j:
            return log, outwards(error)
        # r_g, brought to the order of 1 / k_g by the same factor
        ratios = []
        for g, transform in self.rare:
            rare = transform.line(c, t, 1e-15)
            ratios.append((g, rare.log - lines[g].log, rare.error + lines[g].error))
        scale = max(float(np.max(r.real)) + math.log(self.groups[g].count) for g, r, _ in ratios)
        # e[i]: the coefficient of y^i in the product of all (1 + y r_g)^k_g so far
        e = [np.ones_like(log), *(np.zeros_like(log) for _ in range(self.j))]
        most, off = np.zeros_like(t), np.zeros_like(t)
        for g, ratio, ratio_error in ratios:
            k = self.groups[g].count
            shifted = ratio - scale
            scaled = np.exp(shifted)
            # The quotient of two values and its difference to the scale; e^(a + ib), which is made
            # of exp, cos, sin and a product. Then a term of the coefficient, a product of j ratios:
            # 3 units for each complex product in a power, and for each part the binomial, two
            # products and j + 1 sums, which is at most 6 for each of the j
            made = np.abs(ratio) + np.abs(shifted) + (EXP + TURN + 4.0 + 6.0 * len(ratios))
            ratio_error = ratio_error + made * UNIT  # pays: rare-ratio
            relative = np.expm1(outwards(ratio_error))
            most += k * np.abs(scaled) * (1.0 + relative)
            off += k * np.abs(scaled) * relative
            power, part = np.ones_like(log), []
            for i in range(self.j + 1):
                part.append(float(math.comb(k, i)) * power)  # guard: run-rare-most-once
                power = power * scaled
            e = [
                sum((e[i - n] * part[n] for n in range(1, i + 1)), start=e[i])
                for i in range(self.j + 1)
            ]
        coefficient = e[self.j]
        # d e_j <= sum k_g |d r_g| (sum k_g |r_g|)^(j - 1) / (j - 1)!
        wrong = outwards(off * most ** (self.j - 1) / math.factorial(self.j - 1) + 1e-300)
        known = np.maximum(np.abs(coefficient), 1e-300)
        modulus, angle = np.log(known), np.angle(coefficient)
        log = log + (modulus + 1j * angle) + self.j * scale
        # the coefficient's modulus, its logarithm and its argument; j times the scale, and two sums
        made = LOG * np.abs(modulus) + TURN * (np.abs(angle) + 1.0)
        made = made + 2.0 * abs(self.j * scale) + 2.0 * np.abs(log)
        error = error + made * UNIT  # pays: rare-log
        return log, outwards(error + np.log1p(wrong / known))


def log_g(c: FloatArray) -> FloatArray:
    """Returns ln of c^c / (1 + c)^(1 + c), for planning: delta(eps) <= M(c) e^(-c eps) g(c)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(c > 0, c * np.log(c), 0.0) - (1.0 + c) * np.log1p(c))


@dataclass(frozen=True)
class Track:
    """A track lists saddle points of one term: ascending c, the eps each suits, and about delta."""

    term: Term
    c: FloatArray
    epsilon: FloatArray  # ascending
    log_delta: FloatArray  # descending
    limit: float  # a c that makes no sense any more, or is beyond all that is asked

    @staticmethod
    def of(term: Term, c: FloatArray) -> Track | None:
        """Makes a track by Laplace's approximation at each c, as far as it makes sense."""
        with np.errstate(all="ignore"):
            rough = term.rough(c)
            epsilon = rough.slope - 1.0 / c - 1.0 / (1.0 + c)
            bend = rough.curvature + 1.0 / c**2 + 1.0 / (1.0 + c) ** 2
            log_delta = rough.value - c * epsilon - np.log(c * (1.0 + c))
            log_delta -= 0.5 * np.log(2.0 * math.pi * bend)
            good = np.isfinite(log_delta) & np.isfinite(epsilon) & (log_delta > -1e5)
            good[1:] &= np.diff(epsilon) > 0
        stop = c.size if good.all() else int(np.argmin(good))
        if stop < 2:
            return None
        log_delta = np.minimum.accumulate(log_delta[:stop])
        limit = c[stop] if stop < c.size else 1.2 * c[-1]
        return Track(term, c[:stop], epsilon[:stop], log_delta, float(limit))

    @staticmethod
    def whole(term: Term) -> Track | None:
        """Makes a coarse track from where delta is near its maximum to where it is below 1e-300."""
        spread = math.sqrt(max(float(term.rough(np.array([1e-9])).curvature[0]), 1e-200))
        last = min(60.0 / spread, term.farthest)
        first = min(0.02 / spread, 1e-3 * last)
        return Track.of(term, np.geomspace(first, last, 28))

    def near(self, epsilon: float | None = None, log_delta: float | None = None) -> Track:
        """Returns a finer track near the saddle point for ``epsilon`` or for ``log_delta``."""
        track = self
        for _ in range(4):
            if epsilon is not None:
                i = int(np.searchsorted(track.epsilon, epsilon))
            else:
                i = int(np.searchsorted(-track.log_delta, -(log_delta or 0.0)))
            low, last = max(0, i - 1), i >= track.c.size
            if not last and track.log_delta[low] - track.log_delta[i] < _NEAR:
                break
            high = track.limit if last else track.c[max(i, 1)]
            closer = Track.of(track.term, np.linspace(track.c[low], high, 9))
            if closer is None:
                break
            track = closer
        return track

    def c_at(self, epsilon: float) -> float:
        """Returns about the saddle point for ``epsilon``."""
        return float(np.interp(epsilon, self.epsilon, self.c))

    def log_delta_at(self, epsilon: float) -> float:
        """Returns about ln of the term's delta at ``epsilon``."""
        slope = -float(self.c[-1]) * max(0.0, epsilon - float(self.epsilon[-1]))
        return float(np.interp(epsilon, self.epsilon, self.log_delta)) + slope

    def epsilon_at(self, log_delta: float) -> float:
        """Returns about the eps at which ln of the term's delta is ``log_delta``."""
        return float(np.interp(-log_delta, -self.log_delta, self.epsilon))

    def nearly_one(self, epsilon: float) -> Bounds | None:
        """Bounds the term's delta at an eps far below all losses, where delta is about 1.

        1 - delta = E min(1, e^(eps - L)) <= M(-u) e^(u eps) for 0 < u < 1. None where that proves
        less than delta >= 1 - 1e-4: lines know more of such a delta.
        """
        u = np.linspace(0.05, 0.95, 19)
        best = float(u[np.argmin(self.term.rough(-u).value + u * epsilon)])
        rest = exp_up(add_up(self.term.upper(-best), mul_up(best, epsilon)))
        return Bounds(next_down(1.0 - rest), 1.0) if rest <= 1e-4 else None


def epsilon_at(tracks: tuple[Track, ...], log_delta: float) -> float:
    """Returns about the eps at which all tracks' terms together make delta."""
    low, high = 0.0, max(track.epsilon[-1] for track in tracks)
    for _ in range(50):
        middle = 0.5 * (low + high)
        sizes = [track.log_delta_at(middle) for track in tracks]
        low, high = (middle, high) if np.logaddexp.reduce(sizes) > log_delta else (low, middle)
    return low
