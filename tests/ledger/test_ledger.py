"""What a caller sees of a ledger: answers, refusals that say what is there, and receipts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import pytest

import tightbudget as tb
from tightbudget.ledger import history
from tightbudget.output_dp.account import State
from tightbudget.output_dp.guarantee import Cell

COIN = tb.OutputDP({"number": 0.1, "nothing": 0}, delta=1e-7)


@pytest.fixture
def ledger(url: str) -> Iterator[tb.Ledger]:
    with tb.Ledger(url) as ledger:
        yield ledger
        ledger.verify()


@pytest.fixture
def data(ledger: tb.Ledger) -> tb.ledger.LedgerBudget:
    return ledger.open_budget("data", epsilon=1, delta=1e-6)


# ----------------------------------------------------------------------------- one run


def test_a_receipt_travels_with_the_answer(ledger: tb.Ledger, data: tb.ledger.LedgerBudget) -> None:
    hold = data.reserve("A1", COIN)
    assert (hold.key, hold.state, hold.guarantee, hold.cell) == ("A1", State.RESERVED, COIN, None)
    assert (hold.told, hold.token, hold.interactive) == (None, None, False)
    assert hold.charge == data.held == tb.Amount(0.1, 1e-7, "epsilon")
    hold.start()
    assert hold.state is State.STARTED
    assert hold.settle("nothing") == hold.charge == tb.Amount(0.0, 1e-7, "epsilon")
    assert (hold.state, hold.cell) == (State.SETTLED, "nothing")
    assert (data.spent, data.saved) == (hold.charge, tb.Amount(0.1, 0.0, "epsilon"))
    assert repr(hold) == "<LedgerHold 'A1': settled with cell \"nothing\">"
    again = ledger.hold("A1")
    assert (again.state, again.cell, again.charges) == (hold.state, hold.cell, hold.charges)


def test_a_token_of_the_caller_s_settles_the_run(ledger: tb.Ledger) -> None:
    hold = ledger.open_budget("data", epsilon=1, delta=1e-6).reserve("A1", COIN)
    token = "0123456789abcdef" * 2
    hold.start(token=token)
    assert hold.token == token
    with pytest.raises(tb.errors.SettlementError, match="a hold is started once"):
        ledger.hold("A1").start(token=token)
    with pytest.raises(tb.errors.FencingError):
        ledger.hold("A1", token="f" * 32).settle("nothing")
    ledger.hold("A1", token=token).settle("nothing")
    assert not [event for event in ledger.events() if token in str(event)]


@pytest.mark.parametrize("token", ["", "0" * 31, "0" * 33, "g" * 32, "A" * 32, "0" * 32 + "\n", 7])
def test_another_text_is_no_token_and_starts_nothing(token: Any, ledger: tb.Ledger) -> None:
    hold = ledger.open_budget("data", epsilon=1, delta=1e-6).reserve("A1", COIN)
    with pytest.raises(tb.ParameterError, match="token must be 32 hexadecimal digits") as refused:
        hold.start(token=token)
    assert str(refused.value).endswith(", got something else")
    assert ledger.hold("A1").state.value == "reserved"
    hold.start()


def test_cells_of_any_shape_come_back_as_they_were(data: tb.ledger.LedgerBudget) -> None:
    cells: list[Cell] = ["a", -(10**30), (1, ("b", 2)), (), "\x00\ufffd"]
    for i, cell in enumerate(cells):
        hold = data.reserve(f"k{i}", tb.OutputDP({cell: 0.01, "other": 0.1}))
        hold.start()
        assert hold.settle(cell).epsilon == 0.01
        assert hold.cell == cell


def test_a_cell_that_is_too_long_to_be_one_is_refused(data: tb.ledger.LedgerBudget) -> None:
    hold = data.reserve("k", COIN)
    hold.start()
    for cell in ("x" * 10_000, 10**5000):
        with pytest.raises(tb.ParameterError, match="cell must have at most 10000 characters"):
            hold.settle(cell)
    assert hold.state is State.STARTED


def test_the_history_says_it_all(ledger: tb.Ledger, data: tb.ledger.LedgerBudget) -> None:
    hold = data.reserve("A1", COIN)
    hold.start()
    hold.forfeit(by="eve", reason="the machine is gone")
    with pytest.raises(tb.BudgetExceeded):
        data.reserve("A2", tb.OutputDP.from_dp(2))
    data.reserve("A3", COIN)
    ledger.expire("A3", by="eve", reason="left lying")
    events = list(ledger.events())
    assert [(e.sequence, e.kind, e.key, e.epsilon, e.delta) for e in events] == [
        (1, "opened", None, 1.0, 1e-6),
        (2, "reserved", "A1", 0.1, 1e-7),
        (3, "started", "A1", 0.0, 0.0),
        (4, "forfeited", "A1", 0.1, 1e-7),
        (5, "refused", "A2", 2.0, 0.0),
        (6, "reserved", "A3", 0.1, 1e-7),
        (7, "expired", "A3", 0.0, 0.0),
    ]
    assert events[3].details == {"by": "eve", "reason": "the machine is gone"}
    assert [e.sequence for e in ledger.events(key="A1")] == [2, 3, 4]
    assert list(ledger.events(budget="data")) == list(data.history()) == events
    assert str(ledger.head()) == f"tightbudget-ledger:1:7:{events[-1].hash}"


def test_long_histories_are_read_page_by_page(
    ledger: tb.Ledger, data: tb.ledger.LedgerBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(6):
        data.reserve(f"k{i}", tb.OutputDP.from_dp(0.1))
    monkeypatch.setattr(history, "_PAGE", 2)
    assert [e.sequence for e in ledger.events()] == [1, 2, 3, 4, 5, 6, 7]
    assert [e.sequence for e in ledger.events(after=2, limit=3)] == [3, 4, 5]
    assert list(ledger.events(limit=0)) == []


# ---------------------------------------------------------------------------- refusals


def test_a_refusal_says_requested_left_held_and_by_whom(
    ledger: tb.Ledger, data: tb.ledger.LedgerBudget
) -> None:
    ledger.open_budget("ada", epsilon=0.25, parent=data)
    data.reserve("A1", COIN)
    data.reserve("A2", tb.OutputDP.from_dp(0.3)).start()
    for _ in range(2):  # and it stays the answer
        with pytest.raises(tb.BudgetExceeded) as caught:
            data.reserve("A3", tb.OutputDP.from_dp(0.5, 1e-8))
        error = caught.value
        assert str(error) == (
            "requested epsilon 0.5, delta 1e-08 of 'data'; left epsilon 0.35, delta 9e-07;"
            " held epsilon 0.65, delta 1e-07 by 'A2', 'ada', 'A1'"
        )
        assert error.requested == tb.Amount(0.5, 1e-8, "epsilon")
        assert error.left == tb.Amount(0.35, 9e-7, "epsilon")
        assert error.held == tb.Amount(0.65, 1e-7, "epsilon")
        assert (error.budget, error.holds) == ("data", ("A2", "ada", "A1"))
        ledger.hold("A1").void()
    with pytest.raises(tb.BudgetExceeded, match="'A2', 'ada', 'A1'"):
        ledger.hold("A3")
    with pytest.raises(
        tb.errors.SettlementError, match=r"^'A3' was refused: requested epsilon 0.5"
    ):
        ledger.expire("A3", by="eve", reason="why not")


def test_of_many_holders_the_largest_are_named(data: tb.ledger.LedgerBudget) -> None:
    for i in range(12):
        data.reserve(f"k{i:02}", tb.OutputDP.from_dp(Fraction(i + 1, 100)))
    with pytest.raises(
        tb.BudgetExceeded, match=r"by 'k11', 'k10', .*, 'k02' and 2 more$"
    ) as caught:
        data.reserve("more", tb.OutputDP.from_dp(1))
    assert len(caught.value.holds) == 10


def test_what_is_nearly_left_is_granted_and_told(data: tb.ledger.LedgerBudget) -> None:
    for key in ("1", "2"):
        assert data.reserve(key, tb.OutputDP.from_dp(Fraction(1, 3))).told is None
    third = data.reserve("3", tb.OutputDP.from_dp(Fraction(1, 3)))
    assert third.told == (
        "granted epsilon 0.333333333332, delta 0.0 of 'data', which is all that is left, for the"
        " epsilon 0.333333333334, delta 0.0 requested: run it with no more"
    )
    assert data.left == tb.Amount(0.0, 1e-6, "epsilon")
    assert data.held.epsilon == 1.0
    third.start()
    assert third.settle("any").epsilon == 0.333333333332


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("deed", "error", "message"),
    [
        (
            lambda ledger, h: h.settle("number"),
            tb.errors.SettlementError,
            "'A1' is reserved, and cannot be settled with cell \"number\"",
        ),
        (
            lambda ledger, h: (h.start(), h.start()),
            tb.errors.SettlementError,
            "a hold is started once, and 'A1' is started",
        ),
        (
            lambda ledger, h: (h.start(), h.void()),
            tb.errors.SettlementError,
            "'A1' is started: only what was not started is freed",
        ),
        (
            lambda ledger, h: (h.void(), h.forfeit()),
            tb.errors.SettlementError,
            "'A1' is void, and cannot be forfeited",
        ),
        (
            lambda ledger, h: (h.start(), h.settle("number"), h.settle("nothing")),
            tb.errors.SettlementError,
            '\'A1\' is settled with cell "number", and cannot be settled with cell "nothing"',
        ),
        (
            lambda ledger, h: (h.start(), ledger.hold("A1").settle("nothing")),
            tb.errors.FencingError,
            "'A1' is settled with the token of its start, got None",
        ),
        (
            lambda ledger, h: (h.start(), ledger.hold("A1", token="0" * 32).settle("nothing")),
            tb.errors.FencingError,
            "'A1' is settled with the token of its start, got another",
        ),
        (
            lambda ledger, h: (h.start(), ledger.hold("A1").forfeit(), h.settle("nothing")),
            tb.errors.FencingError,
            "the run 'A1' was overruled: it is forfeited, at the worst-case price",
        ),
        (
            lambda ledger, h: ledger.hold("A9"),
            tb.errors.SettlementError,
            "there is no reservation 'A9'",
        ),
        (
            lambda ledger, h: ledger.expire("A9", by="eve", reason="x"),
            tb.errors.SettlementError,
            "there is no reservation 'A9'",
        ),
        (
            lambda ledger, h: ledger.budget("dato"),
            tb.ParameterError,
            "budget must be the name of a budget in this ledger, got 'dato'",
        ),
        (
            lambda ledger, h: ledger.reserve("A1", COIN, ["data"], interactive=True),
            tb.KeyConflictError,
            "the key 'A1' was used before, for something else",
        ),
        (
            lambda ledger, h: ledger.reserve("A2", COIN, []),
            tb.ParameterError,
            "budgets must be a list of one or more names, each once, got []",
        ),
        (
            lambda ledger, h: ledger.reserve("A2", COIN, "data"),
            tb.ParameterError,
            "budgets must be a list of one or more names, each once, got 'data'",
        ),
        (
            lambda ledger, h: ledger.reserve("A2", COIN, ["data", "data"]),
            tb.ParameterError,
            "budgets must be a list of one or more",
        ),
        (
            lambda ledger, h: ledger.reserve("", COIN, ["data"]),
            tb.ParameterError,
            "key must be a text of 1 to 200 printable characters, got ''",
        ),
        (
            lambda ledger, h: ledger.reserve("a\nb", COIN, ["data"]),
            tb.ParameterError,
            "key must be a text of 1 to 200 printable characters",
        ),
        (
            lambda ledger, h: ledger.reserve("a\x00b", COIN, ["data"]),
            tb.ParameterError,
            "key must be a text of 1 to 200 printable characters",
        ),
        (
            lambda ledger, h: ledger.open_budget(7, epsilon=1),
            tb.ParameterError,
            "name must be a text of 1 to 200 printable characters, got 7",
        ),
        (
            lambda ledger, h: ledger.open_budget("data", epsilon=2, delta=1e-6),
            tb.KeyConflictError,
            "there is a budget 'data' already, on other terms",
        ),
        (
            lambda ledger, h: ledger.check("no head"),
            tb.ParameterError,
            "head must be tightbudget-ledger:1:<sequence>:<hash>, got 'no head'",
        ),
    ],
)
def test_refusals(
    ledger: tb.Ledger,
    data: tb.ledger.LedgerBudget,
    deed: Callable[[tb.Ledger, Any], Any],
    error: type[Exception],
    message: str,
) -> None:
    hold = data.reserve("A1", COIN)
    with pytest.raises(error, match=f"^{re.escape(message)}") as caught:
        deed(ledger, hold)
    assert type(caught.value) is error


def test_opened_again_on_the_same_terms_it_is_the_one_that_is_there(
    ledger: tb.Ledger, data: tb.ledger.LedgerBudget
) -> None:
    data.raise_cap(epsilon=3, by="eve", reason="more")
    again = ledger.open_budget("data", epsilon=1.0, delta=Fraction(1, 10**6))
    assert again.cap.epsilon == 3.0
    assert ledger.head().sequence == 2


# -------------------------------------------------------------------------- asking first


def test_what_if_is_what_reserve_answers(data: tb.ledger.LedgerBudget) -> None:
    for epsilon in (0.4, 0.7, Fraction(2, 3), 0.6, 0):
        guarantee = tb.OutputDP.from_dp(epsilon)
        said = data.what_if(guarantee)
        assert data.can_afford(guarantee) == said.fits
        try:
            charge = data.reserve(f"k{epsilon}", guarantee).charge
            answer: Any = (True, None, charge)
        except tb.BudgetExceeded as refusal:
            answer = (False, str(refusal), refusal.requested)
        assert (said.fits, said.message, said.requested) == answer
        assert said.left_after == data.left


def test_what_can_be_afforded_n_times_is_granted_n_times(ledger: tb.Ledger) -> None:
    for n, epsilon in ((10, 0.1), (3, Fraction(1, 3)), (7, Fraction(1, 7)), (9, 0.111)):
        guarantee = tb.OutputDP.from_dp(epsilon)
        data = ledger.open_budget(f"{n}", epsilon=1)
        assert data.can_afford(guarantee, n)
        assert not data.can_afford(guarantee, n + 1)
        for i in range(n):
            data.reserve(f"{n}/{i}", guarantee)
        with pytest.raises(tb.BudgetExceeded):
            data.reserve(f"{n}/{n}", guarantee)


# ---------------------------------------------------------------------------------- meters


class Held(Protocol):
    """What a mechanism needs of a hold."""

    def start(self) -> None: ...
    def settle(self, cell: Cell) -> tb.Amount: ...
    def forfeit(self) -> tb.Amount: ...
    def void(self) -> tb.Amount: ...


class Meter(Protocol):
    """What a mechanism needs of an account."""

    def reserve(self, guarantee: tb.OutputDP, *, interactive: bool = False) -> Held: ...


def test_a_mechanism_charges_memory_or_a_ledger_alike(data: tb.ledger.LedgerBudget) -> None:
    meters: list[Meter] = [data.keyed("run"), tb.OutputDPFilter(1, 1e-6)]
    for meter in meters:
        receipts = []
        for cell in ("nothing", "number", "elsewhere"):
            hold = meter.reserve(COIN, interactive=True)
            hold.start()
            receipts.append(hold.settle(cell))
            with pytest.raises(tb.errors.SettlementError):
                hold.start()
        lost = meter.reserve(COIN)
        assert [receipt.epsilon for receipt in receipts] == [0.0, 0.1, 0.1]
        assert lost.forfeit() == tb.Amount(0.1, 1e-7, "epsilon")
        assert meter.reserve(COIN).void().epsilon == 0.0
        with pytest.raises(tb.errors.BudgetError):
            meter.reserve(tb.OutputDP.from_dp(1))


def test_a_meter_counts_its_keys_and_never_runs_one_twice(
    ledger: tb.Ledger, data: tb.ledger.LedgerBudget
) -> None:
    meter = data.keyed("run")
    for _ in range(3):
        meter.reserve(COIN).start()
    assert [hold.key for hold in ledger.holds()] == ["run", "run#2", "run#3"]
    assert [hold.key for hold in data.holds()] == ["run", "run#2", "run#3"]
    with pytest.raises(tb.errors.SettlementError, match="a hold is started once"):
        data.keyed("run").reserve(COIN).start()  # the same program once more
    fresh = data.keyed("again")
    with pytest.raises(tb.BudgetExceeded):
        fresh.reserve(tb.OutputDP.from_dp(2))
    with pytest.raises(tb.BudgetExceeded):
        fresh.reserve(tb.OutputDP.from_dp(2))
    assert fresh.reserve(COIN).key == "again#3"


# ----------------------------------------------------------------------------- the database


def test_a_ledger_that_is_not_there_is_not_made_by_mistake(url: str, tmp_path: Path) -> None:
    with pytest.raises(tb.LedgerError, match="there is no ledger") as caught:
        tb.Ledger(url, create=False)
    assert not caught.value.unknown
    assert list(tmp_path.iterdir()) == []
    tb.Ledger(url).close()
    with tb.Ledger(url, create=False) as ledger:
        assert ledger.budgets() == ()


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        (
            "budget.db",
            tb.ParameterError,
            "url must be a database URL such as sqlite:///budget.db, got 'budget.db'",
        ),
        (
            "mysql://host/db",
            tb.ParameterError,
            "url must be one of sqlite or postgresql, got mysql",
        ),
        ("sqlite://", tb.ParameterError, "url must name a file: a budget in memory is forgotten"),
        (
            "sqlite:///:memory:",
            tb.ParameterError,
            "url must name a file: a budget in memory is forgotten",
        ),
        (
            "postgresql+pg8000://host/db",
            tb.errors.ExtraError,
            "postgresql+pg8000 needs a driver: pip install 'tightbudget[postgresql]'",
        ),
        (
            "sqlite:////nowhere/at/all/budget.db",
            tb.LedgerError,
            "sqlite:////nowhere/at/all/budget.db cannot be read: unable to open",
        ),
    ],
)
def test_addresses_that_are_none(url: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        tb.Ledger(url)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("ada:hunter2@127.0.0.1:1/budget", "ada:***@127.0.0.1:1/budget cannot"),
        (
            "127.0.0.1:1/budget?password=hunter2&sslmode=prefer",
            "127.0.0.1:1/budget?password=***&sslmode=prefer cannot",
        ),
        (
            "127.0.0.1:1/budget?connect_timeout=9&sslpassword=hunter2",
            "127.0.0.1:1/budget?connect_timeout=9&sslpassword=*** cannot",
        ),
    ],
)
def test_a_password_is_not_shown(address: str, shown: str) -> None:
    with pytest.raises(tb.LedgerError) as caught:
        tb.Ledger(f"postgresql+psycopg://{address}")
    assert "hunter2" not in str(caught.value)
    assert shown in str(caught.value)


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and longer than its header would be " * 20)
    before = path.read_bytes()
    with pytest.raises(tb.LedgerError, match="file is not a database"):
        tb.Ledger(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_the_clock_is_handed_in_and_only_written_down(url: str) -> None:
    with tb.Ledger(url, clock=lambda: datetime(1999, 12, 31, tzinfo=UTC)) as ledger:
        ledger.open_budget("data", epsilon=1)
        assert [event.at for event in ledger.events()] == ["1999-12-31T00:00:00+00:00"]
        assert repr(ledger).startswith("Ledger('")


@pytest.mark.slow
def test_without_sqlalchemy_the_package_works_and_the_ledger_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "import tightbudget as tb\n"
        "tb.Gaussian(1.0)\n"
        "try: tb.Ledger\n"
        "except tb.errors.ExtraError as error: print(error)\n"
        "try: tb.Ledgers\n"
        "except AttributeError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "a ledger needs SQLAlchemy: pip install 'tightbudget[ledger]'",
        "module 'tightbudget' has no attribute 'Ledgers'",
    ]


def test_a_python_without_the_global_lock_opens_no_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.db"
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(tb.errors.LedgerError, match="start Python with PYTHON_GIL=1"):
        tb.Ledger(f"sqlite:///{file}")
    assert not file.exists()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    with tb.Ledger(f"sqlite:///{file}") as ledger:
        assert ledger.open_budget("a", epsilon=1).left.amount == 1
