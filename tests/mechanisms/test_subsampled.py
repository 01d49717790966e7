"""Sampled bins against mixtures of exact base masses, in ball arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from tests.balls import ball, bins_of, contains, mass

from tightbudget.errors import ParameterError, RelationError
from tightbudget.mechanisms import (
    ExponentialMechanism,
    Gaussian,
    Laplace,
    Neighbouring,
    RandomizedResponse,
    TruncatedGaussian,
)
from tightbudget.mechanisms.composition import Composition
from tightbudget.mechanisms.subsampled import Subsampled
from tightbudget.numerics.rounding import UNIT
from tightbudget.pairs.direction import Direction

REMOVE, ADD = Direction.REMOVE, Direction.ADD


@pytest.fixture(autouse=True)
def _bits():
    before, ctx.prec = ctx.prec, 1200  # edges may lie 1e-200 above the smallest loss
    yield
    ctx.prec = before


def base_loss(x: float, q: arb, direction: Direction) -> arb | None:
    """The base loss at which the sampled one is x; None beyond its end."""
    sign = 1 if direction is REMOVE else -1
    inner = ((sign * arb(x)).exp() - (1 - q)) / q
    return sign * inner.log() if inner > 0 else None


def mixed(masses, q: arb, direction: Direction, edges: np.ndarray, i: int) -> tuple[arb, arb]:
    """P-mass and Q-mass times e^r of bin i from the base's masses(left, right) -> (p, q)."""
    ends = [base_loss(x, q, direction) for x in edges.tolist()]
    lost = -1 if direction is REMOVE else 1  # where an edge without base loss lies
    scale = arb(float(edges[min(i, edges.size - 1)])).exp()
    left = ends[i - 1] if i > 0 else None
    right = ends[i] if i < edges.size else None
    left_out = i > 0 and left is None
    right_out = i < edges.size and right is None
    if (left_out and lost == 1) or (right_out and lost == -1):
        return arb(0), arb(0)
    p, base_q = masses(left, right)
    if direction is REMOVE:
        return (1 - q) * base_q + q * p, base_q * scale
    return p, ((1 - q) * p + q * base_q) * scale


def gaussian(m: arb):
    def masses(left, right):
        shift = [None if x is None else x / m for x in (left, right)]
        return (
            mass(*(None if z is None else z - m / 2 for z in shift)),
            mass(*(None if z is None else z + m / 2 for z in shift)),
        )

    return masses


def laplace(m: arb):
    def masses(left, right):
        low = -m if left is None else left.max(-m).min(m)
        high = m if right is None else right.max(-m).min(m)
        if not high > low:
            return arb(0), arb(0)
        nearer, farther = (m - high) / 2, (m - low) / 2
        return (
            ((-nearer).exp() - (-farther).exp()) / 2,
            ((farther - m).exp() - (nearer - m).exp()) / 2,
        )

    return masses


def edges_of(pair, steps: np.ndarray) -> np.ndarray:
    """Coarse edges over all the mass, and at each some finer ones."""
    losses = pair.sketch().sorted()
    solid = losses.losses[losses.log_masses > -500]
    low, high = float(solid.min()), min(float(solid.max()), 500.0)
    coarse = np.linspace(low, high, 15)
    return np.unique((coarse[:, None] + steps * (high - low)).ravel())


@pytest.mark.one_in(6)
@pytest.mark.parametrize("direction", [REMOVE, ADD])
@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.25, 0.999])
@pytest.mark.parametrize("sigma", [0.3, 0.8, 1.0, 4.0, 100.0, 0.02])
def test_sampled_gaussian_cells_hold_the_exact_masses(sigma, rate, direction):
    pair = Gaussian(sigma).subsampled(rate).pair(direction)
    edges = edges_of(pair, np.array([0.0, 1e-3, 1e-2]))
    check(pair, gaussian(ball(Fraction(1) / Fraction(sigma))), rate, direction, edges)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("direction", [REMOVE, ADD])
