"""Privacy loss distributions of dp-accounting: what comes in is kept, what goes out is above."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as plds
from tests.exact import exp_ends

import tightbudget as tb
from tightbudget.adapters.dp_accounting import from_pld, to_pld

COMPOSITIONS = [
    tb.Composition(),
    tb.Gaussian(1.0) * 1,
    tb.Gaussian(0.05) * 1,
    tb.Gaussian(1.0).subsampled(0.1) * 30,
    tb.Laplace(1.0) * 5,
    tb.RandomizedResponse(0.75) * 3,
    tb.ApproximateDP(1.0, 0.1) * 2,
    tb.ApproximateDP(0.0, 1.0) * 1,
    tb.HistogramPair((3, 2, 1), (1, 2, 3)) * 4,
    tb.HistogramPair((0, 5, 3), (1, 5, 0)) * 1,
    tb.LossTable(1.0, (1, (1.0,), 0.0)) * 1,
    tb.LossTable(0.5, (-1, (0.2, 0.2, 0.6), 0.0), (1, (0.6, 0.4), 0.0)) * 2,
]
PLDS = {
    "gaussian": lambda: plds.from_gaussian_mechanism(1.0, value_discretization_interval=1e-2),
    "composed": lambda: plds.from_gaussian_mechanism(
        2.0, value_discretization_interval=1e-2
    ).self_compose(10),
    "sampled": lambda: plds.from_laplace_mechanism(1.0, sampling_prob=0.1),
    "optimistic": lambda: plds.from_gaussian_mechanism(
        1.0, value_discretization_interval=1e-2, pessimistic_estimate=False, use_connect_dots=False
    ),
    "response": lambda: plds.from_randomized_response(
        0.3, 4, neighboring_relation=plds.NeighborRel.REPLACE_SPECIAL
    ),
    "nothing": plds.identity,
}


def said(pmf: Any, epsilon: float) -> Fraction:
    """delta(epsilon) of its masses >= 0, in rational arithmetic within 1e-60."""
    pmf = pmf.to_dense_pmf()
    step, total = Fraction(pmf._discretization), Fraction(pmf._infinity_mass)
    ratio = exp_ends(-step)[0]
    discount = None
    for i in np.flatnonzero(pmf._probs > 0):
        loss = (pmf._lower_loss + int(i)) * step
        if loss > Fraction(epsilon):
            # the first weight by itself, the others a step further each
            if discount is None:
                discount, last = exp_ends(Fraction(epsilon) - loss)[0], i
            discount, last = discount * ratio ** int(i - last), i
            discount = Fraction(round(discount * 2**300), 2**300)
            total += Fraction(float(pmf._probs[i])) * (1 - discount)
    return total


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PLDS)
def test_what_comes_in_is_what_its_masses_say(name: str) -> None:
    pld = PLDS[name]()
    ours = from_pld(pld)
    pmfs = [pld._pmf_remove, pld._pmf_add]
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        exact = max(said(pmf, epsilon) for pmf in pmfs)
        got = ours.delta(epsilon)
        assert Fraction(got.upper) >= exact - Fraction(1, 10**80)
        assert Fraction(got.lower) <= exact + Fraction(1, 10**14)
        assert got.relative_gap <= 1e-4
        assert got.upper == pytest.approx(pld.get_delta_for_epsilon(epsilon), rel=1e-4, abs=1e-14)


def test_what_comes_in_composes() -> None:
    one = plds.from_laplace_mechanism(1.0, sampling_prob=0.1, value_discretization_interval=1e-3)
    ours, theirs = from_pld(one) * 10, one.self_compose(10)
    for epsilon in (0.1, 0.5):
        assert ours.delta(epsilon).upper == pytest.approx(
            theirs.get_delta_for_epsilon(epsilon), rel=1e-4
        )


def test_masses_below_0_count_as_0() -> None:
    pmf = pld_pmf.DensePLDPmf(1.0, -1, np.array([0.5, -1e-12, 0.4]), 0.1, True)
    kept = pld_pmf.DensePLDPmf(1.0, -1, np.array([0.5, 0.0, 0.4]), 0.1, True)
    assert from_pld(plds.PrivacyLossDistribution(pmf)) == from_pld(
        plds.PrivacyLossDistribution(kept)
    )


@functools.cache
def gone_out(composition: tb.Composition) -> Any:
    return to_pld(composition, 1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("composition", COMPOSITIONS, ids=str)
def test_what_goes_out_is_never_below(composition: tb.Composition) -> None:
    pld = gone_out(composition)
    lost = composition.delta(math.inf).upper
    # on the points, between them and beyond all of them
    asked = [0.0, 0.05, 0.1, 0.3, 0.77, 1.0, 1.33, 2.0, 3.0, 5.5, 20.0]
    for epsilon in asked:
        exact = composition.delta(epsilon, 1e-6)
        found = pld.get_delta_for_epsilon(epsilon)
        assert found >= exact.lower
        # and near it, but for what counts as infinite
        wide = 0.02 if composition.runs else 0.0
        assert found <= composition.delta(max(0.0, epsilon - wide)).upper * (1 + 1e-6) + 1e-14
    for delta in (1e-3, 1e-9):
        if delta > lost:
            assert pld.get_epsilon_for_delta(delta) >= composition.epsilon(delta).lower - 1e-12


# of the tables, no direction is the other one with P and Q exchanged
@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        tb.Gaussian(1.0).subsampled(0.1),
        tb.LossTable(0.5, (1, (1.0,), 0.0)),
        tb.LossTable(0.1, (-1, (0.2, 0.2, 0.6), 0.0), (0, (0.6, 0.4), 0.0)),
        tb.LossTable(0.1, (1, (1.0,), 0.0)).subsampled(0.5),
    ],
    ids=str,
)
def test_what_goes_out_can_be_composed_there(mechanism: tb.Mechanism) -> None:
    theirs = to_pld(mechanism, 1e-2).self_compose(20)
    for epsilon in (0.0, 0.5, 1.0):
        exact = (mechanism * 20).delta(epsilon)
        found = theirs.get_delta_for_epsilon(epsilon)
        assert exact.lower - 1e-12 <= found <= exact.upper * 1.05


@pytest.mark.slow
@pytest.mark.parametrize("composition", COMPOSITIONS[1:], ids=str)
def test_there_and_back_nothing_is_lost(composition: tb.Composition) -> None:
    back = from_pld(gone_out(composition))
    for epsilon in (0.0, 0.7, 2.0):
        assert back.delta(epsilon).upper >= composition.delta(epsilon, 1e-6).lower


@pytest.mark.slow
def test_both_directions_go_out() -> None:
    both = to_pld(tb.Gaussian(1.0).subsampled(0.1), 0.05)
    assert not both._symmetric
    assert both._pmf_add.get_delta_for_epsilon(0.2) == 0.0  # its losses end at -ln(0.9)
    assert both._pmf_remove.get_delta_for_epsilon(0.2) > 0.009
    assert to_pld(tb.Gaussian(1.0), 1e-2)._symmetric


def test_of_choices_the_pair_goes_out_that_dominates_all_of_them() -> None:
    runs, one = tb.ExponentialMechanism(0.5) * 5, tb.ExponentialMechanism(0.5)
    together = to_pld(runs, 1e-2).get_epsilon_for_delta(1e-3)
    exact = runs.epsilon(1e-3)
    assert exact.lower <= together <= exact.upper + 0.01
    # one by one, each run has a pair of its own, which is less close
    assert together < to_pld(one, 1e-2).self_compose(5).get_epsilon_for_delta(1e-3)


def test_refusals() -> None:
    with pytest.raises(tb.ParameterError, match="pld must be a dp_accounting PrivacyLossDist"):
        from_pld(0.5)
    bad = plds.PrivacyLossDistribution(pld_pmf.SparsePLDPmf({0: 0.5}, 1.0, 0.1, True))
    with pytest.raises(tb.ParameterError, match="masses and infinity must sum to 1"):
        from_pld(bad)
    with pytest.raises(tb.ParameterError, match="composition must be a mechanism or a comp"):
        to_pld("gaussian")  # type: ignore[arg-type]
    with pytest.raises(tb.ParameterError, match="value_discretization_interval must be a finite"):
        to_pld(tb.Gaussian(1.0), 0.0)
