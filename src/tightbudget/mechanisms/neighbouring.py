"""The relation between data sets under which a guarantee holds."""

from __future__ import annotations

import enum
from typing import Any

from tightbudget.errors import RelationError
from tightbudget.numerics.validate import refuse


class Neighbouring(enum.Enum):
    """The relation between data sets under which a guarantee holds."""

    ADD_OR_REMOVE = "add-or-remove"
    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"

    def __repr__(self) -> str:
        return str(self)  # the name by which code says it

    @classmethod
    def _missing_(cls, value: object) -> Any:
        """Finds the relation that a text names, in upper or lower case, with - or _."""
        wanted = value.lower().replace("_", "-") if isinstance(value, str) else None
        return next((relation for relation in cls if relation.value == wanted), None)

    @classmethod
    def of(cls, **given: Any) -> Neighbouring:
        """Accepts a relation, or a text that names one, as its one keyword's value.

        Raises:
            ParameterError: the value is no relation; the message has the keyword's name.
        """
        ((name, value),) = given.items()
        try:
            return cls(value)
        except ValueError:
            known = ", ".join(relation.value for relation in cls)
            raise refuse(name, f"be one of {known}", value) from None

    @classmethod
    def of_presence(
        cls, way: str, declared: Neighbouring | None, base: Neighbouring | None
    ) -> Neighbouring:
        """Returns the relation of a mechanism on records of which one is there, or is not.

        It is the base's relation, ADD_OR_REMOVE where the base has none.

        Args:
            way: how records get into a run, as a refusal calls it.
            declared: the relation that the mechanism was declared for, if any.
            base: the relation that its base was declared for, if any.

        Raises:
            RelationError: one of the two is REPLACE_ONE, or they differ.
        """
        held = base or cls.ADD_OR_REMOVE
        for relation in (declared or held, held):
            if relation is not held or relation is cls.REPLACE_ONE:
                raise RelationError(
                    f"{way} holds for {cls.ADD_OR_REMOVE} (or {cls.ZERO_OUT}, if the base is "
                    f"declared for it), but {relation} was declared"
                )
        return held
