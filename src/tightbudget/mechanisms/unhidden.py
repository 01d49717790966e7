"""A mechanism below another one, whose Renyi divergences are finite."""

from __future__ import annotations

from dataclasses import dataclass

from tightbudget.mechanisms.composition import Composable, Mechanism
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair


@dataclass(frozen=True)
class Unhidden(Mechanism):
    """A mechanism with the pair of one that dominates it, and is not hidden among other records.

    The pair of a hidden record counts a small mass as a certain loss: its divergences are infinite.

    Args:
        run: the mechanism, whose lower bounds are kept.
        above: a mechanism that dominates it.
    """

    run: Mechanism
    above: Mechanism

    def pair(self, direction: Direction) -> Pair:
        return self.above.pair(direction)

    def instance_of_runs(self, runs: int) -> Composable | None:
        return self.run.instance_of_runs(runs)

    @property
    def apart(self) -> str:
        return self.run.apart
