"""The base of mechanisms on data: what a subclass gets from it, and what it has to give."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tightbudget as tb
from tightbudget import release
from tightbudget.errors import ParameterError
from tightbudget.numerics.validate import plain_numbers
from tightbudget.release import Noise
from tightbudget.release.mechanism import MechanismOnData, Priced
from tightbudget.release.release import answered


@plain_numbers
@dataclass(frozen=True)
class IsLong(MechanismOnData[Any, bool]):
    """Says whether a list is longer than a bound, noisily: the shortest mechanism there is."""

    bound: int
    epsilon: float

    @property
    def guarantee(self) -> tb.OutputDP:
        """Each answer costs epsilon."""
        return tb.OutputDP({"value": self.epsilon})

    def _admitted(self, data: Any) -> Any:
        if not isinstance(data, list):
            raise ParameterError(f"data must be a list, got {type(data).__name__}")
        return data

    def _run(self, data: Any, noise: Noise) -> tuple[bool, str]:
        length = answered(lambda: len(data)) or 0
        return length + int(noise.laplace(1 / self.epsilon, 1)[0]) > self.bound, "value"


class Draws(list[int]):
    """A source of noise that counts as false once its list is empty."""

    batch = 1

    def laplace(self, scale: Any, size: int) -> Any:
        return np.full(size, 7)

    gaussian = laplace

    def coin(self) -> bool:
        return True


def on_data() -> dict[str, type]:
    """The public classes that foresee their price."""
    public = {name: getattr(release, name) for name in release.__all__}
    return {name: kind for name, kind in public.items() if hasattr(kind, "what_if")}


def test_what_if_and_release_are_written_once() -> None:
    """An estimator of scikit-learn alone is no subclass: its parameters are looked at in fit."""
    for name, kind in on_data().items():
        if name != "PrivateLogisticRegression":
            assert issubclass(kind, Priced), name
            once = {"what_if", "release"}
            if name != "SparseVector":  # a rehearsed conversation is told its questions
                once.add("rehearse")
            assert not once & {*vars(kind)}, name


@pytest.mark.parametrize("name", sorted({*on_data()} - {"PrivateLogisticRegression"}))
def test_a_mechanism_is_released_in_one_way(name: str) -> None:
    kind = on_data()[name]
    if name == "SparseVector":  # a conversation is opened
        assert not hasattr(kind, "release")
        return
    parameters = inspect.signature(kind.release).parameters  # type: ignore[attr-defined]
    assert list(parameters) == ["self", "data", "meter", "noise"]


def test_a_subclass_is_run_and_paid_for() -> None:
    meter, mechanism = tb.OutputDPFilter(1), IsLong(3, 0.25)
    assert str(mechanism.what_if(meter)).endswith(": fits")
    answer = mechanism.release([0] * 4, meter=meter, noise=Draws([1]))
    assert (answer.value, answer.cell) == (True, "value")
    assert meter.spent == answer.receipt.charged == tb.Amount(0.25, 0.0, "epsilon")


def test_what_is_not_admitted_costs_nothing() -> None:
    meter = tb.OutputDPFilter(1)
    with pytest.raises(tb.ParameterError, match=r"^data must be a list, got int$"):
        IsLong(3, 0.25).release(4, meter=meter)
    assert meter.spent == meter.held == tb.Amount(0.0, 0.0, "epsilon")


def test_parameters_without_a_guarantee_are_refused_when_it_is_made() -> None:
    with pytest.raises(tb.ParameterError, match=r"must be .*, got -1$"):
        IsLong(3, -1)


def test_a_source_of_noise_that_is_empty_is_a_source_of_noise() -> None:
    """A source that counts as false was once replaced by OpenDP's samplers."""
    assert not Draws()
    count = tb.release.LaplaceRelease(len, 1, 1).release(
        [], meter=tb.OutputDPFilter(1), noise=Draws()
    )
    assert count.value == 7
    with tb.release.SparseVector(1, 1).open([], meter=tb.OutputDPFilter(1), noise=Draws()) as run:
        assert run.ask(len, 0)


@pytest.mark.parametrize("missing", ["guarantee", "_run"])
def test_a_subclass_has_to_give_its_guarantee_and_its_run(missing: str) -> None:
    given = {name: value for name, value in vars(IsLong).items() if name in ("guarantee", "_run")}
    del given[missing]
    unfinished = type("Unfinished", (MechanismOnData,), given)
    with pytest.raises(TypeError, match=f"abstract method '?{missing}'?"):
        unfinished()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: tb.release.GaussianRelease(len, 1, epsilon=1, delta=1e-6),  # type: ignore[call-arg]
            "GaussianRelease has no parameter 'epsilon' (it has query, sensitivity, sigma, delta, "
            "size, step, bounds, integers): GaussianRelease.of_epsilon(query, sensitivity, "
            "epsilon, delta) finds the sigma",
        ),
        (
            lambda: tb.release.LaplaceRelease(len, 1, scale=1),  # type: ignore[call-arg]
            "LaplaceRelease has no parameter 'scale' (it has query, sensitivity, epsilon, size, "
            "step, bounds, integers): the scale of the noise is sensitivity / epsilon",
        ),
        (
            lambda: tb.release.SparseVector(1, above=5),  # type: ignore[call-arg]
            "SparseVector has no parameter 'above' (it has epsilon, aboves, sensitivity, "
            "monotone, adaptive, step, bounds)",
        ),
    ],
)
def test_an_unknown_parameter_is_refused_by_name(make: Any, said: str) -> None:
    with pytest.raises(tb.ParameterError) as caught:
        make()
    assert str(caught.value) == said
