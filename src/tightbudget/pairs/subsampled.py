"""Poisson subsampling of any pair."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tightbudget.errors import ParameterError, RelationError
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.numerics.validate import probability
from tightbudget.pairs.atomic import AtomicPair
from tightbudget.pairs.pair import (
    Atoms,
    Cells,
    Direction,
    Mechanism,
    Neighbouring,
    Pair,
    Sketch,
    zero,
)

__all__ = ["Subsampled"]


@dataclass(frozen=True)
class Subsampled(Mechanism):
    """Runs ``base`` on a random subset that contains each record with probability ``rate``.

    Guarantee: holds for neighbours that differ by the presence of one record
    (``Neighbouring.ADD_OR_REMOVE``), in both directions, tracked separately; the base's
    pair must be stated for the same relation (record present against absent).
    Source: Zhu, Dong, Wang 2022 (dominating pairs), Theorem 11.

    Args:
        base: any mechanism.
        rate: the sampling rate q in [0, 1].

    Raises:
        ParameterError: ``rate`` is not in [0, 1] or ``base`` is not a mechanism.
        RelationError: ``base`` was declared for another relation.
    """

    base: Mechanism
    rate: float

    kind: ClassVar[str] = "subsampled"

    def __post_init__(self) -> None:
        if self.relation is None:
            self._set(relation=Neighbouring.ADD_OR_REMOVE)
        super().__post_init__()
        if not isinstance(self.base, Mechanism):
            raise ParameterError(f"base must be a mechanism, got {self.base!r}")
        self._set(rate=probability(rate=self.rate))
        for relation in (self.relation, self.base.relation):
            if relation not in (None, Neighbouring.ADD_OR_REMOVE):
                raise RelationError(
                    f"Poisson subsampling holds for {Neighbouring.ADD_OR_REMOVE}, "
                    f"but {relation} was declared"
                )

    def is_symmetric(self) -> bool:
        return self.rate in (0.0, 1.0) and self.base.is_symmetric()

    def pair(self, direction: Direction) -> Pair:
        base = self.base.pair(direction)
        if self.rate == 1.0:
            return base
        if self.rate == 0.0:
            return AtomicPair.from_masses(exact(1.0), exact(1.0))
        return (RemovePair if direction is Direction.REMOVE else AddPair)(base, self.rate)

    def parameters(self) -> dict[str, Any]:
        return {"rate": self.rate}


@dataclass(frozen=True)
class _SubsampledPair(Pair):
    base: Pair
    q: float

    def _mapped_atoms(self, p: Enclosure, q: Enclosure, sign: float) -> Atoms:
        atoms = self.base.atoms()
        # L' = sign * log1p(q expm1(sign L)), increasing in L
        at = _mixed_log(self.q, sign)
        return Atoms(
            p,
            q,
            loss_lower=_lower(at(atoms.loss_lower)),
            loss_upper=_upper(at(atoms.loss_upper)),
        )


def _mixed_log(q: float, sign: float) -> Callable[[FloatArray], FloatArray]:
    # ln(1 - q + q e^l); beyond e^700 it is l + ln q
    def at(losses: FloatArray) -> FloatArray:
        l = sign * losses
        small = np.log1p(q * np.expm1(np.minimum(l, 700.0)))
        return np.asarray(sign * np.where(l > 700.0, l + math.log(q) if q else 0.0, small))

    return at


# expm1, the product and log1p are each within 2 units in the last place, and
# t -> log1p(t) has condition number <= 1/(1 - q) for t > -q; granted: 32 units
# relative, plus the absolute rounding of 1 - q where the loss is near ln(1 - q)
def _lower(x: FloatArray) -> FloatArray:
    return np.asarray(x - 32 * UNIT * np.abs(x))


def _upper(x: FloatArray) -> FloatArray:
    return np.asarray(x + 32 * UNIT * np.abs(x))


def _mapped_edges(
    x: FloatArray, slack: FloatArray, q: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """y = ln((e^x - (1 - q)) / q), its slack, and which edges lie above ln(1 - q)."""
    v = np.expm1(np.minimum(x, 700.0)) / q
    dv = 4 * UNIT * np.abs(v) + 1.01 * slack * (np.abs(v) + 1.0 / q)
    inside = np.asarray(1.0 + v > 4 * dv)
    safe = np.where(inside, v, 0.0)
    y = np.where(x > 600.0, x - math.log(q), np.log1p(safe))
    dy = np.where(x > 600.0, slack, 1.5 * dv / (1.0 + safe)) + 8 * UNIT * (np.abs(y) + np.abs(x))
    return y, dy, inside


@dataclass(frozen=True)
class RemovePair(_SubsampledPair):
    """((1 - q) Q + q P, Q) for the base (P, Q): L' = ln(1 - q + q e^L) >= ln(1 - q)."""

    def atoms(self) -> Atoms:
        q, base = self.q, self.base.atoms()
        mixed = base.q * exact(1 - q) * _ONE_MINUS + base.p.scaled(q)
        atoms = self._mapped_atoms(mixed, base.q, +1.0)
        lost = self.base.q_only()  # outputs that only Q has: L' = ln(1 - q)
        if lost.upper[0] > 0:
            floor = np.array([math.log1p(-q)])
            mass = lost * exact(1 - q) * _ONE_MINUS
            atoms = atoms.join(Atoms(mass, lost, _lower(floor), _upper(floor)))
        return atoms

    def cells(self, edges: FloatArray, slack: FloatArray) -> Cells | None:
        q = self.q
        y, dy, inside = _mapped_edges(edges, slack, q)
        if not inside[-1]:  # every edge is below every loss: look one nat further, then merge
            more = self.cells(np.append(edges, abs(edges[-1]) + 1.0), np.append(slack, 0.0))
            return more and more.merged(edges.size, edges, slack, edges.size)
        first = int(np.argmax(inside))
        base = self.base.cells(y[first:], dy[first:])
        if base is None:
            return None
        base_reference = np.append(y[first:], y[-1])
        reference = np.append(edges[first:], edges[-1])
        mix = exact(np.full(len(base.p), 1 - q)) * _ONE_MINUS
        p = base.q * exp_enclosure(-base_reference) * mix + base.p.scaled(q)
        # w' = e^r' Q / ((1 - q) Q + q P) with P / Q = e^r / w
        odds = (exp_enclosure(base_reference - reference) / base.w).scaled(q)
        w = exact(np.ones(len(p))) / (mix * exp_enclosure(-reference) + odds)
        qs = base.q * exp_enclosure(reference - base_reference)
        pad = exact(np.zeros(first))
        return Cells.of(
            _after(pad, p), _after(pad, qs), _after(exact(np.ones(first)), w), edges, slack
        )

    def p_only(self) -> Enclosure:
        return self.base.p_only().scaled(self.q)

    def q_only(self) -> Enclosure:
        return zero()

    def max_loss(self) -> tuple[float, float]:
        lower, upper = self.base.max_loss()
        at = _mixed_log(self.q, +1.0)
        if math.isinf(upper):
            return lower, upper
        ends = np.array([lower, upper])
        return float(_lower(at(ends))[0]), float(_upper(at(ends))[1])

    def grid_origin(self) -> float | None:
        return math.log1p(-self.q)

    def sketch(self) -> Sketch:
        base, q = self.base.sketch(), self.q
        log_q_mass = base.log_masses - base.losses
        log_p = np.logaddexp(math.log1p(-q) + log_q_mass, _log(q) + base.log_masses)
        return _with_atoms(Sketch(_mixed_log(q, +1.0)(base.losses), log_p), self)

    def log_tail_moment(self, x: float, s: float) -> float:
        if math.isfinite(self.max_loss()[1]):
            return super().log_tail_moment(x, s)
        # for L >= 0: P' <= P and L' <= L; x' >= 0 means L >= x
        return self.base.log_tail_moment(x, s) if x >= 0 else math.inf


