"""Tight privacy bounds: certified answers to the question what private mechanisms cost together.

This module gathers the names of the first week; the others are in their room, as in
``tb.release.Meter``. Each room of the package answers one question. A room imports from rooms above
it in this list, never from one below or on its own line:

- ``links``: where does the project live? ``later``: which names load when they are used?
  ``worker``: how does a process end with its parent?
  ``credentials``: what of a text may be a password?
- ``errors``: why is a request refused? ``notebook``: how does a value look in a notebook?
- ``numerics``: what do floating-point numbers promise? ``text_file``: what does a file say?
- ``pairs``: what may an engine ask of two output distributions? ``drawing``: how is a curve drawn?
  ``tabular``: how is a table written for a paper? ``durable_lines``: which lines outlive a process?
- ``engine``: what does a composition of pairs cost? ``theorems``: what do published theorems say?
  ``trials``: how often does a search run?
- ``mechanisms``: which two distributions must an observer tell apart?
- ``output_dp``: what does an observed output cost? ``privacy_buckets``: what does the
  algorithm of "Tight on Budget?" say?
- ``accounting``: how much noise is enough, and how do bounds compare? ``notation``: how do people
  write mechanisms and read answers?
- ``sweeps``: what do many questions at once answer? ``workflows``: what do choices cost?
  ``promises``: what does a ledger promise, and how is that said?
- ``audit``: does the code that ran keep what was certified?
  ``release``: what does an answer on private data cost? ``ledger``: what was promised, durably?
- ``client``: what does a ledger on a server say? ``adapters``: how do neighbouring libraries ask?
  ``tables``: what does an answer about rows in files, databases and clusters cost?
- ``evidence``: what does a reviewer need? ``marginals``: what do synthetic tables cost?
- ``explorer``: what may a page ask, in how much time? ``web``: who may see and charge a budget?
- ``cli``: the same questions at a terminal.
"""

from typing import TYPE_CHECKING

# Imported here, from a shallow place of the stack, scipy.special takes 0.2 s less of system time
# than from the bottom of the rooms' imports (measured with Python 3.11, benchmarks/start.py): its
# import calls many small functions, and across the end of a piece of the stack each call maps
# memory anew.
import scipy.special as _early  # noqa: F401

from tightbudget import (
    audit,
    client,
    errors,
    evidence,
    ledger,
    marginals,
    mechanisms,
    privacy_buckets,
    release,
    sweeps,
    tables,
    theorems,
    trials,
    workflows,
)
from tightbudget.accounting.calibrate import Calibration, calibrate
from tightbudget.accounting.compare.compare import compare
from tightbudget.accounting.compare.comparison import Comparison
from tightbudget.accounting.plan_file import read_plan, write_plan
from tightbudget.accounting.schedule import StoppingSchedule, early_stopping
from tightbudget.engine.engine import Explanation
from tightbudget.errors import (
    BudgetExceeded,
    BusyError,
    KeyConflictError,
    LedgerError,
    ParameterError,
    PrecisionError,
    ReleaseError,
    SourceError,
    TightBudgetError,
)
from tightbudget.later import Later, face, installed
from tightbudget.mechanisms import *  # noqa: F403
from tightbudget.mechanisms.composition import Composition, compose
from tightbudget.mechanisms.correlated_noise import CorrelatedNoise
from tightbudget.mechanisms.curve import Curve
from tightbudget.mechanisms.risk import Risk
from tightbudget.numerics.bounds import Bounds, Estimate
from tightbudget.output_dp.account import Account, Hold
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.filter import OutputDPFilter, OutputDPOdometer
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.output_dp.stopping import optimal_delta, stopping_delta
from tightbudget.output_dp.worst_case_filters import (
    AdvancedFilter,
    GaussianDPFilter,
    RenyiFilter,
    ZCDPFilter,
)
from tightbudget.sweeps.sweep import sweep
from tightbudget.tables import *  # noqa: F403

