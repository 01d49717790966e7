"""The mechanisms of a step, of a pass and of a batch of Opacus."""

from __future__ import annotations

from tightbudget.mechanisms.approximate_dp import ApproximateDP
from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.validate import count, non_negative, positive_count, probability, refuse


def dp_sgd_step(
    noise_multiplier: float, sample_rate: float, *, relation: Neighbouring | None = None
) -> Mechanism:
    """Returns the mechanism of one step of Opacus: Gaussian noise on a Poisson sample.

    Guarantee: no two data sets that differ in one record are told apart better by a step than by
    the mechanism. Source: Zhu, Dong, Wang 2022, Theorem 11.

    Args:
        noise_multiplier: the noise's standard deviation divided by the clipping norm, >= 0;
            with 0 the step shows each record of the sample.
        sample_rate: in [0, 1]; for the loader that Opacus returns, 1 / len(loader).
        relation: None for a record added or removed; ``Neighbouring.ZERO_OUT`` for a record whose
            place is left empty.

    Raises:
        ParameterError: an argument is refused.
    """
    base = _unsampled(non_negative(noise_multiplier=noise_multiplier), relation)
    return base.subsampled(probability(sample_rate=sample_rate))


def dp_sgd_pass(noise_multiplier: float, batches: int, smaller: int = 0) -> Mechanism:
    """Returns the mechanism of one pass of Opacus over shuffled batches.

    Guarantee: no two data sets that differ in one record are told apart better by a pass than by
    the upper bound of the mechanism. Source: see :class:`tightbudget.Shuffled`.

    The relation is ``Neighbouring.ZERO_OUT``: a record's place is left empty.

    Args:
        noise_multiplier: the noise's standard deviation divided by the clipping norm, >= 0.
        batches: the number of batches that the data is cut into. With 1, the observer knows each
            record's batch.
        smaller: how many batches have fewer records than the others: 1 where the last one has.

    Raises:
        ParameterError: an argument is refused.
    """
    sigma = non_negative(noise_multiplier=noise_multiplier)
    whole = _unsampled(sigma, Neighbouring.ZERO_OUT)
    parts, less = positive_count(batches=batches), count(smaller=smaller)
    if less >= parts:
        raise refuse("smaller", f"be below batches ({parts})", smaller)
    return whole if parts == 1 or sigma == 0.0 else whole.shuffled(parts, less)


def dp_sgd_batch(noise_multiplier: float, batch: int, of: int) -> Mechanism:
    """Returns the mechanism of one step of Opacus on a batch that is drawn with replacement.

    Guarantee: no two data sets that differ in one record are told apart better by a step than by
    the upper bound of the mechanism; the lower bound is attained by some data sets. Source: see
    :class:`tightbudget.Batches`.

    The relation is ``Neighbouring.REPLACE_ONE``: one record is another one. Each place of the batch
    gets a record of its own draw, so that a record may be in a batch several times.

    Args:
        noise_multiplier: the noise's standard deviation divided by the clipping norm, >= 0.
        batch: the number of draws for one batch, from 1 to ``of``.
        of: the number of records of the data set.

    Raises:
        ParameterError: an argument is refused.
    """
    sigma = non_negative(noise_multiplier=noise_multiplier)
    if sigma == 0.0:
        return _unsampled(sigma, Neighbouring.REPLACE_ONE)
    return Gaussian(sigma).batches(batch, of, replacement=True)


def _unsampled(sigma: float, relation: Neighbouring | None) -> Mechanism:
    """Makes the Gaussian mechanism, or one that shows the record where ``sigma`` is 0."""
    if sigma == 0.0:
        return ApproximateDP(0.0, 1.0, relation=relation)
    return Gaussian(sigma, relation=relation)
