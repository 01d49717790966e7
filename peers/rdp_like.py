"""Our accountant with the attributes that the tests of dp-accounting's RDP accountant read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dp_accounting.rdp import rdp_privacy_accountant
from numpy.typing import NDArray

from tightbudget.adapters import dp_accounting as adapter
from tightbudget.mechanisms import Mechanism
from tightbudget.theorems.concentrated import Line

# Divergences rise with the order, so that what stands for order 1 is above it, by one part in 10^8.
_LOWEST = 1.0 + 1e-8


class RdpLike(adapter.TightPrivacyAccountant):
    """A tight accountant that has orders, and the Renyi divergence of what ran at each of them."""

    def __init__(
        self,
        orders: Sequence[float] = rdp_privacy_accountant.DEFAULT_RDP_ORDERS,
        neighboring_relation: Any = adapter.Relation.ADD_OR_REMOVE_ONE,
    ) -> None:
        super().__init__(neighboring_relation)
        self._orders = np.array(orders, dtype=float)

    @property
    def _rdp(self) -> NDArray[np.float64]:
        """The upper bounds of the divergences at the orders, added up over the releases."""
        relation = adapter._RELATIONS[self.neighboring_relation]
        steps = adapter._steps_of(self.ledger, relation)
        above = np.maximum(self._orders, _LOWEST)
        return np.array(
            [sum(runs * _divergence(step, order) for step, runs in steps) for order in above]
        )


def _divergence(step: Any, order: float) -> float:
    if isinstance(step, Mechanism):
        return step.renyi(order).upper
    if isinstance(step, Line):
        return step.xi + step.rho * order
    return float(step(order).upper)
