"""The base of mechanisms on tables: a plan from a table's bounds, one scan, and noise.

A mechanism on a table is a mechanism on data (:class:`MechanismOnData`) whose data are a
:class:`Table`. Its price follows from its parameters alone. The table's bounds on a unit give the
sensitivity, and with it the noise. A mechanism on a table gives ``guarantee``, and ``plan``: which
verb of the source is asked, and which mechanism answers from the small vector that comes back.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, Literal, TypeVar

from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.amount import Price, exact, exact_positive, exact_probability
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanism import MechanismOnData, Priced
from tightbudget.release.mechanisms.additive import GaussianRelease, LaplaceRelease
from tightbudget.release.noise.noise import Noise
from tightbudget.tables.docstrings import with_arguments_of_bases
from tightbudget.tables.error_laws import ErrorLaw, NoiseLaw
from tightbudget.tables.source import Contribution
from tightbudget.tables.table import Table

V = TypeVar("V")

# Where integers are many, noise is drawn on a grid of 2^20 points in the sensitivity: rounding to
# it adds one part in 2^20 for each number. Gaussian noise on one number has fewer, since the engine
# takes discrete Gaussian noise up to a sigma of 500,000 points: half of that is aimed at.
_FINE, _SIGMA = 20, 250_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan says what a mechanism does with one table, before the budget or a row is touched.

    Attributes:
        scan: asks the rows, with the bounds on a unit, for a small vector.
        mechanism: answers from the vector.
        value: turns the answer of ``mechanism`` into the value that is released.
        noisy_rows: turns the same answer into the noisy number of rows behind each number of the
            value; None where it does not tell that. It is as public as the value.
        sensitivity: how far the vector moves with one unit (1-norm; 2-norm for Gaussian noise),
            in the unit of the answer; None where it is not one number.
        error: what is known beforehand of how far the numbers are off; None where nothing is.
    """

    scan: Callable[[Contribution], Any]
    mechanism: MechanismOnData[Any, Any]
    value: Callable[[Any], Any] = lambda answer: answer
    noisy_rows: Callable[[Any], tuple[float, ...]] | None = None
    sensitivity: float | None = None
    error: ErrorLaw | None = None

    def unpaid_answer(self, table: Table, noise: Noise) -> tuple[Any, Cell]:
        """Scans a table, and returns a value with its output cell; the caller pays for it.

        A scan that fails ends the run: an answer without the rows would be of no use, and what is
        asked cannot fail because of a row.
        """
        vector = self.scan(table.contribution())
        answer, cell = self.mechanism.unpaid_answer(vector, noise)
        return self.value(answer), cell


@dataclass(frozen=True, kw_only=True)
class Planned(Generic[V]):
    """A question with the table that it is asked of, and with its plan.

    Attributes:
        question: the mechanism that has planned, and that pays.
        table: the table.
        plan: the plan of ``question`` for ``table``.
    """

    question: TableMechanism[V]
    table: Table
    plan: Plan

    def with_noisy_rows(
        self, told: Callable[[Any], object] | None = None
    ) -> Planned[tuple[V, tuple[float, ...] | None]]:
        """Returns the same question, whose value is the pair of its value and its noisy rows.

        Both are made of the one answer of the plan's mechanism, so that the price and the guarantee
        are the same.

        Args:
            told: is given the pair, too, before the run is settled.
        """
        value, rows = self.plan.value, self.plan.noisy_rows

        def pair(answer: Any) -> tuple[V, tuple[float, ...] | None]:
            both = (value(answer), None if rows is None else rows(answer))
            if told is not None:
                told(both)
            return both

        both = replace(self.plan, value=pair)
        question: Any = self.question
        return Planned(question=question, table=self.table, plan=both)


@dataclass(frozen=True)
class TableMechanism(MechanismOnData[Any, V], Generic[V]):
    """A mechanism that scans a table once, and answers with one value of type V.

    Its data are a :class:`Table`, or what :meth:`planned` has returned for one: then the same plan
    is carried out. Neighbours are tables of which one has all rows of one unit more.

    Raises:
        ParameterError: a parameter is refused.
    """

    answered_by: ClassVar[tuple[type[Priced], ...]]
    """The mechanisms of :mod:`tightbudget.release` that answer from the vector of a plan."""

    def __init_subclass__(cls) -> None:
        if cls.__doc__ is not None:
            cls.__doc__ = with_arguments_of_bases(cls)

    @abstractmethod
    def plan(self, table: Table) -> Plan:
        """Derives the sensitivity and the noise from what a table declares; asks it nothing.

        Raises:
            ParameterError: the table does not declare what the mechanism needs, or a column or a
                rule is refused.
        """

    def planned(self, table: Table) -> Planned[V]:
        """Returns what :meth:`release` takes in place of the table: the question is planned once.

        Raises:
            ParameterError: it is no table, or :meth:`plan` refuses, or the mechanism of the plan
                costs more than the question.
        """
        if not isinstance(table, Table):
            raise refuse("data", "be a Table", type(table).__name__)
        table = table.for_one_question()
        plan = self.plan(table)
        _check_price(plan.mechanism.guarantee, self.guarantee)  # guard: plan-within-its-price
        return Planned(question=self, table=table, plan=plan)

    def _admitted(self, data: Any) -> Planned[V]:
        """Plans the scan, if it is not planned; refuses a table that does not fit or answer."""
        planned: Planned[V] = data if isinstance(data, Planned) else self.planned(data)
        # the plan of another question would be carried out at the price of this one
        if planned.question is not self:  # guard: plan-of-this-question
            raise refuse(
                "data", "be planned by this very question", type(planned.question).__name__
            )
        planned.table.source.check()
        return planned

    def _run(self, data: Planned[V], noise: Noise) -> tuple[V, Cell]:
        return data.plan.unpaid_answer(data.table, noise)


