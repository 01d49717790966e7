"""Pictures of certified bounds and of prices, from plain arrays.

This is the one module that needs matplotlib (the extra ``plot``), which it imports on use. A value
that can be drawn, as a curve, hands its arrays down to here.
"""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tightbudget.errors import ExtraError, FileError
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import FloatArray

_FORMATS = (".png", ".svg", ".pdf")

_STEP = 0.01  # the relative distance of two points on a chord: less than a line is wide
_FLOOR = 1e-9  # of the chord to a delta of 0: the part of its other end below which it is not drawn

_NAMED = 30  # states of a graph whose names are legible
_GRID = "#e5e5e5"
_METADATA = ("Creator", "Date", "Format", "Type")  # what matplotlib would write about the file
# A colour that no picture has: in an inline picture it becomes that of the text around it.
_TEXT = "#010203"


def draw_bounds(
    x: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    *,
    given: str,
    ax: Any = None,
    label: str | None = None,
) -> Any:
    """Draws lower and upper bounds over eps, with delta on a log axis.

    The points are certified. delta is convex in e^eps, since it is a supremum of P(S) - e^eps Q(S);
    so it lies below the chord of two upper bounds. The line of the upper bounds is made of such
    chords: up to its own width, it holds between the points, too. That of the lower bounds only
    joins them. Bounds that are closer than a line is wide still show: the upper one is a thin dark
    line on top of the wide pale lower one. Points at infinity, and delta = 0, are off the axes.

    Args:
        x: (n,) eps in nats, or delta.
        lower: (n,) lower bounds of the other of the two.
        upper: (n,) upper bounds of the other of the two.
        given: what x is, "epsilon" or "delta".
        ax: matplotlib axes to draw on; new ones if absent.
        label: for the legend.

    Returns:
        The axes.

    Raises:
        ExtraError: matplotlib is not installed.
    """
    ax = _axes(ax)
    if not ax.has_data():
        ax.set_yscale("log")
        _dress(ax, "privacy loss ε (nats)", "δ(ε)")
    low, high = _drawable(lower), _drawable(upper)
    name = f"{label}: " if label else ""
    (pale,) = ax.plot(
        *_epsilon_first(x, low, given), linewidth=5.0, alpha=0.35, solid_capstyle="round",
        label=f"{name}certified lower bound, at the points",
    )  # fmt: skip
    colour = pale.get_color()
    band = ax.fill_between if given == "epsilon" else ax.fill_betweenx
    band(x, low, high, color=colour, alpha=0.35, lw=0)
    symbol = "δ" if given == "epsilon" else "ε"
    along, marks = _chords(*_epsilon_first(x, high, given))
    ax.plot(
        *along, linewidth=1.4, marker="o", markersize=2.5, markevery=marks, color=_darker(colour),
        label=f"{name}certified upper bound, also between points{_apart(lower, upper, symbol)}",
    )  # fmt: skip
    ax.legend(frameon=False, fontsize="small")
    return ax


def draw_prices(
    stops: Sequence[int], prices: Mapping[str, tuple[Sequence[float], str]], ax: Any = None
) -> Any:
    """Draws prices in nats over the numbers of steps after which a run may stop.

    Args:
        stops: (n,) the numbers of steps.
        prices: for each label of the legend, (n,) prices and the colour of their line.
        ax: matplotlib axes to draw on; new ones if absent.

    Returns:
        The axes.

    Raises:
        ExtraError: matplotlib is not installed.
    """
    ax = _axes(ax)
    _dress(ax, "steps run before stopping", "price ε (nats)")
    for label, (epsilons, colour) in prices.items():
        drawn = _drawable(np.array(epsilons))
        ax.plot(stops, drawn, color=colour, linewidth=1.6, marker="o", markersize=2.5,
                label=label)  # fmt: skip
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False)
    return ax


