"""The risk of an (epsilon, delta): an attacker's advantage, detection, belief, and one Gaussian."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from tightbudget import notebook
from tightbudget.engine.engine import Engine, Reader
from tightbudget.engine.readings.gaussian_dp import gaussian_mu_bounds
from tightbudget.engine.readings.probabilistic_dp import exceedance_bounds
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.rounding import (
    UNIT,
    add_down,
    add_up,
    exp_down,
    exp_up,
    log_down,
    log_up,
    mul_down,
    mul_up,
    next_down,
    next_up,
    sub_down,
    sub_up,
)

# Parts of an eps at which delta is read to bound P(L > eps); each gives a bound, the least counts.
_BELOW = (0.0, 0.5, 0.8, 0.9, 0.95)
# The relative gap with which delta is read before it is known how close it has to be.
_FIRST_GAP = 0.05


@dataclass(frozen=True, repr=False)
class Risk:
    """A risk says what an attacker who sees all outputs can find out about one record.

    The attacker knows everything but which of two neighbouring data sets was used; P is the
    distribution of all outputs together on the one, Q on the other. Every value is for the worse
    of the two directions.

    Guarantee: the exact value lies between both bounds. ``rtol`` limits the gaps of ``advantage``,
    ``tpr`` (unless it is below 1e-100, or ``fpr`` is 0) and ``delta``. ``bayes_risk``, ``mu`` and
    ``exceedance`` come as close as the engine gets: all of them within ``rtol`` by the saddle-point
    engine; by buckets ``exceedance`` to about the square root of that, and where
    ``epsilon`` is itself a loss that some output has, P(L > eps) and P(L >= eps) both lie inside.

    Attributes:
        epsilon, fpr, prior, slack: the questions, as asked.
        advantage: the largest true-positive rate minus false-positive rate of any test: the total
            variation between P and Q, delta(0). Source: Kairouz, Oh, Viswanath 2015.
        tpr: the largest true-positive rate P(S) of a test with false-positive rate Q(S) = fpr:
            1 - f(fpr) for the trade-off function f. Source: Dong, Roth, Su 2022; Kulynych et
            al. 2024.
        bayes_risk: the least probability of a wrong guess between the two data sets, where the
            one that plays P has probability ``prior`` beforehand:
            prior (1 - delta(ln((1 - prior) / prior))). Source: Kaissis et al. 2024.
        mu: the smallest mu for which delta(eps) <= delta_mu(eps) + slack for all eps >= 0, with
            delta_mu of one Gaussian mechanism of sensitivity mu and sigma 1; then no attack has a
            tpr that exceeds the Gaussian one's by more than ``slack``. inf, if more than that tells
            the neighbours apart for certain. Without slack, Gaussian steps have sqrt(sum of m^2),
            m = sensitivity / sigma, sampled or not; of other losses without a largest one only
            the lower bound is known. Source: Dong, Roth, Su 2022, Corollary 2.13.
        delta: delta(epsilon), the mean of max(0, 1 - e^(epsilon - L)) under P.
        exceedance: P(L > epsilon), the mass of the outputs whose loss is above epsilon: the delta
            of *probabilistic* differential privacy. Each counts in full, however little it is
            above; so it is at least delta(epsilon). Source: Machanavajjhala et al. 2008; Meiser,
            Mohammadi 2018.
        belief: to what an output with loss epsilon raises a belief of ``prior`` in the data set
            that plays P; a higher one has probability ``exceedance``.
    """

    epsilon: float
    fpr: float
    prior: float
    slack: float
    advantage: Bounds
    tpr: Bounds
    bayes_risk: Bounds
    mu: Bounds
    delta: Bounds
    exceedance: Bounds
    belief: Bounds

    def down_to(self, below: Risk, read: Reader, rtol: float, apart: str) -> Risk:
        """The risk of a mechanism between two pairs: one dominates it, it dominates the other.

        P(L > eps) is not ordered as pairs are, but delta is, and for 0 <= e < eps

            delta(eps) <= P(L > eps) <= delta(e) / (1 - e^(e - eps)).

        Args:
            below: the risk of the pair that is dominated, for the same questions.
            read: reads delta of the dominating pair.
            rtol: the gap from which on a value says that its bounds are apart.
            apart: what keeps the two pairs apart; "" if they enclose an exact one.
        """

        def between(lower: float, upper: float) -> Bounds:
            bounds = Bounds(lower, upper)
            return bounds if bounds.relative_gap <= rtol else replace(bounds, apart=apart)

        return replace(
            self,
            bayes_risk=between(self.bayes_risk.lower, below.bayes_risk.upper),
            mu=between(below.mu.lower, self.mu.upper),
            exceedance=between(self.delta.lower, _exceeded(read, self.epsilon)),
        )

    def to_dict(self) -> dict[str, Any]:
        """The questions as numbers, the answers as ``{"lower": ..., "upper": ...}``."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: v.to_dict() if isinstance(v, Bounds) else v for name, v in values}

    def rows(self) -> dict[str, str]:
        """Each answer with its question, for people."""
        return {name: f"{answer}, {asked}" for name, answer, asked in self._answers()}

    def _answers(self) -> tuple[tuple[str, Bounds, str], ...]:
        """Each answer: its name, its bounds and the question in words."""
        return (
            ("advantage", self.advantage, "true minus false positives, at most"),
            ("true positives", self.tpr, f"at a false-positive rate of {self.fpr!r}"),
            ("wrong guesses", self.bayes_risk, f"at best, from a prior of {self.prior!r}"),
            ("Gaussian mu", self.mu, f"for all eps, up to a delta of {self.slack!r}"),
            ("delta", self.delta, f"at epsilon = {self.epsilon!r}"),
            ("loss above it", self.exceedance, "the probability"),
            ("belief there", self.belief, f"from a prior of {self.prior!r}"),
        )

    def __str__(self) -> str:
        rows = self.rows()
        wide = max(map(len, rows)) + 2
        return "\n".join(f"{name:<{wide}}{value}" for name, value in rows.items())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Writes a table of the answers, those that are probabilities with bars."""
        rows = [
            (
                name,
                answer,
                notebook.Html("") if name == "Gaussian mu" else notebook.scale(answer.upper, 1.0),
                notebook.muted(asked),
            )
            for name, answer, asked in self._answers()
        ]
        return notebook.shown(notebook.table(rows))


@dataclass(frozen=True, kw_only=True)
class Promised:
    """The values of a risk that are as close as is asked: see :class:`Risk`."""

    advantage: Bounds
    tpr: Bounds
    delta: Bounds


def risk_of(
    losses: Engine,
    close: Promised,
    epsilon: float,
    fpr: float,
    prior: float,
    slack: float,
    rtol: float,
) -> Risk:
    """All answers: those that are known, and the others from one composition's losses."""
    odds = _against(prior)
    return Risk(
        epsilon=epsilon,
        fpr=fpr,
        prior=prior,
        slack=slack,
        advantage=close.advantage,
        tpr=close.tpr,
        bayes_risk=_bayes_risk(losses, prior, odds, rtol),
        mu=gaussian_mu_bounds(losses, slack, rtol),
        delta=close.delta,
        exceedance=exceedance_bounds(losses, epsilon, rtol),
        belief=_belief(odds, epsilon),
    )


