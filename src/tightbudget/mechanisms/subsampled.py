"""A mechanism on a Poisson sample: each pair of the base has one side mixed with the other."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightbudget.mechanisms.composition import Composable, Mechanism
from tightbudget.mechanisms.derived import Derived
from tightbudget.mechanisms.gaussian_path import log_moment
from tightbudget.mechanisms.gaussian_transform import NormalTransform
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.mechanisms.unhidden import Unhidden
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure, stack
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_up,
    log_up,
    mul_down,
    mul_up,
    sub_down,
)
from tightbudget.numerics.validate import probability, refuse
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Bins, Pair, Sketch, zero
from tightbudget.pairs.transform import Transform

_SMALL_MOMENT = 0.1  # of ln M, below which M - 1 has a digit more than M. Affects no truth


@dataclass(frozen=True)
class Subsampled(Derived):
    """Runs ``base`` on a random subset that contains each record with probability ``rate``.

    Guarantee: holds for neighbours that differ by the presence of one record
    (``Neighbouring.ADD_OR_REMOVE``), in both directions, tracked separately; the base's
    pair must be stated for the same relation (record present against absent). A base that is
    declared for ``Neighbouring.ZERO_OUT`` must take a zeroed record for an absent one, as sums do:
    in an epoch of shuffled batches, a record that is not in the sample leaves its place empty.
    Source: Zhu, Dong, Wang 2022 (dominating pairs), Theorem 11.

    Args:
        base: any mechanism.
        rate: the sampling rate q in [0, 1], called sampling probability, too.

    Raises:
        ParameterError: ``rate`` is not 0 or in [1e-100, 1], or ``base`` is not a mechanism.
        RelationError: ``base`` was declared for another relation.
    """

    rate: float

    kind: ClassVar[str] = "subsampled"
    key: ClassVar[str] = "rate"

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = probability(rate=self.rate)
        if 0 < rate < 1e-100:
            raise refuse("rate", "be 0 or in [1e-100, 1]", self.rate)
        way = "Poisson subsampling"
        relation = Neighbouring.of_presence(way, self.relation, self.base.relation)
        self._set(rate=rate, relation=relation)

    def is_symmetric(self) -> bool:
        return self.rate in (0.0, 1.0) and self.base.is_symmetric()

    def is_mutual(self) -> bool:
        return self.rate == 0.0 or self.base.is_mutual()

    def pair(self, direction: Direction) -> Pair:
        if self.rate == 0.0:
            return AtomicPair.from_masses(exact(1.0), exact(1.0))
        # guard: others-in-the-sample
        base = self.base.pair_in_sample(direction, self.rate)
        if self.rate == 1.0:
            return base
        # guard: direction-record-removed
        return (RemovePair if direction is Direction.REMOVE else AddPair)(base, self.rate)

    def worst_of_order(self, order: float) -> Mechanism | None:
        worst = self.base.worst_of_order(order)
        if not isinstance(worst, Unhidden):
            return None
        # a sample of what dominates the base dominates a sample of the base
        above = worst.above if worst.relation is None else worst.above.under(worst.relation)
        return Unhidden(self, dataclasses.replace(self, base=above), relation=self.relation)

    def instance(self) -> Composable | None:
        """Returns a sample of the base's instance where no other record matters, else nothing.

        The data sets that attain an instance of the base need not attain its sample: their other
        records are sampled, too. Where they contribute 0 (``instance_alone``), a sample of them is
        the same.
        """
        attained = self.base.instance()
        if attained is None or self.rate == 0.0:
            return None
        alone = self.base.instance_alone() if self.rate < 1.0 else None
        if alone is not None:
            declared = alone if self.base.relation is None else alone.under(self.base.relation)
            return dataclasses.replace(self, base=declared)
        # guard: sample-attains-nothing
        return attained if self.rate == 1.0 else dataclasses.replace(self, rate=0.0)

    @property
    def apart(self) -> str:
        if self.rate == 1.0 or self.base.instance() is None:
            return self.base.apart_inside if self.rate else ""
        base = self.base.apart_inside or "what other records take part in"
        return f"a sample of {base}" if self.rate else ""

    def finer(self, halvings: int) -> Mechanism:
        if self.rate < 1.0:
            return self
        return dataclasses.replace(self, base=self.base.finer(halvings))

    def __repr__(self) -> str:
        return f"{self.base!r}.subsampled({self.rate!r})"


@dataclass(frozen=True)
class _SubsampledPair(Pair):
    """A base pair of which one side was mixed with the other, at the sampling rate q."""

    base: Pair
    q: float

    direction: ClassVar[Direction]

    @property
    def keep(self) -> Enclosure:
        """The enclosure of 1 - q, which rounds."""
        kept, off = np.array([1 - self.q]), 2 * UNIT  # pays: sampled-rest
        return Enclosure(kept * (1 - off), kept * (1 + off))

    def transform(self) -> Transform | None:
        base = self.base.transform()
        return None if base is None else base.sampled(self.q, self.direction)

    def log_moment(self, s: float) -> tuple[float, float]:
        base = self.base.transform()
        if not isinstance(base, NormalTransform) or not 1e-15 <= self.q <= 1.0 - 1e-9:
            return super().log_moment(s)
        low, high = log_moment(base.m, self.q, self.direction is Direction.REMOVE, s)
        if not high < _SMALL_MOMENT:
            return low, high
        # M - 1 is known to as many digits as M is, which are more of a small ln M
        sampled = base.sampled(self.q, self.direction)
        if sampled is None or s > sampled.farthest:
            return low, high
        line = sampled.line(s, np.zeros(1), max(1e-15 * high, 1e-40))
        log, off = float(line.log[0].real), float(line.error[0])
        if not off < 0.1:
            return low, high
        # ln(2 - e^x) >= -x (1 + 2 x) for 0 <= x < 0.1
        off = mul_up(off, 1.0 + 2.0 * off)
        return max(low, sub_down(log, off)), min(high, add_up(log, off))

    def sums_to_one(self) -> bool:
        return self.base.sums_to_one()

    def dominating_both(self, other: Pair) -> Pair | None:
        # What turns one base into another does so with their mixtures. A smaller rate, too, is a
        # post-processing: an output is replaced by one without the record, sometimes.
        if not isinstance(other, _SubsampledPair) or type(other) is not type(self):
            return None
        base = self.base.dominating_both(other.base)
        if base is None:
            return None
        return type(self)(base, max(self.q, other.q))  # guard: larger-rate-above

    def reversed(self) -> Pair | None:
        base = self.base.reversed()
        if base is None:
            return None
        return (AddPair if self.direction is Direction.REMOVE else RemovePair)(base, self.q)

    def _base_bins(self, y: FloatArray, dy: FloatArray) -> tuple[Bins, FloatArray] | None:
        """The base's bins for edges y, and their references; one bin where there are no edges."""
        if y.size:
            bins = self.base.bins(y, dy)
            return None if bins is None else (bins, np.append(y, y[-1]))
        bins = self.base.bins(np.zeros(1), np.zeros(1))
        if bins is None:
            return None
        p, q = bins.p[0] + bins.p[1], bins.q[0] + bins.q[1]
        return Bins(p, q, q / p), np.zeros(1)


