"""The view of a ledger that a caller has: an analyst sees the token's budgets alone.

Requests for other budgets are answered as if these did not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request

from tightbudget.errors import BudgetExceeded, ParameterError, SettlementError
from tightbudget.ledger.block_set import Blocks
from tightbudget.ledger.budget import LedgerBudget
from tightbudget.ledger.hold import LedgerHold
from tightbudget.numerics.validate import refuse
from tightbudget.promises.kinds.blocks import BLOCKS
from tightbudget.promises.seen import Seen
from tightbudget.promises.text import printable
from tightbudget.promises.values import Event, Statement
from tightbudget.web.access import Caller, caller_of
from tightbudget.web.api.schemas import MOST
from tightbudget.web.refusals import HttpRefusal
from tightbudget.web.state import state_of


def budget_seen(request: Request, name: str) -> LedgerBudget:
    """Returns the budget of this name.

    Raises:
        HttpRefusal: there is no such budget for this caller.
    """
    printable(name=name)
    try:
        found = state_of(request).ledger.budget(name)
    except ParameterError as error:
        raise HttpRefusal(404, "ParameterError", str(error)) from None
    if not caller_of(request).sees(found.name):
        must = "be the name of a budget in this ledger"
        raise HttpRefusal(404, "ParameterError", str(refuse("budget", must, name)))
    return found


def blocks_seen(request: Request, name: str) -> Blocks:
    """Returns the set of blocks of this name.

    Raises:
        HttpRefusal: there is no such budget for this caller.
        ParameterError: the budget is no set of blocks.
    """
    return state_of(request).ledger.blocks(budget_seen(request, name).name)


def blocks_listed(
    request: Request, of: Blocks, *, after: str | None, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Lists the touched blocks of a set, and the quotas in it that the caller sees.

    Returns:
        budgets, the first opened first; and the name to go on after, if there are more.

    Raises:
        HttpRefusal: there is no budget ``after`` for this caller.
    """
    caller = caller_of(request)
    touched = Seen(sets=frozenset([of.name]), with_quotas=caller.budgets is None)
    if caller.budgets is not None:
        touched = touched.and_quotas_of(caller.name)
    return _listed(request, touched, after=after, limit=limit, blocks=True)


def names_seen(request: Request, names: Sequence[str]) -> list[str]:
    """Returns the names of budgets as the ledger spells them, all read at once.

    Raises:
        HttpRefusal: one of them is no budget for this caller; the first of them is told.
    """
    caller = caller_of(request)
    known = state_of(request).ledger.within(names)  # of which those in another spelling are none
    return [
        name if name in known and caller.sees(name) else budget_seen(request, name).name
        for name in names
    ]


def hold_touched(request: Request, key: str, token: str | int | None = None) -> LedgerHold:
    """Returns the reservation of this key, to be changed.

    Raises:
        HttpRefusal: there is no such reservation for this caller, or it charges others' budgets.
        BudgetExceeded: the reservation was refused.
    """
    caller, hold = caller_of(request), hold_found(request, key, token)
    if not all(map(caller.sees, hold.charges)):
        raise HttpRefusal(403, "NotAllowed", f"{key!r} charges budgets of others, too")
    return hold


def hold_found(request: Request, key: str, token: str | int | None = None) -> LedgerHold:
    """Returns the reservation of this key.

    Raises:
        HttpRefusal: there is no such reservation for this caller.
        BudgetExceeded: the reservation was refused.
    """
    caller = caller_of(request)
    none = HttpRefusal(404, "SettlementError", f"there is no reservation {key!r}")
    try:
        hold = state_of(request).ledger.hold(printable(key=key), token=token)
    except BudgetExceeded as error:
        if not caller.sees(error.budget):
            raise none from None
        raise
    except SettlementError:
        raise none from None
    if not any(map(caller.sees, hold.charges)):
        raise none
    return hold


