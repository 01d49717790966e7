"""Reads the tables into values: budgets, reservations, events and access tokens."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    text,
)

from tightbudget.errors import LedgerCorruptError
from tightbudget.ledger.driver import execute
from tightbudget.ledger.schema import budgets, charges, events, reservations, steps, tokens
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.pricing import BudgetRule
from tightbudget.promises.chain import Entry, Head, canonical, digest
from tightbudget.promises.kinds import rule_of
from tightbudget.promises.kinds.blocks import BLOCK, BLOCKS
from tightbudget.promises.pricing import Stored, guarantee_of
from tightbudget.promises.seen import Seen
from tightbudget.promises.stored_words import OPEN_STATES
from tightbudget.promises.text import spellings
from tightbudget.promises.units import NOTHING, Units

__all__ = [
    "Balance",
    "Charge",
    "Conversation",
    "Reservation",
    "Summary",
    "Which",
    "balance",
    "balances",
    "balances_of",
    "beginning_with",
    "conversations",
    "declared",
    "declared_in",
    "entries",
    "entry",
    "entry_before",
    "find_balance",
    "head",
    "holders",
    "last",
    "count_open",
    "count_open_in_each",
    "number_of",
    "open_reservations",
    "open_summaries",
    "parent_of",
    "parents_of",
    "parts",
    "reservation",
    "reservations_numbered",
    "said_of_token",
    "spent_in_parts",
    "statements",
    "stored_key",
    "stored_name",
    "token",
    "tokens_in_order",
    "within",
]

T = TypeVar("T")

# names that a statement compares with; of more, which a database would refuse (SQLite takes 32,766
# values, PostgreSQL 65,535), all rows are read and compared here
_FEW = 10_000


class Balance(NamedTuple):
    """A row of ``budgets``, its columns in their order; ten thousand of them are read at once.

    Attributes:
        id: the number of the event that has opened it.
        name: the budget's name.
        kind: the kind of the budget.
        parameters: the kind's parameters as one text.
        parent: the ``id`` of the budget that it is a part of, or None.
        root: the ``id`` of the outermost budget around it, which may be itself.
        closed: says whether it was closed.
        cap_epsilon: of the most that spent and held may come to, in units.
        cap_delta: the delta of that, in units.
        spent_epsilon: of settled and forfeited runs, and of parts that are closed.
        spent_delta: the delta of these.
        held_epsilon: of what open reservations and open parts hold.
        held_delta: the delta of that.
        saved_epsilon: the units by which worst cases would have cost more; never delta.
    """

    id: int
    name: str
    kind: str
    parameters: str
    parent: int | None
    root: int
    closed: bool
    cap_epsilon: int
    cap_delta: int
    spent_epsilon: int
    spent_delta: int
    held_epsilon: int
    held_delta: int
    saved_epsilon: int

    @staticmethod
    def opened(
        id: int,
        name: str,
        *,
        kind: str,
        parameters: str,
        whole: Balance | None = None,
        cap: Units,
        spent: Units = NOTHING,
    ) -> Balance:
        """Returns the budget that an event opens, which holds nothing yet."""
        parent, root = (None, id) if whole is None else (whole.id, whole.root)
        return Balance(
            id, name, kind, parameters, parent, root, False, *cap, *spent, *NOTHING, NOTHING.epsilon
        )

    @property
    def cap(self) -> Units:
        """The most that spent and held may come to."""
        return Units(self.cap_epsilon, self.cap_delta)

    @property
    def spent(self) -> Units:
        """The units of settled and forfeited runs, and of parts that are closed."""
        return Units(self.spent_epsilon, self.spent_delta)

    @property
    def held(self) -> Units:
        """The units that open reservations and open parts hold."""
        return Units(self.held_epsilon, self.held_delta)

    @property
    def saved(self) -> Units:
        """The units by which worst cases would have cost more; delta is always 0."""
        return Units(self.saved_epsilon, 0)

    def but(
        self,
        *,
        cap: Units | None = None,
        spent: Units | None = None,
        held: Units | None = None,
        saved: Units | None = None,
    ) -> Balance:
        """Returns this budget with other amounts, where one is given."""
        (cap_e, cap_d), (spent_e, spent_d) = cap or self.cap, spent or self.spent
        (held_e, held_d), (saved_e, _) = held or self.held, saved or self.saved
        amounts = cap_e, cap_d, spent_e, spent_d, held_e, held_d, saved_e
        return Balance._make((*self[: -len(amounts)], *amounts))

    @property
    def rule(self) -> BudgetRule:
        """The rule that prices guarantees in this budget."""
        return rule_of(self.kind, self.parameters)

    @property
    def left(self) -> Units:
        """The units that may still be reserved."""
        if self.closed:
            return NOTHING
        return Units(
            self.cap_epsilon - self.spent_epsilon - self.held_epsilon,
            self.cap_delta - self.spent_delta - self.held_delta,
        )


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
    """

    id: int
    key: str
    state: str
    interactive: bool
    told: str | None
    since: str
    by: str | None
    charges: tuple[Charge, ...]


