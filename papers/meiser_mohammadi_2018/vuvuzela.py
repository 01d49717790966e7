"""Vuvuzela: what an observer sees in a round, and how few dummy requests hide it.

In each round a server adds ceil(max(0, X)) dummy requests, X ~ LP(mean, scale) or
GS(mean, scale^2). Dialing hides one count, which moves by 2. Conversation hides two: single
requests, which move by 2, and pairs of requests, with half the mean and half the scale, which
move by 1.

Two readings. As the paper writes it (7.1) the noise is clipped *after* the count has moved it:
ceil(max(0, X)) against ceil(max(0, X + 2)). In the protocol a count that cannot be negative is
added to a count of requests: N against N + 2, where an output below 2 says which it was.

The least noise (`minimal_noise`). Why no noise of its kind with a smaller mean does:

Let D(μ, b) be a count N against N + s, and C(μ, b) the same without rounding up; F is X's
distribution function, f its density. "Dominates" means δ at least as large at every ε, also below
0; then it is so after any number of rounds, and together with any other counts. For log-concave
noise the best test of an ε is a threshold t, with the one output s, which the second one's
clipping makes heavy, left out:

δ(ε) = max over t ≥ s of F(t) − e^ε (F(t − s) − F(0)), t an integer m (or F(s − 1) in all) when
rounded up.

1. *A smaller mean dominates.* With mean μ + a the thresholds t' = t − a ≥ s − a have F(t') − e^ε
   (F(t' − s) − F(−a)) ≤ F(t') − e^ε (F(t' − s) − F(0)) where t' ≥ s, and at most F(s) elsewhere.
2. *A larger shift dominates.* If t ≥ s' > s, F(t − s') ≤ F(t − s). If t < s', F(s') ≥ F(t).
3. *A common factor.* C(λμ, λb) with shift s is C(μ, b) with shift s/λ. By 2, C(μ, b) dominates
   C(λμ, λb) for λ ≥ 1.
4. *Rounding up hides next to nothing.* D(μ, b) dominates C(μ + 1, b) with shift s' = s − h, h =
   s/(4b²) for Gaussian noise and 1/(3b) for Laplace noise, b ≥ 100. The latter's δ is F(u) − e^ε
   (F(u − s') − F(−1)) at some u ≥ s' − 1. If u ≤ s − 1, D has F(s − 1) ≥ F(u). Else let m be the
   integer nearest to u; D has at least F(m) − e^ε (F(m − s) − F(−1)). As f(u) = e^ε f(u − s'),
   the loss by moving u to m is at most sup f times g/8, where g bounds the slope of the privacy
   loss: s/b² or 2/b. The gain by the larger shift is at least h e^ε inf f. Within a distance of 1
   f changes by a factor of at most e^(1/b), or e^(40/b) within 40 standard deviations; beyond
   these lies a mass below e^-700.

Now let all scales from b₁ to b₂ be given, and a mean of at most M. By 4, 1 and 3 each such D
dominates C((M + 2) b/b₁, b) with b slightly above b₂ (by s/s'), and that dominates the rounded D
there, which is a post-processing of it. So one certified lower bound of δ above the target rules
out the whole strip. Strips cover the scales from where noise that is never clipped misses the
target (a smaller scale only adds to that) to where the chance of certainty alone does (it grows
with the scale). The bounds of a mean are 2 % apart; closer ones only need narrower strips. For
counts in pairs, M + 2 = 2 (M/2 + 1) stands for each pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import tightbudget as tb

__all__ = [
    "ADDED",
    "CLIPPED",
    "DIALING_HIGH",
    "DIALING_LOW",
    "DIALING_MEDIUM",
    "DIALING_NEW_1",
    "DIALING_NEW_2",
    "HIGH",
    "LOW",
    "MEDIUM",
    "NEW_1",
    "NEW_2",
    "TARGET",
    "Minimal",
    "Noise",
    "View",
    "both_counts",
    "clipped_counts",
    "closest_delta",
    "dialing",
    "minimal_noise",
    "singles",
    "sum_of_counts",
]

TARGET = math.log(2.0), 1e-4  # the paper's: e^epsilon <= 2, delta <= 1e-4
CLIPPED, ADDED = "clipped", "shifted"  # the two readings, as tb.ClippedNoise calls them
_NEVER = "unclipped"  # noise of so large a mean that it is never negative


@dataclass(frozen=True)
class Noise:
    """The number of dummies before it is clipped and rounded up.

    Attributes:
        kind: "laplace" or "gaussian".
        mean, scale: in requests; the scale is Laplace's, or the standard deviation.
    """

    kind: str
    mean: float
    scale: float

    def __str__(self) -> str:
        name = {"laplace": "LP", "gaussian": "GS"}[self.kind]
        return f"{name}({_thousands(self.mean)}, {_thousands(self.scale)})"

    @property
    def halved(self) -> Noise:
        """Of the pairs, where this one is of the single requests."""
        return replace(self, mean=self.mean / 2, scale=self.scale / 2)

    def of_variance(self, kind: str) -> Noise:
        """Noise of another kind with this mean and this variance (Laplace's is 2 scale^2)."""
        factor = math.sqrt(2.0) if kind == "gaussian" else math.sqrt(0.5)
        return self if kind == self.kind else Noise(kind, self.mean, factor * self.scale)

    def count(self, shift: int, reading: str) -> tb.Mechanism:
        """A count that moves by ``shift`` under this noise."""
        if reading != _NEVER:
            return tb.ClippedNoise(self.mean, self.scale, self.kind, shift, reading)
        of = tb.Gaussian if self.kind == "gaussian" else tb.Laplace
        return of(self.scale, sensitivity=shift)


def _thousands(x: float) -> str:
    return f"{x / 1000:.4g}k" if x >= 1000 else f"{x:.4g}"


# the paper's parameters (Figure 17, and the captions of Figures 16, 20 and 21)
LOW, MEDIUM, HIGH = (
    Noise("laplace", 1e3 * mean, 1e3 * scale)
    for mean, scale in ((150.0, 7.3), (300.0, 13.8), (450.0, 20.0))
)
NEW_1, NEW_2 = Noise("gaussian", 15e3, 2.5e3), Noise("gaussian", 45e3, 7.5e3)
DIALING_LOW, DIALING_MEDIUM, DIALING_HIGH = (
    Noise("laplace", mean, scale) for mean, scale in ((8e3, 500.0), (13e3, 770.0), (20e3, 1130.0))
)
DIALING_NEW_1, DIALING_NEW_2 = Noise("gaussian", 1.6e3, 320.0), Noise("gaussian", 4.1e3, 833.0)


# what is seen in one round: of a noise, in a reading
View = Callable[[Noise, str], tb.Composition]


def dialing(noise: Noise, reading: str) -> tb.Composition:
    """The one count of the dialing protocol."""
    return tb.compose([noise.count(2, reading)])


def both_counts(noise: Noise, reading: str) -> tb.Composition:
    """Conversation: single requests and pairs, each counted."""
    return tb.compose([noise.count(2, reading), noise.halved.count(1, reading)])


def singles(noise: Noise, reading: str) -> tb.Composition:
    """Conversation, the single requests alone."""
    return tb.compose([noise.count(2, reading)])


def sum_of_counts(noise: Noise, reading: str) -> tb.Composition:
    """Conversation, where nothing but the sum of both counts is seen."""
    pairs = noise.halved
    return tb.compose(
        [tb.ClippedSum(noise.mean, noise.scale, pairs.mean, pairs.scale, noise.kind, 2, 1, reading)]
    )


def clipped_counts(rounds: tb.Composition) -> list[tb.ClippedNoise]:
    """The counts that are seen."""
    return [count for count, _ in rounds.parts if isinstance(count, tb.ClippedNoise)]


def closest_delta(composition: tb.Composition, epsilon: float, rtol: float = 1e-2) -> tb.Bounds:
    """delta(epsilon) within ``rtol``, or as closely as it can be had: wide bounds are bounds."""
    try:
        return composition.delta(epsilon, rtol)
    except tb.PrecisionError as error:
        return tb.Bounds(error.lower, error.upper)


# ------------------------------------------------------------------- how much is enough


@dataclass(frozen=True)
class Minimal:
    """The least noise of one kind that meets the target.

    Attributes:
        noise: meets it, certified.
        mean: noise of this kind needs a mean above ``lower``, whatever its scale; ``upper`` is
            the mean of ``noise``.
        delta: at the target's epsilon, of ``noise``.
    """

    noise: Noise
    mean: tb.Bounds
    delta: tb.Bounds


def minimal_noise(
    view: View,
    kind: str,
    runs: int,
    *,
    epsilon: float = TARGET[0],
    delta: float = TARGET[1],
    tolerance: float = 2e-2,
) -> Minimal:
    """The least mean number of dummies, over mean and scale, that meets the target.

    The noise is added to the counts (reading ADDED). In the other reading the question has no
    answer: there a smaller mean hides more, and a mean of minus infinity hides everything.

    Guarantee: the noise returned meets the target; no noise of this kind with a mean of at most
    ``mean.lower`` does, whatever its scale (>= 200). The ends are ``tolerance`` apart, relative.
    Source: the proof at the top of this file.

    Args:
        view: ``dialing``, ``both_counts`` or ``singles``.
        kind: "laplace" or "gaussian".
        runs: number of rounds observed.
        epsilon, delta: the target, nats.

    Raises:
        CalibrationError: the lower end could not be proved.
    """
    question = _Question(view, kind, runs, epsilon, delta)
    scale = question.best_scale()
    mean = question.mean_for(scale)
    while (found := closest_delta(question.rounds(mean, scale), epsilon)).upper > delta:
        mean *= 1.0 + tolerance / 8
    least = mean * (1.0 - tolerance)
    question.prove_that_none_meets(least, scale, tolerance)
    return Minimal(Noise(kind, mean, scale), tb.Bounds(least, mean), found)


@dataclass(frozen=True)
class _Question:
    view: View
    kind: str
    runs: int
    epsilon: float
    delta: float

    def rounds(self, mean: float, scale: float, reading: str = ADDED) -> tb.Composition:
        """All of them together."""
        return self.view(Noise(self.kind, mean, scale), reading) * self.runs

    def never_clipped(self, scale: float) -> tb.Bounds:
        """delta of noise whose mean is too large to matter: as little as this scale allows."""
        return self.rounds(0.0, scale, _NEVER).delta(self.epsilon, 1e-3)

    def mean_for(self, scale: float) -> float:
        """About the least mean for a scale; inf if no mean will do.

        A heuristic: what is left of delta may go into certainty, that is into negative X.
        """
        left = self.delta - self.never_clipped(scale).upper
        if left <= 0:
            return math.inf
        share = left / self.rounds(0.0, scale, _NEVER).runs
        return scale * (
            -math.log(2 * share) if self.kind == "laplace" else -NormalDist().inv_cdf(share)
        )

    def best_scale(self) -> float:
        """The scale with about the least mean: upwards from where delta is met."""
        enough = tb.calibrate(
            lambda scale: self.rounds(0.0, scale, _NEVER),
            epsilon=self.epsilon,
            delta=self.delta,
            between=(200.0, 1e6),
            rtol=1e-3,
        ).value
        scale, mean = enough, math.inf
        while (next_mean := self.mean_for(1.003 * scale)) < mean:
            scale, mean = 1.003 * scale, next_mean
        return scale

    def prove_that_none_meets(self, mean: float, best: float, tolerance: float) -> None:
        """No noise of this mean or less meets the target, whatever its scale.

        Raises:
            CalibrationError: it could not be proved.
        """
        low = best
        while not self.never_clipped(self.rounded(low)).lower > self.delta:
            low *= 1.0 - tolerance
        step = tolerance / 4
        while not self.certain(mean, low).lower > self.delta:
            if self.miss(mean, low, low * (1.0 + step)):
                low *= 1.0 + step
                step *= 1.5
            elif step < tolerance / 100:
                raise tb.errors.CalibrationError(
                    f"a mean of {mean:g} with a scale of about {low:g} could not be ruled out"
                )
            else:
                step /= 2.0

    def certain(self, mean: float, scale: float) -> tb.Bounds:
        """The chance of an output that says which it was: it grows with the scale."""
        return self.rounds(mean, scale).delta(math.inf)

    def miss(self, mean: float, low: float, high: float) -> bool:
        """Whether all scales from low to high miss the target, for means of at most ``mean``.

        Without rounding, noise hides no more if its mean and scale shrink by one factor; rounding
        up hides no more than a mean larger by 2 and a scale a hair larger would.
        Source: the proof at the top of this file.
        """
        scale = self.rounded(high)
        milder = self.rounds((mean + 2.0) * (scale / low) * (1.0 + 1e-12), scale)
        return closest_delta(milder, self.epsilon, 3e-2).lower > self.delta

    def rounded(self, scale: float) -> float:
        """A scale at which unrounded noise hides at least what rounded noise does at ``scale``."""
        counts = clipped_counts(self.rounds(0.0, scale))
        return scale / (1.0 - max(1.0 / (3.0 * c.scale * c.shift) for c in counts))
