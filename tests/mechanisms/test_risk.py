"""What an attacker can do: closed forms, exact rationals, and laws over all mechanisms."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from tests.balls import ball, inside, mass
from tests.cases import CASES, Case, each_case, slow_unless_core
from tests.exact import Composed, Outputs, exp_ends, normalised, reversed_
from tests.laws.test_pairs import mass_above
from tests.reference.test_gaussian import gaussian_delta

import tightbudget as tb
from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.engine import Engine
from tightbudget.engine.levels import refine
from tightbudget.engine.levels.placing import LevelPlan
from tightbudget.engine.levels.profile import LevelProfile
from tightbudget.engine.readings.gaussian_dp import gaussian_mu_bounds
from tightbudget.engine.readings.probabilistic_dp import exceedance_bounds
from tightbudget.engine.readings.tradeoff import BestTest, most_true_positives
from tightbudget.numerics.bounds import Bounds
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Pair

MUS = [0.05, 1.0, 3.0]
STEP = tb.Gaussian(1.0).subsampled(0.01)

# ----------------------------------------------------------------------- closed forms


def gaussian(mu: float) -> tb.Composition:
    """Four runs that are one of sensitivity mu and sigma 1."""
    return tb.Gaussian(sigma=2.0, sensitivity=mu) * 4


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mu", MUS)
def test_the_risk_of_gaussians_is_closed(mu: float) -> None:
    with ctx.workprec(200):
        for epsilon, z, prior in ((0.0, -3.0, 0.5), (0.3, 0.7, 0.48), (2.0 * mu, 2.0, 0.51)):
            fpr = float(mass(arb(z), None))
            # of the double fpr, by Newton's method on z
            at = arb(z)
            for _ in range(6):
                density = (-at * at / 2).exp() / (2 * arb.pi()).sqrt()
                at = at + (mass(at, None) - ball(fpr)) / density
            at = arb(at.mid())
            risk = gaussian(mu).risk(epsilon, fpr=fpr, prior=prior)
            m = ball(mu)
            assert inside(risk.advantage, 1 - 2 * mass(m / 2, None))  # 2 Phi(mu / 2) - 1
            assert inside(risk.tpr, mass(at - m, None))  # Phi(Phi^-1(fpr) + mu)
            assert inside(risk.exceedance, mass(ball(epsilon) / m - m / 2, None))
            assert inside(risk.delta, gaussian_delta(m, epsilon))
            odds = (1 - ball(prior)) / ball(prior)
            cut = odds.log() / m + m / 2  # Q against prior: guess P from here on
            missed = ball(prior) * (1 - mass(cut - m, None)) + (1 - ball(prior)) * mass(cut, None)
            assert inside(risk.bayes_risk, missed)
            assert inside(risk.belief, 1 / (1 + odds * (-ball(epsilon)).exp()))
            for name in ("advantage", "tpr", "bayes_risk", "mu", "delta", "exceedance", "belief"):
                assert getattr(risk, name).relative_gap <= 1e-4, name


@pytest.mark.parametrize("mu", MUS)
def test_the_mu_of_gaussians_is_their_own(mu: float) -> None:
    exact = gaussian(mu).risk(1.0, slack=0.0).mu
    assert exact.lower <= mu <= exact.upper
    assert exact.relative_gap <= 1e-14
    slack = gaussian(mu).risk(1.0, slack=1e-12).mu
    # d delta_mu(0) / d mu = phi(mu / 2): what a slack can save, at most
    saved = 2e-12 * math.sqrt(2 * math.pi) * math.exp(mu * mu / 8)
    assert mu - saved <= slack.upper
    assert slack.lower <= mu
    assert slack.relative_gap <= 1e-4


def test_sampling_does_not_lower_the_mu_of_the_whole_curve() -> None:
    run = STEP * 50 + tb.Gaussian(sigma=3.0) * 7
    found = run.risk(1.0, slack=0.0).mu
    assert found.lower <= math.sqrt(50.0 + 7.0 / 9.0) <= found.upper
    # as the moments tell: 2 ln M(c) / (c (c + 1)) comes near it at large orders only
    orders = (2.0, 8.0, 64.0)
    roots = [math.sqrt(2.0 * run.renyi(a).upper / a) for a in orders]
    assert roots == sorted(roots)
    assert roots[0] < 2.0 < 6.0 < roots[-1] <= found.upper
    assert run.risk(1.0, slack=1e-10).mu.upper < 2.0


def test_randomised_response_and_the_worst_case_are_exact() -> None:
    p = Fraction(3, 4)
    risk = (tb.RandomizedResponse(0.75) * 1).risk(1.0, fpr=0.125, prior=0.5)
    # the losses are +-ln 3
    for bounds, truth in (
        (risk.advantage, Fraction(1, 2)),
        (risk.tpr, 3 * Fraction(1, 8)),
        (risk.bayes_risk, 1 - p),
        (risk.exceedance, p),
    ):
        holds(bounds, truth, 1e-9)
    assert (tb.RandomizedResponse(0.75) * 1).risk(1.2).exceedance == Bounds(0.0, 0.0)
    with ctx.workprec(200):
        e, d = arb(0.3).exp(), ball(1e-3)
        worst = (tb.ApproximateDP(0.3, 1e-3) * 1).risk(0.25, fpr=0.01)
        assert inside(worst.advantage, d + (1 - d) * (e - 1) / (e + 1))
        assert inside(worst.tpr, d + e * ball(0.01))
        assert inside(worst.exceedance, d + (1 - d) * e / (1 + e))
    assert worst.tpr.relative_gap <= 1e-9
    assert worst.mu == Bounds(math.inf, math.inf)  # 1e-3 tells the neighbours apart for certain
    assert (tb.ApproximateDP(0.3, 1e-3) * 1).risk(0.25, slack=1e-2).mu.upper < 1.0


def test_a_mass_at_the_very_loss_that_is_asked_for_lies_between_both_ends() -> None:
    found = (tb.ApproximateDP(1.0, 1e-3) * 2).risk(0.0).exceedance
    high = (1 - 1e-3) * math.e / (1 + math.e)
    above, at = 1 - (1 - 1e-3) ** 2 + high**2, 2 * high * ((1 - 1e-3) - high)
    assert above * (1 - 1e-3) <= found.lower <= above  # P(L > 0)
    assert above + at <= found.upper <= (above + at) * (1 + 1e-3)  # P(L >= 0)


def losses_with_mass(pair: Pair) -> list[float]:
    """Ends of the smallest, the middle, the largest and the likeliest loss that has a mass."""
    atoms = pair.atoms()
    there = np.flatnonzero(atoms.p.lower > 1e-13)
    if not there.size:
        return []
    there = there[np.argsort(atoms.loss_upper[there])]
    likeliest = there[np.argmax(atoms.p.lower[there])]
    found = {int(there[0]), int(there[there.size // 2]), int(there[-1]), int(likeliest)}
    return sorted({float(end[i]) for i in found for end in (atoms.loss_lower, atoms.loss_upper)})


@pytest.mark.one_in(6)
@pytest.mark.parametrize("direction", Direction, ids=lambda d: d.value)
@each_case
def test_a_loss_with_a_mass_may_count_or_not(case: Case, direction: Direction) -> None:
    """At a loss itself, also at the largest one, P(L > eps) and P(L >= eps) both lie inside."""
    pair = case.mechanism.pair(direction)
    losses = Engine.of({direction: (case.mechanism * 1).pairs(direction)})
    for epsilon in losses_with_mass(pair):
        found = exceedance_bounds(losses, epsilon, 1e-2)
        at_or_above, above = mass_above(pair, epsilon)
        assert found.upper >= at_or_above
        assert found.lower <= above


def test_the_largest_loss_of_all_runs_is_a_loss_with_a_mass() -> None:
    for run, epsilon, above, at in (
        (tb.FromCurve([0.0], [8e-5]) * 2, 0.0, -math.expm1(2 * math.log1p(-8e-5)), 1.0),
        (tb.LossTable(0.5, (1, (1.0,), 0.0)) * 4, 2.0, 0.0, 1.0),
        (tb.ApproximateDP(1.0) * 3, 3.0, 0.0, (math.e / (1 + math.e)) ** 3),
        (tb.Gaussian(1.0).subsampled(0.0) * 2, 0.0, 0.0, 1.0),
        (tb.Composition(), 0.0, 0.0, 1.0),
    ):
        found = run.risk(epsilon).exceedance
        assert found.lower <= above * (1 + 1e-12)
        assert found.upper >= at * (1 - 1e-12)
        assert found.lower >= above * (1 - 1e-3)
        beyond = run.risk(epsilon + 1e-9).exceedance
        assert beyond.lower <= above * (1 + 1e-12)
        assert beyond.upper <= above * (1 + 1e-3)


# distribution functions take their time, at losses that hardly any output has
@pytest.mark.one_in(6)
@each_case
def test_a_rate_of_hardly_any_false_positives_is_answered(case: Case) -> None:
    run = case.mechanism * 2
    lost = run.delta(math.inf)  # all that may be taken without any false positive
    many = case.name == "shuffled-reports-of-many"  # takes minutes for each of the tiny rates
    missed = run.tradeoff([0.0, 1.0] if many else [0.0, 5e-324, 1e-300, 1.0])
    assert missed[-1] == Bounds(0.0, 0.0)
    for bounds in missed:
        assert bounds.width <= 1e-4 * (1 + 1e-9)
        assert bounds.lower <= 1 - lost.lower + 1e-15
    assert missed[0].upper >= 1 - lost.upper - 1e-15
    for one, two in itertools.pairwise(missed):
        assert two.lower <= one.upper  # more false alarms, fewer misses
    if many:
        return
    tpr = most_true_positives(run.engine, 0.0, 1e-4).bounds
    assert tpr.lower <= lost.upper
    assert tpr.upper >= lost.lower


@pytest.mark.parametrize("fpr", [1e-280, 1e-150, 1e-20])
def test_a_tiny_rate_of_false_positives_has_its_relative_gap(fpr: float) -> None:
    run = tb.Laplace(1.0) * 3
    with ctx.workprec(200):
        found = most_true_positives(run.engine, fpr, 1e-4).bounds
        # a test of the largest loss alone, whose Q-mass is above all of these rates
        assert inside(found, ball(fpr) * arb(3).exp())
    assert found.relative_gap <= 1e-4 or found.upper <= 1e-100
    if fpr >= 1e-20:
        assert found.relative_gap <= 1e-4


@pytest.mark.parametrize("fpr", [0.003, 0.1, 0.4])
def test_a_test_that_begins_where_another_one_ended_is_as_true(fpr: float) -> None:
    """Wherever it begins, and however closely it was asked before."""
    other = BestTest((tb.HistogramPair((9.0, 1.0), (1.0, 9.0)) * 3).engine, fpr)
    other.answer(1e-6)
    for p, q in (((7.0, 2.0, 1.0), (5.0, 1.0, 4.0)), ((1.0, 1000.0, 7.0), (2.0, 900.0, 31.0))):
        truth = max(exact_tpr(seen, Fraction(fpr)) for seen in both_ways(p, q, 2))
        run = (tb.HistogramPair(p, q) * 2).engine
        for near in (None, other, BestTest(run, fpr)):
            test = BestTest(run, fpr, near)
            for rtol in (0.3, 1e-2, 1e-6, 1e-3):
                answer = test.answer(rtol)
                assert answer.reached
                assert Fraction(answer.bounds.lower) <= truth <= Fraction(answer.bounds.upper)
                assert answer.bounds.relative_gap <= rtol
                # a target: on one side of it, or as close
                for target in (0.5 * float(truth), 2.0 * float(truth), float(truth)):
                    sided = test.answer(rtol, target).bounds
                    assert Fraction(sided.lower) <= truth <= Fraction(sided.upper)
                    assert sided.decides(target) or sided.relative_gap <= rtol


# ------------------------------------------------------------------- exact arithmetic


def holds(bounds: Bounds, truth: Fraction, gap: float) -> None:
    assert Fraction(bounds.lower) <= truth <= Fraction(bounds.upper)
    assert bounds.upper - bounds.lower <= gap * bounds.upper


PAIRS: list[tuple[tuple[float, ...], tuple[float, ...], int]] = [
    ((3.0, 2.0, 1.0), (1.0, 2.0, 3.0), 2),
    ((8.0, 5.0, 2.0, 1.0), (6.0, 5.0, 4.0, 2.0), 3),
    ((0.0, 5.0, 4.0, 1.0), (1.0, 2.0, 6.0, 0.0), 2),
    ((1.0, 1000.0, 7.0), (2.0, 900.0, 31.0), 3),
    ((0.5, 0.25, 0.25), (0.25, 0.25, 0.5), 20),
]


def both_ways(p: tuple[float, ...], q: tuple[float, ...], runs: int) -> list[Composed]:
    outputs: Outputs = normalised(p, q)
    return [Composed.of([one] * runs) for one in (outputs, reversed_(outputs))]


def exact_tpr(seen: Composed, fpr: Fraction) -> Fraction:
    """Neyman and Pearson: the outputs with the largest ratios first, the last one by a coin."""
    left, caught = fpr, Fraction(0)
    ordered = sorted(seen.masses, key=lambda m: Fraction(m[0], m[1]) if m[1] else Fraction(10**99))
    for a, b in reversed(ordered):
        share = Fraction(b, seen.q_total)
        taken = min(Fraction(1), left / share) if share else Fraction(1)
        caught += taken * Fraction(a, seen.p_total)
        left -= taken * share
    return caught


def exact_exceedance(seen: Composed, epsilon: float) -> Fraction:
    low, high = exp_ends(epsilon)
    above = [
        Fraction(sum(a for a, b in seen.masses if a * seen.q_total > e * b * seen.p_total))
        for e in (low, high)
    ]
    assert above[0] == above[1], "epsilon is a loss itself"
    return above[0] / seen.p_total


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("p", "q", "runs"), PAIRS)
def test_small_pairs_against_exact_arithmetic(
    p: tuple[float, ...], q: tuple[float, ...], runs: int
) -> None:
    run, truth = tb.HistogramPair(p, q) * runs, both_ways(p, q, runs)
    for epsilon, fpr, prior in (
        (0.1, 0.01, 0.5), (0.3, 1e-7, 0.25), (0.9, 0.3, 0.75), (2.3, 0.99, 0.125)
    ):  # fmt: skip
        risk = run.risk(epsilon, fpr=fpr, prior=prior)
        holds(risk.advantage, max(x.delta_at(Fraction(1)) for x in truth), 1e-4)
        holds(risk.tpr, max(exact_tpr(x, Fraction(fpr)) for x in truth), 1e-4)
        odds = (1 - Fraction(prior)) / Fraction(prior)
        least = min(Fraction(prior) * (1 - x.delta_at(odds)) for x in truth)
        holds(risk.bayes_risk, least, 1e-4)
        holds(risk.exceedance, max(exact_exceedance(x, epsilon) for x in truth), 1e-4)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("p", "q", "runs"), PAIRS)
def test_mu_is_the_smallest_by_exact_arithmetic(
    p: tuple[float, ...], q: tuple[float, ...], runs: int
) -> None:
    slack = 0.25 if 0.0 in p + q else 1e-6
    mu = (tb.HistogramPair(p, q) * runs).risk(1.0, slack=slack).mu
    assert mu.relative_gap <= 1e-3
    truth = both_ways(p, q, runs)
    with ctx.workprec(128):
        enough, missed = ball(mu.upper), False
        less = ball(mu.lower) * (1 - ball(1e-3))
        for epsilon in [*(i / 4000 for i in range(400)), *(i / 80 for i in range(8, 480))]:
            for seen in truth:
                low, high = seen.delta(epsilon)
                assert ball(high) <= gaussian_delta(enough, epsilon) + ball(slack)
                missed = missed or ball(low) > gaussian_delta(less, epsilon) + ball(slack)
    assert missed


# ------------------------------------------------------------------------------- laws

NAMES = ("advantage", "tpr", "bayes_risk", "mu", "delta", "exceedance", "belief")
# every third one, without those that are slow: distribution functions, a delta of nearly 1
some = pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param(
            case.mechanism,
            id=case.name,
            # two pairs take twice as long
            marks=slow_unless_core(case) if case.mechanism.attained is None else pytest.mark.slow,
        )
        for case in CASES[::3]
        if "additive" not in case.name and "very-narrow" not in case.name
    ],
)


def asked(run: tb.Composition, **questions: float) -> tb.Risk:
    return run.risk(**{"epsilon": 0.7, "fpr": 0.05, "prior": 0.3, "slack": 1e-6} | questions)


@pytest.mark.one_in(4)
@some
def test_what_holds_for_every_mechanism(mechanism: tb.Mechanism) -> None:
    run = mechanism * 2
    risk = asked(run, rtol=2e-2)
    assert risk.advantage.overlaps(run.total_variation(1e-2))  # delta(0)
    assert risk.delta.overlaps(run.delta(0.7, 1e-2))
    assert risk.exceedance.upper >= risk.delta.lower  # each output counts in full
    assert risk.exceedance.lower <= 1.0
    # from coin tosses to certainty
    assert risk.tpr.lower >= 0.05
    assert risk.tpr.upper <= 1.0
    assert risk.tpr.lower <= 0.05 + risk.advantage.upper
    assert risk.bayes_risk.lower >= 0.0
    assert risk.bayes_risk.upper <= 0.3
    assert 0.3 <= risk.belief.lower <= risk.belief.upper <= 1.0
    # delta(eps) alone: every eps bounds what a test can do
    bound = risk.delta.upper + math.exp(0.7) * 0.05
    assert risk.tpr.lower <= bound * (1 + 1e-12)
    # one minus the trade-off function
    missed = run.tradeoff([0.05], rtol=1e-2)[0]
    assert Bounds(1 - missed.upper - 1e-15, 1 - missed.lower + 1e-15).overlaps(risk.tpr)
    # one Gaussian of sensitivity mu is at least as revealing, but for the slack
    if 0.0 < risk.mu.upper < 100.0:
        one = tb.Gaussian(sigma=1.0, sensitivity=risk.mu.upper) * 1
        assert risk.advantage.lower <= one.delta(0.0).upper + 1e-6
        assert risk.delta.lower <= one.delta(0.7).upper + 1e-6
        assert risk.tpr.lower <= asked(one).tpr.upper + 1e-6


@pytest.mark.one_in(6)
@some
def test_more_runs_are_more_risk_and_more_of_a_question_is_more_or_less(
    mechanism: tb.Mechanism,
) -> None:
    one, two = asked(mechanism * 1, rtol=2e-2), asked(mechanism * 3, rtol=2e-2)
    for name in ("advantage", "tpr", "mu", "delta"):
        assert getattr(one, name).lower <= getattr(two, name).upper, name
    assert two.bayes_risk.lower <= one.bayes_risk.upper
    further = asked(mechanism * 3, epsilon=1.1, fpr=0.2, prior=0.4, slack=1e-4, rtol=2e-2)
    assert two.tpr.lower <= further.tpr.upper
    assert further.delta.lower <= two.delta.upper
    assert further.exceedance.lower <= two.exceedance.upper
    assert further.mu.lower <= two.mu.upper
    assert two.belief.upper < further.belief.lower


@pytest.mark.slow
def test_the_two_masses_and_the_line_integral_agree() -> None:
    run = STEP * 300
    beside = run + tb.Laplace(1e9)  # no transform, and at most 1e-9 of everything
    one, two = run.risk(0.77), beside.risk(0.77)
    assert (run.explain(epsilon=0.77).engine, beside.explain(epsilon=0.77).engine) == (
        "saddle-point",
        "buckets",
    )
    for name in ("advantage", "tpr", "bayes_risk", "delta", "exceedance"):
        first, second = getattr(one, name), getattr(two, name)
        assert Bounds(first.lower - 3e-9, first.upper + 3e-9).overlaps(second), name
        assert second.relative_gap <= (1e-4 if name != "exceedance" else 1e-2), name


@pytest.mark.parametrize("times", [0, 3])
def test_nothing_tells_nothing(times: int) -> None:
    risk = (tb.Gaussian(1.0).subsampled(0.0) * times).risk(0.5)
    assert risk.advantage == risk.delta == risk.exceedance == risk.mu == Bounds(0.0, 0.0)
    assert risk.tpr.lower == 0.01
    assert risk.tpr.relative_gap <= 1e-14
    assert risk.bayes_risk.upper == 0.5
    assert risk.bayes_risk.relative_gap <= 1e-14


def test_the_ends_of_the_questions() -> None:
    run = tb.HistogramPair((1.0, 4.0, 3.0), (0.0, 3.0, 5.0)) * 2
    alone = 1 - Fraction(7, 8) ** 2
    holds(run.risk(0.5, fpr=0.0).tpr, alone, 1e-12)
    tiny = run.risk(0.5, fpr=1e-300).tpr
    holds(tiny, alone, 1e-4)
    assert run.risk(0.5, fpr=1.0).tpr == Bounds(1.0, 1.0)
    holds(run.risk(50.0).exceedance, alone, 1e-12)
    holds(run.risk(50.0).delta, alone, 1e-12)
    # someone who is nearly sure beforehand is hardly ever wrong
    assert run.risk(0.5, prior=1e-9).bayes_risk.upper <= 1e-9
    assert run.risk(0.5, prior=1 - 1e-9).bayes_risk.upper <= 1.1e-9


def test_where_hardly_anything_is_hidden_the_ends_are_wide_but_true() -> None:
    risk = (tb.Gaussian(0.02) * 1).risk(1.0)
    assert risk.bayes_risk.lower <= 1e-12
    assert risk.mu.lower <= 50.0
    assert risk.tpr.lower >= 1 - 1e-9


@pytest.mark.slow
def test_a_gap_out_of_reach_is_refused_with_the_one_that_was_reached() -> None:
    run = STEP * 1000
    with pytest.raises(tb.PrecisionError) as caught:
        most_true_positives(run.engine, 0.01, 1e-15).required()
    message = str(caught.value)
    asked = "the true-positive rate at a false-positive rate of 0.01"
    assert message.startswith(f"{asked} is in [0.02913")
    assert "relative gap 1e-15 was not reached" in message
    rough = most_true_positives(run.engine, 0.01, 1e-3).bounds
    assert rough.overlaps(Bounds(caught.value.lower, caught.value.upper))


def test_what_no_finite_number_of_eps_can_prove_is_not_said() -> None:
    run = tb.DiscreteGaussian(4.0) * 5
    whole, most = (gaussian_mu_bounds(run.engine, slack, 1e-4) for slack in (0.0, 1e-10))
    assert whole == Bounds(most.lower, math.inf)
    assert most.relative_gap <= 1e-4


# -------------------------------------------------------------------------- the value


def test_a_risk_is_a_value_that_prints_and_becomes_json() -> None:
    risk = (STEP * 1000).risk(2.0, fpr=0.02, prior=0.1)
    assert risk == (STEP * 1000).risk(2.0, fpr=0.02, prior=0.1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        risk.epsilon = 1.0  # type: ignore[misc]
    table = json.loads(json.dumps(risk.to_dict()))
    asked = {"epsilon": 2.0, "fpr": 0.02, "prior": 0.1, "slack": 1e-10}
    answers = {name: getattr(risk, name).to_dict() for name in NAMES}
    assert table == asked | answers
    lines = str(risk).splitlines()
    assert len(lines) == len(NAMES)
    for name, line in zip(NAMES, lines, strict=True):
        assert str(getattr(risk, name)) in line
    assert {line.index("[") for line in lines} == {16}


NOT_NUMBERS: list[Any] = [math.nan, None, "1", True, 1j, [1.0]]


@pytest.mark.parametrize(
    ("name", "must", "values"),
    [
        ("epsilon", "be a finite number >= 0", [-1.0, math.inf]),
        ("fpr", "be in [0, 1]", [-0.1, 1.1]),
        ("prior", "be in (0, 1)", [0.0, 1.0]),
        ("slack", "be in [0, 1]", [-1e-9, 2.0]),
        ("rtol", "be ", [0.0, 1.0]),
    ],
)
def test_refused_questions(name: str, must: str, values: list[Any]) -> None:
    for value in [*NOT_NUMBERS, *values]:
        with pytest.raises(tb.ParameterError) as caught:
            (STEP * 3).risk(**{"epsilon": 1.0, name: value})
        assert str(caught.value).startswith(f"{name} must {must}")
        assert str(caught.value).endswith(f", got {value!r}")


def test_rates_and_masses_of_one_curve_are_ordered() -> None:
    losses = (tb.Laplace(3.0) * 5).engine
    rates = [most_true_positives(losses, a, 1e-4).bounds for a in (1e-6, 1e-3, 0.1, 0.5, 0.9)]
    masses = [exceedance_bounds(losses, e, 1e-2) for e in (-1.0, -0.2, 0.05, 0.5, 1.0)]
    for less, more in [*itertools.pairwise(rates), *itertools.pairwise(reversed(masses))]:
        assert less.lower <= more.upper
        assert less.upper < more.upper


@pytest.mark.slow
def test_a_risk_of_rare_steps_makes_few_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes up to seconds: only where delta asks for most are there close ones."""
    made = list[None]()

    class Counted(LevelProfile):
        def __init__(self, parts: Parts, plan: LevelPlan) -> None:
            made.append(None)
            super().__init__(parts, plan)

    monkeypatch.setattr(refine, "LevelProfile", Counted)
    rates = [1e-5, 2e-5, 3e-5, 4e-5, 5e-5]
    whole = tb.compose([tb.Gaussian(0.8 + 1e4 * q).subsampled(q) * 100 for q in rates])
    found = whole.risk(0.1, fpr=0.1)
    assert found.mu.relative_gap <= 1e-4
    assert found.exceedance.relative_gap <= 1e-2
    assert 0 < len(made) <= 25
