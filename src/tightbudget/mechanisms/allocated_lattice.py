"""The law of an average of ratios on a lattice, certified from above and from below.

A record that is in one of t steps, chosen uniformly, has the ratio R = (X_1 + ... + X_t) / t: X_i
is the density of step i's output with the record present over the density with it absent, and all
X_i are independent where the record is absent. Each delta of that pair, and of any composition with
it, is an expectation of a convex function of R. So two laws on a lattice of positions certify it:

- *spread*: the mass between two lattice points goes to both of them, in shares that keep its mean.
  That law is larger in convex order, for the average, too: its pair dominates.
- *merged*: all outputs between two lattice points become one output. That is post-processing: the
  exact pair dominates the merged one.

A law is a list of pieces, each on the multiples of its own step: fine ones near zero and around the
mean, coarser ones far to the right, where single large ratios lie. Sums are taken by adding
products of masses, never by a transform, so that each entry keeps its relative precision in both
tails.

Source: convex order, Shaked, Shanthikumar 2007, Theorem 3.A.12; Feldman, Shenfeld 2025, "Privacy
amplification by random allocation", for the pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tightbudget.numerics.convolve import convolve_directly
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure
from tightbudget.numerics.rounding import LOG, UNIT, FloatArray, add_up, outwards, sum_up
from tightbudget.pairs.atomic import AtomicPair, at_most
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.pair import Atoms, Pair, zero

__all__ = ["Average", "average"]

# The variance that spreading may add, and merging may take, beside the variance of the average. An
# epsilon is proportional to the root of the variance, and half of this is its relative gap.
_VARIANCE = 4e-5
# Away from zero and beyond the bulk a step is at most this share of the distance from zero, and
# from the mean. A quarter of its square is variance of the logarithm: 1e-6, below _VARIANCE.
_RELATIVE = 1.0 / 512.0
_SHORT = 2048  # entries: shorter pieces are not made coarser, a product of two takes 0.4 ms
# Mass that may be cut off at both ends of all laws together. It counts as a certain loss above, so
# that deltas far above it are known closely; each factor of e^-12 costs a piece some 3 % of length.
_LOST = 1e-42
# An entry below this is no mass: products of two that are above it are normal doubles.
_NO_MASS = 1e-140
# Two to the power of this is the ratio of the steps of neighbouring pieces.
_APART = 2
# The step of the first piece right of the bulk is 2^3 steps of the bulk, since the bulk is made of
# so many more entries than _RELATIVE asks for.
_FIRST_APART = 3
_FINER = 30  # levels at most below the bulk's
_LEVELS = 128  # levels that a piece can rise by at once, at most
_FEW = 8  # outputs of a step: their ratios begin the lattice, so that two of them fit it exactly

_Table = tuple[tuple[int, int], ...]  # levels, ascending, each with the first index that has it


@dataclass(frozen=True)
class _Piece:
    """Masses at the positions (first + i) 2^level, i = 0, 1, ..., in units of the lattice.

    Row 0 is the mass of the outputs where the record is absent; in a merged law, row 1 is their
    mass where it is present.
    """

    level: int
    first: int
    rows: FloatArray  # (1, n) or (2, n)

    @property
    def end(self) -> int:
        """The index after the last position."""
        return self.first + int(self.rows.shape[1])

    def part(self, start: int, end: int) -> _Piece:
        """Returns the positions with index ``start`` .. ``end`` - 1 alone."""
        start = min(max(start, self.first), self.end)
        end = max(min(end, self.end), start)
        return _Piece(self.level, start, self.rows[:, start - self.first : end - self.first])

    def coarser(self, levels: int) -> _Piece:
        """Returns this piece with a step 2^levels as wide: one row is spread, two are merged."""
        piece = self
        for _ in range(levels):
            piece = piece._doubled()
        return piece

    def _doubled(self) -> _Piece:
        # an odd number of entries, from an even position to an even one
        before = self.first % 2
        size = self.rows.shape[1] + before
        rows = np.zeros((self.rows.shape[0], size + 1 - size % 2))
        rows[:, before:size] = self.rows
        even, odd = rows[:, 0::2].copy(), rows[:, 1::2]
        if rows.shape[0] == 1:  # guard: odd-point-spread
            # halves are exact; an odd point lies in the middle of its neighbours
            even[:, :-1] += odd / 2.0
            even[:, 1:] += odd / 2.0
        else:
            # each odd position joins the even one after it, so that position 0 stays alone
            even[:, 1:] += odd
        return _Piece(self.level + 1, self.first // 2, even)


@dataclass(frozen=True)
class _Law:
    """The law of a sum of ``steps`` ratios.

    Guarantee: exact entries are within the relative ``error`` of the rows, and outputs that are in
    no row have at most ``lost`` of the mass where the record is absent, and present.
    """

    steps: int
    pieces: tuple[_Piece, ...]
    error: float
    lost: tuple[float, float]
    base: int = 0  # the level of the bulk

    def placed(self) -> Iterable[tuple[_Piece, FloatArray]]:
        """Each piece with the places of its entries in units of the lattice."""
        for piece in self.pieces:
            index = np.arange(piece.first, piece.end, dtype=np.float64)
            yield piece, index * 2.0**piece.level

    def ends(self, plan: _Plan) -> tuple[float, float]:
        """The places between which this sum matters for the whole average."""
        places = np.concatenate([index for _, index in self.placed()])
        masses = np.concatenate([piece.rows[0] for piece in self.pieces])
        order = np.argsort(places, kind="stable")
        below = np.cumsum(masses[order])
        # the average is as small only if all its sums are
        rare = np.log(np.maximum(below, 1e-320)) * (plan.steps / self.steps) < math.log(_LOST)
        first = min(int(np.sum(rare)), places.size - 1)
        return float(places[order[first]]), float(places[order[-1]])


@dataclass(frozen=True)
class Average:
    """The law of R = (X_1 + ... + X_t) / t from above and from below, as masses of two pairs.

    Guarantee: the pair of ``above`` dominates the pair of R, and that of ``below`` is a
    post-processing of it, in both directions.
    """

    above: _Law
    below: _Law
    positions: _Positions
    infinite: Enclosure  # the mass that only the output with the record present has

    def dominating(self, direction: Direction) -> AtomicPair:
        """The pair of the spread law for this direction."""
        law, losses, masses = self.above, [], []
        only_p = [float(self.infinite.upper[0])] if direction is Direction.REMOVE else []
        only_p.append(law.lost[0 if direction is Direction.ADD else 1])  # guard: lost-is-infinite
        for piece, index in law.placed():
            ratio = self.positions.ratio(index, law.steps)
            absent = piece.rows[0] * (1.0 + law.error)  # guard: spread-rounding
            zero = ratio == 0.0
            if direction is Direction.ADD:
                only_p.append(sum_up(absent[zero]))
            kept = ~zero & (absent > 0)
            ratio, absent = ratio[kept], absent[kept]
            remove = direction is Direction.REMOVE
            masses.append(absent * ratio * (1.0 + 8 * UNIT) if remove else absent)
            losses.append(np.log(ratio) if remove else -np.log(ratio))
        loss, p = np.concatenate(losses), np.concatenate(masses)
        margin = _MARGIN + (LOG + 2) * UNIT * np.abs(loss)
        q = exact(p) * exp_enclosure(-loss, margin)
        rest = max(0.0, 1.0 - float(np.sum(q.lower)) * (1.0 - 1e-9))
        only = exact(min(1.0, add_up(*only_p)))
        return AtomicPair(Atoms(exact(p), q, loss - margin, loss + margin), only, at_most(rest))

    def dominated(self, direction: Direction) -> AtomicPair:
        """The pair of the merged law for this direction."""
        law = self.below
        absent, present = (
            np.concatenate([piece.rows[row] for piece in law.pieces]) for row in (0, 1)
        )
        p, q = (present, absent) if direction is Direction.REMOVE else (absent, present)
        # an output is worth less with less of P and more of Q  # guard: merged-rounding
        p, q = p * max(0.0, 1.0 - law.error), q * (1.0 + law.error)
        pair = AtomicPair.from_masses(exact(p[p > 0]), exact(q[p > 0]))
        if direction is Direction.ADD:
            return pair
        return AtomicPair(
            pair.given, pair.only_p + Enclosure(self.infinite.lower, self.infinite.lower)
        )


# Positions, means and edges are off by less than this, as a share of themselves: some ten roundings
# on the way from a step's loss to the logarithm of an average.
_MARGIN = 64 * UNIT


@dataclass(frozen=True)
class _Positions:
    """The places of lattice points: index k of a sum of m ratios stands at m origin + k unit."""

    origin: float
    unit: float

    def ratio(self, index: FloatArray, steps: int) -> FloatArray:
        """The averages of ``steps`` ratios at the points ``index``, within 4 units of 2^-53."""
        return np.asarray(self.origin + index * (self.unit / steps))


@dataclass(frozen=True)
class _Picture:
    """A rough law of one ratio, for planning only: it decides widths, no bound.

    Attributes:
        x: (n,) ratios, ascending.
        absent: (n,) their masses where the record is absent.
        present: (n,) their masses where it is present.
        zero: the mass of the ratio 0 where the record is absent.
    """

    x: FloatArray
    absent: FloatArray
    present: FloatArray
    zero: float

    @staticmethod
    def of(pair: Pair, direction: Direction) -> _Picture:
        """The sketch of one step's pair as a law of ratios."""
        sketch = pair.sketch().sorted()
        loss = np.clip(sketch.losses, -300.0, 300.0)
        p, q = np.exp(sketch.log_masses), np.exp(sketch.log_masses - loss)
        if direction is Direction.REMOVE:
            return _Picture(np.exp(loss), q, p, float(pair.q_only().upper[0]))
        return _Picture(np.exp(-loss)[::-1], p[::-1], q[::-1], float(pair.p_only().upper[0]))

    def bulk(self, steps: int) -> tuple[float, float]:
        """The mean and the standard deviation of one ratio, without those that are rare.

        A ratio is rare if less than one of its size or larger is expected among all steps.
        """
        beyond = np.cumsum(self.absent[::-1])[::-1]
        kept = beyond * steps >= 1.0
        x, q = self.x[kept], self.absent[kept]
        whole = float(np.sum(q)) + self.zero
        if not whole > 0:
            return 1.0, 0.0
        mean = float(np.sum(q * x)) / whole
        square = float(np.sum(q * (x - mean) ** 2)) + self.zero * mean**2
        return mean, math.sqrt(square / whole)

    def reach(self, steps: int) -> tuple[float, float, float]:
        """The least ratio that matters in a sum, the least that matters alone, and the largest."""
        below = np.cumsum(self.absent) + self.zero
        # all steps have to be as small to make a small average
        low = np.log(np.maximum(below, 1e-320)) * steps > math.log(_LOST)
        beyond = np.cumsum((self.present + self.absent)[::-1]) > _LOST / steps
        high = beyond[::-1]
        first = int(np.argmax(low)) if low.any() else 0
        least = int(np.argmax(below > _LOST / steps))
        last = self.x.size - 1 - int(np.argmax(high[::-1])) + 1
        ends = np.clip([least - 1, first - 1, last], 0, self.x.size - 1)
        low_, first_, last_ = (float(x) for x in self.x[ends])
        return low_, first_, last_


