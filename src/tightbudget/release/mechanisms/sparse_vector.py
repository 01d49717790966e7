"""Sparse vector: which of many queries are above their thresholds, paid by what is found.

A noisy threshold is compared with noisy queries. With q the queries, T the thresholds, rho and
nu the noises, D the sensitivity, for a transcript that says "above" c' times: move rho by D,
and the nu of each "above" by what keeps it above, at most 2 D. Every "below" stays below, since
no query falls behind by more than D. So for neighbours the probabilities of the transcript
differ by at most a factor e^(D / scale of rho) times e^(2 D / scale of nu) for each "above".
If the queries are monotone (all move the same way), either rho or every nu that must move,
moves by D at most. All numbers are integers, so the moves are exact.

The adaptive version looks at each query twice: first with half the price, so twice the noise,
and a margin; then, if that fails, as above. A "below" at the first look stays below by the
same argument, and so each "above" costs what its own look costs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

from tightbudget.errors import ParameterError, SettlementError
from tightbudget.numerics.validate import plain_numbers, positive_count
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.output_dp.transactions import Uncopied
from tightbudget.release.mechanism import MechanismOnData, Priced
from tightbudget.release.mechanisms.additive import NoisyAnswer
from tightbudget.release.meter import Meter
from tightbudget.release.noise.grid import AnswerGrid
from tightbudget.release.noise.noise import Noise, Pool, noise_or_default, scale_up
from tightbudget.release.release import Release, Started, answered, guarded, started

__all__ = ["SparseVector", "SparseVectorRelease", "SparseVectorRun"]


@plain_numbers
@dataclass(frozen=True)
class SparseVector(Priced):
    """Says which queries are above their thresholds, until it has found enough.

    Guarantee: delta = 0; the cell is how much was found, from 0 on. With ``adaptive`` an
    answer of the first look counts 1 and one of the second look 2, out of 2 ``aboves``; cell k
    costs eps1 + k / (2 aboves) eps2. Without, each counts 1, and cell k costs
    eps1 + k / aboves eps2. It goes on while a dearest answer is paid for: so it can find
    ``aboves``, and up to 2 aboves - 1 where they are clear. eps1 + eps2 = epsilon is split
    where the comparison is the least noisy, eps1 : eps2 = 1 : (2 aboves)^(2/3), or
    1 : aboves^(2/3) if monotone.
    Source: Hartmann et al. 2022, Algorithm 2, Lemma 8; Lyu, Su, Li 2017, Algorithm 7;
    Ding, Wang, Zhang, Kifer 2020, Algorithm 2.

    Args:
        epsilon: > 0, nats, what it costs at most.
        aboves: >= 1, how many it finds for that.
        sensitivity: > 0, how far each query can move between neighbouring data sets. What
            neighbouring means, the caller says by this number.
        monotone: between neighbours, all queries move in the same direction. It is so for
            counts, where neighbours have one record more or less.
        adaptive: look twice.
        step: of the grid on which queries and thresholds are compared, a power of two; None
            for integers.
        bounds: (low, high): answers of queries beyond are moved there, and what is no number
            counts as low, as does a query that raises. A query that can fail needs them: it
            has the sensitivity high - low, whatever it does. Without bounds what is no number
            counts as 0.

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
        """A price for each amount that can be found."""
        return OutputDP.rising(self.first, self.rest, self.units)

    @property
    def units(self) -> int:
        """What can be found, counted in the price of the cheapest answer."""
        return positive_count(aboves=self.aboves) * (2 if self.adaptive else 1)

    @cached_property
    def first(self) -> Fraction:
        """eps1: for the noisy threshold, in any case."""
        ratio = (self._moves * positive_count(aboves=self.aboves)) ** (2 / 3)
        # any split is sound: three digits of the best one will do
        return exact_positive(epsilon=self.epsilon) * Fraction(f"{1 / (1 + ratio):.3g}")

    @property
    def rest(self) -> Fraction:
        """eps2: for all that can be found."""
        return exact_positive(epsilon=self.epsilon) - self.first

    # ----------------------------------------------------------------------- noise

    @cached_property
    def threshold_scale(self) -> Fraction:
        """Of the noise on the threshold, in points of the grid."""
        return self._points / self.first

    @cached_property
    def scale(self) -> Fraction:
        """Of the noise on a query, in points of the grid; of the first look, twice that."""
        return self._moves * self._points * self.aboves / self.rest

    @cached_property
    def margin(self) -> int:
        """By how much the first look must be above: two standard deviations of its noise."""
        return math.ceil(2 * math.sqrt(2) * float(2 * self.scale))

    @cached_property
    def _grid(self) -> AnswerGrid:
        return AnswerGrid(self.step, self.bounds)

    @property
    def _points(self) -> int:
        return self._grid.sensitivity(self.sensitivity)

    @property
    def _moves(self) -> int:
        """By how many sensitivities the noise of an "above" has to move."""
        return 1 if self.monotone else 2

    # ------------------------------------------------------------------------- runs

    @contextmanager
    def open(
        self, data: Any, *, meter: Meter, noise: Noise | None = None
    ) -> Iterator[SparseVectorRun]:
        """A conversation: ``with svt.open(data, meter=m) as run: run.ask(query, threshold)``.

        The end of the block settles what was found up to then; ``run.release()`` has the
        receipt. A block that an exception leaves is charged ``epsilon``, and so is one that
        never ends. Only the refusal of a question costs nothing: it has looked at nothing, so
        a block that it leaves is settled, too.

        Raises:
            BudgetError: it does not fit; the data was not touched.
            SettlementError: the meter has another conversation open.
            ExtraError: no noise is given, and OpenDP is not installed; nothing is charged.
        """
        source = noise_or_default(noise)
        refusal: Exception | None = None
        with started(meter, self.guarantee, data, interactive=True) as charge:
            run = SparseVectorRun(self, charge, source)
            try:
                yield run
            except (ParameterError, SettlementError) as error:
                if error is not run._refusal:
                    raise
                refusal = error
            finally:
                run._close()
        if refusal is not None:
            raise refusal


