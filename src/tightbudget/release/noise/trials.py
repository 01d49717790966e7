"""Draws a random number of trials exactly, from fair coins."""

from __future__ import annotations

from fractions import Fraction

from tightbudget.release.noise.noise import Noise
from tightbudget.trials import Trials

_TOSSES = 64  # at a time; more than a few dozen are hardly ever needed


def number_of_trials(law: Trials, noise: Noise) -> int:
    """Draws a number of trials with exactly the probabilities of a law.

    A uniform number U is read bit by bit, until it is known between which two values of the
    distribution function it lies; where the digits of these end, more are computed.
    """
    drawn, width, digits = Fraction(0), Fraction(1), 80
    while True:
        for _ in range(_TOSSES):
            width /= 2
            drawn += width * noise.coin()
        while width < Fraction(1, 10 ** (digits - 40)):
            digits *= 2
        found = _decided(law, drawn, drawn + width, digits)
        if found is not None:
            return found


def _decided(law: Trials, low: Fraction, high: Fraction, digits: int) -> int | None:
    """Returns the number that each U in [low, high) stands for; None if it is not one number."""
    before, after = Fraction(0), Fraction(0)
    for k, (least, most) in enumerate(law.chances(digits)):
        # U is not below the distribution function at k - 1, and is below it at k
        if low < after:
            return None
        before, after = before + least, after + most
        if high <= before:
            return k
        if before > 1 - Fraction(1, 10 ** (digits - 30)):
            return None
    raise AssertionError("a law has infinitely many chances")
