"""Finds the queries that are above their thresholds, and pays for each that is found.

This is the sparse vector technique: a noisy threshold is compared with noisy queries. Let rho be
the noise of the threshold, nu the noise of a query, and D the sensitivity. For neighbours and a
transcript that says "above" c' times, move rho by D, and the nu of each "above" by the distance
that keeps it above, at most 2 D. Every "below" stays below, since no query rises by more than D.
So the probabilities of the transcript differ by at most a factor e^(D / scale of rho) times
e^(2 D / scale of nu) for each "above". If the queries are monotone (all move in one direction),
rho and every nu move by at most D. All numbers are integers, so the moves are exact.

The adaptive version looks at each query twice: first at half the price, with twice the noise and
a margin; then, if the first look fails, as above. A "below" at the first look stays below by the
argument above, and so each "above" costs the price of its own look.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

from tightbudget.errors import ParameterError, ReleaseError, SettlementError
from tightbudget.numerics.validate import plain_numbers, positive_count
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.output_dp.transactions import Uncopied, held
from tightbudget.release.mechanism import MechanismOnData, Priced
from tightbudget.release.mechanisms.additive import NoisyAnswer
from tightbudget.release.meter import Meter
from tightbudget.release.noise.grid import AnswerGrid
from tightbudget.release.noise.noise import Noise, Pool, noise_or_default, scale_up
from tightbudget.release.rehearsal import rehearsal
from tightbudget.release.release import (
    Rehearsal,
    Release,
    Started,
    answered,
    guarded,
    rehearsed,
    started,
)


@plain_numbers
@dataclass(frozen=True)
class SparseVector(Priced):
    """Says which queries are above their thresholds, until it has found enough.

    Guarantee: delta = 0; the cell is the sum of all that was found, from 0 on. With ``adaptive``
    an "above" of the first look counts 1, and one of the second look 2, out of 2 ``aboves``; cell
    k costs eps1 + k / (2 aboves) eps2. Without ``adaptive`` each counts 1, and cell k costs
    eps1 + k / aboves eps2. The run goes on while the costlier answer is paid for: so it can find
    ``aboves`` queries, and up to 2 aboves - 1 if they are clear. eps1 + eps2 = epsilon is split so
    that the comparison is the least noisy, eps1 : eps2 = 1 : (2 aboves)^(2/3), or
    1 : aboves^(2/3) if monotone.
    Source: Hartmann et al. 2022, Algorithm 2, Lemma 8; Lyu, Su, Li 2017, Algorithm 7;
    Ding, Wang, Zhang, Kifer 2020, Algorithm 2.

    Args:
        epsilon: > 0, nats, the worst-case price.
        aboves: >= 1, the number of queries that it finds at this price.
        sensitivity: > 0, how far each query can move between neighbouring data sets. The caller
            says by this number which data sets are neighbours.
        monotone: whether all queries move in one direction between neighbours, as counts do when
            neighbours have one record more or less.
        adaptive: whether to look twice.
        step: of the grid on which queries and thresholds are compared, a power of two; None
            for integers.
        bounds: (low, high): answers of queries beyond are moved there, and an answer that is no
            number counts as low, as does a query that raises. A query that can fail needs them:
            it has the sensitivity high - low, whatever it does. Without bounds an answer that is
            no number counts as 0.

    Raises:
        ParameterError: a parameter is refused.
    """

    epsilon: Price
    aboves: int
    sensitivity: Price = 1
    monotone: bool = False
    adaptive: bool = True
    step: float | None = None
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for scale in (self.threshold_scale, self.scale):
            scale_up(2 * scale)
        super().__post_init__()

    # ---------------------------------------------------------------------- prices

    @cached_property
    def guarantee(self) -> OutputDP:
        """The output cells 0, 1, ..., units: the price of each sum of the answers found."""
        return OutputDP.rising(self.first, self.rest, self.units)

    @property
    def units(self) -> int:
        """The largest sum that can be found, in units of the cheapest answer."""
        return positive_count(aboves=self.aboves) * (2 if self.adaptive else 1)

    @cached_property
    def first(self) -> Fraction:
        """eps1: the price of the noisy threshold, which is paid in any case."""
        ratio = (self._moves * positive_count(aboves=self.aboves)) ** (2 / 3)
        # any split is sound, and noise hardly depends on it: three digits of the best are enough
        return exact_positive(epsilon=self.epsilon) * Fraction(f"{1 / (1 + ratio):.3g}")

    @property
    def rest(self) -> Fraction:
        """eps2: the price of all that can be found."""
        return exact_positive(epsilon=self.epsilon) - self.first

    # ----------------------------------------------------------------------- noise

    @cached_property
    def threshold_scale(self) -> Fraction:
        """The scale of the noise on the threshold, in points of the grid."""
        return self._points / self.first

    @cached_property
    def scale(self) -> Fraction:
        """The scale of the noise on a query, in points of the grid; the first look has twice it."""
        return self._moves * self._points * self.aboves / self.rest

    @cached_property
    def margin(self) -> int:
        """The margin of the first look: two standard deviations of its noise, in points."""
        return math.ceil(2 * math.sqrt(2) * float(2 * self.scale))

    @cached_property
    def _grid(self) -> AnswerGrid:
        """The grid that queries and thresholds are compared on."""
        return AnswerGrid(self.step, self.bounds)

    @property
    def _points(self) -> int:
        """The sensitivity of a query, in points of the grid."""
        return self._grid.sensitivity(self.sensitivity)

    @property
    def _moves(self) -> int:
        """The number of sensitivities by which the noise of an "above" has to move."""
        return 1 if self.monotone else 2

    # ------------------------------------------------------------------------- runs

    def rehearse(
        self,
        data: Any,
        questions: Iterable[tuple[Callable[[Any], Any], float]],
        *,
        noise: Noise | None = None,
    ) -> Rehearsal:
        """Asks questions about public or made-up data, and says what they would have cost.

        NEVER about private data; see :meth:`MechanismOnData.rehearse`. It ends where the run has
        found all that it may.

        Args:
            data: public or made-up data, of the types and shapes of the private ones.
            questions: pairs of a query and its threshold, as for :meth:`SparseVectorRun.ask`.
            noise: the source of noise; OpenDP's samplers if None.

        Raises:
            Exception: an error of a query, as it is.
            ParameterError: a threshold is refused, or an answer is not one number on the grid.
            ExtraError: no noise is given, and OpenDP is not installed.
        """
        source = noise_or_default(noise)

        def run(data: Any) -> tuple[None, Cell]:
            search = Search(self, source)
            for query, threshold in questions:
                if search.done:
                    break
                least = self._grid.public(threshold=threshold)
                search.above(self._grid.point(query(data)), least)
            return None, search.found

        return rehearsed(self.guarantee, data, run)

    @contextmanager
    def open(
        self, data: Any, *, meter: Meter, noise: Noise | None = None
    ) -> Iterator[SparseVectorRun]:
        """Opens a conversation: ``with svt.open(data, meter=m) as run: run.ask(query, 5)``.

        The end of the block settles the sum that was found up to then; ``run.release()`` has the
        receipt. A block that an exception leaves is charged ``epsilon``, and so is one that
        never ends. Only the refusal of a question costs nothing: it has looked at nothing, so
        a block that it leaves is settled, too.

        Args:
            data: the private data, which each query is told.
            meter: the budget that pays.
            noise: the source of noise; OpenDP's samplers if None.

        Raises:
            BudgetError: the worst-case price does not fit; the data was not touched.
            SettlementError: the meter has another conversation open.
            ExtraError: no noise is given, and OpenDP is not installed; nothing is charged.
        """
        source = noise_or_default(noise)
        with conversation(
            meter, self.guarantee, data, lambda charge: SparseVectorRun(self, charge, source)
        ) as run:
            yield run


@contextmanager
def conversation(
    meter: Meter,
    guarantee: OutputDP,
    data: Any,
    begin: Callable[[Started], SparseVectorRun],
    admit: Callable[[Any], Any] | None = None,
) -> Iterator[SparseVectorRun]:
    """Reserves and starts a run that answers questions, and settles it at the end of the block.

    A block that an exception leaves is charged the worst-case price, unless the exception is
    the refusal of a question.

    Args:
        meter: the budget that pays.
        guarantee: the price of each output cell.
        data: the data of the caller.
        begin: from the started run, whose ``data`` it may replace, to the conversation.
        admit: as for :func:`started`.
    """
    refusal: Exception | None = None
    with started(meter, guarantee, data, admit, interactive=True) as charge:
        run = begin(charge)
        try:
            yield run
        except (ParameterError, SettlementError) as error:
            if error is not run.refusal:  # guard: only-own-refusal-excused
                raise
            refusal = error
        finally:
            run._close()
    if refusal is not None:
        raise refusal


class SparseVectorRun(Uncopied):
    """A conversation with a sparse vector; :meth:`SparseVector.open` makes it.

    It belongs to the process that opened it: a forked process cannot ask. It cannot be copied.

    Attributes:
        refusal: the refusal of the last question that was refused; it has looked at nothing.
    """

    def __init__(self, svt: SparseVector, charge: Started, noise: Noise) -> None:
        self._grid, self._charge = svt._grid, charge
        self._answers: list[bool] = []
        self._open = True
        self.refusal: Exception | None = None
        self._lock = threading.RLock()
        self._search = guarded(lambda: Search(svt, noise))
        charge.cell = 0

    @property
    def done(self) -> bool:
        """True if the run has found all that it may: then it answers no more."""
        return self._search.done

    def ask(self, query: Callable[[Any], Any], threshold: float) -> bool:
        """Says, noisily, whether a query is above a threshold.

        Args:
            query: from the data to an integer (other numbers are rounded down, which changes
                no comparison with an integer); with a step, to any real number.
            threshold: an integer; with a step, a number; it must not depend on the data.

        Raises:
            ParameterError: the threshold is refused; the query was not asked, and the run goes
                on.
            SettlementError: the run has found all that it may, or the block has ended.
            ReleaseError: noise could not be drawn. The run is over, and charged the worst-case
                price.
        """
        with held(self._lock):
            if not self._open:
                raise SettlementError("the run is over: it answers no more")
            try:
                if self.done:
                    raise SettlementError("the run has found all that it may: it answers no more")
                least = self._grid.public(threshold=threshold)
            except (ParameterError, SettlementError) as error:
                self.refusal = error
                raise
            # an answer that is on its way may be any: a run that ends here costs the worst case
            self._open, self._charge.cell = False, None  # guard: error-ends-run
            try:
                answer = self._compared(query, least)
            except (ReleaseError, KeyboardInterrupt, SystemExit) as error:
                # without the frames below, whose variables hold the answer of the query
                raise error.with_traceback(None) from None  # guard: question-error-without-answer
            self._open, self._charge.cell = True, self._search.found
            self._answers.append(answer)
            return answer

    def _compared(self, query: Callable[[Any], Any], least: int) -> bool:
        """Asks a query, and compares its answer with a threshold, given as a point."""
        data = self._charge.data
        with rehearsal(False):  # guard: paid-question-hides-errors
            point = self._grid.point(answered(lambda: query(data)))
        return guarded(lambda: self._search.above(point, least))

    def release(self) -> Release[tuple[bool, ...]]:
        """Returns all answers, with the cell and the receipt, when the block has ended.

        Raises:
            SettlementError: the block has not ended, or an exception has left it.
        """
        return self._charge.released(tuple(self._answers))

    def _close(self) -> None:
        """Ends the conversation; a question in another thread is waited for."""
        with held(self._lock):
            self._open = False


class Search:
    """The sparse vector technique itself, on integers."""

    def __init__(self, svt: SparseVector, noise: Noise) -> None:
        self._svt, self.found = svt, 0
        (self._rho,) = noise.laplace(svt.threshold_scale, 1).tolist()
        self._first = Pool(partial(noise.laplace, 2 * svt.scale), noise.batch)
        self._second = Pool(partial(noise.laplace, svt.scale), noise.batch)
        self._margin, self._units = svt.margin, svt.units
        self._least = 2 if svt.adaptive else 1

    @property
    def done(self) -> bool:
        """True if the price that is left does not pay for the costlier answer."""
        return self.found + self._least > self._units

    def above(self, value: int, threshold: int) -> bool:
        """Compares once; True if the value is above at the first look or at the second."""
        ahead = value - threshold - self._rho
        if self._svt.adaptive and ahead + self._first.take() >= self._margin:  # guard: margin-ahead
            self.found += 1  # guard: first-look-counted
            return True
        if ahead + self._second.take() >= 0:
            self.found += self._least  # guard: found-counted-above
            return True
        return False


@plain_numbers
@dataclass(frozen=True)
class SparseVectorRelease(MechanismOnData[Any, dict[int, NoisyAnswer]]):
    """Finds the entries of a vector that are above a threshold, and releases their values.

    The value of a release is a dictionary from the indices found to their noisy values. The price
    that the search did not spend goes to the values: with n found, each gets Laplace noise of
    scale n sensitivity / (epsilon of the values + the rest of the search's epsilon).

    Guarantee: delta = 0; cells {"nothing": eps1 of the search, "values": all of epsilon}. The
    price of the search's transcript and the price of the values add up to at most epsilon,
    whatever was found. Source: Hartmann et al. 2022, section 4 (Figure 1).

    Args:
        vector_query: from the data to a vector of integers (other numbers are rounded down);
            with a step, of real numbers.
        size: the number of entries of the vector.
        threshold: the threshold of each entry; it must not depend on the data.
        search: the sparse vector that finds the entries; its sensitivity is that of each entry,
            and its step and its bounds are those of the values, too.
        epsilon: > 0, nats, for the values alone.

    Raises:
        ParameterError: a parameter is refused.
    """

    vector_query: Callable[[Any], Any]
    size: int
    threshold: float
    search: SparseVector
    epsilon: Price

    def __post_init__(self) -> None:
        scale_up(self._scale(positive_count(size=self.size), 0))
        _ = self._least
        super().__post_init__()

    @cached_property
    def guarantee(self) -> OutputDP:
        """The output cell "nothing" costs the noisy threshold, and "values" all of epsilon."""
        whole = self.search.guarantee.sup + exact_positive(epsilon=self.epsilon)
        return OutputDP({"nothing": self.search.first, "values": whole})

    def _run(self, data: Any, noise: Noise) -> tuple[dict[int, NoisyAnswer], Cell]:
        grid = self.search._grid
        values = grid.points(answered(lambda: self.vector_query(data)), self.size)
        search, found = Search(self.search, noise), list[int]()
        for i, value in enumerate(values.tolist()):
            if search.done:
                break
            if search.above(value, self._least):
                found.append(i)
        if not found:
            return {}, "nothing"
        drawn = noise.laplace(self._scale(len(found), search.found), len(found))
        noisy = grid.noisy(values[found], drawn).tolist()
        return dict(zip(found, noisy, strict=True)), "values"

    @cached_property
    def _least(self) -> int:
        """The threshold as a point of the grid."""
        return self.search._grid.public(threshold=self.threshold)

    def _scale(self, values: int, found: int) -> Fraction:
        """Returns the scale of the noise on each value, in points of the grid."""
        back = self.search.guarantee.sup - self.search.guarantee.price(found)
        points = self.search._grid.sensitivity(self.search.sensitivity)
        return values * points / (exact_positive(epsilon=self.epsilon) + back)
