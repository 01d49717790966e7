"""The generator of random questions: it draws every mechanism, and reports what it saw."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import tightbudget as tb
from tightbudget.mechanisms import MECHANISMS

PATH = Path(__file__).parents[2] / "benchmarks" / "questions.py"
spec = importlib.util.spec_from_file_location("questions", PATH)
assert spec is not None
assert spec.loader is not None
questions = importlib.util.module_from_spec(spec)
spec.loader.exec_module(questions)


def test_every_mechanism_is_drawn() -> None:
    assert not questions.missing(), questions.missing()
    assert set(questions.DRAWN) | questions.NOT_DRAWN == set(MECHANISMS)


def test_a_mechanism_that_needs_a_scale_alone_is_drawn_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @dataclass(frozen=True)
    class Scaled(tb.Mechanism):
        scale: float
        sensitivity: float = 1.0
        tails: int = 2

    @dataclass(frozen=True)
    class Shaped(tb.Mechanism):
        shape: float

    assert questions.by_scale(Scaled)
    assert not questions.by_scale(Shaped)
    monkeypatch.setitem(MECHANISMS, "shaped", Shaped)
    assert "not drawn: shaped; a mechanism that needs more than a sigma" in questions.missing()


def test_a_question_is_drawn_again_and_can_be_asked() -> None:
    for i in range(12):
        text = questions.question(1, i)
        assert text == questions.question(1, i) != questions.question(2, i)
        composition = eval(re.sub(r"\.(epsilon|delta)\(\S+\)$", "", text), {"tb": tb})
        assert isinstance(composition, tb.Composition)


@pytest.mark.skipif(sys.platform == "win32", reason="a process of its own is a fork")
def test_answers_and_refusals_are_remembered_and_reported(tmp_path: Path) -> None:
    answer = questions._answer("(tb.Gaussian(1.0) * 1).delta(0.0)")
    assert answer["lower"] <= 0.3829249225480262 <= answer["upper"]
    refused = questions._answer("(tb.Gaussian(1.0) * 1).delta(0.5, rtol=1e-17)")
    assert "relative gap 1e-17 was not reached" in refused["refused"]
    rows = [
        {"question": "good", "seconds": 0.5, "mb": 90.0, **answer},
        {"question": "bad", "seconds": 6.0, "mb": 1200.0, **refused},
    ]
    out = tmp_path / "rows"
    out.write_text("".join(questions.json.dumps(row) + "\n" for row in rows))
    assert list(questions.remembered(out).values()) == rows
    text = questions.report(rows)
    assert "2 questions: 1 refused (50.00%)" in text
    assert "6.0 s, 1200.0 MB, delta at epsilon = 0.5 is in [" in text
    assert "slow; large\nbad\n" in text
    assert "above 5 s: 1, above 1000 MB: 1" in text
