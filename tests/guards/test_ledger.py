"""Every guard of the ledger is taken away once, and something true must become false."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from fractions import Fraction
from typing import Any
from unittest import mock

import pytest
from sqlalchemy import bindparam, make_url, update
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.ledger.acts import unit_of_work as act_module
from tightbudget.ledger.acts.unit_of_work import Act
from tightbudget.ledger.rows import budget_rows, run_rows
from tightbudget.ledger.store.connecting import shown
from tightbudget.ledger.store.schema import budgets
from tightbudget.ledger.store.sqlite_files import Files
from tightbudget.ledger.store.turns import Turn, Turns
from tightbudget.ledger.tokens import Tokens
from tightbudget.promises import chain
from tightbudget.promises.checkpoint import Checkpoint
from tightbudget.promises.secret import opens
from tightbudget.promises.units import Units

COIN = tb.OutputDP({"number": 0.1, "nothing": 0}, delta=Fraction(1, 10))


@contextmanager
def opened() -> Iterator[tuple[tb.Ledger, tb.ledger.LedgerBudget]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        tb.Ledger(f"sqlite:///{folder}/budget.db") as ledger,
    ):
        yield ledger, ledger.open_budget("data", epsilon=1, delta=1)


_ANY = (tb.errors.BudgetError, tb.errors.SettlementError, tb.ParameterError)


def refused(deed: Callable[[], Any], error: type[Exception] | tuple[Any, ...] = _ANY) -> bool:
    try:
        deed()
    except error:
        return True
    return False


def run(budget: tb.ledger.LedgerBudget | tb.ledger.BlockRange, key: str, cell: str | None) -> None:
    hold = budget.reserve(key, COIN)
    hold.start()
    if cell is None:
        hold.forfeit()
    else:
        hold.settle(cell)


def truth(test: Callable[[tb.Ledger, tb.ledger.LedgerBudget], bool]) -> Callable[[], bool]:
    """Something that must be true of a fresh ledger; to be stopped is to be noticed."""

    def true() -> bool:
        with opened() as (ledger, data):
            try:
                return test(ledger, data)
            except tb.LedgerError:
                return False

    return true


# ----------------------------------------------------------------------- what must be true


def told(story: str) -> str:
    """The name of the test that tells one of the conformance tables on SQLite."""
    test = "tests/ledger/test_conformance.py::test_every_backend_answers_as_the_tables_say"
    return f"{test}[sqlite-{story}]"


A_PART = told(
    "a part's cap is held in the whole; epsilon that it did not spend goes back, delta never"
)


@truth
def parts_of_parts_are_summed(ledger: tb.Ledger, data: tb.ledger.LedgerBudget) -> bool:
    team = ledger.open_budget("team", parent="data", epsilon=0.5, delta=0.5)
    ada = ledger.open_budget("ada", parent=team, epsilon=0.5, delta=0.5)
    run(ada, "k", "number")
    found = data.statement().spent_in_parts
    return found is not None and found.amount == 0.1


@truth
def every_event_of_a_run_names_somebody(ledger: tb.Ledger, data: tb.ledger.LedgerBudget) -> bool:
    hold = data.reserve("k", COIN, by="ada")
    hold.start(by="bob")
    hold.settle("nothing", by="carl")
    return [event.details["by"] for event in ledger.events(key="k")] == ["ada", "bob", "carl"]


@truth
def a_chosen_token_is_long(ledger: tb.Ledger, data: tb.ledger.LedgerBudget) -> bool:
    hold = data.reserve("k", COIN)
    return refused(lambda: hold.start(token="7"))


@truth
def a_smaller_part_gives_back_no_delta(ledger: tb.Ledger, data: tb.ledger.LedgerBudget) -> bool:
    part = ledger.open_budget("part", epsilon=1, delta=0.5, parent=data)
    part.raise_cap(delta=0.25, by="eve", reason="less")
    return data.left.delta == 0.5


@truth
def a_larger_part_fits_into_its_whole(ledger: tb.Ledger, data: tb.ledger.LedgerBudget) -> bool:
    part = ledger.open_budget("part", epsilon=0.5, parent=data)
    return refused(lambda: part.raise_cap(epsilon=2, by="eve", reason="more"))


@truth
def parts_of_each_other_do_not_pay_together(
    ledger: tb.Ledger, data: tb.ledger.LedgerBudget
) -> bool:
    part = ledger.open_budget("part", epsilon=0.5, delta=0.5, parent=data)
    ledger.open_budget("small", epsilon=0.2, delta=0.5, parent=part)
    return refused(lambda: ledger.reserve("k", COIN, ["small", "data"]))


@truth
def one_conversation_with_delta_at_a_time(ledger: tb.Ledger, data: tb.ledger.LedgerBudget) -> bool:
    for name in ("ada", "bob"):
        ledger.open_budget(name, epsilon=0.5, delta=0.5, parent=data)
    pure = tb.OutputDP.from_dp(0.1)
    ledger.reserve("A", COIN, ["ada"], interactive=True)
    return refused(lambda: ledger.reserve("B", pure, ["bob"], interactive=True))


@truth
def a_plan_costs_at_least_its_epsilon(ledger: tb.Ledger, _: tb.ledger.LedgerBudget) -> bool:
    for sigma in (2.0, 3.0, 4.0, 5.0, 6.0, 7.0):
        noise = tb.Gaussian(sigma) * 1
        plan = ledger.open_budget(f"{sigma}", kind="plan", plan=noise, delta=1e-6)
        upper = noise.epsilon(1e-6).upper
        if Fraction(str(plan.spent.epsilon)) < Fraction(upper):
            return False
    return True


@truth
def a_step_runs_as_often_as_declared(ledger: tb.Ledger, _: tb.ledger.LedgerBudget) -> bool:
    noise = tb.Gaussian(2.0)
    ledger.open_budget("plan", kind="plan", plan=noise * 2, delta=1e-6)
    ledger.reserve("1", noise * 2, ["plan"])
    return refused(lambda: ledger.reserve("2", noise, ["plan"]))


@truth
def changed_prices_are_not_used(ledger: tb.Ledger, data: tb.ledger.LedgerBudget) -> bool:
    """Nobody shops for a cell after the mechanism has run."""
    run_rows._guarantee.cache_clear()
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
    except tb.errors.LedgerCorruptError:
        return data.held.epsilon == 0.1
    return False


def replayed(change: str) -> Callable[[], bool]:
    """A change behind the ledger's back is found by ``verify``."""

    @truth
    def true(ledger: tb.Ledger, data: tb.ledger.LedgerBudget) -> bool:
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
        return refused(ledger.verify, tb.errors.LedgerCorruptError)

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
    both_have_read, read = threading.Barrier(2), budget_rows.balances_of

    def slow(connection: Any, names: Sequence[str]) -> list[budget_rows.Balance]:
        found = read(connection, names)
        with contextlib.suppress(threading.BrokenBarrierError):
            both_have_read.wait(2)
        return found

    with opened() as (ledger, data), pytest.MonkeyPatch.context() as patch:
        other = tb.Ledger(ledger.url).budget(data.name)
        patch.setattr(budget_rows, "balances_of", slow)
        # what comes before the transaction begins: turns of threads, and of processes
        patch.setattr(Turns, "take", lambda _, mine, __: Turn(mine))
        patch.setattr(Files, "writing", lambda _, __, deed: deed())

        def ask(key: str, budget: tb.ledger.LedgerBudget) -> None:
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
        return refused(lambda: ledger.check(head), tb.errors.LedgerCorruptError)