def _check_price(plan: OutputDP, question: OutputDP) -> None:
    """Refuses a mechanism that costs more than the question it answers, in some output cell.

    Raises:
        ParameterError: the question was written with a wrong price.
    """
    for cell in plan.cells:
        if cell not in question.cells or plan.price(cell) > question.price(cell):
            raise ParameterError(f"the plan costs more than its question in the cell {cell!r}")
    if plan.delta > question.delta:
        raise ParameterError("the plan has a larger delta than its question")
    if question.rho is not None and (plan.rho is None or plan.rho > question.rho):
        raise ParameterError("the plan has a larger rho than its question, or none")


@dataclass(frozen=True, kw_only=True)
class NoisyVector(TableMechanism[V]):
    """The base of mechanisms that add noise to each number of a small vector of integers.

    Args:
        epsilon: > 0, nats.
        delta: in [0, 1): discrete Laplace noise at 0, and discrete Gaussian noise otherwise.
    """

    epsilon: Price
    delta: Price = 0

    answered_by = (LaplaceRelease, GaussianRelease)

    @property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon, with delta."""
        epsilon, delta = exact_positive(epsilon=self.epsilon), exact_probability(delta=self.delta)
        if delta == 1:
            raise refuse("delta", "be in [0, 1)", self.delta)
        return OutputDP({"value": epsilon}, delta)

    def noisy(
        self,
        scan: Callable[[Contribution], Any],
        *,
        size: int | None,
        l1: Price,
        l2: Price,
        step: float = 1.0,
        value: Callable[[Any], Any] = lambda answer: answer,
    ) -> Plan:
        """Plans noise on a vector of integers, or on one integer if size is None.

        Args:
            scan: from the bounds on a unit to ``size`` integers.
            size: the number of integers.
            l1: how far they move with one unit, in the 1-norm.
            l2: how far they move with one unit, in the 2-norm.
            step: the length of a point in the unit of the answer.
            value: from the noisy integers to the value that is released.
        """
        numbers = 1 if size is None else size
        # A grid whose points are many integers keeps large sums within reach of the noise.
        fine = self._fine(size) + numbers.bit_length()
        coarse = max(0, math.floor(exact(l2=l2)).bit_length() - fine)
        grid: dict[str, Any] = {"size": size, "step": 2.0**coarse if coarse else None}
        grid["integers"] = size is not None and not coarse
        # an integer that is rounded to a coarser grid moves by at most half of a step
        rounding = step * 2.0 ** (coarse - 1) if coarse else 0.0
        law = partial(NoiseLaw, step=step * 2.0**coarse, rounding=rounding)
        mechanism: LaplaceRelease | GaussianRelease
        kind: Literal["laplace", "gaussian"]
        if exact(delta=self.delta) == 0:
            kind, moves = "laplace", exact(l1=l1)
            mechanism = LaplaceRelease(lambda vector: vector, l1, self.epsilon, **grid)
        else:
            kind, moves = "gaussian", exact(l2=l2)
            mechanism = GaussianRelease.of_epsilon(
                lambda vector: vector, l2, self.epsilon, self.delta, **grid
            )
        return Plan(
            scan=scan,
            mechanism=mechanism,
            value=value,
            sensitivity=float(moves) * step,
            error=law(kind=kind, scale=float(mechanism.scale)),
        )

    def _fine(self, size: int | None) -> int:
        """Returns the bits of the sensitivity that a grid of noise has at most."""
        delta = exact(delta=self.delta)
        if delta == 0 or size is not None:
            return _FINE
        # rho-zCDP has the epsilon rho + 2 sqrt(rho log(1/delta)), so this ratio is enough
        epsilon, log = float(exact(epsilon=self.epsilon)), -math.log(float(delta))
        sigmas = (math.sqrt(log + epsilon) + math.sqrt(log)) / (math.sqrt(2) * epsilon)
        return max(1, min(_FINE, math.floor(math.log2(_SIGMA / sigmas)) - 1))
