"""A journal gives back every answer that was kept, after any crash, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sweeps.small import GRID, PLAN, QUESTIONS, whole

import tightbudget as tb
from tightbudget.sweeps import journal as journals
from tightbudget.sweeps import pool
from tightbudget.sweeps.journal import Journal


@pytest.fixture(scope="module", autouse=True)
def _before_anything_is_changed() -> None:
    whole()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(plan, arguments) of every question that is asked, and known here."""
    seen: list[tuple[str, str]] = []
    known = {(q.plan, q.find, q.arguments): a for q, a in zip(QUESTIONS, whole(), strict=True)}

    def counted(plan, questions):
        seen.extend((plan, arguments) for _, arguments in questions)
        return [known.get((plan, *question), tb.sweeps.Answer(0.0, 1.0)) for question in questions]

    monkeypatch.setattr(pool, "answers", counted)
    return seen


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sweep.journal"


def test_what_is_kept_is_not_asked_again(path, asked) -> None:
    assert tb.sweep(QUESTIONS, journal=path) == whole()
    assert len(asked) == len(QUESTIONS)
    size = path.stat().st_size
    assert tb.sweep(QUESTIONS, journal=path) == whole()
    assert len(asked) == len(QUESTIONS)
    assert path.stat().st_size == size


@pytest.mark.slow
def test_a_sweep_that_ends_at_any_point_goes_on_from_there(path, asked) -> None:
    """As a disk may leave it: cut after any byte of any line."""
    tb.sweep(QUESTIONS, journal=path)
    content = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    cuts = {0, 1, *ends, *(end - 1 for end in ends), *range(0, len(content), 397)}
    for cut in sorted(cuts):
        path.write_bytes(content[:cut])
        del asked[:]
        assert tb.sweep(QUESTIONS, journal=path) == whole()
        kept = max(0, sum(end <= cut + 1 for end in ends) - 1)  # a line needs no end of line
        assert len(asked) == len(QUESTIONS) - kept
        # and everything is kept then, also behind a torn line
        del asked[:]
        assert tb.sweep(QUESTIONS, journal=path) == whole()
        assert asked == []


def test_a_line_that_was_changed_counts_as_not_there(path, asked) -> None:
    tb.sweep(QUESTIONS, journal=path)
    content = path.read_bytes()
    digit = content.index(b'"upper": ') + len(b'"upper": ')
    path.write_bytes(content[:digit] + b"0" + content[digit + 1 :])
    del asked[:]
    assert tb.sweep(QUESTIONS, journal=path) == whole()
    assert len(asked) == 1


@pytest.mark.parametrize("part", ["key", "answer"])
def test_an_answer_stays_with_its_question(part, path, asked) -> None:
    """Two lines that exchange their keys, or their answers, count as not there."""
    tb.sweep(QUESTIONS[:3], journal=path)
    head, first, second, third = path.read_bytes().splitlines(keepends=True)

    def parted(line: bytes) -> list[bytes]:
        return [line[: line.index(b'["')], *line[line.index(b'["') :].split(b", ", 1)]

    one, two = parted(first), parted(second)
    at = 1 if part == "key" else 2
    assert one[at] != two[at]
    one[at], two[at] = two[at], one[at]
    lines = [one[0] + b", ".join(one[1:]), two[0] + b", ".join(two[1:])]
    path.write_bytes(b"".join([head, *lines, third]))
    with Journal(path) as book:
        assert [book.get(question) for question in QUESTIONS[:3]] == [None, None, whole()[2]]


def test_answers_to_other_questions_are_not_used(path, asked) -> None:
    tb.sweep(tb.sweeps.questions(PLAN, {**GRID, "delta": [1e-4]}, delta="$delta"), journal=path)
    tb.sweep(tb.sweeps.questions(PLAN, GRID, delta="$delta", rtol=1e-3), journal=path)
    tb.sweep(tb.sweeps.questions(PLAN, GRID, epsilon="$delta"), journal=path)
    del asked[:]
    assert tb.sweep(QUESTIONS, journal=path) == whole()
    assert len(asked) == len(QUESTIONS)


