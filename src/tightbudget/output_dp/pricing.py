"""Price rules: frozen formulas for the price of a guarantee, and for the worth of a whole budget.

A price rule holds the terms of a budget (say its epsilon and delta) and no state. An account in
memory and a budget of a ledger charge by the same rules. Only :class:`OutputDPRule` charges
the price of the output. The other rules charge the worst case. Their theorems are about worst cases
that were fixed before a mechanism ran, and are false for prices that depend on the output.

All prices are exact rational numbers. Where a formula has a root or a logarithm, it is rounded so
that less fits into the budget, never more.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.numerics.rounding import log_down, next_down, next_up
from tightbudget.numerics.validate import finite, refuse
from tightbudget.output_dp.amount import (
    ZERO,
    ExactAmount,
    Price,
    exact,
    exact_positive,
    exact_probability,
    printed_up,
)
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.theorems.concentrated import Line
from tightbudget.theorems.renyi import epsilon_at

# a guarantee that is paid for: prices by cell, a number (rho, mu, a divergence), parts of a plan
Guarantee = OutputDP | Price | Composable


@dataclass(frozen=True)
class PriceRule(ABC):
    """A formula for what a guarantee costs.

    Attributes:
        unit: the measure of privacy loss that prices count, for instance "epsilon".
        side_by_side: True if several interactive mechanisms may be open at once, where each of
            them has delta = 0.
    """

    unit: ClassVar[str]
    side_by_side: ClassVar[bool] = False

    @property
    def cap(self) -> ExactAmount | None:
        """The most that may be spent and held together; None if there is no limit."""
        return None

    @abstractmethod
    def cost(self, guarantee: Guarantee, cell: Cell | None) -> ExactAmount:
        """Returns the exact price of an output in ``cell``; None stands for the worst case.

        Raises:
            ParameterError: this rule has no price for such a guarantee.
        """


@dataclass(frozen=True)
class BudgetRule(PriceRule):
    """A price rule with a cap: all that a budget under it lets through is (epsilon, delta)-DP."""

    @property
    @abstractmethod
    def cap(self) -> ExactAmount:
        """The most that may be spent and held together."""

    @property
    def declared(self) -> Composition | None:
        """The runs that a budget pays for when it is opened; None where it pays for each run."""
        return None

    @abstractmethod
    def epsilon(self, delta: Price) -> float:
        """Returns the epsilon (nats) at ``delta`` of all that the budget lets through, rounded up.

        Guarantee: all that the budget lets through is (epsilon, delta)-DP.

        Raises:
            ParameterError: delta is refused, for instance below the budget's own.
        """


@dataclass(frozen=True)
class OutputDPOdometerRule(PriceRule):
    """Prices by cell, without a cap: an output costs the epsilon of its cell, and all of delta."""

    unit = "epsilon"
    side_by_side = True

    # Proof: proofs/account.v, theorem delta_stays_charged
    def cost(self, guarantee: Guarantee, cell: Cell | None) -> ExactAmount:
        """Returns the price of ``cell`` and the guarantee's whole delta; if it is None, the sup."""
        stated = _output_dp(guarantee)
        epsilon = stated.sup if cell is None else stated.price(cell)  # guard: price-of-cell
        # the whole delta, whatever comes out: Theorem 7 has one delta for all cells
        return ExactAmount(counted=epsilon, delta=stated.delta)  # guard: delta-never-comes-back


# Proof: proofs/filter.v, theorems filter, both_directions
@dataclass(frozen=True, init=False)
class OutputDPRule(OutputDPOdometerRule, BudgetRule):
    """Prices by cell, which add up to at most epsilon and delta.

    Source: Hartmann et al. 2022, Algorithms 1 and 6, Theorem 7.

    Args:
        epsilon: >= 0, nats.
        delta: in [0, 1].
    """

    _epsilon: Fraction
    _delta: Fraction

    def __init__(self, *, epsilon: Price, delta: Price = 0) -> None:
        object.__setattr__(self, "_epsilon", exact(epsilon=epsilon))
        object.__setattr__(self, "_delta", exact_probability(delta=delta))

    @property
    def cap(self) -> ExactAmount:
        """Epsilon and delta."""
        return ExactAmount(counted=self._epsilon, delta=self._delta)

    def epsilon(self, delta: Price) -> float:
        """Returns the budget's epsilon (nats), rounded up, for each delta >= the budget's own."""
        _check_at_least(self._delta, delta)
        return printed_up(self._epsilon)


