"""Keys that are secrets: every small table, every neighbour, every output, exactly."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import tightbudget as tb
from tightbudget.release.mechanisms.select_keys import optimal_rule

pytestmark = pytest.mark.filterwarnings("ignore:FixedNoise")

Law = dict[object, Fraction]
MOST = 3  # units in a table of the audits, for each key


def geometric(a: Fraction, t: int) -> Fraction:
    """Pr[Z >= t] for noise of mass proportional to a^|z|."""
    return a**t / (1 + a) if t > 0 else 1 - a ** (1 - t) / (1 + a)


def shown(a: Fraction, n: int, threshold: int, strict: bool = False) -> Law:
    """What one key of n units shows: its noisy count, or nothing.

    From the largest count on, the masses of neighbours are proportional: they are one output.
    """
    if n == 0:
        return {None: Fraction(1)}
    first, last = threshold + strict, max(threshold, MOST) + 2
    law: Law = {v: geometric(a, v - n) - geometric(a, v + 1 - n) for v in range(first, last)}
    return law | {"more": geometric(a, last - n), None: 1 - geometric(a, first - n)}


def product(laws: list[Law]) -> Law:
    whole: Law = {(): Fraction(1)}
    for law in laws:
        whole = {(*k, v): p * q for k, p in whole.items() for v, q in law.items()}  # type: ignore[misc]
    return whole


def delta(p: Law, q: Law, factor: Fraction) -> Fraction:
    """The least delta for one direction at e^epsilon = factor."""
    return sum((max(Fraction(0), m - factor * q.get(v, 0)) for v, m in p.items()), Fraction(0))


def worst(laws: Mapping[int, Law], keys: int, touched: int, factor: Fraction) -> Fraction:
    """The least delta over all tables of so many keys, both directions; a unit has ``touched``."""
    found = Fraction(0)
    for table in itertools.product(range(MOST), repeat=keys):
        for added in itertools.product((0, 1), repeat=keys):
            if sum(added) > touched:
                continue
            p = product([laws[n] for n in table])
            q = product([laws[n + more] for n, more in zip(table, added, strict=True)])
            found = max(found, delta(p, q, factor), delta(q, p, factor))
    return found


A = Fraction(1, 2)  # e^(-1 / scale): one key costs ln 2


@pytest.mark.parametrize("touched", [1, 2])
@pytest.mark.parametrize("threshold", [2, 3, 4])
def test_the_worst_case_is_that_all_keys_of_a_unit_are_its_own(
    touched: int, threshold: int
) -> None:
    laws = {n: shown(A, n, threshold) for n in range(MOST + 1)}
    appears = geometric(A, threshold - 1)
    assert 1 - appears >= A  # a key's absence costs no more than its noise
    found = worst(laws, 2, touched, 2**touched * Fraction(1))
    assert found == 1 - (1 - appears) ** touched


def test_less_than_that_is_caught() -> None:
    """Half the noise, a threshold one less, and the delta of one key for two."""
    claimed = 1 - (1 - geometric(A, 2)) ** 2
    right = {n: shown(A, n, 3) for n in range(MOST + 1)}
    assert worst(right, 2, 2, Fraction(4)) == claimed > geometric(A, 2)
    half = {n: shown(A * A, n, 3) for n in range(MOST + 1)}
    assert worst(half, 2, 2, Fraction(4)) > claimed
    less = {n: shown(A, n, 2) for n in range(MOST + 1)}
    assert worst(less, 2, 2, Fraction(4)) > claimed
    # where > is meant, >= is a threshold one less
    strict = {n: shown(A, n, 3, strict=True) for n in range(MOST + 1)}
    assert worst(strict, 2, 2, Fraction(4)) == 1 - (1 - geometric(A, 3)) ** 2


def test_a_zero_count_that_gets_noise_is_caught() -> None:
    laws = {n: shown(A, n, 3) for n in range(MOST + 1)}
    # with noise on keys that nobody has the domain would have to be public; here it is not
    noisy = laws | {0: shown(A, 1, 3)}
    assert delta(noisy[0], {None: Fraction(1)}, Fraction(2)) > 0


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_code_decides_as_the_audit_does(noise: Any) -> None:
    counts = tb.release.KeyedCounts(epsilon=1, delta=0.1, noise=noise)
    t = counts.threshold
    for a, b in itertools.product(range(-1, 4), repeat=2):
        draws = [*([t - a] if a > 0 else []), *([t - 1 - b] if b > 0 else [])]
        answer = counts.release(
            {"b": b, "a": a}, meter=tb.OutputDPOdometer(), noise=tb.release.FixedNoise(draws)
        )
        assert answer.value == ({"a": t} if a > 0 else {})


@pytest.mark.parametrize("g", [1, 3, 40, 10**4])
@pytest.mark.parametrize("epsilon", [0.1, 1, 7])
@pytest.mark.parametrize("moves", [1, 5])
def test_the_laplace_threshold_is_the_least(g: int, epsilon: float, moves: int) -> None:
    given = 1e-6
    t = tb.release.KeyedCounts(epsilon=epsilon, delta=given, keys_per_unit=g, moves=moves).threshold
    with mp.workdps(60):
        a = mp.exp(-mp.mpf(epsilon) / (g * moves))

        def lost(threshold: int) -> Any:
            return 1 - (1 - a ** (threshold - moves) / (1 + a)) ** g

        assert lost(t) <= mp.mpf(given) < lost(t - 1)


def profile(sigma: float, threshold: int, g: int, epsilon: float, moves: int = 1) -> float:
    """The exact worst case of Gaussian noise, in doubles, by adding up all outputs."""
    x = np.arange(-int(12 * sigma), int(12 * sigma) + moves + 1)
    weights = np.exp(-(x**2) / (2 * sigma**2))
    weights /= weights.sum()
    moved = np.roll(weights, moves)
    d = float(weights[x >= threshold - moves].sum())
    p, q, found = np.ones(1), np.ones(1), []
    for i in range(g + 1):
        j = g - i
        for own, other in ((p, q), (q, p)):
            for k in range(j + 1):
                keep = (1 - d) ** k
                found.append(
                    1 - keep + float(np.maximum(0, keep * own - math.exp(epsilon) * other).sum())
                )
                found.append(float(np.maximum(0, own - math.exp(epsilon) * keep * other).sum()))
        p, q = np.outer(p, weights).ravel(), np.outer(q, moved).ravel()
    return max(found)


@pytest.mark.parametrize(("g", "epsilon", "given"), [(1, 1, 1e-3), (2, 2, 1e-2), (2, 3, 1e-5)])
def test_the_gaussian_threshold_is_the_least(g: int, epsilon: float, given: float) -> None:
    counts = tb.release.KeyedCounts(epsilon=epsilon, delta=given, keys_per_unit=g, noise="gaussian")
    worst_case = profile(counts.scale, counts.threshold, g, epsilon)
    assert 0.99 * given < worst_case <= given * (1 + 1e-9)
    assert profile(counts.scale, counts.threshold - 1, g, epsilon) > given
    assert profile(counts.scale / 2, counts.threshold, g, epsilon) > 2 * given


@pytest.mark.parametrize("sigma", [0.3, 1.0, 7.5])
def test_tails_of_noise_are_bounds_that_are_close(sigma: float) -> None:
    tails = tb.DiscreteGaussian(sigma).tails_up()
    with mp.workdps(60):
        masses = [mp.exp(-(mp.mpf(n) ** 2) / (2 * mp.mpf(sigma) ** 2)) for n in range(500)]
        whole = masses[0] + 2 * mp.fsum(masses[1:])
        for t in range(0, len(tails), 7):
            exact = mp.fsum(masses[t:]) / whole
            assert exact <= tails[t] <= exact * (1 + mp.mpf("1e-9")) + mp.mpf("1e-290")
        for t in range(1, 200, 9):
            a = mp.exp(-1 / mp.mpf(sigma))
            exact = a**t / (1 + a)
            tail = tb.DiscreteLaplace(sigma).tail_up(t)
            assert exact <= tail <= exact * (1 + mp.mpf("1e-12")) + mp.mpf("1e-290")
    assert tb.DiscreteLaplace(sigma).tail_up(0) == 1.0


@pytest.mark.parametrize("given", [Fraction(1, 10), Fraction(1, 1000), Fraction(1, 10**6)])
@pytest.mark.parametrize("factor", [Fraction(3, 2), Fraction(3), Fraction(65, 64)])
def test_the_rule_for_keys_alone_keeps_its_promise_and_uses_it_up(
    factor: Fraction, given: Fraction
) -> None:
    rule = [*optimal_rule(factor, given), Fraction(1)]
    laws = [{True: p, False: 1 - p} for p in rule]
    for p, q in itertools.pairwise(laws):
        worst_case = max(delta(p, q, factor), delta(q, p, factor))  # type: ignore[arg-type]
        assert worst_case <= given
        if q[True] < 1:  # no larger probability is possible
            assert worst_case > given - factor * Fraction(1, 2**127)
    assert rule[0] == 0
    assert rule == sorted(rule)


@pytest.mark.parametrize("g", [1, 2])
def test_g_keys_share_what_is_given(g: int) -> None:
    mechanism = tb.release.SelectKeys(epsilon=2, delta=0.1, keys_per_unit=g)
    rule = [*mechanism.probabilities, Fraction(1), Fraction(1), Fraction(1)]
    laws: dict[int, Law] = {n: {True: rule[n], False: 1 - rule[n]} for n in range(MOST + 1)}
    found = worst(laws, 2, g, Fraction(math.exp(2)))
    assert Fraction(1, 20) < found <= Fraction(1, 10)


def test_a_key_is_published_with_the_probability_of_its_rule() -> None:
    """The first tosses decide: a uniform number below p, bit by bit."""
    mechanism = tb.release.SelectKeys(epsilon=1, delta=0.25)
    assert mechanism.probabilities[1] == Fraction(1, 4)
    for tosses, published in (([0, 0], True), ([0, 1], False), ([1], False)):
        noise = tb.release.FixedNoise([*tosses, *[1] * 200])
        answer = mechanism.release({"k": 1}, meter=tb.OutputDPOdometer(), noise=noise)
        assert (answer.value == ("k",)) is published


def test_the_order_of_the_answer_is_that_of_the_keys() -> None:
    table = {k: 10**6 + n for n, k in enumerate(["b", "c", 10, "a", 9])}
    for permuted in itertools.islice(itertools.permutations(table.items()), 0, 120, 7):
        for mechanism in (
            tb.release.KeyedCounts(epsilon=1, delta=1e-6),
            tb.release.SelectKeys(epsilon=1, delta=1e-6),
        ):
            value = mechanism.release(dict(permuted), meter=tb.OutputDPOdometer()).value
            assert list(value) == [10, 9, "a", "b", "c"]


class Odd:
    """A count that fails to be one."""

    def __index__(self) -> int:
        raise ZeroDivisionError("secret")

    def __repr__(self) -> str:
        return "Odd()"


@pytest.mark.parametrize("wrong", [None, "7", 3.0, math.nan, 0, -5, Odd(), [1]], ids=str)
def test_a_count_that_is_none_is_an_absent_key(wrong: Any) -> None:
    for mechanism in (
        tb.release.KeyedCounts(epsilon=1, delta=1e-6),
        tb.release.SelectKeys(epsilon=1, delta=1e-6),
    ):
        given: Any = {"x": wrong, "y": 10**9}
        assert list(mechanism.release(given, meter=tb.OutputDPOdometer()).value) == ["y"]


@pytest.mark.parametrize("kind", [tb.release.KeyedCounts, tb.release.SelectKeys])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epsilon": 0}, "epsilon must be a finite number > 0, got 0"),
        ({"delta": 0}, "delta must be in (0, 1): a secret key cannot be published at 0, got 0"),
        ({"delta": 1}, "delta must be in (0, 1): a secret key cannot be published at 0, got 1"),
        ({"keys_per_unit": 0}, "keys_per_unit must be"),
    ],
)
def test_refusals(kind: Any, given: Any, said: str) -> None:
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(said)}"):
        kind(**{"epsilon": 1, "delta": 0.1} | given)


def test_other_refusals() -> None:
    wrong: Any = "cauchy"
    with pytest.raises(tb.ParameterError, match=r"^noise must be one of"):
        tb.release.KeyedCounts(epsilon=1, delta=0.1, noise=wrong)
    with pytest.raises(tb.ParameterError, match=r"^moves must be"):
        tb.release.KeyedCounts(epsilon=1, delta=0.1, moves=0)
    data: Any = ["a"]
    said = r"^data must be a dictionary from keys to counts, got 'list'"
    for mechanism in (
        tb.release.KeyedCounts(epsilon=1, delta=0.1),
        tb.release.SelectKeys(epsilon=1, delta=0.1),
    ):
        with pytest.raises(tb.ParameterError, match=said):
            mechanism.release(data, meter=tb.OutputDPOdometer())
    for epsilon in (1e-9, 1e-3):
        with pytest.raises(tb.ParameterError, match=r"^epsilon and delta must be larger for so"):
            tb.release.SelectKeys(epsilon=epsilon, delta=1e-9, keys_per_unit=10**7)