@dataclass(frozen=True)
class _Plan:
    """Which step a sum of m ratios has at which place.

    Attributes:
        steps: of the whole average.
        positions: of lattice points.
        mean, deviation: of the bulk of one ratio, in units of the lattice.
        share: the widest step of the bulk, as a share of its standard deviation.
    """

    steps: int
    positions: _Positions
    mean: float
    deviation: float
    share: float

    def table(self, runs: int, current: int, low: float, high: float) -> tuple[int, _Table]:
        """The level of the bulk of a sum of ``runs`` ratios, and all levels with their places.

        Args:
            runs: the number of ratios.
            current: the level that the bulk already has: it is not made finer.
            low: the place (in units) from which on a sum matters.
            high: the largest place.
        """
        deviation, middle = math.sqrt(runs) * self.deviation, runs * self.mean
        length = min(high, middle + 14 * deviation) - max(low, middle - 14 * deviation)
        step = min(self.share * deviation, length / _SHORT)
        base = max(current, math.floor(math.log2(step) + 1e-9)) if step > 0 else current
        zero = -runs * self.positions.origin / self.positions.unit
        table = [base]
        starts = [zero + 2.0**base / _RELATIVE]
        while starts[0] > low and len(table) < _FINER:
            table.insert(0, _APART * (math.ceil(table[0] / _APART) - 1))
            starts.insert(0, zero + 2.0 ** table[0] / _RELATIVE)
        # the same levels again and again, whatever the bulk's: pieces of more levels cost time
        level = _APART * math.ceil((base + _FIRST_APART) / _APART)
        while (start := middle + 2.0**level / _RELATIVE) < high:
            if start > starts[-1]:
                table.append(level)
                starts.append(start)
            level += _APART
        return base, tuple(
            (level, math.ceil(start / 2.0**level))
            for level, start in zip(table, starts, strict=True)
        )