if TYPE_CHECKING:
    from tightbudget.client.remote import RemoteLedger
    from tightbudget.ledger.ledger import Ledger

__version__ = "0.1.0"

# What is not met in the first week stays in its room: tb.tables.TableAnswer.
_IN_THEIR_ROOM = {
    "BestOf",
    "ShuffledReports",
    "MECHANISMS",
    "Direction",
    "AboveThresholdRun",
    "ValueBins",
    "CountDistinct",
    "GroupedQuantiles",
    "Months",
    "MostFrequent",
    "Quarters",
    "QuestionPreview",
    "Ratio",
    "SessionPreview",
    "TableAnswer",
    "Years",
}

__all__ = [
    "Account",
    "AdvancedFilter",
    "Amount",
    "Bounds",
    "BudgetExceeded",
    "BusyError",
    "Calibration",
    "Comparison",
    "Composition",
    "CorrelatedNoise",
    "Curve",
    "Estimate",
    "Explanation",
    "GaussianDPFilter",
    "Hold",
    "KeyConflictError",
    "Ledger",
    "LedgerError",
    "OutputDP",
    "OutputDPFilter",
    "OutputDPOdometer",
    "ParameterError",
    "PrecisionError",
    "ReleaseError",
    "RemoteLedger",
    "RenyiFilter",
    "Risk",
    "SourceError",
    "StoppingSchedule",
    "TightBudgetError",
    "ZCDPFilter",
    "audit",
    "calibrate",
    "client",
    "compare",
    "compose",
    "early_stopping",
    "errors",
    "evidence",
    "ledger",
    "marginals",
    "mechanisms",
    "optimal_delta",
    "privacy_buckets",
    "read_plan",
    "release",
    "stopping_delta",
    "sweep",
    "sweeps",
    "tables",
    "theorems",
    "trials",
    "workflows",
    "write_plan",
    *(name for name in mechanisms.__all__ if name not in _IN_THEIR_ROOM),
    *(name for name in tables.__all__ if name not in _IN_THEIR_ROOM),
]
for _name in _IN_THEIR_ROOM:
    del globals()[_name]

# What an earlier version called by another name.
_RENAMED = {
    "Budget": "Amount",
    "Histogram": "HistogramPair",
    "QuestionWhatIf": "tables.QuestionPreview",
    "SessionWhatIf": "tables.SessionPreview",
    "TestedCounts": "GatedCounts",
    "TestedRelease": "release.GatedRelease",
    "TestSensitivity": "release.GateSensitivity",
    "WhatIf": "release.ReleasePreview",
    "WorstCase": "ApproximateDP",
    "classic": "privacy_buckets",
}
_ROOMS = (audit, client, errors, ledger, mechanisms, release, sweeps, tables, trials, workflows)


def _meant(name: str) -> str:
    """Says where a name that is missing is now, or that it is a composition's method; else ""."""
    has = {room: {*room.__all__, *getattr(room, "_LATER", ())} for room in _ROOMS}
    there = [f"{room.__name__.partition('.')[2]}.{name}" for room in _ROOMS if name in has[room]]
    now = _RENAMED.get(name) or next(iter(there), None)
    if now:
        return f"tb.{name} is tb.{now} now"
    asked = callable(getattr(Composition, name, None)) and name not in vars(Composition)
    method = asked and not name.startswith("_")
    return f"tb.{name} is a method: write composition.{name}(...)" if method else ""


_LATER = {
    "Ledger": Later("tightbudget.ledger.ledger", "sqlalchemy"),
    "RemoteLedger": Later("tightbudget.client.remote", "httpx"),
}

# `from tightbudget import *` asks for every name: those of extras that are not installed are left
# out here, and refused with the extra's name where somebody asks for them
__all__[:] = installed(__all__, _LATER)
__getattr__, __dir__ = face(globals(), _LATER, hint=_meant)
