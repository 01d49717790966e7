"""Smoothed lines against the buckets, against unsmoothed lines, and where they have to give up."""

from __future__ import annotations

import pytest
from flint import acb, arb, ctx

import tightbudget as tb
from tightbudget.engine.cache import Cache
from tightbudget.engine.engine import Engine
from tightbudget.engine.question import DeltaAt, EpsilonAt
from tightbudget.engine.saddle_point import contour, smoothed
from tightbudget.engine.saddle_point.reading import EpsilonOnLines
from tightbudget.pairs.direction import Direction


def losses(*parts: tuple[float, float, int]) -> Engine:
    """An engine for (sigma, q, runs)."""
    steps = tb.compose([tb.Gaussian(sigma).subsampled(q) * k for sigma, q, k in parts])
    return Engine.of({direction: steps.pairs(direction) for direction in Direction})


# few rare losses: sigma, q, runs, delta, and epsilon's bounds by buckets at a gap of 1e-3 or less
RARE = [
    (0.8, 1e-4, 10**4, 1e-10, (0.365066, 0.365102)),
    (0.3, 1e-6, 30_000, 1e-10, (10.4990, 10.4997)),
    (5.0, 1e-6, 10**7, 1e-10, (0.0030641, 0.0030646)),
    (0.8, 1e-4, 10**4, 1e-5, (0.0621711, 0.0621765)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "q", "runs", "delta", "known"), RARE)
def test_few_and_rare_losses_agree_with_the_buckets(
    sigma: float, q: float, runs: int, delta: float, known: tuple[float, float]
) -> None:
    engine = losses((sigma, q, runs)).saddle_points[0]
    found = engine.smoothed(EpsilonAt(delta), 1e-4)
    assert found is not None
    assert found.overlaps(tb.Bounds(*known))
    assert found.relative_gap <= 1e-4
    at = engine.smoothed(DeltaAt(found.upper), 1e-3)
    assert at is not None
    assert at.lower <= delta


@pytest.mark.parametrize("parts", [((1.0, 0.01, 1000),), ((2.0, 0.1, 50), (1.0, 1e-3, 300))])
def test_smoothed_lines_hold_the_value_of_unsmoothed_ones(
    parts: tuple[tuple[float, float, int], ...],
) -> None:
    engine = losses(*parts).saddle_points[0]
    exact = engine.bounds(EpsilonAt(1e-6), 1e-9)
    assert exact is not None
    found = engine.smoothed(EpsilonAt(1e-6), 1e-4)
    assert found is not None
    assert found.lower <= exact.lower <= exact.upper <= found.upper
    assert found.relative_gap <= 1e-4
    at = engine.smoothed(DeltaAt(exact.upper), 1e-4)
    assert at is not None
    assert at.lower <= 1e-6 <= at.upper * (1 + 1e-9)
    assert at.relative_gap <= 1e-4


def test_each_smoothing_is_sound_and_finer_ones_are_closer() -> None:
    engine = losses((1.0, 0.01, 1000)).saddle_points[0]
    exact = engine.bounds(DeltaAt(1.8), 1e-9)
    assert exact is not None
    widths = []
    for variance in (0.1, 1e-2, 1e-3, 1e-5):
        lines = smoothed._lines(engine.term, engine.track, 1.8, -11.4, variance, 16.0)
        assert lines is not None
        got = lines.read(1.8)
        assert got.lower <= exact.lower <= exact.upper <= got.upper
        widths.append(got.upper - got.lower)
        assert "smoothed" in str(lines.describe(1.8)[0]["rare losses"])
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1e-3 * exact.upper


def test_where_too_many_digits_would_cancel_nothing_is_said() -> None:
    engine = losses((1.0, 1e-5, 10**6)).saddle_points[0]
    assert engine.smoothed(EpsilonAt(1e-30), 1e-4) is None


def test_lines_that_know_too_few_digits_are_not_made_finer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finer line takes longer than all before it."""
    made, plain = [], smoothed._lines

    def counted(*args):
        made.append(args)
        return plain(*args)

    engine = losses((0.8, 1e-4, 10**4)).saddle_points[0]
    assert engine.smoothed(EpsilonAt(1e-6), 1e-4) is not None
    monkeypatch.setattr(smoothed, "_lines", counted)
    monkeypatch.setattr(EpsilonOnLines, "read_lines", lambda *_: None)
    assert engine.smoothed(EpsilonAt(1e-6), 1e-4) is None
    assert 1 < len(made) <= 5  # of ten


def test_gaps_out_of_reach_and_directions_without_a_path_are_left_to_others() -> None:
    remove, add = losses((1.0, 0.01, 1000)).saddle_points
    assert remove.smoothed(EpsilonAt(1e-6), 1e-7) is None
    assert add.smoothed(EpsilonAt(1e-6), 1e-4) is None


@pytest.mark.slow
def test_the_lines_that_answered_are_kept() -> None:
    engine, cache = losses((0.8, 1e-4, 10**4)), Cache()
    found = engine.saddle_points[0].smoothed(EpsilonAt(1e-10), 1e-4, cache, 0, None)
    assert found is not None
    assert found.relative_gap <= 1e-4
    assert found.overlaps(tb.Bounds(0.365066, 0.365102))
    assert cache.lines(0)


def factors_hold(variance: float) -> bool:
    """Both lines are the transform times their factors, within the errors that they add."""
    engine = losses((1.0, 0.01, 1000)).saddle_points[0]
    lines = smoothed._lines(engine.term, engine.track, 1.8, -11.4, variance, 16.0)
    assert lines is not None
    above, below = lines.lines
    found = smoothed._values(engine.term, above.c, above.t)
    assert found is not None
    plain, plain_error = contour.divided(*found, above.c, above.t)
    before, ctx.prec = ctx.prec, 200
    held = True
    for i in {0, 1, 2, above.t.size // 30, above.t.size // 4, above.t.size - 1}:
        s, v = acb(above.c, float(above.t[i])), arb(variance)
        lift, kink = v * s * (s + 1) / 2, 1 + (s + 1) * ((-v * s).exp() - 1)
        logs = [acb(z.real, z.imag) for z in (plain[i], above.log[i], below.log[i])]
        errors = [arb(float(e[i])) for e in (plain_error, above.error, below.error)]
        # each error pays for what was done since the one before it
        off = abs((logs[1] - logs[0] - lift).exp() - 1)
        held = held and bool(off <= (errors[1] - errors[0]).expm1())
        off = abs((logs[2] - logs[1]).exp() / kink - 1)
        held = held and bool(off <= (errors[2] - errors[1]).expm1())
    ctx.prec = before
    return held


@pytest.mark.parametrize("variance", [0.3, 1e-2, 1e-5])
def test_both_lines_are_the_transform_times_their_factors(variance: float) -> None:
    assert factors_hold(variance)
