"""Mechanisms on data: each takes private data and a meter, and returns a release.

It reserves its dearest price, runs, settles the price of what came out, and hands back the
answer with a receipt.
"""

from tightbudget.release.additive import GaussianRelease, LaplaceRelease
from tightbudget.release.interquartile_range import InterquartileRange
from tightbudget.release.median import Median
from tightbudget.release.meter import Meter, Reserved
from tightbudget.release.noise import FixedNoise, Noise, OpenDPNoise
from tightbudget.release.propose_test_release import Pricing, Proposal, ProposeTestRelease
from tightbudget.release.release import Receipt, Release, WhatIf
from tightbudget.release.toy import ToyRelease
from tightbudget.release.trimmed_mean import TrimmedMean

__all__ = [
    "FixedNoise",
    "GaussianRelease",
    "InterquartileRange",
    "LaplaceRelease",
    "Median",
    "Meter",
    "Noise",
    "OpenDPNoise",
    "Pricing",
    "Proposal",
    "ProposeTestRelease",
    "Receipt",
    "Release",
    "Reserved",
    "ToyRelease",
    "TrimmedMean",
    "WhatIf",
]
