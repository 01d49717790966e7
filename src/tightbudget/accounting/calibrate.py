"""Calibration: the smallest noise whose certified upper bound meets a target."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, overload

from tightbudget import notebook
from tightbudget.engine.answer import FLOOR
from tightbudget.engine.engine import Engine
from tightbudget.engine.readings.tradeoff import BestTest
from tightbudget.errors import CalibrationError, ParameterError
from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.mechanisms.questions import Questions
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.search import root_between
from tightbudget.numerics.validate import (
    first_by_position,
    non_negative,
    open_probability,
    positive,
    probability,
    refuse,
)

_REACH = 1e-6, 1e9  # parameters between which a bracket is searched for if none is given
_FIRST_GAP = 1e-2  # the relative gap of a first look at a value
_LAST_GAP = 1e-5  # of the closest: what it does not decide counts as a miss; public docs name it
_SECANT = 0.2  # of an estimate of ln(quantity / target): its error, for secants to converge fast
# So far from the target, in |ln(quantity / target)|, what has decided is close enough for a secant:
# a schedule of 1,000 noises at four times its noise took 140 s for close bounds of about 1e-66.
_FAR = 10.0
_WIDE = 0.5  # a relative gap of bounds that say little of how large the quantity is
# Of the closest gap: an upper bound that is below the target by less is as good as at it
_HARDLY = 0.1


@dataclass(frozen=True)
class Target:
    """A limit on one quantity of a composition.

    Attributes:
        name: "delta", "advantage" or "tpr".
        most: the largest value that is allowed.
        at: the epsilon (0 for an advantage) or the false-positive rate at which it holds.
    """

    name: str
    most: float
    at: float

    @staticmethod
    def of(**given: float | None) -> Target:
        """Makes the one target that is given: epsilon and delta, advantage, or tpr and fpr."""
        kinds = {
            kind: {name: given[name] for name in kind}
            for kind in (("epsilon", "delta"), ("advantage",), ("tpr", "fpr"))
        }
        asked = [kind for kind, values in kinds.items() if set(values.values()) != {None}]
        if len(asked) != 1:
            got = ", ".join(name for name, value in given.items() if value is not None) or "none"
            raise ParameterError(
                "give exactly one target: epsilon and delta, or advantage, or tpr and fpr; "
                f"got {got}"
            )
        values = kinds[asked[0]]
        missing = [name for name, value in values.items() if value is None]
        if missing:
            raise ParameterError(f"{missing[0]} is missing: give {' and '.join(values)} together")
        if "epsilon" in values:
            epsilon = non_negative(epsilon=values["epsilon"])
            return Target("delta", positive(delta=probability(delta=values["delta"])), epsilon)
        if "advantage" in values:
            return Target("advantage", open_probability(advantage=values["advantage"]), 0.0)
        tpr, fpr = open_probability(tpr=values["tpr"]), open_probability(fpr=values["fpr"])
        if not tpr > fpr:  # tossing a coin already has tpr = fpr
            raise refuse("tpr", f"be > fpr = {fpr!r}", tpr)
        return Target("tpr", tpr, fpr)

    def bounds(self, composition: Questions, rtol: float, until: float | None = None) -> Bounds:
        """Bounds the quantity; with ``until`` only as closely as a comparison with it needs."""
        at = {"fpr" if self.name == "tpr" else "epsilon": self.at}
        return composition.answer(**at, rtol=rtol, target=until).bounds

    def cost(self, composition: Questions, rtol: float) -> tuple[str, Bounds, float]:
        """Names what people call the cost, and returns its bounds and the most that is allowed."""
        if self.name == "delta":
            return "epsilon", composition.answer(delta=self.most, rtol=rtol).bounds, self.at
        return self.name, self.bounds(composition, rtol), self.most

    def __str__(self) -> str:
        asked = {"delta": f" at epsilon = {self.at!r}", "tpr": f" at fpr = {self.at!r}"}
        return f"{self.name} <= {self.most!r}{asked.get(self.name, '')}"


@dataclass(frozen=True)
class _Dominating(Questions):
    """Answers for the dominating pairs of a composition alone, as if these were attained."""

    composition: Composition

    @property
    def engine(self) -> Engine:
        return self.composition.engine


@dataclass(frozen=True, repr=False)
class Calibration:
    """A parameter's value that meets a target, and the composition that has this value.

    Attributes:
        value: the parameter.
        composition: the composition that the function returns for ``value``.
        target: the target that was asked for.
        met: bounds of the target's quantity there; the upper bound is <= ``target.most``. Where
            no single pair is known to be exact, the lower bound is that of data sets that exist.
    """

    value: float
    composition: Composition
    target: Target
    met: Bounds

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: value {self.value!r} meets {self.target}, "
            f"{self.target.name} is {self.met}; {self.composition!r}>"
        )

    def _repr_html_(self) -> str:
        """Writes a table of the value, the target and what is met, for a notebook."""
        rows = [
            ("value", repr(self.value)),
            ("target", f"{self.target}"),
            (f"{self.target.name} there", str(self.met)),
            ("composition", repr(self.composition)),
        ]
        return notebook.shown(notebook.table([(name, notebook.left(v)) for name, v in rows]))

    @property
    def delta(self) -> Bounds:
        """Bounds of delta at the target's eps, at most the target delta."""
        if self.target.name == "tpr":
            raise ParameterError(f"delta was not the target: {self.target}")
        return self.met

    @property
    def epsilon(self) -> Bounds:
        """Bounds of eps at the target's delta, at most the target eps."""
        if self.target.name == "tpr":
            raise ParameterError(f"epsilon was not the target: {self.target}")
        # around eps = 0 no relative gap can be reached
        return _capped(self.composition.answer(delta=self.target.most).bounds, self.target.at)

    def to_dict(self) -> dict[str, Any]:
        """Returns the value, the bounds reached there and the target's place, as plain values."""
        answer: dict[str, Any] = {"value": self.value}
        if self.target.name == "delta":
            return {**answer, "epsilon": self.epsilon.to_dict(), "delta": self.target.most}
        at = {"fpr": self.target.at} if self.target.name == "tpr" else {}
        return {**answer, self.target.name: self.met.to_dict(), **at}


