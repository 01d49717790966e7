"""An interrupt of a question passes as one, and the charge is none or the whole price."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.release.interrupts import _Watched, interrupts
from tightbudget.release.release import answered, guarded
from tightbudget.tables import Count, GroupedCounts, Sum, Table, TopGroups

ROOMS = ("/tightbudget/tables/", "/tightbudget/release/")
COLUMNS = {
    "u": np.array([1, 1, 2, 3]),
    "x": np.array([0.5, 1, 0.25, 1]),
    "k": np.array([1, 2, 2, 1]),
}
QUESTIONS: dict[str, Any] = {
    "count": Count(epsilon=1),
    "sum": Sum(column="x", bounds=(0, 1), epsilon=1, delta=0),
    "groups": GroupedCounts(by="k", epsilon=1),
    "top": TopGroups(by="k", k=1, epsilon=1, least=0),
}


def session(data: Any) -> tb.Session:
    table = Table(data, unit="u", rows_per_unit=1, domains={"k": [1, 2]})
    return tb.Session(table, tb.OutputDPFilter(4), noise=tb.release.FixedNoise([0] * 1000))


@contextlib.contextmanager
def at_place(number: int, event: str) -> Iterator[list[str]]:
    """Raises KeyboardInterrupt at the n-th line, or call, of the two rooms; yields where."""
    passed, places = 0, list[str]()

    def trace(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal passed
        if not any(room in frame.f_code.co_filename for room in ROOMS):
            return None
        if what == event:
            passed += 1
            if passed == number:
                places.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield places
    finally:
        sys.settrace(before)


@pytest.fixture(autouse=True)
def handlers_as_they_were() -> Iterator[None]:
    """An interrupt while a handler is put back leaves it in place, for the tests that follow."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupted_everywhere(data: Any, question: Any, event: str) -> int:
    """Asks again and again, with an interrupt at each next place; how many places there were."""
    asks = session(data)
    asks.ask(question)
    for number in range(1, 20_000):
        asks, caught = session(data), None
        with at_place(number, event) as places:
            try:
                asks.ask(question)
            except BaseException as error:
                caught = error
        if not places:
            return number - 1
        assert isinstance(caught, KeyboardInterrupt), (places, caught)
        assert asks.left.amount in (3, 4), (places, asks.left)
        handler = signal.getsignal(signal.SIGINT)
        assert not isinstance(getattr(handler, "handler", None), _Watched), places
    raise AssertionError("it does not end")


@pytest.mark.filterwarnings("ignore:FixedNoise")
def test_an_interrupt_at_any_call_passes() -> None:
    assert interrupted_everywhere(COLUMNS, QUESTIONS["count"], "call") > 30


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FixedNoise")
@pytest.mark.parametrize("name", QUESTIONS)
def test_an_interrupt_at_any_line_passes(name: str) -> None:
    assert interrupted_everywhere(COLUMNS, QUESTIONS[name], "line") > 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FixedNoise")
