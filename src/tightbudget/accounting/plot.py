"""Curves and schedules as pictures. matplotlib is the extra ``plot``, imported on use."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tightbudget.accounting.schedule import StoppingSchedule
from tightbudget.errors import ExtraError, FileError
from tightbudget.mechanisms.curve import Curve
from tightbudget.numerics.rounding import FloatArray

__all__ = ["picture_path", "plot_curve", "plot_schedule", "save_plot", "save_schedule"]

_FORMATS = (".png", ".svg", ".pdf")


def plot_curve(curve: Curve, ax: Any = None, label: str | None = None) -> Any:
    """Draws both certified ends over eps, with delta on a log axis.

    The marked points are certified; the lines only join them. Ends that are closer than a
    line is wide still show: the upper one is a thin dark line on top of the wide pale lower
    one. Points at infinity, and delta = 0, are off the axes.

    Args:
        curve: what to draw.
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
    (low_x, low_y), (high_x, high_y) = _ends(curve)
    name = f"{label}: " if label else ""
    (pale,) = ax.plot(
        low_x, low_y, linewidth=5.0, alpha=0.35, solid_capstyle="round",
        label=f"{name}certified lower end",
    )  # fmt: skip
    colour = pale.get_color()
    band = ax.fill_between if curve.given == "epsilon" else ax.fill_betweenx
    band(curve.x, *map(_drawable, (curve.lower, curve.upper)), color=colour, alpha=0.35, lw=0)
    ax.plot(
        high_x, high_y, linewidth=1.4, marker="o", markersize=2.5, color=_darker(colour),
        label=f"{name}certified upper end{_apart(curve)}",
    )  # fmt: skip
    ax.legend(frameon=False)
    return ax


def _axes(ax: Any) -> Any:
    """The axes given, or new ones."""
    if ax is not None:
        return ax
    return _matplotlib("pyplot").subplots(figsize=(6.4, 4.4), layout="constrained")[1]


def _dress(ax: Any, x: str, y: str) -> None:
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.grid(True, which="major", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def plot_schedule(schedule: StoppingSchedule, ax: Any = None) -> Any:
    """Draws what stopping costs over the stops, by three accounts with the same delta.

    Args:
        schedule: what to draw.
        ax: matplotlib axes to draw on; new ones if absent.

    Returns:
        The axes.

    Raises:
        ExtraError: matplotlib is not installed.
    """
    ax = _axes(ax)
    _dress(ax, "steps run before stopping", "price ε (nats)")
    prices = {
        "each stop accounted separately": (schedule.separate, "#b07d12"),
        "Rényi filter": (schedule.renyi_filter(), "#b3452c"),
        f"this schedule, δ = {schedule.target:g}": (schedule.epsilons, "#1f5fa8"),
    }
    for label, (epsilons, colour) in prices.items():
        drawn = _drawable(np.array(epsilons))
        ax.plot(schedule.stops, drawn, color=colour, linewidth=1.6, marker="o", markersize=2.5,
                label=label)  # fmt: skip
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False)
    return ax


def save_schedule(schedule: StoppingSchedule, path: str | Path, title: str | None = None) -> None:
    """Draws a schedule into a picture, in the format that the path's name ends in.

    Raises:
        ExtraError: matplotlib is not installed.
        FileError: another ending than .png, .svg or .pdf, or it cannot be written there.
    """
    with _picture(path, title) as ax:
        plot_schedule(schedule, ax=ax)


def save_plot(curves: Mapping[str, Curve], path: str | Path, title: str | None = None) -> None:
    """Draws labelled curves into one picture, in the format that the path's name ends in.

    Raises:
        ExtraError: matplotlib is not installed.
        FileError: another ending than .png, .svg or .pdf, or it cannot be written there.
    """
    with _picture(path, title) as ax:
        for label, curve in curves.items():
            plot_curve(curve, ax=ax, label=label)


@contextmanager
def _picture(path: str | Path, title: str | None) -> Iterator[Any]:
    """Axes that are written to the path in the end."""
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


def picture_path(path: str | Path) -> Path:
    """The path, if a picture can be written under that name."""
    path = Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise FileError(f"{path}: the name must end in {', '.join(_FORMATS)}")
    return path


def _matplotlib(module: str) -> Any:
    try:
        # by name: the types of an optional dependency stay out of this package's own
        return importlib.import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise ExtraError("plots need matplotlib: pip install 'tightbudget[plot]'") from error


def _drawable(values: FloatArray) -> FloatArray:
    return np.where(np.isfinite(values), values, np.nan)


def _ends(curve: Curve) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """(eps, delta) of the lower and of the upper end."""
    lower, upper = _drawable(curve.lower), _drawable(curve.upper)
    if curve.given == "epsilon":
        return (curve.x, lower), (curve.x, upper)
    return (lower, curve.x), (upper, curve.x)


def _apart(curve: Curve) -> str:
    """How far apart the ends are at most, rounded up to one digit, for the legend."""
    gap = max((curve[i].relative_gap for i in range(len(curve))), default=0.0)
    if not 0 < gap < math.inf:
        return ""
    unit = 10.0 ** math.floor(math.log10(gap) + 2)
    symbol = "δ" if curve.answered == "delta" else "ε"
    return f" ({symbol} of both within {math.ceil(100 * gap / unit) * unit:g} %)"


def _darker(colour: Any) -> tuple[float, ...]:
    rgb = _matplotlib("colors").to_rgb(colour)
    return tuple(0.55 * c for c in rgb)
