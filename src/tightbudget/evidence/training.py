"""Training runs as people configure them: noise multiplier, batches, epochs, and a sampler."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from tightbudget.errors import FileError
from tightbudget.mechanisms import Gaussian
from tightbudget.mechanisms.composition import Composition
from tightbudget.numerics.validate import count, nearest, positive, positive_count, refuse

_KEYS = (
    "noise_multiplier",
    "batch_size",
    "dataset_size",
    "epochs",
    "steps",
    "sampler",
    "at_most",
    "sample_rate",
)
_ROUNDED = 1e-3  # relative: people write a rate with a few digits
_BY_RATE = ("poisson", "truncated poisson")


def runs_of_training(table: Mapping[str, Any]) -> tuple[Composition, ...]:
    """Makes the compositions that a training's configuration may mean, the likeliest first.

    Stacks draw Poisson samples at batch_size / dataset_size, or at one over the number of batches
    of an epoch, which counts or leaves out the smaller last one. Where these differ and the table
    has no ``sample_rate``, there is one composition for each.

    Args:
        table: as for :func:`run_of_training`.

    Raises:
        FileError, ParameterError: as :func:`run_of_training` does.
    """
    first = run_of_training(table)
    n = positive_count(dataset_size=table["dataset_size"])
    batch = positive_count(batch_size=table["batch_size"])
    if table["sampler"] not in _BY_RATE or "sample_rate" in table or n % batch == 0:
        return (first,)
    found = [first]
    for each in (-(-n // batch), n // batch):
        other = {**table, "sample_rate": nearest(Fraction(1, each))}
        if "epochs" in table:
            other["steps"] = other.pop("epochs") * each
        found.append(run_of_training(other))
    return tuple(found)


def run_of_training(table: Mapping[str, Any]) -> Composition:
    """Makes the composition of a training run from its configuration.

    Guarantee: each step is one sum of gradients, clipped to the norm C, over one batch of the
    sampler, with Gaussian noise of ``noise_multiplier`` times C.

    Args:
        table: ``noise_multiplier`` (> 0), ``batch_size`` and ``dataset_size`` (integers >= 1),
            exactly one of ``epochs`` and ``steps`` (integers >= 1), ``sampler``, one of
            :data:`SAMPLERS`, and for "truncated poisson" ``at_most``, the largest batch. With
            these two samplers ``sample_rate`` is the rate of a stack that does not draw at
            batch_size / dataset_size.

    Raises:
        FileError: a key is unknown or missing, or the sampler is none that can be accounted.
        ParameterError: a value is refused.
    """
    for key in table:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise FileError(f"a training has {', '.join(_KEYS)}, got {key!r}{hint}")
    for key in ("noise_multiplier", "batch_size", "dataset_size", "sampler"):
        if key not in table:
            raise FileError(f"a training needs {key}")
    if ("epochs" in table) == ("steps" in table):
        raise FileError("a training needs exactly one of epochs and steps")
    sampler = table["sampler"]
    if not isinstance(sampler, str) or sampler not in SAMPLERS:
        known = ", ".join(SAMPLERS)
        raise FileError(
            f"sampler must be one that can be accounted ({known}), got {sampler!r}: of other ways "
            "to draw batches no upper bound is known here"
        )
    if ("at_most" in table) != (sampler == "truncated poisson"):
        raise FileError("at_most, the largest batch, goes with the sampler truncated poisson alone")
    if "sample_rate" in table and sampler not in _BY_RATE:
        raise FileError(f"sample_rate goes with the samplers {' and '.join(_BY_RATE)} alone")
    step = Gaussian(positive(noise_multiplier=table["noise_multiplier"]))
    n = positive_count(dataset_size=table["dataset_size"])
    batch = positive_count(batch_size=table["batch_size"])
    if batch > n:
        raise refuse("batch_size", f"be at most dataset_size ({n})", batch)
    return SAMPLERS[sampler](step, batch, n, table)


def _steps(table: Mapping[str, Any], batch: int, n: int) -> int:
    """Counts the steps; an epoch is as many batches as together have the size of the data set."""
    if "steps" in table:
        return positive_count(steps=table["steps"])
    steps = Fraction(positive_count(epochs=table["epochs"]) * n, batch)
    if steps.denominator != 1:
        raise FileError(
            f"epochs x dataset_size / batch_size must be an integer, got {nearest(steps):.6g}: "
            "give steps, the number of batches that were drawn, in place of epochs"
        )
    return int(steps)


def _epochs(table: Mapping[str, Any], batch: int, n: int) -> tuple[int, int]:
    """Counts the batches of an epoch, the last of which may be smaller, and the epochs."""
    each = -(-n // batch)
    if "epochs" in table:
        return each, positive_count(epochs=table["epochs"])
    steps = positive_count(steps=table["steps"])
    if steps % each:
        raise FileError(f"steps must be whole epochs of {each} batches, got {steps}")
    return each, steps // each


def _rate(table: Mapping[str, Any], batch: int, n: int) -> float:
    """Returns the sampling rate; one that is given must fit the size of the batches."""
    if "sample_rate" not in table:
        return nearest(Fraction(batch, n))
    rate = positive(sample_rate=table["sample_rate"])
    least, most = nearest(Fraction(1, -(-n // batch))), nearest(Fraction(1, n // batch))
    if not least * (1 - _ROUNDED) <= rate <= most * (1 + _ROUNDED):
        must = f"fit batch_size and dataset_size: be at least {least} and at most {most}"
        raise refuse("sample_rate", must, table["sample_rate"])
    return rate


def _poisson(step: Gaussian, batch: int, n: int, table: Mapping[str, Any]) -> Composition:
    return step.subsampled(_rate(table, batch, n)) * _steps(table, batch, n)


def _truncated(step: Gaussian, batch: int, n: int, table: Mapping[str, Any]) -> Composition:
    most = count(at_most=table["at_most"])
    rate = _rate(table, batch, n)
    return step.truncated_poisson(rate, most, n) * _steps(table, batch, n)


def _shuffle(step: Gaussian, batch: int, n: int, table: Mapping[str, Any]) -> Composition:
    each, epochs = _epochs(table, batch, n)
    return step.shuffled(each, smaller=int(n % batch > 0 and each > 1)) * epochs


def _allocation(step: Gaussian, batch: int, n: int, table: Mapping[str, Any]) -> Composition:
    if n % batch:
        raise FileError(
            "dataset_size / batch_size, the number of batches of an epoch, must be an integer "
            f"with the sampler allocation, got {nearest(Fraction(n, batch)):.6g}"
        )
    each, epochs = _epochs(table, batch, n)
    return step.allocated(each) * epochs


def _fixed(step: Gaussian, batch: int, n: int, table: Mapping[str, Any]) -> Composition:
    return step.batches(batch, n) * _steps(table, batch, n)


def _replacement(step: Gaussian, batch: int, n: int, table: Mapping[str, Any]) -> Composition:
    return step.batches(batch, n, replacement=True) * _steps(table, batch, n)


def _all(step: Gaussian, batch: int, n: int, table: Mapping[str, Any]) -> Composition:
    if batch != n:
        raise refuse("batch_size", f"be dataset_size ({n}) with the sampler all", batch)
    return step * _steps(table, batch, n)


# By name: how batches are drawn, as the page "Which sampler is mine?" tells them apart.
SAMPLERS: dict[str, Callable[[Gaussian, int, int, Mapping[str, Any]], Composition]] = {
    "poisson": _poisson,
    "truncated poisson": _truncated,
    "shuffle": _shuffle,
    "allocation": _allocation,
    "fixed": _fixed,
    "with replacement": _replacement,
    "all": _all,
}
