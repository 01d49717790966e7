"""Guards of gradual and tested releases, of lattices and models, taken away one by one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import Without, each, lose_a_truth
from tests.release.enumerated import Law, Outcomes, power
from tests.release.test_gradual import EPSILONS, stays, worst_excess
from tests.release.test_tested import mechanism
from tests.release.test_tested import worst_excess as worst_tested

import tightbudget as tb
from tightbudget.release.mechanisms import erm, gradual, objective, tested
from tightbudget.release.noise import coins, lattice
from tightbudget.release.noise.lattice import LatticeNoise


def a_third() -> bool:
    found = Outcomes.of(lambda noise: coins.bernoulli(Fraction(1, 3), noise), depth=12)
    return abs(found.masses[True] - Fraction(1, 3)) <= found.missing


def one_over_e() -> bool:
    found = Outcomes.of(lambda noise: coins.bernoulli_exp(Fraction(1), noise), depth=12)
    return abs(float(found.masses[True]) - 0.3679) <= float(found.missing)


def never_too_likely_to_stay() -> bool:
    # scales of 1/2 and 1: sinh^2(1/2) / sinh^2(1) = 1 / (4 cosh^2(1/2)) = 1 / (e + 2 + 1/e)
    return gradual.stay_down(Fraction(1, 2), Fraction(1)) < Fraction("0.1966119332414818526")


def gradual_prices() -> bool:
    return worst_excess(EPSILONS[1:], 8) <= 0


def prices_of_a_test() -> bool:
    audited = mechanism()
    return worst_tested(audited, {str(c): p for c, p in audited.guarantee.cells.items()}) <= 0


def in_budget_of_exponents() -> bool:
    """Proposals are nowhere too rare, at (1, 1), and shifts by one step cost at most epsilon."""
    noise, asked = LatticeNoise(2, 1, 1), list[Fraction]()

    def taken(excess: Fraction, _: Any) -> bool:
        asked.append(excess)
        return True

    class Ones(Law):
        def laplace(self, scale: Any, size: int) -> Any:
            return np.ones(size, dtype=np.int64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "bernoulli_exp", taken)
        noise.draw(Ones([], 0))
    return asked[0] >= 0


def near_the_minimum() -> bool:
    mean = objective.Objective(tb.release.Loss.HUBER_SVM, 4.0, 1, 1)
    found = mean.minimum(np.ones((1, 1)), np.ones(1))[0]
    return abs(found - 0.25) <= mean.tolerance


def no_record_counts_more_than_it_may() -> bool:
    odd = np.array([[2.0], [1e300], [np.nan], [0.5], [-3.0]])
    with np.errstate(all="ignore"):
        rows, labels = erm._usable(odd, np.array([1.0, -1.0, 1.0, 7.0, -1.0]))
    return bool((np.abs(rows[:, 0]) == [1, 1, 0, 0, 1]).all()) and set(labels.tolist()) <= {
        -1.0,
        1.0,
    }


def the_error_moves_no_further() -> bool:
    w = 0.1
    moved = np.tanh(w / 2) - np.tanh(0.0), np.tanh(w / 4) - np.tanh(-w / 4)
    return max(moved) <= tb.release.GateSensitivity.TIGHT.bound(Fraction(w))


MUTATIONS = [
    Without("a coin that says the opposite", {"coin-as-drawn": "return not bit"}, a_third),
    Without(
        "an exponential of the wrong parity",
        {"exponential-parity": "return k % 2 == 0"},
        one_over_e,
    ),
    Without(
        "a coin rounded up",
        {
            "coin-rounded-down": (
                "return (Fraction(math.sinh(x)) / Fraction(math.sinh(y))) ** 2 * (1 + "
                "Fraction(1, 2**40))"
            )
        },
        never_too_likely_to_stay,
    ),
    Without(
        "answers with noise of their own",
        {"answers-share-noise": ("draws.append((0 if stays else int(noise.laplace(wide, 1)[0])))")},
        gradual_prices,
    ),
    Without(
        "the precise answer first", {"precise-answer-last": "for draw in draws:"}, gradual_prices
    ),
    Without(
        "a test without noise",
        {"noisy-test": "if error <= threshold:"},
        prices_of_a_test,
        slow=True,
    ),
    Without(
        "a norm rounded down",
        {"norm-rounded-down": "return math.isqrt(square) if square else 0"},
        in_budget_of_exponents,
    ),
    Without(
        "a minimum that is not tested",
        {"minimum-tested": "if float(np.linalg.norm(p)) <= 2 * self.radius:"},
        near_the_minimum,
    ),
    Without(
        "rows of any length",
        {"rows-not-too-long": "long = (unit > 1) | (length > 9)"},
        no_record_counts_more_than_it_may,
    ),
    Without(
        "rows that overflow",
        {"rows-scaled-first": "unit = np.where(largest > np.inf, largest, 1.0)"},
        no_record_counts_more_than_it_may,
    ),
    Without(
        "numbers that are missing",
        {"missing-numbers-seen": "present = ((labels == -1) | (labels == 1))"},
        no_record_counts_more_than_it_may,
    ),
    Without(
        "any label",
        {"missing-numbers-seen": "present = np.isfinite(rows).all(axis=1)"},
        no_record_counts_more_than_it_may,
    ),
    Without(
        "half the sensitivity of the error",
        {"error-sensitivity": "return min(apart / 4, Fraction(2))"},
        the_error_moves_no_further,
    ),
]


@pytest.mark.one_in(4)
@each(MUTATIONS)
def test_without_the_guard(monkeypatch: pytest.MonkeyPatch, mutation: Without) -> None:
    if mutation.true is gradual_prices:
        monkeypatch.setattr(
            gradual,
            "stay_down",
            lambda narrow, wide: stays(1 / power(1 / wide), 1 / power(1 / narrow)),
        )
        monkeypatch.setattr(gradual, "bernoulli", lambda p, noise: noise.biased(p))
    if mutation.true is prices_of_a_test:
        monkeypatch.setattr(tested, "_FINENESS", 1)
    lose_a_truth(monkeypatch, mutation)
