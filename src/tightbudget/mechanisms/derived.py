"""Mechanisms that are made of another one, by saying how records get into a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tightbudget.errors import ParameterError
from tightbudget.mechanisms.composition import MECHANISMS, Mechanism


@dataclass(frozen=True)
class Derived(Mechanism):
    """A mechanism made of another one, its base, by saying how records get into a run.

    Its table is the base's with one more key, whose value is the first parameter, or a table of
    all parameters where there are several. A base that has such a key itself is nested:
    ``{"mechanism": kind, "base": {...}, key: value}``. (A parameter has no place beside the key: in
    a plan, ``times`` counts runs.) The method ``kind`` of a mechanism makes it.
    """

    base: Mechanism

    key: ClassVar[str] = ""  # in the base's table
    # the name in the table of a parameter that has another one there: ledgers keep these tables
    written: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.base, Mechanism):
            raise ParameterError(f"base must be a mechanism, got {self.base!r}")

    @classmethod
    def first(cls) -> str:
        """The name of the first parameter, beside the base."""
        return next(name for name in cls._accepted() if name not in ("base", "relation"))

    def __repr__(self) -> str:
        """Writes the base and the method that was called on it."""
        given = [f"{name}={value!r}" for name, value in self.parameters().items()]
        return f"{self.base!r}.{self.kind}({', '.join(given)})"

    def parameters(self) -> dict[str, Any]:
        return {name: value for name, value in super().parameters().items() if name != "base"}

    def to_dict(self) -> dict[str, Any]:
        base, given = self.base.to_dict(), self.parameters()
        # a group is named last in any case, and needs no nest for a base that says how to draw
        others = [made for made in MECHANISMS.values() if made.key]
        taken = {made.key for made in others if self.key != "group" or made is type(self)}
        if "base" in base or taken & base.keys():
            base = {"mechanism": self.kind, "base": base}
        alone = list(given) == [self.first()]
        named = {self.written.get(name, name): value for name, value in given.items()}
        return {**base, self.key: given[self.first()] if alone else named}

    @classmethod
    def given(cls, value: Any) -> dict[str, Any]:
        """Returns the parameters that a table gives under the key: the first one, or a table."""
        if not isinstance(value, Mapping):
            return {cls.first(): value}
        table: Mapping[str, Any] = value
        names = {written: name for name, written in cls.written.items()}
        return {names.get(name, name): entry for name, entry in table.items()}