@functools.lru_cache(maxsize=16)  # a settlement asks again for each budget; each may be megabytes
def _guarantee(body: str, expected: str) -> Stored:
    """Reads the guarantee from a request's body that has the expected hash.

    Raises:
        LedgerCorruptError: the body has another hash.
    """
    if digest(body) != expected:  # guard: prices-unchanged
        raise LedgerCorruptError("the prices of a reservation were changed")
    return guarantee_of(json.loads(body)["guarantee"])


def stored_name(connection: Connection, name: str) -> str | None:
    """Returns the name of a budget as the ledger spells it; None if there is no such budget."""
    return _stored(connection, budgets.c.name, name)


def stored_key(connection: Connection, key: str) -> str | None:
    """Returns a reservation's key as the ledger spells it; None if there is no such reservation."""
    return _stored(connection, reservations.c.key, key)


def _stored(connection: Connection, column: Column[str], text: str) -> str | None:
    """Looks for each spelling of a text, the given one first: earlier versions stored any."""
    known = set(connection.scalars(select(column).where(column.in_(spellings(text)))))
    return next((spelling for spelling in spellings(text) if spelling in known), None)


# ---------------------------------------------------------------------------- budgets


_BALANCE = select(budgets).where(budgets.c.name == bindparam("name"))
_BALANCES = select(budgets).order_by(budgets.c.id)
# The names that a JSON text lists, as each database reads it: one value, however many there are.
_NAMES = {
    dialect: select(listed(bindparam("names")).table_valued("value").c.value)
    for dialect, listed in (
        ("sqlite", func.json_each),
        ("postgresql", func.json_array_elements_text),
    )
}
_NAMED = {
    dialect: select(budgets).where(budgets.c.name.in_(names)) for dialect, names in _NAMES.items()
}
_PARTS = select(budgets.c.cap_epsilon, budgets.c.name).where(
    budgets.c.parent == bindparam("of"), budgets.c.closed == 0
)
_PARENT = select(budgets).where(budgets.c.id == bindparam("id"))
_WHOLE = budgets.alias("whole")


def find_balance(connection: Connection, name: str) -> Balance | None:
    """Returns the budget of this name, or None."""
    row = execute(connection, _BALANCE, name=name).one_or_none()
    return None if row is None else _balance(row)


def balance(connection: Connection, name: str) -> Balance:
    """Returns the budget of this name.

    Raises:
        ParameterError: there is none.
    """
    found = find_balance(connection, name)
    if found is None:
        raise refuse("budget", "be the name of a budget in this ledger", name)
    return found


def balances_of(connection: Connection, names: Sequence[str]) -> list[Balance]:
    """Returns the budgets of these names, in the order of the names.

    Raises:
        ParameterError: there is none of one of the names; the first of them is told.
    """
    if len(names) == 1:
        return [balance(connection, names[0])]
    found = known_balances(connection, names)
    for name in names:
        if name not in found:
            raise refuse("budget", "be the name of a budget in this ledger", name)
    return [found[name] for name in names]


def known_balances(connection: Connection, names: Sequence[str]) -> dict[str, Balance]:
    """Returns those of the budgets of these names that there are, by name."""
    statement = _NAMED[connection.dialect.name]
    rows = execute(connection, statement, names=json.dumps(names)).all()
    return {row.name: _balance(row) for row in rows}


def parents_of(connection: Connection, children: Sequence[Balance]) -> dict[int, int | None]:
    """Returns for each budget around these, at any depth, the budget that it is a part of.

    One statement is executed for each level of parts, however many budgets there are.
    """
    around: dict[int, int | None] = {}
    level = {child.parent for child in children} - {None}
    while level:
        rows: list[Row[Any]] = []
        for few in _chunks(sorted(id for id in level if id is not None)):
            wanted = select(budgets.c.id, budgets.c.parent).where(budgets.c.id.in_(few))
            rows.extend(connection.execute(wanted))
        around.update((row.id, row.parent) for row in rows)
        level = {row.parent for row in rows} - {None, *around}
    return around


