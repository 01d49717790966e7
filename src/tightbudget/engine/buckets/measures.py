"""Discretised privacy-loss distributions that lie on a known side of the truth.

A measure is an array on the grid ``offset + i step`` (nats), exponentially tilted: its
entries are masses times e^(theta (x - anchor)) / 2^exponent. The tilt puts the mass
where delta is made, so that an FFT's absolute error is a small relative one. Offsets
and anchors are exact rationals; scaling is by powers of two only.

UPPER: spread. The exact pair is a post-processing of (u, u e^-x) and the mass at
infinity. LOWER: merge. The pair of arrays (a, b) is a post-processing of the exact pair.
Rounding and cutting are carried as one number per array, a bound on the 2-norm of all
errors so far; it enters every bound in :mod:`tightbudget.engine.buckets.profile`.

Source: Meiser, Mohammadi 2018 (privacy buckets); Doroshenko et al. 2022 (spreading).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.errors import GridError, PrecisionError
from tightbudget.numerics.convolve import convolve
from tightbudget.numerics.enclosure import exp_enclosure
from tightbudget.numerics.rounding import (
    EXP,
    UNIT,
    FloatArray,
    add_up,
    exp_up,
    expm1_up,
    mul_down,
    mul_up,
    next_down,
    next_up,
    norm_up,
    scale_down,
    scale_up,
    sub_up,
    sum_up,
)
from tightbudget.pairs.pair import Pair


@dataclass(frozen=True)
class Tilt:
    """Masses are multiplied by e^(theta (x - anchor)); theta >= 0, anchor in nats."""

    theta: float
    anchor: Fraction

    def __add__(self, other: Tilt) -> Tilt:
        if self.theta != other.theta:
            raise GridError(f"tilts differ: {self.theta!r} and {other.theta!r}")
        return Tilt(self.theta, self.anchor + other.anchor)

    def factors(self, grid: Grid, n: int) -> tuple[FloatArray, FloatArray]:
        """Returns lower and upper bounds of e^(theta (x_i - anchor)) for the first n points."""
        d, slack = grid.losses(n, origin=self.anchor)
        exponent = self.theta * d
        off = self.theta * slack + 2 * UNIT * np.abs(exponent)  # pays: tilt
        e = exp_enclosure(exponent, off)
        return e.lower, e.upper


@dataclass(frozen=True)
class UpperMeasure:
    """A tilted measure U such that (U, U e^-x) dominates the finite losses.

    Guarantee: U = 2^exponent (values + e) with |e|_2 <= error for some e, and
    |U|_1 <= 2^exponent * mass.
    """

    grid: Grid
    tilt: Tilt
    values: FloatArray  # (n,), >= 0, sums to about 1
    exponent: int
    mass: float
    error: float
    extended: bool = False  # whether it is convolved in extended precision

    def __len__(self) -> int:
        return int(self.values.size)

    # Proof: proofs/order.v, theorems products, adaptive, repeated, products_of_laws
    def __mul__(self, other: UpperMeasure) -> UpperMeasure:
        """Convolves two measures: that of the composition, whose losses add up."""
        values, rounding = convolve(self.values, other.values, extended=self.extended)
        # (v + e)(v' + e') = v v' + e (v' + e') + v e', and |v' + e'|_1 <= mass'
        error = add_up(
            rounding,
            mul_up(self.error, other.mass),
            mul_up(sum_up(self.values), other.error),
        )  # guard: rounding-upper-convolution
        return UpperMeasure(
            self.grid + other.grid,
            self.tilt + other.tilt,
            values,
            self.exponent + other.exponent,
            mul_up(self.mass, other.mass),
            error,
            self.extended,
        ).normalised()

    def normalised(self) -> UpperMeasure:
        """Scales this measure by a power of two, to values that sum to a number in [1/2, 1)."""
        shift = math.frexp(float(np.sum(self.values)))[1]
        return dataclasses.replace(
            self,
            values=np.ldexp(self.values, -shift),
            exponent=self.exponent + shift,
            mass=math.ldexp(self.mass, -shift),
            error=math.ldexp(self.error, -shift),
        )

    def trimmed(self, tolerance: float) -> UpperMeasure:
        """Drops entries at both ends of the array; what is cut joins the error.

        The 2-norm of the entries cut is at most about ``tolerance``.
        """
        first, last = _window(self.values, max(tolerance, self.error / 8))
        if first == 0 and last == len(self):
            return self
        cut = add_up(norm_up(self.values[:first]), norm_up(self.values[last:]))
        return dataclasses.replace(
            self,
            grid=self.grid.shifted(first),
            values=self.values[first:last],
            error=add_up(self.error, cut),
        )  # guard: cut-upper-measure

    def padded(self, zeros: int) -> UpperMeasure:
        """Returns this measure with ``zeros`` points of no mass in front."""
        values = np.concatenate([np.zeros(zeros), self.values])
        return dataclasses.replace(self, grid=self.grid.shifted(-zeros), values=values)

    # Proof: proofs/order.v, theorem bucket_spread
    def coarsened(self) -> UpperMeasure:
        """Doubles the grid's step: an odd point's mass goes to its two neighbours.

        The shares 1/(1 + e^h) and 1/(1 + e^-h) keep both P- and Q-mass (formula 6).
        """
        h, theta = self.grid.step, self.tilt.theta
        values = self.values if len(self) % 2 else np.append(self.values, 0.0)
        even, odd = values[0::2], values[1::2]
        # guard: coarser-upper-measure-spread
        left = next_down(1.0 / add_up(1.0, exp_up(h)))  # mass goes right, never left
        to_left = left * math.exp(-theta * h)
        to_right = (1.0 - left) * math.exp(theta * h)  # guard: coarser-upper-measure-keeps-tilt
        new = even.copy()
        new[:-1] += to_left * odd
        new[1:] += to_right * odd
        # 2-norm of the map: sqrt(largest column sum * largest row sum)
        rise = exp_up(mul_up(theta, h))
        fall = exp_up(-mul_down(theta, h))
        column = max(1.0, add_up(mul_up(left, fall), mul_up(sub_up(1.0, left), rise)))
        row = add_up(1.0, column)
        # theta h by a unit of itself, exp, 1 - left, two products and two sums
        made = norm_up(new) * (EXP + 8.0 + 2.0 * theta * h) * UNIT  # pays: coarser-upper
        error = add_up(mul_up(self.error, next_up(math.sqrt(mul_up(column, row)))), made)
        return dataclasses.replace(
            self,
            grid=self.grid.doubled(),
            values=new,
            mass=mul_up(self.mass, column),
            error=error,
        ).normalised()


@dataclass(frozen=True)
class LowerMeasure:
    """A pair of tilted arrays (a, b) that is a post-processing of the exact pair.

    ``q`` holds b e^x for the label x; labels only align entries, they are not losses.

    Guarantee: a = 2^p_exponent (p + e) with |e|_2 <= p_error, and b e^x = 2^q_exponent
    (q + e') with |e'|_2 <= q_error.
    """

    grid: Grid
    tilt: Tilt
    p: FloatArray  # (n,)
    q: FloatArray  # (n,)
    p_exponent: int
    q_exponent: int
    p_error: float
    q_error: float
    extended: bool = False  # whether it is convolved in extended precision

    def __len__(self) -> int:
        return int(self.p.size)

    # Proof: proofs/order.v, theorems merging, products, adaptive, repeated
    def __mul__(self, other: LowerMeasure) -> LowerMeasure:
        """Convolves two pairs; outputs with equal sums of labels are merged."""
        p, p_rounding = convolve(self.p, other.p, extended=self.extended)
        q, q_rounding = convolve(self.q, other.q, extended=self.extended)

        def carried(x: FloatArray, e: float, y: FloatArray, f: float, rounding: float) -> float:
            # x f + e y + e f, where |e f|_2 <= |e|_1 |f|_2 <= sqrt(n) |e|_2 |f|_2
            cross = mul_up(mul_up(e, f), next_up(math.sqrt(x.size)))
            # guard: rounding-lower-convolution
            return add_up(rounding, mul_up(sum_up(x), f), mul_up(sum_up(y), e), cross)

        return LowerMeasure(
            self.grid + other.grid,
            self.tilt + other.tilt,
            p,
            q,
            self.p_exponent + other.p_exponent,
            self.q_exponent + other.q_exponent,
            carried(self.p, self.p_error, other.p, other.p_error, p_rounding),
            carried(self.q, self.q_error, other.q, other.q_error, q_rounding),
            self.extended,
        ).normalised()

    def normalised(self) -> LowerMeasure:
        """Scales both arrays by powers of two, to sums in [1/2, 1)."""
        p_shift = math.frexp(float(np.sum(self.p)))[1]
        q_shift = math.frexp(float(np.sum(self.q)))[1]
        return dataclasses.replace(
            self,
            p=np.ldexp(self.p, -p_shift),
            q=np.ldexp(self.q, -q_shift),
            p_exponent=self.p_exponent + p_shift,
            q_exponent=self.q_exponent + q_shift,
            p_error=math.ldexp(self.p_error, -p_shift),
            q_error=math.ldexp(self.q_error, -q_shift),
        )

    def trimmed(self, tolerance: float) -> LowerMeasure:
        """Drops outputs at both ends of the array, which costs no error.

        What to keep is read off the masses, never off the labels.
        """
        return self.part(*_window(self.p, max(tolerance, self.p_error / 8)))

    def part(self, first: int, last: int) -> LowerMeasure:
        """Returns this measure with the outputs first .. last - 1 alone."""
        return dataclasses.replace(
            self, grid=self.grid.shifted(first), p=self.p[first:last], q=self.q[first:last]
        )

    def padded(self, zeros: int) -> LowerMeasure:
        """Returns this measure with ``zeros`` outputs of no mass in front."""
        p, q = (np.concatenate([np.zeros(zeros), x]) for x in (self.p, self.q))
        return dataclasses.replace(self, grid=self.grid.shifted(-zeros), p=p, q=q)

    # Proof: proofs/order.v, theorem merging
    def coarsened(self) -> LowerMeasure:
        """Doubles the grid's step: each odd entry is merged into the even one after it."""
        h, theta = self.grid.step, self.tilt.theta
        new, errors = [], []
        # the tilt moves with the label, by h; q has the factor e^x besides
        for values, error, rate in (
            (self.p, self.p_error, theta),
            (self.q, self.q_error, theta + 1.0),
        ):  # guard: coarser-lower-measure-keeps-tilt
            padded = np.concatenate([[0.0], values, np.zeros(1 - values.size % 2)])
            factor = math.exp(rate * h)
            merged = padded[1::2] + factor * padded[0::2]
            most = exp_up(mul_up(rate, h))  # rate >= 0
            norm = next_up(math.sqrt(mul_up(add_up(1.0, most), most)))
            new.append(merged)
            # the rate, rate h by a unit of itself, exp, a product and a sum
            made = norm_up(merged) * (EXP + 4.0 + 3.0 * rate * h) * UNIT  # pays: coarser-lower
            errors.append(add_up(mul_up(error, norm), made))
        return dataclasses.replace(
            self,
            grid=self.grid.doubled(),
            p=new[0],
            q=new[1],
            p_error=errors[0],
            q_error=errors[1],
        ).normalised()


def _window(values: FloatArray, tolerance: float) -> tuple[int, int]:
    """The slice outside which no entry exceeds tolerance / sqrt(n): 2-norm <= tolerance.

    Callers ask for no less than an eighth of the error carried so far: several times the FFT's
    noise (whose bound is some 60 times what is seen), or noise would keep every array long.
    """
    peak = int(np.argmax(values))  # at least this entry stays
    large = np.flatnonzero(values > tolerance / math.sqrt(values.size))
    if not large.size:
        return peak, peak + 1
    return min(int(large[0]), peak), max(int(large[-1]), peak) + 1


# Proof: proofs/order.v, theorems bucket_spread, at_infinity
def discretise(
    pair: Pair, grid: Grid, n: int, tilt: Tilt
) -> tuple[UpperMeasure, LowerMeasure, float]:
    """One step of a mechanism on a grid: its upper and lower measure.

    Args:
        pair: the dominating pair.
        grid, n: edges x_i = offset + i step for i = 0 .. n - 1.
        tilt: theta and anchor.

    Returns:
        upper, lower, and the P-mass that the upper one counts as lost at +inf.

    Guarantee: as the types say. Bins are (x_{i-1}, x_i]; the upper measure lifts what lies
    below x_0 to x_0 and counts what lies above the last edge as infinite; the lower one
    drops both.
    """
    h = grid.step
    x, slack = grid.losses(n)
    up = np.zeros(n + 1)  # up[i] at edge i; the last entry is beyond the grid
    a, b = np.zeros(n), np.zeros(n)  # merged; the label of bin i is its right edge
    bins = pair.bins(x, slack)
    if bins is not None:
        p, w = bins.p, bins.w
        # share of a bin's P-mass that stays at its left edge (formula 4), rounded down; an edge
        # that is off by its slack moves w by e^slack, and 1 - slack <= e^-slack
        w_low = scale_down(w.lower[1:n] * (1 - slack[1:]), 1)
        stay = _left_share(w_low, h)
        up[0] += p.upper[0]  # guard: lift-left-tail
        up[: n - 1] += p.upper[1:n] * stay
        up[1:n] += p.upper[1:n] * (1.0 - stay)  # guard: upper-masses-upper-bound
        up[n] += p.upper[n]  # guard: bins-beyond-grid
        usable = np.isfinite(w.upper[1:n]) & (p.lower[1:n] > 0)
        a[1:] += np.where(usable, p.lower[1:n], 0.0)
        with np.errstate(invalid="ignore"):
            # e^slack is 1 + slack but for slack^2, which is below 1e-20
            # guard: q-masses-merged-bin
            heavy = scale_up(p.lower[1:n] * w.upper[1:n] * (1 + slack[1:]), 2)
        b[1:] += np.where(usable, heavy, 0.0)
    atoms = pair.atoms()
    crowd = 1
    if len(atoms):
        where, behind = grid.locate(atoms.loss_upper)  # loss <= x[where], by ``behind`` at most
        mass, within = atoms.p.upper, (where > 0) & (where < n)
        up[0] += sum_up(mass[where <= 0])  # guard: lift-atoms-left-grid
        up[n] += sum_up(mass[where >= n])
        where, behind, mass = where[within], behind[within], mass[within]
        stay = _left_share(exp_enclosure(np.clip(behind, 0.0, 700.0)).lower, h)
        crowd += int(np.max(np.bincount(where), initial=0))
        up += np.bincount(where, mass * (1.0 - stay), n + 1)
        up += np.bincount(where - 1, mass * stay, n + 1)
        # any label will do for the lower one; that of the nearest edge keeps lattices exact
        label, ahead = grid.nearest(atoms.loss_lower)
        kept = (label >= 0) & (label < n)
        # guard: lower-masses-lower-bound
        label, mass, ahead = label[kept], atoms.p.lower[kept], ahead[kept]
        # b e^x = a e^(x - loss); where that overflows the output is worth nothing here
        kept = ahead < 700.0
        label, mass, ahead = label[kept], mass[kept], ahead[kept]
        a += np.bincount(label, mass, n)
        b += np.bincount(label, scale_up(mass * exp_enclosure(ahead).upper, 1), n)
        crowd += int(np.max(np.bincount(label), initial=0))
    low, high = tilt.factors(grid, n)
    ulps = 8.0 + 2 * crowd
    with np.errstate(over="ignore", invalid="ignore"):
        tilted = np.where(up[:n] > 0, up[:n] * high, 0.0)
        tilted_a = np.where(a > 0, a * low, 0.0)
        tilted_b = np.where(b > 0, b * high, 0.0)
    if not all(math.isfinite(float(np.sum(t))) for t in (tilted, tilted_a, tilted_b)):
        raise PrecisionError(f"a tilt of {tilt.theta:.3g} does not fit losses up to {x[-1]:.3g}")
    # entries that are no normal doubles lose up to 1e-308 each: far fewer than 1e18 of them are
    # 1e-290 at most. 1e-280 is above that, too
    upper = UpperMeasure(grid, tilt, scale_up(tilted, ulps), 0, 0.0, 1e-290)
    upper = dataclasses.replace(upper, mass=sum_up(upper.values) + 1e-280).normalised()
    lower = LowerMeasure(
        grid, tilt, scale_down(tilted_a, ulps), scale_up(tilted_b, ulps), 0, 0, 1e-290, 1e-290
    ).normalised()
    return upper, lower, float(scale_up(up[n:], ulps)[0])  # guard: mass-beyond-grid


# Proof: proofs/order.v, theorem bucket_spread
def _left_share(w_low: FloatArray, h: float) -> FloatArray:
    # s / a = (w - 1) / (e^h - 1) for w = Q e^x / P in [1, e^h]
    share = (w_low - 1.0) / expm1_up(h)
    # the difference, the quotient and this product
    # guard: bin-spread-merged-left-edge
    return np.clip(share * (1 - 4 * UNIT), 0.0, 1.0)  # pays: left-share
