"""Guards of gradual and tested releases, of lattices and models, taken away one by one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.guards.mutants import Mutation, each, lose_a_truth
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
    mean = objective.Objective(tb.Loss.HUBER_SVM, 4.0, 1, 1)
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
    return max(moved) <= tb.TestSensitivity.TIGHT.bound(Fraction(w))


MUTATIONS = [
    Mutation(
        "a coin that says the opposite",
        coins,
        "bernoulli",
        (("return bit", "return not bit"),),
        a_third,
    ),
    Mutation(
        "an exponential of the wrong parity",
        coins,
        "bernoulli_exp",
        (("k % 2 == 1", "k % 2 == 0"),),
        one_over_e,
    ),
    Mutation(
        "a coin rounded up",
        gradual,
        "stay_down",
        (("(1 - Fraction(1, 2**40))", "(1 + Fraction(1, 2**40))"),),
        never_too_likely_to_stay,
    ),
    Mutation(
        "answers with noise of their own",
        gradual.GradualRelease,
        "_run",
        (("draws.append(draws[-1] + (", "draws.append(("),),
        gradual_prices,
    ),
    Mutation(
        "the precise answer first",
        gradual.GradualRelease,
        "_run",
        (("for draw in reversed(draws)", "for draw in draws"),),
        gradual_prices,
    ),
    Mutation(
        "a test without noise",
        tested.TestedRelease,
        "_run",
        (("error + int(noise.laplace(self._scale, 1)[0])", "error"),),
        prices_of_a_test,
        slow=True,
    ),
    Mutation(
        "a norm rounded down",
        lattice,
        "norm_up",
        (("math.isqrt(square - 1) + 1", "math.isqrt(square)"),),
        in_budget_of_exponents,
    ),
    Mutation(
        "a minimum that is not tested",
        objective.Objective,
        "minimum",
        (("if size <= goal and", "if"),),
        near_the_minimum,
    ),
    Mutation(
        "rows of any length",
        erm,
        "_usable",
        (("> LONGEST", "> 9"),),
        no_record_counts_more_than_it_may,
    ),
    Mutation(
        "rows that overflow",
        erm,
        "_usable",
        (("largest > 2", "largest > np.inf"),),
        no_record_counts_more_than_it_may,
    ),
    Mutation(
        "numbers that are missing",
        erm,
        "_usable",
        (("np.isfinite(rows).all(axis=1) & ", ""),),
        no_record_counts_more_than_it_may,
    ),
    Mutation(
        "any label",
        erm,
        "_usable",
        ((" & ((labels == -1) | (labels == 1))", ""),),
        no_record_counts_more_than_it_may,
    ),
    Mutation(
        "half the sensitivity of the error",
        erm.TestSensitivity,
        "bound",
        (("apart / 2", "apart / 4"),),
        the_error_moves_no_further,
    ),
]


@each(MUTATIONS)
def test_without_the_guard(monkeypatch: pytest.MonkeyPatch, mutation: Mutation) -> None:
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
