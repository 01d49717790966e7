"""A run that several processes go on with at once, on each backend."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import tightbudget as tb
from tightbudget.release.stopping import StoppingCallback
from tightbudget.release.workflow_run import WorkflowRun
from tightbudget.workflows import Workflow, priced

TOGETHER, STOPS = 4, (1, 2, 3, 4, 5, 6)


def test_of_many_who_go_on_at_once_each_has_steps_of_its_own(url: str) -> None:
    used = tb.early_stopping(tb.Gaussian(5.0), STOPS, 1e-5)
    at_once = Barrier(TOGETHER)

    def of(ledger: tb.Ledger) -> StoppingCallback[bool]:
        meter: Any = ledger.budget("ada").keyed("run")
        return StoppingCallback(used, meter, bool, resumable=True)

    def goes_on(_: int) -> int:
        with tb.Ledger(url) as beside:
            run = of(beside)
            run.load_state_dict(json.loads(state))
            at_once.wait()
            return run.__enter__().next_stop

    with tb.Ledger(url) as ledger:
        ada = ledger.open_budget("ada", epsilon=4, delta=1e-5)
        state = json.dumps(of(ledger).__enter__().state_dict())
        with ThreadPoolExecutor(TOGETHER) as pool:
            found = list(pool.map(goes_on, range(TOGETHER)))
        assert sorted(found) == [2, 3, 4, 5]
        assert ada.spent.epsilon == 0 < ada.held.epsilon
        last = of(ledger)
        last.load_state_dict(json.loads(state))
        last.end()
        assert ada.held.epsilon == 0
        assert ledger.hold("run").cell == 5
        assert ledger.holds() == ()
        ledger.verify()


def test_of_many_who_move_at_once_one_goes_on(url: str) -> None:
    step = tb.Gaussian(5.0)
    ends: dict[Any, Any] = {f"end {i}": [] for i in range(TOGETHER)}
    workflow = Workflow({"start": [(step, end) for end in ends], **ends})
    used = priced(workflow, 1e-5)
    at_once = Barrier(TOGETHER)

    def of(ledger: tb.Ledger) -> WorkflowRun:
        meter: Any = ledger.budget("ada").keyed("run")
        return WorkflowRun(used, meter, resumable=True)

    def moves(i: int) -> bool:
        with tb.Ledger(url) as beside:
            run = of(beside)
            run.load_state_dict(json.loads(state))
            run.__enter__()
            at_once.wait()
            try:
                run.go(f"end {i}")
            except tb.errors.FencingError:
                return False
            run.__exit__(None, None, None)
            return True

    with tb.Ledger(url) as ledger:
        ada = ledger.open_budget("ada", epsilon=4, delta=1e-5)
        state = json.dumps(of(ledger).__enter__().state_dict())
        with ThreadPoolExecutor(TOGETHER) as pool:
            found = list(pool.map(moves, range(TOGETHER)))
        assert found.count(True) == 1
        assert ledger.hold("run").cell == f"end {found.index(True)}"
        assert ada.held.epsilon == 0 < ada.spent.epsilon
        assert ledger.holds() == ()
        ledger.verify()
