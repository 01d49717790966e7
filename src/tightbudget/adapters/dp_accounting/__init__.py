"""dp-accounting's events and accountants: the same event trees, answered with proved bounds.

``TightPrivacyAccountant`` stands wherever a ``dp_accounting.PrivacyAccountant`` may:
``calibrate_dp_mechanism``, JAX Privacy, TensorFlow Privacy. ``from_dp_event`` gives the
composition behind it. Needs the extra ``dp-accounting``.
"""

from __future__ import annotations

from tightbudget.errors import ExtraError

try:
    import attr as attr
    import dp_accounting as dp_accounting
except ImportError as error:
    raise ExtraError(
        "events need dp-accounting: pip install 'tightbudget[dp-accounting]'"
    ) from error

from tightbudget.adapters.dp_accounting.accountant import TightPrivacyAccountant
from tightbudget.adapters.dp_accounting.distributions import from_pld, to_pld
from tightbudget.adapters.dp_accounting.events import EventError, event_from_dict, from_dp_event

__all__ = [
    "EventError",
    "TightPrivacyAccountant",
    "event_from_dict",
    "from_dp_event",
    "from_pld",
    "to_pld",
]
