"""Writes of one transaction: events, and with each event the balances that it changes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, CursorResult, Table, bindparam, insert, update

from tightbudget.errors import LedgerCorruptError, LedgerError, SettlementError
from tightbudget.ledger.rows import event_rows, run_rows
from tightbudget.ledger.rows.budget_rows import Balance, row_of_balance
from tightbudget.ledger.rows.run_rows import Reservation
from tightbudget.ledger.store.driver import execute_each
from tightbudget.ledger.store.schema import budgets, charges, events, reservations, steps
from tightbudget.promises.chain import Entry, Head, canonical, entry_after
from tightbudget.promises.stored_words import EventKind, ReservationState
from tightbudget.promises.units import NOTHING, Units

# Each statement names in its WHERE clause what the act has checked before, and changes exactly one
# row for each set of values: if another process has changed a row in between, in spite of the lock,
# nothing is written. An act executes each statement once, with the values of all its budgets, so
# that the number of its statements does not depend on how many budgets pay.
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


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Amounts that are added to the columns of one budget, all at once.

    Attributes:
        budget: the ``id`` of the budget.
        held: the units that are added to the held ones.
        spent: the units that are added to the spent ones.
        saved: the epsilon, in units, that is added to the saved one.
    """

    budget: int
    held: Units = NOTHING
    spent: Units = NOTHING
    saved: int = 0