def _exceeded(read: Reader, epsilon: float) -> float:
    """An upper bound of P(L > epsilon), epsilon >= 0, from delta below epsilon."""
    least = 1.0
    for share in _BELOW:
        near = share * epsilon
        kept = sub_down(1.0, exp_up(add_up(near, -epsilon)))
        if kept > 0.0:
            least = min(least, next_up(read(near, 0.01).upper / kept))
    return least


def _against(prior: float) -> Bounds:
    """(1 - prior) / prior."""
    odds = (1.0 - prior) / prior
    return (
        Bounds(odds, odds) if odds == 1.0 else Bounds(odds * (1 - 4 * UNIT), odds * (1 + 4 * UNIT))
    )


def _bayes_risk(losses: Engine, prior: float, odds: Bounds, rtol: float) -> Bounds:
    # of the sets S on which P is guessed: prior P(not S) + (1 - prior) Q(S), at its least
    read = losses.reader()
    first, last = (log_down(odds.lower), log_up(odds.upper)) if odds.width else (0.0, 0.0)
    risk, gap = Bounds(0.0, prior), _FIRST_GAP
    for _ in range(3):
        caught = Bounds(read(last, gap).lower, read(first, gap).upper)
        # guard: least-caught-most-missed
        least, most = sub_down(1.0, caught.upper), sub_up(1.0, caught.lower)
        risk = Bounds(max(0.0, mul_down(prior, least)), min(prior, mul_up(prior, most)))
        if risk.relative_gap <= rtol:
            break
        # what is caught is known as closely as what is left to be wrong is small
        left = max(1e-3, 1.0 - caught.upper) / max(caught.upper, 1e-3)
        gap = min(0.1 * gap, 0.5 * rtol * left)
    return risk


def _belief(odds: Bounds, epsilon: float) -> Bounds:
    # posterior odds are prior odds times e^L
    most = add_up(1.0, mul_up(odds.upper, exp_up(-epsilon)))
    least = add_down(1.0, mul_down(odds.lower, exp_down(-epsilon)))
    return Bounds(next_down(1.0 / most), min(1.0, next_up(1.0 / least)))
