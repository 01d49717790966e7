"""A mechanism on a Poisson sample that is cut to a largest batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from tightbudget.mechanisms.attained import telling_most
from tightbudget.mechanisms.composition import Composable, Mechanism
from tightbudget.mechanisms.derived import Derived
from tightbudget.mechanisms.either import EitherPair
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.group import scaled
from tightbudget.mechanisms.mixture_of_gaussians import MixtureOfGaussians
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.mechanisms.subsampled import AddPair, RemovePair
from tightbudget.mechanisms.truncated_below import OthersTurned
from tightbudget.numerics.binomial import binomial_masses, binomial_tails
from tightbudget.numerics.rounding import double_up, mul_down, next_down
from tightbudget.numerics.validate import positive_count, probability, refuse
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

# Records: the chances of a cut are certified up to there, in milliseconds
_MOST = 10**12
_LEAST = 1e-100  # of the rates that a sample takes, beside 0
# The weight of a part whose chance is below the least double: its logarithm and its quotients are
# finite, and a trillion steps of it cost less than 1e-287 of delta.
_NEVER = 1e-300


@dataclass(frozen=True)
class TruncatedPoisson(Derived):
    """Runs ``base``, a noisy sum, on a Poisson sample that is cut to ``at_most`` random records.

    Guarantee: for neighbours that differ by the presence of one record
    (``Neighbouring.ADD_OR_REMOVE``), the disjoint union of two pairs dominates: with probability
    1 - p that of ``base`` sampled at ``rate``, with probability p that of ``base`` with twice its
    sensitivity, sampled at c, where

        p = Pr[Bin(of - 1, rate) >= at_most],
        c = Pr[Bin(of, rate) > at_most] at_most / (of p).

    Proof: p is the chance that the other records alone fill the batch. If they do not, nothing is
    cut, and the record is in with chance ``rate``. If they do, the batch without the record is a
    uniform set T of ``at_most`` other records; with the record, it is T with chance 1 - c, else T
    with a uniform member replaced by the record, which moves the sum by at most twice the
    sensitivity. T does not depend on how many records there were before the cut; given T and the
    member, the pair is a sampled one, and delta(eps) is jointly convex.

    For Gaussian noise a second pair dominates as well, and the one with the smaller second moment
    is taken: with the chance of at most at_most - 2 others that of ``base`` sampled at ``rate``,
    else (1 - rate) Q + rate N(2 s) against Q = (1 - f) N(0) + f N(s), for the sensitivity s and the
    chance f that then one place is free. Nothing shows whether the last place was free; the page
    "Fixed batches" of the documentation has the proof.

    The bounds are two. The lower bound is that of data in which all other records contribute 0:
    then the record is in with chance (1 - p) rate + p c, and nothing else matters. For Gaussian
    noise it is that of data in which all other records are one vector of the sensitivity's norm, at
    an angle to the record, where that tells more: in a full batch the record moves the sum
    further. The first pair is below the one of Ganesh 2025, arXiv 2508.15089, Theorem 3.1, which
    takes both directions at once.

    Args:
        base: a mechanism with additive noise on a sum to which each record contributes at most
            its sensitivity.
        rate: the chance of each record to be in the sample before the cut, in [0, 1].
        at_most: records of the largest batch, >= 1.
        of: records of the larger one of two neighbours, in 1 ... 1e12.

    Raises:
        ParameterError: a parameter is out of its range, or ``base`` has no such noise.
        RelationError: ``base`` was declared for another relation.
    """

    rate: float
    at_most: int
    of: int

    kind: ClassVar[str] = "truncated_poisson"
    key: ClassVar[str] = "truncated_poisson"

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = probability(rate=self.rate)
        if 0 < rate < _LEAST:
            raise refuse("rate", "be 0 or in [1e-100, 1]", self.rate)
        at_most, of = positive_count(at_most=self.at_most), positive_count(of=self.of)
        if of > _MOST:
            raise refuse("of", "be at most 1e12", of)
        self._set(rate=rate, at_most=at_most, of=of)
        way = "a truncated Poisson sample"
        self._set(relation=Neighbouring.of_presence(way, self.relation, self.base.relation))
        scaled(self.base, 2)  # refuses a base without additive noise

    def is_mutual(self) -> bool:
        return self.base.is_mutual()

    def pair(self, direction: Direction) -> Pair:
        plain = self.base.subsampled(self.rate).pair(direction)
        fits, full = self._cut
        if full[1] == 0.0 or self.rate == 0.0:
            return plain
        # guard: cut-batch-replaces
        replaced = scaled(self.base, 2).subsampled(self._in_when_full[1]).pair(direction)
        if fits[1] == 0.0:
            return replaced
        # either of the two dominates: the one with the smaller second moment is the closer one
        if (near := self._nearly_full()) is not None:
            below, above, moves = near
            # guard: nearly-full-batch
            pair = _displaced(moves, self.rate, direction)
            return EitherPair(pair, plain, share=_weighed(above), rest=_weighed(below))
        return EitherPair(replaced, plain, share=_weighed(full), rest=_weighed(fits))

    def _nearly_full(
        self,
    ) -> tuple[tuple[float, float], tuple[float, float], MixtureOfGaussians] | None:
        """The part of a union for batches to which the others leave one place or none.

        Returns:
            Bounds of the chance that the others leave more places, bounds of that of the rest, and
            how far the record is then from what the batch would have without it; None where that
            is not known, or not closer than the pair of full batches alone.
        """
        if not isinstance(self.base, Gaussian) or self.rate == 1.0:
            return None
        others, last = self.of - 1, self.at_most - 1
        below, above = _tails(others, self.rate, last)
        if below[1] == 0.0:
            return None
        (fits,) = binomial_masses(others, Fraction(self.rate), last, last)
        # the chance that one place is free, rounded down: fewer free places reveal more
        free = float(fits) / above[1] * (1.0 - 1e-12)  # guard: free-place-rounded-down
        if not _LEAST < free < 1.0:
            return None
        # guard: displaced-moves-twice
        moves = scaled(self.base, 2)
        assert isinstance(moves, Gaussian)
        sizes = (moves.sensitivity / 2, moves.sensitivity)
        mixture = MixtureOfGaussians(moves.sigma, sizes, (free, 1.0 - free))
        m, (_, full) = moves.sensitivity / moves.sigma / 2, self._cut
        known = full[1] * self._in_when_full[1] ** 2 * _variance(m, 0.0)
        known += (above[1] - full[1]) * self.rate**2 * _variance(m, 1.0)
        closer = above[1] * self.rate**2 * _variance(m, free) < known
        return (below, above, mixture) if closer or m > _MOST_COMPARED else None

    def instance(self) -> Mechanism | None:
        fits, full = self._cut
        if full[1] == 0.0 or self.rate == 0.0:
            return None  # nothing is ever cut
        lower, _ = self._in_when_full
        if fits[1] == 0.0:
            # every batch is cut: other records that are all the opposite of the record attain it;
            # those are no data of a sample, whose other records may be missing
            return scaled(self.base, 2).subsampled(lower)
        least = next_down(next_down(mul_down(fits[0], self.rate) + mul_down(full[0], lower)))
        return self.base.subsampled(least if least >= _LEAST else 0.0)

    def instance_of_runs(self, runs: int) -> Composable | None:
        """Returns so many samples of those data sets that tell most.

        In the one all other records contribute 0, in the other all are one vector.
        """
        alone, (fits, _) = self.instance(), self._cut
        if alone is None:
            return None
        if isinstance(self.base, Gaussian) and fits[1] > 0.0 and self.rate < 1.0:
            turned = OthersTurned.tried(self.base, self.rate, self.at_most, self.of)
            if turned is not None and turned.is_close(runs):
                return telling_most((alone, turned), runs) * runs
        return alone * runs

    @property
    def apart(self) -> str:
        fits, full = self._cut
        # where no batch is cut, or every one is, the two ends differ by rounding alone
        cut = self.rate > 0.0 and full[1] > 0.0 and fits[1] > 0.0
        return "truncated Poisson batches" if cut else ""

    @property
    def _cut(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Bounds of the chances that the other records do not fill the batch, and that they do."""
        return _tails(self.of - 1, self.rate, self.at_most)

    @property
    def _in_when_full(self) -> tuple[float, float]:
        """Bounds of c, the chance of the record to be in a batch that the others fill."""
        _, full = self._cut
        _, over = _tails(self.of, self.rate, self.at_most + 1)
        kept = Fraction(self.at_most, self.of)
        upper = self.rate  # the record is kept with chance 1 at most
        if full[0] > 0.0:
            found = double_up(Fraction(over[1]) * kept / Fraction(full[0]))
            upper = min(upper, max(_LEAST, found))
        lower = -double_up(-Fraction(over[0]) * kept / Fraction(full[1]))
        return min(max(0.0, lower), upper), upper


