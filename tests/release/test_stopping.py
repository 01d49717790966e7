"""A loop that may stop early: what it is charged covers what was seen, whatever made it stop."""

from __future__ import annotations

import contextlib
import functools
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests import exact
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.release.stopping import StoppingCallback

Bits = tuple[int, ...]

ANSWER = tb.HistogramPair((0.75, 0.25), (0.25, 0.75))
OUTPUTS = exact.normalised((0.75, 0.25), (0.25, 0.75))
STOPS = (1, 2, 4)
# all bits that a rule may see at the stops where it is asked
VIEWS = [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]
RULES = [dict(zip(VIEWS, r, strict=True)) for r in itertools.product((False, True), repeat=6)]


@functools.cache
def schedule() -> tb.StoppingSchedule:
    # the later, the dearer
    return tb.early_stopping(ANSWER, STOPS, 0.2, weights=(0.5, 0.3, 1.0))


def price(k: int) -> Fraction:
    return schedule().guarantee().price(k)


def trained(rule: Mapping[Bits, bool], bits: Bits) -> tuple[Bits, Fraction]:
    """What is seen of a run whose steps would give these bits, and what it is charged."""
    meter = tb.OutputDPOdometer()
    seen: Bits = ()
    with StoppingCallback[Bits](schedule(), meter, rule.__getitem__) as stopping:
        for bit in bits:
            stopping.step(ANSWER)
            seen = (*seen, bit)
            if stopping.should_stop(len(seen), seen):
                break
    assert meter._spent.delta == Fraction(schedule().delta.upper)
    return seen, meter._spent.counted


def excess(rule: Mapping[Bits, bool]) -> Fraction:
    """The smallest delta for what was charged."""
    bits = itertools.product((0, 1), repeat=STOPS[-1])
    return delta_of(dict(trained(rule, one) for one in bits))


def delta_of(charged: Mapping[Bits, Fraction]) -> Fraction:
    """The smallest delta for which these prices hold, of the bits that were seen."""
    total = Fraction(0)
    for seen, epsilon in charged.items():
        p = q = Fraction(1)
        for bit in seen:
            p, q = p * OUTPUTS[bit][0], q * OUTPUTS[bit][1]
        total += max(Fraction(0), p - exact.exp_ends(epsilon)[1] * q)
    return total


# --------------------------------------------------------------------------------- laws


def test_no_rule_breaks_what_is_charged_and_one_uses_it_up() -> None:
    worst = max(map(excess, RULES))
    assert Fraction(schedule().delta.lower) * (1 - Fraction(1, 10**9)) <= worst
    assert worst <= Fraction(schedule().delta.upper)


def test_each_stop_is_charged_its_own_price() -> None:
    assert len({price(k) for k in STOPS}) == len(STOPS)
    for rule in RULES:
        seen, charged = trained(rule, (0, 1, 0, 1))
        assert charged == price(len(seen))


def test_the_rule_is_asked_at_stops_alone_and_not_at_the_last() -> None:
    asked: list[Bits] = []
    told = StoppingCallback[Bits](schedule(), tb.OutputDPOdometer(), asked.append)  # type: ignore[arg-type]
    with told as stopping:
        assert [stopping.should_stop(k, (k,)) for k in (1, 2, 3, 4)] == [False, False, False, True]
    assert asked == [(1,), (2,)]


# ------------------------------------------------------------------------------- meters


@pytest.fixture(params=["filter", "ledger"])
def meter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """What pays, and the budget that it is."""
    if request.param == "filter":
        account = tb.OutputDPFilter(4, 0.5)
        yield account, account
    else:
        with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
            budget = ledger.open_budget("ada", epsilon=4, delta=0.5)
            yield budget.keyed("run"), budget


def test_the_dearest_stop_is_held_and_change_comes_back(meter: tuple[Any, Any]) -> None:
    pays, budget = meter
    with StoppingCallback(schedule(), pays, bool) as stopping:
        assert budget.held.epsilon >= max(schedule().epsilons)
        assert not stopping.should_stop(1, False)
        assert stopping.should_stop(2, True)
    assert budget.held.epsilon == 0
    assert budget.spent.epsilon == pytest.approx(float(price(2)), rel=1e-12)
    assert stopping.receipt.held.epsilon >= max(schedule().epsilons)
    assert stopping.receipt.charged == budget.spent
    assert stopping.receipt.returned.epsilon == pytest.approx(float(price(4) - price(2)))
    assert stopping.receipt.returned.delta == 0


def fails(stopping: StoppingCallback[object]) -> None:
    raise KeyboardInterrupt


def fails_after_the_stop(stopping: StoppingCallback[object]) -> None:
    assert stopping.should_stop(1, True)
    raise ZeroDivisionError


def ends_between_stops(stopping: StoppingCallback[object]) -> None:
    stopping.should_stop(1, False)


