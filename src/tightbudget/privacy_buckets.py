"""Privacy buckets as their paper defines them: a second, independent implementation.

Bucket i holds the outputs with f^(i-1) < A/B <= f^i, for -n < i <= n; those of smaller
quotients are in bucket -n, those of larger ones in bucket inf. A *composition tree* has leaves
(:meth:`Buckets.of`), compositions (:meth:`Buckets.compose`) and squarings of the factor
(:meth:`Buckets.squared`).

Definition 7 keeps two error corrections beside each A-mass B(i): the virtual one l~, and the
real one l, which forgets whatever went to bucket -n. Kept here are the B-masses that they
stand for, B(i)/f^i + l~(i) and B(i)/f^i + l(i). In these, Definition 7's V and W are products
and sums,

    (B1(j)/f^j + x) (B2(k)/f^k + y) = B1(j) B2(k) / f^(j+k) + V(j, k, x, y),

and nothing is ever subtracted: every number keeps its relative precision, which convolutions
by direct sums carry on.

One corner is not what Definition 7 says: V falls short of the virtual error of an output that
a composition clamps to bucket -n, by A/f^(j+k) - A/f^-n, and Lemma 11 would not hold there. The
B-mass of bucket -n is all of it here, as that lemma and the lower bound need.

Source: Meiser, Mohammadi 2018, sections 3 and 4.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tightbudget.errors import GridError
from tightbudget.mechanisms.composition import Composable, Composition, Mechanism
from tightbudget.mechanisms.histogram import HistogramPair
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.convolve import convolve_directly
from tightbudget.numerics.enclosure import Enclosure, exp_enclosure, stack
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_up,
    exp_down,
    exp_up,
    sum_down,
    sum_up,
)
from tightbudget.numerics.search import last_true
from tightbudget.numerics.validate import (
    finite,
    non_negative,
    positive_count,
    probability,
    refuse,
)
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Bins, Pair

__all__ = ["Buckets", "Trees", "delta", "r_fold"]

N = 4_096  # the last finite bucket, where none is named; a power of two keeps lattices aligned
FREE = 1e-20  # B(inf) that may be reached before a factor is squared, where none is named
GROWTH = 1.1  # of B(inf), against the sum of both before: in T x T, 2.2 times that of T

_NEAR = 2.0**-46  # a loss so little above an edge, relative to n ln f, counts as at the edge
# A leaf's mass that is known to no better than this, relative, is infinite for the part above it.
# The looser this is, the more a bound pays for rounding in every run; masses that are made of a few
# roundings are known a million times as well, so that mass far out in a tail alone is meant.
_KNOWN = 1e-9
_NORMAL = 1e-150  # products of numbers that are no smaller are normal doubles


@dataclass(frozen=True, eq=False)
class Buckets:
    """A composition tree's privacy buckets, with both error corrections.

    Guarantee: ``infinity`` is at least the A-mass of bucket inf. Every other number is within
    a factor e^(+-rounding) of the exact one, for a pair whose quotients A/B may be larger than
    the exact ones by e^rounding.

    Attributes:
        log_factor: ln f, nats, > 0.
        masses: (2n + 1,) B(i), the A-mass of bucket i = -n .. n.
        virtual: (2n + 1,) B(i)/f^i + l~(i), the B-mass of bucket i.
        real: (2n + 1,) B(i)/f^i + l(i), the B-mass of bucket i that an upper bound may use.
        infinity: B(inf).
        u: by how many buckets an output may be misplaced.
        rounding: the relative error.
    """

    log_factor: float
    masses: FloatArray
    virtual: FloatArray
    real: FloatArray
    infinity: float
    u: int
    rounding: float

    @staticmethod
    def of(
        mechanism: Mechanism,
        *,
        factor: float | None = None,
        n: int = N,
        direction: Direction = Direction.REMOVE,
    ) -> Buckets:
        """A leaf: one run of a mechanism, each bucket's masses by exact integrals.

        Args:
            mechanism: any mechanism; A and B are its two distributions.
            factor: f, > 1; without one, the finest whose buckets hold nearly all losses.
            n: index of the last finite bucket, even.
            direction: which neighbour plays A.

        Raises:
            ParameterError: a parameter is out of its range.

        Source: Definition 7; for Laplace noise section 5.1.
        """
        if not isinstance(mechanism, Mechanism):
            raise refuse("mechanism", "be a tightbudget mechanism", mechanism)
        n = _even(n)
        log_factor = _log(factor) if factor is not None else _reach(mechanism, FREE) / (n // 2)
        return _leaf(mechanism.pair(direction), log_factor, n)

    @staticmethod
    def of_masses(
        p: ArrayLike, q: ArrayLike, *, factor: float | None = None, n: int = N
    ) -> Buckets:
        """A leaf: output by output, A-mass p[k] against B-mass q[k]; each is normalised.

        Raises:
            ParameterError: a parameter is out of its range.

        Source: Definition 7.
        """
        return Buckets.of(HistogramPair(p, q), factor=factor, n=n)

    # ------------------------------------------------------------------------ to look at

    @property
    def n(self) -> int:
        """The index of the last finite bucket."""
        return self.masses.size // 2

    @property
    def factor(self) -> float:
        """f: within a bucket, quotients differ by less (rounded)."""
        return math.exp(self.log_factor)

    @property
    def indexes(self) -> NDArray[np.int64]:
        """-n .. n, as the arrays have them."""
        return np.arange(-self.n, self.n + 1)

    @property
    def virtual_error(self) -> FloatArray:
        """l~(i), the bucket's B-mass above B(i)/f^i (rounded)."""
        return self._above_the_least(self.virtual)

    @property
    def real_error(self) -> FloatArray:
        """l(i), as l~(i), without what went to bucket -n (rounded)."""
        return self._above_the_least(self.real)

    def _above_the_least(self, b: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            least = self.masses * np.exp(-self.log_factor * self.indexes)
        return np.where(self.masses > 0.0, np.maximum(b - least, 0.0), 0.0)

    # -------------------------------------------------------------------------- the tree

    def compose(self, other: Buckets) -> Buckets:
        """T1 x T2, two independent pairs: indexes add up.

        Raises:
            GridError: the factors or the numbers of buckets differ.

        Source: Definition 7; Lemma 11 for the virtual error in bucket -n.
        """
        if (self.log_factor, self.n) != (other.log_factor, other.n):
            raise GridError(
                f"trees differ: factor {self.factor!r} and {other.factor!r}, "
                f"n = {self.n} and {other.n}"
            )
        reach = self.n * self.log_factor
        # all are sums of at most two rounds of 2n + 1 products; then f^n in one corner
        rounding = self.rounding + other.rounding + (4 * self.masses.size + 64 + 2 * reach) * UNIT
        masses = _product(self.masses, other.masses)
        virtual = _product(self.virtual, other.virtual)
        real = _product(self.real, other.real)
        # guard: real-error-forgets-composition
        real[0] = masses[0] * exp_down(min(reach, 690.0))  # l(-n) = 0
        infinity = min(1.0, self.infinity_with(other) * exp_up(rounding))
        u = self.u + other.u  # guard: composition-adds-u
        return Buckets(self.log_factor, masses, virtual, real, infinity, u, rounding)._swept()

    def squared(self) -> Buckets:
        """Merges buckets to the factor f^2: bucket i takes the buckets 2i - 1 and 2i.

        Bucket -n becomes -n/2, the lowest one that is not empty.

        Source: Definition 7.
        """
        quarter = self.n // 2

        def merged(x: FloatArray) -> FloatArray:
            # guard: squaring-keeps-bucket-n
            return np.pad(np.append(x[0], x[1::2] + x[2::2]), quarter)

        return Buckets(
            2.0 * self.log_factor,
            merged(self.masses),
            merged(self.virtual),
            merged(self.real),
            self.infinity,
            math.ceil(self.u / 2) + 1,
            self.rounding + 2 * UNIT,
        )  # guard: squaring-adds-u

    def infinity_with(self, other: Buckets) -> float:
        """B(inf) of the composition with another tree of this factor, before rounding."""
        above = np.cumsum(other.masses[::-1])[: self.n]  # of buckets n, n - 1, ..., 1 upwards
        beyond = float(np.sum(self.masses[self.n + 1 :] * above))
        # guard: rises-above-bucket-n-infinite
        return self.infinity + (1.0 - self.infinity) * other.infinity + beyond

    def _swept(self) -> Buckets:
        """Moves A-masses below 1e-150 to bucket inf, and bounds B-masses by that number."""
        kept = self.masses >= _NORMAL
        swept = sum_up(self.masses[~kept]) * exp_up(self.rounding)
        return dataclasses.replace(
            self,
            masses=np.where(kept, self.masses, 0.0),
            virtual=np.where(kept, np.maximum(self.virtual, _NORMAL), 0.0),
            real=np.where(kept & (self.real >= _NORMAL), self.real, 0.0),
            infinity=min(1.0, add_up(self.infinity, swept)),
        )  # guard: masses-swept-out-infinite

    # --------------------------------------------------------------------------- answers

    def delta(self, epsilon: float) -> Bounds:
        """Bounds of delta_{A||B}(eps), one direction's, for any eps >= 0 (nats).

        Guarantee: the exact value of the pair lies inside.

        Source: Definition 9, Theorem 2.
        """
        return Trees((self,)).delta(epsilon)

    def epsilon(self, delta: float) -> Bounds:
        """Bounds of inf{eps >= 0: delta_{A||B}(eps) <= delta}, as :meth:`Trees.epsilon`."""
        return Trees((self,)).epsilon(delta)

    @property
    def top(self) -> float:
        """No finite bucket has larger losses (nats)."""
        return (self.n * self.log_factor + self.rounding) * (1 + 8 * UNIT)

    def upper_delta(self, epsilon: float) -> float:
        """Returns an upper bound; outputs that may be misplaced get no error correction."""
        if epsilon >= self.top:
            return self.infinity
        losses = self.log_factor * self.indexes
        off = self.rounding + 8 * UNIT * (epsilon + self.top)  # guard: upper-bound-pays-rounding
        # f^(j-1) < e^eps <= f^j; outputs in buckets from j + u on have A >= e^eps B for certain
        j = math.ceil((epsilon + off) / self.log_factor * (1 + 4 * UNIT))
        first = min(self.n + j + self.u, losses.size)  # guard: misplaced-corrected
        gain = -np.expm1(np.minimum(epsilon - off - losses[:first], 0.0)) * (1 + 8 * UNIT)
        near = sum_up(self.masses[:first] * gain)
        far = sum_up(self.masses[first:])
        # the margins of exp_up and exp_down pay for the products, too
        corrected = exp_down(epsilon - off) * sum_down(self.real[first:])
        total = add_up(add_up(near, far) * exp_up(off), -corrected)
        return min(1.0, add_up(self.infinity, max(0.0, total)))

    def lower_delta(self, epsilon: float) -> float:
        """Returns a lower bound: each finite bucket as one output; bucket inf adds nothing."""
        # rounding a product and a difference takes 2^-53 of the A-mass each, at most
        # guard: lower-bound-pays-rounding-1
        a = self.masses * exp_down(-self.rounding) * (1 - 8 * UNIT)
        with np.errstate(over="ignore", invalid="ignore"):
            # guard: lower-bound-pays-rounding-2
            gain = a - self.virtual * (exp_up(add_up(epsilon, self.rounding)) * (1 + 8 * UNIT))
        return sum_down(np.where(gain > 0.0, gain, 0.0))  # guard: lower-bound-pays-rounding-3


@dataclass(frozen=True, eq=False)
class Trees:
    """The composition trees of the same runs, one for each direction that matters.

    Guarantee: :meth:`delta` holds the exact delta(eps), the worse of these directions: it is
    the larger one of the upper bounds, and also of the lower bounds.

    Source: Definition 10, Theorem 2, Corollary 1 (which takes the smaller lower bound).
    """

    directions: tuple[Buckets, ...]
    attained: tuple[Buckets, ...] | None = None  # those of lower bounds, where these are others

    @staticmethod
    def of(
        composition: Composable,
        *,
        factor: float | None = None,
        n: int = N,
        free_infty_budget: float = FREE,
    ) -> Trees:
        """The trees of a mechanism, or of any composition of mechanisms.

        Args:
            composition: a mechanism, or mechanisms with their numbers of runs.
            factor: f of every leaf, > 1; without one, each mechanism has the finest whose
                buckets hold nearly all its losses, and meets the others by squarings.
            n: index of the last finite bucket, even.
            free_infty_budget: see :func:`r_fold`.

        Raises:
            ParameterError: a parameter is out of its range.
        """
        if not isinstance(composition, Composable):
            raise refuse("composition", "be a mechanism or a composition", composition)
        n, given = _even(n), None if factor is None else _log(factor)
        free = non_negative(free_infty_budget=free_infty_budget)
        parts = tuple(composition.parts) or ((HistogramPair((1.0,), (1.0,)), 1),)
        lost = free / sum(k for _, k in parts)
        reaches = [_reach(mechanism, lost) for mechanism, _ in parts]

        def tree(direction: Direction) -> Buckets:
            folded = []
            for (mechanism, runs), reach in zip(parts, reaches, strict=True):
                # powers of two apart, so that squarings can make factors equal
                share = math.ldexp(1.0, math.ceil(math.log2(reach / max(reaches))))
                fitting = share * max(reaches) / (n // 2)
                leaf = _leaf(mechanism.pair(direction), given or fitting, n)
                folded.append(r_fold(leaf, runs, free_infty_budget=free))
            return functools.reduce(lambda a, b: _together(a, b, free), folded)

        trees = tuple(map(tree, Composition(parts).directions))
        if composition.attained is None:
            return Trees(trees)
        # the dominating pairs prove no lower bound
        below = Trees.of(composition.attained, factor=factor, n=n, free_infty_budget=free)
        return Trees(trees, attained=below.directions)  # guard: buckets-lower-bound-attained

    def delta(self, epsilon: float) -> Bounds:
        """Bounds of delta(eps), for any eps >= 0 (nats).

        Source: Definition 9, Theorem 2.
        """
        epsilon = non_negative(epsilon=epsilon)
        return Bounds(self._lower(epsilon), self._upper(epsilon))

    def epsilon(self, delta: float) -> Bounds:
        """Bounds of inf{eps >= 0: delta(eps) <= delta}; ``upper`` is inf below B(inf).

        Guarantee: each end is proved by one evaluation of delta(eps) there.
        """
        delta = probability(delta=delta)
        top = max(tree.top for tree in self.directions)
        low = last_true(lambda e: self._lower(e) > delta, 0.5 * top, top)
        if self._upper(top) > delta:
            return Bounds(low.last_true, math.inf)
        high = last_true(lambda e: self._upper(e) > delta, 0.5 * top, top)
        return Bounds(low.last_true, max(low.last_true, high.first_false))

    def _lower(self, epsilon: float) -> float:
        return max(tree.lower_delta(epsilon) for tree in self.attained or self.directions)

    def _upper(self, epsilon: float) -> float:
        return max(tree.upper_delta(epsilon) for tree in self.directions)


def delta(
    composition: Composable,
    epsilon: float,
    *,
    factor: float | None = None,
    n: int = N,
    free_infty_budget: float = FREE,
) -> Bounds:
    """Bounds of a composition's delta(eps): :meth:`Trees.of`, asked once.

    Raises:
        ParameterError: a parameter is out of its range.
    """
    trees = Trees.of(composition, factor=factor, n=n, free_infty_budget=free_infty_budget)
    return trees.delta(epsilon)


def r_fold(buckets: Buckets, runs: int, *, free_infty_budget: float = FREE) -> Buckets:
    """The tree of any number of equal runs, by repeated self-composition.

    Where B(inf) of T x T would be more than 2.2 times that of T, and more than is free, T is
    squared first.

    Args:
        buckets: the tree of one run.
        runs: how many, >= 1.
        free_infty_budget: B(inf) may grow up to here and nothing is squared.

    Raises:
        ParameterError: a parameter is out of its range.

    Source: Figure 10 and section 4.6.
    """
    runs = positive_count(runs=runs)
    free = non_negative(free_infty_budget=free_infty_budget)
    powers = [buckets]  # of 1, 2, 4, ... runs
    for _ in range(runs.bit_length() - 1):
        powers.append(_together(powers[-1], powers[-1], free))
    chosen = (power for bit, power in enumerate(powers) if runs >> bit & 1)
    return functools.reduce(lambda a, b: _together(a, b, free), chosen)


def _together(a: Buckets, b: Buckets, free: float) -> Buckets:
    """a x b, after the squarings that make their factors equal and keep B(inf) small."""
    while a.log_factor < b.log_factor:
        a = a.squared()
    while b.log_factor < a.log_factor:
        b = b.squared()
    if a.infinity_with(b) > max(GROWTH * (a.infinity + b.infinity), free):
        a, b = a.squared(), b.squared()
    return a.compose(b)


def _product(a: FloatArray, b: FloatArray) -> FloatArray:
    """The sums over j + k = i, below -n in bucket -n; above n they are left out."""
    n = a.size // 2
    j, k = _support(a), _support(b)
    total = np.zeros(4 * n + 1)  # -2n .. 2n
    total[j.start + k.start : j.stop + k.stop - 1] = convolve_directly(a[j], b[k])
    total[n] = np.sum(total[: n + 1])  # guard: bucket-n-keeps-clamped
    return total[n : 3 * n + 1]


def _support(a: FloatArray) -> slice:
    """From the first to the last entry that is not 0 (one entry, if there is none)."""
    positive = np.flatnonzero(a)
    return slice(positive[0], positive[-1] + 1) if positive.size else slice(0, 1)


# ------------------------------------------------------------------------------- leaves


@dataclass(frozen=True)
class _Outputs:
    """Groups of outputs, each of which goes to one bucket."""

    place: NDArray[np.intp]  # (k,) 0 .. 2n for bucket -n .. n, 2n + 1 for bucket inf
    a: Enclosure  # (k,) A-masses
    b: Enclosure  # (k,) what counts as B-mass: the real one's lower, the virtual one's upper bound
    misplaced: float  # by how much a loss may exceed its bucket's, nats


def _leaf(pair: Pair, log_factor: float, n: int) -> Buckets:
    """A pair's outputs in buckets.

    What only A can produce is infinite, and so is mass that is not known well enough. What
    only B can produce is left out: it adds nothing to a delta of A against B.
    """
    edges: FloatArray = np.arange(-n, n + 1, dtype=np.float64) * log_factor
    reach = float(edges[-1])
    parts = [_atoms(pair.atoms(), edges)]
    bins = pair.bins(edges, 2 * UNIT * np.abs(edges))
    if bins is not None:
        parts.append(_bins(bins, edges))
    place = np.concatenate([part.place for part in parts])
    a, b = stack(*(part.a for part in parts)), stack(*(part.b for part in parts))
    within = place < edges.size
    known = np.where(within, np.minimum(a.upper, a.lower * (1 + _KNOWN)), 0.0)
    kept = known > 0.0
    # guard: only-produce-infinite
    infinity = add_up(float(pair.p_only().upper[0]), sum_up((a.upper - known) * (1 + 2 * UNIT)))

    def summed(x: FloatArray) -> FloatArray:
        found = np.bincount(place[kept], x[kept], edges.size)
        return np.asarray(found, dtype=np.float64)

    with np.errstate(invalid="ignore"):
        unknown = float(np.max(known / a.lower - 1.0, initial=0.0, where=kept))
    rounding = unknown + max(part.misplaced for part in parts)  # guard: loss-counts-edge-above
    rounding += (float(np.max(np.bincount(place))) + 16.0 + 4.0 * reach) * 2 * UNIT
    return Buckets(
        log_factor, summed(known), summed(b.upper), summed(b.lower), min(1.0, infinity), 1, rounding
    )._swept()


def _atoms(atoms: Atoms, edges: FloatArray) -> _Outputs:
    losses = atoms.loss_upper
    near = _NEAR * edges[-1]
    place = np.searchsorted(edges + near, losses)  # the first edge that is not below
    above = losses - np.append(edges, np.inf)[place]
    # in bucket -n there is no real error: B counts as if the loss were -n ln f
    quotient = Enclosure(
        exp_enclosure(-np.maximum(losses, edges[0])).lower, exp_enclosure(-atoms.loss_lower).upper
    )  # guard: real-error-forgets-leaf-puts
    b = atoms.p * quotient
    return _Outputs(
        place,
        atoms.p,
        Enclosure(b.lower, np.minimum(b.upper, np.maximum(b.lower, atoms.q.upper))),
        float(np.max(above, initial=0.0)),
    )


def _bins(bins: Bins, edges: FloatArray) -> _Outputs:
    # the reference of a bin is its right edge, of the one beyond f^n the left one
    right = np.append(edges, edges[-1])
    at = exp_enclosure(-right, 2 * UNIT * np.abs(right))
    lower = np.minimum(bins.w.lower, exp_enclosure(edges[1] - edges[0]).upper)
    lower[0] = 1.0  # in bucket -n there is no real error
    b = bins.p * Enclosure(lower, bins.w.upper) * at
    most = np.minimum(1.0, (bins.q * at).upper)
    return _Outputs(
        np.arange(right.size),
        bins.p,
        Enclosure(b.lower, np.maximum(b.lower, np.minimum(b.upper, most))),
        4 * UNIT * float(edges[-1]),
    )


def _reach(mechanism: Mechanism, lost: float) -> float:
    """A loss that a run exceeds with probability ``lost`` in no direction, about; for planning."""
    reach = 0.0
    for direction in Direction:
        sketch = mechanism.pair(direction).sketch().sorted()
        above = np.cumsum(np.exp(sketch.log_masses[::-1]))
        usual = sketch.losses[::-1][above > lost]
        reach = max(reach, float(np.max(np.abs(usual[:1]), initial=0.0)))
    return reach or 1.0


def _log(factor: float) -> float:
    """ln f."""
    f = finite(factor=factor)
    if not f > 1.0:
        raise refuse("factor", "be > 1", factor)
    return math.log(f)


def _even(n: int) -> int:
    """n, an even number of buckets on each side."""
    checked = positive_count(n=n)
    if checked % 2:
        raise refuse("n", "be even", n)
    return checked
