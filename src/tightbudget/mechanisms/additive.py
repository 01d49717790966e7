"""Additive noise with any log-concave density that scipy knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.composition import Mechanism
from tightbudget.numerics.enclosure import Enclosure, exp_enclosure
from tightbudget.numerics.rounding import TINY, UNIT, FloatArray
from tightbudget.numerics.validate import finite, positive, refuse
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Bins, Pair, Sketch

_SYMMETRIC = {"hypsecant", "laplace", "logistic", "norm", "semicircular", "uniform"}
_QUANTILES = 1000  # points per tail at which log-concavity is checked
# A cut is searched for until its loss is this share of the accuracy below what is wanted. What is
# granted to scipy is a hundred times that: twice the accuracy at both ends of an enclosure.
_SPARED = 0.04
_TURNS = 240  # every third turn halves: doubles have no room for as many halvings


@dataclass(frozen=True)
class Additive(Mechanism):
    """Adds noise from a log-concave continuous distribution of ``scipy.stats`` to a query.

    Guarantee: the pair (noise, noise + sensitivity) and its reverse dominate the mechanism
    for shifts of at most the sensitivity in either direction, **provided that** scipy's cdf
    and sf are right within ``accuracy`` relative, and logpdf within ``accuracy`` (1 +
    |logpdf|), down to masses of 1e-300, and that the density is log-concave; this is
    checked at 2,000 quantiles only, and refused where it fails.
    Source: for a log-concave density the loss is monotone, so half-lines are the worst
    events (Dong, Roth, Su 2022, Proposition A.3).

    Args:
        distribution: a frozen distribution such as ``scipy.stats.logistic(scale=3)``, or its
            name in ``scipy.stats``.
        sensitivity: how far the query can move, > 0, in the unit of the noise.
        accuracy: what is granted to scipy, in (0, 1e-3]; the bounds are as wide as that.
        args, kwds: the parameters, if the distribution is given by name.

    Raises:
        ParameterError: not a continuous distribution of scipy.stats, not log-concave, a
            parameter out of range, or sensitivity so large that no output is possible twice.
    """

    distribution: Any  # after construction always the name
    sensitivity: float = 1.0
    accuracy: float = 1e-11
    args: tuple[float, ...] = ()
    kwds: Any = field(default=())  # after construction a sorted tuple of (name, value)

    kind: ClassVar[str] = "additive"
    mutual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        given, args, kwds = self.distribution, self.args, self.kwds
        if not isinstance(given, str):
            args, kwds = getattr(given, "args", ()), getattr(given, "kwds", {})
            given = getattr(getattr(given, "dist", None), "name", given)
        if not isinstance(given, str) or _family(given) is None:
            must = "be a frozen continuous distribution of scipy.stats, or its name"
            raise refuse("distribution", must, self.distribution)
        if not isinstance(args, (list, tuple)):
            raise refuse("args", "be a list of numbers", args)
        pairs = _named(kwds)
        accuracy = positive(accuracy=self.accuracy)
        if accuracy > 1e-3:
            raise refuse("accuracy", "be in (0, 1e-3]", self.accuracy)
        self._set(
            distribution=given,
            sensitivity=positive(sensitivity=self.sensitivity),
            accuracy=accuracy,
            args=tuple(finite(**{f"args[{i}]": value}) for i, value in enumerate(args)),
            kwds=tuple((name, finite(**{name: value})) for name, value in pairs),
        )
        self._noise.check(self.sensitivity, self.accuracy)

    @cached_property
    def _noise(self) -> _Noise:
        try:
            return _Noise(_family(self.distribution)(*self.args, **dict(self.kwds)), flipped=False)
        except (TypeError, ValueError) as cause:
            raise ParameterError(
                f"args, kwds must be parameters of scipy.stats.{self.distribution}, "
                f"got {self.args!r}, {dict(self.kwds)!r}"
            ) from cause

    def is_symmetric(self) -> bool:
        return self.distribution in _SYMMETRIC

    def pair(self, direction: Direction) -> Pair:
        noise = self._noise
        # (f shifted by D) against f is, mirrored, (f mirrored) against (f mirrored, shifted)
        if direction is Direction.ADD:
            noise = _Noise(noise.law, flipped=True)
        return AdditivePair(noise, self.sensitivity, self.accuracy)

    def parameters(self) -> dict[str, Any]:
        given = super().parameters()
        if self.args:
            given["args"] = list(self.args)
        if self.kwds:
            given["kwds"] = dict(self.kwds)
        return given


def _named(kwds: Any) -> list[tuple[str, Any]]:
    """Sorts parameters that are given as a mapping, or as a list of names with their values.

    Raises:
        ParameterError: they are neither.
    """
    pairs = list(kwds.items()) if isinstance(kwds, Mapping) else kwds
    if not isinstance(pairs, (list, tuple)) or not all(map(_is_named, pairs)):
        raise refuse("kwds", "hold numbers by their names", kwds)
    return sorted((name, value) for name, value in pairs)


def _is_named(pair: Any) -> bool:
    return isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str)


def _family(name: str) -> Any:
    from scipy import stats  # takes longer to import than all else

    family = getattr(stats, name, None)
    return family if isinstance(family, stats.rv_continuous) else None


class _Noise:
    """A frozen scipy distribution (or its mirror image) with quantiles where it can be computed."""

    def __init__(self, law: Any, *, flipped: bool) -> None:
        self.law, self.flipped = law, flipped
        tails = 10.0 ** -np.linspace(1.0, 300.0, _QUANTILES)
        with np.errstate(all="ignore"):
            bulk = law.ppf(np.linspace(0.0, 1.0, _QUANTILES)[1:-1])
            points = np.unique(np.concatenate([law.ppf(tails), bulk, law.isf(tails)]))
        points = points[np.isfinite(points)]  # not every quantile function reaches 1e-300
        if points.size < 3:
            raise ValueError("no quantiles")
        low, high = (float(end) for end in law.support())
        self.points = -points[::-1] if flipped else points
        self.support = (-high, -low) if flipped else (low, high)

    def below(self, x: FloatArray) -> FloatArray:
        return self._of(self.law.sf if self.flipped else self.law.cdf, x)

    def above(self, x: FloatArray) -> FloatArray:
        return self._of(self.law.cdf if self.flipped else self.law.sf, x)

    def log_density(self, x: FloatArray) -> FloatArray:
        return self._of(self.law.logpdf, x)

    def _of(self, function: Any, x: FloatArray) -> FloatArray:
        with np.errstate(all="ignore"):
            return np.asarray(function(-x if self.flipped else x), dtype=np.float64)

    def check(self, shift: float, accuracy: float) -> None:
        """Refuses a shift beyond the support and a density that is visibly not log-concave."""
        low, high = self.support
        if not shift < high - low:
            must = f"be < {high - low!r} (otherwise every output gives the input away)"
            raise refuse("sensitivity", must, shift)
        log_f = self.log_density(self.points)
        x, log_f = self.points[np.isfinite(log_f)], log_f[np.isfinite(log_f)]
        with np.errstate(all="ignore"):
            gaps = np.diff(x)
            slopes = np.diff(log_f) / gaps
            # logpdf's error, and that of a point: a step of 2^-52 |x| along the slope
            margin = 4 * accuracy * (1 + np.abs(log_f[1:])) / gaps
            margin += 4 * UNIT * np.abs(x[1:]) * np.abs(slopes) / gaps
            rise = np.nan_to_num(np.diff(slopes) - margin[1:] - margin[:-1], nan=0.0)
        if np.any(rise > 0):
            must = f"have a log-concave density (it has none near {x[1 + np.argmax(rise)]:.4g})"
            raise refuse("distribution", must, self.law.dist.name)


@dataclass(frozen=True, eq=False)
class AdditivePair(Pair):
    """The density f(x) against f(x - shift), f log-concave: the loss never rises with x."""

    noise: _Noise
    shift: float
    accuracy: float

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins:
        # Any doubles cut the outputs exactly. They are chosen such that the loss there, and so
        # right of there, is surely at most the edge; how much less it is goes into w.
        # So the masses need no inverse, and a constant loss (Laplace's tails) no special case.
        low, high = self._overlap()
        cuts = np.minimum(self._cuts(edges - slack), high)
        left, right = np.append(cuts, low), np.append(high, cuts)
        p = self._mass(left, right, 0.0)
        reference = np.append(edges, edges[-1])
        q = self._mass(left, right, self.shift) * exp_enclosure(reference)
        with np.errstate(invalid="ignore"):
            behind = np.maximum(0.0, edges - self._loss(cuts)[0])
        lengths = np.append(np.diff(edges), 0.0)
        most = exp_enclosure(lengths + behind, UNIT * (lengths + behind)).upper
        floor = np.append(np.ones(edges.size), 0.0)
        return Bins(p, q, (q / p).clipped(floor, np.append(np.inf, most)))

    def _overlap(self) -> tuple[float, float]:
        """The interval in which both densities are positive."""
        low, high = self.noise.support
        return low + self.shift, high

    def _resolved(self) -> tuple[float, float]:
        """The part of :meth:`_overlap` that the quantiles of the noise reach."""
        (low, high), points = self._overlap(), self.noise.points
        return max(low, float(points[0])), min(high, float(points[-1]) + self.shift)

    def _loss(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of the loss ln f(x) - ln f(x - shift)."""
        f = self.noise.log_density(x)
        # x - shift rounds, and a concave function is smallest at an end of where it may be
        step = 2 * UNIT * (np.abs(x) + self.shift)
        a = self.noise.log_density(x - self.shift - step)
        b = self.noise.log_density(x - self.shift + step)
        with np.errstate(invalid="ignore"):
            g = np.minimum(a, b)
            off = self.accuracy * (2 + np.abs(f) + np.abs(g))
            upper = np.where(np.isneginf(f) & np.isfinite(g), -np.inf, f - g + off)
            lower = f - g - off - 2 * np.abs(a - b)
        return np.nan_to_num(lower, nan=-np.inf, posinf=np.inf, neginf=-np.inf), np.nan_to_num(
            upper, nan=np.inf, posinf=np.inf, neginf=-np.inf
        )

    def _cuts(self, losses: FloatArray) -> FloatArray:
        """Descending points, one for each loss, right of which all losses are at most that one."""
        points, known = self._known
        # the first point that fits; where none does, the cut is at inf
        first = np.searchsorted(-known, -losses)
        right = np.append(points, np.inf)[first]
        at = np.flatnonzero((first > 0) & (first < points.size))
        wanted, i = losses[at], first[at]
        a, b = points[i - 1], points[i]  # the loss at a is above what is wanted, and at b it fits
        above, below = known[i - 1] - wanted, known[i] - wanted
        rest: FloatArray = below
        again: FloatArray = np.zeros(at.size)
        enough = _SPARED * self.accuracy
        for turn in range(_TURNS):
            middle = (a + b) / 2
            goes_on = (a < middle) & (middle < b) & (rest < -enough)
            if not goes_on.all():
                right[at] = b
                at = at[goes_on]
                wanted, a, b, above, below, rest, again, middle = (
                    x[goes_on] for x in (wanted, a, b, above, below, rest, again, middle)
                )
            if not at.size:
                break
            if turn % 3 < 2:  # the line through both ends, which is exact where the loss is linear
                with np.errstate(all="ignore"):
                    line = b + (b - a) * ((below + 0.5 * enough) / (above - below))
                middle = np.where((a < line) & (line < b), line, middle)
            found = self._loss(middle)[1] - wanted
            fits = found <= 0
            # an end that stays twice counts half, so that the line comes to its side (Illinois)
            above = np.where(fits, np.where(again > 0, 0.5 * above, above), found)
            below = np.where(fits, found, np.where(again < 0, 0.5 * below, below))
            rest, again = np.where(fits, found, rest), np.where(fits, 1.0, -1.0)
            a, b = np.where(fits, a, middle), np.where(fits, middle, b)
        right[at] = b
        return np.asarray(np.minimum.accumulate(right))

    @cached_property
    def _known(self) -> tuple[FloatArray, FloatArray]:
        """Ascending points, and upper bounds of the losses at and right of each."""
        low, high = self._resolved()
        points = np.union1d(self.noise.points, self.noise.points + self.shift)
        points = np.concatenate([[low], points[(low < points) & (points < high)], [high]])
        upper = self._loss(points)[1]
        return points, np.maximum.accumulate(upper[::-1])[::-1]

    def _mass(self, left: FloatArray, right: FloatArray, shift: float) -> Enclosure:
        """An enclosure of the mass that noise + shift has in [left, right)."""
        with np.errstate(invalid="ignore"):
            left, right = left - shift, right - shift
            # ends of the support and shifted points are rounded
            steps = [
                4 * UNIT * (np.where(np.isfinite(x), np.abs(x), 0.0) + shift + self.shift)
                for x in (left, right)
            ]
        outer = self._between(left - steps[0], right + steps[1], 1)
        inner = self._between(left + steps[0], right - steps[1], -1)
        empty = left >= right
        return Enclosure(
            np.where(empty | (inner < TINY), 0.0, inner),
            np.where(empty, 0.0, np.minimum(np.maximum(outer, 0.0), 1.0) + TINY),
        )

    def _between(self, left: FloatArray, right: FloatArray, sign: int) -> FloatArray:
        below, above, off = self.noise.below, self.noise.above, sign * 2 * self.accuracy
        # from the side where both tails are small; across the middle what both leave over
        rising = below(right) * (1 + off) - below(left) * (1 - off)
        falling = above(left) * (1 + off) - above(right) * (1 - off)
        across = 1.0 - below(left) * (1 - off) - above(right) * (1 - off) + sign * 4 * UNIT
        lower_half, upper_half = below(right) <= 0.5, above(left) <= 0.5
        return np.asarray(np.where(lower_half, rising, np.where(upper_half, falling, across)))

    def p_only(self) -> Enclosure:
        low = self.noise.support[0]
        return self._mass(np.array([low]), np.array([low + self.shift]), 0.0)

    def q_only(self) -> Enclosure:
        high = self.noise.support[1]
        return self._mass(np.array([high]), np.array([high + self.shift]), self.shift)

    def max_loss(self) -> tuple[float, float]:
        low, _ = self._resolved()
        step = 4 * UNIT * (abs(low) + self.shift)
        lower = self._loss(np.array([low + step]))[0]
        return float(lower[0]), np.inf

    def sketch(self) -> Sketch:
        low, high = self._resolved()
        points = np.union1d(self.noise.points, self.noise.points + self.shift)
        points = points[(points > low) & (points < high)]
        points = np.concatenate([[low], points, [high]])
        left, right = points[:-1], points[1:]
        lower, upper = self._loss((left + right) / 2)
        known = np.isfinite(lower) & np.isfinite(upper)
        with np.errstate(divide="ignore"):
            log_masses = np.log(self._mass(left, right, 0.0).upper)
        return Sketch((lower[known] + upper[known]) / 2, log_masses[known])