class SparseVectorRun(Uncopied):
    """A sparse vector in conversation; made by :meth:`SparseVector.open`.

    It belongs to the process that opened it: a fork cannot ask. It cannot be copied.
    """

    def __init__(self, svt: SparseVector, charge: Started, noise: Noise) -> None:
        self._grid, self._charge = svt._grid, charge
        self._answers: list[bool] = []
        self._open = True
        self._refusal: Exception | None = None  # of the last question that was refused
        self._lock = threading.RLock()
        self._search = guarded(lambda: _Search(svt, noise))
        charge.cell = 0

    @property
    def done(self) -> bool:
        """Whether it has found what it may: then it answers no more."""
        return self._search.done

    def ask(self, query: Callable[[Any], Any], threshold: float) -> bool:
        """Whether the query is above the threshold, noisily.

        Args:
            query: from the data to an integer (other numbers are rounded down, which changes
                no comparison with an integer); with a step, to any real number.
            threshold: an integer; with a step, a number; it must not depend on the data.

        Raises:
            ParameterError: the threshold is refused; the query was not asked, and the run goes
                on.
            SettlementError: it has found what it may, or the block has ended.
            ReleaseError: noise could not be drawn. The run is over, and charged the worst-case
                price.
        """
        with self._lock:
            if not self._open:
                raise SettlementError("the run is over: it answers no more")
            try:
                if self.done:
                    raise SettlementError("the run has found all that it may: it answers no more")
                least = self._grid.public(threshold=threshold)
            except (ParameterError, SettlementError) as error:
                self._refusal = error
                raise
            data = self._charge.data
            # until it has answered, it may have answered anything
            self._open, self._charge.cell = False, None
            point = self._grid.point(answered(lambda: query(data)))
            answer = guarded(lambda: self._search.above(point, least))
            self._open, self._charge.cell = True, self._search.found
            self._answers.append(answer)
            return answer

    def release(self) -> Release[tuple[bool, ...]]:
        """All answers, with the cell and the receipt, when the block has ended.

        Raises:
            SettlementError: the block has not ended, or an exception has left it.
        """
        return self._charge.released(tuple(self._answers))

    def _close(self) -> None:
        with self._lock:
            self._open = False


class _Search:
    """The mechanism itself, on integers."""

    def __init__(self, svt: SparseVector, noise: Noise) -> None:
        self._svt, self.found = svt, 0
        (self._rho,) = noise.laplace(svt.threshold_scale, 1).tolist()
        self._first = Pool(partial(noise.laplace, 2 * svt.scale), noise.batch)
        self._second = Pool(partial(noise.laplace, svt.scale), noise.batch)
        self._margin, self._units = svt.margin, svt.units
        self._least = 2 if svt.adaptive else 1

    @property
    def done(self) -> bool:
        """Whether what is left does not pay for the dearer answer."""
        return self.found + self._least > self._units

    def above(self, value: int, threshold: int) -> bool:
        """One comparison: at the first look, or at the second, or not."""
        ahead = value - threshold - self._rho
        if self._svt.adaptive and ahead + self._first.take() >= self._margin:
            self.found += 1
            return True
        if ahead + self._second.take() >= 0:
            self.found += self._least
            return True
        return False


@plain_numbers
@dataclass(frozen=True)
class SparseVectorRelease(MechanismOnData[dict[int, NoisyAnswer]]):
    """Finds the entries of a vector that are above a threshold, and releases their values.

    What the search did not spend goes to the values: with n found, each gets Laplace noise of
    scale n sensitivity / (epsilon of the values + what is left of the search).

    Guarantee: delta = 0; cells {"nothing": eps1 of the search, "values": all of epsilon}. The
    price of the search's transcript and that of the values add up to at most epsilon,
    whatever was found. Source: Hartmann et al. 2022, section 4 (Figure 1).

    Args:
        vector_query: from the data to a vector of integers (other numbers are rounded down);
            with a step, of real numbers.
        size: how many entries the vector has.
        threshold: of the entries to be found; it must not depend on the data.
        search: the sparse vector that finds them; its sensitivity is that of each entry, and
            its step and its bounds are those of the values, too.
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
        """Nothing costs the noisy threshold, values cost everything."""
        whole = self.search.guarantee.sup + exact_positive(epsilon=self.epsilon)
        return OutputDP({"nothing": self.search.first, "values": whole})

    def _run(self, data: Any, noise: Noise) -> tuple[dict[int, NoisyAnswer], Cell]:
        grid = self.search._grid
        values = grid.points(answered(lambda: self.vector_query(data)), self.size)
        search, found = _Search(self.search, noise), list[int]()
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
        """The point of the threshold."""
        return self.search._grid.public(threshold=self.threshold)

    def _scale(self, values: int, found: int) -> Fraction:
        """Of the noise on each value, in points of the grid."""
        back = self.search.guarantee.sup - self.search.guarantee.price(found)
        points = self.search._grid.sensitivity(self.search.sensitivity)
        return values * points / (exact_positive(epsilon=self.epsilon) + back)
