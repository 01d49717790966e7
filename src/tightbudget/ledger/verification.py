"""Verification: the whole history is played again, and compared with every row.

This is a second reading of the protocol, which shares no arithmetic with the acts: balances
and states are computed from the events alone, and then held against the rows.

The memory that a verification takes is bounded by the budgets, the access tokens, the open
reservations and one page of events. An ended reservation is compared with its rows, counted and
forgotten: a later event cannot use its key unseen, because a second reservation of that key
would need a second row with the key, which the table's constraint refuses, and any other event
finds no reservation. Rows that the history does not know are found by counting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, Table, exists, func, select, text

from tightbudget.errors import LedgerCorruptError
from tightbudget.ledger import queries
from tightbudget.ledger.chain import BEGINNING, Entry, Head, canonical, digest, follow
from tightbudget.ledger.pricing import rule_of
from tightbudget.ledger.queries import Balance, Reservation
from tightbudget.ledger.schema import charges, events, reservations, steps
from tightbudget.ledger.shape import check_shape
from tightbudget.ledger.stored_words import OPEN_STATES, EventKind, ReservationState
from tightbudget.ledger.transactions import runs_of
from tightbudget.ledger.units import Units
from tightbudget.output_dp.guarantee import cell_from_json
from tightbudget.output_dp.pricing import PlanRule

__all__ = ["Verification", "check_head", "verify"]

_PAGE = 10_000  # events that are in memory at once, some megabytes
_AT_ONCE = 500  # reservations that are read at once; the body of each may be a megabyte


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of a verification that has found nothing wrong.

    Attributes:
        head: the end of the history that was played.
        budgets: the number of budgets that were compared.
        reservations: the number of reservations that were compared.
        tokens: the number of access tokens that were compared; None where the role of this
            connection may not read them.
    """

    head: Head
    budgets: int
    reservations: int
    tokens: int | None


@dataclass(slots=True, kw_only=True)
class _ReplayedBudget:
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


@dataclass(slots=True, kw_only=True)
class _ReplayedRun:
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
class _ReplayedToken:
    """An access token as the history has it: its rights, and the time of its end."""

    said: dict[str, object]
    revoked: str | None = None


@dataclass(slots=True, kw_only=True)
class _Compared:
    """The counts of the reservations that were compared with their rows so far.

    Attributes:
        reservations: the number of rows of ``reservations`` that were compared.
        charges: the number of rows of ``charges`` that were compared.
        used: for each plan and step, the number of its runs that were reserved.
    """

    reservations: int = 0
    charges: int = 0
    used: dict[tuple[str, str], int] = field(default_factory=dict)


