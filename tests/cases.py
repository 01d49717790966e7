"""The one list of mechanisms: every law is checked on every case, in both directions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tightbudget.mechanisms import (
    Additive,
    ApproximateDP,
    ClippedNoise,
    ClippedSum,
    DiscreteGaussian,
    DiscreteLaplace,
    Either,
    ExponentialMechanism,
    FromCurve,
    Gaussian,
    HistogramPair,
    Laplace,
    Logistic,
    LossTable,
    Mechanism,
    MixtureOfGaussians,
    RandomizedResponse,
    ShuffledReports,
    Staircase,
    TruncatedGaussian,
    TruncatedLaplace,
)
from tightbudget.trials import Binomial, NegativeBinomial, Poisson


@dataclass(frozen=True)
class Case:
    name: str
    mechanism: Mechanism


CASES: list[Case] = [
    Case("gaussian-1", Gaussian(1.0)),
    Case("gaussian-wide", Gaussian(100.0)),
    Case("gaussian-very-wide", Gaussian(5000.0)),
    Case("gaussian-narrow", Gaussian(0.3)),
    Case("gaussian-very-narrow", Gaussian(0.02)),
    Case("gaussian-sensitive", Gaussian(4.0, sensitivity=3.0)),
    Case("laplace-1", Laplace(1.0)),
    Case("laplace-wide", Laplace(200.0)),
    Case("laplace-narrow", Laplace(0.01)),
    Case("laplace-sensitive", Laplace(2.0, sensitivity=5.0)),
    Case("logistic", Logistic(3.0, sensitivity=2.0)),
    Case("logistic-wide", Logistic(200.0)),
    Case("logistic-narrow", Logistic(0.01)),
    Case("truncated-gaussian-1", TruncatedGaussian(1.0, bound=3.0)),
    Case("truncated-gaussian-wide", TruncatedGaussian(282.8427, bound=2500.0)),
    Case("truncated-gaussian-short", TruncatedGaussian(1.0, bound=0.6)),
    Case("truncated-gaussian-far", TruncatedGaussian(0.1, bound=3.0)),
    Case("truncated-laplace-1", TruncatedLaplace(1.0, bound=3.0)),
    Case("truncated-laplace-wide", TruncatedLaplace(200.0, bound=2500.0)),
    Case("truncated-laplace-short", TruncatedLaplace(1.0, bound=0.6)),
    Case("truncated-laplace-even", TruncatedLaplace(1.0, bound=1.0)),
    Case("additive-logistic", Additive("logistic", kwds={"scale": 3.0})),
    Case("additive-normal", Additive("norm", kwds={"scale": 2.0})),
    Case("additive-laplace", Additive("laplace", kwds={"scale": 2.0})),
    Case("additive-gumbel", Additive("gumbel_r", kwds={"scale": 4.0})),
    Case("additive-exponential", Additive("expon", kwds={"scale": 4.0})),
    Case("additive-gamma", Additive("gamma", args=(2.0,), kwds={"scale": 4.0})),
    Case("discrete-gaussian-1", DiscreteGaussian(1.0)),
    Case("discrete-gaussian-wide", DiscreteGaussian(40.0, sensitivity=3)),
    Case("discrete-gaussian-very-wide", DiscreteGaussian(5e4, sensitivity=2000)),
    Case("discrete-laplace-1", DiscreteLaplace(1.0)),
    Case("discrete-laplace-wide", DiscreteLaplace(10.0, sensitivity=7)),
    Case("clipped-laplace", ClippedNoise(20.0, 4.0, shift=2)),
    Case("clipped-laplace-both", ClippedNoise(20.0, 4.0, reading="clipped")),
    Case("clipped-gaussian", ClippedNoise(30.0, 5.0, noise="gaussian")),
    Case("clipped-gaussian-both", ClippedNoise(3.0, 5.0, noise="gaussian", reading="clipped")),
    Case("clipped-sum", ClippedSum(20.0, 4.0, 10.0, 2.0, shift=2)),
    Case("clipped-sum-both", ClippedSum(3.0, 5.0, 1.5, 2.5, "gaussian", 2, 1, "clipped")),
    Case("shuffled", Gaussian(1.0).shuffled(100)),
    Case("shuffled-last-smaller", Gaussian(1.0).shuffled(20, smaller=1)),
    Case("shuffled-once", Gaussian(1.0).shuffled(1)),
    Case("shuffled-narrow", Gaussian(0.4, sensitivity=2.0).shuffled(1000)),
    Case("shuffled-reports", ShuffledReports(60, 1.0)),
    Case("shuffled-reports-of-three", ShuffledReports(60, 1.0, categories=3)),
    Case("shuffled-reports-of-many", ShuffledReports(20_000, 2.0, categories=2)),
    Case("staircase-1", Staircase(1.0)),
    Case("staircase-even", Staircase(0.5, gamma=0.5)),
    Case("response-0.75", RandomizedResponse(0.75)),
    Case("response-0.3-of-5", RandomizedResponse(0.3, categories=5)),
    Case("response-0.999", RandomizedResponse(0.999)),
    Case("worst-case-pure", ApproximateDP(0.5)),
    Case("worst-case", ApproximateDP(0.3, 1e-3)),
    Case("worst-case-no-epsilon", ApproximateDP(0.0, 0.1)),
    Case("histogram", HistogramPair((3.0, 2.0, 1.0), (1.0, 2.0, 3.0))),
    Case(
        "histogram-empty-bins", HistogramPair((0.0, 5.0, 3.0, 0.0, 2.0), (1.0, 5.0, 4.0, 0.0, 0.0))
    ),
    Case("mixture-of-gaussians", MixtureOfGaussians(1.0, (0.0, 1.0, 2.0), (0.2, 0.6, 0.2))),
    Case("mixture-without-zero", MixtureOfGaussians(3.0, (1.0, 4.0), (9.0, 1.0))),
    Case("mixture-mirrored", MixtureOfGaussians(0.8, (0.0, 1.0), (0.99, 0.01), mirrored=True)),
    Case("mixture-sampled", MixtureOfGaussians(2.0, (0.0, 1.0, 3.0), (2, 1, 1)).subsampled(0.1)),
    Case("loss-table", LossTable(0.5, (-2, (0.1, 0.2, 0.2, 0.3, 0.1999), 1e-4))),
    Case("loss-tables", LossTable(0.5, (-1, (0.2, 0.2, 0.6), 0.0), (0, (0.6, 0.4), 0.0))),
    Case("loss-table-certain", LossTable(1.0, (1, (1.0,), 0.0))),
    Case("loss-table-sampled", LossTable(1.0, (1, (1.0,), 0.0)).subsampled(0.3)),
    Case("batches", Gaussian(2.0).batches(6, of=600)),
    Case("batches-all", Gaussian(2.0).batches(60, of=60)),
    Case("batches-group", Gaussian(4.0).batches(6, of=60).group(3)),
    Case("batches-again", Gaussian(2.0).batches(3, of=60, replacement=True)),
    Case("batches-narrow", Gaussian(0.4).batches(1, of=2, sensitivity_of="replace-one")),
    Case("exponential-1", ExponentialMechanism(1.0)),
    Case("exponential-small", ExponentialMechanism(0.01)),
    Case("exponential-large", ExponentialMechanism(6.0)),
    Case("curve", FromCurve((0.0, 0.5, 1.0), (0.3, 0.1, 0.01))),
    Case("curve-one-way", FromCurve((-0.5, 0.5, 1.0), (0.5, 0.1, 0.0), both_ways=False)),
    Case("either", Either(0.3, Gaussian(1.0), Gaussian(2.0).subsampled(0.1))),
    Case("either-of-all", Either(0.9, Laplace(2.0), ApproximateDP(0.3, 1e-3))),
    Case("either-sampled", Either(0.25, Laplace(1.0), RandomizedResponse(0.75)).subsampled(0.1)),
    Case("best-of-response", RandomizedResponse(0.75).best_of(NegativeBinomial(10.0))),
    Case("best-of-gaussian", Gaussian(2.0).best_of(Poisson(5.0))),
    Case("best-of-trainings", (Gaussian(2.0).subsampled(0.3) * 4).best_of(Binomial(20, 0.5))),
    Case("group", Gaussian(1.0).subsampled(0.01).group(4)),
    Case("group-laplace", Laplace(4.0).subsampled(0.1).group(3)),
    Case("group-large", Gaussian(40.0).subsampled(0.01).group(30)),
    Case("group-not-sampled", Gaussian(3.0).group(2)),
    Case("truncated-poisson", Gaussian(1.0).truncated_poisson(0.1, 12, 60)),
    Case("truncated-poisson-seldom", Gaussian(1.0).truncated_poisson(0.01, 900, 60000)),
    Case("truncated-poisson-laplace", Laplace(2.0).truncated_poisson(0.5, 2, 4)),
    Case("sampled-gaussian-1e-4", Gaussian(1.0).subsampled(1e-4)),
    Case("sampled-gaussian-0.01", Gaussian(1.0).subsampled(0.01)),
    Case("sampled-gaussian-0.25", Gaussian(1.0).subsampled(0.25)),
    Case("sampled-gaussian-0.999", Gaussian(1.0).subsampled(0.999)),
    Case("sampled-gaussian-always", Gaussian(1.0).subsampled(1.0)),
    Case("sampled-gaussian-never", Gaussian(1.0).subsampled(0.0)),
    Case("sampled-gaussian-narrow", Gaussian(0.3).subsampled(0.01)),
    Case("sampled-gaussian-0.8", Gaussian(0.8).subsampled(1e-4)),
    Case("sampled-gaussian-4", Gaussian(4.0).subsampled(0.25)),
    Case("sampled-gaussian-100", Gaussian(100.0).subsampled(0.01)),
    Case("sampled-gaussian-very-narrow", Gaussian(0.02).subsampled(0.01)),
    Case("sampled-laplace", Laplace(2.0).subsampled(0.1)),
    Case("sampled-laplace-narrow", Laplace(0.05).subsampled(0.01)),
    Case("sampled-logistic", Logistic(2.0).subsampled(0.1)),
    Case("sampled-truncated", TruncatedGaussian(1.0, bound=3.0).subsampled(0.1)),
    Case("sampled-truncated-laplace", TruncatedLaplace(1.0, bound=0.6).subsampled(0.2)),
    Case("sampled-additive", Additive("logistic").subsampled(0.2)),
    Case("sampled-discrete-laplace", DiscreteLaplace(2.0).subsampled(0.1)),
    Case("sampled-response", RandomizedResponse(0.9).subsampled(0.01)),
    Case("sampled-worst-case", ApproximateDP(1.0, 1e-3).subsampled(0.05)),
    Case("sampled-histogram", HistogramPair((0.0, 5.0, 3.0), (1.0, 5.0, 0.0)).subsampled(0.3)),
    Case("sampled-twice", Gaussian(1.0).subsampled(0.5).subsampled(0.1)),
    Case("allocated-gaussian", Gaussian(2.0).allocated(30)),
    Case("gaussian-of-one-step", Gaussian(1.0).allocated(1)),
    Case("allocated-laplace", Laplace(1.0).allocated(20)),
    Case("allocated-response", RandomizedResponse(0.75).allocated(3)),
    Case("allocated-sampled", Gaussian(1.0).subsampled(0.1).allocated(5)),
    Case(
        "allocated-tables",
        LossTable(0.5, (-1, (0.2, 0.2, 0.6), 0), (0, (0.6, 0.4), 0)).allocated(4),
    ),
    Case("sampled-twice-laplace", Laplace(0.5).subsampled(0.3).subsampled(0.3)),
]


# ------------------------------------------------------------- what `make test` asks of the laws


def with_every_kind(named: frozenset[str], cases: list[Case]) -> frozenset[str]:
    """Adds the first case of each mechanism of which no case is named."""
    first: dict[str, str] = {}
    for case in cases:
        first.setdefault(case.mechanism.kind, case.name)
    known = {case.mechanism.kind for case in cases if case.name in named}
    return named | {name for kind, name in first.items() if kind not in known}


# Some forty cases that together hold every mechanism, alone and sampled, one-sided and lopsided
# pairs, masses at one loss and at infinity, and each branch by the width of the noise
# (tests/laws/test_core.py). The laws ask them in `make test`, and all the others in `make slow`.
# A new mechanism needs no name here: then its first case is asked.
NAMED = frozenset({
    "gaussian-1", "gaussian-very-narrow", "laplace-1", "laplace-narrow", "truncated-gaussian-1",
    "truncated-gaussian-short", "truncated-laplace-short", "logistic",
    "additive-logistic",
    "discrete-gaussian-1", "discrete-gaussian-very-wide", "discrete-laplace-wide",
    "allocated-gaussian", "batches", "batches-again", "shuffled", "shuffled-narrow",
    "clipped-laplace", "clipped-gaussian-both", "clipped-sum", "staircase-1", "response-0.3-of-5",
    "worst-case", "worst-case-no-epsilon", "histogram-empty-bins", "mixture-mirrored",
    "either-of-all", "group", "group-laplace", "truncated-poisson",
    "loss-table", "loss-table-certain", "loss-table-sampled", "curve", "curve-one-way",
    "sampled-gaussian-0.01", "sampled-gaussian-0.999", "sampled-gaussian-always",
    "sampled-gaussian-never", "sampled-laplace", "sampled-response", "sampled-histogram",
})  # fmt: skip
CORE = with_every_kind(NAMED, CASES)


def slow_unless_core(case: Case) -> list[pytest.MarkDecorator]:
    """The marks of a test of one case: ``slow`` for a case that is not in CORE."""
    return [] if case.name in CORE else [pytest.mark.slow]


each_case = pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=slow_unless_core(c)) for c in CASES]
)
each_mechanism = pytest.mark.parametrize(
    "mechanism", [pytest.param(c.mechanism, id=c.name, marks=slow_unless_core(c)) for c in CASES]
)