def a_restored_backup_is_named() -> bool:
    """An earlier state is told from a fork."""
    with opened() as (ledger, data):
        data.reserve("k", COIN)
        after = ledger.head()
    with opened() as (other, _):
        try:
            other.check(after)
        except tb.errors.LedgerCorruptError as error:
            return "1 event is missing" in str(error)
    return False


def a_changed_checkpoint_is_refused() -> bool:
    with opened() as (ledger, _):
        kept: list[Checkpoint] = []
        ledger.verify(keep=kept.append)
    changed = str(kept[-1]).replace(r"\"budgets\":{", r"\"budgets\":{ ")
    return refused(lambda: Checkpoint.from_text(changed), tb.ParameterError)


@contextmanager
def declared(**terms: Any) -> Iterator[tuple[tb.Ledger, tb.ledger.Blocks]]:
    with opened() as (ledger, _):
        yield ledger, ledger.blocks("clicks", by=["day"], epsilon=1, delta=1, **terms)


def blocks_are_charged_by_their_set() -> bool:
    with declared() as (ledger, clicks):
        here = clicks.where(day="2026-01-01")
        run(here, "A", "nothing")
        return refused(lambda: ledger.budget(here.names[0]).reserve("B", COIN))


def a_block_is_one_of_the_set() -> bool:
    with declared() as (ledger, clicks):
        here = clicks.where(day="2026-01-01")
        with mock.patch("tightbudget.ledger.acts.budget_acts.check_name"):  # an earlier version
            ledger.open_budget(here.names[0], epsilon=100, delta=1)
        return refused(lambda: here.reserve("A", COIN))


