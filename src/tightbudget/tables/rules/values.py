"""Parts of a rule that have been built anew: an expression, its kind, and its magnitudes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tightbudget.tables.rules.expressions import WIDE, cases, double, import_ibis, number_of_truth
from tightbudget.tables.rules.magnitudes import (
    COLUMN,
    INTEGER,
    LARGEST,
    SMALLEST,
    TRUTH,
    Magnitudes,
)


@dataclass(frozen=True)
class Value:
    """A part of a rule that has been built anew.

    Args:
        expression: of Ibis, total and the same on every engine.
        kind: "integer" (int64), "wide integer" (of up to 38 digits), "double", "boolean",
            "string", "date", "timestamp", "nanoseconds" (a timestamp of them, whose years are 1678
            to 2261), "moment" (a timestamp that is written in the rule, and is compared with
            both), or "null".
        range: of a double; None where a double is a column as it is, which may be infinite.
    """

    expression: Any
    kind: str
    range: Magnitudes | None = None

    def as_kind(self, kind: str) -> Any:
        """Returns the expression as another kind, to which the value can go without an error."""
        if self.kind == kind:
            return self.expression
        if self.kind == "moment":
            return self.expression
        types = {
            "integer": "int64",
            "wide integer": WIDE,
            "double": "float64",
            "nanoseconds": "timestamp(9)",
        }
        if self.kind == "null":
            return import_ibis().null(types.get(kind, kind))
        if kind == "wide integer" and self.kind == "integer":
            return self.expression.cast(WIDE)
        if kind == "double":
            return self.double().expression
        raise AssertionError(f"{self.kind} does not become {kind}")

    def double(self) -> Value:
        """Returns an integer or a truth value as a double; a double is returned as it is."""
        if self.kind in ("integer", "wide integer"):
            # the nearest double, by IEEE 754
            return Value(self.expression.cast("float64"), "double", self.range or INTEGER)
        if self.kind == "boolean":
            return Value(number_of_truth(self.expression), "double", TRUTH)
        if self.kind == "null":
            return Value(self.as_kind("double"), "double", TRUTH)
        return self

    def ranged(self) -> Value:
        """Returns the value as a double that arithmetic may use: finite, and 0 or not tiny."""
        value = self.double()
        if value.range is not None:
            return value
        x = value.expression
        # guard: columns-in-range
        moved = cases(
            (x > double(LARGEST), double(LARGEST)),
            (x < double(-LARGEST), double(-LARGEST)),
            ((x < double(SMALLEST)) & (x > double(-SMALLEST)), double(0.0)),
            x,
        )
        return Value(moved, "double", COLUMN)
