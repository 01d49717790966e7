"""A workflow that goes on in another process: whatever crashes when, the state reached is paid."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.release.test_resuming import in_a_ledger
from tests.release.test_workflow_run import PRICED, QUIET, TRUE, WORKFLOW

import tightbudget as tb
from tightbudget.output_dp.account import State
from tightbudget.promises.keyed import Keyed
from tightbudget.release.kept_run import KeptRun
from tightbudget.release.workflow_run import WorkflowRun

PRICES = PRICED.prices
MOST = max(PRICES.values())
MOST_MOVES = 4  # of all processes together; a way has three at most


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[tb.Ledger]:
    with tb.Ledger(f"sqlite:///{tmp_path}/budget.db") as found:
        found.open_budget("ada", epsilon=8, delta=0.5)
        yield found


def of(ledger: Any, key: str = "run", priced: Any = PRICED, **given: Any) -> WorkflowRun:
    """A resumable run of ada's."""
    meter: Any = ledger.budget("ada").keyed(key)
    return WorkflowRun(priced, meter, resumable=True, **given)


def gone(ledger: Any, *moves: str, key: str = "run", **given: Any) -> dict[str, Any]:
    """The state of a run whose process has died after some moves."""
    run = of(ledger, key, **given).__enter__()
    state = json.loads(json.dumps(run.state_dict()))
    for to in moves:
        run.go(to)
    return dict(state)


def again(ledger: Any, state: dict[str, Any], key: str = "run", **given: Any) -> WorkflowRun:
    """The run in another process, which is not entered yet."""
    run = of(ledger, key, **given)
    run.load_state_dict(state)
    return run


def spent(ledger: Any) -> tuple[float, float]:
    """What ada's budget has spent and what it holds, in epsilon."""
    budget = ledger.budget("ada")
    return budget.spent.epsilon, budget.held.epsilon


def paid(state: str) -> Any:
    """What is spent, and that nothing is held, after a run that was charged one state."""
    return pytest.approx((PRICES[state], 0.0), rel=1e-9)


def held() -> Any:
    return pytest.approx((0.0, MOST), rel=1e-9)


# ---------------------------------------------------------- the law, over all interleavings


@dataclasses.dataclass(frozen=True)
class Kept:
    """A reservation on paper."""

    guarantee: tb.OutputDP
    token: str | None = None
    state: State = State.RESERVED
    cell: Any = None


@dataclasses.dataclass
class Paper:
    """As much of a budget of a ledger as runs ask for, which can be copied."""

    kept: dict[str, Kept]

    def reserve(self, key: str, guarantee: tb.OutputDP, **_: Any) -> PaperHold:
        if key in self.kept and self.kept[key].guarantee != guarantee:
            raise tb.errors.KeyConflictError(key)
        self.kept.setdefault(key, Kept(guarantee))
        return PaperHold(self, key)

    def _hold(self, key: str, token: str | None) -> PaperHold:
        if key not in self.kept:
            raise tb.errors.SettlementError(key)
        return PaperHold(self, key)


@dataclasses.dataclass
class PaperHold:
    paper: Paper
    key: str
    interactive = True
    charge = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.paper.kept[self.key], name)

    def _becomes(self, **change: Any) -> None:
        self.paper.kept[self.key] = dataclasses.replace(self.paper.kept[self.key], **change)

    def start(self, *, token: str) -> None:
        if self.state is not State.RESERVED:
            raise tb.errors.SettlementError(self.key)
        self._becomes(state=State.STARTED, token=token)

    def void(self) -> None:
        self._becomes(state=State.VOID)

    def settle(self, cell: Any) -> str:
        if self.state is not State.STARTED and self.cell != cell:
            raise tb.errors.SettlementError(self.key)
        self._becomes(state=State.SETTLED, cell=cell)
        return "paid"

    def _is_started_with(self, token: str) -> bool:
        return token == self.paper.kept[self.key].token


def without_secret(claim: tb.OutputDP) -> tuple[Any, ...]:
    (cell,) = claim.cells
    assert isinstance(cell, tuple)
    return (*cell[:1], *cell[2:])


def keyed(paper: Any) -> Any:
    return Keyed(paper, "run")