def _arranged(pieces: Iterable[_Piece], table: _Table) -> tuple[_Piece, ...]:
    """Brings pieces to the levels of a table, and adds up those of one level."""
    found: dict[int, list[_Piece]] = {}
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
                found.setdefault(piece.level + up, []).append(part.coarser(up))
    return tuple(_added(found[level]) for level in sorted(found))


def _added(pieces: list[_Piece]) -> _Piece:
    """The sum of pieces of one level."""
    first, end = min(piece.first for piece in pieces), max(piece.end for piece in pieces)
    rows = np.zeros((pieces[0].rows.shape[0], end - first))
    for piece in pieces:
        rows[:, piece.first - first : piece.end - first] += piece.rows
    return _Piece(pieces[0].level, first, rows)


def _product(a: _Piece, b: _Piece, runs: tuple[int, int], *, twice: bool) -> _Piece:
    """The law of a sum of two parts, of ``runs`` ratios, from a piece of each, of one level.

    ``twice`` says that both parts have both pieces.
    """
    factor = 2.0 if twice else 1.0
    rows = [factor * convolve_directly(a.rows[0], b.rows[0])]
    if len(a.rows) == 2:
        # the record is in one of all the ratios, uniformly
        left, right = (factor * part / sum(runs) for part in runs)
        if a is b:
            left, right = 1.0, 0.0
        rows.append(left * convolve_directly(a.rows[1], b.rows[0]))
        if right:
            rows[1] += right * convolve_directly(a.rows[0], b.rows[1])
    return _Piece(a.level, a.first + b.first, np.array(rows))


