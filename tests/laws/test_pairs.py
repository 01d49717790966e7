"""Laws that every pair keeps, asked of the pair itself: no engine is involved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tests.cases import CASES, Case, each_case, each_mechanism, slow_unless_core

from tightbudget.mechanisms import BestOf, LossTable, Mechanism, ShuffledReports
from tightbudget.numerics.enclosure import Enclosure
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Bins, Pair

ASKED = [(case, direction) for case in CASES for direction in Direction]


# pairs of atoms that take seconds to make, for which whoever collects this file would wait
OF_ATOMS = (BestOf, ShuffledReports)


def has_bins(case: Case, direction: Direction = Direction.REMOVE) -> bool:
    """Whether the case's losses are not all atoms."""
    return case.mechanism.pair(direction).bins(np.zeros(1), np.zeros(1)) is not None


CONTINUOUS = [
    (case, direction)
    for case, direction in ASKED
    if not isinstance(case.mechanism, OF_ATOMS) and has_bins(case)
]
# pairs whose bins are those of *every* choice of exact edges within the slack; one that finds
# its outputs by bisection, or that has integers, chooses where in there it cuts; batches with
# replacement have a mixture of numbers of copies, a truncated sample of Gaussian noise one beside a
# record that displaces another one
CHOOSES = (
    "Additive", "MixtureOfGaussians", "DiscreteGaussian", "group(", "replacement=True",
    "Gaussian(sigma=1.0).truncated_poisson(",
)  # fmt: skip
EVERY_EDGE = [
    asked for asked in CONTINUOUS if not any(name in repr(asked[0].mechanism) for name in CHOOSES)
]


def ask(cases):
    return pytest.mark.parametrize(
        ("mechanism", "direction"),
        [
            pytest.param(
                case.mechanism,
                direction,
                id=f"{case.name}-{direction.value}",
                marks=slow_unless_core(case),
            )
            for case, direction in cases
        ],
    )


def grid(pair: Pair, n: int = 400) -> np.ndarray:
    """Edges around all the mass of P and Q that doubles can hold."""
    sketch = pair.sketch().sorted()
    losses = sketch.losses[sketch.log_masses - np.minimum(sketch.losses, 0) > -600]
    span = losses.max() - losses.min() + 1e-3
    edges = np.linspace(losses.min() - 0.1 * span, losses.max() + 0.1 * span, n)
    return np.clip(edges, -650.0, 650.0) if np.abs(edges).max() > 650 else edges


def bins_of(pair: Pair, edges: np.ndarray, slack: float = 0.0) -> Bins | None:
    edges = np.unique(edges)
    return pair.bins(edges, np.full(edges.size, slack))


def total(*parts: Enclosure | None) -> tuple[float, float]:
    lower = sum(float(np.sum(part.lower)) for part in parts if part is not None)
    upper = sum(float(np.sum(part.upper)) for part in parts if part is not None)
    return lower * (1 - 1e-13), upper * (1 + 1e-13)


def consistent(lower: np.ndarray, upper: np.ndarray, other: Enclosure) -> np.ndarray:
    """Whether [lower, upper] and the other enclosure have a number in common."""
    return (lower <= other.upper * (1 + 1e-13)) & (other.lower * (1 - 1e-13) <= upper)


@each_case
def test_both_directions_have_bins_or_neither(case: Case) -> None:
    assert has_bins(case) == has_bins(case, Direction.ADD)
    assert not (isinstance(case.mechanism, OF_ATOMS) and has_bins(case))


@pytest.mark.one_in(3)
@ask(ASKED)
def test_masses_are_enclosed_and_sum_to_1_under_p(mechanism: Mechanism, direction: Direction):
    pair = mechanism.pair(direction)
    atoms = pair.atoms()
    for edges in (np.zeros(1), grid(pair, 3), grid(pair)):
        bins = bins_of(pair, edges)
        for part in [atoms.p, atoms.q, pair.p_only(), pair.q_only()] + (
            [bins.p, bins.q, bins.w] if bins else []
        ):
            assert np.all(part.lower >= 0)
            assert np.all(part.lower <= part.upper)
            assert np.all(np.isfinite(part.lower))
        if bins:
            assert len(bins.p) == len(bins.q) == len(bins.w) == np.unique(edges).size + 1
        lower, upper = total(atoms.p, bins.p if bins else None, pair.p_only())
        assert lower <= 1 <= upper
        assert upper - lower < 1e-6


def test_only_bins_have_sums_of_1() -> None:
    """A pair that says so has no other part, so that its bins have all of P and of Q."""
    said = set[str]()
    for case, direction in CONTINUOUS:
        pair = case.mechanism.pair(direction)
        if pair.sums_to_one():
            said.add(type(pair).__name__)
            assert len(pair.atoms()) == pair.p_only().upper[0] == pair.q_only().upper[0] == 0
    assert said == {"GaussianPair", "RemovePair", "AddPair"}


