"""Filter and odometer: what is held, what is charged, what is refused, and who may be open."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import tightbudget as tb
from tightbudget.output_dp.account import State

COIN = tb.OutputDP({"number": 0.1, "nothing": 0}, delta=1e-7)


def table(account: tb.Account, text: str) -> None:
    """Plays a table: ``reserve A 0.3 | ok | spent | held``, line by line, and compares."""
    holds: dict[str, tb.Hold] = {}
    for line in text.strip().splitlines():
        deed, result, spent, held = (part.strip() for part in line.split("|"))
        verb, name, *rest = deed.split()
        try:
            if verb == "reserve":
                cells = {c: Decimal(price) for c, price in (part.split("=") for part in rest)}
                holds[name] = account.reserve(tb.OutputDP(cells))
            else:
                getattr(holds[name], verb)(*rest)
            seen = "ok"
        except tb.errors.BudgetError:
            seen = "too much"
        except tb.errors.SettlementError:
            seen = "no"
        assert (seen, account.spent.epsilon, account.held.epsilon) == (
            result,
            float(spent),
            float(held),
        ), line


# --------------------------------------------------------------------------- exact sums


def test_ten_charges_of_a_tenth_fit_into_one_and_an_eleventh_does_not() -> None:
    account = tb.OutputDPFilter(epsilon=1.0, delta=1e-6)
    for k in range(1, 11):
        account.reserve(COIN).settle("number")
        assert account.spent.epsilon == k / 10
    assert account.left == tb.Amount(0.0, 0.0, "epsilon")
    with pytest.raises(tb.errors.BudgetError) as caught:
        account.reserve(COIN)
    assert str(caught.value) == (
        "requested epsilon 0.1, delta 1e-07; left epsilon 0.0, delta 0.0; "
        "held epsilon 0.0, delta 0.0"
    )
    assert caught.value.requested == tb.Amount(0.1, 1e-7, "epsilon")
    assert caught.value.left == account.left
    assert caught.value.held == account.held
    assert account.spent.epsilon == 1.0  # a refusal charges nothing


def test_the_end_of_bounds_is_a_hair_above_the_decimal() -> None:
    """The double 0.1 is more than 1/10: as the end of a proof, it does not fit ten times."""
    account = tb.OutputDPFilter(1)
    proved = tb.OutputDP({"value": tb.Bounds(0.0, 0.1)})
    for _ in range(9):
        account.reserve(proved).settle("value")
    with pytest.raises(tb.errors.BudgetError):
        account.reserve(proved)


def test_one_delta_too_many_is_refused_and_says_so() -> None:
    account = tb.OutputDPFilter(10, 1e-7)
    account.reserve(COIN)
    with pytest.raises(
        tb.errors.BudgetError, match=r"left epsilon 9\.9, delta 0\.0; held epsilon 0\.1"
    ):
        account.reserve(COIN)


# ------------------------------------------------------------------------ hold and settle


def test_the_dearest_price_is_held_until_the_cell_is_known() -> None:
    table(
        tb.OutputDPFilter(1),
        """
        reserve A a=0.3 b=0.1 | ok       | 0   | 0.3
        reserve B a=0.6       | ok       | 0   | 0.9
        reserve C a=0.2       | too much | 0   | 0.9
        settle A b            | ok       | 0.1 | 0.6
        reserve C a=0.2 b=0   | ok       | 0.1 | 0.8
        settle C elsewhere    | ok       | 0.3 | 0.6
        settle B a            | ok       | 0.9 | 0
        """,
    )


def test_a_hold_is_settled_once() -> None:
    table(
        tb.OutputDPFilter(1),
        """
        reserve A a=0.3 b=0.1 | ok | 0   | 0.3
        start A               | ok | 0   | 0.3
        start A               | no | 0   | 0.3
        void A                | no | 0   | 0.3
        settle A b            | ok | 0.1 | 0
        settle A b            | ok | 0.1 | 0
        settle A a            | no | 0.1 | 0
        forfeit A             | no | 0.1 | 0
        start A               | no | 0.1 | 0
        reserve B a=0.3 b=0.1 | ok | 0.1 | 0.3
        forfeit B             | ok | 0.4 | 0
        forfeit B             | ok | 0.4 | 0
        settle B b            | no | 0.4 | 0
        void B                | no | 0.4 | 0
        reserve C a=0.3       | ok | 0.4 | 0.3
        void C                | ok | 0.4 | 0
        void C                | ok | 0.4 | 0
        settle C a            | no | 0.4 | 0
        start C               | no | 0.4 | 0
        """,
    )


def test_delta_comes_back_from_nothing_but_a_run_that_never_was() -> None:
    account = tb.OutputDPFilter(1, 1e-6)
    account.reserve(COIN).settle("nothing")
    assert (account.spent.epsilon, account.spent.delta) == (0.0, 1e-7)
    account.reserve(COIN).forfeit()
    assert (account.spent.epsilon, account.spent.delta) == (0.1, 2e-7)
    hold = account.reserve(COIN)
    assert account.held.delta == 1e-7
    hold.void()
    assert (account.spent.delta, account.held.delta, account.left.delta) == (2e-7, 0.0, 8e-7)


def test_the_charge_is_a_receipt() -> None:
    hold = tb.OutputDPFilter(1, 1e-6).reserve(COIN)
    assert hold.charge == tb.Amount(0.1, 1e-7, "epsilon")
    assert (hold.guarantee, hold.state, hold.cell) == (COIN, State.RESERVED, None)
    with pytest.raises(AttributeError):
        hold.guarantee = tb.OutputDP({"number": 0})  # type: ignore[misc]
    hold.start()
    assert hold.state is State.STARTED
    assert hold.settle("nothing") == hold.charge == tb.Amount(0.0, 1e-7, "epsilon")
    assert (hold.state, hold.cell, str(hold)) == (
        State.SETTLED,
        "nothing",
        "settled with cell 'nothing'",
    )
    assert str(hold.charge) == "epsilon 0.0, delta 1e-07"


def test_what_cannot_be_a_cell_frees_nothing() -> None:
    account = tb.OutputDPFilter(1)
    hold = account.reserve(tb.OutputDP({1: 0, 2: 1}))
    for cell in (True, 1.0, None, [1]):
        with pytest.raises(tb.ParameterError, match="cell must be a text, an integer"):
            hold.settle(cell)  # type: ignore[arg-type]
    assert account.held.epsilon == 1.0


def test_refusals_of_a_hold_say_where_it_stands() -> None:
    account = tb.OutputDPFilter(1)
    hold = account.reserve(tb.OutputDP({"a": 0.1, "b": 0.2}))
    hold.start()
    messages: list[tuple[Callable[[], Any], str]] = [
        (hold.start, "a hold is started once, and this one is started"),
        (hold.void, "a mechanism that was started is settled or forfeited"),
    ]
    settled = account.reserve(tb.OutputDP({"a": 0.1, "b": 0.2}))
    settled.settle("a")
    messages += [
        (
            lambda: settled.settle("b"),
            "the hold is settled with cell 'a', and cannot be settled with cell 'b'",
        ),
        (settled.forfeit, "the hold is settled with cell 'a', and cannot be forfeited"),
        (settled.void, "the hold is settled with cell 'a', and cannot be void"),
    ]
    for deed, message in messages:
        with pytest.raises(tb.errors.SettlementError, match=f"^{re.escape(message)}$"):
            deed()


# ---------------------------------------------------------------------- interactive holds

PURE = tb.OutputDP({"stop": 0.1})


def test_interactive_mechanisms_side_by_side_need_delta_0() -> None:
    account = tb.OutputDPFilter(10, 1e-3)
    first = account.reserve(PURE, interactive=True)
    second = account.reserve(PURE, interactive=True)
    with pytest.raises(
        tb.errors.SettlementError, match="another interactive mechanism is open: settle"
    ):
        account.reserve(COIN, interactive=True)
    first.settle("stop")
    second.forfeit()
    alone = account.reserve(COIN, interactive=True)
    for guarantee in (PURE, COIN):
        with pytest.raises(
            tb.errors.SettlementError, match=r"first \(or both must have delta = 0\)$"
        ):
            account.reserve(guarantee, interactive=True)
        account.reserve(guarantee).settle("stop")  # one-shot ones are no matter
    alone.void()
    account.reserve(COIN, interactive=True)


def test_conversations_in_other_parts_of_a_budget_count() -> None:
    account = tb.OutputDPFilter(10, 1e-3)
    part, other = account.sub(1, 1e-4), account.sub(1, 1e-4)
    hold = part.sub(0.5, 1e-4).reserve(COIN, interactive=True)
    for place in (account, part, other):
        with pytest.raises(
            tb.errors.SettlementError, match="another interactive mechanism is open"
        ):
            place.reserve(PURE, interactive=True)
    hold.settle("nothing")
    other.reserve(PURE, interactive=True)


# --------------------------------------------------------------------- odometer and parts


def test_an_odometer_adds_up_without_a_cap() -> None:
    odometer = tb.OutputDPOdometer()
    for _ in range(25):
        odometer.reserve(COIN).settle("number")
    pending = odometer.reserve(COIN)
    assert odometer.spent == tb.Amount(2.5, 2.5e-6, "epsilon")
    assert odometer.held == pending.charge
    assert odometer.left == tb.Amount(math.inf, math.inf, "epsilon")


@pytest.mark.parametrize("whole", [tb.OutputDPFilter(1, 1e-6), tb.OutputDPOdometer()])
def test_a_part_gives_back_what_it_did_not_spend(whole: tb.OutputDPOdometer) -> None:
    part = whole.sub(0.5, 5e-7)
    assert whole.held == tb.Amount(0.5, 5e-7, "epsilon")
    part.reserve(COIN).settle("number")
    part.reserve(COIN).settle("nothing")
    part.reserve(COIN).void()
    assert (whole.spent.epsilon, whole.held.epsilon) == (0.0, 0.5)
    # two runs of delta 1e-7: both are spent, also that of "nothing"; the rest was nobody's
    assert part.close() == whole.spent == tb.Amount(0.1, 2e-7, "epsilon")
    assert whole.held == tb.Amount(0.0, 0.0, "epsilon")
    assert part.close() == whole.spent  # closing twice gives nothing back twice
    with pytest.raises(tb.errors.SettlementError, match="the account is closed"):
        part.reserve(COIN)
    with pytest.raises(tb.errors.SettlementError, match="the account is closed"):
        part.sub(0)


def test_a_part_is_refused_and_closed_in_order() -> None:
    whole = tb.OutputDPFilter(1)
    part = whole.sub(0.75)
    with pytest.raises(
        tb.errors.BudgetError, match=r"requested epsilon 0\.5, .* left epsilon 0\.25"
    ):
        whole.sub(0.5)
    with pytest.raises(tb.errors.BudgetError):
        part.reserve(tb.OutputDP({"a": 0.8}))
    hold = part.sub(0.5).reserve(tb.OutputDP({"a": 0.25}))
    with pytest.raises(
        tb.errors.SettlementError, match=r"epsilon 0\.5, delta 0\.0 is still held here"
    ):
        part.close()
    with pytest.raises(
        tb.errors.SettlementError, match=r"epsilon 0\.75, delta 0\.0 is still held here"
    ):
        whole.close()
    assert hold.settle("a").epsilon == 0.25


# ---------------------------------------------------------------------------- the door


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: tb.OutputDPFilter(-1), "epsilon must be a finite number >= 0, got -1"),
        (lambda: tb.OutputDPFilter(math.inf), "epsilon must be a finite number >= 0, got inf"),
        (lambda: tb.OutputDPFilter(1, 2), "delta must be in [0, 1], got 2"),
        (lambda: tb.OutputDPFilter(1, math.nan), "delta must be in [0, 1], got nan"),
        (
            lambda: tb.OutputDPFilter(tb.Estimate(1.0, "Renyi")),  # type: ignore[arg-type]
            "epsilon must be certified (an Estimate cannot be charged to a budget)",
        ),
        (lambda: tb.OutputDPFilter(1).reserve(0.1), "guarantee must be an OutputDP, got 0.1"),
        (lambda: tb.OutputDPOdometer().reserve(0.1), "guarantee must be an OutputDP, got 0.1"),
        (lambda: tb.OutputDPFilter(1).sub(True), "epsilon must be a finite number >= 0, got True"),
    ],
)
def test_refusals(refused: Callable[[], Any], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(message)}"):
        refused()


def test_only_an_account_of_epsilon_has_an_epsilon() -> None:
    with pytest.raises(AttributeError, match="this is an amount of rho, not of epsilon"):
        _ = tb.ZCDPFilter(1).left.epsilon


# --------------------------------------------------------------------------- many threads


def test_threads_racing_for_the_last_unit_get_exactly_what_fits() -> None:
    account = tb.OutputDPFilter(Fraction(60), 1)
    tenth = tb.OutputDP({"dear": 0.1, "free": 0}, delta=Fraction(1, 1000))
    granted: list[int] = []
    start = threading.Barrier(8)

    def analyst() -> None:
        start.wait()
        mine = 0
        for k in range(250):
            try:
                hold = account.reserve(tenth)
            except tb.errors.BudgetError:
                continue
            hold.settle("dear" if k % 2 else "free")
            mine += 1
        granted.append(mine)

    threads = [threading.Thread(target=analyst) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == 1000  # of 2000: delta ends first
    assert account.left.delta == account.held.delta == account.held.epsilon == 0.0
    assert account.spent.delta == 1.0


def test_an_account_and_its_parts_act_in_turn() -> None:
    account = tb.OutputDPFilter(1)
    assert account.sub(0.5).sub(0.25)._transactions is account._transactions
