"""The smooth end of a schedule's losses against Arb balls."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from flint import acb, arb, ctx

from tightbudget.mechanisms.smooth_end import SmoothEnd
from tightbudget.numerics.rounding import FloatArray

ENDS = (SmoothEnd(-14.5, 2.0**-5), SmoothEnd(-3.25, 2.0**-9), SmoothEnd(1.5, 2.0**-3))


@pytest.fixture(autouse=True)
def _bits() -> Iterator[None]:
    before, ctx.prec = ctx.prec, 200
    yield
    ctx.prec = before


def weight(end: SmoothEnd, y: float, shift: float = 0.0) -> acb:
    u = ((acb(y, shift) - end.edge).exp() - 1) / end.width
    return (u / arb(2).sqrt()).erfc() / 2


def near_the_edge(end: SmoothEnd, step: float) -> FloatArray:
    """Places from 9 widths before the edge to 9 widths behind it."""
    first, last = max(-9.0, -0.9 / end.width), 9.0
    low, high = math.log1p(first * end.width), math.log1p(last * end.width)
    h = 2.0 ** round(math.log2(step * end.width))
    nodes = np.arange(math.floor((end.edge + low) / h), math.ceil((end.edge + high) / h))
    return np.asarray(h * nodes)


@pytest.mark.parametrize("end", ENDS)
def test_the_share_is_within_its_error(end: SmoothEnd) -> None:
    y = near_the_edge(end, 0.3)
    log, error = end.log_share(y)
    for i in range(y.size):
        assert abs(weight(end, y[i]).real.log() - arb(log[i])) <= arb(error[i])
    assert float(np.max(error)) < 1e-10


@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("end", ENDS)
def test_cells_bound_the_modulus_on_a_moved_line(end: SmoothEnd, shift: float) -> None:
    y, a = near_the_edge(end, 0.5), shift * end.width
    cells, spilled = end.log_cells(y, a), end.log_spilled(y, a)
    for i in range(y.size - 1):
        for share in (0.0, 0.4, 1.0):
            at = (1.0 - share) * y[i] + share * y[i + 1]
            modulus = abs(weight(end, at, a))
            assert modulus.log() <= arb(cells[i])
            assert modulus - weight(end, at).real <= arb(spilled[i]).exp()
    for at in (y[0], y[0] - 1.0, y[0] - 30.0):
        most = arb(end.growth_before(float(y[0]), a))
        assert abs(weight(end, at, a)) <= most * weight(end, at).real


@pytest.mark.parametrize(
    ("power", "t", "shift"), [(1.0, 0.0, 0.0), (30.0, 7.0, 0.1), (4e4, 9e4, 0.02)]
)
@pytest.mark.parametrize("end", ENDS)
def test_what_is_beyond_the_nodes_is_below_its_bound(
    end: SmoothEnd, power: float, t: float, shift: float
) -> None:
    """Sums over nodes, and an integral from above and below: w |S^s| falls there."""
    power, t = power * math.exp(max(0.0, -end.edge - 8.0)), t * math.exp(max(0.0, -end.edge - 8.0))
    start = end.edge + math.log1p(9.0 * end.width)
    after = end.after(power, start, t, shift)
    assert after.rate > 0.0
    first = weight(end, start).real * (1 + arb(start).exp()) ** power

    def value(y: float) -> arb:
        s = 1 + acb(y, shift).exp()
        size = abs(s).log() * power + (s.arg() * t)
        return abs(weight(end, y, shift)) * size.exp() / first

    h = end.width / 8.0
    values = [value(start + i * h) for i in range(1, 400)]
    total = sum(values[1:], start=values[0])
    assert total * h <= arb(float(after.log_integral()[0])).exp()
    if shift == 0.0 and t == 0.0:
        assert total <= arb(after.log_nodes(h)).exp()


def test_a_wide_shift_says_nothing_beyond_the_nodes() -> None:
    end = ENDS[0]
    assert not end.after(2.0, end.edge, 0.0, 0.5).rate > 0.0


@pytest.mark.parametrize("log_mass", [-1.0, -40.0, -500.0])
@pytest.mark.parametrize("end", ENDS)
def test_steps_are_above_what_is_gone(end: SmoothEnd, log_mass: float) -> None:
    places, steps = end.steps(log_mass)
    for y in np.append(np.linspace(end.edge - 3.0, end.edge + 3.0, 301), places[2:]):
        u = ((arb(y) - end.edge).exp() - 1) / end.width
        gone = (-u / arb(2).sqrt()).erfc() / 2
        assert gone <= arb(float(np.sum(steps[places < y])) * (1.0 + 1e-15))
    assert places[0] == -math.inf
    assert float(np.sum(steps)) == pytest.approx(1.0)
