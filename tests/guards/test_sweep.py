"""Guards of a sweep taken away: each time a row is wrong, missing or asked for nothing."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
from tests.accounting.sweep.small import GRID, PLAN, REFUSED
from tests.guards.mutants import Mutation, each, lose_a_truth

import tightbudget as tb
from tightbudget.accounting.sweep import answer, journal, pool, question, table
from tightbudget.accounting.sweep.journal import Journal

ASKED = tb.questions(PLAN, {**GRID, "sigma": [2.0]}, delta="$delta")
OTHER = tb.Question.of(tb.Gaussian(2.0), delta=1e-5)
KNOWN = tb.Answer(1.0, 2.0)


def again(content: bytes | None = None, *, question: tb.Question = OTHER) -> tb.Answer | None:
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
                book.keep(asked, tb.Answer(0.0, float(k)))
            path.write_bytes(path.read_bytes() + b"torn")
        with Journal(path) as book:
            return [book.get(q) for q in ASKED] == [
                tb.Answer(0.0, float(k)) for k in range(len(ASKED))
            ]


def durable_refusals() -> bool:
    """A killed worker's refusal is forgotten, ours is not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        ours, lost = (tb.Answer(refusal=f"{name}: x") for name in ("PrecisionError", "OSError"))
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
        except tb.FileError:
            return True


def kept_apart() -> bool:
    """Other plans, targets and unknowns are other questions."""
    wider = tb.Question.of(tb.Gaussian(2.5), delta=1e-5)
    nearer = tb.Question.of(tb.Gaussian(2.0), delta=1e-6)
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
        tb.questions([{"mechanism": "gaussian", "sigma": 1.0}], {"s": [1.0]}, delta=0.1)
    except tb.ParameterError:
        return True
    return False


def stops_trying() -> bool:
    """A question that a process was lost with three times is not tried again."""
    (once,) = pool._Job((OTHER,)).again()
    (twice,) = once.again()
    return twice.again() == ()


def typed() -> bool:
    """A column of numbers is one, also if its first rows have none."""
    pytest.importorskip("polars")
    frame = tb.sweep([OTHER]).to_polars()
    return str(frame["value"].dtype) == "Float64"


MUTATIONS = [
    Mutation(
        "a changed line is believed", journal, "_read",
        (("if checksum != _checksum(body):", "if not checksum:"),),
        lambda: again(b'"upper": 1.5') is None,
    ),
    Mutation(
        "a torn line takes the next along", Journal, "_begun",
        (('if not content.endswith(b"\\n"):', "if False:"),),
        torn,
    ),
    Mutation(
        "the plan is not in the key", journal, "_key",
        (("question.plan, ", ""),),
        kept_apart,
    ),
    Mutation(
        "the target is not in the key", journal, "_key",
        ((", question.arguments]", "]"),),
        kept_apart,
    ),
    Mutation(
        "any refusal is kept", Journal, "keep",
        (("not in errors.__all__", "is None"),),
        durable_refusals,
    ),
    Mutation(
        "any file is a journal", Journal, "_begun",
        (("if not content.startswith(_HEAD):", "if False:"),),
        foreign,
    ),
    Mutation(
        "an exception ends the sweep", answer, "_answer",
        (("except Exception as error:", "except MemoryError as error:"),),
        refusals_are_rows,
    ),
    Mutation(
        "what was proved is dropped", answer, "_answer",
        (("refusal(asked.error(), lower, upper)", "refusal(asked.error())"),),
        precise,
    ),
    Mutation(
        "a refused row has an upper end", answer, "refusal",
        (("upper: float = math.inf", "upper: float = 0.0"),),
        refusals_are_rows,
    ),
    Mutation(
        "an unused axis is ignored", question, "questions",
        (("if name not in used or name == find:", "if name == find:"),),
        typos,
    ),
    Mutation(
        "a killer is tried for ever", pool._Job, "again",
        (("if lost < _TRIES", "if lost"),),
        stops_trying,
    ),
    Mutation(
        "types are guessed", table.Sweep, "to_polars",
        (("types.get(name)", "None"),),
        typed,
    ),
]  # fmt: skip


@each(MUTATIONS)
def test_without_its_guard_a_truth_is_lost(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_truth(monkeypatch, mutation)
