"""The accountant ``tight`` for Opacus: importing this module registers it.

It proves the price of Poisson-sampled Gaussian steps with the noise multipliers and sample rates
that Opacus reports, for neighbours that differ by one record. It trusts Opacus that the sampler
and the noise are as reported. With ``poisson_sampling=False`` no step is Poisson-sampled at the
reported sample rate, so no accountant that is told this rate has a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tightbudget.adapters.stopping import StoppingCallback
from tightbudget.errors import ExtraError, ParameterError
from tightbudget.mechanisms.composition import Composition, Mechanism
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.worst_case import WorstCase
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import count, non_negative, probability, refuse

try:
    from opacus.accountants import IAccountant, register_accountant
    from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer
except ImportError as error:
    raise ExtraError("the accountant needs Opacus: pip install 'tightbudget[opacus]'") from error

__all__ = ["TightAccountant", "dp_sgd_step"]


def dp_sgd_step(noise_multiplier: float, sample_rate: float) -> Mechanism:
    """Returns the mechanism of one step of Opacus: Gaussian noise on a Poisson sample.

    Args:
        noise_multiplier: the noise's standard deviation divided by the clipping norm, >= 0;
            with 0 the step shows each record of the sample.
        sample_rate: in [0, 1]; for the loader that Opacus returns, 1 / len(loader).

    Raises:
        ParameterError: an argument is refused.
    """
    sigma = non_negative(noise_multiplier=noise_multiplier)
    base = Gaussian(sigma) if sigma > 0 else WorstCase(0.0, 1.0)
    return base.subsampled(probability(sample_rate=sample_rate))


class TightAccountant(IAccountant):  # type: ignore[misc]
    """An accountant of Opacus with certified bounds: ``PrivacyEngine(accountant="tight")``.

    Guarantee: :meth:`bounds` contains the exact epsilon of the steps in ``history``, the larger
    one of both directions (a record added, a record removed), if the numbers of steps do not
    depend on the data.

    Attributes:
        history: (noise multiplier, sample rate, steps), in order, as in Opacus's accountants.
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []
        self._stopping: StoppingCallback[Any] | None = None

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts one step.

        Raises:
            ParameterError: an argument is refused, or the callback refuses the step.
            SettlementError: the callback has a stop due, or its run is over.
        """
        mechanism = dp_sgd_step(noise_multiplier, sample_rate)
        if self._stopping is not None:
            self._stopping.step(mechanism)
        kind, steps = (float(noise_multiplier), float(sample_rate)), 0
        if self.history and tuple(self.history[-1][:2]) == kind:
            steps = self.history.pop()[2]
        self.history.append((*kind, steps + 1))  # guard: each-step-counts

    def report_to(self, stopping: StoppingCallback[Any]) -> None:
        """Tells each step from now on to a callback, which refuses a step that is not paid for.

        The hook of Opacus runs before the model is updated: a refused step has no effect.
        """
        self._stopping = stopping

    @property
    def composition(self) -> Composition:
        """The composition of all steps so far, which also answers deltas, curves and risk.

        Raises:
            ParameterError: an entry of the history is refused.
        """
        return Composition(
            tuple((dp_sgd_step(sigma, q), k) for sigma, q, k in _checked(self.history))
        )

    def bounds(self, delta: float, rtol: float = 1e-4) -> Bounds:
        """Returns both bounds of epsilon: see :meth:`tightbudget.Composition.epsilon`."""
        return self.composition.epsilon(delta, rtol)

    def get_epsilon(self, delta: float, *, rtol: float = 1e-4, **_ignored: object) -> float:
        """Returns the upper bound of :meth:`bounds`.

        Opacus passes further keywords to all accountants; they change nothing here.
        """
        return self.bounds(delta, rtol).upper  # guard: upper-bound-reported

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """Returns the hook that Opacus calls after noise is added and before the model changes.

        The hook refuses a step that :func:`dp_sgd_step` does not describe, with a ParameterError:
        a step over accumulated batches, or with adaptive clipping.
        """

        def hook(optimizer: DPOptimizer) -> None:
            if isinstance(optimizer, AdaClipDPOptimizer):
                raise ParameterError(
                    "clipping must be 'flat' or 'per_layer': 'adaptive' divides by the size of the "
                    "sample, which no noise hides"
                )
            if optimizer.accumulated_iterations != 1:
                raise refuse(
                    "accumulated_iterations",
                    "be 1: a record may be in several samples of one step",
                    optimizer.accumulated_iterations,
                )
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=sample_rate)

        return hook

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores the state that ``state_dict`` of a ``tight`` accountant has returned.

        Raises:
            ValueError: the argument is no such state, or one of another accountant.
            ParameterError: an entry of its history is refused; the accountant stays as it was.
        """
        history = _checked((state_dict or {}).get("history", ()))
        super().load_state_dict(state_dict)
        self.history = history

    def __len__(self) -> int:
        """Counts the steps so far."""
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """Returns the name by which Opacus knows this accountant."""
        return "tight"


def _checked(history: object) -> list[tuple[float, float, int]]:
    """Returns the entries of a history as plain numbers; refuses any other history."""
    if not isinstance(history, (tuple, list)):
        raise refuse("history", "be a list", history)
    checked = []
    for i, entry in enumerate(history):
        if not isinstance(entry, (tuple, list)) or len(entry) != 3:
            raise refuse(f"history[{i}]", "be (noise multiplier, sample rate, steps)", entry)
        sigma, rate, steps = entry
        checked.append(
            (
                non_negative(**{f"history[{i}][0]": sigma}),
                probability(**{f"history[{i}][1]": rate}),
                count(**{f"history[{i}][2]": steps}),
            )
        )
    return checked


# with force, this module may be loaded twice: the second accountant replaces the first
register_accountant("tight", TightAccountant, force=True)
