"""The bound on counted rows of a unit is taken away, and a truth must be lost."""

from __future__ import annotations

import pandas as pd
import pytest
from tests.guards.mutants import Without, each, lose_a_truth

from tightbudget.tables.opening import opened
from tightbudget.tables.source import Contribution


def a_unit_counts_with_two_rows() -> bool:
    """A unit of five rows counts with two, one of one row with one, and NULL units with all."""
    frame = pd.DataFrame({"unit": pd.array([1] * 5 + [2] + [None] * 4, dtype="Int64")})
    bound = Contribution(unit="unit", rows=2, groups=2)
    return opened(frame, {}).counts(bound, [None, None]) == [2 + 1 + 4] * 2


@each(
    [
        Without(
            "counted",
            {"rows-of-a-unit-counted": "bounded = each.tightbudget_entries"},
            a_unit_counts_with_two_rows,
            slow=True,
        )
    ]
)
def test_a_guard_of_counts_holds_a_truth(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
