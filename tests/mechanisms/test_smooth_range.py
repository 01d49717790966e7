"""Smooth functions near the worst deltas, their residuals in 40 digits, and both ends."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp
from tests.mechanisms.test_bounded_range import delta, of_one, of_two

from tightbudget.mechanisms import bounded_range, smooth_range
from tightbudget.mechanisms.smooth_range import _LineFamily, _Run, _Weight

Function = Callable[[mp.mpf], mp.mpf]


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(40):
        yield


def cubic(y: mp.mpf, at: tuple[mp.mpf, mp.mpf], data: list[float]) -> mp.mpf:
    """The cubic with these values and slopes y F'(y) at both ends of a cell."""
    (low, high), (f0, f1, a0, a1) = at, map(mp.mpf, data)
    r, long = (y - low) / (high - low), high - low
    s0, s1 = a0 / low * long, a1 / high * long
    c2, c3 = 3 * (f1 - f0) - 2 * s0 - s1, s0 + s1 - 2 * (f1 - f0)
    return f0 + r * (s0 + r * (c2 + r * c3))


def function(run: _Run, size: int = 0) -> Function:
    """F from its doubles, in 40 digits; with mirrored values and slopes below 1."""
    f, a = smooth_range._mirrored(run, max(size, run.values.size))
    h, m = mp.mpf(run.span) / run.cells, run.cells

    def value(y: mp.mpf) -> mp.mpf:
        i = min(max(int(mp.floor(mp.log(y) / h)), -m), f.size - m - 2)
        ends = mp.exp(i * h), mp.exp((i + 1) * h)
        return cubic(y, ends, [*f[i + m : i + m + 2].tolist(), *a[i + m : i + m + 2].tolist()])

    return value


def after_one_run(f: Function, y: mp.mpf, span: float, guess: mp.mpf) -> mp.mpf:
    """The largest value at y of lines through (w, F(w)) and (E w, F(E w)): a golden section."""
    e = mp.exp(span)

    def line(w: mp.mpf) -> mp.mpf:
        return f(w) - (y / w - 1) * (f(w) - f(e * w)) / (e - 1)

    low, high = max(y / e, guess * mp.exp(-span / 20)), min(y, guess * mp.exp(span / 20))
    ratio = (mp.sqrt(5) - 1) / 2
    for _ in range(45):
        first, second = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (first, high) if line(first) < line(second) else (low, second)
    return max(line(low), line(guess))


def weight(w: _Weight, runs: int, y: mp.mpf) -> mp.mpf:
    pairs = zip(w.tilts.tolist(), w.logs.tolist(), strict=True)
    return min(mp.exp(runs * mp.mpf(log) - s * mp.log(y)) for s, log in pairs)


@functools.cache
def some_run(span: float, runs: int, of: int, cells: int) -> tuple[_Run, _Weight]:
    """F_runs on a way to F_of, in cells of one width."""
    w = _Weight.of(span, of)
    now = smooth_range._first_run(span, cells, w)
    for _ in range(runs - 1):
        now = smooth_range._one_more(now, w)
    return now, w


RUNS = [(0.1, 1, 40, 512), (0.1, 2, 40, 512), (0.1, 12, 40, 128), (0.8, 5, 30, 256)]


@pytest.mark.parametrize(("span", "runs", "of", "cells"), RUNS)
def test_one_run_more_is_off_by_the_residual(span: float, runs: int, of: int, cells: int) -> None:
    """|T F_j - F_(j+1)| is at most the rise of off, in parts of F + W."""
    before, w = some_run(span, runs, of, cells)
    after = smooth_range._one_more(before, w)
    rise, rng = after.off - before.off, np.random.default_rng(34)
    f, f_new = function(before, before.values.size + 2 * cells), function(after)
    worst = mp.mpf(0)
    last = after.points[-1]
    # kinks of D_1'' are at whole and half spans
    for x in [*rng.uniform(0, last, 5), 0.4 * after.step, 0.5 * span + 0.3 * after.step]:
        y = mp.exp(mp.mpf(x))
        exact = after_one_run(f, y, span, y * mp.exp(-_best_t(before, w, float(x))))
        off = abs(exact - f_new(y)) / (f_new(y) + weight(w, runs + 1, y))
        assert off <= rise
        worst = max(worst, off)
    assert rise <= 1e-5
    assert worst > 0


