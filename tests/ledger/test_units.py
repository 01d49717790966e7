"""Rounding happens once: charges go up, caps go down, and nothing positive becomes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.output_dp.amount import ExactAmount
from tightbudget.promises.units import NOTHING, Units

fractions = st.fractions(0, 10**6, max_denominator=10**30)
probabilities = st.fractions(0, 1, max_denominator=10**40)
amounts = st.builds(ExactAmount, fractions, probabilities)
units = st.builds(Units, st.integers(0, 10**18), st.integers(0, 10**18))


@given(amounts)
def test_a_charge_is_at_least_the_amount_by_less_than_one_unit(amount: ExactAmount) -> None:
    charged = Units.charged(amount)
    over = charged.exact().minus(amount)
    assert 0 <= over.counted < Fraction(1, 10**12)
    assert 0 <= over.delta < Fraction(1, 10**18)


@given(amounts)
def test_a_cap_is_at_most_the_amount_by_less_than_one_unit(amount: ExactAmount) -> None:
    under = amount.minus(Units.granted(amount).exact())
    assert 0 <= under.counted < Fraction(1, 10**12)
    assert 0 <= under.delta < Fraction(1, 10**18)


@given(st.fractions(0, 1).filter(bool), st.integers(18, 400))
def test_nothing_that_is_positive_is_free(amount: Fraction, power: int) -> None:
    tiny = amount / 10**power
    assert Units.charged(ExactAmount(tiny, tiny)) == (1, 1)
    assert Units.charged(ExactAmount(Fraction(0), Fraction(0))) == NOTHING


@pytest.mark.slow
@given(st.lists(amounts, max_size=20))
def test_what_is_charged_one_by_one_covers_the_sum(parts: list[ExactAmount]) -> None:
    total, charged = ExactAmount(Fraction(0), Fraction(0)), NOTHING
    for part in parts:
        total, charged = total.plus(part), charged.plus(Units.charged(part))
    assert total.fits(charged.exact())


@given(units)
def test_on_the_way_to_floats_and_back_the_side_stays_the_same(exact: Units) -> None:
    up, down = exact.up("epsilon"), exact.down("epsilon")
    for decimal, unit in ((up.epsilon, exact.epsilon), (down.epsilon, exact.epsilon)):
        assert abs(Fraction(str(decimal)) * 10**12 - unit) <= Fraction(unit, 2**51)
    assert Fraction(str(down.epsilon)) * 10**12 <= exact.epsilon
    assert exact.epsilon <= Fraction(str(up.epsilon)) * 10**12
    assert Fraction(str(down.delta)) * 10**18 <= exact.delta
    assert exact.delta <= Fraction(str(up.delta)) * 10**18


@given(units, units)
def test_nearly_fits_is_a_billionth_of_what_is_left(asked: Units, left: Units) -> None:
    near = all(
        Fraction(a) <= Fraction(b) * (1 + Fraction(1, 10**9))
        for a, b in zip(asked, left, strict=True)
    )
    assert asked.nearly_fits(left) == near
    assert asked.fits(left) == (asked.least(left) == asked)


def test_of_nothing_left_nothing_is_granted() -> None:
    assert not Units(1, 0).nearly_fits(NOTHING)
    assert not Units(0, 1).nearly_fits(Units(10**18, 0))
    assert not Units(10**9, 0).nearly_fits(Units(10**9 - 1, 0))
    assert Units(10**9 + 1, 0).nearly_fits(Units(10**9, 0))


@pytest.mark.parametrize("round_", [Units.charged, Units.granted])
@pytest.mark.parametrize(
    ("amount", "message"),
    [
        (ExactAmount(Fraction(10**7), Fraction(0)), "epsilon must be at least 0 and fit into"),
        (ExactAmount(Fraction(-1), Fraction(0)), "epsilon must be at least 0 and fit into"),
        (ExactAmount(Fraction(0), Fraction(10)), "delta must be at least 0 and fit into"),
        (ExactAmount(Fraction(10**400), Fraction(0)), "ledger's integers, got inf"),
    ],
)
def test_what_no_database_integer_holds_is_refused_by_name(
    round_: Callable[[ExactAmount], Units], amount: ExactAmount, message: str
) -> None:
    with pytest.raises(tb.ParameterError, match=re.escape(message)):
        round_(amount)


def test_the_largest_integer_is_still_granted() -> None:
    largest = ExactAmount(Fraction(2**63 - 1, 10**12), Fraction(1))
    assert Units.charged(largest) == Units.granted(largest) == (2**63 - 1, 10**18)
