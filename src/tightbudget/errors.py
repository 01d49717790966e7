"""The one exception tree.

TightBudgetError
├── ParameterError (ValueError)     a parameter is refused: its name, what it must be, what it is
├── RelationError (ValueError)      mechanisms declared for different neighbouring relations
├── GridError (ValueError)          measures on different grids were mixed
├── PrecisionError (ArithmeticError)  the wanted gap was not reached; says which gap was
├── CalibrationError (ArithmeticError)  no parameter in reach meets the target
├── FileError (ValueError)          a file cannot be read or does not say what it must
└── ExtraError (ImportError)        an optional dependency is missing; names the extra
"""

from __future__ import annotations

__all__ = [
    "CalibrationError",
    "ExtraError",
    "FileError",
    "GridError",
    "ParameterError",
    "PrecisionError",
    "RelationError",
    "TightBudgetError",
]


class TightBudgetError(Exception):
    """The root of every error that this package raises on purpose."""


class ParameterError(TightBudgetError, ValueError):
    """A parameter is refused; the message names it, says what it must be and what it is."""


class RelationError(TightBudgetError, ValueError):
    """Mechanisms that were declared for different neighbouring relations do not compose."""


class GridError(TightBudgetError, ValueError):
    """Two measures with different grids, tilts or sides were combined."""


class PrecisionError(TightBudgetError, ArithmeticError):
    """The requested gap could not be certified within the limits.

    Attributes:
        lower, upper: the certified ends that were reached (still true bounds).
    """

    def __init__(self, message: str, lower: float = 0.0, upper: float = float("inf")) -> None:
        super().__init__(message)
        self.lower = lower
        self.upper = upper


class CalibrationError(TightBudgetError, ArithmeticError):
    """No value of the parameter within reach meets the target."""


class FileError(TightBudgetError, ValueError):
    """A file cannot be read, or its content is not what it must be."""


class ExtraError(TightBudgetError, ImportError):
    """An optional dependency is not installed; the message names the extra that has it."""
