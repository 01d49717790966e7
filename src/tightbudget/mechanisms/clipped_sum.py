"""The sum of two counts under clipped noise, of which nothing but the sum is seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.integer_noise import ClippedNoise
from tightbudget.numerics.convolve import convolve
from tightbudget.numerics.enclosure import Enclosure, exp_enclosure
from tightbudget.numerics.rounding import TINY, UNIT, FloatArray, scale_up
from tightbudget.numerics.validate import refuse
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

_DEPTH = 80.0  # each count is listed as far as a mass of about e^-80 lies beyond
_MOST = 2**23  # entries of one list
_CLOSE = 1e-10  # a relative width at which an entry needs no other tilt
_TILTS = 64


@dataclass(frozen=True)
class ClippedSum(Mechanism):
    """The sum of two independent counts, each as in :class:`ClippedNoise`: less than both show.

    P is ceil(max(0, X)) + ceil(max(0, Y)). With ``reading="shifted"`` Q is the same plus
    ``shift + other_shift``; with "clipped" it is ceil(max(0, X + shift)) +
    ceil(max(0, Y + other_shift)).

    Guarantee: the atoms enclose exactly this pair, convolved under so many exponential tilts
    that all outputs but a mass of some e^-60 keep their relative precision; that mass is
    charged as lost. Source: the weaker of two observers in "Tight on Budget?", Section 7.

    Args:
        mean, scale, shift: of the first count.
        other_mean, other_scale, other_shift: of the second.
        noise: "laplace" or "gaussian", of both.
        reading: "shifted" or "clipped", of both.

    Raises:
        ParameterError: a parameter is out of its range for :class:`ClippedNoise`, or a sum
            would have more than 2^23 outputs.
    """

    mean: float
    scale: float
    other_mean: float
    other_scale: float
    noise: str = "laplace"
    shift: int = 1
    other_shift: int = 1
    reading: str = "shifted"

    kind: ClassVar[str] = "clipped_sum"
    mutual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        first, second = self._counts()
        self._set(
            mean=first.mean,
            scale=first.scale,
            shift=first.shift,
            other_mean=second.mean,
            other_scale=second.scale,
            other_shift=second.shift,
        )
        if not first.reach(_DEPTH) + second.reach(_DEPTH) <= _MOST:
            raise refuse(
                "mean + other_mean", f"give a sum of at most {_MOST} outputs", (first, second)
            )

    def _counts(self) -> tuple[ClippedNoise, ClippedNoise]:
        return (
            ClippedNoise(self.mean, self.scale, self.noise, self.shift, self.reading),
            ClippedNoise(
                self.other_mean, self.other_scale, self.noise, self.other_shift, self.reading
            ),
        )

    def pair(self, direction: Direction) -> Pair:
        counts = self._counts()
        p, p_rest = _sum(counts, (0, 0))
        if self.reading == "clipped":
            q, q_rest = _sum(counts, (self.shift, self.other_shift))
        else:
            shift = self.shift + self.other_shift
            p, q, q_rest = _padded(p, 0, shift), _padded(p, shift, 0), p_rest
        pair = AtomicPair.from_masses(p, q, rest_p=p_rest, rest_q=q_rest)
        return pair if direction is Direction.REMOVE else pair.reversed()


def _sum(
    counts: tuple[ClippedNoise, ClippedNoise], moved: tuple[int, int]
) -> tuple[Enclosure, float]:
    """The masses of the sum of both counts, and a bound of the mass that is not listed."""
    lists = [count.listed(by, _DEPTH) for count, by in zip(counts, moved, strict=True)]
    (x, x_rest), (y, y_rest) = lists
    masses, rest = _convolved(x, y), (x_rest + y_rest) * (1 + 4 * UNIT)
    # what is not listed may belong to any output; where it may be more than a millionth of
    # one, nothing is claimed about that output's loss
    lower = np.where(rest > 1e-6 * masses.lower, 0.0, masses.lower)
    return Enclosure(lower, scale_up(masses.upper + rest, 1)), rest


def _padded(x: Enclosure, before: int, after: int) -> Enclosure:
    """The entries with so many zeros before and after them."""
    return Enclosure(*(np.pad(end, (before, after)) for end in (x.lower, x.upper)))


def _convolved(x: Enclosure, y: Enclosure) -> Enclosure:
    """The convolution of x and y, with small relative errors in all entries that matter.

    A transform's error is small beside the largest entry only. A tilt e^(theta n) puts the
    largest entry elsewhere: walking away from the peak on both sides, each next tilt makes the
    outermost entry that is known closely the largest one.
    """
    best = _tilted(x, y, 0.0)
    for outwards in (1, -1):
        for _ in range(_TILTS):
            close = np.flatnonzero(best.upper - best.lower <= _CLOSE * best.lower)
            if not close.size:
                break
            edge = int(close[-1] if outwards > 0 else close[0])
            inner = edge - outwards * max(1, int(close[-1] - close[0]) // 64)
            theta = math.log(best.lower[inner] / best.lower[edge]) / (edge - inner)
            if theta * outwards <= 0 or edge in (0, len(best) - 1):
                break
            more = _tilted(x, y, theta)
            best = Enclosure(np.maximum(best.lower, more.lower), np.minimum(best.upper, more.upper))
            further = np.flatnonzero(best.upper - best.lower <= _CLOSE * best.lower)
            if int(further[-1] if outwards > 0 else further[0]) == edge:
                break
    return best


def _tilted(x: Enclosure, y: Enclosure, theta: float) -> Enclosure:
    """The convolution of x and y, computed for x e^(theta n) and y e^(theta n)."""
    tilted, origin = [], 0
    for z in (x, y):
        n = np.arange(float(len(z)))
        with np.errstate(divide="ignore"):
            peak = int(np.argmax(np.log(z.upper) + theta * n))  # there the factor is 1
        tilted.append(z * _powers(theta, n - peak))
        origin += peak
    a, b = tilted
    upper, upper_error = convolve(a.upper, b.upper)
    lower, lower_error = convolve(a.lower, b.lower)
    ends = Enclosure(
        np.maximum(0.0, (lower - lower_error) * (1 - 2 * UNIT)),
        np.maximum(TINY, (upper + upper_error) * (1 + 2 * UNIT)),
    )
    return ends * _powers(-theta, np.arange(float(upper.size)) - origin)


def _powers(theta: float, n: FloatArray) -> Enclosure:
    """e^(theta n) for each n."""
    exponent = theta * n
    return exp_enclosure(exponent, 2 * UNIT * np.abs(exponent))
