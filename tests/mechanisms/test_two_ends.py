"""A mechanism with an instance of its own is answered from two pairs, the upper and the lower."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import pytest

import tightbudget as tb
from tightbudget.mechanisms.composition import Composable, Mechanism
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

_EPSILON, _DELTA = 0.7, 1e-6


@dataclass(frozen=True)
class _Between(Mechanism):
    """A mechanism that Gaussian(1) dominates, and of which Gaussian(2) is an instance."""

    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True

    def pair(self, direction: Direction) -> Pair:
        return tb.Gaussian(1.0).pair(direction)

    def instance(self) -> Mechanism:
        return tb.Gaussian(2.0)

    @property
    def apart(self) -> str:
        return "what is not known"


_UPPER, _LOWER = tb.Gaussian(1.0), tb.Gaussian(2.0)
_LAPLACE = tb.Laplace(3.0)
COMPOSITIONS = {
    "one": (_Between(), _UPPER, _LOWER),
    "many": (_Between() * 20, _UPPER * 20, _LOWER * 20),
    "mixed": (_Between() * 5 + _LAPLACE, _UPPER * 5 + _LAPLACE, _LOWER * 5 + _LAPLACE),
}

# buckets take seconds for all questions
EACH = [
    pytest.param(name, marks=pytest.mark.slow if name == "mixed" else ()) for name in COMPOSITIONS
]


@functools.cache
def _risk(one: Composable) -> tb.Risk:
    """The risk, of which each name below is one number."""
    return one.risk(_EPSILON, rtol=1e-2)


def _asked(one: Composable, name: str) -> tb.Bounds:
    risk = ("advantage", "tpr", "mu", "delta")
    if name in (*risk, "bayes_risk", "exceedance", "belief"):
        found: tb.Bounds = getattr(_risk(one), name)
        return found
    answers = {
        "epsilon": lambda c: c.epsilon(_DELTA),
        "delta at": lambda c: c.delta(_EPSILON),
        "total variation": lambda c: c.total_variation(),
        "true positives": lambda c: c.answer(fpr=0.01).bounds,
        "renyi": lambda c: c.renyi(8.0),
        "answer": lambda c: c.answer(delta=_DELTA).bounds,
        "curve": lambda c: c.curve(epsilons=[0.1, _EPSILON])[1],
        "curve of epsilons": lambda c: c.curve(deltas=[1e-3, _DELTA])[1],
        "explain": lambda c: c.explain(delta=_DELTA).bounds,
    }
    return answers[name](one)


RISING = [
    "epsilon",
    "delta at",
    "total variation",
    "true positives",
    "renyi",
    "answer",
    "curve",
    "curve of epsilons",
    "explain",
    "advantage",
    "tpr",
    "mu",
    "delta",
]


@pytest.mark.parametrize("composed", EACH)
@pytest.mark.parametrize("name", RISING)
def test_what_rises_has_the_upper_bound_of_the_pair_and_the_lower_one_of_its_instance(
    composed: str, name: str
) -> None:
    both, above, below = (_asked(one, name) for one in COMPOSITIONS[composed])
    if name == "explain":  # it asks both pairs anew, so that either may end within its own gap
        assert both.lower == pytest.approx(below.lower, rel=1e-4)
        assert both.upper == pytest.approx(above.upper, rel=1e-4)
    else:
        assert (both.lower, both.upper) == (below.lower, above.upper)
    assert both.upper > 1.1 * both.lower


@pytest.mark.parametrize("composed", EACH)
def test_what_falls_has_them_the_other_way_round(composed: str) -> None:
    both, above, below = COMPOSITIONS[composed]
    missed, most, least = (one.tradeoff([0.01, 0.3]) for one in (both, above, below))
    for i in range(2):
        assert (missed[i].lower, missed[i].upper) == (most[i].lower, least[i].upper)
    wrong, most_wrong, least_wrong = (_asked(one, "bayes_risk") for one in (both, above, below))
    assert (wrong.lower, wrong.upper) == (most_wrong.lower, least_wrong.upper)


@pytest.mark.parametrize("composed", EACH)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
def test_how_likely_a_larger_loss_is_holds_for_both_pairs(composed: str, epsilon: float) -> None:
    # with all slack there is, mu is 0 at once: it is not asked for here, and takes seconds
    both, above, below = (one.risk(epsilon, slack=1.0).exceedance for one in COMPOSITIONS[composed])
    assert both.lower <= below.lower
    assert both.upper >= above.upper
    assert both.upper <= 1.0


@pytest.mark.parametrize("composed", EACH)
def test_an_answer_between_two_pairs_is_reached_where_each_end_is(composed: str) -> None:
    both, *_ = COMPOSITIONS[composed]
    assert both.answer(delta=_DELTA, rtol=1e-4).reached
    found = both.answer(delta=_DELTA, rtol=1e-4, target=both.epsilon(_DELTA).lower * 1.001)
    assert found.bounds.relative_gap > 0.1  # a target between the two pairs decides nothing


@pytest.mark.parametrize(
    ("run", "epsilon"),
    [
        (tb.Gaussian(2.0).shuffled(30) * 5, 12.0),  # both bounds are far in a tail
        (tb.Gaussian(1.0).truncated_poisson(0.01, 80, 10_000) * 20, 6.0),  # one is
    ],
)
def test_of_bounds_that_are_far_apart_one_in_a_far_tail_is_within_a_hundredth(
    run: tb.Composition, epsilon: float
) -> None:
    rough, close = run.answer(epsilon=epsilon), run.answer(epsilon=epsilon, rtol=5e-5)
    assert rough.reached
    assert close.reached
    assert rough.bounds.apart
    assert 0.0 < 4.0 * rough.bounds.lower < rough.bounds.upper
    # a gap below the default one is as close as it was asked for, and so is a delta that counts
    assert 0.99 * close.bounds.lower <= rough.bounds.lower <= close.bounds.lower * (1.0 + 5e-5)
    wide = 1e-2 if rough.bounds.upper < 1e-15 else 1e-4
    assert close.bounds.upper * (1.0 - 5e-5) <= rough.bounds.upper
    assert rough.bounds.upper <= close.bounds.upper * (1.0 + 1.1 * wide)


def test_an_answer_between_two_pairs_is_missed_where_an_end_is() -> None:
    run = _Between() * 20 + tb.Gaussian(1.0).subsampled(0.01) * 100
    missed = run.answer(delta=1e-5, rtol=1e-15)
    assert not missed.reached
    assert "relative gap 1e-15 was not reached" in missed.why
    assert 0.0 < missed.bounds.lower < missed.bounds.upper < math.inf


def test_an_explanation_between_two_pairs_has_rows_of_both() -> None:
    rows = (_Between() * 20).explain(delta=_DELTA).details
    assert {row["bound"] for row in rows} == {"upper", "lower"}


def test_a_mechanism_whose_pair_is_exact_has_no_instance() -> None:
    assert (tb.Gaussian(1.0) * 3 + tb.Laplace(1.0)).attained is None
    assert tb.Gaussian(1.0).subsampled(0.1).instance() is None
