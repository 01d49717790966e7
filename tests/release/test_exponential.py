"""The exponential mechanism on data: the law of a choice, its range, and what it refuses."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests import exact
from tests.release.enumerated import Outcomes, power
from tests.release.test_best_trial import Bits, Coins

import tightbudget as tb
from tightbudget.release import ExponentialRelease
from tightbudget.release.noise import choices
from tightbudget.release.noise.choices import chosen, decided, weights


def as_it_is(data: Any) -> Any:
    return data


def of(candidates: Any = "abc", **given: Any) -> ExponentialRelease:
    """A choice whose data are the scores."""
    listed = tuple(candidates)
    return ExponentialRelease(as_it_is, listed, **{"epsilon": 1, **given})


# ------------------------------------------------------------------------------ the sampler

EXPONENTS = [
    (Fraction(0),),
    (Fraction(0), Fraction(0), Fraction(0)),
    (Fraction(1, 3), Fraction(0), Fraction(5, 2)),
    (Fraction(0.1), Fraction(0), Fraction(1, 10), Fraction(30)),
    (Fraction(0), Fraction(10**6), Fraction(1, 10**30), Fraction(10**400, 7)),
]


@pytest.mark.parametrize("exponents", EXPONENTS)
@pytest.mark.parametrize("digits", [5, 40, 60])
def test_weights_are_between_integers(exponents: tuple[Fraction, ...], digits: int) -> None:
    for x, (low, high) in zip(exponents, weights(exponents, digits), strict=True):
        least, most = exact.exp_ends(-x) if x < 10**5 else (Fraction(0), Fraction(1, 10**digits))
        assert 0 <= low <= least * 10**digits
        assert most * 10**digits <= high <= low + 3


def shares(exponents: Sequence[Fraction]) -> list[tuple[Fraction, Fraction]]:
    """Both ends of the probability of each index."""
    ends = [exact.exp_ends(-x) for x in exponents]
    least, most = (sum(column, Fraction(0)) for column in zip(*ends, strict=True))
    return [(low / most, high / least) for low, high in ends]


@pytest.mark.parametrize("exponents", EXPONENTS[:4])
def test_each_index_has_exactly_its_share(
    exponents: tuple[Fraction, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every path of up to nine coins: none is in a wrong share, and few are open."""
    monkeypatch.setattr(choices, "_TOSSES", 1)
    found = Outcomes.of(lambda noise: chosen(exponents, noise), depth=9)
    assert found.missing <= Fraction(len(exponents), 2**8)
    for i, (low, high) in enumerate(shares(exponents)):
        assert found.masses.get(i, 0) <= high
        assert low <= found.masses.get(i, 0) + found.missing


