"""The table of a comparison: one bound a row, ours first."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tightbudget import notebook, tabular
from tightbudget.mechanisms.composition import Composition
from tightbudget.numerics.bounds import Bounds, Estimate, rounded

_LONGEST_BAR = 5.0  # the longest bar in a notebook's table, in lengths of our own


@dataclass(frozen=True)
class Row:
    """A row of a comparison: one bound, with its source and its answer.

    Attributes:
        name: the name of the bound.
        source: the authors of its proof (or proposal).
        answer: None where it is not applicable; an estimate where it is not proved.
        reason: why it is not applicable, or None.
    """

    name: str
    source: str
    answer: Bounds | Estimate | None
    reason: str | None = None

    @property
    def proved(self) -> bool:
        """Whether the answer is certified."""
        return isinstance(self.answer, Bounds)

    def to_dict(self) -> dict[str, Any]:
        """Returns the row as plain values, without the question that it answers."""
        answer: Any = self.answer
        if isinstance(answer, Bounds):
            answer = answer.to_dict()
        elif isinstance(answer, Estimate):
            answer = answer.value
        return {
            "name": self.name,
            "source": self.source,
            "proved": self.proved,
            "answer": answer,
            "reason": self.reason,
        }

    def _answer_latex(self, digits: int) -> str:
        """Writes the answer for a table: bounds rounded outwards, an estimate to nearest."""
        if self.answer is None:
            return "-"
        if isinstance(self.answer, Estimate):
            return tabular.math_text(rf"\approx {tabular.power(f'{self.answer.value:.{digits}g}')}")
        low = tabular.lower_bound(self.answer.lower, digits)
        high = tabular.upper_bound(self.answer.upper, digits)
        at_most = self.answer.lower == 0.0 < self.answer.upper
        both = tabular.math_text(rf"\leq {high}" if at_most else f"[{low}, {high}]")
        said = f" (apart: {self.answer.apart})" if self.answer.apart else ""
        return tabular.Latex(f"{both}{tabular.escaped(said)}")

    def _provenance(self) -> tuple[str, str]:
        """Says whether the bound is proved, and by whom, or why it is not applicable."""
        if self.answer is None:
            return "-", f"not applicable: {self.reason}"
        return "yes" if self.proved else "no", self.source

    def _answer_text(self) -> str:
        if isinstance(self.answer, Bounds):
            at_most = self.answer.lower == 0.0 < self.answer.upper
            return f"<= {rounded(self.answer.upper, 6, up=True)}" if at_most else str(self.answer)
        return f"about {self.answer.value:.6g}" if self.answer else "-"


@dataclass(frozen=True, repr=False)
class Comparison:
    """All bounds on one composition's epsilon at a delta, or on its delta at an epsilon.

    Prints as a table. It is a sequence of its rows, each of which is found by its name, too:
    ``for row in comparison``, ``comparison["Renyi"]``.

    Attributes:
        composition: the composition that was asked about.
        given: "delta" or "epsilon".
        at: the value of the given quantity.
        rows: the bounds, ours first.
    """

    composition: Composition
    given: str
    at: float
    rows: tuple[Row, ...]

    @property
    def answered(self) -> str:
        """The name of the answers: "epsilon" or "delta"."""
        return "epsilon" if self.given == "delta" else "delta"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __contains__(self, name: object) -> bool:
        """Tells whether there is a row of this name, or this row."""
        return any(name in (row, row.name) for row in self.rows)

    def __getitem__(self, name: str | int) -> Row:
        """Finds the row of a name, or at an index.

        Raises:
            KeyError: no row has the name.
            IndexError: there are not so many rows.
        """
        if isinstance(name, int):
            return self.rows[name]
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values: ``{"delta": 1e-05, "answered": "epsilon", "rows": [...]}``."""
        rows = [row.to_dict() for row in self.rows]
        return {self.given: self.at, "answered": self.answered, "rows": rows}

    def to_json(self) -> str:
        """Writes :meth:`to_dict` as a JSON object; infinity is written 1e999, as JSON has none."""
        return json.dumps(self.to_dict()).replace("Infinity", "1e999")

    def frame(self) -> Any:
        """Returns a pandas frame with a row for each bound.

        The columns are name, epsilon_lower, epsilon_upper and epsilon_estimate (or those of delta),
        proved, source, reason and apart. A proved row has both bounds, of which a theorem's lower
        one is 0 where it has none; a row that is not proved has an estimate. Numbers that a row
        does not have are NaN. ``reason`` says why a bound is not applicable.

        Raises:
            ExtraError: pandas is not installed.
        """
        answers = [row.answer for row in self.rows]
        none = (math.nan, math.nan)
        ends = [tuple(a) if isinstance(a, Bounds) else none for a in answers]
        return tabular.frame(
            {
                "name": [row.name for row in self.rows],
                f"{self.answered}_lower": [low for low, _ in ends],
                f"{self.answered}_upper": [high for _, high in ends],
                f"{self.answered}_estimate": [
                    a.value if isinstance(a, Estimate) else math.nan for a in answers
                ],
                "proved": [row.proved for row in self.rows],
                "source": [row.source for row in self.rows],
                "reason": [row.reason or "" for row in self.rows],
                "apart": [a.apart if isinstance(a, Bounds) else "" for a in answers],
            }
        )

    def to_latex(self, digits: int = 6) -> str:
        """Writes the bounds as a LaTeX tabular, whose rules need the package booktabs.

        Guarantee: the interval that is written for a proved bound contains the bound's.

        Args:
            digits: significant digits of each number, from 1 to 17.

        Raises:
            ParameterError: ``digits`` is refused.
        """
        digits = tabular.significant(digits)
        answered, given = tabular.SYMBOLS[self.answered], tabular.SYMBOLS[self.given]
        at = tabular.Latex(f"${answered}$ at ${given} = {tabular.power(repr(self.at))}$")
        head = ["bound", at, "proved", "source"]
        rows = [(row.name, row._answer_latex(digits), *row._provenance()) for row in self.rows]
        return tabular.latex(head, rows, columns="lrll")

    def __repr__(self) -> str:
        ours = self.rows[0].answer
        return (
            f"<Comparison at {self.given} {self.at!r}: {self.answered} {ours}, beside "
            f"{len(self.rows) - 1} other bounds; print it for the table>"
        )

    def _repr_html_(self) -> str:
        """Writes the table of the bounds, with a bar for each answer, for a notebook."""
        # a bound that is several times ours would make the other bars too short to compare
        finite = [x for x in map(_upper, self.rows) if x < math.inf]
        most = min(max(finite, default=1.0), _LONGEST_BAR * max(finite[:1], default=1.0))
        rows = [
            (
                row.name,
                row._answer_text(),
                notebook.scale(_upper(row), most) if row.answer else "",
                "yes" if row.proved else "no" if row.answer else notebook.muted("-"),
                row.source if row.answer else notebook.muted(f"not applicable: {row.reason}"),
            )
            for row in self.rows
        ]
        head = (f"at {self.given} {self.at!r}", self.answered, "", "proved", "source")
        return notebook.shown(notebook.table(rows, head=head, title=repr(self.composition)))

    def __str__(self) -> str:
        header = (f"at {self.given} {self.at!r}", self.answered, "proved", "source")
        lines = [header]
        lines += [(row.name, row._answer_text(), *row._provenance()) for row in self.rows]
        wide = [max(len(line[i]) for line in lines) for i in range(3)]
        return "\n".join(
            "  ".join(part.ljust(w) for part, w in zip(line, (*wide, 0), strict=True)).rstrip()
            for line in lines
        )


def _upper(row: Row) -> float:
    """The number that the bar of a row shows; inf where there is none."""
    if isinstance(row.answer, Bounds):
        return row.answer.upper
    return math.inf if row.answer is None else row.answer.value
