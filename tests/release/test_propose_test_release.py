"""The test and its tie, prices, and the guarantee: exactly, on every tiny column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.exact import exp_ends
from tests.release.small import (
    Column,
    Geometric,
    Script,
    columns,
    neighbours,
    ordered,
    worst_excess,
)

import tightbudget as tb
from tightbudget.release.mechanisms import interquartile_range
from tightbudget.release.mechanisms.propose_test_release import StabilityTest
from tightbudget.release.noise.noise import IntArray

PRICINGS = pytest.mark.parametrize("pricing", list(tb.release.Pricing), ids=lambda p: p.value)

# ------------------------------------------------------------------------------ the test


@pytest.mark.parametrize("epsilon", ["1e-9", "0.001", "0.1", "0.5", "1", "2.5", "40", "1e6"])
@pytest.mark.parametrize("delta", ["1e-300", "1e-30", "1e-6", "0.01", "0.3", "0.75"])
def test_the_threshold_is_the_least_that_keeps_delta(epsilon: str, delta: str) -> None:
    test = StabilityTest(Fraction(epsilon), Fraction(delta))
    assert test.scale >= 1 / test.epsilon
    (q_low, q_high), t = exp_ends(-1 / test.scale), test.threshold
    low, high = exp_ends(-t / test.scale)
    assert high / (1 + q_low) <= test.delta
    if t > 1:  # one less would pass too often
        low, _ = exp_ends(-(t - 1) / test.scale)
        assert low / (1 + q_high) > test.delta * (1 - Fraction(1, 10**12))


def tied(t: int, q: Fraction) -> StabilityTest:
    """A test that passes at distance 1 with probability delta, exactly: no tie to spare."""
    test = StabilityTest(Fraction(-math.log(q)), Geometric(q).tail(t) * (1 + Fraction(1, 10**9)))
    assert test.threshold == t
    return test


@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(1, 10), Fraction(9, 10)])
@pytest.mark.parametrize("t", [1, 2, 5, 20])
def test_both_answers_are_close_and_delta_is_used_up(t: int, q: Fraction) -> None:
    test = tied(t, q)
    noise = Geometric(q).cut(t + 30)
    passing = {a: sum(m for z, m in noise.items() if test.passes(a, z)) for a in range(1, t + 25)}
    assert passing[1] == Geometric(q).tail(t)
    for a, near in product(passing, (-1, 1)):
        if a + near in passing:
            assert q * passing[a] <= passing[a + near]
            assert q * (1 - passing[a]) <= 1 - passing[a + near]


def test_a_tie_does_not_pass() -> None:
    test = tied(5, Fraction(1, 2))
    assert not test.passes(2, 3)
    assert test.passes(2, 4)


class Scales:
    """Writes down what noise is asked for; gives none."""

    batch = 1

    def __init__(self) -> None:
        self.asked = list[Any]()

    def laplace(self, scale: Any, size: int) -> IntArray:
        self.asked.append(scale)
        return np.zeros(size, dtype=np.int64)

    gaussian = laplace

    def coin(self) -> bool:
        return False


@pytest.mark.parametrize("epsilon", [Fraction(1, 3), Fraction(1, 10), Fraction(7)])
@pytest.mark.parametrize("sensitivity", [1, 2, 31, 10**6])
def test_noise_is_as_wide_as_the_price_asks(epsilon: Fraction, sensitivity: int) -> None:
    noise, test = Scales(), StabilityTest(epsilon, Fraction(1, 10))
    assert test.value(tb.release.Proposal(10**6, 5, sensitivity), noise) == 5
    assert noise.asked == [test.scale, sensitivity * test.scale]
    assert 1 / epsilon <= test.scale <= (1 + Fraction(1, 2**52)) / epsilon


def test_what_does_not_pass_draws_nothing_more() -> None:
    noise, test = Scales(), StabilityTest(Fraction(1), Fraction(1, 10))
    assert test.value(tb.release.Proposal(1, 5, 1), noise) is None
    assert noise.asked == [test.scale]


# ---------------------------------------------------------------------------- the prices


def protocol(
    tries: int, pricing: tb.release.Pricing = tb.release.Pricing.ONE_MECHANISM
) -> tb.release.ProposeTestRelease:
    return tb.release.ProposeTestRelease(lambda x: x, 0.1, 1e-6, tries, pricing)


@pytest.mark.parametrize("tries", [1, 2, 3])
def test_prices_as_one_mechanism(tries: int) -> None:
    tenth = Fraction(1, 10)
    cells = {"value": (tries + 1) * tenth, "bottom": tries * tenth}
    assert protocol(tries).guarantee == tb.OutputDP(cells, 1e-6)


def test_prices_in_turn() -> None:
    cells = {("value", 1): 0.2, ("value", 2): 0.3, "bottom": 0.2}
    assert protocol(2, tb.release.Pricing.IN_TURN).guarantee == tb.OutputDP(cells, 1e-6)


@pytest.mark.parametrize("coin", [False, True])
def test_a_coin_says_which_try_is_first(coin: bool) -> None:
    turn = protocol(2, tb.release.Pricing.IN_TURN)
    proposals = [tb.release.Proposal(1, 5, 2), tb.release.Proposal(10**6, 7, 2)]
    assert turn.run(proposals, Script(turn.test.scale, [0, 0], coin)) == (7, ("value", 2 - coin))
    one = protocol(2)
    assert one.run(proposals, Script(one.test.scale, [0, 0], coin)) == (7, "value")


def test_no_try_costs_nothing() -> None:
    nothing = protocol(0)
    assert nothing.guarantee == tb.OutputDP({"bottom": 0})
    meter = tb.OutputDPFilter(0)
    assert nothing.release("never proposed on", meter=meter).cell == "bottom"


def test_the_tries_share_delta() -> None:
    assert [protocol(k).test.delta * k for k in (1, 2, 3)] == [Fraction(1, 10**6)] * 3


class Words(list[tb.release.Proposal]):
    def __iter__(self) -> Any:
        raise ZeroDivisionError("secret")


@pytest.mark.parametrize("found", [None, 5, [], ["x"], Words(), [tb.release.Proposal(9, 9, 2**41)]])
def test_proposals_that_fail_are_at_distance_1(found: Any) -> None:
    assert protocol(2)._proposals(found) == [tb.release.Proposal(1, 0, 1)] * 2


def test_a_proposal_that_fails_costs_no_other_its_place() -> None:
    good = tb.release.Proposal(9, 9, 2)
    assert protocol(2)._proposals([good]) == [good, tb.release.Proposal(1, 0, 1)]
    assert protocol(2)._proposals([None, good, good]) == [tb.release.Proposal(1, 0, 1), good]


@pytest.mark.parametrize("wrong", [(0, 0, 1), (2, 0.5, 1), (2, 0, 0), (1.5, 0, 1), (2, "1", 1)])
def test_a_proposal_of_anything_but_integers_is_not_seen(wrong: Any) -> None:
    careless = tb.release.ProposeTestRelease(lambda _: [tb.release.Proposal(*wrong)], 0.1, 1e-6)
    meter = tb.OutputDPFilter(1, 0.1)
    assert careless.release(None, meter=meter).cell == "bottom"  # but for one run in a million
    assert meter.spent.epsilon == 0.1


def test_proposals_have_integers_that_do_not_overflow() -> None:
    proposal = tb.release.Proposal(np.int64(2), np.int64(2**63 - 1), np.int64(1))  # type: ignore[arg-type]
    assert all(type(x) is int for x in (proposal.distance, proposal.value, proposal.sensitivity))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 0}, r"epsilon must be a finite number > 0, got 0"),
        ({"epsilon": 1e-10}, r"epsilon must be at least 1e-9, got 1e-10"),
        ({"delta": 0}, r"delta must be in \[1e-300, 1\), got 0"),
        ({"delta": 1}, r"delta must be in \[1e-300, 1\), got 1"),
        ({"delta": 2}, r"delta must be in \[0, 1\], got 2"),
        ({"tries": -1}, r"tries must be an integer >= 0, got -1"),
        ({"pricing": "cheap"}, r"pricing must be one of .*, got 'cheap'"),
    ],
)
def test_refusals(given: dict[str, object], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=f"^{message}$"):
        tb.release.ProposeTestRelease(lambda x: x, **({"epsilon": 1, "delta": 0.1} | given))  # type: ignore[arg-type]


# ------------------------------------------------------------------- exactly what it keeps

HALF = Fraction(1, 2)


def worst(
    statistic: tb.release.InterquartileRange | tb.release.Median | tb.release.TrimmedMean,
    n: int,
    domain: Sequence[int],
    s: int,
    p: Fraction = HALF,
) -> Fraction:
    """The largest excess over all neighbouring columns, as a part of the delta claimed."""
    everything = {x: ordered(x, max(domain)) for x in columns(n, domain)}
    protocol = statistic._protocol
    return worst_excess(protocol, everything, p, s) / protocol.guarantee.delta


def parameters(t: int, q: Fraction, tries: int = 2) -> dict[str, Any]:
    """Such that the threshold is t, and a test at distance 1 uses up its part of delta."""
    test = tied(t, q)
    return {"epsilon": test.epsilon, "delta": tries * test.delta, "step": 1}


FINE, FAR = range(-2, 3), (-60, -1, 0, 60)


@pytest.mark.one_in(6)
@PRICINGS
@pytest.mark.parametrize("t", [1, 2, 3])
@pytest.mark.parametrize(
    "domain", [pytest.param(FINE, id="fine", marks=pytest.mark.slow), pytest.param(FAR, id="far")]
)
def test_the_median_keeps_its_promise(
    t: int, domain: Sequence[int], pricing: tb.release.Pricing
) -> None:
    s = 3  # bins of four, for five records
    statistic = tb.release.Median(**parameters(t, HALF**s), scale=4 * math.cbrt(5), pricing=pricing)
    used = worst(statistic, 5, domain, s)
    assert used <= 1
    assert used > 0.9 or domain is not FAR  # and all of it, where records are far apart


@PRICINGS
@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize(
    "domain",
    [
        pytest.param(range(4), id="fine", marks=pytest.mark.slow),
        pytest.param((0, 1, 100), id="far", marks=pytest.mark.slow),
    ],
)
def test_the_interquartile_range_keeps_its_promise(
    t: int, domain: Sequence[int], pricing: tb.release.Pricing
) -> None:
    s, p = 31, Fraction(9, 10)
    statistic = tb.release.InterquartileRange(**parameters(t, p**s), pricing=pricing)
    used = worst(statistic, 5, domain, s, p)
    assert used <= 1
    assert used > 0.8 or domain == range(4)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("t", [1, 2, 3])
@pytest.mark.parametrize("spread", [2, 3])
@pytest.mark.parametrize("domain", [FINE, FAR], ids=["fine", "far"])
def test_the_trimmed_mean_keeps_its_promise(t: int, spread: int, domain: Sequence[int]) -> None:
    statistic = tb.release.TrimmedMean(**parameters(t, HALF**spread, 1), spread=spread, trim=0.2)
    used = worst(statistic, 5, domain, spread)
    assert used <= 1
    assert used > 0.9 or domain is not FAR


@pytest.mark.slow
def test_two_bounds_can_fail_at_once() -> None:
    """Two tries with a whole delta each have nearly two of it, and not the one of Lemma 10."""
    test = tied(3, HALF**3)
    bins = tb.release.Median(epsilon=1, delta=0.1, step=1, scale=4 * math.cbrt(5))
    generous = tb.release.ProposeTestRelease(bins._propose, test.epsilon, 2 * test.delta, 2)
    everything = {x: ordered(x, 60) for x in columns(5, FAR)}
    assert worst_excess(generous, everything, HALF, 3) > Fraction(19, 10) * test.delta


# ------------------------------------------------------------------ what a proposal promises

GIVEN: dict[str, Any] = {"epsilon": 1, "delta": 0.1, "step": 1}
# the least and the largest range of one bin of the first try, far from where ranges round
LOW, HIGH = (int(interquartile_range._scale(8)[32 * 20 + i]) - i // 32 for i in (0, 32))
PROPOSED: dict[str, tuple[Any, list[Column]]] = {
    "median": (tb.release.Median(**GIVEN, scale=4 * math.cbrt(5)), columns(5, range(-1, 5))),
    "range": (tb.release.InterquartileRange(**GIVEN), columns(8, (0, LOW, HIGH))),
    "trimmed mean": (tb.release.TrimmedMean(**GIVEN, spread=3, trim=0.2), columns(5, range(-2, 3))),
}


def change_over_sensitivity(name: str) -> Fraction:
    """The largest change of a proposed value, as a part of the sensitivity, over all neighbours."""
    statistic, everything = PROPOSED[name]
    proposed = {x: statistic._propose(ordered(x, HIGH)) for x in everything}
    parts = [Fraction(0)]
    for x, y in neighbours(everything):
        for mine, other in zip(proposed[x], proposed[y], strict=True):
            assert mine.sensitivity == other.sensitivity
            if mine.distance >= 2:
                parts.append(Fraction(abs(mine.value - other.value), mine.sensitivity))
    return max(parts)


@pytest.mark.parametrize("name", list(PROPOSED))
def test_a_sensitivity_is_the_largest_change_of_a_proposed_value(name: str) -> None:
    """At a distance of two or more no neighbour's value is further away, and one is as far."""
    assert change_over_sensitivity(name) == 1