@pytest.mark.parametrize("rate", [1e-4, 0.25, 0.999])
@pytest.mark.parametrize("scale", [0.05, 2.0])
def test_sampled_laplace_cells_hold_the_exact_masses(scale, rate, direction):
    pair = Laplace(scale).subsampled(rate).pair(direction)
    edges = edges_of(pair, np.array([0.0, 1e-3, 1e-2]))
    check(pair, laplace(ball(Fraction(1) / Fraction(scale))), rate, direction, edges)


def check(pair, masses, rate, direction, edges):
    bins, q = bins_of(pair, edges), arb(rate)
    end = (1 - q).log() if direction is REMOVE else -(1 - q).log()
    # an edge within rounding of the end may be moved there, with its lump of mass
    moved = np.array([bool(abs(arb(x) - end) < arb(64 * UNIT) * (1 + abs(end))) for x in edges])
    unsure = np.append(moved, False) | np.append(False, moved)
    # so close to the end that x - end has lost its digits, the base's edge has, too
    far = np.abs(edges - float(end)) > 5e-4 * (edges[-1] - edges[0])
    clear = np.append(False, far) & np.append(far, False)
    tight = 0
    for i in range(edges.size + 1):
        if unsure[i]:
            continue
        p, heavy = mixed(masses, q, direction, edges, i)
        assert contains(bins.p, i, p)
        assert contains(bins.q, i, heavy)
        if p > 0:
            assert contains(bins.w, i, heavy / p)
            over = bins.over_one()
            assert over[0][i] <= heavy / p - 1 <= over[1][i] or not bins.w.upper[i] < math.inf
        width = float(bins.p.upper[i] - bins.p.lower[i])
        if p > 1e-280 and clear[i]:
            assert width < 1e-7 * float(p)
            assert bins.w.upper[i] - bins.w.lower[i] < 1e-7 * float(bins.w.upper[i])
            tight += 1
    assert tight > 10


@pytest.mark.parametrize("direction", [REMOVE, ADD])
def test_fine_cells_know_their_ratio(direction):
    """The share that stays at an edge is known to 1e-6 of the bin also for a rate of 1e-4."""
    pair = Gaussian(1.0).subsampled(1e-4).pair(direction)
    h = 1e-6  # about 1/100 standard deviation of the loss
    edges = (
        -1e-4 + h * np.arange(1, 180) if direction is REMOVE else 1e-4 - h * np.arange(180, 1, -1)
    )
    bins = bins_of(pair, edges)
    solid = bins.p.lower > 1e-6
    solid[[0, -1]] = False
    assert np.max((bins.w.upper - bins.w.lower)[solid]) < 2e-8 * h / 1e-6


@pytest.mark.parametrize("rate", [1e-3, 0.5])
@pytest.mark.parametrize("ends", [(30.0, 70.0), (50.0, 100.0), (100.0, 400.0), (-0.5, 800.0)])
def test_a_ratio_beyond_the_digits_of_its_inverse_has_no_bound_below_it(
    rate: float, ends: tuple[float, float]
) -> None:
    """A bin of 40 nats and more, whose Q-mass is at its left end: 1 / w is lost in rounding."""
    sigma = 0.02
    pair = Gaussian(sigma).subsampled(rate).pair(REMOVE)
    masses, q = gaussian(arb(1) / arb(sigma)), arb(rate)
    edges = np.array(ends)
    low, high = bins_of(pair, edges).over_one()
    p, heavy = mixed(masses, q, REMOVE, edges, 1)
    exact = heavy / p - 1
    assert low[1] <= exact
    assert not high[1] < exact


