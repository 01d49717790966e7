"""The acts on a run: reserve, start, settle, forfeit, void, expire."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection

from tightbudget.errors import (
    FencingError,
    KeyConflictError,
    LedgerCorruptError,
    SettlementError,
)
from tightbudget.ledger.acts.answers import answer, asked_of
from tightbudget.ledger.acts.requests import RefusedRequest, Request, Why, runs_of
from tightbudget.ledger.acts.unit_of_work import Act
from tightbudget.ledger.rows import event_rows, run_rows
from tightbudget.ledger.rows.budget_rows import Balance
from tightbudget.ledger.rows.run_rows import Charge, Reservation
from tightbudget.output_dp.guarantee import Cell
from tightbudget.promises.chain import canonical, digest
from tightbudget.promises.secret import opens
from tightbudget.promises.stored_words import EventKind, ReservationState
from tightbudget.promises.units import NOTHING, Units


# Proof: proofs/account.v, theorems never_settled, account_private, account_both_directions
def reserve(act: Act, *, key: str, request: Request, why: Why) -> Reservation | RefusedRequest:
    """Holds the worst-case price of a request, in all its budgets or in none.

    The same key and request again get the same answer, also if that was a refusal. ``why`` has the
    question, too, where one was said.

    Raises:
        KeyConflictError: the key was used for another request, or for another question.
    """
    known = run_rows.reservation(act.connection, key)
    if known is not None:
        if known.body not in (request.body, request.without_rho):  # guard: key-with-one-body
            raise KeyConflictError(f"the key {key!r} was used before, for something else")
        _check_question(act, known, why)
        return refusal_of(act.connection, known) or known
    payers, asked, refusal = answer(act.connection, request)
    if refusal is not None:
        return _refuse(act, key, request, refusal, why)  # guard: refusals-recorded
    return _hold(act, key, request, _opened(act, request, payers), asked, why)


def _check_question(act: Act, known: Reservation, why: Why) -> None:
    """Refuses another question under a key; one that was said on one side alone is no other.

    Raises:
        KeyConflictError: the history has another question beside this key.
    """
    asked = why.get("question")
    before = None if asked is None else event_rows.question(act.connection, known.id)
    if before is not None and asked != before:  # guard: key-with-one-question
        raise KeyConflictError(
            f"the key {known.key!r} was used before, for the question {before!r}, got {asked!r}"
        )


# Proof: proofs/account.v, theorems account_private, account_both_directions
def start(act: Act, *, key: str, token: str, why: Why) -> Reservation:
    """Marks that the mechanism runs, once; writes down the digest of the run's token.

    Raises:
        SettlementError: the reservation was started before, or is over.
    """
    hold = act.known(key)
    if hold.state != ReservationState.RESERVED:  # guard: started-once
        raise SettlementError(f"a hold is started once, and {key!r} is {hold}{_ways(hold)}")
    said = {"token_sha256": digest(token), **why}  # guard: token-digest-in-history
    lines = [(charge.name, NOTHING) for charge in hold.charges]
    number = act.log_each(EventKind.STARTED, lines, key=key, details=said)
    return act.advance(hold, ReservationState.STARTED, started=number, token=digest(token))


# Proof: proofs/filter.v, theorem composition
# Proof: proofs/account.v, theorems delta_stays_charged, account_private, account_both_directions
def settle(act: Act, *, key: str, token: str | None, cell: Cell, why: Why) -> Reservation:
    """Charges the price of a cell, by the prices stored when the run was reserved.

    Epsilon comes back, delta does not; a cell that was not declared costs the sup.

    Raises:
        FencingError: the token is not that of the start, or the run was forfeited meanwhile.
        SettlementError: the run was not started, was settled with another cell, or is void.
    """
    hold, name = act.known(key), canonical(cell)
    if (hold.state, hold.cell) == (ReservationState.SETTLED, name):
        return hold
    mine = token is not None and opens(token, hold.token)
    if hold.state == ReservationState.FORFEITED and mine:  # guard: forfeited-stays-charged
        raise FencingError(
            f"the run {key!r} was overruled: it is forfeited, at the worst-case price"
        )
    if hold.state != ReservationState.STARTED:  # guard: settled-from-started
        raise SettlementError(f"{key!r} is {hold}, and cannot be settled with cell {name}")
    if not mine:  # guard: only-own-token-settles
        got = None if token is None else "another"  # which may be the secret of another run
        raise FencingError(f"{key!r} is settled with the token of its start, got {got}")
    costs = {}
    asked = asked_of([charge.rule for charge in hold.charges], hold.guarantee, cell)
    for charge, wanted in zip(hold.charges, asked, strict=True):
        price = wanted.least(charge.units)  # guard: no-more-than-held
        costs[charge.name] = Units(price.epsilon, charge.units.delta)  # guard: delta-stays
    return act.end(EventKind.SETTLED, hold, costs, cell=name, details=why)


# Proof: proofs/account.v, theorems never_settled, account_private, account_both_directions
def forfeit(act: Act, *, key: str, why: Why) -> Reservation:
    """Charges the worst-case price, whatever came out. Anyone may: it frees nothing.

    Raises:
        SettlementError: the reservation was settled, or is void.
    """
    hold = act.known(key)
    if hold.state == ReservationState.FORFEITED:
        return hold
    if not hold.is_open:
        raise SettlementError(f"{key!r} is {hold}, and cannot be forfeited")
    costs = {charge.name: charge.units for charge in hold.charges}
    return act.end(EventKind.FORFEITED, hold, costs, details=why)


# Proof: proofs/account.v, theorems account_private, account_both_directions
def void(act: Act, *, key: str, why: Why) -> Reservation:
    """Frees a whole reservation: the mechanism has not run, and now it never will.

    Raises:
        SettlementError: the reservation was started or is over.
    """
    return _free(act, EventKind.VOID, key=key, why=why)


def expire(act: Act, *, key: str, why: Why) -> Reservation:
    """Frees, for an administrator, a reservation that was left lying before its start.

    Raises:
        SettlementError: the reservation was started or is over.
    """
    return _free(act, EventKind.EXPIRED, key=key, why=why)


def _free(act: Act, kind: EventKind, *, key: str, why: Why) -> Reservation:
    """Ends a reservation that was not started at no price, under an event of the kind."""
    hold = act.known(key)
    if hold.state == ReservationState.VOID:
        return hold
    if hold.state != ReservationState.RESERVED:  # guard: freed-before-start-alone
        raise SettlementError(f"{key!r} is {hold}: only what was not started is freed")
    plans = [charge.budget for charge in hold.charges if charge.rule.declared is not None]
    if plans:
        act.use(plans, {step: -runs for step, runs in runs_of(hold.guarantee).items()})
    return act.end(kind, hold, {charge.name: NOTHING for charge in hold.charges}, details=why)


def _ways(hold: Reservation) -> str:
    """Says how a run that was started can end, where another start of it is refused."""
    if hold.state != ReservationState.STARTED:
        return ""
    return (
        f": with the token of that start, ledger.hold({hold.key!r}, token=...) settles it; without "
        f"the token, ledger.hold({hold.key!r}).forfeit() charges its worst case"
    )


def _opened(act: Act, request: Request, payers: Sequence[Balance]) -> Sequence[Balance]:
    """Opens the blocks that were made up, and returns all who pay."""
    chosen, fresh = request.chosen, [payer.name for payer in payers if payer.id < 0]
    if chosen is None or not fresh:
        return payers
    made = act.open_by_rule([chosen.fresh(name, -1) for name in fresh])
    return [payer._replace(id=made.get(payer.name, payer.id)) for payer in payers]


def _refuse(
    act: Act, key: str, request: Request, refusal: RefusedRequest, why: Why
) -> RefusedRequest:
    """Writes a refusal down: the key stays refused."""
    said = {
        "digest": digest(request.body),
        "interactive": request.interactive,
        "message": refusal.message,
        "unit": refusal.unit,
        "left": refusal.left,
        "held": refusal.held,
        "holds": refusal.holds,
        **why,
    }
    number = act.log(
        EventKind.REFUSED,
        budget=refusal.budget,
        units=refusal.requested,
        key=key,
        details=said,
    )
    act.add_reservation(
        _new(
            number=number,
            key=key,
            request=request,
            state=ReservationState.REFUSED,
            told=refusal.message,
            lines=(),
        )
    )
    return refusal


def _hold(
    act: Act,
    key: str,
    request: Request,
    payers: Sequence[Balance],
    asked: Sequence[Units],
    why: Why,
) -> Reservation:
    """Holds the units that each payer is asked for, or all that it has left."""
    lines, told = [], []
    for payer, wanted in zip(payers, asked, strict=True):
        units = wanted.least(payer.left)
        lines.append(Charge(payer.id, payer.name, payer.rule, units))
        if units != wanted:
            unit = payer.rule.unit
            told.append(
                f"granted {units.down(unit)} of {payer.name!r}, which is all that is left, for the"
                f" {wanted.up(unit)} requested: run it with no more"
            )
    plans = [line.budget for line in lines if line.rule.declared is not None]
    if plans:
        act.use(plans, runs_of(request.guarantee))
    said = "; ".join(told) or None
    body = {"digest": digest(request.body), "interactive": request.interactive}
    details = {**body, "told": said, **why}
    held = [(line.name, line.units) for line in lines]
    hold = _new(
        number=act.log_each(EventKind.RESERVED, held, key=key, details=details),
        key=key,
        request=request,
        state=ReservationState.RESERVED,
        told=said,
        lines=tuple(lines),
    )
    act.add_reservation(hold)
    return hold


def _new(
    *,
    number: int,
    key: str,
    request: Request,
    state: ReservationState,
    told: str | None,
    lines: tuple[Charge, ...],
) -> Reservation:
    """Makes a reservation that was answered just now, by the event of this number."""
    return Reservation(
        id=number,
        key=key,
        body=request.body,
        digest=digest(request.body),
        interactive=request.interactive,
        state=state,
        started=None,
        token=None,
        cell=None,
        told=told,
        charges=lines,
    )


def refusal_of(connection: Connection, known: Reservation) -> RefusedRequest | None:
    """Reads the refusal of a reservation from the history; None if it was not refused.

    Raises:
        LedgerCorruptError: its event is missing.
    """
    if known.state != ReservationState.REFUSED:
        return None
    entry = event_rows.entry(connection, known.id)
    if entry is None or entry.budget is None:
        raise LedgerCorruptError(f"the refusal of {known.key!r} is not in the history")
    said = json.loads(entry.details)
    return RefusedRequest(
        message=said["message"],
        budget=entry.budget,
        unit=said["unit"],
        requested=Units(entry.epsilon, entry.delta),
        left=Units(*said["left"]),
        held=Units(*said["held"]),
        holds=tuple(said["holds"]),
    )
