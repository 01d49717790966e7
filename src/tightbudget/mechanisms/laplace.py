"""The Laplace mechanism."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure
from tightbudget.numerics.rounding import EXP, EXPM1, LOG, TINY, UNIT, FloatArray, double_down
from tightbudget.numerics.validate import in_double_range, positive
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Bins, Pair, Sketch


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Adds noise with density e^(-|x| / scale) / (2 scale) to a query of the given sensitivity.

    Guarantee: the pair Lap(0, scale) against Lap(sensitivity, scale) dominates the
    mechanism. Source: Dwork, McSherry, Nissim, Smith 2006.

    One run is epsilon-DP with scale = sensitivity / epsilon. These two are equal::

        Laplace(scale=4.0, sensitivity=2.0)
        Laplace.of_epsilon(0.5, sensitivity=2.0)

    Args:
        scale: the scale b of the noise itself, > 0, in the query's unit; one run is
            (sensitivity / scale)-DP.
        sensitivity: how far the query can move (1-norm), > 0, in the query's unit.

    Raises:
        ParameterError: a parameter is not a finite number > 0, or their quotient is not in
            [1e-100, 1e12].
    """

    scale: float
    sensitivity: float = 1.0

    kind: ClassVar[str] = "laplace"
    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = (
        True  # noise and its mirror image: x -> sensitivity - x exchanges P and Q
    )

    meant: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("epsilon", "eps"),
            "scale is sensitivity / epsilon, in Python Laplace.of_epsilon(epsilon, sensitivity)",
        ),
        "b": "the scale b of the noise is scale",
    }

    @classmethod
    def of_epsilon(
        cls, epsilon: float, sensitivity: float = 1.0, *, relation: Neighbouring | None = None
    ) -> Laplace:
        """Makes the mechanism of which one run is ``epsilon``-DP: scale = sensitivity / epsilon.

        Guarantee: the scale is rounded down, so that an upper bound for it is one for the exact
        quotient, too.

        Args:
            epsilon: of one run, > 0, nats.
            sensitivity: how far the query can move (1-norm), > 0, in the query's unit.
            relation: the neighbouring relation that the sensitivity was stated for, if any.

        Raises:
            ParameterError: a parameter is refused, or the quotient is out of the class's range.
        """
        e, s = positive(epsilon=epsilon), positive(sensitivity=sensitivity)
        scale = double_down(Fraction(s) / Fraction(e))  # guard: laplace-scale-rounded-down
        return cls(scale, s, relation=relation)

    def __post_init__(self) -> None:
        super().__post_init__()
        scale, sensitivity = positive(scale=self.scale), positive(sensitivity=self.sensitivity)
        in_double_range(**{"sensitivity / scale": sensitivity / scale})
        self._set(scale=scale, sensitivity=sensitivity)

    def pair(self, direction: Direction) -> Pair:
        return LaplacePair(self.sensitivity / self.scale)


