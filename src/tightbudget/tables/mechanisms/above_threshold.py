"""Says which of many conditions are frequent, and pays for each that is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tightbudget.errors import ParameterError, ReleaseError
from tightbudget.numerics.validate import plain_numbers, refuse
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.output_dp.transactions import Uncopied
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.mechanisms.sparse_vector import (
    Search,
    SparseVector,
    SparseVectorRun,
    conversation,
)
from tightbudget.release.meter import Meter
from tightbudget.release.noise.grid import AnswerGrid
from tightbudget.release.noise.noise import Noise, noise_or_default
from tightbudget.release.release import Release, Started, guarded
from tightbudget.tables.mechanism import Plan
from tightbudget.tables.mechanisms.bases import RowsOrUnits
from tightbudget.tables.source import Contribution, Rule
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class AboveThreshold(RowsOrUnits[tuple[bool, ...]]):
    """Says which counts are above their thresholds, until it has found enough.

    All conditions are counted in one scan, and the counts are compared one by one, as
    :class:`SparseVector` does. :meth:`release` asks all questions in turn, and the value is the
    tuple of the answers; it may be shorter than the questions, since a run ends when it has found
    enough. :meth:`open` asks those that you choose, in the order that you choose.

    Guarantee: delta = 0 for tables of which one has all rows of one unit more; the cell is the sum
    of all that was found, with the prices of a :class:`SparseVector` that is ``monotone``. A unit
    moves each count of rows by at most ``rows_per_unit``, and each count of units by at most 1,
    and it moves all counts in one direction: a row more lowers no count.

    Args:
        questions: pairs of a condition and its threshold, a public integer. A condition is a
            column of truth values, or a function of the rows that looks at one row alone.
        epsilon: > 0, nats, the worst-case price.
        aboves: >= 1, the number of questions that it finds at this price.
        adaptive: whether to look twice.

    Raises:
        ParameterError: a parameter is refused.
    """

    questions: Sequence[tuple[Rule, int]]
    epsilon: Price
    aboves: int
    adaptive: bool = True

    answered_by = (SparseVector,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "questions", _questions(self.questions))
        _ = self.guarantee
        for i, (_, threshold) in enumerate(self.questions):
            AnswerGrid(None).public(**{f"questions[{i}][1]": threshold})
        super().__post_init__()

    @cached_property
    def guarantee(self) -> OutputDP:
        """The output cells 0, 1, ...: the price of each sum of the answers found."""
        return self._search(1).guarantee

    def plan(self, table: Table) -> Plan:
        """Plans one count for each question; a unit moves each by its rows, or by 1."""
        source, rules = table.source, [rule for rule, _ in self.questions]
        source.check_rules(conditions=rules)

        def scan(contribution: Contribution) -> list[int]:
            return source.counts(contribution, rules, units=self.of == "units")

        moves = self._moves(table)
        search = self._search(moves)
        in_turn = _InTurn(search=search, thresholds=tuple(t for _, t in self.questions))
        return Plan(scan=scan, mechanism=in_turn, sensitivity=float(moves))

    @contextmanager
    def open(
        self, table: Table, *, meter: Meter, noise: Noise | None = None
    ) -> Iterator[AboveThresholdRun]:
        """Opens a conversation: ``with search.open(table, meter=m) as run: run.ask(0)``.

        The table is scanned once, at the start. The end of the block settles the sum that was
        found up to then; ``run.release()`` has the receipt. A block that an exception leaves is
        charged ``epsilon``, and so is one that never ends. Only the refusal of a question costs
        nothing.

        Args:
            table: the private rows.
            meter: the budget that pays.
            noise: the source of noise; OpenDP's samplers if None.

        Raises:
            BudgetError: the worst-case price does not fit; the table was not touched.
            ParameterError: the table does not fit; nothing is charged.
            SourceError: the table does not answer before the scan; nothing is charged.
            ReleaseError: the scan has failed; the worst-case price is charged.
            SettlementError: the meter has another conversation open.
            ExtraError: no noise is given, and OpenDP is not installed; nothing is charged.
        """
        source = noise_or_default(noise)

        def begin(charge: Started) -> SparseVectorRun:
            planned = charge.data
            plan, charge.data = planned.plan, None
            charge.data = guarded(lambda: plan.scan(planned.table.contribution()))
            return SparseVectorRun(plan.mechanism.search, charge, source)

        thresholds = [threshold for _, threshold in self.questions]
        try:
            with conversation(meter, self.guarantee, table, begin, self._admitted) as run:
                yield AboveThresholdRun(run, thresholds)
        except (ReleaseError, KeyboardInterrupt, SystemExit) as error:
            # an error that is kept keeps the variables of its frames: none of them holds the table
            del table  # guard: kept-error-without-table
            raise error.with_traceback(None) from None

    def _search(self, sensitivity: int) -> SparseVector:
        """Returns the sparse vector that compares counts of a sensitivity with thresholds."""
        return SparseVector(
            self.epsilon, self.aboves, sensitivity, monotone=True, adaptive=self.adaptive
        )


class AboveThresholdRun(Uncopied):
    """A conversation about the counts of one scan; :meth:`AboveThreshold.open` makes it.

    It belongs to the process that opened it: a forked process cannot ask. It cannot be copied.
    """

    def __init__(self, run: SparseVectorRun, thresholds: Sequence[int]) -> None:
        self._run, self._thresholds = run, thresholds

    @property
    def done(self) -> bool:
        """True if the run has found all that it may: then it answers no more."""
        return self._run.done

    def ask(self, number: int) -> bool:
        """Says, noisily, whether the count of a question is above its threshold.

        Args:
            number: of the question, from 0 on; a question may be asked again, which costs again
                if it is found again.

        Raises:
            ParameterError: there is no question with this number; the run goes on.
            SettlementError: the run has found all that it may, or the block has ended.
            ReleaseError: noise could not be drawn. The run is over, and charged the worst-case
                price.
        """
        if type(number) is not int or not 0 <= number < len(self._thresholds):
            must = f"be the number of a question, in 0, ..., {len(self._thresholds) - 1}"
            # the conversation excuses this refusal: it has looked at nothing
            self._run.refusal = refuse("number", must, number)  # guard: number-refused-unpaid
            raise self._run.refusal
        return self._run.ask(lambda counts: counts[number], self._thresholds[number])

    def release(self) -> Release[tuple[bool, ...]]:
        """Returns all answers in the order asked, with the receipt, when the block has ended.

        Raises:
            SettlementError: the block has not ended, or an exception has left it.
        """
        return self._run.release()


@dataclass(frozen=True, kw_only=True)
class _InTurn(MechanismOnData[list[int], tuple[bool, ...]]):
    """Compares counts with their thresholds, one after the other, until enough is found."""

    search: SparseVector
    thresholds: tuple[int, ...]

    @property
    def guarantee(self) -> OutputDP:
        """The prices of the sparse vector."""
        return self.search.guarantee

    def _run(self, data: Any, noise: Noise) -> tuple[tuple[bool, ...], Cell]:
        search, answers = Search(self.search, noise), list[bool]()
        for number, threshold in zip(data, self.thresholds, strict=True):
            if search.done:
                break
            answers.append(search.above(number, threshold))
        return tuple(answers), search.found


def _questions(given: Any) -> tuple[tuple[Rule, int], ...]:
    """Returns questions as a tuple of pairs.

    Raises:
        ParameterError: they are none.
    """
    if not isinstance(given, (tuple, list)) or not given:
        raise refuse("questions", "be pairs of a condition and a threshold, at least one", given)
    for i, pair in enumerate(given):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ParameterError(f"questions[{i}] must be a pair, (condition, threshold)")
    return tuple((rule, threshold) for rule, threshold in given)