class _History:
    """The state of a ledger after the events that were played so far."""

    def __init__(self) -> None:
        self.head = BEGINNING
        self.budgets: dict[str, _ReplayedBudget] = {}
        self.runs: dict[str, _ReplayedRun] = {}
        self.tokens: dict[str, _ReplayedToken] = {}
        self.moved = False
        self._ended: list[str] = []

    def forget_ended(self) -> dict[str, _ReplayedRun]:
        """Removes and returns the reservations that have ended in each of their budgets."""
        ended = {key: self.runs.pop(key) for key in self._ended}
        self._ended = []
        return ended

    def add(self, entry: Entry) -> None:
        """Plays the next event.

        Raises:
            LedgerCorruptError: it does not follow from the events before it.
        """
        self.head = follow(self.head, entry)
        if self.moved and entry.kind != EventKind.ARRIVED:
            raise LedgerCorruptError(f"event {entry.sequence} is later than the ledger's move")
        try:
            _REPLAY[entry.kind](self, entry)
            if entry.budget is not None:
                self._check_limits(entry, self.budgets[entry.budget])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # the details, too, may be any text that somebody has written there
            raise LedgerCorruptError(
                f"event {entry.sequence} ({entry.kind}) makes no sense: {error!r}"
            ) from error

    def _check_limits(self, entry: Entry, balance: _ReplayedBudget) -> None:
        """Checks that spent and held are at least 0 and together at most the cap.

        Raises:
            LedgerCorruptError: after this event they are not.
        """
        for i in (0, 1):
            if not 0 <= balance.spent[i] <= balance.spent[i] + balance.held[i] <= balance.cap[i]:
                raise LedgerCorruptError(
                    f"event {entry.sequence} takes more from {entry.budget!r} than its cap"
                )

    def leave(self, entry: Entry) -> None:
        """Seals the ledger."""
        self.moved = True

    def arrive(self, entry: Entry) -> None:
        """Opens the sealed ledger again, in another database."""
        if not self.moved:
            raise ValueError("it had not moved")
        self.moved = False

    def open(self, entry: Entry) -> None:
        """Makes a budget; a plan is charged whole from the beginning."""
        said = json.loads(entry.details)
        cap = [entry.epsilon, entry.delta]
        if entry.budget in self.budgets:
            raise ValueError("opened before")
        self.budgets[_name(entry)] = _ReplayedBudget(
            row=entry.sequence,
            kind=said["kind"],
            parameters=canonical(said["parameters"]),
            parent=said["parent"],
            cap=cap,
            spent=list(cap) if said["kind"] == "plan" else [0, 0],
            held=[0, 0],
        )

    def lend(self, entry: Entry) -> None:
        """Holds the cap of a part, instead of its earlier cap."""
        part, whole = json.loads(entry.details)["part"], self.budgets[_name(entry)]
        before, now = whole.parts.get(part, [0, 0]), [entry.epsilon, entry.delta]
        _add(whole.held, (now[0] - before[0], now[1] - before[1]))
        _add(whole.spent, (0, max(0, before[1] - now[1])))  # delta does not come back
        whole.parts[part] = now

    def take_back(self, entry: Entry) -> None:
        """Charges what a closed part has cost, instead of holding its cap."""
        said, whole = json.loads(entry.details), self.budgets[_name(entry)]
        part, lent = self.budgets[said["part"]], whole.parts.pop(said["part"])
        cost = (part.spent[0], lent[1])
        if not part.closed or cost != (entry.epsilon, entry.delta) or said["saved"] != part.saved:
            raise ValueError("not what the part has cost")
        _add(whole.held, (-lent[0], -lent[1]))
        _add(whole.spent, cost)
        whole.saved += part.saved

    def cap(self, entry: Entry) -> None:
        """Sets another cap and other parameters."""
        budget = self.budgets[_name(entry)]
        budget.cap = [entry.epsilon, entry.delta]
        budget.parameters = canonical(json.loads(entry.details)["parameters"])

    def correct(self, entry: Entry) -> None:
        """Adds a correction to the spent units."""
        _add(self.budgets[_name(entry)].spent, (entry.epsilon, entry.delta))

    def close(self, entry: Entry) -> None:
        """Ends a budget."""
        self.budgets[_name(entry)].closed = True

    def reserve(self, entry: Entry) -> None:
        """Holds the worst-case price of a run in one of its budgets."""
        said, key = json.loads(entry.details), _key(entry)
        if key not in self.runs:
            self.runs[key] = _ReplayedRun(
                row=entry.sequence,
                digest=said["digest"],
                interactive=said["interactive"],
                told=said["told"],
                state=ReservationState.RESERVED,
            )
        run, name = self.runs[key], _name(entry)
        if (
            run.state != ReservationState.RESERVED
            or name in run.granted
            or self.budgets[name].closed
        ):
            raise ValueError("reserved before")
        run.granted[name] = (entry.epsilon, entry.delta)
        _add(self.budgets[name].held, run.granted[name])

    def refuse(self, entry: Entry) -> None:
        """Notes that a key is refused for good."""
        said, key = json.loads(entry.details), _key(entry)
        if key in self.runs:
            raise ValueError("known before")
        self.runs[key] = _ReplayedRun(
            row=entry.sequence,
            digest=said["digest"],
            interactive=said["interactive"],
            told=said["message"],
            state=ReservationState.REFUSED,
        )
        self._ended.append(key)

    def start(self, entry: Entry) -> None:
        """Starts a run; each of its budgets has an event, and the first one's number counts."""
        run, said = self.runs[_key(entry)], json.loads(entry.details)
        if run.state == ReservationState.RESERVED:
            run.state, run.started = ReservationState.STARTED, entry.sequence
            # before version 0004 the token was this number
            run.token = said.get("token_sha256", digest(str(entry.sequence)))
        elif run.state != ReservationState.STARTED or _name(entry) not in run.granted:
            raise ValueError("started before")
        elif said.get("token_sha256", run.token) != run.token:
            raise ValueError("another token")

    def create_token(self, entry: Entry) -> None:
        """Makes an access token."""
        said = json.loads(entry.details)
        if said["id"] in self.tokens:
            raise ValueError("created before")
        self.tokens[said["id"]] = _ReplayedToken(_fixed(said))

    def revoke_token(self, entry: Entry) -> None:
        """Ends an access token."""
        said = json.loads(entry.details)
        token = self.tokens[said["id"]]
        if token.revoked is not None:
            raise ValueError("revoked before")
        token.revoked = said["revoked"]

    def settle(self, entry: Entry) -> None:
        """Charges the price of a run's cell in one of its budgets."""
        held = self._end(entry, after=ReservationState.SETTLED, before=(ReservationState.STARTED,))
        self.budgets[_name(entry)].saved += held[0] - entry.epsilon
        if entry.epsilon > held[0] or entry.delta != held[1]:
            raise ValueError("more than was held, or less delta")

    def forfeit(self, entry: Entry) -> None:
        """Charges the worst-case price of a run in one of its budgets."""
        held = self._end(entry, after=ReservationState.FORFEITED, before=OPEN_STATES)
        if held != (entry.epsilon, entry.delta):
            raise ValueError("not the worst-case price")

    def free(self, entry: Entry) -> None:
        """Frees a run that was not started, in one of its budgets."""
        self._end(entry, after=ReservationState.VOID, before=(ReservationState.RESERVED,))
        if (entry.epsilon, entry.delta) != (0, 0):
            raise ValueError("a charge for what never ran")

    def _end(
        self, entry: Entry, *, after: ReservationState, before: tuple[ReservationState, ...]
    ) -> tuple[int, int]:
        """Ends a run in one of its budgets, and returns the units that it held there.

        Each budget of a run has an event of its own, so from the second one on, the run is in
        the state that it ends in already.
        """
        run, name = self.runs[_key(entry)], _name(entry)
        if run.state not in (*before, after) or name in run.cost:
            raise ValueError(f"it is {run.state}")
        held, cost = run.granted[name], (entry.epsilon, entry.delta)
        run.state, run.cell, run.cost[name] = after, entry.cell, cost
        _add(self.budgets[name].held, (-held[0], -held[1]))
        _add(self.budgets[name].spent, cost)
        if len(run.cost) == len(run.granted):
            self._ended.append(_key(entry))
        return held


