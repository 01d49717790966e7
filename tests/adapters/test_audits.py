"""Audits beside those of JAX Privacy: the same arithmetic, or closer bounds, on the same scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tightbudget as tb

auditing: Any = pytest.importorskip("jax_privacy.auditing", reason="needs make adapters")
pytestmark = pytest.mark.needs


def of_both(scores: Any, labels: Any, guesses: int) -> tuple[Any, Any]:
    """Their auditor, and the threshold of so many guesses."""
    auditor = auditing.CanaryScoreAuditor(scores[labels == 1], scores[labels == 0])
    return auditor, auditing.Explicit(float(np.sort(scores)[-guesses]))


@pytest.mark.parametrize("delta", [1e-5, 1e-3])
@pytest.mark.parametrize(("m", "guesses", "mu"), [(1000, 200, 2.0), (400, 400, 1.0)])
def test_one_run_has_their_lower_bounds_or_closer_ones(
    m: int, guesses: int, mu: float, delta: float
) -> None:
    draws = np.random.default_rng(3)
    labels = np.arange(m) % 2
    scores = draws.normal(size=m) + mu * labels
    auditor, threshold = of_both(scores, labels, guesses)
    found = tb.audit.one_run(scores, labels, delta=delta, shares=[(guesses / m, 0.0)])
    theirs = auditor.epsilon_one_run(0.05, delta, threshold_strategy=threshold)
    assert found.epsilon_at_least >= theirs - 2e-6
    curve = auditor.epsilon_one_run_fdp(0.05, delta, threshold_strategy=threshold)
    ours = tb.theorems.gaussian_dp.epsilon(found.mu_at_least, delta).value
    assert ours >= 0.998 * curve


def test_many_runs_have_their_lower_bound_at_one_threshold() -> None:
    draws = np.random.default_rng(3)
    labels = np.arange(1000) % 2
    scores = draws.normal(size=1000) + 2 * labels
    # 25 of 500 runs without the record are above this run's score
    negatives = np.sort(scores[labels == 0])
    auditor = auditing.CanaryScoreAuditor(scores[labels == 1], scores[labels == 0])
    above = auditing.Explicit(float(np.nextafter(negatives[-26], np.inf)))
    for delta in (1e-5, 1e-2):
        theirs = auditor.epsilon_clopper_pearson(
            0.05, delta, one_sided=False, threshold_strategy=above
        )
        found = tb.audit.many_runs(scores, labels, delta=delta, rates=[0.05])
        assert found.epsilon_at_least == pytest.approx(theirs, abs=1e-6)
