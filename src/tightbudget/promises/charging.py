"""Budgets, blocks and holds as their callers see them, wherever the ledger is.

A ledger in a database (:mod:`tightbudget.ledger`) and a ledger behind an address
(:mod:`tightbudget.client`) derive their budgets from :class:`Payer`, their sets of blocks from
:class:`BaseBlocks` and :class:`BaseBlockRange`, and their holds from :class:`BaseHold`: these say
what is read, the derived classes how it is asked for. Nothing here knows a database or a network.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from tightbudget import notebook
from tightbudget.errors import BudgetExceeded, TightBudgetError
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.account import State
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.guarantee import Cell
from tightbudget.output_dp.pricing import Guarantee
from tightbudget.promises.block_names import BlockNames, Values
from tightbudget.promises.pricing import Stored, content_of
from tightbudget.promises.values import BlockTerms, ReservationView, Statement, statements_table

H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)
R = TypeVar("R")
Range = TypeVar("Range", bound="BaseBlockRange[Any]")


class Paying(Protocol[H_co]):
    """Pays for a run under a key: a budget, or a range of blocks."""

    @property
    def left(self) -> Amount:
        """The amount that may still be reserved (rounded down)."""

    def reserve(self, key: str, guarantee: Guarantee, *, interactive: bool = False) -> H_co:
        """Holds the worst-case price of a mechanism under a key."""


class Payer(Generic[H]):
    """A budget of a ledger, which is read anew each time that it is asked.

    Args:
        name: the budget's name, as the ledger spells it.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def _repr_html_(self) -> str:
        """Writes the statement as a table, for a notebook; the name alone if it cannot be read."""
        try:
            return self.statement()._repr_html_()
        except TightBudgetError as error:
            return notebook.shown(f"{self!r}: {error}")

    def statement(self) -> Statement:
        """Reads the whole budget at one moment."""
        raise NotImplementedError

    def reserve(self, key: str, guarantee: Guarantee, *, interactive: bool = False) -> H:
        """Holds the worst-case price of a mechanism under a key."""
        raise NotImplementedError

    def keyed(self, key: str) -> Keyed[H]:
        """Returns a meter for a mechanism that knows no keys: runs are key, key#2, key#3, ..."""
        return Keyed(self, key)

    @property
    def name(self) -> str:
        """The budget's name, which no other budget of the ledger has."""
        return self._name

    @property
    def kind(self) -> str:
        """The kind of the budget: ``output_dp``, or a kind without refunds."""
        return self.statement().kind

    @property
    def parent(self) -> str | None:
        """The name of the budget that this one is a part of, or None."""
        return self.statement().parent

    @property
    def closed(self) -> bool:
        """True if the budget was closed."""
        return self.statement().closed

    @property
    def cap(self) -> Amount:
        """The most that spent and held may come to (rounded down)."""
        return self.statement().cap

    @property
    def spent(self) -> Amount:
        """The amount of settled and forfeited runs, and of parts that are closed (rounded up)."""
        return self.statement().spent

    @property
    def held(self) -> Amount:
        """The amount that open reservations and open parts hold (rounded up)."""
        return self.statement().held

    @property
    def left(self) -> Amount:
        """The amount that may still be reserved (rounded down)."""
        return self.statement().left

    @property
    def saved(self) -> Amount:
        """The amount that worst cases would have cost more (rounded down); never delta."""
        return self.statement().saved


class Keyed(Generic[H]):
    """A meter for one caller: each reservation that the ledger answers takes the next key.

    Threads may share it: their reservations are made one after another, each with its own key.

    Args:
        budget: the budget, or the range of blocks, that pays.
        key: the key of the first run; later runs have ``key#2``, ``key#3``, ...
    """

    def __init__(self, budget: Paying[H], key: str) -> None:
        self._budget = budget
        self._key = key
        self._answered = 0
        # two reservations at once would take one key, and only one of their runs could start;
        # a signal handler may reserve in the midst of a reservation of its own thread
        self._lock, self._process = threading.RLock(), os.getpid()

    @property
    def left(self) -> Amount:
        """The amount that may still be reserved (rounded down)."""
        return self._budget.left

    def reserve(self, guarantee: Guarantee, *, interactive: bool = False) -> H:
        """Holds the worst-case price of a mechanism under the next key.

        See :meth:`Ledger.reserve`.
        """
        if self._process != os.getpid():  # guard: fork-waits-for-no-thread
            # the thread that held the lock when this process was forked is not here to free it
            self._lock, self._process = threading.RLock(), os.getpid()
        with self._lock:  # guard: one-key-a-run
            number = self._answered + 1
            key = self._key if number == 1 else f"{self._key}#{number}"
            try:
                hold = self._budget.reserve(key, guarantee, interactive=interactive)
            except BudgetExceeded:
                self._answered = number  # a refused key stays refused
                raise
            self._answered = number
            return hold


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
    def names(self) -> tuple[str, ...]:
        """The names of the blocks."""
        return self._names

    @property
    @abstractmethod
    def left(self) -> Amount:
        """The amount that every block has left, unlocked today (rounded down)."""

    @abstractmethod
    def reserve(self, key: str, guarantee: Guarantee, *, interactive: bool = False) -> H:
        """Holds the worst-case price of a mechanism under a key, in every block or in none."""

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


class BaseHold(ABC, Generic[R]):
    """One reservation, as it was when this object last asked its ledger.

    Args:
        answer: the ledger's last answer about it.
        token: the token that settles the run, or None if this process does not have it.
    """

    def __init__(self, answer: R, token: str | None) -> None:
        self._is = answer
        self._token = token

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r}: {self._is}>"

    @property
    @abstractmethod
    def _view(self) -> ReservationView:
        """The ledger's last answer in the form that all ledgers share."""

    @property
    @abstractmethod
    def guarantee(self) -> Stored:
        """The guarantee that was reserved for, as the ledger has stored it."""

    @property
    def key(self) -> str:
        """The caller's name for this run."""
        return self._view.key

    @property
    def state(self) -> State:
        """The state of the run: reserved, started, settled, forfeited or void."""
        return self._view.state

    @property
    def interactive(self) -> bool:
        """True if the mechanism answers more than once."""
        return self._view.interactive

    @property
    def cell(self) -> Cell | None:
        """The cell that the run was settled with, or None."""
        return self._view.cell

    @property
    def told(self) -> str | None:
        """A note for the caller that less was granted than was requested, or None."""
        return self._view.told

    @property
    def token(self) -> str | None:
        """The token that settles this run, a secret to be kept with the output; None without it."""
        return self._token

    @property
    def charges(self) -> dict[str, Amount]:
        """The amount that this run holds, or has cost, in each of its budgets (rounded up)."""
        return dict(self._view.charges)

    @property
    def charge(self) -> Amount:
        """The amount that this run takes from its budget, or from the first of them by name."""
        return next(iter(self._view.charges.values()))

    def to_dict(self) -> dict[str, Any]:
        """Writes the reservation as plain JSON, with the token if this process has it."""
        return {
            **self._view.to_dict(), "token": self._token, "guarantee": content_of(self.guarantee)
        }  # fmt: skip
