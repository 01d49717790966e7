"""Which two distributions must an observer tell apart? One mechanism, one file."""

from tightbudget.pairs.additive import Additive
from tightbudget.pairs.clipped_sum import ClippedSum
from tightbudget.pairs.curve import FromCurve
from tightbudget.pairs.gaussian import Gaussian
from tightbudget.pairs.histogram import Histogram
from tightbudget.pairs.integer_noise import ClippedNoise, DiscreteGaussian, DiscreteLaplace
from tightbudget.pairs.laplace import Laplace
from tightbudget.pairs.loss_table import LossTable
from tightbudget.pairs.mixture_of_gaussians import MixtureOfGaussians
from tightbudget.pairs.pair import Direction, Mechanism, Neighbouring
from tightbudget.pairs.randomized_response import RandomizedResponse
from tightbudget.pairs.staircase import Staircase
from tightbudget.pairs.subsampled import Subsampled
from tightbudget.pairs.truncated import TruncatedGaussian, TruncatedLaplace
from tightbudget.pairs.worst_case import WorstCase

__all__ = [
    "MECHANISMS",
    "Additive",
    "ClippedNoise",
    "ClippedSum",
    "Direction",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "FromCurve",
    "Gaussian",
    "Histogram",
    "Laplace",
    "LossTable",
    "Mechanism",
    "MixtureOfGaussians",
    "Neighbouring",
    "RandomizedResponse",
    "Staircase",
    "Subsampled",
    "TruncatedGaussian",
    "TruncatedLaplace",
    "WorstCase",
]

# The name in JSON, in plan files and on the command line, and the class behind it.
MECHANISMS: dict[str, type[Mechanism]] = {
    thing.kind: thing
    for thing in map(globals().__getitem__, __all__[1:])
    if isinstance(thing, type) and issubclass(thing, Mechanism) and thing is not Mechanism
}
