"""A curve is a sequence of the bounds of its points."""

from __future__ import annotations

import pytest

import tightbudget as tb


def test_a_curve_yields_the_bounds_of_each_point() -> None:
    curve = tb.Gaussian(2.0).curve(epsilons=[0.5, 1.0, 2.0])
    assert list(curve) == [curve[k] for k in range(len(curve))]
    assert [bounds.upper for bounds in curve] == curve.upper.tolist()
    with pytest.raises(IndexError):
        curve[3]


def test_a_curve_without_points_yields_none() -> None:
    assert list(tb.Gaussian(2.0).curve(epsilons=[])) == []
