"""Adds Laplace or Gaussian noise to a number, or to a vector of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from tightbudget.errors import ParameterError, PrecisionError
from tightbudget.mechanisms.integer_noise import DiscreteGaussian
from tightbudget.numerics.rounding import FloatArray, next_down
from tightbudget.numerics.validate import open_probability, plain_numbers, positive_count, refuse
from tightbudget.output_dp.amount import Price, exact, exact_positive, exact_probability, printed_up
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.output_dp.pricing import ZCDPRule
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.grid import AnswerGrid
from tightbudget.release.noise.noise import IntArray, Noise, scale_up
from tightbudget.release.release import answered

_FINER = 1.001  # how near to the least sigma a search ends: 0.1 % more noise is no loss to anybody

NoisyAnswer = int | float | IntArray | FloatArray


@plain_numbers
@dataclass(frozen=True)
class LaplaceRelease(MechanismOnData[Any, NoisyAnswer]):
    """Answers a query with discrete Laplace noise of scale sensitivity / epsilon.

    The value of a release is the noisy answer: a number, or with a size an array, (size,).

    Guarantee: epsilon-DP, delta = 0; one cell, "value".
    Source: Dwork, McSherry, Nissim, Smith 2006; Ghosh, Roughgarden, Sundararajan 2009.

    Args:
        query: from the data to an integer (other numbers are rounded down); with a step, to
            any real number; with a size, to a vector of these.
        sensitivity: > 0, how far the query can move (1-norm) between neighbouring data sets. The
            caller says by this number which data sets are neighbours.
        epsilon: > 0, nats.
        size: how many numbers the query answers; None for a number that is not in an array. A
            vector declares its grid: a step, or ``integers=True``.
        step: of the grid that answers lie on, a power of two; None for integers.
        bounds: (low, high): answers beyond are moved there, each number of a vector by itself,
            and an answer that is no number counts as low. A query that raises, or answers no
            number, needs them: it has the sensitivity high - low (``size`` times that in the
            1-norm, sqrt(size) times in the 2-norm), whatever it does. Without bounds such an
            answer counts as 0, and the query must have the sensitivity with these zeros.
        integers: True if all numbers of the query are integers, for all data. A vector without a
            step needs it: rounding a vector of n real numbers can move it by n more (1-norm), or
            by sqrt(n) (2-norm), for which only a step pays. If a number is no integer all the
            same, it is rounded down, and the sensitivity must hold for the rounded vector.

    Raises:
        ParameterError: a parameter is refused.
    """

    query: Callable[[Any], Any]
    sensitivity: Price
    epsilon: Price
    size: int | None = None
    step: float | None = None
    bounds: tuple[float, float] | None = None
    integers: bool = False

    meant: ClassVar[Mapping[str, str]] = {
        "scale": "the scale of the noise is sensitivity / epsilon"
    }

    def __post_init__(self) -> None:
        _grid_is_declared(self)
        scale_up(self.scale)
        super().__post_init__()

    @cached_property
    def _grid(self) -> AnswerGrid:
        """The grid that answers are rounded to."""
        return AnswerGrid(self.step, self.bounds)

    @cached_property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the price epsilon."""
        return OutputDP({"value": exact_positive(epsilon=self.epsilon)})

    @cached_property
    def scale(self) -> Fraction:
        """The scale of the noise, in points of the grid."""
        points = self._grid.sensitivity(self.sensitivity, _numbers(self.size))
        return points / exact_positive(epsilon=self.epsilon)

    def _run(self, data: Any, noise: Noise) -> tuple[NoisyAnswer, Cell]:
        return _with_noise(self, noise.laplace, data), "value"