def _sum(a: _Law, b: _Law, plan: _Plan) -> _Law:
    """The law of the sum of two independent sums of ratios."""
    steps, runs = a.steps + b.steps, (a.steps, b.steps)
    one, other = ({piece.level: piece for piece in law.pieces} for law in (a, b))
    # all pieces of lower levels, at this level
    finer: list[_Piece | None] = [None, None]
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
            finer[i] = _added(both).coarser(following - level) if both else None
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
    law = _Law(steps, tuple(products), outwards(error), lost, max(a.base, b.base))
    return _tidied(law, plan)


def _tidied(law: _Law, plan: _Plan) -> _Law:
    """Cuts off the ends of a law that hold next to nothing, and gives it the steps of the plan."""
    law = _trimmed(law, plan)
    low, high = law.ends(plan)
    base, table = plan.table(law.steps, law.base, low, high)
    return replace(law, pieces=_arranged(law.pieces, table), base=base)


def _trimmed(law: _Law, plan: _Plan) -> _Law:
    """Cuts off what holds next to nothing; it joins the mass that is lost."""
    most = _LOST * law.steps / (8 * plan.steps * len(law.pieces))
    absent, present, kept = [law.lost[0]], [law.lost[1]], []
    for piece, index in law.placed():
        q = piece.rows[0]
        p = q * plan.positions.ratio(index, law.steps) if len(piece.rows) == 1 else piece.rows[1]
        mass = p + q
        first = int(np.searchsorted(np.cumsum(mass), most, "right"))
        last = mass.size - int(np.searchsorted(np.cumsum(mass[::-1]), most, "right"))
        none = mass < _NO_MASS
        none[:first] = none[last:] = True
        # guard: cut-is-lost
        absent.append(sum_up(q[none]) * (1.0 + 2.0 * law.error))
        present.append(sum_up(p[none]) * (1.0 + 2.0 * law.error) * (1.0 + 8 * UNIT))
        if first < last:
            rows = np.where(none, 0.0, piece.rows)
            kept.append(_Piece(piece.level, piece.first + first, rows[:, first:last]))
    return replace(law, pieces=tuple(kept), lost=(add_up(*absent), add_up(*present)))


