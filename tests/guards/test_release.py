"""Each guard of the release room is taken away, and something true is lost."""

from __future__ import annotations

import contextlib
import gc
import os
import traceback
import weakref
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.release.test_additive import covered
from tests.release.test_laws import asked_inside, paid_inside_a_rehearsal, released_inside
from tests.release.test_mechanism import Draws, IsLong

import tightbudget as tb
from tightbudget.release import release
from tightbudget.release.mechanisms.sparse_vector import Search
from tightbudget.release.noise.grid import AnswerGrid
from tightbudget.release.noise.noise import Pool

pytestmark = pytest.mark.filterwarnings("ignore:FixedNoise")


def failing(data: object) -> Any:
    raise ZeroDivisionError("secret")


class Gone(tb.release.OpenDPNoise):
    """Noise that is there for the threshold, and then fails."""

    def laplace(self, scale: Any, size: int) -> Any:
        if size > 1:
            raise ZeroDivisionError("secret")
        return super().laplace(scale, size)


def spent(run: Any) -> Fraction:
    """What a run costs that fails."""
    meter = tb.OutputDPFilter(1)
    with contextlib.suppress(Exception):
        run(meter)
    return meter._spent.counted


def error_is_silent() -> bool:
    try:
        tb.release.SparseVectorRelease(list, 9, 0, tb.release.SparseVector(1, 1), 1).release(
            [0] * 9, meter=tb.OutputDPFilter(2), noise=Gone()
        )
    except Exception as error:
        return error.__context__ is None and "secret" not in str(error)
    return False


def interrupt_is_silent() -> bool:
    """Whether an interrupt in a query says nothing of the data."""
    try:
        tb.release.LaplaceRelease(interrupted, 1, 1).release("secret", meter=tb.OutputDPFilter(1))
    except KeyboardInterrupt as end:
        return end.args == ()
    return False


def interrupted(data: object) -> int:
    raise KeyboardInterrupt(data)


def swallows(meter: tb.OutputDPFilter) -> None:
    """An analyst who goes on after an error."""
    svt = tb.release.SparseVector(1, 5)
    with svt.open(0, meter=meter, noise=Gone()) as run, contextlib.suppress(Exception):
        run.ask(len, 0)


def held_after_a_fork() -> float:
    meter = tb.OutputDPFilter(1)
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.suppress(tb.errors.SettlementError),
        tb.release.SparseVector(1, 2).open(0, meter=meter),
    ):
        patch.setattr(os, "getpid", lambda: -1)
        meter._transactions._process = -1  # a meter that would let a fork charge it
    return meter.held.epsilon


def undeclared(meter: tb.OutputDPFilter) -> None:
    prices = tb.OutputDP({"cheap": 0.1, "dear": 0.5})
    release.paid(meter, prices, 0, lambda _: ("shown", "other"))


def reveals_the_undeclared() -> bool:
    with contextlib.suppress(tb.ReleaseError):
        undeclared(tb.OutputDPFilter(1))
        return True
    return False


def found(adaptive: bool, noise: list[int]) -> int:
    """How much four queries at the threshold are said to have found."""
    search = Search(tb.release.SparseVector(1, 2, adaptive=adaptive), tb.release.FixedNoise(noise))
    for _ in range(4):
        if not search.done:
            search.above(0, 0)
    return search.found


def two_draws() -> list[int]:
    pool = Pool(np.arange, 8)
    return [pool.take(), pool.take()]


def named(entries: list[int]) -> tuple[int, ...]:
    return tb.release.TopK(list, 3, 1, 1, 0)._named(np.array(entries), np.zeros(4, dtype=np.int64))


def released(value: int, noise: int) -> Any:
    return AnswerGrid().noisy(np.array([value]), np.array([noise])).item()


def answers(query: Any, bounds: tuple[int, int] | None = None) -> Any:
    mechanism = tb.release.LaplaceRelease(query, 1, 1, bounds=bounds)
    try:
        return mechanism.release(
            0, meter=tb.OutputDPOdometer(), noise=tb.release.FixedNoise([0])
        ).value
    except BaseException:
        return "seen"


