"""Mechanisms on data: each takes private data and a meter, and returns a release.

A mechanism reserves its worst-case price, runs, settles the price of the output cell that came
out, and returns the value with a receipt.
"""

from typing import TYPE_CHECKING

from tightbudget.later import Later, face, installed
from tightbudget.release.mechanisms.additive import GaussianRelease, LaplaceRelease
from tightbudget.release.mechanisms.best_trial import BestTrial
from tightbudget.release.mechanisms.coin_flip import ToyRelease
from tightbudget.release.mechanisms.erm import (
    GateSensitivity,
    OutputPerturbation,
    logistic_with_test,
)
from tightbudget.release.mechanisms.exponential import ExponentialRelease
from tightbudget.release.mechanisms.gradual import GradualRelease
from tightbudget.release.mechanisms.interquartile_range import InterquartileRange
from tightbudget.release.mechanisms.iterative import Iterative
from tightbudget.release.mechanisms.median import Median
from tightbudget.release.mechanisms.objective import Loss
from tightbudget.release.mechanisms.permute_and_flip import PermuteAndFlip
from tightbudget.release.mechanisms.propose_test_release import (
    Pricing,
    Proposal,
    ProposeTestRelease,
)
from tightbudget.release.mechanisms.quantiles import QuantileRelease
from tightbudget.release.mechanisms.select_keys import KeyedCounts, SelectKeys
from tightbudget.release.mechanisms.sparse_vector import (
    SparseVector,
    SparseVectorRelease,
    SparseVectorRun,
)
from tightbudget.release.mechanisms.tested import GatedRelease
from tightbudget.release.mechanisms.top_k import TopK
from tightbudget.release.mechanisms.trimmed_mean import TrimmedMean
from tightbudget.release.meter import Meter, Reserved
from tightbudget.release.noise.noise import FixedNoise, Noise, OpenDPNoise
from tightbudget.release.release import Receipt, Rehearsal, Release, ReleasePreview
from tightbudget.release.run_lengths import RunLengths
from tightbudget.release.stopping import StoppingCallback
from tightbudget.release.workflow_run import WorkflowRun

if TYPE_CHECKING:
    from tightbudget.release.mechanisms.logistic_regression import PrivateLogisticRegression

__all__ = [
    "BestTrial",
    "ExponentialRelease",
    "FixedNoise",
    "GaussianRelease",
    "GradualRelease",
    "InterquartileRange",
    "Iterative",
    "KeyedCounts",
    "LaplaceRelease",
    "Loss",
    "Median",
    "Meter",
    "Noise",
    "OpenDPNoise",
    "OutputPerturbation",
    "PermuteAndFlip",
    "Pricing",
    "PrivateLogisticRegression",
    "Proposal",
    "ProposeTestRelease",
    "QuantileRelease",
    "Receipt",
    "Rehearsal",
    "Release",
    "Reserved",
    "RunLengths",
    "SelectKeys",
    "SparseVector",
    "SparseVectorRelease",
    "SparseVectorRun",
    "StoppingCallback",
    "WorkflowRun",
    "GatedRelease",
    "GateSensitivity",
    "TopK",
    "ToyRelease",
    "TrimmedMean",
    "ReleasePreview",
    "logistic_with_test",
]


_LATER = {
    "PrivateLogisticRegression": Later(
        "tightbudget.release.mechanisms.logistic_regression", "sklearn"
    ),
}

__all__[:] = installed(__all__, _LATER)
__getattr__, __dir__ = face(globals(), _LATER)
