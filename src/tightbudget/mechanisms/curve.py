"""Curves: delta at many eps, or eps at many delta, each point with a lower and an upper bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightbudget import notebook, tabular
from tightbudget.drawing import draw_bounds, inline_picture
from tightbudget.errors import ExtraError
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import FloatArray

# The delta at which a curve is asked if none are given: 1e-2, 3e-3, 1e-3, ..., 1e-12
DELTAS = tuple([float(f"{m}e-{k}") for k in range(2, 13) for m in (1, 0.3)][:-1])


@dataclass(frozen=True, eq=False, repr=False)
class Curve:
    """Certified points: ``x`` is exact, the exact ``y`` lies in [lower, upper].

    It is a sequence of the bounds: ``for x, bounds in zip(curve.x, curve)``.

    Attributes:
        given: "epsilon" or "delta", the name of ``x``; ``y`` is the other one.
        x: (n,) as asked. lower, upper: (n,).
        apart: (n,) of each point what keeps its bounds apart: see :class:`~tightbudget.Bounds`.
    """

    given: str
    x: FloatArray
    lower: FloatArray
    upper: FloatArray
    apart: tuple[str, ...]

    @staticmethod
    def of_deltas(epsilons: Sequence[float], deltas: Sequence[Bounds]) -> Curve:
        """The curve of bounds of delta at given eps."""
        return _curve("epsilon", epsilons, deltas)

    @staticmethod
    def of_epsilons(deltas: Sequence[float], epsilons: Sequence[Bounds]) -> Curve:
        """The curve of bounds of eps at given delta."""
        return _curve("delta", deltas, epsilons)

    @property
    def answered(self) -> str:
        """The name of ``y``: "epsilon" or "delta"."""
        return "delta" if self.given == "epsilon" else "epsilon"

    def __len__(self) -> int:
        return int(self.x.size)

    def __repr__(self) -> str:
        points = f"{len(self):,} points"
        between = f" from {self.x[0].item()!r} to {self.x[-1].item()!r}" if len(self) else ""
        apart = "; ".join(self._reasons())
        said = f" (apart: {apart})" if apart else ""
        return f"<Curve of {self.answered} over {self.given}: {points}{between}{said}>"

    def _reasons(self) -> list[str]:
        """Lists what keeps the bounds of some point apart, each reason once."""
        return list(dict.fromkeys(said for said in self.apart if said))

    def __iter__(self) -> Iterator[Bounds]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Bounds:
        return Bounds(float(self.lower[i]), float(self.upper[i]), apart=self.apart[i])

    def to_dict(self) -> dict[str, Any]:
        """Plain values: ``{"epsilon": [...], "delta": {"lower": [...], "upper": [...]}}``.

        The names change places where delta was given. Beside ``upper`` stands ``"apart"``, what
        keeps the bounds of each point apart, where some point has such a reason.
        """
        answered: dict[str, Any] = {"lower": self.lower.tolist(), "upper": self.upper.tolist()}
        if self._reasons():
            answered["apart"] = list(self.apart)
        return {self.given: self.x.tolist(), self.answered: answered}

    def frame(self) -> Any:
        """Returns a pandas frame with a row for each point.

        The columns are the name of ``x``, that of ``y`` with ``_lower`` and ``_upper``, which hold
        the exact doubles, and ``apart``.

        Raises:
            ExtraError: pandas is not installed.
        """
        return tabular.frame(
            {
                self.given: self.x,
                f"{self.answered}_lower": self.lower,
                f"{self.answered}_upper": self.upper,
                "apart": self.apart,
            }
        )

    def to_latex(self, digits: int = 6) -> str:
        """Writes the points as a LaTeX tabular, whose rules need the package booktabs.

        Guarantee: the interval that is written for a point contains the point's. Beside a point
        whose bounds are apart stands what keeps them so.

        Args:
            digits: significant digits of each bound, from 1 to 17.

        Raises:
            ParameterError: ``digits`` is refused.
        """
        digits, apart = tabular.significant(digits), bool(self._reasons())
        x, y = (tabular.math_text(tabular.SYMBOLS[name]) for name in (self.given, self.answered))
        head: list[str] = [x, tabular.Latex(f"{y} at least"), tabular.Latex(f"{y} at most")]
        rows = [
            (
                tabular.math_text(tabular.power(repr(at))),
                tabular.math_text(tabular.lower_bound(bounds.lower, digits)),
                tabular.math_text(tabular.upper_bound(bounds.upper, digits)),
                *([bounds.apart] if apart else []),
            )
            for at, bounds in zip(self.x.tolist(), self, strict=True)
        ]
        head += ["apart"] if apart else []
        return tabular.latex(head, rows, columns="rrr" + "l" * apart)

    def plot(self, ax: Any = None, label: str | None = None) -> Any:
        """Draws lower and upper bounds over eps, with delta on a log axis.

        Guarantee: up to the width of a line, delta is at most the line of the upper bounds, also
        between the points, since delta is convex in e^eps; the line of the lower bounds only joins
        them. The legend says so.

        Needs the extra ``plot``.

        Args:
            ax: matplotlib axes to draw on; new ones if absent.
            label: for the legend.

        Returns:
            The axes.

        Raises:
            ExtraError: matplotlib is not installed.
        """
        return draw_bounds(self.x, self.lower, self.upper, given=self.given, ax=ax, label=label)

    def _repr_html_(self) -> str:
        """Draws the curve above a table of some of its points; without matplotlib the table."""
        some = notebook.elided(len(self), notebook.MOST_ROWS)
        points = notebook.table(
            [(repr(self.x[i].item()), self[i]) for i in some], head=(self.given, self.answered)
        )
        try:
            said = f"certified bounds of {self.answered} over {self.given}"
            picture = notebook.Html(inline_picture(lambda ax: self.plot(ax=ax), said))
        except ExtraError:
            return notebook.shown(points)
        said = f"{len(some)} of {len(self)} points" if len(some) < len(self) else "the points"
        return notebook.shown(picture, notebook.folded(said, points))


def _curve(given: str, x: Sequence[float], y: Sequence[Bounds]) -> Curve:
    return Curve(
        given,
        np.array(x, dtype=np.float64),
        np.array([b.lower for b in y], dtype=np.float64),
        np.array([b.upper for b in y], dtype=np.float64),
        tuple(b.apart for b in y),
    )