@plain_numbers
@dataclass(frozen=True)
class GaussianRelease(MechanismOnData[Any, NoisyAnswer]):
    """Answers a query with discrete Gaussian noise.

    The value of a release is the noisy answer: a number, or with a size an array, (size,).

    Guarantee: (epsilon, delta)-DP with the certified epsilon in ``guarantee``; one cell,
    "value"; delta is charged whole. For a number, epsilon is the upper bound of a
    :class:`DiscreteGaussian`. For a vector, it is the epsilon of S^2 / (2 sigma^2)-zCDP, with S
    the sensitivity in the 2-norm. A budget that counts rho charges :attr:`rho` and no delta, and a
    budget of a Renyi order charges the order times rho.
    Source: Canonne, Kamath, Steinke 2020, Theorem 14; Bun, Steinke 2016, Proposition 1.3.

    Args:
        query: from the data to an integer (other numbers are rounded down); with a step, to
            any real number; with a size, to a vector of these.
        sensitivity: > 0, how far the query can move (2-norm) between neighbouring data sets. The
            caller says by this number which data sets are neighbours.
        sigma: > 0, of the noise, in the query's unit.
        delta: in (0, 1).
        size: how many numbers the query answers; None for a number that is not in an array. A
            vector declares its grid: a step, or ``integers=True``.
        step: of the grid that answers lie on, a power of two; None for integers.
        bounds: (low, high): answers beyond are moved there, each number of a vector by itself,
            and an answer that is no number counts as low. A query that raises, or answers no
            number, needs them: it has the sensitivity high - low (``size`` times that in the
            1-norm, sqrt(size) times in the 2-norm), whatever it does. Without bounds such an
            answer counts as 0, and the query must have the sensitivity with these zeros.
        integers: True if all numbers of the query are integers, for all data. A vector without a
            step needs it: rounding a vector of n real numbers can move it by n more (1-norm), or
            by sqrt(n) (2-norm), for which only a step pays. If a number is no integer all the
            same, it is rounded down, and the sensitivity must hold for the rounded vector.

    Raises:
        ParameterError: a parameter is refused.
        PrecisionError: no epsilon could be certified.
    """

    query: Callable[[Any], Any]
    sensitivity: Price
    sigma: Price
    delta: Price
    size: int | None = None
    step: float | None = None
    bounds: tuple[float, float] | None = None
    integers: bool = False

    meant: ClassVar[Mapping[str, str]] = {
        "epsilon": "GaussianRelease.of_epsilon(query, sensitivity, epsilon, delta) finds the sigma",
        "scale": "the standard deviation of the noise is sigma",
    }

    def __post_init__(self) -> None:
        _grid_is_declared(self)
        super().__post_init__()

    @cached_property
    def _grid(self) -> AnswerGrid:
        """The grid that answers are rounded to."""
        return AnswerGrid(self.step, self.bounds)

    @cached_property
    def guarantee(self) -> OutputDP:
        """One output cell, "value", at the epsilon that is certified for delta."""
        delta = exact_probability(delta=self.delta)
        if self.size is not None:
            epsilon = ZCDPRule(rho=self.rho).epsilon(delta)
            return OutputDP({"value": epsilon}, delta, rho=self.rho)
        certified = (self._noisy * 1).epsilon(delta=next_down(float(delta)))
        if not math.isfinite(certified.upper):
            raise PrecisionError(
                f"epsilon is in {certified}: "
                f"none could be certified at delta = {self.delta}: it is too small",
                certified.lower,
                certified.upper,
            )
        epsilon = printed_up(exact(epsilon=certified))
        return OutputDP({"value": epsilon}, delta, rho=self.rho)

    @cached_property
    def rho(self) -> Fraction:
        """The rho for which an answer is rho-zCDP: half the square of the move over sigma.

        The move is that of the points of the grid, with rounding, in the 2-norm: an integer for a
        number. Discrete Gaussian noise has the rho of continuous noise wherever the move is one
        of integers, and noise is drawn at sigma or more.
        Source: Canonne, Kamath, Steinke 2020, Proposition 5 and Theorem 14.
        """
        return (_moved(self._grid, self.sensitivity, self.size) / self.scale) ** 2 / 2

    @staticmethod
    def of_epsilon(
        query: Callable[[Any], Any],
        sensitivity: Price,
        epsilon: Price,
        delta: Price,
        *,
        size: int | None = None,
        step: float | None = None,
        bounds: tuple[float, float] | None = None,
        integers: bool = False,
    ) -> GaussianRelease:
        """Makes a release that costs at most this epsilon at delta, with the sigma that it needs.

        Guarantee: the price of the release is at most epsilon. A sigma that is at most 0.2 % less
        was tried, and its price is more.

        Args:
            query: from the data to a number, or with a size to a vector of numbers.
            sensitivity: > 0, how far the query can move (2-norm) between neighbouring data sets.
            epsilon: > 0, nats.
            delta: in (0, 1).
            size: as for :class:`GaussianRelease`.
            step: as for :class:`GaussianRelease`.
            bounds: as for :class:`GaussianRelease`.
            integers: as for :class:`GaussianRelease`.

        Raises:
            ParameterError: a parameter is refused, or the sigma that it needs is.
        """

        def of_sigma(sigma: float) -> GaussianRelease:
            return GaussianRelease(
                query,
                sensitivity,
                sigma,
                delta,
                size=size,
                step=step,
                bounds=bounds,
                integers=integers,
            )

        most, grid = exact_positive(epsilon=epsilon), AnswerGrid(step, bounds)
        log = -math.log(open_probability(delta=float(exact_probability(delta=delta))))
        # rho-zCDP has the epsilon rho + 2 sqrt(rho log): this sigma is enough, but for roundings
        root = float(most) / (math.sqrt(log + float(most)) + math.sqrt(log))
        sigma = float(_moved(grid, sensitivity, size)) * (step or 1) / (math.sqrt(2) * root)
        enough = of_sigma(sigma)
        while enough.guarantee.sup > most:
            sigma *= _FINER
            enough = of_sigma(sigma)
        # from there down: by halves, then between the last two
        factor = 0.5
        while factor < 1 / _FINER:
            try:
                less = of_sigma(sigma * factor)
            except (ParameterError, PrecisionError):  # beyond the range of the noise
                less = None
            if less is None or less.guarantee.sup > most:
                factor = math.sqrt(factor)
            else:
                sigma, enough = sigma * factor, less
        return enough

    @property
    def _noisy(self) -> DiscreteGaussian:
        """The mechanism that the engine prices; sigma and sensitivity are in steps of the grid."""
        sigma, moves = scale_up(self.scale), self._grid.sensitivity(self.sensitivity)
        try:
            return DiscreteGaussian(sigma, moves)
        except ParameterError as error:
            if self.step is None:
                raise
            raise ParameterError(
                f"step = {self.step} is too fine: sigma = {self.sigma} is {sigma} steps, and "
                f"sensitivity = {self.sensitivity} is {moves} with rounding. In steps, {error}"
            ) from None

    @cached_property
    def scale(self) -> Fraction:
        """The scale of the noise, in points of the grid."""
        return self._grid.steps(exact_positive(sigma=self.sigma))

    def _run(self, data: Any, noise: Noise) -> tuple[NoisyAnswer, Cell]:
        return _with_noise(self, noise.gaussian, data), "value"


