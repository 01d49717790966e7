"""A public coin decides which one of two mechanisms runs."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from tightbudget.errors import ParameterError, RelationError
from tightbudget.mechanisms.approximate_dp import ApproximateDP
from tightbudget.mechanisms.composition import Composable, Mechanism
from tightbudget.mechanisms.weighted_transform import WeightedTransform
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.enclosure import Enclosure
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_down,
    add_up,
    double_up,
    mul_down,
    mul_up,
    next_down,
    next_up,
)
from tightbudget.numerics.validate import open_probability, refuse
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Bins, Pair, Sketch
from tightbudget.pairs.transform import Transform


# Proof: proofs/order.v, theorem mixtures
@dataclass(frozen=True)
class Either(Mechanism):
    """Runs ``first`` with a probability, else ``second``; everybody sees which one has run.

    Guarantee: delta(eps) of a direction is probability * delta_first(eps) +
    (1 - probability) * delta_second(eps), since the coin is part of the output and does not depend
    on the data. A coin that stays hidden reveals less, so that the upper bounds hold for it, too.

    Args:
        probability: of ``first``, in (0, 1).
        first: a mechanism.
        second: a mechanism.

    Raises:
        ParameterError: ``probability`` is not in (0, 1), or one of the two is no mechanism.
        RelationError: the two were declared for different neighbouring relations.
    """

    probability: float
    first: Mechanism
    second: Mechanism

    kind: ClassVar[str] = "either"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(probability=open_probability(probability=self.probability))
        for name in ("first", "second"):
            given = getattr(self, name)
            if isinstance(given, dict):  # a table of JSON
                given = Mechanism.from_dict(given, name)
                self._set(**{name: given})
            if isinstance(given, Composable) and not isinstance(given, Mechanism):
                hint = "be one mechanism, not a composition (compose the runs of either instead)"
                raise refuse(name, hint, given)
            if not isinstance(given, Mechanism):
                raise ParameterError(f"{name} must be a mechanism, got {given!r}")
        declared = [m.relation for m in (self, self.first, self.second) if m.relation is not None]
        for other in declared[1:]:
            if other is not declared[0]:
                raise RelationError(
                    f"mechanisms declared for {declared[0]} and for {other} are no either"
                )
        self._set(relation=declared[0] if declared else None)

    def __repr__(self) -> str:
        return f"either({self.probability!r}, {self.first!r}, {self.second!r})"

    def parameters(self) -> dict[str, Any]:
        return {
            "probability": self.probability,
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
        }

    def is_symmetric(self) -> bool:
        return self.first.is_symmetric() and self.second.is_symmetric()

    def is_mutual(self) -> bool:
        return self.first.is_mutual() and self.second.is_mutual()

    def pair(self, direction: Direction) -> Pair:
        p = self.probability
        return EitherPair(
            self.first.pair(direction),
            self.second.pair(direction),
            share=(p, p),
            rest=(next_down(1.0 - p), next_up(1.0 - p)),
        )

    def instance(self) -> Mechanism | None:
        first, second = self.first.instance(), self.second.instance()
        if first is None and second is None:
            return None
        return dataclasses.replace(
            self, first=_single(first, self.first), second=_single(second, self.second)
        )

    @property
    def apart(self) -> str:
        each = (self.first.apart_inside, self.second.apart_inside)
        return "; ".join(dict.fromkeys(said for said in each if said))

    def finer(self, halvings: int) -> Mechanism:
        return dataclasses.replace(
            self, first=self.first.finer(halvings), second=self.second.finer(halvings)
        )


def _single(instance: Composable | None, mechanism: Mechanism) -> Mechanism:
    """Returns the instance, one part of it where it has several, or the mechanism itself."""
    # one part reveals no more than all parts do, so that it bounds from below, too
    return mechanism if instance is None else instance.parts[0][0]


def either(probability: float, first: Mechanism, second: Mechanism) -> Either:
    """Runs ``first`` with ``probability``, else ``second``: see :class:`tightbudget.Either`.

    Raises:
        ParameterError: ``probability`` is not in (0, 1), or one of the two is no mechanism.
        RelationError: the two were declared for different neighbouring relations.
    """
    return Either(probability, first, second)


def either_within(chance: Bounds, first: Mechanism, second: Mechanism) -> Mechanism:
    """Makes a mechanism that dominates ``first`` with a chance between two bounds, else ``second``.

    Guarantee: for each chance p in [low, high] it dominates ``either(p, first, second)``, also
    where p is not known. It runs ``first`` with the chance low, else ``second``, but with the
    chance l = (high - low) / (1 - low) it reveals the record instead: (1 - l) low <= p and
    (1 - l) (1 - low) <= 1 - p.

    Args:
        chance: bounds of the chance, in [0, 1).
        first: what runs with that chance.
        second: what runs else.

    Raises:
        ParameterError: a bound of the chance is not in [0, 1).
        RelationError: the two were declared for different neighbouring relations.
    """
    low, high = chance.lower, chance.upper
    if not 0 <= low <= high < 1:
        raise refuse("chance", "have bounds in [0, 1)", chance)
    # guard: uncertain-chance-reveals
    lost = double_up((Fraction(high) - Fraction(low)) / (1 - Fraction(low)))
    parts = either(low, first, second) if low else second
    return either(lost, ApproximateDP(0.0, 1.0, relation=second.relation), parts) if lost else parts


@dataclass(frozen=True, eq=False)
class EitherPair(Pair):
    """The disjoint union of two pairs, each with a share of both masses.

    Attributes:
        first: the first pair.
        second: the second pair.
        share: lower and upper bound of the share of ``first``, > 0.
        rest: lower and upper bound of the share of ``second``, > 0; the exact shares sum to 1.
    """

    first: Pair
    second: Pair
    share: tuple[float, float]
    rest: tuple[float, float]

    @property
    def _each(self) -> tuple[tuple[Pair, Enclosure], ...]:
        """Each pair, with its share."""
        return (self.first, _enclosure(self.share)), (self.second, _enclosure(self.rest))

    def atoms(self) -> Atoms:
        first, second = (_scaled(pair.atoms(), share) for pair, share in self._each)
        return first.join(second)

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins | None:
        found = [(pair.bins(edges, slack), share) for pair, share in self._each]
        parts = [Bins(b.p * share, b.q * share, b.w) for b, share in found if b is not None]
        if len(parts) < 2:
            return parts[0] if parts else None
        a, b = parts
        p, q = a.p + b.p, a.q + b.q
        # w is the mean of both w by their P-masses: linear in the part of b, whose error the small
        # difference of both w makes small
        with np.errstate(all="ignore"):
            part = (b.p / p).clipped(0.0, 1.0)
            quotient = q / p

            def mean(x: FloatArray, y: FloatArray, at: FloatArray) -> FloatArray:
                return np.asarray(x * (1.0 - at) + y * at)

            low = [mean(a.w.lower, b.w.lower, at) for at in (part.lower, part.upper)]
            high = [mean(a.w.upper, b.w.upper, at) for at in (part.lower, part.upper)]
        lower = np.nan_to_num(np.minimum(*low), nan=0.0) * (1.0 - 8 * UNIT)
        upper = np.nan_to_num(np.maximum(*high), nan=np.inf, posinf=np.inf) * (1.0 + 8 * UNIT)
        lower = np.maximum(lower, np.minimum(a.w.lower, b.w.lower))
        upper = np.minimum(upper, np.maximum(a.w.upper, b.w.upper))
        return Bins(p, q, quotient.clipped(lower, upper))

    def p_only(self) -> Enclosure:
        first, second = (pair.p_only() * share for pair, share in self._each)
        return first + second

    def q_only(self) -> Enclosure:
        first, second = (pair.q_only() * share for pair, share in self._each)
        return first + second

    def max_loss(self) -> tuple[float, float]:
        first, second = self.first.max_loss(), self.second.max_loss()
        return max(first[0], second[0]), max(first[1], second[1])

    def tail_is_cut(self) -> bool:
        return self.first.tail_is_cut() or self.second.tail_is_cut()

    def sketch(self) -> Sketch:
        parts = [(pair.sketch(), math.log(share.upper[0])) for pair, share in self._each]
        return Sketch(
            np.concatenate([one.losses for one, _ in parts]),
            np.concatenate([one.log_masses + log for one, log in parts]),
        )

    def grid_origin(self) -> float | None:
        one, other = self.first.grid_origin(), self.second.grid_origin()
        if one is None or (other is not None and self.share[0] < self.rest[0]):
            return other
        return one

    def log_tail_moment(self, x: float, s: float) -> tuple[float, float]:
        return self._summed([pair.log_tail_moment(x, s) for pair, _ in self._each])

    def log_moment(self, s: float) -> tuple[float, float]:
        return self._summed([pair.log_moment(s) for pair, _ in self._each])

    def log_rest(self, s: float) -> float:
        return self._summed([(-math.inf, pair.log_rest(s)) for pair, _ in self._each])[1]

    def _summed(self, logs: list[tuple[float, float]]) -> tuple[float, float]:
        """Bounds ln of the sum of share e^x, for bounds of x of each pair."""
        shares = [share for _, share in self._each]
        lows = [x[0] + math.log(share.lower[0]) for x, share in zip(logs, shares, strict=True)]
        highs = [x[1] + math.log(share.upper[0]) for x, share in zip(logs, shares, strict=True)]
        lower, upper = float(np.logaddexp.reduce(lows)), float(np.logaddexp.reduce(highs))
        if not math.isfinite(upper):
            return -math.inf, upper
        # two logarithms, two sums and logaddexp
        return lower - 32 * UNIT * (1.0 + abs(lower)), upper + 32 * UNIT * (1.0 + abs(upper))

    def closed_delta(self, epsilon: float) -> tuple[float, float] | None:
        first, second = (_closed_delta(pair, epsilon) for pair, _ in self._each)
        if first is None or second is None:
            return None
        lower = add_down(mul_down(self.share[0], max(0.0, first[0])),
                         mul_down(self.rest[0], max(0.0, second[0])))  # fmt: skip
        upper = add_up(mul_up(self.share[1], max(0.0, first[1])),
                       mul_up(self.rest[1], max(0.0, second[1])))  # fmt: skip
        return lower, upper

    def lines_are_closer(self) -> bool:
        return self.first.lines_are_closer() and self.second.lines_are_closer()

    def transform(self) -> Transform | None:
        first, second = self.first.transform(), self.second.transform()
        if first is None or second is None:
            return None
        off = max(high / low - 1.0 for low, high in (self.share, self.rest)) + 4 * UNIT
        return WeightedTransform(((self.share[0], first), (self.rest[0], second)), off)

    def reversed(self) -> Pair | None:
        first, second = self.first.reversed(), self.second.reversed()
        if first is None or second is None:
            return None
        return dataclasses.replace(self, first=first, second=second)


def _enclosure(bounds: tuple[float, float]) -> Enclosure:
    """The enclosure of one number between two bounds."""
    return Enclosure(np.array(bounds[:1]), np.array(bounds[1:]))


def _closed_delta(pair: Pair, epsilon: float) -> tuple[float, float] | None:
    """Bounds of delta(epsilon) of one run by a formula, or from the largest loss on; else None."""
    found = pair.closed_delta(epsilon)
    if found is not None or pair.tail_is_cut() or not epsilon >= pair.max_loss()[1]:
        return found
    # no finite loss is above epsilon: delta is the mass that P alone has
    alone = pair.p_only()
    return float(alone.lower[0]), float(alone.upper[0])


def _scaled(atoms: Atoms, share: Enclosure) -> Atoms:
    """The atoms, with a share of their masses on both sides."""
    return Atoms(atoms.p * share, atoms.q * share, atoms.loss_lower, atoms.loss_upper)
