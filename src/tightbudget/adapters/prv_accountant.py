"""The names of ``prv_accountant``, with certified answers: change the import, and nothing else.

``prv_accountant`` is no longer maintained, and does not come back for little noise. The functions
and classes here take its arguments and keep the order of its answers: a lower bound, an estimate,
an upper bound. The errors that it asks for are taken and not used: both bounds are certified, and
closer. Needs no other library.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from tightbudget.accounting.calibrate import calibrate
from tightbudget.errors import CalibrationError
from tightbudget.mechanisms import ApproximateDP, Gaussian, Laplace, Mechanism
from tightbudget.mechanisms.composition import Composition, compose
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import count, non_negative, positive, positive_count, refuse

__all__ = [
    "Accountant",
    "ApproximateDPMechanism",
    "DPSGDAccountant",
    "GaussianMechanism",
    "LaplaceMechanism",
    "PRVAccountant",
    "PoissonSubsampledGaussianMechanism",
    "PureDPMechanism",
    "find_noise_multiplier",
]

Answers = tuple[float, float, float]


def PoissonSubsampledGaussianMechanism(  # noqa: N802 (their name)
    sampling_probability: float, noise_multiplier: float
) -> Mechanism:
    """Makes Gaussian noise on a Poisson sample: a step of DP-SGD.

    Args:
        sampling_probability: the probability of each record to be in the sample.
        noise_multiplier: the standard deviation of the noise over the clipping norm.
    """
    return Gaussian(sigma=noise_multiplier).subsampled(rate=sampling_probability)


def GaussianMechanism(  # noqa: N802
    noise_multiplier: float, l2_sensitivity: float = 1.0
) -> Mechanism:
    """Makes Gaussian noise.

    Args:
        noise_multiplier: the standard deviation of the noise.
        l2_sensitivity: the most that neighbouring data move the answer.
    """
    return Gaussian(sigma=noise_multiplier, sensitivity=l2_sensitivity)


def LaplaceMechanism(mu: float) -> Mechanism:  # noqa: N802
    """Makes Laplace noise.

    Args:
        mu: the most that neighbouring data move the answer, over the scale of the noise.
    """
    return Laplace(scale=1.0, sensitivity=mu)


def PureDPMechanism(eps: float) -> Mechanism:  # noqa: N802
    """Makes any mechanism of this epsilon.

    Args:
        eps: >= 0, nats.
    """
    return ApproximateDP(eps)


def ApproximateDPMechanism(epsilon: float, delta: float) -> Mechanism:  # noqa: N802
    """Makes any mechanism of this (epsilon, delta).

    Args:
        epsilon: >= 0, nats.
        delta: in [0, 1].
    """
    return ApproximateDP(epsilon, delta)


class PRVAccountant:
    """Answers for compositions of mechanisms, each a number of times.

    Guarantee: the exact value is between the first and the last number of each answer.

    Args:
        prvs: a mechanism, of this module or of ``tightbudget``, or several.
        eps_error: >= 0; not used, as the bounds are certified.
        delta_error: >= 0; not used.
        max_self_compositions: the most runs of each mechanism that may be asked for; one if None.
        eps_max: not used: there is no largest epsilon.

    Raises:
        ParameterError: an argument is refused; so is a random variable of ``prv_accountant``.
    """

    def __init__(
        self,
        prvs: Mechanism | Sequence[Mechanism],
        eps_error: float,
        delta_error: float,
        max_self_compositions: int | Sequence[int] | None = None,
        eps_max: float | None = None,
    ) -> None:
        non_negative(eps_error=eps_error)
        non_negative(delta_error=delta_error)
        self.prvs: list[Mechanism] = list(_listed(prvs))
        for prv in self.prvs:
            if not isinstance(prv, Mechanism):
                raise refuse("prvs", "be mechanisms of this module or of tightbudget", prv)
        most = 1 if max_self_compositions is None else max_self_compositions
        self.max_self_compositions: list[int] = self._runs(most, "max_self_compositions")

    def compute_delta(
        self, epsilon: float, num_self_compositions: int | Sequence[int] | None = None
    ) -> Answers:
        """Returns a lower bound, the middle and an upper bound of delta.

        Args:
            epsilon: nats.
            num_self_compositions: the number of runs of each mechanism; one if None.

        Raises:
            ParameterError: an argument is refused, or there are more runs than were announced.
        """
        return _answers(self.compute_composition(num_self_compositions).delta(epsilon))

    def compute_epsilon(
        self, delta: float, num_self_compositions: int | Sequence[int] | None = None
    ) -> Answers:
        """Returns a lower bound, the middle and an upper bound of epsilon, nats.

        Args:
            delta: in [0, 1].
            num_self_compositions: the number of runs of each mechanism; one if None.

        Raises:
            ParameterError: an argument is refused, or there are more runs than were announced.
        """
        return _answers(self.compute_composition(num_self_compositions).epsilon(delta))

    def compute_composition(
        self, num_self_compositions: int | Sequence[int] | None = None
    ) -> Composition:
        """Composes the mechanisms, each as often as is asked: a composition of ``tightbudget``.

        Args:
            num_self_compositions: the number of runs of each mechanism; one if None.

        Raises:
            ParameterError: an argument is refused, or there are more runs than were announced.
        """
        asked = 1 if num_self_compositions is None else num_self_compositions
        runs = self._runs(asked, "num_self_compositions")
        if any(n > most for n, most in zip(runs, self.max_self_compositions, strict=True)):
            must = f"be at most max_self_compositions = {self.max_self_compositions}"
            raise refuse("num_self_compositions", must, num_self_compositions)
        return compose([prv * n for prv, n in zip(self.prvs, runs, strict=True) if n])

    def _runs(self, given: int | Sequence[int], name: str) -> list[int]:
        """Reads a number of runs for each mechanism: one number stands for all of them."""
        listed: list[Any] = list(given) if isinstance(given, Sequence) else [given] * self._many
        if len(listed) != self._many:
            raise refuse(name, f"have {self._many} numbers, as there are mechanisms", given)
        return [count(**{name: number}) for number in listed]

    @property
    def _many(self) -> int:
        return len(self.prvs)


class DPSGDAccountant(PRVAccountant):
    """Answers for the steps of DP-SGD on Poisson samples.

    Args:
        noise_multiplier: the standard deviation of the noise over the clipping norm.
        sampling_probability: the probability of each record to be in a batch.
        max_steps: the most steps that may be asked for.
        eps_error, delta_error: not used, as the bounds are certified.
    """

    def __init__(
        self,
        noise_multiplier: float,
        sampling_probability: float,
        max_steps: int,
        eps_error: float = 0.1,
        delta_error: float = 1e-9,
    ) -> None:
        step = PoissonSubsampledGaussianMechanism(sampling_probability, noise_multiplier)
        super().__init__(step, eps_error, delta_error, positive_count(max_steps=max_steps))

    def compute_epsilon(  # type: ignore[override]  # their signature
        self, delta: float, num_steps: int
    ) -> Answers:
        """Returns a lower bound, the middle and an upper bound of epsilon, nats."""
        return super().compute_epsilon(delta, num_steps)


class Accountant:
    """Answers for DP-SGD at one delta, by the oldest name of ``prv_accountant``; it warns.

    Args:
        noise_multiplier: the standard deviation of the noise over the clipping norm.
        sampling_probability: the probability of each record to be in a batch.
        delta: in [0, 1].
        max_compositions: the most steps that may be asked for.
        eps_error: not used, as the bounds are certified.
    """

    def __init__(
        self,
        noise_multiplier: float,
        sampling_probability: float,
        delta: float,
        max_compositions: int,
        eps_error: float = 0.1,
    ) -> None:
        warnings.warn(
            "Accountant is deprecated: use DPSGDAccountant", DeprecationWarning, stacklevel=2
        )
        self.delta = delta
        self._steps = DPSGDAccountant(
            noise_multiplier, sampling_probability, max_compositions, eps_error
        )

    def compute_epsilon(self, num_compositions: int) -> Answers:
        """Returns a lower bound, the middle and an upper bound of epsilon, nats."""
        return self._steps.compute_epsilon(self.delta, num_compositions)


def find_noise_multiplier(
    sampling_probability: float,
    num_steps: int,
    target_epsilon: float,
    target_delta: float,
    eps_error: float = 0.1,
    mu_max: float = 100.0,
) -> float:
    """Finds the least noise multiplier of DP-SGD on Poisson samples that meets a target.

    Guarantee: at the noise that is returned, epsilon is at most the target; ``prv_accountant``
    stays below the target plus ``eps_error``.

    Args:
        sampling_probability: the probability of each record to be in a batch.
        num_steps: the number of steps.
        target_epsilon: nats.
        target_delta: in (0, 1).
        eps_error: >= 0; not used.
        mu_max: the largest noise multiplier that is returned.

    Raises:
        CalibrationError: the target needs more noise than ``mu_max``, or cannot be met.
        ParameterError: an argument is refused.
    """
    non_negative(eps_error=eps_error)
    most = positive(mu_max=mu_max)

    def training(sigma: float) -> Composition:
        return PoissonSubsampledGaussianMechanism(sampling_probability, sigma) * num_steps

    found = calibrate(training, epsilon=target_epsilon, delta=target_delta).value
    if not found <= most:
        raise CalibrationError(f"the target needs a noise multiplier of {found}, mu_max = {most}")
    return found


def _listed(prvs: Mechanism | Sequence[Mechanism]) -> Sequence[Mechanism]:
    """Lists the mechanisms, one or several.

    Raises:
        ParameterError: there is none.
    """
    listed = [prvs] if isinstance(prvs, Mechanism) or not isinstance(prvs, Sequence) else prvs
    if not listed:
        raise refuse("prvs", "have at least one mechanism", prvs)
    return listed


def _answers(bounds: Bounds) -> Answers:
    """Returns the lower bound, the middle and the upper bound of certified bounds."""
    return bounds.lower, (bounds.lower + bounds.upper) / 2, bounds.upper
