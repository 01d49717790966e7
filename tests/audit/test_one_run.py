"""Audits of one run: coverage, power, ties, refusals, and what a result says."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import tightbudget as tb
from tightbudget.audit import one_run, one_run_of_guesses
from tightbudget.audit.claims import lines_of
from tightbudget.audit.coins import coins, shuffled
from tightbudget.audit.guessing import Guessed
from tightbudget.audit.one_run import default_shares
from tightbudget.numerics.rounding import FloatArray

Labels = Any


def gaussian_scores(draws: np.random.Generator, m: int, mu: float) -> tuple[FloatArray, Labels]:
    labels = draws.integers(0, 2, m)
    return draws.normal(size=m) + mu * labels, labels


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["randomized response", "gaussian", "all at once"])
def test_honest_runs_are_refuted_in_at_most_five_of_a_hundred(kind: str) -> None:
    runs, m, refuted, draws = 2000, 200, 0, np.random.default_rng(36)
    mu = 0.7
    claim = tb.Gaussian(1 / mu)
    epsilon = 1.0
    for _ in range(runs):
        labels = draws.integers(0, 2, m)
        if kind == "randomized response":  # all guesses, at exactly the claimed curve
            kept = draws.random(m) < 1 / (1 + math.exp(-epsilon))
            guesses = np.where(kept, labels, 1 - labels)
            found = one_run_of_guesses(guesses, labels, claim=(epsilon, 0.0), delta=0.0)
            assert found.epsilon_at_least <= epsilon or found.verdict == "refuted"
        elif kind == "gaussian":
            scores = draws.normal(size=m) + mu * labels
            found = one_run(scores, labels, claim=claim, delta=1e-5)
        else:  # the worst for many canaries: with delta all of them are published
            shown = draws.random() < 0.04
            scores = labels if shown else draws.normal(size=m)
            found = one_run(scores, labels, claim=(0.0, 0.04), delta=0.04)
        refuted += found.verdict == "refuted"
    # the chance of more, if each is refuted with 5 %, is below one in a thousand
    assert binom.sf(refuted - 1, runs, 0.05) > 1e-3


@pytest.mark.parametrize(("mu", "m"), [(0.5, 1000), (1.0, 2000)])
def test_half_the_noise_is_seen(mu: float, m: int) -> None:
    draws = np.random.default_rng(7)
    scores, labels = gaussian_scores(draws, m, 2 * mu)
    found = one_run(scores, labels, claim=tb.Gaussian(1 / mu), delta=1e-5)
    assert found.verdict == "refuted"
    assert found.p_value is not None
    assert found.p_value < 0.05
    assert found.needed is not None
    assert found.needed.value <= m
    assert found.mu_at_least > mu
    honest = one_run(*gaussian_scores(draws, m, mu), claim=tb.Gaussian(1 / mu), delta=1e-5)
    assert honest.verdict == "consistent"
    assert honest.mu_at_least < mu


def test_the_curve_sees_what_one_epsilon_does_not() -> None:
    # a training whose noise is half of what its plan says
    plan = tb.Gaussian(1.0).subsampled(0.01) * 1000
    scores, labels = gaussian_scores(np.random.default_rng(3), 1500, 1.0)
    shares = [(1 / 6, 1 / 6)]
    whole = one_run(scores, labels, claim=plan, delta=1e-5, shares=shares)
    epsilon = plan.epsilon(1e-5).upper
    alone = one_run(scores, labels, claim=(epsilon, 1e-5), delta=1e-5, shares=shares)
    assert (whole.verdict, alone.verdict) == ("refuted", "consistent")
    assert whole.epsilon_at_least == alone.epsilon_at_least


@pytest.mark.parametrize("mu", [0.2, 0.5, 1.0, 1.5])
def test_more_canaries_show_half_the_noise_better(mu: float) -> None:
    """A sixth guessed on each side would show less with 16,000 canaries than with 1,000."""
    lines = lines_of(tb.Gaussian(1.0 / mu), 1e-5)
    shown = []
    for m in (250 * 2**i for i in range(8)):
        ((share, other),) = default_shares(lines, m)
        assert share == other <= 1 / 6 + 1 / m
        seen = Guessed(m, *_half_the_noise(m, share, mu))
        shown.append(seen.p_value(lines))
        for rate in (share / 4, share / 2, share * 2):  # nothing else is much better
            if 10 / m <= rate <= 1 / 6:
                assert shown[-1] <= 1.5 * Guessed(m, *_half_the_noise(m, rate, mu)).p_value(lines)
    assert all(after <= 1.1 * before for before, after in itertools.pairwise(shown))
    assert shown[-1] < 0.02 < shown[0]


def _half_the_noise(m: int, share: float, mu: float) -> tuple[int, int]:
    """Counts the guesses, and those right in a poor draw of scores with twice the claim's mu."""
    truth = NormalDist(), NormalDist(2.0 * mu)
    low, high = -10.0, 2.0 * mu + 10.0
    while high - low > 1e-9:
        cut = (low + high) / 2
        above = 1.0 - (truth[0].cdf(cut) + truth[1].cdf(cut)) / 2
        low, high = (cut, high) if above > share else (low, cut)
    ins = 1.0 - truth[1].cdf(low)
    rate, r = ins / (ins + 1.0 - truth[0].cdf(low)), 2 * int(share * m)
    return r, int(r * rate - math.sqrt(r * rate * (1 - rate)))