@dataclass(frozen=True)
class RemovePair(_SubsampledPair):
    """The pair ((1 - q) Q + q P, Q) for a base (P, Q): L' = ln(1 - q + q e^L) >= ln(1 - q)."""

    direction = Direction.REMOVE

    def atoms(self) -> Atoms:
        base = self.base.atoms()
        mixed = base.q * self.keep + base.p.scaled(self.q)
        atoms = Atoms(
            mixed,
            base.q,
            loss_lower=_mixed_log(self.q, base.loss_lower)[0],
            loss_upper=_mixed_log(self.q, base.loss_upper)[1],
        )
        lost = self.base.q_only()  # outputs that only Q has: L' = ln(1 - q)
        if lost.upper[0] > 0:
            floor = _mixed_log(self.q, np.array([-np.inf]))
            atoms = atoms.join(Atoms(lost * self.keep, lost, *floor))
        return atoms

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins | None:
        q = self.q
        y, dy = _unmixed_log(q, edges, slack)
        # nothing lies below ln(1 - q); an edge that may be there ends an empty bin
        outside = np.flatnonzero(np.isinf(y))
        first = int(outside[-1]) + 1 if outside.size else 0
        based = self._base_bins(y[first:], dy[first:])
        if based is None:
            return None
        base, base_reference = based
        reference = np.append(edges, edges[-1])[first:]
        p = (base.q * exp_enclosure(-base_reference)).clipped(0, 1) * self.keep + base.p.scaled(q)
        # w' = e^r' Q / ((1 - q) Q + q P) with P / Q = e^r / w
        odds = _exp_difference(base_reference, reference).scaled(q) / base.w
        w = exact(1.0) / (self.keep * exp_enclosure(-reference) + odds)
        qs = base.q * _exp_difference(reference, base_reference)
        # 1 / w' - 1 = (e^-r' - 1) + q e^-r' (P / Q - 1)
        low, high = _mixed(q, -reference, exp_enclosure(base_reference) / base.w)
        nothing, zeros = exact(np.zeros(first)), np.zeros(first)
        ones = exact(np.ones(first))
        with np.errstate(all="ignore"):
            # w' - 1, which has no bound where 1 / w' may be 0, and 1 - w'
            above = np.where(1 + low > 0, -low / (1 + low), np.inf)
            below = high / (1 + high)
        over = tuple(np.append(zeros, one) for one in (-_above(below), _above(above)))
        return Bins(stack(nothing, p), stack(nothing, qs), stack(ones, w), (over[0], over[1]))

    def p_only(self) -> Enclosure:
        return self.base.p_only().scaled(self.q)

    def q_only(self) -> Enclosure:
        return zero()

    def max_loss(self) -> tuple[float, float]:
        lower, upper = _mixed_log(self.q, np.array(self.base.max_loss()))
        return float(lower[0]), float(upper[1])

    def grid_origin(self) -> float:
        return math.log1p(-self.q)

    def closed_delta(self, epsilon: float) -> tuple[float, float] | None:
        # (1 - q) Q + q P - e^eps Q = q (P - e^y Q) with e^y = 1 + (e^eps - 1) / q
        if epsilon > 600.0:
            return None
        v = math.expm1(epsilon) / self.q
        return _moved(self.base, self.q, v, 4 * UNIT * abs(v))

    def sketch(self) -> Sketch:
        base, q = self.base.sketch(), self.q
        log_q_mass = base.log_masses - base.losses
        log_p = np.logaddexp(math.log1p(-q) + log_q_mass, math.log(q) + base.log_masses)
        sketch = Sketch(_mixed_log(q, base.losses)[1], log_p)
        return _with(sketch, math.log1p(-q), self.base.q_only().upper[0] * (1 - q))

    def log_tail_moment(self, x: float, s: float) -> tuple[float, float]:
        if math.isfinite(self.max_loss()[1]):
            return super().log_tail_moment(x, s)
        # L' > x means L > y; there q e^L <= e^L' <= c e^L and q P <= P' <= c P for
        # c = q + (1 - q) e^-y
        y, dy = _unmixed_log(self.q, np.array([x]), np.zeros(1))
        below, above = float(y[0] - dy[0]), float(y[0] + dy[0])
        if not below > -600.0:
            return -math.inf, math.inf
        log_c = math.log(self.q + (1 - self.q) * math.exp(-below)) + 1e-12
        least = (s + 1.0) * (math.log(self.q) - 1e-12) + self.base.log_tail_moment(above, s)[0]
        most = (s + 1.0) * log_c + self.base.log_tail_moment(below, s)[1]
        return least - 1e-12, most + 1e-12

    def log_rest(self, s: float) -> float:
        # H(p, q) = p^(s + 1) q^-s - (s + 1) p + s q >= 0 is convex and H(c p, c q) = c H(p, q), so
        # that H((1 - q) Q + q P, (1 - q) Q + q Q) <= (1 - q) H(Q, Q) + q H(P, Q) = q H(P, Q)
        return add_up(self.base.log_rest(s), log_up(self.q))


