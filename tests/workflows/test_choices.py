"""Workflows whose moves choose: exponential mechanisms, each run with an interval of its own."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.mechanisms.bounded_range import best_of_one_run, largest_of_one_run
from tightbudget.numerics.rounding import FloatArray
from tightbudget.workflows.workflow import Workflow

# a pair with the losses ln 1.5 and -ln 1.5, in both directions
COIN = tb.HistogramPair([0.6, 0.4], [0.4, 0.6])
LOSSES = ((math.log(1.5), 0.6), (-math.log(1.5), 0.4))


def drawn(seed: int) -> tuple[dict[int, list[tuple[Any, int]]], dict[Any, float]]:
    """A graph of up to four states, each with one or two moves, and prices."""
    draw = random.Random(seed)
    n = draw.choice([2, 3, 4])
    moves: dict[int, list[tuple[Any, int]]] = {n - 1: []}
    for i in range(n - 1):
        targets = {i + 1, *(draw.randrange(i + 1, n) for _ in range(draw.choice([0, 1])))}
        runs = [0.3, 0.5, 1.1, COIN]
        moves[i] = [(draw.choice(runs), target) for target in sorted(targets)]
    prices = {i: round(draw.uniform(0.0, 0.8), 3) for i in range(1, n)}
    return moves, prices


def by_points(
    moves: Mapping[int, Sequence[tuple[Any, int]]], prices: Mapping[Any, float], each: int
) -> float:
    """The best that an analyst can do whose intervals begin at ``each`` + 1 places."""

    def value(state: int, loss: FloatArray) -> FloatArray:
        best = np.zeros(loss.shape)
        if state in prices:
            best = np.maximum(best, -np.expm1(np.minimum(0.0, prices[state] - loss)))
        for run, after in moves[state]:
            if run is COIN:
                gain = sum(mass * value(after, loss + one) for one, mass in LOSSES)
            else:
                t = np.linspace(0.0, run, each + 1)
                stay = np.expm1(t - run) / math.expm1(-run)
                high, low = (value(after, loss[..., None] + t - off) for off in (0.0, run))
                gain = (stay * high + (1 - stay) * low).max(axis=-1)
            best = np.maximum(best, gain)
        return best

    return float(value(0, np.zeros(1))[0])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(40))
def test_no_choice_of_intervals_is_worth_more_and_one_is_about_worth_that(seed: int) -> None:
    moves, prices = drawn(seed)
    workflow = Workflow(
        {
            i: [(run if run is COIN else tb.ExponentialMechanism(run), j) for run, j in row]
            for i, row in moves.items()
        },
        start=0,
    )
    found, some = workflow.delta(prices), by_points(moves, prices, 100)
    assert some <= found.upper * (1 + 1e-12)
    assert found.lower <= some * (1 + 1e-2) + 1e-9  # the places are 1 % of epsilon apart
    assert found.relative_gap <= 1e-3 or found.upper < 1e-9


@pytest.mark.parametrize(("epsilon", "runs", "at"), [(0.1, 12, 0.4), (0.5, 5, 1.2), (2.0, 3, 3.0)])
def test_a_chain_of_choices_is_their_adaptive_composition(
    epsilon: float, runs: int, at: float
) -> None:
    one = tb.ExponentialMechanism(epsilon)
    exact = (one * runs).delta(at, rtol=0.02)
    for stops in ([*range(1, runs + 1)], [runs]):
        found = Workflow.chain(one, stops).delta({**dict.fromkeys(stops, 100.0), runs: at})
        assert found.lower <= exact.upper
        assert exact.lower <= found.upper
        assert found.apart == ""


def test_choices_beside_a_gaussian_come_last_within_a_move() -> None:
    both = tb.ExponentialMechanism(0.3) * 3 + tb.Gaussian(2.0)
    last = Workflow.chain([tb.Gaussian(2.0), tb.ExponentialMechanism(0.3) * 3], [1, 2])
    first = Workflow.chain([tb.ExponentialMechanism(0.3) * 3, tb.Gaussian(2.0)], [1, 2])
    together = Workflow.chain(both, [1]).delta({1: 1.0})
    seen, unseen = (w.delta({1: 100.0, 2: 1.0}) for w in (last, first))
    assert together.lower <= seen.upper
    assert seen.lower <= together.upper
    # a choice that sees more is worth more
    assert unseen.lower <= seen.upper
    assert unseen.upper < seen.upper * (1 + 1e-3)
    # and the composition covers every order
    assert seen.lower <= both.delta(1.0, rtol=0.02).upper


def test_choices_that_differ_within_a_move_keep_their_own_pairs() -> None:
    both = tb.ExponentialMechanism(0.3) + tb.ExponentialMechanism(0.2)
    together = Workflow.chain(both, [1]).delta({1: 0.2})
    assert "choices" in together.apart
    either = Workflow.chain([*map(tb.ExponentialMechanism, (0.3, 0.2))], [1, 2])
    found = either.delta({1: 100.0, 2: 0.2})
    assert together.lower <= found.upper <= together.upper
    assert found.apart == ""


def test_a_group_counts_with_what_is_attained_below() -> None:
    group = tb.ExponentialMechanism(0.1).group(3)
    found = Workflow.chain(group, [1, 2]).delta({1: 100.0, 2: 0.3})
    exact = (tb.ExponentialMechanism(0.3) * 2).delta(0.3, rtol=0.02)
    assert found.lower <= exact.upper
    assert exact.lower <= found.upper


def test_a_choice_before_an_infinite_loss() -> None:
    leak = tb.ApproximateDP(epsilon=0.0, delta=1e-3)
    found = Workflow.chain([tb.ExponentialMechanism(0.2), leak], [1, 2]).delta({1: 9.0, 2: 0.3})
    assert found.lower == pytest.approx(1e-3, rel=1e-9)
    assert found.upper == pytest.approx(1e-3, rel=1e-9)


# ------------------------------------------------------------------------------ one run


@pytest.mark.parametrize(("span", "cells"), [(0.1, 5), (0.1, 21), (1.0, 64), (3.0, 7)])
def test_one_run_of_a_straight_line_is_that_line(span: float, cells: int) -> None:
    # a probability times y is what never changes: rounding must not grow from run to run
    n = 300
    y = np.exp((np.arange(-cells, n + cells) - n) * span / cells)
    values = 1 - 0.9 * y * np.exp(-span)
    exact = np.maximum(values, 0.0)
    for _ in range(6):
        found = largest_of_one_run(span, cells, exact)
        assert (found >= exact[cells:-cells]).all()
        assert (found <= exact[cells:-cells] + 1e-12).all()
        exact[cells:-cells] = found


@pytest.mark.parametrize(("span", "cells"), [(0.1, 5), (1.0, 16), (3.0, 37)])
def test_both_ends_of_one_run_hold_what_t_gains(span: float, cells: int) -> None:
    h = span / cells
    x = (np.arange(-cells, 200 + cells) - 100) * h
    price = 0.5
    # P(S) and y Q(S) of the outputs above the price, for y = e^x
    p = np.where(x < -price, 1.0, 0.0)
    q = p * np.exp(x + price)
    upper = largest_of_one_run(span, cells, np.maximum.accumulate((p - q)[::-1])[::-1])
    low_p, low_q = best_of_one_run(span, cells, h, p, q)
    inner = x[cells:-cells]
    for t in np.linspace(0, span, 97):
        stay = math.expm1(t - span) / math.expm1(-span)
        gain = stay * np.maximum(0, -np.expm1(inner - t + price)) + (1 - stay) * np.maximum(
            0, -np.expm1(inner - t + span + price)
        )
        assert (gain <= upper * (1 + 1e-12) + 1e-15).all()
    assert (low_p - low_q <= upper + 1e-15).all()
    assert np.max(upper - (low_p - low_q)) < 0.3 * h


# Source: sup over t of the delta of one pair, (1 - e^((price - 1/2) / 2))^2 / (1 - e^(-1/2))
@pytest.mark.parametrize("price", [0.1, 0.49, 0.496])
def test_one_choice_has_its_formula_up_to_its_largest_loss(price: float) -> None:
    exact = math.expm1((price - 0.5) / 2) ** 2 / -math.expm1(-0.5)
    found = Workflow.chain(tb.ExponentialMechanism(0.5), [1]).delta({1: price})
    assert found.lower <= exact * (1 + 1e-12)
    assert found.upper >= exact * (1 - 1e-12)
    assert found.relative_gap <= 1e-3


def test_one_choice_is_priced() -> None:
    choice = Workflow.chain(tb.ExponentialMechanism(0.5), [1])
    priced = tb.workflows.priced(choice, 1e-5)
    assert priced.delta.upper <= 1e-5
    assert priced.prices[1] == pytest.approx(0.4960, abs=1e-4)
    assert choice.epsilon(1e-5).upper == pytest.approx(0.4960, abs=1e-4)


@pytest.mark.parametrize("mechanism", [tb.ExponentialMechanism(0.5), tb.Laplace(2.0)])
def test_at_the_largest_loss_delta_is_0_up_to_rounding(mechanism: tb.Mechanism) -> None:
    found = Workflow.chain(mechanism, [1]).delta({1: 0.5})
    assert found.lower == 0.0
    assert found.upper <= 1e-14
