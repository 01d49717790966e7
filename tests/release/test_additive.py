"""Noise that is added to a query covers every query that its parameters admit."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import tightbudget as tb

NEAR = 2.0**-20
SIZES = [None, 1, 4, 10]
STEPS = [None, 0.25, 1.0, 2.0]


def moves(random: Random, norm: int, whole: bool, n: int, most: Fraction) -> list[Fraction]:
    """A difference of two answers, at most ``most`` long, that rounding likes least."""
    unit = most if whole else most / random.choice([1, n])
    if norm == 2 and not whole:  # equal parts: 1/n of the length is less than 1/sqrt(n) of it
        unit = most / n
    parts = [Fraction(0)] * n
    for i in random.sample(range(n), n):
        part = random.choice([unit, -unit, unit / 2])
        part = Fraction(round(part)) if whole else part
        longer = [*parts[:i], part, *parts[i + 1 :]]
        if sum(abs(x) ** norm for x in longer) <= most**norm:
            parts = longer
    return parts


def neighbours(
    random: Random, norm: int, whole: bool, size: int | None, most: Fraction
) -> tuple[Any, Any]:
    """Answers of a query on two neighbours, of mixed types."""
    n = size or 1
    edges = [Fraction(0), Fraction(1), Fraction(1) - Fraction(NEAR), Fraction(-7, 2)]
    edge = random.choice(edges)  # all at one edge: rounding then moves all of them
    x = [Fraction(random.randrange(-9, 9)) if whole else edge for _ in range(n)]
    y = [a + b for a, b in zip(x, moves(random, norm, whole, n, most), strict=True)]

    def typed(values: list[Fraction]) -> Any:
        kinds: list[Callable[[Fraction], Any]] = [float, Fraction, np.float64]
        made = [int(v) if v == int(v) and random.random() < 0.5 else random.choice(kinds)(v)
                for v in values]  # fmt: skip
        exact = all(Fraction(a) == b for a, b in zip(made, values, strict=True))
        return made if exact else values

    a, b = typed(x), typed(y)
    return (a, b) if size is not None else (a[0], b[0])


def covered(kind: str, size: int | None, step: float | None, integers: bool) -> bool | None:
    """Whether noise covers all that its declaration admits; None if it is refused.

    Two shifts of Laplace noise of this scale are epsilon-close if the points are at most
    epsilon scale apart in the 1-norm; of Gaussian noise, rho-close if their squared distance in the
    2-norm is at most 2 rho scale^2.
    """
    random, most = Random(f"{kind} {size} {step} {integers}"), Fraction(1)
    given: dict[str, Any] = {"size": size, "step": step, "integers": integers}
    norm = 1 if kind == "laplace" else 2
    try:
        if norm == 1:
            mechanism: Any = tb.LaplaceRelease(len, most, 1, **given)
            pays = mechanism.scale
        else:
            mechanism = tb.GaussianRelease(len, most, 8, 1e-6, **given)
            pays = 2 * mechanism.guarantee.rho * mechanism.scale**2
    except tb.ParameterError:
        return None
    grid = mechanism._grid
    for _ in range(150):
        x, y = neighbours(random, norm, integers, size, most)
        apart = grid.points(x, size) - grid.points(y, size)
        if sum(abs(int(d)) ** norm for d in apart) > pays:
            return False
    return True


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("size", SIZES)
def test_noise_covers_what_its_declaration_admits(kind: str, size: int | None) -> None:
    for step, integers in itertools.product(STEPS, [False, True]):
        found = covered(kind, size, step, integers)
        undeclared = size is not None and step is None and not integers
        contradicted = step is not None and integers
        assert found is (None if undeclared or contradicted else True), (step, integers)


def test_a_vector_of_integers_gets_no_more_noise_than_its_sensitivity_asks_for() -> None:
    assert tb.LaplaceRelease(len, 2, 0.5, size=1000, integers=True).scale == 4


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"size": 3},
            "step must be given where size is: a power of two for real numbers, which pays for "
            "rounding them, or integers=True if all numbers of the query are integers, got None",
        ),
        (
            {"size": 3, "step": 0.5, "integers": True},
            "step must be None where integers=True says that answers are integers, got 0.5",
        ),
        ({"size": 3, "integers": 1}, "integers must be True or False, got 1"),
    ],
)
def test_a_vector_declares_its_grid(kind: str, given: dict[str, Any], said: str) -> None:
    make: Any = tb.LaplaceRelease if kind == "laplace" else tb.GaussianRelease
    needs = {"epsilon": 1} if kind == "laplace" else {"sigma": 5, "delta": 1e-6}
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(said)}$"):
        make(len, 1, **needs, **given)