def leaves(data: object) -> Any:
    raise SystemExit("secret")


def spent_though_refused(error: type[Exception]) -> float:
    meter = tb.OutputDPFilter(1)
    with contextlib.suppress(error), tb.release.SparseVector(1, 5).open(0, meter=meter) as run:
        with contextlib.suppress(tb.ParameterError):
            run.ask(len, 0.5)
        raise error("mine")
    return meter.spent.epsilon


def moved(x: Any, y: Any, step: float | None) -> int:
    return abs(AnswerGrid(step).point(x) - AnswerGrid(step).point(y))


def refuses_no_function() -> bool:
    with contextlib.suppress(tb.ParameterError):
        tb.release.LaplaceRelease(lambda: 3, 1, 1)  # type: ignore[arg-type, misc]
        return False
    return True


def is_refused(epsilon: float) -> bool:
    try:
        IsLong(3, epsilon)
    except tb.ParameterError:
        return True
    return False


def admits(data: object) -> bool:
    with contextlib.suppress(tb.ParameterError):
        IsLong(3, 1).release(data, meter=tb.OutputDPFilter(1))
        return True
    return False


def with_empty_noise() -> Any:
    count = tb.release.LaplaceRelease(len, 1, 1)
    return count.release([], meter=tb.OutputDPFilter(1), noise=Draws()).value


class Kept(list[int]):
    """Data that can be referred to weakly."""


def error_keeps_no_data() -> bool:
    given = [Kept([1, 2, 3])]
    gone = weakref.ref(given[0])
    with pytest.raises(tb.ReleaseError) as caught:
        tb.release.TopK(list, 3, 1, 1, 0).release(
            given.pop(), meter=tb.OutputDPFilter(1), noise=Gone()
        )
    gc.collect(1)
    return gone() is None and caught.value.__traceback__ is not None


def end_keeps_no_data() -> bool:
    given = [Kept([1, 2, 3])]
    gone = weakref.ref(given[0])
    with tb.release.SparseVector(1, 2).open(given.pop(), meter=tb.OutputDPFilter(1)) as run:
        run.ask(len, 0)
    gc.collect(1)
    return gone() is None and not run.done


def question_shows_no_frame_below() -> bool:
    run_of = tb.release.SparseVector(1, 2).open(0, meter=tb.OutputDPFilter(1), noise=Gone())
    with pytest.raises(tb.ReleaseError) as caught, run_of as run:
        run.ask(lambda data: data, 0)
    *_, (last, _) = traceback.walk_tb(caught.value.__traceback__)
    return last.f_code.co_name == "ask"