@pytest.mark.parametrize("exponents", EXPONENTS[:4])
def test_coins_beside_an_end_of_a_share_are_followed_by_more(
    exponents: tuple[Fraction, ...],
) -> None:
    ends = list(
        itertools.accumulate((share for share, _ in shares(exponents)), initial=Fraction(0))
    )
    tiny = Fraction(1, 10**12)
    for i, (low, high) in enumerate(itertools.pairwise(ends)):
        if high - low > 4 * tiny:
            for u in (low + tiny, high - tiny):
                assert chosen(exponents, Bits(u)) == i  # type: ignore[arg-type]
    # the end itself, to 90 bits: bounds of 64 coins do not tell
    third = Fraction(2**90 // 3, 2**90)
    assert decided(weights([Fraction(0)] * 3, 40), int(third * 2**64), 64) is None
    assert chosen([Fraction(0)] * 3, Bits(third)) == 0  # type: ignore[arg-type]
    assert chosen([Fraction(0)] * 3, Bits(third + Fraction(1, 2**90))) == 1  # type: ignore[arg-type]


def test_one_lot_of_coins_decides() -> None:
    """So that the number of coins tells nothing of the scores."""
    for scores in ([0] * 50, range(50), [0] * 49 + [1000], np.linspace(0, 1, 50)):
        coins = Coins(5)
        tossed = Counter[str]()

        def coin(toss: Any = coins.coin, tossed: Counter[str] = tossed) -> bool:
            tossed["coin"] += 1
            return bool(toss())

        coins.coin = coin  # type: ignore[method-assign]
        of(range(50)).release(scores, meter=tb.OutputDPOdometer(), noise=coins)
        assert tossed["coin"] == 64


def law(mechanism: ExponentialRelease, scores: Sequence[Any]) -> list[Fraction]:
    """The probability of each candidate to the base of :mod:`enumerated`, in rationals."""
    masses = [1 / power(x) for x in mechanism._exponents(mechanism._read(scores))]
    return [mass / sum(masses) for mass in masses]


def widest(mechanism: ExponentialRelease, pairs: Any) -> Fraction:
    """The largest quotient of two quotients P_i / Q_i, e^range, over pairs of scores."""
    found = Fraction(1)
    for here, there in pairs:
        ratios = [p / q for p, q in zip(law(mechanism, here), law(mechanism, there), strict=True)]
        assert min(ratios) <= 1 <= max(ratios)
        found = max(found, max(ratios) / min(ratios))
    return found


def neighbours(moves: Sequence[int], size: int = 3) -> list[tuple[tuple[int, ...], ...]]:
    """All pairs of small scores that are so far apart."""
    return [
        (scores, tuple(x + move for x, move in zip(scores, moved, strict=True)))
        for scores in itertools.product(range(4), repeat=size)
        for moved in itertools.product(moves, repeat=size)
    ]


def range_is_kept(monotone: bool) -> bool:
    mechanism = of(epsilon=Fraction(1, 2), monotone=monotone)
    ways = [[0, 1], [0, -1]] if monotone else [[-1, 0, 1]]
    return widest(mechanism, itertools.chain(*map(neighbours, ways))) == power(Fraction(1, 2))


@pytest.mark.parametrize("monotone", [True, False])
def test_the_losses_of_all_neighbours_have_the_range_epsilon(monotone: bool) -> None:
    """Exhaustive, in rationals: never more, and no less would do."""
    assert range_is_kept(monotone)


def test_scores_that_move_both_ways_are_not_monotone() -> None:
    claimed = of(epsilon=Fraction(1, 2), monotone=True)
    assert widest(claimed, neighbours([-1, 0, 1])) == power(Fraction(1))


def test_counts_of_all_small_columns_are_monotone() -> None:
    """One record more raises one count: every column of up to four records of three values."""
    mechanism = of("pqr", epsilon=Fraction(1, 2), monotone=True)
    columns = [
        column for n in range(4) for column in itertools.combinations_with_replacement("pqr", n)
    ]
    pairs = [
        ([column.count(v) for v in "pqr"], [(*column, more).count(v) for v in "pqr"])
        for column in columns
        for more in "pqr"
    ]
    assert widest(mechanism, pairs) <= power(Fraction(1, 2))


@pytest.mark.parametrize("step", [1, Fraction(1, 3), Decimal("0.7"), 2.5])
def test_the_sensitivity_scales_the_scores(step: Any) -> None:
    mechanism = of(sensitivity=step)
    steps = [0, Fraction(step), 2 * Fraction(step)]
    assert mechanism._exponents(mechanism._read(steps)) == [1, Fraction(1, 2), 0]


@pytest.mark.parametrize("x", [0.1, 0.3, 0.7, 1e-9])
def test_a_float_may_move_by_a_sensitivity_that_is_this_float(x: float) -> None:
    mechanism = of(sensitivity=x)
    assert mechanism._sensitivity >= Fraction(x)
    assert mechanism._sensitivity >= Fraction(repr(x))
    mechanism.rehearse([0, 0, 0], neighbours=[[x, 0, -x]])


def test_a_choice_is_made_as_often_as_it_is_likely() -> None:
    mechanism, noise, runs = of(epsilon=2), Coins(7), 4000
    scores: list[Any] = [Fraction(1, 3), 2.0, 1]
    counted = Counter(mechanism.unpaid_answer(scores, noise)[0] for _ in range(runs))
    exponents = mechanism._exponents(mechanism._read(scores))
    expected = [float(low) * runs for low, _ in shares(exponents)]
    chi = sum((counted[c] - e) ** 2 / e for c, e in zip("abc", expected, strict=True))
    assert chi < 13.8  # at two degrees of freedom, once in a thousand seeds
    # at half the epsilon, the same counts are not to be expected
    half = mechanism._exponents(mechanism._read([score / 2 for score in scores]))
    wrong = [float(low) * runs for low, _ in shares(half)]
    assert sum((counted[c] - e) ** 2 / e for c, e in zip("abc", wrong, strict=True)) > 100


# ------------------------------------------------------------------------------ the price


def test_each_budget_charges_what_is_proved() -> None:
    mechanism, scores = of(epsilon=0.4), [1, 2, 3]
    pure = tb.OutputDPFilter(epsilon=1)
    assert mechanism.release(scores, meter=pure).receipt.charged.epsilon == 0.4
    rho = tb.ZCDPFilter(rho=1)
    assert mechanism.release(scores, meter=rho).receipt.charged.amount == 0.02
    renyi = tb.RenyiFilter(order=3, epsilon=1)
    assert mechanism.release(scores, meter=renyi).receipt.charged.amount == 0.06
    # at a high order the loss is at most epsilon
    renyi = tb.RenyiFilter(order=300, epsilon=1)
    assert mechanism.release(scores, meter=renyi).receipt.charged.amount == 0.4
    assert mechanism.what_if(pure).most.epsilon == 0.4


def test_one_run_is_no_more_than_its_rho_at_all_orders() -> None:
    for epsilon in (0.1, 1.0, 5.0):
        mechanism = of(epsilon=epsilon)
        for order in (1.5, 2.0, 8.0, 64.0):
            found = mechanism.mechanism.renyi(order).lower
            assert found <= order * float(mechanism.guarantee.rho or 0)


def test_many_choices_are_composed_by_the_mechanism() -> None:
    assert of(epsilon=0.1).mechanism == tb.ExponentialMechanism(0.1)
    third = of(epsilon=Fraction(1, 3)).mechanism
    assert Fraction(third.epsilon) >= Fraction(1, 3)
    with pytest.raises(tb.ParameterError, match=r"^epsilon must be in \[0\.0001, 20\], got 50"):
        _ = of(epsilon=50).mechanism


# ------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"candidates": ()}, "candidates must be at least one, got ()"),
        ({"candidates": "abc"}, "candidates must be a list, got 'abc'"),
        ({"candidates": 3}, "candidates must be a list, got 3"),
        ({"candidates": (1, 2, 1.0)}, "candidates[2] must differ from all before it and be no NaN"),
        ({"candidates": (1, math.nan)}, "candidates[1] must differ from all before it"),
        ({"candidates": ([1],)}, "candidates[0] must be hashable, got [1]"),
        ({"sensitivity": 0}, "sensitivity must be a finite number > 0, got 0"),
        ({"sensitivity": -1}, "sensitivity must be a finite number > 0, got -1"),
        ({"sensitivity": math.nan}, "sensitivity must be a finite number > 0, got nan"),
        ({"epsilon": 0}, "epsilon must be a finite number > 0, got 0"),
        ({"epsilon": math.inf}, "epsilon must be a finite number > 0, got inf"),
        ({"monotone": 1}, "monotone must be True or False, got 1"),
        ({"bounds": 3}, "bounds must be two numbers, (low, high), got 3"),
        ({"bounds": (1, 0)}, "bounds must ascend, got (1, 0)"),
        ({"bounds": (0, math.inf)}, "bounds[1] must be a finite number, got inf"),
        ({"scores": 3}, "scores must be a function of 1 argument, got 3"),
        ({"scale": 3}, "Gumbel noise of a scale has epsilon = 2 * sensitivity / scale"),
    ],
)  # fmt: skip
def test_a_parameter_is_refused_by_name(given: Any, said: str) -> None:
    with pytest.raises(tb.ParameterError, match=re.escape(said)):
        ExponentialRelease(**{"scores": as_it_is, "candidates": ["ab"], "epsilon": 1, **given})


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ([1, 2], "the answer of scores must be 3 numbers, one for each candidate, got [1, 2]"),
        ([1, 2, 3, 4], "the answer of scores must be 3 numbers, one for each candidate"),
        (None, "the answer of scores must be 3 numbers, one for each candidate, got None"),
        ([1, math.nan, 3], "the answer of scores must have finite numbers alone, got nan"),
        ([1, math.inf, 3], "the answer of scores must have finite numbers alone, got inf"),
        ([1, "2", 3], "the answer of scores must have finite numbers alone, got '2'"),
    ],
)
@pytest.mark.parametrize("bounds", [None, (0, 4)])
def test_scores_that_are_none_are_refused_in_a_rehearsal_and_hidden_in_a_run(
    scores: Any, said: str, bounds: Any
) -> None:
    mechanism, meter = of(bounds=bounds), tb.OutputDPFilter(1)
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(said)}"):
        mechanism.rehearse(scores)
    assert meter.spent.epsilon == meter.held.epsilon == 0
    answer = mechanism.release(scores, meter=meter, noise=Coins(3))
    assert answer.value in mechanism.candidates
    assert answer.receipt.charged.epsilon == 1


