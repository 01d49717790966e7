"""Every guard of the ledger is taken away once, and something true must become false."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from sqlalchemy import bindparam, update
from tests.guards.mutants import Mutation, each, lose_a_truth

import tightbudget as tb
from tightbudget.ledger import chain, queries, shape, store, transactions, verification
from tightbudget.ledger import unit_of_work as act_module
from tightbudget.ledger.schema import budgets
from tightbudget.ledger.session import Session
from tightbudget.ledger.tokens import Tokens
from tightbudget.ledger.unit_of_work import Act
from tightbudget.ledger.units import Units
from tightbudget.output_dp.amount import ExactAmount

COIN = tb.OutputDP({"number": 0.1, "nothing": 0}, delta=Fraction(1, 10))


@contextmanager
def opened() -> Iterator[tuple[tb.Ledger, tb.LedgerBudget]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger,
    ):
        yield ledger, ledger.open_budget("data", epsilon=1, delta=1)


_ANY = (tb.BudgetError, tb.SettlementError, tb.ParameterError)


def refused(deed: Callable[[], Any], error: type[Exception] | tuple[Any, ...] = _ANY) -> bool:
    try:
        deed()
    except error:
        return True
    return False


def run(budget: tb.LedgerBudget, key: str, cell: str | None) -> None:
    hold = budget.reserve(key, COIN)
    hold.start()
    if cell is None:
        hold.forfeit()
    else:
        hold.settle(cell)


def truth(test: Callable[[tb.Ledger, tb.LedgerBudget], bool]) -> Callable[[], bool]:
    """Something that must be true of a fresh ledger; to be stopped is to be noticed."""

    def true() -> bool:
        with opened() as (ledger, data):
            try:
                return test(ledger, data)
            except tb.LedgerError:
                return False

    return true


# ----------------------------------------------------------------------- what must be true


def charges_go_up() -> bool:
    third = ExactAmount(Fraction(1, 3), Fraction(1, 3))
    return third.fits(Units.charged(third).exact())


def caps_go_down() -> bool:
    return Units.granted(ExactAmount(Fraction(2, 3), Fraction(2, 3))).exact().counted <= Fraction(
        2, 3
    )


@truth
def the_same_key_is_one_charge(_: tb.Ledger, data: tb.LedgerBudget) -> bool:
    return refused(
        lambda: (data.reserve("k", COIN), data.reserve("k", tb.OutputDP.from_dp(0.2)))
    ) and bool(data.held.epsilon == 0.1)


@truth
def a_refused_key_stays_refused(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    hold = data.reserve("k", tb.OutputDP.from_dp(1))
    asked = [refused(lambda: data.reserve("k2", COIN))]
    hold.void()
    return all([*asked, refused(lambda: data.reserve("k2", COIN))])


@truth
def a_run_starts_once(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    data.reserve("k", COIN).start()
    return refused(ledger.hold("k").start)


@truth
def only_its_token_settles_a_run(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    data.reserve("k", COIN).start()
    return refused(lambda: ledger.hold("k").settle("nothing"))


@truth
def nobody_guesses_a_token(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    data.reserve("k", COIN).start()
    guesses = {str(shown) for event in ledger.events() for shown in vars(event).values()}
    guesses |= {str(shown) for event in ledger.events() for shown in event.details.values()}
    return all(
        refused(lambda: ledger.hold("k", token=guess).settle("nothing"))  # noqa: B023
        for guess in guesses
    )


@truth
def every_event_of_a_run_names_somebody(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    hold = data.reserve("k", COIN, by="ada")
    hold.start(by="bob")
    hold.settle("nothing", by="carl")
    return [event.details["by"] for event in ledger.events(key="k")] == ["ada", "bob", "carl"]


@truth
def what_was_forfeited_stays_charged(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    hold = data.reserve("k", COIN)
    hold.start()
    ledger.hold("k").forfeit()
    return refused(lambda: hold.settle("nothing")) and data.spent.epsilon == 0.1


@truth
def one_cell_is_settled(_: tb.Ledger, data: tb.LedgerBudget) -> bool:
    hold = data.reserve("k", COIN)
    hold.start()
    hold.settle("number")
    return refused(lambda: hold.settle("nothing"))


@truth
def what_was_started_is_not_freed(_: tb.Ledger, data: tb.LedgerBudget) -> bool:
    hold = data.reserve("k", COIN)
    hold.start()
    return refused(hold.void)


@truth
def delta_never_comes_back(_: tb.Ledger, data: tb.LedgerBudget) -> bool:
    run(data, "k", "nothing")
    return data.spent.delta == 0.1


@truth
def no_charge_is_above_what_was_held(_: tb.Ledger, data: tb.LedgerBudget) -> bool:
    """The last third is granted a unit less; then its price is a unit less."""
    for key in ("1", "2", "3"):
        hold = data.reserve(key, tb.OutputDP({"any": Fraction(1, 3)}))
        hold.start()
        hold.settle("any")
    return data.spent.epsilon == 1.0


@truth
def a_part_gives_back_no_delta(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    ledger.open_budget("part", epsilon=1, delta=0.5, parent=data).close()
    return data.spent.delta == 0.5


@truth
def a_smaller_part_gives_back_no_delta(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    part = ledger.open_budget("part", epsilon=1, delta=0.5, parent=data)
    part.raise_cap(delta=0.25, by="eve", reason="less")
    return data.left.delta == 0.5


@truth
def a_part_is_held_in_its_whole(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    ledger.open_budget("part", epsilon=1, delta=0.5, parent=data)
    return refused(lambda: data.reserve("k", COIN))


@truth
def a_part_fits_into_its_whole(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    run(data, "k", None)
    return refused(lambda: ledger.open_budget("part", epsilon=1, parent=data))


@truth
def a_larger_part_fits_into_its_whole(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    part = ledger.open_budget("part", epsilon=0.5, parent=data)
    return refused(lambda: part.raise_cap(epsilon=2, by="eve", reason="more"))


@truth
def a_budget_that_is_held_stays_open(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    data.reserve("k", tb.OutputDP.from_dp(0))
    return refused(data.close)


@truth
def a_whole_with_parts_stays_open(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    ledger.open_budget("part", epsilon=0, parent=data)
    return refused(data.close)


@truth
def a_closed_budget_pays_nothing(_: tb.Ledger, data: tb.LedgerBudget) -> bool:
    data.close()
    return refused(lambda: data.reserve("k", tb.OutputDP.from_dp(0)))


@truth
def parts_of_each_other_do_not_pay_together(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    part = ledger.open_budget("part", epsilon=0.5, delta=0.5, parent=data)
    ledger.open_budget("small", epsilon=0.2, delta=0.5, parent=part)
    return refused(lambda: ledger.reserve("k", COIN, ["small", "data"]))


@truth
def one_conversation_with_delta_at_a_time(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    for name in ("ada", "bob"):
        ledger.open_budget(name, epsilon=0.5, delta=0.5, parent=data)
    pure = tb.OutputDP.from_dp(0.1)
    ledger.reserve("A", COIN, ["ada"], interactive=True)
    return refused(lambda: ledger.reserve("B", pure, ["bob"], interactive=True))


@truth
def a_plan_costs_at_least_its_epsilon(ledger: tb.Ledger, _: tb.LedgerBudget) -> bool:
    for sigma in (2.0, 3.0, 4.0, 5.0, 6.0, 7.0):
        noise = tb.Gaussian(sigma) * 1
        plan = ledger.open_budget(f"{sigma}", kind="plan", plan=noise, delta=1e-6)
        upper = noise.epsilon(1e-6).upper
        if Fraction(str(plan.spent.epsilon)) < Fraction(upper):
            return False
    return True


@truth
def a_step_runs_as_often_as_declared(ledger: tb.Ledger, _: tb.LedgerBudget) -> bool:
    noise = tb.Gaussian(2.0)
    ledger.open_budget("plan", kind="plan", plan=noise * 2, delta=1e-6)
    ledger.reserve("1", noise * 2, ["plan"])
    return refused(lambda: ledger.reserve("2", noise, ["plan"]))


@truth
def a_cap_covers_what_is_spent(_: tb.Ledger, data: tb.LedgerBudget) -> bool:
    run(data, "k", None)
    return refused(lambda: data.raise_cap(epsilon=0.05, by="eve", reason="less"))


@truth
def changed_prices_are_not_used(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
    """Nobody shops for a cell after the mechanism has run."""
    queries._guarantee.cache_clear()
    hold = data.reserve("k", COIN)
    hold.start()

    def cheaper(connection: Any) -> None:
        connection.exec_driver_sql("DROP TRIGGER reservations_advance")
        connection.exec_driver_sql(
            "UPDATE reservations SET body = replace(body, '\"1/10\"]', '\"1/99\"]')"
        )

    ledger._store.write(cheaper)
    try:
        hold.settle("number")
    except tb.LedgerCorruptError:
        return data.held.epsilon == 0.1
    return False


def replayed(change: str) -> Callable[[], bool]:
    """A change behind the ledger's back is found by ``verify``."""

    @truth
    def true(ledger: tb.Ledger, data: tb.LedgerBudget) -> bool:
        data.reserve("k", COIN)
        run(data, "k2", "nothing")
        refused(lambda: data.reserve("k3", tb.OutputDP.from_dp(2)))
        data.reserve("k4", tb.OutputDP.from_dp(0), interactive=True)
        token, _ = Tokens(ledger).create("vera", "viewer", lasts=timedelta(days=1))
        Tokens(ledger).revoke(token.id)

        def deed(connection: Any) -> None:
            # rolled back with all else, were it not for the commit at the end
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            for trigger in (
                *("reservations_advance", "budgets_spend", "events_stay"),
                *("tokens_stay", "tokens_remain"),
            ):
                sql = connection.exec_driver_sql(
                    f"SELECT sql FROM sqlite_master WHERE name = '{trigger}'"
                ).scalar_one()
                connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
                changes.append(sql)
            for statement in change.split(" ;; "):
                connection.exec_driver_sql(statement)
            for sql in changes:
                connection.exec_driver_sql(sql)

        changes: list[str] = []
        ledger._store.write(deed)
        return refused(ledger.verify, tb.LedgerCorruptError)

    return true


