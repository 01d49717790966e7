"""What the tables say, as values: budgets, reservations, and the last event."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, or_, select, text

from tightbudget.errors import LedgerCorruptError
from tightbudget.ledger.accounts import Rule, Stored, guarantee_of, rule_of
from tightbudget.ledger.chain import Entry, Head, canonical, digest
from tightbudget.ledger.schema import OPEN, budgets, charges, events, reservations, steps, tokens
from tightbudget.ledger.units import NOTHING, Units
from tightbudget.numerics.validate import refuse

__all__ = [
    "Balance",
    "Charge",
    "Reservation",
    "Which",
    "balance",
    "balances",
    "conversations",
    "declared",
    "entries",
    "entry",
    "entry_before",
    "find_balance",
    "head",
    "holders",
    "last",
    "open_reservations",
    "parent_of",
    "reservation",
    "reservations_in_order",
    "said_of_token",
    "token",
    "tokens_in_order",
    "within",
]


@dataclass(frozen=True)
class Balance:
    """A budget, its limits and what became of it, in units."""

    id: int
    name: str
    kind: str
    parameters: str
    parent: int | None
    root: int
    closed: bool
    cap: Units
    spent: Units
    held: Units
    saved: Units

    @property
    def rule(self) -> Rule:
        """By whose formulas guarantees are priced here."""
        return rule_of(self.kind, self.parameters)

    @property
    def left(self) -> Units:
        """What may still be reserved."""
        return NOTHING if self.closed else self.cap.minus(self.spent).minus(self.held)


@dataclass(frozen=True)
class Charge:
    """What a reservation holds in one of its budgets, or has cost there."""

    budget: int
    name: str
    rule: Rule
    units: Units


@dataclass(frozen=True)
class Reservation:
    """A reservation: what was asked for, how far it has come, and what it takes.

    Attributes:
        id, started: the numbers of the events that have reserved it, and started it.
        token: the digest of the text that settles it.
    """

    id: int
    key: str
    body: str
    digest: str
    interactive: bool
    state: str
    started: int | None
    token: str | None
    cell: str | None
    told: str | None
    charges: tuple[Charge, ...]

    @property
    def guarantee(self) -> Stored:
        """What was reserved for, as it was written down then.

        Raises:
            LedgerCorruptError: it was changed since.
        """
        return _guarantee(self.body, self.digest)

    @property
    def is_open(self) -> bool:
        """Whether it still holds something."""
        return self.state in OPEN

    def __str__(self) -> str:
        return self.state + ("" if self.cell is None else f" with cell {self.cell}")


@functools.lru_cache(maxsize=256)
def _guarantee(body: str, expected: str) -> Stored:
    if digest(body) != expected:
        raise LedgerCorruptError("the prices of a reservation were changed")
    return guarantee_of(json.loads(body)["guarantee"])


# ---------------------------------------------------------------------------- budgets


_BALANCE = select(budgets).where(budgets.c.name == bindparam("name"))
_BALANCES = select(budgets).order_by(budgets.c.id)
_PARTS = select(budgets.c.cap_epsilon, budgets.c.name).where(
    budgets.c.parent == bindparam("of"), budgets.c.closed == 0
)
_PARENT = select(budgets).where(budgets.c.id == bindparam("id"))
_STEPS = select(steps.c.step, steps.c.times, steps.c.used).where(
    steps.c.budget == bindparam("budget")
)


def find_balance(connection: Connection, name: str) -> Balance | None:
    """The budget of this name, if there is one."""
    row = connection.execute(_BALANCE, {"name": name}).one_or_none()
    return None if row is None else _balance(row)


def balance(connection: Connection, name: str) -> Balance:
    """The budget of this name.

    Raises:
        ParameterError: there is none.
    """
    found = find_balance(connection, name)
    if found is None:
        raise refuse("budget", "be the name of a budget in this ledger", name)
    return found


def parent_of(connection: Connection, child: Balance) -> Balance | None:
    """The budget that this one is a part of."""
    if child.parent is None:
        return None
    return _balance(connection.execute(_PARENT, {"id": child.parent}).one())


def balances(connection: Connection) -> Iterator[Balance]:
    """All budgets in the order in which they were opened: parents first."""
    return map(_balance, connection.execute(_BALANCES))


def within(connection: Connection, names: Collection[str]) -> Iterable[str]:
    """The names of these budgets and of all their parts."""
    known = select(budgets.c.id, budgets.c.name)
    found = known.where(budgets.c.name.in_(names)).cte(recursive=True)
    found = found.union(known.join(found, budgets.c.parent == found.c.id))
    return connection.scalars(select(found.c.name))


def holders(connection: Connection, of: Balance) -> list[str]:
    """The keys of reservations and the names of parts that hold something, the most first."""
    found = [
        (-epsilon, name)
        for statement in (_HOLDING, _PARTS)
        for epsilon, name in connection.execute(statement, {"of": of.id})
    ]
    return [name for _, name in sorted(found)]


def declared(connection: Connection, plan: Balance) -> dict[str, tuple[int, int]]:
    """How often each step of a plan may run, and how often it was reserved."""
    rows = connection.execute(_STEPS, {"budget": plan.id})
    return {step: (times, used) for step, times, used in rows}


def _balance(row: Row[Any]) -> Balance:
    return Balance(
        *(row.id, row.name, row.kind, row.parameters, row.parent, row.root, _truth(row.closed)),
        cap=Units(row.cap_epsilon, row.cap_delta),
        spent=Units(row.spent_epsilon, row.spent_delta),
        held=Units(row.held_epsilon, row.held_delta),
        saved=Units(row.saved_epsilon, 0),
    )


def _truth(value: int) -> bool:
    """The truth value that a column has.

    Raises:
        LedgerCorruptError: it is none.
    """
    if value not in (0, 1):
        raise LedgerCorruptError(f"a truth value of a row must be 0 or 1, got {value!r}")
    return bool(value)


# ----------------------------------------------------------------------- reservations


_LINES = (
    select(
        reservations,
        charges.c.budget,
        charges.c.epsilon,
        charges.c.delta,
        budgets.c.name,
        budgets.c.kind,
        budgets.c.parameters,
    )
    .outerjoin(charges, charges.c.reservation == reservations.c.id)
    .outerjoin(budgets, budgets.c.id == charges.c.budget)
)
_RESERVATION = _LINES.where(reservations.c.key == bindparam("key")).order_by(budgets.c.name)
_IS_OPEN = text("reservations.state IN ('reserved', 'started')")  # as the index has it
_OPEN = _LINES.where(_IS_OPEN).order_by(reservations.c.id, budgets.c.name)
_ALL = _LINES.order_by(reservations.c.id, budgets.c.name)
_CONVERSATIONS = _OPEN.where(reservations.c.interactive == 1, budgets.c.root == bindparam("root"))
_HOLDING = (
    select(charges.c.epsilon, reservations.c.key)
    .join(reservations, reservations.c.id == charges.c.reservation)
    .where(_IS_OPEN, charges.c.budget == bindparam("of"))
)


def reservation(connection: Connection, key: str) -> Reservation | None:
    """The reservation of this key, also a refused one."""
    rows = connection.execute(_RESERVATION, {"key": key}).all()
    return _reservation(rows) if rows else None


def open_reservations(connection: Connection) -> list[Reservation]:
    """What is reserved or started and not ended, in the order of the reservations."""
    found = itertools.groupby(connection.execute(_OPEN), key=lambda row: row.id)
    return [_reservation(list(lines)) for _, lines in found]


def reservations_in_order(connection: Connection) -> Generator[Reservation, None, None]:
    """All of them, by number, without ever holding all in memory."""
    with connection.execute(_ALL, execution_options={"yield_per": 1000}) as found:
        for _, lines in itertools.groupby(found, key=lambda row: row.id):
            yield _reservation(list(lines))


def conversations(connection: Connection, root: int) -> list[Reservation]:
    """Interactive ones that are open in some part of this whole, with their lines there."""
    rows = connection.execute(_CONVERSATIONS, {"root": root})
    found = itertools.groupby(rows, key=lambda row: row.id)
    return [_reservation(list(lines)) for _, lines in found]


def _reservation(rows: Sequence[Row[Any]]) -> Reservation:
    first = rows[0]
    return Reservation(
        *(first.id, first.key, first.body, first.digest, _truth(first.interactive)),
        *(first.state, first.started, first.token, first.cell, first.told),
        charges=tuple(
            Charge(
                row.budget, row.name, rule_of(row.kind, row.parameters),
                Units(row.epsilon, row.delta),
            )
            for row in rows
            if row.budget is not None
        ),
    )  # fmt: skip


# ---------------------------------------------------------------------- access tokens


_TOKENS = select(tokens).order_by(tokens.c.created, tokens.c.id)
_TOKEN = select(tokens).where(tokens.c.id == bindparam("of"))


def tokens_in_order(connection: Connection) -> list[dict[str, Any]]:
    """The rows of all access tokens, the oldest first."""
    return [row._asdict() for row in connection.execute(_TOKENS)]


def token(connection: Connection, id: str) -> dict[str, Any] | None:
    """The row of the access token of this id, if there is one."""
    row = connection.execute(_TOKEN, {"of": id}).one_or_none()
    return None if row is None else row._asdict()


def said_of_token(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the event of an access token says: what it may do, and the digest of its row.

    The digest is that of all that never changes, the hash of its secret included.
    """
    fixed = {name: value for name, value in row.items() if name != "revoked"}
    shown = {name: row[name] for name in ("id", "name", "role", "expires")}
    return {**shown, "budgets": json.loads(row["budgets"]), "digest": digest(canonical(fixed))}


