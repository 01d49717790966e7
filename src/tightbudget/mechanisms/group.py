"""A mechanism for neighbours that differ by several records of one user."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.additive import Additive
from tightbudget.mechanisms.batches import Batches, GroupInBatches
from tightbudget.mechanisms.composition import Composable, Mechanism
from tightbudget.mechanisms.derived import Derived
from tightbudget.mechanisms.either import Either
from tightbudget.mechanisms.exponential import ExponentialMechanism, of_group
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.integer_noise import DiscreteGaussian, DiscreteLaplace
from tightbudget.mechanisms.laplace import Laplace
from tightbudget.mechanisms.logistic import Logistic
from tightbudget.mechanisms.mixture_of_gaussians import Mixture, MixturePair
from tightbudget.mechanisms.subsampled import Subsampled
from tightbudget.mechanisms.truncated import TruncatedGaussian, TruncatedLaplace
from tightbudget.numerics.binomial import binomial_masses, binomial_tails
from tightbudget.numerics.rounding import double_down, double_up
from tightbudget.numerics.validate import positive_count, refuse
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

# Records. Beyond it 1,000 components would stand for more than a hundred sizes each.
_MOST = 100_000
_COMPONENTS = 1000  # as many as a MixtureOfGaussians has
_LEAST = Decimal("1e-290")  # a share below it is merged: doubles hold shares from 1e-300 on
_LEAST_RATE = Fraction(1e-100)  # of a sample, beside 0: as of one that is drawn at once
_LEFT_OUT = 2e-285  # at least all merged shares together; lines leave out smaller ones
_PUBLIC = 24  # numbers of records that a union tells apart: each costs a pair of the base
_ROUNDED = 1 - Fraction(1, 10**25)  # for the relative error of a chance
# Mechanisms whose noise does not depend on the sensitivity, and whose guarantee is for a query that
# moves by at most the sensitivity. k records move it by at most k times as much.
_SCALED = (
    Additive, DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Logistic, TruncatedGaussian,
    TruncatedLaplace,
)  # fmt: skip


@dataclass(frozen=True)
class Group(Derived):
    """Is ``base`` for neighbours that differ by ``size`` records, all records of one user.

    Guarantee: with additive noise, ``size`` records move the query by at most ``size`` times its
    sensitivity. Of a Gaussian on a Poisson sample of rate q, the pair

        sum_i C(size, i) q^i (1 - q)^(size - i) N(i * sensitivity, sigma^2)  against  N(0, sigma^2)

    dominates, and records of equal contributions attain it. Proof: an event of mass b under N(0)
    has at most the mass Phi(Phi^-1(b) + |v|) under N(v) and at least Phi(Phi^-1(b) - |v|) (Neyman,
    Pearson), half-lines attain both, and i records of the user in the sample give
    |v| <= i * sensitivity. Source: Ganesh 2024, arXiv 2401.10294.

    Other noise on a Poisson sample: (1 - p) Q + p P' against Q dominates, p = 1 - (1 - q)^size,
    where P' and Q run i records with the chance that i >= 1 are in, i seen by everybody (joint
    convexity). The lower bound is that of (1 - p) Q + p P_1, of a query that one record of the
    group moves as far as all of them.

    On batches of a fixed size the numbers of records are hypergeometric, or binomial with
    replacement; the lower bound is that of two data sets (:class:`GroupInBatches`).

    Shares of sizes that are below 1e-290, and those of neighbouring sizes where more than 1,000
    sizes have a larger one, are moved to a larger size for the upper bound, and to a smaller
    size for the lower bound.

    A composition is for one pair of neighbours, and does not know which ones are meant. Beside a
    group, the guarantee is for a user only if every other part is stated for that user, too: by
    ``group`` with the number of records that the user has there, or by a sensitivity of all of
    them. The upper bound of ``step.group(3) + other`` holds for one record, since a group covers
    fewer records, but for a user of three it leaves out what ``other`` costs for two of them.
    It is not refused, because a group is also the step of one record that is drawn ``size``
    times, which does compose with steps for one record.

    Args:
        base: a mechanism with additive noise and a sensitivity (not Staircase, whose noise depends
            on it), or an exponential one, sampled or not; or an either of such mechanisms; or a
            group of one; or a Gaussian on batches of a fixed size, of which ``size`` is at most
            100 and all are replaced.
        size: records of the user, in 1 ... 100,000.

    Raises:
        ParameterError: ``size`` is no such number, or nothing is proved for a group of ``base``.
        RelationError: ``base`` was declared for another relation.
    """

    size: int

    kind: ClassVar[str] = "group"
    key: ClassVar[str] = "group"

    def __post_init__(self) -> None:
        super().__post_init__()
        size = positive_count(size=self.size)
        if size > _MOST:
            raise refuse("size", f"be at most {_MOST}", size)
        self._set(size=size)
        self._declare_base()
        grouped(self.base, size)  # refuses what nothing is proved for

    def _declare_base(self) -> None:
        """Declares the base for the group's relation; refuses a base of another one."""
        if self.relation is not None:
            # a table stores the base's relation alone
            self._set(base=self.base.under(self.relation))  # guard: group-relation-stored
        self._set(relation=self.base.relation)

    @property
    def _whole(self) -> Mechanism:
        """The mechanism whose pair and instance are those of the group."""
        return grouped(self.base, self.size)

    def is_symmetric(self) -> bool:
        return self._whole.is_symmetric()

    def is_mutual(self) -> bool:
        return self._whole.is_mutual()

    def pair(self, direction: Direction) -> Pair:
        return self._whole.pair(direction)

    def instance(self) -> Composable | None:
        return self._whole.instance()

    def pairs_of_runs(self, direction: Direction, runs: int) -> tuple[tuple[Pair, int], ...]:
        return self._whole.pairs_of_runs(direction, runs)

    def instance_of_runs(self, runs: int) -> Composable | None:
        return self._whole.instance_of_runs(runs)

    @property
    def strategic(self) -> bool:  # type: ignore[override]
        return self._whole.strategic

    @property
    def weight(self) -> float:
        return self._whole.weight

    def worst_of_order(self, order: float) -> Mechanism | None:
        return self._whole.worst_of_order(order)

    @property
    def apart(self) -> str:
        return self._whole.apart

    @property
    def apart_inside(self) -> str:
        return self._whole.apart_inside

    def apart_of_runs(self, runs: int) -> str:
        return self._whole.apart_of_runs(runs)

    def finer(self, halvings: int) -> Mechanism:
        # only of what knows its own pairs of many runs: others would not be the same mechanism
        return self._whole.finer(halvings) if self._whole.strategic else self


