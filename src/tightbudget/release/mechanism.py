"""The base of all mechanisms on data: a mechanism is its parameters, its guarantee and its run.

A mechanism on data is a frozen dataclass under :func:`plain_numbers`, in a file of its own. Its
fields are its parameters, and it gives

- ``guarantee``: the price of each output cell, and delta;
- ``_run``: from admitted data and a source of noise to a value and its output cell;
- ``_admitted``, if not all data will do: types, shapes and names of columns are checked there;
- ``__post_init__``, if ``guarantee`` does not look at all parameters. It ends with
  ``super().__post_init__()``.

``what_if`` and ``release`` are written here, once for all mechanisms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tightbudget.errors import ReleaseError
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.meter import Meter
from tightbudget.release.noise.noise import Noise, noise_or_default
from tightbudget.release.release import Release, WhatIf, paid, what_if

__all__ = ["MechanismOnData", "Priced"]

D = TypeVar("D")
V = TypeVar("V")


@dataclass(frozen=True)
class Priced(ABC):
    """A mechanism whose prices follow from its parameters alone, before any data is there.

    Raises:
        ParameterError: the parameters have no guarantee.
    """

    def __post_init__(self) -> None:
        # a mechanism that was made has a guarantee: neither what_if nor release refuses later
        _ = self.guarantee  # guard: guarantee-when-made

    @property
    @abstractmethod
    def guarantee(self) -> OutputDP:
        """The guarantee: a price for each output cell, and delta."""

    def what_if(self, meter: Meter) -> WhatIf:
        """Says what a run would cost at most and at least, and whether it fits; touches nothing.

        Raises:
            ParameterError: the meter does not count epsilon.
        """
        return what_if(self.guarantee, meter)


@dataclass(frozen=True)
class MechanismOnData(Priced, Generic[D, V]):
    """A mechanism that looks once at data of type D, and answers with one value of type V.

    Raises:
        ParameterError: a parameter is refused.
    """

    def release(self, data: D, *, meter: Meter, noise: Noise | None = None) -> Release[V]:
        """Runs the mechanism on the data, pays for the output cell, and returns the value.

        Args:
            data: the private data, as the mechanism takes them.
            meter: the budget that pays.
            noise: the source of noise; OpenDP's samplers if None.

        Raises:
            BudgetError: the worst-case price does not fit; the data was not touched.
            ParameterError: the type or the shape of the data is refused; nothing is charged.
            ExtraError: no noise is given, and OpenDP is not installed; nothing is charged.
            ReleaseError: noise, or a rule on released answers, failed after the start; the
                worst-case price is charged.
        """
        run = partial(self._run, noise=noise_or_default(noise))
        try:
            # guard: data-shape-checked
            return paid(meter, self.guarantee, data, run, self._admitted)
        except (ReleaseError, KeyboardInterrupt) as error:
            # an error that is kept keeps the variables of its frames: none of them holds the data
            del data  # guard: kept-error-without-data
            raise error.with_traceback(None) from None  # guard: kept-error-without-run

    def _admitted(self, data: D) -> Any:
        """Returns the data as ``_run`` takes them; all data are admitted if not overridden.

        It is not paid for. So it may refuse types, shapes and names of columns, never values.
        """
        return data

    @abstractmethod
    def _run(self, data: Any, noise: Noise) -> tuple[V, Cell]:
        """Runs the mechanism, which is paid for, and returns a value and its output cell.

        It asks code that sees the data through :func:`answered`, and draws from ``noise`` alone.
        """
