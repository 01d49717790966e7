"""Algorithm 1 played out in full: every analyst, every output, in rational arithmetic.

Likelihood ratios are powers of two, so that prices are integers in units of ln 2 and every
number is a rational; nothing in the theorem depends on the base. The account under test is
the real one: at each node of the game it says what may be reserved, and what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from random import Random

import tightbudget as tb

Left = tuple[Fraction, Fraction]  # epsilon in units of ln 2, delta


@dataclass(frozen=True)
class Finite:
    """A mechanism on two neighbours: (P-mass, Q-mass, cell) of each output, cell prices."""

    outputs: tuple[tuple[Fraction, Fraction, int], ...]
    prices: tuple[int, ...]  # of the cells, in units of ln 2
    slack: Fraction = Fraction(0)  # by how much its delta is stated too large

    def excess(self) -> Fraction:
        """The least delta of its guarantee, in the direction of P against Q."""
        return sum(
            (max(Fraction(0), a - 2 ** self.prices[cell] * b) for a, b, cell in self.outputs),
            Fraction(0),
        )

    @cached_property
    def guarantee(self) -> tb.OutputDP:
        delta = max(self.excess(), self.reversed().excess())
        return tb.OutputDP(dict(enumerate(self.prices)), min(Fraction(1), delta + self.slack))

    def reversed(self) -> Finite:
        """Q against P."""
        return Finite(tuple((b, a, cell) for a, b, cell in self.outputs), self.prices, self.slack)


Move = Callable[[Left, Finite, int], Left | None]  # what is left after a run, None if refused


@cache
def algorithm_1(left: Left, mechanism: Finite, cell: int) -> Left | None:
    """Reserve and settle, by the filter itself."""
    if min(left) < 0:  # overdrawn, which only a mutant is: nothing goes through any more
        return None
    account = tb.OutputDPFilter(*left)
    try:
        hold = account.reserve(mechanism.guarantee)
    except tb.errors.BudgetError:
        return None
    hold.settle(cell)
    after = account._left()
    assert after is not None
    return after


def worst_delta(
    cap: int,
    delta: Fraction,
    mechanisms: Sequence[Finite],
    rounds: int,
    move: Move = algorithm_1,
    base: Fraction = Fraction(2),
) -> Fraction:
    """The largest P(V) - base^cap Q(V) of all analysts and all sets V of views.

    A view counts where P is larger, so an analyst who has seen outputs of masses a and b
    either takes (a - base^cap b)_+ or runs one more mechanism that the account lets through.
    """
    factor = base**cap

    def value(a: Fraction, b: Fraction, left: Left, rounds: int) -> Fraction:
        best = max(Fraction(0), a - factor * b)
        for mechanism in mechanisms if rounds and a else ():
            after = [move(left, mechanism, cell) for _, _, cell in mechanism.outputs]
            if None not in after:
                total = sum(
                    value(a * p, b * q, then, rounds - 1)
                    for (p, q, _), then in zip(mechanism.outputs, after, strict=True)
                    if then is not None
                )
                best = max(best, Fraction(total))
        return best

    return value(Fraction(1), Fraction(1), (Fraction(cap), delta), rounds)


def random_mechanism(random: Random) -> Finite:
    """Up to four outputs in up to three cells; some outputs may tell P from Q for certain."""
    while True:
        n = random.randint(2, 4)
        p = [random.choice((0, 1, 1, 2, 4)) for _ in range(n)]
        q = [random.choice((0, 1, 1, 2, 4)) for _ in range(n)]
        if sum(p) and sum(q):
            break
    prices = tuple(random.choice((0, 0, 1, 1, 2)) for _ in range(random.randint(1, 3)))
    outputs = tuple(
        (Fraction(a, sum(p)), Fraction(b, sum(q)), random.randrange(len(prices)))
        for a, b in zip(p, q, strict=True)
    )
    return Finite(outputs, prices, random.choice((Fraction(0), Fraction(0), Fraction(1, 20))))
