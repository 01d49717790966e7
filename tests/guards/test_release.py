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
from tests.guards.mutants import Mutation, each, lose_a_truth
from tests.release.test_mechanism import Draws, IsLong

import tightbudget as tb
from tightbudget.release import release
from tightbudget.release.mechanism import MechanismOnData, Priced
from tightbudget.release.mechanisms.sparse_vector import SparseVectorRun, _Search
from tightbudget.release.mechanisms.top_k import TopK
from tightbudget.release.noise import noise as sources
from tightbudget.release.noise.grid import AnswerGrid
from tightbudget.release.noise.noise import Pool

pytestmark = pytest.mark.filterwarnings("ignore:FixedNoise")


def failing(data: object) -> Any:
    raise ZeroDivisionError("secret")


class Gone(tb.OpenDPNoise):
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
        tb.SparseVectorRelease(list, 9, 0, tb.SparseVector(1, 1), 1).release(
            [0] * 9, meter=tb.OutputDPFilter(2), noise=Gone()
        )
    except Exception as error:
        return error.__context__ is None and "secret" not in str(error)
    return False


def interrupt_is_silent() -> bool:
    """Whether an interrupt in a query says nothing of the data."""
    try:
        tb.LaplaceRelease(interrupted, 1, 1).release("secret", meter=tb.OutputDPFilter(1))
    except KeyboardInterrupt as end:
        return end.args == ()
    return False


def interrupted(data: object) -> int:
    raise KeyboardInterrupt(data)


def swallows(meter: tb.OutputDPFilter) -> None:
    """An analyst who goes on after an error."""
    svt = tb.SparseVector(1, 5)
    with svt.open(0, meter=meter, noise=Gone()) as run, contextlib.suppress(Exception):
        run.ask(len, 0)


def held_after_a_fork() -> float:
    meter = tb.OutputDPFilter(1)
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.suppress(tb.SettlementError),
        tb.SparseVector(1, 2).open(0, meter=meter),
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
    search = _Search(tb.SparseVector(1, 2, adaptive=adaptive), tb.FixedNoise(noise))
    for _ in range(4):
        if not search.done:
            search.above(0, 0)
    return search.found


def two_draws() -> list[int]:
    pool = Pool(np.arange, 8)
    return [pool.take(), pool.take()]


def named(entries: list[int]) -> tuple[int, ...]:
    return tb.TopK(list, 3, 1, 1, 0)._named(np.array(entries), np.zeros(4, dtype=np.int64))


def released(value: int, noise: int) -> Any:
    return AnswerGrid().noisy(np.array([value]), np.array([noise])).item()


def answers(query: Any, bounds: tuple[int, int] | None = None) -> Any:
    mechanism = tb.LaplaceRelease(query, 1, 1, bounds=bounds)
    try:
        return mechanism.release(0, meter=tb.OutputDPOdometer(), noise=tb.FixedNoise([0])).value
    except BaseException:
        return "seen"


def leaves(data: object) -> Any:
    raise SystemExit("secret")


def spent_though_refused(error: type[Exception]) -> float:
    meter = tb.OutputDPFilter(1)
    with contextlib.suppress(error), tb.SparseVector(1, 5).open(0, meter=meter) as run:
        with contextlib.suppress(tb.ParameterError):
            run.ask(len, 0.5)
        raise error("mine")
    return meter.spent.epsilon


def moved(x: Any, y: Any, step: float | None) -> int:
    return abs(AnswerGrid(step).point(x) - AnswerGrid(step).point(y))


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
    count = tb.LaplaceRelease(len, 1, 1)
    return count.release([], meter=tb.OutputDPFilter(1), noise=Draws()).value


class Kept(list[int]):
    """Data that can be referred to weakly."""


def error_keeps_no_data() -> bool:
    given = [Kept([1, 2, 3])]
    gone = weakref.ref(given[0])
    with pytest.raises(tb.ReleaseError) as caught:
        tb.TopK(list, 3, 1, 1, 0).release(given.pop(), meter=tb.OutputDPFilter(1), noise=Gone())
    gc.collect(1)
    return gone() is None and caught.value.__traceback__ is not None


def end_keeps_no_data() -> bool:
    given = [Kept([1, 2, 3])]
    gone = weakref.ref(given[0])
    with tb.SparseVector(1, 2).open(given.pop(), meter=tb.OutputDPFilter(1)) as run:
        run.ask(len, 0)
    gc.collect(1)
    return gone() is None and not run.done


def question_shows_no_frame_below() -> bool:
    run_of = tb.SparseVector(1, 2).open(0, meter=tb.OutputDPFilter(1), noise=Gone())
    with pytest.raises(tb.ReleaseError) as caught, run_of as run:
        run.ask(lambda data: data, 0)
    *_, (last, _) = traceback.walk_tb(caught.value.__traceback__)
    return last.f_code.co_name == "ask"


