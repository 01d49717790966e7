"""The two theorems about right guesses, against the exact optimum over all mechanisms.

Averaged over all ways to rename included canaries to left-out ones, and over their order, a
mechanism is a law p_k of the number of right guesses, and (eps, delta)-DP is

    sum_k (k p_k - e^eps (r - k + 1) p_(k-1))_+ + ((r - k) p_k - e^eps (k + 1) p_(k+1))_+
    <= m delta,

so that the largest Pr[C >= c] is a linear program in the p_k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import brentq, linprog
from scipy.stats import binom, norm

from tightbudget.audit.asked import least_epsilon, least_mu
from tightbudget.audit.claims import ClaimLine, ClaimLines, lines_of_gaussian
from tightbudget.audit.guessing import Guessed, curve_refuted, most_right, p_value
from tightbudget.mechanisms.gaussian import GaussianPair


def optimum(seen: Guessed, lines: Sequence[ClaimLine]) -> float:
    """The largest probability of so many right guesses over all mechanisms that keep all lines."""
    return optimum_of_any([seen], lines)


def optimum_of_any(each: Sequence[Guessed], lines: Sequence[ClaimLine]) -> float:
    """The same, where the mechanism decides how many are guessed, and each count has its own c."""
    masses, pairs = sum(seen.guesses + 1 for seen in each), sum(2 * seen.guesses for seen in each)
    variables = masses + pairs * len(lines)
    rows, right = [], []
    for i, (epsilon, delta) in enumerate(lines):
        grown, start, first = math.exp(epsilon), 0, masses + pairs * i
        for _, r, _ in each:
            for k in range(1, r + 1):
                row = np.zeros(variables)
                row[start + k], row[start + k - 1], row[first] = k, -grown * (r - k + 1), -1.0
                rows.append(row)
                row = np.zeros(variables)
                row[start + k - 1], row[start + k], row[first + 1] = r - k + 1, -grown * k, -1.0
                rows.append(row)
                right += [0.0, 0.0]
                first += 2
            start += r + 1
        row = np.zeros(variables)
        row[masses + pairs * i : masses + pairs * (i + 1)] = 1.0
        rows.append(row)
        right.append(each[0].canaries * delta)
    wanted, one, start = np.zeros(variables), np.zeros(variables), 0
    for _, r, c in each:
        wanted[start + c : start + r + 1] = -1.0
        start += r + 1
    one[:masses] = 1.0
    found = linprog(wanted, np.array(rows), right, one[None, :], [1.0], bounds=(0, None))
    assert found.fun is not None
    return float(-found.fun)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("m", "r"), [(4, 4), (6, 3), (10, 10), (12, 5), (20, 20), (30, 10)])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_one_line_has_the_exact_optimum(m: int, r: int, epsilon: float) -> None:
    for delta in (0.0, 1e-4, 1e-2):
        for c in {r // 2, int(0.8 * r), r}:
            seen, line = Guessed(m, r, c), ClaimLine(epsilon, delta)
            exact = optimum(seen, [line])
            found = most_right(seen, line)
            assert exact <= found * (1 + 1e-9) + 1e-12
            if exact < 0.9:  # there the other direction has no say, and neither has p_0 >= 0
                assert found == pytest.approx(exact, rel=1e-6)
            assert exact <= p_value(seen, ClaimLines((line,))) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(("m", "r", "mu"), [(20, 20, 1.0), (20, 6, 1.0), (30, 30, 0.5)])
def test_no_mechanism_on_a_gaussian_curve_guesses_more(m: int, r: int, mu: float) -> None:
    # fewer lines leave more mechanisms: the bound for these lines is at least their optimum
    lines = lines_of_gaussian(mu, 7)
    middle = r * norm.cdf(mu / 2)
    for c in {int(middle) + 1, min(r, int(middle + math.sqrt(r))), r}:
        exact = optimum(Guessed(m, r, c), lines.points)
        found = p_value(Guessed(m, r, c), lines)
        assert exact <= found * (1 + 1e-7)
        assert found <= 1.6 * exact  # not vacuous


def test_a_number_of_guesses_that_outputs_decide_is_another_theorem() -> None:
    # each count alone keeps the level, and all of them together do not
    lines = (ClaimLine(0.12789048149927518, 0.3), ClaimLine(0.1608846457331774, 0.1))
    each = [Guessed(12, 6, 6), Guessed(12, 9, 8), Guessed(12, 11, 9)]
    level = max(p_value(seen, ClaimLines(lines)) for seen in each)
    assert max(optimum(seen, lines) for seen in each) <= level < 0.22
    assert optimum_of_any(each, lines) > 1.1 * level


def steinke(seen: Guessed, epsilon: float, delta: float) -> float:
    """The p-value of Steinke, Nasr, Jagielski 2023, Theorem 5.2, as JAX Privacy computes it."""
    m, r, c = seen
    rate = 1 / (1 + math.exp(-epsilon))
    beta = binom.sf(c - 1, r, rate)
    i = np.arange(1, c + 1)
    steepest = np.max((binom.sf(c - i - 1, r, rate) - beta) / i, initial=0.0)
    return float(min(1.0, beta + 2 * m * delta * steepest))


@pytest.mark.parametrize(("m", "r", "c"), [(100, 40, 33), (1000, 332, 290), (1000, 1000, 560)])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-4])
def test_it_is_at_most_the_published_p_value(m: int, r: int, c: int, delta: float) -> None:
    for epsilon in (0.0, 0.1, 0.5, 1.0, 1.5, 2.0):
        published = steinke(Guessed(m, r, c), epsilon, delta)
        if published < 0.5:
            assert most_right(Guessed(m, r, c), ClaimLine(epsilon, delta)) <= published * (1 + 1e-9)


def test_lower_bounds_of_epsilon_are_those_of_jax_privacy_or_closer() -> None:
    for seen in (Guessed(100, 100, 70), Guessed(1000, 332, 290), Guessed(500, 60, 60)):
        for delta in (0.0, 1e-5, 1e-3):
            theirs = brentq(lambda e: steinke(seen, e, delta) - 0.05, 0.0, 20.0, xtol=1e-10)  # noqa: B023
            ours = least_epsilon(seen, delta, 0.05)
            assert ours >= theirs - 1e-6
            if delta == 0.0:
                assert ours == pytest.approx(theirs, abs=1e-6)


def gaussian_reference(seen: Guessed, mu: float, level: float) -> float:
    """r + h - c' / m of Mahloujifar et al. 2024, Algorithm 3, as JAX Privacy computes it."""
    m, guesses, right = seen
    r, h = level * right / m, level * (guesses - right) / m
    for i in range(right - 1, -1, -1):
        new = max(h, norm.cdf(norm.ppf(r) - mu))
        if new == h:
            break
        r, h = min(1.0, r + i / (guesses - i) * (new - h)), new
    return float(r + h - guesses / m)


