"""Synthetic tables from noisy marginals: what the algorithms of mbi, dpmm and OpenDP cost."""

from tightbudget.marginals.calibrate import rho
from tightbudget.marginals.measurements import Measurements, aim, fixed, mst

__all__ = ["Measurements", "aim", "fixed", "mst", "rho"]
