"""Every error bound of one epoch's lines is taken away once, and a true value falls outside.

Steps, lengths and goals are chosen badly on purpose, so that each error matters.
"""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
from flint import acb, arb, ctx
from tests.guards.mutants import Without, each, lose_a_truth
from tests.mechanisms.test_allocated_line import cut_transform, transform

from tightbudget.mechanisms import (
    allocated_line,
    allocated_tails,
    allocated_transform,
    allocated_wide,
)
from tightbudget.mechanisms.allocated_line import _Line, _shortfall_end, _Table
from tightbudget.mechanisms.allocated_tails import _Cut, discontinuity
from tightbudget.mechanisms.allocated_transform import log_transform

K1 = math.expm1(-0.1)
PUT = 9.28339204910396e-5 * math.exp(-0.1)  # sigma 1, 1,000 steps
CALL = 1.27693169784961e-3  # sigma 0.5, 1,000 steps, epsilon 1
CLOSE = 1e-13


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 220
    yield
    ctx.prec = before


def line(step: float, points: int, right: int = 0) -> bool:
    """A line as dense and as long as we say holds a known shortfall."""
    m, steps = 1.0, 1000
    table = _Table.of(m, steps)
    index = int(table.place(np.array([K1]))[0]) + right
    c, step = float(table.c[index]), step * _Line.of(m, steps, index).step
    s = c + 1j * step * np.arange(points)
    logs = log_transform(m, s)
    end = (_shortfall_end(m, steps, c, step * (points - 1))[0], math.inf)
    ours = _Line(m, steps, step, s, steps * logs.value, steps * logs.error, end)
    found = ours.read(np.array([K1]), np.array([1e-16]), 2)
    return bool(found.lower[0] <= PUT * (1 + CLOSE) and found.upper[0] >= PUT * (1 - CLOSE))


def value(angle: float, m: float, goal: float = 40.0) -> bool:
    """The transform with few nodes is within its stated error."""
    before, allocated_transform._GOAL = allocated_transform._GOAL, goal
    try:
        s = 0.01 * cmath.exp(1j * angle)
        logs = log_transform(m, np.array([s]), np.array([angle]))
    finally:
        allocated_transform._GOAL = before
    truth = transform(m, acb(s.real, s.imag)).log() + acb(s.real, s.imag)
    got = acb(float(logs.value[0].real), float(logs.value[0].imag))
    return bool(abs(truth - got) <= arb(float(logs.error[0])))


def jump() -> bool:
    """The jump across the cut with few nodes, against the same one with many."""
    r = np.array([1e-3])
    truth = discontinuity(1.0, r)[0][0]
    found, error = discontinuity(1.0, r, goal=5.0)
    return bool(abs(truth / found[0] - 1) <= error[0])


def panels() -> bool:
    """Few nodes for an integral of cos 20 x, which is at most cosh(20 y) at x + i y."""
    high = 0.5 * (allocated_tails._RHO - 1.0 / allocated_tails._RHO)
    x, weight, missed = allocated_tails._panels(
        lambda centre, half: 20.0 * high * half, np.array([0.0, 0.7]), math.log(1e-3)
    )
    return abs(float(np.sum(weight * np.cos(20.0 * x))) - math.sin(14.0) / 20.0) <= missed


def along(low: float = 1e-7, c: float = 0.02) -> bool:
    """The integral along a part of the cut, and bounds of both ends, hold a known excess."""
    cut = _Cut(2.0, 1000, math.expm1(1.0), 1e-15)
    found, error = cut._along(low, c, CALL)
    error += cut._near_zero(low) + cut._vertical(c)
    return abs(found - CALL) <= error + 1e-13 * CALL


def turned() -> bool:
    """The integrand holds its value where psi has turned to the left of 0, beyond the usual end."""
    steps, r, k1 = 2, 4.41, 0.1
    value, error = _Cut(1.0, steps, k1, 0.0)._integrand(np.array([r]))
    truth = -(transform(1.0, acb(-r)) ** steps * (-arb(r) * steps * (1 + arb(k1))).exp() / r).imag
    return bool(abs(arb(float(value[0])) - truth) <= arb(float(error[0])))


