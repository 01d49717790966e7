"""What one transaction may write: events, and with each the balances that it changes."""

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
from tightbudget.ledger.units import NOTHING, Units

__all__ = ["Act"]

# What must still be true when the numbers change, whoever may have changed them in between.
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


class Act:
    """One transaction that writes.

    Args:
        connection: in a transaction that has the ledger's lock.
        at: the time, for people to read; nothing depends on it.

    Raises:
        LedgerError: the ledger was moved to another database.
    """

    def __init__(self, connection: Connection, at: str) -> None:
        last = queries.last(connection)
        if last is not None and last.kind == "moved":
            to = json.loads(last.details)["to"]
            raise LedgerError(f"this ledger was moved to {to}, and can only be read")
        self.connection = connection
        self.at = at
        self._head = Head.after(last)

    # ---------------------------------------------------------------------------- events

    def log(
        self,
        kind: str,
        budget: str | None,
        units: Units,
        *,
        key: str | None = None,
        cell: str | None = None,
        details: Mapping[str, Any],
    ) -> int:
        """Adds one event to the history; its number."""
        entry = entry_after(
            self._head, self.at, kind,
            key=key, budget=budget, units=units, cell=cell, details=details,
        )  # fmt: skip
        self.connection.execute(_INSERT[events], entry._asdict())
        self._head = Head(entry.sequence, entry.hash)
        return entry.sequence

    # --------------------------------------------------------------------------- budgets

    def exchange(
        self, budget: int, *, held: Units = NOTHING, spent: Units = NOTHING, saved: int = 0
    ) -> None:
        """Changes what is held, spent and saved, all at once.

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
        """A new budget."""
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
        """New values of a budget's columns."""
        self._one(update(budgets).where(budgets.c.id == budget).values(values))

    # ---------------------------------------------------------------------- reservations

    def known(self, key: str) -> Reservation:
        """The reservation of this key.

        Raises:
            SettlementError: there is none, or it was refused.
        """
        found = queries.reservation(self.connection, key)
        if found is None:
            raise SettlementError(f"there is no reservation {key!r}")
        if found.state == "refused":
            raise SettlementError(f"{key!r} was refused: {found.told}")
        return found

    def add_reservation(self, reservation: Reservation) -> None:
        """A new reservation, with what it holds."""
        row = {
            "id": reservation.id,
            "key": reservation.key,
            "body": reservation.body,
            "digest": reservation.digest,
            "interactive": int(reservation.interactive),
            "state": reservation.state,
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

    def advance(self, hold: Reservation, state: str, **values: Any) -> Reservation:
        """Moves a reservation to its next state, and sets ``started``, ``token`` or ``cell``."""
        after = dataclasses.replace(hold, state=state, **values)
        self._one(
            _ADVANCE, of=hold.id, before=hold.state, after=state, since=after.started,
            **{"with": after.token, "in": after.cell},
        )  # fmt: skip
        return after

    def end(
        self,
        kind: str,
        hold: Reservation,
        costs: Mapping[str, Units],
        *,
        cell: str | None = None,
        details: Mapping[str, Any],
    ) -> Reservation:
        """What was held becomes what it has cost, in every budget."""
        ended = []
        for charge in hold.charges:
            cost = costs[charge.name]
            saved = charge.units.epsilon - cost.epsilon if kind == "settled" else 0
            self.exchange(charge.budget, held=NOTHING.minus(charge.units), spent=cost, saved=saved)
            if cost != charge.units:
                self._one(_CHARGE, of=hold.id, **{"in": charge.budget}, **cost._asdict())
            self.log(kind, charge.name, cost, key=hold.key, cell=cell, details=details)
            ended.append(dataclasses.replace(charge, units=cost))
        state = "void" if kind == "expired" else kind
        after = self.advance(hold, state, cell=cell)
        return dataclasses.replace(after, charges=tuple(ended))

    # -------------------------------------------------------------------- steps of a plan

    def declare(self, plan: int, declared: Mapping[str, int]) -> None:
        """How often each step may run."""
        for step, times in declared.items():
            self.connection.execute(
                _INSERT[steps], {"budget": plan, "step": step, "times": times, "used": 0}
            )

    def use(self, plan: int, wanted: Mapping[str, int]) -> None:
        """Takes runs of steps, or with negative numbers, gives them back."""
        for step, runs in wanted.items():
            self._one(_USE, of=plan, named=step, more=runs)

    # ---------------------------------------------------------------------------- inside

    def _one(self, statement: Any, **values: Any) -> None:
        """Changes exactly one row: what was checked before is still true."""
        changed = self.connection.execute(statement, values).rowcount
        if changed != 1:
            raise LedgerCorruptError(
                f"what was read under the lock was not there any more ({changed} rows changed);"
                " nothing was written"
            )


def _columns(name: str, units: Units) -> dict[str, int]:
    return {f"{name}_epsilon": units.epsilon, f"{name}_delta": units.delta}
