"""A noisy sum over a batch of fixed size, where one record may be replaced by another."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from scipy import special as sp

from tightbudget.errors import ParameterError, RelationError
from tightbudget.mechanisms.batches_pairs import CopiesPair, HullPair
from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.derived import Derived
from tightbudget.mechanisms.gaussian import Gaussian, GaussianPair
from tightbudget.mechanisms.hidden_copies import hidden_copies
from tightbudget.mechanisms.mixture_of_gaussians import MixtureOfGaussians
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.mechanisms.subsampled import AddPair, RemovePair
from tightbudget.numerics.enclosure import Enclosure
from tightbudget.numerics.rounding import (
    EXP,
    LOG1P,
    UNIT,
    add_down,
    add_up,
    double_down,
    double_up,
    mul_up,
    next_up,
)
from tightbudget.numerics.validate import one_of, positive_count, refuse
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

# Numbers of copies of a record with less probability than this, together, are not listed one by
# one: the upper bound counts them as a loss of inf, the lower one as no copy.
_LEAST_CHANCE = 1e-100
_SENSITIVITIES = _CLIP, _REPLACED = "clip", "replace-one"
_MOST_RECORDS = 10**15  # data sets up to this size: integers that doubles hold


@dataclass(frozen=True)
class Batches(Derived):
    """Runs ``base`` on a random batch of exactly ``batch`` of the ``of`` records of the data set.

    This is fixed-size sampling, or sampling without replacement, and with it if so asked.

    Neighbours differ by one record that is replaced (``Neighbouring.REPLACE_ONE``). One mechanism
    is one step; every step draws a new batch.

    Guarantee: the exact epsilon and delta lie between two bounds, for any composition of steps.
    The lower bound is attained by two data sets: all other records are -c v, and the one record is
    c v in the first and -c v in the second, for a unit vector v and the norm c of all records. Then
    k steps are exactly k Poisson-sampled Gaussian mechanisms that move by 2 c at the rate
    q = batch / of. The upper bound is the pair whose delta(eps) is that of the two data
    sets for eps >= 0, mirrored for eps < 0: it dominates one step, so that its composition
    dominates the steps. Without replacement, an epsilon or a delta has a second upper bound, where
    that is smaller: second moments above a threshold compose with the two data sets, at a rate
    that is up to 4 % larger (:meth:`second_order`; the page "Fixed batches" of the documentation
    has the proof). The space between the two bounds is what is not known.
    Source: Zhu, Dong, Wang 2022, Theorem 11 (upper bound); Lebeda, Regehr, Kamath, Steinke 2024
    (that pairs of opposite records do not dominate fixed-size batches).

    The sensitivity of the base can be meant in two ways, and ``sensitivity_of`` says which one.
    ``"clip"`` (the default, which is never too small): it is the norm c that each record is
    clipped to, so that a replacement moves the sum by 2 c. ``"replace-one"``: it is how far a
    replacement moves the sum, 2 c itself. With 10,000 steps and delta = 1e-6, the epsilon of
    ``step * 10_000`` is in::

        Gaussian(sigma=2.0).batches(600, of=60_000)  # [6.9073, 7.1922]
        Gaussian(sigma=2.0, sensitivity=2.0).batches(
            600, of=60_000, sensitivity_of="replace-one"
        )  # [6.9073, 7.1922]
        Gaussian(sigma=2.0).batches(
            600, of=60_000, sensitivity_of="replace-one"
        )  # [2.4467, 2.5846]

    With ``replacement`` every one of the batch's places gets a record of its own, so that a
    record may be in it several times. The lower bound is that of the same two data sets, a mixture
    of Gaussians with binomial weights. The upper bound is the mirrored pair of these two data sets
    again, and a few outputs beside it, since nobody sees how many copies a batch has
    (:func:`~tightbudget.mechanisms.hidden_copies.hidden_copies` has the proof).

    Args:
        base: the Gaussian mechanism of one batch's sum.
        batch: how many records a batch has, an integer from 1 to ``of``.
        of: how many records the data set has, an integer up to 10^15.
        replacement: whether a record can be drawn several times for one batch.
        sensitivity_of: "clip" if the sensitivity of the base is the norm to which a record is
            clipped, or "replace-one" if it is the distance that a replaced record moves the sum.

    Raises:
        ParameterError: ``base`` is not a :class:`~tightbudget.Gaussian`, or a parameter is out of
            its range.
        RelationError: another relation than ``Neighbouring.REPLACE_ONE`` was declared for the
            batches, or ``base`` was declared for a relation that contradicts ``sensitivity_of``.
    """

    batch: int
    of: int
    replacement: bool = False
    sensitivity_of: str = "clip"

    kind: ClassVar[str] = "batches"
    key: ClassVar[str] = "batches"
    # the hull is its own mirror image
    symmetric: ClassVar[bool] = True
    mutual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.base, Gaussian):
            raise ParameterError(
                f"base must be a Gaussian, got {self.base!r}: fixed-size batches have two "
                "certified ends for Gaussian noise alone"
            )
        batch, of = positive_count(batch=self.batch), positive_count(of=self.of)
        if of > _MOST_RECORDS:
            raise refuse("of", f"be at most {_MOST_RECORDS}", self.of)
        if batch > of:
            raise refuse("batch", f"be at most of ({of})", self.batch)
        if not isinstance(self.replacement, bool):
            raise refuse("replacement", "be True or False", self.replacement)
        one_of(_SENSITIVITIES, sensitivity_of=self.sensitivity_of)
        if self.relation not in (None, Neighbouring.REPLACE_ONE):
            raise RelationError(
                f"batches of a fixed size hold for {Neighbouring.REPLACE_ONE}, "
                f"but {self.relation} was declared"
            )
        if self.base.relation is not None:
            self._check_base(self.base.relation)
        self._set(batch=batch, of=of, relation=Neighbouring.REPLACE_ONE)
        self._replaced()  # refuses a quotient that no Gaussian mechanism has

    def _check_base(self, declared: Neighbouring) -> None:
        """Refuses a base whose sensitivity was ``declared`` for something else."""
        # guard: sensitivity-not-guessed
        fits = _REPLACED if declared is Neighbouring.REPLACE_ONE else _CLIP
        if self.sensitivity_of != fits:
            raise RelationError(
                f"base was declared for {declared}, so that its sensitivity is of {fits!r}, "
                f"but sensitivity_of={self.sensitivity_of!r} was given"
            )

    def _replaced(self) -> Gaussian:
        """Makes the Gaussian mechanism of a batch that surely has the replaced record."""
        assert isinstance(self.base, Gaussian)
        # guard: replacement-moves-twice
        times = 2.0 if self.sensitivity_of == _CLIP else 1.0
        moved = self.base.sensitivity * times  # exact: a power of two
        return Gaussian(self.base.sigma, moved)

    def _places(self) -> int:
        """The largest number of copies of one record that a batch can have."""
        return self.batch if self.replacement and self.of > 1 else 1

    def _copies(self) -> Enclosure:
        """The chances that the batch has 1, 2, ... copies of a record, as far as they are listed.

        Returns:
            (n,) enclosures, at least one, the last of them above ``_LEAST_CHANCE`` or the batch's
            size.
        """
        if self._places() == 1:
            share = Fraction(self.batch, self.of)
            # guard: share-rounded-apart
            return Enclosure(np.array([double_down(share)]), np.array([double_up(share)]))
        return _binomial(self.batch, self.of)

    def pair(self, direction: Direction) -> Pair:
        """Returns the upper bound's pair, which is its own mirror image, for either direction."""
        return _hull(self._replaced(), self._copies(), self._places())

    def instance(self) -> Mechanism | None:
        """Returns what the two data sets that the class describes reveal.

        Returns:
            None for a batch of all records without replacement, where the pair itself is attained.
        """
        return _instance(self._replaced(), self._copies(), self.relation)

    def second_order(self) -> Pair | None:
        """Returns a pair that is above one step in second order; None where none is known.

        It is the pair of the two data sets that the class describes, at a rate that is
        :func:`rate_for_second_order` times as large: 4 % more at most.
        """
        replaced, copies = self._replaced(), self._copies()
        if len(copies) > 1 or copies.upper[0] == 1.0:
            return None
        factor = rate_for_second_order(replaced.sensitivity / replaced.sigma)
        rate = mul_up(float(copies.upper[0]), factor)  # guard: second-order-rate
        return replaced.subsampled(rate).pair(Direction.REMOVE) if rate < 1.0 else None

    @property
    def apart(self) -> str:
        return "batches of a fixed size" if self.instance() is not None else ""


