"""Without what pays for a lattice, a law of averages is on neither side of the truth."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.mechanisms import (
    allocated,
    allocated_below,
    allocated_law,
    allocated_plan,
    allocated_ratio,
)
from tightbudget.mechanisms.allocated_above import Spread
from tightbudget.mechanisms.allocated_below import Merged, Sums
from tightbudget.mechanisms.allocated_plan import LogLabels
from tightbudget.numerics.enclosure import exact as exact_mass
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import zero

GAUSSIAN = tb.Gaussian(1.0)
LAPLACE = tb.Laplace(1.0)
REMOVE, ADD = Direction.REMOVE, Direction.ADD
# delta of a removed record at 0.1, of 1,000 Gaussian steps of sigma 1; the value has 14 digits
EXACT = 1.48206902727411e-4


def _fresh() -> None:
    for kept in (
        allocated._pair_of_law,
        allocated._kept_above,
        allocated._kept_below,
        allocated._kept_sums,
    ):
        kept.cache_clear()


def _mean(law: Spread) -> float:
    return sum(
        float(np.sum(piece.rows[0] * law.positions.ratio(index, law.law.steps)))
        for piece, index in law.law.placed()
    )


def spreading_keeps_the_mean() -> bool:
    """E R = 1, for the mass that goes to two points as for the mass that stays."""
    law = Spread.of(LAPLACE.pair(REMOVE), REMOVE, 200)
    return abs(_mean(law) - 1.0) < 1e-7


def one_ratio_keeps_its_mean() -> bool:
    law = Spread.of(LAPLACE.pair(REMOVE), REMOVE, 1)
    return abs(_mean(law) - 1.0) < 1e-9


def what_is_lost_above_is_infinite() -> bool:
    law = Spread.of(GAUSSIAN.pair(REMOVE), REMOVE, 3)
    law = dataclasses.replace(law, law=dataclasses.replace(law.law, lost=(1e-3, 2e-3)))
    lost = [float(law.pair(direction).p_only().upper[0]) for direction in (ADD, REMOVE)]
    return lost[0] >= 1e-3 and lost[1] >= 2e-3


def rounding_raises_what_is_above() -> bool:
    law = Spread.of(LAPLACE.pair(ADD), ADD, 3)
    worse = dataclasses.replace(law, law=dataclasses.replace(law.law, error=0.5))
    return bool(np.sum(worse.pair(ADD).atoms().p.upper) > 1.4)


def a_ratio_of_zero_is_a_certain_loss() -> bool:
    """A step that shows, with chance 0.2, that it has no record: three do so with 0.2^3."""
    base = tb.HistogramPair((1.0, 4.0, 0.0), (1.0, 3.0, 1.0))
    exact = float(Fraction(1, 5) ** 3)
    epoch = Spread.of(base.pair(ADD), ADD, 3)
    return float(epoch.pair(ADD).p_only().upper[0]) >= exact * (1 - 1e-9)


def masses_of_the_ratio_zero_are_summed_outwards() -> bool:
    """Every piece has an entry at the ratio 0; the exact sum of these is no double."""
    # what other ratios leave of 1 is more than that, or as much: one end each shows the sum
    for small, other in itertools.product((2.0**-60, 2.0**-55 + 2.0**-60), (0.125, 0.25)):
        masses = [0.25, small, small]
        pieces = tuple(
            allocated_law.Piece(level, 0, np.array([[mass, other]]))
            for level, mass in enumerate(masses)
        )
        law = allocated_law.Law(1, pieces, 0.0, (0.0, 0.0))
        positions = allocated_plan.Positions(0.0, 1.0)
        alone = Spread(law, positions, exact_mass(0.0)).pair(REMOVE).q_only()
        truth = sum(map(Fraction, masses))
        if not Fraction(float(alone.lower[0])) <= truth <= Fraction(float(alone.upper[0])):
            return False
    return True


def what_is_below_is_worth_less() -> bool:
    law = Merged.of(LAPLACE.pair(REMOVE), REMOVE, 3)
    worse = dataclasses.replace(law, law=dataclasses.replace(law.law, error=0.25)).pair(REMOVE)
    return bool(np.sum(worse.atoms().p.lower) < 0.8)


def what_is_dropped_below_is_rounded_outwards() -> bool:
    """The last output has what the others leave of 1: less of P, more of Q than that."""
    first, error = 1.0 - 2.0**-46, 2.0**-70
    for small in (2.0**-55, 2.0**-54 + 2.0**-60):
        row = [first, small, small, small]
        pair = allocated_below._pair_below(np.array([row, row]), error, zero(), REMOVE)
        atoms, left = pair.atoms(), 1 - sum(map(Fraction, row))
        if len(atoms) != 5:
            return False
        dropped = int(np.argsort(atoms.p.upper)[-2])  # the largest one but the first
        if not Fraction(float(atoms.p.lower[dropped])) <= left:
            return False
        if not Fraction(float(atoms.q.upper[dropped])) >= left:
            return False
    return True


def masses_below_are_off_whatever_they_sum_to() -> bool:
    """All of P may be less at large losses and more at small ones, and Q the other way round."""
    loss = np.linspace(-1.0, 1.0, 4000)
    q = np.exp(-8.0 * loss**2)
    q /= np.sum(q)
    p = q * np.exp(loss)
    p /= np.sum(p)
    error, sign = 1e-4, np.where(loss > 0.0, -1.0, 1.0)
    pair = allocated_below._pair_below(np.array([q, p]), error, zero(), REMOVE)
    truth = float(np.sum(np.maximum(0.0, p * (1 + error * sign) - q * (1 - error * sign))))
    atoms = pair.atoms()
    return float(np.sum(np.maximum(0.0, atoms.p.lower - atoms.q.upper))) <= truth


def rounding_grows_with_the_terms() -> bool:
    one = allocated_ratio.OneRatio.of(LAPLACE.pair(REMOVE), REMOVE, 64).shares.error()
    return Spread.of(LAPLACE.pair(REMOVE), REMOVE, 64).law.error > 1.2 * 64 * one


def many_terms_at_one_edge_round_more() -> bool:
    one = allocated_ratio._Shares(np.array([0.0, 1.0]))
    mass = np.append(0.75, np.full(3000, 2.0**-54))
    at = exact_mass(np.ones(3001))
    one._add(np.ones(3001, int), exact_mass(mass), exact_mass(mass), at, remove=True)
    truth = sum(map(Fraction, mass.tolist()))
    return abs(Fraction(float(one.spread()[1])) - truth) <= Fraction(one.error()) * truth


def a_mean_that_has_moved_is_known_no_better() -> bool:
    law = dataclasses.replace(Spread.of(LAPLACE.pair(REMOVE), REMOVE, 3), drift=1e-3)
    return law._known(above=True)[1] >= 1.001 and law._known(above=False)[1] <= 0.999


def bounds_of_a_nested_epoch_have_no_total() -> bool:
    """The masses of an epoch from above are bounds, which may sum to more than 1."""
    nested = allocated._kept_above(GAUSSIAN.allocated(3), 2, REMOVE)
    return nested.drift == np.inf and allocated._kept_above(GAUSSIAN, 2, REMOVE).drift < 1e-12


def what_is_cut_is_lost() -> bool:
    """Ratios between e^-1 and e have no tail beyond the lattice, but sums of many are cut."""
    law = Spread.of(LAPLACE.pair(REMOVE), REMOVE, 500).law
    return law.lost[0] > 0.0


def an_uncertain_quotient_counts() -> bool:
    law = Merged.of(tb.Additive("logistic").pair(REMOVE), REMOVE, 2).law
    return law.error > 1e-9


def masses_that_are_cut_may_belong_to_any_sum() -> bool:
    law = Sums.of(GAUSSIAN.pair(REMOVE), REMOVE, 20, 2, LogLabels(0.5, far=False))
    return law.error > 1e-9


def a_formula_is_of_one_epoch() -> bool:
    epoch = GAUSSIAN.allocated(20)
    return (epoch * 2).delta(0.5, rtol=1e-2).lower > 1.1 * epoch.delta(0.5).upper


MUTATIONS = [
    Without(
        "an odd point goes to both neighbours",
        {"odd-point-spread": "pass"},
        spreading_keeps_the_mean,
    ),
    Without(
        "the mean of a cell is kept",
        {"mean-is-kept": "share = np.clip((at - left) / width, 0.0, 1.0) * 0.0"},
        one_ratio_keeps_its_mean,
    ),
    Without(
        "what is lost is infinite",
        {"lost-is-infinite": "only = [float(self.infinite.upper[0])]"},
        what_is_lost_above_is_infinite,
    ),
    Without(
        "a ratio that may be zero has no least one",
        {"least-ratio-not-zero": "never = Enclosure(np.zeros(1), np.zeros(1))"},
        a_ratio_of_zero_is_a_certain_loss,
    ),
    Without(
        "rounding raises masses above",
        {"spread-rounding": "most = rows"},
        rounding_raises_what_is_above,
    ),
    Without(
        "a ratio of zero is infinite",
        {"zero-ratio-is-infinite": "pass"},
        a_ratio_of_zero_is_a_certain_loss,
    ),
    Without(
        "the masses of the ratio zero are summed upwards",
        {"nothing-summed-outwards": "alone = (sum_down(nothing), float(np.sum(nothing)))"},
        masses_of_the_ratio_zero_are_summed_outwards,
    ),
    Without(
        "the masses of the ratio zero are summed downwards",
        {"nothing-summed-outwards": "alone = (float(np.sum(nothing)), sum_up(nothing))"},
        masses_of_the_ratio_zero_are_summed_outwards,
    ),
    Without(
        "what is dropped has no more of P than is left",
        {"dropped-of-p": "whole = (1.0 + error) * float(np.sum(p))"},
        what_is_dropped_below_is_rounded_outwards,
    ),
    Without(
        "what is dropped has no less of Q than is left",
        {"dropped-of-q": "kept = (1.0 - error) * float(np.sum(q))"},
        what_is_dropped_below_is_rounded_outwards,
    ),
    Without(
        "rounding lowers masses below",
        {"merged-rounding": "least, most = p, q"},
        what_is_below_is_worth_less,
    ),
    Without(
        "masses of a chain of tests are off by their error",
        {"chain-rounding": "most = 8 * UNIT"},
        masses_below_are_off_whatever_they_sum_to,
    ),
    Without(
        "a sum of products rounds",
        {"sum-rounding": "error += 0.0"},
        rounding_grows_with_the_terms,
    ),
    Without(
        "terms that fall at one edge round together",
        {"crowd-of-an-edge": "return 16 * UNIT"},
        many_terms_at_one_edge_round_more,
    ),
    Without(
        "the mean of the law may have moved",
        {"mean-has-moved": "off = 0.0"},
        a_mean_that_has_moved_is_known_no_better,
    ),
    Without(
        "bounds of a pair from above have no total",
        {"bounds-have-no-total": "whole = True"},
        bounds_of_a_nested_epoch_have_no_total,
    ),
    Without(
        "what is cut off is lost",
        {"cut-is-lost": "absent.append(0.0)"},
        what_is_cut_is_lost,
    ),
    Without(
        "a quotient that is uncertain counts as an error",
        {"uncertain-quotient": "return rows, 0.0"},
        an_uncertain_quotient_counts,
    ),
    Without(
        "what is cut off sums belongs to any of them",
        {"cut-below-is-added": "error = max(absent.error, present.error)"},
        masses_that_are_cut_may_belong_to_any_sum,
    ),
    Without(
        "the formula of one epoch is not that of two",
        {"formula-of-one-run": "once = True"},
        a_formula_is_of_one_epoch,
    ),
]


@pytest.mark.one_in(4)
@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    _fresh()
    try:
        lose_a_truth(monkeypatch, mutation)
    finally:
        _fresh()


@pytest.mark.slow
def test_the_truth_is_between_the_laws() -> None:
    epoch = GAUSSIAN.allocated(1000)
    assert allocated_plan.within_reach(GAUSSIAN.pair(REMOVE), REMOVE)
    assert epoch.delta(0.1).lower <= EXACT <= epoch.delta(0.1).upper
