"""Statements for those who must defend a number: what is certified, what was said, what is open."""

from tightbudget.evidence.statement import (
    PrivacyStatement,
    Section,
    statement_of_budget,
    statement_of_run,
)

__all__ = ["PrivacyStatement", "Section", "statement_of_budget", "statement_of_run"]
