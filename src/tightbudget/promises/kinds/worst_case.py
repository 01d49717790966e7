"""Budgets that charge worst cases: their theorems are about prices fixed before a run."""

from tightbudget.output_dp.pricing import AdvancedRule, GaussianDPRule, RenyiRule, ZCDPRule
from tightbudget.promises.kinds.kind import Kind

ZCDP = Kind(
    name="zcdp", words="zero-concentrated DP", rule=ZCDPRule, offered="worst case, counts ρ"
)
RENYI = Kind(
    name="renyi",
    words="Rényi DP",
    rule=RenyiRule,
    offered="worst case, counts a Rényi divergence",
    fixed=frozenset({"order"}),  # amounts at two orders do not add up
)
GAUSSIAN_DP = Kind(
    name="gaussian_dp", words="Gaussian DP", rule=GaussianDPRule, offered="worst case, counts μ²"
)
ADVANCED = Kind(
    name="advanced",
    words="advanced composition",
    rule=AdvancedRule,
    offered="worst case, advanced composition",
)
