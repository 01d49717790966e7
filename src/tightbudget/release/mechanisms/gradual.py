"""Answers one number at growing precision: the last answer pays for all before it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from tightbudget.numerics.validate import plain_numbers, refuse
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.coins import bernoulli
from tightbudget.release.noise.grid import AnswerGrid
from tightbudget.release.noise.noise import Noise, scale_up
from tightbudget.release.release import answered


@plain_numbers
@dataclass(frozen=True)
class GradualRelease(MechanismOnData[Any, tuple[float, ...]]):
    """Answers a number with less and less noise, until an answer is good enough.

    The value of a release is the tuple of all answers; the last is the most precise. Its cell is
    the number of answers.

    The last of the T answers has discrete Laplace noise at epsilon_T. Answer j is answer j + 1
    plus more noise W, which is 0 with probability p and discrete Laplace noise at epsilon_j
    otherwise. With rates r = epsilon_j / sensitivity and R = epsilon_(j+1) / sensitivity

        p = sinh^2(r / 2) / sinh^2(R / 2)

    makes the noise of answer j exactly discrete Laplace at rate r. Proof: with a = e^-r, b = e^-R
    and c = cos t, noise at rate r has the characteristic function (1 - a)^2 / (1 - 2ac + a^2), and

        1 - 2bc + b^2 = (b/a) (1 - 2ac + a^2) + (1 - b/a) (1 - ab),

    so the quotient of the functions at rates r and R is p plus (1 - p) times the function at rate
    r, with p = (b/a) (1 - a)^2 / (1 - b)^2. A coin with a smaller p is safe, too: it mixes this
    noise with the sum of both noises, which is noise at rate r and more. The answers up to j are
    answer j and randomness that does not depend on the data, so they cost as much as answer j.

    Guarantee: {j: epsilon_j} for the number j of answers, delta = 0, for neighbours between
    which the number changes by at most ``sensitivity``.
    Source: Koufogiannis, Han, Pappas 2015, for continuous noise; the discrete form is proved here.

    Args:
        query: from the data to an integer (other numbers are rounded down); with a step, to
            any real number.
        sensitivity: > 0, how far the query can move between neighbouring data sets.
        epsilons: ascending, > 0, nats.
        good_enough: a rule that is told all answers so far, and says whether to stop. It must not
            see the data. If it raises, the price of the last answer is charged.
        step: of the grid that answers lie on, a power of two; None for integers.
        bounds: as for :class:`LaplaceRelease`; a query that can fail needs them.

    Raises:
        ParameterError: a parameter is refused.
    """

    query: Callable[[Any], Any]
    sensitivity: Price
    epsilons: tuple[Price, ...]
    good_enough: Callable[[tuple[float, ...]], bool]
    step: float | None = None
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        prices = tuple(exact_positive(**{f"epsilons[{i}]": e}) for i, e in enumerate(self.epsilons))
        if not prices or not all(a < b for a, b in itertools.pairwise(prices)):
            raise refuse("epsilons", "be ascending, and at least one", self.epsilons)
        object.__setattr__(self, "epsilons", prices)
        _ = self._scales
        super().__post_init__()

    @cached_property
    def _grid(self) -> AnswerGrid:
        """The grid that answers are rounded to."""
        return AnswerGrid(self.step, self.bounds)

    @cached_property
    def _scales(self) -> tuple[Fraction, ...]:
        """The scale of the noise of each answer, rounded up to a double."""
        moves = self._grid.sensitivity(self.sensitivity)
        return tuple(Fraction(scale_up(moves / exact_positive(epsilon=e))) for e in self.epsilons)

    @property
    def guarantee(self) -> OutputDP:
        """The output cells 1, 2, ...: the price epsilon_j of j answers."""
        return OutputDP(dict(enumerate(self.epsilons, start=1)))

    def _run(self, data: Any, noise: Noise) -> tuple[tuple[float, ...], Cell]:
        # noise is drawn for the most precise answer first: each earlier answer adds more to it
        draws = [int(noise.laplace(self._scales[-1], 1)[0])]
        for narrow, wide in itertools.pairwise(reversed(self._scales)):
            stays = bernoulli(stay_down(narrow, wide), noise)
            # guard: answers-share-noise
            draws.append(draws[-1] + (0 if stays else int(noise.laplace(wide, 1)[0])))
        truth = self._grid.point(answered(lambda: self.query(data)))
        step = self.step or 1
        answers: tuple[float, ...] = ()
        for draw in reversed(draws):  # guard: precise-answer-last
            answers = (*answers, (truth + draw) * step)
            if self.good_enough(answers):
                break
        return answers, len(answers)


def stay_down(narrow: Fraction, wide: Fraction) -> Fraction:
    """Returns a number at most sinh^2(1 / (2 wide)) / sinh^2(1 / (2 narrow)), and close to it.

    Below a narrow scale of 1/1400 it returns 0, since sinh would overflow.
    """
    x, y = float(1 / (2 * wide)), float(1 / (2 * narrow))
    if y > 700.0:  # sinh overflows beyond 710
        return Fraction(0)
    # libm's sinh is within 4 roundings, and the rounding of its argument costs x coth x <= 701
    # more: 2,820 in both squares, and 2^-40 pays for 8,192
    # guard: coin-rounded-down
    return (Fraction(math.sinh(x)) / Fraction(math.sinh(y))) ** 2 * (1 - Fraction(1, 2**40))
