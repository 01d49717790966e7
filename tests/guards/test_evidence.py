"""Each guard of statements is taken away once, and a test of the room must turn red."""

from __future__ import annotations

import pytest
from tests.guards.mutants import Without, each, lose_a_truth

EVIDENCE = [
    Without(
        "amounts before those of the head",
        {"amounts-of-the-head": "if True:"},
        fails="tests/evidence/test_statement.py::test_amounts_are_those_of_the_head[1]",
    ),
    Without(
        "a set of blocks without the runs that its blocks have paid for",
        {"runs-of-all-blocks": 'among = {"budget": now.name}'},
        fails="tests/evidence/test_statement.py"
        "::test_a_set_of_blocks_has_each_block_and_who_holds_which_quota[None]",
    ),
    Without(
        "a session's statement on the budget of another ledger",
        {"ledger-of-the-session": "if False:\n    pass"},
        fails="tests/evidence/test_session_statement.py::test_another_ledger_is_refused",
    ),
    Without(
        "a record of what was spent",
        {"record-of-the-cap": "variant, parameters = _loss(now.spent if now.closed else now.cap)"},
        fails="tests/evidence/test_registry.py::test_a_budget_that_is_closed_is_its_cap_too",
    ),
    Without(
        "a number that is right at one of two rates refuted",
        {"right-in-one-reading": "for verdict in ():\n    pass"},
        fails="tests/evidence/test_check.py"
        "::test_a_number_that_is_right_at_the_rate_of_some_stack_is_not_refuted",
    ),
    Without(
        "a number between two bounds taken for proved",
        {"open-is-not-proved": 'verdict = "agrees"'},
        fails="tests/evidence/test_check.py"
        "::test_a_number_between_two_bounds_that_are_apart_is_open",
    ),
]


@each(EVIDENCE)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without, request: pytest.FixtureRequest
) -> None:
    lose_a_truth(monkeypatch, mutation, request.session)
