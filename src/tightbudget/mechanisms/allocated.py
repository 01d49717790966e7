"""A step on batches into which each record is put at random, once an epoch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.allocated_lattice import Average, average
from tightbudget.mechanisms.composition import Mechanism
from tightbudget.numerics.validate import count, refuse
from tightbudget.pairs.pair import Direction, Pair

__all__ = ["Allocated"]


@dataclass(frozen=True)
class Allocated(Mechanism):
    base: Mechanism
    steps: int
    times: int = 1

    kind: ClassVar[str] = "allocated"

    def pair(self, direction: Direction) -> Pair:
        return _average(self.base, self.steps, direction).dominating(direction)

    def instance(self):
        return Below(self.base, self.steps)


@dataclass(frozen=True)
class Below(Mechanism):
    base: Mechanism
    steps: int

    def pair(self, direction: Direction) -> Pair:
        return _average(self.base, self.steps, direction).dominated(direction)


def _average(base: Mechanism, steps: int, direction: Direction) -> Average:
    if base.is_mutual():
        direction = Direction.REMOVE
    return _kept(base, steps, direction)


@functools.lru_cache(maxsize=8)
def _kept(base: Mechanism, steps: int, direction: Direction) -> Average:
    return average(base.pair(direction), direction, steps)
