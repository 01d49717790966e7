"""Copies and forks of what has a state: refused in words, or one and the same budget.

The classes are found by inspection: a public class of these rooms whose objects can change must
have an example here.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import importlib
import inspect
import os
import pickle
import pkgutil
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.client.remote import RemoteBudget, RemoteHold
from tightbudget.output_dp.account import Account
from tightbudget.output_dp.pricing import OutputDPOdometerRule
from tightbudget.promises.keyed import Keyed
from tightbudget.release.noise.noise import Pool
from tightbudget.release.release import started
from tightbudget.release.stopping import StoppingCallback
from tightbudget.release.workflow_run import WorkflowRun

HALF = tb.OutputDP({"a": 0.5, "b": 0.25})
REFUSED = "cannot be copied or pickled: "


def a_hold() -> tb.Hold:
    return tb.OutputDPFilter(1).reserve(HALF)


@contextmanager
def a_run() -> Iterator[Any]:
    with tb.release.SparseVector(1, 2).open(None, meter=tb.OutputDPFilter(1)) as run:
        yield run


@contextmanager
def a_search() -> Iterator[Any]:
    table = tb.Table({"a": np.array([True, False])})
    search = tb.AboveThreshold(questions=(("a", 1),), epsilon=1, aboves=1)
    with search.open(table, meter=tb.OutputDPFilter(1)) as run:
        yield run


@contextmanager
def a_start() -> Iterator[Any]:
    with started(tb.OutputDPFilter(1), HALF, None) as run:
        run.cell = "a"
        yield run


@contextmanager
def a_callback() -> Iterator[Any]:
    schedule = tb.early_stopping(tb.Gaussian(20.0), (1, 2), 1e-5)
    rule: Callable[[Any], bool] = bool
    with StoppingCallback(schedule, tb.OutputDPFilter(5, 0.1), rule) as run:
        yield run
        run.should_stop(1, True)


@contextmanager
def a_workflow_run() -> Iterator[Any]:
    workflow = tb.workflows.Workflow.chain(tb.Gaussian(20.0), [1])
    with WorkflowRun(tb.workflows.priced(workflow, 1e-5), tb.OutputDPFilter(5, 0.1)) as run:
        yield run


@contextmanager
def a_marginal_run() -> Iterator[Any]:
    plan, rows = tb.marginals.fixed(0.01).priced(1e-5), {"a": [1]}
    with tb.marginals.MarginalRun(plan, rows, {"a": [1]}, meter=tb.OutputDPFilter(5, 0.1)) as run:
        yield run


# how one is made, of each kind that is refused
REFUSING: dict[str, Callable[[], Any]] = {
    "Account": lambda: Account(OutputDPOdometerRule()),
    "OutputDPFilter": lambda: tb.OutputDPFilter(1),
    "OutputDPOdometer": tb.OutputDPOdometer,
    "AdvancedFilter": lambda: tb.AdvancedFilter(5, 1e-6),
    "ZCDPFilter": lambda: tb.ZCDPFilter(1),
    "RenyiFilter": lambda: tb.RenyiFilter(2, 1),
    "GaussianDPFilter": lambda: tb.GaussianDPFilter(1),
    "Hold": a_hold,
    "SparseVectorRun": a_run,
    "AboveThresholdRun": a_search,
    "Started": a_start,
    "StoppingCallback": a_callback,
    "WorkflowRun": a_workflow_run,
    "MarginalRun": a_marginal_run,
    "Pool": lambda: Pool(lambda size: None, 8),  # type: ignore[arg-type, return-value]
}
# of one ledger, in its file or behind its address: a copy is the same one, and charges it
OF_A_LEDGER = {
    "Ledger", "LedgerBudget", "LedgerHold", "Keyed", "Asking", "Blocks", "BlockRange",
    "RemoteLedger", "RemoteBudget", "RemoteHold", "RemoteBlocks", "RemoteBlockRange",
}  # fmt: skip
# that have no state of their own, or none that is paid for, and why
OTHERS = {
    "Uncopied": "the refusal itself",
    "Interrupts": "what handlers of signals have raised in a block, and nothing that is paid for",
    "Transactions": "inside accounts, which are refused",
    "Variable": "inside accounts, which are refused",
    "Payer": "an abstract part of budgets of a ledger",
    "BaseHold": "an abstract part of holds of a ledger",
    "BaseBlocks": "an abstract part of sets of blocks of a ledger",
    "BaseBlockRange": "an abstract part of ranges of blocks of a ledger",
    "Places": "keeps nothing between calls: its ledger has the claims",
    "KeptRun": "inside runs, which are refused; its ledger has the run",
    "OpenDPNoise": "keeps nothing between calls",
    "FixedNoise": "no noise, for tests alone",
    "PrivateLogisticRegression": "keeps what was released, and no meter",
    "PrivateGridSearchCV": "keeps what was released, and no meter",
    "TightAccountant": "counts what was reported, and pays for nothing",
    "TightAccountantConfig": "makes accountants, and pays for nothing",
    "TightTrainingAccountant": "computes what a training costs, and pays for nothing",
    "TightPrivacyAccountant": "counts what was declared, and pays for nothing",
    **dict.fromkeys(
        ("PRVAccountant", "DPSGDAccountant", "Accountant"),
        "computes what a training costs under the names of prv_accountant, and pays for nothing",
    ),
    "BackwardInduction": "a computation",
    "KeepingMeter": "for one run of a ledger, which starts once",
    "KeptAnswers": "reads and writes a file, and pays for nothing",
    "KeptMarginals": "reads and writes a file, and pays for nothing",
    "OneStatement": "inside one release, and pays for nothing",
    "EventError": "a refusal",
    "Rows": "an abstract class, of the next two",
    "InMemory": "private rows inside runs, which are refused",
    "InTable": "private rows inside runs, which are refused",
    "Reader": "reads rules of tables, and pays for nothing",
    "Search": "inside runs, which are refused, as is its stock of noise",
}
ROOMS = ("output_dp", "release", "adapters", "tables", "marginals")
MODULES = (
    "ledger.block_set", "ledger.budget", "ledger.hold", "ledger.ledger", "promises.hold",
    "promises.keyed", "promises.payer", "promises.charged_blocks", "client.remote",
)  # fmt: skip


def stateful() -> set[str]:
    """The public classes of these rooms whose objects can change."""
    modules = [f"tightbudget.{name}" for name in MODULES]
    for room in ROOMS:
        package = importlib.import_module(f"tightbudget.{room}")
        modules += [m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    found = set[str]()
    for name in modules:
        try:
            module = importlib.import_module(name)
        except ImportError:  # a neighbour is not installed: its own tests run elsewhere
            continue
        for kind in filter(inspect.isclass, vars(module).values()):
            if kind.__module__ == name and not kind.__name__.startswith("_") and changes(kind):
                found.add(kind.__name__)
    return found


def changes(kind: type) -> bool:
    if dataclasses.is_dataclass(kind):
        return not kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return not (issubclass(kind, (tuple, enum.Enum)) or getattr(kind, "_is_protocol", False))


@pytest.mark.slow  # imports every neighbour
def test_each_class_that_changes_is_here() -> None:
    found = stateful()
    assert found - {*REFUSING, *OF_A_LEDGER, *OTHERS} == set()
    # Opacus and JAX Privacy are there after `make adapters` alone
    assert {*REFUSING, *OF_A_LEDGER, *OTHERS} - found <= {
        "TightAccountant",
        "TightAccountantConfig",
        "TightTrainingAccountant",
    }


def test_a_class_that_changes_is_seen() -> None:
    assert changes(type("New", (), {}))
    assert not changes(tb.OutputDP)


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "pickle-0": lambda thing: pickle.dumps(thing, 0),
    "within": lambda thing: copy.deepcopy({"budget": [thing]}),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", REFUSING)
def test_a_copy_is_refused_in_words(name: str, how: str) -> None:
    assert refused_in_words(name, how)


def refused_in_words(name: str, how: str = "copy") -> bool:
    with ExitStack() as stack:
        thing = REFUSING[name]()
        if hasattr(thing, "__enter__"):
            thing = stack.enter_context(thing)
        try:
            COPIES[how](thing)
        except tb.errors.SettlementError as error:
            said = str(error)
            words = f"{name} {REFUSED}a copy would spend the same budget once more"
            return said.startswith(words) and "tightbudget.Ledger" in said
    return False


def test_a_copy_of_a_part_of_a_ledger_is_the_same_ledger(tmp_path: Path) -> None:
    with tb.Ledger(f"sqlite:///{tmp_path / 'a.db'}") as ledger:
        budget = ledger.open_budget("a", epsilon=1)
        hold = budget.reserve("k", HALF)
        for thing in (ledger, budget, budget.keyed("l"), hold):
            copy.copy(thing)
            for how in ("deepcopy", "pickle"):
                with pytest.raises(
                    tb.errors.SettlementError, match="open the ledger again by its addr"
                ):
                    COPIES[how](thing)
        again = copy.copy(budget).reserve("m", HALF)
        again.start()
        again.settle("b")
        copy.copy(hold).forfeit()
        assert budget.spent.epsilon == 0.75
        with pytest.raises(tb.errors.SettlementError, match="forfeited"):
            hold.settle("b")
    remote = tb.RemoteLedger("http://127.0.0.1:1")
    said: Any = None
    things: list[Any] = [remote, RemoteBudget(remote, "a"), RemoteHold(remote._wire, said, None)]
    for thing in things:
        copy.copy(thing)
        for how in ("deepcopy", "pickle"):
            with pytest.raises(
                tb.errors.SettlementError, match="open the ledger again by its addr"
            ):
                COPIES[how](thing)


# ------------------------------------------------------------------------------ forks


def in_a_fork(deed: Callable[[], str]) -> str:
    """What the deed says in a process that was forked."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of other tests may live
        child = os.fork()
    if child == 0:  # pragma: no cover (another process)
        try:
            said = deed()
        except BaseException:
            said = traceback.format_exc()
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as ear:
        said = ear.read().decode()
    os.waitpid(child, 0)
    return said


