"""Mechanisms on data: each takes private data and a meter, and returns a release.

It reserves its dearest price, runs, settles the price of what came out, and hands back the
answer with a receipt.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from tightbudget.release.additive import GaussianRelease, LaplaceRelease
from tightbudget.release.erm import OutputPerturbation, TestSensitivity, logistic_with_test
from tightbudget.release.gradual import GradualRelease
from tightbudget.release.interquartile_range import InterquartileRange
from tightbudget.release.iterative import Iterative
from tightbudget.release.median import Median
from tightbudget.release.meter import Meter, Reserved
from tightbudget.release.minimum import Loss
from tightbudget.release.noise import FixedNoise, Noise, OpenDPNoise
from tightbudget.release.propose_test_release import Pricing, Proposal, ProposeTestRelease
from tightbudget.release.release import Receipt, Release, WhatIf
from tightbudget.release.sparse_vector import SparseVector, SparseVectorRelease, SparseVectorRun
from tightbudget.release.tested import TestedRelease
from tightbudget.release.top_k import TopK
from tightbudget.release.toy import ToyRelease
from tightbudget.release.trimmed_mean import TrimmedMean

if TYPE_CHECKING:
    from tightbudget.release.logistic_regression import PrivateLogisticRegression

__all__ = [
    "FixedNoise",
    "GaussianRelease",
    "GradualRelease",
    "InterquartileRange",
    "Iterative",
    "LaplaceRelease",
    "Loss",
    "Median",
    "Meter",
    "Noise",
    "OpenDPNoise",
    "OutputPerturbation",
    "Pricing",
    "PrivateLogisticRegression",
    "Proposal",
    "ProposeTestRelease",
    "Receipt",
    "Release",
    "Reserved",
    "SparseVector",
    "SparseVectorRelease",
    "SparseVectorRun",
    "TestedRelease",
    "TestSensitivity",
    "TopK",
    "ToyRelease",
    "TrimmedMean",
    "WhatIf",
    "logistic_with_test",
]


if importlib.util.find_spec("sklearn") is None:  # `import *` takes what there is
    __all__[:] = [name for name in __all__ if name != "PrivateLogisticRegression"]


def __getattr__(name: str) -> Any:
    """Loads what needs scikit-learn when it is first used."""
    if name == "PrivateLogisticRegression":
        module = importlib.import_module("tightbudget.release.logistic_regression")
        return module.PrivateLogisticRegression
    raise AttributeError(f"module 'tightbudget.release' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, also the one that has not been loaded yet."""
    return sorted({*globals(), *__all__})