def grouped(base: Mechanism, size: int) -> Mechanism:
    """Returns a mechanism whose pair dominates ``base`` for ``size`` records of one user.

    Raises:
        ParameterError: nothing is proved for a group of ``base``.
    """
    if size == 1:
        return base
    if isinstance(base, Group):
        return grouped(base.base, base.size * size)
    if isinstance(base, _SCALED):
        return scaled(base, size)
    if isinstance(base, ExponentialMechanism):
        return of_group(base, size)
    if isinstance(base, Either):
        return dataclasses.replace(
            base, first=grouped(base.first, size), second=grouped(base.second, size)
        )
    if isinstance(base, Batches):
        return GroupInBatches(base, size, relation=base.relation)
    if isinstance(base, Subsampled):
        rate, inner = Fraction(base.rate), base.base
        while isinstance(inner, Subsampled):  # a sample of a sample is a sample
            rate, inner = rate * Fraction(inner.rate), inner.base
        if rate == 0:
            return base
        if rate == 1:
            return grouped(inner, size)
        if rate < _LEAST_RATE:
            must = "be 0 or at least 1e-100 for a group"
            raise refuse("the rate of a sample of a sample", must, float(rate))
        if isinstance(inner, Gaussian):
            return _SampledGaussians(inner, rate, size, relation=base.relation)
        return _SampledGroup(inner, rate, size, relation=base.relation)
    raise ParameterError(
        f"nothing is proved for a group of records under {base.kind}: ask for a group of a "
        "mechanism with additive noise (gaussian, laplace, ...) or of an exponential one, alone or "
        ".subsampled(rate), or "
        "of a gaussian on .batches(batch, of)"
    )


def scaled(base: Mechanism, factor: int) -> Mechanism:
    """Returns ``base`` for a query that moves by ``factor`` times its sensitivity.

    Raises:
        ParameterError: ``base`` is no additive noise that is independent of its sensitivity.
    """
    if not isinstance(base, _SCALED):
        raise refuse("base", "add noise that does not depend on its sensitivity", base)
    sensitivity = Fraction(base.sensitivity) * factor
    if isinstance(base.sensitivity, int):
        return dataclasses.replace(base, sensitivity=int(sensitivity))
    given: Any = double_up(sensitivity)
    if Fraction(given) == sensitivity:
        return dataclasses.replace(base, sensitivity=given)
    # A quotient alone matters to these: it is rounded once, as any other, and their pairs pay for
    # that. A sensitivity that is rounded up would be another mechanism's.
    if isinstance(base, Gaussian):
        one = float(sensitivity / Fraction(base.sigma))
        return dataclasses.replace(base, sigma=1.0, sensitivity=one)
    if isinstance(base, (Laplace, Logistic)):
        one = float(sensitivity / Fraction(base.scale))
        return dataclasses.replace(base, scale=1.0, sensitivity=one)
    return dataclasses.replace(base, sensitivity=given)


