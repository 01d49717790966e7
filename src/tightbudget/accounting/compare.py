"""Certified bounds beside the published theorems that people use instead.

A theorem takes certified facts about each mechanism: points of its delta(eps), its Renyi
divergences, its largest loss. A search chooses the best point or order. Any choice is valid, so
an answer that is called proved is proved.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightbudget import notebook
from tightbudget.errors import ParameterError
from tightbudget.mechanisms.composition import (
    Composable,
    Composition,
    Mechanism,
    Subsampled,
    compose,
)
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.integer_noise import DiscreteGaussian
from tightbudget.mechanisms.laplace import Laplace
from tightbudget.mechanisms.randomized_response import RandomizedResponse
from tightbudget.mechanisms.worst_case import WorstCase
from tightbudget.numerics.bounds import Bounds, Estimate, rounded
from tightbudget.numerics.rounding import TINY, UNIT
from tightbudget.numerics.search import least_between
from tightbudget.numerics.validate import non_negative, open_probability
from tightbudget.theorems import advanced, gaussian_dp, kov, naive, renyi
from tightbudget.theorems.concentrated import Line, best_line, mean_line

__all__ = ["Comparison", "Row", "compare", "growing"]

# These choose where the theorems are asked: a worse choice gives a wider bound, which is as valid.
_GAP = 1e-3  # relative gap of the facts that theorems take: three digits of a theorem's bound
# The best point of a mechanism's curve for a theorem is searched for among _COARSE points, then by
# golden section near the best, until its epsilon is known within a relative _FINE.
_COARSE, _FINE = 17, 0.005
_LONGEST_BAR = 5.0  # the longest bar in a notebook's table, in lengths of our own
_FAR = 100.0  # (order - 1) times the largest loss from which on the divergence is about that loss
# An order so near 1 that a divergence which is infinite there is taken to be infinite everywhere.
_NEAR = 1.0625


@dataclass(frozen=True)
class Row:
    """A row of a comparison: one bound, with its source and its answer.

    Attributes:
        name: the name of the bound.
        source: who has proved (or proposed) it.
        answer: None where it is not applicable; an estimate where it is not proved.
        reason: why it is not applicable, or None.
    """

    name: str
    source: str
    answer: Bounds | Estimate | None
    reason: str | None = None

    @property
    def proved(self) -> bool:
        """Whether the answer is certified."""
        return isinstance(self.answer, Bounds)

    def to_dict(self) -> dict[str, Any]:
        """Returns the row as plain values, without the question that it answers."""
        answer: Any = self.answer
        if isinstance(answer, Bounds):
            answer = answer.to_dict()
        elif isinstance(answer, Estimate):
            answer = answer.value
        return {
            "name": self.name,
            "source": self.source,
            "proved": self.proved,
            "answer": answer,
            "reason": self.reason,
        }

    def _answer_text(self) -> str:
        if isinstance(self.answer, Bounds):
            at_most = self.answer.lower == 0.0 < self.answer.upper
            return f"<= {rounded(self.answer.upper, 6, up=True)}" if at_most else str(self.answer)
        return f"about {self.answer.value:.6g}" if self.answer else "-"


@dataclass(frozen=True, repr=False)
class Comparison:
    """All bounds on one composition's epsilon at a delta, or on its delta at an epsilon.

    Prints as a table. It is a sequence of its rows, each of which is found by its name, too:
    ``for row in comparison``, ``comparison["Renyi"]``.

    Attributes:
        composition: the composition that was asked about.
        given: "delta" or "epsilon".
        at: the value of the given quantity.
        rows: the bounds, ours first.
    """

    composition: Composition
    given: str
    at: float
    rows: tuple[Row, ...]

    @property
    def answered(self) -> str:
        """The name of the answers: "epsilon" or "delta"."""
        return "epsilon" if self.given == "delta" else "delta"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __contains__(self, name: object) -> bool:
        """Tells whether there is a row of this name, or this row."""
        return any(name in (row, row.name) for row in self.rows)

    def __getitem__(self, name: str | int) -> Row:
        """Finds the row of a name, or at an index.

        Raises:
            KeyError: no row has the name.
            IndexError: there are not so many rows.
        """
        if isinstance(name, int):
            return self.rows[name]
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values: ``{"delta": 1e-05, "answered": "epsilon", "rows": [...]}``."""
        rows = [row.to_dict() for row in self.rows]
        return {self.given: self.at, "answered": self.answered, "rows": rows}

    def to_json(self) -> str:
        """Writes :meth:`to_dict` as a JSON object; infinity is written 1e999, as JSON has none."""
        return json.dumps(self.to_dict()).replace("Infinity", "1e999")

    def __repr__(self) -> str:
        ours = self.rows[0].answer
        return (
            f"<Comparison at {self.given} {self.at!r}: {self.answered} {ours}, beside "
            f"{len(self.rows) - 1} other bounds; print it for the table>"
        )

    def _repr_html_(self) -> str:
        """Writes the table of the bounds, with a bar for each answer, for a notebook."""
        # a bound that is several times ours would make the other bars too short to compare
        finite = [x for x in map(_upper, self.rows) if x < math.inf]
        most = min(max(finite, default=1.0), _LONGEST_BAR * max(finite[:1], default=1.0))
        rows = [
            (
                row.name,
                row._answer_text(),
                notebook.scale(_upper(row), most) if row.answer else "",
                "yes" if row.proved else "no" if row.answer else notebook.muted("-"),
                row.source if row.answer else notebook.muted(f"not applicable: {row.reason}"),
            )
            for row in self.rows
        ]
        head = (f"at {self.given} {self.at!r}", self.answered, "", "proved", "source")
        return notebook.shown(notebook.table(rows, head=head, title=repr(self.composition)))

    def __str__(self) -> str:
        header = (f"at {self.given} {self.at!r}", self.answered, "proved", "source")
        lines = [header]
        for row in self.rows:
            if row.answer is None:
                lines.append((row.name, "-", "-", f"not applicable: {row.reason}"))
            else:
                proved = "yes" if row.proved else "no"
                lines.append((row.name, row._answer_text(), proved, row.source))
        wide = [max(len(line[i]) for line in lines) for i in range(3)]
        return "\n".join(
            "  ".join(part.ljust(w) for part, w in zip(line, (*wide, 0), strict=True)).rstrip()
            for line in lines
        )


