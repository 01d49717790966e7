"""Sums that are known: bounds of masses are closer for them, and stay on their side."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.balls import ball
from tests.exact import Composed, Outputs

import tightbudget as tb
from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.levels.levels import Room
from tightbudget.engine.levels.placing import LevelPlan, Run, _Masses, nested, placed
from tightbudget.engine.levels.profile import LevelProfile
from tightbudget.engine.levels.totals import with_rest, without_excess
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.enclosure import Enclosure
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Bins, Pair, Sketch

UNITS = 2**50  # masses are multiples of 2^-50, so that sums of them are doubles


@pytest.fixture(autouse=True)
def precise() -> Iterator[None]:
    with ctx.workprec(200):
        yield


def points(n: int, step: float) -> tuple[list[arb], FloatArray, FloatArray]:
    """n points around 0: exactly, as doubles, and how far those may be off."""
    grid = Grid(-(n // 3) * Fraction(step), step)
    x, slack = grid.losses(n)
    return [ball(grid.offset + i * Fraction(step)) for i in range(n)], x, slack


def in_units(x: FloatArray) -> FloatArray:
    return np.floor(x * UNITS) / UNITS


def up(x: arb) -> float:
    return math.nextafter(float(x.upper()), math.inf)


# ------------------------------------------------------------------------ above


def dominates(more: FloatArray, fewer: FloatArray, at: list[arb]) -> bool:
    """Whether masses have at least the deltas of others on the same points.

    A sum of m (1 - t e^-x)+ is linear in t between the points' e^x, and 0 beyond them.
    """
    differences = [arb(float(a)) - arb(float(b)) for a, b in zip(more, fewer, strict=True)]
    for t in (arb(0), *(x.exp() for x in at)):
        terms = (d * max(arb(0), 1 - t * (-x).exp()) for d, x in zip(differences, at, strict=True))
        if not sum(terms, arb(0)) > arb(-1e-40):  # 200 bits are 1e-60
            return False
    return True


@pytest.mark.parametrize("step", [1e-9, 0.01, 2.0])
@pytest.mark.parametrize("missing", [0.0, 1e-3])
@pytest.mark.parametrize("seed", range(4))
def test_masses_without_their_excess_dominate_the_exact_ones(
    step: float, missing: float, seed: int
) -> None:
    n, draw = 12, np.random.default_rng(seed)
    at, x, slack = points(n, step)
    v = draw.uniform(0.1, 1.0, n)
    # a sum of v e^-x below 1, as a rule
    v = in_units(v / (np.sum(v) * (1.0 + (seed % 2) * 1e-3)))
    u = v + in_units(v * draw.uniform(0.0, 1e-2, n))
    short = 1 - sum((arb(float(m)) * (-y).exp() for m, y in zip(v, at, strict=True)), arb(0))
    less = without_excess(u, x, slack, max(0.0, up(short)) + missing)
    assert np.all(less <= u)
    assert dominates(less, v, at)


@pytest.mark.parametrize("offset", [-1e-12, 1e-12])
@pytest.mark.parametrize("step", [1e-3, 0.5])
def test_the_whole_excess_goes_at_the_last_point_that_its_mean_allows(
    step: float, offset: float
) -> None:
    """The excess lies at two points, with a mean just above or below that of a third one."""
    at, x, slack = points(9, step)
    v = np.full(9, 0.125)
    v[0] = 0.0
    odds = [(-y).exp() for y in at]
    # a (e^-x1 - e^-x4) = b (e^-x4 - e^-x7), and a little more or less of a
    b = 2.0**-5
    a = float(b * (odds[4] - odds[7]) / (odds[1] - odds[4])) * (1.0 - 100.0 * offset)
    a = float(in_units(np.array(a)))
    u = v.copy()
    u[1] += a
    u[7] += b
    short = 1 - sum((arb(float(m)) * y for m, y in zip(v, odds, strict=True)), arb(0))
    less = without_excess(u, x, slack, up(short))
    place = 4 if offset > 0 else 3
    expected = u.copy()
    expected[place] -= a + b
    np.testing.assert_allclose(less, expected, rtol=1e-14)
    assert dominates(less, v, at)


def test_an_excess_is_kept_where_no_point_can_do_without_it() -> None:
    _, x, slack = points(3, 0.5)
    u = np.array([0.0, 0.6, 0.5])
    assert without_excess(u, x, slack, math.inf) is u
    # only a point of no mass is far enough to the left
    assert without_excess(u, x, slack, 0.5) is u
    none = 0.5 * u  # a sum below 1
    assert without_excess(none, x, slack, 0.0) is none


def test_points_whose_q_masses_are_no_doubles_change_nothing() -> None:
    """Without a warning: an error here, as all that NumPy says is."""
    slack, over = np.full(3, 1e-13), np.array([1e300, 0.0, 0.0])
    for left in (-5000.0, -709.9, -800.0):
        x = np.array([left, 0.0, 0.5])
        u = np.array([0.1, 0.6, 0.5])
        assert without_excess(u, x, slack, 0.0) is u
        without_excess(np.array([0.0, 0.6, 0.5]), x, slack, 0.0)
        p, r = np.array([0.0, 0.5, 0.3]), np.zeros(3)
        more, excess = with_rest(p, r, x, slack, over)
        assert np.all(more >= p)
        assert np.all(np.isfinite(excess))


# ------------------------------------------------------------------------ below


@pytest.mark.parametrize("step", [1e-9, 0.01, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_outputs_with_their_rest_are_a_post_processing(step: float, seed: int) -> None:
    """What is left out is one output more: it has all of P that is left, and at least all of Q."""
    n, draw = 10, np.random.default_rng(seed)
    at, x, slack = points(n, step)
    p = draw.uniform(0.1, 1.0, n)
    over = in_units(draw.uniform(0.0, math.expm1(step), n)) if seed % 2 else np.zeros(n)
    over[0] = -1.0  # nothing is known of its Q-mass from below
    most = max(np.sum(p), np.sum(p * (1.0 + over) * np.exp(-x)))
    p = in_units(p / (most * (1.0 + 10.0 ** -(1 + 2 * (seed % 3)))))
    r = p * np.maximum(0.0, over)
    more, excess = with_rest(p, r, x, slack, over)
    (where,) = np.flatnonzero(more != p)
    assert np.all(np.delete(excess, where) == np.delete(r, where))
    masses = [arb(float(m)) for m in p]
    rest = 1 - sum(masses, arb(0))
    shares = [
        m * (1 + arb(float(o))) * (-y).exp() for m, o, y in zip(masses, over, at, strict=True)
    ]
    raised = (masses[where] + arb(float(r[where]))) * (-at[where]).exp()
    whole = masses[where] + rest
    q = raised + 1 - sum(shares, arb(0))
    found = arb(float(more[where]))
    assert found <= whole <= found * (1 + arb(1e-14))
    had = (found + arb(float(excess[where]))) * (-at[where]).exp()
    # the output is a share of the exact one
    assert had >= q * found / whole
    assert had <= q + arb(1e-13) or excess[where] <= r[where] * (1 + 1e-14) + 1e-290


def test_nothing_is_left_of_outputs_that_are_all() -> None:
    _, x, slack = points(4, 0.5)
    p, r = np.full(4, 0.25), np.zeros(4)
    assert with_rest(p, r, x, slack, r) == (p, r)


# --------------------------------------------------------------- a run on nested grids


@dataclass(frozen=True)
class Loose(Pair):
    """Outputs as a continuous part, whose bounds are off by as much as is asked.

    Guarantee: an output within the slack of an edge is counted in the bin above it.

    Attributes:
        outputs: P- and Q-masses > 0.
        above, below: how far bounds of masses are off, relative.
        apart: how far the lower bound of a bin's w is off.
    """

    outputs: Outputs
    above: float = 0.0
    below: float = 0.0
    apart: float = 0.0

    def sums_to_one(self) -> bool:
        return all(sum(one) == 1 for one in zip(*self.outputs, strict=True))

    def max_loss(self) -> tuple[float, float]:
        most = max(float(ball(p / q).log()) for p, q in self.outputs)
        return most - 1e-9, most + 1e-9

    def sketch(self) -> Sketch:
        return Sketch(
            np.array([float(ball(p / q).log()) for p, q in self.outputs]),
            np.log([float(p) for p, _ in self.outputs]),
        )

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins:
        n = edges.size + 1
        reference = np.append(edges, edges[-1])
        p, q = np.zeros(n), np.zeros(n)
        w_low, w_high = np.ones(n), np.ones(n)
        within: list[list[tuple[Fraction, Fraction]]] = [[] for _ in range(n)]
        losses = [ball(a / b).log() for a, b in self.outputs]
        for output, loss in zip(self.outputs, losses, strict=True):
            near = float(loss)
            i = int(np.searchsorted(edges, near))
            for j in (i - 1, i):  # as far above as the slack allows
                if 0 <= j < edges.size and loss > arb(float(edges[j])) - arb(float(slack[j])):
                    i = max(i, j + 1)
            within[i].append(output)
        for i, outputs in enumerate(within):
            mass, other = (sum((x[k] for x in outputs), Fraction(0)) for k in (0, 1))
            moved = ball(other) * arb(float(reference[i])).exp()
            p[i], q[i] = float(ball(mass)), float(moved)
            if outputs:
                w_low[i] = w_high[i] = float(moved / ball(mass))
        off = 4 * UNIT
        w_low = np.maximum(1.0, w_low * (1 - off) * (1.0 - self.apart))
        return Bins(
            Enclosure(p * (1 - self.below) * (1 - off), p * (1 + self.above) * (1 + off)),
            Enclosure(q * (1 - self.below) * (1 - off), q * (1 + self.above) * (1 + off)),
            Enclosure(w_low, np.maximum(1.0, w_high * (1 + off))),
        )


@st.composite
def loose_pairs(draw: st.DrawFn) -> Loose:
    counts = st.integers(1, 1000)
    p, q = (draw(st.lists(counts, min_size=4, max_size=4)) for _ in range(2))
    outputs = tuple((Fraction(a, sum(p)), Fraction(b, sum(q))) for a, b in zip(p, q, strict=True))
    off = st.sampled_from([0.0, 1e-6, 0.1])
    return Loose(outputs, draw(off), draw(off), draw(off))


@pytest.mark.slow
@given(
    loose_pairs(),
    st.integers(1, 3),
    st.floats(-3.0, 3.0),
    st.floats(0.0, 9.0),
    st.floats(0.0, 9.0),
    st.sampled_from([1e-2, 0.25, 1.0]),
    st.sampled_from([16, 64, 1024]),
    st.lists(st.floats(-8.0, 8.0), min_size=3, max_size=3),
)
@settings(max_examples=300)
def test_bounds_hold_however_loose_masses_are(
    pair: Loose,
    runs: int,
    edge: float,
    left: float,
    right: float,
    step: float,
    reach: int,
    at: list[float],
) -> None:
    exact = Composed.of([pair.outputs] * runs)
    run = Run(pair, runs, Fraction(edge), 0, edge - left, edge + right, edge)
    parts = Parts.of(((pair, runs),))
    profile = LevelProfile(parts, LevelPlan((run,), step, Room((reach,)), 0.0, 0.0))
    for epsilon in at:
        low, high = exact.delta(epsilon)
        assert Fraction(profile.lower_delta(epsilon)) <= high
        assert Fraction(profile.upper_delta(epsilon)) >= low


LATTICE = tuple(
    (Fraction(a, 31), Fraction(b, 31)) for a, b in ((1, 16), (2, 8), (4, 4), (8, 2), (16, 1))
)


@pytest.mark.parametrize(("low", "high"), [(-9.0, 9.0), (-0.3, 9.0), (-9.0, 0.3), (-2.0, 1.0)])
@pytest.mark.parametrize("step", [2 * math.log(2.0), 0.7, 0.05])
@pytest.mark.parametrize("apart", [0.0, 0.2])
def test_the_q_mass_that_placing_takes_away_is_known(
    low: float, high: float, step: float, apart: float
) -> None:
    """Upper masses have the Q-mass 1 but for what is missing: of bins of the whole line, too."""
    pair = Loose(LATTICE, apart=apart)
    run = Run(pair, 1, Fraction(0), 0, low, high, 0.0)
    grids = nested(run, LevelPlan((run,), step, Room((16,)), 0.0, 0.0))
    found = _Masses.on(grids)
    found.take_bins(pair)
    held = sum(
        (
            ball(float(m)) * (-ball(grid.offset + i * Fraction(grid.step))).exp()
            for (grid, _), u in zip(grids, found.u, strict=True)
            for i, m in enumerate(u)
        ),
        arb(0),
    )
    missing = 1 - held
    assert missing <= arb(found.missing) + arb(1e-14)
    last = float(found.axes[-1][0][-1])
    beyond = max(
        arb(0),
        sum(
            (ball(p) * (-arb(last)).exp() - ball(q) for p, q in LATTICE if p > q * ball_exp(last)),
            arb(0),
        ),
    )
    assert arb(found.missing) <= missing + beyond + arb(1e-13)


def ball_exp(x: float) -> Fraction:
    return Fraction(math.exp(x) * (1 + 1e-12))


def test_what_lies_beyond_may_have_no_q_mass() -> None:
    """Half of P has a loss far beyond the last point: the rest may be all of Q."""
    p, q = (1, 1, 2), (500, 499, 1)
    outputs = tuple((Fraction(a, 4), Fraction(b, 1000)) for a, b in zip(p, q, strict=True))
    pair = Loose(outputs, below=0.5)
    run = Run(pair, 1, Fraction(0), 0, -2.0, 0.5, 0.0)
    profile = LevelProfile(Parts.of(((pair, 1),)), LevelPlan((run,), 0.25, Room((1024,)), 0.0, 0.0))
    for epsilon in np.linspace(-1.0, 1.0, 21).tolist():
        low, high = Composed.of([outputs]).delta(epsilon)
        assert Fraction(profile.lower_delta(epsilon)) <= high
        assert Fraction(profile.upper_delta(epsilon)) >= low


def test_an_excess_is_kept_where_sums_are_not_known() -> None:
    """Of outputs that leave half of Q out, the bounds may have a larger P-mass than there is."""
    outputs = tuple((p, q / 2) for p, q in LATTICE)
    exact = sum((max(p - q, Fraction(0)) for p, q in outputs), Fraction(0))
    step = math.log(2.0) / 2
    for above in (0.0, 0.1):
        pair = Loose(outputs, above)
        run = Run(pair, 1, Fraction(0), 0, -9.0, 9.0, 0.0)
        plan = LevelPlan((run,), step, Room((1024,)), 0.0, 0.0)
        profile = LevelProfile(Parts.of(((pair, 1),)), plan)
        assert Fraction(profile.upper_delta(0.0)) >= exact * (1 + Fraction(above))


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(
    ("mechanism", "step"),
    [
        (tb.Gaussian(2.77).subsampled(1.96e-5), 1e-10),
        (tb.Gaussian(1.0).subsampled(0.1), 1e-4),
        (tb.Gaussian(3.0), 1e-4),
    ],
    ids=["rare", "sampled", "gaussian"],
)
def test_masses_of_one_run_are_one_in_all(
    mechanism: tb.Mechanism, step: float, direction: Direction
) -> None:
    """Thousands of bounds are off together by some units of 1e-16, and not of 1e-13."""
    pair = mechanism.pair(direction)
    run = Run(pair, 1, Fraction(0), 0, -30.0, 30.0, 0.0)
    upper, lower = placed(run, LevelPlan((run,), step, Room((2**13,)), 0.0, 0.0))
    heavy = math.fsum(float(m) for one in upper.on.values() for m in one.mass)
    light = math.fsum(float(m) for one in lower.on.values() for m in one.mass)
    assert 1.0 <= heavy + upper.infinite <= 1.0 + 1e-15
    assert 1.0 - 1e-15 <= light <= 1.0


@pytest.mark.slow
def test_millions_of_runs_are_answered_in_few_passes() -> None:
    """What rounding does to one run's masses, times the runs, left a gap of 1e-4."""
    bounds = (tb.Gaussian(2.77).subsampled(1.96e-5) * 2_180_000).delta(0.05)
    assert bounds.relative_gap <= 6e-5
    assert bounds.overlaps(Bounds(4.07799e-09, 4.07821e-09))
