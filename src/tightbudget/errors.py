"""The one exception tree.

TightBudgetError
├── ParameterError (ValueError)     a parameter is refused: its name, what it must be, what it is
├── RelationError (ValueError)      mechanisms declared for different neighbouring relations
├── GridError (ValueError)          measures on different grids were mixed
├── PrecisionError (ArithmeticError)  the wanted gap was not reached; says which gap was
├── BudgetError (ArithmeticError)   a charge does not fit; says what was asked, left and held
│   └── BudgetExceeded              the same, refused by a ledger for good; says who holds
├── SettlementError (ValueError)    a hold or an account is not in the state for what is asked
│   ├── KeyConflictError            a key was used before, for something else
│   └── FencingError                another process has taken this run over
├── LedgerError (RuntimeError)      a ledger cannot be reached, read or written
│   └── LedgerCorruptError          a ledger is not what its own history says
├── LimitError (RuntimeError)       a question takes more than a server gives to one
│   └── BusyError                   it was not begun, since too many others are worked on
├── CalibrationError (ArithmeticError)  no parameter in reach meets the target
├── ReleaseError (RuntimeError)   what has not seen the data failed after a mechanism had started
├── FileError (ValueError)          a file cannot be read or does not say what it must
└── ExtraError (ImportError)        an optional dependency is missing; names the extra
"""

from __future__ import annotations

__all__ = [
    "BudgetError",
    "BudgetExceeded",
    "BusyError",
    "CalibrationError",
    "ExtraError",
    "FencingError",
    "FileError",
    "GridError",
    "KeyConflictError",
    "LedgerCorruptError",
    "LedgerError",
    "LimitError",
    "ParameterError",
    "PrecisionError",
    "RelationError",
    "ReleaseError",
    "SettlementError",
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


class BudgetError(TightBudgetError, ArithmeticError):
    """A charge does not fit into what is left of a budget; nothing was charged.

    Attributes:
        requested, left, held: the three amounts (left rounded down, the others up).
    """

    def __init__(self, message: str, *, requested: object, left: object, held: object) -> None:
        super().__init__(message)
        self.requested = requested
        self.left = left
        self.held = held


class BudgetExceeded(BudgetError):  # noqa: N818 (says what happened)
    """A ledger refuses a charge, for good: its key stays refused. Nothing was charged.

    Attributes:
        requested, left, held: the three amounts (left rounded down, the others up).
        budget: the name of the budget that has not enough left.
        holds: the keys of reservations, and the names of budgets inside, that hold the most.
    """

    def __init__(
        self,
        message: str,
        *,
        requested: object,
        left: object,
        held: object,
        budget: str,
        holds: tuple[str, ...],
    ) -> None:
        super().__init__(message, requested=requested, left=left, held=held)
        self.budget = budget
        self.holds = holds


class SettlementError(TightBudgetError, ValueError):
    """A hold or an account is not in the state that the request needs; nothing was changed."""


class KeyConflictError(SettlementError):
    """A key was used before for something else; a key names one deed."""


class FencingError(SettlementError):
    """A run belongs to another process: the token is missing, wrong, or was overruled."""


class LedgerError(TightBudgetError, RuntimeError):
    """A ledger cannot be reached, read or written.

    Attributes:
        unknown: whether the act may have happened all the same; asking again under the same
            key is safe. Otherwise nothing was changed.
    """

    def __init__(self, message: str, *, unknown: bool = False) -> None:
        super().__init__(message)
        self.unknown = unknown


class LedgerCorruptError(LedgerError):
    """A ledger is not what its own history, or an exported head, says that it is."""


class LimitError(TightBudgetError, RuntimeError):
    """A question takes more time or memory than a server gives to one; nothing was answered."""


class BusyError(LimitError):
    """A server works on so many questions that it did not begin another; ask again later."""


class CalibrationError(TightBudgetError, ArithmeticError):
    """No value of the parameter within reach meets the target."""


class ReleaseError(TightBudgetError, RuntimeError):
    """A mechanism failed after it had started; the message does not depend on the data."""


class FileError(TightBudgetError, ValueError):
    """A file cannot be read, or its content is not what it must be."""


class ExtraError(TightBudgetError, ImportError):
    """An optional dependency is not installed; the message names the extra that has it."""
