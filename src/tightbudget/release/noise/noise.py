"""The only source of randomness: integer noise, drawn in batches.

All that a mechanism decides is decided on integers: comparing two numbers that were rounded
apart from each other breaks the shift that a proof rests on. Sampling is OpenDP's, which is
the extra ``release`` and is imported on first use.
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

__all__ = [
    "LARGEST_SCALE",
    "FixedNoise",
    "IntArray",
    "Noise",
    "OpenDPNoise",
    "Pool",
    "noise_or_default",
    "scale_up",
]

IntArray = NDArray[np.int64]

# OpenDP's noise stops at the ends of int64: for scales up to this one, with a probability
# below e^-(2^23), far less than that of any failure of the machine.
LARGEST_SCALE = 2**40


_WORTH_A_THREAD = 2**10  # draws: some 7 ms, where a thread takes 0.1


class Noise(Protocol):
    """Independent draws of integer noise."""

    @property
    def batch(self) -> int:
        """How many draws are made at once where many are needed."""
        ...

    def laplace(self, scale: Price, size: int) -> IntArray:
        """``size`` integers x with mass proportional to e^(-|x| / scale) each."""
        ...

    def gaussian(self, scale: Price, size: int) -> IntArray:
        """``size`` integers x with mass proportional to e^(-x^2 / (2 scale^2)) each."""
        ...

    def coin(self) -> bool:
        """True or False, fairly."""
        ...


class OpenDPNoise:
    """OpenDP's exact samplers, fed by the operating system's cryptographic source.

    Guarantee: each draw has the mass that :class:`Noise` names, at ``scale_up(scale)``. It
    keeps nothing between calls, so threads and forks may share it.

    A draw takes some 7 us of one core (discrete Laplace; the discrete Gaussian 13 us), whatever
    the scale: that is OpenDP's sampler itself, which is called once for many draws. Many draws
    are shared out among the cores, as it leaves Python's lock alone.

    Raises:
        ExtraError: OpenDP is not installed: said here, before anything is paid for.
        ParameterError: a scale is not in (0, 2^40], a size is not an integer >= 0.
    """

    batch = 2**13

    def __init__(self) -> None:
        _opendp()

    def laplace(self, scale: Price, size: int) -> IntArray:
        """Discrete Laplace noise."""
        return self._draw("laplace", scale, size)

    def gaussian(self, scale: Price, size: int) -> IntArray:
        """Discrete Gaussian noise."""
        return self._draw("gaussian", scale, size)

    def coin(self) -> bool:
        """A fair coin: a randomised response that keeps nothing of the truth."""
        return bool(_coin()(True))

    def _draw(self, kind: str, scale: Price, size: int) -> IntArray:
        sampler = _sampler(kind, scale_up(scale))

        def drawn(part: int) -> IntArray:
            # OpenDP takes the noise to be part of an answer: here the answer is 0
            return np.array(sampler(np.zeros(part, dtype=np.int64)), dtype=np.int64)

        parts = min(_cores(), count(size=size) // _WORTH_A_THREAD)
        if parts < 2:
            return drawn(size)
        with ThreadPoolExecutor(parts) as threads:
            each = [size // parts] * (parts - 1)
            return np.concatenate(list(threads.map(drawn, [*each, size - sum(each)])))


class FixedNoise:
    """NOT NOISE: gives out the integers it was given, in turn. For tests alone.

    Warns at construction: whatever is released with it is released without any privacy.
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
        """The next ``size`` integers, whatever the scale."""
        scale_up(scale)
        return np.array(list(itertools.islice(self._draws, count(size=size))), dtype=np.int64)

    gaussian = laplace

    def coin(self) -> bool:
        """Whether the next integer is not 0."""
        return bool(next(self._draws))


def noise_or_default(noise: Noise | None) -> Noise:
    """Returns the source of noise that was given, or OpenDP's samplers if none was.

    Raises:
        ExtraError: no noise is given, and OpenDP is not installed.
    """
    return OpenDPNoise() if noise is None else noise


class Pool(Uncopied):
    """Draws in stock, handed out one by one; the longer it runs, the more at once.

    Guarantee: no draw is handed out twice, also not in two processes: a fork has copied the
    stock, and gets nothing from it.
    """

    def __init__(self, draw: Callable[[int], IntArray], batch: int) -> None:
        self._draw, self._batch, self._most = draw, min(32, batch), batch
        self._stock: list[int] = []
        self._process = os.getpid()

    def take(self) -> int:
        """The next draw.

        Raises:
            SettlementError: the stock belongs to another process.
        """
        if self._process != os.getpid():
            raise SettlementError("this noise belongs to the process that began to draw it")
        if not self._stock:
            self._stock = self._draw(self._batch)[::-1].tolist()
            self._batch = min(2 * self._batch, self._most)
        return self._stock.pop()


def scale_up(scale: Price) -> float:
    """The least double that is at least the scale (more noise than asked for is safe)."""
    wanted = exact_positive(scale=scale)
    if not wanted <= LARGEST_SCALE:
        raise refuse("scale", f"be in (0, 2^40 = {LARGEST_SCALE}] grid points", scale)
    x = float(wanted)
    return x if Fraction(x) >= wanted else next_up(x)


def _cores() -> int:
    """How many threads can run at once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _opendp() -> Any:
    try:
        prelude: Any = importlib.import_module("opendp.prelude")
    except ImportError as error:
        raise ExtraError("noise needs OpenDP: pip install 'tightbudget[release]'") from error
    prelude.enable_features("contrib")
    return prelude


@functools.cache
def _coin() -> Any:
    return _opendp().m.make_randomized_response_bool(prob=0.5)


@functools.lru_cache(maxsize=256)
def _sampler(kind: str, scale: float) -> Any:
    dp = _opendp()
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "laplace":
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