@dataclass(frozen=True)
class AddPair(_SubsampledPair):
    """The pair (P, (1 - q) P + q Q) for a base (P, Q): L' = -ln(1 - q + q e^-L) <= -ln(1 - q)."""

    direction = Direction.ADD

    def atoms(self) -> Atoms:
        base = self.base.atoms()
        mixed = base.p * self.keep + base.q.scaled(self.q)
        atoms = Atoms(
            base.p,
            mixed,
            loss_lower=-_mixed_log(self.q, -base.loss_lower)[1],
            loss_upper=-_mixed_log(self.q, -base.loss_upper)[0],
        )
        lost = self.base.p_only()  # outputs that only P has: L' = -ln(1 - q)
        if lost.upper[0] > 0:
            floor, ceiling = _mixed_log(self.q, np.array([-np.inf]))
            atoms = atoms.join(Atoms(lost, lost * self.keep, -ceiling, -floor))
        return atoms

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins | None:
        q = self.q
        minus_y, dy = _unmixed_log(q, -edges, slack)
        # nothing lies above -ln(1 - q); what may be below or above an edge counts as above it
        outside = np.flatnonzero(np.isinf(minus_y))
        n = int(outside[0]) if outside.size else edges.size
        beyond = n + int(np.sum(edges[n:] - slack[n:] <= _mixed_log_end(q)))
        minus_y, dy, right = minus_y[:n], dy[:n], edges[:n]
        # what is clearly below the first such edge stays in the bin below it
        if beyond > n:  # guard: below-largest-loss
            minus_c, dc = _unmixed_log(q, *_clear_of_end(q, -edges[n : n + 1], slack[n : n + 1]))
            if np.isfinite(minus_c[0]) and not (n and minus_c[0] >= minus_y[-1]):
                minus_y, dy = np.append(minus_y, minus_c), np.append(dy, dc)
                right = edges[: n + 1]
        based = self._base_bins(-minus_y, dy)
        if based is None:
            return None
        base, base_reference = based
        # the last bin of the base holds everything up to the largest loss
        reference = np.append(right, edges[min(beyond, edges.size - 1)])
        # w' = e^r' ((1 - q) P + q Q) / P with Q / P = w e^-r
        stay, shift = (
            self.keep * exp_enclosure(reference),
            _exp_difference(reference, base_reference),
        )
        w = stay + (base.w * shift).scaled(q)
        qs = base.p * stay + (base.q * shift).scaled(q)
        # w' - 1 = (e^r' - 1) + q e^r' (Q / P - 1)
        low, high = _mixed(q, reference, base.w * exp_enclosure(-base_reference))
        below = right.size
        between, after = beyond - below, edges.size - beyond

        def spread(part: Enclosure, filler: float) -> Enclosure:
            gap, rest = exact(np.full(between, filler)), exact(np.full(after, filler))
            return stack(part[:below], gap, part[below:], rest)

        def placed(bound: FloatArray) -> FloatArray:
            gap, rest = np.zeros(between), np.zeros(after)
            return np.concatenate([bound[:below], gap, bound[below:], rest])

        over = placed(low), placed(high)
        return Bins(spread(base.p, 0.0), spread(qs, 0.0), spread(w, 1.0), over)

    def p_only(self) -> Enclosure:
        return zero()

    def q_only(self) -> Enclosure:
        return self.base.q_only().scaled(self.q)

    def max_loss(self) -> tuple[float, float]:
        lower, upper = self.base.max_loss()
        only = self.base.p_only()  # outputs with the largest loss of all
        ends = np.array(
            [np.inf if only.lower[0] > 0 else lower, np.inf if only.upper[0] > 0 else upper]
        )
        low, high = _mixed_log(self.q, -ends)
        return float(-high[0]), float(-low[1])

    def grid_origin(self) -> float:
        return -math.log1p(-self.q)

    def closed_delta(self, epsilon: float) -> tuple[float, float] | None:
        # P - e^eps ((1 - q) P + q Q) = c (P - e^y Q) with c = 1 - e^eps (1 - q), which is
        # q e^eps - (e^eps - 1), and e^y = q e^eps / c = 1 + (e^eps - 1) / c
        if epsilon > 600.0:
            return None
        beyond, part = math.expm1(epsilon), self.q * math.exp(epsilon)
        c, off = part - beyond, 4 * UNIT * (part + abs(beyond))
        if not c > 1e6 * off:  # the largest loss is near: too little is left of c
            return None
        v, wrong = beyond / c, off / c  # guard: left-1-rounded
        found = _moved(self.base, c, v, abs(v) * (1.01 * wrong + 4 * UNIT))
        if found is None:
            return None
        return found[0] * (1 - 1.01 * wrong), found[1] * (1 + 1.01 * wrong)

    def sketch(self) -> Sketch:
        base, q = self.base.sketch(), self.q
        sketch = Sketch(-_mixed_log(q, -base.losses)[0], base.log_masses)
        return _with(sketch, -math.log1p(-q), self.base.p_only().upper[0])


