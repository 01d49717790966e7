"""Masses, quotients and formulas of one pair agree without any tolerance, and claims are true.

Each number of a pair is an enclosure. What must be equal for exact numbers is compared here in
exact sums and ball arithmetic, so that two enclosures must have a number in common. A pair whose
enclosures pay for no rounding has single doubles there, which are almost never equal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from flint import arb
from tests.laws.test_pairs import ASKED, CHOOSES, CONTINUOUS, ask, grid

from tightbudget.mechanisms import Mechanism
from tightbudget.numerics.enclosure import Enclosure
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Bins, Pair

EPSILONS = (-2.0, -0.3, -1e-3, 0.0, 1e-3, 0.3, 0.7, 2.0)
PLACES = 2  # losses drawn beside the ones where a formula may change
# A sampled pair counts mass within 90 units of 2^-53 of its largest loss above an edge there, as
# the protocol allows of a lump; sampled again, within some 200. Relative to the largest loss:
LUMP = 512 * 2.0**-53
# A pair in CHOOSES finds its outputs by bisection, to 1e-13 of their range of some 80, and puts in
# w how far a loss may then lie below the left edge. Sampling keeps that w.
FOUND = arb(1e-11)


def places(pair: Pair) -> list[float]:
    """Losses where a formula of masses may change: kinks of the sketch, ends, zero, and others."""
    around = grid(pair, 50)
    random = np.random.default_rng(7)
    found = [0.0, *random.uniform(around[1], around[-2], PLACES)]
    found += [end for end in (pair.grid_origin(), *pair.max_loss()) if end is not None]
    found += [-x for x in found]
    return sorted({float(x) for x in found if math.isfinite(x) and abs(x) < 600})


def single(pair: Pair) -> Iterator[np.ndarray]:
    """One edge each, whose two bins have the smallest margins of all."""
    return (np.array([x]) for x in places(pair))


def close(pair: Pair) -> Iterator[np.ndarray]:
    """Doubles side by side, and all places at once."""
    found = places(pair)
    for x in found:
        yield np.unique(np.nextafter(x, [-np.inf, x, np.inf]))
    yield np.array(found)


def asked(pair: Pair, edges: np.ndarray) -> Bins | None:
    return pair.bins(edges, np.zeros(edges.size))


def references(edges: np.ndarray) -> np.ndarray:
    """The loss that the Q-mass of each bin refers to."""
    return np.append(edges, edges[-1])


def meets(one: tuple[arb, arb], other: tuple[arb, arb]) -> bool:
    """Whether two enclosures may have a number in common; False is certain."""
    return not (one[0] > other[1] or other[0] > one[1])


def q_masses(bins: Bins, edges: np.ndarray) -> tuple[list[arb], list[arb]]:
    """The ends of each bin's Q-mass."""
    scale = [(-arb(float(r))).exp() for r in references(edges)]
    return (
        [arb(float(x)) * e for x, e in zip(bins.q.lower, scale, strict=True)],
        [arb(float(x)) * e for x, e in zip(bins.q.upper, scale, strict=True)],
    )


def sums(enclosure: Enclosure) -> tuple[arb, arb]:
    """The exact sums of the lower and of the upper ends."""
    lower, upper = (
        sum(map(arb, end.tolist()), arb(0)) for end in (enclosure.lower, enclosure.upper)
    )
    return lower, upper


@pytest.mark.one_in(4)
@ask(ASKED)
def test_masses_sum_to_exactly_1(mechanism: Mechanism, direction: Direction) -> None:
    pair = mechanism.pair(direction)
    atoms, lost = pair.atoms(), pair.p_only()
    # the rounded sum of doubles has the sign of the exact one
    p = [
        (math.fsum([-1.0, *one, *other]), [*one, *other])
        for one, other in ((atoms.p.lower, lost.lower), (atoms.p.upper, lost.upper))
    ]
    fixed = [sums(atoms.q), sums(pair.q_only())]
    q = sum((part[0] for part in fixed), arb(0)), sum((part[1] for part in fixed), arb(0))
    if asked(pair, np.zeros(1)) is None:
        assert p[0][0] <= 0 <= p[1][0]
        assert meets(q, (arb(1), arb(1))), q
        return
    for edges in single(pair):
        bins = asked(pair, edges)
        assert bins is not None
        least = math.fsum([-1.0, *p[0][1], *bins.p.lower])
        most = math.fsum([-1.0, *p[1][1], *bins.p.upper])
        assert least <= 0 <= most, (edges, least, most)
        if np.all(np.isfinite(bins.q.upper)):
            low, high = q_masses(bins, edges)
            total = q[0] + sum(low, arb(0)), q[1] + sum(high, arb(0))
            assert meets(total, (arb(1), arb(1))), (edges, total)


