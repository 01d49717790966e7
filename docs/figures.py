"""Draws docs/images: ``python docs/figures.py``.

printed.png, from the public API and what other accountants said (``benchmarks/printed.py``). Left:
what DP-SGD costs, over its steps. Right: how far from the certified value each says it, over delta;
printed-narrow.png has this alone.

dpsgd.png, from the public API. Left: what DP-SGD costs as it runs on, by three sound accounts of
the same steps. Right: one run's whole curve. Below each: how far apart the two certified ends are.

contour.png, from the saddle-point engine's own lines. Left: the integrand where one line does. On
the right:
its modulus where a few rare large losses decide, on one line for all and on a line for each number.

risk.png, from the public API. Left: what attacks find, on four runs with the same (eps, delta).
Right: delta(eps) beside the mass of losses above eps.

samplers.svg, from the code of the page Which sampler is mine: one epoch by seven loaders.

stopping.png, from the public API. Left: what stopping early costs, by three accounts with the same
delta. Right: the delta that many stops take together, where each alone takes 1e-5.

tuning.png, from the public API. What choosing the best of many trainings costs, over the mean
number of them, beside one training, all of them, and Renyi divergences.

choices.png, from the public API. Left: what a week of questions has cost after each answer, by
three accounts with the same delta. Right: what selections by the exponential mechanism cost
together.

questions.png, from the answers to drawn questions (``benchmarks/questions.py``): CPU seconds over
rate and delta.

sweep.png, from the public API: a sweep. Left: the least noise of DP-SGD for an eps, and what Renyi
divergences ask for. Right: how much more that is.

buckets-placing.png, buckets-composing.png, buckets-squaring.png, from tb.privacy_buckets on one
small pair: figures 4, 5, 7, 8 and 9 of "Tight on Budget?".

buckets-engine.png, from the engine's measures. Left: one mass a bucket against two. Middle: a
composition with and without its tilt. Right: how the grid grows as runs double.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import tightbudget as tb
from tightbudget.drawing import draw_intervals
from tightbudget.engine.buckets.compose import Demand, Parts, make_plan, power
from tightbudget.engine.buckets.loss_grid import Grid
from tightbudget.engine.buckets.measures import LowerMeasure, Tilt, UpperMeasure, discretise
from tightbudget.engine.buckets.profile import Profile
from tightbudget.engine.cache import Cache
from tightbudget.engine.question import EpsilonAt
from tightbudget.engine.saddle_point.contour import LineIntegral, Lines
from tightbudget.engine.saddle_point.saddle_point import SaddlePoint
from tightbudget.pairs.direction import Direction
from tightbudget.theorems import best_of_many
from tightbudget.theorems import renyi as theorem

IMAGES = Path(__file__).resolve().parent / "images"

DELTA = 1e-5
STEP = tb.Gaussian(sigma=1.0).subsampled(rate=0.01)
ORDERS = [1.0 + 10.0**x for x in np.linspace(-1.0, 1.2, 60)]

BLUE, RED, OCHRE, INK, PALE = "#1f5fa8", "#b3452c", "#b07d12", "#333333", "#8a8a8a"


def renyi_epsilon(divergences: np.ndarray, delta: float) -> float:
    """eps at delta from Renyi divergences at ORDERS (Canonne, Kamath, Steinke 2020)."""
    best = math.inf
    for order, divergence in zip(ORDERS, divergences, strict=True):
        spent = divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        best = min(best, spent)
    return max(0.0, best)


def from_guarantees(steps: int) -> float:
    """eps at DELTA when each step is known by one (eps, delta) only, composed optimally."""
    share = 0.5 * DELTA / steps
    one = tb.compose([STEP]).epsilon(share).upper
    return (tb.ApproximateDP(epsilon=one, delta=share) * steps).epsilon(DELTA, rtol=1e-3).upper


def draw_steps(ax: Axes, below: Axes, renyi: np.ndarray) -> None:
    """eps over the number of steps."""
    steps = np.unique(np.geomspace(1, 100_000, 31).astype(int))
    certified = [(STEP * int(k)).epsilon(DELTA) for k in steps]
    few = steps[steps <= 1_000]
    ax.loglog(few, [from_guarantees(int(k)) for k in few], color=OCHRE, lw=1.6)
    ax.loglog(steps, [renyi_epsilon(renyi * k, DELTA) for k in steps], color=RED, lw=1.6)
    ax.loglog(steps, [b.lower for b in certified], color=BLUE, lw=1.2)
    ax.loglog(steps, [b.upper for b in certified], color=BLUE, lw=1.2)
    ax.set(ylabel="ε at δ = 1e-5", xlim=(1, 1e5), ylim=(0.15, 45))
    ax.set_title("DP-SGD, σ = 1, q = 0.01, step by step", loc="left")
    ax.text(50, 13.5, "each step known by\none (ε, δ) only", color=OCHRE, fontsize=9)
    ax.text(5.3, 1.32, "Rényi divergences", color=RED, fontsize=9)
    ax.text(260, 0.62, "tightbudget: both certified bounds", color=BLUE, fontsize=9)
    draw_gap(below, steps, [b.relative_gap for b in certified])
    below.text(1.2, 1e-7, "buckets", color=BLUE, fontsize=8)
    below.text(30, 1e-11, "saddle-point engine", color=BLUE, fontsize=8)
    below.set(xlabel="steps", xscale="log", xlim=(1, 1e5))


def draw_curve(ax: Axes, below: Axes, renyi: np.ndarray) -> None:
    """delta over eps of one run."""
    epsilons = np.concatenate([np.linspace(0.0, 2.0, 9), np.linspace(2.5, 12.0, 20)])
    curve = (STEP * 1_000).curve(epsilons=epsilons)
    deltas = np.geomspace(1e-45, 0.9, 160)
    ax.axhspan(1e-60, 2.0**-53, color="0.955", lw=0)
    ax.plot([renyi_epsilon(1_000 * renyi, d) for d in deltas], deltas, color=RED, lw=1.6)
    ax.plot(epsilons, curve.lower, color=BLUE, lw=1.2)
    ax.plot(epsilons, curve.upper, color=BLUE, lw=1.2)
    ax.set_yscale("log")
    ax.set(ylabel="δ(ε)", xlim=(0, 12), ylim=(1e-38, 1))
    ax.set_title("1,000 steps of it: the whole curve", loc="left")
    ax.text(5.1, 1e-12, "Rényi divergences", color=RED, fontsize=9)
    ax.text(6.05, 3e-21, "both certified bounds", color=BLUE, ha="right", fontsize=9)
    ax.text(0.25, 2e-37, "δ below 2⁻⁵³: lost in an untilted FFT", color=PALE, fontsize=9)
    draw_gap(below, epsilons, [curve[i].relative_gap for i in range(len(curve))])
    below.text(0.9, 1e-7, "one line", color=BLUE, fontsize=8)
    below.text(6.0, 1e-9, "one more line", color=BLUE, fontsize=8)
    below.set(xlabel="ε", xlim=(0, 12))


def draw_gap(ax: Axes, x: np.ndarray, gaps: list[float]) -> None:
    """(upper - lower) / upper, and what was asked for."""
    ax.axhline(1e-4, color=PALE, lw=0.9, ls=(0, (4, 3)))
    ax.plot(x, gaps, color=BLUE, lw=1.2)
    ax.set_yscale("log")
    ax.set(ylabel="relative gap", ylim=(1e-14, 1e-1), yticks=[1e-14, 1e-9, 1e-4])
    ax.annotate("asked for: 1e-4", (0.985, 1e-3), xycoords=("axes fraction", "data"),
                color=PALE, fontsize=8, ha="right")  # fmt: skip


def draw_dpsgd(figure: Figure) -> None:
    """Costs of DP-SGD, and below each the gap."""
    axes = figure.subplots(2, 2, sharex="col", height_ratios=(4, 1))
    renyi = np.array([tb.compose([STEP]).renyi(order).upper for order in ORDERS])
    draw_steps(*axes[:, 0], renyi)
    draw_curve(*axes[:, 1], renyi)


def placed(step: tb.Mechanism, runs: int, delta: float) -> tuple[SaddlePoint, float, Lines]:
    """The contour for a removed record, eps at delta, and the lines that answered."""
    contour = SaddlePoint.of([(step.pair(Direction.REMOVE).transform(), runs)])
    cache = Cache()
    found = None if contour is None else contour.bounds(EpsilonAt(delta), 1e-9, cache)
    assert contour is not None
    assert found is not None
    return contour, found.upper, cache.lines(0)[0]


def integrand(log: np.ndarray, c: float, t: np.ndarray, epsilon: float) -> np.ndarray:
    """M e^(-s eps) / (s (s + 1)) / pi, from ln(M / (s (s + 1))) at s = c + i t."""
    return np.exp(log - (c + 1j * t) * epsilon) / math.pi


def on_line(contour: SaddlePoint, c: float, t: np.ndarray, epsilon: float) -> np.ndarray:
    """The integrand anywhere on one line."""
    s = c + 1j * t
    return integrand(contour.term.values(c, t, 1e-16)[0] - np.log(s * (s + 1)), c, t, epsilon)


def heights(line: LineIntegral) -> np.ndarray:
    """t at the points of a line."""
    return line.step * np.arange(line.log.size)


def draw_one_line(ax: Axes) -> None:
    """Real part, modulus and trapezoidal points."""
    contour, epsilon, lines = placed(STEP, 1_000, DELTA)
    (line,) = lines.lines
    t, dots = np.linspace(0.0, 8.0, 400), heights(line)
    curve = on_line(contour, line.c, t, epsilon) / DELTA
    ax.fill_between(t, curve.real, color=BLUE, alpha=0.1, lw=0)
    ax.plot(t, np.abs(curve), color=OCHRE, lw=1.6)
    ax.plot(t, curve.real, color=BLUE, lw=1.2)
    ax.plot(dots, integrand(line.log, line.c, dots, epsilon).real / DELTA, "o", ms=3.6, color=BLUE)
    ax.set(xlabel="t, height on the line s = c + it", ylabel="integrand / δ")
    ax.set(xlim=(0, 8), ylim=(-0.08, 0.82))
    ax.set_title("DP-SGD, σ = 1, q = 0.01, 1,000 steps, δ = 1e-5", loc="left")
    ax.text(1.75, 0.36, "modulus", color=OCHRE, fontsize=9)
    ax.text(0.35, 0.16, "real part:\narea 1", color=BLUE, fontsize=9)
    label = f"c = {line.c:.2f}; {dots.size} points,\nthe last one at t = {dots[-1]:.0f}"
    ax.text(4.2, 0.62, label, color=INK, fontsize=9)


def draw_lines(ax: Axes) -> None:
    """The modulus on one line for all, and on one for each number of rare losses."""
    delta, step = 1e-16, tb.Gaussian(sigma=1.0).subsampled(rate=1e-4)
    contour, epsilon, lines = placed(step, 1_000_000, delta)
    c, t = contour.track.near(epsilon).c_at(epsilon), np.linspace(0.0, 40.0, 400)
    ax.plot(t, np.abs(on_line(contour, c, t, epsilon)) / delta, color=RED, lw=1.6)
    ax.text(1.0, 3e7, f"one line for all outputs, c = {c:.1f}", color=RED, fontsize=9)
    names = ("no rare loss", "one rare loss", "two")
    for line, name, color in zip(lines.lines, names, (BLUE, OCHRE, INK), strict=True):
        t = heights(line)
        modulus = np.abs(integrand(line.log, line.c, t, epsilon)) / delta
        ax.plot(t, modulus, "o-", color=color, lw=1.0, ms=2.2)
        beside = modulus[0] * (0.0005 if line.j == 1 else 8.0)
        ax.text(1.0, beside, f"{name}, c = {line.c:.1f}", color=color, fontsize=9)
    ax.set_yscale("log")
    ax.set(xlabel="t, height on each line", ylabel="modulus of the integrand / δ")
    ax.set(xlim=(0, 40), ylim=(1e-16, 3e9), yticks=[10.0**e for e in range(-16, 9, 4)])
    ax.set_title("σ = 1, q = 0.0001, a million steps, δ = 1e-16", loc="left")


def draw_contour(figure: Figure) -> None:
    """The integrand on vertical lines."""
    left, right = figure.subplots(1, 2)
    draw_one_line(left)
    draw_lines(right)


def draw_prices(ax: Axes, schedule: tb.StoppingSchedule) -> None:
    """eps over the step at which the run stops."""
    ax.plot(schedule.stops, schedule.separate, color=OCHRE, lw=1.6)
    ax.plot(schedule.stops, schedule.renyi_filter(), color=RED, lw=1.6)
    ax.plot(schedule.stops, schedule.epsilons, color=BLUE, lw=1.6)
    stops = [*schedule.stops[:4], *schedule.stops[4::5]]
    alone = [(STEP * k).epsilon(DELTA).upper for k in stops]
    ax.plot(stops, alone, color=PALE, lw=1.2, ls=(0, (4, 3)))
    ax.set(xlabel="steps run before stopping", ylabel="price ε", xlim=(0, 1000), ylim=(0, 2.5))
    ax.set_title("DP-SGD, σ = 1, q = 0.01, 50 stops, δ = 1e-5", loc="left")
    labels = {
        "each stop separately": OCHRE,
        "Rényi filter": RED,
        "optimal stopping": BLUE,
        "if the stop were known beforehand": PALE,
    }
    for line, (label, colour) in enumerate(labels.items()):
        ax.text(985, 0.62 - 0.15 * line, label, color=colour, fontsize=9, ha="right")


def draw_together(ax: Axes) -> None:
    """delta of n stops, each of which alone has DELTA."""
    numbers = [1, 2, 4, 8, 20, 50, 125, 250]
    longest = range(4, 1001, 4)
    curve = {k: (STEP * k).epsilon(DELTA, rtol=1e-3).upper for k in longest}
    together = []
    for n in numbers:
        stops = [1000 * (i + 1) // n // 4 * 4 for i in range(n)]
        together.append(tb.stopping_delta(STEP, stops, [curve[k] for k in stops]))
    ax.loglog(numbers, [n * DELTA for n in numbers], color=OCHRE, lw=1.6)
    ax.loglog(numbers, [b.lower for b in together], color=BLUE, lw=1.2, marker="o", ms=3)
    ax.loglog(numbers, [b.upper for b in together], color=BLUE, lw=1.2)
    ax.set(xlabel="stops", ylabel="δ of all together", xlim=(1, 250), ylim=(8e-6, 3e-3))
    ax.set_title("Stops that cost δ = 1e-5 each", loc="left")
    ax.text(22, 6e-4, "added up", color=OCHRE, fontsize=9, ha="right")
    ax.text(28, 3.6e-5, "both certified bounds", color=BLUE, fontsize=9)


def draw_stopping(figure: Figure) -> None:
    """Prices of stopping early, and why they are low."""
    left, right = figure.subplots(1, 2)
    draw_prices(left, tb.early_stopping(STEP, range(20, 1001, 20), DELTA))
    draw_together(right)


def draw_attacks(ax: Axes) -> None:
    """True- over false-positive rates at equal (eps, delta)."""
    runs = {
        "only ε and δ known": (tb.ApproximateDP(2.0, DELTA) * 1, OCHRE),
        "one Gaussian": (tb.calibrate(tb.Gaussian, epsilon=2.0, delta=DELTA).composition, RED),
        "Laplace, 20 times": (
            tb.calibrate(lambda b: tb.Laplace(b) * 20, epsilon=2.0, delta=DELTA).composition, INK
        ),
        "DP-SGD, 1,000 steps": (
            tb.calibrate(
                lambda s: tb.Gaussian(s).subsampled(0.01) * 1_000, epsilon=2.0, delta=DELTA
            ).composition, BLUE,
        ),
    }  # fmt: skip
    rates = np.geomspace(1e-4, 0.99, 60)
    for line, (label, (run, color)) in enumerate(runs.items()):
        missed = run.tradeoff(rates)
        for end in (lambda b: b.lower, lambda b: b.upper):
            ax.loglog(rates, [1.0 - end(b) for b in missed], color=color, lw=1.2)
        ax.text(6e-3, 1.1e-3 / 1.9**line, label, color=color, fontsize=9)
    ax.loglog(rates, rates, color=PALE, lw=1.0, ls=(0, (4, 3)))
    ax.set(xlabel="false-positive rate", ylabel="true-positive rate", xlim=(1e-4, 1))
    ax.set_ylim(1e-4, 1.1)
    ax.set_title("The best attacks at ε = 2, δ = 1e-5", loc="left")


def draw_exceedance(ax: Axes) -> None:
    """delta(eps) and P(L > eps) of one run."""
    run, epsilons = STEP * 1_000, np.linspace(0.0, 5.0, 41)
    risks = [run.risk(float(e)) for e in epsilons]
    for name, color in (("exceedance", RED), ("delta", BLUE)):
        bounds = [getattr(risk, name) for risk in risks]
        for end in (lambda b: b.lower, lambda b: b.upper):
            ax.semilogy(epsilons, [end(b) for b in bounds], color=color, lw=1.2)
    ax.text(2.35, 3e-5, "P(L > ε): the loss is above ε", color=RED, fontsize=9)
    ax.text(0.25, 2e-7, "δ(ε): by how much\nit is above, too", color=BLUE, fontsize=9)
    ax.set(xlabel="ε", ylabel="probability", xlim=(0, 5))
    ax.set_title("DP-SGD, σ = 1, q = 0.01, 1,000 steps", loc="left")


def draw_risk(figure: Figure) -> None:
    """What an epsilon means to an attacker."""
    left, right = figure.subplots(1, 2)
    draw_attacks(left)
    draw_exceedance(right)


NOISE = tb.DiscreteGaussian(sigma=4.0, sensitivity=3)
BUCKETS = tb.privacy_buckets.Buckets.of(NOISE, factor=math.exp(0.3), n=4)
ENDS = [*(str(i).replace("-", "−") for i in BUCKETS.indexes), "∞"]


def with_infinity(tree: tb.privacy_buckets.Buckets) -> np.ndarray:
    """The A-masses of buckets -n .. n and inf."""
    return np.append(tree.masses, tree.infinity)


EPOCHS, RATES, EPSILONS = (1, 10, 100), (0.001, 0.01, 0.1), np.geomspace(0.1, 10.0, 9)
WORKERS: int | None = 2


def exact_noise() -> np.ndarray:
    """The least noise by rate, epochs and eps, at delta = 1e-6."""
    plan = [{"mechanism": "gaussian", "sigma": "$sigma", "rate": "$rate", "times": "$runs"}]
    asked = [
        question
        for rate in RATES
        for question in tb.sweeps.questions(
            plan,
            {"rate": [rate], "runs": [round(e / rate) for e in EPOCHS], "epsilon": EPSILONS},
            find="sigma",
            epsilon="$epsilon",
            delta=1e-6,
        )
    ]
    found = [answer.value for answer in tb.sweep(asked, WORKERS)]
    return np.array(found, dtype=float).reshape(len(RATES), len(EPOCHS), len(EPSILONS))


def renyi_noise(rate: float, runs: int, epsilon: float, least: float) -> float:
    """The least noise, from a lower bound, for which Renyi divergences prove (eps, 1e-6)."""
    orders = [*range(2, 65), *(round(2 ** (j / 8)) for j in range(49, 97))]
    low, high = math.log(least), math.log(8.0 * least)
    while high - low > 1e-4:
        middle = 0.5 * (low + high)
        step = functools.partial(theorem.subsampled_gaussian, sigma=math.exp(middle), rate=rate)
        proved = theorem.epsilon(theorem.RenyiTable.of(step, orders), 1e-6, runs).upper
        low, high = (low, middle) if proved <= epsilon else (middle, high)
    return math.exp(high)


def draw_noise(figure: Figure) -> None:
    """What exact bounds save."""
    left, right = figure.subplots(1, 2)
    exact = exact_noise()
    for i, (rate, colour) in enumerate(zip(RATES, (OCHRE, BLUE, RED), strict=True)):
        for j, (epochs, dashes) in enumerate(zip(EPOCHS, (":", "--", "-"), strict=True)):
            asked = [
                renyi_noise(rate, round(epochs / rate), eps, least)
                for eps, least in zip(EPSILONS, exact[i, j], strict=True)
            ]
            more = 100.0 * (np.array(asked) / exact[i, j] - 1.0)
            right.loglog(EPSILONS, more, color=colour, ls=dashes, lw=1.4)
            if epochs == 10:
                left.loglog(EPSILONS, exact[i, j], color=colour, lw=1.6)
                left.loglog(EPSILONS, asked, color=colour, ls=(0, (2, 2)), lw=1.2)
                left.text(0.1, 1.15 * asked[0], f"rate {rate:g}", color=colour, fontsize=9)
    left.set(xlabel="ε at δ = 1e-6", ylabel="noise σ", ylim=(0.3, 90))
    left.set_title("The least noise for 10 epochs of DP-SGD", loc="left")
    left.text(0.9, 20.0, "dashed: Rényi divergences", color=INK, fontsize=9)
    left.set_yticks([0.3, 1, 3, 10, 30], ["0.3", "1", "3", "10", "30"])
    right.set(xlabel="ε at δ = 1e-6", ylabel="more noise than needed, %", ylim=(2, 150))
    right.set_yticks([2, 5, 10, 20, 50, 100], ["2", "5", "10", "20", "50", "100"])
    right.set_title("What Rényi accounting adds to it", loc="left")
    for dashes, epochs in zip(
        (":", "--", "-"), ("1 epoch", "10 epochs", "100 epochs"), strict=True
    ):
        right.plot([], [], color=INK, ls=dashes, lw=1.4, label=epochs)
    for ax in (left, right):
        ax.set_xticks([0.1, 0.3, 1.0, 3.0, 10.0], ["0.1", "0.3", "1", "3", "10"])
    right.legend(frameon=False, fontsize=9)


def draw_placed(ax: Axes) -> None:
    """Figure 4: outputs of both masses, and what one mass at the bucket's edge forgets."""
    atoms, step = NOISE.pair(Direction.REMOVE).atoms(), BUCKETS.log_factor
    loss, a, b = atoms.loss_upper, atoms.p.upper, atoms.q.upper
    index = np.ceil(loss / step)
    for i in BUCKETS.indexes[::2]:
        ax.axvspan((i - 1) * step, i * step, color="0.955", lw=0)
    for i, name in enumerate(ENDS, -BUCKETS.n):
        ax.text((i - 0.5) * step, 0.1235, name, color=PALE, fontsize=8, ha="center")
    within = index <= BUCKETS.n
    least = a[within] * np.exp(-index[within] * step)
    ax.vlines(loss[within], least, b[within], color=RED, lw=2.2)
    ax.plot(loss, a, "o", color=BLUE, ms=4)
    ax.plot(loss, b, "o", color=OCHRE, ms=4)
    ax.plot(loss[within], least, "_", color=OCHRE, ms=7, mew=1.4)
    ax.set(xlim=(-5 * step, 5 * step), ylim=(0, 0.131))
    ax.set(xlabel="privacy loss ln A/B of an output", ylabel="mass")
    ax.set_title("Placing: bucket i keeps A, and takes A/fⁱ for B", loc="left")
    ax.text(1.06, 0.084, "A", color=BLUE, fontsize=9)
    ax.text(-1.13, 0.084, "B", color=OCHRE, fontsize=9)
    ax.text(0.13, 0.0655, "A/fⁱ", color=OCHRE, fontsize=9)
    ax.text(-0.25, 0.0815, "error ℓ", color=RED, fontsize=9)