MUTATIONS = [
    Without(
        "a paid run inside a rehearsal shows its error",
        {"paid-run-hides-errors": "with started(meter, guarantee, data, admit) as run_:"},
        lambda: paid_inside_a_rehearsal(released_inside) == "nothing",
    ),
    Without(
        "a paid question inside a rehearsal shows its error",
        {"paid-question-hides-errors": "if True:"},
        lambda: paid_inside_a_rehearsal(asked_inside) == "nothing",
    ),
    Without(
        "what is no function is called",
        {"functions-take-arguments": "pass"},
        lambda: refuses_no_function(),
    ),
    Without(
        "a vector of unknown grid is rounded down",
        {"vector-declares-grid": "if False:"},
        lambda: all(
            covered(kind, 10, None, False) is not False for kind in ("laplace", "gaussian")
        ),
    ),
    Without(
        "an error of a question keeps its answer",
        {"question-error-without-answer": "raise"},
        question_shows_no_frame_below,
    ),
    Without(
        "an error that is kept keeps the data",
        {"kept-error-without-data": "pass"},
        error_keeps_no_data,
    ),
    Without(
        "an error that is kept keeps the run",
        {"kept-error-without-run": "raise"},
        error_keeps_no_data,
    ),
    Without(
        "a run that has ended keeps the data", {"ended-run-without-data": "pass"}, end_keeps_no_data
    ),
    Without(
        "a mechanism without a guarantee is made",
        {"guarantee-when-made": "pass"},
        lambda: is_refused(-1),
    ),
    Without(
        "data of any shape are run on",
        {"data-shape-checked": "return paid(meter, self.guarantee, data, run)"},
        lambda: not admits(4),
    ),
    Without(
        "an empty source of noise is replaced",
        {"empty-noise-kept": "return OpenDPNoise() if not noise else noise"},
        lambda: with_empty_noise() == 7,
    ),
    Without(
        "who leaves is seen",
        {"leaving-not-seen": "except Exception as error:"},
        lambda: answers(leaves) == 0,
    ),
    Without("who fails is seen", {"failing-not-seen": "raise"}, lambda: answers(failing) == 0),
    Without(
        "a failure is far from every answer",
        {
            "failure-near-answers": (
                "return np.array([0 if x is None else self._nearest(x, low, high) for "
                "x in known], dtype=np.int64)"
            )
        },
        lambda: answers(failing, (7, 8)) in (7, 8),
    ),
    Without(
        "bounds are forgotten",
        {"answers-within-bounds": "low, high = -_FURTHEST, _FURTHEST"},
        lambda: answers(lambda _: 2**64, (7, 8)) == 8,
    ),
    Without(
        "a failure has no point",
        {"failure-has-point": "steps = np.clip(steps, low, high)"},
        lambda: answers(lambda _: np.nan) == 0,
    ),
    Without(
        "without a step numbers are rounded to the nearest",
        {"number-floored": "return round(steps)"},
        lambda: moved(0.5, 1.5, None) <= AnswerGrid().sensitivity(1),
    ),
    Without(
        "without a step many numbers are rounded to the nearest",
        {
            "numbers-floored": (
                "steps = np.rint(doubles) if self.step is None else np.rint(doubles / self.step)"
            )
        },
        lambda: np.diff(AnswerGrid().points([0.5, 1.5], 2)).item() <= 1,
    ),
    Without(
        "integers end where doubles are coarse",
        {"integers-beyond-coarse-doubles": "if False and (nearer != entries).any():"},
        lambda: (
            moved(np.int64(2**60), float(2**60 + 2**11), 1024.0)
            <= AnswerGrid(1024.0).sensitivity(2**11)
        ),
    ),
    Without(
        "one integer beside a double is a double",
        {"integer-beside-double-exact": ("found = _entries(values, exactly=False)[: len(points)]")},
        lambda: AnswerGrid(1024.0).points([2**59 + 513, 2**63], 2)[0] == 2**49 + 1,
    ),
    Without(
        "a refusal excuses every exception",
        {"only-own-refusal-excused": "if run.refusal is None:"},
        lambda: spent_though_refused(tb.ParameterError) == 1,
        slow=True,
    ),
    Without(
        "a failure is not charged",
        {"failure-forfeits": "hold.settle('cheap')"},
        lambda: spent(swallows) == 1 and spent(undeclared) == Fraction(1, 2),
    ),
    Without(
        "an error of some kind is not hidden",
        {"every-error-hidden": "except ValueError as error:"},
        error_is_silent,
    ),
    Without("an error shows its cause", {"cause-for-operator-alone": "raise"}, error_is_silent),
    Without(
        "an interrupt shows its cause", {"interrupt-silent": "raise"}, lambda: interrupt_is_silent()
    ),
    Without(
        "a fork settles", {"fork-never-settles": "if False:"}, lambda: held_after_a_fork() == 1
    ),
    Without(
        "any cell is good",
        {"only-declared-cells": "if False:"},
        lambda: not reveals_the_undeclared(),
    ),
    Without(
        "a run goes on after an error", {"error-ends-run": "pass"}, lambda: spent(swallows) == 1
    ),
    Without(
        "it never has found enough",
        {"found-counted-above": "pass"},
        lambda: found(False, [0] * 9) == 2,
    ),
    Without(
        "a first look costs nothing",
        {"first-look-counted": "pass"},
        lambda: found(True, [0, *[10**6] * 4]) == 3,
    ),
    Without(
        "the margin is forgotten",
        {"margin-ahead": "if self._svt.adaptive and ahead + self._first.take() >= 0:"},
        lambda: found(True, [0, 0, 0, 0, 0]) == 4,
    ),
    Without(
        "a stock is drawn on twice",
        {"stock-drawn-once": "return self._stock[-1]"},
        lambda: two_draws() == [0, 1],
    ),
    Without(
        "rounding is free",
        {"rounding-adds-one": "return steps if self.step is None else steps"},
        lambda: (
            moved(0.6, -0.6, 1.0) <= AnswerGrid(1.0).sensitivity(1.2)
            and AnswerGrid(1.0).points([0.5 + 2**-9] * 2, 2).sum()
            <= AnswerGrid(1.0).sensitivity(0.1, 2)
        ),
    ),
    Without(
        "noise that was cut off shows",
        {"noise-clipped": "answer: IntArray = sums"},
        lambda: released(0, 2**62) == released(9, 2**62),
    ),
    Without(
        "top-k is cut off too late",
        {"top-k-cut-off": "return tuple(order[: ahead].tolist())"},
        lambda: len(named([9, 9, 9])) == 1,
    ),
    Without(
        "a choice is made before it is sure",
        {"choice-surely-before-its-end": "return i"},
        fails="tests/release/test_exponential.py::test_each_index_has_exactly_its_share[exponents1]",
    ),
    Without(
        "a weight is not rounded",
        {"weight-between-integers": "return near, near"},
        fails="tests/release/test_exponential.py::test_weights_are_between_integers[40-exponents2]",
    ),
    Without(
        "a rehearsal looks at no move",
        {"rehearsed-moves-within-sensitivity": "if False:"},
        fails="tests/release/test_exponential.py::test_a_neighbour_shows_that_the_sensitivity_is_wrong",
    ),
    Without(
        "a rehearsal believes in one direction",
        {"rehearsed-moves-in-one-direction": "if False:"},
        fails="tests/release/test_exponential.py::test_a_score_that_falls_where_others_rise_is_not_monotone",
    ),
    Without(
        "scores are less than their sensitivity",
        {"sensitivity-of-floats": "return decimal"},
        fails="tests/release/test_exponential.py::test_a_float_may_move_by_a_sensitivity_that_is_this_float[0.1]",
    ),
    Without(
        "all scores move in one direction",
        {"scores-move-both-ways": "return 1"},
        fails="tests/release/test_exponential.py::test_the_losses_of_all_neighbours_have_the_range_epsilon[False]",
    ),
    Without(
        "a score that is none is beyond the bounds",
        {"score-of-none": "known = 9"},
        fails="tests/release/test_exponential.py::test_with_bounds_a_score_has_its_place_between_them",
    ),
    Without(
        "scores are beyond their bounds",
        {"scores-within-bounds": "return known"},
        fails="tests/release/test_exponential.py::test_with_bounds_a_score_has_its_place_between_them",
    ),
    Without(
        "a candidate that was not taken comes again",
        {"each-candidate-once": "i, below = left[uniform(len(left), noise)]"},
        fails="tests/release/test_permute_and_flip.py::test_each_candidate_is_looked_at_once",
    ),
    Without(
        "an index is beyond its end",
        {"uniform-below-its-end": "if True:"},
        fails="tests/release/test_permute_and_flip.py::test_an_index_is_below_its_end",
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_each_guard_guards(
    monkeypatch: pytest.MonkeyPatch, mutation: Without, request: pytest.FixtureRequest
) -> None:
    lose_a_truth(monkeypatch, mutation, request.session)
