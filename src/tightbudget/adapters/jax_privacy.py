"""JAX Privacy's trainings and its ways to select batches, answered with proved bounds.

``TightTrainingAccountant`` stands wherever a ``jax_privacy.accounting.DpTrainingAccountant`` may,
and ``TightAccountantConfig`` wherever a ``DpAccountantConfig`` may. ``from_dp_params`` reads a
training, and ``from_batch_selection`` reads the object of ``jax_privacy.batch_selection`` that
also draws the batches. Needs JAX Privacy, and the extra ``dp-accounting``.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np

from tightbudget.errors import ExtraError, ParameterError
from tightbudget.mechanisms.approximate_dp import ApproximateDP
from tightbudget.mechanisms.composition import Composition, compose
from tightbudget.mechanisms.correlated_noise import CorrelatedNoise
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import double_down, double_up
from tightbudget.numerics.validate import (
    count,
    non_negative,
    positive,
    positive_count,
    probability,
    refuse,
)

try:
    from dp_accounting import NeighboringRelation, dp_event
    from jax_privacy import accounting, batch_selection

    from tightbudget.adapters.dp_accounting import TightPrivacyAccountant, from_dp_event
except ImportError as error:
    raise ExtraError(
        "this adapter reads objects of JAX Privacy (pip install jax-privacy), and needs "
        "dp-accounting: pip install 'tightbudget[dp-accounting]'"
    ) from error

__all__ = [
    "TightAccountantConfig",
    "TightTrainingAccountant",
    "from_batch_selection",
    "from_dp_params",
]


@dataclasses.dataclass(kw_only=True, slots=True)
class TightAccountantConfig(accounting.DpAccountantConfig):  # type: ignore[misc]
    """A ``jax_privacy.accounting.DpAccountantConfig`` whose accountants give proved bounds.

    It is for JAX Privacy's own training accountants. Those refuse truncated batches and users for
    every configuration but ``PldAccountantConfig``; :class:`TightTrainingAccountant` answers both.

    Args:
        neighboring_relation: a ``dp_accounting.NeighboringRelation``.
        rtol: wanted relative gap between the two bounds, in (0, 1).
    """

    neighboring_relation: Any = NeighboringRelation.ADD_OR_REMOVE_ONE
    rtol: float = 1e-4

    def create_accountant(self) -> TightPrivacyAccountant:
        """Makes an accountant of nothing yet."""
        return TightPrivacyAccountant(self.neighboring_relation, self.rtol)


class TightTrainingAccountant(accounting.DpTrainingAccountant):  # type: ignore[misc]
    """A ``jax_privacy.accounting.DpTrainingAccountant`` whose answers are certified upper bounds.

    It stands for ``DpsgdTrainingAccountant`` and ``DpsgdTrainingUserLevelAccountant`` alike, also
    in ``calibrate_noise_multiplier``, ``calibrate_batch_size``, ``calibrate_num_updates`` and
    ``CachedExperimentAccountant``.

    Guarantee: the training is (``compute_epsilon(num_updates, dp_params)``,
    ``dp_params.delta``)-DP under the relation of :func:`from_dp_params`.

    Args:
        rtol: wanted relative gap between the two bounds, in (0, 1); a gap that cannot be reached
            gives a wider interval, whose upper bound is as certain.
    """

    def __init__(self, rtol: float = 1e-4) -> None:
        super().__init__(TightAccountantConfig(rtol=rtol))
        self._rtol = rtol

    def __repr__(self) -> str:
        """Writes the call that makes this accountant, which has no history of its own."""
        return f"{type(self).__name__}(rtol={self._rtol!r})"

    def can_calibrate_steps(self) -> bool:
        """Says that a number of updates can be calibrated."""
        return True

    def can_calibrate_batch_size(self) -> bool:
        """Says that a batch size can be calibrated."""
        return True

    def can_calibrate_noise_multipliers(self) -> bool:
        """Says that a noise multiplier can be calibrated."""
        return True

    def compute_epsilon_bounds(self, num_updates: Any, dp_params: Any) -> Bounds:
        """Bounds epsilon, nats, of ``num_updates`` updates at ``dp_params.delta``.

        Raises:
            ParameterError: an argument is refused, or nothing is proved for such a training.
        """
        training = from_dp_params(dp_params, num_updates)
        delta = probability(delta=dp_params.delta)
        return training.answer(delta=delta, rtol=self._rtol).bounds

    def _compute_epsilon(self, num_updates: Any, dp_params: Any) -> float:
        return self.compute_epsilon_bounds(num_updates, dp_params).upper


def from_dp_params(dp_params: Any, num_updates: Any) -> Composition:
    """Converts a training that ``jax_privacy.accounting.DpParams`` describe to a composition.

    The relation follows from the description: one record added or removed for Poisson samples, one
    record whose place is left empty (``Neighbouring.ZERO_OUT``) with ``cycle_length`` > 1, where
    groups have equal sizes, and one record replaced with ``SamplingMethod.FIXED_BATCH_SIZE``. With
    ``examples_per_user``, neighbours differ by that many records of one user.

    Guarantee: the composition dominates the training. Poisson samples, of records or of a user's
    records, are the training itself; a truncated batch has the bounds of
    :class:`tightbudget.TruncatedPoisson`, and a batch of fixed size those of
    :class:`tightbudget.Batches`. With ``cycle_length`` the noise may be correlated over at most as
    many updates, by a strategy matrix whose columns have norms of at most 1.

    Proof for ``cycle_length`` c: a record's group has the updates i, i + c, ... Column i of the
    strategy matrix is 0 from row i + c on. Given the outputs before update i, and the batches of
    other groups, outputs i ... i + c - 1 are known numbers, plus that column times the sum of batch
    i, plus independent noise. The column's own direction is a sufficient statistic, which is one
    run of the mechanism on batch i.

    Args:
        dp_params: a description of the training, whose ``num_samples`` is that of the larger one of
            two neighbours.
        num_updates: updates of the model, an integer >= 0.

    Raises:
        ParameterError: an argument is refused, or nothing is proved for such a training.
    """
    training = _Training.read(dp_params)
    updates = count(num_updates=_item(num_updates))
    parts = []
    for runs, sigma, size in _segments(training.noises, training.sizes, updates):
        turns = -(-runs // training.cycle)  # guard: last-turn-counts
        parts.append(training.step(sigma, size) * turns)
    return compose(parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Training:
    """A training that is checked.

    Args:
        of: how many records there are to select a batch from.
        cycle: how many groups take turns.
        records: how many records a user has.
        most: the size to which a batch is truncated, if it is.
        fixed: whether every batch has the same size.
        finite: whether anything is guaranteed.
        noises: noise multipliers >= 0, each with its first update, in order.
        sizes: sizes of batches, or their means, >= 0, each with its first update, in order.
    """

    of: int
    cycle: int
    records: int
    most: int | None
    fixed: bool
    finite: bool
    noises: list[tuple[int, float]]
    sizes: list[tuple[int, float]]

    @classmethod
    def read(cls, given: Any) -> _Training:
        """Reads and checks ``DpParams``."""
        if not isinstance(given, accounting.DpParams):
            raise refuse("dp_params", "be jax_privacy.accounting.DpParams", given)
        n, cycle, records, most = (
            positive_count(num_samples=given.num_samples),
            given.cycle_length,
            given.examples_per_user,
            given.truncated_batch_size,
        )
        cycle = 1 if cycle is None else positive_count(cycle_length=cycle)
        training = cls(
            of=n // cycle,
            cycle=cycle,
            records=1 if records is None else positive_count(examples_per_user=records),
            most=None if most is None else count(truncated_batch_size=most),
            fixed=given.sampling_method is accounting.SamplingMethod.FIXED_BATCH_SIZE,
            finite=given.is_finite_guarantee is True,
            noises=_schedule("noise_multipliers", given.noise_multipliers),
            sizes=_schedule("batch_sizes", given.batch_sizes),
        )
        if not training.fixed and given.sampling_method is not accounting.SamplingMethod.POISSON:
            raise refuse("sampling_method", "be a SamplingMethod", given.sampling_method)
        training._check()
        return training

    def _check(self) -> None:
        """Refuses what nothing is proved for."""
        if self.fixed and self.most is not None:
            must = "be None with SamplingMethod.FIXED_BATCH_SIZE"
            raise refuse("truncated_batch_size", must, self.most)
        if self.records > 1 and (self.fixed or self.cycle > 1 or self.most is not None):
            must = (
                "be None or 1 with FIXED_BATCH_SIZE, cycle_length > 1 or truncated_batch_size: "
                "nothing is proved for several records of one user there"
            )
            raise refuse("examples_per_user", must, self.records)
        if self.cycle > 1 and (len(self.noises) > 1 or len(self.sizes) > 1):
            raise ParameterError(
                "noise_multipliers and batch_sizes must be one number each with cycle_length > 1, "
                f"got {self.noises} and {self.sizes}"
            )
        for _, size in self.sizes:
            if size > self.of:
                must = f"be at most the {self.of} records that a batch is selected from"
                raise refuse("batch_sizes", must, size)
            if self.fixed and size != int(size):
                must = "be integers with SamplingMethod.FIXED_BATCH_SIZE"
                raise refuse("batch_sizes", must, size)

    @property
    def relation(self) -> Neighbouring:
        """The relation of two neighbours."""
        if self.fixed:
            return Neighbouring.REPLACE_ONE
        return Neighbouring.ZERO_OUT if self.cycle > 1 else Neighbouring.ADD_OR_REMOVE

    def step(self, sigma: float, size: float) -> Composition:
        """Makes one update.

        Args:
            sigma: the noise multiplier, >= 0.
            size: the size of the batch before it is truncated, or its mean, >= 0.
        """
        if self.finite and (size == 0.0 or self.most == 0):
            return Composition()
        if not self.finite or sigma == 0.0:
            return ApproximateDP(0.0, 1.0, relation=self.relation) * 1
        if self.fixed:
            return Gaussian(sigma).batches(int(size), self.of) * 1
        if self.most is not None:
            # The double nearest to the share is the rate of JAX Privacy's own events. No proof
            # says that a larger rate of a truncated batch dominates a smaller one.
            return _truncated(sigma, size / self.of, self.of, self.most, self.relation)
        rate = double_up(Fraction(size) / self.of)  # guard: batch-share-rounded-up
        step = Gaussian(sigma, relation=self.relation).subsampled(rate)
        # guard: records-of-a-user-together
        return step.group(self.records) * 1 if self.records > 1 else step * 1


def _truncated(
    sigma: float, rate: float, of: int, most: int, relation: Neighbouring
) -> Composition:
    """Makes one Gaussian step on a Poisson sample of ``of`` records that is cut to ``most``."""
    event = dp_event.TruncatedSubsampledGaussianDpEvent(
        dataset_size=of,
        sampling_probability=rate,
        truncated_batch_size=most,
        noise_multiplier=sigma,
    )
    zeroed = relation is Neighbouring.ZERO_OUT
    special, added = NeighboringRelation.REPLACE_SPECIAL, NeighboringRelation.ADD_OR_REMOVE_ONE
    return from_dp_event(event, special if zeroed else added)


def _item(value: Any) -> Any:
    """Returns the number that an array of one entry holds, and any other value unchanged."""
    array = np.asarray(value)
    return array.item() if array.size == 1 and array.dtype.kind in "iuf" else value


def _schedule(name: str, given: Any) -> list[tuple[int, float]]:
    """Lists the values of a schedule, each with the update from which on it holds.

    Args:
        name: the field of the description that a refusal names.
        given: a number, or pairs of an update and a number.
    """
    if given is None:
        raise refuse(name, "be a number or pairs of an update and a number", given)
    pairs = list(given) if isinstance(given, (list, tuple)) else [(0, given)]
    found = []
    for pair in pairs:
        if not (isinstance(pair, (list, tuple)) and len(pair) == 2):
            raise refuse(name, "be a number or pairs of an update and a number", given)
        start, value = map(_item, pair)
        found.append((count(**{name: start}), non_negative(**{name: value})))
    found.sort()
    starts = [start for start, _ in found]
    if starts[:1] != [0] or len(set(starts)) < len(starts):
        raise refuse(name, "begin at update 0, and have one value for each update", given)
    return found


def _segments(
    noises: list[tuple[int, float]], sizes: list[tuple[int, float]], updates: int
) -> list[tuple[int, float, float]]:
    """Lists how many updates run with which noise and which batch size, in order.

    Args:
        noises: noise multipliers, each with its first update, in order.
        sizes: batch sizes, each with its first update, in order.
        updates: the number of all updates.
    """
    starts = sorted({start for start, _ in (*noises, *sizes) if start < updates})
    ends = [*starts[1:], updates]
    return [
        (
            end - start,
            next(value for first, value in reversed(noises) if first <= start),
            next(value for first, value in reversed(sizes) if first <= start),
        )
        for start, end in zip(starts, ends, strict=False)
    ]


def from_batch_selection(
    selection: Any,
    *,
    noise_multiplier: float,
    num_examples: int,
    noise: CorrelatedNoise | None = None,
) -> Composition:
    """Converts a way to select batches, with Gaussian noise on each sum, to a composition.

    The relation of the composition follows from the selection: one record added or removed
    (``CyclicPoissonSampling`` without groups or with independent ones, ``BallsInBinsSampling``,
    ``BMinSepSampling``), one record whose place is left empty (with groups of equal size), or one
    record replaced (``FixedBatchSampling``).

    Guarantee: the composition dominates the run. It is the run itself for Poisson samples and for
    balls in bins with independent noise; ``FixedBatchSampling`` has the two bounds of
    :class:`tightbudget.Batches`; ``BMinSepSampling`` is accounted without amplification.

    Args:
        selection: an object of ``jax_privacy.batch_selection``. With a ``UserSelectionStrategy`` a
            record is a user.
        noise_multiplier: the standard deviation of the noise divided by the clipping norm, > 0;
            with ``noise``, of the noise before it is correlated.
        num_examples: how many records the larger one of two neighbours has; of a
            ``UserSelectionStrategy``, how many users.
        noise: how noise is correlated over the steps; None for independent noise.

    Raises:
        ParameterError: an argument is refused, or nothing is proved for the selection.
    """
    sigma = positive(noise_multiplier=noise_multiplier)
    n = positive_count(num_examples=num_examples)
    if isinstance(selection, batch_selection.UserSelectionStrategy):
        selection = selection.base_strategy
    steps = count(**{"selection.iterations": getattr(selection, "iterations", selection)})
    if steps == 0:
        return Composition()
    if noise is None:
        noise = CorrelatedNoise.toeplitz([1.0], steps)
    if getattr(noise, "steps", None) != steps:
        raise refuse("noise", f"be a CorrelatedNoise of {steps} steps", noise)
    if type(selection) is batch_selection.CyclicPoissonSampling:
        return _cyclic(selection, sigma, n, noise)
    if type(selection) is batch_selection.BallsInBinsSampling:
        bins = positive_count(**{"selection.cycle_length": selection.cycle_length})
        return noise.allocated(sigma, bins, relation=Neighbouring.ADD_OR_REMOVE)
    if type(selection) is batch_selection.FixedBatchSampling:
        size = count(**{"selection.batch_size": selection.batch_size})
        if noise.bands > 1:
            # a record may have all places of a batch that is drawn with replacement
            records = 2 * size if selection.replace else 2
            raise ParameterError(
                f"nothing is known of {selection!r} with correlated noise: account for the run as "
                f"Gaussian(sigma, {records} * noise.sensitivity(each_in=noise.steps))"
            )
        if size == 0:
            return Composition()
        step = Gaussian(sigma, noise.sensitivity()).batches(size, n, selection.replace)
        return step * steps
    if type(selection) is batch_selection.BMinSepSampling:
        if selection.truncated_batch_size is not None:
            raise refuse(
                "selection.truncated_batch_size",
                "be None: a record decides which others are cut off",
                selection.truncated_batch_size,
            )
        rate = probability(**{"selection.sampling_prob": selection.sampling_prob})
        if selection.min_sep == 1 and noise.bands == 1:
            return noise.sampled(sigma, rate)
        moved = noise.sensitivity(apart=selection.min_sep)
        return Composition(((Gaussian(sigma, moved, relation=Neighbouring.ADD_OR_REMOVE), 1),))
    raise refuse("selection", "be one of jax_privacy.batch_selection's strategies", selection)


def _cyclic(selection: Any, sigma: float, n: int, noise: CorrelatedNoise) -> Composition:
    """Converts Poisson samples of groups that take turns."""
    rate = probability(**{"selection.sampling_prob": selection.sampling_prob})
    groups = positive_count(**{"selection.cycle_length": selection.cycle_length})
    independent = selection.partition_type is batch_selection.PartitionType.INDEPENDENT
    # groups of equal size depend on how many other records there are
    equal = groups > 1 and not independent
    relation = Neighbouring.ZERO_OUT if equal else None
    most = selection.truncated_batch_size
    if most is None:
        return noise.sampled(sigma, rate, groups=groups, relation=relation)
    if noise.bands > groups:
        raise refuse("selection.cycle_length", f"be at least bands = {noise.bands}", groups)
    if groups > 1 and independent:
        raise ParameterError(
            "selection.truncated_batch_size must be None, or selection.partition_type "
            "EQUAL_SPLIT: how often a batch is cut depends on the size of a group"
        )
    # the longest column is what a record of a step moves by
    moved = double_down(Fraction(sigma) / Fraction(noise.sensitivity()))
    step = _truncated(moved, rate, n // groups, most, relation or Neighbouring.ADD_OR_REMOVE)
    return step * -(-noise.steps // groups)
