"""Draws an answer as in Python and on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from tightbudget.accounting.plot import save_plot, save_schedule
from tightbudget.explorer import questions
from tightbudget.explorer.answers import curve_of, schedule_of
from tightbudget.notation.words import in_words

Format = Literal["png", "svg"]


@dataclass(frozen=True)
class Drawn:
    """A question whose answer is to be drawn."""

    question: questions.Curve | questions.Stopping
    format: Format


def picture(drawn: Drawn) -> bytes:
    """Draws the answer to a question, and returns the content of the picture's file."""
    question = drawn.question
    title = in_words(question.composition())
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"picture.{drawn.format}"
        if isinstance(question, questions.Curve):
            save_plot({"": curve_of(question)}, path, title=title)
        else:
            save_schedule(schedule_of(question), path, title=title)
        return path.read_bytes()