@dataclass(frozen=True, init=False)
class AdvancedRule(BudgetRule):
    """Advanced composition, fully adaptive: halves of squared worst-case epsilons add up.

    Guarantee: all that the analyst sees is (epsilon, delta)-DP where S, the sum of the squares,
    has sqrt(2 ln(1/slack) S) + S/2 <= epsilon, and the deltas sum to at most delta - slack.
    Prices count rho = S/2. Source: Whitehouse, Ramdas, Rogers, Wu 2023.

    Args:
        epsilon: > 0, nats.
        delta: in [1e-300, 1], for everything together.
        slack: the part of delta that pays for the formula, in [1e-300, delta]. Half of delta if
            absent.
    """

    unit = "rho"

    _epsilon: Fraction
    _delta: Fraction
    _slack: Fraction

    def __init__(self, *, epsilon: Price, delta: Price, slack: Price | None = None) -> None:
        whole = _loggable(delta)
        formula = whole / 2 if slack is None else exact(slack=slack)
        if not _LEAST <= formula <= whole:
            raise refuse("slack", f"be in [1e-300, delta = {delta!r}]", slack)
        object.__setattr__(self, "_epsilon", exact_positive(epsilon=epsilon))
        object.__setattr__(self, "_delta", whole)
        object.__setattr__(self, "_slack", formula)

    @property
    def cap(self) -> ExactAmount:
        """The largest rho of which the formula certifies epsilon, and the delta left beside it."""
        return ExactAmount(
            counted=_rho_of(self._epsilon, self._slack), delta=self._delta - self._slack
        )

    def cost(self, guarantee: Guarantee, cell: Cell | None) -> ExactAmount:
        """Half the squared worst-case epsilon, and delta, whatever ``cell`` came out."""
        epsilon, delta = _output_dp(guarantee).worst_case()  # guard: worst-case-in-formulas
        return ExactAmount(counted=epsilon**2 / 2, delta=delta)

    def epsilon(self, delta: Price) -> float:
        """Returns the budget's epsilon (nats), rounded up, for each delta >= the budget's own."""
        _check_at_least(self._delta, delta)
        return printed_up(self._epsilon)


@dataclass(frozen=True, init=False)
class ZCDPRule(BudgetRule):
    """Zero-concentrated DP: rho adds up.

    Guarantee: all that the analyst sees is rho-zCDP. Source: Bun, Steinke 2016, Propositions 1.3
    and 1.4; Feldman, Zrnic 2021 (adaptivity, at each order).

    Args:
        rho: > 0.
    """

    unit = "rho"

    rho: Fraction

    def __init__(self, *, rho: Price) -> None:
        object.__setattr__(self, "rho", exact_positive(rho=rho))

    @property
    def cap(self) -> ExactAmount:
        """Rho, and a delta of 0."""
        return ExactAmount(counted=self.rho, delta=Fraction(0))

    def cost(self, guarantee: Guarantee, cell: Cell | None) -> ExactAmount:
        """Charges a number as a rho, and an :class:`OutputDP` at the least rho known of it.

        Its own ``rho`` is one; with delta = 0, half the square of its worst-case epsilon is one.
        """
        if isinstance(guarantee, OutputDP):
            known = [rho for rho in (guarantee.rho, _pure_rho(guarantee)) if rho is not None]
            return ExactAmount(counted=_least(known, self.unit, guarantee), delta=Fraction(0))
        return ExactAmount(counted=exact(rho=guarantee), delta=Fraction(0))

    def epsilon(self, delta: Price) -> float:
        """rho + 2 sqrt(rho ln(1/delta)) in nats, rounded up."""
        line = Line(0.0, next_up(float(self.rho)))
        return line.epsilon(next_down(float(_loggable(delta)))).upper


@dataclass(frozen=True, init=False)
class RenyiRule(BudgetRule):
    """Renyi DP at one fixed order: the divergences add up.

    Guarantee: all that the analyst sees has a Renyi divergence of at most ``divergence`` at this
    order. Source: Feldman, Zrnic 2021; Bun, Steinke 2016, Proposition 3.3.

    Args:
        order: > 1.
        epsilon: > 0, the cap of the divergence, nats.
    """

    unit = "divergence"

    order: Fraction
    divergence: Fraction

    def __init__(self, *, order: float, epsilon: Price) -> None:
        # the double itself and not the decimal that it prints as: ``renyi(order)`` is asked at it
        object.__setattr__(self, "order", Fraction(finite(order=order)))
        if not self.order > 1:
            raise refuse("order", "be > 1", order)
        object.__setattr__(self, "divergence", exact_positive(epsilon=epsilon))

    @property
    def cap(self) -> ExactAmount:
        """The divergence, and a delta of 0."""
        return ExactAmount(counted=self.divergence, delta=Fraction(0))

    def cost(self, guarantee: Guarantee, cell: Cell | None) -> ExactAmount:
        """Charges a number as a divergence, and an :class:`OutputDP` at the least one known of it.

        A rho-zCDP mechanism has a divergence of at most rho times the order. With delta = 0 the
        rho is at most half the square of the worst-case epsilon, and the divergence at most this
        epsilon.
        """
        if isinstance(guarantee, OutputDP):
            known = [rho for rho in (guarantee.rho, _pure_rho(guarantee)) if rho is not None]
            divergences = [self.order * rho for rho in known]
            if not guarantee.delta:  # guard: divergence-of-delta-zero
                divergences.append(guarantee.sup)
            return ExactAmount(counted=_least(divergences, self.unit, guarantee), delta=Fraction(0))
        return ExactAmount(counted=exact(divergence=guarantee), delta=Fraction(0))

    def epsilon(self, delta: Price) -> float:
        """Returns the epsilon (nats) of the divergence at ``delta``, rounded up.

        Source: Canonne, Kamath, Steinke 2020, Proposition 12.
        """
        divergence, d = next_up(float(self.divergence)), next_down(float(_loggable(delta)))
        return max(0.0, epsilon_at(float(self.order), divergence, d))


