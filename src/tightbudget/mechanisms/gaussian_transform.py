"""The moment generating functions of the Gaussian mechanism and of its Poisson-sampled form.

M(s) = E_P[e^(s L)] is an entire function here. ``gaussian_integrand`` says what P and L are, as
functions of x. E_P[e^-L] = 1 exactly, so

    M(s) - 1 = E_P[e^(s L) - 1 - s L] + s E_P[e^-L - 1 + L],

whose integrands are of the order of their value: no digits are lost, however small q and s
are, and a million runs cost none. A transform may be split in two, M = bulk + rare, by a smooth
step in x: where one rare large loss decides, each number of rare losses has a line of its own.

An operation on doubles costs one ``UNIT`` of its result, a call costs what ``numerics.rounding``
grants it (``EXP``, ``LOG``, ...). A line that ends in "pays: name" pays for what
docs/explanation/rounding.md says under that name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tightbudget.errors import ParameterError
from tightbudget.mechanisms import gaussian_path as path
from tightbudget.mechanisms import gaussian_transform_bounds as bounds
from tightbudget.mechanisms import gaussian_transform_plan as plan
from tightbudget.mechanisms.gaussian_integrand import (
    MOST_NESTED,
    MOST_NODES,
    Integrand,
    Nodes,
    Rule,
)
from tightbudget.mechanisms.gaussian_schedule import Schedule
from tightbudget.mechanisms.gaussian_schedule_nodes import Step
from tightbudget.numerics.rounding import (
    EXPM1,
    LOG,
    LOG1P,
    TURN,
    UNIT,
    FloatArray,
    add_up,
    log1p_up,
    log_up,
    outwards,
)
from tightbudget.numerics.special import LESS_ULPS, SIN_LESS_ULPS, sin_less
from tightbudget.pairs.direction import Direction
from tightbudget.pairs.transform import ComplexArray, Line, Rough, Transform

# beyond it |M| hardly falls along a line, since the strip |Im x| < pi / m is narrow
_LARGE_M = 8.0
# nine units of 2^-53: 1 - q keeps one digit of it
_LEAST_Q = 1e-15
_EDGES = 16.0  # smooth steps are at multiples of 1 over this
# The widths of the smooth step that leaves losses out: a narrow one takes more nodes, and beyond a
# wide one those that are left over may still make M. 53,700 runs with q = 1e-8 need 1/64.
_STEPS = tuple(2.0**-i for i in range(3, 9))
_NO_TAIL = 40.0  # standard deviations: the mass beyond is below 1e-300


@dataclass(frozen=True)
class NormalTransform(Transform):
    """M(s) = e^(s (s + 1) m^2 / 2), the transform of a pair whose loss is N(m^2/2, m^2)."""

    m: float

    @property
    def half(self) -> float:
        """m^2 / 2, the mean of the loss in nats."""
        return 0.5 * self.m**2

    @property
    def farthest(self) -> float:
        return math.inf

    def rough(self, c: FloatArray) -> Rough:
        h = self.half
        return Rough(h * c * (c + 1.0), h * (2.0 * c + 1.0), np.full_like(c, 2.0 * h))

    def nodes(self, c: float, t: float, tolerance: float) -> int:
        return 1

    def line(self, c: float, t: FloatArray, tolerance: float) -> Line:
        up, along = self.half * (c * (c + 1.0)), self.half * t * (2.0 * c + 1.0)
        down = self.half * t * t
        # m^2 is off by three units (m twice, its square once), each part by three more, for its
        # factors; the real part is a difference: one more. The eighth is for the second order
        size = up + down + along
        return Line((up - down) + 1j * along, 8 * UNIT * size)  # pays: normal-line

    def far_line(self, c: float, t: FloatArray) -> Line:
        return self.line(c, t, 0.0)

    def upper(self, c: float) -> float:
        log = self.half * c * (c + 1.0)  # six units, as on a line
        return log + 8 * UNIT * abs(log)  # pays: normal-upper

    def shifts(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.half * (c * (c + 1.0) - t * t), np.zeros_like(t)

    def beyond(self, c: float, t: float, shift: float) -> float:
        up, down = self.half * c * (c + 1.0), self.half * t * t
        return up - down + 8 * UNIT * (up + down)  # pays: normal-beyond

    def gaussian_mu(self) -> float:
        """The Gaussian pair's own m."""
        return self.m

    def sampled(self, rate: float, direction: Direction) -> MixedTransform | None:
        """The transform of the sampled Gaussian step, where :meth:`MixedTransform.of` has one."""
        return MixedTransform.of(self.m, rate, direction is Direction.REMOVE)


