"""Mechanisms on data: each takes private data and a meter, and returns a release.

It reserves its dearest price, runs, settles the price of what came out, and hands back the
answer with a receipt.
"""

from tightbudget.release.additive import GaussianRelease, LaplaceRelease
from tightbudget.release.meter import Meter, Reserved
from tightbudget.release.noise import FixedNoise, Noise, OpenDPNoise
from tightbudget.release.release import Receipt, Release, WhatIf
from tightbudget.release.sparse_vector import SparseVector, SparseVectorRelease, SparseVectorRun
from tightbudget.release.top_k import TopK
from tightbudget.release.toy import ToyRelease

__all__ = [
    "FixedNoise",
    "GaussianRelease",
    "LaplaceRelease",
    "Meter",
    "Noise",
    "OpenDPNoise",
    "Receipt",
    "Release",
    "Reserved",
    "SparseVector",
    "SparseVectorRelease",
    "SparseVectorRun",
    "TopK",
    "ToyRelease",
    "WhatIf",
]