@dataclass(frozen=True)
class _SampledGaussians(Mechanism):
    """A Gaussian mechanism on a Poisson sample, for a group; shares are merged upwards or down."""

    base: Gaussian
    rate: Fraction
    size: int
    up: bool = True

    mutual: ClassVar[bool] = True

    def pair(self, direction: Direction) -> Pair:
        sizes, shares = merged(self.size, self.rate, _COMPONENTS, up=self.up)
        s = Fraction(self.base.sensitivity) / Fraction(self.base.sigma)
        shifts = np.array([float(s * i) for i in sizes])
        mixture = Mixture(shifts, np.array([float(share) for share in shares]), off=1.0)
        kept = mixture.weights >= _LEFT_OUT  # all but what was below _LEAST before it was merged
        lines = Mixture(shifts[kept], mixture.weights[kept], off=1.0)
        alone = Mixture(np.zeros(1), np.ones(1))
        if direction is Direction.REMOVE:
            return MixturePair(mixture, alone, lines)
        return MixturePair(alone, mixture, lines)

    def instance(self) -> Mechanism | None:
        up, down = (merged(self.size, self.rate, _COMPONENTS, up=up) for up in (True, False))
        return None if up == down or not self.up else dataclasses.replace(self, up=False)

    @property
    def apart(self) -> str:
        # more sizes than components: several of them are one, the largest above, the least below
        some = merged(self.size, self.rate, _COMPONENTS, up=True)[0]
        whole = all(after == before + 1 for before, after in itertools.pairwise(some[:-1]))
        return "" if whole else "a large group's sample"


@dataclass(frozen=True)
class _SampledGroup(Mechanism):
    """A mechanism on a Poisson sample, for a group of which all are in as soon as one is."""

    base: Mechanism
    rate: Fraction
    size: int

    def __post_init__(self) -> None:
        grouped(self.base, self.size)  # refuses what nothing is proved for

    @property
    def _any(self) -> tuple[float, float]:
        """Bounds of the chance that at least one record of the group is in the sample."""
        return binomial_tails(self.size, self.rate, 1)[1]

    def is_mutual(self) -> bool:
        return self.base.is_mutual()

    def pair(self, direction: Direction) -> Pair:
        sizes, shares = merged(self.size, self.rate, _PUBLIC, up=True)
        # the largest one last; each smaller one with a share that is rounded down
        found, rest = grouped(self.base, sizes[-1]), Fraction(shares[-1])
        for i, share in zip(sizes[-2::-1], map(Fraction, shares[-2::-1]), strict=True):
            rest += share
            chance = double_down(share / rest * _ROUNDED)
            if i > 0 and chance > 0.0:
                found = Either(chance, grouped(self.base, i), found)
        return found.subsampled(self._any[1] if sizes[0] == 0 else 1.0).pair(direction)

    def instance(self) -> Composable | None:
        sampled = self.base.subsampled(self._any[0])
        attained = sampled.instance()  # where no data set attains the base's own pair
        return sampled if attained is None else attained  # guard: sampled-group-attained

    @property
    def apart(self) -> str:
        return "a group's sample"


@functools.lru_cache(maxsize=64)  # groups of a training: each pair asks anew
def merged(
    size: int, rate: Fraction, most: int, *, up: bool
) -> tuple[tuple[int, ...], tuple[Decimal, ...]]:
    """Returns how many of ``size`` records are in a sample, with the chance of each number.

    Guarantee: the numbers are stochastically larger than the exact binomial ones with ``up``, else
    smaller, apart from a relative 1e-29 of each chance; equal where nothing is merged.

    Args:
        size: records.
        rate: the chance of each, in (0, 1).
        most: numbers to return, >= 4; 0 is never merged with others.
        up: whether chances that are merged belong to the larger number.
    """
    chances = binomial_masses(size, rate, 0, size)
    large = [i for i, chance in enumerate(chances) if chance >= _LEAST]
    first, last = large[0], large[-1]
    block = -(-(last - first + 1) // (most - 3))
    cuts = [0, *range(1, last + 1, block)] if first == 0 else [*range(first, last + 1, block)]
    sizes: list[int] = []
    shares: list[Decimal] = []
    for start, stop in itertools.pairwise([*cuts, last + 1]):
        sizes.append(stop - 1 if up else start)  # guard: shares-merged-upwards
        shares.append(sum(chances[start:stop], Decimal(0)))
    if first > 0:  # fewer
        if up:
            shares[0] += sum(chances[:first], Decimal(0))
        else:
            sizes, shares = [0, *sizes], [_LEAST * first, *shares]
    if last < size:  # more
        if up:
            sizes, shares = [*sizes, size], [*shares, _LEAST * (size - last)]
        else:
            shares[-1] += sum(chances[last + 1 :], Decimal(0))
    return tuple(sizes), tuple(shares)
