"""Tables of losses: the pair's delta is the table's, and what rounding has left is set right."""

# Refusals are shown what a type checker would have refused before.
# mypy: disable-error-code="arg-type"

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exact import exp_ends

from tightbudget.errors import ParameterError
from tightbudget.mechanisms import LossTable, RandomizedResponse
from tightbudget.pairs.direction import Direction

STEP = 0.25


def said(table: tuple[int, list[float], float], epsilon: float) -> Fraction:
    """What a table says of delta(epsilon), within 1e-60."""
    first, masses, infinity = table
    total = Fraction(infinity)
    for i, mass in enumerate(masses):
        loss = (first + i) * Fraction(STEP)
        if loss > Fraction(epsilon):
            total += Fraction(mass) * (1 - exp_ends(Fraction(epsilon) - loss)[0])
    return total


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, list[float], float]:
    """Losses around 0 whose masses sum to nearly 1, and whose Q-mass may be anything."""
    weights = draw(st.lists(st.integers(0, 9), min_size=2, max_size=8).filter(any))
    lost = draw(st.sampled_from([0, 0, 1]))
    off = draw(st.sampled_from([1.0, 1.0 - 2e-4, 1.0 + 2e-4]))
    total = (sum(weights) + lost) / off
    first = draw(st.integers(-4, 4))
    return first, [w / total for w in weights], lost / total


@settings(max_examples=60)
@given(tables())
def test_delta_is_the_tables_where_a_pair_can_have_it(
    table: tuple[int, list[float], float],
) -> None:
    mechanism = LossTable(STEP, table)
    first = next(i for i, mass in enumerate(table[1]) if mass)
    lowest = (table[0] + first) * STEP
    for epsilon in (0.0, 0.1, 0.25, 0.6, 1.0, 2.0):
        got, truth = (mechanism * 1).delta(epsilon), said(table, epsilon)
        if epsilon >= lowest:  # from there on, never below the table
            assert Fraction(got.upper) >= truth * (1 - Fraction(1, 10**15))
            # and no higher, but where the missing or lifted mass may be
            slack = 3e-4 if excess(table) <= 0 else 1.0
            assert got.lower <= float(truth) + slack
        assert got.lower >= 0.0


def excess(table: tuple[int, list[float], float]) -> float:
    """By how much the Q-mass is more than 1, or near it."""
    first, masses, _ = table
    return math.fsum(p * math.exp(-(first + i) * STEP) for i, p in enumerate(masses)) - 1 + 3e-4


def test_a_true_table_is_the_mechanism() -> None:
    # randomised response with losses +-ln 3 exactly on the table's step
    step = math.log(3.0)
    table = LossTable(step, (-1, (0.25, 0.0, 0.75), 0.0))
    for runs in (1, 5):
        for epsilon in (0.0, 0.5, 2.0):
            ours = (table * runs).delta(epsilon)
            theirs = (RandomizedResponse(0.75) * runs).delta(epsilon)
            assert ours.upper == pytest.approx(theirs.upper, rel=1e-9)


def test_the_mass_at_infinity_and_both_directions_are_kept() -> None:
    table = LossTable(1.0, (0, (0.5, 0.3), 0.2), (0, (0.6, 0.3), 0.1))
    assert (table * 1).delta(math.inf).upper == pytest.approx(0.2)
    assert float(table.pair(Direction.ADD).p_only().upper[0]) == 0.1
    assert (LossTable(1.0, (3, (0.5,), 0.5)) * 1).delta(3.0).upper == pytest.approx(0.5)
    assert (LossTable(1.0, (0, (), 1.0)) * 1).epsilon(0.9).upper == math.inf


def test_mass_is_missing_or_too_much_at_the_smallest_losses_alone() -> None:
    exact = LossTable(1.0, (0, (0.5, 0.3, 0.2), 0.0))
    for masses in ((0.4995, 0.3, 0.2), (0.5005, 0.3, 0.2)):
        other = LossTable(1.0, (0, masses, 0.0))
        for epsilon in (0.0, 0.5, 1.5):
            assert (other * 1).delta(epsilon).upper == pytest.approx(
                (exact * 1).delta(epsilon).upper, rel=1e-12
            )


def test_too_much_q_mass_is_lifted() -> None:
    # all P-mass at loss -1 would have a Q-mass of e
    table = LossTable(1.0, (-1, (0.9, 0.0, 0.1), 0.0))
    pair = table.pair(Direction.REMOVE)
    q = pair.atoms().q
    assert math.fsum(q.lower) <= 1.0 <= math.fsum(q.upper) + 1e-15
    assert (table * 1).delta(0.0).upper == pytest.approx(0.1 * (1 - math.exp(-1)))
    assert max(pair.atoms().loss_upper) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"step": 0.0}, "step must be a finite number > 0, got 0.0"),
        ({"remove": 3}, r"remove must be \(first, masses, infinity\), got 3"),
        ({"remove": (0.5, (1.0,), 0.0)}, "remove's first must be an integer, got 0.5"),
        ({"remove": (True, (1.0,), 0.0)}, "remove's first must be an integer, got True"),
        ({"remove": (10**13, (1.0,), 0.0)}, "remove's first must be in"),
        ({"add": (0, (1.0, -1e-9), 0.0)}, r"add's masses\[1\] must be a finite number >= 0"),
        ({"add": (0, (0.9,), 0.0)}, r"add's masses and infinity must sum to 1 \(within 0.001\)"),
        ({"add": (0, (0.9,), 1.1)}, r"add's infinity must be in \[0, 1\], got 1.1"),
    ],
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        LossTable(**{"step": 1.0, "remove": (0, (1.0,), 0.0), **given})