def _hull(replaced: Gaussian, copies: Enclosure, places: int) -> Pair:
    """The pair above a step in which a record has 1, 2, ... copies with these chances.

    Args:
        replaced: the Gaussian mechanism of one copy that surely is in the batch.
        copies: the chances of 1, 2, ... copies, as far as they are listed.
        places: the largest number of copies.
    """
    m = replaced.sensitivity / replaced.sigma
    if copies.lower[0] == 1.0:
        return GaussianPair(m)
    rest = 0.0 if len(copies) == places else 2.0 * _LEAST_CHANCE
    # a larger rate, which is at most 1, dominates a smaller one
    rate = add_up(*copies.upper, rest) if rest or len(copies) > 1 else float(copies.upper[0])
    rate = min(rate, 1.0)
    if len(copies) > 1 and (hidden := _hidden(m, copies, rest)) is not None:
        return hidden
    least = add_down(*copies.lower)
    # the chances of 1, 2, ... copies where there is one
    shares = (copies / Enclosure(np.array([least]), np.array([rate]))).clipped(0.0, 1.0)
    base = CopiesPair(m, shares, next_up(rest / least) if rest else 0.0)
    if rate == 1.0:
        return base  # each batch has a copy
    keep = (1 - rate) * np.array([1 - 2 * UNIT, 1 + 2 * UNIT])
    left = base.undecided() * Enclosure(keep[:1], keep[1:])  # guard: undecided-mass
    # guard: mirrored-below-zero
    return HullPair(RemovePair(base, rate), AddPair(base, rate), left)