@dataclass(frozen=True)
class AddPair(_SubsampledPair):
    """(P, (1 - q) P + q Q) for the base (P, Q): L' = -ln(1 - q + q e^-L) <= -ln(1 - q)."""

    def atoms(self) -> Atoms:
        q, base = self.q, self.base.atoms()
        mixed = base.p * exact(1 - q) * _ONE_MINUS + base.q.scaled(q)
        atoms = self._mapped_atoms(base.p, mixed, -1.0)
        lost = self.base.p_only()  # outputs that only P has: L' = -ln(1 - q)
        if lost.upper[0] > 0:
            top = np.array([-math.log1p(-q)])
            mass = lost * exact(1 - q) * _ONE_MINUS
            atoms = atoms.join(Atoms(lost, mass, _lower(top), _upper(top)))
        return atoms

    def cells(self, edges: FloatArray, slack: FloatArray) -> Cells | None:
        q = self.q
        minus_y, dy, inside = _mapped_edges(-edges, slack, q)
        y = -minus_y
        n = int(np.sum(inside))  # the edges below -ln(1 - q) come first
        if n == 0:  # every edge is above every loss: look one nat further, then merge
            more = self.cells(np.append(-abs(edges[0]) - 1.0, edges), np.append(0.0, slack))
            return more and more.merged(0, edges, slack, 0)
        base = self.base.cells(y[:n], dy[:n])
        if base is None:
            return None
        base_reference = np.append(y[:n], y[n - 1])
        reference = np.append(edges[:n], edges[min(n, edges.size - 1)])
        mix = exact(np.full(n + 1, 1 - q)) * _ONE_MINUS
        # w' = e^r' ((1 - q) P + q Q) / P with Q / P = w e^-r
        odds = (base.w * exp_enclosure(reference - base_reference)).scaled(q)
        w = mix * exp_enclosure(reference) + odds
        qs = base.p * w
        pad = exact(np.zeros(edges.size - n))
        ones = exact(np.ones(edges.size - n))
        return Cells.of(_after(base.p, pad), _after(qs, pad), _after(w, ones), edges, slack)

    def p_only(self) -> Enclosure:
        return zero()

    def q_only(self) -> Enclosure:
        return self.base.q_only().scaled(self.q)

    def max_loss(self) -> tuple[float, float]:
        q = self.q
        ends = np.array(self.base.max_loss())
        if self.base.p_only().upper[0] > 0:
            ends[:] = math.inf
        top = -math.log1p(-q)
        with np.errstate(over="ignore"):
            mapped = np.where(np.isinf(ends), top, _mixed_log(q, -1.0)(np.minimum(ends, 1e300)))
        return float(_lower(mapped)[0]), float(_upper(mapped)[1])

    def grid_origin(self) -> float | None:
        return -math.log1p(-self.q)

    def sketch(self) -> Sketch:
        base, q = self.base.sketch(), self.q
        return _with_atoms(Sketch(_mixed_log(q, -1.0)(base.losses), base.log_masses), self)


_ONE_MINUS = Enclosure(np.array([1 - 2 * UNIT]), np.array([1 + 2 * UNIT]))  # rounding of 1 - q


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _after(first: Enclosure, second: Enclosure) -> Enclosure:
    return Enclosure(
        np.concatenate([first.lower, second.lower]), np.concatenate([first.upper, second.upper])
    )


def _with_atoms(sketch: Sketch, pair: _SubsampledPair) -> Sketch:
    # the base's sketch has its own atoms; only the outputs that one side lacks are new
    base = pair.base
    lost = base.q_only() if isinstance(pair, RemovePair) else base.p_only()
    if lost.upper[0] == 0:
        return sketch
    sign = 1.0 if isinstance(pair, RemovePair) else -1.0
    at = sign * math.log1p(-pair.q)
    mass = lost.upper[0] * ((1 - pair.q) if isinstance(pair, RemovePair) else 1.0)
    return Sketch(np.append(sketch.losses, at), np.append(sketch.log_masses, math.log(mass)))
