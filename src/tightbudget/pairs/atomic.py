"""Pairs whose losses are finitely many atoms: everything discrete ends here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from tightbudget.numerics.enclosure import Enclosure
from tightbudget.numerics.rounding import (
    TINY,
    UNIT,
    FloatArray,
    next_down,
    next_up,
    scale_down,
    scale_up,
)
from tightbudget.pairs.pair import Atoms, Pair, Sketch, zero

# points of a sketch: more cost planning time in proportion, and a plan is never certified
_SKETCH = 4096


@dataclass(frozen=True, eq=False)
class AtomicPair(Pair):
    """A pair given by its atoms and by the masses that only one side has.

    ``only_p`` may be [0, t]: mass t that was left out of the list is charged as a loss of
    +inf on the upper side and dropped on the lower one. The same holds for ``only_q``.

    Attributes:
        given: the atoms.
        only_p: the P-mass of outputs that Q cannot produce.
        only_q: the Q-mass of outputs that P cannot produce.
        tail_cut: see :meth:`tail_is_cut`.
    """

    given: Atoms
    only_p: Enclosure = field(default_factory=zero)
    only_q: Enclosure = field(default_factory=zero)
    tail_cut: bool = False

    @staticmethod
    def from_masses(
        p: Enclosure,
        q: Enclosure,
        *,
        p_total: Enclosure | None = None,
        q_total: Enclosure | None = None,
        rest_p: float = 0.0,
        rest_q: float = 0.0,
    ) -> AtomicPair:
        """The pair whose output i has P-mass p[i] and Q-mass q[i].

        Outputs with p = 0 or q = 0 exactly (both ends) belong to the other side alone. If
        one of the two may be 0 and may be positive, nothing is known about the loss: the
        output moves to [0, its mass] of both sides.

        Args:
            p, q: (n,) masses, or weights if totals are given.
            p_total, q_total: (1,) what p and q are to be divided by (1 if not given).
            rest_p, rest_q: upper bounds of the masses of outputs that are not listed.

        Guarantee: losses enclose ln(p/q) for all masses inside the enclosures.
        """
        both = (p.upper > 0) & (q.upper > 0)
        known = (p.lower > 0) & (q.lower > 0)
        low, high = log_quotient(p[known], q[known])
        if p_total is not None and q_total is not None:
            shift_low, shift_high = log_quotient(q_total, p_total)
            # the sum of the two logarithms rounds once more
            low = low + shift_low - UNIT * np.abs(low + shift_low)
            high = high + shift_high + UNIT * np.abs(high + shift_high)
        if p_total is not None:
            p = p / p_total
        if q_total is not None:
            q = q / q_total
        dark = both & ~known
        solo_p, solo_q = p[~both & (p.upper > 0)], q[~both & (q.upper > 0)]
        return AtomicPair(
            Atoms(p[known], q[known], low, high),
            only_p=total(solo_p) + at_most(rest_p) + at_most(float(total(p[dark]).upper[0])),
            only_q=total(solo_q) + at_most(rest_q) + at_most(float(total(q[dark]).upper[0])),
        )

    @staticmethod
    def from_fractions(p: Sequence[Fraction], q: Sequence[Fraction]) -> AtomicPair:
        """The pair whose output i has the exact rational P-mass p[i] and Q-mass q[i].

        Guarantee: masses and losses are enclosed to a few units in the last place.
        """
        both = [(a, b) for a, b in zip(p, q, strict=True) if a and b]
        losses = np.array([log_fraction(a / b) for a, b in both]).reshape(-1, 2)
        return AtomicPair(
            Atoms(
                _enclose([a for a, _ in both]),
                _enclose([b for _, b in both]),
                losses[:, 0],
                losses[:, 1],
            ),
            only_p=_enclose([sum((a for a, b in zip(p, q, strict=True) if not b), Fraction(0))]),
            only_q=_enclose([sum((b for a, b in zip(p, q, strict=True) if not a), Fraction(0))]),
        )

    def reversed(self) -> AtomicPair:
        """The pair (Q, P): P and Q exchanged, and the sign of each loss turned."""
        atoms = self.given
        return AtomicPair(
            Atoms(atoms.q, atoms.p, -atoms.loss_upper, -atoms.loss_lower),
            only_p=self.only_q,
            only_q=self.only_p,
        )

    def atoms(self) -> Atoms:
        return self.given

    def p_only(self) -> Enclosure:
        return self.only_p  # guard: mass-infinity

    def q_only(self) -> Enclosure:
        return self.only_q

    def max_loss(self) -> tuple[float, float]:
        if not len(self.given):
            return -np.inf, -np.inf
        # an atom that may have no mass at all proves nothing about the largest loss
        real = self.given.p.lower > 0
        lower = float(np.max(self.given.loss_lower[real], initial=-np.inf))
        return lower, float(np.max(self.given.loss_upper))

    def tail_is_cut(self) -> bool:
        return self.tail_cut

    def grid_origin(self) -> float | None:
        if not len(self.given):
            return None
        heaviest = self.given.p.upper == np.max(self.given.p.upper)
        return float(np.max(self.given.loss_upper[heaviest]))

    def sketch(self) -> Sketch:
        losses = self.given.loss_upper
        with np.errstate(divide="ignore"):
            # P = e^L Q says how small a P-mass is that a double cannot hold
            log_masses = np.minimum(np.log(self.given.p.upper), np.log(self.given.q.upper) + losses)
        if losses.size > _SKETCH:  # neighbours in the loss, summed
            order = np.argsort(losses, kind="stable")
            # each stands where its last one is; the smallest loss alone, since a grid that keeps
            # everything begins there
            starts = np.linspace(1, losses.size, _SKETCH - 1, endpoint=False).astype(np.intp)
            starts = np.append(0, starts)
            losses = losses[order[np.append(starts[1:], losses.size) - 1]]
            log_masses = np.logaddexp.reduceat(log_masses[order], starts)
        return Sketch(losses, log_masses)


def at_most(mass: float) -> Enclosure:
    """The enclosure [0, mass] of one number."""
    return Enclosure(np.zeros(1), np.array([mass]))


def log_quotient(p: Enclosure, q: Enclosure) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds of ln(p/q), nats, for positive p and q.

    Guarantee: ln of every quotient inside the enclosures lies between the bounds; for exact p
    and q they are about ten units in the last place apart, also around loss 0.
    """
    low, low_margin = _log_of_quotient(p.lower, q.upper)
    high, high_margin = _log_of_quotient(p.upper, q.lower)
    return low - low_margin, high + high_margin


