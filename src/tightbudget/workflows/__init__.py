"""Plans with choices: states, what may run at each of them, and a price for stopping there."""

from tightbudget.workflows.prices import PricedWorkflow, priced
from tightbudget.workflows.workflow import Move, Workflow

__all__ = ["Move", "PricedWorkflow", "Workflow", "priced"]
