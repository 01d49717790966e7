"""Which engine answers: the line integral where it can, the two masses everywhere else.

Both give certified ends, and share nothing but the pairs. The contour engine takes
compositions of Gaussian steps, sampled or not; it answers with many digits or not at all,
and says so quickly. ``benchmarks`` compares both on the same questions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tightbudget.engine.buckets import refine
from tightbudget.engine.buckets.compose import Pairs, Parts
from tightbudget.engine.buckets.refine import Memory as Profiles
from tightbudget.engine.saddle_point.contour import Contour, Lines
from tightbudget.errors import PrecisionError
from tightbudget.numerics.bounds import Bounds
from tightbudget.pairs.pair import Direction

__all__ = ["CONTOUR", "TWO_MASSES", "Explanation", "Engine", "Memory", "Reader"]

Reader = Callable[[float, float], Bounds]  # (eps, rtol) -> delta(eps)

CONTOUR, TWO_MASSES = "contour", "two masses"
_OUT_OF_REACH = 1e-8  # a gap that the two masses do not narrow in reasonable time


@dataclass(frozen=True)
class Explanation:
    """How an answer came about.

    Attributes:
        question: in words.
        bounds: the answer.
        engine: "contour" or "two masses".
        details: a row for each direction that was computed (and each line in it): for a contour
            c, the step, the number of points, and its errors relative to delta; for the two
            masses the tilt, the bucket's width and the number of buckets.
    """

    question: str
    bounds: Bounds
    engine: str
    details: tuple[dict[str, float | str], ...]

    def __str__(self) -> str:
        rows = [
            ", ".join(
                f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()
            )
            for row in self.details
        ]
        head = f"{self.question}: {self.bounds}, by the {self.engine} engine"
        return "\n  ".join([head, *rows])


@dataclass
class Memory:
    """What earlier questions of one composition left for the next: lines and profiles."""

    lines: dict[int, list[Lines]] = field(default_factory=dict)
    profiles: Profiles = field(default_factory=dict)


@dataclass(frozen=True)
class Engine:
    """A composition of pairs, in each direction that matters, ready for either engine.

    Attributes:
        directions: (n,) the directions, one where delta(eps) is the same in both.
        pairs: (n,) for each direction the pairs, each with its count.
    """

    directions: tuple[Direction, ...]
    pairs: tuple[Pairs, ...]

    @staticmethod
    def of(pairs: Mapping[Direction, Pairs]) -> Engine:
        """An engine for the directions that are given."""
        return Engine(tuple(pairs), tuple(pairs.values()))

    @functools.cached_property
    def parts(self) -> tuple[Parts, ...]:
        """For the two masses, by direction."""
        return tuple(Parts.of(pairs) for pairs in self.pairs)

    @functools.cached_property
    def contours(self) -> tuple[Contour, ...]:
        """For the line integral, by direction; empty if it cannot take the composition."""
        found = []
        for pairs in self.pairs:
            contour = Contour.of((pair.transform(), count) for pair, count in pairs)
            if contour is None:
                return ()
            found.append(contour)
        return tuple(found)

    def apart(self) -> tuple[Engine, ...]:
        """Each direction alone."""
        return tuple(
            Engine((direction,), (pairs,))
            for direction, pairs in zip(self.directions, self.pairs, strict=True)
        )

    def reader(self) -> Reader:
        """delta(eps) for many eps, with the gap or as close as it gets: wide bounds are bounds."""
        memory = Memory()

        def read(epsilon: float, rtol: float) -> Bounds:
            try:
                return self.delta(epsilon, rtol, memory=memory)
            except PrecisionError as error:
                return Bounds(error.lower, min(1.0, error.upper))

        return read

    def epsilon(self, delta: float, rtol: float, memory: Memory | None = None) -> Bounds:
        """Bounds of eps*(delta), the worse direction: see :func:`precision.epsilon_bounds`."""
        return self._answer(
            lambda contour, lines: contour.epsilon(delta, rtol, lines),
            lambda contour, lower: contour.below(lower, delta),
            lambda profiles: refine.epsilon_bounds(self.parts, delta, rtol, profiles),
            rtol,
            memory,
        )

    def delta(
        self,
        epsilon: float,
        rtol: float,
        target: float | None = None,
        memory: Memory | None = None,
    ) -> Bounds:
        """Bounds of delta(eps), the worse direction: see :func:`precision.delta_bounds`."""
        return self._answer(
            lambda contour, lines: contour.delta(epsilon, rtol, lines),
            lambda contour, lower: contour.below(epsilon, lower),
            lambda profiles: refine.delta_bounds(self.parts, epsilon, rtol, target, profiles),
            rtol,
            memory,
        )

    def _answer(
        self,
        ask: Callable[[Contour, list[Lines]], Bounds | None],
        milder: Callable[[Contour, float], bool],
        two_masses: Callable[[Profiles | None], Bounds],
        rtol: float,
        memory: Memory | None,
    ) -> Bounds:
        """The contour's answer where it is close enough, else the two masses' or both together.

        Raises:
            PrecisionError: neither reaches the gap; carries what both prove.
        """
        contour = self._by_contour(ask, milder, memory)
        profiles = None if memory is None else memory.profiles
        if contour is None:
            return two_masses(profiles)
        if contour.relative_gap <= rtol:
            return contour
        if contour.relative_gap <= _OUT_OF_REACH:  # buckets would not be closer
            raise PrecisionError(
                f"relative gap {rtol:g} was not reached: the bounds are {contour} (relative gap "
                f"{contour.relative_gap:.2g}); the rounding of doubles stands in the way",
                contour.lower,
                contour.upper,
            )
        try:
            return _both(contour, two_masses(profiles))
        except PrecisionError as error:
            both = _both(contour, Bounds(error.lower, error.upper))
            if both.relative_gap <= rtol:
                return both
            raise PrecisionError(
                f"{error}; both engines: {both}", both.lower, both.upper
            ) from error

    def _by_contour(
        self,
        ask: Callable[[Contour, list[Lines]], Bounds | None],
        milder: Callable[[Contour, float], bool],
        memory: Memory | None,
    ) -> Bounds | None:
        """The worse direction, or None where some direction is not the contour engine's."""
        worst: Bounds | None = None
        for i, contour in enumerate(self.contours):
            lines = [] if memory is None else memory.lines.setdefault(i, [])
            # lines that are there answer faster than a proof that this direction is milder
            asked = worst is None or bool(lines)
            found = ask(contour, lines) if asked else None
            if found is None and worst is not None and milder(contour, worst.lower):
                continue  # its exact value is not above the lower end
            if not asked:
                found = ask(contour, lines)
            if found is None:
                return None
            larger = worst or found
            worst = Bounds(max(larger.lower, found.lower), max(larger.upper, found.upper))
        return worst

    def explain(self, epsilon: float | None, delta: float | None, rtol: float) -> Explanation:
        """Who answers one of the two questions, and with what."""
        memory = Memory()
        if delta is not None:
            bounds = self.epsilon(delta, rtol, memory)
            question, where = f"epsilon at delta = {delta:g}", bounds.upper
        else:
            assert epsilon is not None
            bounds = self.delta(epsilon, rtol, memory=memory)
            question, where = f"delta at epsilon = {epsilon:g}", epsilon
        # lines that did not suffice are not kept: where there are profiles, these answered
        by_contour = any(memory.lines.values()) and not any(memory.profiles.values())
        kept: dict[int, Any] = dict(memory.lines if by_contour else memory.profiles)
        details = tuple(
            {"direction": self.directions[i].value, **row}
            for i in sorted(kept)
            if kept[i]
            for row in kept[i][-1].describe(where)
        )
        engine = CONTOUR if by_contour else TWO_MASSES
        return Explanation(question, bounds, engine, details)


def _both(a: Bounds, b: Bounds) -> Bounds:
    return Bounds(max(a.lower, b.lower), min(a.upper, b.upper))
