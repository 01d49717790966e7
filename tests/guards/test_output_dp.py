"""Every guard of the room is taken away once, and something true must become false."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from flint import arb, ctx
from tests.guards.mutants import Mutation, each, lose_a_truth, mutate
from tests.output_dp.analyst import Finite, algorithm_1, worst_delta
from tests.output_dp.test_theorem_7 import FIRST, TELLTALE, leaky

import tightbudget as tb
from tightbudget.output_dp import amount, pricing
from tightbudget.output_dp.account import Account, Hold
from tightbudget.output_dp.amount import ExactAmount
from tightbudget.output_dp.filter import OutputDPFilter
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.output_dp.pricing import AdvancedRule, OutputDPOdometerRule
from tightbudget.output_dp.transactions import Transactions

TENTH = tb.OutputDP({"number": 0.1, "nothing": 0}, delta=Fraction(1, 10))


def theorem_7(cap: int, delta: Fraction, *mechanisms: Finite) -> bool:
    """No analyst gets more than the budget, in two rounds."""
    algorithm_1.cache_clear()
    worst = worst_delta(cap, delta, mechanisms, 2)
    algorithm_1.cache_clear()
    return worst <= delta


def refused(deed: Callable[[], Any]) -> bool:
    try:
        deed()
    except (tb.BudgetError, tb.SettlementError):
        return True
    return False


def refuses_another_cell() -> bool:
    hold = tb.OutputDPFilter(1, 1).reserve(TENTH)
    hold.settle("number")
    return refused(lambda: hold.settle("nothing"))


def refuses_to_void_what_ran() -> bool:
    hold = tb.OutputDPFilter(1, 1).reserve(TENTH)
    hold.start()
    return refused(hold.void)


def refuses_a_second_start() -> bool:
    hold = tb.OutputDPFilter(1, 1).reserve(TENTH)
    hold.start()
    return refused(hold.start)


def refuses_a_second_conversation(place: str) -> bool:
    account = tb.OutputDPFilter(1, 1)
    account.sub(0.5, 0.5).reserve(TENTH, interactive=True)
    other = account if place == "whole" else account.sub(0.5, 0.5)
    return refused(lambda: other.reserve(tb.OutputDP({"a": 0}), interactive=True))


def a_closed_part_has_spent() -> bool:
    account = tb.OutputDPFilter(1, 1)
    part = account.sub(1, 1)
    part.reserve(TENTH).settle("number")
    part.close()
    return account.spent == tb.Budget(0.1, 0.1, "epsilon")


def a_part_is_closed_once() -> bool:
    account = tb.OutputDPFilter(1, 1)
    part = account.sub(0.5, 0.5)
    part.close()
    part.close()
    return account.held == tb.Budget(0.0, 0.0, "epsilon")


def a_part_with_a_run_stays_open() -> bool:
    part = tb.OutputDPFilter(1, 1).sub(1, 1)
    part.reserve(TENTH)
    return refused(part.close)


def a_closed_account_takes_nothing() -> bool:
    account = tb.OutputDPFilter(1, 1)
    account.close()
    return refused(lambda: account.reserve(TENTH))


def third(safe: Callable[[Fraction], bool]) -> bool:
    return all(safe(Fraction(k, 3)) for k in range(1, 100))


def below_the_logarithm(x: Fraction) -> bool:
    with ctx.workprec(200):
        return bool(arb_of(pricing._log_down(x)) <= arb_of(x).log())


def arb_of(x: Fraction) -> arb:
    return arb(x.numerator) / arb(x.denominator)


def what_is_held_is_not_left() -> bool:
    account = tb.OutputDPFilter(1, 0.1)
    account.reserve(TENTH)
    return refused(lambda: account.reserve(TENTH))


MUTATIONS = [
    Mutation(
        "delta never comes back",
        OutputDPOdometerRule,
        "cost",
        (("delta=stated.delta", "delta=stated.delta * (cell != 0)"),),
        lambda: theorem_7(0, Fraction(1, 10), TELLTALE),
    ),
    Mutation(
        "the sup is held",
        OutputDPOdometerRule,
        "cost",
        (("stated.sup if cell is None", "min(stated.cells.values()) if cell is None"),),
        lambda: theorem_7(0, Fraction(1, 16), FIRST, leaky(1, Fraction(1, 16))),
    ),
    Mutation(
        "the price of the cell is charged",
        OutputDPOdometerRule,
        "cost",
        (("stated.price(cell)", "stated.price(cell) * 0"),),
        lambda: theorem_7(2, Fraction(1, 16), FIRST, leaky(2, Fraction(1, 16))),
    ),
    Mutation(
        "what is not declared costs the sup",
        OutputDP,
        "price",
        (("cell_name(cell), self.sup", "cell_name(cell), Fraction(0)"),),
        lambda: tb.OutputDPFilter(1, 1).reserve(TENTH).settle("elsewhere").epsilon == 0.1,
    ),
    Mutation(
        "epsilon is compared",
        ExactAmount,
        "fits",
        (("self.counted <= left.counted and", ""),),
        lambda: theorem_7(0, Fraction(1, 16), FIRST, leaky(1, Fraction(1, 16))),
    ),
    Mutation(
        "delta is compared",
        ExactAmount,
        "fits",
        (("and self.delta <= left.delta", ""),),
        lambda: theorem_7(0, Fraction(1, 10), TELLTALE),
    ),
    Mutation(
        "what is held is not left",
        Account,
        "_left",
        ((".minus(now.held)", ""),),
        what_is_held_is_not_left,
    ),
    Mutation(
        "settling again changes nothing",
        Hold,
        "_end",
        (("if now.state in (State.RESERVED, State.STARTED)", "if True"),),
        refuses_another_cell,
    ),
    Mutation(
        "another cell is refused",
        Hold,
        "_end",
        (("(now.state, now.cell) != (state, cell)", "now.state != state"),),
        refuses_another_cell,
    ),
    Mutation(
        "what was started is not void",
        Hold,
        "_end",
        (("if state is State.VOID and now.state is State.STARTED", "if False"),),
        refuses_to_void_what_ran,
    ),
    Mutation(
        "a hold is started once",
        Hold,
        "start",
        (("if self._now.state is not State.RESERVED", "if False"),),
        refuses_a_second_start,
    ),
    Mutation(
        "conversations with delta are held alone",
        Account,
        "_harmless",
        (("not any(deltas)", "True"),),
        lambda: refuses_a_second_conversation("whole"),
    ),
    Mutation(
        "conversations elsewhere in the budget count",
        OutputDPFilter,
        "_join",
        (
            (
                ", self._conversations = parent._transactions, parent._conversations",
                " = parent._transactions",
            ),
        ),
        lambda: refuses_a_second_conversation("part"),
    ),
    Mutation(
        "a closed part has spent what it spent",
        OutputDPFilter,
        "close",
        (("charge=now.spent", "charge=now.spent.minus(now.spent)"),),
        a_closed_part_has_spent,
    ),
    Mutation(
        "a part is closed once",
        OutputDPFilter,
        "close",
        (("if now.closed", "if False"),),
        a_part_is_closed_once,
    ),
    Mutation(
        "a part with a run stays open",
        OutputDPFilter,
        "close",
        (("if now.holders", "if False"),),
        a_part_with_a_run_stays_open,
    ),
    Mutation(
        "a closed account takes nothing",
        Account,
        "_taken",
        (("if now.closed", "if False"),),
        a_closed_account_takes_nothing,
    ),
    Mutation(
        "what is spent is rounded up",
        amount,
        "printed_up",
        (("else next_up(y)", "else y"),),
        lambda: third(lambda x: Fraction(repr(amount.printed_up(x))) >= x),
    ),
    Mutation(
        "what is left is rounded down",
        amount,
        "printed_down",
        (("else next_down(y)", "else y"),),
        lambda: third(lambda x: Fraction(repr(amount.printed_down(x))) <= x),
    ),
    Mutation(
        "settled prices do not enter other formulas",
        AdvancedRule,
        "cost",
        (
            (
                "_output_dp(guarantee).worst_case()",
                "_output_dp(guarantee if cell is None else "
                "OutputDP({cell: guarantee.price(cell)}, guarantee.delta)).worst_case()",
            ),
        ),
        lambda: tb.AdvancedFilter(1, 0.5).reserve(TENTH).settle("nothing").amount == 0.005,
    ),
    Mutation(
        "the logarithm of a slack is one of less",
        pricing,
        "_log_down",
        (("log_down(next_down(float(x)))", "math.log(float(x))"),),
        lambda: third(below_the_logarithm),
    ),
    Mutation(
        "a root is rounded up",
        pricing,
        "_sqrt_up",
        (("+ Fraction(1, _SCALE)", ""),),
        lambda: third(lambda x: pricing._sqrt_up(x) ** 2 >= x),
    ),
]


@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Mutation
) -> None:
    lose_a_truth(monkeypatch, mutation)


NEXT = "if self._last is last"


def granted_at_once(monkeypatch: pytest.MonkeyPatch, lock: Any) -> int:
    """How many of four threads get the last unit, if looking takes its time."""
    account = tb.OutputDPFilter(0.1, 0.1)
    account._transactions._lock = lock
    fits = ExactAmount.fits

    def slowly(amount: ExactAmount, left: ExactAmount) -> bool:
        seen = fits(amount, left)
        time.sleep(0.05)
        return seen

    monkeypatch.setattr(ExactAmount, "fits", slowly)
    missed: list[bool] = []
    threads = [
        threading.Thread(target=lambda: missed.append(refused(lambda: account.reserve(TENTH))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return missed.count(False)


def test_without_the_lock_the_last_unit_is_granted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert granted_at_once(monkeypatch, tb.OutputDPFilter(1)._transactions._lock) == 1
    # where threads share one interpreter lock, the test whether an act is the next one is enough
    assert granted_at_once(monkeypatch, contextlib.nullcontext()) == 1
    mutate(monkeypatch, Mutation("", Transactions, "run", ((NEXT, "if True"),), lambda: True))
    assert granted_at_once(monkeypatch, tb.OutputDPFilter(1)._transactions._lock) == 1
    assert granted_at_once(monkeypatch, contextlib.nullcontext()) > 1
