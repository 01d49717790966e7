"""The rows of peers.toml: one question in two languages, two answers, and who is right.

The certified ends decide. What a tool says is a decimal that somebody has rounded, so it is taken
as that decimal and one unit of its last place on both sides.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import tightbudget as tb
from tightbudget.engine.buckets.compose import Parts
from tightbudget.engine.buckets.refine import refine
from tightbudget.engine.question import DeltaAt
from tightbudget.mechanisms import Mechanism
from tightbudget.mechanisms.composition import Composable
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.printed import Printed
from tightbudget.pairs.direction import Direction
from tightbudget.theorems import renyi
from tightbudget.theorems.concentrated import Line

FILE = Path(__file__).with_name("peers.toml")
ASKED = "asked"  # the source of an answer that nobody publishes: the tool was asked


@dataclass(frozen=True)
class Row:
    """One question.

    Attributes:
        tool, version, source: who says it, and in which of its files; or that it was asked.
        asked: the question in the tool's words.
        says: its answer, as printed.
        ours: the question in our words.
        certified: our answer when the row was written, rounded outwards.
        verdict: "agrees", "too low" (unsound), "too high" (sound, and dear) or "inf".
        slow: whether the tool takes more than some seconds.
        apart: whether our two bounds are those of two pairs, as of batches of a fixed size.
        varies: by what share the tool's answer differs from one processor to the next; > 0 where
            the rounding of its Fourier transforms decides.
    """

    tool: str
    version: str
    source: str
    asked: str
    says: str
    ours: str
    certified: str
    verdict: str
    slow: bool = False
    apart: bool = False
    varies: float = 0.0

    @property
    def recorded(self) -> Bounds:
        """The certified ends of the file."""
        return Bounds(*map(float, self.certified.strip("[]").split(", ")))

    def answer(self) -> Bounds:
        """Our answer, now."""
        words = {"tb": tb, "math": math, "least": least, "most": most, "one_way": one_way}
        words |= {"by_length": by_length}
        answer: Bounds = eval(self.ours, words)
        return answer

    def near(self, answer: float) -> bool:
        """Whether the tool's answer now prints as it did, up to the last place (or the ninth)."""
        if self.says == "inf":
            return math.isinf(answer)
        said = self._said
        assert said.value is not None
        hair = max(said.unit, said.value / 10**9, said.value * Fraction(self.varies))
        return math.isfinite(answer) and abs(Fraction(answer) - said.value) <= hair

    def judged(self, truth: Bounds) -> str:
        """The verdict that certified ends imply."""
        return self._said.judged(truth)

    def off(self) -> float:
        """How far the tool is off at least, relative to the truth; < 0 where it is too low."""
        truth, said = self.recorded, self._said
        if self.verdict == "too low":
            assert said.most is not None
            return float(said.most / Fraction(truth.lower)) - 1
        if self.verdict == "too high":
            assert said.least is not None
            return float(said.least / Fraction(truth.upper)) - 1
        return 0.0

    @property
    def _said(self) -> Printed:
        return Printed.of(says=self.says)


def rows() -> list[Row]:
    """All of them, in the order of the file."""
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))["source"]
    return [
        Row(table["tool"], table["version"], table["file"], **row)
        for table in tables
        for row in table["rows"]
    ]


# ------------------------------------------------ questions that no single public name asks


def least(function: Callable[[float], Composable], epsilon: float, delta: float) -> Bounds:
    """The smallest parameter (noise) that meets the target: below the lower end it is missed."""
    found = tb.calibrate(function, epsilon=epsilon, delta=delta)
    less = found.value * (1 - 1e-4)
    assert found.delta.upper <= delta < tb.compose([function(less)]).delta(epsilon, 1e-5).lower
    return Bounds(less, found.value)


def most(function: Callable[[float], Composable], epsilon: float, delta: float) -> Bounds:
    """The largest integer (number of steps) that meets the target: one more misses it."""
    found = tb.calibrate(function, epsilon=epsilon, delta=delta, integer=True)
    more = tb.compose([function(found.value + 1)])
    assert found.delta.upper <= delta < more.delta(epsilon, 1e-5).lower
    return Bounds(found.value, found.value)


def by_length(rho: float, most: int, delta: float) -> Bounds:
    """delta of the price list that has for each length the epsilon of its rho at ``delta``.

    A text of k tokens is k steps of rho; as long as rho is all that is known, they may be Gaussian.
    """
    lengths = range(1, most + 1)
    prices = [renyi.epsilon(Line(0.0, k * rho), delta).upper for k in lengths]
    return tb.stopping_delta(tb.Gaussian(1.0 / math.sqrt(2.0 * rho)), lengths, prices, 1e-4)


def one_way(direction: str, mechanism: Mechanism, epsilon: float) -> Bounds:
    """delta(epsilon) of one run in one direction, whether or not the other is worse."""
    steps = Parts.of(tb.compose([mechanism]).pairs(Direction(direction)))
    return refine(DeltaAt(epsilon), (steps,), 1e-4).bounds