def draw_graph(
    depths: Mapping[Any, int],
    moves: Sequence[tuple[Any, Any]],
    prices: Mapping[Any, float],
    ax: Any = None,
) -> Any:
    """Draws the states of a workflow from left to right, coloured by their prices in nats.

    Up to 30 states have their names and prices beside them; a state without a price is white.

    Args:
        depths: for each state the largest number of moves before it.
        moves: pairs of states, from one to the next.
        prices: of the states where one may stop.
        ax: matplotlib axes to draw on; new ones if absent.

    Returns:
        The axes.

    Raises:
        ExtraError: matplotlib is not installed.
    """
    ax = _axes(ax)
    columns: dict[int, list[Any]] = {}
    for state, depth in depths.items():
        columns.setdefault(depth, []).append(state)
    before: dict[Any, list[Any]] = {}
    for first, then in moves:
        before.setdefault(then, []).append(first)
    places: dict[Any, tuple[float, float]] = {}
    for depth in sorted(columns):
        # each state about as high as those before it, so that few lines cross
        heights = {
            state: float(np.mean([places[one][1] for one in before.get(state, [])] or [0.0]))
            for state in columns[depth]
        }
        column = sorted(columns[depth], key=heights.__getitem__, reverse=True)
        for i, state in enumerate(column):
            places[state] = (depth, (len(column) - 1) / 2 - i)
    for first, then in moves:
        (x, y), (u, v) = places[first], places[then]
        ax.plot([x, u], [y, v], color="#b8b8b8", linewidth=0.8, zorder=1)
    priced = [state for state in depths if state in prices]
    others = [state for state in depths if state not in prices]
    ax.scatter(
        *zip(*(places[state] for state in others), strict=True) if others else ([], []),
        color="white", edgecolor="#555555", s=40, zorder=2,
    )  # fmt: skip
    dots = ax.scatter(
        *zip(*(places[state] for state in priced), strict=True),
        c=[prices[state] for state in priced], cmap="viridis_r", s=40, zorder=2,
    )  # fmt: skip
    if len(depths) <= _NAMED:
        for state, place in places.items():
            price = f"\n{prices[state]:.3f}" if state in prices else ""
            ax.annotate(f"{state}{price}", place, (0, 7), textcoords="offset points",
                        ha="center", fontsize="small")  # fmt: skip
    ax.margins(0.08, 0.18)
    ax.set_yticks([])
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("moves before the state")
    for side in ("left", "right", "top"):
        ax.spines[side].set_visible(False)
    ax.figure.colorbar(dots, ax=ax, label="price ε (nats)")
    return ax


def draw_intervals(
    intervals: Mapping[str, Bounds], ax: Any = None, *, colours: Mapping[str, str] | None = None
) -> Any:
    """Draws intervals below each other on one log axis, each with its bounds in digits beside it.

    Bounds that are closer than a line is wide show as a point. A lower bound of 0 is off the axis,
    and so is an upper bound at infinity: the bar then goes to the end of the axis.

    Args:
        intervals: the bounds in nats by their label, from the top down.
        ax: matplotlib axes to draw on; new ones if absent.
        colours: the colour of an interval by its label, where it is not that of all others.

    Returns:
        The axes.

    Raises:
        ExtraError: matplotlib is not installed.
    """
    ax = _axes(ax)
    ax.set_xscale("log")
    _dress(ax, "privacy loss ε (nats)", "")
    ax.grid(visible=False, axis="y")
    ends = [x for bounds in intervals.values() for x in bounds if 0 < x < math.inf]
    low, high = min(ends, default=1.0) / 2, max(ends, default=1.0) * 2
    for y, (label, bounds) in enumerate(intervals.items()):
        colour = (colours or {}).get(label, "C0")
        left, right = max(bounds.lower, low), min(bounds.upper, high)
        ax.plot([left, right], [y, y], color=colour, linewidth=7.0, solid_capstyle="butt")
        ax.plot([left, right], [y, y], color=_darker(colour), linestyle="", marker="|",
                markersize=11.0, markeredgewidth=1.6)  # fmt: skip
        near = bounds.relative_gap <= 1e-3
        text = f"{bounds.upper:.4g}" if near else f"{bounds:.4g}"
        ax.annotate(text, (right, y), (9, 0), textcoords="offset points", va="center")
    ax.set_yticks(range(len(intervals)), intervals)
    ax.set_ylim(len(intervals) - 0.5, -0.5)
    ax.set_xlim(low, high * 4)
    return ax


