"""Basic composition: sums of epsilon, with sums of delta or the chance that any delta occurs."""

from __future__ import annotations

from collections.abc import Sequence

from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import any_of
from tightbudget.numerics.validate import non_negative, positive_count, probability, refuse

__all__ = ["adaptive", "total"]

Step = tuple[float, float, int]  # epsilon, delta, how many of these run


def total(steps: Sequence[Step]) -> tuple[Bounds, Bounds]:
    """Adds up the epsilons and the deltas of mechanisms that are (epsilon, delta)-DP each.

    Guarantee: together the mechanisms are (epsilon.upper, delta.upper)-DP, also if each was chosen
    after seeing the answers before it. Source: Dwork, Kenthapadi, McSherry, Mironov, Naor
    2006, Theorem 1.

    Args:
        steps: (epsilon, delta, runs) of each mechanism. Where each delta is an upper bound for
            one order of a pair, P against Q, so is the sum.

    Raises:
        ParameterError: an entry is refused.
    """
    steps = _checked(steps)
    delta = sum((Bounds(d, d) * k for _, d, k in steps), start=Bounds(0.0, 0.0))
    return _epsilon(steps), Bounds(min(1.0, delta.lower), min(1.0, delta.upper))


def adaptive(steps: Sequence[Step]) -> tuple[Bounds, Bounds]:
    """Adds up the epsilons, and composes the deltas as 1 - product of all (1 - delta).

    Guarantee: as for :func:`total`. Source: Meiser, Mohammadi 2018, Lemma 3.

    Args:
        steps: (epsilon, delta, runs) of each mechanism.

    Raises:
        ParameterError: an entry is refused.
    """
    steps = _checked(steps)
    chances = [(d, k) for _, d, k in steps]
    return _epsilon(steps), Bounds(any_of(chances, up=False), any_of(chances, up=True))


def _epsilon(steps: Sequence[Step]) -> Bounds:
    return sum((Bounds(e, e) * k for e, _, k in steps), start=Bounds(0.0, 0.0))


def _checked(steps: Sequence[Step]) -> list[Step]:
    checked = []
    for i, step in enumerate(steps):
        if len(step) != 3:
            raise refuse(f"steps[{i}]", "be (epsilon, delta, runs)", step)
        epsilon, delta, runs = step
        checked.append(
            (
                non_negative(**{f"steps[{i}].epsilon": epsilon}),
                probability(**{f"steps[{i}].delta": delta}),
                positive_count(**{f"steps[{i}].runs": runs}),
            )
        )
    return checked