@dataclass(frozen=True, repr=False)
class IntegerCalibration(Calibration):
    """A calibration whose parameter is an integer, for instance a number of steps."""

    value: int


@overload
def calibrate(
    function: Callable[[int], Composable],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    advantage: float | None = None,
    tpr: float | None = None,
    fpr: float | None = None,
    between: tuple[float, float] | None = None,
    integer: Literal[True],
    rtol: float = 1e-5,
) -> IntegerCalibration: ...


@overload
def calibrate(
    function: Callable[[float], Composable],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    advantage: float | None = None,
    tpr: float | None = None,
    fpr: float | None = None,
    between: tuple[float, float] | None = None,
    integer: bool = False,
    rtol: float = 1e-5,
) -> Calibration: ...


@first_by_position
def calibrate(
    function: Callable[[Any], Composable],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    advantage: float | None = None,
    tpr: float | None = None,
    fpr: float | None = None,
    between: tuple[float, float] | None = None,
    integer: bool = False,
    rtol: float = 1e-5,
) -> Calibration:
    """Finds the best value of a parameter whose certified upper bound meets a target.

    The target is one of: ``epsilon`` and ``delta``; ``advantage``, the largest that an attack may
    have; ``tpr`` and ``fpr``, the largest true-positive rate of an attack with that false-positive
    rate. Where more of the parameter costs less (noise), the smallest value that meets the
    target; where it costs more (steps, a rate), the largest.

    Guarantee: the upper bound at ``value`` is at most the target; the lower bound
    (or the upper one, within the width of the bounds) misses the target at ``value`` moved
    by the relative ``rtol`` (by 1 with ``integer``) towards the cheaper side. Where a mechanism
    has a dominating pair and another one that is attained (shuffled or fixed-size batches), the
    value is the best one by the dominating pair: less noise may do, but no proof of it is known.
    ``met`` has the bounds of both pairs.
    Source: Kulynych et al. 2024, for noise that is calibrated to attack risk.

    Args:
        function: from the parameter (> 0) to a mechanism or composition, monotone in cost.
            Its own exceptions reach the caller, with a hint where an argument of calibrate is
            known to be missing.
        epsilon, delta: delta(epsilon) <= delta, eps >= 0 in nats, delta in (0, 1).
        advantage: in (0, 1).
        tpr, fpr: in (0, 1), tpr > fpr.
        between: (lowest, highest) value to consider; found from 1 outwards if absent. A rate
            needs it: between=(1e-6, 1).
        integer: the parameter is an integer, such as a number of runs.
        rtol: how close to the best value.

    Raises:
        CalibrationError: no value within reach meets the target, or all do.
        ParameterError: a parameter is refused, or there is not exactly one target.
    """
    if not callable(function):
        raise refuse("function", "be a function that makes a mechanism or composition", function)
    target = Target.of(epsilon=epsilon, delta=delta, advantage=advantage, tpr=tpr, fpr=fpr)
    probe = _Probe(function, target, integer=integer, searching=between is None)
    rtol = positive(rtol=rtol)
    good, bad = _bracket(probe, between)
    value = _best_integer(probe, good, bad) if integer else _best_real(probe, good, bad, rtol)
    composition = probe.composition(value)
    met = probe.met(value)
    if integer:
        return IntegerCalibration(int(value), composition, target, met)
    return Calibration(value, composition, target, met)


