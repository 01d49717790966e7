"""A notebook with every value that shows itself: the first cell, and a cell for each value."""

from __future__ import annotations

__all__ = ["CELLS", "SETUP"]

SETUP = """\
import tightbudget as tb

step = tb.Gaussian(sigma=1.0).subsampled(0.01)
run, laplace = step * 1000, tb.Laplace(scale=20.0) * 3
found = run.epsilon(delta=1e-5)
curve = run.curve(epsilons=[0.0, 0.5, 1.0, 1.5])
comparison = tb.compare(tb.RandomizedResponse(p=0.6) * 3, delta=1e-5)
risk = run.risk(epsilon=1.0)
explanation = run.explain(delta=1e-5)
calibration = tb.calibrate(lambda s: tb.Gaussian(s) * 10, epsilon=1.0, delta=1e-5)
schedule = tb.early_stopping(step * 100, stops=[1, 2], delta=1e-5)
guarantee = tb.OutputDP({"found": 0.3, "not found": 0.05}, delta=1e-7)

budget = tb.OutputDPFilter(epsilon=1, delta=1e-6)
hold = budget.reserve(guarantee)
hold.start()
hold.settle("not found")
budget.reserve(tb.OutputDP({"found": 0.3, "not found": 0.05}))
odometer = tb.OutputDPOdometer()
zcdp = tb.ZCDPFilter(rho=0.5)
zcdp_hold = zcdp.reserve(0.1)
zcdp_hold.start()
zcdp_hold.forfeit()

ledger = tb.Ledger("sqlite:///budget.db")
census = ledger.open_budget("census", epsilon=4, delta=1e-6)
ada = ledger.open_budget("ada", parent="census", epsilon=1, delta=1e-7)
telemetry = ledger.open_budget("telemetry", kind="zcdp", rho=0.5)
run_1 = ada.reserve("run 1", tb.OutputDP({"found": 0.3, "not found": 0.05}))
run_1.start()
run_1.settle("not found")

amounts = (tb.Amount(amount, 0.0, "epsilon") for amount in (0.3, 0.05))
receipt = tb.release.Receipt(*amounts)
answers = tb.sweep([
    tb.sweeps.Question.of(run, delta=1e-5, labels={"steps": 1000}),
    tb.sweeps.Question.of(run, delta=2, labels={"steps": 500}),
])
"""

CELLS = (
    "found",
    "run",
    "run + laplace",
    "curve",
    "comparison",
    "risk",
    "explanation",
    "calibration",
    "schedule",
    "schedule.table()",
    "guarantee",
    "budget",
    "odometer",
    "zcdp",
    "ledger",
    "ada",
    "telemetry",
    "receipt",
    "answers",
)
