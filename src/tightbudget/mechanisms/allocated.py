"""A step on batches into which each record is put at random, once an epoch or a few times."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeGuard

import numpy as np

from tightbudget.engine.engine import Engine
from tightbudget.engine.question import DeltaAt, Question
from tightbudget.mechanisms.allocated_above import Spread
from tightbudget.mechanisms.allocated_below import Merged, Sums
from tightbudget.mechanisms.allocated_line import AllocationLine
from tightbudget.mechanisms.allocated_plan import LogLabels, within_reach
from tightbudget.mechanisms.approximate_dp import ApproximateDP
from tightbudget.mechanisms.attained import telling_most
from tightbudget.mechanisms.composition import Composable, Mechanism
from tightbudget.mechanisms.derived import Derived
from tightbudget.mechanisms.from_curve import FromCurve
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import positive_count, refuse
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

# Rounding errors of a sum grow with its number of terms: 1e-3 of a delta at this one.
MOST_STEPS = 10**8
# sensitivity / sigma; with narrower noise a formula's delta takes seconds, its epsilon many times
# that, and the lattice answers
_NARROWEST = 4.0
# The labels that are tried where a record is in k of t steps: their shares of k / (t - k), and
# whether they reach the largest ratio. Measured at sigma .5, delta 1e-5: of 2 of 1,000 steps the
# lower bound at .5 is within 1e-4 of the exact value, at 1 it is 3 % below; of 2 of 4 steps .1
# tells most. Whatever is tried, the bound is a lower one.
_TRIED = ((0.1, True), (0.25, True), (0.45, True), (0.5, False))
_LEAST_DELTA = 1e-250  # a formula is not searched for the epsilon of a smaller one


@dataclass(frozen=True)
class Allocated(Derived):
    """One epoch of ``steps`` runs of ``base``, each record in ``each_in`` of them, at random.

    For each record the runs that have it are drawn uniformly and independently of all other
    records: random allocation, or balls and bins. This is one epoch; ``* epochs`` composes.
    A loader that permutes the data and cuts batches of one size does *not* do this, and may
    reveal much more: see :meth:`~tightbudget.Mechanism.shuffled`.

    Guarantee: holds for neighbours that differ by the presence of one record
    (``Neighbouring.ADD_OR_REMOVE``), in both directions, also for steps that are chosen after
    seeing earlier outputs; the base's pair must be stated for the same relation. A base that is
    declared for ``Neighbouring.ZERO_OUT`` must take a zeroed record for an absent one, as sums do.

    With ``each_in=1`` the bounds are those of two pairs on lattices, above and below the exact one,
    which are made as close as ``rtol`` asks: for 1e-4 in half a second or two, for 1e-5 in some
    seconds. Closer ones of many epochs are refused. One epoch of Gaussian steps has a formula
    besides, which knows a delta and an epsilon to some nine digits. A lattice counts a mass of up
    to 1e-42 of each epoch as a certain loss: such a delta has an upper bound alone, and a Renyi
    divergence has no finite one. Where a step has next to no noise (a sigma below about 0.06 of the
    sensitivity) the lower bound is 0, and the answer says ``apart``.

    With ``each_in=k`` there are two bounds, and the answer says ``apart``. The upper bound is that
    of k epochs of 1 of t/k steps (k - r of floor(t/k) steps and r of one step more, t = k
    floor(t/k) + r): k steps at random are one step in each block of a random partition, and the
    upper bound gives the partition away. The lower bound is that of an observer who sees the sum of
    ln(1 + c R) over the steps' density ratios R, for one of some c: a post-processing of the
    outputs, which may be 0 where epsilon is above a hundred or so. What lies between the two is not
    known.

    Source: Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang 2024, "Balls-and-bins sampling for
    DP-SGD", for the pair; Feldman, Shenfeld 2025, "Privacy amplification by random allocation",
    for the reduction of k of t.

    Args:
        base: any mechanism, one step.
        steps: the number of steps t of one epoch, in [1, 10^8].
        each_in: in how many steps of the epoch each record is, in [1, steps].

    Raises:
        ParameterError: ``steps`` or ``each_in`` is out of its range, or ``base`` is no mechanism.
        RelationError: ``base`` was declared for another relation.
    """

    steps: int
    each_in: int = 1

    kind: ClassVar[str] = "allocated"
    key: ClassVar[str] = "allocated"
    written: ClassVar[Mapping[str, str]] = {"each_in": "times"}
    meant: ClassVar[Mapping[str, str]] = {
        "times": "in how many steps each record is, each_in says now"
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        steps, each_in = positive_count(steps=self.steps), positive_count(each_in=self.each_in)
        if steps > MOST_STEPS:
            raise refuse("steps", "be at most 10^8", self.steps)
        if each_in > steps:
            raise refuse("each_in", f"be at most steps ({steps})", self.each_in)
        way = "random allocation"
        relation = Neighbouring.of_presence(way, self.relation, self.base.relation)
        self._set(steps=steps, each_in=each_in, relation=relation)

    def is_symmetric(self) -> bool:
        # each record is in every step: the steps of one epoch, composed
        return self.each_in == self.steps and self.base.is_symmetric()

    def is_mutual(self) -> bool:
        return self.each_in == self.steps and self.base.is_mutual()

    def pair(self, direction: Direction) -> Pair:
        return self.pair_with(direction, 0)

    def pair_with(self, direction: Direction, finer: int) -> Pair:
        """Returns the dominating pair for a direction, on a lattice whose width is halved.

        Args:
            direction: the direction.
            finer: how often it is halved.
        """
        if self.each_in > 1:
            return _pair_above(self, direction)
        base = self.base.pair(direction)
        if self.steps == 1 or not within_reach(base, direction):
            # the step that has the record, given away: no amplification
            return base
        side = _side(self.base, direction)
        return _pair_of_law(self.base, self.steps, side, direction, finer)

    def pairs_of_run(self, direction: Direction) -> tuple[tuple[Pair, int], ...]:
        if self.each_in == 1:
            return super().pairs_of_run(direction)
        # r blocks have one step more than the others
        length, longer = divmod(self.steps, self.each_in)
        blocks = ((length, self.each_in - longer), (length + 1, longer))
        return tuple(
            (Allocated(self.base, steps).pair(direction), runs) for steps, runs in blocks if runs
        )

    @property
    def apart(self) -> str:
        if 1 < self.each_in < self.steps:
            return f"{self.each_in} of {self.steps} steps"
        below = self.base.instance()
        if self.steps == self.each_in or below is None or _is_epoch(below):
            own = any(self._surely_shown(direction) for direction in Direction)
            return self.base.apart_inside or "an epoch of steps with next to no noise" * own
        return f"an epoch of {self.base.apart_inside or 'steps'}"

    def _surely_shown(self, direction: Direction) -> bool:
        """Whether a step has so little noise that no lattice holds its ratios."""
        if self.steps == self.each_in:
            return False
        base = self.base.pair(direction)
        return bool(base.sketch().losses.size) and not within_reach(base, direction)

    def by_formula(self, question: Question, rtol: float) -> Bounds | None:
        if not isinstance(self.base, Gaussian) or self.each_in > 1 or self.steps == 1:
            return None
        if self.apart:  # with next to no noise the formula leaves the range of doubles, too
            return None
        line = AllocationLine(self.base.sensitivity / self.base.sigma, self.steps)
        return _answer_of_line(line, question, rtol)

    def finer(self, halvings: int) -> Mechanism:
        closer = dataclasses.replace(self, base=self.base.finer(halvings))
        return closer if self.each_in > 1 or self.steps == 1 else _Finer(closer, halvings)

    def instance(self) -> Composable | None:
        if self.steps == 1:
            return self.base.instance()
        below = self.base.instance()
        if below is not None and not _is_epoch(below):
            return ApproximateDP(0.0)  # nothing is known to be revealed: a lower bound of 0
        if self.each_in == self.steps:
            return None if below is None else below * self.steps
        if self.each_in == 1:
            return _SumOfRatios(below or self.base, self.steps)
        return telling_most(self._sums_of_logs(1), 1)

    def instance_of_runs(self, runs: int) -> Composable | None:
        """Returns so many epochs, seen by the one of some sums of labels that tells most."""
        below = self.base.instance()
        if not 1 < self.each_in < self.steps or not (below is None or _is_epoch(below)):
            return super().instance_of_runs(runs)
        return telling_most(self._sums_of_logs(runs), runs) * runs

    def _sums_of_logs(self, runs: int) -> tuple[Mechanism, ...]:
        """The sums of labels that are tried; one of them where none is known closely."""
        step = self.base.instance() or self.base
        assert isinstance(step, Mechanism)
        odds = self.each_in / (self.steps - self.each_in)
        each = [
            _SumOfLogs(step, self.steps, self.each_in, LogLabels(share * odds, far))
            for share, far in _TRIED
        ]
        return tuple(one for one in each if one.is_close(runs)) or (each[-1],)


@dataclass(frozen=True)
class _Finer(Mechanism):
    """An epoch with each record in one step, between two laws that are closer together.

    Attributes:
        epoch: what it is.
        halvings: how often the distance of the two laws is halved, about.
    """

    epoch: Allocated
    halvings: int

    def is_symmetric(self) -> bool:
        return self.epoch.is_symmetric()

    def pair(self, direction: Direction) -> Pair:
        # Spreading moves an answer twice as far as merging does, and takes half as long: so it is
        # the first of the two to be made finer. Each is quartered by half the width.
        return self.epoch.pair_with(direction, (self.halvings + 1) // 2)

    def instance(self) -> Composable | None:
        below = self.epoch.instance()
        if not isinstance(below, _SumOfRatios):
            return below
        return dataclasses.replace(below, level=self.halvings // 2)


@dataclass(frozen=True)
class _SeenEpoch(Mechanism):
    """An observer of random allocation who looks at one number, a function of all outputs."""

    base: Mechanism
    steps: int

    alone: ClassVar[bool] = True

    def pair(self, direction: Direction) -> Pair:
        base = self.base.pair(direction)
        if not base.sketch().losses.size:  # the step that has the record shows it for certain
            return base
        if not within_reach(base, direction):
            return ApproximateDP(0.0).pair(direction)  # a lower bound of 0
        return self._seen(_side(self.base, direction)).pair(direction)

    def _seen(self, side: Direction) -> Merged | Sums:
        raise NotImplementedError


@dataclass(frozen=True)
class _SumOfRatios(_SeenEpoch):
    """The sum of the steps' density ratios, of which one has the record."""

    level: int = 0  # how often the width of the lattice is halved

    def _seen(self, side: Direction) -> Merged | Sums:
        return _kept_below(self.base, self.steps, side, self.level)