def average(pair: Pair, direction: Direction, steps: int) -> Average:
    """The law of the average of ``steps`` independent ratios of one step's pair.

    Args:
        pair: the dominating pair of one step.
        direction: which side of it has the record: P for ``REMOVE``, Q for ``ADD``.
        steps: t >= 1.
    """
    plan, reach = _planned(_Picture.of(pair, direction), steps)
    above, below, infinite = _one_ratio(pair, direction, plan, reach)
    return Average(_power(above, plan), _power(below, plan), plan.positions, infinite)


def _power(law: _Law, plan: _Plan) -> _Law:
    """The law of the sum of all ratios: binary exponentiation from the lowest bit up."""
    runs, square, result = plan.steps, law, None
    while True:
        if runs & 1:
            result = square if result is None else _sum(result, square, plan)
        runs >>= 1
        if not runs:
            assert result is not None
            return result
        square = _sum(square, square, plan)


def _planned(picture: _Picture, steps: int) -> tuple[_Plan, tuple[float, float, float]]:
    """The plan for an average, and three places of one ratio.

    They are the least that matters in a sum, the least that matters by itself, and the largest.
    """
    mean, deviation = picture.bulk(steps)
    least, low, high = picture.reach(steps)
    share = math.sqrt(4.0 * _VARIANCE / (1.0 + math.log2(steps) / 2.0))
    few = picture.x.size <= _FEW and picture.zero == 0.0
    origin = float(picture.x[0]) * (1.0 - _MARGIN) if few else 0.0
    if few and high > low:
        unit = (high - origin) / (1 if picture.x.size == 2 else _SHORT)
    elif deviation > 0:
        length = min(high, mean + 14 * deviation) - max(least, mean - 14 * deviation)
        unit = min(share * deviation, length / _SHORT)
        unit = 2.0 ** math.floor(math.log2(unit))  # a power of two: places are exact
    else:
        unit = mean * share
    positions = _Positions(origin, unit)
    plan = _Plan(steps, positions, (mean - origin) / unit, deviation / unit, share)
    return plan, ((least - origin) / unit, (low - origin) / unit, (high - origin) / unit)


def _one_ratio(
    pair: Pair, direction: Direction, plan: _Plan, reach: tuple[float, float, float]
) -> tuple[_Law, _Law, Enclosure]:
    """The law of one ratio from above and from below, and the mass of infinite ratios."""
    least, low, high = reach
    grid = _Edges.of(plan.table(1, 0, low, high)[1], least, high)
    edges = plan.positions.ratio(grid.places, 1)
    shares = _Shares(edges)
    remove = direction is Direction.REMOVE
    zero, infinite = (pair.q_only(), pair.p_only()) if remove else (pair.p_only(), pair.q_only())
    shares.add_bins(pair, remove=remove)
    shares.add_atoms(pair.atoms(), remove=remove)
    shares.add_zero(zero)
    above = _Law(1, grid.pieces(shares.spread()[None, :]), 16 * UNIT, shares.lost())
    rows, error = shares.merged(plan.steps)
    below = _Law(1, grid.pieces(rows), error, (0.0, 0.0))
    return above, below, infinite