def names_of_blocks_are_kept() -> bool:
    with declared() as (ledger, clicks):
        (name,) = clicks.where(day="2026-01-01").names
        return refused(lambda: ledger.open_budget(name, epsilon=100, delta=1))


def blocks_beside_a_range_have_values() -> bool:
    with declared() as (_, clicks):
        here = clicks.where(day="2026-01-01")
        return refused(lambda: here.reserve("A", COIN, also=["clicks[day=today]"]))


def blocks_belong_to_their_set() -> bool:
    with declared() as (ledger, clicks):
        run(clicks.where(day="2026-01-01"), "A", "nothing")
        seen = ledger.within(["clicks"])
        return len(ledger.statements(budgets=seen)) == 2


def what_is_locked_is_not_left() -> bool:
    with declared(unlocking=10**6) as (_, clicks):
        here = clicks.where(day="2026-01-01")
        return refused(lambda: here.reserve("A", tb.OutputDP({"yes": 0.9})))


def a_cap_over_all_blocks_is_charged() -> bool:
    with declared(cap_epsilon=0.15, cap_delta=1) as (_, clicks):
        run(clicks.where(day="2026-01-01"), "A", "number")
        return refused(lambda: clicks.where(day="2026-01-02").reserve("B", COIN))


def passwords_in_parameters_are_hidden() -> bool:
    return "hunter2" not in shown(make_url("postgresql+psycopg://host/db?password=hunter2"))


