"""The page on tables: numbers are rounded to the safe side, and no name becomes HTML."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.pages import functions_of

import tightbudget as tb


@given(st.floats(min_value=0, max_value=1e15))
def test_amounts_are_rounded_to_the_safe_side(amount: float) -> None:
    up, down = functions_of(
        "show-receipts.md",
        "up",
        "down",
        Decimal=Decimal,
        ROUND_CEILING=ROUND_CEILING,
        ROUND_FLOOR=ROUND_FLOOR,
    )
    exact, fine = Fraction(repr(amount)), Fraction("0.001")
    assert exact <= Fraction(up(amount)) < exact + fine
    assert exact - fine < Fraction(down(amount)) <= exact


def test_the_charges_of_a_history_are_what_was_spent(tmp_path: Path) -> None:
    (charges,) = functions_of("show-receipts.md", "charges")
    prices = tb.OutputDP({"found": 0.3, "not found": 0.1}, delta=1e-9)
    with tb.Ledger(f"sqlite:///{tmp_path / 'budget.db'}") as ledger:
        ada = ledger.open_budget("ada", epsilon=5, delta=1e-6)
        part = ledger.open_budget("part", parent="ada", epsilon=1)
        settled, forfeited = ada.reserve("A1", prices), ada.reserve("A2", prices)
        inside = part.reserve("A3", tb.OutputDP.from_dp(0.2))
        ada.reserve("A4", prices).void()
        with pytest.raises(tb.BudgetExceeded):
            ada.reserve("A5", tb.OutputDP.from_dp(9))
        for hold in (settled, forfeited, inside):
            hold.start()
        settled.settle("not found")
        forfeited.forfeit()
        inside.settle("ran")
        part.close()
        ada.correct(epsilon=0.25, by="ada", reason="a run elsewhere")
        charged = [Fraction(repr(event.epsilon)) for event in charges(ada)]
        assert sorted(charged) == [Fraction(x) for x in ("0.1", "0.2", "0.25", "0.3")]
        assert sum(charged) == Fraction(repr(ada.spent.epsilon))
        assert sum(Fraction(repr(event.delta)) for event in charges(ada)) == Fraction(
            repr(ada.spent.delta)
        )


SCRIPT = "<script>alert(1)</script>"


@pytest.mark.needs
@pytest.mark.slow
def test_great_tables_escapes_texts_and_rounds_to_the_nearest() -> None:
    tables = pytest.importorskip("great_tables", reason="make tools: it needs Great Tables")
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"key": [SCRIPT], "epsilon": [1.824]})
    table = tables.GT(frame).tab_header(SCRIPT, SCRIPT).tab_source_note(SCRIPT)
    html = table.fmt_number("epsilon", decimals=2).as_raw_html()
    assert SCRIPT not in html
    assert html.count("&lt;script&gt;") == 4
    assert ">1.82<" in html


def test_the_styler_of_pandas_escapes_only_where_it_is_told_to() -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("jinja2")
    style = pandas.DataFrame({"key": [SCRIPT]}, index=[SCRIPT]).style
    assert style.to_html().count(SCRIPT) == 2
    escaped = style.format(escape="html").format_index(escape="html").to_html()
    assert SCRIPT not in escaped
    assert escaped.count("&lt;script&gt;") == 2
