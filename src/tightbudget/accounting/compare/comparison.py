"""The table of a comparison: one bound a row, ours first."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tightbudget import notebook
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
        for row in self.rows:
            if row.answer is None:
                lines.append((row.name, "-", "-", f"not applicable: {row.reason}"))
            else:
                proved = "yes" if row.proved else "no"
                lines.append((row.name, row._answer_text(), proved, row.source))
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