def _capped(bounds: Bounds, most: float) -> Bounds:
    return Bounds(min(bounds.lower, most), min(bounds.upper, most), apart=bounds.apart)


class _Probe:
    """Asks for the target's quantity at values of the parameter, and remembers the answers."""

    def __init__(
        self,
        function: Callable[[float], Composable],
        target: Target,
        *,
        integer: bool,
        searching: bool,
    ) -> None:
        self.function, self.target, self.integer = function, target, integer
        self.searching = searching  # whether values are tried that the caller did not name
        self.taken = False  # whether the function has accepted a value
        self.known: dict[float, tuple[float, Bounds]] = {}  # the gap asked for, and the answer
        self.tests: dict[float, BestTest] = {}  # for a true-positive rate, what was learned of it
        self.last: BestTest | None = None
        self.closest = math.inf  # the least estimate of |ln(quantity / target)|

    def composition(self, x: float) -> Composition:
        try:
            value = self.function(int(x) if self.integer else x)
        except (ParameterError, TypeError) as error:
            hint = self._hint(x)
            if hint is None:
                raise
            raise ParameterError(f"{error}: {hint}") from error
        self.taken = True
        if not isinstance(value, Composable):
            raise ParameterError(f"function must return a composition, got {value!r} at {x!r}")
        return compose([value])

    def _hint(self, x: float) -> str | None:
        """Says what to ask for where the function refuses ``x``, if that is known."""
        if not self.integer and x.is_integer():
            with contextlib.suppress(Exception):
                self.function(int(x))
                return "for a parameter that is an integer, give integer=True"
        if self.searching and self.taken:
            return (
                "where the parameter has limits, give between=(lowest, highest), such as "
                "between=(1e-6, 1) for a rate"
            )
        return None

    def bounds(self, x: float, rtol: float, *, decided: bool = True) -> Bounds:
        """Bounds the dominating pairs' quantity at ``x``.

        Args:
            x: the parameter.
            rtol: the wanted relative gap.
            decided: whether bounds that are on one side of the target may be wider than that.
        """
        asked, bounds = self.known.get(x, (math.inf, Bounds(0.0, 1.0)))
        if bounds.relative_gap > rtol and (rtol < asked or not decided):
            found = self._ask(x, rtol, self.target.most if decided else None)
            # what was certified stays so
            bounds = bounds.meet(found) if bounds.overlaps(found) else found
            self.known[x] = rtol, bounds
        return bounds

    def _ask(self, x: float, rtol: float, until: float | None) -> Bounds:
        """Bounds the quantity at ``x`` anew; near-by best tests are alike."""
        dominating = _Dominating(self.composition(x))
        if self.target.name != "tpr":
            return self.target.bounds(dominating, rtol, until)
        if x not in self.tests:
            self.tests[x] = BestTest(dominating.engine, self.target.at, self.last)
        self.last = self.tests[x]
        return self.last.answer(rtol, until).bounds

    def estimate(self, x: float, rtol: float, *, decided: bool = False) -> float:
        """Estimates ln(quantity / target) from bounds: see :meth:`bounds`.

        Far from the target they are those that have decided, however wide.
        """

        def distance(bounds: Bounds) -> float:
            return _log_mean(bounds) - math.log(self.target.most)

        if x in self.known:
            known = self.known[x][1]
            if known.decides(self.target.most) and abs(distance(known)) > _FAR:
                return distance(known)
        return distance(self.bounds(x, rtol, decided=decided))

    def excess(self, x: float, enough: float) -> float:
        """Estimates ln(quantity / target) as closely as a secant needs it: > 0 where it is missed.

        So close to the target that bounds with a relative gap of ``enough`` do not decide, it is
        that of the upper bound, which says whether the target is certified to be met.
        """
        most = self.target.most
        gap = min(_FIRST_GAP, max(enough, _SECANT * self.closest))
        while True:
            excess, bounds = self.estimate(x, gap), self.known[x][1]
            wanted = max(enough, _SECANT * abs(excess))
            sure = not bounds.lower <= most < bounds.upper
            if gap <= enough or (sure and bounds.relative_gap <= wanted):
                break
            gap = max(enough, min(0.1 * gap, wanted))
        self.closest = min(self.closest, abs(excess))
        if sure and bounds.relative_gap <= wanted and wanted > enough:
            return excess
        excess = math.log(max(bounds.upper, 1e-300) / most)
        return 0.0 if -_HARDLY * enough <= excess <= 0.0 else excess

    def meets(self, x: float, enough: float = 0.0) -> bool:
        """Tells if the target is certified to be met; narrower bounds decide a close call.

        Bounds with a relative gap of ``enough`` that do not decide count as a miss.
        """
        for rtol in (enough,) if enough else (0.1, 1e-3, 1e-4, _LAST_GAP):
            if self.bounds(x, rtol).decides(self.target.most):
                break
        return self.is_met(x)

    def is_met(self, x: float) -> bool:
        """Tells if the bounds that are known at ``x`` certify that the target is met."""
        return self.known[x][1].upper <= self.target.most

    def met(self, x: float) -> Bounds:
        """Bounds the target's quantity at a value that meets the target."""
        composition, bounds = self.composition(x), self.bounds(x, 1e-4, decided=False)
        if composition.attained is not None:
            # where the two pairs are far apart, more digits of the lower one tell nothing and can
            # take ten times as long (12 s instead of 1.2 s for batches with replacement)
            for rtol in (1e-2, 1e-4):
                below = self.target.bounds(composition.attained, rtol)
                if below.upper < 0.9 * bounds.upper:
                    break
            met = Bounds(below.lower, bounds.upper)
            apart = "" if met.relative_gap <= 1e-4 else composition.apart
            bounds = Bounds(met.lower, met.upper, apart=apart)
        # that the target is met was certified, maybe at a finer gap than these bounds have
        return _capped(bounds, self.target.most)