@dataclass(frozen=True)
class MixedTransform(Integrand, Transform):
    """The transform of a Gaussian step that sees the record with probability q < 1.

    The parameters are those of :class:`~tightbudget.mechanisms.gaussian_integrand.Integrand`.
    """

    @staticmethod
    def of(m: float, q: float, remove: bool) -> MixedTransform | None:
        """The transform, or None where m or q are beyond what it can answer well."""
        return MixedTransform(m, q, remove) if m <= _LARGE_M and _LEAST_Q <= q < 1.0 else None

    def sampled(self, rate: float, direction: Direction) -> MixedTransform | None:
        """The transform at the product of both rates: sampling what is sampled multiplies them.

        None for a part, for a direction other than the transform's own, and where q has been
        rounded as often as the errors have room for.
        """
        same = self.remove is (direction is Direction.REMOVE)
        if self.part or not same or self.nested >= MOST_NESTED:
            return None
        found = MixedTransform.of(self.m, self.q * rate, self.remove)
        return None if found is None else dataclasses.replace(found, nested=self.nested + 1)

    def split(
        self, edge: float, width: float = Integrand.width
    ) -> tuple[MixedTransform, MixedTransform]:
        """Two transforms (bulk, rare) that sum to this one, parted at about x = edge.

        Args:
            edge: is rounded to a multiple of 1/16.
            width: of the smooth step, a power of two.
        """
        edge = round(edge * _EDGES) / _EDGES  # so that (x - edge) / width is exact
        bulk = dataclasses.replace(self, part="bulk", edge=edge, width=width)
        return bulk, dataclasses.replace(self, part="rare", edge=edge, width=width)

    def rare_split(self, c: float) -> tuple[MixedTransform, MixedTransform] | None:
        """Two transforms (bulk, rare) that sum to this one; None where nothing parts them at c."""
        valley = self.valley(c)
        # one standard deviation below it, so that the bulk is free of rare losses at larger c, too
        return None if valley is None else self.split(valley - 1.0)

    def without_tail(self, log_mass: float, c: float) -> tuple[MixedTransform, float]:
        # the losses of an added record have an end
        if self.part or not self.remove:
            return self, 0.0
        # narrow enough for the edge of the widest: those of others hardly differ
        bulk = self._without(log_mass, _STEPS[0])
        for width in _STEPS:
            if self.split(bulk.edge, width)[0].ends_at_edge(self.power(c)):
                break
        if width != bulk.width:
            bulk = self._without(log_mass, width)
        return bulk, bulk.mass_left_out()

    def _without(self, log_mass: float, width: float) -> MixedTransform:
        # the mass beyond m + _NO_TAIL is no double
        low, high = 0, math.ceil(_EDGES * (self.m + _NO_TAIL))
        while high - low > 1:
            middle = (low + high) // 2
            if math.log(self.split(middle / _EDGES, width)[0].mass_left_out()) > log_mass:
                low = middle
            else:
                high = middle
        return self.split(high / _EDGES, width)[0]

    def mass_left_out(self) -> float:
        """An upper bound of the P-mass that a bulk leaves out, above 0."""
        lost = self.left_out
        # a tail that underflows is below 1e-300
        return add_up(lost.mass, lost.mass_error, 1e-300)

    def about_log_delta(self, epsilon: float) -> float:
        return plan.about_log_delta(self, epsilon) if self._is_plain() else -math.inf

    def gaussian_mu(self) -> float | None:
        """The m of the Gaussian step that is sampled, for a removed record; else None.

        A sampled step is no more revealing than the step itself. It is no less revealing either:
        where delta <= delta_mu the moments are ordered, mu^2 >= 2 ln M(c) / (c (c + 1)) for all
        c > 0, and for a removed record M(c) >= q^(c + 1) e^(c (c + 1) m^2 / 2): with c -> inf
        follows mu >= m. For an added record the losses have an end, and no such limit.
        """
        return self.m if self.remove else None

    @property
    def family(self) -> str | None:
        """The name of the sampled steps in this direction; None where a product cannot take one."""
        if not self._is_plain():
            return None
        return "sampled Gaussian, remove" if self.remove else "sampled Gaussian, add"

    def _is_plain(self) -> bool:
        """Whether m and q alone say which integrand it is: not of a part, nor of a subclass."""
        return not self.part and type(self) is MixedTransform  # guard: family-of-its-own

    def together(self, members: Sequence[tuple[Transform, int]]) -> tuple[Transform, ...]:
        steps = []
        for transform, count in members:
            if not isinstance(transform, MixedTransform) or transform.family != self.family:
                raise ParameterError(f"members must be of one family, got {transform!r}")
            steps.append(Step(transform.m, transform.q, count))
        return Schedule.of(steps, self.remove)

    # ------------------------------------------------------------------- planning

    @property
    def farthest(self) -> float:
        return plan.farthest(self)

    def valley(self, c: float) -> float | None:
        """An x that parts the bulk from the rare large losses of the pair tilted by e^(c L)."""
        return plan.valley(self, c)

    def rough(self, c: FloatArray) -> Rough:
        return plan.rough(self, c)

    def shifts(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        return plan.shifts(self, c, t)

    def nodes(self, c: float, t: float, tolerance: float) -> int:
        rule = plan.rule_of_line(self, c, t, tolerance)
        return rule.last - rule.first + 1

    # --------------------------------------------------------------------- values

    def line(self, c: float, t: FloatArray, tolerance: float) -> Line:
        rule = plan.rule_of_line(self, c, float(t[-1]), tolerance)
        if rule.last - rule.first > MOST_NODES:  # not worth it: nothing is said
            return Line(np.zeros_like(t, dtype=np.complex128), np.full_like(t, math.inf))
        value, error = self._values(c, t, rule, self.at(rule))
        return logarithm(value, error, 0.0 if self.part == "rare" else 1.0)

    def far_line(self, c: float, t: FloatArray) -> Line | None:
        # a path knows two shifts only: a mixture of more has other ratios at its nodes
        if not self._is_plain() or not self.remove:  # guard: path-of-its-own
            return None
        return path.line(self.m, self.q, c, t, self.upper(c))

    def _values(
        self, c: float, t: FloatArray, rule: Rule, at: Nodes
    ) -> tuple[ComplexArray, FloatArray]:
        """M - 1 (for a rare part: M) at c + i t, and a bound of its error."""
        a, wa = at.powers(c)
        n = at.x.size
        wa_error = at.power_error(a)
        s = abs(c) + t  # >= |s|
        b = np.multiply.outer(t, at.loss)
        if self.part == "rare":
            value = np.matmul(np.cos(b), wa) + 1j * np.matmul(np.sin(b), wa)
            # the weights, cos and sin, their products and sums in any order; and the loss, by
            # d/dL = s e^(s L), with which the rounding of c L and t L is paid
            node = wa_error + TURN * UNIT  # pays: rare-turn
            node = node + (n + 9.0) * UNIT  # pays: rare-order
            error = np.full_like(t, float(np.matmul(wa, node)))
            error = error + s * float(np.matmul(wa, at.loss_error))  # pays: rare-loss
        else:
            # e^(a + ib) - 1 - a - ib = (e^a - 1 - a) - 2 e^a sin^2(b / 2)
            #                            + i ((e^a - 1) b + e^a (sin b - b))
            excess, less = at.excess(a, wa)
            lost, loss = self.left_out, np.abs(at.loss)  # guard: bulk-lost
            real = float(np.sum(less)) + c * (at.mean - lost.slope) - lost.mass
            slope = float(np.matmul(excess, at.loss)) + (at.mean - lost.slope)
            value = real - 2.0 * np.matmul(np.sin(0.5 * b) ** 2, wa)
            value = value + 1j * (t * slope + np.matmul(sin_less(b), wa))
            # each term by its weight, and by the n + 14 operations that make it and add all of them
            # in any order; then by its function
            node = wa_error + (n + 14.0) * UNIT  # pays: value-order
            small = np.abs(a) < 0.5
            size = np.where(small, np.abs(less), wa + at.weight * (1.0 + np.abs(a)))
            step = np.where(small, np.abs(excess), wa + at.weight)
            of_less = node + 2.0 * LESS_ULPS * UNIT  # paid by: value-less
            error = np.zeros_like(t)
            error = error + float(np.matmul(size, of_less))  # pays: value-less
            of_step = step * loss * (node + EXPM1 * UNIT)  # paid by: value-excess
            error = error + t * float(np.sum(of_step))  # pays: value-excess
            # 2 sin^2(b / 2) <= min(b^2 / 2, 2)
            of_sine = wa * (node + 2.0 * TURN * UNIT)  # paid by: value-cosine
            bend = 0.5 * t * t * float(np.matmul(of_sine, loss**2))
            error = error + np.minimum(bend, 2.0 * float(np.sum(of_sine)))  # pays: value-cosine
            # |sin b - b| <= min(|b|^3 / 6, 2 |b|)
            of_line = wa * loss * (node + 2.0 * SIN_LESS_ULPS * UNIT)  # paid by: value-sine
            cube = t**3 / 6.0 * float(np.matmul(of_line, loss**2))
            line = 2.0 * t * float(np.sum(of_line))
            error = error + np.minimum(cube, line)  # pays: value-sine
            # the loss, by d/dL = s (e^(s L) - 1), with which the rounding of c L and t L is paid:
            # |e^(a + ib) - 1| <= |e^a - 1| + e^a min(|b|, 2)
            off = at.loss_error
            turned = np.minimum(t * float(np.matmul(wa * loss, off)), 2.0 * np.matmul(wa, off))
            error = error + s * (float(np.matmul(step, off)) + turned)  # pays: value-loss
            error = error + s * at.mean_error  # pays: value-mean
            error = error + (lost.mass_error + s * lost.slope_error)  # pays: value-lost
        error = outwards(error) + bounds.cut(self, c, s, rule, at, wa)
        return value, error + bounds.aliased(self, s, rule)

    def upper(self, c: float) -> float:
        # the nodes of planning often do: it is a bound, not a value
        rule = plan.rough_rule(self, c)
        if rule.last - rule.first > MOST_NODES:
            return math.inf
        at = plan.planned_nodes(self, rule)
        widths = np.linspace(0.05, 0.95, 9) * self.strip
        moved = bounds.log_moved(self, c, 0.0, widths, bounds.GOAL)
        spare = 2.0 * math.pi * widths / rule.h - moved
        best = int(np.argmax(spare))
        if spare[best] > bounds.GOAL:
            rule = rule._replace(width=float(widths[best]), log_moved=float(moved[best]))
        else:
            rule = plan.rule_for(self, c, 0.0, 1e-15)
            if rule.last - rule.first > MOST_NODES:
                return math.inf
            at = self.at(rule)
        value, error = self._values(c, np.zeros(1), rule, at)
        most = add_up(float(value[0].real), float(error[0]))
        if not most < math.inf:
            return math.inf
        if self.part == "rare":
            return log_up(most) if most > 0 else -700.0
        return log1p_up(most)

    # ------------------------------------------------------- the rest of the line

    def beyond(self, c: float, t: float, shift: float) -> float:
        return bounds.beyond(self, c, t, shift)


def logarithm(value: ComplexArray, error: FloatArray, centre: float) -> Line:
    """Returns ln of centre + value with its error, where ``value`` is off by at most ``error``.

    Args:
        value: (n,) M - centre.
        error: (n,) absolute.
        centre: 1, or 0 for a part that may be small.
    """
    size = np.abs(centre + value)
    # where M is not told from 0, |M| <= size + error <= 3 error is all that is said
    lost = size <= 2.0 * error
    known = np.where(lost, 1.0, size)
    relative = np.where(lost, 0.0, error / known)
    if centre:
        # ln |1 + d| without cancellation where d is small
        close = np.abs(value) < 0.5
        near = np.where(close, value, 0.0)
        near_log = 0.5 * np.log1p(2.0 * near.real + near.real**2 + near.imag**2)
        modulus = np.where(close, near_log, np.log(known))
        # 2 re + re^2 + im^2 is off by 6 |d| units, which is divided by 2 |1 + d|^2; 1 + d and
        # its modulus are off by 2 and by TURN units
        rounded = np.where(close, 3.0 * np.abs(value) / known**2, TURN + 2.0)
        rounded = rounded * UNIT  # pays: line-modulus
    else:
        modulus, rounded = np.log(known), np.full_like(known, TURN * UNIT)  # pays: rare-modulus
    angle = np.arctan2(value.imag, centre + value.real)
    rounded = rounded + max(LOG, LOG1P) * np.abs(modulus) * UNIT  # pays: line-log
    rounded = rounded + (TURN + 1.0) * np.abs(angle) * UNIT  # pays: line-angle
    log = np.where(lost, np.log(3.0 * error + 1e-300), modulus + 1j * angle)
    # |M^k - B^k| <= B^k (3^k - 1) for B = 3 error, |M| <= B
    rounded = np.where(lost, math.log(3.0), rounded - np.log1p(-relative))
    return Line(log, outwards(rounded))