MUTATIONS = [
    Mutation("an error of a question keeps its answer", SparseVectorRun, "ask",
             (("raise error.with_traceback(None) from None", "raise"),),
             question_shows_no_frame_below),
    Mutation("an error that is kept keeps the data", MechanismOnData, "release",
             (("del data", "pass"),), error_keeps_no_data),
    Mutation("an error that is kept keeps the run", MechanismOnData, "release",
             (("raise error.with_traceback(None) from None", "raise"),), error_keeps_no_data),
    Mutation("a run that has ended keeps the data", release, "started",
             (("run.data = None", "pass"),), end_keeps_no_data),
    Mutation("a mechanism without a guarantee is made", Priced, "__post_init__",
             (("_ = self.guarantee", "pass"),), lambda: is_refused(-1)),
    Mutation("data of any shape are run on", MechanismOnData, "release",
             (("run, self._admitted", "run"),), lambda: not admits(4)),
    Mutation("an empty source of noise is replaced", sources, "noise_or_default",
             (("if noise is None", "if not noise"),), lambda: with_empty_noise() == 7),
    Mutation("who leaves is seen", release, "answered",
             (("except BaseException as error", "except Exception as error"),),
              lambda: answers(leaves) == 0),
    Mutation("who fails is seen", release, "answered",
             (("return None", "raise"),), lambda: answers(failing) == 0),
    Mutation("a failure is far from every answer", AnswerGrid, "_rounded",
             (("self._fallback if x is None", "0 if x is None"),),
             lambda: answers(failing, (7, 8)) in (7, 8)),
    Mutation("bounds are forgotten", AnswerGrid, "_rounded",
             (("low, high = self._ends", "low, high = -_FURTHEST, _FURTHEST"),),
             lambda: answers(lambda _: 2**64, (7, 8)) == 8),
    Mutation("a failure has no point", AnswerGrid, "_rounded",
             (("np.where(np.isnan(steps), self._fallback, np.clip(steps, low, high))",
               "np.clip(steps, low, high)"),),
             lambda: answers(lambda _: np.nan) == 0),
    Mutation("without a step numbers are rounded to the nearest", AnswerGrid, "_of_double",
             (("math.floor(steps) if self.step is None else round(steps)", "round(steps)"),),
             lambda: moved(0.5, 1.5, None) <= AnswerGrid().sensitivity(1)),
    Mutation("without a step many numbers are rounded to the nearest", AnswerGrid, "_rounded",
             (("np.floor(doubles)", "np.rint(doubles)"),),
             lambda: np.diff(AnswerGrid().points([0.5, 1.5], 2)).item() <= 1),
    Mutation("integers end where doubles are coarse", AnswerGrid, "_rounded",
             (("self._doubles_are_too_coarse and", "False and"),),
             lambda: moved(np.int64(2**60), float(2**60 + 2**11), 1024.0)
             <= AnswerGrid(1024.0).sensitivity(2**11)),
    Mutation("one integer beside a double is a double", AnswerGrid, "points",
             (("exactly=self._doubles_are_too_coarse", "exactly=False"),),
             lambda: AnswerGrid(1024.0).points([2**59 + 513, 2**63], 2)[0] == 2**49 + 1),
    Mutation("a refusal excuses every exception", tb.SparseVector, "open",
             (("error is not run._refusal", "run._refusal is None"),),
             lambda: spent_though_refused(tb.ParameterError) == 1, slow=True),
    Mutation("a failure is not charged", release, "started",
             (("        yield run\n    except BaseException:\n        if os.getpid() == process:\n"
               "            hold.forfeit()",
               "        yield run\n    except BaseException:\n        hold.settle('cheap')"),),
             lambda: spent(swallows) == 1 and spent(undeclared) == Fraction(1, 2)),
    Mutation("an error shows its cause", release, "guarded",
             (("    except BaseException as error:", "    except ZeroDivisionError as error:"),
              ('        _operator.debug("a mechanism failed after it had started", exc_info=True)',
               "        raise")),
             error_is_silent),
    Mutation("an interrupt shows its cause", release, "guarded",
             (("        interrupted = isinstance(error, KeyboardInterrupt)", "        raise"),),
             lambda: interrupt_is_silent()),
    Mutation("a fork settles", release, "started",
             (("os.getpid() != process", "False"),),
             lambda: held_after_a_fork() == 1),
    Mutation("any cell is good", release, "_declared",
             (("cell_name(cell) not in guarantee.cells", "False"),),
             lambda: not reveals_the_undeclared()),
    Mutation("a run goes on after an error", SparseVectorRun, "ask",
             (("self._open, self._charge.cell = False, None", "pass"),),
             lambda: spent(swallows) == 1),
    Mutation("it never has found enough", _Search, "above",
             (("self.found += self._least", "pass"),),
             lambda: found(False, [0] * 9) == 2),
    Mutation("a first look costs nothing", _Search, "above",
             (("self.found += 1", "pass"),),
             lambda: found(True, [0, *[10**6] * 4]) == 3),
    Mutation("the margin is forgotten", _Search, "above",
             ((">= self._margin", ">= 0"),),
             lambda: found(True, [0, 0, 0, 0, 0]) == 4),
    Mutation("a stock is drawn on twice", Pool, "take",
             (("self._stock.pop()", "self._stock[-1]"),),
             lambda: two_draws() == [0, 1]),
    Mutation("rounding is free", AnswerGrid, "sensitivity",
             (("steps + positive_count(size=size)", "steps"),),
             lambda: moved(0.6, -0.6, 1.0) <= AnswerGrid(1.0).sensitivity(1.2) and
             AnswerGrid(1.0).points([0.5 + 2**-9] * 2, 2).sum()
             <= AnswerGrid(1.0).sensitivity(0.1, 2)),
    Mutation("noise that was cut off shows", AnswerGrid, "noisy",
             (("np.clip(sums, -_LAST, _LAST)", "sums"),),
             lambda: released(0, 2**62) == released(9, 2**62)),
    Mutation("top-k is cut off too late", TopK, "_named",
             (("min(self.k, ahead)", "ahead"),),
             lambda: len(named([9, 9, 9])) == 1),
]  # fmt: skip


@each(MUTATIONS)
def test_each_guard_guards(monkeypatch: pytest.MonkeyPatch, mutation: Mutation) -> None:
    lose_a_truth(monkeypatch, mutation)
