"""Audits: does the code that ran keep what was certified? Lower bounds with confidence."""

from tightbudget.audit.one_run import one_run, one_run_of_guesses
from tightbudget.audit.result import Audit

__all__ = ["Audit", "one_run", "one_run_of_guesses"]
