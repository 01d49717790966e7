"""Each guard of the adapter is taken away once, and a truth is lost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import dp_event as events
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as plds
from tests.adapters.test_dp_accounting import response
from tests.exact import Composed
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.adapters import dp_accounting as adapter
from tightbudget.adapters.dp_accounting import events as converters
from tightbudget.mechanisms import mixture_of_gaussians

ADD = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
ONE = dp.NeighboringRelation.REPLACE_ONE
SPECIAL = dp.NeighboringRelation.REPLACE_SPECIAL


def delta(event: Any, relation: Any, epsilon: float) -> tb.Bounds:
    return adapter.from_dp_event(event, relation).delta(epsilon, rtol=1e-7)


def is_about(event: Any, relation: Any, epsilon: float, truth: float) -> bool:
    got = delta(event, relation, epsilon)
    return got.lower * (1 - 1e-9) <= truth <= got.upper * (1 + 1e-9)


def a_replaced_record_moves_a_sum_by_2() -> bool:
    return is_about(events.GaussianDpEvent(1.0), ONE, 1.0, 0.50986166005470)


def a_sample_with_one_replaced_is_two_mixtures() -> bool:
    event = events.PoissonSampledDpEvent(0.8, events.GaussianDpEvent(2.0))
    got = adapter.from_dp_event(event, ONE).delta(1.0)
    return got.lower <= 0.05808665654484252 <= got.upper


def a_sample_with_one_added_is_a_sample() -> bool:
    event = events.PoissonSampledDpEvent(0.8, events.GaussianDpEvent(1.0))
    return is_about(event, ADD, 1.0, 0.08169517865853658)


def so_many_runs_are_so_many() -> bool:
    event = events.SelfComposedDpEvent(events.GaussianDpEvent(math.sqrt(3.0)), 3)
    return is_about(event, ADD, 1.0, 0.1269367375066439)


def several_gaussians_on_a_sample_are_stronger() -> bool:
    event = events.PoissonSampledDpEvent(
        0.8, events.SelfComposedDpEvent(events.GaussianDpEvent(2.0), 4)
    )
    return is_about(event, ADD, 1.0, 0.08169517865853658)


def the_special_answer_is_uniform() -> bool:
    event = events.RandomizedResponseDpEvent(0.3, 10)
    there = Composed.of([response(0.3, 10, SPECIAL)])
    back = Composed.of([tuple((b, a) for a, b in response(0.3, 10, SPECIAL))])
    truth = float(max(there.delta(0.5)[0], back.delta(0.5)[0]))
    return is_about(event, SPECIAL, 0.5, truth)


def a_tree_has_four_levels() -> bool:
    event = events.SingleEpochTreeAggregationDpEvent(2.0, 8)
    return is_about(event, SPECIAL, 1.0, 0.1269367375066439)


def an_exported_distribution_is_above() -> bool:
    mechanism = tb.Gaussian(1.0)
    pld = adapter.to_pld(mechanism, 0.25)
    asked = [0.25 * i for i in range(9)]
    return all(pld.get_delta_for_epsilon(e) >= (mechanism * 1).delta(e).upper for e in asked)


def both_directions_are_exported() -> bool:
    mechanism = tb.Gaussian(1.0).subsampled(0.3)
    pld = adapter.to_pld(mechanism, 0.05)
    # negative losses are the other direction's positive ones
    back = pld._pmf_add.get_delta_for_epsilon(-0.5)
    exact = 1 - math.exp(-0.5) + math.exp(-0.5) * (mechanism * 1).delta(0.5).lower
    return bool(back >= exact - 1e-12)


def masses_below_0_are_no_discount() -> bool:
    pmf = pld_pmf.DensePLDPmf(1.0, 0, np.array([0.6, 0.4, -1e-4]), 1e-4, True)
    got = adapter.from_pld(plds.PrivacyLossDistribution(pmf)).delta(0.5)
    return got.upper >= 0.4 * (1 - math.exp(-0.5)) + 1e-4 - 1e-12


def the_other_direction_comes_in() -> bool:
    low, high = ({0: 1.0 - p, 1: p} for p in (0.2, 0.4))
    pmfs = [pld_pmf.SparsePLDPmf(table, 1.0, 0.0, True) for table in (low, high)]
    got = adapter.from_pld(plds.PrivacyLossDistribution(*pmfs)).delta(0.5)
    return got.upper >= 0.4 * (1 - math.exp(-0.5)) - 1e-12


def what_is_too_much_is_taken_from_the_left() -> bool:
    table = tb.LossTable(1.0, (0, (0.6, 0.4005), 0.0))
    return (table * 1).delta(0.5).upper >= 0.4005 * (1 - math.exp(-0.5)) * (1 - 1e-12)


def no_q_mass_is_above_1() -> bool:
    pair = tb.LossTable(1.0, (-1, (0.9, 0.0, 0.1), 0.0)).pair(tb.mechanisms.Direction.REMOVE)
    return math.fsum(pair.atoms().q.lower) <= 1.0


def a_mixture_is_cut_below_its_loss() -> bool:
    pair = tb.MixtureOfGaussians(1.0, (0.0, 1.0, 2.0), (0.5, 0.25, 0.25)).pair(
        tb.mechanisms.Direction.REMOVE
    )
    assert isinstance(pair, mixture_of_gaussians.MixturePair)
    losses = np.linspace(-0.5, 3.0, 101)
    return bool(np.all(pair._loss(pair._cuts(losses))[1] <= losses))


def a_mixture_is_no_tighter_than_its_bins() -> bool:
    # what is left of an edge's cut by a hair has a smaller loss: w may exceed e^length by it
    pair = tb.MixtureOfGaussians(1e-3, (1.0, 1.0 + 1e-12), (0.5, 0.5)).pair(
        tb.mechanisms.Direction.REMOVE
    )
    edges = np.array([4.9e5, 4.9e5 + 1e-12, 5e5])
    bins = pair.bins(edges, np.zeros(3))
    assert bins is not None
    return bool(bins.w.upper[1] > 1.0 + 2e-12)


MUTATIONS = [
    Without(
        "a replaced record moves a sum as an added one",
        {
            "replaced-record-moves-twice": (
                "return 1.0 if relation is Neighbouring.REPLACE_ONE else 1.0"
            )
        },
        a_replaced_record_moves_a_sum_by_2,
    ),
    Without(
        "half the contribution of a sampled record",
        {
            "half-sampled-contribution": (
                "sizes, chances = [0.0, step.sensitivity / 4], [Fraction(0), Fraction(1)]"
            )
        },
        a_sample_with_one_replaced_is_two_mixtures,
    ),
    Without(
        "a replaced record is only there or not",
        {
            "replaced-record-mirrored": (
                "mixed = MixtureOfGaussians(step.sigma, sizes, weights, relation=relation)"
            )
        },
        a_sample_with_one_replaced_is_two_mixtures,
    ),
    Without(
        "the wrong sampling rate",
        {"sampling-rate": "return [(_single(inner, relation).subsampled(q * q), 1)]"},
        a_sample_with_one_added_is_a_sample,
    ),
    Without(
        "the count is forgotten",
        {
            "self-composition-count": (
                "return [(step, runs) for step, runs in steps_of(event.event, relation)]"
            )
        },
        so_many_runs_are_so_many,
    ),
    Without(
        "the count on one sample is forgotten",
        {
            "count-on-one-sample": (
                "square = sum((1 * (Fraction(g.sensitivity) / Fraction(g.sigma)) ** 2 "
                "for g, runs in gaussians), Fraction(0))"
            )
        },
        several_gaussians_on_a_sample_are_stronger,
    ),
    Without(
        "the special record answers truly",
        {
            "special-record-answers-randomly": (
                "return [(HistogramPair(weights, (k - 1, 1), relation=relation), 1)]"
            )
        },
        the_special_answer_is_uniform,
    ),
    Without(
        "a level of the tree is forgotten",
        {
            "every-level-of-tree": (
                "return [(step, most.bit_length() - 1) for step, _ in "
                "_gaussian(gaussian, relation)]"
            )
        },
        a_tree_has_four_levels,
    ),
    Without(
        "an exported epsilon has a margin",
        {"epsilon-margin": "delta = read(epsilon * (1 + 1e3 * _MARGIN), _GAP).upper"},
        an_exported_distribution_is_above,
    ),
    Without(
        "an exported distribution has no margin",
        {
            "epsilon-margin": "delta = read(epsilon * (1 + 1e3 * _MARGIN), _GAP).upper",
            "delta-margin": "deltas.append(min(1.0, delta))",
        },
        an_exported_distribution_is_above,
    ),
    Without(
        "the other direction's losses are its own",
        {"own-direction-losses": "left = right"},
        both_directions_are_exported,
        slow=True,
    ),
    Without(
        "masses below 0 count",
        {
            "masses-not-negative": (
                "return pmf._lower_loss, np.append(pmf._probs[:-1] + pmf._probs[-1], "
                "0.0), pmf._infinity_mass"
            )
        },
        masses_below_0_are_no_discount,
    ),
    Without(
        "one direction comes in",
        {
            "both-directions-come-in": (
                "add = None if True else _table_of(pld._pmf_add.to_dense_pmf())"
            )
        },
        the_other_direction_comes_in,
    ),
    Without(
        "what is too much is taken from all",
        {"excess-from-first-cells": "return exact(p / (np.sum(p) + infinity))"},
        what_is_too_much_is_taken_from_the_left,
    ),
    Without(
        "Q-mass above 1 stays",
        {"q-mass-at-most-1": "if whole.lower[0] > 9.0:"},
        no_q_mass_is_above_1,
    ),
    Without(
        "cuts are made where the loss may be above",
        {"cuts-below-loss": "left = right"},
        a_mixture_is_cut_below_its_loss,
    ),
    Without(
        "what lies behind a cut is forgotten",
        {"behind-cut-counted": "most = exp_enclosure(lengths, 2 * UNIT * lengths).upper"},
        a_mixture_is_no_tighter_than_its_bins,
    ),
]


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """A changed function takes the place of the real one for its type of event, too."""
    kept = dict(converters._steps.registry)
    yield
    for kind, function in kept.items():
        converters._steps.register(kind, function)


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_a_guard_that_is_taken_away_is_missed(
    mutation: Without, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_truth(monkeypatch, mutation)
