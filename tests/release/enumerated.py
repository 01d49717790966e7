"""Every path of a mechanism with its exact probability: the truth that prices are held against.

Discrete Laplace noise of scale s has the masses (1 - a) / (1 + a) a^|x| with a = e^(-1/s). Here e
is a rational BASE, and scales are such that a is rational, too: no proof uses what e is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np

__all__ = ["BASE", "Law", "Outcomes", "power"]

BASE = 16  # a power of two whose fourth root is rational: "e"


def power(x: Fraction) -> Fraction:
    """BASE^x for a multiple x of 1/4."""
    quarters = x * 4
    assert quarters.denominator == 1
    return Fraction(isqrt(isqrt(BASE))) ** int(quarters)


@dataclass
class Law:
    """A source of randomness that goes down one path, and says which ways there are."""

    script: list[int]
    widest: int  # noise beyond this is left out
    probability: Fraction = Fraction(1)
    at: int = 0
    batch: int = 1
    ways: list[int] | None = None  # where the script ended

    def _take(self, options: dict[int, Fraction]) -> int:
        if self.at == len(self.script):
            self.ways = list(options)
            raise KeyboardInterrupt  # which no mechanism keeps, and none says anything with
        choice = self.script[self.at]
        self.at += 1
        self.probability *= options[choice]
        return choice

    def coin(self) -> bool:
        return bool(self._take({0: Fraction(1, 2), 1: Fraction(1, 2)}))

    def biased(self, p: Fraction) -> bool:
        """One draw in the place of many tosses."""
        return bool(self._take({0: 1 - p, 1: p}))

    def laplace(self, scale: Any, size: int) -> Any:
        a = 1 / power(1 / Fraction(scale))
        masses = {x: (1 - a) / (1 + a) * a ** abs(x) for x in range(-self.widest, self.widest + 1)}
        return np.array([self._take(masses) for _ in range(size)], dtype=np.int64)

    gaussian = laplace


@dataclass
class Outcomes:
    """What comes out, with the probabilities of the paths looked at.

    Attributes:
        masses: by outcome, at most its true probability.
        missing: what all of them miss together, at most.
    """

    masses: dict[Hashable, Fraction]
    missing: Fraction

    @staticmethod
    def of(run: Callable[[Any], Hashable], widest: int = 0, depth: int = 30) -> Outcomes:
        """All paths of ``run(noise)`` with at most ``depth`` draws."""
        masses: dict[Hashable, Fraction] = {}
        for outcome, probability in _paths(run, widest, depth, []):
            masses[outcome] = masses.get(outcome, Fraction(0)) + probability
        return Outcomes(masses, 1 - sum(masses.values(), Fraction(0)))


def _paths(
    run: Callable[[Any], Hashable], widest: int, depth: int, script: list[int]
) -> Iterator[tuple[Hashable, Fraction]]:
    law = Law(script, widest)
    try:
        outcome = run(law)
    except KeyboardInterrupt:
        if law.ways is None:
            raise
        if len(script) < depth:
            for choice in law.ways:
                yield from _paths(run, widest, depth, [*script, choice])
    else:
        yield outcome, law.probability
