"""What a ledger must answer, by the words of its description alone: integers in memory.

No line of this comes from the ledger. It knows no crash, no second process and no rollback;
whatever those do, the ledger must go on answering as this does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.ledger.conformance import Deed, guarantee, number

import tightbudget as tb

UNITS = (10**12, 10**18)  # in one epsilon, in one delta
NOTHING = (0, 0)
BILLION = 10**9
ABOUT_A_RUN = ("start", "settle", "forfeit", "void", "state")

Pair = tuple[int, int]
Place = tuple[str, str]


def charged(g: tb.OutputDP, cell: str | None = None) -> Pair:
    """What a guarantee costs: rounded up."""
    epsilon = g.sup if cell is None else g.price(cell)
    return math.ceil(epsilon * UNITS[0]), math.ceil(g.delta * UNITS[1])


def capped(words: tuple[str, ...]) -> Pair:
    """What a cap grants: rounded down."""
    return math.floor(Fraction(words[0]) * UNITS[0]), math.floor(Fraction(words[1]) * UNITS[1])


def plus(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]


def minus(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] - b[1]


def fits(a: Pair, b: Pair) -> bool:
    return a[0] <= b[0] and a[1] <= b[1]


def granted(asked: Pair, left: Pair) -> Pair | None:
    """What is asked, or all that is left where that is within a billionth; or else nothing."""
    if any(BILLION * a > (BILLION + 1) * b for a, b in zip(asked, left, strict=True)):
        return None
    return min(asked[0], left[0]), min(asked[1], left[1])


@dataclass
class Account:
    name: str
    cap: Pair
    opened: tuple[Any, ...]  # by which words
    parent: Account | None
    spent: Pair = NOTHING
    held: Pair = NOTHING
    saved: Pair = NOTHING
    closed: bool = False

    def is_part_of(self, whole: Account) -> bool:
        parent = self.parent
        return parent is not None and (parent is whole or parent.is_part_of(whole))

    @property
    def left(self) -> Pair:
        return NOTHING if self.closed else minus(minus(self.cap, self.spent), self.held)


@dataclass
class Reservation:
    body: tuple[Any, ...]
    guarantee: tb.OutputDP
    holds: dict[str, Pair]  # what each budget holds for it
    state: str = "reserved"  # started, settled, forfeited, void; or refused
    cell: str | None = None


@dataclass
class Model:
    """A ledger in memory."""

    accounts: dict[str, Account] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    audits: dict[Place, str] = field(default_factory=dict)  # by budget and key
    who: int = 0  # which process is acting
    tokens: set[tuple[int, str]] = field(default_factory=set)  # who has started what

    def act(self, deed: Deed) -> str:
        there = self.reservations.get(deed.name)
        if there and there.state == "refused" and deed.verb in (*ABOUT_A_RUN, "expire"):
            return "too late" if deed.verb == "expire" else "exceeded"
        try:
            answer = getattr(self, f"_{deed.verb}")(deed)
        except KeyError:  # nobody has heard of it
            return "too late" if deed.verb in (*ABOUT_A_RUN, "expire") else "refused"
        return "ok" if answer is None else str(answer)

    def _reopen(self, deed: Deed) -> str:
        return "again"

    def _audit(self, deed: Deed) -> str | None:
        (name,) = deed.budgets
        if name not in self.accounts:
            return "refused"
        known = self.audits.get((name, deed.name))
        if known is None:
            self.audits[name, deed.name] = deed.words[0]
            return None
        return "again" if known == deed.words[0] else "conflict"

    def _verify(self, deed: Deed) -> str:
        return "again"

    def _forget(self, deed: Deed) -> str:
        self.tokens.discard((self.who, deed.name))
        return "again"

    # ------------------------------------------------------------------------- budgets

    def _open(self, deed: Deed) -> str | None:
        opened = (capped(deed.words), deed.budgets)
        if deed.name in self.accounts:
            return "again" if self.accounts[deed.name].opened == opened else "conflict"
        cap = opened[0]
        parent = self.accounts[deed.budgets[0]] if deed.budgets else None
        if parent is not None:
            if parent.closed:
                return "too late"
            if not fits(cap, parent.left):
                return "exceeded"
            parent.held = plus(parent.held, cap)
        self.accounts[deed.name] = Account(deed.name, cap, opened, parent)
        return None

    def _raise(self, deed: Deed) -> str | None:
        account, cap = self.accounts[deed.name], capped(deed.words)
        if account.closed:
            return "too late"
        if not fits(plus(account.spent, account.held), cap):
            return "exceeded"
        if account.parent is not None:
            more = minus(cap, account.cap)
            if not fits((max(0, more[0]), max(0, more[1])), account.parent.left):
                return "exceeded"
            account.parent.held = plus(account.parent.held, more)
            account.parent.spent = plus(account.parent.spent, (0, max(0, -more[1])))
        account.cap = cap
        return None

    def _close(self, deed: Deed) -> str | None:
        account = self.accounts[deed.name]
        if account.closed:
            return "again"
        if account.held != NOTHING or any(
            r.state in ("reserved", "started") and deed.name in r.holds
            for r in self.reservations.values()
        ):
            return "too late"
        account.closed = True
        if account.parent is not None:
            account.parent.held = minus(account.parent.held, account.cap)
            # delta never comes back
            account.parent.spent = plus(account.parent.spent, (account.spent[0], account.cap[1]))
            account.parent.saved = plus(account.parent.saved, account.saved)
        return None

    def _balance(self, i: int, name: str) -> str:
        a = self.accounts[name]
        amounts = {"spent": a.spent, "held": a.held, "left": a.left, "saved": a.saved}
        return " ".join(f"{word} {number(x[i] / UNITS[i])}" for word, x in amounts.items())

    def _epsilon(self, deed: Deed) -> str:
        return self._balance(0, deed.name)

    def _delta(self, deed: Deed) -> str:
        return self._balance(1, deed.name)

    # -------------------------------------------------------------------- reservations

    def _state(self, deed: Deed) -> str:
        return self.reservations[deed.name].state

    def _reserve(self, deed: Deed) -> str | None:
        names = deed.budgets or (next(iter(self.accounts)),)
        g = guarantee(deed.words[0])
        body = (g, frozenset(names))
        if deed.name in self.reservations:
            there = self.reservations[deed.name]
            if there.body != body:
                return "conflict"
            return "exceeded" if there.state == "refused" else "again"
        accounts = [self.accounts[name] for name in names]
        if any(account.closed for account in accounts):
            return "too late"
        if any(part.is_part_of(whole) for part in accounts for whole in accounts):
            return "refused"
        asked = charged(g)
        answers = {account.name: granted(asked, account.left) for account in accounts}
        holds = {name: hold for name, hold in answers.items() if hold is not None}
        if len(holds) < len(answers):
            self.reservations[deed.name] = Reservation(body, g, {}, "refused")
            return "exceeded"
        self.reservations[deed.name] = Reservation(body, g, holds)
        for account in accounts:
            account.held = plus(account.held, holds[account.name])
        first = min(holds)
        cut = any(hold != asked for hold in holds.values())
        return f"granted {number(holds[first][0] / UNITS[0])}" if cut else None

    def _start(self, deed: Deed) -> str | None:
        there = self.reservations[deed.name]
        if there.state != "reserved":
            return "too late"
        there.state = "started"
        self.tokens.add((self.who, deed.name))
        return None

    def _settle(self, deed: Deed) -> str | None:
        there, (cell,) = self.reservations[deed.name], deed.words
        mine = (self.who, deed.name) in self.tokens
        if (there.state == "forfeited" and mine) or (there.state == "started" and not mine):
            return "fenced"
        return self._end(deed.name, ("started",), "settled", cell)

    def _guess(self, deed: Deed) -> str | None:
        if self.reservations[deed.name].state == "started":
            return "fenced"
        return self._end(deed.name, ("started",), "settled", deed.words[0])

    def _forfeit(self, deed: Deed) -> str | None:
        return self._end(deed.name, ("reserved", "started"), "forfeited")

    def _void(self, deed: Deed) -> str | None:
        return self._end(deed.name, ("reserved",), "void")

    def _expire(self, deed: Deed) -> str | None:
        return self._end(deed.name, ("reserved",), "void")

    def _end(self, key: str, before: tuple[str, ...], after: str, cell: str | None = None) -> Any:
        there = self.reservations[key]
        if (there.state, there.cell) == (after, cell):
            return "again"
        if there.state not in before:
            return "too late"
        there.state, there.cell = after, cell
        price = NOTHING if after == "void" else charged(there.guarantee, cell)
        for name, held in there.holds.items():
            account = self.accounts[name]
            cost = min(price[0], held[0]), min(price[1], held[1])
            account.held = minus(account.held, held)
            account.spent = plus(account.spent, cost)
            if after == "settled":
                account.saved = plus(account.saved, minus(held, cost))
        return None
