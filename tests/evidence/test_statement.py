"""Statements of privacy: no field is silently empty, nothing said is shown as certified."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tightbudget as tb
from tightbudget.cli import app
from tightbudget.evidence import PrivacyStatement, statement_of_budget, statement_of_run
from tightbudget.evidence.statement import _HEADINGS, _SAID, NOT_KNOWN

STEP = tb.Gaussian(1.0).subsampled(0.01)


def known(statement: PrivacyStatement) -> dict[str, str]:
    return {field: text for section in statement.sections for field, text in section.rows}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'a.db'}"


@pytest.fixture
def ledger(url: str) -> Any:
    with tb.Ledger(url) as it:
        ada = it.open_budget("ada", epsilon=1.0, delta=1e-6)
        hold = ada.reserve("A1", tb.OutputDP({"found": 0.3, "not found": 0.1}), question="is it?")
        hold.start()
        hold.settle("not found")
        ada.reserve("A2", tb.OutputDP({"only": 0.2})).start()
        it.open_budget("bob", parent="ada", epsilon=0.25, delta=1e-7)
        yield it


# ------------------------------------------------------------------------------- a run


def test_a_run_has_both_bounds_and_what_it_is() -> None:
    run = STEP * 1000
    found = known(statement_of_run(run, delta=1e-5))
    assert found["epsilon at delta = 1e-05, nats"] == f"{run.epsilon(1e-5)}, certified"
    assert found["epsilon at delta = 1e-09, nats"] == f"{run.epsilon(1e-9)}, certified"
    assert found["mechanisms"] == "Gaussian(sigma=1.0).subsampled(0.01), 1,000 times"
    assert found["neighbouring data sets"] == "add-or-remove (declared)"
    assert tb.__version__ in found["versions"]


def test_no_field_is_left_out_and_what_nobody_said_is_not_known() -> None:
    found = statement_of_run(tb.Gaussian(1.0), delta=1e-5)
    assert [section.heading for section in found.sections] == [
        h for h in _HEADINGS if h != "Budget"
    ]
    for heading, field in _SAID.values():
        (section,) = [section for section in found.sections if section.heading == heading]
        assert dict(section.rows)[field] == NOT_KNOWN
    assert len(found.unknown) == len(_SAID) + 1  # and whether the code keeps the claim
    assert all(text.strip() for text in known(found).values())


@pytest.mark.parametrize("name", _SAID)
def test_what_is_said_is_marked_as_said(name: str) -> None:
    found = statement_of_run(STEP, delta=1e-5, **{name: "  as we believe, certified  "})
    assert known(found)[_SAID[name][1]] == "said: as we believe, certified"
    assert len([row for s in found.sections for row in s.rows if row[0] == _SAID[name][1]]) == 1


def test_a_bound_that_cannot_be_certified_is_said_to_be_none() -> None:
    choices = tb.ExponentialMechanism(1.0) * 3
    found = known(statement_of_run(choices + tb.ApproximateDP(0.1, 1e-6), delta=1e-3))
    assert all("certified" in text for field, text in found.items() if "at delta" in field)


def test_a_forgotten_rate_is_asked_for() -> None:
    assert (
        "is that meant?"
        in known(statement_of_run(tb.Gaussian(50.0) * 5000, delta=1e-5))["please check"]
    )


# ---------------------------------------------------------------------------- a budget


def test_a_budget_has_its_runs_its_parts_and_its_head(ledger: Any) -> None:
    statement = statement_of_budget(ledger, "ada", unit="one patient")
    found = known(statement)
    assert statement.warning == ""
    assert found["spent"] == "epsilon 0.1, delta 0.0"
    assert found["held by open runs and parts"] == "epsilon 0.45, delta 1e-07"
    assert found["run A1: is it?"].startswith("settled with 'not found', epsilon 0.1, delta 0.0")
    assert found["run A2"].startswith("started, holds epsilon 0.2, delta 0.0, 20")
    assert found["runs"] == "1 settled, 1 started"
    assert found["part bob"].startswith("left epsilon 0.25")
    head = ledger.verify().head
    assert found["history"] == f"verified, head {head}"
    ledger.check(found["history"].removeprefix("verified, head "))


@pytest.mark.parametrize(
    ("kind", "terms", "amount", "epsilon"),
    [
        ("output_dp", {"epsilon": 1.0, "delta": 1e-6}, "epsilon 0.5, delta 0.0", 1.0),
        ("zcdp", {"rho": 1.0}, "rho 0.125", 8.434),
        ("gaussian_dp", {"mu": 2.0}, "mu", None),
    ],
)
def test_amounts_have_the_unit_of_their_budget(
    url: str, kind: str, terms: dict[str, Any], amount: str, epsilon: float | None
) -> None:
    with tb.Ledger(url) as it:
        eve = it.open_budget("eve", kind=kind, **terms)
        if epsilon is not None:
            hold = eve.reserve("E1", tb.OutputDP({"value": 0.5}, rho=0.125))
            hold.start()
            hold.settle("value")
        found = known(statement_of_budget(it, "eve", delta=1e-6))
        assert found["kind of budget"] == kind
        assert found["spent"].startswith(amount)
        at = found["epsilon at delta = 1e-06 of the cap, nats"]
        assert at == f"{eve.epsilon(1e-6)!r}, at most"
        if epsilon is not None:
            assert f"settled with 'value', {amount}, " in found["run E1"]
            assert float(at.removesuffix(", at most")) == pytest.approx(epsilon, rel=1e-3)


def test_what_became_of_runs_that_cost_nothing(ledger: Any) -> None:
    bob = ledger.budget("bob")
    bob.reserve("B1", tb.OutputDP({"only": 0.01})).void()
    bob.reserve("B2", tb.OutputDP({"only": 0.02}))
    hold = bob.reserve("B3", tb.OutputDP({"only": 0.03}))
    hold.start()
    hold.forfeit()
    found = known(statement_of_budget(ledger, "bob"))
    assert found["run B1"].startswith("void, nothing charged, ")
    assert found["run B2"].startswith("reserved, holds epsilon 0.02, delta 0.0, ")
    assert found["run B3"].startswith("forfeited, epsilon 0.03, delta 0.0, ")
    assert found["runs"] == "1 void, 1 reserved, 1 forfeited"


@pytest.mark.parametrize("times", [1, 100])
def test_amounts_are_those_of_the_head(
    ledger: Any, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    verify, left = type(ledger).verify, iter(range(times))

    def busy(it: Any) -> Any:
        found = next(left, None)
        if found is not None:
            ledger.budget("bob").reserve(f"W{found}", tb.OutputDP({"only": 0.001})).start()
        return verify(it)

    monkeypatch.setattr(type(ledger), "verify", busy)
    found = known(statement_of_budget(ledger, "bob"))
    if times == 1:  # read again
        assert found["history"] == f"verified, head {ledger.head()}"
        assert found["held by open runs and parts"] == "epsilon 0.001, delta 0.0"
    else:
        assert found["history"].endswith(
            "went on while this was read, so that the amounts may be older"
        )


def test_many_runs_and_parts_are_counted(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightbudget.evidence.statement._MOST_RUNS", 1)
    monkeypatch.setattr("tightbudget.evidence.statement._MOST_PARTS", 1)
    found = known(statement_of_budget(ledger, "ada"))
    assert found["further runs"] == "1"
    assert "further parts" not in found
    ledger.open_budget("carol", parent="ada", epsilon=0.01, delta=1e-8)
    assert known(statement_of_budget(ledger, "ada"))["further parts"] == "not shown"


def test_a_budget_without_runs_says_so(ledger: Any) -> None:
    found = known(statement_of_budget(ledger, "bob"))
    assert found["runs"] == "none was charged"
    assert found["name"] == "bob, a part of ada"


def test_a_ledger_that_does_not_verify_says_so_first(ledger: Any, url: str) -> None:
    ledger.close()
    file = url.removeprefix("sqlite:///")
    with sqlite3.connect(file) as raw:
        for (name,) in raw.execute(
            "SELECT name FROM sqlite_master WHERE type='trigger'"
        ).fetchall():
            raw.execute(f'DROP TRIGGER "{name}"')
        raw.execute("UPDATE events SET epsilon = '1' WHERE kind = 'settled'")
    raw.close()
    with tb.Ledger(url) as changed:
        found = statement_of_budget(changed, "ada")
        assert found.warning.startswith("This ledger does not verify")
        assert known(found)["history"] == "NOT VERIFIED"
        for text in (found.to_markdown(), found.model_card()):
            assert text.startswith("**This ledger does not verify")
        assert '<p class="warning">This ledger does not verify' in found.to_html()
        assert found.to_dict()["warning"] == found.warning
        assert "does not verify" in repr(found)
        assert "does not verify" in found._repr_html_()
        with pytest.raises(tb.errors.LedgerCorruptError):
            statement_of_budget(changed, "ada", strict=True)


# ----------------------------------------------------------------------------- writing


def test_texts_of_analysts_are_escaped(ledger: Any) -> None:
    ledger.budget("bob").reserve("<b>|x|", tb.OutputDP({"_a_": 0.01}), question="<script>*").start()
    found = statement_of_budget(ledger, "bob", utility="**[x](y)**\n| a |")
    assert "<script>" not in found.to_html()
    assert "<script>" not in found._repr_html_()
    markdown = found.to_markdown()
    assert "<script>" not in markdown.replace("\\<", "")
    assert "\\| a \\|" in markdown
    assert "\\[x\\]" not in markdown  # one mark is enough to end a link
    assert "[x](y)" not in markdown.replace("\\[", "")
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert all(line.replace("\\|", "").count("|") == 3 for line in rows)


def test_json_has_every_line() -> None:
    statement = statement_of_run(STEP, delta=1e-5, unit="one patient")
    content = json.loads(json.dumps(statement.to_dict()))
    assert content["tightbudget"] == 1
    rows = [(r["field"], r["known"]) for s in content["sections"] for r in s["rows"]]
    assert rows == [row for s in statement.sections for row in s.rows]


def test_a_model_card_has_the_parameters_the_unit_and_the_mechanisms() -> None:
    card = statement_of_run(STEP * 10, delta=1e-5, unit="one patient").model_card()
    assert card.startswith("### Differential privacy\n\n- variant: approximate")
    assert "- whom one unit is: said: one patient\n" in card
    assert "Trust" not in card


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: statement_of_run(3, delta=1e-5), "run must be a mechanism or a composition"),  # type: ignore[arg-type]
        (lambda: statement_of_run(STEP, delta=0.0), "delta must be"),
        (lambda: statement_of_run(STEP, delta=1e-5, units="x"), "units is none of unit, neigh"),
        (lambda: statement_of_run(STEP, delta=1e-5, unit=" "), "unit must be a text that is not"),
        (lambda: statement_of_run(STEP, delta=1.0), "delta must be"),
        (lambda: statement_of_budget("sqlite://", "ada"), "ledger must be a tb.Ledger, opened"),  # type: ignore[arg-type]
    ],
)
def test_refusals(ask: Any, message: str) -> None:
    with pytest.raises(tb.ParameterError, match=message):
        ask()


def test_an_unknown_budget_is_refused(ledger: Any) -> None:
    with pytest.raises(tb.TightBudgetError, match="eve"):
        statement_of_budget(ledger, "eve")


# ----------------------------------------------------------------------------- command


def test_the_command_writes_what_the_function_does(ledger: Any, url: str) -> None:
    expected = statement_of_budget(ledger, "ada", unit="one patient")
    ledger.close()
    ask = ["ledger", "statement", "ada", "--ledger", url, "--say", "unit=one patient"]
    runner = CliRunner()
    assert runner.invoke(app, ask).stdout == expected.to_markdown()
    assert runner.invoke(app, [*ask, "--as", "html"]).stdout == expected.to_html()
    assert runner.invoke(app, [*ask, "--as", "card"]).stdout == expected.model_card()
    with_delta = runner.invoke(app, [*ask, "--delta", "1e-6"]).stdout
    assert "epsilon at delta = 1e-06 of the cap, nats | 1.0, at most" in with_delta
    shown = json.loads(runner.invoke(app, [*ask, "--json"]).stdout)
    assert shown["sections"] == expected.to_dict()["sections"]


@pytest.mark.parametrize(
    ("say", "message"),
    [
        (["--say", "unit"], "--say must be field=text, got 'unit'"),
        (["--say", "unit=a", "--say", "unit=b"], "--say has unit twice"),
        (["--say", "size=3"], "size is none of unit"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(
    ledger: Any, url: str, say: list[str], message: str
) -> None:
    ledger.close()
    found = CliRunner().invoke(app, ["ledger", "statement", "ada", "--ledger", url, *say])
    assert found.exit_code != 0
    assert message in str(found.exception) + found.output