def draw_both_directions(ax: Axes) -> None:
    """Figure 5: A against B upwards, B against A downwards."""
    against = tb.privacy_buckets.Buckets.of(
        NOISE, factor=BUCKETS.factor, n=BUCKETS.n, direction=Direction.ADD
    )
    places = np.arange(len(ENDS))
    colours = [PALE, *[BLUE] * 8, RED]
    ax.bar(places, with_infinity(BUCKETS), color=colours, width=0.86)
    ax.bar(places, -with_infinity(against), color=colours, width=0.86, alpha=0.45)
    ax.axhline(0.0, color=INK, lw=0.8)
    ax.set_xticks(places, ENDS)
    ax.set(xlabel="bucket", ylabel="mass", ylim=(-0.24, 0.24))
    ax.set_yticks([-0.2, -0.1, 0, 0.1, 0.2], ["0.2", "0.1", "0", "0.1", "0.2"])
    ax.set_title("Both directions have their own buckets", loc="left")
    ax.text(-0.3, 0.205, "A against B", color=BLUE, fontsize=9)
    ax.text(-0.3, -0.22, "B against A", color=BLUE, fontsize=9, alpha=0.6)
    ax.text(9.4, 0.135, "above fⁿ", color=RED, fontsize=8, ha="right")


def draw_placing(figure: Figure) -> None:
    """Figures 4 and 5."""
    left, right = figure.subplots(1, 2)
    draw_placed(left)
    draw_both_directions(right)


