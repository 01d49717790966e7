"""A delta close to 1 is shown by a part of the runs, and by nothing that it leaves behind."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.exact import response_delta

import tightbudget as tb
from tightbudget.engine.cache import Cache
from tightbudget.engine.methods import ByFewerRuns, Inquiry, _fewer
from tightbudget.engine.question import DeltaAt, EpsilonAt

LONG = {
    "sampled": tb.Laplace(2.0).subsampled(0.5) * 50_000,
    "beside what adds little": tb.Laplace(1.0) * 20_000
    + tb.Logistic(10.0).subsampled(1e-6) * 3_000_000,
}
long = pytest.mark.parametrize("run", LONG.values(), ids=LONG)


@long
def test_a_part_of_the_runs_shows_a_delta_of_nearly_one(run: tb.Composition) -> None:
    told = run.answer(epsilon=2.0)
    assert 1.0 - 1e-4 <= told.bounds.lower < 1.0
    assert told.bounds.upper == 1.0


@long
def test_what_is_left_is_a_part_of_the_composition(run: tb.Composition) -> None:
    for parts in run.engine.parts:
        fewer = _fewer(parts, 2.0, 1e-4)
        assert fewer is not None
        counts = {id(part.pair): part.count for part in parts.parts}
        assert all(part.count <= counts[id(part.pair)] for part in fewer.parts)
        assert sum(part.count for part in fewer.parts) < 0.5 * sum(counts.values())


def test_one_part_alone_may_show_a_delta_of_nearly_one() -> None:
    run = tb.Laplace(0.63) * 82 + tb.Gaussian(0.804).subsampled(0.00585) * 525_000
    for parts in (run + tb.Logistic(28.0).subsampled(1e-3) * 8_700).engine.parts:
        fewer = _fewer(parts, 6.49, 1e-4)
        assert fewer is not None
        assert len(fewer.parts) == 1
        assert fewer.parts[0].count <= 82
    told = (run + tb.Logistic(28.0).subsampled(1e-3) * 8_700).delta(6.49)
    assert 1.0 - 1e-4 <= told.lower <= told.upper == 1.0


@pytest.mark.parametrize(("runs", "epsilon"), [(600, 2.0), (1000, -3.0), (1000, 40.0)])
@pytest.mark.parametrize("rtol", [1e-3, 1e-6])
def test_fewer_runs_prove_no_more_than_all_have(runs: int, epsilon: float, rtol: float) -> None:
    """Randomised response, whose delta is a binomial sum."""
    parts = (tb.RandomizedResponse(0.75) * runs).engine.parts
    proved = ByFewerRuns(parts).bounds(Inquiry(DeltaAt(epsilon), rtol))
    _, exact = response_delta(Fraction(3, 4), runs, epsilon)
    assert proved is not None
    assert 1 - Fraction(rtol) <= Fraction(proved.bounds.lower) <= exact
    assert Fraction(proved.bounds.upper) >= exact


def test_profiles_of_fewer_runs_say_nothing_about_all() -> None:
    engine, cache = LONG["sampled"].engine, Cache()
    inquiry = Inquiry(DeltaAt(1.0), 1e-4, cache=cache)
    proved = ByFewerRuns(engine.parts).bounds(inquiry)
    assert proved is not None
    assert proved.bounds.lower > 0.9999
    at = DeltaAt(engine.parts[0].picture.cumulants(1e-9)[1])  # the mean
    after, alone = engine.answer(at, 1e-3, cache=cache), engine.answer(at, 1e-3)
    assert after.bounds.overlaps(alone.bounds)
    assert alone.bounds.lower > 0.1


def test_other_questions_are_left_to_other_methods() -> None:
    method = ByFewerRuns((tb.Laplace(2.0) * 5).engine.parts)
    assert method.bounds(Inquiry(DeltaAt(1.0), 1e-4)) is None
    assert method.bounds(Inquiry(EpsilonAt(1e-6), 1e-4)) is None
