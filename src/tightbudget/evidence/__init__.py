"""Statements for those who must defend a number, and checks of numbers that others printed."""

from tightbudget.evidence.budget import statement_of_budget, statement_of_session
from tightbudget.evidence.check import NumberCheck, PrintedClaim, check, read_claim
from tightbudget.evidence.statement import (
    PrivacyStatement,
    Section,
    statement_of_run,
)

__all__ = [
    "NumberCheck",
    "PrintedClaim",
    "PrivacyStatement",
    "Section",
    "check",
    "read_claim",
    "statement_of_budget",
    "statement_of_run",
    "statement_of_session",
]
