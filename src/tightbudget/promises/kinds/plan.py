"""Budgets of a fixed plan: mechanisms that are declared, and charged whole, in advance."""

from tightbudget.output_dp.pricing import PlanRule
from tightbudget.promises.kinds.kind import Kind

# No form opens a plan: its parameter is no number, so that Python, the command line or the API do.
# A plan is charged in epsilon, so it may be a part of a budget that counts epsilon.
PLAN = Kind(
    name="plan",
    words="fixed plan",
    rule=PlanRule,
    charged_whole=True,
    in_wholes=frozenset({"output_dp"}),
)
