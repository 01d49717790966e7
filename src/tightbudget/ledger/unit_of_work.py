"""Writes of one transaction: events, and with each event the balances that it changes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, insert, update

from tightbudget.errors import LedgerCorruptError, LedgerError, SettlementError
from tightbudget.ledger import queries
from tightbudget.ledger.chain import Head, entry_after
from tightbudget.ledger.queries import Balance, Reservation
from tightbudget.ledger.schema import budgets, charges, events, reservations, steps
from tightbudget.ledger.stored_words import EventKind, ReservationState
from tightbudget.ledger.units import NOTHING, Units

__all__ = ["Act"]

# Each statement names in its WHERE clause what the act has checked before, and changes exactly one
# row: if another process has changed the row in between, in spite of the lock, nothing is written.
_EXCHANGE = (
    update(budgets)
    .where(
        budgets.c.id == bindparam("of"),
        budgets.c.closed == 0,
        budgets.c.held_epsilon >= -bindparam("held_e"),
        budgets.c.held_delta >= -bindparam("held_d"),
        budgets.c.cap_epsilon - budgets.c.spent_epsilon - budgets.c.held_epsilon
        >= bindparam("held_e") + bindparam("spent_e"),
        budgets.c.cap_delta - budgets.c.spent_delta - budgets.c.held_delta
        >= bindparam("held_d") + bindparam("spent_d"),
    )
    .values(
        held_epsilon=budgets.c.held_epsilon + bindparam("held_e"),
        held_delta=budgets.c.held_delta + bindparam("held_d"),
        spent_epsilon=budgets.c.spent_epsilon + bindparam("spent_e"),
        spent_delta=budgets.c.spent_delta + bindparam("spent_d"),
        saved_epsilon=budgets.c.saved_epsilon + bindparam("saved"),
    )
)
_ADVANCE = (
    update(reservations)
    .where(reservations.c.id == bindparam("of"), reservations.c.state == bindparam("before"))
    .values(
        state=bindparam("after"),
        started=bindparam("since"),
        token=bindparam("with"),
        cell=bindparam("in"),
    )
)
_CHARGE = (
    update(charges)
    .where(charges.c.reservation == bindparam("of"), charges.c.budget == bindparam("in"))
    .values(epsilon=bindparam("epsilon"), delta=bindparam("delta"))
)
_USE = (
    update(steps)
    .where(
        steps.c.budget == bindparam("of"),
        steps.c.step == bindparam("named"),
        steps.c.times - steps.c.used >= bindparam("more"),
    )
    .values(used=steps.c.used + bindparam("more"))
)
_INSERT = {table: insert(table) for table in (budgets, steps, reservations, charges, events)}

# the state that a reservation has after the event that ends it
_STATE_AFTER = {
    EventKind.SETTLED: ReservationState.SETTLED,
    EventKind.FORFEITED: ReservationState.FORFEITED,
    EventKind.VOID: ReservationState.VOID,
    EventKind.EXPIRED: ReservationState.VOID,
}


class Act:
    """One transaction that writes.

    Args:
        connection: a connection in a transaction that has the ledger's lock.
        at: the time, for people to read; nothing depends on it.

    Raises:
        LedgerError: the ledger was moved to another database.
    """

    def __init__(self, connection: Connection, at: str) -> None:
        last = queries.last(connection)
        if last is not None and last.kind == EventKind.MOVED:  # guard: moved-ledger-sealed
            to = json.loads(last.details)["to"]
            raise LedgerError(f"this ledger was moved to {to}, and can only be read")
        self.connection = connection
        self.at = at
        self._head = Head.after(last)

    # ---------------------------------------------------------------------------- events

    def log(
        self,
        kind: EventKind,
        *,
        budget: str | None = None,
        units: Units = NOTHING,
        key: str | None = None,
        cell: str | None = None,
        details: Mapping[str, Any],
    ) -> int:
        """Adds one event to the history and returns its number."""
        entry = entry_after(
            self._head,
            at=self.at,
            kind=kind,
            key=key,
            budget=budget,
            units=units,
            cell=cell,
            details=details,
        )
        self.connection.execute(_INSERT[events], entry._asdict())
        self._head = Head(entry.sequence, entry.hash)
        return entry.sequence

    # --------------------------------------------------------------------------- budgets

    def exchange(
        self, budget: int, *, held: Units = NOTHING, spent: Units = NOTHING, saved: int = 0
    ) -> None:
        """Adds to the held, spent and saved units of a budget, all at once.

        Raises:
            LedgerCorruptError: it would leave the budget's limits, which the act had checked.
        """
        self._one(
            _EXCHANGE,
            of=budget,
            held_e=held.epsilon,
            held_d=held.delta,
            spent_e=spent.epsilon,
            spent_d=spent.delta,
            saved=saved,
        )

    def add_budget(self, balance: Balance) -> None:
        """Inserts a new budget."""
        row = {
            "id": balance.id,
            "name": balance.name,
            "kind": balance.kind,
            "parameters": balance.parameters,
            "parent": balance.parent,
            "root": balance.root,
            "closed": 0,
            **_columns("cap", balance.cap),
            **_columns("spent", balance.spent),
            **_columns("held", balance.held),
            "saved_epsilon": 0,
        }
        self.connection.execute(_INSERT[budgets], row)

    def change_budget(self, budget: int, **values: Any) -> None:
        """Sets columns of a budget."""
        self._one(update(budgets).where(budgets.c.id == budget).values(values))

    # ---------------------------------------------------------------------- reservations

    def known(self, key: str) -> Reservation:
        """Reads the reservation of a key.

        Raises:
            SettlementError: there is none, or it was refused.
        """
        found = queries.reservation(self.connection, key)
        if found is None:
            raise SettlementError(f"there is no reservation {key!r}")
        if found.state == ReservationState.REFUSED:
            raise SettlementError(f"{key!r} was refused: {found.told}")
        return found

    def add_reservation(self, reservation: Reservation) -> None:
        """Inserts a new reservation and holds its charges."""
        row = {
            "id": reservation.id,
            "key": reservation.key,
            "body": reservation.body,
            "digest": reservation.digest,
            "interactive": int(reservation.interactive),
            "state": str(reservation.state),
            "started": None,
            "token": None,
            "cell": None,
            "told": reservation.told,
        }
        self.connection.execute(_INSERT[reservations], row)
        for charge in reservation.charges:
            self.exchange(charge.budget, held=charge.units)
            self.connection.execute(
                _INSERT[charges],
                {"reservation": reservation.id, "budget": charge.budget, **charge.units._asdict()},
            )

    def advance(self, hold: Reservation, state: ReservationState, **values: Any) -> Reservation:
        """Moves a reservation to its next state, and sets ``started``, ``token`` or ``cell``."""
        after = dataclasses.replace(hold, state=state, **values)
        self._one(
            _ADVANCE, of=hold.id, before=hold.state, after=state.value, since=after.started,
            **{"with": after.token, "in": after.cell},
        )  # fmt: skip
        return after

    def end(
        self,
        kind: EventKind,
        hold: Reservation,
        costs: Mapping[str, Units],
        *,
        cell: str | None = None,
        details: Mapping[str, Any],
    ) -> Reservation:
        """Turns the held units of a reservation into its costs, in every budget."""
        ended = []
        for charge in hold.charges:
            cost = costs[charge.name]
            saved = charge.units.epsilon - cost.epsilon if kind == EventKind.SETTLED else 0
            self.exchange(charge.budget, held=NOTHING.minus(charge.units), spent=cost, saved=saved)
            if cost != charge.units:
                self._one(_CHARGE, of=hold.id, **{"in": charge.budget}, **cost._asdict())
            self.log(kind, budget=charge.name, units=cost, key=hold.key, cell=cell, details=details)
            ended.append(dataclasses.replace(charge, units=cost))
        after = self.advance(hold, _STATE_AFTER[kind], cell=cell)
        return dataclasses.replace(after, charges=tuple(ended))

    # -------------------------------------------------------------------- steps of a plan

    def declare(self, plan: int, declared: Mapping[str, int]) -> None:
        """Inserts the steps of a plan, each with the number of its runs."""
        for step, times in declared.items():
            self.connection.execute(
                _INSERT[steps], {"budget": plan, "step": step, "times": times, "used": 0}
            )

    def use(self, plan: int, wanted: Mapping[str, int]) -> None:
        """Takes runs of steps from a plan; negative numbers give runs back."""
        for step, runs in wanted.items():
            self._one(_USE, of=plan, named=step, more=runs)

    # ---------------------------------------------------------------------------- inside

    def _one(self, statement: Any, **values: Any) -> None:
        """Changes exactly one row: the conditions that the act has checked are still true.

        Raises:
            LedgerCorruptError: they are not; the transaction is rolled back.
        """
        changed = self.connection.execute(statement, values).rowcount
        if changed != 1:
            raise LedgerCorruptError(
                f"what was read under the lock was not there any more ({changed} rows changed);"
                " nothing was written"
            )


def _columns(name: str, units: Units) -> dict[str, int]:
    """Spreads an amount over the two columns of this name."""
    return {f"{name}_epsilon": units.epsilon, f"{name}_delta": units.delta}
