"""Which one of several lower bounds is the largest."""

from __future__ import annotations

import functools

from tightbudget.errors import PrecisionError
from tightbudget.mechanisms.composition import Mechanism

_REFERENCE, _ROUGH = 1e-6, 0.05  # a delta, and a gap, at which lower bounds are compared


@functools.lru_cache(maxsize=256)
def telling_most(each: tuple[Mechanism, ...], runs: int) -> Mechanism:
    """Returns the mechanism of which so many runs have the largest epsilon at a certain delta.

    All are below the exact one: the choice affects width, never truth.
    """

    def told(mechanism: Mechanism) -> float:
        try:
            return (mechanism * runs).epsilon(_REFERENCE, _ROUGH).lower
        except PrecisionError:
            return 0.0

    return max(each, key=told)
