"""Answers about tables: a value with its noise, an interval, a receipt, and a frame of all that."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

import numpy as np

from tightbudget import notebook
from tightbudget.errors import ExtraError
from tightbudget.numerics.rounding import double_down, double_up
from tightbudget.numerics.validate import open_probability
from tightbudget.output_dp.guarantee import Cell
from tightbudget.release.release import Receipt
from tightbudget.tables.mechanism import NoiseLaw

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True, repr=False)
class TableAnswer(Generic[V]):
    """An answer about a table, with the distribution of its noise and the receipt of its run.

    Intervals are about the noise alone. Values that were moved into bounds, rows of a unit that
    did not count, and values that were rounded to a grid make a bias, which no interval shows.

    Attributes:
        question: the mechanism that was asked.
        value: the answer.
        cell: the output cell of the answer, which decides its price.
        receipt: the amounts held, charged and returned.
        noise: the distribution of the noise on each number of the value; None where the numbers
            do not have one distribution, or it is not known.
        key: the key of the run in a ledger; None where another meter pays.
    """

    question: Any
    value: V
    cell: Cell
    receipt: Receipt
    noise: NoiseLaw | None = None
    key: str | None = None

    @property
    def std(self) -> float | None:
        """The standard deviation of the noise on each number; None where it is not known."""
        return None if self.noise is None else self.noise.std

    def interval(self, confidence: float = 0.95) -> Any:
        """Returns an interval around each number, from the noise alone.

        Guarantee: for each number by itself, the number without noise is in its interval with at
        least this probability. For several numbers at once the probability is smaller.

        Args:
            confidence: in (0, 1).

        Returns:
            (low, high) for a number; for a dictionary or a list of numbers one with a pair in the
            place of each number. None where the distribution of the noise is not known.

        Raises:
            ParameterError: the confidence is not in (0, 1).
        """
        confidence = open_probability(confidence=confidence)
        if self.noise is None:
            return None
        width = self.noise.half_width(confidence)
        return _each(self.value, lambda number: _around(number, width))

    def frame(self, confidence: float = 0.95) -> Any:
        """Returns a pandas frame with a row for each number of the value.

        The columns are those of the keys, if there are any, and value, std, low and high: the
        standard deviation of the noise, and the ends of :meth:`interval`. Where the distribution
        of the noise is not known these three are missing (NaN).

        Args:
            confidence: of the intervals, in (0, 1).

        Raises:
            ParameterError: the confidence is not in (0, 1).
            ExtraError: pandas is not installed.
        """
        names, rows = self.rows(confidence)
        columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        for name in ("std", "low", "high"):
            if self.noise is None:
                columns[name] = [math.nan] * len(rows)
        return _pandas().DataFrame(columns, columns=names)

    def rows(self, confidence: float = 0.95) -> tuple[list[str], list[list[Any]]]:
        """Returns the columns and the rows of :meth:`frame` as plain lists, without pandas.

        Args:
            confidence: of the intervals, in (0, 1).

        Returns:
            the names of the columns; for each number the entries of its row, which are None where
            the distribution of the noise is not known.

        Raises:
            ParameterError: the confidence is not in (0, 1).
        """
        confidence = open_probability(confidence=confidence)
        found = list(_numbers(self.value))
        depth = max((len(key) for key, _ in found), default=0)
        names = [*_key_names(self.question, self.value, depth), "value", "std", "low", "high"]
        width = None if self.noise is None else self.noise.half_width(confidence)
        rows = []
        for key, value in found:
            pair = None if width is None else _around(value, width)
            noise = [None, None, None] if pair is None else [self.std, *pair]
            rows.append([*key, *[None] * (depth - len(key)), value, *noise])
        return names, rows

    def __repr__(self) -> str:
        std = "" if self.std is None else f" with noise of std {self.std:.4g}"
        said = _short(self.value)
        return f"<TableAnswer: {said}{std}; charged {self.receipt.charged}>"

    def _repr_html_(self) -> str:
        """Writes the rows of the answer and its receipt as tables, for a notebook."""
        names, rows = self.rows()
        kept = notebook.elided(len(rows), notebook.MOST_ROWS)
        shown = [["" if cell is None else _written(cell) for cell in rows[i]] for i in kept]
        left_out = len(rows) - len(kept)
        note = notebook.muted(f"{left_out} more rows: .frame() has them") if left_out else ""
        head = [*names[:-2], "95 % from", "to"]
        return notebook.shown(notebook.table(shown, head=head), note) + self.receipt._repr_html_()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))


def _each(value: Any, function: Any) -> Any:
    """Applies a function to each number of a value, which may be a dictionary or a list."""
    if isinstance(value, Mapping):
        return {key: _each(part, function) for key, part in value.items()}
    if _is_list(value):
        return [_each(part, function) for part in value]
    return function(value)


def _numbers(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields each number of a value with its keys: those of dictionaries, and places in lists."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            named = key if isinstance(key, tuple) else (key,)
            yield from (((*named, *more), number) for more, number in _numbers(part))
    elif _is_list(value):
        for place, part in enumerate(value):
            yield from (((place, *more), number) for more, number in _numbers(part))
    else:
        yield (), value.item() if isinstance(value, np.generic) else value


def _key_names(question: Any, value: Any, depth: int) -> list[str]:
    """Names the columns of keys: by the columns that the question groups by, as far as these go."""
    if depth == 2 and hasattr(question, "edges"):
        return ["from", "to"]
    by = getattr(question, "by", ())
    if isinstance(by, str):
        by = (by,)
    # a list has places, whatever the question groups by
    known = [] if _is_list(value) else [name for name in by if isinstance(name, str)]
    single = "index" if _is_list(value) else "key"
    others = [single] if depth == 1 else [f"key {i}" for i in range(1, depth + 1)]
    return (known if len(known) == depth else [*known, *others[len(known) :]])[:depth]


def _around(value: Any, width: float) -> tuple[Any, Any] | None:
    """Returns value - width and value + width, rounded outwards; None if it is no number."""
    if isinstance(value, np.generic):
        value = value.item()
    if not _is_number(value) or not math.isfinite(value):
        return None
    low, high = Fraction(value) - Fraction(width), Fraction(value) + Fraction(width)
    if isinstance(value, int) and low.denominator == high.denominator == 1:
        return int(low), int(high)
    return double_down(low), double_up(high)


def _short(value: Any) -> str:
    """Writes a value in at most 60 characters."""
    if isinstance(value, Mapping) or _is_list(value):
        return f"{sum(1 for _ in _numbers(value))} values"
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _written(cell: Any) -> str:
    """Writes an entry of a table; a double has six digits."""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def _pandas() -> Any:
    """Imports pandas.

    Raises:
        ExtraError: it is not installed.
    """
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise ExtraError("a frame needs pandas: pip install 'tightbudget[data]'") from error
