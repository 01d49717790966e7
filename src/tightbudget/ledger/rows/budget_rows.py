"""Rows of budgets as values: balances, parts, blocks and declared runs."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Row,
    bindparam,
    func,
    select,
)

from tightbudget.ledger.rows.selection import FEW, NAMES, among, chunks, is_few, truth
from tightbudget.ledger.store.driver import execute
from tightbudget.ledger.store.schema import budgets, steps
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.pricing import BudgetRule
from tightbudget.promises.kinds import rule_of
from tightbudget.promises.kinds.blocks import BLOCK
from tightbudget.promises.seen import Seen
from tightbudget.promises.units import NOTHING, Units


class Balance(NamedTuple):
    """A budget as it is stored; a tuple, since ten thousand of them are read at once.

    Attributes:
        id: the number of the event that has opened it.
        name: the budget's name.
        kind: the kind of the budget.
        parameters: the kind's parameters as one text.
        parent: the ``id`` of the budget that it is a part of, or None.
        root: the ``id`` of the outermost budget around it, which may be itself.
        closed: says whether it was closed.
        cap: the most that spent and held may come to.
        spent: the units of settled and forfeited runs, and of parts that are closed.
        held: the units that open reservations and open parts hold.
        saved: the units by which worst cases would have cost more; delta is always 0.
    """

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
        return Balance(
            id=id,
            name=name,
            kind=kind,
            parameters=parameters,
            parent=None if whole is None else whole.id,
            root=id if whole is None else whole.root,
            closed=False,
            cap=cap,
            spent=spent,
            held=NOTHING,
            saved=NOTHING,
        )

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
            epsilon=self.cap.epsilon - self.spent.epsilon - self.held.epsilon,
            delta=self.cap.delta - self.spent.delta - self.held.delta,
        )


@dataclass(frozen=True, kw_only=True)
class StepOfPlan:
    """The runs of one step of a plan.

    Attributes:
        times: the number of runs that the plan has declared.
        used: the number of those that were reserved.
    """

    times: int
    used: int

    @property
    def left(self) -> int:
        """The number of runs that may still be reserved."""
        return self.times - self.used


_BALANCE = select(budgets).where(budgets.c.name == bindparam("name"))


_BALANCES = select(budgets).order_by(budgets.c.id)


_NAMED = {
    dialect: select(budgets).where(budgets.c.name.in_(names)) for dialect, names in NAMES.items()
}


_PARTS = select(budgets.c.cap_epsilon, budgets.c.name).where(
    budgets.c.parent == bindparam("of"), budgets.c.closed == 0
)


_PARENT = select(budgets).where(budgets.c.id == bindparam("id"))


_WHOLE = budgets.alias("whole")


def find_balance(connection: Connection, name: str) -> Balance | None:
    """Returns the budget of this name, or None."""
    row = execute(connection, _BALANCE, name=name).one_or_none()
    return None if row is None else balance_of_row(row)


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
    return {row.name: balance_of_row(row) for row in rows}


def parents_of(connection: Connection, children: Sequence[Balance]) -> dict[int, int | None]:
    """Returns for each budget around these, at any depth, the budget that it is a part of.

    One statement is executed for each level of parts, however many budgets there are.
    """
    around: dict[int, int | None] = {}
    level = {child.parent for child in children} - {None}
    while level:
        rows: list[Row[Any]] = []
        for few in chunks(sorted(id for id in level if id is not None)):
            wanted = select(budgets.c.id, budgets.c.parent).where(budgets.c.id.in_(few))
            rows.extend(connection.execute(wanted))
        around.update((row.id, row.parent) for row in rows)
        level = {row.parent for row in rows} - {None, *around}
    return around


def parent_of(connection: Connection, child: Balance) -> Balance | None:
    """Returns the budget that another one is a part of, or None."""
    if child.parent is None:
        return None
    return balance_of_row(execute(connection, _PARENT, id=child.parent).one())


def balances(connection: Connection) -> Iterator[Balance]:
    """Reads all budgets in the order in which they were opened: parents first."""
    return map(balance_of_row, execute(connection, _BALANCES))


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
    few = is_few(seen)
    if few:
        wanted = wanted.limit(limit)
        wanted = wanted if seen is None else wanted.where(among(budgets.c.name, seen))
    with connection.execute(wanted) as found:
        listed = (row for row in found if few or seen is None or row.name in seen)
        return [(balance_of_row(row), row.whole) for row in itertools.islice(listed, limit)]


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
        own = (balance_of_row(row) for row in found if row.name.startswith(beginning))
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
    that is closed is left out: the budget's spent amount has its charges.

    Args:
        connection: a view of the ledger.
        of: the ``id`` of each budget.

    Returns:
        the sum for each ``id`` that has open parts.
    """
    spent = budgets.c.spent_epsilon, budgets.c.spent_delta
    is_open = budgets.c.closed == 0
    few = len(of) <= FEW
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


def steps_of(connection: Connection, plan: Balance) -> dict[str, StepOfPlan]:
    """Reads the steps of a plan, by their canonical descriptions."""
    return steps_of_each(connection, [plan]).get(plan.id, {})


def steps_of_each(
    connection: Connection, plans: Sequence[Balance]
) -> dict[int, dict[str, StepOfPlan]]:
    """Reads the steps of each of these plans, by the plan's ``id``; see :func:`steps_of`."""
    found: dict[int, dict[str, StepOfPlan]] = {}
    for few in chunks([plan.id for plan in plans]):
        for row in connection.execute(select(steps).where(steps.c.budget.in_(few))):
            found.setdefault(row.budget, {})[row.step] = StepOfPlan(times=row.times, used=row.used)
    return found


# ten thousand budgets of one run have few different amounts
_units = functools.lru_cache(maxsize=1_000)(Units)


def balance_of_row(row: Sequence[Any]) -> Balance:
    """Reads a row that begins with the columns of ``budgets``, in their order."""
    (
        id, name, kind, parameters, parent, root, closed, cap_epsilon, cap_delta,
        spent_epsilon, spent_delta, held_epsilon, held_delta, saved_epsilon, *_,
    ) = row  # fmt: skip
    return Balance(
        id=id,
        name=name,
        kind=kind,
        parameters=parameters,
        parent=parent,
        root=root,
        closed=truth(closed),
        cap=_units(cap_epsilon, cap_delta),
        spent=_units(spent_epsilon, spent_delta),
        held=_units(held_epsilon, held_delta),
        saved=_units(saved_epsilon, 0),
    )


def row_of_balance(balance: Balance) -> dict[str, Any]:
    """Writes the row of ``budgets``, by its columns."""
    return {
        "id": balance.id,
        "name": balance.name,
        "kind": balance.kind,
        "parameters": balance.parameters,
        "parent": balance.parent,
        "root": balance.root,
        "closed": int(balance.closed),  # a database without truth values has 0 and 1
        "cap_epsilon": balance.cap.epsilon,
        "cap_delta": balance.cap.delta,
        "spent_epsilon": balance.spent.epsilon,
        "spent_delta": balance.spent.delta,
        "held_epsilon": balance.held.epsilon,
        "held_delta": balance.held.delta,
        "saved_epsilon": balance.saved.epsilon,
    }
