"""Draws docs/images: ``python docs/figures.py``.

dpsgd.png, from the public API. Left: what DP-SGD costs as it runs on, by three sound accounts of
the same steps. Right: one run's whole curve. Below each: how far apart the two certified ends are.

contour.png, from the contour engine's own lines. Left: the integrand where one line does. Right:
its modulus where a few rare large losses decide, on one line for all and on a line for each number.

risk.png, from the public API. Left: what attacks find, on four runs with the same (eps, delta).
Right: delta(eps) beside the mass of losses above eps.

stopping.png, from the public API. Left: what stopping early costs, by three accounts with the same
delta. Right: the delta that many stops take together, where each alone takes 1e-5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import tightbudget as tb
from tightbudget.pairs.pair import Direction
from tightbudget.pld.contour import Contour, Line, Lines

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
    return (tb.WorstCase(epsilon=one, delta=share) * steps).epsilon(DELTA, rtol=1e-3).upper


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
    ax.text(260, 0.62, "tightbudget: both certified ends", color=BLUE, fontsize=9)
    draw_gap(below, steps, [b.relative_gap for b in certified])
    below.text(1.2, 1e-7, "two masses", color=BLUE, fontsize=8)
    below.text(30, 1e-11, "contour engine", color=BLUE, fontsize=8)
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
    ax.text(6.05, 3e-21, "both certified ends", color=BLUE, ha="right", fontsize=9)
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


def placed(step: tb.Mechanism, runs: int, delta: float) -> tuple[Contour, float, Lines]:
    """The contour for a removed record, eps at delta, and the lines that answered."""
    contour = Contour.of([(step.pair(Direction.REMOVE).transform(), runs)])
    memory: list[Lines] = []
    found = None if contour is None else contour.epsilon(delta, 1e-9, memory)
    assert contour is not None
    assert found is not None
    return contour, found.upper, memory[-1]


def integrand(log: np.ndarray, c: float, t: np.ndarray, epsilon: float) -> np.ndarray:
    """M e^(-s eps) / (s (s + 1)) / pi, from ln(M / (s (s + 1))) at s = c + i t."""
    return np.exp(log - (c + 1j * t) * epsilon) / math.pi


def on_line(contour: Contour, c: float, t: np.ndarray, epsilon: float) -> np.ndarray:
    """The integrand anywhere on one line."""
    s = c + 1j * t
    return integrand(contour.term.values(c, t, 1e-16)[0] - np.log(s * (s + 1)), c, t, epsilon)


def heights(line: Line) -> np.ndarray:
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
    ax.text(28, 3.6e-5, "both certified ends", color=BLUE, fontsize=9)


def draw_stopping(figure: Figure) -> None:
    """Prices of stopping early, and why they are low."""
    left, right = figure.subplots(1, 2)
    draw_prices(left, tb.early_stopping(STEP, range(20, 1001, 20), DELTA))
    draw_together(right)


def draw_attacks(ax: Axes) -> None:
    """True- over false-positive rates at equal (eps, delta)."""
    runs = {
        "only ε and δ known": (tb.WorstCase(2.0, DELTA) * 1, OCHRE),
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


def save(name: str, height: float, draw: Callable[[Figure], None]) -> None:
    """Draws and writes one picture, in the style of all."""
    figure = Figure(figsize=(10.0, height), layout="constrained")
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
    figure.savefig(IMAGES / name, dpi=160, metadata={"Software": None})


def main() -> None:
    """Writes the pictures."""
    save("dpsgd.png", 4.6, draw_dpsgd)
    save("contour.png", 3.7, draw_contour)
    save("stopping.png", 3.9, draw_stopping)
    save("risk.png", 3.9, draw_risk)


if __name__ == "__main__":
    main()