@pytest.mark.one_in(3)
@ask(CONTINUOUS)
def test_masses_of_bins_add_up_exactly(mechanism: Mechanism, direction: Direction) -> None:
    pair = mechanism.pair(direction)
    fine = np.unique([np.nextafter(x, side) for x in places(pair) for side in (-np.inf, x, np.inf)])
    parts, ends = asked(pair, fine), [pair.grid_origin(), *pair.max_loss()]
    known = [end for end in ends if end is not None and math.isfinite(end)]
    assert parts is not None
    # which fine edges are kept: bins of 2, of 3 and of 6 parts
    for kept in (slice(0, None, 2), slice(1, None, 3), slice(2, None, 6)):
        edges = fine[kept]
        whole = asked(pair, edges)
        assert whole is not None
        cuts = [0, *(np.arange(fine.size)[kept] + 1), fine.size + 1]
        part_q, one_q = q_masses(parts, fine), q_masses(whole, edges)
        for i, (a, b) in enumerate(itertools.pairwise(cuts)):
            around = edges[max(0, i - 1) : i + 1]
            # a lump within rounding of the largest loss goes above an edge there, and how much
            # that is depends on which other edges there are
            if any(np.any(np.abs(around - end) <= LUMP * abs(end)) for end in known):
                continue
            assert math.fsum([*parts.p.lower[a:b], -whole.p.upper[i]]) <= 0, around
            assert math.fsum([*parts.p.upper[a:b], -whole.p.lower[i]]) >= 0, around
            if np.all(np.isfinite(parts.q.upper[a:b])) and np.isfinite(whole.q.upper[i]):
                total = (sum(part_q[0][a:b], arb(0)), sum(part_q[1][a:b], arb(0)))
                assert meets(total, (one_q[0][i], one_q[1][i])), around


@pytest.mark.one_in(3)
@ask(CONTINUOUS)
def test_the_quotient_of_a_bin_is_exactly_that_of_its_masses(
    mechanism: Mechanism, direction: Direction
) -> None:
    pair = mechanism.pair(direction)
    found = FOUND if any(name in repr(mechanism) for name in CHOOSES) else arb(0)
    for edges in close(pair):
        bins = asked(pair, edges)
        assert bins is not None
        for i in range(edges.size + 1):
            p, q, w = (
                (arb(float(e.lower[i])), arb(float(e.upper[i]))) for e in (bins.p, bins.q, bins.w)
            )
            assert bins.w.lower[i] <= bins.w.upper[i]
            if bins.p.lower[i] > 0 and np.isfinite(bins.w.upper[i] * bins.p.upper[i]):
                assert meets((p[0] * w[0], p[1] * w[1]), q), (edges, i)
            if bins.p.lower[i] > 0:
                if i < edges.size:
                    assert bins.w.upper[i] >= 1, (edges, i)
                if 0 < i < edges.size:
                    most = (arb(float(edges[i])) - arb(float(edges[i - 1]))).exp()
                    assert not w[0] > most * (1 + found), (edges, i)


