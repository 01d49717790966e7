"""The only source of randomness."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.release.cases import CASES, Case
from tests.release.test_laws import Journal

import tightbudget as tb
from tightbudget.release.noise import noise
from tightbudget.release.noise.noise import IntArray, Pool, scale_up

pytestmark = pytest.mark.operating_system_noise

RUNS = 20_000
FAR = 6.0  # standard deviations: a sound sampler fails once in 10^9 runs


@pytest.mark.one_in(6)
@pytest.mark.parametrize("scale", [0.25, 1, Fraction(7, 3), 40.5])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_each_draw_has_its_mass(kind: str, scale: float | Fraction) -> None:
    draws = getattr(tb.release.OpenDPNoise(), kind)(scale, RUNS)
    assert draws.dtype == np.int64
    b = float(scale)
    exponent: Callable[[int], float] = {
        "laplace": lambda x: -abs(x) / b,
        "gaussian": lambda x: -(x**2) / (2 * b**2),
    }[kind]
    whole = sum(math.exp(exponent(x)) for x in range(-2000, 2001))
    seen = Counter(draws.tolist())
    for x in range(-3, 4):
        p = math.exp(exponent(x)) / whole
        spread = FAR * math.sqrt(RUNS * p * (1 - p)) + FAR**2
        assert abs(seen[x] - RUNS * p) < spread


@pytest.mark.parametrize("size", [0, 1, 19, 20, 21, 100, 101])
def test_many_draws_are_shared_out_among_the_cores(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    asked: list[int] = []

    def sampler(zeros: IntArray) -> list[int]:
        asked.append(len(zeros))
        return [len(asked)] * len(zeros)

    monkeypatch.setattr(noise, "_cores", lambda: 3)
    monkeypatch.setattr(noise, "_WORTH_A_THREAD", 10)
    monkeypatch.setattr(noise, "_sampler", lambda *_: sampler)
    assert len(tb.release.OpenDPNoise().laplace(1, size)) == sum(asked) == size
    assert len(asked) == min(3, max(1, size // 10))
    assert max(asked) - min(asked) <= 2


def test_a_thread_that_fails_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def sampler(zeros: IntArray) -> list[int]:
        raise ZeroDivisionError

    monkeypatch.setattr(noise, "_cores", lambda: 2)
    monkeypatch.setattr(noise, "_sampler", lambda *_: sampler)
    with pytest.raises(ZeroDivisionError):
        tb.release.OpenDPNoise().laplace(1, 10**4)


def test_a_coin_is_fair() -> None:
    source = tb.release.OpenDPNoise()
    heads = sum(source.coin() for _ in range(2000))
    assert abs(heads - 1000) < FAR * math.sqrt(500)


def test_a_scale_is_rounded_up() -> None:
    for scale in (Fraction(1, 3), Fraction(10**20 + 1, 10**20), 0.1, 7):
        wanted = Fraction(str(scale)) if isinstance(scale, float) else scale
        assert wanted <= Fraction(scale_up(scale)) <= wanted * (1 + Fraction(1, 2**51))


@pytest.mark.parametrize("scale", [math.nan, 0, -1.0, math.inf])
def test_what_opendp_would_take_is_refused(scale: float) -> None:
    with pytest.raises(tb.ParameterError, match=r"^scale must be a finite number > 0, got "):
        tb.release.OpenDPNoise().laplace(scale, 1)


def test_scales_that_int64_cannot_carry_are_refused() -> None:
    with pytest.raises(tb.ParameterError, match=r"^scale must be in \(0, 2\^40 = 1099511627776\]"):
        tb.release.OpenDPNoise().gaussian(2.0**41, 1)
    with pytest.raises(tb.ParameterError, match=r"^size must be an integer >= 0, got -1"):
        tb.release.OpenDPNoise().laplace(1, -1)


def test_without_opendp_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.measurements", None)
    for cached in (noise._opendp, noise._coin, noise._sampler):
        cached.cache_clear()
    with pytest.raises(tb.errors.ExtraError, match=r"pip install 'tightbudget\[release\]'"):
        tb.release.OpenDPNoise().laplace(1, 1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_missing_opendp_is_found_before_anything_is_held(
    monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    """And the error says what to install: it has seen nothing of the data."""
    monkeypatch.setitem(sys.modules, "opendp.measurements", None)
    for cached in (noise._opendp, noise._coin, noise._sampler):
        cached.cache_clear()
    meter = Journal(tb.OutputDPFilter(100, 0.5))
    with pytest.raises(tb.errors.ExtraError, match=r"pip install 'tightbudget\[release\]'"):
        case.run(case.mechanism, case.data, meter, None)
    assert not meter.asked


def test_noise_that_is_none_says_so() -> None:
    with pytest.warns(UserWarning, match="no privacy at all"):
        fixed = tb.release.FixedNoise([1, -2, 3, 0, 1])
    assert fixed.laplace(9, 2).tolist() == [1, -2]
    assert fixed.gaussian(9, 1).tolist() == [3]
    assert [fixed.coin(), fixed.coin()] == [False, True]


def test_a_pool_hands_out_each_draw_once_and_in_order() -> None:
    asked: list[int] = []

    def draw(size: int) -> IntArray:
        asked.append(size)
        return np.arange(size) + sum(asked[:-1])

    pool = Pool(draw, 100)
    assert [pool.take() for _ in range(500)] == list(range(500))
    assert asked == [32, 64, 100, 100, 100, 100, 100]


def test_a_fork_gets_nothing_from_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(lambda size: np.zeros(size, dtype=np.int64), 8)
    pool.take()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(
        tb.errors.SettlementError, match="belongs to the process that began to draw it"
    ):
        pool.take()


def test_a_fork_cannot_go_on_with_a_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = tb.OutputDPFilter(1)

    def converse() -> Any:
        with tb.release.SparseVector(1, 2).open(0, meter=meter) as run:
            run.ask(lambda data: data, 5000)
            monkeypatch.setattr(os, "getpid", lambda: -1)
            run.ask(lambda data: data, 5000)

    with pytest.raises(tb.ReleaseError):
        converse()
    assert meter.held.epsilon == 1


def test_a_fork_cannot_settle_what_another_process_is_still_answering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meter = tb.OutputDPFilter(1)

    def leave() -> Any:
        with tb.release.SparseVector(1, 2).open(0, meter=meter):
            monkeypatch.setattr(os, "getpid", lambda: -1)

    with pytest.raises(tb.errors.SettlementError, match="by the process that has started it"):
        leave()
    assert meter.held.epsilon == 1


@pytest.mark.slow
def test_the_first_draw_imports_no_other_library() -> None:
    """OpenDP's prelude would import scikit-learn, SciPy and Polars: 2.4 s in place of 0.13 s."""
    heavy = "{'sklearn', 'polars', 'opendp.prelude', 'opendp.extras'}"
    program = (
        "import sys; from tightbudget.release.noise.noise import OpenDPNoise as Source; "
        "source = Source(); source.laplace(1, 1); source.gaussian(1, 1); source.coin(); "
        f"print(*({heavy} & {{*sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")
