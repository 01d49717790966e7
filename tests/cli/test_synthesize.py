"""``tightbudget release synthesize``: a synthetic table in a file, and what is refused."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.cli.terminal import answer, refusal, run
from tests.marginals.test_aim_run import Fitter

import tightbudget as tb
from tightbudget.cli.release.domains_file import read_domains
from tightbudget.cli.release.synthesize import _schema
from tightbudget.marginals import mbi_fit

pytest.importorskip("pyarrow")

N = 400
RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "person": np.arange(N) // 2,
        "sex": RNG.choice(["f", "m"], N),
        "age": RNG.integers(0, 120, N),
        "score": RNG.choice([0.0, 1.0], N),
    }
)
DOMAINS = """
sex = ["f", "m"]
age = {edges = [0, 18, 40, 65, 100], integers = true, other = true}
score = {values = [0, 1], other = true}
"""
ASKED = [
    *("release", "synthesize", "people.parquet", "--domains", "domains.toml"),
    *("--epsilon", 1, "--delta", "1e-6", "--unit", "person", "--rows-per-unit", 2),
]
ADA = ["--ledger", "sqlite:///budget.db", "--budget", "ada"]


@pytest.fixture(autouse=True)
def _ada(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIGHTBUDGET_LEDGER", raising=False)
    with tb.Ledger("sqlite:///budget.db") as ledger:
        ledger.open_budget("ada", epsilon=3, delta=1e-5)
    ROWS.to_parquet("people.parquet")
    Path("domains.toml").write_text(DOMAINS, encoding="utf-8")


def spent() -> float:
    with tb.Ledger("sqlite:///budget.db") as ledger:
        return ledger.budget("ada").spent.epsilon


def files() -> set[str]:
    """The names of the files that the command has left."""
    return {path.name for path in Path().iterdir() if not path.name.startswith("budget.db")}


GIVEN = {"people.parquet", "domains.toml"}


def test_a_parquet_file_has_the_types_of_the_domains() -> None:
    found = answer(*ASKED, *ADA, "--out", "made.parquet", "--seed", 1, "--size", 300)
    frame = pd.read_parquet("made.parquet", dtype_backend="pyarrow")
    assert found["rows"] == len(frame) == 300
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        "sex": "string[pyarrow]",
        "age": "int64[pyarrow]",
        "score": "double[pyarrow]",
    }
    assert set(frame["sex"]) <= {"f", "m"}
    assert frame["age"].dropna().between(0, 100).all()
    assert frame["age"].isna().any()
    assert files() == {*GIVEN, "made.parquet"}
    assert [one["columns"] for one in found["marginals"][:3]] == [["sex"], ["age"], ["score"]]
    assert len(found["marginals"]) == 5
    assert found["receipt"]["charged"]["amount"] == spent() == 1.0
    assert found["key"].startswith("people/synthesize ")
    with tb.Ledger("sqlite:///budget.db") as ledger:
        asked = ledger.hold(found["key"]).question
    assert asked == "people: synthetic table by MST of sex, age, score"


def test_a_person_sees_the_noise_and_the_price() -> None:
    result = run(*ASKED, *ADA, "--out", "made.csv", "--key", "A1", "--where", "sex == f")
    assert result.exit_code == 0
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == ["rows", "file", "noise", "pairs"]
    assert lines[1][1] == "made.csv"
    assert lines[2][1].startswith("of a count  sigma ")
    assert lines[3][1].count(" and ") == 2
    assert result.stderr.startswith("charged epsilon 1.0, delta 9.9")
    assert result.stderr.endswith(" of ada; key A1\n")
    head, *rows = Path("made.csv").read_text(encoding="utf-8").splitlines()
    assert head == '"sex","age","score"'
    assert 50 < len(rows) < 400
    assert files() == {*GIVEN, "made.csv"}


def test_columns_without_a_domain_are_named() -> None:
    Path("domains.toml").write_text('sex = ["f", "m"]\nscore = [0, 1]\n', encoding="utf-8")
    assert answer(*ASKED, "--out", "made.csv")["left_out"] == ["age"]
    shown = run(*ASKED, "--out", "again.csv").stdout
    assert "without a domain, left out  'age'\n" in shown
    assert answer(*ASKED, "--row-id", "age", "--out", "no.csv")["left_out"] == []
    assert list(pd.read_csv("again.csv")) == ["sex", "score"]


def test_without_a_ledger_it_says_that_nothing_keeps_the_price() -> None:
    result = run(*ASKED, "--out", "made.parquet")
    assert result.exit_code == 0
    assert result.stderr.endswith("; no ledger keeps that\n")
    assert spent() == 0


def test_a_file_is_replaced_by_force_alone() -> None:
    Path("made.csv").write_text("mine", encoding="utf-8")
    said = refusal(*ASKED, *ADA, "--out", "made.csv")
    assert "out must be a new file: --force replaces the one that is there, got 'made.csv'" in said
    assert Path("made.csv").read_text(encoding="utf-8") == "mine"
    assert spent() == 0
    assert run(*ASKED, *ADA, "--out", "made.csv", "--force").exit_code == 0
    assert Path("made.csv").read_text(encoding="utf-8").startswith('"sex"')


@pytest.mark.slow
def test_a_key_is_charged_once_and_leaves_no_second_file() -> None:
    assert run(*ASKED, *ADA, "--out", "a.csv", "--key", "A1").exit_code == 0
    assert "'A1' is settled" in refusal(*ASKED, *ADA, "--out", "b.csv", "--key", "A1", code=5)
    assert spent() == 1.0
    assert files() == {*GIVEN, "a.csv"}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("more", "said", "code"),
    [
        (["--out", "made.xml"], "out must be a path that ends in .parquet or .csv", 2),
        (["--out", "no/made.csv"], "no/made.csv: no such file or directory", 2),
        (["--out", "folder.csv"], "out must be a file, not a folder, got 'folder.csv'", 2),
        (["--epsilon", 0], "epsilon must be", 2),
        (["--delta", 0], "delta must be in (0, 1), got 0", 2),
        (["--size", -1], "size must be", 2),
        (["--size", 10**12], "size must be at most 100,000,000 rows, got 1000000000000", 2),
        (["--seed", -1], "seed must be one of numpy's generator", 2),
        (["--unit", "nobody"], "unit must be one of the columns", 2),
        (["--relation", "zero-out"], "relation must be add-or-remove or replace-one", 2),
        (["--where", "age ~ 3"], "where must be COLUMN SIGN VALUE", 2),
        (["--domains", "none.toml"], "none.toml: no such file", 2),
        (["--budget", "eve"], "budget must be the name of a budget in this ledger", 2),
        (["--epsilon", 4], "requested epsilon 4.0", 4),
    ],
)
def test_a_refusal_charges_nothing_and_writes_nothing(
    more: list[Any], said: str, code: int
) -> None:
    Path("folder.csv").mkdir()
    out = [] if "--out" in more else ["--out", "made.csv"]
    assert said in refusal(*ASKED, *ADA, *out, *more, code=code)
    assert spent() == 0
    assert files() == {*GIVEN, "folder.csv"}


def test_what_a_kill_has_left_is_named_and_changes_nothing() -> None:
    Path(".made.csv.0123456789ab.part").write_bytes(b"sex")
    Path("made.csv.run").touch()
    said = refusal(*ASKED, *ADA, "--out", "made.csv")
    assert "made.csv.run is of a run that was killed before anything was charged" in said
    assert spent() == 0
    Path("made.csv.run").unlink()
    assert run(*ASKED, *ADA, "--out", "made.csv").exit_code == 0
    assert files() == {*GIVEN, "made.csv", ".made.csv.0123456789ab.part"}
    assert spent() == 1.0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (ADA[:2], "budget must be given with a ledger: the one that pays"),
        (ADA[2:], "budget belongs to a ledger, got 'ada' without --ledger"),
        (["--key", "A1"], "key belongs to a ledger, got 'A1' without --ledger"),
        (["--by", "eve"], "by belongs to a ledger, got 'eve' without --ledger"),
    ],
)
def test_a_ledger_and_a_budget_are_given_together(more: list[Any], said: str) -> None:
    assert refusal(*ASKED, "--out", "made.csv", *more) == said
    assert files() == GIVEN


@pytest.mark.parametrize("values", [["a", 1], [2**70]], ids=str)
def test_values_that_no_file_holds_are_refused_before_the_charge(values: list[Any]) -> None:
    with pytest.raises(tb.ParameterError, match=r"domains\['a'\] must have values of one type"):
        _schema({"a": values}, {"a": "string"})


def test_a_disk_that_is_full_is_said_with_the_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    said = refusal(*ASKED, *ADA, "--out", "made.csv", "--key", "A1")
    assert said == (
        "made.csv: no space left on device; the price is charged; what was measured is kept: the "
        "same command goes on with --key A1 --keep made.csv.run"
    )
    assert spent() == 1.0
    assert files() == {*GIVEN, "made.csv.run"}


def test_a_table_that_was_not_written_is_drawn_from_the_kept_marginals_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        refusal(*ASKED, *ADA, "--out", "made.csv", "--key", "A1")
    said = refusal(*ASKED, *ADA, "--out", "made.csv")
    assert said.startswith("made.csv.run has the marginals of a run whose table was not written")
    assert spent() == 1.0
    again = [*ASKED, *ADA, "--out", "made.csv", "--key", "A1", "--keep", "made.csv.run"]
    found = answer(*again)
    assert (found["method"], found["ended"], len(found["marginals"])) == ("mst", None, 5)
    assert spent() == 1.0
    assert files() == {*GIVEN, "made.csv", "made.csv.run"}


# ------------------------------------------------------------------------------------- AIM


@pytest.fixture(name="fitter")
def _fitter(monkeypatch: pytest.MonkeyPatch) -> Fitter:
    """A stand-in for mbi: this environment has none."""
    fitter = Fitter()
    monkeypatch.setattr(mbi_fit, "adapter", lambda: fitter)
    return fitter


AIM = [*ASKED, "--method", "aim", "--rounds", 5]


def test_aim_writes_a_table_and_lists_what_it_has_measured(fitter: Fitter) -> None:
    result = run(*AIM, *ADA, "--out", "made.parquet", "--size", 70)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[2].startswith("noise of a count  sigma from ")
    assert lines[3].split() == ["marginals", "sex"]
    assert [line.strip() for line in lines[4:6]] == ["age", "score"]
    assert {*lines[6].strip().split(" and ")} <= {"sex", "age", "score"}  # noise selects it
    assert result.stderr.startswith("charged epsilon 1.0, delta 9.9")
    assert len(pd.read_parquet("made.parquet")) == 70
    assert spent() == 1.0
    with tb.Ledger("sqlite:///budget.db") as ledger:
        key, *_ = [event.key for event in ledger.events() if event.kind == "reserved"]
        asked = ledger.hold(str(key)).question
    assert asked == "people: synthetic table by AIM of sex, age, score"


def test_a_run_of_aim_that_was_interrupted_goes_on_by_the_same_command(fitter: Fitter) -> None:
    fitter.fails[2] = KeyboardInterrupt()
    same = [*AIM, *ADA, "--out", "made.csv", "--key", "A1", "--keep", "people.run"]
    assert run(*same).exit_code == 130
    assert files() == {*GIVEN, "people.run"}
    assert spent() == 0
    fitter.fails.clear()
    found = answer(*same)
    assert (found["ended"], found["method"], found["key"]) == (None, "aim", "A1")
    assert spent() == 1.0
    # and once more, to another file, for nothing
    again = answer(*same, "--out", "other.csv")
    assert again["marginals"] == found["marginals"]
    assert again["receipt"]["charged"] == found["receipt"]["charged"]
    assert spent() == 1.0
    assert files() == {*GIVEN, "people.run", "made.csv", "other.csv"}
    # the question is in the ledger here, too
    with tb.Ledger("sqlite:///budget.db") as ledger:
        assert "by AIM" in str(ledger.hold("A1").question)


def test_a_fit_that_fails_is_said(fitter: Fitter) -> None:
    fitter.fails[2] = RuntimeError("out of memory")
    result = run(*AIM, *ADA, "--out", "made.csv")
    assert result.exit_code == 0
    said = result.stderr.splitlines()
    assert said[0].startswith("what was measured is kept: the same command goes on with --key")
    assert said[1] == "ended early: RuntimeError: out of memory"
    assert said[2].startswith("charged epsilon 1.0")
    assert files() == {*GIVEN, "made.csv", "made.csv.run"}


def test_marginals_whose_model_fails_at_the_end_can_be_fitted_again_for_nothing(
    fitter: Fitter,
) -> None:
    fitter.finite = False
    result = run(*AIM, *ADA, "--out", "made.csv", "--key", "A1")
    assert result.exit_code != 0
    assert "has not converged" in result.stderr
    assert files() == {*GIVEN, "made.csv.run"}
    assert spent() == 1.0
    fitter.finite = True
    again = answer(*AIM, *ADA, "--out", "made.csv", "--key", "A1", "--keep", "made.csv.run")
    assert "has not converged" in again["ended"]
    assert spent() == 1.0


@pytest.mark.slow
def test_who_stops_aim_early_gets_the_rest_back(fitter: Fitter) -> None:
    result = run(*AIM, *ADA, "--out", "made.csv", "--stop-after", 4)
    assert result.exit_code == 0
    said = result.stderr.splitlines()
    assert said[0] == "ended early: 4 marginals are measured"
    assert "; returned epsilon 0." in said[1]
    assert 0.5 < spent() < 0.97


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--keep", "x"], "key must be given with keep: the same one goes on with the run"),
        (["--stop-after", 0], "stop_after must be"),
        (["--rounds", 2], "rounds must be more than"),
        (["--size", -1], "size must be"),
        (["--seed", -1], "seed must be one of numpy's generator"),
    ],
)
def test_what_is_refused_of_aim_charges_nothing(fitter: Fitter, more: list[Any], said: str) -> None:
    assert said in refusal(*AIM, *ADA, "--out", "made.csv", *more)
    assert spent() == 0
    assert files() == GIVEN


@pytest.mark.parametrize("option", ["--rounds", "--stop-after"])
def test_what_belongs_to_aim_is_refused_of_mst(option: str) -> None:
    name = option.strip("-").replace("-", "_")
    said = refusal(*ASKED, *ADA, "--out", "made.csv", option, 9)
    assert said == f"{name} belongs to --method aim, got 9 without it"
    assert spent() == 0


def test_a_file_to_keep_needs_a_ledger(fitter: Fitter) -> None:
    said = refusal(*AIM, "--out", "made.csv", "--keep", "x")
    assert said == "keep belongs to a ledger, got x without --ledger"
    assert files() == GIVEN


def test_without_mbi_aim_is_refused_before_the_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tightbudget.adapters.mbi", raising=False)
    monkeypatch.setitem(sys.modules, "mbi", None)
    said = refusal(*AIM, *ADA, "--out", "made.csv")
    assert "the model needs mbi: pip install 'tightbudget[mbi]'" in said
    assert spent() == 0
    assert files() == GIVEN


# ------------------------------------------------------------------------ files of domains


def test_a_file_of_domains_is_read_in_its_order() -> None:
    Path("d.toml").write_text(
        "b = {values = [1, 2], other = true}\na = [2026-01-02, 2026-01-03]\n"
        "c = {edges = [0, 1.5]}\nd = {values = [true]}\n",
        encoding="utf-8",
    )
    found = read_domains(Path("d.toml"))
    assert list(found) == ["b", "a", "c", "d"]
    assert found["a"] == [datetime.date(2026, 1, 2), datetime.date(2026, 1, 3)]
    assert (found["b"], found["d"]) == ([1, 2, None], [True])
    assert found["c"] == tb.marginals.NumericBins([0, 1.5])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "d.toml: not TOML: "),
        ("a = 3", "d.toml: a must be a list of values, or a table with values or edges, got 3"),
        ("a = {other = true}", "a must be a list of values, or a table with values or edges"),
        ("a = {values = [1], edges = [0, 1]}", "a must be a list of values, or a table with"),
        ("a = {values = [1], size = 3}", "a must have no key but other, values, got 'size'"),
        (
            "a = {edges = [0, 1], bins = 3}",
            "a must have no key but edges, integers, other, got 'bins'",
        ),
        ("a = {values = 3}", "d.toml: a: values must be a list, got 3"),
        ("a = {values = [1], other = 1}", "d.toml: a: other must be true or false, got 1"),
        ("a = {edges = [1, 0]}", "d.toml: a: edges must ascend"),
        ('a = {edges = ["x", 1]}', "d.toml: a: edges[0] must be a finite number"),
        ("a = {edges = [0, 1], other = 3}", "d.toml: a: other must be True or False"),
    ],
)
def test_a_file_of_domains_is_refused_by_name(text: str, said: str) -> None:
    Path("d.toml").write_text(text, encoding="utf-8")
    with pytest.raises(tb.errors.FileError) as found:
        read_domains(Path("d.toml"))
    assert said in str(found.value)
