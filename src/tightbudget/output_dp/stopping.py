"""A mechanism that may stop early, at its optimal price.

Each of n stops has a price. The worst-case delta, over all rules for when to stop, is the price of
a Bermudan option on the likelihood ratio. Source: Hartmann, Bindschaedler, Bentkamp, West 2022,
Theorem 15, for pairs with four outputs; here for any dominating pairs, also of mechanisms that
are chosen after seeing earlier outputs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tightbudget.errors import PrecisionError
from tightbudget.mechanisms.approximate_dp import ApproximateDP
from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import non_negative, positive, positive_count, refuse
from tightbudget.output_dp.backward_induction import BackwardInduction
from tightbudget.output_dp.stopping_lattice import Lattice, RunLosses

_PASSES = 10
_COARSE = 8e-3  # about the relative gap that the first lattice is made for
_ROUNDED = 1e-12  # a width of delta that may come from the rounding of the losses alone
_FLOOR = 1e-290  # a delta below this is reported as [0, upper]


# Proof: proofs/stopping.v, theorems stopping, attained
def stopping_delta(
    step: Composable | Sequence[Composable],
    stops: Sequence[int],
    epsilons: Sequence[float],
    rtol: float = 1e-3,
) -> Bounds:
    """The exact delta of a mechanism that may stop early, between a lower and an upper bound.

    It runs ``step`` again and again, may stop after stops[i] steps for any reason that is in
    its outputs, and must stop at the last of them. With the price epsilons[i] for stopping
    at stops[i] it satisfies, for all sets S of outputs,

        Pr(M(x) in S) <= delta + sum_i e^epsilons[i] Pr(M(x') in S, stopped at stops[i]),

    and this is the smallest such delta, in the worst case over rules for stopping.

    Guarantee: the exact value lies inside, rounding included, and (upper - lower) <= rtol *
    upper, unless upper is below 1e-290, or all prices are at least the largest losses up to
    the rounding of the parameters (then upper - lower <= 1e-12). Where a dominating pair and one
    that is attained answer (shuffled or fixed-size batches), each bound is that close to its own
    pair's value, and the bounds lie apart as the pairs do. With one stop it is
    ``delta`` of the composition; it is at least the largest and at most the sum of those
    with one stop each (their Lemma 11).
    Source: Hartmann et al. 2022, Theorem 15; backward induction on dominating pairs.

    Args:
        step: a mechanism or composition; or a list of them, of which the k-th is step k.
        stops: ascending numbers of steps, each >= 1.
        epsilons: a price >= 0 for each stop, nats.
        rtol: wanted relative gap, in (0, 1).

    Raises:
        ParameterError: an argument is refused.
        RelationError: mechanisms were declared for different neighbouring relations.
        PrecisionError: the gap cannot be reached; says which one was.
    """
    stops = stops_of(stops)
    blocks = blocks_between(step, stops)
    prices = [non_negative(**{f"epsilons[{i}]": e}) for i, e in enumerate(epsilons)]
    if len(prices) != len(stops):
        raise refuse("epsilons", f"hold a price for each of the {len(stops)} stops", epsilons)
    rtol = positive(rtol=rtol)
    if not rtol < 1:
        raise refuse("rtol", "be in (0, 1)", rtol)
    try:
        bounds = _delta_of(blocks, prices, rtol)
    except PrecisionError as error:
        if all(block is None for block in _attained(blocks)):
            raise
        # the lower bound that was reached is that of pairs which may not be attained
        reached = down_to_attained(Bounds(error.lower, error.upper), blocks, prices, rtol)
        raise PrecisionError(
            _missed(reached, rtol, "the pairs that dominate were not bounded more closely"),
            reached.lower,
            reached.upper,
        ) from error
    return down_to_attained(bounds, blocks, prices, rtol)


def down_to_attained(
    bounds: Bounds, blocks: tuple[Composition, ...], prices: Sequence[float], rtol: float
) -> Bounds:
    """Lowers the lower bound of the blocks' delta to an attained one, where pairs only dominate.

    Guarantee: the upper bound is unchanged; the lower one is that of mechanisms which concrete
    data sets attain (:meth:`~tightbudget.Mechanism.instance`).

    Args:
        bounds: bounds of delta of the dominating pairs.
        blocks: what runs between one stop and the next.
        prices: the price of each stop, nats.
        rtol: wanted relative gap, in (0, 1).
    """
    below = _attained(blocks)
    if all(block is None for block in below):
        return bounds
    attained = tuple(compose([found or block]) for found, block in zip(below, blocks, strict=True))
    try:
        lower = _delta_of(attained, list(prices), rtol).lower
    except PrecisionError as error:
        lower = error.lower
    joint = Bounds(lower, bounds.upper)  # guard: stopping-lower-bound-attained
    if joint.relative_gap <= rtol or joint.upper <= _FLOOR:
        return joint
    return Bounds(lower, bounds.upper, apart=_apart(blocks))


def _apart(blocks: tuple[Composition, ...]) -> str:
    """Names what keeps the bounds of a run that may stop after each of ``blocks`` apart."""
    said = [compose(blocks).apart]
    if any(mechanism.strategic for block in blocks[:-1] for mechanism, _ in block.parts):
        said.append("choices of what runs next before the last stop")
    return "; ".join(filter(None, said))


def _attained(blocks: tuple[Composition, ...]) -> list[Composable | None]:
    """Returns what data sets attain in each of ``blocks``; None where its pairs are exact."""
    *early, last = blocks
    return [*(block.attained_early for block in early), last.attained]


def _delta_of(blocks: tuple[Composition, ...], prices: list[float], rtol: float) -> Bounds:
    """Bounds the exact delta of the blocks' dominating pairs.

    Raises:
        PrecisionError: the gap cannot be reached.
    """
    directions = [_DirectionBounds(losses, prices, rtol) for losses in losses_by_direction(blocks)]
    while True:
        worst = Bounds.worst(d.bounds for d in directions)
        settled = all(d.settled for d in directions if d.bounds.upper > worst.lower)
        if settled or worst.relative_gap <= rtol or worst.upper <= _FLOOR:
            return worst
        # the milder direction is refined no further than needed
        open_ = [d for d in directions if not d.settled]
        widest = max(open_, key=lambda d: d.bounds.upper)
        try:
            widest.refine(worst.lower)
        except PrecisionError as error:
            raise PrecisionError(
                _missed(worst, rtol, str(error)),
                worst.lower,
                worst.upper,
            ) from error


def _missed(reached: Bounds, rtol: float, reason: str) -> str:
    """The message of a refusal: the bounds of delta that were reached, and why no closer ones."""
    return (
        f"delta is in {reached} (relative gap {reached.relative_gap:.2g}): "
        f"relative gap {rtol:g} was not reached, since {reason}"
    )


def optimal_delta(
    parameters: Sequence[tuple[float, float]],
    stops: Sequence[int],
    epsilons: Sequence[float],
    rtol: float = 1e-3,
) -> Bounds:
    """:func:`stopping_delta` where step k is any (epsilon, delta)-DP mechanism.

    Guarantee: contains the delta of Theorem 15, the smallest that holds for all mechanisms of
    which parameters[k] is all that is known, also adaptively chosen ones.
    Source: Hartmann et al. 2022, Theorem 15.

    Args:
        parameters: (epsilon, delta) of each step.
        stops, epsilons, rtol: as for :func:`stopping_delta`.
    """
    steps = []
    for k, pair in enumerate(parameters):
        if len(pair) != 2:
            raise refuse(f"parameters[{k}]", "be a pair (epsilon, delta)", pair)
        steps.append(ApproximateDP(*pair))
    return stopping_delta(steps, stops, epsilons, rtol)


# ------------------------------------------------------------------------- at the door


def stops_of(stops: Sequence[int]) -> tuple[int, ...]:
    """``stops`` as a tuple, refused unless they are ascending integers >= 1."""
    if isinstance(stops, (int, float)):
        raise refuse("stops", f"be a list of numbers of steps, such as [{stops}]", stops)
    checked = [positive_count(**{f"stops[{i}]": k}) for i, k in enumerate(stops)]
    if not checked:
        raise refuse("stops", "name at least one number of steps", stops)
    for i, (before, k) in enumerate(itertools.pairwise(checked), start=1):
        if k <= before:
            raise refuse(f"stops[{i}]", f"be > stops[{i - 1}] = {before}", k)
    return tuple(checked)


def blocks_between(
    step: Composable | Sequence[Composable], stops: tuple[int, ...]
) -> tuple[Composition, ...]:
    """(n,): the composition that runs between one stop and the next, for each stop."""
    begins = (0, *stops[:-1])
    if isinstance(step, Composable):
        return tuple(step * (end - begin) for begin, end in zip(begins, stops, strict=True))
    steps = list(step)
    for i, entry in enumerate(steps):
        if not isinstance(entry, Composable):
            raise refuse(f"step[{i}]", "be a mechanism or a composition", entry)
    if len(steps) != stops[-1]:
        raise refuse("step", f"hold stops[-1] = {stops[-1]} steps", len(steps))
    return tuple(compose(steps[begin:end]) for begin, end in zip(begins, stops, strict=True))


# Proof: proofs/stopping.v, theorem node_by_node
def losses_by_direction(blocks: tuple[Composition, ...]) -> list[RunLosses]:
    """The losses of the run of these blocks, for each direction that may be the worse one.

    Raises:
        RelationError: the blocks were declared for different neighbouring relations.
    """
    whole = compose(dict.fromkeys(blocks))
    return [RunLosses.of(blocks, direction) for direction in whole.directions]


# -------------------------------------------------------------------------- precision


class _DirectionBounds:
    """Bounds of delta in one direction, which :meth:`refine` makes closer.

    Attributes:
        bounds: lower and upper bound of delta so far.
        settled: True if they are as close as asked, or need no lattice.
    """

    def __init__(self, losses: RunLosses, prices: list[float], rtol: float) -> None:
        self.losses, self.prices, self.rtol = losses, prices, rtol
        self.bounds, self.settled = self._without_lattice()
        self.share, self.expected, self.extended = max(1.0, _COARSE / rtol), math.inf, False
        self.passes = self.strikes = 0

    def _without_lattice(self) -> tuple[Bounds, bool]:
        """Bounds of delta without a lattice, and True if they are close enough.

        They are close where each price is at least the largest finite loss up to its stop.
        """
        most = self.losses.infinity
        gains = [
            -math.expm1(min(0.0, price - top)) if top > 0 else 0.0
            for price, top in zip(self.prices, self.losses.tops, strict=True)
        ]
        if most.lower >= 1.0 or max(gains) <= _ROUNDED / 4:
            return Bounds(most.lower, min(1.0, most.upper + max(gains) * 2)), True
        return Bounds(most.lower, 1.0), False

    def refine(self, least: float) -> None:
        """Works out the bounds on a finer lattice, in extended precision if the last was no help.

        Args:
            least: a delta below this need only be shown to be below it.

        Raises:
            PrecisionError: no finer lattice helps, or it would be too long.
        """
        if self.passes == _PASSES:
            raise PrecisionError("a finer lattice does not help")
        lattice = Lattice.of(self.losses, self.prices, self.rtol, self.share, self.extended, least)
        induction = BackwardInduction(self.losses, lattice)
        upper, rule = induction.upper(self.prices)
        lower = induction.lower(rule)
        self.passes += 1
        gap = (upper - lower) / upper if upper > 0 else 0.0
        self.settled = gap <= self.rtol
        self.bounds = self.bounds.meet(Bounds(lower, upper))
        # in proportion to the variance, or to its root where a price is near an atom; what
        # does not shrink is rounding
        if gap > 1.5 * self.expected and not self.settled:
            self.strikes += self.extended
            self.extended = True
        if self.strikes > 2:
            raise PrecisionError("rounding alone makes it wider")
        finer = min(0.25, max(1e-2, 0.7 * self.rtol / max(gap, 1e-300)))
        self.share, self.expected = self.share * finer, gap * math.sqrt(finer)
