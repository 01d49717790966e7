"""A ledger: budgets that are remembered, through crashes and by many processes.

A mechanism is paid for in the order reserve -> start -> run -> settle -> reveal. Each but the
run is durable when it returns. What its dearest output would cost is held before it runs, and
nothing but its settled cell frees a part of that: whatever breaks in between, the worst case
stays charged.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TypeVar

from tightbudget.errors import BudgetExceeded, ExtraError, ParameterError, SettlementError

try:
    from sqlalchemy import Connection
except ImportError as error:
    raise ExtraError("a ledger needs SQLAlchemy: pip install 'tightbudget[ledger]'") from error

from tightbudget.ledger import queries, transactions
from tightbudget.ledger.balance_history import course
from tightbudget.ledger.chain import Head
from tightbudget.ledger.copy import copy
from tightbudget.ledger.pricing import Guarantee, Stored
from tightbudget.ledger.queries import Balance, Reservation, Summary, Which
from tightbudget.ledger.secret import new_secret
from tightbudget.ledger.store import Store
from tightbudget.ledger.text import check_encodable, printable, storable_cell
from tightbudget.ledger.transactions import Refusal, Request, Terms
from tightbudget.ledger.unit_of_work import Act
from tightbudget.ledger.units import Units
from tightbudget.ledger.values import Event, OpenHold, Payer, Statement, WhatIf, token_text
from tightbudget.ledger.verification import Verification, check_head, verify
from tightbudget.numerics.validate import positive_count
from tightbudget.output_dp.account import State
from tightbudget.output_dp.amount import Budget, ExactAmount, Price, exact, exact_probability
from tightbudget.output_dp.guarantee import Cell, cell_from_json

__all__ = ["Event", "Ledger", "LedgerBudget", "LedgerHold", "Statement", "WhatIf"]

T = TypeVar("T")

_PAGE = 10_000  # events that are read at once


class Ledger:
    """Budgets in a database: one file of SQLite, or PostgreSQL for many machines.

    Guarantee: spent + held of each budget never exceeds its cap, and no charge is lost, whatever
    processes, threads and machines do at the same time and wherever they stop.

    Args:
        url: as SQLAlchemy has it: ``sqlite:///budget.db``, ``postgresql+psycopg://host/name``.
        create: whether to make a ledger where there is none; otherwise that is an error. One
            that an earlier version made is brought up to date in any case.
        clock: what time it is, for people who read the history; nothing depends on it.
        by: who acts, for the same people, where an act does not say it. If absent, the name
            of the operating system's user. Nobody checks such a name.

    Raises:
        LedgerError: it cannot be opened.
        ExtraError: SQLAlchemy, or the driver of the database, is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        by: str | None = None,
    ) -> None:
        self._by = _user() if by is None else printable(by=by)
        self._store = Store(url, create)
        self._clock = clock

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return str(self._store)

    def close(self) -> None:
        """Gives the connections back; what was done is durable already."""
        self._store.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self._store)!r})"

    def _who(self, by: str | None) -> dict[str, str]:
        return {"by": self._by if by is None else printable(by=by)}

    def _do(self, act: Callable[..., T], *arguments: Any) -> T:
        at = self._clock().isoformat()
        return self._store.write(lambda connection: act(Act(connection, at), *arguments))

    def _named(self, **given: Any) -> str:
        """A budget's name in the spelling of the ledger, or in form C.

        Raises:
            ParameterError: it is none.
        """
        return self._spelt(queries.stored_name, given)

    def _keyed(self, key: str) -> str:
        """A reservation's key in the spelling of the ledger, or in form C.

        Raises:
            ParameterError: it is none.
        """
        return self._spelt(queries.stored_key, {"key": key})

    def _spelt(self, stored: Callable[[Connection, str], str | None], given: dict[str, Any]) -> str:
        text = printable(**given)
        (as_given,) = given.values()
        if as_given.isascii():  # there is one spelling
            return text
        with self._store.reading() as connection:
            found = stored(connection, as_given)
        return text if found is None else found

    # --------------------------------------------------------------------------- budgets

    def open_budget(
        self,
        name: str,
        *,
        parent: str | LedgerBudget | None = None,
        kind: str = "output_dp",
        **parameters: Any,
    ) -> LedgerBudget:
        """Opens a budget; again with the same terms, it is the one that is there.

        Args:
            name: of 1 to 200 printable characters, its own in the ledger.
            parent: of which it becomes a part: its cap is held there until it is closed.
            kind: ``output_dp`` (with epsilon and delta) charges what came out. The others
                charge the worst case and give nothing back: ``zcdp`` (rho), ``renyi`` (order,
                epsilon), ``gaussian_dp`` (mu), ``advanced`` (epsilon, delta, slack) and
                ``plan`` (plan, a composition; delta).
            parameters: those of the kind, as in the in-memory filters.

        Raises:
            BudgetError: it does not fit into what its parent has left.
            KeyConflictError: there is another budget of this name.
            ParameterError: a parameter is refused.
            SettlementError: the parent is closed.
        """
        terms = Terms.of(kind, parameters)
        whole = parent.name if isinstance(parent, LedgerBudget) else parent
        if whole is not None:
            whole = self._named(parent=whole)
        opened = self._do(transactions.open_budget, self._named(name=name), terms, whole)
        return LedgerBudget(self, opened.name)

    def budget(self, name: str) -> LedgerBudget:
        """The budget of this name.

        Raises:
            ParameterError: there is none.
        """
        known = self._named(name=name)
        with self._store.reading() as connection:
            return LedgerBudget(self, queries.balance(connection, known).name)

    def budgets(self) -> tuple[LedgerBudget, ...]:
        """All budgets, each after the one that it is a part of."""
        with self._store.reading() as connection:
            return tuple(LedgerBudget(self, b.name) for b in queries.balances(connection))

    def statements(
        self,
        *,
        budgets: Collection[str] | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> tuple[Statement, ...]:
        """Budgets at one moment, each after the one that it is a part of.

        Args:
            budgets: these only; by default all.
            after: from the budget that was opened after this one on.
            limit: so many at most.

        Raises:
            ParameterError: there is no budget ``after``.
        """
        last = None if after is None else self._named(after=after)
        with self._store.reading() as connection:
            first = 0 if last is None else queries.balance(connection, last).id
            found = queries.statements(connection, budgets, after=first, limit=limit)
        return tuple(_stated(balance, whole) for balance, whole in found)

    def within(self, names: Collection[str]) -> frozenset[str]:
        """The names of these budgets and of all their parts; who is none is left out."""
        with self._store.reading() as connection:
            return frozenset(queries.within(connection, names))

    # ---------------------------------------------------------------------- reservations

    def reserve(
        self,
        key: str,
        guarantee: Guarantee,
        budgets: Sequence[str],
        *,
        interactive: bool = False,
        by: str | None = None,
    ) -> LedgerHold:
        """Holds what the mechanism's dearest output would cost, in several budgets or in none.

        The guarantee is written down: what a cell will cost is fixed from here on.

        Args:
            key: the caller's name for this one run, of 1 to 200 printable characters. The same
                key with the same request is the same reservation, whatever has become of it.
            guarantee: an :class:`OutputDP`; or what else the budgets' kinds take.
            budgets: the names of those that pay, none a part of another.
            interactive: it answers more than once, and others may run in between. Several of
                these are open side by side only if all have delta = 0.
            by: who reserves, if not who acts on this ledger; it is written down.

        Raises:
            BudgetExceeded: it does not fit. The key stays refused.
            KeyConflictError: the key was used for something else.
            SettlementError: a budget is closed, or another interactive mechanism is open.
            ParameterError: the key, the guarantee or a budget is refused.
        """
        payers = budgets if isinstance(budgets, str) else [self._named(budget=b) for b in budgets]
        request = Request.of(guarantee, payers, bool(interactive))
        found = self._do(transactions.reserve, self._keyed(key), request, self._who(by))
        return LedgerHold(self, _granted(found), None)

    def hold(self, key: str, *, token: str | int | None = None) -> LedgerHold:
        """The reservation of this key, for instance of a process that is no more.

        Args:
            key: that it was reserved under.
            token: of its start, if this process may settle it. Anyone may forfeit it. A run
                that an earlier version has started has the number that it was answered then.

        Raises:
            SettlementError: there is none.
            BudgetExceeded: it was refused.
            ParameterError: the token is neither a text nor a number.
        """
        known, shown = self._keyed(key), token_text(token)
        with self._store.reading() as connection:
            found = queries.reservation(connection, known)
            if found is None:
                raise SettlementError(f"there is no reservation {key!r}")
            answer = transactions.refusal_of(connection, found) or found
        return LedgerHold(self, _granted(answer), shown)

    def holds(self) -> tuple[LedgerHold, ...]:
        """All reservations that are not ended, with all that they were reserved for."""
        return self._holds(None)

    def _holds(self, budgets: Collection[str] | None) -> tuple[LedgerHold, ...]:
        with self._store.reading() as connection:
            found = queries.open_reservations(connection, budgets)
        return tuple(LedgerHold(self, reservation, None) for reservation in found)

    def open_holds(
        self,
        *,
        budgets: Collection[str] | None = None,
        interactive: bool = False,
        after: str | None = None,
        limit: int | None = None,
    ) -> tuple[OpenHold, ...]:
        """Lists the reservations that are not ended, the oldest first, without declared prices.

        How long this takes does not depend on how much was declared.

        Args:
            budgets: only what charges one of these; by default all.
            interactive: only what answers more than once.
            after: from the reservation that was made after the one of this key on.
            limit: so many at most.

        Raises:
            SettlementError: there is no reservation ``after``.
        """
        last = None if after is None else self._keyed(after)
        with self._store.reading() as connection:
            first = 0 if last is None else queries.number_of(connection, last)
            if first is None:
                raise SettlementError(f"there is no reservation {after!r}")
            found = queries.open_summaries(
                connection, budgets, interactive=interactive, after=first, limit=limit
            )
        return tuple(map(_listed, found))

    def is_reserved(self, key: str) -> bool:
        """Whether the key was used, also if the request was refused."""
        known = self._keyed(key)
        with self._store.reading() as connection:
            return queries.number_of(connection, known) is not None

    def count_open(self, budgets: Collection[str]) -> int:
        """How many reservations that are not ended charge one of these budgets."""
        with self._store.reading() as connection:
            return queries.count_open(connection, budgets)

    def expire(self, key: str, *, by: str, reason: str) -> LedgerHold:
        """Frees a hold that was never started, for an administrator who knows that it won't be.

        Raises:
            SettlementError: it was started or is over, or there is none.
        """
        why = _why(by, reason)
        return LedgerHold(self, self._do(transactions.expire, self._keyed(key), why), None)

    # --------------------------------------------------------------------------- history

    def events(
        self,
        budget: str | None = None,
        key: str | None = None,
        after: int = 0,
        limit: int | None = None,
        *,
        budgets: Collection[str] | None = None,
        kind: str | None = None,
        search: str | None = None,
    ) -> Iterator[Event]:
        """The history, oldest first: of a budget, of a key, or all.

        Args:
            budget: of this budget only.
            key: of this reservation only.
            after: from the event after this number on.
            limit: so many events at most.
            budgets: of these budgets only.
            kind: of this kind only.
            search: only events with this text in the key, the budget's name, the cell or the
                details; in ASCII, either case. With ``budgets``, details are not searched.
        """
        which = self._which(budget, budgets, key, kind, search)
        while limit is None or limit > 0:
            size = _PAGE if limit is None else min(limit, _PAGE)
            with self._store.reading() as connection:
                page = queries.entries(connection, which, after=after, limit=size)
            yield from map(Event._of, page)
            if len(page) < size:
                return
            after, limit = page[-1].sequence, None if limit is None else limit - size

    def latest(
        self,
        limit: int,
        *,
        before: int | None = None,
        budget: str | None = None,
        budgets: Collection[str] | None = None,
        key: str | None = None,
        kind: str | None = None,
        search: str | None = None,
    ) -> tuple[Event, ...]:
        """The last events, newest first, or the last before one; filters as in :meth:`events`."""
        which = self._which(budget, budgets, key, kind, search)
        with self._store.reading() as connection:
            found = queries.entries(
                connection, which, before=before, limit=limit, newest_first=True
            )
        return tuple(map(Event._of, found))

    def _which(
        self,
        budget: str | None,
        budgets: Collection[str] | None,
        key: str | None,
        kind: str | None,
        search: str | None,
    ) -> Which:
        for name, text in (("kind", kind), ("search", search)):
            if text is not None:
                check_encodable(**{name: text})
        return Which(
            None if budget is None else self._named(budget=budget),
            budgets,
            None if key is None else self._keyed(key),
            kind,
            search,
        )

    def head(self) -> Head:
        """How far the history goes; ``str(ledger.head())`` is for keeping elsewhere."""
        with self._store.reading() as connection:
            return queries.head(connection)

    def check(self, head: Head | str) -> None:
        """Whether the history went on from a head that was kept elsewhere.

        Raises:
            LedgerCorruptError: it was set back (a restored backup), or it went another way
                (a copy of which both were used).
            ParameterError: this is no head.
        """
        kept = head if isinstance(head, Head) else Head.from_text(head)
        with self._store.reading() as connection:
            check_head(connection, kept)

    def verify(self, progress: Callable[[Iterable[int]], Iterable[int]] = iter) -> Verification:
        """Plays the whole history again and compares it with everything that is stored.

        Guarantee: no event was changed, and all balances, reservations and prices are those that
        the history leads to. That no event is missing at its end, only a head that was kept
        elsewhere can tell: see :meth:`check`.

        ``progress`` wraps the list of pages while they are read (a progress bar).

        Raises:
            LedgerCorruptError: says what differs.
        """
        with self._store.reading() as connection:
            return verify(connection, progress)

    def copy_to(
        self, target: Ledger, progress: Callable[[Iterable[int]], Iterable[int]] = iter
    ) -> Verification:
        """Moves this ledger to an empty one in another database, and verifies both.

        Guarantee: the target has every event, and the balances, reservations and prices that
        they lead to; it is written in one transaction or not at all. From before the first
        row is read, this ledger refuses to be written. If it is interrupted, the same call
        brings it to its end.

        Returns:
            what was verified in the target.

        Raises:
            ParameterError: the target is not empty.
            LedgerError: this ledger was moved elsewhere before, or a database fails.
            LedgerCorruptError: one of the two is not what its own history says.
        """
        at = self._clock().isoformat()
        return copy(self._store, target._store, at, progress)


class LedgerBudget(Payer["LedgerHold"]):
    """A budget in a ledger. What it says is read when it is asked for."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        super().__init__(name)
        self._ledger = ledger

    # ------------------------------------------------------------------------- balances

    def statement(self) -> Statement:
        """All about it at one moment."""
        with self._ledger._store.reading() as connection:
            return _statement(connection, queries.balance(connection, self._name))

    def epsilon(self, delta: Price) -> float:
        """The epsilon at which all that this budget lets through is (epsilon, delta)-DP.

        Guarantee: rounded up; for a plan, the engine's upper end.

        Raises:
            ParameterError: delta is refused, for instance below the budget's own.
        """
        return self._balance().rule.epsilon(delta)

    # -------------------------------------------------------------------------- charges

    def reserve(
        self,
        key: str,
        guarantee: Guarantee,
        *,
        also: Sequence[str] = (),
        interactive: bool = False,
        by: str | None = None,
    ) -> LedgerHold:
        """Holds what the mechanism's dearest output would cost, here and in the budgets ``also``.

        See :meth:`Ledger.reserve`.
        """
        payers = (self._name, *also)
        return self._ledger.reserve(key, guarantee, payers, interactive=interactive, by=by)

    def what_if(self, guarantee: Guarantee) -> WhatIf:
        """What a reservation would be answered now; nothing is held.

        Raises:
            ParameterError: the guarantee is refused.
            SettlementError: the budget is closed.
        """
        request = Request.of(guarantee, (self._name,), False)
        with self._ledger._store.reading() as connection:
            (payer,), (asked,), refusal = transactions.answer(connection, request)
        unit, left = payer.rule.unit, payer.left
        return WhatIf(
            fits=refusal is None,
            requested=asked.up(unit),
            left=left.down(unit),
            left_after=(left if refusal else left.minus(asked.least(left))).down(unit),
            message=None if refusal is None else refusal.message,
        )

    def can_afford(self, guarantee: Guarantee, n: int = 1) -> bool:
        """Whether this would be granted n times, if it cost the worst case each time.

        Raises:
            ParameterError: the guarantee or n is refused.
        """
        times, request = positive_count(n=n), Request.of(guarantee, (self._name,), False)
        with self._ledger._store.reading() as connection:
            return transactions.affords(connection, self._name, request.guarantee, times)

    def holds(self) -> tuple[LedgerHold, ...]:
        """The reservations that hold something here."""
        return self._ledger._holds((self._name,))

    def history(self) -> Iterator[Event]:
        """What happened here, oldest first."""
        return self._ledger.events(budget=self._name)

    def course(self, last: int = 1000) -> tuple[tuple[Event, Statement], ...]:
        """What happened here last, oldest first, each with the budget as it was after it.

        Guarantee: each statement is the one that would have been read then.

        Args:
            last: so many events at most; how many there were before does not matter.
        """
        with self._ledger._store.reading() as connection:
            now = queries.balance(connection, self._name)
            whole = queries.parent_of(connection, now)
            found = course(connection, now, positive_count(last=last))
        name = None if whole is None else whole.name
        return tuple((Event._of(entry), _stated(then, name)) for entry, then in found)

    def parts(self, limit: int) -> tuple[str, ...]:
        """The names of its first parts, as many as the limit at most."""
        with self._ledger._store.reading() as connection:
            return tuple(queries.parts(connection, queries.balance(connection, self._name), limit))

    # --------------------------------------------------------------------- administration

    def raise_cap(self, *, by: str, reason: str, **parameters: Price) -> None:
        """Sets other parameters of the kind (``epsilon=2``, ``rho=0.5``), for an administrator.

        A smaller cap is possible, too, down to what is spent and held. The parent holds the new
        cap; of a smaller one it gets epsilon back, not delta.

        Raises:
            BudgetError: below spent and held, or more than the parent has left.
            ParameterError: a parameter is refused; a plan's cap is the plan.
            SettlementError: the budget is closed.
        """
        self._ledger._do(transactions.change_cap, self._name, parameters, _why(by, reason))

    def correct(self, *, epsilon: Price, delta: Price = 0, by: str, reason: str) -> None:
        """Adds to what was spent, for what happened elsewhere. Nothing is ever taken off.

        Args:
            epsilon: of what the budget counts: rho, mu^2, ... in other kinds.
            delta: the same for delta.
            by: who says so.
            reason: why.

        Raises:
            BudgetError: it does not fit: raise the cap first.
            SettlementError: the budget is closed.
        """
        more = Units.charged(
            ExactAmount(counted=exact(epsilon=epsilon), delta=exact_probability(delta=delta))
        )
        self._ledger._do(transactions.correct, self._name, more, _why(by, reason))

    def close(self) -> Budget:
        """Ends this budget; epsilon that was not spent goes back to its parent, delta does not.

        Returns:
            what was spent here.

        Raises:
            SettlementError: something is still held here.
        """
        balance = self._ledger._do(transactions.close_budget, self._name)
        return balance.spent.up(balance.rule.unit)

    def _balance(self) -> Balance:
        with self._ledger._store.reading() as connection:
            return queries.balance(connection, self._name)


class LedgerHold:
    """One reservation, as it was when this object last asked the ledger."""

    def __init__(self, ledger: Ledger, reservation: Reservation, token: str | None) -> None:
        self._ledger = ledger
        self._is = reservation
        self._token = token

    def __repr__(self) -> str:
        return f"<LedgerHold {self.key!r}: {self._is}>"

    @property
    def key(self) -> str:
        """What it was reserved under."""
        return self._is.key

    @property
    def state(self) -> State:
        """Reserved, started, settled, forfeited or void."""
        return State(self._is.state)

    @property
    def since(self) -> str:
        """When it was reserved or, if it was, started; as the clock said."""
        return self._event().at

    @property
    def by(self) -> str | None:
        """Who has reserved it or, if it was, started it; None where an earlier version did not say.

        Over HTTP that is the name of a token; beside the database, a name that nobody checks.
        """
        return self._event().details.get("by")

    def _event(self) -> Event:
        with self._ledger._store.reading() as connection:
            entry = queries.entry(connection, self._is.started or self._is.id)
        assert entry is not None, "these are the numbers of its events"
        return Event._of(entry)

    @property
    def guarantee(self) -> Stored:
        """What was reserved for, as it was written down."""
        return self._is.guarantee

    @property
    def interactive(self) -> bool:
        """Whether it answers more than once."""
        return self._is.interactive

    @property
    def cell(self) -> Cell | None:
        """What it was settled with."""
        return None if self._is.cell is None else cell_from_json(self._is.cell)

    @property
    def told(self) -> str | None:
        """What the caller must know: that less was granted than was requested."""
        return self._is.told

    @property
    def token(self) -> str | None:
        """The token that settles this run, a secret to be kept with the output; None without it."""
        return self._token

    @property
    def charges(self) -> dict[str, Budget]:
        """What this run takes from each of its budgets: until it is settled, what is held."""
        return {c.name: c.units.up(c.rule.unit) for c in self._is.charges}

    @property
    def charge(self) -> Budget:
        """What it takes from its budget, or from the first of them by name."""
        return next(iter(self.charges.values()))

    def start(self, *, by: str | None = None) -> None:
        """Marks that the mechanism runs, once; from here on nothing but its cell frees epsilon.

        ``by`` says who starts it, if not who acts on this ledger.

        Raises:
            SettlementError: it was started before, also by another process, or is over.
        """
        token = new_secret()
        self._is = self._ledger._do(transactions.start, self.key, token, self._ledger._who(by))
        self._token = token

    def settle(self, cell: Cell, *, by: str | None = None) -> Budget:
        """Charges what an output in ``cell`` costs, and frees the rest of epsilon, not delta.

        A cell that was not declared costs the sup. The same cell again changes nothing. The
        price is an output, too: it is as public as what the mechanism answered. Reveal that
        answer afterwards. ``by`` says who settles it, if not who acts on this ledger.

        Returns:
            what the run has cost: a receipt, to travel with the answer.

        Raises:
            FencingError: it was started by another process, or forfeited meanwhile: the answer
                must not be revealed by this one.
            SettlementError: it was not started, was settled with another cell, or is void.
            ParameterError: no cell looks like this; it is still held.
        """
        who, named = self._ledger._who(by), storable_cell(cell)
        self._is = self._ledger._do(transactions.settle, self.key, self._token, named, who)
        return self.charge

    def forfeit(self, *, by: str | None = None, reason: str | None = None) -> Budget:
        """Charges the dearest price, whatever came out. Anyone may: it frees nothing.

        ``by`` says who does it, if not who acts on this ledger.

        Raises:
            SettlementError: it was settled, or is void.
        """
        why = self._ledger._who(by)
        if reason is not None:
            why["reason"] = printable(reason=reason)
        self._is = self._ledger._do(transactions.forfeit, self.key, why)
        return self.charge

    def void(self, *, by: str | None = None) -> Budget:
        """Frees everything: the mechanism has not run, and never will.

        ``by`` says who does it, if not who acts on this ledger.

        Raises:
            SettlementError: it was started or is over.
        """
        self._is = self._ledger._do(transactions.void, self.key, self._ledger._who(by))
        return self.charge


def _statement(connection: Connection, balance: Balance) -> Statement:
    whole = queries.parent_of(connection, balance)
    return _stated(balance, None if whole is None else whole.name)


def _listed(summary: Summary) -> OpenHold:
    charges = {c.name: c.units.up(c.rule.unit) for c in summary.charges}
    return OpenHold(
        *(summary.key, State(summary.state), summary.interactive, summary.told),
        *(summary.since, summary.by, charges),
    )


def _stated(balance: Balance, whole: str | None) -> Statement:
    unit = balance.rule.unit
    return Statement(
        *(balance.name, balance.kind, whole, balance.closed),
        *(balance.cap.down(unit), balance.spent.up(unit), balance.held.up(unit)),
        *(balance.left.down(unit), balance.saved.down(unit)),
    )


def _granted(answer: Reservation | Refusal) -> Reservation:
    """The reservation.

    Raises:
        BudgetExceeded: it was refused.
    """
    if isinstance(answer, Reservation):
        return answer
    raise BudgetExceeded(
        answer.message,
        requested=answer.requested.up(answer.unit),
        left=answer.left.down(answer.unit),
        held=answer.held.up(answer.unit),
        budget=answer.budget,
        holds=answer.holds,
    )


def _user() -> str:
    """The name of the operating system's user."""
    try:
        return printable(by=getpass.getuser())
    except (ImportError, KeyError, OSError, ParameterError):  # a number without a name
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def _why(by: str, reason: str) -> dict[str, str]:
    return {"by": printable(by=by), "reason": printable(reason=reason)}