@pytest.mark.parametrize("seen", [Guessed(100, 100, 75), Guessed(300, 100, 93)])
def test_gaussian_curves_have_the_numbers_of_jax_privacy(seen: Guessed) -> None:
    theirs = brentq(lambda mu: gaussian_reference(seen, mu, 0.05), 1e-3, 5.0, xtol=1e-12)
    # tangents at 20,000 places are the curve itself to 1e-8
    assert curve_refuted(seen, lines_of_gaussian(theirs - 1e-6, 20_000), 0.05)
    assert not curve_refuted(seen, lines_of_gaussian(theirs + 1e-6, 20_000), 0.05)
    # and together with the other theorem, on few lines, nothing is lost
    assert least_mu(seen, 0.05) >= theirs * 0.998


def test_deltas_of_gaussian_curves_are_those_of_the_mechanism_or_just_above() -> None:
    for mu in (1e-6, 0.01, 0.3, 1.0, 3.0, 30.0):
        for epsilon, delta in lines_of_gaussian(mu).points[::4]:
            closed = GaussianPair(mu).closed_delta(epsilon)
            assert closed is not None
            assert closed[0] <= delta <= closed[1] * (1 + 1e-6) + 1e-15


def test_more_lines_move_a_p_value_by_little() -> None:
    for seen in (Guessed(1000, 332, 315), Guessed(1000, 332, 290)):
        few, many = (p_value(seen, lines_of_gaussian(0.5, n)) for n in (49, 400))
        assert many <= few * (1 + 1e-9) <= 1.03 * many


def test_without_right_guesses_nothing_is_said() -> None:
    assert most_right(Guessed(20, 10, 0), ClaimLine(0.0, 0.0)) == 1.0
    assert not curve_refuted(Guessed(20, 10, 0), lines_of_gaussian(0.1), 0.5)
    assert p_value(Guessed(20, 10, 0), lines_of_gaussian(0.1)) == 1.0


def test_many_canaries_that_are_all_right_refute_without_underflow() -> None:
    seen = Guessed(20_000, 20_000, 20_000)
    assert most_right(seen, ClaimLine(0.1, 1e-9)) < 1e-3
    assert least_epsilon(seen, 1e-9, 0.05) > 6.0