ACCOUNTS = [name for name, make in REFUSING.items() if name.endswith(("Filter", "Odometer"))]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")


@pytest.mark.one_in(3)
@needs_fork
@pytest.mark.parametrize("name", ACCOUNTS)
@pytest.mark.parametrize("locked", [False, True])
def test_a_fork_reads_and_never_charges(name: str, locked: bool) -> None:
    """Also where another thread was in the midst of an act when the process was forked."""
    account = REFUSING[name]()
    pays: Any = 0.25 if name == "GaussianDPFilter" else tb.OutputDP({"a": 0.25})
    reserved, begun = account.reserve(pays), account.reserve(pays)
    begun.start()
    before = account.spent, account.held, account.left
    acts: list[Callable[[], Any]] = [
        lambda: account.reserve(pays), reserved.start, lambda: reserved.settle("a"),
        reserved.forfeit, reserved.void, lambda: begun.settle("a"), begun.forfeit,
    ]  # fmt: skip
    if isinstance(account, tb.OutputDPOdometer):
        acts.append(lambda: account.sub(0))
    if isinstance(account, tb.OutputDPFilter):
        acts.append(account.close)

    def in_the_child() -> str:
        for act in acts:
            with pytest.raises(
                tb.errors.SettlementError, match="this process was forked"
            ) as caught:
                act()
            assert "use a ledger (tightbudget.Ledger)" in str(caught.value)
        assert (account.spent, account.held, account.left) == before
        assert reserved.state is not begun.state
        return repr(account)

    if locked:
        with account._transactions._lock:
            said = in_a_fork(lambda: of_another_thread(account, in_the_child))
    else:
        said = in_a_fork(in_the_child)
    plain = repr(account)
    assert said == plain[:-1] + "; as it was when this process was forked, which cannot charge it>"
    assert plain.startswith(f"<{name}: spent ")
    begun.settle("a")
    reserved.void()