@pytest.mark.parametrize("direction", [REMOVE, ADD])
@pytest.mark.parametrize("rate", [1e-3, 1e-8, 1e-12])
def test_a_rare_sample_knows_how_far_a_ratio_is_above_one(rate: float, direction) -> None:
    """The digits of w - 1 are those of the base, however small the rate; w has lost them."""
    pair = Gaussian(1.0).subsampled(rate).pair(direction)
    sign = 1 if direction is REMOVE else -1
    edges = np.sort(sign * rate * np.linspace(-0.6, 6.0, 34))
    bins, masses, q = bins_of(pair, edges), gaussian(arb(1)), arb(rate)
    low, high = bins.over_one()
    for i in range(1, edges.size):
        p, heavy = mixed(masses, q, direction, edges, i)
        exact = heavy / p - 1
        assert low[i] <= exact <= high[i]
        # turned by a million units of the bin's length, either bound would be false
        assert high[i] - low[i] < 2e-10 * rate


@pytest.mark.parametrize("rate", [1e-4, 0.3, 0.999])
def test_edges_beyond_all_losses_leave_one_cell_with_everything(rate):
    for direction, edge in ((REMOVE, -9.0), (ADD, 9.0)):
        bins = bins_of(Gaussian(1.0).subsampled(rate).pair(direction), np.array([edge]))
        full, empty = (1, 0) if direction is REMOVE else (0, 1)
        assert 1 - 1e-13 < bins.p.lower[full] <= 1 <= bins.p.upper[full] < 1 + 1e-13
        assert bins.p.upper[empty] == 0
        assert contains(bins.q, full, arb(edge).exp())


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.7])
def test_a_lump_at_the_end_of_the_losses_is_counted_once_and_above_the_edge(rate):
    # nearly all outputs of a precise query have the loss ln(1 - q), or -ln(1 - q)
    end = -np.log1p(-rate)
    for direction, at in ((REMOVE, -end), (ADD, end)):
        edges = np.array([at - 1e-3, at, at + 1e-3])
        bins = bins_of(Gaussian(0.02).subsampled(rate).pair(direction), edges)
        assert bins.p.upper[0] + bins.p.upper[1] < 1e-20
        assert bins.p.lower[2] > (1 - rate if direction is REMOVE else 1) - 1e-12
        assert 1 < bins.w.lower[2] <= bins.w.upper[2] < np.exp(1e-3) * (1 + 1e-13)


@pytest.mark.parametrize("rate", [1e-9, 0.01, 0.5, 0.999, 1 - 1e-9])
def test_atoms_mix(rate):
    base = RandomizedResponse(0.75)
    q, half = arb(rate), arb(0.75)
    for direction in (REMOVE, ADD):
        atoms = base.subsampled(rate).pair(direction).atoms()
        order = np.argsort(atoms.loss_lower)
        pairs = [((1 - half), half), (half, 1 - half)]
        pairs = [
            ((1 - q) * b + q * a, b) if direction is REMOVE else (a, (1 - q) * a + q * b)
            for a, b in pairs
        ]
        for i, (p, heavy) in zip(order.tolist(), pairs, strict=True):
            loss = (p / heavy).log()
            assert contains(atoms.p, i, p)
            assert contains(atoms.q, i, heavy)
            assert arb(float(atoms.loss_lower[i])) <= loss <= arb(float(atoms.loss_upper[i]))
            assert atoms.loss_upper[i] - atoms.loss_lower[i] < 1e-13 * (
                1 + abs(float(loss))
            ) + 4e-16 / (1 - rate)


def test_outputs_of_one_side_become_the_extreme_losses():
    base = TruncatedGaussian(1.0, bound=2.0)
    only = base.pair(REMOVE).p_only()
    remove, add = (base.subsampled(0.1).pair(d) for d in (REMOVE, ADD))
    assert remove.p_only().upper[0] == pytest.approx(0.1 * only.upper[0])
    assert remove.q_only().upper[0] == 0
    assert add.p_only().upper[0] == 0
    assert add.q_only().upper[0] == pytest.approx(0.1 * only.upper[0])
    (lowest,), (highest,) = remove.atoms().loss_lower, add.atoms().loss_upper
    assert lowest == pytest.approx(np.log1p(-0.1))
    assert highest == pytest.approx(-np.log1p(-0.1))
    assert add.max_loss()[1] == highest


