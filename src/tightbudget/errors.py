"""The one tree of exceptions, and the plain values in which an exception travels.

TightBudgetError
├── ParameterError (ValueError)     a parameter is refused: its name, what it must be, what it is
├── RelationError (ValueError)      mechanisms declared for different neighbouring relations
├── GridError (ValueError)          measures on different grids were mixed
├── PrecisionError (ArithmeticError)  the wanted gap was not reached; says which gap was
├── BudgetError (ArithmeticError)   a charge does not fit; says what was asked, left and held
│   └── BudgetExceeded              the same, refused by a ledger for good; says who holds
├── SettlementError (ValueError)    the state of a hold or an account does not allow the act
│   ├── KeyConflictError            a key was used before, for something else
│   └── FencingError                another process has taken this run over
├── LedgerError (RuntimeError)      a ledger cannot be reached, read or written
│   └── LedgerCorruptError          a ledger is not what its own history says
├── LimitError (RuntimeError)       a question takes more than a server gives to one
│   └── BusyError                   it was not begun, since too many others are worked on
├── CalibrationError (ArithmeticError)  no parameter in reach meets the target
├── ReleaseError (RuntimeError)   what has not seen the data failed after a mechanism had started
├── SourceError (OSError)           the file or the engine of a table does not answer
├── FileError (ValueError)          a file cannot be read or does not say what it must
└── ExtraError (ImportError)        an optional dependency is missing; names the extra
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

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
    "SourceError",
    "TightBudgetError",
]


class TightBudgetError(Exception):
    """The root of every error that this package raises on purpose.

    An error travels as a dictionary: to a client, to a program that reads JSON, and to another
    process. The attributes of a class are stated once, as the parameters of its constructor.
    """

    @classmethod
    def attributes(cls) -> tuple[str, ...]:
        """Names the attributes that an error of this class carries beside its message, in order."""
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return tuple(p.name for p in parameters if p.kind in named and p.name != "message")

    def to_dict(self) -> dict[str, Any]:
        """Returns the error as plain values: its type, its message, and then its attributes.

        The type is the name of a public class; amounts are dictionaries, and tuples are lists.
        """
        public = next(cls.__name__ for cls in type(self).__mro__ if cls.__name__ in __all__)
        # guard: constructor-attributes
        carried = {name: _plain(getattr(self, name)) for name in self.attributes()}
        return {"type": public, "message": str(self), **carried}

    @staticmethod
    def from_dict(
        content: Mapping[str, Any], amount: Callable[[Mapping[str, Any]], object] = dict
    ) -> TightBudgetError:
        """Makes the error that :meth:`to_dict` described; entries that its class lacks are ignored.

        Args:
            content: type, message and attributes.
            amount: makes an amount (requested, left, held) of its dictionary.

        Raises:
            ParameterError: the type names no error of this package.
            KeyError: the content lacks the type, the message or an attribute.
        """
        kind = content["type"]
        if kind not in __all__:  # guard: only-error-types
            raise ParameterError(f"type must be the name of an error of tightbudget, got {kind!r}")
        raised: type[TightBudgetError] = globals()[kind]
        # guard: missing-attribute-refused
        carried = {name: content[name] for name in raised.attributes()}
        for name, value in carried.items():
            if isinstance(value, Mapping):
                carried[name] = amount(value)
            elif isinstance(value, list):
                carried[name] = tuple(value)
        return raised(content["message"], **carried)

    def __reduce__(self) -> tuple[Any, ...]:
        # The inherited way calls the class with the message alone, which classes with needed
        # attributes refuse: their errors could not leave a worker process.
        carried = {name: getattr(self, name) for name in self.attributes()}
        # guard: errors-carry-their-attributes
        return _made_again, (type(self), self.args, carried), vars(self) or None


def _plain(value: object) -> object:
    """Returns an attribute's value in the types of JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return list(value) if isinstance(value, tuple) else value


def _made_again(
    raised: type[TightBudgetError], args: tuple[Any, ...], carried: dict[str, Any]
) -> TightBudgetError:
    """Makes an error from its pickle."""
    return raised(*args, **carried)


class ParameterError(TightBudgetError, ValueError):
    """A parameter is refused; the message names it, says what it must be and what it is."""


class RelationError(TightBudgetError, ValueError):
    """Mechanisms that were declared for different neighbouring relations do not compose."""


class GridError(TightBudgetError, ValueError):
    """Two measures have different grids, tilts or sides, and cannot be combined."""


class PrecisionError(TightBudgetError, ArithmeticError):
    """The requested gap between the bounds could not be certified within the limits.

    The message begins with the bounds that were reached.

    Attributes:
        lower, upper: the certified bounds that were reached; they are true, and too far apart.
    """

    def __init__(self, message: str, lower: float = 0.0, upper: float = float("inf")) -> None:
        super().__init__(message)
        self.lower = lower
        self.upper = upper

    @property
    def bounds(self) -> tuple[float, float]:
        """The certified bounds as a pair: ``tb.Bounds(*error.bounds)``."""
        return self.lower, self.upper


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
    """A ledger refuses a charge for good: its key stays refused, and nothing was charged.

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
    """A ledger contradicts its own history or an exported head."""


class LimitError(TightBudgetError, RuntimeError):
    """A question takes more time or memory than a server gives to one; nothing was answered."""


class BusyError(LimitError):
    """A server is busy with so many questions that it did not begin this one; ask again later."""


class CalibrationError(TightBudgetError, ArithmeticError):
    """No value of the parameter within reach meets the target."""


class ReleaseError(TightBudgetError, RuntimeError):
    """A mechanism failed after it had started; the message does not depend on the data."""


class FileError(TightBudgetError, ValueError):
    """A file cannot be read, or its content is not what it must be."""


class ExtraError(TightBudgetError, ImportError):
    """An optional dependency is not installed; the message names the extra that has it."""


class SourceError(TightBudgetError, OSError):
    """The file or the engine of a table does not answer; nothing was charged."""