@pytest.mark.one_in(3)
@ask(ASKED)
def test_the_loss_of_an_atom_is_exactly_that_of_its_masses(
    mechanism: Mechanism, direction: Direction
) -> None:
    atoms = mechanism.pair(direction).atoms()
    n = len(atoms)
    for i in range(0, n, max(1, n // 200)):
        if atoms.q.lower[i] > 1e-290 and atoms.p.lower[i] > 1e-290:
            p = [arb(float(end[i])) for end in (atoms.p.lower, atoms.p.upper)]
            q = [arb(float(end[i])) for end in (atoms.q.lower, atoms.q.upper)]
            loss = (arb(float(atoms.loss_lower[i])), arb(float(atoms.loss_upper[i])))
            assert meets(((p[0] / q[1]).log(), (p[1] / q[0]).log()), loss), i


# ------------------------------------------------------------------------ delta of one run


def of_masses(pair: Pair, epsilon: float) -> tuple[arb, arb]:
    """delta_{P||Q}(epsilon) by masses, with an edge at epsilon."""
    edges, atoms = np.array([epsilon]), pair.atoms()
    bins, lost = asked(pair, edges), pair.p_only()
    e = arb(epsilon).exp()
    lower, upper = arb(float(lost.lower[0])), arb(float(lost.upper[0]))
    if bins is not None:
        # above the one edge; q carries e^epsilon
        lower += arb(float(bins.p.lower[1])) - arb(float(bins.q.upper[1]))
        upper += arb(float(bins.p.upper[1])) - arb(float(bins.q.lower[1]))
    for a, b, c, d in zip(atoms.p.lower, atoms.p.upper, atoms.q.lower, atoms.q.upper, strict=True):
        low, high = arb(float(a)) - e * arb(float(d)), arb(float(b)) - e * arb(float(c))
        lower += low if low > 0 else arb(0)
        upper += arb(0) if high < 0 else high
    return lower, upper


def of_formula(pair: Pair, epsilon: float) -> tuple[arb, arb] | None:
    """delta_{P||Q}(epsilon) by the pair's formula."""
    found = pair.closed_delta(epsilon)
    return None if found is None else (arb(found[0]), arb(found[1]))


def few_atoms(pair: Pair) -> bool:
    """Whether the pair has so few atoms that each may be looked at in ball arithmetic."""
    return len(pair.atoms()) <= 5000


def epsilons(pair: Pair) -> list[float]:
    """Where to ask: rounding is worst near the largest loss and near zero."""
    top = pair.max_loss()[1]
    more = [top * x for x in (1 - 1e-9, 0.5, 1e-9)] if 0 < top < 600 else []
    return [*EPSILONS, *more]


@pytest.mark.one_in(3)
@ask(ASKED)
def test_the_formula_of_delta_is_exactly_what_masses_say(
    mechanism: Mechanism, direction: Direction
) -> None:
    pair = mechanism.pair(direction)
    if not few_atoms(pair):
        return
    for epsilon in epsilons(pair):
        closed = of_formula(pair, epsilon)
        if closed is None:
            continue
        assert not closed[0] > closed[1]
        masses = of_masses(pair, epsilon)
        assert meets(closed, masses), (epsilon, closed, masses)


# either direction says the same, with epsilons of both signs
@pytest.mark.one_in(3)
@ask([(case, direction) for case, direction in ASKED if direction is Direction.REMOVE])
def test_directions_are_exactly_what_is_said_of_them(
    mechanism: Mechanism, direction: Direction
) -> None:
    one, other = mechanism.pair(direction), mechanism.pair(direction.other)
    if not few_atoms(one) or not few_atoms(other):
        return
    for read in (of_masses, of_formula):
        for epsilon in (-0.3, 0.0, 0.7) if read is of_masses else EPSILONS:
            here = read(one, epsilon)
            there = read(other, epsilon) if mechanism.is_symmetric() else None
            if here is not None and there is not None:
                assert meets(here, there), (read.__name__, epsilon)
            back = read(other, -epsilon) if mechanism.is_mutual() else None
            if here is not None and back is not None:
                # delta of Q against P at -eps is 1 - e^-eps + e^-eps delta of P against Q at eps
                e = (-arb(epsilon)).exp()
                turned = (1 - e + e * here[0], 1 - e + e * here[1])
                assert meets(turned, back), (read.__name__, epsilon)


# ------------------------------------------------------------------------------- moments


@pytest.mark.one_in(3)
@ask(ASKED)
def test_moments_are_those_of_the_masses(mechanism: Mechanism, direction: Direction) -> None:
    """Of ``log_moment`` and ``log_tail_moment`` both ends count: the lower one, too."""
    pair = mechanism.pair(direction)
    edges = np.unique([*grid(pair, 120), 0.0])
    bins, atoms = asked(pair, edges), pair.atoms()
    for s in (0.25, 1.0, 7.0):
        with np.errstate(divide="ignore"):
            low = np.log(atoms.p.lower) + s * atoms.loss_lower
            high = np.log(atoms.p.upper) + s * atoms.loss_upper
            if bins is not None:
                # a lump may lie within rounding below its bin: 64 units of the edge
                left = edges - 64 * 2.0**-53 * np.abs(edges)
                low = np.append(low, np.log(bins.p.lower[1:]) + s * left)
                tail, top = pair.log_tail_moment(float(edges[-1]), s)[1], pair.max_loss()[1]
                if math.isfinite(top):
                    tail = min(tail, float(np.log(bins.p.upper[-1])) + s * top)
                high = np.concatenate([high, np.log(bins.p.upper[:-1]) + s * edges, [tail]])
        least, most = float(np.logaddexp.reduce(low)), float(np.logaddexp.reduce(high))
        hair = 1e-12 * (1.0 + abs(least) + (abs(most) if math.isfinite(most) else 0.0))
        found = [pair.log_tail_moment(-math.inf, s)]
        if pair.log_rest(s) == -math.inf:
            found.append(pair.log_moment(s))
        for lower, upper in found:
            assert lower <= upper
            assert upper >= least - hair
            assert lower <= most + hair


@ask(ASKED)
def test_lines_are_closer_only_where_there_are_lines(
    mechanism: Mechanism, direction: Direction
) -> None:
    pair = mechanism.pair(direction)
    assert not pair.lines_are_closer() or pair.transform() is not None