def draw_pairs_of_buckets(ax: Axes) -> None:
    """Figure 7 and the left of figure 8: which pairs of buckets meet in bucket 2."""
    n, size = BUCKETS.n, BUCKETS.masses.size
    products = np.outer(BUCKETS.masses, BUCKETS.masses)
    ax.imshow(products, origin="lower", cmap="Greys", vmin=0, vmax=0.12, zorder=2)
    for j in range(size):
        for k in range(size):
            i = j + k - 2 * n
            name = ENDS[min(max(i, -n), n + 1) + n]
            colour = RED if i > n else BLUE if i == 2 else INK
            weight = "bold" if i == 2 else "normal"
            ax.text(k, j, name, color=colour, fontsize=8, ha="center", va="center", weight=weight)
    ax.plot([n + 4], [n - 2], "s", mfc="none", mec=BLUE, ms=15, mew=1.4, zorder=3)
    ax.set_xticks(range(size), ENDS[:-1])
    ax.set_yticks(range(size), ENDS[:-1])
    ax.set(xlabel="bucket of the second run", ylabel="bucket of the first run")
    ax.set_title("Indexes add up: −2 and 4 go to bucket 2", loc="left")


def draw_sums(ax: Axes) -> None:
    """The right of figure 8: the composition's buckets, and what each pair adds to bucket 2."""
    twice, n = BUCKETS.compose(BUCKETS), BUCKETS.n
    places = np.arange(len(ENDS))
    ax.bar(places, with_infinity(twice), color=[PALE, *["#b9cbe2"] * 8, RED], width=0.86)
    base = 0.0
    for j in range(2 - n, n + 1):
        part = BUCKETS.masses[j + n] * BUCKETS.masses[2 - j + n]
        ax.bar(n + 2, part, bottom=base, color=BLUE, edgecolor="white", lw=0.6, width=0.86)
        base += part
    ax.plot(places, with_infinity(BUCKETS), "_", color=INK, ms=15, mew=1.2)
    ax.set_xticks(places, ENDS)
    ax.set(xlabel="bucket", ylabel="A-mass", ylim=(0, 0.4))
    ax.set_title("Composing: seven products make bucket 2", loc="left")
    ax.text(6.0, 0.115, "−2 + 4, …, 4 − 2", color=BLUE, fontsize=9, ha="center")
    ax.text(4.5, 0.195, "one run", color=INK, fontsize=9, ha="right")
    ax.text(8.4, 0.34, "above fⁿ", color=RED, fontsize=9, ha="right")