@dataclasses.dataclass
class World:
    """A ledger, two processes, the moves whose outputs nobody has seen yet, and those begun."""

    paper: Paper
    runs: list[WorkflowRun | None]
    unseen: list[Any]
    begun: int = 0

    def copy(self) -> World:
        paper = Paper(dict(self.paper.kept))
        return World(
            paper, [run and copied(run, paper) for run in self.runs], list(self.unseen), self.begun
        )

    def name(self) -> Any:
        """What decides all that can still happen."""
        claims = frozenset(
            (key, without_secret(kept.guarantee))
            for key, kept in self.paper.kept.items()
            if key != "run"
        )
        runs = (run and (str(run.state), run._passed, run._open, run._ended) for run in self.runs)
        return (
            claims,
            self.paper.kept["run"].state,
            self.paper.kept["run"].cell,
            tuple(sorted(runs, key=repr)),
            tuple(sorted(map(str, self.unseen))),
            self.begun,
        )

    def charge(self) -> float:
        return PRICES.get(self.paper.kept["run"].cell, MOST)


def copied(run: WorkflowRun, paper: Paper) -> WorkflowRun:
    """The run as it is, in a world of its own."""
    other, kept = object.__new__(WorkflowRun), object.__new__(KeptRun)
    vars(other).update(vars(run))
    assert run._kept is not None
    assert run._run is not None
    vars(kept).update(vars(run._kept))
    meter = keyed(paper)
    kept._meter, kept._places = meter, meter.places("run")
    kept._hold = PaperHold(paper, "run")  # type: ignore[assignment]
    other._kept, other._run = kept, dataclasses.replace(run._run)
    return other


def loaded(paper: Paper, state: Any) -> WorkflowRun:
    run = WorkflowRun(PRICED, keyed(paper), resumable=True)
    run.load_state_dict(state)
    return run.__enter__()


def begun(paper: Paper, state: Any) -> WorkflowRun:
    """The run of a process that has seen it reserved, and starts it now."""
    run = WorkflowRun(PRICED, keyed(paper), resumable=True)
    run.load_state_dict(state)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeptRun, "goes_on", lambda kept: False)
        return run.__enter__()


def first_world() -> tuple[World, Any]:
    """Two processes that have the state of a run which is reserved."""
    paper = Paper({})
    run = WorkflowRun(PRICED, keyed(paper), resumable=True)
    run.reserve()
    return World(paper, [None, None], []), run.state_dict()


def deeds(world: World) -> Iterator[tuple[Any, ...]]:
    """What may happen next, but for outputs that are seen."""
    for i, run in enumerate(world.runs):
        yield "load", i  # the process is killed, and another one goes on
        yield "begin", i
        if run is not None:
            yield "leave", i
            yield "die while leaving", i
            if world.begun < MOST_MOVES:
                yield from (("go", i, move.to) for move in run.moves)


def happened(world: World, deed: tuple[Any, ...], state: Any) -> World:
    """The world after a deed; a process that was refused is gone."""
    world = world.copy()
    what, i = deed[:2]
    run = world.runs[i]
    try:
        if what == "load":
            world.runs[i] = None
            world.runs[i] = loaded(world.paper, state)
        elif what == "begin":
            world.runs[i] = None
            world.runs[i] = begun(world.paper, state)
        elif run is not None and what == "go":
            world.unseen.append(run.go(deed[2]))
            world.begun += 1
        elif run is not None:
            world.runs[i] = None
            if what == "leave":
                run.__exit__(None, None, None)
            else:
                assert run._kept is not None
                run._claim(run._kept, None)
    except tb.errors.SettlementError:
        world.runs[i] = None
    return world


