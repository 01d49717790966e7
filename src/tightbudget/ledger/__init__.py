"""The ledger: budgets in a database that survive crashes and are shared by many analysts.

Needs the extra ``ledger``, where it opens a database.
"""

from typing import TYPE_CHECKING

from tightbudget.later import Later, face, installed

if TYPE_CHECKING:
    from tightbudget.ledger.block_set import BlockRange, Blocks
    from tightbudget.ledger.budget import LedgerBudget
    from tightbudget.ledger.hold import LedgerHold
    from tightbudget.ledger.verification import Verification
    from tightbudget.promises.checkpoint import Checkpoint
    from tightbudget.promises.values import BlockTerms, Event, OpenHold, Preview, Statement

__all__ = [
    "BlockRange",
    "BlockTerms",
    "Blocks",
    "Checkpoint",
    "Event",
    "LedgerBudget",
    "LedgerHold",
    "OpenHold",
    "Preview",
    "Statement",
    "Verification",
]


def _in_a_database(module: str) -> Later:
    return Later(f"tightbudget.ledger.{module}", "sqlalchemy", first="tightbudget.ledger.ledger")


_VALUE = Later("tightbudget.promises.values", "numpy")
_LATER = {
    "BlockRange": _in_a_database("block_set"),
    "BlockTerms": _VALUE,
    "Blocks": _in_a_database("block_set"),
    "Checkpoint": Later("tightbudget.promises.checkpoint", "numpy"),
    "Event": _VALUE,
    "LedgerBudget": _in_a_database("budget"),
    "LedgerHold": _in_a_database("hold"),
    "OpenHold": _VALUE,
    "Preview": _VALUE,
    "Statement": _VALUE,
    "Verification": _in_a_database("verification"),
}

__all__[:] = installed(__all__, _LATER)
__getattr__, __dir__ = face(globals(), _LATER)