MUTATIONS = [
    Without(
        "parameters as they are",
        {"parameters-hidden": "return rendered"},
        passwords_in_parameters_are_hidden,
    ),
    Without("by their set", {"blocks-by-their-set": "if False:"}, blocks_are_charged_by_their_set),
    Without("of this set", {"block-of-this-set": "if False:"}, a_block_is_one_of_the_set),
    Without("names kept", {"names-of-blocks-kept": "if False:"}, names_of_blocks_are_kept),
    Without(
        "blocks by values",
        {"blocks-by-their-values": "for name in ():"},
        blocks_beside_a_range_have_values,
    ),
    Without(
        "whole set",
        {"blocks-by-whole-set": "return column.in_(seen.names)"},
        blocks_belong_to_their_set,
    ),
    Without("locked", {"locked-is-not-left": "return payer"}, what_is_locked_is_not_left),
    Without("cap of blocks", {"cap-beside-blocks": "pass"}, a_cap_over_all_blocks_is_charged),
    Without(
        "writes begin with the lock",
        {"write-lock-first": 'deed = "read"'},
        the_loser_of_a_race_is_refused,
    ),
    Without(
        "charges up",
        {
            "charges-rounded-up": (
                'return Units(epsilon=_fits("epsilon", amount.counted, '
                'math.floor(amount.counted * _EPSILON)), delta=_fits("delta", '
                "amount.delta, math.ceil(amount.delta * _DELTA)))"
            )
        },
        fails=told("a charge is rounded up and a cap down; nothing positive is free"),
    ),
    Without(
        "delta up",
        {
            "charges-rounded-up": (
                'return Units(epsilon=_fits("epsilon", amount.counted, '
                'math.ceil(amount.counted * _EPSILON)), delta=_fits("delta", '
                "amount.delta, math.floor(amount.delta * _DELTA)))"
            )
        },
        fails=told("a charge is rounded up and a cap down; nothing positive is free"),
    ),
    Without(
        "caps down",
        {
            "caps-rounded-down": (
                'return Units(epsilon=_fits("epsilon", amount.counted, '
                'math.ceil(amount.counted * _EPSILON)), delta=_fits("delta", '
                "amount.delta, math.floor(amount.delta * _DELTA)))"
            )
        },
        fails=told("a charge is rounded up and a cap down; nothing positive is free"),
    ),
    Without(
        "key and body",
        {"key-with-one-body": "if False:"},
        fails=told("the same key and body again answers as before, another body is an error"),
    ),
    Without(
        "one audit for each key",
        {"audit-key-with-one-audit": "if False:"},
        fails=told("an audit is written down once for each key, and changes no balance"),
    ),
    Without(
        "an audit is written down once",
        {"audit-written-once": "pass"},
        fails=told("an audit is written down once for each key, and changes no balance"),
    ),
    Without(
        "refusals last",
        {"refusals-recorded": "return refusal"},
        fails=told("a refused key stays refused"),
    ),
    Without(
        "parts of parts",
        {"parts-of-parts": "inside = inside.union_all(deeper.where(budgets.c.id < 0))"},
        parts_of_parts_are_summed,
    ),
    Without(
        "started once",
        {"started-once": "if not hold.is_open:"},
        fails=told("a mechanism runs at most once"),
    ),
    Without(
        "the token",
        {"only-own-token-settles": "if False:"},
        fails=told("a process without the token of the start settles nothing, and may forfeit"),
    ),
    Without(
        "the token is a secret",
        {"token-is-secret": "secret, who = str(self._is.id + 1), self._session.who(by)"},
        fails=told("a colleague, who sees the whole history, does not settle another's run"),
    ),
    Without(
        "a token that a caller has chosen is long",
        {"chosen-token-is-long": "if not isinstance(token, str):"},
        a_chosen_token_is_long,
    ),
    Without(
        "the history has its digest",
        {"token-digest-in-history": 'said = {"token_sha256": token, **why}'},
        fails=told("a colleague, who sees the whole history, does not settle another's run"),
    ),
    Without(
        "who did it", {"who-did-it": 'return {"by": self._by}'}, every_event_of_a_run_names_somebody
    ),
    Without(
        "a forfeited run is told that it was overruled",
        {"forfeited-stays-charged": "if False and mine:"},
        fails=told("who forfeits pays the worst-case price"),
    ),
    Without(
        "settled from started",
        {"settled-from-started": "if False:", "forfeited-stays-charged": "if False and mine:"},
        fails=told("who forfeits pays the worst-case price"),
    ),
    Without(
        "one cell", {"settled-from-started": "if False:"}, fails=told("settled once, with one cell")
    ),
    Without(
        "freed before the start alone",
        {"freed-before-start-alone": "if not hold.is_open:"},
        fails=told("void only before the start, and for good"),
    ),
    Without(
        "delta stays",
        {"delta-stays": "costs[charge.name] = Units(price.epsilon, 0)"},
        fails=told("one run, from its reservation to its price"),
    ),
    Without(
        "no more than was held",
        {"no-more-than-held": ("price = Units.charged(charge.rule.cost(hold.guarantee, cell))")},
        fails=told("a billionth too much is granted what is left, and told so"),
    ),
    Without(
        "delta of a part",
        {"part-returns-no-delta": "charge = balance.spent"},
        fails=A_PART,
    ),
    Without(
        "delta of a smaller part",
        {"smaller-part-returns-no-delta": ("act.exchange(whole.id, held=more, spent=NOTHING)")},
        a_smaller_part_gives_back_no_delta,
    ),
    Without("held in the whole", {"part-held-in-whole": "pass"}, fails=A_PART),
    Without("what fits inside", {"part-fits-into-whole": "pass"}, fails=A_PART),
    Without(
        "what fits inside later",
        {"larger-part-fits-into-whole": "pass"},
        a_larger_part_fits_into_its_whole,
    ),
    Without(
        "nobody holds a closed budget",
        {
            "closed-budget-not-held": (
                "found = [(-epsilon, name) for statement in (_PARTS,) for epsilon, "
                'name in connection.execute(statement, {"of": of.id})]'
            )
        },
        fails=A_PART,
    ),
    Without(
        "no part of a closed budget",
        {
            "closed-budget-not-held": (
                "found = [(-epsilon, name) for statement in (_HOLDING,) for epsilon, "
                'name in connection.execute(statement, {"of": of.id})]'
            )
        },
        fails=A_PART,
    ),
    Without(
        "closed is closed",
        {"closed-budget-pays-nothing": "if False:"},
        fails=A_PART,
    ),
    Without(
        "apart, also further up",
        {"payers-apart-further-up": "whole = None"},
        parts_of_each_other_do_not_pay_together,
    ),
    Without(
        "conversations",
        {"one-conversation-with-delta": "if False:"},
        one_conversation_with_delta_at_a_time,
    ),
    Without(
        "conversations without delta",
        {
            "conversations-without-delta": (
                "if others and not all(rule.side_by_side for rule, units in lines):"
            )
        },
        one_conversation_with_delta_at_a_time,
    ),
    Without(
        "a plan is a charge",
        {"plan-is-a-charge": "rounded = Units.charged if False else Units.granted"},
        a_plan_costs_at_least_its_epsilon,
    ),
    Without(
        "steps are counted",
        {"steps-counted": "if asked > step.times:"},
        a_step_runs_as_often_as_declared,
    ),
    Without(
        "the cap is above",
        {"cap-covers-spent": "if False:"},
        fails=told("a cap is raised, and never lowered below what is spent and held"),
    ),
    Without("prices as they were", {"prices-unchanged": "if False:"}, changed_prices_are_not_used),
    Without(
        "events are what they were",
        {"events-sealed": "if False:"},
        replayed("UPDATE events SET at = '1999' WHERE sequence = 2"),
    ),
    Without(
        "balances are replayed",
        {
            "balances-replayed": (
                "if False and said != shown or not rooted or (found.parent is None) != "
                "(whole is None):"
            )
        },
        replayed("UPDATE budgets SET saved_epsilon = 7"),
    ),
    Without(
        "reservations are replayed",
        {
            "reservations-replayed": (
                "return taken == run.granted | run.cost and digest(found.body) == run.digest"
            )
        },
        replayed("UPDATE reservations SET told = 'nothing'"),
    ),
    Without(
        "reservations keep their keys",
        {"reservations-keep-keys": "if not _agree(found, run):"},
        replayed("UPDATE reservations SET key = 'x' WHERE key = 'k2'"),
    ),
    Without(
        "reservations are counted",
        {"reservations-counted": "if False:"},
        replayed(
            "INSERT INTO reservations SELECT 99, 'eve', body, digest, interactive, state, started,"
            " token, cell, told FROM reservations WHERE key = 'k3'"
        ),
    ),
    Without(
        "charges are replayed",
        {"reservations-replayed": ("return said == shown and digest(found.body) == run.digest")},
        replayed("UPDATE charges SET delta = 7"),
    ),
    Without(
        "prices are hashed",
        {"reservations-replayed": ("return said == shown and taken == run.granted | run.cost")},
        replayed("UPDATE reservations SET body = '{}' WHERE key = 'k3'"),
    ),
    Without(
        "tokens of runs are replayed",
        {
            "run-tokens-replayed": (
                'said = {"id": run.row, "digest": run.digest, "interactive": '
                'run.interactive, "told": run.told, "state": run.state, "cell": '
                "run.cell}"
            )
        },
        replayed("UPDATE reservations SET token = 'x' WHERE key = 'k2'"),
    ),
    Without(
        "truth values are 0 or 1",
        {"truth-values-0-1": "if False:"},
        replayed("UPDATE reservations SET interactive = 2 WHERE key = 'k4'"),
    ),
    Without(
        "events are counted",
        {"events-counted": "if False:"},
        replayed(
            "INSERT INTO events SELECT 0, at, kind, key, budget, epsilon, delta, cell, details,"
            " previous, hash FROM events WHERE sequence = 1"
        ),
    ),
    Without(
        "access tokens have an event",
        {"access-tokens-have-event": "if known is None:"},
        replayed(A_TOKEN),
    ),
    Without(
        "access tokens are what they were",
        {"access-tokens-unchanged": "if said is None:"},
        replayed("UPDATE tokens SET hash = 'x'"),
    ),
    Without(
        "the end of an access token is replayed",
        {"access-tokens-unchanged": "if said is None:"},
        replayed("UPDATE tokens SET revoked = NULL"),
    ),
    Without(
        "no access token is missing",
        {"access-tokens-complete": "if False:"},
        replayed("DELETE FROM tokens"),
    ),
    Without(
        "definitions word by word",
        {"definitions-word-by-word": "if False:"},
        replayed("DROP INDEX events_of_a_key ;; CREATE INDEX events_of_a_key ON events (kind)"),
    ),
    Without(
        "no definition is lost",
        {"no-definition-lost": "if name not in found:\n    continue\nif False:"},
        replayed("DROP TRIGGER charges_remain"),
    ),
    Without(
        "no trigger is added",
        {"no-trigger-added": "if False:"},
        replayed("CREATE TRIGGER aaa BEFORE UPDATE ON budgets BEGIN SELECT 1; END"),
    ),
    Without(
        "the version is that of the code",
        {"version-of-code": "if False:"},
        replayed("UPDATE ledger_version SET version_num = '0003'"),
    ),
    Without(
        "a checkpoint is a whole text",
        {"whole-checkpoints": "if False:"},
        a_changed_checkpoint_is_refused,
    ),
    Without(
        "no text opens what nobody has kept",
        {"nothing-kept-opens-nothing": "return same"},
        lambda: not opens("", None),
    ),
    Without("heads fork", {"heads-fork": "if False:"}, a_fork_is_seen),
    Without(
        "heads fall back",
        {"heads-fall-back": "if False:"},
        a_restored_backup_is_named,
    ),
]


@pytest.mark.one_in(8)
@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation, request.session)


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
            with pytest.raises(tb.errors.LedgerCorruptError, match="not there any more"):
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
