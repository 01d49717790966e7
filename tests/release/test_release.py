"""The one path from data to a paid answer, and what it says when something fails."""

from __future__ import annotations

import json
import logging
import math
import traceback
from typing import Any

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.release.columns import column
from tightbudget.release.release import answered, paid, started

PRICES = tb.OutputDP({"dear": 0.4, "cheap": 0.1}, 1e-6)


def broken(data: str) -> Any:
    return int(data)


def filter_() -> tb.OutputDPFilter:
    return tb.OutputDPFilter(1, 1e-5)


def test_what_came_out_is_charged_and_delta_in_full() -> None:
    meter = filter_()
    answer = paid(meter, PRICES, 20, lambda data: (data + 1, "cheap"))
    assert (answer.value, answer.cell) == (21, "cheap")
    assert answer.receipt == tb.release.Receipt(
        tb.Amount(0.4, 1e-6, "epsilon"), tb.Amount(0.1, 1e-6, "epsilon")
    )
    assert answer.receipt.returned == tb.Amount(0.3, 0.0, "epsilon")
    assert str(answer.receipt) == (
        "held epsilon 0.4, delta 1e-06; charged epsilon 0.1, delta 1e-06; "
        "returned epsilon 0.3, delta 0.0"
    )
    assert json.loads(json.dumps(answer.receipt.to_dict())) == {
        "held": {"amount": 0.4, "delta": 1e-6, "unit": "epsilon"},
        "charged": {"amount": 0.1, "delta": 1e-6, "unit": "epsilon"},
        "returned": {"amount": 0.3, "delta": 0.0, "unit": "epsilon"},
        "question": None,
    }


@pytest.mark.parametrize(
    "answer", [None, "cheap", (1,), (1, "free"), (1, None), (1, 2, 3), [1, "cheap"], (1, 1.5)]
)
def test_an_answer_that_was_not_declared_costs_the_dearest_price(answer: Any) -> None:
    meter = filter_()
    with pytest.raises(tb.ReleaseError) as caught:
        paid(meter, PRICES, None, lambda _: answer)
    assert caught.value.__context__ is None
    assert meter.spent == tb.Amount(0.4, 1e-6, "epsilon")


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
        paid(meter, PRICES, np.array(["x"]), lambda _: (1, "cheap"), lambda data: column(ages=data))
    assert meter.spent == meter.held == tb.Amount(0.0, 0.0, "epsilon")


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
        with pytest.raises(tb.errors.SettlementError, match="was not settled"):
            run.released(1)
    assert run.released(1).receipt.charged.epsilon == 0.1


def test_a_meter_that_does_not_say_what_it_has_charged_is_asked() -> None:
    class Silent:
        def __init__(self, hold: Any) -> None:
            self._hold, self.start, self.void = hold, hold.start, hold.void
            self.forfeit = hold.forfeit

        @property
        def charge(self) -> tb.Amount:
            charge: tb.Amount = self._hold.charge
            return charge

        def settle(self, cell: Any) -> None:
            self._hold.settle(cell)

    class Meter:
        def __init__(self) -> None:
            self.filter = filter_()
            self.left = self.filter.left

        def reserve(self, guarantee: tb.OutputDP, *, interactive: bool = False) -> Any:
            return Silent(self.filter.reserve(guarantee))

    answer = paid(Meter(), PRICES, 20, lambda data: (data, "cheap"))
    assert answer.receipt.charged == tb.Amount(0.1, 1e-6, "epsilon")


@pytest.mark.parametrize("error", [ValueError, SystemExit, GeneratorExit, MemoryError])
def test_what_a_query_raises_is_an_answer_and_only_an_operator_sees_it(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def query() -> int:
        raise error("secret")

    assert answered(query) is None
    assert not caplog.records
    with caplog.at_level(logging.DEBUG):
        assert answered(query) is None
    assert "secret" in caplog.text


def test_numpy_does_not_warn_of_private_numbers() -> None:
    assert answered(lambda: np.array([1e300]) ** 2) == math.inf
    assert answered(lambda: np.float64(1) / np.zeros(1)) == math.inf


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"sigma": 1.0, "delta": 1e-6, "step": 2.0**-20},
            r"step = 9\.5\d*e-07 is too fine: sigma = 1\.0 is 1048576\.0 steps, and "
            r"sensitivity = 1 is 1048577 with rounding\. In steps, sigma must be in .*",
        ),
        ({"sigma": 1e6, "delta": 1e-6}, r"sigma must be in \(0, 500000\.0\], got 1000000\.0"),
    ],
)
def test_gaussian_noise_is_refused_in_the_unit_of_the_caller(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(tb.ParameterError, match=f"^{said}$"):
        tb.release.GaussianRelease(len, 1, **given)


def test_a_delta_too_small_to_certify_is_said_to_be_so() -> None:
    with pytest.raises(
        tb.PrecisionError,
        match=r"^epsilon is in \[0.0, inf\]: .* at delta = 1e-300: it is too small$",
    ):
        tb.release.GaussianRelease(len, 1, 5, 1e-300)


def test_nothing_is_revealed_if_settling_fails() -> None:
    class Lost:
        charge = tb.Amount(0.4, 1e-6, "epsilon")
        forfeited = False

        def start(self) -> None: ...
        def settle(self, cell: object) -> tb.Amount:
            raise OSError("no connection")

        def forfeit(self) -> tb.Amount:
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


def test_an_interrupt_passes_and_says_nothing() -> None:
    meter, raised = tb.OutputDPFilter(1), KeyboardInterrupt("secret 42")

    def query(data: Any) -> int:
        secret = data
        raise raised from ValueError(secret)

    with pytest.raises(KeyboardInterrupt) as caught:
        tb.release.LaplaceRelease(query, 1, 1).release(raised.args[0], meter=meter)
    error = caught.value
    assert error is not raised
    assert error.args == ()
    assert "secret" not in "".join(traceback.format_exception(error))
    assert error.__cause__ is None
    assert error.__context__ is None
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert "query" not in frames
    assert meter.spent.epsilon == 1


@pytest.mark.filterwarnings("ignore:FixedNoise")
@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, Own])
def test_an_exit_that_one_record_can_cause_is_an_answer(kind: type[BaseException]) -> None:
    def query(data: Any) -> int:
        raise kind(data)

    laplace = tb.release.LaplaceRelease(query, 1, 1)
    found = laplace.release("secret", meter=tb.OutputDPFilter(1), noise=tb.release.FixedNoise([7]))
    assert found.value == 7
