"""The two kinds of graphs of Section 7: delta over e^epsilon, and both over the rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from papers.finding import Finding, Verdict
from papers.look import BLUE, GREEN, INK, OCHRE, PALE, RED, picture
from papers.meiser_mohammadi_2018.vuvuzela import (
    ADDED,
    CLIPPED,
    TARGET,
    Noise,
    View,
    clipped_counts,
    closest_delta,
)

import tightbudget as tb

__all__ = [
    "READINGS",
    "draw_graphs",
    "draw_over_rounds",
    "graph",
    "graphs",
    "judged",
    "judged_over_rounds",
    "meets",
    "orders",
    "original",
    "over_rounds",
]

READINGS = {CLIPPED: "clipped after moving, as the paper writes", ADDED: "added to the count"}
DELTAS = [1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12]
E_EPSILONS = [1.25, 1.6, 2.0, 3.5]
_ENDS: dict[str, dict[str, Any]] = {"lower": {"lw": 5, "alpha": 0.3}, "upper": {"lw": 1.4}}
_COLOURS = (RED, BLUE, GREEN, OCHRE, INK)
_SLACK = 1e-5  # what the original analysis gives to advanced composition's own delta


def original(noise: Noise, view: View, runs: int) -> tuple[float, float]:
    """The original analysis: (epsilon, delta) of Laplace noise by advanced composition.

    A count that moves by s is (s/scale, e^((s - mean)/scale)/2)-DP; counts add up.
    """
    counts = clipped_counts(view(noise, ADDED))
    step_epsilon = sum(c.shift / c.scale for c in counts)
    step_delta = sum(0.5 * math.exp((c.shift - c.mean) / c.scale) for c in counts)
    delta = runs * step_delta + _SLACK
    return tb.theorems.advanced.epsilon(step_epsilon, step_delta, runs, delta).upper, delta


# ------------------------------------------------------------------- delta over e^epsilon


def graph(rounds: tb.Composition) -> dict[str, Any]:
    """Points of the curve, certified: epsilon at falling delta, down to 1e-12.

    Where some outputs tell the neighbours apart for certain, the curve soon runs flat: then it
    is delta at rising epsilon.
    """
    certain, most = rounds.delta(math.inf), closest_delta(rounds, 0.0, 5e-2)
    points = [(tb.Bounds(0.0, 0.0), most)]
    if certain.lower > DELTAS[-1]:
        for x in E_EPSILONS:
            epsilon = math.log(x)
            points.append((tb.Bounds(epsilon, epsilon), closest_delta(rounds, epsilon, 5e-2)))
    else:
        deltas = [d for d in DELTAS if d < 0.5 * most.lower]
        epsilons = rounds.curve(deltas=deltas, rtol=2e-2)
        points += [(epsilons[i], tb.Bounds(d, d)) for i, d in enumerate(deltas)]
    return {
        "points": [{"epsilon": e.to_dict(), "delta": d.to_dict()} for e, d in points],
        "delta at infinity": certain.to_dict(),
        **at_the_target(rounds),
    }


def at_the_target(rounds: tb.Composition) -> dict[str, Any]:
    """delta at the target's epsilon."""
    return {"delta at the target": closest_delta(rounds, TARGET[0]).to_dict()}


def graphs(
    cases: Mapping[int, Sequence[Noise]], views: Mapping[str, View], readings: Sequence[str]
) -> dict[str, Any]:
    """By rounds, reading and noise: graphs as the first view has them.

    Of the first noise of each case also delta at the target, as the other views have it.
    """
    (_, first), *others = views.items()
    found: dict[str, Any] = {}
    for runs, noises in cases.items():
        new, *olds = noises
        old = next(noise for noise in olds if noise.kind == "laplace")
        epsilon, delta = original(old, first, runs)
        found[str(runs)] = {"original": {"noise": str(old), "epsilon": epsilon, "delta": delta}}
        for reading in readings:
            of = {str(noise): graph(first(noise, reading) * runs) for noise in noises}
            seen = {
                f"{new}, {name}": at_the_target(view(new, reading) * runs) for name, view in others
            }
            found[str(runs)][reading] = of | seen
    return found


