"""Draws integer noise in batches: the only source of randomness of the library.

A mechanism decides everything on integers. A comparison of two numbers that were rounded
separately would break the shift that a proof rests on. OpenDP samples; it is the extra
``release``, and is imported on first use.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tightbudget.errors import ExtraError, SettlementError
from tightbudget.numerics.rounding import next_up
from tightbudget.numerics.validate import count, refuse
from tightbudget.output_dp.amount import Price, exact_positive
from tightbudget.output_dp.transactions import Uncopied

IntArray = NDArray[np.int64]

# OpenDP's noise stops at the ends of int64. For scales up to this one that has a probability
# below e^-(2^23), far less than that of any failure of the machine.
LARGEST_SCALE = 2**40

_WORTH_A_THREAD = 2**10  # draws; they take some 7 ms, and to start a thread takes 0.1 ms


class Noise(Protocol):
    """A source of independent integer noise."""

    @property
    def batch(self) -> int:
        """The number of draws that are made at once where many are needed."""
        ...

    def laplace(self, scale: Price, size: int) -> IntArray:
        """Draws ``size`` integers x, each with mass proportional to e^(-|x| / scale)."""
        ...

    def gaussian(self, scale: Price, size: int) -> IntArray:
        """Draws ``size`` integers x, each with mass proportional to e^(-x^2 / (2 scale^2))."""
        ...

    def coin(self) -> bool:
        """Returns True or False, with probability 1/2 each."""
        ...


class OpenDPNoise:
    """OpenDP's exact samplers, fed by the operating system's cryptographic source.

    Guarantee: each draw has the mass that :class:`Noise` names, at ``scale_up(scale)``. It
    keeps no state between calls, so threads and forks may share it.

    A draw takes some 7 us of one core (discrete Laplace; the discrete Gaussian 13 us), whatever
    the scale: this is the time of OpenDP's sampler, which is called once for many draws. Many
    draws are shared out among the cores, since the sampler releases Python's lock.

    Raises:
        ExtraError: OpenDP is not installed; raised when the source is made, before a payment.
        ParameterError: a scale is not in (0, 2^40], a size is not an integer >= 0.
    """

    batch = 2**13

    def __init__(self) -> None:
        _opendp("measurements")

    def laplace(self, scale: Price, size: int) -> IntArray:
        """Draws ``size`` integers of discrete Laplace noise."""
        return self._draw("laplace", scale, size)

    def gaussian(self, scale: Price, size: int) -> IntArray:
        """Draws ``size`` integers of discrete Gaussian noise."""
        return self._draw("gaussian", scale, size)

    def coin(self) -> bool:
        """Tosses a fair coin: OpenDP's randomised response with probability 1/2."""
        return bool(_coin()(True))

    def _draw(self, kind: str, scale: Price, size: int) -> IntArray:
        """Draws ``size`` integers of a kind, "laplace" or "gaussian", on several cores if many."""
        sampler = _sampler(kind, scale_up(scale))

        def drawn(part: int) -> IntArray:
            # OpenDP adds its noise to an answer: the answer here is 0
            return np.array(sampler(np.zeros(part, dtype=np.int64)), dtype=np.int64)

        parts = min(_cores(), count(size=size) // _WORTH_A_THREAD)
        if parts < 2:
            return drawn(size)
        with ThreadPoolExecutor(parts) as threads:
            each = [size // parts] * (parts - 1)
            return np.concatenate(list(threads.map(drawn, [*each, size - sum(each)])))


class FixedNoise:
    """NOT NOISE: gives out the integers that it was given, in turn. For tests alone.

    It warns when it is made: a release with it has no privacy at all.
    """

    batch = 1

    def __init__(self, draws: Iterable[int]) -> None:
        warnings.warn(
            "FixedNoise is not random: what is released with it has no privacy at all",
            UserWarning,
            stacklevel=2,
        )
        self._draws: Iterator[int] = iter(draws)

    def laplace(self, scale: Price, size: int) -> IntArray:
        """Returns the next ``size`` integers, whatever the scale."""
        scale_up(scale)
        return np.array(list(itertools.islice(self._draws, count(size=size))), dtype=np.int64)

    gaussian = laplace

    def coin(self) -> bool:
        """Returns True if the next integer is not 0."""
        return bool(next(self._draws))


def noise_or_default(noise: Noise | None) -> Noise:
    """Returns the source of noise that was given, or OpenDP's samplers if none was.

    Raises:
        ExtraError: no noise is given, and OpenDP is not installed.
    """
    return OpenDPNoise() if noise is None else noise  # guard: empty-noise-kept


class Pool(Uncopied):
    """A stock of draws, handed out one by one; each refill draws twice as many as the last.

    Guarantee: no draw is handed out twice, not even in two processes: a forked process has a copy
    of the stock, and is refused.
    """

    def __init__(self, draw: Callable[[int], IntArray], batch: int) -> None:
        self._draw, self._batch, self._most = draw, min(32, batch), batch
        self._stock: list[int] = []
        self._process = os.getpid()

    def take(self) -> int:
        """Hands out the next draw.

        Raises:
            SettlementError: the stock belongs to another process.
        """
        if self._process != os.getpid():
            raise SettlementError("this noise belongs to the process that began to draw it")
        if not self._stock:
            self._stock = self._draw(self._batch)[::-1].tolist()
            self._batch = min(2 * self._batch, self._most)
        return self._stock.pop()  # guard: stock-drawn-once


def scale_up(scale: Price) -> float:
    """Rounds a scale up to a double, since more noise than asked for is safe.

    Raises:
        ParameterError: the scale is not in (0, 2^40].
    """
    wanted = exact_positive(scale=scale)
    if not wanted <= LARGEST_SCALE:
        raise refuse("scale", f"be in (0, 2^40 = {LARGEST_SCALE}] grid points", scale)
    x = float(wanted)
    return x if Fraction(x) >= wanted else next_up(x)


def _cores() -> int:
    """Counts the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _opendp(room: str) -> Any:
    """Imports one of OpenDP's modules, once; ``opendp.prelude`` is left alone.

    OpenDP's prelude imports Polars, SciPy and scikit-learn where they are installed, for
    transformations that are not used here. Measured with OpenDP 0.16: the prelude takes 2.4 s of
    CPU time, the three modules that are used take 0.13 s.
    """
    try:
        importlib.import_module("opendp.mod").enable_features("contrib")
        return importlib.import_module(f"opendp.{room}")
    except ImportError as error:
        raise ExtraError("noise needs OpenDP: pip install 'tightbudget[release]'") from error


@functools.cache
def _coin() -> Any:
    """Makes OpenDP's fair coin, once."""
    return _opendp("measurements").make_randomized_response_bool(prob=0.5)


@functools.lru_cache(maxsize=256)
def _sampler(kind: str, scale: float) -> Any:
    """Makes OpenDP's sampler of a kind and a scale; 256 of them are kept."""
    domains, metrics = _opendp("domains"), _opendp("metrics")
    domain, measurements = (
        domains.vector_domain(domains.atom_domain(T="i64")),
        _opendp("measurements"),
    )
    if kind == "laplace":
        return measurements.make_laplace(domain, metrics.l1_distance(T="i64"), scale=scale)
    return measurements.make_gaussian(domain, metrics.l2_distance(T="f64"), scale=scale)
