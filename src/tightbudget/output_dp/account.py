"""Accounts in memory: a price rule, and the state of a budget that is charged by it.

A mechanism is paid for in three steps: reserve -> start -> settle. The price of its worst case is
held before it runs; the price of the output that came out is charged when that is known. An
account adds prices exactly and takes one transaction at a time.
"""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

from tightbudget import notebook
from tightbudget.errors import BudgetError, SettlementError
from tightbudget.output_dp.amount import ZERO, Amount, ExactAmount, Price, amounts_table, in_short
from tightbudget.output_dp.guarantee import Cell, OutputDP, cell_name
from tightbudget.output_dp.pricing import PriceRule
from tightbudget.output_dp.transactions import Transactions, Uncopied, Variable, Write


class State(enum.Enum):
    """The states of a hold."""

    RESERVED = "reserved"
    STARTED = "started"
    SETTLED = "settled"
    FORFEITED = "forfeited"
    VOID = "void"


class _HoldRecord(NamedTuple):
    """The state of a hold, the cell that it was settled with, and the amount that it takes."""

    state: State
    cell: Cell | None
    charge: ExactAmount

    def __str__(self) -> str:
        return self.state.value + ("" if self.cell is None else f" with cell {self.cell!r}")


# Proof: proofs/account.v, theorems account_private, account_both_directions
class Hold(Uncopied):
    """The amount that :meth:`Account.reserve` holds for one run of a mechanism.

    A hold that nobody settles stays held, at the worst-case price. Whatever exception interrupts
    a transaction, say KeyboardInterrupt, the transaction happened wholly or not at all; to call
    the same method again is safe.
    """

    def __init__(self, account: Account, guarantee: OutputDP | Price, held: ExactAmount) -> None:
        self._account = account
        self._guarantee = guarantee
        self._record = Variable(_HoldRecord(state=State.RESERVED, cell=None, charge=held))

    @property
    def _now(self) -> _HoldRecord:
        return self._account._transactions.read(self._record)

    @property
    def _charge(self) -> ExactAmount:
        return self._now.charge

    @property
    def guarantee(self) -> OutputDP | Price:
        """The guarantee that the mechanism was reserved with."""
        return self._guarantee

    @property
    def state(self) -> State:
        """Reserved, started, settled, forfeited or void."""
        return self._now.state

    @property
    def cell(self) -> Cell | None:
        """The cell that the hold was settled with; None if it was not."""
        return self._now.cell

    @property
    def charge(self) -> Amount:
        """The amount that this run takes from the budget: the price held, until it is settled."""
        return self._account._shown(self._charge)

    def start(self) -> None:
        """Marks that the mechanism runs, once; from here on nothing but its cell frees epsilon.

        Raises:
            SettlementError: the hold was started before, or is over; or the process was forked.
        """

        def begin() -> list[Write]:
            if self._now.state is not State.RESERVED:  # guard: hold-started-once
                raise SettlementError(f"a hold is started once, and this one is {self}")
            return [(self._record, self._now._replace(state=State.STARTED))]

        self._account._transactions.run(begin)

    def settle(self, cell: Cell) -> Amount:
        """Charges the price of an output in ``cell``, and frees the rest of epsilon, not delta.

        A cell that was not declared costs the sup. The same cell again changes nothing. The
        price is an output, too: it is as public as what the mechanism answered.

        Returns:
            the price of the run: a receipt, to travel with the answer.

        Raises:
            SettlementError: the hold was settled with another cell before, forfeited, or void; or
                the process was forked.
        """
        settled = cell_name(cell)
        return self._end(State.SETTLED, settled, self._account.cost(self._guarantee, settled))

    # Proof: proofs/account.v, theorem never_settled
    def forfeit(self) -> Amount:
        """Charges the worst-case price, whatever came out.

        Raises:
            SettlementError: the hold was settled, or is void; or the process was forked.
        """
        return self._end(State.FORFEITED, None, self._account.cost(self._guarantee, None))

    def void(self) -> Amount:
        """Frees everything: the mechanism has not run, and never will.

        Raises:
            SettlementError: the hold was started or is over; or the process was forked.
        """
        return self._end(State.VOID, None, ZERO)

    def _end(self, state: State, cell: Cell | None, charge: ExactAmount) -> Amount:
        """Ends the hold in ``state`` at the price ``charge``, unless it ended in the same way."""

        def end() -> list[Write]:
            now = self._now
            if state is State.VOID and now.state is State.STARTED:  # guard: started-not-void
                raise SettlementError("a mechanism that was started is settled or forfeited")
            # guard: settling-again-changes-nothing
            if now.state in (State.RESERVED, State.STARTED):
                ended = (self._record, _HoldRecord(state=state, cell=cell, charge=charge))
                return [ended, *self._account._exchanged(self, held=now.charge, charge=charge)]
            if (now.state, now.cell) != (state, cell):  # guard: other-cell-refused
                asked = state.value if cell is None else f"{state.value} with cell {cell!r}"
                raise SettlementError(f"the hold is {now}, and cannot be {asked}")
            return []

        self._account._transactions.run(end)
        return self.charge

    def __str__(self) -> str:
        return str(self._now)


