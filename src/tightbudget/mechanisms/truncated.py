"""Gaussian and Laplace noise that is cut off at a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightbudget.mechanisms.composition import Mechanism
from tightbudget.mechanisms.gaussian import GaussianPair
from tightbudget.mechanisms.laplace import LaplacePair
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure, stack, where
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.numerics.validate import in_double_range, positive, refuse
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Bins, Pair, Sketch, no_atoms


@dataclass(frozen=True)
class TruncatedGaussian(Mechanism):
    """Adds N(0, sigma^2) noise, conditioned on [-bound, bound], to a query.

    Guarantee: the pair (noise, noise + sensitivity) dominates the mechanism, because the
    noise is log-concave. Outputs in [-bound, sensitivity - bound) show which input it was:
    their mass is lost in full at every epsilon.

    Args:
        sigma: standard deviation of the noise before it is cut, > 0, in the query's unit.
        bound: the largest noise in either direction, in the query's unit.
        sensitivity: how far the query can move, > 0, in the query's unit.

    Raises:
        ParameterError: a parameter is not a finite number > 0, sensitivity / sigma is not in
            [1e-100, 1e12], or sensitivity >= 2 bound: then the two outputs never coincide.
    """

    sigma: float
    bound: float
    sensitivity: float = 1.0

    kind: ClassVar[str] = "truncated_gaussian"
    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = (
        True  # noise and its mirror image: x -> sensitivity - x exchanges P and Q
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(sigma=positive(sigma=self.sigma), **_positions(self.bound, self.sensitivity))
        in_double_range(**{"sensitivity / sigma": self.sensitivity / self.sigma})

    def pair(self, direction: Direction) -> Pair:
        base = GaussianPair(self.sensitivity / self.sigma)
        m, reach = base.m, self.bound / self.sigma
        # L = m z + m^2/2 for the noise -sigma z: z = reach ends P, z = reach - m ends Q
        outer = m * reach + m * m / 2
        inner = m * ((2 * self.bound - self.sensitivity) / self.sigma) / 2
        # everything that P's noise could be: -reach <= z <= reach
        ends = np.array([m * m / 2 - m * reach, inner, outer])
        # two ends may coincide up to rounding, but their order is known
        ends = np.maximum.accumulate(ends)
        around = base.bins(ends, 16 * UNIT * (np.abs(ends) + m * reach))
        total = around.p[1] + around.p[2]
        return TruncatedPair(base, inner, total, no_atoms(), around.p[2] / total)


@dataclass(frozen=True)
class TruncatedLaplace(Mechanism):
    """Adds Laplace noise, conditioned on [-bound, bound], to a query.

    Guarantee: the pair (noise, noise + sensitivity) dominates the mechanism, because the
    noise is log-concave. Outputs in [-bound, sensitivity - bound) show which input it was:
    their mass is lost in full at every epsilon.

    Args:
        scale: the noise's scale b before it is cut, > 0, in the query's unit.
        bound: the largest noise in either direction, in the query's unit.
        sensitivity: how far the query can move, > 0, in the query's unit.

    Raises:
        ParameterError: a parameter is not a finite number > 0, sensitivity / scale is not in
            [1e-100, 1e12], or sensitivity >= 2 bound: then the two outputs never coincide.
    """

    scale: float
    bound: float
    sensitivity: float = 1.0

    kind: ClassVar[str] = "truncated_laplace"
    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = (
        True  # noise and its mirror image: x -> sensitivity - x exchanges P and Q
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(scale=positive(scale=self.scale), **_positions(self.bound, self.sensitivity))
        in_double_range(**{"sensitivity / scale": self.sensitivity / self.scale})

    def pair(self, direction: Direction) -> Pair:
        base = LaplacePair(self.sensitivity / self.scale)
        m, reach = base.m, self.bound / self.scale
        gap = (self.bound - self.sensitivity) / self.scale  # where Q begins, with the sign turned
        total = _less_than_1(exact(1.0), reach)
        if gap < 0:  # Q begins right of the middle: no constant losses, P alone up to there
            only = exact(1.0) - _exp(gap).scaled(0.5) - _exp(-reach).scaled(0.5)
            inner = (2 * self.bound - self.sensitivity) / self.scale
            return TruncatedPair(base, inner, total, no_atoms(), only / total)
        # x in [D - T, 0] has loss +m, x in [D, T] loss -m; P-masses over 2 total:
        masses = stack(_less_than_1(_exp(-m), gap), _less_than_1(exact(1.0), gap)) / total.scaled(2)
        loss = base.atoms()
        atoms = Atoms(masses, masses[::-1], loss.loss_lower, loss.loss_upper)
        only = _less_than_1(_exp(-gap), m) / total.scaled(2)
        return TruncatedPair(base, m, total, atoms, only)


def _positions(bound: float, sensitivity: float) -> dict[str, float]:
    bound, sensitivity = positive(bound=bound), positive(sensitivity=sensitivity)
    if not sensitivity < 2 * bound:
        must = f"be < 2 * bound = {2 * bound!r} (otherwise every output gives the input away)"
        raise refuse("sensitivity", must, sensitivity)
    return {"bound": bound, "sensitivity": sensitivity}


def _exp(x: float) -> Enclosure:
    """The enclosure of e^x for a rounded x."""
    # x is a quotient, or a difference and a quotient: rounded twice
    return exp_enclosure(x, 2 * UNIT * abs(x))


def _less_than_1(factor: Enclosure, x: float) -> Enclosure:
    """The enclosure of factor (1 - e^-x) for a quotient x >= 0, which was rounded twice."""
    value = np.array([-np.expm1(-x)])
    return factor * Enclosure(value * (1 - 8 * UNIT), value * (1 + 8 * UNIT))


@dataclass(frozen=True, eq=False)
class TruncatedPair(Pair):
    """The part of a base pair with losses in [-top, top], divided by ``total``, and given atoms.

    ``only`` is the mass of outputs that P alone has, and of those that Q alone has.
    """

    base: Pair
    top: float  # within 8 units in the last place
    total: Enclosure
    given: Atoms
    only: Enclosure

    def atoms(self) -> Atoms:
        return self.given

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins | None:
        top, off = self.top, 16 * UNIT * self.top
        clipped = np.clip(edges, -top, top)
        ends = np.concatenate([[-top], clipped, [top]])
        base = self.base.bins(ends, np.maximum(np.concatenate([[0.0], slack, [0.0]]), off))
        if base is None:
            return None
        inside = slice(1, -1)
        # the base's references are the clipped edges
        d = np.append(edges, edges[-1]) - ends[1:]
        shift = exp_enclosure(d, UNIT * np.abs(d))
        empty = np.append(False, edges - slack > top + off)
        empty |= np.append(edges + slack < -top - off, False)
        p, q = base.p[inside] / self.total, base.q[inside] * shift / self.total
        nothing = exact(np.zeros(len(p)))
        return Bins.of(
            where(empty, nothing, p),
            where(empty, nothing, q),
            base.w[inside] * shift,
            edges,
            slack + off,
        )

    def p_only(self) -> Enclosure:
        return self.only

    def q_only(self) -> Enclosure:
        return self.only

    def max_loss(self) -> tuple[float, float]:
        return self.top * (1 - 16 * UNIT), self.top * (1 + 16 * UNIT)

    def grid_origin(self) -> float:
        return self.top

    def sketch(self) -> Sketch:
        losses = self.base.sketch().losses
        edges = np.linspace(-self.top, self.top, 401)
        edges = np.union1d(edges, losses[np.abs(losses) < self.top])
        bins = self.bins(edges, np.zeros(edges.size))
        middles = (edges[1:] + edges[:-1]) / 2
        masses = bins.p.upper[1:-1] if bins is not None else 0.0 * middles
        atoms = self.given
        with np.errstate(divide="ignore"):
            return Sketch(
                np.append(middles, (atoms.loss_lower + atoms.loss_upper) / 2),
                np.log(np.append(masses, atoms.p.upper)),
            )
