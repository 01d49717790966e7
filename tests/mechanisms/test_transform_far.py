"""Moment transforms of rarely sampled steps far up the real axis, where all losses are tiny.

There e^(c L) may be small wherever outputs are likely, and huge where hardly any is: beyond the
edge of a bulk, or where R^-c turns on a shifted line.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import acb, arb, ctx
from tests.integrals import Part, Step

from tightbudget.mechanisms import gaussian_transform_bounds as bounds
from tightbudget.mechanisms.gaussian_transform import MixedTransform

TOLERANCE = 1e-16
# m, q, c, and ln of what may be left out
RARE = [
    (1.0 / 18.5, 9.43e-9, 2.4e7, -46.0),
    (1.0 / 2.75, 3.33e-9, 6e6, -44.0),
    (1.0 / 10.8, 0.00136, 2.3e4, -345.0),
    (0.5, 1e-4, 3e3, -60.0),
]


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 160
    yield
    ctx.prec = before


def exact(one: MixedTransform) -> tuple[Step, Part | None]:
    step = Step(Fraction(one.m), Fraction(one.q), one.remove)
    return step, Part(False, one.edge, one.width) if one.part else None


def ends(m: float, q: float, c: float, log_mass: float) -> list[MixedTransform]:
    """What stays of a removed record's losses, up to three times c, and an added record's."""
    bulk, _ = MixedTransform(m, q, True).without_tail(log_mass, 3.0 * c)
    assert bulk.part == "bulk"
    return [bulk, MixedTransform(m, q, False)]


@pytest.mark.parametrize(("m", "q", "c", "log_mass"), RARE)
def test_lines_uppers_and_what_is_beyond_are_as_they_say(
    m: float, q: float, c: float, log_mass: float
) -> None:
    for one in ends(m, q, c, log_mass):
        step, part = exact(one)
        t = np.array([0.0, 0.3 * c, 2.0 * c])
        line = one.line(c, t, TOLERANCE)
        for i, height in enumerate(t.tolist()):
            truth = step.moment(acb(c, height), part)
            log = acb(float(line.log[i].real), float(line.log[i].imag))
            assert abs(truth - log.exp()) <= abs(log.exp()) * arb(float(line.error[i])).expm1()
        # as many runs as make a sum of losses that is told from none
        moved = abs(float(line.log[0].real)) + 1e-9
        assert line.error[0] <= 1e-6 * moved
        log_m = step.moment(acb(c), part).real.log()
        upper = arb(one.upper(c))
        assert upper >= log_m
        assert upper - log_m <= arb(1e-6) * (moved + 1e-6)
        # the sides of a line
        assert one.upper(2.5 * c) < math.inf
        _, shifts = one.shifts(c, t[-1:])
        for shift in (float(shifts[0]), 0.3 * float(shifts[0])):
            above = arb(one.beyond(c, float(t[-1]), shift)).exp()
            assert all(
                abs(step.moment(acb(c, factor * float(t[-1])), part)) <= above
                for factor in (1.0, 1.5)
            )


@pytest.mark.parametrize("t", [0.0, 0.7, 3.0])  # of c
@pytest.mark.parametrize(("m", "q", "c", "log_mass"), RARE)
def test_cells_beyond_a_point_are_above_all_that_is_there(
    m: float, q: float, c: float, log_mass: float, t: float
) -> None:
    for one in ends(m, q, c, log_mass):
        power = one.power(c)
        start = max(one.farthest_peak(power), 0.0) + 7.0
        widths = np.array([0.01, 0.2, 0.7]) * one.strip
        after = bounds._after(one, power, start, t * c, widths)
        assert after.rate > 0
        # densely at first, and then farther and farther
        x = start + np.concatenate([[0.0], np.geomspace(1e-8, 1e5, 100_000)])
        turned = one.rotated(x, widths)
        modulus = 0.5 * np.log(turned.real**2 + turned.side**2) + turned.scale
        log = power * (modulus - one.about_log_r(x[:1])) - 0.5 * (x - start) * (x + start)
        log = log + t * c * np.arctan2(turned.side, turned.real)
        if one.part:
            u = (x - one.edge) / one.width
            log = log - 0.5 * (u - u[0]) * (u + u[0])
        most = np.max(log, axis=1, keepdims=True)
        each = np.exp(np.minimum(log[:, 1:], log[:, :-1]) - most)
        integral = np.log(each @ np.diff(x)) + most[:, 0]
        assert np.all(integral <= after.log_integral() + 1e-6)
        h = 1.0 / 64.0
        nodes = start + h * np.arange(1.0, 200_000.0)
        rotated = one.rotated(nodes, widths[:1])
        sizes = 0.5 * np.log(rotated.real**2 + rotated.side**2) + rotated.scale
        sizes = power * (sizes - one.about_log_r(x[:1])) - 0.5 * (nodes - start) * (nodes + start)
        sizes = sizes + t * c * np.arctan2(rotated.side, rotated.real)
        if one.part:
            v = (nodes - one.edge) / one.width
            sizes = sizes - 0.5 * (v - u[0]) * (v + u[0])
        assert np.logaddexp.reduce(sizes[0]) <= after.log_nodes(h) + 1e-6


def test_a_modulus_that_is_hardly_above_1_has_a_lower_bound() -> None:
    """Sums of logarithms that nearly cancel: at c = 1e7 each 1e-16 of them counts."""
    for m, q, _, _ in RARE:
        one, x = MixedTransform(m, q, False), np.array([-9.0, -1.0, 0.3, 2.0, 9.0, 60.0])
        widths = np.array([0.1, 1.0]) * min(one.strip, 0.5 * math.pi / m)
        least = bounds._least_log_r(one, one.about_log_r(x), one.rotated(x, widths), widths)
        for i, width in enumerate(widths.tolist()):
            for j, (low, high) in enumerate(itertools.pairwise(x.tolist())):
                step, _ = exact(one)
                found = [step.log_r(acb(at, width)).real for at in (low, 0.5 * (low + high), high)]
                assert all(arb(float(least[i, j])) <= truth for truth in found)
                off = 64.0 * 2.0**-53 * (1.0 + max(0.0, m * low))
                assert found[0] - arb(float(least[i, j])) <= arb(off)
