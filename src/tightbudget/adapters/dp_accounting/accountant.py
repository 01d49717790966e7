"""A ``dp_accounting.PrivacyAccountant`` whose answers are certified."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import numpy as np

from tightbudget.adapters.dp_accounting.events import (
    RELATIONS,
    EventError,
    Relation,
    from_dp_event,
    steps_of,
)
from tightbudget.engine.readings.gaussian_dp import gaussian_mu_bounds
from tightbudget.mechanisms.composition import Composition
from tightbudget.mechanisms.glance import glance
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import probability, refuse

_SMALLEST_RATE = 1e-12  # the smallest false-positive rate that dp-accounting asks about by itself


class TightPrivacyAccountant(dp_accounting.PrivacyAccountant):  # type: ignore[misc]
    """A ``dp_accounting.PrivacyAccountant`` whose answers are certified upper bounds.

    Guarantee: the composed events are (``get_epsilon(delta)``, delta)-DP and (eps,
    ``get_delta(eps)``)-DP under the accountant's relation, rounding included;
    ``get_epsilon_bounds`` and ``get_delta_bounds`` return lower bounds, too.

    Args:
        neighboring_relation: a ``dp_accounting.NeighboringRelation``.
        rtol: wanted relative gap between the two bounds, in (0, 1); a gap that cannot be reached
            gives a wider interval, whose upper bound is as certain.
    """

    def __init__(
        self, neighboring_relation: Any = Relation.ADD_OR_REMOVE_ONE, rtol: float = 1e-4
    ) -> None:
        super().__init__(neighboring_relation)
        self._rtol = rtol
        self._composed: Composition | None = Composition()

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        try:
            steps_of(event, RELATIONS[self.neighboring_relation])
        except EventError as refused:
            if refused.invalid:  # a ValueError, and not an event of an unsupported type
                raise
            return self.CompositionErrorDetails(refused.event, str(refused))
        if do_compose:
            self._composed = None
        return None

    def supports(self, event: Any) -> bool:
        """Says whether :meth:`compose` accepts an event: its type, its parameters, the relation.

        ``compose`` refuses the others, and notes nothing of them: with ``UnsupportedEventError``
        an event that has no mechanism under the relation, with ``EventError``, which is a
        ``ValueError``, one that has a parameter out of range.
        """
        try:
            return bool(super().supports(event))
        except EventError:
            return False

    def __repr__(self) -> str:
        """Writes the events as a composition, and an upper bound of epsilon where it is fast."""
        return glance(type(self).__name__, lambda: self.composition)

    @property
    def composition(self) -> Composition:
        """The composition of all events so far, which answers further questions."""
        if self._composed is None:
            self._composed = from_dp_event(self.ledger, self.neighboring_relation)
        return self._composed

    def get_epsilon_bounds(self, target_delta: float) -> Bounds:
        """Bounds epsilon at a delta in [0, 1]."""
        return self.composition.answer(delta=target_delta, rtol=self._rtol).bounds

    def get_delta_bounds(self, target_epsilon: float) -> Bounds:
        """Bounds delta at an epsilon >= 0, nats."""
        return self.composition.answer(epsilon=target_epsilon, rtol=self._rtol).bounds

    def get_epsilon(self, target_delta: float) -> float:
        """Returns the upper bound of :meth:`get_epsilon_bounds`.

        It is inf at every delta, 1 included, if the record is revealed for certain: dp-accounting
        has it so. (Everything is (0, 1)-DP, which ``get_epsilon_bounds(1)`` says.)
        """
        epsilon = self.get_epsilon_bounds(target_delta).upper
        if target_delta == 1 and self.get_delta_bounds(math.inf).lower == 1.0:
            return math.inf
        return epsilon

    def get_delta(self, target_epsilon: float) -> float:
        """Returns the upper bound of :meth:`get_delta_bounds`."""
        return self.get_delta_bounds(target_epsilon).upper

    def get_true_positive_rates(self, false_positive_rates: Any, deltas: Any = None) -> Any:
        """Bounds from above how often a test that tells the neighbours apart is right.

        Guarantee: no test whose false-positive rate is at most one of ``false_positive_rates`` has
        a larger true-positive rate than the value in its place, in either direction.
        Source: Dong, Roth, Su 2022.

        Args:
            false_positive_rates: one rate in [0, 1], or (n,) of them.
            deltas: is not read. dp-accounting takes the deltas of its bound from it; here all
                deltas count.

        Returns:
            One rate, or (n,) rates.

        Raises:
            ParameterError: a rate is not in [0, 1].
        """
        if np.ndim(false_positive_rates) == 0:
            return self._caught(false_positive_rates)
        return np.array([self._caught(rate) for rate in false_positive_rates])

    def _caught(self, fpr: float) -> float:
        return self.composition.answer(fpr=fpr, rtol=self._rtol).bounds.upper

    def get_gdp_parameter_estimate(
        self, false_positive_rates: Any = None, deltas: Any = None
    ) -> float:
        """Bounds from above the mu of Gaussian differential privacy, up to a small delta.

        Guarantee: delta(eps) is at most delta_mu(eps) + s for all eps >= 0, with s the smallest of
        ``false_positive_rates`` and mu the value returned. So a test with the false-positive rate a
        has at most the true-positive rate Phi(Phi^-1(a) + mu) + s. dp-accounting's method of this
        name returns an estimate, from some points of the curve, which may be below mu.
        Source: Dong, Roth, Su 2022, Corollary 2.13.

        Args:
            false_positive_rates: (n,) rates in [0, 1], of which only the smallest counts; it is
                1e-12, dp-accounting's smallest, if none are given.
            deltas: is not read, as for :meth:`get_true_positive_rates`.

        Returns:
            mu; inf, if outputs that reveal the record are likelier than s.

        Raises:
            ParameterError: a rate is not in [0, 1], or there is none.
        """
        slack = _SMALLEST_RATE
        if false_positive_rates is not None:
            rates = np.atleast_1d(false_positive_rates).tolist()
            if not rates:
                raise refuse("false_positive_rates", "have at least one rate", rates)
            slack = min(probability(false_positive_rates=rate) for rate in rates)
        return gaussian_mu_bounds(self.composition.engine, slack, self._rtol).upper
