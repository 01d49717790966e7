"""What an answer for two directions, or beside a mass at infinity, must not leave out."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

import tightbudget as tb
from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.buckets.reading import on_buckets
from tightbudget.engine.engine import Engine
from tightbudget.engine.question import DeltaAt, EpsilonAt, Question
from tightbudget.pairs.direction import Direction

SAMPLED = tb.Gaussian(1.0).subsampled(0.1) * 100
QUESTIONS: list[Question] = [EpsilonAt(1e-5), DeltaAt(1.0)]


def worse_direction_is_asked(question: Question) -> bool:
    """Whether both orders of the directions give the larger answer of the two alone."""
    alone = {d: Engine.of({d: SAMPLED.pairs(d)}).answer(question, 1e-6).bounds for d in Direction}
    worst = max(alone.values(), key=lambda one: one.lower)
    if not min(one.upper for one in alone.values()) < 0.9 * worst.lower:
        raise AssertionError("the two directions have to differ")
    orders = itertools.permutations(Direction)
    engines = (Engine.of({d: SAMPLED.pairs(d) for d in order}) for order in orders)
    return all(e.answer(question, 1e-6).bounds.overlaps(worst) for e in engines)


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_the_worse_direction_answers_in_either_order(question: Question) -> None:
    assert worse_direction_is_asked(question)


def an_uncertain_mass_proves_nothing() -> bool:
    """Whether epsilon is inf where delta is below the exact mass at infinity, but hardly.

    A run tells the neighbours apart for certain with probability 1/3. Of so many runs that is a
    number that no double is, with a double below it that is not below the lower bound.
    """
    asked = 0
    for runs in range(1, 30):
        pairs = (tb.HistogramPair((1.0, 2.0), (0.0, 3.0)) * runs).pairs(Direction.REMOVE)
        parts = Parts.of(pairs)
        delta, exact = parts.infinity.lower, 1 - Fraction(2, 3) ** runs
        if not Fraction(delta) < exact:
            raise AssertionError("the lower bound has to be below the exact mass")
        asked += delta < parts.infinity.upper
        found = on_buckets(EpsilonAt(delta)).settled(parts)
        if found is None or found.upper < math.inf:
            return False
    return asked > 0


def test_an_epsilon_is_finite_only_if_delta_covers_the_mass_at_infinity_for_certain() -> None:
    assert an_uncertain_mass_proves_nothing()
