"""Reservations of a ledger in a database: how they are made, listed, run and ended."""

from __future__ import annotations

from tightbudget.errors import BudgetExceeded, SettlementError
from tightbudget.ledger.acts import run_acts
from tightbudget.ledger.acts.requests import RefusedRequest, Request
from tightbudget.ledger.rows import event_rows, run_rows
from tightbudget.ledger.rows.run_rows import Reservation, Summary
from tightbudget.ledger.session import LedgerSession
from tightbudget.output_dp.account import State
from tightbudget.output_dp.amount import Amount
from tightbudget.output_dp.guarantee import Cell, cell_from_json
from tightbudget.promises.hold import BaseHold
from tightbudget.promises.pricing import Stored
from tightbudget.promises.secret import chosen_or_new, opens
from tightbudget.promises.seen import Seen
from tightbudget.promises.text import printable, question_text, storable_cell
from tightbudget.promises.values import Event, OpenHold, ReservationView, token_text


class LedgerHold(BaseHold[Reservation]):
    """One reservation, as it was when this object last asked the ledger.

    ``by`` of a method is the name of who does it, if not of who acts on this ledger; it is written
    down.

    Args:
        session: the ledger.
        reservation: the ledger's last answer about it.
        token: the token that settles the run, or None if this process does not have it.
        asked: the question of the run; empty where it was not read yet.
    """

    def __init__(
        self,
        session: LedgerSession,
        reservation: Reservation,
        token: str | None,
        asked: tuple[str | None, ...] = (),
    ) -> None:
        self._session = session  # first, so that a deep copy is refused in the words of its store
        super().__init__(reservation, token)
        self._asked = asked

    @property
    def _view(self) -> ReservationView:
        """The reservation in the form that all ledgers share; its guarantee is read apart."""
        found = self._is
        return ReservationView(
            key=found.key,
            state=State(found.state),
            interactive=found.interactive,
            cell=None if found.cell is None else cell_from_json(found.cell),
            told=found.told,
            token=self._token,
            charges={charge.name: charge.units.up(charge.rule.unit) for charge in found.charges},
            guarantee=None,
            # read by the property alone: an act asks for the key, and reads nothing else
            question=self._asked[0] if self._asked else None,
        )

    @property
    def question(self) -> str | None:
        """The question that this run answers; None where nobody has said one."""
        if not self._asked:
            with self._session.read() as connection:
                self._asked = (event_rows.question(connection, self._is.id),)
        return self._asked[0]

    @property
    def guarantee(self) -> Stored:
        """The guarantee that was reserved for, as the ledger has stored it.

        Raises:
            LedgerCorruptError: somebody has changed the stored text.
        """
        return self._is.guarantee

    @property
    def since(self) -> str:
        """The time of the start or, before it, of the reservation, by the ledger's clock."""
        return self._event().at

    @property
    def by(self) -> str | None:
        """The name of the one who started this run or, before that, reserved it.

        None where an earlier version did not write it down. Over HTTP it is the name of a token;
        beside the database, a name that nobody checks.
        """
        return self._event().details.get("by")

    def _event(self) -> Event:
        """Reads the event of the start or, before it, of the reservation."""
        with self._session.read() as connection:
            entry = event_rows.entry(connection, self._is.started or self._is.id)
        assert entry is not None, "a reservation has the numbers of its own events"
        return Event.of(entry)

    def _is_started_with(self, token: str) -> bool:
        return opens(token, self._is.token)

    def start(self, *, token: str | None = None, by: str | None = None) -> None:
        secret, who = chosen_or_new(token), self._session.who(by)  # guard: token-is-secret
        self._is = self._session.write(
            lambda act: run_acts.start(act, key=self.key, token=secret, why=who)
        )
        self._token = secret

    def settle(self, cell: Cell, *, by: str | None = None) -> Amount:
        who, named = self._session.who(by), storable_cell(cell)
        self._is = self._session.write(
            lambda act: run_acts.settle(act, key=self.key, token=self._token, cell=named, why=who)
        )
        return self.charge

    def forfeit(self, *, by: str | None = None, reason: str | None = None) -> Amount:
        who = self._session.who(by)
        if reason is not None:
            who["reason"] = printable(reason=reason)
        self._is = self._session.write(lambda act: run_acts.forfeit(act, key=self.key, why=who))
        return self.charge

    def void(self, *, by: str | None = None) -> Amount:
        who = self._session.who(by)
        self._is = self._session.write(lambda act: run_acts.void(act, key=self.key, why=who))
        return self.charge


def reserve(
    session: LedgerSession, key: str, request: Request, by: str | None, question: str | None
) -> LedgerHold:
    """Holds what a request asks for.

    Raises:
        BudgetExceeded: it does not fit. The key stays refused.
        KeyConflictError: the key was used for something else, also for another question.
        SettlementError: a budget is closed, or another interactive mechanism is open.
        ParameterError: the key, a budget or the question is refused.
    """
    asked = question_text(question)
    known, who = session.keyed(key), session.who(by)
    if asked is not None:
        who["question"] = asked
    found = session.write(lambda act: run_acts.reserve(act, key=known, request=request, why=who))
    return LedgerHold(session, granted(found), None)


def found(session: LedgerSession, key: str, token: str | int | None) -> LedgerHold:
    """Reads the reservation of a key.

    Raises:
        SettlementError: there is none.
        BudgetExceeded: it was refused.
        ParameterError: the token is neither a text nor a number.
    """
    known, shown = session.keyed(key), token_text(token)
    with session.read() as connection:
        reservation = run_rows.reservation(connection, known)
        if reservation is None:
            raise SettlementError(f"there is no reservation {key!r}")
        answer = run_acts.refusal_of(connection, reservation) or reservation
        asked = event_rows.question(connection, reservation.id)
    return LedgerHold(session, granted(answer), shown, (asked,))


def open_in(session: LedgerSession, seen: Seen | None) -> tuple[LedgerHold, ...]:
    """Reads the reservations that are not ended and charge one of these budgets, or all."""
    with session.read() as connection:
        found = run_rows.open_reservations(connection, seen)
        asked = event_rows.questions(connection, [one.key for one in found])
    return tuple(LedgerHold(session, one, None, (asked.get(one.key),)) for one in found)


def listed(summary: Summary) -> OpenHold:
    """Rounds the units of a listed reservation up."""
    return OpenHold(
        key=summary.key,
        state=State(summary.state),
        interactive=summary.interactive,
        told=summary.told,
        since=summary.since,
        by=summary.by,
        question=summary.question,
        charges={charge.name: charge.units.up(charge.rule.unit) for charge in summary.charges},
    )


def granted(answer: Reservation | RefusedRequest) -> Reservation:
    """Returns the reservation that was answered.

    Raises:
        BudgetExceeded: the request was refused.
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
