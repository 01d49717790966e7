"""Events are linked: what is changed, left out or put in between is seen."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tightbudget as tb
from tightbudget.promises.chain import BEGINNING, Entry, Head, canonical, entry_after, follow
from tightbudget.promises.units import Units


def chain(length: int) -> list[Entry]:
    head, entries = BEGINNING, []
    for i in range(length):
        entry = entry_after(
            head,
            at="2026-01-01T00:00:00+00:00",
            kind="settled",
            key=f"k{i}",
            budget="data",
            units=Units(i, 2 * i),
            cell='"yes"',
            details=canonical({"b": [1, None], "a": "é"}),
        )
        entries.append(entry)
        head = follow(head, entry)
    return entries


def test_a_chain_is_followed_to_its_head() -> None:
    entries = chain(3)
    assert [entry.sequence for entry in entries] == [1, 2, 3]
    assert [entry.previous for entry in entries] == [BEGINNING.hash, *(e.hash for e in entries[:2])]


def test_the_bytes_that_are_hashed_never_change() -> None:
    """What a ledger of today has written must verify with every later version."""
    first = chain(1)[0]
    assert first.details == '{"a":"\\u00e9","b":[1,null]}'
    assert canonical(first[:-1]) == (
        '[1,"2026-01-01T00:00:00+00:00","settled","k0","data",0,0,"\\"yes\\"",'
        '"{\\"a\\":\\"\\\\u00e9\\",\\"b\\":[1,null]}","' + "0" * 64 + '"]'
    )
    assert first.hash == "3ae29e1158f7777ef16421dee79af56b12559ce21d44161881071b38f9565e98"


@pytest.mark.parametrize("field", Entry._fields)
def test_no_field_is_changed_unseen(field: str) -> None:
    first, second = chain(2)
    value = getattr(second, field)
    other: Any = value + 1 if isinstance(value, int) else "0" + value[1:]
    with pytest.raises(tb.errors.LedgerCorruptError):
        follow(Head(1, first.hash), second._replace(**{field: other}))


def test_refusals_say_which_event() -> None:
    first, second, third = chain(3)
    head = follow(BEGINNING, first)
    for entry, message in (
        (third, "event 2 is missing"),
        (second._replace(previous="1" * 64), "event 2 does not follow the one before it"),
        (second._replace(epsilon=0), "event 2 was changed"),
    ):
        with pytest.raises(tb.errors.LedgerCorruptError, match=f"^{re.escape(message)}$"):
            follow(head, entry)


@given(st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32))
def test_a_head_is_read_as_it_was_written(sequence: int, hash_: bytes) -> None:
    head = Head(sequence=sequence, hash=hash_.hex())
    assert Head.from_text(str(head)) == head


@pytest.mark.parametrize(
    "text",
    ["", "tightbudget-ledger:1:5:abc", "tightbudget-ledger:2:5:" + "0" * 64,
     "tightbudget-ledger:1:-5:" + "0" * 64, str(BEGINNING) + "\n", str(BEGINNING).upper()],
)  # fmt: skip
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(tb.ParameterError, match="head must be tightbudget-ledger:1:"):
        Head.from_text(text)