def worst_excess() -> float:
    """The least delta for all who kill processes, start them, choose, and see, as they like."""
    first, state = first_world()
    worlds: dict[Any, World] = {first.name(): first}

    @functools.cache
    def after(name: Any) -> tuple[Any, ...]:
        found = {}
        for deed in deeds(worlds[name]):
            other = happened(worlds[name], deed, state)
            found[other.name()] = other
        for key, other in found.items():
            worlds.setdefault(key, other)
        return tuple(found)

    @functools.cache
    def reached(name: Any) -> tuple[Any, ...]:
        seen, ahead = {name: None}, [name]
        while ahead:
            for other in after(ahead.pop()):
                if other not in seen:
                    seen[other] = None
                    ahead.append(other)
        return tuple(seen)

    @functools.cache
    def ends(name: Any) -> tuple[float, tuple[tuple[float, Any], ...]]:
        """The least charge that can be reached unseen; and for each output, all worlds after it."""
        least = MOST
        outputs: dict[tuple[float, Any], None] = {}
        for other in reached(name):
            world = worlds[other]
            least = min(least, world.charge())
            for runs in {*world.unseen}:
                then = world.copy()
                then.unseen.remove(runs)
                worlds.setdefault(then.name(), then)
                outputs[float(TRUE[runs]), then.name()] = None
        return least, tuple(outputs)

    @functools.cache
    def value(name: Any, p: float, q: float) -> float:
        least, outputs = ends(name)
        found = max(0.0, p - math.exp(least) * q)
        for true, then in outputs:
            both = value(then, p * (1 - true), q * true) + value(then, p * true, q * (1 - true))
            found = max(found, both)
        return found

    return value(first.name(), 1.0, 1.0)


def test_no_interleaving_of_crashes_and_processes_is_cheaper_and_one_takes_all_of_delta() -> None:
    assert 0.99 * PRICED.delta.lower <= worst_excess() <= PRICED.delta.upper + 1e-12


def test_a_move_that_two_processes_make_would_break_it() -> None:
    # who sees the loud answer twice for the price of once
    gained = sum(
        max(0.0, p - math.exp(PRICES["loud"]) * q)
        for p, q in ((9 / 16, 1 / 16), (3 / 16, 3 / 16), (3 / 16, 3 / 16), (1 / 16, 9 / 16))
    )
    assert gained > PRICED.delta.upper


# ------------------------------------------------------------------------------ one ledger


@pytest.mark.parametrize(
    ("moves", "state"),
    [
        ((), "quiet"),  # the cheapest that can be reached from the start
        (("loud",), "loud"),
        (("loud", "between"), "end"),
        (("loud", "end"), "end"),
        (("quiet",), "quiet"),
    ],
)
def test_a_run_that_died_is_ended_at_the_state_that_its_moves_lead_to(
    moves: tuple[str, ...], state: str, ledger: tb.Ledger
) -> None:
    saved = gone(ledger, *moves)
    assert spent(ledger) == held()
    receipt = again(ledger, saved).end()
    assert receipt.charged.epsilon == pytest.approx(PRICES[state])
    assert receipt.returned.delta == 0
    assert spent(ledger) == paid(state)
    assert ledger.holds() == ()
    ledger.verify()


def test_a_run_goes_on_at_the_state_that_was_reached_whatever_the_age_of_the_checkpoint(
    ledger: tb.Ledger,
) -> None:
    saved = gone(ledger, "loud")  # saved before the first move
    with again(ledger, saved) as run:
        assert run.state == "loud"
        assert [move.to for move in run.moves] == ["end", "between"]
        assert run.go("between") == QUIET * 1
        assert run.state_dict() == saved
    assert run.receipt.charged.epsilon == pytest.approx(PRICES["end"])
    assert spent(ledger) == paid("end")


def test_a_run_that_was_left_is_settled_by_the_next_process(ledger: tb.Ledger) -> None:
    run = of(ledger).__enter__()
    run.go("loud")
    assert run._claim(run._kept, None)  # type: ignore[arg-type]
    with again(ledger, run.state_dict()) as other:  # it has died before it could settle
        assert (other.state, other.moves) == ("loud", ())
        with pytest.raises(tb.errors.SettlementError, match="was ended at state 'loud' by another"):
            other.go("end")
    assert spent(ledger) == paid("loud")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_leaves_the_run_to_be_gone_on_with(
    error: type[BaseException], ledger: tb.Ledger
) -> None:
    run = of(ledger)

    def fails() -> None:
        with run:
            run.go("quiet")
            raise error

    with pytest.raises(error):
        fails()
    assert spent(ledger) == held()
    again(ledger, run.state_dict()).end()
    assert spent(ledger) == paid("quiet")


