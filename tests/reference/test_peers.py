"""What other tools say: our certified ends agree, or show that the tool is wrong."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.reference.peers import Row, rows

from tightbudget.numerics.bounds import Bounds

ROWS = rows()


def name(row: Row) -> str:
    return f"{row.tool}: {row.asked}"


@pytest.mark.one_in(6)
@pytest.mark.parametrize("row", ROWS, ids=name)
def test_the_certified_ends_imply_the_verdict(row: Row) -> None:
    answer = row.answer()
    assert answer.overlaps(row.recorded), f"certified is {answer}"
    assert row.apart or answer.width <= 2e-4 * answer.upper or answer.upper < 1e-14
    assert row.judged(answer) == row.judged(row.recorded) == row.verdict


def test_a_question_is_asked_once_and_every_verdict_occurs() -> None:
    assert max(Counter(name(row) for row in ROWS).values()) == 1
    assert {row.verdict for row in ROWS} == {"agrees", "too low", "too high", "inf"}
    assert len({row.tool for row in ROWS}) >= 7


@pytest.mark.parametrize(
    ("says", "lower", "upper", "verdict"),
    [
        ("1.50", 1.495, 1.505, "agrees"),
        ("1.50", 1.5099, 1.6, "agrees"),  # the last place may have been cut
        ("1.50", 1.5101, 1.6, "too low"),
        ("1.50", 1.4, 1.4899, "too high"),
        ("1.500", 1.505, 1.6, "too low"),
        ("15.0e-1", 1.505, 1.6, "agrees"),
        ("0.000", 0.0, 1e-9, "agrees"),
        ("inf", 1.4, 1.6, "inf"),
        ("inf", 1.4, float("inf"), "agrees"),
    ],
)
def test_verdicts(says: str, lower: float, upper: float, verdict: str) -> None:
    row = Row("", "", "", "", says, "", "[0.0, 1.0]", verdict)
    assert row.judged(Bounds(lower, upper)) == verdict


@pytest.mark.parametrize(
    "row", [r for r in ROWS if r.verdict == "agrees" and not r.apart], ids=name
)
def test_no_row_agrees_with_another_truth(row: Row) -> None:
    truth = row.recorded
    if float(row.says) == 0.0:
        assert row.judged(Bounds(1e-5, 1e-5)) == "too low"
    else:
        assert row.judged(truth * 1.1) == "too low"
        assert row.judged(truth * 0.9) == "too high"


def test_how_far_a_tool_is_off_at_least() -> None:
    (gaussian,) = (r for r in ROWS if "1e-13" in r.asked and r.tool == "dp-accounting")
    assert gaussian.verdict == "too low"
    assert -0.036 < gaussian.off() < -0.035
    assert {r.off() for r in ROWS if r.verdict in ("agrees", "inf")} == {0.0}
    assert all((r.off() < 0) == (r.verdict == "too low") for r in ROWS)


@pytest.mark.parametrize(
    ("says", "answer", "near"),
    [
        ("1.50", 1.5099, True),
        ("1.50", 1.5101, False),
        ("0.12345678901234", 0.1234567890124, True),
        ("inf", float("inf"), True),
        ("inf", 1e300, False),
        ("1.5", float("inf"), False),
    ],
)
def test_an_answer_that_is_printed_alike(says: str, answer: float, near: bool) -> None:
    assert Row("", "", "", "", says, "", "[0.0, 1.0]", "agrees").near(answer) is near