def compare(
    composition: Composable,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    rtol: float = 1e-4,
) -> Comparison:
    """Puts certified bounds and those of the theorems that people use instead side by side.

    Guarantee: the exact answer lies in the bounds of every row that is proved. Theorems that ask
    for one pair in both orders (KOV, optimal, advanced) are asked about the pair of each direction
    with its reverse, and the larger answer is the row's; where a reverse is not known, the row
    says so and has no answer.

    Args:
        composition: a mechanism or a composition.
        delta: in (0, 1), to be told epsilon; or else
        epsilon: >= 0, nats, to be told delta.
        rtol: wanted relative gap of our own bounds, in (0, 1).

    Raises:
        ParameterError: not exactly one question was asked, or a value is refused.
        PrecisionError: the gap cannot be reached; the message says which gap was.
    """
    *_, whole = growing(composition, delta=delta, epsilon=epsilon, rtol=rtol)
    return whole


def growing(
    composition: Composable,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    rtol: float = 1e-4,
) -> Iterator[Comparison]:
    """Yields the comparison of :func:`compare` with its first row, with two rows, and so on.

    For those who show rows while later ones are computed. The guarantee, the arguments and the
    errors are those of :func:`compare`.
    """
    if (delta is None) == (epsilon is None):
        raise ParameterError("give exactly one of delta and epsilon")
    whole = compose([composition])
    if delta is not None:
        given, at = "delta", open_probability(delta=delta)
        ours = whole.epsilon(at, rtol)
        asked = _Asked(whole, given, at, at)
    else:
        given, at = "epsilon", non_negative(epsilon=epsilon)
        ours = whole.delta(at, rtol)
        asked = _Asked(whole, given, at, min(0.5, max(1e-290, ours.upper)))
    rows = [Row("tightbudget", "both ends certified, rounding included", ours)]
    yield Comparison(whole, given, at, tuple(rows))
    for name, source, theorem in _THEOREMS if whole.runs else ():
        try:
            rows.append(Row(name, source, theorem(asked)))
        except _NotApplicable as reason:
            rows.append(Row(name, source, None, str(reason)))
        yield Comparison(whole, given, at, tuple(rows))


def _upper(row: Row) -> float:
    """The number that the bar of a row shows; inf where there is none."""
    if isinstance(row.answer, Bounds):
        return row.answer.upper
    return math.inf if row.answer is None else row.answer.value


