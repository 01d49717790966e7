"""Budgets that charge the price of the output that came out; all other kinds give nothing back."""

from tightbudget.output_dp.pricing import OutputDPRule
from tightbudget.promises.kinds.kind import Kind

OUTPUT_DP = Kind(
    name="output_dp",
    words="priced by output",
    rule=OutputDPRule,
    offered="charges what came out",
)