def _log_mean(bounds: Bounds) -> float:
    """The mean of the logarithms of two bounds of a number in [0, 1]."""
    # how far below FLOOR an upper bound lies says how it was proved, not how small the number is
    high = min(1.0, max(bounds.upper, FLOOR))
    low = max(bounds.lower, FLOOR) if bounds.lower > 0.0 else high  # 0 has no logarithm
    return 0.5 * (math.log(low) + math.log(high))


def _bracket(probe: _Probe, between: tuple[float, float] | None) -> tuple[float, float]:
    """Finds a value that meets the target and one that misses it, and returns (good, bad)."""
    if between is not None:
        low, high = (positive(**{f"between[{i}]": x}) for i, x in enumerate(between))
        if not low < high:
            raise ParameterError(f"between must be (low, high) with low < high, got {between!r}")
        at_low, at_high = probe.meets(low), probe.meets(high)
        if at_low == at_high:
            verdict = "both ends meet" if at_low else "neither end meets"
            rest = "" if at_low else _rest(probe, low, high)
            raise CalibrationError(f"between = ({low:g}, {high:g}): {verdict} the target{rest}")
        return (low, high) if at_low else (high, low)
    # outwards from 1, on both sides until it is seen where the target lies
    low = high = 1.0
    met = probe.meets(1.0)
    sides: tuple[int, ...] = (+1,) if probe.integer else (+1, -1)
    factor = 4.0
    while sides and low > _REACH[0] and high < _REACH[1]:
        for side in sides:
            x = high if side > 0 else low
            further = x * factor**side
            if probe.meets(further) != met:
                return (x, further) if met else (further, x)
            low, high = min(low, further), max(high, further)
            # the target lies where the excess changes towards zero
            here, there = (probe.estimate(value, 0.1, decided=True) for value in (x, further))
            change = there - here
            nearer = (change < 0) != met
            # wide bounds that have decided may fall as the quantity grows: not enough to give up
            wide = any(probe.known[value][1].relative_gap > _WIDE for value in (x, further))
            last = wide and not nearer and len(sides) == 1
            # more than the excess can be off at a gap of 0.1 (two times 5 %)
            if abs(change) > 0.25 and not last:
                sides = (side,) if nearer else tuple(other for other in sides if other != side)
                # to the secant's zero and a fifth further, to land beyond the root; the step stays
                # between factors e^0.4 and e^2, since far from the root the excess is not linear
                needed = -there / change * math.log(factor) if nearer else 1.0
                factor = math.exp(min(max(1.2 * needed, 0.4), 2.0))
                break
        else:
            factor = min(16.0, factor * 2.0)
    verdict = "all meet" if met else "none meets"
    rest = "" if met else _rest(probe, low, high)
    raise CalibrationError(
        f"of the parameters from {low:g} to {high:g}, {verdict} the target{rest}"
    )


