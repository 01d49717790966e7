"""Tight privacy bounds: certified answers to the question what private mechanisms cost together.

This module gathers the public names. Each room of the package answers one question. A room imports
from rooms above it in this list, never from one below or on its own line:

- ``links``: where does the project live?
- ``errors``: why is a request refused? ``notebook``: how does a value look in a notebook?
- ``numerics``: what do floating-point numbers promise?
- ``pairs``: what may an engine ask of two output distributions? ``drawing``: how is a curve drawn?
- ``engine``: what does a composition of pairs cost? ``theorems``: what do published theorems say?
- ``mechanisms``: which two distributions must an observer tell apart?
- ``output_dp``: what does an observed output cost? ``privacy_buckets`` (here ``classic``): what
  does the algorithm of "Tight on Budget?" say?
- ``accounting``: how much noise is enough, and how do bounds compare?
- ``release``: what does an answer on private data cost? ``ledger``: what was promised, durably?
- ``client``: what does a ledger on a server say? ``adapters``: how do neighbouring libraries ask?
  ``tables``: what does an answer about rows in files, databases and clusters cost?
- ``explorer``: what may a page ask, in how much time? ``web``: who may see and charge a budget?
- ``cli``: the same questions at a terminal.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

# Imported here, from a shallow place of the stack, scipy.special takes 0.2 s less of system time
# than from the bottom of the rooms' imports (measured with Python 3.11, benchmarks/start.py): its
# import calls many small functions, and across the end of a piece of the stack each call maps
# memory anew.
import scipy.special as _early  # noqa: F401

from tightbudget import privacy_buckets as classic
from tightbudget import release, theorems
from tightbudget.accounting.calibrate import Calibration, calibrate
from tightbudget.accounting.compare.compare import compare
from tightbudget.accounting.compare.comparison import Comparison
from tightbudget.accounting.plan_file import read_plan, write_plan
from tightbudget.accounting.schedule import StoppingSchedule, early_stopping
from tightbudget.accounting.sweep.answer import Answer
from tightbudget.accounting.sweep.grid_file import read_questions
from tightbudget.accounting.sweep.question import Question, questions
from tightbudget.accounting.sweep.sweep import sweep
from tightbudget.accounting.sweep.table import Sweep
from tightbudget.engine.engine import Explanation
from tightbudget.errors import (
    BudgetError,
    BudgetExceeded,
    BusyError,
    CalibrationError,
    ExtraError,
    FencingError,
    FileError,
    GridError,
    KeyConflictError,
    LedgerCorruptError,
    LedgerError,
    LimitError,
    ParameterError,
    PrecisionError,
    RelationError,
    ReleaseError,
    SettlementError,
    SourceError,
    TightBudgetError,
)
from tightbudget.mechanisms import *  # noqa: F403
from tightbudget.mechanisms import __all__ as _mechanisms
from tightbudget.mechanisms.composition import Composition, compose
from tightbudget.mechanisms.correlated_noise import CorrelatedNoise
from tightbudget.mechanisms.curve import Curve
from tightbudget.mechanisms.risk import Risk
from tightbudget.numerics.bounds import Bounds, Estimate
from tightbudget.output_dp.account import Account, Hold
from tightbudget.output_dp.amount import Budget
from tightbudget.output_dp.filter import OutputDPFilter, OutputDPOdometer
from tightbudget.output_dp.guarantee import OutputDP
from tightbudget.output_dp.stopping import optimal_delta, stopping_delta
from tightbudget.output_dp.worst_case_filters import (
    AdvancedFilter,
    GaussianDPFilter,
    RenyiFilter,
    ZCDPFilter,
)
from tightbudget.release import __all__ as _release
from tightbudget.tables import *  # noqa: F403
from tightbudget.tables import __all__ as _tables

if TYPE_CHECKING:
    from tightbudget.release import *  # noqa: F403

# what was promised, durably?
if TYPE_CHECKING:
    from tightbudget.client.remote import (
        RemoteBlockRange,
        RemoteBlocks,
        RemoteBudget,
        RemoteHold,
        RemoteLedger,
    )
    from tightbudget.ledger.ledger import BlockRange, Blocks, Ledger, LedgerBudget, LedgerHold

__version__ = "0.1.0"

__all__ = [
    "Account",
    "AdvancedFilter",
    "Answer",
    "BlockRange",
    "Blocks",
    "Bounds",
    "Budget",
    "BudgetError",
    "BudgetExceeded",
    "BusyError",
    "Calibration",
    "CalibrationError",
    "Comparison",
    "Composition",
    "CorrelatedNoise",
    "Curve",
    "Estimate",
    "Explanation",
    "ExtraError",
    "FencingError",
    "FileError",
    "GaussianDPFilter",
    "GridError",
    "Hold",
    "KeyConflictError",
    "Ledger",
    "LedgerBudget",
    "LedgerCorruptError",
    "LedgerError",
    "LedgerHold",
    "LimitError",
    "OutputDP",
    "OutputDPFilter",
    "OutputDPOdometer",
    "ParameterError",
    "PrecisionError",
    "Question",
    "RelationError",
    "ReleaseError",
    "RemoteBlockRange",
    "RemoteBlocks",
    "RemoteBudget",
    "RemoteHold",
    "RemoteLedger",
    "RenyiFilter",
    "Risk",
    "SettlementError",
    "SourceError",
    "StoppingSchedule",
    "Sweep",
    "TightBudgetError",
    "ZCDPFilter",
    "calibrate",
    "classic",
    "compare",
    "compose",
    "early_stopping",
    "optimal_delta",
    "questions",
    "read_plan",
    "read_questions",
    "stopping_delta",
    "sweep",
    "theorems",
    "write_plan",
    *_mechanisms,
    *_release,
    *_tables,
]


# what loads when it is first used, and what must be installed for it
_LATER = {
    "PrivateLogisticRegression": ("tightbudget.release.mechanisms.logistic_regression", "sklearn"),
    **dict.fromkeys(
        ("BlockRange", "Blocks", "Ledger", "LedgerBudget", "LedgerHold"),
        ("tightbudget.ledger.ledger", "sqlalchemy"),
    ),
    **dict.fromkeys(
        ("RemoteLedger", "RemoteBlocks", "RemoteBlockRange", "RemoteBudget", "RemoteHold"),
        ("tightbudget.client.remote", "httpx"),
    ),
}


def _is_there(name: str) -> bool:
    return name not in _LATER or importlib.util.find_spec(_LATER[name][1]) is not None


# `from tightbudget import *` asks for every name: those of extras that are not installed are left
# out here, and refused with the extra's name where somebody asks for them
__all__[:] = [name for name in __all__ if _is_there(name)]


def __getattr__(name: str) -> Any:
    """Loads what needs scikit-learn, a database or the network when it is first used."""
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name][0]), name)
    if name in _release:
        return getattr(release, name)
    raise AttributeError(f"module 'tightbudget' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names that are offered here, also those that have not been loaded yet."""
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "importlib"})