def parent_of(connection: Connection, child: Balance) -> Balance | None:
    """Returns the budget that another one is a part of, or None."""
    if child.parent is None:
        return None
    return _balance(execute(connection, _PARENT, id=child.parent).one())


def balances(connection: Connection) -> Iterator[Balance]:
    """Reads all budgets in the order in which they were opened: parents first."""
    return map(_balance, execute(connection, _BALANCES))


def statements(
    connection: Connection,
    seen: Seen | None = None,
    *,
    after: int = 0,
    limit: int | None = None,
    blocks: bool = True,
) -> list[tuple[Balance, str | None]]:
    """Reads budgets in the order in which they were opened, each with the name of its parent.

    Args:
        connection: a view of the ledger.
        seen: reads these budgets only; by default all.
        after: the number of the last budget that is left out.
        limit: the largest number of budgets.
        blocks: whether budgets that were made by rule, of sets of blocks, are listed.
    """
    wanted = select(budgets, _WHOLE.c.name.label("whole")).outerjoin(
        _WHOLE, _WHOLE.c.id == budgets.c.parent
    )
    wanted = wanted.where(budgets.c.id > after).order_by(budgets.c.id)
    if not blocks:
        wanted = wanted.where(budgets.c.kind != BLOCK.name)
    few = _is_few(seen)
    if few:
        wanted = wanted.limit(limit)
        wanted = wanted if seen is None else wanted.where(_among(budgets.c.name, seen))
    with connection.execute(wanted) as found:
        listed = (row for row in found if few or seen is None or row.name in seen)
        return [(_balance(row), row.whole) for row in itertools.islice(listed, limit)]


def made_by_rule(
    connection: Connection, beginning: str, last: int | None = None
) -> Iterator[Balance]:
    """Reads budgets that were made by rule and whose names begin so, the last names first.

    Args:
        connection: a view of the ledger.
        beginning: the beginning of the names.
        last: the largest number of budgets; by default all.
    """
    wanted = select(budgets).where(
        budgets.c.kind == BLOCK.name, budgets.c.name.startswith(beginning, autoescape=True)
    )
    with connection.execute(wanted.order_by(budgets.c.name.desc())) as found:
        # LIKE takes no notice of case on SQLite
        own = (_balance(row) for row in found if row.name.startswith(beginning))
        yield from itertools.islice(own, last)


def beginning_with(connection: Connection, beginning: str, limit: int) -> list[str]:
    """Returns the first names of budgets, of any kind, that begin so."""
    begins = func.substr(budgets.c.name, 1, len(beginning)) == beginning
    found = select(budgets.c.name).where(begins).order_by(budgets.c.name).limit(limit)
    return list(connection.scalars(found))


def parts(connection: Connection, of: Balance, limit: int) -> list[str]:
    """Returns the names of the first parts of a budget, in the order of their opening."""
    wanted = select(budgets.c.name).where(budgets.c.parent == of.id)
    return list(connection.scalars(wanted.order_by(budgets.c.id).limit(limit)))


def spent_in_parts(connection: Connection, of: Collection[int]) -> dict[int, Units]:
    """Sums what the open parts of these budgets have spent, and the parts of those parts.

    A budget holds the whole cap of an open part, so that this sum is within what it holds. A part
    that is closed is left out: what it has spent is in what the budget has spent.

    Args:
        connection: a view of the ledger.
        of: the ``id`` of each budget.

    Returns:
        the sum for each ``id`` that has open parts.
    """
    spent = budgets.c.spent_epsilon, budgets.c.spent_delta
    is_open = budgets.c.closed == 0
    few = len(of) <= _FEW
    direct = select(budgets.c.parent.label("top"), budgets.c.id, *spent).where(
        budgets.c.parent.in_(of) if few else budgets.c.parent.is_not(None), is_open
    )
    inside = direct.cte(recursive=True)
    deeper = select(inside.c.top, budgets.c.id, *spent).join(
        inside, budgets.c.parent == inside.c.id
    )
    inside = inside.union_all(deeper.where(is_open))  # guard: parts-of-parts
    totals = select(
        inside.c.top, func.sum(inside.c.spent_epsilon), func.sum(inside.c.spent_delta)
    ).group_by(inside.c.top)
    return {
        top: Units(epsilon=int(epsilon), delta=int(delta))
        for top, epsilon, delta in connection.execute(totals)
        if few or top in of
    }


