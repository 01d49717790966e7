from __future__ import annotations

import pytest
from papers.look import within

import tightbudget as tb


@pytest.mark.parametrize(
    ("upper", "said"), [(1.0, "0e+00"), (1.0011, "2e-03"), (1.01, "1e-02"), (1.097, "9e-02")]
)
def test_how_far_apart_is_rounded_up(upper: float, said: str) -> None:
    assert within([tb.Bounds(1.0, 1.0), tb.Bounds(1.0, upper)]) == f"ends within {said}"
