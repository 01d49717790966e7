"""Thousands of questions at once: grids, executors, a journal and a table."""

from tightbudget.sweeps.answer import Answer
from tightbudget.sweeps.grid_file import read_questions
from tightbudget.sweeps.question import Question, questions
from tightbudget.sweeps.table import Sweep

__all__ = ["Answer", "Question", "Sweep", "questions", "read_questions"]
