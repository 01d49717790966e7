"""The model of the account in proofs/account.v, word for word, in exact rationals.

Each function here has the name of a definition there and does what it does; nothing comes from the
ledger. ``step`` returns None where the model refuses. The theorems about balances are
functions that assert them of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import NamedTuple

SLACK = 1 + Fraction(1, 10**9)


class Amount(NamedTuple):
    """A price, a balance or a cap."""

    epsilon: Fraction
    delta: Fraction

    def combined(self, other: Amount, f: Callable[[Fraction, Fraction], Fraction]) -> Amount:
        return Amount(f(self.epsilon, other.epsilon), f(self.delta, other.delta))


ZERO = Amount(Fraction(0), Fraction(0))


def plus(a: Amount, b: Amount) -> Amount:
    return a.combined(b, lambda x, y: x + y)


def minus(a: Amount, b: Amount) -> Amount:
    return a.combined(b, lambda x, y: x - y)


def fits(a: Amount, b: Amount) -> bool:
    return a.epsilon <= b.epsilon and a.delta <= b.delta


class Guarantee(NamedTuple):
    """The cells that are listed with their prices, a price for every other cell, one delta."""

    listed: Mapping[str, Fraction]
    supremum: Fraction
    delta: Fraction

    def cost(self, cell: str | None) -> Amount:
        """The price of a cell; None stands for the worst case."""
        price = self.supremum if cell is None else self.listed.get(cell, self.supremum)
        return Amount(price, self.delta)


class HoldState(Enum):
    RESERVED = "reserved"
    STARTED = "started"
    SETTLED = "settled"
    FORFEITED = "forfeited"
    VOIDED = "void"


class Phase(Enum):
    UNOPENED = "unopened"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True)
class Hold:
    guarantee: Guarantee
    payers: frozenset[str]
    status: HoldState
    charged: Mapping[str, Amount]  # 0 in every budget that is not listed
    seen: str | None = None  # the cell of the output, which the caller alone knows

    def charge(self, cell: str | None, budget: str) -> Amount:
        return self.guarantee.cost(cell) if budget in self.payers else ZERO

    @property
    def is_open(self) -> bool:
        return self.status in (HoldState.RESERVED, HoldState.STARTED)


class OpenBudget(NamedTuple):
    budget: str
    cap: Amount


class Reserve(NamedTuple):
    guarantee: Guarantee
    payers: frozenset[str]


class Start(NamedTuple):
    hold: int


class RunIt(NamedTuple):
    hold: int
    cell: str  # that the output is in


class Settle(NamedTuple):
    hold: int
    cell: str


class Forfeit(NamedTuple):
    hold: int


class Void(NamedTuple):
    hold: int


class Close(NamedTuple):
    budget: str
    delta_stays: bool = True


class ChangeCap(NamedTuple):
    budget: str
    cap: Amount


class Correct(NamedTuple):
    budget: str
    more: Amount


Move = OpenBudget | Reserve | Start | RunIt | Settle | Forfeit | Void | Close | ChangeCap | Correct


@dataclass(frozen=True)
class State:
    """``size`` of a budget: its cap; once it is closed, what its whole keeps for it."""

    parent: Mapping[str, str | None]
    size: Mapping[str, Amount]
    spent: Mapping[str, Amount]
    held: Mapping[str, Amount]
    phase: Mapping[str, Phase]
    holds: tuple[Hold, ...] = ()

    def left(self, budget: str) -> Amount:
        return minus(minus(self.size[budget], self.spent[budget]), self.held[budget])

    def is_open(self, budget: str) -> bool:
        return self.phase[budget] is Phase.OPEN

    def children(self, budget: str) -> list[str]:
        return [name for name, whole in self.parent.items() if whole == budget]


def nothing(parent: Mapping[str, str | None]) -> State:
    """The state before anything was opened."""
    none = dict.fromkeys(parent, ZERO)
    return State(parent, none, none, none, dict.fromkeys(parent, Phase.UNOPENED))


# ------------------------------------------------------------------------------ the acts


def step(s: State, move: Move) -> State | None:
    """The state after an act, or None if it is refused."""
    match move:
        case OpenBudget(b, cap):
            return open_budget(s, b, cap)
        case Reserve(g, payers):
            return reserve(s, g, payers)
        case Start(i):
            return start(s, i)
        case RunIt(i, cell):
            return run(s, i, cell)
        case Settle(i, cell):
            return settle(s, i, cell)
        case Forfeit(i):
            return forfeit(s, i)
        case Void(i):
            return void(s, i)
        case Close(b, delta_stays):
            return close(s, b, delta_stays)
        case ChangeCap(b, cap):
            return change_cap(s, b, cap)
        case Correct(b, more):
            return correct(s, b, more)


def reserve(s: State, g: Guarantee, payers: frozenset[str]) -> State | None:
    asked = g.cost(None)
    for b in payers:
        slack_left = Amount(*(SLACK * x for x in s.left(b)))
        if not (s.is_open(b) and fits(asked, slack_left)):
            return None
    granted = {b: asked.combined(s.left(b), min) for b in payers}
    held = {b: plus(s.held[b], granted.get(b, ZERO)) for b in s.held}
    return replace(s, held=held, holds=(*s.holds, Hold(g, payers, HoldState.RESERVED, granted)))


def start(s: State, i: int) -> State | None:
    if s.holds[i].status is not HoldState.RESERVED:
        return None
    return with_hold(s, i, replace(s.holds[i], status=HoldState.STARTED))


def run(s: State, i: int, cell: str) -> State | None:
    hold = s.holds[i]
    takes_worst = hold.is_open or hold.status is HoldState.FORFEITED
    if not takes_worst or hold.seen is not None:
        return None
    return with_hold(s, i, replace(hold, seen=cell))


def settle(s: State, i: int, cell: str) -> State | None:
    hold = s.holds[i]
    if not hold.is_open or hold.seen not in (None, cell):
        return None
    to = {
        b: Amount(min(hold.charge(cell, b).epsilon, held.epsilon), held.delta)
        for b, held in hold.charged.items()
    }
    return end(s, i, HoldState.SETTLED, to)


def forfeit(s: State, i: int) -> State | None:
    return end(s, i, HoldState.FORFEITED, s.holds[i].charged) if s.holds[i].is_open else None


def void(s: State, i: int) -> State | None:
    hold = s.holds[i]
    if hold.status is not HoldState.RESERVED or hold.seen is not None:
        return None
    return end(s, i, HoldState.VOIDED, dict.fromkeys(hold.charged, ZERO))


def end(s: State, i: int, to: HoldState, charge: Mapping[str, Amount]) -> State:
    hold = s.holds[i]
    ended = with_hold(s, i, replace(hold, status=to, charged=charge))
    return replace(
        ended,
        spent={b: plus(s.spent[b], charge.get(b, ZERO)) for b in s.spent},
        held={b: minus(s.held[b], hold.charged.get(b, ZERO)) for b in s.held},
    )


def with_hold(s: State, i: int, hold: Hold) -> State:
    return replace(s, holds=(*s.holds[:i], hold, *s.holds[i + 1 :]))


def open_budget(s: State, b: str, cap: Amount) -> State | None:
    if s.phase[b] is not Phase.UNOPENED or not fits(ZERO, cap) or not parent_affords(s, b, cap):
        return None
    return replace(
        s,
        size={**s.size, b: cap},
        held=at_parent(s, b, s.held, cap),
        phase={**s.phase, b: Phase.OPEN},
    )


def close(s: State, b: str, delta_stays: bool) -> State | None:
    runs = any(hold.is_open and b in hold.payers for hold in s.holds)
    if not s.is_open(b) or runs or any(map(s.is_open, s.children(b))):
        return None
    kept = Amount(s.spent[b].epsilon, (s.size if delta_stays else s.spent)[b].delta)
    return replace(
        s,
        size={**s.size, b: kept},
        spent=at_parent(s, b, s.spent, kept),
        held=at_parent(s, b, s.held, minus(ZERO, s.size[b])),
        phase={**s.phase, b: Phase.CLOSED},
    )


def change_cap(s: State, b: str, cap: Amount) -> State | None:
    more = minus(cap, s.size[b])
    growth = more.combined(ZERO, max)
    delta_gone = Amount(Fraction(0), max(Fraction(0), -more.delta))
    if not s.is_open(b) or not fits(plus(s.spent[b], s.held[b]), cap):
        return None
    if not parent_affords(s, b, growth):
        return None
    return replace(
        s,
        size={**s.size, b: cap},
        spent=at_parent(s, b, s.spent, delta_gone),
        held=at_parent(s, b, s.held, more),
    )


def correct(s: State, b: str, more: Amount) -> State | None:
    if not (s.is_open(b) and fits(ZERO, more) and fits(more, s.left(b))):
        return None
    return replace(s, spent={**s.spent, b: plus(s.spent[b], more)})


def parent_affords(s: State, b: str, a: Amount) -> bool:
    whole = s.parent[b]
    return whole is None or (s.is_open(whole) and fits(a, s.left(whole)))


def at_parent(s: State, b: str, f: Mapping[str, Amount], a: Amount) -> Mapping[str, Amount]:
    whole = s.parent[b]
    return f if whole is None else {**f, whole: plus(f[whole], a)}


# -------------------------------------------------------------------------- the theorems


def check_theorems(s: State) -> None:
    """Asserts balances, nothing_lost, never_settled and delta_stays_charged of a state."""
    for b in s.parent:
        taken = plus(s.spent[b], s.held[b])
        assert fits(ZERO, s.spent[b])
        assert fits(ZERO, s.held[b])
        assert fits(taken, s.size[b])
        charges = [hold.charged.get(b, ZERO) for hold in s.holds]
        for amount in [*charges, *(s.size[q] for q in s.children(b))]:
            taken = minus(taken, amount)
        assert fits(ZERO, taken), f"{b} has lost something"
    for hold in s.holds:
        for b in hold.payers:
            charged = Amount(*(SLACK * x for x in hold.charged[b]))
            worst = hold.charge(None, b)
            if hold.status not in (HoldState.SETTLED, HoldState.VOIDED):
                assert fits(worst, charged)
            if hold.seen is not None:
                assert worst.delta <= charged.delta
                assert fits(hold.charge(hold.seen, b), charged)