@dataclass(frozen=True)
class _Edges:
    """Lattice points with the levels of a table, ascending.

    Attributes:
        places: (n,) in units.
        runs: of each level the first index and the number of points.
    """

    places: FloatArray
    runs: tuple[tuple[int, int, int], ...]  # level, first index, number

    @staticmethod
    def of(table: _Table, low: float, high: float) -> _Edges:
        """All points from just below ``low`` to just above ``high``, and zero.

        The first level begins below ``low``, the others where the table says.
        """
        places, runs = [], []
        for j, (level, start) in enumerate(table):
            last = j == len(table) - 1
            # 2 more: what lies within rounding of the end has a point above it
            end = (
                math.ceil(high / 2.0**level) + 2
                if last
                else table[j + 1][1] << (table[j + 1][0] - level)
            )
            begin = max(0, math.floor(low / 2.0**level) - 1) if j == 0 else max(start, 0)
            if j == 0 and begin > 0:
                places.append(np.zeros(1))
                runs.append((level, 0, 1))
            if end > begin:
                places.append(np.arange(begin, end, dtype=np.float64) * 2.0**level)
                runs.append((level, begin, end - begin))
        return _Edges(np.concatenate(places), tuple(runs))

    def pieces(self, rows: FloatArray) -> tuple[_Piece, ...]:
        """The pieces that hold ``rows``, one entry a point."""
        found, at = [], 0
        for level, first, number in self.runs:
            found.append(_Piece(level, first, rows[:, at : at + number]))
            at += number
        return tuple(found)