def _hidden(m: float, copies: Enclosure, rest: float) -> HullPair | None:
    """The pair above a step that does not tell how many copies there are, where it is known."""
    chances = copies.upper.copy()
    chances[0] = add_up(chances[0], rest)  # so that what is left is below the chance of no copy
    none = double_down(1 - sum((Fraction(x) for x in chances.tolist()), Fraction(0)))
    return hidden_copies(m, chances, none, rest) if none > _LEAST_CHANCE else None


def _instance(
    replaced: Gaussian, copies: Enclosure, relation: Neighbouring | None
) -> Mechanism | None:
    """The mechanism of a sum that each copy moves as far as it can; None if a copy is sure.

    Args:
        replaced: the Gaussian mechanism of one copy that surely is in the batch.
        copies: the chances of 1, 2, ... copies, as far as they are listed.
        relation: between the two data sets.
    """
    chances = copies.lower
    if chances.size == 1:
        # a smaller rate is dominated by a larger one
        rate = float(chances[0])
        sampled = replaced.subsampled(rate)
        return None if rate == 1.0 else _Attained(sampled, relation=relation)
    # fewer copies, and smaller moves, are dominated by more and larger ones: the events
    # that decide delta are half-lines, whose chance rises with the move
    # guard: no-copy-has-the-rest
    none = double_up(1 - sum((Fraction(x) for x in chances.tolist()), Fraction(0)))
    sizes = [double_down(k * Fraction(replaced.sensitivity)) for k in range(chances.size + 1)]
    mixture = MixtureOfGaussians(replaced.sigma, tuple(sizes), (none, *chances.tolist()))
    return _Attained(mixture, relation=relation)


