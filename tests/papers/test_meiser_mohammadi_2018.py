"""Tight on Budget: what its reproductions rest on, and that their findings follow the numbers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from papers.finding import Verdict
from papers.meiser_mohammadi_2018 import figure_convergence as convergence
from papers.meiser_mohammadi_2018.others import OURS, concentrated_delta, looseness
from papers.meiser_mohammadi_2018.settings import (
    GAUSS,
    HALF_VARIANCE,
    LAPLACE,
    RUNS,
    as_bounds,
    factors,
    spread,
)
from tests.papers.committed import committed, module

import tightbudget as tb

PAPER = "meiser_mohammadi_2018"


def numbers(name: str) -> dict[str, Any]:
    return committed(f"{PAPER}/{name}")


# ------------------------------------------------------------------------- the settings


def test_variances() -> None:
    assert GAUSS.sigma**2 == pytest.approx(2 * LAPLACE.scale**2)
    assert HALF_VARIANCE.sigma == LAPLACE.scale
    assert {m.bound for m in (GAUSS, HALF_VARIANCE, LAPLACE)} == {2500.0}


def test_axes() -> None:
    assert spread(1.0, 2.0, 5) == [1.0, 1.25, 1.5, 1.75, 2.0]
    assert factors([tb.Bounds(0.0, math.log(2.0))]) == [tb.Bounds(1.0, 2.0)]


def test_where_the_graphs_of_figure_14_level_out() -> None:
    """The mass of [-T, D - T) under noise on [-T, T], once in 512 runs, by closed forms."""
    b, t = LAPLACE.scale, LAPLACE.bound
    laplace = math.exp(-(t - 1) / b) * -math.expm1(-1 / b) / (2 * -math.expm1(-t / b))
    x = 1 / GAUSS.sigma / math.sqrt(2.0)
    gauss = (math.erfc((t - 1) * x) - math.erfc(t * x)) / (2 * math.erf(t * x))
    for kind, once in (("Laplace", laplace), ("same variance", gauss)):
        level = tb.Bounds(**numbers("figure_14")[kind]["levels out"])
        assert level.upper == pytest.approx(-math.expm1(RUNS * math.log1p(-once)), rel=1e-9)


# -------------------------------------------------------------------- the other bounds


COMPARED = [
    ("figure_11", ["delta"]),
    ("figure_11", ["epsilon"]),
    ("figure_13", ["delta"]),
    ("figure_13", ["epsilon"]),
    ("figure_12", ["Laplace", "delta"]),
    ("figure_12", ["Gaussian", "delta"]),
    ("figure_12", ["DP-SGD", "delta"]),
]


@pytest.mark.parametrize(("name", "path"), COMPARED)
def test_no_bound_is_below_the_truth(name: str, path: list[str]) -> None:
    found: Any = numbers(name)
    for key in path:
        found = found[key]
    others = [values for bound, values in found.items() if bound != OURS]
    assert len(others) >= 2
    for values in others:
        for ours, other in zip(as_bounds(found[OURS]), values, strict=True):
            assert ours.relative_gap < 1e-4
            assert ours.lower <= other


@pytest.mark.parametrize("sigma", [0.5, 2.0, 50.0])
@pytest.mark.parametrize("runs", [1, 30])
def test_the_sharper_translation_of_concentrated_dp(sigma: float, runs: int) -> None:
    """Between a Gaussian's own delta and that of the plain translation."""
    line = tb.theorems.concentrated.Line.gaussian(sigma) * runs
    far = line.rho + 4 * math.sqrt(line.rho)
    for epsilon in (line.rho / 2, line.rho, 2 * line.rho + 0.1, far):
        sharper = concentrated_delta(line, epsilon)
        assert (tb.Gaussian(sigma=sigma) * runs).delta(epsilon).lower <= sharper
        assert sharper <= line.delta(epsilon).upper
    assert concentrated_delta(line, far) < 0.9 * line.delta(far).upper


def test_looseness_is_against_the_upper_end() -> None:
    found: dict[str, list[Any]] = {
        OURS: [{"lower": 0.9, "upper": 1.0}, {"lower": 0.0, "upper": 0.0}],
        "KOV": [2.0, 1.0],
    }
    assert looseness(found) == {"KOV": [2.0, math.inf]}


# ------------------------------------------------------------------------- convergence


