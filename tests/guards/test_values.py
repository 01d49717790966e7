"""The guards of how an answer is shown and compared are taken away, and a truth is lost."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget import notebook
from tightbudget.cli.ledger.options import as_written
from tightbudget.notation.values import value_of


def a_comparison_that_is_not_certain_is_refused() -> bool:
    try:
        return tb.Bounds(1.0, 3.0) <= 2.0 and False
    except tb.ParameterError:
        return True


def a_written_interval_contains_the_bounds() -> bool:
    return f"{tb.Bounds(1.2346, 1.2354):.3f}" == "[1.234, 1.236]"


def a_notebook_runs_no_text() -> bool:
    return "<script" not in notebook.shown(notebook.table([("<script>alert(1)</script>",)]))


def no_number_is_rounded_to_an_integer() -> bool:
    return all(type(value_of(text)) is float for text in ("1e-400", "0.99999999999999999e0"))


def a_charge_is_what_was_written() -> bool:
    return Fraction(as_written("0.99999999999999999")) < 1


MUTATIONS = [
    Without(
        "an integer is what is written, not the double nearest to it",
        {"whole-as-written": "if True:"},
        no_number_is_rounded_to_an_integer,
    ),
    Without(
        "a ledger charges what is written",
        {"charged-as-written": "return value"},
        a_charge_is_what_was_written,
    ),
    Without(
        "a comparison holds for every number in the bounds",
        {"comparison-certain": "if True:"},
        a_comparison_that_is_not_certain_is_refused,
    ),
    Without(
        "a format rounds outwards",
        {"format-rounds-outwards": "direction = 'ROUND_HALF_EVEN'"},
        a_written_interval_contains_the_bounds,
    ),
    Without(
        "a notebook escapes every text",
        {"notebook-escapes": "return str(value)"},
        a_notebook_runs_no_text,
    ),
]


@each(MUTATIONS)
def test_a_guard_that_is_gone_is_missed(mutation: Without, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_a_truth(monkeypatch, mutation)
