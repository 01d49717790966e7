"""One line about an accountant of another library: what it has counted, and an upper bound."""

from __future__ import annotations

from collections.abc import Callable

from tightbudget.mechanisms.composition import Composition
from tightbudget.numerics.bounds import rounded

_DELTA = 1e-5  # of the epsilon that is shown
_GAP = 1e-2  # of its bounds
# A composition of so many different Gaussians on samples answers in a tenth of a second; hundreds,
# or batches of a fixed size, take more than a second.
_MOST_PARTS = 4


def glance(name: str, counted: Callable[[], Composition]) -> str:
    """Writes what an accountant has counted, and an upper bound of its epsilon at delta = 1e-5.

    Guarantee: the exact epsilon is at most the one that is written. It is left out where it would
    take long. Nothing is raised: a history that is refused is named with its refusal.

    Args:
        name: the class of the accountant.
        counted: makes the composition of what it has counted.
    """
    try:
        run = counted()
        return f"<{name}: {run!r}; {_epsilon(run)}>" if run.parts else f"<{name}: nothing yet>"
    except Exception as error:  # a repr is asked for by debuggers and by refusals
        return f"<{name}: {type(error).__name__}: {error}>"


def _epsilon(run: Composition) -> str:
    """Writes an upper bound of epsilon where that is fast, else what bounds it."""
    quick = len(run.parts) <= _MOST_PARTS and run.attained is None
    if not (quick and run.engine.saddle_points):
        return "get_epsilon(delta) bounds epsilon"
    upper = run.answer(delta=_DELTA, rtol=_GAP).bounds.upper
    return f"epsilon is at most {rounded(upper, 4, up=True)} at delta = {_DELTA!r}"