class _Shares:
    """The masses of one ratio in the cells between ascending edges, the first of which is 0 or
    the least ratio.

    Cell i ends at edge i; what lies above the last edge, or below the first one, is lost.
    """

    def __init__(self, edges: FloatArray) -> None:
        self.edges = edges
        # for the right one of an interval of ratios, and for the left one: each is an upper law in
        # one direction, and the larger of both at each edge is one in both directions
        self._high, self._low = np.zeros(edges.size), np.zeros(edges.size)
        self._lost = [(0.0, 0.0)]
        # of each cell that is kept below: index, absent, present, relative error
        self._cells: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]] = []

    def add_bins(self, pair: Pair, *, remove: bool) -> None:
        """Adds the continuous part."""
        first = int(self.edges[0] == 0.0)
        e = self.edges[first:]
        losses = np.log(e) if remove else -np.log(e)[::-1]
        slack = 8 * UNIT + (LOG + 4) * UNIT * np.abs(losses)
        bins = pair.bins(losses, slack)
        if bins is None:
            return
        reference = np.append(losses, losses[-1])
        scale = exp_enclosure(-reference, np.append(slack, slack[-1]))
        q = bins.q * scale
        absent, present = (q, bins.p) if remove else (bins.p, q)
        # ratio = e^r / w, or its reverse
        ratio = (
            exp_enclosure(reference, np.append(slack, slack[-1])) / bins.w
            if remove
            else (bins.w * scale)
        )
        if remove:
            ends = slice(0, e.size)
            beyond = e.size
        else:  # from the last bin to the first: the ratio rises
            order = np.arange(e.size, -1, -1)
            absent, present, ratio = absent[order], present[order], ratio[order]
            ends, beyond = slice(0, e.size), e.size
        self._lose(absent[beyond], present[beyond])
        if not first:
            self._lose(absent[0], present[0])
            ends = slice(1, e.size)
        cell = np.arange(first, self.edges.size) if first else np.arange(1, e.size)
        self._add(cell, absent[ends], present[ends], ratio[ends], remove=remove)

    def add_atoms(self, atoms: Atoms, *, remove: bool) -> None:
        """Adds the outputs that have one ratio each."""
        if not len(atoms):
            return
        low, high = atoms.loss_lower, atoms.loss_upper
        if not remove:
            low, high = -high, -low
        middle = (low + high) / 2.0
        ratio = exp_enclosure(middle, (high - low) / 2.0 + 2 * UNIT * np.abs(middle))
        # P = e^L Q says a Q-mass that has lost its relative precision
        given = atoms.p
        other = given / ratio if remove else given * ratio
        absent, present = (other, given) if remove else (given, other)
        cell = np.searchsorted(self.edges, ratio.upper, "left")
        outside = (cell == 0) | (cell == self.edges.size)
        self._lose(absent[outside], present[outside])
        inside = ~outside
        self._add(cell[inside], absent[inside], present[inside], ratio[inside], remove=remove)

    def add_zero(self, absent: Enclosure) -> None:
        """Adds the outputs that have no mass where the record is present."""
        if not absent.upper[0] > 0:
            return
        if self.edges[0] != 0.0:
            self._lose(absent, zero())
            return
        self._high[0] += absent.upper[0]
        self._low[0] += absent.upper[0]
        nothing = np.zeros(1)
        self._cells.append((nothing, absent.lower, nothing, nothing))

    def spread(self) -> FloatArray:
        """The masses at the edges of a law that is larger in convex order."""
        return np.maximum(self._high, self._low)

    def lost(self) -> tuple[float, float]:
        """The masses outside the edges where the record is absent, and present."""
        absent, present = zip(*self._lost, strict=True)
        return add_up(*absent), add_up(*present)

    def merged(self, steps: int) -> tuple[FloatArray, float]:
        """The masses of the cells, absent and present, and how far they may be off.

        An output may be dropped with some probability: that is post-processing, and gives it
        masses whose quotient alone is uncertain.
        """
        index, absent, present, off = (
            np.concatenate([cells[i] for cells in self._cells]) for i in range(4)
        )
        worth = absent + present
        # which quotients are too uncertain to be kept: each choice is a lower law
        best = min(
            (10.0**-k for k in range(2, 16)),
            key=lambda most: (
                float(np.sum(worth[off > most])) + float(np.max(off[off <= most], initial=0.0))
            ),
        )
        kept = off <= best
        index = index[kept].astype(np.intp)
        rows = np.array([
            np.bincount(index, part[kept], self.edges.size) for part in (absent, present)
        ])  # fmt: skip
        crowd = int(np.max(np.bincount(index), initial=0))
        error = float(np.max(off[kept], initial=0.0)) + (crowd + 16) * UNIT
        return rows, outwards(error)  # guard: uncertain-quotient

    def _lose(self, absent: Enclosure, present: Enclosure) -> None:
        self._lost.append((sum_up(absent.upper), sum_up(present.upper)))

    def _add(
        self,
        cell: NDArray[np.intp],
        absent: Enclosure,
        present: Enclosure,
        ratio: Enclosure,
        *,
        remove: bool,
    ) -> None:
        """Adds masses with a ratio inside each given cell."""
        n = self.edges.size
        left, width = self.edges[cell - 1], self.edges[cell] - self.edges[cell - 1]
        for array, at in ((self._high, ratio.upper), (self._low, ratio.lower)):
            share = np.clip((at - left) / width, 0.0, 1.0)  # guard: mean-is-kept
            array += np.bincount(cell, absent.upper * share, n)
            array += np.bincount(cell - 1, absent.upper * (1.0 - share), n)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            middle = (ratio.lower + ratio.upper) / 2.0
            off = (ratio.upper - ratio.lower) / (2.0 * middle) + 8 * UNIT
            known = np.isfinite(middle) & (middle > 0) & np.isfinite(off)
            if remove:
                kept, other = present.lower, present.lower / middle
                rows = other, kept
            else:
                kept, other = absent.lower, absent.lower * middle
                rows = kept, other
        known &= kept > _NO_MASS
        self._cells.append((
            cell[known].astype(np.float64), rows[0][known], rows[1][known], off[known]
        ))  # fmt: skip
