"""Budgets of a ledger in a database: how they are opened, read, charged and ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from tightbudget.errors import TightBudgetError
from tightbudget.later import guesses
from tightbudget.ledger.acts import answers, budget_acts
from tightbudget.ledger.acts.requests import RefusedRequest, Request
from tightbudget.ledger.acts.unit_of_work import Act
from tightbudget.ledger.balance_history import balance_history
from tightbudget.ledger.history import History, events_of
from tightbudget.ledger.hold import LedgerHold, found, open_in, reserve
from tightbudget.ledger.rows import budget_rows
from tightbudget.ledger.rows.budget_rows import Balance
from tightbudget.ledger.session import LedgerSession, why
from tightbudget.numerics.validate import positive_count
from tightbudget.output_dp.amount import Amount, ExactAmount, Price, exact, exact_probability
from tightbudget.output_dp.pricing import Guarantee
from tightbudget.promises.audited import AuditRecord, AuditResult
from tightbudget.promises.payer import Payer
from tightbudget.promises.seen import Seen
from tightbudget.promises.units import NOTHING, Units
from tightbudget.promises.values import Event, Preview, Statement


@guesses(course="is LedgerBudget.balance_history now")
class LedgerBudget(Payer[LedgerHold]):
    """A budget in a ledger, which is read anew each time that it is asked.

    Args:
        session: the ledger.
        name: the budget's name, as the ledger spells it.
    """

    def __init__(self, session: LedgerSession, name: str) -> None:
        super().__init__(name)
        self._session = session

    def __repr__(self) -> str:
        try:
            return f"<LedgerBudget {self._name!r}: {self.statement().balance()}>"
        except TightBudgetError:  # the ledger is closed, or its file is gone
            return super().__repr__()

    @property
    def url(self) -> str:
        """The address of the database that it is in, without a password."""
        return self._session.url

    # ------------------------------------------------------------------------- balances

    def statement(self) -> Statement:
        with self._session.read() as connection:
            balance = answers.balance_of(connection, self._name)
            inside = budget_rows.spent_in_parts(connection, [balance.id]).get(balance.id, NOTHING)
            return statement_of(balance, _parent_name(connection, balance), inside)

    def epsilon(self, delta: Price) -> float:
        """Returns the epsilon at which all that this budget lets through is (epsilon, delta)-DP.

        Guarantee: rounded up; for a plan, the engine's upper bound.

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
        question: str | None = None,
        by: str | None = None,
    ) -> LedgerHold:
        payers = self._session.payers((self._name, *also))
        request = Request.of(guarantee, payers, bool(interactive))
        return reserve(self._session, key, request, by, question)

    def _hold(self, key: str, token: str | None) -> LedgerHold:
        return found(self._session, key, token)

    def what_if(self, guarantee: Guarantee) -> Preview:
        request = Request.of(guarantee, (self._name,), False)
        with self._session.read() as connection:
            (payer,), (asked,), refusal = answers.answer(connection, request)
        return preview_of(payer, asked, refusal)

    def can_afford(self, guarantee: Guarantee, n: int = 1) -> bool:
        times, request = positive_count(n=n), Request.of(guarantee, (self._name,), False)
        with self._session.read() as connection:
            return answers.affords(connection, self._name, request.guarantee, times)

    def holds(self) -> tuple[LedgerHold, ...]:
        return open_in(self._session, Seen.of((self._name,)))

    def history(self) -> Iterator[Event]:
        return History(self._session).events(self._name)

    def balance_history(self, last: int = 1000) -> tuple[tuple[Event, Statement], ...]:
        """Returns the last events of this budget, oldest first, each with the statement after it.

        Guarantee: each statement is the one that would have been read then.

        Args:
            last: the largest number of events; those before them cost no time.
        """
        with self._session.read() as connection:
            now = answers.balance_of(connection, self._name)
            parent = _parent_name(connection, now)
            found = balance_history(connection, now, positive_count(last=last))
            events = events_of(connection, [entry for entry, _ in found])
        statements = (statement_of(then, parent) for _, then in found)
        return tuple(zip(events, statements, strict=True))

    def parts(self, limit: int) -> tuple[str, ...]:
        """Returns the names of its first parts, as many as the limit at most."""
        with self._session.read() as connection:
            whole = answers.balance_of(connection, self._name)
            return tuple(budget_rows.parts(connection, whole, limit))

    # --------------------------------------------------------------------- administration

    def raise_cap(self, *, by: str, reason: str, **parameters: Price) -> None:
        """Sets other parameters of the kind (``epsilon=2``, ``rho=0.5``), for an administrator.

        A smaller cap is possible, too, down to the sum of spent and held. The parent holds the
        new cap; of a smaller one it gets epsilon back, not delta.

        Args:
            by: the name of who decides it.
            reason: the reason that is written down.
            parameters: the parameters that change; the others stay.

        Raises:
            BudgetError: below spent and held, or more than the parent has left.
            ParameterError: a parameter is refused; a plan's cap is the plan.
            SettlementError: the budget is closed.
        """
        said = why(by=by, reason=reason)
        self._session.write(lambda act: budget_acts.change_cap(act, self._name, parameters, said))

    def correct(self, *, epsilon: Price, delta: Price = 0, by: str, reason: str) -> None:
        """Adds a cost that arose elsewhere to the spent amount. Nothing is ever taken off.

        The budget of a block that nobody has touched is opened by it.

        Args:
            epsilon: the amount to add, in the budget's unit: in other kinds rho, mu^2, ...
            delta: the delta that is added.
            by: the name of who says so.
            reason: the reason that is written down.

        Raises:
            BudgetError: it does not fit: raise the cap first.
            SettlementError: the budget is closed.
        """
        more = Units.charged(
            ExactAmount(counted=exact(epsilon=epsilon), delta=exact_probability(delta=delta))
        )
        said = why(by=by, reason=reason)
        self._session.write(lambda act: budget_acts.correct(act, self._name, more, said))

    def record_audit(self, key: str, audit: AuditResult, *, by: str | None = None) -> Event:
        """Writes down an audit of this budget, or of a run in it, once for each key.

        Guarantee: no balance changes. The event has the verdict, the confidence, a line of text
        and the SHA-256 of the audit's JSON: keep that JSON yourself. The same audit again under its
        key is the event that is there. A closed budget may be audited, too.

        Args:
            key: the key of the run that was audited, or another name for this audit, of 1 to 200
                printable characters.
            audit: the result, such as :func:`tightbudget.audit.one_run` returns.
            by: the name of who records it, if not of who acts on this ledger; it is written down.

        Raises:
            KeyConflictError: another audit of this budget has this key.
            ParameterError: the key, the audit or the name is refused, or this is the budget of a
                block that nobody has touched.
            LedgerError: the ledger was moved to another database.
        """
        record, known, who = AuditRecord.of(audit), self._session.keyed(key), self._session.who(by)

        def act(act: Act) -> Event:
            (event,) = events_of(
                act.connection, [budget_acts.record_audit(act, self._name, known, record, who)]
            )
            return event

        return self._session.write(act)

    def close(self) -> Amount:
        """Ends this budget; epsilon that was not spent goes back to its parent, delta does not.

        Returns:
            the amount that was spent here (rounded up).

        Raises:
            SettlementError: something is still held here.
        """
        balance = self._session.write(lambda act: budget_acts.close_budget(act, self._name))
        return balance.spent.up(balance.rule.unit)

    def _balance(self) -> Balance:
        """Reads this budget's row."""
        with self._session.read() as connection:
            return answers.balance_of(connection, self._name)