@pytest.mark.parametrize("loop", [fails, fails_after_the_stop, ends_between_stops])
def test_what_goes_wrong_costs_the_dearest_stop(
    loop: Callable[[Any], None], meter: tuple[Any, Any]
) -> None:
    pays, budget = meter
    expected = (KeyboardInterrupt, ZeroDivisionError, tb.ReleaseError)
    with pytest.raises(expected), StoppingCallback(schedule(), pays, bool) as stopping:
        loop(stopping)
    assert budget.held.epsilon == 0
    assert budget.spent.epsilon >= max(schedule().epsilons)
    with pytest.raises(tb.errors.SettlementError, match="the run was not settled"):
        _ = stopping.receipt


def test_nothing_is_charged_before_training(meter: tuple[Any, Any]) -> None:
    pays, budget = meter
    stopping = StoppingCallback(schedule(), pays, bool)
    assert (budget.spent.epsilon, budget.held.epsilon) == (0, 0)
    with pytest.raises(tb.errors.SettlementError, match="the run has not begun"):
        _ = stopping.receipt


def test_what_does_not_fit_is_refused_before_training() -> None:
    small = tb.OutputDPFilter(price(2), 0.5)
    stopping = StoppingCallback(schedule(), small, bool)
    for _ in range(2):
        with pytest.raises(tb.errors.BudgetError, match="requested"):
            stopping.__enter__()
    assert small.left.epsilon > 0
    assert small.spent.epsilon == small.held.epsilon == 0


def test_a_run_that_others_look_into_is_the_only_one() -> None:
    account = tb.OutputDPFilter(9, 1)

    def begun(interactive: bool) -> Any:
        return StoppingCallback(schedule(), account, bool, interactive=interactive)

    with begun(True) as first:
        with pytest.raises(
            tb.errors.SettlementError, match="another interactive mechanism is open"
        ):
            begun(True).__enter__()
        with begun(False) as second:
            assert second.should_stop(1, True)
        assert first.should_stop(1, True)


CRASH = """
import os, sys
import tightbudget as tb
from tightbudget.release.stopping import StoppingCallback

schedule = tb.early_stopping(tb.Gaussian(5.0), [1, 2], 1e-5)
budget = tb.Ledger(sys.argv[1]).open_budget("ada", epsilon=3, delta=1e-5)
with StoppingCallback(schedule, budget.keyed("run"), bool) as stopping:
    stopping.should_stop(1, False)
    os._exit(9)
"""


@pytest.mark.slow
def test_a_process_that_dies_leaves_the_dearest_stop_held(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/budget.db"
    died = subprocess.run([sys.executable, "-c", CRASH, url], timeout=300, check=False)
    assert died.returncode == 9
    used = tb.early_stopping(tb.Gaussian(5.0), [1, 2], 1e-5)
    with tb.Ledger(url) as ledger:
        budget = ledger.budget("ada")
        assert budget.held.epsilon >= max(used.epsilons)
        # the run is over, and the same key is not a second one
        meter: Any = budget.keyed("run")
        again = StoppingCallback(used, meter, bool)
        with pytest.raises(tb.errors.SettlementError, match="started"):
            again.__enter__()
        assert budget.held.epsilon >= max(used.epsilons)


# -------------------------------------------------------------------------------- loops


class Fit:
    """A loop that belongs to somebody else, and calls back after each epoch, as Keras does."""

    stop_training = False

    def fit(self, epochs: int, on_epoch_end: Callable[[int], None]) -> int:
        for epoch in range(epochs):
            on_epoch_end(epoch)
            if self.stop_training:
                return epoch + 1
        return epochs


def test_somebody_elses_loop() -> None:
    model, account = Fit(), tb.OutputDPFilter(4, 0.5)
    with StoppingCallback[int](schedule(), account, (1).__eq__) as stopping:

        def after(epoch: int) -> None:
            model.stop_training = stopping.should_stop(epoch + 1, epoch)

        assert model.fit(10, after) == 2
    assert account._spent.counted == price(2)


# ----------------------------------------------------------------------------- refusals


def running() -> StoppingCallback[object]:
    return StoppingCallback(schedule(), tb.OutputDPOdometer(), bool).__enter__()


def ran(deeds: str) -> StoppingCallback[object]:
    """Steps (s), questions with the answer no (1, 2, ...), and one with yes (!)."""
    stopping = running()
    for deed in deeds:
        if deed == "s":
            stopping.step(ANSWER)
        else:
            stopping.should_stop(1 if deed == "!" else int(deed), deed == "!")
    return stopping


@pytest.mark.parametrize(
    ("deeds", "error", "message"),
    [
        ("2", tb.ParameterError, "steps must be above 0 and at most 1, the next stop, got 2"),
        ("13", tb.ParameterError, "steps must be above 1 and at most 2, the next stop, got 3"),
        ("11", tb.ParameterError, "steps must be above 1 and at most 2, the next stop, got 1"),
        ("1235", tb.ParameterError, "steps must be above 3 and at most 4, the next stop, got 5"),
        ("1233", tb.ParameterError, "steps must be above 3 and at most 4, the next stop, got 3"),
        ("0", tb.ParameterError, "steps must be an integer >= 1, got 0"),
        ("!s", tb.errors.SettlementError, "no run is open"),
        ("!2", tb.errors.SettlementError, "no run is open"),
        (
            "ss",
            tb.errors.SettlementError,
            r"stop 1 is due: ask should_stop\(1, ...\) before HistogramPair",
        ),
        (
            "s1ss",
            tb.errors.SettlementError,
            r"stop 2 is due: ask should_stop\(2, ...\) before HistogramPair",
        ),
        (
            "s12",
            tb.errors.SettlementError,
            r"stop 2 comes after HistogramPair.*\* 1, which did not run",
        ),
        (
            "s1s2s4",
            tb.errors.SettlementError,
            r"stop 4 comes after HistogramPair.*\* 1, which did not run",
        ),
    ],
)
def test_a_loop_that_leaves_the_schedule_is_refused(
    deeds: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ran(deeds)


def test_a_step_that_the_schedule_has_not_is_refused() -> None:
    with pytest.raises(
        tb.ParameterError, match=r"stop 1 comes after HistogramPair.*, got Gaussian.*sigma=3.0"
    ):
        running().step(tb.Gaussian(3.0))


def test_nothing_is_paid_for_outside_the_block() -> None:
    stopping = StoppingCallback(schedule(), tb.OutputDPOdometer(), bool)
    for _ in range(2):
        with pytest.raises(tb.errors.SettlementError, match="no run is open"):
            stopping.step(ANSWER)
        with pytest.raises(tb.errors.SettlementError, match="no run is open"):
            stopping.should_stop(1, True)
        with contextlib.suppress(tb.ReleaseError, tb.errors.SettlementError), stopping:
            pass  # not even when it is over


def test_a_callback_pays_for_one_run() -> None:
    stopping = ran("!")
    with pytest.raises(tb.errors.SettlementError, match="a run is paid for once"):
        stopping.__enter__()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"schedule": 3}, "schedule must be a StoppingSchedule, got 3"),
        ({"rule": True}, "rule must be a function of what was released, got True"),
    ],
)
def test_refused_arguments(given: dict[str, Any], message: str) -> None:
    arguments = {"schedule": schedule(), "meter": tb.OutputDPOdometer(), "rule": bool, **given}
    with pytest.raises(tb.ParameterError, match=message):
        StoppingCallback(**arguments)