def _within(names: Select[Any]) -> Select[Any]:
    """The query of the budgets of these names and of all their parts."""
    known = select(budgets.c.id, budgets.c.name, budgets.c.kind)
    found = known.where(budgets.c.name.in_(names)).cte(recursive=True)
    found = found.union(known.join(found, budgets.c.parent == found.c.id))
    return select(found.c.name, found.c.kind)


_WITHIN = {dialect: _within(names) for dialect, names in _NAMES.items()}


def within(connection: Connection, names: Collection[str]) -> Seen:
    """Returns these budgets and all their parts, and of the sets among them all blocks."""
    statement = _WITHIN[connection.dialect.name]
    rows = execute(connection, statement, names=json.dumps(list(names))).all()
    return Seen(
        names=frozenset(row.name for row in rows),
        sets=frozenset(row.name for row in rows if row.kind == BLOCKS.name),
    )


def _is_few(seen: Seen | None) -> bool:
    """Whether a statement can compare with all of these names."""
    return seen is None or len(seen.names) <= _FEW


def _among(column: Column[str], seen: Seen) -> ColumnElement[bool]:
    """The condition that a budget's name is among these.

    Not LIKE alone: it takes no notice of case on SQLite. Not a range of names: in which order they
    are is up to PostgreSQL's locale.
    """
    of_sets = [func.substr(column, 1, len(of) + 1) == f"{of}[" for of in sorted(seen.sets)]
    if not seen.with_quotas:
        of_sets = [and_(begins, column.contains("=")) for begins in of_sets]
    return or_(column.in_(seen.names), *of_sets)  # guard: blocks-by-whole-set


def holders(connection: Connection, of: Balance) -> list[str]:
    """Lists the keys of reservations and the names of parts by what they hold, the most first."""
    found = [
        (-epsilon, name)
        for statement in (_HOLDING, _PARTS)
        for epsilon, name in execute(connection, statement, of=of.id)
    ]  # guard: closed-budget-not-held
    return [name for _, name in sorted(found)]


def declared(connection: Connection, plan: Balance) -> dict[str, tuple[int, int]]:
    """Reads for each step of a plan how often it may run, and how often it was reserved."""
    return declared_in(connection, [plan]).get(plan.id, {})


def declared_in(
    connection: Connection, plans: Sequence[Balance]
) -> dict[int, dict[str, tuple[int, int]]]:
    """Reads the steps of each of these plans, by the plan's ``id``; see :func:`declared`."""
    found: dict[int, dict[str, tuple[int, int]]] = {}
    for few in _chunks([plan.id for plan in plans]):
        for row in connection.execute(select(steps).where(steps.c.budget.in_(few))):
            found.setdefault(row.budget, {})[row.step] = (row.times, row.used)
    return found


def _chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cuts values into lists that one statement compares with."""
    return (values[first : first + _FEW] for first in range(0, len(values), _FEW))


_PLACE_OF_CLOSED = list(budgets.c).index(budgets.c.closed)


def _balance(row: Row[Any]) -> Balance:
    """Reads a row that begins with the columns of ``budgets``."""
    values = row[: len(Balance._fields)]
    closed = _truth(values[_PLACE_OF_CLOSED])
    return Balance._make((*values[:_PLACE_OF_CLOSED], closed, *values[_PLACE_OF_CLOSED + 1 :]))


def _truth(value: int) -> bool:
    """Reads a truth value that is stored as 0 or 1.

    Raises:
        LedgerCorruptError: the column has another number.
    """
    if value not in (0, 1):  # guard: truth-values-0-1
        raise LedgerCorruptError(f"a truth value of a row must be 0 or 1, got {value!r}")
    return bool(value)


# ----------------------------------------------------------------------- reservations


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
_SUMMARY = (
    select(
        reservations.c.id,
        reservations.c.key,
        reservations.c.state,
        reservations.c.interactive,
        reservations.c.told,
        events.c.at,
        events.c.details,
    )
    .join(events, events.c.sequence == func.coalesce(reservations.c.started, reservations.c.id))
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
    few = _is_few(seen)
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
                    interactive=_truth(row.interactive),
                    told=row.told,
                    since=row.at,
                    by=json.loads(row.details).get("by"),
                    charges=tuple(lines.get(row.id, ())),
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
    if not _is_few(seen):
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
    for dialect, names in _NAMES.items()
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
    for few in _chunks(sorted(roots)):
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
    of_it = pays.where(charges.c.reservation == reservations.c.id, _among(budgets.c.name, seen))
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
        interactive=_truth(row.interactive),
        state=row.state,
        started=row.started,
        token=row.token,
        cell=row.cell,
        told=row.told,
        charges=tuple(lines.get(row.id, ())),
    )


# ---------------------------------------------------------------------- access tokens


_TOKENS = select(tokens).order_by(tokens.c.created, tokens.c.id)
_TOKEN = select(tokens).where(tokens.c.id == bindparam("of"))


def tokens_in_order(connection: Connection) -> list[dict[str, Any]]:
    """Reads the rows of all access tokens, the oldest first."""
    return [row._asdict() for row in execute(connection, _TOKENS)]


def token(connection: Connection, id: str) -> dict[str, Any] | None:
    """Returns the row of the access token of this id, or None."""
    row = execute(connection, _TOKEN, of=id).one_or_none()
    return None if row is None else row._asdict()


def said_of_token(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the details of an access token's event: its rights, and the digest of its row.

    The digest covers every column that never changes, the hash of the secret included.
    """
    fixed = {name: value for name, value in row.items() if name != "revoked"}
    shown = {name: row[name] for name in ("id", "name", "role", "expires")}
    return {**shown, "budgets": json.loads(row["budgets"]), "digest": digest(canonical(fixed))}