A_TOKEN = (
    "INSERT INTO tokens (id, name, role, budgets, created, expires, hash)"
    " VALUES ('0', 'eve', 'administrator', '[]', '2026', '2027', '0')"
)


def the_loser_of_a_race_is_refused() -> bool:
    """Two ask for all that is left, and each has read the balance before the other one writes.

    Or would have: where a write begins with the lock, the second one reads afterwards.
    """
    answers = []
    both_have_read, read = threading.Barrier(2), queries.balance

    def slow(connection: Any, name: str) -> queries.Balance:
        found = read(connection, name)
        with contextlib.suppress(threading.BrokenBarrierError):
            both_have_read.wait(0.5)
        return found

    with opened() as (ledger, data), pytest.MonkeyPatch.context() as patch:
        other = tb.Ledger(ledger.url).budget(data.name)
        patch.setattr(queries, "balance", slow)
        # what comes before the transaction begins: turns of threads, and of processes
        patch.setattr(store.Store, "_in_turn", lambda _: contextlib.nullcontext())
        patch.setattr(store.Store, "_alone", lambda _: contextlib.nullcontext())

        def ask(key: str, budget: tb.LedgerBudget) -> None:
            try:
                budget.reserve(key, tb.OutputDP.from_dp(1))
                answers.append("granted")
            except (tb.BudgetExceeded, tb.LedgerError) as error:
                answers.append(type(error).__name__)

        threads = [threading.Thread(target=ask, args=each) for each in (("a", data), ("b", other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sorted(answers) == ["BudgetExceeded", "granted"]


def a_fork_is_seen() -> bool:
    head = chain.Head(1, "0" * 63 + "1")
    with opened() as (ledger, _):
        return refused(lambda: ledger.check(head), tb.LedgerCorruptError)


def a_restored_backup_is_seen() -> bool:
    with opened() as (ledger, data):
        before = ledger.head()
        data.reserve("k", COIN)
        after = ledger.head()
    with opened() as (other, _):
        return before.sequence == 1 and refused(lambda: other.check(after), tb.LedgerCorruptError)


MUTATIONS = [
    Mutation(
        "writes begin with the lock",
        store,
        "_begin",
        (('deed = connection.get_execution_options().get("deed", "write")', 'deed = "read"'),),
        the_loser_of_a_race_is_refused,
    ),
    Mutation(
        "charges up",
        Units,
        "charged",
        (("math.ceil(amount.counted", "math.floor(amount.counted"),),
        charges_go_up,
    ),
    Mutation(
        "delta up",
        Units,
        "charged",
        (("math.ceil(amount.delta", "math.floor(amount.delta"),),
        charges_go_up,
    ),
    Mutation(
        "caps down",
        Units,
        "granted",
        (("math.floor(amount.counted", "math.ceil(amount.counted"),),
        caps_go_down,
    ),
    Mutation(
        "key and body",
        transactions,
        "reserve",
        (("known.body != request.body", "False"),),
        the_same_key_is_one_charge,
    ),
    Mutation(
        "refusals last",
        transactions,
        "reserve",
        (("return _refuse(act, key, request, refusal, why)", "return refusal"),),
        a_refused_key_stays_refused,
    ),
    Mutation(
        "started once",
        transactions,
        "start",
        (("hold.state != ReservationState.RESERVED", "not hold.is_open"),),
        a_run_starts_once,
    ),
    Mutation(
        "the token",
        transactions,
        "settle",
        (("if not mine:", "if False:"),),
        only_its_token_settles_a_run,
    ),
    Mutation(
        "the token is a secret",
        tb.LedgerHold,
        "start",
        (("token, who = new_secret()", "token, who = str(self._is.id + 1)"),),
        nobody_guesses_a_token,
    ),
    Mutation(
        "the history has its digest",
        transactions,
        "start",
        (('"token_sha256": digest(token)', '"token_sha256": token'),),
        nobody_guesses_a_token,
    ),
    Mutation(
        "who did it",
        Session,
        "who",
        (("self._by if by is None else printable(by=by)", "self._by"),),
        every_event_of_a_run_names_somebody,
    ),
    Mutation(
        "settled from started",
        transactions,
        "settle",
        (
            ("if hold.state == ReservationState.FORFEITED and", "if False and"),
            ("if hold.state != ReservationState.STARTED:", "if False:"),
        ),
        what_was_forfeited_stays_charged,
    ),
    Mutation(
        "one cell",
        transactions,
        "settle",
        (("if hold.state != ReservationState.STARTED:", "if False:"),),
        one_cell_is_settled,
    ),
    Mutation(
        "freed before the start alone",
        transactions,
        "_free",
        (("hold.state != ReservationState.RESERVED", "not hold.is_open"),),
        what_was_started_is_not_freed,
    ),
    Mutation(
        "delta stays",
        transactions,
        "settle",
        (("Units(price.epsilon, charge.units.delta)", "Units(price.epsilon, 0)"),),
        delta_never_comes_back,
    ),
    Mutation(
        "no more than was held",
        transactions,
        "settle",
        ((".least(charge.units)", ""),),
        no_charge_is_above_what_was_held,
    ),
    Mutation(
        "delta of a part",
        transactions,
        "close_budget",
        (("Units(balance.spent.epsilon, balance.cap.delta)", "balance.spent"),),
        a_part_gives_back_no_delta,
    ),
    Mutation(
        "delta of a smaller part",
        transactions,
        "change_cap",
        (("spent=Units(0, max(0, -more.delta))", "spent=NOTHING"),),
        a_smaller_part_gives_back_no_delta,
    ),
    Mutation(
        "held in the whole",
        transactions,
        "open_budget",
        (("act.exchange(whole.id, held=terms.cap)", "pass"),),
        a_part_is_held_in_its_whole,
    ),
    Mutation(
        "what fits inside",
        transactions,
        "_check_part",
        (("_check_lent(connection, whole, terms.cap, name)", "pass"),),
        a_part_fits_into_its_whole,
    ),
    Mutation(
        "what fits inside later",
        transactions,
        "change_cap",
        (("_check_lent(act.connection, whole, more.most(NOTHING), name)", "pass"),),
        a_larger_part_fits_into_its_whole,
    ),
    Mutation(
        "nobody holds a closed budget",
        queries,
        "holders",
        (("(_HOLDING, _PARTS)", "(_PARTS,)"),),
        a_budget_that_is_held_stays_open,
    ),
    Mutation(
        "no part of a closed budget",
        queries,
        "holders",
        (("(_HOLDING, _PARTS)", "(_HOLDING,)"),),
        a_whole_with_parts_stays_open,
    ),
    Mutation(
        "closed is closed",
        transactions,
        "_check_open",
        (("if payer.closed:", "if False:"),),
        a_closed_budget_pays_nothing,
    ),
    Mutation(
        "apart, also further up",
        transactions,
        "_check_apart",
        (("            whole = queries.parent_of(connection, whole)", "            whole = None"),),
        parts_of_each_other_do_not_pay_together,
    ),
    Mutation(
        "conversations",
        transactions,
        "answer",
        (("if request.interactive:", "if False:"),),
        one_conversation_with_delta_at_a_time,
    ),
    Mutation(
        "conversations without delta",
        transactions,
        "_check_conversations",
        (("and not units.delta for", "for"),),
        one_conversation_with_delta_at_a_time,
    ),
    Mutation(
        "a plan is a charge",
        transactions.Terms,
        "of",
        (('if kind == "plan"', "if False"),),
        a_plan_costs_at_least_its_epsilon,
    ),
    Mutation(
        "steps are counted",
        transactions,
        "_missing",
        (("if runs * times > most - used:", "if runs * times > most:"),),
        a_step_runs_as_often_as_declared,
    ),
    Mutation(
        "the cap is above",
        transactions,
        "change_cap",
        (("if not taken.fits(terms.cap):", "if False:"),),
        a_cap_covers_what_is_spent,
    ),
    Mutation(
        "prices as they were",
        queries,
        "_guarantee",
        (("if digest(body) != expected:", "if False:"),),
        changed_prices_are_not_used,
    ),
    Mutation(
        "events are what they were",
        chain,
        "follow",
        (("if not entry.is_sealed():", "if False:"),),
        replayed("UPDATE events SET at = '1999' WHERE sequence = 2"),
    ),
    Mutation(
        "balances are replayed",
        verification,
        "_compare_budgets",
        (("if said != shown", "if False and said != shown"),),
        replayed("UPDATE budgets SET saved_epsilon = 7"),
    ),
    Mutation(
        "reservations are replayed",
        verification,
        "_agree",
        (("said == shown and", ""),),
        replayed("UPDATE reservations SET told = 'nothing'"),
    ),
    Mutation(
        "charges are replayed",
        verification,
        "_agree",
        (("taken == run.granted | run.cost and", ""),),
        replayed("UPDATE charges SET delta = 7"),
    ),
    Mutation(
        "prices are hashed",
        verification,
        "_agree",
        (("and digest(found.body) == run.digest", ""),),
        replayed("UPDATE reservations SET body = '{}' WHERE key = 'k3'"),
    ),
    Mutation(
        "tokens of runs are replayed",
        verification,
        "_agree",
        (
            ('"started": run.started,', ""),
            ('"token": run.token,', ""),
        ),
        replayed("UPDATE reservations SET token = 'x' WHERE key = 'k2'"),
    ),
    Mutation(
        "truth values are 0 or 1",
        queries,
        "_truth",
        (("if value not in (0, 1):", "if False:"),),
        replayed("UPDATE reservations SET interactive = 2 WHERE key = 'k4'"),
    ),
    Mutation(
        "events are counted",
        verification,
        "_verified",
        (("if count != history.head.sequence:", "if False:"),),
        replayed(
            "INSERT INTO events SELECT 0, at, kind, key, budget, epsilon, delta, cell, details,"
            " previous, hash FROM events WHERE sequence = 1"
        ),
    ),
    Mutation(
        "access tokens have an event",
        verification,
        "_compare_tokens",
        (("if known is None and history.moved:", "if known is None:"),),
        replayed(A_TOKEN),
    ),
    Mutation(
        "access tokens are what they were",
        verification,
        "_compare_tokens",
        (('if said != (queries.said_of_token(row), row["revoked"]):', "if said is None:"),),
        replayed("UPDATE tokens SET hash = 'x'"),
    ),
    Mutation(
        "the end of an access token is replayed",
        verification,
        "_compare_tokens",
        (('if said != (queries.said_of_token(row), row["revoked"]):', "if said is None:"),),
        replayed("UPDATE tokens SET revoked = NULL"),
    ),
    Mutation(
        "no access token is missing",
        verification,
        "_compare_tokens",
        (("if seen != len(history.tokens):", "if False:"),),
        replayed("DELETE FROM tokens"),
    ),
    Mutation(
        "definitions word by word",
        shape,
        "check_shape",
        (("if found[name] != definition:", "if False:"),),
        replayed("DROP INDEX events_of_a_key ;; CREATE INDEX events_of_a_key ON events (kind)"),
    ),
    Mutation(
        "no definition is lost",
        shape,
        "check_shape",
        (
            ("if name not in found:", "if False:"),
            (
                "if found[name] != ",
                "if found.get(name) not in (None, definition) and found[name] != ",
            ),
        ),
        replayed("DROP TRIGGER charges_remain"),
    ),
    Mutation(
        "no trigger is added",
        shape,
        "check_shape",
        (("if not name.startswith(_MAY_BE_ADDED):", "if False:"),),
        replayed("CREATE TRIGGER aaa BEFORE UPDATE ON budgets BEGIN SELECT 1; END"),
    ),
    Mutation(
        "the version is that of the code",
        shape,
        "check_shape",
        (("if versions != [VERSION]:", "if False:"),),
        replayed("UPDATE ledger_version SET version_num = '0003'"),
    ),
    Mutation(
        "heads fork",
        verification,
        "check_head",
        (("if found != head:", "if False:"),),
        a_fork_is_seen,
    ),
    Mutation(
        "heads fall back",
        verification,
        "check_head",
        (
            ("if now.sequence < head.sequence:", "if False:"),
            ("if found != head:", "if entry and found != head:"),
        ),
        a_restored_backup_is_seen,
    ),
]


@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Mutation
) -> None:
    lose_a_truth(monkeypatch, mutation)


# ------------------------------------------------------------------- the second line


@pytest.mark.parametrize(
    "change", [Units(10**12 + 1, 0), Units(0, 10**18 + 1), Units(-1, 0), Units(0, -1)]
)
@pytest.mark.parametrize("what", ["held", "spent"])
def test_no_statement_leaves_the_limits(
    monkeypatch: pytest.MonkeyPatch, what: str, change: Units
) -> None:
    """Whatever the code above may check: first the statement's condition, then the table's."""

    def deed(connection: Any) -> None:
        Act(connection, "now").exchange(1, **{what: change})  # type: ignore[arg-type]

    with opened() as (ledger, data):
        before = data.statement()
        if what == "held" or min(change) == 0:
            with pytest.raises(tb.LedgerCorruptError, match="not there any more"):
                ledger._store.write(deed)
        monkeypatch.setattr(act_module, "_EXCHANGE", _UNGUARDED)
        with pytest.raises(tb.LedgerError, match=r"CHECK constraint failed|stays spent"):
            ledger._store.write(deed)
        assert data.statement() == before


_UNGUARDED = (
    update(budgets)
    .where(budgets.c.id == bindparam("of"))
    .values(
        held_epsilon=budgets.c.held_epsilon + bindparam("held_e"),
        held_delta=budgets.c.held_delta + bindparam("held_d"),
        spent_epsilon=budgets.c.spent_epsilon + bindparam("spent_e"),
        spent_delta=budgets.c.spent_delta + bindparam("spent_d"),
        saved_epsilon=budgets.c.saved_epsilon + bindparam("saved"),
    )
)
