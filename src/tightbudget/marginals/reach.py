"""Bounds how far neighbouring tables are apart in the counts of marginals, for each row of a unit.

Let v be what the rows of a unit that count add to the cells of one marginal: v >= 0, and its sum is
k at most, so that its 1-norm and its 2-norm are k at most. Rows of other units count as before.

- A unit that is added or removed moves the counts by v: by k at most in both norms.
- A unit that is replaced moves them by v - w, with w of the same kind. The 1-norm is 2 k at most.
  The square of the 2-norm is |v|^2 + |w|^2 - 2 v.w, which is 2 k^2 at most, since v.w >= 0.

All four are reached: by k rows in one cell, and k rows in another. Marginals with noise sigma / w_i
are one Gaussian mechanism of the weighted counts: the square of its 2-norm is the sum of w_i^2
times theirs. A score, the 1-norm of what lies between counts and a model, moves by the 1-norm of
what the counts move by, at most; and by so much up or down. Where one row is replaced in a cell
above the model and one below, it moves by 2.

A table in which a unit is replaced has as many units as before. Noise for that relation is enough
for a unit that is added or removed, too, since each of its norms is the smaller one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.validate import refuse


@dataclass(frozen=True)
class Reach:
    """The distance of the counts of one marginal in neighbouring tables, for one row of a unit.

    Attributes:
        square: of the 2-norm.
        total: the 1-norm.
    """

    square: int
    total: int


def relation_of(relation: Any) -> Neighbouring:
    """Returns the relation that a name says.

    Raises:
        ParameterError: it is neither of the two of which the module says how far counts move.
    """
    found = Neighbouring.of(relation=relation)
    if found is Neighbouring.ZERO_OUT:
        must = "be add-or-remove or replace-one (a row that is zeroed out is one that is removed)"
        raise refuse("relation", must, found.value)
    return found


def reach_of(relation: Neighbouring) -> Reach:
    """Returns how far the counts of one marginal are apart, for each row of a unit."""
    if relation is Neighbouring.REPLACE_ONE:  # guard: replaced-rows-move-twice
        return Reach(square=2, total=2)
    return Reach(square=1, total=1)
