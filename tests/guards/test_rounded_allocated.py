"""Laws of random allocation: what is lost adds up, and stated errors are raised and have all parts.

As in ``test_rounded_values.py``, they compare with exact values so closely that a line that is
turned, a million units the wrong way, makes one fail: `python -m tests.guards.sweep` finds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from flint import arb, ctx
from tests.balls import ball, mass
from tests.guards.test_rounded_gaussian import is_raised
from tests.guards.test_rounded_values import within

import tightbudget as tb
from tightbudget.mechanisms import (
    allocated_above,
    allocated_below,
    allocated_law,
    allocated_line,
    allocated_ratio,
    allocated_tails,
    allocated_transform,
    allocated_wide,
)
from tightbudget.mechanisms.allocated_law import Law, Piece
from tightbudget.mechanisms.allocated_line import AllocationLine, _Line, _Table
from tightbudget.mechanisms.allocated_plan import MARGIN, Positions
from tightbudget.mechanisms.allocated_transform import Logs
from tightbudget.mechanisms.allocated_wide import _CutRatio
from tightbudget.numerics import special
from tightbudget.numerics.enclosure import Enclosure, exact
from tightbudget.numerics.rounding import double_down, double_up
from tightbudget.pairs.direction import Direction


@pytest.fixture(autouse=True)
def _bits() -> Iterator[None]:
    before, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = before


# --------------------------------------------------------------------- laws on a lattice


def test_masses_of_the_ratio_zero_are_a_certain_loss() -> None:
    pieces = tuple(Piece(level, 0, np.array([[0.1, 0.2]])) for level in range(3))
    law = Law(1, pieces, 0.0, (1e-3, 0.0))
    pair = allocated_above.Spread(law, Positions(0.0, 1.0), exact(0.0)).pair(Direction.ADD)
    truth = 3 * Fraction(0.1) + Fraction(1e-3)
    found = Fraction(float(pair.p_only().upper[0]))
    assert truth <= found <= truth * (1 + Fraction(1, 10**12))


def of_one_mass(steps: int, error: float, lost: tuple[float, float]) -> Law:
    return Law(steps, (Piece(0, 1, np.array([[0.9]])),), error, lost)


def test_what_two_sums_have_lost_adds_up() -> None:
    a, b = of_one_mass(3, 1e-9, (0.1, 1e-3)), of_one_mass(7, 1e-9, (0.3, 1e-2))
    with mock.patch.object(allocated_law, "_tidied", lambda law, _: law):
        plan: Any = None
        found = allocated_law.sum_of_two(a, b, plan)
        assert Fraction(0.1) + Fraction(0.3) <= Fraction(found.lost[0])
        left, right = Fraction(1e-3) + Fraction(0.3), Fraction(1e-2) + Fraction(0.1)
        assert 3 * left + 7 * right <= 10 * Fraction(found.lost[1])
        both = allocated_law.sum_of_two
        assert is_raised(allocated_law, lambda: both(a, b, plan).error)
        assert is_raised(allocated_law, lambda: both(a, b, plan).lost[1])


@pytest.mark.parametrize("before", [(0.0, 0.0), (0.1, 0.3)])
@pytest.mark.parametrize("merged", [True, False])
def test_what_is_cut_off_is_lost(before: tuple[float, float], merged: bool) -> None:
    tiny = np.array([1.1e-60, 1.3e-60, 1.7e-60])
    row = np.concatenate([tiny, [0.5, 0.5], tiny])
    positions = Positions(0.0, 0.3)
    rows = np.array([row, 0.7 * row]) if merged else row[None, :]
    plan: Any = SimpleNamespace(steps=1, positions=positions)
    law = Law(1, (Piece(0, 1, rows),), 0.0, before, merged=merged)
    found = allocated_law._trimmed(law, plan)
    assert found.pieces[0].rows.shape[1] == 2
    gone = [i for i in range(8) if i not in (3, 4)]
    absent = sum((Fraction(float(row[i])) for i in gone), Fraction(before[0]))
    present = Fraction(before[1])
    for i in gone:
        place = (i + 1) * Fraction(0.3)
        present += Fraction(float(rows[1, i])) if merged else place * Fraction(float(row[i]))
    assert absent <= Fraction(found.lost[0]) <= absent * (1 + Fraction(1, 10**12))
    assert present <= Fraction(found.lost[1]) <= present * (1 + Fraction(1, 10**12))


def shares() -> allocated_ratio._Shares:
    return allocated_ratio._Shares(np.array([0.0, 0.5, 1.0, 2.0]))


def test_masses_outside_a_lattice_are_lost() -> None:
    one = shares()
    one._lose(exact(np.full(7, 0.01)), exact(np.full(5, 0.03)))
    one._lose(exact(np.full(3, 0.1)), exact(np.full(2, 0.1)))
    parts = (
        (7 * Fraction(0.01), 3 * Fraction(0.1)),
        (5 * Fraction(0.03), 2 * Fraction(0.1)),
    )
    for k, truths in enumerate(parts):
        each = [Fraction(found[k]) for found in one._lost]
        assert each[0] == 0
        assert all(truth <= found for truth, found in zip(truths, each[1:], strict=True))
        whole = Fraction(one.lost()[k])
        assert sum(each) <= whole <= sum(truths) * (1 + Fraction(1, 10**12))


@pytest.mark.parametrize("remove", [True, False])
def test_a_quotient_of_kept_masses_is_known_within_its_error(remove: bool) -> None:
    one, cell = shares(), np.array([1, 2, 3])
    absent, ratio = np.array([0.1, 0.3, 0.2]), np.array([0.3, 0.7, 1.9])
    one._add(cell, exact(absent), exact(absent * ratio), exact(ratio), remove=remove)
    _, without, present, off = one._cells[-1]
    for i, r in enumerate(ratio.tolist()):
        found = Fraction(float(present[i])) / Fraction(float(without[i]))
        assert abs(found / Fraction(r) - 1) <= Fraction(float(off[i])) <= 1e-14
    assert is_raised(allocated_ratio, lambda: one.merged()[1])


def test_an_entry_of_a_law_is_known_within_the_crowd_of_its_edge() -> None:
    """Half of a mass that is added to 0.75 is rounded away, each time in the same direction."""
    one, n = shares(), 3000
    mass = np.append(0.75, np.full(n, 2.0**-54))
    ratio = np.append(0.75, np.where(np.arange(n) % 2, 0.75, 0.6))
    one._add(np.full(n + 1, 2), exact(mass), exact(mass * ratio), exact(ratio), remove=True)
    one.add_zero(exact(np.array([0.125])))
    truths = [Fraction(1, 8), Fraction(0), Fraction(0), Fraction(0)]
    for m, r in zip(mass.tolist(), ratio.tolist(), strict=True):
        share = Fraction((r - 0.5) / 0.5)
        truths[2] += Fraction(m) * share
        truths[1] += Fraction(m) * (1 - share)
    error = Fraction(one.error())
    assert (n + 2) * Fraction(1, 2**53) <= error <= (n + 20) * Fraction(1, 2**53)
    for found, truth in zip(one.spread().tolist(), truths, strict=True):
        assert abs(Fraction(found) - truth) <= error * truth


def test_a_law_with_few_terms_at_each_edge_is_known_as_well_as_one_of_few() -> None:
    edges = np.arange(5001.0)
    one = allocated_ratio._Shares(edges)
    middle = edges[1:] - 0.3
    mass = np.full(5000, 1e-4)
    one._add(np.arange(1, 5001), exact(mass), exact(mass * middle), exact(middle), remove=True)
    assert one.error() <= 20 * 2.0**-53


def dot(x: list[Fraction], y: list[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))


def test_the_mean_of_a_law_has_moved_no_further_than_its_drift() -> None:
    one = shares()
    low, high = np.array([0.3, 0.7, 1.2]), np.array([0.31, 0.7, 1.5])
    mass = np.array([0.1, 0.3, 0.6])
    one._add(np.array([1, 2, 3]), exact(mass), exact(mass), Enclosure(low, high), remove=True)
    lengths = [Fraction(b) - Fraction(a) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    truth = dot([Fraction(m) for m in mass.tolist()], lengths)
    assert truth <= Fraction(one.drift()) <= truth * (1 + Fraction(1, 10**12))
    for array, ends in ((one._high, high), (one._low, low)):
        found = dot(*[[Fraction(x) for x in row.tolist()] for row in (array, one.edges)])
        held = dot([Fraction(m) for m in mass.tolist()], [Fraction(e) for e in ends.tolist()])
        assert abs(found - held) <= 8 * Fraction(1, 2**53)


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-9, 1e-12])
def test_masses_without_their_excess_are_still_above_the_exact_law(
    above: bool, size: float
) -> None:
    """All sums of (r - k)+, or of (k - r)+, in exact rationals; for most laws they are close."""
    random, closer = np.random.default_rng(3), 0
    for _ in range(60):
        n = int(random.integers(3, 12))
        ratio = np.sort(random.lognormal(0.0, 0.5, n))
        ratio[0] *= random.integers(0, 2)
        masses = random.dirichlet(np.ones(n))
        exact_masses = [Fraction(m) for m in masses.tolist()]
        most = masses * (1.0 + size * random.uniform(0.0, 1.0, n) ** 2) * (1.0 + 2.0**-52)
        places = [Fraction(r) for r in ratio.tolist()]
        whole = sum(exact_masses, Fraction(0))
        mean = dot(exact_masses, places)
        # the closest doubles on the side that is asked for
        ends = double_up(whole), double_down(mean)
        if above:
            ends = double_down(whole), double_up(mean)
        order = random.permutation(n)
        less = allocated_above._without_excess(ratio[order], most[order], *ends, above=above)
        found = [Fraction(m) for m in less[np.argsort(order)].tolist()]
        for k in (Fraction(0), *places, Fraction(10**9)):
            over = [max(Fraction(0), r - k if above else k - r) for r in places]
            assert dot(found, over) >= dot(exact_masses, over)
        before, after = (sum(map(Fraction, x.tolist()), -whole) for x in (most, less))
        closer += after <= before / 10**3 + Fraction(1, 10**14)
    assert closer > 10


def test_a_law_whose_mean_is_kept_from_below_sums_to_1_under_q() -> None:
    added = Direction.ADD
    spread = allocated_above.Spread.of(tb.Laplace(1.0).pair(added), added, 20, whole=True)
    pair = spread.pair(added)
    ends = [*pair.atoms().q.upper.tolist(), float(pair.q_only().upper[0])]
    whole = sum(map(Fraction, ends), Fraction(0))
    assert 1 <= whole <= 1 + Fraction(1, 10**15)


@pytest.mark.parametrize("above", [True, False])
def test_nothing_is_taken_from_masses_of_which_no_total_is_known(above: bool) -> None:
    law = Law(1, (Piece(0, 1, np.array([[0.5, 0.6]])),), 0.0, (0.0, 0.0))
    spread = allocated_above.Spread(law, Positions(0.0, 0.7), exact(np.zeros(1)))
    known = spread._known(above=above)
    most = np.array([0.5, 0.6])
    less = allocated_above._without_excess(np.array([0.7, 1.4]), most, *known, above=above)
    assert less.tolist() == most.tolist()


def test_what_is_known_of_listed_masses_is_rounded_outwards() -> None:
    law = of_one_mass(3, 0.0, (1e-3, 2e-3))
    infinite = Enclosure(np.array([0.01]), np.array([0.03]))
    spread = allocated_above.Spread(law, Positions(0.0, 1.0), infinite, drift=1e-5)
    off = Fraction(1e-5) + Fraction(MARGIN)
    tiny = Fraction(1, 10**14)
    whole, mean = map(Fraction, spread._known(above=True))
    assert 1 - Fraction(1e-3) - tiny <= whole <= 1 - Fraction(1e-3)
    assert 1 - Fraction(0.01) + off <= mean <= 1 - Fraction(0.01) + off + tiny
    whole, mean = map(Fraction, spread._known(above=False))
    left = 1 - Fraction(0.03) - Fraction(2e-3) - off
    assert whole == 1
    assert left - tiny <= mean <= left


def worth(p: list[Fraction], q: list[Fraction], k: Fraction) -> Fraction:
    return sum((max(Fraction(0), a - k * b) for a, b in zip(p, q, strict=True)), Fraction(0))


@pytest.mark.parametrize("error", [1e-4, 1e-6])
def test_masses_below_with_sums_of_1_are_dominated_whatever_the_exact_ones_are(
    error: float,
) -> None:
    """Exact masses are off by the whole error, upwards on one side of some output or the other."""
    random, found, asked = np.random.default_rng(5), 0, 0
    for turn in range(8):
        n, size = 200, Fraction(error)
        loss = np.sort(random.normal(0.0, 0.3, n))
        absent = random.dirichlet(np.full(n, 20.0))
        rows = np.array([absent, absent * np.exp(loss)])
        rows[1] *= (1.0 - 1e-2) / np.sum(rows[1])
        rows *= 1.0 - 3.0 * error * random.integers(0, 2)  # what is left may be much or nothing
        rows[0] *= 1.0 - 1e-3
        pair = allocated_below._with_totals(rows[1], rows[0], error, 1e-2, 1e-3)
        if pair is None:
            continue
        found += 1
        of_p, of_q = ([Fraction(x) for x in row.tolist()] for row in pair)
        near = Fraction(1, 10**15)
        assert -near <= sum(of_p, Fraction(1e-2)) - 1 <= 0 <= sum(of_q, Fraction(1e-3)) - 1 <= near
        cut = int(random.integers(1, n - 1)) if turn else n // 2
        p, q = ([Fraction(x) for x in row] for row in (rows[1].tolist(), rows[0].tolist()))
        for sign in (1, -1):
            far = [sign * size if i < cut else -sign * size for i in range(n)]
            exact_p = [x * (1 + off) for x, off in zip(p, far, strict=True)]
            exact_q = [x * (1 - off) for x, off in zip(q, far, strict=True)]
            # what is left of 1 is one more output
            exact_p.append(1 - Fraction(1e-2) - sum(exact_p, Fraction(0)))
            exact_q.append(1 - Fraction(1e-3) - sum(exact_q, Fraction(0)))
            if min(exact_p[-1], exact_q[-1]) < 0:  # these masses cannot be
                continue
            asked += 1
            for k in map(Fraction, np.exp(np.linspace(-0.6, 0.6, 9)).tolist()):
                assert worth(of_p, of_q, k) <= worth(exact_p, exact_q, k)
    assert found > 3
    assert asked > 5


@pytest.mark.parametrize("infinite", [0.0, 1e-2])
@pytest.mark.parametrize("direction", list(Direction))
def test_masses_below_sum_to_1_with_what_one_side_has_alone(
    direction: Direction, infinite: float
) -> None:
    n = 3000
    loss = np.linspace(-1.0, 1.0, n)
    absent = np.exp(-8.0 * (loss + 0.06) ** 2)
    absent = np.append(0.05, 0.95 * absent / np.sum(absent))  # the first one has no record
    present = np.append(0.0, absent[1:] * np.exp(loss))
    present *= (1.0 - infinite) / np.sum(present)
    at = exact(np.array([infinite]))
    pair = allocated_below._pair_below(np.array([absent, present]), 1e-9, at, direction)
    with_record, without = (float(np.sum(end)) for end in (pair.given.p.lower, pair.given.q.upper))
    only_p, only_q = float(pair.p_only().lower[0]), float(pair.q_only().upper[0])
    assert 1.0 - 1e-12 <= with_record + only_p <= 1.0
    assert 1.0 <= without + only_q <= 1.0 + 1e-11
    remove = direction is Direction.REMOVE
    assert only_p == pytest.approx(infinite if remove else 0.05, rel=1e-8)
    assert only_q == pytest.approx(0.05 if remove else infinite, abs=1e-9)


# ---------------------------------------------------------------------- one epoch's lines


@pytest.mark.parametrize("m", [0.3, 1.0, 3.3])
def test_one_step_of_an_epoch_is_the_gaussian_itself(m: float) -> None:
    k = np.array([0.01, 0.7, 1.0, 1.1, 33.3])
    line = AllocationLine(m, 1)
    shortfall, excess, cdf = line.shortfall(k), line.excess(k), line.cdf_q(k)
    for i, x in enumerate(map(arb, k.tolist())):
        d = x.log() / arb(m) + arb(m) / 2
        below, over = mass(None, d), mass(None, d - arb(m))
        assert within(float(cdf.lower[i]), below, float(cdf.upper[i]))
        assert within(float(shortfall.lower[i]), x * below - over, float(shortfall.upper[i]))
        assert within(float(excess.lower[i]), 1 - over - x * (1 - below), float(excess.upper[i]))
        assert float(cdf.upper[i]) - float(cdf.lower[i]) <= 1e-13


def test_a_shortfall_is_at_least_what_k_is_above_1() -> None:
    for k1, slack in ((3.3, 0.0), (0.1, 1e-17), (0.7, 1e-3)):
        known = Enclosure(np.zeros(1), np.full(1, math.inf))
        with mock.patch.object(AllocationLine, "_read", return_value=known):
            found = AllocationLine(0.2, 100)._shortfall(np.array([k1]), np.array([slack]))
        truth = Fraction(k1) - Fraction(slack)
        assert truth * (1 - Fraction(1, 10**12)) <= Fraction(float(found.lower[0])) <= truth


@pytest.mark.parametrize(
    "ends", [(0.0, math.inf), (2.0, 1.0)], ids=["nothing is known", "a contradiction"]
)
def test_a_shortfall_of_which_nothing_is_known_is_at_most_k(
    ends: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(k1: np.ndarray, *_: Any) -> Enclosure:
        return Enclosure(np.full_like(k1, ends[0]), np.full_like(k1, ends[1]))

    table = SimpleNamespace(place=lambda k1: np.zeros(k1.size, int), c=np.ones(1))
    line = SimpleNamespace(read=read)
    monkeypatch.setattr(allocated_line, "_Table", SimpleNamespace(of=lambda *_: table))
    monkeypatch.setattr(allocated_line, "_Line", SimpleNamespace(of=lambda *_: line))
    monkeypatch.setattr(allocated_line, "shortfall_on_a_path", lambda *_: (0.0, math.inf))
    for k1, slack in ((0.1, 1e-3), (0.7, 1e-17)):
        found = AllocationLine(1.0, 2)._read(np.array([k1]), np.array([slack]), power=2)
        truth = 1 + Fraction(k1) + Fraction(slack)
        assert truth <= Fraction(float(found.upper[0])) <= truth * (1 + Fraction(1, 10**12))


@pytest.mark.parametrize("log", [0.1, -0.3])
def test_the_bound_of_a_table_is_above_the_sum_of_its_steps(
    log: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def logs(_: float, s: np.ndarray, error: float = 0.0) -> Logs:
        return Logs(np.full(s.size, complex(log)), np.full(s.size, error))

    monkeypatch.setattr(allocated_line, "log_transform", logs)
    monkeypatch.setattr(allocated_line, "upper_transform", lambda _, c: np.full(c.size, 0.3))
    monkeypatch.setattr(allocated_wide, "_log_transform", lambda m, _, s: logs(m, s))
    for found in (_Table.of.__wrapped__(1.0, 3), _CutRatio.of.__wrapped__(0.2, 3, 9.5)):
        assert 3 * Fraction(log) <= Fraction(float(np.min(found.most)))
        assert float(np.max(found.most)) <= 3 * log + 1e-14
    # where no value is known, the crude bound is
    monkeypatch.setattr(allocated_line, "log_transform", lambda m, s: logs(m, s, math.inf))
    found = _Table.of.__wrapped__(1.0, 3)
    for c, most in zip(found.c.tolist(), found.most.tolist(), strict=True):
        assert 3 * (arb(0.3).log() + arb(c)) <= arb(most)


def test_errors_of_a_line_are_raised() -> None:
    s = 0.5 + 0.25j * np.arange(9)
    line = _Line(1.0, 3, 0.25, s, np.zeros(9, complex), np.full(9, 0.1), (-800.0, -800.0))

    def width() -> float:
        with mock.patch.object(_Line, "_aliased", return_value=np.zeros(1)):
            found = line.read(np.array([0.1]), np.zeros(1), 1)
        return float(found.upper[0]) - middle

    with mock.patch.object(allocated_line, "outwards", lambda x: 0.0 * x):
        middle = 0.0
        middle = width()
    assert is_raised(allocated_line, width, room=1e-6)


def test_errors_of_a_cut_ratios_line_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    real = allocated_wide._log_transform
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = _CutRatio.of(0.2, 100, 9.5)

    def logs(*given: Any) -> Logs:
        found = real(*given)
        return Logs(found.value, np.full(found.error.size, 1e-3))

    monkeypatch.setattr(allocated_wide, "_log_transform", logs)

    def upper() -> float:
        return ratio.excess(math.expm1(0.05), 0.0)[1] - middle

    with mock.patch.object(allocated_wide, "outwards", lambda x: 0.0 * x):
        middle = 0.0
        middle = upper()
    assert is_raised(allocated_wide, upper, room=1e-6)


# -------------------------------------------------------------------- the transform of a step


def test_errors_of_what_a_rule_leaves_out_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far fewer nodes than usual, so that what is beyond their ends is nearly all of the error."""

    def off(work: Any, s: complex) -> float:
        at, size = np.array([s]), np.array([abs(s)])
        return float(work(1.0, at, size, np.zeros(1), np.zeros(1))[1][0])

    real = special.log_normal_tail
    with monkeypatch.context() as patch:
        patch.setattr(allocated_transform, "_REACH", 3.0)
        assert is_raised(
            allocated_transform, lambda: off(allocated_transform._less, 1e-3), room=0.1
        )
    monkeypatch.setattr(
        allocated_transform,
        "log_normal_tail",
        lambda u: np.full(1, -20.0) if u.size == 1 else real(u),
    )
    assert is_raised(allocated_transform, lambda: off(allocated_transform._direct, 9.0), room=0.1)


