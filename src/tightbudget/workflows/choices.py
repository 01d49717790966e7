"""The exponential mechanism of a move, apart from the other mechanisms of its block."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.composition import Composition, compose
from tightbudget.mechanisms.exponential import ExponentialMechanism
from tightbudget.numerics.rounding import FloatArray
from tightbudget.output_dp.stopping_lattice import TILTS


@dataclass(frozen=True)
class Choices:
    """Runs of one exponential mechanism, each chosen after all that was seen.

    Attributes:
        span: the length of the interval of losses, nats.
        least: the length that lower bounds count with, at most ``span``.
        runs: of the mechanism; 0 for none.
    """

    span: float = 0.0
    least: float = 0.0
    runs: int = 0

    @staticmethod
    def of(chosen: Composition) -> Choices:
        """The runs of the exponential mechanism that ``chosen`` is made of, or of none."""
        for mechanism, runs in chosen.parts:
            assert isinstance(mechanism, ExponentialMechanism)
            return Choices(mechanism.epsilon, mechanism.least_epsilon, runs)
        return Choices()

    def rise(self) -> FloatArray:
        """(tilts,): ln E_P[e^(theta L)] of all runs, each with the t that is worst for the tilt."""
        if not self.runs:
            return np.zeros(TILTS.size)
        # E_P[e^(s L)] is largest at this t: under a large tilt, next to the end of the span
        e, s = self.span, TILTS
        below = -np.log(s / (s + 1.0) * np.expm1(-(s + 1.0) * e) / np.expm1(-s * e))
        below = np.clip(below, 1e-12 * e, e * (1.0 - 1e-12))
        t = e - below
        stay = np.log(np.expm1(-below) / math.expm1(-e))
        leave = np.log(np.expm1(t) / math.expm1(e))
        return np.asarray(self.runs * np.logaddexp(stay + s * t, leave - s * below))


# Proof: proofs/choices.v, theorems choices, induction_covers
# Proof: proofs/choices.v, theorems joint_by_deltas, two_ends, bounded_range
def split(block: Composition) -> tuple[Composition, Composition]:
    """A block without its exponential mechanism, and the runs of that one.

    Of several that differ, the worst order is not known: they stay in the block, and each is
    charged the pair of its runs.
    """
    chosen = [part for part in block.parts if isinstance(part[0], ExponentialMechanism)]
    if len(chosen) != 1:
        return block, Composition()
    ((mechanism, runs),) = chosen
    return compose(m * k for m, k in block.parts if m is not mechanism), mechanism * runs
