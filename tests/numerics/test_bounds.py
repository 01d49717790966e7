"""Intervals: arithmetic outwards, printed digits that are certified, and no mixing of types."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.numerics.bounds import Bounds, Estimate

numbers = st.floats(-1e150, 1e150, allow_subnormal=False)


@st.composite
def intervals(draw: st.DrawFn, least: float = -1e150) -> Bounds:
    values = st.floats(least, 1e150, allow_subnormal=False)
    a, b = draw(values), draw(values)
    return Bounds(min(a, b), max(a, b))


def ends(bounds: Bounds) -> tuple[Fraction, Fraction]:
    return Fraction(bounds.lower), Fraction(bounds.upper)


@given(intervals(), intervals())
def test_sums_and_differences_round_outwards(x: Bounds, y: Bounds) -> None:
    (a, b), (c, d) = ends(x), ends(y)
    low, high = ends(x + y)
    assert low <= a + c
    assert b + d <= high
    low, high = ends(x - y)
    assert low <= a - d
    assert b - c <= high


@given(intervals(), numbers)
def test_a_number_is_an_interval_of_no_width(x: Bounds, y: float) -> None:
    assert x + y == x + Bounds(y, y) == y + x
    assert x - y == x - Bounds(y, y)


@given(intervals(), st.floats(0, 1e150, allow_subnormal=False))
def test_products_round_outwards(x: Bounds, factor: float) -> None:
    low, high = ends(x * factor)
    assert low <= Fraction(x.lower) * Fraction(factor)
    assert Fraction(x.upper) * Fraction(factor) <= high
    assert factor * x == x * factor


@given(intervals())
def test_the_width_is_not_below_the_exact_one(x: Bounds) -> None:
    assert Fraction(x.width) >= Fraction(x.upper) - Fraction(x.lower)
    assert (x.width == 0) == (x.lower == x.upper)


@given(intervals(0.0))
def test_the_relative_gap_is_what_rtol_limits(x: Bounds) -> None:
    assume(x.upper > 0)
    exact = (Fraction(x.upper) - Fraction(x.lower)) / Fraction(x.upper)
    assert float(exact) <= x.relative_gap * (1 + 1e-12) + 1e-15
    assert x.relative_gap <= float(exact) * (1 + 1e-12) + 1e-15


def test_an_infinite_upper_end() -> None:
    unknown = Bounds(1.0, math.inf)
    assert unknown.width == math.inf
    assert unknown.relative_gap == math.inf
    assert 1e308 in unknown
    assert (unknown + 1.0).upper == math.inf
    assert Bounds(math.inf, math.inf).relative_gap == 0.0
    assert Bounds(math.inf, math.inf).width == 0.0


@pytest.mark.parametrize(
    ("lower", "upper"), [(2.0, 1.0), (math.nan, 1.0), (0.0, math.nan), (math.inf, 0.0)]
)
def test_ends_in_the_wrong_order_are_refused(lower: float, upper: float) -> None:
    with pytest.raises(tb.ParameterError, match=r"lower must be <= upper, got lower="):
        Bounds(lower, upper)


@pytest.mark.parametrize("factor", [-1.0, math.nan, math.inf, -0.5])
def test_factors_are_finite_and_not_negative(factor: float) -> None:
    with pytest.raises(tb.ParameterError, match=r"factor must be a finite number >= 0, got"):
        Bounds(1.0, 2.0) * factor


@given(intervals(), intervals())
def test_membership_and_overlap(x: Bounds, y: Bounds) -> None:
    assert x.lower in x
    assert x.upper in x
    assert x.overlaps(y) == y.overlaps(x) == (max(x.lower, y.lower) <= min(x.upper, y.upper))


def printed(text: str) -> tuple[Fraction, Fraction]:
    found = re.fullmatch(r"\[(\S+), (\S+)\]", text)
    assert found, text
    return Fraction(found[1]), Fraction(found[2])


certified = st.one_of(
    intervals(0.0),
    intervals(),
    st.builds(
        lambda m, e, w: Bounds(m * 10.0**e, m * 10.0**e * (1 + 10.0**w)),
        st.floats(0.1, 10.0),
        st.integers(-300, 300),
        st.floats(-17.0, 3.0),
    ).filter(lambda b: b.upper < math.inf),
)


@given(certified)
def test_what_is_printed_contains_what_is_certified(x: Bounds) -> None:
    low, high = printed(str(x))
    if x.lower == x.upper:  # shown so that it reads back as the same double
        assert float(low) == x.lower == float(high)
    else:
        assert low <= Fraction(x.lower)
        assert Fraction(x.upper) <= high


@given(certified)
def test_no_digit_is_printed_that_the_gap_does_not_support(x: Bounds) -> None:
    assume(x.lower < x.upper)
    low, high = printed(str(x))
    gap = Fraction(x.upper) - Fraction(x.lower)
    largest = max(abs(Fraction(x.lower)), abs(Fraction(x.upper)))
    # little is given away: a unit of the last digit is at most the gap, and each end moves by less
    # than a unit; of ends that are far apart four digits are shown
    assert high - low <= 3 * gap + Fraction(1, 10**15) * largest
    for end, text in zip((x.lower, x.upper), str(x)[1:-1].split(", "), strict=True):
        digits = re.sub(r"e.*|[-.]", "", text).strip("0") if end else ""
        assert len(digits) <= 4 or Fraction(10) ** (len(digits) - 3) <= largest / gap


@given(certified)
def test_four_digits_of_each_end_are_printed_at_least(x: Bounds) -> None:
    """Rounding to four digits, outwards, moves an end by less than a thousandth of itself."""
    assume(x.lower < x.upper)
    for end, shown in zip((x.lower, x.upper), printed(str(x)), strict=True):
        assert abs(Fraction(shown) - Fraction(end)) <= abs(Fraction(end)) / 1000


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (Bounds(1.23451, 1.23462), "[1.23450, 1.23463]"),
        (Bounds(1.21e-6, 1.2299e-6), "[1.210e-06, 1.230e-06]"),
        (Bounds(2.81234, 4.36789), "[2.812, 4.368]"),
        (Bounds(0.0, 1.23456e-9), "[0.0, 1.235e-09]"),
        (Bounds(-1234.56, 65432.1), "[-1235, 65440.0]"),
        (Bounds(0.0, 0.0), "[0.0, 0.0]"),
        (Bounds(2.0, math.inf), "[2.00000, inf]"),
        (Bounds(0.5, 0.5), "[0.5, 0.5]"),
    ],
)
def test_how_bounds_look(bounds: Bounds, text: str) -> None:
    assert str(bounds) == text


def test_bounds_are_values() -> None:
    x = Bounds(1.0, 2.0)
    assert x == Bounds(1.0, 2.0)
    assert hash(x) == hash(Bounds(1.0, 2.0))
    assert x.to_dict() == {"lower": 1.0, "upper": 2.0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        x.lower = 0.0  # type: ignore[misc]


def test_an_estimate_is_of_another_type() -> None:
    guess: Any = Estimate(1.5, "a guess")
    assert str(guess) == "about 1.5 (a guess, not certified)"
    assert not isinstance(guess, Bounds)
    assert not hasattr(guess, "upper")
    for mixed in (
        lambda: Bounds(0.0, 1.0) + guess,
        lambda: Bounds(0.0, 1.0) - guess,
        lambda: Bounds(0.0, 1.0) * guess,
        lambda: guess + Bounds(0.0, 1.0),
        lambda: float(guess),
        lambda: Bounds(0.0, guess),
    ):
        with pytest.raises(TypeError):
            mixed()


# --------------------------------------------------------------------- as people use them

formats = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "+", "-", " "]),
    st.sampled_from(["", ","]),
    st.one_of(st.just(""), st.integers(0, 30).map(".{}".format)),
    st.sampled_from("eEfFgG%"),
)


def written(text: str) -> Fraction:
    percent = text.endswith("%")
    return Fraction(text.rstrip("%").replace(",", "").strip()) / (100 if percent else 1)


@given(certified, formats)
def test_a_format_rounds_outwards_by_less_than_a_unit(x: Bounds, spec: str) -> None:
    texts = re.fullmatch(r"\[(.+?), (.+)\]", format(x, spec.replace(",", "")))
    assert texts
    assert format(x, spec).replace(",", "") == texts[0].replace(",", "")
    for end, text, outwards in zip(x, texts.groups(), (-1, 1), strict=True):
        assert outwards * (written(text) - Fraction(end)) >= 0
        digits, _, exponent = text.rstrip("%").lower().partition("e")
        place = int(exponent or 0) - len(digits.partition(".")[2])
        if spec[-1] in "gG":  # which drops zeros at the end
            asked = int((re.findall(r"\d+", spec) or [6])[0])
            place = Decimal(end).adjusted() + 1 - max(1, asked)
        unit = Fraction(10) ** place / (100 if spec.endswith("%") else 1)
        assert abs(written(text) - Fraction(end)) < unit


@pytest.mark.parametrize(
    ("bounds", "spec", "text"),
    [
        (Bounds(1.8282366665162, 1.8282366665169), ".3f", "[1.828, 1.829]"),
        (Bounds(1.8282366665162, 1.8282366665169), ".2e", "[1.82e+00, 1.83e+00]"),
        (Bounds(1.21e-6, 1.2299e-6), ".3g", "[1.21e-06, 1.23e-06]"),
        (Bounds(1.21e-6, 1.2299e-6), ".1G", "[1E-06, 2E-06]"),
        (Bounds(0.0, 0.0), "G", "[0, 0]"),
        (Bounds(0.0, 0.999999), ".2g", "[0, 1]"),
        (Bounds(9.999, 9.9991), ".1e", "[9.9e+00, 1.0e+01]"),
        (Bounds(0.02, 0.0301), ".0%", "[2%, 4%]"),
        (Bounds(-1.25, 1234.5), "+,.1f", "[-1.3, +1,234.5]"),
        (Bounds(2.0, math.inf), ".1f", "[2.0, inf]"),
        (Bounds(0.1, 0.1), ".20f", "[0.10000000000000000555, 0.10000000000000000556]"),
        (Bounds(1.0, 2.0), "", "[1.000, 2.000]"),
        (Bounds(1.0, 2.0), ">18", "    [1.000, 2.000]"),
        (Bounds(1.0, 2.0), "*^14.1f", "**[1.0, 2.0]**"),
    ],
)
def test_how_formatted_bounds_look(bounds: Bounds, spec: str, text: str) -> None:
    assert f"{bounds:{spec}}" == text


@pytest.mark.parametrize("spec", ["s", "08.3f", "=8.3f", ".3n", "_.3f", "#.3f", "nonsense", ".f"])
def test_formats_that_are_none(spec: str) -> None:
    must = "format must be a format for floats, such as .3f or >24.6g, got"
    with pytest.raises(tb.ParameterError, match=re.escape(f"{must} {spec!r}")):
        format(Bounds(1.0, 2.0), spec)


@given(certified)
def test_they_are_shown_as_they_are_printed(x: Bounds) -> None:
    assert repr(x) == str(x) == f"{x}" == f"{x!r}"
    lower, upper = x
    assert (lower, upper) == (x.lower, x.upper)


SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
UNCERTAIN = (
    r"^\[\S+, \S+\] {} .+ is not certain, since numbers in these bounds disagree: ask for a "
    r"smaller rtol, or compare \.upper \(what is certified to be enough\) or \.lower$"
)


@given(intervals(), st.one_of(intervals(), numbers), st.sampled_from(sorted(SIGNS)))
def test_a_comparison_is_that_of_every_number_inside(
    x: Bounds, other: Bounds | float, sign: str
) -> None:
    ours, theirs = ends(x), ends(other if isinstance(other, Bounds) else Bounds(other, other))
    # between its ends a comparison changes once, so that the ends know all numbers between
    answers = {SIGNS[sign](a, b) for a in ours for b in theirs}
    if len(answers) == 1:
        assert {SIGNS[sign](x, other)} == answers
    else:
        with pytest.raises(tb.ParameterError, match=UNCERTAIN.format(re.escape(sign))):
            SIGNS[sign](x, other)


@given(intervals(), st.floats(0, 1), st.sampled_from(sorted(SIGNS)))
def test_a_number_inside_is_equal_or_refused(x: Bounds, share: float, sign: str) -> None:
    inside = min(max(x.lower + share * (x.upper - x.lower), x.lower), x.upper)
    if x.lower < inside < x.upper:
        with pytest.raises(tb.ParameterError, match="is not certain"):
            SIGNS[sign](x, inside)


@pytest.mark.parametrize(
    "number",
    [2, 2.0, Fraction(2), Decimal(2), np.float64(2), np.float32(2), np.int8(2)],
    ids=lambda x: type(x).__name__,
)
def test_numbers_of_all_types_compare_on_both_sides(number: Any) -> None:
    below, above, around = Bounds(1.0, 2.0), Bounds(2.0, 3.0), Bounds(1.0, 3.0)
    assert below <= number
    assert number >= below
    assert above >= number
    assert number <= above
    assert not below > number
    assert not number < below
    for asks in (
        lambda: around < number,
        lambda: number < around,
        lambda: below < number,
        lambda: above > number,
    ):
        with pytest.raises(tb.ParameterError, match="is not certain"):
            asks()


def test_infinity_compares_and_nan_does_not() -> None:
    assert Bounds(1.0, math.inf) <= math.inf
    assert Bounds(1.0, math.inf) >= 1.0
    for asks in (lambda: Bounds(1.0, 2.0) <= math.nan, lambda: math.nan > Bounds(1.0, 2.0)):
        with pytest.raises(tb.ParameterError, match="compared with bounds must be a number, got n"):
            asks()


@pytest.mark.parametrize("other", ["2", None, True, 1j, [1.0], Estimate(1.0, "a guess")], ids=repr)
def test_what_is_no_number_does_not_compare(other: Any) -> None:
    for sign in SIGNS.values():
        with pytest.raises(TypeError, match="not supported between instances of 'Bounds'"):
            sign(Bounds(1.0, 2.0), other)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (float, r"write float(bounds.upper), which is certified to be at least the exact value"),
        (int, r"write math.ceil(bounds.upper), which is certified to be at least the exact value"),
        (math.sqrt, r"write float(bounds.upper)"),
        (np.float64, r"write float(bounds.upper)"),
    ],
)
def test_two_bounds_are_not_one_number(ask: Callable[[Any], object], said: str) -> None:
    with pytest.raises(tb.ParameterError, match=re.escape(said)):
        ask(Bounds(1.0, 2.0))


def test_bounds_are_not_multiplied() -> None:
    two: Any = Bounds(1.0, 2.0)
    with pytest.raises(TypeError, match="unsupported operand type"):
        two * two


def test_a_question_takes_no_bounds() -> None:
    must = r"^epsilon must be .* >= 0, got \[1\.000, 2\.000\]$"
    with pytest.raises(tb.ParameterError, match=must):
        (tb.Gaussian(1.0) * 1).delta(Bounds(1.0, 2.0))  # type: ignore[arg-type]


def test_bounds_of_one_number_meet() -> None:
    assert Bounds(1.0, 3.0).meet(Bounds(2.0, 5.0)) == Bounds(2.0, 3.0)
    assert Bounds(1.0, math.inf).meet(Bounds(0.0, 5.0)) == Bounds(1.0, 5.0)
    assert Bounds(1.0, 2.0, apart="a").meet(Bounds(1.0, 2.0, apart="b")).apart == "a; b"
    with pytest.raises(tb.ParameterError, match="lower must be <= upper"):
        Bounds(1.0, 2.0).meet(Bounds(3.0, 4.0))


def test_the_worst_of_several_numbers_is_above_each() -> None:
    several = [Bounds(1.0, 5.0), Bounds(2.0, 3.0, apart="a"), Bounds(0.0, 4.0, apart="a")]
    assert Bounds.worst(iter(several)) == Bounds(2.0, 5.0)
    assert Bounds.worst(several).apart == "a"


@pytest.mark.parametrize(
    ("target", "decided"), [(None, False), (0.5, True), (1.0, False), (1.5, False), (2.0, True)]
)
def test_bounds_decide_on_which_side_of_a_target_a_number_is(
    target: float | None, decided: bool
) -> None:
    assert Bounds(1.0, 2.0).decides(target) is decided
