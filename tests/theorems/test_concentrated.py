"""Lines above all Renyi divergences, and what they say of (epsilon, delta)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from tests.balls import ball

import tightbudget as tb
from tightbudget.theorems import renyi
from tightbudget.theorems.concentrated import Line, above, best_line, mean_line
from tightbudget.theorems.renyi import RenyiTable


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = before


@given(st.floats(0, 10), st.floats(1e-9, 10), st.floats(1e-300, 0.99))
def test_epsilon_and_delta_are_rounded_up_and_hardly(xi: float, rho: float, delta: float) -> None:
    line = Line(xi, rho)
    log = -ball(delta).log()
    exact = ball(xi) + ball(rho) + 2 * (ball(rho) * log).sqrt()
    found = line.epsilon(delta).upper
    assert exact <= found
    assert found - exact < 1e-14 * (found + 1)
    far = ball(found) - ball(xi) - ball(rho)
    back = line.delta(found).upper
    assert (-far * far / (4 * ball(rho))).exp() <= back
    assert back <= delta * (1 + 1e-9) or rho < 1e-6


CLOSED: dict[str, Callable[[float], tb.Bounds]] = {
    "laplace": lambda a: renyi.laplace(a, 3.0),
    "laplace-wide": lambda a: renyi.laplace(a, 300.0),
    "laplace-narrow": lambda a: renyi.laplace(a, 0.1),
    "response": lambda a: renyi.randomized_response(a, 0.9),
    "nothing": lambda a: tb.Bounds(0.0, 0.0),
}
FINE = 1 + np.geomspace(1e-6, 1e6, 401)


def table_of(name: str) -> RenyiTable:
    return RenyiTable.of(CLOSED[name], renyi.orders(CLOSED[name](math.inf).upper))


def lies_above(line: Line, divergence: Callable[[float], tb.Bounds], runs: int = 1) -> bool:
    return all(
        arb(runs) * divergence(a).lower <= arb(line.xi) + arb(line.rho) * a for a in FINE.tolist()
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("runs", [1, 1000])
def test_the_lines_lie_above_every_divergence(name: str, runs: int) -> None:
    for form in (best_line, mean_line):
        for question in ({"delta": 1e-5}, {"epsilon": 0.5}):
            line = form(table_of(name), runs=runs, **question)
            assert line is not None
            assert lies_above(line, CLOSED[name], runs)


@pytest.mark.parametrize("name", ["laplace", "laplace-wide", "laplace-narrow", "response"])
def test_the_best_line_is_the_best_that_touches(name: str) -> None:
    """No line of a dense family that lies above is better by more than the chords cost."""
    divergence, table, k, delta = CLOSED[name], table_of(name), 100, 1e-6
    found = best_line(table, runs=k, delta=delta)
    assert found is not None
    values = np.array([divergence(a).upper for a in FINE.tolist()])
    best = math.inf
    for xi in np.append(0.0, np.geomspace(1e-6, 1.0, 200)) * divergence(math.inf).upper:
        rho = max(0.0, float(np.max((values - xi) / FINE)))
        best = min(best, (Line(float(xi), rho) * k).epsilon(delta).upper)
    cost = found.epsilon(delta).upper
    assert best * (1 - 1e-3) <= cost
    assert cost <= best * 1.01
    with_mean = mean_line(table, runs=k, delta=delta)
    assert with_mean is not None
    assert cost * (1 - 1e-3) <= with_mean.epsilon(delta).upper <= cost * 1.1
    # and never worse than what is known of any mechanism with such losses
    assert cost <= (Line.pure(divergence(math.inf).upper) * k).epsilon(delta).upper * 1.01


def test_the_line_of_gaussian_noise_is_the_divergence_itself() -> None:
    line = Line.gaussian(4.0, 3.0)
    assert lies_above(line, lambda a: renyi.gaussian(a, 4.0, 3.0))
    assert line.rho == pytest.approx(9 / 32)
    assert Line.subgaussian(9 / 32, 3 / 4).rho == pytest.approx(line.rho)
    assert abs(Line.subgaussian(9 / 32, 3 / 4).xi) < 1e-15


def test_a_pure_line_lies_above_randomised_response_the_worst_of_all() -> None:
    for p in (0.5001, 0.6, 0.95):
        largest = renyi.randomized_response(math.inf, p).upper
        assert lies_above(Line.pure(largest), functools.partial(renyi.randomized_response, p=p))


@pytest.mark.parametrize(
    "mechanism",
    [
        tb.Gaussian(30.0),
        pytest.param(tb.Laplace(40.0), marks=pytest.mark.slow),
        tb.RandomizedResponse(0.52),
    ],
)
def test_it_is_never_below_the_truth(mechanism: tb.Mechanism) -> None:
    k = 300
    if isinstance(mechanism, tb.Gaussian):
        lines = [Line.gaussian(30.0) * k]
    else:
        step = mechanism * 1
        table = RenyiTable.of(lambda a: step.renyi(a, 1e-2), renyi.orders(0.1))
        lines = [x for x in (best_line(table, runs=k, delta=1e-6),
                             mean_line(table, runs=k, delta=1e-6)) if x]  # fmt: skip
        assert len(lines) == 2
    for line in lines:
        for delta in (1e-2, 1e-6):
            truth = (mechanism * k).epsilon(delta, 1e-3)
            assert truth.lower <= line.epsilon(delta).upper < 3 * truth.upper
            assert line.delta(truth.lower).upper >= delta


def test_lines_add_up() -> None:
    one, other = Line(0.1, 0.2), Line.gaussian(3.0)
    both = one * 3 + other
    assert both.xi >= 0.3
    assert both.rho >= 0.6 + 1 / 18
    assert both.epsilon(1e-5).upper == pytest.approx(
        0.9 + 1 / 18 + 2 * math.sqrt((0.6 + 1 / 18) * math.log(1e5))
    )


def test_a_table_need_not_be_as_smooth_as_divergences_are() -> None:
    """Upper ends fall where the divergence hardly rises: the line clears them all the same."""
    table = RenyiTable([2.0, 2.1, 3.0, math.inf], [1.02, 1.0, 1.01, 1.03])
    lines = [above(table, xi) for xi in (0.0, 0.3, 0.9)]
    found = [best_line(table, delta=0.1), mean_line(table, delta=0.1)]
    for line in [*lines, *(line for line in found if line)]:
        for order, divergence in zip(table.orders[:-1], (1.0, 1.0, 1.01), strict=True):
            assert divergence <= line.xi + line.rho * order


def test_no_line_lies_above_an_infinite_divergence() -> None:
    for table in (
        RenyiTable([2.0, 4.0], [1.0, 2.0]),  # nothing is known of high orders
        RenyiTable([2.0, math.inf], [1.0, math.inf]),
        RenyiTable([2.0, math.inf], [math.inf, math.inf]),
    ):
        assert best_line(table, delta=1e-5) is None
        assert mean_line(table, epsilon=1.0) is None


def test_the_ends_of_the_scale() -> None:
    assert Line(0.5, 0.0).epsilon(0.0).upper == 0.5
    assert Line(0.5, 0.1).epsilon(0.0).upper == math.inf
    assert Line(0.5, 0.0).delta(0.6) == tb.Bounds(0.0, 0.0)
    assert Line(0.5, 0.1).delta(0.6) == tb.Bounds(0.0, 1.0)
    assert Line(0.0, 0.0).epsilon(1e-9) == tb.Bounds(0.0, 0.0)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: Line(math.nan, 1.0), "xi must be a finite number, got nan"),
        (lambda: Line(0.0, -1.0), "rho must be a finite number >= 0, got -1.0"),
        (lambda: Line(-2.0, 1.0), r"xi \+ rho must be >= 0 .*, got -1.0"),
        (lambda: Line(0.0, 1.0) * 0, "runs must be an integer >= 1, got 0"),
        (lambda: Line(0.0, 1.0).epsilon(1.5), r"delta must be in \[0, 1\], got 1.5"),
        (lambda: Line(0.0, 1.0).delta(-1.0), "epsilon must be a finite number >= 0, got -1.0"),
        (lambda: Line.gaussian(0.0), "sigma must be a finite number > 0, got 0.0"),
        (lambda: Line.pure(-1.0), "epsilon must be a finite number >= 0, got -1.0"),
        (lambda: Line.subgaussian(1.0, -1.0), "scale must be a finite number >= 0, got -1.0"),
        (lambda: best_line(table_of("laplace")), "give exactly one of delta and epsilon"),
        (lambda: mean_line(table_of("laplace"), delta=0.1, epsilon=1.0), "give exactly one of"),
        (lambda: best_line(table_of("laplace"), runs=0, delta=0.1), "runs must be an integer >= 1"),
    ],
)
def test_refusals(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        ask()
