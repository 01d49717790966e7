"""Synthetic tables from noisy marginals: what the algorithms of mbi, dpmm and OpenDP cost."""

from tightbudget.marginals.aim_run import AimMarginals, run_aim
from tightbudget.marginals.calibrate import rho
from tightbudget.marginals.domains import NumericBins
from tightbudget.marginals.marginal_run import MarginalRun, NoisyMarginal
from tightbudget.marginals.mbi_fit import MbiModel, mbi_model
from tightbudget.marginals.measurements import Measurements, aim, fixed, mst
from tightbudget.marginals.report import MarginalReport
from tightbudget.marginals.synthesize import SyntheticTable, synthesize

__all__ = [
    "AimMarginals",
    "MbiModel",
    "NumericBins",
    "SyntheticTable",
    "MarginalReport",
    "MarginalRun",
    "Measurements",
    "NoisyMarginal",
    "aim",
    "fixed",
    "mbi_model",
    "mst",
    "rho",
    "run_aim",
    "synthesize",
]
