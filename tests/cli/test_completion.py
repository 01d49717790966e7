"""A shell completes the values of options, by typer's protocol."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tightbudget as tb
from tightbudget.cli import completion

SCRIPT = Path(sys.executable).with_name("tightbudget")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def completed(line: str) -> list[str]:
    """The words that bash is offered for the last word of a line."""
    asked = {"_TIGHTBUDGET_COMPLETE": "complete_bash", "COMP_WORDS": line}
    asked["COMP_CWORD"] = str(len(line.split(" ")) - 1)
    done = subprocess.run(
        [SCRIPT], env={**os.environ, **asked}, capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tightbudget epsilon gau", ["gaussian"]),
        ("tightbudget epsilon truncated-g", ["truncated-gaussian"]),
        ("tightbudget epsilon gaussian --relation r", ["replace-one"]),
        ("tightbudget delta pl", ["plan.toml"]),
        ("tightbudget ledger open a --kind z", ["zcdp"]),
        ("tightbudget ledger show --ledger sqlite:///budget.db ad", ["ada"]),
        ("tightbudget ledger history --ledger sqlite:///budget.db --budget ", ["ada", "census"]),
        ("tightbudget ledger close --ledger sqlite:///none.db ", []),
        ("tightbudget mech", ["mechanisms"]),
    ],
)
def test_a_shell_completes(line: str, words: list[str]) -> None:
    tb.write_plan(tb.Gaussian(1.0) * 2, "plan.toml")
    with tb.Ledger("sqlite:///budget.db") as ledger:
        ledger.open_budget("census", epsilon=1)
        ledger.open_budget("ada", epsilon=1, parent="census")
    assert completed(line) == words


def test_a_mechanism_is_completed_as_it_was_begun() -> None:
    assert completion.sources("truncated_g") == ["truncated_gaussian"]
    assert completion.sources("truncated-g") == ["truncated-gaussian"]
    assert set(completion.sources("")) == {*tb.mechanisms.MECHANISMS}


def test_plan_files_and_folders_are_completed(folder: Path) -> None:
    for name in ("plan.toml", "plot.toml.gz", "plain.txt", ".plan.toml"):
        (folder / name).touch()
    (folder / "plans").mkdir()
    (folder / "plans" / "a.toml").touch()
    assert completion.plans("pl") == ["plan.toml", "plans/", "plot.toml.gz"]
    assert completion.plans("plans/") == ["plans/a.toml"]
    assert completion.plans("none/") == []
    assert completion.plans("\0") == []


def test_kinds_relations_and_papers_are_completed() -> None:
    assert completion.kinds("Z") == ["zcdp"]
    assert completion.relations("z") == ["zero-out"]
    assert "hartmann-2022" in completion.papers("h")
    assert completion.papers("nobody") == []


class Context:
    """The part of a command's context that completion asks."""

    def __init__(self, ledger: str | None) -> None:
        self.params = {"ledger": ledger}


@pytest.mark.parametrize(
    "url",
    [None, "", "nonsense", "sqlite:///none.db", "sqlite:///broken.db", "postgresql://no.invalid/x"],
)
def test_budgets_that_cannot_be_read_complete_to_nothing(url: str | None, folder: Path) -> None:
    (folder / "broken.db").write_bytes(b"no database")
    assert completion.budgets(Context(url), "") == []  # type: ignore[arg-type]
    assert not (folder / "none.db").exists()


def test_the_first_names_of_budgets_are_completed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "_SHOWN", 3)
    url = f"sqlite:///{folder}/budget.db"
    with tb.Ledger(url) as ledger:
        for name in ("ada %", "ada_b", "adam", "Ada", "bob", "ada_a"):
            ledger.open_budget(name, epsilon=1)
    context: Any = Context(url)
    assert completion.budgets(context, "ada") == ["ada %", "ada_a", "ada_b"]
    assert completion.budgets(context, "ada_") == ["ada_a", "ada_b"]
    assert completion.budgets(context, "x") == []
    assert len(completion.budgets(context, "")) == 3