def test_a_rate_of_0_tells_nothing_and_a_rate_of_1_is_the_base():
    never = Gaussian(1.0).subsampled(0.0)
    assert never.pair(REMOVE).max_loss()[1] < 1e-15
    assert Gaussian(1.0).subsampled(1.0).pair(ADD) == Gaussian(1.0).pair(ADD)
    assert never.is_symmetric()
    assert not Gaussian(1.0).subsampled(0.5).is_symmetric()


@pytest.mark.parametrize("rate", [-0.1, 1.1, np.nan, "0.5", None, True])
def test_rates_outside_the_unit_interval_are_refused(rate):
    with pytest.raises(ParameterError, match=r"rate must be in \[0, 1\], got"):
        Gaussian(1.0).subsampled(rate)


def test_other_refusals():
    with pytest.raises(ParameterError, match=r"rate must be 0 or in \[1e-100, 1\], got 1e-200"):
        Gaussian(1.0).subsampled(1e-200)
    with pytest.raises(ParameterError, match="base must be a mechanism, got 3"):
        Subsampled(3, 0.5)  # type: ignore[arg-type]
    with pytest.raises(RelationError, match="Poisson subsampling holds for"):
        Gaussian(1.0, relation=Neighbouring.REPLACE_ONE).subsampled(0.5)
    with pytest.raises(RelationError, match="Poisson subsampling holds for"):
        Subsampled(Gaussian(1.0), 0.5, relation=Neighbouring.ZERO_OUT)


def test_a_base_declared_for_zeroed_records_keeps_its_relation():
    base = Gaussian(1.0, relation=Neighbouring.ZERO_OUT)
    zeroed = base.subsampled(0.1)
    assert zeroed.relation is Neighbouring.ZERO_OUT
    assert zeroed == Subsampled(base, 0.1, relation=Neighbouring.ZERO_OUT)
    assert Gaussian(1.0).subsampled(0.1).relation is Neighbouring.ADD_OR_REMOVE
    for direction in Direction:
        assert zeroed.pair(direction) == Gaussian(1.0).subsampled(0.1).pair(direction)
    with pytest.raises(RelationError, match=r"add-or-remove|ADD_OR_REMOVE was declared"):
        Subsampled(base, 0.1, relation=Neighbouring.ADD_OR_REMOVE)
    again = Composition.from_json((zeroed * 3).to_json())
    assert again == zeroed * 3


@pytest.mark.parametrize("q", [1e-4, 0.01, 0.25, 0.999])
def test_losses_below_the_largest_one_are_not_counted_above_it(q: float) -> None:
    """An edge at the largest loss moves what is within rounding of it, and no other mass."""
    pair = Gaussian(1.0).subsampled(q).pair(Direction.ADD)
    end = -math.log1p(-q)
    for edges in ([0.5 * end, end, 1.01 * end], [end, np.nextafter(end, 9.0)], [0.5 * end, end]):
        bins = pair.bins(np.array(edges), np.zeros(len(edges)))
        assert bins is not None
        below = edges.index(end)  # the bin with the right edge ``end``
        assert bins.p.lower[below] > 1e-3
        assert bins.p.upper[below + 1 :].sum() < 1e-100


@pytest.mark.parametrize("relation", [None, Neighbouring.ZERO_OUT])
def test_a_sample_of_what_has_two_ends_is_declared_as_it_is(relation: Neighbouring | None) -> None:
    epoch = Gaussian(1.0, relation=relation).allocated(10).subsampled(0.1)
    assert epoch.relation is (relation or Neighbouring.ADD_OR_REMOVE)
    found, selection = epoch.delta(0.1), ExponentialMechanism(1.0, relation=relation)
    assert found == Gaussian(1.0).allocated(10).subsampled(0.1).delta(0.1)
    assert selection.subsampled(0.1).delta(0.01).lower > 0.0