def _rest(probe: _Probe, low: float, high: float) -> str:
    """Says what the parts cost that are the same at two values, where these alone miss the target.

    Returns:
        a clause for a refusal; "" where nothing is the same, or where it meets the target.
    """
    one, other = (dict(probe.composition(x).parts) for x in (low, high))
    # a composition costs no less than some of its runs do
    rest = Composition(tuple((m, min(k, other.get(m, 0))) for m, k in one.items()))
    if not rest.runs:
        return ""
    name, cost, most = probe.target.cost(rest, 1e-3)
    if cost.upper <= most:
        return ""
    apart = f" (apart: {cost.apart})" if cost.apart else ""
    return (
        f": the parts that are the same at both ends alone cost {name} {cost:.4g}{apart} "
        f"(target {most!r})"
    )


def _best_integer(probe: _Probe, good: float, bad: float) -> float:
    """Bisects for the last integer before ``bad`` that meets the target."""
    while abs(good - bad) > 1:
        middle = math.floor(math.sqrt(good * bad))
        x = float(min(max(middle, min(good, bad) + 1), max(good, bad) - 1))
        if probe.meets(x):
            good = x
        else:
            bad = x
    return good


def _best_real(probe: _Probe, good: float, bad: float, rtol: float) -> float:
    """Finds a value that meets the target, within rtol of one that misses it."""
    a, b = math.log(good), math.log(bad)
    to_good = math.copysign(1.0, a - b)
    at_a, at_b = probe.estimate(good, _FIRST_GAP), probe.estimate(bad, _FIRST_GAP)
    # A gap that moves the root by less than rtol is narrow enough; a narrower one takes most of the
    # time where a close call needs it (batches with replacement: 20 s of 29 for one call)
    enough = max(_LAST_GAP, min(_FIRST_GAP, rtol * abs(at_b - at_a) / abs(b - a)))
    met = {a: True, b: False}

    def excess(u: float) -> float:
        found = probe.excess(math.exp(u), enough)
        met[u] = probe.is_met(math.exp(u))
        return found

    root_between(excess, a, b, xtol=rtol)
    # the best value that is certified to meet the target, and the next one that is not
    best = min((u for u in met if met[u]), key=lambda u: to_good * u)
    b = max((u for u in met if to_good * u < to_good * best), key=lambda u: to_good * u)
    step = rtol
    while abs(best - b) > 1.01 * rtol:
        next_one = best - to_good * min(step, abs(best - b) / 2 if step > rtol else step)
        if probe.meets(math.exp(next_one), enough):
            best = next_one
            step *= 2.0
        else:
            b = next_one
            step = max(rtol, abs(best - b) / 2)
    return math.exp(best)
