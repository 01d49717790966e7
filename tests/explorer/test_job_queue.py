"""Whoever asks takes turns, and nobody is refused because another one has filled the room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth

from tightbudget.explorer.job_queue import Job, JobQueue

NAMES = "abc"
# who comes; or a place at work is taken (None), or given back (an index), or one leaves (-1, ...)
deeds = st.lists(st.one_of(st.sampled_from(NAMES), st.none(), st.integers(-3, 3)), max_size=60)


def job(of: str) -> Job:
    return Job(of, lambda _: None)


@given(deeds, st.integers(1, 6))
def test_laws(story: list[str | int | None], most: int) -> None:
    queue, waiting, working = JobQueue(most), list[Job](), list[Job]()
    for deed in story:
        if isinstance(deed, str):
            new = job(deed)
            out = queue.join(new)
            waiting.append(new)
            load = {n: sum(j.of == n for j in waiting + working) for n in NAMES}
            if out is None:
                assert len(waiting) + len(working) <= most
            else:
                # only where it is full; the newest of who has the most, or else the new one
                assert len(waiting) + len(working) == most + 1
                assert [j for j in waiting if j.of == out.of][-1] is out
                if out is not new:
                    assert load[out.of] > load[new.of]
                    theirs = {j.of for j in waiting}
                    assert load[out.of] == max(load[n] for n in theirs)
                waiting.remove(out)
        elif deed is None:
            taken = queue.next()
            if taken is None:
                assert not waiting
                continue
            at_work = {n: sum(j.of == n for j in working) for n in NAMES}
            assert at_work[taken.of] == min(at_work[j.of] for j in waiting)
            assert next(j for j in waiting if j.of == taken.of) is taken
            waiting.remove(taken)
            working.append(taken)
        elif deed < 0 and waiting:
            leaving = waiting.pop(deed % len(waiting))
            queue.leave(leaving)
            queue.leave(leaving)
        elif working:
            queue.done(working.pop(deed % len(working)))
    left = []
    while (taken := queue.next()) is not None:
        left.append(taken)
    assert sorted(map(id, left)) == sorted(map(id, waiting))


def turns(*asked: str) -> str:
    """In which order they are taken, one at a time."""
    queue, found = JobQueue(100), ""
    for of in asked:
        queue.join(job(of))
    while (taken := queue.next()) is not None:
        found += taken.of
        queue.done(taken)
    return found


@pytest.mark.parametrize(
    ("asked", "taken"),
    [("aaab", "abaa"), ("aabbcc", "abcabc"), ("aaaa", "aaaa"), ("abab", "abab"), ("", "")],
)
def test_turns(asked: str, taken: str) -> None:
    assert turns(*asked) == taken


def honest_has_a_place() -> bool:
    queue, newest = JobQueue(3), None
    for of in "aaa":
        newest = job(of)
        queue.join(newest)
    return queue.join(job("b")) is newest and queue.next() is not None


def nobody_pushes_alike() -> bool:
    queue = JobQueue(2)
    for of in "ab":
        queue.join(job(of))
    new = job("c")
    return queue.join(new) is new


@each(
    [
        Without("turns", {"turns-taken": "if False:"}, lambda: turns(*"aaab") == "abaa"),
        Without("the room of others", {"room-of-others": "out = job.of"}, honest_has_a_place),
        Without(
            "who has as many stays",
            {"room-of-others": "out = greediest if True else job.of"},
            nobody_pushes_alike,
        ),
    ]
)
def test_a_guard_that_is_gone_is_missed(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    lose_a_truth(monkeypatch, mutation)
