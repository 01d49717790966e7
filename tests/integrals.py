"""Exact moment transforms and the line integral over them, as Arb balls.

Numerical integrals are enclosed by python-flint (Gauss-Legendre with its own error bounds);
a line of algebra bounds what lies outside of their range. Nothing is shared with the package.

One step: x standard normal without the record, R = 1 - q + q e^(m x - m^2/2), and
M(s) = E[R^z] with z = 1 + s (remove) or -s (add). Of a composition, for any c > 0,

    delta(eps) = (1 / 2 pi i) int_(c - i inf)^(c + i inf) M(s) e^(-s eps) / (s (s + 1)) ds.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import acb, arb, ctx
from tests.balls import ball


@dataclass(frozen=True)
class Part:
    """One side of a smooth step in x: "bulk" weighs by P(N > (x - edge) / width), "rare" by the
    rest."""

    rare: bool
    edge: float
    width: float

    def share(self, x: acb) -> acb:
        u = (x - self.edge) / self.width / arb(2).sqrt()
        return (-u if self.rare else u).erfc() / 2


@dataclass(frozen=True)
class Step:
    """A Gaussian step that sees the record with probability q <= 1; m = sensitivity / sigma."""

    m: Fraction
    q: Fraction
    remove: bool

    @staticmethod
    def of(sigma: float, q: float, remove: bool) -> Step:
        """Doubles count as the exact numbers that they are."""
        return Step(1 / Fraction(sigma), Fraction(q), remove)

    def moment(self, s: acb | complex, part: Part | None = None, less: bool = False) -> acb:
        """M(s), or one part's; with ``less`` M(s) - 1, which may be small."""
        s = acb(s)
        if self.q == 1 and part is None:
            exponent = s * (s + 1) * ball(self.m) ** 2 / 2
            return exponent.expm1() if less else exponent.exp()
        z = s + 1 if self.remove else -s
        one = acb(1) if less else acb(0)

        def f(x: acb, analytic: bool) -> acb:
            power = (z * self.log_r(x, analytic)).exp() - one
            return density(x) * (power if part is None else power * part.share(x))

        return self._integral(f, complex(z), part)

    def beyond(self, c: float, t: float, shift: float) -> arb:
        """At least |M(c + i t')| for all t' >= t: the integral of the modulus on Im x = shift.

        There |R^(c + i t)| = |R|^c e^(-t arg R), arg R > 0 (and its mirror image for t < 0).
        """
        z, a = (c + 1 if self.remove else -c), acb(0, shift)

        def f(x: acb, analytic: bool) -> acb:
            above, below = self.log_r(x + a, analytic), self.log_r(x - a, analytic)
            return density(x) * (z * (above + below) / 2 + t * (above - below) * acb(0, 0.5)).exp()

        return self._integral(f, complex(z, 0.0), None).real * (arb(shift) ** 2 / 2).exp()

    def log_r(self, x: acb, analytic: bool = False) -> acb:
        """ln R(x); not analytic where R meets the negative axis."""
        m, q = ball(self.m), ball(self.q)
        return (1 - q + q * (m * x - m * m / 2).exp()).log(analytic=analytic)

    def _integral(self, f: Callable[[acb, bool], acb], z: complex, part: Part | None) -> acb:
        """Where the integrand matters, and a ball of what is outside.

        |integrand| <= (R^u + 1) phi, u = Re z, and |(ln R)'| <= m: beyond X > max(u, 0) m it
        falls by X - u m at least, and so on the left with -u. The bulk's share falls, too:
        by (X - edge) / width^2.
        """
        m, wide = float(self.m), math.sqrt(1.6 * ctx.prec) + 2.0
        left, right = max(0.0, -z.real) * m, max(0.0, z.real) * m
        first, last = -left - wide, right + wide
        if part is not None:
            inside = part.width**2 / (1.0 + part.width**2)
            if not part.rare and right > part.edge:
                last = part.edge + (right - part.edge) * inside + wide
            last = max(last, part.edge + wide)
        x = np.linspace(first, last, 2000)
        log_r = np.logaddexp(math.log1p(-float(self.q)), math.log(float(self.q)) + m * (x - m / 2))
        log = np.maximum(z.real * log_r, 0.0) - 0.5 * x * x
        if part is not None:
            u = (x - part.edge) / part.width
            log = log - 0.5 * np.maximum(-u if part.rare else u, 0.0) ** 2
        peak = float(np.max(log))
        points = sorted({first, last, *np.clip([-3.0, 3.0, right, x[np.argmax(log)]], first, last)})
        # the tolerance is relative to the largest value that there is
        tiny, none = arb(2) ** -ctx.prec, arb(2) ** (-9 * ctx.prec)
        scale = arb(peak).exp()
        total = acb(0)
        for a, b in itertools.pairwise(points):
            total += acb.integral(
                lambda x, analytic: f(x, analytic) / scale, a, b, rel_tol=none, abs_tol=tiny
            )
        total *= scale
        falls = arb(last) - right
        at_last = ((self.log_r(acb(last)).real * z.real).exp() + 1) * density(acb(last)).real
        if part is not None and not part.rare:
            falls += (arb(last) - part.edge) / arb(part.width) ** 2
            at_last *= part.share(acb(last)).real
        at_first = ((self.log_r(acb(first)).real * z.real).exp() + 1) * density(acb(first)).real
        if part is not None and part.rare:
            at_first *= part.share(acb(first)).real
        off = 1.01 * at_last / falls + 1.01 * at_first / (-arb(first) - left)
        return total + acb(arb(0, off), arb(0, off))


