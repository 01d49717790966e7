"""Every directed operation against exact rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tightbudget.numerics import rounding as r

finite = st.floats(-1e150, 1e150)
non_zero = finite.filter(lambda x: abs(x) > 1e-150)

OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
}


@pytest.mark.parametrize("name", OPERATIONS)
@given(x=finite, y=non_zero)
def test_both_directions_enclose_the_exact_result(name: str, x: float, y: float) -> None:
    exact = OPERATIONS[name](Fraction(x), Fraction(y))
    up, down = getattr(r, f"{name}_up")(x, y), getattr(r, f"{name}_down")(x, y)
    assert Fraction(down) <= exact <= Fraction(up)
    # and not by more than two steps
    assert up <= math.nextafter(math.nextafter(float(exact), math.inf), math.inf)
    assert down >= math.nextafter(math.nextafter(float(exact), -math.inf), -math.inf)


@given(st.lists(finite, max_size=20))
def test_sums_of_many_terms(terms: list[float]) -> None:
    exact = sum(map(Fraction, terms), Fraction(0))
    assert Fraction(r.add_down(*terms)) <= exact <= Fraction(r.add_up(*terms))


def test_a_sum_of_zeros_is_zero() -> None:
    assert r.add_up(0.0, 0.0) == 0.0 == r.add_down(0.0, 0.0)


@given(st.floats(allow_nan=False))
def test_the_next_double(x: float) -> None:
    if math.isinf(x):
        assert r.next_up(x) == x == r.next_down(x)
    else:
        assert r.next_down(x) < x < r.next_up(x)
        assert math.nextafter(r.next_up(x), -math.inf) == x


@example(-745.2)
@example(709.5)
@example(-2000.0)
@example(1e-300)
@given(st.floats(-800.0, 709.7))
def test_exponentials(x: float) -> None:
    with flint.ctx.workprec(200):
        exact = flint.arb(x).exp()
        assert flint.arb(r.exp_down(x)) <= exact
        assert r.exp_up(x) == math.inf or exact <= flint.arb(r.exp_up(x))
        assert x > 700 or flint.arb(x).expm1() <= flint.arb(r.expm1_up(x))
    if -600 < x < 700:
        assert r.exp_up(x) <= math.exp(x) * (1 + 1e-14)
        assert r.exp_down(x) >= math.exp(x) * (1 - 1e-14)


@example(1.0)
@example(5e-324)
@example(1.7976931348623157e308)
@given(st.floats(1e-308, 1e308))
def test_logarithms(x: float) -> None:
    with flint.ctx.workprec(200):
        exact = flint.arb(x).log()
        assert flint.arb(r.log_down(x)) <= exact <= flint.arb(r.log_up(x))
    assert r.log_up(x) - r.log_down(x) <= 1e-15 * abs(math.log(x)) + 2e-323


def test_an_exponential_that_overflows_is_infinite_upwards() -> None:
    assert r.exp_up(1e6) == math.inf
    assert r.exp_down(1e6) <= 1.8e308
    assert r.exp_down(-1e6) == 0.0
    assert r.exp_up(-1e6) > 0.0


masses = st.lists(st.floats(0, 1e100), min_size=0, max_size=200)


@given(masses)
def test_array_sums_and_norms(values: list[float]) -> None:
    x = np.array(values)
    exact = sum(map(Fraction, values), Fraction(0))
    assert Fraction(r.sum_down(x)) <= exact <= Fraction(r.sum_up(x))
    squares = sum((Fraction(v) ** 2 for v in values), Fraction(0))
    assert Fraction(r.norm_up(x)) ** 2 >= squares * (1 - Fraction(1, 10**30)) or not any(
        v > 1e-150 for v in values
    )


@given(st.lists(st.floats(1e-200, 1e100), min_size=1, max_size=50), st.floats(0, 100))
def test_scaling_moves_by_the_units_that_it_says(values: list[float], ulps: float) -> None:
    x = np.array(values)
    step = Fraction(2) ** -52 * Fraction(ulps)
    for before, up, down in zip(values, r.scale_up(x, ulps), r.scale_down(x, ulps), strict=True):
        assert Fraction(float(up)) >= Fraction(before) * (1 + step)
        assert Fraction(float(down)) <= Fraction(before) * (1 - step)
        assert down >= 0


def test_zeros_stay_zero() -> None:
    zeros = np.zeros(3)
    for array in (r.scale_up(zeros, 5), r.scale_down(zeros, 5)):
        assert not array.any()
    assert r.sum_up(np.zeros(0)) == 0.0
    assert r.norm_up(np.zeros(4)) == 0.0


@given(st.floats(1e-160, 1e-140), st.floats(1e140, 1e150))
def test_norms_of_entries_whose_squares_leave_the_range(small: float, large: float) -> None:
    assume(small > 0)
    assert r.norm_up(np.array([small])) >= small
    assert r.norm_up(np.array([large, small])) >= large


def test_what_is_not_a_number_proves_nothing() -> None:
    assert r.exp_up(math.nan) == r.expm1_up(math.nan) == math.inf
    assert r.exp_down(math.nan) == 0.0


def arguments(low: float, high: float) -> np.ndarray:
    """Some thousand numbers between both, evenly spread in logarithms."""
    spread = np.modf(np.arange(1, 1200) * 0.6180339887498949)[0]
    return np.exp(np.log(low) + spread * (np.log(high) - np.log(low)))


SMALL, WIDE = arguments(1e-12, 1.0), arguments(1e-3, 600.0)
ELEMENTARY: dict[str, tuple[float, np.ndarray, Callable[[flint.arb], flint.arb]]] = {
    "exp": (r.EXP, np.concatenate([-WIDE, WIDE]), lambda x: x.exp()),
    "expm1": (r.EXPM1, np.concatenate([-WIDE, SMALL, -SMALL, WIDE]), lambda x: x.expm1()),
    "log": (
        r.LOG,
        np.concatenate([1.0 + SMALL, WIDE, arguments(1e-300, 1e300)]),
        lambda x: x.log(),
    ),
    "log1p": (r.LOG1P, np.concatenate([SMALL, -0.999 * SMALL, WIDE]), lambda x: x.log1p()),
    "sin": (r.TURN, np.concatenate([SMALL, WIDE, 1e4 * WIDE]), lambda x: x.sin()),
    "cos": (r.TURN, np.concatenate([SMALL, WIDE, 1e4 * WIDE]), lambda x: x.cos()),
}


@pytest.mark.parametrize("name", ELEMENTARY)
def test_an_elementary_function_uses_less_than_half_of_its_grant(name: str) -> None:
    """In NumPy, and where there is one in libm, which has loops of its own."""
    grant, x, exact = ELEMENTARY[name]
    with flint.ctx.workprec(200):
        truths = [exact(flint.arb(v)) for v in x.tolist()]
        for values in (getattr(np, name)(x), [getattr(math, name)(v) for v in x.tolist()]):
            for value, truth in zip(values, truths, strict=True):
                assert 2.0 * abs(flint.arb(float(value)) - truth) <= grant * r.UNIT * abs(truth)


def test_moduli_and_arguments_use_less_than_half_of_their_grant() -> None:
    x, y = arguments(1e-6, 1e6), arguments(1e-3, 1e3)[::-1]
    with flint.ctx.workprec(200):
        for values, exact in (
            (np.hypot(x, y), lambda s: abs(s)),
            (np.abs(x + 1j * y), lambda s: abs(s)),
            (np.arctan2(y, x), lambda s: s.arg()),
        ):
            for a, b, value in zip(x.tolist(), y.tolist(), values.tolist(), strict=True):
                truth = exact(flint.acb(a, b))
                assert 2.0 * abs(flint.arb(value) - truth) <= r.TURN * r.UNIT * abs(truth)


@given(st.floats(-0.999999, 1e300))
def test_logarithms_of_one_and_more(x: float) -> None:
    with flint.ctx.workprec(200):
        exact = flint.arb(x).log1p()
        assert flint.arb(r.log1p_down(x)) <= exact <= flint.arb(r.log1p_up(x))


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("chance", [5e-324, 1e-300, 1e-5, 0.1, 1.0 - 2.0**-53])
def test_one_event_alone_has_its_own_chance(chance: float, up: bool) -> None:
    assert r.any_of([(chance, 1)], up=up) == chance
    assert r.any_of([(0.0, 7), (chance, 1), (0.3, 0)], up=up) == chance