def preview_of(payer: Balance, asked: Units, refusal: RefusedRequest | None) -> Preview:
    """Writes the answer that a request would get, with the balance of one budget that pays."""
    unit, left = payer.rule.unit, payer.left
    return Preview(
        fits=refusal is None,
        requested=asked.up(unit),
        left=left.down(unit),
        left_after=(left if refusal else left.minus(asked.least(left))).down(unit),
        message=None if refusal is None else refusal.message,
    )


def _parent_name(connection: Connection, balance: Balance) -> str | None:
    """Reads the name of the budget that another one is a part of."""
    whole = budget_rows.parent_of(connection, balance)
    return None if whole is None else whole.name


def statement_of(
    balance: Balance, parent: str | None, spent_in_parts: Units | None = None
) -> Statement:
    """Rounds a balance: caps, remainders and savings down, charges and holds up."""
    unit = balance.rule.unit
    return Statement(
        name=balance.name,
        kind=balance.kind,
        parent=parent,
        closed=balance.closed,
        cap=balance.cap.down(unit),
        spent=balance.spent.up(unit),
        held=balance.held.up(unit),
        left=balance.left.down(unit),
        saved=balance.saved.down(unit),
        spent_in_parts=None if spent_in_parts is None else spent_in_parts.up(unit),
    )
