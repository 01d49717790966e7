"""Refusals of the program: one line on stderr, an exit code, and with --json an object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from tightbudget import LedgerError, PrecisionError, TightBudgetError
from tightbudget.cli.commands import kind_in
from tightbudget.errors import BudgetError, LedgerCorruptError, SettlementError
from tightbudget.mechanisms import MECHANISMS
from tightbudget.notation.options import option_of, written

# What to write instead of an option that a command does not have.
_MEANT = {
    ("epsilon", "epsilon"): "epsilon is the answer here, at a --delta; "
    "tightbudget delta takes --epsilon",
    ("delta", "delta"): "delta is the answer here, at an --epsilon; "
    "tightbudget epsilon takes --delta",
    ("ledger", "ledger"): "give --ledger after the command: tightbudget ledger show --ledger URL",
}

INTERRUPTED = 130
REFUTED = 8  # an answer of its own: "check" or "audit" has refuted what was claimed

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


def hint_at(error: Any, args: Sequence[str]) -> str:
    """Writes the message of an error about the command line, with a hint where one is known.

    Args:
        error: what typer raised.
        args: the arguments of the program.
    """
    option = getattr(error, "option_name", None)
    if option is None or not hasattr(error, "possibilities"):
        return str(error.format_message())
    name = option.lstrip("-").replace("-", "_")
    kind = kind_in(args)
    kinds = [*MECHANISMS.values()] if kind is None else [MECHANISMS[kind]]
    hints = [_MEANT.get((args[0], name)), *(mechanism.hint(name) for mechanism in kinds)]
    if kind is not None and name in (field.name for field in fields(kinds[0])):
        hints.insert(1, f"that of {kind} is {written(option_of(name))}")
    # of one mechanism both count: what the command answers, and what the mechanism has instead
    known = [hint for hint in hints if hint][: 1 if kind is None else 2]
    return f"{error.message} ({'; '.join(known)})" if known else str(error.format_message())


def as_json(error: TightBudgetError) -> dict[str, Any]:
    """Returns a refusal's type, message, exit code and attributes, in this order."""
    order = dict.fromkeys(("type", "message"))
    return {**order, "exit_code": exit_code(error), **error.to_dict()}
