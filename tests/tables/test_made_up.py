"""A mechanism on data that is made up here, and its question: a few lines, on every source."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from tests.tables.cases import COLUMNS, case, in_duckdb, table, units
from tests.tables.test_laws import LAWS, Silent

import tightbudget as tb
from tightbudget.numerics.validate import plain_numbers
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.noise import Noise
from tightbudget.tables.mechanism import Plan
from tightbudget.tables.mechanisms.bases import Filtered, RowsOrUnits
from tightbudget.tables.source import Contribution
from tightbudget.tables.table import Table


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class Reaches(MechanismOnData[int, bool]):
    """Says, noisily, whether an integer reaches a level; each answer costs epsilon."""

    level: int
    epsilon: Price
    moves: int = 1

    @property
    def guarantee(self) -> OutputDP:
        """Either answer costs epsilon."""
        return OutputDP({"said": exact_positive(epsilon=self.epsilon)})

    def _run(self, data: Any, noise: Noise) -> tuple[bool, Cell]:
        scale = Fraction(self.moves) / exact_positive(epsilon=self.epsilon)
        return data + int(noise.laplace(scale, 1)[0]) >= self.level, "said"


@plain_numbers
@dataclass(frozen=True, kw_only=True)
class CountReaches(Filtered[bool], RowsOrUnits[bool]):
    """Says, noisily, whether a count of rows or units reaches a level.

    Args:
        level: an integer, which is public.
        epsilon: > 0, nats.
    """

    level: int
    epsilon: Price

    answered_by = (Reaches,)

    @property
    def guarantee(self) -> OutputDP:
        """The price of an answer."""
        return self._reaches(1).guarantee

    def plan(self, table: Table) -> Plan:
        """Plans one count."""
        source = self._source(table)

        def scan(contribution: Contribution) -> int:
            (count,) = source.counts(contribution, [None], units=self.of == "units")
            return count

        return Plan(scan=scan, mechanism=self._reaches(self._moves(table)))

    def _reaches(self, moves: int) -> Reaches:
        return Reaches(level=self.level, epsilon=self.epsilon, moves=moves)


MADE_UP = case(
    "made-up", CountReaches(level=12, epsilon=1, of="units", where="w"), lambda c: units(c) >= 12
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_laws_hold_for_it(law: Any) -> None:
    law(MADE_UP)


@pytest.mark.parametrize("make", [table, in_duckdb], ids=["arrays", "duckdb"])
@pytest.mark.parametrize("level", [7, 8, 9, 10, 11, 12, 13])
def test_it_answers_on_every_source(make: Any, level: int) -> None:
    data = make(COLUMNS) if make is table else make()
    true = {name: column[COLUMNS["w"]] for name, column in COLUMNS.items()}
    asks = tb.Session(data, tb.OutputDPFilter(1), noise=Silent())
    question = CountReaches(level=level, epsilon=0.5, of="units", where="w")
    assert asks.what_if([question]).most.epsilon == 0.5
    answer = asks.ask(question)
    assert answer.value == (units(true) >= level)
    assert answer.receipt.charged.epsilon == 0.5


def test_what_its_bases_refuse_is_refused() -> None:
    with pytest.raises(tb.ParameterError, match="of must be one of rows, units, got 'persons'"):
        CountReaches(level=1, epsilon=1, of="persons")  # type: ignore[arg-type]
    asks = tb.Session(table(COLUMNS), tb.OutputDPFilter(1), noise=Silent())
    with pytest.raises(tb.ParameterError, match="of the columns u, x, k, j, w, v, bin, got 'z'"):
        asks.ask(CountReaches(level=1, epsilon=1, where="z"))
    assert asks.left.epsilon == 1


def test_its_docstring_has_all_parameters() -> None:
    told = CountReaches.__doc__ or ""
    assert [told.index(f"\n    {name}: ") for name in ("of", "where", "level", "epsilon")]
