"""The moment generating function of a mixture of Gaussians against one Gaussian.

The density ratio is R(x) = sum_i w_i e^(m_i x - m_i^2/2) for shifts m_i >= 0, and all that
``gaussian_transform`` proves of the sampled Gaussian (shifts 0 and m, shares 1 - q and q) holds
with m = max m_i, since for 0 <= a < pi / m and u_i = w_i e^(m_i x - m_i^2/2) > 0

    R(x + i a) = sum u_i e^(i m_i a)

lies in the cone between the directions 1 and e^(i m a). So 0 <= arg R(x + i a) <= m a; the
projection on e^(i m a / 2) says |R(x + i a)| >= R(x) cos(m a / 2); the argument rises with x, as

    Im (R' conj R)(x + i a) = sum over i < j of (m_j - m_i) sin((m_j - m_i) a) u_i u_j >= 0;

and d ln R / dx = sum m_i u_i / R is in [0, m] and rises with x. The imaginary part of
R(x + i (b + a)) times the conjugate of R(x + i (b - a)) is

    sum over i, j of u_i u_j sin((m_i + m_j) a) cos((m_i - m_j) b),

which is not negative for a <= b <= pi / (2 m). See docs/explanation/contour.md for the bounds.

A line that ends in "pays: name" pays for what docs/explanation/rounding.md says under that name.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.gaussian_integrand import (
    MOST_NESTED,
    DensityRatio,
    LeftOut,
    Nodes,
    Rotated,
    RotatedUnits,
)
from tightbudget.mechanisms.gaussian_transform import MixedTransform
from tightbudget.numerics.rounding import EXP, EXPM1, LOG, TURN, UNIT, FloatArray, outwards
from tightbudget.numerics.special import log_normal_tail, log_normal_tail_slack
from tightbudget.pairs.direction import Direction

_FAR = 600.0  # a y = m x - m^2/2 beyond which e^y may overflow
_BLOCK = 2**18  # exponentials at a time: arrays of 2 MiB
# units of 2^-53, relative, that a share may be off: 8 for a share of a mixture as it is given,
# and 3 for each sampling (1 - q, a product and a sum)
_SHARE = 8.0 + 3.0 * MOST_NESTED
# A limit of cost: beyond it the strip is so narrow that a line took longer than the buckets (group
# of 64 at sigma 1: 3 s against 2 s).
_LARGE_M = 40.0
_LEAST_SHARE = 1e-300  # below it doubles lose digits


@dataclass(frozen=True)
class MixtureTransform(MixedTransform):
    """The transform of sum_i w_i N(m_i, 1) against N(0, 1).

    ``m`` is the largest shift; ``q`` is about the share of all shifts > 0. The other parameters
    are those of :class:`~tightbudget.mechanisms.gaussian_integrand.Integrand`.

    Attributes:
        sizes: (k,) the shifts m_i >= 0, ascending, each rounded once.
        shares: (k,) the shares w_i > 0, each within 8 units of 2^-53 of the exact one before any
            sampling; the exact shares sum to 1.
    """

    sizes: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()

    @staticmethod
    def between(sizes: FloatArray, shares: FloatArray, remove: bool) -> MixtureTransform | None:
        """Makes the transform; None where the shifts or shares are beyond what it answers well."""
        m = float(sizes[-1])
        if m > _LARGE_M or not np.all(shares >= _LEAST_SHARE):
            return None
        q = float(np.sum(shares[sizes > 0]))
        return MixtureTransform(
            m, q, remove, sizes=tuple(sizes.tolist()), shares=tuple(shares.tolist())
        )

    def sampled(self, rate: float, direction: Direction) -> MixtureTransform | None:
        same = self.remove is (direction is Direction.REMOVE)
        if self.part or not same or self.nested >= MOST_NESTED:
            return None
        sizes, shares = self._sizes, rate * self._shares
        if sizes[0] > 0.0:
            sizes, shares = np.append(0.0, sizes), np.append(0.0, shares)
        shares[0] += 1.0 - rate
        found = MixtureTransform.between(sizes, shares, self.remove)
        return None if found is None else dataclasses.replace(found, nested=self.nested + 1)

    @property
    def family(self) -> str | None:
        """None: a schedule of sampled Gaussian steps knows two shifts only."""
        return None

    @functools.cached_property
    def _sizes(self) -> FloatArray:
        """The shifts as an array of shape (k,)."""
        return np.array(self.sizes)

    @functools.cached_property
    def _shares(self) -> FloatArray:
        """The shares as an array of shape (k,)."""
        return np.array(self.shares)

    @functools.cached_property
    def _log_shares(self) -> FloatArray:
        """The ln of each share, as an array of shape (k,)."""
        return np.log(self._shares)

    # ----------------------------------------------------------- the density ratio

    def _logs(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns y_i and ln(w_i e^y_i) for y_i = m_i x - m_i^2/2: arrays of shape (n, k)."""
        y = self._sizes * (x[:, None] - 0.5 * self._sizes)
        return y, y + self._log_shares

    def _units(self, y: FloatArray, log: FloatArray, peak: FloatArray) -> FloatArray:
        """Returns the error of w_i e^y_i e^-peak, in units of 2^-53 of itself, shape (n, k)."""
        # y_i: m_i is rounded, and so are x - m_i/2 and the product; ln w_i; two sums; exp
        units = 3.0 * np.abs(y) + 0.5 * self._sizes**2
        units += LOG * np.abs(self._log_shares) + _SHARE + np.abs(log) + np.abs(log - peak) + EXP
        return units

    def _blocks(self, x: FloatArray) -> list[slice]:
        """Returns slices of x that keep an array of one number per point and shift small."""
        rows = max(1, _BLOCK // len(self.sizes))
        return [slice(start, start + rows) for start in range(0, x.size, rows)]

    def ratio(self, x: FloatArray) -> DensityRatio:
        parts = [self._ratio(x[block]) for block in self._blocks(x)]
        return DensityRatio(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _ratio(self, x: FloatArray) -> DensityRatio:
        """Returns R at some points x, with the errors of its parts."""
        k = len(self.sizes)
        y, log = self._logs(x)
        scale = np.max(log, axis=1)
        part = np.exp(log - scale[:, None])
        whole = np.sum(part, axis=1)
        pull = part @ (self._sizes / self.m) / whole
        # close to R = 1 as 1 + sum w_i (e^y_i - 1), elsewhere as the logarithm of a sum
        excess = self._shares * np.expm1(np.minimum(y, _FAR))
        v = np.sum(excess, axis=1)
        near = (v > -0.5) & (np.max(y, axis=1) < _FAR)
        v = np.where(near, v, 0.0)
        log_r = np.where(near, np.log1p(v), scale + np.log(whole))
        # d ln R is the mean of the d y_i, by the shares of R
        y_units = part @ (0.5 * self._sizes**2) + np.sum(3.0 * part * np.abs(y), axis=1)
        near_error = y_units / whole * UNIT  # pays: mixture-exponent
        # each w_i, expm1, the product, and the sum of k numbers in any order
        moved = np.where(near, np.sum(np.abs(excess), axis=1) / (1.0 + v), 0.0)
        moved = moved * (_SHARE + EXPM1 + 1.0 + k) * UNIT  # pays: mixture-excess
        near_error = near_error + np.where(moved < 0.5, moved * (1.0 + moved), np.inf)
        units = np.sum(part * self._units(y, log, scale[:, None]), axis=1) / whole
        # the sum of k numbers, its logarithm, and the sum with the scale
        units = units + (k + LOG * np.abs(np.log(whole)) + np.abs(log_r))
        far_error = units * UNIT  # pays: mixture-far
        return DensityRatio(log_r, np.where(near, near_error, far_error), pull, scale)

    def about_log_r(self, x: FloatArray) -> FloatArray:
        found = np.empty_like(x)
        for block in self._blocks(x):
            log = self._logs(x[block])[1]
            scale = np.max(log, axis=1)
            found[block] = scale + np.log(np.sum(np.exp(log - scale[:, None]), axis=1))
        return found

    def rise(self, x: float) -> float:
        log = self._logs(np.array([x]))[1][0]
        part = np.exp(log - np.max(log))
        return float(part @ self._sizes / np.sum(part)) / self.m

    def rotated(self, x: FloatArray, a: FloatArray) -> Rotated:
        turn = np.multiply.outer(a, self._sizes)
        cos, sin = np.cos(turn), np.sin(turn)
        real, side = np.empty((a.size, x.size)), np.empty((a.size, x.size))
        scale = np.empty_like(x)
        for block in self._blocks(x):
            log = self._logs(x[block])[1]
            scale[block] = np.max(log, axis=1)
            part = np.exp(log - scale[block, None]).T
            real[:, block], side[:, block] = cos @ part, sin @ part
        return Rotated(real, side, scale)

    def rotated_units(self, at: Nodes, least: float) -> RotatedUnits:
        k, mixed = len(self.sizes), self._sizes > 0.0
        parts = []
        for block in self._blocks(at.x):
            y, log = self._logs(at.x[block])
            scale = np.max(log, axis=1)[:, None]
            part = np.exp(log - scale)
            part /= np.sum(part, axis=1)[:, None]
            # cos and sin, their argument (below pi, with the rounded m_i and a product), the
            # product, and the sum of k numbers
            each = part * (self._units(y, log, scale) + (TURN + 8.0 + k))
            parts.append((np.sum(each, axis=1), np.sum(each[:, mixed], axis=1),
                          np.sum(part[:, mixed], axis=1)))  # fmt: skip
        whole, side, share = (np.concatenate(part) for part in zip(*parts, strict=True))
        # |side| <= share R; the argument is at most 2 pi share / least, arctan2's error TURN of it
        argument = (side + share * (whole / least + 7.0 * TURN)) / least
        return RotatedUnits(share / least, argument, (whole + 6.0) / least)

    @functools.cached_property
    def left_out(self) -> LeftOut:
        if self.part != "bulk":
            return LeftOut(0.0, 0.0, 0.0, 0.0)
        sizes = np.append(0.0, self._sizes)
        ends = (self.edge - sizes) / math.hypot(1.0, self.width)
        tails = np.exp(log_normal_tail(ends))
        # each shift, the difference, hypot and the quotient move an end by 4 + TURN units of both,
        # and |d ln tail(u) / du| <= |u| + 1
        reach = (np.abs(ends) + sizes) * (np.abs(ends) + 1.0) * (4.0 + TURN)
        off = log_normal_tail_slack(ends) + (reach + EXP) * UNIT  # pays: mixture-tails
        more = float(self._shares @ (tails[1:] - tails[0]))
        # the share, the product, the difference, the sums here and the two that follow
        both = tails * (off + (_SHARE + len(self.sizes) + 4.0) * UNIT)  # pays: mixture-sums
        slope_error = float(self._shares @ (both[1:] + both[0]))
        first = float(tails[0]) + more if self.remove else float(tails[0])
        error = float(both[0]) + (slope_error if self.remove else 0.0)
        return LeftOut(
            first, more if self.remove else -more, float(outwards(error)),
            float(outwards(slope_error)),
        )  # fmt: skip
