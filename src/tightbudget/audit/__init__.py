"""Audits: does the code that ran keep what was certified? Lower bounds with confidence."""

from tightbudget.audit.betting import sequential
from tightbudget.audit.many_runs import histograms, many_runs
from tightbudget.audit.one_run import one_run, one_run_of_guesses
from tightbudget.audit.releases import release
from tightbudget.audit.result import Audit
from tightbudget.audit.search import SearchedAudit, search

__all__ = [
    "Audit",
    "SearchedAudit",
    "histograms",
    "many_runs",
    "one_run",
    "one_run_of_guesses",
    "release",
    "search",
    "sequential",
]
