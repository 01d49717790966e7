"""Answers as a table: a row for each question, in the order that they were asked in."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tightbudget.accounting.sweep.answer import Answer
from tightbudget.accounting.sweep.question import ANSWER, Question
from tightbudget.accounting.text_file import reason, write_text
from tightbudget.errors import ExtraError, FileError

__all__ = ["Sweep", "table_path"]

_FORMATS = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class Sweep:
    """Questions with their answers.

    A row has the question's labels, what was ``asked`` ("epsilon", "delta" or the name of the
    unknown), the ``value`` found for the unknown, both certified ends, and the ``refusal``, if any.

    Guarantee: each answer is the one that its question has when it is asked alone, to the bit.

    Attributes:
        questions: as asked, also equal ones.
        answers: in the same order.
    """

    questions: tuple[Question, ...]
    answers: tuple[Answer, ...]

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, i: int) -> Answer:
        return self.answers[i]

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    @property
    def refused(self) -> tuple[int, ...]:
        """The rows that have a refusal and no answer."""
        return tuple(i for i, answer in enumerate(self.answers) if answer.refusal is not None)

    @property
    def columns(self) -> tuple[str, ...]:
        """All labels, in order of first appearance, then the answer's columns."""
        labels = dict.fromkeys(name for q in self.questions for name, _ in q.labels)
        return (*labels, *ANSWER)

    def rows(self) -> list[dict[str, Any]]:
        """Each row as column -> value; None where a row has no such label."""
        empty = dict.fromkeys(self.columns)
        return [
            {**empty, **dict(question.labels), "asked": question.asked, **vars(answer)}
            for question, answer in zip(self.questions, self.answers, strict=True)
        ]

    def to_polars(self) -> Any:
        """A Polars data frame.

        Raises:
            ExtraError: Polars is not installed.
        """
        frame = _imported("polars", "tightbudget[sweep]")
        number, text = frame.Float64, frame.String
        types = {"asked": text, "value": number, "lower": number, "upper": number, "refusal": text}
        rows = self.rows()
        return frame.DataFrame(
            [
                frame.Series(name, [row[name] for row in rows], types.get(name), strict=False)
                for name in self.columns
            ]
        )

    def to_pandas(self) -> Any:
        """A pandas data frame.

        Raises:
            ExtraError: pandas is not installed.
        """
        return _imported("pandas", "pandas").DataFrame(self.rows(), columns=self.columns)

    def write(self, path: str | Path) -> None:
        """Writes .csv, .csv.gz or, with the extra ``sweep``, .parquet; replaces what is there.

        Numbers have all their digits; in CSV, what is not there is empty.

        Raises:
            FileError: another ending, or it cannot be written there.
            ExtraError: Polars is not installed.
        """
        path = table_path(path)
        if path.suffix != ".parquet":
            write_text(path, self._csv())
            return
        try:
            self.to_polars().write_parquet(path)
        except OSError as error:
            raise FileError(f"{path}: {reason(error)}") from error

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows())
        return text.getvalue()


def table_path(path: str | Path) -> Path:
    """The path, if a table can be written under that name.

    Raises:
        FileError: another ending.
        ExtraError: Polars is needed and not installed.
    """
    path = Path(path)
    if not path.name.endswith(_FORMATS):
        raise FileError(f"{path}: the name must end in {', '.join(_FORMATS)}")
    if path.suffix == ".parquet":
        _imported("polars", "tightbudget[sweep]")
    return path


def _imported(name: str, package: str) -> Any:
    try:
        # by name: optional, and only needed by who asks for it
        return importlib.import_module(name)
    except ImportError as error:
        raise ExtraError(f"such a table needs {name}: pip install '{package}'") from error
