"""Planning for a sampled Gaussian's transform: the nodes that it needs, its size, its shape.

Nothing here is certified: a plan decides what an answer costs and how wide it is, never whether
it is true.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tightbudget.mechanisms.gaussian_integrand import Integrand, Nodes, Rule
from tightbudget.mechanisms.gaussian_transform_bounds import log_growth, log_moved, moved
from tightbudget.numerics.rounding import FloatArray
from tightbudget.numerics.special import log_normal_tail
from tightbudget.pairs.transform import Rough

# standard deviations: the integrand peaks at x = c m, and a rule has at least three nodes for each
# unit of x on the way there
_FARTHEST = 1000.0
# Where the largest of many c takes more nodes than _LONG, _TOGETHER neighbours share a rule: of 28
# c up to 3,000 times the least, all but seven take an eighth of the nodes or fewer.
_LONG, _TOGETHER = 2_000, 7


def farthest(integrand: Integrand) -> float:
    """The largest c for which the engine should try the line Re s = c."""
    # the integrand of the largest losses peaks at about c m; beyond the bulk's edge slower
    if not integrand.remove:
        return math.inf
    slower = 1.0 + 1.0 / integrand.width**2 if integrand.part == "bulk" else 1.0
    return slower * _FARTHEST / integrand.m


def about_log_delta(integrand: Integrand, epsilon: float) -> float:
    """About ln delta(eps) of one step, for a removed record and eps > 0; -inf otherwise."""
    if not integrand.remove or epsilon <= 0.0:
        return -math.inf
    m, log_q = integrand.m, math.log(integrand.q)
    # delta = q P(N > x - m) - (e^eps - 1 + q) P(N > x), where the loss is eps at x
    above = epsilon + math.log1p((integrand.q - 1.0) * math.exp(-epsilon)) - log_q
    x = above / m + 0.5 * m
    log_mass, log_other = log_normal_tail(np.array([x - m, x])).tolist()
    less = above + log_other - log_mass
    return log_q + log_mass + math.log(-math.expm1(less)) if less < 0.0 else -math.inf


def valley(integrand: Integrand, c: float) -> float | None:
    """An x that parts the bulk from the rare large losses of the pair tilted by e^(c L)."""
    power = integrand.power(c)
    x = np.arange(0.0, max(power, 0.0) * integrand.m + 9.0, 1.0 / 16.0)
    rises = np.diff(power * integrand.about_log_r(x) - x * x / 2) > 0
    if not rises.any():
        return None
    rare = int(np.flatnonzero(rises)[-1])  # the last maximum is behind it
    falls = np.flatnonzero(~rises[:rare])
    return float(x[int(falls[-1]) + 1]) if falls.size else None


def rough(integrand: Integrand, c: FloatArray) -> Rough:
    """ln M and its derivatives at each c > 0, best in ascending order."""
    rule = rough_rule(integrand, float(np.max(c)))
    if rule.last - rule.first > _LONG and c.size > _TOGETHER:
        # smaller c need fewer nodes
        parts = [rough(integrand, c[i : i + _TOGETHER]) for i in range(0, c.size, _TOGETHER)]
        return Rough(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    at = planned_nodes(integrand, rule)
    with np.errstate(over="ignore", invalid="ignore"):
        a, wa = at.powers(c)
        slope, second = wa @ at.loss, wa @ at.loss**2
        if integrand.part == "rare":
            value = np.sum(wa, axis=1)
            log = np.log(value)
        else:
            low = np.minimum(a, 1.0)
            less = np.where(a < 1.0, at.weight * (np.expm1(low) - low), wa - at.weight * (1 + a))
            lost = integrand.left_out
            centred = np.sum(less, axis=1) + c * (at.mean - lost.slope) - lost.mass
            value, log = 1.0 + centred, np.log1p(centred)
        slope = slope / value
        return Rough(log, slope, second / value - slope**2)


def shifts(integrand: Integrand, c: float, t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """About the least value of ``beyond(c, t, shift)`` for each t, and the shift that has it."""
    at = rough_nodes(integrand, c)
    weight = at.powers(c)[1]
    # a^2/2 - t a E[dL/dx] is least at a = t E[dL/dx]
    best = t * integrand.m * float(weight @ at.pull) / float(np.sum(weight))
    if integrand.part == "rare":  # there w costs (a / width)^2 / 2 everywhere
        best = best / (1.0 + 1.0 / integrand.width**2)
    most = 0.9 * min(math.pi / integrand.m, 6.0)
    if integrand.part:  # e^(a^2 / (2 width^2)) is a double
        most = min(most, 36.0 * integrand.width)
    found = np.full_like(t, np.inf), np.zeros_like(t)
    for factor in (0.03, 0.1, 0.3, 1.0):
        shift = np.minimum(factor * best, most)
        with np.errstate(over="ignore"):
            sizes = np.exp(moved(integrand, integrand.power(c), at, shift, t))
        bound = np.log(np.sum(sizes, axis=1))
        better = bound < found[0]
        found = np.where(better, bound, found[0]), np.where(better, shift, found[1])
    return found


def rough_nodes(integrand: Integrand, c: float) -> Nodes:
    """The ingredients at the nodes of :func:`rough_rule`."""
    return planned_nodes(integrand, rough_rule(integrand, c))


def rough_rule(integrand: Integrand, c: float) -> Rule:
    """A rule that tells M(c) to some digits; c of the same order share one rule."""
    # few bits, so that every node is a double; and few digits need no nodes within a narrow step
    smooth = max(0.125, 0.5 * integrand.width) if integrand.part else 1.0
    finest = min(0.3, 0.8 / integrand.m, smooth)
    h = 2.0 ** math.floor(math.log2(finest))
    last = 16 * math.ceil((integrand.farthest_peak(integrand.power(c)) + 9.0) / (16 * h))
    first = 16 * math.floor((integrand.nearest_peak(integrand.power(c)) - 9.0) / (16 * h))
    return Rule(h, first, last, 0.0)


def rule_for(integrand: Integrand, c: float, t: float, tolerance: float) -> Rule:
    """The rule with about the fewest nodes for an error of about tolerance, relative to M(c)."""
    goal = math.log(8.0 / tolerance) + 4.0
    widths = np.array([0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97]) * integrand.strip
    logs = log_moved(integrand, c, t, widths, goal)
    sizes = logs - _log_size(integrand, c)
    if integrand.part != "rare":  # s times e^-L - 1 is taken by the same rule
        still = log_growth(integrand, 1.0, widths) + math.log(2.0 * (1.0 + abs(c) + t))
        sizes = np.maximum(sizes, still)
    needed = np.nan_to_num(sizes + goal, nan=np.inf)
    best = int(np.argmax(widths / needed))
    h = 2.0 * math.pi * max(float(widths[best] / needed[best]), 1e-6)
    reach = goal if integrand.part == "rare" else goal + math.log1p(abs(c) + t)
    rule = integrand.rule(integrand.power(c), reach, h, float(widths[best]))
    return rule._replace(log_moved=float(logs[best]))


def _log_size(integrand: Integrand, c: float) -> float:
    """About ln M(c) of a rare part; 0 for the others, whose M(c) is about 1 or more."""
    size = float(rough(integrand, np.array([c])).value[0]) if integrand.part == "rare" else 0.0
    return size if math.isfinite(size) else 0.0


# 256 rules: room for a dozen sampled mechanisms; no measurement says that it is best


@functools.lru_cache(maxsize=256)
def planned_nodes(integrand: Integrand, rule: Rule) -> Nodes:
    """The ingredients at the nodes of a rule for planning, kept for the next plan."""
    return integrand.at(rule)


@functools.lru_cache(maxsize=256)
def rule_of_line(integrand: Integrand, c: float, t: float, tolerance: float) -> Rule:
    """The rule for a line up to the height t, kept since its cost is asked before its values."""
    return rule_for(integrand, c, t, tolerance)