def test_the_number_of_guesses_follows_from_the_claim_alone() -> None:
    plan = tb.Gaussian(1.5)
    found = set()
    for seed in range(3):
        scores, labels = gaussian_scores(np.random.default_rng(seed), 4000, float(seed))
        found.add(one_run(scores, labels, claim=plan, delta=1e-5).guesses)
        assert one_run(scores, labels, delta=1e-5).guesses == 1332
        held = one_run(scores, labels, claim=plan, delta=1e-5, held_out=True)
        ((share, _),) = default_shares(lines_of(plan, 1e-5), 2000)
        assert held.guesses == 2 * int(share * 2000)
    assert len(found) == 1
    assert found.pop() < 1332


def test_canaries_that_are_published_refute_a_claim() -> None:
    labels = np.arange(1000) % 2
    found = one_run(labels, labels, claim=tb.Gaussian(1.0), delta=1e-6)
    assert found.verdict == "refuted"
    assert found.guesses == found.right == 332
    assert one_run(-labels, labels, delta=0.0).epsilon_at_least == 0.0
    assert one_run(-labels, labels, delta=0.0).verdict == "no claim"


def test_guesses_and_scores_with_the_same_guesses_are_the_same_audit() -> None:
    scores, labels = gaussian_scores(np.random.default_rng(5), 60, 3.0)
    order = np.argsort(-scores)
    guesses: list[int | None] = [None] * 60
    for i in order[:10]:
        guesses[i] = 1
    for i in order[-10:]:
        guesses[i] = 0
    one = one_run(scores, labels, claim=tb.Laplace(1.0), delta=1e-5)
    two = one_run_of_guesses(guesses, labels, claim=tb.Laplace(1.0), delta=1e-5)
    assert one == two
    nan = [math.nan if x is None else x for x in guesses]
    assert one_run_of_guesses(nan, labels == 1, claim=tb.Laplace(1.0), delta=1e-5) == two


def test_equal_scores_are_ordered_by_a_coin_that_knows_no_label() -> None:
    # labels in order: an order of equal scores by their place would guess all of them
    labels = np.repeat([1, 0], 500)
    found = [one_run(np.zeros(1000), labels, delta=0.0, seed=seed) for seed in range(20)]
    assert len({one.right for one in found}) > 5
    assert np.mean([one.right for one in found]) == pytest.approx(166, abs=15)
    assert sorted(shuffled(100, 3).tolist()) == list(range(100))
    ones = np.unpackbits(coins(10_000, 1).view(np.uint8)).mean()
    assert ones == pytest.approx(0.5, abs=0.005)


def test_several_shares_are_paid_for() -> None:
    scores, labels = gaussian_scores(np.random.default_rng(5), 500, 2.0)
    shares = [(1 / 6, 1 / 6), (0.5, 0.5), (0.2, 0.0)]
    alone = [one_run(scores, labels, delta=1e-5, shares=[one]) for one in shares]
    both = one_run(scores, labels, delta=1e-5, shares=shares)
    assert 0.0 < both.epsilon_at_least < max(one.epsilon_at_least for one in alone)
    strict = one_run(scores, labels, delta=1e-5, shares=shares[:1], confidence=1 - 0.05 / 3)
    assert strict.epsilon_at_least <= both.epsilon_at_least + 1e-6
    alike = [(1 / 6, 1 / 6), (1 / 3, 0.0), (0.0, 1 / 3)]
    held = one_run(scores, labels, delta=1e-5, shares=alike[1:], held_out=True)
    assert held.trials == 250
    # the half that was not used to choose
    assert held.points[0].negatives + held.points[0].positives == 250


def test_a_higher_confidence_says_less() -> None:
    scores, labels = gaussian_scores(np.random.default_rng(5), 500, 2.0)
    found = [one_run(scores, labels, delta=1e-5, confidence=c) for c in (0.5, 0.9, 0.99, 0.9999)]
    epsilons, mus = ([getattr(x, n) for x in found] for n in ("epsilon_at_least", "mu_at_least"))
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[-1] > 0
    assert mus == sorted(mus, reverse=True)
    assert mus[-1] > 0


def test_a_claim_of_no_privacy_is_never_refuted() -> None:
    labels = np.arange(100) % 2
    # the third publishes everything in one run of five
    for claim in (tb.ApproximateDP(1.0, 1.0), (0.0, 1.0), (0.0, 0.2), (600.0, 0.0)):
        assert one_run(labels, labels, claim=claim, delta=1e-5).verdict == "consistent"
    found = one_run(labels, labels, claim=tb.ApproximateDP(0.5, 1e-4), delta=1e-5)
    assert found.verdict == "refuted"
    assert found.claimed == math.inf


