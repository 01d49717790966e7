"""Release with a test: prices against their formula, and output by output in rationals."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from typing import Any

import pytest
from tests.release.enumerated import Outcomes, power

import tightbudget as tb
from tightbudget.release.mechanisms import tested

HALF = Fraction(1, 2)


def mechanism(**changes: Any) -> tb.release.GatedRelease[int]:
    """A noisy number, released if it is near another one."""
    given: dict[str, Any] = {
        "train": lambda data, noise: data + int(noise.laplace(2, 1)[0]),
        "epsilon": HALF,
        "error": lambda value, data: abs(value - data),
        "threshold": 1,
        "test_epsilon": HALF,
        "by_test": 1,
        "by_training": 1,
    }
    return tb.release.GatedRelease(**given | changes)


@pytest.mark.parametrize(
    ("by_test", "by_training", "epsilon", "test_epsilon"),
    [(2, 1, 8, 1), (1, 4, 8, 1), (1, 4, 1, 8), (3, 1, 1, 8), (1, 1, 1, 1)],
)
def test_prices_are_those_of_the_theorem(
    by_test: int, by_training: int, epsilon: int, test_epsilon: int
) -> None:
    found = mechanism(
        by_test=by_test, by_training=by_training, epsilon=epsilon, test_epsilon=test_epsilon
    ).guarantee
    value = max(Fraction(epsilon), Fraction(by_test, max(by_test, by_training)) * test_epsilon)
    assert 0 <= found.price("value") - value < Fraction(1, 10**5)
    assert 0 <= found.price("bottom") - min(value, Fraction(test_epsilon)) < Fraction(1, 10**5)
    assert found.delta == 0


def test_without_a_coupling_nothing_is_given_back() -> None:
    found = mechanism(by_training=None, epsilon=1.0, test_epsilon=0.1).guarantee
    assert found == tb.OutputDP({"value": 1, "bottom": 1})


def worst_excess(
    tested_release: tb.release.GatedRelease[int], prices: dict[str, Fraction]
) -> Fraction:
    """Most by which an output breaks its price, for a record of either part."""
    excess = Fraction(-1)
    for neighbours in (((0, 0), (1, 0)), ((0, 0), (0, 1)), ((3, 0), (4, 0)), ((3, 0), (3, 1))):
        found = []
        for parts in neighbours:

            def run(noise: Any, parts: tuple[int, int] = parts) -> Any:
                answer = tested_release.release(parts, meter=tb.OutputDPOdometer(), noise=noise)
                return answer.cell, answer.value

            found.append(Outcomes.of(run, widest=8))
        for one, other in (found, found[::-1]):
            for outcome, mass in one.masses.items():
                rest = other.masses.get(outcome, Fraction(0)) + other.missing
                excess = max(excess, mass - power(prices[outcome[0]]) * rest)  # type: ignore[index]
    return excess


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid of whole numbers: an error that moves by 1 moves by at most 2 points."""
    monkeypatch.setattr(tested, "_FINENESS", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("coarse")
def test_every_output_costs_its_price() -> None:
    for test_epsilon in (HALF, Fraction(1)):
        audited = mechanism(test_epsilon=test_epsilon)
        prices = {str(c): p for c, p in audited.guarantee.cells.items()}
        assert worst_excess(audited, prices) <= 0


@pytest.mark.slow
@pytest.mark.usefixtures("coarse")
def test_the_audit_catches_a_price_that_is_too_low() -> None:
    audited = mechanism()
    assert worst_excess(audited, {"value": Fraction(1, 4), "bottom": HALF}) > Fraction(1, 100)
    assert worst_excess(audited, {"value": HALF, "bottom": Fraction(0)}) > Fraction(1, 100)


def test_a_released_output_is_what_was_trained() -> None:
    for threshold, cell in ((1e6, "value"), (-1e6, "bottom")):
        seen = mechanism(train=lambda data, _: ["model", data], error=lambda *_: 0.0)
        answer = tb.release.GatedRelease(**{**vars_of(seen), "threshold": threshold}).release(
            ("rows", "held out"), meter=tb.OutputDPOdometer()
        )
        assert answer.cell == cell
        assert answer.value == (["model", "rows"] if cell == "value" else None)


def vars_of(release: tb.release.GatedRelease[Any]) -> dict[str, Any]:
    return {field.name: getattr(release, field.name) for field in fields(release)}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": 0}, "epsilon must be a finite number > 0, got 0"),
        ({"threshold": float("nan")}, "threshold must be a finite number, got nan"),
        ({"test_epsilon": -1}, "test_epsilon must be a finite number > 0, got -1"),
        ({"by_test": 0}, "by_test must be a finite number > 0, got 0"),
        ({"by_training": 0}, "by_training must be a finite number > 0, got 0"),
        ({"test_epsilon": 1e-9}, r"scale must be in \(0, 2\^40"),
    ],
)
def test_refusals(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        mechanism(**changes)


@pytest.mark.parametrize("x", [Fraction(n, 8) for n in (1, 3, 5, 8, 19, 64)])
def test_powers_of_two(x: Fraction) -> None:
    power_of_two = Fraction(tested.power_of_two_down(x))
    assert power_of_two <= x < 2 * power_of_two