class _NotApplicable(Exception):  # noqa: N818 (an answer, not an error)
    """The reason why a theorem does not apply to a composition."""


@dataclass(frozen=True, eq=False)
class _Asked:
    """A question about a composition, and the facts about it that several theorems share."""

    composition: Composition
    name: str  # "delta" or "epsilon"
    at: float
    target: float  # the delta asked about, or about the delta to be answered

    @property
    def runs(self) -> int:
        """The number of runs of all parts together."""
        return self.composition.runs

    def ask(self, of: Any, *arguments: Any, **more: Any) -> Any:
        """Calls ``of.epsilon(*arguments, delta)`` or ``of.delta(*arguments, epsilon)``."""
        answer = of.epsilon if self.name == "delta" else of.delta
        return answer(*arguments, self.at, **more)

    @functools.cached_property
    def in_both_orders(self) -> list[_Asked]:
        """The question about each direction's pairs with their reverses.

        Where the composition consists of such pairs, the list is the question itself.
        """
        found: list[_Asked] = []
        for direction in self.composition.directions:
            whole = self.composition._in_both_orders(direction)
            if whole is None:
                raise _NotApplicable(_ONE_WAY)
            if whole == self.composition:
                return [self]
            found.append(dataclasses.replace(self, composition=whole))
        return found

    # ----------------------------------------------------------- the steps' own delta(eps)

    @functools.cached_property
    def single(self) -> dict[Mechanism, Composition]:
        """One run of each mechanism, as a composition."""
        return {m: compose([m]) for m, _ in self.composition.parts}

    def step_epsilon(self, mechanism: Mechanism, delta: float) -> float:
        """Bounds from above the epsilon of one run of a mechanism at ``delta``."""
        return self.single[mechanism].answer(delta=delta, rtol=_GAP).bounds.upper

    def step_delta(self, mechanism: Mechanism, epsilon: float) -> float:
        """Bounds from above the delta of one run of a mechanism at ``epsilon``."""
        return self.single[mechanism].answer(epsilon=epsilon, rtol=_GAP).bounds.upper

    @functools.cached_property
    def _common(self) -> dict[float, float]:
        return {}

    def common_delta(self, epsilon: float) -> float:
        """Finds one delta for all runs at one epsilon, for theorems that take equal mechanisms.

        With it, 1 - (1 - delta)^runs is an upper bound of the chance that any run tells all, and
        runs times delta of the sum of all deltas: a geometric mean is below the arithmetic one.
        """
        if epsilon not in self._common:
            deltas = [(self.step_delta(m, epsilon), k) for m, k in self.composition.parts]
            most = max(d for d, _ in deltas)
            if len(deltas) > 1 and 0.0 < most < 1.0:
                log = math.fsum(k * math.log1p(-d) for d, k in deltas) / self.runs
                most = min(most, max(TINY, -math.expm1(log) * (1 + 64 * UNIT)))
            self._common[epsilon] = most
        return self._common[epsilon]

    def over_points(self, theorem: Any) -> Bounds:
        """Searches for the (epsilon, delta) of all runs at which a theorem answers least."""

        def at(epsilon: float) -> float:
            found: Bounds = self.ask(theorem, epsilon, self.common_delta(epsilon), self.runs)
            return found.upper

        low, high = self._range
        if low >= 0.99 * high:
            return Bounds(0.0, min(at(low), at(high)))
        coarse = np.geomspace(low, high, _COARSE).tolist()
        values = [at(e) for e in coarse]
        best = int(np.argmin(values))
        left, right = coarse[max(0, best - 1)], coarse[min(best + 1, _COARSE - 1)]
        found, _ = least_between(lambda x: at(math.exp(x)), math.log(left), math.log(right), _FINE)
        return Bounds(0.0, min(*values, found))

    @functools.cached_property
    def _range(self) -> tuple[float, float]:
        """The epsilons of one run between which the best point is searched for.

        (0, 0) if no run has a loss.
        """
        directions = self.composition.engine.parts
        high = max(
            [0.0, *(part.pair.max_loss()[1] for parts in directions for part in parts.parts)]
        )
        steps = self.composition.parts
        # far above, the deltas have become nothing; below, they alone are too much
        # (and past an atom, where the engine is slow)
        far = max(self.step_epsilon(m, 1e-4 * self.target / self.runs) for m, _ in steps)
        far *= 1 + _GAP
        high = far if far < 0.99 * high else high
        low = 0.0
        if self.name == "delta":
            low = max(self.step_epsilon(m, self.target / k) for m, k in steps) * (1 - _GAP)
        if math.isinf(high):  # then anything may do
            high = max(1.0, self.at, 8.0 * low) if math.isfinite(low) else 1.0
        return min(max(low, 1e-6 * high), high), high

    # ------------------------------------------------------------------------ divergences

    @functools.cached_property
    def divergence(self) -> renyi.Divergence:
        """The divergence of the composition by order, remembered; the worse direction counts."""
        if self.composition.delta(math.inf).lower > 0:
            raise _NotApplicable(_APART)
        steps = [(self.step_divergence(m), k) for m, k in self.composition.parts]

        @functools.cache
        def of_order(order: float) -> Bounds:
            return sum((of_step(order) * k for of_step, k in steps), start=Bounds(0.0, 0.0))

        if math.isinf(of_order(_NEAR).upper):
            raise _NotApplicable("no divergence is known to be finite")
        return of_order

    def step_divergence(self, mechanism: Mechanism) -> renyi.Divergence:
        """Returns the divergence of one run by order: in closed form, or else by the engine."""
        match mechanism:
            case Gaussian():
                return functools.partial(
                    renyi.gaussian, sigma=mechanism.sigma, sensitivity=mechanism.sensitivity
                )
            case Laplace():
                return functools.partial(
                    renyi.laplace, scale=mechanism.scale, sensitivity=mechanism.sensitivity
                )
            case RandomizedResponse(categories=2):
                return functools.partial(renyi.randomized_response, p=mechanism.p)
            case Subsampled(base=Gaussian() as base, rate=q):
                orders = [*range(2, 65), *(round(2 ** (j / 8)) for j in range(49, 81))]
                found = [
                    renyi.subsampled_gaussian(a, base.sigma, q, base.sensitivity).upper
                    for a in orders
                ]
                return renyi.RenyiTable(orders, found)
        single = self.single[mechanism]
        top = single.renyi(math.inf)

        def of_order(order: float) -> Bounds:
            # never more than the largest loss, and so far up hardly less
            if (order - 1.0) * top.upper > _FAR and math.isfinite(top.upper):
                return Bounds(0.0, top.upper)
            return Bounds(0.0, min(top.upper, single.answer(order=order, rtol=_GAP).bounds.upper))

        return of_order

    @property
    def largest_loss(self) -> float:
        """The largest loss of any one run."""
        return max(self.single[m].renyi(math.inf).upper for m, _ in self.composition.parts)

    @functools.cached_property
    def lines(self) -> tuple[list[Line], renyi.RenyiTable | None]:
        """The lines known above some parts' divergences, and a table for the other parts."""
        known = [(_known_line(m), m, k) for m, k in self.composition.parts]
        lines = [line * k for line, _, k in known if line is not None]
        rest = Composition(tuple((m, k) for line, m, k in known if line is None))
        asked = dataclasses.replace(self, composition=rest) if lines else self
        if not rest.runs:
            return lines, None
        divergence, top = asked.divergence, asked.largest_loss
        if math.isinf(top):  # no line lies above a table that ends in inf: so none is made
            raise _NotApplicable(_NO_LINE)
        return lines, renyi.RenyiTable.of(divergence, renyi.orders(top))


