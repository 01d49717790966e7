"""What a mechanism on data asks of a budget: reserve -> start -> settle.

The filters of :mod:`tightbudget.output_dp` are meters, and so is any budget that keeps these
promises, durable ones included. A mechanism never learns which one it charges.
"""

from __future__ import annotations

from typing import Protocol

from tightbudget.output_dp.account import Budget
from tightbudget.output_dp.guarantee import Cell, OutputDP

__all__ = ["Meter", "Reserved"]


class Reserved(Protocol):
    """What is held for one run of a mechanism; held at the dearest price until it ends."""

    @property
    def charge(self) -> Budget:
        """What this run takes from the budget, at this moment."""
        ...

    def start(self) -> None:
        """From here on the mechanism may have answered."""
        ...

    def settle(self, cell: Cell) -> Budget:
        """Charges the price of the cell and frees the rest of epsilon; what the run has cost."""
        ...

    def forfeit(self) -> Budget:
        """Charges the dearest price; what the run has cost."""
        ...

    def void(self) -> object:
        """Frees everything: the mechanism was not started, and never will be."""
        ...


class Meter(Protocol):
    """A budget that mechanisms charge."""

    @property
    def left(self) -> Budget:
        """What may still be reserved."""
        ...

    def reserve(self, guarantee: OutputDP, *, interactive: bool = False) -> Reserved:
        """Holds the mechanism's dearest price, or refuses, before any data is touched."""
        ...