def _displaced(moves: MixtureOfGaussians, rate: float, direction: Direction) -> Pair:
    """The pair (1 - rate) Q + rate N(2 c) against Q, for Q = (1 - free) N(0) + free N(c)."""
    # from the record's place the rest is at the distance c or 2 c
    if direction is Direction.REMOVE:
        return RemovePair(moves.pair(Direction.ADD), rate)
    return AddPair(moves.pair(Direction.REMOVE), rate)


# Moves over sigma up to which second moments are compared; beyond them they overflow. Which pair is
# taken affects width, never truth.
_MOST_COMPARED = 8.0


def _variance(m: float, free: float) -> float:
    """E_Q[(dN(2 m) / dQ - 1)^2] for Q = (1 - free) N(0) + free N(m), roughly."""
    m = min(m, _MOST_COMPARED)
    z = np.linspace(-10.0, 4.0 * m + 10.0, 2001)
    below = (1.0 - free) * np.exp(-z * z / 2) + free * np.exp(-((z - m) ** 2) / 2)
    square = np.exp(-((z - 2.0 * m) ** 2))
    total = np.sum(np.divide(square, below, out=np.zeros_like(z), where=below > 0.0))
    return float(total * (z[1] - z[0])) / math.sqrt(2.0 * math.pi) - 1.0


def _weighed(chance: tuple[float, float]) -> tuple[float, float]:
    """Returns bounds > 0 of a weight of one part of a union that may stand for its chance.

    A chance without a lower bound > 0 gets a weight above it: the parts of a union are disjoint, so
    that more of one part adds (dP - e^eps dQ)+ to delta, of a composition, too.
    """
    return chance if chance[0] > 0.0 else (max(chance[1], _NEVER),) * 2


def _tails(n: int, rate: float, k: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Bounds Pr[Bin(n, rate) < k] and Pr[Bin(n, rate) >= k], also for rates 0 and 1."""
    if 0.0 < rate < 1.0:
        return binomial_tails(n, Fraction(rate), k)
    always = (n if rate == 1.0 else 0) >= k
    return ((0.0, 0.0), (1.0, 1.0)) if always else ((1.0, 1.0), (0.0, 0.0))
