"""The law of a sum of independent ratios on a lattice, with bounds of what rounding and cuts did.

A law is a list of pieces, each on the multiples of its own step: fine ones near zero and around the
mean, coarser ones far to the right, where single large ratios lie. Sums are taken by adding
products of masses, never by a transform, so that each entry keeps its relative precision in both
tails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from tightbudget.mechanisms.allocated_plan import LOST, NO_MASS, LatticePlan, Levels
from tightbudget.numerics.convolve import convolve_directly
from tightbudget.numerics.rounding import UNIT, FloatArray, add_up, outwards, sum_up

_LEVELS = 128  # levels that a piece can rise by at once, at most


@dataclass(frozen=True)
class Piece:
    """Masses at the positions (first + i) 2^level, i = 0, 1, ..., in units of the lattice.

    Row 0 is the mass of the outputs where the record is absent; row 1, if there is one, their mass
    where it is present. A spread law has row 0 alone: the position says what row 1 would be.
    """

    level: int
    first: int
    rows: FloatArray  # (1, n) or (2, n)

    @property
    def end(self) -> int:
        """The index after the last position."""
        return self.first + int(self.rows.shape[1])

    def part(self, start: int, end: int) -> Piece:
        """Returns the positions with index ``start`` .. ``end`` - 1 alone."""
        start = min(max(start, self.first), self.end)
        end = max(min(end, self.end), start)
        return Piece(self.level, start, self.rows[:, start - self.first : end - self.first])

    def coarser(self, levels: int, *, merged: bool) -> Piece:
        """Returns this piece, spread or merged to a step that is 2^levels as wide."""
        piece = self
        for _ in range(levels):
            piece = piece._doubled(merged=merged)
        return piece

    def _doubled(self, *, merged: bool) -> Piece:
        # an odd number of entries, from an even position to an even one
        before = self.first % 2
        size = self.rows.shape[1] + before
        rows = np.zeros((self.rows.shape[0], size + 1 - size % 2))
        rows[:, before:size] = self.rows
        even, odd = rows[:, 0::2].copy(), rows[:, 1::2]
        if merged:
            # each odd position joins the even one after it, so that position 0 stays alone
            even[:, 1:] += odd
        else:
            # halves are exact; an odd point lies in the middle of its neighbours
            even[:, :-1] += odd / 2.0  # guard: odd-point-spread
            even[:, 1:] += odd / 2.0
        return Piece(self.level + 1, self.first // 2, even)


@dataclass(frozen=True)
class Law:
    """The law of a sum of ``steps`` ratios.

    Guarantee: exact entries are within the relative ``error`` of the rows, and outputs that are in
    no row have at most ``lost`` of the mass where the record is absent, and present.
    """

    steps: int
    pieces: tuple[Piece, ...]
    error: float
    lost: tuple[float, float]
    base: int = 0  # the level of the bulk
    merged: bool = False  # else spread

    def placed(self) -> Iterable[tuple[Piece, FloatArray]]:
        """Each piece with the places of its entries in units of the lattice."""
        for piece in self.pieces:
            index = np.arange(piece.first, piece.end, dtype=np.float64)
            yield piece, index * 2.0**piece.level

    def ends(self, plan: LatticePlan) -> tuple[float, float]:
        """The places between which this sum matters for the whole average."""
        places = np.concatenate([index for _, index in self.placed()])
        masses = np.concatenate([piece.rows[0] for piece in self.pieces])
        order = np.argsort(places, kind="stable")
        below = np.cumsum(masses[order])
        # the average is as small only if all its sums are
        rare = np.log(np.maximum(below, 1e-320)) * (plan.steps / self.steps) < math.log(LOST)
        first = min(int(np.sum(rare)), places.size - 1)
        return float(places[order[first]]), float(places[order[-1]])


def _arranged(pieces: Iterable[Piece], table: Levels, *, merged: bool) -> tuple[Piece, ...]:
    """Brings pieces to the levels of a table, and adds up those of one level."""
    found: dict[int, list[Piece]] = {}
    for piece in pieces:
        wide = [(level - piece.level, start) for level, start in table if level >= piece.level]
        # a piece that is coarser than the table wants at some place stays as it is there
        if not wide or (wide[0][0] > 0 and len(wide) < len(table)):
            wide.insert(0, (0, piece.first))
        edges = [start << up for up, start in wide[1:]]
        begins = [piece.first, *edges]
        ends = [*edges, piece.end]
        for (up, _), begin, end in zip(wide, begins, ends, strict=True):
            part = piece.part(begin, end)
            if part.rows.size:
                found.setdefault(piece.level + up, []).append(part.coarser(up, merged=merged))
    return tuple(added(found[level]) for level in sorted(found))


def added(pieces: list[Piece]) -> Piece:
    """The sum of pieces of one level."""
    first, end = min(piece.first for piece in pieces), max(piece.end for piece in pieces)
    rows = np.zeros((pieces[0].rows.shape[0], end - first))
    for piece in pieces:
        rows[:, piece.first - first : piece.end - first] += piece.rows
    return Piece(pieces[0].level, first, rows)


# Zeros between the masses of a piece are passed over where there are more than this: outputs that
# show for certain that they have no record leave lumps of masses far apart.
_GAP = 256


def _lumps(row: FloatArray) -> list[tuple[int, int]]:
    """The parts of a row that hold masses, each from an index to another, far apart."""
    (at,) = np.nonzero(row)
    if not at.size:
        return []
    breaks = np.flatnonzero(np.diff(at) > _GAP)
    starts, ends = np.append(0, breaks + 1), np.append(breaks, at.size - 1)
    return [(int(at[i]), int(at[j]) + 1) for i, j in zip(starts, ends, strict=True)]


def _convolved(a: FloatArray, b: FloatArray) -> FloatArray:
    """The full linear convolution of a, b >= 0, as exact as :func:`convolve_directly`."""
    of_a, of_b = _lumps(a), _lumps(b)
    if len(of_a) <= 1 and len(of_b) <= 1:
        return convolve_directly(a, b)
    result = np.zeros(a.size + b.size - 1)
    for start, end in of_a:
        for first, last in of_b:
            # an entry rounds once for each pair of lumps: no more often than it has products
            result[start + first : end + last - 1] += convolve_directly(a[start:end], b[first:last])
    return result


def _product(a: Piece, b: Piece, runs: tuple[int, int], *, twice: bool) -> Piece:
    """The law of a sum of two parts, of ``runs`` ratios, from a piece of each, of one level.

    ``twice`` says that both parts have both pieces.
    """
    factor = 2.0 if twice else 1.0
    rows = [factor * _convolved(a.rows[0], b.rows[0])]
    if len(a.rows) == 2:
        # the record is in one of all the ratios, uniformly: labels depend on the order of the
        # ratios, so that its place counts
        left, right = (1.0, 0.0) if a is b else (factor * part / sum(runs) for part in runs)
        rows.append(left * _convolved(a.rows[1], b.rows[0]))
        if right:
            rows[1] += right * _convolved(a.rows[0], b.rows[1])
    return Piece(a.level, a.first + b.first, np.array(rows))


# Proof: proofs/order.v, theorem sums_of_laws
def sum_of_two(a: Law, b: Law, plan: LatticePlan) -> Law:
    """The law of the sum of two independent sums of ratios."""
    steps, runs = a.steps + b.steps, (a.steps, b.steps)
    one, other = ({piece.level: piece for piece in law.pieces} for law in (a, b))
    # all pieces of lower levels, at this level
    finer: list[Piece | None] = [None, None]
    products, shorter = [], 0
    level = min(one | other)
    for following in [*sorted(one | other)[1:], None]:
        left, right = one.get(level), other.get(level)
        below_left, below_right = finer
        crossed = ((left, right), (left, below_right), (below_left, right))
        for x, y in crossed[:2] if a is b else crossed:
            if x is not None and y is not None:
                # the third product of a square is its second one
                products.append(_product(x, y, runs, twice=a is b and y is not x))
                shorter = max(shorter, min(x.rows.shape[1], y.rows.shape[1]))
        if following is None:
            break
        for i, (piece, below) in enumerate(((left, below_left), (right, below_right))):
            both = [x for x in (piece, below) if x is not None]
            finer[i] = added(both).coarser(following - level, merged=a.merged) if both else None
        level = following
    error = a.error + b.error + a.error * b.error
    # a product rounds once for each entry of the shorter piece, and a few times more; the sum of
    # products once for each; a coarser level twice
    error += (shorter + len(products) + 4 * _LEVELS + 16) * UNIT  # guard: sum-rounding
    # outputs that are lost in one part are lost whatever the other part shows
    absent = add_up(a.lost[0], b.lost[0])
    of_left, of_right = a.steps / steps, b.steps / steps
    present = add_up(
        of_left * add_up(a.lost[1], b.lost[0]), of_right * add_up(b.lost[1], a.lost[0])
    )
    lost = (absent, outwards(present))
    base = max(a.base, b.base)
    law = Law(steps, tuple(products), outwards(error), lost, base, a.merged)
    return _tidied(law, plan)


def _tidied(law: Law, plan: LatticePlan) -> Law:
    """Cuts off the ends of a law that hold next to nothing, and gives it the steps of the plan."""
    law = _trimmed(law, plan)
    low, high = law.ends(plan)
    base, table = plan.table(law.steps, law.base, low, high)
    pieces = _arranged(law.pieces, table, merged=law.merged)
    return replace(law, pieces=pieces, base=base)


# Proof: proofs/order.v, theorem cut_law
def _trimmed(law: Law, plan: LatticePlan) -> Law:
    """Cuts off what holds next to nothing; it joins the mass that is lost."""
    most = LOST * law.steps / (8 * plan.steps * len(law.pieces))
    absent, present, kept = [law.lost[0]], [law.lost[1]], []
    for piece, index in law.placed():
        q = piece.rows[0]
        p = q * plan.positions.ratio(index, law.steps) if len(piece.rows) == 1 else piece.rows[1]
        mass = p + q
        first = int(np.searchsorted(np.cumsum(mass), most, "right"))
        last = mass.size - int(np.searchsorted(np.cumsum(mass[::-1]), most, "right"))
        none = mass < NO_MASS
        none[:first] = none[last:] = True
        # guard: cut-is-lost
        absent.append(sum_up(q[none]) * (1.0 + 2.0 * law.error))
        present.append(sum_up(p[none]) * (1.0 + 2.0 * law.error) * (1.0 + 8 * UNIT))
        if first < last:
            rows = np.where(none, 0.0, piece.rows)
            kept.append(Piece(piece.level, piece.first + first, rows[:, first:last]))
    if not kept:  # one place without mass, so that a law has places
        empty = law.pieces[0]
        kept.append(Piece(empty.level, empty.first, np.zeros((len(empty.rows), 1))))
    return replace(law, pieces=tuple(kept), lost=(add_up(*absent), add_up(*present)))


def sum_of_many(law: Law, runs: int, plan: LatticePlan) -> Law:
    """The law of a sum of ``runs`` ratios: binary exponentiation from the lowest bit up."""
    square, result = law, None
    while True:
        if runs & 1:
            result = square if result is None else sum_of_two(result, square, plan)
        runs >>= 1
        if not runs:
            assert result is not None
            return result
        square = sum_of_two(square, square, plan)