class Act:
    """One transaction that writes.

    Args:
        connection: a connection in a transaction that has the ledger's lock.
        at: the time, for people to read; nothing depends on it.

    Raises:
        LedgerError: the ledger was moved to another database.
    """

    def __init__(self, connection: Connection, at: str) -> None:
        last = event_rows.last(connection)
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
        return self.log_each(kind, [(budget, units)], key=key, cell=cell, details=details)

    def log_each(
        self,
        kind: EventKind,
        lines: Iterable[tuple[str | None, Units]],
        *,
        key: str | None = None,
        cell: str | None = None,
        details: Mapping[str, Any],
    ) -> int:
        """Adds one event for each budget and its units, and returns the number of the first."""
        head, said, entries = self._head, canonical(details), []
        for budget, units in lines:
            entry = entry_after(
                head,
                at=self.at,
                kind=kind,
                key=key,
                budget=budget,
                units=units,
                cell=cell,
                details=said,
            )
            entries.append(entry)
            head = Head(entry.sequence, entry.hash)
        execute_each(self.connection, _INSERT[events], Entry._fields, entries)
        self._head = head
        return entries[0].sequence

    # --------------------------------------------------------------------------- budgets

    # Proof: proofs/account.v, theorems balances, nothing_lost
    def exchange(
        self, budget: int, *, held: Units = NOTHING, spent: Units = NOTHING, saved: int = 0
    ) -> None:
        """Adds to the held, spent and saved units of a budget, all at once.

        Raises:
            LedgerCorruptError: it would leave the budget's limits, which the act had checked.
        """
        self.exchange_each([Exchange(budget=budget, held=held, spent=spent, saved=saved)])

    def exchange_each(self, changes: Iterable[Exchange]) -> None:
        """Adds to the held, spent and saved units of several budgets, each named once.

        Raises:
            LedgerCorruptError: it would leave the limits of one, which the act had checked.
        """
        self._each(
            _EXCHANGE,
            (
                {
                    "of": one.budget,
                    "held_e": one.held.epsilon,
                    "held_d": one.held.delta,
                    "spent_e": one.spent.epsilon,
                    "spent_d": one.spent.delta,
                    "saved": one.saved,
                }
                for one in changes
            ),
        )

    def open_by_rule(self, made: Sequence[Balance]) -> dict[str, int]:
        """Opens budgets that are parts of none, and returns the number of each by its name.

        The number of statements does not depend on how many there are, but on how many terms
        they are opened on.
        """
        numbers: dict[str, int] = {}
        for parameters in dict.fromkeys(balance.parameters for balance in made):
            alike = [balance for balance in made if balance.parameters == parameters]
            said = {"kind": alike[0].kind, "parameters": json.loads(parameters), "parent": None}
            lines = [(balance.name, balance.cap) for balance in alike]
            first = self.log_each(EventKind.OPENED, lines, details=said)
            rows = []
            for number, balance in enumerate(alike, start=first):
                numbers[balance.name] = number
                rows.append(row_of_balance(balance._replace(id=number, root=number)))
            self._insert(budgets, rows)
        return numbers

    def add_budget(self, balance: Balance) -> None:
        """Inserts a new budget."""
        self._insert(budgets, [row_of_balance(balance)])

    def change_budget(self, budget: int, **values: Any) -> None:
        """Sets columns of a budget."""
        changed = update(budgets).where(budgets.c.id == budget).values(values)
        self._changed(self.connection.execute(changed).rowcount, 1)

    # ---------------------------------------------------------------------- reservations

    def known(self, key: str) -> Reservation:
        """Reads the reservation of a key.

        Raises:
            SettlementError: there is none, or it was refused.
        """
        found = run_rows.reservation(self.connection, key)
        if found is None:
            raise SettlementError(f"there is no reservation {key!r}")
        if found.state == ReservationState.REFUSED:
            raise SettlementError(f"{key!r} was refused: {found.told}")
        return found

    def add_reservation(self, reservation: Reservation) -> None:
        """Inserts a new reservation and holds its charges."""
        self._insert(reservations, [run_rows.row_of_reservation(reservation)])
        if reservation.charges:
            self.exchange_each(
                Exchange(budget=one.budget, held=one.units) for one in reservation.charges
            )
            self._insert(
                charges,
                (
                    {
                        "reservation": reservation.id,
                        "budget": one.budget,
                        "epsilon": one.units.epsilon,
                        "delta": one.units.delta,
                    }
                    for one in reservation.charges
                ),
            )

    def advance(self, hold: Reservation, state: ReservationState, **values: Any) -> Reservation:
        """Moves a reservation to its next state, and sets ``started``, ``token`` or ``cell``."""
        after = dataclasses.replace(hold, state=state, **values)
        self._one(
            _ADVANCE, of=hold.id, before=hold.state, after=state.value, since=after.started,
            **{"with": after.token, "in": after.cell},
        )  # fmt: skip
        return after

    # Proof: proofs/account.v, theorems balances, nothing_lost
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
        settled = kind == EventKind.SETTLED
        self.exchange_each(
            Exchange(
                budget=one.budget,
                held=NOTHING.minus(one.units),
                spent=costs[one.name],
                saved=one.units.epsilon - costs[one.name].epsilon if settled else 0,
            )
            for one in hold.charges
        )
        changed = [
            {"of": hold.id, "in": one.budget, "epsilon": cost.epsilon, "delta": cost.delta}
            for one in hold.charges
            if (cost := costs[one.name]) != one.units
        ]
        if changed:
            self._each(_CHARGE, changed)
        lines = [(one.name, costs[one.name]) for one in hold.charges]
        self.log_each(kind, lines, key=hold.key, cell=cell, details=details)
        after = self.advance(hold, _STATE_AFTER[kind], cell=cell)
        ended = (one._replace(units=costs[one.name]) for one in hold.charges)
        return dataclasses.replace(after, charges=tuple(ended))

    # -------------------------------------------------------------------- steps of a plan

    def declare(self, plan: int, declared: Mapping[str, int]) -> None:
        """Inserts the steps of a plan, each with the number of its runs."""
        self._insert(
            steps,
            [
                {"budget": plan, "step": step, "times": times, "used": 0}
                for step, times in declared.items()
            ],
        )

    def use(self, plans: Sequence[int], wanted: Mapping[str, int]) -> None:
        """Takes runs of steps from each of these plans; negative numbers give runs back."""
        if plans and wanted:
            rows = [
                {"of": plan, "named": step, "more": runs}
                for plan in plans
                for step, runs in wanted.items()
            ]
            self._each(_USE, rows)

    # ---------------------------------------------------------------------------- inside

    def _one(self, statement: Any, **values: Any) -> None:
        """Changes exactly one row: the conditions that the act has checked are still true.

        Raises:
            LedgerCorruptError: they are not; the transaction is rolled back.
        """
        self._each(statement, [values])

    def _each(self, statement: Any, rows: Iterable[Mapping[str, Any]]) -> None:
        """Changes exactly one row of the table for each row of named values, each another one.

        Raises:
            LedgerCorruptError: a condition that the act has checked is no longer true; the
                transaction is rolled back.
        """
        result, given = self._execute(statement, rows)
        self._changed(result.rowcount, given)

    def _insert(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Inserts rows, each with a value for each column."""
        self._execute(_INSERT[table], rows)

    def _execute(
        self, statement: Any, rows: Iterable[Mapping[str, Any]]
    ) -> tuple[CursorResult[Any], int]:
        """Executes a statement for each row of named values; all name them in one order.

        Returns:
            the cursor's result, and the number of rows.
        """
        values: list[tuple[Any, ...]] = []
        names: tuple[str, ...] = ()
        for row in rows:  # none of ten thousand is kept: the collector of garbage would read all
            values.append(tuple(row.values()))
            names = names or tuple(row)
        return execute_each(self.connection, statement, names, values), len(values)

    def _changed(self, rows: int, expected: int) -> None:
        """Refuses to go on where other rows were changed than the act had read.

        Raises:
            LedgerCorruptError: a condition that the act has checked is no longer true; the
                transaction is rolled back.
        """
        if rows != expected:
            raise LedgerCorruptError(
                f"what was read under the lock was not there any more ({rows} rows changed);"
                " nothing was written"
            )
