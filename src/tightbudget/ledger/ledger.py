"""A ledger: budgets that are remembered, through crashes and by many processes.

A mechanism is paid for in the order reserve -> start -> run -> settle -> reveal. Each step but the
run is durable when it returns. The worst-case price is held before the mechanism runs, and nothing
but its settled cell frees a part of that: whatever breaks in between, the worst case stays
charged.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal

from tightbudget import notebook
from tightbudget.errors import (
    ExtraError,
    LedgerError,
    ParameterError,
    SettlementError,
    TightBudgetError,
)

try:
    import sqlalchemy  # noqa: F401 (the modules below need it: its absence is refused in words)
except ImportError as error:
    raise ExtraError("a ledger needs SQLAlchemy: pip install 'tightbudget[ledger]'") from error

from tightbudget.ledger.acts import answers, budget_acts, run_acts
from tightbudget.ledger.acts.budget_acts import Terms
from tightbudget.ledger.acts.requests import Request
from tightbudget.ledger.block_set import Blocks
from tightbudget.ledger.budget import LedgerBudget, statement_of
from tightbudget.ledger.copy import copy
from tightbudget.ledger.history import History
from tightbudget.ledger.hold import LedgerHold, found, listed, open_in, reserve
from tightbudget.ledger.rows import budget_rows, run_rows, selection
from tightbudget.ledger.session import LedgerSession, why
from tightbudget.ledger.store.store import Store
from tightbudget.ledger.verification import Verification
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.amount import Price
from tightbudget.output_dp.pricing import Guarantee
from tightbudget.promises.kinds.blocks import BLOCKS, BlockSet
from tightbudget.promises.seen import Seen
from tightbudget.promises.text import printable
from tightbudget.promises.units import NOTHING
from tightbudget.promises.values import OpenHold, Statement, statements_table


class Ledger(History):
    """Budgets in a database: one file of SQLite, or PostgreSQL for many machines.

    Guarantee: spent + held of each budget never exceeds its cap, and no charge is lost, whatever
    processes, threads and machines do at the same time and wherever they stop. A request that
    exceeds what is left by at most one part in 1e9 is granted what is left, so that the cap is a
    bound on what leaked up to the factor 1 + 1e-9 (proofs/account.v, theorem account_private).

    Args:
        url: the database, as SQLAlchemy has it: ``sqlite:///budget.db``,
            ``postgresql+psycopg://host/name``.
        create: whether to make a ledger where there is none; otherwise that is an error. A
            ledger that an earlier version made is brought up to date in any case.
        clock: tells the time, for people who read the history; nothing depends on it but how much
            of a block is unlocked.
        by: the name of who acts, for the same people, where an act does not say it. If absent,
            the name of the operating system's user. Nobody checks such a name.

    Raises:
        LedgerError: it cannot be opened, or this Python runs without its global lock.
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
        name = _user() if by is None else printable(by=by)
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise LedgerError(
                "a ledger needs Python's global lock: its threads take their turns by it; "
                "start Python with PYTHON_GIL=1"
            )
        self._store = Store(url, create)
        super().__init__(LedgerSession(self._store, clock=clock, by=name))

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
        """The address of the database, without a password."""
        return self.session.url

    def close(self) -> None:
        """Gives the connections back; every act that has returned is durable already."""
        self._store.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self._store)!r})"

    def _repr_html_(self) -> str:
        """Writes a table of the budgets, for a notebook; the address alone if it cannot be read."""
        try:
            return statements_table(self.statements(), title=repr(self))
        except TightBudgetError as error:
            return notebook.shown(f"{self!r}: {error}")

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
            name: 1 to 200 printable characters, which no other budget of the ledger has.
            parent: the budget that it becomes a part of: its cap is held there until it is
                closed.
            kind: ``output_dp`` (with epsilon and delta) charges by the observed output. The
                others charge the worst case and give nothing back: ``zcdp`` (rho), ``renyi``
                (order, epsilon), ``gaussian_dp`` (mu), ``advanced`` (epsilon, delta, slack)
                and ``plan`` (plan, a composition; delta).
            parameters: the parameters of the kind, as in the in-memory filters.

        Raises:
            BudgetError: it does not fit into what its parent has left.
            KeyConflictError: there is another budget of this name.
            ParameterError: a parameter is refused.
            SettlementError: the parent is closed.
        """
        terms = Terms.of(kind, parameters)
        whole = parent.name if isinstance(parent, LedgerBudget) else parent
        if whole is not None:
            whole = self.session.named(parent=whole)
        known = self.session.named(name=name)
        opened = self.session.write(
            lambda act: budget_acts.open_budget(act, name=known, terms=terms, parent=whole)
        )
        return LedgerBudget(self.session, opened.name)

    def budget(self, name: str) -> LedgerBudget:
        """Returns the budget of this name, which may be that of a block that nobody has touched.

        Raises:
            ParameterError: there is none.
        """
        known = self.session.named(name=name)
        with self.session.read() as connection:
            return LedgerBudget(self.session, answers.balance_of(connection, known).name)

    def budgets(self) -> tuple[LedgerBudget, ...]:
        """Returns all budgets, each after the one that it is a part of."""
        with self.session.read() as connection:
            found = budget_rows.balances(connection)
        return tuple(LedgerBudget(self.session, balance.name) for balance in found)

    def statements(
        self,
        *,
        budgets: Collection[str] | Seen | None = None,
        after: str | None = None,
        limit: int | None = None,
        blocks: bool = True,
    ) -> tuple[Statement, ...]:
        """Reads budgets at one moment, each after the one that it is a part of.

        Args:
            budgets: the names of these only; by default all.
            after: the name of the budget after whose opening the list begins.
            limit: the largest number of statements.
            blocks: whether the single blocks of sets are listed, too.

        Raises:
            ParameterError: there is no budget ``after``.
        """
        seen = None if budgets is None else Seen.of(budgets)
        last = None if after is None else self.session.named(after=after)
        with self.session.read() as connection:
            first = 0 if last is None else budget_rows.balance(connection, last).id
            found = budget_rows.statements(
                connection, seen, after=first, limit=limit, blocks=blocks
            )
            inside = budget_rows.spent_in_parts(connection, {balance.id for balance, _ in found})
        return tuple(statement_of(b, parent, inside.get(b.id, NOTHING)) for b, parent in found)

    def blocks(
        self,
        name: str,
        *,
        by: Sequence[str] | None = None,
        epsilon: Price | None = None,
        delta: Price = 0,
        rows_in: int | Literal["one block"] = "one block",
        cap_epsilon: Price | None = None,
        cap_delta: Price = 0,
        quota_epsilon: Price | None = None,
        quota_delta: Price = 0,
        unlocking: int | None = None,
    ) -> Blocks:
        """Declares a set of blocks; again on the same terms, it is the one that is there.

        With the name alone it is the set that was declared before.

        Args:
            name: of the set.
            by: the names of the public columns that rows are put into blocks by; ``day``,
                ``month`` and ``year`` are dates.
            epsilon: of each block, > 0, nats.
            delta: of each block.
            rows_in: the largest number of blocks that have rows of one person.
            cap_epsilon: a cap over all blocks, beside them: each run is charged to it once.
            cap_delta: the delta of this cap.
            quota_epsilon: what each analyst may spend, beside the blocks and never instead: an
                analyst who is one of several has seen what the others released.
            quota_delta: the delta of this quota.
            unlocking: the number of days over which a block's budget is unlocked, in proportion,
                from the first day of the block on. It shares the budget among those who come
                early and late, and changes no guarantee.

        Raises:
            KeyConflictError: there is a budget of this name, or a set on other terms.
            ParameterError: a term is refused; or there is no such set.
        """
        if by is None and epsilon is None:
            others = (delta, rows_in, cap_epsilon, cap_delta, quota_epsilon, quota_delta, unlocking)
            absent = (0, "one block", None, 0, None, 0, None)
            # types first: what compares in its own way is a term, too
            if any(type(a) is not type(b) or a != b for a, b in zip(others, absent, strict=True)):
                raise ParameterError("terms of a set must be given with by and epsilon, or none")
            return self._known_blocks(name)
        if by is None or epsilon is None:
            raise refuse("by, epsilon", "be given both, or neither for a known set", (by, epsilon))
        declared = BlockSet.of(
            self.session.named(name=name),
            by=by,
            epsilon=epsilon,
            delta=delta,
            rows_in=rows_in,
            cap_epsilon=cap_epsilon,
            cap_delta=cap_delta,
            quota_epsilon=quota_epsilon,
            quota_delta=quota_delta,
            unlocking=unlocking,
        )
        self.session.write(
            lambda act: budget_acts.open_budget(
                act, name=declared.name, terms=Terms.of_blocks(declared), parent=None
            )
        )
        return Blocks(self.session, declared)

    def _known_blocks(self, name: str) -> Blocks:
        """Returns the set of blocks of this name, which was declared before."""
        known = self.session.named(name=name)
        with self.session.read() as connection:
            balance = budget_rows.balance(connection, known)
        if balance.kind != BLOCKS.name:
            raise refuse("name", "be the name of a set of blocks", name)
        return Blocks(self.session, BlockSet.of_text(balance.name, balance.parameters))

    def names(self, beginning: str, limit: int) -> tuple[str, ...]:
        """Returns the first names of budgets that begin with a text, in alphabetical order."""
        with self.session.read() as connection:
            return tuple(budget_rows.beginning_with(connection, beginning, limit))

    def within(self, names: Collection[str], *, analyst: str | None = None) -> Seen:
        """Returns these budgets and all their parts, and of sets of blocks every block.

        Args:
            names: of the budgets; unknown ones are left out.
            analyst: whose quotas in these sets belong to them; by default nobody's.
        """
        with self.session.read() as connection:
            found = selection.within(connection, names)
        return found if analyst is None else found.and_quotas_of(analyst)

    # ---------------------------------------------------------------------- reservations

    def reserve(
        self,
        key: str,
        guarantee: Guarantee,
        budgets: Sequence[str],
        *,
        interactive: bool = False,
        question: str | None = None,
        by: str | None = None,
    ) -> LedgerHold:
        """Holds the mechanism's worst-case price, in several budgets or in none.

        The guarantee is written down: the price of each cell is fixed from here on.

        Args:
            key: the caller's name for this one run, of 1 to 200 printable characters. The same
                key with the same request is the same reservation, whatever has become of it.
            guarantee: an :class:`OutputDP`; or what else the budgets' kinds take.
            budgets: the names of those that pay, none a part of another.
            interactive: it answers more than once, and others may run in between. Several of
                these are open side by side only if all have delta = 0.
            question: the question that the run answers, a text of 1 to 500 printable characters,
                which the history keeps beside the key. It should name no value of the data;
                what looks like a password is hidden.
            by: the name of who reserves, if not of who acts on this ledger; it is written down.

        Raises:
            BudgetExceeded: it does not fit. The key stays refused.
            KeyConflictError: the key was used for something else, also for another question.
            SettlementError: a budget is closed, or another interactive mechanism is open.
            ParameterError: the key, the guarantee, a budget or the question is refused.
        """
        request = Request.of(guarantee, self.session.payers(budgets), bool(interactive))
        return reserve(self.session, key, request, by, question)

    def hold(self, key: str, *, token: str | int | None = None) -> LedgerHold:
        """Returns the reservation of this key, for instance of a process that is no more.

        Args:
            key: the key that it was reserved under.
            token: the token of its start, if this process may settle it. Anyone may forfeit it.
                For a run that an earlier version has started, the number that it answered.

        Raises:
            SettlementError: there is none.
            BudgetExceeded: it was refused.
            ParameterError: the token is neither a text nor a number.
        """
        return found(self.session, key, token)

    def holds(self) -> tuple[LedgerHold, ...]:
        """Returns all reservations that are not ended, with the guarantees of each."""
        return open_in(self.session, None)

    def open_holds(
        self,
        *,
        budgets: Collection[str] | Seen | None = None,
        interactive: bool = False,
        after: str | None = None,
        limit: int | None = None,
    ) -> tuple[OpenHold, ...]:
        """Lists the reservations that are not ended, the oldest first, without declared prices.

        The time that this takes does not depend on how much was declared.

        Args:
            budgets: lists only what charges one of these; by default all.
            interactive: lists only what answers more than once.
            after: the key of the reservation after which the list begins.
            limit: the largest number of reservations.

        Raises:
            SettlementError: there is no reservation ``after``.
        """
        last = None if after is None else self.session.keyed(after)
        with self.session.read() as connection:
            first = 0 if last is None else run_rows.number_of(connection, last)
            if first is None:
                raise SettlementError(f"there is no reservation {after!r}")
            seen = None if budgets is None else Seen.of(budgets)
            found = run_rows.open_summaries(
                connection, seen, interactive=interactive, after=first, limit=limit
            )
        return tuple(map(listed, found))

    def is_reserved(self, key: str) -> bool:
        """Says whether the key was used, also if the request was refused."""
        known = self.session.keyed(key)
        with self.session.read() as connection:
            return run_rows.number_of(connection, known) is not None

    def count_open(self, budgets: Collection[str] | Seen) -> int:
        """Counts the reservations that are not ended and charge one of these budgets."""
        with self.session.read() as connection:
            return run_rows.count_open(connection, Seen.of(budgets))

    def count_open_in_each(self, budgets: Collection[str]) -> dict[str, int]:
        """Counts for each of these budgets the reservations that are not ended and charge it.

        A budget without any is left out.
        """
        with self.session.read() as connection:
            return run_rows.count_open_in_each(connection, budgets)

    def expire(self, key: str, *, by: str, reason: str) -> LedgerHold:
        """Frees a hold that was never started, for an administrator who knows that it won't be.

        Args:
            key: the key that it was reserved under.
            by: the name of who decides it.
            reason: the reason that is written down.

        Raises:
            SettlementError: it was started or is over, or there is none.
            ParameterError: the name or the reason is refused.
        """
        said, known = why(by=by, reason=reason), self.session.keyed(key)
        found = self.session.write(lambda act: run_acts.expire(act, key=known, why=said))
        return LedgerHold(self.session, found, None)

    # ---------------------------------------------------------------------- the whole ledger

    def copy_to(
        self, target: Ledger, progress: Callable[[Iterable[int]], Iterable[int]] = iter
    ) -> Verification:
        """Moves this ledger to an empty one in another database, and verifies both.

        Guarantee: the target has every event, and the balances, reservations and prices that
        they lead to; it is written in one transaction or not at all. From before the first
        row is read, this ledger refuses to be written. If it is interrupted, the same call
        brings it to its end.

        Args:
            target: the ledger that this one becomes.
            progress: wraps the list of pages while they are verified (a progress bar).

        Returns:
            the result of the target's verification.

        Raises:
            ParameterError: the target is not empty.
            LedgerError: this ledger was moved elsewhere before, or a database fails.
            LedgerCorruptError: one of the two is not what its own history says.
        """
        at = self.session.now().isoformat()
        return copy(self._store, target._store, at, progress)


def _user() -> str:
    """Returns the name of the operating system's user."""
    try:
        return printable(by=getpass.getuser())
    except (ImportError, KeyError, OSError, ParameterError):  # a number without a name
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