# Every kind of event is here: tests compare this table with the enumeration.
_REPLAY: Mapping[str, Callable[[_History, Entry], None]] = {
    EventKind.OPENED: _History.open,
    EventKind.LENT: _History.lend,
    EventKind.RETURNED: _History.take_back,
    EventKind.CAPPED: _History.cap,
    EventKind.CORRECTED: _History.correct,
    EventKind.CLOSED: _History.close,
    EventKind.RESERVED: _History.reserve,
    EventKind.REFUSED: _History.refuse,
    EventKind.STARTED: _History.start,
    EventKind.SETTLED: _History.settle,
    EventKind.FORFEITED: _History.forfeit,
    EventKind.VOID: _History.free,
    EventKind.EXPIRED: _History.free,
    EventKind.TOKEN_CREATED: _History.create_token,
    EventKind.TOKEN_REVOKED: _History.revoke_token,
    EventKind.MOVED: _History.leave,
    EventKind.ARRIVED: _History.arrive,
}


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
    """Plays the history page by page and compares everything with it.

    Raises:
        LedgerCorruptError: something differs.
    """
    check_shape(connection)
    history, compared = _History(), _Compared()
    count = _count(connection, events)
    for after in progress(range(0, count, _PAGE)):
        _compare_reservations(connection, history.forget_ended(), compared)
        for entry in queries.entries(connection, after=after, limit=_PAGE):
            history.add(entry)
    if history.head != queries.head(connection):
        raise LedgerCorruptError(f"event {history.head.sequence + 1} is missing")
    # guard: events-counted
    if count != history.head.sequence:  # their numbers are below 1, and no list shows them
        raise LedgerCorruptError(f"{count - history.head.sequence} events are before the first")
    _compare_reservations(connection, history.runs, compared)
    _check_counts(connection, compared)
    _compare_budgets(connection, history, compared.used)
    tokens = _compare_tokens(connection, history)
    return Verification(
        head=history.head,
        budgets=len(history.budgets),
        reservations=compared.reservations,
        tokens=tokens,
    )


