"""Laws of the adapter for dp-accounting: numbers that are no doubles are rounded to their side.

As in ``test_rounded_values.py``, they compare with exact fractions so closely that a line that is
turned, a million units the wrong way, makes one fail: `python -m tests.guards.sweep` finds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event as events
from flint import arb, ctx

import tightbudget as tb
from tightbudget.adapters.dp_accounting import distributions
from tightbudget.adapters.dp_accounting import events as adapter
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.binomial import binomial_tails
from tightbudget.theorems.best_of_many import Repetitions
from tightbudget.theorems.concentrated import Line

ADD, ONE, SPECIAL = Neighbouring.ADD_OR_REMOVE, Neighbouring.REPLACE_ONE, Neighbouring.ZERO_OUT
CLOSE = 1 + Fraction(1, 10**12)


@pytest.fixture(autouse=True)
def _bits() -> Iterator[None]:
    before, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = before


def step_of(event: Any, relation: Neighbouring) -> Any:
    ((step, _),) = adapter.steps_of(event, relation)
    return step


def test_a_loss_below_0_has_the_delta_of_the_other_direction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    real = tb.mechanisms.FromCurve

    def curve(epsilons: Any, deltas: Any, **known: Any) -> Any:
        asked.append(deltas)
        return real(epsilons, deltas, **known)

    monkeypatch.setattr(distributions, "FromCurve", curve)
    left = [0.3, 0.2, 0.1, 0.0]
    distributions._dots(np.arange(4), 0.1, [0.4, 0.3, 0.2, 0.1], left)
    for k in (1, 2, 3):
        truth = 1 - (-arb(k * 0.1)).exp() * (1 - arb(left[k]))
        assert truth <= arb(float(asked[0][3 - k])) <= truth + arb(1e-12)


def test_lines_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Line] = []

    def above(whole: Line, *_: Any) -> Any:
        asked.append(whole)
        return tb.Gaussian(1.0)

    monkeypatch.setattr(adapter, "above_divergences", above)
    adapter._composition_of([(Line(0.1, 0.2), 3), (Line(0.3, 0.7), 7)], ONE)
    for found, truth in (
        (asked[0].xi, 3 * Fraction(0.1) + 7 * Fraction(0.3)),
        (asked[0].rho, 3 * Fraction(0.2) + 7 * Fraction(0.7)),
    ):
        assert truth <= Fraction(found) <= truth * CLOSE


@pytest.mark.parametrize("p", [0.3, 0.7])
def test_noise_and_answers_that_are_no_doubles(p: float) -> None:
    noise = step_of(events.DiscreteLaplaceDpEvent(p, 1), ADD)
    assert 1 / Fraction(p) / CLOSE <= Fraction(noise.scale) <= 1 / Fraction(p)
    answer = step_of(events.RandomizedResponseDpEvent(p, 3), ONE)
    truth = 1 - Fraction(p) + Fraction(p) / 3
    assert truth <= Fraction(answer.p) <= truth * CLOSE
    special = step_of(events.RandomizedResponseDpEvent(p, 3), SPECIAL)
    true, others = map(Fraction, special.p)
    assert 3 * (1 - Fraction(p)) + Fraction(p) <= true <= 3 * CLOSE
    assert 2 * Fraction(p) / CLOSE <= others <= 2 * Fraction(p)


def test_chances_of_a_replaced_record() -> None:
    inner = events.PoissonSampledDpEvent(0.7, events.GaussianDpEvent(1.0))
    once, twice = step_of(inner, ONE), step_of(events.PoissonSampledDpEvent(0.3, inner), ONE)
    before = list(map(Fraction, once.weights))
    rest, *rare = map(Fraction, twice.weights)
    for weight, chance in zip(rare, before[1:], strict=True):
        truth = Fraction(0.3) * chance / sum(before)
        assert truth <= weight <= truth * CLOSE
    assert (1 - sum(rare)) / CLOSE <= rest <= 1 - sum(rare)


def test_rates_that_are_no_doubles() -> None:
    gaussian = events.GaussianDpEvent(1.0)
    for n, b in ((10, 3), (7, 1), (49, 7)):
        without = step_of(events.SampledWithoutReplacementDpEvent(n, b, gaussian), ADD)
        assert Fraction(b, n) <= Fraction(without.rate) <= Fraction(b, n) * CLOSE
        replaced = step_of(events.SampledWithReplacementDpEvent(n, b, gaussian), ADD)
        rate = Fraction(replaced.base.rate)
        assert Fraction(1, n) <= rate <= Fraction(1, n) * CLOSE


def test_a_place_in_a_batch_that_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record has at most (most / n) P(more than most of n) / P(most of n - 1 or more)."""
    asked: list[float] = []
    real = adapter._curve_of

    def curve(steps: Any, relation: Any, rate: float = 1.0) -> Any:
        asked.append(rate)
        return real(steps, relation, rate)

    monkeypatch.setattr(adapter, "_curve_of", curve)
    n, most, q = 100, 10, 0.3
    event = events.TruncatedSubsampledGaussianDpEvent(n, q, most, 1.0)
    adapter.steps_of(event, ONE)
    _, full = binomial_tails(n - 1, Fraction(q), most)
    _, (_, over) = binomial_tails(n, Fraction(q), most + 1)
    truth = Fraction(over) * most / (n * Fraction(full[0]))
    assert any(truth <= Fraction(rate) <= truth * CLOSE for rate in asked)


def test_gaussian_noise_that_is_declared_by_numbers() -> None:
    for moved, sigma in ((1.0, 0.3), (0.7, 3.3)):
        event: Any = SimpleNamespace(sensitivity=moved, sigma=sigma, dimension=7)
        ((line, _),) = adapter._discrete_gaussian(event, ADD)
        assert isinstance(line, Line)
        truth = (Fraction(moved) / Fraction(sigma)) ** 2 / 2
        assert truth <= Fraction(line.rho) <= truth * CLOSE
        several = [(tb.Gaussian(sigma, moved), 2), (tb.Gaussian(1.1), 1)]
        ((one, _),) = adapter._one_release(several)  # type: ignore[arg-type]
        assert isinstance(one, tb.Gaussian)
        square = 4 * truth + 1 / Fraction(1.1) ** 2
        assert square <= Fraction(one.sensitivity) ** 2 <= square * CLOSE


def test_divergences_of_what_is_repeated_add_up() -> None:
    lines = (Line(0.1, 0.2), 3), (Line(0.3, 0.7), 7)
    best = adapter._selected(lines, ONE, Repetitions(mean=3.0, shape=1.0))
    assert best is not None
    for order in (2.0, 3.3):
        parts = (runs * Fraction(line(order).upper) for line, runs in lines)
        truth = sum(parts, Fraction(0))
        assert truth <= Fraction(best.one(order).upper) <= truth * CLOSE
    assert math.isfinite(best(2.0).upper)
