"""Several questions to a table as one: one hold, one scan, and a price for each answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.noise import Noise
from tightbudget.tables.asked import cut, text_of
from tightbudget.tables.mechanism import Plan, TableMechanism
from tightbudget.tables.source import Contribution
from tightbudget.tables.table import Table

# All combinations of output cells are listed, each with its price.
_MOST_CELLS = 10_000

Answers = tuple[tuple[Any, tuple[float, ...] | None, Cell], ...]


@dataclass(frozen=True, kw_only=True)
class PlanTogether(Plan):
    """A plan of several questions.

    Attributes:
        parts: the plan of each question.
    """

    parts: tuple[Plan, ...]


@dataclass(frozen=True, kw_only=True)
class Together(TableMechanism[Answers]):
    """Asks several questions in one scan; a session asks it for a list of questions.

    The value of a release has for each question its value, the noisy rows of its plan, and its
    output cell.

    Guarantee: the product of the guarantees of the questions, whose prices and deltas add up: each
    draws noise of its own. Which rows of a unit count is chosen by one key for all of them, which
    does not depend on the data: for each key the questions are independent.

    Args:
        questions: at least one.

    Raises:
        ParameterError: they have too many combinations of output cells.
    """

    questions: tuple[TableMechanism[Any], ...]

    def __post_init__(self) -> None:
        if math.prod(len(question.guarantee.cells) for question in self.questions) > _MOST_CELLS:
            raise ParameterError(
                f"questions must have at most {_MOST_CELLS} combinations of output cells "
                "together: ask those with many output cells one by one"
            )
        super().__post_init__()

    @property
    def guarantee(self) -> OutputDP:
        """The product of the guarantees of the questions."""
        return _product(self.questions)

    def plan(self, table: Table) -> PlanTogether:
        """Plans each question, and a scan of all.

        Raises:
            ParameterError: a question is refused, which is named with its number.
        """
        table = table.for_one_statement()
        plans = []
        for number, question in enumerate(self.questions, start=1):
            try:
                plans.append(question.planned(table).plan)
            except ParameterError as error:
                text = cut(text_of(question, table), 80)
                raise ParameterError(f"question {number}, {text}: {error}") from error

        def scan(contribution: Contribution) -> list[Any]:
            return table.source.together([partial(plan.scan, contribution) for plan in plans])

        return PlanTogether(
            scan=scan,
            mechanism=EachInTurn(search=tuple(plan.mechanism for plan in plans)),
            value=lambda found: tuple(
                (
                    plan.value(answer),
                    None if plan.noisy_rows is None else plan.noisy_rows(answer),
                    cell,
                )
                for plan, (answer, cell) in zip(plans, found, strict=True)
            ),
            parts=tuple(plans),
        )


@dataclass(frozen=True, kw_only=True)
class EachInTurn(MechanismOnData[list[Any], list[tuple[Any, Cell]]]):
    """Answers from several vectors, each by a mechanism of its own.

    Guarantee: the product of the guarantees of the mechanisms.

    Args:
        search: the mechanisms, in the order of the vectors.
    """

    search: tuple[MechanismOnData[Any, Any], ...]

    @property
    def guarantee(self) -> OutputDP:
        """The product of the guarantees of the mechanisms."""
        return _product(self.search)

    def _run(self, data: list[Any], noise: Noise) -> tuple[list[tuple[Any, Cell]], Cell]:
        found = [
            mechanism.unpaid_answer(vector, noise)
            for mechanism, vector in zip(self.search, data, strict=True)
        ]
        return found, tuple(cell for _, cell in found)


def _product(mechanisms: Sequence[MechanismOnData[Any, Any]]) -> OutputDP:
    """Returns the guarantee of mechanisms with noise of their own on the same data."""
    # guard: prices-of-all-questions
    return OutputDP.product(*(mechanism.guarantee for mechanism in mechanisms))