@dataclass(frozen=True)
class LaplacePair(Pair):
    """Losses of Laplace noise: atoms at -m and m, and P-density e^(-(m - l)/2) / 4 dl between.

    m is sensitivity / scale.
    """

    m: float

    def atoms(self) -> Atoms:
        m = np.array([self.m])
        down = exp_enclosure(-m, 2 * UNIT * m)
        half = exact(0.5)
        low = Enclosure(down.lower / 2, down.upper / 2)
        margin = 2 * UNIT * self.m  # m itself is a rounded quotient
        losses = np.array([-self.m, self.m])
        return Atoms(
            p=Enclosure(np.append(low.lower, half.lower), np.append(low.upper, half.upper)),
            q=Enclosure(np.append(half.lower, low.lower), np.append(half.upper, low.upper)),
            loss_lower=losses - margin,
            loss_upper=losses + margin,
        )

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins:
        return loss_bins(self.m, exact(0.5), edges, slack)

    def closed_delta(self, epsilon: float) -> tuple[float, float]:
        # P(L > eps) = 1 - e^((eps - m)/2)/2 and e^eps Q(L > eps) = e^((eps - m)/2)/2 for |eps| <= m
        everything = -math.expm1(epsilon) if epsilon < 0 else 0.0
        # guard: largest-loss-rounded-quotient
        reach = 8 * UNIT * (self.m + abs(epsilon))  # m and the difference are rounded
        lower, upper = (
            -math.expm1(min(0.0, (epsilon - self.m + sign * reach) / 2)) for sign in (1, -1)
        )
        if epsilon <= -self.m + reach:  # all outputs count
            lower, upper = everything, max(upper, everything)
        return max(lower, everything) * (1 - 8 * UNIT), upper * (1 + 8 * UNIT)

    def max_loss(self) -> tuple[float, float]:
        return self.m * (1 - 4 * UNIT), self.m * (1 + 4 * UNIT)

    def log_moment(self, s: float) -> tuple[float, float]:
        # Source: Mironov 2017, Proposition 6: ((s + 1) e^(s m) + s e^(-(s + 1) m)) / (2 s + 1)
        if not (s <= 1e300 and s * self.m <= 1e300):
            return super().log_moment(s)
        share = (s + 1.0) / (2.0 * s + 1.0)
        log = s * self.m + math.log(share + s / (2.0 * s + 1.0) * math.exp(-(2 * s + 1) * self.m))
        # m, a product and a sum of s m; the logarithm is of a number in [1/2, 1] that exp, two
        # quotients and five operations make, and its exponent y moves e^-y by 4 units of y e^-y
        off = (2.0 * EXP + 2.0 * LOG + 32.0 + 8.0 * s * self.m) * UNIT
        return log - off, log + off

    def grid_origin(self) -> float:
        return self.m

    def sketch(self) -> Sketch:
        m = self.m
        near = np.linspace(0.0, min(2 * m, 100.0), 401)  # beyond e^(-50 / 2) there is nothing
        ends = np.union1d(near - m, m - near)
        left, right = ends[:-1], ends[1:]
        with np.errstate(divide="ignore"):
            log_masses = (right - m) / 2 + np.log(-np.expm1((left - right) / 2) / 2)
        return Sketch(
            np.concatenate([[-m], (left + right) / 2, [m]]),
            np.concatenate([[-m - np.log(2)], log_masses, [-np.log(2)]]),
        )


def loss_bins(m: float, share: Enclosure, edges: FloatArray, slack: FloatArray) -> Bins:
    """Bins of a loss with the P-density share e^((l - m) / 2) / 2 dl on [-m, m], without atoms.

    Args:
        m: the largest loss, nats, a quotient that was rounded once.
        share: (1,) e^(m / 2) times twice the density at loss 0.
        edges: (n,) as in :meth:`~tightbudget.pairs.pair.Pair.bins`.
        slack: (n,) as there.
    """
    # m itself is a rounded quotient, and end + slack rounds by at most u m after clipping
    reach = slack + 4 * UNIT * m
    left, right = np.append(-np.inf, edges), np.append(edges, np.inf)
    left_reach, right_reach = np.append(0.0, reach), np.append(reach, 0.0)
    p = Enclosure(
        _masses(m, share, left + left_reach, right - right_reach).lower,
        _masses(m, share, left - left_reach, right + right_reach).upper,
    )
    # Q e^r / P = e^((right - left) / 2 + r - right) exactly, for the part inside [-m, m]
    left, right = np.clip(left, -m, m), np.clip(right, -m, m)
    beyond = np.append(edges, edges[-1]) - right
    w = exp_enclosure(
        (right - left) / 2 + beyond,
        left_reach + 2 * right_reach + 4 * UNIT * (m + np.abs(beyond)),
    )
    return Bins.of(p, p * w, w, edges, slack)


def _masses(m: float, share: Enclosure, left: FloatArray, right: FloatArray) -> Enclosure:
    """The P-masses share e^(-(m - right)/2) (1 - e^(-(right - left)/2)) of [left, right]."""
    left, right = np.clip(left, -m, m), np.clip(right, -m, m)
    d = np.maximum(right - left, 0.0)
    mass = np.exp((right - m) / 2) * -np.expm1(-d / 2)
    # in units u of 2^-53: the exponent (right - m) / 2 moves by u m / 2 for m, a rounded quotient,
    # and by u m for the difference, which together cost 3 u m / 2; exp and expm1 by their grants, d
    # one and three products three. Sixteen units and 4 u m are granted for the last two
    margin = float(np.expm1((EXP + EXPM1 + 16 + 4 * m) * UNIT))  # pays: laplace-masses
    return Enclosure(
        np.where(mass > 2 * TINY, mass * share.lower * max(0.0, 1 - margin), 0.0),
        np.where(d > 0, (mass * (1 + margin) + 2 * TINY) * share.upper, 0.0),
    )
