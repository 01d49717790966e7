"""Guards of a sweep taken away: each time a row is wrong, missing or asked for nothing."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.sweeps.small import GRID, PLAN, REFUSED

import tightbudget as tb
from tightbudget.sweeps import pool
from tightbudget.sweeps.journal import Journal

ASKED = tb.sweeps.questions(PLAN, {**GRID, "sigma": [2.0]}, delta="$delta")
OTHER = tb.sweeps.Question.of(tb.Gaussian(2.0), delta=1e-5)
KNOWN = tb.sweeps.Answer(1.0, 2.0)


def again(
    content: bytes | None = None, *, question: tb.sweeps.Question = OTHER
) -> tb.sweeps.Answer | None:
    """What a journal finds that has kept OTHER, perhaps damaged since."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        with Journal(path) as book:
            book.keep(OTHER, KNOWN)
        if content is not None:
            path.write_bytes(path.read_bytes().replace(b'"upper": 2.0', content))
        with Journal(path) as book:
            return book.get(question)


def torn() -> bool:
    """An answer behind a torn line is found."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        for k, asked in enumerate(ASKED):
            with Journal(path) as book:
                book.keep(asked, tb.sweeps.Answer(0.0, float(k)))
            path.write_bytes(path.read_bytes() + b"torn")
        with Journal(path) as book:
            return [book.get(q) for q in ASKED] == [
                tb.sweeps.Answer(0.0, float(k)) for k in range(len(ASKED))
            ]


def durable_refusals() -> bool:
    """A killed worker's refusal is forgotten, ours is not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        ours, lost = (
            tb.sweeps.Answer(refusal=f"{name}: x") for name in ("PrecisionError", "OSError")
        )
        with Journal(path) as book:
            book.keep(ASKED[0], ours)
            book.keep(ASKED[1], lost)
        with Journal(path) as book:
            return (book.get(ASKED[0]), book.get(ASKED[1])) == (ours, None)


def foreign() -> bool:
    """A file of another kind is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        path.write_bytes(b"my data\n")
        try:
            with Journal(path):
                return False
        except tb.errors.FileError:
            return True


def kept_apart() -> bool:
    """Other plans, targets and unknowns are other questions."""
    wider = tb.sweeps.Question.of(tb.Gaussian(2.5), delta=1e-5)
    nearer = tb.sweeps.Question.of(tb.Gaussian(2.0), delta=1e-6)
    return again() == KNOWN and again(question=wider) is None and again(question=nearer) is None


def refusals_are_rows() -> bool:
    """Each bad question is refused, claims nothing, and the others are answered."""
    try:
        found = tb.sweep([*(q for q, _ in REFUSED.values()), OTHER])
    except Exception:
        return False
    return len(found.refused) == len(REFUSED) and found[0].upper == math.inf


def precise() -> bool:
    """What was proved beside a refusal is in its row."""
    (found,) = tb.sweep([REFUSED["a gap out of reach"][0]])
    return found.refusal is not None and 0 < found.lower <= found.upper < math.inf


def typos() -> bool:
    """An axis that is used nowhere is refused, not ignored."""
    try:
        tb.sweeps.questions([{"mechanism": "gaussian", "sigma": 1.0}], {"s": [1.0]}, delta=0.1)
    except tb.ParameterError:
        return True
    return False


def stops_trying() -> bool:
    """A question that a process was lost with three times, alone, is not tried again."""
    (once,) = pool._Job((OTHER,), alone=True).again()
    (twice,) = once.again()
    return twice.again() == ()


def blames_none() -> bool:
    """A question that was lost among others has all its tries left."""
    return [(job.alone, job.lost) for job in pool._Job((OTHER,)).again()] == [(True, 0)]


def typed() -> bool:
    """A column of numbers is one, also if its first rows have none."""
    pytest.importorskip("polars")
    frame = tb.sweep([OTHER]).to_polars()
    return str(frame["value"].dtype) == "Float64"


MUTATIONS = [
    Without(
        "a changed line is believed",
        {"changed-line-believed": "if not checksum:"},
        lambda: again(b'"upper": 1.5') is None,
    ),
    Without("a torn line takes the next along", {"torn-line-takes-next-along": "if False:"}, torn),
    Without(
        "the plan is not in the key",
        {"plan-key": "asked = [_version(), question.find, question.arguments]"},
        kept_apart,
    ),
    Without(
        "the target is not in the key",
        {"plan-key": "asked = [_version(), question.plan, question.find]"},
        kept_apart,
    ),
    Without(
        "any refusal is kept",
        {
            "any-refusal-kept": (
                'if answer.refusal is not None and answer.refusal.partition(":")[0] is None:'
            )
        },
        durable_refusals,
    ),
    Without("any file is a journal", {"any-file-journal": "if False:"}, foreign),
    Without(
        "an exception ends the sweep",
        {"exception-ends-sweep": "except MemoryError as error:"},
        refusals_are_rows,
    ),
    Without(
        "what was proved is dropped", {"proved-dropped": "return refusal(asked.error())"}, precise
    ),
    Without(
        "a refused row has an upper end",
        {
            "refused-row-upper-bound": (
                "def refusal(error: BaseException, lower: float = 0.0, upper: float = "
                "0.0) -> Answer:"
            )
        },
        refusals_are_rows,
    ),
    Without("an unused axis is ignored", {"unused-axis-ignored": "if name == find:"}, typos),
    Without(
        "a killer is tried for ever",
        {
            "killer-tried-ever": (
                "return tuple(_Job((question,), True, lost) for question in self.questions)"
            )
        },
        stops_trying,
    ),
    Without(
        "a question is blamed for what was lost among others",
        {"innocent-blamed": "lost = self.lost + 1"},
        blames_none,
    ),
    Without(
        "types are guessed",
        {
            "types-guessed": (
                "return frame.DataFrame([frame.Series(name, [row[name] for row in "
                "rows], None, strict=False) for name in self.columns])"
            )
        },
        typed,
    ),
]


@each(MUTATIONS)
def test_without_its_guard_a_truth_is_lost(
    mutation: Without, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_truth(monkeypatch, mutation)