def meets(found: dict[str, Any]) -> bool:
    """Whether a graph meets the target for certain; what does not misses it for certain."""
    bounds = tb.Bounds(**found["delta at the target"])
    if bounds.lower <= TARGET[1] < bounds.upper:
        raise tb.PrecisionError(f"{bounds} is too close to the target", *bounds.to_dict().values())
    return bounds.upper <= TARGET[1]


def orders(found: dict[str, Any], old: dict[str, Any]) -> float:
    """By how many powers of ten, at least, delta is below the original at its epsilon."""
    below = [
        point["delta"]["upper"]
        for point in found["points"]
        if point["epsilon"]["upper"] <= old["epsilon"]
    ]
    return max(0.0, math.log10(old["delta"] / min(below)))


def judged(numbers: dict[str, Any], readings: Sequence[str]) -> Finding:
    """Which of the new noise meets the target, and by how much the old was better than known.

    The claim matches if the new noise meets the target however it is read and seen.
    """
    said, held = [], []
    for runs, found in numbers.items():
        new = next(iter(found[readings[0]]))
        said.append(f"{int(runs):,} rounds")
        for reading in readings:
            results, better = [], []
            for name, one in found[reading].items():
                if name.startswith(new):
                    held.append(meets(one))
                    bounds = tb.Bounds(**one["delta at the target"])
                    results.append(f"{name} {'meets' if held[-1] else 'misses'} it, delta {bounds}")
                else:
                    better.append(f"{name} {orders(one, found['original']):.1f}")
            said.append(
                f"{READINGS[reading]}: {', '.join(results)}; orders of magnitude below the "
                f"original bound, at least: {', '.join(better)}"
            )
    in_part = any(held) and not all(held)
    verdict = Verdict.IN_PART if in_part else Verdict.of(all(held))
    return Finding("The target is e^epsilon <= 2, delta <= 1e-4. " + ". ".join(said) + ".", verdict)


def draw_graphs(numbers: dict[str, Any], path: Path, readings: Sequence[str]) -> None:
    """A row for each reading, a panel for each number of rounds."""
    with picture(path, panels=len(numbers), rows=len(readings)) as axes:
        panels = iter(axes)
        for reading in readings:
            for runs, found in numbers.items():
                ax = next(panels)
                old = found["original"]
                dot = math.exp(old["epsilon"]), old["delta"]
                ax.plot(*dot, "D", color=INK, ms=6, label=f"{old['noise']}, original analysis")
                for colour, (name, one) in zip(_COLOURS, found[reading].items(), strict=False):
                    _curve(ax, one, colour, name)
                _target(ax)
                ax.set(xlabel=r"$e^{\epsilon}$", ylabel="δ", xlim=(0.98, 3.5), ylim=(1e-12, 1.0))
                ax.set_yscale("log")
                ax.set_title(f"{int(runs):,} rounds; {READINGS[reading]}", loc="left")
                ax.legend(frameon=False, fontsize=7.5)


def _curve(ax: Axes, one: dict[str, Any], colour: str, label: str) -> None:
    if "points" not in one:  # one number is all that is asked of this observer
        delta = one["delta at the target"]["upper"]
        ax.plot(math.exp(TARGET[0]), delta, "o", color=colour, ms=5, mfc="none", label=label)
        return
    for end, look in _ENDS.items():
        x = [math.exp(point["epsilon"][end]) for point in one["points"]]
        y = [point["delta"][end] for point in one["points"]]
        ax.plot(x, y, color=colour, label=label if end == "upper" else None, **look)


def _target(ax: Axes) -> None:
    ax.fill_between([1.0, math.exp(TARGET[0])], 1e-300, TARGET[1], color="#3d7a45", alpha=0.12)


# --------------------------------------------------------------------------- over rounds