def density(x: acb) -> acb:
    return (-x * x / 2).exp() / (2 * arb.pi()).sqrt()


# ------------------------------------------------------------------ of a composition

Steps = Sequence[tuple[Step, int]]
ROUGHLY = 110  # bits for what only bounds an error, or places a line


def log_moment(steps: Steps, s: acb | complex) -> acb:
    """ln M of the composition, up to a multiple of 2 pi i."""
    return sum((k * step.moment(s, less=True).log1p() for step, k in steps), acb(0))


@dataclass(frozen=True)
class Saddle:
    """Where to put a line: nothing is proved here."""

    c: float
    epsilon: float
    spread: float
    log_delta: float  # about ln delta(epsilon), by Laplace's approximation

    @staticmethod
    def at(steps: Steps, c: float) -> Saddle:
        """The eps for which c is the saddle point."""
        with ctx.workprec(ROUGHLY + 50):
            x, h = arb(c), arb(c) / 2**24
            before, at, after = (log_moment(steps, acb(y)).real for y in (x - h, x, x + h))
            epsilon = (after - before) / (2 * h) - 1 / x - 1 / (1 + x)
            bend = (after - 2 * at + before) / h**2 + 1 / x**2 + 1 / (1 + x) ** 2
            log_delta = at - x * epsilon - (x * (x + 1)).log() - (2 * arb.pi() * bend).log() / 2
            return Saddle(c, float(epsilon), float(bend.sqrt()), float(log_delta))

    @staticmethod
    def near(steps: Steps, log_delta: float) -> Saddle:
        """The c whose delta is about e^log_delta, by bisection of ln c."""
        low = high = Saddle.at(
            steps, 0.01 / sum(k * float(s.m * s.q) ** 2 for s, k in steps) ** 0.5
        )
        while low.log_delta < log_delta:
            low = Saddle.at(steps, low.c / 2)
        while high.log_delta > log_delta:
            high = Saddle.at(steps, high.c * 1.5)
        while high.c > 1.03 * low.c:
            middle = Saddle.at(steps, math.sqrt(low.c * high.c))
            low, high = (middle, high) if middle.log_delta > log_delta else (low, middle)
        return low