def draw_composing(figure: Figure) -> None:
    """Figures 7 and 8."""
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
    draw_pairs_of_buckets(left)
    draw_sums(right)


def draw_squaring(figure: Figure) -> None:
    """Figure 9: buckets 2i - 1 and 2i become bucket i; the factor is squared."""
    ax = figure.subplots()
    fine, coarse, n = BUCKETS, BUCKETS.squared(), BUCKETS.n
    shades = [PALE, *np.repeat([BLUE, OCHRE], 2), *np.repeat([BLUE, OCHRE], 2), RED]
    places, lift = np.arange(len(ENDS)), 0.46
    ax.bar(places, with_infinity(fine), bottom=lift, color=shades, width=0.86)
    after = [PALE, PALE, PALE, BLUE, OCHRE, BLUE, OCHRE, PALE, PALE, RED]
    ax.bar(places, with_infinity(coarse), color=after, width=0.86)
    goes = [*(math.ceil(i / 2) + n for i in fine.indexes), len(ENDS) - 1]
    for start, end, shade in zip(places, goes, shades, strict=True):
        tip = (end, with_infinity(coarse)[end] + 0.012)
        arrow = {"arrowstyle": "-|>", "color": shade, "lw": 1.0}
        ax.annotate("", tip, (start, lift - 0.05), arrowprops=arrow)
    for k, name in enumerate(ENDS):
        ax.text(k, lift - 0.035, name, color=INK, fontsize=8, ha="center")
    ax.axhline(lift, color=PALE, lw=0.8)
    ax.set_xticks(places, ENDS)
    ax.set_yticks([])
    ax.set(xlabel="bucket", ylim=(0, lift + 0.23), xlim=(-0.7, 9.7))
    ax.set_title("Squaring: bucket i takes 2i − 1 and 2i", loc="left")
    ax.text(-0.6, lift + 0.19, "before: factor f", color=INK, fontsize=9)
    ax.text(-0.6, 0.2, "after: factor f²", color=INK, fontsize=9)


