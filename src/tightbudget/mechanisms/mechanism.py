"""What a mechanism is to an accountant: two distributions that must be told apart.

A :class:`Mechanism` offers, for each :class:`Direction`, a :class:`Pair` (P, Q) that
dominates it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from tightbudget.errors import ParameterError, RelationError
from tightbudget.numerics.validate import refuse
from tightbudget.pairs.pair import Direction, Pair

__all__ = ["Composable", "Mechanism", "Neighbouring", "carried"]


class Neighbouring(enum.Enum):
    """The relation between data sets under which a guarantee holds."""

    ADD_OR_REMOVE = "add-or-remove"
    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"


def carried(**given: float) -> None:
    """Refuses a quotient whose square double precision could not carry."""
    ((name, value),) = given.items()
    if not 1e-100 <= value <= 1e12:
        raise refuse(name, "be in [1e-100, 1e12]", value)


class Composable:
    """What ``*``, ``+`` and ``compose`` accept: mechanisms, and compositions of them.

    The value that a user composes lives two floors up (``accounting.composition``); it
    registers itself here, so that imports still only go down.
    """

    _composition: ClassVar[Callable[[tuple[tuple[Mechanism, int], ...]], Any]]

    def parts(self) -> Iterator[tuple[Mechanism, int]]:
        """The mechanisms with their numbers of runs."""
        raise NotImplementedError

    def __mul__(self, times: int) -> Any:
        # count() lives with the composition, which refuses bad numbers by name
        return Composable._composition(tuple(self.parts())) * times

    __rmul__ = __mul__

    def __add__(self, other: Composable) -> Any:
        if not isinstance(other, Composable):
            return NotImplemented
        return Composable._composition((*self.parts(), *other.parts()))


@dataclass(frozen=True)
class Mechanism(Composable):
    """A randomised mechanism, described by the pair of distributions that is worst for it.

    Frozen, compared and hashed by content. ``relation`` is the neighbouring relation that
    its sensitivity (or pair) was stated for; None means that the caller's sensitivity
    carries it, and composes with everything. (kw-only in every subclass.)
    """

    relation: Neighbouring | None = dataclasses.field(default=None, kw_only=True)

    kind: ClassVar[str] = ""  # the name in JSON, plan files and on the command line
    symmetric: ClassVar[bool] = True  # both directions have the same delta
    mutual: ClassVar[bool] = False  # one direction's pair is the other's, P and Q exchanged

    def __post_init__(self) -> None:
        if self.relation is not None and not isinstance(self.relation, Neighbouring):
            raise ParameterError(f"relation must be a Neighbouring or None, got {self.relation!r}")

    def _set(self, **values: object) -> None:
        # how a frozen value stores its validated parameters
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def pair(self, direction: Direction) -> Pair:
        """The dominating pair for this direction."""
        raise NotImplementedError

    def is_symmetric(self) -> bool:
        """Whether delta(eps) is the same in both directions."""
        return self.symmetric

    def is_mutual(self) -> bool:
        """Whether the pair of one direction is that of the other with P and Q exchanged.

        Then an (eps, delta) that holds in both directions holds for each pair in both orders,
        which theorems on (eps, delta)-DP take for granted.
        """
        return self.mutual

    def in_both_orders(self, direction: Direction) -> Mechanism | None:
        """The mechanism whose two directions are this direction's pair and that pair reversed.

        Returns:
            ``self`` where :meth:`is_mutual` holds; None where the reverse is not known.
        """
        if self.is_mutual():
            return self
        if self.pair(direction).reversed() is None:
            return None
        return _InBothOrders(self, direction, relation=self.relation)

    def parts(self) -> Iterator[tuple[Mechanism, int]]:
        yield self, 1

    def under(self, relation: Neighbouring) -> Mechanism:
        """The same mechanism, declared for a neighbouring relation.

        Raises:
            RelationError: it was already declared for another one.
        """
        if self.relation not in (None, relation):
            raise RelationError(
                f"{self!r} was declared for {self.relation} and cannot be declared for {relation}"
            )
        return dataclasses.replace(self, relation=relation)

    def subsampled(self, rate: float) -> Mechanism:
        """This mechanism on a Poisson sample: each record is in it with probability ``rate``.

        Holds for ``Neighbouring.ADD_OR_REMOVE``; see :class:`tightbudget.Subsampled`.
        """
        from tightbudget.mechanisms.subsampled import Subsampled

        return Subsampled(self, rate)

    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON values (without relation and defaults)."""
        given: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "relation" or not field.init or value == field.default:
                continue
            given[field.name] = value
        return given


@dataclass(frozen=True)
class _InBothOrders(Mechanism):
    """The pair of one direction of a mechanism, and in the other direction its reverse."""

    base: Mechanism
    direction: Direction

    symmetric: ClassVar[bool] = False
    mutual: ClassVar[bool] = True

    def pair(self, direction: Direction) -> Pair:
        pair = self.base.pair(self.direction)
        if direction is self.direction:
            return pair
        reverse = pair.reversed()
        assert reverse is not None  # in_both_orders has seen to it
        return reverse
