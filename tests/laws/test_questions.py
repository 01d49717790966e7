"""The generator of random questions: it draws every mechanism, and reports what it saw."""

from __future__ import annotations

import importlib.util
import re
import signal
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
sys.modules["questions"] = questions  # where dataclasses look for it
spec.loader.exec_module(questions)


def test_every_mechanism_is_drawn() -> None:
    assert not questions.missing(), questions.missing()
    assert set(questions.DRAWN) | questions.SAMPLED | questions.NOT_DRAWN == set(MECHANISMS)


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


def test_every_kind_is_drawn_and_says_its_rate() -> None:
    drawn = [questions.drawn(3, i) for i in range(300)]
    assert {one.kind for one in drawn} == set(questions.KINDS)
    for one in drawn:
        assert (one.rate is None) == (one.kind == "compositions")
        assert one.rate is None or 0 < one.rate <= 1
    names = "batches replacement truncated_poisson shuffled allocated group mixture_of_gaussians"
    whole = " ".join(one.text for one in drawn).lower().replace("mixtureofg", "mixture_of_g")
    assert not [name for name in names.split() if name not in whole]


@pytest.mark.slow
@pytest.mark.parametrize("world", questions.WORLDS)
def test_parts_of_one_world_hold_for_the_same_neighbours(world: tuple[str, ...]) -> None:
    random = questions.np.random.default_rng(0)
    for _ in range(40):
        whole = " + ".join(questions.part(random, world) for _ in range(4))
        assert isinstance(eval(whole, {"tb": tb}), tb.Composition)


@pytest.mark.skipif(sys.platform == "win32", reason="a process of its own is a fork")
def test_answers_and_refusals_are_remembered_and_reported(tmp_path: Path) -> None:
    answer = questions._answer("(tb.Gaussian(1.0) * 1).delta(0.0)")
    assert answer["lower"] <= 0.3829249225480262 <= answer["upper"]
    refused = questions._answer("(tb.Gaussian(1.0) * 1).delta(0.5, rtol=1e-17)")
    assert "relative gap 1e-17 was not reached" in refused["refused"]
    kinds = {"kind": "Poisson", "rate": 0.1}
    ok = "(tb.Gaussian(1.0) * 1).delta(0.0)"
    rows = [
        {"question": ok, "seconds": 0.5, "mb": 90.0, **kinds, **answer},
        {"question": "(bad).epsilon(0.1)", "seconds": 6.0, "mb": 1200.0, **kinds, **refused},
    ]
    out = tmp_path / "rows"
    out.write_text("".join(questions.json.dumps(row) + "\n" for row in rows))
    assert list(questions.remembered(out).values()) == rows
    text = questions.report(rows)
    assert "6.0 s, 1200.0 MB, delta at epsilon = 0.5 is in [" in text
    assert "slow; large\n(bad).epsilon(0.1)\n" in text
    line = "questions 2, refused 1, stopped 0, median 6.0, p99 6.0, slowest 6.0, above 1 s 1, above"
    assert f"all: {line} 3 s 1, mb 1200.0" in text
    found = questions.results(rows)
    assert found["all"] == found["kinds"]["Poisson"]
    assert found["points"] == [[0.1, answer["upper"], 0.5], [0.1, 0.1, None]]


@pytest.mark.skipif(sys.platform == "win32", reason="a process of its own is a fork")
def test_a_question_that_is_stopped_or_refused_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_answer", lambda text: {"upper": 1.0})
    assert questions.asked("x")["upper"] == 1.0
    monkeypatch.setattr(
        questions, "_answer", lambda text: questions.os.kill(questions.os.getpid(), signal.SIGXCPU)
    )
    row = questions.asked("x")
    assert row["refused"] == f"stopped after {questions.SECONDS} s"
    assert questions.shares([{**row, "gap": 0.0, "upper": 0.0}])["stopped"] == 1


def test_shares_take_gaps_of_answers_whose_ends_meet() -> None:
    row = {"seconds": 1.5, "mb": 80.0, "upper": 1e-3, "gap": 1e-5}
    below = {**row, "upper": 1e-290, "gap": 1.0}
    apart = {**row, "gap": 0.2, "apart": "shuffled batches"}
    found = questions.shares([row, below, apart])
    assert found["gap"] == 1e-5
    assert found["apart"] == 0.2
    assert found["above 1 s"] == 3
    assert found["above 3 s"] == found["refused"] == found["stopped"] == 0