def over_rounds(
    olds: Sequence[Noise], new: Noise, view: View, counts: Sequence[int]
) -> dict[str, Any]:
    """The original analysis of each old noise, and the new one's certified ends.

    epsilon of the new noise is at the delta, delta at the epsilon, that the original analysis
    has for the last of the old ones: below it in both graphs means better than it.
    """
    by_noise = {str(old): [original(old, view, runs) for runs in counts] for old in olds}
    last = by_noise[str(olds[-1])]
    return {
        "rounds": list(counts),
        "original": {
            name: {"epsilon": [e for e, _ in ends], "delta": [d for _, d in ends]}
            for name, ends in by_noise.items()
        },
        "new": {
            reading: [
                _both(view(new, reading) * runs, epsilon, delta)
                for runs, (epsilon, delta) in zip(counts, last, strict=True)
            ]
            for reading in READINGS
        },
    }


def _both(rounds: tb.Composition, epsilon: float, delta: float) -> dict[str, Any]:
    none = rounds.delta(math.inf).lower >= delta  # then no epsilon will do
    return {
        "epsilon": None if none else rounds.epsilon(delta, rtol=1e-2).to_dict(),
        "delta": closest_delta(rounds, epsilon).to_dict(),
    }


def draw_over_rounds(numbers: dict[str, Any], new: Noise, path: Path) -> None:
    """Left e^epsilon, right delta."""
    with picture(path, panels=2) as (left, right):
        rounds = numbers["rounds"]
        for colour, (name, old) in zip(
            (GREEN, OCHRE, BLUE), numbers["original"].items(), strict=True
        ):
            left.plot(
                rounds, [math.exp(e) for e in old["epsilon"]], color=colour, ls="--", label=name
            )
            right.plot(rounds, old["delta"], color=colour, ls="--", label=name)
        for (reading, points), colour in zip(numbers["new"].items(), (RED, INK), strict=True):
            label = f"{new}, certified; {READINGS[reading]}"
            some = [(r, p["epsilon"]) for r, p in zip(rounds, points, strict=True) if p["epsilon"]]
            for end, look in (
                ("lower", {"lw": 5, "alpha": 0.3}),
                ("upper", {"lw": 1.4, "label": label}),
            ):
                left.plot(
                    [r for r, _ in some], [math.exp(e[end]) for _, e in some], color=colour, **look
                )
                right.plot(rounds, [p["delta"][end] for p in points], color=colour, **look)
        left.axhline(math.exp(TARGET[0]), color=PALE, ls=":")
        right.axhline(TARGET[1], color=PALE, ls=":")
        left.set(xlabel="rounds", ylabel=r"$e^{\epsilon}$", ylim=(0.9, 4.0), xscale="log")
        right.set(xlabel="rounds", ylabel="δ", xscale="log", yscale="log", ylim=(1e-7, 1.0))
        for ax in (left, right):
            ax.legend(frameon=False, fontsize=7.5)


def judged_over_rounds(numbers: dict[str, Any]) -> Finding:
    """Where the new noise is below the highest of the old ones, in both graphs and for certain."""
    *_, (name, last) = numbers["original"].items()
    said, held = [], []
    for reading, points in numbers["new"].items():
        below = [
            runs
            for runs, point, epsilon, delta in zip(
                numbers["rounds"], points, last["epsilon"], last["delta"], strict=True
            )
            if point["epsilon"] and point["epsilon"]["upper"] <= epsilon
            if point["delta"]["upper"] <= delta
        ]
        held.append(len(below) / len(points))
        which = ", ".join(f"{runs:,}" for runs in below) or "none"
        said.append(f"{READINGS[reading]}: {which}")
    in_part = any(held) and min(held) < 1
    verdict = Verdict.IN_PART if in_part else Verdict.of(all(held))
    return Finding(
        f"Below the original bounds of {name} in both graphs, of the rounds "
        f"{numbers['rounds'][0]:,} to {numbers['rounds'][-1]:,}. " + ". ".join(said) + ".",
        verdict,
    )
