"""The result of an audit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tightbudget import notebook
from tightbudget.audit.claims import ClaimLines
from tightbudget.drawing import draw_tradeoff
from tightbudget.numerics.binomial import most_chance
from tightbudget.numerics.bounds import Bounds, Estimate, rounded
from tightbudget.numerics.rounding import sub_up


class AttackPoint(NamedTuple):
    """The errors of one attack, with the bounds that Clopper and Pearson give each of them alone.

    The bounds are for independent trials. In one run canaries may depend on each other: there they
    are drawn, and prove nothing.

    Attributes:
        false_positives, negatives: of so many that were out, so many were called in.
        false_negatives, positives: of so many that were in, so many were not called in.
        fpr, fnr: bounds of the two rates, each at the confidence of the audit.
    """

    false_positives: int
    negatives: int
    false_negatives: int
    positives: int
    fpr: Bounds
    fnr: Bounds

    @classmethod
    def of(
        cls, false_positives: int, negatives: int, false_negatives: int, positives: int,
        level: float,
    ) -> AttackPoint:  # fmt: skip
        """Makes the point of four counts; a bound is wrong with half a level as probability."""
        half = level / 2
        fpr = _rate(false_positives, negatives, half)
        fnr = _rate(false_negatives, positives, half)
        return cls(false_positives, negatives, false_negatives, positives, fpr, fnr)


def _rate(k: int, n: int, level: float) -> Bounds:
    """Bounds a chance of which k of n were seen."""
    if n == 0:
        return Bounds(0.0, 1.0)
    return Bounds(max(0.0, -sub_up(most_chance(n - k, n, level), 1.0)), most_chance(k, n, level))


@dataclass(frozen=True, repr=False)
class Audit:
    """An audit says what a run costs at least, with confidence, and whether it refutes a claim.

    Guarantee: that of the function that made it, such as :func:`one_run`: a run that keeps the
    claim is refuted with a probability of at most ``level``, and so often is each of the two lower
    bounds wrong. "consistent" proves nothing: a weak attack gives it, too.

    Attributes:
        test: "one run", "many runs", "histograms", "sequential" or "search".
        delta: the delta of ``epsilon_at_least``.
        level: 1 - confidence.
        trials: the number of canaries, or of runs, that the test has used.
        guesses: how many of them were guessed.
        right: how many guesses are right.
        epsilon_at_least: no (epsilon, delta) below it holds (nats).
        mu_at_least: no Gaussian trade-off curve with a mu below it holds.
        p_value: at most so likely is a result like this, or one that says more, if the claim is
            kept; None without a claim.
        claim: the claim as (epsilon, delta) that it implies; None without a claim.
        points: the errors of the attack, to be drawn.
        needed: about how many canaries, or runs, would show half the noise; None without a claim.
    """

    test: str
    delta: float
    level: float
    trials: int
    guesses: int
    right: int
    epsilon_at_least: float
    mu_at_least: float
    p_value: float | None
    claim: ClaimLines | None
    points: tuple[AttackPoint, ...]
    needed: Estimate | None

    @property
    def confidence(self) -> float:
        """The confidence, 1 - level."""
        return 1.0 - self.level

    @property
    def verdict(self) -> str:
        """Says "refuted" if the claim is, "consistent" if not, and "no claim" without one."""
        if self.p_value is None:
            return "no claim"
        return "refuted" if self.p_value <= self.level else "consistent"

    @property
    def claimed(self) -> float | None:
        """The epsilon that the claim promises at ``delta``, at most; None without a claim.

        Where the claim is of some output cells alone, this is their price.
        """
        if self.claim is None:
            return None
        held = [line.epsilon for line in self.claim.points if line.delta <= self.delta]
        return min(held, default=math.inf)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values: the verdict, the lower bounds, the counts and the points."""
        return {
            "verdict": self.verdict,
            "test": self.test,
            "confidence": self.confidence,
            "epsilon_at_least": self.epsilon_at_least,
            "delta": self.delta,
            "claimed": self.claimed,
            "mu_at_least": self.mu_at_least,
            "p_value": self.p_value,
            "trials": self.trials,
            "guesses": self.guesses,
            "right": self.right,
            "needed": None if self.needed is None else self.needed.value,
            "points": [
                {"fpr": point.fpr.to_dict(), "fnr": point.fnr.to_dict()} for point in self.points
            ],
        }

    def rows(self) -> dict[str, str]:
        """Each answer with its question, for people."""
        percent = f"{100 * self.confidence:.6g} %"
        said = {"refuted": f"refuted at {percent}", "consistent": f"consistent at {percent}"}
        claimed = self.claimed
        promise = "" if claimed is None else f" (the claim: at most {_number(claimed, up=True)})"
        least = f"at least {_number(self.epsilon_at_least)} at delta {self.delta!r}"
        rows = {
            "claim": said.get(self.verdict, f"none was tested; bounds at {percent}"),
            "epsilon": f"{least}{promise}",
            "Gaussian mu": f"at least {_number(self.mu_at_least)}",
            "seen": f"{self.right:,} of {self.guesses:,} guesses right, {self.trials:,} "
            f"{'canaries' if self.test == 'one run' else 'trials'} ({self.test})",
        }
        if self.p_value is not None:
            rows["p-value"] = f"at most {_number(self.p_value, up=True)}"
        if self.needed is not None:
            value = self.needed.value
            many = f"about {value:,.0f}" if value < math.inf else "more than 10,000,000"
            rows["half the noise"] = f"would take {many} (not certified)"
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        wide = max(map(len, rows)) + 2
        return "\n".join(f"{name:<{wide}}{value}" for name, value in rows.items())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Writes a table of the answers."""
        return notebook.shown(notebook.table(list(self.rows().items())))

    def plot(self, ax: Any = None, label: str | None = None) -> Any:
        """Draws the trade-off curve of the claim, and the errors of the attack with their boxes.

        A point whose box is below the curve is a test that no run has that keeps the claim. In one
        run, the boxes are those of independent canaries, and the verdict is another test's.

        Needs the extra ``plot``.

        Args:
            ax: matplotlib axes to draw on; new ones if absent.
            label: for the legend.

        Returns:
            The axes.

        Raises:
            ExtraError: matplotlib is not installed.
        """
        fpr = np.linspace(0.0, 1.0, 201)
        claim = self.claim
        fnr = None if claim is None else np.array([claim.false_negatives(x) for x in fpr.tolist()])
        return draw_tradeoff(
            fpr, fnr, [(point.fpr, point.fnr) for point in self.points], ax=ax, label=label
        )


def _number(x: float, *, up: bool = False) -> str:
    return rounded(x, 4, up=up)