def draw_tradeoff(
    fpr: FloatArray,
    fnr: FloatArray | None,
    points: Sequence[tuple[Bounds, Bounds]],
    *,
    ax: Any = None,
    label: str | None = None,
) -> Any:
    """Draws a trade-off curve, and boxes that hold the two error rates of attacks.

    Args:
        fpr: (n,) false-positive rates, rising.
        fnr: (n,) the least false-negative rates; None draws no curve.
        points: for each attack, bounds of its false-positive and its false-negative rate.
        ax: matplotlib axes to draw on; new ones if absent.
        label: for the legend.

    Returns:
        The axes.

    Raises:
        ExtraError: matplotlib is not installed.
    """
    ax = _axes(ax)
    _dress(ax, "false-positive rate", "false-negative rate")
    name = f"{label}: " if label else ""
    ax.plot([0, 1], [1, 0], color="#8a8a8a", linewidth=1.0, linestyle=":", label="guessing")
    if fnr is not None:
        ax.plot(
            fpr, fnr, color="C0", linewidth=1.8, label=f"{name}no attack is below, by the claim"
        )
        ax.fill_between(fpr, 0.0, fnr, color="C0", alpha=0.12, lw=0)
    for i, (x, y) in enumerate(points):
        ax.fill([x.lower, x.upper, x.upper, x.lower], [y.lower, y.lower, y.upper, y.upper],
                facecolor="C1", edgecolor=_darker("C1"), alpha=0.65, linewidth=1.0,
                label=None if i else f"{name}the attack, each box alone")  # fmt: skip
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.0, 1.0)
    ax.legend(frameon=False, fontsize="small")
    return ax


@contextmanager
def picture(path: str | Path, title: str | None) -> Iterator[Any]:
    """Gives axes to draw on, and writes them to the path in the format that its name ends in.

    Raises:
        ExtraError: matplotlib is not installed.
        FileError: another ending than .png, .svg or .pdf, or it cannot be written there.
    """
    path = picture_path(path)
    # a figure of its own, that no window system and no other figure knows of
    figure = _matplotlib("figure").Figure(figsize=(6.4, 4.4), layout="constrained")
    ax = figure.subplots()
    yield ax
    if title:
        ax.set_title(title, loc="left", fontsize="medium")
    try:
        figure.savefig(path, dpi=160)
    except OSError as error:
        raise FileError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def draw_points(groups: Mapping[str, Sequence[float]], label: str, ax: Any = None) -> Any:
    """Draws groups of numbers beside each other: each number a point, and a line at the mean.

    Args:
        groups: the numbers by the name of their group, from the left.
        label: of the axis of numbers.
        ax: matplotlib axes to draw on; new ones if absent.

    Returns:
        The axes.

    Raises:
        ExtraError: matplotlib is not installed.
    """
    ax = _axes(ax)
    _dress(ax, "", label)
    ax.grid(visible=False, axis="x")
    for x, values in enumerate(groups.values()):
        ordered = np.sort(np.asarray(values, dtype=np.float64))
        places = x + np.linspace(-0.3, 0.3, ordered.size + 2)[1:-1]
        ax.plot(places, ordered, "o", color="C0", markersize=4.0, alpha=0.7)
        ax.hlines(ordered.mean(), x - 0.35, x + 0.35, color=_darker("C0"), linewidth=1.6)
    ax.set_xticks(range(len(groups)), groups)
    ax.set_ylim(bottom=0.0)
    return ax


def inline_picture(draw: Callable[[Any], object], said: str) -> str:
    """Draws a picture as SVG that stands in a page: its text and axes have the page's colour.

    The same picture is the same text, also in another process.

    Args:
        draw: draws on the axes that it is given.
        said: what a screen reader says in the place of the picture; plain words.

    Raises:
        ExtraError: matplotlib is not installed.
    """
    matplotlib, file = _matplotlib(""), io.StringIO()
    parts = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    with matplotlib.rc_context({**dict.fromkeys(parts, _TEXT), "svg.hashsalt": "tightbudget"}):
        figure = _matplotlib("figure").Figure(figsize=(6.4, 4.4), layout="constrained")
        draw(figure.subplots())
        figure.savefig(file, format="svg", transparent=True, metadata=dict.fromkeys(_METADATA))
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace(_TEXT, "currentColor")
    to_hex = _matplotlib("colors").to_hex
    for colour in (to_hex("C0"), to_hex(_darker("C0"))):  # the first curve, on a dark page brighter
        svg = svg.replace(colour, f"var(--tb-spent, {colour})")
    svg = svg.replace(f"stroke: {_GRID}", "stroke: currentColor; stroke-opacity: 0.15")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{said}" ', 1)