def test_a_logarithm_near_a_zero_is_within_its_error() -> None:
    """psi = 1 + g - s is 1e-9, and known up to a half of that, or not told from 0."""
    for s in (2.0, 1.9):
        g = s - 1.0 + 1e-9
        psi = 1 + Fraction(g) - Fraction(s)
        for error in (Fraction(5e-10), Fraction(2e-9)):
            found = allocated_transform.log_of(
                np.array([complex(s)]), np.array([complex(g)]), np.array([float(error)])
            )
            value, off = arb(float(found.value[0].real)), float(found.error[0])
            if error < psi:
                assert off < 2.0
                for end in (psi - error, psi + error):
                    assert abs(ball(end).log() + arb(s) - value) <= arb(off)
            else:
                assert off == math.inf
                assert ball(psi + error).log() + arb(s) <= value


# ---------------------------------------------------------------------------- the tails


def test_errors_along_a_cut_and_on_a_path_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = allocated_tails._Cut(1.0, 3, 0.7, 0.0)
    nodes, weights = np.linspace(-3.0, -1.0, 9), np.full(9, 0.25)
    monkeypatch.setattr(allocated_tails, "_panels", lambda *_: (nodes, weights, 0.0))
    known = np.ones(9), np.full(9, 0.1)
    monkeypatch.setattr(allocated_tails._Cut, "_integrand", lambda *_: known)
    assert is_raised(allocated_tails, lambda: cut._along(0.05, 0.3, 0.1)[1])
    real = allocated_transform.log_transform

    def logs(*given: Any) -> Logs:
        found = real(*given)
        return Logs(found.value, np.full(found.error.size, 0.1))

    monkeypatch.setattr(allocated_tails, "log_transform", logs)
    monkeypatch.setattr(allocated_tails, "_panels", lambda *_: (nodes + 3.5, weights, 0.0))
    assert is_raised(allocated_tails, lambda: cut._path(0.5, 0.1)[1], room=1e-6)