def measures(
    mechanism: tb.Mechanism, top: float, n: int, theta: float
) -> tuple[UpperMeasure, LowerMeasure, float]:
    """One run on n buckets between -top and top, and what lies beyond."""
    hair = Fraction(1e-14 * top)  # so that what is at -top and top is not beyond by rounding
    grid = Grid(hair - Fraction(top), 2.0 * top / n)
    return discretise(mechanism.pair(Direction.REMOVE), grid, n + 2, Tilt(theta, Fraction(0)))


def draw_gaps(ax: Axes) -> None:
    """The gap of 256 runs on ever finer buckets: one mass, with error correction, two masses."""
    mechanism, runs, epsilon = tb.Laplace(20.0), 256, 1.0
    numbers = [2**k for k in range(5, 12)]
    one, corrected, two = [], [], []
    for n in numbers:
        factor = math.exp(0.1 / n)
        tree = tb.privacy_buckets.Trees.of(mechanism * runs, factor=factor, n=n).directions[0]
        gain = np.maximum(0.0, -np.expm1(epsilon - tree.log_factor * tree.indexes))
        definition_5 = tree.infinity + float(np.sum(tree.masses * gain))
        bounds = tree.delta(epsilon)
        one.append(1.0 - bounds.lower / definition_5)
        corrected.append(bounds.relative_gap)
        upper, lower, beyond = measures(mechanism, 0.05, n, 4.0)
        for _ in range(8):
            upper, lower = upper * upper, lower * lower
        lost = tb.Bounds(0.0, runs * beyond)
        two.append(Profile.of(upper, lower, lost, math.inf, 0.0).delta(epsilon).relative_gap)
    for gaps, colour in ((one, RED), (corrected, OCHRE), (two, BLUE)):
        ax.loglog(numbers, gaps, color=colour, lw=1.4, marker="o", ms=3)
    ax.set(xlabel="buckets for one run", ylabel="relative gap of δ(1)", ylim=(1e-8, 3))
    ax.set_title("256 runs of Laplace noise", loc="left")
    ax.text(2000, 0.35, "one mass", color=RED, fontsize=9, ha="right")
    ax.text(600, 0.008, "with error\ncorrection", color=OCHRE, fontsize=9, ha="right")
    ax.text(300, 3e-6, "two masses", color=BLUE, fontsize=9)


