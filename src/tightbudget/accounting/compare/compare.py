"""Certified bounds beside the published theorems that people use instead."""

from __future__ import annotations

from collections.abc import Iterator

from tightbudget.accounting.compare.comparison import Comparison, Row
from tightbudget.accounting.compare.facts import Facts, NotApplicable
from tightbudget.accounting.compare.theorems import THEOREMS
from tightbudget.errors import ParameterError
from tightbudget.mechanisms.composition import Composable, compose
from tightbudget.numerics.validate import non_negative, open_probability


def compare(
    composition: Composable,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    rtol: float = 1e-4,
) -> Comparison:
    """Puts certified bounds and those of the theorems that people use instead side by side.

    Guarantee: the exact answer lies in the bounds of every row that is proved. Theorems that ask
    for one pair in both orders (KOV, optimal, advanced) are asked about the pair of each direction
    with its reverse, and the larger answer is the row's; where a reverse is not known, the row
    says so and has no answer.

    Args:
        composition: a mechanism or a composition.
        delta: in (0, 1), to be told epsilon; or else
        epsilon: >= 0, nats, to be told delta.
        rtol: wanted relative gap of our own bounds, in (0, 1).

    Raises:
        ParameterError: not exactly one question was asked, or a value is refused.
        PrecisionError: the gap cannot be reached; the message says which gap was.
    """
    *_, whole = growing(composition, delta=delta, epsilon=epsilon, rtol=rtol)
    return whole


def growing(
    composition: Composable,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    rtol: float = 1e-4,
) -> Iterator[Comparison]:
    """Yields the comparison of :func:`compare` with its first row, with two rows, and so on.

    For those who show rows while later ones are computed. The guarantee, the arguments and the
    errors are those of :func:`compare`.
    """
    if (delta is None) == (epsilon is None):
        raise ParameterError("give exactly one of delta and epsilon")
    whole = compose([composition])
    if delta is not None:
        given, at = "delta", open_probability(delta=delta)
        ours = whole.epsilon(at, rtol)
        asked = Facts(whole, given, at, at)
    else:
        given, at = "epsilon", non_negative(epsilon=epsilon)
        ours = whole.delta(at, rtol)
        asked = Facts(whole, given, at, min(0.5, max(1e-290, ours.upper)))
    rows = [Row("tightbudget", "both ends certified, rounding included", ours)]
    yield Comparison(whole, given, at, tuple(rows))
    for name, source, theorem in THEOREMS if whole.runs else ():
        try:
            rows.append(Row(name, source, theorem(asked)))
        except NotApplicable as reason:
            rows.append(Row(name, source, None, str(reason)))
        yield Comparison(whole, given, at, tuple(rows))
