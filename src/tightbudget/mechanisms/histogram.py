"""Two measured or computed histograms."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.interval_masses import gaussian_masses
from tightbudget.numerics.enclosure import Enclosure, exact
from tightbudget.numerics.rounding import TINY, FloatArray, scale_down, scale_up
from tightbudget.numerics.validate import (
    finite,
    float_of,
    masses,
    non_negative,
    one_of,
    positive,
    real_array,
    refuse,
)
from tightbudget.pairs.atomic import AtomicPair, total
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

_MOST_BINS = 2 * 10**7
_REACH = 37.0  # standard deviations of Gaussian noise that are listed


@dataclass(frozen=True)
class HistogramPair(Mechanism):
    """Two distributions over the same bins, as counts or masses; each is normalised.

    A bin that only one side has fills is a loss of +inf or -inf: that is the data's message,
    and it is passed on. ``smoothing`` is the explicit way to overrule it.

    Guarantee: the atoms enclose the pair of the distributions given (the doubles count as
    exact numbers); ``Direction.ADD`` is the second against the first. Whether the histograms
    describe a mechanism is for the caller to say: counts of samples are an estimate of it.

    Args:
        p, q: (n,) numbers >= 0, not all zero, bin by bin; counts or masses.
        smoothing: pseudo-count added to every bin of both sides, before normalising.
        noise: independent noise on top, after smoothing: "uniform:200" is uniform on
            [0, 200), "gaussian:5" is N(0, 5^2); also as ("uniform", 200.0). It is cut into
            the same bins: the output is floor(value / bin_width) + floor(noise / bin_width)
            (its width in bins being a double). Bins of mass below 1e-280 are charged as lost.
        bin_width: the length of a bin, in the noise's unit.

    Raises:
        ParameterError: a parameter is out of its range.
    """

    p: ArrayLike = field(repr=False)  # kept as a tuple of floats
    q: ArrayLike = field(repr=False)
    smoothing: float = 0.0
    noise: str | tuple[str, float] | None = None
    bin_width: float = 1.0

    kind: ClassVar[str] = "histogram"
    mutual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        p = masses(normalised=False, p=_real_array(p=self.p))
        q = masses(normalised=False, q=_real_array(q=self.q))
        if q.size != p.size:
            raise refuse("q", f"have as many bins as p ({p.size})", f"{q.size} bins")
        bin_width = positive(bin_width=self.bin_width)
        noise = self.noise
        if noise is not None:
            name, width = _parsed(noise)
            bins = width / bin_width * (1 if name == "uniform" else 2 * _REACH)
            if not 1e-6 <= bins <= _MOST_BINS:
                raise refuse("noise", f"reach over 1e-06 to {_MOST_BINS} bins", noise)
            noise = f"{name}:{width!r}"
        self._set(
            p=tuple(p.tolist()),
            q=tuple(q.tolist()),
            smoothing=non_negative(smoothing=self.smoothing),
            noise=noise,
            bin_width=bin_width,
        )

    @staticmethod
    def from_samples(
        active: ArrayLike,
        passive: ArrayLike,
        bin_width: float = 1.0,
        keep_below: float | None = None,
        noise: str | tuple[str, float] | None = None,
        smoothing: float = 0.0,
    ) -> HistogramPair:
        """The histogram that counts two sets of measurements in bins of equal width.

        Bin k is [k bin_width, (k + 1) bin_width).

        Args:
            active, passive: (n,), (m,) measurements, finite, in one unit; P and Q.
            bin_width: > 0, in that unit.
            keep_below: drop measurements that are not below this, if given.
            noise, smoothing: see :class:`HistogramPair`.

        Raises:
            ParameterError: a parameter is out of its range, or nothing is left to count.
        """
        width = positive(bin_width=bin_width)
        with np.errstate(over="ignore"):
            bins = [
                np.floor(_samples(keep_below, **{name: values}) / width)
                for name, values in (("active", active), ("passive", passive))
            ]
        first = min(float(b.min()) for b in bins)
        n = max(float(b.max()) for b in bins) - first + 1
        if not n <= _MOST_BINS:
            raise refuse("bin_width", f"give at most {_MOST_BINS} bins ({n:.3g} now)", bin_width)
        p, q = (np.bincount((b - first).astype(np.intp), minlength=int(n)) for b in bins)
        return HistogramPair(
            tuple(p.tolist()), tuple(q.tolist()), smoothing=smoothing, noise=noise, bin_width=width
        )

    def pair(self, direction: Direction) -> Pair:
        p, p_total, rest_p = self._weights(self.p)
        q, q_total, rest_q = self._weights(self.q)
        pair = AtomicPair.from_masses(
            p, q, p_total=p_total, q_total=q_total, rest_p=rest_p, rest_q=rest_q
        )
        return pair if direction is Direction.REMOVE else pair.reversed()

    def _weights(self, counts: ArrayLike) -> tuple[Enclosure, Enclosure, float]:
        """The weights after smoothing and noise, their total, and a bound of the mass beyond."""
        weights = exact(np.array(counts, dtype=np.float64))
        if self.smoothing:
            weights = weights + exact(self.smoothing)
        whole = _sum(weights)
        if self.noise is None:
            return weights, whole, 0.0
        name, width = _parsed(self.noise)
        if name == "uniform":
            bins = width / self.bin_width
            return _convolved(weights, _uniform(bins)), whole * exact(bins), 0.0
        kernel, beyond = _gaussian(width / self.bin_width)
        near = _convolved(weights, kernel)
        # the unlisted part of the noise may reach every bin; where it may be more than 1e-14 of
        # the bin's mass (a bin below 1e-280), nothing is claimed about the bin
        far = whole.upper * beyond
        lower = np.where(far > 1e-14 * near.lower, 0.0, near.lower)
        return Enclosure(lower, scale_up(near.upper + far, 1)), whole, beyond


def _real_array(**given: Any) -> NDArray[Any]:
    # numpy would read numbers out of strings and booleans
    ((name, value),) = given.items()
    array = real_array(value)
    if array is None:
        raise refuse(name, "be an array of numbers", value)
    return array


def _samples(keep_below: float | None, **given: Any) -> FloatArray:
    ((name, _),) = given.items()
    array: FloatArray = _real_array(**given).astype(np.float64)
    if array.ndim != 1 or not array.size:
        raise refuse(name, "be a non-empty one-dimensional array of finite numbers", array)
    bad = ~np.isfinite(array)
    if bad.any():
        i = int(np.argmax(bad))
        raise refuse(f"{name}[{i}]", "be a finite number", float(array[i]))
    if keep_below is None:
        return array
    kept = array[array < finite(keep_below=keep_below)]
    if not kept.size:
        raise refuse("keep_below", f"be above some value of {name}", keep_below)
    return kept


def _parsed(noise: Any) -> tuple[str, float]:
    """The kind and the width of the noise, from "kind:width" or (kind, width)."""
    must = 'be like "uniform:200" or ("gaussian", 5.0)'
    pair = noise.split(":") if isinstance(noise, str) else noise
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise refuse("noise", must, noise)
    try:
        width = float_of(pair[1]) if isinstance(noise, str) else pair[1]
        return one_of(("uniform", "gaussian"), noise=pair[0]), positive(noise=width)
    except ValueError as cause:
        raise refuse("noise", must, noise) from cause


def _uniform(bins: float) -> Enclosure:
    """The weights of uniform noise over so many bins: 1 for a whole bin, the rest for the last."""
    part = bins - math.floor(bins)
    ones = np.ones(math.floor(bins))
    return exact(np.append(ones, part) if part else ones)


def _gaussian(sigma: float) -> tuple[Enclosure, float]:
    """The masses of Gaussian noise in unit bins around 0, and a bound of the mass beyond them."""
    last = math.ceil(_REACH * sigma)
    bins = np.arange(-last, last + 1.0)
    outside = gaussian_masses(
        np.array([-np.inf, last]), np.array([-last - 1.0, np.inf]), 0.0, sigma
    )
    beyond = float(total(outside.masses()).upper[0])
    return gaussian_masses(bins - 1, bins, 0.0, sigma).masses(), beyond


def _convolved(x: Enclosure, y: Enclosure) -> Enclosure:
    """The convolution of x and y, which is exact for counts."""
    lower, upper = np.convolve(x.lower, y.lower), np.convolve(x.upper, y.upper)
    if all(_whole(z) for z in (x, y)) and float(np.max(upper)) < 2.0**53:
        return exact(upper)  # sums of integers are not rounded
    # a scalar product of m non-negative terms is within m u, relative
    ulps = min(len(x), len(y)) + 2.0
    upper = np.where(np.convolve(x.upper > 0, y.upper > 0) > 0, np.maximum(upper, TINY), 0.0)
    return Enclosure(np.where(lower < TINY, 0.0, scale_down(lower, ulps)), scale_up(upper, ulps))


def _whole(x: Enclosure) -> bool:
    """True if all entries are integers that are known exactly."""
    return x.lower is x.upper and bool(np.all(x.lower == np.rint(x.lower)))


def _sum(x: Enclosure) -> Enclosure:
    """The total of the entries, which is exact if no rounding happens, as for counts."""
    near = math.fsum(x.lower)
    if x.lower is x.upper and math.fsum(np.append(x.lower, -near)) == 0.0:
        return exact(near)
    return total(x)