# Records of one user in batches of a fixed size: each number of them in a batch costs a pair.
_MOST_IN_BATCH = 100


@dataclass(frozen=True)
class GroupInBatches(Mechanism):
    """Is ``base`` for neighbours of which ``size`` records are replaced.

    Guarantee: the exact epsilon and delta lie between two bounds. A batch has i of the user's
    records with the chance w_i = C(size, i) C(of - size, batch - i) / C(of, batch), and with
    replacement with that of i hits in ``batch`` draws, each at the rate size / of.
    Lower bound: all others are -c v, and the user's records c v in the first data set and -c v in
    the second. Then a step is sum_i w_i N(i s, sigma^2) against N(0, sigma^2) exactly, for the
    distance s that one replacement moves the sum.
    Upper bound: :func:`~tightbudget.mechanisms.hidden_copies.hidden_copies`. A batch without any
    record of the user is others in a random order; one with i of them has them in the places of
    the last i. Where w_0 is so small that this says nothing, i is told: with p = 1 - w_0 the
    union, over i >= 1 with the shares w_i / p, of the hulls of the Gaussian mechanism that moves by
    i replacements, sampled at the rate p.
    Source: Ganesh 2024, arXiv 2401.10294, for the weights.

    Args:
        base: batches of a fixed size.
        size: records of the user, in 2 ... 100; a batch without any of them must be possible.

    Raises:
        ParameterError: ``size`` is out of its range.
    """

    base: Batches
    size: int

    symmetric: ClassVar[bool] = True
    mutual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        others = 1 if self.base.replacement else self.base.batch
        most = min(_MOST_IN_BATCH, self.base.of - others)
        if self.size > most:
            must = f"be at most {most} for batches of {self.base.batch} of {self.base.of} records"
            raise refuse("size", must, self.size)

    def _copies(self) -> Enclosure:
        """The chances that a batch has 1, 2, ... records of the user, as far as they are listed."""
        size, batch, of = self.size, self.base.batch, self.base.of
        if self.base.replacement:
            return _binomial(batch, of, size)
        chance = Fraction(1)
        for i in range(size):  # no record is in the batch
            chance *= Fraction(of - batch - i, of - i)
        left, found = 1 - chance, list[Fraction]()
        for i in range(min(size, batch)):
            chance *= Fraction((size - i) * (batch - i), (i + 1) * (of - size - batch + i + 1))
            found.append(chance)
            left -= chance
            if left < _LEAST_CHANCE:  # guard: fewer-than-listed
                break
        ends = ([end(x) for x in found] for end in (double_down, double_up))
        return Enclosure(*map(np.array, ends))

    def pair(self, direction: Direction) -> Pair:
        size, batch = self.size, self.base.batch
        places = batch if self.base.replacement else min(size, batch)
        return _hull(self.base._replaced(), self._copies(), places)

    def instance(self) -> Mechanism | None:
        return _instance(self.base._replaced(), self._copies(), self.relation)

    @property
    def apart(self) -> str:
        return "batches of a fixed size"


@dataclass(frozen=True)
class _Attained(Mechanism):
    """A mechanism that two data sets attain, declared for the relation between these two."""

    base: Mechanism

    def pair(self, direction: Direction) -> Pair:
        return self.base.pair(direction)

    def is_mutual(self) -> bool:
        return self.base.is_mutual()

    def __repr__(self) -> str:
        return repr(self.base)


# The move of a record over sigma for which a factor is sought. Below it the two ends of an answer
# are close without it, and the differences lose too many digits; above it the numbers overflow.
_LEAST_MOVE, _MOST_MOVE = 1e-3, 10.0


