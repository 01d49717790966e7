"""Every tiny column, how far apart two are, and exactly what comes out of a protocol on them."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

import tightbudget as tb
from tightbudget.output_dp.guarantee import Cell
from tightbudget.release.mechanisms.order_statistics import Ordered
from tightbudget.release.noise.noise import IntArray

Column = tuple[int, ...]


def columns(n: int, domain: Sequence[int]) -> list[Column]:
    """All columns of n records, up to their order."""
    return list(itertools.combinations_with_replacement(sorted(domain), n))


def apart(x: Column, y: Column) -> int:
    """How many records must be replaced to come from one to the other."""
    return len(x) - sum((Counter(x) & Counter(y)).values())


def neighbours(everything: Sequence[Column]) -> Iterator[tuple[Column, Column]]:
    return ((x, y) for x in everything for y in everything if apart(x, y) == 1)


def ordered(x: Column, limit: int) -> Ordered:
    return Ordered.of(np.array(x), limit)


class Script:
    """Tests get the next of these draws; values, whose noise has another scale, get 0."""

    batch = 1

    def __init__(self, scale: Fraction, draws: Sequence[int], coin: bool = False) -> None:
        self._scale, self._draws, self._coin = scale, iter(draws), coin

    def laplace(self, scale: Any, size: int) -> IntArray:
        return np.array([next(self._draws) if scale == self._scale else 0])

    gaussian = laplace

    def coin(self) -> bool:
        return self._coin


@dataclass(frozen=True)
class Geometric:
    """Integer noise of mass ~ p^|z|, p rational."""

    p: Fraction

    def tail(self, z: int) -> Fraction:
        """Pr(Z >= z)."""
        return self.p**z / (1 + self.p) if z > 0 else 1 - self.p ** (1 - z) / (1 + self.p)

    def cut(self, furthest: int) -> dict[int, Fraction]:
        """The masses, with what lies beyond ``furthest`` put there."""
        inner = {z: self.tail(z) - self.tail(z + 1) for z in range(1 - furthest, furthest)}
        return inner | {furthest: self.tail(furthest), -furthest: self.tail(furthest)}


Centres = dict[int | None, Fraction]  # of a cell: the values before their noise, and the masses


def outcomes(
    protocol: tb.release.ProposeTestRelease, proposals: Any, q: Fraction, furthest: int
) -> Mapping[Cell, Centres]:
    """What comes out of these proposals where tests draw noise of mass ~ q^|z|."""
    masses: dict[Cell, Centres] = defaultdict(lambda: defaultdict(Fraction))
    protocol = replace(protocol, propose=lambda _: proposals)
    coins = (False, True) if protocol.pricing is tb.release.Pricing.IN_TURN else (False,)
    noise = Geometric(q).cut(furthest)
    for coin, draws in itertools.product(coins, itertools.product(noise, repeat=protocol.tries)):
        value, cell = protocol.run(None, Script(protocol.test.scale, draws, coin))
        mass = Fraction(1, len(coins))
        for z in draws:
            mass *= noise[z]
        masses[cell][value] += mass
    return masses


def worst_excess(
    protocol: tb.release.ProposeTestRelease, everything: Mapping[Column, Any], p: Fraction, s: int
) -> Fraction:
    """The largest sum over all outputs of (P - e^price Q)_+ over all neighbours, exactly.

    Values have noise of mass ~ p^|z| and sensitivity s, and tests of mass ~ q^|z|, where
    q = p^s is e^-epsilon. Many columns have the same proposals, which are all that a run looks at.
    """
    furthest = protocol.test.threshold + max(map(len, everything))
    proposed = {x: tuple(protocol.propose(data)) for x, data in everything.items()}
    known = {one: outcomes(protocol, one, p**s, furthest) for one in set(proposed.values())}
    times = {
        cell: p ** (-s * int(price / protocol.test.epsilon))
        for cell, price in protocol.guarantee.cells.items()
    }

    def excess(here: Any, there: Any) -> Fraction:
        total = Fraction(0)
        for cell, centres in known[here].items():
            mine = _spread(centres, known[there].get(cell, {}), p)
            theirs = _spread(known[there].get(cell, {}), centres, p)
            pairs = zip(mine, theirs, strict=True)
            total += sum(max(Fraction(0), a - times[cell] * b) for a, b in pairs)
        return total

    pairs = {(proposed[x], proposed[y]) for x, y in neighbours(list(everything))}
    return max(excess(here, there) for here, there in pairs)


def _spread(centres: Centres, others: Centres, p: Fraction) -> list[Fraction]:
    """The masses of values with their noise; beyond all centres they are proportional: joined."""
    where = [c for c in {*centres, *others} if c is not None]
    if not where:
        return [centres.get(None, Fraction(0))]
    tail = Geometric(p).tail
    cuts = range(min(where) + 1, max(where) + 1)
    above = [[m * tail(cut - c) for c, m in centres.items() if c is not None] for cut in cuts]
    upper = [sum(masses, Fraction(0)) for masses in above]
    whole = sum(centres.values(), Fraction(0))
    return [a - b for a, b in itertools.pairwise([whole, *upper, Fraction(0)])]
