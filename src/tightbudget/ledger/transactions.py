"""The acts of the protocol, each one transaction: reserve -> start -> settle.

What an act reads it reads under the ledger's lock, so nothing changes between a check and what
follows from it. It writes its events, and with them the balances that they change: an act that
did not come to its end has changed nothing. The database has the same limits once more, as
constraints and triggers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, insert, update

from tightbudget.errors import (
    BudgetError,
    FencingError,
    KeyConflictError,
    LedgerCorruptError,
    ParameterError,
    SettlementError,
)
from tightbudget.ledger import queries
from tightbudget.ledger.chosen_blocks import Chosen, untouched
from tightbudget.ledger.queries import Balance, Charge, Reservation
from tightbudget.ledger.schema import tokens
from tightbudget.ledger.unit_of_work import Act
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.guarantee import Cell, OutputDP
from tightbudget.output_dp.pricing import BudgetRule
from tightbudget.promises.chain import canonical, digest
from tightbudget.promises.kinds import KINDS, openable, rule_of
from tightbudget.promises.kinds.blocks import BLOCKS, BlockSet
from tightbudget.promises.pricing import Stored, content_of, guarantee_of
from tightbudget.promises.secret import opens
from tightbudget.promises.stored_words import EventKind, ReservationState
from tightbudget.promises.text import check_encodable
from tightbudget.promises.units import NOTHING, Units

__all__ = [
    "RefusedRequest",
    "Request",
    "Terms",
    "add_token",
    "affords",
    "answer",
    "balance_of",
    "change_cap",
    "close_budget",
    "correct",
    "expire",
    "explain_tokens",
    "forfeit",
    "open_budget",
    "refusal_of",
    "reserve",
    "revoke_token",
    "runs_of",
    "settle",
    "start",
    "void",
]

Why = Mapping[str, str]  # who did it, and for what reason if one was given

_SHOWN = 10  # holders that a refusal names: enough to ask somebody, and a message of one screen


@dataclass(frozen=True, kw_only=True)
class Request:
    """A reservation that a caller asks for.

    Attributes:
        guarantee: read back from the body, so that the stored guarantee is the charged one.
        budgets: the names of those that pay, in alphabetical order.
        interactive: says whether the mechanism answers more than once.
        body: the whole request as one text, equal for equal requests.
        chosen: the set of blocks that some of the budgets belong to, or None. Those of them that
            are not there yet are made by its rule.
    """

    guarantee: Any
    budgets: tuple[str, ...]
    interactive: bool
    body: str
    chosen: Chosen | None = None

    @property
    def without_rho(self) -> str:
        """The body as it was written before guarantees had a rho.

        A run that was reserved then is found by its key after an upgrade, at the price that it was
        reserved at.
        """
        body = json.loads(self.body)
        body["guarantee"].get("output_dp", {}).pop("rho", None)
        return canonical(body)

    @staticmethod
    def of(
        guarantee: Any, names: Sequence[str], interactive: bool, chosen: Chosen | None = None
    ) -> Request:
        """Brings a request into its one form.

        Raises:
            ParameterError: no budget, or one of them twice; the guarantee is none.
        """
        payers = () if isinstance(names, str) else tuple(sorted(names))
        if not payers or len(set(payers)) != len(payers):
            raise refuse("budgets", "be a list of one or more names, each once", names)
        for cell in guarantee.cells if isinstance(guarantee, OutputDP) else ():
            check_encodable(cell=cell)  # guard: declared-cells-whole
        content = content_of(guarantee)
        body = {"budgets": payers, "guarantee": content, "interactive": interactive}
        return Request(
            guarantee=guarantee_of(content),
            budgets=payers,
            interactive=interactive,
            body=canonical(body),
            chosen=chosen,
        )


@dataclass(frozen=True, kw_only=True)
class RefusedRequest:
    """A request that does not fit into a budget, as it was answered the first time.

    Attributes:
        message: the refusal in words.
        budget: the name of the first budget that it does not fit into.
        unit: the unit that this budget counts in.
        requested: the worst-case price of the request.
        left: the units that the budget had left.
        held: the units that the budget held for others.
        holds: the largest holders, by key or by name of a part.
    """

    message: str
    budget: str
    unit: str
    requested: Units
    left: Units
    held: Units
    holds: tuple[str, ...]


# ------------------------------------------------------------------------- the protocol


# Proof: proofs/account.v, theorems never_settled, account_private, account_both_directions
def reserve(act: Act, *, key: str, request: Request, why: Why) -> Reservation | RefusedRequest:
    """Holds the worst-case price of a request, in all its budgets or in none.

    The same key and request again get the same answer, also if that was a refusal.

    Raises:
        KeyConflictError: the key was used for another request.
    """
    known = queries.reservation(act.connection, key)
    if known is not None:
        if known.body not in (request.body, request.without_rho):  # guard: key-with-one-body
            raise KeyConflictError(f"the key {key!r} was used before, for something else")
        return refusal_of(act.connection, known) or known
    payers, asked, refusal = answer(act.connection, request)
    if refusal is not None:
        return _refuse(act, key, request, refusal, why)  # guard: refusals-recorded
    return _hold(act, key, request, _opened(act, request, payers), asked, why)


# Proof: proofs/account.v, theorems account_private, account_both_directions
def start(act: Act, *, key: str, token: str, why: Why) -> Reservation:
    """Marks that the mechanism runs, once; writes down the digest of the run's token.

    Raises:
        SettlementError: the reservation was started before, or is over.
    """
    hold = act.known(key)
    if hold.state != ReservationState.RESERVED:  # guard: started-once
        raise SettlementError(f"a hold is started once, and {key!r} is {hold}")
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
    asked = _asked([charge.rule for charge in hold.charges], hold.guarantee, cell)
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


# ---------------------------------------------------------------------- what reserve does


def answer(
    connection: Connection, request: Request
) -> tuple[list[Balance], list[Units], RefusedRequest | None]:
    """Returns who pays, the units that each is asked for, and the first refusal of them, if any.

    Raises:
        ParameterError: an unknown budget, parts of each other, or a guarantee of another kind.
        SettlementError: a budget is closed, or another interactive mechanism is open.
    """
    payers = _payers(connection, request)
    asked = _asked([payer.rule for payer in payers], request.guarantee, None)
    _check_open(payers)
    _check_apart(connection, payers)
    if request.interactive:  # guard: one-conversation-with-delta
        if request.chosen is not None and any(units.delta for units in asked):
            # the theorem is about everything within one whole, and blocks have none
            raise refuse("interactive", "be False on blocks unless delta = 0", True)
        _check_conversations(connection, payers, asked)
    return payers, asked, _refusal(connection, payers, asked, request)


def _payers(connection: Connection, request: Request) -> list[Balance]:
    """Reads those who pay; a block that was never touched is made up, under a number below 0.

    Raises:
        ParameterError: there is no such budget, or blocks are charged without their set.
        SettlementError: the set of blocks is closed.
    """
    chosen = request.chosen
    if chosen is None:
        payers = queries.balances_of(connection, request.budgets)
        for payer in payers:
            if KINDS[payer.kind].by_set:  # guard: blocks-by-their-set
                raise refuse(
                    "budgets", "name no block: a range of them is reserved as a whole", payer.name
                )
        return payers
    own, known = chosen.set, queries.known_balances(connection, request.budgets)
    _check_open([queries.balance(connection, own.name)])
    found = []
    for number, name in enumerate(request.budgets, start=1):
        if name in known:
            found.append(known[name])
        elif name.startswith(own.beginning):
            found.append(chosen.fresh(name, -number))
        else:
            raise refuse("budget", "be the name of a budget in this ledger", name)
    for payer in found:
        if KINDS[payer.kind].by_set and not own.has(payer.name):
            raise refuse("also", "name no block of another set, and no such set", payer.name)
    return [chosen.usable(payer) for payer in found]


def _opened(act: Act, request: Request, payers: Sequence[Balance]) -> Sequence[Balance]:
    """Opens the blocks that were made up, and returns all who pay."""
    chosen, fresh = request.chosen, [payer.name for payer in payers if payer.id < 0]
    if chosen is None or not fresh:
        return payers
    made = act.open_by_rule([chosen.fresh(name, -1) for name in fresh])
    return [payer._replace(id=made.get(payer.name, payer.id)) for payer in payers]


def _asked(rules: Sequence[BudgetRule], guarantee: Stored, cell: Cell | None) -> list[Units]:
    """Returns the units that each rule charges for a cell, or for None at the worst-case price.

    Each rule is asked once: ten thousand budgets on the same terms have one rule.
    """
    costs: dict[int, Units] = {}  # by the address of a rule, all of which are in the list
    for rule in rules:
        if id(rule) not in costs:
            costs[id(rule)] = Units.charged(rule.cost(guarantee, cell))
    return [costs[id(rule)] for rule in rules]


def balance_of(connection: Connection, name: str) -> Balance:
    """Reads a budget; that of a block or quota that nobody has touched, as it would be opened.

    Raises:
        ParameterError: there is no budget of this name, and no set gives it to one.
    """
    return queries.find_balance(connection, name) or _untouched(connection, name)


def _untouched(connection: Connection, name: str) -> Balance:
    """Makes up the budget of a block or quota that nobody has touched, under the number -1.

    Raises:
        ParameterError: no set gives this name to a budget.
    """
    of = queries.find_balance(connection, name.partition("[")[0])
    if of is not None and of.kind == BLOCKS.name:
        own = BlockSet.of_text(of.name, of.parameters)
        if own.names_block(name) or (own.quota_epsilon is not None and own.names_quota(name)):
            return untouched(own, name, -1)
    return queries.balance(connection, name)


def affords(connection: Connection, name: str, guarantee: Stored, times: int) -> bool:
    """Says whether a budget has enough for so many runs at their worst-case price."""
    balance = balance_of(connection, name)
    each = Units.charged(balance.rule.cost(guarantee, None))
    if balance.closed:
        return False
    if balance.rule.declared is not None:
        declared = queries.declared(connection, balance)
        return _missing(declared, guarantee, times) is None
    before_last = each.times(times - 1)
    left = balance.left
    return before_last.fits(left) and each.nearly_fits(left.minus(before_last))


def _check_open(payers: Sequence[Balance]) -> None:
    """Refuses to charge or change a closed budget.

    Raises:
        SettlementError: one of them is closed.
    """
    for payer in payers:
        if payer.closed:  # guard: closed-budget-pays-nothing
            raise SettlementError(f"the budget {payer.name!r} is closed")


def _check_apart(connection: Connection, payers: Sequence[Balance]) -> None:
    """Refuses to charge a budget beside its own part, whose cap it holds already.

    Raises:
        ParameterError: one of them is a part of another.
    """
    if len(payers) == 1:
        return
    names = {payer.id: payer.name for payer in payers}
    around = queries.parents_of(connection, payers)
    for payer in payers:
        whole = payer.parent
        while whole is not None:
            if whole in names:
                raise ParameterError(
                    f"budgets must not be parts of each other: {payer.name!r} is a part of"
                    f" {names[whole]!r}, which holds its whole cap already"
                )
            whole = around[whole]  # guard: payers-apart-further-up


# Proof: proofs/conversations.v, theorems side_by_side, capped
# Proof: proofs/beside.v, theorem one_beside
def _check_conversations(
    connection: Connection, payers: Sequence[Balance], asked: Sequence[Units]
) -> None:
    """Refuses interactive mechanisms side by side unless each of them has delta = 0.

    The theorem is about everything within one whole, so the mechanisms of its other parts count.

    Raises:
        SettlementError: another interactive mechanism is open.
    """
    open_in = queries.conversations(connection, {payer.root for payer in payers})
    for payer, units in zip(payers, asked, strict=True):
        others = open_in.get(payer.root, [])
        lines = [(payer.rule, units)]
        lines += [(charge.rule, charge.units) for other in others for charge in other.charges]
        # guard: conversations-without-delta
        if others and not all(rule.side_by_side and not units.delta for rule, units in lines):
            raise SettlementError(
                "another interactive mechanism is open: settle"
                f" {named([other.key for other in others])} first (or all must have delta = 0)"
            )


def _refusal(
    connection: Connection, payers: Sequence[Balance], asked: Sequence[Units], request: Request
) -> RefusedRequest | None:
    """Returns the refusal of the first budget that cannot pay; None if all can."""
    if request.chosen is not None:
        return _refusal_of_blocks(connection, payers, asked, request.chosen)
    plans = [payer for payer in payers if payer.rule.declared is not None]
    declared = queries.declared_in(connection, plans)
    for payer, units in zip(payers, asked, strict=True):
        if payer.rule.declared is not None:
            missing = _missing(declared.get(payer.id, {}), request.guarantee)
            if missing is not None:
                message = f"{missing} in the plan {payer.name!r}"
                return _refused(payer, units, message, holds=())
        elif not units.nearly_fits(payer.left):
            return _too_much(connection, payer, units)
    return None


def _refusal_of_blocks(
    connection: Connection, payers: Sequence[Balance], asked: Sequence[Units], chosen: Chosen
) -> RefusedRequest | None:
    """Returns the refusal of the tightest budget that cannot pay, which names the next ones, too.

    A plan is not among the payers: it takes no prices by cell, and blocks take nothing else.
    """
    short = [
        (payer.left, payer.name, payer, units)
        for payer, units in zip(payers, asked, strict=True)
        if not units.nearly_fits(payer.left)
    ]
    if not short:
        return None
    short.sort(key=lambda one: one[:2])
    _, _, tightest, units = short[0]
    refusal = _too_much(connection, tightest, units)
    message, unit = refusal.message, tightest.rule.unit
    if len(short) > 1:
        # whoever reads the history of the set is not told of budgets beside it
        blocks = [one for one in short[1:] if chosen.set.is_block(one[1])][: _SHOWN - 1]
        others = ", ".join(f"{name!r} {left.down(unit)}" for left, name, _, _ in blocks)
        message += f"; {len(short)} of {len(payers)} budgets have too little left"
        message += f": next {others}" if others else ""
    if chosen.set.unlocking is not None:
        message += f"; a block unlocks over {chosen.set.unlocking} days"
    # a block that was never touched is in no history
    budget = chosen.set.name if tightest.id < 0 else tightest.name
    return replace(refusal, message=message, budget=budget)


def _too_much(connection: Connection, payer: Balance, asked: Units) -> RefusedRequest:
    """Writes the refusal of a budget that has less left than it is asked for."""
    unit, holders = payer.rule.unit, queries.holders(connection, payer)
    message = (
        f"requested {asked.up(unit)} of {payer.name!r}; left {payer.left.down(unit)};"
        f" held {payer.held.up(unit)}"
    )
    if holders:
        message += f" by {named(holders)}"
    return _refused(payer, asked, message, holds=tuple(holders[:_SHOWN]))


def _refused(
    payer: Balance, asked: Units, message: str, *, holds: tuple[str, ...]
) -> RefusedRequest:
    """Writes the refusal of a budget, with its balance at this moment."""
    return RefusedRequest(
        message=message,
        budget=payer.name,
        unit=payer.rule.unit,
        requested=asked,
        left=payer.left,
        held=payer.held,
        holds=holds,
    )


def _missing(declared: Mapping[str, tuple[int, int]], wanted: Stored, times: int = 1) -> str | None:
    """Says which step a plan has not enough of for so many runs; None if it has.

    ``declared`` has for each step how often it may run, and how often it was reserved.
    """
    for step, runs in runs_of(wanted).items():
        most, used = declared.get(step, (0, 0))
        if runs * times > most - used:  # guard: steps-counted
            return f"requested {runs * times} runs of {step}; {most - used} left of {most} declared"
    return None


def runs_of(plan: Stored) -> dict[str, int]:
    """Counts how often each step of a plan runs, by the step's canonical description."""
    counted: dict[str, int] = {}
    for table in content_of(plan)["steps"]:
        runs = table.pop("times")
        step = canonical(table)
        counted[step] = counted.get(step, 0) + runs
    return counted


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
    plans = [payer.id for payer in payers if payer.rule.declared is not None]
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
    entry = queries.entry(connection, known.id)
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


