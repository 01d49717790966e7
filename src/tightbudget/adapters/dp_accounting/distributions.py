"""Privacy loss distributions of ``dp_accounting.pld``, in and out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from numpy.typing import NDArray

from tightbudget.engine.engine import Engine, Reader
from tightbudget.mechanisms import FromCurve, LossTable
from tightbudget.mechanisms.composition import Composable, Composition, compose
from tightbudget.numerics.rounding import UNIT, FloatArray
from tightbudget.numerics.validate import positive, refuse
from tightbudget.pairs.direction import Direction

# These three trade tightness for time, and a certified answer stays one for any of them.
_LARGEST = 1e4  # nats: the largest loss of a distribution
_DOTS = 256  # losses > 0 of a distribution
_GAP = 1e-4  # wanted relative gap of delta at each of these losses
_LOST = 1e-15  # mass that counts as an infinite loss: the default by which dp-accounting cuts off
# The relative margin for who adds up the masses of `to_pld` again: a sum of _DOTS doubles is off by
# 3e-14, so that 1e-12 in epsilon and 1e-9 in delta are far above it.
_MARGIN = 1e-12


def from_pld(pld: Any) -> Composition:
    """Imports a ``dp_accounting.pld`` privacy loss distribution as one part of a composition.

    An imported distribution carries its own rounding. The answers certify that distribution,
    optimistic or pessimistic, with everything that was discretised, cut off or rounded on the way
    to it, and not the mechanism that it was made for. Prefer :func:`from_dp_event` where there is
    an event.

    Guarantee: in each direction delta(eps) is at least that of the distribution's masses in
    exact arithmetic, for every eps from its smallest loss on; see :class:`LossTable` for masses
    that do not sum to 1. Masses below 0, which its convolutions leave, count as 0.

    Args:
        pld: a ``PrivacyLossDistribution``; its relation is not known here.

    Raises:
        ParameterError: it is none, or its masses do not sum to 1 within 1e-3.
    """
    if not isinstance(pld, privacy_loss_distribution.PrivacyLossDistribution):
        raise refuse("pld", "be a dp_accounting PrivacyLossDistribution", pld)
    remove = pld._pmf_remove.to_dense_pmf()
    # guard: both-directions-come-in
    add = None if pld._symmetric else _table_of(pld._pmf_add.to_dense_pmf())
    return Composition(((LossTable(remove._discretization, _table_of(remove), add), 1),))


def _table_of(pmf: Any) -> tuple[int, FloatArray, float]:
    # guard: masses-not-negative
    return pmf._lower_loss, np.maximum(pmf._probs, 0.0), pmf._infinity_mass


def to_pld(composition: Composable, value_discretization_interval: float = 1e-4) -> Any:
    """Makes a pessimistic privacy loss distribution of dp-accounting that dominates a composition.

    Its losses are some hundreds of multiples of the interval. Between them delta(eps) is a chord
    in e^eps ("Connect the Dots"), and losses of total mass below about 1e-15 count as infinite.

    Guarantee: the distribution's delta(eps) is nowhere below that of the composition, also as
    dp-accounting adds it up in doubles: certified upper bounds are taken at epsilons smaller by a
    relative 1e-12, and raised by a relative 1e-9. A convolution by dp-accounting adds that
    library's own rounding.

    Args:
        composition: a composition, or a mechanism.
        value_discretization_interval: what losses are multiples of, > 0, nats.

    Raises:
        ParameterError: an argument is refused.
    """
    if not isinstance(composition, Composable):
        raise refuse("composition", "be a mechanism or a composition", composition)
    step = positive(value_discretization_interval=value_discretization_interval)
    whole = compose([composition])
    lost = whole.delta(math.inf).upper
    top = whole.answer(delta=min(1.0, lost + _LOST), rtol=1e-2).bounds.upper if lost < 1 else 0.0
    stride = max(1, math.ceil(min(top, _LARGEST) / (step * _DOTS)))
    indices = stride * np.arange(math.ceil(min(top, _LARGEST) / (step * stride)) + 2)
    losses = whole.engine
    epsilons = (indices * step).tolist()
    curves = {part.directions[0]: _raised(part.reader(), epsilons) for part in losses.apart()}
    pmfs = []
    for direction, right in curves.items():
        reverse = whole._in_both_orders(direction)
        if reverse == whole:  # the other direction, if it is another one at all
            left = curves.get(direction.other, right)  # guard: own-direction-losses
        elif reverse is None:  # nothing is known of it, and 1 is true of everything
            left = [1.0] * len(right)
        else:
            one = Engine.of({direction.other: reverse.pairs(direction.other)})
            left = _raised(one.reader(), epsilons)
        pmfs.append(_dots(indices, step, right, left))
    return privacy_loss_distribution.PrivacyLossDistribution(*pmfs)


def _raised(read: Reader, epsilons: list[float]) -> list[float]:
    """Bounds delta from above at each epsilon, with the margin for rounding by dp-accounting."""
    deltas: list[float] = []
    for epsilon in epsilons:
        if deltas and deltas[-1] < _LOST:  # delta falls, so that the last one is still a bound
            deltas.append(deltas[-1])
        else:
            delta = read(epsilon * (1 - _MARGIN), _GAP).upper  # guard: epsilon-margin
            deltas.append(min(1.0, delta * (1 + 1e3 * _MARGIN)))  # guard: delta-margin
    return deltas


def _dots(indices: NDArray[np.int_], step: float, right: list[float], left: list[float]) -> Any:
    """Finds the least masses on the losses ``indices * step`` whose delta is at least ``right``.

    ``left`` is the delta of the reversed pair: delta(-eps) = 1 - e^-eps + e^-eps left(eps).
    """
    epsilons = indices * step
    mirrored = 1.0 - np.exp(-epsilons) * (1.0 - np.array(left)) + 4 * UNIT
    dots = FromCurve(
        np.concatenate([-epsilons[:0:-1], epsilons]),
        np.concatenate([np.minimum(1.0, mirrored[:0:-1]), right]),
        both_ways=False,
    ).pair(Direction.REMOVE)
    atoms = dots.atoms()
    where = np.rint(atoms.loss_upper / step).astype(int)
    masses_at = {0: 0.0, **dict(zip(where.tolist(), atoms.p.upper.tolist(), strict=True))}
    return pld_pmf.create_pmf(masses_at, step, float(dots.p_only().upper[0]), True)