_ONE_WAY = "it needs delta(eps) of P against Q and of Q against P, and one is not known"
_NO_LINE = "no such line is known: the largest loss is infinite"
_APART = "some outputs tell the neighbours apart for certain: all divergences are infinite"


def _known_line(mechanism: Mechanism) -> Line | None:
    """Returns the line above the divergences of a mechanism with a Gaussian's tail, or None.

    Source: Bun, Steinke 2016 (Gaussian); Canonne, Kamath, Steinke 2020 (discrete). A sample's
    divergence is at most the whole's, by quasi-convexity.
    """
    if isinstance(mechanism, Subsampled):
        return _known_line(mechanism.base)
    if isinstance(mechanism, (Gaussian, DiscreteGaussian)):
        return Line.gaussian(mechanism.sigma, mechanism.sensitivity)
    return None


# -------------------------------------------------------------------------- the theorems


def _summed(asked: _Asked) -> Bounds:
    return _shared(asked, asked.target / asked.runs, naive.total)


def _adaptive(asked: _Asked) -> Bounds:
    return _shared(asked, -math.expm1(math.log1p(-asked.target) / asked.runs), naive.adaptive)


def _shared(asked: _Asked, delta: float, theorem: Callable[[Any], tuple[Bounds, Bounds]]) -> Bounds:
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