def test_of_two_processes_at_one_state_one_goes_on(ledger: tb.Ledger) -> None:
    slow = of(ledger).__enter__()
    quick = again(ledger, slow.state_dict()).__enter__()
    quick.go("quiet")
    with pytest.raises(
        tb.errors.FencingError, match="another process has gone on with this run from state 'start'"
    ):
        slow.go("loud")
    with pytest.raises(tb.errors.SettlementError, match="no run is open"):
        slow.go("loud")
    with pytest.raises(tb.errors.FencingError, match="nothing is run or settled here"):
        slow.__exit__(None, None, None)
    assert spent(ledger) == held()
    quick.__exit__(None, None, None)
    assert spent(ledger) == paid("quiet")


def test_a_process_that_wakes_after_the_end_goes_no_further(ledger: tb.Ledger) -> None:
    slow = of(ledger).__enter__()
    slow.go("loud")
    again(ledger, slow.state_dict()).end()
    with pytest.raises(tb.errors.FencingError, match="or has ended it there"):
        slow.go("between")
    assert spent(ledger) == paid("loud")


def test_a_process_that_an_image_of_it_brings_back_goes_no_further(ledger: tb.Ledger) -> None:
    run = of(ledger).__enter__()
    before = dict(vars(run))
    run.go("loud")
    vars(run).update(before)
    with pytest.raises(tb.errors.FencingError):
        run.go("loud")
    assert spent(ledger) == held()