@dataclass
class Integral:
    """delta along Re s = c: the trapezoidal sum with step D up to the height n D, in balls.

    By Poisson summation the whole sum is that of e^(c y) delta(eps + y) over y = 2 pi n / D.
    """

    steps: Steps
    c: float
    step: float
    points: int
    reach: float  # how far from c Chernoff's points are

    @staticmethod
    def of(steps: Steps, saddle: Saddle, log_goal: float) -> Integral:
        """As long and as dense as it takes for errors of e^-log_goal relative to delta."""
        log_wanted = saddle.log_delta - log_goal
        reach = math.sqrt(2.0 * log_goal) / saddle.spread
        with ctx.workprec(ROUGHLY):
            found = Integral(steps, saddle.c, math.pi / log_goal * reach, 1, reach)
            while float(found.others(saddle.epsilon).log()) > log_wanted:
                found.step /= 1.3
            found.points = math.ceil(reach / found.step)
            while float(found.beyond(saddle.epsilon).log()) > log_wanted:
                found.points += math.ceil(found.points / 4)
        return found

    def values(self) -> list[acb]:
        """M(s) / (s (s + 1)) at s = c + i n D."""
        found = []
        for n in range(self.points + 1):
            s = acb(self.c, arb(self.step) * n)
            found.append(log_moment(self.steps, s).exp() / (s * (s + 1)))
        return found

    def deltas(self, epsilons: Sequence[float]) -> list[arb]:
        """Balls that hold delta(eps)."""
        values, found = self.values(), []
        for epsilon in epsilons:
            first, *more = (
                (value * (-acb(self.c, arb(self.step) * n) * epsilon).exp()).real
                for n, value in enumerate(values)
            )
            total = (first / 2 + sum(more, arb(0))) * self.step / arb.pi()
            with ctx.workprec(ROUGHLY):
                beyond, others = self.beyond(epsilon), self.others(epsilon)
            found.append(total + arb(0, beyond) - others * arb(0.5, 0.5))
        return found

    def beyond(self, epsilon: float) -> arb:
        """At least the rest of the sum: that of D / (n D)^2 over n > N is at most 1 / (N D)."""
        top = self.step * self.points
        modulus = arb(1)
        for step, k in self.steps:
            modulus *= self._modulus_from(step, top) ** k
        return modulus * (-arb(self.c) * epsilon).exp() / (arb.pi() * top)

    def _modulus_from(self, step: Step, top: float) -> arb:
        """At least |M(c + i t)| for all t >= top: golden section looks for the best shift."""
        if step.q == 1:
            c, t = arb(self.c), arb(top)
            return ((c * (c + 1) - t * t) * ball(step.m) ** 2 / 2).exp()
        tried: dict[float, arb] = {}

        def at(x: float) -> float:
            tried[x] = step.beyond(self.c, top, math.exp(x))
            return float(tried[x].log())

        high = math.log(0.9 * min(math.pi / float(step.m), 6.0))
        low, ratio = high - 12.0, 0.5 * (math.sqrt(5.0) - 1.0)
        while high - low > 0.5:
            left, right = high - ratio * (high - low), low + ratio * (high - low)
            low, high = (low, right) if at(left) < at(right) else (left, high)
        return min(tried.values(), key=lambda x: float(x.log()))

    def others(self, epsilon: float) -> arb:
        """At least the sum of e^(c y) delta(eps + y) over n != 0, by Chernoff on both sides."""
        y = 2 * arb.pi() / self.step
        total = arb(0)
        for sign in (-1, 1):
            each = []
            for share in (0.02, 0.06, 0.2, 0.5, 1.0):
                c = max(0.0, self.c + sign * share * self.reach)
                ratio = (-abs(arb(c) - self.c) * y).exp()
                each.append(chernoff(self.steps, c, epsilon) * ratio / (1 - ratio))
            total += min(each, key=lambda x: float(x.log()))
        return total


def chernoff(steps: Steps, c: float, epsilon: float) -> arb:
    """delta(eps) <= M(c) e^(-c eps) c^c / (1 + c)^(1 + c), for every eps; 1 at c = 0."""
    if c == 0:
        return arb(1)
    return (_log_moment_at(tuple(steps), c) - arb(c) * epsilon + log_g(c)).exp()


@functools.lru_cache(maxsize=64)
def _log_moment_at(steps: tuple[tuple[Step, int], ...], c: float) -> arb:
    return log_moment(steps, c).real


def log_g(c: float) -> arb:
    return arb(c) * arb(c).log() - (1 + arb(c)) * arb(c).log1p()
