"""Every guard of the room is taken away once, and something true must become false."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from flint import arb, ctx
from tests.guards.mutants import Without, each, lose_a_truth, mutate
from tests.output_dp.analyst import Finite, algorithm_1, worst_delta
from tests.output_dp.test_theorem_7 import FIRST, TELLTALE, leaky

import tightbudget as tb
from tightbudget.output_dp import amount, pricing
from tightbudget.output_dp.amount import ExactAmount

TENTH = tb.OutputDP({"number": 0.1, "nothing": 0}, delta=Fraction(1, 10))


RARE: Any = tb.OutputDP({"value": Fraction(1, 100)}, Fraction(1, 10), rho=1)


def not_charged(deed: Callable[[], Any]) -> bool:
    try:
        deed()
    except tb.ParameterError:
        return True
    return False


def theorem_7(cap: int, delta: Fraction, *mechanisms: Finite) -> bool:
    """No analyst gets more than the budget, in two rounds."""
    algorithm_1.cache_clear()
    worst = worst_delta(cap, delta, mechanisms, 2)
    algorithm_1.cache_clear()
    return worst <= delta


def refused(deed: Callable[[], Any]) -> bool:
    try:
        deed()
    except (tb.errors.BudgetError, tb.errors.SettlementError):
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
    return account.spent == tb.Amount(0.1, 0.1, "epsilon")


def a_part_is_closed_once() -> bool:
    account = tb.OutputDPFilter(1, 1)
    part = account.sub(0.5, 0.5)
    part.close()
    part.close()
    return account.held == tb.Amount(0.0, 0.0, "epsilon")


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
    Without(
        "delta never comes back",
        {
            "delta-never-comes-back": (
                "return ExactAmount(counted=epsilon, delta=stated.delta * (cell != 0))"
            )
        },
        lambda: theorem_7(0, Fraction(1, 10), TELLTALE),
    ),
    Without(
        "the sup is held",
        {
            "price-of-cell": (
                "epsilon = min(stated.cells.values()) if cell is None else stated.price(cell)"
            )
        },
        lambda: theorem_7(0, Fraction(1, 16), FIRST, leaky(1, Fraction(1, 16))),
    ),
    Without(
        "the price of the cell is charged",
        {"price-of-cell": "epsilon = stated.sup if cell is None else stated.price(cell) * 0"},
        lambda: theorem_7(2, Fraction(1, 16), FIRST, leaky(2, Fraction(1, 16))),
    ),
    Without(
        "what is not declared costs the sup",
        {"undeclared-costs-sup": "return self.cells.get(cell_name(cell), Fraction(0))"},
        lambda: tb.OutputDPFilter(1, 1).reserve(TENTH).settle("elsewhere").epsilon == 0.1,
    ),
    Without(
        "epsilon is compared",
        {"both-parts-compared": "return self.delta <= left.delta"},
        lambda: theorem_7(0, Fraction(1, 16), FIRST, leaky(1, Fraction(1, 16))),
    ),
    Without(
        "delta is compared",
        {"both-parts-compared": "return self.counted <= left.counted"},
        lambda: theorem_7(0, Fraction(1, 10), TELLTALE),
    ),
    Without(
        "what is held is not left",
        {"held-is-not-left": ("return None if self._cap is None else self._cap.minus(now.spent)")},
        what_is_held_is_not_left,
    ),
    Without(
        "settling again changes nothing",
        {"settling-again-changes-nothing": "if True:"},
        refuses_another_cell,
    ),
    Without(
        "another cell is refused",
        {"other-cell-refused": "if now.state != state:"},
        refuses_another_cell,
    ),
    Without(
        "what was started is not void", {"started-not-void": "if False:"}, refuses_to_void_what_ran
    ),
    Without("a hold is started once", {"hold-started-once": "if False:"}, refuses_a_second_start),
    Without(
        "conversations with delta are held alone",
        {"conversations-delta-held-alone": "return self._rule.side_by_side and True"},
        lambda: refuses_a_second_conversation("whole"),
    ),
    Without(
        "conversations elsewhere in the budget count",
        {"conversations-elsewhere-count": "self._transactions = parent._transactions"},
        lambda: refuses_a_second_conversation("part"),
    ),
    Without(
        "a closed part has spent what it spent",
        {
            "closed-part-stays-spent": (
                "return [ended, *self._parent._exchanged(self, held=self._whole, "
                "charge=now.spent.minus(now.spent))]"
            )
        },
        a_closed_part_has_spent,
    ),
    Without("a part is closed once", {"part-closed-once": "if False:"}, a_part_is_closed_once),
    Without(
        "a part with a run stays open",
        {"part-run-stays-open": "if False:"},
        a_part_with_a_run_stays_open,
    ),
    Without(
        "a closed account takes nothing",
        {"closed-account-takes-nothing": "if False:"},
        a_closed_account_takes_nothing,
    ),
    Without(
        "what is spent is rounded up",
        {"spent-rounded-up": "return y if Fraction(repr(y)) >= x else y"},
        lambda: third(lambda x: Fraction(repr(amount.printed_up(x))) >= x),
    ),
    Without(
        "what is left is rounded down",
        {"left-rounded-down": "return y if Fraction(repr(y)) <= x else y"},
        lambda: third(lambda x: Fraction(repr(amount.printed_down(x))) <= x),
    ),
    Without(
        "a divergence is that of delta = 0 alone",
        {"divergence-of-delta-zero": "if True:"},
        lambda: tb.RenyiFilter(8, 9).cost(RARE, None).counted == 8 * RARE.rho,
    ),
    Without(
        "a rho from epsilon is that of delta = 0 alone",
        {"rho-of-delta-zero": "return guarantee.sup**2 / 2"},
        lambda: tb.ZCDPFilter(9).cost(RARE, None).counted == RARE.rho,
    ),
    Without(
        "a rho is no mu",
        {"gaussian-dp-of-delta-zero": "squares = [2 * guarantee.rho]"},
        lambda: not_charged(lambda: tb.GaussianDPFilter(9).cost(RARE, None)),
    ),
    Without(
        "settled prices do not enter other formulas",
        {
            "worst-case-in-formulas": (
                "epsilon, delta = _output_dp(guarantee if cell is None else "
                "OutputDP({cell: guarantee.price(cell)}, guarantee.delta)).worst_case()"
            )
        },
        lambda: tb.AdvancedFilter(1, 0.5).reserve(TENTH).settle("nothing").amount == 0.005,
    ),
    Without(
        "the logarithm of a slack is one of less",
        {"log-slack-rounded-down": "return Fraction(math.log(float(x)))"},
        lambda: third(below_the_logarithm),
    ),
    Without(
        "a root is rounded up",
        {"root-rounded-up": "return _sqrt_down(x)"},
        lambda: third(lambda x: pricing._sqrt_up(x) ** 2 >= x),
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
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


@pytest.mark.slow
def test_without_the_lock_the_last_unit_is_granted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert granted_at_once(monkeypatch, tb.OutputDPFilter(1)._transactions._lock) == 1
    # where threads share one interpreter lock, the test whether an act is the next one is enough
    assert granted_at_once(monkeypatch, threading.Semaphore(4)) == 1
    mutate(monkeypatch, Without("", {"last-act-unchanged": "if True:"}, lambda: True))
    assert granted_at_once(monkeypatch, tb.OutputDPFilter(1)._transactions._lock) == 1
    assert granted_at_once(monkeypatch, threading.Semaphore(4)) > 1