# ----------------------------------------------------------------------------- events


_LAST = select(events).order_by(events.c.sequence.desc()).limit(1)
_EVENT = select(events).where(events.c.sequence == bindparam("sequence"))


def last(connection: Connection) -> Entry | None:
    """Returns the last event of the history, or None."""
    row = execute(connection, _LAST).one_or_none()
    return None if row is None else Entry(*row)


def head(connection: Connection) -> Head:
    """Returns the head of the history."""
    return Head.after(last(connection))


def entry(connection: Connection, sequence: int) -> Entry | None:
    """Returns the event of this number, or None."""
    row = execute(connection, _EVENT, sequence=sequence).one_or_none()
    return None if row is None else Entry(*row)


def entry_before(
    connection: Connection, later: Entry, kind: str, details: str | None = None
) -> Entry | None:
    """Returns the last event of a kind before another event of the same budget, or None."""
    wanted = select(events).where(
        events.c.budget == later.budget, events.c.sequence < later.sequence, events.c.kind == kind
    )
    if details is not None:
        wanted = wanted.where(events.c.details == details)
    row = connection.execute(wanted.order_by(events.c.sequence.desc()).limit(1)).one_or_none()
    return None if row is None else Entry(*row)


@dataclass(frozen=True, kw_only=True)
class Which:
    """A selection of events: an event must agree with every field that is not None.

    Attributes:
        budget: the name of the event's budget.
        budgets: budgets, one of which is the event's.
        key: the key of the event's reservation.
        kind: the kind of the event.
        search: a text in the key, the budget's name, the cell or the details; in ASCII, either
            case. With ``budgets``, details are not searched: they name other budgets, too.
    """

    budget: str | None = None
    budgets: Seen | None = None
    key: str | None = None
    kind: str | None = None
    search: str | None = None

    def conditions(self, dialect: str) -> Iterator[ColumnElement[bool]]:
        """Yields the conditions on an event's row, all of which must hold.

        SQLite's LIKE takes either case of ASCII as it is, four times as fast as with ``lower``.
        """
        of = events.c
        for column, value in ((of.budget, self.budget), (of.key, self.key), (of.kind, self.kind)):
            if value is not None:
                yield column == value
        if self.budgets is not None:
            yield _among(of.budget, self.budgets)
        if self.search is not None:
            in_json = (of.cell, of.details) if self.budgets is None else (of.cell,)
            yield or_(
                *(
                    column.contains(text, autoescape=True)
                    if dialect == "sqlite"
                    else column.icontains(text, autoescape=True)
                    for spelling in spellings(self.search)
                    # cells and details are stored as JSON
                    for columns, text in (
                        ((of.key, of.budget), spelling),
                        (in_json, canonical(spelling)[1:-1]),
                    )
                    for column in columns
                )
            )


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
    """Reads the selected events in their order, after one number and before another."""
    wanted = select(events).where(
        events.c.sequence > after, *which.conditions(connection.dialect.name)
    )
    if before is not None:
        wanted = wanted.where(events.c.sequence < before)
    order = events.c.sequence.desc() if newest_first else events.c.sequence
    found = connection.execute(wanted.order_by(order).limit(limit)).all()
    return [Entry(*row) for row in found]
