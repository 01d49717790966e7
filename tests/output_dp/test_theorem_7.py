"""Theorem 7 by exhaustion: no analyst does better than the budget, and some do no worse."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from tests.output_dp.analyst import Finite, Left, algorithm_1, random_mechanism, worst_delta

import tightbudget as tb


def game(random: Random, mechanisms: int) -> tuple[int, Fraction, list[Finite]]:
    """A cap, a delta that some choice of runs uses up, and mechanisms to choose from."""
    library = [random_mechanism(random) for _ in range(mechanisms)]
    deltas = [m.guarantee.delta for m in random.choices(library, k=2)]
    delta = random.choice((max(deltas), sum(deltas), Fraction(0)))
    return random.randint(0, 4), min(Fraction(1), Fraction(delta)), library


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "mechanisms", "games"),
    [(1, 3, 500), pytest.param(2, 3, 2000, marks=pytest.mark.slow), (3, 2, 500)],
)
def test_no_analyst_gets_more_than_the_budget(rounds: int, mechanisms: int, games: int) -> None:
    random = Random(f"{rounds} rounds")
    tight = refunds = 0
    for _ in range(games):
        cap, delta, library = game(random, mechanisms)
        for library_ in (library, [m.reversed() for m in library]):
            worst = worst_delta(cap, delta, library_, rounds)
            assert worst <= delta
            tight += worst == delta > 0
        refunds += any(
            left is not None and left[0] > cap - m.guarantee.sup
            for m in library
            for cell in range(len(m.prices))
            for left in [algorithm_1((Fraction(cap), delta), m, cell)]
        )
    algorithm_1.cache_clear()
    # the games are not empty: in many the whole budget can be got, in many something comes back
    assert tight > games / 20
    assert refunds > games / 10


# No delta; the outputs of cell 0 tell nothing, those of cell 1 as much as ln 2.
FIRST = Finite(
    (
        (Fraction(1, 2), Fraction(1, 2), 0),
        (Fraction(1, 3), Fraction(1, 6), 1),
        (Fraction(1, 6), Fraction(1, 3), 1),
    ),
    (0, 1),
)


def leaky(price: int, delta: Fraction) -> Finite:
    """All that (price, delta)-DP allows: leaks with delta, else a ratio of 2^price."""
    high = (1 - delta) * Fraction(2**price, 2**price + 1)
    low = high / 2**price
    return Finite(
        ((delta, Fraction(0), 0), (high, low, 0), (low, high, 0), (Fraction(0), delta, 0)), (price,)
    )


def test_a_refund_is_all_that_can_be_given() -> None:
    """An analyst who spends what came back gets just the budget; with more back, too much."""
    delta = Fraction(1, 16)
    library = [FIRST, leaky(2, delta), leaky(1, delta)]
    assert FIRST.guarantee.delta == 0
    assert worst_delta(2, delta, library, 2) == delta

    def generous(left: Left, mechanism: Finite, cell: int) -> Left | None:
        after = algorithm_1(left, mechanism, cell)
        return after and (left[0], after[1])  # all of epsilon comes back

    assert worst_delta(2, delta, library, 2, move=generous) == 3 * delta


def test_the_whole_of_epsilon_can_be_used() -> None:
    """Without any delta: views at likelihood ratio 2^cap exist, with refunds on the way."""
    response = leaky(1, Fraction(0))
    for cap in range(1, 5):
        assert worst_delta(cap, Fraction(0), [response], 5) == 0
        less = Fraction(199, 100)
        assert worst_delta(cap, Fraction(0), [response], 5, base=less) > 0


# Cell 0 tells nothing; cell 1 tells P from Q for certain. Its delta is all in cell 1.
TELLTALE = Finite(((Fraction(9, 10), Fraction(1), 0), (Fraction(1, 10), Fraction(0), 1)), (0, 0))


def test_a_delta_that_is_settled_per_cell_is_refuted() -> None:
    """The whole delta is held; but where cell 0 comes out, which has none, it comes back."""
    deltas = {0: Fraction(0), 1: Fraction(1, 10)}
    told = tb.OutputDP.from_subset_dp({c: (0, d) for c, d in deltas.items()})
    assert told == TELLTALE.guarantee

    def per_cell(left: Left, mechanism: Finite, cell: int) -> Left | None:
        after = algorithm_1(left, mechanism, cell)
        return after and (after[0], left[1] - deltas[cell])

    budget = Fraction(1, 10)
    assert worst_delta(0, budget, [TELLTALE], 2) == budget
    assert worst_delta(0, budget, [TELLTALE], 2, move=per_cell) == Fraction(19, 100)
    assert worst_delta(0, budget, [TELLTALE], 20, move=per_cell) == 1 - Fraction(9, 10) ** 20


def test_the_filter_does_not_let_that_analyst_through() -> None:
    account = tb.OutputDPFilter(0, 0.1)
    account.reserve(TELLTALE.guarantee).settle(0)
    with pytest.raises(
        tb.errors.BudgetError, match=r"requested epsilon 0\.0, delta 0\.1; left epsilon"
    ):
        account.reserve(TELLTALE.guarantee)