def draw_tilt(ax: Axes) -> None:
    """What an FFT leaves of a composition's masses, without and with a tilt."""
    for theta, colour, width in ((0.0, RED, 1.0), (20.0, BLUE, 1.6)):
        measure = measures(tb.Laplace(20.0), 0.05, 128, theta)[0]
        for _ in range(8):
            measure = measure * measure
        x = measure.grid.losses(len(measure))[0]
        with np.errstate(divide="ignore"):
            log = np.log(measure.values) + measure.exponent * math.log(2.0) - theta * x
        shown = np.isfinite(log) & (x > -1.5) & (x < 8.0)
        ax.semilogy(x[shown][::16], np.exp(log[shown][::16]), color=colour, lw=width)
    ax.set(xlabel="privacy loss, nats", ylabel="A-mass of a bucket", ylim=(1e-30, 1))
    ax.set(xlim=(-1.5, 8), yticks=[1e-30, 1e-20, 1e-10, 1])
    ax.set_title("The same runs, by FFT", loc="left")
    ax.text(7.9, 1e-17, "no tilt", color=RED, fontsize=9, ha="right")
    ax.text(4.2, 2e-3, "tilt e^(20 x)", color=BLUE, fontsize=9)


def draw_grid(ax: Axes) -> None:
    """How wide the engine's window and its buckets are as runs double."""
    steps = Parts.of((tb.Laplace(20.0) * 2**20).pairs(Direction.REMOVE))
    saddle = steps.picture.for_delta(DELTA)
    plan = make_plan(steps, Demand(saddle, 1e-4 * saddle.spread**2, 1e-6, 1e-6))
    (layout,) = plan.layouts
    one = discretise(layout.part.pair, layout.grid, layout.n, layout.tilt)[0]
    runs = [2**k for k in range(0, 21, 2)]
    held = [power(one, k, plan) for k in runs]
    buckets = np.array([len(measure) for measure in held])
    widths = np.array([measure.grid.step for measure in held])
    ax.loglog(runs, buckets * widths, color=INK, lw=1.4, marker="o", ms=3)
    ax.loglog(runs, widths, color=BLUE, lw=1.4, marker="o", ms=3)
    ax.fill_between(runs, widths, buckets * widths, color=BLUE, alpha=0.07, lw=0)
    ax.set(xlabel="runs", ylabel="nats")
    ax.set_title("Up to a million runs", loc="left")
    ax.text(60, 20.0, "all buckets", color=INK, fontsize=9, ha="right")
    ax.text(2e3, 4e-3, "one bucket", color=BLUE, fontsize=9)
    text = f"{buckets.min():,} to {buckets.max():,} buckets"
    ax.text(1e3, 0.3, text, color=PALE, fontsize=9, ha="center")


def draw_engine(figure: Figure) -> None:
    """Two masses, tilting, an evolving grid."""
    left, middle, right = figure.subplots(1, 3)
    draw_gaps(left)
    draw_tilt(middle)
    draw_grid(right)


def save(name: str, height: float, draw: Callable[[Figure], None], width: float = 10.0) -> None:
    """Draws and writes one picture, in the style of all."""
    figure = Figure(figsize=(width, height), layout="constrained")
    draw(figure)
    for ax in figure.axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(PALE)
        ax.tick_params(which="both", color=PALE, labelcolor=INK, labelsize=9)
        ax.minorticks_off()
        ax.grid(True, color="0.92", lw=0.8)
        ax.set_axisbelow(True)
        ax.title.set(fontsize=11, color=INK)
    figure.align_ylabels()
    IMAGES.mkdir(exist_ok=True)
    nothing = ("Software",) if name.endswith(".png") else ("Creator", "Date", "Format", "Type")
    with matplotlib.rc_context({"svg.hashsalt": "tightbudget"}):  # equal pictures, equal files
        figure.savefig(IMAGES / name, dpi=160, metadata=dict.fromkeys(nothing))


def off(said: float | None, truth: tb.Bounds) -> float:
    """How far an answer is from the interval, in percent of it: 0 inside, nan for no answer."""
    if said is None:
        return math.nan
    return 100.0 * (said - min(max(said, truth.lower), truth.upper)) / truth.upper


def printed() -> Any:
    """What other accountants said when ``benchmarks/printed.py`` asked them."""
    file = IMAGES.parents[1] / "benchmarks" / "printed.json"
    return json.loads(file.read_text(encoding="utf-8"))


PRINTED = {"Opacus GDP": OCHRE, "dp-accounting PLD": "#2e7d4f", "Opacus PRV": "#7b4ea3",
           "Opacus RDP": RED}  # fmt: skip


def draw_said_by_steps(ax: Axes, said: Any) -> None:
    """eps over the number of steps, as each prints it."""
    steps = said["many_steps"]
    step = tb.Gaussian(sigma=said["sigma"]).subsampled(rate=said["rate"])
    truth = [(step * k).epsilon(said["delta"], rtol=1e-6) for k in steps]
    for name in ("Opacus GDP", "Opacus RDP"):
        ax.loglog(steps, said["said"][name]["by_steps"], color=PRINTED[name], lw=1.4)
    ax.loglog(steps, [b.upper for b in truth], color=BLUE, lw=2.0)
    ax.loglog(steps, [b.lower for b in truth], color=BLUE, lw=2.0)
    ax.set(xlabel="steps", ylabel=f"ε at δ = {said['delta']:.0e}".replace("e-0", "e-"))
    ax.set(xlim=(10, 1e5), ylim=(0.1, 40), yticks=[0.1, 0.3, 1, 3, 10, 30])
    ax.set_xticks([10, 100, 1_000, 10_000, 100_000], ["10", "100", "1,000", "10,000", "100,000"])
    ax.set_yticklabels(["0.1", "0.3", "1", "3", "10", "30"])
    ax.set_title("What DP-SGD costs: σ = 1, q = 0.01", loc="left")
    ax.text(12, 1.95, "Opacus, RDP: too much", color=RED, fontsize=9)
    ax.text(40, 0.135, "Opacus, GDP: too little", color=OCHRE, fontsize=9)
    ax.text(2_000, 1.1, "tightbudget: both\ncertified bounds", color=BLUE, fontsize=9)