def test_scores_of_any_size_have_a_place_without_bounds() -> None:
    big = 10**400
    kinds = [
        big,
        -big,
        math.inf,
        -math.inf,
        None,
        math.nan,
        Fraction(big, 3),
        Decimal("1e-999"),
        1j,
    ]
    mechanism = of(range(len(kinds)))
    assert mechanism._read(kinds)[:6] == [big, -big, 0, 0, 0, 0]
    assert mechanism._read(kinds)[6] == Fraction(big, 3)
    assert mechanism.release(kinds, meter=tb.OutputDPOdometer(), noise=Coins(1)).value == 0


def test_with_bounds_a_score_has_its_place_between_them() -> None:
    mechanism = of(range(6), bounds=(3, 4), epsilon=1)
    assert mechanism._read([None, math.inf, 9, -math.inf, 3.5]) == [3, 4, 4, 3, 3.5, 3]


def test_bounds_are_decimals() -> None:
    mechanism = of(bounds=(0.7, 0.8), sensitivity=0.1)
    low, _, high = mechanism._read([0, 0.75, 1])
    assert Fraction(high) - Fraction(low) == Fraction(1, 10) <= mechanism._sensitivity


@pytest.mark.parametrize("make", [list, tuple, np.array, lambda x: np.array([x]), iter])
def test_scores_are_read_from_any_vector(make: Any) -> None:
    read = of()._read(make([1, 2.5, 3]))
    assert read == ([1, 2.5, 3] if make is not iter else [0, 0, 0])