@dataclass(frozen=True, init=False)
class GaussianDPRule(BudgetRule):
    """Gaussian DP: squares of mu add up.

    Guarantee: all that the analyst sees is mu-GDP: no easier to tell apart than N(0, 1) and
    N(mu, 1). Source: Smith, Thakurta 2022; Dong, Roth, Su 2022.

    Args:
        mu: > 0.
    """

    unit = "mu^2"

    mu: Fraction

    def __init__(self, *, mu: Price) -> None:
        object.__setattr__(self, "mu", exact_positive(mu=mu))

    @property
    def cap(self) -> ExactAmount:
        """The square of mu, and a delta of 0."""
        return ExactAmount(counted=self.mu**2, delta=Fraction(0))

    def cost(self, guarantee: Guarantee, cell: Cell | None) -> ExactAmount:
        """Charges the square of a number, mu, or of the mu of an :class:`OutputDP` with delta = 0.

        A mechanism with the worst-case epsilon e and delta = 0 is mu-GDP with mu^2 = (pi/2) e^2.
        Proof: its errors of the two kinds lie above a polygon with the corners (0, 1), (1, 0) and
        (c, c), c = 1 / (1 + exp(e)). The curve of mu-GDP is convex, so it lies below the polygon
        if it does so at (c, c), which is Phi(-mu/2) <= c. Let h(e) be
        Phi(e sqrt(pi/8)) - 1 / (1 + exp(-e)). The ratio of the derivatives of its two terms is
        exp(2 ln cosh(e/2) - (pi/16) e^2), which is 1 at e = 0, above 1 first, and below 1 from
        some e on, as ln cosh(x) / x^2 decreases. So h rises from h(0) = 0, falls to h(inf) = 0,
        and is never negative.
        """
        if isinstance(guarantee, OutputDP):
            rho = _pure_rho(guarantee)
            squares = [] if rho is None else [_PI * rho]  # guard: gaussian-dp-of-delta-zero
            return ExactAmount(counted=_least(squares, self.unit, guarantee), delta=Fraction(0))
        return ExactAmount(counted=exact(mu=guarantee) ** 2, delta=Fraction(0))

    def epsilon(self, delta: Price) -> float:
        """Returns the engine's upper bound (nats) for a Gaussian of this mu at ``delta``."""
        d = next_down(float(_loggable(delta)))
        return _engine_epsilon(Gaussian(sigma=1.0, sensitivity=next_up(float(self.mu))) * 1, d)


