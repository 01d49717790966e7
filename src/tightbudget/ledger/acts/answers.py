"""The answer to a request: who pays, how much each is charged, and the first refusal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from tightbudget.errors import (
    ParameterError,
    SettlementError,
)
from tightbudget.ledger.acts.requests import (
    _SHOWN,
    RefusedRequest,
    Request,
    missing_runs,
    named,
    refused_request,
)
from tightbudget.ledger.chosen_blocks import Chosen, untouched
from tightbudget.ledger.rows import budget_rows, run_rows
from tightbudget.ledger.rows.budget_rows import Balance
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.guarantee import Cell
from tightbudget.output_dp.pricing import BudgetRule
from tightbudget.promises.kinds import KINDS
from tightbudget.promises.kinds.blocks import BLOCKS, BlockSet
from tightbudget.promises.pricing import Stored
from tightbudget.promises.units import Units


def answer(
    connection: Connection, request: Request
) -> tuple[list[Balance], list[Units], RefusedRequest | None]:
    """Returns who pays, the units that each is asked for, and the first refusal of them, if any.

    Raises:
        ParameterError: an unknown budget, parts of each other, or a guarantee of another kind.
        SettlementError: a budget is closed, or another interactive mechanism is open.
    """
    payers = _payers(connection, request)
    asked = asked_of([payer.rule for payer in payers], request.guarantee, None)
    check_open(payers)
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
        payers = budget_rows.balances_of(connection, request.budgets)
        for payer in payers:
            if KINDS[payer.kind].by_set:  # guard: blocks-by-their-set
                raise refuse(
                    "budgets", "name no block: a range of them is reserved as a whole", payer.name
                )
        return payers
    own, known = chosen.set, budget_rows.known_balances(connection, request.budgets)
    check_open([budget_rows.balance(connection, own.name)])
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


def asked_of(rules: Sequence[BudgetRule], guarantee: Stored, cell: Cell | None) -> list[Units]:
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
    return budget_rows.find_balance(connection, name) or _untouched(connection, name)


def _untouched(connection: Connection, name: str) -> Balance:
    """Makes up the budget of a block or quota that nobody has touched, under the number -1.

    Raises:
        ParameterError: no set gives this name to a budget.
    """
    of = budget_rows.find_balance(connection, name.partition("[")[0])
    if of is not None and of.kind == BLOCKS.name:
        own = BlockSet.of_text(of.name, of.parameters)
        if own.names_block(name) or (own.quota_epsilon is not None and own.names_quota(name)):
            return untouched(own, name, -1)
    return budget_rows.balance(connection, name)


def affords(connection: Connection, name: str, guarantee: Stored, times: int) -> bool:
    """Says whether a budget has enough for so many runs at their worst-case price."""
    balance = balance_of(connection, name)
    each = Units.charged(balance.rule.cost(guarantee, None))
    if balance.closed:
        return False
    if balance.rule.declared is not None:
        steps = budget_rows.steps_of(connection, balance)
        return missing_runs(steps, guarantee, times) is None
    before_last = each.times(times - 1)
    left = balance.left
    return before_last.fits(left) and each.nearly_fits(left.minus(before_last))


def check_open(payers: Sequence[Balance]) -> None:
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
    around = budget_rows.parents_of(connection, payers)
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
    open_in = run_rows.conversations(connection, {payer.root for payer in payers})
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
    steps = budget_rows.steps_of_each(connection, plans)
    numbers = {plan.id for plan in plans}
    for payer, units in zip(payers, asked, strict=True):
        if payer.id in numbers:
            missing = missing_runs(steps.get(payer.id, {}), request.guarantee)
            if missing is not None:
                message = f"{missing} in the plan {payer.name!r}"
                return refused_request(payer, units, message, holds=())
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
    unit, holders = payer.rule.unit, run_rows.holders(connection, payer)
    message = (
        f"requested {asked.up(unit)} of {payer.name!r}; left {payer.left.down(unit)};"
        f" held {payer.held.up(unit)}"
    )
    if holders:
        message += f" by {named(holders)}"
    return refused_request(payer, asked, message, holds=tuple(holders[:_SHOWN]))
