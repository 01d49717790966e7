"""The pairs above a batch of a fixed size: numbers of copies, and the hull of both directions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy import special as sp

from tightbudget.mechanisms.gaussian import GaussianPair
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure, stack
from tightbudget.numerics.rounding import (
    UNIT,
    FloatArray,
    add_down,
    add_up,
)
from tightbudget.numerics.special import ERF_ULPS
from tightbudget.pairs.atomic import at_most
from tightbudget.pairs.pair import Atoms, Bins, Pair, Sketch

_PICTURED = 32  # numbers of copies


@dataclass(frozen=True, eq=False)
class CopiesPair(Pair):
    """A Gaussian pair whose means are k m apart, where k = 1, 2, ... is drawn and told.

    Guarantee: the pair dominates what a batch reveals that has k copies of the record. It is its
    own mirror image, as every Gaussian pair is. More copies than are listed count as a loss
    of inf.

    Args:
        m: how far one copy moves the sum, over sigma.
        shares: (n,) the chances of k = 1 .. n.
        rest: an upper bound of the chance of more.
    """

    m: float
    shares: Enclosure
    rest: float

    def _gaussians(self) -> list[GaussianPair]:
        """The pairs for 1, 2, ... copies; the product with m rounds by one unit of 2^-53."""
        return [GaussianPair(copies * self.m) for copies in range(1, len(self.shares) + 1)]

    def undecided(self) -> Enclosure:
        """The Q-mass of losses < 0 less that of losses > 0; erf(k m / sqrt(8)) for k copies."""
        share = sp.erf(self.m * np.arange(1.0, len(self.shares) + 1.0) / math.sqrt(8.0))
        # four roundings of the argument, which erf does not enlarge
        margin = 2 * UNIT * (ERF_ULPS + 4.0)
        terms = self.shares * Enclosure(share * (1 - margin), np.minimum(share * (1 + margin), 1.0))
        whole = Enclosure(np.array([add_down(*terms.lower)]), np.array([add_up(*terms.upper)]))
        return whole + at_most(self.rest)

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins:
        parts = [pair.bins(edges, slack) for pair in self._gaussians()]
        if len(parts) == 1 and not self.rest:
            return parts[0]
        p = q = exact(np.zeros(edges.size + 1))
        for i, part in enumerate(parts):
            p, q = p + part.p * self.shares[i], q + part.q * self.shares[i]
        # q / p is a mean of the quotients of the parts
        least = np.min([part.w.lower for part in parts], axis=0)
        most = np.max([part.w.upper for part in parts], axis=0)
        return Bins.of(p, q, (q / p).clipped(least, most), edges, slack)

    def p_only(self) -> Enclosure:
        return at_most(self.rest)  # guard: copies-not-listed

    def q_only(self) -> Enclosure:
        return at_most(self.rest)

    def max_loss(self) -> tuple[float, float]:
        return math.inf, math.inf

    def sketch(self) -> Sketch:
        # the likeliest numbers of copies are enough to plan with
        shown = np.sort(np.argsort(self.shares.upper)[-_PICTURED:])
        gaussians = self._gaussians()
        sketches = [gaussians[i].sketch() for i in shown]
        weights = np.log(self.shares.upper[shown])
        return Sketch(
            np.concatenate([sketch.losses for sketch in sketches]),
            np.concatenate(
                [sketch.log_masses + w for sketch, w in zip(sketches, weights, strict=True)]
            ),
        )

    def log_tail_moment(self, x: float, s: float) -> tuple[float, float]:
        bounds = np.array([pair.log_tail_moment(x, s) for pair in self._gaussians()])
        least = np.logaddexp.reduce(bounds[:, 0] + np.log(self.shares.lower))
        most = np.logaddexp.reduce(bounds[:, 1] + np.log(self.shares.upper))
        return float(least - 1e-12 * (1 + abs(least))), float(most + 1e-12 * (1 + abs(most)))

    def closed_delta(self, epsilon: float) -> tuple[float, float] | None:
        found = [pair.closed_delta(epsilon) for pair in self._gaussians()]
        known = [bounds for bounds in found if bounds is not None]
        if len(known) < len(found):
            return None
        least = Enclosure(np.array([max(0.0, low) for low, _ in known]), np.ones(len(known)))
        most = Enclosure(np.zeros(len(known)), np.array([max(0.0, high) for _, high in known]))
        return (
            max(0.0, add_down(*(least * self.shares).lower)),
            add_up(*(most * self.shares).upper, self.rest),
        )

    def reversed(self) -> CopiesPair:
        return self


@dataclass(frozen=True, eq=False)
class HullPair(Pair):
    """The pair that has the losses l > 0 of ``above``, and is its own mirror image.

    Losses l > 0 have the masses of ``above`` under P and Q, beside the outputs that ``losses``,
    ``masses`` and ``beyond`` list; losses -l have all these masses exchanged. The loss 0 has
    ``left``, the rest.

    Guarantee: for eps >= 0 delta(eps) is that of ``above`` and of the listed outputs together. So
    for all real eps it is at least that of any mechanism that is below this at all eps >= 0, in
    both directions: at -eps it is 1 - e^-eps + e^-eps times delta(eps) of the other direction.

    Args:
        above: the pair whose losses above 0 count.
        below: ``above`` with its two sides exchanged.
        left: (1,) the mass of the loss 0, under P and Q alike.
        losses: (n,) nats, > 0, of outputs beside ``above``, which are mirrored, too.
        masses: (n,) the P-masses of these outputs, at least.
        beyond: the P-mass of a loss of inf beside ``above``, at least.
    """

    above: Pair
    below: Pair
    left: Enclosure
    losses: FloatArray = field(default_factory=lambda: np.zeros(0))
    masses: FloatArray = field(default_factory=lambda: np.zeros(0))
    beyond: float = 0.0

    def atoms(self) -> Atoms:
        zero, losses = np.zeros(1), self.losses
        more = exact(self.masses)
        less = more * exp_enclosure(-losses)
        return (
            Atoms(self.left, self.left, zero, zero)
            .join(Atoms(more, less, losses, losses))
            .join(Atoms(less, more, -losses, -losses))
        )

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins:
        # an edge that may be 0 is moved to where it surely is not above
        near = np.abs(edges) <= slack
        cuts = np.where(near, -(np.abs(edges) + slack), edges)
        slacks = np.where(near, 0.0, slack)
        n = int(np.sum(cuts <= 0.0))
        middle = np.zeros(1)
        left_edges, left_slack = np.append(cuts[:n], middle), np.append(slacks[:n], middle)
        right_edges, right_slack = np.append(middle, cuts[n:]), np.append(middle, slacks[n:])
        left = self.below.bins(np.maximum.accumulate(left_edges), left_slack)
        right = self.above.bins(right_edges, right_slack)
        assert left is not None
        assert right is not None
        # the references of the parts, and those of the bins
        reference = np.append(edges, edges[-1])
        shift_left = reference[: n + 1] - left_edges
        shift_right = reference[n:] - np.append(right_edges[1:], right_edges[-1])
        move_left = exp_enclosure(shift_left, UNIT * np.abs(shift_left))
        move_right = exp_enclosure(shift_right, UNIT * np.abs(shift_right))
        lp, lq, lw = left.p[: n + 1], left.q[: n + 1] * move_left, left.w[: n + 1] * move_left
        rp, rq, rw = right.p[1:], right.q[1:] * move_right, right.w[1:] * move_right
        # the bin around 0 has a part of each
        p, q = lp[n] + rp[0], lq[n] + rq[0]
        return Bins.of(
            stack(lp[:n], p, rp[1:]),
            stack(lq[:n], q, rq[1:]),
            stack(lw[:n], q / p, rw[1:]),
            edges,
            np.where(near, 4.0 * slack, slack),
        )

    def p_only(self) -> Enclosure:
        return self.above.p_only() + at_most(self.beyond)

    def q_only(self) -> Enclosure:
        return self.p_only()

    def max_loss(self) -> tuple[float, float]:
        return math.inf, math.inf

    def grid_origin(self) -> float:
        return 0.0

    def sketch(self) -> Sketch:
        # a composition of 10,000 steps needs masses that sum to 1: those of bins do
        right = self.above.sketch().losses
        right = np.unique(right[right > 0])
        edges = np.concatenate([-right[::-1], [0.0], right])
        bins = self.bins(edges, np.zeros(edges.size))
        p, behind = bins.p.upper[:-1], np.log(np.maximum(bins.w.lower[:-1], 1.0))
        with np.errstate(divide="ignore"):
            atoms = self.atoms()
            log_masses = np.log(np.append(p, atoms.p.upper))
        return Sketch(np.append(edges - behind, atoms.loss_upper), log_masses)

    def log_tail_moment(self, x: float, s: float) -> tuple[float, float]:
        least, most = self.above.log_tail_moment(max(x, 0.0), s)
        there = self.losses > x
        if np.any(there):
            beside = float(np.logaddexp.reduce(np.log(self.masses[there]) + s * self.losses[there]))
            most = float(np.logaddexp(most, beside)) + 1e-12 * (1 + abs(most) + abs(beside))
        if x >= 0.0:
            return least, most
        # e^(s L) is at most 1 for losses up to 0
        most = float(np.logaddexp(most, 0.0))
        return least, most + 1e-12 * (1 + abs(most))

    def closed_delta(self, epsilon: float) -> tuple[float, float] | None:
        found = self.above.closed_delta(abs(epsilon)) if not self.masses.size else None
        if epsilon >= 0.0 or found is None:
            return found
        # delta(-eps) = 1 - e^-eps + e^-eps delta(eps), in numbers of at most 1
        scale = math.exp(epsilon)
        value = [-math.expm1(epsilon) + scale * end for end in found]
        return value[0] - 32 * UNIT, value[1] + 32 * UNIT

    def reversed(self) -> HullPair:
        return self