@pytest.mark.one_in(3)
@ask(ASKED)
def test_masses_sum_to_1_under_q(mechanism: Mechanism, direction: Direction):
    pair = mechanism.pair(direction)
    atoms, edges = pair.atoms(), np.unique(grid(pair))
    bins = bins_of(pair, edges)
    parts = [atoms.q, pair.q_only()]
    if bins:
        reference = np.append(edges, edges[-1])
        with np.errstate(over="ignore", invalid="ignore"):
            q = Enclosure(bins.q.lower * np.exp(-reference), bins.q.upper * np.exp(-reference))
        parts.append(q)
    lower, upper = total(*parts)
    assert lower <= 1 <= upper
    largest = np.max(-pair.sketch().losses)
    if largest < 300:  # otherwise q e^r leaves the range of doubles
        assert upper - lower < 1e-6


@pytest.mark.one_in(3)
@ask(CONTINUOUS)
def test_the_ratio_of_a_cell_fits_its_masses_and_its_edges(
    mechanism: Mechanism, direction: Direction
):
    pair = mechanism.pair(direction)
    edges = np.unique(grid(pair))
    bins = bins_of(pair, edges)
    assert bins is not None
    with np.errstate(over="ignore", invalid="ignore"):
        product = bins.w.lower * bins.p.lower, bins.w.upper * bins.p.upper
    solid = (bins.p.lower > 0) & np.isfinite(product[1])
    assert np.all(consistent(product[0], product[1], bins.q)[solid])
    solid = bins.p.lower > 1e-250
    # 1 <= w <= e^length, up to what is granted to scipy for additive noise
    assert np.all(bins.w.upper[:-1][solid[:-1]] >= 1)
    length = np.append(np.diff(edges), 0.0)
    assert np.all(bins.w.lower[1:][solid[1:]] <= np.exp(length[solid[1:]]) * (1 + 1e-15))
    assert np.all(bins.w.lower[:-1][solid[:-1]] >= 1 - 1e-6)


@ask(ASKED)
def test_the_loss_of_an_atom_fits_its_masses(mechanism: Mechanism, direction: Direction):
    atoms = mechanism.pair(direction).atoms()
    assert np.all(atoms.loss_lower <= atoms.loss_upper)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.log(atoms.p.lower) - np.log(atoms.q.upper)
        high = np.log(atoms.p.upper) - np.log(atoms.q.lower)
    assert not np.any(low > atoms.loss_upper + 1e-12 * (1 + np.abs(low)))
    assert not np.any(high < atoms.loss_lower - 1e-12 * (1 + np.abs(high)))


@dataclass(frozen=True)
class Delta:
    lower: float
    upper: float


def delta(pair: Pair, epsilon: float) -> Delta:
    """delta_{P||Q}(epsilon) from bins with an edge at epsilon: no bin is cut by it."""
    edges = np.unique(np.append(grid(pair, 50), epsilon))
    bins, atoms = bins_of(pair, edges), pair.atoms()
    lower, upper = total(pair.p_only())
    if bins:
        above = np.arange(edges.size + 1) > np.searchsorted(edges, epsilon)
        # sum of P - e^eps Q over the bins above the edge
        with np.errstate(over="ignore", invalid="ignore"):
            scale = np.exp(epsilon - np.append(edges, edges[-1]))
            gain = bins.p.lower - bins.q.upper * scale, bins.p.upper - bins.q.lower * scale
        lower += float(np.sum(np.nan_to_num(gain[0][above], nan=0.0, neginf=0.0)))
        upper += float(np.sum(np.maximum(0.0, gain[1][above])))
    e = np.exp(epsilon)
    lower += float(np.sum(np.maximum(0.0, atoms.p.lower - e * atoms.q.upper)))
    upper += float(np.sum(np.maximum(0.0, atoms.p.upper - e * atoms.q.lower)))
    return Delta(lower - 1e-12, upper + 1e-12)


def test_only_tables_say_of_themselves_that_their_directions_are_apart() -> None:
    apart = [case.name for case in CASES if not case.mechanism.is_mutual()]
    # and epochs of random allocation, whose cells are above the exact pair on either side
    assert apart == [name for name in apart if "loss-table" in name or "allocated" in name]
    assert not LossTable(1.0, (1, [1.0], 0.0)).is_mutual()
    assert not LossTable(1.0, (1, [1.0], 0.0)).subsampled(0.5).is_mutual()
    assert LossTable(1.0, (1, [1.0], 0.0)).subsampled(0.0).is_mutual()


