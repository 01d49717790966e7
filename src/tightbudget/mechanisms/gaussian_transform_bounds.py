"""Proved bounds of the part of a sampled Gaussian's transform that a rule's nodes leave out.

The value of M is a trapezoidal sum over x (``gaussian_integrand``). Its error is the sum of the
nodes beyond both ends (:func:`cut`) and of the aliasing of the rule (:func:`aliased`), which an
integral of the modulus on a shifted line of x bounds (:func:`log_moved`). :func:`beyond` bounds M
on the rest of a vertical line of s, in the same way. The proofs are in
docs/explanation/contour.md. A line that ends in "pays: name" pays for what
docs/explanation/rounding.md says under that name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightbudget.mechanisms.gaussian_integrand import (
    MOST_NESTED,
    MOST_NODES,
    Integrand,
    Nodes,
    Rotated,
    Rule,
)
from tightbudget.numerics.rounding import (
    EXP,
    LOG,
    TURN,
    UNIT,
    FloatArray,
    add_up,
    exp_up,
    log_up,
    mul_up,
    outwards,
)
from tightbudget.numerics.special import log_normal_tail

# -ln of the relative error of a bound beyond a line's end: e^-40 = 4e-18 is below a double's unit
GOAL = 40.0

_LOG_DENSITY_0 = math.log(1.0 / math.sqrt(2.0 * math.pi))
# a fall per unit of x below which nothing is said about the nodes left out: the geometric series
# of their bound would have more than a hundred terms for each unit of x
_SLOWEST = 0.01
# Beyond a bulk's edge: a fall per unit of x, over power m, that needs no cells; and how many times
# as far from the edge the next cell begins. Any values are sound.
_STEEP, _WIDER = 0.2, 1.02
_FEWEST, _MOST = 4.0, 400.0  # bins for a unit of x
_TURNED = 1.0  # growth by the argument of R, nats, that needs no cells
_AXIS = np.zeros(1)


def log_growth(integrand: Integrand, power: float, a: FloatArray) -> FloatArray:
    """ln of an upper bound of |w phi R^power|(x + i a') / (w phi R^power)(x) for |a'| <= a."""
    # |phi(x + ia)| = phi(x) e^(a^2/2); |R(x + ia)| lies between R(x) cos(m a / 2) and R(x);
    # |erfc(u + iv)| <= e^(v^2) erfc(u)
    shrink = min(power, 0.0) * np.log(np.cos(0.5 * integrand.m * a))
    smooth = 0.5 * (a / integrand.width) ** 2 if integrand.part else 0.0
    return np.asarray(0.5 * a * a + shrink + smooth)


def log_moved(
    integrand: Integrand, c: float, t: float, widths: FloatArray, goal: float
) -> FloatArray:
    """ln of an upper bound of the integral of |w P e^(s L)| on Im x = +-width, for each width.

    It holds for all s with Re s = c and |Im s| <= t. The x axis is cut into bins between the
    ends of a rule for e^-goal, and each bin takes the largest value of each factor:
    |phi(x + ia)| = phi(x) e^(a^2/2), |R(x + ia)| between R(x) cos(m a / 2) and R(x), which rises
    with x where m a <= pi / 2, |erfc(u + iv)| <= e^(v^2) erfc(u), and arg R(x + ia) <= m a, which
    rises with x.
    """
    m, power = integrand.m, integrand.power(c)
    reach = math.sqrt(2.0 * goal) + 1.0
    start, end = integrand.nearest_peak(power) - reach, integrand.farthest_peak(power) + reach
    x = _bins(integrand, power, start, end)
    log_r = integrand.about_log_r(x)
    nearest = np.where(x[1:] < 0, x[1:], np.maximum(x[:-1], 0.0))
    log, last = -0.5 * nearest**2, power * float(log_r[-1]) - 0.5 * end**2
    if integrand.part:  # P(N > u) <= e^(-u^2/2) for u >= 0
        u = (x - integrand.edge) / integrand.width
        log = log - 0.5 * np.maximum(u[:-1] if integrand.part == "bulk" else -u[1:], 0.0) ** 2
    if integrand.part == "bulk":
        last -= 0.5 * max(0.0, (end - integrand.edge) / integrand.width) ** 2
    turned = integrand.rotated(x, widths)
    angle = t * np.arctan2(turned.side, turned.real)
    largest = _least_log_r(integrand, log_r, turned, widths) if power < 0.0 else log_r[1:]
    log = log + power * largest
    with np.errstate(over="ignore"):  # what overflows is inf, and not chosen
        total = np.exp(log + angle[:, 1:]) @ np.diff(x)
    after = _after(integrand, power, end, t, widths)
    if not after.rate > 0:
        return np.full_like(widths, math.inf)
    # and to the left, where R falls: d ln R / dx = m q e^y / R rises with x
    slower = -start - max(0.0, -power) * m * integrand.rise(start)
    if not slower > 0:
        return np.full_like(widths, math.inf)
    first = power * float(log_r[0]) + min(power, 0.0) * np.log(np.cos(0.5 * m * widths))
    first = first - math.log(slower)
    if power < 0.0:  # ... and |R| is above its limit, too, where m a <= pi / 2
        flat = power * _limit(integrand) - math.log(-start)
        first = np.where(m * widths <= 0.5 * math.pi, np.minimum(first, flat), first)
    first = first - 0.5 * start**2
    with np.errstate(over="ignore"):
        total += np.exp(last + after.log_integral())
        total += np.exp(first + angle[:, 0])
    smooth = 0.5 * (widths / integrand.width) ** 2 if integrand.part else 0.0
    return np.asarray(np.log(outwards(total)) + 0.5 * widths**2 + smooth + _LOG_DENSITY_0)


def _limit(integrand: Integrand) -> float:
    """Returns about what ln R falls to on the left."""
    return float(integrand.about_log_r(np.array([-1e9 / integrand.m]))[0])


def _bins(integrand: Integrand, power: float, start: float, end: float) -> FloatArray:
    """Points from start to end, the closer the faster R^power grows there."""
    ends = np.linspace(start, end, max(2, math.ceil(end - start) + 1))
    rise = np.abs(power * np.diff(integrand.about_log_r(ends)))
    number = np.append(0.0, np.cumsum(np.ceil(np.clip(0.5 * rise, _FEWEST, _MOST))))
    x = np.interp(np.arange(number[-1] + 1.0), number, ends)
    x[0], x[-1] = start, end
    return np.asarray(x)


def _least_log_r(
    integrand: Integrand, log_r: FloatArray, turned: Rotated, widths: FloatArray
) -> FloatArray:
    """A lower bound of ln |R(x + ia)| in each cell between points, for each width a."""
    rises = (integrand.m * widths <= 0.5 * math.pi)[:, None]
    modulus = 0.5 * np.log(turned.real**2 + turned.side**2) + turned.scale
    # ln |R| may be far smaller than the two that it is the sum of. The larger part of R by exp,
    # MOST_NESTED roundings of q, cos, and four more; two squares and their sum
    made = (LOG + 1.0) * (1.0 + turned.scale) + EXP + TURN + MOST_NESTED + 6.0
    modulus = modulus - made * UNIT  # pays: moved-modulus
    lower = log_r + np.log(np.cos(0.5 * integrand.m * widths))[:, None]
    return np.asarray(np.where(rises, modulus, lower)[:, :-1])


@dataclass(frozen=True)
class After:
    """Bounds of |w phi R^s| beyond a point, over w phi R^power there, on some lines Im x = width.

    Attributes:
        lengths: (k,) of cells that follow each other.
        logs: (n, k) ln of an upper bound in each of them, for each width.
        rest: (n,) ln of an upper bound where the cells end.
        rate: how fast it falls from there on, at least.
    """

    lengths: FloatArray
    logs: FloatArray
    rest: FloatArray
    rate: float

    def log_integral(self) -> FloatArray:
        """Returns ln of an upper bound of the integral, for each width."""
        rest = self.rest - math.log(self.rate)
        ends = np.column_stack([self.logs + np.log(self.lengths), rest])
        return np.asarray(np.logaddexp.reduce(ends, axis=1) + 1e-12)

    def log_nodes(self, h: float) -> float:
        """Returns ln of an upper bound of the sum over all nodes of a rule, on the first line.

        Args:
            h: how far the nodes are apart.
        """
        # where cells end a node may be, too
        some = 1.0 / math.expm1(min(h * self.rate, 700.0)) + (1.0 if self.lengths.size else 0.0)
        rest = self.rest[0] + math.log(some)
        each = np.append(self.logs[0] + np.log(self.lengths / h + 1.0), rest)
        return float(np.logaddexp.reduce(each)) + 1e-12


def _after(
    integrand: Integrand, power: float, start: float, t: float = 0.0, widths: FloatArray = _AXIS
) -> After:
    """Bounds |w phi R^s| beyond ``start``, for Re s = power and |Im s| <= t.

    R^power grows by e^(power m) per unit of x at most, phi falls by e^-x, and beyond its edge a
    bulk's w by e^-((x - edge) / width^2): as a ratio of two normal tails, Phi(-v) / Phi(-u) is at
    most e^((u^2 - v^2) / 2) for 0 <= u <= v. Where that is not enough there are cells up to where
    it is: R and its argument rise, and the others fall. What the moduli of phi and w grow by on a
    line Im x = width is not counted.
    """
    m, turned = integrand.m, t * integrand.m * widths
    steepest = max(0.0, power) * m
    bulk = integrand.part == "bulk" and start > integrand.edge
    origin, width = (integrand.edge, integrand.width) if bulk else (0.0, math.inf)
    rate = start + (start - origin) / width**2 - steepest
    turned = turned + min(power, 0.0) * np.log(np.cos(0.5 * m * widths))
    turn = float(np.max(turned))
    if (power > 0.0 and not bulk) or (rate > _STEEP * steepest and turn <= _TURNED):
        return After(np.zeros(0), np.zeros((widths.size, 0)), turned, rate)
    begin = max(start - origin, min(width, 1.0))
    far = (1.0 + _STEEP) * ((max(power, 0.0) + t) * m * width**2 if bulk else math.sqrt(2.0 * turn))
    k = max(1, math.ceil(math.log(max(far / begin, _WIDER)) / math.log(_WIDER)))
    x = np.append(start - origin, begin * _WIDER ** np.arange(1.0, k + 1.0)) + origin
    before, lines = integrand.about_log_r(x), integrand.rotated(x, widths)
    log_r = before[1:] if power > 0.0 else _least_log_r(integrand, before, lines, widths)
    rise = power * (log_r - before[0])
    fall = 0.5 * (x - start) * ((x + start) + (x + start - 2.0 * origin) / width**2)
    # logarithms within a relative 1e-9, and sums
    off = 1e-9 * abs(power) * (np.abs(log_r) + abs(before[0])) + 1e-12 * fall[1:]
    angles = t * np.arctan2(lines.side, lines.real)[:, 1:]
    logs = rise - fall[:-1] + off + angles * (1.0 + 1e-9)
    end = float(x[-1])
    rest = np.broadcast_to(rise + off - fall[1:], logs.shape)[:, -1] + turned
    return After(np.diff(x), logs, rest, end + (end - origin) / width**2 - steepest)


def cut(
    integrand: Integrand, c: float, s: FloatArray, rule: Rule, at: Nodes, wa: FloatArray
) -> FloatArray:
    """An upper bound of the sum over the nodes beyond both ends of a rule, for each |s| in ``s``.

    ``wa`` is weight e^(c L) at the nodes. The integrand is w P (e^(s L) - 1 + s (e^-L - 1)),
    and P and P e^-L are phi and phi R.
    """
    power, last, first = integrand.power(c), float(at.x[-1]), -float(at.x[0])
    # right: neither R^power nor R grows faster than R^max(power, 1); the share of the rare part, at
    # least 1/2 here, grows to 1
    after = _after(integrand, max(power, 1.0), last)
    rare = integrand.part == "rare"  # and the integrand is w P e^(s L) alone
    also = np.zeros_like(s) if rare else 1.0 + s
    if after.rate > _SLOWEST:
        # their logarithms, since one may be far below the range of doubles
        weight, loss = float(at.log_weight[-1]), float(at.loss[-1])
        twice = math.log(2.0) if rare else 0.0
        ends = np.array([weight, weight - loss, weight + c * loss + twice])
        ends = ends + after.log_nodes(rule.h) + 1e-12 * (np.abs(ends) + abs(c * loss))
        with np.errstate(over="ignore"):
            plain, inverse, powers = np.exp(ends).tolist()
        right = also * (plain + inverse) + powers
    else:
        right = s + np.inf
    # left: R <= 1, and R^power grows by m q e^y / R per step, which falls; w is at least 1/2
    # and grows to 1 (rare: it falls)
    rate = first - max(0.0, -power) * integrand.m * outwards(integrand.rise(-first))
    left = also * 2.0 * math.exp(-0.5 * first**2) * rule.h
    left = left + float(wa[0]) * (1.0 if rare else 2.0)
    left = left / math.expm1(min(rule.h * rate, 700.0)) if rate > _SLOWEST else s + np.inf
    # weights and exponents are within a relative 1e-9 there, and so is a rate that is not tiny
    return outwards(right + left)


def aliased(integrand: Integrand, s: FloatArray, rule: Rule) -> FloatArray:
    """The aliasing of a rule for w P (e^(s L) - 1 + s (e^-L - 1)), for each |s| in ``s``."""
    whole = rule.error(rule.log_moved)
    if integrand.part == "rare":
        return np.full_like(s, whole)
    still = rule.error(float(log_growth(integrand, 1.0, np.array(rule.width))))
    return outwards(whole + still * 2.0 * (1.0 + s))


def moved(
    integrand: Integrand, power: float, at: Nodes, shift: FloatArray, t: FloatArray
) -> FloatArray:
    """ln of h |w P e^(s L)| at the nodes moved to Im x = +-shift, with an upper bound for w.

    There |R^(+-i t)| = e^(-t arg R), arg R > 0. Shapes: ``shift`` and ``t`` (k,), the result
    (k, n) for n nodes.
    """
    square = 0.5 * shift[:, None] ** 2
    real, side, scale = integrand.rotated(at.x, shift)
    modulus = 0.5 * np.log(real * real + side * side) + scale
    base = at.log_weight - at.loss if integrand.remove else at.log_weight
    log = power * modulus + (base + square)  # guard: moving-line-costs
    if integrand.part == "rare":
        log = log + square / integrand.width**2
    if integrand.part == "bulk":
        # |w(x + ia)| <= min(A w, 1 + A (1 - w)) <= w (1 + (2 A + 2) (1 - w))
        spread = 2.0 * np.exp(square / integrand.width**2) + 2.0
        log = log + np.log1p(
            spread * np.exp(log_normal_tail((integrand.edge - at.x) / integrand.width))
        )
    return np.asarray(log - t[:, None] * np.arctan2(side, real))


def _flat(integrand: Integrand, power: float, shift: float, strips: FloatArray) -> FloatArray:
    """ln of an upper bound of phi(x) |R(x + ia)|^power over phi, a = shift, at Im x <= strips.

    For a power < 0, whatever x is: all terms of R are at an angle of at most a right one, so that
    |R| is above its limit on the left. inf where that is not so, or the power is above 0.
    """
    if power > 0.0 or integrand.part:
        return np.full_like(strips, np.inf)
    found = 0.5 * (shift**2 + strips**2) + power * _limit(integrand) * (1.0 + 1e-9)
    return np.where(integrand.m * (shift + strips) <= 0.5 * math.pi, found, np.inf)


def beyond(integrand: Integrand, c: float, t: float, shift: float) -> float:
    """An upper bound of ln |M(c + i t')| for all t' >= t.

    Guarantee: holds for every shift in (0, pi / m): the line of x moves to Im x = +-shift, where
    |R^(i t)| only falls with t. The integral of the modulus is a trapezoidal sum, too:
    |R(x + ia)|^2 = R(x + ia) R(x - ia) is analytic in the strip of width pi / m - a.
    """
    power = integrand.power(c)
    # up to pi / 2 m, arg R(x + i (b + a)) >= arg R(x + i (b - a)): e^(-t arg R) stays below 1
    strips = np.linspace(0.05, 0.97, 24)
    strips *= min(0.5 * math.pi / integrand.m, math.pi / integrand.m - shift, 0.5 * integrand.strip)
    growth = log_growth(integrand, power, shift + strips) + 0.5 * strips**2
    if integrand.part == "bulk":
        growth = growth + ((shift + strips) / integrand.width) ** 2 + 3.0
    flat = _flat(integrand, power, shift, strips)
    growth = np.minimum(growth, flat)
    best = int(np.argmax(strips / (growth + GOAL)))
    h = 2.0 * math.pi * float(strips[best] / (growth[best] + GOAL))
    rule = integrand.rule(power, GOAL, h, strips[best])
    if rule.last - rule.first > MOST_NODES:
        return math.inf
    at = integrand.at(rule)
    log = moved(integrand, power, at, np.array([shift]), np.array([t]))[0]
    # |R(x + ia)| >= R(x) cos(m a / 2)
    units = integrand.rotated_units(at, math.cos(0.5 * integrand.m * shift))
    off = t * units.argument * UNIT  # pays: beyond-argument
    off = off + abs(power) * units.modulus * UNIT  # pays: beyond-modulus
    # logarithm, multiples and sums of the exponent; its weight, whose error has room for exp,
    # and the sum in any order
    size = np.abs(log) + t * integrand.m * shift + 1.0
    size += abs(power) * (np.abs(at.loss) + np.abs(at.scale) + 2.0 * units.share)
    off = off + (LOG + 4.0) * size * UNIT  # pays: beyond-exponent
    off = off + at.weight_error + (log.size + 3.0) * UNIT  # pays: beyond-weight
    total = float(np.sum(np.exp(log) * (1.0 + outwards(np.expm1(off)))))
    wa = at.powers(c)[1]
    ends = float(cut(integrand, c, np.zeros(1), rule, at, wa)[0])
    # e^growth times the integral of w P e^(c L), which its own sum bounds; what is flat is below
    # the growth alone, and M(c) is 1 or more there
    missed = float(rule.error(float(log_growth(integrand, power, np.array(rule.width)))))
    summed = float(np.sum(wa)) + ends
    whole = summed / (1.0 - missed) if missed < 0.5 else math.inf
    # a bulk's factor above is at most 2 A + 3 <= 5 A < e^3 A
    outside = mul_up(exp_up(float(log_growth(integrand, power, np.array(shift))) + 3.0), ends)
    if math.isfinite(flat[best]):
        still = float(flat[best]) - 0.5 * shift**2
        whole = min(whole, max(1.0, summed + float(rule.error(still))))
        end = min(float(at.x[-1]), -float(at.x[0]))
        tails = 2.0 * rule.h * math.exp(-0.5 * end**2) / math.expm1(rule.h * end)
        most = _flat(integrand, power, shift, np.zeros(1))[0]
        outside = min(outside, mul_up(exp_up(float(most)), outwards(tails)))
    total = add_up(
        total,
        mul_up(float(rule.error(growth[best])), outwards(whole)),
        outside,
    )
    return log_up(max(total, 1e-300)) if total < math.inf else math.inf