def picture_path(path: str | Path) -> Path:
    """The path, if a picture can be written under that name.

    Raises:
        FileError: another ending than .png, .svg or .pdf.
    """
    path = Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise FileError(f"{path}: the name must end in {', '.join(_FORMATS)}")
    return path


def _axes(ax: Any) -> Any:
    """The given axes, or new ones."""
    if ax is not None:
        return ax
    return _matplotlib("pyplot").subplots(figsize=(6.4, 4.4), layout="constrained")[1]


def _dress(ax: Any, x: str, y: str) -> None:
    """Labels the axes, and draws a grid behind the lines."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.grid(True, which="major", color=_GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _matplotlib(module: str) -> Any:
    """A module of matplotlib; the package itself if its name is empty."""
    try:
        # by name: the types of an optional dependency stay out of this package's own
        return importlib.import_module(f"matplotlib.{module}".rstrip("."))
    except ImportError as error:
        raise ExtraError("plots need matplotlib: pip install 'tightbudget[plot]'") from error


def _drawable(values: FloatArray) -> FloatArray:
    """The values, with nan (which is not drawn) in the place of infinities."""
    return np.where(np.isfinite(values), values, np.nan)


def _epsilon_first(x: FloatArray, y: FloatArray, given: str) -> tuple[FloatArray, FloatArray]:
    """The pair (eps, delta), where x is the one that is given."""
    return (x, y) if given == "epsilon" else (y, x)


def _chords(epsilon: FloatArray, delta: FloatArray) -> tuple[FloatArray, list[int]]:
    """Goes from point to point along the chords that are straight in delta and e^eps.

    Args:
        epsilon: (n,) nats; nan for a point that is not drawn.
        delta: (n,) >= 0; nan for a point that is not drawn.

    Returns:
        (2, m) points on the way, and the indices of those that were given. On a log axis a chord is
        concave, so that a line between two points on the way is below it: by 1 % at most, which is
        the distance of their deltas.
    """
    ways, marks = [np.empty((2, 0))], []
    points = np.array([epsilon, delta])
    for i in range(points.shape[1]):
        if i:
            ways.append(_chord(points[:, i - 1], points[:, i]))
        ways.append(points[:, i : i + 1])
        marks.append(sum(way.shape[1] for way in ways) - 1)
    return np.concatenate(ways, axis=1), marks


def _chord(start: FloatArray, end: FloatArray) -> FloatArray:
    """Lists the points between two ends of a chord, (2, m), each with a delta 1 % from the last."""
    if start[1] < end[1]:
        return _chord(end, start)[:, ::-1]
    (e0, d0), (e1, d1) = start, end
    last = d1 if d1 > 0.0 else _FLOOR * d0  # a log axis has no place for the end at 0
    if not (d0 > last > 0.0 and np.isfinite([e0, e1]).all()):
        return np.empty((2, 0))
    steps = math.ceil(math.log(d0 / last) / _STEP)
    delta = np.geomspace(d0, last, steps, endpoint=False)[1:]
    near, far = (d0 - delta) / (d0 - d1), (delta - d1) / (d0 - d1)  # they sum to 1
    return np.array([np.logaddexp(e0 + np.log(far), e1 + np.log(near)), delta])


def _apart(lower: FloatArray, upper: FloatArray, symbol: str) -> str:
    """A note for the legend: the largest relative gap of the bounds, rounded up to one digit."""
    ends = zip(lower.tolist(), upper.tolist(), strict=True)
    gap = max((Bounds(low, high).relative_gap for low, high in ends), default=0.0)
    if not 0 < gap < math.inf:
        return ""
    unit = 10.0 ** math.floor(math.log10(gap) + 2)
    return f"\n({symbol} of both within {math.ceil(100 * gap / unit) * unit:g} %)"


def _darker(colour: Any) -> tuple[float, ...]:
    """A darker shade of a colour of matplotlib."""
    rgb = _matplotlib("colors").to_rgb(colour)
    return tuple(0.55 * c for c in rgb)
