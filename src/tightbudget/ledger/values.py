"""What a ledger answers, and how a budget is charged, wherever the ledger is.

Nothing here knows a database: a ledger that is in one and a ledger behind an address answer alike.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tightbudget.errors import BudgetExceeded, ParameterError
from tightbudget.ledger.chain import Entry
from tightbudget.ledger.pricing import Guarantee
from tightbudget.ledger.units import Units
from tightbudget.output_dp.account import Budget, State
from tightbudget.output_dp.guarantee import Cell, cell_from_json

__all__ = ["Event", "Keyed", "OpenHold", "Payer", "Statement", "WhatIf", "token_text"]

H = TypeVar("H")

_MOST_EVENTS = 2**63  # their numbers are integers of 64 bits


@dataclass(frozen=True)
class Event:
    """One line of the history.

    Attributes:
        sequence: its number, from 1 on without a gap.
        at: when, as the clock said; nothing depends on it.
        kind: opened, lent, reserved, refused, started, settled, forfeited, void, expired,
            capped, corrected, closed, returned, token_created, token_revoked, moved or arrived.
        key: of the reservation.
        budget: which one it changed.
        epsilon, delta: the amount that it is about (rounded up): a cap, what was held, what
            it has cost.
        cell: that was settled.
        details: who, why, and what else belongs to the kind.
        hash: of all this and of the event before.
    """

    sequence: int
    at: str
    kind: str
    key: str | None
    budget: str | None
    epsilon: float
    delta: float
    cell: Cell | None
    details: dict[str, Any]
    hash: str

    @staticmethod
    def _of(entry: Entry) -> Event:
        amount = Units(entry.epsilon, entry.delta).up("epsilon")
        return Event(
            *(entry.sequence, entry.at, entry.kind, entry.key, entry.budget),
            *(amount.amount, amount.delta),
            *(
                None if entry.cell is None else cell_from_json(entry.cell),
                json.loads(entry.details),
            ),
            entry.hash,
        )


@dataclass(frozen=True)
class Statement:
    """A budget at one moment: what is left and saved rounded down, what is taken rounded up.

    Attributes:
        name, kind, parent, closed: which one it is.
        cap: what spent and held may come to.
        spent: what was settled or forfeited, or spent in parts that are closed.
        held: by reservations that are open and by parts that are open.
        left: what may still be reserved.
        saved: what worst cases would have cost beyond what came out.
    """

    name: str
    kind: str
    parent: str | None
    closed: bool
    cap: Budget
    spent: Budget
    held: Budget
    left: Budget
    saved: Budget


@dataclass(frozen=True)
class OpenHold:
    """A reservation that is not ended, in a list: without the prices that were declared for it.

    Attributes:
        key: what it was reserved under.
        state: reserved or started.
        interactive: whether it answers more than once.
        told: what the caller must know: that less was granted than was requested.
        since: when it was reserved or, if it was, started; as the clock said.
        by: who has reserved it or, if it was, started it; None where an earlier version did not
            say.
        charges: what it holds in each of its budgets (rounded up).
    """

    key: str
    state: State
    interactive: bool
    told: str | None
    since: str
    by: str | None
    charges: dict[str, Budget]


@dataclass(frozen=True)
class WhatIf:
    """What a reservation would be answered.

    Attributes:
        fits: whether it would be granted.
        requested: what it would hold.
        left: what is left now, and
        left_after: with it.
        message: the refusal, if it does not fit.
    """

    fits: bool
    requested: Budget
    left: Budget
    left_after: Budget
    message: str | None


class Payer(Generic[H]):
    """A budget of a ledger, as those see it who charge it. It is read when it is asked.

    Args:
        name: which one.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def statement(self) -> Statement:
        """All about it at one moment."""
        raise NotImplementedError

    def reserve(self, key: str, guarantee: Guarantee, *, interactive: bool = False) -> H:
        """Holds what the mechanism's dearest output would cost."""
        raise NotImplementedError

    def keyed(self, key: str) -> Keyed[H]:
        """A meter for a mechanism that knows no keys: its runs are key, key#2, key#3, ..."""
        return Keyed(self, key)

    @property
    def name(self) -> str:
        """Its name, which no other budget of the ledger has."""
        return self._name

    @property
    def kind(self) -> str:
        """How it counts: ``output_dp``, or one of those without refunds."""
        return self.statement().kind

    @property
    def parent(self) -> str | None:
        """The name of the budget that it is a part of."""
        return self.statement().parent

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.statement().closed

    @property
    def cap(self) -> Budget:
        """What spent and held may come to (rounded down)."""
        return self.statement().cap

    @property
    def spent(self) -> Budget:
        """What was settled or forfeited here, or spent in parts that are closed (rounded up)."""
        return self.statement().spent

    @property
    def held(self) -> Budget:
        """What open reservations and open parts hold (rounded up)."""
        return self.statement().held

    @property
    def left(self) -> Budget:
        """What may still be reserved (rounded down)."""
        return self.statement().left

    @property
    def saved(self) -> Budget:
        """What worst cases would have cost beyond what came out (rounded down); never delta."""
        return self.statement().saved


class Keyed(Generic[H]):
    """The meter of one caller: each reservation that is answered has the next key of a row."""

    def __init__(self, budget: Payer[H], key: str) -> None:
        self._budget = budget
        self._key = key
        self._answered = 0

    @property
    def left(self) -> Budget:
        """What may still be reserved (rounded down)."""
        return self._budget.left

    def reserve(self, guarantee: Guarantee, *, interactive: bool = False) -> H:
        """Holds what the mechanism's dearest output would cost, under the next key.

        See :meth:`Ledger.reserve`.
        """
        number = self._answered + 1
        key = self._key if number == 1 else f"{self._key}#{number}"
        try:
            hold = self._budget.reserve(key, guarantee, interactive=interactive)
        except BudgetExceeded:
            self._answered = number  # a refused key stays refused
            raise
        self._answered = number
        return hold


def token_text(token: object) -> str | None:
    """The token of a run as a text; a number is what earlier versions have answered.

    Raises:
        ParameterError: it is neither; the message does not show it.
    """
    if token is None or (isinstance(token, str) and token.isascii()):
        return token
    if isinstance(token, int) and not isinstance(token, bool) and 0 <= token < _MOST_EVENTS:
        return str(token)
    kind = type(token).__name__  # what it is may be a secret
    raise ParameterError(f"token must be the text that start has answered, got another {kind}")
