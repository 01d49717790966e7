"""The history of a ledger played again: the state that its events lead to.

This is a second reading of the protocol, which shares no arithmetic with the acts: balances and
states are computed from the events alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tightbudget.errors import LedgerCorruptError
from tightbudget.promises.audited import AuditRecord
from tightbudget.promises.chain import BEGINNING, Entry, canonical, digest, follow
from tightbudget.promises.kinds import KINDS
from tightbudget.promises.stored_words import OPEN_STATES, EventKind, ReservationState

_LONGEST = 300  # characters of an exception that are shown: its text may be any that is stored


@dataclass(slots=True, kw_only=True)
class ReplayedBudget:
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
class ReplayedRun:
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
class ReplayedToken:
    """An access token as the history has it: its rights, and the time of its end."""

    said: dict[str, object]
    revoked: str | None = None


class ReplayedLedger:
    """The state of a ledger after the events that were played so far."""

    def __init__(self) -> None:
        self.head = BEGINNING
        self.budgets: dict[str, ReplayedBudget] = {}
        self.runs: dict[str, ReplayedRun] = {}
        self.tokens: dict[str, ReplayedToken] = {}
        self.moved = False
        self._ended: list[str] = []

    def forget_ended(self) -> dict[str, ReplayedRun]:
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
        except LedgerCorruptError:
            raise
        except Exception as error:  # the details may be any text that somebody has written there
            raise LedgerCorruptError(
                f"event {entry.sequence} ({entry.kind}) makes no sense: {shortened(error)}"
            ) from error

    def _check_limits(self, entry: Entry, balance: ReplayedBudget) -> None:
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
        """Makes a budget; some kinds are charged whole from the beginning."""
        said = json.loads(entry.details)
        cap = [entry.epsilon, entry.delta]
        if entry.budget in self.budgets:
            raise ValueError("opened before")
        self.budgets[_name(entry)] = ReplayedBudget(
            row=entry.sequence,
            kind=said["kind"],
            parameters=canonical(said["parameters"]),
            parent=said["parent"],
            cap=cap,
            spent=list(cap) if KINDS[said["kind"]].charged_whole else [0, 0],
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
            self.runs[key] = ReplayedRun(
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
        self.runs[key] = ReplayedRun(
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
        self.tokens[said["id"]] = ReplayedToken(_fixed(said))

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

    def audit(self, entry: Entry) -> None:
        """Notes nothing: an audit changes no balance, and needs no reservation."""
        AuditRecord.of_details(json.loads(entry.details))
        _key(entry), _name(entry)
        if (entry.epsilon, entry.delta, entry.cell) != (0, 0, None):
            raise ValueError("an audit with an amount")

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
_REPLAY: Mapping[str, Callable[[ReplayedLedger, Entry], None]] = {
    EventKind.OPENED: ReplayedLedger.open,
    EventKind.LENT: ReplayedLedger.lend,
    EventKind.RETURNED: ReplayedLedger.take_back,
    EventKind.CAPPED: ReplayedLedger.cap,
    EventKind.CORRECTED: ReplayedLedger.correct,
    EventKind.CLOSED: ReplayedLedger.close,
    EventKind.RESERVED: ReplayedLedger.reserve,
    EventKind.REFUSED: ReplayedLedger.refuse,
    EventKind.STARTED: ReplayedLedger.start,
    EventKind.SETTLED: ReplayedLedger.settle,
    EventKind.FORFEITED: ReplayedLedger.forfeit,
    EventKind.VOID: ReplayedLedger.free,
    EventKind.EXPIRED: ReplayedLedger.free,
    EventKind.TOKEN_CREATED: ReplayedLedger.create_token,
    EventKind.TOKEN_REVOKED: ReplayedLedger.revoke_token,
    EventKind.MOVED: ReplayedLedger.leave,
    EventKind.ARRIVED: ReplayedLedger.arrive,
    EventKind.AUDITED: ReplayedLedger.audit,
}


def shortened(error: object) -> str:
    """Writes an exception down, of a long one the beginning."""
    said = repr(error)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


def _fixed(said: dict[str, object]) -> dict[str, object]:
    """Returns an event's details without its author and reason, which are in no row."""
    return {name: value for name, value in said.items() if name not in ("by", "reason")}


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
