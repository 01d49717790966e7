"""Readings of a run by which people get another number for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tightbudget.errors import ParameterError, TightBudgetError
from tightbudget.mechanisms import (
    Allocated,
    Batches,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Logistic,
    Mechanism,
    MixtureOfGaussians,
    Shuffled,
    Subsampled,
    TruncatedPoisson,
)
from tightbudget.mechanisms.composition import Composition
from tightbudget.mechanisms.derived import Derived
from tightbudget.numerics.validate import nearest

_SCALES = {
    Gaussian: "sigma",
    DiscreteGaussian: "sigma",
    MixtureOfGaussians: "sigma",
    Laplace: "scale",
    DiscreteLaplace: "scale",
    Logistic: "scale",
}
_SAMPLED = (Subsampled, TruncatedPoisson, Batches, Shuffled, Allocated)
_INTEGER = 1e-9  # how far 1 / rate may be from the number of batches of an epoch

Part = tuple[Mechanism, int]


@dataclass(frozen=True)
class OtherReading:
    """A way to read a run that is not what it does.

    Attributes:
        what: what the number of this reading is, such as "what Poisson samples cost".
        run: the run that is read.
        delta: the factor by which its delta is not the one that was asked for.
    """

    what: str
    run: Composition
    delta: Fraction = Fraction(1)


def readings(run: Composition) -> Iterator[OtherReading]:
    """Yields each reading that differs from the run, the likeliest first."""
    seen = {run}
    for what, read in _READINGS.items():
        try:
            other = Composition(tuple(part for m, runs in run.parts for part in read(m, runs)))
        except TightBudgetError:  # the run cannot be read so
            continue
        if other.parts and other not in seen:
            seen.add(other)
            yield OtherReading(what, other)
    if run.runs > 1:
        yield OtherReading(
            f"what delta / {run.runs:,} for each run costs", run, Fraction(1, run.runs)
        )
        yield OtherReading(f"what {run.runs:,} times this delta costs", run, Fraction(run.runs))


def with_noise(run: Composition, factor: float) -> Composition | None:
    """Returns the run with so many times the noise; None where some part has no such noise."""
    try:
        parts = tuple((_leaf(m, lambda leaf: _scaled(leaf, factor)), runs) for m, runs in run.parts)
    except ParameterError:
        return None
    return Composition(parts)


def _leaf(mechanism: Mechanism, change: Callable[[Mechanism], Mechanism]) -> Mechanism:
    """Changes the mechanism that others are made of, and makes them anew."""
    if isinstance(mechanism, Derived):
        return dataclasses.replace(mechanism, base=_leaf(mechanism.base, change))
    return change(mechanism)


def _scaled(leaf: Mechanism, factor: float) -> Mechanism:
    name = _SCALES.get(type(leaf))
    if name is None:
        raise ParameterError(f"{leaf!r} has no noise to be scaled")
    given: dict[str, Any] = {name: getattr(leaf, name) * factor}
    return dataclasses.replace(leaf, **given)


def _noise(factor: float) -> Callable[[Mechanism, int], list[Part]]:
    return lambda m, runs: [(_leaf(m, lambda leaf: _scaled(leaf, factor)), runs)]


def _drawn(m: Mechanism) -> tuple[Mechanism, Fraction, int]:
    """Says of a sampled mechanism what one step is, how often a record is in it, and their number.

    Raises:
        ParameterError: it is not sampled.
    """
    match m:
        case Subsampled():
            return m.base, Fraction(m.rate), 1
        case TruncatedPoisson():
            return m.base, Fraction(m.rate), 1
        case Batches():
            return m.base, Fraction(m.batch, m.of), 1
        case Shuffled():
            return m.base, Fraction(1, m.steps), m.steps
        case Allocated():
            return m.base, Fraction(m.each_in, m.steps), m.steps
    raise ParameterError(f"{m!r} is not sampled")


def _as_poisson(m: Mechanism, runs: int) -> list[Part]:
    if not isinstance(m, _SAMPLED):
        return [(m, runs)]
    base, rate, steps = _drawn(m)
    base = dataclasses.replace(base, relation=None)
    return [(base.subsampled(nearest(rate)), steps * runs)]


def _as_shuffle(m: Mechanism, runs: int) -> list[Part]:
    base, rate, steps = _drawn(m)
    each, base = _batches(rate), dataclasses.replace(base, relation=None)
    epochs, left = divmod(steps * runs, each)
    if left:
        raise ParameterError("no whole epochs")
    return [(base.shuffled(each), epochs)]


def _without_sampling(m: Mechanism, runs: int) -> list[Part]:
    base, _, steps = _drawn(m)
    return [(dataclasses.replace(base, relation=None), steps * runs)]


def _once(m: Mechanism, runs: int) -> list[Part]:
    return [(m, 1)]


def _epochs_as_steps(m: Mechanism, runs: int) -> list[Part]:
    base, rate, steps = _drawn(m)
    epochs, left = divmod(steps * runs, _batches(rate))
    if left:
        raise ParameterError("no whole epochs")
    return [(dataclasses.replace(base, relation=None).subsampled(nearest(rate)), epochs)]


def _batches(rate: Fraction) -> int:
    """Counts the batches of an epoch; refuses a rate at which that is no integer."""
    each = round(1 / rate) if rate else 0
    if not each or abs(each * rate - 1) > _INTEGER:
        raise ParameterError("no whole epochs")
    return each


_READINGS: dict[str, Callable[[Mechanism, int], list[Part]]] = {
    "what Poisson samples of the same rate cost": _as_poisson,
    "what one run of each mechanism costs: the number of runs is left out": _once,
    "what so many steps cost as there are epochs": _epochs_as_steps,
    "what twice the noise costs: that of a record which is added or removed where this run has one "
    "replaced, or of a noise multiplier over twice the clipping norm": _noise(2.0),
    "what half the noise costs: that of a record which is replaced where this run has one added or "
    "removed": _noise(0.5),
    "what batches of a shuffle cost": _as_shuffle,
    "what it costs if all records are in every step: the sampling is left out": _without_sampling,
}
