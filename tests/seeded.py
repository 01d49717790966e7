"""Noise and keys that are the same in each run of a test: those of CI.

A test that is right in all but one of a hundred runs fails a submission that did not touch it, and
nobody can repeat it. `make test` draws from the operating system, and finds such a test in time.
"""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tightbudget.release.noise import noise, salt

_REAL = {name: vars(noise)[name] for name in ("_sampler", "_coin", "_cores")}
_REAL_SECRETS = vars(salt)["secrets"]
_turn = threading.Lock()  # a generator belongs to one thread at a time
_generator = np.random.default_rng(0)


def begin(test: pytest.Item) -> None:
    """Starts the noise and the keys of this process anew, from the name of the test.

    Other processes draw from the operating system, and so do tests with the mark.
    """
    global _generator
    if test.get_closest_marker("operating_system_noise"):
        return end()
    _generator = np.random.default_rng(zlib.crc32(test.nodeid.encode()))
    vars(noise).update(_sampler=_sampler, _coin=_coin, _cores=lambda: 1)
    vars(salt)["secrets"] = SimpleNamespace(token_hex=_token_hex)


def end() -> None:
    """Lets this process draw from the operating system again."""
    vars(noise).update(_REAL)
    vars(salt)["secrets"] = _REAL_SECRETS


def _token_hex(size: int) -> str:
    with _turn:
        return _generator.bytes(size).hex()


def _coin() -> Callable[[bool], bool]:
    _REAL["_coin"]()  # which is refused where OpenDP is not installed

    def toss(value: bool) -> bool:
        with _turn:
            return bool(_generator.random() < 0.5) == value

    return toss


def _sampler(kind: str, scale: float) -> Callable[[Any], Any]:
    _REAL["_sampler"](kind, scale)  # which refuses the scales that OpenDP refuses
    draw = laplace if kind == "laplace" else gaussian

    def noisy(zeros: Any) -> Any:
        with _turn:
            return draw(_generator, scale, len(zeros))

    return noisy


def laplace(generator: np.random.Generator, scale: float, size: int) -> Any:
    """Draws discrete Laplace noise: the difference of two geometric numbers has its law."""
    first, second = generator.geometric(-math.expm1(-1 / scale), (2, size))
    return first - second


def gaussian(generator: np.random.Generator, scale: float, size: int) -> Any:
    """Draws discrete Gaussian noise by rejection (Canonne, Kamath, Steinke 2020, Algorithm 3)."""
    rate = math.floor(scale) + 1
    kept = np.zeros(0, dtype=np.int64)
    while len(kept) < size:
        drawn = laplace(generator, rate, 2 * size + 8)
        away = (np.abs(drawn) - scale**2 / rate) / scale
        accepted = generator.random(len(drawn)) < np.exp(-(away**2) / 2)
        kept = np.concatenate([kept, drawn[accepted]])
    return kept[:size]
