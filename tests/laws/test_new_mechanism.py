"""A new mechanism that pays for no rounding, or claims what is not so, fails a law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from tests.laws import test_margins as margins
from tests.laws import test_pairs as pairs

from tightbudget.mechanisms import LossTable, Mechanism
from tightbudget.mechanisms.laplace import LaplacePair
from tightbudget.numerics.enclosure import Enclosure
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Bins, Pair, Sketch

Law = Callable[[Mechanism, Direction], None]
LAWS: list[Law] = [
    law
    for room in (margins, pairs)
    for name, law in vars(room).items()
    if name.startswith("test_") and list(law.__annotations__)[:2] == ["mechanism", "direction"]
]


def breaks(law: Law, mechanism: Mechanism, direction: Direction) -> bool:
    """Whether a mechanism breaks a law."""
    try:
        law(mechanism, direction)
    except AssertionError:
        return True
    return False


@dataclass(frozen=True)
class Triangular(Mechanism):
    """Noise with density 1 - |x| on [-1, 1], for a query that moves by ``moved`` < 1."""

    moved: float
    units: float  # the margin of each mass, in units of 2^-53

    mutual: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True

    def pair(self, direction: Direction) -> Pair:
        return TriangularPair(self.moved, self.units)


@dataclass(frozen=True)
class TriangularPair(Pair):
    """x against x + m: the loss ln((1 - |x|) / (1 - |x - m|)) falls as x rises."""

    m: float
    units: float

    def _output(self, loss: FloatArray) -> FloatArray:
        """The output x with a loss, from m - 1 to 1."""
        m = self.m
        kink = -np.log1p(-m)
        far = m / -np.expm1(-np.maximum(np.abs(loss), kink)) - 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            ratio = np.exp(np.clip(loss, -kink, kink))
        middle = (1.0 - ratio * (1.0 - m)) / (1.0 + ratio)
        return np.where(loss > kink, far, np.where(loss < -kink, m - far, middle))

    @staticmethod
    def _below(x: FloatArray) -> FloatArray:
        """P(noise <= x)."""
        left, right = np.maximum(1.0 + x, 0.0), np.maximum(1.0 - x, 0.0)
        return np.where(x < 0, left**2 / 2, 1.0 - right**2 / 2)

    def _only(self) -> Enclosure:
        lost = np.array([self.m * self.m / 2])
        off = self.units * UNIT
        return Enclosure(lost * (1 - off), lost * (1 + off))

    def p_only(self) -> Enclosure:
        return self._only()

    def q_only(self) -> Enclosure:
        return self._only()

    def bins(self, edges: FloatArray, slack: FloatArray) -> Bins:
        m = self.m
        x = np.concatenate([[1.0], self._output(edges), [m - 1.0]])
        # the output moves by at most 1 / m where the loss moves by 1, and the density is at most 1
        moved = np.concatenate([[0.0], slack / m, [0.0]])
        off = self.units * UNIT + moved[:-1] + moved[1:]

        def masses(shift: float, scale: FloatArray) -> Enclosure:
            below = self._below(x - shift)
            mass = below[:-1] - below[1:]
            low, high = np.maximum(mass - off, 0.0) * scale, np.maximum(mass + off, 0.0) * scale
            part = self.units * UNIT
            return Enclosure(low * (1 - part), high * (1 + part))

        reference = np.append(edges, edges[-1])
        p = masses(0.0, np.ones(reference.size))
        q = masses(m, np.exp(reference))
        unknown = Enclosure(np.zeros(p.lower.size), np.full(p.lower.size, np.inf))
        return Bins.of(p, q, unknown, edges, slack)

    def max_loss(self) -> tuple[float, float]:
        return np.inf, np.inf

    def sketch(self) -> Sketch:
        x = np.linspace(self.m - 1.0, 1.0, 402)[1:-1]
        density = 1.0 - np.abs(x)
        loss = np.log(density) - np.log(1.0 - np.abs(x - self.m))
        return Sketch(loss, np.log(density * (x[1] - x[0])))


@pytest.mark.slow  # all laws of pairs
def test_a_mechanism_that_pays_for_its_rounding_keeps_all_laws() -> None:
    mechanism = Triangular(0.3, 32.0)
    assert len(LAWS) >= 12
    assert not [law for law in LAWS for way in Direction if breaks(law, mechanism, way)]


@pytest.mark.parametrize("units", [0.0, 0.05])
def test_a_mechanism_that_does_not_pay_for_its_rounding_breaks_a_law(units: float) -> None:
    with pytest.raises(AssertionError):
        margins.test_masses_of_bins_add_up_exactly(Triangular(0.3, units), Direction.REMOVE)
    with pytest.raises(AssertionError):
        margins.test_masses_sum_to_exactly_1(Triangular(0.3, units), Direction.REMOVE)


# ------------------------------------------------------------------------------- claims


@dataclass(frozen=True)
class Lopsided(LossTable):
    """Claims that its two directions are alike, and that one is the other reversed."""

    def is_symmetric(self) -> bool:
        return True

    def is_mutual(self) -> bool:
        return True


def claims(**said: object) -> Mechanism:
    """Laplace noise whose pair says something else of itself."""
    told = {name: (lambda self, *_, value=value: value) for name, value in said.items()}
    kind = type("Claims", (LaplacePair,), told)

    @dataclass(frozen=True)
    class Claiming(Mechanism):
        def pair(self, direction: Direction) -> Pair:
            pair: Pair = kind(1.0)
            return pair

    return Claiming()


@pytest.mark.parametrize(
    ("law", "mechanism"),
    [
        (margins.test_directions_are_exactly_what_is_said_of_them, "lopsided"),
        (pairs.test_a_pair_and_its_reverse_are_the_two_directions, "lopsided"),
        (pairs.test_the_largest_loss_is_largest, claims(max_loss=(0.5, 0.5))),
        (pairs.test_the_largest_loss_is_largest, claims(max_loss=(2.0, 2.0))),
        (
            margins.test_the_formula_of_delta_is_exactly_what_masses_say,
            claims(closed_delta=(0.2, 0.2)),
        ),
        (margins.test_lines_are_closer_only_where_there_are_lines, claims(lines_are_closer=True)),
        (margins.test_moments_are_those_of_the_masses, claims(log_moment=(0.0, 0.1))),
        (margins.test_moments_are_those_of_the_masses, claims(log_moment=(5.0, 9.0))),
        (margins.test_moments_are_those_of_the_masses, claims(log_tail_moment=(5.0, 9.0))),
        (margins.test_masses_sum_to_exactly_1, claims(p_only=Enclosure(np.ones(1), np.ones(1)))),
        (margins.test_masses_sum_to_exactly_1, claims(q_only=Enclosure(np.ones(1), np.ones(1)))),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_false_claim_breaks_its_law(law: Law, mechanism: Mechanism | str) -> None:
    asked = Lopsided(1.0, (1, (1.0,), 0.0)) if isinstance(mechanism, str) else mechanism
    assert any(breaks(law, asked, direction) for direction in Direction)
