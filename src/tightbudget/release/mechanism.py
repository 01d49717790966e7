"""The base of all mechanisms on data: a mechanism is its parameters, its guarantee and its run.

A mechanism on data is a frozen dataclass under :func:`plain_numbers`, in a file of its own. Its
fields are its parameters, and it gives

- ``guarantee``: the price of each output cell, and delta;
- ``_run``: from admitted data and a source of noise to a value and its output cell;
- ``_admitted``, if not all data will do: types, shapes and names of columns are checked there;
- ``__post_init__``, if ``guarantee`` does not look at all parameters. It ends with
  ``super().__post_init__()``.

``what_if``, ``rehearse``, ``release`` and ``unpaid_answer`` are written here, once for all
mechanisms.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args, get_origin, get_type_hints

from tightbudget.errors import ParameterError, ReleaseError
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.release.meter import Meter
from tightbudget.release.noise.noise import Noise, noise_or_default
from tightbudget.release.release import Rehearsal, Release, ReleasePreview, paid, rehearsed, what_if

D = TypeVar("D")
V = TypeVar("V")


@dataclass(frozen=True)
class Priced(ABC):
    """A mechanism whose prices follow from its parameters alone, before any data is there.

    Raises:
        ParameterError: a parameter is unknown, or the parameters have no guarantee; a function is
            none, or cannot take the arguments that the mechanism calls it with.
    """

    # what to write instead of a parameter that people expect here
    meant: ClassVar[Mapping[str, str]] = {}

    def __new__(cls, *_: Any, **named: Any) -> Self:
        """Refuses a parameter that the mechanism does not have, with what was meant, if known."""
        # a dataclass would refuse an unknown name by itself, without saying what was meant
        accepted = [field.name for field in fields(cls) if field.init]
        for name in named:
            if name not in accepted:
                hint = f": {cls.meant[name]}" if name in cls.meant else ""
                listed = f"{name!r} (it has {', '.join(accepted)})"
                raise ParameterError(f"{cls.__name__} has no parameter {listed}{hint}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, arguments in _functions(type(self)).items():
            _check_function(name, getattr(self, name), arguments)  # guard: functions-take-arguments
        # a mechanism that was made has a guarantee: neither what_if nor release refuses later
        _ = self.guarantee  # guard: guarantee-when-made

    @property
    @abstractmethod
    def guarantee(self) -> OutputDP:
        """The guarantee: a price for each output cell, and delta."""

    def what_if(self, meter: Meter) -> ReleasePreview:
        """Says what a run would cost at most and at least, and whether it fits; touches nothing.

        Raises:
            ParameterError: the meter is no budget, or does not count epsilon.
        """
        return what_if(self.guarantee, meter)


@dataclass(frozen=True)
class MechanismOnData(Priced, Generic[D, V]):
    """A mechanism that looks once at data of type D, and answers with one value of type V.

    Raises:
        ParameterError: a parameter is refused.
    """

    def rehearse(self, data: D, *, noise: Noise | None = None) -> Rehearsal:
        """Runs the mechanism on public or made-up data, and says what the run would have cost.

        NEVER on private data: neither errors nor the output cell are paid for here.

        All of the mechanism runs, with its real noise. It charges nothing, and no value is
        released. A paid run hides mistakes: a query that raises, or answers what is no number,
        counts as a fallback, and the answer is noise around it. Here each of these mistakes is
        raised, and so are the wrong count of numbers, and a number that is no integer where there
        is no step.

        Args:
            data: public or made-up data, of the types and shapes of the private ones.
            noise: the source of noise; OpenDP's samplers if None.

        Raises:
            Exception: an error of the query, or of any other function of the mechanism, as it is.
            ParameterError: the data, or an answer of a query, is not what the mechanism takes.
            ExtraError: no noise is given, and OpenDP is not installed.
        """
        run = partial(self.unpaid_answer, noise=noise_or_default(noise))
        return rehearsed(self.guarantee, data, run)

    def release(self, data: D, *, meter: Meter, noise: Noise | None = None) -> Release[V]:
        """Runs the mechanism on the data, pays for the output cell, and returns the value.

        Args:
            data: the private data, as the mechanism takes them.
            meter: the budget that pays.
            noise: the source of noise; OpenDP's samplers if None.

        Raises:
            BudgetError: the worst-case price does not fit; the data was not touched.
            ParameterError: the meter, or the type or the shape of the data, is refused; nothing
                is charged.
            ExtraError: no noise is given, and OpenDP is not installed; nothing is charged.
            ReleaseError: noise, or a rule on released answers, failed after the start; the
                worst-case price is charged.
        """
        run = partial(self._run, noise=noise_or_default(noise))
        try:
            # guard: data-shape-checked
            return paid(meter, self.guarantee, data, run, self._admitted)
        except (ReleaseError, KeyboardInterrupt, SystemExit) as error:
            # an error that is kept keeps the variables of its frames: none of them holds the data
            del data  # guard: kept-error-without-data
            raise error.with_traceback(None) from None  # guard: kept-error-without-run

    def unpaid_answer(self, data: D, noise: Noise) -> tuple[V, Cell]:
        """Runs the mechanism as a part of another one, whose guarantee covers it.

        NEVER for an analyst: no budget is charged. It is for a mechanism that answers from what it
        has computed of its own data, once its own price is held: a mechanism on a table hands the
        small vector of its scan to one of this room.

        Args:
            data: the data, as the mechanism takes them.
            noise: the source of noise.

        Returns:
            a value and its output cell, of ``guarantee``.

        Raises:
            ParameterError: the type or the shape of the data is refused.
        """
        return self._run(self._admitted(data), noise)

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


@functools.cache
def _functions(mechanism: type) -> Mapping[str, int]:
    """Counts the arguments of each function that a mechanism takes, by the field's annotation."""
    try:
        hints = get_type_hints(mechanism)
    except NameError:  # an annotation of a class elsewhere that names what it does not import
        return {}
    found: dict[str, int] = {}
    for field in fields(mechanism):
        hint = hints[field.name]
        # a function, or a function or None; a field that may also be a text checks itself
        kinds = (hint,) if get_origin(hint) is Callable else get_args(hint)
        functions = [kind for kind in kinds if kind is not type(None)]
        if len(functions) == 1 and get_origin(functions[0]) is Callable:
            arguments = get_args(functions[0])[0]
            if isinstance(arguments, list):
                found[field.name] = len(arguments)
    return found


def _check_function(name: str, function: Any, arguments: int) -> None:
    """Refuses what cannot be called with so many arguments; None stands for no function.

    Raises:
        ParameterError: it is no function, or its signature does not fit.
    """
    if function is None:
        return
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except ValueError:
        return  # some functions of C tell no signature
    except TypeError:
        must = f"be a function of {arguments} argument{'s' * (arguments != 1)}"
        raise refuse(name, must, function) from None
