"""The command ``sweep``: a file of questions in, a table out, and nothing lost in between."""

from __future__ import annotations

import csv
import importlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.terminal import answer, refusal, run

import tightbudget as tb

GRID = """
tightbudget = 1
delta = "$delta"
[over]
sigma = [0.9, 2.0, -1.0]
delta = [1e-5, 1e-7]
[[steps]]
mechanism = "gaussian"
sigma = "$sigma"
rate = 0.01
times = 300
"""
NOISE = """
find = "sigma"
epsilon = 1.0
delta = 1e-5
over.runs = [100, 300]
[[steps]]
mechanism = "gaussian"
sigma = "$sigma"
rate = 0.01
times = "$runs"
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text(GRID)
    Path("noise.toml").write_text(NOISE)


def whole() -> tb.sweeps.Sweep:
    return tb.sweep(tb.sweeps.read_questions("grid.toml"))


def rows(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(path).read_text().splitlines()))


@pytest.mark.slow
def test_without_a_file_the_table_is_printed() -> None:
    printed = run("sweep", "noise.toml").stdout.splitlines()
    assert tuple(printed[0].split()) == tb.sweep(tb.sweeps.read_questions("noise.toml")).columns
    assert [line.split()[:4] for line in printed[1:3]] == [
        [runs, "1.0", "1e-05", "sigma"] for runs in ("100", "300")
    ]
    for line, runs in zip(printed[1:3], (100, 300), strict=True):
        plan = [{"mechanism": "gaussian", "sigma": "$s", "rate": 0.01, "times": runs}]
        (same,) = tb.sweep([tb.sweeps.Question.of(plan, find="s", epsilon=1.0, delta=1e-5)])
        assert line.split()[4] == repr(same.value)
    assert printed[3].split() == ["questions", "2"]
    assert printed[4].split() == ["refused", "0"]


def test_json_has_every_row_with_exact_doubles() -> None:
    content = answer("sweep", "grid.toml")
    assert (content["questions"], content["refused"]) == (6, 2)
    assert content["rows"] == json.loads(json.dumps(whole().rows()))
    assert content["rows"][-1]["upper"] == float("inf")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_a_file_has_the_table_and_the_journal_is_gone(name: str) -> None:
    pytest.importorskip("polars")
    content = answer("sweep", "grid.toml", "--out", name)
    assert content == {"questions": 6, "refused": 2}
    whole().write(f"ours-{name}")
    assert Path(name).read_bytes() == Path(f"ours-{name}").read_bytes()
    assert not Path(f"{name}.journal").exists()


def test_what_was_written_is_said() -> None:
    printed = run("sweep", "grid.toml", "--out", "a.csv").stdout
    assert [line.split() for line in printed.splitlines()][:3] == [
        ["wrote", "a.csv"],
        ["questions", "6"],
        ["refused", "2"],
    ]


@pytest.mark.slow
def test_workers_answer_the_same() -> None:
    run("sweep", "grid.toml", "--out", "one.csv")
    assert run("sweep", "grid.toml", "--out", "two.csv", "--workers", 2).exit_code == 0
    assert Path("one.csv").read_text() == Path("two.csv").read_text()


@pytest.mark.slow
def test_a_command_that_is_killed_goes_on_with_resume() -> None:
    """SIGKILL when the first answers are there; the second run asks what is left only."""
    many = [1 + k / 50 for k in range(60)]
    Path("grid.toml").write_text(GRID.replace("[0.9, 2.0, -1.0]", str(many)))
    command = [sys.executable, "-m", "tightbudget", "sweep", "grid.toml", "--out", "a.csv"]
    process = subprocess.Popen(command)
    journal = Path("a.csv.journal")
    while not journal.exists() or journal.read_bytes().count(b"\n") < 4:
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = journal.read_bytes()
    assert 4 <= kept.count(b"\n") < 121
    assert not Path("a.csv").exists()
    assert refusal("sweep", "grid.toml", "--out", "a.csv") == (
        "a.csv.journal: left by an interrupted sweep; go on with --resume, or remove it"
    )
    assert journal.read_bytes() == kept
    assert run("sweep", "grid.toml", "--out", "a.csv", "--resume").exit_code == 0
    assert not journal.exists()
    assert len(rows("a.csv")) == 120
    assert all(row["refusal"] == "" for row in rows("a.csv"))


def test_resume_with_nothing_to_resume_begins() -> None:
    assert run("sweep", "grid.toml", "--out", "a.csv", "--resume").exit_code == 0
    assert len(rows("a.csv")) == 6


def test_a_journal_that_is_resumed_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    tb.sweep(tb.sweeps.read_questions("grid.toml"), journal="a.csv.journal")

    def never(*_: object, **__: object) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(tb.Composition, "epsilon", never)
    assert run("sweep", "grid.toml", "--out", "a.csv", "--resume").exit_code == 0
    assert [row["upper"] for row in rows("a.csv")] != ["inf"] * 6


REFUSED = {
    "no file": (["none.toml"], "none.toml: no such file or directory"),
    "an ending": (
        ["grid.toml", "--out", "a.xlsx"],
        "a.xlsx: the name must end in .csv, .csv.gz, .parquet",
    ),
    "a folder": (
        ["grid.toml", "--out", "none/a.csv"],
        "none/a.csv.journal: no such file or directory",
    ),
    "resume of nothing": (
        ["grid.toml", "--resume"],
        "--resume needs --out: the journal lies beside it",
    ),
    "no workers": (
        ["grid.toml", "--workers", "0"],
        "workers must be an integer >= 1, got 0",
    ),
    "half a worker": (
        ["grid.toml", "--workers", "1.5"],
        "workers must be an integer >= 1, got 1.5",
    ),
    "workers in words": (
        ["grid.toml", "--workers", "two"],
        "workers must be an integer >= 1, got 'two'",
    ),
    "both": (
        ["grid.toml", "--workers", "2", "--dask", "tcp://127.0.0.1:1"],
        "give one of --workers and --dask, got both",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused_first(name: str) -> None:
    args, message = REFUSED[name]
    assert refusal("sweep", *args) == message
    assert not list(Path().glob("*.journal"))


def test_dask_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert refusal("sweep", "grid.toml", "--dask", "tcp://127.0.0.1:1") == (
        "--dask needs Dask: pip install 'tightbudget[dask]'"
    )


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://here"])
def test_a_scheduler_that_does_not_answer_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(sys.modules["tightbudget.cli.sweep"], "_PATIENCE", 0.5)
    said = refusal("sweep", "grid.toml", "--dask", address)
    assert said.startswith(f"dask must be a scheduler's address, got '{address}': ")


@pytest.mark.slow
def test_a_cluster_answers_the_same() -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None,
        silence_logs="CRITICAL",
    ) as cluster:  # fmt: skip
        address = cluster.scheduler_address
        assert run("sweep", "grid.toml", "--out", "a.csv", "--dask", address).exit_code == 0
    whole().write("ours.csv")
    assert Path("a.csv").read_text() == Path("ours.csv").read_text()
