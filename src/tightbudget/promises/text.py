"""Text that enters a ledger: checked here once, whether Python, a command or a request sends it.

Names and keys are compared by the characters that a person sees, so they are stored in Unicode's
normalization form C. A surrogate is half a character of UTF-16: no encoding can write it.
"""

from __future__ import annotations

import unicodedata
from typing import Any

from tightbudget.credentials import hidden
from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.guarantee import Cell, cell_name

_LONGEST_NAME = 200  # characters
_LONGEST_CELL = 10_000  # characters
# characters of a question, which is written down for each of up to 10,000 blocks of a run
LONGEST_QUESTION = 500


def printable(**given: Any) -> str:
    """Brings a name, key or reason into form C, if it can be printed, typed and stored everywhere.

    Raises:
        ParameterError: the value is no text, is empty or too long, or has a character that is not
            printable (a control character, a surrogate, one that Unicode does not define).
    """
    return _printable(_LONGEST_NAME, **given)


def question_text(question: str | None) -> str | None:
    """Brings the question that a run answers into the form that the history keeps; None stays None.

    Passwords in it are hidden, as messages hide them.

    Raises:
        ParameterError: it is no text, is empty or too long, or is not printable.
    """
    if question is None:
        return None
    return hidden(
        _printable(LONGEST_QUESTION, question=question)
    )  # guard: question-without-password


def _printable(longest: int, **given: Any) -> str:
    """Brings a text of so many characters into form C, as :func:`printable` says."""
    ((what, value),) = given.items()
    # guard: one-spelling-of-keys
    text = unicodedata.normalize("NFC", value) if isinstance(value, str) else ""
    if not (1 <= len(text) <= longest and text.isprintable()):
        raise refuse(what, f"be a text of 1 to {longest} printable characters", value)
    return text


def spellings(text: str) -> tuple[str, ...]:
    """Returns a key or name as given, and in the forms C and D; earlier versions stored any."""
    forms = (text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text))
    return tuple(dict.fromkeys(forms))


def storable_cell(cell: Cell) -> Cell:
    """Returns a cell that can be written down.

    Raises:
        ParameterError: the value is no cell, is too long, or has a surrogate in one of its texts.
    """
    named = cell_name(cell)
    try:
        short = len(repr(named)) <= _LONGEST_CELL
    except (ValueError, RecursionError):  # more digits than Python writes down, or parts in parts
        short = False
    if not short:
        raise ParameterError(f"cell must have at most {_LONGEST_CELL} characters")
    check_encodable(cell=named)  # guard: settled-cells-whole
    return named


def check_encodable(**given: Cell) -> None:
    """Refuses a text, or a cell of texts, that no encoding can write.

    Raises:
        ParameterError: it has a surrogate.
    """
    ((what, value),) = given.items()
    if not _is_encodable(value):
        raise refuse(what, "have whole characters only (no lone surrogate)", value)


def _is_encodable(cell: Cell) -> bool:
    """Says whether every text of a cell has whole characters only."""
    if isinstance(cell, tuple):
        return all(map(_is_encodable, cell))  # guard: parts-cells-whole
    return isinstance(cell, int) or not any("\ud800" <= letter <= "\udfff" for letter in cell)