def mass_above(pair: Pair, epsilon: float) -> tuple[float, float]:
    """At least P(L >= epsilon), and at most P(L > epsilon); the first is larger at an atom."""
    atoms, edges = pair.atoms(), np.unique(np.append(grid(pair, 50), epsilon))
    edges = np.unique(np.append(edges, epsilon + 1e-9 * (1 + abs(epsilon))))
    bins, lost = bins_of(pair, edges), pair.p_only()
    at_least, at_most = float(lost.lower[0]), float(lost.upper[0])
    if bins:
        above = np.arange(edges.size + 1) > np.searchsorted(edges, epsilon)
        # a lump of mass at an edge may count as above it
        clear = np.arange(edges.size + 1) > np.searchsorted(edges, epsilon) + 1
        at_least += float(np.sum(bins.p.lower[clear]))
        at_most += float(np.sum(bins.p.upper[above]))
    at_least += float(np.sum(atoms.p.lower[atoms.loss_lower >= epsilon]))
    at_most += float(np.sum(atoms.p.upper[atoms.loss_upper > epsilon]))
    return at_least * (1 - 1e-12), at_most * (1 + 1e-12)


@pytest.mark.one_in(4)
@ask(ASKED)
def test_a_pair_and_its_reverse_are_the_two_directions(mechanism: Mechanism, direction: Direction):
    both = mechanism.in_both_orders(direction)
    assert both is not None
    assert both is mechanism or not mechanism.is_mutual()
    assert both.is_mutual()
    assert both.relation is mechanism.relation
    there, back = both.pair(direction), both.pair(direction.other)
    for epsilon in (-2.0, -0.3, -1e-3, 0.0, 1e-3, 0.3, 2.0):
        # delta of Q against P at eps is 1 - e^eps + e^eps delta of P against Q at -eps
        forward, other = delta(there, -epsilon), delta(back, epsilon)
        e = np.exp(epsilon)
        lower, upper = 1 - e + e * forward.lower, 1 - e + e * forward.upper
        assert lower <= other.upper
        assert other.lower <= upper
        assert upper - lower < 1e-6
        asked = delta(mechanism.pair(direction), epsilon)
        kept = delta(there, epsilon)
        assert asked.lower <= kept.upper
        assert kept.lower <= asked.upper


@pytest.mark.one_in(3)
@each_mechanism
def test_symmetric_means_one_delta_for_both_directions(mechanism: Mechanism):
    there, back = mechanism.pair(Direction.REMOVE), mechanism.pair(Direction.ADD)
    for epsilon in (-2.0, -0.3, -1e-3, 0.0, 1e-3, 0.3, 2.0):
        if mechanism.is_symmetric():
            one, other = delta(there, epsilon), delta(back, epsilon)
            assert one.lower <= other.upper
            assert other.lower <= one.upper


KINDS = sorted({type(case.mechanism) for case in CASES}, key=lambda kind: kind.kind)


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.kind) for kind in KINDS])
def test_a_mechanism_that_says_nothing_of_its_directions_is_asked_in_both(kind: type[Mechanism]):
    if "symmetric" not in vars(kind) and "is_symmetric" not in vars(kind):
        for case in CASES:
            if type(case.mechanism) is kind:
                assert (case.mechanism * 2).directions == tuple(Direction)


def test_noise_that_is_its_own_mirror_image_is_asked_in_one_direction():
    """A second direction would double the cost of an answer and not change it."""
    one_way = {
        case.mechanism.kind for case in CASES if (case.mechanism * 2).directions != tuple(Direction)
    }
    assert one_way >= {
        "additive",
        "discrete_gaussian",
        "discrete_laplace",
        "gaussian",
        "laplace",
        "randomized_response",
        "staircase",
        "truncated_gaussian",
        "truncated_laplace",
        "worst_case",
    }


@pytest.mark.one_in(3)
@ask(CONTINUOUS)
def test_finer_edges_refine_the_masses(mechanism: Mechanism, direction: Direction):
    pair = mechanism.pair(direction)
    fine = np.unique(grid(pair, 121))
    coarse = fine[::3]
    fine = fine[: 3 * (coarse.size - 1) + 1]
    parts, whole = bins_of(pair, fine), bins_of(pair, coarse)
    assert parts is not None
    assert whole is not None
    inner = slice(1, -1)
    for name in ("p", "q"):
        part, sum_ = getattr(parts, name)[inner], getattr(whole, name)[inner]
        if name == "q":  # in the unit of the coarse bin's right edge
            unit = np.exp(np.repeat(coarse[1:], 3) - fine[1:])
            part = Enclosure(part.lower * unit, part.upper * unit)
        lower = part.lower.reshape(-1, 3).sum(axis=1)
        upper = part.upper.reshape(-1, 3).sum(axis=1)
        good = consistent(lower, upper, sum_)
        if name == "p" or np.max(np.abs(fine)) < 600:
            assert np.all(good), name