def _moved(base: Pair, factor: float, v: float, off: float) -> tuple[float, float] | None:
    """Bounds of factor times the base's closed delta at ln(1 + v), where v is off by ``off``."""
    if not (1.0 + v > 1e-3 and v < 1e200):  # -1 + a little: the logarithm loses its digits
        return None
    y = math.log1p(v)
    reach = 1.01 * off / (1.0 + v) + 8 * UNIT * abs(y)
    high, low = base.closed_delta(y - reach), base.closed_delta(y + reach)
    if high is None or low is None:
        return None
    return mul_down(factor, max(0.0, low[0])), mul_up(factor, max(0.0, high[1]))


def _mixed_log(q: float, loss: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds of ln(1 - q + q e^l), for 0 < q < 1 and a loss l in [-inf, inf]."""
    t = q * np.expm1(np.minimum(loss, 300.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        # log1p(t) loses digits where 1 + t does; there 1 - q + q e^l is a sum without cancellation
        y = np.where(
            t > -0.5,
            np.log1p(np.maximum(t, -0.5)),
            np.log((1 - q) + q * np.exp(np.minimum(loss, 0.0))),
        )
        far = np.logaddexp(math.log1p(-q), math.log(q) + loss)
    y = np.where(loss > 300.0, far, y)
    # expm1, the product and log1p are each within 2 ulps, and log1p has a condition number
    # below 2 for t > -1/2; far out the sum math.log(q) + l rounds
    margin = 32 * UNIT * np.abs(y)
    finite = np.where((loss > 300.0) & (loss < np.inf), loss - math.log(q), 0.0)
    margin = np.where(loss == np.inf, 0.0, margin + 4 * UNIT * finite)
    return y - margin, y + margin


def _mixed_log_end(q: float) -> float:
    """An upper bound of -ln(1 - q)."""
    return float(-_mixed_log(q, np.array([-np.inf]))[0][0])


def _unmixed_log(q: float, x: FloatArray, slack: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The loss y = ln((e^x - (1 - q)) / q) and its slack; -inf where there may be no such loss."""
    floor = math.log1p(-q)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        v = np.expm1(np.minimum(x, 300.0)) / q
        dv = 4 * UNIT * np.abs(v) + 1.01 * slack * (np.abs(v) + 1.0 / q)
        # where 1 + v loses digits: e^x - (1 - q) = (1 - q) (e^(x - ln(1 - q)) - 1)
        reach = slack + 4 * UNIT * (np.abs(x) + abs(floor))
        scale = (1 - q) / q
        g = scale * np.expm1(np.minimum(x, 1.0) - floor)
        dg = 8 * UNIT * np.abs(g) + 1.01 * reach * (np.abs(g) + scale)
        low = v < -0.5
        inside = np.where(low, g > 4 * dg, 1 + v > 4 * dv) & (slack <= 0.01)
        g = np.where(low, g, 1.0)
        y = np.where(low, np.log(np.where(inside, g, 1.0)), np.log1p(np.maximum(v, -0.5)))
        # -ln(1 - t) < 1.5 t for t <= 1/4
        dy = 1.5 * np.where(low, dg / g, dv / (1.0 + np.maximum(v, -0.5)))
        dy = np.where(x > 300.0, 1.5 * slack, dy)
        y = np.where(x > 300.0, x - math.log(q), y)
        dy += 8 * UNIT * (np.abs(y) + np.abs(x))
    return np.where(inside, y, -np.inf), dy


def _clear_of_end(q: float, x: FloatArray, slack: FloatArray) -> tuple[FloatArray, FloatArray]:
    """An x just so far above ln(1 - q) that :func:`_unmixed_log` inverts it, and its slack."""
    floor = math.log1p(-q)
    reach = slack + 4 * UNIT * (np.abs(x) + abs(floor))
    # that wants e^(x - floor) - 1 above 4.04 times such a reach, and the sum here may lose a
    # quarter of one. x itself may be 4.04 away: a lump is within some 10 reaches or 80 units of
    # 2^-53 of the largest loss, of the 128 that the Renyi divergence grants it
    return np.maximum(x, floor) + 6 * reach, np.zeros(x.size)  # guard: clear-of-largest-loss


def _exp_difference(x: FloatArray, y: FloatArray) -> Enclosure:
    """The enclosure of e^(x - y)."""
    d = x - y
    return exp_enclosure(d, UNIT * np.abs(d))


def _mixed(q: float, r: FloatArray, odds: Enclosure) -> tuple[FloatArray, FloatArray]:
    """Bounds of (1 - q) e^r + q e^r ``odds`` - 1, with the digits that a small q and r leave."""
    with np.errstate(all="ignore"):
        part = q * np.exp(r)
        low, high = odds.lower - 1.0, odds.upper - 1.0
        # exp and expm1 by 8 units, at most three products and differences, two sums of each term
        off = 16 * UNIT * (np.abs(np.expm1(r)) + part * np.maximum(np.abs(low), np.abs(high)))
        off += 2 * UNIT * part
        return np.expm1(r) + part * low - off, np.expm1(r) + part * high + off


def _above(x: FloatArray) -> FloatArray:
    """Above x, which two operations have rounded."""
    return np.asarray(x + 4 * UNIT * np.abs(x))


def _with(sketch: Sketch, loss: float, mass: float) -> Sketch:
    """The sketch with one more point, unless its mass is 0."""
    # the base's sketch has its own atoms; only the outputs that one side lacks are new
    if mass == 0:
        return sketch
    return Sketch(np.append(sketch.losses, loss), np.append(sketch.log_masses, math.log(mass)))