def without_others(request: Request, error: SettlementError) -> SettlementError:
    """Removes from a refusal the keys of reservations in budgets of others."""
    caller, ledger = caller_of(request), state_of(request).ledger
    conversation = "another interactive mechanism is open"
    talking = ledger.open_holds(interactive=True)
    of_others = (hold for hold in talking if not any(map(caller.sees, hold.charges)))
    if str(error).startswith(conversation) and any(repr(h.key) in str(error) for h in of_others):
        return SettlementError(f"{conversation}, in a budget of others")
    return error


def statement_seen(statement: Statement, caller: Caller) -> dict[str, Any]:
    """A budget, as part of one that the caller sees, or of none."""
    content = statement.to_dict()
    if not caller.sees(content["parent"]):
        content["parent"] = None  # guard: whole-hidden
    return content


def hold_seen(hold: LedgerHold, caller: Caller) -> dict[str, Any]:
    """A reservation, with its charges to budgets that the caller sees."""
    return _charging(hold.to_dict(), caller)


def _charging(content: dict[str, Any], caller: Caller) -> dict[str, Any]:
    charges = {name: charge for name, charge in content["charges"].items() if caller.sees(name)}
    if len(charges) < len(content["charges"]):  # guard: other-payers-hidden
        content |= {"charges": charges, "told": None}
    return content


def holds_seen(
    request: Request, budget: str | None = None, *, after: str | None = None, limit: int = MOST
) -> tuple[list[dict[str, Any]], str | None]:
    """Lists open reservations of one budget or of all; also returns the key to go on after.

    Raises:
        HttpRefusal: there is no such budget for this caller.
        SettlementError: there is no reservation ``after``.
    """
    caller, ledger = caller_of(request), state_of(request).ledger
    seen = caller.budgets if budget is None else _with_blocks(budget_seen(request, budget))
    # guard: one-more-is-asked
    found = ledger.open_holds(budgets=seen, after=after, limit=limit + 1)
    shown = [_charging(hold.to_dict(), caller) for hold in found[:limit]]
    return shown, shown[-1]["key"] if len(found) > limit else None


def _with_blocks(budget: LedgerBudget) -> Seen:
    """A budget, with all blocks if it is a set of them."""
    name = frozenset([budget.name])
    return Seen(names=name, sets=name if budget.kind == BLOCKS.name else frozenset())


def statements_seen(
    request: Request, *, after: str | None = None, limit: int = MOST, blocks: bool = True
) -> tuple[list[dict[str, Any]], str | None]:
    """Lists budgets, each after its parent; also returns the name to go on after.

    Args:
        request: of the caller, who sees these budgets.
        after: the name of the budget after which the list begins.
        limit: the largest number of budgets.
        blocks: whether the single blocks of sets are listed.

    Raises:
        HttpRefusal: there is no budget ``after`` for this caller.
    """
    budgets = caller_of(request).budgets
    return _listed(request, budgets, after=after, limit=limit, blocks=blocks)


def _listed(
    request: Request, budgets: Seen | None, *, after: str | None, limit: int, blocks: bool
) -> tuple[list[dict[str, Any]], str | None]:
    """Lists some budgets, or all; see :func:`statements_seen`."""
    caller, ledger = caller_of(request), state_of(request).ledger
    if after is not None:
        budget_seen(request, after)
    found = ledger.statements(budgets=budgets, after=after, limit=limit + 1, blocks=blocks)
    shown = [statement_seen(statement, caller) for statement in found[:limit]]
    return shown, shown[-1]["name"] if len(found) > limit else None


def event_seen(event: Event, caller: Caller) -> dict[str, Any]:
    """An event, without the names of budgets that the caller does not see."""
    content = event.to_dict()
    if caller.budgets is not None:  # guard: event-budgets-hidden
        # "told" names all budgets of the reservation, also those of others
        details = {name: value for name, value in event.details.items() if name != "told"}
        if not caller.sees(details.get("parent")):
            details.pop("parent", None)
        content["details"] = details
    return content
