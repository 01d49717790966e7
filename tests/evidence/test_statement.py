"""Statements of privacy: no field is silently empty, nothing said is shown as certified."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.cases import CASES
from typer.testing import CliRunner

import tightbudget as tb
from tightbudget.cli import app
from tightbudget.evidence import PrivacyStatement, statement_of_budget, statement_of_run
from tightbudget.evidence.budget import COMPOSITION
from tightbudget.evidence.loaders import NOT_KNOWN, assumed_of
from tightbudget.evidence.statement import HEADINGS, SAID
from tightbudget.evidence.training import SAMPLERS, run_of_training
from tightbudget.mechanisms.derived import Derived
from tightbudget.promises.kinds import KINDS

STEP = tb.Gaussian(1.0).subsampled(0.01)


def known(statement: PrivacyStatement) -> dict[str, str]:
    return {field: text for section in statement.sections for field, text in section.rows}


def change_by_hand(url: str, change: str) -> None:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as raw:
        named = raw.execute("SELECT name FROM sqlite_master WHERE type='trigger'").fetchall()
        for (name,) in named:
            raw.execute(f'DROP TRIGGER "{name}"')
        raw.execute(change)
    raw.close()


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
    assert found["neighbouring data sets"] == (
        "add-or-remove: one has one record more than the other (declared)"
    )
    assert tb.__version__ in found["versions"]


def test_no_field_is_left_out_and_what_nobody_said_is_not_known() -> None:
    found = statement_of_run(tb.Gaussian(1.0), delta=1e-5)
    assert [section.heading for section in found.sections] == [h for h in HEADINGS if h != "Budget"]
    for heading, field in SAID.values():
        (section,) = [section for section in found.sections if section.heading == heading]
        assert dict(section.rows)[field] == NOT_KNOWN
    assert len(found.unknown) == len(SAID) + 1  # and whether the code keeps the claim
    assert all(text.strip() for text in known(found).values())


@pytest.mark.parametrize("name", SAID)
def test_what_is_said_is_marked_as_said(name: str) -> None:
    found = statement_of_run(STEP, delta=1e-5, **{name: "  as we believe, certified  "})
    assert known(found)[SAID[name][1]] == "said: as we believe, certified"
    assert len([row for s in found.sections for row in s.rows if row[0] == SAID[name][1]]) == 1


def test_a_bound_that_cannot_be_certified_is_said_to_be_none() -> None:
    choices = tb.ExponentialMechanism(1.0) * 3
    found = known(statement_of_run(choices + tb.ApproximateDP(0.1, 1e-6), delta=1e-3))
    assert all("certified" in text for field, text in found.items() if "at delta" in field)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_run_says_what_it_assumes_of_the_loader(sampler: str) -> None:
    table = {"noise_multiplier": 2.0, "batch_size": 20, "dataset_size": 100, "epochs": 1}
    if sampler == "truncated poisson":
        table["at_most"] = 30
    if sampler == "all":
        table["batch_size"] = 100
    found = dict(assumed_of(run_of_training({**table, "sampler": sampler})))
    words = {
        "poisson": ("Poisson, rate 0.2", "by a toss of its own"),
        "truncated poisson": ("Poisson, rate 0.2, at most 30 of 100 records", "a uniform choice"),
        "shuffle": ("epochs of 5 shuffled batches", "a fresh uniform shuffle"),
        "allocation": ("random allocation, each record in 1 of 5 steps", "independently of all"),
        "fixed": ("fixed batches of 20 of 100 records, without replacement", "new uniform batch"),
        "with replacement": ("fixed batches of 20 of 100 records, with repl", "new uniform batch"),
        "all": ("none: each run is on all records", "nothing"),
    }[sampler]
    assert found["sampler"].startswith(words[0])
    assert words[1] in found["assumed of the loader"]


def test_every_mechanism_that_draws_records_says_how() -> None:
    drawn = [c.mechanism for c in CASES if isinstance(c.mechanism, Derived)]
    assert len(drawn) > 5
    for mechanism in drawn:
        if type(mechanism).__name__ != "Group":
            assert "none" not in dict(assumed_of(mechanism))["sampler"]


def test_samplers_are_found_in_groups_and_in_choices() -> None:
    for run in (STEP.group(2), tb.mechanisms.BestOf(STEP * 3, tb.trials.Poisson(2.0))):
        assert dict(assumed_of(run))["sampler"] == "Poisson, rate 0.01"
    other = tb.ApproximateDP(0.1, 1e-6)
    found = dict(assumed_of(STEP + other))
    assert found["sampler"] == "Poisson, rate 0.01; of ApproximateDP not known to this tool"
    assert found["assumed of the loader"].endswith("; not known to this tool")


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
        assert found["kind of budget"] == KINDS[kind].words
        *_, last = it.events(budget="eve")
        assert found["last event"] == f"{last.at[:10]} {last.at[11:19]} UTC"
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
    monkeypatch.setattr("tightbudget.evidence.budget._MOST_RUNS", 1)
    monkeypatch.setattr("tightbudget.evidence.budget._MOST_PARTS", 1)
    found = known(statement_of_budget(ledger, "ada"))
    assert found["further runs"] == "1"
    assert "further parts" not in found
    ledger.open_budget("carol", parent="ada", epsilon=0.01, delta=1e-8)
    assert known(statement_of_budget(ledger, "ada"))["further parts"] == "not shown"


def test_a_budget_without_runs_says_so(ledger: Any) -> None:
    found = known(statement_of_budget(ledger, "bob"))
    assert found["runs"] == "none was charged"
    assert found["name"] == "bob, a part of ada"


def test_each_kind_of_budget_says_how_its_runs_compose() -> None:
    assert COMPOSITION.keys() == KINDS.keys()


def test_a_run_has_what_was_declared_for_it(ledger: Any, url: str) -> None:
    found = known(statement_of_budget(ledger, "ada"))
    assert found["run A1: is it?"].endswith(
        "; declared: epsilon of 'found' 0.3, 'not found' 0.1, any other output 0.3; delta 0.0"
    )
    many = tb.OutputDP({n: 0.01 for n in range(9)}, 1e-9, rho=0.001)
    ledger.budget("bob").reserve("B1", many).void()
    assert known(statement_of_budget(ledger, "bob"))["run B1"].endswith(
        "4 0.01, ... 9 outputs in all, any other output 0.01; delta 1e-09, rho 0.001"
    )
    zoe = ledger.open_budget("zoe", kind="zcdp", rho=1)
    zoe.reserve("Z1", 0.125).void()
    assert known(statement_of_budget(ledger, "zoe"))["run Z1"].endswith("the amount 0.125")


def test_a_plan_says_what_it_declares_and_assumes(ledger: Any) -> None:
    plan = ledger.open_budget("plan", kind="plan", plan=STEP * 1000, delta=1e-5)
    plan.reserve("P1", STEP * 400).start()
    found = known(statement_of_budget(ledger, "plan"))
    assert found["run P1"].endswith("declared: gaussian sigma=1.0 rate=0.01, 400 times")
    assert found["declared plan"] == "gaussian sigma=1.0 rate=0.01, 1000 times"
    assert found["sampler"] == "Poisson, rate 0.01"
    assert found["assumed of the loader"].startswith("each record is in each batch by a toss")
    assert found["composition"] == COMPOSITION["plan"]
    both = str((STEP * 1000).epsilon(1e-5))
    assert found["epsilon of the declared plan at delta = 1e-05, nats"] == f"{both}, certified"


def test_a_plan_is_declared_for_its_neighbours(ledger: Any) -> None:
    ledger.open_budget("plan", kind="plan", plan=STEP * 10 + tb.Gaussian(9.0), delta=1e-5)
    ledger.open_budget("all", kind="plan", plan=tb.Laplace(3.0) * 2, delta=1e-9)
    field = "neighbouring data sets"
    declared = "add-or-remove: one has one record more than the other (declared)"
    assert known(statement_of_budget(ledger, "plan"))[field] == declared
    assert known(statement_of_budget(ledger, "plan", neighbours="by day"))[field] == "said: by day"
    for relation in tb.Neighbouring:
        run = tb.Gaussian(9.0, relation=relation)
        assert known(statement_of_run(run, delta=1e-5))[field].startswith(f"{relation.value}: one ")
    assert known(statement_of_budget(ledger, "all"))[field] == NOT_KNOWN
    assert known(statement_of_budget(ledger, "ada"))[field] == NOT_KNOWN


def test_a_model_card_of_a_budget_has_the_head(ledger: Any) -> None:
    card = statement_of_budget(ledger, "ada").model_card()
    assert card.splitlines()[-1] == f"- history: verified, head {ledger.head()}".replace("_", "\\_")
    assert "history" not in statement_of_run(STEP * 10, delta=1e-5).model_card()


@pytest.mark.parametrize("cap", [None, 0.75])
def test_a_set_of_blocks_has_each_block_and_who_holds_which_quota(
    ledger: Any, cap: float | None
) -> None:
    blocks = ledger.blocks(
        "clicks", by=["month"], epsilon=1, rows_in=2, quota_epsilon=0.5, cap_epsilon=cap
    )
    for by in ("eve", "mallory"):
        hold = blocks.where(month="2026-01").reserve(f"run {by}", tb.OutputDP({"a": 0.1}), by=by)
        hold.start()
        hold.settle("a")
    blocks.where(month="2026-02").reserve("more", tb.OutputDP({"a": 0.25}), by="eve").start()
    statement = statement_of_budget(ledger, "clicks")
    found = known(statement)
    most = 2.0 if cap is None else cap
    assert found["all that is ever released about one person"] == (
        f"at most epsilon {most}, delta 0.0"
    )
    assert (statement.variant, statement.parameters) == ("Pure DP", {"epsilon": most})
    assert found["runs"] == "2 settled, 1 started"
    assert found["run run eve"].startswith("settled with 'a', epsilon 0.1, ")
    assert found["block clicks[month=2026-01]"].startswith("left epsilon 0.8, ")
    assert found["block clicks[month=2026-02]"].startswith("left epsilon 0.75, ")
    assert found["quota clicks[analyst eve]"].startswith("left epsilon 0.15, ")
    assert found["quota clicks[analyst mallory]"].startswith("left epsilon 0.4, ")
    assert found["quota of each analyst"] == "epsilon 0.5, delta 0.0"
    if cap is None:  # nothing is charged to the set itself: no amount of it may look like zero
        assert found["spent"] == "by each block: see the blocks below"
        assert not {"left", "cap"} & found.keys()
    else:
        assert (found["spent"], found["cap over all blocks"]) == (
            "epsilon 0.2, delta 0.0",
            "epsilon 0.75, delta 0.0",
        )


def test_many_blocks_are_counted(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightbudget.evidence.budget._MOST_PARTS", 3)
    blocks = ledger.blocks("days", by=["day"], epsilon=1, unlocking=30)
    blocks.where(day="2020-01").reserve("all", tb.OutputDP({"a": 0.1}))
    found = known(statement_of_budget(ledger, "days"))
    assert found["further blocks and quotas"] == "28"
    assert found["blocks"] == "by day; each epsilon 1.0, delta 0.0, unlocked over 30 days"


def test_a_ledger_that_does_not_verify_says_so_first(ledger: Any, url: str) -> None:
    ledger.close()
    change_by_hand(url, "UPDATE events SET epsilon = '1' WHERE kind = 'settled'")
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


@pytest.mark.parametrize(
    ("change", "strict"),
    [
        ("UPDATE events SET details = '{}' WHERE kind = 'opened'", False),
        ("UPDATE events SET cell = '{}'", False),
        ("UPDATE budgets SET kind = 'no kind'", False),
        ("UPDATE budgets SET kind = 'no kind'", True),
    ],
)
def test_a_ledger_that_cannot_be_read_is_refused_by_name(
    ledger: Any, url: str, change: str, strict: bool
) -> None:
    ledger.open_budget("plan", kind="plan", plan=STEP * 10, delta=1e-5)
    ledger.close()
    change_by_hand(url, change)
    with tb.Ledger(url) as changed, pytest.raises(tb.errors.LedgerCorruptError, match="'plan'"):
        statement_of_budget(changed, "plan", strict=strict)


def test_what_fails_beside_a_sound_ledger_is_not_called_corrupt(
    ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr("tightbudget.evidence.budget.arithmetic", fails)
    with pytest.raises(OSError, match="no space left"):
        statement_of_budget(ledger, "ada")


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


def test_a_whole_says_what_its_open_parts_have_spent(ledger: Any) -> None:
    bob = ledger.budget("bob")
    hold = bob.reserve("B1", tb.OutputDP({"yes": 0.125}, delta=1e-8))
    hold.start()
    hold.settle("yes")
    found = known(statement_of_budget(ledger, "ada"))
    assert found["spent by open parts, of what they hold"] == "epsilon 0.125, delta 1e-08"
    assert "spent by open parts, of what they hold" not in known(statement_of_budget(ledger, "bob"))


def test_moments_are_in_utc_and_to_the_second(ledger: Any) -> None:
    (event,) = ledger.events(budget="ada", key="A1", kind="settled")
    assert event.at.endswith("+00:00")
    shown = known(statement_of_budget(ledger, "ada"))["run A1: is it?"]
    assert f", {event.at[:10]} {event.at[11:19]} UTC; declared" in shown


def test_a_run_that_only_a_changed_event_names_is_in_a_statement_that_warns(
    ledger: Any, url: str
) -> None:
    change_by_hand(url, "UPDATE events SET key = 'Z1' WHERE key = 'A1' AND kind = 'settled'")
    found = statement_of_budget(ledger, "ada")
    assert found.warning.startswith("This ledger does not verify")
    assert known(found)["run Z1"].endswith(f"declared: {NOT_KNOWN}")
    with pytest.raises(tb.errors.LedgerCorruptError):
        statement_of_budget(ledger, "ada", strict=True)


def test_a_part_whose_whole_has_another_number_is_refused(ledger: Any, url: str) -> None:
    change_by_hand(url, "UPDATE budgets SET id = -1 WHERE name = 'ada'")
    with pytest.raises(tb.errors.LedgerCorruptError, match="budget 'bob' cannot be read"):
        statement_of_budget(ledger, "bob")
