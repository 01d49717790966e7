"""Reads from the samplers of a PyTorch loader how its batches are drawn, and counts them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from opacus.utils.uniform_sampler import (
    DistributedUniformWithReplacementSampler,
    UniformWithReplacementSampler,
)
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler

from tightbudget.adapters.opacus.steps import dp_sgd_batch, dp_sgd_pass, dp_sgd_step
from tightbudget.links import DOCUMENTATION
from tightbudget.mechanisms.composition import Composition
from tightbudget.numerics.validate import refuse

PAGE = f"see {DOCUMENTATION}problems/shuffled-batches.html"


def _counting(kind: Any) -> Any:
    """Makes the class of a batch sampler that draws as ``kind`` does, and counts."""

    class Counting(kind):  # type: ignore[misc]
        __slots__ = ()  # so that an object of the class kind can change to this one

        begun = 0  # the passes
        drawn = 0  # the batches of the last pass; ahead of the loop if the loader has workers
        crossed = False  # True once a pass has gone on after another one began

        def __iter__(self: Any) -> Iterator[Any]:
            self.begun += 1
            self.drawn, this = 0, self.begun
            for batch in super().__iter__():
                self.crossed = self.crossed or this != self.begun
                self.drawn += 1
                yield batch

    return Counting


POISSON = (UniformWithReplacementSampler, DistributedUniformWithReplacementSampler)
# The class of a batch sampler is changed, and not the loader's sampler: Opacus's own tools ask for
# these classes, and make new loaders with the sampler of a loader.
_COUNTED: dict[type, Any] = {kind: _counting(kind) for kind in (BatchSampler, *POISSON)}


def watched(loader: Any) -> Any:
    """Returns the loader's batch sampler, which counts from now on.

    Raises:
        ParameterError: the loader has a batch sampler of which nothing is known.
    """
    sampler = getattr(loader, "batch_sampler", None)
    if type(sampler) in _COUNTED:
        sampler.__class__ = _COUNTED[type(sampler)]
    if type(sampler) not in _COUNTED.values():
        must = f"draw by Poisson, or cut batches with torch's BatchSampler ({PAGE})"
        raise refuse("data_loader.batch_sampler", must, sampler)
    return sampler


def batches_of_pass(loader: Any) -> tuple[int, int]:
    """Counts the batches of a pass of which nobody knows which one a record is in.

    Returns:
        the number of batches, and of those that are smaller than the others, if the loader shuffles
        all records; (1, 0) if the order may be known, or if some records may be left out.

    Raises:
        ParameterError: a record may be in several batches of a pass, or the order is not known to
            be drawn without a look at the data.
    """
    batches = watched(loader)
    order = batches.sampler
    if type(order) is RandomSampler and not order.replacement:
        size, drawn = len(order.data_source), order.num_samples
    elif type(order) is SubsetRandomSampler:
        size, drawn = len(set(order.indices)), len(order.indices)
    elif type(order) is SequentialSampler:
        return 1, 0
    else:
        must = f"visit each record once in a pass, in an order that no data decides ({PAGE})"
        raise refuse("data_loader.sampler", must, order)
    if drawn > size:
        raise refuse("data_loader.sampler", f"visit each record once in a pass ({PAGE})", order)
    last = drawn % batches.batch_size
    if drawn < size or (batches.drop_last and last):
        return 1, 0
    # guard: last-batch-may-be-smaller
    return len(batches), int(last > 0 and len(batches) > 1)


def replaced(loader: Any) -> tuple[int, int] | None:
    """Returns the draws of a batch, and the records, of a loader that draws with replacement.

    Returns:
        None for a loader that draws in another way.

    Raises:
        ParameterError: the last batch of a pass is smaller than the others.
    """
    cut = watched(loader)
    order: Any = getattr(cut, "sampler", None)
    if type(order) is not RandomSampler or not order.replacement:
        return None
    if not cut.drop_last and order.num_samples % cut.batch_size:
        must = "be True, or num_samples a multiple of batch_size, for draws with replacement"
        raise refuse("drop_last", must, cut.drop_last)
    return int(cut.batch_size), len(order.data_source)


def one_worker() -> None:
    """Refuses distributed training, in which each worker would cut batches of its own."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        workers = torch.distributed.get_world_size()
        if workers > 1:
            must = f"be 1 without Poisson sampling: each worker has batches of its own ({PAGE})"
            raise refuse("the number of workers", must, workers)


def epoch(loader: Any, noise_multiplier: float) -> Composition:
    """Makes the composition of one pass of a loader, with the upper bound of its course."""
    sampler = watched(loader)
    if isinstance(sampler, POISSON):
        return dp_sgd_step(noise_multiplier, sampler.sample_rate) * len(sampler)
    if draws := replaced(loader):
        return dp_sgd_batch(noise_multiplier, *draws) * len(sampler)
    batches_of_pass(loader)  # refuses what is unknown
    # the upper bound for a shuffle is that of a known order
    return dp_sgd_pass(noise_multiplier, 1) * 1