def test_a_run_is_ended_though_another_process_goes_on_at_that_moment(
    ledger: tb.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = of(ledger).__enter__()
    ending, claims = again(ledger, alive.state_dict()), WorkflowRun._claim

    def claim(run: WorkflowRun, *given: Any) -> bool:
        if run is ending and alive.state == "start":
            alive.go("loud")
        return claims(run, *given)

    monkeypatch.setattr(WorkflowRun, "_claim", claim)
    ending.end()
    assert spent(ledger) == paid("loud")


@pytest.mark.parametrize("leaves", [False, True])
def test_a_run_whose_end_another_budget_has_claimed_is_settled(
    leaves: bool, ledger: tb.Ledger
) -> None:
    run = of(ledger).__enter__()
    run.go("loud")
    assert run._claim(run._kept, None)  # type: ignore[arg-type]
    ledger.open_budget("bob", epsilon=1, delta=0.1)
    other = WorkflowRun(PRICED, ledger.budget("bob").keyed("run"), resumable=True)
    other.load_state_dict(run.state_dict())
    if leaves:
        with other:
            assert other.moves == ()
    else:
        other.end()
    assert spent(ledger) == paid("loud")
    assert ledger.budget("bob").spent.epsilon == 0.0


def test_a_forfeited_run_stays_charged(ledger: tb.Ledger) -> None:
    run = of(ledger).__enter__()
    ledger.hold("run").forfeit()
    run.go("quiet")
    with pytest.raises(tb.errors.FencingError, match="overruled"):
        run.__exit__(None, None, None)
    assert spent(ledger) == pytest.approx((MOST, 0.0))


def test_blocks_pay_for_a_run_that_goes_on(ledger: tb.Ledger) -> None:
    days = ledger.blocks("clicks", by=("day",), epsilon=4, delta=0.5).where(
        day="2026-01-01..2026-01-02"
    )

    def of_days() -> WorkflowRun:
        return WorkflowRun(PRICED, days.keyed("run"), interactive=False, resumable=True)

    run = of_days().__enter__()
    run.go("loud")
    other = of_days()
    other.load_state_dict(run.state_dict())
    other.end()
    for name in days.names:
        assert ledger.budget(name).spent.epsilon == pytest.approx(PRICES["loud"])
        assert ledger.budget(name).held.epsilon == 0


CHOOSING = tb.workflows.Workflow(
    {
        "a": [(tb.ExponentialMechanism(0.5), "b")],
        "b": [(QUIET, "c"), (tb.ExponentialMechanism(0.5) + QUIET, "d")],
        "c": [(QUIET, "d")],
        "d": [],
    }
)
CHOSEN = tb.workflows.PricedWorkflow(
    CHOOSING, {"b": 0.5, "c": 0.9, "d": 1.4}, tb.Bounds(0.2, 0.2), 0.2
)


def nobody_goes_on_beside_a_choice(ledger: tb.Ledger) -> bool:
    """Who chooses among candidates does so before another process goes on."""
    quick = again(ledger, gone(ledger, "b", priced=CHOSEN), priced=CHOSEN).__enter__()
    try:
        quick.go("c")
    except tb.errors.SettlementError:
        return quick.moves == ()
    return False


def test_after_a_choice_among_candidates_another_process_may_end_the_run(ledger: tb.Ledger) -> None:
    slow = of(ledger, priced=CHOSEN).__enter__()
    slow.go("b")
    with again(ledger, slow.state_dict(), priced=CHOSEN) as quick:
        with pytest.raises(
            tb.errors.SettlementError, match="to state 'b' by a move that chooses among candidates"
        ):
            quick.go("c")
        assert quick.moves == ()
    assert ledger.hold("run").cell == "b"
    with pytest.raises(tb.errors.FencingError):
        slow.go("c")


def test_after_a_later_move_another_process_goes_on(ledger: tb.Ledger) -> None:
    state = gone(ledger, "b", "c", priced=CHOSEN)  # what was chosen, was chosen before this move
    with again(ledger, state, priced=CHOSEN) as run:
        run.go("d")
    assert ledger.hold("run").cell == "d"


# -------------------------------------------------------------------- processes that die

RUNNING = """
import json, os, signal, sys
from pathlib import Path
import tightbudget as tb
from tightbudget.release.workflow_run import WorkflowRun

url, file, dies = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
loud, quiet = tb.HistogramPair((6.0, 2.0), (2.0, 6.0)), tb.HistogramPair((5.0, 3.0), (3.0, 5.0))
workflow = tb.workflows.Workflow(
    {"a": [(quiet, "b"), (loud, "c")], "b": [(quiet, "c")], "c": [(quiet, "d")], "d": []}
)
prices = {"b": 0.9, "c": 1.2, "d": 1.3}
priced = tb.workflows.PricedWorkflow(workflow, prices, workflow.delta(prices), 0.5)


def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)


run = WorkflowRun(priced, tb.Ledger(url).budget("ada").keyed("run"), resumable=True)
if file.exists():
    run.load_state_dict(json.loads(file.read_text()))
if dies == "in the end":
    from tightbudget.release.kept_run import KeptRun
    KeptRun.settle = kill
with run:
    file.write_text(json.dumps(run.state_dict()))
    if dies == "in a claim":
        tb.ledger.LedgerHold.void = kill
    while run.moves and run.state != "c":
        run.go(run.moves[0].to)
        if dies == "in a move":
            kill()
print(run.state, run.receipt.charged.epsilon)
"""


@pytest.mark.slow  # it starts Python five times
def test_a_run_that_is_killed_goes_on_and_is_charged_the_state_that_it_reached(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/budget.db"
    with tb.Ledger(url) as ledger:
        ada = ledger.open_budget("ada", epsilon=4, delta=0.5)
        words = [sys.executable, "-c", RUNNING, url, str(tmp_path / "state")]
        # in the move to b, in the claim of that to c, and in between the claim of the end and its
        # price
        for dies in ("in a move", "in a claim", "in the end"):
            run = subprocess.run([*words, dies], timeout=300, check=False, env=dict(os.environ))
            assert run.returncode == -signal.SIGKILL
            assert ada.spent.epsilon == 0 < ada.held.epsilon == pytest.approx(1.3)
        done = subprocess.run(
            [*words, "never"], timeout=300, check=True, capture_output=True, text=True
        )
        assert done.stdout.split() == ["c", repr(ada.spent.epsilon)]
        assert ada.spent.epsilon == pytest.approx(1.2)
        assert ada.held.epsilon == 0
        assert ledger.holds() == ()  # of claims, too
        over = subprocess.run([*words, "never"], timeout=300, capture_output=True, text=True)
        assert over.returncode == 1
        assert "'run' is settled with cell 'c'" in over.stderr
        ledger.verify()


def test_a_fork_settles_nothing(ledger: tb.Ledger) -> None:
    run = of(ledger).__enter__()
    run._process += 1  # as if this were a fork of the one that opened it
    with pytest.raises(tb.errors.SettlementError, match="settled by the process that has started"):
        run.__exit__(None, None, None)
    assert spent(ledger) == held()


# ------------------------------------------------------------------------------- refusals


def test_what_a_state_is(ledger: tb.Ledger) -> None:
    state = gone(ledger)
    assert [*state] == ["tightbudget", "key", "token", "workflow"]
    assert (state["tightbudget"], state["key"]) == (1, "run")
    moves = {s: [(m.runs, m.to) for m in moves[::-1]] for s, moves in WORKFLOW.moves.items()}
    turned = tb.workflows.Workflow(dict(reversed([*moves.items()])), "start")
    assert turned == WORKFLOW
    priced = tb.workflows.PricedWorkflow(turned, PRICES, PRICED.delta, 0.2)
    again(ledger, state, priced=priced).end()  # the order of states and moves does not matter


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": "another"}, "the state's key must be 'run', got 'another'"),
        ({"tightbudget": 2}, "the state's version must be 1, got 2"),
        ({"workflow": "0" * 64}, "workflow must have the states and the moves of the run that the"),
        ({"token": None}, "the state's token must be a text"),
        ({"more": 1}, r"state must be what state_dict\(\) of a WorkflowRun returned"),
    ],
)
def test_a_state_that_was_changed_is_refused(
    change: dict[str, Any], message: str, ledger: tb.Ledger
) -> None:
    state = gone(ledger)
    with pytest.raises(tb.ParameterError, match=message):
        again(ledger, {**state, **change})
    assert spent(ledger) == held()
    again(ledger, state).end()
    assert spent(ledger) == paid("quiet")


