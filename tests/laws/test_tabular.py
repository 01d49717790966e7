"""Curves and comparisons as tables: exact doubles in a frame, outward decimals in LaTeX."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.accounting.compare.comparison import Row
from tightbudget.tabular import escaped

RUN = tb.Gaussian(2.0).subsampled(0.01) * 100
APART = tb.Gaussian(1.0).shuffled(10) * 3
SHOWN: dict[str, Callable[[], Any]] = {
    "curve of epsilon": lambda: RUN.curve(deltas=[1e-2, 1e-5]),
    "curve of delta": lambda: RUN.curve(epsilons=[0.0, 0.5, 3.0]),
    "curve, apart": lambda: APART.curve(deltas=[1e-5]),
    "curve without points": lambda: RUN.curve(deltas=[]),
    "comparison of epsilons": lambda: tb.compare(RUN, delta=1e-5),
    "comparison of deltas": lambda: tb.compare(RUN, epsilon=0.5),
}
NUMBERS = st.floats(0.0, allow_nan=False)


def body(text: str) -> list[list[str]]:
    """The entries of each row below the head."""
    rows = text.split("\\midrule\n")[1].split("\\bottomrule")[0].splitlines()
    return [row.removesuffix(r" \\").split(" & ") for row in rows]


def number(text: str) -> Decimal:
    """The number that LaTeX prints."""
    if r"\infty" in text:
        return Decimal("inf")
    power = re.fullmatch(r"(?:(?P<mantissa>[\d.]+) \\times )?10\^\{(?P<exponent>-?\d+)\}", text)
    if power is None:
        return Decimal(text)
    return Decimal(f"{power['mantissa'] or 1}e{power['exponent']}")


# --------------------------------------------------------------------------- numbers


@given(st.tuples(NUMBERS, NUMBERS), st.integers(1, 17))
def test_what_is_written_contains_the_bounds(ends: tuple[float, float], digits: int) -> None:
    low, high = sorted(ends)
    curve = tb.Curve.of_epsilons([1e-5], [tb.Bounds(low, high)])
    (_, least, most), *_ = body(curve.to_latex(digits))
    assert number(least.strip("$")) <= Decimal(low)
    assert number(most.strip("$")) >= Decimal(high)
    rows = (Row("ours", "proved", tb.Bounds(low, high)),)
    ((_, answer, *_),) = body(tb.Comparison(RUN, "delta", 1e-5, rows).to_latex(digits))
    written = answer.strip("$").removeprefix(r"\leq ")
    if low == 0.0 < high:
        assert answer.startswith(r"$\leq ")
        assert number(written) >= Decimal(high)
    else:
        least, most = written.strip("[]").split(", ")
        assert number(least) <= Decimal(low)
        assert number(most) >= Decimal(high)


@given(st.floats(1e-300, 1.0), st.integers(4, 17))
def test_no_more_is_given_away_than_a_unit_of_the_last_digit(x: float, digits: int) -> None:
    (_, least, most), *_ = body(tb.Curve.of_epsilons([1e-5], [tb.Bounds(x, x)]).to_latex(digits))
    width = number(most.strip("$")) - number(least.strip("$"))
    assert width <= Decimal(10) ** (Decimal(x).adjusted() - digits + 1)


@given(st.floats(0.0, 1.0))
def test_what_was_asked_is_written_with_the_digits_that_python_prints(x: float) -> None:
    (at, *_), *_ = body(tb.Curve.of_epsilons([x], [tb.Bounds(0.0, 1.0)]).to_latex())
    assert float(number(at.strip("$"))) == x


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize(
    ("digits", "message"),
    [
        (0, "digits must be an integer >= 1, got 0"),
        (2.5, "digits must be an integer >= 1, got 2.5"),
        (18, "digits must be at most 17, got 18"),
    ],
)
def test_digits_are_refused_by_name(name: str, digits: Any, message: str) -> None:
    with pytest.raises(tb.ParameterError, match=f"^{re.escape(message)}$"):
        SHOWN[name]().to_latex(digits)


# ----------------------------------------------------------------------------- LaTeX


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SHOWN)
def test_each_row_has_the_columns_of_the_head(name: str) -> None:
    value = SHOWN[name]()
    text = value.to_latex()
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert columns is not None
    head = text.split("\\toprule\n")[1].split("\n")[0].removesuffix(r" \\").split(" & ")
    rows = body(text)
    assert len(rows) == len(value)
    assert {len(columns[1]), len(head), *map(len, rows)} == {len(head)}
    assert all(entry.count("$") % 2 == 0 for row in (head, *rows) for entry in row)


def test_a_curve_as_latex() -> None:
    curve = tb.Curve.of_epsilons([1e-5, 3e-10], [tb.Bounds(0.25, 1.0), tb.Bounds(2.5, math.inf)])
    assert curve.to_latex(3) == (
        "% \\usepackage{booktabs}; lower bounds are rounded down, upper bounds up\n"
        "\\begin{tabular}{rrr}\n"
        "\\toprule\n"
        "$\\delta$ & $\\varepsilon$ at least & $\\varepsilon$ at most \\\\\n"
        "\\midrule\n"
        "$10^{-5}$ & $0.250$ & $1.00$ \\\\\n"
        "$3 \\times 10^{-10}$ & $2.50$ & $\\infty$ \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}"
    )


def test_a_comparison_as_latex() -> None:
    rows = (
        Row("ours", "both ends", tb.Bounds(0.25, 0.5, apart="a_b")),
        Row("theirs", "Ada & Bob", tb.Bounds(0.0, 2.0**-33)),
        Row("a guess", "100 %", tb.Estimate(0.125, "guessed")),
        Row("none", "somebody", None, "epsilon <= 1"),
    )
    text = tb.Comparison(RUN, "delta", 1e-5, rows).to_latex(3)
    assert r"bound & $\varepsilon$ at $\delta = 10^{-5}$ & proved & source \\" in text
    assert [" & ".join(row) for row in body(text)] == [
        r"ours & $[0.250, 0.500]$ (apart: a\_b) & yes & both ends",
        r"theirs & $\leq 1.17 \times 10^{-10}$ & yes & Ada \& Bob",
        r"a guess & $\approx 0.125$ & no & 100 \%",
        r"none & - & - & not applicable: epsilon \textless{}= 1",
    ]


def test_points_that_are_apart_say_so() -> None:
    text = SHOWN["curve, apart"]().to_latex()
    assert "{rrrl}" in text
    assert " & shuffled batches \\\\\n" in text
    assert "apart" not in SHOWN["curve of delta"]().to_latex()


@given(st.text())
def test_a_text_is_escaped_once(text: str) -> None:
    once = escaped(text)
    assert escaped(once) == once
    bare = re.sub(r"\\[&%$#_{}]|\\text\w+\{\}", "", once)
    assert not set(bare) & set(r"\&%$#_{}~^<>|")


# ----------------------------------------------------------------------------- frames


@pytest.mark.parametrize("name", [name for name in SHOWN if name.startswith("curve")])
def test_a_frame_of_a_curve_has_its_doubles(name: str) -> None:
    curve = SHOWN[name]()
    frame = curve.frame()
    y = curve.answered
    assert list(frame.columns) == [curve.given, f"{y}_lower", f"{y}_upper", "apart"]
    assert frame[curve.given].tolist() == curve.x.tolist()
    assert frame[f"{y}_lower"].tolist() == curve.lower.tolist()
    assert frame[f"{y}_upper"].tolist() == curve.upper.tolist()
    assert tuple(frame["apart"]) == curve.apart


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SHOWN if name.startswith("comparison")])
def test_a_frame_of_a_comparison_tells_bounds_from_estimates(name: str) -> None:
    found = SHOWN[name]()
    frame = found.frame()
    y = found.answered
    ends = [f"{y}_lower", f"{y}_upper", f"{y}_estimate"]
    assert list(frame.columns) == ["name", *ends, "proved", "source", "reason", "apart"]
    kinds = set()
    for row, (_, line) in zip(found, frame.iterrows(), strict=True):
        kinds.add(type(row.answer))
        assert (line["name"], line["source"], line["reason"]) == (
            row.name,
            row.source,
            row.reason or "",
        )
        assert bool(line["proved"]) is row.proved
        has = [not math.isnan(line[end]) for end in ends]
        if isinstance(row.answer, tb.Bounds):
            assert has == [True, True, False]
            assert (line[ends[0]], line[ends[1]]) == tuple(row.answer)
        elif isinstance(row.answer, tb.Estimate):
            assert has == [False, False, True]
            assert line[ends[2]] == row.answer.value
        else:
            assert has == [False, False, False]
    assert kinds == {tb.Bounds, tb.Estimate, type(None)}


@pytest.mark.parametrize("name", ["curve of delta", "comparison of epsilons"])
def test_without_pandas_the_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = SHOWN[name]()
    monkeypatch.setitem(sys.modules, "pandas", None)
    said = re.escape("a frame needs pandas: pip install 'tightbudget[data]'")
    with pytest.raises(tb.errors.ExtraError, match=f"^{said}$"):
        value.frame()
    assert value.to_latex()
