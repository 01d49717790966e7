"""A session: a table and a budget in one object, and a receipt for each answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast

from tightbudget import notebook
from tightbudget.errors import ParameterError, TightBudgetError
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.account import State
from tightbudget.output_dp.amount import Amount, exact, printed_up
from tightbudget.output_dp.guarantee import Cell
from tightbudget.output_dp.transactions import Uncopied
from tightbudget.promises.charged_blocks import BaseBlockRange
from tightbudget.promises.hold import BaseHold
from tightbudget.promises.keyed import Keyed
from tightbudget.promises.text import LONGEST_QUESTION
from tightbudget.release.meter import Meter
from tightbudget.release.noise.noise import Noise
from tightbudget.release.noise.salt import fresh_salt
from tightbudget.release.release import Receipt, Release, checked_meter
from tightbudget.tables.answer import TableAnswer
from tightbudget.tables.asked import cut, identity_of, text_of
from tightbudget.tables.error_laws import ErrorLaw, RankLaw
from tightbudget.tables.kept_answers import KeptAnswer, opened
from tightbudget.tables.kept_runs import KeepingMeter, KeyedQuestion, found_or_held
from tightbudget.tables.mechanism import Plan, Planned, TableMechanism
from tightbudget.tables.mechanisms.count import Count
from tightbudget.tables.rows_of_blocks import rows_in_blocks
from tightbudget.tables.session_preview import QuestionPreview, SessionPreview
from tightbudget.tables.table import Table
from tightbudget.tables.together import PlanTogether, Together

V = TypeVar("V")

# A key of a ledger has at most 200 characters. A random part of 12 hexadecimal digits tells runs
# apart: two of a million runs of one question have the same with a probability of 0.2 %, and the
# second of them would be refused, at no price.
_LONGEST_NAME, _LONGEST_KEY, _RANDOM = 80, 200, 12


@dataclass(frozen=True, eq=False, repr=False)
class Session(Uncopied):
    """A table and the budget that pays for questions about it.

    Each question that is asked is a run of its own, which costs its price: asking the same again
    costs again, also after a crash, since no answer is kept.

    What a session has released, it uses: a count of all rows tells later quantiles how many rows
    there are, for their intervals and for whether they are mostly noise. That costs nothing.

    With a budget of a ledger, ``ledger.budget("ada")``, the session makes a key for each run: the
    name of the session, the question, and a random part, so that the history says what was asked
    and no run takes the key of another one. With a key, ``ledger.budget("ada").keyed("A7")``, runs
    have the keys A7, A7#2, ... in the order in which they are asked: a program that is started
    again is refused where it has asked before, and is not charged twice. With a file of ``answers``
    beside the key it goes on instead, at the first question that was not answered: the answers
    before it come from the file, and cost nothing.

    With blocks of a ledger (a budget for each month, say), a session reads the rows of these blocks
    alone, by the ``columns`` that say in which block a row is.

    Args:
        table: the table.
        meter: the budget that pays: one of a ledger, with or without a key, here or on a server,
            or one in memory.
        name: the name of the table in keys, at most 80 printable characters; None for the name of
            the file, or "table". Those who may read the ledger see it.
        noise: the source of noise; OpenDP's samplers if None.
        columns: for each dimension of the blocks that pay, the column that a row's block follows
            from: ``{"month": "visited"}``. Rows of other blocks are not asked. None asks all rows
            of the table: then you say that they are in the blocks.
        answers: a file, which is made if it is not there, in which the answers are kept. It needs a
            meter with a key. It also has the tokens of the runs, which settle them: those who may
            see the answers may read it.
        again: whether a question whose answer was lost (its process died while it was asked) is
            asked once more. What it has cost stays charged, at its worst-case price if it was not
            settled, and the price is paid again, as long as the budget has it.

    Raises:
        ParameterError: the table is no Table, the meter is no budget, or another argument is
            refused.
    """

    table: Table
    meter: Any
    name: str | None = None
    noise: Noise | None = None
    columns: Mapping[str, str] | None = field(default=None, kw_only=True)
    answers: str | PathLike[str] | None = field(default=None, kw_only=True)
    again: bool = field(default=False, kw_only=True)
    _counted: list[TableAnswer[int]] = field(init=False, default_factory=list)
    _receipts: list[Receipt] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if not isinstance(self.table, Table):
            raise refuse("table", "be a Table", type(self.table).__name__)
        name: Any = _file_name(self.table.data) if self.name is None else self.name
        if not (isinstance(name, str) and 1 <= len(name) <= _LONGEST_NAME and name.isprintable()):
            must = f"be a text of 1 to {_LONGEST_NAME} printable characters"
            raise refuse("name", must, self.name)
        object.__setattr__(self, "name", name)
        checked_meter(self.meter.keyed(name) if self._makes_keys else self.meter)
        if self.columns is not None:
            blocks = self.meter.budget if isinstance(self.meter, Keyed) else self.meter
            if not isinstance(blocks, BaseBlockRange):
                must = "be None unless blocks pay, say ledger.blocks(...).where(month=...)"
                raise refuse("columns", must, self.columns)
            table = rows_in_blocks(self.table, blocks.values, self.columns)
            object.__setattr__(self, "table", table)
        again: Any = self.again
        if not isinstance(again, bool) or (again and self.answers is None):
            raise refuse("again", "be True or False, and True beside answers alone", again)
        if self.answers is None:
            return
        path: Any = self.answers
        if not isinstance(path, (str, PathLike)):
            raise refuse("answers", "be the path of a file", type(path).__name__)
        if not isinstance(self.meter, Keyed):
            must = 'be None unless the meter has a key, say budget.keyed("2026-11")'
            raise refuse("answers", must, str(self.answers))
        with opened(self.answers):  # another file, or one that cannot be written, is refused now
            pass

    def __repr__(self) -> str:
        try:
            left = f"left {self.left}"
        except TightBudgetError as error:  # the ledger is away
            left = str(error)
        return f"<Session {self.name!r}: {left}>"

    def _repr_html_(self) -> str:
        """Writes the table's declarations and what is left, for a notebook."""
        try:
            left = str(self.left)
        except TightBudgetError as error:
            left = str(error)
        table = self.table
        rows = [
            ("unit", "each row" if table.unit is None else table.unit),
            ("rows of a unit", notebook.left(table.rows)),
            ("groups of a unit", notebook.left(table.groups)),
            ("left", left),
        ]
        return notebook.shown(notebook.table(rows, title=f"Session {self.name}"))

    @property
    def left(self) -> Amount:
        """The amount that may still be spent or held."""
        left: Amount = self.meter.left
        return left

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """The receipts of all answers of this session, oldest first.

        A mechanism that was opened, which answers one question after another, has its own.
        """
        return tuple(self._receipts)

    # ------------------------------------------------------------------ before

    def what_if(self, questions: Sequence[TableMechanism[Any]]) -> SessionPreview:
        """Says what questions would cost together, and what noise each would have.

        Each question is planned, so that all refusals that do not depend on the budget are seen.
        Nothing is touched: no row is read, and nothing is reserved.

        Args:
            questions: mechanisms on tables, in the order in which they would be asked.

        Raises:
            ParameterError: a question is refused, which is named with its number; or the meter
                does not count epsilon.
        """
        if not isinstance(questions, (list, tuple)):
            raise refuse("questions", "be a list of questions", type(questions).__name__)
        meter = self.meter.keyed(self.name) if self._makes_keys else self.meter
        found, epsilon, delta = [], Fraction(0), Fraction(0)
        left = self.left
        for number, question in enumerate(questions, start=1):
            _check_question(question)
            table = self.table.for_one_question()
            text = text_of(question, table)
            try:
                price, plan = question.what_if(meter), question.planned(table).plan
            except ParameterError as error:
                raise ParameterError(f"question {number}, {cut(text, 80)}: {error}") from error
            epsilon += exact(sup=question.guarantee.sup)
            delta += exact(delta=question.guarantee.delta)
            total = Amount(printed_up(epsilon), printed_up(delta), left.unit)
            found.append(
                QuestionPreview(
                    question=text,
                    most=price.most,
                    least=price.least,
                    sensitivity=plan.sensitivity,
                    error=self._with_rows(question, plan.error),
                    mostly_noise=self._surely_mostly_noise(question, plan),
                    total=total,
                    fits=total.amount <= left.amount and total.delta <= left.delta,
                )
            )
        return SessionPreview(tuple(found), left)

    # ------------------------------------------------------------------ answers

    def ask(self, question: TableMechanism[V]) -> TableAnswer[V]:
        """Answers a question from one scan of the table, and pays for the answer.

        Args:
            question: a mechanism on tables. The same question again is another run, and costs
                again.

        Raises:
            BudgetError: the worst-case price does not fit; the data was not touched.
            ParameterError: the question does not fit the table; nothing is charged.
            SourceError: the table's engine does not answer; nothing is charged.
            SettlementError: the key of a meter that was made with one was used before; with
                ``answers``, its answer was lost.
            KeyConflictError: the key was used for another question.
            FileError: the file of answers cannot be read or written.
            ReleaseError: the scan or the noise failed after the start; the worst-case price is
                charged.
            ExtraError: no noise is given, and OpenDP is not installed; nothing is charged.
        """
        _check_question(question)
        planned = question.planned(self.table)  # it may refuse, before the price is held
        error = self._with_rows(question, planned.plan.error)
        asked = cut(text_of(question, planned.table), LONGEST_QUESTION)
        if self.answers is None:
            key, meter = self._pays(asked)
            run: Any = planned.with_noisy_rows()
            done: Any = question.release(run, meter=meter, noise=self.noise)
        else:
            key, done = self._kept(question, planned, asked)
        value, noisy_rows = cast(tuple[V, tuple[float, ...] | None], done.value)
        answer = TableAnswer(
            question=question,
            value=value,
            cell=done.cell,
            receipt=replace(done.receipt, question=asked),
            error=error,
            noisy_rows=noisy_rows,
            key=key,
        )
        self._learn(answer)
        return answer

    def ask_all(self, questions: Sequence[TableMechanism[Any]]) -> list[TableAnswer[Any]]:
        """Answers several questions from one scan of the table, as one run with one hold.

        All are answered, or none: if one is refused, or they do not fit together, nothing is
        charged. :meth:`what_if` tells the price of each and their sum. The run has one key; with
        ``answers`` the answers are kept together, so that a program that is started again has all
        of them, or asks all once more as :meth:`ask` does. An
        engine gets the queries as one statement, so that all answers are about the same rows.

        Args:
            questions: mechanisms on tables, at least one.

        Returns:
            the answers in the order of the questions, each with its own price in its receipt.

        Raises:
            BudgetError: the worst-case prices do not fit together; the data was not touched.
            ParameterError: a question does not fit the table, which is named with its number, or
                the meter does not count epsilon; nothing is charged.
            SourceError: the table's engine does not answer; nothing is charged.
            SettlementError: the key of a meter that was made with one was used before; with
                ``answers``, their answers were lost.
            KeyConflictError: the key was used for other questions.
            FileError: the file of answers cannot be read or written.
            ReleaseError: the scan or the noise failed after the start; the worst-case prices are
                charged.
            ExtraError: no noise is given, and OpenDP is not installed; nothing is charged.
        """
        if not isinstance(questions, (list, tuple)) or not questions:
            raise refuse("questions", "be a list of questions, at least one", questions)
        for question in questions:
            _check_question(question)
        together = Together(questions=tuple(questions))
        planned = together.planned(self.table)  # it may refuse, before the price is held
        errors = [
            self._with_rows(question, part.error)
            for question, part in zip(
                questions, cast(PlanTogether, planned.plan).parts, strict=True
            )
        ]
        texts = [text_of(question, planned.table) for question in questions]
        asked = "; ".join(texts)
        run: Any = planned
        if self.answers is None:
            key, meter = self._pays(asked)
            together.what_if(meter)  # refuses a meter of another unit
            done: Release[Any] = together.release(run, meter=meter, noise=self.noise)
        else:
            together.what_if(self.meter)
            key, pair = self._kept(together, planned, cut(asked, LONGEST_QUESTION))
            done = replace(pair, value=pair.value[0])  # without the noisy rows of all together
        answers = [
            TableAnswer(
                question=question,
                value=value,
                cell=cell,
                receipt=_own_receipt(question, cell, text),
                error=error,
                noisy_rows=noisy_rows,
                key=key,
            )
            for question, error, text, (value, noisy_rows, cell) in zip(
                questions, errors, texts, done.value, strict=True
            )
        ]
        for answer in answers:
            self._learn(answer)
        return answers

    def _kept(self, question: Any, planned: Planned[Any], asked: str) -> tuple[str, Release[Any]]:
        """Returns the key and the answer of a run: one that the file has, or a new one."""
        assert self.answers is not None
        identity = identity_of(question, planned.table, self.columns)
        wanted = KeyedQuestion(text=asked, identity=identity, guarantee=question.guarantee)
        with opened(self.answers) as answers:
            hold, known = found_or_held(self.meter, wanted, answers, again=self.again)
            if known is not None:
                if hold.state is State.STARTED:
                    hold.settle(known.cell)
                receipt = Receipt(known.held, hold.charge)
                return hold.key, Release((known.value, known.noisy_rows), known.cell, receipt)
            both: list[Any] = []

            def keep(run: BaseHold[Any], cell: Cell) -> None:
                value, noisy_rows = both[-1]
                answers.keep(
                    KeptAnswer(
                        key=run.key,
                        identity=identity,
                        token=str(run.token),
                        cell=cell,
                        held=run.charge,
                        value=value,
                        noisy_rows=noisy_rows,
                    )
                )

            meter = KeepingMeter(hold, self.left, keep)
            run: Any = planned.with_noisy_rows(both.append)
            try:
                return hold.key, question.release(run, meter=meter, noise=self.noise)
            except BaseException:
                if hold.state is State.RESERVED:  # it was refused before its start
                    hold.void()  # guard: refused-run-voided
                raise

    def open(self, question: Any, **more: Any) -> Any:
        """Opens a mechanism that answers one question after another, in a ``with`` statement.

        Args:
            question: a mechanism on tables that has ``open``.
            more: what its ``open`` takes beside the table, the meter and the noise.

        Raises:
            ParameterError: it has no ``open``; or its own ``open`` refuses.
        """
        if not callable(getattr(question, "open", None)):
            raise refuse("question", "have open(): ask it otherwise", type(question).__name__)
        if self.answers is not None:
            raise refuse("answers", "be None to open: its answers come one by one", "a file")
        _, meter = self._pays(text_of(question, self.table))
        return question.open(self.table, meter=meter, noise=self.noise, **more)

    def _rows(self) -> int | None:
        """Returns a number of rows beyond which no more count: a public or a released one."""
        known = [] if self.table.units is None else [self.table.units * self.table.rows]
        if self._counted:
            best = min(self._counted, key=self._width)
            known.append(max(0, math.ceil(best.interval()[1])) * self._each(best))
        return min(known, default=None)

    def _each(self, answer: TableAnswer[int]) -> int:
        """Returns how many rows may count for one that a released count has counted."""
        return self.table.rows if answer.question.of == "units" else 1

    def _width(self, answer: TableAnswer[int]) -> float:
        """Returns how far a released count may be off, in rows."""
        assert answer.noise is not None
        return answer.noise.half_width() * self._each(answer)

    def _learn(self, answer: TableAnswer[Any]) -> None:
        """Keeps the receipt, and a released count of all rows or units, which is as public."""
        self._receipts.append(answer.receipt)
        if isinstance(answer.question, Count) and answer.question.where is None:
            self._counted.append(answer)

    def _with_rows(self, question: Any, error: ErrorLaw | None) -> ErrorLaw | None:
        """Returns an error law that knows how many rows there are, if it asks for that."""
        if not isinstance(error, RankLaw):
            return error
        # of the same rows: a count of units, or of other rows, bounds their number from above alone
        all_rows = question.where is None and error.groups is None
        same = [a for a in self._counted if a.question.of == "rows" and all_rows]
        best = min(same, key=self._width, default=None)
        count = None if best is None or best.noise is None else (best.value, best.noise)
        return replace(error, rows=self._rows(), count=count)

    def _surely_mostly_noise(self, question: Any, plan: Plan) -> bool:
        """Says whether the answer of a plan is mostly noise, whatever the rows are."""
        rows, largest = self._rows(), None
        if rows is None or plan.error is None:
            return False
        if plan.sensitivity is not None:
            # of a unit with all its rows; each unit that is counted has a row
            units = getattr(question, "of", "rows") == "units"
            largest = float(rows) if units else rows * plan.sensitivity / self.table.rows
        return plan.error.surely_mostly_noise(rows, largest)

    @property
    def _makes_keys(self) -> bool:
        """Says whether the meter is a budget of a ledger that needs a key for each run."""
        return not isinstance(self.meter, type) and callable(getattr(self.meter, "keyed", None))

    def _pays(self, asked: str) -> tuple[str | None, Meter]:
        """Returns the key of a new run, if the session makes keys, and the meter that pays.

        A meter of a ledger writes the question down, whose text is ``asked``.
        """
        key, meter = None, self.meter
        if self._makes_keys:
            # a key that was used would be answered with the run that has used it
            fresh = fresh_salt()[:_RANDOM]  # guard: run-with-own-key
            key = f"{cut(f'{self.name}/{asked}', _LONGEST_KEY - 1 - len(fresh))} {fresh}"
            meter = meter.keyed(key)
        asking = getattr(meter, "asking", None)
        return key, asking(cut(asked, LONGEST_QUESTION)) if callable(asking) else meter


def _own_receipt(question: TableMechanism[Any], cell: Cell, text: str) -> Receipt:
    """Returns the part of a question in the receipt of a run of several."""
    delta = printed_up(question.guarantee.delta)
    return Receipt(
        held=Amount(printed_up(question.guarantee.sup), delta, "epsilon"),
        charged=Amount(printed_up(question.guarantee.price(cell)), delta, "epsilon"),
        question=cut(text, LONGEST_QUESTION),
    )


def _check_question(question: Any) -> None:
    """Refuses an object that is no mechanism on tables."""
    if not isinstance(question, TableMechanism):
        shown = question.__name__ if isinstance(question, type) else type(question).__name__
        raise refuse("question", "be a mechanism on tables, say Count(epsilon=0.1)", shown)


def _file_name(data: Any) -> str:
    """Returns the name of a file without its ending; "table" for other data."""
    if not isinstance(data, (str, PathLike)):
        return "table"
    return cut(Path(data).name.split(".")[0], _LONGEST_NAME) or "table"
