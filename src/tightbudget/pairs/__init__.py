"""Which two distributions must an observer tell apart? One mechanism, one file."""

from tightbudget.pairs.gaussian import Gaussian
from tightbudget.pairs.laplace import Laplace
from tightbudget.pairs.pair import Direction, Mechanism, Neighbouring
from tightbudget.pairs.subsampled import Subsampled

__all__ = ["Direction", "Gaussian", "Laplace", "Mechanism", "Neighbouring", "Subsampled"]
