"""What all filters have in common: holds, one lock, and sums that are exact.

A mechanism is paid for in three steps: reserve -> start -> settle. What its dearest output
would cost is held before it runs; what its output did cost is charged when that is known.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

from tightbudget.errors import BudgetError, SettlementError
from tightbudget.output_dp.acts import Acts, Change, Record, Uncopied
from tightbudget.output_dp.amount import Price, printed_down, printed_up
from tightbudget.output_dp.guarantee import Cell, OutputDP, cell_name

__all__ = ["Account", "Amount", "Budget", "Hold", "State"]


class Amount(NamedTuple):
    """Exact sums: of what the account counts (epsilon, rho, ...), and of delta."""

    counted: Fraction
    delta: Fraction

    def plus(self, other: Amount) -> Amount:
        """Each component's sum."""
        return Amount(self.counted + other.counted, self.delta + other.delta)

    def minus(self, other: Amount) -> Amount:
        """Each component's difference."""
        return Amount(self.counted - other.counted, self.delta - other.delta)

    def fits(self, left: Amount) -> bool:
        """Whether no component is larger."""
        return self.counted <= left.counted and self.delta <= left.delta


_NOTHING = Amount(Fraction(0), Fraction(0))


@dataclass(frozen=True)
class Budget:
    """What is spent, held or left, as floats on the safe side: what is left rounded down.

    Attributes:
        amount: of what the account counts.
        delta: the sum of the deltas.
        unit: what the account counts: "epsilon", or another measure of loss.
    """

    amount: float
    delta: float
    unit: str

    @property
    def epsilon(self) -> float:
        """The amount, where it is one of epsilon.

        Raises:
            AttributeError: the account counts something else.
        """
        if self.unit != "epsilon":
            raise AttributeError(f"this is an amount of {self.unit}, not of epsilon")
        return self.amount

    def __str__(self) -> str:
        return f"{self.unit} {self.amount!r}, delta {self.delta!r}"


class State(enum.Enum):
    """How far a hold has come."""

    RESERVED = "reserved"
    STARTED = "started"
    SETTLED = "settled"
    FORFEITED = "forfeited"
    VOID = "void"


class _Course(NamedTuple):
    """How far a hold has come, the cell it was settled with, and what it takes."""

    state: State
    cell: Cell | None
    charge: Amount

    def __str__(self) -> str:
        return self.state.value + ("" if self.cell is None else f" with cell {self.cell!r}")


class Hold(Uncopied):
    """What :meth:`Account.reserve` holds for one run of a mechanism, until it is settled.

    A hold that nobody settles stays held, at the dearest price. An exception in the midst of an
    act, say KeyboardInterrupt, finds it not done at all, or done; the same act again is safe.
    """

    def __init__(self, account: Account, guarantee: OutputDP | Price, held: Amount) -> None:
        self._account = account
        self._guarantee = guarantee
        self._course = Record(_Course(State.RESERVED, None, held))

    @property
    def _now(self) -> _Course:
        return self._account._acts.read(self._course)

    @property
    def _charge(self) -> Amount:
        return self._now.charge

    @property
    def guarantee(self) -> OutputDP | Price:
        """What was reserved for."""
        return self._guarantee

    @property
    def state(self) -> State:
        """Reserved, started, settled, forfeited or void."""
        return self._now.state

    @property
    def cell(self) -> Cell | None:
        """What it was settled with."""
        return self._now.cell

    @property
    def charge(self) -> Budget:
        """What this run takes from the budget: until it is settled, what is held for it."""
        return self._account._budget(self._charge)

    def start(self) -> None:
        """Marks that the mechanism runs, once; from here on nothing but its cell frees epsilon.

        Raises:
            SettlementError: the hold was started before, or is over; or the process was forked.
        """

        def begin() -> list[Change]:
            if self._now.state is not State.RESERVED:
                raise SettlementError(f"a hold is started once, and this one is {self}")
            return [(self._course, self._now._replace(state=State.STARTED))]

        self._account._acts.do(begin)

    def settle(self, cell: Cell) -> Budget:
        """Charges what an output in ``cell`` costs, and frees the rest of epsilon, not delta.

        A cell that was not declared costs the sup. The same cell again changes nothing. The
        price is an output, too: it is as public as what the mechanism answered.

        Returns:
            what the run has cost: a receipt, to travel with the answer.

        Raises:
            SettlementError: settled with another cell before, forfeited, or void; or the process
                was forked.
        """
        settled = cell_name(cell)
        return self._end(State.SETTLED, settled, self._account.cost(self._guarantee, settled))

    def forfeit(self) -> Budget:
        """Charges the dearest price, whatever came out.

        Raises:
            SettlementError: the hold was settled, or is void; or the process was forked.
        """
        return self._end(State.FORFEITED, None, self._account.cost(self._guarantee, None))

    def void(self) -> Budget:
        """Frees everything: the mechanism has not run, and never will.

        Raises:
            SettlementError: the hold was started or is over; or the process was forked.
        """
        return self._end(State.VOID, None, _NOTHING)

    def _end(self, state: State, cell: Cell | None, charge: Amount) -> Budget:
        def end() -> list[Change]:
            now = self._now
            if state is State.VOID and now.state is State.STARTED:
                raise SettlementError("a mechanism that was started is settled or forfeited")
            if now.state in (State.RESERVED, State.STARTED):
                ended = (self._course, _Course(state, cell, charge))
                return [ended, *self._account._exchanged(self, held=now.charge, charge=charge)]
            if (now.state, now.cell) != (state, cell):
                asked = state.value if cell is None else f"{state.value} with cell {cell!r}"
                raise SettlementError(f"the hold is {now}, and cannot be {asked}")
            return []

        self._account._acts.do(end)
        return self.charge

    def __str__(self) -> str:
        return str(self._now)


