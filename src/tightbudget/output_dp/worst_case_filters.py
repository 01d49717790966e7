"""Filters that count at better rates than sums of epsilon, and give nothing back.

Each charges the worst case of a mechanism when it is reserved; ``settle`` is accepted and
frees nothing. It must be so: their theorems are about worst cases that were fixed before a
mechanism ran, and are false for prices that depend on what came out.
"""

from __future__ import annotations

from tightbudget.output_dp.account import Account
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.pricing import (
    AdvancedRule,
    BudgetRule,
    GaussianDPRule,
    RenyiRule,
    ZCDPRule,
)


class _WorstCaseFilter(Account):
    """An account whose rule charges the worst case, and knows its epsilon at a delta."""

    def __init__(self, rule: BudgetRule) -> None:
        super().__init__(rule)
        self._budget_rule = rule

    def epsilon(self, delta: Price) -> float:
        """The epsilon (nats) at which all that the filter lets through is (epsilon, delta)-DP.

        Guarantee: rounded up.

        Raises:
            ParameterError: delta is refused.
        """
        return self._budget_rule.epsilon(delta)


class AdvancedFilter(_WorstCaseFilter):
    """Advanced composition, fully adaptive: about the root of the sum of squares counts.

    Guarantee: all that the analyst sees is (epsilon, delta)-DP. A mechanism goes through
    while sqrt(2 ln(1/slack) S) + S/2 <= epsilon, with S the sum of all squared worst-case
    epsilons, its own included, and while the deltas add up to at most delta - slack.
    It counts rho = S/2. Source: Whitehouse, Ramdas, Rogers, Wu 2023.

    Args:
        epsilon: > 0, nats.
        delta: in [1e-300, 1], for everything together.
        slack: the part of delta that pays for the formula, in [1e-300, delta]; the rest is
            for the mechanisms' own deltas. Half of delta if absent.
    """

    def __init__(self, epsilon: Price, delta: Price, slack: Price | None = None) -> None:
        super().__init__(AdvancedRule(epsilon=epsilon, delta=delta, slack=slack))


class ZCDPFilter(_WorstCaseFilter):
    """Zero-concentrated DP: rho adds up.

    Guarantee: all that the analyst sees is rho-zCDP. It takes a mechanism's rho as a number, or
    an :class:`OutputDP` with a rho of its own (:class:`GaussianRelease` has one) or with
    delta = 0, which is epsilon^2/2-zCDP at worst.
    Source: Bun, Steinke 2016, Propositions 1.3 and 1.4; Feldman, Zrnic 2021 (adaptivity, at
    each order).

    Args:
        rho: > 0.
    """

    def __init__(self, rho: Price) -> None:
        super().__init__(ZCDPRule(rho=rho))


class RenyiFilter(_WorstCaseFilter):
    """Renyi DP at one fixed order: the divergences add up.

    Guarantee: all that the analyst sees has a Renyi divergence of at most ``epsilon`` at
    this order. It takes a mechanism's divergence at *this* order as a number, for instance
    the bounds ``composition.renyi(order)``, or an :class:`OutputDP` with a rho of its own
    (:class:`GaussianRelease` has one) or with delta = 0.
    Source: Feldman, Zrnic 2021; Bun, Steinke 2016, Proposition 3.3.

    Args:
        order: > 1.
        epsilon: > 0, the cap of the divergence, nats.
    """

    def __init__(self, order: float, epsilon: Price) -> None:
        super().__init__(RenyiRule(order=order, epsilon=epsilon))


class GaussianDPFilter(_WorstCaseFilter):
    """Gaussian DP: squares of mu add up.

    Guarantee: all that the analyst sees is mu-GDP: no easier to tell apart than N(0, 1) and
    N(mu, 1). It takes a mechanism's mu as a number (sensitivity / sigma for continuous Gaussian
    noise), or an :class:`OutputDP` with delta = 0, which costs (pi/2) epsilon^2 at worst. It
    refuses :class:`GaussianRelease`, whose noise on integers is not mu-GDP for
    mu = sensitivity / sigma. It counts mu^2. Source: Smith, Thakurta 2022; Dong, Roth, Su 2022.

    Args:
        mu: > 0.
    """

    def __init__(self, mu: Price) -> None:
        super().__init__(GaussianDPRule(mu=mu))
