"""Iterative mechanisms: what stops them, what that costs, and that it does cost that."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from tests import exact
from tests.release.enumerated import Outcomes

import tightbudget as tb
from tightbudget.release.noise.coins import bernoulli

TRUTH = Fraction(3, 4)
ANSWER = tb.HistogramPair((0.75, 0.25), (0.25, 0.75))
STOPS = (1, 2, 4)


@functools.cache
def schedule() -> tb.StoppingSchedule:
    return tb.early_stopping(ANSWER, STOPS, 0.2)


def response(data: int, _: tuple[int, ...], noise: Any) -> int:
    """The bit, or with probability 1/4 the other one."""
    return data if bernoulli(TRUTH, noise) else 1 - data


def counted(data: list[int], outputs: tuple[int, ...], _: Any) -> int:
    data.append(len(outputs))
    return len(outputs)


def test_steps_run_in_order_and_the_rule_is_asked_at_stops_alone() -> None:
    asked, ran = list[int](), list[int]()

    def rule(outputs: tuple[int, ...]) -> bool:
        asked.append(len(outputs))
        return len(outputs) == 2

    answer = tb.release.Iterative(counted, STOPS, rule, schedule()).release(
        ran, meter=tb.OutputDPOdometer()
    )
    assert answer.value == (0, 1)
    assert ran == [0, 1]
    assert asked == [1, 2]
    assert answer.cell == 2


def test_the_last_stop_stops_in_any_case() -> None:
    for stops in (STOPS, (1, 2)):
        mechanism = tb.release.Iterative(counted, stops, lambda _: False, schedule())
        meter = tb.OutputDPOdometer()
        assert len(mechanism.release([], meter=meter).value) == stops[-1]
        assert meter._spent.counted == Fraction(schedule().epsilons[STOPS.index(stops[-1])])


def test_fewer_stops_keep_their_prices() -> None:
    whole = tb.release.Iterative(counted, STOPS, lambda _: True, schedule()).guarantee
    assert whole == schedule().guarantee()
    part = tb.release.Iterative(counted, (1, 2), lambda _: True, schedule()).guarantee
    assert part.cells == {k: whole.price(k) for k in (1, 2)}
    assert part.sup == max(part.cells.values())
    assert part.delta == whole.delta


@pytest.mark.one_in(4)
@pytest.mark.parametrize("rule", [*itertools.product((False, True), repeat=6)])
def test_no_rule_breaks_the_prices(rule: tuple[bool, ...]) -> None:
    """All rules of two stops: by the first output, then by the first two."""
    stop_at = dict(zip([(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)], rule, strict=True))
    used = schedule()
    mechanism = tb.release.Iterative(response, STOPS, lambda o: stop_at.get(o, True), used)
    assert excess(mechanism) <= Fraction(used.delta.upper)


def test_prices_that_are_too_low_are_caught() -> None:
    used = replace(schedule(), epsilons=(0.1, 0.1, 0.1))
    mechanism = tb.release.Iterative(response, STOPS, lambda o: o[0] == 1, used)
    assert excess(mechanism) > Fraction(used.delta.upper)


def excess(mechanism: tb.release.Iterative) -> Fraction:
    """The smallest delta for its prices, at least, in the direction of 1 against 0."""

    def run(bit: int) -> Callable[[Any], Any]:
        meter = tb.OutputDPOdometer()
        return lambda noise: mechanism.release(bit, meter=meter, noise=noise).value

    found = [Outcomes.of(run(bit)) for bit in (1, 0)]
    assert all(not f.missing for f in found)
    total = Fraction(0)
    for outputs, mass in found[0].masses.items():
        factor = exact.exp_ends(mechanism.guarantee.price(len(outputs)))[1]  # type: ignore[arg-type]
        total += max(Fraction(0), mass - factor * found[1].masses[outputs])
    return total


@pytest.mark.parametrize("stops", [(), (3,), (2, 1), (1, 1), (1, 2, 4, 8)])
def test_refused_stops(stops: tuple[int, ...]) -> None:
    with pytest.raises(
        tb.ParameterError, match=r"stops must be ascending, and among the schedule's \(1, 2, 4\)"
    ):
        tb.release.Iterative(counted, stops, lambda _: True, schedule())


def test_a_stop_is_a_count() -> None:
    with pytest.raises(tb.ParameterError, match=r"stops\[0\] must be an integer >= 1, got 1.0"):
        tb.release.Iterative(counted, (1.0,), lambda _: True, schedule())  # type: ignore[arg-type]
