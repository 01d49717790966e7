"""The values a user holds: mechanisms, one a file, and compositions of them."""

from tightbudget.mechanisms.additive import Additive
from tightbudget.mechanisms.allocated import Allocated
from tightbudget.mechanisms.approximate_dp import ApproximateDP
from tightbudget.mechanisms.batches import Batches
from tightbudget.mechanisms.best_of import BestOf
from tightbudget.mechanisms.clipped_sum import ClippedSum
from tightbudget.mechanisms.composition import MECHANISMS, Mechanism
from tightbudget.mechanisms.either import Either, either
from tightbudget.mechanisms.exponential import ExponentialMechanism
from tightbudget.mechanisms.from_curve import FromCurve
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.group import Group
from tightbudget.mechanisms.histogram import HistogramPair
from tightbudget.mechanisms.integer_noise import ClippedNoise, DiscreteGaussian, DiscreteLaplace
from tightbudget.mechanisms.laplace import Laplace
from tightbudget.mechanisms.logistic import Logistic
from tightbudget.mechanisms.loss_table import LossTable
from tightbudget.mechanisms.mixture_of_gaussians import MixtureOfGaussians
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.mechanisms.randomized_response import RandomizedResponse
from tightbudget.mechanisms.shuffled import Shuffled
from tightbudget.mechanisms.shuffled_reports import ShuffledReports
from tightbudget.mechanisms.staircase import Staircase
from tightbudget.mechanisms.subsampled import Subsampled
from tightbudget.mechanisms.truncated import TruncatedGaussian, TruncatedLaplace
from tightbudget.mechanisms.truncated_poisson import TruncatedPoisson
from tightbudget.pairs.direction import Direction

__all__ = [
    "MECHANISMS",
    "Additive",
    "Allocated",
    "Batches",
    "BestOf",
    "ClippedNoise",
    "ClippedSum",
    "Direction",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Either",
    "ExponentialMechanism",
    "FromCurve",
    "Gaussian",
    "Group",
    "HistogramPair",
    "Laplace",
    "Logistic",
    "LossTable",
    "Mechanism",
    "MixtureOfGaussians",
    "Neighbouring",
    "RandomizedResponse",
    "Shuffled",
    "ShuffledReports",
    "Staircase",
    "Subsampled",
    "TruncatedGaussian",
    "TruncatedLaplace",
    "TruncatedPoisson",
    "ApproximateDP",
    "either",
]
