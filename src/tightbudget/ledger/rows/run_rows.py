"""Rows of reservations as values, with the charges that each of them holds."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Row,
    Select,
    bindparam,
    exists,
    func,
    select,
    text,
)

from tightbudget.errors import LedgerCorruptError
from tightbudget.ledger.rows.budget_rows import _PARTS, Balance
from tightbudget.ledger.rows.event_rows import asked_in
from tightbudget.ledger.rows.selection import NAMES, among, chunks, is_few, truth
from tightbudget.ledger.store.driver import execute
from tightbudget.ledger.store.schema import budgets, charges, events, reservations
from tightbudget.output_dp.pricing import BudgetRule
from tightbudget.promises.chain import digest
from tightbudget.promises.kinds import rule_of
from tightbudget.promises.pricing import Stored, guarantee_of
from tightbudget.promises.seen import Seen
from tightbudget.promises.stored_words import OPEN_STATES
from tightbudget.promises.units import Units


class Charge(NamedTuple):
    """The units that a reservation holds in one of its budgets, or has cost there.

    Attributes:
        budget: the ``id`` of the budget.
        name: the name of the budget.
        rule: the rule that prices guarantees in that budget.
        units: the units that are held until the reservation ends, and after that, its cost.
    """

    budget: int
    name: str
    rule: BudgetRule
    units: Units


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """A reservation as it is stored.

    Attributes:
        id: the number of the event that has reserved it.
        key: the caller's name for the run.
        body: the request as one text.
        digest: the hash of the body.
        interactive: says whether the mechanism answers more than once.
        state: a value of :class:`tightbudget.promises.stored_words.ReservationState`.
        started: the number of the event that has started it, or None.
        token: the digest of the text that settles it, or None before its start.
        cell: the cell that it was settled with, as canonical JSON, or None.
        told: a note for the caller, or None.
        charges: the units in each of its budgets, by the budgets' names.
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
        """The guarantee that was reserved for, as the body says.

        Raises:
            LedgerCorruptError: the body was changed since it was written.
        """
        return _guarantee(self.body, self.digest)

    @property
    def is_open(self) -> bool:
        """True if the reservation still holds something."""
        return self.state in OPEN_STATES

    def __str__(self) -> str:
        return self.state + ("" if self.cell is None else f" with cell {self.cell}")


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """An interactive reservation that is open.

    Attributes:
        key: the caller's name for the run.
        charges: the units that it holds in the budgets of one whole.
    """

    key: str
    charges: list[Charge]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A reservation that is open, without the body of its request.

    Attributes:
        id: the number of the event that has reserved it.
        key: the caller's name for the run.
        state: a value of :class:`tightbudget.promises.stored_words.ReservationState`.
        interactive: says whether the mechanism answers more than once.
        told: a note for the caller, or None.
        since: the time of the start or, before it, of the reservation, by the ledger's clock.
        by: the name of who has done that; None where an earlier version did not write it down.
        charges: the units that it holds in each of its budgets, by the budgets' names.
        question: the question that the run answers; None where nobody has said one.
    """

    id: int
    key: str
    state: str
    interactive: bool
    told: str | None
    since: str
    by: str | None
    charges: tuple[Charge, ...]
    question: str | None


@functools.lru_cache(maxsize=16)  # a settlement asks again for each budget; each may be megabytes
def _guarantee(body: str, expected: str) -> Stored:
    """Reads the guarantee from a request's body that has the expected hash.

    Raises:
        LedgerCorruptError: the body has another hash.
    """
    if digest(body) != expected:  # guard: prices-unchanged
        raise LedgerCorruptError("the prices of a reservation were changed")
    return guarantee_of(json.loads(body)["guarantee"])


def holders(connection: Connection, of: Balance) -> list[str]:
    """Lists the keys of reservations and the names of parts by what they hold, the most first."""
    found = [
        (-epsilon, name)
        for statement in (_HOLDING, _PARTS)
        for epsilon, name in execute(connection, statement, of=of.id)
    ]  # guard: closed-budget-not-held
    return [name for _, name in sorted(found)]


# The body of a request may be a megabyte. It is read once for each reservation, apart from the
# charges and never joined to them; a list of open reservations does not read it at all.
_LINES = select(
    charges.c.reservation,
    charges.c.budget,
    charges.c.epsilon,
    charges.c.delta,
    budgets.c.name,
    budgets.c.kind,
    budgets.c.parameters,
).join(budgets, budgets.c.id == charges.c.budget)


_LINES = _LINES.order_by(charges.c.reservation, budgets.c.name)


_LINES_OF_ONE = _LINES.where(charges.c.reservation == bindparam("reservation"))


_NUMBER = select(reservations.c.id).where(reservations.c.key == bindparam("key"))


_RESERVATION = select(reservations).where(reservations.c.key == bindparam("key"))


_IS_OPEN = text("reservations.state IN ('reserved', 'started')")  # as the index has it


_ALL = select(reservations).order_by(reservations.c.id)


_OPEN = _ALL.where(_IS_OPEN)


_HOLDING = (
    select(charges.c.epsilon, reservations.c.key)
    .join(reservations, reservations.c.id == charges.c.reservation)
    .where(_IS_OPEN, charges.c.budget == bindparam("of"))
)


_FIRST = events.alias()


_SUMMARY = (
    select(
        reservations.c.id,
        reservations.c.key,
        reservations.c.state,
        reservations.c.interactive,
        reservations.c.told,
        events.c.at,
        events.c.details,
        _FIRST.c.details.label("first"),
    )
    .join(events, events.c.sequence == func.coalesce(reservations.c.started, reservations.c.id))
    .join(_FIRST, _FIRST.c.sequence == reservations.c.id)
    .where(_IS_OPEN)
    .order_by(reservations.c.id)
)


# the open interactive reservations of some wholes, a row for each charge there
_CONVERSATIONS = (
    select(
        charges.c.reservation,
        charges.c.budget,
        charges.c.epsilon,
        charges.c.delta,
        budgets.c.name,
        budgets.c.kind,
        budgets.c.parameters,
        budgets.c.root,
        reservations.c.key,
    )
    .select_from(reservations)
    .join(charges, charges.c.reservation == reservations.c.id)
    .join(budgets, budgets.c.id == charges.c.budget)
    .where(
        _IS_OPEN,
        reservations.c.interactive == 1,
        budgets.c.root.in_(bindparam("roots", expanding=True)),
    )
    .order_by(reservations.c.id, budgets.c.name)
)


# Reservations that are read at once. PostgreSQL and SQLite take more values in one IN (65,535 and
# 32,766); but each body may be a megabyte, and all of a page are in memory together.
_PAGE = 500


def reservation(connection: Connection, key: str) -> Reservation | None:
    """Returns the reservation of this key, also a refused one, or None."""
    row = execute(connection, _RESERVATION, key=key).one_or_none()
    return None if row is None else _reservation(row, _lines(connection, [row]))


def open_reservations(connection: Connection, seen: Seen | None = None) -> list[Reservation]:
    """Reads the reservations that are not ended, by number: all, or those that charge these."""
    return list(_reservations(connection, _paying(_OPEN, seen)))


def open_summaries(
    connection: Connection,
    seen: Seen | None = None,
    *,
    interactive: bool = False,
    after: int = 0,
    limit: int | None = None,
) -> list[Summary]:
    """Reads the reservations that are not ended, without the bodies of their requests.

    Args:
        connection: a view of the ledger.
        seen: reads only what charges one of these budgets; by default all.
        interactive: reads only what answers more than once.
        after: the number of the last reservation that is left out.
        limit: the largest number of reservations.
    """
    few = is_few(seen)
    wanted = _paying(_SUMMARY, seen if few else None).where(reservations.c.id > after)
    if few:
        wanted = wanted.limit(limit)
    if interactive:
        wanted = wanted.where(reservations.c.interactive == 1)
    found: list[Summary] = []
    with connection.execute(wanted) as rows:
        for page in rows.partitions(_PAGE):
            lines = _lines(connection, page)
            listed = (
                Summary(
                    id=row.id,
                    key=row.key,
                    state=row.state,
                    interactive=truth(row.interactive),
                    told=row.told,
                    since=row.at,
                    by=json.loads(row.details).get("by"),
                    charges=tuple(lines.get(row.id, ())),
                    question=asked_in(row.first),
                )
                for row in page
            )
            found += (
                one for one in listed
                if few or seen is None or any(charge.name in seen for charge in one.charges)
            )  # fmt: skip
            if limit is not None and len(found) >= limit:
                break
    return found[:limit]


def number_of(connection: Connection, key: str) -> int | None:
    """Returns the number of the reservation of this key, also of a refused one, or None."""
    number: int | None = execute(connection, _NUMBER, key=key).scalars().one_or_none()
    return number


def count_open(connection: Connection, seen: Seen) -> int:
    """Counts the reservations that are not ended and charge one of these budgets."""
    if not is_few(seen):
        return len(open_summaries(connection, seen))
    wanted = _paying(select(func.count()).select_from(reservations).where(_IS_OPEN), seen)
    found: int = connection.scalars(wanted).one()
    return found


_COUNTED = {
    dialect: (
        select(budgets.c.name, func.count())
        .join(charges, charges.c.budget == budgets.c.id)
        # As a join with reservations, SQLite would read the charges of all that were ever made; and
        # by an index of names, those of each of ten thousand names apart.
        .where(charges.c.reservation.in_(select(reservations.c.id).where(_IS_OPEN)))
        .where((budgets.c.name + "").in_(names))
        .group_by(budgets.c.name)
    )
    for dialect, names in NAMES.items()
}


def count_open_in_each(connection: Connection, names: Collection[str]) -> dict[str, int]:
    """Counts for each budget the open reservations that charge it; one without any is left out."""
    statement = _COUNTED[connection.dialect.name]
    rows = execute(connection, statement, names=json.dumps(list(names))).all()
    return {name: int(number) for name, number in rows}


def reservations_numbered(connection: Connection, numbers: Collection[int]) -> list[Reservation]:
    """Reads the reservations that have one of these numbers, at most some thousands."""
    return list(_reservations(connection, _ALL.where(reservations.c.id.in_(numbers))))


def conversations(connection: Connection, roots: Collection[int]) -> dict[int, list[Conversation]]:
    """Reads the open interactive reservations in all parts of several wholes.

    Returns:
        for the ``id`` of each whole the reservations that charge it or a part of it.
    """
    found: dict[int, dict[int, Conversation]] = {}
    for few in chunks(sorted(roots)):
        for row in connection.execute(_CONVERSATIONS, {"roots": few}):
            one = found.setdefault(row.root, {}).setdefault(
                row.reservation, Conversation(key=row.key, charges=[])
            )
            one.charges.append(_charge(row))
    return {root: list(there.values()) for root, there in found.items()}


def _paying(wanted: Select[Any], seen: Seen | None) -> Select[Any]:
    """Narrows a query of reservations to those that charge one of these budgets."""
    if seen is None:
        return wanted
    there = charges.join(budgets, budgets.c.id == charges.c.budget)
    pays = select(charges.c.budget).select_from(there)
    of_it = pays.where(charges.c.reservation == reservations.c.id, among(budgets.c.name, seen))
    return wanted.where(exists(of_it))


def _reservations(
    connection: Connection, wanted: Select[Any]
) -> Generator[Reservation, None, None]:
    """Runs a query of reservations page by page, and adds the charges to each page."""
    with connection.execute(wanted, execution_options={"yield_per": _PAGE}) as found:
        for page in found.partitions():
            lines = _lines(connection, page)
            for row in page:
                yield _reservation(row, lines)


def _lines(connection: Connection, page: Sequence[Row[Any]]) -> dict[int, list[Charge]]:
    """Reads the charges of each reservation of a page, by the names of the budgets."""
    numbers = [row.id for row in page]
    rows: Iterable[Row[Any]]
    if len(numbers) == 1:
        rows = execute(connection, _LINES_OF_ONE, reservation=numbers[0]).all()
    else:
        rows = connection.execute(_LINES.where(charges.c.reservation.in_(numbers)))
    found: dict[int, list[Charge]] = {}
    for row in rows:
        found.setdefault(row.reservation, []).append(_charge(row))
    return found


def _charge(row: Any) -> Charge:
    """Reads a row of ``_LINES``."""
    return Charge(
        row.budget, row.name, rule_of(row.kind, row.parameters), Units(row.epsilon, row.delta)
    )


def _reservation(row: Row[Any], lines: Mapping[int, Sequence[Charge]]) -> Reservation:
    """Reads a row of ``reservations``, with its charges from the lines of its page."""
    return Reservation(
        id=row.id,
        key=row.key,
        body=row.body,
        digest=row.digest,
        interactive=truth(row.interactive),
        state=row.state,
        started=row.started,
        token=row.token,
        cell=row.cell,
        told=row.told,
        charges=tuple(lines.get(row.id, ())),
    )


def row_of_reservation(reservation: Reservation) -> dict[str, Any]:
    """Writes the row of ``reservations``, by its columns."""
    return {
        "id": reservation.id,
        "key": reservation.key,
        "body": reservation.body,
        "digest": reservation.digest,
        "interactive": int(reservation.interactive),
        "state": str(reservation.state),
        "started": reservation.started,
        "token": reservation.token,
        "cell": reservation.cell,
        "told": reservation.told,
    }