def draw_said_by_delta(ax: Axes, said: Any) -> None:
    """How far off each is, from one run, as delta shrinks."""
    deltas = said["many_deltas"]
    run = tb.Gaussian(sigma=said["sigma"]).subsampled(rate=said["rate"]) * said["steps"]
    truth = [run.epsilon(delta, rtol=1e-9) for delta in deltas]
    ax.axhspan(-1e3, 0.0, color="#f6e5e1", lw=0)
    for name, color in PRINTED.items():
        found = [off(*x) for x in zip(said["said"][name]["by_delta"], truth, strict=True)]
        ax.plot(deltas, found, color=color, lw=1.4, marker="o", ms=2.8)
        if math.isnan(found[-1]):  # no answer from here on
            last = max(i for i, x in enumerate(found) if not math.isnan(x))
            ax.plot(deltas[last], found[last], "x", color=color, ms=8, mew=1.8)
    ax.plot(deltas, [0.0] * len(deltas), color=BLUE, lw=2.4)
    ax.set_xscale("log")
    ax.set_yscale("symlog", linthresh=1e-3, linscale=0.6)
    ax.set(xlabel=f"δ, after {said['steps']:,} steps", xlim=(2e-3, 3e-16), ylim=(-200, 900))
    ax.set_yticks([-100, -1, -0.01, 0, 0.01, 1, 100], ["−100 %", "−1 %", "−0.01 %", "0", "+0.01 %",
                  "+1 %", "+100 %"])  # fmt: skip
    ax.set_xticks([1e-3, 1e-6, 1e-9, 1e-12, 1e-15], ["1e-3", "1e-6", "1e-9", "1e-12", "1e-15"])
    ax.set_title("How far off the ε is that each prints", loc="left")
    ax.text(1.2e-3, 33, "Opacus, RDP", color=RED, fontsize=9)
    ax.text(1.2e-3, 1.3, "Opacus, PRV", color=PRINTED["Opacus PRV"], fontsize=9)
    ax.text(1.2e-3, 1.7e-3, "dp-accounting, PLD", color=PRINTED["dp-accounting PLD"], fontsize=9)
    ax.text(1.2e-3, -62, "Opacus, GDP", color=OCHRE, fontsize=9)
    ax.text(1.2e-3, -1.6e-3, "tightbudget: its bounds are 1e-12 apart", color=BLUE, fontsize=9,
            va="top")  # fmt: skip
    ax.text(1.2e-3, -0.13, "less ε than is spent", color=RED, fontsize=9, style="italic")
    ax.text(6e-16, 260, "× no answer beyond", color=PALE, fontsize=8, ha="right")


def draw_printed_narrow(figure: Figure) -> None:
    """How far off each is, for a narrow screen."""
    ax = figure.subplots()
    draw_said_by_delta(ax, printed())
    for text in ax.texts:  # which would reach a line
        text.set_text(text.get_text().replace(" are ", " are\n"))


def draw_printed(figure: Figure) -> None:
    """What other accountants print of DP-SGD, beside certified bounds."""
    said = printed()
    left, right = figure.subplots(1, 2, width_ratios=(4, 5))
    draw_said_by_steps(left, said)
    draw_said_by_delta(right, said)


def loaders(sigma: float) -> dict[str, tb.Composable]:
    """Returns one epoch by each loader of the page that has the picture, by the page's own code."""
    page = (IMAGES.parent / "how-to" / "which-sampler.md").read_text(encoding="utf-8")
    code, names = page.split("```python\n")[1].split("\n\nfor ")[0], dict[str, Any]()
    exec(compile(code, "which-sampler.md", "exec"), names)
    found: dict[str, tb.Composable] = names["loaders"](sigma)
    return found


def draw_samplers(figure: Figure) -> None:
    """One epoch of DP-SGD by seven loaders: certified intervals."""
    ax = figure.subplots()
    runs = loaders(1.0)
    found = {name: run.epsilon(DELTA) for name, run in runs.items()}
    colours = {name: BLUE if x.relative_gap <= 1e-4 else OCHRE for name, x in found.items()}
    draw_intervals(found, ax, colours=colours)
    ax.set_title("One epoch: 1,000 steps on batches of 60 of 60,000 records, σ = 1, δ = 1e-5",
                 loc="left")  # fmt: skip
    ax.text(0.985, 0.97, "blue: both bounds meet\nochre: from what no bound can be below\n"
            "to what holds for all data sets", color=INK, fontsize=9, ha="right", va="top",
            transform=ax.transAxes)  # fmt: skip


def draw_tuning(figure: Figure) -> None:
    """What a search costs over its mean number of trials, and what is mostly reported."""
    ax = figure.subplots()
    run = tb.Gaussian(1.5).subsampled(0.01) * 1000
    means = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000]
    found = [run.best_of(tb.trials.NegativeBinomial(m)).epsilon(DELTA) for m in means]
    one = run.epsilon(DELTA).upper

    @functools.cache
    def divergence(order: float) -> tb.Bounds:
        return run.renyi(order, rtol=1e-3)

    def by_renyi(mean: float) -> float:
        number = best_of_many.Repetitions(mean=mean, shape=1)
        best = best_of_many.BestOfMany(divergence, number)
        return float(theorem.epsilon(best.table, DELTA).upper)

    ax.semilogx(means, [by_renyi(m) for m in means], color=RED, lw=1.4)
    ax.fill_between(means, [b.lower for b in found], [b.upper for b in found], color=BLUE, lw=0,
                    alpha=0.25)  # fmt: skip
    ax.semilogx(means, [b.upper for b in found], color=BLUE, lw=1.6)
    ax.semilogx(means, [b.lower for b in found], color=BLUE, lw=1.0)
    seen = [m for m in means if m <= 20]
    ax.semilogx(seen, [(run * m).epsilon(DELTA).upper for m in seen], color=INK, lw=1.4)
    ax.semilogx(means, [one] * len(means), color=OCHRE, lw=1.6)
    ax.set(xlabel="mean number of trials", ylabel="ε at δ = 1e-5", xlim=(1, 1000), ylim=(0, 4))
    ax.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    ax.set_title("The best of a geometric number of DP-SGD trainings", loc="left")
    ax.text(4.2, 3.1, "all of them seen", color=INK, fontsize=9, ha="right")
    ax.text(110, 3.2, "Rényi divergences", color=RED, fontsize=9, ha="right")
    ax.text(110, 1.45, "the best alone: both bounds", color=BLUE, fontsize=9)
    ax.text(110, 0.6, "one training, as mostly reported", color=OCHRE, fontsize=9)


