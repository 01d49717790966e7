"""Which two distributions must an observer tell apart? One mechanism, one file."""

from tightbudget.mechanisms.additive import Additive
from tightbudget.mechanisms.clipped_sum import ClippedSum
from tightbudget.mechanisms.from_curve import FromCurve
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.histogram import Histogram
from tightbudget.mechanisms.integer_noise import ClippedNoise, DiscreteGaussian, DiscreteLaplace
from tightbudget.mechanisms.laplace import Laplace
from tightbudget.mechanisms.loss_table import LossTable
from tightbudget.mechanisms.mechanism import Mechanism, Neighbouring
from tightbudget.mechanisms.mixture_of_gaussians import MixtureOfGaussians
from tightbudget.mechanisms.randomized_response import RandomizedResponse
from tightbudget.mechanisms.staircase import Staircase
from tightbudget.mechanisms.subsampled import Subsampled
from tightbudget.mechanisms.truncated import TruncatedGaussian, TruncatedLaplace
from tightbudget.mechanisms.worst_case import WorstCase
from tightbudget.pairs.pair import Direction

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