def _best_t(run: _Run, w: _Weight, x: float) -> float:
    """The t of the line that is the largest one at e^x."""
    n = run.values.size + 2 * run.cells
    lines, _, _ = _lines(run, n)
    at = np.interp(math.exp(x), lines.knots[:-1], lines.turns[:-1])
    return float(math.log(at))


def _lines(run: _Run, n: int) -> tuple[_LineFamily, float, float]:
    m, g, e = run.cells, math.expm1(run.step), math.exp(run.span)
    f, a = smooth_range._mirrored(run, n)
    w = np.exp(run.step * np.arange(-m, n - m))
    return _LineFamily.of(f[:n], f[m:], a[:n], a[m:], w, g, e), g, e


@pytest.mark.parametrize(("span", "runs", "of", "cells"), RUNS)
def test_a_line_is_off_by_its_coefficient(span: float, runs: int, of: int, cells: int) -> None:
    """(1 + g r) (l_w(y) - G(y)) = c r^2 (1 - r)^2, and other lines gain no more than they may."""
    run, _ = some_run(span, runs, of, cells)
    lines, g, e = _lines(run, run.values.size + 2 * cells)
    good, other = lines.others(math.expm1(span))
    last = int(np.argmin(good)) if not good.all() else good.size
    y = np.exp(run.step * np.arange(0, 8.0))
    knots = smooth_range._Knots.of(lines, last, y, math.expm1(span))
    c = knots.degree4(lines, g, e)
    f, k1 = function(run, run.values.size + 2 * cells), mp.expm1(mp.mpf(span))
    h = mp.mpf(span) / cells
    for k in (cells // 3, cells, cells + cells // 2 - 1, last - 40):
        low, high, r = mp.mpf(lines.knots[k]), mp.mpf(lines.knots[k + 1]), mp.mpf("0.4")
        there = low + r * (high - low)
        w = mp.exp((k - cells) * h) * (1 + r * mp.expm1(h))
        p, q = f(w), f(w * mp.exp(mp.mpf(span)))
        line = p - (there / w - 1) * (p - q) / k1
        parts = (getattr(knots.cubics, f"a{i}")[k] for i in range(4))
        ours = sum(mp.mpf(float(a)) * r**i for i, a in enumerate(parts))
        wanted = mp.mpf(float(c[k])) * r**2 * (1 - r) ** 2 / (1 + r * mp.expm1(h))
        paid = smooth_range._PAID * float(lines.read[k])
        assert abs(line - ours - wanted) <= paid
        exact = after_one_run(f, there, span, w)
        assert 0 <= exact - line <= float(other[k]) + paid


@pytest.mark.parametrize("span", [0.01, 0.2, 1.0])
def test_the_first_run_is_known(span: float) -> None:
    w = _Weight.of(span, 50)
    run = smooth_range._first_run(span, 1024, w)
    f, e = function(run), mp.exp(mp.mpf(span))
    for x in np.linspace(1e-3, 0.999, 9) * run.points[-1]:
        y = mp.exp(mp.mpf(x))
        exact = of_one(y, e)
        assert abs(exact - f(y)) <= run.off * (exact + weight(w, 1, y))
    assert run.off < 1e-4
    # what is beyond the last point counts as off
    assert of_one(mp.exp(mp.mpf(run.points[-1])), e) <= run.off * weight(w, 1, e)


@pytest.mark.parametrize(("span", "runs", "of", "cells"), RUNS)
def test_coarser_cells_are_off_by_little(span: float, runs: int, of: int, cells: int) -> None:
    run, w = some_run(span, runs, of, cells)
    coarse = smooth_range._coarser(run, w)
    f, f_new, rise = function(run), function(coarse), coarse.off - run.off
    assert rise >= 0.0
    if coarse.off > run.off:
        worst = mp.mpf(0)
        for i in range(0, coarse.values.size - 1, max(1, coarse.values.size // 40)):
            y = mp.exp((mp.mpf(i) + mp.mpf("0.45")) * mp.mpf(span) / coarse.cells)
            off = abs(f(y) - f_new(y)) / (f(y) + weight(w, runs, y))
            worst = max(worst, off)
            assert off <= rise
        # of the first run, most of it is beyond the last point
        assert worst > 1e-5 * rise or runs == 1


@pytest.mark.parametrize(("span", "runs", "of", "cells"), [(0.1, 3, 40, 16), (0.9, 4, 30, 32)])
def test_cubics_below_one_are_nearly_mirror_images(
    span: float, runs: int, of: int, cells: int
) -> None:
    run, _ = some_run(span, runs, of, 2048)
    other = 2048 // cells
    run = _Run(span, cells, runs, run.values[::other], run.slopes[::other], 0.0)
    f, g, m = function(run), math.expm1(run.step), run.cells
    off = smooth_range._off_of_mirror(run.values[: m + 1], run.slopes[: m + 1], g)
    worst = mp.mpf(0)
    for i in range(m):
        y = mp.exp((mp.mpf(i) + mp.mpf("0.5")) * mp.mpf(span) / m)
        worst = max(worst, abs(f(1 / y) - (1 - 1 / y + f(y) / y)))
    assert worst <= off <= 200 * worst + 1e-11


@pytest.mark.parametrize("span", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("s", [0.1, 3.0, 40.0, 5000.0])
def test_moments_are_rounded_up(span: float, s: float) -> None:
    e = mp.exp(mp.mpf(span))
    found = smooth_range._log_moment(span, s)
    largest = -mp.inf
    u = s / mp.mpf(s + 1) * (e - e ** -mp.mpf(s)) / (1 - e ** -mp.mpf(s))
    for near in (u, u * mp.mpf("0.9999"), (1 + e) / 2):
        value = mp.log(((e - near) * near**s + (near - 1) * (near / e) ** s) / (e - 1))
        largest = max(largest, value)
    assert largest <= found <= largest * (1 + mp.mpf("1e-9"))


@pytest.mark.parametrize("span", [0.05, 0.3, 1.0])
def test_two_runs_are_between_both_ends(span: float) -> None:
    found = smooth_range._all_runs(span, 2, 0)
    above, (p, q) = found.above(), found.lines()
    h = span / found.cells
    for i in (7, p.size // 7, p.size // 2, 3 * p.size // 4):
        exact = of_two(i * h, span)
        assert mp.mpf(p[i]) - mp.mpf(q[i]) <= exact <= mp.mpf(above[i])
        assert above[i] - p[i] + q[i] <= 2e-4 * above[i]
        # the line is nowhere above D
        for j in (i // 2, min(2 * i, p.size - 1)):
            there = mp.mpf(p[i]) - mp.mpf(q[i]) * mp.exp((j - i) * mp.mpf(h))
            assert there <= of_two(j * h, span)


@pytest.mark.parametrize("e", [Fraction(11, 10), Fraction(2)])
@pytest.mark.parametrize("runs", [2, 3])
def test_no_strategy_beats_the_smooth_upper_bound(e: Fraction, runs: int) -> None:
    """All strategies that choose among seven intervals, in exact fractions."""
    us = [1 + (e - 1) * Fraction(i, 6) for i in range(7)]

    @functools.cache
    def best(j: int, y: Fraction) -> Fraction:
        if j == 0:
            return max(Fraction(0), 1 - y)
        return max(
            ((e - u) * best(j - 1, y / u) + (u - 1) * best(j - 1, y * e / u)) / (e - 1) for u in us
        )

    found = smooth_range._all_runs(math.nextafter(math.log(e), 9.0), runs, 0)
    above, h = found.above(), mp.mpf(math.log(e)) / found.cells
    for y in (Fraction(21, 20), (e + 1) / 2, e, (e**runs + e) / 2):
        i = int(mp.floor(mp.log(mp.mpf(y.numerator) / y.denominator) / h)) - 1
        exact = best(runs, y)
        assert Fraction(float(above[max(0, i)])) >= exact
        assert above[max(0, i)] <= float(exact) * 1.05 + 1e-3


CASES = [(0.01, 60), (0.1, 40), (0.45, 45), (1.0, 50)]


@pytest.mark.parametrize(("span", "runs"), CASES)
def test_both_ends_agree_with_chords_and_are_closer(span: float, runs: int) -> None:
    found = smooth_range.smooth(span, runs, 0)
    assert found is not None
    above, (p, q) = found.above(), found.lines()
    chords = (
        bounded_range.above_by_chords(span, runs, 0),
        bounded_range.below_by_tests(span, runs, 0),
    )
    for share in (0.2, 1.0, 2.5, 4.5):
        i = min(p.size - 1, round(share * math.sqrt(runs) * span / 2 * found.cells / span))
        x = i * span / found.cells
        upper, lower = delta(chords[0], x, up=True), delta(chords[1], x, up=False)
        assert mp.mpf(p[i]) - mp.mpf(q[i]) <= upper
        assert lower <= mp.mpf(above[i])
        assert above[i] - p[i] + q[i] <= 0.5 * (upper - lower)
    assert (np.diff(above) <= 0.0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("span", "runs"), CASES)
def test_smooth_ends_nest(span: float, runs: int) -> None:
    widths = []
    for halvings in (0, 3):
        above = bounded_range.above(span, runs, halvings)
        below = bounded_range.below(span, runs, halvings)
        x = 2.0 * math.sqrt(runs) * span / 2
        widths.append((delta(below, x, up=False), delta(above, x, up=True)))
    for (low, high), (closer_low, closer_high) in itertools.pairwise(widths):
        assert max(low, closer_low) <= min(high, closer_high)
        assert closer_high - closer_low <= 0.4 * (high - low)


def test_nothing_is_known_where_conditions_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert smooth_range.smooth(0.1, 29, 0) is None  # chords reach to the largest loss
    assert smooth_range.smooth(1.1, 50, 0) is None
    assert smooth_range.smooth(0.009, 50, 0) is None
    assert smooth_range.smooth(1.0, 10_000, 0) is None  # D is 1 to the last place near y = 1
    # functions whose error is not small are none
    smooth_range.smooth.cache_clear()
    monkeypatch.setattr(smooth_range, "_MOST_OFF", 1e-9)
    assert smooth_range.smooth(0.3, 45, 0) is None
    smooth_range.smooth.cache_clear()


def test_lines_that_bend_or_cross_are_not_good() -> None:
    """Where F has a kink that is not convex, the proof does not go through."""
    run, _ = some_run(0.1, 12, 40, 128)
    values = run.values.copy()
    values[300] *= 1.01
    broken = _Run(run.span, run.cells, run.runs, values, run.slopes, run.off)
    lines, _, _ = _lines(broken, run.values.size)
    good, _ = lines.others(math.expm1(run.span))
    # p at 300, and q one span before
    assert not good[300 + 128 - 2 : 300 + 128 + 2].all()
    assert not good[300 - 2 : 300 + 2].all()


def test_cubics_between_points_are_off_by_second_derivatives() -> None:
    """G and F_(j+1) have the same values and slopes at the points, and nothing else in common."""
    run, w = some_run(0.1, 12, 40, 128)
    lines, g, _ = _lines(run, run.values.size + 2 * run.cells)
    y = np.exp(run.step * np.arange(400.0))
    knots = smooth_range._Knots.of(lines, 1000, y, math.expm1(run.span))
    values, slopes = knots.at_points()
    total = values + w.at(13, run.step * np.arange(400.0))
    off = knots.off(values, slopes, g, total)
    new, c = smooth_range._of_run(values, slopes, g), knots.cubics
    worst = 0.0
    for r in (0.25, 0.5, 0.75):
        there = y[:-1] * (1.0 + g * r)
        k = np.searchsorted(knots.knots, there, side="right") - 1
        s = (there - knots.knots[k]) / knots.long[k]
        theirs = c.a0[k] + s * (c.a1[k] + s * (c.a2[k] + s * c.a3[k]))
        ours = new.a0 + r * (new.a1 + r * (new.a2 + r * new.a3))
        worst = max(worst, float((np.abs(theirs - ours) / total[1:]).max()))
    assert off / 100 <= worst <= off
