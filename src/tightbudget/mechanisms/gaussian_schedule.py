"""Many sampled Gaussian steps, each with a noise and a rate of its own, as one transform.

A step with sensitivity / sigma = m and sampling rate q has the moment generating function
M(s) = E[R(x)^z], x standard normal, z = 1 + s (remove) or z = -s (add), with
R(x) = 1 - q + q e^(m x - m^2/2) (``gaussian_integrand``). Let a = ln(q / (1 - q)), and substitute
y = m x - m^2/2 + a. Then R = (1 - q) S(y) with S(y) = 1 + e^y, which is the same function for all
steps. Only a normal density tells the steps apart:

    M(s) = (1 - q)^z  integral of  phi(x(y)) / m  S(y)^z dy,    x(y) = (y - a) / m + m / 2.

One trapezoidal rule in y therefore serves all steps at once. On a line s = c + i t the terms are
weights, a matrix with a row for each step, times e^(+-i t ln S), a matrix with a column for each t:
a thousand steps cost one product of matrices, and the exponentials of one step.

Every bound is one of ``gaussian_transform_bounds`` (docs/explanation/contour.md) in the variable y,
which is m times as wide as x:

- *The rule.* S has its zeros at Im y = +-pi. In |Im y| <= b < pi the density grows by
  e^(b^2 / (2 m^2)), |S| lies between S cos(b/2) and S, and arg S(y + i b) rises with y; so does
  |S(y + i b)|, from 1 on, for b <= pi/2. The integral of the modulus is bounded cell by cell
  between the nodes: ln phi has the second derivative -1/m^2, so that between two nodes phi exceeds
  its chord by h^2/8 times that at most. Beyond the nodes the integrand falls as exponentials do: by
  x/m, less the growth of R^p, per unit of y.
- *The rest of the line.* The lemma holds with S for R and Im y = b for Im x = b/m; one b serves all
  steps. |S(y + i b) / S(y)|^2 = 1 - 4 sin^2(b/2) e^y / (1 + e^y)^2. The rule on the moved line may
  be widened to min(pi/2, pi - b).
- *Without the largest losses*, which may be too rare to make any delta, all steps are weighed by
  one function of y that ends them (``smooth_end``).

Files: ``gaussian_schedule_nodes`` has the steps and their weights, ``gaussian_schedule_bounds``
what is proved of a rule and of the rest of a line, ``gaussian_schedule_plan`` what is planned.

Values are M and not M - 1: a step is known to some 1e-14, and k runs to k times that. For a
schedule of a thousand steps, that leaves ten digits of delta. A line that ends in "pays: name" pays
for what docs/explanation/rounding.md says under that name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from tightbudget.mechanisms import gaussian_schedule_bounds as bounds
from tightbudget.mechanisms import gaussian_schedule_path as path
from tightbudget.mechanisms import gaussian_schedule_plan as plan
from tightbudget.mechanisms.gaussian_schedule_nodes import BLOCK, RuleInY, Step, Steps, TiltedSteps
from tightbudget.numerics.rounding import (
    EXP,
    LOG,
    LOG1P,
    TURN,
    UNIT,
    FloatArray,
    outwards,
)
from tightbudget.pairs.transform import ComplexArray, Line, Rough, Transform

# A panel's steps share one rule, which is as fine as the least m asks for and as long as the
# largest: beyond a factor of three two rules have fewer terms than one. It affects time only.
_PANEL = 3.0
# On one core a complex exponential took 17 ns, and a logarithm of one value with its error 74 ns. A
# multiplication and addition in a product of matrices took 0.05 ns, and is counted as 0.3 ns, for
# processors with narrower vectors.
_PRODUCTS = 50.0
_LOGARITHMS = 5.0
# Steps whose values at great heights cost as much as one of a single step. Measured: 1,000 steps at
# 20,000 heights took 2.3 s, where three single ones took 0.9 s.
_FAR = 100.0


class Schedule(Steps, Transform):
    """The product of the moment generating functions of many sampled Gaussian steps.

    The parameters are those of :class:`~tightbudget.mechanisms.gaussian_schedule_nodes.Steps`.
    """

    @staticmethod
    def of(steps: Sequence[Step], remove: bool) -> tuple[Schedule, ...]:
        """Makes one schedule for each panel of similar m, which together have all ``steps``."""
        ordered = sorted(steps)
        found: list[Schedule] = []
        while ordered:
            end = next(
                (i for i, one in enumerate(ordered) if one.m > _PANEL * ordered[0].m), len(ordered)
            )
            rows = zip(*ordered[:end], strict=True)
            m, q, count = (np.array(row, dtype=np.float64) for row in rows)
            found.append(Schedule(m, q, count, remove))
            ordered = ordered[end:]
        return tuple(found)

    # ------------------------------------------------------------------- planning

    @property
    def farthest(self) -> float:
        return plan.farthest(self)

    def rough(self, c: FloatArray) -> Rough:
        return plan.rough(self, c)

    def shifts(self, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        return plan.shifts(self, c, t)

    def without_tail(self, log_mass: float, c: float) -> tuple[Schedule, float]:
        # the losses of an added record have an end
        if self.end is not None or not self.remove:
            return self, 0.0
        end = plan.end(self, log_mass, c)
        mass = bounds.mass_beyond(self, end, log_mass)
        return dataclasses.replace(self, end=end, _kept={}), mass

    def nodes(self, c: float, t: float, tolerance: float) -> int:
        rule = plan.rule_of_line(self, c, t, tolerance)
        if rule is None:
            return 2**62
        n = self.m.size
        return math.ceil(rule.size * (1.0 + n / _PRODUCTS) + n * _LOGARITHMS)

    def _off(self, c: float, t: float, rule: RuleInY, at: TiltedSteps) -> FloatArray:
        """Bounds of the errors that no point changes: the rule's ends, its step, the weights."""
        rounding = at.error + (at.y.size + 4.0) * 2.0 * UNIT * at.total  # pays: schedule-order
        ends = at.left + at.right  # guard: schedule-ends
        return outwards(rounding) + ends + bounds.aliased(self, c, t, rule, at)

    def line(self, c: float, t: FloatArray, tolerance: float) -> Line:
        rule = plan.rule_of_line(self, c, float(t[-1]), tolerance)
        at = None if rule is None else self.weights(c, rule)
        if rule is None or at is None:  # not worth it: nothing is said
            return Line(np.zeros_like(t, dtype=np.complex128), np.full_like(t, math.inf))
        off = self._off(c, float(t[-1]), rule, at)
        both = _circle(at.log_s, t)
        log, error = np.zeros_like(t, dtype=np.complex128), np.zeros_like(t)
        rows = max(1, BLOCK // t.size)
        for start in range(0, self.m.size, rows):
            part = slice(start, start + rows)
            value, value_error = self._values(part, t, both, off, at)
            one, one_error = self._logarithm(part, t, value, value_error)
            log = log + self.count[part] @ one
            error = error + self.count[part] @ one_error
        return Line(log if self.remove else np.conj(log), outwards(error))

    def _values(
        self, part: slice, t: FloatArray, both: FloatArray, off: FloatArray, at: TiltedSteps
    ) -> tuple[ComplexArray, FloatArray]:
        """The sums of weight e^(i t ln S) of some steps, and how far they may be off.

        Args:
            part: the steps, n of them.
            t: (k,) the heights on the line.
            both: (b, 2 k) what :func:`_circle` returns for these heights.
            off: the part of the error that does not depend on t, of all steps.
            at: the weights.

        Returns:
            Two arrays of shape (n, k).
        """
        sums = np.matmul(at.weight[part], both)
        value = sums[:, : t.size] + 1j * sums[:, t.size :]
        total, lever = at.total[part, None], at.lever[part, None]
        error = np.zeros_like(t) + off[part, None]
        # cos and sin; ln S and its product with t
        error = error + 2.0 * TURN * UNIT * total  # pays: schedule-turn
        error = error + t * ((EXP + LOG1P + 2.0) * UNIT * lever)  # pays: schedule-angle
        return value, outwards(error)

    def _logarithm(
        self, part: slice, t: FloatArray, value: ComplexArray, error: FloatArray
    ) -> tuple[ComplexArray, FloatArray]:
        """ln of M at c + i t for its sums, and how far it may be off: shapes (n, k).

        For an added record the result is the conjugate.
        """
        size = np.abs(value)
        # where M is not told from 0, |M| <= size + error <= 3 error is all that is said
        lost = ~(size > 2.0 * error)  # guard: schedule-lost
        relative = np.where(lost, 0.0, error / np.where(lost, 1.0, size))
        modulus = np.log(np.where(lost, 3.0 * error + 1e-300, size))
        # (1 - q)^(it) has the modulus 1
        across = t * self.log_rest[part, None]
        turned = np.arctan2(value.imag, value.real)
        angle = np.where(lost, 0.0, turned + across)
        made = TURN + LOG * np.abs(modulus) + TURN * np.abs(turned) + np.abs(across)
        # modulus and logarithm; the argument, the product with t and their sum; and the product
        # with the count and one unit of the sum over the steps for each of them
        made = made + np.abs(angle) + (self.m.size + 2.0) * (np.abs(modulus) + np.abs(angle))
        rounded = np.zeros_like(size)
        rounded = rounded + made * UNIT  # pays: schedule-log
        rounded = rounded + t * self.log_rest_error[part, None]  # pays: schedule-across
        # |M^k - B^k| <= B^k (3^k - 1) for B = 3 error, |M| <= B
        rounded = rounded + np.where(lost, math.log(3.0), -np.log1p(-relative))
        return modulus + 1j * angle, rounded

    def far_line(self, c: float, t: FloatArray) -> Line | None:
        if not self.remove or self.end is not None:
            return None
        return path.line(self, c, t, self.upper(c))

    @property
    def far_cost(self) -> float:
        return 1.0 + self.m.size / _FAR

    @property
    def sketch(self) -> Schedule:
        # a far line takes whole numbers of runs
        few = self.some
        return dataclasses.replace(few, count=np.maximum(1.0, np.round(few.count)), _kept={})

    def upper(self, c: float) -> float:
        rule = plan.rule_of_line(self, c, 0.0, 1e-15)
        at = None if rule is None else self.weights(c, rule)
        if rule is None or at is None:
            return math.inf
        return bounds.sum_up(self.count, at.total + self._off(c, 0.0, rule, at))

    # ------------------------------------------------------- the rest of the line

    def beyond(self, c: float, t: float, shift: float) -> float:
        return bounds.beyond(self, c, t, shift, plan.moved_rule(self, c, shift))


def _circle(log_s: FloatArray, t: FloatArray) -> FloatArray:
    """cos and sin of the products of ``log_s`` (b,) and ``t`` (k,), side by side: (b, 2 k)."""
    turn = np.multiply.outer(log_s, t)
    return np.concatenate([np.cos(turn), np.sin(turn)], axis=1)