def _in_both_orders(theorem: Callable[[_Asked], Bounds]) -> Callable[[_Asked], Bounds]:
    """Decorates a theorem that asks for pairs that are (eps, delta)-DP in both orders.

    The two directions of a mechanism may be pairs of their own (a :class:`LossTable` says one
    of each). Then the theorem holds for each pair with its reverse, and the larger answer holds
    for both directions.
    """

    @functools.wraps(theorem)
    def larger(asked: _Asked) -> Bounds:
        return Bounds(0.0, max(theorem(one).upper for one in asked.in_both_orders))

    return larger


@_in_both_orders
def _advanced(asked: _Asked) -> Bounds:
    return asked.over_points(advanced)


@_in_both_orders
def _kov(asked: _Asked) -> Bounds:
    return asked.over_points(kov)


@_in_both_orders
def _optimal(asked: _Asked) -> Bounds:
    """Composes, by the engine, the worst mechanisms that have the runs' (epsilon, delta).

    Each run gets the same delta, and all together half of the delta that is asked about.
    """
    if len(asked.composition.parts) == 1:
        raise _NotApplicable("all steps are the same: see KOV")

    def at(log_target: float) -> float:
        share = math.exp(log_target) / (2 * asked.runs)
        points = [(asked.step_epsilon(m, share), k) for m, k in asked.composition.parts]
        if any(math.isinf(e) for e, _ in points):
            return math.inf if asked.name == "delta" else 1.0
        worst = compose([WorstCase(e, share) * k for e, k in points])
        return worst.answer(**{asked.name: asked.at}, rtol=_GAP).bounds.upper

    ends = math.log(asked.target), math.log(asked.target)
    if asked.name == "epsilon":  # the delta that it leads to is only known to lie below KOV's
        ends = ends[0], max(ends[0], math.log(_kov(asked).upper))
    return Bounds(0.0, least_between(at, *ends, 0.3)[0])


def _renyi(asked: _Asked, conversion: renyi.Conversion) -> Bounds:
    found: Bounds = asked.ask(renyi, asked.divergence, conversion=conversion)
    return found


def _line(asked: _Asked, of_table: Callable[..., Line | None]) -> Bounds:
    lines, table = asked.lines
    if table is not None:
        found = of_table(table, **{asked.name: asked.at})
        if found is None:
            raise _NotApplicable(_NO_LINE)
        lines = [*lines, found]
    answer: Bounds = asked.ask(functools.reduce(operator.add, lines))
    return answer


def _gaussian_dp(asked: _Asked) -> Estimate:
    square = 0.0
    for m, k in asked.composition.parts:
        rate, base = (m.rate, m.base) if isinstance(m, Subsampled) else (1.0, m)
        if not isinstance(base, Gaussian):
            raise _NotApplicable("the formula is for Gaussian noise on Poisson samples")
        if rate == 1.0:
            square += k * (base.sensitivity / base.sigma) ** 2
        else:
            mu = gaussian_dp.mu_of_sampling(base.sigma, rate, k, base.sensitivity)
            square += mu.value**2
    if math.isinf(square):
        raise _NotApplicable("its mu is too large for a double")
    found: Estimate = asked.ask(gaussian_dp, math.sqrt(square))
    return found


def _central_limit(asked: _Asked) -> Estimate:
    if asked.composition.delta(math.inf).lower > 0:
        raise _NotApplicable("an infinite loss has no mean")
    found: list[Estimate] = []
    for direction in asked.composition.engine.parts:
        moments = [(*gaussian_dp.moments(part.pair), part.count) for part in direction.parts]
        mean = math.fsum(k * m for m, _, k in moments)
        variance = math.fsum(k * v for _, v, k in moments)
        found.append(asked.ask(gaussian_dp.Normal(mean, variance)))
    return max(found, key=lambda estimate: estimate.value)


_THEOREMS: tuple[tuple[str, str, Callable[[_Asked], Bounds | Estimate]], ...] = (
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
