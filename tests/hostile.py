"""A machine that is as bad as the margins allow.

The package grants each elementary function some units of error (``EXP``, ``LOG``, ...) and sums
any order. A real machine uses little of that, so that a margin may be missing and nothing shows.
Here one function at a time is off by all that it is granted, and the grant is a million
times as large, so that it is paid by its own lines or not at all.

Scalars move by one double after each step, which grants no more than libm promises. There the
machine answers with the double that is furthest from the exact value within one unit in the last
place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
from flint import arb, ctx

from tightbudget.engine.buckets import enumerate, measures, profile
from tightbudget.engine.readings import renyi
from tightbudget.engine.saddle_point import contour, saddle_points, smoothed
from tightbudget.mechanisms import (
    gaussian_integrand,
    gaussian_path,
    gaussian_schedule,
    gaussian_schedule_bounds,
    gaussian_schedule_nodes,
    gaussian_schedule_path,
    gaussian_transform,
    gaussian_transform_bounds,
    laplace,
    logistic,
    mixture_transform,
    weighted_transform,
)
from tightbudget.numerics import convolve, enclosure, rounding, special
from tightbudget.numerics.rounding import UNIT

__all__ = ["MILLION", "displaced", "granted", "in_the_worst_order", "within_a_unit"]

MILLION = 1e6

MODULES = (
    rounding,
    special,
    enclosure,
    convolve,
    gaussian_integrand,
    gaussian_path,
    gaussian_schedule,
    gaussian_schedule_bounds,
    gaussian_schedule_nodes,
    gaussian_schedule_path,
    gaussian_transform,
    gaussian_transform_bounds,
    laplace,
    logistic,
    mixture_transform,
    weighted_transform,
    smoothed,
    saddle_points,
    contour,
    measures,
    profile,
    enumerate,
    renyi,
)


@contextmanager
def granted(grant: str, units: float) -> Iterator[None]:
    """The constant is another one in every module that uses it."""
    with ExitStack() as stack:
        for module in MODULES:
            if hasattr(module, grant):
                stack.enter_context(mock.patch.object(module, grant, units))
        yield


@contextmanager
def displaced(
    owner: Any, function: str, grant: str, sign: float, unit: float = 1.0
) -> Iterator[None]:
    """The function's results are off by a million times what is granted, relative to themselves.

    ``unit`` is what the grant is counted in, in units of 2^-53.
    """
    real: Callable[..., Any] = getattr(owner, function)
    units = MILLION * getattr(rounding, grant, getattr(special, grant, 8.0))
    factor = 1.0 + 0.999 * sign * units * unit * UNIT

    def off(*args: Any, **keywords: Any) -> Any:
        return real(*args, **keywords) * factor

    with granted(grant, units), mock.patch.object(owner, function, off):
        yield


@contextmanager
def in_the_worst_order() -> Iterator[None]:
    """NumPy's sums and products of matrices lose what the worst order may lose: n units."""
    total, product = np.sum, np.matmul

    def off_sum(x: Any, *args: Any, **keywords: Any) -> Any:
        return total(x, *args, **keywords) * (1.0 + 0.999 * np.size(x) * UNIT)

    def off_product(x: Any, y: Any) -> Any:
        return product(x, y) * (1.0 + 0.999 * np.shape(x)[-1] * UNIT)

    with mock.patch.object(np, "sum", off_sum), mock.patch.object(np, "matmul", off_product):
        yield


@contextmanager
def within_a_unit(function: str, sign: Callable[[float], float]) -> Iterator[None]:
    """A function of libm is off by as much as one unit in the last place lets it be.

    Args:
        function: of ``math``, such as "log".
        sign: the direction in which it is off, 1 or -1, for each argument.
    """

    def off(x: float) -> float:
        with ctx.workprec(256):
            exact = getattr(arb(x), function)()
            found = float(exact)
            unit, end = arb(math.ulp(found)), sign(x) * math.inf
            while abs(arb(math.nextafter(found, end)) - exact) <= unit:
                found = math.nextafter(found, end)
        return found

    with mock.patch.object(math, function, off):
        yield
