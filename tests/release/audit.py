"""Transcripts of threshold mechanisms and their exact probabilities, in rational arithmetic.

Discrete Laplace noise of scale b has mass (1 - r) / (1 + r) r^|x| at x, with r = e^(-1/b). The
proofs use nothing but that ratio, so here it is any rational number: all noises of a mechanism
have ratios that are powers of one z, and so have the e^price that are claimed. A probability is
then a sum over all integers rho; far from the queries every factor is a polynomial in a power
of z^rho, so the two ends of the sum are geometric series. Nothing is cut off.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

Z = Fraction(2, 3)
Values = tuple[int, ...]
Transcript = tuple[object, ...]


@cache
def power(n: int) -> Fraction:
    return Z**n


@cache
def at_least(ratio: int, x: int) -> Fraction:
    """Pr(noise >= x), with the ratio z^ratio."""
    r = power(ratio)
    return r**x / (1 + r) if x > 0 else 1 - r ** (1 - x) / (1 + r)


@cache
def at(ratio: int, x: int) -> Fraction:
    """Pr(noise = x)."""
    return at_least(ratio, x) - at_least(ratio, x + 1)


@dataclass(frozen=True)
class Variant:
    """A sparse vector technique; prices and noises in units of -ln z.

    ``answers(rho, value)`` lists what may be answered to a query when the noisy threshold is
    rho (the threshold itself is 0): answers and their probabilities. ``unit`` is the ratio of
    which all these probabilities are polynomials in z^(unit rho), for |rho| >= far.
    """

    name: str
    rho: int  # ratio of the noise on the threshold
    unit: int
    answers: Callable[[int, int], dict[object, Fraction]]
    cost: dict[object, int]  # of each answer that is not "below"
    first: int  # what is paid in any case
    budget: int | None  # answers that are not "below" stop here; None: never
    refresh: int | None = None  # ratio of a new noise on the threshold after such an answer
    far: int = 3
    degree: int = 1  # of the polynomial, for each query

    def price(self, transcript: Transcript) -> int:
        return self.first + sum(self.cost[a] for a in transcript if a != "below")

    def done(self, transcript: Transcript) -> bool:
        spent = sum(self.cost[a] for a in transcript if a != "below")
        return self.budget is not None and spent + max(self.cost.values()) > self.budget

    def transcripts(self, queries: int, answers: Sequence[object]) -> Iterator[Transcript]:
        """All that can come out."""

        def go(seen: Transcript) -> Iterator[Transcript]:
            if len(seen) == queries or self.done(seen):
                yield seen
            else:
                for a in answers:
                    yield from go((*seen, a))

        return go(())

    def probability(self, values: Values, transcript: Transcript) -> Fraction:
        if self.refresh is None:
            return self._part(self.rho, values, transcript)
        # a new noisy threshold after each answer: the parts are independent
        result, begin, ratio = Fraction(1), 0, self.rho
        for i, a in enumerate(transcript):
            if a != "below":
                result *= self._part(ratio, values[begin : i + 1], transcript[begin : i + 1])
                begin, ratio = i + 1, self.refresh
        return result * self._part(ratio, values[begin : len(transcript)], transcript[begin:])

    def _part(self, ratio: int, values: Values, transcript: Transcript) -> Fraction:
        @cache
        def factor(rho: int) -> Fraction:
            result = Fraction(1)
            for value, a in zip(values, transcript, strict=False):
                result *= self.answers(rho, value).get(a, Fraction(0))
            return result

        middle = sum(
            (at(ratio, rho) * factor(rho) for rho in range(-self.far + 1, self.far)), Fraction(0)
        )
        degree = self.degree * len(transcript)
        ends = sum(
            (
                _series(ratio, self.unit, self.far, degree, side)
                for side in (factor, lambda x: factor(-x))
            ),
            Fraction(0),
        )
        return middle + ends


def _series(
    ratio: int, unit: int, far: int, degree: int, factor: Callable[[int], Fraction]
) -> Fraction:
    """The sum of at(ratio, x) factor(x) over all x >= far, factor a polynomial in z^(unit x)."""
    nodes = [(power(unit * x), factor(x)) for x in range(far, far + degree + 1)]
    coefficients = _interpolated(nodes)
    # one node more than the polynomial needs: a model that is no polynomial is noticed
    beyond = power(unit * (far + degree + 1))
    assert factor(far + degree + 1) == sum(c * beyond**k for k, c in enumerate(coefficients))
    mass = (1 - power(ratio)) / (1 + power(ratio))
    return sum(
        (
            mass * c * power((ratio + unit * k) * far) / (1 - power(ratio + unit * k))
            for k, c in enumerate(coefficients)
        ),
        Fraction(0),
    )


def _interpolated(nodes: Sequence[tuple[Fraction, Fraction]]) -> list[Fraction]:
    """Coefficients of the polynomial through the nodes (Newton's divided differences)."""
    xs, table = [x for x, _ in nodes], [y for _, y in nodes]
    for k in range(1, len(nodes)):
        for i in range(len(nodes) - 1, k - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (xs[i] - xs[i - k])
    result = [Fraction(0)] * len(nodes)
    for x, d in zip(reversed(xs), reversed(table), strict=True):
        shifted = [Fraction(0), *result[:-1]]
        result = [s - x * c for s, c in zip(shifted, result, strict=True)]
        result[0] += d
    return result


def excess(
    variant: Variant,
    answers: Sequence[object],
    pairs: Sequence[tuple[Values, Values]],
    price: Callable[[Transcript], int] | None = None,
) -> tuple[int, Fraction]:
    """How many claims Pr(x) <= e^price Pr(x') fail, and the largest Pr(x) / (e^price Pr(x'))."""
    claimed = variant.price if price is None else price
    probability = cache(variant.probability)
    failed, closest = 0, Fraction(0)
    for x, y in pairs:
        for t in variant.transcripts(len(x), answers):
            p, q = probability(x, t), probability(y, t) / power(claimed(t))
            failed += p > q
            closest = max(closest, p / q if q else Fraction(10**9 * (p > 0)))
    return failed, closest


def neighbours(vectors: Sequence[Values], monotone: bool = False) -> list[tuple[Values, Values]]:
    """All pairs of vectors that are at most 1 apart in each entry, both ways round."""
    return [
        (x, y)
        for x, y in itertools.product(vectors, repeat=2)
        for moves in [{a - b for a, b in zip(x, y, strict=True)}]
        if moves <= {-1, 0, 1} and not (monotone and moves >= {-1, 1})
    ]


def all_vectors(queries: int) -> list[Values]:
    """Entries on both sides of the threshold, which is 0, and on it."""
    return list(itertools.product((-1, 0, 1), repeat=queries))


def two_halves(queries: int, last: int) -> list[Values]:
    """Vectors of equal entries, but for the ``last`` ones, which are equal, too."""
    return [(a,) * (queries - last) + (b,) * last for a, b in all_vectors(2)]