def check_head(connection: Connection, head: Head) -> None:
    """Checks that the history went on from an exported head.

    Raises:
        LedgerCorruptError: it was set back, or went another way.
    """
    now = queries.head(connection)
    if now.sequence < head.sequence:  # guard: heads-fall-back
        missing = head.sequence - now.sequence
        raise LedgerCorruptError(
            f"{missing} {'events are' if missing > 1 else 'event is'} missing: this is an earlier"
            " state of the ledger, such as a restored backup"
        )
    entry = queries.entry(connection, head.sequence)
    found = Head.after(entry)
    if found != head:  # guard: heads-fork
        raise LedgerCorruptError(
            f"event {head.sequence} is another one: this ledger and the one that the head was"
            " exported from are copies of which both were used, or one was changed"
        )


def _compare_reservations(
    connection: Connection, runs: Mapping[str, _ReplayedRun], compared: _Compared
) -> None:
    """Compares the rows of some reservations with the history, and adds them to the counts.

    Raises:
        LedgerCorruptError: one of them is not what the history says, or is missing.
    """
    listed = list(runs.items())
    for first in range(0, len(listed), _AT_ONCE):
        page = listed[first : first + _AT_ONCE]
        numbers = [run.row for _, run in page]
        rows = {found.id: found for found in queries.reservations_numbered(connection, numbers)}
        for key, run in page:
            found = rows.get(run.row)
            if found is None:
                raise LedgerCorruptError(f"the reservation {key!r} is missing")
            if found.key != key or not _agree(found, run):  # guard: reservations-keep-keys
                raise LedgerCorruptError(
                    f"the reservation {found.key!r} is not what the history says it is"
                )
            _check_prices(found, run)
            for charge in found.charges:
                if isinstance(charge.rule, PlanRule) and found.state != ReservationState.VOID:
                    for step, times in runs_of(found.guarantee).items():
                        place = charge.name, step
                        compared.used[place] = compared.used.get(place, 0) + times
            compared.reservations += 1
            compared.charges += len(found.charges)


def _check_counts(connection: Connection, compared: _Compared) -> None:
    """Checks that there are no reservations and charges but those that were compared.

    Raises:
        LedgerCorruptError: there are.
    """
    more = _count(connection, reservations) - compared.reservations
    if more:  # guard: reservations-counted
        made = exists().where(
            events.c.sequence == reservations.c.id,
            events.c.kind.in_([EventKind.RESERVED, EventKind.REFUSED]),
        )
        key = connection.scalar(select(reservations.c.key).where(~made).limit(1))
        raise LedgerCorruptError(
            f"there are {more} reservations that the history does not know"
            if key is None
            else f"the reservation {key!r} is not what the history says it is"
        )
    if compared.charges != _count(connection, charges):
        raise LedgerCorruptError("there are charges that belong to no reservation")


def _agree(found: Reservation, run: _ReplayedRun) -> bool:
    """Says whether a row of ``reservations`` and its charges are what the history says."""
    said = {
        "id": run.row,
        "digest": run.digest,
        "interactive": run.interactive,
        "told": run.told,
        "state": run.state,
        "started": run.started,
        "token": run.token,
        "cell": run.cell,
    }  # guard: run-tokens-replayed
    shown = {name: getattr(found, name) for name in said}
    taken = {charge.name: tuple(charge.units) for charge in found.charges}
    # guard: reservations-replayed
    return said == shown and taken == run.granted | run.cost and digest(found.body) == run.digest


