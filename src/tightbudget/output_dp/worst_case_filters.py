"""Filters that count at better rates than sums of epsilon, and give nothing back.

Each charges the worst case of a mechanism when it is reserved; ``settle`` is accepted and
frees nothing. It must be so: their theorems are about worst cases that were fixed before a
mechanism ran, and are false for prices that depend on what came out.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tightbudget.errors import ParameterError, PrecisionError
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.numerics.rounding import log_down, next_down, next_up
from tightbudget.numerics.validate import finite, refuse
from tightbudget.output_dp.account import Account, Amount
from tightbudget.output_dp.amount import Price, exact, exact_positive, exact_probability
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.theorems.concentrated import Line
from tightbudget.theorems.renyi import epsilon_at

__all__ = ["AdvancedFilter", "GaussianDPFilter", "RenyiFilter", "ZCDPFilter"]


class WorstCaseAccount(Account):
    """An account that charges the worst case, whatever comes out."""

    def cost(self, guarantee: OutputDP | Price, cell: Cell | None) -> Amount:
        """What an output in the cell costs, exactly; at most, if the cell is None."""
        return self._worst(guarantee)

    def _worst(self, guarantee: OutputDP | Price) -> Amount:
        raise NotImplementedError


class AdvancedFilter(WorstCaseAccount):
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

    unit = "rho"

    def __init__(self, epsilon: Price, delta: Price, slack: Price | None = None) -> None:
        whole = _failure(delta)
        formula = whole / 2 if slack is None else exact(slack=slack)
        if not _LEAST <= formula <= whole:
            raise refuse("slack", f"be in [1e-300, delta = {delta!r}]", slack)
        most = _rho_of(exact_positive(epsilon=epsilon), formula)
        super().__init__(Amount(most, whole - formula))

    def _worst(self, guarantee: OutputDP | Price) -> Amount:
        epsilon, delta = _output_dp(guarantee).worst_case()
        return Amount(epsilon**2 / 2, delta)


class ZCDPFilter(WorstCaseAccount):
    """Zero-concentrated DP: rho adds up.

    Guarantee: all that the analyst sees is rho-zCDP. It takes a mechanism's rho as a number,
    or an :class:`OutputDP` with delta = 0, which is epsilon^2/2-zCDP at worst.
    Source: Bun, Steinke 2016, Propositions 1.3 and 1.4; Feldman, Zrnic 2021 (adaptivity, at
    each order).

    Args:
        rho: > 0.
    """

    unit = "rho"

    def __init__(self, rho: Price) -> None:
        self._rho = exact_positive(rho=rho)
        super().__init__(Amount(self._rho, Fraction(0)))

    def _worst(self, guarantee: OutputDP | Price) -> Amount:
        if isinstance(guarantee, OutputDP):
            return Amount(_pure(guarantee) ** 2 / 2, Fraction(0))
        return Amount(exact(rho=guarantee), Fraction(0))

    def epsilon(self, delta: Price) -> float:
        """rho + 2 sqrt(rho ln(1/delta)): the whole is (epsilon, delta)-DP. Rounded up."""
        line = Line(0.0, next_up(float(self._rho)))
        return line.epsilon(next_down(float(_failure(delta)))).upper


class RenyiFilter(WorstCaseAccount):
    """Renyi DP at one fixed order: the divergences add up.

    Guarantee: all that the analyst sees has a Renyi divergence of at most ``epsilon`` at
    this order. It takes a mechanism's divergence at *this* order as a number, for instance
    the bounds ``composition.renyi(order)``, or an :class:`OutputDP` with delta = 0.
    Source: Feldman, Zrnic 2021; Bun, Steinke 2016, Proposition 3.3.

    Args:
        order: > 1.
        epsilon: > 0, the cap of the divergence, nats.
    """

    unit = "divergence"

    def __init__(self, order: float, epsilon: Price) -> None:
        self._order = Fraction(finite(order=order))  # the double, as in ``renyi(order)``
        if not self._order > 1:
            raise refuse("order", "be > 1", order)
        self._epsilon = exact_positive(epsilon=epsilon)
        super().__init__(Amount(self._epsilon, Fraction(0)))

    def _worst(self, guarantee: OutputDP | Price) -> Amount:
        if isinstance(guarantee, OutputDP):
            epsilon = _pure(guarantee)
            return Amount(min(epsilon, self._order * epsilon**2 / 2), Fraction(0))
        return Amount(exact(divergence=guarantee), Fraction(0))

    def epsilon(self, delta: Price) -> float:
        """The epsilon at which the whole is (epsilon, delta)-DP, rounded up.

        Source: Canonne, Kamath, Steinke 2020, Proposition 12.
        """
        divergence, d = next_up(float(self._epsilon)), next_down(float(_failure(delta)))
        return max(0.0, epsilon_at(float(self._order), divergence, d))


class GaussianDPFilter(WorstCaseAccount):
    """Gaussian DP: squares of mu add up.

    Guarantee: all that the analyst sees is mu-GDP: no easier to tell apart than N(0, 1) and
    N(mu, 1). It takes a mechanism's mu as a number (sensitivity / sigma for Gaussian noise).
    It counts mu^2. Source: Smith, Thakurta 2022; Dong, Roth, Su 2022.

    Args:
        mu: > 0.
    """

    unit = "mu^2"

    def __init__(self, mu: Price) -> None:
        self._mu = exact_positive(mu=mu)
        super().__init__(Amount(self._mu**2, Fraction(0)))

    def _worst(self, guarantee: OutputDP | Price) -> Amount:
        return Amount(exact(mu=guarantee) ** 2, Fraction(0))

    def epsilon(self, delta: Price) -> float:
        """The epsilon at which the whole is (epsilon, delta)-DP: the engine's upper end."""
        d = next_down(float(_failure(delta)))
        whole = Gaussian(sigma=1.0, sensitivity=next_up(float(self._mu)))
        try:
            return float((whole * 1).epsilon(delta=d).upper)
        except PrecisionError as error:  # too wide for the engine, and true all the same
            return error.upper