class _Balance(NamedTuple):
    """The state of one account."""

    spent: Amount = _NOTHING
    held: Amount = _NOTHING
    holders: int = 0  # holds and parts that are not ended
    closed: bool = False


class Account(Uncopied):
    """What filters and odometers have in common; they differ in what a mechanism costs.

    Guarantee: at any time spent + held is at most the cap, in exact arithmetic, also if many
    threads charge at once, and whatever exception is raised wherever in an act. After a fork the
    child's copy can be read, as things were, and cannot be charged; it cannot be copied or pickled.
    """

    unit: ClassVar[str]
    # whether interactive mechanisms may be open side by side if all of them have delta = 0
    side_by_side: ClassVar[bool] = False

    def __init__(self, cap: Amount | None) -> None:
        self._cap = cap
        self._balance = Record(_Balance())
        # an account and its parts share these two
        self._acts = Acts()
        self._conversations = Record(frozenset[Hold]())

    # ------------------------------------------------------------------------- balances

    @property
    def cap(self) -> Amount | None:
        """What spent and held may come to, exactly; None where there is no cap."""
        return self._cap

    @property
    def spent(self) -> Budget:
        """What was settled or forfeited."""
        return self._budget(self._spent)

    @property
    def held(self) -> Budget:
        """What is held for mechanisms that are not settled."""
        return self._budget(self._held)

    @property
    def left(self) -> Budget:
        """What may still be reserved (inf where there is no cap)."""
        left = self._left()
        if left is None:
            return Budget(math.inf, math.inf, self.unit)
        return Budget(printed_down(left.counted), printed_down(left.delta), self.unit)

    @property
    def _now(self) -> _Balance:
        return self._acts.read(self._balance)

    @property
    def _spent(self) -> Amount:
        return self._now.spent

    @property
    def _held(self) -> Amount:
        return self._now.held

    def _budget(self, amount: Amount) -> Budget:
        """An amount as floats, rounded up."""
        return Budget(printed_up(amount.counted), printed_up(amount.delta), self.unit)

    def _left(self) -> Amount | None:
        now = self._now
        return None if self._cap is None else self._cap.minus(now.spent).minus(now.held)

    def __repr__(self) -> str:
        forked = "; as it was when this process was forked, which cannot charge it"
        return (
            f"<{type(self).__name__}: spent {self.spent}; held {self.held}; left {self.left}"
            + forked * self._acts.forked
            + ">"
        )

    # -------------------------------------------------------------------------- charges

    def reserve(self, guarantee: OutputDP | Price, *, interactive: bool = False) -> Hold:
        """Holds what the mechanism's dearest output would cost, before it runs.

        Where an exception keeps it from returning, it may be held all the same, for nobody.

        Args:
            guarantee: of the mechanism; it is fixed from here on.
            interactive: it answers more than once, and others may run in between. Several
                of these may be open only where every open one has delta = 0, and only where
                the account says so; the others must be settled first.

        Raises:
            BudgetError: it does not fit into what is left.
            SettlementError: the account is closed, another interactive mechanism is open, or the
                process was forked from the one that made the account.
            ParameterError: this account cannot take such a guarantee.
        """
        held = self.cost(guarantee, None)
        hold = Hold(self, guarantee, held)

        def take() -> list[Change]:
            if not interactive:
                return [self._taken(held)]
            others = self._acts.read(self._conversations)
            if others and not self._harmless(held, others):
                raise SettlementError(
                    "another interactive mechanism is open: settle it first"
                    + (" (or both must have delta = 0)" if self.side_by_side else "")
                )
            return [self._taken(held), (self._conversations, others | {hold})]

        self._acts.do(take)
        return hold

    def cost(self, guarantee: OutputDP | Price, cell: Cell | None) -> Amount:
        """What an output in the cell costs, exactly; at most, if the cell is None.

        Raises:
            ParameterError: this account cannot take such a guarantee.
        """
        raise NotImplementedError

    def _harmless(self, held: Amount, others: frozenset[Hold]) -> bool:
        deltas = [held.delta, *(hold._charge.delta for hold in others)]
        return self.side_by_side and not any(deltas)

    def _taken(self, amount: Amount) -> Change:
        """The balance with one hold or part more.

        Raises:
            BudgetError: it does not fit.
            SettlementError: the account is closed.
        """
        now, left = self._now, self._left()
        if now.closed:
            raise SettlementError("the account is closed")
        if left is not None and not amount.fits(left):
            requested, held = self._budget(amount), self.held
            raise BudgetError(
                f"requested {requested}; left {self.left}; held {held}",
                requested=requested,
                left=self.left,
                held=held,
            )
        more = now.held.plus(amount)
        return self._balance, now._replace(held=more, holders=now.holders + 1)

    def _exchanged(self, holder: Hold | Account, held: Amount, charge: Amount) -> list[Change]:
        """What was held for a hold or a part of the account becomes what it has cost."""
        now, others = self._now, self._acts.read(self._conversations)
        ended = now._replace(
            spent=now.spent.plus(charge), held=now.held.minus(held), holders=now.holders - 1
        )
        changes: list[Change] = [(self._balance, ended)]
        if holder in others:
            changes.append((self._conversations, others - {holder}))
        return changes
