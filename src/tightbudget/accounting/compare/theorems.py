"""The published theorems that a comparison asks, each with its source."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from tightbudget.accounting.compare.facts import GAP, NO_LINE, Facts, NotApplicable
from tightbudget.mechanisms.approximate_dp import ApproximateDP
from tightbudget.mechanisms.composition import compose
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.subsampled import Subsampled
from tightbudget.numerics.bounds import Bounds, Estimate
from tightbudget.numerics.rounding import UNIT
from tightbudget.numerics.search import least_between
from tightbudget.theorems import advanced, gaussian_dp, kov, naive, renyi
from tightbudget.theorems.concentrated import Line, best_line, mean_line


def _summed(asked: Facts) -> Bounds:
    return _shared(asked, asked.target / asked.runs, naive.total)


def _adaptive(asked: Facts) -> Bounds:
    return _shared(asked, -math.expm1(math.log1p(-asked.target) / asked.runs), naive.adaptive)


def _shared(asked: Facts, delta: float, theorem: Callable[[Any], tuple[Bounds, Bounds]]) -> Bounds:
    """Asks a theorem with an equal share of the given epsilon or ``delta`` for each run."""
    if asked.name == "epsilon":
        share = asked.at / asked.runs * (1 - 16 * UNIT)
        steps = [(share, asked.step_delta(m, share), k) for m, k in asked.composition.parts]
        return Bounds(0.0, theorem(steps)[1].upper)
    share = delta * (1 - 16 * UNIT)
    steps = [(asked.step_epsilon(m, share), share, k) for m, k in asked.composition.parts]
    if any(math.isinf(e) for e, _, _ in steps):
        return Bounds(0.0, math.inf)
    return Bounds(0.0, theorem(steps)[0].upper)


def _in_both_orders(theorem: Callable[[Facts], Bounds]) -> Callable[[Facts], Bounds]:
    """Decorates a theorem that asks for pairs that are (eps, delta)-DP in both orders.

    The two directions of a mechanism may be pairs of their own (a :class:`LossTable` says one
    of each). Then the theorem holds for each pair with its reverse, and the larger answer holds
    for both directions.
    """

    @functools.wraps(theorem)
    def larger(asked: Facts) -> Bounds:
        return Bounds(0.0, max(theorem(one).upper for one in asked.in_both_orders))

    return larger


@_in_both_orders
def _advanced(asked: Facts) -> Bounds:
    return asked.over_points(advanced)


@_in_both_orders
def _kov(asked: Facts) -> Bounds:
    return asked.over_points(kov)


@_in_both_orders
def _optimal(asked: Facts) -> Bounds:
    """Composes, by the engine, the worst mechanisms that have the runs' (epsilon, delta).

    Each run gets the same delta, and all together half of the delta that is asked about.
    """
    if len(asked.composition.parts) == 1:
        raise NotApplicable("all steps are the same: see KOV")

    def at(log_target: float) -> float:
        share = math.exp(log_target) / (2 * asked.runs)
        points = [(asked.step_epsilon(m, share), k) for m, k in asked.composition.parts]
        if any(math.isinf(e) for e, _ in points):
            return math.inf if asked.name == "delta" else 1.0
        worst = compose([ApproximateDP(e, share) * k for e, k in points])
        return worst.answer(**{asked.name: asked.at}, rtol=GAP).bounds.upper

    ends = math.log(asked.target), math.log(asked.target)
    if asked.name == "epsilon":  # the delta that it leads to is only known to lie below KOV's
        ends = ends[0], max(ends[0], math.log(_kov(asked).upper))
    return Bounds(0.0, least_between(at, *ends, 0.3)[0])


def _renyi(asked: Facts, conversion: renyi.Conversion) -> Bounds:
    found: Bounds = asked.ask(renyi, asked.divergence, conversion=conversion)
    return found


def _line(asked: Facts, of_table: Callable[..., Line | None]) -> Bounds:
    lines, table = asked.lines
    if table is not None:
        found = of_table(table, **{asked.name: asked.at})
        if found is None:
            raise NotApplicable(NO_LINE)
        lines = [*lines, found]
    answer: Bounds = asked.ask(functools.reduce(operator.add, lines))
    return answer


def _gaussian_dp(asked: Facts) -> Estimate:
    square = 0.0
    for m, k in asked.composition.parts:
        rate, base = (m.rate, m.base) if isinstance(m, Subsampled) else (1.0, m)
        if not isinstance(base, Gaussian):
            raise NotApplicable("the formula is for Gaussian noise on Poisson samples")
        if rate == 1.0:
            square += k * (base.sensitivity / base.sigma) ** 2
        else:
            mu = gaussian_dp.mu_of_sampling(base.sigma, rate, k, base.sensitivity)
            square += mu.value**2
    if math.isinf(square):
        raise NotApplicable("its mu is too large for a double")
    found: Estimate = asked.ask(gaussian_dp, math.sqrt(square))
    return found


def _central_limit(asked: Facts) -> Estimate:
    if asked.composition.delta(math.inf).lower > 0:
        raise NotApplicable("an infinite loss has no mean")
    found: list[Estimate] = []
    for direction in asked.composition.engine.parts:
        moments = [(*gaussian_dp.moments(part.pair), part.count) for part in direction.parts]
        mean = math.fsum(k * m for m, _, k in moments)
        variance = math.fsum(k * v for _, v, k in moments)
        found.append(asked.ask(gaussian_dp.Normal(mean, variance)))
    return max(found, key=lambda estimate: estimate.value)


THEOREMS: tuple[tuple[str, str, Callable[[Facts], Bounds | Estimate]], ...] = (
    ("naive", "Dwork et al. 2006", _summed),
    ("adaptive", "Meiser, Mohammadi 2018, Lemma 3", _adaptive),
    ("advanced", "Dwork, Rothblum, Vadhan 2010", _advanced),
    ("KOV", "Kairouz, Oh, Viswanath 2017", _kov),
    ("optimal", "Murtagh, Vadhan 2016", _optimal),
    (
        "moments accountant",
        "Abadi et al. 2016; Mironov 2017",
        functools.partial(_renyi, conversion=renyi.Conversion.MIRONOV),
    ),
    (
        "Renyi",
        "Mironov 2017; Canonne, Kamath, Steinke 2020",
        functools.partial(_renyi, conversion=renyi.Conversion.CANONNE),
    ),
    ("zero-concentrated", "Bun, Steinke 2016", functools.partial(_line, of_table=best_line)),
    ("concentrated", "Dwork, Rothblum 2016", functools.partial(_line, of_table=mean_line)),
    ("Gaussian DP", "Bu, Dong, Long, Su 2020", _gaussian_dp),
    ("central limit", "Sommer, Meiser, Mohammadi 2019", _central_limit),
)
