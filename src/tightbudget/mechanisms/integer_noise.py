"""Noise on the integers: discrete Gaussian, discrete Laplace, and rounded-up clipped noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.interval_masses import IntervalMasses, gaussian_masses, laplace_masses
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.mechanisms.wide_discrete_gaussian import WIDE, WideDiscreteGaussianPair
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure, stack
from tightbudget.numerics.rounding import TINY, UNIT, FloatArray, double_down, scale_down, scale_up
from tightbudget.numerics.special import HALF_SQUARE_ULPS, half_square_exp
from tightbudget.numerics.validate import (
    finite,
    in_double_range,
    one_of,
    positive,
    positive_count,
    refuse,
)
from tightbudget.pairs.atomic import AtomicPair, at_most, total
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Pair, zero

# clipped Gaussian noise has an atom for each output: these limits keep a pair below some 4 GB
_LARGEST_SIGMA = 5e5
_LARGEST_SHIFT = 10**7
_DEPTH = 680.0  # outputs of mass below e^-680 are not listed: their total is charged as lost


def _shift(**given: object) -> int:
    ((name, value),) = given.items()
    if positive_count(**given) > _LARGEST_SHIFT:
        raise refuse(name, f"be an integer in [1, {_LARGEST_SHIFT}]", value)
    return positive_count(**given)


def _sigma(least: float = 0.0, **given: object) -> float:
    ((name, value),) = given.items()
    sigma = positive(**given)
    if not least <= sigma <= _LARGEST_SIGMA:
        least_shown = f"[{least!r}" if least else "(0"
        raise refuse(name, f"be in {least_shown}, {_LARGEST_SIGMA!r}]", value)
    return sigma


def _reach(sigma: float) -> float:
    """The number of sigma from the mean at which a bin of width 1 has the mass e^-_DEPTH."""
    return math.sqrt(2 * (_DEPTH - math.log(max(1.0, sigma))))


def _windows(first: int, last: int, shift: int) -> NDArray[np.int64]:
    """The integers that lie in [first, last], in [first + shift, last + shift], or in both."""
    return np.concatenate(
        [
            np.arange(first, min(last, first + shift - 1) + 1),
            np.arange(first + shift, last + shift + 1),
        ]
    )


@dataclass(frozen=True)
class DiscreteGaussian(Mechanism):
    """Adds integer noise with mass proportional to e^(-x^2 / (2 sigma^2)) at every integer x.

    Guarantee: the pair N against N + sensitivity dominates the mechanism (also for queries
    that move by less: the noise is log-concave), and is enclosed with relative precision in
    both tails. Source: Canonne, Kamath, Steinke 2020.

    Args:
        sigma: the parameter sigma (close to the standard deviation if it is above 1), in
            (0, 500000], in the query's unit.
        sensitivity: how far the integer query can move, an integer >= 1.

    Raises:
        ParameterError: a parameter is out of its range.
    """

    sigma: float
    sensitivity: int = 1

    kind: ClassVar[str] = "discrete_gaussian"
    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = (
        True  # noise and its mirror image: x -> sensitivity - x exchanges P and Q
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(sigma=_sigma(sigma=self.sigma), sensitivity=_shift(sensitivity=self.sensitivity))
        in_double_range(**{"sensitivity / sigma": self.sensitivity / self.sigma})

    def pair(self, direction: Direction) -> Pair:
        sigma, s = self.sigma, self.sensitivity
        if sigma >= WIDE:
            return WideDiscreteGaussianPair(sigma, s)
        last = int(sigma * _reach(sigma))
        weights, beyond = self._weights(last)
        normaliser = exact(1.0) + (total(weights[1 : last + 1]) + at_most(beyond)).scaled(2.0)
        # the entry after the last one stands for everything further out
        masses = stack(weights, at_most(max(TINY, beyond))) / normaliser
        x = _windows(-last, last, s)
        p = masses[np.minimum(np.abs(x), last + 1)]
        q = masses[np.minimum(np.abs(x - s), last + 1)]
        # ln P/Q = ((x - s)^2 - x^2) / (2 sigma^2): five roundings, of 1 unit of 2^-53 each, at most
        loss = (s * (s - 2.0 * x)) / (2 * sigma * sigma)
        margin = 8 * UNIT * np.abs(loss)
        rest = 2.1 * masses.upper[-1]
        return _DiscreteGaussianPair(
            Atoms(p, q, loss - margin, loss + margin),
            only_p=at_most(float(rest)),
            only_q=at_most(float(rest)),
            sigma=sigma,
            shift=s,
            last=last,
        )

    def tails_up(self) -> FloatArray:
        """Returns upper bounds of the probabilities that the noise is >= 0, 1, 2, ...

        The list ends where the mass of one integer falls below e^-680.
        """
        last = int(self.sigma * _reach(self.sigma))
        weights, beyond = self._weights(last)
        normaliser = exact(1.0) + (total(weights[1 : last + 1]) + at_most(beyond)).scaled(2.0)
        # Of n positive numbers, cumsum and the sum with ``beyond`` round n times, by UNIT each.
        margin = (2 * last + 16) * UNIT
        sums = (np.cumsum(weights.upper[::-1])[::-1] + beyond) * (1 + margin)
        return np.asarray(np.minimum(1.0, sums / normaliser.lower[0] * (1 + 4 * UNIT)))

    def _weights(self, last: int) -> tuple[Enclosure, float]:
        """The weights e^(-n^2 / (2 sigma^2)) for n = 0..last, and a bound of their sum beyond."""
        z = np.arange(last + 2) / self.sigma
        weights = half_square_exp(z)
        # the quotient z is rounded by u, which moves z^2 / 2 by u z^2; then the product
        margin = (2 * HALF_SQUARE_ULPS + 2) * UNIT + 1.01 * UNIT * np.minimum(z, 1e6) ** 2
        upper = weights * (1 + margin)
        # consecutive terms beyond n fall at least by e^(-(2 n + 1) / (2 sigma^2))
        fall = -math.expm1(-min(700.0, (last + 1.5) / self.sigma**2))
        beyond = max(TINY, float(upper[-1]) / fall * (1 + 32 * UNIT))
        listed = slice(0, last + 1)
        lower = weights * np.maximum(0.0, 1 - margin)
        return Enclosure(lower[listed], upper[listed]), beyond


@dataclass(frozen=True, eq=False)
class _DiscreteGaussianPair(AtomicPair):
    """The pair of a discrete Gaussian that lists the integers from -last to last + shift."""

    sigma: float = field(kw_only=True)
    shift: int = field(kw_only=True)
    last: int = field(kw_only=True)

    # With P(x) = w(x) / Z, Q(x) = w(x - k) / Z and w(x) = e^(-x^2 / (2 sigma^2)), completing the
    # square gives P(x)^(s + 1) Q(x)^-s = e^(s (s + 1) k^2 / (2 sigma^2)) w(x + s k) / Z. By
    # Poisson's formula the sum of w(x + c) over the integers is sigma sqrt(2 pi) (1 + 2 sum_j
    # e^(-2 pi^2 sigma^2 j^2) cos(2 pi j c)): largest for an integer c, where it is Z. So the moment
    # is at most that of Gaussian noise (Proposition 5 of Canonne, Kamath, Steinke 2020).

    def log_moment(self, s: float) -> tuple[float, float]:
        variance, c = self.sigma * self.sigma, s * self.shift
        total = self._log_gaussian(s)
        # the sum at c against Z: one term of it, or the series without its signs
        off = min(c - math.floor(c), math.ceil(c) - c)
        ratio = -off * off / (2.0 * variance) - math.log1p(self.sigma * math.sqrt(2.0 * math.pi))
        wave = 2.0 * math.exp(-2.0 * math.pi**2 * variance) / -math.expm1(-(math.pi**2) * variance)
        if wave < 1.0:
            ratio = max(ratio, math.log1p(-wave) - math.log1p(wave))
        # some ten operations and calls, of at most 8 units of 2^-53 each: below 1e-14, relatively
        margin = 1e-12 * (total + abs(ratio)) + 1e-15
        return total + ratio - margin, total + margin

    def log_rest(self, s: float) -> float:
        # from a > 0 on, successive w(x) fall by e^(-a / sigma^2) at least; and Z >= 1
        variance, k = self.sigma * self.sigma, float(self.shift)
        total, share = self._log_gaussian(s), 0.0  # guard: outputs-listed
        left, right = self.last + 1.0 - s * k, self.last + 1.0 + k + s * k
        if k <= 2 * self.last + 1 and left > 0:  # otherwise: no part is known to be listed
            tails = [
                -a * a / (2.0 * variance) - math.log(-math.expm1(-a / variance))
                for a in (left, right)
            ]
            share = min(0.0, float(np.logaddexp(tails[0], tails[1])))
        rest = float(np.logaddexp(total + share, math.log(s) + math.log(self.only_q.upper[0])))
        return rest + 1e-12 * (1.0 + total + abs(share) + abs(rest))

    def _log_gaussian(self, s: float) -> float:
        """The ln E_P[e^(s L)] that continuous Gaussian noise of this sigma has."""
        m = self.shift / self.sigma
        return s * (s + 1.0) * m * m / 2.0


@dataclass(frozen=True)
class DiscreteLaplace(Mechanism):
    """Adds integer noise with mass proportional to e^(-|x| / scale) at every integer x.

    Guarantee: the pair N against N + sensitivity dominates the mechanism (also for queries
    that move by less: the noise is log-concave). Outputs of equal loss are one atom, so
    nothing is cut off. Source: Ghosh, Roughgarden, Sundararajan 2009 (geometric mechanism).

    One run is epsilon-DP with scale = sensitivity / epsilon: see :meth:`of_epsilon`.

    Args:
        scale: the parameter b of e^(-|x| / b), > 0, in the query's unit; one run is
            (sensitivity / scale)-DP.
        sensitivity: how far the integer query can move, an integer >= 1.

    Raises:
        ParameterError: a parameter is out of its range.
    """

    scale: float
    sensitivity: int = 1

    kind: ClassVar[str] = "discrete_laplace"
    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = (
        True  # noise and its mirror image: x -> sensitivity - x exchanges P and Q
    )

    meant: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("epsilon", "eps"),
            "scale is sensitivity / epsilon, "
            "in Python DiscreteLaplace.of_epsilon(epsilon, sensitivity)",
        ),
        "b": "the scale b of the noise is scale",
    }

    @classmethod
    def of_epsilon(
        cls, epsilon: float, sensitivity: int = 1, *, relation: Neighbouring | None = None
    ) -> DiscreteLaplace:
        """Makes the mechanism of which one run is ``epsilon``-DP: scale = sensitivity / epsilon.

        Guarantee: the scale is rounded down, so that an upper bound for it is one for the exact
        quotient, too.

        Args:
            epsilon: of one run, > 0, nats.
            sensitivity: how far the integer query can move, an integer >= 1.
            relation: the neighbouring relation that the sensitivity was stated for, if any.

        Raises:
            ParameterError: a parameter is refused, or the quotient is out of the class's range.
        """
        e, s = positive(epsilon=epsilon), _shift(sensitivity=sensitivity)
        scale = double_down(Fraction(s) / Fraction(e))  # guard: discrete-laplace-scale-rounded-down
        return cls(scale, s, relation=relation)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(
            scale=positive(scale=self.scale), sensitivity=_shift(sensitivity=self.sensitivity)
        )
        in_double_range(**{"sensitivity / scale": self.sensitivity / self.scale})

    def pair(self, direction: Direction) -> Pair:
        b, s = self.scale, self.sensitivity
        # x = 0 stands for all x <= 0 and x = s for all x >= s: with a = e^(-1/b) the masses
        # are 1/(1 + a) and a^s/(1 + a) there, and a^x (1 - a)/(1 + a) in between
        x = np.arange(s + 1.0)
        far = -math.expm1(-1 / b) / (1 + math.exp(-1 / b))
        heads = np.full(s + 1, far)
        heads[[0, -1]] = 1 / (1 + math.exp(-1 / b))
        head = Enclosure(scale_down(heads, 8), scale_up(heads, 8))
        p = exp_enclosure(-x / b, UNIT * x / b) * head
        loss = (s - 2 * x) / b
        margin = 2 * UNIT * np.abs(loss)
        return AtomicPair(Atoms(p, p[::-1], loss - margin, loss + margin))

    def tail_up(self, t: int) -> float:
        """Returns an upper bound of the probability that the noise is >= t; it is 1 for t <= 0.

        Guarantee: for t >= 1 the bound is e^(-t / scale) / (1 + e^(-1 / scale)) times at most
        e^(t / scale 2^-50), plus the rounding of a few operations.
        """
        if t <= 0:
            return 1.0
        x = np.array([t, 1.0]) / self.scale
        powers = exp_enclosure(-x, UNIT * x)  # x is rounded once
        tail = powers[:1] / (exact(1.0) + powers[1:])
        return min(1.0, float(tail.upper[0]))


@dataclass(frozen=True)
class ClippedNoise(Mechanism):
    """Integer noise N = ceil(max(0, X)) with X Laplace(mean, scale) or N(mean, scale^2).

    ``reading="shifted"``: N against N + shift, for a mechanism that adds N to a query. An
    output below ``shift`` gives N away for sure: its loss is +inf.
    ``reading="clipped"``: ceil(max(0, X)) against ceil(max(0, X + shift)), for a mechanism
    that clips after adding. Every output has a finite loss.

    Guarantee: the atoms enclose exactly this pair, for exactly this shift; ``Direction.ADD``
    is the second against the first. Source: Sommer, Abfalterer, Zingg, Mohammadi, "Tight on
    Budget?" (the clipped reading is the pair as it is written there).

    Args:
        mean: mean of X, in [-1e12, 1e12], in the query's unit.
        scale: Laplace scale, or standard deviation, of X; at least 1e-6, and at most 500000
            for Gaussian noise.
        noise: "laplace" or "gaussian".
        shift: how far the query can move, an integer >= 1.
        reading: "shifted" or "clipped".

    Raises:
        ParameterError: a parameter is out of its range.
    """

    mean: float
    scale: float
    noise: str = "laplace"
    shift: int = 1
    reading: str = "shifted"

    kind: ClassVar[str] = "clipped_noise"
    mutual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        mean = finite(mean=self.mean)
        if not abs(mean) <= 1e12:
            raise refuse("mean", "be in [-1e12, 1e12]", self.mean)
        noise = one_of(("laplace", "gaussian"), noise=self.noise)
        if noise == "gaussian":
            scale = _sigma(1e-6, scale=self.scale)
        else:
            scale = positive(scale=self.scale)
            if not 1e-6 <= scale <= 1e12:
                raise refuse("scale", "be in [1e-06, 1e12]", self.scale)
        self._set(
            mean=mean,
            scale=scale,
            shift=_shift(shift=self.shift),
            reading=one_of(("shifted", "clipped"), reading=self.reading),
        )

    def pair(self, direction: Direction) -> Pair:
        pair = self._first_against_second()
        return pair if direction is Direction.REMOVE else pair.reversed()

    def reach(self, depth: float) -> int:
        """An output beyond which the count, moved or not, has a mass of about e^-depth."""
        z = depth if self.noise == "laplace" else math.sqrt(2 * depth)
        return max(1, math.ceil(self.mean + z * self.scale)) + self.shift

    def listed(self, moved: int, depth: float) -> tuple[Enclosure, float]:
        """The masses of ceil(max(0, X + moved)) at 0 .. reach, and a bound of the mass beyond."""
        last = self.reach(depth)
        edges = np.arange(last + 1.0) - moved
        masses = self._masses(np.append(-np.inf, edges[:-1]), edges).masses()
        beyond = self._masses(edges[-1:], np.array([np.inf])).masses()
        return masses, float(beyond.upper[0])

    def _first_against_second(self) -> AtomicPair:
        s, infinity = self.shift, np.array([np.inf])
        if self.reading == "clipped":
            first = self._atoms(-infinity, np.zeros(1))  # X <= 0 against X + s <= 0
            ordinary, only_p = 1, zero()
        else:
            # output s: s - 1 < X <= s against X <= 0; outputs 0..s-1: X <= s - 1 alone
            first = _against(
                self._masses(np.array([s - 1.0]), np.array([float(s)])),
                self._masses(-infinity, np.zeros(1)),
            )
            ordinary, only_p = s + 1, self._masses(-infinity, np.array([s - 1.0])).masses()
        # from here on output n is n - 1 < X <= n against n - 1 < X + s <= n
        atoms, rest = (self._steps if self.noise == "laplace" else self._each)(ordinary)
        return AtomicPair(first.join(atoms), only_p=only_p + at_most(rest), only_q=at_most(rest))

    def _steps(self, n: int) -> tuple[Atoms, float]:
        """The atoms of outputs from n on for Laplace noise, and a bound of the mass not listed.

        Where X and X + s are on one side of the mean the loss is constant, +s/b on the left and
        -s/b on the right, and all outputs are one atom.
        """
        between = np.arange(math.floor(self.mean), math.ceil(self.mean) + self.shift + 1)
        cuts = np.unique(np.maximum(np.concatenate([[n - 1], between]), n - 1)).astype(np.float64)
        low, high = cuts, np.append(cuts[1:], np.inf)
        atoms = self._atoms(low, high)
        side = (high <= self.mean) * 1.0 - (low - self.shift >= self.mean)
        loss = side * (self.shift / self.scale)
        margin = 2 * UNIT * np.abs(loss)
        return Atoms(
            atoms.p,
            atoms.q,
            np.where(side == 0, atoms.loss_lower, loss - margin),
            np.where(side == 0, atoms.loss_upper, loss + margin),
        ), 0.0

    def _each(self, n: int) -> tuple[Atoms, float]:
        """The atoms of outputs from n on for Gaussian noise, and a bound of the mass not listed."""
        reach = self.scale * _reach(self.scale)
        first, last = math.floor(self.mean - reach), math.ceil(self.mean + reach)
        windows = _windows(first, last, self.shift)
        outputs = windows[windows >= n].astype(np.float64)
        outside = self._masses(np.array([-np.inf, last]), np.array([first - 1.0, np.inf]))
        rest = total(outside.masses())
        return self._atoms(outputs - 1, outputs), float(rest.upper[0])

    def _atoms(self, low: FloatArray, high: FloatArray) -> Atoms:
        s = self.shift
        return _against(self._masses(low, high), self._masses(low - s, high - s))

    def _masses(self, low: FloatArray, high: FloatArray) -> IntervalMasses:
        of = laplace_masses if self.noise == "laplace" else gaussian_masses
        return of(low, high, self.mean, self.scale)


def _against(p: IntervalMasses, q: IntervalMasses) -> Atoms:
    return Atoms(p.masses(), q.masses(), *p.losses_against(q))
