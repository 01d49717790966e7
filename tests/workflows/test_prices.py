"""Prices of workflows: certified, nearly all of delta used, and told with the way to each state."""

from __future__ import annotations

import math

import pytest

import tightbudget as tb

A, B = tb.Gaussian(1.0).subsampled(0.01) * 100, tb.Gaussian(1.5).subsampled(0.01) * 100
TWO = tb.workflows.Workflow(
    {
        "start": [(A, "noisy"), (B, "quiet")],
        "noisy": [(A, "noisy twice"), (B, "both")],
        "quiet": [(A, "both"), (B, "quiet twice")],
        "noisy twice": [],
        "both": [],
        "quiet twice": [],
    }
)
PRICED = tb.workflows.priced(TWO, 1e-5)


def test_delta_is_certified_and_nearly_all_of_it_is_used() -> None:
    assert PRICED.delta.upper <= 1e-5
    assert PRICED.delta.lower >= 0.99e-5
    again = TWO.delta(PRICED.prices)
    assert again.lower <= PRICED.delta.upper
    assert set(PRICED.prices) == set(TWO.moves) - {"start"}


def test_the_costlier_way_costs_more_and_stopping_never_more_than_going_on() -> None:
    prices = PRICED.prices
    assert prices["noisy twice"] > prices["both"] > prices["quiet twice"]
    for state, moves in TWO.moves.items():
        for move in moves:
            assert prices.get(state, 0.0) <= prices[move.to]


def test_it_is_cheaper_than_the_worst_of_everything_for_one_who_took_the_quiet_way() -> None:
    worst = (A * 2).epsilon(1e-5).lower
    assert PRICED.prices["quiet twice"] < 0.6 * worst
    assert PRICED.prices["noisy twice"] < 1.1 * worst


def test_weights_make_a_state_cheaper() -> None:
    weights = {"both": 1.0, "noisy twice": 0.01, "quiet twice": 0.01}
    other = tb.workflows.priced(TWO, 1e-5, weights)
    assert set(other.prices) == set(weights)
    assert other.prices["both"] < PRICED.prices["both"]
    ends = tb.workflows.priced(TWO, 1e-5, TWO.ends)
    assert set(ends.prices) == set(TWO.ends)


def test_the_way_to_a_state() -> None:
    assert PRICED.costliest_way("both") in {("start", "noisy", "both"), ("start", "quiet", "both")}
    assert PRICED.costliest_way("noisy twice") == ("start", "noisy", "noisy twice")
    assert PRICED.costliest_way("start") == ("start",)
    with pytest.raises(tb.ParameterError, match="state must be a state of the workflow, got 'x'"):
        PRICED.costliest_way("x")


def test_it_is_shown_as_text_table_and_frame() -> None:
    assert repr(PRICED).startswith("<PricedWorkflow: 6 states, stops at 5 of them for ")
    assert "'start' > 'noisy' > 'noisy twice'" in str(PRICED.table())
    assert str(PRICED.table(2)).endswith("3 more states")
    assert list(PRICED.frame().columns) == ["state", "epsilon", "costliest_way"]
    assert "noisy twice" in PRICED._repr_html_()
    assert PRICED.guarantee().delta <= 1e-5


def test_it_is_drawn() -> None:
    pytest.importorskip("matplotlib")
    axes = PRICED.plot()
    texts = [text.get_text() for text in axes.texts]
    assert f"both\n{PRICED.prices['both']:.3f}" in texts
    assert "start" in texts


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"delta": 0.0}, "delta must be in"),
        ({"rtol": 1.0}, "rtol must be in"),
        ({"weights": {"x": 1.0}}, "weights must name states of the workflow, got 'x'"),
        ({"weights": {"both": 0.0}}, r"weights\['both'\] must be"),
        ({"weights": ["both", "noisy twice"]}, "weights must have one for the end 'quiet twice'"),
        ({"weights": "both"}, "weights must map states to numbers > 0, or list states"),
    ],
)
def test_what_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(tb.ParameterError, match=said):
        tb.workflows.priced(TWO, **{"delta": 1e-5, **given})  # type: ignore[arg-type]


def test_an_infinite_loss_that_is_likelier_than_delta_has_no_price() -> None:
    leaky = tb.workflows.Workflow.chain(tb.ApproximateDP(0.5, 1e-3), [1, 2])
    with pytest.raises(
        tb.errors.CalibrationError, match="well above the chance of an infinite loss"
    ):
        tb.workflows.priced(leaky, 1e-5)


@pytest.mark.slow
def test_a_menu_of_counts_and_means() -> None:
    items = {"count": (tb.Laplace(10.0), 40), "mean": (tb.Gaussian(8.0), 10)}
    priced = tb.workflows.priced(tb.workflows.Workflow.menu(items), 1e-6)
    whole = (tb.Laplace(10.0) * 40 + tb.Gaussian(8.0) * 10).epsilon(1e-6)
    assert priced.delta.upper <= 1e-6
    # a price for each of 450 states costs 5 % at the last one
    assert priced.prices[40, 10] <= 1.06 * whole.upper
    assert math.isclose(priced.prices[1, 0], 0.1, rel_tol=1e-4)