# ----------------------------------------------------------------------------- events


_LAST = select(events).order_by(events.c.sequence.desc()).limit(1)
_EVENT = select(events).where(events.c.sequence == bindparam("sequence"))


def last(connection: Connection) -> Entry | None:
    """The last event."""
    row = connection.execute(_LAST).one_or_none()
    return None if row is None else Entry(*row)


def head(connection: Connection) -> Head:
    """How far the history goes."""
    return Head.after(last(connection))


def entry(connection: Connection, sequence: int) -> Entry | None:
    """One event."""
    row = connection.execute(_EVENT, {"sequence": sequence}).one_or_none()
    return None if row is None else Entry(*row)


def entry_before(
    connection: Connection, later: Entry, kind: str, details: str | None = None
) -> Entry | None:
    """The last event of a kind before another one, of the same budget."""
    wanted = select(events).where(
        events.c.budget == later.budget, events.c.sequence < later.sequence, events.c.kind == kind
    )
    if details is not None:
        wanted = wanted.where(events.c.details == details)
    row = connection.execute(wanted.order_by(events.c.sequence.desc()).limit(1)).one_or_none()
    return None if row is None else Entry(*row)


@dataclass(frozen=True)
class Which:
    """Which events: those that agree with all that is said here.

    Attributes:
        budget: of this one.
        budgets: of one of these.
        key: of this reservation.
        kind: of this kind.
        search: with this text in the key, the budget's name, the cell or the details; in
            ASCII, either case. Among some budgets only, details are not searched: they name
            others, too.
    """

    budget: str | None = None
    budgets: Collection[str] | None = None
    key: str | None = None
    kind: str | None = None
    search: str | None = None

    def conditions(self) -> Iterator[ColumnElement[bool]]:
        """What must be true of an event's row."""
        of = events.c
        for column, value in ((of.budget, self.budget), (of.key, self.key), (of.kind, self.kind)):
            if value is not None:
                yield column == value
        if self.budgets is not None:
            yield of.budget.in_(self.budgets)
        if self.search is not None:
            as_json = canonical(self.search)[1:-1]  # cells and details are stored as JSON
            plain = (
                column.icontains(self.search, autoescape=True) for column in (of.key, of.budget)
            )
            in_json = (of.cell, of.details) if self.budgets is None else (of.cell,)
            coded = (column.icontains(as_json, autoescape=True) for column in in_json)
            yield or_(*plain, *coded)


ALL = Which()


def entries(
    connection: Connection,
    which: Which = ALL,
    *,
    after: int = 0,
    before: int | None = None,
    limit: int | None = None,
    newest_first: bool = False,
) -> list[Entry]:
    """These events in their order, after one and before another."""
    wanted = select(events).where(events.c.sequence > after, *which.conditions())
    if before is not None:
        wanted = wanted.where(events.c.sequence < before)
    order = events.c.sequence.desc() if newest_first else events.c.sequence
    return [Entry(*row) for row in connection.execute(wanted.order_by(order).limit(limit))]