def _output_dp(guarantee: OutputDP | Price) -> OutputDP:
    if not isinstance(guarantee, OutputDP):
        raise refuse("guarantee", "be an OutputDP", guarantee)
    return guarantee


def _pure(guarantee: OutputDP) -> Fraction:
    """The epsilon of a mechanism with delta = 0."""
    if guarantee.delta:
        raise ParameterError(
            f"delta must be 0 here (an AdvancedFilter takes others), got {guarantee.delta}"
        )
    return guarantee.sup


def _rho_of(epsilon: Fraction, slack: Fraction) -> Fraction:
    """The largest rho with rho + 2 sqrt(rho ln(1/slack)) <= epsilon, rounded down."""
    # sqrt(rho) + sqrt(L) <= sqrt(epsilon + L), L = ln(1/slack)
    log = _log_one_over(slack)
    return max(Fraction(0), _sqrt_down(epsilon + log) - _sqrt_up(log)) ** 2


def _log_one_over(delta: Price) -> Fraction:
    """At least ln(1/delta)."""
    return -_log_down(_failure(delta))


def _failure(delta: Price) -> Fraction:
    """A delta whose logarithm is that of a double."""
    d = exact_probability(delta=delta)
    if d < _LEAST:
        raise refuse("delta", "be in [1e-300, 1]", delta)
    return d


def _log_down(x: Fraction) -> Fraction:
    return Fraction(log_down(next_down(float(x))))


_LEAST = Fraction(1, 10**300)
_SCALE = 2**600  # roots are rounded to multiples of its inverse


def _sqrt_down(x: Fraction) -> Fraction:
    return Fraction(math.isqrt(x.numerator * _SCALE**2 // x.denominator), _SCALE)


def _sqrt_up(x: Fraction) -> Fraction:
    return _sqrt_down(x) + Fraction(1, _SCALE)
