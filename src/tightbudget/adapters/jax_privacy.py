"""JAX Privacy's ways to select batches, answered with proved bounds.

``from_batch_selection`` reads the object of ``jax_privacy.batch_selection`` that also draws the
batches, so that a run is accounted as what it does. Needs JAX Privacy, and the extra
``dp-accounting``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tightbudget.errors import ExtraError, ParameterError
from tightbudget.mechanisms.composition import Composition
from tightbudget.mechanisms.correlated_noise import CorrelatedNoise
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.rounding import double_down
from tightbudget.numerics.validate import count, positive, positive_count, probability, refuse

try:
    from dp_accounting import NeighboringRelation, dp_event
    from jax_privacy import batch_selection

    from tightbudget.adapters.dp_accounting import from_dp_event
except ImportError as error:
    raise ExtraError(
        "batch selection reads objects of JAX Privacy (pip install jax-privacy), and needs "
        "dp-accounting: pip install 'tightbudget[dp-accounting]'"
    ) from error

__all__ = ["from_batch_selection"]


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
                f"Gaussian(sigma, {records} * noise.sensitivity(times=noise.steps))"
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
    event = dp_event.TruncatedSubsampledGaussianDpEvent(
        dataset_size=n // groups,
        sampling_probability=rate,
        truncated_batch_size=most,
        noise_multiplier=double_down(Fraction(sigma) / Fraction(noise.sensitivity())),
    )
    special = NeighboringRelation.REPLACE_SPECIAL
    asked = special if equal else NeighboringRelation.ADD_OR_REMOVE_ONE
    return from_dp_event(event, asked) * -(-noise.steps // groups)