def other_moves() -> Any:
    """The same states with quieter moves."""
    moves = {s: [(QUIET, move.to) for move in moves] for s, moves in WORKFLOW.moves.items()}
    return tb.workflows.Workflow(moves)


def test_the_state_of_another_workflow_is_refused(ledger: tb.Ledger) -> None:
    state = gone(ledger, "loud")
    priced = tb.workflows.PricedWorkflow(other_moves(), PRICES, PRICED.delta, 0.2)
    with pytest.raises(tb.ParameterError, match="workflow must have the states and the moves"):
        again(ledger, state, priced=priced)


def test_other_prices_of_the_same_moves_charge_those_of_the_ledger(ledger: tb.Ledger) -> None:
    prices = {state: 0.5 * price for state, price in PRICES.items()}
    cheaper = tb.workflows.PricedWorkflow(WORKFLOW, prices, tb.Bounds(0.3, 0.3), 0.3)
    again(ledger, gone(ledger, "loud"), priced=cheaper).end()
    assert spent(ledger) == paid("loud")


def test_a_claim_that_is_no_move_is_refused(ledger: tb.Ledger) -> None:
    state = gone(ledger)
    ledger.budget("ada").reserve("run after 0", tb.OutputDP({("goes on", "?", "end"): 0}))
    with pytest.raises(
        tb.ParameterError, match=r"must have the moves of the run: from 'start', .* to \('end',\)"
    ):
        again(ledger, state).end()
    assert spent(ledger) == held()


@pytest.mark.parametrize("enters", [True, False])
def test_a_wrong_token_is_refused_before_anything_runs(enters: bool, ledger: tb.Ledger) -> None:
    state = gone(ledger)
    run = again(ledger, {**state, "token": "f" * 32})
    with pytest.raises(tb.errors.FencingError, match="'run' goes on with the token of its start"):
        run.__enter__() if enters else run.end()
    assert spent(ledger) == held()


def test_a_run_that_is_over_is_refused(ledger: tb.Ledger) -> None:
    state = gone(ledger, "loud")
    again(ledger, state).end()
    acts: list[Callable[[WorkflowRun], Any]] = [WorkflowRun.__enter__, WorkflowRun.end]
    for act in acts:
        with pytest.raises(
            tb.errors.SettlementError, match=r"goes on .*, and 'run' is settled with cell 'loud'"
        ):
            act(again(ledger, state))


