"""Scores of candidates on data: how they are read, and how a rehearsal checks what is declared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from tightbudget.numerics.rounding import double_up
from tightbudget.numerics.validate import finite, refuse
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.release.mechanism import MechanismOnData
from tightbudget.release.noise.noise import Noise
from tightbudget.release.private_number import FAILURES, listed, number
from tightbudget.release.rehearsal import in_rehearsal, rehearsal
from tightbudget.release.release import Rehearsal, answered

Score = int | float | Fraction


@dataclass(frozen=True)
class ScoredChoice(MechanismOnData[Any, Any]):
    """Chooses one of many candidates by their scores: the base of mechanisms that do.

    Raises:
        ParameterError: a parameter is refused.
    """

    scores: Callable[[Any], Any]
    candidates: Sequence[Any]
    epsilon: Price
    sensitivity: Price = 1
    monotone: bool = False
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", _candidates(self.candidates))
        if self.monotone is not True and self.monotone is not False:
            raise refuse("monotone", "be True or False", self.monotone)
        _ = self._factor, self._ends
        super().__post_init__()

    def rehearse(
        self, data: Any, *, noise: Noise | None = None, neighbours: Iterable[Any] = ()
    ) -> Rehearsal:
        """Runs the mechanism on public or made-up data, and checks what is declared of the scores.

        NEVER on private data: nothing is paid for. See :meth:`MechanismOnData.rehearse`.

        Args:
            data: public or made-up data, of the types and shapes of the private ones.
            noise: the source of noise; OpenDP's samplers if None.
            neighbours: public or made-up data sets, each of them a neighbour of ``data``. Between
                ``data`` and each of them, the moves of the scores are compared with ``sensitivity``
                and ``monotone``. A move that no neighbour here shows is not found.

        Raises:
            Exception: an error of ``scores``, as it is.
            ParameterError: ``scores`` answers something else than a finite number for each
                candidate; or a score moves by more than the sensitivity; or scores are declared
                monotone, and one rises where another one falls.
            ExtraError: no noise is given, and OpenDP is not installed.
        """
        with rehearsal():
            here = self._read(self.scores(data))
            for i, neighbour in enumerate(neighbours):
                there = self._read(self.scores(neighbour))
                moves = [Fraction(y) - Fraction(x) for x, y in zip(here, there, strict=True)]
                self._check(moves, f"neighbours[{i}]")
        return super().rehearse(data, noise=noise)

    def _check(self, moves: Sequence[Fraction], where: str) -> None:
        """Refuses moves of the scores to a neighbour that are not as they are declared.

        Raises:
            ParameterError: one is larger than the sensitivity, or they have two directions.
        """
        falls, rises = moves.index(min(moves)), moves.index(max(moves))
        far = max(falls, rises, key=lambda i: abs(moves[i]))
        if abs(moves[far]) > self._sensitivity:  # guard: rehearsed-moves-within-sensitivity
            must = f"be at least {double_up(abs(moves[far]))!r}, by which the score of "
            raise refuse(
                "sensitivity", f"{must}{self.candidates[far]!r} moves to {where}", self.sensitivity
            )
        # guard: rehearsed-moves-in-one-direction
        if self.monotone and moves[falls] < 0 < moves[rises]:
            fall, rise = self.candidates[falls], self.candidates[rises]
            raise refuse(
                "monotone",
                f"be False if the score of {rise!r} rises to {where} and that of {fall!r} falls",
                self.monotone,
            )

    @cached_property
    def _sensitivity(self) -> Fraction:
        """The sensitivity, exactly."""
        return _of_scores(self.sensitivity)

    @cached_property
    def _factor(self) -> Fraction:
        """The factor of a score in the exponent."""
        return exact_positive(epsilon=self.epsilon) / (self._spread() * self._sensitivity)

    def _spread(self) -> int:
        """Returns how many sensitivities apart the moves of two scores may be."""
        return 1 if self.monotone else 2  # guard: scores-move-both-ways

    @cached_property
    def _ends(self) -> tuple[Score, Score]:
        """The least and the largest score; infinite without bounds."""
        if self.bounds is None:
            return -math.inf, math.inf
        try:
            low, high = self.bounds
        except (TypeError, ValueError):
            raise refuse("bounds", "be two numbers, (low, high)", self.bounds) from None
        finite(**{"bounds[0]": low}), finite(**{"bounds[1]": high})
        if not low <= high:
            raise refuse("bounds", "ascend", self.bounds)
        # floats are decimals here, as in the sensitivity: from 0.7 to 0.8 it is 1/10
        return _decimal(low), _decimal(high)

    def _scored(self, data: Any) -> list[Fraction]:
        """Asks for the scores, and returns how far each is below the largest, times the factor."""
        return self._exponents(self._read(answered(lambda: self.scores(data))))

    def _exponents(self, scores: Sequence[Score]) -> list[Fraction]:
        """Returns how far each score is below the largest one, times the factor."""
        best = Fraction(max(scores))
        below = {score: self._factor * (best - Fraction(score)) for score in set(scores)}
        return [below[score] for score in scores]

    def _read(self, values: Any) -> list[Score]:
        """Returns the exact score of each candidate, whatever a query answers.

        It never raises but in a rehearsal.
        """
        entries, wanted = _entries(values), len(self.candidates)
        if in_rehearsal() and len(entries) != wanted:
            must = f"be {wanted} numbers, one for each candidate"
            raise refuse("the answer of scores", must, values)
        missing = [None] * (wanted - len(entries))
        return [self._score(entry) for entry in [*entries[:wanted], *missing]]

    def _score(self, value: Any) -> Score:
        """Returns the score that a value stands for."""
        known: Score | None = value if type(value) in (int, float) else number(value)
        endless = isinstance(known, float) and math.isinf(known)
        low, high = self._ends
        if known is None or known != known or (endless and self.bounds is None):
            known = 0 if self.bounds is None else low  # guard: score-of-none
            endless = True
        if endless and in_rehearsal():
            raise refuse("the answer of scores", "have finite numbers alone", value)
        return max(low, min(known, high))  # guard: scores-within-bounds


def _of_scores(sensitivity: Price) -> Fraction:
    """Returns a sensitivity exactly; of a float, the larger one of its decimal and its value."""
    decimal = exact_positive(sensitivity=sensitivity)
    if not isinstance(sensitivity, float):
        return decimal
    # scores that are floats are binary values: one of 0.1 is above 1/10
    return max(decimal, Fraction(sensitivity))  # guard: sensitivity-of-floats


def _decimal(x: Any) -> Fraction:
    """Returns a finite number exactly; a float is the decimal that it prints as."""
    return Fraction(repr(x)) if isinstance(x, float) else Fraction(x)


def _candidates(candidates: Any) -> tuple[Any, ...]:
    """Returns the candidates as a tuple.

    Raises:
        ParameterError: they are no list, there is none, two are equal, or one cannot be told from
            others.
    """
    if isinstance(candidates, str | bytes) or not isinstance(candidates, Iterable):
        raise refuse("candidates", "be a list", candidates)
    several = candidates.tolist() if isinstance(candidates, np.ndarray) else candidates
    found = tuple(several)
    if not found:
        raise refuse("candidates", "be at least one", candidates)
    seen = set[Any]()
    for i, candidate in enumerate(found):
        try:
            again = candidate in seen or candidate != candidate
            seen.add(candidate)
        except (TypeError, ValueError):
            raise refuse(f"candidates[{i}]", "be hashable", candidate) from None
        if again:
            raise refuse(f"candidates[{i}]", "differ from all before it and be no NaN", candidate)
    return found


def _entries(values: Any) -> list[Any]:
    """Returns the entries of a vector; one that is no vector of numbers has none."""
    found = listed(values)
    if found is not None:
        return found
    try:
        with np.errstate(all="ignore"):
            array = np.asarray(values)
        return array.ravel().tolist() if array.dtype.kind in "biufO" else []
    except FAILURES:
        return []
