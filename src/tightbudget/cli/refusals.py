"""Refusals of the program: one line on stderr, an exit code, and with --json an object."""

from __future__ import annotations

from typing import Any

from tightbudget import (
    BudgetError,
    LedgerCorruptError,
    LedgerError,
    PrecisionError,
    SettlementError,
    TightBudgetError,
)

__all__ = ["EXIT_CODES", "INTERRUPTED", "as_json", "exit_code"]

INTERRUPTED = 130

# The first line whose class fits a refusal has its exit code.
EXIT_CODES: tuple[tuple[type[TightBudgetError], int, str], ...] = (
    (PrecisionError, 3, "the wanted gap was not reached"),
    (BudgetError, 4, "it does not fit into what is left of a budget; nothing was charged"),
    (
        SettlementError,
        5,
        "the key was used for something else, or the reservation is not in the state for it",
    ),
    (LedgerCorruptError, 7, "the ledger contradicts its own history or an exported head"),
    (LedgerError, 6, "the ledger cannot be reached, read or written"),
    (TightBudgetError, 2, "what was asked is refused"),
)


def exit_code(error: TightBudgetError) -> int:
    """Returns the exit code of a refusal."""
    return next(code for of, code, _ in EXIT_CODES if isinstance(error, of))


def as_json(error: TightBudgetError) -> dict[str, Any]:
    """Returns a refusal's type, message, exit code and attributes, in this order."""
    order = dict.fromkeys(("type", "message"))
    return {**order, "exit_code": exit_code(error), **error.to_dict()}