def slack_covers(pair: Pair, edges: np.ndarray, slack: float, moves: np.ndarray) -> None:
    """The bins of edges that are known within a slack hold those of the moved edges."""
    loose = pair.bins(edges, np.full(edges.size, slack))
    moved = pair.bins(edges + moves, np.zeros(edges.size))
    assert loose is not None
    assert moved is not None
    # a lump of mass at the end of the losses goes with one edge or the other
    end = pair.grid_origin()
    near = np.abs(edges - (np.inf if end is None else end)) < 3 * slack
    clear = ~(np.append(near, False) | np.append(False, near))
    assert np.all((loose.p.lower <= moved.p.upper)[clear])
    assert np.all((moved.p.lower <= loose.p.upper)[clear])
    wide = clear & (moved.p.lower > 1e-250)
    assert np.all((loose.p.lower <= moved.p.lower * (1 + 1e-11))[wide])
    assert np.all((loose.p.upper >= moved.p.upper * (1 - 1e-11))[wide])
    # the ratio refers to the edge given, wherever the exact one is
    back = np.exp(-np.append(moves, moves[-1]))
    assert np.all((loose.w.lower <= moved.w.lower * back * (1 + 1e-11))[wide])
    assert np.all((loose.w.upper >= moved.w.upper * back * (1 - 1e-11))[wide])


@ask(EVERY_EDGE)
def test_slack_covers_edges_that_lie_elsewhere(mechanism: Mechanism, direction: Direction):
    pair = mechanism.pair(direction)
    edges = np.unique(grid(pair, 60))
    slack = min(1e-5, 1e-3 * float(np.min(np.diff(edges))))
    for move in (-slack, slack):
        slack_covers(pair, edges, slack, np.full(edges.size, move * (1 - 1e-6)))


def slack_covers_longer_bins(pair: Pair) -> None:
    """Every second bin is a hundredth of its slack; its exact edges are a slack apart."""
    edges = np.unique(grid(pair, 60))
    slack = min(1e-5, 1e-3 * float(np.min(np.diff(edges))))
    edges = np.sort(np.append(edges, edges + 0.01 * slack))
    right = np.arange(edges.size) % 2
    for move in (
        (right - 1) * slack,
        right * slack,
    ):  # one edge, outwards
        slack_covers(pair, edges, slack, move * (1 - 1e-6))


@ask(EVERY_EDGE)
def test_slack_covers_bins_that_are_longer_or_gone(mechanism: Mechanism, direction: Direction):
    """Edges that are closer than their slack: all of a bin's length may be what is not known."""
    slack_covers_longer_bins(mechanism.pair(direction))


@ask(ASKED)
def test_the_largest_loss_is_largest(mechanism: Mechanism, direction: Direction):
    pair = mechanism.pair(direction)
    lower, upper = pair.max_loss()
    assert lower <= upper
    atoms = pair.atoms()
    if len(atoms):
        assert np.max(atoms.loss_lower) <= upper
    if np.isfinite(upper):
        bins = bins_of(pair, np.array([upper + 1e-9 * (1 + abs(upper))]))
        assert bins is None or bins.p.lower[1] == 0
        # and it is attained: some mass lies at, or close below, the lower end
        bins = bins_of(pair, np.array([lower - 1e-2 * (1 + abs(lower))]))
        near = bool(len(atoms)) and np.max(atoms.loss_upper) >= lower - 1e-12 * (1 + abs(lower))
        assert near or (bins is not None and bins.p.upper[1] > 0)


@ask(ASKED)
def test_the_sketch_shows_all_the_mass(mechanism: Mechanism, direction: Direction):
    pair = mechanism.pair(direction)
    sketch = pair.sketch().sorted()
    known = float(np.sum(np.exp(sketch.log_masses))) + float(pair.p_only().upper[0])
    assert known == pytest.approx(1.0, rel=0.05)


@pytest.mark.one_in(3)
@ask(ASKED)
def test_the_tail_moment_is_an_upper_bound(mechanism: Mechanism, direction: Direction):
    pair = mechanism.pair(direction)
    edges = np.unique(grid(pair))
    bins, atoms = bins_of(pair, edges), pair.atoms()
    for s in (0.1, 1.0, 7.0):
        for i in (0, edges.size // 2, edges.size * 3 // 4):
            x = float(edges[i])
            # e^(s L) at the left edge of each bin above x: a lower bound of the moment
            terms = [np.log(1e-320) * np.ones(1)]
            with np.errstate(divide="ignore"):
                if bins:
                    terms.append(np.log(bins.p.lower[i + 1 :]) + s * edges[i:])
                above = atoms.loss_lower > x
                terms.append((np.log(atoms.p.lower) + s * atoms.loss_lower)[above])
            least = float(np.logaddexp.reduce(np.concatenate(terms)))
            assert pair.log_tail_moment(x, s)[1] >= least - 1e-12 * (1 + abs(least)) or least < -700
