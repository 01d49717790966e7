"""Sparse vector in conversation, its values, and top-k."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

import tightbudget as tb

FIXED = pytest.mark.filterwarnings("ignore:FixedNoise")
QUIET = 10**4  # an epsilon at which noise can be forgotten


def identity(data: Any) -> Any:
    return data


def tenfold(i: int, data: Any) -> int:
    return 10 * int(data[i])


# ---------------------------------------------------------------------- conversations


@pytest.mark.parametrize("adaptive", [False, True])
def test_it_finds_what_is_above_and_then_no_more(adaptive: bool) -> None:
    meter = tb.OutputDPFilter(QUIET)
    svt = tb.release.SparseVector(QUIET, 3, adaptive=adaptive)
    found = 0
    with svt.open(np.arange(100), meter=meter) as run:
        for i in range(100):
            if not run.done:
                found += run.ask(partial(tenfold, i), 895)
        # clear cases cost half
        assert found == (5 if adaptive else 3)
        assert run.done
        with pytest.raises(tb.errors.SettlementError, match="has found all that it may"):
            run.ask(lambda data: 0, 90)
    assert run.release().value == (False,) * 90 + (True,) * found
    # of the 6 halves the last one does not pay for a second look: it comes back
    left = meter.left.epsilon
    assert left == (float(svt.rest / 6) if adaptive else 0)


def test_stopping_early_gives_back_what_was_not_found() -> None:
    meter = tb.OutputDPFilter(1)
    svt = tb.release.SparseVector(1, 10, adaptive=False)
    with svt.open(0, meter=meter) as run:
        assert meter.left.epsilon == 0
        assert not any(run.ask(identity, 10**6) for _ in range(50))
        assert run.ask(identity, -(10**6))
    receipt = run.release().receipt
    assert run.release().cell == 1
    assert Fraction(str(receipt.charged.epsilon)) == svt.first + svt.rest / 10
    assert meter.left == receipt.returned


def test_the_end_of_the_block_ends_the_answers() -> None:
    with (
        tb.release.SparseVector(1, 1).open(0, meter=tb.OutputDPFilter(1)) as run,
        pytest.raises(tb.errors.SettlementError, match="was not settled"),
    ):
        run.release()
    with pytest.raises(tb.errors.SettlementError, match="the run is over"):
        run.ask(identity, 0)


def test_an_exception_costs_the_dearest_price_and_reveals_nothing_more() -> None:
    meter = tb.OutputDPFilter(1)
    with (
        pytest.raises(ZeroDivisionError),
        tb.release.SparseVector(1, 5).open(0, meter=meter) as run,
    ):
        raise ZeroDivisionError
    assert meter.spent.epsilon == 1
    with pytest.raises(tb.errors.SettlementError, match="was not settled"):
        run.release()


def test_a_run_that_never_ends_stays_held() -> None:
    meter = tb.OutputDPFilter(1)
    opened = tb.release.SparseVector(1, 5).open(0, meter=meter)
    opened.__enter__()
    assert meter.held.epsilon == 1
    with pytest.raises(tb.errors.BudgetError):
        tb.release.LaplaceRelease(identity, 1, 0.01).release(0, meter=meter)


class Gone(tb.release.OpenDPNoise):
    """Noise that cannot be drawn any more after the threshold."""

    def laplace(self, scale: Any, size: int) -> Any:
        if size > 1:
            raise ZeroDivisionError("secret")
        return super().laplace(scale, size)


def test_noise_that_fails_ends_the_run_at_the_dearest_price() -> None:
    meter = tb.OutputDPFilter(1)

    def converse() -> None:
        with tb.release.SparseVector(1, 5).open(0, meter=meter, noise=Gone()) as run:
            with pytest.raises(tb.ReleaseError) as caught:
                run.ask(identity, 0)
            assert "secret" not in str(caught.value)
            assert caught.value.__context__ is None
            # an analyst who swallows the error gets no further
            with pytest.raises(tb.errors.SettlementError, match="the run is over"):
                run.ask(lambda data: 0, 0)

    with pytest.raises(tb.ReleaseError, match="ended without an answer"):
        converse()
    assert meter.spent.epsilon == 1


@FIXED
@pytest.mark.parametrize("answer", [None, math.nan, "secret", [], "raise"])
def test_a_query_that_fails_is_at_the_fallback_and_the_run_goes_on(answer: Any) -> None:
    def query(data: Any) -> Any:
        if data == "raise":
            raise SystemExit("secret")
        return data

    for bounds, fallback in ((None, 0), ((-5, 5), -5)):
        svt, meter = (
            tb.release.SparseVector(1, 5, adaptive=False, bounds=bounds),
            tb.OutputDPFilter(1),
        )
        with svt.open(answer, meter=meter, noise=tb.release.FixedNoise([0] * 9)) as run:
            assert [run.ask(query, fallback + move) for move in (0, 1)] == [True, False]
            assert run.ask(lambda data: 7, 0)
        assert run.release().cell == 2


@FIXED
@pytest.mark.parametrize("answer", [np.True_, True, 1.75, np.float32(1), np.array([1]), [1]])
def test_a_query_may_answer_what_is_a_number(answer: Any) -> None:
    with tb.release.SparseVector(1, 5, adaptive=False).open(
        answer, meter=tb.OutputDPFilter(1), noise=tb.release.FixedNoise([0] * 9)
    ) as run:
        assert [run.ask(identity, threshold) for threshold in (1, 2)] == [True, False]


@pytest.mark.parametrize("kind", ["threshold", "one too many"])
def test_a_question_that_is_refused_costs_nothing_though_it_leaves_the_block(kind: str) -> None:
    svt, meter = tb.release.SparseVector(1, 1, adaptive=False), tb.OutputDPFilter(1)
    many = kind == "one too many"

    def converse(run: tb.release.SparseVectorRun) -> None:
        run.ask(identity, -(10**6) if many else 10**6)
        run.ask(identity, 0 if many else 5.5)

    with (
        pytest.raises(
            tb.errors.SettlementError if many else tb.ParameterError,
            match=r"all that it may|threshold must",
        ),
        svt.open(0, meter=meter) as run,
    ):
        converse(run)
    assert run.release().value == (many,)
    assert Fraction(str(meter.spent.epsilon)) == (1 if many else svt.first)
    with pytest.raises(tb.errors.SettlementError, match="the run is over"):
        run.ask(identity, 0)


def test_a_refusal_that_was_caught_does_not_excuse_another_exception() -> None:
    meter = tb.OutputDPFilter(1)
    with (  # noqa: PT012
        pytest.raises(tb.ParameterError, match="mine"),
        tb.release.SparseVector(1, 5).open(0, meter=meter) as run,
    ):
        with pytest.raises(tb.ParameterError):
            run.ask(identity, 0.5)
        raise tb.ParameterError("mine")
    assert meter.spent.epsilon == 1


def test_a_threshold_is_refused_by_name_and_costs_nothing_if_caught() -> None:
    with tb.release.SparseVector(1, 5).open(0, meter=tb.OutputDPFilter(1)) as run:
        with pytest.raises(tb.ParameterError, match=r"^threshold must be an integer, got 0\.5"):
            run.ask(identity, 0.5)
        run.ask(identity, 10**6)
    assert run.release().value == (False,)


def test_two_conversations_may_run_side_by_side() -> None:
    meter = tb.OutputDPFilter(2)
    svt = tb.release.SparseVector(1, 1)
    with svt.open(0, meter=meter) as one, svt.open(0, meter=meter) as other:
        one.ask(identity, 10**6)
        other.ask(identity, 10**6)
    assert Fraction(str(meter.spent.epsilon)) == 2 * svt.first


@FIXED
def test_an_adaptive_answer_costs_what_its_look_costs() -> None:
    svt = tb.release.SparseVector(1, 2)
    far = -svt.margin
    # rho, then the first look alone, or both
    noise = tb.release.FixedNoise([0, svt.margin, far, -1, svt.margin - 1, 0])
    with svt.open(0, meter=tb.OutputDPFilter(1), noise=noise) as run:
        assert [run.ask(identity, 0) for _ in range(3)] == [True, False, True]
        assert run.done  # a second look could cost 2, and 1 is left
    answer = run.release()
    assert answer.cell == 3
    assert Fraction(str(answer.receipt.charged.epsilon)) == svt.first + svt.rest * 3 / 4


# ----------------------------------------------------------------------------- splits


@pytest.mark.parametrize("aboves", [1, 5, 20, 1000, 10**6])
@pytest.mark.parametrize("monotone", [False, True])
def test_the_split_is_the_best_one_to_three_digits(aboves: int, monotone: bool) -> None:
    """The variance of the comparison, 2 (1 / eps1)^2 + 2 (m c / eps2)^2, at its minimum."""
    svt = tb.release.SparseVector(1, aboves, monotone=monotone)
    moves = (1 if monotone else 2) * aboves

    def variance(first: float) -> float:
        return first**-2 + (moves / (1 - first)) ** 2

    best = min(variance(x) for x in np.geomspace(1e-6, 0.6, 20_000))
    assert variance(float(svt.first)) <= best * (1 + 1e-3)
    assert svt.first + svt.rest == 1


def test_parameters_are_refused_by_name() -> None:
    with pytest.raises(tb.ParameterError, match=r"^aboves must be an integer >= 1, got 0"):
        tb.release.SparseVector(1, 0)
    with pytest.raises(tb.ParameterError, match=r"^epsilon must be a finite number > 0, got nan"):
        tb.release.SparseVector(math.nan, 1)
    with pytest.raises(tb.ParameterError, match=r"^sensitivity must be a finite number > 0"):
        tb.release.SparseVector(1, 1, sensitivity=-1)
    with pytest.raises(tb.ParameterError, match=r"^scale must be in \(0, 2\^40"):
        tb.release.SparseVector(1e-12, 1)
    with pytest.raises(tb.ParameterError, match=r"^k must be at most size = 2, got 3"):
        tb.release.TopK(identity, 2, 3, 1, 0)
    with pytest.raises(tb.ParameterError, match=r"^least must be an integer, got 0\.5"):
        tb.release.TopK(identity, 2, 1, 1, 0.5)
    with pytest.raises(tb.ParameterError, match=r"^size must be an integer >= 1, got 0"):
        tb.release.LaplaceRelease(identity, 1, 1, size=0)


# -------------------------------------------------------------------------- rehearsals


@FIXED
@pytest.mark.parametrize("adaptive", [False, True])
def test_a_rehearsed_conversation_costs_what_it_would_be_charged(adaptive: bool) -> None:
    svt, values = tb.release.SparseVector(1, 3, adaptive=adaptive), [0, 10, 0, 10, 1, 10, 10, 10]
    for draws in ([0] * 40, [3, -2, 5, 0] * 10, [-90, 80] * 20):
        meter = tb.OutputDPFilter(1)
        with svt.open(values, meter=meter, noise=tb.release.FixedNoise(draws)) as run:
            for i in range(8):
                if not run.done:
                    run.ask(partial(tenfold, i), 50)
        questions = [(partial(tenfold, i), 50) for i in range(8)]
        tried = svt.rehearse(values, questions, noise=tb.release.FixedNoise(draws))
        receipt = run.release().receipt
        assert (tried.cell, tried.cost) == (run.release().cell, receipt.charged)
        assert tried.most == receipt.held


@pytest.mark.parametrize(
    ("query", "threshold", "error", "said"),
    [
        (lambda v: v.summ(), 1, AttributeError, "'list' object has no attribute 'summ'"),
        (lambda v: None, 1, tb.ParameterError, "the query's answer must have numbers alone"),
        (lambda v: 0.5, 1, tb.ParameterError, "the query's answer must be of integers, as there"),
        (lambda v: v, 1, tb.ParameterError, r"the query's answer must be one number \(size="),
        (len, 0.5, tb.ParameterError, "threshold must be an integer, got 0.5"),
    ],
)
def test_a_rehearsed_question_raises_its_error(
    query: Any, threshold: float, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=f"^{said}"):
        tb.release.SparseVector(1, 3).rehearse([1, 2], [(query, threshold)])


# ----------------------------------------------------------------------------- values

ENTRIES = np.where(np.arange(100) % 10 == 0, 1000, 0)


def figure_1(epsilon: float = 1) -> tb.release.SparseVectorRelease:
    """100 entries of 0 or 1000, threshold 500, 20 of them at most, half for the values."""
    half = Fraction(str(epsilon)) / 2
    return tb.release.SparseVectorRelease(
        identity, 100, 500, tb.release.SparseVector(half, 20), half
    )


def test_the_values_are_those_of_the_entries_found() -> None:
    answer = figure_1(QUIET).release(ENTRIES, meter=tb.OutputDPFilter(QUIET))
    assert answer.value == {i: 1000 for i in range(0, 100, 10)}
    assert answer.cell == "values"
    assert answer.receipt.charged.epsilon == QUIET


def test_nothing_found_costs_the_noisy_threshold() -> None:
    mechanism = figure_1(QUIET)
    answer = mechanism.release(0 * ENTRIES, meter=tb.OutputDPFilter(QUIET))
    assert (answer.value, answer.cell) == ({}, "nothing")
    assert Fraction(str(answer.receipt.charged.epsilon)) == mechanism.search.first


@pytest.mark.parametrize("found", range(41))
def test_search_and_values_cost_all_of_epsilon_together(found: int) -> None:
    mechanism = figure_1()
    for values in (1, found or 1):
        search = mechanism.search.guarantee.price(found)
        each = 1 / mechanism._scale(values, found)
        assert search + values * each == 1 == mechanism.guarantee.sup


def test_what_comes_back_makes_the_values_less_noisy() -> None:
    """Ten clear entries: at the first look, they cost a quarter of the search."""
    without = Fraction(20) / Fraction(1, 2)
    assert figure_1()._scale(10, 10) < without / 3


def test_top_k_names_the_largest_first() -> None:
    counts = np.array([5, 50, 0, 30, 40])
    top = tb.release.TopK(identity, 5, 4, QUIET, 35)
    answer = top.release(counts, meter=tb.OutputDPFilter(QUIET))
    assert (answer.value, answer.cell) == ((1, 4), 2)
    assert Fraction(str(answer.receipt.charged.epsilon)) == QUIET * Fraction(5, 8)
    assert tb.release.TopK(identity, 5, 1, QUIET, 35).release(
        counts, meter=tb.OutputDPFilter(QUIET)
    ).value == (1,)


# ----------------------------------------------------------------------------- noisy


@FIXED
def test_noise_is_added_in_points_of_the_grid() -> None:
    def released(mechanism: Any, data: Any, *draws: int) -> Any:
        meter = tb.OutputDPFilter(100, 1e-5)
        return mechanism.release(data, meter=meter, noise=tb.release.FixedNoise(draws)).value

    assert released(tb.release.LaplaceRelease(identity, 1, 1), 7, -3) == 4
    assert released(tb.release.LaplaceRelease(identity, 1, 1, step=0.25), 0.7, -1) == 0.5
    vector = released(tb.release.LaplaceRelease(identity, 1, 1, size=2, step=0.25), [1, 2], 1, -4)
    assert vector.tolist() == [1.25, 1]
    assert released(tb.release.GaussianRelease(identity, 1, 5, 1e-6), 7, 2) == 9
    assert released(tb.release.ToyRelease(identity, 1, 1), 7, 1, 2) == 9
    assert released(tb.release.ToyRelease(identity, 1, 1), 7, 0) is None


def test_the_gaussian_price_is_certified() -> None:
    """A number at the engine's upper end, a vector at what zCDP says, never below it."""
    engine = (tb.DiscreteGaussian(5.0) * 1).epsilon(delta=1e-6)
    price = tb.release.GaussianRelease(identity, 1, 5, 1e-6).guarantee.sup
    assert engine.upper <= price <= Fraction(engine.upper) * (1 + Fraction(1, 10**15))
    rho = Fraction(1, 50)
    vector = tb.release.GaussianRelease(identity, 1, 5, 1e-6, size=3, integers=True).guarantee.sup
    assert vector == Fraction(repr(tb.ZCDPFilter(rho).epsilon(1e-6))) > price
    # on a grid three numbers move by sqrt(3) points more
    rounded = tb.release.GaussianRelease(identity, 1, 5, 1e-6, size=3, step=1.0).guarantee.sup
    moved = Fraction((1 + math.sqrt(3)) ** 2 / 50)
    assert float(rounded) == pytest.approx(tb.ZCDPFilter(moved).epsilon(1e-6), rel=1e-9)
    assert float(rounded) >= tb.ZCDPFilter(moved).epsilon(1e-6)


# ------------------------------------------------------------------------------ speed


class Counting(tb.release.OpenDPNoise):
    """Counts how often noise is drawn: a draw alone costs as much as ten in a batch."""

    calls = 0

    def laplace(self, scale: Any, size: int) -> Any:
        self.calls += 1
        return super().laplace(scale, size)


@pytest.mark.slow
def test_the_noise_of_many_queries_is_drawn_in_batches() -> None:
    noise = Counting()
    with tb.release.SparseVector(1, 10).open(0, meter=tb.OutputDPFilter(1), noise=noise) as run:
        for _ in range(20_000):
            run.ask(identity, 10**6)
    assert noise.calls < 60
