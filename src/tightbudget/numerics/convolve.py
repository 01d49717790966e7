"""Convolution and running sums of non-negative arrays, with bounds of their rounding errors.

Differs from ``scipy.signal.fftconvolve`` in three ways: (1) a result has a proved bound of its
error; (2) exact entries are >= 0, and so are computed ones; (3) :func:`correlate` transforms a long
array piece by piece, so that the error of an entry is relative to its own piece.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy import fft

from tightbudget.numerics.rounding import EXP, UNIT, FloatArray, add_up, norm_up, outwards, sum_up

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
# `convolve_by_blocks`: up to _SMALL products are made one by one, in about the time of transforms,
# and their errors are a hundredth: runs repeat them 10^6 times. A block of _BLOCK losses holds
# masses that differ by few orders of magnitude; blocks whose sums differ by up to _ALIKE are
# joined: errors of 5e-15 stay small beside all of them. The _HEAVY heaviest blocks with more than a
# _SHARE of all stand alone: the errors of common losses would hide rare ones.
_SMALL, _BLOCK = 2**23, 256
_HEAVY, _SHARE, _ALIKE = 3, 1e-6, 1e6
# A block is flattened by e^_FLAT, a million, at most: errors of blocks that were flat grow by as
# much. Of a delta of 1e-40 of 247,000 runs, errors without it left a gap of 5e-3 at any length.
_FLAT = 13.8
# More than 2^23 products that each lose up to 1e-308 below the range of normal doubles.
_LOST = 1e-300
# `discounted_sums` adds up at most _PLAIN entries at a time, whose powers of the ratio differ by at
# most e^_STEEP: 1e26 is far inside the range of doubles.
_PLAIN, _STEEP = 256, 60.0
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
    a: FloatArray, b: FloatArray, decay: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """The full linear convolution of a, b >= 0, and a bound on the error of each entry.

    Small products, and those of the heaviest entries of both arrays, are made entry by entry. Other
    pairs of blocks are transformed: an error is small beside the blocks that it comes from, and a
    block is as long as its entries are of similar size.

    Guarantee: |result[i] - exact[i]| <= error[i]; the result is >= 0.

    Args:
        a, b: the arrays.
        decay: where entries matter they fall by e^-decay, >= 0, from one to the next: blocks that
            fall so are made flat before they are transformed, and all their errors are small.
    """
    n, few = a.size + b.size - 1, min(a.size, b.size)
    lost = _LOST if np.any(a > 0.0) and np.any(b > 0.0) else 0.0  # below the range of doubles
    if few <= _DIRECT or a.size * b.size <= _SMALL:
        smaller, larger = (a, b) if a.size <= b.size else (b, a)
        direct = np.zeros(n)
        for start in range(0, few, _BLOCK):
            piece = np.convolve(larger, smaller[start : start + _BLOCK])
            direct[start : start + piece.size] += piece
        # products and sums of a piece, and sums of the pieces; 2 more for this line
        units = min(few, _BLOCK) + -(-few // _BLOCK) + 2
        error = direct * (units * UNIT)  # pays: blocks-direct
        return direct, error + lost
    one = _Blocks.of(a)
    other = one if b is a else _Blocks.of(b)
    longest, block = min(one.longest, other.longest), _BLOCK
    while block < longest and block < few:
        block *= 2
    one = one.joined(block)
    other = one if b is a else other.joined(block)
    result = np.zeros((len(one.light) + len(other.light)) * block)
    for start, piece in one.heavy:
        for begin, rest in other.heavy:
            result[start + begin : start + begin + 2 * _BLOCK - 1] += np.convolve(piece, rest)
    # products and sums of a piece, sums of the pieces, and the two with what is transformed
    error = result * ((_BLOCK + 2 * _HEAVY**2 + 4) * UNIT)  # pays: blocks-heavy
    size = 2 * block
    # products of e^(decay i) and e^(decay j) are e^(decay (i + j)), where i + j is less than size
    rise = np.exp(min(decay, _FLAT / block) * np.arange(size))
    flat = one.flattened(rise)
    flat_too = flat if b is a else other.flattened(rise)
    spectra = fft.rfft(flat.light, size)
    others = spectra if b is a else fft.rfft(flat_too.light, size)
    spectrum = np.zeros((len(spectra) + len(others) - 1, block + 1), dtype=np.complex128)
    short, long = (spectra, others) if len(spectra) <= len(others) else (others, spectra)
    for k, row in enumerate(short):
        spectrum[k : k + len(long)] += row * long
    for blocks, light in ((flat, others), (flat_too, spectra)):
        for k, row in blocks.rows.items():
            spectrum[k : k + len(light)] += fft.rfft(row, size) * light
    pieces = fft.irfft(spectrum, size) / rise
    # as in `convolve`, for each pair of blocks: |FFT error|_2 |FFT|_max, both ways, and the
    # inverse's own, which is relative to |a|_2 |b|_2
    eta = FFT_CONSTANT * UNIT * math.log2(size)  # pays: blocks-transform
    (sums, heavy_sums), (norms, heavy_norms) = flat.sums(), flat.norms()
    (sums_too, heavy_sums_too), (norms_too, heavy_norms_too) = flat_too.sums(), flat_too.norms()
    crossed = (
        np.convolve(norms, sums_too + heavy_sums_too) + np.convolve(heavy_norms, sums_too),
        np.convolve(norms_too, sums + heavy_sums) + np.convolve(heavy_norms_too, sums),
    )
    # products of complex numbers lose the root of 5 units; sums of the pairs, and the last two
    own = eta + (len(short) + 2 * _HEAVY + 5.0) * UNIT  # pays: blocks-products
    bound = (eta * (crossed[0] + crossed[1]) + own * np.minimum(*crossed))[:, None] / rise
    for start in (0, block):
        rows = slice(start, start + len(bound) * block)
        result[rows] += pieces[:, start : start + block].ravel()
        error[rows] += bound[:, start : start + block].ravel()
    result = np.maximum(result[:n], 0.0)  # an exact entry is >= 0, so clipping moves towards it
    if decay > 0.0:
        # three of ``rise``, each by a call and by its argument, and three products
        error[:n] += result * ((3 * (EXP + 4.0 * _FLAT) + 3) * UNIT)  # pays: blocks-rise
    return result, outwards(error[:n]) + lost


@dataclass(frozen=True)
class _Blocks:
    """The blocks of an array, with its heaviest entries apart.

    Attributes:
        light: (rows, block) all other entries.
        heavy: at most _HEAVY times _BLOCK neighbours, each with the number of the first one.
        longest: the length of a block in which entries are of similar size.
    """

    light: FloatArray
    heavy: list[tuple[int, FloatArray]]
    longest: int

    @staticmethod
    def of(x: FloatArray) -> _Blocks:
        """Cuts x into blocks of _BLOCK entries."""
        light: FloatArray = np.zeros((-(-x.size // _BLOCK), _BLOCK))
        light.ravel()[: x.size] = x
        sums = np.sum(light, axis=1)
        largest = np.argsort(sums)[-_HEAVY:]
        heavy = []
        for k in largest[sums[largest] > _SHARE * np.sum(sums)]:
            heavy.append((int(k) * _BLOCK, light[k].copy()))
            light[k] = 0.0
            sums[k] = 0.0
        # an even number of rows, again and again
        longest, most, least = _BLOCK, sums, np.where(sums > 0.0, sums, np.inf)
        while most.size > 1:
            most, least = (
                np.append(y, z) if y.size % 2 else y for y, z in ((most, 0.0), (least, np.inf))
            )
            most, least = np.maximum(most[::2], most[1::2]), np.minimum(least[::2], least[1::2])
            if np.any(most > _ALIKE * least):
                break
            longest *= 2
        return _Blocks(light, heavy, longest)

    def joined(self, block: int) -> _Blocks:
        """Returns the same entries in longer blocks."""
        light: FloatArray = np.zeros((-(-self.light.size // block), block))
        light.ravel()[: self.light.size] = self.light.ravel()
        return _Blocks(light, self.heavy, self.longest)

    def flattened(self, rise: FloatArray) -> _Flat:
        """Returns light and heavy entries as blocks, each times ``rise``."""
        rows: dict[int, FloatArray] = {}
        block = self.light.shape[1]
        for start, piece in self.heavy:
            k, at = divmod(start, block)
            row = rows.setdefault(k, np.zeros(block))
            row[at : at + _BLOCK] = piece
        rise = rise[:block]
        return _Flat(self.light * rise, {k: row * rise for k, row in rows.items()})


@dataclass(frozen=True)
class _Flat:
    """Blocks of an array, ready to be transformed.

    Attributes:
        light: (rows, block) all entries but the heaviest.
        rows: (block,) the heaviest entries, by the number of the block.
    """

    light: FloatArray
    rows: dict[int, FloatArray]

    def sums(self) -> tuple[FloatArray, FloatArray]:
        """Returns the sum of each block, of light and of heavy entries."""
        heavy = np.zeros(len(self.light))
        for k, row in self.rows.items():
            heavy[k] = np.sum(row)
        return np.sum(self.light, axis=1), heavy

    def norms(self) -> tuple[FloatArray, FloatArray]:
        """Returns the 2-norm of each block, of light and of heavy entries."""
        heavy = np.zeros(len(self.light))
        for k, row in self.rows.items():
            heavy[k] = _norms(row[None, :])[0]
        return _norms(self.light), heavy


def _norms(blocks: FloatArray) -> FloatArray:
    """The 2-norm of each block, whose squares may be below the range of doubles."""
    peaks = np.max(blocks, axis=1)
    scaled = blocks / np.where(peaks > 0.0, peaks, 1.0)[:, None]
    return np.asarray(peaks * np.sqrt(np.sum(scaled * scaled, axis=1)))


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
    slope = abs(math.log(ratio)) if ratio > 0.0 else math.inf
    if slope > _STEEP / 2.0 or x.size <= 1:
        sums = itertools.accumulate(x.tolist(), lambda before, term: term + ratio * before)
        return np.fromiter(sums, np.float64, x.size)
    # In a piece each term is over its power of the ratio, so that they are plainly added. Of a term
    # d places before an entry the quotient of both powers has d roundings, there are d sums, a
    # quotient and a product. What is carried to the d-th entry of a piece has d more for its power,
    # a product and a sum.
    piece = int(min(_STEEP / slope, _PLAIN, x.size))
    powers = np.cumprod(np.append(1.0, np.full(piece, ratio)))
    pieces = np.zeros((-(-x.size // piece), piece))
    pieces.ravel()[: x.size] = x
    pieces /= powers[:-1]
    np.cumsum(pieces, axis=1, out=pieces)
    pieces *= powers[:-1]
    if len(pieces) > 1:
        before = discounted_sums(pieces[:-1, -1], float(powers[-1]))
        pieces[1:] += before[:, None] * powers[1:]  # guard: carried-between-pieces
    return pieces.ravel()[: x.size]
