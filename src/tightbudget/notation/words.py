"""Compositions and answers in words for a person."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tightbudget.notation.options import options_of, runs_are_epochs

if TYPE_CHECKING:
    from tightbudget.mechanisms.composition import Composition
    from tightbudget.numerics.bounds import Bounds

_SHOWN = 5  # parts of a plan that are listed

_TWO_ENDS = "nothing that holds for all data sets is below the lower bound; the upper one holds"


def in_words(composition: Composition) -> str:
    """Writes the parts as lines for a person: ``gaussian sigma=1.0 rate=0.01, 1000 times``."""
    lines = [
        f"{_words(table)}, {_number_of_runs(table, runs)}"
        for table, runs in ((m.to_dict(), runs) for m, runs in composition.parts[:_SHOWN])
    ]
    if len(composition.parts) > _SHOWN:
        lines.append(f"and {len(composition.parts) - _SHOWN} more, {composition.runs} times in all")
    return "\n".join(lines) or "nothing"


def number_of_times(runs: int) -> str:
    """Writes how often something runs: once is ``1 time``."""
    return f"{runs} time{'s' * (runs != 1)}"


def two_ends(answers: Iterable[Bounds]) -> dict[str, str]:
    """Says in ``ends`` what the two bounds of an answer are, where they say that they are apart.

    Args:
        answers: the bounds that the answer has.

    Returns:
        nothing if all bounds are as close as was wanted.
    """
    apart = dict.fromkeys(bounds.apart for bounds in answers if bounds.apart)
    return {"ends": f"{_TWO_ENDS} ({'; '.join(apart)})"} if apart else {}


def _number_of_runs(table: dict[str, Any], runs: int) -> str:
    """Writes how often a mechanism runs, in epochs where one run is an epoch."""
    if runs_are_epochs(options_of(table)):
        return f"{runs} epoch{'s' * (runs != 1)}"
    return number_of_times(runs)


def _words(table: dict[str, Any]) -> str:
    """Writes a mechanism's table as words: its kind, then ``name=value`` for each option."""
    given = options_of(table).items()
    return " ".join([table["mechanism"], *(f"{name}={_word(value)}" for name, value in given)])


def _word(value: Any) -> str:
    """Writes a parameter's value as a word; a long list is counted."""
    if isinstance(value, dict) and "mechanism" in value:
        return f"({_words(value)})"
    if isinstance(value, (tuple, list)) and len(value) > 4:
        return f"({len(value)} values)"
    return str(value)