@dataclass(frozen=True, init=False)
class PlanRule(BudgetRule):
    """A fixed plan: mechanisms that are declared in advance, and accounted by the engine.

    Guarantee: all that the analyst sees is (epsilon, delta)-DP if each mechanism runs at most
    as often as the plan says, in any order and with anything else in between. The plan is charged
    whole when its budget is opened, also if only some of it runs: the engine's epsilon is a
    theorem about all of it, and stopping early for what came out is covered by the whole alone.

    Proof, from one lemma: a mechanism that a pair (P, Q) dominates answers as if it had looked at
    a draw from that pair alone. So the plan is no better for the analyst than one mechanism that
    shows all draws at once, before anything else.

    Args:
        plan: a mechanism or a composition.
        delta: in [0, 1], the delta at which the plan's epsilon is charged.
    """

    unit = "epsilon"

    plan: Composition
    delta: Fraction

    def __init__(self, *, plan: Composable, delta: Price) -> None:
        if not isinstance(plan, Composable):
            raise refuse("plan", "be a mechanism or a composition", plan)
        object.__setattr__(self, "plan", compose([plan]))
        object.__setattr__(self, "delta", exact_probability(delta=delta))

    # Proof: proofs/plans.v, theorem plan_private
    @property
    def cap(self) -> ExactAmount:
        """The engine's upper bound of the plan's epsilon at its delta, and this delta.

        Raises:
            ParameterError: delta is so small that no finite epsilon could be certified.
        """
        epsilon = self.epsilon(self.delta)
        if not epsilon < math.inf:
            raise refuse("delta", "be large enough for the plan's epsilon to be finite", self.delta)
        return ExactAmount(counted=Fraction(epsilon), delta=self.delta)

    @property
    def declared(self) -> Composition:
        """The plan, which is charged whole."""
        return self.plan

    # Proof: proofs/plans.v, theorem any_order
    def cost(self, guarantee: Guarantee, cell: Cell | None) -> ExactAmount:
        """Nothing for parts of the plan: it was charged whole."""
        if not isinstance(guarantee, Composition):
            raise refuse("guarantee", "be steps of the plan", guarantee)
        return ZERO

    def epsilon(self, delta: Price) -> float:
        """Returns the engine's upper bound of the plan's epsilon at any ``delta``, nats."""
        whole = exact_probability(delta=delta)
        d = float(whole)
        return _engine_epsilon(self.plan, d if Fraction(d) <= whole else next_down(d))


def _engine_epsilon(whole: Composition, delta: float) -> float:
    """Asks the engine for the upper bound of epsilon(delta), however wide the gap below it is."""
    return whole.answer(delta=delta).bounds.upper


def _output_dp(guarantee: Guarantee) -> OutputDP:
    """Returns a guarantee that has prices by cell; refuses any other."""
    if not isinstance(guarantee, OutputDP):
        raise refuse("guarantee", "be an OutputDP", guarantee)
    return guarantee


def _pure_rho(guarantee: OutputDP) -> Fraction | None:
    """Returns half the squared worst-case epsilon, a rho, if delta is 0; else None.

    Source: Bun, Steinke 2016, Proposition 1.4.
    """
    return None if guarantee.delta else guarantee.sup**2 / 2  # guard: rho-of-delta-zero


def _least(amounts: list[Fraction], unit: str, guarantee: OutputDP) -> Fraction:
    """Returns the least of the amounts that a guarantee is known to cost, in this unit.

    Raises:
        ParameterError: there is none.
    """
    if not amounts:
        known = "" if unit == GaussianDPRule.unit else ", or a known rho"
        raise refuse(
            "guarantee",
            f"have delta = 0{known}, in a budget that counts {unit} (a budget of epsilon and delta"
            " takes any)",
            guarantee,
        )
    return min(amounts)


def _check_at_least(own: Fraction, delta: Price) -> None:
    """Refuses a delta below ``own``, at which a budget's epsilon was never certified."""
    if exact_probability(delta=delta) < own:
        raise refuse("delta", f"be at least the budget's, {printed_up(own)}", delta)


def _rho_of(epsilon: Fraction, slack: Fraction) -> Fraction:
    """Returns the largest rho with rho + 2 sqrt(rho ln(1/slack)) <= epsilon, rounded down."""
    # sqrt(rho) + sqrt(L) <= sqrt(epsilon + L), L = ln(1/slack)
    log = _log_one_over(slack)
    return max(Fraction(0), _sqrt_down(epsilon + log) - _sqrt_up(log)) ** 2


def _log_one_over(delta: Price) -> Fraction:
    """Returns ln(1/delta), rounded up."""
    return -_log_down(_loggable(delta))


def _loggable(delta: Price) -> Fraction:
    """Returns delta exactly; refuses one below 1e-300, whose double has no logarithm."""
    d = exact_probability(delta=delta)
    if d < _LEAST:
        raise refuse("delta", "be in [1e-300, 1]", delta)
    return d


def _log_down(x: Fraction) -> Fraction:
    """Returns ln(x), rounded down: the logarithm of a double that is at most x."""
    return Fraction(log_down(next_down(float(x))))  # guard: log-slack-rounded-down


_LEAST = Fraction(1, 10**300)
_PI = Fraction(314_159_265_358_979_323_847, 10**20)  # pi, rounded up in the 20th decimal place
_SCALE = 2**600  # roots are rounded to multiples of its inverse


def _sqrt_down(x: Fraction) -> Fraction:
    """Returns the root of x, rounded down to a multiple of 2^-600."""
    return Fraction(math.isqrt(x.numerator * _SCALE**2 // x.denominator), _SCALE)


def _sqrt_up(x: Fraction) -> Fraction:
    """Returns the root of x, rounded up: at most 2^-600 above :func:`_sqrt_down`."""
    return _sqrt_down(x) + Fraction(1, _SCALE)  # guard: root-rounded-up