def test_others_see_a_run_as_it_was_reserved(ledger: tb.Ledger) -> None:
    with pytest.raises(
        tb.ParameterError, match="interactive must be True, as when 'run' was reserved, got False"
    ):
        again(ledger, gone(ledger), interactive=False).end()


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        (lambda run, _: run.state_dict(), r"the run is not reserved: .* after reserve\(\), and in"),
        (lambda run, _: run.end(), "load_state_dict comes first: there is no run to end"),
        (
            lambda run, state: run.__enter__().load_state_dict(state),
            "a state is loaded before the run is reserved or entered",
        ),
        (lambda run, _: run.__enter__().reserve(), "a run is reserved before it is entered"),
        (lambda run, _: run.__enter__().end(), "a run is ended without moves before it is entered"),
    ],
)
def test_the_order_of_calls(
    deed: Callable[[WorkflowRun, dict[str, Any]], object], message: str, ledger: tb.Ledger
) -> None:
    with pytest.raises(tb.errors.SettlementError, match=message):
        deed(of(ledger), {})


@pytest.mark.parametrize(
    "deed",
    [WorkflowRun.state_dict, WorkflowRun.end, lambda run: run.load_state_dict({})],
    ids=["state_dict", "end", "load_state_dict"],
)
def test_a_run_that_is_not_resumable_has_no_state(deed: Callable[[WorkflowRun], object]) -> None:
    run = WorkflowRun(PRICED, tb.OutputDPFilter(4, 0.5))
    with pytest.raises(
        tb.errors.SettlementError, match="if its WorkflowRun was made with resumable=True"
    ):
        deed(run)


def test_a_budget_in_memory_pays_for_no_resumable_run() -> None:
    with pytest.raises(
        tb.ParameterError, match=r"meter must be a budget of a ledger with a key.*OutputDPFilter"
    ):
        WorkflowRun(PRICED, tb.OutputDPFilter(4, 0.5), resumable=True)


def test_a_key_that_leaves_no_room_is_refused_before_anything_is_held(ledger: tb.Ledger) -> None:
    with pytest.raises(tb.ParameterError, match="key must be a text of 1 to 200 printable"):
        of(ledger, "k" * 195).__enter__()
    assert spent(ledger) == (0, 0)


# ------------------------------------------------------------------------------ mutations


def one_goes_on(ledger: tb.Ledger) -> bool:
    """Of two processes at one state, one makes a move."""
    first = of(ledger).__enter__()
    second = again(ledger, first.state_dict()).__enter__()
    second.go("quiet")
    try:
        first.go("loud")
    except tb.errors.FencingError:
        return True
    return False


def overtaken_settles_nothing(ledger: tb.Ledger) -> bool:
    """A process does not settle where another one has gone on."""
    slow = of(ledger).__enter__()
    again(ledger, slow.state_dict()).__enter__().go("loud")
    try:
        slow.__exit__(None, None, None)
    except tb.errors.FencingError:
        return True
    return False


def begun_moves_cost(ledger: tb.Ledger) -> bool:
    """A move that had begun is charged."""
    again(ledger, gone(ledger, "loud")).end()
    return ledger.hold("run").cell == "loud"


def another_claim_is_no_move(ledger: tb.Ledger) -> bool:
    """A claim that is no move leads to no state."""
    state = gone(ledger)
    ledger.budget("ada").reserve("run after 0", tb.OutputDP({("goes on", "?", "end"): 0}))
    try:
        again(ledger, state).__enter__()
    except tb.ParameterError:
        return True
    return False


MUTATIONS = [
    Without(
        "one process makes a move", {"move-claimed-first": "if False:"}, in_a_ledger(one_goes_on)
    ),
    Without(
        "a run is not ended where another process goes on",
        {"no-move-after-the-end": "if False:"},
        in_a_ledger(overtaken_settles_nothing),
    ),
    Without(
        "moves that had begun count",
        {"begun-moves-count": "self._passed = self._passed + 1"},
        in_a_ledger(begun_moves_cost),
    ),
    Without(
        "the ledger's moves are those of the workflow",
        {"kept-moves-are-moves": "if False:"},
        in_a_ledger(another_claim_is_no_move),
    ),
]


MUTATIONS.append(
    Without(
        "another process goes on beside a choice",
        {"chosen-first": "pass"},
        in_a_ledger(nobody_goes_on_beside_a_choice),
    )
)


@each(MUTATIONS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)
