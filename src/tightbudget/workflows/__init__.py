"""Plans with choices: states, what may run at each of them, and a price for stopping there."""

from tightbudget.workflows.prices import PricedWorkflow, priced
from tightbudget.workflows.residue import residue_filter
from tightbudget.workflows.workflow import Move, Workflow
from tightbudget.workflows.workflow_file import WorkflowFile, read_workflow, write_workflow

__all__ = [
    "Move",
    "PricedWorkflow",
    "Workflow",
    "WorkflowFile",
    "priced",
    "read_workflow",
    "residue_filter",
    "write_workflow",
]