@functools.lru_cache(maxsize=64)
def rate_for_second_order(s: float) -> float:
    """A factor of the rate with which the pair of two data sets is above every step.

    One step, all but the place of the record given away, is (1 - q) N(v) + q N(u) against
    (1 - q) N(v) + q N(u') for v, u, u' in a ball of diameter s (sigma is 1). With the factor f let
    R = 1 + f q Z, Z = e^(s z - s^2 / 2) - 1. Then E[(R - k)+^2] is at least that of every step, for
    all k, if for one number l > 0

        f^2 V - E[(f Z + l)-^2] >= V,   (f^2 - 1) C >= 2 int_0^l (E[(Z - u)+] - E[(Z + u)-]) du,

    V = E[Z^2], C = E[Z+^2]. The page "Fixed batches" of the documentation has the proof.

    Args:
        s: how far a replacement moves the sum, over sigma.

    Returns:
        The factor, between 1 and 1.04; inf where it is not sought.
    """
    if not _LEAST_MOVE <= s <= _MOST_MOVE:
        return math.inf

    def short(c: float) -> float:
        """E[(c - X)+^2] for X = 1 + Z."""
        if c <= 0.0:
            return 0.0
        z = math.log(c) / s + s / 2
        terms = c * c * sp.ndtr(z), 2 * c * sp.ndtr(z - s), whole * sp.ndtr(z - 2 * s)
        return float(terms[0] - terms[1] + terms[2])

    whole = math.exp(s * s)
    variance = math.expm1(s * s)
    half = variance - short(1.0)  # C
    # each value above is a sum of three, within some units of e^(s^2) or 4
    off = 1e-13 * (whole + 4.0)

    def needed(part: float) -> tuple[float, float]:
        """The squares of f that the two inequalities ask for, for l = f (1 - part)."""
        first = (variance + off) / (variance - short(part) - off)
        least = math.sqrt(first) * (1.0 - part)
        # E[(1 + l - X)-^2], and so C - E[(Z - l)+^2] = 2 int_0^l E[(Z - u)+] du
        right = half - (variance + least * least - short(1.0 + least))
        left = short(1.0) - short(1.0 - least)
        return first, 1.0 + (right - left + 8 * off) / (half - 2 * off)

    low, high = 0.0, 1.0  # the first falls with l, the second rises
    for _ in range(40):
        part = (low + high) / 2
        first, second = needed(part)
        low, high = (part, high) if first < second else (low, part)
    return math.sqrt(max(needed(high))) * (1.0 + 1e-12)


@functools.lru_cache(maxsize=64)
def _binomial(batch: int, of: int, size: int = 1) -> Enclosure:
    """The chances of 1, 2, ... hits of ``size`` records in ``batch`` draws from ``of`` > ``size``.

    Returns:
        (n,) enclosures; the chance of more than n hits is below twice ``_LEAST_CHANCE``, and 0 if
        n is ``batch``.
    """
    # (1 - size / of)^batch: log1p of a rounded quotient, the product, and exp
    exponent = batch * math.log1p(-size / of)
    chance = math.exp(exponent)
    off = (EXP + (LOG1P + 6.0) * abs(exponent)) * UNIT
    values, offs = [], []
    for k in range(1, batch + 1):
        # C(b, k) (m/n)^k (1 - m/n)^(b - k) from that of k - 1: integers below 2^53, or rounded
        # once each, in five operations
        chance = chance * (batch - k + 1) / (k * (of - float(size))) * size
        off += 8 * UNIT
        values.append(chance)
        offs.append(off)
        # from twice the mean on, each chance is at most half of the one before
        if k >= 2.0 * batch * size / (of - float(size)) and chance < _LEAST_CHANCE:
            break
    mass, relative = np.array(values), np.array(offs)
    return Enclosure(mass * (1 - relative), mass * (1 + relative))