# ---------------------------------------------------------------------------- mutations


def covered() -> bool:
    """No rule breaks what is charged."""
    return all(excess(rule) <= Fraction(schedule().delta.upper) for rule in RULES)


def charged_its_own() -> bool:
    """No stop is charged another one's price."""
    return all(
        trained(rule, bits)[1] == price(len(trained(rule, bits)[0]))
        for rule in RULES[::7]
        for bits in ((0, 0, 0, 0), (1, 1, 1, 1))
    )


def refused(deeds: str) -> bool:
    try:
        ran(deeds)
    except (tb.ParameterError, tb.errors.SettlementError):
        return True
    return False


def last_stop_ends() -> bool:
    """Also where the rule would go on."""
    with contextlib.suppress(IndexError):  # there is no stop after it
        return ran("12").should_stop(4, False)
    return False


def other_steps_refused() -> bool:
    try:
        running().step(tb.Gaussian(1e-3))
    except tb.ParameterError:
        return True
    return False


def failure_costs_the_dearest() -> bool:
    account = tb.OutputDPOdometer()
    with (
        contextlib.suppress(ZeroDivisionError),
        StoppingCallback(schedule(), account, bool) as stopping,
    ):
        fails_after_the_stop(stopping)
    return account._spent.counted == price(4)


SETTLES = "run.cell, self._open = k, None"

MUTATIONS = [
    Without(
        "the price of an earlier stop",
        {"price-of-this-stop": "run.cell, self._open = self._schedule.stops[0], None"},
        covered,
    ),
    Without(
        "the price of a later stop",
        {"price-of-this-stop": "run.cell, self._open = self._schedule.stops[-1], None"},
        charged_its_own,
    ),
    Without(
        "no step after the stop", {"price-of-this-stop": "run.cell = k"}, lambda: refused("!s")
    ),
    Without(
        "the last stop ends the run",
        {"last-stop-ends-run": "ends = self._rule(released)"},
        last_stop_ends,
    ),
    Without(
        "no stop is skipped", {"no-stop-skipped": "if not self._asked < k:"}, lambda: refused("2")
    ),
    Without(
        "no stop is asked for twice", {"no-stop-skipped": "if not k <= due:"}, lambda: refused("11")
    ),
    Without(
        "all steps before a stop",
        {"all-steps-before-stop": "if k == due and self._counted and False:"},
        lambda: refused("s12"),
    ),
    Without(
        "no more steps than are paid for",
        {"no-more-steps-than-paid": "pass"},
        lambda: refused("ss"),
    ),
    Without(
        "no other steps than are paid for",
        {"no-other-steps-than-paid": "if False:"},
        other_steps_refused,
    ),
    Without(
        "what fails costs the dearest stop",
        {"failure-costs-worst-stop": "self._paid.__exit__(None, None, None)"},
        failure_costs_the_dearest,
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
