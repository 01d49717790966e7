"""One look for all pictures of reproductions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tightbudget import Bounds

__all__ = ["BLUE", "GREEN", "INK", "OCHRE", "PALE", "RED", "both_ends", "picture", "within"]

BLUE, RED, OCHRE, GREEN = "#1f5fa8", "#b3452c", "#b07d12", "#3d7a45"
INK, PALE = "#333333", "#8a8a8a"


# a date or a random id would make each drawing another file
_METADATA = {".png": {"Software": None}, ".svg": {"Creator": None, "Date": None}}


@contextmanager
def picture(path: Path, panels: int = 1, rows: int = 1) -> Iterator[list[Axes]]:
    """Axes, row after row, dressed and in the end written to the path, as PNG or SVG."""
    figure = Figure(figsize=(5.0 * panels + 0.4, 3.9 * rows), layout="constrained")
    axes = list(figure.subplots(rows, panels, squeeze=False).flat)
    yield axes
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(PALE)
        ax.tick_params(which="both", color=PALE, labelcolor=INK, labelsize=9)
        ax.minorticks_off()
        ax.grid(True, color="0.92", lw=0.8)
        ax.set_axisbelow(True)
        ax.set_title(ax.get_title(loc="left"), loc="left", fontsize=11, color=INK)
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, dpi=160, metadata=_METADATA[path.suffix])


def both_ends(
    ax: Axes, x: Sequence[float], ends: Sequence[Bounds], colour: str, label: str
) -> None:
    """The lower ends wide and pale, the upper ones thin and marked on top of them."""
    ax.plot(x, [b.lower for b in ends], color=colour, lw=5, alpha=0.3, solid_capstyle="round")
    ax.plot(x, [b.upper for b in ends], color=colour, lw=1.4, marker="o", ms=3, label=label)


def within(ends: Iterable[Bounds]) -> str:
    """How far apart certified ends are at most, relative, rounded up to one digit."""
    gap = max(b.relative_gap for b in ends)
    unit = 10.0 ** math.floor(math.log10(gap)) if gap else 1.0
    return f"ends within {math.ceil(gap / unit) * unit:.0e}"