def test_an_exact_number_is_rounded_towards_the_larger_claim() -> None:
    labels = np.arange(20) % 2
    found = one_run(labels, labels, claim=(Fraction(1, 3), Fraction(1, 10)), delta=0.0)
    assert found.claim is not None
    ((epsilon, delta),) = found.claim.points
    assert Fraction(epsilon) >= Fraction(1, 3)
    assert Fraction(delta) >= Fraction(1, 10)


def test_a_result_can_be_read_kept_and_drawn(tmp_path: Path) -> None:
    scores, labels = gaussian_scores(np.random.default_rng(3), 300, 1.0)
    found = one_run(scores, labels, claim=tb.Gaussian(1.0), delta=1e-5)
    assert str(found).splitlines()[0] == "claim           consistent at 95 %"
    assert "of 100 guesses right, 300 canaries (one run)" in repr(found)
    kept = json.loads(json.dumps(found.to_dict()))
    assert kept["verdict"] == "consistent"
    assert kept["epsilon_at_least"] == found.epsilon_at_least
    assert kept["claimed"] == pytest.approx((tb.Gaussian(1.0) * 1).epsilon(1e-5).upper, rel=2e-3)
    assert "<table" in found._repr_html_()
    ax = found.plot()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "guessing",
        "no attack is below, by the claim",
        "the attack, each box alone",
    ]
    nothing = one_run(scores, labels, delta=1e-5)
    assert "none was tested" in str(nothing)
    assert nothing.needed is None
    assert nothing.claimed is None
    assert nothing.to_dict()["needed"] is None
    assert len(nothing.plot().get_lines()) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"included": [0, 1] * 5 + [2]}, "included[10] must be 0 or 1, got 2"),
        ({"included": [0, 1] * 5 + [math.nan]}, "included[10] must be 0 or 1, got nan"),
        ({"included": ["in"] * 11}, "included must be a list of 0 and 1, one a canary"),
        ({"included": [1] * 11}, "11 canaries that are all in: a coin decides for each"),
        ({"included": [0, 1]}, "included must say of each canary if it was in, got 2 for 11"),
        ({"scores": [1.0] * 9}, "an audit needs ten canaries or more, got 9"),
        ({"scores": [1.0] * 10 + [math.nan]}, "scores[10] must be a number, got nan"),
        ({"scores": "high"}, "scores must be a list of numbers, one a canary, got 'high'"),
        ({"confidence": 1.0}, "confidence must be in (0, 1), got 1.0"),
        ({"confidence": 95}, "confidence must be in (0, 1), got 95"),
        ({"confidence": "95%"}, "(write 0.95)"),
        ({"delta": -1e-5}, "delta must be in [0, 1], got -1e-05"),
        (
            {"claim": 3.0},
            "claim must be a mechanism or a composition, which have a trade-off curve",
        ),
        ({"claim": (1e5, 0.0)}, "claim[0] must be at most 600, got 100000.0"),
        ({"claim": (1.0, 2.0)}, "claim[1] must be in [0, 1], got 2.0"),
        ({"shares": []}, "shares must be a list of pairs, such as [(0.1, 0.1)]"),
        ({"shares": 0.5}, "shares must be a list of pairs, such as [(0.1, 0.1)]"),
        ({"shares": [(0.6, 0.6)]}, "shares[0] must have a sum in (0, 1], got 0.6 and 0.6"),
        ({"shares": [(0.0, 0.0)]}, "shares[0] must have a sum in (0, 1], got 0.0 and 0.0"),
        ({"shares": [(0.1, 2)]}, "shares[0][1] must be in [0, 1], got 2"),
        (
            {"shares": [(0.2, 0.2), (0.5, 0.0)], "held_out": True},
            "shares must guess equally many canaries with held_out=True, since the outputs may "
            "decide which pair is chosen, got 2, 3",
        ),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
    ],
)
def test_bad_input_is_refused(given: dict[str, Any], message: str) -> None:
    good = {"scores": np.arange(11.0), "included": np.arange(11) % 2, "delta": 1e-5}
    with pytest.raises(tb.ParameterError) as error:
        one_run(**{**good, **given})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("guesses", "message"),
    [
        ([0, 1, None] * 3, "an audit needs ten canaries or more, got 9"),
        ([0, 1] * 5 + [2], "guesses[10] must be 1, 0 or None, got 2"),
        ([None] * 11, "guesses must have some 1 or 0, got None for all canaries"),
        (["in"] * 11, "guesses must be a list of 1 (in), 0 (out) and None (no guess)"),
        (7, "guesses must be a list of 1 (in), 0 (out) and None (no guess)"),
    ],
)
def test_bad_guesses_are_refused(guesses: Any, message: str) -> None:
    with pytest.raises(tb.ParameterError) as error:
        one_run_of_guesses(guesses, np.arange(11) % 2, delta=1e-5)
    assert message in str(error.value)
