"""The marginals that algorithms for synthetic tables select and measure, at their exact price.

The algorithms come with zCDP's arithmetic: a Gaussian mechanism costs rho = mu^2 / 2, an
exponential mechanism of epsilon costs epsilon^2 / 8, and the sum is converted. Here the same plan
is a workflow, whose delta is the exact one of its worst analyst: about 5 to 8 % less noise at the
same (epsilon, delta), for nothing.

Source: McKenna, Miklau, Sheldon 2021, "Winning the NIST contest" (MST); McKenna, Mullins, Sheldon,
Miklau 2022, "AIM: an adaptive and iterative mechanism" (AIM), as the package mbi runs them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.composition import Composable
from tightbudget.mechanisms.exponential import ExponentialMechanism
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import (
    non_negative,
    open_probability,
    positive,
    positive_count,
    refuse,
)
from tightbudget.output_dp.guarantee import Cell
from tightbudget.workflows.prices import PricedWorkflow, priced
from tightbudget.workflows.workflow import Workflow

# Defaults: delta within 1 %, epsilon within .1 %, which is less than a percent of the noise.
_DELTA_GAP, _EPSILON_GAP = 1e-2, 1e-3
CALIBRATED_GAP = 5e-3  # that with which a rho was found, so that its delta is enough here, too
_MOST_ATTRIBUTES = 1000
FIRST = 0.9  # of AIM's units, for each one-way marginal
_ANNEALED = 4  # AIM's next rounds have so many times the units: half the noise


@dataclass(frozen=True)
class Measurements:
    """Says what an algorithm for synthetic tables selects and measures on the private rows.

    All else that the algorithm does (fitting a model, drawing rows) sees these outputs alone, and
    costs nothing.

    Guarantee: whatever was selected after seeing earlier outputs, all of them together are
    (epsilon, delta)-DP for the upper bounds that :meth:`delta` and :meth:`epsilon` return, if each
    mechanism has the noise that the plan says, for the same neighbouring relation.

    Attributes:
        algorithm: its name.
        rho: what zCDP charges for all of it; the scale on which the algorithms' own noise is given.
        workflow: the mechanisms, and what may run after what.
    """

    algorithm: str
    rho: float
    workflow: Workflow

    def delta(self, epsilon: float, rtol: float = _DELTA_GAP) -> Bounds:
        """Bounds the exact delta at ``epsilon``.

        Args:
            epsilon: >= 0, nats.
            rtol: wanted relative gap, in (0, 1).

        Raises:
            ParameterError: an argument is refused.
            PrecisionError: the gap cannot be reached; says which one was.
        """
        return self.workflow.delta(non_negative(epsilon=epsilon), rtol)

    def epsilon(self, delta: float, rtol: float = _EPSILON_GAP) -> Bounds:
        """Bounds the exact epsilon at ``delta``, nats.

        Args:
            delta: in (0, 1).
            rtol: wanted relative gap, in (0, 1).

        Raises:
            ParameterError: an argument is refused.
            PrecisionError: the gap cannot be reached; says which one was.
        """
        return self.workflow.epsilon(open_probability(delta=delta), rtol)

    def priced(self, delta: float, epsilon: float | None = None) -> PricedWorkflow:
        """Returns the plan with prices under ``delta``, as :class:`MarginalRun` takes it.

        Args:
            delta: in (0, 1).
            epsilon: the price of each end, and of whoever stops before, nats. If absent, each state
                has a price of its own: who stops early pays less, and the ends cost a little more.
                These take longer to find.

        Raises:
            ParameterError: an argument is refused, or ``delta`` does not cover ``epsilon``.
            PrecisionError: the gap of delta's bounds cannot be reached.
        """
        delta = open_probability(delta=delta)
        if epsilon is None:
            return priced(self.workflow, delta)
        found = self.delta(epsilon, CALIBRATED_GAP)
        if found.upper > delta:  # guard: delta-covers-epsilon
            raise refuse("delta", f"be at least {found.upper!r} for epsilon = {epsilon}", delta)
        return PricedWorkflow(
            self.workflow, dict.fromkeys(self.workflow.ends, float(epsilon)), found, delta
        )

    def __repr__(self) -> str:
        return (
            f"<Measurements: {self.algorithm}, rho {self.rho:.6g}, "
            f"{len(self.workflow.moves):,} states>"
        )


def measured(rho: float) -> Gaussian:
    """Returns the Gaussian mechanism that costs ``rho`` in zCDP, of sensitivity 1."""
    return Gaussian(1.0 / math.sqrt(2.0 * rho))


def selected(rho: float) -> ExponentialMechanism:
    """Returns the exponential mechanism that costs ``rho`` in zCDP.

    Raises:
        ParameterError: its epsilon is outside the range that an exponential mechanism may have.
    """
    epsilon = math.sqrt(8.0 * rho)
    try:
        return ExponentialMechanism(epsilon)
    except ParameterError as error:
        raise ParameterError(
            f"rho = {rho:g} for one selection is out of range, since its {error}"
        ) from error


def fixed(rho: float) -> Measurements:
    """Returns a declared workload of marginals, measured by one Gaussian mechanism.

    Args:
        rho: zCDP's cost of all its marginals together, > 0. With weights w_i, sum w_i^2 = 1, and
            the noise sigma / w_i on marginal i, it is 1 / (2 sigma^2) for one record added or
            removed.
    """
    rho = positive(rho=rho)
    return Measurements("fixed", rho, Workflow.chain(measured(rho), [1]))


def mst(
    attributes: int, rho: float, shares: Sequence[float] = (1 / 3, 1 / 3, 1 / 3)
) -> Measurements:
    """Returns MST: all one-way marginals, a spanning tree of selected pairs, their marginals.

    Args:
        attributes: columns of the table, from 2 to 1,000. ``attributes - 1`` pairs are selected,
            each after seeing the pairs before.
        rho: zCDP's cost of the whole, > 0.
        shares: of rho: of the one-way marginals (one Gaussian), of all selections, and of the
            two-way marginals (one Gaussian).

    Raises:
        ParameterError: an argument is refused.
    """
    d, rho = _attributes(attributes, 2), positive(rho=rho)
    if len(shares) != 3:
        raise refuse("shares", "be three numbers > 0", shares)
    one, select, two = (positive(**{f"shares[{i}]": s}) for i, s in enumerate(shares))
    if not math.isclose(one + select + two, 1.0, rel_tol=1e-9):
        raise refuse("the sum of shares", "be 1", one + select + two)
    steps: list[Composable] = [
        measured(rho * one),
        selected(rho * select / (d - 1)) * (d - 1),
        measured(rho * two),
    ]
    return Measurements("mst", rho, Workflow.chain(steps, [1, 2, 3]))


def aim(
    attributes: int,
    rho: float,
    rounds: int | None = None,
    *,
    first: float = FIRST,
    select: float = 0.1,
) -> Measurements:
    """Returns AIM: one-way marginals, then rounds that select a marginal and measure it.

    A budget of ``rounds`` units of rho is spent: .9 for each one-way marginal, then units on
    rounds, at first one each. After any round, the noise may be halved, which makes each later
    round take four times as many units. When fewer than two rounds' units are left, one last round
    takes them all.

    Guarantee: the answers cover whatever decides when the noise is halved.

    Args:
        attributes: columns of the table, from 1 to 1,000.
        rho: zCDP's cost of the whole, > 0.
        rounds: units of rho, more than ``first * attributes``; ``16 * attributes`` if absent.
        first: units of each one-way marginal, > 0.
        select: the share of a round that its selection takes, in (0, 1); its measurement has the
            rest.

    Raises:
        ParameterError: an argument is refused.
    """
    d, rho = _attributes(attributes, 1), positive(rho=rho)
    units = 16 * d if rounds is None else positive_count(rounds=rounds)
    start = d * Fraction(str(positive(first=first)))
    share = open_probability(select=select)
    if units <= start:
        raise refuse("rounds", f"be more than first * attributes = {float(start):g}", units)
    unit = rho / units

    def select_with(of: Fraction) -> Composable:
        return selected(share * unit * float(of))

    def measure_with(of: Fraction) -> Composable:
        return measured((1.0 - share) * unit * float(of))

    # The noise is halved after a measurement was seen, so the choice is a move of the next state.
    moves: dict[Cell, list[tuple[Composable, Cell]]] = {
        "start": [(measured(unit * float(start)), ("round", 1, 0))]
    }
    ahead = [(1, 0)]
    while ahead:
        level, spent = ahead.pop()
        if ("round", level, spent) in moves:
            continue
        left = units - start - spent
        # no measurement comes before the first round
        levels = [level] if spent == 0 else [level, _ANNEALED * level]
        here = moves["round", level, spent] = []
        # where exactly two rounds are left, the sums of doubles that others run decide either way
        last = [left] if any(left <= 2 * one for one in levels) else []
        rounds_of = [Fraction(one) for one in levels if left >= 2 * one]
        for of in dict.fromkeys([*rounds_of, *last]):
            # a last round is one, however much noise earlier ones had
            measure: Cell = ("measure last", spent) if of == left else ("measure", int(of), spent)
            here.append((select_with(of), measure))
            if of == left:
                moves[measure] = [(measure_with(of), "end")]
                continue
            moves[measure] = [(measure_with(of), ("round", int(of), spent + int(of)))]
            ahead.append((int(of), spent + int(of)))
    moves["end"] = []
    return Measurements("aim", rho, Workflow(moves, start="start"))


def _attributes(attributes: int, least: int) -> int:
    d = positive_count(attributes=attributes)
    if not least <= d <= _MOST_ATTRIBUTES:
        raise refuse("attributes", f"be from {least} to {_MOST_ATTRIBUTES:,}", d)
    return d
