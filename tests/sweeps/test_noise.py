"""What the documentation's figure says: exact bounds ask for less noise than Rényi accounting."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from tests.sweeps.small import PLAN

import tightbudget as tb

figures = importlib.import_module("docs.figures")  # a script: it is run, and not checked
DELTA = 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "runs", "epsilon", "saved"),
    [(0.01, 1000, 1.0, 6.2), (0.1, 100, 1.0, 7.3), (0.1, 10, 1.0, 9.0), (0.001, 1000, 1.0, 34.4)],
)
def test_renyi_accounting_asks_for_more_noise_as_the_figure_says(
    rate: float, runs: int, epsilon: float, saved: float
) -> None:
    plan = [{**PLAN[0], "rate": rate, "times": runs}]
    (found,) = tb.sweep([tb.sweeps.Question.of(plan, find="sigma", epsilon=epsilon, delta=DELTA)])
    assert found.value is not None
    asked = figures.renyi_noise(rate, runs, epsilon, found.value)
    assert 100.0 * (asked / found.value - 1.0) == pytest.approx(saved, abs=0.1)
    # an independent accountant agrees: with the least noise it proves more, with that one the same
    rdp = pytest.importorskip("dp_accounting.rdp")
    import dp_accounting

    def theirs(sigma: float) -> float:
        step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
        return float(rdp.RdpAccountant().compose(step, runs).get_epsilon(DELTA))

    assert theirs(found.value) > 1.05 * epsilon
    assert theirs(asked) == pytest.approx(epsilon, rel=2e-3)


def test_the_figure_sweeps_rates_epochs_and_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers stand where the figure looks for them."""
    monkeypatch.setattr(figures, "RATES", (0.1, 0.05))
    monkeypatch.setattr(figures, "EPOCHS", (1, 10))
    monkeypatch.setattr(figures, "EPSILONS", np.array([1.0, 3.0]))
    monkeypatch.setattr(figures, "WORKERS", None)
    found = figures.exact_noise()
    assert found.shape == (2, 2, 2)
    for i, rate in enumerate((0.1, 0.05)):
        for j, epochs in enumerate((1, 10)):
            run = tb.Gaussian(found[i, j, 1]).subsampled(rate) * round(epochs / rate)
            assert run.epsilon(DELTA).upper == pytest.approx(3.0, rel=1e-4)
