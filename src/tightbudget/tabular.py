"""Tables of plain values: as a pandas frame, and as LaTeX with numbers that are rounded outwards.

pandas is imported on use. A value that is a table, as a curve or a comparison, hands its columns
down to here.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tightbudget.errors import ExtraError
from tightbudget.numerics.bounds import rounded
from tightbudget.numerics.validate import positive_count, refuse

_MOST_DIGITS = 17  # tell any two doubles apart
SYMBOLS = {"epsilon": r"\varepsilon", "delta": r"\delta"}  # to stand between dollars
# The characters that LaTeX does not print as they are.
_ESCAPED = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)


class Latex(str):
    """A text that is LaTeX already; every other text is escaped."""

    __slots__ = ()


def frame(columns: Mapping[str, Any]) -> Any:
    """Makes a pandas frame of columns, each a list or an array, in their order.

    Raises:
        ExtraError: pandas is not installed.
    """
    try:
        # by name: the types of an optional dependency stay out of this package's own
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise ExtraError("a frame needs pandas: pip install 'tightbudget[data]'") from error
    return pandas.DataFrame(dict(columns), columns=list(columns))


def latex(head: Sequence[str], rows: Iterable[Sequence[str]], *, columns: str) -> str:
    """Writes a tabular with the rules of booktabs, which the document has to load.

    Args:
        head: the headings of the columns.
        rows: for each row its entries. A text is escaped unless it is :class:`Latex`.
        columns: the alignment of each column, such as "lrr".
    """
    body = "".join(f"{_row(row)}\n" for row in rows)
    return (
        "% \\usepackage{booktabs}; lower bounds are rounded down, upper bounds up\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{_row(head)}\n\\midrule\n{body}"
        "\\bottomrule\n\\end{tabular}"
    )


def math_text(text: str) -> Latex:
    """Puts a formula between dollars."""
    return Latex(f"${text}$")


def power(text: str) -> str:
    """Writes a number that Python has printed, with a power of ten, to stand between dollars."""
    if not math.isfinite(float(text)):
        return text.replace("inf", r"\infty")
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return text
    power = f"10^{{{int(exponent)}}}"
    return power if mantissa == "1" else rf"{mantissa} \times {power}"


def lower_bound(x: float, digits: int) -> str:
    """Writes a lower bound, rounded down, to stand between dollars."""
    return power(rounded(x, digits, up=False))


def upper_bound(x: float, digits: int) -> str:
    """Writes an upper bound, rounded up, to stand between dollars."""
    return power(rounded(x, digits, up=True))


def significant(digits: int) -> int:
    """Checks a number of significant digits.

    Raises:
        ParameterError: it is no integer from 1 to 17.
    """
    asked = positive_count(digits=digits)
    if asked > _MOST_DIGITS:
        raise refuse("digits", f"be at most {_MOST_DIGITS}", digits)
    return asked


def escaped(text: str) -> Latex:
    """Writes a text so that LaTeX prints it as it is; one that is LaTeX already is not changed."""
    return text if isinstance(text, Latex) else Latex(text.translate(_ESCAPED))


def _row(entries: Sequence[str]) -> str:
    return " & ".join(map(escaped, entries)) + r" \\"