def after_each_answer(delta: float) -> dict[str, list[float]]:
    """What a menu of 12 counts and 4 means has cost after each answer, for each account."""
    menu = {"count": (tb.Laplace(10.0), 12), "mean": (tb.Gaussian(8.0), 4)}
    priced = tb.workflows.priced(tb.workflows.Workflow.menu(menu), delta=delta)
    reached = [(3 * i, i) for i in (1, 2, 3, 4)]  # three counts, a mean, and so on
    path = sorted(
        {(min(3 * i + k, 3 * i + 3), i) for i in range(4) for k in (1, 2, 3)} | {*reached}
    )
    divergences = {
        (a, b): [a * theorem.laplace(o, 10.0).upper + b * theorem.gaussian(o, 8.0).upper
                 for o in ORDERS_OF_CHOICES]
        for a, b in path
    }  # fmt: skip
    # an order is chosen before the first question: the best one for all that may be asked
    whole = [
        d + math.log1p(-1 / o) - math.log(delta * o) / (o - 1)
        for d, o in zip(divergences[path[-1]], ORDERS_OF_CHOICES, strict=True)
    ]
    best = int(np.argmin(whole))
    beside = whole[best] - divergences[path[-1]][best]
    return {
        "workflow": [priced.prices[state] for state in path],
        "everything": [(tb.Laplace(10.0) * 12 + tb.Gaussian(8.0) * 4).epsilon(delta).upper]
        * len(path),
        "renyi": [divergences[state][best] + beside for state in path],
        "zcdp": [concentrated_epsilon(a * 0.1**2 / 2 + b / (2 * 8.0**2), delta) for a, b in path],
    }


def concentrated_epsilon(rho: float, delta: float) -> float:
    """eps at delta of rho-zCDP, by the best order (Canonne, Kamath, Steinke 2020)."""
    return min(
        rho * o + math.log1p(-1 / o) - math.log(delta * o) / (o - 1) for o in ORDERS_OF_CHOICES
    )


ORDERS_OF_CHOICES = [1.0 + 10.0**x for x in np.linspace(-1.0, 2.5, 400)]


def draw_choices(figure: Figure) -> None:
    """What declared choices cost, and what they replace."""
    left, right = figure.subplots(1, 2)
    found = after_each_answer(1e-6)
    answers = np.arange(1, len(found["workflow"]) + 1)
    left.step(answers, found["everything"], color=INK, lw=1.4, where="mid")
    left.plot(answers, found["renyi"], color=RED, lw=1.4)
    left.plot(answers, found["zcdp"], color=OCHRE, lw=1.4)
    left.plot(answers, found["workflow"], color=BLUE, lw=1.6, marker="o", ms=3)
    left.set(xlabel="answers so far", ylabel="ε at δ = 1e-6", xlim=(0.5, 16.5), ylim=(0, 2.6))
    left.set_title("Twelve counts, four means: stop when you like", loc="left")
    left.text(1.2, 1.82, "all composed, whatever was asked", color=INK, fontsize=9)
    left.text(9.0, 2.2, "fully adaptive zCDP", color=OCHRE, fontsize=9, ha="right")
    left.text(1.2, 1.32, "Rényi filter", color=RED, fontsize=9)
    left.text(8.0, 0.5, "the price of each state", color=BLUE, fontsize=9)

    runs = [1, 2, 3, 5, 8, 12, 20, 30, 45, 70, 100, 150, 200]
    selects = [(tb.ExponentialMechanism(0.1) * k).epsilon(1e-6) for k in runs]
    pure = [(tb.ApproximateDP(0.1) * k).epsilon(1e-6).upper for k in runs]
    zcdp = [concentrated_epsilon(k * 0.1**2 / 8, 1e-6) for k in runs]
    right.plot(runs, pure, color=INK, lw=1.4)
    right.plot(runs, zcdp, color=OCHRE, lw=1.4)
    right.plot(runs, [b.lower for b in selects], color=BLUE, lw=1.2)
    right.plot(runs, [b.upper for b in selects], color=BLUE, lw=1.6)
    right.set(xlabel="selections, each of epsilon 0.1", xlim=(0, 200), ylim=(0, 7.5))
    right.set_title("Selections, each chosen after the last answer", loc="left")
    right.text(95, 5.4, "pure privacy, composed", color=INK, fontsize=9, ha="right")
    right.text(60, 2.35, "zCDP", color=OCHRE, fontsize=9, ha="right")
    right.text(110, 1.6, "both bounds", color=BLUE, fontsize=9)


LEAST = 1e-40  # a delta below is drawn there


def draw_questions(figure: Figure) -> None:
    """CPU seconds of drawn questions over rate and delta; an empty circle is no answer."""
    file = IMAGES.parents[1] / "benchmarks" / "questions.json"
    asked = json.loads(file.read_text(encoding="utf-8"))
    points = [point for one in asked["seeds"].values() for point in one["points"]]
    ax = figure.subplots()
    limits = (0.1, 1.0, 3.0, 10.0, float(asked["limit"]))
    shades = ["#c6dbef", "#6baed6", "#2171b5", "#08306b", INK]
    for i, (limit, shade) in enumerate(zip(limits, shades, strict=True)):
        least = limits[i - 1] if i else 0.0
        some = [
            p for p in points if p[2] is not None and least <= p[2] < limit and p[1] is not None
        ]
        x, y = [p[0] for p in some], [max(LEAST, p[1]) for p in some]
        ax.scatter(x, y, s=14, color=shade, label=f"below {limit:g} s: {len(some)}", lw=0)
    none = [p for p in points if p[2] is None and p[1] is not None]
    missing = sum(p[2] is None and p[1] is None for p in points)
    x, y = [p[0] for p in none], [max(LEAST, p[1]) for p in none]
    ax.scatter(
        x,
        y,
        s=22,
        facecolors="none",
        edgecolors=RED,
        label=f"no answer: {len(none)}\n(and {missing} where δ is asked)",
    )
    ax.set(
        xscale="log", yscale="log", xlabel="rate of a step", ylabel="δ (1e-40 where it is smaller)"
    )
    ax.set_title(f"CPU time of {len(points)} drawn questions with one rate", loc="left")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)


def main() -> None:
    """Writes the pictures."""
    save("questions.png", 4.2, draw_questions)
    save("choices.png", 3.4, draw_choices)
    save("tuning.png", 3.4, draw_tuning, width=7.0)
    save("samplers.svg", 3.9, draw_samplers)
    save("printed.png", 4.0, draw_printed)
    save("printed-narrow.png", 4.0, draw_printed_narrow, width=4.4)
    save("dpsgd.png", 4.6, draw_dpsgd)
    save("contour.png", 3.7, draw_contour)
    save("stopping.png", 3.9, draw_stopping)
    save("risk.png", 3.9, draw_risk)
    save("sweep.png", 3.0, draw_noise)

    save("buckets-placing.png", 3.6, draw_placing)
    save("buckets-composing.png", 3.9, draw_composing)
    save("buckets-squaring.png", 3.4, draw_squaring)
    save("buckets-engine.png", 3.4, draw_engine)


if __name__ == "__main__":
    main()
