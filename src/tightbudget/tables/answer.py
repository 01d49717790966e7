"""Answers about tables: a value with its noise, an interval, a receipt, and a frame of all that."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from tightbudget import notebook, tabular
from tightbudget.numerics.validate import open_probability
from tightbudget.output_dp.guarantee import Cell
from tightbudget.release.release import Receipt
from tightbudget.tables.error_laws import CONFIDENCE, ErrorLaw, NoiseLaw, Pair

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True, repr=False)
class TableAnswer(Generic[V]):
    """An answer about a table, with what is known of its error and the receipt of its run.

    What is said of the error comes from public parameters and from released numbers alone: it
    costs nothing, and tells nothing more about the rows. Intervals are about the noise alone.
    Values that were moved into bounds, rows of a unit that did not count, and values that were
    rounded to a grid make a bias, which no interval shows.

    Attributes:
        question: the mechanism that was asked.
        value: the answer.
        cell: the output cell of the answer, which decides its price.
        receipt: the amounts held, charged and returned.
        error: what is known of how far the numbers of the value are off; None where nothing is.
        noisy_rows: the number of rows behind each number of a mean or a variance, from the noisy
            sums that it was divided from; of a ratio the noisy denominator; None for other answers.
        key: the key of the run in a ledger; None where another meter pays.
    """

    question: Any
    value: V
    cell: Cell
    receipt: Receipt
    error: ErrorLaw | None = None
    noisy_rows: tuple[float, ...] | None = None
    key: str | None = None

    @property
    def noise(self) -> NoiseLaw | None:
        """The distribution of the noise on each number; None where there is not one."""
        return self.error if isinstance(self.error, NoiseLaw) else None

    @property
    def std(self) -> float | None:
        """The standard deviation of the noise on each number; None where it is not known."""
        return None if self.error is None else self.error.std

    def rank_error(self, confidence: float = CONFIDENCE) -> int | None:
        """Returns by how many rows the answers may miss their quantiles; None for other answers.

        Guarantee: with at least this probability, each answer t to a probability q has at most
        q N + x rows below it and at most (1 - q) N + x above it, whatever the N rows that count
        are, where x is the number that is returned. It holds for all quantiles of the answer
        together, and follows from public parameters alone.

        Args:
            confidence: in (0, 1).

        Raises:
            ParameterError: the confidence is not in (0, 1).
        """
        confidence = open_probability(confidence=confidence)
        return None if self.error is None else self.error.rank_error(confidence)

    def interval(self, confidence: float = CONFIDENCE) -> Any:
        """Returns an interval around each number, from the noise alone.

        Guarantee: for each number by itself, the number without noise is in its interval with at
        least this probability. For several numbers at once the probability is smaller.

        Args:
            confidence: in (0, 1).

        Returns:
            (low, high) for a number; for a dictionary or a list of numbers one with a pair in the
            place of each number. None where no interval is known.

        Raises:
            ParameterError: the confidence is not in (0, 1).
        """
        pairs = self._intervals(confidence)
        if self.error is None or (pairs and not any(pairs)):
            return None
        following = iter(pairs)
        return _each(self.value, lambda _: next(following))

    def _intervals(self, confidence: float) -> list[Pair | None]:
        """Returns the interval of each number of the value in the order of the rows, or None."""
        confidence = open_probability(confidence=confidence)
        numbers = [number for _, number in _numbers(self.value)]
        if self.error is None:
            return [None] * len(numbers)
        return self.error.intervals(numbers, confidence, self.noisy_rows)

    @property
    def mostly_noise(self) -> bool | None:
        """Whether a number of the answer is mostly noise; None where nobody can know.

        A number is mostly noise if its interval of 95 % says little more than was known before.
        That of a count, a sum or a ratio reaches 0. That of a mean, a variance, or a quantile's
        rank is at least half as long as all that it can be, or noise has moved a mean or a variance
        to an end of its range. A quantile needs a number of rows for that: a table's ``units``, or
        a count that the session has released before. The frame has it for each number.
        """
        flags = self._mostly_noise()
        return True if any(flags) else None if None in flags or not flags else False

    def _mostly_noise(self) -> list[bool | None]:
        """Says of each number of the value whether it is mostly noise, in the order of the rows."""
        numbers = [number for _, number in _numbers(self.value)]
        if self.error is None:
            return [None] * len(numbers)
        return self.error.mostly_noise(numbers, self.noisy_rows)

    def frame(self, confidence: float = CONFIDENCE) -> Any:
        """Returns a pandas frame with a row for each number of the value.

        The columns are those of the keys, if there are any, and value, std, low and high: the
        standard deviation of the noise, and the ends of :meth:`interval`. Where these are not
        known they are missing (NaN). A key column whose name is taken, say ``value``, is called
        ``value (key)``. The rows of quantiles have the key ``probability``, and
        :meth:`rank_error` in a column of its own. The last column is :attr:`mostly_noise`, for
        each number by itself and always at 95 %.

        Args:
            confidence: of the intervals and of the rank error, in (0, 1).

        Raises:
            ParameterError: the confidence is not in (0, 1).
            ExtraError: pandas is not installed.
        """
        names, rows = self.rows(confidence)
        columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        for name in ("std", "low", "high"):
            if all(cell is None for cell in columns[name]):
                columns[name] = [math.nan] * len(rows)
        frame = tabular.frame({name: columns[name] for name in names})
        return frame.astype({"mostly_noise": "boolean"})

    def rows(self, confidence: float = CONFIDENCE) -> tuple[list[str], list[list[Any]]]:
        """Returns the columns and the rows of :meth:`frame` as plain lists, without pandas.

        Args:
            confidence: of the intervals and of the rank error, in (0, 1).

        Returns:
            the names of the columns; for each number the entries of its row, which are None where
            they are not known.

        Raises:
            ParameterError: the confidence is not in (0, 1).
        """
        pairs, rank_error = self._intervals(confidence), self.rank_error(confidence)
        found = [(_named(self.question, keys), number) for keys, number in _numbers(self.value)]
        depth = max((len(key) for key, _ in found), default=0)
        more = [] if rank_error is None else [rank_error]
        own = ["value", "std", "low", "high", *["rank_error"] * len(more), "mostly_noise"]
        names = [*_told_apart(_key_names(self.question, self.value, depth), own), *own]
        rows = []
        for (key, value), pair, flag in zip(found, pairs, self._mostly_noise(), strict=True):
            noise = [None, None, None] if pair is None else [self.std, *pair]
            rows.append([*key, *[None] * (depth - len(key)), value, *noise, *more, flag])
        return names, rows

    def __repr__(self) -> str:
        std = "" if self.std is None else f" with noise of std {self.std:.4g}"
        flags = self._mostly_noise()
        many = "" if len(flags) == 1 else f"{flags.count(True)} of them "
        noise = f", {many}mostly noise" if True in flags else ""
        said = _short(self.value)
        return f"<TableAnswer: {said}{std}{noise}; charged {self.receipt.charged}>"

    def _repr_html_(self) -> str:
        """Writes the rows of the answer and its receipt as tables, for a notebook."""
        names, rows = self.rows()
        for row in rows:
            row[-1] = "yes" if row[-1] else None
        kept = notebook.elided(len(rows), notebook.MOST_ROWS)
        shown = [["" if cell is None else _written(cell) for cell in rows[i]] for i in kept]
        left_out = len(rows) - len(kept)
        note = notebook.muted(f"{left_out} more rows: .frame() has them") if left_out else ""
        shown_as = {
            "low": "95 % from",
            "high": "to",
            "rank_error": "95 % rank error",
            "mostly_noise": "mostly noise",
        }
        head = [shown_as.get(name, name) for name in names]
        return notebook.shown(notebook.table(shown, head=head), note) + self.receipt._repr_html_()


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


def _named(question: Any, keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the keys of a number; the last key of a quantile becomes its probability."""
    probabilities = getattr(question, "probabilities", None)
    if not keys or probabilities is None or keys[-1] not in range(len(probabilities)):
        return keys
    return (*keys[:-1], float(probabilities[keys[-1]]))