@dataclass(frozen=True)
class _SumOfLogs(_SeenEpoch):
    """The sum of ln(1 + c ratio) over the steps, of which several have the record."""

    each_in: int
    logs: LogLabels

    def is_close(self, runs: int) -> bool:
        """Says whether rounding leaves the loss of so many runs known at all."""
        base = self.base.pair(Direction.REMOVE)
        if not base.sketch().losses.size or not within_reach(base, Direction.REMOVE):
            return False
        sums = _kept_sums(
            self.base, self.steps, self.each_in, _side(self.base, Direction.REMOVE), self.logs
        )
        return sums.is_close(runs)

    def _seen(self, side: Direction) -> Merged | Sums:
        return _kept_sums(self.base, self.steps, self.each_in, side, self.logs)


def _is_epoch(instance: Composable) -> TypeGuard[_SeenEpoch]:
    """Whether an instance is the law of an epoch from below."""
    return isinstance(instance, _SeenEpoch)


# One call takes milliseconds to a second; readings ask for the same one again.
@functools.lru_cache(maxsize=256)
def _answer_of_line(line: AllocationLine, question: Question, rtol: float) -> Bounds | None:
    """Bounds of the answer about one epoch of Gaussian steps."""
    if isinstance(question, DeltaAt):
        return line.delta(question.epsilon, rtol)
    within = _LEAST_DELTA < question.delta < 1.0 and line.m <= _NARROWEST
    return line.epsilon(question.delta, rtol) if within else None


