"""The prices of questions to a session before they are asked, and the errors of their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tightbudget import notebook
from tightbudget.output_dp.amount import Amount
from tightbudget.tables.asked import cut
from tightbudget.tables.error_laws import CONFIDENCE, ErrorLaw, NoiseLaw


@dataclass(frozen=True, kw_only=True)
class QuestionPreview:
    """The price and the error of one question, before it is asked.

    Attributes:
        question: the question in one line of text.
        most: the worst-case price.
        least: the price of the cheapest output cell.
        sensitivity: how far the numbers that are asked move with one unit, in the unit of the
            answer; None where it is not one number.
        error: what is known beforehand of how far the numbers are off; None where nothing is.
        mostly_noise: True if the answer is mostly noise whatever the rows are, as far as their
            number is public or was released by the session; False if it need not be.
        total: the worst-case prices of this question and of those before it, together.
        fits: whether ``total`` is at most the amount that the meter has left.
    """

    question: str
    most: Amount
    least: Amount
    sensitivity: float | None
    error: ErrorLaw | None
    mostly_noise: bool
    total: Amount
    fits: bool

    @property
    def noise(self) -> NoiseLaw | None:
        """The distribution of the noise on each number; None where there is not one."""
        return self.error if isinstance(self.error, NoiseLaw) else None

    @property
    def std(self) -> float | None:
        """The standard deviation of the noise on each number; None where it is not known."""
        return None if self.error is None else self.error.std

    def half_width(self, confidence: float = CONFIDENCE) -> float | None:
        """Returns half the length of an interval of this confidence; None where it is not known.

        Raises:
            ParameterError: the confidence is not in (0, 1).
        """
        return None if self.error is None else self.error.half_width(confidence)

    def half_width_times_rows(self, confidence: float = CONFIDENCE) -> float | None:
        """Returns what the half width of a mean or a variance is, times its rows; else None.

        Guarantee: an answer from m noisy rows has an interval of at most this number, divided by
        m, on both sides.

        Raises:
            ParameterError: the confidence is not in (0, 1).
        """
        return None if self.error is None else self.error.half_width_times_rows(confidence)

    def rank_error(self, confidence: float = CONFIDENCE) -> int | None:
        """Returns by how many rows quantiles may miss, with this confidence; else None.

        Guarantee: that of :meth:`TableAnswer.rank_error`.

        Raises:
            ParameterError: the confidence is not in (0, 1).
        """
        return None if self.error is None else self.error.rank_error(confidence)

    def to_dict(self) -> dict[str, Any]:
        """Returns the attributes by name, as plain JSON values; errors are those of 95 %."""
        return {
            "question": self.question,
            "most": self.most.to_dict(),
            "least": self.least.to_dict(),
            "sensitivity": self.sensitivity,
            "std": self.std,
            "half_width": self.half_width(),
            "half_width_times_rows": self.half_width_times_rows(),
            "rank_error": self.rank_error(),
            "mostly_noise": self.mostly_noise,
            "total": self.total.to_dict(),
            "fits": self.fits,
        }


@dataclass(frozen=True, repr=False)
class SessionPreview:
    """The prices and the noise of several questions beside the budget that is left.

    Attributes:
        questions: each question with its price, in the order in which they would be asked.
        left: the amount that the meter has left.
    """

    questions: tuple[QuestionPreview, ...]
    left: Amount

    @property
    def most(self) -> Amount:
        """The worst-case prices of all questions, together."""
        return self.questions[-1].total if self.questions else Amount(0.0, 0.0, self.left.unit)

    @property
    def fits(self) -> bool:
        """True if all questions fit into what is left, whatever comes out."""
        return all(question.fits for question in self.questions)

    def to_dict(self) -> dict[str, Any]:
        """Returns the questions, the totals and what is left as plain JSON values."""
        return {
            "questions": [question.to_dict() for question in self.questions],
            "most": self.most.to_dict(),
            "left": self.left.to_dict(),
            "fits": self.fits,
        }

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Returns the headings and the cells of a table with a row for each question.

        There is a column of rank errors where a question has one.
        """
        head = [
            "question",
            "epsilon",
            "delta",
            "sensitivity",
            "std",
            "95 % half width",
            "95 % rank error",
            "total",
            "",
        ]
        rows = []
        for asked in self.questions:
            least, most = asked.least.amount, asked.most.amount
            price = f"{most:.6g}" if least == most else f"{least:.6g} to {most:.6g}"
            times_rows = asked.half_width_times_rows()
            width = (
                _number(asked.half_width()) if times_rows is None else f"{times_rows:.6g} / rows"
            )
            rows.append(
                [
                    cut(asked.question, 60),
                    price,
                    f"{asked.most.delta:.6g}",
                    _number(asked.sensitivity),
                    _number(asked.std),
                    width,
                    _number(asked.rank_error()),
                    f"{asked.total.amount:.6g}",
                    ("fits" if asked.fits else "does not fit")
                    + ("; mostly noise" if asked.mostly_noise else ""),
                ]
            )
        place = head.index("95 % rank error")
        if not any(row[place] for row in rows):
            for row in (head, *rows):
                del row[place]
        return head, rows

    def __repr__(self) -> str:
        fit = "all fit" if self.fits else "they do not all fit"
        many = len(self.questions)
        return (
            f"<SessionPreview: {many} question{'s' * (many != 1)}, at most {self.most}; "
            f"left {self.left}: {fit}>"
        )

    def __str__(self) -> str:
        """Writes a table with a row for each question, and a line with the total."""
        head, rows = self.rows()
        wide = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip()
            for row in (head, *rows)
        ]
        return "\n".join([*lines, self._total()])

    def _repr_html_(self) -> str:
        """Writes a table with a row for each question, for a notebook."""
        head, rows = self.rows()
        kept = notebook.elided(len(rows), notebook.MOST_ROWS)
        left_out = len(rows) - len(kept)
        note = notebook.muted(f"{left_out} more questions. ") if left_out else ""
        table = notebook.table([rows[i] for i in kept], head=head)
        return notebook.shown(table, note, self._total())

    def _total(self) -> str:
        fit = "all fit" if self.fits else "they do not all fit"
        return f"at most {self.most} of the {self.left} that is left: {fit}"


def _number(number: float | None) -> str:
    """Writes a number with six digits; None is left out."""
    return "" if number is None else f"{number:.6g}"
