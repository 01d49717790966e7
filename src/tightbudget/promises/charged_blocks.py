"""Sets of blocks, and ranges of them that pay, as their callers see them, wherever the ledger is.

The two ledgers derive their classes from these, as :mod:`tightbudget.promises.payer` says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tightbudget import notebook
from tightbudget.errors import TightBudgetError
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.pricing import Guarantee
from tightbudget.promises.block_names import BlockNames, Values
from tightbudget.promises.hold import BaseHold
from tightbudget.promises.keyed import Keyed
from tightbudget.promises.values import BlockTerms, Preview, Statement, statements_table

H = TypeVar("H", bound="BaseHold[Any]")
Range = TypeVar("Range", bound="BaseBlockRange[Any]")


class BaseBlocks(ABC, Generic[Range]):
    """A set of blocks: rows by public columns, each block with a budget of its own.

    Args:
        terms: of the set.
    """

    def __init__(self, terms: BlockTerms) -> None:
        self._terms = terms
        self._names = BlockNames(name=terms.name, by=terms.by)

    def __repr__(self) -> str:
        person = self.person
        return (
            f"<{type(self).__name__} {self.name!r} by {', '.join(self.by)}:"
            f" a person's epsilon is at most {person.amount!r}, delta {person.delta!r}>"
        )

    def _repr_html_(self) -> str:
        """Writes the blocks that were touched as a table; the name alone if it cannot be read."""
        try:
            return statements_table(self.statements(), title=repr(self))
        except TightBudgetError as error:
            return notebook.shown(f"{self!r}: {error}")

    @property
    def terms(self) -> BlockTerms:
        """The terms on which the set was declared."""
        return self._terms

    @property
    def name(self) -> str:
        """The name of the set, and of its own budget."""
        return self._terms.name

    @property
    def by(self) -> tuple[str, ...]:
        """The names of the dimensions."""
        return self._terms.by

    @property
    def has_cap(self) -> bool:
        """True if each run is charged to a cap over all blocks, too."""
        return self._terms.cap is not None

    @property
    def person(self) -> Amount:
        """The epsilon and delta (rounded up) of all that is ever released about one person."""
        return self._terms.person

    def where(self, /, **values: Values) -> Range:
        """Returns a range of blocks: all combinations of the values of the dimensions.

        Args:
            values: for each dimension a text, an integer, a date, or several of them. A dimension
                ``day``, ``month`` or ``year`` takes longer periods, too: ``day="2026-01"`` is all
                days of January. Both ends of ``"2026-01..2026-03"`` and of ``"1..12"`` belong to
                it.

        Raises:
            ParameterError: a dimension is missing, unknown or refused; more than 10,000 blocks.
        """
        return self._range(self._names.values_in(values))

    @abstractmethod
    def _range(self, chosen: Mapping[str, tuple[str, ...]]) -> Range:
        """The range of all combinations of these values."""

    @abstractmethod
    def statements(self) -> tuple[Statement, ...]:
        """Reads the budgets that were touched, in the order of their names."""

    def values(self, name: str) -> dict[str, str] | None:
        """Returns the value of each dimension of a block by its name; None for a quota."""
        values = self._names.values(name)
        return None if values is None else dict(zip(self.by, values, strict=True))


class BaseBlockRange(ABC, Generic[H]):
    """Blocks of one set that pay for a run together: each is charged, or none.

    Args:
        of: the names of the set.
        chosen: for each dimension the values, all combinations of which are blocks of the range.
    """

    def __init__(self, of: BlockNames, chosen: Mapping[str, Sequence[str]]) -> None:
        self._of, self._names = of, of.combinations(chosen)
        self._values = {name: tuple(values) for name, values in chosen.items()}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} blocks of {self._of.name!r}>"

    def _repr_html_(self) -> str:
        """Writes what is left as text; the range alone if it cannot be read."""
        try:
            return notebook.shown(f"{self!r}: {self.left}")
        except TightBudgetError as error:
            return notebook.shown(f"{self!r}: {error}")

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    @property
    def of(self) -> str:
        """The name of the set."""
        return self._of.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the blocks."""
        return self._names

    @property
    def values(self) -> dict[str, tuple[str, ...]]:
        """The values in each dimension, all combinations of which are blocks of the range."""
        return dict(self._values)

    @property
    @abstractmethod
    def left(self) -> Amount:
        """The amount that every block has left, unlocked today (rounded down)."""

    @abstractmethod
    def reserve(
        self,
        key: str,
        guarantee: Guarantee,
        *,
        also: Sequence[str] = (),
        interactive: bool = False,
        question: str | None = None,
    ) -> H:
        """Holds the mechanism's worst-case price in every block, and in the budgets ``also``.

        Blocks that no run has touched are opened by it. Where the set has a cap or quotas, the cap
        and the quota of the analyst hold the price, too. A refusal opens no block, and names the
        ten that have the least left.

        Args:
            key: as for :meth:`Ledger.reserve`.
            guarantee: an :class:`OutputDP`, for all rows of a person in these blocks.
            also: the names of further budgets that pay.
            interactive: it answers more than once; on blocks only with delta = 0.
            question: the question that the run answers, as for :meth:`Ledger.reserve`.

        Raises:
            BudgetExceeded: it does not fit. The key stays refused.
            KeyConflictError: the key was used for something else.
            SettlementError: a budget is closed.
            ParameterError: the key, the guarantee or a budget is refused.
        """

    @abstractmethod
    def what_if(self, guarantee: Guarantee) -> Preview:
        """Answers as a reservation would be answered now; nothing is held, no block is opened.

        The amounts are those of the block, cap or quota that has the least left.

        Raises:
            ParameterError: the guarantee is refused.
            SettlementError: a budget is closed.
        """

    @abstractmethod
    def _hold(self, key: str, token: str | None) -> H:
        """Returns the reservation of this key in the ledger; see :meth:`Ledger.hold`."""

    def keyed(self, key: str) -> Keyed[H]:
        """Returns a meter for a mechanism that knows no keys: runs are key, key#2, key#3, ..."""
        return Keyed(self, key)

    def _beside(self, also: Sequence[str]) -> list[str]:
        """Checks the names of further budgets that pay.

        Raises:
            ParameterError: it is a text, which is a list of letters.
        """
        if isinstance(also, str):
            raise refuse("also", "be a list of names", also)
        return list(also)
