"""Workflows: exact values of small graphs, chains and menus, and every refusal."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

import tightbudget as tb
from tightbudget.workflows.workflow import Move, Workflow

Pairs = Mapping[str, Sequence[tuple[Fraction, Fraction]]]
STEP = tb.Gaussian(1.0).subsampled(0.01)


# ------------------------------------------------------------------- all strategies, exactly


def drawn(seed: int) -> tuple[dict[int, list[tuple[str, int]]], dict[Any, float], Pairs, dict]:
    """A graph of up to five states with pairs of up to four outputs, some of one side alone."""
    draw = random.Random(seed)
    pairs, mechanisms = {}, {}
    for name in "abc":
        size = draw.choice([2, 3, 4])
        p, q = ([draw.choice([0, 1, 2, 3, 5, 9]) for _ in range(size)] for _ in range(2))
        p[0] += sum(p) == 0
        q[0] += sum(q) == 0
        pairs[name] = [
            (Fraction(a, sum(p)), Fraction(b, sum(q))) for a, b in zip(p, q, strict=True)
        ]
        mechanisms[name] = tb.HistogramPair(tuple(map(float, p)), tuple(map(float, q)))
    n = draw.choice([2, 3, 4, 5])
    moves: dict[int, list[tuple[str, int]]] = {i: [] for i in range(n)}
    for i in range(n - 1):
        targets = {i + 1, *(draw.randrange(i + 1, n) for _ in range(draw.choice([0, 1, 2])))}
        moves[i] = [(draw.choice("abc"), target) for target in sorted(targets)]
    prices = {
        i: round(draw.uniform(0, 2.5), 3)
        for i in range(n)
        if i == n - 1 or (i > 0 and draw.random() < 0.6)
    }
    return moves, prices, pairs, mechanisms


def brute_force(
    moves: Mapping[int, Sequence[tuple[str, int]]], prices: Mapping[Any, float], pairs: Pairs
) -> Fraction:
    """The best that an analyst can do, over all choices at all outputs, in both directions."""
    with mpmath.workdps(60):
        factors = {i: Fraction(str(mpmath.exp(mpmath.mpf(e)))) for i, e in prices.items()}

    def value(state: int, a: Fraction, b: Fraction, reverse: bool) -> Fraction:
        best = max(Fraction(0), a - factors[state] * b) if state in factors else Fraction(0)
        for name, after in moves[state]:
            outputs = ((q, p) if reverse else (p, q) for p, q in pairs[name])
            gains = (value(after, a * p, b * q, reverse) for p, q in outputs)
            best = max(best, sum(gains, Fraction(0)))
        return best

    return max(value(0, Fraction(1), Fraction(1), reverse) for reverse in (False, True))


@pytest.mark.parametrize("seed", range(25))
def test_no_strategy_is_worth_more_and_one_is_worth_that(seed: int) -> None:
    moves, prices, pairs, mechanisms = drawn(seed)
    workflow = Workflow({i: [(mechanisms[m], j) for m, j in row] for i, row in moves.items()})
    found, exact = workflow.delta(prices), brute_force(moves, prices, pairs)
    # the oracle's factors are rounded at 60 digits
    assert Fraction(found.lower) <= exact + Fraction(1, 10**50)
    assert exact <= Fraction(found.upper) + Fraction(1, 10**50)
    assert found.relative_gap <= 1e-3 or found.upper <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 700))
def test_many_more_graphs(seed: int) -> None:
    test_no_strategy_is_worth_more_and_one_is_worth_that(seed)


# ------------------------------------------------------------------------ what is known


def test_a_chain_is_early_stopping() -> None:
    stops = list(range(100, 1001, 100))
    schedule = tb.early_stopping(STEP, stops, 1e-5)
    prices: dict[Any, float] = dict(zip(stops, schedule.epsilons, strict=True))
    found = Workflow.chain(STEP, stops).delta(prices)
    assert found.lower <= schedule.delta.upper
    assert schedule.delta.lower <= found.upper
    assert found.relative_gap <= 1e-3


def test_a_chain_with_one_end_is_a_composition() -> None:
    found = Workflow.chain(STEP, [50, 400]).delta({400: 1.0, 50: 100.0})
    exact = (STEP * 400).delta(1.0)
    assert found.lower <= exact.upper
    assert exact.lower <= found.upper


def test_a_menu_that_ends_when_all_has_run_is_a_composition_in_any_order() -> None:
    menu = Workflow.menu({"count": (tb.Laplace(10.0), 4), "mean": (tb.Gaussian(8.0), 3)})
    found = menu.delta({(4, 3): 1.0})
    exact = (tb.Gaussian(8.0) * 3 + tb.Laplace(10.0) * 4).delta(1.0)
    assert found.lower <= exact.upper
    assert exact.lower <= found.upper
    assert found.relative_gap <= 1e-3


def test_choosing_among_gaussians_costs_nothing_at_a_fixed_sum_of_squares() -> None:
    # one of mu = .5, or four of mu = .25, in any order: always mu^2 = .5 in all
    one, four = tb.Gaussian(2.0), tb.Gaussian(4.0) * 4
    both = Workflow(
        {
            "start": [(one, "a"), (four, "b")],
            "a": [(one, "end"), (four, "end")],
            "b": [(one, "end"), (four, "end")],
            "end": [],
        }
    )
    found, exact = both.delta({"end": 2.0}), (tb.Gaussian(2.0) * 2).delta(2.0)
    assert found.lower <= exact.upper
    assert exact.lower <= found.upper


def test_an_alternative_costs_at_least_the_costlier_and_what_is_seen_may_cost_more() -> None:
    noisy, quiet = STEP * 100, tb.Laplace(2.0)
    choice = Workflow({"start": [(noisy, "end"), (quiet, "end")], "end": []})
    found = choice.delta({"end": 0.3})
    alone = [run.delta(0.3) for run in (noisy, quiet)]
    # one choice, before anything was seen: exactly the costlier one
    assert found.lower <= max(one.upper for one in alone)
    assert found.upper >= max(one.lower for one in alone)
    twice = Workflow(
        {"s": [(noisy, "t"), (quiet, "t")], "t": [(noisy, "end"), (quiet, "end")], "end": []}
    )
    fixed = [(a + b).delta(0.5).lower for a in (noisy, quiet) for b in (noisy, quiet)]
    assert twice.delta({"end": 0.5}).upper >= max(fixed)


def test_a_check_of_each_way_alone_lets_too_much_through() -> None:
    """Ways that each have delta 1/3 or 11/32 at epsilon ln 2 have 35/96 if one is chosen."""
    first, left = tb.RandomizedResponse(p=0.75), tb.RandomizedResponse(p=2 / 3)
    right = tb.ApproximateDP(epsilon=0.0, delta=0.125)
    free = Workflow(
        {"start": [(first, "seen")], "seen": [(left, "a"), (right, "b")], "a": [], "b": []}
    )
    e = math.log(2.0)
    found = free.delta({"a": e, "b": e})
    assert found.lower == pytest.approx(35 / 96, rel=1e-3)
    assert found.upper == pytest.approx(35 / 96, rel=1e-3)
    for way, exact in ((first + left, 1 / 3), (first + right, 11 / 32)):
        assert way.delta(e).upper == pytest.approx(exact, rel=1e-3)
        assert way.delta(e).upper < found.lower


def test_a_price_for_what_was_used_is_worth_more_than_one_price() -> None:
    menu = Workflow.menu({"a": (STEP * 100, 2), "b": (tb.Gaussian(30.0), 2)})
    free = menu.delta({state: 0.0 for state in menu.moves})
    dear = menu.delta({state: 1.5 for state in menu.moves})
    assert dear.upper < 1e-4 < free.lower


def test_a_mechanism_whose_worst_data_nobody_knows_keeps_the_bounds_apart() -> None:
    shuffled = tb.Gaussian(1.0).shuffled(20)
    found = Workflow.chain(shuffled, [1, 2]).delta({1: 3.0, 2: 4.0})
    assert found.apart
    assert 0.0 <= found.lower < found.upper


def test_alternatives_are_a_menu_whose_rounds_alone_are_limited() -> None:
    found = Workflow.alternatives({"loud": STEP * 2, "quiet": STEP}, rounds=3)
    assert len(found.moves) == 10
    assert set(found.ends) == {(k, 3 - k) for k in range(4)}
    assert all(len(moves) == 2 for state, moves in found.moves.items() if state not in found.ends)
    # who takes the loud one each time gains most
    prices: dict[Any, float] = dict.fromkeys(found.ends, 0.5)
    loud = (STEP * 6).delta(0.5)
    delta = found.delta(prices)
    assert delta.lower <= loud.upper
    assert loud.lower <= delta.upper


def test_follow_ups_of_a_test_run_once_after_any_look_in_any_order() -> None:
    follow_ups = {"country": STEP * 2, "device": STEP * 3, "age": STEP}
    found = Workflow.ab_test([STEP, STEP * 2], follow_ups, most=2)
    assert set(found.moves) == {
        0, 1, 2,
        *((k, one) for k in (1, 2) for one in follow_ups),
        *((k, *two) for k in (1, 2) for two in itertools.combinations(follow_ups, 2)),
    }  # fmt: skip
    assert set(found.moves[1]) == {
        Move(STEP * 2, 2),
        *(Move(runs * 1, (1, name)) for name, runs in follow_ups.items()),
    }
    assert set(found.moves[2, "device"]) == {
        Move(STEP * 2, (2, "country", "device")),
        Move(STEP * 1, (2, "device", "age")),
    }
    assert set(found.ends) == {state for state in found.moves if len(np.atleast_1d(state)) == 3}
    every = Workflow.ab_test([STEP], follow_ups)
    assert every.ends == ((1, "country", "device", "age"),)
    assert Workflow.ab_test([STEP], follow_ups, most=9) == every
    # all of it at the end is a composition in any order
    whole = (STEP * 7).delta(0.5)
    delta = every.delta({every.ends[0]: 0.5})
    assert delta.lower <= whole.upper
    assert whole.lower <= delta.upper


@pytest.mark.parametrize(
    ("deed", "said"),
    [
        (lambda: Workflow.alternatives([STEP], 2), "options must map names to mechanisms"),  # type: ignore[arg-type]
        (
            lambda: Workflow.alternatives({}, 2),
            "options must have at least one mechanism, got none",
        ),
        (lambda: Workflow.alternatives({"a": STEP}, 0), "rounds must be an integer >= 1, got 0"),
        (lambda: Workflow.alternatives({"a": 3}, 1), "must be a mechanism or a composition, got 3"),  # type: ignore[dict-item]
        (lambda: Workflow.ab_test(STEP, {"a": STEP}), "looks must be a list of mechanisms"),  # type: ignore[arg-type]
        (
            lambda: Workflow.ab_test([], {"a": STEP}),
            "looks must have at least one mechanism, got n",
        ),
        (lambda: Workflow.ab_test([2], {"a": STEP}), r"looks\[0\] must be a mechanism or a comp"),  # type: ignore[list-item]
        (
            lambda: Workflow.ab_test([STEP], {}),
            "follow_ups must have at least one mechanism, got n",
        ),
        (lambda: Workflow.ab_test([STEP], [STEP]), "follow_ups must map names to mechanisms"),  # type: ignore[arg-type]
        (lambda: Workflow.ab_test([STEP], {"a": 2}), r"follow_ups\['a'\] must be a mechanism or"),  # type: ignore[dict-item]
        (lambda: Workflow.ab_test([STEP], {"a": STEP}, 0), "most must be an integer >= 1, got 0"),
        (
            lambda: Workflow.ab_test([STEP], {str(k): STEP for k in range(15)}),
            "follow_ups must make at most 20,000 states, got 32768",
        ),
    ],
)
def test_what_makes_no_test_and_no_alternatives_is_refused_by_name(
    deed: Callable[[], object], said: str
) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        deed()


def test_rounds_limit_a_menu() -> None:
    menu = Workflow.menu({"a": (STEP, 3), "b": (STEP * 2, 3)}, rounds=2)
    states: list[Any] = list(menu.moves)
    assert max(map(sum, states)) == 2
    assert set(menu.ends) == {(2, 0), (1, 1), (0, 2)}


def test_a_move_without_a_mechanism_only_says_what_comes_next() -> None:
    nothing = tb.compose([])
    workflow = Workflow({"s": [(nothing, "t")], "t": [(STEP * 100, "end")], "end": []})
    found, exact = workflow.delta({"end": 0.5}), (STEP * 100).delta(0.5)
    assert found.lower <= exact.upper
    assert exact.lower <= found.upper


# ----------------------------------------------------------------------------- values


WORKFLOW = Workflow(
    {"s": [(STEP * 10, ("t", 1)), (STEP, "end")], ("t", 1): [(STEP, "end")], "end": []}
)


def test_json_has_it_whole_and_equal_content_is_equal() -> None:
    again = Workflow.from_dict(WORKFLOW.to_dict())
    assert again == WORKFLOW
    assert hash(again) == hash(WORKFLOW)
    assert again.start == "s"
    assert Workflow.chain(STEP, [1]) != WORKFLOW


def test_a_guarantee_has_a_cell_for_each_price() -> None:
    prices: dict[Any, float] = {"end": 1.5, ("t", 1): 1.0}
    guarantee = WORKFLOW.guarantee(prices, WORKFLOW.delta(prices))
    assert guarantee.price("end") == Fraction(3, 2)
    assert guarantee.price(("t", 1)) == 1
    # the binary value is charged, for which delta is certified
    assert WORKFLOW.guarantee({"end": 0.1}, 1e-5).price("end") == Fraction(0.1) > Fraction(1, 10)


def test_it_shows_what_it_is() -> None:
    assert repr(WORKFLOW) == "<Workflow: 3 states, 3 moves, from 's' to 1 end>"
    assert "(&#x27;t&#x27;, 1)" in WORKFLOW._repr_html_()


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ({}, "moves must name at least one state, got none"),
        ([], "moves must map each state to a list of its moves"),
        ({"a": [(STEP, "a")]}, "a workflow must come to an end, but 'a' to 'a' is a circle"),
        (
            {"a": [(STEP, "b")], "b": [(STEP, "c")], "c": [(STEP, "b")]},
            "must come to an end, but 'b' to 'c' to 'b' is a circle",
        ),
        ({"a": [], "b": []}, "state 'b' is never reached from 'a'"),
        ({"a": [(STEP, "b")]}, r"moves\['a'\]\[0\]\[1\] must be a state of the workflow, got 'b'"),
        ({"a": [(STEP, [])]}, r"moves\['a'\]\[0\]\[1\] must be a state of the workflow, got \[\]"),
        ({"a": [(0.5, "a")]}, r"moves\['a'\]\[0\]\[0\] must be a mechanism or a composition"),
        ({"a": [STEP]}, r"moves\['a'\]\[0\] must be \(mechanism, next state\)"),
        ({"a": STEP}, r"moves\['a'\] must be a list of \(mechanism, next state\)"),
        ({1.5: []}, "a state must be a text, an integer, or a tuple of these, got 1.5"),
        ({True: []}, "a state must be a text, an integer, or a tuple of these, got True"),
    ],
)
def test_what_is_no_workflow_is_refused_by_name(moves: object, said: str) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        Workflow(moves)  # type: ignore[arg-type]


def test_a_start_is_a_state_and_relations_go_together() -> None:
    with pytest.raises(tb.ParameterError, match="start must be one of the states, got 'x'"):
        Workflow({"a": []}, "x")
    with pytest.raises(tb.errors.RelationError):
        Workflow(
            {
                "a": [(STEP, "b"), (tb.Gaussian(1.0, relation=tb.Neighbouring.REPLACE_ONE), "b")],
                "b": [],
            }
        )


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ({}, "a menu must have at least one item, got none"),
        ([STEP], r"items must map names to \(mechanism, most runs\)"),
        ({"a": STEP}, r"items\['a'\] must be \(mechanism, most runs\)"),
        ({"a": (STEP, 0)}, r"items\['a'\]\[1\] must be"),
        ({"a": (2, 1)}, r"items\['a'\]\[0\] must be a mechanism or a composition, got 2"),
        ({"a": (STEP, 10**7)}, "items must have at most 20,000 states"),
        ({"a": (STEP, 30_000)}, "moves must have at most 20,000 states, got 30001"),
    ],
)
def test_what_is_no_menu_is_refused_by_name(items: object, said: str) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        Workflow.menu(items)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ({}, "prices must have one for the end 'end'"),
        ({"end": 1.0, "x": 1.0}, "prices must name states of the workflow, got 'x'"),
        ({"end": -1.0}, r"prices\['end'\] must be"),
        ({"end": math.nan}, r"prices\['end'\] must be"),
        ([1.0], "prices must map states to prices"),
    ],
)
def test_prices_are_refused_by_name(prices: object, said: str) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        WORKFLOW.delta(prices)  # type: ignore[arg-type]


def test_a_gap_is_a_share_and_one_that_is_out_of_reach_is_refused_with_bounds() -> None:
    with pytest.raises(tb.ParameterError, match="rtol must be in"):
        WORKFLOW.delta({"end": 1.0}, rtol=1.0)
    with pytest.raises(tb.PrecisionError, match="relative gap 1e-13 was not reached") as refused:
        WORKFLOW.delta({"end": 0.1}, rtol=1e-13)
    assert refused.value.upper <= 1.01 * WORKFLOW.delta({"end": 0.1}).upper
    assert 0.0 < refused.value.lower <= refused.value.upper


@pytest.mark.parametrize("content", [{}, {"tightbudget": 2}, [], {"tightbudget": 1, "workflow": 3}])
def test_what_is_no_json_of_a_workflow_is_refused(content: object) -> None:
    with pytest.raises(tb.errors.FileError, match="no workflow"):
        Workflow.from_dict(content)
