"""A gap out of reach: what a refused question carries, and what it says to ask for instead."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest

import tightbudget as tb
from tightbudget.engine import engine
from tightbudget.engine.answer import Answer
from tightbudget.engine.buckets import compose, refine
from tightbudget.numerics.bounds import Bounds

PLANS = {
    "buckets": tb.Laplace(20.0) * 10,
    "saddle points": tb.Gaussian(1.0).subsampled(0.01) * 100,
    "both": tb.Gaussian(2.0) + tb.Laplace(3.0),
    "atoms": tb.RandomizedResponse(0.6) * 200,
    "one run": tb.Laplace(2.0) * 1,
}
GAPS = (1e-4, 1e-8, 1e-12, 1e-14)
ASKED: tuple[dict[str, float], ...] = ({"delta": 1e-5}, {"epsilon": 0.5})


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays an eighth as long as they may be.

    The plans that need more are refused for the same reasons then, after as many lengthenings of
    the arrays, in a tenth of the time. Arrays of the whole length have a test of their own.
    """
    assert compose.MAX_LENGTH == 16 * refine.FIRST_LENGTH == 2**21
    monkeypatch.setattr(compose, "MAX_LENGTH", 2**18)
    monkeypatch.setattr(refine, "MAX_LENGTH", 2**18)
    monkeypatch.setattr(engine, "FIRST_LENGTH", 2**14)


@pytest.mark.slow
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_smaller_gap_never_says_much_less(plan: tb.Composition, asked: dict[str, float]) -> None:
    """A refused question knows what a wider gap would have proved, up to a factor of ten."""
    answers = [plan.answer(**asked, rtol=rtol) for rtol in GAPS]
    for rtol, answer in zip(GAPS, answers, strict=True):
        # at the largest loss itself delta is known to 1e-12, and that is an answer
        close = answer.bounds.relative_gap <= rtol or answer.bounds.width <= 1e-12
        assert close or not answer.reached
        assert answer.bounds.overlaps(answers[0].bounds)
    for wider, answer in itertools.pairwise(answers):
        assert answer.bounds.relative_gap <= max(10 * wider.bounds.relative_gap, 1e-12)
        assert answer.bounds.upper < math.inf or wider.bounds.upper == math.inf


@pytest.mark.slow
def test_a_plan_that_cannot_be_carried_out_is_followed_by_wider_ones() -> None:
    """The arrays for 1e-12 are too long at once; the bounds are those of a wider gap."""
    wider = (tb.Laplace(3.0) * 7).epsilon(1e-5, rtol=1e-10)
    with pytest.raises(tb.PrecisionError, match=r"a measure would need \d{7} buckets") as caught:
        (tb.Laplace(3.0) * 7).epsilon(1e-5, rtol=1e-12)
    found = Bounds(caught.value.lower, caught.value.upper)
    assert found.relative_gap <= wider.relative_gap
    assert found.overlaps(wider)


def test_a_refusal_leads_with_its_bounds_and_says_what_to_ask_for() -> None:
    run = tb.Gaussian(1.0).subsampled(0.01) * 100
    with pytest.raises(tb.PrecisionError) as caught:
        run.epsilon(1e-5, rtol=1e-15)
    message = str(caught.value)
    assert message.startswith(f"epsilon at delta = 1e-05 is in [{str(caught.value.lower)[:6]}")
    assert "relative gap 1e-15 was not reached, since the rounding of doubles" in message
    said = re.search(r"; ask for rtol=(\S+) or more$", message)
    assert said is not None
    assert run.epsilon(1e-5, rtol=float(said[1])).relative_gap <= float(said[1])


def test_where_nothing_is_known_no_gap_is_recommended() -> None:
    missed = Answer.missed("epsilon at delta = 0.1", Bounds(0.0, math.inf), 1e-4, reason="of this")
    assert missed.why == (
        "epsilon at delta = 0.1 is in [0.0, inf] (relative gap inf): "
        "relative gap 0.0001 was not reached, since of this"
    )
    assert not missed.reached


@pytest.mark.slow
def test_an_answer_that_was_reached_is_the_public_one() -> None:
    run = tb.Laplace(2.0) * 3
    answer = run.answer(delta=1e-3)
    assert answer.reached
    assert (answer.method, answer.why) == ("buckets", "")
    assert answer.bounds == answer.required() == run.epsilon(1e-3)
    assert run.answer(epsilon=0.3).bounds == run.delta(0.3)
    assert run.answer(epsilon=math.inf).bounds == run.delta(math.inf)
    assert run.answer(order=2.0).bounds == run.renyi(2.0)
    # with all slack there is, mu is 0 at once: it is not asked for here, and takes seconds
    assert run.answer(fpr=0.1).bounds == run.risk(0.3, fpr=0.1, slack=1.0).tpr


@pytest.mark.parametrize("asked", [{}, {"delta": 0.1, "epsilon": 1.0}, {"fpr": 0.1, "order": 2.0}])
def test_an_answer_is_to_one_question(asked: dict[str, float]) -> None:
    with pytest.raises(tb.ParameterError, match="give exactly one of delta, epsilon, fpr"):
        (tb.Laplace(2.0) * 3).answer(**asked)


def test_an_answer_stops_at_its_target() -> None:
    run = tb.Laplace(2.0) * 3
    above, below = (run.answer(epsilon=0.3, rtol=1e-6, target=t) for t in (1e-6, 0.9))
    assert above.reached
    assert below.reached
    assert above.bounds.lower > 1e-6
    assert below.bounds.upper <= 0.9


@pytest.mark.parametrize("target", [math.nan, math.inf, "1", True])
def test_a_target_is_a_finite_number(target: Any) -> None:
    with pytest.raises(tb.ParameterError, match=r"^target must be a finite number, got "):
        (tb.Laplace(2.0) * 3).answer(epsilon=0.3, target=target)