def _key_names(question: Any, value: Any, depth: int) -> list[str]:
    """Names the columns of keys: by the columns that the question groups by, as far as these go."""
    if depth == 2 and hasattr(question, "edges"):
        return ["from", "to"]
    last = ["probability"] if hasattr(question, "probabilities") else []
    by = getattr(question, "by", ())
    if isinstance(by, str):
        by = (by,)
    # a list has places, whatever the question groups by
    known = [] if _is_list(value) else [name for name in by if isinstance(name, str)]
    if len(known) + len(last) == depth:
        return [*known, *last]
    single = "index" if _is_list(value) else "key"
    others = [single] if depth == 1 else [f"key {i}" for i in range(1, depth + 1)]
    return [*known, *others[len(known) :]][:depth]


def _told_apart(keys: list[str], own: list[str]) -> list[str]:
    """Returns names of key columns; one that another column of the answer has ends in " (key)"."""
    found: list[str] = []
    for i, name in enumerate(keys):
        while name in own or name in keys[i + 1 :] or name in found:
            name = f"{name} (key)"
        found.append(name)
    return found


def _short(value: Any) -> str:
    """Writes a value in at most 60 characters."""
    if isinstance(value, Mapping) or _is_list(value):
        return f"{sum(1 for _ in _numbers(value))} values"
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _written(cell: Any) -> str:
    """Writes an entry of a table; a double has six digits."""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)
