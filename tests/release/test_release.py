"""The one path from data to a paid answer, and what it says when something fails."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest

import tightbudget as tb
from tightbudget.release.columns import column
from tightbudget.release.release import paid, started

PRICES = tb.OutputDP({"dear": 0.4, "cheap": 0.1}, 1e-6)


def broken(data: str) -> Any:
    return int(data)


def filter_() -> tb.OutputDPFilter:
    return tb.OutputDPFilter(1, 1e-5)


def test_what_came_out_is_charged_and_delta_in_full() -> None:
    meter = filter_()
    answer = paid(meter, PRICES, 20, lambda data: (data + 1, "cheap"))
    assert (answer.value, answer.cell) == (21, "cheap")
    assert answer.receipt == tb.Receipt(
        tb.Budget(0.4, 1e-6, "epsilon"), tb.Budget(0.1, 1e-6, "epsilon")
    )
    assert answer.receipt.returned == tb.Budget(0.3, 0.0, "epsilon")
    assert str(answer.receipt) == (
        "held epsilon 0.4, delta 1e-06; charged epsilon 0.1, delta 1e-06; "
        "returned epsilon 0.3, delta 0.0"
    )


@pytest.mark.parametrize(
    "answer", [None, "cheap", (1,), (1, "free"), (1, None), (1, 2, 3), [1, "cheap"], (1, 1.5)]
)
def test_an_answer_that_was_not_declared_costs_the_dearest_price(answer: Any) -> None:
    meter = filter_()
    with pytest.raises(tb.ReleaseError) as caught:
        paid(meter, PRICES, None, lambda _: answer)
    assert caught.value.__context__ is None
    assert meter.spent == tb.Budget(0.4, 1e-6, "epsilon")


def test_an_interrupt_costs_the_dearest_price_and_stays_an_interrupt() -> None:
    def interrupted(data: object) -> Any:
        raise KeyboardInterrupt

    meter = filter_()
    with pytest.raises(KeyboardInterrupt):
        paid(meter, PRICES, None, interrupted)
    assert meter.spent.epsilon == 0.4


def test_a_column_of_the_wrong_type_costs_nothing() -> None:
    meter = filter_()
    with pytest.raises(tb.ParameterError, match=r"^ages must be a column of numbers"):
        paid(meter, PRICES, ["x"], lambda _: (1, "cheap"), lambda data: column(ages=data))
    assert meter.spent == meter.held == tb.Budget(0.0, 0.0, "epsilon")


def test_only_an_operator_sees_what_failed(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(tb.ReleaseError):
        paid(filter_(), PRICES, "secret", broken)
    assert "secret" not in caplog.text
    with caplog.at_level(logging.DEBUG), pytest.raises(tb.ReleaseError):
        paid(filter_(), PRICES, "secret", broken)
    assert "secret" in caplog.text


def test_a_run_without_an_answer_costs_the_dearest_price() -> None:
    meter = filter_()
    with (
        pytest.raises(tb.ReleaseError, match="ended without an answer"),
        started(meter, PRICES, None),
    ):
        pass
    assert meter.spent.epsilon == 0.4


def test_nothing_is_revealed_before_it_is_settled() -> None:
    with started(filter_(), PRICES, None) as run:
        run.cell = "cheap"
        with pytest.raises(tb.SettlementError, match="was not settled"):
            run.released(1)
    assert run.released(1).receipt.charged.epsilon == 0.1


def test_nothing_is_revealed_if_settling_fails() -> None:
    class Lost:
        charge = tb.Budget(0.4, 1e-6, "epsilon")
        forfeited = False

        def start(self) -> None: ...
        def settle(self, cell: object) -> tb.Budget:
            raise OSError("no connection")

        def forfeit(self) -> tb.Budget:
            raise AssertionError("it may have been settled")

        void = forfeit

    class Meter:
        left = charge = Lost.charge

        def reserve(self, guarantee: tb.OutputDP, *, interactive: bool = False) -> Lost:
            return Lost()

    with pytest.raises(OSError, match="no connection"):
        paid(Meter(), PRICES, None, lambda _: (1, "cheap"))


class Own(BaseException):
    """An exception that is no Exception."""


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (SystemExit("secret 42"), SystemExit),
        (KeyboardInterrupt("secret 42"), KeyboardInterrupt),
        (GeneratorExit("secret 42"), GeneratorExit),
        (Own("secret 42"), tb.ReleaseError),
    ],
    ids=repr,
)
def test_what_ends_a_program_ends_it_and_says_nothing(
    raised: BaseException, seen: type[BaseException]
) -> None:
    meter = tb.OutputDPFilter(1)

    def query(data: Any) -> int:
        secret = data
        raise raised from ValueError(secret)

    with pytest.raises(seen) as caught:
        tb.LaplaceRelease(query, 1, 1).release(raised.args[0], meter=meter)
    error = caught.value
    assert error is not raised
    assert error.args == {SystemExit: (1,), tb.ReleaseError: error.args}.get(seen, ())
    assert "secret" not in "".join(traceback.format_exception(error))
    assert error.__cause__ is None
    assert error.__context__ is None
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert "query" not in frames
    assert meter.spent.epsilon == 1
