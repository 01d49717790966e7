"""What an accountant has counted is told in a line, which is never refused."""

from __future__ import annotations

import re

import pytest

import tightbudget as tb
from tightbudget.mechanisms.glance import glance

STEP = tb.Gaussian(1.1).subsampled(0.01)


@pytest.mark.parametrize("run", [STEP * 1, STEP * 1000, STEP * 10 + tb.Gaussian(20.0) * 3])
def test_the_epsilon_that_is_shown_is_an_upper_bound(run: tb.Composition) -> None:
    said = glance("Accountant", lambda: run)
    begin = f"<Accountant: {run!r}; epsilon is at most "
    assert said.startswith(begin)
    shown = re.fullmatch(r"(\d+\.\d+) at delta = 1e-05>", said.removeprefix(begin))
    assert shown is not None
    exact = run.epsilon(1e-5)
    assert exact.upper <= float(shown[1]) <= exact.lower * 1.02


@pytest.mark.parametrize(
    "run",
    [
        tb.compose([tb.Gaussian(1.0 + k).subsampled(0.01) for k in range(9)]),  # many mechanisms
        tb.Gaussian(0.8).batches(64, 50_000) * 900,
        tb.Gaussian(1.1).shuffled(100) * 10,
        STEP + tb.ApproximateDP(0.0, 1.0),
    ],
)
def test_what_takes_long_is_not_asked(run: tb.Composition) -> None:
    said = glance("Accountant", lambda: run)
    assert said == f"<Accountant: {run!r}; get_epsilon(delta) bounds epsilon>"


def test_nothing_is_told_as_nothing() -> None:
    assert glance("Accountant", tb.Composition) == "<Accountant: nothing yet>"


@pytest.mark.parametrize("error", [tb.ParameterError("history must be a list"), KeyError("lost")])
def test_what_is_refused_is_named_and_not_raised(error: Exception) -> None:
    def counted() -> tb.Composition:
        raise error

    assert glance("Accountant", counted) == f"<Accountant: {type(error).__name__}: {error}>"
