"""The table of a sweep: a row for each question, in the order of the questions."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tightbudget import notebook
from tightbudget.errors import ExtraError, FileError
from tightbudget.sweeps.answer import Answer
from tightbudget.sweeps.question import ANSWER, Question
from tightbudget.text_file import reason, write_text

_FORMATS = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True, repr=False)
class Sweep:
    """A table of questions with their answers.

    A row has the question's labels, the name of the number that was ``asked`` for ("epsilon",
    "delta" or the unknown's), the ``value`` found for the unknown, both certified bounds, the
    ``refusal``, if any, and what keeps the bounds ``apart``, or "".

    Guarantee: each answer is the one that its question has when it is asked alone, to the bit.

    Attributes:
        questions: as asked, also equal ones.
        answers: in the same order.
    """

    questions: tuple[Question, ...]
    answers: tuple[Answer, ...]

    def __repr__(self) -> str:
        return f"<Sweep: {len(self):,} questions, {len(self.refused):,} refused>"

    def _repr_html_(self) -> str:
        """Writes a table of some of the rows, for a notebook; columns without a value are left out.

        ``lower`` and ``upper`` stand in one column, with the digits that are certified.
        """
        some = notebook.elided(len(self), notebook.MOST_ROWS)
        rows = self.rows()
        used = [
            name
            for name in self.columns
            if name not in ("lower", "upper", "apart")
            and any(rows[i][name] is not None for i in some)
        ]
        cells = [
            [i, *("" if rows[i][name] is None else rows[i][name] for name in used), self[i].bounds]
            for i in some
        ]
        table = notebook.table(cells, head=["", *used, "certified"])
        more = notebook.muted(f"{len(some)} of {len(self):,} rows") if len(some) < len(self) else ""
        return notebook.shown(table, more)

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, i: int) -> Answer:
        return self.answers[i]

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    @property
    def refused(self) -> tuple[int, ...]:
        """The indices of the rows that have a refusal and no answer."""
        return tuple(i for i, answer in enumerate(self.answers) if answer.refusal is not None)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns: labels in order of first appearance, then the answer's."""
        labels = dict.fromkeys(name for q in self.questions for name, _ in q.labels)
        return (*labels, *ANSWER)

    def rows(self) -> list[dict[str, Any]]:
        """Returns each row as column -> value, with None for a label that a row has not."""
        empty = dict.fromkeys(self.columns)
        return [
            {**empty, **dict(question.labels), "asked": question.asked, **vars(answer)}
            for question, answer in zip(self.questions, self.answers, strict=True)
        ]

    def to_polars(self) -> Any:
        """Converts the table to a Polars data frame.

        Raises:
            ExtraError: Polars is not installed.
        """
        frame = _imported("polars", "tightbudget[sweep]")
        number, text = frame.Float64, frame.String
        types = {
            "asked": text,
            "value": number,
            "lower": number,
            "upper": number,
            "refusal": text,
            "apart": text,
        }
        rows = self.rows()
        return frame.DataFrame(
            [
                frame.Series(name, [row[name] for row in rows], types.get(name), strict=False)
                for name in self.columns
            ]
        )  # guard: types-guessed

    def to_pandas(self) -> Any:
        """Converts the table to a pandas data frame.

        Raises:
            ExtraError: pandas is not installed.
        """
        return _imported("pandas", "pandas").DataFrame(self.rows(), columns=self.columns)

    def write(self, path: str | Path) -> None:
        """Writes the table as .csv, .csv.gz or, with the extra ``sweep``, .parquet.

        An existing file is replaced. Numbers have all their digits; in CSV, None is an empty cell.

        Raises:
            FileError: the name has another ending, or the file cannot be written.
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
    """Checks that a table can be written under a name, and returns the path.

    Raises:
        FileError: the name has another ending.
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
        # imported by name: the package is an optional extra
        return importlib.import_module(name)
    except ImportError as error:
        raise ExtraError(f"such a table needs {name}: pip install '{package}'") from error
