"""Published theorems about compositions, one bound a file, each with its source.

The room answers: what do other people's theorems say? The caller hands in the facts about a
mechanism that a theorem needs: points of its delta(eps), its Renyi divergence, its largest loss.
A proved answer is :class:`Bounds`, with the theorem's upper bound and the lower bound 0 unless
the theorem has one; an answer that is not proved is an :class:`Estimate`.
"""

from tightbudget.theorems import (
    advanced,
    best_of_many,
    concentrated,
    gaussian_dp,
    in_advance,
    kov,
    naive,
    renyi,
    sampling,
)

__all__ = [
    "advanced",
    "best_of_many",
    "concentrated",
    "gaussian_dp",
    "in_advance",
    "kov",
    "naive",
    "renyi",
    "sampling",
]