def _log_of_quotient(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """ln(x/y) for positive doubles, and how far it may be off."""
    with np.errstate(all="ignore"):
        quotient = x / y
        # within a factor of 2 the difference is exact, and log1p's condition number is < 1.5
        near = np.asarray(np.log1p((x - y) / y))
        log_x, log_y = np.log(x), np.log(y)
        # a difference of logarithms survives quotients that a double cannot hold
        fits = (quotient > TINY) & (quotient < 1 / TINY)
        far = np.where(fits, np.log(quotient), log_x - log_y)
        value = np.where((quotient > 0.5) & (quotient < 2.0), near, far)
        # numpy's log and log1p are granted 4 units in the last place (LOG, LOG1P), 8 of 2^-53; the
        # quotient is rounded once, which costs the condition number of log1p, or where |ln| > ln 2
        # one unit in ln: 1.5 units of |ln| either way. 20 are granted
        margin = 20 * UNIT * np.abs(value)
        margin = margin + np.where(fits, 0.0, 10 * UNIT * (np.abs(log_x) + np.abs(log_y)))
    return np.asarray(value), np.asarray(margin)


def log_fraction(r: Fraction) -> tuple[float, float]:
    """Lower and upper bound of ln r for a rational r > 0, some units in the last place apart."""
    if r < 1:
        low, high = log_fraction(1 / r)
        return -high, -low
    try:
        value = math.log1p(float(r - 1))  # correctly rounded before, condition number <= 1
        margin = 4 * UNIT * value
    except OverflowError:
        a, b = math.log(r.numerator), math.log(r.denominator)
        value, margin = a - b, 8 * UNIT * (a + b)
    if value == 0:
        return 0.0, 0.0 if r == 1 else TINY
    return next_down(value - margin), next_up(value + margin)


def total(x: Enclosure) -> Enclosure:
    """The sum of all entries, as one entry, known within about log2(n) units in the last place."""
    # each of the halvings below adds at most two roundings to a term
    roundings = 2 * max(1, len(x)).bit_length()
    return Enclosure(scale_down(_halved(x.lower), roundings), scale_up(_halved(x.upper), roundings))


def _halved(x: FloatArray) -> FloatArray:
    """The sum of all entries, by adding halves to each other until one entry is left."""
    if not x.size:
        return np.zeros(1)
    while x.size > 1:
        half = x.size // 2
        shorter = x[:half] + x[half : 2 * half]
        if x.size % 2:
            shorter[0] += x[-1]
        x = shorter
    return x


def _enclose(values: list[Fraction]) -> Enclosure:
    """The enclosure of rational numbers >= 0 by neighbouring doubles."""
    lower, upper = [], []
    for value in values:
        near = float(value)  # correctly rounded
        exactly = Fraction(near) == value
        lower.append(near if exactly else next_down(near) if near > TINY else 0.0)
        upper.append(near if exactly else max(next_up(near), TINY))
    return Enclosure(np.array(lower), np.array(upper))
