"""A pair of finitely many outputs that a pair dominates, from bounds of its delta at some points.

delta is convex in t = e^epsilon. So a line through two of its points is below it outside of the
two, and the larger of such lines from the left and from the right is below it between two
neighbouring points. The line 1 - t is below it, too. The larger one of this line and the lower
convex hull of those lines' corners is the delta of a pair of finitely many outputs, which every
pair with the given bounds dominates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from tightbudget.mechanisms.from_curve import exp_ends, falling_hull

_BITS = 192  # of a value of t, and of delta there, after the point
MASS_ERROR = Fraction(1, 2**250)  # of a cell's mass
_SMALL = Fraction(1, 2**64)  # a smaller t adds nothing that counts

Corner = tuple[Fraction, Fraction]
Known = tuple[Fraction, Fraction, Fraction]  # t, and a lower and an upper bound of delta(t)


@dataclass(frozen=True, eq=False)
class Points:
    """Bounds of one direction's delta at ascending epsilons from 0 on, and beyond all of them."""

    epsilons: Sequence[float]
    lower: Sequence[float]
    upper: Sequence[float]
    lost: float = 0.0  # a lower bound of delta(inf)


@dataclass(frozen=True)
class Cell:
    """Outputs of one loss, with their masses up to MASS_ERROR."""

    loss: float  # nats, rounded; it orders the cells
    p: Fraction
    q: Fraction


@dataclass(frozen=True, eq=False)
class Cells:
    """The outputs of a pair, by ascending loss: from outputs of Q alone to those of P alone."""

    cells: tuple[Cell, ...]

    def ascending(self) -> tuple[Cell, ...]:
        """The cells, the smallest loss first."""
        return self.cells

    def ranked(self, threshold: float) -> list[Cell]:
        """Lists outputs of P alone, cells of at most this loss, then others, the largest first."""
        *known, alone = self.cells
        first = [cell for cell in known if cell.loss <= threshold]
        return [alone, *first, *(cell for cell in reversed(known) if cell.loss > threshold)]


def polygon_below(points: Points, other: Points | None) -> Cells:
    """Returns the outputs of a pair (P, Q) that is dominated by every pair with these deltas.

    Args:
        points: of delta of P against Q.
        other: of delta of Q against P, where that is known.
    """
    lost = Fraction(points.lost)
    known: list[Known] = [(Fraction(0), Fraction(1), Fraction(1))]
    if other is not None:
        found = [_reversed(point) for point in _known(other)[1:]]
        known += [point for point in reversed(found) if point[0] > _SMALL]
    known += _known(points)
    hull = _above_line(falling_hull(_corners(known, lost)))
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(hull)]
    # a change of slope at t is a mass of Q, and t times it one of P; the rest is on one side alone
    masses = [after - before for before, after in pairwise([*slopes, Fraction(0)])]
    cells = [Cell(-math.inf, Fraction(0), _short(1 + (slopes[0] if slopes else Fraction(0))))]
    for mass, (t, _) in zip(masses, hull[1:], strict=False):
        cells.append(Cell(_log(t), _short(mass * t), _short(mass)))
    cells.append(Cell(math.inf, hull[-1][1], Fraction(0)))
    return Cells(tuple(cells))


def _known(points: Points) -> list[Known]:
    """Bounds of delta at rational t >= e^epsilon."""
    found = []
    for epsilon, lower, upper in zip(points.epsilons, points.lower, points.upper, strict=True):
        below, above = exp_ends(epsilon)
        t = _up(above)
        # delta falls, by at most 1 where t rises by 1
        found.append((t, max(Fraction(0), 1 - t, Fraction(lower) - (t - below)), Fraction(upper)))
    return found


def _reversed(point: Known) -> Known:
    """Bounds of the other direction's delta, at a rational number near 1 / t."""
    t, lower, upper = point
    # delta'(1 / t) = 1 - 1 / t + delta(t) / t
    inverse = 1 / t
    moved = _up(inverse)
    least = 1 - inverse + lower / t - (moved - inverse)
    return moved, max(1 - moved, _short(least)), _up(1 - inverse + upper / t)


def _corners(known: list[Known], lost: Fraction) -> list[Corner]:
    """The corners of a function below delta, ascending: no chord of two neighbours is above it."""
    corners: list[Corner] = []
    for i, (t, low, _) in enumerate(known):
        corners.append((t, low))
        # what is known of delta right of t: the line from the left, or the line 1 - t
        slope = Fraction(-1)
        if i:
            before, _, high = known[i - 1]
            slope = (low - high) / (t - before)
        if i + 1 == len(known):
            if slope < 0 and low > lost:
                # rounded down: beyond the corner the line is below what is left for certain
                end = _short(t + (low - lost) / -slope)
                corners.append((end, lost) if end > t else (t, low))
            break
        # left of t1 delta is at least its value there, and above the line through the next two
        t1, low1, _ = known[i + 1]
        back = Fraction(0)
        if i + 2 < len(known):
            t2, _, high2 = known[i + 2]
            back = min(back, (high2 - low1) / (t2 - t1))
        if slope >= back:
            continue
        meet = _short(t + (low1 - low - back * (t1 - t)) / (slope - back))
        if t < meet < t1:
            value = min(low + slope * (meet - t), low1 + back * (meet - t1))
            corners.append((meet, _short(value)))
    return corners


def _above_line(hull: list[Corner]) -> list[Corner]:
    """The corners of the larger one of a hull, flat on its right, and the line 1 - t."""
    k = next((k for k, (t, d) in enumerate(hull) if d > 1 - t), len(hull))
    if k == 1 or len(hull) == 1:
        return hull
    # they meet once, from the last corner that is not above the line to the next one
    t, d = hull[k - 1]
    slope = (hull[k][1] - d) / (hull[k][0] - t) if k < len(hull) else Fraction(0)
    meet = t + (1 - t - d) / (1 + slope)
    return [hull[0], (meet, 1 - meet), *hull[k:]]


def _short(x: Fraction) -> Fraction:
    """The largest fraction of few bits that is at most x."""
    return Fraction(math.floor(x * 2**256), 2**256)


def _up(x: Fraction) -> Fraction:
    """The least fraction of few bits that is at least x."""
    return Fraction(math.ceil(x * 2**_BITS), 2**_BITS)


def _log(t: Fraction) -> float:
    """ln t, rounded."""
    return math.log(t.numerator) - math.log(t.denominator) if t else -math.inf
