"""The worse direction is asked whatever the order in which the directions are given."""

from __future__ import annotations

import itertools

import pytest

import tightbudget as tb
from tightbudget.engine.engine import Engine
from tightbudget.engine.question import DeltaAt, EpsilonAt, Question
from tightbudget.pairs.pair import Direction

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
