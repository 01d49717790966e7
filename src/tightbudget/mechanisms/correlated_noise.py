"""Runs whose noise is correlated over the steps: DP-FTRL, banded matrices (BandMF), BLT.

A run of n steps releases C x + z, or what can be computed from it. Row i of x is step i's sum of
clipped gradients, C is a public lower triangular matrix, and z is N(0, sigma^2) in every entry.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from tightbudget.mechanisms.composition import Composition
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.rounding import UNIT, FloatArray, norm_up, root_up
from tightbudget.numerics.validate import positive_count, real_array, refuse, renamed

# Of a dense matrix, or of the columns of a Toeplitz matrix that `allocated` writes out: 0.8 GB.
_ENTRIES = 10**8


class CorrelatedNoise:
    """The strategy matrix C of a run that releases C x + z, and what a record can move it by.

    Gradients are measured in units of the clipping norm, so that a record adds a vector of norm at
    most 1 to each of its rows of x. Its rows are those of the steps that it takes part in.

    Args:
        matrix: C, an (n, n) lower triangular array; n is the number of steps.

    Attributes:
        steps: n.
        bands: the least b for which C[i, j] = 0 wherever i - j >= b.

    Raises:
        ParameterError: an argument is refused.
    """

    def __init__(self, matrix: Any) -> None:
        entries = _finite(matrix, "matrix", 2)
        if entries.shape[0] != entries.shape[1] or np.any(np.triu(entries, 1)):
            must = "be a square lower triangular array"
            raise refuse("matrix", must, f"an array of shape {entries.shape}")
        self._set(entries.shape[0], entries)

    def _set(self, steps: int, entries: FloatArray) -> None:
        """Stores C: a whole matrix, or the first column of a Toeplitz matrix."""
        peak = float(np.max(np.abs(entries)))
        # then no square that matters overflows or vanishes
        if not 1e-100 <= peak <= 1e100:
            raise refuse("the largest entry", "be in [1e-100, 1e100]", peak)
        if entries.ndim == 1:
            self.bands = int(np.flatnonzero(entries)[-1]) + 1
            entries = entries[: self.bands]
        else:
            rows, columns = np.nonzero(entries)
            self.bands = int(np.max(rows - columns)) + 1
        entries.setflags(write=False)
        self._entries = entries
        self.steps = steps

    @classmethod
    def toeplitz(cls, coefficients: Any, steps: int) -> CorrelatedNoise:
        """Makes the banded matrix with C[i, j] = c[i - j], as BandMF has it.

        Args:
            coefficients: c_0, c_1, ..., at most ``steps`` many; those that are not given are 0.
            steps: the number of steps.

        Raises:
            ParameterError: an argument is refused.
        """
        n, c = positive_count(steps=steps), _finite(coefficients, "coefficients", 1)
        if c.size > n:
            raise refuse("coefficients", f"be at most steps = {n} numbers", f"{c.size} numbers")
        made = cls.__new__(cls)
        made._set(n, c)
        return made

    @classmethod
    def buffered(cls, decays: Any, scales: Any, steps: int) -> CorrelatedNoise:
        """Makes the buffered linear Toeplitz matrix (BLT): c_0 = 1, c_t = sum_i w_i d_i^(t - 1).

        Guarantee: each coefficient that is kept is at least the exact one.
        Source: Dvijotham, McMahan, Pillutla, Steinke, Thakurta 2024 (arXiv 2404.16706).

        Args:
            decays: d_1, d_2, ..., in [0, 1] (JAX Privacy's ``buf_decay``).
            scales: w_1, w_2, ..., >= 0, as many (JAX Privacy's ``output_scale``).
            steps: the number of steps.

        Raises:
            ParameterError: an argument is refused.
        """
        n = positive_count(steps=steps)
        d, w = _finite(decays, "decays", 1), _finite(scales, "scales", 1)
        if not np.all((d >= 0) & (d <= 1)):
            raise refuse("decays", "be in [0, 1]", d.tolist())
        if w.size != d.size or np.any(w < 0):
            raise refuse("scales", f"be {d.size} numbers >= 0, one for each decay", w.tolist())
        c = np.ones(n)
        for t in range(1, n):
            # t - 1 products and a sum of w.size terms, each rounded once; a product that
            # underflows is below the smallest normal double
            c[t] = np.sum(w) * (1 + 2.0 * (t + w.size) * UNIT) + w.size * 2.0**-1021
            w = w * d
        made = cls.__new__(cls)
        made._set(n, c)
        return made

    @renamed(times="each_in")
    def sensitivity(self, *, apart: int | None = None, each_in: int | None = None) -> float:
        """Bounds from above how far one record can move C x, in the 2-norm.

        Guarantee: holds for every choice of at most ``each_in`` rows that are at least ``apart``
        from one another, and for gradients that depend on earlier outputs. For a Toeplitz matrix
        the bound is the exact value, rounded up, if no coefficient is negative and none is larger
        than the one before it, or if ``bands <= apart``.

        The run is ``Gaussian(sigma, sensitivity, relation=Neighbouring.ZERO_OUT)``, where sigma is
        the standard deviation of z divided by the clipping norm. A replaced record moves C x by
        twice as much.

        Source: Denisov, McMahan, Rush, Smith, Thakurta 2022, Theorem 2.1 (gradients that depend on
        outputs); Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta, Xu 2023, Algorithm 4 (a
        whole matrix); Kalinin, Lampert 2024, Theorem 2 (Toeplitz).

        Args:
            apart: the least distance between two of the record's rows; 1 if it is None.
            each_in: the largest number of the record's rows. If it is None: 1, or, where ``apart``
                is given, as many as ``steps`` has room for.

        Raises:
            ParameterError: an argument is refused.
        """
        gap = 1 if apart is None else positive_count(apart=apart)
        room = -(-self.steps // gap)
        if each_in is None:
            most = 1 if apart is None else room
        else:
            most = min(positive_count(each_in=each_in), room)
        if self._entries.ndim == 1:
            return _toeplitz_norm(self._entries, self.steps, gap, most)
        return _matrix_norm(self._entries, self.bands, gap, most)

    def sampled(
        self,
        sigma: float,
        rate: float,
        *,
        groups: int | None = None,
        relation: Neighbouring | None = None,
    ) -> Composition:
        """Returns a run on samples: records are dealt to groups, and groups take turns.

        Step i draws from group i mod ``groups`` alone, each of its records with probability
        ``rate``. A record's group must not depend on other records. Where groups have a fixed size,
        the relation is ``Neighbouring.ZERO_OUT``.

        Guarantee: the composition of ceil(steps / groups) sampled Gaussian steps dominates the run.
        Two of a record's columns have no row in common, so that rotating the noise makes one step
        of each.
        Source: Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta, Xu 2023, Theorem 4.

        Args:
            sigma: the standard deviation of z divided by the clipping norm, > 0.
            rate: the chance of a record of the group whose turn it is, in [0, 1].
            groups: at least ``bands``, which is the default.
            relation: what neighbours are; None is ``Neighbouring.ADD_OR_REMOVE``.

        Raises:
            ParameterError: an argument is refused.
        """
        turns = self.bands if groups is None else positive_count(groups=groups)
        if turns < self.bands:
            raise refuse("groups", f"be at least bands = {self.bands}", groups)
        step = Gaussian(sigma, self.sensitivity(), relation=relation).subsampled(rate)
        return step * -(-self.steps // turns)

    def allocated(
        self, sigma: float, bins: int, *, relation: Neighbouring | None = None
    ) -> Composition:
        """Returns a run with balls in bins: a record draws one of ``bins``, once for the whole run.

        It takes part in the steps i with i mod ``bins`` equal to its bin.

        Guarantee: the composition dominates the run, also for gradients that depend on earlier
        outputs. It is not the run itself: let m_j be the sum of the columns of |C| that belong to
        bin j, and let |m_j|^2 <= a and m_i . m_j <= r for i != j. Then the run is dominated by
        ``Gaussian(sigma, sqrt(r))`` together with ``Gaussian(sigma, sqrt(a - r)).allocated(bins)``.

        Proof: for Q the run without the record, dP/dQ is R = mean_j exp(X_j - Var X_j / 2), where
        X_j is Gaussian given the past, row for row. Delta is an expectation of a convex function of
        R under Q. Such an expectation does not fall if a covariance rises (Kahane 1986: along
        X_t = sqrt(t) Y + sqrt(1 - t) X its derivative is half of the sum over i, j of
        Cov(Y_i, Y_j) - Cov(X_i, X_j) times a second derivative that is not negative). From the last
        row to the first, a row's covariances are at most those of gradients that all point the same
        way, under |C|: all together m_i . m_j / sigma^2. These are at most the covariances of the
        two mechanisms.

        Args:
            sigma: the standard deviation of z divided by the clipping norm, > 0.
            bins: the number of bins.
            relation: what neighbours are; None leaves it to the caller.

        Raises:
            ParameterError: an argument is refused, or ``steps * bins`` is above 1e8.
        """
        count = positive_count(bins=bins)
        if count * self.steps > _ENTRIES:
            raise refuse("steps * bins", f"be at most {_ENTRIES:g}", count * self.steps)
        longest, shared = _products(self._entries, self.steps, count)
        rest = root_up(Fraction(longest) - Fraction(shared))
        alone = Gaussian(sigma, rest, relation=relation).allocated(count)
        if shared == 0.0:
            return Composition(((alone, 1),))
        both = Gaussian(sigma, root_up(Fraction(shared)), relation=relation)
        return Composition(((both, 1), (alone, 1)))

    def __repr__(self) -> str:
        return f"<CorrelatedNoise: {self.steps} steps, {self.bands} bands>"


def _finite(value: Any, name: str, dimensions: int) -> FloatArray:
    """Returns a copy of a non-empty array of finite numbers of the given number of dimensions."""
    must = f"be a non-empty {'one' if dimensions == 1 else 'two'}-dimensional array of numbers"
    numbers = real_array(value)
    if numbers is None or numbers.ndim != dimensions or numbers.size == 0:
        raise refuse(name, must, value)
    if numbers.size > _ENTRIES:
        raise refuse(name, f"have at most {_ENTRIES:g} entries", numbers.size)
    array = np.array(numbers, dtype=np.float64)
    if not np.all(np.isfinite(array)):
        bad = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise refuse(f"{name}{list(bad)}", "be finite", float(array[bad]))
    return array


def _toeplitz_norm(c: FloatArray, steps: int, apart: int, times: int) -> float:
    """Bounds from above the norm of the sum of at most ``times`` columns, ``apart`` at least.

    With G(s, t) for the product of two columns, the square of that norm is at most the sum of
    |G(s, t)| over the columns. Columns that do not overlap leave the G(t, t), which fall as t
    rises. For c_0 >= c_1 >= ... >= 0, G(s, t) falls as |s - t| rises and as max(s, t) does. In both
    cases columns 0, apart, 2 apart, ... have the largest sum. Any other c is replaced by a larger
    one that falls.
    """
    c = np.abs(c)
    if c.size <= apart:
        # entry u occurs in each of the columns 0, apart, ... that has a row left for it
        often = np.minimum(times, -(-(steps - np.arange(c.size)) // apart)).tolist()
        squares = (k * Fraction(x) ** 2 for k, x in zip(often, c.tolist(), strict=True))
        return root_up(sum(squares, Fraction(0)))
    falling = np.zeros(steps)
    falling[: c.size] = np.maximum.accumulate(c[::-1])[::-1]
    total = np.zeros(steps)
    for i in range(times):
        total[i * apart :] += falling[: steps - i * apart]
    # an entry is the sum of at most times numbers >= 0
    return norm_up(total * (1 + 2.0 * times * UNIT))


def _matrix_norm(matrix: FloatArray, bands: int, apart: int, times: int) -> float:
    """Bounds from above the norm of a sum of columns, with at most one sign for each.

    Source: Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta, Xu 2023, Algorithm 4: in each
    row of |C^T C| the largest sum over a choice of columns, and of these sums the largest one.

    Args:
        matrix: C.
        bands: its number of bands.
        apart: the least distance between two columns.
        times: the largest number of columns.
    """
    n = matrix.shape[0]
    if times == 1:
        return max(norm_up(column) for column in matrix.T)
    size = np.abs(matrix)
    # a product of two columns is off by at most n units times that of their absolute values
    # (Higham 2002, section 3.1), whose own rounding the factor 2 has room for
    products = np.abs(matrix.T @ matrix) + 2.0 * (n + 2) * UNIT * (size.T @ size)
    # columns without a common row leave the squares alone
    best = np.diagonal(products) if bands <= apart else _largest_sum(products, apart, times)
    square = float(_largest_sum(best[None, :], apart, times)[0])
    # each of the two sums has at most n terms >= 0
    return float(math.sqrt(square) * (1 + 4.0 * (n + 8) * UNIT))


def _largest_sum(rows: FloatArray, apart: int, times: int) -> FloatArray:
    """Returns for each row the largest sum of ``times`` of its entries that lie ``apart``.

    Args:
        rows: (m, n), >= 0.
        apart: the least distance between two entries.
        times: the largest number of entries.
    """
    m, n = rows.shape
    best = np.zeros((m, n + apart))  # of the entries from i on
    for _ in range(times):
        best[:, :n] = rows + best[:, apart:]
        best[:, :n] = np.maximum.accumulate(best[:, n - 1 :: -1], axis=1)[:, ::-1]
    return np.asarray(best[:, 0])


def _products(entries: FloatArray, steps: int, bins: int) -> tuple[float, float]:
    """Bounds |m_j|^2 and m_i . m_j, i != j, from above: see :meth:`CorrelatedNoise.allocated`.

    Returns:
        the largest square, and the largest product, which is at most that.
    """
    sums = np.zeros((steps, bins))
    size = np.abs(entries)
    for t in range(steps):
        if size.ndim == 1:
            rows = min(size.size, steps - t)
            sums[t : t + rows, t % bins] += size[:rows]
        else:
            sums[:, t % bins] += size[:, t]
    products = sums.T @ sums
    # sums of at most steps numbers >= 0, twice, and a product of two of them
    products = products * (1 + 4.0 * (steps + 8) * UNIT)
    longest = float(np.max(np.diagonal(products)))
    np.fill_diagonal(products, 0.0)
    shared = float(np.max(products))  # guard: bins-share-rows
    return longest, min(longest, shared)