def of_another_thread(account: Account, then: Callable[[], str]) -> str:
    """Makes the lock one that a thread has which is not in this process."""
    lock: Any = type("Taken", (), {"acquire": lambda *_: os._exit(1)})()
    account._transactions._lock = lock
    return then()


@needs_fork
def test_a_fork_does_not_go_on_with_a_training_run() -> None:
    with a_callback() as run:

        def in_the_child() -> str:
            for act in (lambda: run.should_stop(1, None), lambda: run.step(tb.Gaussian(20.0))):
                with pytest.raises(tb.errors.SettlementError, match="begun it: this is a fork"):
                    act()
            return "refused"

        assert in_a_fork(in_the_child) == "refused"


@needs_fork
def test_an_exception_in_a_fork_does_not_end_the_run_of_its_parent() -> None:
    account = tb.OutputDPFilter(1)

    def leave() -> str:
        assert not block.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
        return str(account.held.epsilon)

    block = started(account, HALF, None)
    run = block.__enter__()
    assert in_a_fork(leave) == "0.5"
    run.cell = "b"
    block.__exit__(None, None, None)
    assert account.spent.epsilon == 0.25


def a_fork_is_refused() -> bool:
    account = tb.OutputDPFilter(1)

    def reserve() -> str:
        try:
            account.reserve(HALF)
        except tb.errors.SettlementError:
            return "refused"
        return "held"

    return in_a_fork(reserve) == "refused"


class Echo:
    """A budget that answers with the key."""

    left = tb.Amount(amount=1, delta=0, unit="epsilon")

    def reserve(self, key: str, guarantee: object, **_: object) -> str:
        return f"held {key}"


def a_fork_waits_for_no_thread() -> bool:
    """Another thread was in the midst of a reservation when the process was forked."""
    budget: Any = Echo()
    meter: Keyed[Any] = Keyed(budget, "k")
    taken, free = threading.Event(), threading.Event()

    def midst() -> None:
        with meter._lock:
            taken.set()
            free.wait()

    def reserve() -> str:
        signal.alarm(5)  # ends a child that waits for ever
        return meter.reserve(HALF)

    thread = threading.Thread(target=midst)
    thread.start()
    taken.wait()
    try:
        return in_a_fork(reserve) == "held k"
    finally:
        free.set()
        thread.join()


@needs_fork
def test_a_fork_waits_for_no_thread_of_its_parent() -> None:
    assert a_fork_waits_for_no_thread()


MUTATIONS = [
    Without(
        "a fork has a lock of its own",
        {"fork-waits-for-no-thread": "if False:"},
        a_fork_waits_for_no_thread,
        slow=True,
    ),
    Without("a fork does not act", {"fork-never-acts": "if False:"}, a_fork_is_refused),
    Without(
        "a copy is refused",
        {
            "copy-refused": """
return object.__reduce_ex__(self, protocol)
print(f"{type(self).__name__} cannot be copied or pickled: {self._instead}")
"""
        },
        lambda: refused_in_words("OutputDPFilter"),
    ),
]


@needs_fork
@each(MUTATIONS)
def test_without_the_guard_a_budget_is_spent_twice(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
