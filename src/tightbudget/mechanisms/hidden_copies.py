"""The pair above a batch in which nobody sees how many copies of a record there are.

A batch has k = 0, 1, 2, ... copies of the record in question, or k records of a user, with the
chances p_0, p_1, p_2, ... Give away what would be in their places. From there each copy moves the
sum by at most s before the replacement, and after it, and the replacement moves it by at most s,
too (sigma is 1). So an attacker faces P, a mixture of N(a_S) over sets S of places, against Q, the
same mixture of N(b_S), where |a_S|, |b_S| and |a_S - b_S| are at most k s for a set of k places,
and both are N(0) for the empty one. What was given away is drawn alike on both sides, and
delta(eps) is jointly convex.

**Theorem.** Let r_k(t) = e^(k s t - (k s)^2 / 2), the ratio of N(k s) to N(0), N_k(t) the chance of
N(k s) above t, and G_k(y) = sup_t (N_k(t) - y N_0(t)). For y >= 1 and all events A

    P(A) - y Q(A)  <=  h(y)  =  min sum_k p_k G_k(y + w_k)

over w_1, w_2, ... >= 0 with sum_k p_k w_k <= (y - 1) p_0.

Proof. P(A) - y Q(A) is at most the sum over the sets S that are not empty, each times its chance,
of N(a_S)(A) - y N(b_S)(A) - w_k N(0)(A). Of all A with the same mass under N(a_S), a half-line has
the least under N(b_S) and N(0), if both are k s away on one side (Neyman, Pearson). So each term
is at most G_k(y + w_k). Chances of copies that are too large only raise the sum. ∎

The min is attained where w_k = (r_k(t) - y)+, for the t with
sum_k p_k (r_k(t) - y)+ = (y - 1) p_0: where r_k(t) >= y, G_k(y + w_k) is attained at t itself. Call
these k *in I*. The two data sets of the lower bound attain

    d(y)  =  sup_t ( sum_k p_k N_k(t) + (p_0 - y) N_0(t) )  <=  h(y),

and h(y) exceeds what stands there at the t above by the sum over all k not in I of
p_k (G_k(y) - N_k(t) + y N_0(t)). So h is d wherever all k are in I. Near y = 1 and for very large y
some are not; :func:`hidden_copies` lists a few outputs for the little by which h is larger there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special as sp

from tightbudget.mechanisms.batches_pairs import HullPair
from tightbudget.mechanisms.mixture_of_gaussians import Mixture, MixturePair
from tightbudget.numerics.enclosure import Enclosure, exact, exp_enclosure
from tightbudget.numerics.rounding import TINY, FloatArray, add_down, add_up, mul_up

# Losses and moves over sigma are below 700, so that no exponential overflows, and the bounds of
# normal masses, ratios and sums of a hundred of them are some 1e-13 of a term off.
_ROUNDED = 1e-12
_LEAST = TINY  # of the chance of a loss beyond the last one listed
_MOST = 700.0  # the largest exponent
# Moves of eight sigma or more have so many losses beyond the last one; there a batch shows the
# number of copies anyway.
_UNLISTED = 1e-15
_FARTHEST = 690.0  # the largest loss, of which e^loss is a double
# How far apart the losses are at which h and d are compared: in shares of a loss near 0, in nats or
# quarters of s, and in shares again far out. They affect width, never truth.
_NEAR, _STEP, _FAR = 0.05, 0.25, 0.02
_HALVINGS = 60


def hidden_copies(s: float, chances: FloatArray, none: float, rest: float) -> HullPair | None:
    """The hull of a step in which nobody sees how many copies of a record a batch has.

    Guarantee: delta(eps) of this pair is at least that of the step, in both directions and for all
    real eps: for eps >= 0 it is at least h(e^eps) of the module's theorem, and ``rest`` more.

    Args:
        s: how far one copy moves the sum, over sigma.
        chances: (n,) upper bounds of the chances of 1, 2, ..., n copies, n >= 2.
        none: a lower bound > 0 of the chance of no copy; 1 together with ``chances``, or less by
            rounding.
        rest: an upper bound of the chance of more copies than ``chances`` has.

    Returns:
        None where one copy moves the sum so far that losses beyond 690 matter, or where the losses
        above 0 and their mirror images would have a mass above 1, as for records that are in nearly
        every batch.
    """
    # what is rounded down would move too little
    shifts = np.array([mul_up(k, s) for k in range(1, chances.size + 1)])
    alone = Mixture(np.zeros(1), np.ones(1))
    pair = MixturePair(Mixture(np.append(0.0, shifts), np.append(none, chances)), alone)
    losses, masses, beyond = _Beside(s, chances, none).outputs()
    if beyond > _UNLISTED:
        return None
    beyond = add_up(beyond, rest)  # guard: more-copies-than-listed
    # what the losses above 0 and their mirror images leave of P, and of Q: an output with the
    # larger mass of the two under both is above it
    mirror = MixturePair(alone, pair.right)
    above, below = (one.bins(np.zeros(1), np.zeros(1)) for one in (pair, mirror))
    mirrored = exact(masses) * exp_enclosure(-losses)
    listed = *masses, beyond, -1.0
    parts = (above.p[1], below.p[0], mirrored), (above.q[1], below.q[0], mirrored)
    least = min(-add_up(*(x for each in one for x in each.upper), *listed) for one in parts)
    most = max(-add_down(*(x for each in one for x in each.lower), *listed) for one in parts)
    if not least >= 0.0:
        return None
    left = Enclosure(np.array([least]), np.array([most]))
    return HullPair(pair, mirror, left, losses, masses, beyond)


class _Beside:
    """Lists outputs with one loss each for what h exceeds d by; arguments as above."""

    def __init__(self, s: float, chances: FloatArray, none: float) -> None:
        self._s, self._chances, self._none = s, chances, none
        self._shifts = np.arange(1.0, chances.size + 1.0) * s

    def outputs(self) -> tuple[FloatArray, FloatArray, float]:
        """Losses > 0 and the P-masses that have them, and the P-mass of a loss of inf.

        Guarantee: d(y) + sum of masses (1 - y e^-losses)+ + the last number >= h(y) for y >= 1.
        """
        x = self._losses()
        t = self._roots(x)
        h, beyond = self._above(x, t)
        x, t = x[: h.size], t[: h.size]
        excess = np.minimum(self._between(x, h), self._not_in(x[1:], t[:-1]))
        # a decreasing function of y that has the excess between two y at the right one; at the
        # last one, and from there on, it is a loss of inf
        excess = np.maximum.accumulate(excess[::-1])[::-1]
        beyond = max(beyond, float(excess[-1]))
        # and a convex one above it: its slope only rises to the left
        masses, value, slope, over = np.zeros(x.size), beyond, 0.0, np.expm1(x)
        for i in range(x.size - 2, 0, -1):
            width = over[i + 1] - over[i]
            value += slope * width
            if excess[i - 1] > value:
                more = (excess[i - 1] - value) / width
                masses[i + 1] = more * (1.0 + over[i + 1]) * (1 + 1e-9)
                value, slope = float(excess[i - 1]), slope + more
        kept = masses > 0.0
        return x[kept], masses[kept], beyond

    def _losses(self) -> FloatArray:
        """The losses ln y at which h and d are compared, ascending, the first one 0."""
        first = 1e-3 * float(self._chances.sum()) * min(1.0, self._s**2)
        x, found = first, [0.0]
        while x < _FARTHEST:
            found.append(x)
            x += min(max(_NEAR * x, first), max(_STEP * max(1.0, self._s / 4), _FAR * x))
        return np.array(found)

    def _ratios(self, t: FloatArray, x: FloatArray | float = 0.0) -> FloatArray:
        """The r_k(t) over e^x, up to e^700, in a row for each t."""
        exponent = np.outer(t, self._shifts) - self._shifts**2 / 2 - np.reshape(x, (-1, 1))
        return np.asarray(np.exp(np.minimum(exponent, _MOST)))

    def _largest(
        self, fits: Callable[[FloatArray], NDArray[np.bool_]], low: FloatArray
    ) -> FloatArray:
        """The largest t, about, up to which ``fits`` holds; ``low`` where it is not known to."""
        high = np.full(low.size, float(self._shifts[-1]) / 2 + 2 * _MOST / self._s)
        for _ in range(_HALVINGS):
            t = (low + high) / 2
            yes = fits(t)
            low, high = np.where(yes, t, low), np.where(yes, high, t)
        return low

    def _roots(self, x: FloatArray) -> FloatArray:
        """Lower bounds of the t that has the min of the module's theorem at y = e^x."""
        wanted = self._none * -np.expm1(-x) * (1 - _ROUNDED)

        def fits(t: FloatArray) -> NDArray[np.bool_]:
            # in shares of y; a chance of 1e-100 times e^700 is above all that is wanted
            over = np.maximum(self._ratios(t, x) * (1 + _ROUNDED) - 1.0, 0.0)
            return np.asarray(over @ self._chances <= wanted)

        return self._largest(fits, np.full(x.size, self._s / 2))  # where r_1 is 1

    def _above(self, x: FloatArray, t: FloatArray) -> tuple[FloatArray, float]:
        """Upper bounds of h(e^x), up to an x from which on h is at most ``_LEAST``.

        Returns:
            The bounds for the first x, at least two, and one of h for all y from the last on.
        """
        # G_k(y + w_k) is attained at t where k is in I, and else where r_k is y
        y, t = np.exp(x)[:, None], t[:, None]
        own = np.maximum(self._shifts / 2 + x[:, None] / self._shifts, t)
        reached = np.where(own <= t, np.maximum(self._ratios(t[:, 0]), y), y)
        tails = sp.ndtr(self._shifts - own)
        h = np.maximum(tails - reached * sp.ndtr(-own), 0.0) + _ROUNDED * tails
        most = (tails @ self._chances) * (1 + _ROUNDED)
        last = max(1, int(np.argmax(np.append(most[:-1] <= _LEAST, True))))
        return np.asarray(h @ self._chances)[: last + 1], float(most[last])

    def _between(self, x: FloatArray, h: FloatArray) -> FloatArray:
        """Upper bounds of h - d between any two losses of ``x``, from upper bounds of h.

        h is convex in y, so that its chord is above it, and d is at least each of the lines whose
        supremum it is: the difference of the two is largest at an end.
        """
        over = np.expm1(x)
        t = self._largest(
            lambda t: np.asarray((self._ratios(t) - 1.0) @ self._chances <= over[:-1]),
            np.full(x.size - 1, -50.0),
        )
        own = sp.ndtr(-t)
        gained = (sp.ndtr(self._shifts - t[:, None]) - own[:, None]) @ self._chances
        ends = [h[:-1] - (gained - over[:-1] * own), h[1:] - (gained - over[1:] * own)]
        off = _ROUNDED * (h[:-1] + gained + over[1:] * own)
        return np.asarray(np.maximum(*ends) + off)

    def _not_in(self, x: FloatArray, t: FloatArray) -> FloatArray:
        """Upper bounds of h - d from the y of each t up to y = e^x: what k not in I add.

        G_k(y) - N_k(t) + y N_0(t) rises with y, and falls with t up to where r_k(t) is y.
        """
        y, t, shifts = np.exp(x)[:, None], t[:, None], self._shifts
        own = np.maximum(shifts / 2 + x[:, None] / shifts, t)
        more = y * (sp.ndtr(-t) - sp.ndtr(-own)) - (sp.ndtr(shifts - t) - sp.ndtr(shifts - own))
        off = _ROUNDED * (y * sp.ndtr(-t) + sp.ndtr(shifts - t))
        out = own > t
        # one copy is in I for y <= e^(s^2): where r_1(t) = y, r_j(t) = y^j e^(-j (j - 1) s^2 / 2)
        # is at most y for all j
        out[:, 0] &= x > self._s**2 * (1 - _ROUNDED)
        return np.asarray(np.where(out, np.maximum(more, 0.0) + off, 0.0) @ self._chances)