def named(holders: Sequence[str]) -> str:
    """Lists those who hold something: the first few by name, the others by their number."""
    more = len(holders) - _SHOWN
    return ", ".join(map(repr, holders[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


# ---------------------------------------------------------------------- access tokens


def add_token(act: Act, row: Mapping[str, Any], why: Why) -> None:
    """Adds an access token; the event has the digest of its row, and no hash of its secret.

    Raises:
        ParameterError: one of its budgets is not there.
    """
    for budget in json.loads(row["budgets"]):
        queries.balance(act.connection, budget)
    act.connection.execute(insert(tokens), dict(row))
    act.log(EventKind.TOKEN_CREATED, details={**queries.said_of_token(row), **why})


def revoke_token(act: Act, id: str, why: Why) -> dict[str, Any] | None:
    """Ends an access token, once, and returns its row; None if there is no such token."""
    if act.connection.execute(_REVOKE, {"of": id, "at": act.at}).rowcount:
        act.log(EventKind.TOKEN_REVOKED, details={"id": id, "revoked": act.at, **why})
    return queries.token(act.connection, id)


def explain_tokens(act: Act, why: Why) -> None:
    """Writes the events of access tokens that came into the ledger without any."""
    created = queries.entries(act.connection, queries.Which(kind=EventKind.TOKEN_CREATED))
    known = {json.loads(entry.details)["id"] for entry in created}
    for row in queries.tokens_in_order(act.connection):
        if row["id"] not in known:
            said = queries.said_of_token(row)
            act.log(EventKind.TOKEN_CREATED, details={**said, **why})
            if row["revoked"] is not None:
                said = {"id": row["id"], "revoked": row["revoked"]}
                act.log(EventKind.TOKEN_REVOKED, details={**said, **why})


_REVOKE = (
    update(tokens)
    .where(tokens.c.id == bindparam("of"), tokens.c.revoked.is_(None))
    .values(revoked=bindparam("at"))
)


# ------------------------------------------------------------------------------ budgets


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms on which a budget is opened.

    Attributes:
        kind: the kind of the budget.
        parameters: the kind's parameters as one text.
        cap: the most that spent and held may come to.
    """

    kind: str
    parameters: str
    cap: Units

    @staticmethod
    def of(kind: str, parameters: Mapping[str, Any]) -> Terms:
        """Works out the terms; for a plan this asks the engine.

        Raises:
            ParameterError: the kind or a parameter is refused.
        """
        of = openable(kind)
        text = of.settings(parameters)
        return Terms(kind=kind, parameters=text, cap=of.cap_of(rule_of(kind, text)))

    @staticmethod
    def of_blocks(declared: BlockSet) -> Terms:
        """Works out the terms of the budget that a set of blocks has for itself."""
        cap = BLOCKS.cap_of(rule_of(BLOCKS.name, declared.text))
        return Terms(kind=BLOCKS.name, parameters=declared.text, cap=cap)

    @property
    def rule(self) -> BudgetRule:
        """The rule that prices guarantees in such a budget."""
        return rule_of(self.kind, self.parameters)


def _check_name(connection: Connection, name: str, terms: Terms) -> None:
    """Keeps the names that a set of blocks gives for its blocks and quotas.

    Raises:
        ParameterError: there is such a set, or this is one, and there is such a budget.
    """
    if terms.kind == BLOCKS.name:
        taken = queries.beginning_with(connection, f"{name}[", 1)
        if taken:
            must = f"be another: there is a budget {taken[0]!r}, as its blocks would be named"
            raise refuse("name", must, name)
    elif "[" in name:
        of = queries.find_balance(connection, name.partition("[")[0])
        if of is not None and of.kind == BLOCKS.name:  # guard: names-of-blocks-kept
            must = f"be another: so the set {of.name!r} names its blocks"
            raise refuse("name", must, name)


# Proof: proofs/account.v, theorems nothing_lost, account_private, account_both_directions
def open_budget(act: Act, *, name: str, terms: Terms, parent: str | None) -> Balance:
    """Makes a budget; its cap is held in its parent until it is closed.

    Opened again with the same terms, it is the one that is there.

    Raises:
        KeyConflictError: there is a budget of this name on other terms.
        ParameterError: the name is one that a set of blocks gives.
    """
    said = {
        "kind": terms.kind, "parameters": json.loads(terms.parameters), "parent": parent
    }  # fmt: skip
    known = queries.find_balance(act.connection, name)
    if known is not None:
        opened = queries.entry(act.connection, known.id)
        if opened is None or opened.details != canonical(said):
            raise KeyConflictError(f"there is a budget {name!r} already, on other terms")
        return known
    _check_name(act.connection, name, terms)
    whole = None if parent is None else queries.balance(act.connection, parent)
    if whole is not None:
        _check_part(act.connection, whole, terms, name)
    number = act.log(EventKind.OPENED, budget=name, units=terms.cap, details=said)
    declared = terms.rule.declared
    balance = Balance.opened(
        number,
        name,
        kind=terms.kind,
        parameters=terms.parameters,
        whole=whole,
        cap=terms.cap,
        spent=terms.cap if KINDS[terms.kind].charged_whole else NOTHING,
    )
    act.add_budget(balance)
    if declared is not None:
        act.declare(number, runs_of(declared))
    if whole is not None:
        act.exchange(whole.id, held=terms.cap)  # guard: part-held-in-whole
        act.log(EventKind.LENT, budget=whole.name, units=terms.cap, details={"part": name})
    return balance


# Proof: proofs/account.v, theorems nothing_lost, account_private, account_both_directions
def change_cap(act: Act, name: str, changed: Mapping[str, Any], why: Why) -> Balance:
    """Sets other parameters of a budget, and holds its new cap in its parent.

    Raises:
        BudgetError: the cap is below spent and held, or more than the parent has left.
        ParameterError: a parameter is refused.
        SettlementError: the budget or its parent is closed.
    """
    balance = queries.balance(act.connection, name)
    _check_open([balance])
    kind = KINDS[balance.kind]
    if kind.by_set:  # such a kind is not openable either: this names the reason
        raise ParameterError(f"{name!r} belongs to a set of blocks, which keeps its terms")
    if balance.rule.declared is not None or kind.fixed & changed.keys():
        raise ParameterError(f"{name!r} has a plan or an order, and keeps it")
    terms = Terms.of(balance.kind, {**kind.given(balance.parameters), **changed})
    taken = balance.spent.plus(balance.held)
    if not taken.fits(terms.cap):  # guard: cap-covers-spent
        unit = balance.rule.unit
        raise BudgetError(
            f"the cap of {name!r} cannot be {terms.cap.down(unit)}: spent and held are"
            f" {taken.up(unit)}",
            requested=terms.cap.down(unit),
            left=balance.left.down(unit),
            held=balance.held.up(unit),
        )
    more = terms.cap.minus(balance.cap)
    whole = queries.parent_of(act.connection, balance)
    if whole is not None:
        # guard: larger-part-fits-into-whole
        _check_lent(act.connection, whole, more.most(NOTHING), name)
        # of what a part no longer has, epsilon goes back to the whole and delta is gone
        # guard: smaller-part-returns-no-delta
        act.exchange(whole.id, held=more, spent=Units(0, max(0, -more.delta)))
        act.log(EventKind.LENT, budget=whole.name, units=terms.cap, details={"part": name})
    act.change_budget(
        balance.id,
        parameters=terms.parameters,
        cap_epsilon=terms.cap.epsilon,
        cap_delta=terms.cap.delta,
    )
    said = {"parameters": json.loads(terms.parameters), **why}
    act.log(EventKind.CAPPED, budget=name, units=terms.cap, details=said)
    return queries.balance(act.connection, name)


# Proof: proofs/account.v, theorems nothing_lost, account_private, account_both_directions
def correct(act: Act, name: str, more: Units, why: Why) -> Balance:
    """Adds to the spent units of a budget, for what happened elsewhere; never takes any off.

    A block that nobody has touched is opened by it: what was lost may have touched it first.

    Raises:
        BudgetError: it does not fit into what is left.
        SettlementError: the budget, or its set of blocks, is closed.
    """
    balance = balance_of(act.connection, name)
    if balance.id < 0:
        _check_open([queries.balance(act.connection, name.partition("[")[0])])
        balance = balance._replace(id=act.open_by_rule([balance])[name])
    _check_open([balance])
    unit = balance.rule.unit
    if not more.fits(balance.left):
        raise BudgetError(
            f"{more.up(unit)} more does not fit into {name!r}: left {balance.left.down(unit)};"
            " raise its cap first",
            requested=more.up(unit),
            left=balance.left.down(unit),
            held=balance.held.up(unit),
        )
    act.exchange(balance.id, spent=more)
    act.log(EventKind.CORRECTED, budget=name, units=more, details=why)
    return queries.balance(act.connection, name)


# Proof: proofs/account.v, theorems nothing_lost, account_private, account_both_directions
def close_budget(act: Act, name: str) -> Balance:
    """Ends a budget; the epsilon that was not spent goes back to its parent, delta does not.

    Raises:
        SettlementError: a reservation or a part still holds something.
    """
    balance = queries.balance(act.connection, name)
    if balance.closed:
        return balance
    holders = queries.holders(act.connection, balance)
    if holders:
        raise SettlementError(
            f"{name!r} is still held by {named(holders)}: settle, forfeit or close them first"
        )
    act.log(EventKind.CLOSED, budget=name, units=balance.spent, details={})
    act.change_budget(balance.id, closed=1)
    whole = queries.parent_of(act.connection, balance)
    if whole is not None:
        charge = Units(balance.spent.epsilon, balance.cap.delta)  # guard: part-returns-no-delta
        saved = balance.saved.epsilon
        act.exchange(whole.id, held=NOTHING.minus(balance.cap), spent=charge, saved=saved)
        act.log(
            EventKind.RETURNED,
            budget=whole.name,
            units=charge,
            details={"part": name, "saved": saved},
        )
    return queries.balance(act.connection, name)


def _check_part(connection: Connection, whole: Balance, terms: Terms, name: str) -> None:
    """Refuses a part that is counted in another way than its whole, or does not fit into it.

    Raises:
        ParameterError: the kinds, or the orders of two Renyi budgets, differ.
        BudgetError: the whole has less left than the part's cap.
    """
    kind = KINDS[terms.kind]
    if not kind.fits_in(terms.parameters, KINDS[whole.kind], whole.parameters):
        raise ParameterError(
            f"{name!r} must be of the kind of {whole.name!r}, {whole.kind}, got {terms.kind}"
        )
    _check_lent(connection, whole, terms.cap, name)  # guard: part-fits-into-whole


def _check_lent(connection: Connection, whole: Balance, more: Units, name: str) -> None:
    """Refuses to hold more in a budget, for a part of this name, than it has left.

    Raises:
        BudgetError: it does not fit.
        SettlementError: the budget is closed.
    """
    _check_open([whole])
    if not more.fits(whole.left):
        unit, holders = whole.rule.unit, queries.holders(connection, whole)
        raise BudgetError(
            f"requested {more.up(unit)} of {whole.name!r} for {name!r};"
            f" left {whole.left.down(unit)}; held {whole.held.up(unit)}"
            + (f" by {named(holders)}" if holders else ""),
            requested=more.up(unit),
            left=whole.left.down(unit),
            held=whole.held.up(unit),
        )
