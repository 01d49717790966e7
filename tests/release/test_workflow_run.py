"""Runs of workflows: what is charged covers what was seen, whatever chose the moves."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import pytest
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.release.workflow_run import WorkflowRun

# a bit that is told truly with the chance 3/4, and one with 5/8
LOUD, QUIET = tb.HistogramPair((6.0, 2.0), (2.0, 6.0)), tb.HistogramPair((5.0, 3.0), (3.0, 5.0))
TRUE = {LOUD * 1: Fraction(3, 4), QUIET * 1: Fraction(5, 8)}
WORKFLOW = tb.workflows.Workflow(
    {
        "start": [(LOUD, "loud"), (QUIET, "quiet")],
        "loud": [(LOUD, "end"), (QUIET, "between")],
        "quiet": [(QUIET, "end")],
        "between": [(QUIET, "end")],
        "end": [],
    }
)
PRICED = tb.workflows.priced(WORKFLOW, 0.2, ["loud", "quiet", "end"])
HALT = "halt"


def choices() -> Iterator[Mapping[tuple[Any, ...], str]]:
    """All ways of choosing: for each view the next state, or to halt."""
    first = ["loud", "quiet"]
    after = {"loud": ["end", "between", HALT], "quiet": ["end", HALT], "between": ["end", HALT]}
    for start in first:
        for rules in itertools.product(after[start], repeat=2):
            chosen: dict[tuple[Any, ...], str] = {(): start}
            chosen |= {((start, bit),): rules[bit] for bit in (0, 1)}
            if "between" in rules:
                for last in itertools.product(after["between"], repeat=4):
                    more = {
                        ((start, a), ("between", b)): last[2 * a + b]
                        for a in (0, 1)
                        for b in (0, 1)
                    }
                    yield chosen | more
            else:
                yield chosen


def walked(chosen: Mapping[tuple[Any, ...], str], bits: tuple[int, ...]) -> tuple[Any, ...]:
    """What is seen where the moves give these bits, the chances of it, and the charge."""
    meter = tb.OutputDPOdometer()
    view: tuple[Any, ...] = ()
    p = q = Fraction(1)
    with WorkflowRun(PRICED, meter) as run:
        while run.moves and (to := chosen.get(view, HALT)) != HALT:
            true, bit = TRUE[run.go(to)], bits[len(view)]
            p, q = p * (1 - true if bit else true), q * (true if bit else 1 - true)
            view = (*view, (to, bit))
    assert meter._spent.delta == Fraction(PRICED.delta.upper)
    return view, p, q, meter._spent.counted


def excess(chosen: Mapping[tuple[Any, ...], str]) -> float:
    """The least delta for what was charged, in the worse direction."""
    seen = {}
    for bits in itertools.product((0, 1), repeat=3):
        view, p, q, charge = walked(chosen, bits)
        seen[view] = p, q, charge
    forth = sum(max(0.0, float(p) - math.exp(e) * float(q)) for p, q, e in seen.values())
    back = sum(max(0.0, float(q) - math.exp(e) * float(p)) for p, q, e in seen.values())
    return max(forth, back)


def all_is_covered() -> bool:
    return max(map(excess, choices())) <= PRICED.delta.upper + 1e-12


def test_every_way_of_choosing_is_covered_and_one_takes_all_of_delta() -> None:
    excesses = [excess(chosen) for chosen in choices()]
    assert max(excesses) <= PRICED.delta.upper + 1e-12
    assert max(excesses) >= 0.99 * PRICED.delta.lower


def test_the_state_that_was_reached_is_charged_and_the_rest_comes_back() -> None:
    budget = tb.OutputDPFilter(epsilon=5, delta=0.3)
    with WorkflowRun(PRICED, budget) as run:
        assert run.state == "start"
        assert run.go("quiet") == QUIET * 1
        assert [move.to for move in run.moves] == ["end"]
    receipt = run.receipt
    assert receipt.charged.epsilon == pytest.approx(PRICED.prices["quiet"])
    assert receipt.held.epsilon == pytest.approx(max(PRICED.prices.values()))
    assert budget.left.epsilon == pytest.approx(5 - PRICED.prices["quiet"])


def test_a_state_without_a_price_costs_the_cheapest_that_could_have_come_next() -> None:
    budget = tb.OutputDPFilter(epsilon=5, delta=0.3)
    with WorkflowRun(PRICED, budget) as run:
        run.go("loud")
        run.go("between")
    assert run.receipt.charged.epsilon == pytest.approx(PRICED.prices["end"])
    with WorkflowRun(PRICED, tb.OutputDPFilter(epsilon=5, delta=0.3)) as idle:
        pass
    assert idle.receipt.charged.epsilon == pytest.approx(PRICED.prices["quiet"])


def failure_costs_the_costliest() -> bool:
    budget = tb.OutputDPFilter(epsilon=5, delta=0.3)
    with contextlib.suppress(ZeroDivisionError), WorkflowRun(PRICED, budget) as run:
        run.go("quiet")
        raise ZeroDivisionError
    return math.isclose(budget.left.epsilon, 5 - max(PRICED.prices.values()))


def test_an_exception_costs_the_costliest_state() -> None:
    assert failure_costs_the_costliest()


def no_other_move_is_admitted() -> bool:
    with WorkflowRun(PRICED, tb.OutputDPFilter(epsilon=5, delta=0.3)) as run:
        try:
            run.go("between")
        except tb.ParameterError:
            return run.state == "start"
        except IndexError:
            return False
    return False


@pytest.mark.parametrize(
    ("to", "mechanism", "said"),
    [
        ("end", None, r"state 'start' has the moves .* to 'loud', .* to 'quiet'; got 'end'"),
        ("loud", QUIET, r"state 'start' has the moves .*; got HistogramPair.* to 'loud'"),
        ("loud", LOUD * 2, "state 'start' has the moves"),
    ],
)
def test_what_was_not_declared_is_refused_and_changes_nothing(
    to: str, mechanism: Any, said: str
) -> None:
    with WorkflowRun(PRICED, tb.OutputDPFilter(epsilon=5, delta=0.3)) as run:
        with pytest.raises(tb.ParameterError, match=said):
            run.go(to, mechanism)
        assert run.state == "start"
        run.go("loud", LOUD)


def test_an_end_has_no_move_and_two_ways_to_one_state_need_the_mechanism() -> None:
    both = tb.workflows.Workflow({"s": [(LOUD, "end"), (QUIET, "end")], "end": []})
    priced = tb.workflows.priced(both, 0.2)
    with WorkflowRun(priced, tb.OutputDPFilter(epsilon=5, delta=0.3)) as run:
        with pytest.raises(tb.ParameterError, match="several moves lead to 'end': name the mech"):
            run.go("end")
        assert run.go("end", QUIET) == QUIET * 1
        with pytest.raises(tb.ParameterError, match=r"has the moves \(none: it is an end\)"):
            run.go("end")


def test_a_run_is_paid_for_once_and_only_while_it_is_open() -> None:
    budget = tb.OutputDPFilter(epsilon=5, delta=0.3)
    run = WorkflowRun(PRICED, budget)
    with pytest.raises(tb.errors.SettlementError, match="no run is open"):
        run.go("loud")
    with pytest.raises(tb.errors.SettlementError, match="has not begun"):
        _ = run.receipt
    with run:
        run.go("loud")
    with pytest.raises(tb.errors.SettlementError, match="no run is open"):
        run.go("end")
    with pytest.raises(tb.errors.SettlementError, match="another one needs a WorkflowRun"), run:
        pass


def test_what_does_not_fit_is_refused_and_charges_nothing() -> None:
    budget = tb.OutputDPFilter(epsilon=0.1, delta=0.3)
    with pytest.raises(tb.errors.BudgetError), WorkflowRun(PRICED, budget):
        pass
    assert budget.left.epsilon == 0.1
    with pytest.raises(tb.ParameterError, match="priced must be a workflow with prices"):
        WorkflowRun(WORKFLOW, budget)  # type: ignore[arg-type]


def test_a_budget_of_a_ledger_pays_for_the_state(tmp_path: Any) -> None:
    with tb.Ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        budget = ledger.open_budget("b", epsilon=5, delta=0.3)
        with WorkflowRun(PRICED, budget.keyed("one")) as run:
            run.go("loud")
            run.go("end")
        assert budget.spent.epsilon == pytest.approx(PRICED.prices["end"])


@pytest.mark.slow
def test_a_fork_of_a_run_neither_goes_on_nor_settles() -> None:
    script = (
        "import os, sys, tightbudget as tb\n"
        "from tightbudget.release.workflow_run import WorkflowRun\n"
        "w = tb.workflows.priced(tb.workflows.Workflow.chain(tb.Gaussian(20.0), [1]), 1e-5)\n"
        "run = WorkflowRun(w, tb.OutputDPFilter(5, 0.1)).__enter__()\n"
        "if os.fork() == 0:\n"
        "    try:\n        run.go(1)\n"
        "    except tb.errors.SettlementError as error:\n        print(error); os._exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env=dict(os.environ),
    )  # fmt: skip
    assert ran.stdout.split("\n")[-2] == "3"


WITHOUT: list[Without] = [
    Without(
        "any state as a next one",
        {"declared-moves-alone": "if False:"},
        no_other_move_is_admitted,
    ),
    Without(
        "the cheapest state in place of the one that was reached",
        {"price-of-this-state": "self._run.cell = 'quiet'"},
        all_is_covered,
    ),
    Without(
        "an exception that is charged the state",
        {"failure-costs-costliest-state": "self._paid.__exit__(None, None, None)"},
        failure_costs_the_costliest,
    ),
]


@each(WITHOUT)
def test_without_the_guard_a_truth_is_lost(
    mutation: Without, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_truth(monkeypatch, mutation)