class _Balance(NamedTuple):
    """The state of one account; ``holders`` counts its holds and parts that are not ended."""

    spent: ExactAmount = ZERO
    held: ExactAmount = ZERO
    holders: int = 0
    closed: bool = False


# Proof: proofs/account.v, theorems account_private, account_both_directions
class Account(Uncopied):
    """A budget in memory that charges mechanisms by a price rule: a filter or an odometer.

    Guarantee: at any time spent + held is at most the cap, in exact arithmetic, also if many
    threads charge at once, and whatever exception is raised wherever in a transaction. After a
    fork the child's copy can be read, as things were, and cannot be charged; an account cannot be
    copied or pickled.

    Args:
        rule: the price rule that all guarantees are charged by.
    """

    def __init__(self, rule: PriceRule) -> None:
        self._rule = rule
        self._cap = rule.cap
        self._balance = Variable(_Balance())
        # an account and its parts share these two
        self._transactions = Transactions()
        self._conversations = Variable(frozenset[Hold]())

    # ------------------------------------------------------------------------- balances

    @property
    def unit(self) -> str:
        """The measure of privacy loss that the account counts, for instance "epsilon"."""
        return self._rule.unit

    @property
    def cap(self) -> ExactAmount | None:
        """The exact amount that may be spent and held together; None if there is no limit."""
        return self._cap

    @property
    def spent(self) -> Amount:
        """The prices of all holds that were settled or forfeited, rounded up."""
        return self._shown(self._spent)

    @property
    def held(self) -> Amount:
        """The prices held for mechanisms that are not settled, rounded up."""
        return self._shown(self._held)

    @property
    def left(self) -> Amount:
        """The amount that may still be reserved, rounded down (inf if there is no limit)."""
        left = self._left()
        if left is None:
            return Amount(amount=math.inf, delta=math.inf, unit=self.unit)
        return left.down(self.unit)

    @property
    def _now(self) -> _Balance:
        return self._transactions.read(self._balance)

    @property
    def _spent(self) -> ExactAmount:
        return self._now.spent

    @property
    def _held(self) -> ExactAmount:
        return self._now.held

    def _shown(self, amount: ExactAmount) -> Amount:
        """Rounds an amount up to floats."""
        return amount.up(self.unit)

    def _left(self) -> ExactAmount | None:
        """Returns the exact amount that may still be reserved; None if there is no limit."""
        now = self._now
        # guard: held-is-not-left
        return None if self._cap is None else self._cap.minus(now.spent).minus(now.held)

    def __repr__(self) -> str:
        forked = "; as it was when this process was forked, which cannot charge it"
        return (
            f"<{type(self).__name__}: spent {in_short(self.spent)}; held {in_short(self.held)}; "
            f"left {in_short(self.left)}" + forked * self._transactions.forked + ">"
        )

    def _repr_html_(self) -> str:
        """Writes a table of the amounts left, held and spent, with a bar, for a notebook."""
        spent, held, picture = self.spent, self.held, notebook.Html("")
        amounts = {"spent": spent, "held": held, "left": self.left}
        if self._cap is not None:
            amounts["cap"] = cap = self._cap.down(self.unit)
            picture = notebook.bar(spent=spent.amount, held=held.amount, cap=cap.amount)
        return notebook.shown(amounts_table(amounts, title=type(self).__name__), picture)

    # -------------------------------------------------------------------------- charges

    # Proof: proofs/account.v, theorem never_settled
    def reserve(self, guarantee: OutputDP | Price, *, interactive: bool = False) -> Hold:
        """Holds the worst-case price of a mechanism, before it runs.

        Where an exception keeps it from returning, it may be held all the same, for nobody.

        Args:
            guarantee: of the mechanism; it is fixed from here on.
            interactive: True if the mechanism answers more than once, and others may run in
                between. Several of these may be open only where every open one has delta = 0,
                and only where the account says so; the others must be settled first.

        Raises:
            BudgetError: the price does not fit into what is left.
            SettlementError: the account is closed, another interactive mechanism is open, or the
                process was forked from the one that made the account.
            ParameterError: this account cannot take such a guarantee.
        """
        held = self.cost(guarantee, None)
        hold = Hold(self, guarantee, held)

        def take() -> list[Write]:
            if not interactive:
                return [self._taken(held)]
            others = self._transactions.read(self._conversations)
            if others and not self._harmless(held, others):
                raise SettlementError(
                    "another interactive mechanism is open: settle it first"
                    + (" (or both must have delta = 0)" if self._rule.side_by_side else "")
                )
            return [self._taken(held), (self._conversations, others | {hold})]

        self._transactions.run(take)
        return hold

    def cost(self, guarantee: OutputDP | Price, cell: Cell | None) -> ExactAmount:
        """Returns the exact price of an output in ``cell``; None stands for the worst case.

        Raises:
            ParameterError: this account cannot take such a guarantee.
        """
        return self._rule.cost(guarantee, cell)

    # Proof: proofs/conversations.v, theorems side_by_side, capped
    # Proof: proofs/beside.v, theorem one_beside
    def _harmless(self, held: ExactAmount, others: frozenset[Hold]) -> bool:
        """Returns True if interactive mechanisms at these prices may be open side by side."""
        deltas = [held.delta, *(hold._charge.delta for hold in others)]
        return self._rule.side_by_side and not any(deltas)  # guard: conversations-delta-held-alone

    # Proof: proofs/account.v, theorems balances, fitting_is_reserved
    def _taken(self, amount: ExactAmount) -> Write:
        """Returns the balance with an amount held for one hold or part more.

        Raises:
            BudgetError: the amount does not fit into what is left.
            SettlementError: the account is closed.
        """
        now, left = self._now, self._left()
        if now.closed:  # guard: closed-account-takes-nothing
            raise SettlementError("the account is closed")
        if left is not None and not amount.fits(left):
            requested, held = self._shown(amount), self.held
            raise BudgetError(
                f"requested {requested}; left {self.left}; held {held}",
                requested=requested,
                left=self.left,
                held=held,
            )
        more = now.held.plus(amount)
        return self._balance, now._replace(held=more, holders=now.holders + 1)

    # Proof: proofs/account.v, theorems balances, nothing_lost
    def _exchanged(
        self, holder: Hold | Account, *, held: ExactAmount, charge: ExactAmount
    ) -> list[Write]:
        """Returns the balance with a charge spent in place of the amount held for ``holder``."""
        now, others = self._now, self._transactions.read(self._conversations)
        ended = now._replace(
            spent=now.spent.plus(charge), held=now.held.minus(held), holders=now.holders - 1
        )
        writes: list[Write] = [(self._balance, ended)]
        if holder in others:
            writes.append((self._conversations, others - {holder}))
        return writes
