"""The acts on budgets: open, change a cap, correct, record an audit, close."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from tightbudget.errors import (
    BudgetError,
    KeyConflictError,
    ParameterError,
    SettlementError,
)
from tightbudget.ledger.acts.answers import balance_of, check_open
from tightbudget.ledger.acts.requests import Why, named, runs_of
from tightbudget.ledger.acts.unit_of_work import Act
from tightbudget.ledger.rows import budget_rows, event_rows, run_rows
from tightbudget.ledger.rows.budget_rows import Balance
from tightbudget.ledger.rows.event_rows import Which
from tightbudget.numerics.validate import refuse
from tightbudget.output_dp.pricing import BudgetRule
from tightbudget.promises.audited import AuditRecord
from tightbudget.promises.chain import Entry, canonical
from tightbudget.promises.kinds import KINDS, openable, rule_of
from tightbudget.promises.kinds.blocks import BLOCKS, BlockSet
from tightbudget.promises.stored_words import EventKind
from tightbudget.promises.units import NOTHING, Units


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


def check_name(connection: Connection, name: str, terms: Terms) -> None:
    """Keeps the names that a set of blocks gives for its blocks and quotas.

    Raises:
        ParameterError: there is such a set, or this is one, and there is such a budget.
    """
    if terms.kind == BLOCKS.name:
        taken = budget_rows.beginning_with(connection, f"{name}[", 1)
        if taken:
            must = f"be another: there is a budget {taken[0]!r}, as its blocks would be named"
            raise refuse("name", must, name)
    elif "[" in name:
        of = budget_rows.find_balance(connection, name.partition("[")[0])
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
    known = budget_rows.find_balance(act.connection, name)
    if known is not None:
        opened = event_rows.entry(act.connection, known.id)
        if opened is None or opened.details != canonical(said):
            raise KeyConflictError(f"there is a budget {name!r} already, on other terms")
        return known
    check_name(act.connection, name, terms)
    whole = None if parent is None else budget_rows.balance(act.connection, parent)
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
    balance = budget_rows.balance(act.connection, name)
    check_open([balance])
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
    whole = budget_rows.parent_of(act.connection, balance)
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
    return budget_rows.balance(act.connection, name)


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
        check_open([budget_rows.balance(act.connection, name.partition("[")[0])])
        balance = balance._replace(id=act.open_by_rule([balance])[name])
    check_open([balance])
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
    return budget_rows.balance(act.connection, name)


def record_audit(act: Act, name: str, key: str, record: AuditRecord, why: Why) -> Entry:
    """Writes down an audit of a budget, once for each key, and returns its event.

    No balance changes; a budget that is closed, or a key that nothing was reserved under, may be
    audited, too.

    Raises:
        KeyConflictError: another audit of this budget was written down under the key.
        ParameterError: there is no such budget, or it is that of a block that nobody has touched.
    """
    balance = balance_of(act.connection, name)
    if balance.id < 0:
        must = "have been touched before it is audited: this block or quota was not"
        raise refuse("budget", must, name)
    which = Which(budget=balance.name, key=key, kind=EventKind.AUDITED)
    for known in event_rows.entries(act.connection, which, limit=1):
        before = AuditRecord.of_details(json.loads(known.details))
        if before.audit_sha256 != record.audit_sha256:  # guard: audit-key-with-one-audit
            raise KeyConflictError(
                f"the key {key!r} was used before for another audit of {balance.name!r}"
                f" ({before.said}): give this one a key of its own"
            )
        return known  # guard: audit-written-once
    said = {**dataclasses.asdict(record), **why}
    number = act.log(EventKind.AUDITED, budget=balance.name, key=key, details=said)
    (written,) = event_rows.entries(act.connection, which, after=number - 1)
    return written


# Proof: proofs/account.v, theorems nothing_lost, account_private, account_both_directions
def close_budget(act: Act, name: str) -> Balance:
    """Ends a budget; the epsilon that was not spent goes back to its parent, delta does not.

    Raises:
        SettlementError: a reservation or a part still holds something.
    """
    balance = budget_rows.balance(act.connection, name)
    if balance.closed:
        return balance
    holders = run_rows.holders(act.connection, balance)
    if holders:
        raise SettlementError(
            f"{name!r} is still held by {named(holders)}: settle, forfeit or close them first"
        )
    act.log(EventKind.CLOSED, budget=name, units=balance.spent, details={})
    act.change_budget(balance.id, closed=1)
    whole = budget_rows.parent_of(act.connection, balance)
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
    return budget_rows.balance(act.connection, name)


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
    check_open([whole])
    if not more.fits(whole.left):
        unit, holders = whole.rule.unit, run_rows.holders(connection, whole)
        raise BudgetError(
            f"requested {more.up(unit)} of {whole.name!r} for {name!r};"
            f" left {whole.left.down(unit)}; held {whole.held.up(unit)}"
            + (f" by {named(holders)}" if holders else ""),
            requested=more.up(unit),
            left=whole.left.down(unit),
            held=whole.held.up(unit),
        )