def _grid_is_declared(asked: LaplaceRelease | GaussianRelease) -> None:
    """Refuses a vector whose grid is not declared.

    Without this declaration no noise would be right for all vectors. Suppose that a vector of
    integers is left as it is, at the noise of its own sensitivity, and that the vector (1/2, 1/2)
    may be given, too. It is 1 away, in the 1-norm, from (0, 0), (0, 1), (1, 0) and (1, 1), so at
    the sensitivity 1 the mass that it gives to each quadrant of outputs would be at most e^epsilon
    times the least mass of the four: e^epsilon (q / (1 + q))^2 = q / (1 + q)^2 with
    q = e^-epsilon. These four masses add up to 4 q / (1 + q)^2, which is below 1.

    Raises:
        ParameterError: there is a size and neither a step nor ``integers``, or both of them.
    """
    _ = asked._grid, _numbers(asked.size)
    if asked.integers is not True and asked.integers is not False:
        raise refuse("integers", "be True or False", asked.integers)
    if asked.integers and asked.step is not None:
        raise refuse(
            "step", "be None where integers=True says that answers are integers", asked.step
        )
    # guard: vector-declares-grid
    if asked.size is not None and asked.step is None and not asked.integers:
        raise refuse(
            "step",
            "be given where size is: a power of two for real numbers, which pays for rounding "
            "them, or integers=True if all numbers of the query are integers",
            asked.step,
        )


def _moved(grid: AnswerGrid, sensitivity: Price, size: int | None) -> Fraction:
    """Returns how far the points of an answer can move, with rounding, in the 2-norm."""
    if size is None:
        return Fraction(grid.sensitivity(sensitivity))
    steps = grid.steps(exact_positive(sensitivity=sensitivity))
    if grid.step is None:
        return steps
    # rounding moves n numbers by at most sqrt(n), and this is sqrt(n) rounded up
    return steps + Fraction(math.isqrt(_numbers(size) * 2**64 - 1) + 1, 2**32)


def _numbers(size: int | None) -> int:
    """Returns how many numbers a query of this size answers."""
    return 1 if size is None else positive_count(size=size)


def _with_noise(
    asked: LaplaceRelease | GaussianRelease, draw: Callable[[Price, int], IntArray], data: Any
) -> NoisyAnswer:
    """Asks the query of a mechanism, and adds noise that is drawn at the mechanism's scale."""
    value = answered(lambda: asked.query(data))
    points = asked._grid.points(value, asked.size)
    noisy = asked._grid.noisy(points, draw(asked.scale, _numbers(asked.size)))
    return noisy if asked.size is not None else noisy.item()
