"""Is a ledger what its history says? The whole history is played again, and compared.

This is a second reading of the protocol, which shares no arithmetic with the acts: balances
and states are computed from the events alone, and then held against the rows.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection, Table, func, select, text

from tightbudget.errors import LedgerCorruptError
from tightbudget.ledger import queries
from tightbudget.ledger.chain import BEGINNING, Entry, Head, canonical, digest, follow
from tightbudget.ledger.pricing import rule_of
from tightbudget.ledger.queries import Balance, Reservation
from tightbudget.ledger.schema import charges, events, steps
from tightbudget.ledger.shape import check_shape
from tightbudget.ledger.transactions import runs_of
from tightbudget.ledger.units import Units
from tightbudget.output_dp.guarantee import cell_from_json
from tightbudget.output_dp.pricing import PlanRule

__all__ = ["Verification", "check_head", "verify"]

_PAGE = 10_000


@dataclass(frozen=True)
class Verification:
    """What was checked and found to be right.

    Attributes:
        head: how far the history goes.
        budgets, reservations: how many of them were compared.
        tokens: how many access tokens were compared; None where the role of this connection
            may not read them.
    """

    head: Head
    budgets: int
    reservations: int
    tokens: int | None


@dataclass(slots=True)
class _Budget:
    """A budget as the history has it: pairs of epsilon and delta, in units."""

    row: int
    kind: str
    parameters: str
    parent: str | None
    cap: list[int]
    spent: list[int]
    held: list[int]
    saved: int = 0
    closed: bool = False
    parts: dict[str, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Run:
    """A reservation as the history has it."""

    row: int
    digest: str
    interactive: bool
    told: str | None
    state: str
    started: int | None = None
    token: str | None = None
    cell: str | None = None
    granted: dict[str, tuple[int, int]] = field(default_factory=dict)
    cost: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Token:
    """An access token as the history has it: what it may do, and when it was revoked."""

    said: dict[str, object]
    revoked: str | None = None


class _History:
    """Everything that the events say, played in their order."""

    def __init__(self) -> None:
        self.head = BEGINNING
        self.budgets: dict[str, _Budget] = {}
        self.runs: dict[str, _Run] = {}
        self.tokens: dict[str, _Token] = {}
        self.moved = False

    def add(self, entry: Entry) -> None:
        self.head = follow(self.head, entry)
        if self.moved and entry.kind != "arrived":
            raise LedgerCorruptError(f"event {entry.sequence} is later than the ledger's move")
        try:
            getattr(self, f"_{entry.kind}")(entry)
            if entry.budget is not None:
                self._check_limits(entry, self.budgets[entry.budget])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LedgerCorruptError(
                f"event {entry.sequence} ({entry.kind}) makes no sense: {error!r}"
            ) from error

    def _check_limits(self, entry: Entry, balance: _Budget) -> None:
        for i in (0, 1):
            if not 0 <= balance.spent[i] <= balance.spent[i] + balance.held[i] <= balance.cap[i]:
                raise LedgerCorruptError(
                    f"event {entry.sequence} takes more from {entry.budget!r} than its cap"
                )

    def _moved(self, entry: Entry) -> None:
        self.moved = True

    def _arrived(self, entry: Entry) -> None:
        if not self.moved:
            raise ValueError("it had not moved")
        self.moved = False

    def _opened(self, entry: Entry) -> None:
        said = json.loads(entry.details)
        cap = [entry.epsilon, entry.delta]
        if entry.budget in self.budgets:
            raise ValueError("opened before")
        self.budgets[_name(entry)] = _Budget(
            *(entry.sequence, said["kind"], canonical(said["parameters"]), said["parent"], cap),
            spent=list(cap) if said["kind"] == "plan" else [0, 0],
            held=[0, 0],
        )

    def _lent(self, entry: Entry) -> None:
        part, whole = json.loads(entry.details)["part"], self.budgets[_name(entry)]
        before, now = whole.parts.get(part, [0, 0]), [entry.epsilon, entry.delta]
        _add(whole.held, (now[0] - before[0], now[1] - before[1]))
        _add(whole.spent, (0, max(0, before[1] - now[1])))  # delta does not come back
        whole.parts[part] = now

    def _returned(self, entry: Entry) -> None:
        said, whole = json.loads(entry.details), self.budgets[_name(entry)]
        part, lent = self.budgets[said["part"]], whole.parts.pop(said["part"])
        cost = (part.spent[0], lent[1])
        if not part.closed or cost != (entry.epsilon, entry.delta) or said["saved"] != part.saved:
            raise ValueError("not what the part has cost")
        _add(whole.held, (-lent[0], -lent[1]))
        _add(whole.spent, cost)
        whole.saved += part.saved

    def _capped(self, entry: Entry) -> None:
        budget = self.budgets[_name(entry)]
        budget.cap = [entry.epsilon, entry.delta]
        budget.parameters = canonical(json.loads(entry.details)["parameters"])

    def _corrected(self, entry: Entry) -> None:
        _add(self.budgets[_name(entry)].spent, (entry.epsilon, entry.delta))

    def _closed(self, entry: Entry) -> None:
        self.budgets[_name(entry)].closed = True

    def _reserved(self, entry: Entry) -> None:
        said, key = json.loads(entry.details), _key(entry)
        if key not in self.runs:
            self.runs[key] = _Run(
                *(entry.sequence, said["digest"], said["interactive"], said["told"], "reserved")
            )
        run, name = self.runs[key], _name(entry)
        if run.state != "reserved" or name in run.granted or self.budgets[name].closed:
            raise ValueError("reserved before")
        run.granted[name] = (entry.epsilon, entry.delta)
        _add(self.budgets[name].held, run.granted[name])

    def _refused(self, entry: Entry) -> None:
        said, key = json.loads(entry.details), _key(entry)
        if key in self.runs:
            raise ValueError("known before")
        self.runs[key] = _Run(
            entry.sequence, said["digest"], said["interactive"], said["message"], "refused"
        )

    def _started(self, entry: Entry) -> None:
        run, said = self.runs[_key(entry)], json.loads(entry.details)
        if run.state == "reserved":
            run.state, run.started = "started", entry.sequence
            # before version 0004 the token was this number
            run.token = said.get("token_sha256", digest(str(entry.sequence)))
        elif run.state != "started" or _name(entry) not in run.granted:
            raise ValueError("started before")
        elif said.get("token_sha256", run.token) != run.token:
            raise ValueError("another token")

    def _token_created(self, entry: Entry) -> None:
        said = json.loads(entry.details)
        if said["id"] in self.tokens:
            raise ValueError("created before")
        self.tokens[said["id"]] = _Token(_fixed(said))

    def _token_revoked(self, entry: Entry) -> None:
        said = json.loads(entry.details)
        token = self.tokens[said["id"]]
        if token.revoked is not None:
            raise ValueError("revoked before")
        token.revoked = said["revoked"]

    def _settled(self, entry: Entry) -> None:
        held = self._end(entry, "settled", ("started", "settled"))
        self.budgets[_name(entry)].saved += held[0] - entry.epsilon
        if entry.epsilon > held[0] or entry.delta != held[1]:
            raise ValueError("more than was held, or less delta")

    def _forfeited(self, entry: Entry) -> None:
        held = self._end(entry, "forfeited", ("reserved", "started", "forfeited"))
        if held != (entry.epsilon, entry.delta):
            raise ValueError("not the dearest price")

    def _void(self, entry: Entry) -> None:
        self._end(entry, "void", ("reserved", "void"))
        if (entry.epsilon, entry.delta) != (0, 0):
            raise ValueError("a charge for what never ran")

    _expired = _void

    def _end(self, entry: Entry, state: str, before: tuple[str, ...]) -> tuple[int, int]:
        """One line of an end: what was held there becomes what it has cost."""
        run, name = self.runs[_key(entry)], _name(entry)
        if run.state not in before or name in run.cost:
            raise ValueError(f"it is {run.state}")
        held, cost = run.granted[name], (entry.epsilon, entry.delta)
        run.state, run.cell, run.cost[name] = state, entry.cell, cost
        _add(self.budgets[name].held, (-held[0], -held[1]))
        _add(self.budgets[name].spent, cost)
        return held


def verify(
    connection: Connection, progress: Callable[[Iterable[int]], Iterable[int]]
) -> Verification:
    """Plays the history, and compares it with the rows, in one unchanging view.

    Raises:
        LedgerCorruptError: says where they first differ.
    """
    try:
        return _verified(connection, progress)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LedgerCorruptError(f"a row makes no sense: {error!r}") from error


def _verified(
    connection: Connection, progress: Callable[[Iterable[int]], Iterable[int]]
) -> Verification:
    check_shape(connection)
    history = _History()
    count = _count(connection, events)
    for after in progress(range(0, count, _PAGE)):
        for entry in queries.entries(connection, after=after, limit=_PAGE):
            history.add(entry)
    if history.head != queries.head(connection):
        raise LedgerCorruptError(f"event {history.head.sequence + 1} is missing")
    if count != history.head.sequence:  # their numbers are below 1, and no list shows them
        raise LedgerCorruptError(f"{count - history.head.sequence} events are before the first")
    used = _compare_reservations(connection, history)
    _compare_budgets(connection, history, used)
    tokens = _compare_tokens(connection, history)
    return Verification(history.head, len(history.budgets), len(history.runs), tokens)


def check_head(connection: Connection, head: Head) -> None:
    """Whether the history went on from an exported head.

    Raises:
        LedgerCorruptError: it was set back, or went another way.
    """
    now = queries.head(connection)
    if now.sequence < head.sequence:
        raise LedgerCorruptError(
            f"{head.sequence - now.sequence} events are missing: this is an earlier state of the"
            " ledger, such as a restored backup"
        )
    entry = queries.entry(connection, head.sequence)
    found = BEGINNING if entry is None else Head(entry.sequence, entry.hash)
    if found != head:
        raise LedgerCorruptError(
            f"event {head.sequence} is another one: this ledger and the one that the head was"
            " exported from are copies of which both were used, or one was changed"
        )


def _compare_reservations(connection: Connection, history: _History) -> dict[tuple[str, str], int]:
    """Row by row; how often each step of each plan was reserved."""
    seen = lines = 0
    used: dict[tuple[str, str], int] = {}
    with contextlib.closing(queries.reservations_in_order(connection)) as reservations:
        for found in reservations:
            run = history.runs.get(found.key)
            if run is None or not _agree(found, run):
                raise LedgerCorruptError(
                    f"the reservation {found.key!r} is not what the history says it is"
                )
            _check_prices(found, run)
            for charge in found.charges:
                if isinstance(charge.rule, PlanRule) and found.state != "void":
                    for step, runs in runs_of(found.guarantee).items():
                        used[charge.name, step] = used.get((charge.name, step), 0) + runs
            seen, lines = seen + 1, lines + len(found.charges)
    if seen != len(history.runs):
        raise LedgerCorruptError(f"{len(history.runs) - seen} reservations are missing")
    if lines != _count(connection, charges):
        raise LedgerCorruptError("there are charges that belong to no reservation")
    return used


def _agree(found: Reservation, run: _Run) -> bool:
    said = (
        *(run.row, run.digest, run.interactive, run.told),
        *(run.state, run.started, run.token, run.cell),
    )
    shown = (
        *(found.id, found.digest, found.interactive, found.told),
        *(found.state, found.started, found.token, found.cell),
    )
    taken = {charge.name: tuple(charge.units) for charge in found.charges}
    return said == shown and taken == run.granted | run.cost and digest(found.body) == run.digest


def _check_prices(found: Reservation, run: _Run) -> None:
    """It holds and costs what its stored guarantee says, also where the chain is right."""
    for charge in found.charges:
        asked = Units.charged(charge.rule.cost(found.guarantee, None))
        granted = Units(*run.granted[charge.name])
        cut = run.told is not None and granted.fits(asked) and asked.nearly_fits(granted)
        if granted != asked and not cut:
            raise LedgerCorruptError(f"{found.key!r} held another amount than its guarantee's")
        if found.cell is not None:
            price = Units.charged(charge.rule.cost(found.guarantee, cell_from_json(found.cell)))
            if charge.units.epsilon != min(price.epsilon, granted.epsilon):
                raise LedgerCorruptError(f"{found.key!r} was settled at another price than its own")


def _compare_budgets(
    connection: Connection, history: _History, used: dict[tuple[str, str], int]
) -> None:
    seen: dict[int, Balance] = {}
    declared = 0
    for found in queries.balances(connection):
        whole = None if found.parent is None else seen.get(found.parent)
        seen[found.id] = found
        budget = history.budgets.get(found.name)
        said = budget and (
            *(budget.row, budget.kind, budget.parameters, budget.parent, budget.closed),
            *(budget.cap, budget.spent, budget.held, budget.saved),
        )
        shown = (
            *(found.id, found.kind, found.parameters, whole and whole.name, found.closed),
            *(list(found.cap), list(found.spent), list(found.held), found.saved.epsilon),
        )
        rooted = found.root == (whole.root if whole else found.id)
        if said != shown or not rooted or (found.parent is None) != (whole is None):
            raise LedgerCorruptError(f"the budget {found.name!r} is not what the history says")
        _compare_steps(connection, found, used)
        declared += len(runs_of(found.rule.plan)) if isinstance(found.rule, PlanRule) else 0
    if len(seen) != len(history.budgets):
        raise LedgerCorruptError(f"{len(history.budgets) - len(seen)} budgets are missing")
    if declared != _count(connection, steps):
        raise LedgerCorruptError("there are steps that belong to no plan")


def _compare_steps(
    connection: Connection, found: Balance, used: dict[tuple[str, str], int]
) -> None:
    rule = rule_of(found.kind, found.parameters)
    plan = runs_of(rule.plan) if isinstance(rule, PlanRule) else {}
    said = {step: (times, used.get((found.name, step), 0)) for step, times in plan.items()}
    if queries.declared(connection, found) != said:
        raise LedgerCorruptError(f"the steps of {found.name!r} are not what the history says")


def _compare_tokens(connection: Connection, history: _History) -> int | None:
    """Row by row; how many, or None where they may not be read."""
    if connection.dialect.name == "postgresql" and not connection.scalar(
        text("SELECT has_table_privilege('tokens', 'SELECT')")
    ):
        return None
    seen = 0
    for row in queries.tokens_in_order(connection):
        known = history.tokens.get(row["id"])
        if known is None and history.moved:
            continue  # of a ledger that was sealed before tokens had events: none can be added
        said = None if known is None else (known.said, known.revoked)
        if said != (queries.said_of_token(row), row["revoked"]):
            raise LedgerCorruptError(
                f"the access token {row['id']!r} is not what the history says it is"
            )
        seen += 1
    if seen != len(history.tokens):
        raise LedgerCorruptError(f"{len(history.tokens) - seen} access tokens are missing")
    return seen


def _fixed(said: dict[str, object]) -> dict[str, object]:
    """The part of an event that describes an access token: not who created it, or why."""
    return {name: value for name, value in said.items() if name not in ("by", "reason")}


def _count(connection: Connection, table: Table) -> int:
    return connection.scalar(select(func.count()).select_from(table)) or 0


def _name(entry: Entry) -> str:
    if entry.budget is None:
        raise ValueError("no budget")
    return entry.budget


def _key(entry: Entry) -> str:
    if entry.key is None:
        raise ValueError("no key")
    return entry.key


def _add(balance: list[int], change: tuple[int, int]) -> None:
    balance[0] += change[0]
    balance[1] += change[1]
