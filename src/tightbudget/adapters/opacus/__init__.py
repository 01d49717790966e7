"""The accountant ``tight`` for Opacus: importing this module registers it.

It proves the price of Gaussian steps with the noise multipliers that Opacus reports, on batches
that the loader's sampler draws. Opacus tells its accountants a sample rate and no sampler, also for
``poisson_sampling=False``. So this module wraps ``PrivacyEngine.make_private``, and an engine whose
accountant is ``tight`` hands over the loader. A loader that shuffles or cuts batches is accounted
as a pass over the data, one that draws with replacement by its batches, and any other is refused.
"""

from __future__ import annotations

from tightbudget.errors import ExtraError

try:
    from opacus.accountants import register_accountant
except ImportError as error:
    raise ExtraError("the accountant needs Opacus: pip install 'tightbudget[opacus]'") from error

from tightbudget.adapters.opacus.accountant import TightAccountant
from tightbudget.adapters.opacus.engine import hand_over_loaders
from tightbudget.adapters.opacus.steps import dp_sgd_batch, dp_sgd_pass, dp_sgd_step

__all__ = ["TightAccountant", "dp_sgd_batch", "dp_sgd_pass", "dp_sgd_step"]

# with force, this module may be loaded twice: the second accountant replaces the first
register_accountant("tight", TightAccountant, force=True)
hand_over_loaders()
