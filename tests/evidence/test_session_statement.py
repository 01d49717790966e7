"""Statements on a session: its table's unit, its answers, and its budget wherever that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tightbudget as tb
from tightbudget.errors import LedgerCorruptError
from tightbudget.evidence import (
    PrivacyStatement,
    statement_of_budget,
    statement_of_run,
    statement_of_session,
)
from tightbudget.evidence.budget import COMPOSITION
from tightbudget.evidence.loaders import NOT_KNOWN
from tightbudget.release.noise.noise import FixedNoise

PEOPLE = tb.Table(
    {
        "who": np.arange(10) // 2,
        "zone": np.array(list("abababbaba")),
        "month": np.array(["2026-01"] * 10),
    },
    unit="who",
    rows_per_unit=3,
    domains={"zone": ["a", "b"]},
)


def known(statement: PrivacyStatement) -> dict[str, str]:
    return {field: text for section in statement.sections for field, text in section.rows}


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with tb.Ledger(f"sqlite:///{tmp_path / 'a.db'}") as it:
        yield it


def test_answers_unit_and_noise_of_a_session_with_a_budget_in_memory() -> None:
    session = tb.Session(PEOPLE, tb.OutputDPFilter(1, 1e-6))
    session.ask(tb.Count(epsilon=0.1))
    session.ask_all([tb.Count(epsilon=0.25), tb.Count(epsilon=0.125, of="units")])
    statement = statement_of_session(session)
    found = known(statement)
    assert found["answers of this session"] == "3"
    assert found["answer 1: Count(epsilon=0.1)"] == (
        "held epsilon 0.1, delta 0.0; charged epsilon 0.1, delta 0.0"
    )
    assert "answer 3: Count(epsilon=0.125, of='units')" in found
    assert found["spent"] == "epsilon 0.475, delta 0.0"
    assert found["left"] == "epsilon 0.525, delta 1e-06"
    assert found["composition"] == COMPOSITION["output_dp"]
    assert found["whom one unit is"] == "all rows with the same who (declared)"
    assert found["declared to be public"] == "the 2 keys of zone"
    assert found["source of random numbers"].startswith("OpenDP's samplers, fed by the operating")
    assert found["history"] == "in memory: it ends with its process"
    assert found["assumed of the loader"] == "none: an answer is from one scan"
    assert (statement.variant, statement.parameters) == (
        "Approximate DP",
        {"epsilon": 1.0, "delta": 1e-6},
    )
    assert 'unprotected_quantities: "the 2 keys of zone"' in statement.to_registry()


def test_a_statement_of_a_session_has_all_fields_of_the_others(ledger: Any) -> None:
    ada = ledger.open_budget("ada", epsilon=1)
    session = tb.Session(PEOPLE, ada)
    session.ask(tb.Count(epsilon=0.1))
    with_ledger = known(statement_of_session(session, ledger=ledger))
    assert known(statement_of_budget(ledger, "ada", table=PEOPLE)).keys() <= with_ledger.keys()
    fields = known(statement_of_run(tb.Gaussian(1.0), delta=1e-5)).keys()
    curve = {"variant", "mechanisms", *[field for field in fields if field.startswith("epsilon ")]}
    assert fields - curve <= with_ledger.keys()
    memory = known(statement_of_session(tb.Session(PEOPLE, tb.OutputDPFilter(1))))
    assert fields - curve <= memory.keys()
    assert all(text.strip() for text in (*with_ledger.values(), *memory.values()))


@pytest.mark.parametrize("keyed", [False, True])
def test_a_session_with_a_budget_of_a_ledger(ledger: Any, keyed: bool) -> None:
    ada = ledger.open_budget("ada", epsilon=1, delta=1e-6)
    session = tb.Session(PEOPLE, ada.keyed("job") if keyed else ada, name="people")
    session.ask(tb.Count(epsilon=0.1))
    ada.reserve("other", tb.OutputDP({"a": 0.2})).start()
    statement = statement_of_session(session, ledger=ledger, delta=1e-5, unit="a person")
    found = known(statement)
    assert statement.title == "session people, paid by ada"
    assert found["runs"] == "1 settled, 1 started"
    assert found["answers of this session"] == "1"
    assert found["history"] == f"verified, head {ledger.head()}"
    assert found["whom one unit is"] == "said: a person"
    assert found["units of what else this budget has paid for"] == NOT_KNOWN
    alone = known(statement_of_session(session, delta=1e-5))
    assert alone["history"] == "not verified: that needs the ledger"
    assert alone["spent"] == found["spent"] == "epsilon 0.1, delta 0.0"
    assert alone["held"] == "epsilon 0.2, delta 0.0"
    assert alone["state"] == "open"
    assert "epsilon at delta = 1e-05 of the cap, nats" in alone.keys() & found.keys()


@pytest.mark.parametrize("columns", [None, {"month": "month"}])
def test_a_session_that_blocks_pay_for(ledger: Any, columns: dict[str, str] | None) -> None:
    pl = pytest.importorskip("polars")
    blocks = ledger.blocks("visits", by=["month"], epsilon=1)
    table = tb.Table(pl.DataFrame({"month": ["2026-01", "2026-03"]}))
    session = tb.Session(table, blocks.where(month="2026-01..2026-02"), columns=columns)
    session.ask(tb.Count(epsilon=0.1))
    found = known(statement_of_session(session, ledger=ledger))
    assert found["runs"] == "1 settled"
    assert found["block visits[month=2026-02]"].startswith("left epsilon 0.9")
    kept = "by the caller, who chose the rows" if columns is None else "by their columns"
    assert found["blocks that the session reads"] == f"month=2026-01,2026-02; kept {kept}"
    alone = known(statement_of_session(session))
    assert (alone["spent"], alone["cap"], alone["left"]) == (
        NOT_KNOWN,
        NOT_KNOWN,
        "epsilon 0.9, delta 0.0",
    )


def test_refunds_are_summed_and_odometers_have_no_cap() -> None:
    session = tb.Session(PEOPLE, tb.OutputDPOdometer())
    assert known(statement_of_session(session))["answers of this session"] == "0"
    session.ask(tb.Count(epsilon=0.1))
    statement = statement_of_session(session)
    found = known(statement)
    assert found["cap"] == "none: nothing bounds beforehand what is spent"
    assert found["given back by these answers"] == "epsilon 0.0, delta 0.0"
    assert (statement.variant, statement.parameters) == ("Custom", {})


def test_many_answers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightbudget.evidence.budget._MOST_RUNS", 1)
    session = tb.Session(PEOPLE, tb.OutputDPFilter(1))
    session.ask_all([tb.Count(epsilon=0.1)] * 3)
    assert known(statement_of_session(session))["further answers"] == "2"


@pytest.mark.filterwarnings("ignore:FixedNoise")
def test_noise_that_is_not_random_is_said_first() -> None:
    session = tb.Session(PEOPLE, tb.OutputDPFilter(1), noise=FixedNoise([0]))
    statement = statement_of_session(session)
    assert statement.warning == "The noise of this session is not random: nothing is private."
    assert statement.to_markdown().startswith("**The noise of this session is not random")
    with pytest.raises(LedgerCorruptError, match="is not random"):
        statement.to_registry()


def test_another_ledger_is_refused(ledger: Any, tmp_path: Path) -> None:
    session = tb.Session(PEOPLE, ledger.open_budget("ada", epsilon=1))
    with tb.Ledger(f"sqlite:///{tmp_path / 'b.db'}") as other:
        other.open_budget("ada", epsilon=1)
        for asked in (session, tb.Session(PEOPLE, tb.OutputDPFilter(1))):
            with pytest.raises(tb.ParameterError, match="ledger must be the one that the session"):
                statement_of_session(asked, ledger=other)


def test_refusals() -> None:
    session = tb.Session(PEOPLE, tb.OutputDPFilter(1))
    with pytest.raises(tb.ParameterError, match=r"session must be a tb\.Session, got 3"):
        statement_of_session(3)  # type: ignore[arg-type]
    with pytest.raises(tb.ParameterError, match="units is none of unit"):
        statement_of_session(session, units="x")
    with pytest.raises(tb.ParameterError, match="delta must be"):
        statement_of_session(session, delta=0.0)