def wide() -> bool:
    """The ratio cut far out holds what the shortfall says for sigma 5, 100 steps, epsilon 0.05."""
    lower, upper = allocated_wide.excess_of_cut_ratios(0.2, 100, math.expm1(0.05), 0.0)
    return lower <= 4.49287776e-5 and upper >= 4.49287773e-5


def wide_line_of_few_points() -> bool:
    """The same with a line that is too short."""
    names = allocated_wide._CutRatio.excess.__globals__  # a mutant has its own
    before, names["_MOST_POINTS"] = names["_MOST_POINTS"], 9
    try:
        return wide()
    finally:
        names["_MOST_POINTS"] = before


def wide_value(c: float, goal: float = 38.0, m: float = 0.2) -> bool:
    """The transform of the cut ratio with few nodes is within its stated error."""
    names = allocated_wide._log_transform.__globals__
    before, names["_GOAL"] = names["_GOAL"], goal
    s = -c + 0.5j * c
    try:
        with np.errstate(over="ignore"):
            logs = allocated_wide._log_transform(m, 9.5, np.array([s]))
    finally:
        names["_GOAL"] = before
    got = acb(float(logs.value[0].real), float(logs.value[0].imag))
    off = abs((cut_transform(m, 9.5, s) - got).exp() - 1)
    return bool(off <= np.expm1(float(logs.error[0])))


MUTATIONS = [
    Without(
        "the argument of psi that its sine leaves open",
        {"allocation-right-half": "right = share < 2.0"},
        turned,
    ),
    Without(
        "the aliasing of a line",
        {"allocation-aliasing": "return 0.0 * left"},
        lambda: line(4.0, 400),
    ),
    Without(
        "the aliasing from the left",
        {"allocation-aliasing": "return np.minimum(right, plain)"},
        lambda: line(2.0, 200, right=3),
    ),
    Without(
        "the end of a line",
        {"allocation-end": "return 0.0 * np.exp(log)"},
        lambda: line(1.0, 6),
    ),
    Without(
        "the aliasing of a line of the cut ratio",
        {"allocation-wide-aliasing": "return 0.0 * (right + left)"},
        wide,
    ),
    Without(
        "the end of a line of the cut ratio",
        {"allocation-wide-end": "off += 0.0"},
        wide_line_of_few_points,
    ),
    Without(
        "the aliasing of the rule for the cut ratio",
        {"allocation-wide-rule": "missed = 0.0 * log_most"},
        lambda: wide_value(0.5, goal=4.0),
    ),
    Without(
        "the edge of the cut",
        {"allocation-wide-edge": "missed = missed + 0.0 * log_edge"},
        lambda: wide_value(4.0),
    ),
    Without(
        "the error of the rule in z",
        {"allocation-quadrature": "return 0.0 * missed"},
        lambda: value(0.3, 1.0, goal=4.0),
    ),
    Without(
        "the rounding of the sum in z",
        {"allocation-rounding": "error = 0.0 * rounded"},
        lambda: value(3.0, 0.4),
    ),
    Without(
        "the error of the rule in v",
        {"allocation-parabola": "error = error + 0.0 * missed"},
        jump,
    ),
    Without(
        "the error of the panels",
        {"allocation-panels": "missed += 0.0 * bound"},
        panels,
    ),
    Without(
        "the rest of the cut",
        {"allocation-near-zero": "return 0.0 * most"},
        lambda: along(low=2e-5),
    ),
    Without(
        "the line beyond the cut",
        {"allocation-vertical": "return 0.0 * log"},
        lambda: along(c=0.003),
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    _Table.of.cache_clear()
    allocated_line._Line.of.cache_clear()
    allocated_wide._CutRatio.of.cache_clear()
    lose_a_truth(monkeypatch, mutation)
    _Table.of.cache_clear()
    allocated_line._Line.of.cache_clear()
    allocated_wide._CutRatio.of.cache_clear()
