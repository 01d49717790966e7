"""Local reports that a shuffler sends on without their senders.

*Clones.* Let R be an epsilon0-LDP randomizer, Q0 and Q1 the laws of the report of one person before
and after their answer is replaced, and r = e^-epsilon0. With

    Q0' = (Q0 - r Q1) / (1 - r),  Q1' = (Q1 - r Q0) / (1 - r),

which are laws since each is at most 1 / r times the other, Q0 is Q0' with probability 1 / (1 + r),
else Q1', and Q1 the other way round; and Q0 + Q1 = Q0' + Q1'. Every other person's report is at
least r (Q0 + Q1) / 2: with probability r it is one of Q0' and Q1' by a fair coin. So who sees how
many reports are of each kind can make what the shuffler sends: with C ~ Bin(n - 1, r), A ~ Bin(C,
1/2) and D = 1 with probability 1 / (1 + r), the pair is (A + D, C - A + 1 - D) against
(A + 1 - D, C - A + D). Source: Feldman, McMillan, Talwar 2021, "Hiding among the clones",
Theorem 3.1.

*Blanket.* k-ary response is uniform with probability k q, q = 1 / (e^epsilon0 + k - 1), whatever
the answer. Who is told which others were not uniform, and what they sent, sees one report among
Bin(n - 1, k q) uniform ones. For k = 2 that is the pair above with another chance. With l(W) =
(R(x)(W) - e^epsilon R(x')(W)) k for a uniform W, its delta is

    E(l_1 + ... + l_M)+ / (k q n),  M ~ Bin(n, k q).

Source: Balle, Bell, Gascon, Nissim 2019, "The privacy blanket of the shuffle model".

*An instance.* All others answer 0 by k-ary response, and one answers 0 or 1: the number of ones is
a function of what the shuffler sends.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tightbudget.errors import RelationError
from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.from_curve import FromCurve
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.binomial import binomial_masses, binomial_tails
from tightbudget.numerics.enclosure import Enclosure, exact
from tightbudget.numerics.rounding import (
    TINY,
    UNIT,
    double_down,
    double_up,
    exp_down,
    exp_up,
    next_down,
    next_up,
)
from tightbudget.numerics.validate import positive, positive_count, refuse
from tightbudget.pairs.atomic import AtomicPair, at_most, log_quotient
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Pair

_MOST_PEOPLE = 10**9
_MOST_EPSILON = 20.0  # nats, as for randomized response
_MOST_CATEGORIES = 10**6
# Standard deviations beyond which numbers are left out, for the upper bound as if the report were
# alone: a binomial number is further out with less than 2e-30.
_FAR = 11.8
_ATOMS = 900_000  # about; more merge numbers of clones to the least of a block
_DOTS = 160  # points of a curve
_STEEP, _TURNS = 100.0, 28.0  # of the smooth function above x+: of its bend, and of its decay
_NEVER = 1e-25  # a delta beyond which a curve is not followed


@dataclass(frozen=True)
class ShuffledReports(Mechanism):
    """One round of reports of ``n`` people, each randomized on their own device, then shuffled.

    Every person sends one report by the same epsilon0-LDP randomizer. A trusted shuffler takes away
    who has sent which. The neighbour has another answer of one person (``REPLACE_ONE``). Rounds,
    with fresh randomness, are ``mechanism * rounds``.

    Guarantee: the exact epsilon and delta lie between two bounds. The upper bound holds for every
    such randomizer, by clones; with ``categories`` for randomized response alone, by its blanket.
    The lower bound is attained by randomized response where all others give the same answer. It is
    assumed that others send what the randomizer says: people who collude with the observer count
    as absent.
    Source: Feldman, McMillan, Talwar 2021, Theorem 3.1; Balle, Bell, Gascon, Nissim 2019.

    Args:
        n: how many people report, in 1 ... 10^9.
        epsilon0: of one report alone, in (0, 20], nats.
        categories: None for any randomizer; k >= 2 if it is k-ary randomized response, with p =
            e^epsilon0 / (e^epsilon0 + k - 1) for the true answer.

    Raises:
        ParameterError: a parameter is out of its range.
        RelationError: another relation than ``REPLACE_ONE`` was declared.
    """

    n: int
    epsilon0: float
    categories: int | None = None

    kind: ClassVar[str] = "shuffled_reports"
    symmetric: ClassVar[bool] = True  # exchanging the two kinds of reports exchanges P and Q
    mutual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        n, epsilon0 = positive_count(n=self.n), positive(epsilon0=self.epsilon0)
        if n > _MOST_PEOPLE:
            raise refuse("n", "be at most 10^9", self.n)
        if not epsilon0 <= _MOST_EPSILON:
            raise refuse("epsilon0", f"be in (0, {_MOST_EPSILON:g}]", self.epsilon0)
        k = self.categories
        if k is not None:
            k = positive_count(categories=k)
            if not 2 <= k <= _MOST_CATEGORIES:
                raise refuse("categories", "be in 2 ... 10^6", self.categories)
        if self.relation not in (None, Neighbouring.REPLACE_ONE):
            raise RelationError(
                f"shuffled reports hold for {Neighbouring.REPLACE_ONE} (everybody reports, and one "
                f"answer is another one), but {self.relation} was declared"
            )
        self._set(n=n, epsilon0=epsilon0, categories=k, relation=Neighbouring.REPLACE_ONE)

    def __repr__(self) -> str:
        return f"mechanisms.{super().__repr__()}"

    def pair(self, direction: Direction) -> Pair:
        """Returns the pair of clones, or of the blanket, for a direction."""
        r = Fraction(exp_down(-self.epsilon0))  # a larger epsilon0 allows more randomizers
        if self.categories is None:
            return _clones(self.n, r, r)
        if self.categories == 2:
            return _clones(self.n, r, 2 * r / (1 + r))
        return _blanket(self.n, self.epsilon0, self.categories).pair(direction)

    def instance(self) -> Mechanism | None:
        """Returns the number of ones, where all others answer 0."""
        return _Ones(self.n, self.epsilon0, self.categories or 2, relation=self.relation)

    @property
    def apart(self) -> str:
        return "shuffled reports"


@dataclass(frozen=True)
class _Ones(Mechanism):
    """The number of ones that the shuffler sends, where all but one person answer 0."""

    n: int
    epsilon0: float
    categories: int

    mutual: ClassVar[bool] = True

    def pair(self, direction: Direction) -> Pair:
        pair = _ones(self.n, self.epsilon0, self.categories)
        return pair if direction is Direction.REMOVE else pair.reversed()


# ------------------------------------------------------------------------------- clones


@functools.lru_cache(maxsize=64)
def _clones(n: int, r: Fraction, chance: Fraction) -> AtomicPair:
    """One report among Bin(n - 1, chance) others, each of one of two kinds by a fair coin.

    Args:
        n: people.
        r: the odds that the report is of the other kind.
        chance: of each other report to be one of the two kinds.
    """
    sure = 1 / (1 + r)
    reach = _FAR * math.sqrt(float((n - 1) * chance * (1 - chance))) + 40.0
    middle = float((n - 1) * chance)
    first, last = max(0, math.floor(middle - reach)), min(n - 1, math.ceil(middle + reach))
    wide = 2.0 * (_FAR * math.sqrt(last + 1.0) / 2 + 40.0)
    block = max(1, math.ceil((last - first + 1) * wide / _ATOMS))
    masses = [_ends(x) for x in binomial_masses(n - 1, chance, first, last)] if n > 1 else [(1, 1)]
    rest = binomial_tails(n - 1, chance, first)[0][1] if first else 0.0
    beyond = binomial_tails(n - 1, chance, last + 1)[1][1] if last < n - 1 else 0.0
    parts, lost = [], rest
    for start in range(first, last + 1, block):
        # who sees fewer clones can add the others: a block is as its least number
        some = masses[start - first : start - first + block]
        low, high = math.fsum(float(x) for x, _ in some), math.fsum(float(x) for _, x in some)
        if start + block > last:
            high += beyond
        low, high = low * (1 - 4 * UNIT), high * (1 + 4 * UNIT)
        atoms, tail = _row(start + 1, sure, Enclosure(np.array([low]), np.array([high])))
        parts.append(atoms)
        lost += 2.0 * tail * high
    lost = lost * (1 + (len(parts) + 8) * UNIT)
    if lost:  # what is left out shows the report itself, without any other
        shares = np.array([double_up(sure), double_up(1 - sure)]) * lost * (1 + 2 * UNIT)
        least, most = log_quotient(_around(sure), _around(1 - sure))
        losses = np.concatenate([least, -most]), np.concatenate([most, -least])
        nothing = np.zeros(2)
        parts.append(Atoms(Enclosure(nothing, shares), Enclosure(nothing, shares[::-1]), *losses))
    joined = Atoms(
        Enclosure(*(np.concatenate([getattr(a.p, end) for a in parts]) for end in _ENDS)),
        Enclosure(*(np.concatenate([getattr(a.q, end) for a in parts]) for end in _ENDS)),
        np.concatenate([a.loss_lower for a in parts]),
        np.concatenate([a.loss_upper for a in parts]),
    )
    return AtomicPair(joined)


_ENDS = ("lower", "upper")


def _row(total: int, sure: Fraction, mass: Enclosure) -> tuple[Atoms, float]:
    """The outputs of ``total`` reports of both kinds, and what fair coins have of those left out.

    With a + b = total, half of the fair coins' mass of (a, b) goes to P in the proportion of
    sure a + (1 - sure) b, and to Q in that of (1 - sure) a + sure b.
    """
    start = (total + 1) // 2
    steps = min(total - start, math.ceil(_FAR * math.sqrt(total) / 2 + 40))
    begin = _ends(binomial_masses(total, Fraction(1, 2), start, start)[0])
    i = np.arange(steps, dtype=np.float64)
    falls = np.concatenate([[1.0], (total - start - i) / (start + 1.0 + i)])
    shape = np.cumprod(falls)
    off = (4.0 * np.arange(steps + 1) + 8.0) * UNIT
    h = Enclosure(begin[0] * shape * (1 - off), begin[1] * shape * (1 + off))
    a = start + np.arange(steps + 1, dtype=np.float64)
    # what lies beyond falls at least as fast as a geometric series
    tail = 0.0
    if start + steps < total:
        last = (total - start - steps) / (start + 1.0 + steps)
        tail = 2.0 * float(h.upper[-1]) * last / (1.0 - last) * (1 + 16 * UNIT)
    mirrored = a > total - a  # of the middle of an even total there is one
    a = np.concatenate([a, (total - a)[mirrored]])
    h = Enclosure(
        np.concatenate([h.lower, h.lower[mirrored]]), np.concatenate([h.upper, h.upper[mirrored]])
    )
    b = total - a
    true, other = _around(sure), _around(1 - sure)
    t = exact(a) * true + exact(b) * other
    u = exact(a) * other + exact(b) * true
    scaled = h * mass * exact(2.0) / exact(float(total))
    low, high = log_quotient(t, u)
    return Atoms(scaled * t, scaled * u, low, high), tail


def _around(x: Fraction) -> Enclosure:
    """The enclosure of one rational number."""
    return Enclosure(np.array([double_down(x)]), np.array([double_up(x)]))


def _ends(x: Decimal) -> tuple[float, float]:
    """Doubles on both sides of a mass that is known to 1e-30."""
    near = float(x)
    return (next_down(near), next_up(near)) if near > TINY else (0.0, 2 * TINY)


# ------------------------------------------------------------------------------- an instance


@functools.lru_cache(maxsize=64)
def _ones(n: int, epsilon0: float, k: int) -> AtomicPair:
    """The number of ones, if one of n people answers 1 against 0, and the others answer 0."""
    r = Fraction(exp_up(-epsilon0))  # a smaller epsilon0 is allowed
    true, other = 1 / (1 + (k - 1) * r), r / (1 + (k - 1) * r)
    middle = float((n - 1) * other)
    reach = _FAR * math.sqrt(float((n - 1) * other * (1 - other))) + 40.0
    first, last = max(0, math.floor(middle - reach)), min(n - 1, math.ceil(middle + reach))
    found = [_ends(x) for x in binomial_masses(n - 1, other, first, last)] if n > 1 else [(1, 1)]
    ends = [np.array(x, dtype=np.float64) for x in zip(*found, strict=True)]
    # others alone send j ones, or j - 1 of them; outside of the range nothing is counted
    nothing = np.zeros(1)
    here = Enclosure(*(np.append(x, nothing) for x in ends))
    before = Enclosure(*(np.append(nothing, x) for x in ends))
    j = np.arange(first, last + 2, dtype=np.float64)
    if last < n - 1:  # the last number has further masses of the others
        here, before, j = here[:-1], before[:-1], j[:-1]
    if first > 0:
        here, before, j = here[1:], before[1:], j[1:]
    p = before * _around(true) + here * _around(1 - true)
    q = before * _around(other) + here * _around(1 - other)
    # the masses of j - 1 and j are as j (1 - other) to (n - j) other
    t = exact(j) * _around((1 - other) * true) + exact(n - j) * _around(other * (1 - true))
    u = exact(j) * _around((1 - other) * other) + exact(n - j) * _around(other * (1 - other))
    low, high = log_quotient(t, u)
    rest = 1e-29 if first > 0 or last < n - 1 else 0.0
    return AtomicPair(Atoms(p, q, low, high), only_p=at_most(rest), only_q=at_most(rest))


# ------------------------------------------------------------------------------- blanket


@functools.lru_cache(maxsize=64)
def _blanket(n: int, epsilon0: float, k: int) -> FromCurve:
    """The privacy curve of k-ary response by its blanket, as an upper bound at many epsilons."""
    low, top = 0.0, epsilon0
    for _ in range(12):
        middle = (low + top) / 2
        small = _blanket_delta(n, epsilon0, k, middle) < _NEVER
        low, top = (low, middle) if small else (middle, top)
    epsilons = [top * (j / _DOTS) ** 1.5 for j in range(_DOTS + 1)]
    deltas = [_blanket_delta(n, epsilon0, k, epsilon) for epsilon in epsilons]
    found = np.minimum.accumulate(np.minimum(deltas, 1.0)).tolist()
    points = dict(zip(epsilons, found, strict=True))
    points[next_up(epsilon0)] = 0.0  # a report alone has no larger loss
    return FromCurve(tuple(points), tuple(points.values()), relation=Neighbouring.REPLACE_ONE)


def _blanket_delta(n: int, epsilon0: float, k: int, epsilon: float) -> float:
    """An upper bound of E(l_1 + ... + l_M)+ / (k q n), by an integral along a line.

    x+ is at most ln(1 + e^(beta x)) / beta, whose two-sided Laplace transform is
    (pi / beta) / (s sin(pi s / beta)). The trapezoidal rule with steps h adds that function's
    values at x + 2 pi j / h, times e^(-2 pi j c / h), for all integers j: none is negative, so
    that the sum is an upper bound, too. What the sum leaves out is at most the first factor's
    value on the real line times a geometric series.
    """
    r = math.exp(-epsilon0)
    p, q = 1 / (1 + (k - 1) * r), r / (1 + (k - 1) * r)
    # differences without cancellation, each rounded up: the expectation rises with all of them
    values = k * np.array([
        -p * math.expm1(epsilon - epsilon0) * (1 + 64 * UNIT),
        p * math.exp(epsilon) * math.expm1(-epsilon - epsilon0) * (1 - 64 * UNIT),
        -q * math.expm1(epsilon) * (1 - 64 * UNIT),
    ])  # fmt: skip
    weights = np.array([q, q, (k - 2) * q])  # of each, per person
    if not values[0] > 1e-9 * k * p:
        return math.inf  # too close to the largest loss for these sums

    def less_one(s: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((weights[:, None] * np.expm1(values[:, None] * s[None, :])).sum(axis=0))

    def log_mean(s: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(n * np.log1p(less_one(s)))

    # the line through the saddle point, about: any c > 0 gives a bound
    c = np.geomspace(1e-6 / values[0], 600.0 / values[0], 400)
    with np.errstate(over="ignore"):
        heights = log_mean(c) - 2 * np.log(c)
    c0 = float(c[int(np.argmin(heights))])
    spread = math.sqrt(float((n * weights * values**2 * np.exp(values * c0)).sum()))
    beta, h = _STEEP * c0, min(c0 / 4, 0.7 / spread)
    last = math.ceil(_TURNS * beta / (math.pi * h))
    s = c0 + 1j * h * np.arange(last + 1)
    factor = (math.pi / beta) / (s * np.sin(math.pi * s / beta))
    top = float(log_mean(np.array([c0]))[0])
    z = less_one(s)
    x, y, modulus = z.real, z.imag, np.abs(1.0 + z)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.where(modulus < 0.5, np.log(modulus), 0.5 * np.log1p(x * (2.0 + x) + y * y))
    exponent = n * (np.maximum(log, -1e9) + 1j * np.arctan2(y, 1.0 + x))
    terms = np.exp(exponent - top) * factor
    twice = np.where(np.arange(last + 1) > 0, 2.0, 1.0)
    terms = terms * twice
    whole = h / (2 * math.pi)
    rest = 2 * abs(factor[-1]) / -math.expm1(-math.pi * h / beta)
    # z is known to 64 units of its summands, whose moduli are largest on the real line, and 1 + z
    # moves its n-th power by at most so much; then the power and a dozen operations are rounded
    size = (weights[:, None] * (1 + np.exp(values * c0))[:, None]
            * (1 + np.abs(values[:, None] * s[None, :]))).sum(axis=0)  # fmt: skip
    moved = 64 * UNIT * size
    power = np.exp(n * np.log(modulus + moved) - top) * np.abs(factor) * twice
    off = power * (n * moved / (modulus + moved)) + np.abs(terms) * (
        16 * UNIT * (np.abs(exponent) + abs(top) + 2 * np.abs(s) / c0 + 8)
    )
    found = whole * (float(terms.real.sum()) + float(off.sum()) * 1.01 + rest * 1.01)
    scale = top - math.log(k * q * n)
    least = exp_up(scale + 16 * UNIT * (abs(scale) + abs(top) * 4 + 1))
    return float(max(0.0, found) * least * (1 + 32 * UNIT))
