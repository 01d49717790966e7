"""The protocol by which a mechanism on data charges a budget: reserve -> start -> settle.

The filters of :mod:`tightbudget.output_dp` are meters. So is any other budget that keeps these
promises, for example one of a ledger. A mechanism never learns which budget it charges.
"""

from __future__ import annotations

from typing import Protocol

from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.guarantee import Cell, OutputDP


class Reserved(Protocol):
    """The hold of one run of a mechanism: it takes the worst-case price until the run ends."""

    @property
    def charge(self) -> Amount:
        """The amount that this run takes from the budget at this moment."""
        ...

    def start(self) -> None:
        """Marks that the mechanism starts: from now on it may have answered."""
        ...

    def settle(self, cell: Cell) -> Amount:
        """Charges the price of the cell, frees the rest of epsilon, and returns the charge."""
        ...

    def forfeit(self) -> Amount:
        """Charges the worst-case price, and returns the charge."""
        ...

    def void(self) -> object:
        """Frees the whole hold: the mechanism was not started, and never will be."""
        ...


class Meter(Protocol):
    """A budget that mechanisms charge."""

    @property
    def left(self) -> Amount:
        """The amount that may still be reserved."""
        ...

    def reserve(self, guarantee: OutputDP, *, interactive: bool = False) -> Reserved:
        """Holds the worst-case price of a mechanism, or refuses, before any data is touched.

        Args:
            guarantee: the prices of the mechanism's output cells.
            interactive: whether the analyst sees answers before the mechanism has ended.
        """
        ...