def test_an_interrupt_at_any_call_of_a_question_to_an_engine_passes() -> None:
    frame = pa.table({name: pa.array(values) for name, values in COLUMNS.items()})
    assert interrupted_everywhere(frame, QUESTIONS["count"], "call") > 50


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FixedNoise")
def test_an_interrupt_of_a_scan_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real SIGINT, of which DuckDB makes an error of its own."""
    draw = np.random.default_rng(0)
    frame = pa.table(
        {"u": draw.integers(0, 10**5, 3 * 10**5), "x": draw.random(3 * 10**5), "k": [1] * 3 * 10**5}
    )
    asks, began = session(frame), time.monotonic()
    asks.ask(QUESTIONS["sum"])
    took = time.monotonic() - began
    # Python itself hides what a handler raises inside a finalizer: such a try says nothing
    hidden: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", hidden.append)
    part = 0
    while part < 5:
        asks, caught = session(frame), None
        timer = threading.Timer(took * (part + 0.5) / 6, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            asks.ask(QUESTIONS["sum"])
            timer.join()
            time.sleep(1)  # it was faster than before
        except BaseException as error:
            caught = error
        timer.join()
        assert asks.left.amount in (3, 4), (part, caught, asks.left)
        if caught is None and hidden:
            hidden.clear()
            continue
        assert isinstance(caught, KeyboardInterrupt), (part, caught)
        part += 1


# --------------------------------------------------------------------- what a handler has raised


def signalled(number: int, then: Callable[[], Any]) -> Callable[[], Any]:
    """Code that gets a signal, hides what the handler raises, and then does something else."""

    def call() -> Any:
        with contextlib.suppress(BaseException):
            os.kill(os.getpid(), number)
            time.sleep(5)
        return then()

    return call


def fails() -> Any:
    raise RuntimeError("Query interrupted")


@contextlib.contextmanager
def handled(number: int, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def leaves(code: Any) -> Callable[..., None]:
    def handler(number: int, frame: Any) -> None:
        sys.exit(code)

    return handler


def an_interrupt_of_an_engine_passes() -> bool:
    """Whether an interrupt that code turns into an error, or hides, is still an interrupt."""
    for call in (answered, guarded):
        for then in (fails, lambda: 1):
            try:
                call(signalled(signal.SIGINT, then))
            except KeyboardInterrupt as error:
                if error.args or error.__cause__ or not error.__suppress_context__:
                    return False
            except tb.ReleaseError:
                return False
            else:
                return False
    return True


def test_an_interrupt_that_an_engine_turns_into_an_error_passes() -> None:
    assert an_interrupt_of_an_engine_passes()
    assert answered(fails) is None  # the one before is over
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("code", "shown"), [(3, 3), (None, 1), ("secret", 1)])
def test_an_end_that_a_supervisor_asks_for_passes(code: Any, shown: int) -> None:
    with handled(signal.SIGTERM, leaves(code)):
        for call in (answered, guarded):
            with pytest.raises(SystemExit) as caught:
                call(signalled(signal.SIGTERM, fails))
            assert caught.value.code == shown


def interrupted_itself() -> int:
    os.kill(os.getpid(), signal.SIGINT)
    return 7


def test_a_handler_that_does_not_leave_interrupts_nothing() -> None:
    seen = []
    with handled(signal.SIGINT, lambda *_: seen.append(1)):
        assert answered(interrupted_itself) == 7
    with handled(signal.SIGINT, leaves_by(ValueError)):
        assert answered(signalled(signal.SIGINT, lambda: 7)) == 7
    with handled(signal.SIGINT, signal.SIG_IGN):
        assert answered(interrupted_itself) == 7
    assert seen == [1]


def leaves_by(kind: type[Exception]) -> Callable[..., None]:
    def handler(number: int, frame: Any) -> None:
        raise kind

    return handler


def test_other_threads_watch_nothing() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(answered(lambda: 7)))
    thread.start()
    thread.join()
    assert found == [7]


def test_handlers_are_not_piled_up() -> None:
    with interrupts(), interrupts():
        handler = signal.getsignal(signal.SIGINT)
        assert isinstance(handler, _Watched)
        assert handler.handler is signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def an_interrupt_of_a_check_passes() -> bool:
    """Whether an interrupt while an engine is asked for no row is none of the engine's errors."""
    source = Table(pa.table({"x": [1.0]})).source
    real = type(source.connection).to_pyarrow  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(source.connection),  # type: ignore[attr-defined]
            "to_pyarrow",
            lambda *args, **more: signalled(signal.SIGINT, fails)() or real(*args, **more),
        )
        try:
            source.check()
        except KeyboardInterrupt:
            return True
        except tb.SourceError:
            return False
    return False


def test_an_interrupt_of_a_check_passes() -> None:
    assert an_interrupt_of_a_check_passes()


MUTATIONS = [
    Without(
        "handlers are not watched",
        {"interrupts-are-watched": "pass"},
        an_interrupt_of_an_engine_passes,
    ),
    Without(
        "an engine's error hides an interrupt",
        {"interrupt-of-an-engine": "pass"},
        an_interrupt_of_an_engine_passes,
    ),
    Without(
        "a check hides an interrupt",
        {"interrupt-of-a-check": "pass"},
        an_interrupt_of_a_check_passes,
    ),
]


@each(MUTATIONS)
def test_without_the_guard(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