def _side(base: Mechanism, direction: Direction) -> Direction:
    """The direction whose pair of ``base`` is asked: one for both where they are the same pair."""
    return Direction.REMOVE if base.is_mutual() else direction


# A law takes half a second and a megabyte; a question asks for it twice in each direction.
@functools.lru_cache(maxsize=16)
def _kept_above(base: Mechanism, steps: int, side: Direction, finer: int = 0) -> Spread:
    """The law of an epoch's ratio from above."""
    other = Direction.ADD if side is Direction.REMOVE else Direction.REMOVE
    reverse = base.pair(other) if base.is_mutual() else None
    # a pair that is attained has masses of distributions; one above it may have upper bounds alone
    whole = base.instance() is None  # guard: bounds-have-no-total
    return Spread.of(base.pair(side), side, steps, finer, reverse=reverse, whole=whole)


# The same question asks for one pair several times: equal pairs are one object.
@functools.lru_cache(maxsize=16)
def _pair_of_law(
    base: Mechanism, steps: int, side: Direction, direction: Direction, finer: int
) -> Pair:
    """The pair of an epoch from above."""
    return _kept_above(base, steps, side, finer).pair(direction)


@functools.lru_cache(maxsize=16)
def _kept_below(base: Mechanism, steps: int, side: Direction, finer: int = 0) -> Merged:
    """The law of an epoch's ratio from below."""
    return Merged.of(base.pair(side), side, steps, finer)


@functools.lru_cache(maxsize=16)
def _kept_sums(base: Mechanism, steps: int, times: int, side: Direction, logs: LogLabels) -> Sums:
    """The law of the sum of an epoch's labels, of which several have the record."""
    return Sums.of(base.pair(side), side, steps, times, logs)


# The epsilons at which one pair takes the place of several. Their composition is answered with the
# pairs themselves; one pair is asked for only where such a mechanism is itself sampled.
_EPSILONS = (*np.linspace(-8.0, 8.0, 33), *np.linspace(9.0, 32.0, 24))


@functools.lru_cache(maxsize=16)
def _pair_above(mechanism: Allocated, direction: Direction) -> Pair:
    """One pair above the several pairs of an epoch in which a record is several times."""
    read = Engine.of({direction: mechanism.pairs_of_run(direction)}).reader()
    points = [(float(epsilon), read(float(epsilon), 1e-2).upper) for epsilon in _EPSILONS]
    epsilons, deltas = zip(*points, strict=True)
    return FromCurve(epsilons, deltas, both_ways=False).pair(Direction.REMOVE)
