"""``tightbudget audit``: files of canaries, and what it says about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cli import terminal

import tightbudget as tb
from tightbudget.cli.refusals import REFUTED


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text('[[steps]]\nmechanism = "gaussian"\nsigma = 2.0\n', encoding="utf-8")
    return path


def written(path: Path, head: str, *columns: object) -> Path:
    rows = zip(*columns, strict=True)
    lines = [head, *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_scores_and_guesses_are_audited(tmp_path: Path, plan: Path) -> None:
    draws = np.random.default_rng(2)
    labels = draws.integers(0, 2, 600)
    scores = draws.normal(size=600) + labels
    file = written(tmp_path / "scores.csv", "score,included", scores.tolist(), labels.tolist())
    found = terminal.answer("audit", file, "--plan", plan, "--delta", "1e-5")
    same = tb.audit.one_run(scores, labels, claim=tb.read_plan(plan), delta=1e-5)
    assert found == same.to_dict()
    picture = tmp_path / "audit.png"
    shown = terminal.run("audit", file, "--plan", plan, "--delta", "1e-5", "--out", picture)
    assert "claim           " in shown.stdout
    assert picture.stat().st_size > 10_000
    guesses = [1 if x > 1.5 else 0 if x < -0.5 else "" for x in scores]
    file = written(tmp_path / "guesses.csv", "included,guess", labels.tolist(), guesses)
    found = terminal.answer("audit", file, "--delta", "1e-5", "--confidence", "0.9")
    made = [None if guess == "" else guess for guess in guesses]
    alone = tb.audit.one_run_of_guesses(made, labels, delta=1e-5, confidence=0.9)
    assert found == alone.to_dict()
    assert found["verdict"] == "no claim"


def test_a_plan_that_is_refuted_has_an_exit_code_of_its_own(tmp_path: Path, plan: Path) -> None:
    draws = np.random.default_rng(3)
    labels = draws.integers(0, 2, 600)
    for far, code in [(50.0, REFUTED), (0.0, 0)]:
        scores = draws.normal(size=600) + far * labels
        file = written(tmp_path / "scores.csv", "score,included", scores.tolist(), labels.tolist())
        for words in [(), ("--json",)]:
            found = terminal.run("audit", file, "--plan", plan, "--delta", "1e-5", *words)
            assert found.exit_code == code
            assert ("consistent" in found.stdout) == (code == 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line must be score,included or guess,included, got nothing"),
        ("score,label\n1,1\n", "must be score,included or guess,included, got score, label"),
        ("score,included\n1\n", "line 2 must have 2 values, got 1"),
        ("score,included\n1,1\n\nx,0\n", "line 4 must have a number as score, got 'x'"),
        ("score,included\n1," + "1" * 140_000, "not CSV: field larger than field limit"),
        ("guess,included\n1,\n", "line 2 must have a number as included, got ''"),
    ],
)
def test_a_file_that_says_something_else_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "canaries.csv"
    file.write_text(text, encoding="utf-8")
    refused = terminal.refusal("audit", file, "--delta", "1e-5")
    assert refused.startswith(f"{file}: ")
    assert message in refused


def test_few_canaries_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "few.csv", "guess,included", [1, 0], [1, 0])
    refused = terminal.refusal("audit", file, "--delta", "1e-5")
    assert "an audit needs ten canaries or more, got 2" in refused