def _check_prices(found: Reservation, run: _ReplayedRun) -> None:
    """Checks that a reservation holds and costs the prices of its stored guarantee.

    A history that was made up from the beginning has right hashes, and wrong prices.

    Raises:
        LedgerCorruptError: a price is another one.
    """
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
    """Compares all budgets, and the steps of plans with how often they were reserved.

    Raises:
        LedgerCorruptError: one of them is not what the history says, or one is missing.
    """
    seen: dict[int, Balance] = {}
    declared = 0
    for found in queries.balances(connection):
        whole = None if found.parent is None else seen.get(found.parent)
        seen[found.id] = found
        budget = history.budgets.get(found.name)
        said = budget and {
            "id": budget.row,
            "kind": budget.kind,
            "parameters": budget.parameters,
            "parent": budget.parent,
            "closed": budget.closed,
            "cap": budget.cap,
            "spent": budget.spent,
            "held": budget.held,
            "saved": budget.saved,
        }
        shown = {
            "id": found.id,
            "kind": found.kind,
            "parameters": found.parameters,
            "parent": whole and whole.name,
            "closed": found.closed,
            "cap": list(found.cap),
            "spent": list(found.spent),
            "held": list(found.held),
            "saved": found.saved.epsilon,
        }
        rooted = found.root == (whole.root if whole else found.id)
        # guard: balances-replayed
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
    """Compares the steps of one plan with its declaration and with what was reserved.

    Raises:
        LedgerCorruptError: they differ.
    """
    rule = rule_of(found.kind, found.parameters)
    plan = runs_of(rule.plan) if isinstance(rule, PlanRule) else {}
    said = {step: (times, used.get((found.name, step), 0)) for step, times in plan.items()}
    if queries.declared(connection, found) != said:
        raise LedgerCorruptError(f"the steps of {found.name!r} are not what the history says")


def _compare_tokens(connection: Connection, history: _History) -> int | None:
    """Compares all access tokens and counts them; None where they may not be read.

    Raises:
        LedgerCorruptError: one of them is not what the history says, or one is missing.
    """
    if connection.dialect.name == "postgresql" and not connection.scalar(
        text("SELECT has_table_privilege('tokens', 'SELECT')")
    ):
        return None
    seen = 0
    for row in queries.tokens_in_order(connection):
        known = history.tokens.get(row["id"])
        if known is None and history.moved:  # guard: access-tokens-have-event
            continue  # of a ledger that was sealed before tokens had events: none can be added
        said = None if known is None else (known.said, known.revoked)
        if said != (queries.said_of_token(row), row["revoked"]):  # guard: access-tokens-unchanged
            raise LedgerCorruptError(
                f"the access token {row['id']!r} is not what the history says it is"
            )
        seen += 1
    if seen != len(history.tokens):  # guard: access-tokens-complete
        raise LedgerCorruptError(f"{len(history.tokens) - seen} access tokens are missing")
    return seen


def _fixed(said: dict[str, object]) -> dict[str, object]:
    """Returns an event's details without its author and reason, which are in no row."""
    return {name: value for name, value in said.items() if name not in ("by", "reason")}


def _count(connection: Connection, table: Table) -> int:
    """Counts the rows of a table."""
    return connection.scalar(select(func.count()).select_from(table)) or 0


def _name(entry: Entry) -> str:
    """Returns the name of an event's budget.

    Raises:
        ValueError: the event has none.
    """
    if entry.budget is None:
        raise ValueError("no budget")
    return entry.budget


def _key(entry: Entry) -> str:
    """Returns the key of an event's reservation.

    Raises:
        ValueError: the event has none.
    """
    if entry.key is None:
        raise ValueError("no key")
    return entry.key


def _add(balance: list[int], change: tuple[int, int]) -> None:
    """Adds epsilon and delta to a balance, in place."""
    balance[0] += change[0]
    balance[1] += change[1]