# ------------------------------------------------------------------------------ rehearsals


def test_a_neighbour_shows_that_the_sensitivity_is_wrong() -> None:
    said = "sensitivity must be at least 2.0, by which the score of 'b' moves to neighbours[1]"
    with pytest.raises(tb.ParameterError, match=re.escape(said)):
        of().rehearse([1, 1, 1], neighbours=[[1, 2, 1], [0, 3, 1]])
    huge = [1, 10**400, 1]
    with pytest.raises(tb.ParameterError, match=r"^sensitivity must be at least inf"):
        of().rehearse([1, 1, 1], neighbours=[huge])


def test_a_score_that_falls_where_others_rise_is_not_monotone() -> None:
    claimed = of(monotone=True)
    said = "monotone must be False if the score of 'c' rises to neighbours[0] and that of 'a' falls"
    with pytest.raises(tb.ParameterError, match=re.escape(said)):
        claimed.rehearse([1, 1, 1], neighbours=[[0, 1, 2]])
    for right in ([2, 1, 2], [0, 0, 1], [1, 1, 1]):
        assert claimed.rehearse([1, 1, 1], neighbours=[right]).cost.epsilon == 1
    assert of().rehearse([1, 1, 1], neighbours=[[0, 1, 2]]).cost.epsilon == 1


def rehearsal_says(mechanism: ExponentialRelease, there: Any) -> bool:
    try:
        mechanism.rehearse([1, 1, 1], neighbours=[there], noise=Coins(1))
    except tb.ParameterError:
        return False
    return True


def test_a_rehearsal_without_neighbours_checks_no_claim() -> None:
    assert of(monotone=True).rehearse([1, 1, 1]).cell == "value"
