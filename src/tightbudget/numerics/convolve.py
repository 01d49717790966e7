"""Convolution and running sums of non-negative arrays, with bounds of their rounding errors.

Differs from ``scipy.signal.fftconvolve`` in three ways: (1) a result has a proved bound of its
error; (2) exact entries are >= 0, and so are computed ones; (3) :func:`correlate` transforms a long
array piece by piece, so that the error of an entry is relative to its own piece.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import fft

from tightbudget.numerics.rounding import UNIT, FloatArray, add_up, norm_up, outwards, sum_up

# One transform of length N has a 2-norm error of at most FFT_CONSTANT u log2(N), relative:
# each level adds (1), multiplies (sqrt 5; Brent, Percival, Zimmermann 2007) and has rounded
# twiddle factors (about 1), so 4.3 for radix 2 (Brisebarre et al. 2020). Against exact
# arithmetic, tests/numerics/test_convolve.py measures constants below 0.5: the bound is the
# theorem's worst case, not the typical error.
FFT_CONSTANT = 5.0

# These three choose between ways that are all certified: they cost time, never correctness.
_PIECE = 4096  # `correlate` cuts into transforms of at least this length
# Up to this length of the shorter array the sum of products is used: at 24 it takes a half (a
# thousand entries) to a quarter (10^5) of a transform's time, and its relative error is per entry.
_DIRECT = 24
# `convolve_by_blocks`: a block of losses holds masses that differ by few orders of magnitude, and a
# transform of 512 takes microseconds. Up to _FEW entries sums of products take little more time.
# Up to _HEAVY blocks with more than a _SHARE of all are multiplied entry by entry.
_BLOCK, _FEW = 256, 768
_HEAVY, _SHARE = 3, 1e-6
# More than 2^21 products that each lose up to 1e-308 below the range of normal doubles.
_LOST = 1e-300
_BAND = 8192  # `discounted_sums` takes pieces of so many entries: 128 KiB stay in the second level
_DOT = 2048  # 16 KiB of doubles: a dot product that stays in the first-level cache

# The unit roundoff of a transform in extended precision: 2^-64 on x86. Where the platform's long
# double is a double it is 2^-53, and extended precision gains nothing.
_EXTENDED_UNIT = float(np.finfo(np.longdouble).eps) / 2.0


def convolve(a: FloatArray, b: FloatArray, *, extended: bool = False) -> tuple[FloatArray, float]:
    """The full linear convolution of a, b >= 0, and a bound on the 2-norm of its error.

    Guarantee: |result - a * b|_2 <= error; the result is >= 0 and nothing wraps around.
    ``extended`` transforms in the platform's long double, three to five times slower.
    """
    n = a.size + b.size - 1
    if min(a.size, b.size) <= _DIRECT:
        direct = np.convolve(a, b)
        # an entry is a sum of min(a.size, b.size) products, each rounded once, and added in any
        # order: a relative error of that many units; 4 more for the norm's own rounding
        error = norm_up(direct) * (min(a.size, b.size) + 4) * UNIT  # pays: convolve-direct
        return direct, error
    size = fft.next_fast_len(n, real=True)
    kind, unit = (np.longdouble, _EXTENDED_UNIT) if extended else (np.float64, UNIT)
    fa = fft.rfft(a.astype(kind, copy=False), size)
    fb = fa if b is a else fft.rfft(b.astype(kind, copy=False), size)
    product = fft.irfft(fa * fb, size)[:n].astype(np.float64, copy=False)
    # exact entries are >= 0: clipping moves each entry towards them
    result = np.maximum(product, 0.0)
    # |FFT(a) error|_2 |FFT(b)|_max + the same for b + the inverse transform's own, where
    # |FFT(b)|_max <= sum(b), since b >= 0, and |FFT(a)|_2 = sqrt(size) |a|_2, a factor that the
    # inverse transform divides out
    eta = FFT_CONSTANT * unit * math.log2(size)  # pays: convolve-transform
    crossed = 2.0 * sum_up(a) * norm_up(a)
    if b is not a:
        crossed = sum_up(a) * norm_up(b) + sum_up(b) * norm_up(a)
    length = norm_up(product)
    spread = add_up(crossed, length * (1.0 + 2.0 * eta))
    # the last step back to doubles rounds each entry
    rounded = length * UNIT if extended else 0.0  # pays: convolve-extended
    # `outwards` pays for products of two etas (below 1e-20) and for this line's arithmetic
    return result, outwards(add_up(eta * spread, rounded))


def convolve_by_blocks(
    a: FloatArray, b: FloatArray, longest: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """The full linear convolution of a, b >= 0, and a bound on the error of each entry.

    Pairs of blocks are transformed: the error of an entry is small beside the blocks that it is
    made of. Where blocks are to be short, short arrays, and the heaviest entries of long ones, are
    multiplied entry by entry.

    Guarantee: |result[i] - exact[i]| <= error[i]; the result is >= 0.

    Args:
        a, b: the arrays.
        longest: how many entries a block may have; blocks of 256 are made for a smaller number,
            and then what is short or heavy is multiplied entry by entry.
    """
    n = a.size + b.size - 1
    lost = _LOST if np.any(a > 0.0) and np.any(b > 0.0) else 0.0  # below the range of doubles
    few, steep = min(a.size, b.size), longest < _BLOCK
    if few <= _FEW and (steep or few <= _DIRECT):
        direct = np.convolve(a, b)
        # as many products and sums as there are terms; 2 more for this line
        error = direct * ((few + 2) * UNIT)  # pays: blocks-direct
        return direct, error + lost
    block = _BLOCK
    while 2 * block <= longest and block < few:
        block *= 2
    one, heavy = _split(a, block, _HEAVY if steep else 0)
    other, heavy_too = (one, heavy) if b is a else _split(b, block, _HEAVY if steep else 0)
    result = np.zeros((len(one) + len(other)) * block)
    for blocks, rest in ((heavy, b), (heavy_too, one.ravel())):
        for start, piece in blocks:
            product = np.convolve(piece, rest)
            result[start : start + product.size] += product
    # products and sums of a block, sums of the pieces, and the two with what is transformed
    error = result * ((_BLOCK + 2 * _HEAVY + 4) * UNIT)  # pays: blocks-heavy
    size = 2 * block
    fa = fft.rfft(one, size)
    fb = fa if b is a else fft.rfft(other, size)
    short, long = (fa, fb) if len(fa) <= len(fb) else (fb, fa)
    spectrum = np.zeros((len(fa) + len(fb) - 1, block + 1), dtype=np.complex128)
    for i, row in enumerate(short):
        spectrum[i : i + len(long)] += row * long
    pieces = fft.irfft(spectrum, size)
    # as in `convolve`, for each pair of blocks: |FFT error|_2 |FFT|_max, both ways, and the
    # inverse's own, which is relative to |a|_2 |b|_2
    eta = FFT_CONSTANT * UNIT * math.log2(size)  # pays: blocks-transform
    sums = [np.sum(x, axis=1) for x in (one, other)]
    norms = [_norms(x) for x in (one, other)]
    crossed = np.convolve(norms[0], sums[1]), np.convolve(sums[0], norms[1])
    # products of complex numbers lose the root of 5 units; sums of the pairs, and the last two
    own = eta + (len(short) + 5.0) * UNIT  # pays: blocks-products
    bound = np.repeat(eta * (crossed[0] + crossed[1]) + own * np.minimum(*crossed), block)
    for start in (0, block):
        result[start : start + bound.size] += pieces[:, start : start + block].ravel()
        error[start : start + bound.size] += bound
    # an exact entry is >= 0, so clipping moves towards it
    return np.maximum(result[:n], 0.0), outwards(error[:n]) + lost


def _norms(blocks: FloatArray) -> FloatArray:
    """The 2-norm of each block, whose squares may be below the range of doubles."""
    peaks = np.max(blocks, axis=1)
    scaled = blocks / np.where(peaks > 0.0, peaks, 1.0)[:, None]
    return np.asarray(peaks * np.sqrt(np.sum(scaled * scaled, axis=1)))


def _split(x: FloatArray, block: int, most: int) -> tuple[FloatArray, list[tuple[int, FloatArray]]]:
    """The blocks of x, without the heaviest entries.

    Second, these: at most so many times _BLOCK neighbours, each with the number of the first one.
    """
    light: FloatArray = np.zeros((-(-x.size // block), block))
    light.ravel()[: x.size] = x
    if not most:
        return light, []
    rows = light.reshape(-1, _BLOCK)
    sums = np.sum(rows, axis=1)
    largest = np.argsort(sums)[-most:]
    heavy = []
    for k in largest[sums[largest] > _SHARE * np.sum(sums)]:
        heavy.append((int(k) * _BLOCK, rows[k].copy()))
        rows[k] = 0.0
    return light, heavy


def convolve_directly(a: FloatArray, b: FloatArray) -> FloatArray:
    """The full linear convolution of a, b >= 0 by a.size * b.size products.

    Guarantee: each entry is within a relative error of min(a.size, b.size) + 1 times 2^-53,
    if no product of positive entries leaves the range of normal doubles.
    """
    result = np.zeros(a.size + b.size - 1)
    for start in range(0, b.size, _DOT):
        piece = np.convolve(a, b[start : start + _DOT])
        result[start : start + piece.size] += piece
    return result


def correlate(
    a: FloatArray, b: FloatArray, *, extended: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Sums a[m] b[j + m] over m, for j = 0 .. b.size - a.size, and bounds each entry's error.

    A long b is cut into pieces, so that an entry's error is small beside the part of b that
    the entry is made of.

    Guarantee: |result[j] - exact[j]| <= error[j]; the result is >= 0. Needs a, b >= 0 and
    a.size <= b.size.
    """
    n = b.size - a.size + 1
    if min(a.size, n) <= _DIRECT:
        direct = np.correlate(b, a, mode="valid")
        return direct, direct * (a.size + 4) * UNIT  # pays: correlate-direct
    size = fft.next_fast_len(min(b.size, max(4 * a.size, _PIECE)), real=True)
    step = size - a.size + 1  # the circular transform wraps around into the last a.size - 1
    kind, unit = (np.longdouble, _EXTENDED_UNIT) if extended else (np.float64, UNIT)
    pieces = np.zeros((-(-n // step), size))
    for k, piece in enumerate(pieces):
        part = b[k * step : k * step + size]
        piece[: part.size] = part
    spectrum = np.conj(fft.rfft(a.astype(kind, copy=False), size))
    whole = fft.irfft(spectrum * fft.rfft(pieces.astype(kind, copy=False)), size)
    whole = whole.astype(np.float64, copy=False)
    eta = FFT_CONSTANT * unit * math.log2(size)  # pays: correlate-transform
    norms = [norm_up(piece) for piece in pieces]
    errors = np.array([
        sum_up(a) * norm + sum_up(piece) * norm_up(a) + norm_up(found) * (1.0 + 2.0 * eta)
        for piece, norm, found in zip(pieces, norms, whole, strict=True)
    ])  # fmt: skip
    found = np.maximum(whole[:, :step], 0.0).ravel()[:n]
    rounded = found * UNIT if extended else 0.0  # pays: correlate-extended
    return found, outwards(np.repeat(eta * errors, step)[:n] + rounded)


def discounted_sums(x: FloatArray, ratio: float) -> FloatArray:
    """Computes s[i] = x[i] + ratio s[i - 1] for all i, with s[-1] = 0.

    Guarantee: each entry is within a relative error of 2 (i + 1) times 2^-53 for x >= 0 and
    ratio >= 0, if nothing leaves the range of normal doubles.
    """
    if ratio == 1.0:
        return np.cumsum(x)
    # A triangular system with two diagonals, solved forwards: one product and one sum an entry.
    # scipy.signal.lfilter does the same, and its import takes a second, this one's 0.1 s.
    from scipy.linalg import blas

    sums = np.array(x, dtype=np.float64)
    columns = min(_BAND, max(1, sums.size))
    band = np.asfortranarray(np.array([[1.0], [-ratio]]) * np.ones(columns))
    before = 0.0
    for start in range(0, sums.size, columns):
        part = sums[start : start + columns]
        part[0] += ratio * before  # guard: carried-between-pieces
        part[:] = blas.dtbsv(1, band[:, : part.size], part, lower=1, diag=1)
        before = float(part[-1])
    return sums
