"""Says in words for a reviewer what an accounting assumes of the loader that draws batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from tightbudget.mechanisms import (
    Allocated,
    ApproximateDP,
    Batches,
    FromCurve,
    HistogramPair,
    LossTable,
    Mechanism,
    MixtureOfGaussians,
    Shuffled,
    ShuffledReports,
    Subsampled,
    TruncatedPoisson,
)
from tightbudget.mechanisms.composition import Composable

NOT_KNOWN = "not known to this tool"

# What is known of these is their privacy loss alone.
_CLOSED = (ApproximateDP, FromCurve, HistogramPair, LossTable)
_TOSS = "each record is in each batch by a toss of its own, which no other record changes"


def assumed_of(run: Composable) -> list[tuple[str, str]]:
    """Says which samplers a run has, and what its bounds assume of them.

    Args:
        run: a mechanism or composition.
    """
    found = dict.fromkeys(text for mechanism, _ in run.parts for text in _said(mechanism))
    samplers = [sampler for sampler, _ in found]
    assumed = dict.fromkeys(assumption for _, assumption in found)
    return [
        ("sampler", "; ".join(samplers) or "none: each run is on all records"),
        ("assumed of the loader", "; ".join(assumed) or "nothing: there is none"),
    ]


def _said(value: Any) -> Iterator[tuple[str, str]]:
    """Yields the samplers in a mechanism, and in those that it is made of."""
    if isinstance(value, Composable) and not isinstance(value, Mechanism):
        for mechanism, _ in value.parts:
            yield from _said(mechanism)
    if not isinstance(value, Mechanism):
        return
    if isinstance(value, _CLOSED):
        yield f"of {type(value).__name__} {NOT_KNOWN}", NOT_KNOWN
    yield from _sampler(value)
    for field in dataclasses.fields(value):
        yield from _said(getattr(value, field.name))


def _sampler(m: Mechanism) -> Iterator[tuple[str, str]]:
    match m:
        case Subsampled():
            yield f"Poisson, rate {m.rate!r}", _TOSS
        case TruncatedPoisson():
            yield (
                f"Poisson, rate {m.rate!r}, at most {m.at_most:,} of {m.of:,} records",
                f"{_TOSS}; of a batch that is too large, a uniform choice stays",
            )
        case Batches():
            way = "with replacement" if m.replacement else "without replacement"
            yield (
                f"fixed batches of {m.batch:,} of {m.of:,} records, {way}",
                f"each step draws a new uniform batch of exactly this size, {way}",
            )
        case Shuffled():
            size = "equal size"
            if m.smaller:
                size = f"one size, but {m.smaller:,} that may have fewer records"
            yield (
                f"epochs of {m.steps:,} shuffled batches",
                "each record is in one batch of each epoch, by a fresh uniform shuffle of all, cut "
                f"into batches of {size}",
            )
        case Allocated():
            yield (
                f"random allocation, each record in {m.each_in:,} of {m.steps:,} steps",
                "for each record its steps of an epoch are drawn uniformly and independently of "
                "all other records; a shuffle does not do this",
            )
        case MixtureOfGaussians():
            yield (
                "what a record adds has a random size",
                "the sizes are drawn anew in each run, with the declared chances",
            )
        case ShuffledReports():
            yield (
                f"{m.n:,} reports, shuffled",
                "a uniform shuffle of all reports, by somebody who tells nobody the order",
            )
