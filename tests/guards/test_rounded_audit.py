"""Roundings of the audits against exact fractions, one of which each turned line makes wrong.

Where e^eps is needed, it is a fraction just below it and one just above it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

import tightbudget as tb
from tightbudget.audit.asked import Attack, AuditQuestion
from tightbudget.audit.betting import Bets
from tightbudget.audit.claims import ClaimLine, ClaimLines, lines_of, lines_of_gaussian
from tightbudget.audit.guessing import Guessed, curve_refuted, most_right
from tightbudget.audit.inputs import level_of
from tightbudget.audit.result import AttackPoint
from tightbudget.numerics.bounds import Estimate


def exp(x: float, *, up: bool) -> Fraction:
    """A fraction within 1e-40 of e^x, on one side of it."""
    with mpmath.workdps(60):
        near = mpmath.exp(mpmath.mpf(x))
        found = Fraction(int(near * mpmath.mpf(10) ** 45), 10**45)
    return found * (1 + Fraction(1 if up else -1, 10**38))


def exact_bound(seen: Guessed, line: ClaimLine) -> Fraction:
    """B + m delta B (1 - B) / (c b_c), with e^eps from below: at most the exact one."""
    m, r, c = seen
    odds = exp(line.epsilon, up=False)
    masses = [math.comb(r, k) * odds**k for k in range(r + 1)]
    total = sum(masses, Fraction(0))
    tail = sum(masses[c:], Fraction(0)) / total
    return tail * (1 + m * Fraction(line.delta) * (1 - tail) / (c * masses[c] / total))


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
@pytest.mark.parametrize(("m", "r", "c"), [(20, 10, 9), (20, 10, 10), (60, 40, 36), (30, 30, 16)])
def test_the_bound_of_one_line(m: int, r: int, c: int, epsilon: float) -> None:
    for delta in (0.0, 1e-3, 3e-2):
        line = ClaimLine(epsilon, delta)
        exact = min(Fraction(1), exact_bound(Guessed(m, r, c), line))
        found = most_right(Guessed(m, r, c), line)
        assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 10**9))


def exact_level(seen: Guessed, lines: ClaimLines) -> Fraction:
    """About the least level that the recursion refutes, from above, by exact fractions."""
    m, r, c = seen
    pairs = [(Fraction(a), Fraction(b)) for a, b in zip(lines.slopes, lines.offsets, strict=True)]

    def refutes(level: Fraction) -> bool:
        most, above = level, Fraction(0)
        for i in range(c - 1, -1, -1):
            x = ((i + 1) * most + above) / m
            y = max(Fraction(0), *(slope * x - offset for slope, offset in pairs))
            above += most
            most = max(most, (m * y + above) / (r - i))
        return most > 1

    low, high = Fraction(0), Fraction(1)
    while high - low > Fraction(1, 2**52) * high:
        middle = (low + high) / 2
        low, high = (low, middle) if refutes(middle) else (middle, high)
    return high


@pytest.mark.parametrize(("m", "r", "c"), [(12, 8, 8), (12, 8, 7), (20, 20, 17)])
def test_the_recursion(m: int, r: int, c: int) -> None:
    for lines in (lines_of_gaussian(0.5, 6), ClaimLines((ClaimLine(0.0, 0.01),))):
        least = float(exact_level(Guessed(m, r, c), lines))
        if least < 1.0:
            assert not curve_refuted(Guessed(m, r, c), lines, least * (1 - 1e-12))
            assert curve_refuted(Guessed(m, r, c), lines, least * (1 + 1e-9))


LINES = ClaimLines((ClaimLine(0.0, 0.25), ClaimLine(0.7, 0.01), ClaimLine(2.3, 0.0)))


def test_lines_of_the_inverse_curve_are_below_it() -> None:
    exact = [
        line
        for epsilon, delta in LINES.points
        for line in (
            (exp(-epsilon, up=True), Fraction(delta) * exp(-epsilon, up=False)),
            (exp(epsilon, up=True), exp(epsilon, up=False) - 1 + Fraction(delta)),
        )
    ]
    for slope, offset in zip(LINES.slopes, LINES.offsets, strict=True):
        near = min(
            exact, key=lambda line: abs(line[0] - Fraction(slope)) + abs(line[1] - Fraction(offset))
        )
        assert Fraction(slope) <= near[0]
        assert Fraction(offset) >= near[1] or near[1] <= 0
        assert float(near[0]) == pytest.approx(slope, rel=1e-13)
        assert float(near[1]) == pytest.approx(offset, rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("point", range(3))
@pytest.mark.parametrize("fpr", [0.0, 1e-3, 0.07, 0.3, 0.6])
def test_false_negatives_are_below_the_curve(point: int, fpr: float) -> None:
    lines = ClaimLines((LINES.points[point],))
    ((epsilon, delta),) = lines.points
    kept, x = 1 - Fraction(delta), Fraction(fpr)
    exact = max(Fraction(0), kept - exp(epsilon, up=True) * x, exp(-epsilon, up=False) * (kept - x))
    found = lines.false_negatives(fpr)
    # the fraction is within 1e-38 of the curve
    assert Fraction(found) <= exact * (1 + Fraction(1, 10**30))
    assert found == pytest.approx(float(exact), rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("mu", [0.01, 0.7, 3.0])
def test_deltas_of_a_gaussian_are_above_the_exact_ones(mu: float) -> None:
    with mpmath.workdps(60):
        for epsilon, delta in lines_of_gaussian(mu, 9).points:
            u = mpmath.mpf(epsilon) / mu
            p, q = (mpmath.ncdf(-u + sign * mpmath.mpf(mu) / 2) for sign in (1, -1))
            exact = p - mpmath.exp(epsilon) * q
            assert exact <= mpmath.mpf(delta) <= exact + mpmath.mpf(1e-12) * p


def test_a_claim_that_is_no_double() -> None:
    ((epsilon, delta),) = lines_of((Fraction(1, 3), Fraction(1, 10)), 0.0).points
    assert Fraction(1, 3) <= Fraction(epsilon) < Fraction(1, 3) * (1 + Fraction(1, 2**50))
    assert Fraction(1, 10) <= Fraction(delta) < Fraction(1, 10) * (1 + Fraction(1, 2**50))


@pytest.mark.parametrize("confidence", [0.1, 0.3, 0.95, 0.999])
def test_a_level(confidence: float) -> None:
    level = Fraction(level_of(confidence))
    assert level <= 1 - Fraction(confidence)
    assert level >= (1 - Fraction(confidence)) * (1 - Fraction(1, 10**12))


class Recorded:
    """Evidence that keeps the levels at which it is asked, and refutes nothing."""

    def __init__(self, p: float) -> None:
        self.p, self.levels = p, list[float]()

    def refutes(self, lines: ClaimLines, level: float) -> bool:
        self.levels.append(level)
        return False

    def p_value(self, lines: ClaimLines) -> float:
        return self.p

    def merit(self, lines: ClaimLines, level: float) -> float:
        return 0.0

    def gaussian(self, mu: float) -> ClaimLines:
        return lines_of_gaussian(mu)

    def guess(self) -> float:
        return 0.5


@pytest.mark.parametrize("attacks", [1, 3, 7])
def test_levels_of_several_attacks_are_the_level_together(attacks: int) -> None:
    asked = AuditQuestion(0.0, (1.0, 0.0), 0.05)
    each = [Recorded(0.05 / attacks * (1 - 1e-15)) for _ in range(attacks)]
    needed: Any = lambda *_: Estimate(1.0, "none")  # noqa: E731
    found = asked.audit("test", [Attack(one, 1, 1, 1, ()) for one in each], needed)
    # it refutes nothing, however near the p-value is to the level
    assert found.verdict == "consistent"
    levels = {level for one in each for level in one.levels}
    assert len(levels) == 1
    (level,) = levels
    assert Fraction(level) * attacks <= Fraction(0.05)
    assert level == pytest.approx(0.05 / attacks, rel=1e-13)


def test_bounds_of_a_rate_from_below() -> None:
    for k, n in ((5, 10), (900, 1000), (1, 50)):
        fpr = AttackPoint.of(k, n, 1, 10, 0.05).fpr
        mirrored = AttackPoint.of(n - k, n, 1, 10, 0.05).fpr
        assert Fraction(fpr.lower) <= 1 - Fraction(mirrored.upper)
        assert fpr.lower == pytest.approx(1 - mirrored.upper, rel=1e-12)


def test_capital_of_bets() -> None:
    stakes = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.7]).tolist()
    for epsilon, delta, n, m, k in (
        (1.0, 0.05, 30, 4, 6),
        (0.0, 0.2, 40, 2, 0),
        (3.0, 0.0, 9, 0, 3),
    ):
        odds = exp(epsilon, up=False)
        q, spent = odds / (1 + odds), Fraction(delta) / (1 + odds)
        total = Fraction(0)
        for part in stakes:
            stake = Fraction(part) / (q + spent)
            absent = 1 - Fraction(part) * Fraction(delta) / (1 + Fraction(delta))
            gains = (1 + stake * (1 - q - spent), 1 - stake * (q + spent), absent)
            total += gains[0] ** n * gains[1] ** m * gains[2] ** k
        capital = total / len(stakes)
        seen = Bets((n,), (m,), (k,)).p_value(ClaimLines((ClaimLine(epsilon, delta),)))
        if capital > 1:
            assert 1 / capital <= Fraction(seen) * (1 + Fraction(1, 10**30))
            assert seen <= float(1 / capital) * (1 + 1e-9)


def test_a_composition_is_read_at_its_upper_bounds() -> None:
    run = tb.Laplace(1.0)
    for epsilon, delta in lines_of(run, 1e-3).points[::8]:
        if delta < 1.0:
            assert delta >= run.delta(epsilon).lower
