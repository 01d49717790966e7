"""The budgets of blocks that a run is charged to, also of those that nobody has touched before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from tightbudget.errors import ParameterError
from tightbudget.ledger.rows.budget_rows import Balance
from tightbudget.promises.kinds import rule_of
from tightbudget.promises.kinds.blocks import BLOCK, BlockSet
from tightbudget.promises.units import Units


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The budgets of one set that a run is charged to.

    Attributes:
        set: the terms of the set.
        today: the day by the ledger's clock, on which the unlocking of blocks depends.
    """

    set: BlockSet
    today: date

    def fresh(self, name: str, number: int) -> Balance:
        """A budget of this set that nobody has touched; see :func:`untouched`."""
        return untouched(self.set, name, number)

    def usable(self, payer: Balance) -> Balance:
        """The budget with the part of its cap that may be used today.

        Raises:
            ParameterError: there is a budget of a block's name that is no block of this set.
        """
        if not payer.name.startswith(self.set.beginning):
            return payer
        expected = (BLOCK.name, self.set.parameters_of(payer.name))
        if (payer.kind, payer.parameters) != expected:  # guard: block-of-this-set
            raise ParameterError(
                f"there is a budget {payer.name!r} that is no block of {self.set.name!r}"
            )
        share = self.set.unlocked(payer.name, self.today)
        if share == 1:
            return payer
        cap = Units(*(amount * share.numerator // share.denominator for amount in payer.cap))
        # guard: locked-is-not-left
        return payer._replace(cap=cap.most(payer.spent.plus(payer.held)))


def untouched(of: BlockSet, name: str, number: int) -> Balance:
    """Returns a budget of a set that nobody has touched; it has no number in the ledger yet.

    Args:
        of: the set.
        name: of a block, or of the quota of an analyst.
        number: below 0, another one for each budget.
    """
    text = of.parameters_of(name)
    cap = BLOCK.cap_of(rule_of(BLOCK.name, text))
    return Balance.opened(number, name, kind=BLOCK.name, parameters=text, cap=cap)