def test_the_information_of_laplace_and_uniform_noise() -> None:
    """By differences of its density, which is a difference of Laplace distribution functions."""
    x = np.linspace(-40.0, 0.0, 400_001)
    left, right = (
        np.where(y < 0, np.exp(-abs(y)), 2 - np.exp(-abs(y))) / 2 for y in (x - 1, x + 1)
    )
    density = (right - left) / 2
    half = np.sum(np.gradient(density, x) ** 2 / density) * (x[1] - x[0])
    assert pytest.approx(2 * float(half), rel=1e-4) == convergence.INFORMATION


def test_the_distance_of_two_noises() -> None:
    assert convergence._size(tb.Bounds(-3.0, -2.0)) == tb.Bounds(2.0, 3.0)
    assert convergence._size(tb.Bounds(-3.0, 2.0)) == tb.Bounds(0.0, 3.0)
    same = convergence._distance(tb.Gaussian(sigma=2.0), 2.0, 4)
    assert same.lower == 0.0
    assert same.upper < 1e-5


def test_powers_of_the_number_of_runs() -> None:
    found = {
        kind: convergence._power(as_bounds(ends))
        for kind, ends in numbers("figure_convergence")["deltas"].items()
    }
    assert found["Laplace"] == pytest.approx(-0.5, abs=0.02)
    assert found["Laplace + uniform"] == pytest.approx(-1.0, abs=0.03)
    assert found["staircase"] == pytest.approx(-1.0, abs=0.01)
    assert found["discrete Gaussian"] == pytest.approx(-2.0, abs=0.01)


# ---------------------------------------------------------------------------- verdicts


def every(found: Any, factor: float) -> None:
    """All numbers of some lists times a factor, in place."""
    for i, x in enumerate(found):
        found[i] = {end: factor * y for end, y in x.items()} if isinstance(x, dict) else factor * x


# what is found, and a change of the numbers with which it would not be
VERDICTS: dict[str, tuple[Verdict, Callable[[dict[str, Any]], None]]] = {
    "figure_01": (Verdict.MATCHES, lambda n: every(n["area"], 1.001)),
    "figure_02": (Verdict.MATCHES, lambda n: every(n["Gaussian"], 1.01)),
    "figure_11": (Verdict.MATCHES, lambda n: every(n["epsilon"]["KOV"], 1.01)),
    "figure_12": (Verdict.MATCHES, lambda n: every(n["Laplace"]["delta"]["KOV"], 1.1)),
    "figure_12_coverup": (
        Verdict.MATCHES,
        lambda n: n["with all delays"]["Gaussian, σ = 5 s"]["delta"].append(
            {"lower": 0.1, "upper": 0.2}
        ),
    ),
    "figure_13": (Verdict.MATCHES, lambda n: every(n["epsilon"]["concentrated DP"], 1.3)),
    "figure_14": (Verdict.IN_PART, lambda n: every(n["half the variance"]["delta"], 1.2)),
    "figure_22": (Verdict.MATCHES, lambda n: every(n["buckets"]["100000"], 1.1)),
    "figure_convergence": (Verdict.IN_PART, lambda n: every(n["epsilons"]["0.0001"], 10.0)),
    "table_timing": (
        Verdict.MATCHES,
        lambda n: n["2^9"]["this library"]["epsilon"].update(lower=0.1, upper=0.2),
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_a_verdict_follows_the_numbers(name: str) -> None:
    verdict, change = VERDICTS[name]
    script, found = module(f"{PAPER}/{name}"), numbers(name)
    before = script.finding(copy.deepcopy(found))
    assert before.verdict is verdict
    change(found)
    after = script.finding(found)
    assert after.verdict is Verdict.DIFFERS
    assert after.text != before.text


def test_coverup_reads_what_its_data_are(shared: Any) -> None:
    coverup = module(f"{PAPER}/figure_12_coverup")
    front, whole = (coverup.delays(case, "no random delay") for case in coverup.CASES)
    assert sum(whole.p) == sum(whole.q) == 50_000
    assert sum(front.p) / 50_000 == pytest.approx(1 - 0.102, abs=1e-3)  # active: 10.2 % take longer
    assert sum(front.q) / 50_000 == pytest.approx(1 - 0.008, abs=1e-3)
    assert len(coverup.delays("in the foreground", "no random delay", 5.0).p) < len(front.p) / 4
