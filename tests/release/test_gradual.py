"""Gradual release: its chain in rational arithmetic, and its prices output by output."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import flint
import pytest
from tests.release.enumerated import Outcomes, power

import tightbudget as tb
from tightbudget.release.mechanisms import gradual


def masses(a: Fraction, k: int) -> Fraction:
    return (1 - a) / (1 + a) * a ** abs(k)


def of_both(a: Fraction, b: Fraction, k: int) -> Fraction:
    """The mass of the sum of two noises at k >= 0, in closed form."""
    outside = (a**k + b**k) * a * b / (1 - a * b)
    inside = sum((b**j * a ** (k - j) for j in range(k + 1)), Fraction(0))
    return (1 - a) / (1 + a) * (1 - b) / (1 + b) * (outside + inside)


def stays(a: Fraction, b: Fraction) -> Fraction:
    return b / a * ((1 - a) / (1 - b)) ** 2


@pytest.mark.parametrize("a", [Fraction(1, 2), Fraction(9, 10), Fraction(2, 7)])
@pytest.mark.parametrize("b", [Fraction(1, 4), Fraction(1, 5), Fraction(1, 100)])
def test_the_chain_has_laplace_noise_at_every_answer(a: Fraction, b: Fraction) -> None:
    p = stays(a, b)
    assert 0 < p < 1
    for k in range(12):
        assert p * masses(b, k) + (1 - p) * of_both(a, b, k) == masses(a, k)


@pytest.mark.parametrize("narrow", [1e-3, 0.1, 1.0, 7.5, 1e3, 1e9])
@pytest.mark.parametrize("factor", [1.0 + 1e-9, 1.5, 10.0, 1e6])
def test_the_coin_is_never_too_likely_to_stay(narrow: float, factor: float) -> None:
    small, large = Fraction(narrow), Fraction(narrow * factor)
    with flint.ctx.workprec(400):
        halves = [flint.arb(x.denominator) / (2 * flint.arb(x.numerator)) for x in (large, small)]
        truth = (halves[0].sinh() / halves[1].sinh()) ** 2
        found = gradual.stay_down(small, large)
        ball = flint.arb(found.numerator) / flint.arb(found.denominator)
        assert ball <= truth
        if found:
            assert ball >= truth * (1 - flint.arb(2) ** -38)
        else:
            assert narrow < 1 / 1400


EPSILONS = (Fraction(1, 4), Fraction(1, 2), Fraction(1))


def exactly(narrow: Fraction, wide: Fraction) -> Fraction:
    return stays(1 / power(1 / wide), 1 / power(1 / narrow))


def outcomes(truth: int, epsilons: tuple[Any, ...], widest: int) -> Outcomes:
    """With a rule that looks at what came out: an answer divisible by 3 is good enough."""
    mechanism = tb.release.GradualRelease(
        lambda data: data, 1, epsilons, lambda answers: answers[-1] % 3 == 0
    )
    return Outcomes.of(
        lambda noise: mechanism.release(truth, meter=tb.OutputDPFilter(1), noise=noise).value,
        widest,
    )


def worst_excess(epsilons: tuple[Fraction, ...], widest: int) -> Fraction:
    """Most by which an output breaks its price, in units of what the enumeration misses."""
    found = [outcomes(truth, epsilons, widest) for truth in (0, 1)]
    excess = Fraction(-1)
    for one, other in (found, found[::-1]):
        for answers, mass in one.masses.items():
            price = epsilons[len(answers) - 1]  # type: ignore[arg-type]
            rest = power(price) * (other.masses.get(answers, Fraction(0)) + other.missing)
            excess = max(excess, mass - rest)
    return excess


@pytest.fixture
def rational(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradual, "stay_down", exactly)
    monkeypatch.setattr(gradual, "bernoulli", lambda p, noise: noise.biased(p))


@pytest.mark.slow
@pytest.mark.usefixtures("rational")
def test_every_output_costs_what_its_last_answer_costs() -> None:
    assert worst_excess(EPSILONS[1:], 12) <= 0
    assert worst_excess(EPSILONS, 5) <= 0


@pytest.mark.slow
@pytest.mark.usefixtures("rational")
def test_the_audit_catches_noise_that_is_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradual, "stay_down", lambda narrow, wide: Fraction(9, 10))
    assert worst_excess(EPSILONS[1:], 12) > Fraction(1, 100)


@pytest.mark.usefixtures("rational")
def test_each_answer_by_itself_has_laplace_noise() -> None:
    first, *_ = EPSILONS[1:]
    found = outcomes(0, EPSILONS[1:], 12)
    for k in range(-4, 5):
        mass = sum((m for answers, m in found.masses.items() if answers[0] == k), Fraction(0))  # type: ignore[index]
        assert 0 <= masses(1 / power(first), k) - mass <= found.missing < Fraction(1, 100)


@pytest.mark.parametrize(("last", "price"), [(1, 0.5), (2, 1.0), (3, 2.0)])
def test_it_stops_when_the_rule_says_so(last: int, price: float) -> None:
    meter = tb.OutputDPFilter(2)
    mechanism = tb.release.GradualRelease(len, 1, (0.5, 1, 2), lambda answers: len(answers) == last)
    answer = mechanism.release("abc", meter=meter)
    assert answer.cell == len(answer.value) == last
    assert meter.spent.epsilon == price


def test_answers_lie_on_the_grid() -> None:
    mechanism = tb.release.GradualRelease(math.fsum, 0.3, (0.5, 1), lambda _: False, step=0.125)
    answers = mechanism.release([0.1, 0.2], meter=tb.OutputDPFilter(1)).value
    assert all(8 * answer == int(8 * answer) for answer in answers)


@pytest.mark.parametrize(
    ("epsilons", "said"),
    [
        ((), r"epsilons must be ascending, and at least one, got \(\)"),
        ((0.5, 0.5), "epsilons must be ascending"),
        ((1, 0.5), "epsilons must be ascending"),
        ((0, 0.5), r"epsilons\[0\] must be a finite number > 0, got 0"),
        ((1e-15,), r"scale must be in \(0, 2\^40"),
    ],
)
def test_refusals(epsilons: tuple[float, ...], said: str) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        tb.release.GradualRelease(len, 1, epsilons, lambda _: True)