def test_answers_of_another_version_are_not_used(path, asked, monkeypatch) -> None:
    tb.sweep(QUESTIONS, journal=path)
    monkeypatch.setattr(journals, "_version", lambda: "0.0.1")
    del asked[:]
    assert tb.sweep(QUESTIONS, journal=path) == whole()
    assert len(asked) == len(QUESTIONS)


def test_a_journal_of_more_questions_serves_fewer(path, asked) -> None:
    tb.sweep(QUESTIONS, journal=path)
    del asked[:]
    assert list(tb.sweep(QUESTIONS[:3], journal=path)) == list(whole())[:3]
    assert asked == []


def test_progress_counts_what_is_left(path) -> None:
    tb.sweep(QUESTIONS[:4], journal=path)
    left = []

    def progress(questions: range) -> range:
        left.append(len(questions))
        return questions

    tb.sweep(QUESTIONS, journal=path, progress=progress)
    assert left == [len(QUESTIONS) - 4]


def test_what_may_come_out_otherwise_next_time_is_not_kept(path, monkeypatch) -> None:
    real = tb.Composition.answer

    def out_of_memory(self, **question):
        if "delta" in question:
            raise MemoryError("no more")
        return real(self, **question)

    with monkeypatch.context() as patched:
        patched.setattr(tb.Composition, "answer", out_of_memory)
        found = tb.sweep(QUESTIONS, journal=path)
    assert "MemoryError: no more" in {answer.refusal for answer in found}
    assert tb.sweep(QUESTIONS, journal=path) == whole()


def test_each_answer_is_durable_before_the_next(path, monkeypatch) -> None:
    """Written, then synced: at no sync is a line missing that progress has already seen."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(path.read_bytes().count(b"\n")))
    lines = []

    def progress(left):
        for i in left:
            lines.append(synced[-1])
            yield i

    tb.sweep(QUESTIONS, journal=path, progress=progress)
    assert lines == [1 + i for i in range(len(QUESTIONS))]


@pytest.mark.parametrize(
    "content", [b"sigma,epsilon\n1,2\n", b"tightbudget: ledger\n", b"\0", b"tightbudget: journax"]
)
def test_a_file_of_another_kind_is_refused_and_left_alone(content, path) -> None:
    path.write_bytes(content)
    with pytest.raises(tb.errors.FileError, match=r"sweep.journal: not the journal of a sweep$"):
        tb.sweep(QUESTIONS, journal=path)
    assert path.read_bytes() == content


def test_a_place_where_nothing_can_be_written_is_refused(tmp_path) -> None:
    with pytest.raises(tb.errors.FileError, match=r"none/a\.journal: no such file or directory"):
        tb.sweep(QUESTIONS, journal=tmp_path / "none" / "a.journal")
    with pytest.raises(tb.errors.FileError, match="is a directory"):
        tb.sweep(QUESTIONS, journal=tmp_path)


def test_a_full_disk_is_refused(path, monkeypatch) -> None:
    with Journal(path) as book:

        def full(handle):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(tb.errors.FileError, match=r"sweep.journal: no space left on device$"):
            book.keep(QUESTIONS[0], whole()[0])


@pytest.mark.slow
def test_a_process_that_is_killed_loses_no_line(path) -> None:
    """SIGKILL while it answers, again and again, until nothing is left to be asked."""
    code = (
        "import sys, tightbudget as tb\n"
        "from tests.sweeps.small import QUESTIONS\n"
        "def progress(left):\n"
        "    for i in left:\n"
        "        print(i, flush=True)\n"
        "        yield i\n"
        "    print('done', flush=True)\n"
        "tb.sweep(QUESTIONS, journal=sys.argv[1], progress=progress)\n"
    )
    ends = []
    for lines in (3, 4, 100):
        process = subprocess.Popen(
            [sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout is not None
            for _ in range(lines):
                if not (line := process.stdout.readline()):
                    break
                ends.append(line.strip())
            process.send_signal(signal.SIGKILL)
    assert ends[-1] == "done"
    # every life has begun behind what the one before had kept
    assert sum(end == "0" for end in ends) == 3
    assert tb.sweep(QUESTIONS, journal=path) == whole()
