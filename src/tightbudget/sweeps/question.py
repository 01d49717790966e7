"""A question of a sweep: one number of a plan, as text, so that equal questions are equal."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.composition import Composable, compose
from tightbudget.numerics.validate import refuse

Steps = Sequence[Mapping[str, Any]]  # tables as in a plan file

ANSWER = (
    "asked",
    "value",
    "lower",
    "upper",
    "refusal",
    "apart",
)  # the columns after a row's labels
_TARGET = ("epsilon", "delta", "advantage", "tpr", "fpr")
ARGUMENTS = ("find", *_TARGET, "between", "integer", "rtol")


@dataclass(frozen=True)
class Question:
    """A question about one number: of a composition, or of a plan with an unknown.

    A question is immutable, small text: any process can answer it, and equal questions are answered
    once. Values are checked when the question is answered, so that a bad one is refused in its own
    row.

    Attributes:
        plan: the steps in JSON, with the tables of a plan file; "$name" is the unknown.
        find: the unknown's name, or None.
        arguments: those of ``Composition.epsilon`` (with a delta), ``Composition.delta`` (with an
            epsilon) or, with ``find``, ``calibrate``, in JSON.
        labels: (column, value) pairs that name the row in a table; no part of the question.
    """

    plan: str
    find: str | None
    arguments: str
    labels: tuple[tuple[str, Any], ...] = field(default=(), compare=False)

    @staticmethod
    def of(
        plan: Composable | Steps,
        *,
        find: str | None = None,
        labels: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Question:
        """Makes a question about a composition, or about steps as in a plan file.

        With ``delta``, the question asks for epsilon; with ``epsilon``, for delta; with ``find``,
        for the value of "$find" in the steps that meets a target: see
        :func:`tightbudget.calibrate`.

        Args:
            plan: a composition, or tables as in a plan file; with ``find``, such tables.
            find: the name of the unknown.
            labels: columns of the row; the plan and the target if absent.
            arguments: ``delta``, or ``epsilon``, or those of ``calibrate``; and ``rtol``.

        Raises:
            ParameterError: this is not one question. (Bad values are refused when it is answered.)
        """
        steps = _steps(plan)
        given = {name: value for name, value in arguments.items() if value is not None}
        _check_arguments(find, given)
        unknown = set(_references([steps, given])) - {find}
        if unknown:
            raise ParameterError(f"{_dollars(unknown)} must be values, or what to find")
        if find is not None and find not in _references(steps):
            raise ParameterError(f"find must be in the steps as '${find}', and is not")
        text = _json("steps", steps)
        targets = {name: given[name] for name in _TARGET if name in given}
        labels = {"plan": text, **targets} if labels is None else labels
        for name in set(labels) & set(ANSWER):
            raise ParameterError(f"a label must have another name than {name!r}, a column itself")
        return Question(text, find, _json("arguments", given), tuple(labels.items()))

    @property
    def asked(self) -> str:
        """The name of the number that is asked for: "epsilon", "delta" or the unknown's."""
        if self.find is not None:
            return self.find
        return "epsilon" if "delta" in json.loads(self.arguments) else "delta"


def questions(
    plan: Composable | Steps,
    over: Mapping[str, Iterable[Any]] | None = None,
    *,
    find: str | None = None,
    **arguments: Any,
) -> list[Question]:
    """Makes a question for every combination of the axes' values, the last axis fastest.

    Where the plan or an argument is the text "$name", it takes the values of the axis ``name``.
    A row is labelled by its values and by the target.

    >>> plan = [{"mechanism": "gaussian", "sigma": "$sigma", "rate": 0.01, "times": "$runs"}]
    >>> len(questions(plan, {"sigma": [1.0, 2.0], "runs": [100, 200, 300]}, delta=1e-5))
    6

    Args:
        plan: as for :meth:`Question.of`.
        over: axis -> values; also numpy arrays.
        find: the name of the unknown, as for :meth:`Question.of`.
        arguments: as for :meth:`Question.of`.

    Raises:
        ParameterError: an axis is empty, is used nowhere or has a column's name; a "$name" is no
            axis; or what is left is not one question.
    """
    steps = _steps(plan)
    axes = {name: [_plain(x) for x in values] for name, values in (over or {}).items()}
    used = set(_references([steps, arguments]))
    for name, axis in axes.items():
        if not axis:
            raise refuse(f"over.{name}", "be a list of one value or more", axis)
        if name not in used or name == find:  # guard: unused-axis-ignored
            raise ParameterError(f"over.{name} must be in the plan or the target as '${name}'")
        if name in _TARGET and arguments.get(name) not in (None, f"${name}"):
            raise ParameterError(f"over.{name} must be the target's {name}, or be called otherwise")
    if unknown := used - set(axes) - {find}:
        known = _dollars([*axes, *([find] if find else [])]) or "none"
        raise ParameterError(f"{_dollars(unknown)} must be axes of over; there are {known}")
    found = []
    for values in itertools.product(*axes.values()):
        cell = dict(zip(axes, values, strict=True))
        given = _filled(arguments, cell)
        fixed = {name: given[name] for name in _TARGET if _is_fixed(arguments.get(name))}
        labels = {**cell, **fixed}
        found.append(Question.of(_filled(steps, cell), find=find, labels=labels, **given))
    return found


def with_value(steps: Any, name: str, value: Any) -> Any:
    """Replaces "$name" in the steps by a value."""
    return _filled(steps, {name: value})


def _check_arguments(find: str | None, given: dict[str, Any]) -> None:
    for name in given:
        if name not in ARGUMENTS:
            raise ParameterError(f"a question takes {', '.join(ARGUMENTS)}, got {name!r}")
    if find is not None:
        if not any(name in given for name in _TARGET):
            raise ParameterError(f"to find {find!r} takes a target: {', '.join(_TARGET)}")
        return
    if ("epsilon" in given) == ("delta" in given):
        raise ParameterError("give exactly one of delta and epsilon, or both and what to find")
    if more := set(given) - {"epsilon", "delta", "rtol"}:
        raise ParameterError(f"{', '.join(sorted(more))}: only with find")


def _steps(plan: Composable | Steps) -> Any:
    if isinstance(plan, Composable):
        return compose([plan]).to_dict()["steps"]
    return plan


def _is_fixed(argument: Any) -> bool:
    return argument is not None and not _is_reference(argument)


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("$")


def _references(value: Any) -> Iterator[str]:
    """Yields the names of all "$name" texts in nested lists and tables."""
    if _is_reference(value):
        yield value[1:]
    elif isinstance(value, Mapping):
        yield from _references(list(value.values()))
    elif isinstance(value, (list, tuple)):
        yield from itertools.chain.from_iterable(map(_references, value))


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """Replaces "$name" texts in nested lists and tables by their values."""
    if _is_reference(value):
        return values.get(value[1:], value)
    if isinstance(value, Mapping):
        return {key: _filled(entry, values) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(entry, values) for entry in value]
    return value


def _plain(value: Any) -> Any:
    """Converts a number or array of NumPy to Python's; returns anything else unchanged."""
    return value.tolist() if hasattr(value, "tolist") else value


def _json(name: str, value: Any) -> str:
    def default(other: Any) -> Any:
        if hasattr(other, "tolist"):
            return other.tolist()
        raise refuse(name, "be made of numbers, texts, lists and tables", other)

    try:
        return json.dumps(value, sort_keys=True, default=default)
    except ParameterError as error:  # to which Python 3.14 adds notes of its own
        raise ParameterError(str(error)) from None


def _dollars(names: Iterable[str]) -> str:
    return ", ".join(f"'${name}'" for name in sorted(names))
